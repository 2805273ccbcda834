/* Arrays and mipmapped arrays: charged by their shape, in the blocks that the driver takes for them. */
#include "devices.h"
#include "forget.h"
#include "hooks.h"
#include "reclaim.h"
#include "table.h"

#define BLOCK UINT64_C(0x10000)
#define NO_BACKING (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

static struct vgpu_table arrays;

void vgpu_arrays_forget(void) { vgpu_table_forget(&arrays); }

/* Bytes of one channel, by CUarray_format; for formats of no fixed channel, what four bytes would bound. */
static uint64_t channel_bytes(int format)
{
    switch (format) {
    case 0x01: /* unsigned 8 */
    case 0x08: /* signed 8 */
    case 0xc0: /* normalised, unsigned 8, of one channel, two and four */
    case 0xc1:
    case 0xc2:
    case 0xc6: /* signed */
    case 0xc7:
    case 0xc8:
        return 1;
    case 0x02: /* unsigned 16 */
    case 0x09: /* signed 16 */
    case 0x10: /* half */
    case 0xc3: /* normalised, unsigned 16 */
    case 0xc4:
    case 0xc5:
    case 0xc9: /* signed */
    case 0xca:
    case 0xcb:
        return 2;
    default:
        return 4;
    }
}

static uint64_t product(uint64_t a, uint64_t b) { return a && b > UINT64_MAX / a ? UINT64_MAX : a * b; }

static uint64_t side(size_t full, unsigned int level)
{
    return level < 64 && full >> level ? full >> level : 1;
}

/* Layers, and the six sides of a cube, are as many at each level. */
static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR* shape, unsigned int level)
{
    bool is_layered = shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    uint64_t depth = side(shape->Depth, is_layered ? 0 : level);
    uint64_t elements = product(product(side(shape->Width, level), side(shape->Height, level)), depth);
    return product(elements, product(channel_bytes(shape->Format), shape->NumChannels));
}

static uint64_t whole_blocks(uint64_t bytes)
{
    return bytes > UINT64_MAX - BLOCK ? UINT64_MAX : (bytes + BLOCK - 1) & ~(BLOCK - 1);
}

static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR* shape, unsigned int levels)
{
    uint64_t sum = 0;
    if (!shape || shape->Flags & NO_BACKING)
        return 0;
    for (unsigned int level = 0; level < levels && level < 64; level++) {
        uint64_t bytes = level_bytes(shape, level);
        sum = sum > UINT64_MAX - bytes ? UINT64_MAX : sum + bytes;
    }
    return whole_blocks(sum);
}

static int settle(int result, const void* array, const struct vgpu_place* place, uint64_t charged)
{
    if (result == CUDA_SUCCESS)
        vgpu_table_put(&arrays,
            (struct vgpu_record) { (uintptr_t)array, charged, (uintptr_t)place->context,
                (uint16_t)place->ordinal, VGPU_ARRAY, 0 });
    else
        vgpu_release(place->ordinal, VGPU_ARRAY, charged);
    return result;
}

int vgpu_array_create(
    int (*real)(CUarray*, const CUDA_ARRAY_DESCRIPTOR*), CUarray* array, const CUDA_ARRAY_DESCRIPTOR* shape)
{
    struct vgpu_place place;
    if (!shape || !vgpu_here(&place))
        return real(array, shape);
    const CUDA_ARRAY3D_DESCRIPTOR full
        = { shape->Width, shape->Height, 0, shape->Format, shape->NumChannels, 0 };
    uint64_t charged = array_bytes(&full, 1);
    if (!vgpu_charge(place.ordinal, VGPU_ARRAY, charged))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int result = real(array, shape);
    return settle(result, result == CUDA_SUCCESS ? *array : NULL, &place, charged);
}

int vgpu_array3d_create(int (*real)(CUarray*, const CUDA_ARRAY3D_DESCRIPTOR*), CUarray* array,
    const CUDA_ARRAY3D_DESCRIPTOR* shape)
{
    struct vgpu_place place;
    if (!vgpu_here(&place))
        return real(array, shape);
    uint64_t charged = array_bytes(shape, 1);
    if (!vgpu_charge(place.ordinal, VGPU_ARRAY, charged))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int result = real(array, shape);
    return settle(result, result == CUDA_SUCCESS ? *array : NULL, &place, charged);
}

int vgpu_mipmapped_create(int (*real)(CUmipmappedArray*, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned int),
    CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* shape, unsigned int levels)
{
    struct vgpu_place place;
    if (!vgpu_here(&place))
        return real(array, shape, levels);
    uint64_t charged = array_bytes(shape, levels);
    if (!vgpu_charge(place.ordinal, VGPU_ARRAY, charged))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int result = real(array, shape, levels);
    return settle(result, result == CUDA_SUCCESS ? *array : NULL, &place, charged);
}

static int settle_destroy(int result, const struct vgpu_record* record)
{
    if (result == CUDA_SUCCESS)
        vgpu_release(record->device, VGPU_ARRAY, record->bytes);
    else
        vgpu_table_put(&arrays, *record);
    return result;
}

int vgpu_array_destroy(int (*real)(CUarray), CUarray array)
{
    struct vgpu_record record;
    bool is_ours = vgpu_is_limited() && vgpu_table_take(&arrays, (uintptr_t)array, &record);
    return is_ours ? settle_destroy(real(array), &record) : real(array);
}

int vgpu_mipmapped_destroy(int (*real)(CUmipmappedArray), CUmipmappedArray array)
{
    struct vgpu_record record;
    bool is_ours = vgpu_is_limited() && vgpu_table_take(&arrays, (uintptr_t)array, &record);
    return is_ours ? settle_destroy(real(array), &record) : real(array);
}

static bool is_of_context(const struct vgpu_record* record, const void* context)
{
    return record->owner == (uintptr_t)context;
}

static void give_back(const struct vgpu_record* record)
{
    vgpu_release(record->device, VGPU_ARRAY, record->bytes);
}

void vgpu_arrays_drop(const void* context)
{
    vgpu_table_take_all(&arrays, is_of_context, context, give_back);
}
