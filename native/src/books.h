/*
 * The books of one claim: its limits, the file that its processes share, and our slot in it.
 * Knows nothing of CUDA.
 */
#ifndef VGPU_BOOKS_H
#define VGPU_BOOKS_H

#include "vgpu_abi.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Where a process writes: the shared file, or its own memory when that cannot be used. */
struct vgpu_books {
    struct vgpu_usage* usage;
    uint32_t slot;
    bool is_private;
};

/*
 * One claim of the container, or the limits of its environment.
 * control is set before the claim is published and stays; its content changes under us.
 * books changes at most once more, from the shared file to private memory; readers take either.
 */
struct vgpu_claim {
    const struct vgpu_control* control;
    uint32_t device_count;
    struct vgpu_books* _Atomic books;
    struct vgpu_books shared;
    struct vgpu_books own;
};

/* Gives the claim books: those in the file at usage_path (made if `may_create`), else private ones. */
void vgpu_books_open(struct vgpu_claim* claim, const char* usage_path, bool may_create);

uint64_t vgpu_memory_limit(const struct vgpu_claim* claim, uint32_t device);

/* Bytes that all processes of the claim hold on the device. */
uint64_t vgpu_books_total(struct vgpu_claim* claim, uint32_t device);

/* Bytes that this process holds there. */
uint64_t vgpu_books_own(struct vgpu_claim* claim, uint32_t device);

/*
 * Charges up to `wanted` bytes, as far as the limit allows; fewer than `least`: nothing.
 * Returns what was charged.
 */
uint64_t vgpu_books_take(
    struct vgpu_claim* claim, uint32_t device, enum vgpu_kind kind, uint64_t wanted, uint64_t least);

/* Charges whether the limit allows it or not: the driver has the memory already. */
void vgpu_books_force(struct vgpu_claim* claim, uint32_t device, enum vgpu_kind kind, uint64_t bytes);

/* Takes back up to `bytes` of what this process was charged; returns how much that was. */
uint64_t vgpu_books_give(struct vgpu_claim* claim, uint32_t device, enum vgpu_kind kind, uint64_t bytes);

/* Frees the slots of processes that are gone; returns whether any was. */
bool vgpu_books_reap(struct vgpu_claim* claim);

/* Works the driver's numbers, as the agent measured them, into the slots. */
void vgpu_books_feed(struct vgpu_claim* claim, uint32_t device);

void vgpu_books_count_refusal(struct vgpu_claim* claim, uint32_t device);

struct vgpu_slot_device* vgpu_books_mine(struct vgpu_claim* claim, uint32_t device);

#endif
