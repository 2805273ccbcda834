#include "limiter.h"
#include "budget.h"
#include "claims.h"
#include "devices.h"
#include "forget.h"
#include "libc.h"
#include "marks.h"

#include <string.h>
#include <time.h>

#define SLICE_NS UINT64_C(20000000) /* longest sleep without a look at the limits */
#define STALE_NS UINT64_C(2000000000) /* an agent that measured nothing for so long is not there */
#define REAP_PERIOD_NS UINT64_C(1000000000)
#define ALL 100u
#define BATCH 64u /* launches that a thread pays for at once, at most */
#define BATCH_NS UINT64_C(1000000) /* and what they may cost together */
#define TIMED 8u /* where nobody measures, one batch in so many is timed */

static const uint64_t no_generation;
struct vgpu_gate_line vgpu_gate_line = { .generation = &no_generation };

/*
 * What this thread has paid for and not launched yet, so that most launches touch nothing that threads share.
 * The first launches are paid one by one: short programs are counted exactly.
 */
static _Thread_local struct {
    const struct vgpu_device* device;
    uint64_t state; /* of the gate when it was paid */
    uint64_t launched; /* by this thread so far */
    uint32_t left;
    uint64_t cost_ns; /* paid for each */
    struct vgpu_mark* mark;
    struct vgpu_pending pending;
} batch;

/* Set under the lock of the start; its destructor runs at the end of each thread that has a value. */
static pthread_key_t thread_key;
static bool has_key;

void vgpu_limiter_forget(void)
{
    memset(&batch, 0, sizeof batch);
    atomic_store(&vgpu_gate_line.generation, &no_generation);
    atomic_store(&vgpu_gate_line.state, 0);
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

/* An agent may measure memory and not time, as under MIG: then the time is 0. */
static bool is_measured(const struct vgpu_control* control, uint32_t number, uint64_t now)
{
    return is_fresh(control, now) && __atomic_load_n(&control->devices[number].busy_ns, __ATOMIC_RELAXED);
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

/* Looks at the limits of a generation. With several claims only the first one's is watched: always on. */
static uint64_t look(uint64_t generation)
{
    bool is_on = vgpu_claim_count() > 1;
    for (int i = 0; i < vgpu_ordinal_count(); i++) {
        const struct vgpu_device* device = vgpu_device(i);
        is_on |= device && (share(device) < ALL || is_blocked(device));
    }
    uint64_t state = generation * 2 + is_on;
    atomic_store_explicit(&vgpu_gate_line.state, state, memory_order_relaxed);
    return state;
}

static uint64_t refreshed(void)
{
    const uint64_t* generation = atomic_load_explicit(&vgpu_gate_line.generation, memory_order_relaxed);
    uint64_t now = __atomic_load_n(generation, __ATOMIC_ACQUIRE);
    uint64_t state = atomic_load_explicit(&vgpu_gate_line.state, memory_order_relaxed);
    return LIKELY((state | 1) == (now * 2 | 1)) ? state : look(now);
}

/* What was paid for and will not be launched under this batch any more. */
static void abandon(void)
{
    if (batch.left)
        vgpu_pending_end(&batch.pending);
    batch.left = 0;
}

/* A thread takes nothing along that it paid for. */
static void at_thread_end(void* unused)
{
    (void)unused;
    abandon();
}

void vgpu_limiter_start(void)
{
    if (!has_key && vgpu_libc_has(VGPU_THREADS))
        has_key = LIBC(pthread_key_create)(&thread_key, at_thread_end) == 0;
    const uint64_t* generation = &vgpu_claim(0)->control->generation;
    atomic_store_explicit(&vgpu_gate_line.generation, generation, memory_order_release);
    look(__atomic_load_n(generation, __ATOMIC_ACQUIRE));
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
    uint64_t reaped_at = start;
    for (uint64_t now = start;; now = now_ns()) {
        uint32_t percent = share(device);
        bool is_held = is_blocked(device);
        if (percent == ALL && !is_held)
            break;
        if (is_measured(claim->control, device->parts[0].number, now))
            true_up(claim->control, device->parts[0].number, budget);
        else
            vgpu_budget_assume(budget, now);
        vgpu_budget_refill(budget, percent, now);
        vgpu_marks_collect();
        if (!is_held && vgpu_budget_is_open(budget))
            break;
        /* What a killed process had on its way does not come back by itself. */
        if (now - reaped_at > REAP_PERIOD_NS) {
            vgpu_reap(device);
            reaped_at = now;
        }
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

/* How many launches to pay for, when `launches` are about to go. */
static uint32_t batch_size(const struct vgpu_usage_device* budget, uint32_t launches)
{
    uint64_t size = BATCH_NS / vgpu_budget_cost_ns(budget);
    size = size < BATCH ? size : BATCH;
    size = size < batch.launched / 16 ? size : batch.launched / 16;
    /* With several claims only the first one's generation is watched, so each launch looks for itself. */
    return vgpu_claim_count() > 1 || size < launches ? launches : (uint32_t)(size - size % launches);
}

/* Where nobody measures, some launches are timed: all of the first, then few. */
static uint32_t timed_scale(void)
{
    static _Thread_local uint32_t dice = 1;
    if (batch.launched < BATCH)
        return 1;
    dice = dice * 1664525u + 1013904223u;
    return (dice >> 16) % TIMED ? 0 : TIMED;
}

/* Pays for a batch; false when the GPU is not limited now. */
static bool pay(struct vgpu_device* device, uint32_t launches)
{
    struct vgpu_claim* claim = device->parts[0].claim;
    uint32_t number = device->parts[0].number;
    struct vgpu_books* books = atomic_load_explicit(&claim->books, memory_order_acquire);
    bool is_held = is_blocked(device);
    if (!books || (share(device) == ALL && !is_held))
        return false;
    struct vgpu_usage_device* budget = &books->usage->devices[number];
    struct vgpu_slot_device* mine = &books->usage->slots[books->slot].devices[number];
    uint64_t now = now_ns();
    bool is_told = is_measured(claim->control, number, now);
    vgpu_marks_collect();
    if (is_told)
        true_up(claim->control, number, budget);
    uint32_t size = batch_size(budget, launches);
    __atomic_fetch_add(&mine->launches, size, __ATOMIC_RELAXED);
    __atomic_fetch_add(&mine->pending, size, __ATOMIC_RELAXED);
    batch.pending = (struct vgpu_pending) { budget, mine, size, is_told ? 0 : timed_scale(), 0, 0 };
    batch.cost_ns = vgpu_budget_cost_ns(budget);
    if (!batch.launched && has_key)
        LIBC(pthread_setspecific)(thread_key, &batch);
    batch.device = device;
    batch.left = size;
    batch.launched += size;
    if (!vgpu_budget_spend(budget, size) || is_held)
        wait_for_credit(device, budget);
    return true;
}

bool vgpu_gate(CUstream stream, uint32_t launches)
{
    if (!vgpu_is_limited())
        return false;
    uint64_t state = refreshed();
    struct vgpu_device* device = state & 1 ? current_device() : NULL;
    if (!device || vgpu_is_capturing(stream))
        return false;
    if (UNLIKELY(batch.left < launches || batch.device != device || batch.state != state)) {
        abandon();
        batch.state = state;
        if (!pay(device, launches))
            return false;
    }
    batch.left -= launches;
    if (LIKELY(batch.left))
        return false;
    batch.pending.timed = launches;
    batch.pending.expected_ns = batch.cost_ns * launches;
    batch.pending.scale *= batch.pending.launches / launches;
    batch.mark = vgpu_mark_take(stream, &batch.pending);
    return true;
}

void vgpu_launched(CUstream stream)
{
    if (batch.mark)
        vgpu_mark_place(batch.mark, stream);
    else
        vgpu_pending_end(&batch.pending);
}
