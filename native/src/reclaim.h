/* What can be given back to the driver before an allocation is refused. Each says whether anything was. */
#ifndef VGPU_RECLAIM_H
#define VGPU_RECLAIM_H

#include "table.h"

#include <stdbool.h>

/* Allocations by address; pools put theirs in too, because one call frees either. */
struct vgpu_table* vgpu_addresses(void);

bool vgpu_pools_reclaim(int ordinal);
bool vgpu_graphs_reclaim(int ordinal);

/* Brings the charge of all pools of a GPU to what the driver says they hold. */
void vgpu_pools_refresh(int ordinal);

/* The same of the graphs of a GPU whose primary context ended. */
void vgpu_graphs_refresh(int ordinal);

/* An allocation of a pool was freed. */
void vgpu_pool_freed(const struct vgpu_record* record);

/* The records of a context that the driver has ended. */
void vgpu_memory_drop(const void* context);
void vgpu_arrays_drop(const void* context);

#endif
