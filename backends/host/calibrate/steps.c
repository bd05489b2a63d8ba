// Whole actions: steps of a model with one layer on each of three stages, in packs of one sample,
// with input and weight gradients as actions of their own.
#include "backends/host/calibrate/calibration.h"

#include <math.h>
#include <string.h>

#include "backends/executor/run.h"
#include "backends/host/cpu_runtime.h"
#include "backends/host/host.h"
#include "sim/base/alloc.h"
#include "sim/cost/cost_model.h"

// Times of a pack of `tokens` tokens, for virtual stages with the embedding, with
// nothing but a layer, and with the head: seconds of F, I and W.
enum { STAGES = 3, KINDS = 3 };

typedef struct step_times {
    int64_t tokens;
    sp_i_timing action[STAGES][KINDS];
    double optimizer_s;               // of the middle stage
    double parameters;                // of the middle stage
    double products_s[STAGES][KINDS]; // predicted, with attention
    double bytes[STAGES][KINDS];      // counted, without the loss
} step_times;

enum { PACKS = 4, MOST_STEPS = 64, LEAST_STEPS = 3, SAMPLES = PACKS * MOST_STEPS };

static const sp_action_kind kinds[KINDS] = {SP_ACTION_F, SP_ACTION_I, SP_ACTION_W};

static const sp_layout layout = {.tp = 1, .cp = 1, .pp = STAGES, .dp = 1, .chunks = 1};

// Samples of the steps so far.
typedef struct record {
    double seconds[STAGES][KINDS][SAMPLES];
    int count[STAGES][KINDS];
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

// Parameters, gradients and two moments of all stages.
sp_status sp_i_host_check_steps(const sp_i_host_calibration *c, sp_error *err)
{
    const sp_i_exec_site site = {.backend = "host", .runtime = sp_runtime_cpu()};
    sp_model model = c->model;
    model.layers = STAGES;
    return sp_i_exec_check_memory(&site, 4 * sp_model_parameters(&model) * c->probe->real_bytes,
                                  "a calibration with this model's widths needs",
                                  "calibrate with those of a smaller one (--model)", err);
}

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
    s->model.layers = STAGES;
    s->batch = (sp_batch){
        .ids = s->ids, .tokens = s->lengths, .count = PACKS, .total_tokens = PACKS * tokens};
    sp_packing_init(&s->packing, &s->batch, 1);
    for (int i = 0; i < PACKS; i++) {
        sp_slice slice = {.sample = i, .tokens = tokens, .computed_tokens = tokens};
        s->ids[i] = i;
        s->lengths[i] = tokens;
        (void)sp_pack_list_begin(&s->packing.forward, 0, 1);
        sp_pack_list_add(&s->packing.forward, slice, true);
    }
    sp_plan_init(&s->plan, &layout, &s->packing);
    sp_status status = sp_schedule_generate(&spec, NULL, "calibration", &s->plan, err);
    if (status != SP_OK) {
        step_fini(s);
    }
    return status;
}

// ---- measured ----

static int kind_at(sp_action_kind kind)
{
    for (int k = 0; k < KINDS; k++) {
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
                         step_times *times, sp_error *err)
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
    for (int v = 0; status == SP_OK && v < STAGES; v++) {
        for (int k = 0; k < KINDS; k++) {
            times->action[v][k] = sp_i_host_timing_of(r->seconds[v][k], r->count[v][k]);
        }
    }
    if (status == SP_OK) {
        times->optimizer_s = sp_i_host_timing_of(r->optimizer_s, r->steps).seconds;
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
                         double seconds[STAGES][KINDS], sp_error *err)
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
    for (int v = 0; status == SP_OK && v < STAGES; v++) {
        for (int k = 0; k < KINDS; k++) {
            const sp_action_cost *cost_of_action = &costs_of(&costs, k)[costs.stages[v].cost_class];
            seconds[v][k] = 1e-9 * (double)sp_action_cost_ns(cost_of_action);
        }
    }
    if (status == SP_OK) {
        sp_step_costs_fini(&costs);
    }
    sp_cost_model_fini(&cost);
    return status;
}

// Runs steps for about budget_s. `profile` has products and attention.
static sp_status time_steps(const sp_i_host_calibration *c, const sp_profile *profile,
                            double budget_s, step_times *times, sp_error *err)
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
    for (int v = 0; v < STAGES; v++) {
        for (int k = 0; k < KINDS; k++) {
            times->bytes[v][k] = (times->bytes[v][k] - times->products_s[v][k]) * bytes_per_s;
        }
    }
    step_fini(&s);
    return status;
}

// ---- The fit ----

// Products and attention leave a rest of an action: element-wise kernels at one rate over the bytes
// that the cost model counts, a fixed time of each layer, the loss, the optimizer.

enum { SIZES = 8, FIRST_TOKENS = 16, MIDDLE = 1, HEAD = 2 };

// A layer's launches are paid in quarters by F, I and W (sim/cost/cost_private.h).
#define LAYER_SHARE 0.25
// Bounds of the loss, for each logit.
#define LEAST_BYTES 1e-3
#define MOST_BYTES 1e5

typedef struct step_fit {
    double product_factor; // of weight gradients: their time in a step over that alone
    double s_per_byte, layer_s;
    double loss_bytes_per_logit;
    double optimizer_bytes_per_parameter;
    double copy_bytes_per_s;
    double spread;
} step_fit;

enum { PRODUCTS, BYTES, LAYER, TERMS };

#define CACHE_FACTOR 4.0

// Normal equations of the terms: weight gradients' products, element-wise bytes, share of a layer.
// On the stage that has a layer and nothing else; errors are shares of the whole action, and large
// packs, where the time of a step lies, weigh in proportion to their tokens.
typedef struct equations {
    double a[TERMS][TERMS], y[TERMS];
} equations;

static void collect(const step_times *times, int count, equations *e, double *spread)
{
    for (int i = 0; i < count; i++) {
        double weight = (double)times[i].tokens;
        for (int k = 0; k < KINDS; k++) {
            double whole_s = times[i].action[MIDDLE][k].seconds;
            double products = times[i].products_s[MIDDLE][k] / whole_s;
            bool weight_gradient = k == KINDS - 1;
            double y = weight_gradient ? 1.0 : 1.0 - products;
            const double x[TERMS] = {weight_gradient ? products : 0.0,
                                     times[i].bytes[MIDDLE][k] / whole_s, LAYER_SHARE / whole_s};
            for (int m = 0; m < TERMS; m++) {
                for (int n = 0; n < TERMS; n++) {
                    e->a[m][n] += weight * x[m] * x[n];
                }
                e->y[m] += weight * x[m] * y;
            }
            *spread = fmax(*spread, times[i].action[MIDDLE][k].spread);
        }
    }
}

// Gives one term its value.
static void fix(equations *e, int term, double value)
{
    for (int m = 0; m < TERMS; m++) {
        e->y[m] -= e->a[m][term] * value;
        e->a[m][term] = 0.0;
        e->a[term][m] = 0.0;
    }
    e->a[term][term] = 1.0;
    e->y[term] = value;
}

// Gaussian elimination; the matrix is symmetric and not negative, so no pivots are sought.
static void solve(equations e, double *x)
{
    for (int p = 0; p < TERMS; p++) {
        for (int m = p + 1; m < TERMS; m++) {
            double factor = e.a[m][p] / e.a[p][p];
            for (int n = p; n < TERMS; n++) {
                e.a[m][n] -= factor * e.a[p][n];
            }
            e.y[m] -= factor * e.y[p];
        }
    }
    for (int m = TERMS - 1; m >= 0; m--) {
        x[m] = e.y[m];
        for (int n = m + 1; n < TERMS; n++) {
            x[m] -= e.a[m][n] * x[n];
        }
        x[m] /= e.a[m][m];
    }
}

static void at_least(equations *e, int term, double least, double *x)
{
    if (!(x[term] >= least)) {
        fix(e, term, least);
        solve(*e, x);
    }
}

// Inside a step a weight gradient finds its matrices and the gradient's buffer in memory, where the
// same product over and over has them in caches: it takes `product_factor` of its time alone. No
// time is negative, and what caches hold is moved at most CACHE_FACTOR times as fast as what they
// do not.
static void fit_layer(const sp_i_host_calibration *c, const step_times *times, int count,
                      step_fit *r)
{
    equations e = {0};
    double x[TERMS];
    double least_s = (double)c->probe->real_bytes / (2.0 * CACHE_FACTOR * r->copy_bytes_per_s);
    collect(times, count, &e, &r->spread);
    solve(e, x);
    at_least(&e, BYTES, least_s, x);
    at_least(&e, LAYER, 0.0, x);
    at_least(&e, BYTES, least_s, x); // without the layers' time there may be too few
    r->product_factor = x[PRODUCTS];
    r->s_per_byte = x[BYTES];
    r->layer_s = x[LAYER];
}

// The head's stage beyond its layer, its product and its norm, F and I together.
static void fit_loss(const sp_i_host_calibration *c, const step_times *times, int count,
                     step_fit *r)
{
    double weighted = 0.0;
    double weights = 0.0;
    for (int i = 0; i < count; i++) {
        double left_s = 0.0;
        double whole_s = 0.0;
        for (int k = 0; k < 2; k++) {
            whole_s += times[i].action[HEAD][k].seconds;
            left_s += times[i].action[HEAD][k].seconds - times[i].products_s[HEAD][k] -
                      times[i].bytes[HEAD][k] * r->s_per_byte - LAYER_SHARE * r->layer_s;
        }
        double logit_s = (double)(c->model.vocab * times[i].tokens) * r->s_per_byte / whole_s;
        weighted += logit_s * left_s / whole_s;
        weights += logit_s * logit_s;
    }
    r->loss_bytes_per_logit = fmin(fmax(weighted / weights, LEAST_BYTES), MOST_BYTES);
}

static void fit_optimizer(const step_times *times, int count, step_fit *r)
{
    double sum = 0.0;
    for (int i = 0; i < count; i++) {
        sum += times[i].optimizer_s / times[i].parameters;
    }
    r->optimizer_bytes_per_parameter = sum / count / r->s_per_byte;
}

static void put(json_t *section, const char *key, double value)
{
    sp_json_put(section, key, json_real(value));
}

static void add_one(const sp_i_host_calibration *c, const char *name, const char *key, double value,
                    const char *what, double spread)
{
    json_t *section = sp_i_host_measured(c, what, spread);
    put(section, key, value);
    sp_json_put(c->document, name, section);
}

static void add_host(const sp_i_host_calibration *c, const step_fit *r)
{
    json_t *host = sp_i_host_measured(c, "actions of packs of 16 tokens and more", r->spread);
    put(host, "layer_us", 1e6 * r->layer_s);
    put(host, "overlap_power", 1.0);
    sp_json_put(c->document, "host", host);
}

// A pack is handed to the next stage as it lies; copies between ranks remain for gradients and
// parameters, and the cost model counts them by 2 bytes an element.
static void add_links(const sp_i_host_calibration *c, double copy_bytes_per_s)
{
    double counted = copy_bytes_per_s * 2.0 / (double)c->probe->real_bytes;
    json_t *links = sp_i_host_measured(c, "copies of 64 MiB; virtual clock", 0.0);
    put(links, "nvlink_gb_per_s", 1e-9 * counted);
    put(links, "nvlink_latency_us", 0.0);
    put(links, "nic_efficiency", 1.0);
    put(links, "nic_latency_us", 0.0);
    put(links, "p2p_gb_per_s", 1e9);
    put(links, "p2p_latency_us", 0.0);
    sp_json_put(c->document, "links", links);
}

static void write_fit(const sp_i_host_calibration *c, const step_fit *r)
{
    add_one(c, "memory", "gb_per_s", 1e-9 / r->s_per_byte,
            "actions less products and attention, an element counted as 2 bytes", r->spread);
    add_one(c, "kernel", "us", 0.0, "part of host.layer_us", 0.0);
    add_host(c, r);
    add_one(c, "loss", "bytes_per_logit", r->loss_bytes_per_logit,
            "actions of the head at the rate of memory", r->spread);
    add_one(c, "optimizer", "bytes_per_parameter", r->optimizer_bytes_per_parameter,
            "optimizer steps at the rate of memory", 0.0);
    add_links(c, r->copy_bytes_per_s);
}

// A valid profile for the time being, so that the steps' products and attention can be priced.
static sp_status price_products(const sp_i_host_calibration *c, sp_profile *profile, sp_error *err)
{
    static const step_fit provisional = {.s_per_byte = 1e-9,
                                         .loss_bytes_per_logit = 1.0,
                                         .optimizer_bytes_per_parameter = 1.0,
                                         .copy_bytes_per_s = 1e9};
    write_fit(c, &provisional);
    return sp_profile_from_json(c->document, "calibration", profile, err);
}

// Weight gradients were measured alone; their tables are to hold what they take in steps.
static void scale_weight_gradients(const sp_i_host_calibration *c, double factor)
{
    size_t i;
    size_t j;
    json_t *table;
    json_t *point;
    json_array_foreach (json_object_get(c->document, "gemm"), i, table) {
        if (json_object_get(table, "pass") == NULL) {
            continue;
        }
        json_array_foreach (json_object_get(table, "points"), j, point) {
            double us = json_real_value(json_array_get(point, 1));
            json_array_set_new(point, 1, json_real(us * factor));
        }
    }
}

sp_status sp_i_host_calibrate_steps(sp_i_host_calibration *c, sp_error *err)
{
    sp_profile profile;
    step_times times[SIZES];
    step_fit r = {0};
    int count = 0;
    sp_status status = price_products(c, &profile, err);
    if (status != SP_OK) {
        return status;
    }
    for (int64_t tokens = FIRST_TOKENS;
         status == SP_OK && count < SIZES && tokens <= c->most_tokens; tokens *= 2) {
        memset(&times[count], 0, sizeof times[count]);
        times[count].tokens = tokens;
        status = time_steps(c, &profile, 0.4 * c->limit_s / 7, &times[count], err);
        count++;
    }
    sp_profile_fini(&profile);
    if (status != SP_OK) {
        return status;
    }
    r.copy_bytes_per_s = sp_i_host_copy_rate(c);
    fit_layer(c, times, count, &r);
    fit_loss(c, times, count, &r);
    fit_optimizer(times, count, &r);
    scale_weight_gradients(c, r.product_factor);
    write_fit(c, &r);
    return SP_OK;
}
