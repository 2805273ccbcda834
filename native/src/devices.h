/* The GPUs of this process and what each may hold: all claims of the container, added up by GPU. */
#ifndef VGPU_DEVICES_H
#define VGPU_DEVICES_H

#include "books.h"
#include "driver.h"

#define VGPU_CLAIMS 16
#define VGPU_ORDINALS 64

struct vgpu_device {
    uint32_t part_count; /* 0: this GPU is not limited */
    struct {
        struct vgpu_claim* claim;
        uint32_t number; /* of the device in the claim */
    } parts[VGPU_CLAIMS];
    char uuid[37]; /* without GPU- or MIG- */
    _Atomic bool has_context;
};

/* Where a call takes place. */
struct vgpu_place {
    CUcontext context;
    int ordinal;
};

/*
 * UNKNOWN until the first call after cuInit; then LIMITED or FREE for the life of the process.
 * A forked child begins again with UNKNOWN.
 */
enum { VGPU_UNKNOWN, VGPU_LIMITED, VGPU_FREE };
extern _Atomic int vgpu_phase;
bool vgpu_start(void);

static inline bool vgpu_is_limited(void)
{
    int phase = atomic_load_explicit(&vgpu_phase, memory_order_acquire);
    return LIKELY(phase == VGPU_LIMITED) || (UNLIKELY(phase == VGPU_UNKNOWN) && vgpu_start());
}

/* NULL for an ordinal that is not limited. */
struct vgpu_device* vgpu_device(int ordinal);
/* The ordinal of the GPU that memory of this place is on; -1 for memory of the host. */
int vgpu_ordinal_at(const CUmemLocation* location);
int vgpu_ordinal_count(void);
/* Fills in the parts of a GPU whose uuid is set; `ordinal` counts only for limits of the environment. */
void vgpu_find_parts(struct vgpu_device* device, int ordinal);

/* The current context and its GPU; false when there is none or it is not limited: then the call is the
 * driver's alone. */
bool vgpu_here(struct vgpu_place* place);
/* The same for the context of a stream. */
bool vgpu_at_stream(CUstream stream, struct vgpu_place* place);
/* Contexts may have got new addresses: threads forget which they saw. */
void vgpu_contexts_changed(void);

uint64_t vgpu_limit(const struct vgpu_device* device);
uint64_t vgpu_used(const struct vgpu_device* device);
uint64_t vgpu_own(const struct vgpu_device* device);
bool vgpu_ignores_managed(const struct vgpu_device* device);

/* Charges the bytes, or refuses; the first makes room where something can be given back. */
bool vgpu_charge(int ordinal, enum vgpu_kind kind, uint64_t bytes);
bool vgpu_try_charge(int ordinal, enum vgpu_kind kind, uint64_t bytes);
void vgpu_force(int ordinal, enum vgpu_kind kind, uint64_t bytes);
void vgpu_release(int ordinal, enum vgpu_kind kind, uint64_t bytes);
/* Frees what dead processes hold and works in what the agent measured. */
bool vgpu_reap(struct vgpu_device* device);
void vgpu_refused(int ordinal, uint64_t bytes);

#endif
