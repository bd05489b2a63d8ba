#include "experiments/tune/abilities.h"

#include <stdio.h>
#include <string.h>

#include "solver/strategy.h"

// The value of a setting at a point; NULL: the grid has no such axis. *chosen: it has others, too.
static const json_t *value_at(const sweep_spec *spec, const char *path,
                              const int64_t digit[SWEEP_AXES], bool *chosen)
{
    *chosen = false;
    for (int a = 0; a < spec->axis_count; a++) {
        if (strcmp(spec->axes[a].path, path) == 0) {
            *chosen = spec->axes[a].count > 1;
            return json_array_get(spec->axes[a].values, (size_t)digit[a]);
        }
    }
    return NULL;
}

static int64_t number_at(const sweep_spec *spec, const char *path, const int64_t digit[SWEEP_AXES],
                         int64_t otherwise, bool *chosen)
{
    const json_t *value = value_at(spec, path, digit, chosen);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

// Does the search choose a value that is none of the list?
static bool lacks_value(const sweep_spec *spec, const char *path, const int64_t digit[SWEEP_AXES],
                        const char *list)
{
    char number[32];
    bool chosen;
    const json_t *value = value_at(spec, path, digit, &chosen);
    const char *text = json_string_value(value);
    if (text == NULL) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    }
    return chosen && !sp_stack_lists(list, text != NULL ? text : number);
}

// Has the stack neither pipeline nor context parallelism where the search chooses one?
static bool lacks_axis(const sp_scenario *scenario, const sp_stack_abilities *can,
                       const sweep_spec *spec, const int64_t digit[SWEEP_AXES])
{
    bool pp_chosen, cp_chosen;
    int64_t pp = number_at(spec, "parallel.pp", digit, 1, &pp_chosen);
    int64_t cp = number_at(spec, "parallel.cp", digit, 1, &cp_chosen);
    bool pipeline = can->schedules == NULL || can->schedules[0] != '\0';
    const char *exchange = sp_cp_overlap_names[scenario->memory.stack.cp_overlap];
    bool exchanges = scenario->cp_overlap_given || sp_stack_lists(can->exchanges, exchange);
    return (pp > 1 && pp_chosen && !pipeline) || (cp > 1 && cp_chosen && !exchanges);
}

// Samples of one length each fill a row, so that their number in a step is that of rows. Of other
// lengths the strategy makes as many rows as there are, and a data loader rounds them.
static bool divides_batch(const sp_scenario *scenario, const sweep_spec *spec,
                          const int64_t digit[SWEEP_AXES])
{
    bool dp_chosen, rows_chosen;
    int64_t samples = scenario->workload.samples_per_batch;
    int64_t dp = number_at(spec, "parallel.dp", digit, scenario->layout.dp, &dp_chosen);
    int64_t rows = number_at(spec, "schedule.microbatch_samples", digit, 1, &rows_chosen);
    bool uniform = scenario->workload.uniform_tokens > 0 && samples > 0;
    return !uniform || !(dp_chosen || rows_chosen) || samples % (dp * rows) == 0;
}

sweep_lack sweep_lack_of(const sp_scenario *scenario, const sweep_layouts_options *options,
                         const sweep_spec *spec, int strategy, const int64_t digit[SWEEP_AXES])
{
    const sp_stack_abilities can = sp_stack_abilities_of(&scenario->memory.stack);
    bool chosen;
    if (!options->within_stack) {
        return SWEEP_RUNS;
    }
    if (lacks_axis(scenario, &can, spec, digit) ||
        lacks_value(spec, "memory.recompute", digit, can.recomputes) ||
        lacks_value(spec, "parallel.zero", digit, can.zero) ||
        lacks_value(spec, "stack.cp_overlap", digit, can.exchanges) ||
        (can.whole_batches && !divides_batch(scenario, spec, digit))) {
        return SWEEP_CANNOT_RUN;
    }
    if (!options->strategies_stated &&
        !sp_stack_lists(can.strategies, options->strategies[strategy])) {
        return SWEEP_LACKS_STRATEGY;
    }
    // Without a pipeline all schedules are one.
    bool pipeline = number_at(spec, "parallel.pp", digit, 1, &chosen) > 1;
    return pipeline && options->schedules == NULL &&
                   lacks_value(spec, "schedule.kind", digit, can.schedules)
               ? SWEEP_LACKS_SCHEDULE
               : SWEEP_RUNS;
}
