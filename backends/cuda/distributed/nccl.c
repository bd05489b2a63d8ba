// Worlds of NCCL and their groups.
#include "backends/cuda/distributed/nccl.h"

#include <stdio.h>
#include <string.h>

#include "backends/cuda/distributed/nccl_world.h"
#include "sim/base/alloc.h"

#define ENTRY(call)                                 \
    {                                               \
        "nccl" #call, offsetof(sp_i_nccl_api, call) \
    }

bool sp_i_nccl_api_init(sp_i_nccl_api *api, char *reason, size_t reason_bytes)
{
    static const char *const names[] = {"libnccl.so.2", NULL};
    static const sp_i_library_symbol symbols[] = {
        ENTRY(GetVersion),
        ENTRY(GetUniqueId),
        ENTRY(GetErrorString),
        ENTRY(GetLastError),
        ENTRY(CommInitRankConfig),
        ENTRY(CommSplit),
        ENTRY(CommGetAsyncError),
        ENTRY(CommFinalize),
        ENTRY(CommDestroy),
        ENTRY(CommAbort),
        ENTRY(AllReduce),
        ENTRY(Reduce),
        ENTRY(Broadcast),
        ENTRY(AllGather),
        ENTRY(ReduceScatter),
        ENTRY(Send),
        ENTRY(Recv),
        ENTRY(GroupStart),
        ENTRY(GroupEnd),
    };
    if (!sp_i_library_open(names, symbols, sizeof symbols / sizeof *symbols, api, reason,
                           reason_bytes)) {
        return false;
    }
    api->version = 0;
    if (api->GetVersion(&api->version) != ncclSuccess || api->version < SP_I_NCCL_OLDEST) {
        snprintf(reason, reason_bytes, "NCCL %d.%d is older than %d.%d", api->version / 10000,
                 api->version / 100 % 100, SP_I_NCCL_OLDEST / 10000, SP_I_NCCL_OLDEST / 100 % 100);
        return false;
    }
    return true;
}

int sp_i_nccl_version(char reason[SP_I_CUDA_TEXT])
{
    sp_i_nccl_api api;
    reason[0] = '\0';
    return sp_i_nccl_api_init(&api, reason, SP_I_CUDA_TEXT) ? api.version : 0;
}

static sp_status broadcast(sp_i_nccl *n, void *data, size_t bytes, sp_error *err)
{
    sp_error found = {0};
    sp_status status = sp_i_rendezvous_broadcast(n->options.rendezvous, data, bytes, &found);
    return status == SP_OK ? SP_OK : sp_i_nccl_follow(n, err, &found);
}

// The communicator of all ranks, which have rank 0's id.
static sp_status init_world(sp_i_nccl *n, sp_error *err)
{
    sp_i_nccl_group *group = &n->all;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    memset(&id, 0, sizeof id);
    sp_status status = SP_OK;
    if (group->member == 0) {
        status = sp_i_nccl_finish(n, group, "GetUniqueId", n->api->GetUniqueId(&id), err);
    }
    status = status == SP_OK ? broadcast(n, &id, sizeof id, err) : status;
    if (status != SP_OK) {
        return status;
    }
    ncclResult_t code = n->api->CommInitRankConfig((ncclComm_t *)&group->comm, group->size, id,
                                                   group->member, &config);
    return sp_i_nccl_finish(n, group, "CommInitRankConfig", code, err);
}

static sp_status compare_versions(sp_i_nccl *n, sp_error *err)
{
    int first = n->api->version;
    sp_status status = broadcast(n, &first, sizeof first, err);
    if (status != SP_OK) {
        return status;
    }
    return first == n->api->version
               ? SP_OK
               : sp_i_nccl_fail(n, err, SP_ERR_USAGE, "NCCL is %d here and %d at rank 0",
                                n->api->version, first);
}

static sp_status load(sp_i_nccl *n, sp_error *err)
{
    char reason[SP_I_CUDA_TEXT];
    n->api = n->options.api;
    if (n->api == NULL) {
        n->api = &n->own;
        if (!sp_i_nccl_api_init(&n->own, reason, sizeof reason)) {
            return sp_i_nccl_fail(n, err, SP_ERR_USAGE, "no NCCL: %s", reason);
        }
    }
    return SP_OK;
}

static sp_status make_world(sp_i_nccl *n, sp_error *err)
{
    sp_error found = {0};
    sp_status status = load(n, err);
    if (status == SP_OK) {
        status = sp_i_cuda_use(&n->options.device, &found);
        status = status == SP_OK ? SP_OK : sp_i_nccl_fail(n, err, status, "%s", found.message[0]);
    }
    if (status == SP_OK) {
        status = compare_versions(n, err);
    }
    return status == SP_OK ? init_world(n, err) : status;
}

sp_status sp_i_nccl_new(const sp_i_nccl_options *options, sp_i_nccl **made, sp_error *err)
{
    sp_i_nccl *n = sp_calloc(1, sizeof *n);
    *made = n;
    if (n == NULL) {
        return sp_error_no_memory(err, "a world of NCCL");
    }
    n->options = *options;
    n->rank = sp_i_rendezvous_rank(options->rendezvous);
    n->ranks = sp_i_rendezvous_ranks(options->rendezvous);
    n->all = (sp_i_nccl_group){.name = "all", .size = n->ranks, .member = n->rank};
    sp_status status = make_world(n, err);
    if (status != SP_OK) {
        sp_i_nccl_free(n);
        *made = NULL;
    }
    return status;
}

// A call that fails has aborted all communicators: there is nothing left to end then.
static void end_comm(sp_i_nccl *n, sp_i_nccl_group *group)
{
    if (group->comm != NULL && sp_i_nccl_finish(n, group, "CommFinalize",
                                                n->api->CommFinalize(group->comm), NULL) == SP_OK) {
        (void)n->api->CommDestroy(group->comm);
    }
    group->comm = NULL;
}

void sp_i_nccl_free(sp_i_nccl *n)
{
    if (n == NULL) {
        return;
    }
    for (size_t i = n->count; i > 0; i--) {
        end_comm(n, n->groups[i - 1]);
    }
    end_comm(n, &n->all);
    for (size_t i = 0; i < n->count; i++) {
        sp_free(n->groups[i]);
    }
    sp_free(n->groups);
    sp_free(n);
}

int sp_i_nccl_world_version(const sp_i_nccl *n)
{
    return n->api->version;
}

// ---- groups ----

// All ranks of the world call it; those that are no members get none. The child is there when the
// parent is done with splitting, and can be used when its own state says so (NVIDIA/nccl#1472).
static sp_status split(sp_i_nccl *n, sp_i_nccl_group *group, sp_error *err)
{
    char what[SP_I_CUDA_TEXT];
    const bool inside = group->member >= 0;
    sp_i_nccl_patience patience = sp_i_nccl_patience_start(n);
    ncclResult_t code =
        n->api->CommSplit(n->all.comm, inside ? 0 : NCCL_SPLIT_NOCOLOR, inside ? group->member : 0,
                          (ncclComm_t *)&group->comm, NULL);
    sp_status status = sp_i_nccl_finish(n, &n->all, "CommSplit", code, err);
    snprintf(what, sizeof what, "group '%s' of %d: ncclCommSplit", group->name, group->size);
    while (status == SP_OK && inside && group->comm == NULL) {
        status = sp_i_nccl_patience_wait(n, &patience, what, err);
        if (status == SP_OK) {
            status = sp_i_nccl_finish(n, &n->all, "CommSplit", ncclInProgress, err);
        }
    }
    return status == SP_OK && inside ? sp_i_nccl_finish(n, group, "CommSplit", ncclInProgress, err)
                                     : status;
}

sp_status sp_i_nccl_group_new(sp_i_nccl *n, const char *name, const int *ranks, int size,
                              int *group, sp_error *err)
{
    SP_ASSERT(n->batch == 0);
    sp_status status = sp_i_nccl_failure(n, err);
    if (status != SP_OK) {
        return status;
    }
    sp_i_nccl_group *made = sp_calloc(1, sizeof *made);
    if (made == NULL ||
        !sp_reserve((void **)&n->groups, &n->capacity, n->count + 1, sizeof *n->groups)) {
        sp_free(made);
        return sp_i_nccl_fail(n, err, SP_ERR_NO_MEMORY, "out of memory for a group");
    }
    snprintf(made->name, sizeof made->name, "%s", name);
    made->size = size;
    made->member = -1;
    for (int i = 0; i < size; i++) {
        SP_ASSERT(ranks[i] >= 0 && ranks[i] < n->ranks);
        made->member = ranks[i] == n->rank ? i : made->member;
    }
    *group = (int)n->count;
    n->groups[n->count++] = made;
    return split(n, made, err);
}

int sp_i_nccl_member(const sp_i_nccl *n, int group)
{
    SP_ASSERT(group >= 0 && (size_t)group < n->count);
    return n->groups[group]->member;
}
