#include "experiments/sweep/layouts_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "solver/strategy.h"

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

// ---- the layouts as a sweep ----

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

// The axes that the bound depends on come first, the same for every strategy (work_of).
static json_t *grid_of(const sp_scenario *scenario, int64_t context, const sp_strategy *strategy,
                       int64_t ranks, bool wide)
{
    int64_t most_pp = scenario->model.layers < MOST_PP ? scenario->model.layers : MOST_PP;
    json_t *grid = json_object();
    sp_json_put(grid, "parallel.tp", divisors(ranks, scenario->cluster.gpus_per_node, true));
    sp_json_put(grid, "parallel.cp", divisors(ranks, MOST_CP, true));
    sp_json_put(grid, "parallel.pp", divisors(ranks, most_pp, false));
    sp_json_put(grid, "parallel.dp", divisors(ranks, ranks, false));
    sp_json_put(grid, "memory.recompute", json_pack("[s, s, s]", "none", "attention", "full"));
    if (wide) {
        sp_json_put(grid, "parallel.zero", json_pack("[i, i, i]", 1, 2, 3));
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

// What the base has in a section; 0: nothing.
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
           !strategy->brings_exchange && strategy->choose_exchange == NULL;
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
    json_t *grid = json_object();
    sp_json_put(grid, "parallel.tp", json_pack("[i]", layout->tp));
    sp_json_put(grid, "parallel.cp", json_pack("[i]", layout->cp));
    sp_json_put(grid, "parallel.pp", json_pack("[i]", layout->pp));
    sp_json_put(grid, "parallel.dp", json_pack("[i]", layout->dp));
    sp_json_put(grid, "memory.recompute", json_pack("[s]", recompute));
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
        sp_json_put(grid, "schedule.slices", multiples(layout->pp, MOST_SLICES));
        sp_json_put(grid, "schedule.exchange", json_pack("[b, b]", false, true));
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

// ---- what is stated ----

// What the base has at a dotted path, where an override put it there, or around or inside it; else
// NULL.
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
    json_t *grid = options->around ? grid_around(base, scenario, context, strategy)
                                   : grid_of(scenario, context, strategy, gpus, options->wide);
    pin(grid, base, options);
    json_t *document =
        json_pack("{s: s, s: o, s: o, s: s}", "schema", SWEEP_SCHEMA, "base",
                  base_of(base, scenario, options, name), "grid", grid, "where", where);
    return document != NULL ? sweep_spec_from_json(document, scenario->source, spec, err)
                            : sp_error_no_memory(err, "layouts");
}

// ---- its points ----

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

sp_status sweep_layouts_list(const json_t *base, const sp_scenario *scenario, int64_t context,
                             const sweep_layouts_options *options, int strategy,
                             sweep_layouts *layouts, sp_error *err)
{
    sp_status status =
        spec_of(base, scenario, context, options, strategy, &layouts->spec[strategy], err);
    layouts->spec_count += status == SP_OK;
    return status == SP_OK ? list_points(options, layouts, strategy, err) : status;
}
