// Products by cuBLASLt: a table of times over tokens for each (n, k) of the model's layers and
// head, and a curve of rates by the edge of a cube for all others.
#include <math.h>
#include <stdio.h>

#include "backends/cuda/calibrate.h"
#include "backends/cuda/calibration.h"
#include "backends/cuda/device.h"
#include "backends/cuda/gemm.h"
#include "sim/model/layout.h"

enum {
    LEAST_TOKENS = 128,
    LEAST_EDGE = 512,
    MOST_EDGE = 8192,
    NOTED_EDGE = 4096,
    SHAPES = 5,
    POINTS = 12
};

typedef struct shape {
    int64_t in, out;
} shape;

static sp_status run(void *context, cudaStream_t stream, sp_error *err)
{
    const struct sp_i_cuda_product_in *p = context;
    const sp_i_cuda_product *what = &p->of->what;
    const sp_i_cuda_operands operands = {what->kind == SP_I_CUDA_FORWARD ? p->x : p->dy,
                                         what->kind == SP_I_CUDA_WEIGHT ? p->x : p->weight,
                                         p->result};
    return sp_i_cuda_gemm_run(p->gemm, what, &operands, stream, err);
}

// Sums of weight gradients start from numbers, not from what memory held.
static sp_status make_product(const sp_i_cuda_calibration *c, sp_i_cuda_products *p, int place,
                              const int64_t bytes[4], int sms, struct sp_i_cuda_product_in *in,
                              sp_error *err)
{
    char *next = p->rooms.memory[place];
    *in = (struct sp_i_cuda_product_in){.of = p};
    in->x = sp_i_cuda_take_part(&next, bytes[0]);
    in->dy = sp_i_cuda_take_part(&next, bytes[1]);
    in->weight = sp_i_cuda_take_part(&next, bytes[2]);
    in->result = sp_i_cuda_take_part(&next, bytes[3]);
    in->workspace = next;
    const sp_i_cuda_gemm_place at = {next, SP_I_CUDA_GEMM_WORKSPACE, sms};
    sp_status status =
        SP_I_CUDA(&c->device, err, MemsetAsync, in->result, 0, (size_t)bytes[3], c->bench.stream);
    return status == SP_OK ? sp_i_cuda_gemm_new(&c->device, c->cublas, &at, &in->gemm, err)
                           : status;
}

// The result is a gradient or output, or of 4 bytes an element that of the weight.
sp_status sp_i_cuda_products_init(const sp_i_cuda_calibration *c, int64_t in, int64_t out,
                                  int64_t tokens, int64_t drawn, sp_i_cuda_products *p,
                                  sp_error *err)
{
    const int64_t x = sp_i_cuda_aligned_bytes(2 * tokens * in);
    const int64_t dy = sp_i_cuda_aligned_bytes(2 * tokens * out);
    const int64_t weight = sp_i_cuda_aligned_bytes(2 * in * out);
    const int64_t bytes[] = {x, dy, weight,
                             (int64_t)fmax(fmax((double)x, (double)dy), 2.0 * (double)weight)};
    const int64_t elements = (x + dy + weight) / 2;
    *p = (sp_i_cuda_products){.what = {.in = in, .out = out}};
    sp_status status = sp_i_cuda_rooms_init(c, 2 * elements + bytes[3] + SP_I_CUDA_GEMM_WORKSPACE,
                                            elements, drawn > 0 ? drawn : elements, &p->rooms, err);
    for (int i = 0; status == SP_OK && i < c->places; i++) {
        p->contexts[i] = &p->in[i];
        status = make_product(c, p, i, bytes, sp_i_cuda_place_sms(c, i), &p->in[i], err);
    }
    return status == SP_OK ? SP_I_CUDA(&c->device, err, StreamSynchronize, c->bench.stream)
                           : status;
}

void sp_i_cuda_products_fini(const sp_i_cuda_calibration *c, sp_i_cuda_products *p)
{
    for (int i = 0; i < c->places; i++) {
        sp_i_cuda_gemm_free(p->in[i].gemm);
    }
    sp_i_cuda_rooms_fini(c, &p->rooms);
}

static void set_product(sp_i_cuda_products *p, sp_i_cuda_product_kind kind, int64_t tokens)
{
    p->what.kind = kind;
    p->what.tokens = tokens;
    p->what.fp32 = p->what.accumulate = kind == SP_I_CUDA_WEIGHT;
}

sp_status sp_i_cuda_products_time(sp_i_cuda_calibration *c, sp_i_cuda_products *p,
                                  sp_i_cuda_product_kind kind, int64_t tokens, double budget_s,
                                  sp_i_cuda_timing *t, sp_error *err)
{
    set_product(p, kind, tokens);
    return sp_i_cuda_calibration_time(c, run, p->contexts, budget_s, t, err);
}

// ---- the model's shapes ----

static void list_shapes(const sp_model *model, shape *shapes)
{
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    const sp_shard shard = sp_shard_of(model, &layout);
    shapes[0] = (shape){model->hidden, shard.q + 2 * shard.kv};
    shapes[1] = (shape){shard.q, model->hidden};
    shapes[2] = (shape){model->hidden, shard.fc1};
    shapes[3] = (shape){shard.ffn, model->hidden};
    shapes[4] = (shape){model->hidden, shard.vocab};
}

// Times over tokens of all products that are priced by one n and k (sim/cost/token_time.c): a
// forward with n outputs and an input gradient with n inputs share theirs, as their mean.
typedef struct table {
    int64_t n, k;
    bool weight;
    double us[POINTS];
    int products;
    double spread;
} table;

static table *table_of(table *tables, int *count, int64_t n, int64_t k, bool weight)
{
    for (int i = 0; i < *count; i++) {
        if (tables[i].n == n && tables[i].k == k && tables[i].weight == weight) {
            return &tables[i];
        }
    }
    tables[*count] = (table){.n = n, .k = k, .weight = weight};
    return &tables[(*count)++];
}

static sp_status time_shape(sp_i_cuda_calibration *c, shape s, table *tables, int *count,
                            sp_error *err)
{
    sp_i_cuda_products p;
    double budget_s = 0.4 * c->limit_s / (SHAPES * SP_I_CUDA_PRODUCTS * 8);
    sp_status status = sp_i_cuda_products_init(c, s.in, s.out, c->most_tokens, 0, &p, err);
    for (int kind = 0; kind < SP_I_CUDA_PRODUCTS; kind++) {
        bool input = kind == SP_I_CUDA_INPUT;
        table *t = table_of(tables, count, input ? s.in : s.out, input ? s.out : s.in,
                            kind == SP_I_CUDA_WEIGHT);
        int point = 0;
        for (int64_t m = LEAST_TOKENS; status == SP_OK && m <= c->most_tokens; m *= 2) {
            sp_i_cuda_timing timing;
            status = sp_i_cuda_products_time(c, &p, (sp_i_cuda_product_kind)kind, m, budget_s,
                                             &timing, err);
            t->us[point++] += 1e6 * timing.median_s;
            t->spread = fmax(t->spread, timing.spread);
        }
        t->products++;
    }
    sp_i_cuda_products_fini(c, &p);
    return status;
}

static bool write_table(const sp_i_cuda_calibration *c, const table *t, json_t *tables)
{
    json_t *made = sp_i_cuda_measured(c, "products by cuBLASLt", t->spread);
    json_t *points = json_array();
    int point = 0;
    bool ok = made != NULL;
    for (int64_t m = LEAST_TOKENS; ok && m <= c->most_tokens; m *= 2) {
        ok = json_array_append_new(
                 points, json_pack("[I, f]", (json_int_t)m, t->us[point++] / t->products)) == 0;
    }
    if (ok) {
        (void)json_object_set_new(made, "n", json_integer(t->n));
        (void)json_object_set_new(made, "k", json_integer(t->k));
        if (t->weight) {
            (void)json_object_set_new(made, "pass", json_string("weight"));
        }
        (void)json_object_set(made, "points", points);
    }
    json_decref(points);
    return json_array_append_new(tables, made) == 0 && ok;
}

static sp_status add_tables(sp_i_cuda_calibration *c, sp_error *err)
{
    shape shapes[SHAPES];
    table tables[SHAPES * SP_I_CUDA_PRODUCTS];
    int count = 0;
    sp_status status = SP_OK;
    list_shapes(&c->model, shapes);
    for (int i = 0; status == SP_OK && i < SHAPES; i++) {
        status = time_shape(c, shapes[i], tables, &count, err);
    }
    if (status != SP_OK) {
        return status;
    }
    json_t *list = json_array();
    bool ok = true;
    for (int i = 0; ok && i < count; i++) {
        ok = write_table(c, &tables[i], list);
    }
    (void)json_object_set_new(c->document, "gemm", list);
    return ok ? SP_OK : sp_i_cuda_no_profile(err);
}

// ---- any shape ----

static sp_status time_cube(sp_i_cuda_calibration *c, int64_t edge, json_t *points, double *spread,
                           sp_error *err)
{
    sp_i_cuda_products p;
    double seconds = 0.0;
    sp_status status = sp_i_cuda_products_init(c, edge, edge, edge, 0, &p, err);
    for (int kind = 0; status == SP_OK && kind < SP_I_CUDA_PRODUCTS; kind++) {
        sp_i_cuda_timing t;
        status = sp_i_cuda_products_time(c, &p, (sp_i_cuda_product_kind)kind, edge,
                                         0.1 * c->limit_s / 15, &t, err);
        seconds += t.median_s;
        *spread = fmax(*spread, t.spread);
    }
    sp_i_cuda_products_fini(c, &p);
    double flops = 2.0 * SP_I_CUDA_PRODUCTS * (double)edge * (double)edge * (double)edge;
    if (status == SP_OK && json_array_append_new(points, json_pack("[I, f]", (json_int_t)edge,
                                                                   1e-12 * flops / seconds)) != 0) {
        status = sp_i_cuda_no_profile(err);
    }
    return status;
}

// The product on the whole device is one of the same memory, of whose SMs it is not told.
static sp_status note_cube(sp_i_cuda_calibration *c, int64_t edge, sp_error *err)
{
    sp_i_cuda_products p;
    char name[48];
    sp_status status = sp_i_cuda_products_init(c, edge, edge, edge, 0, &p, err);
    struct sp_i_cuda_product_in whole = p.in[0];
    whole.gemm = NULL;
    if (status == SP_OK) {
        const sp_i_cuda_gemm_place at = {whole.result +
                                             2 * sp_i_cuda_aligned_bytes(2 * edge * edge),
                                         SP_I_CUDA_GEMM_WORKSPACE, 0};
        status = sp_i_cuda_gemm_new(&c->device, c->cublas, &at, &whole.gemm, err);
    }
    if (status == SP_OK) {
        set_product(&p, SP_I_CUDA_FORWARD, edge);
        snprintf(name, sizeof name, "product, edge %d", (int)edge);
        status = sp_i_cuda_note_places(c, name, run, p.contexts, &whole, 0.005 * c->limit_s, err);
    }
    sp_i_cuda_gemm_free(whole.gemm);
    sp_i_cuda_products_fini(c, &p);
    return status;
}

static sp_status add_rates(sp_i_cuda_calibration *c, sp_error *err)
{
    double spread = 0.0;
    json_t *points = json_array();
    sp_status status = SP_OK;
    int64_t most = MOST_EDGE < c->most_tokens ? MOST_EDGE : c->most_tokens;
    for (int64_t edge = LEAST_EDGE; status == SP_OK && edge <= most; edge *= 2) {
        status = time_cube(c, edge, points, &spread, err);
    }
    if (status == SP_OK && c->partitions != NULL) {
        status = note_cube(c, most < NOTED_EDGE ? most : NOTED_EDGE, err);
    }
    if (status == SP_OK && !sp_i_cuda_add_table(c, c->document, "gemm_rate",
                                                "cubes by cuBLASLt, all passes", spread, points)) {
        status = sp_i_cuda_no_profile(err);
    }
    json_decref(points);
    return status;
}

sp_status sp_i_cuda_calibrate_products(sp_i_cuda_calibration *c, sp_error *err)
{
    sp_status status = add_rates(c, err);
    return status == SP_OK ? add_tables(c, err) : status;
}

// ---- one product by which a run sees how fast the GPU is now ----

enum { REFERENCE_EDGE = SP_I_CUDA_REFERENCE_EDGE, REFERENCE_DRAWN = 1 << 18 };

// Device time.
#define REFERENCE_S 0.01

sp_status sp_i_cuda_reference_in(sp_i_cuda_calibration *c, double *seconds, sp_error *err)
{
    sp_i_cuda_products p;
    sp_i_cuda_timing timing = {0};
    sp_status status = sp_i_cuda_products_init(c, REFERENCE_EDGE, REFERENCE_EDGE, REFERENCE_EDGE,
                                               REFERENCE_DRAWN, &p, err);
    if (status == SP_OK) {
        status = sp_i_cuda_products_time(c, &p, SP_I_CUDA_FORWARD, REFERENCE_EDGE, REFERENCE_S,
                                         &timing, err);
    }
    sp_i_cuda_products_fini(c, &p);
    *seconds = timing.median_s;
    return status;
}

sp_status sp_i_cuda_reference(int device, int ranks, double *seconds, sp_error *err)
{
    sp_i_cuda_api api;
    sp_i_cublas_api cublas;
    sp_error own = {0};
    char reason[SP_I_CUDA_TEXT];
    *seconds = 0.0;
    sp_i_cuda_api_init(&api);
    sp_i_cuda_calibration c = {.device = {&api, device},
                               .cublas = &cublas,
                               .delay = sp_i_cuda_put_delay,
                               .seed = 1,
                               .places = ranks > 1 ? ranks : 1};
    if (c.places > SP_I_CUDA_MOST_PLACES || !sp_i_cublas_api_init(&cublas, reason, sizeof reason)) {
        return SP_OK;
    }
    sp_status status = sp_i_cuda_use(&c.device, err);
    if (status == SP_OK) {
        status = sp_i_cuda_device_info(&c.device, &c.info, err);
    }
    if (status != SP_OK) {
        return status;
    }
    status = sp_i_cuda_calibration_begin(&c, &own);
    if (status == SP_ERR_INFEASIBLE) {
        return SP_OK;
    }
    if (status == SP_OK) {
        status = sp_i_cuda_reference_in(&c, seconds, &own);
        sp_i_cuda_calibration_end(&c);
    }
    return status == SP_OK ? SP_OK : sp_error_set(err, status, "%s", own.message[0]);
}
