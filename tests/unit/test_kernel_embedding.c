// Embedding rows: lookup, its transpose, and a table that is split over ranks.
#include "kernels/kernels.h"
#include "tests/support/kernels/tensors.h"
#include "tests/support/test_main.h"

enum { TOKENS = 6, FEATURES = 5, ROWS = 9, STRIDE = 7 };
static const int64_t index_of[TOKENS] = {3, 0, 8, 3, 5, 3};

TEST(rows_are_copied)
{
    AUTO(tensors) all;
    tensors_init(&all, 23);
    tensor table = tensor_random(&all, ROWS * FEATURES);
    tensor y = tensor_random(&all, TOKENS * STRIDE);
    tensor expected = tensor_copy(&all, y);
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < FEATURES; i++) {
            expected.d[t * STRIDE + i] = table.d[index_of[t] * FEATURES + i];
        }
    }
    sp_kernel_embedding_f64(TOKENS, FEATURES, index_of, 0, ROWS, table.d, false, y.d, STRIDE);
    sp_kernel_embedding_f32(TOKENS, FEATURES, index_of, 0, ROWS, table.f, false, y.f, STRIDE);
    assert_near_rows(y.d, expected.d, y.n, 0.0);
    assert_types_agree(y, 0.0);
}

// GPT-2: the row of the token plus the row of its position.
TEST(positions_on_top_of_tokens)
{
    static const int64_t position[TOKENS] = {0, 1, 2, 0, 1, 2};
    AUTO(tensors) all;
    tensors_init(&all, 29);
    tensor table = tensor_random(&all, ROWS * FEATURES);
    tensor positions = tensor_random(&all, 3 * FEATURES);
    tensor y = tensor_random(&all, TOKENS * FEATURES);
    sp_kernel_embedding_f64(TOKENS, FEATURES, index_of, 0, ROWS, table.d, false, y.d, FEATURES);
    sp_kernel_embedding_f64(TOKENS, FEATURES, position, 0, 3, positions.d, true, y.d, FEATURES);
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < FEATURES; i++) {
            double sum =
                table.d[index_of[t] * FEATURES + i] + positions.d[position[t] * FEATURES + i];
            assert_true(y.d[t * FEATURES + i] == sum);
        }
    }
}

TEST(ranks_add_up_to_the_whole)
{
    AUTO(tensors) all;
    tensors_init(&all, 31);
    tensor table = tensor_random(&all, ROWS * FEATURES);
    tensor whole = tensor_zero(&all, TOKENS * FEATURES);
    tensor part = tensor_random(&all, TOKENS * FEATURES);
    tensor sum = tensor_zero(&all, TOKENS * FEATURES);
    sp_kernel_embedding_f64(TOKENS, FEATURES, index_of, 0, ROWS, table.d, false, whole.d, FEATURES);
    static const int64_t first[3] = {0, 4, 6};
    static const int64_t rows[3] = {4, 2, 3};
    for (int r = 0; r < 3; r++) {
        const double *local = table.d + first[r] * FEATURES;
        sp_kernel_embedding_f64(TOKENS, FEATURES, index_of, first[r], rows[r], local, false, part.d,
                                FEATURES);
        sp_kernel_add_f64(sum.n, part.d, sum.d);
    }
    assert_near_rows(sum.d, whole.d, whole.n, 0.0);
}

// <E(table), dy> = <table, E^T(dy)>, whole and on the rows that a rank holds.
TEST(gradient_is_the_transpose)
{
    AUTO(tensors) all;
    tensors_init(&all, 37);
    tensor table = tensor_random(&all, ROWS * FEATURES);
    tensor dy = tensor_random(&all, TOKENS * FEATURES);
    tensor y = tensor_zero(&all, TOKENS * FEATURES);
    tensor dtable = tensor_zero(&all, ROWS * FEATURES);
    tensor local = tensor_zero(&all, 3 * FEATURES);
    sp_kernel_embedding_f64(TOKENS, FEATURES, index_of, 0, ROWS, table.d, false, y.d, FEATURES);
    sp_kernel_embedding_backward_weight_f64(TOKENS, FEATURES, index_of, 0, ROWS, dy.d, FEATURES,
                                            dtable.d);
    sp_kernel_embedding_backward_weight_f32(TOKENS, FEATURES, index_of, 0, ROWS, dy.f, FEATURES,
                                            dtable.f);
    double forward = dot_of(y.d, dy.d, y.n);
    assert_within(forward, dot_of(table.d, dtable.d, table.n), 1e-14 * fabs(forward));
    assert_types_agree(dtable, 1e-6);
    sp_kernel_embedding_backward_weight_f64(TOKENS, FEATURES, index_of, 3, 3, dy.d, FEATURES,
                                            local.d);
    assert_near_rows(local.d, dtable.d + 3 * FEATURES, local.n, 0.0);
}
