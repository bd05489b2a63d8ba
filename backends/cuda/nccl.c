#include <stdio.h>
#include <string.h>

#include "backends/cuda/nccl.h"
#include "backends/cuda/nccl_api.h"
#include "backends/cuda/runtime.h"
#include "sim/base/alloc.h"

typedef struct sp_i_nccl_group {
    char name[SP_I_NCCL_NAME];
    int size, member; // member -1: this rank is in none
    ncclComm_t comm;
} sp_i_nccl_group;

struct sp_i_nccl {
    sp_i_nccl_options options;
    int rank, ranks;
    sp_i_nccl_api own; // the library's, where options.api was NULL
    const sp_i_nccl_api *api;
    sp_i_nccl_group all; // the ranks of the world: splitting it makes the others
    sp_i_nccl_group *groups;
    size_t count, capacity;
};

// ---- the library ----

#define ENTRY(call)                                 \
    {                                               \
        "nccl" #call, offsetof(sp_i_nccl_api, call) \
    }

bool sp_i_nccl_api_init(sp_i_nccl_api *api, char *reason, size_t reason_bytes)
{
    static const char *const names[] = {"libnccl.so.2", NULL};
    static const sp_i_library_symbol symbols[] = {
        ENTRY(GetVersion),   ENTRY(GetUniqueId), ENTRY(GetErrorString), ENTRY(GetLastError),
        ENTRY(CommInitRank), ENTRY(CommSplit),   ENTRY(CommDestroy),    ENTRY(AllReduce),
        ENTRY(Reduce),       ENTRY(Broadcast),   ENTRY(AllGather),      ENTRY(ReduceScatter),
        ENTRY(Send),         ENTRY(Recv),        ENTRY(GroupStart),     ENTRY(GroupEnd),
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

// A fault that users can put right is wrong usage: two ranks on one GPU, above all.
static sp_status status_of(ncclResult_t code)
{
    return code == ncclInvalidUsage                             ? SP_ERR_USAGE
           : code == ncclSystemError || code == ncclRemoteError ? SP_ERR_IO
                                                                : SP_ERR_INTERNAL;
}

// Turns the code that `call` (without "nccl") of the group's communicator returned into a status.
static sp_status check(const sp_i_nccl *n, const sp_i_nccl_group *group, const char *call,
                       ncclResult_t code, sp_error *err)
{
    if (code == ncclSuccess) {
        return SP_OK;
    }
    const char *last = n->api->GetLastError(group->comm);
    return sp_error_set(err, status_of(code),
                        "GPU %d: group '%s' of %d: nccl%s failed with %s: %s%s%.200s",
                        n->options.device.index, group->name, group->size, call, code_name(code),
                        n->api->GetErrorString(code), last != NULL && last[0] != '\0' ? ": " : "",
                        last != NULL ? last : "");
}

sp_status sp_i_nccl_synchronize(sp_i_nccl *n, CUstream stream, sp_error *err)
{
    return sp_i_cuda_wait_within(&n->options.device, stream, NULL, n->options.timeout_ms, err);
}

// ---- worlds ----

static sp_status load(sp_i_nccl *n, sp_error *err)
{
    char reason[SP_I_CUDA_TEXT];
    n->api = n->options.api;
    if (n->api == NULL) {
        n->api = &n->own;
        if (!sp_i_nccl_api_init(&n->own, reason, sizeof reason)) {
            return sp_error_set(err, SP_ERR_USAGE, "no NCCL: %s", reason);
        }
    }
    return SP_OK;
}

// The communicator of all ranks, which have rank 0's id. All have it when it is made.
static sp_status init_world(sp_i_nccl *n, sp_error *err)
{
    const sp_i_nccl_options *options = &n->options;
    const int version = n->api->version;
    char card[SP_I_MEETING_CARD];
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    snprintf(card, sizeof card, "NCCL %d.%d.%d, %s", version / 10000, version / 100 % 100,
             version % 100, options->card);
    sp_status status =
        n->rank == 0 ? check(n, &n->all, "GetUniqueId", n->api->GetUniqueId(&id), err) : SP_OK;
    if (status == SP_OK) {
        status =
            sp_i_meeting_give_id(options->place, card, &id, sizeof id, options->timeout_ms, err);
    }
    if (status == SP_OK) {
        status = check(n, &n->all, "CommInitRank",
                       n->api->CommInitRank(&n->all.comm, n->ranks, id, n->rank), err);
        sp_i_meeting_clear(options->place);
    }
    return status;
}

sp_status sp_i_nccl_new(const sp_i_nccl_options *options, sp_i_nccl **made, sp_error *err)
{
    *made = NULL;
    sp_i_nccl *n = sp_calloc(1, sizeof *n);
    n->options = *options;
    n->rank = options->place->rank;
    n->ranks = options->place->ranks;
    n->all = (sp_i_nccl_group){.name = "all", .size = n->ranks, .member = n->rank};
    sp_status status = load(n, err);
    status = status == SP_OK ? sp_i_cuda_use(&n->options.device, err) : status;
    status = status == SP_OK ? init_world(n, err) : status;
    n->options.place = NULL;
    n->options.card = NULL;
    if (status != SP_OK) {
        sp_free(n);
        return status;
    }
    *made = n;
    return SP_OK;
}

void sp_i_nccl_free(sp_i_nccl *n)
{
    if (n == NULL) {
        return;
    }
    for (size_t i = n->count; i > 0; i--) {
        if (n->groups[i - 1].comm != NULL) {
            (void)n->api->CommDestroy(n->groups[i - 1].comm);
        }
    }
    (void)n->api->CommDestroy(n->all.comm);
    sp_free(n->groups);
    sp_free(n);
}

int sp_i_nccl_world_version(const sp_i_nccl *n)
{
    return n->api->version;
}

// ---- groups ----

sp_status sp_i_nccl_group_new(sp_i_nccl *n, const char *name, const int *ranks, int size,
                              int *group, sp_error *err)
{
    SP_RESERVE(n->groups, n->capacity, n->count + 1);
    sp_i_nccl_group *made = &n->groups[n->count];
    *made = (sp_i_nccl_group){.size = size, .member = -1};
    snprintf(made->name, sizeof made->name, "%s", name);
    for (int i = 0; i < size; i++) {
        SP_ASSERT(ranks[i] >= 0 && ranks[i] < n->ranks);
        made->member = ranks[i] == n->rank ? i : made->member;
    }
    *group = (int)n->count++;
    const bool inside = made->member >= 0;
    return check(n, made, "CommSplit",
                 n->api->CommSplit(n->all.comm, inside ? 0 : NCCL_SPLIT_NOCOLOR,
                                   inside ? made->member : 0, &made->comm, NULL),
                 err);
}

static const sp_i_nccl_group *member_group(const sp_i_nccl *n, int group)
{
    SP_ASSERT(group >= 0 && (size_t)group < n->count && n->groups[group].member >= 0);
    return &n->groups[group];
}

// ---- calls of a group, one for one or put together of NCCL's ----

typedef struct element_type {
    ncclDataType_t type;
    size_t bytes;
} element_type;

static element_type type_of(sp_element element)
{
    static const element_type types[] = {
        [SP_ELEMENT_F32] = {ncclFloat32, 4},
        [SP_ELEMENT_F64] = {ncclFloat64, 8},
        [SP_ELEMENT_BF16] = {ncclBfloat16, 2},
        [SP_ELEMENT_BYTE] = {ncclUint8, 1},
    };
    return types[element];
}

static ncclRedOp_t operation_of(sp_element element, bool maximum)
{
    SP_ASSERT(element != SP_ELEMENT_BYTE);
    return maximum ? ncclMax : ncclSum;
}

// Calls between begin and end are put down together, at the end; pairs may stand in pairs.
static sp_status batch_begin(sp_i_nccl *n, sp_error *err)
{
    return check(n, &n->all, "GroupStart", n->api->GroupStart(), err);
}

// The whole body of a function that is one call of NCCL: returns, from parameters that every one of
// them has.
#define CALL(name, ...)                                                                          \
    do {                                                                                         \
        const sp_i_nccl_group *g = member_group(n, group);                                       \
        return count == 0 ? SP_OK                                                                \
                          : check(n, g, #name, n->api->name(__VA_ARGS__, g->comm, stream), err); \
    } while (0)
#define COUNTED (size_t) count, type_of(element).type

sp_status sp_i_nccl_all_reduce(sp_i_nccl *n, int group, sp_element element, bool maximum,
                               const void *in, void *out, int64_t count, CUstream stream,
                               sp_error *err)
{
    CALL(AllReduce, in, out, COUNTED, operation_of(element, maximum));
}

sp_status sp_i_nccl_all_gather(sp_i_nccl *n, int group, sp_element element, const void *in,
                               void *out, int64_t count, CUstream stream, sp_error *err)
{
    CALL(AllGather, in, out, COUNTED);
}

sp_status sp_i_nccl_reduce_scatter(sp_i_nccl *n, int group, sp_element element, bool maximum,
                                   const void *in, void *out, int64_t count, CUstream stream,
                                   sp_error *err)
{
    CALL(ReduceScatter, in, out, COUNTED, operation_of(element, maximum));
}

sp_status sp_i_nccl_broadcast(sp_i_nccl *n, int group, sp_element element, const void *in,
                              void *out, int64_t count, int root, CUstream stream, sp_error *err)
{
    CALL(Broadcast, in, out, COUNTED, root);
}

static sp_status reduce(sp_i_nccl *n, int group, sp_element element, bool maximum, const void *in,
                        void *out, int64_t count, int root, CUstream stream, sp_error *err)
{
    CALL(Reduce, in, out, COUNTED, operation_of(element, maximum), root);
}

// To and from a member of the group. A message that is sent and one that is received wait for each
// other on the GPU: two members that both send first need a group for each direction, on streams of
// its own, or a batch.
static sp_status send(sp_i_nccl *n, int group, sp_element element, const void *from, int64_t count,
                      int member, CUstream stream, sp_error *err)
{
    CALL(Send, from, COUNTED, member);
}

static sp_status receive(sp_i_nccl *n, int group, sp_element element, void *to, int64_t count,
                         int member, CUstream stream, sp_error *err)
{
    CALL(Recv, to, COUNTED, member);
}

// ---- put together ----

static bool all_equal(const int64_t *rows, int members)
{
    for (int j = 1; j < members; j++) {
        if (rows[j] != rows[0]) {
            return false;
        }
    }
    return true;
}

// An open batch belongs to the thread: a failure inside is returned behind its end.
static sp_status end_batch(sp_i_nccl *n, sp_status status, sp_error *err)
{
    sp_status ended =
        check(n, &n->all, "GroupEnd", n->api->GroupEnd(), status == SP_OK ? err : NULL);
    return status == SP_OK ? ended : status;
}

sp_status sp_i_nccl_all_gather_rows(sp_i_nccl *n, int group, sp_element element, const void *in,
                                    void *out, const int64_t *rows, int64_t width, CUstream stream,
                                    sp_error *err)
{
    const sp_i_nccl_group *g = member_group(n, group);
    if (all_equal(rows, g->size)) {
        return sp_i_nccl_all_gather(n, group, element, in, out, rows[0] * width, stream, err);
    }
    // One broadcast from each member.
    sp_status status = batch_begin(n, err);
    char *part = out;
    if (status != SP_OK) {
        return status;
    }
    for (int j = 0; j < g->size && status == SP_OK; j++) {
        status = sp_i_nccl_broadcast(n, group, element, j == g->member ? in : part, part,
                                     rows[j] * width, j, stream, err);
        part += (size_t)(rows[j] * width) * type_of(element).bytes;
    }
    return end_batch(n, status, err);
}

sp_status sp_i_nccl_reduce_scatter_rows(sp_i_nccl *n, int group, sp_element element, bool maximum,
                                        const void *in, void *out, const int64_t *rows,
                                        int64_t width, CUstream stream, sp_error *err)
{
    const sp_i_nccl_group *g = member_group(n, group);
    if (all_equal(rows, g->size)) {
        return sp_i_nccl_reduce_scatter(n, group, element, maximum, in, out, rows[0] * width,
                                        stream, err);
    }
    // One reduction to each member. Only there is the result written.
    sp_status status = batch_begin(n, err);
    const char *part = in;
    if (status != SP_OK) {
        return status;
    }
    for (int j = 0; j < g->size && status == SP_OK; j++) {
        status = reduce(n, group, element, maximum, part, out, rows[j] * width, j, stream, err);
        part += (size_t)(rows[j] * width) * type_of(element).bytes;
    }
    return end_batch(n, status, err);
}

sp_status sp_i_nccl_all_to_all(sp_i_nccl *n, int group, sp_element element, const void *in,
                               void *out, int64_t count, CUstream stream, sp_error *err)
{
    const size_t part = (size_t)count * type_of(element).bytes;
    const sp_i_nccl_group *g = member_group(n, group);
    SP_ASSERT(in != out || count == 0);
    SP_TRY(batch_begin(n, err));
    sp_status status = SP_OK;
    for (int j = 0; j < g->size && status == SP_OK; j++) {
        status =
            send(n, group, element, (const char *)in + (size_t)j * part, count, j, stream, err);
        if (status == SP_OK) {
            status =
                receive(n, group, element, (char *)out + (size_t)j * part, count, j, stream, err);
        }
    }
    return end_batch(n, status, err);
}

// ---- plain memory of all ranks at all of them ----

// The bytes of each rank at a time: enough for a step's report, little beside many ranks' together.
enum { MOST_BYTES = 1 << 18, MOST_OF_ALL = 1 << 25, LEAST_BYTES = 64 };

typedef struct gathering {
    sp_i_nccl *n;
    CUstream stream;
    char *device; // of each rank a part; then this rank's own
    char *host;   // [ranks] parts
    size_t part_bytes;
} gathering;

// Puts `bytes` of every rank's device beside each other.
static sp_status gather_device(const gathering *g, size_t bytes, sp_error *err)
{
    sp_i_nccl *n = g->n;
    const char *own = g->device + (size_t)n->ranks * g->part_bytes;
    return check(n, &n->all, "AllGather",
                 n->api->AllGather(own, g->device, bytes, ncclUint8, n->all.comm, g->stream), err);
}

// Gathers `bytes` of every rank, at most a part, from plain memory into g->host. Copies of plain
// memory keep the host inside the driver until what stands before them is over, which it never is
// where another rank has gone: they are called when the stream has been seen to be idle, by polls
// that end with the time limit.
static sp_status gather(const gathering *g, const void *mine, size_t bytes, sp_error *err)
{
    const size_t ranks = (size_t)g->n->ranks;
    const sp_i_cuda_device *device = &g->n->options.device;
    SP_TRY(sp_i_nccl_synchronize(g->n, g->stream, err));
    SP_TRY(SP_I_CUDA(device, err, MemcpyHtoDAsync, sp_i_cuda_at(g->device + ranks * g->part_bytes),
                     mine, bytes, g->stream));
    SP_TRY(gather_device(g, bytes, err));
    SP_TRY(sp_i_nccl_synchronize(g->n, g->stream, err));
    SP_TRY(SP_I_CUDA(device, err, MemcpyDtoHAsync, g->host, sp_i_cuda_at(g->device), ranks * bytes,
                     g->stream));
    return sp_i_nccl_synchronize(g->n, g->stream, err);
}

static sp_status gather_sizes(const gathering *g, size_t bytes, sp_transport_part *parts,
                              size_t *most, sp_error *err)
{
    const uint64_t own = bytes;
    sp_status status = gather(g, &own, sizeof own, err);
    *most = 0;
    for (int i = 0; status == SP_OK && i < g->n->ranks; i++) {
        uint64_t theirs;
        memcpy(&theirs, g->host + (size_t)i * sizeof theirs, sizeof theirs);
        parts[i].bytes = (size_t)theirs;
        parts[i].data = sp_malloc((size_t)theirs);
        *most = parts[i].bytes > *most ? parts[i].bytes : *most;
    }
    return status;
}

static sp_status gather_all(const gathering *g, const void *mine, size_t bytes,
                            sp_transport_part *parts, sp_error *err)
{
    size_t most;
    SP_TRY(gather_sizes(g, bytes, parts, &most, err));
    for (size_t done = 0; done < most; done += g->part_bytes) {
        // Ranks that gave less send zeros.
        const size_t now = most - done < g->part_bytes ? most - done : g->part_bytes;
        const size_t left = bytes > done ? bytes - done : 0;
        memset(g->host, 0, now);
        if (left > 0) {
            memcpy(g->host, (const char *)mine + done, left < now ? left : now);
        }
        SP_TRY(gather(g, g->host, now, err));
        for (int i = 0; i < g->n->ranks; i++) {
            const size_t theirs = parts[i].bytes > done ? parts[i].bytes - done : 0;
            memcpy((char *)parts[i].data + (theirs > 0 ? done : 0), g->host + (size_t)i * now,
                   theirs < now ? theirs : now);
        }
    }
    return SP_OK;
}

sp_status sp_i_nccl_exchange_bytes(sp_i_nccl *n, const void *mine, size_t bytes,
                                   sp_transport_part *parts, CUstream stream, sp_error *err)
{
    const size_t ranks = (size_t)n->ranks;
    const sp_i_cuda_device *device = &n->options.device;
    gathering g = {.n = n, .stream = stream, .part_bytes = MOST_OF_ALL / (ranks + 1)};
    void *memory = NULL;
    memset(parts, 0, ranks * sizeof *parts);
    g.part_bytes = g.part_bytes > MOST_BYTES    ? MOST_BYTES
                   : g.part_bytes < LEAST_BYTES ? LEAST_BYTES
                                                : g.part_bytes;
    g.host = sp_malloc(ranks * g.part_bytes);
    sp_status status = sp_i_cuda_use(device, err); // the thread may be any
    if (status == SP_OK) {
        status = sp_i_cuda_take(device, (ranks + 1) * g.part_bytes, &memory, err);
    }
    g.device = memory;
    status = status == SP_OK ? gather_all(&g, mine, bytes, parts, err) : status;
    // Giving memory of the GPU back may wait for its work, and so for ranks that are gone.
    if (status == SP_OK && memory != NULL) {
        sp_i_cuda_give(device, memory);
    }
    sp_free(g.host);
    for (size_t i = 0; status != SP_OK && i < ranks; i++) {
        sp_free(parts[i].data);
        parts[i] = (sp_transport_part){0};
    }
    return status;
}

enum {
    FIRST =
        -100, // of streams: lower numbers go first, and CUDA takes the nearest one that there is
    TOKEN_BYTES = 256
};

typedef struct p2p_channel {
    int group;
    int peer;        // its member that is the other end
    bool sends;      // this rank, else it receives
    CUstream stream; // NULL: this rank is neither end
} p2p_channel;

// A message that no work of the rank waits for yet.
typedef struct p2p_message {
    uint64_t number;
    CUevent over;
} p2p_message;

typedef struct nccl_transport {
    sp_transport base; // first
    sp_i_cuda_device device;
    sp_runtime *runtime;
    sp_i_nccl *n;
    const sp_i_cuda_rank *own;
    CUstream stream; // the rank's
    void *token;     // of the GPU: what a barrier adds up and a channel's first message carries
    int *groups;     // of n, those that are no channels
    size_t group_count, group_capacity;
    p2p_channel *channels;
    size_t channel_count, channel_capacity;
    p2p_message *open;
    size_t open_count, open_capacity;
    CUevent *spare; // events of messages that are waited for
    size_t spare_count, spare_capacity;
    uint64_t put; // messages so far
} nccl_transport;

static nccl_transport *of(sp_transport *transport)
{
    return (nccl_transport *)(void *)transport;
}

// ---- groups ----

static int group_at(const nccl_transport *t, int group)
{
    SP_ASSERT(group >= 0 && (size_t)group < t->group_count);
    return t->groups[group];
}

static sp_status group_new(sp_transport *transport, const char *name, const int *ranks, int size,
                           sp_error *err)
{
    nccl_transport *t = of(transport);
    SP_RESERVE(t->groups, t->group_capacity, t->group_count + 1);
    return sp_i_nccl_group_new(t->n, name, ranks, size, &t->groups[t->group_count++], err);
}

static sp_status all_reduce(sp_transport *transport, int group, sp_element element, bool maximum,
                            const void *in, void *out, int64_t count, sp_error *err)
{
    nccl_transport *t = of(transport);
    return sp_i_nccl_all_reduce(t->n, group_at(t, group), element, maximum, in, out, count,
                                t->stream, err);
}

// A sum that nobody needs: its end is after every member's begin.
static sp_status barrier(sp_transport *transport, int group, sp_error *err)
{
    void *token = of(transport)->token;
    return all_reduce(transport, group, SP_ELEMENT_F32, false, token, token, 1, err);
}

static sp_status all_gather(sp_transport *transport, int group, sp_element element, const void *in,
                            void *out, const int64_t *rows, int64_t width, sp_error *err)
{
    nccl_transport *t = of(transport);
    return sp_i_nccl_all_gather_rows(t->n, group_at(t, group), element, in, out, rows, width,
                                     t->stream, err);
}

static sp_status reduce_scatter(sp_transport *transport, int group, sp_element element,
                                bool maximum, const void *in, void *out, const int64_t *rows,
                                int64_t width, sp_error *err)
{
    nccl_transport *t = of(transport);
    return sp_i_nccl_reduce_scatter_rows(t->n, group_at(t, group), element, maximum, in, out, rows,
                                         width, t->stream, err);
}

static sp_status broadcast(sp_transport *transport, int group, sp_element element, const void *in,
                           void *out, int64_t count, int root, sp_error *err)
{
    nccl_transport *t = of(transport);
    return sp_i_nccl_broadcast(t->n, group_at(t, group), element, in, out, count, root, t->stream,
                               err);
}

// ---- messages ----

// One byte, which both ends wait for.
static sp_status connect_ends(nccl_transport *t, const p2p_channel *c, sp_error *err)
{
    SP_TRY(c->sends
               ? send(t->n, c->group, SP_ELEMENT_BYTE, t->token, 1, c->peer, c->stream, err)
               : receive(t->n, c->group, SP_ELEMENT_BYTE, t->token, 1, c->peer, c->stream, err));
    return sp_i_nccl_synchronize(t->n, c->stream, err);
}

static sp_status channel_new(sp_transport *transport, int from, int to, sp_error *err)
{
    nccl_transport *t = of(transport);
    char name[SP_I_NCCL_NAME];
    const int ends[2] = {from, to};
    SP_ASSERT(from != to);
    SP_RESERVE(t->channels, t->channel_capacity, t->channel_count + 1);
    p2p_channel *c = &t->channels[t->channel_count];
    *c = (p2p_channel){.sends = t->base.rank == from, .peer = t->base.rank == from ? 1 : 0};
    snprintf(name, sizeof name, "%d to %d", from, to);
    SP_TRY(sp_i_nccl_group_new(t->n, name, ends, 2, &c->group, err));
    t->channel_count++;
    if (t->base.rank != from && t->base.rank != to) {
        return SP_OK;
    }
    sp_status status = SP_I_CUDA(&t->device, err, StreamCreateWithPriority, &c->stream,
                                 CU_STREAM_NON_BLOCKING, FIRST);
    return status == SP_OK ? connect_ends(t, c, err) : status;
}

static sp_status take_event(nccl_transport *t, CUevent *event, sp_error *err)
{
    if (t->spare_count > 0) {
        *event = t->spare[--t->spare_count];
        return SP_OK;
    }
    return SP_I_CUDA(&t->device, err, EventCreate, event, CU_EVENT_DISABLE_TIMING);
}

// Room for all events is there when a message is put.
static void close_message(nccl_transport *t, size_t i)
{
    t->spare[t->spare_count++] = t->open[i].over;
    t->open[i] = t->open[--t->open_count];
}

static sp_status follow(nccl_transport *t, CUstream after, CUevent event, CUstream before,
                        sp_error *err)
{
    SP_TRY(SP_I_CUDA(&t->device, err, EventRecord, event, before));
    return SP_I_CUDA(&t->device, err, StreamWaitEvent, after, event, 0);
}

// The wait of the rank's stream is for the record that stands now: the event can be recorded again
// behind it.
static sp_status put(sp_transport *transport, int number, bool sends, void *data, int64_t bytes,
                     uint64_t *given, sp_error *err)
{
    nccl_transport *t = of(transport);
    SP_ASSERT(number >= 0 && (size_t)number < t->channel_count);
    const p2p_channel *c = &t->channels[number];
    SP_ASSERT(c->stream != NULL && c->sends == sends);
    size_t events = t->open_count + t->spare_count + 1;
    SP_RESERVE(t->open, t->open_capacity, events);
    SP_RESERVE(t->spare, t->spare_capacity, events);
    p2p_message *made = &t->open[t->open_count];
    SP_TRY(take_event(t, &made->over, err));
    made->number = *given = ++t->put;
    t->open_count++;
    SP_TRY(follow(t, c->stream, made->over, t->stream, err));
    SP_TRY(sends ? send(t->n, c->group, SP_ELEMENT_BYTE, data, bytes, c->peer, c->stream, err)
                 : receive(t->n, c->group, SP_ELEMENT_BYTE, data, bytes, c->peer, c->stream, err));
    return SP_I_CUDA(&t->device, err, EventRecord, made->over, c->stream);
}

static sp_status send_message(sp_transport *transport, int channel, const void *data, int64_t bytes,
                              uint64_t *message, sp_error *err)
{
    return put(transport, channel, true, (void *)(uintptr_t)data, bytes, message, err);
}

static sp_status receive_message(sp_transport *transport, int channel, void *data, int64_t bytes,
                                 uint64_t *message, sp_error *err)
{
    return put(transport, channel, false, data, bytes, message, err);
}

// A message that is not open is waited for already.
static sp_status wait_message(sp_transport *transport, uint64_t number, sp_error *err)
{
    nccl_transport *t = of(transport);
    SP_ASSERT(number > 0 && number <= t->put);
    for (size_t i = 0; i < t->open_count; i++) {
        if (t->open[i].number == number) {
            sp_status status =
                SP_I_CUDA(&t->device, err, StreamWaitEvent, t->stream, t->open[i].over, 0);
            close_message(t, i);
            return status;
        }
    }
    return SP_OK;
}

// ---- beside the device runtime ----

// A fault in the rank's own work ends the wait: others may wait for what it would have done.
static sp_status synchronize(sp_transport *transport, sp_error *err)
{
    nccl_transport *t = of(transport);
    if (t->own->status != SP_OK) {
        return sp_error_set(err, t->own->status, "%s", t->own->error.message[0]);
    }
    sp_status status = sp_i_nccl_synchronize(t->n, t->stream, err);
    for (size_t i = 0; status == SP_OK && i < t->channel_count; i++) {
        if (t->channels[i].stream != NULL) {
            status = sp_i_nccl_synchronize(t->n, t->channels[i].stream, err);
        }
    }
    while (status == SP_OK && t->open_count > 0) {
        close_message(t, t->open_count - 1);
    }
    return status;
}

// Memory for it is taken when nothing of this GPU waits for another.
static sp_status exchange(sp_transport *transport, const void *mine, size_t bytes,
                          sp_transport_part *parts, sp_error *err)
{
    nccl_transport *t = of(transport);
    memset(parts, 0, (size_t)t->base.ranks * sizeof *parts);
    SP_TRY(synchronize(transport, err));
    return sp_i_nccl_exchange_bytes(t->n, mine, bytes, parts, t->stream, err);
}

static const sp_transport_ops transport_ops = {.group_new = group_new,
                                               .barrier = barrier,
                                               .all_reduce = all_reduce,
                                               .all_gather = all_gather,
                                               .reduce_scatter = reduce_scatter,
                                               .broadcast = broadcast,
                                               .channel_new = channel_new,
                                               .send = send_message,
                                               .receive = receive_message,
                                               .wait = wait_message,
                                               .exchange = exchange,
                                               .synchronize = synchronize};

// ---- begin and end ----

static sp_status make(nccl_transport *t, const sp_i_nccl_transport_options *options, sp_error *err)
{
    sp_runtime *runtime = t->runtime;
    runtime->ops->enter(runtime, t->base.rank);
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    rank->limit_ms = options->timeout_ms;
    t->own = rank;
    t->stream = rank->stream;
    t->token = runtime->ops->allocate(runtime, TOKEN_BYTES);
    if (t->token == NULL) {
        return sp_error_set(err, SP_ERR_INFEASIBLE, "GPU %d: no %d bytes for messages",
                            t->device.index, TOKEN_BYTES);
    }
    runtime->ops->zero(runtime, t->token, TOKEN_BYTES);
    const sp_i_nccl_options world = {
        .device = options->device,
        .place = options->place,
        .card = options->card,
        .timeout_ms = options->timeout_ms,
        .api = options->api,
    };
    SP_TRY(runtime->ops->synchronize(runtime, err));
    return sp_i_nccl_new(&world, &t->n, err);
}

sp_status sp_i_nccl_transport_new(const sp_i_nccl_transport_options *options, sp_transport **made,
                                  sp_error *err)
{
    *made = NULL;
    nccl_transport *t = sp_calloc(1, sizeof *t);
    t->base = (sp_transport){&transport_ops, options->place->rank, options->place->ranks};
    t->device = options->device;
    t->runtime = options->runtime;
    sp_status status = make(t, options, err);
    if (status != SP_OK) {
        sp_free(t);
        return status;
    }
    *made = &t->base;
    return SP_OK;
}

void sp_i_nccl_transport_free(sp_transport *transport)
{
    if (transport == NULL) {
        return;
    }
    nccl_transport *t = of(transport);
    const sp_cuda_api *api = t->device.api;
    t->runtime->ops->enter(t->runtime, t->base.rank);
    (void)synchronize(transport, NULL);
    sp_i_nccl_free(t->n);
    for (size_t i = 0; i < t->spare_count; i++) {
        (void)api->EventDestroy(t->spare[i]);
    }
    for (size_t i = 0; i < t->channel_count; i++) {
        if (t->channels[i].stream != NULL) {
            (void)api->StreamDestroy(t->channels[i].stream);
        }
    }
    t->runtime->ops->release(t->runtime, t->token);
    sp_free(t->spare);
    sp_free(t->open);
    sp_free(t->channels);
    sp_free(t->groups);
    sp_free(t);
}
