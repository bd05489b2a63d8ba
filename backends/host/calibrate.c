// Calibration of the executor on the CPU: single operations on one core (products, attention,
// copies, collectives), then whole actions of small steps, whose remainder beyond products and
// attention is put over the bytes that the cost model counts. And a small piece of work that says
// how fast the machine is now.
#include "backends/host/calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/executor/run.h"
#include "backends/host/cpu_runtime.h"
#include "backends/host/host.h"
#include "backends/ranks/comm.h"
#include "kernels/kernels.h"
#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/profile.h"

typedef struct calibration {
    sp_model model;
    const sp_i_host_probe *probe;
    sp_precision precision;
    uint64_t seed;
    double limit_s;
    int64_t most_tokens; // of a measurement
    json_t *document;    // owned by the caller of the parts below
} calibration;

enum { LEAST_REPEATS = 5, MOST_REPEATS = 1001 };

// ---- Times ----

// A member of a document that is a table or a section: {"level": "measured", "source": text}.
static json_t *level_and_source(const void *context, const char *what, double spread)
{
    const calibration *c = context;
    char text[200];
    snprintf(text, sizeof text,
             "%s in %s on one %s core, lower quartiles; quartiles within %.1f %%; model %.40s",
             what, sp_precision_names[c->precision], sp_kernels_blas_core(), 100.0 * spread,
             c->model.name);
    return json_pack("{s:s, s:s}", "level", sp_level_names[SP_LEVEL_MEASURED], "source", text);
}

// The processor time of the calling thread.
static int64_t now_ns(void)
{
    return sp_runtime_cpu()->ops->now_ns(sp_runtime_cpu());
}

// The lower quartile of `count` samples, which are sorted: what disturbs a run can only make it
// longer.
static sp_i_timing timing_of(double *seconds, int count)
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
    int64_t begin_ns = now_ns();
    for (int i = 0; i < times; i++) {
        work(context);
    }
    int64_t took_ns = now_ns() - begin_ns;
    // The clock's own step keeps a time from being zero.
    return took_ns > 0 ? took_ns : 1;
}

static sp_i_timing time_work(void (*work)(void *), void *context, double budget_s)
{
    double seconds[MOST_REPEATS];
    int count = 0;
    work(context);
    double once_ns = (double)run_for_ns(work, context, 1);
    int times = (int)fmin(fmax(LEAST_BETWEEN_NS / once_ns, 1.0), MOST_BETWEEN);
    int64_t begin_ns = now_ns();
    while (count < LEAST_REPEATS ||
           (count < MOST_REPEATS && (double)(now_ns() - begin_ns) < budget_s * 1e9)) {
        seconds[count++] = 1e-9 * (double)run_for_ns(work, context, times) / times;
    }
    return timing_of(seconds, count);
}

// ---- Reference work ----

enum { EDGE = 256, COPIED_BYTES = 2 << 20, SEED = 1, WALL_REPEATS = 100 };

// Seconds of each of the two.
#define BUDGET_S 0.01

typedef struct reference {
    float *x, *weight, *y; // [EDGE, EDGE]
    char *from, *to;
    sp_arena arena; // holds them
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

static void reference_make(reference *r)
{
    const size_t count = (size_t)EDGE * EDGE;
    *r = (reference){0};
    r->x = sp_arena_take(&r->arena, count, sizeof *r->x);
    r->weight = sp_arena_take(&r->arena, count, sizeof *r->weight);
    r->y = sp_arena_take(&r->arena, count, sizeof *r->y);
    r->from = sp_arena_take(&r->arena, COPIED_BYTES, 1);
    r->to = sp_arena_take(&r->arena, COPIED_BYTES, 1);
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
    sp_arena_free(&r.arena);
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
    sp_arena_free(&r.arena);
    return status;
}

static sp_status run_ranks(const side_by_side *all, int ranks, const int *numbers, sp_error *err)
{
    side_by_side in = *all;
    sp_comm_world *world;
    const sp_comm_options options = {.runtime = sp_runtime_cpu()};
    SP_TRY(sp_comm_world_new(ranks, &options, &world, err));
    sp_status status = sp_comm_group_new(world, "reference", numbers, ranks, &in.group, err);
    if (status == SP_OK) {
        status = sp_comm_run(world, run_rank, &in, 0, err);
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

// Bytes per second of copies that no cache holds.
static double copy_rate(const calibration *c)
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
    calibration *c;
    sp_i_product kind;
    int64_t in, out, tokens;
    void *x, *y;
    char *weights;
    int64_t weights_bytes, next; // of all of them; where the next one begins
} product;

static void *random_matrix(const calibration *c, uint64_t number, int64_t elements)
{
    void *values = sp_malloc((size_t)(elements * c->probe->real_bytes));
    c->probe->fill(c->seed + number, elements, values);
    return values;
}

static sp_status begin_product(void *context, int64_t in, int64_t out, int64_t tokens,
                               sp_error *err SP_UNUSED)
{
    product *p = context;
    int64_t real_bytes = p->c->probe->real_bytes;
    int64_t weights = in * out;
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

static sp_status time_product(void *context, sp_i_product kind, int64_t tokens, double budget_s,
                              sp_i_timing *timing, sp_error *err SP_UNUSED)
{
    product *p = context;
    p->kind = kind;
    p->tokens = tokens;
    *timing = time_work(run_product, p, budget_s);
    return SP_OK;
}

static sp_status calibrate_products(calibration *c, sp_error *err)
{
    product p = {.c = c};
    const sp_i_calibrator calibrator = {
        .calibration = c,
        .context = &p,
        .model = &c->model,
        .document = c->document,
        .measured = level_and_source,
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
    SP_TRY(sp_i_calibrate_product_rates(&calibrator, err));
    return sp_i_calibrate_product_tables(&calibrator, err);
}

// ---- Attention ----

enum { LEAST_LENGTH = 2, LENGTHS = 10, PASSES = 2, CURVES = 3 };

typedef struct attention {
    const calibration *c;
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
                                sp_i_timing *timing, sp_error *err SP_UNUSED)
{
    attention *a = context;
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
                            sp_error *err SP_UNUSED)
{
    attention *a = context;
    a->keys = length;
    a->queries = length;
    a->backward = backward;
    *timing = time_work(run_block, a, a->budget_s);
    return SP_OK;
}

static sp_status calibrate_attention(calibration *c, sp_error *err)
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
                                        .measured = level_and_source,
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

// ---- Collectives of two and more ranks ----

// By the clocks of virtual time (backends/ranks/comm.h): each rank has a core to itself, and a
// collective lasts until its slowest member is done.

// Elements of the whole tensor. The cost model counts 2 bytes for each of them.
enum { LEAST_ELEMENTS = 64, GROWTH = 4, COUNTED_BYTES = 2 };
enum { MOST_RANKS = 8, GROUPS = 3, COLLECTIVE_KINDS = 3, COLLECTIVE_SIZES = 10 };

static const sp_collective collective_kinds[COLLECTIVE_KINDS] = {SP_ALL_REDUCE, SP_ALL_GATHER,
                                                                 SP_REDUCE_SCATTER};

// One collective over and over.
typedef struct trial {
    sp_collective kind;
    sp_element type;
    int group, ranks;
    int64_t elements;
    double budget_s;
    int64_t bytes; // of the whole tensor
    double seconds[MOST_REPEATS];
    int count;
    bool more; // set by the first rank, read by all
} trial;

static sp_status call(sp_comm *me, const trial *t, char *in, char *out, sp_error *err)
{
    static const int64_t rows[MOST_RANKS] = {1, 1, 1, 1, 1, 1, 1, 1};
    int64_t part = t->elements / t->ranks;
    switch (t->kind) {
    case SP_ALL_REDUCE:
        return sp_comm_all_reduce(me, t->group, t->type, SP_COMM_SUM, in, in, t->elements, err);
    case SP_ALL_GATHER:
        return sp_comm_all_gather(me, t->group, t->type, in, out, rows, part, err);
    case SP_REDUCE_SCATTER:
        return sp_comm_reduce_scatter(me, t->group, t->type, SP_COMM_SUM, in, out, rows, part, err);
    case SP_ALL_TO_ALL:
    case SP_COLLECTIVES:
        break;
    }
    SP_UNREACHABLE("a collective that is measured");
}

// As in a step: the input has just been written by its rank, the output is memory that the rank has
// just taken, and all ranks stand at one time when the collective begins.
static sp_status call_once(sp_comm *me, const trial *t, double *seconds, sp_error *err)
{
    char *in = sp_malloc((size_t)t->bytes);
    char *out = sp_malloc((size_t)t->bytes);
    memset(in, 0, (size_t)t->bytes);
    sp_status status = sp_comm_barrier(me, t->group, err);
    int64_t begin_ns = sp_comm_clock_read(me);
    status = status == SP_OK ? call(me, t, in, out, err) : status;
    *seconds = 1e-9 * (double)(sp_comm_clock_read(me) - begin_ns);
    sp_free(in);
    sp_free(out);
    return status;
}

// The first call warms up and does not count.
static void note_call(trial *t, double seconds, double *spent_s, bool warm)
{
    if (warm) {
        t->seconds[t->count++] = fmax(seconds, 1e-9);
    }
    *spent_s += seconds * t->ranks;
    t->more = t->count < LEAST_REPEATS || (t->count < MOST_REPEATS && *spent_s < t->budget_s);
}

static sp_status repeat(sp_comm *me, void *data, sp_error *err)
{
    trial *t = data;
    double spent_s = 0.0;
    bool warm = false;
    bool more = true;
    sp_status status = SP_OK;
    while (status == SP_OK && more) {
        double seconds = 0.0;
        status = call_once(me, t, &seconds, err);
        if (status == SP_OK && sp_comm_rank(me) == 0) {
            note_call(t, seconds, &spent_s, warm);
        }
        status = status == SP_OK ? sp_comm_barrier(me, t->group, err) : status;
        warm = true;
        more = t->more;
    }
    return status;
}

// Whatever wakes of other ranks took in between: a smaller tensor never takes longer.
static void level_out(double *us, int count)
{
    for (int i = count - 2; i >= 0; i--) {
        us[i] = fmin(us[i], us[i + 1]);
    }
}

static sp_status add_table(calibration *c, sp_comm_world *world, trial *t, int64_t most,
                           json_t *tables, sp_error *err)
{
    double us[COLLECTIVE_SIZES];
    double spread = 0.0;
    int count = 0;
    sp_status status = SP_OK;
    for (t->elements = LEAST_ELEMENTS;
         status == SP_OK && count < COLLECTIVE_SIZES && t->elements <= most;
         t->elements *= GROWTH) {
        t->count = 0;
        t->bytes = t->elements * c->probe->real_bytes;
        status = sp_comm_run_ranks(world, NULL, t->ranks, repeat, t, 0, err);
        if (status == SP_OK) {
            sp_i_timing timing = timing_of(t->seconds, t->count);
            spread = fmax(spread, timing.spread);
            us[count++] = 1e6 * timing.seconds;
        }
    }
    if (status != SP_OK) {
        return status;
    }
    level_out(us, count);
    json_t *points = json_array();
    double bytes = COUNTED_BYTES * LEAST_ELEMENTS;
    for (int i = 0; i < count; i++) {
        json_array_append_new(points, json_pack("[f, f]", bytes, us[i]));
        bytes *= GROWTH;
    }
    json_t *table = level_and_source(c, "collectives on the virtual clock", spread);
    sp_json_add(table, SP_JSON("kind", sp_collective_names[t->kind]), SP_JSON("ranks", t->ranks),
                SP_JSON("points", points));
    json_array_append_new(tables, table);
    return SP_OK;
}

static sp_status add_group(calibration *c, sp_comm_world *world, trial *t, int64_t most,
                           json_t *tables, sp_error *err)
{
    static const int ranks[MOST_RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    SP_TRY(sp_comm_group_new(world, "calibration", ranks, t->ranks, &t->group, err));
    for (int k = 0; k < COLLECTIVE_KINDS; k++) {
        t->kind = collective_kinds[k];
        SP_TRY(add_table(c, world, t, most, tables, err));
    }
    return SP_OK;
}

static sp_status add_tables(calibration *c, trial *t, int64_t most, json_t *tables, sp_error *err)
{
    const sp_comm_options options = {.runtime = sp_runtime_cpu(), .one_at_a_time = true};
    sp_comm_world *world;
    SP_TRY(sp_comm_world_new(MOST_RANKS, &options, &world, err));
    sp_status status = SP_OK;
    for (t->ranks = 2; status == SP_OK && t->ranks <= MOST_RANKS; t->ranks *= 2) {
        status = add_group(c, world, t, most, tables, err);
    }
    sp_comm_world_free(world);
    return status;
}

// "collective_times" over 2, 4 and 8 ranks.
static sp_status calibrate_collectives(calibration *c, sp_error *err)
{
    // The hidden states of a pack of the largest size, or one layer's gradients.
    int64_t most = LEAST_ELEMENTS;
    while (most < c->most_tokens * c->model.hidden) {
        most *= GROWTH;
    }
    trial *t = sp_calloc(1, sizeof *t);
    json_t *tables = json_array();
    t->type = c->precision == SP_FP64 ? SP_ELEMENT_F64 : SP_ELEMENT_F32;
    t->budget_s = 0.1 * c->limit_s / (GROUPS * COLLECTIVE_KINDS * COLLECTIVE_SIZES);
    sp_status status = add_tables(c, t, most, tables, err);
    if (status == SP_OK) {
        json_object_set(c->document, "collective_times", tables);
    }
    sp_free(t);
    json_decref(tables);
    return status;
}

// ---- Whole actions ----

// Steps of a model with one layer on each of three stages, in packs of one sample, with input and
// weight gradients as actions of their own.

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

// Refuses a model whose steps, the part that takes most, this machine has no memory for:
// parameters, gradients and two moments of all stages.
static sp_status check_steps(const calibration *c, sp_error *err)
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

static sp_status step_make(const calibration *c, const sp_profile *profile, int64_t tokens, step *s,
                           sp_error *err)
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
        sp_pack_list_begin(&s->packing.forward, 0, 1);
        sp_pack_list_add(&s->packing.forward, slice, true);
    }
    sp_plan_init(&s->plan, &layout, &s->packing);
    sp_status status = sp_schedule_generate(&spec, NULL, "calibration", &s->plan, err);
    if (status != SP_OK) {
        step_fini(s);
    }
    return status;
}

static int kind_at(sp_action_kind kind)
{
    for (int k = 0; k < KINDS; k++) {
        if (kinds[k] == kind) {
            return k;
        }
    }
    return -1;
}

static void note_step(record *r, const sp_timeline *timeline)
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
    int64_t begin_ns = now_ns();
    bool warm = false;
    while (status == SP_OK && r->steps < MOST_STEPS &&
           (r->steps < LEAST_STEPS || (double)(now_ns() - begin_ns) < budget_s * 1e9)) {
        sp_measured_step measured = {0};
        status = sp_i_exec_run_step(run, &measured, err);
        if (status == SP_OK && warm) {
            note_step(r, &measured.timeline);
        }
        warm = true;
        sp_memory_timeline_fini(&measured.memory);
        sp_timeline_fini(&measured.timeline);
    }
    return status;
}

static sp_status measure(const calibration *c, const step *s, double budget_s, step_times *times,
                         sp_error *err)
{
    const sp_run_request request = {.plan = &s->plan,
                                    .model = &s->model,
                                    .memory = &s->memory,
                                    .precision = c->precision,
                                    .seed = c->seed,
                                    .steps = 1};
    sp_i_exec_run *run = NULL;
    record *r = sp_calloc(1, sizeof *r);
    sp_status status = sp_i_exec_check(&request, "host", 0, err);
    if (status == SP_OK) {
        status = sp_i_host_run_new_cpu(&request, &run, err);
    }
    if (status == SP_OK) {
        status = run_steps(run, budget_s, r, err);
    }
    for (int v = 0; status == SP_OK && v < STAGES; v++) {
        for (int k = 0; k < KINDS; k++) {
            times->action[v][k] = timing_of(r->seconds[v][k], r->count[v][k]);
        }
    }
    if (status == SP_OK) {
        times->optimizer_s = timing_of(r->optimizer_s, r->steps).seconds;
        times->parameters = (double)run->weights[1].elements;
    }
    if (run != NULL) {
        sp_i_exec_run_free(run);
    }
    sp_free(r);
    return status;
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
    SP_TRY(sp_cluster_builtin("host", &cluster, err));
    SP_TRY(sp_cost_model_init(&cost, &s->model, &layout, &cluster, &priced, s->memory,
                              "calibration", err));
    sp_status status = sp_cost_model_build(&cost, &s->packing, &costs, err);
    for (int v = 0; status == SP_OK && v < STAGES; v++) {
        for (int k = 0; k < KINDS; k++) {
            const sp_action_cost *priced_action =
                &costs.action[kinds[k]][costs.stages[v].cost_class];
            seconds[v][k] = 1e-9 * (double)sp_action_cost_ns(priced_action);
        }
    }
    if (status == SP_OK) {
        sp_step_costs_fini(&costs);
    }
    sp_cost_model_fini(&cost);
    return status;
}

// Runs steps for about budget_s. `profile` has products and attention.
static sp_status time_steps(const calibration *c, const sp_profile *profile, double budget_s,
                            step_times *times, sp_error *err)
{
    const double bytes_per_s = 1e9;
    step s;
    SP_TRY(step_make(c, profile, times->tokens, &s, err));
    sp_status status = measure(c, &s, budget_s, times, err);
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

// ---- The fit to whole actions ----

// Products and attention leave a rest of an action: element-wise kernels at one rate over the bytes
// that the cost model counts, a fixed time of each layer, the loss, the optimizer.

enum { STEP_SIZES = 8, FIRST_TOKENS = 16, MIDDLE = 1, HEAD = 2 };

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
static void fit_layer(const calibration *c, const step_times *times, int count, step_fit *r)
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
static void fit_loss(const calibration *c, const step_times *times, int count, step_fit *r)
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

static void add_one(const calibration *c, const char *name, const char *key, double value,
                    const char *what, double spread)
{
    sp_json_put(c->document, name,
                sp_json_add(level_and_source(c, what, spread), SP_JSON(key, value)));
}

// A pack is handed to the next stage as it lies; copies between ranks remain for gradients and
// parameters, and the cost model counts them by 2 bytes an element.
static void add_links(const calibration *c, double copy_bytes_per_s)
{
    double counted = copy_bytes_per_s * 2.0 / (double)c->probe->real_bytes;
    json_t *links = level_and_source(c, "copies of 64 MiB; virtual clock", 0.0);
    sp_json_add(links, SP_JSON("nvlink_gb_per_s", 1e-9 * counted),
                SP_JSON("nvlink_latency_us", 0.0), SP_JSON("nic_efficiency", 1.0),
                SP_JSON("nic_latency_us", 0.0), SP_JSON("p2p_gb_per_s", 1e9),
                SP_JSON("p2p_latency_us", 0.0));
    sp_json_put(c->document, "links", links);
}

static void write_fit(const calibration *c, const step_fit *r)
{
    add_one(c, "memory", "gb_per_s", 1e-9 / r->s_per_byte,
            "actions less products and attention, an element counted as 2 bytes", r->spread);
    add_one(c, "kernel", "us", 0.0, "part of host.layer_us", 0.0);
    add_one(c, "host", "layer_us", 1e6 * r->layer_s, "actions of packs of 16 tokens and more",
            r->spread);
    sp_json_put(json_object_get(c->document, "host"), "overlap_power", json_real(1.0));
    add_one(c, "loss", "bytes_per_logit", r->loss_bytes_per_logit,
            "actions of the head at the rate of memory", r->spread);
    add_one(c, "optimizer", "bytes_per_parameter", r->optimizer_bytes_per_parameter,
            "optimizer steps at the rate of memory", 0.0);
    add_links(c, r->copy_bytes_per_s);
}

// A valid profile for the time being, so that the steps' products and attention can be priced.
static sp_status price_products(const calibration *c, sp_profile *profile, sp_error *err)
{
    static const step_fit provisional = {.s_per_byte = 1e-9,
                                         .loss_bytes_per_logit = 1.0,
                                         .optimizer_bytes_per_parameter = 1.0,
                                         .copy_bytes_per_s = 1e9};
    write_fit(c, &provisional);
    return sp_profile_from_json(c->document, "calibration", profile, err);
}

// Weight gradients were measured alone; their tables are to hold what they take in steps.
static void scale_weight_gradients(const calibration *c, double factor)
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

// "memory", "kernel", "host", "loss", "optimizer" and "links"; needs products and attention.
static sp_status calibrate_steps(calibration *c, sp_error *err)
{
    sp_profile profile;
    step_times times[STEP_SIZES];
    step_fit r = {0};
    int count = 0;
    SP_TRY(price_products(c, &profile, err));
    sp_status status = SP_OK;
    for (int64_t tokens = FIRST_TOKENS;
         status == SP_OK && count < STEP_SIZES && tokens <= c->most_tokens; tokens *= 2) {
        memset(&times[count], 0, sizeof times[count]);
        times[count].tokens = tokens;
        status = time_steps(c, &profile, 0.4 * c->limit_s / 7, &times[count], err);
        count++;
    }
    sp_profile_fini(&profile);
    if (status != SP_OK) {
        return status;
    }
    r.copy_bytes_per_s = copy_rate(c);
    fit_layer(c, times, count, &r);
    fit_loss(c, times, count, &r);
    fit_optimizer(times, count, &r);
    scale_weight_gradients(c, r.product_factor);
    write_fit(c, &r);
    return SP_OK;
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
    return request->model != NULL ? sp_i_exec_check_model("host", 0, request->model, 0, err)
                                  : SP_OK;
}

static json_t *begin_document(const calibration *c)
{
    char core[SP_CLUSTER_NAME];
    snprintf(core, sizeof core, "CPU core %.16s", sp_kernels_blas_core());
    return json_pack("{s:s, s:s, s:s, s:s}", "schema", "slimpack/profile/1", "name",
                     c->precision == SP_FP64 ? "host-fp64" : "host-fp32", "gpu", core, "stack",
                     "reference");
}

static void choose_sizes(const sp_calibration_request *request, calibration *c)
{
    c->limit_s = request->limit_s > 0.0 ? request->limit_s : DEFAULT_LIMIT_S;
    c->most_tokens = c->limit_s <= SHORT_LIMIT_S ? SHORT_MOST_TOKENS : MOST_TOKENS;
    while (c->model.positional == SP_LEARNED && c->most_tokens > c->model.max_positions) {
        c->most_tokens /= 2;
    }
}

typedef sp_status calibrate_part(calibration *c, sp_error *err);

static calibrate_part *const parts[] = {calibrate_products, calibrate_attention,
                                        calibrate_collectives, calibrate_steps};

static sp_status run_part(void *context, int part, sp_error *err)
{
    return parts[part](context, err);
}

static sp_status time_reference(void *context SP_UNUSED, double *seconds, sp_error *err SP_UNUSED)
{
    *seconds = sp_i_host_reference_s();
    return SP_OK;
}

sp_status sp_i_host_calibrate(int device SP_UNUSED, const sp_calibration_request *request,
                              json_t **profile, sp_error *err)
{
    *profile = NULL;
    SP_TRY(check_request(request, err));
    calibration c = {.model = request->model != NULL ? *request->model : default_model,
                     .precision = request->precision,
                     .seed = request->seed,
                     .probe = request->precision == SP_FP64 ? &sp_i_exec_probe_f64
                                                            : &sp_i_exec_probe_f32};
    choose_sizes(request, &c);
    sp_status status = check_steps(&c, err);
    SP_TRY(status == SP_OK ? sp_i_host_start(err) : status);
    c.document = begin_document(&c);
    status = sp_i_calibrate_parts(&c, sizeof parts / sizeof parts[0], run_part, time_reference,
                                  "product of 256 x 256 matrices in fp32 and copy of 2 MiB",
                                  request, c.document, err);
    if (status != SP_OK) {
        json_decref(c.document);
        return status;
    }
    *profile = c.document;
    return SP_OK;
}
