// The products of a linear layer in bf16 with fp32 sums, by cuBLASLt. All matrices are row-major
// and dense, as those of kernels/typed.h.
#ifndef SLIMPACK_BACKENDS_CUDA_PRODUCTS_GEMM_H
#define SLIMPACK_BACKENDS_CUDA_PRODUCTS_GEMM_H

#include <cublasLt.h>
#include <stdbool.h>
#include <stddef.h>

#include "backends/cuda/device.h"
#include "backends/executor/calibrate.h"

// The entry points of cuBLASLt that the backend calls, as a table (see sp_cuda_api in device.h).

typedef struct sp_i_cublas_api {
    size_t (*GetVersion)(void);
    const char *(*GetStatusName)(cublasStatus_t status);
    cublasStatus_t (*Create)(cublasLtHandle_t *handle);
    cublasStatus_t (*Destroy)(cublasLtHandle_t handle);
    cublasStatus_t (*MatmulDescCreate)(cublasLtMatmulDesc_t *made, cublasComputeType_t compute,
                                       cudaDataType_t scale);
    cublasStatus_t (*MatmulDescDestroy)(cublasLtMatmulDesc_t matmul);
    cublasStatus_t (*MatmulDescSetAttribute)(cublasLtMatmulDesc_t matmul,
                                             cublasLtMatmulDescAttributes_t attribute,
                                             const void *value, size_t bytes);
    cublasStatus_t (*MatrixLayoutCreate)(cublasLtMatrixLayout_t *made, cudaDataType type,
                                         uint64_t rows, uint64_t columns, int64_t stride);
    cublasStatus_t (*MatrixLayoutDestroy)(cublasLtMatrixLayout_t layout);
    cublasStatus_t (*MatmulPreferenceCreate)(cublasLtMatmulPreference_t *made);
    cublasStatus_t (*MatmulPreferenceDestroy)(cublasLtMatmulPreference_t preference);
    cublasStatus_t (*MatmulPreferenceSetAttribute)(cublasLtMatmulPreference_t preference,
                                                   cublasLtMatmulPreferenceAttributes_t attribute,
                                                   const void *value, size_t bytes);
    cublasStatus_t (*MatmulAlgoGetHeuristic)(cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul,
                                             cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                             cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                             cublasLtMatmulPreference_t preference, int wanted,
                                             cublasLtMatmulHeuristicResult_t results[], int *found);
    cublasStatus_t (*Matmul)(cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul,
                             const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                             const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                             const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                             cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm,
                             void *workspace, size_t workspace_bytes, CUstream stream);
} sp_i_cublas_api;

// False, with the reason, where cuBLASLt is not there.
bool sp_i_cublas_api_init(sp_i_cublas_api *api, char *reason, size_t reason_bytes);

typedef struct sp_i_cuda_product {
    sp_i_product kind;
    int64_t tokens, in, out;
    bool fp32;       // the result; else bf16
    bool accumulate; // add to the result, in the product's own epilogue
} sp_i_cuda_product;

// The operands of a kind, in the order of the formulas above.
typedef struct sp_i_cuda_operands {
    const void *left, *right; // bf16
    void *result;
} sp_i_cuda_operands;

// Products of one stream: a handle and a workspace that no other stream uses, and algorithms by
// shape. One thread at a time.
typedef struct sp_i_cuda_gemm sp_i_cuda_gemm;

enum { SP_I_CUDA_GEMM_WORKSPACE = 32 << 20 }; // what NVIDIA recommends for Hopper

typedef struct sp_i_cuda_gemm_place {
    void *workspace; // the caller's, aligned to 256 bytes
    int64_t workspace_bytes;
    int sms; // that the stream may use, where it runs in a partition; 0: all
} sp_i_cuda_gemm_place;

sp_status sp_i_cuda_gemm_new(const sp_i_cuda_device *device, const sp_i_cublas_api *cublas,
                             const sp_i_cuda_gemm_place *place, sp_i_cuda_gemm **made,
                             sp_error *err);
void sp_i_cuda_gemm_free(sp_i_cuda_gemm *gemm);

// Puts a product on the stream. The first of a shape, and of the alignment of its operands, asks
// cuBLASLt for an algorithm that takes both; O(1) after that. SP_ERR_INTERNAL with the shape where
// there is none or the call fails.
sp_status sp_i_cuda_gemm_run(sp_i_cuda_gemm *gemm, const sp_i_cuda_product *product,
                             const sp_i_cuda_operands *operands, CUstream stream, sp_error *err);

// Puts a forward product with bf16 result plus a bias [out], bf16, on the stream: y + b in each
// row, which the product adds before the one rounding. *added is false where cuBLASLt has no
// algorithm for that: the product is then there without it. A shape with and without a bias are
// two.
sp_status sp_i_cuda_gemm_run_biased(sp_i_cuda_gemm *gemm, const sp_i_cuda_product *product,
                                    const sp_i_cuda_operands *operands, const void *bias,
                                    bool *added, CUstream stream, sp_error *err);

#endif
