/* Charges of a GPU, spread over the claims that hold shares of it. Memory is fungible: only sums matter. */
#include "devices.h"
#include "log.h"
#include "reclaim.h"

uint64_t vgpu_limit(const struct vgpu_device* device)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < device->part_count; i++) {
        uint64_t limit = vgpu_memory_limit(device->parts[i].claim, device->parts[i].number);
        if (limit == VGPU_NO_LIMIT || sum > VGPU_NO_LIMIT - limit)
            return VGPU_NO_LIMIT;
        sum += limit;
    }
    return sum;
}

uint64_t vgpu_used(const struct vgpu_device* device)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < device->part_count; i++) {
        vgpu_books_feed(device->parts[i].claim, device->parts[i].number);
        uint64_t total = vgpu_books_total(device->parts[i].claim, device->parts[i].number);
        sum = sum > UINT64_MAX - total ? UINT64_MAX : sum + total;
    }
    return sum;
}

uint64_t vgpu_own(const struct vgpu_device* device)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < device->part_count; i++)
        sum += vgpu_books_own(device->parts[i].claim, device->parts[i].number);
    return sum;
}

bool vgpu_ignores_managed(const struct vgpu_device* device)
{
    return __atomic_load_n(&device->parts[0].claim->control->flags, __ATOMIC_RELAXED) & VGPU_IGNORE_MANAGED;
}

/* Until the agent tells the driver's number, a process is charged the expected size of its context. */
static void charge_context(struct vgpu_device* device, int ordinal)
{
    if (LIKELY(atomic_load_explicit(&device->has_context, memory_order_relaxed))
        || atomic_exchange(&device->has_context, true))
        return;
    const struct vgpu_control* control = device->parts[0].claim->control;
    vgpu_force(ordinal, VGPU_CONTEXT, control->devices[device->parts[0].number].context_bytes);
}

static bool spread(struct vgpu_device* device, enum vgpu_kind kind, uint64_t bytes)
{
    uint64_t taken[VGPU_CLAIMS] = { 0 };
    uint64_t missing = bytes;
    for (uint32_t i = 0; i < device->part_count && missing; i++) {
        taken[i] = vgpu_books_take(device->parts[i].claim, device->parts[i].number, kind, missing, 1);
        missing -= taken[i];
    }
    for (uint32_t i = 0; i < device->part_count && missing; i++)
        vgpu_books_give(device->parts[i].claim, device->parts[i].number, kind, taken[i]);
    return !missing;
}

bool vgpu_try_charge(int ordinal, enum vgpu_kind kind, uint64_t bytes)
{
    struct vgpu_device* device = vgpu_device(ordinal);
    if (!device || !bytes)
        return true;
    charge_context(device, ordinal);
    for (uint32_t i = 0; i < device->part_count; i++)
        vgpu_books_feed(device->parts[i].claim, device->parts[i].number);
    if (LIKELY(device->part_count == 1))
        return vgpu_books_take(device->parts[0].claim, device->parts[0].number, kind, bytes, bytes) == bytes;
    return spread(device, kind, bytes);
}

bool vgpu_reap(struct vgpu_device* device)
{
    bool is_any_dead = false;
    for (uint32_t i = 0; i < device->part_count; i++)
        is_any_dead |= vgpu_books_reap(device->parts[i].claim);
    return is_any_dead;
}

bool vgpu_charge(int ordinal, enum vgpu_kind kind, uint64_t bytes)
{
    if (LIKELY(vgpu_try_charge(ordinal, kind, bytes)))
        return true;
    if (vgpu_reap(vgpu_device(ordinal)) && vgpu_try_charge(ordinal, kind, bytes))
        return true;
    if (vgpu_pools_reclaim(ordinal) && vgpu_try_charge(ordinal, kind, bytes))
        return true;
    if (vgpu_graphs_reclaim(ordinal) && vgpu_try_charge(ordinal, kind, bytes))
        return true;
    vgpu_refused(ordinal, bytes);
    return false;
}

void vgpu_refused(int ordinal, uint64_t bytes)
{
    struct vgpu_device* device = vgpu_device(ordinal);
    vgpu_books_count_refusal(device->parts[0].claim, device->parts[0].number);
    LOG(VGPU_WARNING, "refused %llu bytes on GPU %d: %llu of %llu bytes are in use",
        (unsigned long long)bytes, ordinal, (unsigned long long)vgpu_used(device),
        (unsigned long long)vgpu_limit(device));
}

void vgpu_force(int ordinal, enum vgpu_kind kind, uint64_t bytes)
{
    struct vgpu_device* device = vgpu_device(ordinal);
    if (device)
        vgpu_books_force(device->parts[0].claim, device->parts[0].number, kind, bytes);
}

void vgpu_release(int ordinal, enum vgpu_kind kind, uint64_t bytes)
{
    struct vgpu_device* device = vgpu_device(ordinal);
    for (uint32_t i = device ? device->part_count : 0; i-- > 0 && bytes;)
        bytes -= vgpu_books_give(device->parts[i].claim, device->parts[i].number, kind, bytes);
}
