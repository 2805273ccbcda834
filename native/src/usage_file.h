/* The usage file: mapping it, making it ready, and the slots in it. */
#ifndef VGPU_USAGE_FILE_H
#define VGPU_USAGE_FILE_H

#include "books.h"
#include "process.h"

/* Maps the file and makes it ready if no process did; NULL, with one line on stderr, when it cannot be used.
 */
struct vgpu_usage* vgpu_usage_map(const char* path, bool may_create);

/* The same structure in memory of our own, with us in slot 0; usage is NULL when there is no memory. */
void vgpu_usage_private(struct vgpu_books* books);

/* Locks a device and, when the last holder died, puts its total right. False: the file is not to be trusted.
 */
bool vgpu_usage_lock(struct vgpu_usage* usage, uint32_t device);

/* Makes the total of a device what its slots hold together. */
void vgpu_usage_recompute(struct vgpu_usage* usage, uint32_t device);

uint32_t vgpu_slots_used(const struct vgpu_usage* usage);
bool vgpu_slot_is_live(const struct vgpu_slot* slot);
uint64_t vgpu_slot_sum(const struct vgpu_slot_device* device);

/* Finds our slot: the one we had before exec, or a free one. False when all are taken. */
bool vgpu_usage_claim_slot(struct vgpu_usage* usage, const struct vgpu_identity* me, uint32_t* slot);

/* Frees a slot if it still is of the process that was found dead. */
void vgpu_usage_free_slot(struct vgpu_usage* usage, uint32_t slot, uint32_t pid, uint64_t start_time);

#endif
