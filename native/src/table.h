/* What was allocated: by address, array or handle. Insertion, removal and look-up cost the same at any size.
 */
#ifndef VGPU_TABLE_H
#define VGPU_TABLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vgpu_record {
    uint64_t key; /* not 0 */
    uint64_t bytes;
    uint64_t owner; /* the context or pool whose end takes it along, or what tells two of one key apart */
    uint16_t device; /* CUDA ordinal */
    uint16_t kind; /* enum vgpu_kind */
    uint32_t count; /* references, where there are any */
};

#define VGPU_SHARDS 16

struct vgpu_shard {
    pthread_mutex_t lock;
    struct vgpu_record* records; /* open addressing; key 0 is empty */
    size_t capacity;
    size_t used;
};

/* All zeros is an empty table. */
struct vgpu_table {
    struct vgpu_shard shards[VGPU_SHARDS];
};

/* False when there is no memory for the record: what it stands for then stays charged until the process ends.
 */
bool vgpu_table_put(struct vgpu_table* table, struct vgpu_record record);
bool vgpu_table_take(struct vgpu_table* table, uint64_t key, struct vgpu_record* taken);
bool vgpu_table_get(struct vgpu_table* table, uint64_t key, struct vgpu_record* found);

/* Adds a reference to a record, if there is one. */
void vgpu_table_refer(struct vgpu_table* table, uint64_t key);

/* Takes a reference off the record of this owner; true when it was the last, and the record was taken. */
bool vgpu_table_unrefer(struct vgpu_table* table, uint64_t key, uint64_t owner, struct vgpu_record* taken);

/* Takes all records for which `matches` says yes, and shows each to `each`; looks at every record once. */
void vgpu_table_take_all(struct vgpu_table* table,
    bool (*matches)(const struct vgpu_record* record, const void* argument), const void* argument,
    void (*each)(const struct vgpu_record* taken));

/* Forgets all, without regard to locks: for a forked child, which alone remains. */
void vgpu_table_forget(struct vgpu_table* table);

#endif
