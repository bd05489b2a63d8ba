// Sums and maxima over members, against the same order in fp64.
#include "kernels/cuda_kernels.h"
#include "tests/gpu/kernels_test.h"

static const tensor_layout aligned = {0, 0};
static const tensor_layout shifted = {1, 0};

enum { ALL_ALIGNED, ALL_SHIFTED, SOME_SHIFTED, PLACES };

static double taken_in(bool maximum, double so_far, double next)
{
    if (!maximum) {
        return so_far + next;
    }
    return isnan(so_far) || isnan(next) ? (double)NAN : fmax(so_far, next);
}

static void launch(tensor_type type, bool maximum, int64_t n, const void *const *in, int members,
                   void *const *out, int outs)
{
    device_wait(type == TENSOR_BF16 ? sp_cuda_reduce_bf16(maximum, n, in, members, out, outs, NULL)
                : type == TENSOR_FP32
                    ? sp_cuda_reduce_fp32(maximum, n, in, members, out, outs, NULL)
                    : sp_cuda_reduce_fp64(maximum, n, in, members, out, outs, NULL));
}

// One rounding for bf16, members - 1 for fp32. One result takes the place of a member.
static void check(tensor_type type, bool maximum, int64_t n, int members, int places)
{
    const tensor_layout other = places == ALL_ALIGNED ? aligned : shifted;
    const tensor_layout odd = places == ALL_SHIFTED ? shifted : aligned;
    tensor in[SP_CUDA_REDUCE_MEMBERS] = {{.rows = 0}};
    const void *place[SP_CUDA_REDUCE_MEMBERS];
    for (int m = 0; m < members; m++) {
        in[m] = tensor_drawn(type, 1, n, m % 2 ? odd : other, 1);
        if (maximum) {
            in[m].value[n / 3] = m == 1 ? (double)NAN : 1;
            in[m].value[n / 2] = (double)-INFINITY;
            tensor_put(&in[m]);
        }
        place[m] = in[m].device;
    }
    double *expected = tensor_values(&in[0]);
    for (int m = 1; m < members; m++) {
        for (int64_t i = 0; i < n; i++) {
            expected[i] = taken_in(maximum, expected[i], in[m].value[i]);
        }
    }
    tensor apart = tensor_blank(type, 1, n, odd);
    tensor *inside = members > 1 ? &in[1] : &in[0];
    void *out[2] = {apart.device, inside->device};
    launch(type, maximum, n, place, members, out, 1);
    launch(type, maximum, n, place, members, out, 2);
    tensor_get(&apart);
    tensor_get(inside);
    for (int64_t i = 0; i < n; i++) {
        double bound = maximum               ? 0
                       : type == TENSOR_BF16 ? BF16_ROUNDING * fabs(expected[i]) + 1e-5
                       : type == TENSOR_FP32 ? members * members * 6e-8
                                             : members * members * 1e-15;
        if (isnan(expected[i])) {
            EXPECT(isnan(apart.value[i]) && isnan(inside->value[i]));
        } else {
            EXPECT(apart.value[i] == expected[i] || fabs(apart.value[i] - expected[i]) <= bound);
            EXPECT(inside->value[i] == apart.value[i]);
        }
    }
}

static void reduce_members(void)
{
    static const tensor_type types[] = {TENSOR_BF16, TENSOR_FP32, TENSOR_FP64};
    static const int64_t sizes[] = {1, 8, 37, 5000, 40003};
    static const int members[] = {1, 2, 3, 16, SP_CUDA_REDUCE_MEMBERS};
    for (int t = 0; t < 3; t++) {
        for (int s = 0; s < 5; s++) {
            for (int m = 0; m < 5; m++) {
                check(types[t], false, sizes[s], members[m], (m + s) % PLACES);
                check(types[t], true, sizes[s], members[m], (m + s + 1) % PLACES);
                tensor_free_all();
            }
        }
    }
    void *none[1] = {NULL};
    const void *const *no_members = (const void *const *)none;
    EXPECT(sp_cuda_reduce_fp32(false, 1, no_members, 0, none, 1, NULL) == 1);
    EXPECT(sp_cuda_reduce_fp32(false, 1, no_members, 1, none, 0, NULL) == 1);
    EXPECT(sp_cuda_reduce_fp64(false, 1, no_members, SP_CUDA_REDUCE_MEMBERS + 1, none, 1, NULL) ==
           1);
}

const kernel_case kernels_reduce_cases[] = {
    KERNEL_CASE(reduce_members),
    {NULL, NULL},
};
