#include "kernels/cuda_rows.h"

#include "kernels/walk.cuh"

namespace
{

struct copy_operation {
    const sp_bf16 *from;
    int64_t from_stride;
    sp_bf16 *to;
    int64_t to_stride;

    template <int COUNT> using inputs = bf16s<COUNT>;

    template <int COUNT> __device__ inputs<COUNT> take(int64_t row, int64_t column) const
    {
        return read<COUNT>(from + row * from_stride + column);
    }

    template <int COUNT>
    __device__ void put(int64_t row, int64_t column, const inputs<COUNT> &in) const
    {
        *reinterpret_cast<bf16s<COUNT> *>(to + row * to_stride + column) = in;
    }
};

} // namespace

int sp_cuda_copy_rows(int64_t rows, int64_t columns, const sp_bf16 *from, int64_t from_stride,
                      sp_bf16 *to, int64_t to_stride, sp_cuda_stream stream)
{
    copy_operation op = {from, from_stride, to, to_stride};
    bool aligned = aligned_rows(from, from_stride) && aligned_rows(to, to_stride);
    return walk_over(rows, columns, aligned, op, stream);
}
