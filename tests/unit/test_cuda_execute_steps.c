// Several steps on the emulated CUDA backend: with masters in fp32 the loss falls as it does on the
// CPU in fp32, and clipping follows its definition on every layout.
#include <unistd.h>

#include "tests/gpu/support/emulated_backend.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define LLAMA "{'layers': 2, 'hidden': 32, 'ffn': 48, 'heads': 4, 'kv_heads': 2, 'vocab': 128}"
#define GPT                                                                                   \
    "{'layers': 2, 'hidden': 32, 'ffn': 64, 'heads': 4, 'vocab': 128, 'activation': 'gelu', " \
    "'norm': 'layernorm', 'positional': 'learned', 'max_positions': 128, 'bias': true, "      \
    "'tied_embeddings': true}"

typedef struct observed {
    scenario_run run;
    const char *text; // a file
} observed;

typedef sp_status observer(void *context, const sp_step_view *view, sp_error *err);

static void with_plan(const char *model, const char *layout, const char *file, observer *see)
{
    observed o = {.text = file};
    const sp_evaluate_options options = {
        .no_bounds = true, .observer = see, .observer_context = &o};
    const char *text = json_text(
        "{'model': %s, 'cluster': 'h800-8', 'parallel': %s, 'workload': {'lengths': [23, 9, "
        "30, 17], 'order': 'file', 'samples_per_batch': 4, 'context': 32}, 'schedule': "
        "{'kind': '1f1b'}}",
        model, layout);
    run_good(text, &options, &o.run);
    scenario_run_fini(&o.run);
}

// ---- training ----

enum { STEPS = 12 };

// What AdamW makes of roundings over the steps, of the loss.
#define LOSS_BOUND 0.01

static sp_status train(void *context, const sp_step_view *view, sp_error *err)
{
    const observed *o = context;
    const sp_backend_option options[] = {
        {"cudnn", "off"}, {"rounded", "true"}, {"learning_rate", "0.01"}, {"text", o->text}};
    const sp_run_request request = {RUN_OF(view->plan, &o->run.scenario.model, NULL),
                                    RUN_STEPS(SP_BF16, 7, STEPS), RUN_OPTIONS(options, 4)};
    sp_run_request on_cpu = request;
    OWNED(emulated_backend) backend = emulated_backend_new();
    const host_device emulated = {.backend = backend};
    on_cpu.precision = SP_FP32;
    on_cpu.options++;
    on_cpu.option_count--;
    AUTO(host_device) cpu = host_opened();
    OWNED(sp_run) run = host_run(&emulated, &request);
    OWNED(sp_run) expected = host_run(&cpu, &on_cpu);
    for (int i = 0; i < STEPS; i++) {
        double a = sp_run_step(run, i)->loss;
        double b = sp_run_step(expected, i)->loss;
        must_hold(fabs(a - b) <= LOSS_BOUND * b, "step %d: loss %.17g, in fp32 %.17g", i, a, b);
    }
    assert_true(sp_run_step(run, STEPS - 1)->loss < sp_run_step(run, 0)->loss - 1.0);
    return SP_OK;
}

// Our own words, for a vocabulary of bytes.
static const char words[] =
    "A pipeline is a row of stages. Each stage holds some layers of the model, and a micro-batch "
    "goes from stage to stage: forward from the first to the last, backward from the last to the "
    "first.\n";

TEST(training_lowers_the_loss)
{
    char file[64];
    snprintf(file, sizeof file, "cuda-steps-%ld.txt", (long)getpid());
    put_file(file, words);
    with_plan(LLAMA, "{'pp': 2, 'dp': 2, 'zero': 1}", file, train);
    with_plan(GPT, "{'dp': 2, 'zero': 3}", file, train);
    remove(file);
}

// ---- clipping ----

#define CLIP 1e-6
#define LEARNING_RATE 0.01
#define EPSILON 1e-8

static bool is_parameter(const sp_run *run, size_t i, sp_tensor_info *info)
{
    assert_int_equal(sp_run_tensor_at(run, i, info, NULL), SP_OK);
    return strncmp(info->name, "parameters/", strlen("parameters/")) == 0;
}

static double norm_of(const sp_run *run, size_t tensors)
{
    sp_tensor_info info;
    double squares = 0.0;
    for (size_t i = 0; i < tensors; i++) {
        if (is_parameter(run, i, &info)) {
            AUTO_FREE double *gradient = host_tensor_of(run, "gradients", &info);
            for (int64_t e = 0; e < info.elements; e++) {
                squares += gradient[e] * gradient[e];
            }
        }
    }
    return sqrt(squares);
}

// AdamW's first step without decay, p - rate g / (|g| + epsilon) by the clipped gradient g, in fp32
// and then rounded to 8 bits: by 2^-8 at most.
static void must_follow(const sp_run *before, const sp_run *run, const sp_tensor_info *info,
                        double scale)
{
    AUTO_FREE double *from = host_tensor_of(before, "parameters", info);
    AUTO_FREE double *gradient = host_tensor_of(run, "gradients", info);
    AUTO_FREE double *to = host_tensor_of(run, "parameters", info);
    for (int64_t e = 0; e < info->elements; e++) {
        double g = scale * gradient[e];
        double expected = from[e] - LEARNING_RATE * g / (fabs(g) + EPSILON);
        must_hold(fabs(to[e] - expected) <= fabs(expected) / 256.0 + 1e-6,
                  "%s: %.9g, by definition %.9g", info->name, to[e], expected);
    }
}

static sp_status clip(void *context, const sp_step_view *view, sp_error *err)
{
    const observed *o = context;
    const sp_backend_option options[] = {{"cudnn", "off"},
                                         {"rounded", "true"},
                                         {"weight_decay", "0"},
                                         {"learning_rate", "0.01"},
                                         {"clip", "1e-6"}};
    const sp_backend_option resting[] = {{"rounded", "true"}, {"learning_rate", "0"}};
    const sp_run_request request = {RUN_OF(view->plan, &o->run.scenario.model, NULL),
                                    RUN_STEPS(SP_BF16, 3, 1), RUN_OPTIONS(options, 5)};
    sp_run_request still = request;
    OWNED(emulated_backend) backend = emulated_backend_new();
    const host_device emulated = {.backend = backend};
    size_t tensors;
    still.precision = SP_FP64;
    still.options = resting;
    still.option_count = 2;
    AUTO(host_device) cpu = host_opened();
    OWNED(sp_run) run = host_run(&emulated, &request);
    OWNED(sp_run) before = host_run(&cpu, &still);
    assert_int_equal(sp_run_tensor_count(run, &tensors, NULL), SP_OK);
    double scale = CLIP / norm_of(run, tensors);
    assert_true(scale < 1.0);
    for (size_t i = 0; i < tensors; i++) {
        sp_tensor_info info;
        if (is_parameter(run, i, &info)) {
            must_follow(before, run, &info, scale);
        }
    }
    return SP_OK;
}

TEST(clipping_follows_its_definition)
{
    static const char *const layouts[] = {"{}", "{'pp': 2, 'dp': 2, 'zero': 0}",
                                          "{'tp': 2, 'dp': 2, 'zero': 1}", "{'cp': 2, 'zero': 2}",
                                          "{'pp': 2, 'dp': 2, 'zero': 3}"};
    for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++) {
        with_plan(l % 2 == 0 ? LLAMA : GPT, layouts[l], NULL, clip);
    }
}
