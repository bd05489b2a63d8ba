// Steps that a CUDA graph repeats, on the emulated device, whose graphs do their nodes in a random
// order that keeps edges alone: the same bits as steps that are launched, in every loss and tensor,
// and the same memory.
#include "sim/base/alloc.h"
#include "tests/gpu/support/computing_cublas.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/gpu/support/fake_graph.h"
#include "tests/support/execution_rules.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define LLAMA "{'layers': 2, 'hidden': 16, 'ffn': 24, 'heads': 2, 'kv_heads': 1, 'vocab': 31}"
#define GPT                                                                                  \
    "{'layers': 2, 'hidden': 16, 'ffn': 32, 'heads': 2, 'vocab': 31, 'activation': 'gelu', " \
    "'norm': 'layernorm', 'positional': 'learned', 'max_positions': 128, 'bias': true, "     \
    "'tied_embeddings': true}"
#define PLAIN "'schedule': {'kind': '1f1b'}"
#define SLICED "'strategy': {'kind': 'slimpack', 'slice_tokens': 16}"

enum { STEPS = 4 };

// ---- launches: how many, and whether a capture takes them ----

static int kernels;
static bool skips; // kernels are counted and captured, but compute nothing

static void compute_nothing(void *launch)
{
    (void)launch;
}

static bool take_kernel(cudaStream_t stream, void (*run)(void *), void *launch,
                        void (*drop)(void *))
{
    kernels++;
    if (!fake_graph_holds(stream)) {
        return skips && emulated_kernels_skip(stream, run, launch, drop);
    }
    fake_graph_add(stream, skips ? compute_nothing : run, launch, drop);
    return true;
}

typedef struct put_counts {
    int kernels, copies, sets, products;
} put_counts;

static put_counts put_so_far(void)
{
    return (put_counts){kernels, fake.copies, fake.sets, computing.products};
}

static sp_backend *open_backend(void)
{
    sp_backend *backend = emulated_backend_new();
    sp_emulated_takes = take_kernel;
    skips = false;
    kernels = 0;
    return backend;
}

static void close_backend(sp_backend *backend)
{
    emulated_backend_free(backend);
    assert_int_equal(fake_graphs.live, 0);
}

enum { OPTIONS = 8 };

// A request for the emulated device, with its options behind those of the test.
typedef struct asked {
    sp_run_request request;
    sp_backend_option options[OPTIONS];
} asked;

static void ask(asked *a, const sp_run_request *request, const char *graphs, int steps)
{
    const sp_backend_option options[] = {
        {"cudnn", "off"}, {"learning_rate", "0.01"}, {"graphs", graphs}};
    a->request = *request;
    memcpy(a->options, options, sizeof options);
    for (size_t o = 0; o < request->option_count; o++) {
        a->options[o + 3] = request->options[o];
    }
    a->request.options = a->options;
    a->request.option_count = request->option_count + 3;
    a->request.steps = steps;
}

// `put` is what this run put_counts down on the device, in captures too.
static sp_run *run_on(const sp_backend *backend, const asked *a, put_counts *put)
{
    sp_run *run = NULL;
    const put_counts before = put_so_far();
    const fake_graph_counts graphs = fake_graphs;
    must_succeed(sp_backend_run(backend, 0, &a->request, &run, ERR));
    const put_counts now = put_so_far();
    *put = (put_counts){now.kernels - before.kernels, now.copies - before.copies,
                        now.sets - before.sets, now.products - before.products};
    bool on = strcmp(a->options[2].value, "on") == 0 && a->request.steps > 1;
    assert_int_equal(fake_graphs.captures - graphs.captures, on);
    assert_int_equal(fake_graphs.launches - graphs.launches, on ? a->request.steps - 1 : 0);
    assert_int_equal(fake_graphs.refused, 0);
    assert_int_equal(fake_graphs.crossed, 0);
    return run;
}

// ---- the same bits ----

static void tensors_must_be_equal(const sp_run *a, const sp_run *b)
{
    size_t count;
    assert_int_equal(sp_run_tensor_count(a, &count, NULL), SP_OK);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        sp_tensor_info info;
        assert_int_equal(sp_run_tensor_at(a, i, &info, NULL), SP_OK);
        double *x = host_tensor(a, &info);
        double *y = host_tensor(b, &info);
        if (memcmp(x, y, (size_t)info.elements * sizeof *x) != 0) {
            fail_msg("%s differs", info.name);
        }
        sp_free(x);
        sp_free(y);
    }
}

// The next point at which something else is held; point_count behind the last.
static size_t next_change(const sp_rank_memory *memory, size_t i)
{
    const sp_bytes *now = &memory->points[i].bytes;
    while (i < memory->point_count && memcmp(&memory->points[i].bytes, now, sizeof *now) == 0) {
        i++;
    }
    return i;
}

// Where copies or shares of a vocabulary go beside actions, times decide what is held with what.
static void memory_must_be_equal(const sp_measured_step *a, const sp_measured_step *b)
{
    for (size_t r = 0; r < a->timeline.rank_count; r++) {
        const sp_rank_timeline *line = &a->timeline.ranks[r];
        const sp_rank_memory *x = &a->memory.ranks[r];
        const sp_rank_memory *y = &b->memory.ranks[r];
        bool beside = line->copy_count > 0 || line->share_count > 0;
        size_t i = 0, j = 0;
        assert_true(x->point_count > 0 && y->point_count > 0);
        assert_true(beside || memcmp(&x->peak, &y->peak, sizeof x->peak) == 0);
        while (!beside && i < x->point_count && j < y->point_count) {
            assert_memory_equal(&x->points[i].bytes, &y->points[j].bytes,
                                sizeof x->points[i].bytes);
            i = next_change(x, i);
            j = next_change(y, j);
        }
        assert_true(beside || (i == x->point_count && j == y->point_count));
    }
}

static void step_must_be_equal(const sp_plan *plan, const sp_measured_step *a,
                               const sp_measured_step *b)
{
    if (memcmp(&a->loss, &b->loss, sizeof a->loss) != 0) {
        fail_msg("loss %.17g, launched %.17g", b->loss, a->loss);
    }
    memory_must_be_equal(a, b);
    execution_must_hold(plan, b, true);
}

// ---- what is put down ----

// Steps of the kind that is launched put down their actions and their begin and end; from the third
// on a step whose actions are repeated put_counts down its begin and end alone. Products and what
// they read belong to the actions.
static void puts_must_be_fewer(const put_counts *launched2, const put_counts *launched,
                               const put_counts *repeated3, const put_counts *repeated)
{
    assert_int_equal(launched->products, 2 * launched2->products);
    assert_int_equal(repeated3->products, launched2->products);
    assert_int_equal(repeated->products, launched2->products);
    const int *l2 = &launched2->kernels;
    const int *l4 = &launched->kernels;
    const int *r3 = &repeated3->kernels;
    const int *r4 = &repeated->kernels;
    for (int i = 0; i < 3; i++) {
        int ends = r4[i] - r3[i];
        int actions = (l4[i] - l2[i]) / 2 - ends; // of a step
        assert_true(ends >= 0 && actions > 0);
        assert_int_equal(r3[i], l2[i] + ends);
        assert_int_equal(l4[i] - r4[i], 2 * actions);
    }
}

// ---- plans ----

typedef struct plan_case {
    const char *model, *layout, *more;
    bool counts; // puts, which are compared
    bool limits; // clipped gradients, a deadline that is far away
} plan_case;

typedef sp_status observer(void *context, const sp_step_view *view, sp_error *err);

typedef struct observed {
    scenario_run run;
    const plan_case *of;
} observed;

static void with_plan(const plan_case *c, observer *see)
{
    observed o = {.of = c};
    const sp_evaluate_options options = {
        .no_bounds = true, .observer = see, .observer_context = &o};
    const char *text = json_text(
        "{'model': %s, 'cluster': 'h800-8', 'stack': {'fused_swiglu': true}, 'parallel': %s, "
        "'workload': {'lengths': [38, 11, 24, 7], 'order': 'file', "
        "'samples_per_batch': 4, 'context': 64}, %s}",
        c->model, c->layout, c->more);
    run_good(text, &options, &o.run);
    run_fini(&o.run);
}

static sp_run_request request_of(const observed *o, const sp_step_view *view)
{
    static const sp_backend_option clip[] = {{"clip", "0.01"}};
    return (sp_run_request){RUN_OF(view->plan, &o->run.scenario.model, &o->run.scenario.memory),
                            .costs = view->costs,
                            .timeout_ns = o->of->limits ? INT64_C(1000000000000000) : 0,
                            .clock = SP_CLOCK_WALL,
                            .precision = SP_BF16,
                            .seed = 5,
                            RUN_OPTIONS(clip, o->of->limits),
                            .memory_points = true};
}

static sp_status compare(void *context, const sp_step_view *view, sp_error *err)
{
    const observed *o = context;
    const sp_run_request request = request_of(o, view);
    sp_backend *backend = open_backend();
    asked launched, repeated;
    put_counts put[4];
    (void)err;
    // One that is captured and one that repeats it; two more where what they put down is counted.
    int steps = o->of->counts ? STEPS : 2;
    ask(&launched, &request, "off", steps);
    ask(&repeated, &request, "on", steps);
    sp_run *a = run_on(backend, &launched, &put[0]);
    sp_run *b = run_on(backend, &repeated, &put[1]);
    for (int s = 0; s < steps; s++) {
        step_must_be_equal(view->plan, sp_run_step(a, s), sp_run_step(b, s));
    }
    assert_true(sp_run_step(a, steps - 1)->loss != sp_run_step(a, steps - 2)->loss);
    tensors_must_be_equal(a, b);
    if (o->of->counts) {
        skips = true; // what is put down does not depend on values
        ask(&launched, &request, "off", 2);
        ask(&repeated, &request, "on", 3);
        sp_run_free(run_on(backend, &launched, &put[2]));
        sp_run_free(run_on(backend, &repeated, &put[3]));
        puts_must_be_fewer(&put[2], &put[0], &put[3], &put[1]);
    }
    sp_run_free(a);
    sp_run_free(b);
    close_backend(backend);
    return SP_OK;
}

static void agree(const char *model, const char *layout, const char *more)
{
    const plan_case c = {model, layout, more, false, false};
    with_plan(&c, compare);
}

TEST_CALL(one_rank, agree(LLAMA, "{}", PLAIN))

TEST(stages)
{
    agree(LLAMA, "{'pp': 2}", PLAIN);
    agree(GPT, "{'pp': 2}", SLICED);
}

// With a deadline ranks that take turns do so on a thread beside the one that keeps it.
TEST(limits)
{
    static const plan_case cases[] = {
        {LLAMA, "{'pp': 2, 'tp': 2, 'sequence_parallel': true}", PLAIN, false, true},
        {LLAMA, "{'pp': 2, 'dp': 2, 'zero': 2}", PLAIN, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        with_plan(&cases[i], compare);
    }
}

TEST(ranks_that_share_layers)
{
    agree(LLAMA, "{'pp': 2, 'tp': 2, 'sequence_parallel': true}", SLICED);
    agree(GPT, "{'pp': 2, 'tp': 2, 'sequence_parallel': false}", PLAIN);
    agree(LLAMA, "{'cp': 2, 'pp': 2}", SLICED);
    agree(LLAMA, "{'pp': 2, 'vocab_parallel': true}", PLAIN);
}

TEST(ranks_that_share_states)
{
    agree(LLAMA, "{'dp': 2, 'zero': 1}", PLAIN);
    agree(LLAMA, "{'pp': 2, 'dp': 3, 'zero': 2}", PLAIN);
    agree(GPT, "{'pp': 2, 'dp': 2, 'zero': 3}", SLICED);
}

TEST(split_backward)
{
    agree(LLAMA, "{'pp': 2}", "'schedule': {'kind': 'zb-h1'}");
    agree(GPT, "{'pp': 2}", "'strategy': {'kind': 'slimpack-zb', 'slice_tokens': 16}");
}

TEST(recomputation)
{
    agree(LLAMA, "{'pp': 2}", "'memory': {'recompute': 'full'}, " PLAIN);
    agree(LLAMA, "{'pp': 2}", "'memory': {'recompute': 'partial-fc1'}, " SLICED);
}

// Only tensors of a MiB or more leave.
TEST(offload)
{
    agree("{'layers': 2, 'hidden': 8, 'ffn': 4096, 'heads': 1, 'head_dim': 8, 'vocab': 61}",
          "{'pp': 2}", "'memory': {'offload_ratio': 0.7}, 'strategy': {'kind': 'padded'}");
}

TEST(a_repeated_step_puts_no_action_down)
{
    const plan_case plain = {LLAMA, "{'pp': 2}", PLAIN, true, false};
    const plan_case wide = {
        GPT, "{'pp': 2, 'tp': 2, 'sequence_parallel': true}", SLICED, true, false};
    with_plan(&plain, compare);
    with_plan(&wide, compare);
}

// ---- what fails ----

static void must_say(const sp_error *err, const char *text)
{
    if (err->count == 0 || strstr(err->message[0], text) == NULL) {
        fail_msg("no \"%s\" in \"%s\"", text, err->count > 0 ? err->message[0] : "");
    }
}

static sp_status run_to_failure(const sp_backend *backend, const asked *a, sp_error *err)
{
    sp_run *run = NULL;
    *err = (sp_error){0};
    sp_status status = sp_backend_run(backend, 0, &a->request, &run, err);
    sp_run_free(run);
    emulated_nothing_lives();
    assert_int_equal(fake_graphs.live, 0);
    assert_false(fake_graph_capturing());
    assert_int_equal(computing.live, 0);
    return status;
}

// Each call of a kind, or some of them, fails in a run of its own; returns how many did.
static int calls_fail(const sp_backend *backend, const asked *a, const char *call, const char *name,
                      int stride)
{
    int failed = 0;
    sp_status status = SP_ERR_INTERNAL;
    fake.fail = call;
    for (int n = 0; status != SP_OK; n += stride) {
        fake.fail_at = n;
        fake.calls = 0;
        status = run_to_failure(backend, a, ERR);
        assert_true((fake.calls > n) == (status != SP_OK));
        if (status != SP_OK) {
            must_say(ERR, name);
            failed++;
        }
    }
    fake.fail = NULL;
    return failed;
}

static sp_status fail_calls(void *context, const sp_step_view *view, sp_error *err)
{
    const sp_run_request request = request_of(context, view);
    sp_backend *backend = open_backend();
    asked a;
    (void)err;
    skips = true; // here and in the next case the call that fails alone matters
    ask(&a, &request, "on", 3);
    assert_int_equal(calls_fail(backend, &a, "StreamBeginCapture", "cudaStreamBeginCapture", 1), 1);
    assert_int_equal(calls_fail(backend, &a, "StreamEndCapture", "cudaStreamEndCapture", 1), 1);
    assert_int_equal(calls_fail(backend, &a, "GraphInstantiate", "cudaGraphInstantiate", 1), 1);
    assert_int_equal(calls_fail(backend, &a, "GraphLaunch", "cudaGraphLaunch", 1), 2);
    fake.fail_captured = true;
    assert_true(calls_fail(backend, &a, "EventRecordWithFlags", "cudaEventRecordWithFlags", 7) > 1);
    assert_true(calls_fail(backend, &a, "EventRecord", "cudaEventRecord", 2) > 1);
    assert_true(calls_fail(backend, &a, "StreamWaitEvent", "cudaStreamWaitEvent", 2) > 1);
    assert_true(calls_fail(backend, &a, "MemcpyAsync", "cudaMemcpyAsync", 7) > 1);
    assert_true(calls_fail(backend, &a, "MemsetAsync", "cudaMemsetAsync", 1) > 1);
    // Nothing in a capture takes memory, makes events or waits.
    assert_int_equal(calls_fail(backend, &a, "Malloc", "", 1), 0);
    assert_int_equal(calls_fail(backend, &a, "EventCreateWithFlags", "", 1), 0);
    assert_int_equal(calls_fail(backend, &a, "StreamSynchronize", "", 1), 0);
    assert_int_equal(calls_fail(backend, &a, "EventSynchronize", "", 1), 0);
    close_backend(backend);
    return SP_OK;
}

TEST(failures_name_their_call)
{
    const plan_case c = {LLAMA, "{'pp': 2}", PLAIN, false, false};
    with_plan(&c, fail_calls);
}

// Launches of the step that is captured, and before.
static sp_status fail_launches(void *context, const sp_step_view *view, sp_error *err)
{
    const sp_run_request request = request_of(context, view);
    sp_backend *backend = open_backend();
    asked a;
    int in_captures = 0;
    sp_status status = SP_ERR_INTERNAL;
    (void)err;
    skips = true;
    ask(&a, &request, "on", 2);
    for (long n = 0; status != SP_OK; n += 43) {
        sp_error why;
        int captures = fake_graphs.captures;
        int launches = fake_graphs.launches;
        sp_emulated_launches = n;
        status = run_to_failure(backend, &a, &why);
        assert_true((sp_emulated_launches < 0) == (status != SP_OK));
        sp_emulated_launches = -1;
        assert_int_equal(fake_graphs.crossed, 0);
        if (status != SP_OK) {
            bool captured = fake_graphs.captures > captures && fake_graphs.launches == launches;
            must_say(&why, "sp_cuda_");
            must_say(&why, captured ? ": B" : ""); // the last action of all ranks
            in_captures += captured;
        }
    }
    assert_true(in_captures > 3);
    close_backend(backend);
    return SP_OK;
}

TEST(failing_launches_end_a_capture)
{
    const plan_case two = {LLAMA, "{'pp': 2}", PLAIN, false, false};
    const plan_case four = {LLAMA, "{'pp': 2, 'tp': 2, 'sequence_parallel': true}", PLAIN, false,
                            false};
    with_plan(&two, fail_launches);
    with_plan(&four, fail_launches);
}

static sp_status fail_on_demand(void *context, const sp_step_view *view, sp_error *err)
{
    sp_run_request request = request_of(context, view);
    sp_backend_option options[] = {{"fail", "B1@0.1"}, {"fault_step", "3"}};
    sp_backend *backend = open_backend();
    sp_error why;
    asked a;
    (void)err;
    request.options = options;
    request.option_count = 2;
    ask(&a, &request, "on", 4);
    assert_int_equal(run_to_failure(backend, &a, &why), SP_ERR_INTERNAL);
    must_say(&why, "dp 0 pp 1: B1: it fails on demand");

    request.option_count = 0;
    ask(&a, &request, "sometimes", 4);
    assert_int_equal(run_to_failure(backend, &a, &why), SP_ERR_USAGE);
    must_say(&why, "graphs: expected \"on\" or \"off\", got \"sometimes\"");
    request.option_count = 0;
    request.clock = SP_CLOCK_VIRTUAL;
    ask(&a, &request, "on", 4);
    assert_int_equal(run_to_failure(backend, &a, &why), SP_ERR_USAGE);
    must_say(&why, "graphs: steps are repeated on the wall clock alone");
    request.clock = SP_CLOCK_WALL;
    options[0] = (sp_backend_option){"dropout", "0.5"};
    request.option_count = 1;
    ask(&a, &request, "on", 4);
    assert_int_equal(run_to_failure(backend, &a, &why), SP_ERR_USAGE);
    must_say(&why, "graphs: dropout draws other masks in every step");
    close_backend(backend);
    return SP_OK;
}

TEST(what_cannot_be_repeated_is_said)
{
    const plan_case c = {GPT, "{'pp': 2}", PLAIN, false, false};
    with_plan(&c, fail_on_demand);
}
