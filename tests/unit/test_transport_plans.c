// Plans of every schedule and strategy whose ranks stand alone, as in processes of their own; steps
// one after another, with clipping, without shards of optimizer states, with everything beside the
// packs that ranks can tell each other.
#include "tests/support/initializers.h"
#include "tests/support/process_runs.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

#define PLANNED \
    "{'layers': 4, 'hidden': 8192, 'ffn': 16384, 'heads': 64, 'kv_heads': 8, 'vocab': 32000}"

// What a case executes, beside the plan.
typedef struct execution {
    scenario_run run;
    host_device device;
    sp_model model;
    const sp_backend_option *options;
    size_t option_count;
    int steps, plans;
    int64_t most_offloaded;
} execution;

static int64_t most_offloaded(const sp_measured_step *step)
{
    int64_t most = 0;
    for (size_t r = 0; r < step->memory.rank_count; r++) {
        const sp_rank_memory *memory = &step->memory.ranks[r];
        for (size_t p = 0; p < memory->point_count; p++) {
            int64_t bytes = memory->points[p].bytes.of[SP_MEM_OFFLOADED];
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static sp_status execute(void *context, const sp_step_view *view, sp_error *err)
{
    execution *e = context;
    const process_settings settings = {.late = e->steps % 2 != 0, .skewed = e->steps == 2};
    const sp_run_request request = {RUN_OF(view->plan, &e->model, &e->run.scenario.memory),
                                    .clock = SP_CLOCK_WALL, RUN_STEPS(SP_FP64, 5, e->steps),
                                    RUN_OPTIONS(e->options, e->option_count),
                                    .memory_points = true};
    process_runs_agree(&e->device, &request, &settings);
    sp_run *run = host_run(&e->device, &request);
    e->most_offloaded = most_offloaded(sp_run_step(run, 0));
    sp_run_free(run);
    e->plans++;
    return SP_OK;
}

static void run_plan(execution *e, const char *parallel, const char *memory, const char *more)
{
    const sp_evaluate_options options = {
        .effort_percent = 10, .observer = execute, .observer_context = e};
    const char *text = json_text(
        "{'model': " PLANNED ", 'cluster': 'h800-8', 'parallel': %s, 'memory': {%s"
        "'limit_gib': 10000}, 'workload': {'lengths': [90, 7, 12, 21, 3, 17, 110, 9, 24, 5], "
        "'order': 'file', 'samples_per_batch': 10, 'context': 120}, %s}",
        parallel, memory, more);
    e->plans = 0;
    host_open(&e->device);
    run_good(text, &options, &e->run);
    assert_int_equal(e->plans, 1);
    scenario_run_fini(&e->run);
    host_device_fini(&e->device);
}

static void agree(const char *parallel, const char *more)
{
    execution e = {.model = host_llama(), .steps = 1};
    run_plan(&e, parallel, "", more);
    e.model = host_gpt();
    e.steps = 2;
    run_plan(&e, parallel, "", more);
}

#define STRATEGY(kind) "'strategy': {'kind': '" kind "'}"
#define SCHEDULE(kind) "'schedule': {'kind': '" kind "'}"

// Beside what random plans have (test_transport_random.c): two stages of a rank one behind the
// other, pairs, slices of several packs, repeats, backward packs of their own.
TEST(schedules_and_strategies)
{
    agree("{'pp': 2, 'tp': 2}", SCHEDULE("1f1b"));
    agree("{'dp': 2, 'zero': 0}", STRATEGY("bfd"));
    agree("{'pp': 2, 'dp': 2, 'chunks_per_rank': 2}", SCHEDULE("interleaved"));
    agree("{'pp': 2, 'dp': 2}", SCHEDULE("zb-h2"));
    agree("{'pp': 2, 'dp': 2}", SCHEDULE("v-half"));
    agree("{'pp': 2}", SCHEDULE("dualpipe-v") ", " STRATEGY("padded"));
    agree("{'pp': 4}", STRATEGY("slimpipe") ", 'schedule': {'slices': 8}");
    agree("{'pp': 4, 'dp': 2}", "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 16}");
    agree("{'pp': 4}", STRATEGY("slimpack-zb"));
}

TEST(schedules_and_strategies_of_whole_samples)
{
    agree("{}", STRATEGY("packed"));
    agree("{'dp': 3}", STRATEGY("packed"));
    agree("{'pp': 4, 'dp': 2}", SCHEDULE("1f1b") ", " STRATEGY("sorted"));
    agree("{'pp': 2, 'dp': 2, 'zero': 0}", SCHEDULE("gpipe") ", " STRATEGY("padded"));
    agree("{'pp': 4}", SCHEDULE("zb-h1"));
    agree("{'pp': 2}", SCHEDULE("zb-v"));
}

TEST(slices_of_one_length_and_of_all)
{
    agree("{'pp': 2, 'dp': 2}", "'schedule': {'kind': 'seq1f1b', 'slices': 4}");
    agree("{'pp': 4}", STRATEGY("slimpack"));
}

TEST(offloading)
{
    execution e = {.model = host_llama(), .steps = 2};
    e.model.hidden = 8;
    e.model.ffn = 4096;
    e.model.heads = e.model.kv_heads = 2;
    e.model.head_dim = 256;
    run_plan(&e, "{'pp': 2, 'dp': 2}", "'offload_ratio': 0.5, ", SCHEDULE("1f1b"));
    assert_true(e.most_offloaded > 0);
}

TEST(clipping)
{
    static const sp_backend_option options[] = {{"clip", "0.01"}, {"learning_rate", "0.01"}};
    execution e = {.model = host_gpt(), .steps = 3, .options = options, .option_count = 2};
    run_plan(&e, "{'pp': 2, 'dp': 2, 'tp': 2}", "", SCHEDULE("1f1b"));
    run_plan(&e, "{'pp': 2, 'dp': 2, 'zero': 0}", "", SCHEDULE("1f1b"));
}

// Each stage runs the packs in an order of its own: what one sends first another reads last.
static void shuffle(sp_prng *prng, sp_stage_plan *stage, size_t packs)
{
    for (size_t begin = 0; begin < stage->count; begin += packs) {
        for (size_t i = packs - 1; i > 0; i--) {
            size_t k = sp_prng_below(prng, i + 1);
            sp_action kept = stage->actions[begin + i];
            stage->actions[begin + i] = stage->actions[begin + k];
            stage->actions[begin + k] = kept;
        }
    }
}

static void add_all(sp_plan *plan, int dp, int pp, sp_action_kind kind, int chunk)
{
    for (size_t p = 0; p < plan->packing->forward.count; p++) {
        if (plan->packing->forward.packs[p].dp_first == dp) {
            sp_stage_plan_add(sp_plan_stage(plan, dp, pp), kind, chunk, (int64_t)p);
        }
    }
}

enum { ORDERED = 6 }; // packs of a data-parallel rank

static void make_ordered(sp_prng *prng, const sp_layout *layout, sp_packing *packing, sp_plan *plan)
{
    for (int32_t s = 0; s < layout->dp * ORDERED; s++) {
        int64_t tokens = packing->batch->tokens[s];
        pack_sample(&packing->forward, s % layout->dp, 1, s, tokens);
    }
    sp_plan_init(plan, layout, packing);
    for (int i = 0; i < layout->dp * layout->pp; i++) {
        int dp = i / layout->pp;
        int pp = i % layout->pp;
        add_all(plan, dp, pp, SP_ACTION_F, 0);
        add_all(plan, dp, pp, SP_ACTION_F, 1);
        add_all(plan, dp, pp, SP_ACTION_B, 1);
        add_all(plan, dp, pp, SP_ACTION_B, 0);
        shuffle(prng, sp_plan_stage(plan, dp, pp), ORDERED);
    }
}

TEST(orders_of_their_own)
{
    enum { DP = 2, SAMPLES = DP * ORDERED };
    static const sp_memory_options memory;
    const sp_model model = host_llama();
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 2, .dp = DP, .chunks = 2, .zero = 1};
    int64_t ids[SAMPLES], tokens[SAMPLES];
    sp_prng prng = prng_seeded(51);
    AUTO(host_device) device = host_opened();
    for (int i = 0; i < 12; i++) {
        sp_batch batch = {.ids = ids, .tokens = tokens, .count = SAMPLES};
        AUTO(sp_packing) packing;
        AUTO(sp_plan) plan;
        for (int s = 0; s < SAMPLES; s++) {
            ids[s] = s;
            tokens[s] = 1 + (int64_t)sp_prng_below(&prng, 20);
            batch.total_tokens += tokens[s];
        }
        sp_packing_init(&packing, &batch, layout.dp);
        make_ordered(&prng, &layout, &packing, &plan);
        const sp_run_request request = {RUN_OF(&plan, &model, &memory), .clock = SP_CLOCK_WALL,
                                        RUN_STEPS(SP_FP64, 6, 1), .memory_points = true};
        process_runs_agree(&device, &request, &(process_settings){.late = i % 2 == 0});
    }
}
