/*
 * Claims whose files hold anything: for each directory that is named, a process of its own uses the driver
 * while it writes the same damage into the usage file again and again. Ends with 0 when every one of them did
 * its work, or was still waiting for its share of compute. Linked, not preloaded, for the sanitizers.
 *
 *   files DIRECTORY...      each with claims/one/{control,usage}, and damage: what to write at which offset
 */
#include "cuda_min.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANG_S 30
#define WAIT_US 50000

int cuInit(unsigned int);
int cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
int cuDevicePrimaryCtxReset_v2(CUdevice);
int cuCtxSetCurrent(CUcontext);
int cuMemAlloc_v2(CUdeviceptr*, size_t);
int cuMemFree_v2(CUdeviceptr);
int cuMemAllocAsync(CUdeviceptr*, size_t, CUstream);
int cuMemGetInfo_v2(size_t*, size_t*);
int cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
    void**, void**);

struct damage {
    uint64_t offset;
    uint64_t value;
};

static struct damage patches[64];
static int patch_count;
static int usage = -1;

static void read_damage(const char* directory)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/damage", directory);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, patches, sizeof patches);
    patch_count = length > 0 ? (int)((size_t)length / sizeof *patches) : 0;
    snprintf(path, sizeof path, "%s/claims/one/usage", directory);
    usage = open(path, O_WRONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "%s/claims", directory);
    setenv("VGPU_CLAIMS_DIRECTORY", path, 1);
}

static void damage(void)
{
    for (int i = 0; i < patch_count; i++)
        if (pwrite(usage, &patches[i].value, sizeof patches[i].value, (off_t)patches[i].offset) < 0)
            return;
}

static void use_memory(void)
{
    CUdeviceptr addresses[4] = { 0 };
    size_t free_bytes, total;
    for (int i = 0; i < 4; i++) {
        int result = i % 2 ? cuMemAllocAsync(&addresses[i], (size_t)1 << 20, NULL)
                           : cuMemAlloc_v2(&addresses[i], (size_t)1 << 20);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
            exit(3);
        if (result != CUDA_SUCCESS)
            addresses[i] = 0;
        damage();
        if (cuMemGetInfo_v2(&free_bytes, &total) || free_bytes > total)
            exit(4);
    }
    for (int i = 0; i < 4; i++)
        if (addresses[i] && cuMemFree_v2(addresses[i]))
            exit(5);
}

/* Waiting is what a damaged budget may lead to, within bounds that another test knows. */
static void be_patient(int signal)
{
    (void)signal;
    _exit(0);
}

static void launch(void)
{
    const struct itimerval short_time = { .it_value = { .tv_usec = WAIT_US } };
    signal(SIGALRM, be_patient);
    setitimer(ITIMER_REAL, &short_time, NULL);
    for (int i = 0; i < 300; i++) {
        if (cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL))
            exit(6);
        if (i % 30 == 0)
            damage();
    }
}

static void work(const char* directory)
{
    CUcontext context;
    alarm(HANG_S);
    read_damage(directory);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        exit(2);
    use_memory();
    alarm(0);
    launch();
    cuDevicePrimaryCtxReset_v2(0);
    exit(0);
}

int main(int count, char** directories)
{
    int failures = 0;
    for (int i = 1; i < count; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            work(directories[i]);
        if (child < 0 || waitpid(child, &status, 0) < 0 || status) {
            fprintf(stderr, "%s: status %d\n", directories[i], status);
            failures++;
        }
    }
    printf("%d\n", failures);
    return failures != 0;
}
