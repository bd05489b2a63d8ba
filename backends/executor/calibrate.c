#include "backends/executor/calibrate.h"

#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/model/layer.h"

// ---- Sections of the document ----

sp_status sp_i_calibration_unwritable(sp_error *err)
{
    return sp_error_set(err, SP_ERR_INTERNAL, "a measurement is no number, or a name no UTF-8");
}

static bool append_point(json_t *points, int64_t x, double y)
{
    return json_array_append_new(points, json_pack("[I, f]", (json_int_t)x, y)) == 0;
}

// Puts points into a measured table and that into `section` under `key`, or with `key` NULL behind
// the others of an array. Takes over `points`. SP_ERR_INTERNAL for what JSON cannot hold.
static sp_status put_table(const sp_i_calibrator *c, json_t *section, const char *key,
                           const char *what, double spread, json_t *points, sp_error *err)
{
    json_t *table = c->measured(c->calibration, what, spread);
    bool ok = table != NULL && json_object_set(table, "points", points) == 0 &&
              (key != NULL ? json_object_set(section, key, table)
                           : json_array_append(section, table)) == 0;
    json_decref(points);
    json_decref(table);
    return ok ? SP_OK : sp_i_calibration_unwritable(err);
}

sp_status sp_i_calibration_value(const sp_i_calibrator *c, const char *section, const char *key,
                                 double value, const char *what, double spread, sp_error *err)
{
    json_t *made = c->measured(c->calibration, what, spread);
    bool ok = made != NULL && json_object_set_new(made, key, json_real(value)) == 0 &&
              json_object_set(c->document, section, made) == 0;
    json_decref(made);
    return ok ? SP_OK : sp_i_calibration_unwritable(err);
}

// ---- Parts ----

sp_status sp_i_calibrate_parts(void *calibration, int count, sp_i_run_part *run,
                               sp_i_time_reference *reference, const char *by,
                               const sp_calibration_request *request, json_t *document,
                               sp_error *err)
{
    double seconds[SP_I_CALIBRATION_PARTS + 1];
    SP_ASSERT(count <= SP_I_CALIBRATION_PARTS);
    sp_status status = reference(calibration, &seconds[0], err);
    for (int i = 0; status == SP_OK && i < count; i++) {
        status = run(calibration, i, err);
        if (status == SP_OK) {
            status = reference(calibration, &seconds[i + 1], err);
        }
        if (status == SP_OK && request != NULL && request->part != NULL) {
            request->part(request->part_context, document);
        }
    }
    if (status != SP_OK) {
        return status;
    }
    qsort(seconds, (size_t)count + 1, sizeof *seconds, sp_ascending_doubles);
    const double middle_s = seconds[(count + 1) / 2];
    json_t *section = json_pack("{s:f, s:f, s:s, s:o}", "us", 1e6 * middle_s, "drift",
                                middle_s > 0.0 ? (seconds[count] - seconds[0]) / middle_s : 0.0,
                                "level", "measured", "source",
                                json_sprintf("%s, median over the parts of the calibration", by));
    return section != NULL && json_object_set_new(document, "reference", section) == 0
               ? SP_OK
               : sp_i_calibration_unwritable(err);
}

// ---- Products ----

enum { LAYER_PRODUCTS = 5, MOST_GROUPS = 8, SHAPES = MOST_GROUPS * LAYER_PRODUCTS, POINTS = 16 };

typedef struct shape {
    int64_t in, out;
} shape;

static void add_shape(shape *shapes, int *count, shape s)
{
    for (int i = 0; i < *count; i++) {
        if (shapes[i].in == s.in && shapes[i].out == s.out) {
            return;
        }
    }
    shapes[(*count)++] = s;
}

// Lists those of one rank, for groups that cut all of the model evenly.
static int list_shapes(const sp_i_calibrator *c, shape shapes[SHAPES])
{
    const sp_model *model = c->model;
    int count = 0;
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    for (; layout.tp <= c->most_tp; layout.tp *= 2) {
        if (layout.tp > 1 && sp_layout_check(&layout, model, "calibration", NULL) != SP_OK) {
            break;
        }
        const sp_shard shard = sp_shard_of(model, &layout);
        for (int s = 0; s < SP_LAYER_STEPS; s++) {
            sp_layer_linear l;
            if (sp_layer_is_product(&sp_layer_steps[s]) &&
                sp_layer_linear_of(model, &shard, (sp_layer_place)s, &l)) {
                add_shape(shapes, &count, (shape){l.inputs, l.outputs});
            }
        }
        add_shape(shapes, &count, (shape){model->hidden, shard.vocab});
    }
    return count;
}

// Times over tokens of all products that are priced by one n and k (sim/cost/token_time.c): a
// forward with n outputs and k inputs and an input gradient with n inputs and k outputs share
// theirs, as their mean; weight gradients have tables of their own.
typedef struct table {
    int64_t n, k;
    bool weight;
    double us[POINTS];
    int products;
    double spread;
} table;

static table *table_of(table *tables, int *count, const shape *s, sp_i_product kind)
{
    bool input = kind == SP_I_PRODUCT_INPUT;
    const table wanted = {.n = input ? s->in : s->out,
                          .k = input ? s->out : s->in,
                          .weight = kind == SP_I_PRODUCT_WEIGHT};
    for (int i = 0; i < *count; i++) {
        if (tables[i].n == wanted.n && tables[i].k == wanted.k &&
            tables[i].weight == wanted.weight) {
            return &tables[i];
        }
    }
    tables[*count] = wanted;
    return &tables[(*count)++];
}

static sp_status time_shape(const sp_i_calibrator *c, const shape *s, table *tables, int *count,
                            sp_error *err)
{
    sp_status status = c->begin_product(c->context, s->in, s->out, c->most_tokens, err);
    for (int kind = 0; status == SP_OK && kind < SP_I_PRODUCTS; kind++) {
        table *t = table_of(tables, count, s, (sp_i_product)kind);
        int point = 0;
        for (int64_t m = c->least_tokens; status == SP_OK && m <= c->most_tokens; m *= 2) {
            sp_i_timing timing = {0};
            status = c->time_product(c->context, (sp_i_product)kind, m, c->table_s, &timing, err);
            t->us[point++] += 1e6 * timing.seconds;
            t->spread = fmax(t->spread, timing.spread);
        }
        t->products++;
    }
    c->end_product(c->context);
    return status;
}

static sp_status write_table(const sp_i_calibrator *c, const table *t, json_t *list, sp_error *err)
{
    json_t *points = json_array();
    int point = 0;
    bool ok = true;
    for (int64_t m = c->least_tokens; m <= c->most_tokens; m *= 2) {
        ok = append_point(points, m, t->us[point++] / t->products) && ok;
    }
    sp_status status = put_table(c, list, NULL, c->products_by, t->spread, points, err);
    json_t *made = json_array_get(list, json_array_size(list) - 1);
    if (status == SP_OK) {
        (void)json_object_set_new(made, "n", json_integer(t->n));
        (void)json_object_set_new(made, "k", json_integer(t->k));
        if (t->weight) {
            (void)json_object_set_new(made, "pass", json_string("weight"));
        }
    }
    return status == SP_OK && !ok ? sp_i_calibration_unwritable(err) : status;
}

sp_status sp_i_calibrate_product_tables(const sp_i_calibrator *c, sp_error *err)
{
    shape shapes[SHAPES];
    table *tables = sp_calloc((size_t)(SHAPES * SP_I_PRODUCTS), sizeof *tables);
    json_t *list = json_array();
    int shape_count = list_shapes(c, shapes);
    int count = 0;
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < shape_count; i++) {
        status = time_shape(c, &shapes[i], tables, &count, err);
    }
    for (int i = 0; status == SP_OK && i < count; i++) {
        status = write_table(c, &tables[i], list, err);
    }
    if (status == SP_OK) {
        (void)json_object_set(c->document, "gemm", list);
    }
    json_decref(list);
    sp_free(tables);
    return status;
}

static sp_status time_cube(const sp_i_calibrator *c, int64_t edge, json_t *points, double *spread,
                           sp_error *err)
{
    double seconds = 0.0;
    sp_status status = c->begin_product(c->context, edge, edge, edge, err);
    for (int kind = 0; status == SP_OK && kind < SP_I_PRODUCTS; kind++) {
        sp_i_timing timing = {0};
        status = c->time_product(c->context, (sp_i_product)kind, edge, c->rate_s, &timing, err);
        seconds += timing.seconds;
        *spread = fmax(*spread, timing.spread);
    }
    c->end_product(c->context);
    double flops = 2.0 * SP_I_PRODUCTS * (double)edge * (double)edge * (double)edge;
    return status == SP_OK && !append_point(points, edge, 1e-12 * flops / seconds)
               ? sp_i_calibration_unwritable(err)
               : status;
}

sp_status sp_i_calibrate_product_rates(const sp_i_calibrator *c, sp_error *err)
{
    double spread = 0.0;
    json_t *points = json_array();
    sp_status status = SP_OK;
    for (int64_t edge = c->least_edge; status == SP_OK && edge <= c->most_edge; edge *= 2) {
        status = time_cube(c, edge, points, &spread, err);
    }
    if (status == SP_OK) {
        return put_table(c, c->document, "gemm_rate", c->cubes_by, spread, points, err);
    }
    json_decref(points);
    return status;
}

// ---- Attention ----

// FLOPs for each pair of query and key and element of the heads, as profiles count them
// (profiles/README.md).
static const double pass_flops[] = {4.0, 10.0};

typedef enum curve { CAUSAL, FULL, BLOCK, CURVES } curve;

enum { MOST_LENGTHS = 20 };

typedef struct curves {
    double rate[CURVES][MOST_LENGTHS]; // FLOP/s, by length: the least and its doubles
    double spread[CURVES];
    int count;
} curves;

static sp_status time_length(const sp_i_calibrator *c, bool backward, int64_t length, curves *found,
                             sp_error *err)
{
    const double flops = pass_flops[backward] * (double)(c->model->heads * c->model->head_dim) *
                         (double)length * (double)length;
    sp_i_timing behind = {0};
    sp_i_timing alone = {0};
    sp_i_timing block = {0};
    sp_status status = c->time_attention(c->context, backward, length, 2 * length, &behind, err);
    if (status == SP_OK) {
        status = c->time_attention(c->context, backward, length, length, &alone, err);
    }
    if (status == SP_OK && c->time_attention_block != NULL) {
        status = c->time_attention_block(c->context, backward, length, &block, err);
    }
    double full_s = fmax(behind.seconds - alone.seconds, c->least_share * behind.seconds);
    found->rate[CAUSAL][found->count] = 0.5 * flops / alone.seconds;
    found->rate[FULL][found->count] = flops / full_s;
    found->rate[BLOCK][found->count] = flops / block.seconds;
    found->spread[CAUSAL] = fmax(found->spread[CAUSAL], alone.spread);
    found->spread[FULL] = fmax(found->spread[FULL], behind.spread);
    found->spread[BLOCK] = fmax(found->spread[BLOCK], block.spread);
    found->count++;
    return status;
}

// The times of shorter lengths give way, since their calls take least.
static void limit_growth(double *rate, int count, double growth)
{
    for (int i = count - 2; i >= 0; i--) {
        rate[i] = fmax(rate[i], rate[i + 1] / growth);
    }
}

static sp_status add_curves(const sp_i_calibrator *c, bool backward, json_t *section, sp_error *err)
{
    static const char *const keys[2][CURVES] = {
        {"forward_causal", "forward_full", "forward_block"},
        {"backward_causal", "backward_full", "backward_block"}};
    curves found = {.count = 0};
    sp_status status = SP_OK;
    for (int64_t l = c->least_length; status == SP_OK && l <= c->longest; l *= 2) {
        SP_ASSERT(found.count < MOST_LENGTHS);
        status = time_length(c, backward, l, &found, err);
    }
    int curve_count = c->time_attention_block != NULL ? CURVES : BLOCK;
    for (int k = 0; status == SP_OK && k < curve_count; k++) {
        json_t *points = json_array();
        bool ok = true;
        if (c->limits_growth) {
            limit_growth(found.rate[k], found.count, k == BLOCK ? 4.0 : 2.0);
        }
        for (int i = 0; i < found.count; i++) {
            ok = append_point(points, c->least_length << i, 1e-12 * found.rate[k][i]) && ok;
        }
        status =
            put_table(c, section, keys[backward][k], c->attention_by, found.spread[k], points, err);
        status = status == SP_OK && !ok ? sp_i_calibration_unwritable(err) : status;
    }
    return status;
}

sp_status sp_i_calibrate_attention(const sp_i_calibrator *c, sp_error *err)
{
    json_t *section = json_object();
    sp_status status = add_curves(c, false, section, err);
    status = status == SP_OK ? add_curves(c, true, section, err) : status;
    if (status == SP_OK) {
        (void)json_object_set(c->document, "attention", section);
    }
    json_decref(section);
    return status;
}
