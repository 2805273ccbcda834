/*
 * What NVML tells, which also works in programs without CUDA, such as nvidia-smi: the limit as the size of
 * the card, and this container's processes with its own PIDs. The driver is asked first, so that its checks
 * of arguments apply.
 */
#include "claims.h"
#include "devices.h"
#include "forget.h"
#include "hooks.h"
#include "usage_file.h"

#include <string.h>

#define NO_INSTANCE 0xffffffffu
#define SAMPLES 512

/* The GPU of a handle with its shares; false when it is not limited. */
static bool find(nvmlDevice_t handle, struct vgpu_device* device)
{
    char uuid[VGPU_UUID_BYTES] = "";
    unsigned int index = 0;
    int (*get_uuid)(nvmlDevice_t, char*, unsigned int)
        = (int (*)(nvmlDevice_t, char*, unsigned int))atomic_load(&vgpu_nvml_uuid);
    int (*get_index)(nvmlDevice_t, unsigned int*)
        = (int (*)(nvmlDevice_t, unsigned int*))atomic_load(&vgpu_nvml_index);
    vgpu_watch_forks();
    if (!get_uuid || !vgpu_claims_open() || get_uuid(handle, uuid, sizeof uuid) != NVML_SUCCESS
        || strlen(uuid) < 40)
        return false;
    if (get_index)
        get_index(handle, &index);
    *device = (struct vgpu_device) { .part_count = 0 };
    memcpy(device->uuid, uuid + 4, sizeof device->uuid - 1);
    vgpu_find_parts(device, (int)index);
    return device->part_count > 0;
}

struct view {
    uint64_t total;
    uint64_t used;
};

static struct view view_of(const struct vgpu_device* device, uint64_t real_total)
{
    uint64_t limit = vgpu_limit(device);
    struct view view = { limit < real_total ? limit : real_total, vgpu_used(device) };
    if (view.used > view.total)
        view.used = view.total;
    return view;
}

int vgpu_nvml_memory(int (*real)(nvmlDevice_t, nvmlMemory_t*), nvmlDevice_t handle, nvmlMemory_t* memory)
{
    struct vgpu_device device;
    int result = real(handle, memory);
    if (result != NVML_SUCCESS || !find(handle, &device))
        return result;
    struct view view = view_of(&device, memory->total);
    *memory = (nvmlMemory_t) { view.total, view.total - view.used, view.used };
    return result;
}

int vgpu_nvml_memory_v2(
    int (*real)(nvmlDevice_t, nvmlMemory_v2_t*), nvmlDevice_t handle, nvmlMemory_v2_t* memory)
{
    struct vgpu_device device;
    int result = real(handle, memory);
    if (result != NVML_SUCCESS || !find(handle, &device))
        return result;
    struct view view = view_of(&device, memory->total);
    memory->total = view.total;
    memory->reserved = 0;
    memory->used = view.used;
    memory->free = view.total - view.used;
    return result;
}

/* Calls `emit` for each process that holds memory on the device, the ones of all its claims. */
typedef void (*emitter)(void* list, unsigned int i, uint32_t pid, uint64_t bytes);

static unsigned int list_part(
    struct vgpu_claim* claim, uint32_t number, unsigned int found, unsigned int room, void* to, emitter emit)
{
    const struct vgpu_books* books = atomic_load_explicit(&claim->books, memory_order_acquire);
    for (uint32_t i = 0; books && i < vgpu_slots_used(books->usage); i++) {
        const struct vgpu_slot* slot = &books->usage->slots[i];
        uint64_t bytes = vgpu_slot_is_live(slot) ? vgpu_slot_sum(&slot->devices[number]) : 0;
        if (!bytes)
            continue;
        if (to && found < room)
            emit(to, found, slot->pid, bytes);
        found++;
    }
    return found;
}

static int answer(unsigned int found, unsigned int* count, const void* to)
{
    int result = found <= *count && (to || !found) ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
    *count = found;
    return result;
}

static int list(struct vgpu_device* device, unsigned int* count, void* to, emitter emit)
{
    unsigned int found = 0;
    vgpu_reap(device);
    for (uint32_t i = 0; i < device->part_count; i++)
        found = list_part(device->parts[i].claim, device->parts[i].number, found, *count, to, emit);
    return answer(found, count, to);
}

static void emit_v1(void* to, unsigned int i, uint32_t pid, uint64_t bytes)
{
    ((nvmlProcessInfo_v1_t*)to)[i] = (nvmlProcessInfo_v1_t) { pid, bytes };
}

static void emit_v2(void* to, unsigned int i, uint32_t pid, uint64_t bytes)
{
    ((nvmlProcessInfo_v2_t*)to)[i] = (nvmlProcessInfo_v2_t) { pid, bytes, NO_INSTANCE, NO_INSTANCE };
}

/* Whether the driver takes the call at all: asked without room, it tells how many processes there are. */
static bool is_refused(int result)
{
    return result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE;
}

static int processes(int (*real)(nvmlDevice_t, unsigned int*, void*), nvmlDevice_t handle,
    unsigned int* count, void* to, emitter emit)
{
    struct vgpu_device device;
    unsigned int none = 0;
    if (!count || !find(handle, &device))
        return real(handle, count, to);
    int result = real(handle, &none, NULL);
    if (is_refused(result))
        return result;
    if (!emit) {
        *count = 0;
        return NVML_SUCCESS;
    }
    return list(&device, count, to, emit);
}

int vgpu_nvml_processes_v1(
    int (*real)(nvmlDevice_t, unsigned int*, void*), nvmlDevice_t handle, unsigned int* count, void* infos)
{
    return processes(real, handle, count, infos, emit_v1);
}

int vgpu_nvml_processes_v2(
    int (*real)(nvmlDevice_t, unsigned int*, void*), nvmlDevice_t handle, unsigned int* count, void* infos)
{
    return processes(real, handle, count, infos, emit_v2);
}

/* Graphics and MPS lists hold processes of the host alone: ours compute, and are in the list of those that
 * do. */
int vgpu_nvml_none(
    int (*real)(nvmlDevice_t, unsigned int*, void*), nvmlDevice_t handle, unsigned int* count, void* infos)
{
    return processes(real, handle, count, infos, NULL);
}

struct detail {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpu_instance;
    unsigned int compute_instance;
    unsigned long long used_protected;
};

struct detail_list {
    unsigned int version;
    unsigned int mode;
    unsigned int count;
    struct detail* details;
};

static void emit_detail(void* to, unsigned int i, uint32_t pid, uint64_t bytes)
{
    ((struct detail*)to)[i] = (struct detail) { pid, bytes, NO_INSTANCE, NO_INSTANCE, 0 };
}

int vgpu_nvml_details(int (*real)(nvmlDevice_t, void*), nvmlDevice_t handle, void* argument)
{
    struct vgpu_device device;
    struct detail_list* wanted = argument;
    if (!wanted || !find(handle, &device))
        return real(handle, argument);
    struct detail_list asked = { wanted->version, wanted->mode, 0, NULL };
    int result = real(handle, &asked);
    return is_refused(result) ? result : list(&device, &wanted->count, wanted->details, emit_detail);
}

/* The PID in the container of a process that NVML names by its PID on the host; 0 when it is not ours. */
static uint32_t pid_in_claim(const struct vgpu_claim* claim, uint32_t host_pid)
{
    const struct vgpu_books* books = atomic_load_explicit(&claim->books, memory_order_acquire);
    bool is_told = __atomic_load_n(&claim->control->measured_at_ns, __ATOMIC_RELAXED) != 0;
    for (uint32_t i = 0; books && i < vgpu_slots_used(books->usage); i++) {
        const struct vgpu_slot* slot = &books->usage->slots[i];
        uint32_t known
            = is_told ? __atomic_load_n(&claim->control->processes[i].host_pid, __ATOMIC_RELAXED) : slot->pid;
        if (vgpu_slot_is_live(slot) && known == host_pid)
            return slot->pid;
    }
    return 0;
}

static uint32_t pid_in_container(const struct vgpu_device* device, uint32_t host_pid)
{
    uint32_t pid = 0;
    for (uint32_t i = 0; i < device->part_count && !pid; i++)
        pid = pid_in_claim(device->parts[i].claim, host_pid);
    return pid;
}

int vgpu_nvml_utilization(
    int (*real)(nvmlDevice_t, nvmlProcessUtilizationSample_t*, unsigned int*, unsigned long long),
    nvmlDevice_t handle, nvmlProcessUtilizationSample_t* samples, unsigned int* count,
    unsigned long long last_seen)
{
    struct vgpu_device device;
    nvmlProcessUtilizationSample_t all[SAMPLES];
    unsigned int available = SAMPLES;
    unsigned int found = 0;
    if (!count || !find(handle, &device))
        return real(handle, samples, count, last_seen);
    int result = real(handle, all, &available, last_seen);
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned int i = 0; i < available; i++) {
        all[i].pid = pid_in_container(&device, all[i].pid);
        if (all[i].pid && samples && found < *count)
            samples[found] = all[i];
        found += all[i].pid != 0;
    }
    return answer(found, count, samples);
}

struct utilization {
    unsigned long long time_stamp;
    unsigned int pid;
    unsigned int percents[6];
};

struct utilizations {
    unsigned int version;
    unsigned int count;
    unsigned long long last_seen;
    struct utilization* samples;
};

int vgpu_nvml_utilizations(int (*real)(nvmlDevice_t, void*), nvmlDevice_t handle, void* argument)
{
    struct vgpu_device device;
    struct utilization all[SAMPLES];
    struct utilizations* wanted = argument;
    unsigned int found = 0;
    if (!wanted || !find(handle, &device))
        return real(handle, argument);
    struct utilizations asked = { wanted->version, SAMPLES, wanted->last_seen, all };
    int result = real(handle, &asked);
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned int i = 0; i < asked.count; i++) {
        all[i].pid = pid_in_container(&device, all[i].pid);
        if (all[i].pid && wanted->samples && found < wanted->count)
            wanted->samples[found] = all[i];
        found += all[i].pid != 0;
    }
    return answer(found, &wanted->count, wanted->samples);
}

int vgpu_nvml_accounting(int (*real)(nvmlDevice_t, unsigned int*, unsigned int*), nvmlDevice_t handle,
    unsigned int* count, unsigned int* pids)
{
    struct vgpu_device device;
    unsigned int all[SAMPLES];
    unsigned int available = SAMPLES;
    unsigned int found = 0;
    if (!count || !find(handle, &device))
        return real(handle, count, pids);
    int result = real(handle, &available, all);
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned int i = 0; i < available; i++) {
        uint32_t pid = pid_in_container(&device, all[i]);
        if (pid && pids && found < *count)
            pids[found] = pid;
        found += pid != 0;
    }
    return answer(found, count, pids);
}
