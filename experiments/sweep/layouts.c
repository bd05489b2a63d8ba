#include <math.h>
#include <string.h>

#include "experiments/sweep/layouts_private.h"
#include "sim/base/alloc.h"
#include "solver/evaluate/evaluate.h"
#include "solver/strategy.h"

// Cheap, in rows and any schedule: its layouts tell which are fast for others.
static const char scout_strategy[] = "packed";

// The scout's points are the last ones of the list, and nobody asked for them.
static void forget_scout(sweep_layouts_finder *f)
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

static sp_status find(sweep_layouts_finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    sp_status status = unless_stopped(all, sweep_layouts_bound(f, err), err);
    f->order = sp_calloc((size_t)all->count + 1, sizeof *f->order);
    all->ranked = sp_calloc((size_t)all->count + 1, sizeof *all->ranked);
    if (status == SP_OK && (f->order == NULL || all->ranked == NULL)) {
        status = sp_error_no_memory(err, "layouts");
    }
    if (status == SP_OK && !all->stopped) {
        status = unless_stopped(all, sweep_layouts_evaluate(f, err), err);
    }
    forget_scout(f);
    if (status == SP_OK) {
        status = unless_stopped(all, sweep_layouts_rank(f, err), err);
    }
    return status == SP_OK && !all->stopped ? sweep_layouts_find_reason(f, err) : status;
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

static sp_status find_layouts(sweep_layouts_finder *f, const json_t *base,
                              const sp_scenario *scenario, sp_error *err)
{
    const sweep_layouts_options *options = f->options;
    sweep_layouts *layouts = f->layouts;
    size_t count = (size_t)options->strategy_count;
    layouts->spec = sp_calloc(count, sizeof *layouts->spec);
    f->evaluator = sp_calloc(count, sizeof *f->evaluator);
    sp_status status = layouts->spec != NULL && f->evaluator != NULL
                           ? sp_evaluate_batches(scenario, &f->batches, err)
                           : sp_error_no_memory(err, "layouts");
    for (int s = 0; status == SP_OK && s < options->strategy_count; s++) {
        status = sweep_layouts_list(base, scenario, f->batches.context, options, s, layouts, err);
        if (status == SP_OK) {
            status =
                sweep_evaluator_init(&f->evaluator[s], &layouts->spec[s], options->threads, err);
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
    sweep_layouts_finder f = {
        .options = &with_scout, .layouts = layouts, .best_ms = (double)HUGE_VAL, .scout = -1};
    *layouts = (sweep_layouts){0};
    const char **strategies =
        (const char **)sp_calloc((size_t)options->strategy_count + 1, sizeof *strategies);
    if (strategies == NULL) {
        return sp_error_no_memory(err, "layouts");
    }
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
    const char *kind = json_string_value(json_object_get(schedule, "kind"));
    const char *group = json_string_value(json_object_get(schedule, "group"));
    const json_t *chunks =
        json_object_get(json_object_get(document, "parallel"), "chunks_per_rank");
    bool interleaved =
        kind != NULL && strcmp(kind, "interleaved") == 0 && json_integer_value(chunks) != 1;
    if (kind != NULL && !interleaved && group != NULL && strcmp(group, "even") == 0) {
        json_object_del(schedule, "group");
    }
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
