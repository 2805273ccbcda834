/* The parser of HAMi's variables. Input: one text for each name below, ended by NUL or by the input's end. */
#include "config.h"
#include "fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char* const names[] = { "CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_DEVICE_SM_LIMIT_0", "CUDA_DEVICE_SM_LIMIT", "GPU_CORE_UTILIZATION_POLICY", "CUDA_TASK_PRIORITY",
    "CUDA_VISIBLE_DEVICES" };
#define TEXTS (sizeof names / sizeof *names)
#define VISIBLE (TEXTS - 1)

/* Each text ends where its page ends, before one that nobody may read. */
static char* pages[TEXTS];
static const char* texts[TEXTS];
static size_t page_bytes;

static void reserve(void)
{
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < TEXTS; i++) {
        pages[i] = mmap(NULL, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        PROMISE(pages[i] != MAP_FAILED);
        PROMISE(mprotect(pages[i] + page_bytes, page_bytes, PROT_NONE) == 0);
    }
}

static void set_texts(const uint8_t* data, size_t size)
{
    for (size_t i = 0; i < TEXTS; i++) {
        size_t length = strnlen((const char*)data, size);
        size_t kept = length < page_bytes ? length : page_bytes - 1;
        char* start = pages[i] + page_bytes - 1 - kept;
        memcpy(start, data, kept);
        start[kept] = '\0';
        /* What has no text at all is not set. */
        texts[i] = size ? start : NULL;
        data += length < size ? length + 1 : length;
        size -= length < size ? length + 1 : length;
    }
}

static const char* get(const char* name)
{
    for (size_t i = 0; i < TEXTS; i++)
        if (!strcmp(name, names[i]))
            return texts[i];
    return NULL;
}

static int says(const char* text) { return text && *text && strcmp(text, "0") != 0; }

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    static struct vgpu_control control;
    if (!page_bytes)
        reserve();
    set_texts(data, size);
    memset(&control, 0, sizeof control);
    bool is_any = vgpu_limits_from(get, &control);
    const struct vgpu_control_device* first = &control.devices[0];
    if (says(texts[0]) || says(texts[1]))
        PROMISE(is_any && first->memory_bytes != VGPU_NO_LIMIT);
    else
        PROMISE(first->memory_bytes == VGPU_NO_LIMIT);
    if (!says(texts[2]) && !says(texts[3]))
        PROMISE(first->core_percent == 0);
    PROMISE(control.core_policy <= VGPU_CORES_DISABLE && control.priority <= 9);
    for (int i = 0; i < VGPU_DEVICES; i++)
        PROMISE(control.devices[i].core_percent <= 100);
    for (int ordinal = 0; ordinal < VGPU_DEVICES; ordinal++) {
        int number = vgpu_number_of_ordinal(texts[VISIBLE], ordinal);
        PROMISE(number >= -1 && number < VGPU_DEVICES);
    }
    return 0;
}
