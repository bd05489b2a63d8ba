// Events of one device: order between streams, and times on its own clock.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_EVENTS_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_EVENTS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "backends/cuda/device/device.h"

typedef struct sp_i_cuda_events {
    sp_i_cuda_device device;
    int count;
    cudaEvent_t *event;
} sp_i_cuda_events;

// `timed`: with time stamps; without them an event is cheaper.
sp_status sp_i_cuda_events_init(const sp_i_cuda_device *device, int count, bool timed,
                                sp_i_cuda_events *events, sp_error *err);
void sp_i_cuda_events_fini(sp_i_cuda_events *events);

sp_status sp_i_cuda_record(const sp_i_cuda_events *events, int event, cudaStream_t stream,
                           sp_error *err);
// What is put on the stream from now on starts after the event's last record.
sp_status sp_i_cuda_wait(const sp_i_cuda_events *events, int event, cudaStream_t stream,
                         sp_error *err);
// From one event to another, both over: nanoseconds, of about half a microsecond's resolution.
sp_status sp_i_cuda_between(const sp_i_cuda_events *events, int from, int to, int64_t *ns,
                            sp_error *err);

// Time that passes on a stream and keeps no SM busy but one: until all streams that are to begin
// together have been given their work.

// Puts a delay of `ns` on a stream; a launcher of a kernel.
typedef cudaError_t (*sp_i_cuda_delay)(int64_t ns, cudaStream_t stream);

// By a kernel that waits for the device's timer.
cudaError_t sp_i_cuda_put_delay(int64_t ns, cudaStream_t stream);

#endif
