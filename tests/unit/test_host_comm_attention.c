// Context-parallel attention against attention over the whole sample: round a ring and gathered,
// zig-zag shards and arbitrary ones, a sample in one piece and in slices.
#include <math.h>
#include <stdlib.h>

#include "backends/host/comm_attention.h"
#include "kernels/kernels.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/kernels/naive_attention.h"
#include "tests/support/test_main.h"

enum { MOST_RANKS = 4, MOST_SLICES = 4, MOST_RUNS = 64 };

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
    bool wide;
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
    int64_t at = begin;
    for (int rank = 0; zigzag && rank < j->ranks; rank++) {
        sp_token_run runs[SP_ZIGZAG_RUNS];
        sp_zigzag_runs(tokens, j->ranks, rank, runs);
        for (int i = 0; i < SP_ZIGZAG_RUNS; i++) {
            add_run(&j->of[rank], (sp_token_run){begin + runs[i].begin, runs[i].tokens});
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

// A rank's rows of a tensor with `stride` elements a token, in the type of the job.
static void *shard_of(const job *j, const held *h, tensor from, int64_t stride)
{
    sp_comm_shard shard = {h->runs, h->count};
    size_t n = (size_t)(sp_comm_shard_tokens(&shard) * stride) + 1;
    size_t element = j->wide ? sizeof(double) : sizeof(float);
    char *rows = calloc(n, element);
    size_t at = 0;
    for (int i = 0; rows != NULL && i < h->count; i++) {
        size_t first = (size_t)(h->runs[i].begin * stride);
        size_t count = (size_t)(h->runs[i].tokens * stride);
        const void *source = j->wide ? (void *)(from.d + first) : (void *)(from.f + first);
        memcpy(rows + at * element, source, count * element);
        at += count;
    }
    return rows;
}

static void put_shard(const job *j, const held *h, const void *rows, tensor to, int64_t stride)
{
    int64_t at = 0;
    for (int i = 0; i < h->count; i++) {
        for (int64_t k = 0; k < h->runs[i].tokens * stride; k++, at++) {
            to.d[h->runs[i].begin * stride + k] =
                j->wide ? ((const double *)rows)[at] : (double)((const float *)rows)[at];
        }
    }
}

typedef struct share {
    void *q, *k, *v, *dout, *out, *lse, *dq, *dk, *dv;
} share;

static void *at_row(const job *j, void *rows, int64_t row, int64_t stride)
{
    return (char *)rows + (size_t)(row * stride) * (j->wide ? sizeof(double) : sizeof(float));
}

// One slice, forward or backward, with the keys of it and of all slices before.
static sp_status run_slice(sp_comm *me, const job *j, const share *s, int slice, bool backward,
                           sp_error *err)
{
    const sp_kernel_attention_shape *shape = &j->p.shape;
    const held *h = &j->of[sp_comm_rank(me)];
    sp_comm_shard keys[MOST_RANKS];
    sp_comm_shard before = {h->runs, h->until[slice]};
    for (int rank = 0; rank < j->ranks; rank++) {
        keys[rank] = (sp_comm_shard){j->of[rank].runs, j->of[rank].until[slice + 1]};
    }
    sp_comm_attention a = {
        .group = j->group,
        .tag = 10,
        .way = j->way,
        .type = j->wide ? SP_COMM_F64 : SP_COMM_F32,
        .shape = shape,
        .queries = {h->runs + h->until[slice], h->until[slice + 1] - h->until[slice]},
        .keys = keys};
    int64_t row = sp_comm_shard_tokens(&before);
    void *q = at_row(j, s->q, row, shape->q_stride);
    void *dq = at_row(j, s->dq, row, shape->q_stride);
    void *out = at_row(j, s->out, row, shape->out_stride);
    void *dout = at_row(j, s->dout, row, shape->out_stride);
    void *lse = at_row(j, s->lse, row, shape->heads);
    void *workspace = malloc((size_t)sp_comm_attention_workspace(me, &a));
    sp_status status = RANK_CHECK(workspace != NULL);
    if (status == SP_OK && backward) {
        status = sp_comm_attention_backward_input(me, &a, q, s->k, s->v, out, dout, lse, dq, s->dk,
                                                  s->dv, workspace, err);
    } else if (status == SP_OK) {
        status = sp_comm_attention_forward(me, &a, q, s->k, s->v, out, lse, workspace, err);
    }
    free(workspace);
    return status;
}

static sp_status run_share(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    const attention_problem *p = &j->p;
    const sp_kernel_attention_shape *shape = &p->shape;
    const held *h = &j->of[sp_comm_rank(me)];
    // out, lse and dq begin with what must be overwritten; dk and dv with zeros.
    share s = {.q = shard_of(j, h, p->q, shape->q_stride),
               .k = shard_of(j, h, p->k, shape->kv_stride),
               .v = shard_of(j, h, p->v, shape->kv_stride),
               .dout = shard_of(j, h, p->dout, shape->out_stride),
               .out = shard_of(j, h, p->dout, shape->out_stride),
               .lse = shard_of(j, h, p->dout, shape->heads),
               .dq = shard_of(j, h, p->q, shape->q_stride),
               .dk = shard_of(j, h, j->dk, shape->kv_stride),
               .dv = shard_of(j, h, j->dv, shape->kv_stride)};
    void *all[9] = {s.q, s.k, s.v, s.dout, s.out, s.lse, s.dq, s.dk, s.dv};
    sp_status status = SP_OK;
    for (int i = 0; i < 9 && status == SP_OK; i++) {
        status = RANK_CHECK(all[i] != NULL);
    }
    for (int i = 0; i < j->slices && status == SP_OK; i++) {
        status = run_slice(me, j, &s, i, false, err);
    }
    for (int i = j->slices - 1; i >= 0 && status == SP_OK; i--) {
        status = run_slice(me, j, &s, i, true, err);
    }
    if (status == SP_OK) {
        status = sp_comm_barrier(me, j->group, err); // j->dk has been read by all
    }
    if (status == SP_OK) {
        put_shard(j, h, s.out, j->out, shape->out_stride);
        put_shard(j, h, s.lse, j->lse, shape->heads);
        put_shard(j, h, s.dq, j->dq, shape->q_stride);
        put_shard(j, h, s.dk, j->dk, shape->kv_stride);
        put_shard(j, h, s.dv, j->dv, shape->kv_stride);
    }
    for (int i = 0; i < 9; i++) {
        free(all[i]);
    }
    return status;
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
    naive_attention(p, p->out.d, p->lse.d);
    naive_attention_backward(p, p->dq.d, p->dk.d, p->dv.d);
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
    sp_comm_world *world = world_of(j->ranks, 0);
    j->group = group_of_all(world);
    assert_ranks(world, run_share, j);
    sp_comm_world_free(world);
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

static void check(int64_t tokens, const int64_t *begin, int slices, bool zigzag)
{
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        for (int i = 0; i < 4; i++) {
            job j = {.ranks = ranks, .way = i % 2 == 0 ? SP_COMM_RING : SP_COMM_GATHERED};
            j.wide = i < 2;
            attention_set_up(&j.p, 4, 2, 6, tokens);
            expect_whole(&j.p);
            run_job(&j, begin, slices, zigzag);
            check_job(&j);
            tensors_fini(&j.p.all);
        }
    }
}

static void whole_sample(void **state)
{
    (void)state;
    check(300, (const int64_t[]){0, 300}, 1, true);
    check(173, (const int64_t[]){0, 173}, 1, true);
}

static void fewer_tokens_than_chunks(void **state)
{
    (void)state;
    for (int64_t tokens = 1; tokens < 9; tokens++) {
        check(tokens, (const int64_t[]){0, tokens}, 1, true);
    }
}

static void sample_in_slices(void **state)
{
    (void)state;
    check(260, (const int64_t[]){0, 100, 101, 230, 260}, 4, true);
}

static void arbitrary_shards(void **state)
{
    (void)state;
    check(150, (const int64_t[]){0, 150}, 1, false);
    check(150, (const int64_t[]){0, 70, 75, 150}, 3, false);
}

// The same again gives the same bits.
static void equal_bits(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        job j = {.ranks = 3, .way = (sp_comm_attention_way)way, .wide = false};
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(whole_sample),     cmocka_unit_test(fewer_tokens_than_chunks),
    cmocka_unit_test(sample_in_slices), cmocka_unit_test(arbitrary_shards),
    cmocka_unit_test(equal_bits),
};

SP_TEST_MAIN(tests)
