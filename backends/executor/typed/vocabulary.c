// Embedding and head.
#include "backends/executor/typed/layer.h"

static const sp_i_exec_job *job_of(const layer *l)
{
    return l->stage->job;
}

static void *const *vocab_value(const sp_i_exec_stage *stage, sp_parameter_kind weight)
{
    return stage->value + sp_i_exec_slot(stage->model_part.layers, weight);
}

static void *const *vocab_gradient(const sp_i_exec_stage *stage, sp_parameter_kind weight)
{
    return stage->gradient + sp_i_exec_slot(stage->model_part.layers, weight);
}

// A number for each of the pack's rows.
static const int64_t *numbers(const layer *l, sp_i_exec_number number)
{
    return job_of(l)->packed[number] + l->pack->packed_at;
}

// The rows of the vocabulary that this rank holds begin here.
static int64_t first_word(const layer *l)
{
    return l->stage->vocab_rank * l->kind->shard.vocab;
}

// How many of them are real: a table's last rows may be padding.
static int64_t words(const layer *l)
{
    int64_t left = job_of(l)->model->vocab - first_word(l);
    int64_t rows = l->kind->shard.vocab;
    return left < 0 ? 0 : left < rows ? left : rows;
}

// The words that other ranks hold are rows of zeros here, until all parts are summed.
static bool embed_tokens(const layer *l, real *y)
{
    int64_t h = job_of(l)->model->hidden;
    real *part = SP_EXEC(partial)(l, y);
    if (part == NULL) {
        return false;
    }
    SP_OP(embedding)
    (l->rows, h, numbers(l, SP_I_EXEC_TOKENS), first_word(l), words(l),
     *vocab_value(l->stage, SP_PARAMETER_TOKEN_TABLE), false, part);
    return SP_EXEC(sum)(l, part, y) && SP_EXEC(sum_stages)(l, y);
}

bool SP_EXEC(embed_share)(layer *l)
{
    real *y = SP_EXEC(take_own)(l);
    bool ok = y != NULL && embed_tokens(l, y);
    sp_i_exec_give(l->stage->arena, y);
    return ok;
}

bool SP_EXEC(embed)(layer *l, real *y)
{
    const sp_model *model = job_of(l)->model;
    int64_t h = model->hidden;
    bool ok = embed_tokens(l, y);
    if (ok && model->positional == SP_LEARNED) {
        SP_OP(embedding)
        (l->own, h, numbers(l, SP_I_EXEC_OWN_POSITIONS), 0, model->max_positions,
         *vocab_value(l->stage, SP_PARAMETER_POSITION_TABLE), true, y);
    }
    return ok && SP_EXEC(drop_out)(l, SP_TENSOR_EMBEDDING_MASK, y);
}

static bool table_gradients(const layer *l, real *dy)
{
    const sp_model *model = job_of(l)->model;
    int64_t h = model->hidden;
    real *all = SP_EXEC(gather)(l, dy);
    if (all == NULL) {
        return false;
    }
    SP_OP(embedding_backward_weight)
    (l->rows, h, numbers(l, SP_I_EXEC_TOKENS), first_word(l), words(l), all,
     *vocab_gradient(l->stage, SP_PARAMETER_TOKEN_TABLE));
    if (model->positional == SP_LEARNED) {
        SP_OP(embedding_backward_weight)
        (l->rows, h, numbers(l, SP_I_EXEC_POSITIONS), 0, model->max_positions, all,
         *vocab_gradient(l->stage, SP_PARAMETER_POSITION_TABLE));
    }
    SP_EXEC(release)(l, dy, all);
    return true;
}

bool SP_EXEC(embed_share_backward)(layer *l)
{
    real *dy = SP_EXEC(take_own)(l);
    bool ok = dy != NULL && SP_EXEC(share_stages)(l, false, dy) && table_gradients(l, dy);
    sp_i_exec_give(l->stage->arena, dy);
    return ok;
}

bool SP_EXEC(embed_backward)(layer *l, real *dy)
{
    if (!l->kind->specs.drops) {
        return SP_EXEC(share_stages)(l, false, dy) && table_gradients(l, dy);
    }
    if (!sp_i_exec_fetch(l->stage, l->pack, l->index, SP_TENSOR_EMBEDDING_MASK,
                         &l->t[SP_TENSOR_EMBEDDING_MASK])) {
        return false;
    }
    real *dx = SP_EXEC(drop_out_backward)(l, SP_TENSOR_EMBEDDING_MASK, dy);
    bool ok = dx != NULL && SP_EXEC(share_stages)(l, false, dx) && table_gradients(l, dx);
    sp_i_exec_give(l->stage->arena, dx);
    SP_EXEC(clear)(l);
    return ok;
}

// The loss of rows whose logits stand in columns at several ranks.
static bool vocab_parallel_loss(layer *l, const int64_t *target, double *loss)
{
    const sp_i_exec_job *job = job_of(l);
    int64_t vocab = l->kind->shard.vocab;
    exact *max =
        sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE, 3 * l->rows, job->width.statistic);
    if (max == NULL) {
        return false;
    }
    // Sums and targets stand one behind the other, for one exchange.
    exact *sums = max + l->rows;
    exact *of_target = sums + l->rows;
    const real *logits = l->t[SP_TENSOR_LOGITS];
    SP_OP(cross_entropy_max)(l->rows, words(l), logits, vocab, max);
    bool ok = SP_EXEC(reduce)(l, true, l->rows, max);
    if (ok) {
        SP_OP(cross_entropy_sums)
        (l->rows, words(l), first_word(l), logits, vocab, target, max, sums, of_target);
        ok = SP_EXEC(reduce)(l, false, 2 * l->rows, sums);
    }
    if (ok) {
        SP_OP(cross_entropy_loss)
        (l->rows, target, (double)job->slices.trained, max, sums, of_target,
         l->t[SP_TENSOR_LOGITS_SUM], loss);
    }
    sp_i_exec_give(l->stage->arena, max);
    return ok;
}

static bool project_words(const layer *l)
{
    int64_t h = job_of(l)->model->hidden;
    int64_t vocab = l->kind->shard.vocab;
    real *norm = l->t[SP_TENSOR_FINAL_NORM];
    real *all = SP_EXEC(gather)(l, norm);
    if (all == NULL) {
        return false;
    }
    SP_OP(linear)
    (l->rows, h, vocab, all, *vocab_value(l->stage, SP_PARAMETER_HEAD_TABLE), NULL,
     l->t[SP_TENSOR_LOGITS]);
    SP_EXEC(release)(l, norm, all);
    return true;
}

// The table also has rows of what only autograd keeps.
static bool has_columns(const layer *l, int tensor)
{
    return l->kind->specs.of[tensor].columns > 0;
}

static bool make_head(layer *l)
{
    for (int t = SP_TENSOR_FINAL_NORM; t <= SP_TENSOR_LOGITS_SUM; t++) {
        if (has_columns(l, t) && !SP_EXEC(make)(l, (sp_layer_tensor_id)t)) {
            return false;
        }
    }
    return true;
}

static bool loss_of(layer *l, double *loss)
{
    const sp_i_exec_job *job = job_of(l);
    const int64_t *target = numbers(l, SP_I_EXEC_TARGETS);
    if (job->slices.place.tp > 1 || l->stage->links->vocab_group >= 0) {
        return vocab_parallel_loss(l, target, loss);
    }
    SP_OP(cross_entropy)
    (l->rows, l->kind->shard.vocab, l->t[SP_TENSOR_LOGITS], target, (double)job->slices.trained,
     l->t[SP_TENSOR_LOGITS_SUM], loss);
    return true;
}

// Where another rank or an earlier forward counts it: of what the loss writes only the log-sum-exp
// is read.
static bool uncounted_loss(layer *l)
{
    const sp_i_exec_width width = {sizeof(double), 0};
    double *loss = sp_i_exec_take_zeroed(l->stage->arena, SP_MEM_WORKSPACE, 1, width);
    bool ok = loss != NULL && loss_of(l, loss);
    sp_i_exec_give(l->stage->arena, loss);
    return ok;
}

bool SP_EXEC(head_forward)(layer *l, int32_t forward_pack, bool counts)
{
    if (!SP_EXEC(share_stages)(l, true, l->t[SP_TENSOR_FINAL_INPUT]) || !make_head(l)) {
        return false;
    }
    SP_EXEC(norm)
    (l, job_of(l)->model->hidden, vocab_value(l->stage, SP_PARAMETER_FINAL_WEIGHT),
     l->t[SP_TENSOR_FINAL_INPUT], l->t[SP_TENSOR_FINAL_NORM], l->t[SP_TENSOR_FINAL_STATISTICS]);
    if (!project_words(l)) {
        return false;
    }
    return counts && SP_EXEC(adds)(l) ? loss_of(l, l->stage->loss + forward_pack)
                                      : uncounted_loss(l);
}

static bool table_gradient(const layer *l, const real *dlogits, real *norm)
{
    int64_t h = job_of(l)->model->hidden;
    int64_t vocab = l->kind->shard.vocab;
    real *all = SP_EXEC(gather)(l, norm);
    if (all == NULL) {
        return false;
    }
    SP_OP(linear_backward_weight)
    (l->rows, h, vocab, dlogits, all, *vocab_gradient(l->stage, SP_PARAMETER_HEAD_TABLE), NULL);
    SP_EXEC(release)(l, norm, all);
    return true;
}

// The gradient of the logits takes their place; in the table it is bf16. Columns of padding have
// none.
static void logits_backward(layer *l)
{
    const sp_i_exec_job *job = job_of(l);
    int64_t vocab = l->kind->shard.vocab;
    real *logits = l->t[SP_TENSOR_LOGITS];
    SP_OP(cross_entropy_backward)
    (l->rows, words(l), first_word(l), logits, vocab, numbers(l, SP_I_EXEC_TARGETS),
     (double)job->slices.trained, l->t[SP_TENSOR_LOGITS_SUM]);
    sp_i_exec_recount(l->stage->arena, logits, SP_MEM_LOGITS, l->rows * vocab, job->width.value);
}

static bool fetch(layer *l)
{
    for (int t = SP_TENSOR_FINAL_INPUT; t <= SP_TENSOR_LOGITS_SUM; t++) {
        if (has_columns(l, t) &&
            !sp_i_exec_fetch(l->stage, l->pack, l->index, (sp_layer_tensor_id)t, &l->t[t])) {
            return false;
        }
    }
    return true;
}

static bool norm_gradient(const layer *l, real *dnorm)
{
    int64_t h = job_of(l)->model->hidden;
    int64_t vocab = l->kind->shard.vocab;
    real *part = SP_EXEC(partial)(l, dnorm);
    if (part == NULL) {
        return false;
    }
    SP_OP(linear_backward_input)
    (l->rows, h, vocab, l->t[SP_TENSOR_LOGITS], *vocab_value(l->stage, SP_PARAMETER_HEAD_TABLE),
     part);
    return SP_EXEC(sum)(l, part, dnorm) && SP_EXEC(sum_stages)(l, dnorm);
}

// Leaves what the table's gradient reads for later.
static bool defer(layer *l, void **deferred)
{
    deferred[0] = sp_i_exec_recount(l->stage->arena, l->t[SP_TENSOR_FINAL_NORM], SP_MEM_ACTIVATIONS,
                                    l->own * job_of(l)->model->hidden, job_of(l)->width.value);
    deferred[1] = l->t[SP_TENSOR_LOGITS];
    l->t[SP_TENSOR_FINAL_NORM] = NULL;
    l->t[SP_TENSOR_LOGITS] = NULL;
    return deferred[0] != NULL;
}

bool SP_EXEC(head_backward)(layer *l, int32_t backward_pack, bool split, real **dx)
{
    real *dnorm = SP_EXEC(take_own)(l);
    *dx = SP_EXEC(take_own)(l);
    if (dnorm == NULL || *dx == NULL || !fetch(l)) {
        return false;
    }
    logits_backward(l);
    if (!norm_gradient(l, dnorm)) {
        return false;
    }
    SP_EXEC(norm_backward)
    (l, job_of(l)->model->hidden, vocab_value(l->stage, SP_PARAMETER_FINAL_WEIGHT),
     vocab_gradient(l->stage, SP_PARAMETER_FINAL_WEIGHT), l->t[SP_TENSOR_FINAL_INPUT],
     l->t[SP_TENSOR_FINAL_STATISTICS], dnorm, *dx);
    sp_i_exec_give(l->stage->arena, dnorm);
    bool ok = true;
    if (split) {
        ok = defer(l, sp_i_exec_deferred_of(l->stage, backward_pack, l->index));
    } else {
        ok = table_gradient(l, l->t[SP_TENSOR_LOGITS], l->t[SP_TENSOR_FINAL_NORM]);
    }
    SP_EXEC(clear)(l);
    return ok;
}

bool SP_EXEC(head_weights)(const layer *l, int32_t backward_pack)
{
    void **deferred = sp_i_exec_deferred_of(l->stage, backward_pack, l->stage->model_part.layers);
    if (!table_gradient(l, deferred[1], deferred[0])) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        sp_i_exec_give(l->stage->arena, deferred[i]);
        deferred[i] = NULL;
    }
    return true;
}
