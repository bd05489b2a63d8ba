// A pack that cuDNN serves. Its tensors are those of the executor but for keys and values, which
// stand slice by slice there and in one matrix here, and for their gradients, which cuDNN gives in
// bf16 and without adding them to what later slices left.
#include "backends/cuda/attention.h"
#include "backends/cuda/attention_packed.h"
#include "backends/cuda/attention_pass.h"
#include "kernels/cuda_kernels.h"
#include "sim/base/alloc.h"

// Memory of the device beside the executor's tensors; NULL: not there.
typedef struct room {
    int32_t *index;
    sp_bf16 *kv; // [rows, key | value]; NULL where the pack's one slice is used in its place
    sp_bf16 *dk, *dv;
    void *workspace;
} room;

static void give_room(const sp_i_cuda_pass *p, const room *r)
{
    sp_i_cuda_pass_give(p, r->index);
    sp_i_cuda_pass_give(p, r->kv);
    sp_i_cuda_pass_give(p, r->dk);
    sp_i_cuda_pass_give(p, r->dv);
    sp_i_cuda_pass_give(p, r->workspace);
}

static bool take_room(const sp_i_cuda_pass *p, const sp_i_cuda_attention_shape *packed,
                      int64_t workspace_bytes, room *r)
{
    const sp_i_exec_pack *pack = p->l->pack;
    int64_t element = (int64_t)sizeof(sp_bf16);
    int64_t gradient = p->backward ? p->l->rows * packed->dkv_stride : 0;
    bool copies = pack->count > 1;
    *r = (room){
        .index =
            sp_i_cuda_pass_take(p, sp_i_cuda_packed_index_count(pack), (int64_t)sizeof *r->index),
        .kv = copies ? sp_i_cuda_pass_take(p, p->l->rows * packed->kv_stride, element) : NULL,
        .dk = p->backward ? sp_i_cuda_pass_take(p, gradient, element) : NULL,
        .dv = p->backward ? sp_i_cuda_pass_take(p, gradient, element) : NULL,
        .workspace = sp_i_cuda_pass_take(p, workspace_bytes, 1)};
    return r->index != NULL && (!copies || r->kv != NULL) &&
           (!p->backward || (r->dk != NULL && r->dv != NULL)) && r->workspace != NULL;
}

static bool upload_index(const sp_i_cuda_pass *p, const sp_i_cuda_attention_shape *packed,
                         const room *r)
{
    sp_runtime *machine = p->l->stage->job->runtime;
    int64_t count = sp_i_cuda_packed_index_count(p->l->pack);
    int32_t *index = sp_i_calloc((size_t)count, sizeof *index);
    if (index == NULL) {
        return sp_i_cuda_pass_no_memory(p);
    }
    sp_i_cuda_packed_index(&p->l->stage->job->slices, p->l->pack, packed, index);
    machine->ops->upload(machine, r->index, index, count * (int64_t)sizeof *index);
    sp_i_free(index);
    return true;
}

static const sp_bf16 *join_keys(const sp_i_cuda_pass *p, const room *r)
{
    sp_runtime *machine = p->l->stage->job->runtime;
    const sp_i_exec_pack *pack = p->l->pack;
    int64_t stride = p->shape.kv_stride;
    if (r->kv == NULL) {
        return *sp_i_exec_kv(p->l->stage, pack->slice[0], p->l->index);
    }
    for (int32_t i = 0; i < pack->count; i++) {
        machine->ops->copy(machine, r->kv + sp_i_cuda_packed_row(pack, i) * stride,
                           *sp_i_exec_kv(p->l->stage, pack->slice[i], p->l->index),
                           slice_of(p->l, pack->slice[i])->rows * stride * (int64_t)sizeof *r->kv);
    }
    return r->kv;
}

static bool add_gradients(const sp_i_cuda_pass *p, const sp_i_cuda_attention_shape *packed,
                          const room *r)
{
    const sp_i_exec_pack *pack = p->l->pack;
    int64_t from = packed->dkv_stride;
    int64_t to = packed->kv_stride;
    for (int32_t i = 0; i < pack->count; i++) {
        int64_t row = sp_i_cuda_packed_row(pack, i);
        int64_t rows = slice_of(p->l, pack->slice[i])->rows;
        float *sum = SP_EXEC(kv_gradient)(p->l, pack->slice[i]);
        if (sum == NULL) {
            return false;
        }
        SP_I_CUDA_PUT(p->rank, accumulate, rows, from, r->dk + row * from, from, sum, to);
        SP_I_CUDA_PUT(p->rank, accumulate, rows, from, r->dv + row * from, from, sum + from, to);
    }
    return true;
}

// Plans are for one thread at a time, and ranks of one stream share them.
static void run(const sp_i_cuda_pass *p, const sp_i_cuda_attention_shape *packed,
                void *const *tensors, void *workspace)
{
    sp_i_cuda_rank *rank = p->rank;
    sp_error err = {0};
    if (rank->status != SP_OK) {
        return;
    }
    sp_i_cuda_hold(rank);
    sp_status status = sp_i_cuda_attention_run(rank->attention, packed, p->backward, tensors,
                                               workspace, rank->stream, &err);
    sp_i_cuda_release(rank);
    if (status != SP_OK) {
        sp_i_cuda_fail(rank, status, &err);
    }
}

static bool compute(const sp_i_cuda_pass *p, const sp_i_cuda_attention_shape *packed, const room *r)
{
    void *t[SP_I_CUDA_ATTENTION_TENSORS] = {0};
    sp_bf16 *kv = (sp_bf16 *)join_keys(p, r);
    t[SP_I_CUDA_Q] = (void *)p->rows.q;
    t[SP_I_CUDA_K] = kv;
    t[SP_I_CUDA_V] = kv + packed->dkv_stride;
    t[SP_I_CUDA_O] = p->rows.out;
    t[SP_I_CUDA_STATS] = p->rows.lse;
    t[SP_I_CUDA_DO] = (void *)p->rows.dout;
    t[SP_I_CUDA_DQ] = p->rows.dq;
    t[SP_I_CUDA_DK] = r->dk;
    t[SP_I_CUDA_DV] = r->dv;
    sp_i_cuda_packed_tensors(p->l->pack, r->index, t);
    run(p, packed, t, r->workspace);
    return !p->backward || add_gradients(p, packed, r);
}

bool sp_i_cuda_whole(const sp_i_cuda_pass *p, const sp_i_cuda_attention_shape *packed)
{
    room r = {0};
    int64_t workspace = 0;
    sp_error err = {0};
    sp_i_cuda_hold(p->rank);
    sp_status status =
        sp_i_cuda_attention_workspace(p->rank->attention, packed, p->backward, &workspace, &err);
    sp_i_cuda_release(p->rank);
    if (status != SP_OK) {
        sp_i_cuda_fail(p->rank, status, &err);
        return true;
    }
    bool ok = take_room(p, packed, workspace, &r) && upload_index(p, packed, &r) &&
              compute(p, packed, &r);
    give_room(p, &r);
    return ok;
}
