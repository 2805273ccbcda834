/* The reader of control files: what cannot be read grants nothing. */
#include "files.h"

static bool is_readable(const uint8_t* data, size_t size)
{
    struct vgpu_control header = { 0 };
    memcpy(&header, data, size < sizeof header ? size : sizeof header);
    return size % 2 == 0 && header.magic == VGPU_CONTROL_MAGIC && header.version == VGPU_ABI_VERSION
        && header.file_bytes == VGPU_CONTROL_BYTES && header.device_count <= VGPU_DEVICES;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    go_to_claims();
    write_file("control", data, size, VGPU_CONTROL_BYTES);
    write_file("usage", NULL, 0, VGPU_USAGE_BYTES);
    PROMISE(vgpu_claims_open());
    PROMISE(vgpu_claim_count() == 1);
    if (!is_readable(data, size))
        for (uint32_t device = 0; device < VGPU_DEVICES; device++)
            PROMISE(vgpu_memory_limit(vgpu_claim(0), device) == 0);
    use_claim(vgpu_claim(0));
    forget(is_readable(data, size));
    return 0;
}
