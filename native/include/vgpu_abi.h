/*
 * The two files that node agent and library share, one pair for each claim:
 *
 *   /run/vgpu/claims/<claim uid>/control   written by the agent, read-only in the container
 *   /run/vgpu/claims/<claim uid>/usage     written by the container, read by the agent
 *
 * The agent makes both: control with its content, usage as VGPU_USAGE_BYTES of nothing, which reads as zeros.
 * The first process that uses it sees to it that there is memory behind all of it.
 * A process adds up all claims it finds, by GPU UUID.
 * Device number i of control and device number i of usage are the same GPU for the life of the claim.
 *
 * All numbers are little-endian, all fields naturally aligned, and no field is a pointer, an offset or a
 * length, so no content of a file can lead a reader out of it.
 * hami_dra/node/limits.py reads and writes the same bytes; a compiled test compares every offset.
 * A change of any offset or meaning is a new VGPU_ABI_VERSION; new fields take reserved bytes, where zero
 * means "not told".
 */
#ifndef VGPU_ABI_H
#define VGPU_ABI_H

#include <stddef.h>
#include <stdint.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the shared files are little-endian"
#endif

#define VGPU_ABI_VERSION 1u
#define VGPU_CONTROL_MAGIC UINT64_C(0x4c52544355504756) /* "VGPUCTRL" */
#define VGPU_USAGE_MAGIC UINT64_C(0x4547415355504756) /* "VGPUSAGE" */

/* What a claim can hold at most: Kubernetes allocates no more than 32 devices to one claim. */
#define VGPU_DEVICES 32
/* Processes of one claim that share its books; a process beyond them keeps its own. */
#define VGPU_SLOTS 256
#define VGPU_UUID_BYTES 96

/* A memory limit that is none. Zero is a limit of zero bytes, so that an unwritten record grants nothing. */
#define VGPU_NO_LIMIT UINT64_MAX

/* vgpu_control.flags */
#define VGPU_ALLOW_DISABLE 1u /* CUDA_DISABLE_CONTROL=true switches the library off */
#define VGPU_IGNORE_MANAGED 2u /* managed memory is not charged: it may live on the host */

/* vgpu_control.core_policy, HAMi's GPU_CORE_UTILIZATION_POLICY */
#define VGPU_CORES_DEFAULT 0u /* limited unless VGPU_CORES_OFF is set on the device */
#define VGPU_CORES_FORCE 1u /* limited, whatever VGPU_CORES_OFF says */
#define VGPU_CORES_DISABLE 2u /* never limited */

/* vgpu_control_device.flags */
#define VGPU_CORES_OFF 1u /* no contention: the share of compute is not limited for now */
#define VGPU_BLOCKED 2u /* a claim of higher priority is active: launches wait */

/*
 * Limits of one GPU.
 */
struct vgpu_control_device {
    char uuid[VGPU_UUID_BYTES]; /* as NVML says it, "GPU-..." or "MIG-...", ended by NUL */
    uint64_t memory_bytes; /* VGPU_NO_LIMIT, or what all processes of the claim may hold together */
    uint64_t
        context_bytes; /* charged to each process that uses the GPU, until the driver's number is known */
    uint32_t core_percent; /* share of the GPU's time; 0 and 100 are no limit */
    uint32_t flags;
    uint64_t busy_ns; /* measured GPU time of the claim since the agent began, 0 while none was seen or nobody
                         measures; belongs to feed_sequence */
    uint64_t reserved[8];
};

/* vgpu_control_process.host_pid of a process that the agent saw end: its slot may be freed from any PID
 * namespace. */
#define VGPU_PROCESS_GONE UINT32_MAX

/*
 * What the driver says about the process in usage slot i; belongs to feed_sequence.
 * It counts only while pid and start_time are those of the slot.
 */
struct vgpu_control_process {
    uint32_t pid; /* in the container */
    uint32_t host_pid;
    uint64_t start_time;
    uint64_t reserved[2];
    uint64_t used_bytes[VGPU_DEVICES];
};

/*
 * generation and feed_sequence are seqlocks: odd while their fields are being written.
 * generation guards limits, flags, policy and priority, and changes when a claim is resized;
 * feed_sequence guards what the agent measures, and changes several times a second.
 * A reader that meets an odd number again and again keeps its last copy; one that has none takes the
 * fields as they stand, each of which is valid by itself.
 */
struct vgpu_control {
    uint64_t magic;
    uint32_t version;
    uint32_t device_count;
    uint64_t generation;
    uint32_t flags;
    uint32_t core_policy;
    uint32_t priority; /* HAMi's CUDA_TASK_PRIORITY, 0 is high */
    uint32_t reserved0;
    uint64_t file_bytes; /* VGPU_CONTROL_BYTES */
    uint64_t feed_sequence;
    uint64_t measured_at_ns; /* CLOCK_MONOTONIC of the last feed; 0 before the first */
    struct vgpu_control_device devices[VGPU_DEVICES];
    struct vgpu_control_process processes[VGPU_SLOTS];
};

/*
 * What memory is charged as.
 */
enum vgpu_kind {
    VGPU_DATA, /* cuMemAlloc and its relatives, cuMemCreate */
    VGPU_MANAGED, /* cuMemAllocManaged */
    VGPU_ARRAY, /* arrays and mipmapped arrays */
    VGPU_POOL, /* what stream-ordered pools hold back from the driver */
    VGPU_GRAPH, /* what the graph pool of a device holds */
    VGPU_CONTEXT, /* contexts, modules and all else that only the driver sees */
    VGPU_KINDS
};

/*
 * What one process holds and did on one GPU.
 */
struct vgpu_slot_device {
    uint64_t bytes[VGPU_KINDS];
    uint64_t allocations; /* granted */
    uint64_t refusals;
    uint64_t launches; /* counted only while the share of compute is limited */
    uint64_t throttled_ns; /* time that launches were held back */
    uint64_t pending; /* of those launches, the ones not known to have ended */
    uint64_t reserved;
};

/* vgpu_slot.state */
#define VGPU_SLOT_FREE 0u
#define VGPU_SLOT_LIVE 1u

/*
 * One process. A slot is claimed once and never moves.
 * pid, start_time and pid_namespace are valid while sequence is even and state is VGPU_SLOT_LIVE.
 */
struct vgpu_slot {
    uint32_t sequence;
    uint32_t state;
    uint32_t pid; /* in the process's own namespace */
    uint32_t reserved0;
    uint64_t start_time; /* field 22 of /proc/<pid>/stat */
    uint64_t pid_namespace; /* inode of /proc/<pid>/ns/pid */
    uint64_t reserved[12];
    struct vgpu_slot_device devices[VGPU_DEVICES];
};

/*
 * One GPU, all processes. The lock is a robust, process-shared pthread mutex (40 bytes on x86-64, 48 on
 * aarch64); it guards total_bytes, fed_sequence and the bytes of all slots.
 */
struct vgpu_usage_device {
    uint8_t lock[48];
    uint64_t total_bytes; /* sum of the slots' bytes */
    uint64_t fed_sequence; /* the last feed that was worked into the slots */
    int64_t credit_ns; /* GPU time that may still be spent; negative is debt */
    uint64_t refilled_at_ns;
    uint64_t pending; /* launches that have not ended, as far as is known */
    uint64_t cost_ns; /* GPU time that one launch is expected to take */
    uint64_t done; /* launches that ended since the last true-up */
    uint64_t busy_seen_ns; /* busy_ns at the last true-up; UINT64_MAX: nobody measured since */
    uint64_t trued_at_ns; /* measured_at_ns of the last true-up */
    uint64_t cost_weight; /* launches that cost_ns was learnt from */
};

/* vgpu_usage.state */
#define VGPU_USAGE_EMPTY 0u /* as the agent made it; the first process initialises it under flock */
#define VGPU_USAGE_READY 1u

struct vgpu_usage {
    uint64_t magic;
    uint32_t version;
    uint32_t state;
    uint64_t file_bytes; /* VGPU_USAGE_BYTES */
    uint32_t
        slots_used; /* no slot at or above this number was ever claimed; readers bound it by VGPU_SLOTS */
    uint32_t reserved0;
    uint64_t reserved[12];
    struct vgpu_usage_device devices[VGPU_DEVICES];
    struct vgpu_slot slots[VGPU_SLOTS];
};

#define VGPU_CONTROL_BYTES 79936
#define VGPU_USAGE_BYTES 823424

_Static_assert(sizeof(struct vgpu_control_device) == 192, "control device");
_Static_assert(sizeof(struct vgpu_control_process) == 288, "control process");
_Static_assert(sizeof(struct vgpu_control) == VGPU_CONTROL_BYTES, "control");
_Static_assert(offsetof(struct vgpu_control, devices) == 64, "control header");
_Static_assert(sizeof(struct vgpu_slot_device) == 96, "slot device");
_Static_assert(sizeof(struct vgpu_slot) == 3200, "slot");
_Static_assert(offsetof(struct vgpu_slot, devices) == 128, "slot header");
_Static_assert(sizeof(struct vgpu_usage_device) == 128, "usage device");
_Static_assert(offsetof(struct vgpu_usage_device, credit_ns) == 64, "the budget has a cache line of its own");
_Static_assert(sizeof(struct vgpu_usage) == VGPU_USAGE_BYTES, "usage");
_Static_assert(offsetof(struct vgpu_usage, devices) == 128, "usage header");
_Static_assert(offsetof(struct vgpu_usage, slots) % 128 == 0, "slots share no cache line");

#endif
