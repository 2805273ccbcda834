/* Threads that allocate, free and launch on two cards at once, for the sanitizers. Linked, not preloaded. */
#include "cuda_min.h"

#include <pthread.h>
#include <stdio.h>

#define THREADS 8
#define TURNS 300
#define SIZE ((size_t)2 << 20)

int cuInit(unsigned int);
int cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
int cuCtxSetCurrent(CUcontext);
int cuCtxCreate_v2(CUcontext*, unsigned int, CUdevice);
int cuCtxDestroy_v2(CUcontext);
int cuMemAlloc_v2(CUdeviceptr*, size_t);
int cuMemFree_v2(CUdeviceptr);
int cuMemAllocAsync(CUdeviceptr*, size_t, CUstream);
int cuMemFreeAsync(CUdeviceptr, CUstream);
int cuMemCreate(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long);
int cuMemRelease(CUmemGenericAllocationHandle);
int cuMemAddressReserve(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
int cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
int cuMemUnmap(CUdeviceptr, size_t);
int cuMemGetInfo_v2(size_t*, size_t*);
int cuStreamSynchronize(CUstream);
int cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
    void**, void**);

static CUcontext contexts[2];
static _Atomic int failures;

static void expect(int is_so)
{
    if (!is_so)
        failures++;
}

static void map_and_unmap(int device)
{
    const CUmemAllocationProp prop = { .type = 1, .location = { CU_MEM_LOCATION_TYPE_DEVICE, device } };
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    if (cuMemCreate(&handle, SIZE, &prop, 0) != CUDA_SUCCESS)
        return;
    expect(cuMemAddressReserve(&address, SIZE, 0, 0, 0) == CUDA_SUCCESS);
    expect(cuMemMap(address, SIZE, 0, handle, 0) == CUDA_SUCCESS);
    expect(cuMemRelease(handle) == CUDA_SUCCESS);
    expect(cuMemUnmap(address, SIZE) == CUDA_SUCCESS);
}

static void* work(void* argument)
{
    int device = *(int*)argument;
    cuCtxSetCurrent(contexts[device]);
    for (int turn = 0; turn < TURNS; turn++) {
        CUdeviceptr plain, pooled;
        size_t free_bytes, total;
        int has_plain = cuMemAlloc_v2(&plain, SIZE * (1 + (size_t)turn % 9)) == CUDA_SUCCESS;
        int has_pooled = cuMemAllocAsync(&pooled, SIZE, NULL) == CUDA_SUCCESS;
        map_and_unmap(device);
        cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        expect(cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS && free_bytes <= total);
        expect(!has_plain || cuMemFree_v2(plain) == CUDA_SUCCESS);
        expect(!has_pooled || cuMemFreeAsync(pooled, NULL) == CUDA_SUCCESS);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int devices[THREADS];
    expect(cuInit(0) == CUDA_SUCCESS);
    for (int device = 0; device < 2; device++)
        expect(cuDevicePrimaryCtxRetain(&contexts[device], device) == CUDA_SUCCESS);
    for (int i = 0; i < THREADS; i++) {
        devices[i] = i % 2;
        pthread_create(&threads[i], NULL, work, &devices[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int device = 0; device < 2; device++) {
        size_t free_bytes, total;
        cuCtxSetCurrent(contexts[device]);
        cuStreamSynchronize(NULL);
        expect(cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS && free_bytes == total);
    }
    printf("%d\n", failures);
    return failures != 0;
}
