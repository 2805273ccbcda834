/* Streams, captures and graphs; the memory of graphs comes from a pool of the device at the first launch. */
#include "fake.h"

#include <stdlib.h>

#define NODES 64

struct CUgraphNode_st {
    int type;
    int device;
    size_t bytes;
    CUdeviceptr address;
};

struct CUgraph_st {
    size_t count;
    struct CUgraphNode_st nodes[NODES];
};

struct CUgraphExec_st {
    int device;
    uint64_t memory;
    uint64_t kernels;
    _Atomic bool is_backed;
};

struct CUstream_st {
    CUcontext context;
    CUgraph capture;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t graph_pool[FAKE_DEVICES];
static uint64_t graph_used[FAKE_DEVICES];

static bool is_default(CUstream stream) { return (uintptr_t)stream <= 2; }

static _Atomic int captures;

bool fake_is_any_capturing(void) { return atomic_load(&captures) > 0; }

bool fake_capturing(CUstream stream) { return !is_default(stream) && stream->capture; }

int fake_stream_device(CUstream stream)
{
    return is_default(stream) ? fake_current_device() : stream->context->device;
}

static CUgraphNode add_node(CUgraph graph, struct CUgraphNode_st node)
{
    if (graph->count == NODES)
        return NULL;
    graph->nodes[graph->count] = node;
    return &graph->nodes[graph->count++];
}

void fake_capture_kernel(CUstream stream)
{
    add_node(
        stream->capture, (struct CUgraphNode_st) { CU_GRAPH_NODE_TYPE_KERNEL, fake_current_device(), 0, 0 });
}

CUdeviceptr fake_capture_alloc(CUstream stream, size_t bytes)
{
    CUdeviceptr address = fake_address(bytes);
    add_node(stream->capture,
        (struct CUgraphNode_st) { CU_GRAPH_NODE_TYPE_MEM_ALLOC, fake_current_device(), bytes, address });
    return address;
}

FAKE_EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned int flags)
{
    ENTER(cuStreamCreate);
    (void)flags;
    if (!fake_context())
        return CUDA_ERROR_INVALID_CONTEXT;
    *stream = calloc(1, sizeof **stream);
    (*stream)->context = fake_context();
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    ENTER(cuStreamDestroy_v2);
    free(stream);
    return CUDA_SUCCESS;
}

static CUresult synchronize(CUstream stream)
{
    int device = fake_stream_device(stream);
    if (device < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (fake_kernel_ns())
        fake_wait(device);
    fake_pools_settle(device);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    ENTER(cuStreamSynchronize);
    return synchronize(stream);
}

FAKE_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    ENTER(cuStreamSynchronize_ptsz);
    return synchronize(stream);
}

static CUresult is_capturing(CUstream stream, int* status)
{
    *status = fake_capturing(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuStreamIsCapturing(CUstream stream, int* status)
{
    ENTER(cuStreamIsCapturing);
    return is_capturing(stream, status);
}

FAKE_EXPORT CUresult cuStreamIsCapturing_ptsz(CUstream stream, int* status)
{
    ENTER(cuStreamIsCapturing_ptsz);
    return is_capturing(stream, status);
}

static CUresult get_context(CUstream stream, CUcontext* context)
{
    *context = is_default(stream) ? fake_context() : stream->context;
    return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

FAKE_EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext* context)
{
    ENTER(cuStreamGetCtx);
    return get_context(stream, context);
}

FAKE_EXPORT CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext* context)
{
    ENTER(cuStreamGetCtx_ptsz);
    return get_context(stream, context);
}

static CUresult begin(CUstream stream)
{
    if (is_default(stream) || stream->capture)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream->capture = calloc(1, sizeof *stream->capture);
    atomic_fetch_add(&captures, 1);
    return CUDA_SUCCESS;
}

static CUresult end(CUstream stream, CUgraph* graph)
{
    if (!fake_capturing(stream))
        return CUDA_ERROR_INVALID_VALUE;
    *graph = stream->capture;
    stream->capture = NULL;
    atomic_fetch_sub(&captures, 1);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    ENTER(cuStreamBeginCapture_v2);
    (void)mode;
    return begin(stream);
}

FAKE_EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode)
{
    ENTER(cuStreamBeginCapture_v2_ptsz);
    (void)mode;
    return begin(stream);
}

FAKE_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph)
{
    ENTER(cuStreamEndCapture);
    return end(stream, graph);
}

FAKE_EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph)
{
    ENTER(cuStreamEndCapture_ptsz);
    return end(stream, graph);
}

FAKE_EXPORT CUresult cuGraphCreate(CUgraph* graph, unsigned int flags)
{
    ENTER(cuGraphCreate);
    (void)flags;
    *graph = calloc(1, sizeof **graph);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    ENTER(cuGraphDestroy);
    free(graph);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuGraphAddKernelNode_v2(
    CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count, const void* params)
{
    ENTER(cuGraphAddKernelNode_v2);
    (void)before, (void)count, (void)params;
    *node
        = add_node(graph, (struct CUgraphNode_st) { CU_GRAPH_NODE_TYPE_KERNEL, fake_current_device(), 0, 0 });
    return *node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
    size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* params)
{
    ENTER(cuGraphAddMemAllocNode);
    (void)before, (void)count;
    params->dptr = fake_address(params->bytesize);
    *node = add_node(graph,
        (struct CUgraphNode_st) {
            CU_GRAPH_NODE_TYPE_MEM_ALLOC, params->poolProps.location.id, params->bytesize, params->dptr });
    return *node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE_EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* params)
{
    ENTER(cuGraphMemAllocNodeGetParams);
    if (node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    *params = (CUDA_MEM_ALLOC_NODE_PARAMS) { .bytesize = node->bytes, .dptr = node->address };
    params->poolProps.location = (CUmemLocation) { CU_MEM_LOCATION_TYPE_DEVICE, node->device };
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count)
{
    ENTER(cuGraphGetNodes);
    for (size_t i = 0; nodes && i < *count; i++)
        nodes[i] = i < graph->count ? &graph->nodes[i] : NULL;
    *count = nodes && *count < graph->count ? *count : graph->count;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, int* type)
{
    ENTER(cuGraphNodeGetType);
    *type = node->type;
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec* exec, CUgraph graph)
{
    if (!exec || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphExec made = calloc(1, sizeof *made);
    made->device = fake_current_device() < 0 ? 0 : fake_current_device();
    for (size_t i = 0; i < graph->count; i++) {
        if (graph->nodes[i].type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            made->memory += graph->nodes[i].bytes, made->device = graph->nodes[i].device;
        made->kernels += graph->nodes[i].type == CU_GRAPH_NODE_TYPE_KERNEL;
    }
    *exec = made;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuGraphInstantiate(
    CUgraphExec* exec, CUgraph graph, CUgraphNode* error, char* log, size_t size)
{
    ENTER(cuGraphInstantiate);
    (void)error, (void)log, (void)size;
    return instantiate(exec, graph);
}

FAKE_EXPORT CUresult cuGraphInstantiate_v2(
    CUgraphExec* exec, CUgraph graph, CUgraphNode* error, char* log, size_t size)
{
    ENTER(cuGraphInstantiate_v2);
    (void)error, (void)log, (void)size;
    return instantiate(exec, graph);
}

FAKE_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags)
{
    ENTER(cuGraphInstantiateWithFlags);
    (void)flags;
    return instantiate(exec, graph);
}

FAKE_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph, void* params)
{
    ENTER(cuGraphInstantiateWithParams);
    (void)params;
    return instantiate(exec, graph);
}

FAKE_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* exec, CUgraph graph, void* params)
{
    ENTER(cuGraphInstantiateWithParams_ptsz);
    (void)params;
    return instantiate(exec, graph);
}

static CUresult launch(CUgraphExec exec)
{
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    if (exec->memory && !exec->is_backed) {
        if (!fake_take(exec->device, exec->memory))
            return CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_lock(&lock);
        graph_pool[exec->device] += exec->memory;
        graph_used[exec->device] += exec->memory;
        exec->is_backed = true;
        pthread_mutex_unlock(&lock);
    }
    if (fake_kernel_ns() && exec->kernels)
        fake_enqueue(exec->device, exec->kernels * fake_kernel_ns());
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    ENTER(cuGraphLaunch);
    (void)stream;
    return launch(exec);
}

FAKE_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    ENTER(cuGraphLaunch_ptsz);
    (void)stream;
    return launch(exec);
}

FAKE_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    ENTER(cuGraphExecDestroy);
    pthread_mutex_lock(&lock);
    if (exec->is_backed)
        graph_used[exec->device] -= exec->memory;
    pthread_mutex_unlock(&lock);
    free(exec);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void* value)
{
    ENTER(cuDeviceGetGraphMemAttribute);
    if (device < 0 || device >= fake_device_count())
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    *(cuuint64_t*)value
        = attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? graph_pool[device] : graph_used[device];
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* Gives back what no living graph uses. */
FAKE_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    ENTER(cuDeviceGraphMemTrim);
    pthread_mutex_lock(&lock);
    uint64_t unused = graph_pool[device] - graph_used[device];
    graph_pool[device] -= unused;
    pthread_mutex_unlock(&lock);
    fake_give(device, unused);
    return CUDA_SUCCESS;
}
