/*
 * The file may hold anything: every number that is read is bounded before it is used.
 * All processes of a claim work on the same numbers without a lock; each step is one atomic operation,
 * and what two of them lose to each other is put right by the next measurement.
 */
#include "budget.h"

#define SECOND UINT64_C(1000000000)
#define BURST_NS (SECOND / 5) /* saved at most: the limit's share of this */
#define QUEUE_NS (SECOND / 10) /* GPU time that may be launched between two measurements */
#define LEAST_WINDOW UINT64_C(16)
#define FIRST_WINDOW UINT64_C(64)
#define MOST_DEBT_NS (5 * SECOND) /* a longer stretch of GPU time is forgiven, so that no wait is endless */
#define REFILL_PERIOD_NS (SECOND / 1000)
#define FIRST_COST_NS (SECOND / 10000)
#define LEAST_COST_NS UINT64_C(100)
#define MOST_COST_NS (2 * SECOND)
#define MOST_WEIGHT UINT64_C(1000000000)

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t load(const uint64_t* number) { return __atomic_load_n(number, __ATOMIC_RELAXED); }

static void store(uint64_t* number, uint64_t value) { __atomic_store_n(number, value, __ATOMIC_RELAXED); }

static int64_t credit(const struct vgpu_usage_device* budget)
{
    return __atomic_load_n(&budget->credit_ns, __ATOMIC_RELAXED);
}

static uint64_t cost(const struct vgpu_usage_device* budget)
{
    uint64_t ns = load(&budget->cost_ns);
    return ns && ns <= MOST_COST_NS ? ns : FIRST_COST_NS;
}

static uint64_t window(const struct vgpu_usage_device* budget)
{
    uint64_t launches = load(&budget->window);
    return launches ? launches : FIRST_WINDOW;
}

static uint64_t price(const struct vgpu_usage_device* budget, uint64_t launches)
{
    return least(least(launches, MOST_WEIGHT) * cost(budget), MOST_DEBT_NS);
}

/* Adds to the credit; what lifts it above `most` is lost, but what is above already stays. */
static void add_credit(struct vgpu_usage_device* budget, int64_t ns, int64_t most)
{
    const int64_t debt = (int64_t)MOST_DEBT_NS;
    const int64_t saved = (int64_t)(BURST_NS);
    int64_t before = credit(budget);
    int64_t after;
    do {
        int64_t bounded = before < -debt ? -debt : before > saved ? saved : before;
        int64_t highest = bounded > most ? bounded : most;
        after = bounded + ns;
        after = after > highest ? highest : after < -debt ? -debt : after;
    } while (!__atomic_compare_exchange_n(
        &budget->credit_ns, &before, after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

bool vgpu_budget_spend(struct vgpu_usage_device* budget, uint32_t launches)
{
    int64_t before
        = __atomic_fetch_sub(&budget->credit_ns, (int64_t)(cost(budget) * launches), __ATOMIC_RELAXED);
    uint64_t launched = __atomic_fetch_add(&budget->launches, launches, __ATOMIC_RELAXED);
    return before > 0 && launched < window(budget);
}

void vgpu_budget_refill(struct vgpu_usage_device* budget, uint32_t percent, uint64_t now_ns)
{
    uint64_t last = load(&budget->refilled_at_ns);
    if (last <= now_ns && now_ns - last < REFILL_PERIOD_NS)
        return;
    if (!__atomic_compare_exchange_n(
            &budget->refilled_at_ns, &last, now_ns, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    uint64_t elapsed = last <= now_ns ? least(now_ns - last, 1000 * SECOND) : 0;
    add_credit(budget, (int64_t)(elapsed * percent / 100), (int64_t)(BURST_NS * percent / 100));
}

bool vgpu_budget_is_open(const struct vgpu_usage_device* budget)
{
    return credit(budget) > 0 && load(&budget->launches) <= window(budget);
}

uint64_t vgpu_budget_wait_ns(const struct vgpu_usage_device* budget, uint32_t percent)
{
    int64_t now = credit(budget);
    uint64_t missing = now >= 0 ? 0 : now < -(int64_t)MOST_DEBT_NS ? MOST_DEBT_NS : (uint64_t)-now;
    return missing * 100 / (percent ? percent : 1);
}

/*
 * What a launch costs: GPU time over launches, both fading. A launch and its time may fall into different
 * measurements, so the sums are kept apart: a ratio of each measurement would swing with the length of the
 * queue.
 */
static void learn_cost(struct vgpu_usage_device* budget, uint64_t used_ns, uint64_t launches)
{
    uint64_t weight = least(load(&budget->cost_weight), MOST_WEIGHT);
    uint64_t launched = least(launches, MOST_WEIGHT);
    if (weight + launched == 0)
        return;
    uint64_t learnt = (cost(budget) * weight + used_ns) / (weight + launched);
    learnt = learnt < LEAST_COST_NS ? LEAST_COST_NS : least(learnt, MOST_COST_NS);
    store(&budget->cost_ns, learnt);
    store(&budget->cost_weight, launched ? (weight + launched) * 3 / 4 : weight);
    store(&budget->window, QUEUE_NS / learnt > LEAST_WINDOW ? QUEUE_NS / learnt : LEAST_WINDOW);
}

/* The one who sets trued_at_ns does the work of a measurement. */
static bool is_first(struct vgpu_usage_device* budget, uint64_t* last, uint64_t now_ns)
{
    *last = load(&budget->trued_at_ns);
    return *last != now_ns
        && __atomic_compare_exchange_n(
            &budget->trued_at_ns, last, now_ns, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void vgpu_budget_true_up(struct vgpu_usage_device* budget, uint64_t busy_ns, uint64_t measured_at_ns)
{
    uint64_t last;
    if (!is_first(budget, &last, measured_at_ns))
        return;
    uint64_t seen = __atomic_exchange_n(&budget->busy_seen_ns, busy_ns, __ATOMIC_RELAXED);
    uint64_t used = busy_ns > seen && last ? least(busy_ns - seen, MOST_DEBT_NS) : 0;
    uint64_t launches = __atomic_exchange_n(&budget->launches, 0, __ATOMIC_RELAXED);
    /* The first measurement tells where the clock stands, not what was used. */
    if (!last)
        return;
    add_credit(budget, (int64_t)price(budget, launches) - (int64_t)used, (int64_t)(BURST_NS));
    learn_cost(budget, used, launches);
}

void vgpu_budget_assume(struct vgpu_usage_device* budget, uint64_t now_ns)
{
    uint64_t last = load(&budget->trued_at_ns);
    if (last <= now_ns && now_ns - last < BURST_NS)
        return;
    if (!is_first(budget, &last, now_ns))
        return;
    store(&budget->launches, 0);
}
