#include "tests/support/host_memory.h"

#include "sim/cost/cost_model.h"
#include "sim/simulate/memory.h"
#include "tests/support/host_random.h"
#include "tests/support/initializers.h"
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
    const host_device *device;
    sp_clock clock;
    int steps;
    host_memory_check check;
    double error;
    int64_t most_offloaded;
} comparison;

static double relative(const sp_bytes *predicted, const sp_bytes *measured)
{
    return fabs((double)sp_bytes_total(predicted) / (double)sp_bytes_total(measured) - 1.0);
}

static int64_t most_offloaded(const sp_rank_memory *memory)
{
    int64_t most = 0;
    for (size_t i = 0; i < memory->point_count; i++) {
        int64_t bytes = memory->points[i].bytes.of[SP_MEM_OFFLOADED];
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void compare_step(comparison *c, const sp_plan *plan, const sp_step_costs *costs,
                         const sp_measured_step *step)
{
    AUTO(sp_memory_timeline) predicted;
    must_succeed(sp_memory_replay(&step->timeline, costs, true, &predicted, ERR));
    size_t ranks = step->timeline.rank_count;
    for (size_t r = 0; r < ranks; r++) {
        const host_memory memory = {.plan = plan,
                                    .rank = &step->timeline.ranks[r],
                                    .measured = &step->memory.ranks[r],
                                    .predicted = &predicted.ranks[r]};
        int64_t offloaded = most_offloaded(memory.measured);
        c->error += relative(&memory.predicted->peak, &memory.measured->peak) / (double)ranks;
        c->most_offloaded = offloaded > c->most_offloaded ? offloaded : c->most_offloaded;
        c->check(&memory);
    }
}

static void compare_plan(comparison *c, const sp_model *model, const sp_memory_options *memory_of,
                         const sp_plan *plan, const sp_step_costs *costs)
{
    const sp_run_request request = {RUN_OF(plan, model, memory_of), .clock = c->clock,
                                    RUN_STEPS(SP_FP32, 5, c->steps), .memory_points = true};
    sp_run *run = host_run(c->device, &request);
    for (int s = 0; s < c->steps; s++) {
        compare_step(c, plan, costs, sp_run_step(run, s));
    }
    sp_run_free(run);
}

static sp_status compare(void *context, const sp_step_view *view, sp_error *err)
{
    comparison *c = context;
    const sp_scenario *scenario = &c->run.scenario;
    compare_plan(c, &scenario->model, &scenario->memory, view->plan, view->costs);
    return SP_OK;
}

static void compare_scenario(comparison *c, const char *scenario)
{
    const sp_evaluate_options options = {
        .no_bounds = true, .effort_percent = 10, .observer = compare, .observer_context = c};
    run_good(scenario, &options, &c->run);
    scenario_run_fini(&c->run);
}

double host_memory_compare(const char *model, const char *layout, const char *more,
                           host_memory_check check)
{
    AUTO(host_device) device;
    comparison c = {.device = &device, .steps = 1, .check = check};
    host_open(&device);
    const char *text = json_text(
        "{'model': %s, 'cluster': 'host', 'profile': 'host', 'stack': '%s', 'parallel': %s, "
        "'workload': {'lengths': [38, 11, 64, 24, 12, 83, 15, 22], 'order': 'file', "
        "'samples_per_batch': 8, 'context': 128}, %s}",
        model, sp_backend_stack(device.backend), layout, more);
    compare_scenario(&c, text);
    return c.error;
}

// Cluster and profile of a scenario, whose times nobody asks for.
static void compare_random(comparison *c, const sp_scenario *scenario, const sp_model *model,
                           const random_plan *r, sp_recompute mode)
{
    sp_memory_options memory = {.recompute = mode};
    AUTO(sp_cost_model) cost;
    AUTO(sp_step_costs) costs;
    assert_true(sp_stack_builtin(sp_backend_stack(c->device->backend), &memory.stack));
    must_succeed(sp_cost_model_init(&cost, model, &r->plan.layout, &scenario->cluster,
                                    &scenario->profile, memory, "random", ERR));
    must_succeed(sp_cost_model_build(&cost, &r->packing, &costs, ERR));
    compare_plan(c, model, &memory, &r->plan, &costs);
}

void host_memory_compare_random(const sp_model *model, uint64_t seed, int count, bool vocab,
                                host_memory_check check)
{
    AUTO(host_device) device;
    comparison c = {.device = &device, .steps = 1, .check = check};
    AUTO(sp_scenario) scenario;
    sp_error_clear(ERR);
    sp_prng prng = prng_seeded(seed);
    must_succeed(run_read("{'model': 'llama-7b', 'cluster': 'h800-8'}", &scenario, ERR));
    host_open(&device);
    for (int ran = 0; ran < count;) {
        AUTO(random_plan) r;
        int layers[HOST_STAGES];
        bool wanted = host_random_plan(&prng, model->layers, layers, &r);
        sp_recompute mode = host_random_mode(&prng, model);
        r.plan.layout.vocab_parallel = vocab;
        if (wanted) {
            compare_random(&c, &scenario, model, &r, mode);
            ran++;
        }
    }
}

void host_memory_differs(const host_memory *memory, sp_action action, const char *what,
                         int64_t measured, int64_t predicted)
{
    char name[32];
    sp_action_name(action, memory->plan->layout.chunks, name);
    fail_msg("dp %d pp %d, %s: %s %lld, predicted %lld", memory->rank->dp, memory->rank->pp, name,
             what, (long long)measured, (long long)predicted);
}

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

static void must_equal(const host_memory *memory, sp_action action, sp_memory_category category,
                       const sp_bytes *measured, const sp_bytes *predicted)
{
    if (measured->of[category] != predicted->of[category]) {
        host_memory_differs(memory, action, sp_memory_category_names[category],
                            measured->of[category], predicted->of[category]);
    }
}

void host_memory_equal_after_actions(const host_memory *memory, const sp_memory_category *category,
                                     size_t count)
{
    for (size_t i = 0; i < memory->rank->count; i++) {
        const sp_span *span = &memory->rank->spans[i];
        const sp_bytes *measured = held_after(memory->measured, span->end_ns);
        const sp_bytes *predicted = held_after(memory->predicted, span->end_ns);
        for (size_t k = 0; k < count; k++) {
            must_equal(memory, span->action, category[k], measured, predicted);
        }
    }
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

static void is_held(const host_memory *memory)
{
    static const sp_memory_category exact[] = {
        SP_MEM_PARAMETERS, SP_MEM_GRADIENTS, SP_MEM_OPTIMIZER, SP_MEM_ACTIVATIONS,
        SP_MEM_KV_CACHE,   SP_MEM_LOGITS,    SP_MEM_OFFLOADED};
    host_memory_equal_after_actions(memory, exact, sizeof exact / sizeof exact[0]);
    for (size_t i = 0; i < 2 * memory->rank->copy_count; i++) {
        const sp_span *span = &memory->rank->copies[i / 2];
        int64_t time_ns = i % 2 == 0 ? span->start_ns : span->end_ns;
        must_equal(memory, span->action, SP_MEM_OFFLOADED, held_at(memory->measured, time_ns),
                   held_at(memory->predicted, time_ns));
    }
}

int64_t host_memory_must_hold(const host_device *device, const char *scenario, sp_clock clock)
{
    // In virtual time the second step repeats the first.
    int steps = clock == SP_CLOCK_WALL ? 2 : test_draws(2);
    comparison c = {.device = device, .clock = clock, .steps = steps, .check = is_held};
    compare_scenario(&c, scenario);
    return c.most_offloaded;
}

void host_memory_compare_random_plans(host_memory_check check)
{
    sp_model llama = host_llama();
    sp_model gpt = host_gpt();
    host_memory_compare_random(&llama, 1, test_draws(60), false, check);
    host_memory_compare_random(&gpt, 2, test_draws(60), false, check);
    llama.tied_embeddings = true;
    gpt.tied_embeddings = false;
    host_memory_compare_random(&llama, 3, test_draws(30), false, check);
    host_memory_compare_random(&gpt, 4, test_draws(30), false, check);
}
