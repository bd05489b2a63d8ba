// What products and attention leave of an action: element-wise kernels at one rate over the bytes
// that the cost model counts, a fixed time of each layer, the loss, the optimizer.
#include <math.h>
#include <string.h>

#include "backends/host/calibrate/calibration.h"

enum { SIZES = 8, FIRST_TOKENS = 16, MIDDLE = 1, HEAD = 2 };

// A layer's launches are paid in quarters by F, I and W (sim/cost/cost_private.h).
#define LAYER_SHARE 0.25
// Of the loss, per logit.
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

static void collect(const sp_i_host_step_times *times, int count, equations *e, double *spread)
{
    for (int i = 0; i < count; i++) {
        double weight = (double)times[i].tokens;
        for (int k = 0; k < SP_I_HOST_PROBE_KINDS; k++) {
            double whole_s = times[i].action[MIDDLE][k].quartile_s;
            double products = times[i].products_s[MIDDLE][k] / whole_s;
            bool weight_gradient = k == SP_I_HOST_PROBE_KINDS - 1;
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
static void fit_layer(const sp_i_host_calibration *c, const sp_i_host_step_times *times, int count,
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
static void fit_loss(const sp_i_host_calibration *c, const sp_i_host_step_times *times, int count,
                     step_fit *r)
{
    double weighted = 0.0;
    double weights = 0.0;
    for (int i = 0; i < count; i++) {
        double left_s = 0.0;
        double whole_s = 0.0;
        for (int k = 0; k < 2; k++) {
            whole_s += times[i].action[HEAD][k].quartile_s;
            left_s += times[i].action[HEAD][k].quartile_s - times[i].products_s[HEAD][k] -
                      times[i].bytes[HEAD][k] * r->s_per_byte - LAYER_SHARE * r->layer_s;
        }
        double logit_s = (double)(c->model.vocab * times[i].tokens) * r->s_per_byte / whole_s;
        weighted += logit_s * left_s / whole_s;
        weights += logit_s * logit_s;
    }
    r->loss_bytes_per_logit = fmin(fmax(weighted / weights, LEAST_BYTES), MOST_BYTES);
}

static void fit_optimizer(const sp_i_host_step_times *times, int count, step_fit *r)
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
    sp_i_host_step_times times[SIZES];
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
        status = sp_i_host_time_steps(c, &profile, 0.4 * c->limit_s / 7, &times[count], err);
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
