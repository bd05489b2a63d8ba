// The products of a linear layer in bf16 with fp32 sums, by cuBLASLt. All matrices are row-major
// and dense, as those of kernels/typed.h.
#ifndef SLIMPACK_BACKENDS_CUDA_GEMM_H
#define SLIMPACK_BACKENDS_CUDA_GEMM_H

#include "backends/cuda/cublas_api.h"
#include "backends/cuda/device.h"

typedef enum sp_i_cuda_product_kind {
    SP_I_CUDA_FORWARD, // y [tokens, out] = x [tokens, in] W [out, in]^T
    SP_I_CUDA_INPUT,   // dx [tokens, in] = dy [tokens, out] W [out, in]
    SP_I_CUDA_WEIGHT,  // dW [out, in] = dy [tokens, out]^T x [tokens, in]
    SP_I_CUDA_PRODUCTS
} sp_i_cuda_product_kind;

typedef struct sp_i_cuda_product {
    sp_i_cuda_product_kind kind;
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
                             const sp_i_cuda_operands *operands, cudaStream_t stream,
                             sp_error *err);

// The same of a forward product with bf16 result plus a bias [out], bf16: y + b in each row, which
// the product adds before the one rounding. *added is false where cuBLASLt has no algorithm for
// that: the product is then there without it. A shape with and without a bias are two.
sp_status sp_i_cuda_gemm_run_biased(sp_i_cuda_gemm *gemm, const sp_i_cuda_product *product,
                                    const sp_i_cuda_operands *operands, const void *bias,
                                    bool *added, cudaStream_t stream, sp_error *err);

// Shapes, each with an alignment, that have an algorithm.
size_t sp_i_cuda_gemm_shapes(const sp_i_cuda_gemm *gemm);

#endif
