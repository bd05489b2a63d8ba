// Attention over the keys that a mask keeps, and the sums that masks are chosen from.
#include "kernels/attention_forward.cuh"
#include "kernels/cuda_sample.h"

namespace
{

// ---- attention over kept keys ----

struct sample_arguments {
    attention_arguments all;
    sp_cuda_attention_slice slice;
    const sp_bf16 *k, *v;
    const int32_t *column;
    const sp_cuda_sample_item *items;
    const sp_cuda_sample_run *runs;
    int64_t keys;
};

// The queries of one item.
struct own_item {
    const sp_cuda_attention_slice *slice;
    int head, column, kv_column;
    int begin, rows;
    int64_t position;

    __device__ __forceinline__ own_item(const sample_arguments &a, const sp_cuda_sample_item &item)
    {
        slice = &a.slice;
        head = item.head;
        column = head * a.all.head_dim;
        kv_column = head / a.all.queries_per_kv * a.all.head_dim;
        begin = item.begin;
        rows = static_cast<int>(slice->queries) - begin;
        rows = rows < SP_CUDA_ATTENTION_TILE ? rows : SP_CUDA_ATTENTION_TILE;
        position = slice->query_begin + begin;
    }
};

// Starts the copy of the rows that `index` names, [rows].
template <int DIM, int ROWS, int COPYING>
__device__ __forceinline__ void take_rows(unsigned char *to, const sp_bf16 *from,
                                          const int32_t *index, int64_t stride, int64_t less,
                                          int rows, int columns)
{
    const int chunks = DIM / 8;
    const int step = COPYING / chunks; // a multiple of 8
    int row = static_cast<int>(threadIdx.x) / chunks;
    int chunk = static_cast<int>(threadIdx.x) % chunks;
    unsigned char *place = to + sp_i_attention_offset(row, chunk, chunks);
#pragma unroll
    for (int done = 0; done < ROWS; done += step) {
        bool valid = chunk * 8 < columns && row + done < rows;
        const sp_bf16 *next = valid ? from + (index[row + done] - less) * stride + chunk * 8 : from;
        sp_i_copy_async(place + tile_bytes<DIM>(done), next, valid);
    }
}

// The tiles of kept keys: single columns together, then run after run.
struct kept_stream {
    const sp_bf16 *k, *v;
    const int32_t *column;
    const sp_cuda_sample_run *run;
    int columns, runs; // left, with these
    int at;            // in the run

    __device__ __forceinline__ bool done() const
    {
        return columns == 0 && runs == 0;
    }

    __device__ __forceinline__ int keys() const
    {
        int left = columns > 0 ? columns : run->keys - at;
        return left < SP_I_STREAMED_ROWS ? left : SP_I_STREAMED_ROWS;
    }

    // Every query sees single columns, as if they stood at the sample's begin.
    __device__ __forceinline__ int64_t first() const
    {
        return columns > 0 ? -SP_I_STREAMED_ROWS : run->begin + at;
    }

    __device__ __forceinline__ void advance()
    {
        int taken = keys();
        if (columns > 0) {
            column += taken;
            columns -= taken;
            return;
        }
        at += taken;
        if (at == run->keys) {
            at = 0;
            run++;
            runs--;
        }
    }

    template <int DIM, int COPYING>
    __device__ __forceinline__ void take(unsigned char *to, int64_t stride, int kv_column,
                                         int head_dim) const
    {
        unsigned char *values = to + tile_bytes<DIM>(SP_I_STREAMED_ROWS);
        if (done()) {
            return;
        }
        if (columns > 0) {
            take_rows<DIM, SP_I_STREAMED_ROWS, COPYING>(to, k + kv_column, column, stride, 0,
                                                        keys(), head_dim);
            take_rows<DIM, SP_I_STREAMED_ROWS, COPYING>(values, v + kv_column, column, stride, 0,
                                                        keys(), head_dim);
            return;
        }
        int64_t from = first() * stride + kv_column;
        take_tile<DIM, SP_I_STREAMED_ROWS, COPYING>(to, k + from, stride, keys(), head_dim);
        take_tile<DIM, SP_I_STREAMED_ROWS, COPYING>(values, v + from, stride, keys(), head_dim);
    }
};

template <int DIM>
__global__ void __launch_bounds__(THREADS) sample_attention_kernel(sample_arguments a)
{
    const sp_cuda_sample_item item = a.items[blockIdx.x];
    const own_item own(a, item);
    kept_stream stream = {
        a.k,       a.v, a.column + item.head * a.keys, a.runs + item.first_run, item.columns,
        item.runs, 0};
    attend<DIM>(a.all, own, stream);
}

// ---- sums over sampled queries ----

enum { MASS_KEYS = SP_KERNEL_SAMPLE_TILE, MASS_QUERIES = 64, MASS_STEP = 32 };

struct mass_arguments {
    sp_cuda_sample_bands bands;
    sp_cuda_sample_sums sums;
    int64_t q_stride, kv_stride;
    int heads, queries_per_kv, head_dim, blocks;
    float scale_log2;
};

// Of the queries that pass by.
struct sampled_numbers {
    float lse[MASS_QUERIES]; // in units of log 2
    int position[MASS_QUERIES];
    float by_warp[4][MASS_QUERIES];
};

// What a lane adds up: of its four keys.
struct key_sums {
    float before[ROW_TILES][2], inside[ROW_TILES][2];
};

// Scores become probabilities, keys by queries; adds them to the keys' sums, and to those of the
// queries over the warp's keys. Key row r is visible to a query at p where first + r <= p.
__device__ __forceinline__ void add_scores(const mass_arguments &a,
                                           const product<ROW_TILES, MASS_STEP / 8> &scores,
                                           sampled_numbers *numbers, int query, int queries,
                                           int64_t first, int keys, key_sums &sums)
{
    int lane = static_cast<int>(threadIdx.x) % 32;
    int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int n = 0; n < MASS_STEP / 8; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int column = query + n * 8 + lane % 4 * 2 + e;
            bool there = column < queries;
            int64_t position = there ? numbers->position[column] : -1;
            float lse = there ? numbers->lse[column] : 0.0F;
            float of_query = 0;
#pragma unroll
            for (int i = 0; i < ROW_TILES * 2; i++) {
                int row = warp * 16 * ROW_TILES + i / 2 * 16 + i % 2 * 8 + lane / 4;
                bool seen = row < keys && first + row <= position;
                float score = scores.c[i / 2][n][2 * (i % 2) + e];
                float p = seen ? sp_i_exp2(score * a.scale_log2 - lse) : 0.0F;
                bool within = first + row > position - a.bands.window;
                sums.inside[i / 2][i % 2] += within ? p : 0.0F;
                sums.before[i / 2][i % 2] += within ? 0.0F : p;
                of_query += p;
            }
            of_query += sp_i_exchange(of_query, 4);
            of_query += sp_i_exchange(of_query, 8);
            of_query += sp_i_exchange(of_query, 16);
            if (lane < 4) {
                numbers->by_warp[warp][column] = of_query;
            }
        }
    }
}

// Sums over the four lanes that hold a key.
__device__ __forceinline__ void write_keys(const mass_arguments &a, int head, int64_t first,
                                           int keys, key_sums &sums)
{
    int lane = static_cast<int>(threadIdx.x) % 32;
    int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int i = 0; i < ROW_TILES * 2; i++) {
        float before = sums.before[i / 2][i % 2];
        float inside = sums.inside[i / 2][i % 2];
        before += sp_i_exchange(before, 1);
        before += sp_i_exchange(before, 2);
        inside += sp_i_exchange(inside, 1);
        inside += sp_i_exchange(inside, 2);
        int row = warp * 16 * ROW_TILES + i / 2 * 16 + i % 2 * 8 + lane / 4;
        if (lane % 4 == 0 && row < keys) {
            int64_t at = head * a.bands.keys + first + row;
            a.sums.before[at] = before;
            a.sums.inside[at] = inside;
        }
    }
}

// Brings the sampled queries [done, done + queries) of a head, and waits for them.
template <int DIM>
__device__ __forceinline__ void take_queries(const mass_arguments &a, int head, int64_t done,
                                             int queries, unsigned char *q_tile,
                                             sampled_numbers *numbers)
{
    const sp_cuda_sample_bands &bands = a.bands;
    int own = static_cast<int>(threadIdx.x);
    take_rows<DIM, MASS_QUERIES, THREADS>(q_tile, bands.q + head * a.head_dim,
                                          bands.position + done, a.q_stride, bands.begin, queries,
                                          a.head_dim);
    sp_i_copy_commit();
    if (own < queries) {
        numbers->lse[own] = bands.lse[(done + own) * a.heads + head] * SP_I_LOG2_E;
        numbers->position[own] = bands.position[done + own];
    }
    sp_i_copy_wait<0>();
    __syncthreads();
}

// Sums over the block's keys, of each query.
__device__ __forceinline__ void write_queries(const mass_arguments &a, int head, int block,
                                              int64_t done, int queries,
                                              const sampled_numbers *numbers)
{
    int own = static_cast<int>(threadIdx.x);
    if (own < queries && a.sums.by_query != nullptr) {
        float sum = 0;
        for (int warp = 0; warp < 4; warp++) {
            sum += numbers->by_warp[warp][own];
        }
        int64_t row = static_cast<int64_t>(head) * a.blocks + block;
        a.sums.by_query[row * a.bands.sampled + done + own] = sum;
    }
}

template <int DIM> __global__ void __launch_bounds__(THREADS) sample_mass_kernel(mass_arguments a)
{
    unsigned char *k_tile = sp_i_shared();
    unsigned char *q_tile = k_tile + tile_bytes<DIM>(MASS_KEYS);
    sampled_numbers *numbers =
        reinterpret_cast<sampled_numbers *>(q_tile + tile_bytes<DIM>(MASS_QUERIES));
    int head = static_cast<int>(blockIdx.x) % a.heads;
    int block = static_cast<int>(blockIdx.x) / a.heads;
    int64_t first = static_cast<int64_t>(block) * MASS_KEYS;
    int keys = static_cast<int>(a.bands.keys - first);
    keys = keys < MASS_KEYS ? keys : MASS_KEYS;
    int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * ROW_TILES;
    take_tile<DIM, MASS_KEYS, THREADS>(
        k_tile, a.bands.k + first * a.kv_stride + head / a.queries_per_kv * a.head_dim, a.kv_stride,
        keys, a.head_dim);
    key_sums sums = {};
    for (int64_t done = 0; done < a.bands.sampled; done += MASS_QUERIES) {
        int queries = static_cast<int>(a.bands.sampled - done);
        queries = queries < MASS_QUERIES ? queries : MASS_QUERIES;
        take_queries<DIM>(a, head, done, queries, q_tile, numbers);
#pragma unroll 1
        for (int query = 0; query < MASS_QUERIES; query += MASS_STEP) {
            product<ROW_TILES, MASS_STEP / 8> scores;
            scores.clear();
            multiply_rows<DIM>(scores, k_tile, warp_row, q_tile, query);
            add_scores(a, scores, numbers, query, queries, first, keys, sums);
        }
        __syncthreads();
        write_queries(a, head, block, done, queries, numbers);
        __syncthreads();
    }
    write_keys(a, head, first, keys, sums);
}

} // namespace

int sp_cuda_sample_attention(const sp_kernel_attention_shape *shape,
                             const sp_cuda_sample_queries *queries,
                             const sp_cuda_sample_tables *tables, sp_cuda_stream stream)
{
    if (!sp_i_attention_shape_fits(shape) || !sp_i_cuda_aligned(queries->q, 0, 2) ||
        !sp_i_cuda_aligned(queries->k, 0, 2) || !sp_i_cuda_aligned(queries->v, 0, 2) ||
        !sp_i_cuda_aligned(queries->out, 0, 2) || tables->item_count > INT32_MAX) {
        return SP_I_CUDA_INVALID;
    }
    if (tables->item_count == 0) {
        return 0;
    }
    sp_cuda_attention_tables none = {};
    sample_arguments a = {arguments_of(shape, &none, nullptr),
                          {},
                          queries->k,
                          queries->v,
                          tables->column,
                          tables->items,
                          tables->runs,
                          queries->begin + queries->queries};
    a.all.scale *= SP_I_LOG2_E;
    a.slice.q = queries->q;
    a.slice.out = queries->out;
    a.slice.lse = queries->lse;
    a.slice.query_begin = queries->begin;
    a.slice.queries = queries->queries;
    bool wide = shape->head_dim > 64;
    const int rows = QUERIES + 4 * KEYS;
    return sp_i_launch(wide ? sample_attention_kernel<128> : sample_attention_kernel<64>,
                       dim3(static_cast<unsigned>(tables->item_count)), THREADS,
                       static_cast<size_t>(wide ? tile_bytes<128>(rows) : tile_bytes<64>(rows)),
                       stream, a);
}

int sp_cuda_sample_mass(const sp_kernel_attention_shape *shape, const sp_cuda_sample_bands *bands,
                        const sp_cuda_sample_sums *sums, sp_cuda_stream stream)
{
    int64_t blocks = (bands->keys + MASS_KEYS - 1) / MASS_KEYS;
    if (!sp_i_attention_shape_fits(shape) || !sp_i_cuda_aligned(bands->q, 0, 2) ||
        !sp_i_cuda_aligned(bands->k, 0, 2) || blocks * shape->heads > INT32_MAX) {
        return SP_I_CUDA_INVALID;
    }
    if (blocks == 0) {
        return 0;
    }
    mass_arguments a = {*bands,
                        *sums,
                        shape->q_stride,
                        shape->kv_stride,
                        static_cast<int>(shape->heads),
                        static_cast<int>(shape->heads / shape->kv_heads),
                        static_cast<int>(shape->head_dim),
                        static_cast<int>(blocks),
                        static_cast<float>(shape->scale) * SP_I_LOG2_E};
    bool wide = shape->head_dim > 64;
    const int rows = MASS_KEYS + MASS_QUERIES;
    size_t bytes = static_cast<size_t>(wide ? tile_bytes<128>(rows) : tile_bytes<64>(rows));
    return sp_i_launch(wide ? sample_mass_kernel<128> : sample_mass_kernel<64>,
                       dim3(static_cast<unsigned>(blocks * shape->heads)), THREADS,
                       bytes + sizeof(sampled_numbers), stream, a);
}
