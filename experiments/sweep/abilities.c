// What the software behind a scenario's stack cannot run of a point.
#include <stdio.h>

#include "experiments/sweep/sweep.h"
#include "sim/base/json.h"
#include "sim/base/writer.h"
#include "solver/strategy.h"

// ---- the rule ----

// Writes `kind name` where a name that was chosen is none of the list.
static bool lacks_name(const char *list, const char *kind, const char *name,
                       char lacks[SWEEP_LACKED])
{
    if (name == NULL || sp_stack_lists(list, name)) {
        return false;
    }
    snprintf(lacks, SWEEP_LACKED, "%s %s", kind, name);
    return true;
}

static bool lacks_zero(const sp_stack_abilities *can, int stage, char lacks[SWEEP_LACKED])
{
    char number[16];
    snprintf(number, sizeof number, "%d", stage);
    return stage >= 0 && lacks_name(can->zero, "zero", number, lacks);
}

// Sets of modules have no name in the list.
static bool lacks_recompute(const sp_stack_abilities *can, const char *name,
                            char lacks[SWEEP_LACKED])
{
    bool is_set = name != NULL && sp_listed_name(name, sp_recompute_names) == NULL;
    bool runs = is_set && (can->source == NULL || can->recomputes_modules);
    return !runs && lacks_name(can->recomputes, "recompute", name, lacks);
}

static bool lacks_axis(const sp_stack_abilities *can, const sweep_asked *asked,
                       char lacks[SWEEP_LACKED])
{
    bool tensor = asked->tensor && can->lacks_tp;
    bool pipeline = asked->pipeline && can->schedules != NULL && can->schedules[0] == '\0';
    if (tensor || pipeline) {
        snprintf(lacks, SWEEP_LACKED, "%s parallelism", tensor ? "tensor" : "pipeline");
    }
    return tensor || pipeline;
}

static bool lacks_exchange(const sp_stack_abilities *can, const sweep_asked *asked,
                           char lacks[SWEEP_LACKED])
{
    bool none = can->exchanges != NULL && can->exchanges[0] == '\0';
    if (!lacks_name(can->exchanges, "cp_overlap", asked->exchange, lacks)) {
        return false;
    }
    if (none) {
        snprintf(lacks, SWEEP_LACKED, "context parallelism");
    }
    return true;
}

static bool lacks_batch(const sp_stack_abilities *can, const sweep_asked *asked,
                        char lacks[SWEEP_LACKED])
{
    int64_t ranks = asked->dp * asked->rows;
    if (!can->whole_batches || asked->samples == 0 || asked->samples % ranks == 0) {
        return false;
    }
    snprintf(lacks, SWEEP_LACKED, "%lld samples over dp %lld with %lld rows",
             (long long)asked->samples, (long long)asked->dp, (long long)asked->rows);
    return true;
}

sweep_lack sweep_lack_of(const sp_stack *stack, const sweep_asked *asked, char lacks[SWEEP_LACKED])
{
    const sp_stack_abilities can = sp_stack_abilities_of(stack);
    lacks[0] = '\0';
    if (lacks_axis(&can, asked, lacks) || lacks_exchange(&can, asked, lacks) ||
        lacks_recompute(&can, asked->recompute, lacks) || lacks_zero(&can, asked->zero, lacks) ||
        lacks_batch(&can, asked, lacks)) {
        return SWEEP_LACKS_OTHER;
    }
    if (lacks_name(can.strategies, "strategy", asked->strategy, lacks)) {
        return SWEEP_LACKS_STRATEGY;
    }
    return lacks_name(can.schedules, "schedule", asked->schedule, lacks) ? SWEEP_LACKS_SCHEDULE
                                                                         : SWEEP_RUNS;
}

// ---- of a grid's points ----

bool sweep_spec_chooses(const sweep_spec *spec, const char *path)
{
    for (int a = 0; a < spec->axis_count; a++) {
        if (spec->axes[a].count > 1 && sp_json_paths_overlap(spec->axes[a].path, path)) {
            return true;
        }
    }
    return false;
}

// A schedule that nobody names follows from the chunks.
static bool chooses_schedule(const sweep_spec *spec, const sp_scenario *scenario)
{
    return sweep_spec_chooses(spec, "schedule.kind") ||
           (!scenario->schedule_given && sweep_spec_chooses(spec, "parallel.chunks_per_rank"));
}

// Another stack on an axis brings its own exchange, which is no choice of the grid.
static bool chooses_exchange(const sweep_spec *spec, const sp_scenario *scenario)
{
    return scenario->cp_overlap_given ? sweep_spec_chooses(spec, "stack.cp_overlap")
                                      : sweep_spec_chooses(spec, "parallel.cp");
}

static bool chooses_batch(const sweep_spec *spec)
{
    return sweep_spec_chooses(spec, "parallel") || sweep_spec_chooses(spec, "nodes") ||
           sweep_spec_chooses(spec, "schedule.microbatch_samples") ||
           sweep_spec_chooses(spec, "workload.samples_per_batch");
}

sweep_lack sweep_point_lack(const sweep_spec *spec, const sp_scenario *scenario,
                            char lacks[SWEEP_LACKED])
{
    const sp_layout *layout = &scenario->layout;
    const sp_stack *stack = &scenario->memory.stack;
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    char recompute[SP_RECOMPUTE_TEXT];
    sweep_asked asked = {
        .zero = -1, .dp = layout->dp, .rows = scenario->strategy.microbatch_samples};
    bool own_order = strategy != NULL && strategy->brings_order;
    asked.tensor = layout->tp > 1 && sweep_spec_chooses(spec, "parallel.tp");
    asked.pipeline = layout->pp > 1 && sweep_spec_chooses(spec, "parallel.pp");
    if (layout->pp > 1 && !own_order && chooses_schedule(spec, scenario)) {
        asked.schedule = sp_schedule_names[scenario->schedule.kind];
    }
    if (sweep_spec_chooses(spec, "strategy.kind")) {
        asked.strategy = scenario->strategy.kind;
    }
    if (layout->cp > 1 && chooses_exchange(spec, scenario)) {
        asked.exchange = sp_cp_overlap_names[stack->cp_overlap];
    }
    if (sweep_spec_chooses(spec, "memory.recompute")) {
        asked.recompute = sp_recompute_text(scenario->memory.recompute, recompute);
    }
    if (sweep_spec_chooses(spec, "parallel.zero")) {
        asked.zero = layout->zero;
    }
    if (scenario->workload.uniform_tokens > 0 && chooses_batch(spec)) {
        asked.samples = scenario->workload.samples_per_batch;
    }
    return sweep_lack_of(stack, &asked, lacks);
}
