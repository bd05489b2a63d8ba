#include "tests/support/process_runs.h"

#include <pthread.h>

#include "backends/api/device.h"
#include "backends/executor/executor.h"
#include "backends/host/cpu_runtime.h"
#include "kernels/kernels.h"
#include "tests/support/test_main.h"
#include "tests/support/threaded_transport.h"

// The CPU, by a clock of its own.
typedef struct clocked_cpu {
    sp_runtime runtime;
    sp_runtime_ops ops;
    int64_t ahead_ns;
    int64_t fast; // by so many thousandths
} clocked_cpu;

// What one rank ended with; its tensors only where it ended well.
typedef struct process_rank {
    sp_status status;
    sp_error err;
    sp_measured_step *steps; // [of the request]
    size_t tensor_count;
    sp_tensor_info *tensors;
    double **values; // of the tensors
} process_rank;

typedef struct process_runs {
    const sp_run_request *request;
    int rank_count;
    process_rank *ranks;
} process_runs;

typedef struct worker {
    process_runs *runs;
    process_rank *rank;
    sp_transport *transport;
    clocked_cpu cpu;
} worker;

static uint64_t stamp(sp_runtime *runtime)
{
    const clocked_cpu *cpu = (const clocked_cpu *)(const void *)runtime;
    sp_runtime *plain = sp_runtime_cpu();
    int64_t ns = plain->ops->stamp_ns(plain, plain->ops->stamp(plain));
    return (uint64_t)(ns + ns / 1000 * cpu->fast + cpu->ahead_ns);
}

static void make_cpu(clocked_cpu *cpu, int rank, bool skewed)
{
    cpu->ops = *sp_runtime_cpu()->ops;
    cpu->ops.stamp = stamp;
    cpu->runtime.ops = &cpu->ops;
    cpu->ahead_ns = skewed ? INT64_C(100000000000) * (rank * 7 % 5) : 0;
    cpu->fast = skewed ? rank * 3 % 4 : 0;
}

// ---- one rank ----

static sp_status read_tensors(const sp_i_exec_run *run, process_rank *rank)
{
    size_t count = sp_i_exec_tensor_count(run);
    sp_status status = SP_OK;
    rank->tensors = sp_calloc(count, sizeof *rank->tensors);
    rank->values = sp_calloc(count, sizeof *rank->values);
    SP_ASSERT(rank->tensors != NULL && rank->values != NULL);
    rank->tensor_count = count;
    for (size_t t = 0; status == SP_OK && t < count; t++) {
        sp_i_exec_tensor_info(run, t, &rank->tensors[t]);
        rank->values[t] = sp_calloc((size_t)rank->tensors[t].elements, sizeof *rank->values[t]);
        SP_ASSERT(rank->values[t] != NULL);
        status = sp_i_exec_tensor_read(run, t, rank->values[t], &rank->err);
    }
    return status;
}

static sp_status work(worker *w)
{
    const sp_run_request *request = w->runs->request;
    const sp_i_exec_site site = {.backend = "host",
                                 .runtime = &w->cpu.runtime,
                                 .math = &sp_i_exec_math_f64,
                                 .transport = w->transport};
    sp_i_exec_run *run = NULL;
    sp_status status = sp_i_exec_run_new(request, &site, &run, &w->rank->err);
    for (int i = 0; status == SP_OK && i < request->steps; i++) {
        status = sp_i_exec_run_step(run, &w->rank->steps[i], &w->rank->err);
    }
    if (status != SP_OK) {
        return status;
    }
    status = read_tensors(run, w->rank);
    sp_i_exec_run_free(run);
    return status;
}

static void *work_well(void *data)
{
    worker *w = data;
    w->rank->status = work(w);
    return NULL;
}

static sp_status work_in_job(int rank, void *context, sp_error *err)
{
    worker *workers = context;
    sp_status status = work(&workers[rank]);
    (void)sp_error_add(err, &workers[rank].rank->err);
    return status;
}

// ---- all of them ----

static worker *workers_new(const sp_run_request *request, const process_settings *settings,
                           process_runs *runs, threaded_world **world)
{
    int count = (int)sp_layout_ranks(&request->plan->layout);
    worker *workers = sp_calloc((size_t)count, sizeof *workers);
    sp_kernels_start_threads(1);
    *world = threaded_world_new(count, settings->late);
    *runs = (process_runs){.request = request, .rank_count = count};
    runs->ranks = sp_calloc((size_t)count, sizeof *runs->ranks);
    assert_true(workers != NULL && runs->ranks != NULL);
    for (int r = 0; r < count; r++) {
        process_rank *rank = &runs->ranks[r];
        rank->steps = sp_calloc((size_t)request->steps, sizeof *rank->steps);
        workers[r] = (worker){.runs = runs, .rank = rank, .transport = threaded_rank_at(*world, r)};
        make_cpu(&workers[r].cpu, r, settings->skewed);
    }
    return workers;
}

static void process_runs_make(const sp_run_request *request, const process_settings *settings,
                              process_runs *runs)
{
    threaded_world *world;
    AUTO_FREE worker *workers = workers_new(request, settings, runs, &world);
    AUTO_FREE pthread_t *threads = sp_calloc((size_t)runs->rank_count, sizeof *threads);
    for (int r = 0; r < runs->rank_count; r++) {
        assert_int_equal(pthread_create(&threads[r], NULL, work_well, &workers[r]), 0);
    }
    for (int r = 0; r < runs->rank_count; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    }
    threaded_world_free(world);
}

static void process_runs_fini(process_runs *runs)
{
    for (int r = 0; r < runs->rank_count; r++) {
        process_rank *rank = &runs->ranks[r];
        for (int i = 0; i < runs->request->steps; i++) {
            sp_timeline_fini(&rank->steps[i].timeline);
            sp_memory_timeline_fini(&rank->steps[i].memory);
        }
        for (size_t t = 0; t < rank->tensor_count; t++) {
            sp_free(rank->values[t]);
        }
        sp_free(rank->values);
        sp_free(rank->tensors);
        sp_free(rank->steps);
    }
    sp_free(runs->ranks);
}

job_end process_runs_job(const sp_run_request *request, const process_settings *settings)
{
    AUTO(process_runs) runs;
    threaded_world *world;
    AUTO_FREE worker *workers = workers_new(request, settings, &runs, &world);
    job_end end = job_run(runs.rank_count, work_in_job, workers);
    threaded_world_free(world);
    return end;
}

// ---- comparison ----

static void must_be_alike(const sp_measured_step *a, const sp_measured_step *b)
{
    assert_int_equal(a->timeline.makespan_ns, b->timeline.makespan_ns);
    assert_int_equal(a->timeline.iteration_ns, b->timeline.iteration_ns);
    for (size_t r = 0; r < a->timeline.rank_count; r++) {
        const sp_rank_timeline *x = &a->timeline.ranks[r];
        const sp_rank_timeline *y = &b->timeline.ranks[r];
        assert_int_equal(x->count, y->count);
        assert_int_equal(x->copy_count, y->copy_count);
        assert_int_equal(x->share_count, y->share_count);
        assert_memory_equal(x->spans, y->spans, x->count * sizeof *x->spans);
        assert_memory_equal(x->copies, y->copies, x->copy_count * sizeof *x->copies);
        for (size_t s = 0; s < x->share_count; s++) {
            assert_int_equal(x->shares[s].span.start_ns, y->shares[s].span.start_ns);
            assert_int_equal(x->shares[s].span.end_ns, y->shares[s].span.end_ns);
        }
        assert_int_equal(x->reduce_start_ns, y->reduce_start_ns);
        assert_int_equal(x->gather_end_ns, y->gather_end_ns);
        assert_true(x->reduce_start_ns >= sp_rank_last_ns(x));
    }
}

// Of what was held, and in which order; not when.
static void must_hold_the_same(const sp_measured_step *a, const sp_measured_step *b)
{
    assert_int_equal(a->memory.rank_count, b->memory.rank_count);
    for (size_t r = 0; r < a->memory.rank_count; r++) {
        const sp_rank_memory *x = &a->memory.ranks[r];
        const sp_rank_memory *y = &b->memory.ranks[r];
        assert_memory_equal(&x->peak, &y->peak, sizeof x->peak);
        assert_int_equal(x->point_count, y->point_count);
        for (size_t p = 0; p < x->point_count; p++) {
            assert_memory_equal(&x->points[p].bytes, &y->points[p].bytes,
                                sizeof x->points[p].bytes);
        }
    }
}

// |a - b| / |b| of a tensor of a rank and of the same of a run; zero where all is zero.
static double distance(const process_rank *rank, size_t t, const sp_run *run)
{
    const sp_tensor_info *info = &rank->tensors[t];
    AUTO_FREE double *expected = sp_calloc((size_t)info->elements, sizeof *expected);
    double difference = 0.0, size = 0.0;
    assert_int_equal(sp_run_tensor_read(run, info->name, expected, info->elements, NULL), SP_OK);
    for (int64_t i = 0; i < info->elements; i++) {
        double d = rank->values[t][i] - expected[i];
        difference += d * d;
        size += expected[i] * expected[i];
    }
    return difference == 0.0 ? 0.0 : size > 0.0 ? sqrt(difference / size) : HUGE_VAL;
}

static void must_be_equal(const process_runs *runs, int number, const sp_run *together)
{
    const process_rank *rank = &runs->ranks[number];
    must_hold(rank->status == SP_OK, "rank %d: %s", number, rank->err.message[0]);
    for (int i = 0; i < runs->request->steps; i++) {
        const sp_measured_step *step = &rank->steps[i];
        must_succeed(sp_measured_step_check(runs->request->plan, step, ERR));
        must_be_alike(step, &runs->ranks[0].steps[i]);
        must_hold_the_same(step, sp_run_step(together, i));
        assert_true(step->has_loss == sp_run_step(together, i)->has_loss);
        assert_memory_equal(&step->loss, &sp_run_step(together, i)->loss, sizeof step->loss);
    }
    for (size_t t = 0; t < rank->tensor_count; t++) {
        must_hold(distance(rank, t, together) == 0.0,
                  "rank %d: %s is not that of ranks in one process", number, rank->tensors[t].name);
    }
}

static void must_be_near(const process_runs *runs, const sp_run *plain)
{
    const process_rank *rank = &runs->ranks[0];
    double loss = sp_run_step(plain, 0)->loss;
    assert_close(rank->steps[0].loss, loss, 1e-10);
    for (size_t t = 0; t < rank->tensor_count; t++) {
        must_hold(strncmp(rank->tensors[t].name, "gradients/", strlen("gradients/")) != 0 ||
                      distance(rank, t, plain) <= 1e-10,
                  "%s differs from the plain step's", rank->tensors[t].name);
    }
}

void process_runs_agree(const host_device *device, const sp_run_request *request,
                        const process_settings *settings)
{
    AUTO(process_runs) runs;
    sp_run *together = host_run(device, request);
    process_runs_make(request, settings, &runs);
    for (int r = 0; r < runs.rank_count; r++) {
        must_be_equal(&runs, r, together);
    }
    if (request->steps == 1) {
        AUTO(host_plain) plain;
        host_plain_make(request, &plain);
        sp_run *expected = host_run(device, &plain.request);
        must_be_near(&runs, expected);
        sp_run_free(expected);
    }
    sp_run_free(together);
}
