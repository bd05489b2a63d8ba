// How a world of NCCL waits and fails.
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "backends/cuda/distributed/nccl_world.h"
#include "backends/cuda/distributed/rendezvous.h"

sp_status sp_i_nccl_failure(const sp_i_nccl *n, sp_error *err)
{
    return n->failure.status == SP_OK
               ? SP_OK
               : sp_error_set(err, n->failure.status, "%s", n->failure.message[0]);
}

// ---- failure ----

static void abort_comm(const sp_i_nccl *n, sp_i_nccl_group *group)
{
    ncclComm_t comm = group->comm;
    group->comm = NULL;
    if (comm != NULL) {
        (void)n->api->CommAbort(comm);
    }
}

// Freeing what one holds may wait for the whole GPU, and so for kernels of another that wait for
// their peers. In a batch all are told to end before any is freed (NVIDIA/nccl#1013, NCCL 2.22 or
// later; to those before it the batch is nothing).
static void abort_comms(sp_i_nccl *n)
{
    if (n->all.comm == NULL) {
        return; // nor any other: they are made after it and ended before it
    }
    bool together = n->api->GroupStart() == ncclSuccess;
    // Those that were split from it before the world's own.
    for (size_t i = n->count; i > 0; i--) {
        abort_comm(n, n->groups[i - 1]);
    }
    abort_comm(n, &n->all);
    if (together) {
        (void)n->api->GroupEnd();
    }
}

static void note(sp_i_nccl *n, sp_status status, const char *text)
{
    (void)sp_error_set(&n->failure, status, "%s", text);
    // An open batch belongs to the thread and would take in whatever it calls next.
    for (; n->batch > 0; n->batch--) {
        (void)n->api->GroupEnd();
    }
    abort_comms(n);
}

sp_status sp_i_nccl_fail(sp_i_nccl *n, sp_error *err, sp_status status, const char *format, ...)
{
    if (n->failure.status == SP_OK) {
        char text[SP_ERROR_TEXT - 40];
        char with_rank[SP_ERROR_TEXT];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        snprintf(with_rank, sizeof with_rank, "rank %d: %s", n->rank, text);
        // The others first: aborting can take a while. What failed here may be what another
        // rank's failure has left.
        sp_error first = {0};
        (void)sp_i_rendezvous_abort(n->options.rendezvous, status, "%s", text);
        sp_status theirs = sp_i_rendezvous_check(n->options.rendezvous, &first);
        note(n, theirs != SP_OK ? theirs : status, theirs != SP_OK ? first.message[0] : with_rank);
    }
    return sp_i_nccl_failure(n, err);
}

sp_status sp_i_nccl_follow(sp_i_nccl *n, sp_error *err, const sp_error *theirs)
{
    if (n->failure.status == SP_OK) {
        note(n, theirs->status, theirs->message[0]);
    }
    return sp_i_nccl_failure(n, err);
}

// Another rank's failure, if there is one, is this one's.
static sp_status look_at_others(sp_i_nccl *n, sp_error *err)
{
    sp_error theirs = {0};
    sp_status status = sp_i_rendezvous_check(n->options.rendezvous, &theirs);
    return status == SP_OK ? SP_OK : sp_i_nccl_follow(n, err, &theirs);
}

sp_status sp_i_nccl_abort(sp_i_nccl *n, sp_status status, const char *format, ...)
{
    char text[SP_ERROR_TEXT - 40];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return sp_i_nccl_fail(n, NULL, status, "%s", text);
}

// ---- codes ----

static const char *code_name(ncclResult_t code)
{
    switch (code) {
    case ncclUnhandledCudaError:
        return "ncclUnhandledCudaError";
    case ncclSystemError:
        return "ncclSystemError";
    case ncclInternalError:
        return "ncclInternalError";
    case ncclInvalidArgument:
        return "ncclInvalidArgument";
    case ncclInvalidUsage:
        return "ncclInvalidUsage";
    case ncclRemoteError:
        return "ncclRemoteError";
    default:
        return "an unknown code";
    }
}

// What users can put right is wrong usage: two ranks on one GPU, above all.
static sp_status status_of(ncclResult_t code)
{
    return code == ncclInvalidUsage                             ? SP_ERR_USAGE
           : code == ncclSystemError || code == ncclRemoteError ? SP_ERR_IO
                                                                : SP_ERR_INTERNAL;
}

// NCCL may notice that another rank is gone before its word of why is here.
static sp_status hear_others(sp_i_nccl *n, sp_error *err)
{
    enum { TRIES = 100, PAUSE_NS = 5000000 };
    sp_status status = look_at_others(n, err);
    for (int i = 0; status == SP_OK && i < TRIES; i++) {
        (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        status = look_at_others(n, err);
    }
    return status;
}

static sp_status fail_with(sp_i_nccl *n, const sp_i_nccl_group *group, const char *call,
                           ncclResult_t code, sp_error *err)
{
    if (code == ncclRemoteError && n->ranks > 1 && n->failure.status == SP_OK) {
        sp_status theirs = hear_others(n, err);
        if (theirs != SP_OK) {
            return theirs;
        }
    }
    const char *last = n->api->GetLastError(group->comm);
    return sp_i_nccl_fail(n, err, status_of(code),
                          "GPU %d: group '%s' of %d: nccl%s failed with %s: %s%s%.200s",
                          n->options.device.index, group->name, group->size, call, code_name(code),
                          n->api->GetErrorString(code), last != NULL && last[0] != '\0' ? ": " : "",
                          last != NULL ? last : "");
}

// ---- waiting ----

enum { YIELDS = 64, LOOK_MS = 50, FIRST_PAUSE_NS = 20000, LONGEST_PAUSE_NS = 1000000 };

sp_i_nccl_patience sp_i_nccl_patience_start(const sp_i_nccl *n)
{
    int64_t now_ms = sp_i_now_ms();
    return (sp_i_nccl_patience){.until_ms = now_ms + n->options.timeout_ms,
                                .look_ms = now_ms + LOOK_MS,
                                .pause_ns = FIRST_PAUSE_NS};
}

sp_status sp_i_nccl_patience_wait(sp_i_nccl *n, sp_i_nccl_patience *patience, const char *what,
                                  sp_error *err)
{
    // Most calls are over in microseconds.
    if (patience->polls++ < YIELDS) {
        (void)sched_yield();
        return SP_OK;
    }
    int64_t now_ms = sp_i_now_ms();
    if (now_ms >= patience->look_ms) {
        patience->look_ms = now_ms + LOOK_MS;
        sp_status status = look_at_others(n, err);
        if (status != SP_OK) {
            return status;
        }
    }
    if (now_ms >= patience->until_ms) {
        return sp_i_nccl_fail(n, err, SP_ERR_LIMIT, "GPU %d: %s was not over in %d ms",
                              n->options.device.index, what, n->options.timeout_ms);
    }
    (void)nanosleep(&(struct timespec){.tv_nsec = patience->pause_ns}, NULL);
    patience->pause_ns =
        2 * patience->pause_ns < LONGEST_PAUSE_NS ? 2 * patience->pause_ns : LONGEST_PAUSE_NS;
    return SP_OK;
}

static ncclResult_t state_of(const sp_i_nccl *n, const sp_i_nccl_group *group)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t code = n->api->CommGetAsyncError(group->comm, &state);
    return code != ncclSuccess ? code : state;
}

sp_status sp_i_nccl_finish(sp_i_nccl *n, const sp_i_nccl_group *group, const char *call,
                           ncclResult_t code, sp_error *err)
{
    char what[SP_I_CUDA_TEXT];
    sp_i_nccl_patience patience = {0};
    if (code == ncclInProgress) {
        code = state_of(n, group);
    }
    if (code == ncclInProgress) {
        patience = sp_i_nccl_patience_start(n);
        snprintf(what, sizeof what, "group '%s' of %d: nccl%s", group->name, group->size, call);
    }
    while (code == ncclInProgress) {
        sp_status status = sp_i_nccl_patience_wait(n, &patience, what, err);
        if (status != SP_OK) {
            return status;
        }
        code = state_of(n, group);
    }
    return code == ncclSuccess ? SP_OK : fail_with(n, group, call, code, err);
}

// The first group whose state is an error.
static sp_status check_states(sp_i_nccl *n, sp_error *err)
{
    for (size_t i = 0; i <= n->count; i++) {
        const sp_i_nccl_group *group = i < n->count ? n->groups[i] : &n->all;
        ncclResult_t state = group->comm != NULL ? state_of(n, group) : ncclSuccess;
        if (state != ncclSuccess && state != ncclInProgress) {
            return fail_with(n, group, "CommGetAsyncError", state, err);
        }
    }
    return SP_OK;
}

sp_status sp_i_nccl_check(sp_i_nccl *n, sp_error *err)
{
    sp_status status = sp_i_nccl_failure(n, err);
    if (status == SP_OK) {
        status = check_states(n, err);
    }
    return status == SP_OK ? look_at_others(n, err) : status;
}

sp_status sp_i_nccl_synchronize(sp_i_nccl *n, cudaStream_t stream, sp_error *err)
{
    const sp_i_cuda_device *device = &n->options.device;
    sp_i_nccl_patience patience = sp_i_nccl_patience_start(n);
    sp_status status = sp_i_nccl_failure(n, err);
    while (status == SP_OK) {
        cudaError_t code = device->api->StreamQuery(stream);
        if (code != cudaErrorNotReady) {
            sp_error found = {0};
            status = sp_i_cuda_check(device, code, "cudaStreamQuery", __FILE__, __LINE__, &found);
            return status == SP_OK ? check_states(n, err)
                                   : sp_i_nccl_fail(n, err, status, "%s", found.message[0]);
        }
        // "Not ready" would stay behind as the thread's last error.
        (void)device->api->GetLastError();
        status = check_states(n, err);
        if (status == SP_OK) {
            status = sp_i_nccl_patience_wait(n, &patience, "the work of a stream", err);
        }
    }
    return status;
}
