// Where work is timed: on the whole device, or in one of several partitions while the others are
// busy with such work too.
#include "backends/cuda/calibrate/calibration.h"

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

static sp_status draw(const sp_i_cuda_calibration *c, char *data, int64_t elements, int64_t drawn,
                      sp_error *err)
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
        status = status == SP_OK ? draw(c, rooms->memory[i], elements, drawn, err) : status;
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
    return json_array_append_new(partition_notes(c), note) == 0 ? SP_OK : sp_i_cuda_no_profile(err);
}
