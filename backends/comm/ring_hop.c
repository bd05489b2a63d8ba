#include "backends/comm/ring_hop.h"

#include "backends/comm/private.h"
#include "sim/base/alloc.h"

enum {
    DISPATCH = SP_I_COMM_HOP_TAGS,
    ACROSS = 2 * SP_I_COMM_HOP_TAGS,
    COMBINE = 3 * SP_I_COMM_HOP_TAGS
};

static int begin_of(const sp_i_comm_ring *ring, int member)
{
    return member / ring->node * ring->node;
}

static int end_of(const sp_i_comm_ring *ring, int member)
{
    int end = begin_of(ring, member) + ring->node;
    return end < ring->size ? end : ring->size;
}

static int after(const sp_i_comm_ring *ring, int member)
{
    return member + 1 < ring->size ? member + 1 : 0;
}

static int before(const sp_i_comm_ring *ring, int member)
{
    return member > 0 ? member - 1 : ring->size - 1;
}

int sp_i_comm_hop_leaves(const sp_i_comm_ring *ring)
{
    return end_of(ring, ring->member) - 1;
}

int sp_i_comm_hop_enters(const sp_i_comm_ring *ring)
{
    return before(ring, begin_of(ring, ring->member));
}

static bool crosses(const sp_i_comm_ring *ring, int from)
{
    return begin_of(ring, from) != begin_of(ring, after(ring, from));
}

// Ways of a hop between nodes: as many members as both nodes have.
static int ways(const sp_i_comm_ring *ring, int from)
{
    int to = after(ring, from);
    int here = end_of(ring, from) - begin_of(ring, from);
    int there = end_of(ring, to) - begin_of(ring, to);
    return here < there ? here : there;
}

// Part j of so many bytes.
static size_t part_at(size_t bytes, int ways, int j)
{
    return bytes / (size_t)ways * (size_t)j + (j == ways ? bytes % (size_t)ways : 0);
}

static sp_status send(const sp_i_comm_ring *ring, int to, int tag, const void *out, size_t bytes,
                      sp_error *err)
{
    int rank = sp_comm_group_rank(ring->me->world, ring->group, to);
    return sp_comm_send(ring->me, rank, ring->tag + tag, out, bytes, err);
}

static sp_status receive(const sp_i_comm_ring *ring, int from, int tag, void *in, size_t bytes,
                         sp_error *err)
{
    int rank = sp_comm_group_rank(ring->me->world, ring->group, from);
    return sp_comm_receive(ring->me, rank, ring->tag + tag, in, bytes, err);
}

sp_status sp_i_comm_hop_send(const sp_i_comm_ring *ring, const void *out, size_t bytes,
                             sp_error *err)
{
    int next = after(ring, ring->member);
    if (!crosses(ring, ring->member)) {
        return send(ring, next, 0, out, bytes, err);
    }
    int count = ways(ring, ring->member);
    sp_status status = SP_OK;
    for (int j = 0; status == SP_OK && j < count; j++) {
        int way = begin_of(ring, ring->member) + j;
        size_t at = part_at(bytes, count, j);
        size_t part = part_at(bytes, count, j + 1) - at;
        bool own = way == ring->member;
        status = send(ring, own ? begin_of(ring, next) + j : way, own ? ACROSS : DISPATCH,
                      (const char *)out + at, part, err);
    }
    return status;
}

static sp_status pass_on(const sp_i_comm_ring *ring, int from, int from_tag, int to, int to_tag,
                         size_t bytes, sp_error *err)
{
    char *part = sp_malloc(bytes + 1);
    if (part == NULL) {
        return sp_comm_abort(ring->me, SP_ERR_NO_MEMORY, "out of memory: a part of a ring's hop");
    }
    sp_status status = receive(ring, from, from_tag, part, bytes, err);
    if (status == SP_OK) {
        status = send(ring, to, to_tag, part, bytes, err);
    }
    sp_free(part);
    return status;
}

// What this member is a way for, out of its node and into it.
static sp_status relay(const sp_i_comm_ring *ring, size_t leaving_bytes, size_t entering_bytes,
                       sp_error *err)
{
    int leaves = sp_i_comm_hop_leaves(ring);
    int enters = sp_i_comm_hop_enters(ring);
    int first = begin_of(ring, ring->member);
    int j = ring->member - first;
    sp_status status = SP_OK;
    if (crosses(ring, leaves) && ring->member != leaves && j < ways(ring, leaves)) {
        int count = ways(ring, leaves);
        size_t part = part_at(leaving_bytes, count, j + 1) - part_at(leaving_bytes, count, j);
        status = pass_on(ring, leaves, DISPATCH, begin_of(ring, after(ring, leaves)) + j, ACROSS,
                         part, err);
    }
    if (status == SP_OK && crosses(ring, enters) && j > 0 && j < ways(ring, enters)) {
        int count = ways(ring, enters);
        size_t part = part_at(entering_bytes, count, j + 1) - part_at(entering_bytes, count, j);
        status = pass_on(ring, begin_of(ring, enters) + j, ACROSS, first, COMBINE, part, err);
    }
    return status;
}

sp_status sp_i_comm_hop_receive(const sp_i_comm_ring *ring, size_t leaving_bytes,
                                size_t entering_bytes, void *in, size_t bytes, sp_error *err)
{
    int from = before(ring, ring->member);
    sp_status status = relay(ring, leaving_bytes, entering_bytes, err);
    if (status != SP_OK || !crosses(ring, from)) {
        return status == SP_OK ? receive(ring, from, 0, in, bytes, err) : status;
    }
    int count = ways(ring, from);
    for (int j = 0; status == SP_OK && j < count; j++) {
        size_t at = part_at(bytes, count, j);
        status = receive(ring, j == 0 ? begin_of(ring, from) : ring->member + j,
                         j == 0 ? ACROSS : COMBINE, (char *)in + at,
                         part_at(bytes, count, j + 1) - at, err);
    }
    return status;
}
