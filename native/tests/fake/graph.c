/* Streams, captures and graphs; the memory of graphs comes from a pool of the device at the first launch. */
#include "fake.h"

#include <stdlib.h>

#define NODES 64

struct CUgraphNode_st {
    int type;
    int device;
    size_t bytes;
    CUdeviceptr address;
    CUgraph child;
};

struct CUgraph_st {
    size_t count;
    struct CUgraphNode_st nodes[NODES];
};

struct CUgraphExec_st {
    int device; /* of its kernels */
    uint64_t memory[FAKE_DEVICES];
    uint64_t kernels;
    uint64_t backed[FAKE_DEVICES]; /* the life of the card's graph pool in which it was backed */
};

struct CUstream_st {
    CUcontext context;
    CUgraph capture;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t graph_pool[FAKE_DEVICES];
static uint64_t graph_used[FAKE_DEVICES];
static uint64_t lives[FAKE_DEVICES] = { 1, 1, 1, 1, 1, 1, 1, 1 };

static bool is_default(CUstream stream) { return (uintptr_t)stream <= 2; }

static _Atomic int captures;

bool fake_is_any_capturing(void) { return atomic_load(&captures) > 0; }

/* Each thread's own default stream can be captured; the one that all threads share cannot. */
static _Thread_local CUgraph own_capture;

static CUgraph* capture_of(CUstream stream)
{
    return !is_default(stream) ? &stream->capture : stream == FAKE_OWN_STREAM ? &own_capture : NULL;
}

bool fake_capturing(CUstream stream) { return capture_of(stream) && *capture_of(stream); }

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
    add_node(*capture_of(stream),
        (struct CUgraphNode_st) { CU_GRAPH_NODE_TYPE_KERNEL, fake_current_device(), 0, 0, NULL });
}

CUdeviceptr fake_capture_alloc(CUstream stream, size_t bytes)
{
    CUdeviceptr address = fake_address(bytes);
    add_node(*capture_of(stream),
        (struct CUgraphNode_st) {
            CU_GRAPH_NODE_TYPE_MEM_ALLOC, fake_current_device(), bytes, address, NULL });
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
    return synchronize(fake_own(stream));
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
    return is_capturing(fake_own(stream), status);
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
    return get_context(fake_own(stream), context);
}

static CUresult begin(CUstream stream)
{
    if (!capture_of(stream) || *capture_of(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    *capture_of(stream) = calloc(1, sizeof(struct CUgraph_st));
    atomic_fetch_add(&captures, 1);
    return CUDA_SUCCESS;
}

static CUresult end(CUstream stream, CUgraph* graph)
{
    if (!fake_capturing(stream))
        return CUDA_ERROR_INVALID_VALUE;
    *graph = *capture_of(stream);
    *capture_of(stream) = NULL;
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
    return begin(fake_own(stream));
}

FAKE_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph)
{
    ENTER(cuStreamEndCapture);
    return end(stream, graph);
}

FAKE_EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph)
{
    ENTER(cuStreamEndCapture_ptsz);
    return end(fake_own(stream), graph);
}

FAKE_EXPORT CUresult cuGraphCreate(CUgraph* graph, unsigned int flags)
{
    ENTER(cuGraphCreate);
    (void)flags;
    *graph = calloc(1, sizeof **graph);
    return CUDA_SUCCESS;
}

/* With the graphs that it owns. */
static void destroy_graph(CUgraph graph)
{
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i].child)
            destroy_graph(graph->nodes[i].child);
    free(graph);
}

FAKE_EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    ENTER(cuGraphDestroy);
    destroy_graph(graph);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuGraphAddKernelNode_v2(
    CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count, const void* params)
{
    ENTER(cuGraphAddKernelNode_v2);
    (void)before, (void)count, (void)params;
    *node = add_node(
        graph, (struct CUgraphNode_st) { CU_GRAPH_NODE_TYPE_KERNEL, fake_current_device(), 0, 0, NULL });
    return *node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
    size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* params)
{
    ENTER(cuGraphAddMemAllocNode);
    (void)before, (void)count;
    params->dptr = fake_address(params->bytesize);
    *node = add_node(graph,
        (struct CUgraphNode_st) { CU_GRAPH_NODE_TYPE_MEM_ALLOC, fake_device_at(&params->poolProps.location),
            params->bytesize, params->dptr, NULL });
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

static bool has_memory(CUgraph graph)
{
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i].type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            return true;
    return false;
}

static CUresult add_child(CUgraphNode* node, CUgraph graph, CUgraph child, bool is_moved)
{
    if (!is_moved && has_memory(child))
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph own = child;
    if (!is_moved) {
        own = calloc(1, sizeof *own);
        *own = *child;
    }
    *node = add_node(
        graph, (struct CUgraphNode_st) { CU_GRAPH_NODE_TYPE_GRAPH, fake_current_device(), 0, 0, own });
    return *node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE_EXPORT CUresult cuGraphAddChildGraphNode(
    CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count, CUgraph child)
{
    ENTER(cuGraphAddChildGraphNode);
    (void)before, (void)count;
    return add_child(node, graph, child, false);
}

struct child_params {
    int type;
    int reserved[3];
    CUgraph graph;
    int ownership;
};

/* Of all kinds of nodes, only graphs. */
FAKE_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
    const void* edges, size_t count, const struct child_params* params)
{
    ENTER(cuGraphAddNode_v2);
    (void)before, (void)edges, (void)count;
    if (params->type != CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_ERROR_NOT_SUPPORTED;
    return add_child(node, graph, params->graph, params->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
}

FAKE_EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph)
{
    ENTER(cuGraphChildGraphNodeGetGraph);
    if (node->type != CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = node->child;
    return CUDA_SUCCESS;
}

static void add_up(CUgraphExec exec, CUgraph graph)
{
    for (size_t i = 0; i < graph->count; i++) {
        const struct CUgraphNode_st* node = &graph->nodes[i];
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->device >= 0)
            exec->memory[node->device] += node->bytes;
        exec->kernels += node->type == CU_GRAPH_NODE_TYPE_KERNEL;
        if (node->child)
            add_up(exec, node->child);
    }
}

static CUresult instantiate(CUgraphExec* exec, CUgraph graph)
{
    if (!exec || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphExec made = calloc(1, sizeof *made);
    made->device = fake_current_device() < 0 ? 0 : fake_current_device();
    add_up(made, graph);
    *exec = made;
    return CUDA_SUCCESS;
}

static CUresult back(CUgraphExec exec, int device)
{
    if (!exec->memory[device] || exec->backed[device] == lives[device])
        return CUDA_SUCCESS;
    if (!fake_take(device, exec->memory[device]))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    graph_pool[device] += exec->memory[device];
    graph_used[device] += exec->memory[device];
    exec->backed[device] = lives[device];
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult upload(CUgraphExec exec)
{
    CUresult result = exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (int device = 0; device < FAKE_DEVICES && result == CUDA_SUCCESS; device++)
        result = back(exec, device);
    return result;
}

/* The end of a primary context takes the graphs of its card along. */
void fake_graphs_end(int device)
{
    pthread_mutex_lock(&lock);
    uint64_t held = graph_pool[device];
    graph_pool[device] = graph_used[device] = 0;
    lives[device]++;
    pthread_mutex_unlock(&lock);
    fake_give(device, held);
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

static CUresult instantiate_by(CUgraphExec* exec, CUgraph graph, const CUDA_GRAPH_INSTANTIATE_PARAMS* params)
{
    CUresult result = instantiate(exec, graph);
    if (result == CUDA_SUCCESS && params && params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
        result = upload(*exec);
    return result;
}

FAKE_EXPORT CUresult cuGraphInstantiateWithParams(
    CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params)
{
    ENTER(cuGraphInstantiateWithParams);
    return instantiate_by(exec, graph, params);
}

FAKE_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(
    CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params)
{
    ENTER(cuGraphInstantiateWithParams_ptsz);
    return instantiate_by(exec, graph, params);
}

FAKE_EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    ENTER(cuGraphUpload);
    (void)stream;
    return upload(exec);
}

FAKE_EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    ENTER(cuGraphUpload_ptsz);
    (void)stream;
    return upload(exec);
}

static CUresult launch(CUgraphExec exec)
{
    CUresult result = upload(exec);
    if (result == CUDA_SUCCESS && fake_kernel_ns() && exec->kernels)
        fake_enqueue(exec->device, exec->kernels * fake_kernel_ns());
    return result;
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
    for (int device = 0; device < FAKE_DEVICES; device++)
        if (exec->backed[device] == lives[device])
            graph_used[device] -= exec->memory[device];
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
