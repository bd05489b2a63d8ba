// Sums and maxima of the members' elements, in the order of members.
#include "backends/host/cpu_reduce.h"

#include <string.h>

#include "kernels/bf16.h"
#include "kernels/kernels.h"

// A block stays in the first cache while all members' elements are taken in.
enum { BLOCK_BYTES = 8192 };

typedef union block {
    float f32[BLOCK_BYTES / sizeof(float)];
    double f64[BLOCK_BYTES / sizeof(double)];
    sp_bf16 bf16[BLOCK_BYTES / sizeof(sp_bf16)];
    char bytes[BLOCK_BYTES];
} block;

// Not larger and not equal is a NaN in one of the two; the sum of both keeps it.
static void max_f32(int64_t count, const float *restrict in, float *restrict max)
{
    for (int64_t i = 0; i < count; i++) {
        max[i] = in[i] > max[i] ? in[i] : in[i] <= max[i] ? max[i] : in[i] + max[i];
    }
}

static void max_f64(int64_t count, const double *restrict in, double *restrict max)
{
    for (int64_t i = 0; i < count; i++) {
        max[i] = in[i] > max[i] ? in[i] : in[i] <= max[i] ? max[i] : in[i] + max[i];
    }
}

static void widen(int64_t count, const sp_bf16 *in, float *out)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = sp_bf16_to_float(in[i]);
    }
}

// Of elements from `first` on.
static void reduce_bf16(bool maximum, int64_t first, int64_t count, const void *const *in,
                        int members, sp_bf16 *result)
{
    float sum[BLOCK_BYTES / sizeof(sp_bf16)];
    float next[BLOCK_BYTES / sizeof(sp_bf16)];
    widen(count, (const sp_bf16 *)in[0] + first, sum);
    for (int j = 1; j < members; j++) {
        widen(count, (const sp_bf16 *)in[j] + first, next);
        (maximum ? max_f32 : sp_kernel_add_f32)(count, next, sum);
    }
    for (int64_t i = 0; i < count; i++) {
        result[i] = sp_bf16_from_float(sum[i]);
    }
}

static void take(sp_element element, bool maximum, int64_t count, const void *in, block *result)
{
    if (element == SP_ELEMENT_F32) {
        (maximum ? max_f32 : sp_kernel_add_f32)(count, in, result->f32);
    } else {
        (maximum ? max_f64 : sp_kernel_add_f64)(count, in, result->f64);
    }
}

void sp_i_cpu_reduce(sp_element element, bool maximum, int64_t count, const void *const *in,
                     int members, void *const *out, int outs)
{
    int64_t size = sp_element_bytes(element);
    int64_t step = BLOCK_BYTES / size;
    SP_ASSERT(element != SP_ELEMENT_BYTE);
    for (int64_t done = 0; done < count; done += step) {
        int64_t n = count - done < step ? count - done : step;
        size_t bytes = (size_t)(n * size);
        block result;
        if (element == SP_ELEMENT_BF16) {
            reduce_bf16(maximum, done, n, in, members, result.bf16);
        } else {
            memcpy(result.bytes, (const char *)in[0] + done * size, bytes);
            for (int j = 1; j < members; j++) {
                take(element, maximum, n, (const char *)in[j] + done * size, &result);
            }
        }
        for (int k = 0; k < outs; k++) {
            memcpy((char *)out[k] + done * size, result.bytes, bytes);
        }
    }
}
