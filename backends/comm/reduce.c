// Sums and maxima of the members' elements, in the order of members.
#include <string.h>

#include "backends/comm/private.h"
#include "kernels/kernels.h"

// A block stays in the first cache while all members' elements are taken in.
enum { BLOCK_BYTES = 8192 };

typedef union block {
    float f32[BLOCK_BYTES / sizeof(float)];
    double f64[BLOCK_BYTES / sizeof(double)];
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

static void take(const sp_i_comm_call *call, int64_t count, const char *in, block *result)
{
    bool sum = call->op == SP_COMM_SUM;
    if (call->type == SP_COMM_F32) {
        (sum ? sp_kernel_add_f32 : max_f32)(count, (const void *)in, result->f32);
    } else {
        (sum ? sp_kernel_add_f64 : max_f64)(count, (const void *)in, result->f64);
    }
}

int64_t sp_i_comm_reduce(const sp_i_comm_group *group, uint64_t meeting, int64_t begin,
                         int64_t count, char *out)
{
    const sp_i_comm_call *first = sp_i_comm_call_at(group, 0, meeting);
    int64_t element = (int64_t)sp_comm_type_bytes(first->type);
    int64_t step = BLOCK_BYTES / element;
    for (int64_t done = 0; done < count; done += step) {
        int64_t at = (begin + done) * element;
        int64_t n = count - done < step ? count - done : step;
        size_t bytes = (size_t)(n * element);
        block result;
        memcpy(result.bytes, first->in + at, bytes);
        for (int j = 1; j < group->size; j++) {
            take(first, n, sp_i_comm_call_at(group, j, meeting)->in + at, &result);
        }
        if (out != NULL) {
            memcpy(out + done * element, result.bytes, bytes);
            continue;
        }
        for (int j = 0; j < group->size; j++) {
            memcpy(sp_i_comm_call_at(group, j, meeting)->out + at, result.bytes, bytes);
        }
    }
    return count * element * (out != NULL ? 1 : group->size);
}
