/* Stream-ordered pools: they grow by blocks and shrink when the stream is waited for, or when trimmed. */
#include "fake.h"

#include <stdlib.h>

#define BLOCK (UINT64_C(32) << 20)

struct CUmemPoolHandle_st {
    int device; /* -1 for the host's memory */
    int type;
    CUmemLocation location;
    bool is_destroyed;
    uint64_t reserved;
    uint64_t used;
    uint64_t threshold;
    CUmemoryPool next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#define DEFAULT(number)                                                                                      \
    {                                                                                                        \
        .device = (number),                                                                                  \
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,                                                               \
        .location = { CU_MEM_LOCATION_TYPE_DEVICE, number },                                                 \
    }
static struct CUmemPoolHandle_st defaults[FAKE_DEVICES]
    = { DEFAULT(0), DEFAULT(1), DEFAULT(2), DEFAULT(3), DEFAULT(4), DEFAULT(5), DEFAULT(6), DEFAULT(7) };
static struct CUmemPoolHandle_st of_host
    = { .device = -1, .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { CU_MEM_LOCATION_TYPE_HOST, 0 } };
static CUmemoryPool current[FAKE_DEVICES];
static CUmemoryPool pools; /* those that were created */

static void shrink(CUmemoryPool pool, uint64_t keep)
{
    uint64_t least = ((pool->used > keep ? pool->used : keep) + BLOCK - 1) & ~(BLOCK - 1);
    if (pool->reserved <= least)
        return;
    if (pool->device >= 0)
        fake_give(pool->device, pool->reserved - least);
    pool->reserved = least;
}

void fake_pools_settle(int device)
{
    pthread_mutex_lock(&lock);
    shrink(&defaults[device], defaults[device].threshold);
    for (CUmemoryPool pool = pools; pool; pool = pool->next)
        if (pool->device == device)
            shrink(pool, pool->is_destroyed ? 0 : pool->threshold);
    pthread_mutex_unlock(&lock);
}

static CUmemoryPool pool_of(int device) { return current[device] ? current[device] : &defaults[device]; }

static CUresult take_from(CUmemoryPool pool, CUdeviceptr* address, size_t asked)
{
    uint64_t bytes = (asked + 511) & ~UINT64_C(511);
    pthread_mutex_lock(&lock);
    uint64_t missing = pool->used + bytes > pool->reserved ? pool->used + bytes - pool->reserved : 0;
    missing = (missing + BLOCK - 1) & ~(BLOCK - 1);
    pthread_mutex_unlock(&lock);
    if (missing && pool->device >= 0 && !fake_take(pool->device, missing))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    pool->reserved += missing;
    pool->used += bytes;
    pthread_mutex_unlock(&lock);
    *address = fake_address(bytes);
    fake_insert((struct fake_record) { *address, bytes, pool, pool->device, FAKE_POOLED });
    return CUDA_SUCCESS;
}

CUresult fake_pool_free(struct fake_record record)
{
    CUmemoryPool pool = record.owner;
    pthread_mutex_lock(&lock);
    pool->used -= record.bytes;
    if (pool->is_destroyed)
        shrink(pool, 0);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    if (fake_current_device() < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!address || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (fake_capturing(stream)) {
        *address = fake_capture_alloc(stream, bytes);
        return CUDA_SUCCESS;
    }
    return take_from(pool ? pool : pool_of(fake_stream_device(stream)), address, bytes);
}

FAKE_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream)
{
    ENTER(cuMemAllocAsync);
    return allocate(address, bytes, NULL, stream);
}

FAKE_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t bytes, CUstream stream)
{
    ENTER(cuMemAllocAsync_ptsz);
    return allocate(address, bytes, NULL, fake_own(stream));
}

FAKE_EXPORT CUresult cuMemAllocFromPoolAsync(
    CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    ENTER(cuMemAllocFromPoolAsync);
    return pool ? allocate(address, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

FAKE_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(
    CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    ENTER(cuMemAllocFromPoolAsync_ptsz);
    return pool ? allocate(address, bytes, pool, fake_own(stream)) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult free_async(CUdeviceptr address)
{
    struct fake_record found;
    if (fake_remove(address, FAKE_POOLED, &found))
        return fake_pool_free(found);
    if (!fake_remove(address, FAKE_PLAIN, &found))
        return fake_remove(address, FAKE_FOREIGN, &found) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    fake_give(found.device, found.bytes);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    ENTER(cuMemFreeAsync);
    (void)stream;
    return free_async(address);
}

FAKE_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    ENTER(cuMemFreeAsync_ptsz);
    (void)stream;
    return free_async(address);
}

FAKE_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props)
{
    ENTER(cuMemPoolCreate);
    CUmemoryPool made = calloc(1, sizeof *made);
    made->type = props->allocType;
    made->location = props->location;
    made->device = props->location.type == CU_MEM_LOCATION_TYPE_NONE ? fake_current_device()
                                                                     : fake_device_at(&props->location);
    pthread_mutex_lock(&lock);
    made->next = pools;
    pools = made;
    pthread_mutex_unlock(&lock);
    *pool = made;
    return CUDA_SUCCESS;
}

/* A destroyed pool lives on until its last allocation is freed; its handle is dead at once. */
FAKE_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    ENTER(cuMemPoolDestroy);
    pthread_mutex_lock(&lock);
    pool->is_destroyed = true;
    shrink(pool, 0);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    ENTER(cuMemPoolTrimTo);
    pthread_mutex_lock(&lock);
    shrink(pool, keep);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* Drivers before 13.2 do not tell where a pool is. */
static CUresult get_property(CUmemoryPool pool, int attribute, int* value)
{
    if (fake_version() < 13020)
        return CUDA_ERROR_INVALID_VALUE;
    *value = attribute == CU_MEMPOOL_ATTR_ALLOCATION_TYPE ? pool->type
        : attribute == CU_MEMPOOL_ATTR_LOCATION_ID        ? pool->location.id & 0xff
        : attribute == CU_MEMPOOL_ATTR_LOCATION_TYPE      ? pool->location.type
                                                          : 0;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void* value)
{
    ENTER(cuMemPoolGetAttribute);
    if (!pool || pool->is_destroyed)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return get_property(pool, attribute, value);
    pthread_mutex_lock(&lock);
    uint64_t number = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool->reserved
        : attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT                 ? pool->used
                                                                        : pool->threshold;
    pthread_mutex_unlock(&lock);
    *(cuuint64_t*)value = number;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void* value)
{
    ENTER(cuMemPoolSetAttribute);
    if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    pool->threshold = *(cuuint64_t*)value;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device)
{
    ENTER(cuDeviceGetDefaultMemPool);
    *pool = &defaults[device];
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device)
{
    ENTER(cuDeviceGetMemPool);
    *pool = pool_of(device);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    ENTER(cuDeviceSetMemPool);
    current[device] = pool;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, int type)
{
    ENTER(cuMemGetDefaultMemPool);
    bool is_device = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0
        && location->id < fake_device_count();
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED || (!is_device && location->type != CU_MEM_LOCATION_TYPE_HOST))
        return CUDA_ERROR_NOT_SUPPORTED;
    *pool = is_device ? &defaults[location->id] : &of_host;
    return CUDA_SUCCESS;
}
