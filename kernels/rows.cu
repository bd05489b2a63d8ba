#include "kernels/cuda_rows.h"

#include "kernels/walk.cuh"

namespace
{

struct copy_operation {
    const sp_bf16 *from;
    int64_t from_stride;
    const int64_t *from_index; // or NULL
    sp_bf16 *to;
    int64_t to_stride;
    const int64_t *to_index; // or NULL

    template <int COUNT> using inputs = bf16s<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        int64_t at = from_index != nullptr ? from_index[row] : row;
        return read<COUNT>(from + at * from_stride + column);
    }

    template <int COUNT>
    __device__ void put(int64_t row, int64_t column, const inputs<COUNT> &in) const
    {
        int64_t at = to_index != nullptr ? to_index[row] : row;
        *reinterpret_cast<bf16s<COUNT> *>(to + at * to_stride + column) = in;
    }
};

// Columns below `edge` are those of one tensor, the others of another.
struct split_operation {
    const sp_bf16 *qkv;
    int64_t qkv_stride;
    sp_bf16 *q;
    int64_t q_stride;
    sp_bf16 *kv;
    int64_t kv_stride, edge;

    template <int COUNT> using inputs = bf16s<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        return read<COUNT>(qkv + row * qkv_stride + column);
    }

    template <int COUNT>
    __device__ void put(int64_t row, int64_t column, const inputs<COUNT> &in) const
    {
        sp_bf16 *to =
            column < edge ? q + row * q_stride + column : kv + row * kv_stride + (column - edge);
        *reinterpret_cast<bf16s<COUNT> *>(to) = in;
    }
};

struct merge_operation {
    const sp_bf16 *q;
    int64_t q_stride;
    const sp_bf16 *kv;
    int64_t kv_stride, edge;
    sp_bf16 *qkv;
    int64_t qkv_stride;

    template <int COUNT> using inputs = bf16s<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        return read<COUNT>(column < edge ? q + row * q_stride + column
                                         : kv + row * kv_stride + (column - edge));
    }

    template <int COUNT>
    __device__ void put(int64_t row, int64_t column, const inputs<COUNT> &in) const
    {
        *reinterpret_cast<bf16s<COUNT> *>(qkv + row * qkv_stride + column) = in;
    }
};

int copy(int64_t rows, int64_t columns, const copy_operation &op, sp_cuda_stream stream)
{
    bool aligned = aligned_rows(op.from, op.from_stride) && aligned_rows(op.to, op.to_stride);
    return walk_over(rows, columns, aligned, op, stream);
}

} // namespace

int sp_cuda_copy_rows(int64_t rows, int64_t columns, const sp_bf16 *from, int64_t from_stride,
                      sp_bf16 *to, int64_t to_stride, sp_cuda_stream stream)
{
    return copy(rows, columns, {from, from_stride, nullptr, to, to_stride, nullptr}, stream);
}

int sp_cuda_gather_rows(int64_t rows, int64_t columns, const int64_t *index, const sp_bf16 *from,
                        int64_t from_stride, sp_bf16 *to, int64_t to_stride, sp_cuda_stream stream)
{
    return copy(rows, columns, {from, from_stride, index, to, to_stride, nullptr}, stream);
}

int sp_cuda_scatter_rows(int64_t rows, int64_t columns, const int64_t *index, const sp_bf16 *from,
                         int64_t from_stride, sp_bf16 *to, int64_t to_stride, sp_cuda_stream stream)
{
    return copy(rows, columns, {from, from_stride, nullptr, to, to_stride, index}, stream);
}

int sp_cuda_split_qkv(int64_t tokens, int64_t q_columns, int64_t kv_columns, const sp_bf16 *qkv,
                      int64_t qkv_stride, sp_bf16 *q, int64_t q_stride, sp_bf16 *kv,
                      int64_t kv_stride, sp_cuda_stream stream)
{
    if (q_columns < 0 || kv_columns < 0) {
        return SP_I_CUDA_INVALID;
    }
    split_operation op = {qkv, qkv_stride, q, q_stride, kv, kv_stride, q_columns};
    bool aligned = q_columns % 8 == 0 && aligned_rows(qkv, qkv_stride) &&
                   aligned_rows(q, q_stride) && aligned_rows(kv, kv_stride);
    return walk_over(tokens, q_columns + 2 * kv_columns, aligned, op, stream);
}

int sp_cuda_merge_qkv(int64_t tokens, int64_t q_columns, int64_t kv_columns, const sp_bf16 *q,
                      int64_t q_stride, const sp_bf16 *kv, int64_t kv_stride, sp_bf16 *qkv,
                      int64_t qkv_stride, sp_cuda_stream stream)
{
    if (q_columns < 0 || kv_columns < 0) {
        return SP_I_CUDA_INVALID;
    }
    merge_operation op = {q, q_stride, kv, kv_stride, q_columns, qkv, qkv_stride};
    bool aligned = q_columns % 8 == 0 && aligned_rows(qkv, qkv_stride) &&
                   aligned_rows(q, q_stride) && aligned_rows(kv, kv_stride);
    return walk_over(tokens, q_columns + 2 * kv_columns, aligned, op, stream);
}
