#include "backends/cuda/device/events.h"

#include "kernels/cuda_kernels.h"
#include "sim/base/alloc.h"
#include "sim/base/units.h"

sp_status sp_i_cuda_events_init(const sp_i_cuda_device *device, int count, bool timed,
                                sp_i_cuda_events *events, sp_error *err)
{
    *events = (sp_i_cuda_events){.device = *device};
    events->event = sp_calloc((size_t)count, sizeof *events->event);
    sp_status status = events->event != NULL ? SP_OK : sp_error_no_memory(err, "events");
    for (int i = 0; status == SP_OK && i < count; i++) {
        status = SP_I_CUDA(device, err, EventCreateWithFlags, &events->event[i],
                           timed ? cudaEventDefault : cudaEventDisableTiming);
        events->count += status == SP_OK;
    }
    if (status != SP_OK) {
        sp_i_cuda_events_fini(events);
    }
    return status;
}

void sp_i_cuda_events_fini(sp_i_cuda_events *events)
{
    for (int i = 0; i < events->count; i++) {
        (void)events->device.api->EventDestroy(events->event[i]);
    }
    sp_free(events->event);
    *events = (sp_i_cuda_events){0};
}

sp_status sp_i_cuda_record(const sp_i_cuda_events *events, int event, cudaStream_t stream,
                           sp_error *err)
{
    return SP_I_CUDA(&events->device, err, EventRecord, events->event[event], stream);
}

sp_status sp_i_cuda_wait(const sp_i_cuda_events *events, int event, cudaStream_t stream,
                         sp_error *err)
{
    return SP_I_CUDA(&events->device, err, StreamWaitEvent, stream, events->event[event], 0);
}

sp_status sp_i_cuda_between(const sp_i_cuda_events *events, int from, int to, int64_t *ns,
                            sp_error *err)
{
    float ms = 0.0f;
    *ns = 0;
    sp_status status = SP_I_CUDA(&events->device, err, EventSynchronize, events->event[to]);
    if (status == SP_OK) {
        status = SP_I_CUDA(&events->device, err, EventElapsedTime, &ms, events->event[from],
                           events->event[to]);
    }
    if (status == SP_OK) {
        *ns = sp_ns_from_ms((double)ms);
    }
    return status;
}

cudaError_t sp_i_cuda_put_delay(int64_t ns, cudaStream_t stream)
{
    return (cudaError_t)sp_cuda_delay(ns, stream);
}
