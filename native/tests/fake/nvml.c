/* NVML over the state that the fake driver shares: host PIDs, memory and utilisation of all processes. */
#include "fake.h"

#include <stdio.h>
#include <string.h>

struct nvmlDevice_st {
    int index;
};
static struct nvmlDevice_st handles[FAKE_DEVICES]
    = { { 0 }, { 1 }, { 2 }, { 3 }, { 4 }, { 5 }, { 6 }, { 7 } };

struct process_detail {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance;
    unsigned int compute_instance;
    unsigned long long used_protected;
};

struct process_detail_list {
    unsigned int version;
    unsigned int mode;
    unsigned int count;
    struct process_detail* processes;
};

struct process_utilization {
    unsigned long long time_stamp;
    unsigned int pid;
    unsigned int sm, memory, encoder, decoder, jpeg, ofa;
};

struct processes_utilization {
    unsigned int version;
    unsigned int count;
    unsigned long long last_seen;
    struct process_utilization* samples;
};

/* The pools belong to the fake driver; to NVML only the sum of a process is visible. */
void fake_pools_settle(int device) { (void)device; }

FAKE_EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    fake_state();
    return NVML_SUCCESS;
}

FAKE_EXPORT nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }

FAKE_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count)
{
    *count = (unsigned int)fake_device_count();
    return NVML_SUCCESS;
}

FAKE_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device)
{
    if (index >= (unsigned int)fake_device_count())
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &handles[index];
    return NVML_SUCCESS;
}

FAKE_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* text, unsigned int length)
{
    unsigned char u[16];
    fake_uuid(device->index, u);
    int written = snprintf(text, length,
        "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3],
        u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    return written < (int)length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

FAKE_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory)
{
    if (!device || !memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    memory->total = fake_memory_bytes();
    memory->used = fake_used(device->index);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

FAKE_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory)
{
    const unsigned long long reserved = 512ull << 20;
    if (!device || !memory || memory->version != (sizeof *memory | 2u << 24))
        return NVML_ERROR_INVALID_ARGUMENT;
    memory->reserved = reserved;
    memory->total = fake_memory_bytes() + reserved;
    memory->used = fake_used(device->index);
    memory->free = memory->total - reserved - memory->used;
    return NVML_SUCCESS;
}

/* Calls `emit` for each process on the card until it says no; returns how many there are. */
typedef void (*emitter)(void* list, unsigned int i, const struct fake_process* process, int device);

static nvmlReturn_t list(nvmlDevice_t device, unsigned int* count, void* to, emitter emit)
{
    unsigned int found = 0;
    if (!device || !count)
        return NVML_ERROR_INVALID_ARGUMENT;
    fake_reap();
    for (int i = 0; i < FAKE_PROCESSES; i++) {
        struct fake_process* process = &fake_state()->processes[i];
        if (!atomic_load(&process->pid) || !atomic_load(&process->used_bytes[device->index]))
            continue;
        if (to && found < *count)
            emit(to, found, process, device->index);
        found++;
    }
    nvmlReturn_t result = found <= *count && (to || !found) ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
    *count = found;
    return result;
}

static void emit_v1(void* to, unsigned int i, const struct fake_process* process, int device)
{
    ((nvmlProcessInfo_v1_t*)to)[i]
        = (nvmlProcessInfo_v1_t) { process->host_pid, atomic_load(&process->used_bytes[device]) };
}

static void emit_v2(void* to, unsigned int i, const struct fake_process* process, int device)
{
    ((nvmlProcessInfo_v2_t*)to)[i]
        = (nvmlProcessInfo_v2_t) { process->host_pid, atomic_load(&process->used_bytes[device]), ~0u, ~0u };
}

static void emit_detail(void* to, unsigned int i, const struct fake_process* process, int device)
{
    ((struct process_detail*)to)[i] = (struct process_detail) { process->host_pid,
        atomic_load(&process->used_bytes[device]), ~0u, ~0u, 0 };
}

static unsigned int share_percent(const struct fake_process* process, int device)
{
    uint64_t busy = fake_busy_ns(device, (uint32_t)(process - fake_state()->processes));
    return busy > 0 ? 50 : 0;
}

static void emit_sample(void* to, unsigned int i, const struct fake_process* process, int device)
{
    ((nvmlProcessUtilizationSample_t*)to)[i] = (nvmlProcessUtilizationSample_t) { process->host_pid,
        fake_now_ns() / 1000, share_percent(process, device), 0, 0, 0 };
}

static void emit_utilization(void* to, unsigned int i, const struct fake_process* process, int device)
{
    ((struct process_utilization*)to)[i] = (struct process_utilization) {
        .time_stamp = fake_now_ns() / 1000, .pid = process->host_pid, .sm = share_percent(process, device)
    };
}

#define LIST(name, emit)                                                                                     \
    FAKE_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int* count, void* infos)                     \
    {                                                                                                        \
        return list(device, count, infos, emit);                                                             \
    }
LIST(nvmlDeviceGetComputeRunningProcesses, emit_v1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, emit_v2)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, emit_v2)
LIST(nvmlDeviceGetGraphicsRunningProcesses, emit_v1)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, emit_v2)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, emit_v2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, emit_v1)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, emit_v2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, emit_v2)

FAKE_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(
    nvmlDevice_t device, struct process_detail_list* plist)
{
    return list(device, &plist->count, plist->processes, emit_detail);
}

FAKE_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
    nvmlProcessUtilizationSample_t* samples, unsigned int* count, unsigned long long last_seen)
{
    (void)last_seen;
    return list(device, count, samples, emit_sample);
}

FAKE_EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(
    nvmlDevice_t device, struct processes_utilization* info)
{
    return list(device, &info->count, info->samples, emit_utilization);
}

FAKE_EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(
    nvmlDevice_t device, unsigned int* count, unsigned int* pids)
{
    unsigned int found = 0;
    for (int i = 0; i < FAKE_PROCESSES; i++) {
        if (!atomic_load(&fake_state()->processes[i].pid))
            continue;
        if (found < *count)
            pids[found] = fake_state()->processes[i].host_pid;
        found++;
    }
    (void)device;
    nvmlReturn_t result = found <= *count ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
    *count = found;
    return result;
}
