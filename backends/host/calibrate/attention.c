// Attention of one sample: causal, and the rectangle of a slice over as much context as it has
// tokens, which is what the slice takes beyond a sample of its own length.
#include <math.h>

#include "backends/host/calibrate/calibration.h"
#include "sim/base/alloc.h"

// FLOPs per (query, key) pair and element of the heads, as profiles count them
// (profiles/README.md).
#define FORWARD_FLOPS 4.0
#define BACKWARD_FLOPS 10.0

enum { LEAST_LENGTH = 16 };

typedef struct attention {
    const sp_i_host_probe *probe;
    sp_kernel_attention_shape shape;
    bool backward;
    int64_t context, queries;
    void *tensors[SP_I_HOST_PROBE_TENSORS];
} attention;

static void run(void *context)
{
    attention *a = context;
    a->probe->attention(a->backward, &a->shape, a->context, a->queries, a->tensors);
}

static void free_tensors(attention *a)
{
    for (int i = 0; i < SP_I_HOST_PROBE_TENSORS; i++) {
        sp_i_free(a->tensors[i]);
    }
}

static int64_t elements(const attention *a, int tensor, int64_t tokens)
{
    switch (tensor) {
    case SP_I_HOST_PROBE_K:
    case SP_I_HOST_PROBE_V:
    case SP_I_HOST_PROBE_DK:
    case SP_I_HOST_PROBE_DV:
        return tokens * a->shape.kv_stride;
    case SP_I_HOST_PROBE_LSE:
        return tokens * a->shape.heads;
    case SP_I_HOST_PROBE_WORKSPACE:
        return a->probe->attention_workspace(&a->shape, tokens);
    default:
        return tokens * a->shape.q_stride;
    }
}

static sp_status make_tensors(const sp_i_host_calibration *c, int64_t tokens, attention *a,
                              sp_error *err)
{
    const sp_model *model = &c->model;
    int64_t width = model->heads * model->head_dim;
    *a = (attention){.probe = c->probe,
                     .shape = {.heads = model->heads,
                               .kv_heads = model->kv_heads,
                               .head_dim = model->head_dim,
                               .q_stride = width,
                               .kv_stride = model->kv_heads * model->head_dim,
                               .out_stride = width,
                               .scale = 1.0 / sqrt((double)model->head_dim)}};
    for (int i = 0; i < SP_I_HOST_PROBE_TENSORS; i++) {
        int64_t count = elements(a, i, tokens);
        a->tensors[i] = sp_i_malloc((size_t)(count * c->probe->real_bytes));
        if (a->tensors[i] == NULL) {
            free_tensors(a);
            return sp_error_no_memory(err, "the tensors of attention");
        }
        c->probe->fill(c->seed + 16 + (uint64_t)i, count, a->tensors[i]);
    }
    return SP_OK;
}

// A backward reads what a forward of the same slice left.
static sp_i_host_timing timing(attention *a, bool backward, int64_t context, int64_t queries,
                               double budget_s)
{
    a->context = context;
    a->queries = queries;
    a->backward = false;
    if (backward) {
        run(a);
        a->backward = true;
    }
    return sp_i_host_time(run, a, budget_s);
}

typedef struct curves {
    json_t *causal, *full;
    double spread;
} curves;

static bool append_rate(json_t *points, double length, double flops, double seconds)
{
    return json_array_append_new(points, json_pack("[f, f]", length, 1e-12 * flops / seconds)) == 0;
}

// The least that a rectangle's time is taken for, as a share of the whole slice's: it is a
// difference of two measured times.
#define LEAST_RECTANGLE 0.2

static bool measure(const sp_i_host_calibration *c, attention *a, bool backward, curves *to)
{
    double per_pair =
        (backward ? BACKWARD_FLOPS : FORWARD_FLOPS) * (double)(a->shape.heads * a->shape.head_dim);
    double budget_s = 0.15 * c->limit_s / 32;
    bool ok = true;
    for (int64_t l = LEAST_LENGTH; ok && l <= c->most_tokens; l *= 2) {
        double square = (double)(l * l);
        sp_i_host_timing alone = timing(a, backward, 0, l, budget_s);
        sp_i_host_timing behind = timing(a, backward, l, l, budget_s);
        double rectangle_s =
            fmax(behind.quartile_s - alone.quartile_s, LEAST_RECTANGLE * behind.quartile_s);
        to->spread = fmax(to->spread, fmax(alone.spread, behind.spread));
        ok = append_rate(to->causal, (double)l, 0.5 * square * per_pair, alone.quartile_s) &&
             append_rate(to->full, (double)l, square * per_pair, rectangle_s);
    }
    return ok;
}

static bool set_table(const sp_i_host_calibration *c, json_t *section, const char *key,
                      json_t *points, double spread)
{
    json_t *table = sp_i_host_measured(c, "attention of one sample", spread);
    bool ok = table != NULL && json_object_set(table, "points", points) == 0 &&
              json_object_set(section, key, table) == 0;
    json_decref(table);
    return ok;
}

static bool add_curves(const sp_i_host_calibration *c, attention *a, bool backward, json_t *section)
{
    curves to = {.causal = json_array(), .full = json_array()};
    bool ok =
        to.causal != NULL && to.full != NULL && measure(c, a, backward, &to) &&
        set_table(c, section, backward ? "backward_causal" : "forward_causal", to.causal,
                  to.spread) &&
        set_table(c, section, backward ? "backward_full" : "forward_full", to.full, to.spread);
    json_decref(to.causal);
    json_decref(to.full);
    return ok;
}

sp_status sp_i_host_calibrate_attention(sp_i_host_calibration *c, sp_error *err)
{
    attention a;
    sp_status status = make_tensors(c, 2 * c->most_tokens, &a, err);
    if (status != SP_OK) {
        return status;
    }
    json_t *section = json_object();
    bool ok = section != NULL && add_curves(c, &a, false, section) &&
              add_curves(c, &a, true, section) &&
              json_object_set(c->document, "attention", section) == 0;
    json_decref(section);
    free_tensors(&a);
    return ok ? SP_OK : sp_error_no_memory(err, "a profile");
}
