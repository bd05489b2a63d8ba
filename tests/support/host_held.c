#include "tests/support/host_held.h"

#include "sim/engine/memory.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static const sp_memory_category exact[] = {SP_MEM_PARAMETERS,  SP_MEM_GRADIENTS, SP_MEM_OPTIMIZER,
                                           SP_MEM_ACTIVATIONS, SP_MEM_KV_CACHE,  SP_MEM_LOGITS,
                                           SP_MEM_OFFLOADED};

typedef struct comparison {
    scenario_run run;
    const host_device *device;
    sp_clock clock;
    int64_t most_offloaded;
} comparison;

// What is held after an action that ended at `time_ns`: the first point of that moment, before
// those of an action that follows at once. An action always ends with something given back.
static const sp_bytes *held_after(const sp_rank_memory *memory, int64_t time_ns)
{
    size_t i = 0;
    while (i + 1 < memory->point_count && memory->points[i].time_ns < time_ns) {
        i++;
    }
    assert_int_equal(memory->points[i].time_ns, time_ns);
    return &memory->points[i].bytes;
}

// At the end of a moment.
static const sp_bytes *held_at(const sp_rank_memory *memory, int64_t time_ns)
{
    size_t i = 0;
    while (i + 1 < memory->point_count && memory->points[i + 1].time_ns <= time_ns) {
        i++;
    }
    return &memory->points[i].bytes;
}

static void must_equal(const sp_plan *plan, const sp_rank_timeline *rank, const sp_span *span,
                       sp_memory_category category, const sp_bytes *mine, const sp_bytes *theirs)
{
    char name[32];
    if (mine->of[category] != theirs->of[category]) {
        sp_action_name(span->action, plan->layout.chunks, name);
        fail_msg("dp %d pp %d at %s: %s %lld, predicted %lld", rank->dp, rank->pp, name,
                 sp_memory_category_names[category], (long long)mine->of[category],
                 (long long)theirs->of[category]);
    }
}

static void compare_rank(comparison *c, const sp_plan *plan, const sp_rank_timeline *rank,
                         const sp_rank_memory *measured, const sp_rank_memory *predicted)
{
    for (size_t i = 0; i < rank->count; i++) {
        const sp_span *span = &rank->spans[i];
        for (size_t k = 0; k < sizeof exact / sizeof exact[0]; k++) {
            must_equal(plan, rank, span, exact[k], held_after(measured, span->end_ns),
                       held_after(predicted, span->end_ns));
        }
    }
    for (size_t i = 0; i < 2 * rank->copy_count; i++) {
        const sp_span *span = &rank->copies[i / 2];
        int64_t time_ns = i % 2 == 0 ? span->start_ns : span->end_ns;
        const sp_bytes *mine = held_at(measured, time_ns);
        must_equal(plan, rank, span, SP_MEM_OFFLOADED, mine, held_at(predicted, time_ns));
        int64_t away = mine->of[SP_MEM_OFFLOADED];
        c->most_offloaded = away > c->most_offloaded ? away : c->most_offloaded;
    }
}

static sp_status compare(void *context, const sp_step_view *view, sp_error *err)
{
    comparison *c = context;
    const sp_scenario *scenario = &c->run.scenario;
    const sp_run_request request = {.plan = view->plan,
                                    .model = &scenario->model,
                                    .memory = &scenario->memory,
                                    .clock = c->clock,
                                    .precision = SP_FP32,
                                    .seed = 5,
                                    .steps = 2,
                                    .memory_points = true};
    sp_run *run = host_run(c->device, &request);
    for (int s = 0; s < request.steps; s++) {
        const sp_measured_step *step = sp_run_step(run, s);
        sp_memory_timeline predicted;
        must_succeed("replay",
                     sp_i_memory_replay(&step->timeline, view->costs, true, &predicted, err), err);
        for (size_t r = 0; r < step->timeline.rank_count; r++) {
            compare_rank(c, view->plan, &step->timeline.ranks[r], &step->memory.ranks[r],
                         &predicted.ranks[r]);
        }
        sp_memory_timeline_fini(&predicted);
    }
    sp_run_free(run);
    return SP_OK;
}

int64_t host_held_must_agree(const host_device *device, const char *scenario, sp_clock clock)
{
    comparison c = {.device = device, .clock = clock};
    const sp_evaluate_options options = {
        .no_bounds = true, .observer = compare, .observer_context = &c};
    run_good(scenario, &options, &c.run);
    run_fini(&c.run);
    return c.most_offloaded;
}
