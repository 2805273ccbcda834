/* What CUDA tells about memory: the limit is the size of the card, as far as the card is that large. */
#include "devices.h"
#include "hooks.h"
#include "reclaim.h"

#include <time.h>

#define REAP_PERIOD_MS 100

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Memory of a process that was killed is free again at once for the driver; here, within a tenth of a second.
 */
static void reap_now_and_then(struct vgpu_device* device)
{
    static _Atomic uint64_t last_ms;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    uint64_t now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    uint64_t before = atomic_load_explicit(&last_ms, memory_order_relaxed);
    if (now_ms - before >= REAP_PERIOD_MS && atomic_compare_exchange_strong(&last_ms, &before, now_ms))
        vgpu_reap(device);
}

int vgpu_mem_get_info(int (*real)(size_t*, size_t*), size_t* free_bytes, size_t* total)
{
    struct vgpu_place place;
    size_t real_free = 0;
    size_t real_total = 0;
    if (!vgpu_here(&place))
        return real(free_bytes, total);
    int result = real(&real_free, &real_total);
    if (result != CUDA_SUCCESS)
        return result;
    struct vgpu_device* device = vgpu_device(place.ordinal);
    vgpu_pools_refresh(place.ordinal);
    reap_now_and_then(device);
    uint64_t limit = vgpu_limit(device);
    uint64_t used = vgpu_used(device);
    /* The card may be overcommitted: what others hold is not free for us either. */
    if (free_bytes)
        *free_bytes = least(real_free, limit > used ? limit - used : 0);
    if (total)
        *total = least(real_total, limit);
    return result;
}

int vgpu_total_mem(int (*real)(size_t*, CUdevice), size_t* bytes, CUdevice device)
{
    int result = real(bytes, device);
    if (result == CUDA_SUCCESS && vgpu_is_limited() && vgpu_device(device))
        *bytes = least(*bytes, vgpu_limit(vgpu_device(device)));
    return result;
}
