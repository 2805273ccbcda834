#include "limiter.h"
#include "budget.h"
#include "claims.h"
#include "devices.h"
#include "forget.h"
#include "log.h"

#include <time.h>

#define SLICE_NS UINT64_C(20000000) /* longest sleep without a look at the limits */
#define STALE_NS UINT64_C(2000000000) /* an agent that measured nothing for so long is not there */
#define ALL 100u

static const uint64_t no_generation;
_Atomic uint32_t vgpu_gate_word;
const uint64_t* _Atomic vgpu_generation = &no_generation;
_Atomic uint64_t vgpu_generation_seen;

void vgpu_limiter_forget(void)
{
    atomic_store(&vgpu_generation, &no_generation);
    atomic_store(&vgpu_generation_seen, 0);
    atomic_store(&vgpu_gate_word, 0);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t load32(const uint32_t* number) { return __atomic_load_n(number, __ATOMIC_RELAXED); }

/* The share that one claim gives of the GPU; ALL when it does not limit it. */
static uint32_t share_of(const struct vgpu_control* control, uint32_t number)
{
    const struct vgpu_control_device* limits = &control->devices[number];
    uint32_t percent = load32(&limits->core_percent);
    uint32_t policy = load32(&control->core_policy);
    bool is_off = policy == VGPU_CORES_DISABLE
        || (policy != VGPU_CORES_FORCE && (load32(&limits->flags) & VGPU_CORES_OFF));
    return is_off || percent == 0 || percent > ALL ? ALL : percent;
}

static uint32_t share(const struct vgpu_device* device)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < device->part_count; i++)
        sum += share_of(device->parts[i].claim->control, device->parts[i].number);
    return sum < ALL ? sum : ALL;
}

static bool is_fresh(const struct vgpu_control* control, uint64_t now)
{
    uint64_t measured_at = __atomic_load_n(&control->measured_at_ns, __ATOMIC_RELAXED);
    return measured_at && measured_at + STALE_NS > now;
}

/* A blocked claim waits for the agent; one whose agent is gone does not. */
static bool is_blocked(const struct vgpu_device* device)
{
    for (uint32_t i = 0; i < device->part_count; i++) {
        const struct vgpu_control* control = device->parts[i].claim->control;
        if ((load32(&control->devices[device->parts[i].number].flags) & VGPU_BLOCKED)
            && is_fresh(control, now_ns()))
            return true;
    }
    return false;
}

static void refresh(void)
{
    const uint64_t* generation = atomic_load_explicit(&vgpu_generation, memory_order_relaxed);
    uint64_t seen = __atomic_load_n(generation, __ATOMIC_ACQUIRE);
    uint32_t word = 0;
    if (seen == atomic_load_explicit(&vgpu_generation_seen, memory_order_relaxed))
        return;
    for (int i = 0; i < vgpu_ordinal_count(); i++) {
        const struct vgpu_device* device = vgpu_device(i);
        word |= device && (share(device) < ALL || is_blocked(device));
    }
    /* With several claims only the first one's generation is watched, so the gate looks for itself. */
    word |= vgpu_claim_count() > 1;
    atomic_store_explicit(&vgpu_gate_word, word, memory_order_relaxed);
    atomic_store_explicit(&vgpu_generation_seen, seen, memory_order_release);
}

void vgpu_limiter_start(void)
{
    atomic_store_explicit(&vgpu_generation_seen, UINT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&vgpu_generation, &vgpu_claim(0)->control->generation, memory_order_release);
    refresh();
}

static bool is_capturing(CUstream stream)
{
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    return (uintptr_t)stream > 2 && HAS(cuStreamIsCapturing)
        && DRIVER(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS
        && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Takes what the agent measured into the budget; skips one that is being written. */
static void true_up(const struct vgpu_control* control, uint32_t number, struct vgpu_usage_device* budget)
{
    uint64_t before = __atomic_load_n(&control->feed_sequence, __ATOMIC_ACQUIRE);
    uint64_t measured_at = __atomic_load_n(&control->measured_at_ns, __ATOMIC_RELAXED);
    if (LIKELY(measured_at == __atomic_load_n(&budget->trued_at_ns, __ATOMIC_RELAXED)) || (before & 1))
        return;
    uint64_t busy = __atomic_load_n(&control->devices[number].busy_ns, __ATOMIC_ACQUIRE);
    if (__atomic_load_n(&control->feed_sequence, __ATOMIC_RELAXED) == before)
        vgpu_budget_true_up(budget, busy, measured_at);
}

static void sleep_ns(uint64_t ns)
{
    const struct timespec pause = { 0, (long)(ns < SLICE_NS ? ns : SLICE_NS) };
    nanosleep(&pause, NULL);
}

/* Waits until the budget is open, and books the time as throttled. */
static void wait_for_credit(struct vgpu_device* device, struct vgpu_usage_device* budget)
{
    struct vgpu_claim* claim = device->parts[0].claim;
    uint64_t start = now_ns();
    for (uint64_t now = start;; now = now_ns()) {
        uint32_t percent = share(device);
        bool is_held = is_blocked(device);
        if (percent == ALL && !is_held)
            break;
        if (is_fresh(claim->control, now))
            true_up(claim->control, device->parts[0].number, budget);
        else
            vgpu_budget_assume(budget, now);
        vgpu_budget_refill(budget, percent, now);
        if (!is_held && vgpu_budget_is_open(budget))
            break;
        uint64_t missing = vgpu_budget_wait_ns(budget, percent);
        sleep_ns(is_held ? SLICE_NS : missing > 1000000 ? missing : 1000000);
    }
    struct vgpu_slot_device* mine = vgpu_books_mine(claim, device->parts[0].number);
    if (mine)
        __atomic_fetch_add(&mine->throttled_ns, now_ns() - start, __ATOMIC_RELAXED);
}

static struct vgpu_device* current_device(void)
{
    struct vgpu_place place;
    if (vgpu_ordinal_count() == 1)
        return vgpu_device(0);
    return vgpu_here(&place) ? vgpu_device(place.ordinal) : NULL;
}

void vgpu_gate(CUstream stream, uint32_t launches)
{
    if (!vgpu_is_limited())
        return;
    refresh();
    struct vgpu_device* device
        = atomic_load_explicit(&vgpu_gate_word, memory_order_relaxed) ? current_device() : NULL;
    if (!device || is_capturing(stream))
        return;
    struct vgpu_claim* claim = device->parts[0].claim;
    struct vgpu_books* books = atomic_load_explicit(&claim->books, memory_order_acquire);
    bool is_limited = share(device) < ALL;
    if (!books || (!is_limited && !is_blocked(device)))
        return;
    struct vgpu_usage_device* budget = &books->usage->devices[device->parts[0].number];
    true_up(claim->control, device->parts[0].number, budget);
    struct vgpu_slot_device* mine = &books->usage->slots[books->slot].devices[device->parts[0].number];
    __atomic_store_n(
        &mine->launches, __atomic_load_n(&mine->launches, __ATOMIC_RELAXED) + launches, __ATOMIC_RELAXED);
    if (!vgpu_budget_spend(budget, launches) || is_blocked(device))
        wait_for_credit(device, budget);
}
