// How a calibration times work: on a stream, with cold caches or beside busy neighbours, on random
// data, and the sections of the document that say so.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backends/cuda/calibration.h"
#include "kernels/bf16.h"
#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/base/prng.h"

// ---- Times of work on a stream ----

// The host's time for one launch, of which a repeat has up to LAUNCHES.
enum { LAUNCH_NS = 5000, LAUNCHES = 4 };

// The events of a batch, and one at which streams start together.
enum { START = 2 * SP_I_CUDA_BATCH, EVENTS };

sp_i_cuda_timing sp_i_cuda_timing_of(double *seconds, int count)
{
    SP_ASSERT(count > 0);
    qsort(seconds, (size_t)count, sizeof *seconds, sp_ascending_doubles);
    double median_s = seconds[count / 2];
    double quartiles_s = seconds[3 * count / 4] - seconds[count / 4];
    return (sp_i_cuda_timing){.median_s = median_s,
                              .spread = median_s > 0.0 ? 0.5 * quartiles_s / median_s : 0.0,
                              .least_s = seconds[0],
                              .repeats = count,
                              .pieces = 1};
}

sp_status sp_i_cuda_bench_init(const sp_i_cuda_device *device, CUstream stream,
                               int64_t flushed_bytes, sp_i_cuda_bench *bench, sp_error *err)
{
    *bench = (sp_i_cuda_bench){.device = *device, .stream = stream, .flushed_bytes = flushed_bytes};
    sp_status status = sp_i_cuda_events_init(device, EVENTS, true, &bench->events, err);
    if (status == SP_OK && flushed_bytes > 0) {
        status = sp_i_cuda_take(device, (size_t)flushed_bytes, &bench->flushed, err);
    }
    if (status != SP_OK) {
        sp_i_cuda_bench_fini(bench);
    }
    return status;
}

void sp_i_cuda_bench_fini(sp_i_cuda_bench *bench)
{
    sp_i_cuda_events_fini(&bench->events);
    if (bench->flushed != NULL) {
        sp_i_cuda_give(&bench->device, bench->flushed);
    }
    *bench = (sp_i_cuda_bench){0};
}

// How a batch is put on the streams.
typedef struct batch {
    bool loaded;
    int repeats;
    int pieces;        // in each
    double expected_s; // that a piece takes; 0: not known yet
} batch;

static sp_status queue(const sp_i_cuda_bench *b, const batch *how, int repeat, sp_i_cuda_work work,
                       void *context, sp_error *err)
{
    sp_status status = SP_OK;
    if (!how->loaded && how->pieces == 1 && b->flushed != NULL) {
        status = SP_I_CUDA(&b->device, err, MemsetD8Async, sp_i_cuda_at(b->flushed),
                           (unsigned char)repeat, (size_t)b->flushed_bytes, b->stream);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_record(&b->events, 2 * repeat, b->stream, err);
    }
    for (int i = 0; status == SP_OK && i < how->pieces; i++) {
        status = work(context, b->stream, err);
    }
    return status == SP_OK ? sp_i_cuda_record(&b->events, 2 * repeat + 1, b->stream, err) : status;
}

// Pieces of each neighbour: a quarter more than what is timed, so that none of it runs alone. Of
// other work as many as take a quarter longer than the batch is expected to; a first repeat, of
// which nothing is known, does not count.
static int neighbour_pieces(const sp_i_cuda_bench *b, const batch *how)
{
    const int timed = how->repeats * how->pieces;
    if (b->beside == NULL) {
        return timed + (timed > 4 ? timed / 4 : 1);
    }
    return 1 + (int)ceil(1.25 * timed * how->expected_s / b->beside_s);
}

// All streams wait until the host has put everything on them.
static int64_t hold_ns(const sp_i_cuda_bench *b, const batch *how)
{
    const int others = how->loaded ? b->neighbours * neighbour_pieces(b, how) : 0;
    return (int64_t)LAUNCH_NS * (LAUNCHES + 2) * (how->repeats * how->pieces + others);
}

static sp_status hold_start(const sp_i_cuda_bench *b, const batch *how, sp_error *err)
{
    const int64_t ns = hold_ns(b, how);
    SP_ASSERT(b->delay != NULL && b->neighbours <= SP_I_CUDA_MOST_NEIGHBOURS);
    SP_TRY(
        sp_i_cuda_check(&b->device, b->delay(ns, b->stream), "a delay", __FILE__, __LINE__, err));
    SP_TRY(sp_i_cuda_record(&b->events, START, b->stream, err));
    for (int i = 0; how->loaded && i < b->neighbours; i++) {
        SP_TRY(sp_i_cuda_wait(&b->events, START, b->neighbour[i], err));
    }
    return SP_OK;
}

// The host is faster than the device where there is load, or a flush before each piece.
static bool is_held(const batch *how)
{
    return how->loaded || how->pieces > 1;
}

// Everything waits for the delay, so that the neighbours' pieces may stand first.
static sp_status queue_batch(const sp_i_cuda_bench *b, const batch *how, sp_i_cuda_work work,
                             void *const *contexts, sp_error *err)
{
    sp_status status = is_held(how) ? hold_start(b, how, err) : SP_OK;
    const int pieces = how->loaded ? neighbour_pieces(b, how) : 0;
    for (int i = 0; status == SP_OK && i < pieces * b->neighbours; i++) {
        const int place = i % b->neighbours;
        status = b->beside != NULL
                     ? b->beside(b->beside_contexts[1 + place], b->neighbour[place], err)
                     : work(contexts[1 + place], b->neighbour[place], err);
    }
    for (int i = 0; status == SP_OK && i < how->repeats; i++) {
        status = queue(b, how, i, work, contexts[0], err);
    }
    return status;
}

static sp_status run_batch(const sp_i_cuda_bench *b, const batch *how, sp_i_cuda_work work,
                           void *const *contexts, double *seconds, double *total_s, sp_error *err)
{
    sp_status status = queue_batch(b, how, work, contexts, err);
    // Of short pieces the delay is most of the device's time.
    *total_s += how->pieces > 1 ? 1e-9 * (double)hold_ns(b, how) : 0.0;
    for (int i = 0; status == SP_OK && i < how->repeats; i++) {
        int64_t ns;
        status = sp_i_cuda_between(&b->events, 2 * i, 2 * i + 1, &ns, err);
        // The clock's own step keeps a time from being zero.
        seconds[i] = 1e-9 * (double)(ns > 0 ? ns : 1) / how->pieces;
        *total_s += seconds[i] * how->pieces;
    }
    for (int i = 0; how->loaded && status == SP_OK && i < b->neighbours; i++) {
        status = SP_I_CUDA(&b->device, err, StreamSynchronize, b->neighbour[i]);
    }
    return status;
}

// Short pieces stand between two events as often as take twice ten microseconds.
static int pieces_of(const sp_i_cuda_bench *b, double piece_s)
{
    const double short_s = 10e-6;
    const double wanted = b->several && piece_s < short_s ? ceil(2.0 * short_s / piece_s) : 1.0;
    return wanted < SP_I_CUDA_MOST_PIECES ? (int)wanted : SP_I_CUDA_MOST_PIECES;
}

static sp_status time_work(sp_i_cuda_bench *bench, bool loaded, sp_i_cuda_work work,
                           void *const *contexts, double budget_s, sp_i_cuda_timing *timing,
                           sp_error *err)
{
    double seconds[SP_I_CUDA_MOST_REPEATS];
    double total_s = 0.0;
    int count = 0;
    *timing = (sp_i_cuda_timing){0};
    const batch first = {.loaded = loaded, .repeats = 1, .pieces = 1};
    SP_TRY(run_batch(bench, &first, work, contexts, seconds, &total_s, err));
    sp_status status = SP_OK;
    const double repeats = budget_s / (seconds[0] * pieces_of(bench, seconds[0]));
    const batch how = {.loaded = loaded,
                       .repeats = repeats >= SP_I_CUDA_BATCH           ? SP_I_CUDA_BATCH
                                  : repeats >= SP_I_CUDA_LEAST_REPEATS ? (int)repeats
                                                                       : SP_I_CUDA_LEAST_REPEATS,
                       .pieces = pieces_of(bench, seconds[0]),
                       .expected_s = seconds[0]};
    if (how.repeats == SP_I_CUDA_BATCH) {
        status = run_batch(bench, &how, work, contexts, seconds, &total_s, err);
    }
    total_s = 0.0;
    while (status == SP_OK &&
           (count == 0 || (count + how.repeats <= SP_I_CUDA_MOST_REPEATS && total_s < budget_s))) {
        status = run_batch(bench, &how, work, contexts, &seconds[count], &total_s, err);
        count += how.repeats;
    }
    if (status == SP_OK) {
        *timing = sp_i_cuda_timing_of(seconds, count);
        timing->pieces = how.pieces;
    }
    return status;
}

sp_status sp_i_cuda_bench_time(sp_i_cuda_bench *bench, sp_i_cuda_work work, void *context,
                               double budget_s, sp_i_cuda_timing *timing, sp_error *err)
{
    return time_work(bench, false, work, &context, budget_s, timing, err);
}

sp_status sp_i_cuda_bench_time_loaded(sp_i_cuda_bench *bench, sp_i_cuda_work work,
                                      void *const *contexts, double budget_s,
                                      sp_i_cuda_timing *timing, sp_error *err)
{
    return time_work(bench, bench->neighbours > 0, work, contexts, budget_s, timing, err);
}

int64_t sp_i_cuda_aligned_bytes(int64_t bytes)
{
    enum { ALIGNMENT = 256 };
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void *sp_i_cuda_take_part(char **next, int64_t bytes)
{
    char *data = *next;
    *next += sp_i_cuda_aligned_bytes(bytes);
    return data;
}

// Box and Muller's two normal numbers of two uniform ones.
static void draw(sp_bf16 *values, int64_t count, double deviation, uint64_t seed)
{
    sp_prng prng;
    sp_prng_seed(&prng, seed);
    for (int64_t i = 0; i < count; i += 2) {
        double radius = deviation * sqrt(-2.0 * log(1.0 - sp_prng_uniform(&prng)));
        double angle = 6.283185307179586 * sp_prng_uniform(&prng);
        values[i] = sp_bf16_from_float((float)(radius * cos(angle)));
        if (i + 1 < count) {
            values[i + 1] = sp_bf16_from_float((float)(radius * sin(angle)));
        }
    }
}

sp_status sp_i_cuda_fill_normal(const sp_i_cuda_device *device, void *data, int64_t elements,
                                int64_t drawn, double deviation, uint64_t seed, CUstream stream,
                                sp_error *err)
{
    drawn = drawn < elements ? drawn : elements;
    sp_bf16 *values = sp_malloc((size_t)drawn * sizeof *values);
    draw(values, drawn, deviation, seed);
    sp_status status = sp_i_cuda_upload(device, data, values, 2 * drawn, stream, err);
    sp_free(values);
    for (int64_t done = drawn; status == SP_OK && done < elements; done *= 2) {
        const int64_t more = elements - done < done ? elements - done : done;
        status = SP_I_CUDA(device, err, MemcpyAsync, sp_i_cuda_at((char *)data + 2 * done),
                           sp_i_cuda_at(data), (size_t)(2 * more), stream);
    }
    return status == SP_OK ? SP_I_CUDA(device, err, StreamSynchronize, stream) : status;
}

// ---- Places ----

// Where work is timed: on the whole device, or in one of several partitions while the others are
// busy with such work too.

// The L2 cache is overwritten by this many times its size.
enum { FLUSH = 2 };

static sp_status split_device(sp_i_cuda_calibration *c, sp_error *err)
{
    const char *reason;
    SP_TRY(sp_i_cuda_partitions_new(&c->device, c->places, 1, &c->partitions, err));
    if (!sp_i_cuda_are_partitioned(c->partitions, &reason)) {
        return sp_error_set(err, SP_ERR_INFEASIBLE, "no %d partitions: %s", c->places, reason);
    }
    return SP_OK;
}

sp_status sp_i_cuda_calibration_begin(sp_i_cuda_calibration *c, sp_error *err)
{
    const int64_t flushed_bytes = FLUSH * c->info.l2_bytes;
    if (c->places < 1 || c->places > SP_I_CUDA_MOST_PLACES) {
        return sp_error_set(err, SP_ERR_USAGE, "expected from 1 to %d partitions, got %d",
                            SP_I_CUDA_MOST_PLACES, c->places);
    }
    if (c->places == 1) {
        sp_status status = sp_i_cuda_bench_init(&c->device, NULL, flushed_bytes, &c->bench, err);
        c->bench.delay = c->delay;
        return status;
    }
    sp_status status = split_device(c, err);
    if (status == SP_OK) {
        status = sp_i_cuda_bench_init(&c->device, NULL, flushed_bytes, &c->whole, err);
    }
    if (status == SP_OK) {
        CUstream stream = sp_i_cuda_partition_stream(c->partitions, 0, 0);
        status = sp_i_cuda_bench_init(&c->device, stream, flushed_bytes, &c->bench, err);
    }
    if (status != SP_OK) {
        sp_i_cuda_calibration_end(c);
        return status;
    }
    c->bench.delay = c->delay;
    c->bench.neighbours = c->places - 1;
    for (int i = 1; i < c->places; i++) {
        c->bench.neighbour[i - 1] = sp_i_cuda_partition_stream(c->partitions, i, 0);
    }
    return SP_OK;
}

void sp_i_cuda_calibration_end(sp_i_cuda_calibration *c)
{
    sp_i_cuda_bench_fini(&c->bench);
    sp_i_cuda_bench_fini(&c->whole);
    sp_i_cuda_partitions_free(c->partitions);
    c->partitions = NULL;
}

void sp_i_cuda_rooms_fini(const sp_i_cuda_calibration *c, sp_i_cuda_rooms *rooms)
{
    for (int i = 0; i < c->places; i++) {
        sp_i_cuda_give(&c->device, rooms->memory[i]);
    }
    *rooms = (sp_i_cuda_rooms){{0}};
}

sp_status sp_i_cuda_rooms_init(const sp_i_cuda_calibration *c, int64_t bytes, int64_t elements,
                               int64_t drawn, sp_i_cuda_rooms *rooms, sp_error *err)
{
    sp_status status = SP_OK;
    *rooms = (sp_i_cuda_rooms){{0}};
    for (int i = 0; status == SP_OK && i < c->places; i++) {
        status = sp_i_cuda_take(&c->device, (size_t)bytes, &rooms->memory[i], err);
        status = status == SP_OK ? sp_i_cuda_fill_normal(&c->device, rooms->memory[i], elements,
                                                         drawn, 1.0, c->seed, c->bench.stream, err)
                                 : status;
    }
    return status;
}

int sp_i_cuda_place_sms(const sp_i_cuda_calibration *c, int place)
{
    return c->partitions != NULL ? sp_i_cuda_partition_sms(c->partitions, place) : 0;
}

static json_t *partition_notes(const sp_i_cuda_calibration *c)
{
    if (json_object_get(c->extra, "partition") == NULL &&
        json_object_set_new(c->extra, "partition",
                            json_pack("{s:i, s:i, s:[]}", "partitions", c->places, "sms",
                                      sp_i_cuda_place_sms(c, 0), "work")) != 0) {
        return NULL;
    }
    return json_object_get(json_object_get(c->extra, "partition"), "work");
}

sp_status sp_i_cuda_note_places(sp_i_cuda_calibration *c, const char *name, sp_i_cuda_work work,
                                void *const *contexts, void *whole, double budget_s, sp_error *err)
{
    sp_i_cuda_timing on_whole;
    sp_i_cuda_timing alone;
    sp_i_cuda_timing loaded;
    if (c->partitions == NULL) {
        return SP_OK;
    }
    SP_TRY(sp_i_cuda_bench_time(&c->whole, work, whole, budget_s, &on_whole, err));
    SP_TRY(sp_i_cuda_bench_time(&c->bench, work, contexts[0], budget_s, &alone, err));
    SP_TRY(sp_i_cuda_bench_time_loaded(&c->bench, work, contexts, budget_s, &loaded, err));
    json_t *note = json_pack("{s:s, s:f, s:f, s:f, s:f}", "name", name, "whole_us",
                             1e6 * on_whole.median_s, "alone_us", 1e6 * alone.median_s, "loaded_us",
                             1e6 * loaded.median_s, "loaded_spread", loaded.spread);
    return json_array_append_new(partition_notes(c), note) == 0 ? SP_OK
                                                                : sp_i_calibration_unwritable(err);
}

// ---- Notes ----

// Parts of a calibration add these to the profile.

json_t *sp_i_cuda_measured(const void *calibration, const char *what, double spread)
{
    const sp_i_cuda_calibration *c = calibration;
    char text[230];
    char state[48] = "";
    if (c->nvml != NULL) {
        sp_i_nvml_state now = sp_i_nvml_read(c->nvml);
        snprintf(state, sizeof state, ", %d MHz, %.0f W", now.sm_mhz, now.power_w);
    }
    snprintf(text, sizeof text,
             "%s on %.40s, CUDA %d.%d%s; random data, %s, medians; quartiles within %.1f %%; model "
             "%.24s",
             what, c->info.name, c->info.driver / 1000, c->info.driver % 1000 / 10, state,
             c->places > 1 ? "busy neighbours" : "cold caches", 100.0 * spread, c->model.name);
    return json_pack("{s:s, s:s}", "level", "measured", "source", text);
}

sp_i_calibrator sp_i_cuda_calibrator(const sp_i_cuda_calibration *c, void *context)
{
    return (sp_i_calibrator){.calibration = c,
                             .context = context,
                             .model = &c->model,
                             .document = c->document,
                             .measured = sp_i_cuda_measured};
}
