// The entry points of cuBLASLt that the backend calls, as a table (see api.h).
#ifndef SLIMPACK_BACKENDS_CUDA_PRODUCTS_CUBLAS_API_H
#define SLIMPACK_BACKENDS_CUDA_PRODUCTS_CUBLAS_API_H

#include <cublasLt.h>
#include <stdbool.h>
#include <stddef.h>

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
                             void *workspace, size_t workspace_bytes, cudaStream_t stream);
} sp_i_cublas_api;

// False, with the reason, where cuBLASLt is not there.
bool sp_i_cublas_api_init(sp_i_cublas_api *api, char *reason, size_t reason_bytes);

#endif
