#include "backends/cuda/calibrate/bench.h"

#include <math.h>
#include <stdlib.h>

#include "backends/cuda/device/device.h"
#include "kernels/bf16.h"
#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/base/prng.h"

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

// Of the neighbours beyond those that are timed, so that none of these runs alone.
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
