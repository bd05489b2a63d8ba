#include "tests/gpu/support/computing_cublas.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"
#include "sim/base/alloc.h"
#include "tests/gpu/support/followed.h"
#include "tests/gpu/support/stream_queue.h"

computing_cublas computing;

typedef struct layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t stride;
} layout;

typedef struct matmul {
    cublasOperation_t a_op, b_op;
    int32_t sms;
    uint32_t epilogue; // CUBLASLT_EPILOGUE_BIAS, or 0
    const void *bias;
} matmul;

// ---- what is described ----

static const char *status_name(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
           : status == CUBLAS_STATUS_INVALID_VALUE  ? "CUBLAS_STATUS_INVALID_VALUE"
                                                    : "another";
}

static bool fails(const char *call)
{
    return computing.fail != NULL && strcmp(computing.fail, call) == 0;
}

// NULL where the call fails.
static void *alive(const char *call, size_t bytes)
{
    if (fails(call)) {
        return NULL;
    }
    computing.live++;
    return calloc(1, bytes);
}

static cublasStatus_t is_made(const void *made)
{
    return made != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

static void dead(void *made)
{
    computing.live--;
    free(made);
}

static cublasStatus_t create(cublasLtHandle_t *handle)
{
    *handle = alive("Create", 1);
    return is_made(*handle);
}

static cublasStatus_t destroy(cublasLtHandle_t handle)
{
    dead(handle);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t matmul_new(cublasLtMatmulDesc_t *made, cublasComputeType_t compute,
                                 cudaDataType_t scale)
{
    *made = alive("MatmulDescCreate", sizeof(matmul));
    return *made == NULL                                          ? CUBLAS_STATUS_INVALID_VALUE
           : compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS
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
    if (fails("MatmulDescSetAttribute")) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (which == CUBLASLT_MATMUL_DESC_TRANSA) {
        memcpy(&m->a_op, value, bytes);
    } else if (which == CUBLASLT_MATMUL_DESC_TRANSB) {
        memcpy(&m->b_op, value, bytes);
    } else if (which == CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET) {
        memcpy(&m->sms, value, bytes);
    } else if (which == CUBLASLT_MATMUL_DESC_EPILOGUE) {
        memcpy(&m->epilogue, value, bytes);
        return m->epilogue == CUBLASLT_EPILOGUE_BIAS ? CUBLAS_STATUS_SUCCESS
                                                     : CUBLAS_STATUS_NOT_SUPPORTED;
    } else if (which == CUBLASLT_MATMUL_DESC_BIAS_POINTER) {
        memcpy(&m->bias, value, bytes);
    } else {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_new(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows,
                                 uint64_t columns, int64_t stride)
{
    layout *l = alive("MatrixLayoutCreate", sizeof *l);
    if (l == NULL) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
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
    *made = alive("MatmulPreferenceCreate", 1);
    return is_made(*made);
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
    const int first = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    const int last = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES;
    uint64_t most = 0;
    uint32_t alignment = 0;
    if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof most) {
        memcpy(&most, value, bytes);
        computing.most_workspace_bytes = (long long)most;
        return CUBLAS_STATUS_SUCCESS;
    }
    if ((int)which < first || (int)which > last || bytes != sizeof alignment) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(&alignment, value, bytes);
    computing.alignment[(int)which - first] = (int)alignment;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preference, int wanted,
                                cublasLtMatmulHeuristicResult_t results[], int *found)
{
    const matmul *m = (const matmul *)(const void *)desc;
    computing.heuristics++;
    computing.sms = m->sms;
    if (m->epilogue != 0) {
        uintptr_t place = (uintptr_t)m->bias;
        computing.bias_alignment = (int)(place & (~place + 1));
    }
    memset(results, 0, (size_t)wanted * sizeof *results);
    results[0].workspaceSize = computing.workspace_bytes;
    *found = !computing.finds_nothing && !(computing.finds_no_bias && m->epilogue != 0);
    return fails("MatmulAlgoGetHeuristic") || (m->epilogue != 0 && m->bias == NULL)
               ? CUBLAS_STATUS_INVALID_VALUE
               : CUBLAS_STATUS_SUCCESS;
}

// ---- products ----

// Memory of a matrix is read or written: all of it or, with gaps between its columns, each of them.
static void touch(const void *data, const layout *l, bool writes)
{
    const size_t element = l->type == CUDA_R_32F ? sizeof(float) : sizeof(sp_bf16);
    for (uint64_t c = 0; c < l->columns; c++) {
        followed_touch((const char *)data + c * (uint64_t)l->stride * element, l->rows * element,
                       writes);
    }
}

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

// As a graph would keep it: scalars, and where the bias is, by value.
typedef struct product {
    matmul m;
    const layout *la, *lb, *lc;
    const void *a, *b;
    void *d;
    float alpha, beta;
    computing_product shape;
} product;

static double bias_of(const product *p, uint64_t row)
{
    const void *bias = p->m.bias;
    return p->m.epilogue == 0          ? 0.0
           : p->lc->type == CUDA_R_32F ? (double)((const float *)bias)[row]
                                       : (double)sp_bf16_to_float(((const sp_bf16 *)bias)[row]);
}

static void compute(const product *p)
{
    uint64_t rows = p->shape.rows;
    uint64_t inner = p->shape.inner;
    uint64_t columns = p->shape.columns;
    double *left = malloc((rows * inner + inner * columns + rows) * sizeof *left);
    if (left == NULL) {
        abort();
    }
    touch(p->a, p->la, false);
    touch(p->b, p->lb, false);
    touch(p->d, p->lc, true);
    double *right = left + rows * inner;
    double *sums = right + inner * columns;
    widen(p->a, p->la, p->m.a_op, left);
    widen(p->b, p->lb, p->m.b_op, right);
    for (uint64_t column = 0; column < columns; column++) {
        memset(sums, 0, rows * sizeof *sums);
        for (uint64_t i = 0; i < inner; i++) {
            double factor = right[column * inner + i];
            for (uint64_t row = 0; row < rows; row++) {
                sums[row] += left[i * rows + row] * factor;
            }
        }
        for (uint64_t row = 0; row < rows; row++) {
            put(p->d, p->lc, column * (uint64_t)p->lc->stride + row,
                (double)p->alpha * sums[row] + bias_of(p, row), p->beta);
        }
    }
    free(left);
}

typedef struct later {
    layout layouts[3];
    product p;
} later;

static void compute_later(void *context)
{
    later *l = context;
    compute(&l->p);
    sp_free(l);
}

static cublasStatus_t multiply(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                               const void *alpha, const void *a, cublasLtMatrixLayout_t a_desc,
                               const void *b, cublasLtMatrixLayout_t b_desc, const void *beta,
                               const void *c, cublasLtMatrixLayout_t c_desc, void *d,
                               cublasLtMatrixLayout_t d_desc, const cublasLtMatmulAlgo_t *algorithm,
                               void *workspace, size_t workspace_bytes, CUstream stream)
{
    const matmul *m = (const matmul *)(const void *)desc;
    const layout *la = (const layout *)(const void *)a_desc;
    const layout *lb = (const layout *)(const void *)b_desc;
    const layout *lc = (const layout *)(const void *)c_desc;
    computing.products++;
    const computing_product shape = {
        .rows = m->a_op == CUBLAS_OP_T ? la->columns : la->rows,
        .columns = m->b_op == CUBLAS_OP_T ? lb->rows : lb->columns,
        .inner = m->a_op == CUBLAS_OP_T ? la->rows : la->columns,
        .weight = m->b_op == CUBLAS_OP_T,
        .sms = m->sms,
    };
    if (c != d || c_desc != d_desc ||
        shape.inner != (m->b_op == CUBLAS_OP_T ? lb->columns : lb->rows) ||
        shape.rows != lc->rows || shape.columns != lc->columns ||
        workspace_bytes != computing.workspace_bytes ||
        (workspace_bytes > 0 && workspace == NULL)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (computing.fails) {
        computing.fails = false;
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (computing.clock != NULL) {
        computing.clock(&shape, stream);
        return CUBLAS_STATUS_SUCCESS;
    }
    later *l = sp_malloc(sizeof *l);
    *l = (later){.layouts = {*la, *lb, *lc}};
    l->p = (product){*m, &l->layouts[0],        &l->layouts[1],       &l->layouts[2], a, b,
                     d,  *(const float *)alpha, *(const float *)beta, shape};
    stream_queue_put(stream, compute_later, l);
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
