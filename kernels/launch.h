// Kernels as their launchers see them: a name in the image, and the types of the arguments. What
// stands in kernels is read here and never called. C++.
#ifndef SLIMPACK_KERNELS_LAUNCH_H
#define SLIMPACK_KERNELS_LAUNCH_H

#include <math.h>
#include <stddef.h>

#include <atomic>

#include "kernels/cuda_kernels.h"
#include "kernels/driver.h"

#define __device__ inline
#define __forceinline__
#define SP_I_SHARED_ARRAY(type, name, dimensions) type name dimensions

struct dim3 {
    unsigned x, y, z;
    explicit dim3(unsigned x_, unsigned y_ = 1) : x(x_), y(y_), z(1)
    {
    }
};
extern const dim3 threadIdx, blockIdx, blockDim, gridDim;
void __syncthreads();
unsigned char *sp_i_shared();
uint32_t sp_i_pack(float low, float high);
sp_bf16 sp_i_round(float x);
float sp_i_from_bits(uint32_t bits);
float sp_i_exp2(float x);
float sp_i_exp(float x);
float sp_i_divide(float x, float y);
float sp_i_exchange(float x, int mask);
double sp_i_exchange(double x, int mask);
int64_t sp_i_timer_ns();
void sp_pause(unsigned ns);

// A kernel of the image, found when it is first launched.
struct sp_i_entry {
    const char *name;
    std::atomic<CUkernel> found;
};

template <class Signature> struct sp_i_kernel;

#define SP_I_KERNEL(name, threads, parameters, ...)   \
    static sp_i_entry name##_entry = {#name, {NULL}}; \
    static const sp_i_kernel<void parameters> name = {&name##_entry};

// The device of the current context; 0 where it cannot be asked, which the launch then reports.
int sp_i_multiprocessors();

// Blocks of a kernel that an SM runs at once, by its registers and its static shared memory; 1
// where the device cannot be asked.
int sp_i_resident(sp_i_entry *entry, int threads);

int sp_i_put(sp_i_entry *entry, dim3 grid, int threads, size_t shared_bytes, sp_cuda_stream stream,
             void **arguments);

template <class... Parameters> struct sp_i_kernel<void(Parameters...)> {
    sp_i_entry *entry;

    // The driver reads as many bytes of each as the kernel's parameters have.
    int put(dim3 grid, int threads, size_t shared_bytes, sp_cuda_stream stream,
            Parameters... arguments) const
    {
        void *at[] = {const_cast<void *>(static_cast<const void *>(&arguments))...};
        return sp_i_put(entry, grid, threads, shared_bytes, stream, at);
    }
};

template <class Kernel> int sp_i_resident_blocks(Kernel kernel, int threads)
{
    return sp_i_resident(kernel.entry, threads);
}

template <class Kernel, class... Arguments>
int sp_i_launch(Kernel kernel, dim3 grid, int threads, size_t shared_bytes, sp_cuda_stream stream,
                Arguments... arguments)
{
    return kernel.put(grid, threads, shared_bytes, stream, arguments...);
}

#endif
