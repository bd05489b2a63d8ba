#include "backends/cuda/collective_nccl.h"

#include "sim/base/alloc.h"

// Sizes 2, 4, ... of a world of SP_I_BOOTSTRAP_RANKS.
enum { GROUPS = 17 };

typedef struct groups {
    sp_i_nccl *n;
    int group[GROUPS]; // of the first 2, 4, ... ranks and of all
} groups;

static int place_of(int ranks)
{
    int i = 0;
    while (2 << i < ranks) {
        i++;
    }
    return i;
}

static sp_status put(void *context, sp_collective kind, int ranks, const void *in, void *out,
                     int64_t bytes, cudaStream_t stream, sp_error *err)
{
    const groups *g = context;
    const int group = g->group[place_of(ranks)];
    const sp_element type = SP_ELEMENT_BF16;
    const int64_t all = bytes / 2;
    const int64_t part = all / ranks;
    switch (kind) {
    case SP_ALL_REDUCE:
        return sp_i_nccl_all_reduce(g->n, group, type, false, in, out, all, stream, err);
    case SP_ALL_GATHER:
        return sp_i_nccl_all_gather(g->n, group, type, in, out, part, stream, err);
    case SP_REDUCE_SCATTER:
        return sp_i_nccl_reduce_scatter(g->n, group, type, false, in, out, part, stream, err);
    case SP_ALL_TO_ALL:
        return sp_i_nccl_all_to_all(g->n, group, type, in, out, part, stream, err);
    case SP_COLLECTIVES:
        break;
    }
    SP_UNREACHABLE("a collective that is timed");
}

static sp_status settle(void *context, cudaStream_t stream, sp_error *err)
{
    const groups *g = context;
    return sp_i_nccl_settle(g->n, stream, err);
}

static sp_status make_groups(groups *g, int ranks, sp_error *err)
{
    int *members = sp_i_calloc((size_t)ranks, sizeof *members);
    if (members == NULL) {
        return sp_error_no_memory(err, "a group");
    }
    for (int i = 0; i < ranks; i++) {
        members[i] = i;
    }
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i <= place_of(ranks); i++) {
        const int size = 2 << i < ranks ? 2 << i : ranks;
        status = sp_i_nccl_group_new(g->n, "first", members, size, &g->group[i], err);
    }
    sp_i_free(members);
    return status;
}

sp_status sp_i_nccl_time_collectives(sp_i_nccl *n, const sp_i_cuda_collective_bench *bench,
                                     json_t **tables, sp_error *err)
{
    groups g = {.n = n};
    sp_i_cuda_collective_bench b = *bench;
    sp_error found = {0};
    b.put = put;
    b.settle = settle;
    b.context = &g;
    *tables = NULL;
    sp_status status = make_groups(&g, b.ranks, &found);
    if (status == SP_OK) {
        status = sp_i_cuda_time_collectives(&b, tables, &found);
    }
    if (status != SP_OK) {
        // Most are the world's own already, and the first stands.
        (void)sp_i_nccl_abort(n, status, "%s", found.message[0]);
        return sp_i_nccl_check(n, err);
    }
    return SP_OK;
}
