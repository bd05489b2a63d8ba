// The ranks of a case at work on the packs, as stages of an executor on one GPU.
#define SP_KERNEL_BITS 16
#include "backends/comm/comm.h"
#include "backends/cuda/runtime.h"
#include "backends/executor/typed/layer.h"
#include "kernels/bf16.h"
#include "sim/base/alloc.h"
#include "tests/gpu/support/attention_case.h"
#include "tests/gpu/support/computing_cublas.h"
#include "tests/gpu/support/fake_cuda.h"

enum { MEMORY_BYTES = 64 << 20, ALL = 0 };

typedef struct rank {
    attention_case *c;
    sp_runtime *runtime;
    sp_model model;
    sp_i_exec_job job;
    sp_i_exec_links links;
    sp_i_exec_stage stage;
    int *token_group;
} rank;

// ---- numbers to the machine and back ----

static void put_bf16(const rank *r, const double *from, int64_t count, sp_bf16 *to)
{
    sp_bf16 *x = sp_calloc((size_t)count, sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        x[i] = sp_bf16_from_float((float)from[i]);
    }
    r->runtime->ops->upload(r->runtime, to, x, count * (int64_t)sizeof *x);
    sp_free(x);
}

static void get_bf16(const rank *r, const sp_bf16 *from, int64_t count, double *to)
{
    sp_bf16 *x = sp_calloc((size_t)count, sizeof *x);
    r->runtime->ops->download(r->runtime, x, from, count * (int64_t)sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        to[i] = (double)sp_bf16_to_float(x[i]);
    }
    sp_free(x);
}

static void get_fp32(const rank *r, const float *from, int64_t count, double *to)
{
    float *x = sp_calloc((size_t)count, sizeof *x);
    r->runtime->ops->download(r->runtime, x, from, count * (int64_t)sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        to[i] = (double)x[i];
    }
    sp_free(x);
}

// ---- keys and values of a rank ----

// Visits the rank's rows of a slice, run by run: uploads its keys, or downloads their gradients.
static void move_keys(const rank *r, int32_t number, sp_bf16 *kv, const float *dkv)
{
    const sp_i_exec_slice *slice = &r->job.slices.slice[number];
    int64_t width = r->c->shape.kv_stride;
    sp_token_run runs[SP_ZIGZAG_RUNS];
    int count = sp_i_exec_shard_runs(slice, slice->shard, runs);
    int64_t row = 0;
    for (int i = 0; i < count; i++) {
        int64_t from = (runs[i].begin - slice->begin) * width;
        if (kv != NULL) {
            put_bf16(r, r->c->kv[number] + from, runs[i].tokens * width, kv + row * width);
        } else {
            get_fp32(r, dkv + row * width, runs[i].tokens * width, r->c->got[number].dkv + from);
        }
        row += runs[i].tokens;
    }
}

static bool make_keys(rank *r)
{
    for (size_t s = 0; s < r->job.slices.count; s++) {
        sp_bf16 *kv =
            sp_i_exec_take(r->stage.arena, SP_MEM_KV_CACHE,
                           r->job.slices.slice[s].rows * r->c->shape.kv_stride, r->job.specs.value);
        if (kv == NULL) {
            return false;
        }
        *sp_i_exec_kv(&r->stage, (int32_t)s, 0) = kv;
        move_keys(r, (int32_t)s, kv, NULL);
    }
    return true;
}

// ---- a pack ----

// Tensors of the pack's rows.
typedef struct tensors {
    sp_bf16 *q, *out, *dout, *dq;
    float *lse;
} tensors;

static bool take_tensors(const rank *r, int64_t rows, tensors *t)
{
    const sp_kernel_attention_shape *s = &r->c->shape;
    sp_i_exec_arena *arena = r->stage.arena;
    const sp_i_exec_specs *specs = &r->job.specs;
    int64_t count = rows * s->q_stride;
    *t = (tensors){
        .q = sp_i_exec_take(arena, SP_MEM_ACTIVATIONS, count, specs->value),
        .out = sp_i_exec_take_zeroed(arena, SP_MEM_ACTIVATIONS, count, specs->value),
        .dout = sp_i_exec_take(arena, SP_MEM_ACTIVATIONS, count, specs->value),
        .dq = sp_i_exec_take_zeroed(arena, SP_MEM_ACTIVATIONS, count, specs->value),
        .lse = sp_i_exec_take_zeroed(arena, SP_MEM_ACTIVATIONS, rows * s->heads, specs->statistic)};
    return t->q != NULL && t->out != NULL && t->dout != NULL && t->dq != NULL && t->lse != NULL;
}

static void give_tensors(const rank *r, const tensors *t)
{
    sp_i_exec_give(r->stage.arena, t->q);
    sp_i_exec_give(r->stage.arena, t->out);
    sp_i_exec_give(r->stage.arena, t->dout);
    sp_i_exec_give(r->stage.arena, t->dq);
    sp_i_exec_give(r->stage.arena, t->lse);
}

static void move_pack(const rank *r, const sp_i_exec_pack *pack, const tensors *t, bool back)
{
    const sp_kernel_attention_shape *s = &r->c->shape;
    for (size_t p = 0; p < pack->first_piece[pack->count]; p++) {
        const sp_i_exec_piece *piece = &pack->piece[p];
        int64_t from = piece->begin - r->job.slices.slice[piece->slice].begin;
        int64_t at = piece->row * s->q_stride;
        int64_t count = piece->rows * s->q_stride;
        const case_result *got = &r->c->got[piece->slice];
        if (back) {
            get_bf16(r, t->out + at, count, got->out + from * s->q_stride);
            get_bf16(r, t->dq + at, count, got->dq + from * s->q_stride);
            get_fp32(r, t->lse + piece->row * s->heads, piece->rows * s->heads,
                     got->lse + from * s->heads);
        } else {
            put_bf16(r, r->c->q[piece->slice] + from * s->q_stride, count, t->q + at);
            put_bf16(r, r->c->dout[piece->slice] + from * s->q_stride, count, t->dout + at);
        }
    }
}

static bool attend(rank *r, const sp_i_exec_pack *pack, const tensors *t)
{
    layer l = {.stage = &r->stage, .pack = pack, .rows = pack->rows, .own = pack->own_rows};
    l.t[SP_I_EXEC_QUERIES] = t->q;
    l.t[SP_I_EXEC_ATTENTION] = t->out;
    l.t[SP_I_EXEC_LSE] = t->lse;
    return SP_EXEC(attend_pack)(&l) && SP_EXEC(attend_pack_backward)(&l, t->dout, t->dq);
}

// The gradients of keys are there before what the passes hold is counted.
static bool run_pack(rank *r, const sp_i_exec_pack *pack)
{
    sp_i_exec_arena *arena = r->stage.arena;
    const sp_bytes *high = sp_i_exec_high(arena, SP_I_EXEC_TABLE);
    tensors t;
    if (!take_tensors(r, pack->rows, &t)) {
        return false;
    }
    move_pack(r, pack, &t, false);
    sp_i_exec_mark(arena);
    int64_t blocks = sp_i_exec_blocks(arena);
    int64_t held = sp_bytes_total(high);
    int64_t before = sp_bytes_total(sp_i_exec_held(arena, SP_I_EXEC_REAL));
    bool ok = attend(r, pack, &t);
    if (ok) {
        r->c->leaked += sp_i_exec_blocks(arena) - blocks;
        r->c->table_bytes += sp_bytes_total(high) - held;
        int64_t taken = sp_bytes_total(sp_i_exec_high(arena, SP_I_EXEC_REAL)) - before;
        r->c->real_bytes = taken > r->c->real_bytes ? taken : r->c->real_bytes;
        move_pack(r, pack, &t, true);
    }
    give_tensors(r, &t);
    return ok;
}

static bool run_packs(rank *r)
{
    const layer l = {.stage = &r->stage};
    bool ok = make_keys(r);
    for (size_t s = 0; ok && s < r->job.slices.count; s++) {
        ok = SP_EXEC(kv_gradient)(&l, (int32_t)s) != NULL;
    }
    for (size_t p = 0; ok && p < r->job.slices.forward_count; p++) {
        ok = run_pack(r, &r->job.slices.forward[p]);
    }
    for (size_t s = 0; ok && s < r->job.slices.count; s++) {
        move_keys(r, (int32_t)s, NULL, *sp_i_exec_kv_gradient(&r->stage, (int32_t)s, 0));
    }
    return ok;
}

// ---- a rank, and all ----

static void make_job(rank *r, const sp_i_exec_place *place)
{
    const attention_case *c = r->c;
    r->model = (sp_model){.head_dim = c->head_dim};
    r->job = (sp_i_exec_job){
        .runtime = r->runtime,
        .model = &r->model,
        .shard = {.heads = c->heads, .q = c->shape.q_stride, .kv = c->shape.kv_stride / 2},
        .specs = {.kv_columns = c->shape.kv_stride,
                  .value = {2, 2},
                  .statistic = {4, 4},
                  .scratch = {4, 0}},
        .attention_way = c->ring ? SP_COMM_RING : SP_COMM_GATHERED};
    SP_ASSERT(sp_i_exec_slices_init(&r->job.slices, &c->packing, place, NULL) == SP_OK);
    r->token_group = sp_calloc(r->job.slices.forward_count, sizeof *r->token_group);
    r->links.token_group = r->token_group;
}

static sp_status failure_of(const rank *r, sp_error *err)
{
    char text[200];
    if (r->links.status != SP_OK) {
        return sp_error_set(err, r->links.status, "%s", r->links.err.message[0]);
    }
    sp_status status = sp_i_exec_arena_failure(r->stage.arena, text, sizeof text);
    return sp_error_set(err, status, "%s", text);
}

typedef struct world {
    attention_case *c;
    sp_runtime *runtime;
} world;

static sp_status rank_body(sp_comm *me, void *data, sp_error *err)
{
    const world *w = data;
    attention_case *c = w->c;
    rank r = {.c = c, .runtime = w->runtime, .links = {.me = me}};
    int number = me != NULL ? sp_comm_rank(me) : 0;
    const sp_i_exec_place place = {.dp = number / c->cp,
                                   .cp = c->cp,
                                   .cp_rank = number % c->cp,
                                   .parts = c->parts,
                                   .tp = c->parts};
    r.runtime->ops->enter(r.runtime, number);
    sp_i_cuda_rank_now()->attention = c->plans;
    make_job(&r, &place);
    sp_i_exec_arena *arena = sp_i_exec_arena_new(r.runtime, SP_I_EXEC_REAL, c->limit_bytes);
    SP_ASSERT(arena != NULL && sp_i_exec_stage_init(&r.stage, &r.job, arena, &r.links,
                                                    (sp_stage){.layers = 1}, NULL) == SP_OK);
    sp_status status = run_packs(&r) ? SP_OK : failure_of(&r, err);
    if (status == SP_OK) {
        status = r.runtime->ops->synchronize(r.runtime, err);
    }
    sp_i_exec_stage_fini(&r.stage);
    sp_i_exec_arena_free(arena);
    sp_i_exec_slices_fini(&r.job.slices);
    sp_free(r.token_group);
    return status;
}

static sp_status run_ranks(world *w, int ranks, sp_error *err)
{
    const sp_comm_options options = {.one_at_a_time = true, .runtime = w->runtime};
    int members[16];
    int group = -1;
    sp_comm_world *comm = NULL;
    if (ranks == 1) {
        return rank_body(NULL, w, err);
    }
    for (int i = 0; i < ranks; i++) {
        members[i] = i;
    }
    sp_status status = sp_comm_world_new(ranks, &options, &comm, err);
    if (status == SP_OK) {
        status = sp_comm_group_new(comm, "all", members, ranks, &group, err);
        SP_ASSERT(status != SP_OK || group == ALL);
    }
    if (status == SP_OK) {
        status = sp_comm_run(comm, NULL, rank_body, w, 0, err);
    }
    if (comm != NULL) {
        sp_comm_world_free(comm);
    }
    return status;
}

sp_status case_run(attention_case *c, sp_error *err)
{
    sp_i_cuda_api api;
    sp_i_cublas_api cublas;
    fake_cuda_reset(&api);
    computing_cublas_reset(&cublas);
    const sp_i_cuda_device device = {.api = &api};
    int ranks = c->cp * c->dp;
    const sp_i_cuda_runtime_options options = {.ranks = ranks, .memory_bytes = MEMORY_BYTES};
    world w = {.c = c};
    sp_status status = sp_i_cuda_runtime_new(&device, &cublas, &options, &w.runtime, err);
    if (status == SP_OK) {
        status = run_ranks(&w, ranks, err);
    }
    sp_i_cuda_runtime_free(w.runtime);
    return status;
}
