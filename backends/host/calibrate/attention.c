// Attention of one sample: causal; the rectangle of a slice over as much context as it has tokens,
// which is what the slice takes beyond a sample of its own length; and that rectangle as a block in
// a call of its own, as ranks run it that share the sample.
#include <math.h>

#include "backends/host/calibrate/calibration.h"
#include "sim/base/alloc.h"

// FLOPs per (query, key) pair and element of the heads, as profiles count them
// (profiles/README.md).
#define FORWARD_FLOPS 4.0
#define BACKWARD_FLOPS 10.0

enum { LEAST_LENGTH = 2, MOST_LENGTHS = 10 };

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

static void run_block(void *context)
{
    attention *a = context;
    a->probe->attention_block(a->backward, &a->shape, a->context, a->queries, a->tensors);
}

static void free_tensors(attention *a)
{
    for (int i = 0; i < SP_I_HOST_PROBE_TENSORS; i++) {
        sp_free(a->tensors[i]);
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

static void make_tensors(const sp_i_host_calibration *c, int64_t tokens, attention *a)
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
        a->tensors[i] = sp_malloc((size_t)(count * c->probe->real_bytes));
        c->probe->fill(c->seed + 16 + (uint64_t)i, count, a->tensors[i]);
    }
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

// Maxima and sums, or lse and delta, are random numbers: those of no real queries, and as fast.
static sp_i_host_timing block_timing(attention *a, bool backward, int64_t length, double budget_s)
{
    a->context = length;
    a->queries = length;
    a->backward = backward;
    return sp_i_host_time(run_block, a, budget_s);
}

// Rates in FLOP/s by length, LEAST_LENGTH and its doubles.
typedef enum curve { CAUSAL, FULL, BLOCK, CURVES } curve;

typedef struct curves {
    double rate[CURVES][MOST_LENGTHS];
    int count;
    double spread;
} curves;

// The least that a rectangle's time is taken for, as a share of the whole slice's: it is a
// difference of two measured times.
#define LEAST_RECTANGLE 0.2

static void measure(const sp_i_host_calibration *c, attention *a, bool backward, curves *to)
{
    double per_pair =
        (backward ? BACKWARD_FLOPS : FORWARD_FLOPS) * (double)(a->shape.heads * a->shape.head_dim);
    double budget_s = 0.15 * c->limit_s / (2 * CURVES * MOST_LENGTHS);
    *to = (curves){0};
    for (int64_t l = LEAST_LENGTH; to->count < MOST_LENGTHS && l <= c->most_tokens; l *= 2) {
        double square = per_pair * (double)(l * l);
        sp_i_host_timing alone = timing(a, backward, 0, l, budget_s);
        sp_i_host_timing behind = timing(a, backward, l, l, budget_s);
        sp_i_host_timing block = block_timing(a, backward, l, budget_s);
        double rectangle_s =
            fmax(behind.quartile_s - alone.quartile_s, LEAST_RECTANGLE * behind.quartile_s);
        to->spread = fmax(to->spread, fmax(alone.spread, fmax(behind.spread, block.spread)));
        to->rate[CAUSAL][to->count] = 0.5 * square / alone.quartile_s;
        to->rate[FULL][to->count] = square / rectangle_s;
        to->rate[BLOCK][to->count] = square / block.quartile_s;
        to->count++;
    }
}

// A rate grows at most with the length, that of blocks with its square (profiles/README.md). Where
// it grows faster it is the shorter lengths' that is raised: their calls take least.
static json_t *points_of(double *rate, int count, double growth)
{
    json_t *points = json_array();
    for (int i = count - 2; i >= 0; i--) {
        rate[i] = fmax(rate[i], rate[i + 1] / growth);
    }
    double length = LEAST_LENGTH;
    for (int i = 0; i < count; i++) {
        json_array_append_new(points, json_pack("[f, f]", length, 1e-12 * rate[i]));
        length *= 2.0;
    }
    return points;
}

static void set_table(const sp_i_host_calibration *c, json_t *section, const char *key,
                      json_t *points, double spread)
{
    json_t *table = sp_i_host_measured(c, "attention of one sample", spread);
    sp_json_put(table, "points", points);
    sp_json_put(section, key, table);
}

static void add_curves(const sp_i_host_calibration *c, attention *a, bool backward, json_t *section)
{
    static const char *const keys[2][CURVES] = {
        {"forward_causal", "forward_full", "forward_block"},
        {"backward_causal", "backward_full", "backward_block"}};
    curves of;
    measure(c, a, backward, &of);
    for (int i = 0; i < CURVES; i++) {
        json_t *points = points_of(of.rate[i], of.count, i == BLOCK ? 4.0 : 2.0);
        set_table(c, section, keys[backward][i], points, of.spread);
    }
}

sp_status sp_i_host_calibrate_attention(sp_i_host_calibration *c, sp_error *err)
{
    attention a;
    (void)err;
    make_tensors(c, 2 * c->most_tokens, &a);
    json_t *section = json_object();
    add_curves(c, &a, false, section);
    add_curves(c, &a, true, section);
    sp_json_put(c->document, "attention", section);
    free_tensors(&a);
    return SP_OK;
}
