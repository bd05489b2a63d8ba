// The operations in bf16 on the emulated device, with a cuBLASLt that computes, against the kernels
// of the CPU in fp64 on the same numbers. Results are within one rounding of the largest of their
// row, unless a case says otherwise.
#include "backends/cuda/runtime.h"
#include "backends/cuda/ops.h"
#include "kernels/kernels.h"
#include "tests/gpu/support/computing_cublas.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/gpu/support/ops_tensor.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"

static double expected[OPS_MOST];
static double expected2[OPS_MOST];
static double expected3[OPS_MOST];

// ---- cases ----

// Bias and product are rounded once: each sum to its own nearest, however small it is beside them.
TEST(a_bias_is_added_before_the_rounding)
{
    enum { TOKENS = 16, IN = 24, OUT = 40 };
    ops_begin();
    ops_tensor *x = ops_bf16(TOKENS, IN);
    ops_tensor *w = ops_bf16(OUT, IN);
    ops_tensor *b = ops_bf16(1, OUT);
    ops_tensor *y = ops_bf16(TOKENS, OUT);
    SP_OP(linear)(TOKENS, IN, OUT, x->data, w->data, b->data, y->data);
    sp_kernel_linear_f64(TOKENS, IN, OUT, x->value, IN, w->value, IN, b->value, expected, OUT);
    ops_check("linear with bias", y, expected);
    for (int i = 0; i < TOKENS * OUT; i++) {
        // Half of the last of 8 bits, and what fp32 rounded before.
        assert_within(y->value[i], expected[i], 1.0001 / 256 * fabs(expected[i]));
    }
    OPS_DROP(x, w, b, y);
    ops_end();
}

TEST(products_of_a_linear_layer)
{
    static const int64_t shapes[][3] = {{1, 8, 8}, {5, 24, 40}, {33, 7, 13}};
    ops_begin();
    for (int s = 0; s < 3; s++) {
        const int64_t tokens = shapes[s][0];
        const int64_t in = shapes[s][1];
        const int64_t out = shapes[s][2];
        ops_tensor *x = ops_bf16(tokens, in);
        ops_tensor *w = ops_bf16(out, in);
        ops_tensor *b = ops_bf16(1, out);
        ops_tensor *y = ops_bf16(tokens, out);
        SP_OP(linear)(tokens, in, out, x->data, w->data, NULL, y->data);
        sp_kernel_linear_f64(tokens, in, out, x->value, in, w->value, in, NULL, expected, out);
        ops_check("linear", y, expected);
        // Where no product adds a bias it is rounded, and then the sum.
        for (int64_t i = 0; i < tokens * out; i++) {
            expected[i] = y->value[i] + b->value[i % out];
        }
        computing.finds_no_bias = true;
        SP_OP(linear)(tokens, in, out, x->data, w->data, b->data, y->data);
        ops_check("linear and bias", y, expected);
        ops_tensor *dy = ops_bf16(tokens, out);
        ops_tensor *dx = ops_bf16(tokens, in);
        SP_OP(linear_backward_input)(tokens, in, out, dy->data, w->data, dx->data);
        sp_kernel_linear_backward_input_f64(tokens, in, out, dy->value, out, w->value, in, false,
                                            expected, in);
        ops_check("linear_backward_input", dx, expected);
        ops_tensor *dw = ops_fp32(out, in);
        ops_tensor *db = ops_fp32(1, out);
        double *to = ops_copy(dw);
        double *to_bias = ops_copy(db);
        for (int times = 0; times < 2; times++) {
            SP_OP(linear_backward_weight)
            (tokens, in, out, dy->data, x->data, dw->data, times == 0 ? db->data : NULL);
            sp_kernel_linear_backward_weight_f64(tokens, in, out, dy->value, out, x->value, in, to,
                                                 in, times == 0 ? to_bias : NULL);
        }
        ops_check("linear_backward_weight", dw, to);
        ops_check("linear_backward_weight's bias", db, to_bias);
        SP_OP(linear)(0, in, out, x->data, w->data, b->data, y->data);
        SP_OP(linear_backward_input)(0, in, out, dy->data, w->data, dx->data);
        SP_OP(linear_backward_weight)(0, in, out, dy->data, x->data, dw->data, db->data);
        ops_check("linear_backward_weight of no tokens", dw, to);
        OPS_DROP(x, w, b, y, dy, dx, dw, db);
    }
    ops_end();
}

TEST(norms_and_their_gradients)
{
    static const int64_t shapes[][2] = {{3, 8}, {17, 96}, {70, 33}};
    ops_begin();
    for (int s = 0; s < 3; s++) {
        const int64_t n = shapes[s][0];
        const int64_t h = shapes[s][1];
        ops_tensor *x = ops_bf16(n, h);
        ops_tensor *w = ops_bf16(1, h);
        ops_tensor *b = ops_bf16(1, h);
        ops_tensor *dy = ops_bf16(n, h);
        ops_tensor *y = ops_bf16(n, h);
        ops_tensor *mean = ops_fp32(n, 1);
        ops_tensor *rstd = ops_fp32(n, 1);
        ops_tensor *dw = ops_fp32(1, h);
        ops_tensor *db = ops_fp32(1, h);
        for (int layer = 0; layer < 2; layer++) {
            double *to = ops_copy(dw);
            double *to_bias = ops_copy(db);
            if (layer == 0) {
                SP_OP(rms_norm)(n, h, x->data, w->data, 1e-5, y->data, rstd->data);
                sp_kernel_rms_norm_f64(n, h, x->value, h, w->value, 1e-5, expected, h, expected3);
            } else {
                SP_OP(layer_norm)
                (n, h, x->data, w->data, b->data, 1e-5, y->data, mean->data, rstd->data);
                sp_kernel_layer_norm_f64(n, h, x->value, h, w->value, b->value, 1e-5, expected, h,
                                         expected2, expected3);
                ops_check("mean", mean, expected2);
            }
            ops_check("norm", y, expected);
            ops_check("rstd", rstd, expected3);
            if (layer == 0) {
                SP_OP(rms_norm_backward_input)
                (n, h, x->data, w->data, rstd->data, dy->data, y->data);
                SP_OP(rms_norm_backward_weight)(n, h, x->data, rstd->data, dy->data, dw->data);
                sp_kernel_rms_norm_backward_input_f64(n, h, x->value, h, w->value, expected3,
                                                      dy->value, h, expected, h);
                sp_kernel_rms_norm_backward_weight_f64(n, h, x->value, h, expected3, dy->value, h,
                                                       to);
            } else {
                SP_OP(layer_norm_backward_input)
                (n, h, x->data, w->data, mean->data, rstd->data, dy->data, y->data);
                SP_OP(layer_norm_backward_weight)
                (n, h, x->data, mean->data, rstd->data, dy->data, dw->data, db->data);
                sp_kernel_layer_norm_backward_input_f64(n, h, x->value, h, w->value, expected2,
                                                        expected3, dy->value, h, expected, h);
                sp_kernel_layer_norm_backward_weight_f64(n, h, x->value, h, expected2, expected3,
                                                         dy->value, h, to, to_bias);
                ops_check("a norm's bias gradient", db, to_bias);
            }
            ops_check("a norm's input gradient", y, expected);
            ops_check("a norm's weight gradient", dw, to);
        }
        OPS_DROP(x, w, b, dy, y, mean, rstd, dw, db);
    }
    ops_end();
}

TEST(activations_of_the_mlp)
{
    ops_begin();
    for (int64_t h = 24; h < 26; h++) {
        const int64_t n = 11;
        ops_tensor *x = ops_drawn(ops_runtime, true, n, 2 * h, 4.0);
        ops_tensor *dy = ops_bf16(n, h);
        ops_tensor *y = ops_bf16(n, h);
        ops_tensor *dx = ops_bf16(n, 2 * h);
        SP_OP(swiglu)(n, h, x->data, y->data);
        sp_kernel_swiglu_f64(n, h, x->value, x->value + h, 2 * h, expected, h);
        ops_check("swiglu", y, expected);
        SP_OP(swiglu_backward)(n, h, x->data, dy->data, dx->data);
        sp_kernel_swiglu_backward_f64(n, h, x->value, x->value + h, 2 * h, dy->value, h, expected,
                                      expected + h, 2 * h);
        ops_check("swiglu_backward", dx, expected);
        SP_OP(gelu)(n * h, x->data, y->data);
        sp_kernel_gelu_f64(n * h, x->value, expected);
        ops_check("gelu", y, expected);
        SP_OP(gelu_backward)(n * h, x->data, dy->data, y->data);
        sp_kernel_gelu_backward_f64(n * h, x->value, dy->value, expected);
        ops_check("gelu_backward", y, expected);
        OPS_DROP(x, dy, y, dx);
    }
    ops_end();
}

TEST(rotation_of_neighbouring_positions)
{
    enum { POSITIONS = 40, BEGIN = 13, TOKENS = 9, HEADS = 3, DIM = 16, HALF = DIM / 2 };
    ops_begin();
    ops_tensor *cosine = ops_fp32(POSITIONS, HALF);
    ops_tensor *sine = ops_fp32(POSITIONS, HALF);
    ops_tensor *x = ops_bf16(TOKENS, HEADS * DIM + 8);
    int64_t position[POSITIONS];
    for (int64_t p = 0; p < POSITIONS; p++) {
        position[p] = p;
    }
    SP_OP(rope_table)(POSITIONS, DIM, 500.0, cosine->data, sine->data);
    sp_kernel_rope_table_f64(POSITIONS, position, DIM, 500.0, expected, expected2);
    ops_check("cosines", cosine, expected);
    ops_check("sines", sine, expected2);
    for (int backward = 0; backward < 2; backward++) {
        double *turned = ops_copy(x);
        SP_OP(rope)
        (TOKENS, BEGIN, HEADS, DIM, cosine->data, sine->data, backward == 1, x->data,
         HEADS * DIM + 8);
        sp_kernel_rope_f64(TOKENS, HEADS, DIM, expected + BEGIN * HALF, expected2 + BEGIN * HALF,
                           backward == 1, turned, HEADS * DIM + 8);
        ops_check("rope", x, turned);
    }
    OPS_DROP(cosine, sine, x);
    ops_end();
}

// ---- arrays ----

TEST(plain_arrays)
{
    enum { ROWS = 7, COLUMNS = 24, WIDE = 40, N = ROWS * COLUMNS };
    ops_begin();
    ops_tensor *x = ops_bf16(ROWS, COLUMNS);
    ops_tensor *y = ops_bf16(ROWS, COLUMNS);
    ops_tensor *wide = ops_bf16(ROWS, WIDE);
    ops_tensor *fx = ops_fp32(ROWS, COLUMNS);
    ops_tensor *fy = ops_fp32(ROWS, COLUMNS);
    double *sum = ops_copy(y);
    sp_kernel_add_f64(N, x->value, sum);
    SP_OP(add)(N, x->data, y->data);
    ops_check("add", y, sum);
    sum = ops_copy(fy);
    sp_kernel_add_f64(N, fx->value, sum);
    SP_OP(add_exact)(N, fx->data, fy->data);
    ops_check("add_exact", fy, sum);
    double *inside = ops_copy(wide);
    sp_kernel_copy_rows_f64(ROWS, COLUMNS, x->value, COLUMNS, inside + 8, WIDE);
    SP_OP(copy_rows)(ROWS, COLUMNS, x->data, COLUMNS, (sp_bf16 *)wide->data + 8, WIDE);
    ops_check_rounded(ops_runtime, "copy_rows", wide, inside, 0.0);
    sp_kernel_copy_rows_f64(ROWS, COLUMNS, fx->value, COLUMNS, inside + 8, WIDE);
    SP_OP(round_rows)(ROWS, COLUMNS, fx->data, COLUMNS, (sp_bf16 *)wide->data + 8, WIDE);
    ops_check("round_rows", wide, inside);
    uint8_t keeps[N];
    uint8_t *mask = ops_runtime->ops->allocate(ops_runtime, sizeof keeps);
    for (int i = 0; i < N; i++) {
        keeps[i] = (uint8_t)ops_below(2);
        expected[i] = keeps[i] != 0 ? 1.25 * x->value[i] : 0.0;
    }
    ops_runtime->ops->upload(ops_runtime, mask, keeps, sizeof keeps);
    SP_OP(drop)(N, mask, 1.25, x->data, y->data);
    ops_check("drop", y, expected);
    SP_OP(drop)(N, mask, 1.25, x->data, x->data);
    ops_check("drop in place", x, expected);
    ops_runtime->ops->release(ops_runtime, mask);
    OPS_DROP(x, y, wide, fx, fy);
    ops_end();
}

TEST(a_step_of_the_optimizer)
{
    enum { N = 100 };
    const sp_kernel_adamw_step step = {.step = 3, ADAMW_SETTINGS, .gradient_scale = 0.5};
    ops_begin();
    ops_tensor *gradient = ops_fp32(1, N);
    ops_tensor *master = ops_fp32(1, N);
    ops_tensor *first = ops_fp32(1, N);
    ops_tensor *second = ops_fp32(1, N);
    ops_tensor *value = ops_bf16(1, N);
    for (int i = 0; i < N; i++) {
        second->value[i] = fabs(second->value[i]);
    }
    ops_put(ops_runtime, second);
    double *to = ops_copy(master);
    double *to_first = ops_copy(first);
    double *to_second = ops_copy(second);
    sp_kernel_adamw_f64(&step, N, gradient->value, to, to_first, to_second);
    SP_OP(adamw)
    (&step, N, gradient->data, master->data, first->data, second->data, value->data);
    ops_check("master", master, to);
    ops_check("first moment", first, to_first);
    ops_check("second moment", second, to_second);
    ops_check("value", value, to);
    for (int i = 0; i < N; i++) {
        assert_true(value->value[i] ==
                    (double)sp_bf16_to_float(sp_bf16_from_float((float)master->value[i])));
    }
    OPS_DROP(gradient, master, first, second, value);
    ops_end();
}

// ---- failures ----

TEST(a_product_that_fails_ends_the_ranks_work)
{
    ops_begin();
    ops_tensor *x = ops_bf16(8, 8);
    ops_tensor *y = ops_fp32(8, 8);
    const int64_t index[8] = {0};
    computing.fails = true;
    SP_OP(linear)(8, 8, 8, x->data, x->data, x->data, x->data);
    fake.log[0] = '\0';
    SP_OP(linear_backward_input)(8, 8, 8, x->data, x->data, x->data);
    SP_OP(linear_backward_weight)(8, 8, 8, x->data, x->data, y->data, y->data);
    SP_OP(rms_norm_backward_weight)(8, 8, x->data, y->data, x->data, y->data);
    SP_OP(embedding)(8, 8, index, 0, 8, x->data, false, x->data);
    SP_OP(embedding_backward_weight)(8, 8, index, 0, 8, x->data, y->data);
    SP_OP(cross_entropy)(8, 8, x->data, index, 1.0, y->data, x->data);
    SP_OP(add)(64, x->data, x->data);
    assert_string_equal(fake.log, "");
    assert_int_equal(computing.products, 1);
    must_fail(ops_runtime->ops->synchronize(ops_runtime, ERR), SP_ERR_INTERNAL,
              "GPU 0: cublasLtMatmul failed with "
              "CUBLAS_STATUS_EXECUTION_FAILED for a forward of 8 x 8 x 8");
    OPS_DROP(x, y);
    sp_i_cuda_runtime_free(ops_runtime);
}
