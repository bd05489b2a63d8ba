// Collectives of two and more ranks, by the clocks of virtual time (backends/ranks/comm.h): each
// rank has a core to itself, and a collective lasts until its slowest member is done.
#include <math.h>
#include <string.h>

#include "backends/host/calibrate/calibration.h"
#include "backends/host/cpu_runtime.h"
#include "backends/ranks/comm.h"
#include "sim/base/alloc.h"

// Elements of the whole tensor. The cost model counts 2 bytes for each of them.
enum { LEAST_ELEMENTS = 64, GROWTH = 4, COUNTED_BYTES = 2 };
enum { MOST_RANKS = 8, GROUPS = 3, KINDS = 3, SIZES = 10 };

static const sp_collective kinds[KINDS] = {SP_ALL_REDUCE, SP_ALL_GATHER, SP_REDUCE_SCATTER};

// One collective over and over.
typedef struct trial {
    sp_collective kind;
    sp_element type;
    int group, ranks;
    int64_t elements;
    double budget_s;
    int64_t bytes; // of the whole tensor
    double seconds[SP_I_HOST_MOST_REPEATS];
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
static void note(trial *t, double seconds, double *spent_s, bool warm)
{
    if (warm) {
        t->seconds[t->count++] = fmax(seconds, 1e-9);
    }
    *spent_s += seconds * t->ranks;
    t->more = t->count < SP_I_HOST_LEAST_REPEATS ||
              (t->count < SP_I_HOST_MOST_REPEATS && *spent_s < t->budget_s);
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
            note(t, seconds, &spent_s, warm);
        }
        status = status == SP_OK ? sp_comm_barrier(me, t->group, err) : status;
        warm = true;
        more = t->more;
    }
    return status;
}

// ---- the tables ----

// Whatever wakes of other ranks took in between: a smaller tensor never takes longer.
static void level(double *us, int count)
{
    for (int i = count - 2; i >= 0; i--) {
        us[i] = fmin(us[i], us[i + 1]);
    }
}

static sp_status add_table(sp_i_host_calibration *c, sp_comm_world *world, trial *t, int64_t most,
                           json_t *tables, sp_error *err)
{
    double us[SIZES];
    double spread = 0.0;
    int count = 0;
    sp_status status = SP_OK;
    for (t->elements = LEAST_ELEMENTS; status == SP_OK && count < SIZES && t->elements <= most;
         t->elements *= GROWTH) {
        t->count = 0;
        t->bytes = t->elements * c->probe->real_bytes;
        status = sp_comm_run_ranks(world, NULL, t->ranks, NULL, repeat, t, 0, err);
        if (status == SP_OK) {
            sp_i_timing timing = sp_i_host_timing_of(t->seconds, t->count);
            spread = fmax(spread, timing.spread);
            us[count++] = 1e6 * timing.seconds;
        }
    }
    if (status != SP_OK) {
        return status;
    }
    level(us, count);
    json_t *points = json_array();
    double bytes = COUNTED_BYTES * LEAST_ELEMENTS;
    for (int i = 0; i < count; i++) {
        json_array_append_new(points, json_pack("[f, f]", bytes, us[i]));
        bytes *= GROWTH;
    }
    json_t *table = sp_i_host_measured(c, "collectives on the virtual clock", spread);
    sp_json_put(table, "kind", json_string(sp_collective_names[t->kind]));
    sp_json_put(table, "ranks", json_integer(t->ranks));
    sp_json_put(table, "points", points);
    json_array_append_new(tables, table);
    return SP_OK;
}

static sp_status add_group(sp_i_host_calibration *c, sp_comm_world *world, trial *t, int64_t most,
                           json_t *tables, sp_error *err)
{
    static const int ranks[MOST_RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    sp_status status = sp_comm_group_new(world, "calibration", ranks, t->ranks, &t->group, err);
    for (int k = 0; status == SP_OK && k < KINDS; k++) {
        t->kind = kinds[k];
        status = add_table(c, world, t, most, tables, err);
    }
    return status;
}

static sp_status add_tables(sp_i_host_calibration *c, trial *t, int64_t most, json_t *tables,
                            sp_error *err)
{
    const sp_comm_options options = {
        .runtime = sp_runtime_cpu(), .one_at_a_time = true, .clocked = true};
    sp_comm_world *world;
    sp_status status = sp_comm_world_new(MOST_RANKS, &options, &world, err);
    if (status != SP_OK) {
        return status;
    }
    for (t->ranks = 2; status == SP_OK && t->ranks <= MOST_RANKS; t->ranks *= 2) {
        status = add_group(c, world, t, most, tables, err);
    }
    sp_comm_world_free(world);
    return status;
}

sp_status sp_i_host_calibrate_collectives(sp_i_host_calibration *c, sp_error *err)
{
    // The hidden states of a pack of the largest size, or one layer's gradients.
    int64_t most = LEAST_ELEMENTS;
    while (most < c->most_tokens * c->model.hidden) {
        most *= GROWTH;
    }
    trial *t = sp_calloc(1, sizeof *t);
    json_t *tables = json_array();
    t->type = c->precision == SP_FP64 ? SP_ELEMENT_F64 : SP_ELEMENT_F32;
    t->budget_s = 0.1 * c->limit_s / (GROUPS * KINDS * SIZES);
    sp_status status = add_tables(c, t, most, tables, err);
    if (status == SP_OK) {
        json_object_set(c->document, "collective_times", tables);
    }
    sp_free(t);
    json_decref(tables);
    return status;
}
