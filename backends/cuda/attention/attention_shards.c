#include "backends/comm/collective.h"
#include "backends/cuda/attention/attention_pass.h"
#include "sim/base/alloc.h"

static int group_of(const sp_i_cuda_pass *pass, const sp_i_cuda_launches *launches,
                    const sp_i_cuda_group *group)
{
    int32_t number = launches->pack->slice[launches->order[group->first]];
    return pass->l->stage->links->token_group[slice_of(pass->l, number)->forward_pack];
}

// Rows of each rank; NULL where memory ran out. *own: those before this rank's.
static int64_t *rows_of(const sp_i_exec_slice *slice, int64_t *own)
{
    int64_t *rows = sp_calloc((size_t)slice->shards, sizeof *rows);
    *own = 0;
    for (int s = 0; rows != NULL && s < slice->shards; s++) {
        rows[s] = sp_zigzag_tokens(slice->computed, slice->shards, s);
        *own += s < slice->shard ? rows[s] : 0;
    }
    return rows;
}

bool sp_i_cuda_gather(const sp_i_cuda_pass *pass, const sp_i_cuda_launches *launches,
                      const sp_i_cuda_group *group, sp_i_cuda_seen *seen)
{
    sp_i_exec_links *links = pass->l->stage->links;
    const sp_i_exec_slice *slice = slice_of(pass->l, seen->slice);
    int64_t count = slice->computed * pass->shape.kv_stride;
    sp_bf16 *kv = sp_i_cuda_pass_take(pass, count, (int64_t)sizeof *kv);
    seen->kv = kv;
    seen->dkv =
        pass->backward ? sp_i_cuda_pass_take(pass, count, (int64_t)sizeof *seen->dkv) : NULL;
    if (kv == NULL || (pass->backward && seen->dkv == NULL)) {
        return false;
    }
    if (pass->backward) {
        sp_runtime *runtime = pass->l->stage->job->runtime;
        runtime->ops->zero(runtime, seen->dkv, count * (int64_t)sizeof *seen->dkv);
    }
    int64_t own;
    int64_t *rows = rows_of(slice, &own);
    if (rows == NULL) {
        return sp_i_cuda_pass_no_memory(pass);
    }
    links->status = sp_comm_all_gather(links->me, group_of(pass, launches, group), SP_REAL_ELEMENT,
                                       *sp_i_exec_kv(pass->l->stage, seen->slice, pass->l->index),
                                       kv, rows, pass->shape.kv_stride, &links->err);
    sp_free(rows);
    return links->status == SP_OK;
}

bool sp_i_cuda_scatter(const sp_i_cuda_pass *pass, const sp_i_cuda_launches *launches,
                       const sp_i_cuda_group *group, const sp_i_cuda_seen *seen)
{
    sp_i_exec_links *links = pass->l->stage->links;
    const sp_i_exec_slice *slice = slice_of(pass->l, seen->slice);
    float *sum = SP_EXEC(kv_gradient)(pass->l, seen->slice);
    if (sum == NULL) {
        return false;
    }
    int64_t before;
    int64_t *rows = rows_of(slice, &before);
    if (rows == NULL) {
        return sp_i_cuda_pass_no_memory(pass);
    }
    float *own = seen->dkv + before * pass->shape.kv_stride;
    links->status = sp_comm_reduce_scatter(links->me, group_of(pass, launches, group),
                                           SP_EXACT_ELEMENT, SP_COMM_SUM, seen->dkv, own, rows,
                                           pass->shape.kv_stride, &links->err);
    sp_free(rows);
    if (links->status == SP_OK) {
        SP_OP(add_exact)(slice->rows * pass->shape.kv_stride, own, sum);
    }
    return links->status == SP_OK;
}

void sp_i_cuda_forget(const sp_i_cuda_pass *pass, sp_i_cuda_seen *seen)
{
    sp_i_cuda_pass_give(pass, (void *)seen->kv);
    sp_i_cuda_pass_give(pass, seen->dkv);
    seen->kv = NULL;
    seen->dkv = NULL;
}
