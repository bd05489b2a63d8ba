#include "tests/support/host_memory.h"

#include <math.h>

#include "sim/cost/cost_model.h"
#include "sim/engine/memory.h"
#include "tests/support/host_random.h"
#include "tests/support/host_run.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define LLAMA "'layers': 4, 'hidden': 32, 'ffn': 48, 'heads': 4, 'kv_heads': 2, 'vocab': 61"
#define GPT                                                                                 \
    "'layers': 4, 'hidden': 32, 'ffn': 64, 'heads': 4, 'vocab': 61, 'activation': 'gelu', " \
    "'norm': 'layernorm', 'positional': 'learned', 'max_positions': 128, 'bias': true"
#define TIED(model) "{" model ", 'tied_embeddings': true}"

const char *const host_models[HOST_MODELS] = {"{" LLAMA "}", TIED(GPT), TIED(LLAMA), "{" GPT "}"};

typedef struct comparison {
    scenario_run run;
    host_device device;
    host_memory_check check;
    double error;
} comparison;

static double relative(const sp_bytes *predicted, const sp_bytes *measured)
{
    return fabs((double)sp_bytes_total(predicted) / (double)sp_bytes_total(measured) - 1.0);
}

static void compare_plan(comparison *c, const sp_model *model, const sp_memory_options *memory_of,
                         const sp_plan *plan, const sp_step_costs *costs)
{
    const sp_run_request request = {.plan = plan,
                                    .model = model,
                                    .memory = memory_of,
                                    .precision = SP_FP32,
                                    .seed = 5,
                                    .steps = 1,
                                    .memory_points = true};
    sp_run *run = host_run(&c->device, &request);
    const sp_measured_step *step = sp_run_step(run, 0);
    sp_memory_timeline predicted;
    sp_error err = {0};
    must_succeed("replay", sp_i_memory_replay(&step->timeline, costs, true, &predicted, &err),
                 &err);
    size_t ranks = step->timeline.rank_count;
    for (size_t r = 0; r < ranks; r++) {
        const host_memory memory = {.plan = plan,
                                    .rank = &step->timeline.ranks[r],
                                    .measured = &step->memory.ranks[r],
                                    .predicted = &predicted.ranks[r]};
        c->error += relative(&memory.predicted->peak, &memory.measured->peak) / (double)ranks;
        c->check(&memory);
    }
    sp_memory_timeline_fini(&predicted);
    sp_run_free(run);
}

static sp_status compare(void *context, const sp_step_view *view, sp_error *err)
{
    (void)err;
    comparison *c = context;
    const sp_scenario *scenario = &c->run.scenario;
    compare_plan(c, &scenario->model, &scenario->memory, view->plan, view->costs);
    return SP_OK;
}

double host_memory_compare(const char *model, const char *layout, const char *more,
                           host_memory_check check)
{
    comparison c = {.check = check};
    const sp_evaluate_options options = {.observer = compare, .observer_context = &c};
    char text[RUN_TEXT] = "";
    host_open(&c.device);
    put_json(text,
             "{'model': %s, 'cluster': 'host', 'profile': 'host', 'stack': '%s', 'parallel': %s, "
             "'workload': {'lengths': [38, 11, 64, 24, 12, 83, 15, 22], 'order': 'file', "
             "'samples_per_batch': 8, 'context': 128}, %s}",
             model, sp_backend_stack(c.device.backend), layout, more);
    run_good(text, &options, &c.run);
    run_fini(&c.run);
    host_close(&c.device);
    return c.error;
}

// Cluster and profile of a scenario, whose times nobody asks for.
static void compare_random(comparison *c, const sp_scenario *scenario, const sp_model *model,
                           const random_plan *r, sp_recompute mode)
{
    sp_memory_options memory = {.recompute = mode};
    sp_cost_model cost;
    sp_step_costs costs;
    sp_error err = {0};
    assert_true(sp_stack_builtin(sp_backend_stack(c->device.backend), &memory.stack));
    must_succeed("cost model",
                 sp_cost_model_init(&cost, model, &r->plan.layout, &scenario->cluster,
                                    &scenario->profile, memory, "random", &err),
                 &err);
    must_succeed("costs", sp_cost_model_build(&cost, &r->packing, &costs, &err), &err);
    compare_plan(c, model, &memory, &r->plan, &costs);
    sp_step_costs_fini(&costs);
    sp_cost_model_fini(&cost);
}

void host_memory_compare_random(const sp_model *model, uint64_t seed, int count, bool vocab,
                                host_memory_check check)
{
    comparison c = {.check = check};
    sp_scenario scenario;
    sp_error err = {0};
    sp_prng prng;
    sp_prng_seed(&prng, seed);
    must_succeed("scenario",
                 run_read("{'model': 'llama-7b', 'cluster': 'h800-8'}", &scenario, &err), &err);
    host_open(&c.device);
    for (int ran = 0; ran < count;) {
        random_plan r;
        int layers[HOST_STAGES];
        bool wanted = host_random_plan(&prng, model->layers, layers, &r);
        sp_recompute mode = (sp_recompute)random_below(&prng, SP_RECOMPUTE_MODES);
        r.plan.layout.vocab_parallel = vocab;
        if (wanted) {
            compare_random(&c, &scenario, model, &r, mode);
            ran++;
        }
        random_plan_fini(&r);
    }
    host_close(&c.device);
    sp_scenario_fini(&scenario);
}

void host_memory_differs(const host_memory *memory, sp_action action, const char *what,
                         int64_t measured, int64_t predicted)
{
    char name[32];
    sp_action_name(action, memory->plan->layout.chunks, name);
    fail_msg("dp %d pp %d, %s: %s %lld, predicted %lld", memory->rank->dp, memory->rank->pp, name,
             what, (long long)measured, (long long)predicted);
}
