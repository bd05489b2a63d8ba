// Attention of a pack in bf16 on a GPU, where backends/host/typed/attention.c is the CPU's. Keys
// that other ranks hold as well are gathered before. The tensors are those of the executor but for
// keys and values, which stand slice by slice there and sample by sample in one matrix here, and
// for their gradients, which are computed in bf16 and then added to what later slices left. Work
// memory counts nothing in the table of a prediction.
#include <stdlib.h>

#include "backends/cuda/attention.h"
#include "backends/cuda/ops.h"
#include "backends/executor/typed/layer.h"
#include "backends/ranks/comm.h"
#include "kernels/cuda_kernels.h"
#include "kernels/cuda_math.h"
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

// ---- keys that other ranks hold as well ----

static int group_of(const pass *p, const sp_i_cuda_launches *launches, const sp_i_cuda_group *group)
{
    int32_t number = launches->pack->slice[launches->order[group->first]];
    return p->l->stage->links->token_group[slice_of(p->l, number)->forward_pack];
}

// Rows of each rank. *own: those before this rank's.
static int64_t *rows_of(const sp_i_exec_slice *slice, int64_t *own)
{
    int64_t *rows = sp_calloc((size_t)slice->shards, sizeof *rows);
    *own = 0;
    for (int s = 0; s < slice->shards; s++) {
        rows[s] = sp_zigzag_tokens(slice->computed, slice->shards, s);
        *own += s < slice->shard ? rows[s] : 0;
    }
    return rows;
}

// Gathers the keys and values of a slice from all ranks that share the slices of `group`, and makes
// room for their gradients, zero. False: an exchange failed, or the device has no room.
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

// The parts that one launch is computed of.
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

// Walks over what a group sees of a slice, [rows of all shards, one behind the other].
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

static void upload_index(const work *w, const room *r)
{
    sp_runtime *runtime = w->p->l->stage->job->runtime;
    void *index = sp_malloc((size_t)index_bytes(w));
    if (w->cudnn) {
        sp_i_cuda_packed_index(&w->segments, &w->packed, index);
    } else {
        sp_i_cuda_segments_table(&w->segments, index);
    }
    runtime->ops->upload(runtime, r->index, index, index_bytes(w));
    sp_free(index);
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
    bool ok = take_room(w, &r);
    if (ok) {
        upload_index(w, &r);
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
    sp_i_cuda_segments_init(&w.segments, launches, launch);
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
    sp_i_cuda_launches_init(&launches, &p->l->stage->job->slices, p->l->pack);
    bool ok = true;
    for (int launch = 0; ok && launch < launches.count; launch++) {
        ok = run_launch(p, &launches, launch);
    }
    sp_i_cuda_launches_fini(&launches);
    return ok;
}

bool SP_EXEC(attend_pack)(layer *l)
{
    const pass p = {.l = l,
                    .rank = sp_i_cuda_rank_now(),
                    .shape = SP_EXEC(attention_shape)(l),
                    .rows = {.q = l->t[SP_I_EXEC_QUERIES],
                             .out = l->t[SP_I_EXEC_ATTENTION],
                             .lse = l->t[SP_I_EXEC_LSE]}};
    return run_launches(&p);
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
    bool ok = p.rows.delta != NULL && run_launches(&p);
    give(&p, p.rows.delta);
    return ok;
}

// ---- before the first step ----

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// Widens the shape of a plan, which is empty at first, so that it serves the pack.
static void add_pack(sp_i_cuda_attention_shape *plan, const sp_i_exec_slices *slices,
                     const sp_i_exec_pack *pack, const sp_kernel_attention_shape *shape)
{
    sp_i_cuda_launches launches;
    sp_i_cuda_launches_init(&launches, slices, pack);
    for (int launch = 0; launch < launches.count; launch++) {
        sp_i_cuda_segments segments;
        sp_i_cuda_attention_shape packed;
        sp_i_cuda_segments_init(&segments, &launches, launch);
        if (segments.count > 0 && sp_i_cuda_packed_shape(&segments, pack->rows, shape, &packed)) {
            packed.segments = larger(packed.segments, plan->segments);
            packed.queries = larger(packed.queries, plan->queries);
            packed.keys = larger(packed.keys, plan->keys);
            *plan = packed;
        }
        sp_i_cuda_segments_fini(&segments);
    }
    sp_i_cuda_launches_fini(&launches);
}

// A backward may compute its forward once more.
static void add_job(sp_i_cuda_attention_shape *plan, bool backward, const sp_i_exec_job *job)
{
    sp_i_exec_stage stage = {.job = job};
    const layer l = {.stage = &stage};
    const sp_kernel_attention_shape shape = SP_EXEC(attention_shape)(&l);
    const sp_i_exec_slices *slices = &job->slices;
    for (size_t p = 0; !backward && p < slices->forward_count; p++) {
        add_pack(plan, slices, &slices->forward[p], &shape);
    }
    for (size_t p = 0; p < slices->backward_count; p++) {
        add_pack(plan, slices, &slices->backward[p], &shape);
    }
}

sp_status sp_i_cuda_attention_prepare(sp_i_cuda_attention *attention,
                                      const sp_i_exec_job *const *jobs, size_t count, sp_error *err)
{
    sp_status status = SP_OK;
    for (int back = 0; status == SP_OK && back < 2; back++) {
        sp_i_cuda_attention_shape plan = {0};
        for (size_t j = 0; j < count; j++) {
            add_job(&plan, back == 1, jobs[j]);
        }
        if (plan.segments > 0) {
            status = sp_i_cuda_attention_plan(attention, &plan, back == 1, err);
        }
    }
    return status;
}

// Which segments a pack of the executor is, and how cuDNN's attention takes them.

// ---- launches ----

typedef struct entry {
    int32_t sample, place;
    int64_t begin;
} entry;

static int compare(const void *a, const void *b)
{
    const entry *x = a;
    const entry *y = b;
    if (x->sample != y->sample) {
        return x->sample < y->sample ? -1 : 1;
    }
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return (x->place > y->place) - (x->place < y->place);
}

static const sp_i_exec_slice *at_work(const sp_i_cuda_launches *launches, int32_t i)
{
    return &launches->slices->slice[launches->pack->slice[launches->order[i]]];
}

static void sort_slices(sp_i_cuda_launches *launches)
{
    int32_t count = launches->pack->count;
    entry *entries = sp_calloc((size_t)count, sizeof *entries);
    for (int32_t i = 0; i < count; i++) {
        const sp_i_exec_slice *slice = &launches->slices->slice[launches->pack->slice[i]];
        entries[i] = (entry){slice->sample, i, slice->begin};
    }
    if (count > 0) {
        qsort(entries, (size_t)count, sizeof *entries, compare);
    }
    for (int32_t i = 0; i < count; i++) {
        launches->order[i] = entries[i].place;
    }
    sp_free(entries);
}

// A group ends with its sample, and behind a padded slice.
static void cut_groups(sp_i_cuda_launches *launches)
{
    sp_i_cuda_group *group = NULL;
    for (int32_t i = 0; i < launches->pack->count; i++) {
        const sp_i_exec_slice *slice = at_work(launches, i);
        const sp_i_exec_slice *before = i > 0 ? at_work(launches, i - 1) : NULL;
        bool same = before != NULL && before->sample == slice->sample;
        if (!same || before->computed > before->tokens) {
            int launch = same ? group->launch + 1 : 0;
            group = &launches->group[launches->groups++];
            *group = (sp_i_cuda_group){.launch = launch, .first = i};
            launches->count = launch + 1 > launches->count ? launch + 1 : launches->count;
        }
        group->count++;
    }
}

// The slices of a group's sample up to its last one, which alone shows its padding. Without `seen`
// they are only counted.
static size_t fill_seen(const sp_i_cuda_launches *launches, const sp_i_cuda_group *group,
                        sp_i_cuda_seen *seen)
{
    const sp_i_exec_slice *slices = launches->slices->slice;
    int32_t last = launches->pack->slice[launches->order[group->first + group->count - 1]];
    size_t count = 0;
    for (int32_t e = last; e != SP_I_EXEC_NONE; e = slices[e].earlier) {
        int64_t shown = e == last ? slices[e].computed : slices[e].tokens;
        if (seen != NULL) {
            seen[count] = (sp_i_cuda_seen){.slice = e, .end = slices[e].begin + shown};
        }
        count++;
    }
    return count;
}

void sp_i_cuda_launches_init(sp_i_cuda_launches *launches, const sp_i_exec_slices *slices,
                             const sp_i_exec_pack *pack)
{
    size_t count = (size_t)pack->count;
    *launches = (sp_i_cuda_launches){.slices = slices,
                                     .pack = pack,
                                     .order = sp_calloc(count, sizeof *launches->order),
                                     .group = sp_calloc(count, sizeof *launches->group)};
    sort_slices(launches);
    cut_groups(launches);
    for (size_t g = 0; g < launches->groups; g++) {
        launches->group[g].first_seen = launches->seen_count;
        launches->group[g].seen = fill_seen(launches, &launches->group[g], NULL);
        launches->seen_count += launches->group[g].seen;
    }
    launches->seen = sp_calloc(launches->seen_count, sizeof *launches->seen);
    for (size_t g = 0; g < launches->groups; g++) {
        (void)fill_seen(launches, &launches->group[g],
                        launches->seen + launches->group[g].first_seen);
    }
}

void sp_i_cuda_launches_fini(sp_i_cuda_launches *launches)
{
    sp_free(launches->order);
    sp_free(launches->group);
    sp_free(launches->seen);
    *launches = (sp_i_cuda_launches){0};
}

// ---- segments ----

// Runs that stand one behind the other in their sample and in the pack are one.
static void add_piece(sp_i_cuda_segments *s, size_t group, const sp_i_exec_piece *piece)
{
    sp_i_cuda_segment *last = s->count > 0 ? &s->of[s->count - 1] : NULL;
    int64_t end = piece->begin + piece->rows;
    if (piece->rows == 0) {
        return;
    }
    if (last != NULL && last->group == group && last->keys == piece->begin &&
        last->row + last->queries == piece->row) {
        last->queries += piece->rows;
        last->keys = end;
    } else {
        s->of[s->count++] = (sp_i_cuda_segment){group, piece->row, piece->rows, end, 0};
    }
}

static int compare_rows(const void *a, const void *b)
{
    const sp_i_cuda_segment *x = a;
    const sp_i_cuda_segment *y = b;
    return (x->row > y->row) - (x->row < y->row);
}

// The group's last slice is the first that it sees, and ends behind all others.
static void place_rows(sp_i_cuda_segments *s, const sp_i_cuda_launches *launches)
{
    for (int32_t i = 0; i < s->count; i++) {
        sp_i_cuda_segment *segment = &s->of[i];
        int64_t *key_row = &s->key_row[segment->group];
        segment->gradient_row = s->gradient_rows;
        s->gradient_rows += segment->keys;
        if (*key_row < 0) {
            *key_row = s->key_rows;
            s->key_rows += launches->seen[launches->group[segment->group].first_seen].end;
        }
        s->longest_queries =
            segment->queries > s->longest_queries ? segment->queries : s->longest_queries;
        s->longest_keys = segment->keys > s->longest_keys ? segment->keys : s->longest_keys;
    }
}

void sp_i_cuda_segments_init(sp_i_cuda_segments *s, const sp_i_cuda_launches *launches, int launch)
{
    const sp_i_exec_pack *pack = launches->pack;
    *s = (sp_i_cuda_segments){
        .of = sp_calloc(pack->first_piece[pack->count] + 1, sizeof *s->of),
        .key_row = sp_calloc(launches->groups + 1, sizeof *s->key_row),
    };
    for (size_t g = 0; g < launches->groups; g++) {
        const sp_i_cuda_group *group = &launches->group[g];
        s->key_row[g] = -1;
        for (int32_t i = 0; group->launch == launch && i < group->count; i++) {
            int32_t place = launches->order[group->first + i];
            for (size_t p = pack->first_piece[place]; p < pack->first_piece[place + 1]; p++) {
                add_piece(s, g, &pack->piece[p]);
            }
        }
    }
    qsort(s->of, (size_t)s->count, sizeof *s->of, compare_rows);
    place_rows(s, launches);
}

void sp_i_cuda_segments_fini(sp_i_cuda_segments *s)
{
    sp_free(s->of);
    sp_free(s->key_row);
    *s = (sp_i_cuda_segments){0};
}

void sp_i_cuda_segments_table(const sp_i_cuda_segments *s, sp_cuda_attention_segment *table)
{
    for (int32_t i = 0; i < s->count; i++) {
        const sp_i_cuda_segment *segment = &s->of[i];
        table[i] = (sp_cuda_attention_segment){.row = segment->row,
                                               .queries = segment->queries,
                                               .key_row = s->key_row[segment->group],
                                               .keys = segment->keys,
                                               .gradient_row = segment->gradient_row};
    }
}

// ---- the shape of a plan ----

enum {
    LEAST_LENGTH = 512,
    LEAST_ROWS = 128,
    ROW_STEPS = 8, // to each doubling
    HEAD_STEP = 16,
    MOST_HEAD = 128,
    TABLES = SP_I_CUDA_ATTENTION_TENSORS - SP_I_CUDA_QUERY_LENGTHS,
    LENGTH_TABLES = SP_I_CUDA_Q_OFFSETS - SP_I_CUDA_QUERY_LENGTHS
};

static int64_t power_of_two(int64_t least, int64_t n)
{
    int64_t power = least;
    while (power < n) {
        power *= 2;
    }
    return power;
}

// Work spaces are for so many rows; the plan does not depend on them.
static int64_t round_rows(int64_t rows)
{
    int64_t base = LEAST_ROWS;
    while (2 * base < rows) {
        base *= 2;
    }
    return rows <= base ? base : sp_cuda_ceil(rows, base / ROW_STEPS) * (base / ROW_STEPS);
}

bool sp_i_cuda_cudnn_takes(const sp_kernel_attention_shape *shape)
{
    return shape->head_dim % HEAD_STEP == 0 && shape->head_dim <= MOST_HEAD;
}

static bool offsets_fit(const sp_i_cuda_segments *segments, int64_t rows,
                        const sp_i_cuda_attention_shape *s)
{
    // The gradients of keys and values stand by query heads first.
    const int64_t gradient_stride = s->dkv_stride * (s->heads / s->kv_heads);
    return rows <= INT32_MAX / s->q_stride && rows <= INT32_MAX / s->out_stride &&
           segments->key_rows <= INT32_MAX / s->kv_stride &&
           segments->gradient_rows <= INT32_MAX / gradient_stride;
}

bool sp_i_cuda_packed_shape(const sp_i_cuda_segments *segments, int64_t rows,
                            const sp_kernel_attention_shape *shape,
                            sp_i_cuda_attention_shape *packed)
{
    *packed = (sp_i_cuda_attention_shape){
        .segments = power_of_two(1, segments->count),
        .queries = power_of_two(LEAST_LENGTH, segments->longest_queries),
        .keys = power_of_two(LEAST_LENGTH, segments->longest_keys),
        .all_queries = round_rows(rows),
        .all_keys = round_rows(segments->gradient_rows),
        .heads = shape->heads,
        .kv_heads = shape->kv_heads,
        .head_dim = shape->head_dim,
        .q_stride = shape->q_stride,
        .kv_stride = shape->kv_stride,
        .out_stride = shape->out_stride,
        .dq_stride = shape->q_stride,
        .dkv_stride = shape->kv_heads * shape->head_dim};
    return sp_i_cuda_cudnn_takes(shape) && sp_i_cuda_attention_refusal(packed) == NULL &&
           offsets_fit(segments, rows, packed);
}

// ---- lengths and offsets ----

// Every table has room for the longest.
static int64_t table_step(const sp_i_cuda_attention_shape *packed)
{
    return sp_cuda_ceil(packed->segments + 1, 4) * 4;
}

int64_t sp_i_cuda_packed_index_count(const sp_i_cuda_attention_shape *packed)
{
    return TABLES * table_step(packed);
}

typedef struct place {
    int64_t first, end, stride; // rows, and elements of a row
} place;

static place place_of(const sp_i_cuda_segments *segments, const sp_i_cuda_segment *segment,
                      const sp_i_cuda_attention_shape *s, int tensor)
{
    const int64_t end = segment->row + segment->queries;
    const int64_t key_row = segments->key_row[segment->group];
    switch (tensor) {
    case SP_I_CUDA_Q_OFFSETS:
        return (place){segment->row, end, s->q_stride};
    case SP_I_CUDA_KV_OFFSETS:
        return (place){key_row, key_row + segment->keys, s->kv_stride};
    case SP_I_CUDA_O_OFFSETS:
        return (place){segment->row, end, s->out_stride};
    case SP_I_CUDA_STATS_OFFSETS:
        return (place){segment->row, end, s->heads};
    case SP_I_CUDA_DQ_OFFSETS:
        return (place){segment->row, end, s->dq_stride};
    default:
        return (place){segment->gradient_row, segment->gradient_row + segment->keys, s->dkv_stride};
    }
}

void sp_i_cuda_packed_index(const sp_i_cuda_segments *segments,
                            const sp_i_cuda_attention_shape *packed, int32_t *index)
{
    const int64_t step = table_step(packed);
    for (int64_t i = 0; i < TABLES * step; i++) {
        index[i] = 0;
    }
    for (int32_t i = 0; i < segments->count; i++) {
        index[i] = (int32_t)segments->of[i].queries;
        index[step + i] = (int32_t)segments->of[i].keys;
    }
    for (int table = LENGTH_TABLES; table < TABLES; table++) {
        for (int64_t i = 0; i <= packed->segments; i++) {
            // Segments that are not there begin and end where the last one ends.
            bool there = i < segments->count;
            const sp_i_cuda_segment *segment = &segments->of[there ? i : segments->count - 1];
            place p = place_of(segments, segment, packed, SP_I_CUDA_QUERY_LENGTHS + table);
            index[table * step + i] = (int32_t)((there ? p.first : p.end) * p.stride);
        }
    }
}

void sp_i_cuda_packed_tensors(const sp_i_cuda_attention_shape *packed, int32_t *index,
                              void *tensors[SP_I_CUDA_ATTENTION_TENSORS])
{
    for (int table = 0; table < TABLES; table++) {
        tensors[SP_I_CUDA_QUERY_LENGTHS + table] = index + table * table_step(packed);
    }
}

// ---- what plans are made for ----

bool sp_i_cuda_attention_serves(const sp_i_cuda_attention_shape *plan,
                                const sp_i_cuda_attention_shape *needed)
{
    return plan->segments >= needed->segments && plan->queries >= needed->queries &&
           plan->keys >= needed->keys && plan->heads == needed->heads &&
           plan->kv_heads == needed->kv_heads && plan->head_dim == needed->head_dim &&
           plan->q_stride == needed->q_stride && plan->kv_stride == needed->kv_stride &&
           plan->out_stride == needed->out_stride && plan->dq_stride == needed->dq_stride &&
           plan->dkv_stride == needed->dkv_stride;
}

const char *sp_i_cuda_attention_refusal(const sp_i_cuda_attention_shape *s)
{
    enum { MOST_HEAD_DIM = 256, STEP = 8 }; // STEP: bf16 elements of 16 bytes
    const int64_t strides[] = {s->q_stride, s->kv_stride, s->out_stride, s->dq_stride,
                               s->dkv_stride};
    if (s->head_dim % STEP != 0 || s->head_dim > MOST_HEAD_DIM || s->head_dim < STEP) {
        return "a head dimension that is not a multiple of 8 up to 256";
    }
    if (s->kv_heads < 1 || s->heads % s->kv_heads != 0) {
        return "query heads that are no multiple of the key heads";
    }
    if (s->segments < 1 || s->queries < 1 || s->keys < 1) {
        return "an empty slice";
    }
    for (int i = 0; i < 5; i++) {
        if (strides[i] % STEP != 0) {
            return "rows that do not begin at multiples of 16 bytes";
        }
    }
    return NULL;
}

int64_t sp_i_cuda_attention_parts(const sp_i_cuda_attention_shape *s,
                                  int64_t offset[SP_I_CUDA_WORKSPACE_PARTS])
{
    const int64_t spread = s->heads != s->kv_heads ? s->all_keys : 0;
    const int64_t bytes[SP_I_CUDA_WORKSPACE_PARTS] = {
        4 * s->all_queries * s->dq_stride, 4 * s->all_queries * s->heads,
        4 * spread * s->dkv_stride * (s->heads / s->kv_heads),
        4 * spread * s->dkv_stride * (s->heads / s->kv_heads)};
    int64_t sum = 0;
    for (int i = 0; i < SP_I_CUDA_WORKSPACE_PARTS; i++) {
        offset[i] = sum;
        sum += (bytes[i] + 255) / 256 * 256;
    }
    return sum;
}
