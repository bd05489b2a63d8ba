// Rows copied between tensors on a CUDA device: parts of a wider tensor, slices between packs.
// [rows, columns] bf16; copies are exact, bit for bit.
#ifndef SLIMPACK_KERNELS_CUDA_ROWS_H
#define SLIMPACK_KERNELS_CUDA_ROWS_H

#include "kernels/cuda_stream.h"

SP_CUDA_BEGIN

int sp_cuda_copy_rows(int64_t rows, int64_t columns, const sp_bf16 *from, int64_t from_stride,
                      sp_bf16 *to, int64_t to_stride, sp_cuda_stream stream);

SP_CUDA_END

#endif
