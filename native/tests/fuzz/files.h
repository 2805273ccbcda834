/*
 * The readers of the shared files. A target writes one file of a claim anew for each input and then lets the
 * library open and use the claim, as far as it knows nothing of CUDA.
 */
#ifndef FILES_H
#define FILES_H

#include "budget.h"
#include "claims.h"
#include "fuzz.h"
#include "libc.h"
#include "usage_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FOLDER "claims/one"
#define SECOND UINT64_C(1000000000)

/* A mutex whose word says that it is locked is never released here: all waits have ended long ago. */
int clock_gettime(clockid_t clock, struct timespec* now)
{
    (void)clock;
    *now = (struct timespec) { .tv_sec = 0 };
    return 0;
}

/* The file of a claim, in the working directory: the input, and zeros up to the size. An input of an odd size
 * ends the file where it ends itself. */
static void write_file(const char* name, const uint8_t* data, size_t size, size_t whole)
{
    char path[64];
    snprintf(path, sizeof path, FOLDER "/%s", name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    PROMISE(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    PROMISE(size % 2 || ftruncate(fd, (off_t)whole) == 0);
    close(fd);
}

static void go_to_claims(void)
{
    static int is_there;
    if (is_there)
        return;
    is_there = 1;
    PROMISE(vgpu_libc_find(VGPU_THREADS));
    PROMISE(mkdir("claims", 0700) == 0 || errno == EEXIST);
    PROMISE(mkdir(FOLDER, 0700) == 0 || errno == EEXIST);
    setenv("VGPU_CLAIMS_DIRECTORY", "claims", 1);
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", "cache", 1);
}

/* What a container may spend and hold, whatever the files say. */
static void use_budget(struct vgpu_claim* claim, uint32_t device)
{
    struct vgpu_books* books = atomic_load(&claim->books);
    struct vgpu_usage_device* budget = &books->usage->devices[device];
    const struct vgpu_control_device* limits = &claim->control->devices[device];
    uint32_t percent = limits->core_percent;
    vgpu_budget_true_up(budget, limits->busy_ns, claim->control->measured_at_ns);
    vgpu_budget_spend(budget, 3);
    vgpu_budget_refill(budget, percent, SECOND);
    vgpu_budget_sample(budget, 1000, 1, vgpu_budget_cost_ns(budget), 2);
    vgpu_budget_assume(budget, 2 * SECOND);
    vgpu_budget_done(budget, 3);
    if (!vgpu_budget_is_open(budget) && percent > 0 && percent <= 100)
        PROMISE(vgpu_budget_wait_ns(budget, percent) <= 500 * SECOND);
}

static void use_books(struct vgpu_claim* claim, uint32_t device)
{
    vgpu_books_feed(claim, device);
    uint64_t limit = vgpu_memory_limit(claim, device);
    uint64_t taken = vgpu_books_take(claim, device, VGPU_DATA, 1 << 20, 4096);
    PROMISE(taken == 0 || (taken >= 4096 && taken <= 1 << 20 && taken <= limit));
    PROMISE(taken == 0 || vgpu_books_total(claim, device) <= limit);
    vgpu_books_force(claim, device, VGPU_CONTEXT, UINT64_MAX - 7);
    PROMISE(vgpu_books_give(claim, device, VGPU_DATA, taken) <= taken);
    vgpu_books_own(claim, device);
    vgpu_books_count_refusal(claim, device);
    PROMISE(vgpu_books_mine(claim, device));
}

static void use_claim(struct vgpu_claim* claim)
{
    static const uint32_t devices[] = { 0, 1, VGPU_DEVICES - 1 };
    PROMISE(claim->device_count <= VGPU_DEVICES);
    PROMISE(vgpu_slots_used(atomic_load(&claim->books)->usage) <= VGPU_SLOTS);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        use_books(claim, devices[i]);
        use_budget(claim, devices[i]);
    }
    int number = vgpu_claim_number(claim, "10111213-1415-1617-1819-1a1b1c1d1e1f", 0);
    PROMISE(number >= -1 && number < VGPU_DEVICES);
    int unknown = vgpu_claim_number(claim, "", 0);
    PROMISE(unknown < VGPU_DEVICES && (unknown >= 0) == (claim->device_count > 0));
    vgpu_books_reap(claim);
}

/* The library keeps its mappings for as long as the process lives. Limits of the environment are in none. */
static void forget(bool is_control_mapped)
{
    for (uint32_t i = 0; i < vgpu_claim_count(); i++) {
        struct vgpu_claim* claim = vgpu_claim(i);
        if (is_control_mapped)
            munmap((void*)(uintptr_t)claim->control, VGPU_CONTROL_BYTES);
        if (claim->shared.usage)
            munmap(claim->shared.usage, VGPU_USAGE_BYTES);
        if (claim->own.usage)
            munmap(claim->own.usage, VGPU_USAGE_BYTES);
    }
    vgpu_claims_forget();
}

#endif
