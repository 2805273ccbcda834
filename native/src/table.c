/* Memory comes from mmap, because malloc may be the application's own and call us. */
#include "table.h"

#include <string.h>
#include <sys/mman.h>

#define SMALLEST 128

static uint64_t mixed(uint64_t key)
{
    key ^= key >> 32;
    key *= UINT64_C(0x9e3779b97f4a7c15);
    return key ^ (key >> 29);
}

static struct vgpu_shard* shard_of(struct vgpu_table* table, uint64_t key)
{
    return &table->shards[mixed(key) % VGPU_SHARDS];
}

static size_t home(const struct vgpu_shard* shard, uint64_t key)
{
    return (size_t)(mixed(key) / VGPU_SHARDS) & (shard->capacity - 1);
}

static size_t position(const struct vgpu_shard* shard, uint64_t key)
{
    size_t i = home(shard, key);
    while (shard->records[i].key && shard->records[i].key != key)
        i = (i + 1) & (shard->capacity - 1);
    return i;
}

static struct vgpu_record* find(const struct vgpu_shard* shard, uint64_t key)
{
    struct vgpu_record* record = shard->capacity ? &shard->records[position(shard, key)] : NULL;
    return record && record->key ? record : NULL;
}

static bool grow(struct vgpu_shard* shard)
{
    size_t capacity = shard->capacity ? shard->capacity * 2 : SMALLEST;
    void* memory = mmap(
        NULL, capacity * sizeof *shard->records, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    struct vgpu_shard old = *shard;
    shard->records = memory;
    shard->capacity = capacity;
    for (size_t i = 0; i < old.capacity; i++)
        if (old.records[i].key)
            shard->records[position(shard, old.records[i].key)] = old.records[i];
    if (old.records)
        munmap(old.records, old.capacity * sizeof *old.records);
    return true;
}

/* Moves later records of the run back over the hole, so that no search stops early. */
static void erase(struct vgpu_shard* shard, size_t hole)
{
    size_t mask = shard->capacity - 1;
    for (size_t i = (hole + 1) & mask; shard->records[i].key; i = (i + 1) & mask) {
        if (((i - home(shard, shard->records[i].key)) & mask) < ((i - hole) & mask))
            continue;
        shard->records[hole] = shard->records[i];
        hole = i;
    }
    shard->records[hole].key = 0;
    shard->used--;
}

bool vgpu_table_put(struct vgpu_table* table, struct vgpu_record record)
{
    struct vgpu_shard* shard = shard_of(table, record.key);
    pthread_mutex_lock(&shard->lock);
    bool has_room = shard->used * 2 < shard->capacity || grow(shard);
    if (has_room) {
        size_t i = position(shard, record.key);
        shard->used += shard->records[i].key == 0;
        shard->records[i] = record;
    }
    pthread_mutex_unlock(&shard->lock);
    return has_room;
}

bool vgpu_table_take(struct vgpu_table* table, uint64_t key, struct vgpu_record* taken)
{
    struct vgpu_shard* shard = shard_of(table, key);
    pthread_mutex_lock(&shard->lock);
    struct vgpu_record* record = key ? find(shard, key) : NULL;
    if (record) {
        *taken = *record;
        erase(shard, (size_t)(record - shard->records));
    }
    pthread_mutex_unlock(&shard->lock);
    return record != NULL;
}

bool vgpu_table_get(struct vgpu_table* table, uint64_t key, struct vgpu_record* found)
{
    struct vgpu_shard* shard = shard_of(table, key);
    pthread_mutex_lock(&shard->lock);
    const struct vgpu_record* record = key ? find(shard, key) : NULL;
    if (record)
        *found = *record;
    pthread_mutex_unlock(&shard->lock);
    return record != NULL;
}

void vgpu_table_refer(struct vgpu_table* table, uint64_t key)
{
    struct vgpu_shard* shard = shard_of(table, key);
    pthread_mutex_lock(&shard->lock);
    struct vgpu_record* record = key ? find(shard, key) : NULL;
    if (record)
        record->count++;
    pthread_mutex_unlock(&shard->lock);
}

bool vgpu_table_unrefer(struct vgpu_table* table, uint64_t key, uint64_t owner, struct vgpu_record* taken)
{
    struct vgpu_shard* shard = shard_of(table, key);
    pthread_mutex_lock(&shard->lock);
    struct vgpu_record* record = key ? find(shard, key) : NULL;
    bool is_last = record && record->owner == owner && record->count <= 1;
    if (is_last) {
        *taken = *record;
        erase(shard, (size_t)(record - shard->records));
    } else if (record && record->owner == owner) {
        record->count--;
    }
    pthread_mutex_unlock(&shard->lock);
    return is_last;
}

/* Erasing moves only records that were not looked at, or did not match, to where it erased: it stays there.
 */
static void take_matching(struct vgpu_shard* shard,
    bool (*matches)(const struct vgpu_record* record, const void* argument), const void* argument,
    void (*each)(const struct vgpu_record* taken))
{
    for (size_t i = 0; i < shard->capacity;) {
        struct vgpu_record* record = &shard->records[i];
        if (!record->key || !matches(record, argument)) {
            i++;
            continue;
        }
        each(record);
        erase(shard, i);
    }
}

void vgpu_table_take_all(struct vgpu_table* table,
    bool (*matches)(const struct vgpu_record* record, const void* argument), const void* argument,
    void (*each)(const struct vgpu_record* taken))
{
    for (int number = 0; number < VGPU_SHARDS; number++) {
        pthread_mutex_lock(&table->shards[number].lock);
        take_matching(&table->shards[number], matches, argument, each);
        pthread_mutex_unlock(&table->shards[number].lock);
    }
}

void vgpu_table_forget(struct vgpu_table* table)
{
    for (int i = 0; i < VGPU_SHARDS; i++)
        if (table->shards[i].records)
            munmap(table->shards[i].records, table->shards[i].capacity * sizeof(struct vgpu_record));
    memset(table, 0, sizeof *table);
}
