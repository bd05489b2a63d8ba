// Embedding tables on a CUDA device, whole or a rank's rows [first, first + rows), as in
// embedding.h. table [rows, features] contiguous.
#ifndef SLIMPACK_KERNELS_CUDA_EMBEDDING_H
#define SLIMPACK_KERNELS_CUDA_EMBEDDING_H

#include "kernels/cuda_stream.h"

SP_CUDA_BEGIN

// y = table[index - first], or y += with `accumulate`; other indices give zeros, or nothing.
int sp_cuda_embedding(int64_t tokens, int64_t features, const int64_t *index, int64_t first,
                      int64_t rows, const sp_bf16 *table, bool accumulate, sp_bf16 *y,
                      int64_t y_stride, sp_cuda_stream stream);

// On the host: order [tokens] lists the tokens by their index, equal ones as they come. scratch
// [tokens]. O(tokens log tokens).
void sp_cuda_embedding_order(int64_t tokens, const int64_t *index, int64_t *order,
                             int64_t *scratch);

// dtable[index - first] += dy in fp32, where `order` is what sp_cuda_embedding_order made of index.
// Each row of the table is added to once, in an order that depends on `order` alone.
int sp_cuda_embedding_backward_weight(int64_t tokens, int64_t features, const int64_t *index,
                                      const int64_t *order, int64_t first, int64_t rows,
                                      const sp_bf16 *dy, int64_t dy_stride, float *dtable,
                                      sp_cuda_stream stream);

SP_CUDA_END

#endif
