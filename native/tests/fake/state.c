/* What all processes on the fake cards share: memory in use, and the time that kernels take. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_state* _Atomic state;
static struct fake_process* _Atomic self;
static _Atomic pid_t self_pid;

static uint64_t setting(const char* name, uint64_t fallback)
{
    const char* text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

int fake_device_count(void)
{
    uint64_t count = setting("VGPU_FAKE_DEVICES", 2);
    return count > FAKE_DEVICES ? FAKE_DEVICES : (int)count;
}

int fake_version(void) { return (int)setting("VGPU_FAKE_VERSION", 13050); }

uint64_t fake_memory_bytes(void)
{
    static _Atomic uint64_t bytes;
    if (!atomic_load(&bytes))
        atomic_store(&bytes, setting("VGPU_FAKE_MEMORY_MIB", 16384) << 20);
    return atomic_load(&bytes);
}

/* Reads the digits of "GPU-xxxxxxxx-xxxx-...", up to the comma that ends them; false if there are too few. */
static bool read_uuid(const char* text, unsigned char bytes[16])
{
    int digits = 0;
    for (text += strcspn(text, "-"); *text && *text != ',' && digits < 32; text++) {
        char digit[2] = { *text, 0 };
        if (*text == '-')
            continue;
        int value = (int)strtoul(digit, NULL, 16);
        bytes[digits / 2] = (unsigned char)(digits % 2 ? bytes[digits / 2] | value : value << 4);
        digits++;
    }
    return digits == 32;
}

void fake_uuid(int device, unsigned char bytes[16])
{
    const char* text = getenv("VGPU_FAKE_UUIDS");
    for (int i = 0; text && i < device; i++)
        text = (text = strchr(text, ',')) ? text + 1 : NULL;
    if (text && read_uuid(text, bytes))
        return;
    for (int i = 0; i < 16; i++)
        bytes[i] = (unsigned char)(0x10 * (device + 1) + i);
}

uint64_t fake_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void initialise(struct fake_state* fresh)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    for (int i = 0; i < FAKE_DEVICES; i++)
        pthread_mutex_init(&fresh->cards[i].queue_lock, &attributes);
    atomic_store(&fresh->ready, 1);
}

static struct fake_state* attach(void)
{
    const char* path = getenv("VGPU_FAKE_STATE");
    int flags = path ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (path && (fd < 0 || flock(fd, LOCK_EX) || ftruncate(fd, sizeof(struct fake_state)))) {
        perror(path);
        abort();
    }
    struct fake_state* mapped = mmap(NULL, sizeof *mapped, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (mapped == MAP_FAILED)
        abort();
    if (!atomic_load(&mapped->ready))
        initialise(mapped);
    /* The mapping keeps the file open, and with it the lock. */
    if (fd >= 0) {
        flock(fd, LOCK_UN);
        close(fd);
    }
    return mapped;
}

struct fake_state* fake_state(void)
{
    struct fake_state* found = atomic_load_explicit(&state, memory_order_acquire);
    if (found)
        return found;
    pthread_mutex_lock(&attach_lock);
    if (!atomic_load(&state))
        atomic_store(&state, attach());
    pthread_mutex_unlock(&attach_lock);
    return atomic_load(&state);
}

static struct fake_process* join(void)
{
    struct fake_state* shared = fake_state();
    uint32_t mine = (uint32_t)getpid();
    fake_reap();
    for (int i = 0; i < FAKE_PROCESSES; i++) {
        uint32_t nobody = 0;
        if (atomic_compare_exchange_strong(&shared->processes[i].pid, &nobody, mine)) {
            shared->processes[i].host_pid = (uint32_t)setting("VGPU_FAKE_HOST_PID", mine);
            return &shared->processes[i];
        }
    }
    abort();
}

struct fake_process* fake_self(void)
{
    struct fake_process* found = atomic_load_explicit(&self, memory_order_acquire);
    if (found)
        return found;
    pthread_mutex_lock(&attach_lock);
    bool is_new = !atomic_load(&self);
    pthread_mutex_unlock(&attach_lock);
    if (is_new) {
        struct fake_process* joined = join();
        struct fake_process* none = NULL;
        if (!atomic_compare_exchange_strong(&self, &none, joined))
            atomic_store(&joined->pid, 0);
    }
    atomic_store(&self_pid, getpid());
    return atomic_load(&self);
}

/* A dead process holds nothing: the kernel driver frees it all. */
void fake_reap(void)
{
    struct fake_state* shared = fake_state();
    for (int i = 0; i < FAKE_PROCESSES; i++) {
        struct fake_process* process = &shared->processes[i];
        uint32_t pid = atomic_load(&process->pid);
        if (!pid || kill((pid_t)pid, 0) == 0 || errno != ESRCH)
            continue;
        for (int device = 0; device < FAKE_DEVICES; device++) {
            uint64_t held = atomic_exchange(&process->used_bytes[device], 0);
            atomic_fetch_sub(&shared->cards[device].used_bytes, held);
            process->busy_ns[device] = 0;
        }
        atomic_compare_exchange_strong(&process->pid, &pid, 0);
    }
}

static bool take(struct fake_card* card, uint64_t bytes)
{
    uint64_t before = atomic_load_explicit(&card->used_bytes, memory_order_relaxed);
    do {
        if (bytes > fake_memory_bytes() || before > fake_memory_bytes() - bytes)
            return false;
    } while (!atomic_compare_exchange_weak(&card->used_bytes, &before, before + bytes));
    uint64_t peak = atomic_load_explicit(&card->peak_bytes, memory_order_relaxed);
    while (peak < before + bytes && !atomic_compare_exchange_weak(&card->peak_bytes, &peak, before + bytes)) {
    }
    return true;
}

bool fake_take(int device, uint64_t bytes)
{
    struct fake_process* me = fake_self();
    struct fake_card* card = &fake_state()->cards[device];
    if (!take(card, bytes)) {
        fake_pools_settle(device);
        fake_reap();
        if (!take(card, bytes))
            return false;
    }
    atomic_fetch_add(&me->used_bytes[device], bytes);
    return true;
}

void fake_give(int device, uint64_t bytes)
{
    atomic_fetch_sub(&fake_self()->used_bytes[device], bytes);
    atomic_fetch_sub(&fake_state()->cards[device].used_bytes, bytes);
}

static void lock_queue(struct fake_card* card)
{
    if (pthread_mutex_lock(&card->queue_lock) == EOWNERDEAD)
        pthread_mutex_consistent(&card->queue_lock);
}

static void settle(int device, uint64_t now)
{
    struct fake_card* card = &fake_state()->cards[device];
    while (card->tail < card->head && card->queue[card->tail % FAKE_QUEUE].end_ns <= now) {
        struct fake_kernel* ended = &card->queue[card->tail++ % FAKE_QUEUE];
        fake_state()->processes[ended->process].busy_ns[device] += ended->end_ns - ended->start_ns;
    }
}

static void sleep_until(uint64_t moment)
{
    struct timespec until
        = { .tv_sec = (time_t)(moment / 1000000000u), .tv_nsec = (long)(moment % 1000000000u) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) { }
}

/* Kernels of all processes run one after the other; a full queue holds the caller back. */
void fake_enqueue(int device, uint64_t duration_ns)
{
    struct fake_card* card = &fake_state()->cards[device];
    uint32_t process = (uint32_t)(fake_self() - fake_state()->processes);
    for (;;) {
        uint64_t now = fake_now_ns();
        lock_queue(card);
        settle(device, now);
        if (card->head - card->tail < FAKE_QUEUE)
            break;
        uint64_t first_end = card->queue[card->tail % FAKE_QUEUE].end_ns;
        pthread_mutex_unlock(&card->queue_lock);
        sleep_until(first_end);
    }
    uint64_t now = fake_now_ns();
    uint64_t start = card->busy_until_ns > now ? card->busy_until_ns : now;
    card->busy_until_ns = start + duration_ns;
    card->queue[card->head++ % FAKE_QUEUE] = (struct fake_kernel) { start, start + duration_ns, process };
    pthread_mutex_unlock(&card->queue_lock);
}

/* When the last kernel of this process ends, or a moment that has passed. */
uint64_t fake_last_end_ns(int device)
{
    struct fake_card* card = &fake_state()->cards[device];
    uint32_t process = (uint32_t)(fake_self() - fake_state()->processes);
    uint64_t end = 0;
    lock_queue(card);
    for (uint64_t i = card->tail; i < card->head; i++)
        if (card->queue[i % FAKE_QUEUE].process == process)
            end = card->queue[i % FAKE_QUEUE].end_ns;
    pthread_mutex_unlock(&card->queue_lock);
    return end;
}

void fake_wait(int device)
{
    uint64_t end = fake_last_end_ns(device);
    if (end > fake_now_ns())
        sleep_until(end);
}

uint64_t fake_busy_ns(int device, uint32_t process)
{
    struct fake_card* card = &fake_state()->cards[device];
    uint64_t now = fake_now_ns();
    lock_queue(card);
    settle(device, now);
    uint64_t busy = fake_state()->processes[process].busy_ns[device];
    struct fake_kernel* running = &card->queue[card->tail % FAKE_QUEUE];
    if (card->tail < card->head && running->process == process && running->start_ns < now)
        busy += now - running->start_ns;
    pthread_mutex_unlock(&card->queue_lock);
    return busy;
}

uint64_t fake_process_busy_ns(int device, uint32_t pid)
{
    for (uint32_t i = 0; i < FAKE_PROCESSES; i++)
        if (atomic_load(&fake_state()->processes[i].pid) == pid)
            return fake_busy_ns(device, i);
    return 0;
}

uint64_t fake_used(int device) { return atomic_load(&fake_state()->cards[device].used_bytes); }

uint64_t fake_peak(int device) { return atomic_load(&fake_state()->cards[device].peak_bytes); }
