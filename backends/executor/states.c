// Parameters, gradients and optimizer states of the ranks: made before the first step, summed and
// stepped at the end of each, read by name.
#include "backends/executor/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/bf16.h"
#include "sim/base/alloc.h"
#include "sim/base/parallel.h"
#include "sim/base/units.h"

enum { PIECE = 1 << 14 }; // elements that are drawn or read at a time

// ---- Places of elements ----

// One rank alone has nothing to shard.
static bool shards(const sp_i_exec_run *run, int zero)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    return layout->zero >= zero && layout->dp * layout->cp > 1;
}

static bool shards_gradients(const sp_i_exec_run *run)
{
    return shards(run, 2);
}

static bool shards_values(const sp_i_exec_run *run)
{
    return shards(run, 3);
}

// Its number among the ranks with the same parameters.
static int replica_number(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    return rank->dp * sp_i_exec_layout(run)->cp + rank->cp;
}

static sp_i_exec_replicas *replicas_of(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    return &run->replicas[rank->pp * sp_i_exec_layout(run)->tp + rank->tp];
}

static sp_element element_of(int64_t bytes)
{
    return bytes == sp_element_bytes(SP_ELEMENT_F64)   ? SP_ELEMENT_F64
           : bytes == sp_element_bytes(SP_ELEMENT_F32) ? SP_ELEMENT_F32
                                                       : SP_ELEMENT_BF16;
}

// Elements of parameters; of gradients, masters and moments.
static sp_element value_element(const sp_i_exec_run *run)
{
    return element_of(run->math->real_bytes);
}

static sp_element exact_element(const sp_i_exec_run *run)
{
    return element_of(run->math->exact_bytes);
}

// Where a rank holds an element of its parameters, of their gradients and of their masters.
static void *value_at(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int64_t element)
{
    const sp_i_exec_states *s = &rank->states;
    return (char *)s->values + (element - s->held_values.begin) * run->math->real_bytes;
}

static void *gradient_at(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int64_t element)
{
    const sp_i_exec_states *s = &rank->states;
    return (char *)s->gradients + (element - s->held_gradients.begin) * run->math->exact_bytes;
}

static void *master_at(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int64_t element)
{
    const sp_i_exec_states *s = &rank->states;
    return s->masters == NULL
               ? value_at(run, rank, element)
               : (char *)s->masters + (element - s->share.begin) * run->math->exact_bytes;
}

// Elements of a range that lie in [begin, end).
static sp_i_exec_range overlap_of(sp_i_exec_range range, int64_t begin, int64_t end)
{
    int64_t from = range.begin > begin ? range.begin : begin;
    int64_t to = range.begin + range.count < end ? range.begin + range.count : end;
    return (sp_i_exec_range){from, from < to ? to - from : 0};
}

static sp_i_exec_range overlap(sp_i_exec_range a, sp_i_exec_range b)
{
    return overlap_of(a, b.begin, b.begin + b.count);
}

static sp_i_exec_range range_of(const sp_i_exec_weight *weight)
{
    return (sp_i_exec_range){weight->offset, weight->elements};
}

// ---- Numbers of a device's elements ----

void sp_i_exec_elements_from(sp_element element, int64_t n, const double *from, void *to)
{
    SP_ASSERT(element != SP_ELEMENT_BYTE);
    for (int64_t i = 0; i < n; i++) {
        if (element == SP_ELEMENT_F64) {
            ((double *)to)[i] = from[i];
        } else if (element == SP_ELEMENT_F32) {
            ((float *)to)[i] = (float)from[i];
        } else {
            ((sp_bf16 *)to)[i] = sp_bf16_from_float((float)from[i]);
        }
    }
}

void sp_i_exec_elements_to(sp_element element, int64_t n, const void *from, double *to)
{
    SP_ASSERT(element != SP_ELEMENT_BYTE);
    for (int64_t i = 0; i < n; i++) {
        if (element == SP_ELEMENT_F64) {
            to[i] = ((const double *)from)[i];
        } else if (element == SP_ELEMENT_F32) {
            to[i] = (double)((const float *)from)[i];
        } else {
            to[i] = (double)sp_bf16_to_float(((const sp_bf16 *)from)[i]);
        }
    }
}

// ---- Before the first step ----

// Real bytes of `elements` numbers beside the bytes that the predictor counts for them.
static void *take_state(sp_i_exec_rank *rank, sp_memory_category category, int64_t elements,
                        int64_t element_bytes, int64_t table_bytes)
{
    const sp_i_exec_width all = {elements * element_bytes, table_bytes};
    return sp_i_exec_take_zeroed(rank->arena, category, 1, all);
}

// A piece of a tensor's starting values, and as the device has it.
typedef struct start {
    double value[PIECE];
    char real[PIECE * sizeof(double)];
} start;

// Elements [from, from + count) of a tensor, as far as they are among `there`, from `at` on.
static void upload_piece(const sp_i_exec_run *run, const sp_i_exec_weight *weight, start *s,
                         int64_t from, int64_t count, sp_i_exec_range there, sp_element element,
                         void *at)
{
    int64_t bytes = sp_element_bytes(element);
    int64_t first = weight->offset + from;
    sp_i_exec_range here = overlap_of(there, first, first + count);
    if (here.count > 0) {
        sp_i_exec_elements_from(element, here.count, s->value + (here.begin - first), s->real);
        run->runtime->ops->upload(run->runtime, (char *)at + (here.begin - there.begin) * bytes,
                                  s->real, here.count * bytes);
    }
}

static bool holds_some(const sp_i_exec_rank *rank, sp_i_exec_range elements)
{
    const sp_i_exec_states *states = &rank->states;
    return overlap(states->held_values, elements).count > 0 ||
           (states->masters != NULL && overlap(states->share, elements).count > 0);
}

static void start_values(const sp_i_exec_run *run, const sp_i_exec_rank *rank, start *s)
{
    const sp_i_exec_states *states = &rank->states;
    for (size_t w = 0; w < rank->weights->count; w++) {
        const sp_i_exec_weight *weight = &rank->weights->items[w];
        uint64_t seed = sp_i_exec_weight_seed(weight, run->request->seed);
        for (int64_t from = 0; from < weight->elements; from += PIECE) {
            int64_t left = weight->elements - from;
            int64_t count = left < PIECE ? left : PIECE;
            if (!holds_some(rank, (sp_i_exec_range){weight->offset + from, count})) {
                continue;
            }
            for (int64_t i = 0; i < count; i++) {
                s->value[i] = sp_i_exec_weight_start(weight, seed, from + i);
            }
            if (run->options.rounded) {
                sp_i_exec_elements_from(SP_ELEMENT_BF16, count, s->value, s->real);
                sp_i_exec_elements_to(SP_ELEMENT_BF16, count, s->real, s->value);
            }
            upload_piece(run, weight, s, from, count, states->held_values, value_element(run),
                         states->values);
            if (states->masters != NULL) {
                upload_piece(run, weight, s, from, count, states->share, exact_element(run),
                             states->masters);
            }
        }
    }
}

// With ZeRO each rank with the same parameters steps an equal share of them.
static void set_share(const sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    int64_t all = rank->weights->elements;
    bool shares = layout->zero >= 1;
    int64_t share = shares ? sp_ceil_div(all, (int64_t)layout->dp * layout->cp) : all;
    int64_t begin = shares ? share * (rank->dp * layout->cp + rank->cp) : 0;
    const sp_i_exec_range whole = {0, all};
    const sp_i_exec_range own = overlap_of(whole, begin < all ? begin : all, begin + share);
    rank->states.share = own;
    rank->states.held_values = shards_values(run) ? own : whole;
    rank->states.held_gradients = shards_gradients(run) ? own : whole;
}

void sp_i_exec_states_place(sp_i_exec_run *run)
{
    for (size_t r = 0; r < sp_i_exec_rank_count(run); r++) {
        set_share(run, &run->ranks[r]);
    }
}

// The optimizer has master parameters where those of the step are less exact.
static bool has_masters(const sp_i_exec_run *run)
{
    return run->math->exact_bytes > run->math->real_bytes;
}

// Elements of a table of cosines or of sines; 0 where there are none.
static int64_t rope_elements(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    const sp_model *model = run->request->model;
    return model->positional == SP_ROPE
               ? rank->job->slices.positions * (sp_model_rotary_dim(model) / 2)
               : 0;
}

int64_t sp_i_exec_states_bytes(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    const sp_i_exec_states *s = &rank->states;
    int64_t optimizer = s->share.count * (has_masters(run) ? 3 : 2);
    return s->held_values.count * run->math->real_bytes +
           (s->held_gradients.count + optimizer + 2 * rope_elements(run, rank)) *
               run->math->exact_bytes;
}

static bool take_states(const sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    sp_i_exec_states *s = &rank->states;
    sp_stage *parts = sp_calloc((size_t)layout->chunks, sizeof *parts);
    for (int c = 0; c < layout->chunks; c++) {
        parts[c] = run->model_parts[sp_layout_vstage(layout, rank->pp, c)];
    }
    sp_bytes bytes;
    const sp_stack stack = {.work_spaces = 1, .work_space_bytes = 1};
    sp_footprint_states(run->request->model, layout, &stack, parts, layout->chunks, &bytes);
    sp_free(parts);
    bool masters = has_masters(run);
    int64_t exact = run->math->exact_bytes;
    int64_t left = bytes.of[SP_MEM_OPTIMIZER];
    int64_t each = left / (masters ? 3 : 2);
    s->values = take_state(rank, SP_MEM_PARAMETERS, s->held_values.count, run->math->real_bytes,
                           bytes.of[SP_MEM_PARAMETERS]);
    s->gradients = take_state(rank, SP_MEM_GRADIENTS, s->held_gradients.count, exact,
                              bytes.of[SP_MEM_GRADIENTS]);
    if (masters) {
        s->masters = take_state(rank, SP_MEM_OPTIMIZER, s->share.count, exact, each);
        left -= each;
    }
    s->first = take_state(rank, SP_MEM_OPTIMIZER, s->share.count, exact, each);
    s->second = take_state(rank, SP_MEM_OPTIMIZER, s->share.count, exact, left - each);
    return s->values != NULL && s->gradients != NULL && s->first != NULL && s->second != NULL &&
           (!masters || s->masters != NULL);
}

static bool make_rope(const sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    const int64_t elements = rope_elements(run, rank);
    if (elements == 0) {
        return true;
    }
    const sp_i_exec_width width = {run->math->exact_bytes, rank->job->width.value.table_bytes};
    rank->states.cosine = sp_i_exec_take(rank->arena, SP_MEM_WORKSPACE, elements, width);
    rank->states.sine = sp_i_exec_take(rank->arena, SP_MEM_WORKSPACE, elements, width);
    bool ok = rank->states.cosine != NULL && rank->states.sine != NULL;
    if (ok) {
        run->math->rope_table(rank->job->slices.positions, sp_model_rotary_dim(run->request->model),
                              rank->states.cosine, rank->states.sine);
    }
    return ok;
}

static void place_stage(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                        sp_i_exec_stage *stage)
{
    stage->scatters = shards_gradients(run);
    stage->gathers = shards_values(run);
    stage->replicas = stage->scatters ? replicas_of(run, rank) : NULL;
    stage->member = replica_number(run, rank);
    stage->cosine = rank->states.cosine;
    stage->sine = rank->states.sine;
    for (int s = 0; s < sp_i_exec_slots(stage->model_part.layers); s++) {
        if (stage->range[s].count > 0 && !stage->gathers) {
            stage->value[s] = value_at(run, rank, stage->range[s].begin);
        }
        if (stage->range[s].count > 0 && !stage->scatters) {
            stage->gradient[s] = gradient_at(run, rank, stage->range[s].begin);
        }
    }
}

// Where the stages of a rank find their parameters. A tied table with embedding and LM head on this
// rank is the embedding's.
static void place_weights(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    sp_i_exec_range table = {0};
    for (size_t w = 0; w < rank->weights->count; w++) {
        const sp_i_exec_weight *weight = &rank->weights->items[w];
        sp_i_exec_stage *stage = sp_i_exec_stage_of(run, rank, weight->chunk);
        sp_i_exec_range *range = &stage->range[weight->slot];
        bool joins = weight->expert >= 0 && range->count > 0;
        range->count = weight->elements + (joins ? range->count : 0);
        range->begin = joins ? range->begin : weight->offset;
        if (weight->slot == sp_i_exec_slot(stage->model_part.layers, SP_PARAMETER_TOKEN_TABLE)) {
            table = stage->range[weight->slot];
        }
    }
    for (int c = 0; c < sp_i_exec_layout(run)->chunks; c++) {
        sp_i_exec_stage *stage = sp_i_exec_stage_of(run, rank, c);
        int slot = sp_i_exec_slot(stage->model_part.layers, SP_PARAMETER_HEAD_TABLE);
        if (stage->model_part.head && stage->range[slot].count == 0) {
            stage->range[slot] = table;
        }
        place_stage(run, rank, stage);
    }
}

// The shares of all ranks with the same parameters.
static void make_replicas(sp_i_exec_run *run)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    size_t count = (size_t)layout->pp * (size_t)layout->tp;
    if (!shards_gradients(run)) {
        return;
    }
    run->replicas = sp_arena_take(&run->work, count, sizeof *run->replicas);
    for (size_t i = 0; i < count; i++) {
        sp_i_exec_replicas_init(&run->replicas[i], run->runtime, layout->dp * layout->cp,
                                run->math->real_bytes, run->math->exact_bytes,
                                run->math->add_exact);
    }
    for (size_t r = 0; r < sp_i_exec_rank_count(run); r++) {
        const sp_i_exec_rank *rank = &run->ranks[r];
        replicas_of(run, rank)->shares[replica_number(run, rank)] =
            (sp_i_exec_share){.begin = rank->states.share.begin,
                              .end = rank->states.share.begin + rank->states.share.count,
                              .values = shards_values(run) ? rank->states.values : NULL,
                              .gradients = rank->states.gradients};
    }
}

// ---- starting values, drawn by as many threads as there are cores ----

static sp_status draw_values(void *context, int worker SP_UNUSED, int job, sp_error *err SP_UNUSED)
{
    const sp_i_exec_run *run = context;
    sp_i_exec_rank *rank = &run->ranks[run->first_local + (size_t)job];
    start *s = sp_malloc(sizeof *s);
    sp_i_exec_enter(run, rank);
    start_values(run, rank, s);
    sp_free(s);
    return SP_OK;
}

sp_status sp_i_exec_states_make(sp_i_exec_run *run, sp_error *err)
{
    for (size_t r = run->first_local; r < run->end_local; r++) {
        sp_i_exec_rank *rank = &run->ranks[r];
        sp_i_exec_enter(run, rank);
        if (!take_states(run, rank) || !make_rope(run, rank)) {
            SP_TRY(sp_i_exec_rank_failure(run, rank, NULL, err));
        }
    }
    SP_TRY(sp_parallel_for(sp_i_cores(), (int)(run->end_local - run->first_local), draw_values, run,
                           err));
    make_replicas(run);
    for (size_t r = run->first_local; r < run->end_local; r++) {
        place_weights(run, &run->ranks[r]);
    }
    return SP_OK;
}

// ---- Clipping ----

// Clipping by the global norm of the gradients (Pascanu, Mikolov, Bengio, "On the difficulty of
// training recurrent neural networks", arXiv 1211.5063, algorithm 1), over all ranks.

// Ranks that step the same element: without shares all replicas do, and the first one counts.
static bool counts(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                   const sp_i_exec_weight *weight)
{
    bool is_first = weight->expert < 0 ? replica_number(run, rank) == 0
                                       : rank->dp < sp_i_exec_expert_ranks(run) && rank->cp == 0;
    return sp_i_exec_layout(run)->zero >= 1 || is_first;
}

// Elements of a tensor that other tensor-parallel ranks have too.
static sp_i_exec_range repeated(const sp_i_exec_weight *weight)
{
    bool all = weight->rows == weight->all_rows && weight->columns == weight->all_columns;
    return all ? (sp_i_exec_range){0, weight->elements}
               : (sp_i_exec_range){weight->shared_first, weight->shared_elements};
}

// The first of the ranks that have them counts them.
static bool is_first(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                     const sp_i_exec_weight *weight)
{
    bool all = weight->rows == weight->all_rows && weight->columns == weight->all_columns;
    int same = all ? sp_i_exec_layout(run)->tp : weight->shared_by;
    return same < 2 || rank->tp % same == 0;
}

// Sums the squares of the elements in the rank's share.
static double sum_range(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int64_t begin,
                        int64_t end)
{
    double sum = 0.0;
    sp_i_exec_range own = overlap_of(rank->states.share, begin, end);
    if (own.count > 0) {
        run->runtime->ops->sum_of_squares(run->runtime, exact_element(run), own.count,
                                          gradient_at(run, rank, own.begin), &sum);
    }
    return sum;
}

// The second end of a tied table has the gradients of the first.
static double sum_squares(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                          const sp_i_exec_weight *weight)
{
    sp_i_exec_range twice = repeated(weight);
    if (weight->copy) {
        return 0.0;
    }
    if (is_first(run, rank, weight)) {
        return sum_range(run, rank, weight->offset, weight->offset + weight->elements);
    }
    int64_t from = weight->offset + twice.begin;
    return sum_range(run, rank, weight->offset, from) +
           sum_range(run, rank, from + twice.count, weight->offset + weight->elements);
}

// Sums one number of each rank.
static sp_status sum_ranks(const sp_i_exec_run *run, const sp_i_exec_rank *rank, double *x,
                           sp_error *err)
{
    const sp_runtime_ops *ops = run->runtime->ops;
    void *at = sp_i_exec_take(rank->arena, SP_MEM_WORKSPACE, 1, (sp_i_exec_width){sizeof *x, 0});
    if (at == NULL) {
        return sp_error_no_memory(err, "the norm of gradients"); // the device's
    }
    ops->upload(run->runtime, at, x, sizeof *x);
    sp_status status = sp_comm_all_reduce(rank->links.me, run->all_group, SP_ELEMENT_F64,
                                          SP_COMM_SUM, at, at, 1, err);
    if (status == SP_OK && run->transport != NULL) {
        status = sp_i_exec_synchronize(run, NULL, err);
    }
    if (status == SP_OK) {
        ops->download(run->runtime, x, at, sizeof *x);
    }
    sp_i_exec_give(rank->arena, at);
    return status;
}

// Clipping multiplies all gradients with 1, or with what brings their norm down to the option's.
static sp_status clip_scale(const sp_i_exec_run *run, const sp_i_exec_rank *rank, double *scale,
                            sp_error *err)
{
    double squares = 0.0;
    sp_status status = SP_OK;
    *scale = 1.0;
    if (run->options.clip <= 0.0) {
        return SP_OK;
    }
    // The sums wait for work of the rank that may wait for others.
    if (run->transport != NULL) {
        status = sp_i_exec_synchronize(run, NULL, err);
    }
    for (size_t w = 0; status == SP_OK && w < rank->weights->count; w++) {
        const sp_i_exec_weight *weight = &rank->weights->items[w];
        squares += counts(run, rank, weight) ? sum_squares(run, rank, weight) : 0.0;
    }
    if (status == SP_OK && run->all_group >= 0) {
        status = sum_ranks(run, rank, &squares, err);
    }
    double norm = sqrt(squares);
    *scale = norm > run->options.clip ? run->options.clip / norm : 1.0;
    return status;
}

// ---- Sums of gradients ----

// Gradients at the end of a step: sums over the ranks that hold the same parameters. Where ZeRO
// shards them the actions have given each share what it sums (stage.h).

// The elements of which this rank holds the gradients.
static sp_i_exec_range held(const sp_i_exec_rank *rank, int64_t first, int64_t count)
{
    return overlap((sp_i_exec_range){first, count}, rank->states.held_gradients);
}

static sp_status sum(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int group,
                     sp_i_exec_range elements, sp_error *err)
{
    void *at = gradient_at(run, rank, elements.begin);
    return group < 0 || elements.count == 0
               ? SP_OK
               : sp_comm_all_reduce(rank->links.me, group, exact_element(run), SP_COMM_SUM, at, at,
                                    elements.count, err);
}

// Where tensor-parallel ranks hold the same elements and each has seen a part of what they did.
// Their shares of the same replica are the same.
static sp_status sum_shared(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_error *err)
{
    for (size_t w = 0; w < rank->weights->count; w++) {
        const sp_i_exec_weight *weight = &rank->weights->items[w];
        bool all = weight->shared_by == sp_i_exec_layout(run)->tp;
        if (weight->shared_by > 1) {
            SP_TRY(sum(run, rank, all ? rank->links.tp_group : rank->kv_group,
                       held(rank, weight->offset + weight->shared_first, weight->shared_elements),
                       err));
        }
    }
    return SP_OK;
}

// Embedding and LM head cut a tied table into other shares: both put it together, sum it and keep
// their own.
static sp_status sum_tied_shares(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                                 const sp_i_exec_weight *table, sp_error *err)
{
    const sp_i_exec_replicas *replicas = replicas_of(run, rank);
    const sp_i_exec_range all = range_of(table);
    sp_i_exec_range own = held(rank, table->offset, table->elements);
    void *sums =
        sp_i_exec_take(rank->arena, SP_MEM_WORKSPACE, table->elements, rank->job->width.statistic);
    if (sums == NULL) {
        return sp_error_no_memory(err, "a tied table"); // the device's
    }
    int64_t *rows = sp_calloc((size_t)replicas->count, sizeof *rows);
    for (int m = 0; m < replicas->count; m++) {
        rows[m] = overlap_of(all, replicas->shares[m].begin, replicas->shares[m].end).count;
    }
    void *at = own.count > 0 ? gradient_at(run, rank, own.begin) : rank->states.gradients;
    sp_status status = sp_comm_all_gather(rank->links.me, rank->data_group, exact_element(run), at,
                                          sums, rows, 1, err);
    if (status == SP_OK) {
        status = sp_comm_all_reduce(rank->links.me, rank->tied_group, exact_element(run),
                                    SP_COMM_SUM, sums, sums, table->elements, err);
    }
    if (status == SP_OK && own.count > 0) {
        run->runtime->ops->copy(run->runtime, at,
                                (char *)sums + (own.begin - all.begin) * run->math->exact_bytes,
                                own.count * run->math->exact_bytes);
    }
    sp_i_exec_give(rank->arena, sums);
    sp_free(rows);
    return status;
}

// A tied table whose embedding and LM head are on two ranks has the sum of both gradients on both.
static sp_status sum_tied(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_error *err)
{
    for (size_t w = 0; rank->tied_group >= 0 && w < rank->weights->count; w++) {
        const sp_i_exec_weight *weight = &rank->weights->items[w];
        if (strcmp(weight->name, "embedding.tokens") == 0) {
            return shards_gradients(run) ? sum_tied_shares(run, rank, weight, err)
                                         : sum(run, rank, rank->tied_group, range_of(weight), err);
        }
    }
    return SP_OK;
}

// Experts over several ranks have other replicas than all else. Each token counts with its share of
// the whole step's loss, whoever computed it, so that sums need no factor.
static sp_status sum_experts_apart(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                                   sp_error *err)
{
    for (size_t w = 0; w < rank->weights->count; w++) {
        const sp_i_exec_weight *weight = &rank->weights->items[w];
        SP_TRY(sum(run, rank, weight->expert < 0 ? rank->data_group : rank->replica_group,
                   range_of(weight), err));
    }
    return SP_OK;
}

static sp_status sum_replicas(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_error *err)
{
    if (sp_i_exec_expert_ranks(run) > 1) {
        return sum_experts_apart(run, rank, err);
    }
    if (!shards_gradients(run)) {
        return sum(run, rank, rank->data_group, (sp_i_exec_range){0, rank->weights->elements}, err);
    }
    sp_i_exec_scatter_end(replicas_of(run, rank), replica_number(run, rank));
    sp_status status = sp_comm_barrier(rank->links.me, rank->data_group, err);
    sp_i_exec_scatter_wait(replicas_of(run, rank));
    return status;
}

// Sums gradients over the ranks with the same parameters.
static sp_status reduce(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_error *err)
{
    SP_TRY(sum_replicas(run, rank, err));
    SP_TRY(sum_shared(run, rank, err));
    return sum_tied(run, rank, err);
}

// ---- The epilogue of a step ----

typedef struct epilogue {
    sp_i_exec_run *run;
    const sp_timeline *spans; // of the actions before
} epilogue;

// The part of a tensor that lies in the rank's share.
static void update_tensor(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                          const sp_i_exec_weight *weight, double gradient_scale)
{
    const sp_i_exec_range own = overlap(range_of(weight), rank->states.share);
    const int64_t from = own.begin;
    const int64_t step = run->steps_done + 1;
    const sp_i_exec_update update = {.step = step,
                                     .learning_rate = sp_i_exec_learning_rate(&run->options, step),
                                     .weight_decay =
                                         weight->decays ? run->options.weight_decay : 0.0,
                                     .gradient_scale = gradient_scale};
    if (own.count > 0) {
        int64_t in_share = (from - rank->states.share.begin) * run->math->exact_bytes;
        run->math->update(&update, own.count, gradient_at(run, rank, from),
                          master_at(run, rank, from), (char *)rank->states.first + in_share,
                          (char *)rank->states.second + in_share, value_at(run, rank, from));
    }
}

// Every rank's share of the new parameters goes to all the others, unless they are gathered when
// they are needed.
static sp_status gather_parameters(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                                   sp_error *err)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    int count = layout->dp * layout->cp;
    if (layout->zero < 1 || rank->data_group < 0 || shards_values(run)) {
        return SP_OK;
    }
    int64_t *shares = sp_calloc((size_t)count, sizeof *shares);
    for (int i = 0; i < count; i++) {
        const sp_i_exec_rank *other = sp_i_exec_rank_at(run, i / layout->cp, rank->pp,
                                                        i % layout->cp * layout->tp + rank->tp);
        shares[i] = other->states.share.count;
    }
    sp_status status = sp_comm_all_gather(rank->links.me, rank->data_group, value_element(run),
                                          value_at(run, rank, rank->states.share.begin),
                                          rank->states.values, shares, 1, err);
    sp_free(shares);
    return status;
}

static sp_status end_step(sp_comm *me, void *data, sp_error *err)
{
    const epilogue *t = data;
    sp_i_exec_run *run = t->run;
    sp_i_exec_rank *rank = &run->ranks[sp_comm_rank(me)];
    sp_rank_timeline *line = &run->epilogues[sp_comm_rank(me)];
    sp_comm_set_action(me, "optimizer");
    sp_comm_clock_start(
        me, sp_rank_last_ns(&t->spans->ranks[rank->dp * sp_i_exec_layout(run)->pp + rank->pp]));
    sp_status status = rank->data_group < 0 ? SP_OK : sp_comm_barrier(me, rank->data_group, err);
    uint64_t reduce_start = sp_i_exec_timestamp(run, rank);
    double gradient_scale = 1.0;
    status = status == SP_OK ? reduce(run, rank, err) : status;
    status = status == SP_OK ? clip_scale(run, rank, &gradient_scale, err) : status;
    uint64_t reduce_end = sp_i_exec_timestamp(run, rank);
    for (size_t w = 0; status == SP_OK && w < rank->weights->count; w++) {
        update_tensor(run, rank, &rank->weights->items[w], gradient_scale);
    }
    uint64_t optimizer_end = sp_i_exec_timestamp(run, rank);
    status = status == SP_OK ? gather_parameters(run, rank, err) : status;
    uint64_t gather_end = sp_i_exec_timestamp(run, rank);
    status = status == SP_OK ? sp_i_exec_synchronize(run, NULL, err) : status;
    if (status == SP_OK) {
        line->reduce_start_ns = sp_i_exec_timestamp_ns(run, reduce_start);
        line->reduce_end_ns = sp_i_exec_timestamp_ns(run, reduce_end);
        line->optimizer_end_ns = sp_i_exec_timestamp_ns(run, optimizer_end);
        line->gather_end_ns = sp_i_exec_timestamp_ns(run, gather_end);
    }
    return status;
}

// The last of its members decides for a rank of the timeline. Without other ranks there is nothing
// to reduce or to gather, and reading the clock took no time.
static void fill_line(const sp_i_exec_run *run, sp_rank_timeline *line)
{
    line->reduce_start_ns = 0;
    for (int m = 0; m < sp_i_exec_members(run); m++) {
        const sp_rank_timeline *member =
            &run->epilogues[sp_i_exec_rank_number(run, line->dp, line->pp, m)];
        line->reduce_start_ns = sp_larger(line->reduce_start_ns, member->reduce_start_ns);
        line->reduce_end_ns = sp_larger(line->reduce_end_ns, member->reduce_end_ns);
        line->optimizer_end_ns = sp_larger(line->optimizer_end_ns, member->optimizer_end_ns);
        line->gather_end_ns = sp_larger(line->gather_end_ns, member->gather_end_ns);
    }
}

void sp_i_exec_fill_epilogues(const sp_i_exec_run *run, sp_timeline *timeline)
{
    for (size_t r = 0; r < timeline->rank_count; r++) {
        fill_line(run, &timeline->ranks[r]);
    }
}

sp_status sp_i_exec_run_epilogue(sp_i_exec_run *run, sp_timeline *timeline, sp_error *err)
{
    size_t count = sp_i_exec_rank_count(run);
    epilogue t = {.run = run, .spans = timeline};
    sp_status status = sp_i_exec_on_ranks(run, NULL, (int)count, end_step, &t, err);
    if (status == SP_OK && run->transport == NULL) {
        sp_i_exec_fill_epilogues(run, timeline);
    }
    run->steps_done++;
    return status;
}

// ---- Tensors by name ----

static bool is_named_before(const sp_i_exec_weight *weight)
{
    return weight->copy || weight->continued;
}

// The rank of the i-th pipeline and expert rank.
static const sp_i_exec_rank *holder_at(const sp_i_exec_run *run, int i)
{
    int ranks = sp_i_exec_expert_ranks(run);
    return sp_i_exec_rank_at(run, i % ranks, i / ranks, 0);
}

static int holder_count(const sp_i_exec_run *run)
{
    return sp_i_exec_layout(run)->pp * sp_i_exec_expert_ranks(run);
}

// Does the rank stand for all that hold the tensor? All but experts are the first expert rank's.
static bool names(const sp_i_exec_rank *rank, const sp_i_exec_weight *weight)
{
    return !is_named_before(weight) && (rank->dp == 0 || weight->expert >= 0);
}

// The i-th tensor, in the order of the pipeline ranks; NULL past the last, of *count in all.
static const sp_i_exec_weight *weight_at(const sp_i_exec_run *run, size_t index, int *pp,
                                         size_t *count)
{
    const sp_i_exec_weight *found = NULL;
    *count = 0;
    for (int i = 0; i < holder_count(run); i++) {
        const sp_i_exec_rank *rank = holder_at(run, i);
        for (size_t w = 0; w < rank->weights->count; w++) {
            const sp_i_exec_weight *weight = &rank->weights->items[w];
            if (names(rank, weight) && (*count)++ == index) {
                *pp = rank->pp;
                found = weight;
            }
        }
    }
    return found;
}

// A tensor of a run: a parameter, or behind all of these the gradient of one.
static const sp_i_exec_weight *tensor_at(const sp_i_exec_run *run, size_t index, int *pp,
                                         bool *is_gradient)
{
    size_t count;
    const sp_i_exec_weight *weight = weight_at(run, index, pp, &count);
    *is_gradient = weight == NULL;
    weight = *is_gradient ? weight_at(run, index - count, pp, &count) : weight;
    SP_ASSERT(weight != NULL);
    return weight;
}

size_t sp_i_exec_tensor_count(const sp_i_exec_run *run)
{
    int pp;
    size_t count;
    (void)weight_at(run, 0, &pp, &count);
    return 2 * count;
}

static sp_precision precision_of(sp_element element)
{
    return element == SP_ELEMENT_F64 ? SP_FP64 : element == SP_ELEMENT_F32 ? SP_FP32 : SP_BF16;
}

void sp_i_exec_tensor_info(const sp_i_exec_run *run, size_t index, sp_tensor_info *info)
{
    int pp;
    bool gradient;
    const sp_i_exec_weight *weight = tensor_at(run, index, &pp, &gradient);
    *info = (sp_tensor_info){.precision =
                                 precision_of(gradient ? exact_element(run) : value_element(run)),
                             .dims = weight->all_rows > 1 && weight->all_columns > 1 ? 2 : 1,
                             .elements = weight->all_rows * weight->all_columns};
    snprintf(info->name, sizeof info->name, "%s/%s", gradient ? "gradients" : "parameters",
             weight->name);
    info->size[0] = info->dims == 2 ? weight->all_rows : info->elements;
    info->size[1] = info->dims == 2 ? weight->all_columns : 0;
}

typedef struct reader {
    const sp_i_exec_run *run;
    bool gradient;
    double *values;
    // What each rank gave, of which the bytes of one rank that were taken.
    sp_transport_part *of;
    const sp_i_exec_rank *taking;
    size_t taken;
    char real[PIECE * sizeof(double)];
} reader;

// Where an element is, at the rank itself or where its replicas keep it, and how many stand there
// one behind the other.
static const void *element_at(const reader *r, const sp_i_exec_rank *rank, int64_t element,
                              int64_t *count)
{
    const sp_i_exec_run *run = r->run;
    bool sharded = r->gradient ? shards_gradients(run) : shards_values(run);
    if (!sharded) {
        *count = rank->weights->elements - element;
        return r->gradient ? gradient_at(run, rank, element) : value_at(run, rank, element);
    }
    const sp_i_exec_share *share = sp_i_exec_share_of(replicas_of(run, rank), element);
    int64_t bytes = r->gradient ? run->math->exact_bytes : run->math->real_bytes;
    *count = share->end - element;
    return (const char *)(r->gradient ? share->gradients : share->values) +
           (element - share->begin) * bytes;
}

// Reads what a rank has of a tensor, one number behind the other.
static sp_status read_part(reader *r, const sp_i_exec_rank *rank, const sp_i_exec_weight *weight,
                           double *part, sp_error *err)
{
    const sp_i_exec_run *run = r->run;
    sp_element element = r->gradient ? exact_element(run) : value_element(run);
    int64_t count;
    sp_i_exec_enter(run, rank);
    for (int64_t from = 0; from < weight->elements; from += count) {
        const void *at = element_at(r, rank, weight->offset + from, &count);
        count = sp_smaller(sp_smaller(count, weight->elements - from), PIECE);
        run->runtime->ops->download(run->runtime, r->real, at, count * sp_element_bytes(element));
        sp_i_exec_elements_to(element, count, r->real, part + from);
    }
    return sp_i_exec_synchronize_rank(run, rank, err);
}

typedef sp_status visit_part(reader *r, const sp_i_exec_rank *rank, const sp_i_exec_weight *weight,
                             sp_error *err);

// Each rank's part of a tensor, of the ranks that stand for all with the same parameters.
static sp_status each_part(reader *r, const char *name, int pp, visit_part *visit, sp_error *err)
{
    const sp_layout *layout = sp_i_exec_layout(r->run);
    for (; pp < layout->pp; pp++) {
        for (int t = 0; t < layout->tp * sp_i_exec_expert_ranks(r->run); t++) {
            const sp_i_exec_rank *rank =
                sp_i_exec_rank_at(r->run, t / layout->tp, pp, t % layout->tp);
            for (size_t w = 0; w < rank->weights->count; w++) {
                const sp_i_exec_weight *weight = &rank->weights->items[w];
                if (strcmp(weight->name, name) == 0 && (rank->dp == 0 || weight->expert >= 0)) {
                    SP_TRY(visit(r, rank, weight, err));
                }
            }
        }
    }
    return SP_OK;
}

// Adds a part of a rank that is here to what it gives.
static sp_status give_part(reader *r, const sp_i_exec_rank *rank, const sp_i_exec_weight *weight,
                           sp_error *err)
{
    if (!sp_i_exec_is_local(r->run, rank)) {
        return SP_OK;
    }
    sp_transport_part *gives = &r->of[rank - r->run->ranks];
    size_t bytes = (size_t)weight->elements * sizeof(double);
    gives->data = sp_realloc(gives->data, gives->bytes + bytes + 1);
    double *part = (double *)(void *)((char *)gives->data + gives->bytes);
    gives->bytes += bytes;
    return read_part(r, rank, weight, part, err);
}

// The next part of what a rank gave; parts of one rank follow one another.
static sp_status take_part(reader *r, const sp_i_exec_rank *rank, const sp_i_exec_weight *weight,
                           sp_error *err)
{
    const sp_transport_part *from = &r->of[rank - r->run->ranks];
    size_t bytes = (size_t)weight->elements * sizeof(double);
    r->taken = rank == r->taking ? r->taken : 0;
    r->taking = rank;
    if (from->bytes < r->taken + bytes) {
        return sp_error_set(err, SP_ERR_INTERNAL, "dp %d pp %d cp %d tp %d gave no part of %s",
                            rank->dp, rank->pp, rank->cp, rank->tp, weight->name);
    }
    const double *part = (const double *)(const void *)((const char *)from->data + r->taken);
    r->taken += bytes;
    for (int64_t i = 0; i < weight->elements; i++) {
        int64_t place = sp_i_exec_weight_index(weight, i);
        if (place >= 0) {
            r->values[place] = part[i];
        }
    }
    return SP_OK;
}

// Ranks in processes of their own give each other all parts.
static sp_status exchange_parts(reader *r, sp_error *err)
{
    sp_transport *transport = r->run->transport;
    if (transport == NULL) {
        return SP_OK;
    }
    const sp_transport_part mine = r->of[transport->rank];
    r->of[transport->rank] = (sp_transport_part){0};
    sp_status status = transport->ops->exchange(transport, mine.data, mine.bytes, r->of, err);
    sp_free(mine.data);
    return status;
}

sp_status sp_i_exec_tensor_read(const sp_i_exec_run *run, size_t index, double *values,
                                sp_error *err)
{
    int pp;
    size_t ranks = sp_i_exec_rank_count(run);
    reader *r = sp_calloc(1, sizeof *r);
    const char *name = tensor_at(run, index, &pp, &r->gradient)->name;
    r->run = run;
    r->values = values;
    r->of = sp_calloc(ranks, sizeof *r->of);
    sp_status status = each_part(r, name, pp, give_part, err);
    status = status == SP_OK ? exchange_parts(r, err) : status;
    status = status == SP_OK ? each_part(r, name, pp, take_part, err) : status;
    for (size_t i = 0; i < ranks; i++) {
        sp_free(r->of[i].data);
    }
    sp_free(r->of);
    sp_free(r);
    return status;
}
