// NCCL with one rank: does a communicator come up, do collectives and a send to itself work, on a
// stream and in a captured graph.
#include <nccl.h>
#include <string.h>

#include "backends/cuda/calibrate/bench.h"
#include "backends/cuda/device/api.h"
#include "tests/gpu/checklist.h"

typedef struct nccl_api {
    const char *(*GetErrorString)(ncclResult_t code);
    ncclResult_t (*GetUniqueId)(ncclUniqueId *id);
    ncclResult_t (*CommInitRank)(ncclComm_t *made, int ranks, ncclUniqueId id, int rank);
    ncclResult_t (*CommDestroy)(ncclComm_t of);
    ncclResult_t (*AllReduce)(const void *from, void *to, size_t count, ncclDataType_t type,
                              ncclRedOp_t operation, ncclComm_t of, cudaStream_t stream);
    ncclResult_t (*Send)(const void *from, size_t count, ncclDataType_t type, int peer,
                         ncclComm_t of, cudaStream_t stream);
    ncclResult_t (*Recv)(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t of,
                         cudaStream_t stream);
    ncclResult_t (*GroupStart)(void);
    ncclResult_t (*GroupEnd)(void);
} nccl_api;

#define ENTRY(call)                            \
    {                                          \
        "nccl" #call, offsetof(nccl_api, call) \
    }

enum { COUNT = 1 << 22 };

typedef struct ring {
    const checklist *c;
    nccl_api api;
    ncclComm_t comm;
    char *from, *to;
    bool send;
} ring;

static sp_status check(const ring *r, ncclResult_t code, const char *call, sp_error *err)
{
    return code == ncclSuccess ? SP_OK
                               : sp_error_set(err, SP_ERR_INTERNAL, "%s failed with %d: %s", call,
                                              (int)code, r->api.GetErrorString(code));
}

static sp_status run(void *context, cudaStream_t stream, sp_error *err)
{
    const ring *r = context;
    if (!r->send) {
        return check(
            r, r->api.AllReduce(r->from, r->to, COUNT, ncclBfloat16, ncclSum, r->comm, stream),
            "ncclAllReduce", err);
    }
    ncclResult_t code = r->api.GroupStart();
    if (code == ncclSuccess) {
        code = r->api.Send(r->from, COUNT, ncclBfloat16, 0, r->comm, stream);
    }
    if (code == ncclSuccess) {
        code = r->api.Recv(r->to, COUNT, ncclBfloat16, 0, r->comm, stream);
    }
    if (code == ncclSuccess) {
        code = r->api.GroupEnd();
    }
    return check(r, code, "a send to itself", err);
}

static sp_status report(ring *r, cudaStream_t stream, const char *what, sp_error *err)
{
    sp_i_cuda_bench bench;
    sp_i_cuda_timing t;
    sp_status status = sp_i_cuda_bench_init(&r->c->device, stream, 0, &bench, err);
    if (status != SP_OK) {
        return status;
    }
    status = sp_i_cuda_bench_time(&bench, run, r, 0.01, &t, err);
    if (status == SP_OK) {
        checklist_found("nccl", json_pack("{s:s, s:i, s:f, s:f}", "what", what, "bytes", 2 * COUNT,
                                          "median_us", 1e6 * t.median_s, "spread", t.spread));
    }
    sp_i_cuda_bench_fini(&bench);
    return status;
}

// One send to itself, captured and replayed.
static sp_status capture(ring *r, cudaStream_t stream, sp_error *err)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    const sp_i_cuda_device *device = &r->c->device;
    cudaError_t code = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    sp_status status = code == cudaSuccess ? run(r, stream, err) : SP_OK;
    cudaError_t end = cudaStreamEndCapture(stream, &graph);
    code = code == cudaSuccess ? end : code;
    if (code == cudaSuccess && status == SP_OK) {
        code = cudaGraphInstantiate(&ready, graph, 0);
    }
    if (code == cudaSuccess && status == SP_OK) {
        code = cudaGraphLaunch(ready, stream);
    }
    if (code == cudaSuccess && status == SP_OK) {
        code = cudaStreamSynchronize(stream);
    }
    if (ready != NULL) {
        (void)cudaGraphExecDestroy(ready);
    }
    if (graph != NULL) {
        (void)cudaGraphDestroy(graph);
    }
    return status == SP_OK ? sp_i_cuda_check(device, code, "capturing", __FILE__, __LINE__, err)
                           : status;
}

static sp_status run_all(ring *r, cudaStream_t stream, sp_error *err)
{
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    sp_status status = check(r, r->api.GetUniqueId(&id), "ncclGetUniqueId", err);
    if (status == SP_OK) {
        status = check(r, r->api.CommInitRank(&r->comm, 1, id, 0), "ncclCommInitRank", err);
    }
    if (status == SP_OK) {
        status = report(r, stream, "all-reduce of one rank", err);
    }
    r->send = true;
    if (status == SP_OK) {
        status = report(r, stream, "send to itself", err);
    }
    if (status == SP_OK) {
        status = capture(r, stream, err);
    }
    if (status == SP_OK) {
        checklist_found("nccl", json_pack("{s:s}", "what", "send to itself, captured"));
    }
    if (r->comm != NULL) {
        (void)r->api.CommDestroy(r->comm);
    }
    return status;
}

sp_status check_nccl(checklist *c, sp_error *err)
{
    static const char *const names[] = {"libnccl.so.2", NULL};
    static const sp_i_library_symbol symbols[] = {
        ENTRY(GetErrorString), ENTRY(GetUniqueId), ENTRY(CommInitRank),
        ENTRY(CommDestroy),    ENTRY(AllReduce),   ENTRY(Send),
        ENTRY(Recv),           ENTRY(GroupStart),  ENTRY(GroupEnd),
    };
    ring r = {.c = c};
    char reason[SP_I_CUDA_TEXT];
    cudaStream_t stream = NULL;
    void *data = NULL;
    if (!sp_i_library_open(names, symbols, sizeof symbols / sizeof *symbols, &r.api, reason,
                           sizeof reason)) {
        checklist_missing("nccl", reason);
        return SP_OK;
    }
    sp_status status = SP_I_CUDA(&c->device, err, Malloc, &data, 4 * (size_t)COUNT);
    if (status == SP_OK) {
        r.from = data;
        r.to = r.from + 2 * (size_t)COUNT;
        status =
            SP_I_CUDA(&c->device, err, StreamCreateWithPriority, &stream, cudaStreamNonBlocking, 0);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_fill_normal(&c->device, data, COUNT, 1.0, 1, stream, err);
    }
    if (status == SP_OK) {
        status = run_all(&r, stream, err);
    }
    if (stream != NULL) {
        (void)c->api.StreamDestroy(stream);
    }
    if (data != NULL) {
        (void)c->api.Free(data);
    }
    return status;
}
