#include "marks.h"
#include "budget.h"
#include "forget.h"
#include "libc.h"

#include <string.h>

#define MARKS 64u

struct vgpu_mark {
    CUcontext context; /* of the events, which stay for the next use */
    CUevent start;
    CUevent end;
    _Atomic bool is_placed;
    _Atomic bool is_lost;
    struct vgpu_pending pending;
};

/*
 * A ring: marks from `tail` to `head` are in use. The lock guards both and the events of marks not in use;
 * a mark in use is its launching thread's until is_placed. Whoever finds the lock taken does without: the
 * holder calls the driver, and an application thread must not wait for another's call.
 */
static struct vgpu_mark marks[MARKS];
static uint32_t head;
static uint32_t tail;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void vgpu_marks_forget(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    lock = unlocked;
    head = tail = 0;
    memset(marks, 0, sizeof marks);
}

/* Only what is in books is followed, and there are none without this function. */
static bool try_lock(void) { return LIBC(pthread_mutex_trylock)(&lock) == 0; }

/* Another thread may be capturing: without this, looking at an event would spoil its capture. */
static int exchanged(int mode)
{
    if (HAS(cuThreadExchangeStreamCaptureMode))
        DRIVER(cuThreadExchangeStreamCaptureMode)(&mode);
    return mode;
}

void vgpu_pending_end(const struct vgpu_pending* pending)
{
    vgpu_budget_done(pending->budget, pending->launches);
    __atomic_fetch_sub(&pending->mine->pending, pending->launches, __ATOMIC_RELAXED);
}

static void sample(const struct vgpu_mark* mark)
{
    const struct vgpu_pending* pending = &mark->pending;
    float ms = 0;
    if (DRIVER(cuEventElapsedTime)(&ms, mark->start, mark->end) == CUDA_SUCCESS && ms >= 0 && ms < 1e7f)
        vgpu_budget_sample(pending->budget, (uint64_t)((double)ms * 1e6), pending->timed,
            pending->expected_ns, pending->scale);
}

/* Events of a context that is gone are not destroyed: they went with it. */
static void forget_events(struct vgpu_mark* mark)
{
    mark->context = NULL;
    mark->start = mark->end = NULL;
}

/* An event that cannot be looked at has ended, for all we shall ever know, and is not used again. */
static bool has_ended(struct vgpu_mark* mark)
{
    bool is_lost = atomic_load_explicit(&mark->is_lost, memory_order_relaxed);
    int result = is_lost ? CUDA_ERROR_INVALID_HANDLE : DRIVER(cuEventQuery)(mark->end);
    if (result == CUDA_ERROR_NOT_READY)
        return false;
    if (result != CUDA_SUCCESS)
        forget_events(mark);
    else if (mark->pending.scale)
        sample(mark);
    return true;
}

static void collect(void)
{
    for (; tail != head; tail++) {
        struct vgpu_mark* mark = &marks[tail % MARKS];
        if (!atomic_load_explicit(&mark->is_placed, memory_order_acquire) || !has_ended(mark))
            return;
        vgpu_pending_end(&mark->pending);
    }
}

void vgpu_marks_collect(void)
{
    if (!HAS(cuEventQuery) || !try_lock())
        return;
    int mode = exchanged(CU_STREAM_CAPTURE_MODE_RELAXED);
    collect();
    exchanged(mode);
    pthread_mutex_unlock(&lock);
}

static void discard(struct vgpu_mark* mark)
{
    if (mark->start)
        DRIVER(cuEventDestroy_v2)(mark->start);
    if (mark->end)
        DRIVER(cuEventDestroy_v2)(mark->end);
    mark->start = mark->end = NULL;
    mark->context = NULL;
}

static bool has_events(struct vgpu_mark* mark, CUcontext here)
{
    if (mark->context == here)
        return true;
    discard(mark);
    if (DRIVER(cuEventCreate)(&mark->start, 0) != CUDA_SUCCESS
        || DRIVER(cuEventCreate)(&mark->end, 0) != CUDA_SUCCESS) {
        discard(mark);
        return false;
    }
    mark->context = here;
    return true;
}

static struct vgpu_mark* next_free(CUcontext here)
{
    struct vgpu_mark* mark = &marks[head % MARKS];
    if (head - tail == MARKS || !has_events(mark, here))
        return NULL;
    atomic_store_explicit(&mark->is_placed, false, memory_order_relaxed);
    atomic_store_explicit(&mark->is_lost, false, memory_order_relaxed);
    head++;
    return mark;
}

static bool can_mark(void)
{
    return HAS(cuEventCreate) && HAS(cuEventRecord) && HAS(cuEventQuery) && HAS(cuEventElapsedTime)
        && HAS(cuEventDestroy_v2);
}

struct vgpu_mark* vgpu_mark_take(CUstream stream, const struct vgpu_pending* pending)
{
    CUcontext here = NULL;
    if (!can_mark() || DRIVER(cuCtxGetCurrent)(&here) != CUDA_SUCCESS || !here || !try_lock())
        return NULL;
    int mode = exchanged(CU_STREAM_CAPTURE_MODE_RELAXED);
    struct vgpu_mark* mark = next_free(here);
    exchanged(mode);
    pthread_mutex_unlock(&lock);
    if (!mark)
        return NULL;
    mark->pending = *pending;
    if (pending->scale && DRIVER(cuEventRecord)(mark->start, stream) != CUDA_SUCCESS)
        mark->pending.scale = 0;
    return mark;
}

void vgpu_mark_place(struct vgpu_mark* mark, CUstream stream)
{
    if (DRIVER(cuEventRecord)(mark->end, stream) != CUDA_SUCCESS)
        atomic_store_explicit(&mark->is_lost, true, memory_order_relaxed);
    atomic_store_explicit(&mark->is_placed, true, memory_order_release);
}

void vgpu_marks_drop(const void* context)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < MARKS; i++) {
        if (!context || marks[i].context != context)
            continue;
        forget_events(&marks[i]);
        atomic_store_explicit(&marks[i].is_lost, true, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
}
