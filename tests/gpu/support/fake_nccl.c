#include "tests/gpu/support/fake_nccl.h"
#include "tests/gpu/support/fake_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "tests/support/threaded_transport.h"

enum { CALLS = 64 };

fake_nccl nccl;
int fake_nccl_stream;

// ---- messages ----

// Messages between the members of a communicator, each kept until it is received.

typedef struct message {
    struct message *next;
    size_t bytes;
    unsigned char data[];
} message;

typedef struct fake_clique {
    char key[FAKE_NCCL_KEY];
    int size, joined, left;
    message *first[FAKE_NCCL_RANKS][FAKE_NCCL_RANKS];
    threaded_group group;
    struct fake_clique *next;
} clique;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static clique *cliques;

// The clique of this key, made by the first member that comes; returns when all have.
static clique *clique_join(const char *key, int size)
{
    pthread_mutex_lock(&lock);
    clique *c = cliques;
    while (c != NULL && strcmp(c->key, key) != 0) {
        c = c->next;
    }
    if (c == NULL) {
        SP_ASSERT(size <= FAKE_NCCL_RANKS);
        c = sp_calloc(1, sizeof *c);
        snprintf(c->key, sizeof c->key, "%s", key);
        c->size = c->group.size = size;
        c->next = cliques;
        cliques = c;
    }
    SP_ASSERT(c->size == size && c->joined < size);
    c->joined++;
    pthread_cond_broadcast(&changed);
    while (c->joined < c->size) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return c;
}

static void free_messages(message *m)
{
    while (m != NULL) {
        message *next = m->next;
        sp_free(m);
        m = next;
    }
}

static void free_clique(clique *c)
{
    for (int i = 0; i < FAKE_NCCL_RANKS * FAKE_NCCL_RANKS; i++) {
        free_messages(c->first[i / FAKE_NCCL_RANKS][i % FAKE_NCCL_RANKS]);
    }
    sp_free(c);
}

static void clique_leave(clique *c)
{
    pthread_mutex_lock(&lock);
    if (++c->left == c->size) {
        clique **at = &cliques;
        while (*at != c) {
            at = &(*at)->next;
        }
        *at = c->next;
        free_clique(c);
    }
    pthread_mutex_unlock(&lock);
}

// Frees those that some members never left.
static void cliques_free(void)
{
    while (cliques != NULL) {
        clique *next = cliques->next;
        free_clique(cliques);
        cliques = next;
    }
}

static void mail_send(clique *c, int from, int to, const void *data, size_t bytes)
{
    message *m = sp_malloc(sizeof *m + bytes);
    m->next = NULL;
    m->bytes = bytes;
    memcpy(m->data, data, bytes);
    pthread_mutex_lock(&lock);
    message **at = &c->first[from][to];
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = m;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

// Waits for it. False for a message of another size.
static bool mail_receive(clique *c, int from, int to, void *data, size_t bytes)
{
    pthread_mutex_lock(&lock);
    message **first = &c->first[from][to];
    while (*first == NULL) {
        pthread_cond_wait(&changed, &lock);
    }
    message *m = *first;
    *first = m->next;
    pthread_mutex_unlock(&lock);
    bool fits = m->bytes == bytes;
    if (fits) {
        memcpy(data, m->data, bytes);
    }
    sp_free(m);
    return fits;
}

// ---- what calls do ----

typedef struct fake_call {
    enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV } kind;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t operation;
    int peer; // or root
    ncclComm_t of;
} fake_call;

static sp_element element_of(ncclDataType_t type)
{
    return type == ncclUint8      ? SP_ELEMENT_BYTE
           : type == ncclBfloat16 ? SP_ELEMENT_BF16
           : type == ncclFloat32  ? SP_ELEMENT_F32
                                  : SP_ELEMENT_F64;
}

static bool collect(ncclComm_t of, const threaded_call *call)
{
    pthread_mutex_lock(&lock);
    bool fits = threaded_collective(&of->members->group, of->rank, call, &lock, &changed);
    pthread_mutex_unlock(&lock);
    return fits;
}

// A row of each member.
static const int64_t each_row[FAKE_NCCL_RANKS] = {1, 1, 1, 1, 1, 1, 1, 1};

static bool collect_call(const fake_call *c)
{
    static const threaded_kind kinds[] = {THREADED_REDUCE, THREADED_REDUCE, THREADED_BROADCAST,
                                          THREADED_GATHER, THREADED_SCATTER};
    const bool wanted = c->kind != REDUCE || c->of->rank == c->peer;
    return collect(c->of, &(threaded_call){kinds[c->kind], element_of(c->type),
                                           c->operation != ncclSum, c->in, wanted ? c->out : NULL,
                                           (int64_t)c->count, each_row, c->peer});
}

// Messages are sent in the first pass and received in the last one, so that no order of calls in a
// group lets its members wait for each other. False for calls that do not fit together.
enum { FAKE_PASSES = 3 };
static bool fake_call_done(const fake_call *c, int pass)
{
    static const bool in_pass[FAKE_PASSES][2] = {{true, false}, {false, false}, {false, true}};
    const size_t bytes = c->count * (size_t)sp_element_bytes(element_of(c->type));
    if (c->kind == SEND && in_pass[pass][0]) {
        mail_send(c->of->members, c->of->rank, c->peer, c->in, bytes);
    } else if (c->kind == RECV && in_pass[pass][1]) {
        return mail_receive(c->of->members, c->peer, c->of->rank, c->out, bytes);
    } else if (c->kind != SEND && c->kind != RECV && pass == 1) {
        return collect_call(c);
    }
    return true;
}

// ---- the library ----

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
    ncclComm_t made = sp_calloc(1, sizeof *made);
    snprintf(made->key, sizeof made->key, "%s", key);
    made->rank = rank;
    made->size = size;
    made->members = clique_join(key, size);
    atomic_fetch_add(&nccl.live, 1);
    return made;
}

static ncclResult_t init_rank(ncclComm_t *made, int ranks, ncclUniqueId id, int rank)
{
    if (fails("CommInitRank", rank)) {
        return nccl.fail_code;
    }
    *made = new_comm(id.internal, rank, ranks);
    return ncclSuccess;
}

static ncclResult_t split(ncclComm_t of, int color, int key, ncclComm_t *made, ncclConfig_t *config)
{
    SP_ASSERT(config == NULL && (color == 0 || color == NCCL_SPLIT_NOCOLOR));
    int own[2] = {color, key}, all[FAKE_NCCL_RANKS][2];
    int rank = 0, size = 0;
    if (fails("CommSplit", of->rank)) {
        return nccl.fail_code;
    }
    of->splits++;
    atomic_fetch_add(&nccl.splits, of->rank == 0);
    SP_ASSERT(collect(of, &(threaded_call){THREADED_GATHER, SP_ELEMENT_BYTE, false, own, all,
                                           sizeof own, each_row, 0}));
    for (int i = 0; i < of->size; i++) {
        size += all[i][0] == 0;
        rank += all[i][0] == 0 && all[i][1] < key;
    }
    *made = NULL;
    if (color == 0) {
        char name[FAKE_NCCL_KEY];
        snprintf(name, sizeof name, "%.140s/%d", of->key, of->splits);
        *made = new_comm(name, rank, size);
    }
    return ncclSuccess;
}

static ncclResult_t destroy(ncclComm_t of)
{
    clique_leave(of->members);
    sp_free(of);
    atomic_fetch_sub(&nccl.live, 1);
    return ncclSuccess;
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
    group.count = 0;
    return fits ? ncclSuccess : ncclInvalidArgument;
}

static ncclResult_t put(fake_call c, const char *what, CUstream stream)
{
    note(c.of->rank, what, c.type, c.count);
    if ((void *)stream != (void *)&fake_nccl_stream) {
        atomic_store(&nccl.stream_was_other, true);
    }
    if (fails(what, c.of->rank)) {
        return nccl.fail_code;
    }
    fake_stream_may_wait(stream);
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
                               ncclRedOp_t operation, ncclComm_t of, CUstream stream)
{
    return put((fake_call){ALL_REDUCE, in, out, count, type, operation, -1, of}, "AllReduce",
               stream);
}

static ncclResult_t reduce(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, int root, ncclComm_t of, CUstream stream)
{
    return put((fake_call){REDUCE, in, out, count, type, operation, root, of}, "Reduce", stream);
}

static ncclResult_t broadcast(const void *in, void *out, size_t count, ncclDataType_t type,
                              int root, ncclComm_t of, CUstream stream)
{
    return put((fake_call){BROADCAST, in, out, count, type, ncclSum, root, of}, "Broadcast",
               stream);
}

static ncclResult_t all_gather(const void *in, void *out, size_t count, ncclDataType_t type,
                               ncclComm_t of, CUstream stream)
{
    return put((fake_call){ALL_GATHER, in, out, count, type, ncclSum, -1, of}, "AllGather", stream);
}

static ncclResult_t reduce_scatter(const void *in, void *out, size_t count, ncclDataType_t type,
                                   ncclRedOp_t operation, ncclComm_t of, CUstream stream)
{
    return put((fake_call){REDUCE_SCATTER, in, out, count, type, operation, -1, of},
               "ReduceScatter", stream);
}

static ncclResult_t send_pair(const void *from, size_t count, ncclDataType_t type, int peer,
                              ncclComm_t of, CUstream stream)
{
    return put((fake_call){SEND, from, NULL, count, type, ncclSum, peer, of}, "Send", stream);
}

static ncclResult_t receive_pair(void *to, size_t count, ncclDataType_t type, int peer,
                                 ncclComm_t of, CUstream stream)
{
    return put((fake_call){RECV, NULL, to, count, type, ncclSum, peer, of}, "Recv", stream);
}

static const char *error_text(ncclResult_t code)
{
    return "text of the code";
}

static const char *last_error(ncclComm_t of)
{
    return "more about it";
}

// ---- the little of CUDA that is needed ----

static CUresult primary_context(CUcontext *context, CUdevice device)
{
    *context = NULL;
    return device < FAKE_NCCL_RANKS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult set_context(CUcontext context)
{
    return CUDA_SUCCESS;
}

static CUresult query(CUstream stream)
{
    if (nccl.query_code == CUDA_SUCCESS) {
        fake_stream_is_over(stream);
    }
    return nccl.query_code;
}

static CUresult cuda_text(CUresult code, const char **text)
{
    *text = "CUDA_ERROR_OF_TEST";
    return CUDA_SUCCESS;
}

void fake_nccl_reset(sp_i_nccl_api *api, sp_cuda_api *cuda)
{
    cliques_free();
    memset(&nccl, 0, sizeof nccl);
    nccl.version = 22809;
    *cuda = (sp_cuda_api){.DevicePrimaryCtxRetain = primary_context,
                          .CtxSetCurrent = set_context,
                          .StreamQuery = query,
                          .GetErrorName = cuda_text,
                          .GetErrorString = cuda_text};
    *api = (sp_i_nccl_api){
        .GetVersion = get_version,
        .GetUniqueId = get_id,
        .GetErrorString = error_text,
        .GetLastError = last_error,
        .CommInitRank = init_rank,
        .CommSplit = split,
        .CommDestroy = destroy,
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
