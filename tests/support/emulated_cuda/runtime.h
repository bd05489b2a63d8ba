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
#include <vector>

#include "kernels/cuda_kernels.h"
#include "tests/gpu/support/stream_queue.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads();

unsigned char *sp_i_shared();
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
inline int64_t &sp_i_emulated_timer()
{
    static int64_t ns = 1000000;
    return ns;
}

inline int64_t sp_i_timer_ns()
{
    return sp_i_emulated_timer() += 32;
}

inline void sp_pause(unsigned ns)
{
    sp_i_emulated_timer() += ns;
}

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
extern "C" void (*sp_emulated_put)(void *stream, void (*work)(void *context), void *context,
                                   const stream_range *ranges, size_t count);

// Runs all threads of all blocks; returns 0, or 1 for a launch that no device takes.
int sp_i_emulated_launch(dim3 grid, int threads, size_t shared_bytes, void *stream,
                         const std::function<void()> &thread,
                         const std::vector<stream_range> &ranges);

// Memory that a kernel touches, by its arguments: what a pointer points to, which is written unless
// it is const. Of a structure every word may be a pointer; whether it is written through is not
// known, so that it counts as read, and what is no address meets no memory of others.
template <class T> void sp_i_note_range(std::vector<stream_range> &ranges, const T &argument)
{
    if constexpr (std::is_pointer<T>::value) {
        typedef typename std::remove_pointer<T>::type pointed;
        if constexpr (std::is_object<pointed>::value) { // no function
            ranges.push_back({argument, sizeof(pointed), !std::is_const<pointed>::value, true});
        }
    } else if constexpr (std::is_class<T>::value) {
        for (size_t at = 0; at + sizeof(void *) <= sizeof(T); at += sizeof(void *)) {
            const void *word;
            memcpy(&word, reinterpret_cast<const unsigned char *>(&argument) + at, sizeof word);
            ranges.push_back({word, 1, false, true});
        }
    }
}

template <class... Parameters, class... Arguments>
int sp_i_launch(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes,
                sp_cuda_stream stream, Arguments... arguments)
{
    std::vector<stream_range> ranges;
    (sp_i_note_range(ranges, arguments), ...);
    return sp_i_emulated_launch(
        grid, threads, shared_bytes, stream, [=] { kernel(arguments...); }, ranges);
}

#endif
