#include "tests/gpu/support/computing_cublas.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"

computing_cublas computing;

typedef struct layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t stride;
} layout;

typedef struct matmul {
    cublasOperation_t a_op, b_op;
} matmul;

// ---- what is described ----

static const char *status_name(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED" : "another";
}

static void *alive(size_t bytes)
{
    computing.live++;
    return calloc(1, bytes);
}

static void dead(void *made)
{
    computing.live--;
    free(made);
}

static cublasStatus_t create(cublasLtHandle_t *handle)
{
    *handle = alive(1);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t destroy(cublasLtHandle_t handle)
{
    dead(handle);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t matmul_new(cublasLtMatmulDesc_t *made, cublasComputeType_t compute,
                                 cudaDataType_t scale)
{
    *made = alive(sizeof(matmul));
    return compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS
                                                                : CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t matmul_free(cublasLtMatmulDesc_t made)
{
    dead(made);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t matmul_set(cublasLtMatmulDesc_t made, cublasLtMatmulDescAttributes_t which,
                                 const void *value, size_t bytes)
{
    matmul *m = (matmul *)(void *)made;
    if (which == CUBLASLT_MATMUL_DESC_TRANSA) {
        memcpy(&m->a_op, value, bytes);
    } else if (which == CUBLASLT_MATMUL_DESC_TRANSB) {
        memcpy(&m->b_op, value, bytes);
    } else if (which != CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_new(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows,
                                 uint64_t columns, int64_t stride)
{
    layout *l = alive(sizeof *l);
    *l = (layout){type, rows, columns, stride};
    *made = (cublasLtMatrixLayout_t)(void *)l;
    return rows > 0 && columns > 0 && stride >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS
                                                              : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t layout_free(cublasLtMatrixLayout_t made)
{
    dead(made);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_new(cublasLtMatmulPreference_t *made)
{
    *made = alive(1);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_free(cublasLtMatmulPreference_t made)
{
    dead(made);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_set(cublasLtMatmulPreference_t made,
                                     cublasLtMatmulPreferenceAttributes_t which, const void *value,
                                     size_t bytes)
{
    (void)made;
    (void)which;
    (void)value;
    (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t m,
                                cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preference, int wanted,
                                cublasLtMatmulHeuristicResult_t results[], int *found)
{
    (void)handle;
    (void)m;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    (void)preference;
    memset(results, 0, (size_t)wanted * sizeof *results);
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

// ---- products ----

// op(M) by columns, without gaps, of a column-major matrix.
static void widen(const void *data, const layout *l, cublasOperation_t op, double *to)
{
    const sp_bf16 *from = data;
    for (uint64_t c = 0; c < l->columns; c++) {
        for (uint64_t r = 0; r < l->rows; r++) {
            double x = (double)sp_bf16_to_float(from[c * (uint64_t)l->stride + r]);
            to[op == CUBLAS_OP_T ? r * l->columns + c : c * l->rows + r] = x;
        }
    }
}

static void put(void *data, const layout *l, uint64_t place, double sum, float beta)
{
    if (l->type == CUDA_R_32F) {
        float *to = (float *)data + place;
        *to = (float)(beta > 0.0f ? (double)beta * (double)*to + sum : sum);
    } else {
        sp_bf16 *to = (sp_bf16 *)data + place;
        double old = (double)sp_bf16_to_float(*to);
        *to = sp_bf16_from_float((float)(beta > 0.0f ? (double)beta * old + sum : sum));
    }
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
    (void)workspace;
    (void)workspace_bytes;
    (void)stream;
    computing.products++;
    uint64_t inner = m->a_op == CUBLAS_OP_T ? la->rows : la->columns;
    uint64_t rows = m->a_op == CUBLAS_OP_T ? la->columns : la->rows;
    uint64_t columns = m->b_op == CUBLAS_OP_T ? lb->rows : lb->columns;
    if (c != d || c_desc != d_desc || inner != (m->b_op == CUBLAS_OP_T ? lb->columns : lb->rows) ||
        rows != lc->rows || columns != lc->columns) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (computing.fails) {
        computing.fails = false;
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    double *left = malloc((rows * inner + inner * columns + rows) * sizeof *left);
    if (left == NULL) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    double *right = left + rows * inner;
    double *sums = right + inner * columns;
    widen(a, la, m->a_op, left);
    widen(b, lb, m->b_op, right);
    for (uint64_t column = 0; column < columns; column++) {
        memset(sums, 0, rows * sizeof *sums);
        for (uint64_t i = 0; i < inner; i++) {
            double factor = right[column * inner + i];
            for (uint64_t row = 0; row < rows; row++) {
                sums[row] += left[i * rows + row] * factor;
            }
        }
        for (uint64_t row = 0; row < rows; row++) {
            put(d, lc, column * (uint64_t)lc->stride + row,
                (double)*(const float *)alpha * sums[row], *(const float *)beta);
        }
    }
    free(left);
    return CUBLAS_STATUS_SUCCESS;
}

void computing_cublas_reset(sp_i_cublas_api *api)
{
    computing = (computing_cublas){0};
    *api = (sp_i_cublas_api){
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
}
