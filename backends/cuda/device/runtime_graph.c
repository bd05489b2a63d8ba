// A step as one CUDA graph of all ranks' streams. The first rank's stream begins the capture, the
// others' join it by an event and are joined at its end; fences between them become edges. One
// graph for each rank would need waits for events that another graph records, and such a wait
// passes where the event still has the record of the step before.
#include "backends/cuda/device/runtime_state.h"

void sp_i_cuda_runtime_rehearse(sp_runtime *runtime)
{
    sp_i_cuda_runtime *m = sp_i_cuda_runtime_of(runtime);
    for (int i = 0; i < m->contexts; i++) {
        m->context[i].kept.counted = 0;
    }
    for (int r = 0; r < m->ranks; r++) {
        m->stamps[r].noted = 0;
    }
}

// Whatever takes memory, or may wait for the device, is done before the capture.
static sp_status prepare(sp_i_cuda_runtime *m, sp_error *err)
{
    sp_status status = sp_i_cuda_use(&m->device, err);
    for (int i = 0; status == SP_OK && i < m->contexts; i++) {
        status = sp_i_cuda_kept_begin(&m->context[i].kept, &m->device, err);
    }
    status = status == SP_OK ? sp_i_cuda_runtime_capture_clock(m, err) : status;
    return status == SP_OK ? sp_i_cuda_events_init(&m->device, m->contexts, false, &m->joints, err)
                           : status;
}

static sp_status fork_streams(const sp_i_cuda_runtime *m, sp_error *err)
{
    sp_status status = sp_i_cuda_record(&m->joints, 0, m->context[0].stream, err);
    for (int i = 1; status == SP_OK && i < m->contexts; i++) {
        status = sp_i_cuda_wait(&m->joints, 0, m->context[i].stream, err);
    }
    return status;
}

static sp_status join_streams(const sp_i_cuda_runtime *m, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 1; status == SP_OK && i < m->contexts; i++) {
        status = sp_i_cuda_record(&m->joints, i, m->context[i].stream, err);
        status =
            status == SP_OK ? sp_i_cuda_wait(&m->joints, i, m->context[0].stream, err) : status;
    }
    return status;
}

static void pass_points(sp_i_cuda_runtime *m)
{
    for (int i = 0; i < m->contexts; i++) {
        m->context[i].over = m->context[i].marks;
    }
}

// The mode is relaxed because ranks' threads put work down, and another one ends the capture.
sp_status sp_i_cuda_runtime_capture_begin(sp_runtime *runtime, sp_error *err)
{
    sp_i_cuda_runtime *m = sp_i_cuda_runtime_of(runtime);
    SP_ASSERT(!m->capturing && m->graph == NULL);
    sp_status status = prepare(m, err);
    if (status == SP_OK) {
        status = SP_I_CUDA(&m->device, err, StreamBeginCapture, m->context[0].stream,
                           cudaStreamCaptureModeRelaxed);
    }
    if (status == SP_OK) {
        m->capturing = true;
        pass_points(m);
        status = fork_streams(m, err);
    }
    if (status != SP_OK) {
        sp_i_cuda_runtime_drop_graph(m);
    }
    return status;
}

sp_status sp_i_cuda_runtime_capture_end(sp_runtime *runtime, bool keep, sp_error *err)
{
    sp_i_cuda_runtime *m = sp_i_cuda_runtime_of(runtime);
    SP_ASSERT(m->capturing);
    cudaGraph_t graph = NULL;
    sp_status status = keep ? join_streams(m, err) : SP_OK;
    if (keep && status == SP_OK) {
        m->capturing = false;
        status = SP_I_CUDA(&m->device, err, StreamEndCapture, m->context[0].stream, &graph);
    }
    if (keep && status == SP_OK) {
        status = SP_I_CUDA(&m->device, err, GraphInstantiate, &m->graph, graph, 0);
    }
    if (graph != NULL) {
        (void)m->device.api->GraphDestroy(graph);
    }
    for (int i = 0; i < m->contexts; i++) {
        sp_i_cuda_kept_end(&m->context[i].kept);
    }
    pass_points(m);
    if (m->graph == NULL) {
        sp_i_cuda_runtime_drop_graph(m);
    }
    return status;
}

sp_status sp_i_cuda_runtime_replay(sp_runtime *runtime, sp_error *err)
{
    sp_i_cuda_runtime *m = sp_i_cuda_runtime_of(runtime);
    SP_ASSERT(m->graph != NULL);
    for (int i = 0; i < m->contexts; i++) {
        sp_i_cuda_kept_refill(&m->context[i].kept);
    }
    sp_i_cuda_runtime_repeat_clock(m);
    sp_status status = SP_I_CUDA(&m->device, err, GraphLaunch, m->graph, m->context[0].stream);
    return status == SP_OK ? SP_I_CUDA(&m->device, err, StreamSynchronize, m->context[0].stream)
                           : status;
}

// A capture that goes on is ended: its streams are of no other use until then.
void sp_i_cuda_runtime_drop_graph(sp_i_cuda_runtime *m)
{
    const sp_i_cuda_api *api = m->device.api;
    cudaGraph_t graph = NULL;
    if (m->capturing) {
        (void)api->StreamEndCapture(m->context[0].stream, &graph);
        (void)api->GetLastError();
        m->capturing = false;
    }
    if (graph != NULL) {
        (void)api->GraphDestroy(graph);
    }
    if (m->graph != NULL) {
        (void)api->GraphExecDestroy(m->graph);
        m->graph = NULL;
    }
    sp_i_cuda_events_fini(&m->joints);
    for (int i = 0; m->context != NULL && i < m->contexts; i++) {
        sp_i_cuda_kept_fini(&m->context[i].kept, &m->device);
    }
}
