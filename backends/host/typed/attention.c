// Attention of a pack's slices over the slices of their samples on the CPU, block after block.
// Earlier slices show their tokens without the padding behind them.
#include "backends/ranks/attention.h"
#include "backends/executor/typed/layer.h"
#include "backends/host/typed/zone_attention.h"
#include "kernels/typed.h"
#include "sim/base/alloc.h"

// ---- Packs whose tokens several ranks share, slice after slice (backends/ranks/attention.h) ----

enum { RING_TAG = 1 }; // and the next one

// The runs of a slice's queries, and of another slice's keys at each rank.
typedef struct exchange {
    sp_token_run *runs;
    int64_t *rows;
    sp_comm_shard *keys;
    sp_comm_attention attention;
} exchange;

static void exchange_fini(exchange *x)
{
    sp_free(x->runs);
    sp_free(x->rows);
    sp_free(x->keys);
}

// For the i-th slice of the pack.
static void exchange_make(const layer *l, int32_t i, const sp_kernel_attention_shape *shape,
                          exchange *x)
{
    const sp_i_exec_slice *slice = slice_of(l, l->pack->slice[i]);
    const sp_i_exec_piece *piece = l->pack->piece + l->pack->first_piece[i];
    size_t pieces = l->pack->first_piece[i + 1] - l->pack->first_piece[i];
    size_t shards = (size_t)slice->shards;
    *x = (exchange){.runs = sp_calloc(pieces + SP_ZIGZAG_RUNS * shards, sizeof *x->runs),
                    .rows = sp_calloc(pieces, sizeof *x->rows),
                    .keys = sp_calloc(shards, sizeof *x->keys)};
    for (size_t p = 0; p < pieces; p++) {
        x->runs[p] = (sp_token_run){piece[p].begin, piece[p].rows};
        x->rows[p] = piece[p].row;
    }
    for (size_t s = 0; s < shards; s++) {
        x->keys[s].runs = x->runs + pieces + SP_ZIGZAG_RUNS * s;
    }
    x->attention =
        (sp_comm_attention){.group = l->stage->links->token_group[slice->forward_pack],
                            .tag = RING_TAG,
                            .way = l->stage->job->attention_way,
                            .node_members = l->stage->job->attention_node,
                            .type = SP_REAL_ELEMENT,
                            .shape = shape,
                            .queries = {.runs = x->runs, .count = (int)pieces, .rows = x->rows},
                            .keys = x->keys};
}

// What each rank shows of slice `e`: of earlier slices the tokens without padding, which stands
// last among a shard's rows.
static void show_keys(const layer *l, int32_t e, bool earlier, exchange *x)
{
    const sp_i_exec_slice *slice = slice_of(l, e);
    int64_t end = slice->begin + (earlier ? slice->tokens : slice->computed);
    for (int s = 0; s < slice->shards; s++) {
        sp_token_run *runs = (sp_token_run *)x->keys[s].runs;
        x->keys[s].count = sp_i_exec_shard_runs(slice, s, runs);
        for (int r = 0; r < x->keys[s].count; r++) {
            int64_t shown = end > runs[r].begin ? end - runs[r].begin : 0;
            runs[r].tokens = shown < runs[r].tokens ? shown : runs[r].tokens;
        }
    }
}

static void *workspace_of(const layer *l, const exchange *x)
{
    const sp_i_exec_width byte = {1, 0};
    return sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE,
                          sp_comm_attention_workspace(l->stage->links->me, &x->attention), byte);
}

// Attention of a pack, one way or the other.
typedef struct pass {
    const sp_kernel_attention_shape *shape;
    exact *sum;       // forward
    const real *dout; // backward
    const exact *delta;
    real *dq;
} pass;

static bool exchange_keys(const layer *l, const pass *p, int32_t e, const exchange *x,
                          void *workspace)
{
    sp_i_exec_links *links = l->stage->links;
    int64_t kv = l->kind->shard.k;
    const real *q = l->t[SP_TENSOR_QUERIES];
    exact *lse = l->t[SP_TENSOR_LOG_SUM_EXP];
    const real *k = *sp_i_exec_kv(l->stage, e, l->index);
    if (p->dq == NULL) {
        links->status = sp_comm_attention_forward_block(links->me, &x->attention, q, k, k + kv,
                                                        l->t[SP_TENSOR_ATTENTION], lse, p->sum,
                                                        workspace, &links->err);
        return links->status == SP_OK;
    }
    exact *dk = SP_EXEC(kv_gradient)(l, e);
    if (dk == NULL) {
        return false;
    }
    links->status =
        sp_comm_attention_backward_block(links->me, &x->attention, q, k, k + kv, p->dout, lse,
                                         p->delta, p->dq, dk, dk + kv, workspace, &links->err);
    return links->status == SP_OK;
}

static bool run_slice(const layer *l, const pass *p, int32_t i)
{
    exchange x;
    int32_t number = l->pack->slice[i];
    exchange_make(l, i, p->shape, &x);
    bool ok = true;
    for (int32_t e = number; ok && e != SP_I_EXEC_NONE; e = slice_of(l, e)->earlier) {
        show_keys(l, e, e != number, &x);
        void *workspace = workspace_of(l, &x);
        ok = workspace != NULL && exchange_keys(l, p, e, &x, workspace);
        sp_i_exec_give(l->stage->arena, workspace);
    }
    exchange_fini(&x);
    return ok;
}

static bool run_pass(const layer *l, const pass *p)
{
    bool ok = true;
    const zone_pass zone = {p->sum, p->dout, p->delta, p->dq};
    for (int32_t i = 0; ok && i < l->pack->count; i++) {
        ok = slice_of(l, l->pack->slice[i])->zone_shards > 0
                 ? SP_EXEC(attend_zone)(l, i, p->shape, &zone)
                 : run_slice(l, p, i);
    }
    return ok;
}

// Takes the keys and values of all ranks into the pack's attention output, its running maxima
// (SP_TENSOR_LOG_SUM_EXP) and sums [rows, heads].
static bool attend_shards(const layer *l, const sp_kernel_attention_shape *shape, exact *sum)
{
    const pass p = {.shape = shape, .sum = sum};
    return run_pass(l, &p);
}

// Adds to dq and to the gradients of this rank's keys and values.
static bool shards_backward(const layer *l, const sp_kernel_attention_shape *shape,
                            const real *dout, const exact *delta, real *dq)
{
    const pass p = {.shape = shape, .dout = dout, .delta = delta, .dq = dq};
    return run_pass(l, &p);
}

// ---- Packs of one rank, block after block ----

// Queries of a piece against the keys of slice `keys` of the same sample.
static sp_kernel_attention_block block_of(const layer *l, const sp_i_exec_piece *piece,
                                          int32_t keys)
{
    const sp_i_exec_slice *slice = slice_of(l, keys);
    return (sp_kernel_attention_block){.query_begin = piece->begin,
                                       .queries = piece->rows,
                                       .key_begin = slice->begin,
                                       .keys =
                                           keys == piece->slice ? slice->computed : slice->tokens};
}

static void attend_piece(const layer *l, const sp_kernel_attention_shape *shape,
                         const sp_i_exec_piece *piece, exact *sum, exact *tiles)
{
    const real *q = (real *)l->t[SP_TENSOR_QUERIES] + piece->row * shape->q_stride;
    real *out = (real *)l->t[SP_TENSOR_ATTENTION] + piece->row * shape->out_stride;
    exact *max = (exact *)l->t[SP_TENSOR_LOG_SUM_EXP] + piece->row * shape->heads;
    for (int32_t e = piece->slice; e != SP_I_EXEC_NONE; e = slice_of(l, e)->earlier) {
        sp_kernel_attention_block block = block_of(l, piece, e);
        const real *k = *sp_i_exec_kv(l->stage, e, l->index);
        SP_KERNEL(attention_block)
        (shape, &block, q, k, k + l->kind->shard.k, out, max, sum + piece->row * shape->heads,
         tiles);
    }
}

static bool attend_all(const layer *l, const sp_kernel_attention_shape *shape, exact *sum,
                       exact *tiles)
{
    if (SP_EXEC(is_shared)(l)) {
        return attend_shards(l, shape, sum);
    }
    for (size_t p = 0; p < l->pack->first_piece[l->pack->count]; p++) {
        attend_piece(l, shape, &l->pack->piece[p], sum, tiles);
    }
    return true;
}

// Room for tiles, and behind them for a number for each query.
static exact *take_workspace(const layer *l, const sp_kernel_attention_shape *shape)
{
    return sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE,
                          SP_KERNEL(attention_workspace)(shape, l->rows),
                          l->stage->job->width.scratch);
}

bool SP_EXEC(attend_pack)(layer *l)
{
    sp_kernel_attention_shape shape = SP_EXEC(attention_shape)(l);
    exact *workspace = take_workspace(l, &shape);
    if (workspace == NULL) {
        return false;
    }
    real *out = l->t[SP_TENSOR_ATTENTION];
    exact *lse = l->t[SP_TENSOR_LOG_SUM_EXP];
    exact *sum = workspace + SP_KERNEL(attention_workspace)(&shape, 0);
    SP_KERNEL(attention_start)(&shape, l->rows, out, lse, sum);
    if (!attend_all(l, &shape, sum, workspace)) {
        return false;
    }
    SP_KERNEL(attention_finish)(&shape, l->rows, lse, sum, out, lse);
    sp_i_exec_give(l->stage->arena, workspace);
    return true;
}

// ---- backward ----

// Writes dq of a piece, adds to the gradients of the keys and values that it sees.
static bool piece_backward(const layer *l, const sp_kernel_attention_shape *shape,
                           const sp_i_exec_piece *piece, const real *dout, const exact *delta,
                           real *dq, exact *tiles)
{
    int64_t kv = l->kind->shard.k;
    const real *q = (real *)l->t[SP_TENSOR_QUERIES] + piece->row * shape->q_stride;
    const exact *lse = (exact *)l->t[SP_TENSOR_LOG_SUM_EXP] + piece->row * shape->heads;
    for (int32_t e = piece->slice; e != SP_I_EXEC_NONE; e = slice_of(l, e)->earlier) {
        sp_kernel_attention_block block = block_of(l, piece, e);
        const real *k = *sp_i_exec_kv(l->stage, e, l->index);
        exact *dk = SP_EXEC(kv_gradient)(l, e);
        if (dk == NULL) {
            return false;
        }
        SP_KERNEL(attention_block_backward)
        (shape, &block, q, k, k + kv, dout + piece->row * shape->out_stride, lse,
         delta + piece->row * shape->heads, dq + piece->row * shape->q_stride, dk, dk + kv, tiles);
    }
    return true;
}

static bool backward_all(const layer *l, const sp_kernel_attention_shape *shape, const real *dout,
                         const exact *delta, real *dq, exact *tiles)
{
    if (SP_EXEC(is_shared)(l)) {
        return shards_backward(l, shape, dout, delta, dq);
    }
    bool ok = true;
    for (size_t p = 0; ok && p < l->pack->first_piece[l->pack->count]; p++) {
        ok = piece_backward(l, shape, &l->pack->piece[p], dout, delta, dq, tiles);
    }
    return ok;
}

bool SP_EXEC(attend_pack_backward)(layer *l, const real *dout, real *dq)
{
    sp_runtime *runtime = l->stage->job->runtime;
    sp_kernel_attention_shape shape = SP_EXEC(attention_shape)(l);
    exact *workspace = take_workspace(l, &shape);
    if (workspace == NULL) {
        return false;
    }
    exact *delta = workspace + SP_KERNEL(attention_workspace)(&shape, 0);
    SP_KERNEL(attention_delta)(&shape, l->rows, l->t[SP_TENSOR_ATTENTION], dout, delta);
    runtime->ops->zero(runtime, dq, l->rows * shape.q_stride * (int64_t)sizeof *dq);
    bool ok = backward_all(l, &shape, dout, delta, dq, workspace);
    if (ok) {
        sp_i_exec_give(l->stage->arena, workspace);
    }
    return ok;
}
