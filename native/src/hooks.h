/* What replaces the driver's functions; each gets the function it replaces as its first argument. */
#ifndef VGPU_HOOKS_H
#define VGPU_HOOKS_H

#include "driver.h"

struct vgpu_lookup {
    void* value;
    uintptr_t is_final;
};

/* Called by dlsym in assembly. */
struct vgpu_lookup vgpu_dlsym(void* handle, const char* name, void* caller);

/* Our function for an address of the driver, or that address. */
void* vgpu_swapped(void* driver);

int vgpu_get_proc_address(
    int (*real)(const char*, void**, int, cuuint64_t), const char*, void**, int, cuuint64_t);
int vgpu_get_proc_address_v2(
    int (*real)(const char*, void**, int, cuuint64_t, int*), const char*, void**, int, cuuint64_t, int*);

/* context.c */
int vgpu_init(int (*real)(unsigned int), unsigned int);
int vgpu_context_destroy(int (*real)(CUcontext), CUcontext);
int vgpu_context_detach(int (*real)(CUcontext), CUcontext);
int vgpu_primary_release(int (*real)(CUdevice), CUdevice);

/* memory.c */
int vgpu_mem_alloc(int (*real)(CUdeviceptr*, size_t), CUdeviceptr*, size_t);
int vgpu_mem_alloc_pitch(int (*real)(CUdeviceptr*, size_t*, size_t, size_t, unsigned int), CUdeviceptr*,
    size_t*, size_t, size_t, unsigned int);
int vgpu_mem_alloc_managed(
    int (*real)(CUdeviceptr*, size_t, unsigned int), CUdeviceptr*, size_t, unsigned int);
int vgpu_mem_free(int (*real)(CUdeviceptr), CUdeviceptr);
int vgpu_mem_free_async(int (*real)(CUdeviceptr, CUstream), CUdeviceptr, CUstream);

/* pool.c */
int vgpu_mem_alloc_async(int (*real)(CUdeviceptr*, size_t, CUstream), CUdeviceptr*, size_t, CUstream);
int vgpu_mem_alloc_from_pool(
    int (*real)(CUdeviceptr*, size_t, CUmemoryPool, CUstream), CUdeviceptr*, size_t, CUmemoryPool, CUstream);
int vgpu_pool_create(int (*real)(CUmemoryPool*, const CUmemPoolProps*), CUmemoryPool*, const CUmemPoolProps*);
int vgpu_pool_trim(int (*real)(CUmemoryPool, size_t), CUmemoryPool, size_t);
int vgpu_pool_destroy(int (*real)(CUmemoryPool), CUmemoryPool);

/* virtual.c */
int vgpu_mem_create(
    int (*real)(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long),
    CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long);
int vgpu_mem_release(int (*real)(CUmemGenericAllocationHandle), CUmemGenericAllocationHandle);
int vgpu_mem_map(int (*real)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long),
    CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
int vgpu_mem_unmap(int (*real)(CUdeviceptr, size_t), CUdeviceptr, size_t);
int vgpu_mem_retain(int (*real)(CUmemGenericAllocationHandle*, void*), CUmemGenericAllocationHandle*, void*);

/* array.c */
int vgpu_array_create(
    int (*real)(CUarray*, const CUDA_ARRAY_DESCRIPTOR*), CUarray*, const CUDA_ARRAY_DESCRIPTOR*);
int vgpu_array3d_create(
    int (*real)(CUarray*, const CUDA_ARRAY3D_DESCRIPTOR*), CUarray*, const CUDA_ARRAY3D_DESCRIPTOR*);
int vgpu_array_destroy(int (*real)(CUarray), CUarray);
int vgpu_mipmapped_create(int (*real)(CUmipmappedArray*, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned int),
    CUmipmappedArray*, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned int);
int vgpu_mipmapped_destroy(int (*real)(CUmipmappedArray), CUmipmappedArray);

/* graph.c */
int vgpu_graph_instantiate(int (*real)(CUgraphExec*, CUgraph, CUgraphNode*, char*, size_t), CUgraphExec*,
    CUgraph, CUgraphNode*, char*, size_t);
int vgpu_graph_instantiate_flags(
    int (*real)(CUgraphExec*, CUgraph, unsigned long long), CUgraphExec*, CUgraph, unsigned long long);
int vgpu_graph_instantiate_params(int (*real)(CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*),
    CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*);
int vgpu_graph_launch(int (*real)(CUgraphExec, CUstream), CUgraphExec, CUstream);
int vgpu_graph_upload(int (*real)(CUgraphExec, CUstream), CUgraphExec, CUstream);
int vgpu_graph_exec_destroy(int (*real)(CUgraphExec), CUgraphExec);
int vgpu_graph_trim(int (*real)(CUdevice), CUdevice);

/* info.c, nvml.c */
int vgpu_mem_get_info(int (*real)(size_t*, size_t*), size_t*, size_t*);
int vgpu_total_mem(int (*real)(size_t*, CUdevice), size_t*, CUdevice);
int vgpu_nvml_memory(int (*real)(nvmlDevice_t, nvmlMemory_t*), nvmlDevice_t, nvmlMemory_t*);
int vgpu_nvml_memory_v2(int (*real)(nvmlDevice_t, nvmlMemory_v2_t*), nvmlDevice_t, nvmlMemory_v2_t*);
int vgpu_nvml_processes_v1(
    int (*real)(nvmlDevice_t, unsigned int*, void*), nvmlDevice_t, unsigned int*, void*);
int vgpu_nvml_processes_v2(
    int (*real)(nvmlDevice_t, unsigned int*, void*), nvmlDevice_t, unsigned int*, void*);
int vgpu_nvml_none(int (*real)(nvmlDevice_t, unsigned int*, void*), nvmlDevice_t, unsigned int*, void*);
int vgpu_nvml_details(int (*real)(nvmlDevice_t, void*), nvmlDevice_t, void*);
int vgpu_nvml_utilization(
    int (*real)(nvmlDevice_t, nvmlProcessUtilizationSample_t*, unsigned int*, unsigned long long),
    nvmlDevice_t, nvmlProcessUtilizationSample_t*, unsigned int*, unsigned long long);
int vgpu_nvml_utilizations(int (*real)(nvmlDevice_t, void*), nvmlDevice_t, void*);
int vgpu_nvml_accounting(
    int (*real)(nvmlDevice_t, unsigned int*, unsigned int*), nvmlDevice_t, unsigned int*, unsigned int*);

#endif
