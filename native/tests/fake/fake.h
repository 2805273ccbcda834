/*
 * A CUDA driver without a GPU: the parts of its behaviour that an interposer can get wrong.
 *
 * Settings come from the environment:
 *   VGPU_FAKE_STATE        file that processes share; without it a process is alone on its cards
 *   VGPU_FAKE_DEVICES      number of cards (default 2)
 *   VGPU_FAKE_UUIDS        of the cards, as NVML writes them, with commas between (default: made up)
 *   VGPU_FAKE_MEMORY_MIB   of each card (default 16384)
 *   VGPU_FAKE_KERNEL_NS    GPU time of a launch (default 0: launches cost nothing and keep no clock)
 *   VGPU_FAKE_VERSION      CUDA's version, such as 12040; what came later is unknown (default 13050)
 *   VGPU_FAKE_HOST_PID     this process's PID as fake NVML reports it (default: its own)
 * Tests find the fake_* functions with dlsym in the fake's own handle.
 */
#ifndef FAKE_H
#define FAKE_H

#include "cuda_min.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define FAKE_DEVICES 8
#define FAKE_PROCESSES 512
#define FAKE_QUEUE 1024 /* launches that a card queues before cuLaunchKernel blocks, as on real ones */
#define FAKE_EXPORT __attribute__((visibility("default")))

struct fake_kernel {
    uint64_t start_ns;
    uint64_t end_ns;
    uint32_t process;
};

struct fake_card {
    _Atomic uint64_t used_bytes;
    _Atomic uint64_t peak_bytes;
    pthread_mutex_t queue_lock;
    uint64_t busy_until_ns;
    uint64_t head; /* next to be queued */
    uint64_t tail; /* first that has not ended */
    struct fake_kernel queue[FAKE_QUEUE];
};

struct fake_process {
    _Atomic uint32_t pid;
    uint32_t host_pid;
    _Atomic uint64_t used_bytes[FAKE_DEVICES];
    uint64_t busy_ns[FAKE_DEVICES]; /* of ended kernels; guarded by the card's queue_lock */
};

struct fake_state {
    _Atomic uint32_t ready;
    struct fake_card cards[FAKE_DEVICES];
    struct fake_process processes[FAKE_PROCESSES];
};

struct CUctx_st {
    int device;
    bool is_primary;
    int references;
};

/* state.c */
struct fake_state* fake_state(void);
struct fake_process* fake_self(void);
int fake_device_count(void);
int fake_version(void);
uint64_t fake_memory_bytes(void);
void fake_uuid(int device, unsigned char bytes[16]);
bool fake_take(int device, uint64_t bytes);
void fake_give(int device, uint64_t bytes);
void fake_reap(void);
uint64_t fake_now_ns(void);
void fake_enqueue(int device, uint64_t duration_ns);
uint64_t fake_last_end_ns(int device);
void fake_wait(int device);
uint64_t fake_busy_ns(int device, uint32_t process);
FAKE_EXPORT uint64_t fake_used(int device);
FAKE_EXPORT uint64_t fake_peak(int device);
FAKE_EXPORT uint64_t fake_process_busy_ns(int device, uint32_t pid);

/* calls.c: every function counts its calls and can be told to fail. */
enum fake_function {
#define F(symbol, base, version, per_thread) FAKE_##symbol,
#include "fake.def"
#undef F
    FAKE_FUNCTIONS
};
extern _Atomic uint64_t fake_counts[FAKE_FUNCTIONS];
extern _Atomic int fake_failing; /* a fake_function, or -1 */
CUresult fake_scripted(enum fake_function function);
FAKE_EXPORT uint64_t fake_calls(const char* symbol);
CUresult fake_ended(enum fake_function function, CUresult result);
FAKE_EXPORT void fake_at_end(const char* symbol, void (*then)(void));
FAKE_EXPORT void fake_fail(const char* symbol, int after, CUresult code);

#define ENTER(symbol)                                                                                        \
    do {                                                                                                     \
        atomic_store_explicit(&fake_counts[FAKE_##symbol],                                                   \
            atomic_load_explicit(&fake_counts[FAKE_##symbol], memory_order_relaxed) + 1,                     \
            memory_order_relaxed);                                                                           \
        if (__builtin_expect(                                                                                \
                atomic_load_explicit(&fake_failing, memory_order_relaxed) == FAKE_##symbol, 0)) {            \
            CUresult scripted = fake_scripted(FAKE_##symbol);                                                \
            if (scripted != CUDA_SUCCESS)                                                                    \
                return scripted;                                                                             \
        }                                                                                                    \
    } while (0)

/* context.c */
bool fake_is_initialised(void);
CUcontext fake_context(void);
int fake_current_device(void); /* -1 without a context */

/* memory.c: what is allocated, by address or handle */
struct fake_record {
    uint64_t key;
    uint64_t bytes;
    void* owner; /* context, pool or other; what the owner's end takes along */
    int device;
    int kind;
};
enum { FAKE_PLAIN = 1, FAKE_POOLED, FAKE_HOST, FAKE_FOREIGN, FAKE_HANDLE, FAKE_MAPPING, FAKE_ARRAY };
uint64_t fake_address(uint64_t bytes);
void fake_insert(struct fake_record record);
bool fake_find(uint64_t key, int kind, struct fake_record* found);
bool fake_remove(uint64_t key, int kind, struct fake_record* found);
bool fake_update_bytes(uint64_t key, int kind, int64_t delta, uint64_t* after);
void fake_drop_owner(const void* owner, int device);
int fake_device_at(const CUmemLocation* location);
bool fake_find_containing(uint64_t address, int kind, struct fake_record* found);

/* pool.c, graph.c, event.c, launch.c */
CUresult fake_pool_free(struct fake_record record);
void fake_pools_settle(int device);
void fake_graphs_end(int device);
bool fake_capturing(CUstream stream);
bool fake_is_any_capturing(void);
#define FAKE_OWN_STREAM ((CUstream)2)
/* What the functions of the per-thread form mean by NULL. */
static inline CUstream fake_own(CUstream stream) { return stream ? stream : FAKE_OWN_STREAM; }
FAKE_EXPORT uint64_t fake_spoiled_captures(void);
FAKE_EXPORT uint64_t fake_marked_stream(void);
int fake_stream_device(CUstream stream);
void fake_capture_kernel(CUstream stream);
CUdeviceptr fake_capture_alloc(CUstream stream, size_t bytes);
uint64_t fake_kernel_ns(void);
FAKE_EXPORT void fake_set_kernel_ns(uint64_t ns);

#endif
