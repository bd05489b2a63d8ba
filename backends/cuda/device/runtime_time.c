// Order between the ranks of a GPU, and times on its clock. CUDA gives the time between two events
// as an fp32 number of milliseconds, so that times are counted from an event not far away.
#include <math.h>

#include "backends/cuda/device/runtime_state.h"
#include "sim/base/alloc.h"

enum { FAR_NS = 100000000 }; // 0.1 s, which fp32 holds to 8 ns

// ---- order ----

sp_fence sp_i_cuda_runtime_mark(sp_runtime *runtime)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    sp_i_cuda_stream_context *context = rank->context;
    if (sp_i_cuda_runtime_of(runtime)->contexts == 1) {
        return (sp_fence){0};
    }
    sp_i_cuda_hold(rank);
    sp_fence fence = {rank->number, ++context->marks};
    SP_I_CUDA_CALL(rank, EventRecord, context->points.event[fence.point % SP_I_CUDA_POINTS],
                   rank->stream);
    sp_i_cuda_release(rank);
    return fence;
}

// Where the event has been recorded again since, the wait is for a later point. That is no circle:
// a stream only waits for what was put down before.
void sp_i_cuda_runtime_wait(sp_runtime *runtime, sp_fence fence)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    if (fence.point == 0 || fence.rank == rank->number) {
        return;
    }
    const sp_i_cuda_runtime *m = sp_i_cuda_runtime_of(runtime);
    const sp_i_cuda_stream_context *context = m->rank[fence.rank].context;
    SP_I_CUDA_CALL(rank, StreamWaitEvent, rank->stream,
                   context->points.event[fence.point % SP_I_CUDA_POINTS], 0);
}

// ---- the clock of virtual time ----

int64_t sp_i_cuda_runtime_now_ns(sp_runtime *runtime)
{
    (void)runtime;
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    sp_i_cuda_stream_context *context = rank->context;
    sp_i_cuda_hold(rank);
    int next = 1 - context->clock_at;
    float ms = 0.0f;
    SP_I_CUDA_CALL(rank, EventRecord, context->clock.event[next], rank->stream);
    SP_I_CUDA_CALL(rank, EventSynchronize, context->clock.event[next]);
    SP_I_CUDA_CALL(rank, EventElapsedTime, &ms, context->clock.event[context->clock_at],
                   context->clock.event[next]);
    if (rank->status == SP_OK) {
        context->clock_at = next;
        context->clock_ns += llround((double)ms * 1e6);
    }
    int64_t ns = context->clock_ns;
    sp_i_cuda_release(rank);
    return ns;
}

// ---- stamps ----

sp_status sp_i_cuda_runtime_start_clock(sp_i_cuda_runtime *m, sp_error *err)
{
    m->stamps = sp_calloc((size_t)m->ranks, sizeof *m->stamps);
    sp_status status =
        SP_I_CUDA(&m->device, err, EventCreateWithFlags, &m->reference, cudaEventDefault);
    return status == SP_OK
               ? SP_I_CUDA(&m->device, err, EventRecord, m->reference, m->context[0].stream)
               : status;
}

static void free_stamps(const sp_i_cuda_runtime *m, sp_i_cuda_stamps *stamps)
{
    for (int r = 0; stamps != NULL && r < m->ranks; r++) {
        for (size_t i = 0; i < stamps[r].made; i++) {
            (void)m->device.api->EventDestroy(stamps[r].of[i].event);
        }
        sp_free(stamps[r].of);
    }
    sp_free(stamps);
}

void sp_i_cuda_runtime_stop_clock(sp_i_cuda_runtime *m)
{
    const sp_i_cuda_api *api = m->device.api;
    free_stamps(m, m->stamps);
    if (m->reference != NULL) {
        (void)api->EventDestroy(m->reference);
    }
}

// The rank's next stamp, with an event; NULL when there is none to be had.
static sp_i_cuda_stamp *next_stamp(sp_i_cuda_rank *rank, sp_i_cuda_stamps *stamps)
{
    if (stamps->asked) {
        stamps->used = 0;
        stamps->asked = false;
    }
    sp_reserve((void **)&stamps->of, &stamps->capacity, stamps->used + 1, sizeof *stamps->of);
    sp_i_cuda_stamp *stamp = &stamps->of[stamps->used];
    if (stamps->used == stamps->made) {
        SP_I_CUDA_CALL(rank, EventCreateWithFlags, &stamp->event, cudaEventDefault);
        stamps->made += rank->status == SP_OK;
    }
    stamp->known = false;
    stamp->ns = 0;
    return rank->status == SP_OK ? stamp : NULL;
}

// The rank's number and the stamp's, from 1; 0 where the rank's work has failed.
uint64_t sp_i_cuda_runtime_stamp(sp_runtime *runtime)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    sp_i_cuda_stamps *stamps = &sp_i_cuda_runtime_of(runtime)->stamps[rank->number];
    sp_i_cuda_stamp *stamp = rank->status == SP_OK ? next_stamp(rank, stamps) : NULL;
    if (stamp == NULL) {
        return 0;
    }
    SP_I_CUDA_CALL(rank, EventRecord, stamp->event, rank->stream);
    return (uint64_t)rank->number << 32 | ++stamps->used;
}

static void find_time(sp_i_cuda_runtime *m, sp_i_cuda_rank *rank, sp_i_cuda_stamp *stamp)
{
    float ms = 0.0f;
    SP_I_CUDA_CALL(rank, EventElapsedTime, &ms, m->reference, stamp->event);
    int64_t since = llround((double)ms * 1e6);
    stamp->ns = m->reference_ns + since;
    stamp->known = true;
    if (rank->status == SP_OK && (since > FAR_NS || since < -FAR_NS)) {
        cudaEvent_t before = m->reference;
        m->reference = stamp->event;
        m->reference_ns = stamp->ns;
        stamp->event = before;
    }
}

int64_t sp_i_cuda_runtime_stamp_ns(sp_runtime *runtime, uint64_t number)
{
    sp_i_cuda_runtime *m = sp_i_cuda_runtime_of(runtime);
    if (number == 0) {
        return 0;
    }
    size_t r = (size_t)(number >> 32);
    sp_i_cuda_stamps *stamps = &m->stamps[r];
    sp_i_cuda_stamp *stamp = &stamps->of[(number & UINT32_MAX) - 1];
    (void)pthread_mutex_lock(&m->lock);
    stamps->asked = true;
    if (!stamp->known) {
        find_time(m, &m->rank[r], stamp);
    }
    (void)pthread_mutex_unlock(&m->lock);
    return stamp->ns;
}
