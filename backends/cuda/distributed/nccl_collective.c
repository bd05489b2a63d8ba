// Calls of a group, one for one or put together of NCCL's.
#include "backends/cuda/distributed/nccl_world.h"

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

// The group, or NULL where the world has failed.
static sp_i_nccl_group *enter(sp_i_nccl *n, int group, sp_status *status, sp_error *err)
{
    SP_ASSERT(group >= 0 && (size_t)group < n->count && n->groups[group]->member >= 0);
    *status = sp_i_nccl_failure(n, err);
    return *status == SP_OK ? n->groups[group] : NULL;
}

// In a batch what is in progress is waited for at its end.
static sp_status leave(sp_i_nccl *n, sp_i_nccl_group *group, const char *call, ncclResult_t code,
                       sp_error *err)
{
    group->used = n->batch > 0;
    return sp_i_nccl_finish(n, group, call,
                            group->used && code == ncclInProgress ? ncclSuccess : code, err);
}

sp_status sp_i_nccl_batch_begin(sp_i_nccl *n, sp_error *err)
{
    sp_status status = sp_i_nccl_failure(n, err);
    if (status != SP_OK) {
        return status;
    }
    ncclResult_t code = n->api->GroupStart();
    n->batch += code == ncclSuccess;
    return sp_i_nccl_finish(n, &n->all, "GroupStart", code, err);
}

sp_status sp_i_nccl_batch_end(sp_i_nccl *n, sp_error *err)
{
    sp_status status = sp_i_nccl_failure(n, err);
    if (status != SP_OK) {
        return status;
    }
    SP_ASSERT(n->batch > 0);
    n->batch--;
    ncclResult_t code = n->api->GroupEnd();
    if (n->batch > 0) {
        return sp_i_nccl_finish(n, &n->all, "GroupEnd", code == ncclInProgress ? ncclSuccess : code,
                                err);
    }
    bool any = false;
    for (size_t i = 0; i < n->count && status == SP_OK; i++) {
        sp_i_nccl_group *group = n->groups[i];
        if (group->used) {
            any = true;
            group->used = false;
            status = sp_i_nccl_finish(n, group, "GroupEnd", code, err);
        }
    }
    return any ? status : sp_i_nccl_finish(n, &n->all, "GroupEnd", code, err);
}

// All of a function that is one call of NCCL: returns, from parameters that every one of them has.
#define CALL(name, ...)                                                                   \
    do {                                                                                  \
        sp_status status;                                                                 \
        sp_i_nccl_group *g = enter(n, group, &status, err);                               \
        return g == NULL || count == 0                                                    \
                   ? status                                                               \
                   : leave(n, g, #name, n->api->name(__VA_ARGS__, g->comm, stream), err); \
    } while (0)
#define COUNTED (size_t) count, type_of(element).type

sp_status sp_i_nccl_all_reduce(sp_i_nccl *n, int group, sp_element element, bool maximum,
                               const void *in, void *out, int64_t count, cudaStream_t stream,
                               sp_error *err)
{
    CALL(AllReduce, in, out, COUNTED, operation_of(element, maximum));
}

sp_status sp_i_nccl_all_gather(sp_i_nccl *n, int group, sp_element element, const void *in,
                               void *out, int64_t count, cudaStream_t stream, sp_error *err)
{
    CALL(AllGather, in, out, COUNTED);
}

sp_status sp_i_nccl_reduce_scatter(sp_i_nccl *n, int group, sp_element element, bool maximum,
                                   const void *in, void *out, int64_t count, cudaStream_t stream,
                                   sp_error *err)
{
    CALL(ReduceScatter, in, out, COUNTED, operation_of(element, maximum));
}

sp_status sp_i_nccl_broadcast(sp_i_nccl *n, int group, sp_element element, const void *in,
                              void *out, int64_t count, int root, cudaStream_t stream,
                              sp_error *err)
{
    CALL(Broadcast, in, out, COUNTED, root);
}

static sp_status reduce(sp_i_nccl *n, int group, sp_element element, bool maximum, const void *in,
                        void *out, int64_t count, int root, cudaStream_t stream, sp_error *err)
{
    CALL(Reduce, in, out, COUNTED, operation_of(element, maximum), root);
}

sp_status sp_i_nccl_send(sp_i_nccl *n, int group, sp_element element, const void *from,
                         int64_t count, int member, cudaStream_t stream, sp_error *err)
{
    CALL(Send, from, COUNTED, member);
}

sp_status sp_i_nccl_receive(sp_i_nccl *n, int group, sp_element element, void *to, int64_t count,
                            int member, cudaStream_t stream, sp_error *err)
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

// Ends a batch of this file's; a failure inside has ended it already.
static sp_status end_batch(sp_i_nccl *n, sp_status status, sp_error *err)
{
    return status == SP_OK ? sp_i_nccl_batch_end(n, err) : status;
}

sp_status sp_i_nccl_all_gather_rows(sp_i_nccl *n, int group, sp_element element, const void *in,
                                    void *out, const int64_t *rows, int64_t width,
                                    cudaStream_t stream, sp_error *err)
{
    sp_status status;
    const sp_i_nccl_group *g = enter(n, group, &status, err);
    if (g == NULL) {
        return status;
    }
    if (all_equal(rows, g->size)) {
        return sp_i_nccl_all_gather(n, group, element, in, out, rows[0] * width, stream, err);
    }
    // One broadcast from each member.
    status = sp_i_nccl_batch_begin(n, err);
    char *part = out;
    for (int j = 0; j < g->size && status == SP_OK; j++) {
        status = sp_i_nccl_broadcast(n, group, element, j == g->member ? in : part, part,
                                     rows[j] * width, j, stream, err);
        part += (size_t)(rows[j] * width) * type_of(element).bytes;
    }
    return end_batch(n, status, err);
}

sp_status sp_i_nccl_reduce_scatter_rows(sp_i_nccl *n, int group, sp_element element, bool maximum,
                                        const void *in, void *out, const int64_t *rows,
                                        int64_t width, cudaStream_t stream, sp_error *err)
{
    sp_status status;
    const sp_i_nccl_group *g = enter(n, group, &status, err);
    if (g == NULL) {
        return status;
    }
    if (all_equal(rows, g->size)) {
        return sp_i_nccl_reduce_scatter(n, group, element, maximum, in, out, rows[0] * width,
                                        stream, err);
    }
    // One reduction to each member. Only there is the result written.
    status = sp_i_nccl_batch_begin(n, err);
    const char *part = in;
    for (int j = 0; j < g->size && status == SP_OK; j++) {
        status = reduce(n, group, element, maximum, part, out, rows[j] * width, j, stream, err);
        part += (size_t)(rows[j] * width) * type_of(element).bytes;
    }
    return end_batch(n, status, err);
}

sp_status sp_i_nccl_all_to_all(sp_i_nccl *n, int group, sp_element element, const void *in,
                               void *out, int64_t count, cudaStream_t stream, sp_error *err)
{
    const size_t part = (size_t)count * type_of(element).bytes;
    sp_status status;
    const sp_i_nccl_group *g = enter(n, group, &status, err);
    if (g == NULL) {
        return status;
    }
    SP_ASSERT(in != out || count == 0);
    status = sp_i_nccl_batch_begin(n, err);
    for (int j = 0; j < g->size && status == SP_OK; j++) {
        status = sp_i_nccl_send(n, group, element, (const char *)in + (size_t)j * part, count, j,
                                stream, err);
        if (status == SP_OK) {
            status = sp_i_nccl_receive(n, group, element, (char *)out + (size_t)j * part, count, j,
                                       stream, err);
        }
    }
    return end_batch(n, status, err);
}
