/* Devices and contexts: primary contexts by reference count, a stack of current contexts per thread. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STACK 16

static struct CUctx_st primary[FAKE_DEVICES];
static _Atomic bool initialised;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local CUcontext stack[STACK];
static _Thread_local int depth;

/* As with the real driver, a forked child cannot use what its parent initialised. */
static void forget_after_fork(void)
{
    atomic_store(&initialised, false);
    depth = 0;
}

#define NEED_INIT()                                                                                          \
    do {                                                                                                     \
        if (!atomic_load_explicit(&initialised, memory_order_relaxed))                                       \
            return CUDA_ERROR_NOT_INITIALIZED;                                                               \
    } while (0)

#define NEED_DEVICE(device)                                                                                  \
    do {                                                                                                     \
        NEED_INIT();                                                                                         \
        if ((device) < 0 || (device) >= fake_device_count())                                                 \
            return CUDA_ERROR_INVALID_DEVICE;                                                                \
    } while (0)

bool fake_is_initialised(void) { return atomic_load_explicit(&initialised, memory_order_relaxed); }

CUcontext fake_context(void) { return depth ? stack[depth - 1] : NULL; }

int fake_current_device(void) { return depth && stack[depth - 1] ? stack[depth - 1]->device : -1; }

FAKE_EXPORT CUresult cuInit(unsigned int flags)
{
    ENTER(cuInit);
    static _Atomic bool registered;
    (void)flags;
    if (!atomic_exchange(&registered, true))
        pthread_atfork(NULL, NULL, forget_after_fork);
    fake_self();
    for (int i = 0; i < FAKE_DEVICES; i++)
        primary[i].device = i, primary[i].is_primary = true;
    atomic_store(&initialised, true);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDriverGetVersion(int* version)
{
    ENTER(cuDriverGetVersion);
    *version = fake_version();
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal)
{
    ENTER(cuDeviceGet);
    NEED_DEVICE(ordinal);
    *device = ordinal;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetCount(int* count)
{
    ENTER(cuDeviceGetCount);
    NEED_INIT();
    *count = fake_device_count();
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device)
{
    ENTER(cuDeviceGetName);
    NEED_DEVICE(device);
    snprintf(name, (size_t)length, "Fake GPU %d", device);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device)
{
    ENTER(cuDeviceGetUuid);
    NEED_DEVICE(device);
    fake_uuid(device, (unsigned char*)uuid->bytes);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device)
{
    ENTER(cuDeviceGetUuid_v2);
    NEED_DEVICE(device);
    fake_uuid(device, (unsigned char*)uuid->bytes);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device)
{
    ENTER(cuDeviceGetAttribute);
    NEED_DEVICE(device);
    *value = attribute;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device)
{
    ENTER(cuDeviceTotalMem_v2);
    NEED_DEVICE(device);
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = fake_memory_bytes();
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total)
{
    ENTER(cuMemGetInfo_v2);
    int device = fake_current_device();
    if (device < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    uint64_t used = fake_used(device);
    if (free_bytes)
        *free_bytes = fake_memory_bytes() - used;
    if (total)
        *total = fake_memory_bytes();
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRetain);
    NEED_DEVICE(device);
    pthread_mutex_lock(&lock);
    primary[device].references++;
    pthread_mutex_unlock(&lock);
    *context = &primary[device];
    return CUDA_SUCCESS;
}

static CUresult release_primary(CUdevice device, bool is_reset)
{
    NEED_DEVICE(device);
    pthread_mutex_lock(&lock);
    if (is_reset)
        primary[device].references = 0;
    else if (primary[device].references > 0)
        primary[device].references--;
    bool is_last = primary[device].references == 0;
    pthread_mutex_unlock(&lock);
    if (is_last) {
        fake_drop_owner(&primary[device], device);
        fake_graphs_end(device);
    }
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRelease);
    return release_primary(device, false);
}

FAKE_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRelease_v2);
    return release_primary(device, false);
}

FAKE_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    ENTER(cuDevicePrimaryCtxReset);
    return release_primary(device, true);
}

FAKE_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    ENTER(cuDevicePrimaryCtxReset_v2);
    return release_primary(device, true);
}

FAKE_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active)
{
    ENTER(cuDevicePrimaryCtxGetState);
    NEED_DEVICE(device);
    *flags = 0;
    *active = primary[device].references > 0;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device)
{
    ENTER(cuCtxCreate_v2);
    NEED_DEVICE(device);
    (void)flags;
    CUcontext made = calloc(1, sizeof *made);
    made->device = device;
    made->references = 1;
    if (depth == STACK)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = made;
    *context = made;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUcontext context)
{
    if (!context || context->is_primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    fake_drop_owner(context, context->device);
    for (int i = 0; i < depth; i++)
        if (stack[i] == context)
            stack[i] = NULL;
    free(context);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    ENTER(cuCtxDestroy_v2);
    NEED_INIT();
    return destroy(context);
}

FAKE_EXPORT CUresult cuCtxAttach(CUcontext* context, unsigned int flags)
{
    ENTER(cuCtxAttach);
    NEED_INIT();
    if (flags || !fake_context() || fake_context()->is_primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = fake_context();
    (*context)->references++;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuCtxDetach(CUcontext context)
{
    ENTER(cuCtxDetach);
    NEED_INIT();
    if (!context || context->is_primary || context != fake_context())
        return CUDA_ERROR_INVALID_CONTEXT;
    return --context->references ? CUDA_SUCCESS : destroy(context);
}

FAKE_EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    ENTER(cuCtxSetCurrent);
    NEED_INIT();
    if (!depth)
        depth = 1;
    stack[depth - 1] = context;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuCtxGetCurrent(CUcontext* context)
{
    ENTER(cuCtxGetCurrent);
    NEED_INIT();
    *context = fake_context();
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    ENTER(cuCtxPushCurrent_v2);
    NEED_INIT();
    if (!context || depth == STACK)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context)
{
    ENTER(cuCtxPopCurrent_v2);
    NEED_INIT();
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext popped = stack[--depth];
    if (context)
        *context = popped;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuCtxGetDevice(CUdevice* device)
{
    ENTER(cuCtxGetDevice);
    int current = fake_current_device();
    if (current < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = current;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuCtxSynchronize(void)
{
    ENTER(cuCtxSynchronize);
    int current = fake_current_device();
    if (current < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    fake_wait(current);
    fake_pools_settle(current);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuGetExportTable(const void** table, const CUuuid* id)
{
    ENTER(cuGetExportTable);
    (void)id;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
