// Attention in blocks of keys, as ring and zigzag context parallelism run it: against the
// definition, in any order of the blocks.
#include "kernels/kernels.h"
#include "tests/support/kernels/naive_attention.h"
#include "tests/support/test_main.h"

enum { MAX_CHUNKS = 8 };

typedef struct ring {
    attention_problem p;
    tensor max, sum, delta;
    int64_t begin[MAX_CHUNKS + 1]; // chunks of the sample
    int chunks;
} ring;

static void set_up(ring *r, int64_t tokens, int chunks)
{
    attention_set_up(&r->p, 4, 2, 8, tokens);
    r->max = tensor_zero(&r->p.all, r->p.lse.n);
    r->sum = tensor_zero(&r->p.all, r->p.lse.n);
    r->delta = tensor_zero(&r->p.all, r->p.lse.n);
    r->chunks = chunks;
    for (int i = 0; i <= chunks; i++) {
        r->begin[i] = tokens * i / chunks;
    }
}

static sp_kernel_attention_block block_of(const ring *r, int query_chunk, int key_chunk)
{
    return (sp_kernel_attention_block){.query_begin = r->begin[query_chunk],
                                       .queries = r->begin[query_chunk + 1] - r->begin[query_chunk],
                                       .key_begin = r->begin[key_chunk],
                                       .keys = r->begin[key_chunk + 1] - r->begin[key_chunk]};
}

static void forward(ring *r, int query_chunk, int key_chunk)
{
    const sp_kernel_attention_shape *s = &r->p.shape;
    sp_kernel_attention_block b = block_of(r, query_chunk, key_chunk);
    int64_t row = b.query_begin * s->heads;
    int64_t kv = b.key_begin * s->kv_stride;
    sp_kernel_attention_block_f64(s, &b, r->p.q.d + b.query_begin * s->q_stride, r->p.k.d + kv,
                                  r->p.v.d + kv, r->p.out.d + b.query_begin * s->out_stride,
                                  r->max.d + row, r->sum.d + row, r->p.workspace.d);
    sp_kernel_attention_block_f32(s, &b, r->p.q.f + b.query_begin * s->q_stride, r->p.k.f + kv,
                                  r->p.v.f + kv, r->p.out.f + b.query_begin * s->out_stride,
                                  r->max.f + row, r->sum.f + row, r->p.workspace.f);
}

static void backward(ring *r, int query_chunk, int key_chunk)
{
    const sp_kernel_attention_shape *s = &r->p.shape;
    sp_kernel_attention_block b = block_of(r, query_chunk, key_chunk);
    int64_t row = b.query_begin * s->heads;
    int64_t kv = b.key_begin * s->kv_stride;
    sp_kernel_attention_block_backward_f64(
        s, &b, r->p.q.d + b.query_begin * s->q_stride, r->p.k.d + kv, r->p.v.d + kv,
        r->p.dout.d + b.query_begin * s->out_stride, r->p.lse.d + row, r->delta.d + row,
        r->p.dq.d + b.query_begin * s->q_stride, r->p.dk.d + kv, r->p.dv.d + kv, r->p.workspace.d);
}

static void start(ring *r)
{
    sp_kernel_attention_start_f64(&r->p.shape, r->p.tokens, r->p.out.d, r->max.d, r->sum.d);
    sp_kernel_attention_start_f32(&r->p.shape, r->p.tokens, r->p.out.f, r->max.f, r->sum.f);
}

static void finish(ring *r)
{
    sp_kernel_attention_finish_f64(&r->p.shape, r->p.tokens, r->max.d, r->sum.d, r->p.out.d,
                                   r->p.lse.d);
    sp_kernel_attention_finish_f32(&r->p.shape, r->p.tokens, r->max.f, r->sum.f, r->p.out.f,
                                   r->p.lse.f);
}

static void check_forward(ring *r)
{
    tensor out = tensor_zero(&r->p.all, r->p.out.n);
    tensor lse = tensor_zero(&r->p.all, r->p.lse.n);
    naive_attention(&r->p, out.d, lse.d);
    assert_near_rows(r->p.out.d, out.d, out.n, 1e-13);
    assert_near_rows(r->p.lse.d, lse.d, lse.n, 1e-13);
    assert_types_agree(r->p.out, 1e-5);
    assert_types_agree(r->p.lse, 1e-5);
}

static void check_backward(ring *r)
{
    tensor dq = tensor_zero(&r->p.all, r->p.dq.n);
    tensor dk = tensor_zero(&r->p.all, r->p.dk.n);
    tensor dv = tensor_zero(&r->p.all, r->p.dv.n);
    naive_attention_backward(&r->p, dq.d, dk.d, dv.d);
    assert_near_rows(r->p.dq.d, dq.d, dq.n, 1e-13);
    assert_near_rows(r->p.dk.d, dk.d, dk.n, 1e-13);
    assert_near_rows(r->p.dv.d, dv.d, dv.n, 1e-13);
}

// Each rank holds one chunk of queries; keys come round, later ones and hidden ones too.
static void check_ring(int64_t tokens, int ranks)
{
    ring r;
    set_up(&r, tokens, ranks);
    start(&r);
    for (int step = 0; step < ranks; step++) {
        for (int rank = 0; rank < ranks; rank++) {
            forward(&r, rank, (rank + step) % ranks);
        }
    }
    finish(&r);
    check_forward(&r);
    sp_kernel_attention_delta_f64(&r.p.shape, tokens, r.p.out.d, r.p.dout.d, r.delta.d);
    for (int step = 0; step < ranks; step++) {
        for (int rank = ranks - 1; rank >= 0; rank--) {
            backward(&r, rank, (rank + ranks - step) % ranks);
        }
    }
    check_backward(&r);
    tensors_fini(&r.p.all);
}

TEST(rings)
{
    check_ring(10, 3);
    check_ring(300, 2);
    check_ring(601, 4);
}

// Rank r of n holds the chunks r and 2n - 1 - r.
TEST(zigzag)
{
    enum { RANKS = 3 };
    ring r;
    set_up(&r, 457, 2 * RANKS);
    start(&r);
    for (int rank = 0; rank < RANKS; rank++) {
        for (int step = 0; step < RANKS; step++) {
            int from = (rank + step) % RANKS;
            int mine[2] = {rank, 2 * RANKS - 1 - rank};
            int theirs[2] = {from, 2 * RANKS - 1 - from};
            for (int pair = 0; pair < 4; pair++) {
                forward(&r, mine[pair / 2], theirs[pair % 2]);
            }
        }
    }
    finish(&r);
    check_forward(&r);
    tensors_fini(&r.p.all);
}

// Blocks that begin and end anywhere: one query against one key is the smallest.
TEST(single_tokens)
{
    ring r;
    set_up(&r, MAX_CHUNKS, MAX_CHUNKS);
    start(&r);
    for (int query = 0; query < MAX_CHUNKS; query++) {
        for (int key = MAX_CHUNKS - 1; key >= 0; key--) {
            forward(&r, query, key);
        }
    }
    finish(&r);
    check_forward(&r);
    sp_kernel_attention_delta_f64(&r.p.shape, r.p.tokens, r.p.out.d, r.p.dout.d, r.delta.d);
    for (int query = 0; query < MAX_CHUNKS; query++) {
        for (int key = 0; key < MAX_CHUNKS; key++) {
            backward(&r, query, key);
        }
    }
    check_backward(&r);
    tensors_fini(&r.p.all);
}

TEST(queries_before_all_keys)
{
    ring r;
    set_up(&r, 300, 2);
    start(&r);
    forward(&r, 0, 1);
    finish(&r);
    for (int64_t i = 0; i < r.p.out.n; i++) {
        assert_true(r.p.out.d[i] == 0.0);
    }
    for (int64_t i = 0; i < r.p.lse.n; i++) {
        assert_true(isinf(r.p.lse.d[i]) && r.p.lse.d[i] < 0);
    }
    sp_kernel_attention_delta_f64(&r.p.shape, r.p.tokens, r.p.out.d, r.p.dout.d, r.delta.d);
    backward(&r, 0, 1);
    for (int64_t i = 0; i < r.p.dk.n; i++) {
        assert_true(r.p.dk.d[i] == 0.0);
    }
    tensors_fini(&r.p.all);
}
