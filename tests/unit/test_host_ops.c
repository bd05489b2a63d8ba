// What the operations of a precision promise beyond the kernels behind them, and the widths of the
// tensors they work on where values are narrower than statistics.
#include "backends/executor/run.h"
#include "backends/executor/stage.h"
#include "sim/model/layout.h"
#include "tests/support/host_run.h"
#include "tests/support/test_main.h"

#define SP_KERNEL_BITS 64
#include "backends/executor/typed/ops.h"
#undef SP_KERNEL_BITS

static const double base = 10000.0;

// Positions 0, 1, ... by the definition of the angles, and rows that begin inside the table.
TEST(rotation_by_position)
{
    enum { POSITIONS = 600, HEAD_DIM = 4, HALF = HEAD_DIM / 2, BEGIN = 511, ROWS = 3 };
    static double cosine[POSITIONS * HALF];
    static double sine[POSITIONS * HALF];
    sp_i_op_rope_table_f64(POSITIONS, HEAD_DIM, base, cosine, sine);
    for (int t = 0; t < POSITIONS; t++) {
        for (int i = 0; i < HALF; i++) {
            double angle = t / pow(base, 2.0 * i / HEAD_DIM);
            assert_true(fabs(cosine[t * HALF + i] - cos(angle)) < 1e-12);
            assert_true(fabs(sine[t * HALF + i] - sin(angle)) < 1e-12);
        }
    }
    double x[ROWS * HEAD_DIM] = {0};
    for (int t = 0; t < ROWS; t++) {
        x[t * HEAD_DIM] = 1.0; // turns with feature HALF by the position itself
    }
    sp_i_op_rope_f64(ROWS, BEGIN, 1, HEAD_DIM, cosine, sine, false, x, HEAD_DIM);
    for (int t = 0; t < ROWS; t++) {
        assert_within(x[t * HEAD_DIM], cos(BEGIN + t), 1e-12);
        assert_true(fabs(x[t * HEAD_DIM + HALF] - sin(BEGIN + t)) < 1e-12);
    }
}

enum { TOKENS = 3, WORDS = 4, STRIDE = 6 };
static const int64_t target[TOKENS] = {1, -1, 3};
static const double total = 2.0;

static void make_logits(double logits[TOKENS * STRIDE])
{
    for (int i = 0; i < TOKENS * STRIDE; i++) {
        logits[i] = i % STRIDE < WORDS ? (double)(i * 7 % 5) - 2.0 : 100.0;
    }
}

// log of the sum of exponentials of a row's words.
static double row_lse(const double *row)
{
    double sum = 0.0;
    for (int w = 0; w < WORDS; w++) {
        sum += exp(row[w]);
    }
    return log(sum);
}

// A rank whose words are all padding takes part in the exchanges with nothing of its own.
TEST(share_without_words)
{
    double logits[TOKENS * STRIDE];
    double max[TOKENS], sum[TOKENS], logit[TOKENS];
    const double of_others[TOKENS] = {1.0, 2.0, 3.0};
    make_logits(logits);
    sp_i_op_cross_entropy_max_f64(TOKENS, 0, logits, STRIDE, max);
    sp_i_op_cross_entropy_sums_f64(TOKENS, 0, WORDS, logits, STRIDE, target, of_others, sum, logit);
    for (int t = 0; t < TOKENS; t++) {
        assert_true(isinf(max[t]) && max[t] < 0.0);
        assert_true(sum[t] == 0.0);
        assert_true(logit[t] == 0.0);
    }
}

// The loss is added to what is there; padding neither counts nor has a gradient.
TEST(loss_and_its_gradient)
{
    double logits[TOKENS * STRIDE];
    double dense[TOKENS * WORDS];
    double lse[TOKENS];
    double expected = 5.0;
    double loss = 5.0;
    make_logits(logits);
    for (int t = 0; t < TOKENS; t++) {
        memcpy(dense + t * WORDS, logits + t * STRIDE, WORDS * sizeof *dense);
        expected += target[t] < 0
                        ? 0.0
                        : (row_lse(logits + t * STRIDE) - logits[t * STRIDE + target[t]]) / total;
    }
    sp_i_op_cross_entropy_f64(TOKENS, WORDS, dense, target, total, lse, &loss);
    assert_within(loss, expected, 1e-12);
    sp_i_op_cross_entropy_backward_f64(TOKENS, WORDS, 0, logits, STRIDE, target, total, lse);
    for (int i = 0; i < TOKENS * STRIDE; i++) {
        int t = i / STRIDE;
        int word = i % STRIDE;
        bool counts = word < WORDS && target[t] >= 0;
        double softmax =
            word < WORDS ? exp(dense[t * WORDS + word] - row_lse(dense + t * WORDS)) : 0.0;
        double gradient = counts ? (softmax - (word == target[t] ? 1.0 : 0.0)) / total : 0.0;
        assert_within(logits[i], gradient, 1e-12);
    }
}

TEST(dropped_elements)
{
    const uint8_t keeps[4] = {1, 0, 1, 0};
    double x[4] = {1.0, 2.0, -3.0, HUGE_VAL};
    sp_i_op_drop_f64(4, keeps, 4.0, x, x);
    const double expected[4] = {4.0, 0.0, -12.0, 0.0};
    assert_memory_equal(x, expected, sizeof x);
}

static void must_have_width(const sp_i_exec_specs *specs, sp_layer_tensor_id tensor,
                            int64_t real_bytes, int64_t table_bytes)
{
    assert_int_equal(specs->of[tensor].width.real_bytes, real_bytes);
    assert_int_equal(specs->of[tensor].width.table_bytes, table_bytes);
}

// Values of 2 bytes, statistics of 4. Logits are values, in the place of a softmax in fp32.
TEST(widths_of_two_precisions)
{
    const sp_model model = host_gpt();
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    const sp_i_exec_widths widths = sp_i_exec_widths_of(2, 4);
    sp_i_exec_kind kind;
    sp_i_exec_kind_make(&model, 0, &layout, SP_RECOMPUTE_NONE, &widths, &kind);
    must_have_width(&kind.specs, SP_TENSOR_INPUT, 2, 2);
    must_have_width(&kind.specs, SP_TENSOR_FC1, 2, 2);
    must_have_width(&kind.specs, SP_TENSOR_LOG_SUM_EXP, 4, 4);
    must_have_width(&kind.specs, SP_TENSOR_STATISTICS1, 4, 4);
    must_have_width(&kind.specs, SP_TENSOR_LOGITS_SUM, 4, 4);
    must_have_width(&kind.specs, SP_TENSOR_LOGITS, 2, 4);
    must_have_width(&kind.specs, SP_TENSOR_MLP_MASK, 1, 1);
    assert_int_equal(kind.specs.of[SP_TENSOR_LOG_SUM_EXP].columns, model.heads);
    assert_int_equal(kind.specs.of[SP_TENSOR_LOGITS].columns, model.vocab);
}

// ---- numbers to and from a device's elements ----

// What each can hold comes back, and the rest is rounded to the nearest, ties to even (bf16: 8 bits
// of significand).
enum { COUNT = 6 };

static void come_back(sp_element element, const double *from, const double *expected)
{
    double stored[COUNT], back[COUNT];
    sp_i_exec_elements_from(element, COUNT, from, stored);
    sp_i_exec_elements_to(element, COUNT, stored, back);
    for (int i = 0; i < COUNT; i++) {
        assert_true(back[i] == expected[i]);
    }
}

TEST(are_rounded_to_the_nearest)
{
    const double x[COUNT] = {0.0,           -1.5,   1.0 + 0x1p-8, 1.0 + 0x1p-7 + 0x1p-8,
                             1.0 + 0x1p-24, -0x1p60};
    const double bf16[COUNT] = {0.0, -1.5, 1.0, 1.0 + 0x1p-6, 1.0, -0x1p60};
    const double f32[COUNT] = {0.0, -1.5, 1.0 + 0x1p-8, 1.0 + 0x1p-7 + 0x1p-8, 1.0, -0x1p60};
    come_back(SP_ELEMENT_F64, x, x);
    come_back(SP_ELEMENT_F32, x, f32);
    come_back(SP_ELEMENT_BF16, x, bf16);
}

// A parameter starts as its master rounded: 1 + 2^-8 + 2^-30 is a tie in fp32 and goes to even.
TEST(bf16_is_rounded_from_fp32)
{
    const double x[COUNT] = {1.0 + 0x1p-8 + 0x1p-30};
    const double expected[COUNT] = {1.0};
    come_back(SP_ELEMENT_BF16, x, expected);
}
