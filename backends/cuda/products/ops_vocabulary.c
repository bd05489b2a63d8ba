// Embedding and cross-entropy. Indices and targets stand on the host and pass through the rank's
// scratch memory.
#include "backends/cuda/products/ops.h"
#include "kernels/cuda_kernels.h"

// Holds the stream context of the rank. Room for `more` bytes stands behind the numbers, 16-byte
// aligned.
static int64_t *on_device(sp_i_cuda_rank *rank, int64_t count, const int64_t *numbers, int64_t more,
                          void **behind)
{
    int64_t bytes = (count * (int64_t)sizeof *numbers + 15) / 16 * 16;
    sp_i_cuda_hold(rank);
    char *room = sp_i_cuda_scratch(rank, bytes + more);
    if (room == NULL) {
        *behind = NULL;
        return NULL;
    }
    sp_i_cuda_stage(rank, room, numbers, count * (int64_t)sizeof *numbers);
    *behind = room + bytes;
    return (int64_t *)(void *)room;
}

void SP_OP(embedding)(int64_t tokens, int64_t features, const int64_t *index, int64_t first,
                      int64_t rows, const sp_bf16 *table, bool accumulate, sp_bf16 *y)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *at = on_device(rank, tokens, index, 0, &behind);
    SP_I_CUDA_PUT(rank, embedding, tokens, features, at, first, rows, table, accumulate, y,
                  features);
    sp_i_cuda_release(rank);
}

void SP_OP(embedding_backward_weight)(int64_t tokens, int64_t features, const int64_t *index,
                                      int64_t first, int64_t rows, const sp_bf16 *dy, float *dtable)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *order;
    const int64_t *at = on_device(rank, tokens, index, tokens * (int64_t)sizeof *index, &order);
    if (order != NULL) {
        sp_i_cuda_stage_order(rank, order, index, tokens);
    }
    SP_I_CUDA_PUT(rank, embedding_backward_weight, tokens, features, at, order, first, rows, dy,
                  features, dtable);
    sp_i_cuda_release(rank);
}

void SP_OP(cross_entropy_max)(int64_t tokens, int64_t columns, const sp_bf16 *logits,
                              int64_t stride, float *max)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), cross_entropy_max, tokens, columns, logits, stride, max);
}

void SP_OP(cross_entropy_sums)(int64_t tokens, int64_t columns, int64_t first,
                               const sp_bf16 *logits, int64_t stride, const int64_t *target,
                               const float *max, float *sum, float *target_logit)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *at = on_device(rank, tokens, target, 0, &behind);
    SP_I_CUDA_PUT(rank, cross_entropy_sums, tokens, columns, first, logits, stride, at, max, sum,
                  target_logit);
    sp_i_cuda_release(rank);
}

void SP_OP(cross_entropy_loss)(int64_t tokens, const int64_t *target, double total_weight,
                               const float *max, const float *sum, const float *target_logit,
                               float *lse, double *loss)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *at = on_device(rank, tokens, target, 0, &behind);
    SP_I_CUDA_PUT(rank, cross_entropy_loss, tokens, at, NULL, total_weight, max, sum, target_logit,
                  lse, loss);
    sp_i_cuda_release(rank);
}

void SP_OP(cross_entropy)(int64_t tokens, int64_t vocab, const sp_bf16 *logits,
                          const int64_t *target, double total_weight, float *lse, double *loss)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *at =
        on_device(rank, tokens, target, 3 * tokens * (int64_t)sizeof(float), &behind);
    float *max = behind;
    if (max != NULL) {
        float *sum = max + tokens;
        float *of_target = sum + tokens;
        SP_I_CUDA_PUT(rank, cross_entropy_local, tokens, vocab, 0, logits, vocab, at, max, sum,
                      of_target);
        SP_I_CUDA_PUT(rank, cross_entropy_loss, tokens, at, NULL, total_weight, max, sum, of_target,
                      lse, loss);
    }
    sp_i_cuda_release(rank);
}

void SP_OP(cross_entropy_backward)(int64_t tokens, int64_t columns, int64_t first, sp_bf16 *logits,
                                   int64_t stride, const int64_t *target, double total_weight,
                                   const float *lse)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *at = on_device(rank, tokens, target, 0, &behind);
    SP_I_CUDA_PUT(rank, cross_entropy_backward_in_place, tokens, columns, first, logits, stride, at,
                  total_weight, lse);
    sp_i_cuda_release(rank);
}
