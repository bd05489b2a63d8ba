// Rows copied between tensors on a CUDA device: parts of a wider tensor, slices between packs.
// [rows, columns] bf16 unless a name says otherwise; copies are exact, bit for bit.
#ifndef SLIMPACK_KERNELS_CUDA_ROWS_H
#define SLIMPACK_KERNELS_CUDA_ROWS_H

#include "kernels/cuda_stream.h"

SP_CUDA_BEGIN

int sp_cuda_copy_rows(int64_t rows, int64_t columns, const sp_bf16 *from, int64_t from_stride,
                      sp_bf16 *to, int64_t to_stride, sp_cuda_stream stream);

// to[i] = from[index[i]].
int sp_cuda_gather_rows(int64_t rows, int64_t columns, const int64_t *index, const sp_bf16 *from,
                        int64_t from_stride, sp_bf16 *to, int64_t to_stride, sp_cuda_stream stream);

// to[index[i]] = from[i]; no index stands there twice.
int sp_cuda_scatter_rows(int64_t rows, int64_t columns, const int64_t *index, const sp_bf16 *from,
                         int64_t from_stride, sp_bf16 *to, int64_t to_stride,
                         sp_cuda_stream stream);

// The rows [q | k | v] of one product, `q_columns` and twice `kv_columns` wide, into q, and k and v
// beside each other in kv [tokens, 2 kv_columns], and back.
int sp_cuda_split_qkv(int64_t tokens, int64_t q_columns, int64_t kv_columns, const sp_bf16 *qkv,
                      int64_t qkv_stride, sp_bf16 *q, int64_t q_stride, sp_bf16 *kv,
                      int64_t kv_stride, sp_cuda_stream stream);
int sp_cuda_merge_qkv(int64_t tokens, int64_t q_columns, int64_t kv_columns, const sp_bf16 *q,
                      int64_t q_stride, const sp_bf16 *kv, int64_t kv_stride, sp_bf16 *qkv,
                      int64_t qkv_stride, sp_cuda_stream stream);

SP_CUDA_END

#endif
