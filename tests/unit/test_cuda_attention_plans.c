// How many plans of cuDNN's attention the committed scenarios for GPUs
// (experiments/validate_gpu.json) need: each takes more than a second to make, and an hour on a GPU
// is short.
#include "backends/cuda/attention/attention_packed.h"
#include "experiments/execution/scenario_set.h"
#include "tests/gpu/support/attention_case.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define SET SP_TEST_SOURCE_DIR "/../experiments/validate_gpu.json"

// Of all cases, each in a process of its own. A plan takes 1.1 to 1.6 s: less than two minutes in
// all.
enum { MOST_PLANS = 75, MOST_OF_ONE = 6 };

typedef struct count {
    const sp_scenario_case *of;
    struct sp_i_cuda_attention plans;
} count;

enum { MOST_RANKS = 16 };

static sp_status prepare_all(void *context, const sp_step_view *view, sp_error *err)
{
    count *c = context;
    const sp_plan *plan = view->plan;
    const sp_layout *layout = &plan->layout;
    const int ranks = layout->dp * layout->cp;
    sp_i_exec_job jobs[MOST_RANKS];
    const sp_i_exec_job *of[MOST_RANKS];
    sp_status status = SP_OK;
    assert_in_range(ranks, 1, MOST_RANKS);
    for (int r = 0; r < ranks; r++) {
        const sp_i_exec_place place = {.dp = r / layout->cp,
                                       .cp = layout->cp,
                                       .cp_rank = r % layout->cp,
                                       .parts = layout->sequence_parallel ? layout->tp : 1,
                                       .tp = layout->tp};
        jobs[r] = (sp_i_exec_job){.model = &c->of->scenario.model,
                                  .shard = sp_shard_of(&c->of->scenario.model, layout)};
        of[r] = &jobs[r];
        must_succeed_for(c->of->name,
                         sp_i_exec_slices_init(&jobs[r].slices, plan->packing, &place, ERR));
    }
    status = sp_i_cuda_attention_prepare(&c->plans, of, (size_t)ranks, err);
    for (int r = 0; r < ranks; r++) {
        sp_i_exec_slices_fini(&jobs[r].slices);
    }
    return status;
}

static int plans_of(const sp_scenario_case *of)
{
    static count c;
    c = (count){.of = of};
    const sp_evaluate_options options = {
        .no_bounds = true, .observer = prepare_all, .observer_context = &c};
    sp_batches batches;
    sp_result result;
    must_succeed_for(of->name, sp_evaluate_batches(&of->scenario, &batches, ERR));
    must_succeed_for(of->name, sp_evaluate(&of->scenario, &batches, &options, &result, ERR));
    sp_result_fini(&result);
    sp_batches_fini(&batches);
    return (int)sp_i_cuda_attention_plans(&c.plans);
}

TEST(committed_scenarios_need_few_plans)
{
    const char *const overrides[] = {"profile=h200", "stack=cuda"};
    json_t *document;
    sp_scenario_set set;
    int all = 0;
    must_succeed_for(SET, sp_json_read_file(SET, 1 << 20, &document, ERR));
    json_t *groups = json_object_get(document, "groups");
    for (size_t g = 0; g < json_array_size(groups); g++) {
        // No partition was measured yet, and times do not matter.
        json_object_del(json_object_get(json_array_get(groups, g), "set"), "profile");
    }
    must_succeed_for(SET, sp_scenario_set_from_json(document, SET, overrides, 2, &set, ERR));
    assert_int_equal(set.count, 28);
    for (size_t i = 0; i < set.count; i++) {
        int plans = plans_of(&set.cases[i]);
        print_message("%s, %s: %d\n", set.cases[i].group, set.cases[i].name, plans);
        assert_in_range(plans, 2, MOST_OF_ONE);
        all += plans;
    }
    print_message("%d plans\n", all);
    assert_in_range(all, 2 * 28, MOST_PLANS);
    sp_scenario_set_fini(&set);
}
