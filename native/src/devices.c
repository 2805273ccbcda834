#include "devices.h"
#include "claims.h"
#include "forget.h"
#include "limiter.h"
#include "log.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

_Atomic int vgpu_phase = VGPU_UNKNOWN;

/* Written under start_lock before vgpu_phase says LIMITED; after that only has_context changes. */
static struct vgpu_device devices[VGPU_ORDINALS];
static int ordinal_count;
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

/* The driver may call itself through us while we start. */
static _Thread_local bool is_starting;

/* The context that this thread saw last; void when contexts_epoch moved on. */
static _Atomic unsigned int contexts_epoch = 1;
static _Thread_local struct {
    CUcontext context;
    int ordinal;
    unsigned int epoch;
} seen;

static bool uuid_of(CUdevice device, char text[37])
{
    CUuuid uuid;
    const unsigned char* u = (const unsigned char*)uuid.bytes;
    int result = HAS(cuDeviceGetUuid_v2) ? DRIVER(cuDeviceGetUuid_v2)(&uuid, device)
        : HAS(cuDeviceGetUuid)           ? DRIVER(cuDeviceGetUuid)(&uuid, device)
                                         : CUDA_ERROR_NOT_FOUND;
    if (result != CUDA_SUCCESS)
        return false;
    snprintf(text, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
        u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    return true;
}

void vgpu_find_parts(struct vgpu_device* device, int ordinal)
{
    for (uint32_t i = 0; i < vgpu_claim_count(); i++) {
        int number = vgpu_claim_number(vgpu_claim(i), device->uuid, ordinal);
        if (number < 0)
            continue;
        device->parts[device->part_count].claim = vgpu_claim(i);
        device->parts[device->part_count++].number = (uint32_t)number;
    }
}

static bool find_devices(void)
{
    int count = 0;
    bool is_any_limited = false;
    if (!HAS(cuDeviceGetCount) || DRIVER(cuDeviceGetCount)(&count) != CUDA_SUCCESS)
        return false;
    ordinal_count = count < VGPU_ORDINALS ? count : VGPU_ORDINALS;
    for (int i = 0; i < ordinal_count; i++) {
        CUdevice handle;
        if (DRIVER(cuDeviceGet)(&handle, i) != CUDA_SUCCESS || !uuid_of(handle, devices[i].uuid))
            devices[i].uuid[0] = '\0';
        vgpu_find_parts(&devices[i], i);
        is_any_limited |= devices[i].part_count > 0;
    }
    if (!is_any_limited)
        LOG(VGPU_WARNING, "found limits, but for none of the %d GPUs that this process sees", ordinal_count);
    return true;
}

/* What pthread_atfork calls: always in libc, while that is in libpthread in old ones. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void* owner);
extern void* __dso_handle __attribute__((visibility("hidden")));

/* In a forked child the driver is unusable, and the slot is the parent's: begin anew if the child ever gets
 * further. */
static void after_fork(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    start_lock = unlocked;
    is_starting = false;
    memset(devices, 0, sizeof devices);
    vgpu_claims_forget();
    vgpu_memory_forget();
    vgpu_virtual_forget();
    vgpu_arrays_forget();
    vgpu_pools_forget();
    vgpu_graphs_forget();
    vgpu_limiter_forget();
    vgpu_marks_forget();
    vgpu_contexts_changed();
    atomic_store_explicit(&vgpu_phase, VGPU_UNKNOWN, memory_order_release);
}

void vgpu_watch_forks(void)
{
    static _Atomic bool is_watching;
    if (!atomic_exchange(&is_watching, true) && __register_atfork(NULL, NULL, after_fork, &__dso_handle) != 0)
        atomic_store(&is_watching, false);
}

static int begin(void)
{
    int count = 0;
    vgpu_real_of(HOOK_cuInit);
    if (!HAS(cuDeviceGetCount) || DRIVER(cuDeviceGetCount)(&count) != CUDA_SUCCESS)
        return VGPU_UNKNOWN;
    vgpu_watch_forks();
    if (!vgpu_claims_open())
        return VGPU_FREE;
    if (!find_devices())
        return VGPU_UNKNOWN;
    vgpu_limiter_start();
    return VGPU_LIMITED;
}

bool vgpu_start(void)
{
    if (is_starting)
        return false;
    is_starting = true;
    pthread_mutex_lock(&start_lock);
    if (atomic_load_explicit(&vgpu_phase, memory_order_acquire) == VGPU_UNKNOWN)
        atomic_store_explicit(&vgpu_phase, begin(), memory_order_release);
    pthread_mutex_unlock(&start_lock);
    is_starting = false;
    return atomic_load_explicit(&vgpu_phase, memory_order_acquire) == VGPU_LIMITED;
}

struct vgpu_device* vgpu_device(int ordinal)
{
    bool is_known = ordinal >= 0 && ordinal < ordinal_count;
    return is_known && devices[ordinal].part_count ? &devices[ordinal] : NULL;
}

int vgpu_ordinal_at(const CUmemLocation* location)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return location->id;
    case CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN:
        return location->id & 0xff;
    default:
        return -1;
    }
}

int vgpu_ordinal_count(void) { return ordinal_count; }

void vgpu_contexts_changed(void) { atomic_fetch_add_explicit(&contexts_epoch, 1, memory_order_release); }

bool vgpu_here(struct vgpu_place* place)
{
    if (!vgpu_is_limited() || DRIVER(cuCtxGetCurrent)(&place->context) != CUDA_SUCCESS || !place->context)
        return false;
    unsigned int epoch = atomic_load_explicit(&contexts_epoch, memory_order_acquire);
    if (UNLIKELY(seen.context != place->context || seen.epoch != epoch)) {
        CUdevice handle;
        if (DRIVER(cuCtxGetDevice)(&handle) != CUDA_SUCCESS)
            return false;
        seen.context = place->context;
        seen.ordinal = handle;
        seen.epoch = epoch;
    }
    place->ordinal = seen.ordinal;
    return vgpu_device(place->ordinal) != NULL;
}

/* Small numbers are the default streams, which belong to the current context. */
bool vgpu_at_stream(CUstream stream, struct vgpu_place* place)
{
    CUcontext of_stream = NULL;
    bool is_here = vgpu_here(place);
    if ((uintptr_t)stream <= 2 || !vgpu_is_limited() || !HAS(cuStreamGetCtx))
        return is_here;
    if (DRIVER(cuStreamGetCtx)(stream, &of_stream) != CUDA_SUCCESS
        || (is_here && of_stream == place->context))
        return is_here;
    if (!of_stream || DRIVER(cuCtxPushCurrent_v2)(of_stream) != CUDA_SUCCESS)
        return is_here;
    is_here = vgpu_here(place);
    DRIVER(cuCtxPopCurrent_v2)(&of_stream);
    return is_here;
}
