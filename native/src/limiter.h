/*
 * The share of compute: a budget of GPU time for each device, which all processes of a claim spend together.
 * It fills with time and is put right by what the agent measures, so that the average over seconds is the
 * limit, whatever a launch was taken to cost.
 */
#ifndef VGPU_LIMITER_H
#define VGPU_LIMITER_H

#include "driver.h"

#include <stdint.h>

/* Nonzero while some GPU is limited or blocked. Written by vgpu_limiter_refresh. */
extern _Atomic uint32_t vgpu_gate_word;

/*
 * The generation of the control file and the one that vgpu_gate_word was made from: when they differ, limits
 * changed. The pointer is set once, to the first claim's file; before, it points at a zero of ours.
 */
extern const uint64_t* _Atomic vgpu_generation;
extern _Atomic uint64_t vgpu_generation_seen;

static inline bool vgpu_gate_is_on(void)
{
    const uint64_t* generation = atomic_load_explicit(&vgpu_generation, memory_order_relaxed);
    return atomic_load_explicit(&vgpu_gate_word, memory_order_relaxed)
        || __atomic_load_n(generation, __ATOMIC_RELAXED)
        != atomic_load_explicit(&vgpu_generation_seen, memory_order_relaxed);
}

/*
 * Spends the time of some launches, and waits while there is none.
 * True when vgpu_launched is to be called after the launch.
 */
bool vgpu_gate(CUstream stream, uint32_t launches);
void vgpu_launched(CUstream stream);

void vgpu_limiter_start(void);

#endif
