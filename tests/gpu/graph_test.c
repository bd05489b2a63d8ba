// Steps as CUDA graphs on a GPU: what documentation says of captures over several streams and SM
// partitions, one after the other, and then whole steps of a plan.
#include <math.h>
#include <string.h>

#include "backends/cuda/device/runtime.h"
#include "backends/cuda/execute.h"
#include "kernels/cuda_kernels.h"
#include "sim/schedule/schedule.h"
#include "tests/gpu/gpu_test.h"
#include "tests/support/initializers.h"

enum { RANKS = 4, MEMORY = 1 << 30 };

typedef struct rig {
    gpu_test *test;
    sp_i_cublas_api cublas;
    sp_runtime *runtime;
    bool partitioned;
} rig;

static sp_status rig_init(rig *r, gpu_test *t, sp_error *err)
{
    const sp_i_cuda_runtime_options options = {
        .ranks = RANKS, .partitioned = true, .memory_bytes = MEMORY};
    char reason[SP_I_CUDA_TEXT];
    *r = (rig){.test = t};
    if (!sp_i_cublas_api_init(&r->cublas, reason, sizeof reason)) {
        return sp_error_set(err, SP_ERR_USAGE, "%s", reason);
    }
    sp_status status = sp_i_cuda_runtime_new(&t->device, &r->cublas, &options, &r->runtime, err);
    if (status == SP_OK) {
        r->partitioned = sp_i_cuda_runtime_partitioned(r->runtime, NULL);
        r->runtime->ops->enter(r->runtime, 0);
    }
    return status;
}

// Waits for all ranks; the first error.
static sp_status synchronize(const rig *r, sp_error *err)
{
    sp_status status = SP_OK;
    for (int rank = 0; status == SP_OK && rank < RANKS; rank++) {
        r->runtime->ops->enter(r->runtime, rank);
        status = r->runtime->ops->synchronize(r->runtime, err);
    }
    return status;
}

// Puts the work down, to be done and then to be kept.
static sp_status capture(const rig *r, void (*put)(const rig *r, void *data), void *data,
                         sp_error *err)
{
    sp_runtime *m = r->runtime;
    m->ops->rehearse(m);
    put(r, data);
    sp_status status = synchronize(r, err);
    status = status == SP_OK ? m->ops->capture_begin(m, err) : status;
    if (status == SP_OK) {
        put(r, data);
        status = synchronize(r, err);
        sp_status ended = m->ops->capture_end(m, status == SP_OK, err);
        status = status == SP_OK ? ended : status;
    }
    return status;
}

// ---- order ----

enum { ROUNDS = 50 };

// A number goes round the partitions, each of which copies it after the one before.
typedef struct ring {
    int64_t *at; // [RANKS * ROUNDS + 1]
} ring;

static void go_round(const rig *r, void *data)
{
    const ring *of = data;
    const sp_runtime_ops *ops = r->runtime->ops;
    sp_fence before = {0};
    for (int i = 0; i < RANKS * ROUNDS; i++) {
        ops->enter(r->runtime, i % RANKS);
        ops->wait(r->runtime, before);
        if (i % 7 == 0) {
            sp_cuda_delay(20000,
                          sp_i_cuda_rank_now()->stream); // so that who does not wait is early
        }
        ops->copy(r->runtime, &of->at[i + 1], &of->at[i], sizeof *of->at);
        before = ops->mark(r->runtime);
    }
}

static sp_status fences_order_a_graph(gpu_test *t, sp_error *err)
{
    const int64_t bytes = (RANKS * ROUNDS + 1) * (int64_t)sizeof(int64_t);
    rig r;
    ring of = {NULL};
    sp_status status = rig_init(&r, t, err);
    of.at = status == SP_OK ? r.runtime->ops->allocate(r.runtime, bytes) : NULL;
    status = status == SP_OK ? capture(&r, go_round, &of, err) : status;
    for (int64_t i = 1; status == SP_OK && i <= (t->small ? 3 : 30); i++) {
        int64_t end = 0;
        r.runtime->ops->enter(r.runtime, 0);
        r.runtime->ops->zero(r.runtime, of.at, bytes);
        r.runtime->ops->upload(r.runtime, of.at, &i, sizeof i);
        status = synchronize(&r, err);
        status = status == SP_OK ? r.runtime->ops->replay(r.runtime, err) : status;
        r.runtime->ops->enter(r.runtime, 0);
        r.runtime->ops->download(r.runtime, &end, &of.at[RANKS * ROUNDS], sizeof end);
        gpu_require(t, status != SP_OK || end == i, "repetition %lld: %lld", (long long)i,
                    (long long)end);
    }
    sp_i_cuda_runtime_free(r.runtime);
    return status;
}

// ---- times ----

enum { DELAY_NS = 10000000 };

static void delay_with_stamps(const rig *r, void *data)
{
    uint64_t(*stamps)[2] = data;
    for (int rank = 0; rank < RANKS; rank++) {
        r->runtime->ops->enter(r->runtime, rank);
        stamps[rank][0] = r->runtime->ops->stamp(r->runtime);
        sp_cuda_delay(DELAY_NS, sp_i_cuda_rank_now()->stream);
        stamps[rank][1] = r->runtime->ops->stamp(r->runtime);
    }
}

// Events that a graph records have times, new ones in every repetition; and branches of the graph
// are done side by side where their streams' work would be.
static sp_status stamps_in_a_graph_have_times(gpu_test *t, sp_error *err)
{
    uint64_t stamps[RANKS][2];
    rig r;
    sp_status status = rig_init(&r, t, err);
    status = status == SP_OK ? capture(&r, delay_with_stamps, stamps, err) : status;
    for (int i = 0; status == SP_OK && i < 3; i++) {
        const sp_runtime_ops *ops = r.runtime->ops;
        ops->enter(r.runtime, 0);
        uint64_t begin = ops->stamp(r.runtime);
        status = synchronize(&r, err);
        int64_t begin_ns = ops->stamp_ns(r.runtime, begin);
        status = status == SP_OK ? ops->replay(r.runtime, err) : status;
        int64_t last_ns = begin_ns;
        for (int rank = 0; status == SP_OK && rank < RANKS; rank++) {
            int64_t from_ns = ops->stamp_ns(r.runtime, stamps[rank][0]);
            int64_t to_ns = ops->stamp_ns(r.runtime, stamps[rank][1]);
            // Events are exact to half a microsecond, the delay's timer to a microsecond or so.
            gpu_require(t, from_ns >= begin_ns - 2000 && to_ns - from_ns >= DELAY_NS - 10000,
                        "rank %d: from %lld to %lld ns after the begin", rank,
                        (long long)(from_ns - begin_ns), (long long)(to_ns - begin_ns));
            last_ns = to_ns > last_ns ? to_ns : last_ns;
        }
        gpu_require(t, last_ns - begin_ns < RANKS * (int64_t)DELAY_NS / 2,
                    "%d delays of %d ms side by side take %.1f ms", RANKS, DELAY_NS / 1000000,
                    (double)(last_ns - begin_ns) / 1e6);
        status = status == SP_OK ? synchronize(&r, err) : status;
    }
    sp_i_cuda_runtime_free(r.runtime);
    return status;
}

// ---- partitions ----

enum { EDGE = 4096, PRODUCTS = 8 };

typedef struct products {
    char *at; // of the device: three matrices
    uint64_t begin, end;
} products;

static void multiply(const rig *r, void *data)
{
    products *p = data;
    const int64_t bytes = (int64_t)EDGE * EDGE * 2;
    const sp_i_cuda_product product = {SP_I_CUDA_FORWARD, EDGE, EDGE, EDGE, false, false};
    const sp_i_cuda_operands operands = {p->at, p->at + bytes, p->at + 2 * bytes};
    r->runtime->ops->enter(r->runtime, RANKS - 1);
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    p->begin = r->runtime->ops->stamp(r->runtime);
    sp_i_cuda_hold(rank);
    for (int i = 0; i < PRODUCTS; i++) {
        (void)sp_i_cuda_multiply(rank, &product, &operands, NULL);
    }
    sp_i_cuda_release(rank);
    p->end = r->runtime->ops->stamp(r->runtime);
}

static double ms_of(const rig *r, const products *p)
{
    const sp_runtime_ops *ops = r->runtime->ops;
    return 1e-6 * (double)(ops->stamp_ns(r->runtime, p->end) - ops->stamp_ns(r->runtime, p->begin));
}

// On all of the device products would be several times faster than in a quarter of it.
static sp_status a_graph_keeps_partitions(gpu_test *t, sp_error *err)
{
    rig r;
    products p = {NULL, 0, 0};
    double launched_ms = 0.0;
    sp_status status = rig_init(&r, t, err);
    if (status == SP_OK && !r.partitioned) {
        status = sp_error_set(err, SP_ERR_USAGE, "the driver does not split the device");
    }
    if (status == SP_OK) {
        p.at = r.runtime->ops->allocate(r.runtime, (int64_t)3 * EDGE * EDGE * 2);
        r.runtime->ops->zero(r.runtime, p.at, (int64_t)3 * EDGE * EDGE * 2);
        for (int i = 0; status == SP_OK && i < 2; i++) { // the first finds the algorithm
            multiply(&r, &p);
            status = synchronize(&r, err);
            launched_ms = status == SP_OK ? ms_of(&r, &p) : 0.0;
        }
    }
    status = status == SP_OK ? capture(&r, multiply, &p, err) : status;
    for (int i = 0; status == SP_OK && i < 2; i++) {
        status = r.runtime->ops->replay(r.runtime, err);
    }
    if (status == SP_OK) {
        double ratio = ms_of(&r, &p) / launched_ms;
        gpu_require(t, ratio > 0.7 && ratio < 1.4,
                    "in a graph %.2f of the time when launched, %.3f ms", ratio,
                    launched_ms / PRODUCTS);
    }
    sp_i_cuda_runtime_free(r.runtime);
    return status;
}

// ---- steps ----

enum { SAMPLES = 4, STEPS = 6 };

// Two stages, 1F1B.
typedef struct task {
    sp_model model;
    sp_layout layout;
    sp_batch batch;
    int64_t ids[SAMPLES], tokens[SAMPLES];
    sp_packing packing;
    sp_plan plan;
} task;

static bool add_samples(task *k)
{
    bool ok = true;
    for (int32_t s = 0; ok && s < SAMPLES; s++) {
        k->ids[s] = s;
        k->tokens[s] = 512 + 64 * s;
        const sp_slice slice = {
            .sample = s, .tokens = k->tokens[s], .computed_tokens = k->tokens[s]};
        ok = sp_pack_list_begin(&k->packing.forward, 0, 1) &&
             sp_pack_list_add(&k->packing.forward, slice, true);
    }
    k->batch.total_tokens = SAMPLES * 512 + 64 * (SAMPLES * (SAMPLES - 1) / 2);
    return ok;
}

static sp_status task_init(task *k, sp_error *err)
{
    const sp_schedule_spec spec = {.kind = SP_SCHEDULE_1F1B};
    *k = (task){.model = {.name = "small", LLAMA_SHAPE(4, 512, 1536, 8, 4, 4096)},
                .layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1}};
    k->batch = (sp_batch){.ids = k->ids, .tokens = k->tokens, .count = SAMPLES};
    sp_packing_init(&k->packing, &k->batch, 1);
    if (!add_samples(k)) {
        return sp_error_no_memory(err, "a packing");
    }
    sp_status status = sp_plan_init(&k->plan, &k->layout, &k->packing, err);
    return status == SP_OK ? sp_schedule_generate(&spec, NULL, "plan", &k->plan, err) : status;
}

static sp_status run(const gpu_test *t, const task *k, const char *graphs, const char *cudnn,
                     double loss[STEPS], int64_t *last_ns, sp_error *err)
{
    static const sp_memory_options memory;
    const sp_backend_option options[] = {
        {"graphs", graphs}, {"cudnn", cudnn}, {"partition", "off"}, {"learning_rate", "0.01"}};
    const sp_run_request request = {RUN_OF(&k->plan, &k->model, &memory), .clock = SP_CLOCK_WALL,
                                    RUN_STEPS(SP_BF16, 1, STEPS), RUN_OPTIONS(options, 4)};
    sp_measured_step steps[STEPS];
    void *state = NULL;
    memset(steps, 0, sizeof steps);
    sp_status status = sp_i_cuda_execute(t->device.index, &request, steps, &state, err);
    for (int s = 0; s < STEPS; s++) {
        loss[s] = steps[s].loss;
        *last_ns = steps[s].timeline.iteration_ns;
        sp_timeline_fini(&steps[s].timeline);
        sp_memory_timeline_fini(&steps[s].memory);
    }
    sp_i_cuda_free_state(state);
    return status;
}

// `bound`: of the relative difference of losses.
static sp_status repeat_steps(gpu_test *t, const char *cudnn, double bound, sp_error *err)
{
    double launched[STEPS], repeated[STEPS];
    int64_t launched_ns = 0, repeated_ns = 0;
    task k;
    sp_status status = task_init(&k, err);
    status = status == SP_OK ? run(t, &k, "off", cudnn, launched, &launched_ns, err) : status;
    status = status == SP_OK ? run(t, &k, "on", cudnn, repeated, &repeated_ns, err) : status;
    for (int s = 0; status == SP_OK && s < STEPS; s++) {
        gpu_require(t, fabs(repeated[s] - launched[s]) <= bound * launched[s],
                    "step %d: loss %.17g, launched %.17g; %.3f ms, launched %.3f ms", s,
                    repeated[s], launched[s], 1e-6 * (double)repeated_ns,
                    1e-6 * (double)launched_ns);
    }
    sp_plan_fini(&k.plan);
    sp_packing_fini(&k.packing);
    return status;
}

// The same kernels in the same order of sums give the same bits.
static sp_status repeated_steps_have_the_same_loss(gpu_test *t, sp_error *err)
{
    return repeat_steps(t, "off", 0.0, err);
}

// cuDNN's backward adds up gradients in no order.
static sp_status repeated_steps_take_cudnn(gpu_test *t, sp_error *err)
{
    return repeat_steps(t, "on", 0.01, err);
}

int main(void)
{
    static const gpu_case cases[] = {
        {"fences_order_a_graph", fences_order_a_graph},
        {"stamps_in_a_graph_have_times", stamps_in_a_graph_have_times},
        {"a_graph_keeps_partitions", a_graph_keeps_partitions},
        {"repeated_steps_have_the_same_loss", repeated_steps_have_the_same_loss},
        {"repeated_steps_take_cudnn", repeated_steps_take_cudnn},
    };
    return gpu_run_cases(cases, sizeof cases / sizeof *cases);
}
