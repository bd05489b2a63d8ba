#include "backends/cuda/device/rank.h"

// Operations name no device runtime: they work for the calling thread's rank.
static _Thread_local sp_i_cuda_rank *current;

sp_i_cuda_rank *sp_i_cuda_rank_now(void)
{
    SP_ASSERT(current != NULL);
    return current;
}

void sp_i_cuda_rank_enter(sp_i_cuda_rank *rank)
{
    current = rank;
}

void sp_i_cuda_fail(sp_i_cuda_rank *rank, sp_status status, const sp_error *err)
{
    if (status == SP_OK || rank->status != SP_OK) {
        return;
    }
    rank->status = status;
    if (err != &rank->error) {
        rank->error = *err;
    }
}

void sp_i_cuda_note(sp_i_cuda_rank *rank, int code, const char *call, const char *file, int line)
{
    sp_status status =
        sp_i_cuda_check(&rank->device, (cudaError_t)code, call, file, line, &rank->error);
    sp_i_cuda_fail(rank, status, &rank->error);
}

void sp_i_cuda_rank_wait(sp_i_cuda_rank *rank, cudaEvent_t event, const char *file, int line)
{
    const sp_i_cuda_api *api = rank->device.api;
    if (rank->status == SP_OK && rank->limit_ms > 0) {
        sp_i_cuda_fail(
            rank,
            sp_i_cuda_wait_within(&rank->device, rank->stream, event, rank->limit_ms, &rank->error),
            &rank->error);
    } else if (rank->status == SP_OK) {
        cudaError_t code =
            event != NULL ? api->EventSynchronize(event) : api->StreamSynchronize(rank->stream);
        sp_i_cuda_note(rank, (int)code,
                       event != NULL ? "cudaEventSynchronize" : "cudaStreamSynchronize", file,
                       line);
    }
}
