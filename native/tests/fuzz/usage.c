/* The reader of usage files, which a container may fill with anything: the limit holds all the same. */
#include "files.h"

#define LIMIT ((uint64_t)1 << 30)

static void write_control(void)
{
    static struct vgpu_control control;
    control = (struct vgpu_control) { .magic = VGPU_CONTROL_MAGIC,
        .version = VGPU_ABI_VERSION,
        .device_count = VGPU_DEVICES,
        .file_bytes = VGPU_CONTROL_BYTES,
        .feed_sequence = 2,
        .measured_at_ns = SECOND };
    for (int i = 0; i < VGPU_DEVICES; i++)
        control.devices[i] = (struct vgpu_control_device) { .memory_bytes = LIMIT, .core_percent = 30 };
    write_file("control", (const uint8_t*)&control, sizeof control, sizeof control);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    static int is_written;
    go_to_claims();
    if (!is_written++)
        write_control();
    write_file("usage", data, size, VGPU_USAGE_BYTES);
    PROMISE(vgpu_claims_open());
    PROMISE(vgpu_claim_count() == 1);
    PROMISE(vgpu_memory_limit(vgpu_claim(0), 0) == LIMIT);
    use_claim(vgpu_claim(0));
    forget(true);
    return 0;
}
