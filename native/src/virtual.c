/*
 * Virtual memory: cuMemCreate makes memory, and it lives as long as a handle or a mapping refers to it.
 * The record of a handle counts both; the charge ends when the count does.
 *
 * The driver may give a handle out again to another thread before the call that ended it is back here, so
 * each memory has a number of its own, and what ends refers to that.
 */
#include "devices.h"
#include "forget.h"
#include "hooks.h"
#include "table.h"

static struct vgpu_table handles; /* the owner is the number of the memory */
static struct vgpu_table mappings; /* by address; the owner is the handle, the count the number */
static _Atomic uint32_t last_number;

void vgpu_virtual_forget(void)
{
    vgpu_table_forget(&handles);
    vgpu_table_forget(&mappings);
}

static void give_back(const struct vgpu_record* memory)
{
    vgpu_release(memory->device, VGPU_DATA, memory->bytes);
}

static void unrefer(uint64_t handle, uint64_t number)
{
    struct vgpu_record last;
    if (vgpu_table_unrefer(&handles, handle, number, &last))
        give_back(&last);
}

/* Whatever had this handle before has ended. */
static void remember(CUmemGenericAllocationHandle handle, size_t bytes, int ordinal)
{
    struct vgpu_record former;
    uint32_t number = atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed) + 1;
    if (vgpu_table_take(&handles, handle, &former))
        give_back(&former);
    vgpu_table_put(&handles, (struct vgpu_record) { handle, bytes, number, (uint16_t)ordinal, VGPU_DATA, 1 });
}

int vgpu_mem_create(
    int (*real)(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long),
    CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop,
    unsigned long long flags)
{
    int ordinal = prop ? vgpu_ordinal_at(&prop->location) : -1;
    if (ordinal < 0 || !vgpu_is_limited() || !vgpu_device(ordinal))
        return real(handle, bytes, prop, flags);
    if (!vgpu_charge(ordinal, VGPU_DATA, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int result = real(handle, bytes, prop, flags);
    if (result == CUDA_SUCCESS)
        remember(*handle, bytes, ordinal);
    else
        vgpu_release(ordinal, VGPU_DATA, bytes);
    return result;
}

int vgpu_mem_release(int (*real)(CUmemGenericAllocationHandle), CUmemGenericAllocationHandle handle)
{
    struct vgpu_record memory;
    bool is_ours = vgpu_is_limited() && vgpu_table_get(&handles, handle, &memory);
    int result = real(handle);
    if (is_ours && result == CUDA_SUCCESS)
        unrefer(handle, memory.owner);
    return result;
}

int vgpu_mem_map(int (*real)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long),
    CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    struct vgpu_record memory;
    int result = real(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS && vgpu_is_limited() && vgpu_table_get(&handles, handle, &memory)) {
        vgpu_table_refer(&handles, handle);
        vgpu_table_put(&mappings,
            (struct vgpu_record) {
                address, bytes, handle, memory.device, VGPU_DATA, (uint32_t)memory.owner });
    }
    return result;
}

struct range {
    CUdeviceptr address;
    size_t bytes;
};

static bool begins_in(const struct vgpu_record* record, const void* argument)
{
    const struct range* range = argument;
    return record->key >= range->address && record->key - range->address < range->bytes;
}

static void end_mapping(const struct vgpu_record* mapping) { unrefer(mapping->owner, mapping->count); }

/* A range may hold several mappings; in the usual case it is one that begins with it. */
int vgpu_mem_unmap(int (*real)(CUdeviceptr, size_t), CUdeviceptr address, size_t bytes)
{
    struct vgpu_record record;
    int result = real(address, bytes);
    if (result != CUDA_SUCCESS || !vgpu_is_limited())
        return result;
    uint64_t covered = 0;
    while (covered < bytes && vgpu_table_take(&mappings, address + covered, &record)) {
        end_mapping(&record);
        covered += record.bytes;
    }
    const struct range rest = { address + covered, covered < bytes ? bytes - covered : 0 };
    if (rest.bytes)
        vgpu_table_take_all(&mappings, begins_in, &rest, end_mapping);
    return result;
}

int vgpu_mem_retain(
    int (*real)(CUmemGenericAllocationHandle*, void*), CUmemGenericAllocationHandle* handle, void* address)
{
    int result = real(handle, address);
    if (result == CUDA_SUCCESS && vgpu_is_limited())
        vgpu_table_refer(&handles, *handle);
    return result;
}
