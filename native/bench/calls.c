/*
 * What an interposer adds to the calls that programs make most. Prints one JSON object; knows no interposer:
 * whatever is preloaded is measured. Times are nanoseconds a call, the least of the rounds.
 */

#include "cuda_min.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define THREAD_LAUNCHES 100000
#define ROUNDS 25 /* of which the least counts: the machine may have other work */
#define THREAD_ROUNDS 200 /* and both cores must be free at once */

typedef int (*launch_function)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
    unsigned, CUstream, void**, void**);

static int (*mem_alloc)(CUdeviceptr*, size_t);
static int (*mem_free)(CUdeviceptr);
static int (*mem_get_info)(size_t*, size_t*);
static launch_function launch;

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void run_launch(int calls)
{
    for (int i = 0; i < calls; i++)
        launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void run_alloc_free(int calls)
{
    for (int i = 0; i < calls; i++) {
        CUdeviceptr address = 0;
        mem_alloc(&address, 4096);
        mem_free(address);
    }
}

static void run_info(int calls)
{
    size_t free_bytes, total;
    for (int i = 0; i < calls; i++)
        mem_get_info(&free_bytes, &total);
}

static void run_dlsym(int calls)
{
    for (int i = 0; i < calls; i++)
        dlsym(RTLD_DEFAULT, "malloc");
}

static double least_ns(void (*run)(int), int calls)
{
    double least = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now_ns();
        run(calls);
        double took = (now_ns() - start) / calls;
        least = took < least ? took : least;
    }
    return least;
}

/* A limiter first has to learn that these launches cost nothing; its agent measures many times a second. */
static void warm_up(void)
{
    const struct timespec pause = { 0, 30000000 };
    for (int i = 0; i < 30; i++) {
        run_launch(10);
        nanosleep(&pause, NULL);
    }
}

struct worker {
    pthread_t thread;
    CUcontext context;
    double cpu_ns;
};

static double cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec * 1e9 + (double)used.tv_nsec;
}

/* Processor time, because the machine may have other work for the second core. */
static void* launch_thread(void* argument)
{
    struct worker* worker = argument;
    int (*set)(CUcontext) = (int (*)(CUcontext))dlsym(RTLD_DEFAULT, "cuCtxSetCurrent");
    if (set)
        set(worker->context);
    run_launch(THREAD_LAUNCHES / 10);
    double start = cpu_ns();
    run_launch(THREAD_LAUNCHES);
    worker->cpu_ns = cpu_ns() - start;
    return NULL;
}

static double two_threads_ns(CUcontext context)
{
    double least = 1e18;
    for (int round = 0; round < THREAD_ROUNDS; round++) {
        struct worker workers[2] = { { .context = context }, { .context = context } };
        for (int i = 0; i < 2; i++)
            pthread_create(&workers[i].thread, NULL, launch_thread, &workers[i]);
        for (int i = 0; i < 2; i++)
            pthread_join(workers[i].thread, NULL);
        double took = (workers[0].cpu_ns + workers[1].cpu_ns) / 2 / THREAD_LAUNCHES;
        least = took < least ? took : least;
    }
    return least;
}

static double with_live_ns(int live)
{
    CUdeviceptr* held = calloc((size_t)live, sizeof *held);
    for (int i = 0; i < live; i++)
        mem_alloc(&held[i], 512);
    double took = least_ns(run_alloc_free, 20000);
    for (int i = 0; i < live; i++)
        mem_free(held[i]);
    free(held);
    return took;
}

int main(void)
{
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver)
        return 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(CUcontext*, int) = (int (*)(CUcontext*, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*set)(CUcontext) = (int (*)(CUcontext))dlsym(driver, "cuCtxSetCurrent");
    init(0);
    CUcontext context;
    retain(&context, 0);
    set(context);
    mem_alloc = (int (*)(CUdeviceptr*, size_t))dlsym(driver, "cuMemAlloc_v2");
    mem_free = (int (*)(CUdeviceptr))dlsym(driver, "cuMemFree_v2");
    mem_get_info = (int (*)(size_t*, size_t*))dlsym(driver, "cuMemGetInfo_v2");
    launch = (launch_function)dlsym(driver, "cuLaunchKernel");
    warm_up();
    printf("{\"cuLaunchKernel, ns\": %.2f", least_ns(run_launch, 20000));
    printf(", \"cuLaunchKernel, 2 threads, ns\": %.2f", two_threads_ns(context));
    printf(", \"cuMemGetInfo, ns\": %.2f", least_ns(run_info, 200000));
    printf(", \"dlsym of another name, ns\": %.2f", least_ns(run_dlsym, 200000));
    printf(", \"alloc and free, 1 live, ns\": %.2f", with_live_ns(1));
    printf(", \"alloc and free, 1000 live, ns\": %.2f", with_live_ns(1000));
    printf(", \"alloc and free, 100000 live, ns\": %.2f}\n", with_live_ns(100000));
    return 0;
}
