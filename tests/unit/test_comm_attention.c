// Context-parallel attention against attention over the whole sample: round a ring and gathered,
// zig-zag shards and arbitrary ones, a sample in one piece and in slices, shards without padding
// and without tokens. Behind the keys of a shard stands what nobody may read or change.

#include "backends/ranks/attention.h"
#include "kernels/kernels.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/kernels/naive_attention.h"
#include "tests/support/test_main.h"

// Rows of tokens in a shard's order, and the keys and values of one shard with their gradients, as
// a rank of context parallelism holds them: in buffers of their own or joined, with rows behind
// them that nobody may look at or change.

typedef struct key_block {
    sp_comm_shard shard;
    bool wide, joined;        // joined: [key | value] in a row without gaps
    int64_t stride;           // elements of a row
    size_t held_bytes, bytes; // of all rows, and with those behind
    char *k, *v, *dk, *dv;    // NULL without rows
    char *rows, *gradients;   // all of it
} key_block;

enum { ROWS_BEHIND = 2, POISON = 0xff }; // a NaN in either type

static size_t element_bytes(bool wide)
{
    return wide ? sizeof(double) : sizeof(float);
}

// Copies the shard's rows of a tensor, `width` of `stride` elements, to rows of `to_stride` in fp64
// or fp32; and back from rows of either type to the tensor in fp64.
static void take_rows(const sp_comm_shard *shard, bool wide, tensor from, int64_t stride,
                      int64_t width, char *to, int64_t to_stride)
{
    for (int i = 0; i < shard->count; i++) {
        for (int64_t t = 0; t < shard->runs[i].tokens; t++) {
            int64_t at = (shard->runs[i].begin + t) * stride;
            const void *row = wide ? (void *)(from.d + at) : (void *)(from.f + at);
            memcpy(to, row, (size_t)width * element_bytes(wide));
            to += (size_t)to_stride * element_bytes(wide);
        }
    }
}

static void put_rows(const sp_comm_shard *shard, bool wide, const char *from, int64_t from_stride,
                     tensor to, int64_t stride, int64_t width)
{
    for (int i = 0; i < shard->count; i++) {
        for (int64_t t = 0; t < shard->runs[i].tokens; t++) {
            double *row = &to.d[(shard->runs[i].begin + t) * stride];
            for (int64_t k = 0; k < width; k++) {
                row[k] = wide ? ((const double *)(const void *)from)[k]
                              : (double)((const float *)(const void *)from)[k];
            }
            from += (size_t)from_stride * element_bytes(wide);
        }
    }
}

static int64_t key_width(const attention_problem *p)
{
    return p->shape.kv_heads * p->shape.head_dim;
}

// Keys and values of the problem, gradients 0. The runs are the caller's.
static void key_block_init(key_block *b, const attention_problem *p, const sp_comm_shard *shard,
                           bool wide, bool joined)
{
    *b = (key_block){.shard = *shard, .wide = wide, .joined = joined};
    b->stride = joined ? 2 * key_width(p) : p->shape.kv_stride;
    size_t row_bytes = (size_t)b->stride * element_bytes(wide);
    b->held_bytes = (size_t)sp_comm_shard_tokens(shard) * row_bytes;
    b->bytes = b->held_bytes + ROWS_BEHIND * row_bytes;
    b->rows = sp_malloc(2 * b->bytes);
    b->gradients = sp_malloc(2 * b->bytes);
    size_t to_v = joined ? (size_t)key_width(p) * element_bytes(wide) : b->bytes;
    b->k = b->rows;
    b->v = b->rows + to_v;
    b->dk = b->gradients;
    b->dv = b->gradients + to_v;
    memset(b->rows, POISON, 2 * b->bytes);
    memset(b->gradients, POISON, 2 * b->bytes);
    take_rows(shard, wide, p->k, p->shape.kv_stride, key_width(p), b->k, b->stride);
    take_rows(shard, wide, p->v, p->shape.kv_stride, key_width(p), b->v, b->stride);
    memset(b->dk, 0, b->held_bytes);
    memset(joined ? b->dk : b->dv, 0, b->held_bytes);
    if (b->held_bytes == 0) {
        b->k = b->v = b->dk = b->dv = NULL;
    }
}

static void key_block_fini(key_block *b)
{
    sp_free(b->rows);
    sp_free(b->gradients);
}

// Has nobody written behind the gradients? What stands behind keys and values is NaN.
static bool key_block_is_intact(const key_block *b)
{
    bool intact = true;
    for (size_t i = b->held_bytes; i < b->bytes; i++) {
        intact = intact && (unsigned char)b->gradients[i] == POISON &&
                 (b->joined || (unsigned char)b->gradients[b->bytes + i] == POISON);
    }
    return intact;
}

// Copies the gradients to the tensors.
static void key_block_put(const key_block *b, const attention_problem *p, tensor dk, tensor dv)
{
    put_rows(&b->shard, b->wide, b->dk, b->stride, dk, p->shape.kv_stride, key_width(p));
    put_rows(&b->shard, b->wide, b->dv, b->stride, dv, p->shape.kv_stride, key_width(p));
}

enum { MOST_RANKS = 4, MOST_SLICES = 4, MOST_RUNS = 64, ANYTHING = 0xff };

// The runs of one rank, slice after slice.
typedef struct held {
    sp_token_run runs[MOST_RUNS];
    int count;
    int until[MOST_SLICES + 1]; // runs of the slices before
} held;

typedef struct job {
    attention_problem p;
    int ranks, group, slices;
    sp_comm_attention_way way;
    int node;          // its ranks, where routed
    bool wide, joined; // key and value of a token in one row
    int64_t padding;   // tokens of the last slice that its shards are cut with and then lose
    int64_t begin[MOST_SLICES + 1];
    held of[MOST_RANKS];
    tensor out, lse, dq, dk, dv; // put together from the shards
} job;

static void add_run(held *h, sp_token_run run)
{
    assert_true(h->count < MOST_RUNS);
    h->runs[h->count++] = run;
}

static void cut_slice(job *j, int slice, bool zigzag)
{
    int64_t begin = j->begin[slice];
    int64_t tokens = j->begin[slice + 1] - begin;
    int64_t padded = tokens + (slice + 1 == j->slices ? j->padding : 0);
    int64_t at = begin;
    for (int rank = 0; zigzag && rank < j->ranks; rank++) {
        sp_token_run runs[SP_ZIGZAG_RUNS];
        sp_zigzag_runs(padded, j->ranks, rank, runs);
        for (int i = 0; i < SP_ZIGZAG_RUNS; i++) {
            int64_t room = tokens > runs[i].begin ? tokens - runs[i].begin : 0;
            int64_t n = runs[i].tokens < room ? runs[i].tokens : room;
            add_run(&j->of[rank], (sp_token_run){begin + runs[i].begin, n});
        }
    }
    while (!zigzag && at < begin + tokens) {
        int64_t room = begin + tokens - at;
        int64_t most = tokens / 3 + 1;
        int64_t n =
            1 + (int64_t)sp_prng_below(&j->p.all.prng, (uint64_t)(room < most ? room : most));
        add_run(&j->of[sp_prng_below(&j->p.all.prng, (uint64_t)j->ranks)], (sp_token_run){at, n});
        at += n;
    }
    for (int rank = 0; rank < j->ranks; rank++) {
        j->of[rank].until[slice + 1] = j->of[rank].count;
    }
}

// ---- One rank ----

typedef struct share {
    char *q, *dout, *out, *lse, *sum, *dq, *delta;
    key_block keys[MOST_SLICES];
} share;

static void start(const job *j, int64_t queries, void *out, void *max, void *sum)
{
    if (j->wide) {
        sp_kernel_attention_start_f64(&j->p.shape, queries, out, max, sum);
    } else {
        sp_kernel_attention_start_f32(&j->p.shape, queries, out, max, sum);
    }
}

static void finish(const job *j, int64_t queries, void *out, void *max, const void *sum)
{
    if (j->wide) {
        sp_kernel_attention_finish_f64(&j->p.shape, queries, max, sum, out, max);
    } else {
        sp_kernel_attention_finish_f32(&j->p.shape, queries, max, sum, out, max);
    }
}

static void find_delta(const job *j, int64_t queries, const void *out, const void *dout,
                       void *delta)
{
    if (j->wide) {
        sp_kernel_attention_delta_f64(&j->p.shape, queries, out, dout, delta);
    } else {
        sp_kernel_attention_delta_f32(&j->p.shape, queries, out, dout, delta);
    }
}

// The queries of one slice and the keys of one slice.
static sp_status run_block(sp_comm *me, const job *j, const share *s, int slice, int key_slice,
                           bool backward, sp_error *err)
{
    const key_block *b = &s->keys[key_slice];
    sp_kernel_attention_shape shape = j->p.shape;
    sp_comm_shard before = {.runs = j->of[sp_comm_rank(me)].runs,
                            .count = j->of[sp_comm_rank(me)].until[slice]};
    sp_comm_shard keys[MOST_RANKS];
    for (int rank = 0; rank < j->ranks; rank++) {
        const held *h = &j->of[rank];
        keys[rank] = (sp_comm_shard){.runs = h->runs + h->until[key_slice],
                                     .count = h->until[key_slice + 1] - h->until[key_slice]};
    }
    sp_comm_attention a = {.group = j->group,
                           .tag = 10,
                           .way = j->way,
                           .node_members = j->node,
                           .type = j->wide ? SP_ELEMENT_F64 : SP_ELEMENT_F32,
                           .shape = &shape,
                           .queries = s->keys[slice].shard,
                           .keys = keys};
    shape.kv_stride = b->stride;
    size_t row = (size_t)sp_comm_shard_tokens(&before) * element_bytes(j->wide);
    size_t q = row * (size_t)shape.q_stride;
    size_t out = row * (size_t)shape.out_stride;
    size_t lse = row * (size_t)shape.heads;
    size_t bytes = (size_t)sp_comm_attention_workspace(me, &a);
    AUTO_FREE void *workspace = sp_malloc(bytes);
    memset(workspace, ANYTHING, bytes);
    if (backward) {
        SP_TRY(sp_comm_attention_backward_block(me, &a, s->q + q, b->k, b->v, s->dout + out,
                                                s->lse + lse, s->delta + lse, s->dq + q, b->dk,
                                                b->dv, workspace, err));
    } else {
        SP_TRY(sp_comm_attention_forward_block(me, &a, s->q + q, b->k, b->v, s->out + out,
                                               s->lse + lse, s->sum + lse, workspace, err));
    }
    return SP_OK;
}

// All slices in order, each with the keys of the slices up to itself; then back.
static sp_status run_slices(sp_comm *me, const job *j, const share *s, int64_t queries,
                            sp_error *err)
{
    start(j, queries, s->out, s->lse, s->sum);
    for (int i = 0; i < j->slices; i++) {
        for (int k = 0; k <= i; k++) {
            SP_TRY(run_block(me, j, s, i, k, false, err));
        }
    }
    finish(j, queries, s->out, s->lse, s->sum);
    find_delta(j, queries, s->out, s->dout, s->delta);
    for (int i = j->slices - 1; i >= 0; i--) {
        for (int k = 0; k <= i; k++) {
            SP_TRY(run_block(me, j, s, i, k, true, err));
        }
    }
    return SP_OK;
}

static void put_results(const job *j, const sp_comm_shard *all, const share *s)
{
    const sp_kernel_attention_shape *shape = &j->p.shape;
    int64_t width = shape->heads * shape->head_dim;
    put_rows(all, j->wide, s->out, shape->out_stride, j->out, shape->out_stride, width);
    put_rows(all, j->wide, s->lse, shape->heads, j->lse, shape->heads, shape->heads);
    put_rows(all, j->wide, s->dq, shape->q_stride, j->dq, shape->q_stride, width);
    for (int i = 0; i < j->slices; i++) {
        key_block_put(&s->keys[i], &j->p, j->dk, j->dv);
    }
}

static sp_status run_share(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    const sp_kernel_attention_shape *shape = &j->p.shape;
    const held *h = &j->of[sp_comm_rank(me)];
    sp_comm_shard all = {.runs = h->runs, .count = h->count};
    int64_t queries = sp_comm_shard_tokens(&all);
    share s = {0};
    char **parts[7] = {&s.q, &s.dq, &s.out, &s.dout, &s.lse, &s.sum, &s.delta};
    int64_t strides[7] = {shape->q_stride, shape->q_stride, shape->out_stride, shape->out_stride,
                          shape->heads,    shape->heads,    shape->heads};
    for (int i = 0; i < 7; i++) {
        *parts[i] = sp_calloc((size_t)(queries * strides[i]) + 1, element_bytes(j->wide));
    }
    for (int i = 0; i < j->slices; i++) {
        sp_comm_shard shard = {.runs = h->runs + h->until[i],
                               .count = h->until[i + 1] - h->until[i]};
        key_block_init(&s.keys[i], &j->p, &shard, j->wide, j->joined);
    }
    take_rows(&all, j->wide, j->p.q, shape->q_stride, shape->q_stride, s.q, shape->q_stride);
    take_rows(&all, j->wide, j->p.dout, shape->out_stride, shape->out_stride, s.dout,
              shape->out_stride);
    SP_TRY(run_slices(me, j, &s, queries, err));
    for (int i = 0; i < j->slices; i++) {
        RANK_MUST(key_block_is_intact(&s.keys[i]));
    }
    put_results(j, &all, &s);
    for (int i = 0; i < 7; i++) {
        sp_free(*parts[i]);
    }
    for (int i = 0; i < j->slices; i++) {
        key_block_fini(&s.keys[i]);
    }
    return SP_OK;
}

// Rows without the gaps between them, which belong to nobody. The gradient through the softmax of a
// single key is nothing but rounding.
static void assert_rows(const attention_problem *p, tensor found, tensor expected, int64_t stride,
                        int64_t width, double tolerance)
{
    double largest = 0;
    for (int64_t t = 0; t < p->tokens; t++) {
        for (int64_t i = 0; i < stride; i++) {
            double *value = &found.d[t * stride + i];
            *value = i < width ? *value : expected.d[t * stride + i];
            largest = fmax(largest, fabs(expected.d[t * stride + i]));
        }
    }
    for (int64_t i = 0; largest == 0 && i < expected.n; i++) {
        assert_true(fabs(found.d[i]) <= tolerance);
    }
    if (largest > 0) {
        assert_near_rows(found.d, expected.d, expected.n, tolerance);
    }
}

static void expect_whole(attention_problem *p)
{
    naive_attention(p, p->out.d, p->lse.d, p->dq.d, p->dk.d, p->dv.d);
}

static void run_job(job *j, const int64_t *begin, int slices, bool zigzag)
{
    j->slices = slices;
    memset(j->of, 0, sizeof j->of);
    for (int i = 0; i <= slices; i++) {
        j->begin[i] = begin[i];
    }
    for (int i = 0; i < slices; i++) {
        cut_slice(j, i, zigzag);
    }
    tensor *results[5] = {&j->out, &j->lse, &j->dq, &j->dk, &j->dv};
    tensor likes[5] = {j->p.out, j->p.lse, j->p.q, j->p.k, j->p.v};
    for (int i = 0; i < 5; i++) {
        *results[i] = tensor_zero(&j->p.all, likes[i].n);
    }
    OWNED(sp_comm_world) world = world_of(j->ranks);
    j->group = group_of_all(world);
    assert_ranks(world, run_share, j);
}

static void check_job(job *j)
{
    const sp_kernel_attention_shape *s = &j->p.shape;
    double tolerance = j->wide ? 1e-12 : 1e-5;
    int64_t q_width = s->heads * s->head_dim;
    int64_t kv_width = s->kv_heads * s->head_dim;
    assert_rows(&j->p, j->out, j->p.out, s->out_stride, q_width, tolerance);
    assert_rows(&j->p, j->lse, j->p.lse, s->heads, s->heads, tolerance);
    assert_rows(&j->p, j->dq, j->p.dq, s->q_stride, q_width, tolerance);
    assert_rows(&j->p, j->dk, j->p.dk, s->kv_stride, kv_width, tolerance);
    assert_rows(&j->p, j->dv, j->p.dv, s->kv_stride, kv_width, tolerance);
}

static void check_padded(int64_t tokens, int64_t padding, const int64_t *begin, int slices,
                         bool zigzag)
{
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        for (int i = 0; i < 11; i++) {
            // Nodes of one to three ranks: the last may have fewer.
            job j = {.ranks = ranks,
                     .way = i >= 8       ? SP_COMM_ROUTED
                            : i % 2 == 0 ? SP_COMM_RING
                                         : SP_COMM_GATHERED,
                     .node = 1 + i % 3,
                     .wide = i / 2 % 2 == 0,
                     .joined = i >= 4,
                     .padding = padding};
            attention_set_up(&j.p, 4, 2, 6, tokens);
            expect_whole(&j.p);
            run_job(&j, begin, slices, zigzag);
            check_job(&j);
            tensors_fini(&j.p.all);
        }
    }
}

static void check(int64_t tokens, const int64_t *begin, int slices, bool zigzag)
{
    check_padded(tokens, 0, begin, slices, zigzag);
}

TEST(whole_sample)
{
    check(300, (const int64_t[]){0, 300}, 1, true);
    check(173, (const int64_t[]){0, 173}, 1, true);
}

TEST(fewer_tokens_than_chunks)
{
    for (int64_t tokens = 1; tokens < 9; tokens++) {
        check(tokens, (const int64_t[]){0, tokens}, 1, true);
    }
}

TEST(sample_in_slices)
{
    check(260, (const int64_t[]){0, 100, 101, 230, 260}, 4, true);
}

TEST(arbitrary_shards)
{
    check(150, (const int64_t[]){0, 150}, 1, false);
    check(150, (const int64_t[]){0, 70, 75, 150}, 3, false);
}

// With 4 ranks, 20 of 80 tokens leave the chunks 2 to 7 and with them two ranks empty.
TEST(trimmed_padding)
{
    check_padded(61, 3, (const int64_t[]){0, 61}, 1, true);
    check_padded(20, 60, (const int64_t[]){0, 20}, 1, true);
    check_padded(70, 50, (const int64_t[]){0, 50, 70}, 2, true);
}

// The same again gives the same bits.
TEST(equal_bits)
{
    for (int way = 0; way < 3; way++) {
        job j = {.ranks = 3, .way = (sp_comm_attention_way)way, .node = 2, .wide = false};
        attention_set_up(&j.p, 4, 2, 6, 200);
        run_job(&j, (const int64_t[]){0, 200}, 1, true);
        tensor first[5] = {j.out, j.lse, j.dq, j.dk, j.dv};
        for (int again = 0; again < 5; again++) {
            run_job(&j, (const int64_t[]){0, 200}, 1, true);
            tensor now[5] = {j.out, j.lse, j.dq, j.dk, j.dv};
            for (int i = 0; i < 5; i++) {
                assert_memory_equal(now[i].d, first[i].d, (size_t)first[i].n * sizeof(double));
            }
        }
        tensors_fini(&j.p.all);
    }
}

// ---- Zig-zag shards: every token on one rank, level counts, level causal pairs ----

TEST(every_token_once)
{
    for (int ranks = 1; ranks <= 8; ranks++) {
        for (int64_t tokens = 0; tokens < 100; tokens++) {
            int64_t next = 0;
            for (int chunk = 0; chunk < 2 * ranks; chunk++) {
                sp_token_run run = sp_zigzag_chunk(tokens, ranks, chunk);
                assert_int_equal(run.begin, next);
                assert_true(run.tokens == tokens / (2 * ranks) ||
                            run.tokens == tokens / (2 * ranks) + 1);
                next += run.tokens;
            }
            assert_int_equal(next, tokens);
        }
    }
}

TEST(two_chunks_a_rank)
{
    for (int ranks = 1; ranks <= 8; ranks++) {
        int chunks[8] = {0};
        for (int chunk = 0; chunk < 2 * ranks; chunk++) {
            int rank = chunk < ranks ? chunk : 2 * ranks - 1 - chunk;
            sp_token_run runs[SP_ZIGZAG_RUNS];
            sp_zigzag_runs(61, ranks, rank, runs);
            assert_int_equal(runs[chunks[rank]++].begin, sp_zigzag_chunk(61, ranks, chunk).begin);
        }
        for (int rank = 0; rank < ranks; rank++) {
            assert_int_equal(chunks[rank], 2);
        }
    }
}

// Pairs of a query and a key at or before it. With 2 * ranks dividing the row, all ranks have
// equally many: T / ranks * (T + 1) / 2.
TEST(level_pairs)
{
    for (int ranks = 1; ranks <= 6; ranks++) {
        int64_t tokens = 2 * ranks * 7;
        for (int rank = 0; rank < ranks; rank++) {
            sp_token_run runs[SP_ZIGZAG_RUNS];
            int64_t pairs = 0;
            sp_zigzag_runs(tokens, ranks, rank, runs);
            for (int i = 0; i < SP_ZIGZAG_RUNS; i++) {
                for (int64_t t = 0; t < runs[i].tokens; t++) {
                    pairs += runs[i].begin + t + 1;
                }
            }
            assert_int_equal(pairs * ranks, tokens * (tokens + 1) / 2);
        }
    }
}
