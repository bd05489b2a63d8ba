#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "tests/gpu/kernels_tensor.h"

static void need(cudaError_t error, const char *call)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
        exit(1);
    }
}

const char *device_missing(void)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        return cudaGetErrorString(error);
    }
    return count > 0 ? NULL : "no CUDA device";
}

void *device_new(size_t bytes)
{
    void *memory;
    need(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
}

void device_free(void *memory)
{
    need(cudaFree(memory), "cudaFree");
}

void device_put(void *to, const void *from, size_t bytes)
{
    need(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
}

void device_get(void *to, const void *from, size_t bytes)
{
    need(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
}

void device_wait(int error)
{
    need((cudaError_t)error, "a kernel's launcher");
    need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}
