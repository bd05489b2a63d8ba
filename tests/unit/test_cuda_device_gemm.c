// Products through cuBLASLt, on a fake of it that computes what it is told to on the CPU:
// column-major C = alpha op(A) op(B) + beta C with the sizes of the layouts. Elements are bf16 in,
// fp32 or bf16 out; small whole numbers, so that every value is exact.
#include <stdlib.h>

#include "backends/cuda/gemm.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/test_main.h"

typedef struct layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t stride;
} layout;

typedef struct matmul {
    cublasOperation_t a_op, b_op;
    int32_t sms;
} matmul;

static struct {
    int live, heuristics, found;
    const char *fail;
    uint64_t workspace;
    uint32_t alignment[4]; // of A, B, C and D, in the order of the attributes
    int32_t sms;
} lt;

static sp_i_cuda_api api;
static const sp_i_cuda_device device = {&api, 0};

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static cublasStatus_t answer(const char *call)
{
    return lt.fail != NULL && strcmp(lt.fail, call) == 0 ? CUBLAS_STATUS_INVALID_VALUE
                                                         : CUBLAS_STATUS_SUCCESS;
}

static const char *status_name(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "another";
}

static cublasStatus_t create(cublasLtHandle_t *handle)
{
    *handle = malloc(1);
    lt.live++;
    return answer("Create");
}

static cublasStatus_t destroy(cublasLtHandle_t handle)
{
    free(handle);
    lt.live--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t matmul_new(cublasLtMatmulDesc_t *made, cublasComputeType_t compute,
                                 cudaDataType_t scale)
{
    assert_int_equal(compute, CUBLAS_COMPUTE_32F);
    assert_int_equal(scale, CUDA_R_32F);
    *made = calloc(1, sizeof(matmul));
    lt.live++;
    return answer("MatmulDescCreate");
}

static cublasStatus_t matmul_free(cublasLtMatmulDesc_t made)
{
    free(made);
    lt.live--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t matmul_set(cublasLtMatmulDesc_t made, cublasLtMatmulDescAttributes_t which,
                                 const void *value, size_t bytes)
{
    matmul *m = (matmul *)(void *)made;
    memcpy(which == CUBLASLT_MATMUL_DESC_TRANSA   ? (void *)&m->a_op
           : which == CUBLASLT_MATMUL_DESC_TRANSB ? (void *)&m->b_op
                                                  : (void *)&m->sms,
           value, bytes);
    return answer("MatmulDescSetAttribute");
}

static cublasStatus_t layout_new(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows,
                                 uint64_t columns, int64_t stride)
{
    layout *l = malloc(sizeof *l);
    *l = (layout){type, rows, columns, stride};
    *made = (cublasLtMatrixLayout_t)(void *)l;
    lt.live++;
    return answer("MatrixLayoutCreate");
}

static cublasStatus_t layout_free(cublasLtMatrixLayout_t made)
{
    free(made);
    lt.live--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_new(cublasLtMatmulPreference_t *made)
{
    if (answer("MatmulPreferenceCreate") != CUBLAS_STATUS_SUCCESS) {
        return answer("MatmulPreferenceCreate");
    }
    *made = malloc(1);
    lt.live++;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_free(cublasLtMatmulPreference_t made)
{
    free(made);
    lt.live--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_set(cublasLtMatmulPreference_t made,
                                     cublasLtMatmulPreferenceAttributes_t which, const void *value,
                                     size_t bytes)
{
    (void)made;
    if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        assert_int_equal(bytes, sizeof lt.workspace);
        memcpy(&lt.workspace, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    assert_in_range(which, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
    assert_int_equal(bytes, sizeof *lt.alignment);
    memcpy(&lt.alignment[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t m,
                                cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preference, int wanted,
                                cublasLtMatmulHeuristicResult_t results[], int *found)
{
    (void)handle;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    (void)preference;
    lt.heuristics++;
    lt.sms = ((const matmul *)(const void *)m)->sms;
    *found = lt.found;
    assert_int_equal(wanted, 1);
    memset(&results[0], 0, sizeof results[0]);
    results[0].workspaceSize = 48;
    return answer("MatmulAlgoGetHeuristic");
}

// op(M)[row, column] of a column-major bf16 matrix.
static float at(const void *data, const layout *l, cublasOperation_t op, uint64_t row,
                uint64_t column)
{
    uint64_t r = op == CUBLAS_OP_T ? column : row;
    uint64_t c = op == CUBLAS_OP_T ? row : column;
    assert_true(r < l->rows && c < l->columns);
    return from_bf16(((const uint16_t *)data)[c * (uint64_t)l->stride + r]);
}

static cublasStatus_t multiply(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                               const void *alpha, const void *a, cublasLtMatrixLayout_t a_desc,
                               const void *b, cublasLtMatrixLayout_t b_desc, const void *beta,
                               const void *c, cublasLtMatrixLayout_t c_desc, void *d,
                               cublasLtMatrixLayout_t d_desc, const cublasLtMatmulAlgo_t *algorithm,
                               void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const matmul *m = (const matmul *)(const void *)desc;
    const layout *la = (const layout *)(const void *)a_desc;
    const layout *lb = (const layout *)(const void *)b_desc;
    const layout *lc = (const layout *)(const void *)c_desc;
    (void)handle;
    (void)algorithm;
    (void)stream;
    assert_non_null(workspace);
    assert_int_equal(workspace_bytes, 48);
    assert_ptr_equal(c, d);
    assert_ptr_equal(c_desc, d_desc);
    assert_true(*(const float *)alpha == 1.0f);
    uint64_t k = m->a_op == CUBLAS_OP_T ? la->rows : la->columns;
    for (uint64_t col = 0; col < lc->columns; col++) {
        for (uint64_t row = 0; row < lc->rows; row++) {
            uint64_t place = col * (uint64_t)lc->stride + row;
            float old =
                lc->type == CUDA_R_32F ? ((float *)d)[place] : from_bf16(((uint16_t *)d)[place]);
            float sum = *(const float *)beta > 0.0f ? old : 0.0f;
            for (uint64_t i = 0; i < k; i++) {
                sum += at(a, la, m->a_op, row, i) * at(b, lb, m->b_op, i, col);
            }
            if (lc->type == CUDA_R_32F) {
                ((float *)d)[place] = sum;
            } else {
                ((uint16_t *)d)[place] = to_bf16(sum);
            }
        }
    }
    return answer("Matmul");
}

static const sp_i_cublas_api cublas = {
    .GetStatusName = status_name,
    .Create = create,
    .Destroy = destroy,
    .MatmulDescCreate = matmul_new,
    .MatmulDescDestroy = matmul_free,
    .MatmulDescSetAttribute = matmul_set,
    .MatrixLayoutCreate = layout_new,
    .MatrixLayoutDestroy = layout_free,
    .MatmulPreferenceCreate = preference_new,
    .MatmulPreferenceDestroy = preference_free,
    .MatmulPreferenceSetAttribute = preference_set,
    .MatmulAlgoGetHeuristic = heuristic,
    .Matmul = multiply,
};

static char workspace[256];

static sp_i_cuda_gemm *gemm_new(int sms)
{
    sp_error err = {0};
    sp_i_cuda_gemm *gemm;
    fake_cuda_reset(&api);
    memset(&lt, 0, sizeof lt);
    lt.found = 1;
    const sp_i_cuda_gemm_place place = {workspace, sizeof workspace, sms};
    assert_int_equal(sp_i_cuda_gemm_new(&device, &cublas, &place, &gemm, &err), SP_OK);
    return gemm;
}

enum { TOKENS = 3, IN = 4, OUT = 5 };

// Row-major, values from -2 to 2.
static void fill(uint16_t *values, int count, int from)
{
    for (int i = 0; i < count; i++) {
        values[i] = to_bf16((float)((i * 7 + from) % 5 - 2));
    }
}

static double row_major(const uint16_t *m, int columns, int row, int column)
{
    return (double)from_bf16(m[row * columns + column]);
}

static double expected(sp_i_cuda_product_kind kind, const uint16_t *x, const uint16_t *w,
                       const uint16_t *dy, int row, int column)
{
    double sum = 0.0;
    if (kind == SP_I_CUDA_FORWARD) {
        for (int i = 0; i < IN; i++) {
            sum += row_major(x, IN, row, i) * row_major(w, IN, column, i);
        }
    } else if (kind == SP_I_CUDA_INPUT) {
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

static void check_product(sp_i_cuda_product_kind kind, bool fp32, bool accumulate)
{
    uint16_t x[TOKENS * IN];
    uint16_t w[OUT * IN];
    uint16_t dy[TOKENS * OUT];
    float result[OUT * TOKENS * IN];
    sp_error err = {0};
    sp_i_cuda_gemm *gemm = gemm_new(0);
    const int rows = kind == SP_I_CUDA_WEIGHT ? OUT : TOKENS;
    const int columns = kind == SP_I_CUDA_FORWARD ? OUT : IN;
    const sp_i_cuda_product product = {kind, TOKENS, IN, OUT, fp32, accumulate};
    const sp_i_cuda_operands operands = {kind == SP_I_CUDA_FORWARD ? x : dy,
                                         kind == SP_I_CUDA_WEIGHT ? x : w, result};
    fill(x, TOKENS * IN, 1);
    fill(w, OUT * IN, 3);
    fill(dy, TOKENS * OUT, 2);
    for (int i = 0; i < rows * columns; i++) {
        if (fp32) {
            result[i] = 10.0f;
        } else {
            ((uint16_t *)result)[i] = to_bf16(10.0f);
        }
    }
    assert_int_equal(sp_i_cuda_gemm_run(gemm, &product, &operands, NULL, &err), SP_OK);
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < columns; c++) {
            int i = r * columns + c;
            double got = fp32 ? (double)result[i] : (double)from_bf16(((uint16_t *)result)[i]);
            double want = expected(kind, x, w, dy, r, c) + (accumulate ? 10.0 : 0.0);
            assert_true(got == want);
        }
    }
    sp_i_cuda_gemm_free(gemm);
    assert_int_equal(lt.live, 0);
}

static void products_are_those_of_a_linear_layer(void **state)
{
    (void)state;
    for (int kind = 0; kind < SP_I_CUDA_PRODUCTS; kind++) {
        for (int form = 0; form < 4; form++) {
            check_product((sp_i_cuda_product_kind)kind, (form & 1) != 0, (form & 2) != 0);
        }
    }
}

static void each_shape_asks_once(void **state)
{
    (void)state;
    enum { SHAPES = 200 };
    uint16_t data[SHAPES * 2];
    float result[SHAPES * 2];
    sp_error err = {0};
    sp_i_cuda_gemm *gemm = gemm_new(48);
    const sp_i_cuda_operands operands = {data, data, result};
    fill(data, SHAPES * 2, 0);
    for (int round = 0; round < 2; round++) {
        for (int t = 1; t <= SHAPES; t++) {
            const sp_i_cuda_product product = {SP_I_CUDA_FORWARD, t, 2, 1, true, false};
            assert_int_equal(sp_i_cuda_gemm_run(gemm, &product, &operands, NULL, &err), SP_OK);
        }
        assert_int_equal(lt.heuristics, SHAPES);
        assert_int_equal(sp_i_cuda_gemm_shapes(gemm), SHAPES);
    }
    assert_int_equal(lt.sms, 48);
    assert_int_equal(lt.workspace, sizeof workspace);
    sp_i_cuda_gemm_free(gemm);
    assert_int_equal(lt.live, 0);
}

// An algorithm may need operands at multiples of up to 256 bytes, unless it is told otherwise.
static void each_alignment_asks_for_itself(void **state)
{
    (void)state;
    static _Alignas(512) unsigned char data[3][1024];
    static const struct {
        size_t left, right, result;
        uint32_t expected;
        int asked; // so far
    } cases[] = {{0, 0, 0, 256, 1}, {256, 512, 0, 256, 1}, {0, 64, 0, 64, 2}, {0, 0, 448, 64, 2},
                 {2, 64, 16, 2, 3}, {0, 16, 256, 16, 4},   {0, 0, 0, 256, 4}};
    const sp_i_cuda_product product = {SP_I_CUDA_FORWARD, 2, 2, 2, true, false};
    sp_error err = {0};
    sp_i_cuda_gemm *gemm = gemm_new(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sp_i_cuda_operands operands = {data[0] + cases[i].left, data[1] + cases[i].right,
                                             data[2] + cases[i].result};
        int before = lt.heuristics;
        assert_int_equal(sp_i_cuda_gemm_run(gemm, &product, &operands, NULL, &err), SP_OK);
        assert_int_equal(lt.heuristics, cases[i].asked);
        for (int k = 0; k < 4 && lt.heuristics > before; k++) {
            assert_int_equal(lt.alignment[k], cases[i].expected);
        }
    }
    sp_i_cuda_gemm_free(gemm);
    assert_int_equal(lt.live, 0);
}

static void failures_name_the_shape_and_leave_nothing(void **state)
{
    (void)state;
    static const char *const calls[] = {"MatmulDescCreate", "MatmulDescSetAttribute",
                                        "MatrixLayoutCreate", "MatmulPreferenceCreate",
                                        "MatmulAlgoGetHeuristic"};
    uint16_t data[8] = {0};
    float result[8];
    const sp_i_cuda_product product = {SP_I_CUDA_WEIGHT, 2, 3, 1, true, true};
    const sp_i_cuda_operands operands = {data, data, result};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        sp_error err = {0};
        sp_i_cuda_gemm *gemm = gemm_new(8);
        lt.fail = calls[i];
        assert_int_equal(sp_i_cuda_gemm_run(gemm, &product, &operands, NULL, &err),
                         SP_ERR_INTERNAL);
        assert_non_null(
            strstr(err.message[0], "CUBLAS_STATUS_INVALID_VALUE for a weight gradient of 2 x 3"));
        assert_int_equal(sp_i_cuda_gemm_shapes(gemm), 0);
        sp_i_cuda_gemm_free(gemm);
        assert_int_equal(lt.live, 0);
    }
    sp_error err = {0};
    sp_i_cuda_gemm *gemm = gemm_new(8);
    lt.found = 0;
    assert_int_equal(sp_i_cuda_gemm_run(gemm, &product, &operands, NULL, &err), SP_ERR_INTERNAL);
    sp_i_cuda_gemm_free(gemm);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(products_are_those_of_a_linear_layer),
    cmocka_unit_test(each_shape_asks_once),
    cmocka_unit_test(each_alignment_asks_for_itself),
    cmocka_unit_test(failures_name_the_shape_and_leave_nothing),
};

SP_TEST_MAIN(tests)
