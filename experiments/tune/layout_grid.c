// The grid of points that a search of layouts tries.
#include "experiments/tune/layout_grid.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "solver/strategy.h"

enum {
    MOST_CP = 16,
    MOST_PP = 64,
    LEAST_BUDGET = 4096,
    MOST_BUDGETS = 5,
    MOST_ROWS = 4, // of a micro-batch
    MICROBATCH_TOKENS = 16384,
    CONDITION = 1024,
    BUDGET_STEP = 128, // tokens: a budget that divides in eighths stays one of whole tiles
    MOST_SLICES = 4,   // of a row, times the pipeline ranks
    MOST_RETAINED = 8, // chunks
};

// ---- layouts as a sweep ----

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

// Schedules of strategies that bring none: those of every search come first.
static int tried_schedules(const sweep_layouts_options *options,
                           const char *names[SP_SCHEDULE_KINDS])
{
    bool wide = options->wide || options->around;
    int count = 0;
    if (options->schedules != NULL) {
        memcpy(names, options->schedules, (size_t)options->schedule_count * sizeof *names);
        return options->schedule_count;
    }
    for (sp_tried tried = SP_TRIED; tried <= (wide ? SP_TRIED_WIDE : SP_TRIED); tried++) {
        for (int kind = 0; kind < SP_SCHEDULE_KINDS; kind++) {
            if (sp_schedule_traits_of((sp_schedule_kind)kind).tried == tried) {
                names[count++] = sp_schedule_names[kind];
            }
        }
    }
    return count;
}

static int chunks_of(const char *schedule)
{
    int kind = 0;
    while (strcmp(sp_schedule_names[kind], schedule) != 0) {
        kind++;
    }
    return sp_schedule_traits_of((sp_schedule_kind)kind).chunks;
}

// Appends the condition that a schedule runs as many chunks as it needs: 0 stands for several.
// Without a pipeline 1F1B, the first of the list above, stands for all of it: none is faster there,
// or keeps less. Of schedules that are stated none stands for another: GPipe keeps all
// micro-batches.
static void add_schedules(const sweep_layouts_options *options, char where[CONDITION])
{
    const char *names[SP_SCHEDULE_KINDS];
    int count = tried_schedules(options, names);
    bool stated = options->schedules != NULL;
    sp_append(where, CONDITION, " && (");
    for (int i = 0; i < count; i++) {
        int chunks = chunks_of(names[i]);
        sp_append(where, CONDITION, "%s%sschedule.kind == '%s' && chunks_per_rank %s %d",
                  i > 0 ? " || " : "", i > 0 && !stated ? "pp > 1 && " : "", names[i],
                  chunks > 0 ? "==" : ">", chunks > 0 ? chunks : !stated);
    }
    sp_append(where, CONDITION, ")");
}

static json_t *list_schedules(const sweep_layouts_options *options)
{
    const char *names[SP_SCHEDULE_KINDS];
    int count = tried_schedules(options, names);
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        json_array_append_new(list, json_string(names[i]));
    }
    return list;
}

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

// From the base's own stage, where it shards nothing, or the first that frameworks have to the
// last.
static json_t *zero_stages(const sp_scenario *scenario)
{
    int first = sp_stack_is_fsdp(&scenario->memory.stack) ? 2 : 1;
    json_t *list = json_array();
    for (int stage = scenario->layout.zero < first ? scenario->layout.zero : first; stage <= 3;
         stage++) {
        json_array_append_new(list, json_integer(stage));
    }
    return list;
}

// That a model of this kind can have, the least first.
static json_t *recomputations(const sp_model *model)
{
    json_t *names = json_array();
    for (int m = 0; m < SP_RECOMPUTE_MODES; m++) {
        if (sp_recompute_is_tried((sp_recompute)m) &&
            sp_recompute_lacks((sp_recompute)m, model, NULL) == NULL) {
            json_array_append_new(names, json_string(sp_recompute_names[m]));
        }
    }
    return names;
}

// The axes that the bound depends on come first, the same for every strategy (work_of).
static json_t *grid_of(const sp_scenario *scenario, int64_t context, const sp_strategy *strategy,
                       int64_t ranks, const sweep_layouts_options *options)
{
    bool wide = options->wide;
    int64_t most_pp = scenario->model.layers < MOST_PP ? scenario->model.layers : MOST_PP;
    json_t *grid = sp_json_object(
        SP_JSON("parallel.tp", divisors(ranks, scenario->cluster.gpus_per_node, true)),
        SP_JSON("parallel.cp", divisors(ranks, MOST_CP, true)),
        SP_JSON("parallel.pp", divisors(ranks, most_pp, false)),
        SP_JSON("parallel.dp", divisors(ranks, ranks, false)),
        SP_JSON("memory.recompute", recomputations(&scenario->model)));
    if (sp_model_most_experts(&scenario->model) > 0) {
        sp_json_put(grid, "parallel.ep",
                    wide ? expert_degrees(&scenario->model, ranks)
                         : json_pack("[i]", sp_layout_ep(&scenario->layout)));
    }
    sp_json_put(grid, "parallel.zero", zero_stages(scenario));
    if (!strategy->brings_order) {
        sp_json_put(grid, "schedule.kind", list_schedules(options));
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
                           const sp_strategy *strategy, const sweep_layouts_options *options)
{
    const sp_layout *layout = &scenario->layout;
    json_t *recompute = json_object_get(json_object_get(base, "memory"), "recompute");
    bool slimpipe = strategy->schedule == SP_SCHEDULE_SLIMPIPE;
    json_t *grid = sp_json_object(SP_JSON("parallel.tp", json_pack("[i]", layout->tp)),
                                  SP_JSON("parallel.cp", json_pack("[i]", layout->cp)),
                                  SP_JSON("parallel.pp", json_pack("[i]", layout->pp)),
                                  SP_JSON("parallel.dp", json_pack("[i]", layout->dp)),
                                  SP_JSON("memory.recompute", json_pack("[O]", recompute)));
    if (sp_model_most_experts(&scenario->model) > 0) {
        sp_json_put(grid, "parallel.ep", json_pack("[i]", sp_layout_ep(layout)));
    }
    if (!strategy->brings_order) {
        sp_json_put(grid, "schedule.kind", list_schedules(options));
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
    static const char *const budgeted[] = {"rank_tokens", "chunk_tokens"};
    for (size_t i = 0; i < sizeof budgeted / sizeof budgeted[0]; i++) {
        int64_t budget = number_of(base, "strategy", budgeted[i]);
        if (has_option(strategy, budgeted[i]) && budget > 0) {
            char path[64];
            snprintf(path, sizeof path, "strategy.%s", budgeted[i]);
            sp_json_put(grid, path, budgets_around(budget, context));
        }
    }
    if (strategy->schedule == SP_SCHEDULE_CHUNKFLOW) {
        sp_json_put(grid, "schedule.retained_chunks", divisors(MOST_RETAINED, MOST_RETAINED, true));
    }
    return grid;
}

// ---- what is stated ----

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
// so that groups must take any number, unless a launch file states it.
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
    if (scenario->workload.uniform_tokens == 0 && options->rows == 0 &&
        json_object_get(schedule, "group") == NULL) {
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
                                           : "tp * cp * pp * dp == %lld",
             (long long)gpus);
    if (!any_order) {
        add_schedules(options, where);
    }
    if (sp_model_most_experts(&scenario->model) > 0) {
        if (scenario->layout.etp > 0) {
            sp_append(where, sizeof where, " && tp * cp * dp %% (%d * ep) == 0",
                      scenario->layout.etp);
        } else {
            sp_append(where, sizeof where, " && cp * dp %% ep == 0");
        }
    }
    json_t *grid = options->around ? grid_around(base, scenario, context, strategy, options)
                                   : grid_of(scenario, context, strategy, gpus, options);
    pin(grid, base, options);
    // On one rank stages of ZeRO are one.
    const json_t *stages = json_object_get(grid, "parallel.zero");
    if (json_array_size(stages) > 1) {
        sp_append(where, sizeof where, " && (zero == %lld || cp * dp > 1)",
                  (long long)json_integer_value(json_array_get(stages, 0)));
    }
    json_t *document = sp_json_object(SP_JSON("schema", SWEEP_SCHEMA),
                                      SP_JSON("base", base_of(base, scenario, options, name)),
                                      SP_JSON("grid", grid), SP_JSON("where", where));
    return sweep_spec_from_json(document, scenario->source, spec, err);
}

// ---- axes ----

int sweep_layout_axis(const sweep_spec *spec, const char *path)
{
    for (int a = 0; a < spec->axis_count; a++) {
        if (strcmp(spec->axes[a].path, path) == 0) {
            return a;
        }
    }
    return -1;
}

bool sweep_layout_chooses(const sweep_spec *spec, const char *path)
{
    int a = sweep_layout_axis(spec, path);
    return a >= 0 && spec->axes[a].count > 1;
}

const json_t *sweep_layout_value(const sweep_spec *spec, const int64_t digit[SWEEP_AXES],
                                 const char *path)
{
    int a = sweep_layout_axis(spec, path);
    return a >= 0 ? json_array_get(spec->axes[a].values, (size_t)digit[a]) : NULL;
}

int64_t sweep_layout_number(const sweep_spec *spec, const int64_t digit[SWEEP_AXES],
                            const char *path, int64_t otherwise)
{
    const json_t *value = sweep_layout_value(spec, digit, path);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

// The value of a setting that the search chooses; NULL: it does not.
static const char *chosen_name(const sweep_spec *spec, const int64_t digit[SWEEP_AXES],
                               const char *path)
{
    return sweep_layout_chooses(spec, path)
               ? json_string_value(sweep_layout_value(spec, digit, path))
               : NULL;
}

static int64_t chosen_number(const sweep_spec *spec, const int64_t digit[SWEEP_AXES],
                             const char *path, int64_t otherwise)
{
    return sweep_layout_chooses(spec, path) ? sweep_layout_number(spec, digit, path, otherwise)
                                            : otherwise;
}

sweep_lack sweep_layout_lack(const sp_scenario *scenario, const sweep_layouts_options *options,
                             const sweep_spec *spec, int strategy, const int64_t digit[SWEEP_AXES])
{
    char lacks[SWEEP_LACKED];
    const sp_stack *stack = &scenario->memory.stack;
    const sp_workload_spec *workload = &scenario->workload;
    bool batch = sweep_layout_chooses(spec, "parallel.dp") ||
                 sweep_layout_chooses(spec, "schedule.microbatch_samples");
    sweep_asked asked = {
        .tensor = chosen_number(spec, digit, "parallel.tp", 1) > 1,
        .pipeline = chosen_number(spec, digit, "parallel.pp", 1) > 1,
        .strategy = options->strategies_stated ? NULL : options->strategies[strategy],
        .recompute = chosen_name(spec, digit, "memory.recompute"),
        .exchange = chosen_name(spec, digit, "stack.cp_overlap"),
        .zero = (int)chosen_number(spec, digit, "parallel.zero", -1),
        .samples = !batch                         ? 0
                   : workload->uniform_tokens > 0 ? workload->samples_per_batch
                                                  : options->rows,
        .dp = sweep_layout_number(spec, digit, "parallel.dp", scenario->layout.dp),
        .rows = sweep_layout_number(spec, digit, "schedule.microbatch_samples", 1)};
    if (!scenario->cp_overlap_given && asked.exchange == NULL &&
        chosen_number(spec, digit, "parallel.cp", 1) > 1) {
        asked.exchange = sp_cp_overlap_names[stack->cp_overlap];
    }
    // Without a pipeline all schedules are one.
    if (options->schedules == NULL && sweep_layout_number(spec, digit, "parallel.pp", 1) > 1) {
        asked.schedule = chosen_name(spec, digit, "schedule.kind");
    }
    const sweep_lack lack =
        options->within_stack ? sweep_lack_of(stack, &asked, lacks) : SWEEP_RUNS;
    const bool unsaid =
        options->unsaid != NULL && sp_stack_lists(options->unsaid, options->strategies[strategy]);
    return !unsaid || lack == SWEEP_LACKS_STRATEGY ? lack
           : lack == SWEEP_RUNS                    ? SWEEP_LACKS_ARGUMENT
                                                   : SWEEP_LACKS_OTHER;
}

// ---- points ----

static bool is_first(const sweep_spec *spec, const int64_t digit[SWEEP_AXES], const char *path)
{
    int a = sweep_layout_axis(spec, path);
    return a < 0 || digit[a] == 0;
}

// A search, or a budget of tokens with another schedule than the first.
static bool is_late(const sweep_layouts_options *options, const sweep_spec *spec, int strategy,
                    const int64_t digit[SWEEP_AXES])
{
    sp_strategy_kind kind = sp_strategy_find(options->strategies[strategy])->kind;
    bool other = !is_first(spec, digit, "schedule.kind") ||
                 !is_first(spec, digit, "parallel.chunks_per_rank");
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
    SP_RESERVE(all->point, capacity, (size_t)(all->count + count) + 1);
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

// ---- one point ----

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
