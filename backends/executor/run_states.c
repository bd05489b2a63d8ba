#include "backends/comm/comm.h"
#include "backends/executor/run.h"
#include "sim/base/alloc.h"
#include "sim/base/units.h"

enum { PIECE = 1 << 14 }; // elements that are drawn at a time

// Real bytes of `elements` numbers beside the bytes that the predictor counts for them.
static void *take_state(sp_i_exec_rank *rank, sp_memory_category category, int64_t elements,
                        int64_t element_bytes, int64_t table_bytes)
{
    const sp_i_exec_width all = {elements * element_bytes, table_bytes};
    return sp_i_exec_take_zeroed(rank->arena, category, 1, all);
}

// What a tensor starts with, piece by piece, and as the device has it.
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
    sp_i_exec_range here = sp_i_exec_overlap(there, first, first + count);
    if (here.count > 0) {
        sp_i_exec_elements_from(element, here.count, s->value + (here.begin - first), s->real);
        run->runtime->ops->upload(run->runtime, (char *)at + (here.begin - there.begin) * bytes,
                                  s->real, here.count * bytes);
    }
}

static bool is_within(const sp_i_exec_rank *rank, int64_t begin, int64_t end)
{
    const sp_i_exec_range *values = &rank->values_at;
    return (begin < values->begin + values->count && end > values->begin) ||
           (rank->masters != NULL && begin < rank->share_end && end > rank->share_begin);
}

static void start_values(const sp_i_exec_run *run, const sp_i_exec_rank *rank, start *s)
{
    const sp_i_exec_range share = {rank->share_begin, rank->share_end - rank->share_begin};
    for (size_t w = 0; w < rank->weights->count; w++) {
        const sp_i_exec_weight *weight = &rank->weights->items[w];
        uint64_t seed = sp_i_exec_weight_seed(weight, run->request->seed);
        for (int64_t from = 0; from < weight->elements; from += PIECE) {
            int64_t left = weight->elements - from;
            int64_t count = left < PIECE ? left : PIECE;
            if (!is_within(rank, weight->offset + from, weight->offset + from + count)) {
                continue;
            }
            for (int64_t i = 0; i < count; i++) {
                s->value[i] = sp_i_exec_weight_start(weight, seed, from + i);
            }
            if (run->options.rounded) {
                sp_i_exec_elements_from(SP_ELEMENT_BF16, count, s->value, s->real);
                sp_i_exec_elements_to(SP_ELEMENT_BF16, count, s->real, s->value);
            }
            upload_piece(run, weight, s, from, count, rank->values_at, sp_i_exec_value_element(run),
                         rank->values);
            if (rank->masters != NULL) {
                upload_piece(run, weight, s, from, count, share, sp_i_exec_exact_element(run),
                             rank->masters);
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
    rank->share_begin = begin < all ? begin : all;
    rank->share_end = begin + share < all ? begin + share : all;
    const sp_i_exec_range whole = {0, all};
    const sp_i_exec_range own = {rank->share_begin, rank->share_end - rank->share_begin};
    rank->values_at = sp_i_exec_shards_values(run) ? own : whole;
    rank->gradients_at = sp_i_exec_shards_gradients(run) ? own : whole;
}

static bool take_states(const sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    sp_stage *parts = sp_calloc((size_t)layout->chunks, sizeof *parts);
    if (parts == NULL) {
        return false;
    }
    for (int c = 0; c < layout->chunks; c++) {
        parts[c] = run->parts[sp_layout_vstage(layout, rank->pp, c)];
    }
    sp_bytes bytes;
    const sp_stack stack = {.work_spaces = 1, .work_space_bytes = 1};
    sp_footprint_states(run->request->model, layout, &stack, parts, layout->chunks, &bytes);
    sp_free(parts);
    int64_t share = rank->share_end - rank->share_begin;
    bool masters = run->math->exact_bytes > run->math->real_bytes;
    int64_t exact = run->math->exact_bytes;
    int64_t left = bytes.of[SP_MEM_OPTIMIZER];
    int64_t each = left / (masters ? 3 : 2);
    rank->values = take_state(rank, SP_MEM_PARAMETERS, rank->values_at.count, run->math->real_bytes,
                              bytes.of[SP_MEM_PARAMETERS]);
    rank->gradients = take_state(rank, SP_MEM_GRADIENTS, rank->gradients_at.count, exact,
                                 bytes.of[SP_MEM_GRADIENTS]);
    if (masters) {
        rank->masters = take_state(rank, SP_MEM_OPTIMIZER, share, exact, each);
        left -= each;
    }
    rank->first = take_state(rank, SP_MEM_OPTIMIZER, share, exact, each);
    rank->second = take_state(rank, SP_MEM_OPTIMIZER, share, exact, left - each);
    return rank->values != NULL && rank->gradients != NULL && rank->first != NULL &&
           rank->second != NULL && (!masters || rank->masters != NULL);
}

static bool make_rope(const sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    const sp_model *model = run->request->model;
    int64_t positions = rank->job->slices.positions;
    if (model->positional != SP_ROPE || positions == 0) {
        return true;
    }
    int64_t elements = positions * (model->head_dim / 2);
    const sp_i_exec_width width = {run->math->exact_bytes, rank->job->specs.value.table_bytes};
    rank->cosine = sp_i_exec_take(rank->arena, SP_MEM_WORKSPACE, elements, width);
    rank->sine = sp_i_exec_take(rank->arena, SP_MEM_WORKSPACE, elements, width);
    bool ok = rank->cosine != NULL && rank->sine != NULL;
    if (ok) {
        run->math->rope_table(positions, model->head_dim, rank->cosine, rank->sine);
    }
    return ok;
}

static void place_stage(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                        sp_i_exec_stage *stage)
{
    stage->scatters = sp_i_exec_shards_gradients(run);
    stage->gathers = sp_i_exec_shards_values(run);
    stage->replicas = stage->scatters ? sp_i_exec_replicas_of(run, rank) : NULL;
    stage->member = sp_i_exec_replica(run, rank);
    stage->cosine = rank->cosine;
    stage->sine = rank->sine;
    for (int s = 0; s < sp_i_exec_slots(stage->part.layers); s++) {
        if (stage->range[s].count > 0 && !stage->gathers) {
            stage->value[s] = sp_i_exec_value_at(run, rank, stage->range[s].begin);
        }
        if (stage->range[s].count > 0 && !stage->scatters) {
            stage->gradient[s] = sp_i_exec_gradient_at(run, rank, stage->range[s].begin);
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
        stage->range[weight->slot] = (sp_i_exec_range){weight->offset, weight->elements};
        if (weight->slot == sp_i_exec_vocab_slot(stage->part.layers, SP_I_EXEC_TOKEN_TABLE)) {
            table = stage->range[weight->slot];
        }
    }
    for (int c = 0; c < sp_i_exec_layout(run)->chunks; c++) {
        sp_i_exec_stage *stage = sp_i_exec_stage_of(run, rank, c);
        int slot = sp_i_exec_vocab_slot(stage->part.layers, SP_I_EXEC_HEAD_TABLE);
        if (stage->part.head && stage->range[slot].count == 0) {
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
    if (!sp_i_exec_shards_gradients(run)) {
        return;
    }
    run->replicas = sp_calloc(count, sizeof *run->replicas);
    for (size_t i = 0; i < count; i++) {
        sp_i_exec_replicas_init(&run->replicas[i], run->runtime, layout->dp * layout->cp,
                                run->math->real_bytes, run->math->exact_bytes,
                                run->math->add_exact);
    }
    for (size_t r = 0; r < sp_i_exec_rank_count(run); r++) {
        const sp_i_exec_rank *rank = &run->ranks[r];
        sp_i_exec_replicas_of(run, rank)->shares[sp_i_exec_replica(run, rank)] =
            (sp_i_exec_share){.begin = rank->share_begin,
                              .end = rank->share_end,
                              .values = sp_i_exec_shards_values(run) ? rank->values : NULL,
                              .gradients = rank->gradients};
    }
}

// ---- starting values, drawn by as many threads as there are ranks or cores ----

typedef struct drawing {
    const sp_i_exec_run *run;
    size_t threads;
} drawing;

static sp_status draw_values(void *data, int thread, sp_error *err)
{
    (void)err;
    const drawing *d = data;
    start *s = sp_malloc(sizeof *s);
    for (size_t r = d->run->here + (size_t)thread; r < d->run->end_here; r += d->threads) {
        sp_i_exec_enter(d->run, &d->run->ranks[r]);
        start_values(d->run, &d->run->ranks[r], s);
    }
    sp_free(s);
    return SP_OK;
}

static sp_status start_all_values(const sp_i_exec_run *run, sp_error *err)
{
    const size_t ranks = run->end_here - run->here;
    const size_t cores = (size_t)sp_i_cores();
    drawing d = {run, ranks < cores ? ranks : cores};
    sp_workers *workers = NULL;
    if (d.threads <= 1) {
        d.threads = 1;
        return draw_values(&d, 0, err);
    }
    sp_status status = sp_workers_start((int)d.threads, NULL, draw_values, &d, &workers, err);
    if (status == SP_OK) {
        status = sp_workers_join(workers, 0, err);
        sp_workers_free(workers);
    }
    return status;
}

sp_status sp_i_exec_states_make(sp_i_exec_run *run, sp_error *err)
{
    sp_status status = SP_OK;
    for (size_t r = 0; r < sp_i_exec_rank_count(run); r++) {
        set_share(run, &run->ranks[r]);
    }
    for (size_t r = run->here; status == SP_OK && r < run->end_here; r++) {
        sp_i_exec_rank *rank = &run->ranks[r];
        sp_i_exec_enter(run, rank);
        if (!take_states(run, rank) || !make_rope(run, rank)) {
            status = sp_i_exec_rank_failure(run, rank, NULL, err);
        }
    }
    status = status == SP_OK ? start_all_values(run, err) : status;
    if (status == SP_OK) {
        make_replicas(run);
    }
    for (size_t r = run->here; status == SP_OK && r < run->end_here; r++) {
        place_weights(run, &run->ranks[r]);
    }
    return status;
}
