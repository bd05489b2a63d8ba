// Attention against its definition over every pair in fp64. Probabilities and score gradients are
// rounded to bf16 on their way into a product, so every element may be off by 1 % of the largest
// beside its own rounding; tensors as a whole by 0.5 % of their norm.

#include "tests/gpu/kernels_test.h"

static const double ELEMENT_SHARE = 0.01;
static const double NORM_SHARE = 0.005;

static void check_tensor(const char *what, tensor *t, const double *expected)
{
    tensor_check_share(what, t, expected, BF16_ROUNDING, ELEMENT_SHARE);
    double norm = 0, error = 0;
    for (int64_t r = 0; r < t->rows; r++) {
        for (int64_t i = r * t->stride; i < r * t->stride + t->columns; i++) {
            norm += expected[i] * expected[i];
            error += (t->value[i] - expected[i]) * (t->value[i] - expected[i]);
        }
    }
    if (error > NORM_SHARE * NORM_SHARE * norm) {
        fprintf(stderr, "%s: relative error %.3g of the whole\n", what, sqrt(error / norm));
        exit(1);
    }
}

static void check_all(attention_pack *p)
{
    for (int64_t s = 0; s < p->slice_count; s++) {
        check_tensor("attention", &p->out[s], p->expected_out[s]);
        tensor_check("attention's lse", &p->lse[s], p->expected_lse[s], 1e-6, 5e-5);
        check_tensor("attention's dq", &p->dq[s], p->expected_dq[s]);
    }
    for (int64_t b = 0; b < p->key_count; b++) {
        check_tensor("attention's dk", &p->dk[b], p->expected_dk[b]);
        check_tensor("attention's dv", &p->dv[b], p->expected_dv[b]);
    }
}

static void check_pack(attention_pack *p)
{
    attention_fill(p);
    attention_show(p);
    device_wait(sp_cuda_attention_forward(&p->shape, &p->tables, NULL));
    device_wait(sp_cuda_attention_delta(&p->shape, &p->tables, NULL));
    device_wait(sp_cuda_attention_backward_queries(&p->shape, &p->tables, NULL));
    device_wait(sp_cuda_attention_backward_keys(&p->shape, &p->tables, NULL));
    check_all(p);
}

static void check_sample(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t tokens)
{
    attention_pack p = {.shape = {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim},
                        .samples = 1,
                        .slice_count = 1,
                        .key_count = 1,
                        .slices = {{0, 0, tokens}},
                        .keys = {{0, 0, tokens}}};
    check_pack(&p);
}

static void attention_sizes(void)
{
    static const int64_t tokens[] = {1, 15, 16, 64, 65, 128, 129, 200};
    for (int i = 0; i < 8; i++) {
        check_sample(1, 1, 64, tokens[i]);
    }
}

static void attention_head_dims(void)
{
    static const int64_t dims[] = {8, 40, 64, 72, 96, 128};
    for (int i = 0; i < 6; i++) {
        check_sample(2, 1, dims[i], 70);
    }
    check_sample(1, 1, 128, 150);
}

static void attention_grouped_heads(void)
{
    check_sample(6, 2, 64, 100);
    check_sample(4, 4, 16, 100);
}

// Slices of several samples in one pack, two of one sample among them; the keys of a sample in
// blocks of any length, one of them not yet visible to the early slice.
static void attention_of_a_pack(void)
{
    attention_pack p = {
        .shape = {.heads = 2, .kv_heads = 1, .head_dim = 64},
        .samples = 3,
        .slice_count = 4,
        .key_count = 6,
        .slices = {{0, 130, 75}, {1, 0, 3}, {2, 20, 60}, {2, 150, 40}},
        .keys = {{0, 0, 130}, {0, 130, 75}, {1, 0, 3}, {2, 0, 20}, {2, 20, 130}, {2, 150, 40}}};
    check_pack(&p);
}

// Blocks in an order in which the first query sees nothing at first.
static void attention_of_unsorted_blocks(void)
{
    attention_pack p = {
        .shape = {.heads = 2, .kv_heads = 2, .head_dim = 64},
        .samples = 2,
        .slice_count = 2,
        .key_count = 6,
        .slices = {{0, 0, 140}, {1, 50, 30}},
        .keys = {{0, 70, 70}, {0, 0, 70}, {0, 200, 9}, {1, 0, 40}, {1, 60, 20}, {1, 40, 20}}};
    check_pack(&p);
    attention_pack wide = {.shape = {.heads = 1, .kv_heads = 1, .head_dim = 128},
                           .samples = 1,
                           .slice_count = 1,
                           .key_count = 2,
                           .slices = {{0, 10, 30}},
                           .keys = {{0, 20, 20}, {0, 0, 20}}};
    check_pack(&wide);
}

const kernel_case kernels_attention_cases[] = {
    KERNEL_CASE(attention_sizes),
    KERNEL_CASE(attention_head_dims),
    KERNEL_CASE(attention_grouped_heads),
    KERNEL_CASE(attention_of_a_pack),
    KERNEL_CASE(attention_of_unsorted_blocks),
    {NULL, NULL},
};
