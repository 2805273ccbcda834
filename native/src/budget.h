/* The arithmetic of a budget of GPU time. Knows neither CUDA nor the clock. */
#ifndef VGPU_BUDGET_H
#define VGPU_BUDGET_H

#include "vgpu_abi.h"

#include <stdbool.h>

/* Takes what launches are expected to cost; true when they may go at once. */
bool vgpu_budget_spend(struct vgpu_usage_device* budget, uint32_t launches);

/* Launches ended, however long they took. */
void vgpu_budget_done(struct vgpu_usage_device* budget, uint64_t launches);

/* What a launch is expected to cost. */
uint64_t vgpu_budget_cost_ns(const struct vgpu_usage_device* budget);

/* Adds what has been earned by `now`. */
void vgpu_budget_refill(struct vgpu_usage_device* budget, uint32_t percent, uint64_t now_ns);

/* Whether launches may go. */
bool vgpu_budget_is_open(const struct vgpu_usage_device* budget);

/* How long it takes to earn what is missing. */
uint64_t vgpu_budget_wait_ns(const struct vgpu_usage_device* budget, uint32_t percent);

/* Puts the credit right by a measurement; once for each, whoever comes first. */
void vgpu_budget_true_up(struct vgpu_usage_device* budget, uint64_t busy_ns, uint64_t measured_at_ns);

/* Where nobody measures: takes the expected cost of what was launched for the real one, and says that no
 * measurement covers this time. */
void vgpu_budget_assume(struct vgpu_usage_device* budget, uint64_t now_ns);

/*
 * Where nobody measures: some launches, of `scale` times as many, were timed. expected_ns is what they were
 * charged, so that the difference can be made up for all of them.
 */
void vgpu_budget_sample(struct vgpu_usage_device* budget, uint64_t took_ns, uint32_t launches,
    uint64_t expected_ns, uint32_t scale);

#endif
