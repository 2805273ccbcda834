/* The start of the library, and the ends of contexts, which take all their memory along. */
#include "devices.h"
#include "hooks.h"
#include "marks.h"
#include "reclaim.h"

int vgpu_init(int (*real)(unsigned int), unsigned int flags)
{
    int result = real(flags);
    if (result == CUDA_SUCCESS)
        vgpu_is_limited();
    return result;
}

static void drop(const void* context)
{
    vgpu_contexts_changed();
    vgpu_memory_drop(context);
    vgpu_arrays_drop(context);
}

int vgpu_context_destroy(int (*real)(CUcontext), CUcontext context)
{
    if (vgpu_is_limited())
        vgpu_marks_drop(context);
    int result = real(context);
    if (result == CUDA_SUCCESS && vgpu_is_limited())
        drop(context);
    return result;
}

/* The older way to end a context, which programs for all versions take: it must be current, and is not any
 * more once its last user has gone. */
int vgpu_context_detach(int (*real)(CUcontext), CUcontext context)
{
    CUcontext now = NULL;
    if (vgpu_is_limited())
        vgpu_marks_drop(context);
    int result = real(context);
    if (result == CUDA_SUCCESS && vgpu_is_limited()
        && (DRIVER(cuCtxGetCurrent)(&now) != CUDA_SUCCESS || now != context))
        drop(context);
    return result;
}

static bool is_active(CUdevice device)
{
    unsigned int flags;
    int active = 0;
    return HAS(cuDevicePrimaryCtxGetState)
        && DRIVER(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && active;
}

/* The primary context of a GPU, if there is one. Taking a reference is the only way to learn its address. */
static CUcontext primary_of(CUdevice device)
{
    CUcontext context = NULL;
    int (*release)(CUdevice) = (int (*)(CUdevice))vgpu_real_of(HOOK_cuDevicePrimaryCtxRelease_v2);
    if (!release)
        release = (int (*)(CUdevice))vgpu_real_of(HOOK_cuDevicePrimaryCtxRelease);
    if (!release || !is_active(device) || DRIVER(cuDevicePrimaryCtxRetain)(&context, device) != CUDA_SUCCESS)
        return NULL;
    release(device);
    return context;
}

/* Release and reset: whichever ended the context, its memory is gone. */
int vgpu_primary_release(int (*real)(CUdevice), CUdevice device)
{
    CUcontext context = vgpu_is_limited() ? primary_of(device) : NULL;
    vgpu_marks_drop(context);
    int result = real(device);
    if (result == CUDA_SUCCESS && context && !is_active(device)) {
        drop(context);
        vgpu_pools_refresh(device);
        vgpu_graphs_refresh(device);
    }
    return result;
}
