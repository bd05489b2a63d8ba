// Gradients and loss of executed plans, whatever their schedule, strategy and layout, are those of
// the plain step: one rank, whole samples.
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// What the plans are made for: a model whose times are those of its products, as in large runs. The
// one that executes them has as many layers.
#define PLANNED \
    "{'layers': 4, 'hidden': 8192, 'ffn': 16384, 'heads': 64, 'kv_heads': 8, 'vocab': 32000}"

enum { SAMPLES = 14 };

// What the plans of a case have to have, so that it tests what it says.
typedef struct features {
    bool slices, regrouped, split, repeats, padding;
} features;

typedef struct examination {
    scenario_run run;
    host_device device;
    sp_model model;
    sp_precision precision;
    int plans;
    features found;
} examination;

static void find_features(const sp_plan *plan, features *found)
{
    const sp_packing *packing = plan->packing;
    for (size_t s = 0; s < packing->forward.slice_count; s++) {
        const sp_slice *slice = &packing->forward.slices[s];
        found->slices = found->slices || slice->tokens < packing->batch->tokens[slice->sample];
        found->padding = found->padding || slice->computed_tokens > slice->tokens;
    }
    found->regrouped = packing->backward.count > 0;
    for (int s = 0; s < plan->layout.dp * plan->layout.pp; s++) {
        for (size_t a = 0; a < plan->stages[s].count; a++) {
            found->split = found->split || plan->stages[s].actions[a].kind == SP_ACTION_I;
            found->repeats = found->repeats || plan->stages[s].actions[a].kind == SP_ACTION_R;
        }
    }
}

static sp_status execute(void *context, const sp_step_view *view, sp_error *err)
{
    examination *e = context;
    const sp_scenario *scenario = &e->run.scenario;
    const sp_run_request request = {RUN_OF(view->plan, &e->model, &scenario->memory),
                                    RUN_STEPS(e->precision, 5, 1)};
    e->found = (features){0};
    find_features(view->plan, &e->found);
    host_must_agree(&e->device, &request);
    e->plans++;
    return SP_OK;
}

// Lengths of SAMPLES samples: many short ones and a few long ones.
static void put_lengths(char *text, int longest, uint64_t seed)
{
    sp_prng prng = prng_seeded(seed);
    for (int i = 0; i < SAMPLES; i++) {
        uint64_t most = i % 5 == 0 ? (uint64_t)longest : 24;
        put_json(text, "%s%d", i > 0 ? ", " : "", 1 + (int)sp_prng_below(&prng, most));
    }
}

// The plan's settings beside its workload.
typedef struct settings {
    const char *parallel; // an object
    const char *recompute;
    int longest; // sample
    const char *more;
} settings;

static features agrees(sp_model model, const settings *set, uint64_t seed, sp_precision precision)
{
    examination e = {.model = model, .precision = precision};
    const sp_evaluate_options options = {.engine = {.verify = true},
                                         .effort_percent = 10,
                                         .observer = execute,
                                         .observer_context = &e};
    char text[RUN_TEXT] = "";
    put_json(text,
             "{'model': " PLANNED ", 'cluster': 'h800-8', 'parallel': %s, 'memory': {'recompute': "
             "'%s', 'limit_gib': 10000}, 'workload': {'lengths': [",
             set->parallel, set->recompute);
    put_lengths(text, set->longest, seed);
    put_json(text, "], 'order': 'file', 'samples_per_batch': %d, 'context': %d}, %s}", SAMPLES,
             set->longest, set->more);
    host_open(&e.device);
    run_good(text, &options, &e.run);
    assert_int_equal(e.plans, 1);
    scenario_run_fini(&e.run);
    host_device_fini(&e.device);
    return e.found;
}

static features any_of(features a, features b)
{
    return (features){.slices = a.slices || b.slices,
                      .regrouped = a.regrouped || b.regrouped,
                      .split = a.split || b.split,
                      .repeats = a.repeats || b.repeats,
                      .padding = a.padding || b.padding};
}

enum { EXECUTIONS = 4 }; // of a setting: lengths, model and precision

static features agrees_in(const settings *set, int execution)
{
    return agrees(execution == 2 ? host_gpt() : host_llama(), set, 1 + (uint64_t)execution,
                  execution == 3 ? SP_FP32 : SP_FP64);
}

// Gives what some of the plans had.
static features agree(const settings *set)
{
    features found = {0};
    for (int i = 0; i < EXECUTIONS; i++) {
        found = any_of(found, agrees_in(set, i));
    }
    return found;
}

#define STRATEGY(kind) "'strategy': {'kind': '" kind "'}"
#define SCHEDULE(kind) "'schedule': {'kind': '" kind "', 'group': 'even'}"

// What the plans must have.
#define SLICES .slices = true
#define SPLIT .split = true
#define REPEATS .repeats = true
#define PADDING .padding = true

typedef struct planned {
    const char *parallel, *more;
    features has;
} planned;

static void agree_in_all(const planned *plans, int count)
{
    for (int i = 0; i < count; i++) {
        const settings set = {.parallel = plans[i].parallel,
                              .recompute = "none",
                              .longest = 120,
                              .more = plans[i].more};
        const features found = agree(&set);
        const features has = plans[i].has;
        must_hold(found.slices >= has.slices && found.split >= has.split &&
                      found.repeats >= has.repeats && found.padding >= has.padding,
                  "%s, %s: it has not what it is for", set.parallel, set.more);
    }
}

TEST(schedules_of_whole_samples)
{
    static const planned plans[] = {
        {"{}", STRATEGY("packed"), {0}},
        {"{}", STRATEGY("padded"), {PADDING}},
        {"{'dp': 3}", STRATEGY("packed"), {0}},
        {"{'dp': 2, 'zero': 0}", STRATEGY("bfd"), {0}},
        {"{'pp': 2}", SCHEDULE("1f1b"), {0}},
        {"{'pp': 4, 'dp': 2}", SCHEDULE("1f1b") ", " STRATEGY("sorted"), {0}},
        {"{'pp': 2, 'dp': 2}", SCHEDULE("gpipe") ", " STRATEGY("padded"), {PADDING}},
        {"{'pp': 2, 'chunks_per_rank': 2}", SCHEDULE("interleaved"), {0}},
        {"{'pp': 2, 'dp': 2, 'chunks_per_rank': 2}", SCHEDULE("interleaved"), {0}},
    };
    agree_in_all(plans, COUNT_OF(plans));
}

TEST(schedules_that_split_the_backward)
{
    static const planned plans[] = {
        {"{'pp': 4}", SCHEDULE("zb-h1"), {SPLIT}},
        {"{'pp': 2, 'dp': 2}", SCHEDULE("zb-h2"), {SPLIT}},
        {"{'pp': 2}", SCHEDULE("zb-auto"), {SPLIT}},
        {"{'pp': 2}", SCHEDULE("zb-v"), {SPLIT}},
        {"{'pp': 2, 'dp': 2}", SCHEDULE("v-half"), {SPLIT}},
        {"{'pp': 2}", SCHEDULE("v-min"), {SPLIT}},
        {"{'pp': 2}", SCHEDULE("dualpipe-v") ", " STRATEGY("padded"), {0}},
    };
    agree_in_all(plans, COUNT_OF(plans));
}

TEST(schedules_of_slices)
{
    static const planned plans[] = {
        {"{'pp': 2}", "'schedule': {'kind': 'terapipe', 'slices': 3}", {SLICES}},
        {"{'pp': 2, 'dp': 2}", "'schedule': {'kind': 'seq1f1b', 'slices': 4}", {SLICES}},
        {"{'pp': 4}",
         "'schedule': {'kind': 'seq1f1b', 'slices': 2, 'microbatch_samples': 2}, "
         "'strategy': {'kind': 'padded', 'pad_to': 'longest'}",
         {PADDING}},
        {"{'pp': 2}", STRATEGY("slimpipe") ", 'schedule': {'slices': 4}", {SLICES}},
        {"{'pp': 4, 'dp': 2}", STRATEGY("slimpipe") ", 'schedule': {'slices': 8}", {SLICES}},
        {"{'pp': 2}", "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 16}", {REPEATS}},
        {"{'pp': 4, 'dp': 2}", "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 16}", {REPEATS}},
    };
    agree_in_all(plans, COUNT_OF(plans));
}

// With samples that are long enough to be cut at any price. One execution (-1: each); each in a
// full run.
static features agrees_in_slices(const char *parallel, const char *recompute, const char *more,
                                 int execution)
{
    const settings set = {
        .parallel = parallel, .recompute = recompute, .longest = 640, .more = more};
    return test_is_full() || execution < 0 ? agree(&set) : agrees_in(&set, execution % EXECUTIONS);
}

// On one data-parallel rank: several would merge their ranks for a sample, which is refused.
TEST(packflow)
{
    features found = agrees_in_slices("{'pp': 4}", "none", STRATEGY("slimpack-symmetric"), -1);
    assert_true(found.slices && found.regrouped);
    found = agrees_in_slices("{'pp': 4}", "none", STRATEGY("slimpack"), -1);
    assert_true(found.slices && found.regrouped);
    found = agrees_in_slices("{'pp': 4}", "none", STRATEGY("slimpack-zb"), -1);
    assert_true(found.slices && found.regrouped && found.split);
}

TEST(recomputing)
{
    static const char *const modes[] = {"activation", "partial-fc1", "attention", "full"};
    static const char chunks[] = "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 128}";
    features sliced = {0};
    for (int m = 0; m < 4; m++) {
        assert_true(agrees_in_slices("{'pp': 2}", modes[m], SCHEDULE("zb-h1"), m).split);
        sliced =
            any_of(sliced, agrees_in_slices("{'pp': 4}", modes[m], STRATEGY("slimpack"), m + 1));
        assert_true(agrees_in_slices("{'pp': 2}", modes[m], chunks, m + 2).repeats);
    }
    assert_true(sliced.slices && sliced.regrouped);
}
