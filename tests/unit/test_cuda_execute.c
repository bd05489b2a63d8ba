// Plans on the CUDA backend, whose kernels the CPU emulates: gradients and loss of the plain step
// in fp64, memory of the CPU executor; the suite that every backend passes; emulated links; and
// what holds a GPU's gradients against fp64 on a machine with one (tests/gpu/gradients.h).
#include "tests/gpu/gradients.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/gpu/support/emulated_plans.h"
#include "tests/support/backend_conformance.h"
#include "tests/support/host_random.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static void llama_on(const char *layout, const char *more, sp_clock clock)
{
    const emulated_plan plan = {HOST_LLAMA_OF(2), layout, more, NULL, clock, NULL};
    emulated_plan_agrees(&plan);
}

static void gpt_on(const char *layout, const char *more, sp_clock clock)
{
    const emulated_plan plan = {HOST_GPT_OF(2), layout, more, "0.25", clock, NULL};
    emulated_plan_agrees(&plan);
}

static void llama(const char *layout, const char *more)
{
    llama_on(layout, more, SP_CLOCK_VIRTUAL);
}

static void gpt(const char *layout, const char *more)
{
    gpt_on(layout, more, SP_CLOCK_VIRTUAL);
}

static void four_layers(const char *model, const char *layout, const char *more)
{
    const emulated_plan plan = {.model = model, .layout = layout, .more = more};
    emulated_plan_agrees(&plan);
}

#define PLAIN "'schedule': {'kind': '1f1b'}"
#define SLICED "'strategy': {'kind': 'slimpack', 'slice_tokens': 16}"

TEST(schedules)
{
    llama("{}", "'schedule': {'kind': 'gpipe'}");
    gpt("{'pp': 2}", PLAIN);
    four_layers(HOST_LLAMA, "{'pp': 2, 'chunks_per_rank': 2}",
                "'schedule': {'kind': 'interleaved'}");
    four_layers(HOST_GPT, "{'pp': 4}", "'schedule': {'kind': 'zb-h1'}");
    four_layers(HOST_LLAMA, "{'pp': 2}", "'schedule': {'kind': 'zb-v'}");
}

TEST(slices)
{
    gpt("{'pp': 2}", "'schedule': {'kind': 'seq1f1b', 'slices': 3}");
    llama("{'pp': 2}", "'strategy': {'kind': 'slimpipe'}, 'schedule': {'slices': 4}");
    gpt("{'pp': 2}", "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 16}");
    llama("{'pp': 2}", SLICED);
    gpt("{'pp': 2}", "'strategy': {'kind': 'slimpack-zb', 'slice_tokens': 16}");
}

TEST(tensor_parallel)
{
    llama("{'tp': 2, 'sequence_parallel': false}", PLAIN);
    gpt("{'tp': 2, 'sequence_parallel': true}", SLICED);
    llama("{'tp': 4, 'sequence_parallel': true}", PLAIN);
}

TEST(context_parallel)
{
    gpt("{'cp': 2}", PLAIN);
    gpt("{'cp': 2, 'tp': 2, 'sequence_parallel': true}", SLICED);
}

TEST(shares_of_states)
{
    llama("{'dp': 2, 'zero': 0}", PLAIN);
    gpt("{'dp': 3, 'zero': 1}", PLAIN);
    llama("{'pp': 2, 'dp': 2, 'zero': 2}", PLAIN);
    gpt("{'pp': 2, 'dp': 2, 'zero': 3}", SLICED);
}

TEST(spread_vocabulary)
{
    llama("{'pp': 2, 'vocab_parallel': true}", PLAIN);
    gpt("{'pp': 2, 'tp': 2, 'vocab_parallel': true}", SLICED);
}

TEST(recomputation)
{
    static const char *const modes[] = {"activation", "partial-fc1", "attention", "full"};
    for (int m = 0; m < 4; m++) {
        const char *more =
            json_text("'memory': {'recompute': '%s'}, %s", modes[m], m % 2 == 0 ? PLAIN : SLICED);
        llama("{'pp': 2}", more);
    }
}

// Only tensors of a MiB or more leave.
TEST(offload)
{
    const emulated_plan plan = {
        .model = "{'layers': 2, 'hidden': 8, 'ffn': 4096, 'heads': 1, 'head_dim': 8, 'vocab': 61}",
        .layout = "{'pp': 2}",
        .more = "'memory': {'offload_ratio': 0.7}, 'strategy': {'kind': 'padded'}"};
    assert_true(emulated_plan_agrees(&plan) > 0);
}

TEST(on_the_wall_clock)
{
    gpt_on("{'pp': 2}", PLAIN, SP_CLOCK_WALL);
    llama_on("{'pp': 2}", SLICED, SP_CLOCK_WALL);
    gpt_on("{'pp': 2, 'dp': 2, 'zero': 3}", PLAIN, SP_CLOCK_WALL);
    llama_on("{'cp': 2, 'pp': 2}", SLICED, SP_CLOCK_WALL);
    gpt_on("{'tp': 2, 'sequence_parallel': true, 'pp': 2}", SLICED, SP_CLOCK_WALL);
    llama_on("{'pp': 2, 'vocab_parallel': true}", PLAIN, SP_CLOCK_WALL);
}

// ---- random plans, in a short run of the model with dropout alone ----

static void request_agrees(const sp_run_request *request)
{
    emulated_request_agrees(request);
}

TEST(random_plans)
{
    for (int i = test_is_full() ? 0 : 1; i < 2; i++) {
        const host_random draw = {.agrees = request_agrees,
                                  .gpt = i % 2 == 1,
                                  .dropout = i % 2 == 1 ? "0.1" : NULL,
                                  .seed = 41 + (uint64_t)i,
                                  .count = 1,
                                  .most_tokens = 48,
                                  .bf16 = true,
                                  .most_tp_bits = 1,
                                  .most_cp = 2,
                                  .merges = true,
                                  .zero = 2 + i};
        host_random_agree(draw);
    }
}

// ---- the suite of every backend ----

enum { MEMORY = 192 << 20 };

static const sp_backend_option without_cudnn[] = {{"cudnn", "off"}};

// The seed of a plan with a hundred tokens or so: the emulated device is slow.
static void small_plan(const conformance_device *device)
{
    conformance_runs_random_plans(device, 8, 1);
}

typedef void suite(const conformance_device *device);

static void pass(suite *part, int layers, sp_clock clock)
{
    sp_model model = conformance_model();
    OWNED(emulated_backend) backend = emulated_backend_new();
    // Of all parts random plans alone compute: the others do not look at values.
    if (part != small_plan) {
        sp_emulated_skips = true;
        emulated_backend_memory(MEMORY);
    }
    model.layers = layers;
    conformance_device d = conformance_of(backend, &model, clock, SP_BF16);
    d.request.options = without_cudnn;
    d.request.option_count = 1;
    part(&d);
}

// Packs without slices have nothing to compute.
static void every_schedule(const conformance_device *device)
{
    conformance_runs_every_schedule(device, 2, 1, 4, 2);
}

TEST_CALL(runs_a_small_plan, pass(small_plan, 12, SP_CLOCK_VIRTUAL))
TEST_CALL(runs_a_random_plan_on_the_wall_clock, pass(small_plan, 12, SP_CLOCK_WALL))
TEST_CALL(runs_every_schedule, pass(every_schedule, 4, SP_CLOCK_VIRTUAL))
TEST_CALL(runs_every_schedule_on_the_wall_clock, pass(every_schedule, 4, SP_CLOCK_WALL))
TEST_CALL(refuses, pass(conformance_refuses, 12, SP_CLOCK_VIRTUAL))
TEST_CALL(fails, pass(conformance_fails, 2, SP_CLOCK_VIRTUAL))
TEST_CALL(fails_on_the_wall_clock, pass(conformance_fails, 2, SP_CLOCK_WALL))

// ---- emulated links: on the virtual clock they change no bit, and the wall clock has none ----

static sp_run *run_with(const sp_backend *backend, sp_run_request *request, size_t options)
{
    const host_device device = {.backend = backend};
    request->option_count = options;
    return host_run(&device, request);
}

static sp_status compare_links(void *context, const sp_step_view *view, sp_error *err)
{
    const scenario_run *o = context;
    const sp_backend_option options[] = {{"cudnn", "off"}, {"links", "emulated"}};
    sp_run_request request = {RUN_OF(view->plan, &o->scenario.model, &o->scenario.memory),
                              .costs = view->costs, .clock = SP_CLOCK_VIRTUAL, .options = options,
                              RUN_STEPS(SP_BF16, 3, 2)};
    OWNED(emulated_backend) backend = emulated_backend_new();
    sp_run *without = run_with(backend, &request, 1);
    sp_run *with = run_with(backend, &request, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(sp_run_step(with, i)->loss == sp_run_step(without, i)->loss);
    }
    assert_true(host_distance(with, without, "") == 0.0);
    sp_run_free(with);
    sp_run_free(without);
    request.clock = SP_CLOCK_WALL;
    must_fail(sp_backend_run(backend, 0, &request, &with, ERR), SP_ERR_USAGE,
              "backend 'cuda': links: can be emulated on the virtual clock alone");
    return SP_OK;
}

static bool has_recomputations(const sp_stage_plan *stage)
{
    bool found = false;
    for (size_t a = 0; a < stage->count; a++) {
        found = found || stage->actions[a].kind == SP_ACTION_R;
    }
    return found;
}

// Exchanges of tensor- and context-parallel ranks take what the costs say of each action, to the
// nanosecond, and change no bit; without the option they take what copies take.
static sp_status compare_exchanges(void *context, const sp_step_view *view, sp_error *err)
{
    const scenario_run *o = context;
    const sp_layout *layout = &view->plan->layout;
    const sp_backend_option options[] = {{"cudnn", "off"}, {"links", "predicted"}};
    sp_run_request request = {RUN_OF(view->plan, &o->scenario.model, &o->scenario.memory),
                              .costs = view->costs, .clock = SP_CLOCK_VIRTUAL, .options = options,
                              RUN_STEPS(SP_BF16, 3, 1)};
    OWNED(emulated_backend) backend = emulated_backend_new();
    sp_run *without = run_with(backend, &request, 1);
    sp_run *with = run_with(backend, &request, 2);
    int64_t predicted_ns = 0;
    assert_true(host_distance(with, without, "") == 0.0);
    const sp_timeline *timeline = &sp_run_step(with, 0)->timeline;
    for (int r = 0; r < (int)timeline->rank_count; r++) {
        const sp_rank_timeline *line = &timeline->ranks[r];
        const sp_stage_plan *stage = sp_plan_stage(view->plan, r / layout->pp, r % layout->pp);
        assert_false(has_recomputations(stage));
        for (size_t a = 0; a < line->count; a++) {
            const sp_action action = stage->actions[a];
            const int vstage = sp_layout_vstage(layout, r % layout->pp, action.chunk);
            const sp_action_cost cost =
                sp_action_cost_of(view->plan, view->costs, action, vstage, false);
            assert_int_equal(line->spans[a].tp_ns, cost.tp_ns);
            assert_int_equal(line->spans[a].cp_ns, cost.cp_ns);
            predicted_ns += cost.tp_ns + cost.cp_ns;
        }
    }
    assert_true(predicted_ns > 0);
    sp_run_free(with);
    sp_run_free(without);
    request.option_count = 2;
    request.costs = NULL;
    must_fail_with(sp_backend_run(backend, 0, &request, &with, ERR), SP_ERR_USAGE,
                   "backend 'cuda': links: the request has no times of exchanges");
    return SP_OK;
}

static sp_status refuse_a_ring(void *context, const sp_step_view *view, sp_error *err)
{
    const scenario_run *o = context;
    const sp_backend_option options[] = {{"cudnn", "off"}, {"attention", "ring"}};
    const sp_run_request request = {RUN_OF(view->plan, &o->scenario.model, &o->scenario.memory),
                                    RUN_STEPS(SP_BF16, 3, 1), RUN_OPTIONS(options, 2)};
    OWNED(emulated_backend) backend = emulated_backend_new();
    sp_run *made;
    must_fail_with(sp_backend_run(backend, 0, &request, &made, ERR), SP_ERR_USAGE,
                   "attention: keys pass round a ring on the CPU alone");
    return SP_OK;
}

// What is predicted with FlashAttention-2's rates would stand beside other kernels.
static sp_status refuse_flash_attention_2(void *context, const sp_step_view *view, sp_error *err)
{
    const scenario_run *o = context;
    sp_memory_options memory = o->scenario.memory;
    memory.stack.flash_attention_2 = true;
    const sp_run_request request = {RUN_OF(view->plan, &o->scenario.model, &memory),
                                    RUN_STEPS(SP_BF16, 3, 1)};
    OWNED(emulated_backend) backend = emulated_backend_new();
    sp_run *made;
    must_fail_with(sp_backend_run(backend, 0, &request, &made, ERR), SP_ERR_USAGE,
                   "backend 'cuda': stack.flash_attention_2: attention runs by cuDNN's kernels");
    return SP_OK;
}

static void observe(const char *layout, const char *more,
                    sp_status (*see)(void *, const sp_step_view *, sp_error *))
{
    AUTO(scenario_run) run;
    const sp_evaluate_options options = {
        .no_bounds = true, .observer = see, .observer_context = &run};
    const char *text =
        json_text("{'model': {'layers': 4, 'hidden': 32, 'ffn': 48, 'heads': 4, 'vocab': 61}, "
                  "'cluster': 'h800-8', 'parallel': %s, 'workload': {'lengths': [38, 11, 24, 7], "
                  "'order': 'file', 'samples_per_batch': 4, 'context': 64}, %s}",
                  layout, more);
    run_good(text, &options, &run);
}

TEST_CALL(tensor_parallel_exchanges,
          observe("{'pp': 2, 'tp': 2}", "'schedule': {'kind': '1f1b'}", compare_exchanges))
TEST_CALL(context_parallel_exchanges,
          observe("{'cp': 2, 'tp': 2, 'sequence_parallel': true}",
                  "'strategy': {'kind': 'slimpack', 'slice_tokens': 16}", compare_exchanges))
TEST_CALL(four_stages, observe("{'pp': 4}", "'schedule': {'kind': 'zb-h1'}", compare_links))
TEST_CALL(stages_of_several_ranks,
          observe("{'pp': 2, 'tp': 2}", "'schedule': {'kind': '1f1b'}", compare_links))
TEST_CALL(a_ring_is_refused, observe("{'cp': 2}", "'schedule': {'kind': '1f1b'}", refuse_a_ring))
TEST_CALL(other_kernels_than_predicted_are_refused,
          observe("{'pp': 2}", "'schedule': {'kind': '1f1b'}", refuse_flash_attention_2))

// ---- the committed plans agree, and a step that computes something else does not ----

static const char folder[] = SP_TEST_SOURCE_DIR "/gpu/thresholds/gradients";
// Of the GPU alone.
static const sp_backend_option on_gpu[] = {{"cudnn", "off"}, {"dropout", "0.25"}};

static gradients_report compare_plan(const char *name, size_t options)
{
    char path[1024];
    sp_error_clear(ERR);
    gradients_report report;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    OWNED(emulated_backend) gpu = emulated_backend_new();
    AUTO(host_device) cpu = host_opened();
    must_hold(gradients_compare_file(gpu, cpu.backend, path, on_gpu, options, &report, ERR) ==
                  SP_OK,
              "%s: %s", name, ERR->message[0]);
    return report;
}

TEST(committed_plans_agree)
{
    static const char *const names[] = {"01-packed-pp2.json", "02-slices-tp2-pp2.json",
                                        "03-packed-pp2-wall.json", "04-packed-cp2.json",
                                        "05-zb-h1-dp2-pp2-wall.json"};
    // Tables, parameters of two layers (norms, QKV, output, gate and up in one, down) and the last
    // norm: 2 + 2 * 6 + 1 of a Llama; of a GPT each with a bias: 2 + 2 * 12 + 2.
    static const int tensors[] = {15, 15, 15, 28, 28};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        gradients_report report = compare_plan(names[i], 1);
        printf("%s: %.2f of the bound, %s\n", names[i], report.worst, report.tensor);
        assert_true(report.worst <= 1.0);
        assert_true(report.worst > 0.0);
        assert_int_equal(report.tensors, tensors[i]);
        assert_within(report.loss, log(61.0), 0.1);
    }
}

// Dropout, which a Llama has not, that the plain step knows nothing of.
TEST(another_step_does_not)
{
    gradients_report report = compare_plan("04-packed-cp2.json", 2);
    assert_true(report.worst > 1.0);
    assert_true(report.distance > report.bound);
}
