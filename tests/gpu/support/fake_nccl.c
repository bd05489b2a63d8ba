#include "tests/gpu/support/fake_nccl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/status.h"
#include "tests/gpu/support/fake_nccl_calls.h"

enum { LOOKS = 3, CALLS = 64 };

fake_nccl nccl;
int fake_nccl_stream;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local struct {
    int depth, count;
    fake_call calls[CALLS];
} group;

static void note(int rank, const char *what, ncclDataType_t type, size_t count)
{
    static const char *const names[] = {[ncclUint8] = "byte",
                                        [ncclFloat32] = "f32",
                                        [ncclFloat64] = "f64",
                                        [ncclBfloat16] = "bf16"};
    if (rank == 0) {
        pthread_mutex_lock(&log_lock);
        size_t used = strlen(nccl.log);
        snprintf(nccl.log + used, sizeof nccl.log - used, "%s %s %zu; ", what, names[type], count);
        pthread_mutex_unlock(&log_lock);
    }
}

static bool fails(const char *what, int rank)
{
    return nccl.fail != NULL && strcmp(nccl.fail, what) == 0 && rank == nccl.fail_rank;
}

// What a call of the communicator returns, and its state from then on.
static ncclResult_t start(ncclComm_t of, const char *what)
{
    of->looks = LOOKS;
    if (of->after == ncclSuccess && fails(what, of->rank)) {
        if (nccl.fail_way == FAKE_NCCL_AT_ONCE) {
            return nccl.fail_code;
        }
        of->after = nccl.fail_way == FAKE_NCCL_NEVER ? ncclInProgress : nccl.fail_code;
    }
    return ncclInProgress;
}

// ---- communicators ----

static ncclResult_t get_version(int *version)
{
    *version = nccl.version;
    return ncclSuccess;
}

static ncclResult_t get_id(ncclUniqueId *id)
{
    if (fails("GetUniqueId", 0)) {
        return nccl.fail_code;
    }
    snprintf(id->internal, sizeof id->internal, "id %d", atomic_fetch_add(&nccl.ids, 1));
    return ncclSuccess;
}

static ncclComm_t new_comm(const char *key, int rank, int size)
{
    ncclComm_t made = calloc(1, sizeof *made);
    SP_ASSERT(made != NULL);
    snprintf(made->key, sizeof made->key, "%s", key);
    made->rank = rank;
    made->size = size;
    made->members = clique_join(key, size);
    atomic_fetch_add(&nccl.live, 1);
    return made;
}

static ncclResult_t init_rank(ncclComm_t *made, int ranks, ncclUniqueId id, int rank,
                              ncclConfig_t *config)
{
    SP_ASSERT(config->blocking == 0);
    *made = new_comm(id.internal, rank, ranks);
    return start(*made, "CommInitRankConfig");
}

static ncclResult_t split(ncclComm_t of, int color, int key, ncclComm_t *made, ncclConfig_t *config)
{
    SP_ASSERT(config == NULL && (color == 0 || color == NCCL_SPLIT_NOCOLOR));
    int own[2] = {color, key};
    int rank = 0, size = 0;
    of->splits++;
    atomic_fetch_add(&nccl.splits, of->rank == 0);
    for (int i = 0; i < of->size; i++) {
        mail_send(of->members, MAIL_COLLECTIVES, of->rank, i, own, sizeof own);
    }
    for (int i = 0; i < of->size; i++) {
        int other[2];
        if (!mail_receive(of->members, MAIL_COLLECTIVES, i, of->rank, other, sizeof other)) {
            return ncclRemoteError;
        }
        size += other[0] == 0;
        rank += other[0] == 0 && other[1] < key;
    }
    *made = NULL;
    if (color == 0) {
        char name[160];
        snprintf(name, sizeof name, "%.140s/%d", of->key, of->splits);
        of->child = new_comm(name, rank, size);
        of->child_to = made;
        of->child_looks = 0;
        (void)start(of->child, "the child");
    }
    return start(of, "CommSplit");
}

static ncclResult_t get_state(ncclComm_t of, ncclResult_t *state)
{
    *state = ncclInProgress;
    if (fails("CommGetAsyncError", of->rank)) {
        *state = nccl.fail_code;
        return ncclSuccess;
    }
    if (of->looks > 0 || !clique_is_full(of->members)) {
        of->looks--;
        return ncclSuccess;
    }
    *state = of->after;
    if (of->child != NULL && *state == ncclSuccess && ++of->child_looks > LOOKS) {
        *of->child_to = of->child;
        of->child = NULL;
    }
    return ncclSuccess;
}

static ncclResult_t finalize(ncclComm_t of)
{
    return start(of, "CommFinalize");
}

static ncclResult_t destroy(ncclComm_t of)
{
    if (of->child != NULL) {
        (void)destroy(of->child);
    }
    clique_leave(of->members);
    free(of);
    atomic_fetch_sub(&nccl.live, 1);
    return ncclSuccess;
}

static ncclResult_t abort_comm(ncclComm_t of)
{
    atomic_fetch_add(&nccl.aborted, 1);
    atomic_fetch_add(&nccl.aborted_alone, group.depth == 0);
    clique_break(of->members);
    return destroy(of);
}

// ---- calls ----

static ncclResult_t run_group(void)
{
    bool fits = true;
    for (int pass = 0; pass < FAKE_PASSES; pass++) {
        for (int i = 0; i < group.count; i++) {
            fits = fake_call_done(&group.calls[i], pass) && fits;
        }
    }
    bool alone = group.count > 0 && clique_is_broken(group.calls[0].of->members);
    group.count = 0;
    return fits ? ncclInProgress : alone ? ncclRemoteError : ncclInvalidArgument;
}

static ncclResult_t put(fake_call c, const char *what, cudaStream_t stream)
{
    note(c.of->rank, what, c.type, c.count);
    if ((void *)stream != (void *)&fake_nccl_stream) {
        atomic_store(&nccl.stream_was_other, true);
    }
    ncclResult_t code = start(c.of, what);
    if (code != ncclInProgress || c.of->after != ncclSuccess) {
        return code;
    }
    SP_ASSERT(group.count < CALLS);
    group.calls[group.count++] = c;
    return group.depth > 0 ? ncclSuccess : run_group();
}

static ncclResult_t group_start(void)
{
    if (fails("GroupStart", 0)) {
        return nccl.fail_code;
    }
    group.depth++;
    atomic_fetch_add(&nccl.open, 1);
    return ncclSuccess;
}

static ncclResult_t group_end(void)
{
    SP_ASSERT(group.depth > 0);
    group.depth--;
    atomic_fetch_sub(&nccl.open, 1);
    if (fails("GroupEnd", 0)) {
        group.count = 0;
        return nccl.fail_code;
    }
    return group.depth > 0 ? ncclSuccess : run_group();
}

static ncclResult_t all_reduce(const void *in, void *out, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t of, cudaStream_t stream)
{
    return put((fake_call){ALL_REDUCE, in, out, count, type, operation, -1, of}, "AllReduce",
               stream);
}

static ncclResult_t reduce(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, int root, ncclComm_t of, cudaStream_t stream)
{
    return put((fake_call){REDUCE, in, out, count, type, operation, root, of}, "Reduce", stream);
}

static ncclResult_t broadcast(const void *in, void *out, size_t count, ncclDataType_t type,
                              int root, ncclComm_t of, cudaStream_t stream)
{
    return put((fake_call){BROADCAST, in, out, count, type, ncclSum, root, of}, "Broadcast",
               stream);
}

static ncclResult_t all_gather(const void *in, void *out, size_t count, ncclDataType_t type,
                               ncclComm_t of, cudaStream_t stream)
{
    return put((fake_call){ALL_GATHER, in, out, count, type, ncclSum, -1, of}, "AllGather", stream);
}

static ncclResult_t reduce_scatter(const void *in, void *out, size_t count, ncclDataType_t type,
                                   ncclRedOp_t operation, ncclComm_t of, cudaStream_t stream)
{
    return put((fake_call){REDUCE_SCATTER, in, out, count, type, operation, -1, of},
               "ReduceScatter", stream);
}

static ncclResult_t send_pair(const void *from, size_t count, ncclDataType_t type, int peer,
                              ncclComm_t of, cudaStream_t stream)
{
    return put((fake_call){SEND, from, NULL, count, type, ncclSum, peer, of}, "Send", stream);
}

static ncclResult_t receive_pair(void *to, size_t count, ncclDataType_t type, int peer,
                                 ncclComm_t of, cudaStream_t stream)
{
    return put((fake_call){RECV, NULL, to, count, type, ncclSum, peer, of}, "Recv", stream);
}

static const char *error_text(ncclResult_t code)
{
    (void)code;
    return "text of the code";
}

static const char *last_error(ncclComm_t of)
{
    (void)of;
    return "more about it";
}

// ---- the little of CUDA that is needed ----

static cudaError_t set_device(int device)
{
    atomic_fetch_add(&nccl.set_devices, 1);
    return device < FAKE_NCCL_RANKS ? cudaSuccess : cudaErrorInvalidDevice;
}

static cudaError_t query(cudaStream_t stream)
{
    (void)stream;
    return nccl.query_code;
}

static cudaError_t clear(void)
{
    return cudaSuccess;
}

static const char *cuda_text(cudaError_t code)
{
    (void)code;
    return "cudaErrorOfTest";
}

void fake_nccl_reset(sp_i_nccl_api *api, sp_i_cuda_api *cuda)
{
    cliques_free();
    memset(&nccl, 0, sizeof nccl);
    nccl.version = 22809;
    *cuda = (sp_i_cuda_api){.SetDevice = set_device,
                            .StreamQuery = query,
                            .GetLastError = clear,
                            .GetErrorName = cuda_text,
                            .GetErrorString = cuda_text};
    *api = (sp_i_nccl_api){
        .GetVersion = get_version,
        .GetUniqueId = get_id,
        .GetErrorString = error_text,
        .GetLastError = last_error,
        .CommInitRankConfig = init_rank,
        .CommSplit = split,
        .CommGetAsyncError = get_state,
        .CommFinalize = finalize,
        .CommDestroy = destroy,
        .CommAbort = abort_comm,
        .AllReduce = all_reduce,
        .Reduce = reduce,
        .Broadcast = broadcast,
        .AllGather = all_gather,
        .ReduceScatter = reduce_scatter,
        .Send = send_pair,
        .Recv = receive_pair,
        .GroupStart = group_start,
        .GroupEnd = group_end,
        .version = 22809,
    };
}
