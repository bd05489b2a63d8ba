// The machine of kernels/instructions.cuh on the CPU, so that the very kernels can be tested
// without a device. One block runs at a time and its threads take turns at the points where threads
// of a block or a warp meet, in an order drawn anew at every turn: what a missing barrier leaves to
// chance comes out differently here. Shared
// memory holds NaN at first. A wrong collective (threads at different barriers, lanes at different
// instructions) ends the program with a message.
#ifndef SLIMPACK_TESTS_SUPPORT_EMULATED_CUDA_MACHINE_H
#define SLIMPACK_TESTS_SUPPORT_EMULATED_CUDA_MACHINE_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#include "kernels/cuda_kernels.h"

#define __device__
#define __forceinline__ inline

#define SP_I_KERNEL(name, threads, parameters, ...) \
    static void name parameters                     \
    {                                               \
        __VA_ARGS__;                                \
    }

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads();

unsigned char *sp_i_shared();

// Arrays of the kernel that runs, each found again by its key.
unsigned char *sp_i_shared_array(const void *key, size_t bytes);
#define SP_I_SHARED_ARRAY(type, name, dimensions)                   \
    static char name##_key;                                         \
    type(&name) dimensions = *reinterpret_cast<type(*) dimensions>( \
        sp_i_shared_array(&name##_key, sizeof(type dimensions)))

float sp_i_exchange(float x, int mask);
double sp_i_exchange(double x, int mask);
inline uint32_t sp_i_pack(float low, float high)
{
    return sp_bf16_from_float(low) | static_cast<uint32_t>(sp_bf16_from_float(high)) << 16;
}

inline sp_bf16 sp_i_round(float x)
{
    return sp_bf16_from_float(x);
}

inline float sp_i_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

inline float sp_i_exp2(float x)
{
    return exp2f(x);
}

inline float sp_i_exp(float x)
{
    return expf(x);
}

inline float sp_i_divide(float x, float y)
{
    return x / y;
}

// Goes on by itself with every look, and with every rest.
int64_t sp_i_timer_ns();
void sp_pause(unsigned ns);

// Few, so that even small tests go round every loop more than once.
inline int sp_i_multiprocessors()
{
    return 1;
}

template <class... Parameters> int sp_i_resident_blocks(void (*)(Parameters...), int)
{
    return 2;
}

// Launches until one fails; below 0: none does. C programs set it too.
extern "C" long sp_emulated_launches;

// Kernels are dropped without being run: for what does not depend on values, such as bytes held and
// calls that fail. C programs set it.
extern "C" bool sp_emulated_skips;

// Takes the work of a launch, to be done once, at any later time; it frees its context. NULL:
// kernels run when they are launched. C programs set it (tests/gpu/support/stream_queue.h).
extern "C" void (*sp_emulated_put)(void *stream, void (*work)(void *context), void *context);

// Runs all threads of all blocks; returns 0, or 1 for a launch that no device takes.
int sp_i_emulated_launch(dim3 grid, int threads, size_t shared_bytes, void *stream,
                         const std::function<void()> &thread);

template <class... Parameters, class... Arguments>
int sp_i_launch(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes,
                sp_cuda_stream stream, Arguments... arguments)
{
    return sp_i_emulated_launch(grid, threads, shared_bytes, stream, [=] { kernel(arguments...); });
}

#endif
