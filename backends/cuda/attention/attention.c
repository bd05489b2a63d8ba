// Attention of a pack in bf16 on a GPU, where backends/host/typed/attention.c is the CPU's. Keys
// that other ranks hold as well are gathered before. The tensors are those of the executor but for
// keys and values, which stand slice by slice there and sample by sample in one matrix here, and
// for their gradients, which are computed in bf16 and then added to what later slices left. Work
// memory counts nothing in the table of a prediction.
#include "backends/cuda/attention/attention.h"

#include "backends/comm/comm.h"
#include "backends/cuda/products/ops.h"
#include "backends/executor/typed/layer.h"
#include "kernels/cuda_kernels.h"
#include "sim/base/alloc.h"

// Tensors of the pack's rows, with the strides of the shape; dq has that of q. NULL: not used.
typedef struct rows_of_pack {
    const sp_bf16 *q;
    sp_bf16 *out;
    float *lse;
    const sp_bf16 *dout;
    float *delta;
    sp_bf16 *dq;
} rows_of_pack;

// One forward or backward of a pack by one layer at work.
typedef struct pass {
    layer *l;
    sp_i_cuda_rank *rank;
    sp_kernel_attention_shape shape;
    rows_of_pack rows;
    bool backward;
} pass;

// Workspace of `count` elements of `bytes` each; NULL where memory ran out.
static void *take(const pass *p, int64_t count, int64_t bytes)
{
    const sp_i_exec_width width = {bytes, 0};
    return sp_i_exec_take(p->l->stage->arena, SP_MEM_WORKSPACE, count, width);
}

// Gives it back; NULL is nothing.
static void give(const pass *p, void *block)
{
    sp_i_exec_give(p->l->stage->arena, block);
}

// Memory of the host ran out: false, with the error in the layer's links.
static bool no_memory(const pass *p)
{
    sp_i_exec_links *links = p->l->stage->links;
    links->status = sp_error_no_memory(&links->err, "the tables of attention");
    return false;
}

// ---- keys that other ranks hold as well ----

static int group_of(const pass *p, const sp_i_cuda_launches *launches, const sp_i_cuda_group *group)
{
    int32_t number = launches->pack->slice[launches->order[group->first]];
    return p->l->stage->links->token_group[slice_of(p->l, number)->forward_pack];
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

// Gathers the keys and values of a slice from all ranks that share the slices of `group`, and makes
// room for their gradients, zero. False: an exchange failed, or memory ran out.
static bool gather(const pass *p, const sp_i_cuda_launches *launches, const sp_i_cuda_group *group,
                   sp_i_cuda_seen *seen)
{
    sp_i_exec_links *links = p->l->stage->links;
    const sp_i_exec_slice *slice = slice_of(p->l, seen->slice);
    int64_t count = slice->computed * p->shape.kv_stride;
    sp_bf16 *kv = take(p, count, (int64_t)sizeof *kv);
    seen->kv = kv;
    seen->dkv = p->backward ? take(p, count, (int64_t)sizeof *seen->dkv) : NULL;
    if (kv == NULL || (p->backward && seen->dkv == NULL)) {
        return false;
    }
    if (p->backward) {
        sp_runtime *runtime = p->l->stage->job->runtime;
        runtime->ops->zero(runtime, seen->dkv, count * (int64_t)sizeof *seen->dkv);
    }
    int64_t own;
    int64_t *rows = rows_of(slice, &own);
    if (rows == NULL) {
        return no_memory(p);
    }
    links->status = sp_comm_all_gather(links->me, group_of(p, launches, group), SP_REAL_ELEMENT,
                                       *sp_i_exec_kv(p->l->stage, seen->slice, p->l->index), kv,
                                       rows, p->shape.kv_stride, &links->err);
    sp_free(rows);
    return links->status == SP_OK;
}

// Adds all ranks' gradients of this rank's rows to those of the slice.
static bool scatter(const pass *p, const sp_i_cuda_launches *launches, const sp_i_cuda_group *group,
                    const sp_i_cuda_seen *seen)
{
    sp_i_exec_links *links = p->l->stage->links;
    const sp_i_exec_slice *slice = slice_of(p->l, seen->slice);
    float *sum = SP_EXEC(kv_gradient)(p->l, seen->slice);
    if (sum == NULL) {
        return false;
    }
    int64_t before;
    int64_t *rows = rows_of(slice, &before);
    if (rows == NULL) {
        return no_memory(p);
    }
    float *own = seen->dkv + before * p->shape.kv_stride;
    links->status =
        sp_comm_reduce_scatter(links->me, group_of(p, launches, group), SP_EXACT_ELEMENT,
                               SP_COMM_SUM, seen->dkv, own, rows, p->shape.kv_stride, &links->err);
    sp_free(rows);
    if (links->status == SP_OK) {
        SP_OP(add_exact)(slice->rows * p->shape.kv_stride, own, sum);
    }
    return links->status == SP_OK;
}

// Gives back what was gathered.
static void forget(const pass *p, sp_i_cuda_seen *seen)
{
    give(p, (void *)seen->kv);
    give(p, seen->dkv);
    seen->kv = NULL;
    seen->dkv = NULL;
}

// ---- one launch ----

// What one launch is computed of.
typedef struct work {
    const pass *p;
    const sp_i_cuda_launches *launches;
    int launch;
    bool cudnn; // else the reference kernels compute
    sp_i_cuda_segments segments;
    sp_i_cuda_attention_shape packed; // that of the plan
    int64_t workspace_bytes;
} work;

// Memory of the device beside the executor's tensors; NULL: not there.
typedef struct room {
    void *index; // lengths and offsets, or the segments
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

static void give_room(const pass *p, const room *r)
{
    give(p, r->index);
    give(p, r->kv);
    give(p, r->dk);
    give(p, r->dv);
    give(p, r->workspace);
}

static int64_t index_bytes(const work *w)
{
    return w->cudnn ? sp_i_cuda_packed_index_count(&w->packed) * (int64_t)sizeof(int32_t)
                    : w->segments.count * (int64_t)sizeof(sp_cuda_attention_segment);
}

static bool take_room(const work *w, room *r)
{
    const pass *p = w->p;
    const sp_i_cuda_attention_shape *s = &w->packed;
    int64_t element = (int64_t)sizeof(sp_bf16);
    int64_t gradient = w->segments.gradient_rows * s->dkv_stride;
    bool copies = only_block(w) == NULL;
    *r = (room){.index = take(p, index_bytes(w), 1),
                .kv = copies ? take(p, w->segments.key_rows * s->kv_stride, element) : NULL,
                .dk = p->backward ? take(p, gradient, element) : NULL,
                .dv = p->backward ? take(p, gradient, element) : NULL,
                .workspace = take(p, w->workspace_bytes, 1)};
    return r->index != NULL && (!copies || r->kv != NULL) &&
           (!p->backward || (r->dk != NULL && r->dv != NULL)) && r->workspace != NULL;
}

static bool upload_index(const work *w, const room *r)
{
    sp_runtime *runtime = w->p->l->stage->job->runtime;
    void *index = sp_malloc((size_t)index_bytes(w));
    if (index == NULL) {
        return no_memory(w->p);
    }
    if (w->cudnn) {
        sp_i_cuda_packed_index(&w->segments, &w->packed, index);
    } else {
        sp_i_cuda_segments_table(&w->segments, index);
    }
    runtime->ops->upload(runtime, r->index, index, index_bytes(w));
    sp_free(index);
    return true;
}

static const sp_bf16 *join_keys(const work *w, const room *r)
{
    sp_runtime *runtime = w->p->l->stage->job->runtime;
    const int64_t stride = w->packed.kv_stride;
    const int64_t row_bytes = stride * (int64_t)sizeof(sp_bf16);
    if (r->kv == NULL) {
        return only_block(w);
    }
    for (size_t g = 0; g < w->launches->groups; g++) {
        const sp_i_cuda_group *group = &w->launches->group[g];
        const int64_t first = w->segments.key_row[g];
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
    const int64_t from = w->packed.dkv_stride;
    const int64_t to = w->packed.kv_stride;
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
    for (int32_t s = 0; s < w->segments.count; s++) {
        const sp_i_cuda_segment *segment = &w->segments.of[s];
        const sp_i_cuda_group *group = &w->launches->group[segment->group];
        for (size_t e = 0; e < group->seen; e++) {
            add_gradient(w, r, segment, &w->launches->seen[group->first_seen + e]);
        }
    }
}

// The handle is for one thread at a time, and ranks of one stream share it.
static void run_plan(const work *w, const room *r, sp_bf16 *kv)
{
    sp_i_cuda_rank *rank = w->p->rank;
    const rows_of_pack *rows = &w->p->rows;
    void *t[SP_I_CUDA_ATTENTION_TENSORS] = {[SP_I_CUDA_Q] = (void *)rows->q,
                                            [SP_I_CUDA_K] = kv,
                                            [SP_I_CUDA_V] = kv + w->packed.dkv_stride,
                                            [SP_I_CUDA_O] = rows->out,
                                            [SP_I_CUDA_STATS] = rows->lse,
                                            [SP_I_CUDA_DO] = (void *)rows->dout,
                                            [SP_I_CUDA_DQ] = rows->dq,
                                            [SP_I_CUDA_DK] = r->dk,
                                            [SP_I_CUDA_DV] = r->dv};
    sp_error err = {0};
    if (rank->status != SP_OK) {
        return;
    }
    sp_i_cuda_packed_tensors(&w->packed, r->index, t);
    sp_i_cuda_hold(rank);
    sp_status status = sp_i_cuda_attention_run(rank->attention, &w->packed, w->p->backward, t,
                                               r->workspace, rank->stream, &err);
    sp_i_cuda_release(rank);
    if (status != SP_OK) {
        sp_i_cuda_fail(rank, status, &err);
    }
}

static void run_reference(const work *w, const room *r, const sp_bf16 *kv)
{
    const rows_of_pack *rows = &w->p->rows;
    const sp_cuda_attention_pack pack = {.segments = r->index,
                                         .count = w->segments.count,
                                         .rows = w->p->l->rows,
                                         .gradient_rows = w->segments.gradient_rows,
                                         .q = rows->q,
                                         .k = kv,
                                         .v = kv + w->packed.dkv_stride,
                                         .out = rows->out,
                                         .lse = rows->lse,
                                         .dout = rows->dout,
                                         .delta = rows->delta,
                                         .dq = rows->dq,
                                         .dk = r->dk,
                                         .dv = r->dv};
    SP_I_CUDA_PUT(w->p->rank, attention, &w->p->shape, &pack, w->p->backward);
}

// Who computes, and what that takes. The reference kernels need no workspace and take cuDNN's all
// the same, so that one prediction of memory holds for both.
static sp_status choose(work *w, sp_error *err)
{
    const pass *p = w->p;
    int64_t offset[SP_I_CUDA_WORKSPACE_PARTS];
    bool takes = sp_i_cuda_packed_shape(&w->segments, p->l->rows, &p->shape, &w->packed);
    w->cudnn = takes && p->rank->attention != NULL;
    if (!w->cudnn) {
        w->workspace_bytes =
            takes && p->backward ? sp_i_cuda_attention_parts(&w->packed, offset) : 0;
        return SP_OK;
    }
    sp_status status = sp_i_cuda_attention_plan(p->rank->attention, &w->packed, p->backward, err);
    return status == SP_OK ? sp_i_cuda_attention_workspace(p->rank->attention, &w->packed,
                                                           p->backward, &w->workspace_bytes, err)
                           : status;
}

static bool compute_segments(work *w)
{
    room r = {0};
    sp_error err = {0};
    sp_status status = choose(w, &err);
    if (status != SP_OK) {
        sp_i_cuda_fail(w->p->rank, status, &err);
        return true;
    }
    bool ok = take_room(w, &r) && upload_index(w, &r);
    if (ok) {
        sp_bf16 *kv = (sp_bf16 *)join_keys(w, &r);
        if (w->cudnn) {
            run_plan(w, &r, kv);
        } else {
            run_reference(w, &r, kv);
        }
        if (w->p->backward) {
            add_gradients(w, &r);
        }
    }
    give_room(w->p, &r);
    return ok;
}

static bool compute(const pass *p, const sp_i_cuda_launches *launches, int launch)
{
    work w = {.p = p, .launches = launches, .launch = launch};
    if (!sp_i_cuda_segments_init(&w.segments, launches, launch)) {
        return no_memory(p);
    }
    bool ok = w.segments.count == 0 || compute_segments(&w);
    sp_i_cuda_segments_fini(&w.segments);
    return ok;
}

static bool find_keys(const pass *p, sp_i_cuda_seen *seen)
{
    seen->kv = *sp_i_exec_kv(p->l->stage, seen->slice, p->l->index);
    seen->dkv = p->backward ? SP_EXEC(kv_gradient)(p->l, seen->slice) : NULL;
    return !p->backward || seen->dkv != NULL;
}

static bool run_launch(const pass *p, sp_i_cuda_launches *launches, int launch)
{
    bool shared = SP_EXEC(is_shared)(p->l);
    bool ok = true;
    for (size_t g = 0; ok && g < launches->groups; g++) {
        const sp_i_cuda_group *group = &launches->group[g];
        for (size_t s = 0; ok && group->launch == launch && s < group->seen; s++) {
            sp_i_cuda_seen *seen = &launches->seen[group->first_seen + s];
            ok = shared ? gather(p, launches, group, seen) : find_keys(p, seen);
        }
    }
    ok = ok && compute(p, launches, launch);
    for (size_t g = 0; shared && g < launches->groups; g++) {
        const sp_i_cuda_group *group = &launches->group[g];
        for (size_t s = 0; group->launch == launch && s < group->seen; s++) {
            sp_i_cuda_seen *seen = &launches->seen[group->first_seen + s];
            ok = ok && (!p->backward || scatter(p, launches, group, seen));
            forget(p, seen);
        }
    }
    return ok;
}

// ---- a pack ----

static bool run_launches(const pass *p)
{
    sp_i_cuda_launches launches;
    if (!sp_i_cuda_launches_init(&launches, &p->l->stage->job->slices, p->l->pack)) {
        return no_memory(p);
    }
    bool ok = true;
    for (int launch = 0; ok && launch < launches.count; launch++) {
        ok = run_launch(p, &launches, launch);
    }
    sp_i_cuda_launches_fini(&launches);
    return ok;
}

// Round a ring, keys come by queues that only a CPU's memory has.
static bool refuses(const pass *p)
{
    sp_i_exec_links *links = p->l->stage->links;
    bool ring = SP_EXEC(is_shared)(p->l) && p->l->stage->job->attention_way == SP_COMM_RING;
    if (ring) {
        links->status = sp_error_set(&links->err, SP_ERR_USAGE,
                                     "attention: \"ring\" runs on a CPU alone, not on a GPU");
    }
    return ring;
}

static bool attend(const pass *p)
{
    return !refuses(p) && run_launches(p);
}

bool SP_EXEC(attend_pack)(layer *l)
{
    const pass p = {.l = l,
                    .rank = sp_i_cuda_rank_now(),
                    .shape = SP_EXEC(attention_shape)(l),
                    .rows = {.q = l->t[SP_I_EXEC_QUERIES],
                             .out = l->t[SP_I_EXEC_ATTENTION],
                             .lse = l->t[SP_I_EXEC_LSE]}};
    return attend(&p);
}

bool SP_EXEC(attend_pack_backward)(layer *l, const real *dout, real *dq)
{
    pass p = {.l = l,
              .rank = sp_i_cuda_rank_now(),
              .shape = SP_EXEC(attention_shape)(l),
              .rows = {.q = l->t[SP_I_EXEC_QUERIES],
                       .out = l->t[SP_I_EXEC_ATTENTION],
                       .lse = l->t[SP_I_EXEC_LSE],
                       .dout = dout,
                       .dq = dq},
              .backward = true};
    p.rows.delta = take(&p, l->rows * p.shape.heads, (int64_t)sizeof *p.rows.delta);
    bool ok = p.rows.delta != NULL && attend(&p);
    give(&p, p.rows.delta);
    return ok;
}

// ---- before the first step ----

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// Widens the shape of a plan, which is empty at first, so that it serves the pack.
static bool add_pack(sp_i_cuda_attention_shape *plan, const sp_i_exec_slices *slices,
                     const sp_i_exec_pack *pack, const sp_kernel_attention_shape *shape)
{
    sp_i_cuda_launches launches;
    bool ok = sp_i_cuda_launches_init(&launches, slices, pack);
    for (int launch = 0; ok && launch < launches.count; launch++) {
        sp_i_cuda_segments segments;
        sp_i_cuda_attention_shape packed;
        ok = sp_i_cuda_segments_init(&segments, &launches, launch);
        if (ok && segments.count > 0 &&
            sp_i_cuda_packed_shape(&segments, pack->rows, shape, &packed)) {
            packed.segments = larger(packed.segments, plan->segments);
            packed.queries = larger(packed.queries, plan->queries);
            packed.keys = larger(packed.keys, plan->keys);
            *plan = packed;
        }
        sp_i_cuda_segments_fini(&segments);
    }
    sp_i_cuda_launches_fini(&launches);
    return ok;
}

// A backward may compute its forward once more.
static bool add_job(sp_i_cuda_attention_shape *plan, bool backward, const sp_i_exec_job *job)
{
    sp_i_exec_stage stage = {.job = job};
    const layer l = {.stage = &stage};
    const sp_kernel_attention_shape shape = SP_EXEC(attention_shape)(&l);
    const sp_i_exec_slices *slices = &job->slices;
    bool ok = true;
    for (size_t p = 0; ok && !backward && p < slices->forward_count; p++) {
        ok = add_pack(plan, slices, &slices->forward[p], &shape);
    }
    for (size_t p = 0; ok && p < slices->backward_count; p++) {
        ok = add_pack(plan, slices, &slices->backward[p], &shape);
    }
    return ok;
}

sp_status sp_i_cuda_attention_prepare(sp_i_cuda_attention *attention,
                                      const sp_i_exec_job *const *jobs, size_t count, sp_error *err)
{
    sp_status status = SP_OK;
    for (int back = 0; status == SP_OK && back < 2; back++) {
        sp_i_cuda_attention_shape plan = {0};
        bool ok = true;
        for (size_t j = 0; ok && j < count; j++) {
            ok = add_job(&plan, back == 1, jobs[j]);
        }
        status = ok ? SP_OK : sp_error_no_memory(err, "shapes of attention");
        if (status == SP_OK && plan.segments > 0) {
            status = sp_i_cuda_attention_plan(attention, &plan, back == 1, err);
        }
    }
    return status;
}
