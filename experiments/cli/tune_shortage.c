#include "experiments/cli/tune_shortage.h"

#include "experiments/cli/tune_args.h"
#include "experiments/cli/tune_parts.h"
#include "sim/base/alloc.h"
#include "solver/strategy.h"

enum { DOUBLINGS = 8 };

// What a point that is to fit states beside what --set states: the least memory there is, and no
// choice that spares none.
static const char *const spare[][2] = {
    {"memory.recompute", "memory.recompute=full"},
    {"parallel.zero", "parallel.zero=3"},
    {"schedule.kind", "schedule.kind=1f1b"},
    {"parallel.chunks_per_rank", "parallel.chunks_per_rank=1"},
    {"schedule.microbatch_samples", "schedule.microbatch_samples=1"}, // of strategies of rows
};

enum { SPARE = sizeof spare / sizeof spare[0], ROWS_AT = SPARE - 1 };

// Takes what spares memory into the base and among what is stated; the caller frees the list.
static const char **spare_memory(const sweep_layouts_options *options, json_t *base, int *count)
{
    sp_error own = {0};
    const char **stated =
        (const char **)sp_calloc((size_t)options->stated_count + SPARE, sizeof *stated);
    bool rows = sp_strategy_find(options->strategies[0])->kind == SP_STRATEGY_ROWS;
    *count = 0;
    for (int i = 0; i < options->stated_count; i++) {
        stated[(*count)++] = options->stated[i];
    }
    for (int i = 0; i < SPARE; i++) {
        if ((i != ROWS_AT || rows) &&
            !cli_tune_states(options->stated, options->stated_count, spare[i][0]) &&
            sp_scenario_override(base, spare[i][1], &own) == SP_OK) {
            stated[(*count)++] = spare[i][1];
        }
    }
    return stated;
}

// Adds the message of the fewest GPUs at which something fits, or that none was found.
static void find_gpus(const cli_shortage *shortage, sp_error *err)
{
    const sweep_layouts_options *asked = shortage->options;
    json_t *base = json_deep_copy(shortage->base);
    int count = 0;
    const char **stated = spare_memory(asked, base, &count);
    sweep_layouts_options options = {.strategies = asked->strategies,
                                     .strategy_count = 1,
                                     .wide = true,
                                     .stated = stated,
                                     .stated_count = count,
                                     .gpus = asked->gpus,
                                     .threads = asked->threads,
                                     .quiet = asked->quiet};
    sp_status status = SP_OK;
    bool found = false;
    for (int i = 0;
         status == SP_OK && !found && i < DOUBLINGS && options.gpus <= CLI_TUNE_MOST_GPUS / 2;
         i++) {
        char layout[CLI_TUNE_POINT];
        sweep_layouts layouts;
        sp_error own = {0};
        options.gpus *= 2;
        status = sweep_layouts_find(base, shortage->scenario, &options, &layouts, &own);
        found = status == SP_OK && layouts.ranked_count > 0;
        status = status == SP_OK && layouts.stopped ? SP_ERR_STOPPED : status;
        if (found) {
            sp_error_set(err, SP_ERR_INFEASIBLE, "%lld GPUs are enough: %s",
                         (long long)options.gpus,
                         cli_tune_point(&options, &layouts, layouts.ranked[0], layout));
        }
        if (status != SP_OK && status != SP_ERR_STOPPED) {
            sp_error_set(err, status, "%s", own.message[0]);
        }
        sweep_layouts_fini(&layouts);
    }
    if (status == SP_ERR_STOPPED) {
        sp_error_set(err, SP_ERR_INFEASIBLE, "more GPUs were not tried: stopped by a signal");
    } else if (status == SP_OK && !found) {
        sp_error_set(err, SP_ERR_INFEASIBLE, "nor does any on up to %lld GPUs",
                     (long long)options.gpus);
    }
    sp_free((void *)stated);
    json_decref(base);
}

sp_status cli_tell_shortage(const cli_shortage *shortage, sp_error *err)
{
    char layout[CLI_TUNE_POINT];
    char gib[CLI_TUNE_VALUE];
    const sweep_layouts *all = shortage->layouts;
    const sweep_layout *nearest = all->nearest;
    if (nearest == NULL || nearest->digest.status != SWEEP_OOM) {
        return sp_error_set(err, SP_ERR_INFEASIBLE, "none of %lld points fits: %s",
                            (long long)all->count, all->reason);
    }
    sp_error_set(err, SP_ERR_INFEASIBLE, "none of %lld points fits; the nearest lacks %s: %s",
                 (long long)all->count,
                 cli_tune_gib(-nearest->digest.figure[SWEEP_MEMORY_MARGIN_GIB], gib),
                 cli_tune_point(shortage->options, all, nearest, layout));
    sp_error_set(err, SP_ERR_INFEASIBLE, "there %s", all->reason);
    find_gpus(shortage, err);
    if (shortage->scenario->model.experts > 0) {
        sp_error_set(err, SP_ERR_INFEASIBLE, "%s", CLI_TUNE_EXPERTS);
    }
    return SP_ERR_INFEASIBLE;
}
