/* Plain allocations, virtual memory and arrays, all kept in one table by address or handle. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

#define GRANULARITY (UINT64_C(2) << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_record* records; /* open addressing, kind 0 is empty */
static size_t capacity;
static size_t count;
static uint64_t next_address = UINT64_C(0x7f0000000000);
static uint64_t last_freed;
static uint64_t last_freed_bytes;

static size_t home(uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (capacity - 1);
}

static size_t position(uint64_t key, int kind)
{
    size_t i = home(key);
    while (records[i].kind && (records[i].key != key || records[i].kind != kind))
        i = (i + 1) & (capacity - 1);
    return i;
}

static void grow(void)
{
    struct fake_record* old = records;
    size_t old_capacity = capacity;
    capacity = capacity ? capacity * 2 : 1024;
    records = calloc(capacity, sizeof *records);
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].kind)
            records[position(old[i].key, old[i].kind)] = old[i];
    free(old);
}

static void erase(size_t hole)
{
    for (size_t i = (hole + 1) & (capacity - 1); records[i].kind; i = (i + 1) & (capacity - 1)) {
        size_t wanted = home(records[i].key);
        if (((i - wanted) & (capacity - 1)) < ((i - hole) & (capacity - 1)))
            continue;
        records[hole] = records[i];
        hole = i;
    }
    records[hole].kind = 0;
    count--;
}

/* The address freed last is given out again, as real drivers do: stale records show. */
uint64_t fake_address(uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    uint64_t address = next_address;
    if (last_freed && bytes <= last_freed_bytes) {
        address = last_freed;
        last_freed = 0;
    } else {
        next_address += (bytes + GRANULARITY) & ~(GRANULARITY - 1);
    }
    pthread_mutex_unlock(&lock);
    return address;
}

void fake_insert(struct fake_record record)
{
    pthread_mutex_lock(&lock);
    if (!capacity || count * 2 >= capacity)
        grow();
    records[position(record.key, record.kind)] = record;
    count++;
    pthread_mutex_unlock(&lock);
}

bool fake_find(uint64_t key, int kind, struct fake_record* found)
{
    pthread_mutex_lock(&lock);
    size_t i = capacity ? position(key, kind) : 0;
    bool is_there = capacity && records[i].kind;
    if (is_there)
        *found = records[i];
    pthread_mutex_unlock(&lock);
    return is_there;
}

bool fake_remove(uint64_t key, int kind, struct fake_record* found)
{
    pthread_mutex_lock(&lock);
    size_t i = capacity ? position(key, kind) : 0;
    bool is_there = capacity && records[i].kind;
    if (is_there) {
        *found = records[i];
        erase(i);
        if (kind == FAKE_PLAIN || kind == FAKE_POOLED)
            last_freed = found->key, last_freed_bytes = found->bytes;
    }
    pthread_mutex_unlock(&lock);
    return is_there;
}

bool fake_find_containing(uint64_t address, int kind, struct fake_record* found)
{
    bool is_there = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < capacity && !is_there; i++) {
        if (records[i].kind != kind || address < records[i].key
            || address - records[i].key >= records[i].bytes)
            continue;
        *found = records[i];
        is_there = true;
    }
    pthread_mutex_unlock(&lock);
    return is_there;
}

/* The end of a context takes its plain allocations and arrays along. */
void fake_drop_owner(const void* owner, int device)
{
    uint64_t freed = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < capacity;) {
        bool is_owned
            = records[i].owner == owner && (records[i].kind == FAKE_PLAIN || records[i].kind == FAKE_ARRAY);
        if (!is_owned) {
            i++;
            continue;
        }
        freed += records[i].bytes;
        erase(i);
    }
    pthread_mutex_unlock(&lock);
    fake_give(device, freed);
}

static CUresult allocate(CUdeviceptr* address, uint64_t asked)
{
    CUcontext context = fake_context();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!address || !asked)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t bytes = (asked + 511) & ~UINT64_C(511);
    if (!fake_take(context->device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *address = fake_address(bytes);
    fake_insert((struct fake_record) { *address, bytes, context, context->device, FAKE_PLAIN });
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes)
{
    ENTER(cuMemAlloc_v2);
    return allocate(address, bytes);
}

FAKE_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned int flags)
{
    ENTER(cuMemAllocManaged);
    (void)flags;
    return allocate(address, bytes);
}

FAKE_EXPORT CUresult cuMemAllocPitch_v2(
    CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned int element)
{
    ENTER(cuMemAllocPitch_v2);
    if (!pitch || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = (width + 511) & ~(size_t)511;
    return allocate(address, *pitch * height);
}

FAKE_EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    ENTER(cuMemFree_v2);
    struct fake_record found;
    if (!fake_is_initialised())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!address)
        return CUDA_SUCCESS;
    if (fake_remove(address, FAKE_PLAIN, &found)) {
        fake_give(found.device, found.bytes);
        return CUDA_SUCCESS;
    }
    if (fake_remove(address, FAKE_POOLED, &found))
        return fake_pool_free(found);
    return fake_remove(address, FAKE_FOREIGN, &found) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE_EXPORT CUresult cuMemAllocHost_v2(void** address, size_t bytes)
{
    ENTER(cuMemAllocHost_v2);
    *address = malloc(bytes);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FAKE_EXPORT CUresult cuMemFreeHost(void* address)
{
    ENTER(cuMemFreeHost);
    free(address);
    return CUDA_SUCCESS;
}

/* Memory of another process: nothing is taken, and the address is unknown to whoever counts. */
FAKE_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUuuid handle, unsigned int flags)
{
    ENTER(cuIpcOpenMemHandle_v2);
    (void)handle;
    (void)flags;
    *address = fake_address(GRANULARITY);
    fake_insert((struct fake_record) { *address, GRANULARITY, NULL, 0, FAKE_FOREIGN });
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, CUdevice device)
{
    ENTER(cuMemAdvise);
    (void)address, (void)bytes, (void)advice, (void)device;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, CUmemLocation location)
{
    ENTER(cuMemAdvise_v2);
    (void)address, (void)bytes, (void)advice, (void)location;
    return CUDA_SUCCESS;
}

/* Virtual memory: owner counts the references of an object, by handles and by mappings. */

static uint64_t next_handle = 0x1000;
static uint64_t last_handle; /* freed last, and given out again, as addresses are */

/* The card of a place, or -1 for the host's memory. */
int fake_device_at(const CUmemLocation* location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE                ? location->id
        : location->type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN ? location->id & 0xff
                                                                        : -1;
}

FAKE_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
    const CUmemAllocationProp* prop, unsigned long long flags)
{
    ENTER(cuMemCreate);
    (void)flags;
    if (!handle || !prop || !bytes || bytes % GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    int device = fake_device_at(&prop->location);
    if (device >= fake_device_count())
        return CUDA_ERROR_INVALID_DEVICE;
    if (device >= 0 && !fake_take(device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    *handle = last_handle ? last_handle : next_handle++;
    last_handle = 0;
    pthread_mutex_unlock(&lock);
    fake_insert((struct fake_record) { *handle, bytes, (void*)1, device, FAKE_HANDLE });
    return CUDA_SUCCESS;
}

static CUresult add_reference(CUmemGenericAllocationHandle handle, intptr_t delta)
{
    struct fake_record found;
    if (!fake_remove(handle, FAKE_HANDLE, &found))
        return CUDA_ERROR_INVALID_VALUE;
    found.owner = (void*)((intptr_t)found.owner + delta);
    if (found.owner) {
        fake_insert(found);
        return CUDA_SUCCESS;
    }
    if (found.device >= 0)
        fake_give(found.device, found.bytes);
    pthread_mutex_lock(&lock);
    last_handle = handle;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    ENTER(cuMemRelease);
    return fake_ended(FAKE_cuMemRelease, add_reference(handle, -1));
}

FAKE_EXPORT CUresult cuMemAddressReserve(
    CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
    ENTER(cuMemAddressReserve);
    (void)alignment, (void)hint, (void)flags;
    *address = fake_address(bytes);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    ENTER(cuMemAddressFree);
    (void)address, (void)bytes;
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    ENTER(cuMemMap);
    (void)flags;
    struct fake_record found;
    if (!fake_find(handle, FAKE_HANDLE, &found) || offset || bytes != found.bytes)
        return CUDA_ERROR_INVALID_VALUE;
    fake_insert(
        (struct fake_record) { address, bytes, (void*)(uintptr_t)handle, found.device, FAKE_MAPPING });
    return add_reference(handle, 1);
}

FAKE_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    ENTER(cuMemUnmap);
    for (uint64_t done = 0; done < bytes;) {
        struct fake_record found;
        if (!fake_remove(address + done, FAKE_MAPPING, &found))
            return CUDA_ERROR_INVALID_VALUE;
        add_reference((uintptr_t)found.owner, -1);
        done += found.bytes;
    }
    return fake_ended(FAKE_cuMemUnmap, CUDA_SUCCESS);
}

FAKE_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address)
{
    ENTER(cuMemRetainAllocationHandle);
    struct fake_record found;
    if (!fake_find_containing((uintptr_t)address, FAKE_MAPPING, &found))
        return CUDA_ERROR_INVALID_VALUE;
    *handle = (uintptr_t)found.owner;
    return add_reference(*handle, 1);
}

/* Arrays take whole 64 KiB blocks. */

static CUresult make_array(void** array, uint64_t asked)
{
    CUcontext context = fake_context();
    uint64_t bytes = (asked + 0xffff) & ~UINT64_C(0xffff);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!fake_take(context->device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *array = (void*)(uintptr_t)fake_address(bytes);
    fake_insert((struct fake_record) { (uintptr_t)*array, bytes, context, context->device, FAKE_ARRAY });
    return CUDA_SUCCESS;
}

static uint64_t element_bytes(int format, unsigned int channels)
{
    uint64_t bytes = format == 0x20 || format == 0x03 || format == 0x0a ? 4
        : format == 0x02 || format == 0x09 || format == 0x10 || (format >= 0xc3 && format <= 0xc5)
            || (format >= 0xc9 && format <= 0xcb)
        ? 2
        : 1;
    return bytes * channels;
}

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR* d, unsigned int level)
{
    uint64_t width = d->Width >> level ? d->Width >> level : 1;
    uint64_t height = d->Height >> level ? d->Height >> level : 1;
    bool is_layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    uint64_t depth = is_layered ? d->Depth : d->Depth >> level ? d->Depth >> level : 1;
    return width * height * depth * element_bytes(d->Format, d->NumChannels);
}

FAKE_EXPORT CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* d)
{
    ENTER(cuArrayCreate_v2);
    return make_array(
        (void**)array, d->Width * (d->Height ? d->Height : 1) * element_bytes(d->Format, d->NumChannels));
}

FAKE_EXPORT CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* d)
{
    ENTER(cuArray3DCreate_v2);
    return make_array((void**)array, d->Flags & CUDA_ARRAY3D_SPARSE ? 0 : level_bytes(d, 0));
}

FAKE_EXPORT CUresult cuMipmappedArrayCreate(
    CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* d, unsigned int levels)
{
    ENTER(cuMipmappedArrayCreate);
    uint64_t bytes = 0;
    for (unsigned int level = 0; level < levels; level++)
        bytes += level_bytes(d, level);
    return make_array((void**)array, bytes);
}

static CUresult destroy_array(const void* array)
{
    struct fake_record found;
    if (!fake_remove((uintptr_t)array, FAKE_ARRAY, &found))
        return CUDA_ERROR_INVALID_HANDLE;
    fake_give(found.device, found.bytes);
    return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuArrayDestroy(CUarray array)
{
    ENTER(cuArrayDestroy);
    return destroy_array(array);
}

FAKE_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    ENTER(cuMipmappedArrayDestroy);
    return destroy_array(array);
}
