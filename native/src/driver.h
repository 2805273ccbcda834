/* The driver as it is without us, found on first use. */
#ifndef VGPU_DRIVER_H
#define VGPU_DRIVER_H

#include "cuda_min.h"

#include <stdatomic.h>
#include <stdbool.h>

#define VGPU_EXPORT __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum vgpu_hook {
#define HOOK(symbol, base, version, per_thread, impl, params, args) HOOK_##symbol,
#define LAUNCH(symbol, base, version, per_thread, params, args, stream) HOOK_##symbol,
#define VIEW(symbol, impl, params, args) HOOK_##symbol,
#include "hooks.def"
#undef HOOK
#undef LAUNCH
#undef VIEW
    VGPU_HOOKS
};

enum vgpu_need {
#define NEED(symbol, params) NEED_##symbol,
#include "driver.def"
#undef NEED
    VGPU_NEEDS
};

/*
 * The driver's own functions; NULL for what this driver does not have.
 * Filled in once, in resolve.c, before any hook can be reached; a slot goes from NULL to its value and stays.
 */
extern void* _Atomic vgpu_real[VGPU_HOOKS];
extern void* _Atomic vgpu_needed[VGPU_NEEDS];
extern void* _Atomic vgpu_nvml_uuid;
extern void* _Atomic vgpu_nvml_index;

/* Looks the driver up if that was not done, and returns the function or NULL. */
void* vgpu_resolve(enum vgpu_hook hook);

static inline void* vgpu_real_of(enum vgpu_hook hook)
{
    void* real = atomic_load_explicit(&vgpu_real[hook], memory_order_acquire);
    return LIKELY(real != NULL) ? real : vgpu_resolve(hook);
}

/* DRIVER(cuX, params)(args) calls an unhooked function of the driver; HAS(cuX) tells whether it exists. */
#define HAS(symbol) (atomic_load_explicit(&vgpu_needed[NEED_##symbol], memory_order_acquire) != NULL)
#define NEED(symbol, params)                                                                                 \
    static inline int(*driver_##symbol(void)) params                                                         \
    {                                                                                                        \
        return (int(*) params)atomic_load_explicit(&vgpu_needed[NEED_##symbol], memory_order_acquire);       \
    }
#include "driver.def"
#undef NEED
#define DRIVER(symbol) driver_##symbol()

/* The default stream of each thread, by number; functions of the per-thread form mean it by NULL. */
#define VGPU_OWN_STREAM ((CUstream)2)

/* Whether a stream is being captured. The default stream that all threads share cannot be, and is not asked:
 * to ask while another thread captures would spoil that capture. */
static inline bool vgpu_is_capturing(CUstream stream)
{
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    return (uintptr_t)stream >= (uintptr_t)VGPU_OWN_STREAM && HAS(cuStreamIsCapturing)
        && DRIVER(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS
        && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

#endif
