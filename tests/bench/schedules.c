// Generating and simulating each schedule at p = 64 ranks, m = 512 micro-batches, n = 32 slices
// where it runs slices: tasks per second, one JSON line a schedule.
#include <stdio.h>

#include "sim/base/progress.h"
#include "sim/metrics/metrics.h"
#include "sim/schedule/schedule.h"
#include "sim/simulate/engine.h"
#include "tests/bench/bench.h"
#include "tests/support/step_bubble.h"

enum { PP = 64, MICROBATCHES = 512, SLICES = 32 };

static void run(sp_schedule_kind kind)
{
    sp_error err = {0};
    sp_schedule_traits traits = sp_schedule_traits_of(kind);
    int interleaved = kind == SP_SCHEDULE_INTERLEAVED ? 2 : 1;
    sp_layout layout = {.tp = 1,
                        .cp = 1,
                        .pp = PP,
                        .dp = 1,
                        .chunks = traits.chunks > 0 ? traits.chunks : interleaved,
                        .placement = traits.placement};
    sp_uniform_costs uniform = {.f_ms = 2.0, .b_ms = 2.1, .w_ms = 1.4, .p2p_ms = 0.02};
    sp_schedule_spec spec = {.kind = kind, .slices = SLICES};
    sp_engine_options options = {0};
    sp_batch batch;
    sp_packing packing;
    sp_step_costs costs;
    sp_plan plan;
    sp_schedule_costs *means = NULL;
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts = {0};
    sp_step_metrics metrics;
    double started_s = sp_clock_s();
    require(sp_packing_uniform_sliced(&packing, &batch, 1, MICROBATCHES, traits.sliced ? SLICES : 1,
                                      &err),
            &err);
    sp_step_costs_uniform(&uniform, &layout, &packing, &costs);
    sp_plan_init(&plan, &layout, &packing);
    means = sp_step_costs_means(&costs, &plan);
    if (sp_schedule_traits_of(spec.kind).by_pack) {
        sp_step_costs_by_pack(&costs, &plan, means);
    }
    require(sp_schedule_generate(&spec, means, "bench", &plan, &err), &err);
    double planned_s = sp_clock_s();
    require(sp_simulate(&plan, &costs, &options, &timeline, &memory, &counts, &err), &err);
    sp_step_metrics_compute(&timeline, &memory, &metrics);
    double done_s = sp_clock_s();
    printf("{\"bench\": \"schedules\", \"version\": \"%s\", \"schedule\": \"%s\", \"tasks\": %zu, "
           "\"generate_s\": %.3f, \"simulate_s\": %.3f, \"tasks_per_s\": %.3g, "
           "\"bubble_longest_stage\": %.4f}\n",
           SP_VERSION, sp_schedule_names[kind], counts.tasks, planned_s - started_s,
           done_s - planned_s, (double)counts.tasks / (done_s - started_s),
           step_bubble_longest_stage(&metrics));
    sp_step_metrics_fini(&metrics);
    sp_memory_timeline_fini(&memory);
    sp_timeline_fini(&timeline);
    sp_schedule_costs_free(means);
    sp_plan_fini(&plan);
    sp_step_costs_fini(&costs);
    sp_packing_fini(&packing);
    sp_batch_fini(&batch);
}

int main(void)
{
    for (int kind = 0; kind < SP_SCHEDULE_KINDS; kind++) {
        run((sp_schedule_kind)kind);
    }
    return 0;
}
