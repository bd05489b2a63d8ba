// The committed scenarios for GPUs, small (tests/support/small_set.h): what ranks hold in real
// bytes, beside what the stack of the backend predicts for the very same timeline; with cuDNN and
// without in turn.
#include <limits.h>

#include "experiments/execution/execution.h"
#include "sim/simulate/memory.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/support/host_memory.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/small_set.h"
#include "tests/support/test_main.h"

// Lengths are multiples of 8, so that parts of slices are equal on all ranks: the prediction rounds
// a pack's rows up once, ranks those of every slice.
static const small_sizes sizes = {.features = 32, .heads = 4, .tokens = 128, .step = 8};

// Tables that say what a launch of attention computes are not predicted: a few hundred bytes a
// slice, of a model of a MiB.
#define PEAK_BOUND 5e-3

// ---- one case ----

typedef struct execution {
    const sp_scenario_case *of;
    const sp_backend *backend;
    const char *cudnn;
} execution;

static void peak_is_near(const execution *e, const sp_rank_timeline *rank,
                         const sp_rank_memory *measured, const sp_rank_memory *predicted)
{
    double bytes = (double)sp_bytes_total(&measured->peak);
    double error = (double)sp_bytes_total(&predicted->peak) / bytes - 1.0;
    must_hold(fabs(error) <= PEAK_BOUND, "%s: dp %d pp %d: peak of %.0f bytes, predicted %+.2f %%",
              e->of->name, rank->dp, rank->pp, bytes, 100.0 * error);
}

static sp_status execute(void *context, const sp_step_view *view, sp_error *err)
{
    const execution *e = context;
    const sp_scenario *scenario = &e->of->scenario;
    const sp_backend_option options[] = {{"cudnn", e->cudnn}};
    bool wall = strcmp(e->of->clock, sp_clock_names[SP_CLOCK_WALL]) == 0;
    const sp_run_request request = {RUN_OF(view->plan, &scenario->model, &scenario->memory),
                                    .clock = wall ? SP_CLOCK_WALL : SP_CLOCK_VIRTUAL,
                                    RUN_STEPS(SP_BF16, 5, 1), RUN_OPTIONS(options, 1),
                                    .memory_points = true};
    sp_run *run = host_run(&(host_device){.backend = e->backend}, &request);
    const sp_measured_step *step = sp_run_step(run, 0);
    sp_memory_category all[SP_MEM_CATEGORIES];
    for (int k = 0; k < SP_MEM_CATEGORIES; k++) {
        all[k] = (sp_memory_category)k;
    }
    AUTO(sp_memory_timeline) predicted;
    must_succeed(sp_memory_replay(&step->timeline, view->costs, true, &predicted, ERR));
    for (size_t r = 0; r < step->timeline.rank_count; r++) {
        const host_memory memory = {.plan = view->plan,
                                    .rank = &step->timeline.ranks[r],
                                    .measured = &step->memory.ranks[r],
                                    .predicted = &predicted.ranks[r]};
        host_memory_equal_after_actions(&memory, all, SP_MEM_CATEGORIES);
        peak_is_near(e, memory.rank, memory.measured, memory.predicted);
    }
    sp_run_free(run);
    return SP_OK;
}

static void is_as_predicted(const sp_scenario_case *c, int number)
{
    OWNED(emulated_backend) backend = emulated_backend_new();
    sp_emulated_skips = true; // the bytes held do not depend on values
    assert_string_equal(sp_backend_stack(backend), "cuda");
    small_case_evaluate(c, execute, &(execution){c, backend, number % 2 == 0 ? "on" : "off"});
}

// All cases of a group, of which there are so many at least; the first under a sanitizer.
static void group_is_as_predicted(const char *group, int least)
{
    int most = test_is_sanitized() ? test_rounds(least) : INT_MAX;
    assert_true(small_set_each(&sizes, group, most, is_as_predicted) >= test_rounds(least));
}

TEST_OF_VALUES(llama)
{
    group_is_as_predicted("llama", 9);
}

TEST_CALL(llama_long, group_is_as_predicted("llama long", 7))
TEST_OF_VALUES(llama_wide)
{
    group_is_as_predicted("llama wide", 2);
}

TEST_CALL(gpt, group_is_as_predicted("gpt", 3))
TEST_CALL(partition, group_is_as_predicted("partition", 4))
TEST_OF_VALUES(partition_long)
{
    group_is_as_predicted("part. long", 3);
}
