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

#define DEEPEST 100 /* graphs in graphs */

/* By instance: the cards that its memory nodes are on as bits of bytes, the number of its kernels as owner.
 */
static struct vgpu_table instances;

/* By instance and card: bytes of its memory nodes there, count: the trim round it was backed in. */
static struct vgpu_table backings;
_Static_assert(VGPU_ORDINALS <= 64, "cards are bits of a number");

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
    vgpu_table_forget(&backings);
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

void vgpu_graphs_refresh(int ordinal)
{
    pthread_mutex_lock(&graphs_lock);
    if (ordinal >= 0 && ordinal < VGPU_ORDINALS && charged[ordinal]) {
        trim_round++;
        measure(ordinal, 0);
    }
    pthread_mutex_unlock(&graphs_lock);
}

/* What the nodes of a graph need, those of the graphs in it included. */
struct needs {
    uint64_t kernels;
    uint64_t cards; /* bits: where there are memory nodes */
    uint64_t bytes[VGPU_ORDINALS];
};

static void survey(CUgraph graph, struct needs* needs, int depth);

static void add_memory(CUgraphNode node, struct needs* needs)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    if (!HAS(cuGraphMemAllocNodeGetParams)
        || DRIVER(cuGraphMemAllocNodeGetParams)(node, &params) != CUDA_SUCCESS)
        return;
    int ordinal = vgpu_ordinal_at(&params.poolProps.location);
    if (!vgpu_device(ordinal))
        return;
    uint64_t before = needs->bytes[ordinal];
    needs->cards |= UINT64_C(1) << ordinal;
    needs->bytes[ordinal] = before > UINT64_MAX - params.bytesize ? UINT64_MAX : before + params.bytesize;
}

static void add_node(CUgraphNode node, struct needs* needs, int depth)
{
    int type = -1;
    CUgraph child = NULL;
    if (DRIVER(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL)
        needs->kernels++;
    else if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        add_memory(node, needs);
    else if (type == CU_GRAPH_NODE_TYPE_GRAPH && HAS(cuGraphChildGraphNodeGetGraph)
        && DRIVER(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS)
        survey(child, needs, depth + 1);
}

static void survey(CUgraph graph, struct needs* needs, int depth)
{
    size_t count = 0;
    bool can_ask = HAS(cuGraphGetNodes) && HAS(cuGraphNodeGetType) && depth < DEEPEST;
    if (!can_ask || DRIVER(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS || !count)
        return;
    size_t size = count * sizeof(CUgraphNode);
    CUgraphNode* nodes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (nodes == MAP_FAILED)
        return;
    if (DRIVER(cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            add_node(nodes[i], needs, depth);
    munmap(nodes, size);
}

/* Addresses of instances use 56 bits at most. */
static uint64_t backing_key(uint64_t instance, int ordinal)
{
    return instance ^ (uint64_t)(ordinal + 1) << 56;
}

static bool is_on(uint64_t cards, int ordinal) { return cards >> ordinal & 1; }

static void remember(CUgraphExec exec, const struct needs* needs, uint32_t round)
{
    uint64_t key = (uintptr_t)exec;
    for (int i = 0; needs->cards && i < VGPU_ORDINALS; i++)
        if (is_on(needs->cards, i))
            vgpu_table_put(&backings,
                (struct vgpu_record) {
                    backing_key(key, i), needs->bytes[i], 0, (uint16_t)i, VGPU_GRAPH, round });
    vgpu_table_put(&instances, (struct vgpu_record) { key, needs->cards, needs->kernels, 0, VGPU_GRAPH, 0 });
}

static int settle(int result, CUgraphExec* exec, CUgraph graph)
{
    struct needs needs = { .cards = 0 };
    if (result == CUDA_SUCCESS && vgpu_is_limited()) {
        survey(graph, &needs, 0);
        remember(*exec, &needs, 0);
    }
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

/* Charges all that is needed, or nothing. No lock is held: room may be made in pools and graphs for it. */
static bool charge(const struct needs* needs)
{
    int i = 0;
    while (i < VGPU_ORDINALS && (!is_on(needs->cards, i) || vgpu_charge(i, VGPU_GRAPH, needs->bytes[i])))
        i++;
    if (i == VGPU_ORDINALS)
        return true;
    while (i-- > 0)
        if (is_on(needs->cards, i))
            vgpu_release(i, VGPU_GRAPH, needs->bytes[i]);
    return false;
}

/* What was charged becomes what the driver took. */
static void measure_all(const struct needs* needs)
{
    for (int i = 0; i < VGPU_ORDINALS; i++)
        if (is_on(needs->cards, i))
            measure(i, needs->bytes[i]);
}

/* One that is uploaded as it is made takes its memory at once. */
int vgpu_graph_instantiate_params(int (*real)(CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*),
    CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params)
{
    struct needs needs = { .cards = 0 };
    if (!params || !(params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) || !vgpu_is_limited())
        return settle(real(exec, graph, params), exec, graph);
    survey(graph, &needs, 0);
    if (!charge(&needs))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&graphs_lock);
    int result = real(exec, graph, params);
    measure_all(&needs);
    if (result == CUDA_SUCCESS)
        remember(*exec, &needs, trim_round);
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

/* What an instance lacks on the cards that it is not backed on. */
static void find_missing(const struct vgpu_record* instance, struct needs* needs)
{
    struct vgpu_record backing;
    uint32_t round = current_round();
    for (int i = 0; i < VGPU_ORDINALS && instance->bytes >> i; i++)
        if (is_on(instance->bytes, i) && vgpu_table_get(&backings, backing_key(instance->key, i), &backing)
            && backing.count != round) {
            needs->cards |= UINT64_C(1) << i;
            needs->bytes[i] = backing.bytes;
        }
}

static void mark_backed(uint64_t instance, const struct needs* needs)
{
    for (int i = 0; i < VGPU_ORDINALS; i++)
        if (is_on(needs->cards, i))
            vgpu_table_put(&backings,
                (struct vgpu_record) {
                    backing_key(instance, i), needs->bytes[i], 0, (uint16_t)i, VGPU_GRAPH, trim_round });
}

/*
 * Launches or uploads an instance. One that takes memory now is charged for all its nodes before, and for
 * what the driver took after.
 */
static int go(
    int (*real)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream, const struct vgpu_record* instance)
{
    struct needs missing;
    if (LIKELY(!instance->bytes))
        return real(exec, stream);
    memset(&missing, 0, sizeof missing);
    find_missing(instance, &missing);
    if (!missing.cards)
        return real(exec, stream);
    if (!charge(&missing))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&graphs_lock);
    int result = real(exec, stream);
    measure_all(&missing);
    if (result == CUDA_SUCCESS)
        mark_backed(instance->key, &missing);
    pthread_mutex_unlock(&graphs_lock);
    return result;
}

int vgpu_graph_launch(int (*real)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream)
{
    struct vgpu_record instance;
    if (!vgpu_is_limited() || !vgpu_table_get(&instances, (uintptr_t)exec, &instance))
        return real(exec, stream);
    bool is_marked
        = UNLIKELY(vgpu_gate_is_on()) && vgpu_gate(stream, instance.owner ? (uint32_t)instance.owner : 1);
    int result = go(real, exec, stream, &instance);
    if (is_marked)
        vgpu_launched(stream);
    return result;
}

int vgpu_graph_upload(int (*real)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream)
{
    struct vgpu_record instance;
    bool is_ours = vgpu_is_limited() && vgpu_table_get(&instances, (uintptr_t)exec, &instance);
    return is_ours ? go(real, exec, stream, &instance) : real(exec, stream);
}

static void forget_backings(const struct vgpu_record* instance)
{
    struct vgpu_record backing;
    for (int i = 0; i < VGPU_ORDINALS && instance->bytes >> i; i++)
        if (is_on(instance->bytes, i))
            vgpu_table_take(&backings, backing_key(instance->key, i), &backing);
}

int vgpu_graph_exec_destroy(int (*real)(CUgraphExec), CUgraphExec exec)
{
    struct vgpu_record instance;
    bool is_ours = vgpu_is_limited() && vgpu_table_take(&instances, (uintptr_t)exec, &instance);
    int result = real(exec);
    if (is_ours && result != CUDA_SUCCESS)
        vgpu_table_put(&instances, instance);
    else if (is_ours)
        forget_backings(&instance);
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
