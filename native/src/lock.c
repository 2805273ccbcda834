/*
 * A robust mutex in shared memory: the kernel releases it when its holder dies, in whatever PID namespace.
 * The file may hold anything, and glibc ends the process on some contents of a mutex,
 * so its kind is compared before every use, and no wait is without an end.
 * Only books have locks, and there are none where the C library has no such functions.
 */
#include "lock.h"
#include "libc.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

_Static_assert(sizeof(pthread_mutex_t) <= sizeof(((struct vgpu_usage_device*)0)->lock), "the mutex fits");

#define PATIENCE_S 2

static pthread_mutex_t* mutex_of(struct vgpu_usage_device* device)
{
    return (pthread_mutex_t*)(void*)device->lock;
}

void vgpu_lock_init(struct vgpu_usage_device* device)
{
    pthread_mutexattr_t attributes;
    LIBC(pthread_mutexattr_init)(&attributes);
    LIBC(pthread_mutexattr_setpshared)(&attributes, PTHREAD_PROCESS_SHARED);
    LIBC(pthread_mutexattr_setrobust)(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex_of(device), &attributes);
    LIBC(pthread_mutexattr_destroy)(&attributes);
}

/* What glibc writes into the kind of a mutex made by vgpu_lock_init; the same in every process. */
static int kind_of_ours(void)
{
    static _Atomic int known = -1;
    int kind = atomic_load_explicit(&known, memory_order_relaxed);
    if (kind >= 0)
        return kind;
    struct vgpu_usage_device fresh = { .total_bytes = 0 };
    vgpu_lock_init(&fresh);
    kind = mutex_of(&fresh)->__data.__kind;
    atomic_store_explicit(&known, kind, memory_order_relaxed);
    return kind;
}

static int wait_for(pthread_mutex_t* mutex)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    return LIBC(pthread_mutex_timedlock)(mutex, &until);
}

enum vgpu_locked vgpu_lock(struct vgpu_usage_device* device)
{
    pthread_mutex_t* mutex = mutex_of(device);
    if (mutex->__data.__kind != kind_of_ours())
        return VGPU_NOT_LOCKED;
    int error = LIBC(pthread_mutex_trylock)(mutex);
    if (error == EBUSY)
        error = wait_for(mutex);
    if (error == EOWNERDEAD) {
        LIBC(pthread_mutex_consistent)(mutex);
        return VGPU_LOCKED_AFTER_DEATH;
    }
    return error ? VGPU_NOT_LOCKED : VGPU_LOCKED;
}

void vgpu_unlock(struct vgpu_usage_device* device) { pthread_mutex_unlock(mutex_of(device)); }
