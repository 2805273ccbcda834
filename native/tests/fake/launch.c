/* Launches: nothing runs, but each takes GPU time on the card's clock when it has a duration. */
#include "fake.h"

#include <stdlib.h>

static _Atomic uint64_t kernel_ns = UINT64_MAX;

uint64_t fake_kernel_ns(void)
{
    uint64_t ns = atomic_load_explicit(&kernel_ns, memory_order_relaxed);
    if (__builtin_expect(ns != UINT64_MAX, 1))
        return ns;
    const char* text = getenv("VGPU_FAKE_KERNEL_NS");
    fake_set_kernel_ns(text ? strtoull(text, NULL, 10) : 0);
    return atomic_load(&kernel_ns);
}

void fake_set_kernel_ns(uint64_t ns) { atomic_store(&kernel_ns, ns); }

static CUresult launch(CUstream stream)
{
    if (fake_capturing(stream)) {
        fake_capture_kernel(stream);
        return CUDA_SUCCESS;
    }
    uint64_t ns = fake_kernel_ns();
    if (!ns)
        return CUDA_SUCCESS;
    int device = fake_current_device();
    if (device < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    fake_enqueue(device, ns);
    return CUDA_SUCCESS;
}

#define GRID                                                                                                 \
    unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,    \
        unsigned int shared
#define UNUSED_GRID                                                                                          \
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)function, (void)params

#define LAUNCH_KERNEL(name, stream_of)                                                                       \
    FAKE_EXPORT CUresult name(CUfunction function, GRID, CUstream stream, void** params, void** extra)       \
    {                                                                                                        \
        ENTER(name);                                                                                         \
        UNUSED_GRID, (void)extra;                                                                            \
        return launch(stream_of(stream));                                                                    \
    }
LAUNCH_KERNEL(cuLaunchKernel, )
LAUNCH_KERNEL(cuLaunchKernel_ptsz, fake_own)

#define LAUNCH_COOPERATIVE(name, stream_of)                                                                  \
    FAKE_EXPORT CUresult name(CUfunction function, GRID, CUstream stream, void** params)                     \
    {                                                                                                        \
        ENTER(name);                                                                                         \
        UNUSED_GRID;                                                                                         \
        return launch(stream_of(stream));                                                                    \
    }
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, )
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, fake_own)

#define LAUNCH_EX(name)                                                                                      \
    FAKE_EXPORT CUresult name(                                                                               \
        const CUlaunchConfig* config, CUfunction function, void** params, void** extra)                      \
    {                                                                                                        \
        ENTER(name);                                                                                         \
        (void)config, (void)function, (void)params, (void)extra;                                             \
        return launch(NULL);                                                                                 \
    }
LAUNCH_EX(cuLaunchKernelEx)
LAUNCH_EX(cuLaunchKernelEx_ptsz)

FAKE_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(
    CUDA_LAUNCH_PARAMS* list, unsigned int count, unsigned int flags)
{
    ENTER(cuLaunchCooperativeKernelMultiDevice);
    (void)list, (void)flags;
    for (unsigned int i = 0; i < count; i++)
        launch(NULL);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuLaunch(CUfunction function)
{
    ENTER(cuLaunch);
    (void)function;
    return launch(NULL);
}

FAKE_EXPORT CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    ENTER(cuLaunchGrid);
    (void)function, (void)width, (void)height;
    return launch(NULL);
}

FAKE_EXPORT CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    ENTER(cuLaunchGridAsync);
    (void)function, (void)width, (void)height;
    return launch(stream);
}

FAKE_EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER(cuMemcpyAsync);
    (void)to, (void)from, (void)bytes, (void)stream;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER(cuMemcpyAsync_ptsz);
    (void)to, (void)from, (void)bytes, (void)stream;
    return CUDA_SUCCESS;
}
