// Calibration of the executor on the CPU: times of single operations on one core, the parts of the
// document, and a small piece of work that says how fast the machine is now.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/host/calibrate/calibration.h"
#include "backends/host/cpu_runtime.h"
#include "backends/host/host.h"
#include "backends/ranks/comm.h"
#include "kernels/kernels.h"
#include "sim/base/alloc.h"
#include "sim/base/order.h"

// ---- Times ----

json_t *sp_i_host_measured(const void *context, const char *what, double spread)
{
    const sp_i_host_calibration *c = context;
    char text[200];
    snprintf(text, sizeof text,
             "%s in %s on one %s core, lower quartiles; quartiles within %.1f %%; model %.40s",
             what, sp_precision_names[c->precision], sp_kernels_blas_core(), 100.0 * spread,
             c->model.name);
    return json_pack("{s:s, s:s}", "level", sp_level_names[SP_LEVEL_MEASURED], "source", text);
}

int64_t sp_i_host_now_ns(void)
{
    return sp_runtime_cpu()->ops->now_ns(sp_runtime_cpu());
}

sp_i_timing sp_i_host_timing_of(double *seconds, int count)
{
    qsort(seconds, (size_t)count, sizeof *seconds, sp_ascending_doubles);
    double quartile_s = seconds[count / 4];
    double distance_s = seconds[3 * count / 4] - quartile_s;
    return (sp_i_timing){.seconds = quartile_s,
                         .spread = quartile_s > 0.0 ? 0.5 * distance_s / quartile_s : 0.0};
}

// Readings of the clock take part of a microsecond: short work is run several times between two.
#define LEAST_BETWEEN_NS 2e4
enum { MOST_BETWEEN = 64 };

static int64_t run_for_ns(void (*work)(void *), void *context, int times)
{
    int64_t begin_ns = sp_i_host_now_ns();
    for (int i = 0; i < times; i++) {
        work(context);
    }
    int64_t took_ns = sp_i_host_now_ns() - begin_ns;
    // The clock's own step keeps a time from being zero.
    return took_ns > 0 ? took_ns : 1;
}

static sp_i_timing time_work(void (*work)(void *), void *context, double budget_s)
{
    double seconds[SP_I_HOST_MOST_REPEATS];
    int count = 0;
    work(context);
    double once_ns = (double)run_for_ns(work, context, 1);
    int times = (int)fmin(fmax(LEAST_BETWEEN_NS / once_ns, 1.0), MOST_BETWEEN);
    int64_t begin_ns = sp_i_host_now_ns();
    while (count < SP_I_HOST_LEAST_REPEATS ||
           (count < SP_I_HOST_MOST_REPEATS &&
            (double)(sp_i_host_now_ns() - begin_ns) < budget_s * 1e9)) {
        seconds[count++] = 1e-9 * (double)run_for_ns(work, context, times) / times;
    }
    return sp_i_host_timing_of(seconds, count);
}

// ---- Reference work ----

enum { EDGE = 256, COPIED_BYTES = 2 << 20, SEED = 1, WALL_REPEATS = 100 };

// Seconds of each of the two.
#define BUDGET_S 0.01

typedef struct reference {
    float *x, *weight, *y; // [EDGE, EDGE]
    char *from, *to;
} reference;

static void multiply(void *context)
{
    const reference *r = context;
    sp_i_exec_probe_f32.product(SP_I_PRODUCT_FORWARD, EDGE, EDGE, EDGE, r->x, r->weight, r->y);
}

static void copy(void *context)
{
    const reference *r = context;
    memcpy(r->to, r->from, COPIED_BYTES);
}

static void reference_fini(reference *r)
{
    sp_free(r->x);
    sp_free(r->weight);
    sp_free(r->y);
    sp_free(r->from);
    sp_free(r->to);
}

static void reference_make(reference *r)
{
    const size_t bytes = sizeof(float) * EDGE * EDGE;
    *r = (reference){sp_malloc(bytes), sp_malloc(bytes), sp_malloc(bytes), sp_malloc(COPIED_BYTES),
                     sp_malloc(COPIED_BYTES)};
    sp_i_exec_probe_f32.fill(SEED, EDGE * EDGE, r->x);
    sp_i_exec_probe_f32.fill(SEED + 1, EDGE * EDGE, r->weight);
    memset(r->from, 1, COPIED_BYTES);
}

double sp_i_host_reference_s(void)
{
    reference r;
    reference_make(&r);
    double seconds =
        time_work(multiply, &r, BUDGET_S).seconds + time_work(copy, &r, BUDGET_S).seconds;
    reference_fini(&r);
    return seconds;
}

// ---- several ranks at once ----

typedef struct side_by_side {
    int group;
    double *seconds; // [ranks]
} side_by_side;

static int64_t wall_ns(void)
{
    sp_runtime *cpu = sp_runtime_cpu();
    return cpu->ops->stamp_ns(cpu, cpu->ops->stamp(cpu));
}

static sp_status run_rank(sp_comm *me, void *data, sp_error *err)
{
    const side_by_side *all = data;
    reference r;
    reference_make(&r);
    multiply(&r);
    copy(&r);
    sp_status status = sp_comm_barrier(me, all->group, err);
    int64_t begin_ns = wall_ns();
    for (int i = 0; status == SP_OK && i < WALL_REPEATS; i++) {
        multiply(&r);
        copy(&r);
    }
    double took_s = 1e-9 * (double)(wall_ns() - begin_ns);
    all->seconds[sp_comm_rank(me)] = took_s / WALL_REPEATS;
    reference_fini(&r);
    return status;
}

static sp_status run_ranks(const side_by_side *all, int ranks, const int *numbers, sp_error *err)
{
    side_by_side in = *all;
    sp_comm_world *world;
    const sp_comm_options options = {.runtime = sp_runtime_cpu(), .spins = -1};
    sp_status status = sp_comm_world_new(ranks, &options, &world, err);
    if (status != SP_OK) {
        return status;
    }
    status = sp_comm_group_new(world, "reference", numbers, ranks, &in.group, err);
    if (status == SP_OK) {
        status = sp_comm_run(world, NULL, run_rank, &in, 0, err);
    }
    sp_comm_world_free(world);
    return status;
}

sp_status sp_i_host_reference_wall_s(int ranks, double *seconds, sp_error *err)
{
    const side_by_side all = {.seconds = sp_calloc((size_t)ranks, sizeof *all.seconds)};
    int *numbers = sp_calloc((size_t)ranks, sizeof *numbers);
    *seconds = 0.0;
    for (int i = 0; i < ranks; i++) {
        numbers[i] = i;
    }
    sp_status status = run_ranks(&all, ranks, numbers, err);
    for (int i = 0; status == SP_OK && i < ranks; i++) {
        *seconds = all.seconds[i] > *seconds ? all.seconds[i] : *seconds;
    }
    sp_free(all.seconds);
    sp_free(numbers);
    return status;
}

// ---- Copies ----

enum { LARGE_BYTES = 64 << 20 };

typedef struct copied {
    char *from, *to;
} copied;

static void copy_large(void *context)
{
    const copied *c = context;
    memcpy(c->to, c->from, LARGE_BYTES);
}

double sp_i_host_copy_rate(const sp_i_host_calibration *c)
{
    copied made = {sp_malloc(LARGE_BYTES), sp_malloc(LARGE_BYTES)};
    memset(made.from, 1, LARGE_BYTES);
    double seconds = time_work(copy_large, &made, 0.01 * c->limit_s).seconds;
    sp_free(made.from);
    sp_free(made.to);
    return LARGE_BYTES / seconds;
}

// ---- Products ----

enum { LEAST_TOKENS = 8, LEAST_EDGE = 16, MOST_EDGE = 512, MOST_TP = 8 };

// In a step the weights of other layers, and what they are multiplied with, come before the same
// ones are used again: repeats take one weight matrix after the other out of so many bytes, that no
// cache near the core holds them.
enum { WEIGHTS_BYTES = 16 << 20 };

typedef struct product {
    sp_i_host_calibration *c;
    sp_i_product kind;
    int64_t in, out, tokens;
    void *x, *y;
    char *weights;
    int64_t weights_bytes, next; // of all of them; where the next one begins
} product;

static void *random_matrix(const sp_i_host_calibration *c, uint64_t number, int64_t elements)
{
    void *values = sp_malloc((size_t)(elements * c->probe->real_bytes));
    c->probe->fill(c->seed + number, elements, values);
    return values;
}

static sp_status begin_product(void *context, int64_t in, int64_t out, int64_t tokens,
                               sp_error *err)
{
    product *p = context;
    int64_t real_bytes = p->c->probe->real_bytes;
    int64_t weights = in * out;
    (void)err;
    if (weights < WEIGHTS_BYTES / real_bytes) {
        weights = WEIGHTS_BYTES / real_bytes;
    }
    p->in = in;
    p->out = out;
    p->weights_bytes = weights * real_bytes;
    p->next = 0;
    p->x = random_matrix(p->c, 0, tokens * in);
    p->weights = random_matrix(p->c, 1, weights);
    p->y = random_matrix(p->c, 2, tokens * out);
    return SP_OK;
}

static void end_product(void *context)
{
    product *p = context;
    sp_free(p->x);
    sp_free(p->weights);
    sp_free(p->y);
}

static void run_product(void *context)
{
    product *p = context;
    int64_t bytes = p->in * p->out * p->c->probe->real_bytes;
    if (p->next + bytes > p->weights_bytes) {
        p->next = 0;
    }
    void *weight = p->weights + p->next;
    p->next += bytes;
    p->c->probe->product(p->kind, p->tokens, p->in, p->out, p->x, weight, p->y);
}

static sp_status time_product(void *context, sp_i_product kind, int64_t in, int64_t out,
                              int64_t tokens, double budget_s, sp_i_timing *timing, sp_error *err)
{
    product *p = context;
    (void)in;
    (void)out;
    (void)err;
    p->kind = kind;
    p->tokens = tokens;
    *timing = time_work(run_product, p, budget_s);
    return SP_OK;
}

static sp_status calibrate_products(sp_i_host_calibration *c, sp_error *err)
{
    product p = {.c = c};
    const sp_i_calibrator calibrator = {
        .calibration = c,
        .context = &p,
        .model = &c->model,
        .document = c->document,
        .measured = sp_i_host_measured,
        .products_by = "products of random matrices",
        .cubes_by = "products of random matrices, all passes",
        .most_tp = MOST_TP,
        .least_tokens = LEAST_TOKENS,
        .most_tokens = c->most_tokens,
        .least_edge = LEAST_EDGE,
        .most_edge = MOST_EDGE,
        .table_s = 0.4 * c->limit_s / 480, // 20 shapes, 3 passes, 8 sizes
        .rate_s = 0.05 * c->limit_s / 18,
        .begin_product = begin_product,
        .end_product = end_product,
        .time_product = time_product,
    };
    sp_status status = sp_i_calibrate_product_rates(&calibrator, err);
    return status == SP_OK ? sp_i_calibrate_product_tables(&calibrator, err) : status;
}

// ---- Attention ----

enum { LEAST_LENGTH = 2, LENGTHS = 10, PASSES = 2, CURVES = 3 };

typedef struct attention {
    const sp_i_host_calibration *c;
    sp_kernel_attention_shape shape;
    double budget_s;
    bool backward;
    int64_t keys, queries; // keys before the queries
    void *tensors[SP_I_HOST_PROBE_TENSORS];
} attention;

static void run_attention(void *context)
{
    const attention *a = context;
    a->c->probe->attention(a->backward, &a->shape, a->keys, a->queries, a->tensors);
}

static void run_block(void *context)
{
    const attention *a = context;
    a->c->probe->attention_block(a->backward, &a->shape, a->keys, a->queries, a->tensors);
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
        return a->c->probe->attention_workspace(&a->shape, tokens);
    default:
        return tokens * a->shape.q_stride;
    }
}

static void make_tensors(attention *a, int64_t tokens)
{
    for (int i = 0; i < SP_I_HOST_PROBE_TENSORS; i++) {
        a->tensors[i] = random_matrix(a->c, 16 + (uint64_t)i, elements(a, i, tokens));
    }
}

// A backward reads what a forward of the same slice left.
static sp_status time_attention(void *context, bool backward, int64_t queries, int64_t keys,
                                sp_i_timing *timing, sp_error *err)
{
    attention *a = context;
    (void)err;
    a->keys = keys - queries;
    a->queries = queries;
    a->backward = false;
    if (backward) {
        run_attention(a);
        a->backward = true;
    }
    *timing = time_work(run_attention, a, a->budget_s);
    return SP_OK;
}

// Maxima and sums, or lse and delta, are random numbers: those of no real queries, and as fast.
static sp_status time_block(void *context, bool backward, int64_t length, sp_i_timing *timing,
                            sp_error *err)
{
    attention *a = context;
    (void)err;
    a->keys = length;
    a->queries = length;
    a->backward = backward;
    *timing = time_work(run_block, a, a->budget_s);
    return SP_OK;
}

static sp_status calibrate_attention(sp_i_host_calibration *c, sp_error *err)
{
    const sp_model *model = &c->model;
    int64_t width = model->heads * model->head_dim;
    attention a = {.c = c,
                   .shape = {.heads = model->heads,
                             .kv_heads = model->kv_heads,
                             .head_dim = model->head_dim,
                             .q_stride = width,
                             .kv_stride = model->kv_heads * model->head_dim,
                             .out_stride = width,
                             .scale = 1.0 / sqrt((double)model->head_dim)},
                   .budget_s = 0.15 * c->limit_s / (PASSES * CURVES * LENGTHS)};
    const sp_i_calibrator calibrator = {.calibration = c,
                                        .context = &a,
                                        .model = model,
                                        .document = c->document,
                                        .measured = sp_i_host_measured,
                                        .attention_by = "attention of one sample",
                                        .least_length = LEAST_LENGTH,
                                        .longest = c->most_tokens,
                                        .least_share = 0.2,
                                        .limits_growth = true,
                                        .time_attention = time_attention,
                                        .time_attention_block = time_block};
    make_tensors(&a, 2 * c->most_tokens);
    sp_status status = sp_i_calibrate_attention(&calibrator, err);
    for (int i = 0; i < SP_I_HOST_PROBE_TENSORS; i++) {
        sp_free(a.tensors[i]);
    }
    return status;
}

// ---- The document ----

#define DEFAULT_LIMIT_S 40.0
#define SHORT_LIMIT_S 10.0
enum { MOST_TOKENS = 1024, SHORT_MOST_TOKENS = 256 };

// Shapes of a Llama of four heads: small enough that a layer takes milliseconds.
static const sp_model default_model = {.name = "llama-256",
                                       .layers = 4,
                                       .hidden = 256,
                                       .ffn = 704,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .head_dim = 64,
                                       .vocab = 1024,
                                       .activation = SP_SWIGLU,
                                       .norm = SP_RMSNORM,
                                       .positional = SP_ROPE};

static sp_status check_request(const sp_calibration_request *request, sp_error *err)
{
    if (request->precision != SP_FP32 && request->precision != SP_FP64) {
        return sp_error_set(err, SP_ERR_USAGE, "backend 'host' cannot calibrate %s",
                            sp_precision_names[request->precision]);
    }
    if (request->partitions > 1) {
        return sp_error_set(err, SP_ERR_USAGE, "backend 'host' has no partitions");
    }
    const sp_model *model = request->model;
    bool squared = model != NULL && model->activation == SP_SQUARED_RELU;
    if (model != NULL && (model->experts > 0 || model->qk_norm || squared)) {
        return sp_error_set(err, SP_ERR_CONTENT, "backend 'host' cannot execute %s",
                            model->experts > 0 ? "experts"
                            : squared          ? "squared ReLU"
                                               : "norms of queries and keys");
    }
    return SP_OK;
}

static json_t *begin_document(const sp_i_host_calibration *c)
{
    char core[SP_CLUSTER_NAME];
    snprintf(core, sizeof core, "CPU core %.16s", sp_kernels_blas_core());
    return json_pack("{s:s, s:s, s:s, s:s}", "schema", "slimpack/profile/1", "name",
                     c->precision == SP_FP64 ? "host-fp64" : "host-fp32", "gpu", core, "stack",
                     "reference");
}

static void choose_sizes(const sp_calibration_request *request, sp_i_host_calibration *c)
{
    c->limit_s = request->limit_s > 0.0 ? request->limit_s : DEFAULT_LIMIT_S;
    c->most_tokens = c->limit_s <= SHORT_LIMIT_S ? SHORT_MOST_TOKENS : MOST_TOKENS;
    while (c->model.positional == SP_LEARNED && c->most_tokens > c->model.max_positions) {
        c->most_tokens /= 2;
    }
}

// The machine's speed between the parts.

static void time_reference(sp_i_host_calibration *c)
{
    SP_ASSERT(c->references < SP_I_HOST_REFERENCES);
    c->reference_s[c->references++] = sp_i_host_reference_s();
}

static void write_reference(sp_i_host_calibration *c)
{
    double *s = c->reference_s;
    int count = c->references;
    qsort(s, (size_t)count, sizeof *s, sp_ascending_doubles);
    double middle_s = s[count / 2];
    json_t *section = json_pack("{s:f, s:f, s:s, s:s}", "us", 1e6 * middle_s, "drift",
                                (s[count - 1] - s[0]) / middle_s, "level", "measured", "source",
                                "product of 256 x 256 matrices in fp32 and copy of 2 MiB, median "
                                "over the parts of the calibration");
    sp_json_put(c->document, "reference", section);
}

typedef sp_status calibrate_part(sp_i_host_calibration *c, sp_error *err);

static calibrate_part *const parts[SP_I_HOST_REFERENCES - 1] = {
    calibrate_products, calibrate_attention, sp_i_host_calibrate_collectives,
    sp_i_host_calibrate_steps};

sp_status sp_i_host_calibrate(int device, const sp_calibration_request *request, json_t **profile,
                              sp_error *err)
{
    (void)device;
    *profile = NULL;
    sp_status status = check_request(request, err);
    if (status != SP_OK) {
        return status;
    }
    sp_i_host_calibration c = {.model = request->model != NULL ? *request->model : default_model,
                               .precision = request->precision,
                               .seed = request->seed,
                               .probe = request->precision == SP_FP64 ? &sp_i_exec_probe_f64
                                                                      : &sp_i_exec_probe_f32};
    choose_sizes(request, &c);
    status = sp_i_host_check_steps(&c, err);
    status = status == SP_OK ? sp_i_host_start(err) : status;
    if (status != SP_OK) {
        return status;
    }
    c.document = begin_document(&c);
    time_reference(&c);
    for (size_t i = 0; status == SP_OK && i < sizeof parts / sizeof parts[0]; i++) {
        status = parts[i](&c, err);
        if (status == SP_OK) {
            time_reference(&c);
        }
        if (status == SP_OK && request->part != NULL) {
            request->part(request->part_context, c.document);
        }
    }
    if (status != SP_OK) {
        json_decref(c.document);
        return status;
    }
    write_reference(&c);
    *profile = c.document;
    return SP_OK;
}
