#include "pool_place.h"
#include "devices.h"

#define NUMA_NODES 64

static bool ask_number(CUmemoryPool handle, int attribute, int* number)
{
    return HAS(cuMemPoolGetAttribute)
        && DRIVER(cuMemPoolGetAttribute)(handle, attribute, number) == CUDA_SUCCESS;
}

static bool is_pool_of(int ordinal, CUmemoryPool handle)
{
    CUmemoryPool found = NULL;
    return (HAS(cuDeviceGetDefaultMemPool)
               && DRIVER(cuDeviceGetDefaultMemPool)(&found, ordinal) == CUDA_SUCCESS && found == handle)
        || (HAS(cuDeviceGetMemPool) && DRIVER(cuDeviceGetMemPool)(&found, ordinal) == CUDA_SUCCESS
            && found == handle);
}

static bool is_at(CUmemLocation location, CUmemoryPool handle, bool* is_known)
{
    CUmemoryPool found = NULL;
    *is_known = HAS(cuMemGetDefaultMemPool)
        && DRIVER(cuMemGetDefaultMemPool)(&found, &location, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_SUCCESS;
    return *is_known && found == handle;
}

static bool is_pool_of_host(CUmemoryPool handle)
{
    bool is_known;
    if (is_at((CUmemLocation) { CU_MEM_LOCATION_TYPE_HOST, 0 }, handle, &is_known))
        return true;
    for (int node = 0; node < NUMA_NODES; node++) {
        if (is_at((CUmemLocation) { CU_MEM_LOCATION_TYPE_HOST_NUMA, node }, handle, &is_known))
            return true;
        if (!is_known)
            return false;
    }
    return false;
}

/* The GPU that a pool of this place and kind is charged to; `here` where the place says none. */
static int charged_at(const CUmemLocation* location, int type, int here)
{
    bool is_managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    bool is_here = is_managed && location->type == CU_MEM_LOCATION_TYPE_NONE;
    int ordinal = is_here ? here : vgpu_ordinal_at(location);
    struct vgpu_device* device = vgpu_device(ordinal);
    return device && !(is_managed && vgpu_ignores_managed(device)) ? ordinal : -1;
}

int vgpu_pool_made_at(const CUmemPoolProps* props)
{
    return charged_at(&props->location, props->allocType, -1);
}

int vgpu_pool_found_at(CUmemoryPool handle, int here)
{
    CUmemLocation location;
    int type;
    if (ask_number(handle, CU_MEMPOOL_ATTR_LOCATION_TYPE, &location.type)
        && ask_number(handle, CU_MEMPOOL_ATTR_LOCATION_ID, &location.id)
        && ask_number(handle, CU_MEMPOOL_ATTR_ALLOCATION_TYPE, &type))
        return charged_at(&location, type, here);
    /* Drivers before CUDA 13.2 do not tell. */
    for (int ordinal = 0; ordinal < vgpu_ordinal_count(); ordinal++)
        if (is_pool_of(ordinal, handle))
            return vgpu_device(ordinal) ? ordinal : -1;
    return is_pool_of_host(handle) || !vgpu_device(here) ? -1 : here;
}
