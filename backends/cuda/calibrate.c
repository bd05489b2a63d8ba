#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/calibrate.h"
#include "backends/cuda/calibration.h"
#include "backends/cuda/device.h"
#include "kernels/bf16.h"
#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/base/prng.h"
#include "sim/cost/profile.h"

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
                              .repeats = count};
}

sp_status sp_i_cuda_bench_init(const sp_i_cuda_device *device, cudaStream_t stream,
                               int64_t flushed_bytes, sp_i_cuda_bench *bench, sp_error *err)
{
    *bench = (sp_i_cuda_bench){.device = *device, .stream = stream, .flushed_bytes = flushed_bytes};
    sp_status status = sp_i_cuda_events_init(device, EVENTS, true, &bench->events, err);
    if (status == SP_OK && flushed_bytes > 0) {
        status = SP_I_CUDA(device, err, Malloc, &bench->flushed, (size_t)flushed_bytes);
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
        (void)bench->device.api->Free(bench->flushed);
    }
    *bench = (sp_i_cuda_bench){0};
}

static sp_status queue(const sp_i_cuda_bench *b, int repeat, bool flush, sp_i_cuda_work work,
                       void *context, sp_error *err)
{
    sp_status status = SP_OK;
    if (flush && b->flushed != NULL) {
        status = SP_I_CUDA(&b->device, err, MemsetAsync, b->flushed, repeat,
                           (size_t)b->flushed_bytes, b->stream);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_record(&b->events, 2 * repeat, b->stream, err);
    }
    if (status == SP_OK) {
        status = work(context, b->stream, err);
    }
    return status == SP_OK ? sp_i_cuda_record(&b->events, 2 * repeat + 1, b->stream, err) : status;
}

// Repeats of the neighbours beyond those that are timed, so that none of these runs alone.
static int more_repeats(int repeats)
{
    return repeats > 4 ? repeats / 4 : 1;
}

// All streams wait until the host has put everything on them.
static sp_status hold_start(const sp_i_cuda_bench *b, int repeats, sp_error *err)
{
    const int64_t ns = (int64_t)LAUNCH_NS * (LAUNCHES + 2) * (repeats + more_repeats(repeats)) *
                       (b->neighbours + 1);
    SP_ASSERT(b->delay != NULL && b->neighbours <= SP_I_CUDA_MOST_NEIGHBOURS);
    sp_status status =
        sp_i_cuda_check(&b->device, b->delay(ns, b->stream), "a delay", __FILE__, __LINE__, err);
    if (status == SP_OK) {
        status = sp_i_cuda_record(&b->events, START, b->stream, err);
    }
    for (int i = 0; status == SP_OK && i < b->neighbours; i++) {
        status = sp_i_cuda_wait(&b->events, START, b->neighbour[i], err);
    }
    return status;
}

static sp_status queue_neighbours(const sp_i_cuda_bench *b, sp_i_cuda_work work,
                                  void *const *contexts, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < b->neighbours; i++) {
        status = work(contexts[1 + i], b->neighbour[i], err);
    }
    return status;
}

static sp_status queue_batch(const sp_i_cuda_bench *b, bool loaded, int repeats,
                             sp_i_cuda_work work, void *const *contexts, sp_error *err)
{
    sp_status status = loaded ? hold_start(b, repeats, err) : SP_OK;
    for (int i = 0; status == SP_OK && i < repeats; i++) {
        status = loaded ? queue_neighbours(b, work, contexts, err) : SP_OK;
        if (status == SP_OK) {
            status = queue(b, i, !loaded, work, contexts[0], err);
        }
    }
    for (int i = 0; loaded && status == SP_OK && i < more_repeats(repeats); i++) {
        status = queue_neighbours(b, work, contexts, err);
    }
    return status;
}

static sp_status run_batch(const sp_i_cuda_bench *b, bool loaded, int repeats, sp_i_cuda_work work,
                           void *const *contexts, double *seconds, double *total_s, sp_error *err)
{
    sp_status status = queue_batch(b, loaded, repeats, work, contexts, err);
    for (int i = 0; status == SP_OK && i < repeats; i++) {
        int64_t ns;
        status = sp_i_cuda_between(&b->events, 2 * i, 2 * i + 1, &ns, err);
        // The clock's own step keeps a time from being zero.
        seconds[i] = 1e-9 * (double)(ns > 0 ? ns : 1);
        *total_s += seconds[i];
    }
    for (int i = 0; loaded && status == SP_OK && i < b->neighbours; i++) {
        status = SP_I_CUDA(&b->device, err, StreamSynchronize, b->neighbour[i]);
    }
    return status;
}

static sp_status time_work(sp_i_cuda_bench *bench, bool loaded, sp_i_cuda_work work,
                           void *const *contexts, double budget_s, sp_i_cuda_timing *timing,
                           sp_error *err)
{
    double seconds[SP_I_CUDA_MOST_REPEATS];
    double total_s = 0.0;
    int count = 0;
    *timing = (sp_i_cuda_timing){0};
    sp_status status = run_batch(bench, loaded, 1, work, contexts, seconds, &total_s, err);
    const double pieces = status == SP_OK ? budget_s / seconds[0] : 0.0;
    const int batch = pieces >= SP_I_CUDA_BATCH           ? SP_I_CUDA_BATCH
                      : pieces >= SP_I_CUDA_LEAST_REPEATS ? (int)pieces
                                                          : SP_I_CUDA_LEAST_REPEATS;
    if (status == SP_OK && batch == SP_I_CUDA_BATCH) {
        status = run_batch(bench, loaded, batch, work, contexts, seconds, &total_s, err);
    }
    total_s = 0.0;
    while (status == SP_OK &&
           (count == 0 || (count + batch <= SP_I_CUDA_MOST_REPEATS && total_s < budget_s))) {
        status = run_batch(bench, loaded, batch, work, contexts, &seconds[count], &total_s, err);
        count += batch;
    }
    if (status == SP_OK) {
        *timing = sp_i_cuda_timing_of(seconds, count);
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

enum { DRAWN = 4 << 20 };

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
                                double deviation, uint64_t seed, cudaStream_t stream, sp_error *err)
{
    int64_t drawn = elements < DRAWN ? elements : DRAWN;
    sp_bf16 *values = sp_malloc((size_t)drawn * sizeof *values);
    draw(values, drawn, deviation, seed);
    sp_status status = sp_i_cuda_upload(device, data, values, 2 * drawn, stream, err);
    sp_free(values);
    for (int64_t done = drawn; status == SP_OK && done < elements; done += drawn) {
        int64_t part = elements - done < drawn ? elements - done : drawn;
        status = SP_I_CUDA(device, err, MemcpyAsync, (char *)data + 2 * done, data,
                           (size_t)(2 * part), cudaMemcpyDeviceToDevice, stream);
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
    sp_status status = sp_i_cuda_partitions_new(&c->device, c->places, 1, &c->partitions, err);
    if (status == SP_OK && !sp_i_cuda_are_partitioned(c->partitions, &reason)) {
        status = sp_error_set(err, SP_ERR_INFEASIBLE, "no %d partitions: %s", c->places, reason);
    }
    return status;
}

sp_status sp_i_cuda_calibration_begin(sp_i_cuda_calibration *c, sp_error *err)
{
    const int64_t flushed_bytes = FLUSH * c->info.l2_bytes;
    if (c->places < 1 || c->places > SP_I_CUDA_MOST_PLACES) {
        return sp_error_set(err, SP_ERR_USAGE, "expected from 1 to %d partitions, got %d",
                            SP_I_CUDA_MOST_PLACES, c->places);
    }
    if (c->places == 1) {
        return sp_i_cuda_bench_init(&c->device, NULL, flushed_bytes, &c->bench, err);
    }
    sp_status status = split_device(c, err);
    if (status == SP_OK) {
        status = sp_i_cuda_bench_init(&c->device, NULL, flushed_bytes, &c->whole, err);
    }
    if (status == SP_OK) {
        cudaStream_t stream = sp_i_cuda_partition_stream(c->partitions, 0, 0);
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
        (void)c->device.api->Free(rooms->memory[i]);
    }
    *rooms = (sp_i_cuda_rooms){{0}};
}

static sp_status draw_room(const sp_i_cuda_calibration *c, char *data, int64_t elements,
                           int64_t drawn, sp_error *err)
{
    cudaStream_t stream = c->bench.stream;
    drawn = drawn < elements ? drawn : elements;
    sp_status status = sp_i_cuda_fill_normal(&c->device, data, drawn, 1.0, c->seed, stream, err);
    for (int64_t done = drawn; status == SP_OK && done < elements; done *= 2) {
        const int64_t more = elements - done < done ? elements - done : done;
        status = SP_I_CUDA(&c->device, err, MemcpyAsync, data + 2 * done, data, (size_t)(2 * more),
                           cudaMemcpyDeviceToDevice, stream);
    }
    return status;
}

// Other streams read what this one has filled.
sp_status sp_i_cuda_rooms_init(const sp_i_cuda_calibration *c, int64_t bytes, int64_t elements,
                               int64_t drawn, sp_i_cuda_rooms *rooms, sp_error *err)
{
    sp_status status = SP_OK;
    *rooms = (sp_i_cuda_rooms){{0}};
    for (int i = 0; status == SP_OK && i < c->places; i++) {
        status = SP_I_CUDA(&c->device, err, Malloc, &rooms->memory[i], (size_t)bytes);
        status = status == SP_OK ? draw_room(c, rooms->memory[i], elements, drawn, err) : status;
    }
    return status == SP_OK ? SP_I_CUDA(&c->device, err, StreamSynchronize, c->bench.stream)
                           : status;
}

int sp_i_cuda_place_sms(const sp_i_cuda_calibration *c, int place)
{
    return c->partitions != NULL ? sp_i_cuda_partition_sms(c->partitions, place) : 0;
}

sp_status sp_i_cuda_calibration_time(sp_i_cuda_calibration *c, sp_i_cuda_work work,
                                     void *const *contexts, double budget_s, sp_i_cuda_timing *t,
                                     sp_error *err)
{
    return sp_i_cuda_bench_time_loaded(&c->bench, work, contexts, budget_s, t, err);
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
    sp_status status = sp_i_cuda_bench_time(&c->whole, work, whole, budget_s, &on_whole, err);
    if (status == SP_OK) {
        status = sp_i_cuda_bench_time(&c->bench, work, contexts[0], budget_s, &alone, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_calibration_time(c, work, contexts, budget_s, &loaded, err);
    }
    if (status != SP_OK) {
        return status;
    }
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

// ---- Copies ----

// Copies inside the device, and what one GPU cannot say.

enum { COPIED_BYTES = 512 << 20, SMALL_BYTES = 256 };

typedef struct copy {
    const sp_i_cuda_calibration *c;
    char *from, *to;
} copy;

static sp_status copy_bytes(const copy *m, size_t bytes, cudaStream_t stream, sp_error *err)
{
    return SP_I_CUDA(&m->c->device, err, MemcpyAsync, m->to, m->from, bytes,
                     cudaMemcpyDeviceToDevice, stream);
}

static sp_status run_copy(void *context, cudaStream_t stream, sp_error *err)
{
    return copy_bytes(context, COPIED_BYTES, stream, err);
}

static sp_status run_small(void *context, cudaStream_t stream, sp_error *err)
{
    return copy_bytes(context, SMALL_BYTES, stream, err);
}

static sp_status run_nothing(void *context, cudaStream_t stream, sp_error *err)
{
    (void)context;
    (void)stream;
    (void)err;
    return SP_OK;
}

static sp_status measure_copy(sp_i_cuda_calibration *c, void *const *contexts, sp_error *err)
{
    sp_i_cuda_timing copied;
    sp_i_cuda_timing small;
    sp_i_cuda_timing empty;
    double budget_s = 0.02 * c->limit_s;
    sp_status status = sp_i_cuda_calibration_time(c, run_copy, contexts, budget_s, &copied, err);
    if (status == SP_OK) {
        status = sp_i_cuda_calibration_time(c, run_small, contexts, 0.1 * budget_s, &small, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_bench_time(&c->bench, run_nothing, NULL, 0.1 * budget_s, &empty, err);
    }
    if (status == SP_OK) {
        c->copied_bytes_per_s = 2.0 * COPIED_BYTES / copied.median_s;
        c->empty_s = empty.median_s;
        c->small_copy_s = small.median_s > empty.median_s ? small.median_s - empty.median_s : 0.0;
        status = sp_i_cuda_note_places(c, "copy of 512 MiB", run_copy, contexts, contexts[0],
                                       budget_s, err);
    }
    if (status == SP_OK && json_object_set_new(c->extra, "copy_gb_per_s",
                                               json_real(1e-9 * c->copied_bytes_per_s)) != 0) {
        status = sp_i_calibration_unwritable(err);
    }
    return status;
}

sp_status sp_i_cuda_calibrate_copies(sp_i_cuda_calibration *c, sp_error *err)
{
    copy copies[SP_I_CUDA_MOST_PLACES];
    void *contexts[SP_I_CUDA_MOST_PLACES];
    sp_i_cuda_rooms rooms;
    sp_status status = sp_i_cuda_rooms_init(c, 2 * (int64_t)COPIED_BYTES, COPIED_BYTES / 2,
                                            COPIED_BYTES / 2, &rooms, err);
    for (int i = 0; i < c->places; i++) {
        char *from = rooms.memory[i];
        copies[i] = (copy){.c = c, .from = from, .to = from + COPIED_BYTES};
        contexts[i] = &copies[i];
    }
    status = status == SP_OK ? measure_copy(c, contexts, err) : status;
    sp_i_cuda_rooms_fini(c, &rooms);
    return status;
}

// ---- what one GPU cannot say ----

static json_t *assumed_links(const sp_i_cuda_calibration *c)
{
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f}", "level", "assumed", "source",
                     "one GPU and no published figures: half the rate of copies inside it",
                     "nvlink_gb_per_s", 0.5e-9 * c->copied_bytes_per_s, "nvlink_latency_us", 5.0,
                     "nic_efficiency", 0.9, "nic_latency_us", 20.0);
}

// Between partitions: copies, read and written at once. There is no other node.
static json_t *links_of_partitions(const sp_i_cuda_calibration *c)
{
    json_t *links = sp_i_cuda_measured(c, "copies of a partition", 0.0);
    json_t *values = json_pack(
        "{s:f, s:f, s:f, s:f}", "nvlink_gb_per_s", 0.5e-9 * c->copied_bytes_per_s,
        "nvlink_latency_us", 1e6 * c->small_copy_s, "nic_efficiency", 0.9, "nic_latency_us", 20.0);
    if (links != NULL && (values == NULL || json_object_update(links, values) != 0)) {
        json_decref(links);
        links = NULL;
    }
    json_decref(values);
    return links;
}

sp_status sp_i_cuda_calibrate_links(sp_i_cuda_calibration *c, sp_error *err)
{
    bool ok;
    if (c->partitions != NULL) {
        ok = json_object_set_new(c->document, "links", links_of_partitions(c)) == 0;
        return ok ? SP_OK : sp_i_calibration_unwritable(err);
    }
    json_t *links = c->base != NULL ? json_object_get(c->base, "links") : NULL;
    json_t *collectives = c->base != NULL ? json_object_get(c->base, "collectives") : NULL;
    ok = links != NULL ? json_object_set(c->document, "links", links) == 0
                       : json_object_set_new(c->document, "links", assumed_links(c)) == 0;
    ok = ok &&
         (collectives == NULL || json_object_set(c->document, "collectives", collectives) == 0);
    return ok ? SP_OK : sp_i_calibration_unwritable(err);
}

// ---- The document ----

void sp_i_cuda_profile_name(const char *gpu, int places, char *name, size_t name_bytes)
{
    size_t used = 0;
    if (strncmp(gpu, "NVIDIA ", 7) == 0) {
        gpu += 7;
    }
    while (used + 1 < name_bytes && isalnum((unsigned char)gpu[used])) {
        name[used] = (char)tolower((unsigned char)gpu[used]);
        used++;
    }
    name[used] = '\0';
    if (used > 0 && places > 1) {
        snprintf(name + used, name_bytes - used, "-1of%d", places);
    }
}

static json_t *conditions(const sp_i_cuda_calibration *c)
{
    if (c->nvml == NULL) {
        return json_null();
    }
    char driver[80];
    sp_i_nvml_state s = sp_i_nvml_read(c->nvml);
    sp_i_nvml_driver(c->nvml, driver, sizeof driver);
    return json_pack("{s:s, s:i, s:i, s:f, s:f, s:i, s:I}", "driver", driver, "sm_mhz", s.sm_mhz,
                     "memory_mhz", s.memory_mhz, "power_w", s.power_w, "power_limit_w",
                     s.power_limit_w, "temperature_c", s.temperature_c, "throttle",
                     (json_int_t)s.throttle);
}

// A known profile of the whole GPU stands until it is measured, so that the document
// is a profile after every part.
static bool add_known(const sp_i_cuda_calibration *c)
{
    static const char *const sections[] = {"memory",    "kernel",    "loss",
                                           "optimizer", "gemm_rate", "gemm",
                                           "attention", "links",     "collectives"};
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof sections / sizeof *sections; i++) {
        json_t *known =
            c->base != NULL && c->places == 1 ? json_object_get(c->base, sections[i]) : NULL;
        ok = known == NULL || json_object_set(c->document, sections[i], known) == 0;
    }
    return ok;
}

// The stack is what the executor does: SwiGLU is one kernel, the lookup's gradient is added where
// it belongs, and weight gradients are added up by their products.
static sp_status begin(sp_i_cuda_calibration *c, sp_error *err)
{
    char name[64];
    const json_t *gpu = c->base != NULL ? json_object_get(c->base, "gpu") : NULL;
    sp_i_cuda_profile_name(c->info.name, c->places, name, sizeof name);
    c->document =
        json_pack("{s:s, s:s, s:s, s:{s:s, s:b, s:b, s:b}, s:{s:{}, s:s, s:o}}", "schema",
                  "slimpack/profile/1", "name", name, "gpu",
                  gpu != NULL ? json_string_value(gpu) : c->info.name, "stack", "name", "ours",
                  "fused_swiglu", 1, "in_place_lookup_gradient", 1, "timed_accumulation", 1, "fit",
                  "constants", "gpu", c->info.name, "before", conditions(c));
    c->extra = json_object_get(c->document, "fit");
    return c->document != NULL && add_known(c) ? SP_OK : sp_i_calibration_unwritable(err);
}

typedef sp_status calibrate_part(sp_i_cuda_calibration *c, sp_error *err);

static calibrate_part *const parts[] = {sp_i_cuda_calibrate_copies, sp_i_cuda_calibrate_elements,
                                        sp_i_cuda_calibrate_products, sp_i_cuda_calibrate_attention,
                                        sp_i_cuda_calibrate_links};

// The device's speed is looked at before, between and behind the parts.
enum { PARTS = sizeof parts / sizeof *parts, LOOKS = PARTS + 1 };

static sp_status add_reference(sp_i_cuda_calibration *c, double seconds[LOOKS], sp_error *err)
{
    const double middle_s = sp_i_cuda_timing_of(seconds, LOOKS).median_s; // which sorts them
    json_t *section =
        json_pack("{s:f, s:f, s:s, s:s}", "us", 1e6 * middle_s, "drift",
                  middle_s > 0.0 ? (seconds[LOOKS - 1] - seconds[0]) / middle_s : 0.0, "level",
                  "measured", "source",
                  "product of 2048 x 2048 matrices in bf16, median over the parts of the "
                  "calibration");
    return section != NULL && json_object_set_new(c->document, "reference", section) == 0
               ? SP_OK
               : sp_i_calibration_unwritable(err);
}

sp_status sp_i_cuda_calibrate_all(sp_i_cuda_calibration *c, sp_error *err)
{
    double reference_s[LOOKS];
    sp_status status = begin(c, err);
    if (status == SP_OK) {
        status = sp_i_cuda_reference_in(c, &reference_s[0], err);
    }
    for (int i = 0; status == SP_OK && i < PARTS; i++) {
        status = parts[i](c, err);
        if (status == SP_OK) {
            status = sp_i_cuda_reference_in(c, &reference_s[i + 1], err);
        }
        if (status == SP_OK && c->request != NULL && c->request->part != NULL) {
            c->request->part(c->request->part_context, c->document);
        }
    }
    if (status == SP_OK) {
        status = add_reference(c, reference_s, err);
    }
    if (status == SP_OK && json_object_set_new(c->extra, "after", conditions(c)) != 0) {
        status = sp_i_calibration_unwritable(err);
    }
    return status;
}

// ---- A calibration ----

// Default time and the sizes that it allows for.
#define DEFAULT_LIMIT_S 60.0
#define SHORT_LIMIT_S 10.0
// Time for which other processes wait for rank 0: a calibration takes longer than its limit, which
// holds for what is timed alone.
#define WAIT_S 120.0
#define WAIT_LIMITS 4.0
enum { MOST_TOKENS = 8192, SHORT_MOST_TOKENS = 2048 };

static sp_status check_request(const sp_calibration_request *request, sp_error *err)
{
    if (request->precision != SP_BF16) {
        return sp_error_set(err, SP_ERR_USAGE, "backend 'cuda' calibrates bf16 alone");
    }
    const sp_model *model = request->model;
    if (model != NULL && model->experts > 0) {
        return sp_error_set(err, SP_ERR_CONTENT, "backend 'cuda' cannot execute experts");
    }
    return SP_OK;
}

// Only a profile of this very GPU serves; without one the document is still complete.
static json_t *find_base(const char *gpu)
{
    char name[64];
    char file[SP_PROFILE_PATH];
    json_t *base = NULL;
    sp_i_cuda_profile_name(gpu, 1, name, sizeof name);
    return name[0] != '\0' && sp_profile_document(name, &base, file, NULL) == SP_OK ? base : NULL;
}

static double limit_of(const sp_calibration_request *request)
{
    return request->limit_s > 0.0 ? request->limit_s : DEFAULT_LIMIT_S;
}

static sp_status model_of(const sp_calibration_request *request, sp_model *model, sp_error *err)
{
    if (request->model == NULL) {
        return sp_model_builtin("llama-7b", model, err);
    }
    *model = *request->model;
    return SP_OK;
}

static sp_status measure(sp_i_cuda_calibration *c, const sp_calibration_request *request,
                         sp_error *err)
{
    c->limit_s = limit_of(request);
    c->most_tokens = c->limit_s <= SHORT_LIMIT_S ? SHORT_MOST_TOKENS : MOST_TOKENS;
    c->seed = request->seed;
    sp_status status = model_of(request, &c->model, err);
    if (status == SP_OK) {
        status = sp_i_cuda_calibration_begin(c, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_calibrate_all(c, err);
    }
    sp_i_cuda_calibration_end(c);
    return status;
}

static sp_status calibrate_device(const sp_i_cuda_device *device,
                                  const sp_calibration_request *request, json_t **profile,
                                  sp_error *err)
{
    sp_i_cublas_api cublas;
    char reason[SP_I_CUDA_TEXT];
    *profile = NULL;
    sp_i_cuda_calibration c = {.device = *device,
                               .cublas = &cublas,
                               .launch = sp_i_cuda_launch_element,
                               .attend = sp_cuda_attention,
                               .request = request,
                               .delay = sp_i_cuda_put_delay,
                               .places = request->partitions > 1 ? request->partitions : 1};
    if (!sp_i_cublas_api_init(&cublas, reason, sizeof reason)) {
        return sp_error_set(err, SP_ERR_USAGE, "no cuBLASLt: %s", reason);
    }
    sp_status status = sp_i_cuda_use(&c.device, err);
    if (status == SP_OK) {
        status = sp_i_cuda_device_info(&c.device, &c.info, err);
    }
    if (status != SP_OK) {
        return status;
    }
    sp_i_nvml *nvml = sp_i_nvml_open(c.info.pci, reason, sizeof reason);
    c.nvml = nvml;
    // Without cuDNN the base profile's curves stand; the document says which they are.
    (void)sp_i_cuda_attention_new(&c.device, NULL, &c.attention, NULL);
    c.base = find_base(c.info.name);
    status = measure(&c, request, err);
    sp_i_cuda_attention_free(c.attention);
    sp_i_nvml_close(nvml);
    json_decref(c.base);
    if (status != SP_OK) {
        json_decref(c.document);
        return status;
    }
    *profile = c.document;
    return SP_OK;
}

// ---- by one process, or by one for each GPU ----

static sp_status measure_alone(void *context, const sp_i_cuda_device *device, json_t **document,
                               sp_error *err)
{
    return calibrate_device(device, context, document, err);
}

static sp_status calibrate_team(const sp_i_cuda_api *api, int device,
                                const sp_calibration_request *request, const sp_i_place *place,
                                json_t **profile, sp_error *err)
{
    sp_model model;
    sp_calibration_request same = *request;
    if (request->partitions > 1) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "partitions of a GPU are calibrated by one process, not by %d",
                            place->ranks);
    }
    sp_status status = model_of(request, &model, err);
    if (status != SP_OK) {
        return status;
    }
    const double wait_ms = 1e3 * (WAIT_S + WAIT_LIMITS * limit_of(request));
    const sp_i_cuda_team team = {.place = place,
                                 .api = api,
                                 .device = device,
                                 .model = &model,
                                 .seed = request->seed,
                                 .wait_ms = wait_ms < INT_MAX ? (int)wait_ms : INT_MAX};
    return sp_i_cuda_calibrate_together(&team, measure_alone, &same, profile, err);
}

sp_status sp_i_cuda_calibrate(int device, const sp_calibration_request *request, json_t **profile,
                              sp_error *err)
{
    sp_i_cuda_api api;
    sp_i_place place;
    *profile = NULL;
    sp_status status = check_request(request, err);
    if (status == SP_OK) {
        status = sp_i_place_read(getenv, &place, err);
    }
    if (status != SP_OK) {
        return status;
    }
    sp_i_cuda_api_init(&api);
    const sp_i_cuda_device only = {&api, device};
    return place.ranks > 1 ? calibrate_team(&api, device, request, &place, profile, err)
                           : calibrate_device(&only, request, profile, err);
}
