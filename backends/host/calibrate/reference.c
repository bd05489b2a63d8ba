
#include <string.h>

#include "backends/comm/comm.h"
#include "backends/executor/run.h"
#include "backends/host/calibrate/calibration.h"
#include "backends/host/cpu_runtime.h"
#include "sim/base/alloc.h"

enum { EDGE = 256, COPIED_BYTES = 2 << 20, SEED = 1, WALL_REPEATS = 100 };

// Of each of the two.
#define BUDGET_S 0.01

typedef struct reference {
    float *x, *weight, *y; // [EDGE, EDGE]
    char *from, *to;
} reference;

static void multiply(void *context)
{
    const reference *r = context;
    sp_i_exec_probe_f32.product(SP_I_HOST_PRODUCT_FORWARD, EDGE, EDGE, EDGE, r->x, r->weight, r->y);
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
    double seconds = sp_i_host_time(multiply, &r, BUDGET_S).quartile_s +
                     sp_i_host_time(copy, &r, BUDGET_S).quartile_s;
    reference_fini(&r);
    return seconds;
}

// ---- several ranks at once ----

typedef struct side_by_side {
    int group;
    double *seconds; // [ranks]
} side_by_side;

static sp_status run_rank(sp_comm *me, void *data, sp_error *err)
{
    const side_by_side *all = data;
    reference r;
    reference_make(&r);
    multiply(&r);
    copy(&r);
    sp_status status = sp_comm_barrier(me, all->group, err);
    int64_t begin_ns = sp_i_exec_wall_ns();
    for (int i = 0; status == SP_OK && i < WALL_REPEATS; i++) {
        multiply(&r);
        copy(&r);
    }
    double took_s = 1e-9 * (double)(sp_i_exec_wall_ns() - begin_ns);
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
    double seconds = sp_i_host_time(copy_large, &made, 0.01 * c->limit_s).quartile_s;
    sp_free(made.from);
    sp_free(made.to);
    return LARGE_BYTES / seconds;
}
