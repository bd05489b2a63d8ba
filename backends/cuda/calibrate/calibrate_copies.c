// Copies inside the device, and what one GPU cannot say.
#include "backends/cuda/calibrate/bench.h"
#include "backends/cuda/calibrate/calibration.h"

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

static sp_status measure(sp_i_cuda_calibration *c, void *const *contexts, sp_error *err)
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
        status = sp_i_cuda_no_profile(err);
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
    status = status == SP_OK ? measure(c, contexts, err) : status;
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
        return ok ? SP_OK : sp_i_cuda_no_profile(err);
    }
    json_t *links = c->base != NULL ? json_object_get(c->base, "links") : NULL;
    json_t *collectives = c->base != NULL ? json_object_get(c->base, "collectives") : NULL;
    ok = links != NULL ? json_object_set(c->document, "links", links) == 0
                       : json_object_set_new(c->document, "links", assumed_links(c)) == 0;
    ok = ok &&
         (collectives == NULL || json_object_set(c->document, "collectives", collectives) == 0);
    return ok ? SP_OK : sp_i_cuda_no_profile(err);
}
