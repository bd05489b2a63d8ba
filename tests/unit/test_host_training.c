// Training lowers the loss, and the plan by which a step is executed does not matter to it; weights
// and tokens follow their seeds alone.
#include <unistd.h>

#include "backends/api/device.h"
#include "backends/executor/run.h"
#include "backends/executor/stage.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// Cases run side by side in one folder.
static char text_file[40];

static void name_text(void)
{
    snprintf(text_file, sizeof text_file, "training-%ld.txt", (long)getpid());
}

// Our own words: the first sentences about the pipeline.
static const char text[] =
    "A pipeline is a row of stages. Each stage holds some layers of the model, and a micro-batch "
    "goes from stage to stage: forward from the first to the last, backward from the last to the "
    "first. While a stage waits it does nothing, and that time is called the bubble. A schedule "
    "says in which order a stage works. A packing says what a micro-batch is made of. Long samples "
    "are cut into slices, short samples are put together, and every token is trained once.\n";

enum { STEPS = 50, ENDS = 5 };

static void write_words(void)
{
    name_text();
    put_file(text_file, text);
}

typedef struct training {
    host_device device;
    sp_model model;
    sp_precision precision;
    double bound;
    uint64_t features; // that the plan must have: SP_CAN(...)
} training;

static double mean(const sp_run *run, int first, int count)
{
    double sum = 0.0;
    for (int i = first; i < first + count; i++) {
        sum += sp_run_step(run, i)->loss / count;
    }
    return sum;
}

// A plan that has lost what the case is about would train as well as any other.
static void must_need(const sp_run_request *request, uint64_t features)
{
    const sp_packing *packing = request->plan->packing;
    sp_requirements found;
    sp_requirements_find(request, &found);
    assert_int_equal(found.needed & features, features);
    // Backward packs of their own could still be the forward packs in another order.
    assert_int_equal(packing->forward.count != sp_packing_backward(packing)->count,
                     (features & SP_CAN(REGROUPED)) != 0);
}

static sp_status train(void *context, const sp_step_view *view, sp_error *err)
{
    const training *t = context;
    const sp_backend_option options[] = {{"learning_rate", "0.003"}, {"text", text_file}};
    const sp_run_request request = {RUN_OF(view->plan, &t->model, NULL),
                                    RUN_STEPS(t->precision, 7, STEPS), RUN_OPTIONS(options, 2)};
    AUTO(host_plain) plain;
    must_need(&request, t->features);
    host_plain_make(&request, &plain);
    OWNED(sp_run) sliced = host_run(&t->device, &request);
    OWNED(sp_run) whole = host_run(&t->device, &plain.request);
    for (int i = 0; i < STEPS; i++) {
        double a = sp_run_step(sliced, i)->loss;
        double b = sp_run_step(whole, i)->loss;
        must_hold(fabs(a - b) <= t->bound * b, "step %d: loss %.17g in slices, %.17g whole", i, a,
                  b);
    }
    assert_within(mean(whole, 0, 1), log((double)t->model.vocab), 0.5);
    assert_true(mean(sliced, STEPS - ENDS, ENDS) < mean(sliced, 0, ENDS) - 1.0);
    assert_true(host_distance(sliced, whole, "parameters/") <= t->bound);
    return SP_OK;
}

static void trains_alike(sp_model model, const char *more, uint64_t features,
                         sp_precision precision, double bound)
{
    training t = {.model = model, .precision = precision, .bound = bound, .features = features};
    const sp_evaluate_options options = {
        .effort_percent = 10, .observer = train, .observer_context = &t};
    scenario_run r;
    t.model.vocab = 128;
    const char *scenario = json_text(
        "{'model': {'layers': 4, 'hidden': 32, 'ffn': 48, 'heads': 4, 'vocab': 128}, "
        "'cluster': 'host', 'profile': 'linear', 'workload': {'lengths': [90, 12, 40, 7, 33, "
        "61, 5, 20], "
        "'order': 'file', 'samples_per_batch': 8}, %s}",
        more);
    write_words();
    host_open(&t.device);
    run_good(scenario, &options, &r);
    scenario_run_fini(&r);
    host_device_fini(&t.device);
    remove(text_file);
}

// What a rounding changes in a gradient, AdamW's division by its size makes larger.
#define FP64_BOUND 1e-8
#define FP32_BOUND 1e-2

TEST(learns_in_slices)
{
    trains_alike(host_llama(),
                 "'parallel': {'pp': 2, 'dp': 2}, "
                 "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 16}",
                 SP_CAN(SLICES), SP_FP64, FP64_BOUND);
}

TEST(learns_in_slices_with_tied_tables)
{
    trains_alike(host_gpt(),
                 "'parallel': {'pp': 2, 'dp': 2}, 'schedule': {'kind': 'seq1f1b', 'slices': 3}",
                 SP_CAN(SLICES), SP_FP64, FP64_BOUND);
}

TEST(learns_in_slices_in_fp32)
{
    trains_alike(host_llama(),
                 "'parallel': {'pp': 4}, 'strategy': {'kind': 'slimpipe'}, "
                 "'schedule': {'slices': 4}",
                 SP_CAN(SLICES), SP_FP32, FP32_BOUND);
}

TEST(learns_regrouped)
{
    trains_alike(host_llama(),
                 "'parallel': {'pp': 2}, 'strategy': {'kind': 'slimpack', 'slice_tokens': 16}",
                 SP_CAN(SLICES) | SP_CAN(REGROUPED), SP_FP64, FP64_BOUND);
}

// So little memory that forwards run again.
TEST(learns_regrouped_and_repeated)
{
    trains_alike(host_llama(),
                 "'parallel': {'pp': 2}, 'memory': {'limit_gib': 0.09422}, "
                 "'strategy': {'kind': 'slimpack', 'slice_tokens': 8}",
                 SP_CAN(SLICES) | SP_CAN(RECOMPUTE_ACTION), SP_FP64, FP64_BOUND);
}

TEST(learns_split)
{
    trains_alike(host_gpt(), "'parallel': {'pp': 4}, 'schedule': {'kind': 'zb-h1'}",
                 SP_CAN(SPLIT_BACKWARD), SP_FP64, FP64_BOUND);
}

TEST(learns_regrouped_and_split_in_fp32)
{
    trains_alike(host_llama(),
                 "'parallel': {'pp': 2}, 'strategy': {'kind': 'slimpack-zb', 'slice_tokens': 8}",
                 SP_CAN(REGROUPED) | SP_CAN(SPLIT_BACKWARD), SP_FP32, FP32_BOUND);
}

// ---- seeds ----

static sp_i_exec_weight weight_of(const char *name)
{
    sp_i_exec_weight weight = {
        .elements = 10000, .columns = 100, .all_columns = 100, .run = {{100, 0}}, .spread = 0.5};
    snprintf(weight.name, sizeof weight.name, "%s", name);
    return weight;
}

// An even spread has mean 0 and the variance asked for; 10000 draws come within four standard
// errors of both (0.5/100 and, by the fourth moment 9/5 of the variance's square, 0.25
// sqrt(0.8)/100).
TEST(weights_are_spread)
{
    sp_i_exec_weight weight = weight_of("layers.0.fc1.weight");
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < weight.elements; i++) {
        double value = sp_i_exec_weight_start(&weight, 1, i);
        assert_true(fabs(value) <= 0.5 * sqrt(3.0));
        sum += value;
        squares += value * value;
    }
    assert_true(fabs(sum / 10000.0) < 4.0 * 0.5 / 100.0);
    assert_within(squares / 10000.0, 0.25, 4.0 * 0.25 * sqrt(0.8) / 100.0);
}

TEST(weights_follow_name_and_seed)
{
    sp_i_exec_weight a = weight_of("layers.0.fc1.weight");
    sp_i_exec_weight b = weight_of("layers.1.fc1.weight");
    uint64_t first = sp_i_exec_weight_seed(&a, 1);
    uint64_t others[] = {sp_i_exec_weight_seed(&b, 1), sp_i_exec_weight_seed(&a, 2)};
    assert_true(first == sp_i_exec_weight_seed(&a, 1));
    for (int64_t i = 0; i < 100; i++) {
        double value = sp_i_exec_weight_start(&a, first, i);
        assert_true(value != sp_i_exec_weight_start(&b, others[0], i));
        assert_true(value != sp_i_exec_weight_start(&a, others[1], i));
    }
}

TEST(text_is_read_in_order)
{
    AUTO(sp_i_exec_text) t;
    write_words();
    assert_int_equal(sp_i_exec_text_read(text_file, 128, &t, NULL), SP_OK);
    assert_int_equal(t.count, sizeof text - 1);
    // A sample is a piece of the text, which goes on at its start.
    int64_t first = sp_i_exec_token(&t, 3, 0, 9, 0, 128);
    size_t at = 0;
    bool found = false;
    for (; !found && at < t.count; at++) {
        found = text[at] == (char)first;
        for (size_t i = 0; found && i < 2 * t.count; i++) {
            found = text[(at + i) % t.count] == (char)sp_i_exec_token(&t, 3, 0, 9, (int64_t)i, 128);
        }
    }
    assert_true(found);
    remove(text_file);
}

TEST(refuses_text)
{
    sp_i_exec_text t;
    must_fail_with(sp_i_exec_text_read("no_such_file", 128, &t, ERR), SP_ERR_IO, "");
    write_words();
    must_fail_with(sp_i_exec_text_read(text_file, 61, &t, ERR), SP_ERR_CONTENT,
                   "the vocabulary has 61 tokens");
    remove(text_file);
}
