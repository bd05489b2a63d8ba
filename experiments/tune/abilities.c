#include "experiments/tune/abilities.h"

#include <stdio.h>
#include <string.h>

#include "experiments/tune/layout_grid.h"
#include "solver/strategy.h"

// Does the search choose a value that is none of the list?
static bool lacks_value(const sweep_spec *spec, const char *path, const int64_t digit[SWEEP_AXES],
                        const char *list)
{
    char number[32];
    const json_t *value = sweep_layout_value(spec, digit, path);
    const char *text = json_string_value(value);
    if (text == NULL) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    }
    return sweep_layout_chooses(spec, path) && !sp_stack_lists(list, text != NULL ? text : number);
}

// Has the stack no tensor, pipeline or context parallelism where the search chooses it?
static bool lacks_axis(const sp_scenario *scenario, const sp_stack_abilities *can,
                       const sweep_spec *spec, const int64_t digit[SWEEP_AXES])
{
    bool tp = sweep_layout_chooses(spec, "parallel.tp") &&
              sweep_layout_number(spec, digit, "parallel.tp", 1) > 1;
    bool pp = sweep_layout_chooses(spec, "parallel.pp") &&
              sweep_layout_number(spec, digit, "parallel.pp", 1) > 1;
    bool cp = sweep_layout_chooses(spec, "parallel.cp") &&
              sweep_layout_number(spec, digit, "parallel.cp", 1) > 1;
    bool pipeline = can->schedules == NULL || can->schedules[0] != '\0';
    const char *exchange = sp_cp_overlap_names[scenario->memory.stack.cp_overlap];
    bool exchanges = scenario->cp_overlap_given || sp_stack_lists(can->exchanges, exchange);
    return (tp && can->lacks_tp) || (pp && !pipeline) || (cp && !exchanges);
}

// Samples of one length each fill a row, so that their number in a step is that of rows. Of other
// lengths the strategy makes as many rows as there are, and a data loader rounds them.
static bool divides_batch(const sp_scenario *scenario, const sweep_spec *spec,
                          const int64_t digit[SWEEP_AXES])
{
    int64_t samples = scenario->workload.samples_per_batch;
    int64_t dp = sweep_layout_number(spec, digit, "parallel.dp", scenario->layout.dp);
    int64_t rows = sweep_layout_number(spec, digit, "schedule.microbatch_samples", 1);
    bool chosen = sweep_layout_chooses(spec, "parallel.dp") ||
                  sweep_layout_chooses(spec, "schedule.microbatch_samples");
    bool uniform = scenario->workload.uniform_tokens > 0 && samples > 0;
    return !uniform || !chosen || samples % (dp * rows) == 0;
}

sweep_lack sweep_lack_of(const sp_scenario *scenario, const sweep_layouts_options *options,
                         const sweep_spec *spec, int strategy, const int64_t digit[SWEEP_AXES])
{
    const sp_stack_abilities can = sp_stack_abilities_of(&scenario->memory.stack);
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
    bool pipeline = sweep_layout_number(spec, digit, "parallel.pp", 1) > 1;
    return pipeline && options->schedules == NULL &&
                   lacks_value(spec, "schedule.kind", digit, can.schedules)
               ? SWEEP_LACKS_SCHEDULE
               : SWEEP_RUNS;
}
