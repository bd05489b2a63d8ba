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
// a stream only waits for what was put down before. Points before a capture and in it are over when
// others come: nothing may wait for them across its borders.
void sp_i_cuda_runtime_wait(sp_runtime *runtime, sp_fence fence)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    if (fence.point == 0 || fence.rank == rank->number) {
        return;
    }
    const sp_i_cuda_runtime *m = sp_i_cuda_runtime_of(runtime);
    const sp_i_cuda_stream_context *context = m->rank[fence.rank].context;
    // A rank whose work has failed records no more, and in a capture that would be the waiting
    // one's error.
    if (fence.point <= context->over || (m->capturing && m->rank[fence.rank].status != SP_OK)) {
        return;
    }
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
    m->captured = sp_calloc((size_t)m->ranks, sizeof *m->captured);
    if (m->stamps == NULL || m->captured == NULL) {
        return sp_error_no_memory(err, "the clock of a GPU");
    }
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
    free_stamps(m, m->captured);
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
    if (!sp_reserve((void **)&stamps->of, &stamps->capacity, stamps->used + 1,
                    sizeof *stamps->of)) {
        sp_i_cuda_fail(rank, sp_error_no_memory(&rank->error, "stamps"), &rank->error);
        return NULL;
    }
    sp_i_cuda_stamp *stamp = &stamps->of[stamps->used];
    if (stamps->used == stamps->made) {
        SP_I_CUDA_CALL(rank, EventCreateWithFlags, &stamp->event, cudaEventDefault);
        stamps->made += rank->status == SP_OK;
    }
    stamp->known = false;
    stamp->ns = 0;
    return rank->status == SP_OK ? stamp : NULL;
}

static const uint64_t in_capture = UINT64_C(1) << 63;

// In a capture an event is recorded whenever the step is repeated.
static uint64_t captured_stamp(sp_i_cuda_rank *rank, sp_i_cuda_stamps *stamps)
{
    if (rank->status == SP_OK && stamps->used == stamps->made) {
        sp_status status = sp_error_set(&rank->error, SP_ERR_INTERNAL,
                                        "GPU %d: a captured step has more stamps than its "
                                        "rehearsal",
                                        rank->device.index);
        sp_i_cuda_fail(rank, status, &rank->error);
    }
    if (rank->status != SP_OK) {
        return 0;
    }
    SP_I_CUDA_CALL(rank, EventRecordWithFlags, stamps->of[stamps->used].event, rank->stream,
                   cudaEventRecordExternal);
    return in_capture | (uint64_t)rank->number << 32 | ++stamps->used;
}

// The rank's number and the stamp's, from 1; 0 where the rank's work has failed.
uint64_t sp_i_cuda_runtime_stamp(sp_runtime *runtime)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    sp_i_cuda_stamps *stamps = &sp_i_cuda_runtime_of(runtime)->stamps[rank->number];
    if (sp_i_cuda_runtime_of(runtime)->capturing) {
        return captured_stamp(rank, &sp_i_cuda_runtime_of(runtime)->captured[rank->number]);
    }
    sp_i_cuda_stamp *stamp = rank->status == SP_OK ? next_stamp(rank, stamps) : NULL;
    if (stamp == NULL) {
        return 0;
    }
    SP_I_CUDA_CALL(rank, EventRecord, stamp->event, rank->stream);
    stamps->noted++;
    return (uint64_t)rank->number << 32 | ++stamps->used;
}

sp_status sp_i_cuda_runtime_capture_clock(sp_i_cuda_runtime *m, sp_error *err)
{
    sp_status status = SP_OK;
    for (int r = 0; status == SP_OK && r < m->ranks; r++) {
        sp_i_cuda_stamps *stamps = &m->captured[r];
        size_t count = m->stamps[r].noted;
        if (!sp_reserve((void **)&stamps->of, &stamps->capacity, count, sizeof *stamps->of)) {
            return sp_error_no_memory(err, "stamps");
        }
        for (; status == SP_OK && stamps->made < count; stamps->made += status == SP_OK) {
            sp_i_cuda_stamp *stamp = &stamps->of[stamps->made];
            *stamp = (sp_i_cuda_stamp){0};
            status =
                SP_I_CUDA(&m->device, err, EventCreateWithFlags, &stamp->event, cudaEventDefault);
        }
    }
    return status;
}

void sp_i_cuda_runtime_repeat_clock(sp_i_cuda_runtime *m)
{
    for (int r = 0; r < m->ranks; r++) {
        for (size_t i = 0; i < m->captured[r].used; i++) {
            m->captured[r].of[i].known = false;
        }
    }
}

// The event of a stamp in a capture is the graph's: it never becomes the reference.
static void find_time(sp_i_cuda_runtime *m, sp_i_cuda_rank *rank, sp_i_cuda_stamp *stamp,
                      bool captured)
{
    float ms = 0.0f;
    SP_I_CUDA_CALL(rank, EventElapsedTime, &ms, m->reference, stamp->event);
    int64_t since = llround((double)ms * 1e6);
    stamp->ns = m->reference_ns + since;
    stamp->known = true;
    if (rank->status == SP_OK && !captured && (since > FAR_NS || since < -FAR_NS)) {
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
    bool captured = (number & in_capture) != 0;
    size_t r = (size_t)((number & ~in_capture) >> 32);
    sp_i_cuda_stamps *stamps = captured ? &m->captured[r] : &m->stamps[r];
    sp_i_cuda_stamp *stamp = &stamps->of[(number & UINT32_MAX) - 1];
    (void)pthread_mutex_lock(&m->lock);
    stamps->asked = true;
    if (!stamp->known) {
        find_time(m, &m->rank[r], stamp, captured);
    }
    (void)pthread_mutex_unlock(&m->lock);
    return stamp->ns;
}
