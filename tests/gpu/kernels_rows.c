// Rows that are copied (exactly), turned by their position, or looked up in a table.
#include "kernels/cuda_kernels.h"
#include "tests/gpu/kernels_test.h"

static const tensor_layout plain = {0, 0};

static void copies(void)
{
    for (int l = 0; l < TENSOR_LAYOUTS; l++) {
        tensor from = tensor_drawn(TENSOR_BF16, 31, 72, tensor_layouts[l], 1);
        tensor to = tensor_blank(TENSOR_BF16, 31, 72, tensor_layouts[(l + 1) % TENSOR_LAYOUTS]);
        double *expected = tensor_zeros(31 * to.stride);
        sp_kernel_copy_rows_f64(31, 72, from.value, from.stride, expected, to.stride);
        device_wait(sp_cuda_copy_rows(31, 72, BF16(from), from.stride, BF16(to), to.stride, NULL));
        tensor_check("copy_rows", &to, expected, 0, 0);
    }
}

enum { POSITIONS = 50 };

static void check_rope_table(int64_t head_dim, double base, tensor *cosine, tensor *sine)
{
    int64_t half = head_dim / 2;
    *cosine = tensor_blank(TENSOR_FP32, POSITIONS, half, plain);
    *sine = tensor_blank(TENSOR_FP32, POSITIONS, half, plain);
    double *expected_cosine = tensor_zeros(POSITIONS * half);
    double *expected_sine = tensor_zeros(POSITIONS * half);
    int64_t positions[POSITIONS];
    for (int64_t p = 0; p < POSITIONS; p++) {
        positions[p] = p;
    }
    sp_kernel_rope_table_f64(POSITIONS, positions, head_dim, base, expected_cosine, expected_sine);
    device_wait(sp_cuda_rope_table(POSITIONS, head_dim, base, FP32(*cosine), FP32(*sine), NULL));
    tensor_check("rope_table's cosines", cosine, expected_cosine, 0, 6e-8);
    tensor_check("rope_table's sines", sine, expected_sine, 0, 6e-8);
}

// Tokens at positions of their own, or at neighbouring ones.
static void check_rope(int64_t heads, int64_t head_dim, tensor_layout layout, bool backward,
                       bool neighbours)
{
    enum { TOKENS = 17, BEGIN = 21 };
    int64_t half = head_dim / 2;
    tensor cosine, sine;
    check_rope_table(head_dim, 10000, &cosine, &sine);
    tensor position = tensor_drawn(TENSOR_INT64, 1, TOKENS, plain, 0);
    tensor x = tensor_drawn(TENSOR_BF16, TOKENS, heads * head_dim, layout, 1);
    double *expected = tensor_values(&x);
    for (int64_t t = 0; t < TOKENS; t++) {
        int64_t at = neighbours ? BEGIN + t : tensor_below(POSITIONS);
        position.value[t] = (double)at;
        sp_kernel_rope_f64(1, heads, head_dim, cosine.value + at * half, sine.value + at * half,
                           backward, expected + t * x.stride, x.stride);
    }
    tensor_put(&position);
    device_wait(neighbours ? sp_cuda_rope_run(TOKENS, BEGIN, heads, head_dim, FP32(cosine),
                                              FP32(sine), backward, BF16(x), x.stride, NULL)
                           : sp_cuda_rope(TOKENS, heads, head_dim, INT64(position), FP32(cosine),
                                          FP32(sine), backward, BF16(x), x.stride, NULL));
    tensor_check("rope", &x, expected, BF16_ROUNDING, 1e-6);
}

static void rope(void)
{
    static const int64_t dims[] = {2, 6, 16, 64, 80, 128};
    for (int d = 0; d < 6; d++) {
        for (int l = 0; l < TENSOR_LAYOUTS; l++) {
            check_rope(3, dims[d], tensor_layouts[l], l == 1, false);
            check_rope(2, dims[d], tensor_layouts[l], l == 2, true);
        }
    }
}

// A rank that holds the rows [10, 40) of 50; some tokens stand often, some never.
enum { TOKENS = 150, FIRST = 10, ROWS = 30, INDICES = 50 };

static tensor draw_index(int64_t *on_host)
{
    tensor index = tensor_drawn(TENSOR_INT64, 1, TOKENS, plain, 0);
    for (int64_t t = 0; t < TOKENS; t++) {
        on_host[t] = t % 3 == 0 ? 12 : tensor_below(INDICES);
        index.value[t] = (double)on_host[t];
    }
    tensor_put(&index);
    return index;
}

static void embedding(void)
{
    for (int l = 0; l < 2 * TENSOR_LAYOUTS; l++) {
        int64_t features = l % 2 ? 24 : 13;
        int64_t on_host[TOKENS];
        tensor index = draw_index(on_host);
        tensor table = tensor_drawn(TENSOR_BF16, ROWS, features, plain, 1);
        tensor y = tensor_blank(TENSOR_BF16, TOKENS, features, tensor_layouts[l / 2]);
        double *expected = tensor_zeros(TOKENS * y.stride);
        sp_kernel_embedding_f64(TOKENS, features, on_host, FIRST, ROWS, table.value, false,
                                expected, y.stride);
        device_wait(sp_cuda_embedding(TOKENS, features, INT64(index), FIRST, ROWS, BF16(table),
                                      false, BF16(y), y.stride, NULL));
        tensor_check("embedding", &y, expected, 0, 0);
        sp_kernel_embedding_f64(TOKENS, features, on_host, FIRST, ROWS, table.value, true, expected,
                                y.stride);
        device_wait(sp_cuda_embedding(TOKENS, features, INT64(index), FIRST, ROWS, BF16(table),
                                      true, BF16(y), y.stride, NULL));
        tensor_check("embedding added", &y, expected, BF16_ROUNDING, 0);
    }
}

static void embedding_gradient(void)
{
    for (int l = 0; l < 2 * TENSOR_LAYOUTS; l++) {
        int64_t features = l % 2 ? 1032 : 13;
        int64_t on_host[TOKENS], order_host[TOKENS], scratch[TOKENS];
        tensor index = draw_index(on_host);
        tensor order = tensor_drawn(TENSOR_INT64, 1, TOKENS, plain, 0);
        sp_cuda_embedding_order(TOKENS, on_host, order_host, scratch);
        for (int64_t t = 0; t < TOKENS; t++) {
            order.value[t] = (double)order_host[t];
        }
        tensor_put(&order);
        tensor dy = tensor_drawn(TENSOR_BF16, TOKENS, features, tensor_layouts[l / 2], 1);
        tensor dtable = tensor_drawn(TENSOR_FP32, ROWS, features, plain, 1);
        double *expected = tensor_values(&dtable);
        sp_kernel_embedding_backward_weight_f64(TOKENS, features, on_host, FIRST, ROWS, dy.value,
                                                dy.stride, expected);
        device_wait(sp_cuda_embedding_backward_weight(TOKENS, features, INT64(index), INT64(order),
                                                      FIRST, ROWS, BF16(dy), dy.stride,
                                                      FP32(dtable), NULL));
        tensor_check("embedding_backward_weight", &dtable, expected, 1e-6, 1e-5);
    }
}

const kernel_case kernels_rows_cases[] = {
    KERNEL_CASE(copies), KERNEL_CASE(rope), KERNEL_CASE(embedding), KERNEL_CASE(embedding_gradient),
    {NULL, NULL},
};
