/*
 * Graphs: their memory nodes are served from one pool of the device, which fills at the first launch.
 * Its charge is what the driver says it holds. An instance is remembered with what it may take and how much
 * it runs.
 */
#include "devices.h"
#include "forget.h"
#include "hooks.h"
#include "limiter.h"
#include "reclaim.h"
#include "table.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

/* By instance: bytes of its memory nodes, the number of its kernels as owner, count: the trim round it was
 * backed in. */
static struct vgpu_table instances;

/* Guarded by graphs_lock. A trim may take back what an instance was backed with. */
static uint64_t charged[VGPU_ORDINALS];
static uint32_t trim_round = 1;
static pthread_mutex_t graphs_lock = PTHREAD_MUTEX_INITIALIZER;

void vgpu_graphs_forget(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    graphs_lock = unlocked;
    memset(charged, 0, sizeof charged);
    vgpu_table_forget(&instances);
}

static void measure(int ordinal, uint64_t spare)
{
    uint64_t now = charged[ordinal];
    uint64_t before = charged[ordinal] + spare;
    if (HAS(cuDeviceGetGraphMemAttribute))
        DRIVER(cuDeviceGetGraphMemAttribute)(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &now);
    if (now > before)
        vgpu_force(ordinal, VGPU_GRAPH, now - before);
    else
        vgpu_release(ordinal, VGPU_GRAPH, before - now);
    charged[ordinal] = now;
}

static bool reclaim(int ordinal)
{
    int (*trim)(CUdevice) = (int (*)(CUdevice))vgpu_real_of(HOOK_cuDeviceGraphMemTrim);
    uint64_t before = charged[ordinal];
    if (!before || !trim)
        return false;
    trim(ordinal);
    trim_round++;
    measure(ordinal, 0);
    return charged[ordinal] < before;
}

bool vgpu_graphs_reclaim(int ordinal)
{
    pthread_mutex_lock(&graphs_lock);
    bool is_any = reclaim(ordinal);
    pthread_mutex_unlock(&graphs_lock);
    return is_any;
}

static void add_node(struct vgpu_record* instance, CUgraphNode node)
{
    int type = -1;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    if (DRIVER(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL)
        instance->owner++;
    bool is_memory = type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && HAS(cuGraphMemAllocNodeGetParams)
        && DRIVER(cuGraphMemAllocNodeGetParams)(node, &params) == CUDA_SUCCESS;
    if (is_memory && vgpu_device(params.poolProps.location.id)) {
        instance->bytes += params.bytesize;
        instance->device = (uint16_t)params.poolProps.location.id;
    }
}

static void remember(CUgraphExec exec, CUgraph graph)
{
    size_t count = 0;
    struct vgpu_record instance = { .key = (uintptr_t)exec, .kind = VGPU_GRAPH };
    bool can_ask = HAS(cuGraphGetNodes) && HAS(cuGraphNodeGetType);
    if (!can_ask || DRIVER(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS || !count)
        return;
    size_t size = count * sizeof(CUgraphNode);
    CUgraphNode* nodes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (nodes == MAP_FAILED)
        return;
    if (DRIVER(cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            add_node(&instance, nodes[i]);
    munmap(nodes, size);
    vgpu_table_put(&instances, instance);
}

static int settle(int result, CUgraphExec* exec, CUgraph graph)
{
    if (result == CUDA_SUCCESS && vgpu_is_limited())
        remember(*exec, graph);
    return result;
}

int vgpu_graph_instantiate(int (*real)(CUgraphExec*, CUgraph, CUgraphNode*, char*, size_t), CUgraphExec* exec,
    CUgraph graph, CUgraphNode* error, char* log, size_t size)
{
    return settle(real(exec, graph, error, log, size), exec, graph);
}

int vgpu_graph_instantiate_flags(int (*real)(CUgraphExec*, CUgraph, unsigned long long), CUgraphExec* exec,
    CUgraph graph, unsigned long long flags)
{
    return settle(real(exec, graph, flags), exec, graph);
}

int vgpu_graph_instantiate_params(int (*real)(CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*),
    CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params)
{
    return settle(real(exec, graph, params), exec, graph);
}

/* Launches an instance that takes memory now: charged for all its nodes before, for what the driver took
 * after. */
static int launch_unbacked(
    int (*real)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream, struct vgpu_record* instance)
{
    int ordinal = instance->device;
    pthread_mutex_lock(&graphs_lock);
    if (!vgpu_table_get(&instances, instance->key, instance) || instance->count == trim_round) {
        pthread_mutex_unlock(&graphs_lock);
        return real(exec, stream);
    }
    bool is_granted = vgpu_try_charge(ordinal, VGPU_GRAPH, instance->bytes)
        || (vgpu_reap(vgpu_device(ordinal)) && vgpu_try_charge(ordinal, VGPU_GRAPH, instance->bytes))
        || (reclaim(ordinal) && vgpu_try_charge(ordinal, VGPU_GRAPH, instance->bytes));
    int result = is_granted ? real(exec, stream) : CUDA_ERROR_OUT_OF_MEMORY;
    if (is_granted)
        measure(ordinal, instance->bytes);
    else
        vgpu_refused(ordinal, instance->bytes);
    if (result == CUDA_SUCCESS)
        vgpu_table_count(&instances, instance->key, (int32_t)(trim_round - instance->count));
    pthread_mutex_unlock(&graphs_lock);
    return result;
}

static uint32_t current_round(void)
{
    pthread_mutex_lock(&graphs_lock);
    uint32_t round = trim_round;
    pthread_mutex_unlock(&graphs_lock);
    return round;
}

int vgpu_graph_launch(int (*real)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream)
{
    struct vgpu_record instance;
    if (!vgpu_is_limited() || !vgpu_table_get(&instances, (uintptr_t)exec, &instance))
        return real(exec, stream);
    bool is_marked
        = UNLIKELY(vgpu_gate_is_on()) && vgpu_gate(stream, instance.owner ? (uint32_t)instance.owner : 1);
    bool is_backed = !instance.bytes || instance.count == current_round();
    int result = is_backed ? real(exec, stream) : launch_unbacked(real, exec, stream, &instance);
    if (is_marked)
        vgpu_launched(stream);
    return result;
}

int vgpu_graph_exec_destroy(int (*real)(CUgraphExec), CUgraphExec exec)
{
    struct vgpu_record instance;
    bool is_ours = vgpu_is_limited() && vgpu_table_take(&instances, (uintptr_t)exec, &instance);
    int result = real(exec);
    if (is_ours && result != CUDA_SUCCESS)
        vgpu_table_put(&instances, instance);
    return result;
}

int vgpu_graph_trim(int (*real)(CUdevice), CUdevice device)
{
    if (!vgpu_is_limited() || !vgpu_device(device))
        return real(device);
    pthread_mutex_lock(&graphs_lock);
    int result = real(device);
    trim_round++;
    measure(device, 0);
    pthread_mutex_unlock(&graphs_lock);
    return result;
}
