// Attention by its definition: P = softmax(scale Q K^T) over the keys that a query sees, O = P V;
// dV = P^T dO, dP = dO V^T, dS = scale P (dP - sum(O dO)), dQ = dS K, dK = dS^T Q. A block of
// threads computes one row of one head: each thread a score at a time, then each thread its
// columns.
#include "kernels/cuda_kernels.h"
#include "kernels/cuda_math.h"
#include "kernels/instructions.cuh"

namespace
{

enum { THREADS = 128 }; // and scores that a block has at a time

struct arguments {
    sp_cuda_attention_pack pack;
    int64_t heads, group, head_dim; // group: query heads of a key head
    int64_t q_stride, kv_stride, out_stride, gradient_stride;
    float scale;
};

typedef sp_cuda_attention_segment segment;

// The last segment whose `first` is no further than the row.
__device__ const segment *segment_of(const sp_cuda_attention_pack &pack, int64_t row,
                                     int64_t segment::*first)
{
    int64_t low = 0;
    int64_t high = pack.count;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (pack.segments[middle].*first <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &pack.segments[low];
}

__device__ float number(sp_bf16 x)
{
    return sp_i_from_bits(static_cast<uint32_t>(x) << 16);
}

__device__ int at_a_time(int64_t left)
{
    return left < THREADS ? static_cast<int>(left) : THREADS;
}

__device__ float dot(const float *x, const sp_bf16 *y, int64_t n)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * number(y[i]);
    }
    return sum;
}

__device__ void read_row(float *to, const sp_bf16 *from, int64_t n)
{
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        to[i] = number(from[i]);
    }
}

__device__ void clear_row(float *to, int64_t n)
{
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        to[i] = 0;
    }
}

__device__ void write_row(sp_bf16 *to, const float *from, float factor, int64_t n)
{
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        to[i] = sp_i_round(from[i] * factor);
    }
}

// The row of a block of queries; `there` is false for a row of no segment.
struct query_row {
    const segment *s;
    bool there;
    int64_t row, head;
    int64_t seen;         // keys
    const sp_bf16 *k, *v; // of the first
    const sp_bf16 *q;

    __device__ explicit query_row(const arguments &a)
        : s(segment_of(a.pack, blockIdx.x, &segment::row)), row(blockIdx.x), head(blockIdx.y)
    {
        int64_t query = row - s->row;
        int64_t first = s->key_row * a.kv_stride + head / a.group * a.head_dim;
        there = query >= 0 && query < s->queries;
        seen = s->keys - s->queries + query + 1;
        k = a.pack.k + first;
        v = a.pack.v + first;
        q = a.pack.q + row * a.q_stride + head * a.head_dim;
    }
};

__device__ void attend_forward(const arguments &a)
{
    const query_row own(a);
    if (!own.there) {
        return;
    }
    const int64_t d = a.head_dim;
    const int me = static_cast<int>(threadIdx.x);
    float *q = reinterpret_cast<float *>(sp_i_shared());
    float *out = q + d;
    float *score = out + d;
    float max = -INFINITY;
    float sum = 0;
    read_row(q, own.q, d);
    clear_row(out, d);
    __syncthreads();
    for (int64_t key = 0; key < own.seen; key += THREADS) {
        int count = at_a_time(own.seen - key);
        if (me < count) {
            score[me] = a.scale * dot(q, own.k + (key + me) * a.kv_stride, d);
        }
        __syncthreads();
        float before = max;
        for (int j = 0; j < count; j++) {
            max = fmaxf(max, score[j]);
        }
        __syncthreads();
        if (me < count) {
            score[me] = expf(score[me] - max);
        }
        __syncthreads();
        float factor = expf(before - max);
        sum *= factor;
        for (int j = 0; j < count; j++) {
            sum += score[j];
        }
        for (int64_t i = me; i < d; i += THREADS) {
            float x = out[i] * factor;
            for (int j = 0; j < count; j++) {
                x += score[j] * number(own.v[(key + j) * a.kv_stride + i]);
            }
            out[i] = x;
        }
        __syncthreads();
    }
    write_row(a.pack.out + own.row * a.out_stride + own.head * d, out, 1 / sum, d);
    if (me == 0) {
        a.pack.lse[own.row * a.heads + own.head] = max + logf(sum);
    }
}

__device__ void attend_backward_queries(const arguments &a)
{
    const query_row own(a);
    if (!own.there) {
        return;
    }
    const int64_t d = a.head_dim;
    const int64_t out = own.row * a.out_stride + own.head * d;
    const int64_t number_of_row = own.row * a.heads + own.head;
    const int me = static_cast<int>(threadIdx.x);
    float *q = reinterpret_cast<float *>(sp_i_shared());
    float *dout = q + d;
    float *dq = dout + d;
    float *dscore = dq + d;
    read_row(q, own.q, d);
    read_row(dout, a.pack.dout + out, d);
    clear_row(dq, d);
    __syncthreads();
    const float lse = a.pack.lse[number_of_row];
    const float delta = dot(dout, a.pack.out + out, d);
    if (me == 0) {
        a.pack.delta[number_of_row] = delta;
    }
    for (int64_t key = 0; key < own.seen; key += THREADS) {
        int count = at_a_time(own.seen - key);
        if (me < count) {
            float p = expf(a.scale * dot(q, own.k + (key + me) * a.kv_stride, d) - lse);
            float dp = dot(dout, own.v + (key + me) * a.kv_stride, d);
            dscore[me] = a.scale * p * (dp - delta);
        }
        __syncthreads();
        for (int64_t i = me; i < d; i += THREADS) {
            for (int j = 0; j < count; j++) {
                dq[i] += dscore[j] * number(own.k[(key + j) * a.kv_stride + i]);
            }
        }
        __syncthreads();
    }
    write_row(a.pack.dq + own.row * a.q_stride + own.head * d, dq, 1, d);
}

// Over the queries that see a key, and of each over the heads that read it.
__device__ void attend_backward_keys(const arguments &a)
{
    const int64_t row = blockIdx.x;
    const int64_t kv_head = blockIdx.y;
    const segment *s = segment_of(a.pack, row, &segment::gradient_row);
    const int64_t at = row - s->gradient_row;
    if (at < 0 || at >= s->keys) {
        return;
    }
    const int64_t d = a.head_dim;
    const int64_t kv = (s->key_row + at) * a.kv_stride + kv_head * d;
    const int64_t past = s->keys - s->queries; // keys before the first query's own
    const int64_t first = at > past ? at - past : 0;
    const int64_t pairs = (s->queries - first) * a.group;
    const int me = static_cast<int>(threadIdx.x);
    float *k = reinterpret_cast<float *>(sp_i_shared());
    float *v = k + d;
    float *dk = v + d;
    float *dv = dk + d;
    float *p = dv + d;
    float *dscore = p + THREADS;
    read_row(k, a.pack.k + kv, d);
    read_row(v, a.pack.v + kv, d);
    clear_row(dk, d);
    clear_row(dv, d);
    __syncthreads();
    for (int64_t pair = 0; pair < pairs; pair += THREADS) {
        int count = at_a_time(pairs - pair);
        if (me < count) {
            int64_t query = s->row + first + (pair + me) / a.group;
            int64_t head = kv_head * a.group + (pair + me) % a.group;
            float score = dot(k, a.pack.q + query * a.q_stride + head * d, d);
            float dp = dot(v, a.pack.dout + query * a.out_stride + head * d, d);
            p[me] = expf(a.scale * score - a.pack.lse[query * a.heads + head]);
            dscore[me] = a.scale * p[me] * (dp - a.pack.delta[query * a.heads + head]);
        }
        __syncthreads();
        for (int64_t i = me; i < d; i += THREADS) {
            int64_t query = s->row + first + pair / a.group;
            int64_t of_group = pair % a.group;
            for (int j = 0; j < count; j++) {
                int64_t column = (kv_head * a.group + of_group) * d + i;
                dk[i] += dscore[j] * number(a.pack.q[query * a.q_stride + column]);
                dv[i] += p[j] * number(a.pack.dout[query * a.out_stride + column]);
                if (++of_group == a.group) {
                    of_group = 0;
                    query++;
                }
            }
        }
        __syncthreads();
    }
    const int64_t to = row * a.gradient_stride + kv_head * d;
    write_row(a.pack.dk + to, dk, 1, d);
    write_row(a.pack.dv + to, dv, 1, d);
}

// A block for each row and head, with so many floats of shared memory.
template <class Kernel>
int launch(Kernel kernel, const arguments &a, int64_t rows, int64_t heads, int64_t floats,
           sp_cuda_stream stream)
{
    if (rows == 0) {
        return 0;
    }
    dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(heads));
    return sp_i_launch(kernel, grid, THREADS, static_cast<size_t>(floats) * sizeof(float), stream,
                       a);
}

} // namespace

SP_I_KERNEL(attention_forward, THREADS, (arguments a), attend_forward(a))
SP_I_KERNEL(attention_backward_queries, THREADS, (arguments a), attend_backward_queries(a))
SP_I_KERNEL(attention_backward_keys, THREADS, (arguments a), attend_backward_keys(a))

int sp_cuda_attention(const sp_kernel_attention_shape *shape, const sp_cuda_attention_pack *pack,
                      bool backward, sp_cuda_stream stream)
{
    if (shape->kv_heads < 1 || shape->heads < 1 || shape->heads % shape->kv_heads != 0 ||
        shape->head_dim < 1 || pack->rows > INT32_MAX || pack->gradient_rows > INT32_MAX) {
        return SP_I_CUDA_INVALID;
    }
    const int64_t d = shape->head_dim;
    const arguments a = {*pack,
                         shape->heads,
                         shape->heads / shape->kv_heads,
                         d,
                         shape->q_stride,
                         shape->kv_stride,
                         shape->out_stride,
                         shape->kv_heads * d,
                         static_cast<float>(shape->scale)};
    if (pack->count == 0) {
        return 0;
    }
    if (!backward) {
        return launch(attention_forward, a, pack->rows, shape->heads, 2 * d + THREADS, stream);
    }
    int code =
        launch(attention_backward_queries, a, pack->rows, shape->heads, 3 * d + THREADS, stream);
    return code != 0 ? code
                     : launch(attention_backward_keys, a, pack->gradient_rows, shape->kv_heads,
                              4 * d + 2 * THREADS, stream);
}
