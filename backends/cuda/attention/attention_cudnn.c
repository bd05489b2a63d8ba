// A turn of a pack by cuDNN. Its tensors are those of the executor but for keys and values, which
// stand slice by slice there and sample by sample in one matrix here, and for their gradients,
// which cuDNN gives in bf16 and without adding them to what later slices left.
#include "backends/cuda/attention/attention.h"
#include "backends/cuda/attention/attention_packed.h"
#include "backends/cuda/attention/attention_pass.h"
#include "kernels/cuda_kernels.h"
#include "sim/base/alloc.h"

// What one launch is computed of.
typedef struct work {
    const sp_i_cuda_pass *p;
    const sp_i_cuda_launches *launches;
    int launch;
    const sp_i_cuda_segments *segments;
    const sp_i_cuda_attention_shape *packed;
} work;

// Memory of the device beside the executor's tensors; NULL: not there.
typedef struct room {
    int32_t *index;
    sp_bf16 *kv; // [key_rows, key | value]; NULL where the one slice that is seen is used as it is
    sp_bf16 *dk, *dv;
    void *workspace;
} room;

// Rows that are positions of a sample one after another.
typedef struct run {
    int64_t position, row, rows;
} run;

// Goes over what a group sees of a slice, [rows of all shards, one behind the other].
typedef struct walk {
    const sp_i_exec_slice *slice;
    int64_t end;
    int shard, next, count;
    sp_token_run of[SP_ZIGZAG_RUNS];
    int64_t row;
} walk;

static walk walk_over(const work *w, const sp_i_cuda_seen *seen)
{
    return (walk){.slice = slice_of(w->p->l, seen->slice), .end = seen->end, .shard = -1};
}

static bool next_run(walk *k, run *r)
{
    for (;;) {
        if (k->next == k->count) {
            if (++k->shard >= k->slice->shards) {
                return false;
            }
            k->next = 0;
            k->count = sp_i_exec_shard_runs(k->slice, k->shard, k->of);
            continue;
        }
        const sp_token_run *of = &k->of[k->next++];
        int64_t left = k->end - of->begin;
        *r = (run){of->begin, k->row, left < of->tokens ? left : of->tokens};
        k->row += of->tokens;
        if (r->rows > 0) {
            return true;
        }
    }
}

// The one block of keys, in the order of positions, that a launch sees; NULL where there are
// several.
static const sp_bf16 *only_block(const work *w)
{
    const sp_bf16 *only = NULL;
    for (size_t g = 0; g < w->launches->groups; g++) {
        const sp_i_cuda_group *group = &w->launches->group[g];
        const sp_i_cuda_seen *seen = &w->launches->seen[group->first_seen];
        if (group->launch != w->launch) {
            continue;
        }
        if (only != NULL || group->seen > 1 || slice_of(w->p->l, seen->slice)->shards > 1) {
            return NULL;
        }
        only = seen->kv;
    }
    return only;
}

static void give_room(const sp_i_cuda_pass *p, const room *r)
{
    sp_i_cuda_pass_give(p, r->index);
    sp_i_cuda_pass_give(p, r->kv);
    sp_i_cuda_pass_give(p, r->dk);
    sp_i_cuda_pass_give(p, r->dv);
    sp_i_cuda_pass_give(p, r->workspace);
}

static bool take_room(const work *w, int64_t workspace_bytes, room *r)
{
    const sp_i_cuda_pass *p = w->p;
    const sp_i_cuda_attention_shape *s = w->packed;
    int64_t element = (int64_t)sizeof(sp_bf16);
    int64_t gradient = w->segments->gradient_rows * s->dkv_stride;
    bool copies = only_block(w) == NULL;
    *r = (room){
        .index = sp_i_cuda_pass_take(p, sp_i_cuda_packed_index_count(s), (int64_t)sizeof *r->index),
        .kv = copies ? sp_i_cuda_pass_take(p, w->segments->key_rows * s->kv_stride, element) : NULL,
        .dk = p->backward ? sp_i_cuda_pass_take(p, gradient, element) : NULL,
        .dv = p->backward ? sp_i_cuda_pass_take(p, gradient, element) : NULL,
        .workspace = sp_i_cuda_pass_take(p, workspace_bytes, 1)};
    return r->index != NULL && (!copies || r->kv != NULL) &&
           (!p->backward || (r->dk != NULL && r->dv != NULL)) && r->workspace != NULL;
}

static bool upload_index(const work *w, const room *r)
{
    sp_runtime *runtime = w->p->l->stage->job->runtime;
    int64_t count = sp_i_cuda_packed_index_count(w->packed);
    int32_t *index = sp_calloc((size_t)count, sizeof *index);
    if (index == NULL) {
        return sp_i_cuda_pass_no_memory(w->p);
    }
    sp_i_cuda_packed_index(w->segments, w->packed, index);
    runtime->ops->upload(runtime, r->index, index, count * (int64_t)sizeof *index);
    sp_free(index);
    return true;
}

static const sp_bf16 *join_keys(const work *w, const room *r)
{
    sp_runtime *runtime = w->p->l->stage->job->runtime;
    const int64_t stride = w->packed->kv_stride;
    const int64_t row_bytes = stride * (int64_t)sizeof(sp_bf16);
    if (r->kv == NULL) {
        return only_block(w);
    }
    for (size_t g = 0; g < w->launches->groups; g++) {
        const sp_i_cuda_group *group = &w->launches->group[g];
        const int64_t first = w->segments->key_row[g];
        for (size_t e = 0; first >= 0 && e < group->seen; e++) {
            const sp_i_cuda_seen *seen = &w->launches->seen[group->first_seen + e];
            walk k = walk_over(w, seen);
            run of;
            while (next_run(&k, &of)) {
                runtime->ops->copy(runtime, r->kv + (first + of.position) * stride,
                                   seen->kv + of.row * stride, of.rows * row_bytes);
            }
        }
    }
    return r->kv;
}

// A segment's gradients of the keys that it sees of a slice, to those of the slice.
static void add_gradient(const work *w, const room *r, const sp_i_cuda_segment *segment,
                         const sp_i_cuda_seen *seen)
{
    const int64_t from = w->packed->dkv_stride;
    const int64_t to = w->packed->kv_stride;
    walk k = walk_over(w, seen);
    run of;
    while (next_run(&k, &of)) {
        int64_t left = segment->keys - of.position;
        int64_t rows = left < of.rows ? left : of.rows;
        int64_t at = (segment->gradient_row + of.position) * from;
        float *sum = seen->dkv + of.row * to;
        if (rows > 0) {
            SP_I_CUDA_PUT(w->p->rank, accumulate, rows, from, r->dk + at, from, sum, to);
            SP_I_CUDA_PUT(w->p->rank, accumulate, rows, from, r->dv + at, from, sum + from, to);
        }
    }
}

static void add_gradients(const work *w, const room *r)
{
    for (int32_t s = 0; s < w->segments->count; s++) {
        const sp_i_cuda_segment *segment = &w->segments->of[s];
        const sp_i_cuda_group *group = &w->launches->group[segment->group];
        for (size_t e = 0; e < group->seen; e++) {
            add_gradient(w, r, segment, &w->launches->seen[group->first_seen + e]);
        }
    }
}

// The handle is for one thread at a time, and ranks of one stream share it.
static void run_plan(const work *w, void *const *tensors, void *workspace)
{
    sp_i_cuda_rank *rank = w->p->rank;
    sp_error err = {0};
    if (rank->status != SP_OK) {
        return;
    }
    sp_i_cuda_hold(rank);
    sp_status status = sp_i_cuda_attention_run(rank->attention, w->packed, w->p->backward, tensors,
                                               workspace, rank->stream, &err);
    sp_i_cuda_release(rank);
    if (status != SP_OK) {
        sp_i_cuda_fail(rank, status, &err);
    }
}

static void compute(const work *w, const room *r)
{
    const sp_i_cuda_rows *rows = &w->p->rows;
    void *t[SP_I_CUDA_ATTENTION_TENSORS] = {0};
    sp_bf16 *kv = (sp_bf16 *)join_keys(w, r);
    t[SP_I_CUDA_Q] = (void *)rows->q;
    t[SP_I_CUDA_K] = kv;
    t[SP_I_CUDA_V] = kv + w->packed->dkv_stride;
    t[SP_I_CUDA_O] = rows->out;
    t[SP_I_CUDA_STATS] = rows->lse;
    t[SP_I_CUDA_DO] = (void *)rows->dout;
    t[SP_I_CUDA_DQ] = rows->dq;
    t[SP_I_CUDA_DK] = r->dk;
    t[SP_I_CUDA_DV] = r->dv;
    sp_i_cuda_packed_tensors(w->packed, r->index, t);
    run_plan(w, t, r->workspace);
    if (w->p->backward) {
        add_gradients(w, r);
    }
}

bool sp_i_cuda_by_cudnn(const sp_i_cuda_pass *p, const sp_i_cuda_launches *launches, int launch,
                        const sp_i_cuda_segments *segments, const sp_i_cuda_attention_shape *needed)
{
    sp_i_cuda_attention_shape packed = *needed;
    const work w = {p, launches, launch, segments, &packed};
    room r = {0};
    int64_t workspace = 0;
    sp_error err = {0};
    if (segments->count == 0) {
        return true;
    }
    sp_status status = sp_i_cuda_attention_plan(p->rank->attention, &packed, p->backward, &err);
    if (status == SP_OK) {
        status = sp_i_cuda_attention_workspace(p->rank->attention, &packed, p->backward, &workspace,
                                               &err);
    }
    if (status != SP_OK) {
        sp_i_cuda_fail(p->rank, status, &err);
        return true;
    }
    bool ok = take_room(&w, workspace, &r) && upload_index(&w, &r);
    if (ok) {
        compute(&w, &r);
    }
    give_room(p, &r);
    return ok;
}
