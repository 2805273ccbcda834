/*
 * The file may hold anything: every number that is read is bounded before it is used.
 * All processes of a claim work on the same numbers without a lock; each step is one atomic operation,
 * and what two of them lose to each other is put right by the next measurement.
 */
#include "budget.h"

#define BURST_NS INT64_C(200000000) /* credit never exceeds the limit's share of this */
#define WORST_DEBT_NS                                                                                        \
    INT64_C(2000000000) /* a longer stretch of GPU time is forgiven, so that no wait is endless */
#define QUEUE_NS UINT64_C(200000000) /* GPU time that may be queued between two measurements */
#define REFILL_PERIOD_NS UINT64_C(1000000)
#define FIRST_COST_NS UINT64_C(100000)
#define FIRST_WINDOW UINT64_C(64)
#define LEAST_WINDOW UINT64_C(16)
#define LARGEST_COST_NS UINT64_C(10000000000)

static uint64_t load(const uint64_t* number) { return __atomic_load_n(number, __ATOMIC_RELAXED); }

static int64_t credit(const struct vgpu_usage_device* budget)
{
    return __atomic_load_n(&budget->credit_ns, __ATOMIC_RELAXED);
}

static uint64_t cost(const struct vgpu_usage_device* budget)
{
    uint64_t ns = load(&budget->cost_ns);
    return ns && ns <= LARGEST_COST_NS ? ns : FIRST_COST_NS;
}

static uint64_t window(const struct vgpu_usage_device* budget)
{
    uint64_t launches = load(&budget->window);
    return launches ? launches : FIRST_WINDOW;
}

static void add_credit(struct vgpu_usage_device* budget, int64_t ns, int64_t most)
{
    int64_t before = credit(budget);
    int64_t after;
    do {
        after = before < -WORST_DEBT_NS ? -WORST_DEBT_NS : before;
        after += ns;
        after = after > most ? most : after < -WORST_DEBT_NS ? -WORST_DEBT_NS : after;
    } while (!__atomic_compare_exchange_n(
        &budget->credit_ns, &before, after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

bool vgpu_budget_spend(struct vgpu_usage_device* budget, uint32_t launches)
{
    int64_t price = (int64_t)(cost(budget) * launches);
    int64_t before = __atomic_fetch_sub(&budget->credit_ns, price, __ATOMIC_RELAXED);
    uint64_t queued = __atomic_fetch_add(&budget->launches, launches, __ATOMIC_RELAXED);
    return before > 0 && queued < window(budget);
}

void vgpu_budget_refill(struct vgpu_usage_device* budget, uint32_t percent, uint64_t now_ns)
{
    uint64_t last = load(&budget->refilled_at_ns);
    if (last <= now_ns && now_ns - last < REFILL_PERIOD_NS)
        return;
    if (!__atomic_compare_exchange_n(
            &budget->refilled_at_ns, &last, now_ns, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    uint64_t elapsed = last <= now_ns ? now_ns - last : 0;
    if (elapsed > (uint64_t)(WORST_DEBT_NS + BURST_NS) * 100)
        elapsed = (uint64_t)(WORST_DEBT_NS + BURST_NS) * 100;
    add_credit(budget, (int64_t)(elapsed * percent / 100), BURST_NS * percent / 100);
}

bool vgpu_budget_is_open(const struct vgpu_usage_device* budget, bool is_measured)
{
    return credit(budget) > 0 && (!is_measured || load(&budget->launches) <= window(budget));
}

uint64_t vgpu_budget_wait_ns(const struct vgpu_usage_device* budget, uint32_t percent)
{
    int64_t missing = -credit(budget);
    if (missing > WORST_DEBT_NS)
        missing = WORST_DEBT_NS;
    return missing > 0 ? (uint64_t)missing * 100 / (percent ? percent : 1) : 0;
}

static void learn_cost(struct vgpu_usage_device* budget, uint64_t used_ns, uint64_t launches)
{
    uint64_t sample = used_ns / launches;
    uint64_t learnt = load(&budget->window) ? (cost(budget) + sample) / 2 : sample;
    learnt = learnt < 100 ? 100 : learnt > LARGEST_COST_NS ? LARGEST_COST_NS : learnt;
    uint64_t queue = QUEUE_NS / learnt;
    __atomic_store_n(&budget->cost_ns, learnt, __ATOMIC_RELAXED);
    __atomic_store_n(&budget->window, queue > LEAST_WINDOW ? queue : LEAST_WINDOW, __ATOMIC_RELAXED);
}

void vgpu_budget_true_up(struct vgpu_usage_device* budget, uint64_t busy_ns, uint64_t measured_at_ns)
{
    uint64_t last = load(&budget->trued_at_ns);
    if (last == measured_at_ns)
        return;
    if (!__atomic_compare_exchange_n(
            &budget->trued_at_ns, &last, measured_at_ns, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    uint64_t seen = __atomic_exchange_n(&budget->busy_seen_ns, busy_ns, __ATOMIC_RELAXED);
    uint64_t launches = __atomic_exchange_n(&budget->launches, 0, __ATOMIC_RELAXED);
    if (!last || busy_ns < seen)
        return;
    uint64_t used = busy_ns - seen < (uint64_t)WORST_DEBT_NS ? busy_ns - seen : (uint64_t)WORST_DEBT_NS;
    uint64_t booked = launches < (uint64_t)WORST_DEBT_NS ? launches * cost(budget) : (uint64_t)WORST_DEBT_NS;
    add_credit(budget, (int64_t)(booked < INT64_MAX / 2 ? booked : INT64_MAX / 2) - (int64_t)used, BURST_NS);
    if (launches)
        learn_cost(budget, used, launches);
}
