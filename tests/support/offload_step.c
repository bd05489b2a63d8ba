#include "tests/support/offload_step.h"

#include "sim/schedule/schedule.h"
#include "tests/support/test_main.h"

void step_offload(offload_step *s)
{
    sp_schedule_add_offload(&s->plan);
    must_succeed(sp_plan_check(&s->plan, "test", ERR));
}

void step_simulate(offload_step *s, bool unfold)
{
    sp_engine_options options = {.unfold = unfold, .verify = true, .memory_points = true};
    must_succeed(
        sp_simulate(&s->plan, &s->costs, &options, &s->timeline, &s->memory, &s->counts, ERR));
    sp_step_metrics_compute(&s->timeline, &s->memory, &s->metrics);
}

void step_outcome_fini(offload_step *s)
{
    sp_step_metrics_fini(&s->metrics);
    sp_memory_timeline_fini(&s->memory);
    sp_timeline_fini(&s->timeline);
}

void offload_step_fini(offload_step *s)
{
    step_outcome_fini(s);
    sp_plan_fini(&s->plan);
    sp_step_costs_fini(&s->costs);
    sp_packing_fini(&s->packing);
    sp_batch_fini(&s->batch);
}

void step_assert_actions(const offload_step *s, int pp_rank, const char *expected)
{
    const sp_stage_plan *stage = sp_plan_stage(&s->plan, 0, pp_rank);
    char text[400] = "";
    size_t used = 0;
    for (size_t a = 0; a < stage->count; a++) {
        char name[32];
        sp_action_name(stage->actions[a], s->layout.chunks, name);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", a > 0 ? " " : "", name);
    }
    assert_string_equal(text, expected);
}

int64_t step_held_at(const offload_step *s, int64_t time_ns)
{
    const sp_rank_memory *memory = &s->memory.ranks[0];
    int64_t bytes = 0;
    for (size_t i = 0; i < memory->point_count && memory->points[i].time_ns <= time_ns; i++) {
        bytes = sp_bytes_total(&memory->points[i].bytes);
    }
    return bytes;
}
