// Whole actions: steps of a model with one layer on each of three stages, in packs of one sample,
// with input and weight gradients as actions of their own.
#include "backends/executor/run.h"
#include "backends/host/calibrate/calibration.h"
#include "backends/host/host.h"
#include "sim/base/alloc.h"
#include "sim/cost/cost_model.h"

enum { PACKS = 4, MOST_STEPS = 64, LEAST_STEPS = 3, SAMPLES = PACKS * MOST_STEPS };

static const sp_action_kind kinds[SP_I_HOST_PROBE_KINDS] = {SP_ACTION_F, SP_ACTION_I, SP_ACTION_W};

static const sp_layout layout = {
    .tp = 1, .cp = 1, .pp = SP_I_HOST_PROBE_STAGES, .dp = 1, .chunks = 1};

// What the steps took so far.
typedef struct record {
    double seconds[SP_I_HOST_PROBE_STAGES][SP_I_HOST_PROBE_KINDS][SAMPLES];
    int count[SP_I_HOST_PROBE_STAGES][SP_I_HOST_PROBE_KINDS];
    double optimizer_s[MOST_STEPS];
    int steps;
} record;

// One sample in each pack. The plan points into it.
typedef struct step {
    int64_t ids[PACKS], lengths[PACKS];
    sp_batch batch;
    sp_packing packing;
    sp_plan plan;
    sp_model model;
    sp_memory_options memory;
} step;

static void step_fini(step *s)
{
    sp_plan_fini(&s->plan);
    sp_packing_fini(&s->packing);
}

static sp_status step_make(const sp_i_host_calibration *c, const sp_profile *profile,
                           int64_t tokens, step *s, sp_error *err)
{
    static const sp_schedule_spec spec = {.kind = SP_SCHEDULE_ZB_H1};
    *s = (step){.model = c->model, .memory = {.stack = profile->stack}};
    s->model.layers = SP_I_HOST_PROBE_STAGES;
    s->batch = (sp_batch){
        .ids = s->ids, .tokens = s->lengths, .count = PACKS, .total_tokens = PACKS * tokens};
    sp_packing_init(&s->packing, &s->batch, 1);
    for (int i = 0; i < PACKS; i++) {
        sp_slice slice = {.sample = i, .tokens = tokens, .computed_tokens = tokens};
        s->ids[i] = i;
        s->lengths[i] = tokens;
        (void)sp_pack_list_begin(&s->packing.forward, 0, 1);
        (void)sp_pack_list_add(&s->packing.forward, slice, true);
    }
    sp_status status = sp_plan_init(&s->plan, &layout, &s->packing, err);
    if (status == SP_OK) {
        status = sp_schedule_generate(&spec, NULL, "calibration", &s->plan, err);
    }
    if (status != SP_OK) {
        step_fini(s);
    }
    return status;
}

// ---- measured ----

static int kind_at(sp_action_kind kind)
{
    for (int k = 0; k < SP_I_HOST_PROBE_KINDS; k++) {
        if (kinds[k] == kind) {
            return k;
        }
    }
    return -1;
}

static void note(record *r, const sp_timeline *timeline)
{
    for (size_t stage = 0; stage < timeline->rank_count; stage++) {
        const sp_rank_timeline *rank = &timeline->ranks[stage];
        for (size_t i = 0; i < rank->count; i++) {
            const sp_span *span = &rank->spans[i];
            int k = kind_at((sp_action_kind)span->action.kind);
            if (k >= 0) {
                r->seconds[stage][k][r->count[stage][k]++] =
                    1e-9 * (double)(span->end_ns - span->start_ns);
            }
        }
    }
    const sp_rank_timeline *middle = &timeline->ranks[1];
    r->optimizer_s[r->steps++] = 1e-9 * (double)(middle->optimizer_end_ns - middle->reduce_end_ns);
}

// The first step warms caches and pages up and does not count.
static sp_status run_steps(sp_i_exec_run *run, double budget_s, record *r, sp_error *err)
{
    sp_status status = SP_OK;
    int64_t begin_ns = sp_i_host_now_ns();
    bool warm = false;
    while (status == SP_OK && r->steps < MOST_STEPS &&
           (r->steps < LEAST_STEPS || (double)(sp_i_host_now_ns() - begin_ns) < budget_s * 1e9)) {
        sp_measured_step measured = {0};
        status = sp_i_exec_run_step(run, &measured, err);
        if (status == SP_OK && warm) {
            note(r, &measured.timeline);
        }
        warm = true;
        sp_memory_timeline_fini(&measured.memory);
        sp_timeline_fini(&measured.timeline);
    }
    return status;
}

static sp_status measure(const sp_i_host_calibration *c, const step *s, double budget_s,
                         sp_i_host_step_times *times, sp_error *err)
{
    const sp_run_request request = {.plan = &s->plan,
                                    .model = &s->model,
                                    .memory = &s->memory,
                                    .precision = c->precision,
                                    .seed = c->seed,
                                    .steps = 1};
    sp_i_exec_run *run = NULL;
    record *r = sp_calloc(1, sizeof *r);
    sp_status status = sp_i_exec_check(&request, "host", err);
    if (status == SP_OK) {
        status = sp_i_host_run_new_cpu(&request, &run, err);
    }
    if (status == SP_OK) {
        status = run_steps(run, budget_s, r, err);
    }
    for (int v = 0; status == SP_OK && v < SP_I_HOST_PROBE_STAGES; v++) {
        for (int k = 0; k < SP_I_HOST_PROBE_KINDS; k++) {
            times->action[v][k] = sp_i_host_timing_of(r->seconds[v][k], r->count[v][k]);
        }
    }
    if (status == SP_OK) {
        times->optimizer_s = sp_i_host_timing_of(r->optimizer_s, r->steps).quartile_s;
        times->parameters = (double)run->weights[1].elements;
    }
    if (run != NULL) {
        sp_i_exec_run_free(run);
    }
    sp_free(r);
    return status;
}

// ---- predicted ----

static const sp_action_cost *costs_of(const sp_step_costs *costs, int kind)
{
    return kind == 0 ? costs->f : kind == 1 ? costs->i : costs->w;
}

// Seconds of the first pack's actions with element-wise kernels at this rate and a loss of no
// bytes.
static sp_status predict(const step *s, const sp_profile *profile, double bytes_per_s,
                         double seconds[SP_I_HOST_PROBE_STAGES][SP_I_HOST_PROBE_KINDS],
                         sp_error *err)
{
    sp_profile priced = *profile;
    sp_cluster cluster;
    sp_cost_model cost;
    sp_step_costs costs;
    priced.memory_bytes_per_s = bytes_per_s;
    priced.loss_bytes_per_logit = 1e-9;
    sp_status status = sp_cluster_builtin("host", &cluster, err);
    if (status != SP_OK) {
        return status;
    }
    status = sp_cost_model_init(&cost, &s->model, &layout, &cluster, &priced, s->memory,
                                "calibration", err);
    if (status != SP_OK) {
        return status;
    }
    status = sp_cost_model_build(&cost, &s->packing, &costs, err);
    for (int v = 0; status == SP_OK && v < SP_I_HOST_PROBE_STAGES; v++) {
        for (int k = 0; k < SP_I_HOST_PROBE_KINDS; k++) {
            const sp_action_cost *of = &costs_of(&costs, k)[costs.stages[v].cost_class];
            seconds[v][k] = 1e-9 * (double)sp_action_cost_ns(of);
        }
    }
    if (status == SP_OK) {
        sp_step_costs_fini(&costs);
    }
    sp_cost_model_fini(&cost);
    return status;
}

sp_status sp_i_host_time_steps(const sp_i_host_calibration *c, const sp_profile *profile,
                               double budget_s, sp_i_host_step_times *times, sp_error *err)
{
    const double bytes_per_s = 1e9;
    step s;
    sp_status status = step_make(c, profile, times->tokens, &s, err);
    if (status != SP_OK) {
        return status;
    }
    status = measure(c, &s, budget_s, times, err);
    if (status == SP_OK) {
        status = predict(&s, profile, 1e18, times->products_s, err);
    }
    if (status == SP_OK) {
        status = predict(&s, profile, bytes_per_s, times->bytes, err);
    }
    for (int v = 0; v < SP_I_HOST_PROBE_STAGES; v++) {
        for (int k = 0; k < SP_I_HOST_PROBE_KINDS; k++) {
            times->bytes[v][k] = (times->bytes[v][k] - times->products_s[v][k]) * bytes_per_s;
        }
    }
    step_fini(&s);
    return status;
}
