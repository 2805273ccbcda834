/* The lock of one device in a usage file. */
#ifndef VGPU_LOCK_H
#define VGPU_LOCK_H

#include "vgpu_abi.h"

#include <stdbool.h>

void vgpu_lock_init(struct vgpu_usage_device* device);

enum vgpu_locked {
    VGPU_LOCKED,
    VGPU_LOCKED_AFTER_DEATH, /* the holder died: what it guards may be half written */
    VGPU_NOT_LOCKED /* the file is damaged, or the holder does not come back */
};

enum vgpu_locked vgpu_lock(struct vgpu_usage_device* device);
void vgpu_unlock(struct vgpu_usage_device* device);

#endif
