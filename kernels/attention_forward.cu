#include "kernels/attention_forward.cuh"

namespace
{

template <int DIM>
__global__ void __launch_bounds__(THREADS) attention_forward_kernel(attention_arguments a)
{
    const own_queries own(a);
    key_stream stream;
    stream.open(a.keys + own.group->first_keys, own.group->key_blocks, own.position + own.rows);
    attend<DIM>(a, own, stream);
}

} // namespace

int sp_cuda_attention_forward(const sp_kernel_attention_shape *shape,
                              const sp_cuda_attention_tables *tables, sp_cuda_stream stream)
{
    attention_arguments a = arguments_of(shape, tables, tables->query_tiles);
    a.scale *= SP_I_LOG2_E; // scores in units of log 2
    return launch_over_tiles(attention_forward_kernel<128>, attention_forward_kernel<64>, a,
                             tables->query_tile_count, shape->heads, THREADS, QUERIES + 4 * KEYS, 0,
                             stream);
}
