/* Allocations that the driver makes at once, and the frees of all addresses. */
#include "devices.h"
#include "forget.h"
#include "hooks.h"
#include "reclaim.h"
#include "table.h"

/* The driver hands out memory in units of this. */
#define UNIT UINT64_C(512)

static struct vgpu_table addresses;

struct vgpu_table* vgpu_addresses(void) { return &addresses; }

void vgpu_memory_forget(void) { vgpu_table_forget(&addresses); }

static uint64_t whole_units(uint64_t bytes)
{
    return bytes > UINT64_MAX - UNIT ? UINT64_MAX : (bytes + UNIT - 1) & ~(UNIT - 1);
}

/* After the driver's call: keeps the charge with the address, or gives it back. */
static int settle(int result, const CUdeviceptr* address, const struct vgpu_place* place, enum vgpu_kind kind,
    uint64_t charged)
{
    if (result == CUDA_SUCCESS)
        vgpu_table_put(&addresses,
            (struct vgpu_record) {
                *address, charged, (uintptr_t)place->context, (uint16_t)place->ordinal, (uint16_t)kind, 0 });
    else
        vgpu_release(place->ordinal, kind, charged);
    return result;
}

int vgpu_mem_alloc(int (*real)(CUdeviceptr*, size_t), CUdeviceptr* address, size_t bytes)
{
    struct vgpu_place place;
    if (!vgpu_here(&place))
        return real(address, bytes);
    uint64_t charged = whole_units(bytes);
    if (!vgpu_charge(place.ordinal, VGPU_DATA, charged))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settle(real(address, bytes), address, &place, VGPU_DATA, charged);
}

int vgpu_mem_alloc_managed(
    int (*real)(CUdeviceptr*, size_t, unsigned int), CUdeviceptr* address, size_t bytes, unsigned int flags)
{
    struct vgpu_place place;
    if (!vgpu_here(&place) || vgpu_ignores_managed(vgpu_device(place.ordinal)))
        return real(address, bytes, flags);
    uint64_t charged = whole_units(bytes);
    if (!vgpu_charge(place.ordinal, VGPU_MANAGED, charged))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return settle(real(address, bytes, flags), address, &place, VGPU_MANAGED, charged);
}

static uint64_t product(uint64_t a, uint64_t b) { return a && b > UINT64_MAX / a ? UINT64_MAX : a * b; }

/* The pitch is the driver's choice: the charge is what we expect, then what it was. */
int vgpu_mem_alloc_pitch(int (*real)(CUdeviceptr*, size_t*, size_t, size_t, unsigned int),
    CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned int element)
{
    struct vgpu_place place;
    if (!vgpu_here(&place))
        return real(address, pitch, width, height, element);
    uint64_t expected = product(whole_units(width), height);
    if (!vgpu_charge(place.ordinal, VGPU_DATA, expected))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int result = real(address, pitch, width, height, element);
    uint64_t actual = result == CUDA_SUCCESS ? whole_units(product(*pitch, height)) : expected;
    if (actual > expected)
        vgpu_force(place.ordinal, VGPU_DATA, actual - expected);
    else
        vgpu_release(place.ordinal, VGPU_DATA, expected - actual);
    return settle(result, address, &place, VGPU_DATA, actual);
}

/*
 * The record goes before the driver's call, because another thread may get the same address right after it.
 * An address that we do not know is the driver's to judge.
 */
static bool forget_address(CUdeviceptr address, struct vgpu_record* record)
{
    return vgpu_is_limited() && vgpu_table_take(&addresses, address, record);
}

static int settle_free(int result, const struct vgpu_record* record)
{
    if (result != CUDA_SUCCESS)
        vgpu_table_put(&addresses, *record);
    else if (record->kind == VGPU_POOL)
        vgpu_pool_freed(record);
    else
        vgpu_release(record->device, record->kind, record->bytes);
    return result;
}

int vgpu_mem_free(int (*real)(CUdeviceptr), CUdeviceptr address)
{
    struct vgpu_record record;
    return forget_address(address, &record) ? settle_free(real(address), &record) : real(address);
}

int vgpu_mem_free_async(int (*real)(CUdeviceptr, CUstream), CUdeviceptr address, CUstream stream)
{
    struct vgpu_record record;
    return forget_address(address, &record) ? settle_free(real(address, stream), &record)
                                            : real(address, stream);
}

static bool is_of_context(const struct vgpu_record* record, const void* context)
{
    return record->owner == (uintptr_t)context && record->kind != VGPU_POOL;
}

static void give_back(const struct vgpu_record* record)
{
    vgpu_release(record->device, record->kind, record->bytes);
}

void vgpu_memory_drop(const void* context)
{
    vgpu_table_take_all(&addresses, is_of_context, context, give_back);
}
