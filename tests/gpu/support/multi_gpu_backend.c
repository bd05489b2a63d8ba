#include "tests/gpu/support/multi_gpu_backend.h"

#include "backends/api/device.h"
#include "backends/cuda/execute.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/gpu/support/fake_nccl.h"
#include "tests/gpu/support/streamed_nccl.h"
#include "tests/support/test_main.h"

enum { OPTIONS = 16 };

// One rank as its process has it.
typedef struct seat {
    sp_run_request request;
    sp_backend_option options[OPTIONS];
    sp_measured_step *steps;
    void *state;
    size_t tensor;
    double *values;
} seat;

typedef struct table {
    int ranks;
    seat seats[MOST_GPU_RANKS];
} table;

gpu_rank_change multi_gpu_backend_change;

// The body on every seat, in a thread each.
static void on_all(table *t, gpu_rank_body body)
{
    for (int r = 0; r < t->ranks; r++) {
        gpu_ranks[r].body = body;
        gpu_ranks[r].context = &t->seats[r];
    }
    gpu_ranks_run(t->ranks);
}

static sp_status first_failure(const table *t, sp_error *err)
{
    for (int r = 0; r < t->ranks; r++) {
        if (gpu_ranks[r].status != SP_OK) {
            return sp_error_set(err, gpu_ranks[r].status, "%s", gpu_ranks[r].err.message[0]);
        }
    }
    return SP_OK;
}

// ---- execution ----

static sp_status execute_rank(gpu_rank *me, sp_error *err)
{
    static const sp_i_cuda_tables tables = {&gpu_ranks_cuda, &gpu_ranks_cublas, &gpu_ranks_nccl,
                                            NULL};
    seat *s = me->context;
    return sp_i_cuda_execute_at(&tables, &me->place, 0, &s->request, s->steps, &s->state, err);
}

static bool steps_are_equal(const sp_measured_step *a, const sp_measured_step *b)
{
    bool equal = a->has_loss == b->has_loss && memcmp(&a->loss, &b->loss, sizeof a->loss) == 0 &&
                 a->timeline.rank_count == b->timeline.rank_count &&
                 a->timeline.iteration_ns == b->timeline.iteration_ns;
    for (size_t r = 0; equal && r < a->timeline.rank_count; r++) {
        const sp_rank_timeline *one = &a->timeline.ranks[r];
        const sp_rank_timeline *other = &b->timeline.ranks[r];
        equal = one->count == other->count &&
                memcmp(one->spans, other->spans, one->count * sizeof *one->spans) == 0 &&
                memcmp(&a->memory.ranks[r].peak, &b->memory.ranks[r].peak, sizeof(sp_bytes)) == 0;
    }
    return equal;
}

// Rank 0's steps are the caller's.
static void end_steps(table *t, int steps)
{
    for (int r = 1; r < t->ranks; r++) {
        for (int i = 0; i < steps; i++) {
            sp_timeline_fini(&t->seats[r].steps[i].timeline);
            sp_memory_timeline_fini(&t->seats[r].steps[i].memory);
        }
        sp_free(t->seats[r].steps);
    }
}

static void sit_down(table *t, const sp_run_request *request, sp_measured_step *steps)
{
    const sp_i_place place = gpu_ranks_place(t->ranks);
    SP_ASSERT(request->option_count + 2 <= OPTIONS);
    for (int r = 0; r < t->ranks; r++) {
        seat *s = &t->seats[r];
        *s = (seat){.options = {{"nccl_mib", "0"}, {"transport", "nccl"}},
                    .request = *request,
                    .steps = steps};
        for (size_t o = 0; o < request->option_count; o++) {
            s->options[o + 2] = request->options[o];
        }
        s->request.options = s->options;
        s->request.option_count += 2;
        if (r > 0) {
            s->steps = sp_calloc((size_t)request->steps, sizeof *s->steps);
        }
        gpu_ranks[r] = (gpu_rank){.place = place};
        gpu_ranks[r].place.rank = r;
        if (multi_gpu_backend_change != NULL) {
            multi_gpu_backend_change(r, &gpu_ranks[r].place, &s->request);
        }
    }
}

static table *table_new(const sp_run_request *request, sp_measured_step *steps)
{
    table *t = sp_calloc(1, sizeof *t);
    t->ranks = (int)sp_layout_ranks(&request->plan->layout);
    SP_ASSERT(t->ranks <= MOST_GPU_RANKS);
    sit_down(t, request, steps);
    return t;
}

static sp_status execute_in_job(int rank, void *context, sp_error *err)
{
    table *t = context;
    gpu_ranks[rank].context = &t->seats[rank];
    return execute_rank(&gpu_ranks[rank], err);
}

job_end multi_gpu_job(const sp_run_request *request)
{
    AUTO_FREE sp_measured_step *steps = sp_calloc((size_t)request->steps, sizeof *steps);
    AUTO_FREE table *t = table_new(request, steps);
    job_end end = job_run(t->ranks, execute_in_job, t);
    end_steps(t, request->steps);
    return end;
}

static sp_status execute(int device, const sp_run_request *request, sp_measured_step *steps,
                         void **state, sp_error *err)
{
    table *t = table_new(request, steps);
    *state = t;
    on_all(t, execute_rank);
    sp_status status = first_failure(t, err);
    for (int r = 1; status == SP_OK && r < t->ranks; r++) {
        for (int i = 0; status == SP_OK && i < request->steps; i++) {
            if (!steps_are_equal(&steps[i], &t->seats[r].steps[i])) {
                status = sp_error_set(err, SP_ERR_INTERNAL, "step %d differs at rank %d", i, r);
            }
        }
    }
    end_steps(t, request->steps);
    return status;
}

// All leave together, as processes do.
static sp_status leave(gpu_rank *me, sp_error *err)
{
    const seat *s = me->context;
    sp_i_cuda_free_state(s->state);
    return me->status;
}

static void free_state(void *state)
{
    on_all(state, leave);
    sp_free(state);
}

// ---- tensors ----

static sp_status tensor_count(void *state, size_t *count, sp_error *err)
{
    const table *t = state;
    return sp_i_cuda_tensor_count(t->seats[0].state, count, err);
}

static sp_status tensor_info(void *state, size_t index, sp_tensor_info *info, sp_error *err)
{
    const table *t = state;
    return sp_i_cuda_tensor_info(t->seats[0].state, index, info, err);
}

static sp_status read_rank(gpu_rank *me, sp_error *err)
{
    const seat *s = me->context;
    return sp_i_cuda_tensor_read(s->state, s->tensor, s->values, err);
}

static sp_status tensor_read(void *state, size_t index, double *values, sp_error *err)
{
    table *t = state;
    sp_tensor_info info;
    sp_status status = tensor_info(t, index, &info, err);
    const size_t bytes = (size_t)info.elements * sizeof *values;
    for (int r = 0; r < t->ranks; r++) {
        t->seats[r].tensor = index;
        t->seats[r].values = r == 0 ? values : sp_malloc(bytes);
    }
    on_all(t, read_rank);
    status = status == SP_OK ? first_failure(t, err) : status;
    for (int r = 1; r < t->ranks; r++) {
        if (status == SP_OK && memcmp(t->seats[r].values, values, bytes) != 0) {
            status = sp_error_set(err, SP_ERR_INTERNAL, "%s differs at rank %d", info.name, r);
        }
        sp_free(t->seats[r].values);
    }
    return status;
}

sp_backend *multi_gpu_backend_new(void)
{
    static sp_backend_ops ops;
    sp_backend *backend;
    ops = emulated_backend_ops;
    ops.description = "emulated, a GPU for each rank";
    ops.execute = execute;
    ops.free_state = free_state;
    ops.tensor_count = tensor_count;
    ops.tensor_info = tensor_info;
    ops.tensor_read = tensor_read;
    gpu_ranks_reset();
    multi_gpu_backend_change = NULL;
    assert_int_equal(sp_i_backend_new(&ops, "test", &backend, NULL), SP_OK);
    return backend;
}

void multi_gpu_backend_free(sp_backend *backend)
{
    sp_backend_free(backend);
    assert_int_equal(atomic_load(&nccl.live), 0);
    emulated_nothing_lives();
    assert_int_equal(streamed_nccl_unequal(), 0);
}
