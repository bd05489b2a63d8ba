// Products through cuBLASLt, on a fake of it that computes what it is told to on the CPU
// (computing_cublas.h). Small whole numbers, so that every value is exact.
#include "backends/cuda/gemm.h"
#include "kernels/bf16.h"
#include "tests/gpu/support/computing_cublas.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/test_main.h"

OWNS(sp_i_cuda_gemm)

static sp_cuda_api api;
static sp_i_cublas_api cublas;
static const sp_i_cuda_device device = {&api, 0};

static char workspace[256];

static sp_i_cuda_gemm *gemm_new(int sms)
{
    sp_i_cuda_gemm *gemm;
    fake_cuda_reset(&api);
    computing_cublas_reset(&cublas);
    computing.workspace_bytes = 48;
    const sp_i_cuda_gemm_place place = {workspace, sizeof workspace, sms};
    must_succeed(sp_i_cuda_gemm_new(&device, &cublas, &place, &gemm, ERR));
    return gemm;
}

// Shapes that have an algorithm: a description and three layouts of each are alive, and the handle.
static void assert_shapes(int count)
{
    assert_int_equal(computing.live, 1 + 4 * count);
}

enum { TOKENS = 3, IN = 4, OUT = 5 };

// Row-major, values from -2 to 2.
static void fill(uint16_t *values, int count, int from)
{
    for (int i = 0; i < count; i++) {
        values[i] = sp_bf16_from_float((float)((i * 7 + from) % 5 - 2));
    }
}

static double row_major(const uint16_t *m, int columns, int row, int column)
{
    return (double)sp_bf16_to_float(m[row * columns + column]);
}

static double expected(sp_i_product kind, const uint16_t *x, const uint16_t *w, const uint16_t *dy,
                       int row, int column)
{
    double sum = 0.0;
    if (kind == SP_I_PRODUCT_FORWARD) {
        for (int i = 0; i < IN; i++) {
            sum += row_major(x, IN, row, i) * row_major(w, IN, column, i);
        }
    } else if (kind == SP_I_PRODUCT_INPUT) {
        for (int i = 0; i < OUT; i++) {
            sum += row_major(dy, OUT, row, i) * row_major(w, IN, i, column);
        }
    } else {
        for (int i = 0; i < TOKENS; i++) {
            sum += row_major(dy, OUT, i, row) * row_major(x, IN, i, column);
        }
    }
    return sum;
}

static void check_product(sp_i_product kind, bool fp32, bool accumulate)
{
    uint16_t x[TOKENS * IN];
    uint16_t w[OUT * IN];
    uint16_t dy[TOKENS * OUT];
    float result[OUT * TOKENS * IN];
    sp_i_cuda_gemm *gemm = gemm_new(0);
    const int rows = kind == SP_I_PRODUCT_WEIGHT ? OUT : TOKENS;
    const int columns = kind == SP_I_PRODUCT_FORWARD ? OUT : IN;
    const sp_i_cuda_product product = {kind, TOKENS, IN, OUT, fp32, accumulate};
    const sp_i_cuda_operands operands = {kind == SP_I_PRODUCT_FORWARD ? x : dy,
                                         kind == SP_I_PRODUCT_WEIGHT ? x : w, result};
    fill(x, TOKENS * IN, 1);
    fill(w, OUT * IN, 3);
    fill(dy, TOKENS * OUT, 2);
    for (int i = 0; i < rows * columns; i++) {
        if (fp32) {
            result[i] = 10.0f;
        } else {
            ((uint16_t *)result)[i] = sp_bf16_from_float(10.0f);
        }
    }
    must_succeed(sp_i_cuda_gemm_run(gemm, &product, &operands, NULL, ERR));
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < columns; c++) {
            int i = r * columns + c;
            double got =
                fp32 ? (double)result[i] : (double)sp_bf16_to_float(((uint16_t *)result)[i]);
            double want = expected(kind, x, w, dy, r, c) + (accumulate ? 10.0 : 0.0);
            assert_true(got == want);
        }
    }
    sp_i_cuda_gemm_free(gemm);
    assert_int_equal(computing.live, 0);
}

TEST(products_are_those_of_a_linear_layer)
{
    for (int kind = 0; kind < SP_I_PRODUCTS; kind++) {
        for (int form = 0; form < 4; form++) {
            check_product((sp_i_product)kind, (form & 1) != 0, (form & 2) != 0);
        }
    }
}

TEST(each_shape_asks_once)
{
    enum { SHAPES = 200 };
    uint16_t data[SHAPES * 2];
    float result[SHAPES * 2];
    sp_i_cuda_gemm *gemm = gemm_new(48);
    const sp_i_cuda_operands operands = {data, data, result};
    fill(data, SHAPES * 2, 0);
    for (int round = 0; round < 2; round++) {
        for (int t = 1; t <= SHAPES; t++) {
            const sp_i_cuda_product product = {SP_I_PRODUCT_FORWARD, t, 2, 1, true, false};
            must_succeed(sp_i_cuda_gemm_run(gemm, &product, &operands, NULL, ERR));
        }
        assert_int_equal(computing.heuristics, SHAPES);
        assert_shapes(SHAPES);
    }
    assert_int_equal(computing.sms, 48);
    assert_int_equal(computing.most_workspace_bytes, sizeof workspace);
    sp_i_cuda_gemm_free(gemm);
    assert_int_equal(computing.live, 0);
}

// An algorithm may need operands at multiples of up to 256 bytes, unless it is told otherwise.
TEST(each_alignment_asks_for_itself)
{
    static _Alignas(512) unsigned char data[3][1024];
    static const struct {
        size_t left, right, result;
        uint32_t expected;
        int asked; // so far
    } cases[] = {{0, 0, 0, 256, 1}, {256, 512, 0, 256, 1}, {0, 64, 0, 64, 2}, {0, 0, 448, 64, 2},
                 {2, 64, 16, 2, 3}, {0, 16, 256, 16, 4},   {0, 0, 0, 256, 4}};
    const sp_i_cuda_product product = {SP_I_PRODUCT_FORWARD, 2, 2, 2, true, false};
    sp_i_cuda_gemm *gemm = gemm_new(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sp_i_cuda_operands operands = {data[0] + cases[i].left, data[1] + cases[i].right,
                                             data[2] + cases[i].result};
        int before = computing.heuristics;
        must_succeed(sp_i_cuda_gemm_run(gemm, &product, &operands, NULL, ERR));
        assert_int_equal(computing.heuristics, cases[i].asked);
        for (int k = 0; k < 4 && computing.heuristics > before; k++) {
            assert_int_equal(computing.alignment[k], cases[i].expected);
        }
    }
    sp_i_cuda_gemm_free(gemm);
    assert_int_equal(computing.live, 0);
}

// y = x W^T + b, with the bias of each call; a shape without one is another.
TEST(a_bias_is_added_in_the_product)
{
    uint16_t x[TOKENS * IN];
    uint16_t w[OUT * IN];
    static _Alignas(256) uint16_t bias[2][128];
    uint16_t y[TOKENS * OUT];
    const sp_i_cuda_product product = {SP_I_PRODUCT_FORWARD, TOKENS, IN, OUT, false, false};
    const sp_i_cuda_operands operands = {x, w, y};
    fill(x, TOKENS * IN, 1);
    fill(w, OUT * IN, 3);
    fill(bias[0], OUT, 0);
    fill(bias[1], OUT, 2);
    for (int without = 0; without < 2; without++) {
        sp_error_clear(ERR);
        sp_i_cuda_gemm *gemm = gemm_new(0);
        computing.finds_no_bias = without;
        for (int call = 0; call < 3; call++) {
            bool added = false;
            sp_status status = call < 2 ? sp_i_cuda_gemm_run_biased(gemm, &product, &operands,
                                                                    bias[call], &added, NULL, ERR)
                                        : sp_i_cuda_gemm_run(gemm, &product, &operands, NULL, ERR);
            assert_int_equal(status, SP_OK);
            assert_int_equal(added, call < 2 && !without);
            // The next call's may be aligned no better than the operand with the least.
            assert_int_equal(computing.bias_alignment, computing.alignment[0]);
            for (int i = 0; i < TOKENS * OUT; i++) {
                double want = expected(SP_I_PRODUCT_FORWARD, x, w, NULL, i / OUT, i % OUT) +
                              (added ? row_major(bias[call], OUT, 0, i % OUT) : 0.0);
                assert_true((double)sp_bf16_to_float(y[i]) == want);
            }
        }
        assert_shapes(2);
        sp_i_cuda_gemm_free(gemm);
        assert_int_equal(computing.live, 0);
    }
}

TEST(failures_name_the_shape_and_leave_nothing)
{
    static const char *const calls[] = {"MatmulDescCreate", "MatmulDescSetAttribute",
                                        "MatrixLayoutCreate", "MatmulPreferenceCreate",
                                        "MatmulAlgoGetHeuristic"};
    uint16_t data[8] = {0};
    float result[8];
    const sp_i_cuda_product product = {SP_I_PRODUCT_WEIGHT, 2, 3, 1, true, true};
    const sp_i_cuda_operands operands = {data, data, result};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        sp_error_clear(ERR);
        sp_i_cuda_gemm *gemm = gemm_new(8);
        computing.fail = calls[i];
        must_fail_with(sp_i_cuda_gemm_run(gemm, &product, &operands, NULL, ERR), SP_ERR_INTERNAL,
                       "CUBLAS_STATUS_INVALID_VALUE for a weight gradient of 2 x 3");
        assert_shapes(0);
        sp_i_cuda_gemm_free(gemm);
        assert_int_equal(computing.live, 0);
    }
    sp_error_clear(ERR);
    OWNED(sp_i_cuda_gemm) gemm = gemm_new(8);
    computing.finds_nothing = true;
    assert_int_equal(sp_i_cuda_gemm_run(gemm, &product, &operands, NULL, ERR), SP_ERR_INTERNAL);
}
