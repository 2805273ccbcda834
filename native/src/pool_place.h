/* Which GPU a stream-ordered pool takes its memory from. */
#ifndef VGPU_POOL_PLACE_H
#define VGPU_POOL_PLACE_H

#include "cuda_min.h"

/* The ordinal that a pool made of these is charged to; -1 for one that is not charged. */
int vgpu_pool_made_at(const CUmemPoolProps* props);

/*
 * The same of a pool that was not seen to be made, such as a default one, of any GPU or of the host.
 * `here` is the GPU of the stream, or -1.
 */
int vgpu_pool_found_at(CUmemoryPool handle, int here);

#endif
