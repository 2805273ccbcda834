/*
 * Events: one that is recorded is reached when what the process launched before has ended. Looking at one
 * while a thread captures in the strict way, or at one that was captured, spoils the capture on a real
 * driver; here it is counted.
 */
#include "fake.h"

#include <stdlib.h>

struct CUevent_st {
    int device;
    _Atomic uint64_t reached_at_ns; /* 0: not recorded */
    _Atomic bool is_captured;
};

static _Thread_local int capture_mode; /* 0 is the strict one */
static _Atomic uint64_t spoiled;
static _Atomic uintptr_t last_stream;

uint64_t fake_marked_stream(void) { return atomic_load(&last_stream); }

uint64_t fake_spoiled_captures(void) { return atomic_load(&spoiled); }

static void look(void)
{
    if (capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED && fake_is_any_capturing())
        atomic_fetch_add(&spoiled, 1);
}

FAKE_EXPORT CUresult cuThreadExchangeStreamCaptureMode(int* mode)
{
    ENTER(cuThreadExchangeStreamCaptureMode);
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuEventCreate(CUevent* event, unsigned int flags)
{
    ENTER(cuEventCreate);
    (void)flags;
    int device = fake_current_device();
    if (device < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    look();
    *event = calloc(1, sizeof **event);
    (*event)->device = device;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    ENTER(cuEventDestroy_v2);
    free(event);
    return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream)
{
    if (fake_stream_device(stream) != event->device)
        return CUDA_ERROR_INVALID_HANDLE;
    atomic_store(&last_stream, (uintptr_t)stream);
    atomic_store(&event->is_captured, fake_capturing(stream));
    uint64_t now = fake_now_ns();
    uint64_t end = fake_kernel_ns() ? fake_last_end_ns(event->device) : 0;
    atomic_store(&event->reached_at_ns, end > now ? end : now);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    ENTER(cuEventRecord);
    return record(event, stream);
}

FAKE_EXPORT CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    ENTER(cuEventRecord_ptsz);
    return record(event, fake_own(stream));
}

FAKE_EXPORT CUresult cuEventQuery(CUevent event)
{
    ENTER(cuEventQuery);
    look();
    if (atomic_load(&event->is_captured)) {
        atomic_fetch_add(&spoiled, 1);
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    return atomic_load(&event->reached_at_ns) <= fake_now_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

FAKE_EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end)
{
    ENTER(cuEventElapsedTime);
    int64_t took = (int64_t)(atomic_load(&end->reached_at_ns) - atomic_load(&start->reached_at_ns));
    *milliseconds = (float)((double)took / 1e6);
    return CUDA_SUCCESS;
}
