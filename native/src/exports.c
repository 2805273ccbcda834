/* The exported functions, all made from the table. */
#include "hooks.h"
#include "limiter.h"

#define NVML_ERROR_FUNCTION_NOT_FOUND 13

/* hStream stands behind seven numbers of four bytes; in CUDA_LAUNCH_PARAMS, behind a pointer as well. */
static inline CUstream vgpu_config_stream(const CUlaunchConfig* config)
{
    return config ? ((const CUstream*)(const void*)config)[4] : NULL;
}

static inline CUstream vgpu_first_stream(const CUDA_LAUNCH_PARAMS* list)
{
    return list ? ((const CUstream*)(const void*)list)[5] : NULL;
}

/* Functions of the per-thread form mean another stream by NULL. */
#define STREAM_0(stream) (stream)
#define STREAM_1(stream) ((stream) ? (stream) : VGPU_OWN_STREAM)

#define WITH_REAL(...) (real, __VA_ARGS__)

#define HOOK(symbol, base, version, per_thread, impl, params, args)                                          \
    VGPU_EXPORT int symbol params;                                                                           \
    int symbol params                                                                                        \
    {                                                                                                        \
        int(*real) params = (int(*) params)vgpu_real_of(HOOK_##symbol);                                      \
        return LIKELY(real != NULL) ? vgpu_##impl WITH_REAL args : CUDA_ERROR_NOT_FOUND;                     \
    }

/* Both calls of the exported function are jumps that leave all arguments where they are; so what is rare has
 * a function of its own. A launch without limits costs four loads. */
#define LAUNCH(symbol, base, version, per_thread, params, args, stream)                                      \
    static __attribute__((noinline, cold)) int gated_##symbol params                                         \
    {                                                                                                        \
        int(*real) params = (int(*) params)vgpu_real_of(HOOK_##symbol);                                      \
        if (UNLIKELY(real == NULL))                                                                          \
            return CUDA_ERROR_NOT_FOUND;                                                                     \
        if (LIKELY(!vgpu_gate(STREAM_##per_thread(stream), 1)))                                              \
            return real args;                                                                                \
        int result = real args;                                                                              \
        vgpu_launched(STREAM_##per_thread(stream));                                                          \
        return result;                                                                                       \
    }                                                                                                        \
    VGPU_EXPORT int symbol params;                                                                           \
    int symbol params                                                                                        \
    {                                                                                                        \
        int(*real) params                                                                                    \
            = (int(*) params)atomic_load_explicit(&vgpu_real[HOOK_##symbol], memory_order_acquire);          \
        bool is_free = (real != NULL) & !vgpu_gate_is_on();                                                  \
        int(*next) params = is_free ? real : gated_##symbol;                                                 \
        return next args;                                                                                    \
    }

#define VIEW(symbol, impl, params, args)                                                                     \
    VGPU_EXPORT int symbol params;                                                                           \
    int symbol params                                                                                        \
    {                                                                                                        \
        int(*real) params = (int(*) params)vgpu_real_of(HOOK_##symbol);                                      \
        return LIKELY(real != NULL) ? vgpu_##impl WITH_REAL args : NVML_ERROR_FUNCTION_NOT_FOUND;            \
    }

#include "hooks.def"
