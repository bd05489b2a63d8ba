// Products by cuBLASLt: a table of times over tokens for each (n, k) of the model's layers and
// head, and a curve of rates by the edge of a cube for all others.
#include <math.h>
#include <stdio.h>

#include "backends/cuda/calibrate/bench.h"
#include "backends/cuda/calibrate/calibration.h"
#include "backends/cuda/products/gemm.h"
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

// Matrices of one shape at the most tokens. `y` is either gradient or output, of 4 bytes an
// element.
typedef struct product {
    const sp_i_cuda_calibration *c;
    sp_i_cuda_gemm *gemm;
    sp_i_cuda_product what;
    void *memory;
    char *x, *dy, *weight, *result;
} product;

static sp_status run(void *context, cudaStream_t stream, sp_error *err)
{
    const product *p = context;
    const sp_i_cuda_operands operands = {p->what.kind == SP_I_CUDA_FORWARD ? p->x : p->dy,
                                         p->what.kind == SP_I_CUDA_WEIGHT ? p->x : p->weight,
                                         p->result};
    return sp_i_cuda_gemm_run(p->gemm, &p->what, &operands, stream, err);
}

static void product_fini(product *p)
{
    sp_i_cuda_gemm_free(p->gemm);
    if (p->memory != NULL) {
        (void)p->c->device.api->Free(p->memory);
    }
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

// sms: as sp_i_cuda_gemm_place.
static sp_status product_init(const sp_i_cuda_calibration *c, shape s, int64_t tokens, int sms,
                              product *p, sp_error *err)
{
    int64_t x = aligned(2 * tokens * s.in);
    int64_t dy = aligned(2 * tokens * s.out);
    int64_t weight = aligned(2 * s.in * s.out);
    int64_t result = aligned((int64_t)fmax(fmax((double)x, (double)dy), 2.0 * (double)weight));
    *p = (product){.c = c};
    sp_status status = SP_I_CUDA(&c->device, err, Malloc, &p->memory,
                                 (size_t)(x + dy + weight + result + SP_I_CUDA_GEMM_WORKSPACE));
    if (status != SP_OK) {
        return status;
    }
    p->x = p->memory;
    p->dy = p->x + x;
    p->weight = p->dy + dy;
    p->result = p->weight + weight;
    const sp_i_cuda_gemm_place place = {p->result + result, SP_I_CUDA_GEMM_WORKSPACE, sms};
    status = sp_i_cuda_fill_normal(&c->device, p->x, (x + dy + weight) / 2, 1.0, c->seed,
                                   c->bench.stream, err);
    if (status == SP_OK) {
        // Sums of weight gradients start from numbers, not from what memory held.
        status =
            SP_I_CUDA(&c->device, err, MemsetAsync, p->result, 0, (size_t)result, c->bench.stream);
    }
    return status == SP_OK ? sp_i_cuda_gemm_new(&c->device, c->cublas, &place, &p->gemm, err)
                           : status;
}

// One in each place.
typedef struct products {
    int count;
    product of[SP_I_CUDA_MOST_PLACES];
    void *contexts[SP_I_CUDA_MOST_PLACES];
} products;

static void products_fini(products *p)
{
    for (int i = 0; i < p->count; i++) {
        product_fini(&p->of[i]);
    }
}

// To be ended on failure as well.
static sp_status products_init(const sp_i_cuda_calibration *c, shape s, int64_t tokens, products *p,
                               sp_error *err)
{
    sp_status status = SP_OK;
    p->count = 0;
    while (status == SP_OK && p->count < c->places) {
        int i = p->count++;
        p->contexts[i] = &p->of[i];
        status = product_init(c, s, tokens, sp_i_cuda_place_sms(c, i), &p->of[i], err);
    }
    return status;
}

static void set_product(product *p, sp_i_cuda_product_kind kind, shape s, int64_t tokens)
{
    bool weight = kind == SP_I_CUDA_WEIGHT;
    p->what = (sp_i_cuda_product){kind, tokens, s.in, s.out, weight, weight};
}

static sp_status time_one(sp_i_cuda_calibration *c, products *p, sp_i_cuda_product_kind kind,
                          shape s, int64_t tokens, double budget_s, sp_i_cuda_timing *t,
                          sp_error *err)
{
    for (int i = 0; i < p->count; i++) {
        set_product(&p->of[i], kind, s, tokens);
    }
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
    products p;
    double budget_s = 0.4 * c->limit_s / (SHAPES * SP_I_CUDA_PRODUCTS * 8);
    sp_status status = products_init(c, s, c->most_tokens, &p, err);
    for (int kind = 0; kind < SP_I_CUDA_PRODUCTS; kind++) {
        bool input = kind == SP_I_CUDA_INPUT;
        table *t = table_of(tables, count, input ? s.in : s.out, input ? s.out : s.in,
                            kind == SP_I_CUDA_WEIGHT);
        int point = 0;
        for (int64_t m = LEAST_TOKENS; status == SP_OK && m <= c->most_tokens; m *= 2) {
            sp_i_cuda_timing timing;
            status = time_one(c, &p, (sp_i_cuda_product_kind)kind, s, m, budget_s, &timing, err);
            t->us[point++] += 1e6 * timing.median_s;
            t->spread = fmax(t->spread, timing.spread);
        }
        t->products++;
    }
    products_fini(&p);
    return status;
}

static bool write_table(const sp_i_cuda_calibration *c, const table *t, json_t *tables)
{
    json_t *made = sp_i_cuda_measured(c, "products by cuBLASLt", t->spread);
    json_t *points = json_array();
    int point = 0;
    bool ok = made != NULL && points != NULL;
    for (int64_t m = LEAST_TOKENS; ok && m <= c->most_tokens; m *= 2) {
        ok = json_array_append_new(
                 points, json_pack("[I, f]", (json_int_t)m, t->us[point++] / t->products)) == 0;
    }
    ok = ok && json_object_set_new(made, "n", json_integer(t->n)) == 0 &&
         json_object_set_new(made, "k", json_integer(t->k)) == 0 &&
         (!t->weight || json_object_set_new(made, "pass", json_string("weight")) == 0) &&
         json_object_set(made, "points", points) == 0 && json_array_append(tables, made) == 0;
    json_decref(points);
    json_decref(made);
    return ok;
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
    bool ok = list != NULL;
    for (int i = 0; ok && i < count; i++) {
        ok = write_table(c, &tables[i], list);
    }
    ok = ok && json_object_set(c->document, "gemm", list) == 0;
    json_decref(list);
    return ok ? SP_OK : sp_error_no_memory(err, "a profile");
}

// ---- any shape ----

static sp_status time_cube(sp_i_cuda_calibration *c, int64_t edge, json_t *points, double *spread,
                           sp_error *err)
{
    products p;
    double seconds = 0.0;
    const shape s = {edge, edge};
    sp_status status = products_init(c, s, edge, &p, err);
    for (int kind = 0; status == SP_OK && kind < SP_I_CUDA_PRODUCTS; kind++) {
        sp_i_cuda_timing t;
        status =
            time_one(c, &p, (sp_i_cuda_product_kind)kind, s, edge, 0.1 * c->limit_s / 15, &t, err);
        seconds += t.median_s;
        *spread = fmax(*spread, t.spread);
    }
    products_fini(&p);
    double flops = 2.0 * SP_I_CUDA_PRODUCTS * (double)edge * (double)edge * (double)edge;
    if (status == SP_OK && json_array_append_new(points, json_pack("[I, f]", (json_int_t)edge,
                                                                   1e-12 * flops / seconds)) != 0) {
        status = sp_error_no_memory(err, "a profile");
    }
    return status;
}

static sp_status note_cube(sp_i_cuda_calibration *c, int64_t edge, sp_error *err)
{
    products p;
    product whole = {0};
    char name[48];
    const shape s = {edge, edge};
    sp_status status = products_init(c, s, edge, &p, err);
    if (status == SP_OK) {
        status = product_init(c, s, edge, 0, &whole, err);
        set_product(&whole, SP_I_CUDA_FORWARD, s, edge);
        snprintf(name, sizeof name, "product, edge %d", (int)edge);
    }
    for (int i = 0; i < p.count; i++) {
        set_product(&p.of[i], SP_I_CUDA_FORWARD, s, edge);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_note_places(c, name, run, p.contexts, &whole, 0.005 * c->limit_s, err);
    }
    product_fini(&whole);
    products_fini(&p);
    return status;
}

static sp_status add_rates(sp_i_cuda_calibration *c, sp_error *err)
{
    double spread = 0.0;
    json_t *points = json_array();
    sp_status status = points != NULL ? SP_OK : sp_error_no_memory(err, "a profile");
    int64_t most = MOST_EDGE < c->most_tokens ? MOST_EDGE : c->most_tokens;
    for (int64_t edge = LEAST_EDGE; status == SP_OK && edge <= most; edge *= 2) {
        status = time_cube(c, edge, points, &spread, err);
    }
    if (status == SP_OK && c->partitions != NULL) {
        status = note_cube(c, most < NOTED_EDGE ? most : NOTED_EDGE, err);
    }
    if (status == SP_OK && !sp_i_cuda_add_table(c, c->document, "gemm_rate",
                                                "cubes by cuBLASLt, all passes", spread, points)) {
        status = sp_error_no_memory(err, "a profile");
    }
    json_decref(points);
    return status;
}

sp_status sp_i_cuda_calibrate_products(sp_i_cuda_calibration *c, sp_error *err)
{
    sp_status status = add_rates(c, err);
    return status == SP_OK ? add_tables(c, err) : status;
}
