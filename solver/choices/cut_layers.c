// Layers of every virtual stage by predicted time, for parallel.stage_layers "auto".
#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/base/units.h"
#include "sim/cost/cost_model.h"
#include "sim/plan/packing.h"
#include "sim/schedule/schedule.h"
#include "solver/choices/cut_layers.h"
#include "solver/rows.h"

// ---- the time of a cut: packs go through a pipeline of unlike stages ----

void sp_i_cut_clock_init(sp_i_cut_clock *clock)
{
    size_t vstages = (size_t)sp_layout_vstages(clock->layout);
    clock->end_ns = sp_calloc(2 * vstages * (size_t)clock->count + 1, sizeof *clock->end_ns);
    clock->done = sp_calloc(2 * vstages, sizeof *clock->done);
    clock->free_ns = sp_calloc((size_t)clock->layout->pp, sizeof *clock->free_ns);
    clock->next = sp_calloc((size_t)clock->layout->pp, sizeof *clock->next);
    clock->layers = sp_calloc(vstages, sizeof *clock->layers);
}

void sp_i_cut_clock_fini(sp_i_cut_clock *clock)
{
    sp_free(clock->end_ns);
    sp_free(clock->done);
    sp_free(clock->free_ns);
    sp_free(clock->next);
    sp_free(clock->layers);
}

static void count_layers(sp_i_cut_clock *clock, const int *stage_layers)
{
    static const sp_model alike = {.layers = 1};
    const sp_model *model = clock->model != NULL ? clock->model : &alike;
    int first = 0;
    for (int s = 0; s < sp_layout_vstages(clock->layout); s++) {
        sp_model_count_kinds(model, first, stage_layers[s], clock->layers[s]);
        first += stage_layers[s];
    }
}

static double pack_ns(const sp_i_cut_clock *clock, const sp_i_cut_pack *pack, int side, int vstage)
{
    bool first = vstage == 0;
    bool last = vstage == sp_layout_vstages(clock->layout) - 1;
    double ns = pack->ns[SP_I_CUT_STAGE][side] + first * pack->ns[SP_I_CUT_FIRST][side] +
                last * pack->ns[SP_I_CUT_LAST][side];
    int kinds = clock->model != NULL ? sp_model_kinds(clock->model) : 1;
    for (int k = 0; k < kinds; k++) {
        ns += clock->layers[vstage][k] * pack->ns[SP_I_CUT_LAYER + k][side];
    }
    return ns;
}

// An action that a rank may run next.
typedef struct next_action {
    double start_ns; // infinity: not known yet
    int side, vstage, pack;
} next_action;

static int *done(const sp_i_cut_clock *clock, int side, int vstage)
{
    return &clock->done[2 * vstage + side];
}

static double *end_of(const sp_i_cut_clock *clock, int side, int vstage, int pack)
{
    return &clock
                ->end_ns[((size_t)vstage * 2 + (size_t)side) * (size_t)clock->count + (size_t)pack];
}

// When what it needs of other stages is there; infinite while that has not run.
static double ready_ns(const sp_i_cut_clock *clock, const next_action *action)
{
    int last = sp_layout_vstages(clock->layout) - 1;
    bool turns = action->vstage == last && action->side == SP_I_CUT_B;
    int from = action->side == SP_I_CUT_F ? action->vstage - 1 : turns ? last : action->vstage + 1;
    if (action->side == SP_I_CUT_W || from < 0) {
        return 0.0;
    }
    return *end_of(clock, turns ? SP_I_CUT_F : action->side, from, action->pack);
}

static void run_action(sp_i_cut_clock *clock, int pp_rank, const next_action *action)
{
    double end_ns = action->start_ns +
                    pack_ns(clock, &clock->packs[action->pack], action->side, action->vstage);
    if (action->side != SP_I_CUT_W) {
        *end_of(clock, action->side, action->vstage, action->pack) = end_ns;
        ++*done(clock, action->side, action->vstage);
    }
    clock->free_ns[pp_rank] = end_ns;
}

// ---- without a plan ----

static next_action first_of_rank(const sp_i_cut_clock *clock, int pp_rank)
{
    next_action first = {.start_ns = (double)HUGE_VAL};
    for (int side = SP_I_CUT_B; side >= SP_I_CUT_F; side--) {
        for (int chunk = clock->layout->chunks - 1; chunk >= 0; chunk--) {
            int vstage = sp_layout_vstage(clock->layout, pp_rank, chunk);
            next_action next = {.side = side, .vstage = vstage, .pack = *done(clock, side, vstage)};
            if (next.pack < clock->count) {
                next.start_ns = fmax(clock->free_ns[pp_rank], ready_ns(clock, &next));
                first = next.start_ns < first.start_ns ? next : first;
            }
        }
    }
    return first;
}

static void run_first_come(sp_i_cut_clock *clock)
{
    const sp_layout *layout = clock->layout;
    for (int left = 2 * sp_layout_vstages(layout) * clock->count; left > 0; left--) {
        next_action first = {.start_ns = (double)HUGE_VAL};
        int rank = 0;
        for (int r = 0; r < layout->pp; r++) {
            next_action of_rank = first_of_rank(clock, r);
            if (of_rank.start_ns < first.start_ns) {
                first = of_rank;
                rank = r;
            }
        }
        run_action(clock, rank, &first);
    }
}

// ---- in the order of a plan ----

static next_action planned(const sp_i_cut_clock *clock, int pp_rank, sp_action action)
{
    next_action next = {.side = action.kind == SP_ACTION_F   ? SP_I_CUT_F
                                : action.kind == SP_ACTION_W ? SP_I_CUT_W
                                                             : SP_I_CUT_B,
                        .vstage = sp_layout_vstage(clock->layout, pp_rank, action.chunk),
                        .pack = action.pack};
    next.start_ns = fmax(clock->free_ns[pp_rank], ready_ns(clock, &next));
    return next;
}

// Each rank as far as it gets, until none gets further.
static void run_planned(sp_i_cut_clock *clock)
{
    int pp = clock->layout->pp;
    size_t *next_of = clock->next;
    bool further = true;
    memset(next_of, 0, (size_t)pp * sizeof *next_of);
    while (further) {
        further = false;
        for (int r = 0; r < pp; r++) {
            const sp_stage_plan *stage = sp_plan_stage(clock->plan, 0, r);
            while (next_of[r] < stage->count) {
                next_action next = planned(clock, r, stage->actions[next_of[r]]);
                if (!isfinite(next.start_ns)) {
                    break;
                }
                run_action(clock, r, &next);
                next_of[r]++;
                further = true;
            }
        }
    }
}

double sp_i_cut_clock_ns(sp_i_cut_clock *clock, const int *stage_layers)
{
    size_t vstages = (size_t)sp_layout_vstages(clock->layout);
    double makespan_ns = 0.0;
    for (size_t i = 0; i < 2 * vstages * (size_t)clock->count; i++) {
        clock->end_ns[i] = (double)HUGE_VAL;
    }
    memset(clock->done, 0, 2 * vstages * sizeof *clock->done);
    memset(clock->free_ns, 0, (size_t)clock->layout->pp * sizeof *clock->free_ns);
    count_layers(clock, stage_layers);
    (clock->plan != NULL ? run_planned : run_first_come)(clock);
    for (int r = 0; r < clock->layout->pp; r++) {
        makespan_ns = fmax(makespan_ns, clock->free_ns[r]);
    }
    return makespan_ns;
}

// ---- the search ----

enum {
    MOST_SAMPLES = 4096,  // that are drawn
    MOST_RANKS = 8,       // data-parallel ranks whose rows are run ...
    MOST_ROWS = 32,       // ... and rows of each, or pp
    LEAST_DRAWN = 16,     // packs of a rank where a strategy makes its own, at least 2 pp ...
    DRAWS = 4,            // ... and how often they are drawn
    MOST_LOOKS = 4000000, // at virtual stages, in all trials of a cut
};

// A cut is better that is faster by more than this share.
static const double least_gain = 1e-6;

// Packs that a strategy makes are level up to this share, more or less. With 0.2 to 0.6 the cuts of
// llama-3-8b on 64 H100 come in nearly the order of their simulated steps with slimpack.
static const double unevenness = 0.35;

typedef struct cutter {
    const sp_scenario *scenario;
    const sp_layout *layout;
    bool runs_rows; // in the order of the schedule
    sp_pack_list rows;
    sp_i_cut_pack *time;   // [rows]; owned
    int64_t all_rows;      // of the batch
    int64_t rows_per_rank; // data-parallel ranks
    sp_unit_load fullest;  // row
    sp_stage *stages;      // [chunks], of one rank; owned
    sp_plan plan;          // the order of the rows, where that is known
    sp_packing packing;    // of the plan, equal packs; owned, with its batch
    sp_batch batch;
    double *held;         // [pp]: rows that a rank holds at most; owned
    sp_i_cut_pack *packs; // [draws][clock.count]; owned
    sp_i_cut_pack *all;   // [draws]: the sum of the packs; owned
    sp_i_cut_pack *least; // [draws]: the least of the packs, of each part; owned
    int draws;            // data-parallel ranks, or draws of the packs of one
    sp_i_cut_clock clock;
    bool limited; // cuts that do not fit are left out
} cutter;

// ---- the rows and their times ----

// Rows as `packed` fills them of the first batch of the workload.
static sp_status make_rows(cutter *c, sp_error *err)
{
    const sp_scenario *scenario = c->scenario;
    sp_workload_spec first = scenario->workload;
    sp_batches batches = {0};
    first.batches = 1;
    first.source = scenario->source;
    if (first.samples_per_batch > MOST_SAMPLES) {
        first.samples_per_batch = MOST_SAMPLES;
    }
    sp_status status = sp_batches_make(&first, &batches, err);
    if (status != SP_OK || batches.count == 0) {
        sp_batches_fini(&batches);
        return status;
    }
    const sp_batch batch = sp_batch_view(&batches.batch[0], sp_strategy_padding(scenario));
    int64_t most = sp_i_row_room(&batch, batches.context * scenario->strategy.microbatch_samples);
    int64_t used = most;
    c->rows.padding = batch.padding;
    for (size_t s = 0; s < batch.count; s++) {
        int64_t tokens = batch.tokens[s];
        int64_t share = sp_i_row_share(&batch, (int32_t)s);
        bool begins = s == 0 || used + share > most;
        used = begins ? share : used + share;
        if (begins) {
            sp_pack_list_begin(&c->rows, 0, 1);
        }
        sp_pack_list_add(
            &c->rows, (sp_slice){.sample = (int32_t)s, .tokens = tokens, .computed_tokens = tokens},
            true);
    }
    int64_t rows = (int64_t)c->rows.count;
    if (first.samples_per_batch < scenario->workload.samples_per_batch) {
        rows = rows * scenario->workload.samples_per_batch / first.samples_per_batch;
    }
    c->all_rows = rows;
    c->rows_per_rank = sp_ceil_div(rows, c->layout->dp);
    for (size_t k = 0; k < c->rows.count; k++) {
        const sp_pack *pack = &c->rows.packs[k];
        if (pack->computed > c->fullest.tokens) {
            c->fullest = (sp_unit_load){.tokens = pack->computed, .pairs = pack->full_pairs};
        }
    }
    sp_batches_fini(&batches);
    return SP_OK;
}

static bool splits(const cutter *c)
{
    return c->runs_rows && sp_schedule_traits_of(c->scenario->schedule.kind).split;
}

// The first virtual stage, one that has layers alone (where there are two, the first) and the last.
enum { FIRST, INNER, LAST, PLACES };

// Nanoseconds of a row on those.
typedef struct place_times {
    double ns[PLACES][SP_I_CUT_SIDES];
} place_times;

// With one layer of a kind on each stage, but two on one of them.
static sp_status time_stages(const cutter *c, int kind, int two, int *stage_layers,
                             place_times *times, sp_error *err)
{
    const sp_scenario *scenario = c->scenario;
    sp_layout layout = *c->layout;
    sp_model space;
    sp_model model = *sp_model_of_kind(&scenario->model, kind, &space);
    sp_cost_model cost;
    int vstages = sp_layout_vstages(&layout);
    model.layers = vstages + 1;
    layout.stage_layers = stage_layers;
    for (int s = 0; s < vstages; s++) {
        stage_layers[s] = s == two ? 2 : 1;
    }
    sp_status status =
        sp_cost_model_init(&cost, &model, &layout, &scenario->cluster, &scenario->profile,
                           scenario->memory, scenario->source, err);
    if (status != SP_OK) {
        return status;
    }
    size_t classes = (size_t)cost.stage_classes;
    const int at[PLACES] = {cost.class_of_vstage[0], cost.class_of_vstage[vstages > 2],
                            cost.class_of_vstage[vstages - 1]};
    int64_t *ns = sp_calloc(3 * classes, sizeof *ns); // f, b and w of the classes
    for (size_t k = 0; k < c->rows.count; k++) {
        const sp_pack *row = &c->rows.packs[k];
        sp_cost_model_pack_ns(&cost, &c->rows, row, splits(c), ns, ns + classes, ns + 2 * classes);
        for (int p = 0; p < PLACES; p++) {
            const int64_t *of = ns + at[p];
            times[k].ns[p][SP_I_CUT_F] = (double)of[0];
            times[k].ns[p][SP_I_CUT_B] = (double)of[classes];
            times[k].ns[p][SP_I_CUT_W] = (double)of[2 * classes];
        }
    }
    sp_free(ns);
    sp_cost_model_fini(&cost);
    return status;
}

// A stage's time is linear in its layers: two cuts tell its parts, those but layers with the kind
// of the last, whose like predict further tokens there.
static sp_status time_kind(cutter *c, int kind, int *stage_layers, place_times *one, sp_error *err)
{
    size_t rows = c->rows.count;
    int last = sp_layout_vstages(c->layout) - 1;
    bool is_last = kind == sp_model_kind_of(&c->scenario->model, c->scenario->model.layers - 1);
    sp_status status = time_stages(c, kind, last, stage_layers, one, err);
    if (status == SP_OK) {
        status = time_stages(c, kind, 0, stage_layers, one + rows, err);
    }
    for (size_t k = 0; status == SP_OK && k < rows; k++) {
        const place_times *two = &one[rows + k];
        for (int side = 0; side < SP_I_CUT_SIDES; side++) {
            double layer = two->ns[FIRST][side] - one[k].ns[FIRST][side];
            double inner = one[k].ns[INNER][side];
            c->time[k].ns[SP_I_CUT_LAYER + kind][side] = layer;
            if (is_last) {
                c->time[k].ns[SP_I_CUT_STAGE][side] = inner - layer;
                c->time[k].ns[SP_I_CUT_FIRST][side] = one[k].ns[FIRST][side] - inner;
                c->time[k].ns[SP_I_CUT_LAST][side] = two->ns[LAST][side] - inner;
            }
        }
    }
    return status;
}

static sp_status time_rows(cutter *c, int *stage_layers, sp_error *err)
{
    place_times *one = sp_calloc(2 * c->rows.count + 1, sizeof *one);
    sp_status status = SP_OK;
    c->time = sp_calloc(c->rows.count + 1, sizeof *c->time);
    for (int k = 0; status == SP_OK && k < sp_model_kinds(&c->scenario->model); k++) {
        status = time_kind(c, k, stage_layers, one, err);
    }
    sp_free(one);
    return status;
}

static sp_i_cut_pack mean_row(const cutter *c, double scale)
{
    sp_i_cut_pack mean = {0};
    for (size_t k = 0; k < c->rows.count; k++) {
        for (int i = 0; i < SP_I_CUT_PARTS * SP_I_CUT_SIDES; i++) {
            int part = i / SP_I_CUT_SIDES;
            int side = i % SP_I_CUT_SIDES;
            mean.ns[part][side] += scale * c->time[k].ns[part][side] / (double)c->rows.count;
        }
    }
    return mean;
}

// The row of a rank in a round. Rows go round the ranks; the last round may not reach all.
static sp_i_cut_pack row_of(const cutter *c, int64_t round, int64_t rank)
{
    int64_t row = round * c->layout->dp + rank;
    return row < c->all_rows ? c->time[(size_t)row % c->rows.count] : (sp_i_cut_pack){0};
}

// A round of ranks that share experts, which wait for each other in every layer.
static sp_i_cut_pack slowest_row(const cutter *c, int64_t round, int64_t first, int ranks)
{
    sp_i_cut_pack most = row_of(c, round, first);
    for (int r = 1; r < ranks; r++) {
        const sp_i_cut_pack row = row_of(c, round, first + r);
        for (int i = 0; i < SP_I_CUT_PARTS * SP_I_CUT_SIDES; i++) {
            double *ns = &most.ns[i / SP_I_CUT_SIDES][i % SP_I_CUT_SIDES];
            *ns = fmax(*ns, row.ns[i / SP_I_CUT_SIDES][i % SP_I_CUT_SIDES]);
        }
    }
    return most;
}

static void sum_packs(cutter *c)
{
    c->all = sp_calloc((size_t)c->draws, sizeof *c->all);
    c->least = sp_calloc((size_t)c->draws, sizeof *c->least);
    for (int64_t k = 0; k < (int64_t)c->draws * c->clock.count; k++) {
        bool begins = k % c->clock.count == 0;
        sp_i_cut_pack *all = &c->all[k / c->clock.count];
        sp_i_cut_pack *least = &c->least[k / c->clock.count];
        for (int i = 0; i < SP_I_CUT_PARTS * SP_I_CUT_SIDES; i++) {
            int part = i / SP_I_CUT_SIDES;
            int side = i % SP_I_CUT_SIDES;
            double ns = c->packs[k].ns[part][side];
            all->ns[part][side] += ns;
            least->ns[part][side] = begins ? ns : fmin(least->ns[part][side], ns);
        }
    }
}

// What ranks run: their rows, or the same work in packs of about equal work.
static void make_packs(cutter *c)
{
    bool rows = c->runs_rows;
    int64_t count = rows ? c->rows_per_rank : sp_larger(LEAST_DRAWN, 2 * (int64_t)c->layout->pp);
    if (rows && count > MOST_ROWS) {
        // Whole rounds of the pipeline.
        count = c->layout->pp > MOST_ROWS ? c->layout->pp : MOST_ROWS - MOST_ROWS % c->layout->pp;
    }
    const int ranks = sp_layout_expert_ranks(c->layout);
    const int groups = c->layout->dp / ranks;
    c->draws = !rows ? DRAWS : groups < MOST_RANKS ? groups : MOST_RANKS;
    c->clock.count = (int)count;
    c->packs = sp_calloc((size_t)(c->draws * count), sizeof *c->packs);
    sp_prng prng;
    sp_prng_seed(&prng, 1);
    double share = (double)c->rows_per_rank / (double)count;
    for (int64_t k = 0; k < c->draws * count; k++) {
        if (rows) {
            c->packs[k] = slowest_row(c, k % count, k / count * ranks, ranks);
        } else {
            double uneven = unevenness * (2.0 * sp_prng_uniform(&prng) - 1.0);
            c->packs[k] = mean_row(c, share * (1.0 + uneven));
        }
    }
    sum_packs(c);
}

// ---- memory ----

// Forwards without their backward (or weight gradient), at most.
static double rows_held(const cutter *c, int pp_rank)
{
    const sp_stage_plan *stage = sp_plan_stage(&c->plan, 0, pp_rank);
    int held = 0;
    int most = 0;
    for (size_t i = 0; i < stage->count; i++) {
        int kind = stage->actions[i].kind;
        held += kind == SP_ACTION_F;
        held -= kind == SP_ACTION_B || kind == SP_ACTION_W;
        most = held > most ? held : most;
    }
    return (double)most / c->layout->chunks;
}

static bool fits(void *context, int pp_rank, const int *stage_layers)
{
    const cutter *c = context;
    const sp_scenario *scenario = c->scenario;
    const sp_layout *layout = c->layout;
    sp_bytes states;
    double held = 0.0;
    double more = 0.0;
    for (int chunk = 0; chunk < layout->chunks; chunk++) {
        int s = sp_layout_vstage(layout, pp_rank, chunk);
        sp_unit_bytes unit;
        sp_stage *stage = &c->stages[chunk];
        *stage = (sp_stage){.layers = stage_layers[s],
                            .embedding = s == 0,
                            .head = s == sp_layout_vstages(layout) - 1};
        stage->layers += stage->head ? scenario->model.mtp_layers : 0;
        for (int before = 0; before < s; before++) {
            stage->first += stage_layers[before];
        }
        sp_model_count_kinds(&scenario->model, stage->first, stage->layers, stage->count);
        sp_footprint_unit(&scenario->model, layout, &c->stages[chunk], &scenario->memory,
                          &c->fullest, &unit);
        held += (double)sp_bytes_total(&unit.held);
        more = fmax(more, (double)sp_bytes_total(&unit.backward));
    }
    sp_footprint_states(&scenario->model, layout, &scenario->memory.stack, c->stages,
                        layout->chunks, &states);
    double rows = c->held[pp_rank];
    double bytes = (double)sp_bytes_total(&states) + rows * held + (rows > 0.0 ? more : 0.0);
    return bytes <= (double)scenario->memory_limit_bytes;
}

static bool all_fit(cutter *c, const int *stage_layers)
{
    bool all = true;
    for (int r = 0; all && r < c->layout->pp; r++) {
        all = fits(c, r, stage_layers);
    }
    return all;
}

// ---- the cut ----

static double all_sides(const sp_i_cut_pack *pack, int part)
{
    const double *ns = pack->ns[part];
    return ns[SP_I_CUT_F] + ns[SP_I_CUT_B] + ns[SP_I_CUT_W];
}

// layer: of each layer, [layers].
static bool level(cutter *c, const double *layer, double first, double last, int *stage_layers)
{
    const int layers = c->scenario->model.layers;
    sp_layout_fits *fit = c->limited ? fits : NULL;
    if (sp_model_kinds(&c->scenario->model) > 1) {
        return sp_layout_level_unlike(c->layout, layer, layers, first, last, fit, c, stage_layers);
    }
    double one = layer[0];
    return sp_layout_level(c->layout, layers, one > 0.0 ? first / one : 0.0,
                           one > 0.0 ? last / one : 0.0, fit, c, stage_layers);
}

// The least largest load, of cuts that fit if there is one.
static void spread(cutter *c, int *stage_layers)
{
    const sp_i_cut_pack mean = mean_row(c, 1.0);
    const sp_model *model = &c->scenario->model;
    double first = all_sides(&mean, SP_I_CUT_FIRST);
    double last = all_sides(&mean, SP_I_CUT_LAST);
    double *layer = sp_calloc((size_t)model->layers, sizeof *layer);
    for (int i = 0; i < model->layers; i++) {
        layer[i] = all_sides(&mean, SP_I_CUT_LAYER + sp_model_kind_of(model, i));
    }
    c->limited = c->scenario->memory_limit_bytes > 0;
    if (!level(c, layer, first, last, stage_layers)) {
        c->limited = false;
        level(c, layer, first, last, stage_layers);
    }
    sp_free(layer);
}

// A draw takes no less: a rank runs all packs on its stages, after one came through the stages
// before and, where no weight gradient is put off, before one goes back through them.
static double least_ns(const cutter *c, int draw)
{
    const sp_i_cut_pack *least = &c->least[draw];
    double most_ns = 0.0;
    double before_ns = 0.0;
    for (int r = 0; r < c->layout->pp; r++) {
        double ns = before_ns;
        for (int chunk = 0; chunk < c->layout->chunks; chunk++) {
            int s = sp_layout_vstage(c->layout, r, chunk);
            for (int side = 0; side < SP_I_CUT_SIDES; side++) {
                ns += pack_ns(&c->clock, &c->all[draw], side, s);
            }
        }
        most_ns = fmax(most_ns, ns);
        // The ranks' first stages come in their order.
        before_ns += pack_ns(&c->clock, least, SP_I_CUT_F, r);
        before_ns += splits(c) ? 0.0 : pack_ns(&c->clock, least, SP_I_CUT_B, r);
    }
    return most_ns;
}

// The step waits for the slowest rank, but one layer more or less may leave that as it is. Infinite
// where it would not be less than `most_ns`, which bounds tell of most cuts.
static double time_cut(cutter *c, const int *stage_layers, double most_ns)
{
    double slowest_ns = 0.0;
    double ns = 0.0;
    count_layers(&c->clock, stage_layers);
    for (int d = 0; d < c->draws; d++) {
        double least = least_ns(c, d);
        slowest_ns = fmax(slowest_ns, least);
        ns += least;
    }
    for (int d = 0; d < c->draws && ns / c->draws + slowest_ns < most_ns; d++) {
        ns -= least_ns(c, d);
        c->clock.packs = c->packs + (size_t)d * (size_t)c->clock.count;
        double of_draw = sp_i_cut_clock_ns(&c->clock, stage_layers);
        slowest_ns = fmax(slowest_ns, of_draw);
        ns += of_draw;
    }
    ns = ns / c->draws + slowest_ns;
    return ns < most_ns ? ns : (double)HUGE_VAL;
}

// After a layer more for stage `to`. The stages between it and the one that gave hold other layers
// then, which may be of other kinds.
static bool fits_moved(cutter *c, int to, const int *stage_layers)
{
    int pp_rank = 0;
    int chunk = 0;
    sp_layout_locate(c->layout, to, &pp_rank, &chunk);
    return sp_model_kinds(&c->scenario->model) > 1 ? all_fit(c, stage_layers)
                                                   : fits(c, pp_rank, stage_layers);
}

// Moves a layer where that is faster; true if it was.
static bool move_layer(cutter *c, int from, int to, int *stage_layers, double *best_ns)
{
    if (from == to || stage_layers[from] == 0) {
        return false;
    }
    stage_layers[from]--;
    stage_layers[to]++;
    if (!c->limited || fits_moved(c, to, stage_layers)) {
        double ns = time_cut(c, stage_layers, *best_ns * (1.0 - least_gain));
        if (isfinite(ns)) {
            *best_ns = ns;
            return true;
        }
    }
    stage_layers[from]++;
    stage_layers[to]--;
    return false;
}

// The load says how fast many packs are. With few, and unlike ones, where the layers lie counts
// too: layers are moved one by one as long as the pipeline gets faster.
static void climb(cutter *c, int *stage_layers)
{
    int64_t vstages = sp_layout_vstages(c->layout);
    // In the order of a plan a rank knows what comes next.
    int64_t looks = c->clock.plan != NULL ? 1 : vstages;
    int64_t trials = MOST_LOOKS / (2 * looks * vstages * c->clock.count * c->draws);
    double best_ns = time_cut(c, stage_layers, (double)HUGE_VAL);
    int64_t since = 0; // the last move that was faster
    for (int64_t i = 0; i < trials && since < vstages * vstages; i++) {
        // Later stages give first.
        int from = (int)(vstages - 1 - i / vstages % vstages);
        since = move_layer(c, from, (int)(i % vstages), stage_layers, &best_ns) ? 0 : since + 1;
    }
}

// Where equal shares are no slower, and fit, they are what is wanted.
static void prefer_even(cutter *c, int *stage_layers, int *even)
{
    int vstages = sp_layout_vstages(c->layout);
    for (int s = 0; s < vstages; s++) {
        even[s] = c->scenario->model.layers / vstages;
    }
    if (c->scenario->model.layers % vstages == 0 && (!c->limited || all_fit(c, even)) &&
        isfinite(time_cut(c, even,
                          time_cut(c, stage_layers, (double)HUGE_VAL) * (1.0 + 2 * least_gain)))) {
        memcpy(stage_layers, even, (size_t)vstages * sizeof *even);
    }
}

// The order of the schedule for as many equal rows, which a timed one finds for the cut by loads.
static sp_status plan_rows(cutter *c, const int *stage_layers, sp_error *err)
{
    const sp_scenario *scenario = c->scenario;
    const sp_i_cut_pack mean = mean_row(c, 1.0);
    int vstages = sp_layout_vstages(c->layout);
    sp_layout layout = *c->layout;
    layout.dp = 1;
    int64_t *ns = sp_calloc(SP_I_CUT_SIDES * (size_t)vstages, sizeof *ns);
    count_layers(&c->clock, stage_layers);
    for (int i = 0; i < SP_I_CUT_SIDES * vstages; i++) {
        ns[i] = (int64_t)pack_ns(&c->clock, &mean, i / vstages, i % vstages);
    }
    const sp_schedule_costs costs = {.f_ns = ns,
                                     .i_ns = ns + vstages,
                                     .w_ns = ns + 2 * (size_t)vstages,
                                     .unit_f = 1.0,
                                     .unit_w = -1.0};
    sp_status status = sp_packing_uniform_sliced(&c->packing, &c->batch, 1, c->clock.count, 1, err);
    if (status == SP_OK) {
        sp_plan_init(&c->plan, &layout, &c->packing);
        status = sp_schedule_generate(&scenario->schedule, &costs, scenario->source, &c->plan, err);
    }
    sp_free(ns);
    return status;
}

// Rows that the schedule cannot run are told when it is to run them.
static sp_status order_rows(cutter *c, int *stage_layers, sp_error *err)
{
    sp_error own = {0};
    spread(c, stage_layers);
    sp_status status = plan_rows(c, stage_layers, &own);
    if (status == SP_OK) {
        c->clock.plan = &c->plan;
        for (int r = 0; r < c->layout->pp; r++) {
            c->held[r] = rows_held(c, r);
        }
    }
    return sp_status_is_fatal(status) ? sp_error_set(err, status, "%s", own.message[0]) : SP_OK;
}

static sp_status find_cut(cutter *c, int *stage_layers, sp_error *err)
{
    int *even = sp_calloc((size_t)sp_layout_vstages(c->layout), sizeof *even);
    sp_status status = make_rows(c, err);
    if (status == SP_OK) {
        status = time_rows(c, stage_layers, err);
    }
    bool any = c->rows.count > 0;
    if (status == SP_OK && any) {
        make_packs(c);
        sp_i_cut_clock_init(&c->clock);
    }
    if (status == SP_OK && any && c->runs_rows) {
        status = order_rows(c, stage_layers, err);
    }
    if (status == SP_OK) {
        spread(c, stage_layers);
    }
    if (status == SP_OK && any) {
        climb(c, stage_layers);
        prefer_even(c, stage_layers, even);
    }
    sp_free(even);
    return status;
}

sp_status sp_i_cut_layers(const sp_scenario *scenario, bool runs_rows, int *stage_layers,
                          sp_error *err)
{
    const sp_layout *layout = &scenario->layout;
    // Ranks that share the vocabulary are alike.
    if (layout->pp == 1 || layout->vocab_parallel) {
        sp_layout_level(layout, scenario->model.layers, 0.0, 0.0, NULL, NULL, stage_layers);
        return SP_OK;
    }
    cutter c = {.scenario = scenario, .layout = layout, .runs_rows = runs_rows};
    c.stages = sp_calloc((size_t)layout->chunks, sizeof *c.stages);
    c.held = sp_calloc((size_t)layout->pp, sizeof *c.held);
    c.clock.layout = layout;
    c.clock.model = &scenario->model;
    sp_status status = find_cut(&c, stage_layers, err);
    sp_i_cut_clock_fini(&c.clock);
    sp_plan_fini(&c.plan);
    sp_packing_fini(&c.packing);
    sp_batch_fini(&c.batch);
    sp_free(c.packs);
    sp_free(c.all);
    sp_free(c.least);
    sp_free(c.rows.packs);
    sp_free(c.rows.slices);
    sp_free(c.time);
    sp_free(c.held);
    sp_free(c.stages);
    return status;
}
