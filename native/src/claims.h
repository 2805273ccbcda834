/* The claims of this container: every directory under /run/vgpu/claims, or else the environment. */
#ifndef VGPU_CLAIMS_H
#define VGPU_CLAIMS_H

#include "books.h"

/* Opens them once. False when nothing limits this process. */
bool vgpu_claims_open(void);
uint32_t vgpu_claim_count(void);
struct vgpu_claim* vgpu_claim(uint32_t number);

/* The number of a GPU in a claim, by its UUID or, for limits of the environment, by its ordinal; -1 when it
 * is not there. The driver may fail to tell the UUID: an empty one is the device with the least memory. */
int vgpu_claim_number(const struct vgpu_claim* claim, const char* uuid, int ordinal);
void vgpu_claims_forget(void);

#endif
