// The arithmetic of one element, alike in kernels and in tests on the host. C17 and C++.
#ifndef SLIMPACK_KERNELS_CUDA_MATH_H
#define SLIMPACK_KERNELS_CUDA_MATH_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SP_I_CUDA_BOTH __host__ __device__ __forceinline__
#else
#define SP_I_CUDA_BOTH static inline
#endif

// 1 / (1 + e^-x).
SP_I_CUDA_BOTH float sp_i_cuda_sigmoid(float x)
{
#ifdef __CUDA_ARCH__
    return __fdividef(1.0F, 1.0F + __expf(-x));
#else
    return 1.0F / (1.0F + expf(-x));
#endif
}

SP_I_CUDA_BOTH float sp_i_cuda_swiglu(float gate, float up)
{
    return gate * sp_i_cuda_sigmoid(gate) * up;
}

SP_I_CUDA_BOTH void sp_i_cuda_swiglu_backward(float gate, float up, float dy, float *dgate,
                                              float *dup)
{
    float s = sp_i_cuda_sigmoid(gate);
    *dup = dy * gate * s;
    *dgate = dy * up * s * (1.0F + gate * (1.0F - s));
}

#define SP_I_CUDA_GELU_SLOPE 0.79788456F // sqrt(2/pi)
#define SP_I_CUDA_GELU_CUBIC 0.044715F

SP_I_CUDA_BOTH float sp_i_cuda_gelu(float x)
{
    float u = SP_I_CUDA_GELU_SLOPE * (x + SP_I_CUDA_GELU_CUBIC * x * x * x);
    return x * sp_i_cuda_sigmoid(2.0F * u);
}

SP_I_CUDA_BOTH float sp_i_cuda_gelu_backward(float x, float dy)
{
    float square = x * x;
    float u = SP_I_CUDA_GELU_SLOPE * (x + SP_I_CUDA_GELU_CUBIC * square * x);
    float slope = SP_I_CUDA_GELU_SLOPE * (1.0F + 3.0F * SP_I_CUDA_GELU_CUBIC * square);
    float s = sp_i_cuda_sigmoid(2.0F * u);
    return dy * (s + x * s * (1.0F - s) * 2.0F * slope);
}

// An AdamW step of each parameter, in fp32.
typedef struct sp_i_cuda_adamw {
    float beta1, beta2, rest1, rest2;
    float rate;   // with the first moment's bias correction
    float unbias; // 1 / sqrt of the second's
    float keep;   // what weight decay leaves
    float epsilon, gradient_scale;
} sp_i_cuda_adamw;

SP_I_CUDA_BOTH void sp_i_cuda_adamw_update(const sp_i_cuda_adamw *a, float scale, float gradient,
                                           float *parameter, float *first, float *second)
{
    float g = scale * gradient;
    *first = a->beta1 * *first + a->rest1 * g;
    *second = a->beta2 * *second + a->rest2 * g * g;
    float size = sqrtf(*second) * a->unbias + a->epsilon;
    *parameter = a->keep * *parameter - a->rate * *first / size;
}

// ---- Sizes of launches ----

// Sizes of launches, as plain arithmetic that needs no device. C17 and C++; shared by the kernels.

enum {
    SP_I_CUDA_INVALID = 1,   // CUDA_ERROR_INVALID_VALUE
    SP_I_CUDA_THREADS = 256, // of a block that walks over elements
    SP_I_CUDA_SM_THREADS = 2048,
    SP_I_CUDA_ROW_THREADS = 512, // of a block that holds a row, at most
    SP_I_CUDA_COLUMNS = 256,     // that one block of column sums covers
    SP_I_CUDA_SLABS = 128        // of rows, at most, that column sums run over at a time
};

static inline int64_t sp_cuda_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t sp_i_cuda_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Can rows of `columns` elements of `bytes` each be read 16 bytes at a time, `vector` elements in a
// step?
static inline bool sp_i_cuda_aligned(const void *pointer, int64_t stride, int bytes)
{
    return (uintptr_t)pointer % 16 == 0 && stride * bytes % 16 == 0;
}

// How threads walk over `rows` rows of `per_row` items, `threads` items at a time in row order,
// without a division at each step.
typedef struct sp_i_cuda_walk {
    int64_t items, per_row;
    int64_t step_rows, step_items; // what a step adds: whole rows, and items of one row
} sp_i_cuda_walk;

static inline sp_i_cuda_walk sp_i_cuda_walk_of(int64_t rows, int64_t per_row, int64_t threads)
{
    sp_i_cuda_walk walk;
    walk.items = rows * per_row;
    walk.per_row = per_row;
    walk.step_rows = per_row > 0 ? threads / per_row : 0;
    walk.step_items = per_row > 0 ? threads % per_row : 0;
    return walk;
}

// Blocks of SP_I_CUDA_THREADS threads for `items` items at `unroll` a step: enough for all, or
// what the device holds at a time.
static inline int64_t sp_i_cuda_blocks(int64_t items, int unroll, int multiprocessors)
{
    int64_t full = (int64_t)multiprocessors * (SP_I_CUDA_SM_THREADS / SP_I_CUDA_THREADS);
    int64_t enough = sp_cuda_ceil(items, (int64_t)SP_I_CUDA_THREADS * unroll);
    return sp_i_cuda_least(enough, full > 0 ? full : 1);
}

// Threads of a block that holds a row of `vectors` vectors, `held` in each thread: whole warps.
static inline int sp_i_cuda_row_threads(int64_t vectors, int held)
{
    int64_t threads = sp_cuda_ceil(sp_cuda_ceil(vectors, held), 32) * 32;
    return (int)sp_i_cuda_least(threads < 32 ? 32 : threads, SP_I_CUDA_ROW_THREADS);
}

// Slabs that the rows of a column sum are cut into: about a thousand blocks, whatever the device.
static inline int64_t sp_i_cuda_slabs(int64_t rows, int64_t columns)
{
    int64_t across = sp_cuda_ceil(columns, SP_I_CUDA_COLUMNS);
    int64_t slabs = across > 0 ? sp_cuda_ceil(1024, across) : 1;
    slabs = sp_i_cuda_least(slabs, SP_I_CUDA_SLABS);
    slabs = sp_i_cuda_least(slabs, sp_cuda_ceil(rows, 32));
    return slabs > 0 ? slabs : 1;
}

#endif
