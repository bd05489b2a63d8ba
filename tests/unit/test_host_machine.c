// What a run does with the machine it is given: it gives memory back, reads times and finds errors
// when the work is done, and keeps masters where values are less exact.
#include <stdatomic.h>

#include "backends/executor/run.h"
#include "backends/host/cpu_runtime.h"
#include "tests/support/failing_run.h"
#include "tests/support/test_main.h"

OWNS(sp_i_exec_run)

enum { MOST_STAMPS = 1 << 14, MOST_RANKS = 16 };

// The CPU, but that it counts blocks, that a stamp means nothing before its rank has settled, and
// that work of one rank goes wrong.
typedef struct counting {
    sp_runtime runtime;
    atomic_int blocks, host_blocks, stamps, too_early;
    atomic_int rank_of[MOST_STAMPS]; // from 1; 0: not yet
    uint64_t time[MOST_STAMPS];
    atomic_bool synchronized[MOST_STAMPS];
    atomic_int synchronizations[MOST_RANKS];
    int failing, after; // the rank, or -1; synchronizations that are well
    bool reads_fail;    // of the rank: from the first on, and then its synchronizations
} counting;

static counting c;
static _Thread_local int rank_here;

static void *allocate(sp_runtime *runtime, int64_t bytes)
{
    atomic_fetch_add(&c.blocks, 1);
    return sp_runtime_cpu()->ops->allocate(runtime, bytes);
}

static void release(sp_runtime *runtime, void *memory)
{
    atomic_fetch_sub(&c.blocks, 1);
    sp_runtime_cpu()->ops->release(runtime, memory);
}

static void *allocate_host(sp_runtime *runtime, int64_t bytes)
{
    atomic_fetch_add(&c.host_blocks, 1);
    return sp_runtime_cpu()->ops->allocate_host(runtime, bytes);
}

static void release_host(sp_runtime *runtime, void *memory)
{
    atomic_fetch_sub(&c.host_blocks, 1);
    sp_runtime_cpu()->ops->release_host(runtime, memory);
}

static void enter(sp_runtime *runtime, int rank)
{
    rank_here = rank;
}

static uint64_t stamp(sp_runtime *runtime)
{
    int number = atomic_fetch_add(&c.stamps, 1);
    SP_ASSERT(number < MOST_STAMPS);
    c.time[number] = sp_runtime_cpu()->ops->stamp(runtime);
    atomic_store(&c.rank_of[number], rank_here + 1);
    return (uint64_t)number;
}

static int64_t stamp_ns(sp_runtime *runtime, uint64_t number)
{
    if (!atomic_load(&c.synchronized[number])) {
        atomic_fetch_add(&c.too_early, 1);
    }
    return (int64_t)c.time[number];
}

static sp_status synchronize(sp_runtime *runtime, sp_error *err)
{
    for (int s = 0; s < atomic_load(&c.stamps); s++) {
        if (atomic_load(&c.rank_of[s]) == rank_here + 1) {
            atomic_store(&c.synchronized[s], true);
        }
    }
    int before = atomic_fetch_add(&c.synchronizations[rank_here], 1);
    return rank_here == c.failing && before >= c.after
               ? sp_error_set(err, SP_ERR_INTERNAL, "it broke")
               : SP_OK;
}

// After the step, whose losses and tensors are read.
static void download(sp_runtime *runtime, void *to, const void *from, int64_t bytes)
{
    if (c.reads_fail && rank_here == c.failing) {
        c.after = 0;
    } else {
        sp_runtime_cpu()->ops->download(runtime, to, from, bytes);
    }
}

static sp_runtime *counting_runtime(int failing, int after)
{
    static sp_runtime_ops ops;
    ops = *sp_runtime_cpu()->ops;
    ops.allocate = allocate;
    ops.release = release;
    ops.allocate_host = allocate_host;
    ops.release_host = release_host;
    ops.enter = enter;
    ops.stamp = stamp;
    ops.stamp_ns = stamp_ns;
    ops.synchronize = synchronize;
    ops.download = download;
    memset(&c, 0, sizeof c);
    c.runtime.ops = &ops;
    c.failing = failing;
    c.after = after;
    return &c.runtime;
}

static sp_status run_step(const failing_run *f, sp_runtime *runtime, double *loss, sp_error *err)
{
    OWNED(sp_i_exec_run) run;
    sp_measured_step step = {0};
    *err = (sp_error){0};
    sp_status status = sp_i_exec_run_new(
        &f->request,
        &(sp_i_exec_site){.backend = "host", .runtime = runtime, .math = &sp_i_exec_math_f32}, &run,
        err);
    assert_int_equal(status, SP_OK);
    status = sp_i_exec_run_step(run, &step, err);
    for (size_t r = 0; status == SP_OK && r < step.timeline.rank_count; r++) {
        const sp_rank_timeline *line = &step.timeline.ranks[r];
        for (size_t a = 0; a < line->count; a++) {
            assert_true(line->spans[a].start_ns >= 0);
            assert_true(line->spans[a].start_ns <= line->spans[a].end_ns);
        }
    }
    *loss = step.loss;
    sp_timeline_fini(&step.timeline);
    sp_memory_timeline_fini(&step.memory);
    return status;
}

TEST(gives_back_and_reads_late)
{
    for (int s = 0; s < FAILING_SHAPES; s++) {
        for (int clock = 0; clock < SP_CLOCKS; clock++) {
            AUTO(failing_run) f;
            double loss, expected;
            failing_run_make(&f, &failing_shapes[s], (sp_clock)clock);
            must_succeed(run_step(&f, sp_runtime_cpu(), &expected, ERR));
            must_succeed(run_step(&f, counting_runtime(-1, 0), &loss, ERR));
            assert_true(loss == expected);
            assert_int_equal(c.too_early, 0);
            assert_int_equal(c.blocks, 0);
            assert_int_equal(c.host_blocks, 0);
            assert_int_equal(c.stamps > 0, clock == SP_CLOCK_WALL);
        }
    }
}

// Pipeline rank 1 of the first data-parallel rank, after the step has begun: in virtual time at its
// first action, on the wall clock at its last one.
TEST(failed_work_is_an_actions)
{
    for (int clock = 0; clock < SP_CLOCKS; clock++) {
        AUTO(failing_run) f;
        double loss;
        char name[32], expected[FAILING_PLACE];
        failing_run_make(&f, &failing_shapes[3], (sp_clock)clock);
        const sp_stage_plan *stage = sp_plan_stage(&f.plan, 0, 1);
        sp_action_name(stage->actions[clock == SP_CLOCK_WALL ? stage->count - 1 : 0], 1, name);
        snprintf(expected, sizeof expected, "dp 0 pp 1: %s: it broke", name);
        assert_int_equal(run_step(&f, counting_runtime(1, 1), &loss, ERR), SP_ERR_INTERNAL);
        must_hold(strstr(ERR->message[0], expected) != NULL, "expected \"%s\", got \"%s\"",
                  expected, ERR->message[0]);
        assert_int_equal(c.blocks, 0);
    }
}

TEST(failed_work_before_a_step)
{
    AUTO(failing_run) f;
    double loss;
    failing_run_make(&f, &failing_shapes[3], SP_CLOCK_VIRTUAL);
    must_fail(run_step(&f, counting_runtime(1, 0), &loss, ERR), SP_ERR_INTERNAL,
              "dp 0 pp 1 cp 0 tp 0: it broke");
}

TEST(failed_reads_are_errors)
{
    AUTO(failing_run) f;
    sp_i_exec_run *run;
    sp_measured_step step = {0};
    double loss;
    failing_run_make(&f, &failing_shapes[3], SP_CLOCK_VIRTUAL);
    sp_runtime *runtime = counting_runtime(1, MOST_STAMPS);
    must_succeed(sp_i_exec_run_new(
        &f.request,
        &(sp_i_exec_site){.backend = "host", .runtime = runtime, .math = &sp_i_exec_math_f32}, &run,
        ERR));
    must_succeed(sp_i_exec_run_step(run, &step, ERR));
    // Pipeline rank 1 has the last of the parameters.
    size_t last = sp_i_exec_tensor_count(run) / 2 - 1;
    sp_tensor_info info;
    sp_i_exec_tensor_info(run, last, &info);
    double *values = sp_malloc((size_t)info.elements * sizeof *values);
    must_succeed(sp_i_exec_tensor_read(run, last, values, ERR));
    c.reads_fail = true;
    must_succeed(sp_i_exec_tensor_read(run, 0, values, ERR));
    must_fail(sp_i_exec_tensor_read(run, last, values, ERR), SP_ERR_INTERNAL,
              "dp 0 pp 1 cp 0 tp 0: it broke");
    free(values);
    sp_timeline_fini(&step.timeline);
    sp_memory_timeline_fini(&step.memory);
    sp_i_exec_run_free(run);
    // The loss.
    runtime = counting_runtime(1, MOST_STAMPS);
    c.reads_fail = true;
    must_fail(run_step(&f, runtime, &loss, ERR), SP_ERR_INTERNAL, "dp 0 pp 1 cp 0 tp 0: it broke");
}

static double start_of(const sp_i_exec_weights *weights, int64_t element)
{
    const sp_i_exec_weight *weight = weights->items;
    while (element >= weight->offset + weight->elements) {
        weight++;
    }
    return sp_i_exec_weight_start(weight, sp_i_exec_weight_seed(weight, 1),
                                  element - weight->offset);
}

static const sp_bytes *held(const sp_i_exec_run *run, size_t rank)
{
    return sp_i_exec_held(run->ranks[rank].arena, SP_I_EXEC_TABLE);
}

// Values of 4 bytes under gradients of 8. Nothing is computed with them here.
TEST(masters_are_as_exact_as_gradients)
{
    AUTO(failing_run) f;
    OWNED(sp_i_exec_run) run;
    OWNED(sp_i_exec_run) plain;
    sp_i_exec_math math = sp_i_exec_math_f32;
    math.exact_bytes = sizeof(double);
    failing_run_make(&f, &failing_shapes[3], SP_CLOCK_VIRTUAL);
    sp_runtime *cpu = sp_runtime_cpu();
    assert_int_equal(
        sp_i_exec_run_new(&f.request,
                          &(sp_i_exec_site){.backend = "host", .runtime = cpu, .math = &math}, &run,
                          NULL),
        SP_OK);
    assert_int_equal(
        sp_i_exec_run_new(
            &f.request,
            &(sp_i_exec_site){.backend = "host", .runtime = cpu, .math = &sp_i_exec_math_f32},
            &plain, NULL),
        SP_OK);
    for (size_t r = 0; r < sp_i_exec_rank_count(run); r++) {
        const sp_i_exec_rank *rank = &run->ranks[r];
        const double *masters = rank->states.masters;
        const float *values = rank->states.values;
        assert_null(plain->ranks[r].states.masters);
        assert_memory_equal(held(run, r), held(plain, r), sizeof(sp_bytes));
        assert_int_equal(rank->states.held_values.count, rank->weights->elements);
        const sp_i_exec_range share = rank->states.share;
        assert_true(share.count < rank->weights->elements);
        for (int64_t e = 0; e < rank->weights->elements; e++) {
            double expected = start_of(rank->weights, e);
            assert_true(values[e] == (float)expected);
            if (e >= share.begin && e < share.begin + share.count) {
                assert_true(masters[e - share.begin] == expected);
            }
        }
    }
    sp_tensor_info info;
    sp_i_exec_tensor_info(run, 0, &info);
    assert_int_equal(info.precision, SP_FP32);
    sp_i_exec_tensor_info(run, sp_i_exec_tensor_count(run) - 1, &info);
    assert_int_equal(info.precision, SP_FP64);
}
