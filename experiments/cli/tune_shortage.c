#include "experiments/cli/tune_shortage.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/tune_parts.h"

enum { DOUBLINGS = 8, LAYOUT = 200 };

// What a point that is to fit states beside what --set states: 1f1b holds no more than the others
// of its kind without gaining time that is not asked for here.
static const char *const spare[][2] = {{"memory.recompute", "memory.recompute=full"},
                                       {"schedule.kind", "schedule.kind=1f1b"},
                                       {"parallel.chunks_per_rank", "parallel.chunks_per_rank=1"}};

enum { SPARE = sizeof spare / sizeof spare[0] };

// "tp 8, cp 4, ..., packed"; returns text.
static const char *layout_text(const sweep_layouts_options *options, const sweep_layouts *layouts,
                               const sweep_layout *point, char text[LAYOUT])
{
    size_t used = 0;
    json_t *settings = sweep_layouts_settings(layouts, point);
    text[0] = '\0';
    for (int a = 0; a < CLI_TUNE_AXES; a++) {
        char value[CLI_TUNE_VALUE];
        const json_t *json = json_object_get(settings, cli_tune_axes[a].path);
        if (json != NULL && used < LAYOUT) {
            used += (size_t)snprintf(text + used, LAYOUT - used, "%s %s, ", cli_tune_axes[a].name,
                                     cli_tune_value(json, value));
        }
    }
    if (used < LAYOUT) {
        snprintf(text + used, LAYOUT - used, "%s", options->strategies[point->strategy]);
    }
    json_decref(settings);
    return text;
}

static bool is_stated(const sweep_layouts_options *options, const char *path)
{
    bool stated = false;
    for (int i = 0; i < options->stated_count; i++) {
        size_t bytes = strcspn(options->stated[i], "=");
        stated = stated || (strncmp(options->stated[i], path, bytes) == 0 &&
                            (path[bytes] == '\0' || path[bytes] == '.'));
    }
    return stated;
}

// Takes what spares memory into the base and among what is stated; the caller frees the list.
static const char **spare_memory(const sweep_layouts_options *options, json_t *base, int *count,
                                 sp_error *err)
{
    const char **stated =
        (const char **)calloc((size_t)options->stated_count + SPARE, sizeof *stated);
    *count = 0;
    for (int i = 0; stated != NULL && i < options->stated_count; i++) {
        stated[(*count)++] = options->stated[i];
    }
    for (int i = 0; stated != NULL && i < SPARE; i++) {
        if (!is_stated(options, spare[i][0]) &&
            sp_scenario_override(base, spare[i][1], err) == SP_OK) {
            stated[(*count)++] = spare[i][1];
        }
    }
    return stated;
}

// Adds the message of the fewest GPUs at which something fits, or that none was found.
static sp_status find_gpus(const cli_shortage *shortage, sp_error *err)
{
    const sweep_layouts_options *asked = shortage->options;
    json_t *base = json_deep_copy(shortage->base);
    int count = 0;
    const char **stated = base != NULL ? spare_memory(asked, base, &count, err) : NULL;
    sweep_layouts_options options = {.strategies = asked->strategies,
                                     .strategy_count = 1,
                                     .wide = true,
                                     .stated = stated,
                                     .stated_count = count,
                                     .gpus = asked->gpus,
                                     .threads = asked->threads,
                                     .quiet = true};
    sp_status status = stated != NULL ? SP_OK : SP_ERR_NO_MEMORY;
    bool found = false;
    for (int i = 0; status == SP_OK && !found && i < DOUBLINGS; i++) {
        char layout[LAYOUT];
        sweep_layouts layouts;
        sp_error own = {0};
        options.gpus *= 2;
        status = sweep_layouts_find(base, shortage->scenario, &options, &layouts, &own);
        found = status == SP_OK && layouts.ranked_count > 0;
        if (found) {
            sp_error_set(err, SP_ERR_INFEASIBLE, "%lld GPUs are enough: %s",
                         (long long)options.gpus,
                         layout_text(&options, &layouts, layouts.ranked[0], layout));
        }
        sweep_layouts_fini(&layouts);
    }
    if (status == SP_OK && !found) {
        sp_error_set(err, SP_ERR_INFEASIBLE, "nor does any on up to %lld GPUs",
                     (long long)options.gpus);
    }
    free((void *)stated);
    json_decref(base);
    return status;
}

sp_status cli_tell_shortage(const cli_shortage *shortage, sp_error *err)
{
    char layout[LAYOUT];
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
                 layout_text(shortage->options, all, nearest, layout));
    sp_error_set(err, SP_ERR_INFEASIBLE, "there %s", all->reason);
    sp_status status = find_gpus(shortage, err);
    if (shortage->scenario->model.experts > 0) {
        sp_error_set(err, SP_ERR_INFEASIBLE, "%s", CLI_TUNE_EXPERTS);
    }
    return status == SP_ERR_NO_MEMORY ? sp_error_no_memory(err, "layouts") : SP_ERR_INFEASIBLE;
}
