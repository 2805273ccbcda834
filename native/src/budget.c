/*
 * The file may hold anything: every number that is read is bounded before it is used.
 * All processes of a claim work on the same numbers without a lock; each step is one atomic operation,
 * and what two of them lose to each other is put right by the next measurement.
 */
#include "budget.h"

#define SECOND UINT64_C(1000000000)
#define BURST_NS (SECOND / 5) /* saved at most: the limit's share of this */
#define FIRST_PENDING UINT64_C(64) /* launches that may be on their way while nobody knows what they cost */
#define MOST_DEBT_NS (5 * SECOND) /* a longer stretch of GPU time is forgiven, so that no wait is endless */
#define REFILL_PERIOD_NS (SECOND / 1000)
#define FIRST_COST_NS (SECOND / 10000)
#define LEAST_COST_NS UINT64_C(100)
#define MOST_COST_NS (2 * SECOND)
#define MOST_LAUNCHES UINT64_C(1000000000)
#define NOT_MEASURED UINT64_MAX /* busy_seen_ns while nobody measures */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t load(const uint64_t* number) { return __atomic_load_n(number, __ATOMIC_RELAXED); }

static void store(uint64_t* number, uint64_t value) { __atomic_store_n(number, value, __ATOMIC_RELAXED); }

static uint64_t exchange(uint64_t* number, uint64_t value)
{
    return __atomic_exchange_n(number, value, __ATOMIC_RELAXED);
}

static void subtract(uint64_t* number, uint64_t part)
{
    uint64_t before = load(number);
    while (!__atomic_compare_exchange_n(
        number, &before, before - least(before, part), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { }
}

static int64_t credit(const struct vgpu_usage_device* budget)
{
    return __atomic_load_n(&budget->credit_ns, __ATOMIC_RELAXED);
}

uint64_t vgpu_budget_cost_ns(const struct vgpu_usage_device* budget)
{
    uint64_t ns = load(&budget->cost_ns);
    return ns && ns <= MOST_COST_NS ? ns : FIRST_COST_NS;
}

static int64_t price(const struct vgpu_usage_device* budget, uint64_t launches)
{
    return (int64_t)least(least(launches, MOST_LAUNCHES) * vgpu_budget_cost_ns(budget), MOST_DEBT_NS);
}

/* Adds to the credit; what lifts it above `most` is lost, but what is above already stays. */
static void add_credit(struct vgpu_usage_device* budget, int64_t ns, uint64_t most)
{
    const int64_t debt = (int64_t)MOST_DEBT_NS;
    const int64_t saved = (int64_t)(BURST_NS);
    int64_t before = credit(budget);
    int64_t after;
    do {
        int64_t bounded = before < -debt ? -debt : before > saved ? saved : before;
        int64_t highest = bounded > (int64_t)most ? bounded : (int64_t)most;
        after = bounded + ns;
        after = after > highest ? highest : after < -debt ? -debt : after;
    } while (!__atomic_compare_exchange_n(
        &budget->credit_ns, &before, after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

static bool has_room(const struct vgpu_usage_device* budget)
{
    return load(&budget->cost_weight) || load(&budget->pending) < FIRST_PENDING;
}

bool vgpu_budget_spend(struct vgpu_usage_device* budget, uint32_t launches)
{
    bool has_place = has_room(budget);
    int64_t before = __atomic_fetch_sub(&budget->credit_ns, price(budget, launches), __ATOMIC_RELAXED);
    __atomic_fetch_add(&budget->pending, launches, __ATOMIC_RELAXED);
    return before > 0 && has_place;
}

void vgpu_budget_done(struct vgpu_usage_device* budget, uint64_t launches)
{
    subtract(&budget->pending, launches);
    __atomic_fetch_add(&budget->done, launches, __ATOMIC_RELAXED);
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
    add_credit(budget, (int64_t)(elapsed * percent / 100), BURST_NS * percent / 100);
}

bool vgpu_budget_is_open(const struct vgpu_usage_device* budget)
{
    return credit(budget) > 0 && has_room(budget);
}

uint64_t vgpu_budget_wait_ns(const struct vgpu_usage_device* budget, uint32_t percent)
{
    int64_t now = credit(budget);
    uint64_t missing = now >= 0 ? 0 : now < -(int64_t)MOST_DEBT_NS ? MOST_DEBT_NS : (uint64_t)-now;
    return missing * 100 / (percent ? percent : 1);
}

/* What a launch costs: GPU time over launches that ended, both fading. */
static void learn_cost(struct vgpu_usage_device* budget, uint64_t used_ns, uint64_t done)
{
    uint64_t weight = least(load(&budget->cost_weight), MOST_LAUNCHES);
    uint64_t launches = least(done, MOST_LAUNCHES);
    if (weight + launches == 0)
        return;
    uint64_t learnt = (vgpu_budget_cost_ns(budget) * weight + used_ns) / (weight + launches);
    store(&budget->cost_ns, learnt < LEAST_COST_NS ? LEAST_COST_NS : least(learnt, MOST_COST_NS));
    store(&budget->cost_weight, launches ? (weight + launches) * 7 / 8 + 1 : weight);
}

/* The one who sets trued_at_ns does the work of a measurement. */
static bool is_first(struct vgpu_usage_device* budget, uint64_t* last, uint64_t now_ns)
{
    *last = load(&budget->trued_at_ns);
    return *last != now_ns
        && __atomic_compare_exchange_n(
            &budget->trued_at_ns, last, now_ns, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/*
 * The credit was lowered by what launches were expected to cost. Of those that ended, the measurement now
 * says it; those on their way stay charged, at what a launch costs by the newest knowledge.
 */
void vgpu_budget_true_up(struct vgpu_usage_device* budget, uint64_t busy_ns, uint64_t measured_at_ns)
{
    uint64_t last;
    if (!is_first(budget, &last, measured_at_ns))
        return;
    uint64_t seen = exchange(&budget->busy_seen_ns, busy_ns);
    uint64_t done = least(exchange(&budget->done, 0), MOST_LAUNCHES);
    uint64_t pending = least(load(&budget->pending), MOST_LAUNCHES);
    int64_t charged = price(budget, pending + done);
    /* The first measurement tells where the clock stands, not what was used. */
    if (!last || seen == NOT_MEASURED)
        return;
    uint64_t used = busy_ns > seen ? least(busy_ns - seen, MOST_DEBT_NS) : 0;
    learn_cost(budget, used, done);
    add_credit(budget, charged - (int64_t)used - price(budget, pending), BURST_NS);
}

void vgpu_budget_assume(struct vgpu_usage_device* budget, uint64_t now_ns)
{
    uint64_t last = load(&budget->trued_at_ns);
    if ((last <= now_ns && now_ns - last < BURST_NS) || !is_first(budget, &last, now_ns))
        return;
    store(&budget->busy_seen_ns, NOT_MEASURED);
    store(&budget->done, 0);
    if (!has_room(budget))
        subtract(&budget->pending, (load(&budget->pending) + 1) / 2);
}

void vgpu_budget_sample(struct vgpu_usage_device* budget, uint64_t took_ns, uint32_t launches,
    uint64_t expected_ns, uint32_t scale)
{
    int64_t took = (int64_t)least(took_ns, MOST_DEBT_NS);
    int64_t missing = ((int64_t)least(expected_ns, MOST_DEBT_NS) - took) * scale;
    learn_cost(budget, (uint64_t)took, launches);
    add_credit(budget, missing, BURST_NS);
}
