#include "backends/cuda/calibrate/collective_bench.h"

#include "backends/cuda/calibrate/bench.h"

// Ranks must put as many collectives as each other, so that no clock says how many.
enum { WARM = 4, REPEATS = 20, EVENTS = REPEATS + 1, LEAST_BYTES = 1024, GROWTH = 4 };

typedef struct trial {
    const sp_i_cuda_collective_bench *bench;
    sp_i_cuda_events events;
    void *memory;
    char *in, *out;
} trial;

static int64_t round_up(int64_t bytes, int ranks)
{
    int64_t unit = 2 * ranks;
    return (bytes + unit - 1) / unit * unit;
}

static void trial_fini(trial *t)
{
    sp_i_cuda_events_fini(&t->events);
    if (t->memory != NULL) {
        (void)t->bench->device.api->Free(t->memory);
    }
}

static sp_status trial_init(const sp_i_cuda_collective_bench *b, trial *t, sp_error *err)
{
    *t = (trial){.bench = b};
    int64_t each = (round_up(b->most_bytes, b->ranks) + 255) / 256 * 256;
    sp_status status = SP_I_CUDA(&b->device, err, Malloc, &t->memory, 2 * (size_t)each);
    if (status != SP_OK) {
        return status;
    }
    t->in = t->memory;
    t->out = t->in + each;
    status = sp_i_cuda_fill_normal(&b->device, t->in, each, 1.0, b->seed, b->stream, err);
    return status == SP_OK ? sp_i_cuda_events_init(&b->device, EVENTS, true, &t->events, err)
                           : status;
}

// One behind another, so that ranks that began late have caught up: from end to end.
static sp_status time_one(const trial *t, sp_collective kind, int ranks, int64_t bytes,
                          sp_i_cuda_timing *timing, sp_error *err)
{
    const sp_i_cuda_collective_bench *b = t->bench;
    double seconds[REPEATS];
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < WARM + REPEATS; i++) {
        status = b->put(b->context, kind, ranks, t->in, t->out, bytes, b->stream, err);
        if (status == SP_OK && i >= WARM - 1) {
            status = sp_i_cuda_record(&t->events, i - (WARM - 1), b->stream, err);
        }
    }
    if (status == SP_OK && b->synchronize != NULL) {
        status = b->synchronize(b->context, b->stream, err);
    }
    for (int i = 0; status == SP_OK && i < REPEATS; i++) {
        int64_t ns;
        status = sp_i_cuda_between(&t->events, i, i + 1, &ns, err);
        seconds[i] = 1e-9 * (double)(ns > 0 ? ns : 1);
    }
    if (status == SP_OK) {
        *timing = sp_i_cuda_timing_of(seconds, REPEATS);
    }
    return status;
}

static sp_status add_table(const trial *t, sp_collective kind, int ranks, json_t *tables,
                           sp_error *err)
{
    const sp_i_cuda_collective_bench *b = t->bench;
    json_t *points = json_array();
    sp_status status = points != NULL ? SP_OK : sp_error_no_memory(err, "a profile");
    for (int64_t size = LEAST_BYTES; status == SP_OK && size <= b->most_bytes; size *= GROWTH) {
        sp_i_cuda_timing timing;
        int64_t bytes = round_up(size, ranks);
        status = time_one(t, kind, ranks, bytes, &timing, err);
        if (status == SP_OK &&
            json_array_append_new(
                points, json_pack("[I, f]", (json_int_t)bytes, 1e6 * timing.median_s)) != 0) {
            status = sp_error_no_memory(err, "a profile");
        }
    }
    if (status == SP_OK && tables != NULL &&
        json_array_append_new(tables,
                              json_pack("{s:s, s:s, s:s, s:i, s:O}", "level", "measured", "source",
                                        b->source, "kind", sp_collective_names[kind], "ranks",
                                        ranks, "points", points)) != 0) {
        status = sp_error_no_memory(err, "a profile");
    }
    json_decref(points);
    return status;
}

static int next_group(int ranks, int all)
{
    return ranks < all && 2 * ranks > all ? all : 2 * ranks;
}

sp_status sp_i_cuda_time_collectives(const sp_i_cuda_collective_bench *b, json_t **tables,
                                     sp_error *err)
{
    trial t;
    *tables = NULL;
    if (b->ranks < 2) {
        return sp_error_set(err, SP_ERR_USAGE, "collectives need two GPUs or more, got %d",
                            b->ranks);
    }
    json_t *made = b->rank == 0 ? json_array() : NULL;
    if (b->rank == 0 && made == NULL) {
        return sp_error_no_memory(err, "a profile");
    }
    sp_status status = trial_init(b, &t, err);
    for (int kind = 0; kind < SP_COLLECTIVES; kind++) {
        for (int ranks = 2; status == SP_OK && ranks <= b->ranks;
             ranks = next_group(ranks, b->ranks)) {
            if (b->rank < ranks) {
                status = add_table(&t, (sp_collective)kind, ranks, made, err);
            }
        }
    }
    trial_fini(&t);
    if (status != SP_OK) {
        json_decref(made);
        return status;
    }
    *tables = made;
    return SP_OK;
}
