// Loops over rows that the kernels share: the exponential against the C library's, sums against
// plain loops.
#include "tests/support/kernels/tensors.h"
#include "tests/support/test_main.h"

#define SP_KERNEL_BITS 32
#include "kernels/vector.h"
#undef SP_KERNEL_BITS

#define SP_KERNEL_BITS 64
#include "kernels/vector.h"
#undef SP_KERNEL_BITS

TEST(exponential_in_fp64)
{
    for (int i = -69900; i <= 69900; i++) {
        double x = i * 0.01012345;
        double exact = exp(x);
        assert_within(sp_i_kernel_exp_f64(x), exact, 2.0 * 0x1p-52 * exact);
    }
}

TEST(exponential_in_fp32)
{
    for (int i = -79900; i <= 79900; i++) {
        float x = (float)i * 0.001087654F;
        double exact = exp((double)x);
        assert_within((double)sp_i_kernel_exp_f32(x), exact, 2.0 * 0x1p-23 * exact);
    }
}

TEST(exponential_at_its_ends)
{
    assert_true(sp_i_kernel_exp_f64(0.0) == 1.0);
    assert_true(sp_i_kernel_exp_f64(-INFINITY) == 0.0);
    assert_true(sp_i_kernel_exp_f64(-1e300) == 0.0);
    assert_true(isnan(sp_i_kernel_exp_f64(NAN)));
    assert_true(sp_i_kernel_exp_f64(INFINITY) > 1e307);
    assert_true(sp_i_kernel_exp_f32(0.0F) == 1.0F);
    assert_true(sp_i_kernel_exp_f32(-INFINITY) == 0.0F);
    assert_true(sp_i_kernel_exp_f32(-1e30F) == 0.0F);
    assert_true(isnan(sp_i_kernel_exp_f32(NAN)));
    assert_true(sp_i_kernel_exp_f32(INFINITY) > 1e38F);
}

static void check_rows_of(tensors *all, int64_t n)
{
    tensor x = tensor_random(all, n);
    tensor y = tensor_random(all, n);
    tensor z = tensor_random(all, n);
    double max = x.d[0];
    double sums[5] = {0};
    for (int64_t i = 0; i < n; i++) {
        max = fmax(max, x.d[i]);
        sums[0] += x.d[i];
        sums[1] += x.d[i] * y.d[i];
        sums[2] += x.d[i] * y.d[i] * z.d[i];
        sums[3] += exp(x.d[i] - 0.5);
        sums[4] += exp(y.d[i] + 0.25);
    }
    assert_true(sp_i_kernel_row_max_f64(n, x.d) == max);
    assert_true((double)sp_i_kernel_row_max_f32(n, x.f) == max);
    double found[5] = {sp_i_kernel_row_sum_f64(n, x.d), sp_i_kernel_row_dot_f64(n, x.d, y.d),
                       sp_i_kernel_row_dot3_f64(n, x.d, y.d, z.d),
                       sp_i_kernel_row_sum_exp_f64(n, x.d, 0.5),
                       sp_i_kernel_row_exp_sum_f64(n, y.d, -0.25)};
    assert_near_rows(found, sums, 5, 1e-14);
    double found_f32[5] = {(double)sp_i_kernel_row_sum_f32(n, x.f),
                           (double)sp_i_kernel_row_dot_f32(n, x.f, y.f),
                           (double)sp_i_kernel_row_dot3_f32(n, x.f, y.f, z.f),
                           (double)sp_i_kernel_row_sum_exp_f32(n, x.f, 0.5F),
                           (double)sp_i_kernel_row_exp_sum_f32(n, y.f, -0.25F)};
    assert_near_rows(found_f32, sums, 5, 1e-6);
    assert_types_agree(y, 1e-6);
}

TEST(rows_of_any_length)
{
    for (int64_t n = 1; n < 70; n++) {
        AUTO(tensors) all;
        tensors_init(&all, (uint64_t)n);
        check_rows_of(&all, n);
    }
}

TEST(rows_changed_in_place)
{
    AUTO(tensors) all;
    tensors_init(&all, 7);
    tensor x = tensor_random(&all, 53);
    tensor kept = tensor_copy(&all, x);
    tensor expected = tensor_zero(&all, x.n);
    sp_i_kernel_row_exp_f64(x.n, x.d, 0.75, 3.0);
    sp_i_kernel_row_exp_f32(x.n, x.f, 0.75F, 3.0F);
    sp_i_kernel_row_scale_f64(x.n, -2.0, x.d);
    sp_i_kernel_row_scale_f32(x.n, -2.0F, x.f);
    sp_i_kernel_row_add_f64(x.n, kept.d, x.d);
    sp_i_kernel_row_add_f32(x.n, kept.f, x.f);
    for (int64_t i = 0; i < x.n; i++) {
        expected.d[i] = kept.d[i] - 6.0 * exp(kept.d[i] - 0.75);
    }
    assert_near_rows(x.d, expected.d, x.n, 1e-15);
    assert_types_agree(x, 1e-6);
}
