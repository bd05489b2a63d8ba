// What a user of the CPU executor meets: tensors by name, options, limits and refusals, and equal
// runs from equal requests.
#include "backends/executor/executor.h"
#include "sim/memory/footprint.h"
#include "sim/schedule/schedule.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

static int64_t ids[] = {1, 2, 3, 4};
static int64_t tokens[] = {9, 30, 17, 4};
static const sp_batch batch = {.ids = ids, .tokens = tokens, .count = 4, .total_tokens = 60};

// Two samples on each of two data-parallel ranks, 1F1B over two pipeline ranks.
typedef struct fixture {
    host_device device;
    sp_model model;
    sp_layout layout;
    sp_packing packing;
    sp_plan plan;
    sp_run_request request;
} fixture;

static void fixture_make(fixture *f)
{
    *f = (fixture){.model = host_llama(),
                   .layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1, .zero = 1}};
    sp_packing_init(&f->packing, &batch, 2);
    for (int s = 0; s < 4; s++) {
        pack_sample(&f->packing.forward, s % 2, 1, s, tokens[s]);
    }
    must_succeed(plan_by_schedule(&f->plan, &f->layout, &f->packing, SP_SCHEDULE_1F1B, ERR));
    f->request = (sp_run_request){RUN_OF(&f->plan, &f->model, NULL), RUN_STEPS(SP_FP64, 1, 2),
                                  .memory_points = true};
    host_open(&f->device);
}

static void fixture_fini(fixture *f)
{
    host_device_fini(&f->device);
    sp_plan_fini(&f->plan);
    sp_packing_fini(&f->packing);
}

TEST(tensors_are_those_of_the_model)
{
    AUTO(fixture) f;
    fixture_make(&f);
    OWNED(sp_run) run = host_run(&f.device, &f.request);
    size_t count;
    int64_t elements[2] = {0, 0};
    assert_int_equal(sp_run_tensor_count(run, &count, NULL), SP_OK);
    for (size_t i = 0; i < count; i++) {
        sp_tensor_info info;
        assert_int_equal(sp_run_tensor_at(run, i, &info, NULL), SP_OK);
        assert_int_equal(info.elements, info.size[0] * (info.dims == 2 ? info.size[1] : 1));
        elements[strncmp(info.name, "gradients/", 10) == 0] += info.elements;
    }
    assert_int_equal(elements[0], sp_model_parameters(&f.model));
    assert_int_equal(elements[1], elements[0]);
    sp_tensor_info info;
    assert_int_equal(sp_run_tensor_find(run, "parameters/layers.3.qkv.weight", &info, NULL), SP_OK);
    // 4 heads of queries, 2 of keys, 2 of values.
    assert_int_equal(info.size[0], 64);
    assert_int_equal(info.size[1], 32);
    assert_int_equal(sp_run_tensor_find(run, "gradients/head.weight", &info, NULL), SP_OK);
}

TEST(equal_requests_equal_bits)
{
    AUTO(fixture) f;
    fixture_make(&f);
    OWNED(sp_run) a = host_run(&f.device, &f.request);
    OWNED(sp_run) b = host_run(&f.device, &f.request);
    assert_true(host_distance(a, b, "") == 0.0);
    assert_true(sp_run_step(a, 1)->loss == sp_run_step(b, 1)->loss);
    f.request.seed = 2;
    OWNED(sp_run) c = host_run(&f.device, &f.request);
    assert_true(host_distance(a, c, "gradients/") > 0.0);
    assert_true(sp_run_step(a, 0)->loss != sp_run_step(c, 0)->loss);
}

static int64_t largest_peak(const sp_run *run)
{
    int64_t peak = 0;
    const sp_memory_timeline *memory = &sp_run_step(run, 0)->memory;
    for (size_t r = 0; r < memory->rank_count; r++) {
        int64_t total = sp_bytes_total(&memory->ranks[r].peak);
        peak = total > peak ? total : peak;
    }
    return peak;
}

// A run fits exactly into its own peak, and into no less.
TEST(fits_its_peak)
{
    static const char *const measures[] = {"table", "real", "taken"};
    AUTO(fixture) f;
    fixture_make(&f);
    int64_t peaks[3];
    for (int m = 0; m < 3; m++) {
        const sp_backend_option option = {"bytes", measures[m]};
        sp_run *run = NULL;
        f.request.options = &option;
        f.request.option_count = 1;
        f.request.memory_limit_bytes = 0;
        run = host_run(&f.device, &f.request);
        peaks[m] = largest_peak(run);
        sp_run_free(run);
        f.request.memory_limit_bytes = peaks[m];
        sp_run_free(host_run(&f.device, &f.request));
        f.request.memory_limit_bytes = peaks[m] - 1;
        must_fail_with(sp_backend_run(f.device.backend, 0, &f.request, &run, ERR),
                       SP_ERR_INFEASIBLE, "over the limit");
        assert_int_equal(strncmp(ERR->message[0], "dp ", 3), 0);
        f.request.memory_limit_bytes = 1000;
        must_fail_with(sp_backend_run(f.device.backend, 0, &f.request, &run, ERR),
                       SP_ERR_INFEASIBLE, "");
        assert_int_equal(strncmp(ERR->message[0], "parameters, ", 12), 0);
    }
    assert_true(peaks[1] > peaks[0] && peaks[2] > peaks[1]);
}

static void refuses(const fixture *f, const sp_run_request *request, sp_status status,
                    const char *text)
{
    sp_error_clear(ERR);
    sp_run *run = NULL;
    assert_int_equal(sp_backend_run(f->device.backend, 0, request, &run, ERR), status);
    assert_null(run);
    bool found = false;
    for (int i = 0; i < ERR->count; i++) {
        found = found || strstr(ERR->message[i], text) != NULL;
    }
    must_hold(found, "no \"%s\" in \"%s\"", text, ERR->message[0]);
}

TEST(refuses_what_it_cannot_compute)
{
    const sp_memory_options unfused = {.attention = SP_ATTENTION_UNFUSED};
    AUTO(fixture) f;
    fixture_make(&f);
    f.model.qk_norm = true;
    refuses(&f, &f.request, SP_ERR_CONTENT, "cannot execute norms of queries and keys");
    f.model = host_llama();
    f.model.attention_sinks = true;
    refuses(&f, &f.request, SP_ERR_CONTENT, "cannot execute attention sinks");
    f.model = host_llama();
    f.model.positional = SP_NO_POSITIONS;
    refuses(&f, &f.request, SP_ERR_CONTENT, "cannot execute models without positions");
    f.model = host_llama();
    f.model.attention_gate = true;
    refuses(&f, &f.request, SP_ERR_CONTENT, "cannot execute gates of attention");
    f.model = host_llama();
    f.model.mixer = SP_MIXER_NONE;
    refuses(&f, &f.request, SP_ERR_CONTENT, "without attention or an MLP (model.mixer)");
    f.model = host_llama();
    f.model.lora_rank = 4;
    refuses(&f, &f.request, SP_ERR_CONTENT, "cannot execute adapters (model.lora_rank)");
    f.model = host_routed();
    f.model.expert_groups = 2;
    f.model.expert_group_top_k = 1;
    refuses(&f, &f.request, SP_ERR_CONTENT, "groups of experts (model.expert_groups)");
    f.model = host_routed();
    f.model.expert_capacity_factor = 1.5;
    refuses(&f, &f.request, SP_ERR_CONTENT, "(model.expert_capacity_factor)");
    f.model = host_routed();
    f.model.expert_latent = 16;
    refuses(&f, &f.request, SP_ERR_CONTENT, "experts of latents (model.expert_latent)");
    f.model = host_routed();
    f.model.forced_routing = true;
    refuses(&f, &f.request, SP_ERR_CONTENT, "(model.expert_imbalance)");
    f.model = host_gpt();
    f.model.max_positions = 29;
    refuses(&f, &f.request, SP_ERR_CONTENT, "a sample of 30 tokens with 29 learned positions");
    f.model = host_llama();
    f.model.layers = 3;
    refuses(&f, &f.request, SP_ERR_CONTENT, "layers");
    f.model = host_llama();
    f.request.memory = &unfused;
    refuses(&f, &f.request, SP_ERR_CONTENT, "unfused attention");
}

// Latents stand at every rank whole, and their heads go to no zone.
TEST(refuses_latents_that_are_split)
{
    AUTO(fixture) f;
    fixture_make(&f);
    f.model = host_latent(false);
    f.model.runs = f.model.kinds = 0;
    f.plan.layout.tp = 2;
    refuses(&f, &f.request, SP_ERR_CONTENT, "latent attention beside tensor parallelism");
    f.plan.layout.tp = 1;
    f.packing.forward.slices[1].zone = sp_zone_of(0, 1);
    must_fail_with(sp_i_exec_check(&f.request, "other", SP_I_EXEC_LATENTS, ERR), SP_ERR_CONTENT,
                   "latent attention on some of a pack's ranks (zones)");
    f.packing.forward.slices[1].zone = 0;
    sp_run_free(host_run(&f.device, &f.request));
}

// What the CPU computes and another device may not.
TEST(refuses_layers_by_device)
{
    AUTO(fixture) f;
    fixture_make(&f);
    f.model.window_tokens = 29;
    must_fail_with(sp_i_exec_check(&f.request, "other", SP_I_EXEC_KINDS, ERR), SP_ERR_CONTENT,
                   "attention to 29 tokens in a sample of 30");
    must_succeed(sp_i_exec_check(&f.request, "other", SP_I_EXEC_WINDOWS, ERR));
    f.model = host_llama();
    f.model.experts = 4;
    f.model.experts_per_token = 2;
    must_fail_with(sp_i_exec_check(&f.request, "other", SP_I_EXEC_KINDS, ERR), SP_ERR_CONTENT,
                   "cannot execute experts");
    f.model = host_kinds();
    must_fail_with(sp_i_exec_check(&f.request, "other", SP_I_EXEC_WINDOWS, ERR), SP_ERR_CONTENT,
                   "layers of several kinds");
}

TEST(refuses_options)
{
    static const struct {
        sp_backend_option option;
        const char *text;
    } cases[] = {
        {{"learning_rate", "fast"}, "learning_rate: expected a number of 0 or more, got \"fast\""},
        {{"weight_decay", "-1"}, "weight_decay: expected a number of 0 or more"},
        {{"dropout", "1"}, "dropout: expected a number below 1"},
        {{"bytes", "both"}, "bytes: expected \"table\", \"real\" or \"taken\", got \"both\""},
        {{"fail", "F9@0.0"}, "fail: expected ACTION@DP.PP, an action of the plan, got \"F9@0.0\""},
        {{"byte", "real"}, "unknown option 'byte' (did you mean 'bytes'?)"},
    };
    AUTO(fixture) f;
    fixture_make(&f);
    f.request.option_count = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        f.request.options = &cases[i].option;
        refuses(&f, &f.request, SP_ERR_USAGE, cases[i].text);
    }
    const sp_backend_option missing = {"text", "no_such_file"};
    f.request.options = &missing;
    refuses(&f, &f.request, SP_ERR_IO, "no_such_file");
}

TEST(ends_at_its_timeout)
{
    AUTO(fixture) f;
    fixture_make(&f);
    f.request.timeout_ns = 1;
    refuses(&f, &f.request, SP_ERR_LIMIT, "it is not done at the timeout of 1 ns");
}
