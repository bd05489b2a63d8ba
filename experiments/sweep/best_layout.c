#include "experiments/sweep/best_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "solver/strategy.h"

enum { MOST_CP = 16, MOST_PP = 64, LEAST_BUDGET = 4096, MOST_BUDGETS = 5, CONDITION = 256 };

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
    "schedule.kind == 'zb-h1' && chunks_per_rank == 1 || "
    "schedule.kind == 'zb-v' && chunks_per_rank == 2))";

static json_t *grid_of(const sp_scenario *scenario, const sp_strategy *strategy)
{
    int64_t ranks = sp_layout_ranks(&scenario->layout);
    int64_t most_pp = scenario->model.layers < MOST_PP ? scenario->model.layers : MOST_PP;
    int64_t context = scenario->workload.context;
    json_t *grid = json_object();
    sp_json_put(grid, "parallel.tp", divisors(ranks, scenario->cluster.gpus_per_node, true));
    sp_json_put(grid, "parallel.cp", divisors(ranks, MOST_CP, true));
    sp_json_put(grid, "parallel.pp", divisors(ranks, most_pp, false));
    sp_json_put(grid, "parallel.dp", divisors(ranks, ranks, false));
    sp_json_put(grid, "memory.recompute", json_pack("[s, s, s]", "none", "attention", "full"));
    if (!strategy->brings_order) {
        sp_json_put(grid, "schedule.kind",
                    json_pack("[s, s, s, s]", "1f1b", "interleaved", "zb-h1", "zb-v"));
    }
    if (!strategy->brings_order || strategy->schedule == SP_SCHEDULE_SLIMPIPE) {
        sp_json_put(grid, "parallel.chunks_per_rank", json_pack("[i, i, i]", 1, 2, 4));
    }
    if (has_option(strategy, "rank_tokens")) {
        sp_json_put(grid, "strategy.rank_tokens", budgets(context));
    }
    if (has_option(strategy, "chunk_tokens")) {
        sp_json_put(grid, "strategy.chunk_tokens", budgets(context));
    }
    return grid;
}

// Settings of the base that the grid takes the place of are left out where not every point has
// them.
static json_t *base_of(const json_t *base, const char *strategy)
{
    static const char *const layout[] = {"chunks_per_rank", "layers_per_chunk", "stage_layers",
                                         "order"};
    json_t *copy = json_deep_copy(base);
    json_t *parallel = json_object_get(copy, "parallel");
    for (size_t i = 0; i < sizeof layout / sizeof layout[0]; i++) {
        json_object_del(parallel, layout[i]);
    }
    json_object_del(json_object_get(copy, "schedule"), "kind");
    if (!json_is_object(json_object_get(copy, "strategy"))) {
        sp_json_put(copy, "strategy", json_object());
    }
    sp_json_put(json_object_get(copy, "strategy"), "kind", json_string(strategy));
    return copy;
}

static sp_status spec_of(const json_t *base, const sp_scenario *scenario, const char *name,
                         sweep_spec *spec, sp_error *err)
{
    const sp_strategy *strategy = sp_strategy_find(name);
    char where[2 * CONDITION];
    long long ranks = (long long)sp_layout_ranks(&scenario->layout);
    snprintf(where, sizeof where,
             strategy->brings_order ? "tp * cp * pp * dp == %lld" : any_schedule, ranks);
    json_t *document =
        json_pack("{s: s, s: o, s: o, s: s}", "schema", SWEEP_SCHEMA, "base", base_of(base, name),
                  "grid", grid_of(scenario, strategy), "where", where);
    return document != NULL ? sweep_spec_from_json(document, scenario->source, spec, err)
                            : sp_error_no_memory(err, "layouts");
}

// ---- their evaluation ----

typedef struct finder {
    const sweep_spec *spec;
    sweep_evaluator evaluator;
    int64_t *combination; // [count]
    sweep_digest *digest; // [count]
    int64_t count;
} finder;

static sp_status list_points(finder *f, sp_error *err)
{
    sweep_cursor cursor;
    bool found = false;
    int64_t count = 0;
    sp_status status = sweep_spec_count(f->spec, &count, err);
    if (status != SP_OK) {
        return status;
    }
    f->combination = sp_i_calloc((size_t)count + 1, sizeof *f->combination);
    f->digest = sp_i_calloc((size_t)count + 1, sizeof *f->digest);
    if (f->combination == NULL || f->digest == NULL) {
        return sp_error_no_memory(err, "layouts");
    }
    sweep_cursor_begin(&cursor, f->spec);
    for (status = sweep_cursor_next(&cursor, &found, err); status == SP_OK && found;
         status = sweep_cursor_next(&cursor, &found, err)) {
        f->combination[f->count++] = cursor.combination;
    }
    return status;
}

static sp_status evaluate_point(void *context, int worker, int point, sp_error *err)
{
    finder *f = context;
    char *line = NULL;
    sp_status status = sweep_evaluate_point(&f->evaluator, worker, f->combination[point], &line,
                                            &f->digest[point], err);
    free(line);
    return status;
}

static sp_status take_best(const finder *f, sweep_best_layout *best, sp_error *err)
{
    int64_t digit[SWEEP_AXES];
    int64_t first = -1;
    for (int64_t i = 0; i < f->count; i++) {
        const sweep_digest *d = &f->digest[i];
        best->of_status[d->status]++;
        if (d->status == SWEEP_OK && (first < 0 || sweep_is_better(d, &f->digest[first]))) {
            first = i;
        }
        if ((d->status == SWEEP_OOM || d->status == SWEEP_INFEASIBLE) && best->reason[0] == '\0') {
            snprintf(best->reason, sizeof best->reason, "%s", d->reason);
        }
    }
    if (first < 0) {
        return SP_OK;
    }
    sweep_spec_digits(f->spec, f->combination[first], digit);
    json_t *shared = sweep_spec_scenario(f->spec, f->spec->document, digit);
    best->document = json_deep_copy(shared);
    json_decref(shared);
    return best->document != NULL ? SP_OK : sp_error_no_memory(err, "layouts");
}

static sp_status find(finder *f, int threads, sweep_best_layout *best, sp_error *err)
{
    sp_status status = list_points(f, err);
    if (status == SP_OK) {
        status = sweep_evaluator_init(&f->evaluator, f->spec, threads, err);
    }
    if (status == SP_OK) {
        status = sp_i_parallel_for(threads, (int)f->count, evaluate_point, f, err);
    }
    if (status == SP_OK) {
        status = take_best(f, best, err);
    }
    sweep_evaluator_fini(&f->evaluator);
    sp_i_free(f->combination);
    sp_i_free(f->digest);
    return status;
}

sp_status sweep_best_layout_find(const json_t *base, const sp_scenario *scenario,
                                 const char *strategy, int threads, sweep_best_layout *best,
                                 sp_error *err)
{
    sweep_spec spec;
    *best = (sweep_best_layout){0};
    sp_status status = spec_of(base, scenario, strategy, &spec, err);
    if (status == SP_OK) {
        finder f = {.spec = &spec};
        status = find(&f, threads, best, err);
        sweep_spec_fini(&spec);
    }
    return status;
}

void sweep_best_layout_fini(sweep_best_layout *best)
{
    json_decref(best->document);
    *best = (sweep_best_layout){0};
}
