#include "claims.h"
#include "config.h"
#include "devices.h"
#include "log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLAIMS_DIRECTORY "/run/vgpu/claims"
#define DEFAULT_CACHE "/tmp/cudevshr.cache"

/* Written under claims_lock by the first vgpu_claims_open; constant afterwards. */
static struct vgpu_claim claims[VGPU_CLAIMS];
static uint32_t claim_count;
static bool is_from_environment;
static bool is_limited;
static bool is_open;
static pthread_mutex_t claims_lock = PTHREAD_MUTEX_INITIALIZER;

/* The mappings stay: whoever had a pointer into them may still follow it. */
static void forget_claims(void)
{
    memset(claims, 0, sizeof claims);
    claim_count = 0;
    is_from_environment = false;
}

/* A variable that named another place would be a way around the limits. */
static const char* directory(void)
{
#ifdef VGPU_TESTING
    const char* path = getenv("VGPU_CLAIMS_DIRECTORY");
    if (path)
        return path;
#endif
    return CLAIMS_DIRECTORY;
}

static bool is_control(const struct vgpu_control* control)
{
    return control->magic == VGPU_CONTROL_MAGIC && control->version == VGPU_ABI_VERSION
        && control->file_bytes == VGPU_CONTROL_BYTES && control->device_count <= VGPU_DEVICES;
}

static const struct vgpu_control* map_control(const char* path)
{
    struct stat found;
    void* mapped = MAP_FAILED;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_size == VGPU_CONTROL_BYTES)
        mapped = mmap(NULL, VGPU_CONTROL_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED && is_control(mapped))
        return mapped;
    if (mapped != MAP_FAILED)
        munmap(mapped, VGPU_CONTROL_BYTES);
    return NULL;
}

static bool is_true(const char* text)
{
    return text && (!strcmp(text, "true") || !strcmp(text, "TRUE") || !strcmp(text, "1"));
}

/* Returns false when what stands there is no control file, so that nobody knows the limits. */
static bool open_claim(const char* parent, const char* uid)
{
    char path[512];
    if (claim_count == VGPU_CLAIMS) {
        LOG(VGPU_ERROR, "found more than %d claims in %s: the limits are not added up", VGPU_CLAIMS, parent);
        return false;
    }
    if (snprintf(path, sizeof path, "%s/%s/control", parent, uid) >= (int)sizeof path)
        return false;
    const struct vgpu_control* control = map_control(path);
    if (!control) {
        LOG(VGPU_ERROR, "found no control file of version %u at %s: its limits are unknown", VGPU_ABI_VERSION,
            path);
        return false;
    }
    if ((control->flags & VGPU_ALLOW_DISABLE) && is_true(getenv("CUDA_DISABLE_CONTROL")))
        return true;
    struct vgpu_claim* claim = &claims[claim_count++];
    snprintf(path, sizeof path, "%s/%s/usage", parent, uid);
    claim->control = control;
    claim->device_count = control->device_count;
    vgpu_books_open(claim, path, false);
    return true;
}

static int is_visible(const struct dirent* entry) { return entry->d_name[0] != '.'; }

/* Not alphasort, whose order depends on each process's locale. */
static int by_name(const struct dirent** left, const struct dirent** right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

/* In one order for all processes: of several claims with the same GPU, the first keeps the budget of compute.
 */
static bool open_directory(const char* path, bool* is_there)
{
    struct dirent** entries = NULL;
    int count = scandir(path, &entries, is_visible, by_name);
    bool is_whole = true;
    *is_there = count > 0;
    if (count < 0 && errno != ENOENT) {
        LOG(VGPU_ERROR, "cannot read %s (%s): its limits are unknown", path, strerror(errno));
        return false;
    }
    for (int i = 0; i < count; i++) {
        is_whole &= open_claim(path, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return is_whole;
}

static const char* from_environment(const char* name) { return getenv(name); }

/* Nobody knows the limits, though somebody set some: nothing is granted. */
static void grant_nothing(struct vgpu_control* control)
{
    for (int i = 0; i < VGPU_DEVICES; i++)
        control->devices[i].memory_bytes = 0;
    LOG(VGPU_ERROR, "neither control files nor the environment tell the limits: no GPU memory is granted");
}

static bool open_environment(bool is_required)
{
    /* Not on the heap, which may be full: limits must hold then too. */
    static struct vgpu_control control;
    bool is_any = vgpu_limits_from(from_environment, &control);
    if (!is_any && !is_required)
        return false;
    if (!is_any)
        grant_nothing(&control);
    const char* cache = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    is_from_environment = true;
    claims[0] = (struct vgpu_claim) { .control = &control, .device_count = VGPU_DEVICES };
    claim_count = 1;
    vgpu_books_open(&claims[0], cache && *cache ? cache : DEFAULT_CACHE, true);
    return true;
}

static bool open_all(void)
{
    bool is_there;
    if (open_directory(directory(), &is_there))
        return is_there ? claim_count > 0 : open_environment(false);
    forget_claims();
    return open_environment(true);
}

bool vgpu_claims_open(void)
{
    pthread_mutex_lock(&claims_lock);
    if (!is_open) {
        is_limited = open_all();
        is_open = true;
    }
    pthread_mutex_unlock(&claims_lock);
    return is_limited;
}

uint32_t vgpu_claim_count(void) { return claim_count; }

struct vgpu_claim* vgpu_claim(uint32_t number) { return &claims[number]; }

/* The device with the least memory, for a GPU whose number cannot be told; -1 for a claim of none. */
static int strictest(const struct vgpu_claim* claim)
{
    int found = -1;
    for (int i = 0; i < (int)claim->device_count; i++)
        if (found < 0 || vgpu_memory_limit(claim, (uint32_t)i) < vgpu_memory_limit(claim, (uint32_t)found))
            found = i;
    return found;
}

int vgpu_claim_number(const struct vgpu_claim* claim, const char* uuid, int ordinal)
{
    if (is_from_environment) {
        int number = vgpu_number_of_ordinal(getenv("CUDA_VISIBLE_DEVICES"), ordinal);
        return number >= 0 && number < VGPU_DEVICES ? number : strictest(claim);
    }
    if (!*uuid)
        return strictest(claim);
    for (uint32_t i = 0; i < claim->device_count; i++) {
        const char* name = claim->control->devices[i].uuid;
        if ((!strncmp(name, "GPU-", 4) || !strncmp(name, "MIG-", 4))
            && !strncmp(name + 4, uuid, VGPU_UUID_BYTES - 4))
            return (int)i;
    }
    return -1;
}

void vgpu_claims_forget(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    claims_lock = unlocked;
    is_open = false;
    forget_claims();
}
