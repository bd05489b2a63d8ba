// Attention of a pack's slices over the slices of their samples on the CPU, block after block.
// Earlier slices show their tokens without the padding behind them.
#include "backends/executor/typed/layer.h"
#include "backends/host/typed/context_parallel.h"
#include "kernels/typed.h"

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
    const real *q = (real *)l->t[SP_I_EXEC_QUERIES] + piece->row * shape->q_stride;
    real *out = (real *)l->t[SP_I_EXEC_ATTENTION] + piece->row * shape->out_stride;
    exact *max = (exact *)l->t[SP_I_EXEC_LSE] + piece->row * shape->heads;
    for (int32_t e = piece->slice; e != SP_I_EXEC_NONE; e = slice_of(l, e)->earlier) {
        sp_kernel_attention_block block = block_of(l, piece, e);
        const real *k = *sp_i_exec_kv(l->stage, e, l->index);
        SP_KERNEL(attention_block)
        (shape, &block, q, k, k + l->stage->job->shard.kv, out, max,
         sum + piece->row * shape->heads, tiles);
    }
}

static bool attend_all(const layer *l, const sp_kernel_attention_shape *shape, exact *sum,
                       exact *tiles)
{
    if (SP_EXEC(is_shared)(l)) {
        return SP_EXEC(attend_shards)(l, shape, sum);
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
                          l->stage->job->specs.scratch);
}

bool SP_EXEC(attend_pack)(layer *l)
{
    sp_kernel_attention_shape shape = SP_EXEC(attention_shape)(l);
    exact *workspace = take_workspace(l, &shape);
    if (workspace == NULL) {
        return false;
    }
    real *out = l->t[SP_I_EXEC_ATTENTION];
    exact *lse = l->t[SP_I_EXEC_LSE];
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
    int64_t kv = l->stage->job->shard.kv;
    const real *q = (real *)l->t[SP_I_EXEC_QUERIES] + piece->row * shape->q_stride;
    const exact *lse = (exact *)l->t[SP_I_EXEC_LSE] + piece->row * shape->heads;
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
        return SP_EXEC(shards_backward)(l, shape, dout, delta, dq);
    }
    bool ok = true;
    for (size_t p = 0; ok && p < l->pack->first_piece[l->pack->count]; p++) {
        ok = piece_backward(l, shape, &l->pack->piece[p], dout, delta, dq, tiles);
    }
    return ok;
}

bool SP_EXEC(attend_pack_backward)(layer *l, const real *dout, real *dq)
{
    sp_machine *machine = l->stage->job->machine;
    sp_kernel_attention_shape shape = SP_EXEC(attention_shape)(l);
    exact *workspace = take_workspace(l, &shape);
    if (workspace == NULL) {
        return false;
    }
    exact *delta = workspace + SP_KERNEL(attention_workspace)(&shape, 0);
    SP_KERNEL(attention_delta)(&shape, l->rows, l->t[SP_I_EXEC_ATTENTION], dout, delta);
    machine->ops->zero(machine, dq, l->rows * shape.q_stride * (int64_t)sizeof *dq);
    bool ok = backward_all(l, &shape, dout, delta, dq, workspace);
    if (ok) {
        sp_i_exec_give(l->stage->arena, workspace);
    }
    return ok;
}
