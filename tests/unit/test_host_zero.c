// ZeRO 2 and 3: gradients are those of the plain step, parameters too after several steps, results
// are the same bits every time, and between actions a rank holds its share alone.
#include "backends/executor/stage.h"
#include "backends/host/cpu_runtime.h"
#include "tests/support/host_memory.h"
#include "tests/support/host_random.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static void agree(host_random draw)
{
    draw.count = test_draws(8);
    draw.most_tp_bits = 1;
    draw.most_cp = 2;
    draw.merges = true;
    host_random_agree(draw);
}

TEST(llama_in_virtual_time)
{
    agree((host_random){.zero = 2, .seed = 31});
    agree((host_random){.zero = 3, .seed = 32});
}

// A tied table, whose ends may stand on one rank or two.
TEST(gpt_in_virtual_time)
{
    agree((host_random){.gpt = true, .dropout = "0.25", .zero = 2, .seed = 33});
    agree((host_random){.gpt = true, .dropout = "0.25", .zero = 3, .seed = 34});
}

TEST(on_the_wall_clock)
{
    agree((host_random){.zero = 3, .clock = SP_CLOCK_WALL, .seed = 35});
    agree((host_random){.gpt = true, .zero = 2, .clock = SP_CLOCK_WALL, .seed = 36});
}

#define SCENARIO                                                                              \
    "{'model': %s, 'cluster': 'h800-8', 'stack': {'fused_swiglu': true, 'gradient_buckets': " \
    "false}, 'parallel': %s, "                                                                \
    "'workload': {'lengths': [38, 11, 64, 24, 12, 83, 15, 22, 40, 9, 31, 56], 'order': "      \
    "'file', 'samples_per_batch': 12, 'context': 128}, %s}"

static void holds(const char *layout, const char *more)
{
    static const char *const models[] = {HOST_LLAMA, HOST_GPT};
    for (int m = 0; m < 2; m++) {
        const char *text = json_text(SCENARIO, models[m], layout, more);
        AUTO(host_device) device = host_opened();
        host_memory_must_hold(&device, text, SP_CLOCK_VIRTUAL);
    }
}

TEST(shares_hold_what_is_predicted)
{
    holds("{'pp': 2, 'dp': 2, 'zero': 2}", "'schedule': {'kind': '1f1b'}");
    holds("{'pp': 2, 'dp': 2, 'zero': 3}", "'schedule': {'kind': '1f1b'}");
    holds("{'pp': 2, 'dp': 3, 'zero': 3}", "'schedule': {'kind': 'zb-h1'}");
    holds("{'pp': 2, 'dp': 2, 'zero': 3}", "'strategy': {'kind': 'slimpack'}");
}

// ---- several steps ----

typedef struct steps {
    host_device device;
    sp_model model;
    sp_clock clock;
} steps;

// After several steps on the wall clock, twice, and on the plain step's single rank.
static sp_status compare_steps(void *context, const sp_step_view *view, sp_error *err)
{
    const steps *s = context;
    static const sp_memory_options memory;
    const sp_run_request request = {RUN_OF(view->plan, &s->model, &memory), .clock = s->clock,
                                    RUN_STEPS(SP_FP64, 9, 4)};
    AUTO(host_plain) plain;
    host_plain_make(&request, &plain);
    sp_run *first = host_run(&s->device, &request);
    sp_run *second = host_run(&s->device, &request);
    sp_run *expected = host_run(&s->device, &plain.request);
    assert_true(host_distance(first, second, "") == 0.0);
    assert_true(host_distance(first, expected, "parameters/") < 1e-7);
    sp_run_free(first);
    sp_run_free(second);
    sp_run_free(expected);
    return SP_OK;
}

static void several_steps(const char *json, sp_model model, const char *layout, sp_clock clock)
{
    steps s = {.model = model, .clock = clock};
    scenario_run run;
    const sp_evaluate_options options = {
        .no_bounds = true, .observer = compare_steps, .observer_context = &s};
    const char *text = json_text(SCENARIO, json, layout, "'schedule': {'kind': '1f1b'}");
    host_open(&s.device);
    run_good(text, &options, &run);
    scenario_run_fini(&run);
    host_device_fini(&s.device);
}

TEST(steps_follow_one_another)
{
    for (int clock = 0; clock < SP_CLOCKS; clock++) {
        several_steps(HOST_LLAMA, host_llama(), "{'pp': 2, 'dp': 3, 'zero': 2}", (sp_clock)clock);
        several_steps(HOST_LLAMA, host_llama(), "{'pp': 2, 'dp': 3, 'zero': 3}", (sp_clock)clock);
        several_steps(HOST_GPT, host_gpt(), "{'pp': 2, 'dp': 2, 'zero': 3}", (sp_clock)clock);
    }
}

// ---- the order of sums ----

enum { MEMBERS = 3, ELEMENTS = 8 };

// Sums in fp32 whose order shows in their last bits.
static float gift_of(int member, int number, int element)
{
    return 1.0f / (float)(1 + member + 3 * number * number + 7 * element);
}

// Everybody gives as often as `often` says; `from` gives all it has before the next member begins.
static void give_all(const int *often, int from, float *sums)
{
    AUTO(sp_i_exec_replicas) r;
    float share[MEMBERS][ELEMENTS] = {{0}};
    sp_i_exec_replicas_init(&r, sp_runtime_cpu(), MEMBERS, sizeof(float), sizeof(float),
                            sp_i_exec_math_f32.add_exact);
    for (int m = 0; m < MEMBERS; m++) {
        int64_t end = 3 * (m + 1) < ELEMENTS ? 3 * (m + 1) : ELEMENTS;
        r.shares[m] = (sp_i_exec_share){.begin = 3 * m, .end = end, .gradients = share[m]};
    }
    sp_i_exec_scatter_begin(&r);
    for (int i = 0; i < MEMBERS; i++) {
        int m = (from + i) % MEMBERS;
        for (int n = 0; n < often[m]; n++) {
            float gift[ELEMENTS - 1];
            for (int e = 0; e < ELEMENTS - 1; e++) {
                gift[e] = gift_of(m, n, e);
            }
            assert_true(sp_i_exec_scatter(&r, m, 1, ELEMENTS - 1, gift));
        }
        sp_i_exec_scatter_end(&r, m);
    }
    for (int e = 0; e < ELEMENTS; e++) {
        sums[e] = share[e / 3][e % 3];
    }
}

TEST(sums_have_one_order)
{
    const int often[MEMBERS] = {5, 2, 7};
    for (int from = 0; from < MEMBERS; from++) {
        float sums[ELEMENTS];
        give_all(often, from, sums);
        assert_true(sums[0] == 0.0f);
        for (int e = 0; e < ELEMENTS - 1; e++) {
            float expected = 0.0f;
            for (int n = 0; n < 7; n++) {
                for (int m = 0; m < MEMBERS; m++) {
                    expected += n < often[m] ? gift_of(m, n, e) : 0.0f;
                }
            }
            assert_true(sums[e + 1] == expected);
        }
    }
}
