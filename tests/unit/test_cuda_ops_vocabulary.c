// Embedding and loss in bf16 on the emulated device, against the kernels
// of the CPU in fp64 on the same numbers. Results are within one rounding of the largest of their
// row, unless a case says otherwise.
#include "backends/cuda/ops.h"
#include "kernels/kernels.h"
#include "tests/gpu/support/ops_tensor.h"
#include "tests/support/test_main.h"

static double expected[OPS_MOST];
static double expected2[OPS_MOST];

// A rank that holds the rows [10, 30) of a table of 40.
TEST(embedding_of_a_rank)
{
    enum { TOKENS = 60, FIRST = 10, ROWS = 20, H = 24 };
    ops_begin();
    ops_tensor *table = ops_bf16(ROWS, H);
    ops_tensor *y = ops_bf16(TOKENS, H);
    ops_tensor *dtable = ops_fp32(ROWS, H);
    int64_t index[TOKENS];
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        double *sum = ops_copy(y);
        for (int t = 0; t < TOKENS; t++) {
            index[t] = t % 4 == 0 ? 12 : ops_below(40);
        }
        sp_kernel_embedding_f64(TOKENS, H, index, FIRST, ROWS, table->value, accumulate == 1, sum,
                                H);
        SP_OP(embedding)
        (TOKENS, H, index, FIRST, ROWS, table->data, accumulate == 1, y->data);
        // The indices are the caller's again.
        int64_t kept[TOKENS];
        memcpy(kept, index, sizeof kept);
        memset(index, 0x7f, sizeof index);
        ops_check("embedding", y, sum);
        double *gradient = ops_copy(dtable);
        sp_kernel_embedding_backward_weight_f64(TOKENS, H, kept, FIRST, ROWS, y->value, H,
                                                gradient);
        SP_OP(embedding_backward_weight)
        (TOKENS, H, kept, FIRST, ROWS, y->data, dtable->data);
        SP_OP(embedding_backward_weight)(0, H, kept, FIRST, ROWS, y->data, dtable->data);
        ops_check("embedding_backward_weight", dtable, gradient);
    }
    OPS_DROP(table, y, dtable);
    ops_end();
}

// ---- the loss ----

enum { LOSS_TOKENS = 9 };

static void draw_targets(int64_t vocab, int64_t *target)
{
    for (int t = 0; t < LOSS_TOKENS; t++) {
        target[t] = t % 4 == 3 ? -1 : ops_below(vocab);
    }
}

static double loss_of(const double *loss)
{
    double value;
    ops_runtime->ops->download(ops_runtime, &value, loss, sizeof value);
    return value;
}

TEST(loss_of_a_whole_vocabulary)
{
    ops_begin();
    for (int64_t vocab = 39; vocab < 41; vocab++) {
        int64_t target[LOSS_TOKENS];
        ops_tensor *logits = ops_drawn(ops_runtime, true, LOSS_TOKENS, vocab, 5.0);
        ops_tensor *lse = ops_fp32(LOSS_TOKENS, 1);
        double *loss = ops_runtime->ops->allocate(ops_runtime, sizeof *loss);
        draw_targets(vocab, target);
        ops_runtime->ops->zero(ops_runtime, loss, sizeof *loss);
        double once = sp_kernel_cross_entropy_f64(LOSS_TOKENS, vocab, logits->value, vocab, target,
                                                  NULL, 20.0, expected2);
        SP_OP(cross_entropy)
        (LOSS_TOKENS, vocab, logits->data, target, 20.0, lse->data, loss);
        assert_within(loss_of(loss), once, 1e-5 * once);
        SP_OP(cross_entropy)
        (LOSS_TOKENS, vocab, logits->data, target, 20.0, lse->data, loss);
        assert_within(loss_of(loss), 2.0 * once, 2.0 * 1e-5 * once);
        ops_check("lse", lse, expected2);
        sp_kernel_cross_entropy_backward_f64(LOSS_TOKENS, vocab, 0, logits->value, vocab, target,
                                             NULL, 20.0, expected2, expected, vocab);
        SP_OP(cross_entropy_backward)
        (LOSS_TOKENS, vocab, 0, logits->data, vocab, target, 20.0, lse->data);
        ops_check("cross_entropy_backward", logits, expected);
        ops_runtime->ops->release(ops_runtime, loss);
        OPS_DROP(logits, lse);
    }
    ops_end();
}

// Three ranks' columns in rows of 32: full, with padding behind, and padding alone.
TEST(loss_of_a_vocabulary_in_parts)
{
    enum { RANKS = 3, WIDTH = 32, VOCAB = 51 };
    static const int64_t columns[RANKS] = {WIDTH, VOCAB - WIDTH, 0};
    int64_t target[LOSS_TOKENS];
    ops_tensor *logits[RANKS];
    ops_tensor *numbers[RANKS]; // maxima, sums, targets' logits
    const void *part[RANKS];
    static double whole[LOSS_TOKENS * VOCAB];
    ops_begin();
    draw_targets(VOCAB, target);
    for (int r = 0; r < RANKS; r++) {
        logits[r] = ops_drawn(ops_runtime, true, LOSS_TOKENS, WIDTH, 5.0);
        numbers[r] = ops_fp32(3, LOSS_TOKENS);
        part[r] = numbers[r]->data;
        for (int t = 0; t < LOSS_TOKENS; t++) {
            for (int64_t c = columns[r]; c < WIDTH; c++) {
                logits[r]->value[t * WIDTH + c] = (double)NAN;
            }
            memcpy(whole + t * VOCAB + (columns[r] > 0 ? r * WIDTH : 0),
                   logits[r]->value + t * WIDTH, (size_t)columns[r] * sizeof *whole);
        }
        ops_put(ops_runtime, logits[r]);
        SP_OP(cross_entropy_max)
        (LOSS_TOKENS, columns[r], logits[r]->data, WIDTH, numbers[r]->data);
    }
    ops_tensor *max = ops_fp32(1, LOSS_TOKENS);
    ops_tensor *sums = ops_fp32(2, LOSS_TOKENS);
    ops_tensor *lse = ops_fp32(LOSS_TOKENS, 1);
    double *loss = ops_runtime->ops->allocate(ops_runtime, sizeof *loss);
    ops_runtime->ops->zero(ops_runtime, loss, sizeof *loss);
    ops_runtime->ops->reduce(ops_runtime, SP_EXACT_ELEMENT, true, LOSS_TOKENS, part, RANKS,
                             &max->data, 1);
    for (int r = 0; r < RANKS; r++) {
        float *to = (float *)numbers[r]->data + LOSS_TOKENS;
        part[r] = to;
        SP_OP(cross_entropy_sums)
        (LOSS_TOKENS, columns[r], r * WIDTH, logits[r]->data, WIDTH, target, max->data, to,
         to + LOSS_TOKENS);
    }
    ops_runtime->ops->reduce(ops_runtime, SP_EXACT_ELEMENT, false, 2 * LOSS_TOKENS, part, RANKS,
                             &sums->data, 1);
    SP_OP(cross_entropy_loss)
    (LOSS_TOKENS, target, 20.0, max->data, sums->data, (float *)sums->data + LOSS_TOKENS, lse->data,
     loss);
    double once = sp_kernel_cross_entropy_f64(LOSS_TOKENS, VOCAB, whole, VOCAB, target, NULL, 20.0,
                                              expected2);
    assert_within(loss_of(loss), once, 1e-5 * once);
    ops_check("lse of parts", lse, expected2);
    for (int r = 0; r < RANKS; r++) {
        memset(expected, 0, sizeof expected);
        sp_kernel_cross_entropy_backward_f64(LOSS_TOKENS, columns[r], r * WIDTH, logits[r]->value,
                                             WIDTH, target, NULL, 20.0, expected2, expected, WIDTH);
        SP_OP(cross_entropy_backward)
        (LOSS_TOKENS, columns[r], r * WIDTH, logits[r]->data, WIDTH, target, 20.0, lse->data);
        ops_check("gradient of a part", logits[r], expected);
        OPS_DROP(logits[r], numbers[r]);
    }
    ops_runtime->ops->release(ops_runtime, loss);
    OPS_DROP(max, sums, lse);
    ops_end();
}
