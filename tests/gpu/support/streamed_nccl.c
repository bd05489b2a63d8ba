#include "tests/gpu/support/streamed_nccl.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/status.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/gpu/support/fake_nccl.h"

enum { SEND_END, RECEIVE_END, ENDS };

typedef struct put_down {
    void *data;
    size_t bytes;
} put_down;

// From one member of a communicator to another.
typedef struct link {
    struct link *next;
    char key[FAKE_NCCL_KEY]; // of the communicator
    int from, to;
    put_down *calls[ENDS];
    size_t count[ENDS], over;
    CUstream stream[ENDS];
} link;

// An event, recorded behind so many calls of an end.
typedef struct mark {
    CUevent event;
    link *on;
    size_t count;
} mark;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static link *links;
static mark *marks;
static size_t mark_count, mark_capacity;
static int unequal;
static sp_i_nccl_api plain_nccl;
static sp_cuda_api plain_cuda;
static _Thread_local int depth; // of groups

int streamed_nccl_unequal(void)
{
    return unequal;
}

static void free_links(void)
{
    while (links != NULL) {
        link *next = links->next;
        sp_free(links->calls[SEND_END]);
        sp_free(links->calls[RECEIVE_END]);
        sp_free(links);
        links = next;
    }
}

static void *grown(void *items, size_t bytes)
{
    void *made = sp_realloc(items, bytes);
    return made;
}

// ---- with the lock held ----

static link *link_of(const char *key, int from, int to)
{
    link *l = links;
    while (l != NULL && (l->from != from || l->to != to || strcmp(l->key, key) != 0)) {
        l = l->next;
    }
    if (l == NULL) {
        l = sp_calloc(1, sizeof *l);
        snprintf(l->key, sizeof l->key, "%s", key);
        l->from = from;
        l->to = to;
        l->next = links;
        links = l;
    }
    return l;
}

static link *link_on(CUstream stream, int *end)
{
    for (link *l = links; l != NULL; l = l->next) {
        for (*end = 0; *end < ENDS; (*end)++) {
            if (l->count[*end] > 0 && l->stream[*end] == stream) {
                return l;
            }
        }
    }
    return NULL;
}

// Whether that many messages are over, which both ends have put down.
static bool move(link *l, size_t wanted)
{
    while (l->over < wanted && l->over < l->count[SEND_END] && l->over < l->count[RECEIVE_END]) {
        const put_down *in = &l->calls[SEND_END][l->over];
        const put_down *out = &l->calls[RECEIVE_END][l->over];
        unequal += in->bytes != out->bytes;
        memcpy(out->data, in->data, in->bytes < out->bytes ? in->bytes : out->bytes);
        l->over++;
        pthread_cond_broadcast(&changed);
    }
    return l->over >= wanted;
}

static void await(link *l, size_t wanted)
{
    while (!move(l, wanted)) {
        pthread_cond_wait(&changed, &lock);
    }
}

// ---- calls of NCCL ----

static ncclResult_t put(ncclComm_t of, int end, int peer, void *data, size_t count,
                        ncclDataType_t type, CUstream stream)
{
    static const char *const names[] = {"Send", "Recv"};
    SP_ASSERT(type == ncclUint8 && of->size == 2 && peer != of->rank);
    if (nccl.fail != NULL && strcmp(nccl.fail, names[end]) == 0 && nccl.fail_rank == of->rank) {
        return nccl.fail_code;
    }
    pthread_mutex_lock(&lock);
    int other_end;
    link *l =
        link_of(of->key, end == SEND_END ? of->rank : peer, end == SEND_END ? peer : of->rank);
    const link *there = link_on(stream, &other_end);
    SP_ASSERT(there == NULL || (there == l && other_end == end));
    l->stream[end] = stream;
    l->calls[end] = grown(l->calls[end], (l->count[end] + 1) * sizeof *l->calls[end]);
    l->calls[end][l->count[end]++] = (put_down){data, count};
    pthread_cond_broadcast(&changed);
    while (l->count[!end] == 0) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

static ncclResult_t send_message(const void *from, size_t count, ncclDataType_t type, int peer,
                                 ncclComm_t of, CUstream stream)
{
    return depth > 0 ? plain_nccl.Send(from, count, type, peer, of, stream)
                     : put(of, SEND_END, peer, (void *)(uintptr_t)from, count, type, stream);
}

static ncclResult_t receive_message(void *to, size_t count, ncclDataType_t type, int peer,
                                    ncclComm_t of, CUstream stream)
{
    return depth > 0 ? plain_nccl.Recv(to, count, type, peer, of, stream)
                     : put(of, RECEIVE_END, peer, to, count, type, stream);
}

static ncclResult_t group_start(void)
{
    ncclResult_t code = plain_nccl.GroupStart();
    depth += code == ncclSuccess;
    return code;
}

static ncclResult_t group_end(void)
{
    depth--;
    return plain_nccl.GroupEnd();
}

// ---- calls of CUDA ----

static mark *mark_of(CUevent event)
{
    for (size_t i = 0; i < mark_count; i++) {
        if (marks[i].event == event) {
            return &marks[i];
        }
    }
    return NULL;
}

static CUresult record(CUevent event, CUstream stream)
{
    int end;
    pthread_mutex_lock(&lock);
    link *on = link_on(stream, &end);
    mark *m = mark_of(event);
    if (on != NULL && m == NULL) {
        if (mark_count == mark_capacity) {
            mark_capacity = 2 * mark_capacity + 16;
            marks = grown(marks, mark_capacity * sizeof *marks);
        }
        m = &marks[mark_count++];
    }
    if (m != NULL) {
        *m = (mark){event, on, on != NULL ? on->count[end] : 0};
    }
    pthread_mutex_unlock(&lock);
    return plain_cuda.EventRecord(event, stream);
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned flags)
{
    pthread_mutex_lock(&lock);
    const mark *m = mark_of(event);
    const mark behind = m != NULL ? *m : (mark){0};
    if (behind.on != NULL) {
        await(behind.on, behind.count);
    }
    pthread_mutex_unlock(&lock);
    return plain_cuda.StreamWaitEvent(stream, event, flags);
}

static CUresult query(CUstream stream)
{
    int end;
    pthread_mutex_lock(&lock);
    link *l = link_on(stream, &end);
    bool is_over = l == NULL || move(l, l->count[end]);
    pthread_mutex_unlock(&lock);
    if (is_over) {
        fake_stream_is_over(stream);
    }
    return is_over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult synchronize(CUstream stream)
{
    int end;
    pthread_mutex_lock(&lock);
    link *l = link_on(stream, &end);
    if (l != NULL) {
        await(l, l->count[end]);
    }
    pthread_mutex_unlock(&lock);
    return plain_cuda.StreamSynchronize(stream);
}

// Another may be made at its address.
static CUresult destroy(CUstream stream)
{
    int end;
    pthread_mutex_lock(&lock);
    link *l = link_on(stream, &end);
    if (l != NULL) {
        l->stream[end] = NULL;
    }
    pthread_mutex_unlock(&lock);
    return plain_cuda.StreamDestroy(stream);
}

static CUresult destroy_event(CUevent event)
{
    pthread_mutex_lock(&lock);
    mark *m = mark_of(event);
    if (m != NULL) {
        *m = marks[--mark_count];
    }
    pthread_mutex_unlock(&lock);
    return plain_cuda.EventDestroy(event);
}

void streamed_nccl_reset(sp_i_nccl_api *nccl_table, sp_cuda_api *cuda)
{
    free_links();
    sp_free(marks);
    marks = NULL;
    mark_count = mark_capacity = 0;
    unequal = 0;
    plain_nccl = *nccl_table;
    plain_cuda = *cuda;
    nccl_table->Send = send_message;
    nccl_table->Recv = receive_message;
    nccl_table->GroupStart = group_start;
    nccl_table->GroupEnd = group_end;
    cuda->EventRecord = record;
    cuda->EventDestroy = destroy_event;
    cuda->StreamWaitEvent = wait_event;
    cuda->StreamQuery = query;
    cuda->StreamSynchronize = synchronize;
    cuda->StreamDestroy = destroy;
}
