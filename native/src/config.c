#include "config.h"
#include "log.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char expects_bytes[] = "expected decimal digits and k, m, g or t, such as 512m or 16Gi";
static const char expects_percent[] = "expected a whole number from 0 to 100";

static const char* digits(const char* text, uint64_t* value)
{
    *value = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (*value > (UINT64_MAX - digit) / 10)
            return NULL;
        *value = *value * 10 + digit;
    }
    return text;
}

static unsigned int shift_of(char unit)
{
    switch (tolower((unsigned char)unit)) {
    case 'k':
        return 10;
    case 'm':
        return 20;
    case 'g':
        return 30;
    case 't':
        return 40;
    default:
        return 0;
    }
}

struct vgpu_parsed vgpu_parse_bytes(const char* text)
{
    uint64_t value;
    const char* rest = digits(text, &value);
    if (!rest || rest == text)
        return (struct vgpu_parsed) { 0, expects_bytes };
    unsigned int shift = shift_of(*rest);
    rest += shift != 0;
    if (*rest && strcasecmp(rest, "b") != 0
        && (!shift || (strcasecmp(rest, "i") != 0 && strcasecmp(rest, "ib") != 0)))
        return (struct vgpu_parsed) { 0, expects_bytes };
    if (value > (UINT64_MAX - 1) >> shift)
        return (struct vgpu_parsed) { 0, expects_bytes };
    return (struct vgpu_parsed) { value << shift, NULL };
}

struct vgpu_parsed vgpu_parse_percent(const char* text)
{
    uint64_t value;
    const char* rest = digits(text, &value);
    if (!rest || rest == text || *rest || value > 100)
        return (struct vgpu_parsed) { 0, expects_percent };
    return (struct vgpu_parsed) { value, NULL };
}

/* The variable of one device, else the one for all; NULL when neither says anything. 0 is nothing, as in
 * HAMi. */
static const char* setting(vgpu_getter get, const char* name, int device, char used[64])
{
    snprintf(used, 64, "%s_%d", name, device);
    const char* text = get(used);
    if (text && *text && strcmp(text, "0") != 0)
        return text;
    snprintf(used, 64, "%s", name);
    text = get(used);
    return text && *text && strcmp(text, "0") != 0 ? text : NULL;
}

static bool read_memory(vgpu_getter get, int device, struct vgpu_control_device* limits)
{
    char name[64];
    const char* text = setting(get, "CUDA_DEVICE_MEMORY_LIMIT", device, name);
    limits->memory_bytes = VGPU_NO_LIMIT;
    if (!text)
        return false;
    struct vgpu_parsed parsed = vgpu_parse_bytes(text);
    if (parsed.error)
        LOG(VGPU_ERROR, "found %s=%.64s, %s: no GPU memory is granted", name, text, parsed.error);
    limits->memory_bytes = parsed.value;
    return true;
}

static bool read_cores(vgpu_getter get, int device, struct vgpu_control_device* limits)
{
    char name[64];
    const char* text = setting(get, "CUDA_DEVICE_SM_LIMIT", device, name);
    limits->core_percent = 0;
    if (!text)
        return false;
    struct vgpu_parsed parsed = vgpu_parse_percent(text);
    if (parsed.error)
        LOG(VGPU_ERROR, "found %s=%.64s, %s: 1 percent is granted", name, text, parsed.error);
    limits->core_percent = parsed.error ? 1 : (uint32_t)parsed.value;
    return limits->core_percent > 0 && limits->core_percent < 100;
}

static uint32_t policy_of(const char* text)
{
    if (text && (!strcmp(text, "force") || !strcmp(text, "FORCE")))
        return VGPU_CORES_FORCE;
    if (text && (!strcmp(text, "disable") || !strcmp(text, "DISABLE")))
        return VGPU_CORES_DISABLE;
    return VGPU_CORES_DEFAULT;
}

bool vgpu_limits_from(vgpu_getter get, struct vgpu_control* control)
{
    bool is_any = false;
    control->magic = VGPU_CONTROL_MAGIC;
    control->version = VGPU_ABI_VERSION;
    control->device_count = VGPU_DEVICES;
    control->file_bytes = VGPU_CONTROL_BYTES;
    control->core_policy = policy_of(get("GPU_CORE_UTILIZATION_POLICY"));
    control->priority = 1;
    const char* priority = get("CUDA_TASK_PRIORITY");
    if (priority && *priority >= '0' && *priority <= '9')
        control->priority = (uint32_t)(*priority - '0');
    for (int i = 0; i < VGPU_DEVICES; i++) {
        is_any |= read_memory(get, i, &control->devices[i]);
        is_any |= read_cores(get, i, &control->devices[i]);
    }
    return is_any;
}

int vgpu_number_of_ordinal(const char* visible_devices, int ordinal)
{
    const char* rest = visible_devices;
    if (!rest || !*rest)
        return ordinal;
    for (int i = 0;; i++) {
        uint64_t number;
        while (*rest == ' ')
            rest++;
        const char* end = digits(rest, &number);
        if (!end || end == rest || number >= VGPU_DEVICES || (*end && *end != ',' && *end != ' '))
            return -1;
        if (i == ordinal)
            return (int)number;
        end = strchr(end, ',');
        if (!end)
            return -1;
        rest = end + 1;
    }
}
