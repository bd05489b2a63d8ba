// Products: a table of times over tokens for each (n, k) of the model's layers and head, and a
// curve of rates by the edge of a cube for all others.
#include <math.h>

#include "backends/host/calibrate/calibration.h"
#include "sim/base/alloc.h"
#include "sim/model/layout.h"

enum { LEAST_TOKENS = 8, LEAST_EDGE = 16, MOST_EDGE = 512, POINTS = 16 };
// Products of one rank, for tensor-parallel groups of 1, 2, 4 and 8.
enum { PRODUCTS = 5, MOST_TP = 8, SHAPES = 4 * PRODUCTS };

typedef struct shape {
    int64_t in, out;
} shape;

// In a step the weights of other layers, and what they are multiplied with, come before the same
// ones are used again: repeats take one weight matrix after the other out of so many bytes, that no
// cache near the core holds them.
enum { WEIGHTS_BYTES = 16 << 20 };

typedef struct product {
    const sp_i_host_probe *probe;
    sp_i_host_product kind;
    int64_t tokens;
    shape shape;
    void *x, *y;
    char *weights;
    int64_t weights_bytes, next; // of all of them; where the next one begins
} product;

static void run(void *context)
{
    product *p = context;
    int64_t bytes = p->shape.in * p->shape.out * p->probe->real_bytes;
    if (p->next + bytes > p->weights_bytes) {
        p->next = 0;
    }
    void *weight = p->weights + p->next;
    p->next += bytes;
    p->probe->product(p->kind, p->tokens, p->shape.in, p->shape.out, p->x, weight, p->y);
}

static void free_matrices(product *p)
{
    sp_free(p->x);
    sp_free(p->weights);
    sp_free(p->y);
}

static void *random_matrix(const sp_i_host_calibration *c, uint64_t number, int64_t elements)
{
    void *values = sp_malloc((size_t)(elements * c->probe->real_bytes));
    c->probe->fill(c->seed + number, elements, values);
    return values;
}

// For products of up to `tokens` tokens and edges up to those of `most`.
static void make_matrices(const sp_i_host_calibration *c, shape most, int64_t tokens, product *p)
{
    int64_t real_bytes = c->probe->real_bytes;
    int64_t weights = most.in * most.out;
    if (weights < WEIGHTS_BYTES / real_bytes) {
        weights = WEIGHTS_BYTES / real_bytes;
    }
    *p = (product){.probe = c->probe, .shape = most, .weights_bytes = weights * real_bytes};
    p->x = random_matrix(c, 0, tokens * most.in);
    p->weights = random_matrix(c, 1, weights);
    p->y = random_matrix(c, 2, tokens * most.out);
}

static void append_point(json_t *points, double x, double y)
{
    json_array_append_new(points, json_pack("[f, f]", x, y));
}

// ---- the model's shapes ----

static bool is_listed_shape(const shape *shapes, int count, shape s)
{
    for (int i = 0; i < count; i++) {
        if (shapes[i].in == s.in && shapes[i].out == s.out) {
            return true;
        }
    }
    return false;
}

// Groups that cut all of the model evenly.
static int list_shapes(const sp_model *model, shape *shapes)
{
    int count = 0;
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    for (; layout.tp <= MOST_TP; layout.tp *= 2) {
        if (sp_layout_check(&layout, model, "calibration", NULL) != SP_OK) {
            break;
        }
        const sp_shard shard = sp_shard_of(model, &layout);
        const shape all[PRODUCTS] = {{model->hidden, shard.q + 2 * shard.kv},
                                     {shard.q, model->hidden},
                                     {model->hidden, shard.fc1},
                                     {shard.ffn, model->hidden},
                                     {model->hidden, shard.vocab}};
        for (int p = 0; p < PRODUCTS; p++) {
            if (!is_listed_shape(shapes, count, all[p])) {
                shapes[count++] = all[p];
            }
        }
    }
    return count;
}

// Forward and weight gradient are priced with n outputs and k inputs, the input gradient with n
// inputs and k outputs (sim/cost/token_time.c). Weight gradients have tables of their own; where a
// forward and an input gradient share one its time is their mean.
static bool serves(const shape *s, sp_i_host_product kind, bool weight, int64_t n, int64_t k)
{
    if (weight != (kind == SP_I_HOST_PRODUCT_WEIGHT)) {
        return false;
    }
    return kind == SP_I_HOST_PRODUCT_INPUT ? s->in == n && s->out == k : s->out == n && s->in == k;
}

// Adds the times of all kinds of one shape that the table (n, k) serves.
static void add_times(const sp_i_host_calibration *c, product *p, bool weight, int64_t n, int64_t k,
                      double *sum_us, int *kinds, double *spread)
{
    double point_s = 0.4 * c->limit_s / (SHAPES * SP_I_HOST_PRODUCTS * 8);
    for (int kind = 0; kind < SP_I_HOST_PRODUCTS; kind++) {
        if (!serves(&p->shape, (sp_i_host_product)kind, weight, n, k)) {
            continue;
        }
        p->kind = (sp_i_host_product)kind;
        int point = 0;
        for (p->tokens = LEAST_TOKENS; p->tokens <= c->most_tokens; p->tokens *= 2) {
            sp_i_host_timing t = sp_i_host_time(run, p, point_s);
            sum_us[point++] += 1e6 * t.quartile_s;
            *spread = fmax(*spread, t.spread);
        }
        ++*kinds;
    }
}

static void add_table(sp_i_host_calibration *c, const shape *shapes, int count, product *p,
                      bool weight, int64_t n, int64_t k, json_t *tables)
{
    double sum_us[POINTS] = {0};
    double spread = 0.0;
    int kinds = 0;
    for (int i = 0; i < count; i++) {
        p->shape = shapes[i];
        add_times(c, p, weight, n, k, sum_us, &kinds, &spread);
    }
    json_t *table = sp_i_host_measured(c, "products of random matrices", spread);
    json_t *points = json_array();
    int point = 0;
    for (int64_t m = LEAST_TOKENS; m <= c->most_tokens; m *= 2) {
        append_point(points, (double)m, sum_us[point++] / kinds);
    }
    sp_json_put(table, "n", json_integer(n));
    sp_json_put(table, "k", json_integer(k));
    if (weight) {
        sp_json_put(table, "pass", json_string("weight"));
    }
    sp_json_put(table, "points", points);
    json_array_append_new(tables, table);
}

static bool is_listed(const json_t *tables, bool weight, int64_t n, int64_t k)
{
    size_t i;
    json_t *table;
    json_array_foreach (tables, i, table) {
        if ((json_object_get(table, "pass") != NULL) == weight &&
            json_integer_value(json_object_get(table, "n")) == n &&
            json_integer_value(json_object_get(table, "k")) == k) {
            return true;
        }
    }
    return false;
}

static shape largest(const shape *shapes, int count)
{
    shape most = {0, 0};
    for (int i = 0; i < count; i++) {
        most.in = shapes[i].in > most.in ? shapes[i].in : most.in;
        most.out = shapes[i].out > most.out ? shapes[i].out : most.out;
    }
    return most;
}

static void add_tables(sp_i_host_calibration *c)
{
    shape shapes[SHAPES];
    product p;
    int count = list_shapes(&c->model, shapes);
    json_t *tables = json_array();
    make_matrices(c, largest(shapes, count), c->most_tokens, &p);
    for (int i = 0; i < SP_I_HOST_PRODUCTS * count; i++) {
        const shape *s = &shapes[i / SP_I_HOST_PRODUCTS];
        sp_i_host_product kind = (sp_i_host_product)(i % SP_I_HOST_PRODUCTS);
        bool weight = kind == SP_I_HOST_PRODUCT_WEIGHT;
        int64_t n = kind == SP_I_HOST_PRODUCT_INPUT ? s->in : s->out;
        int64_t k = kind == SP_I_HOST_PRODUCT_INPUT ? s->out : s->in;
        if (!is_listed(tables, weight, n, k)) {
            add_table(c, shapes, count, &p, weight, n, k, tables);
        }
    }
    free_matrices(&p);
    sp_json_put(c->document, "gemm", tables);
}

// ---- any shape ----

static void add_rates(sp_i_host_calibration *c)
{
    product p;
    make_matrices(c, (shape){MOST_EDGE, MOST_EDGE}, MOST_EDGE, &p);
    double spread = 0.0;
    json_t *points = json_array();
    for (int64_t edge = LEAST_EDGE; edge <= MOST_EDGE; edge *= 2) {
        double seconds = 0.0;
        p.tokens = p.shape.in = p.shape.out = edge;
        for (int kind = 0; kind < SP_I_HOST_PRODUCTS; kind++) {
            p.kind = (sp_i_host_product)kind;
            sp_i_host_timing t = sp_i_host_time(run, &p, 0.05 * c->limit_s / 18);
            seconds += t.quartile_s;
            spread = fmax(spread, t.spread);
        }
        double flops = 2.0 * SP_I_HOST_PRODUCTS * (double)(edge * edge * edge);
        append_point(points, (double)edge, 1e-12 * flops / seconds);
    }
    free_matrices(&p);
    json_t *table = sp_i_host_measured(c, "products of random matrices, all passes", spread);
    sp_json_put(table, "points", points);
    sp_json_put(c->document, "gemm_rate", table);
}

sp_status sp_i_host_calibrate_products(sp_i_host_calibration *c, sp_error *err)
{
    (void)err;
    add_rates(c);
    add_tables(c);
    return SP_OK;
}
