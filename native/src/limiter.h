/*
 * The share of compute: a budget of GPU time for each device, which all processes of a claim spend together.
 * It fills with time and is put right by what the agent measures, so that the average over seconds is the
 * limit, whatever a launch was taken to cost.
 */
#ifndef VGPU_LIMITER_H
#define VGPU_LIMITER_H

#include "driver.h"

#include <stdint.h>

/*
 * What every launch reads, on cache lines of its own: two, because processors fetch pairs.
 * generation points at the first claim's control file, before that at a zero of ours. state is twice the
 * generation that was looked at, and one more while some GPU is limited or blocked: one number, so that no
 * launch sees the state of one generation with the number of another.
 */
struct vgpu_gate_line {
    const uint64_t* _Atomic generation;
    _Atomic uint64_t state;
} __attribute__((aligned(128)));
extern struct vgpu_gate_line vgpu_gate_line;

/* Whether something is limited, or the limits changed since they were looked at. */
static inline bool vgpu_gate_is_on(void)
{
    const uint64_t* generation = atomic_load_explicit(&vgpu_gate_line.generation, memory_order_relaxed);
    return __atomic_load_n(generation, __ATOMIC_RELAXED) * 2
        != atomic_load_explicit(&vgpu_gate_line.state, memory_order_relaxed);
}

/*
 * Spends the time of some launches, and waits while there is none.
 * True when vgpu_launched is to be called after the launch.
 */
bool vgpu_gate(CUstream stream, uint32_t launches);
void vgpu_launched(CUstream stream);

void vgpu_limiter_start(void);

#endif
