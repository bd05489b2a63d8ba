#include "backends/cuda/gemm.h"

#include <search.h>

#include "backends/cuda/device.h"
#include "sim/base/alloc.h"

// The description of one shape for cuBLASLt. It counts matrices by columns: a row-major matrix [r,
// c] is its column-major one [c, r], so that results are computed transposed, with the operands
// exchanged:
//   forward  y^T  [out, tokens] = W [in, out]^T  x^T  [in, tokens]
//   input    dx^T [in, tokens]  = W [in, out]    dy^T [out, tokens]
//   weight   dW^T [in, out]     = x^T [in, tokens] (dy^T [out, tokens])^T
// where brackets hold column-major sizes.
typedef struct plan {
    sp_i_cuda_product product;
    uint32_t alignment; // of the operand with the least, in bytes
    bool biased;        // asked for with a bias
    bool adds_bias;     // and has an algorithm that adds it
    cublasLtMatmulDesc_t matmul;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
} plan;

struct sp_i_cuda_gemm {
    sp_i_cuda_device device;
    const sp_i_cublas_api *cublas;
    sp_i_cuda_gemm_place place;
    cublasLtHandle_t handle;
    void *plans; // a tree of them (tsearch), by what they are for
};

enum { BEST_ALIGNMENT = 256 };

static int compare(const void *x, const void *y);
static uint32_t alignment_of(const sp_i_cuda_operands *operands, const void *bias);
static sp_status find_plan(sp_i_cuda_gemm *gemm, const sp_i_cuda_product *product,
                           uint32_t alignment, bool biased, plan **found, sp_error *err);
static sp_status check(const sp_i_cuda_gemm *gemm, cublasStatus_t code, const char *call,
                       const sp_i_cuda_product *product, sp_error *err);

sp_status sp_i_cuda_gemm_new(const sp_i_cuda_device *device, const sp_i_cublas_api *cublas,
                             const sp_i_cuda_gemm_place *place, sp_i_cuda_gemm **made,
                             sp_error *err)
{
    *made = NULL;
    sp_i_cuda_gemm *gemm = sp_calloc(1, sizeof *gemm);
    *gemm = (sp_i_cuda_gemm){.device = *device, .cublas = cublas, .place = *place};
    sp_status status = check(gemm, cublas->Create(&gemm->handle), "cublasLtCreate", NULL, err);
    if (status != SP_OK) {
        sp_i_cuda_gemm_free(gemm);
        return status;
    }
    *made = gemm;
    return SP_OK;
}

static void plan_fini(const sp_i_cuda_gemm *gemm, plan *p)
{
    const cublasLtMatrixLayout_t layouts[] = {p->a, p->b, p->c};
    for (int i = 0; i < 3; i++) {
        if (layouts[i] != NULL) {
            (void)gemm->cublas->MatrixLayoutDestroy(layouts[i]);
        }
    }
    if (p->matmul != NULL) {
        (void)gemm->cublas->MatmulDescDestroy(p->matmul);
    }
}

void sp_i_cuda_gemm_free(sp_i_cuda_gemm *gemm)
{
    if (gemm == NULL) {
        return;
    }
    while (gemm->plans != NULL) {
        plan *root = *(plan **)gemm->plans;
        (void)tdelete(root, &gemm->plans, compare);
        plan_fini(gemm, root);
        sp_free(root);
    }
    if (gemm->handle != NULL) {
        (void)gemm->cublas->Destroy(gemm->handle);
    }
    sp_free(gemm);
}

static sp_status run(sp_i_cuda_gemm *gemm, const sp_i_cuda_product *product,
                     const sp_i_cuda_operands *operands, const void *bias, bool *added,
                     CUstream stream, sp_error *err)
{
    const float one = 1.0f;
    const float beta = product->accumulate ? 1.0f : 0.0f;
    plan *p = NULL;
    sp_status status =
        find_plan(gemm, product, alignment_of(operands, bias), bias != NULL, &p, err);
    if (status == SP_OK && p->adds_bias) {
        status = check(gemm,
                       gemm->cublas->MatmulDescSetAttribute(
                           p->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
                       "cublasLtMatmulDescSetAttribute", product, err);
    }
    if (status != SP_OK) {
        return status;
    }
    *added = p->adds_bias;
    return check(gemm,
                 gemm->cublas->Matmul(gemm->handle, p->matmul, &one, operands->right, p->a,
                                      operands->left, p->b, &beta, operands->result, p->c,
                                      operands->result, p->c, &p->algorithm, gemm->place.workspace,
                                      p->workspace_bytes, stream),
                 "cublasLtMatmul", product, err);
}

sp_status sp_i_cuda_gemm_run(sp_i_cuda_gemm *gemm, const sp_i_cuda_product *product,
                             const sp_i_cuda_operands *operands, CUstream stream, sp_error *err)
{
    bool added;
    return run(gemm, product, operands, NULL, &added, stream, err);
}

sp_status sp_i_cuda_gemm_run_biased(sp_i_cuda_gemm *gemm, const sp_i_cuda_product *product,
                                    const sp_i_cuda_operands *operands, const void *bias,
                                    bool *added, CUstream stream, sp_error *err)
{
    SP_ASSERT(bias != NULL && product->kind == SP_I_PRODUCT_FORWARD && !product->fp32 &&
              !product->accumulate);
    *added = false;
    return run(gemm, product, operands, bias, added, stream, err);
}

static sp_status check(const sp_i_cuda_gemm *gemm, cublasStatus_t code, const char *call,
                       const sp_i_cuda_product *product, sp_error *err)
{
    static const char *const names[] = {"forward", "input gradient", "weight gradient"};
    if (code == CUBLAS_STATUS_SUCCESS) {
        return SP_OK;
    }
    sp_status status = code == CUBLAS_STATUS_ALLOC_FAILED ? SP_ERR_NO_MEMORY : SP_ERR_INTERNAL;
    const char *name = gemm->cublas->GetStatusName(code);
    if (product == NULL) {
        return sp_error_set(err, status, "GPU %d: %s failed with %s", gemm->device.index, call,
                            name);
    }
    return sp_error_set(err, status, "GPU %d: %s failed with %s for a %s of %lld x %lld x %lld",
                        gemm->device.index, call, name, names[product->kind],
                        (long long)product->tokens, (long long)product->in,
                        (long long)product->out);
}

// Parameters stand one behind the other, and tensors in others: any power of two may come.
static uint32_t alignment_of(const sp_i_cuda_operands *operands, const void *bias)
{
    uintptr_t places = (uintptr_t)operands->left | (uintptr_t)operands->right |
                       (uintptr_t)operands->result | (uintptr_t)bias | BEST_ALIGNMENT;
    return (uint32_t)(places & (~places + 1));
}

// ---- a shape's plan ----

// Column-major sizes and transpositions of A and B, and the result's.
typedef struct form {
    cublasOperation_t a_op, b_op;
    int64_t a_rows, a_columns, b_rows, b_columns, rows, columns;
} form;

static form form_of(const sp_i_cuda_product *p)
{
    switch (p->kind) {
    case SP_I_PRODUCT_FORWARD:
        return (form){CUBLAS_OP_T, CUBLAS_OP_N, p->in, p->out, p->in, p->tokens, p->out, p->tokens};
    case SP_I_PRODUCT_INPUT:
        return (form){CUBLAS_OP_N, CUBLAS_OP_N, p->in, p->out, p->out, p->tokens, p->in, p->tokens};
    default:
        return (form){CUBLAS_OP_N, CUBLAS_OP_T, p->in, p->tokens, p->out, p->tokens, p->in, p->out};
    }
}

// A bias is of the result's type and as long as a column of it. Choosing an algorithm looks at the
// alignment of its address and at nothing there: one that is aligned as the plan's operands are,
// whatever that of the first call is.
static cublasStatus_t describe_product(const sp_i_cuda_gemm *gemm, plan *p, const form *f)
{
    const void *bias = (const void *)(uintptr_t)p->alignment;
    const int32_t sms = gemm->place.sms;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const struct {
        bool given;
        cublasLtMatmulDescAttributes_t which;
        const void *value;
        size_t bytes;
    } attributes[] = {
        {true, CUBLASLT_MATMUL_DESC_TRANSA, &f->a_op, sizeof f->a_op},
        {true, CUBLASLT_MATMUL_DESC_TRANSB, &f->b_op, sizeof f->b_op},
        {sms > 0, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &sms, sizeof sms},
        {p->adds_bias, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue},
        {p->adds_bias, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias},
    };
    cublasStatus_t code =
        gemm->cublas->MatmulDescCreate(&p->matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    for (size_t i = 0; code == CUBLAS_STATUS_SUCCESS && i < sizeof attributes / sizeof *attributes;
         i++) {
        if (attributes[i].given) {
            code = gemm->cublas->MatmulDescSetAttribute(p->matmul, attributes[i].which,
                                                        attributes[i].value, attributes[i].bytes);
        }
    }
    return code;
}

static cublasStatus_t describe(const sp_i_cuda_gemm *gemm, plan *p)
{
    const sp_i_cublas_api *lt = gemm->cublas;
    const form f = form_of(&p->product);
    const cudaDataType result = p->product.fp32 ? CUDA_R_32F : CUDA_R_16BF;
    cublasStatus_t code = describe_product(gemm, p, &f);
    if (code == CUBLAS_STATUS_SUCCESS) {
        code = lt->MatrixLayoutCreate(&p->a, CUDA_R_16BF, (uint64_t)f.a_rows, (uint64_t)f.a_columns,
                                      f.a_rows);
    }
    if (code == CUBLAS_STATUS_SUCCESS) {
        code = lt->MatrixLayoutCreate(&p->b, CUDA_R_16BF, (uint64_t)f.b_rows, (uint64_t)f.b_columns,
                                      f.b_rows);
    }
    if (code == CUBLAS_STATUS_SUCCESS) {
        code = lt->MatrixLayoutCreate(&p->c, result, (uint64_t)f.rows, (uint64_t)f.columns, f.rows);
    }
    return code;
}

static cublasStatus_t choose_algorithm(const sp_i_cuda_gemm *gemm, plan *p)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const sp_i_cublas_api *lt = gemm->cublas;
    const uint64_t most = (uint64_t)gemm->place.workspace_bytes;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    cublasStatus_t code = lt->MatmulPreferenceCreate(&preference);
    if (code != CUBLAS_STATUS_SUCCESS) {
        return code;
    }
    code = lt->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &most, sizeof most);
    for (int i = 0; code == CUBLAS_STATUS_SUCCESS && i < 4; i++) {
        code = lt->MatmulPreferenceSetAttribute(preference, alignments[i], &p->alignment,
                                                sizeof p->alignment);
    }
    if (code == CUBLAS_STATUS_SUCCESS) {
        code = lt->MatmulAlgoGetHeuristic(gemm->handle, p->matmul, p->a, p->b, p->c, p->c,
                                          preference, 1, &best, &found);
    }
    (void)lt->MatmulPreferenceDestroy(preference);
    if (code == CUBLAS_STATUS_SUCCESS && found == 0) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (code == CUBLAS_STATUS_SUCCESS) {
        p->algorithm = best.algo;
        p->workspace_bytes = best.workspaceSize;
    }
    return code;
}

// ---- plans by shape ----

static int compare(const void *x, const void *y)
{
    const plan *a = x;
    const plan *b = y;
    const sp_i_cuda_product *p = &a->product;
    const sp_i_cuda_product *q = &b->product;
    const int64_t parts[][2] = {
        {p->tokens, q->tokens},       {p->in, q->in},        {p->out, q->out},
        {p->kind, q->kind},           {p->fp32, q->fp32},    {p->accumulate, q->accumulate},
        {a->alignment, b->alignment}, {a->biased, b->biased}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i][0] != parts[i][1]) {
            return parts[i][0] < parts[i][1] ? -1 : 1;
        }
    }
    return 0;
}

// With a bias for which there is no algorithm: the plan of the plain product.
static sp_status make_plan(const sp_i_cuda_gemm *gemm, plan *p, bool bias, sp_error *err)
{
    const plan empty = *p;
    p->adds_bias = bias;
    SP_TRY(check(gemm, describe(gemm, p), "describing a product", &p->product, err));
    cublasStatus_t code = choose_algorithm(gemm, p);
    if (code == CUBLAS_STATUS_NOT_SUPPORTED && p->adds_bias) {
        plan_fini(gemm, p);
        *p = empty;
        return make_plan(gemm, p, false, err);
    }
    return check(gemm, code, "cublasLtMatmulAlgoGetHeuristic", &p->product, err);
}

static sp_status find_plan(sp_i_cuda_gemm *gemm, const sp_i_cuda_product *product,
                           uint32_t alignment, bool biased, plan **found, sp_error *err)
{
    const plan wanted = {.product = *product, .alignment = alignment, .biased = biased};
    plan **known = tfind(&wanted, &gemm->plans, compare);
    if (known != NULL) {
        *found = *known;
        return SP_OK;
    }
    plan *made = sp_malloc(sizeof *made);
    *made = wanted;
    sp_status status = make_plan(gemm, made, biased, err);
    if (status == SP_OK && tsearch(made, &gemm->plans, compare) == NULL) {
        sp_out_of_memory(sizeof(void *)); // a node of the tree
    }
    if (status != SP_OK) {
        plan_fini(gemm, made);
        sp_free(made);
        return status;
    }
    *found = made;
    return SP_OK;
}

#define ENTRY(call)                                       \
    {                                                     \
        "cublasLt" #call, offsetof(sp_i_cublas_api, call) \
    }

bool sp_i_cublas_api_init(sp_i_cublas_api *api, char *reason, size_t reason_bytes)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so", NULL};
    static const sp_i_library_symbol symbols[] = {
        ENTRY(GetVersion),
        ENTRY(GetStatusName),
        ENTRY(Create),
        ENTRY(Destroy),
        ENTRY(MatmulDescCreate),
        ENTRY(MatmulDescDestroy),
        ENTRY(MatmulDescSetAttribute),
        ENTRY(MatrixLayoutCreate),
        ENTRY(MatrixLayoutDestroy),
        ENTRY(MatmulPreferenceCreate),
        ENTRY(MatmulPreferenceDestroy),
        ENTRY(MatmulPreferenceSetAttribute),
        ENTRY(MatmulAlgoGetHeuristic),
        ENTRY(Matmul),
    };
    return sp_i_library_open(names, symbols, sizeof symbols / sizeof *symbols, api, reason,
                             reason_bytes);
}
