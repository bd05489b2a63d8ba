// Products of linear layers.
#include "backends/cuda/ops.h"
#include "kernels/cuda_kernels.h"

// Whether a bias is in it.
static bool multiply(sp_i_cuda_rank *rank, const sp_i_cuda_product *product, const void *left,
                     const void *right, const void *bias, void *result)
{
    const sp_i_cuda_operands operands = {left, right, result};
    sp_i_cuda_hold(rank);
    bool added = sp_i_cuda_multiply(rank, product, &operands, bias);
    sp_i_cuda_release(rank);
    return added;
}

void SP_OP(linear)(int64_t tokens, int64_t in, int64_t out, const sp_bf16 *x, const sp_bf16 *weight,
                   const sp_bf16 *bias, sp_bf16 *y)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    const sp_i_cuda_product product = {.kind = SP_I_CUDA_FORWARD, tokens, in, out};
    if (tokens == 0) {
        return;
    }
    if (!multiply(rank, &product, x, weight, bias, y) && bias != NULL) {
        SP_I_CUDA_PUT(rank, add_bias, tokens, out, bias, y, out);
    }
}

void SP_OP(linear_backward_input)(int64_t tokens, int64_t in, int64_t out, const sp_bf16 *dy,
                                  const sp_bf16 *weight, sp_bf16 *dx)
{
    const sp_i_cuda_product product = {.kind = SP_I_CUDA_INPUT, tokens, in, out};
    if (tokens > 0) {
        (void)multiply(sp_i_cuda_rank_now(), &product, dy, weight, NULL, dx);
    }
}

void SP_OP(linear_backward_weight)(int64_t tokens, int64_t in, int64_t out, const sp_bf16 *dy,
                                   const sp_bf16 *x, float *dweight, float *dbias)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    const sp_i_cuda_product product = {
        .kind = SP_I_CUDA_WEIGHT, tokens, in, out, .fp32 = true, .accumulate = true};
    if (tokens == 0) {
        return;
    }
    (void)multiply(rank, &product, dy, x, NULL, dweight);
    if (dbias != NULL) {
        sp_i_cuda_hold(rank);
        int64_t room = sp_cuda_column_sums_workspace(tokens, out);
        float *workspace = sp_i_cuda_scratch(rank, room * (int64_t)sizeof *workspace);
        SP_I_CUDA_PUT(rank, bias_backward, tokens, out, dy, out, dbias, workspace);
        sp_i_cuda_release(rank);
    }
}
