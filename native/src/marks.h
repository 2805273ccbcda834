/*
 * Marks in the application's streams, which tell when launches ended: events after them, looked at later and
 * never waited for. They tell what is on its way, and, where no agent measures, what launches took.
 */
#ifndef VGPU_MARKS_H
#define VGPU_MARKS_H

#include "driver.h"
#include "vgpu_abi.h"

/* Launches that were charged to a budget and have not ended. */
struct vgpu_pending {
    struct vgpu_usage_device* budget;
    struct vgpu_slot_device* mine;
    uint32_t launches;
    uint32_t scale; /* what was timed stands for so many times as much; 0: it is not to be timed */
    uint32_t timed; /* launches between the two events */
    uint64_t expected_ns; /* what those were charged */
};

struct vgpu_mark;

/* Before a launch: takes a mark, or NULL when all are in use. Never waits. */
struct vgpu_mark* vgpu_mark_take(CUstream stream, const struct vgpu_pending* pending);

/* After it. */
void vgpu_mark_place(struct vgpu_mark* mark, CUstream stream);

/* Launches that no mark could follow: they count as ended. */
void vgpu_pending_end(const struct vgpu_pending* pending);

/* Takes in what has ended. */
void vgpu_marks_collect(void);

/* A context ends, and its events with it. */
void vgpu_marks_drop(const void* context);

#endif
