#include "usage_file.h"
#include "crash.h"
#include "lock.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Making a file ready takes microseconds; whoever holds its lock longer than this does not come back. */
#define LOCK_TRIES 500
#define LOCK_PAUSE_NS 2000000

static bool is_ready(const struct vgpu_usage* usage)
{
    return __atomic_load_n(&usage->state, __ATOMIC_ACQUIRE) == VGPU_USAGE_READY
        && usage->magic == VGPU_USAGE_MAGIC && usage->version == VGPU_ABI_VERSION
        && usage->file_bytes == VGPU_USAGE_BYTES;
}

static bool is_empty(const struct vgpu_usage* usage)
{
    return usage->magic == 0 || (usage->magic == VGPU_USAGE_MAGIC && usage->state == VGPU_USAGE_EMPTY);
}

static void make_ready(struct vgpu_usage* usage)
{
    usage->magic = VGPU_USAGE_MAGIC;
    usage->version = VGPU_ABI_VERSION;
    usage->file_bytes = VGPU_USAGE_BYTES;
    for (int i = 0; i < VGPU_DEVICES; i++)
        vgpu_lock_init(&usage->devices[i]);
    CRASH_POINT("make_ready");
    __atomic_store_n(&usage->state, VGPU_USAGE_READY, __ATOMIC_RELEASE);
}

static bool lock_file(int fd)
{
    const struct timespec pause = { 0, LOCK_PAUSE_NS };
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return true;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false;
        nanosleep(&pause, NULL);
    }
    return false;
}

/* The size of the file, with memory behind all of it: to touch what has none would end the program. */
static bool fill(int fd)
{
    return lock_file(fd) && posix_fallocate(fd, 0, VGPU_USAGE_BYTES) == 0 && flock(fd, LOCK_UN) == 0;
}

/* The agent's file is empty, and costs memory from the first process that uses it. */
static bool was_filled(int fd)
{
    uint32_t state;
    return pread(fd, &state, sizeof state, offsetof(struct vgpu_usage, state)) == sizeof state
        && state == VGPU_USAGE_READY;
}

static bool has_size(int fd, bool may_create)
{
    struct stat found;
    if (fstat(fd, &found) || !S_ISREG(found.st_mode))
        return false;
    if (found.st_size != VGPU_USAGE_BYTES && (found.st_size != 0 || !may_create))
        return false;
    return was_filled(fd) || fill(fd);
}

static int open_file(const char* path, bool may_create)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 || errno != ENOENT || !may_create)
        return fd;
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST)
        return open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    /* Other users of the container share it; the process's umask stays as it is. */
    if (fd >= 0 && fchmod(fd, 0666)) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool is_usable(struct vgpu_usage* usage, int fd)
{
    if (is_ready(usage))
        return true;
    if (!lock_file(fd))
        return false;
    if (is_empty(usage))
        make_ready(usage);
    flock(fd, LOCK_UN);
    return is_ready(usage);
}

struct vgpu_usage* vgpu_usage_map(const char* path, bool may_create)
{
    int fd = open_file(path, may_create);
    if (fd < 0) {
        LOG(VGPU_ERROR, "cannot open %s (%s): limits count this process alone", path, strerror(errno));
        return NULL;
    }
    void* mapped = MAP_FAILED;
    if (has_size(fd, may_create))
        mapped = mmap(NULL, VGPU_USAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED && !is_usable(mapped, fd)) {
        munmap(mapped, VGPU_USAGE_BYTES);
        mapped = MAP_FAILED;
    }
    close(fd);
    if (mapped == MAP_FAILED) {
        LOG(VGPU_ERROR,
            "found no usage file of version %u and %d bytes at %s: limits count this process alone",
            VGPU_ABI_VERSION, VGPU_USAGE_BYTES, path);
        return NULL;
    }
    return mapped;
}

void vgpu_usage_private(struct vgpu_books* books)
{
    void* memory = mmap(NULL, VGPU_USAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        LOG(VGPU_ERROR, "found no memory for the books: GPU memory is refused");
        return;
    }
    struct vgpu_usage* usage = memory;
    make_ready(usage);
    usage->slots_used = 1;
    usage->slots[0].state = VGPU_SLOT_LIVE;
    books->slot = 0;
    books->is_private = true;
    books->usage = usage;
}

uint32_t vgpu_slots_used(const struct vgpu_usage* usage)
{
    uint32_t used = __atomic_load_n(&usage->slots_used, __ATOMIC_RELAXED);
    return used < VGPU_SLOTS ? used : VGPU_SLOTS;
}

bool vgpu_slot_is_live(const struct vgpu_slot* slot)
{
    return __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == VGPU_SLOT_LIVE;
}

uint64_t vgpu_slot_sum(const struct vgpu_slot_device* device)
{
    uint64_t sum = 0;
    for (int kind = 0; kind < VGPU_KINDS; kind++) {
        uint64_t bytes = __atomic_load_n(&device->bytes[kind], __ATOMIC_RELAXED);
        sum = sum > UINT64_MAX - bytes ? UINT64_MAX : sum + bytes;
    }
    return sum;
}

void vgpu_usage_recompute(struct vgpu_usage* usage, uint32_t device)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < vgpu_slots_used(usage); i++) {
        uint64_t bytes
            = vgpu_slot_is_live(&usage->slots[i]) ? vgpu_slot_sum(&usage->slots[i].devices[device]) : 0;
        total = total > UINT64_MAX - bytes ? UINT64_MAX : total + bytes;
    }
    __atomic_store_n(&usage->devices[device].total_bytes, total, __ATOMIC_RELAXED);
}

bool vgpu_usage_lock(struct vgpu_usage* usage, uint32_t device)
{
    enum vgpu_locked locked = vgpu_lock(&usage->devices[device]);
    if (locked == VGPU_LOCKED_AFTER_DEATH)
        vgpu_usage_recompute(usage, device);
    return locked != VGPU_NOT_LOCKED;
}

static bool is_of(const struct vgpu_slot* slot, const struct vgpu_identity* who)
{
    return slot->state == VGPU_SLOT_LIVE && slot->pid == who->pid && slot->start_time == who->start_time
        && slot->pid_namespace == who->pid_namespace;
}

/* The lock of device 0 also guards who has which slot. */
static uint32_t find_slot(const struct vgpu_usage* usage, const struct vgpu_identity* me)
{
    uint32_t first_free = VGPU_SLOTS;
    for (uint32_t i = 0; i < VGPU_SLOTS; i++) {
        if (is_of(&usage->slots[i], me))
            return i;
        if (first_free == VGPU_SLOTS && usage->slots[i].state != VGPU_SLOT_LIVE)
            first_free = i;
        if (i >= usage->slots_used && first_free < VGPU_SLOTS)
            break;
    }
    return first_free;
}

static void occupy(struct vgpu_usage* usage, uint32_t number, const struct vgpu_identity* me)
{
    struct vgpu_slot* slot = &usage->slots[number];
    __atomic_exchange_n(&slot->sequence, slot->sequence | 1, __ATOMIC_ACQ_REL);
    slot->pid = me->pid;
    slot->start_time = me->start_time;
    slot->pid_namespace = me->pid_namespace;
    CRASH_POINT("occupy");
    for (int i = 0; i < VGPU_DEVICES; i++) {
        struct vgpu_slot_device* device = &slot->devices[i];
        device->allocations = device->refusals = device->launches = device->throttled_ns = 0;
    }
    if (usage->slots_used <= number)
        __atomic_store_n(&usage->slots_used, number + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->state, VGPU_SLOT_LIVE, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->sequence, slot->sequence + 1, __ATOMIC_RELEASE);
}

bool vgpu_usage_claim_slot(struct vgpu_usage* usage, const struct vgpu_identity* me, uint32_t* slot)
{
    if (!vgpu_usage_lock(usage, 0))
        return false;
    uint32_t found = find_slot(usage, me);
    if (found < VGPU_SLOTS)
        occupy(usage, found, me);
    vgpu_unlock(&usage->devices[0]);
    *slot = found;
    return found < VGPU_SLOTS;
}

void vgpu_usage_free_slot(struct vgpu_usage* usage, uint32_t number, uint32_t pid, uint64_t start_time)
{
    struct vgpu_slot* slot = &usage->slots[number];
    if (!vgpu_usage_lock(usage, 0))
        return;
    if (slot->state == VGPU_SLOT_LIVE && slot->pid == pid && slot->start_time == start_time)
        __atomic_store_n(&slot->state, VGPU_SLOT_FREE, __ATOMIC_RELEASE);
    vgpu_unlock(&usage->devices[0]);
}
