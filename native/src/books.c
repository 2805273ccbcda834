#include "books.h"
#include "budget.h"
#include "crash.h"
#include "libc.h"
#include "lock.h"
#include "log.h"
#include "process.h"
#include "usage_file.h"

#include <stddef.h>

#define TRIES 3

/* Who we are; set by vgpu_books_open, the same for all claims. */
static struct vgpu_identity me;

/* All numbers that other processes write are read and written whole. */
static uint64_t load(const uint64_t* number) { return __atomic_load_n(number, __ATOMIC_RELAXED); }

static void store(uint64_t* number, uint64_t value) { __atomic_store_n(number, value, __ATOMIC_RELAXED); }

static uint64_t plus(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* Leaves the shared file for private memory, with what this process holds. Enforcement goes on, for it alone.
 */
static struct vgpu_books* leave(struct vgpu_claim* claim, struct vgpu_books* damaged)
{
    LOG(VGPU_ERROR,
        "the shared usage file is damaged or its lock is stuck: limits now count this process alone");
    struct vgpu_books* expected = damaged;
    vgpu_usage_private(&claim->own);
    for (uint32_t device = 0; device < VGPU_DEVICES && claim->own.usage; device++) {
        claim->own.usage->slots[0].devices[device] = damaged->usage->slots[damaged->slot].devices[device];
        vgpu_usage_recompute(claim->own.usage, device);
    }
    if (claim->own.usage)
        atomic_compare_exchange_strong(&claim->books, &expected, &claim->own);
    return atomic_load_explicit(&claim->books, memory_order_acquire);
}

/* Locks the device and returns the books to write in, or NULL. */
static struct vgpu_books* locked(struct vgpu_claim* claim, uint32_t device)
{
    struct vgpu_books* books = atomic_load_explicit(&claim->books, memory_order_acquire);
    for (int attempt = 0; books && attempt < TRIES; attempt++) {
        if (vgpu_usage_lock(books->usage, device))
            return books;
        books = leave(claim, books);
    }
    return NULL;
}

uint64_t vgpu_memory_limit(const struct vgpu_claim* claim, uint32_t device)
{
    return load(&claim->control->devices[device].memory_bytes);
}

uint64_t vgpu_books_total(struct vgpu_claim* claim, uint32_t device)
{
    const struct vgpu_books* books = atomic_load_explicit(&claim->books, memory_order_acquire);
    return books ? load(&books->usage->devices[device].total_bytes) : 0;
}

struct vgpu_slot_device* vgpu_books_mine(struct vgpu_claim* claim, uint32_t device)
{
    struct vgpu_books* books = atomic_load_explicit(&claim->books, memory_order_acquire);
    return books ? &books->usage->slots[books->slot].devices[device] : NULL;
}

uint64_t vgpu_books_own(struct vgpu_claim* claim, uint32_t device)
{
    const struct vgpu_slot_device* mine = vgpu_books_mine(claim, device);
    return mine ? vgpu_slot_sum(mine) : 0;
}

uint64_t vgpu_books_take(
    struct vgpu_claim* claim, uint32_t device, enum vgpu_kind kind, uint64_t wanted, uint64_t least)
{
    struct vgpu_books* books = locked(claim, device);
    if (!books)
        return 0;
    struct vgpu_usage_device* shared = &books->usage->devices[device];
    struct vgpu_slot_device* mine = &books->usage->slots[books->slot].devices[device];
    uint64_t room = minus(vgpu_memory_limit(claim, device), load(&shared->total_bytes));
    uint64_t taken = wanted < room ? wanted : room;
    if (taken < least)
        taken = 0;
    if (taken) {
        store(&shared->total_bytes, load(&shared->total_bytes) + taken);
        CRASH_POINT("take");
        store(&mine->bytes[kind], plus(load(&mine->bytes[kind]), taken));
        store(&mine->allocations, load(&mine->allocations) + 1);
    }
    vgpu_unlock(shared);
    return taken;
}

void vgpu_books_force(struct vgpu_claim* claim, uint32_t device, enum vgpu_kind kind, uint64_t bytes)
{
    struct vgpu_books* books = bytes ? locked(claim, device) : NULL;
    if (!books)
        return;
    struct vgpu_usage_device* shared = &books->usage->devices[device];
    struct vgpu_slot_device* mine = &books->usage->slots[books->slot].devices[device];
    store(&shared->total_bytes, plus(load(&shared->total_bytes), bytes));
    store(&mine->bytes[kind], plus(load(&mine->bytes[kind]), bytes));
    vgpu_unlock(shared);
}

uint64_t vgpu_books_give(struct vgpu_claim* claim, uint32_t device, enum vgpu_kind kind, uint64_t bytes)
{
    struct vgpu_books* books = bytes ? locked(claim, device) : NULL;
    if (!books)
        return 0;
    struct vgpu_usage_device* shared = &books->usage->devices[device];
    struct vgpu_slot_device* mine = &books->usage->slots[books->slot].devices[device];
    uint64_t held = load(&mine->bytes[kind]);
    uint64_t given = bytes < held ? bytes : held;
    store(&mine->bytes[kind], held - given);
    CRASH_POINT("give");
    store(&shared->total_bytes, minus(load(&shared->total_bytes), given));
    vgpu_unlock(shared);
    return given;
}

void vgpu_books_count_refusal(struct vgpu_claim* claim, uint32_t device)
{
    struct vgpu_slot_device* mine = vgpu_books_mine(claim, device);
    if (mine)
        __atomic_fetch_add(&mine->refusals, 1, __ATOMIC_RELAXED);
}

/* Whether the agent saw the process of the slot end, which we cannot see across PID namespaces. */
static bool agent_says_gone(const struct vgpu_claim* claim, uint32_t slot, const struct vgpu_slot* process)
{
    const struct vgpu_control_process* told = &claim->control->processes[slot];
    return __atomic_load_n(&told->host_pid, __ATOMIC_RELAXED) == VGPU_PROCESS_GONE
        && __atomic_load_n(&told->pid, __ATOMIC_RELAXED) == process->pid
        && load(&told->start_time) == process->start_time;
}

static bool is_dead(const struct vgpu_claim* claim, uint32_t slot, const struct vgpu_slot* process)
{
    if (agent_says_gone(claim, slot, process))
        return true;
    return process->pid_namespace == me.pid_namespace && vgpu_is_gone(process->pid, process->start_time);
}

/* The same, as far as one call can tell: hundreds may start at once, and each looks at all the others. */
static bool is_missing(const struct vgpu_claim* claim, uint32_t slot, const struct vgpu_slot* process)
{
    if (agent_says_gone(claim, slot, process))
        return true;
    return process->pid_namespace == me.pid_namespace && vgpu_is_missing(process->pid);
}

/* Empties a slot, if it still is of the given process. Its devices are emptied one by one under their locks.
 */
static void bury(struct vgpu_claim* claim, uint32_t number, uint32_t pid, uint64_t start_time)
{
    struct vgpu_books* books = atomic_load_explicit(&claim->books, memory_order_acquire);
    struct vgpu_slot* slot = &books->usage->slots[number];
    for (uint32_t device = 0; device < VGPU_DEVICES; device++) {
        struct vgpu_usage_device* shared = &books->usage->devices[device];
        struct vgpu_slot_device* dead = &slot->devices[device];
        if (!vgpu_slot_sum(dead) && !load(&dead->pending))
            continue;
        if (!vgpu_usage_lock(books->usage, device))
            return;
        /* Whoever got the slot since then can charge nothing here while we hold the lock. */
        if (slot->pid == pid && slot->start_time == start_time) {
            uint64_t bytes = vgpu_slot_sum(dead);
            for (int kind = 0; kind < VGPU_KINDS; kind++)
                store(&dead->bytes[kind], 0);
            vgpu_budget_done(shared, __atomic_exchange_n(&dead->pending, 0, __ATOMIC_RELAXED));
            CRASH_POINT("bury");
            store(&shared->total_bytes, minus(load(&shared->total_bytes), bytes));
        }
        vgpu_unlock(shared);
    }
}

typedef bool (*dead_function)(const struct vgpu_claim* claim, uint32_t slot, const struct vgpu_slot* process);

static bool reap(struct vgpu_claim* claim, dead_function is_so)
{
    struct vgpu_books* books = atomic_load_explicit(&claim->books, memory_order_acquire);
    if (!books || books->is_private)
        return false;
    bool is_any_dead = false;
    for (uint32_t i = 0; i < vgpu_slots_used(books->usage); i++) {
        struct vgpu_slot* slot = &books->usage->slots[i];
        uint32_t pid = slot->pid;
        uint64_t start_time = slot->start_time;
        if (i == books->slot || !vgpu_slot_is_live(slot) || !is_so(claim, i, slot))
            continue;
        bury(claim, i, pid, start_time);
        vgpu_usage_free_slot(books->usage, i, pid, start_time);
        is_any_dead = true;
    }
    return is_any_dead;
}

bool vgpu_books_reap(struct vgpu_claim* claim) { return reap(claim, is_dead); }

/* The driver's number of the process in a slot, if the agent told it. */
static uint64_t driver_bytes(
    const struct vgpu_claim* claim, uint32_t slot, const struct vgpu_slot* process, uint32_t device)
{
    const struct vgpu_control_process* told = &claim->control->processes[slot];
    bool is_same = __atomic_load_n(&told->pid, __ATOMIC_RELAXED) == process->pid
        && load(&told->start_time) == process->start_time;
    return is_same ? load(&told->used_bytes[device]) : 0;
}

/*
 * Drops those who ended, and charges as context what the driver counts beyond our books: contexts, modules,
 * fragments.
 * One process does it for all, once for each measurement.
 */
void vgpu_books_feed(struct vgpu_claim* claim, uint32_t device)
{
    uint64_t feed = __atomic_load_n(&claim->control->feed_sequence, __ATOMIC_ACQUIRE);
    struct vgpu_books* books = atomic_load_explicit(&claim->books, memory_order_acquire);
    if (!books || books->is_private || (feed & 1)
        || load(&books->usage->devices[device].fed_sequence) == feed)
        return;
    reap(claim, agent_says_gone);
    books = locked(claim, device);
    if (!books)
        return;
    if (books->is_private) {
        vgpu_unlock(&books->usage->devices[device]);
        return;
    }
    store(&books->usage->devices[device].fed_sequence, feed);
    for (uint32_t i = 0; i < vgpu_slots_used(books->usage); i++) {
        struct vgpu_slot* slot = &books->usage->slots[i];
        uint64_t told = vgpu_slot_is_live(slot) ? driver_bytes(claim, i, slot, device) : 0;
        if (!told)
            continue;
        struct vgpu_slot_device* held = &slot->devices[device];
        uint64_t ours = minus(vgpu_slot_sum(held), load(&held->bytes[VGPU_CONTEXT]));
        store(&held->bytes[VGPU_CONTEXT], minus(told, ours));
    }
    vgpu_usage_recompute(books->usage, device);
    vgpu_unlock(&books->usage->devices[device]);
}

/* Adopts a usage file as this process's books; false when there is no room for us in it. */
static bool join(struct vgpu_claim* claim, struct vgpu_usage* usage)
{
    claim->shared = (struct vgpu_books) { usage, VGPU_SLOTS, false };
    if (!vgpu_usage_claim_slot(usage, &me, &claim->shared.slot)) {
        atomic_store_explicit(&claim->books, &claim->shared, memory_order_release);
        vgpu_books_reap(claim);
        atomic_store_explicit(&claim->books, NULL, memory_order_release);
        if (!vgpu_usage_claim_slot(usage, &me, &claim->shared.slot))
            return false;
    }
    atomic_store_explicit(&claim->books, &claim->shared, memory_order_release);
    /* A program that this process replaced by exec, or a dead one with the same identity, may have left
     * bytes. */
    bury(claim, claim->shared.slot, me.pid, me.start_time);
    /* Others too, as before a container was restarted: free memory is asked for before any is refused. */
    reap(claim, is_missing);
    return true;
}

void vgpu_books_open(struct vgpu_claim* claim, const char* usage_path, bool may_create)
{
    /* No locks, no books, and no memory; it was said. */
    if (!vgpu_libc_has(VGPU_THREADS))
        return;
    me = vgpu_identity();
    struct vgpu_usage* usage = usage_path ? vgpu_usage_map(usage_path, may_create) : NULL;
    if (usage && join(claim, usage))
        return;
    if (usage)
        LOG(VGPU_ERROR, "found more than %d processes in %s: limits count this process alone", VGPU_SLOTS,
            usage_path);
    vgpu_usage_private(&claim->own);
    if (claim->own.usage)
        atomic_store_explicit(&claim->books, &claim->own, memory_order_release);
}
