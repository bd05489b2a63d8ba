#include "experiments/tune/layouts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "solver/evaluate/evaluate.h"
#include "solver/strategy.h"

enum {
    // Axes that come first in every grid: tp, cp, pp, dp, recomputation, and where the search is
    // wide the ZeRO stage.
    WORK_AXES = 5,
    BLOCK = 64,          // points that are evaluated before the fastest is looked for again
    HURRY_PERCENT = 10,  // of a search's effort, at first
    MOST_COUNTED = 1024, // points whose blocks are counted, about
};

// A search under way.
typedef struct finder {
    const sweep_layouts_options *options;
    sweep_layouts *layouts;
    sweep_evaluator *evaluator; // [spec_count]
    sp_batches batches;
    int axes;         // of the first ones, which the bound depends on
    int64_t works;    // combinations of these
    int64_t alike;    // of these with the same degrees
    int64_t inner;    // combinations of the others, of the first strategy
    double *bound_ms; // [of the first axes]; negative: not known yet
    int64_t *wanted;  // of these, those with points
    int64_t wanted_count;
    bool *survives;       // [of the first axes]; NULL: all do
    sweep_layout **order; // [count]
    sweep_layout **block; // those in work
    double best_ms;       // of those that fit well, so far
    int scout;            // strategy that is tried to find survivors alone; -1: none
    int counted;          // points whose blocks were
} finder;

enum {
    MOST_CP = 16,
    MOST_PP = 64,
    LEAST_BUDGET = 4096,
    MOST_BUDGETS = 5,
    MOST_ROWS = 4, // of a micro-batch
    MICROBATCH_TOKENS = 16384,
    CONDITION = 512,
    BUDGET_STEP = 128, // tokens: a budget that divides in eighths stays one of whole tiles
    MOST_SLICES = 4,   // of a row, times the pipeline ranks
    MOST_RETAINED = 8, // chunks
};

// ---- the grid: layouts as a sweep ----

// 1, 2, 4, ... up to `most`, or all numbers, those that divide `number`.
static json_t *divisors(int64_t number, int64_t most, bool powers)
{
    json_t *list = json_array();
    for (int64_t d = 1; d <= most && d <= number; d = powers ? 2 * d : d + 1) {
        if (number % d == 0) {
            json_array_append_new(list, json_integer(d));
        }
    }
    return list;
}

// From 4096 tokens to those of the context.
static json_t *budgets(int64_t context)
{
    json_t *list = json_array();
    for (int64_t b = LEAST_BUDGET, i = 0; i < MOST_BUDGETS && (b <= context || i == 0);
         b *= 2, i++) {
        json_array_append_new(list, json_integer(b < context ? b : context));
    }
    return list;
}

// Rows of a micro-batch: short ones are too little work for a GPU.
static json_t *microbatches(int64_t context)
{
    json_t *list = json_pack("[i]", 1);
    for (int rows = 2; rows <= MOST_ROWS && rows * context <= MICROBATCH_TOKENS; rows *= 2) {
        json_array_append_new(list, json_integer(rows));
    }
    return list;
}

static bool has_option(const sp_strategy *strategy, const char *option)
{
    const char *found = strstr(strategy->options, option);
    size_t length = strlen(option);
    return found != NULL && (found[length] == ',' || found[length] == '\0');
}

// The schedules of strategies that bring none, with the chunks that each runs. Without a pipeline
// they are all alike.
static const char *const any_schedule =
    "tp * cp * pp * dp == %lld && ((schedule.kind == '1f1b' && chunks_per_rank == 1) || pp > 1 && "
    "(schedule.kind == 'interleaved' && chunks_per_rank > 1 || "
    "(schedule.kind == 'zb-h1' || schedule.kind == 'zb-h2') && chunks_per_rank == 1 || "
    "(schedule.kind == 'zb-v' || schedule.kind == 'v-half') && chunks_per_rank == 2))";

static int64_t gpus_of(const sweep_layouts_options *options, const sp_scenario *scenario)
{
    return options->gpus > 0 ? options->gpus : sp_layout_ranks(&scenario->layout);
}

// Powers of two that divide the experts of every layer that has any.
static json_t *expert_degrees(const sp_model *model, int64_t ranks)
{
    int64_t common = 0;
    for (int k = 0; k < sp_model_kinds(model); k++) {
        sp_model space;
        int64_t experts = sp_model_of_kind(model, k, &space)->experts;
        common = common == 0 ? experts : experts == 0 ? common : sp_gcd(common, experts);
    }
    return divisors(common, ranks, true);
}

// The axes that the bound depends on come first, the same for every strategy (work_of).
static json_t *grid_of(const sp_scenario *scenario, int64_t context, const sp_strategy *strategy,
                       int64_t ranks, bool wide)
{
    int64_t most_pp = scenario->model.layers < MOST_PP ? scenario->model.layers : MOST_PP;
    json_t *grid = sp_json_object(
        SP_JSON("parallel.tp", divisors(ranks, scenario->cluster.gpus_per_node, true)),
        SP_JSON("parallel.cp", divisors(ranks, MOST_CP, true)),
        SP_JSON("parallel.pp", divisors(ranks, most_pp, false)),
        SP_JSON("parallel.dp", divisors(ranks, ranks, false)),
        SP_JSON("memory.recompute", json_pack("[s, s, s]", "none", "attention", "full")));
    if (sp_model_most_experts(&scenario->model) > 0) {
        sp_json_put(grid, "parallel.ep",
                    wide ? expert_degrees(&scenario->model, ranks)
                         : json_pack("[i]", sp_layout_ep(&scenario->layout)));
    }
    if (sp_model_is_latent(&scenario->model)) {
        json_array_append_new(json_object_get(grid, "memory.recompute"),
                              json_string(sp_recompute_names[SP_RECOMPUTE_MLA_UP_PROJ]));
    }
    if (wide) {
        bool fsdp = sp_stack_is_fsdp(&scenario->memory.stack);
        sp_json_put(grid, "parallel.zero",
                    fsdp ? json_pack("[i, i]", 2, 3) : json_pack("[i, i, i]", 1, 2, 3));
    }
    if (!strategy->brings_order) {
        sp_json_put(grid, "schedule.kind",
                    json_pack("[s, s, s, s, s*, s*]", "1f1b", "interleaved", "zb-h1", "zb-v",
                              wide ? "zb-h2" : NULL, wide ? "v-half" : NULL));
    }
    if (!strategy->brings_order || strategy->schedule == SP_SCHEDULE_SLIMPIPE) {
        sp_json_put(grid, "parallel.chunks_per_rank", json_pack("[i, i, i]", 1, 2, 4));
    }
    if (wide && strategy->kind == SP_STRATEGY_ROWS) {
        sp_json_put(grid, "schedule.microbatch_samples", microbatches(context));
    }
    if (has_option(strategy, "rank_tokens")) {
        sp_json_put(grid, "strategy.rank_tokens", budgets(context));
    }
    if (has_option(strategy, "chunk_tokens")) {
        sp_json_put(grid, "strategy.chunk_tokens", budgets(context));
    }
    return grid;
}

// The number that the base has in a section; 0: none.
static int64_t number_of(const json_t *base, const char *section, const char *key)
{
    return (int64_t)json_number_value(json_object_get(json_object_get(base, section), key));
}

// Eighths between half of a budget and twice it.
static json_t *budgets_around(int64_t budget, int64_t context)
{
    json_t *list = json_array();
    for (int64_t eighths = 5; eighths < 16; eighths++) {
        int64_t tokens = budget * eighths / 8 / BUDGET_STEP * BUDGET_STEP;
        if (tokens > 0 && tokens <= context) {
            json_array_append_new(list, json_integer(tokens));
        }
    }
    if (json_array_size(list) == 0) {
        json_array_append_new(list, json_integer(budget));
    }
    return list;
}

static json_t *multiples(int64_t number, int64_t most)
{
    json_t *list = json_array();
    for (int64_t times = 1; times <= most; times++) {
        json_array_append_new(list, json_integer(number * times));
    }
    return list;
}

// Ways to exchange keys and values beside the stack's own, for strategies that leave it to the
// scenario, which does not state it.
static bool has_open_exchange(const sp_scenario *scenario, const sp_strategy *strategy)
{
    bool in_rings = strategy->rings && scenario->memory.stack.cp_ring_nics > 0;
    bool shares = scenario->layout.cp > 1 || has_option(strategy, "rank_tokens"); // merges ranks
    return shares && sp_scenario_exchange_is_open(scenario) && !in_rings &&
           !strategy->brings_exchange && !strategy->chooses_chunks;
}

static json_t *exchanges(sp_cp_overlap own)
{
    static const sp_cp_overlap others[] = {SP_CP_ATTENTION, SP_CP_A2A_P2P};
    json_t *list = json_pack("[s]", sp_cp_overlap_names[own]);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (others[i] != own) {
            json_array_append_new(list, json_string(sp_cp_overlap_names[others[i]]));
        }
    }
    return list;
}

// Around a base: see sweep_layouts_options.
static json_t *grid_around(const json_t *base, const sp_scenario *scenario, int64_t context,
                           const sp_strategy *strategy)
{
    const sp_layout *layout = &scenario->layout;
    const char *recompute =
        json_string_value(json_object_get(json_object_get(base, "memory"), "recompute"));
    bool slimpipe = strategy->schedule == SP_SCHEDULE_SLIMPIPE;
    json_t *grid = sp_json_object(SP_JSON("parallel.tp", json_pack("[i]", layout->tp)),
                                  SP_JSON("parallel.cp", json_pack("[i]", layout->cp)),
                                  SP_JSON("parallel.pp", json_pack("[i]", layout->pp)),
                                  SP_JSON("parallel.dp", json_pack("[i]", layout->dp)),
                                  SP_JSON("memory.recompute", json_pack("[s]", recompute)));
    if (sp_model_most_experts(&scenario->model) > 0) {
        sp_json_put(grid, "parallel.ep", json_pack("[i]", sp_layout_ep(layout)));
    }
    if (!strategy->brings_order) {
        sp_json_put(grid, "schedule.kind",
                    json_pack("[s, s, s, s, s, s]", "1f1b", "interleaved", "zb-h1", "zb-v", "zb-h2",
                              "v-half"));
    }
    if (!strategy->brings_order || slimpipe) {
        int64_t layers = scenario->model.layers;
        int64_t of_rank = layers % layout->pp == 0 && layout->pp > 1 ? layers / layout->pp : 1;
        sp_json_put(grid, "parallel.chunks_per_rank", divisors(of_rank, of_rank, false));
    }
    if (slimpipe && layout->pp > 1) {
        sp_json_add(grid, SP_JSON("schedule.slices", multiples(layout->pp, MOST_SLICES)),
                    SP_JSON("schedule.exchange", json_pack("[b, b]", false, true)));
    }
    if (has_open_exchange(scenario, strategy)) {
        sp_json_put(grid, "stack.cp_overlap", exchanges(scenario->memory.stack.cp_overlap));
    }
    static const char *const options[] = {"rank_tokens", "chunk_tokens"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        int64_t budget = number_of(base, "strategy", options[i]);
        if (has_option(strategy, options[i]) && budget > 0) {
            char path[64];
            snprintf(path, sizeof path, "strategy.%s", options[i]);
            sp_json_put(grid, path, budgets_around(budget, context));
        }
    }
    if (strategy->schedule == SP_SCHEDULE_CHUNKFLOW) {
        sp_json_put(grid, "schedule.retained_chunks", divisors(MOST_RETAINED, MOST_RETAINED, true));
    }
    return grid;
}

// ---- the grid: what is stated ----

// The value of the base at a dotted path, where an override put it there, or around or inside it;
// else NULL.
static json_t *stated_at(const json_t *base, const sweep_layouts_options *options, const char *path)
{
    char part[SP_JSON_PATH];
    const json_t *holder = base;
    bool stated = false;
    for (int i = 0; i < options->stated_count; i++) {
        size_t bytes = strcspn(options->stated[i], "=");
        if (bytes < sizeof part) {
            memcpy(part, options->stated[i], bytes);
            part[bytes] = '\0';
            stated = stated || sp_json_paths_overlap(part, path);
        }
    }
    while (stated && sp_json_path_next(&path, part)) {
        holder = json_object_get(holder, part);
    }
    json_t *value = stated ? json_object_get(holder, part) : NULL;
    return json_is_null(value) ? NULL : value;
}

// Axes whose setting is stated have that value alone.
static void pin(json_t *grid, const json_t *base, const sweep_layouts_options *options)
{
    const char *path;
    json_t *values;
    json_object_foreach (grid, path, values) {
        json_t *value = stated_at(base, options, path);
        if (value != NULL) {
            sp_json_put(grid, path, json_pack("[O]", value));
        }
    }
}

// Settings of the base that the grid takes the place of are left out where not every point has
// them, but not those that are stated. How many micro-batches lengths make is up to the strategy,
// so that groups must take any number.
static json_t *base_of(const json_t *base, const sp_scenario *scenario,
                       const sweep_layouts_options *options, const char *strategy)
{
    static const struct {
        const char *path, *section, *key;
    } taken[] = {
        {"parallel.chunks_per_rank", "parallel", "chunks_per_rank"},
        {"parallel.layers_per_chunk", "parallel", "layers_per_chunk"},
        {"parallel.stage_layers", "parallel", "stage_layers"},
        {"parallel.order", "parallel", "order"},
        {"schedule.kind", "schedule", "kind"},
    };
    json_t *copy = json_deep_copy(base);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        if (stated_at(base, options, taken[i].path) == NULL) {
            json_object_del(json_object_get(copy, taken[i].section), taken[i].key);
        }
    }
    for (size_t i = 0; i < 2; i++) {
        const char *section = i == 0 ? "strategy" : "schedule";
        if (!json_is_object(json_object_get(copy, section))) {
            sp_json_put(copy, section, json_object());
        }
    }
    sp_json_put(json_object_get(copy, "strategy"), "kind", json_string(strategy));
    json_t *schedule = json_object_get(copy, "schedule");
    if (scenario->workload.uniform_tokens == 0 && json_object_get(schedule, "group") == NULL) {
        sp_json_put(schedule, "group", json_string("even"));
    }
    return copy;
}

// Are layouts without a pipeline those of another of the strategies?
static bool is_doubled(const sweep_layouts_options *options, const sp_strategy *strategy)
{
    bool doubled = false;
    for (int s = 0; strategy->without_pipeline != NULL && s < options->strategy_count; s++) {
        doubled = doubled || strcmp(options->strategies[s], strategy->without_pipeline) == 0;
    }
    return doubled;
}

static sp_status spec_of(const json_t *base, const sp_scenario *scenario, int64_t context,
                         const sweep_layouts_options *options, int index, sweep_spec *spec,
                         sp_error *err)
{
    const char *name = options->strategies[index];
    const sp_strategy *strategy = sp_strategy_find(name);
    char where[CONDITION];
    int64_t gpus = gpus_of(options, scenario);
    // A schedule that is stated need not be one of those that are tried.
    bool any_order = strategy->brings_order || stated_at(base, options, "schedule.kind") != NULL;
    snprintf(where, sizeof where,
             is_doubled(options, strategy) ? "tp * cp * pp * dp == %lld && pp > 1"
             : any_order                   ? "tp * cp * pp * dp == %lld"
                                           : any_schedule,
             (long long)gpus);
    if (sp_model_most_experts(&scenario->model) > 0) {
        if (scenario->layout.etp > 0) {
            sp_append(where, sizeof where, " && tp * cp * dp %% (%d * ep) == 0",
                      scenario->layout.etp);
        } else {
            sp_append(where, sizeof where, " && cp * dp %% ep == 0");
        }
    }
    json_t *grid = options->around ? grid_around(base, scenario, context, strategy)
                                   : grid_of(scenario, context, strategy, gpus, options->wide);
    pin(grid, base, options);
    json_t *document = sp_json_object(SP_JSON("schema", SWEEP_SCHEMA),
                                      SP_JSON("base", base_of(base, scenario, options, name)),
                                      SP_JSON("grid", grid), SP_JSON("where", where));
    return sweep_spec_from_json(document, scenario->source, spec, err);
}

// ---- the grid: its points ----

// A search, or a budget of tokens with another schedule than the first.
static bool is_late(const sweep_layouts_options *options, const sweep_spec *spec, int strategy,
                    const int64_t digit[SWEEP_AXES])
{
    sp_strategy_kind kind = sp_strategy_find(options->strategies[strategy])->kind;
    bool other = false;
    for (int a = 0; a < spec->axis_count; a++) {
        bool schedule = strcmp(spec->axes[a].path, "schedule.kind") == 0 ||
                        strcmp(spec->axes[a].path, "parallel.chunks_per_rank") == 0;
        other = other || (schedule && digit[a] > 0);
    }
    return kind == SP_STRATEGY_SEARCH || (kind == SP_STRATEGY_BUDGETS && other);
}

static sp_status list_points(const sweep_layouts_options *options, sweep_layouts *all, int strategy,
                             sp_error *err)
{
    sweep_cursor cursor;
    bool found = false;
    int64_t count = 0;
    sp_status status = sweep_spec_count(&all->spec[strategy], &count, err);
    size_t capacity = (size_t)all->count;
    if (status != SP_OK) {
        return status;
    }
    sp_reserve((void **)&all->point, &capacity, (size_t)(all->count + count) + 1,
               sizeof *all->point);
    sweep_cursor_begin(&cursor, &all->spec[strategy]);
    for (status = sweep_cursor_next(&cursor, &found, err); status == SP_OK && found;
         status = sweep_cursor_next(&cursor, &found, err)) {
        all->point[all->count++] =
            (sweep_layout){.strategy = strategy,
                           .combination = cursor.combination,
                           .late = is_late(options, &all->spec[strategy], strategy, cursor.digit)};
    }
    return status;
}

// Makes the spec of a strategy, the one after those that are made, and appends its points.
// `context`: that of the batches, the longest sample where none is stated.
static sp_status list_layouts(const json_t *base, const sp_scenario *scenario, int64_t context,
                              const sweep_layouts_options *options, int strategy,
                              sweep_layouts *layouts, sp_error *err)
{
    sp_status status =
        spec_of(base, scenario, context, options, strategy, &layouts->spec[strategy], err);
    layouts->spec_count += status == SP_OK;
    return status == SP_OK ? list_points(options, layouts, strategy, err) : status;
}

// ---- bounds of points ----

enum { DEGREES = 4, DP_AXIS = 3 }; // axes of a layout alone, and which of them is dp

// The combination of the first axes at a point.
static int64_t work_of(const finder *f, const sweep_layout *point)
{
    const sweep_spec *spec = &f->layouts->spec[point->strategy];
    int64_t inner = 1;
    for (int a = f->axes; a < spec->axis_count; a++) {
        inner *= spec->axes[a].count;
    }
    return point->combination / inner;
}

// Pure work depends on degrees and recomputation, not on strategy, schedule or chunks.
static sp_status bound_one(void *context, int worker, int job, sp_error *err)
{
    finder *f = context;
    sp_scenario scenario;
    sp_error own = {0};
    int64_t digit[SWEEP_AXES];
    int64_t work = f->wanted[job];
    double bound_s = 0.0;
    sweep_spec_digits(&f->layouts->spec[0], work * f->inner, digit);
    json_t *document = sweep_evaluator_scenario(&f->evaluator[0], worker, digit);
    f->bound_ms[work] = 0.0;
    sp_status status =
        sp_scenario_from_json_cached(document, "layout", f->evaluator[0].files, &scenario, &own);
    json_decref(document);
    if (status == SP_OK) {
        status = sp_evaluate_work_bound(&scenario, &f->batches, &bound_s, &own);
        f->bound_ms[work] = status == SP_OK ? bound_s * 1e3 : 0.0;
        sp_scenario_fini(&scenario);
    }
    return sp_status_is_fatal(status) ? sp_error_set(err, status, "%s", own.message[0]) : SP_OK;
}

// Data-parallel ranks over the most that work where each sample is trained by one: the work is
// spread over so many fewer.
static double idle_factor(const finder *f, const sweep_layout *point)
{
    const sweep_spec *spec = &f->layouts->spec[point->strategy];
    int64_t digit[SWEEP_AXES];
    size_t most = 1;
    for (int b = 0; b < f->batches.count; b++) {
        most = f->batches.batch[b].count > most ? f->batches.batch[b].count : most;
    }
    sweep_spec_digits(spec, point->combination, digit);
    const json_t *dp = json_array_get(spec->axes[DP_AXIS].values, (size_t)digit[DP_AXIS]);
    return fmax(json_number_value(dp) / (double)most, 1.0);
}

static bool spreads_experts(const sweep_spec *spec)
{
    bool found = false;
    for (int a = 0; a < spec->axis_count; a++) {
        found = found || strcmp(spec->axes[a].path, "parallel.ep") == 0;
    }
    return found;
}

static sp_status bound_points(finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    f->works = 1;
    f->alike = 1;
    f->axes = WORK_AXES + f->options->wide + spreads_experts(&all->spec[0]);
    f->inner = 1;
    for (int a = 0; a < all->spec[0].axis_count; a++) {
        *(a < f->axes ? &f->works : &f->inner) *= all->spec[0].axes[a].count;
        f->alike *= a >= DEGREES && a < f->axes ? all->spec[0].axes[a].count : 1;
    }
    f->bound_ms = sp_calloc((size_t)f->works, sizeof *f->bound_ms);
    f->wanted = sp_calloc((size_t)f->works, sizeof *f->wanted);
    for (int64_t i = 0; i < all->count; i++) {
        int64_t work = work_of(f, &all->point[i]);
        if (f->bound_ms[work] == 0.0) {
            f->bound_ms[work] = -1.0;
            f->wanted[f->wanted_count++] = work;
        }
    }
    sp_status status =
        sp_parallel_for(f->options->threads, (int)f->wanted_count, bound_one, f, err);
    for (int64_t i = 0; status == SP_OK && i < all->count; i++) {
        // Documents that are cut see less of each other: less work than the batch has.
        const char *name = f->options->strategies[all->point[i].strategy];
        const sp_strategy *strategy = sp_strategy_find(name);
        double idle = strategy->kind == SP_STRATEGY_ROWS ? idle_factor(f, &all->point[i]) : 1.0;
        all->point[i].bound_ms =
            strategy->joins_documents ? 0.0 : idle * f->bound_ms[work_of(f, &all->point[i])];
    }
    return status;
}

// ---- which points are evaluated, with how much effort, and of which blocks are counted ----

enum {
    MOST_ALIKE = 2,   // survivors of the same degrees
    SEARCH_BLOCK = 8, // points that are searched with all effort before the fastest is looked for
    COUNT_BLOCK = 4,  // or counted
};

// A search with all effort is taken to find no less than this share of what a hurried one found:
// where that fits well, and where memory is short. No search was seen to find less than 0.95 where
// memory was not short.
static const double least_share = 0.9;
static const double least_short_share = 0.7;

// Cheap points first, then small bounds; in the order of the points where these are equal.
static int by_promise(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    if (p->late != q->late) {
        return p->late ? 1 : -1;
    }
    return p->bound_ms != q->bound_ms ? (p->bound_ms > q->bound_ms ? 1 : -1) : (p > q) - (p < q);
}

// Blocks that are not counted yet may fit, and then it does not wait for the allocator.
static double time_of(const sweep_layout *point)
{
    const sweep_trial *d = &point->trial;
    double unknown_ms = point->counted ? 0.0 : d->stall_ms;
    return sweep_whole_ms(d) * (1.0 - unknown_ms / d->figure[SWEEP_ITERATION_MS]);
}

// With the risk of running out of memory, by what is known of it.
static double expected_of(const sweep_layout *point)
{
    return time_of(point) / sp_fit_chance(point->trial.figure[SWEEP_FIT_PROBABILITY]);
}

static int by_time(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    return time_of(p) < time_of(q) ? -1 : time_of(q) < time_of(p) ? 1 : (p > q) - (p < q);
}

static int by_expected(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    double of_p = expected_of(p);
    double of_q = expected_of(q);
    return of_p != of_q ? (of_p > of_q ? 1 : -1) : (p > q) - (p < q);
}

static sp_status evaluate_one(void *context, int worker, int job, sp_error *err)
{
    finder *f = context;
    sweep_layout *point = f->block[job];
    const sweep_evaluator *evaluator = &f->evaluator[point->strategy];
    sweep_trial trial;
    sp_status status =
        sweep_evaluate_point(evaluator, worker, point->combination, &trial, NULL, err);
    // One that is stopped stays what it was.
    if (status == SP_OK) {
        point->trial = trial;
        point->evaluated = true;
        point->hurried = evaluator->options.effort_percent > 0;
        point->counted = evaluator->options.allocator_peak;
    }
    return status;
}

// Evaluates those of a block, at a share of the effort (0: all) of strategies that search by
// effort; `counts`: with PyTorch's blocks.
static sp_status evaluate_block(finder *f, sweep_layout **block, int count, int effort_percent,
                                bool counts, sp_error *err)
{
    for (int s = 0; s < f->options->strategy_count; s++) {
        const sp_strategy *strategy = sp_strategy_find(f->options->strategies[s]);
        f->evaluator[s].options.effort_percent = strategy->by_effort ? effort_percent : 0;
        f->evaluator[s].options.allocator_peak = counts;
    }
    f->block = block;
    return sp_parallel_for(f->options->threads, count, evaluate_one, f, err);
}

// Bytes that fit may be lost to gaps between blocks that were not counted.
static bool must_count(const finder *f, const sweep_layout *point)
{
    return !point->counted && point->strategy != f->scout;
}

static bool is_fastest(const finder *f, const sweep_layout *point)
{
    return point->trial.status == SWEEP_OK && expected_of(point) < f->best_ms;
}

static void take_fastest(finder *f, sweep_layout *const *block, int count)
{
    for (int i = 0; i < count; i++) {
        if (is_fastest(f, block[i]) && !must_count(f, block[i]) &&
            block[i]->trial.fits != SP_FITS_TIGHT) {
            f->best_ms = expected_of(block[i]);
        }
    }
}

// Counts the blocks of what would be the fastest, until one of these fits.
static sp_status count_fastest(finder *f, sweep_layout *const *block, int count, sp_error *err)
{
    sweep_layout *open[BLOCK];
    int opened = 0;
    sp_status status = SP_OK;
    for (int i = 0; i < count; i++) {
        if (must_count(f, block[i]) && !block[i]->hurried && is_fastest(f, block[i])) {
            open[opened++] = block[i];
        }
    }
    qsort((void *)open, (size_t)opened, sizeof *open, by_expected);
    for (int from = 0;
         status == SP_OK && from < opened && is_fastest(f, open[from]) && f->counted < MOST_COUNTED;
         from += COUNT_BLOCK) {
        int counted = opened - from < COUNT_BLOCK ? opened - from : COUNT_BLOCK;
        status = evaluate_block(f, open + from, counted, 0, true, err);
        take_fastest(f, open + from, counted);
        f->counted += counted;
    }
    return status;
}

// Takes out of the block what cannot be the fastest, and no survivors; returns how many stay.
static int keep_promising(finder *f, sweep_layout **block, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (!f->options->exhaustive && block[i]->bound_ms > f->best_ms) {
            f->layouts->left_out++;
        } else if (f->survives != NULL && !f->survives[work_of(f, block[i])]) {
            f->layouts->dropped++;
            block[i]->dropped = true;
        } else {
            block[kept++] = block[i];
        }
    }
    return kept;
}

// Those in `order` from `from` up to `end`.
static sp_status evaluate_points(finder *f, int64_t from, int64_t end, int effort_percent,
                                 sp_progress *progress, sp_error *err)
{
    sp_status status = SP_OK;
    while (status == SP_OK && from < end) {
        sweep_layout **block = f->order + from;
        int count = (int)(end - from < BLOCK ? end - from : BLOCK);
        int kept = keep_promising(f, block, count);
        status = evaluate_block(f, block, kept, effort_percent, false, err);
        take_fastest(f, block, kept);
        if (status == SP_OK) {
            status = count_fastest(f, block, kept, err);
        }
        from += count;
        if (isfinite(f->best_ms)) {
            sp_progress_note(progress, "best %.4g s", f->best_ms / 1e3);
        }
        sp_progress_update(progress, from);
    }
    return status;
}

// Its bytes fit, or lack at most half of the memory.
static bool may_fit(const sweep_trial *d)
{
    double limit_gib = d->figure[SWEEP_PEAK_MEMORY_GIB] + d->figure[SWEEP_MEMORY_MARGIN_GIB];
    return d->status == SWEEP_OK ||
           (d->status == SWEEP_OOM && !(d->figure[SWEEP_MEMORY_MARGIN_GIB] < -0.5 * limit_gib));
}

// Takes the fastest cheap point of each combination of the first axes; the best of these survive,
// not too many of the same degrees.
static void choose_survivors(finder *f)
{
    bool any = false;
    double *time_ms = sp_calloc((size_t)f->works, sizeof *time_ms);
    f->survives = sp_calloc((size_t)f->works, sizeof *f->survives);
    for (int64_t w = 0; w < f->works; w++) {
        time_ms[w] = (double)HUGE_VAL;
    }
    for (int64_t i = 0; i < f->layouts->count; i++) {
        const sweep_layout *point = &f->layouts->point[i];
        if (!point->late && point->evaluated && may_fit(&point->trial)) {
            int64_t work = work_of(f, point);
            time_ms[work] = fmin(time_ms[work], sweep_whole_ms(&point->trial));
        }
    }
    for (int n = 0; n < f->options->survivors;) {
        int64_t fastest = 0;
        for (int64_t w = 1; w < f->works; w++) {
            fastest = time_ms[w] < time_ms[fastest] ? w : fastest;
        }
        if (!isfinite(time_ms[fastest])) {
            break;
        }
        time_ms[fastest] = (double)HUGE_VAL;
        // Works of the same degrees lie side by side.
        int64_t first = fastest / f->alike * f->alike;
        int alike = 0;
        for (int64_t w = first; w < first + f->alike; w++) {
            alike += f->survives[w];
        }
        f->survives[fastest] = alike < MOST_ALIKE;
        n += alike < MOST_ALIKE;
        any = true;
    }
    sp_free(time_ms);
    if (!any && f->scout >= 0) {
        sp_free(f->survives); // the scout runs nowhere, and tells nothing of the others
        f->survives = NULL;
    }
}

// May a search with all effort make it the fastest?
static bool may_win(const finder *f, const sweep_layout *point)
{
    bool fits = point->trial.status == SWEEP_OK && point->trial.fits != SP_FITS_TIGHT;
    double share = fits ? least_share : least_short_share;
    return point->bound_ms <= f->best_ms && share * time_of(point) <= f->best_ms;
}

// Hurried searches again with all effort, the fastest first, as long as they may win.
static sp_status search_winners(finder *f, sp_error *err)
{
    int64_t count = 0;
    sp_status status = SP_OK;
    for (int64_t i = 0; i < f->layouts->count; i++) {
        sweep_layout *point = &f->layouts->point[i];
        if (point->evaluated && point->hurried && may_fit(&point->trial)) {
            f->order[count++] = point;
        }
    }
    qsort((void *)f->order, (size_t)count, sizeof *f->order, by_time);
    for (int64_t from = 0; status == SP_OK && from < count; from += SEARCH_BLOCK) {
        sweep_layout *block[SEARCH_BLOCK];
        int kept = 0;
        for (int64_t i = from; i < count && i < from + SEARCH_BLOCK; i++) {
            block[kept] = f->order[i];
            kept += may_win(f, f->order[i]);
        }
        status = evaluate_block(f, block, kept, 0, true, err);
        take_fastest(f, block, kept);
    }
    return status;
}

// Evaluates the points that may be the fastest.
static sp_status evaluate_all(finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    sp_progress progress;
    int64_t rows = 0;
    for (int64_t i = 0; i < all->count; i++) {
        f->order[i] = &all->point[i];
    }
    qsort((void *)f->order, (size_t)all->count, sizeof *f->order, by_promise);
    while (rows < all->count && !f->order[rows]->late) {
        rows++;
    }
    bool chooses = rows > 0 && f->options->survivors > 0 && !f->options->exhaustive;
    char label[64];
    bool alone = f->options->strategy_count == 1;
    snprintf(label, sizeof label, "trying layouts%s%s", alone ? " of " : "",
             alone ? f->options->strategies[0] : "");
    sp_progress_begin(&progress, label, all->count, f->options->quiet);
    sp_progress_update(&progress, 0);
    sp_status status = evaluate_points(f, 0, rows, 0, &progress, err);
    if (status == SP_OK && chooses) {
        choose_survivors(f);
    }
    if (f->scout >= 0) {
        f->best_ms = (double)HUGE_VAL;
        all->left_out = 0;
    }
    if (status == SP_OK) {
        status = evaluate_points(f, rows, all->count, chooses ? HURRY_PERCENT : 0, &progress, err);
    }
    if (status == SP_OK && chooses) {
        status = search_winners(f, err);
    }
    sp_progress_end(&progress);
    return status;
}

// ---- the order of the points that fit, and what is nearest where none does ----

static int by_trial(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    return sweep_is_better(&p->trial, &q->trial)   ? -1
           : sweep_is_better(&q->trial, &p->trial) ? 1
                                                   : (p > q) - (p < q);
}

// As its row shows it, without the risk of running out of memory.
static int by_shown_time(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    double ms = sweep_whole_ms(&p->trial) - sweep_whole_ms(&q->trial);
    double gib = p->trial.figure[SWEEP_PEAK_MEMORY_GIB] - q->trial.figure[SWEEP_PEAK_MEMORY_GIB];
    double first = ms != 0.0 ? ms : gib;
    return first != 0.0 ? (first > 0.0 ? 1 : -1) : (p > q) - (p < q);
}

sweep_layout **sweep_layouts_front(const sweep_layouts *layouts, int64_t *count)
{
    size_t bytes = (size_t)layouts->ranked_count * sizeof *layouts->ranked;
    sweep_layout **front = sp_calloc((size_t)layouts->ranked_count + 1, sizeof *front);
    double least_gib = (double)HUGE_VAL;
    *count = 0;
    memcpy((void *)front, (const void *)layouts->ranked, bytes);
    qsort((void *)front, (size_t)layouts->ranked_count, sizeof *front, by_shown_time);
    for (int64_t i = 0; i < layouts->ranked_count; i++) {
        sweep_layout *point = front[i];
        double gib = point->trial.figure[SWEEP_PEAK_MEMORY_GIB];
        if (point->trial.fits != SP_FITS_TIGHT && gib < least_gib) {
            front[(*count)++] = point;
            least_gib = gib;
        }
    }
    return front;
}

static void rank_points(sweep_layouts *all)
{
    memset(all->of_status, 0, sizeof all->of_status);
    all->ranked_count = 0;
    for (int64_t i = 0; i < all->count; i++) {
        sweep_layout *point = &all->point[i];
        all->of_status[point->trial.status] += point->evaluated;
        if (point->evaluated && point->trial.status == SWEEP_OK) {
            all->ranked[all->ranked_count++] = point;
        }
    }
    qsort((void *)all->ranked, (size_t)all->ranked_count, sizeof *all->ranked, by_trial);
}

// Adds those of the first `shown` that are not counted yet; room for BLOCK of them.
static int add_uncounted(const finder *f, sweep_layout **points, int64_t shown,
                         sweep_layout **block, int count)
{
    for (int64_t i = 0; i < shown && count < BLOCK; i++) {
        bool is_new = must_count(f, points[i]);
        for (int b = 0; b < count; b++) {
            is_new = is_new && block[b] != points[i];
        }
        block[count] = points[i];
        count += is_new;
    }
    return count;
}

// Those that are shown and not counted yet.
static int list_uncounted(const finder *f, sweep_layout **block)
{
    const sweep_layouts *all = f->layouts;
    int64_t shown = f->options->shown > 0 ? f->options->shown : 1;
    int64_t front_count = 0;
    sweep_layout **front = sweep_layouts_front(all, &front_count);
    int64_t in_front = f->options->shown < front_count ? f->options->shown : front_count;
    shown = shown < all->ranked_count ? shown : all->ranked_count;
    int count = add_uncounted(f, all->ranked, shown, block, 0);
    count = add_uncounted(f, front, in_front, block, count);
    sp_free((void *)front);
    return count;
}

// Ranks all, and again as long as blocks of those that are shown are to be counted.
static sp_status rank_all(finder *f, sp_error *err)
{
    sweep_layout *block[BLOCK];
    sp_status status = SP_OK;
    int count = 1;
    for (rank_points(f->layouts); status == SP_OK && count > 0 && f->counted < MOST_COUNTED;
         rank_points(f->layouts)) {
        int alike = 0;
        count = list_uncounted(f, block);
        // One kind at a time: hurried searches are repeated as they were.
        for (int i = 0; i < count; i++) {
            if (block[i]->hurried == block[0]->hurried) {
                block[alike++] = block[i];
            }
        }
        if (alike > 0) {
            status =
                evaluate_block(f, block, alike, block[0]->hurried ? HURRY_PERCENT : 0, true, err);
        }
        f->counted += alike;
    }
    return status;
}

// Does a lack less memory than b, or has it a plan or a scenario at least where b has none?
static bool is_nearer(const sweep_layout *a, const sweep_layout *b)
{
    const sweep_trial *of_a = &a->trial;
    const sweep_trial *of_b = &b->trial;
    return of_a->status != of_b->status
               ? of_a->status < of_b->status
               : of_a->figure[SWEEP_MEMORY_MARGIN_GIB] > of_b->figure[SWEEP_MEMORY_MARGIN_GIB];
}

// Finds, where nothing fits, what is nearest, the first of equals, and what it lacks.
static sp_status find_reason(finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    const sweep_layout *nearest = NULL;
    for (int64_t i = 0; all->ranked_count == 0 && i < all->count; i++) {
        const sweep_layout *point = &all->point[i];
        bool better = nearest == NULL || is_nearer(point, nearest);
        nearest = point->evaluated && better ? point : nearest;
    }
    all->nearest = nearest;
    if (nearest == NULL) {
        return SP_OK;
    }
    sweep_trial trial;
    sweep_evaluator *evaluator = &f->evaluator[nearest->strategy];
    evaluator->options.no_causes = false;
    evaluator->options.effort_percent = nearest->hurried ? HURRY_PERCENT : 0;
    sp_status status = sweep_evaluate_point(evaluator, 0, nearest->combination, &trial, NULL, err);
    snprintf(all->reason, sizeof all->reason, "%s", trial.reason);
    return status;
}

// ---- the search ----

// Cheap, in rows and any schedule: its layouts tell which are fast for others.
static const char scout_strategy[] = "packed";

// The scout's points are the last ones of the list, and nobody asked for them.
static void forget_scout(finder *f)
{
    sweep_layouts *all = f->layouts;
    while (f->scout >= 0 && all->count > 0 && all->point[all->count - 1].strategy == f->scout) {
        all->count--;
    }
}

// A stop is no error: points that were evaluated before it are an answer.
static sp_status unless_stopped(sweep_layouts *all, sp_status status, sp_error *err)
{
    if (status != SP_ERR_STOPPED) {
        return status;
    }
    all->stopped = true;
    sp_error_clear(err);
    return SP_OK;
}

static sp_status find(finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    sp_status status = unless_stopped(all, bound_points(f, err), err);
    f->order = sp_calloc((size_t)all->count + 1, sizeof *f->order);
    all->ranked = sp_calloc((size_t)all->count + 1, sizeof *all->ranked);
    if (status == SP_OK && !all->stopped) {
        status = unless_stopped(all, evaluate_all(f, err), err);
    }
    forget_scout(f);
    if (status == SP_OK) {
        status = unless_stopped(all, rank_all(f, err), err);
    }
    return status == SP_OK && !all->stopped ? find_reason(f, err) : status;
}

// Where all strategies search and survivors are wanted, none would choose them.
static bool needs_scout(const sweep_layouts_options *options)
{
    bool needs = options->survivors > 0 && !options->exhaustive;
    for (int s = 0; needs && s < options->strategy_count; s++) {
        needs = sp_strategy_find(options->strategies[s])->kind == SP_STRATEGY_SEARCH;
    }
    return needs;
}

static sp_status find_layouts(finder *f, const json_t *base, const sp_scenario *scenario,
                              sp_error *err)
{
    const sweep_layouts_options *options = f->options;
    sweep_layouts *layouts = f->layouts;
    size_t count = (size_t)options->strategy_count;
    layouts->spec = sp_calloc(count, sizeof *layouts->spec);
    f->evaluator = sp_calloc(count, sizeof *f->evaluator);
    sp_status status = sp_evaluate_batches(scenario, &f->batches, err);
    for (int s = 0; status == SP_OK && s < options->strategy_count; s++) {
        status = list_layouts(base, scenario, f->batches.context, options, s, layouts, err);
        if (status == SP_OK) {
            sweep_evaluator_init(&f->evaluator[s], &layouts->spec[s], options->threads);
            f->evaluator[s].options.names_sample = false; // the reason of one point alone is told
            // Else of all points that are short of memory.
            f->evaluator[s].options.allocator_if_tight = false;
        }
    }
    if (status == SP_OK) {
        status = find(f, err);
    }
    for (size_t s = 0; f->evaluator != NULL && s < count; s++) {
        sweep_evaluator_fini(&f->evaluator[s]);
    }
    sp_free(f->evaluator);
    sp_free(f->bound_ms);
    sp_free(f->wanted);
    sp_free(f->survives);
    sp_free((void *)f->order);
    sp_batches_fini(&f->batches);
    return status;
}

sp_status sweep_layouts_find(const json_t *base, const sp_scenario *scenario,
                             const sweep_layouts_options *options, sweep_layouts *layouts,
                             sp_error *err)
{
    sweep_layouts_options with_scout = *options;
    finder f = {
        .options = &with_scout, .layouts = layouts, .best_ms = (double)HUGE_VAL, .scout = -1};
    *layouts = (sweep_layouts){0};
    const char **strategies =
        (const char **)sp_calloc((size_t)options->strategy_count + 1, sizeof *strategies);
    for (int s = 0; s < options->strategy_count; s++) {
        strategies[s] = options->strategies[s];
    }
    if (needs_scout(options)) {
        f.scout = with_scout.strategy_count++;
        strategies[f.scout] = scout_strategy;
    }
    with_scout.strategies = strategies;
    sp_status status = find_layouts(&f, base, scenario, err);
    sp_free((void *)strategies);
    return status;
}

void sweep_layouts_fini(sweep_layouts *layouts)
{
    for (int s = 0; s < layouts->spec_count; s++) {
        sweep_spec_fini(&layouts->spec[s]);
    }
    sp_free(layouts->spec);
    sp_free(layouts->point);
    sp_free((void *)layouts->ranked);
    *layouts = (sweep_layouts){0};
}

json_t *sweep_layouts_settings(const sweep_layouts *layouts, const sweep_layout *point)
{
    int64_t digit[SWEEP_AXES];
    const sweep_spec *spec = &layouts->spec[point->strategy];
    sweep_spec_digits(spec, point->combination, digit);
    return sweep_spec_point(spec, digit);
}

// Even groups stand in the base for points that interleave chunks; elsewhere they have no effect.
static void leave_out_unused_group(json_t *document)
{
    json_t *schedule = json_object_get(document, "schedule");
    const char *group = json_string_value(json_object_get(schedule, "group"));
    sp_scenario scenario = {0};
    if (group == NULL || strcmp(group, "even") != 0) {
        return;
    }
    if (sp_scenario_from_json(document, "tune", NULL, 0, &scenario, &(sp_error){0}) == SP_OK &&
        (scenario.schedule.kind != SP_SCHEDULE_INTERLEAVED || scenario.layout.chunks == 1)) {
        json_object_del(schedule, "group");
        if (json_object_size(schedule) == 0) {
            json_object_del(document, "schedule");
        }
    }
    sp_scenario_fini(&scenario);
}

json_t *sweep_layouts_document(const sweep_layouts *layouts, const sweep_layout *point)
{
    int64_t digit[SWEEP_AXES];
    const sweep_spec *spec = &layouts->spec[point->strategy];
    sweep_spec_digits(spec, point->combination, digit);
    json_t *shared = sweep_spec_scenario(spec, spec->document, digit);
    json_t *document = json_deep_copy(shared);
    json_decref(shared);
    leave_out_unused_group(document);
    return document;
}

// ---- around the fastest ----

enum { MOST_STARTS = 6 };

static bool same_work(const sweep_layouts *layouts, const sweep_layout *a, const sweep_layout *b)
{
    int64_t p[SWEEP_AXES];
    int64_t q[SWEEP_AXES];
    sweep_spec_digits(&layouts->spec[a->strategy], a->combination, p);
    sweep_spec_digits(&layouts->spec[b->strategy], b->combination, q);
    return memcmp(p, q, WORK_AXES * sizeof p[0]) == 0;
}

// The fastest points, none of the degrees and recomputation of another.
static int choose_starts(const sweep_layouts *layouts, const sweep_layout *start[MOST_STARTS])
{
    int count = 0;
    for (int64_t i = 0; i < layouts->ranked_count && count < MOST_STARTS; i++) {
        bool is_new = true;
        for (int s = 0; s < count; s++) {
            is_new = is_new && !same_work(layouts, layouts->ranked[i], start[s]);
        }
        if (is_new) {
            start[count++] = layouts->ranked[i];
        }
    }
    return count;
}

// Layouts around a point; none where there is nothing to try.
static sp_status look_around(const sweep_layouts_options *options, const char *source,
                             const sweep_layouts *layouts, const sweep_layout *start,
                             sweep_layouts *found, sp_error *err)
{
    sweep_layouts_options around = *options;
    sp_scenario scenario;
    json_t *base = sweep_layouts_document(layouts, start);
    *found = (sweep_layouts){0};
    around.around = true;
    sp_status status = sp_scenario_from_json(base, source, NULL, 0, &scenario, err);
    if (status == SP_OK) {
        status = sweep_layouts_find(base, &scenario, &around, found, err);
        sp_scenario_fini(&scenario);
    }
    json_decref(base);
    return status;
}

// Keeps the layouts with the faster best one in *best.
static void keep_better(sweep_layouts *best, sweep_layouts *found)
{
    bool better = found->ranked_count > 0 &&
                  (best->ranked_count == 0 ||
                   sweep_is_better(&found->ranked[0]->trial, &best->ranked[0]->trial));
    bool stopped = best->stopped || found->stopped;
    if (better) {
        sweep_layouts swapped = *best;
        *best = *found;
        *found = swapped;
    }
    best->stopped = stopped;
    sweep_layouts_fini(found);
}

sp_status sweep_layouts_refine(const sweep_layouts_options *options, const char *source,
                               sweep_layouts *layouts, sp_error *err)
{
    if (sp_strategy_find(options->strategies[0])->by_effort) {
        return SP_OK; // searches by itself what is tried here
    }
    const sweep_layout *start[MOST_STARTS];
    int count = choose_starts(layouts, start);
    sweep_layouts best = {0};
    sweep_layouts found;
    sp_status status = SP_OK;
    for (int s = 0; status == SP_OK && s < count && !best.stopped; s++) {
        status = look_around(options, source, layouts, start[s], &found, err);
        keep_better(&best, &found);
    }
    if (status == SP_OK && best.ranked_count > 0 && !best.stopped) {
        status = look_around(options, source, &best, best.ranked[0], &found, err);
        keep_better(&best, &found);
    }
    keep_better(layouts, &best);
    return status;
}
