/*
 * Stream-ordered pools. A pool keeps memory back that nobody uses, so the charge of a pool is what the driver
 * says it holds, and is brought to that after every call that changes it.
 *
 * One call at a time: between the charge for the largest growth that can come and the measurement of the real
 * one, no other thread may move the number that is measured.
 */
#include "devices.h"
#include "forget.h"
#include "hooks.h"
#include "pool_place.h"
#include "reclaim.h"
#include "table.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST 64

struct pool {
    CUmemoryPool handle; /* NULL is a free entry */
    int ordinal; /* -1 for a pool that is not charged, such as one of host memory */
    bool is_destroyed; /* the driver keeps it until its last allocation is freed, but answers no question */
    uint64_t charged;
    uint64_t live; /* bytes of allocations that were not freed */
};

/* Guarded by pools_lock; pool_count may be read without it, to learn that there is none. */
static struct pool first[FIRST];
static struct pool* pools = first;
static int room = FIRST;
static _Atomic int pool_count; /* entries ever used */
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;

void vgpu_pools_forget(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    pools_lock = unlocked;
    if (pools != first)
        munmap(pools, (size_t)room * sizeof *pools);
    memset(first, 0, sizeof first);
    pools = first;
    room = FIRST;
    atomic_store(&pool_count, 0);
}

static struct pool* find(CUmemoryPool handle)
{
    for (int i = 0; i < atomic_load(&pool_count); i++)
        if (pools[i].handle == handle && !pools[i].is_destroyed)
            return &pools[i];
    return NULL;
}

/* From mmap, because malloc may be the application's own and call us. */
static bool grow(void)
{
    size_t bytes = (size_t)room * sizeof *pools;
    void* memory = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    memcpy(memory, pools, bytes);
    if (pools != first)
        munmap(pools, bytes);
    pools = memory;
    room *= 2;
    return true;
}

/* NULL when there is no memory for one more. */
static struct pool* add(CUmemoryPool handle, int ordinal)
{
    struct pool* pool = find(NULL);
    int count = atomic_load(&pool_count);
    if (!pool) {
        if (count == room && !grow())
            return NULL;
        pool = &pools[count];
        atomic_store(&pool_count, count + 1);
    }
    *pool = (struct pool) { .handle = handle, .ordinal = ordinal };
    return pool;
}

static bool ask(CUmemoryPool handle, int attribute, uint64_t* bytes)
{
    return HAS(cuMemPoolGetAttribute)
        && DRIVER(cuMemPoolGetAttribute)(handle, attribute, bytes) == CUDA_SUCCESS;
}

/* What the pool holds now; for one that cannot be asked, what is live in it. */
static uint64_t held(const struct pool* pool)
{
    uint64_t bytes;
    if (!pool->is_destroyed && ask(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes))
        return bytes;
    return pool->live;
}

/* Brings the charge to what the pool holds; `spare` bytes are charged already. False: it grew beyond the
 * limit. */
static bool measure(struct pool* pool, uint64_t spare)
{
    uint64_t now = held(pool);
    uint64_t charged = pool->charged + spare;
    if (now > charged && !vgpu_try_charge(pool->ordinal, VGPU_POOL, now - charged)) {
        vgpu_force(pool->ordinal, VGPU_POOL, now - charged);
        pool->charged = now;
        return false;
    }
    if (now < charged)
        vgpu_release(pool->ordinal, VGPU_POOL, charged - now);
    pool->charged = now;
    return true;
}

static bool trim(struct pool* pool)
{
    int (*real)(CUmemoryPool, size_t) = (int (*)(CUmemoryPool, size_t))vgpu_real_of(HOOK_cuMemPoolTrimTo);
    uint64_t before = pool->charged;
    if (!pool->is_destroyed && real)
        real(pool->handle, 0);
    measure(pool, 0);
    return pool->charged < before;
}

static bool reclaim(int ordinal)
{
    bool is_any = false;
    for (int i = 0; i < atomic_load(&pool_count); i++)
        if (pools[i].handle && pools[i].ordinal == ordinal)
            is_any |= trim(&pools[i]);
    return is_any;
}

bool vgpu_pools_reclaim(int ordinal)
{
    pthread_mutex_lock(&pools_lock);
    bool is_any = reclaim(ordinal);
    pthread_mutex_unlock(&pools_lock);
    return is_any;
}

void vgpu_pools_refresh(int ordinal)
{
    if (!atomic_load_explicit(&pool_count, memory_order_relaxed))
        return;
    pthread_mutex_lock(&pools_lock);
    for (int i = 0; i < atomic_load(&pool_count); i++)
        if (pools[i].handle && pools[i].ordinal == ordinal)
            measure(&pools[i], 0);
    pthread_mutex_unlock(&pools_lock);
}

/* Whether the pool can serve the bytes from what it keeps back. */
static bool has_kept(const struct pool* pool, uint64_t bytes)
{
    uint64_t reserved;
    uint64_t used;
    return ask(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved)
        && ask(pool->handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) && reserved >= used
        && reserved - used >= bytes;
}

/* A stream-ordered allocation under way; pools_lock is held from begin to end. */
struct attempt {
    struct pool* pool;
    uint64_t bytes;
    uint64_t spare; /* charged for it */
};

enum verdict { GO, PASS, REFUSE };

static enum verdict admit(struct attempt* attempt, CUstream stream)
{
    int ordinal = attempt->pool->ordinal;
    attempt->spare = attempt->bytes;
    if (vgpu_try_charge(ordinal, VGPU_POOL, attempt->bytes))
        return GO;
    if (vgpu_is_capturing(stream))
        return PASS;
    bool is_room = vgpu_reap(vgpu_device(ordinal)) && vgpu_try_charge(ordinal, VGPU_POOL, attempt->bytes);
    if (is_room || (vgpu_graphs_reclaim(ordinal) && vgpu_try_charge(ordinal, VGPU_POOL, attempt->bytes)))
        return GO;
    attempt->spare = 0;
    measure(attempt->pool, 0);
    if (has_kept(attempt->pool, attempt->bytes))
        return GO;
    attempt->spare = attempt->bytes;
    if (reclaim(ordinal) && vgpu_try_charge(ordinal, VGPU_POOL, attempt->bytes))
        return GO;
    vgpu_refused(ordinal, attempt->bytes);
    return REFUSE;
}

static enum verdict begin(struct attempt* attempt, CUmemoryPool handle, size_t bytes, CUstream stream)
{
    struct vgpu_place place;
    int here = vgpu_at_stream(stream, &place) ? place.ordinal : -1;
    if (!vgpu_is_limited())
        return PASS;
    if (!handle
        && (here < 0 || !HAS(cuDeviceGetMemPool)
            || DRIVER(cuDeviceGetMemPool)(&handle, here) != CUDA_SUCCESS))
        return PASS;
    pthread_mutex_lock(&pools_lock);
    struct pool* pool = find(handle);
    int ordinal = pool ? pool->ordinal : vgpu_pool_found_at(handle, here);
    if (!pool && ordinal >= 0)
        pool = add(handle, ordinal);
    *attempt = (struct attempt) { .pool = pool, .bytes = bytes };
    enum verdict verdict = ordinal < 0 ? PASS : pool ? admit(attempt, stream) : REFUSE;
    if (verdict != GO)
        pthread_mutex_unlock(&pools_lock);
    return verdict;
}

/* The pool took more than the limit allows, because it grows in blocks: the allocation is taken back. */
static int undo(struct pool* pool, CUdeviceptr address, CUstream stream)
{
    int (*real)(CUdeviceptr, CUstream) = (int (*)(CUdeviceptr, CUstream))vgpu_real_of(HOOK_cuMemFreeAsync);
    if (real)
        real(address, stream);
    trim(pool);
    vgpu_refused(pool->ordinal, 0);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static int end(struct attempt* attempt, int result, const CUdeviceptr* address, CUstream stream)
{
    struct pool* pool = attempt->pool;
    if (result == CUDA_SUCCESS)
        pool->live += attempt->bytes;
    bool is_within = measure(pool, attempt->spare);
    if (result == CUDA_SUCCESS && !is_within) {
        pool->live -= attempt->bytes;
        result = undo(pool, *address, stream);
    } else if (result == CUDA_SUCCESS) {
        vgpu_table_put(vgpu_addresses(),
            (struct vgpu_record) {
                *address, attempt->bytes, (uintptr_t)pool->handle, (uint16_t)pool->ordinal, VGPU_POOL, 0 });
    }
    pthread_mutex_unlock(&pools_lock);
    return result;
}

int vgpu_mem_alloc_async(
    int (*real)(CUdeviceptr*, size_t, CUstream), CUdeviceptr* address, size_t bytes, CUstream stream)
{
    struct attempt attempt;
    enum verdict verdict = begin(&attempt, NULL, bytes, stream);
    if (verdict == REFUSE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return verdict == PASS ? real(address, bytes, stream)
                           : end(&attempt, real(address, bytes, stream), address, stream);
}

int vgpu_mem_alloc_from_pool(int (*real)(CUdeviceptr*, size_t, CUmemoryPool, CUstream), CUdeviceptr* address,
    size_t bytes, CUmemoryPool pool, CUstream stream)
{
    struct attempt attempt;
    enum verdict verdict = pool ? begin(&attempt, pool, bytes, stream) : PASS;
    if (verdict == REFUSE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return verdict == PASS ? real(address, bytes, pool, stream)
                           : end(&attempt, real(address, bytes, pool, stream), address, stream);
}

static struct pool* of_record(const struct vgpu_record* record)
{
    for (int i = 0; i < atomic_load(&pool_count); i++)
        if ((uintptr_t)pools[i].handle == record->owner && pools[i].live >= record->bytes)
            return &pools[i];
    return NULL;
}

void vgpu_pool_freed(const struct vgpu_record* record)
{
    pthread_mutex_lock(&pools_lock);
    struct pool* pool = of_record(record);
    if (pool) {
        pool->live -= record->bytes;
        measure(pool, 0);
        if (pool->is_destroyed && !pool->live)
            *pool = (struct pool) { .handle = NULL };
    }
    pthread_mutex_unlock(&pools_lock);
}

/* A pool of no place is charged where it is first used. */
int vgpu_pool_create(
    int (*real)(CUmemoryPool*, const CUmemPoolProps*), CUmemoryPool* pool, const CUmemPoolProps* props)
{
    int result = real(pool, props);
    if (result != CUDA_SUCCESS || !vgpu_is_limited() || props->location.type == CU_MEM_LOCATION_TYPE_NONE)
        return result;
    int ordinal = vgpu_pool_made_at(props);
    pthread_mutex_lock(&pools_lock);
    add(*pool, ordinal);
    pthread_mutex_unlock(&pools_lock);
    return result;
}

int vgpu_pool_trim(int (*real)(CUmemoryPool, size_t), CUmemoryPool handle, size_t keep)
{
    int result = real(handle, keep);
    if (!vgpu_is_limited())
        return result;
    pthread_mutex_lock(&pools_lock);
    struct pool* pool = handle ? find(handle) : NULL;
    if (pool)
        measure(pool, 0);
    pthread_mutex_unlock(&pools_lock);
    return result;
}

int vgpu_pool_destroy(int (*real)(CUmemoryPool), CUmemoryPool handle)
{
    if (!vgpu_is_limited() || !handle)
        return real(handle);
    pthread_mutex_lock(&pools_lock);
    struct pool* pool = find(handle);
    int result = real(handle);
    if (pool && result == CUDA_SUCCESS) {
        pool->is_destroyed = true;
        measure(pool, 0);
        if (!pool->live)
            *pool = (struct pool) { .handle = NULL };
    }
    pthread_mutex_unlock(&pools_lock);
    return result;
}
