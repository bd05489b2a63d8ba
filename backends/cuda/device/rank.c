#include "backends/cuda/device/rank.h"

#include <sched.h>
#include <time.h>

#include "backends/cuda/distributed/rendezvous.h"

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

// How a rank's thread waits for its GPU.

enum { YIELDS = 64, PAUSE_NS = 50000, LOOK_MS = 50 };

static cudaError_t ask(const sp_i_cuda_rank *rank, cudaEvent_t event)
{
    const sp_i_cuda_api *api = rank->device.api;
    return event != NULL ? api->EventQuery(event) : api->StreamQuery(rank->stream);
}

static cudaError_t stay(const sp_i_cuda_rank *rank, cudaEvent_t event)
{
    const sp_i_cuda_api *api = rank->device.api;
    return event != NULL ? api->EventSynchronize(event) : api->StreamSynchronize(rank->stream);
}

// Asks again and again, and looks after the others now and then; when they have failed the end is
// near.
static cudaError_t watch(const sp_i_cuda_rank *rank, cudaEvent_t event)
{
    const int64_t begin_ms = sp_i_now_ms();
    int64_t look_ms = begin_ms + LOOK_MS;
    cudaError_t code = ask(rank, event);
    for (int polls = 0; code == cudaErrorNotReady; polls++) {
        // It would stay behind as the thread's last error.
        (void)rank->device.api->GetLastError();
        if (polls < YIELDS) {
            (void)sched_yield();
        } else {
            (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        }
        const int64_t now_ms = sp_i_now_ms();
        if (now_ms >= look_ms) {
            look_ms = now_ms + LOOK_MS;
            if (rank->lookout.look(rank->lookout.context, now_ms - begin_ms) != SP_OK) {
                return stay(rank, event);
            }
        }
        code = ask(rank, event);
    }
    return code == cudaSuccess ? stay(rank, event) : code;
}

void sp_i_cuda_rank_wait(sp_i_cuda_rank *rank, cudaEvent_t event, const char *file, int line)
{
    if (rank->status == SP_OK) {
        cudaError_t code = rank->lookout.look == NULL ? stay(rank, event) : watch(rank, event);
        sp_i_cuda_note(rank, (int)code,
                       event != NULL ? "cudaEventSynchronize" : "cudaStreamSynchronize", file,
                       line);
    }
}
