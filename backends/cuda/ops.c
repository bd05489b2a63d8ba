// The operations of backends/executor/typed/ops.h in bf16, kernels and products on the stream of
// the calling thread's rank, and attention of a pack.
#define SP_KERNEL_BITS 16
#include "backends/executor/typed/ops.h"
#undef SP_KERNEL_BITS

#include "backends/cuda/attention.h"
#include "backends/cuda/runtime.h"
#include "backends/executor/typed/layer.h"
#include "backends/ranks/comm.h"
#include "kernels/cuda_kernels.h"
#include "sim/base/alloc.h"
#include "sim/base/units.h"

// ---- Products of linear layers ----

// Returns whether the product has added the bias.
static bool multiply(sp_i_cuda_rank *rank, const sp_i_cuda_product *product, const void *left,
                     const void *right, const void *bias, void *result)
{
    const sp_i_cuda_operands operands = {left, right, result};
    sp_i_cuda_hold(rank);
    bool added = sp_i_cuda_multiply(rank, product, &operands, bias);
    sp_i_cuda_release(rank);
    return added;
}

void SP_OP(linear)(int64_t tokens, int64_t in, int64_t out, const sp_bf16 *x, const sp_bf16 *weight,
                   const sp_bf16 *bias, sp_bf16 *y)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    const sp_i_cuda_product product = {.kind = SP_I_PRODUCT_FORWARD, tokens, in, out};
    if (tokens == 0) {
        return;
    }
    if (!multiply(rank, &product, x, weight, bias, y) && bias != NULL) {
        SP_I_CUDA_PUT(rank, add_bias, tokens, out, bias, y, out);
    }
}

void SP_OP(linear_backward_input)(int64_t tokens, int64_t in, int64_t out, const sp_bf16 *dy,
                                  const sp_bf16 *weight, sp_bf16 *dx)
{
    const sp_i_cuda_product product = {.kind = SP_I_PRODUCT_INPUT, tokens, in, out};
    if (tokens > 0) {
        (void)multiply(sp_i_cuda_rank_now(), &product, dy, weight, NULL, dx);
    }
}

void SP_OP(linear_backward_weight)(int64_t tokens, int64_t in, int64_t out, const sp_bf16 *dy,
                                   const sp_bf16 *x, float *dweight, float *dbias)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    const sp_i_cuda_product product = {
        .kind = SP_I_PRODUCT_WEIGHT, tokens, in, out, .fp32 = true, .accumulate = true};
    if (tokens == 0) {
        return;
    }
    (void)multiply(rank, &product, dy, x, NULL, dweight);
    if (dbias != NULL) {
        sp_i_cuda_hold(rank);
        int64_t room = sp_cuda_column_sums_workspace(tokens, out);
        float *workspace = sp_i_cuda_scratch(rank, room * (int64_t)sizeof *workspace);
        SP_I_CUDA_PUT(rank, bias_backward, tokens, out, dy, out, dbias, workspace);
        sp_i_cuda_release(rank);
    }
}

// Holds the stream context of the rank, for sums over tokens.
static float *column_sums_workspace(sp_i_cuda_rank *rank, int64_t tokens, int64_t features)
{
    sp_i_cuda_hold(rank);
    return sp_i_cuda_scratch(rank, sp_cuda_column_sums_workspace(tokens, features) *
                                       (int64_t)sizeof(float));
}

void SP_OP(rms_norm)(int64_t tokens, int64_t features, const sp_bf16 *x, const sp_bf16 *weight,
                     double epsilon, sp_bf16 *y, float *rstd)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), rms_norm, tokens, features, x, features, weight, epsilon, y,
                  features, rstd);
}

void SP_OP(rms_norm_backward_input)(int64_t tokens, int64_t features, const sp_bf16 *x,
                                    const sp_bf16 *weight, const float *rstd, const sp_bf16 *dy,
                                    sp_bf16 *dx)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), rms_norm_backward_input, tokens, features, x, features,
                  weight, rstd, dy, features, dx, features);
}

void SP_OP(rms_norm_backward_weight)(int64_t tokens, int64_t features, const sp_bf16 *x,
                                     const float *rstd, const sp_bf16 *dy, float *dweight)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    float *workspace = column_sums_workspace(rank, tokens, features);
    SP_I_CUDA_PUT(rank, rms_norm_backward_weight, tokens, features, x, features, rstd, dy, features,
                  dweight, workspace);
    sp_i_cuda_release(rank);
}

void SP_OP(layer_norm)(int64_t tokens, int64_t features, const sp_bf16 *x, const sp_bf16 *weight,
                       const sp_bf16 *bias, double epsilon, sp_bf16 *y, float *mean, float *rstd)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), layer_norm, tokens, features, x, features, weight, bias,
                  epsilon, y, features, mean, rstd);
}

void SP_OP(layer_norm_backward_input)(int64_t tokens, int64_t features, const sp_bf16 *x,
                                      const sp_bf16 *weight, const float *mean, const float *rstd,
                                      const sp_bf16 *dy, sp_bf16 *dx)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), layer_norm_backward_input, tokens, features, x, features,
                  weight, mean, rstd, dy, features, dx, features);
}

void SP_OP(layer_norm_backward_weight)(int64_t tokens, int64_t features, const sp_bf16 *x,
                                       const float *mean, const float *rstd, const sp_bf16 *dy,
                                       float *dweight, float *dbias)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    float *workspace = column_sums_workspace(rank, tokens, features);
    SP_I_CUDA_PUT(rank, layer_norm_backward_weight, tokens, features, x, features, mean, rstd, dy,
                  features, dweight, dbias, workspace);
    sp_i_cuda_release(rank);
}

// Activations and rotation.

void SP_OP(swiglu)(int64_t tokens, int64_t features, const sp_bf16 *x, sp_bf16 *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), swiglu, tokens, features, x, x + features, 2 * features, y,
                  features);
}

void SP_OP(swiglu_backward)(int64_t tokens, int64_t features, const sp_bf16 *x, const sp_bf16 *dy,
                            sp_bf16 *dx)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), swiglu_backward, tokens, features, x, x + features,
                  2 * features, dy, features, dx, dx + features, 2 * features);
}

void SP_OP(gelu)(int64_t n, const sp_bf16 *x, sp_bf16 *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), gelu, n, x, y);
}

void SP_OP(gelu_backward)(int64_t n, const sp_bf16 *x, const sp_bf16 *dy, sp_bf16 *dx)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), gelu_backward, n, x, dy, dx);
}

void SP_OP(rope_table)(int64_t positions, int64_t head_dim, double base, float *cosine, float *sine)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), rope_table, positions, head_dim, base, cosine, sine);
}

void SP_OP(rope)(int64_t tokens, int64_t begin, int64_t heads, int64_t head_dim,
                 const float *cosine, const float *sine, bool backward, sp_bf16 *x,
                 int64_t x_stride)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), rope_run, tokens, begin, heads, head_dim, cosine, sine,
                  backward, x, x_stride);
}

// Plain arrays, and the optimizer's step.

void SP_OP(add)(int64_t n, const sp_bf16 *x, sp_bf16 *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), add, n, x, y);
}

void SP_OP(add_exact)(int64_t n, const float *x, float *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), add_fp32, n, x, y);
}

void SP_OP(copy_rows)(int64_t rows, int64_t columns, const sp_bf16 *from, int64_t from_stride,
                      sp_bf16 *to, int64_t to_stride)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), copy_rows, rows, columns, from, from_stride, to, to_stride);
}

void SP_OP(round_rows)(int64_t rows, int64_t columns, const float *from, int64_t from_stride,
                       sp_bf16 *to, int64_t to_stride)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), round, rows, columns, from, from_stride, to, to_stride);
}

void SP_OP(drop)(int64_t n, const uint8_t *keeps, double scale, const sp_bf16 *x, sp_bf16 *y)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), drop, n, keeps, scale, x, y);
}

void SP_OP(adamw)(const sp_kernel_adamw_step *step, int64_t n, const float *gradient, float *master,
                  float *first, float *second, sp_bf16 *value)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), adamw, step, NULL, n, gradient, master, first, second,
                  value);
}

// ---- Embedding and cross-entropy ----

// Embedding and cross-entropy. Indices and targets stand on the host and pass through the rank's
// scratch memory.

// Holds the stream context of the rank. Room for `more` bytes stands behind the numbers, 16-byte
// aligned.
static int64_t *on_device(sp_i_cuda_rank *rank, int64_t count, const int64_t *numbers, int64_t more,
                          void **behind)
{
    int64_t bytes = (count * (int64_t)sizeof *numbers + 15) / 16 * 16;
    sp_i_cuda_hold(rank);
    char *room = sp_i_cuda_scratch(rank, bytes + more);
    if (room == NULL) {
        *behind = NULL;
        return NULL;
    }
    sp_i_cuda_stage(rank, room, numbers, count * (int64_t)sizeof *numbers);
    *behind = room + bytes;
    return (int64_t *)(void *)room;
}

void SP_OP(embedding)(int64_t tokens, int64_t features, const int64_t *index, int64_t first,
                      int64_t rows, const sp_bf16 *table, bool accumulate, sp_bf16 *y)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *numbers = on_device(rank, tokens, index, 0, &behind);
    SP_I_CUDA_PUT(rank, embedding, tokens, features, numbers, first, rows, table, accumulate, y,
                  features);
    sp_i_cuda_release(rank);
}

void SP_OP(embedding_backward_weight)(int64_t tokens, int64_t features, const int64_t *index,
                                      int64_t first, int64_t rows, const sp_bf16 *dy, float *dtable)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *order;
    const int64_t *numbers =
        on_device(rank, tokens, index, tokens * (int64_t)sizeof *index, &order);
    if (order != NULL) {
        sp_i_cuda_stage_order(rank, order, index, tokens);
    }
    SP_I_CUDA_PUT(rank, embedding_backward_weight, tokens, features, numbers, order, first, rows,
                  dy, features, dtable);
    sp_i_cuda_release(rank);
}

void SP_OP(cross_entropy_max)(int64_t tokens, int64_t columns, const sp_bf16 *logits,
                              int64_t stride, float *max)
{
    SP_I_CUDA_PUT(sp_i_cuda_rank_now(), cross_entropy_max, tokens, columns, logits, stride, max);
}

void SP_OP(cross_entropy_sums)(int64_t tokens, int64_t columns, int64_t first,
                               const sp_bf16 *logits, int64_t stride, const int64_t *target,
                               const float *max, float *sum, float *target_logit)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *numbers = on_device(rank, tokens, target, 0, &behind);
    SP_I_CUDA_PUT(rank, cross_entropy_sums, tokens, columns, first, logits, stride, numbers, max,
                  sum, target_logit);
    sp_i_cuda_release(rank);
}

void SP_OP(cross_entropy_loss)(int64_t tokens, const int64_t *target, double total_weight,
                               const float *max, const float *sum, const float *target_logit,
                               float *lse, double *loss)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *numbers = on_device(rank, tokens, target, 0, &behind);
    SP_I_CUDA_PUT(rank, cross_entropy_loss, tokens, numbers, NULL, total_weight, max, sum,
                  target_logit, lse, loss);
    sp_i_cuda_release(rank);
}

void SP_OP(cross_entropy)(int64_t tokens, int64_t vocab, const sp_bf16 *logits,
                          const int64_t *target, double total_weight, float *lse, double *loss)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *numbers =
        on_device(rank, tokens, target, 3 * tokens * (int64_t)sizeof(float), &behind);
    float *max = behind;
    if (max != NULL) {
        float *sum = max + tokens;
        float *of_target = sum + tokens;
        SP_I_CUDA_PUT(rank, cross_entropy_local, tokens, vocab, 0, logits, vocab, numbers, max, sum,
                      of_target);
        SP_I_CUDA_PUT(rank, cross_entropy_loss, tokens, numbers, NULL, total_weight, max, sum,
                      of_target, lse, loss);
    }
    sp_i_cuda_release(rank);
}

void SP_OP(cross_entropy_backward)(int64_t tokens, int64_t columns, int64_t first, sp_bf16 *logits,
                                   int64_t stride, const int64_t *target, double total_weight,
                                   const float *lse)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    void *behind;
    const int64_t *numbers = on_device(rank, tokens, target, 0, &behind);
    SP_I_CUDA_PUT(rank, cross_entropy_backward_in_place, tokens, columns, first, logits, stride,
                  numbers, total_weight, lse);
    sp_i_cuda_release(rank);
}

// ---- Attention of a pack ----

// Its counterpart on the CPU is backends/host/typed/attention.c. Keys
// that other ranks hold as well are gathered before. The tensors are those of the executor but for
// keys and values, which stand slice by slice there and sample by sample in one matrix here, and
// for their gradients, which are computed in bf16 and then added to what later slices left. Work
// memory counts nothing in the table of a prediction.

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

// Workspace of `count` elements of `bytes` each; NULL where the device has no room.
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
    const uint64_t begin = sp_i_exec_exchange_begin(links);
    sp_status status = sp_comm_all_gather(links->me, group_of(p, launches, group), SP_REAL_ELEMENT,
                                          *sp_i_exec_kv(p->l->stage, seen->slice, p->l->index), kv,
                                          rows, p->shape.kv_stride, &links->err);
    sp_free(rows);
    return sp_i_exec_exchange_end(links, SP_I_EXEC_CP, begin, status);
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
    const uint64_t begin = sp_i_exec_exchange_begin(links);
    sp_status status =
        sp_comm_reduce_scatter(links->me, group_of(p, launches, group), SP_EXACT_ELEMENT,
                               SP_COMM_SUM, seen->dkv, own, rows, p->shape.kv_stride, &links->err);
    sp_free(rows);
    const bool ok = sp_i_exec_exchange_end(links, SP_I_EXEC_CP, begin, status);
    if (ok) {
        SP_OP(add_exact)(slice->rows * p->shape.kv_stride, own, sum);
    }
    return ok;
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
    sp_token_run runs[SP_ZIGZAG_RUNS];
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
            k->count = sp_i_exec_shard_runs(k->slice, k->shard, k->runs);
            continue;
        }
        const sp_token_run *tokens = &k->runs[k->next++];
        int64_t left = k->end - tokens->begin;
        *r = (run){tokens->begin, k->row, left < tokens->tokens ? left : tokens->tokens};
        k->row += tokens->tokens;
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
    return w->cudnn ? sp_i_cuda_packed_index_bytes(&w->packed)
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
            run keys;
            while (next_run(&k, &keys)) {
                runtime->ops->copy(runtime, r->kv + (first + keys.position) * stride,
                                   seen->kv + keys.row * stride, keys.rows * row_bytes);
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
    run keys;
    while (next_run(&k, &keys)) {
        int64_t left = segment->keys - keys.position;
        int64_t rows = left < keys.rows ? left : keys.rows;
        int64_t first = (segment->gradient_row + keys.position) * from;
        float *sum = seen->dkv + keys.row * to;
        if (rows > 0) {
            SP_I_CUDA_PUT(w->p->rank, accumulate, rows, from, r->dk + first, from, sum, to);
            SP_I_CUDA_PUT(w->p->rank, accumulate, rows, from, r->dv + first, from, sum + from, to);
        }
    }
}

static void add_gradients(const work *w, const room *r)
{
    for (int32_t s = 0; s < w->segments.count; s++) {
        const sp_i_cuda_segment *segment = &w->segments.list[s];
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
    SP_TRY(sp_i_cuda_attention_plan(p->rank->attention, &w->packed, p->backward, err));
    return sp_i_cuda_attention_workspace(p->rank->attention, &w->packed, p->backward,
                                         &w->workspace_bytes, err);
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
        atomic_fetch_add(&w->p->rank->attended[w->cudnn], 1);
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
                    .rows = {.q = l->t[SP_TENSOR_QUERIES],
                             .out = l->t[SP_TENSOR_ATTENTION],
                             .lse = l->t[SP_TENSOR_LOG_SUM_EXP]}};
    return run_launches(&p);
}

bool SP_EXEC(attend_pack_backward)(layer *l, const real *dout, real *dq)
{
    pass p = {.l = l,
              .rank = sp_i_cuda_rank_now(),
              .shape = SP_EXEC(attention_shape)(l),
              .rows = {.q = l->t[SP_TENSOR_QUERIES],
                       .out = l->t[SP_TENSOR_ATTENTION],
                       .lse = l->t[SP_TENSOR_LOG_SUM_EXP],
                       .dout = dout,
                       .dq = dq},
              .backward = true};
    p.rows.delta = take(&p, l->rows * p.shape.heads, (int64_t)sizeof *p.rows.delta);
    bool ok = p.rows.delta != NULL && run_launches(&p);
    give(&p, p.rows.delta);
    return ok;
}

// ---- before the first step ----

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
            packed.segments = sp_larger(packed.segments, plan->segments);
            packed.queries = sp_larger(packed.queries, plan->queries);
            packed.keys = sp_larger(packed.keys, plan->keys);
            *plan = packed;
        }
        sp_i_cuda_segments_fini(&segments);
    }
    sp_i_cuda_launches_fini(&launches);
}

// None: layers with experts are refused (backends/executor/executor.h).
const expert_operations *const SP_EXEC(experts) = NULL;

// A backward may compute its forward once more.
static void add_job(sp_i_cuda_attention_shape *plan, bool backward, const sp_i_exec_job *job)
{
    const layer l = {.kind = &job->kind[0]};
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
    for (int back = 0; back < 2; back++) {
        sp_i_cuda_attention_shape plan = {0};
        for (size_t j = 0; j < count; j++) {
            add_job(&plan, back == 1, jobs[j]);
        }
        if (plan.segments > 0) {
            SP_TRY(sp_i_cuda_attention_plan(attention, &plan, back == 1, err));
        }
    }
    return SP_OK;
}
