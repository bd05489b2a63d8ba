// Order between the streams of the emulated GPU, as ThreadSanitizer sees it (followed.h): the 28
// committed plans have no race, and a wait that is taken away is reported with both lines. Other
// faults are planted where what finds them stands: a stream of another context in
// test_cuda_device_attention_places.c, stale memory and a copy that blocks in test_cuda_runtime*.c,
// a rank that has gone in test_cuda_execute_nccl.c.
#include "backends/cuda/runtime.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/gpu/support/followed.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/small_set.h"
#include "tests/support/staged_run.h"
#include "tests/support/test_main.h"

// ---- the committed plans ----

static const small_sizes sizes = {.features = 128, .heads = 8, .tokens = 512, .step = 4};

typedef struct execution {
    const sp_scenario *of;
    const sp_backend *backend;
} execution;

// On the wall clock, where each rank has a stream; the virtual clock has one for all.
static sp_status execute_plan(void *context, const sp_step_view *view, sp_error *err)
{
    const execution *e = context;
    const sp_backend_option options[] = {{"cudnn", "off"}, {"stale", "on"}};
    const sp_run_request request = {RUN_OF(view->plan, &e->of->model, &e->of->memory),
                                    .clock = SP_CLOCK_WALL, RUN_STEPS(SP_BF16, 5, 1),
                                    RUN_OPTIONS(options, 2)};
    sp_run_free(host_run(&(host_device){.backend = e->backend}, &request));
    return SP_OK;
}

static void case_has_no_race(const sp_scenario_case *c, int number)
{
    OWNED(emulated_backend) backend = emulated_backend_new();
    execution e = {&c->scenario, backend};
    small_case_evaluate(c, execute_plan, &e);
    assert_true(fake.waits > 0);
}

// All cases of a group, of which there are so many. The two long groups run layouts of others on
// other lengths.
static void group_has_no_race(const char *group, int count, bool in_full_run_alone)
{
    if (in_full_run_alone) {
        test_in_full_run_alone();
    }
    assert_int_equal(small_set_each(&sizes, group, count + 1, case_has_no_race), count);
}

TEST_CALL(llama, group_has_no_race("llama", 9, false))
TEST_CALL(llama_long, group_has_no_race("llama long", 7, true))
TEST_CALL(llama_wide, group_has_no_race("llama wide", 2, false))
TEST_CALL(gpt, group_has_no_race("gpt", 3, false))
TEST_CALL(partition, group_has_no_race("partition", 4, false))
TEST_CALL(partition_long, group_has_no_race("part. long", 3, true))

// ---- what none of them has ----

static void has_no_race(const char *model, const char *layout, const char *more)
{
    AUTO(scenario_run) run;
    execution e = {&run.scenario, emulated_backend_new()};
    const sp_evaluate_options options = {
        .no_bounds = true, .observer = execute_plan, .observer_context = &e};
    const char *text =
        json_text("{'model': %s, 'cluster': 'h800-8', 'parallel': %s, 'workload': {'lengths': "
                  "[38, 11, 24, 7], 'order': 'file', 'samples_per_batch': 4, 'context': 64}, %s}",
                  model, layout, more);
    run_good(text, &options, &run);
    assert_true(fake.waits > 0);
    emulated_backend_free((sp_backend *)(uintptr_t)e.backend);
}

#define SLICED "'strategy': {'kind': 'slimpack', 'slice_tokens': 16}"

TEST_CALL(shares_of_states, has_no_race(HOST_GPT_OF(2), "{'pp': 2, 'dp': 2, 'zero': 3}", SLICED))
TEST_CALL(spread_vocabulary,
          has_no_race(HOST_LLAMA_OF(2), "{'pp': 2, 'vocab_parallel': true}", SLICED))
TEST_CALL(a_bidirectional_schedule,
          has_no_race(HOST_LLAMA, "{'pp': 2}", "'schedule': {'kind': 'zb-v'}"))
// Only tensors of a MiB or more leave.
TEST_CALL(offload, has_no_race("{'layers': 2, 'hidden': 8, 'ffn': 4096, 'heads': 1, 'head_dim': 8, "
                               "'vocab': 61}",
                               "{'pp': 2}",
                               "'memory': {'offload_ratio': 0.7}, 'strategy': {'kind': 'padded'}"))

// ---- waits that are taken away ----

// A kernel writes what a copy of another stream reads, or a copy what a kernel reads and writes:
// the line of the kernel and those that put the two on their streams are told. With an event
// between them nothing is.
static void order_is_seen(bool copies_first, bool waits)
{
    static const float ones[64] = {1.0f};
    OWNED(emulated_runtime) m = emulated_runtime_new(2, true, (int64_t)80 << 20);
    float *x = m->ops->allocate(m, sizeof ones);
    float *y = m->ops->allocate(m, sizeof ones);
    float *z = m->ops->allocate(m, sizeof ones);
    float seen;
    int copied = 0, added = 0;
    m->ops->upload(m, x, ones, sizeof ones);
    m->ops->upload(m, y, ones, sizeof ones);
    must_succeed(m->ops->synchronize(m, ERR));
    sp_emulated_put = stream_queue_put;
    stream_queue_defer();
    for (int call = 0; call < 2; call++) {
        if ((call == 0) == copies_first) {
            copied = __LINE__ + 1;
            m->ops->copy(m, copies_first ? x : z, copies_first ? y : x, sizeof ones);
        } else {
            added = __LINE__ + 1;
            SP_I_CUDA_PUT(sp_i_cuda_rank_now(), add_fp32, 64, y, x);
        }
        const sp_fence fence = m->ops->mark(m);
        m->ops->enter(m, 1);
        if (waits) {
            m->ops->wait(m, fence);
        }
    }
    // The second rank's work is done before the first's.
    m->ops->download(m, &seen, z, sizeof seen);
    m->ops->enter(m, 0);
    must_succeed(m->ops->synchronize(m, ERR));
    const char *race = followed_race();
    assert_int_equal(race == NULL, waits);
    if (race != NULL) {
        char copy[128], kernel[128];
        snprintf(copy, sizeof copy, " (copy) < unit/test_cuda_streams.c:%d (order_is_seen) %s",
                 copied, copies_first ? "writes" : "reads");
        snprintf(kernel, sizeof kernel, " < unit/test_cuda_streams.c:%d (order_is_seen) writes",
                 added);
        assert_non_null(strstr(race, "backends/cuda/runtime.c:"));
        assert_non_null(strstr(race, copy));
        assert_non_null(strstr(race, "kernels/walk.cuh:"));
        assert_non_null(strstr(race, kernel));
    }
    followed_clear();
    sp_emulated_put = NULL;
    stream_queue_reset();
}

TEST_CALL(a_kernel_before_a_copy, order_is_seen(false, false))
TEST_CALL(a_copy_before_a_kernel, order_is_seen(true, false))
TEST_CALL(an_event_between_them, order_is_seen(false, true))

static int run_without(const staged_run *f, int wait)
{
    OWNED(sp_run) made = NULL;
    followed_clear();
    fake.waits = 0;
    fake.wait_dropped = wait;
    (void)sp_backend_run(f->backend, 0, &f->request, &made, ERR);
    return fake.waits;
}

// A stage does not wait for hidden states or their gradients. Where threads of ranks have met
// behind the work by chance, their order is as good as an event, so that not every wait is missed.
TEST(a_missing_wait_of_a_step)
{
    AUTO(staged_run) f;
    int told = 0;
    staged_run_make(&f, 1, (const int64_t[]){9, 5, 6, 7}, 4, SP_CLOCK_WALL, 1);
    f.backend = emulated_backend_new();
    const int waits = run_without(&f, 0);
    assert_null(followed_race());
    // Two stages and four packs.
    assert_int_equal(waits, 8);
    for (int w = 1; w <= waits; w++) {
        (void)run_without(&f, w);
        const char *race = followed_race();
        if (race != NULL) {
            const char *second = strstr(race, " memory that backends/cuda/");
            assert_true(strncmp(race, "backends/cuda/", 14) == 0 ||
                        strncmp(race, "kernels/", 8) == 0);
            told += second != NULL;
        }
    }
    assert_true(told > 0);
    followed_clear();
    emulated_backend_free(f.backend);
}

// ---- what an emulation without order would hide ----

// Work of a stream is followed like a thread's: what the host reads of it before it waits is a
// race.
TEST(a_host_that_does_not_wait)
{
    OWNED(emulated_runtime) m = emulated_runtime_new(1, false, (int64_t)80 << 20);
    unsigned char *pinned = m->ops->allocate_host(m, 64);
    void *x = m->ops->allocate(m, 64);
    for (int waits = 1; waits >= 0; waits--) {
        stream_queue_defer();
        m->ops->zero(m, x, 64);
        m->ops->copy(m, pinned, x, 64);
        if (waits == 1) {
            must_succeed(m->ops->synchronize(m, ERR));
        }
        followed_touch(pinned, 64, false);
        must_succeed(m->ops->synchronize(m, ERR));
        assert_int_equal(followed_race() == NULL, waits);
    }
    followed_clear();
    stream_queue_reset();
    m->ops->release_host(m, pinned);
}
