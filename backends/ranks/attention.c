// Attention of a sample that several ranks hold, in blocks of keys.
#include <string.h>

#include "backends/ranks/attention.h"
#include "backends/ranks/private.h"
#include "kernels/kernels.h"
#include "sim/base/alloc.h"

// ---- A step round a ring ----

// Hops from node to node may be routed over other members of both nodes, as Zeppelin's routing
// layer uses all NICs (arXiv 2509.21841): the sender gives each of them a part (dispatch), these
// send theirs across, and the receiver puts together the parts that its neighbours have got
// (combine).

typedef struct token_ring {
    sp_comm *me;
    int group;
    int tag; // and those a multiple of HOP_TAGS above it
    int size, member;
    int node; // members of a node, neighbours in the group; the last node may have fewer
} token_ring;

enum { HOP_TAGS = 16 };

enum { DISPATCH = HOP_TAGS, ACROSS = 2 * HOP_TAGS, COMBINE = 3 * HOP_TAGS };

static int begin_of(const token_ring *ring, int member)
{
    return member / ring->node * ring->node;
}

static int end_of(const token_ring *ring, int member)
{
    int end = begin_of(ring, member) + ring->node;
    return end < ring->size ? end : ring->size;
}

static int after(const token_ring *ring, int member)
{
    return member + 1 < ring->size ? member + 1 : 0;
}

static int before(const token_ring *ring, int member)
{
    return member > 0 ? member - 1 : ring->size - 1;
}

// The member from which a hop leaves this member's node, and the one from which one enters it.
static int hop_leaves(const token_ring *ring)
{
    return end_of(ring, ring->member) - 1;
}

static int hop_enters(const token_ring *ring)
{
    return before(ring, begin_of(ring, ring->member));
}

static bool crosses(const token_ring *ring, int from)
{
    return begin_of(ring, from) != begin_of(ring, after(ring, from));
}

// Paths of a hop between nodes: as many members as both nodes have.
static int paths(const token_ring *ring, int from)
{
    int to = after(ring, from);
    int here = end_of(ring, from) - begin_of(ring, from);
    int there = end_of(ring, to) - begin_of(ring, to);
    return here < there ? here : there;
}

// Part j of so many bytes.
static size_t part_at(size_t bytes, int paths, int j)
{
    return bytes / (size_t)paths * (size_t)j + (j == paths ? bytes % (size_t)paths : 0);
}

static sp_status send(const token_ring *ring, int to, int tag, const void *out, size_t bytes,
                      sp_error *err)
{
    int rank = sp_comm_group_rank(ring->me->world, ring->group, to);
    return sp_comm_send(ring->me, rank, ring->tag + tag, out, bytes, err);
}

static sp_status receive(const token_ring *ring, int from, int tag, void *in, size_t bytes,
                         sp_error *err)
{
    int rank = sp_comm_group_rank(ring->me->world, ring->group, from);
    return sp_comm_receive(ring->me, rank, ring->tag + tag, in, bytes, err);
}

// Sends to the next member: a step begins with it.
static sp_status hop_send(const token_ring *ring, const void *out, size_t bytes, sp_error *err)
{
    int next = after(ring, ring->member);
    if (!crosses(ring, ring->member)) {
        return send(ring, next, 0, out, bytes, err);
    }
    int count = paths(ring, ring->member);
    for (int j = 0; j < count; j++) {
        int path = begin_of(ring, ring->member) + j;
        size_t begin_bytes = part_at(bytes, count, j);
        size_t part = part_at(bytes, count, j + 1) - begin_bytes;
        bool own = path == ring->member;
        SP_TRY(send(ring, own ? begin_of(ring, next) + j : path, own ? ACROSS : DISPATCH,
                    (const char *)out + begin_bytes, part, err));
    }
    return SP_OK;
}

static sp_status pass_on(const token_ring *ring, int from, int from_tag, int to, int to_tag,
                         size_t bytes, sp_error *err)
{
    char *part = sp_malloc(bytes + 1);
    sp_status status = receive(ring, from, from_tag, part, bytes, err);
    if (status == SP_OK) {
        status = send(ring, to, to_tag, part, bytes, err);
    }
    sp_free(part);
    return status;
}

// Passes on the parts that take their path by this member, out of its node and into it.
static sp_status relay(const token_ring *ring, size_t leaving_bytes, size_t entering_bytes,
                       sp_error *err)
{
    int leaves = hop_leaves(ring);
    int enters = hop_enters(ring);
    int first = begin_of(ring, ring->member);
    int j = ring->member - first;
    sp_status status = SP_OK;
    if (crosses(ring, leaves) && ring->member != leaves && j < paths(ring, leaves)) {
        int count = paths(ring, leaves);
        size_t part = part_at(leaving_bytes, count, j + 1) - part_at(leaving_bytes, count, j);
        status = pass_on(ring, leaves, DISPATCH, begin_of(ring, after(ring, leaves)) + j, ACROSS,
                         part, err);
    }
    if (status == SP_OK && crosses(ring, enters) && j > 0 && j < paths(ring, enters)) {
        int count = paths(ring, enters);
        size_t part = part_at(entering_bytes, count, j + 1) - part_at(entering_bytes, count, j);
        status = pass_on(ring, begin_of(ring, enters) + j, ACROSS, first, COMBINE, part, err);
    }
    return status;
}

// Receives from the member before, after passing on parts of the hops, so many bytes in all, that
// leave this member's node and that enter it. No step blocks for good: the member that is
// furthest behind finds its queue to the next one empty, so it can always send, and its predecessor
// has sent, or can.
static sp_status hop_receive(const token_ring *ring, size_t leaving_bytes, size_t entering_bytes,
                             void *in, size_t bytes, sp_error *err)
{
    int from = before(ring, ring->member);
    sp_status status = relay(ring, leaving_bytes, entering_bytes, err);
    if (status != SP_OK || !crosses(ring, from)) {
        return status == SP_OK ? receive(ring, from, 0, in, bytes, err) : status;
    }
    int count = paths(ring, from);
    for (int j = 0; status == SP_OK && j < count; j++) {
        size_t begin_bytes = part_at(bytes, count, j);
        status = receive(ring, j == 0 ? begin_of(ring, from) : ring->member + j,
                         j == 0 ? ACROSS : COMBINE, (char *)in + begin_bytes,
                         part_at(bytes, count, j + 1) - begin_bytes, err);
    }
    return status;
}

// ---- Queries of this member against the keys of one shard, in either type ----

// The member's own tensors; those that a pass does not use are NULL.
typedef struct attention_queries {
    const void *q, *dout, *lse_in, *delta;
    void *out, *max, *sum, *dq;
} attention_queries;

// Keys and values of one shard, and their gradients.
typedef struct attention_keys {
    const void *k, *v;
    void *dk, *dv;
} attention_keys;

// Where the rows of one run of queries and one of keys begin in the shards' buffers, in elements.
typedef struct pair {
    sp_kernel_attention_block block;
    int64_t q, out, row, key;
} pair;

typedef void visit(const sp_kernel_attention_shape *shape, const pair *p,
                   const attention_queries *mine, const attention_keys *theirs, void *tiles);

static void for_visible_pairs(const sp_kernel_attention_shape *shape, const sp_comm_shard *queries,
                              const sp_comm_shard *keys, const attention_queries *mine,
                              const attention_keys *theirs, void *tiles, visit *take)
{
    int64_t query_row = 0;
    for (int i = 0; i < queries->count; i++) {
        sp_token_run query = queries->runs[i];
        int64_t key_row = 0;
        query_row = queries->rows != NULL ? queries->rows[i] : query_row;
        for (int j = 0; j < keys->count; j++) {
            sp_token_run key = keys->runs[j];
            pair p = {.block = {query.begin, query.tokens, key.begin, key.tokens},
                      .q = query_row * shape->q_stride,
                      .out = query_row * shape->out_stride,
                      .row = query_row * shape->heads,
                      .key = key_row * shape->kv_stride};
            if (query.tokens > 0 && key.tokens > 0 && key.begin < query.begin + query.tokens) {
                take(shape, &p, mine, theirs, tiles);
            }
            key_row += key.tokens;
        }
        query_row += query.tokens;
    }
}

// Both ways, in fp32 and in fp64.
#define BLOCKS(suffix, real)                                                                   \
    static void forward_##suffix(const sp_kernel_attention_shape *shape, const pair *p,        \
                                 const attention_queries *mine, const attention_keys *theirs,  \
                                 void *tiles)                                                  \
    {                                                                                          \
        sp_kernel_attention_block_##suffix(                                                    \
            shape, &p->block, (const real *)mine->q + p->q, (const real *)theirs->k + p->key,  \
            (const real *)theirs->v + p->key, (real *)mine->out + p->out,                      \
            (real *)mine->max + p->row, (real *)mine->sum + p->row, tiles);                    \
    }                                                                                          \
    static void backward_##suffix(const sp_kernel_attention_shape *shape, const pair *p,       \
                                  const attention_queries *mine, const attention_keys *theirs, \
                                  void *tiles)                                                 \
    {                                                                                          \
        sp_kernel_attention_block_backward_##suffix(                                           \
            shape, &p->block, (const real *)mine->q + p->q, (const real *)theirs->k + p->key,  \
            (const real *)theirs->v + p->key, (const real *)mine->dout + p->out,               \
            (const real *)mine->lse_in + p->row, (const real *)mine->delta + p->row,           \
            (real *)mine->dq + p->q, (real *)theirs->dk + p->key, (real *)theirs->dv + p->key, \
            tiles);                                                                            \
    }

BLOCKS(f32, float)
BLOCKS(f64, double)

// ---- A pass over the shards of all members ----

// One call, and how its workspace is laid out. Key and value of a token stand one behind the other
// in a row, and so do their gradients.
typedef struct pass {
    sp_comm *me;
    const sp_comm_attention *attention;
    sp_kernel_attention_shape packed; // the shape, with the stride of rows
    int size, member;
    size_t element_bytes;
    int64_t width;     // of a row
    int64_t *rows;     // [size], tokens of each member's keys
    int64_t held_rows; // room for
    const char *own;   // this member's rows
    char *kv, *dkv, *tiles;
    attention_queries mine;
} pass;

int64_t sp_comm_shard_tokens(const sp_comm_shard *shard)
{
    int64_t tokens = 0;
    for (int i = 0; i < shard->count; i++) {
        tokens += shard->runs[i].tokens;
    }
    return tokens;
}

static int64_t kernel_elements(const sp_comm_attention *a, int64_t queries)
{
    return a->type == SP_ELEMENT_F64 ? sp_kernel_attention_workspace_f64(a->shape, queries)
                                     : sp_kernel_attention_workspace_f32(a->shape, queries);
}

static int64_t rows_held(const sp_comm_attention *a, int size)
{
    int64_t most = 0;
    int64_t all = 0;
    for (int j = 0; j < size; j++) {
        int64_t rows = sp_comm_shard_tokens(&a->keys[j]);
        all += rows;
        most = rows > most ? rows : most;
    }
    return a->way == SP_COMM_GATHERED ? all : most;
}

static int64_t row_width(const sp_kernel_attention_shape *shape)
{
    return shape->kv_heads * (shape->head_dim + sp_kernel_value_dim(shape));
}

static int64_t key_width(const sp_kernel_attention_shape *shape)
{
    return shape->kv_heads * shape->head_dim;
}

int64_t sp_comm_attention_workspace(const sp_comm *me, const sp_comm_attention *attention)
{
    int size = sp_comm_group_size(me->world, attention->group);
    int64_t queries = sp_comm_shard_tokens(&attention->queries);
    int64_t elements = 2 * rows_held(attention, size) * row_width(attention->shape) +
                       kernel_elements(attention, queries);
    return size * (int64_t)sizeof(int64_t) + elements * sp_element_bytes(attention->type);
}

static pass pass_of(sp_comm *me, const sp_comm_attention *a, void *workspace)
{
    SP_ASSERT(!me->world->fenced);
    pass p = {.me = me,
              .attention = a,
              .packed = *a->shape,
              .size = sp_comm_group_size(me->world, a->group),
              .member = sp_comm_member(me, a->group),
              .element_bytes = (size_t)sp_element_bytes(a->type),
              .width = row_width(a->shape),
              .rows = workspace};
    p.packed.kv_stride = p.width;
    for (int j = 0; j < p.size; j++) {
        p.rows[j] = sp_comm_shard_tokens(&a->keys[j]);
    }
    p.held_rows = rows_held(a, p.size);
    size_t held_bytes = (size_t)(p.held_rows * p.width) * p.element_bytes;
    p.kv = (char *)(p.rows + p.size);
    p.dkv = p.kv + held_bytes;
    p.tiles = p.dkv + held_bytes;
    return p;
}

static size_t message_bytes(const pass *p, int member)
{
    return (size_t)(p->rows[member] * p->width) * p->element_bytes;
}

// Bytes before a member's keys where those of all are held.
static size_t message_offset(const pass *p, int member)
{
    size_t bytes = 0;
    for (int j = 0; j < member; j++) {
        bytes += message_bytes(p, j);
    }
    return bytes;
}

static size_t own_offset(const pass *p)
{
    return p->attention->way == SP_COMM_GATHERED ? message_offset(p, p->member) : 0;
}

static const char *own_rows(const pass *p, const char *k, const char *v)
{
    size_t row = (size_t)p->width * p->element_bytes;
    size_t keys = (size_t)key_width(p->attention->shape) * p->element_bytes;
    size_t stride = (size_t)p->attention->shape->kv_stride * p->element_bytes;
    if (p->rows[p->member] > 0 && stride == row && v == k + keys) {
        return k;
    }
    char *to = p->kv + own_offset(p);
    for (int64_t t = 0; t < p->rows[p->member]; t++) {
        memcpy(to + (size_t)t * row, k + (size_t)t * stride, keys);
        memcpy(to + (size_t)t * row + keys, v + (size_t)t * stride, row - keys);
    }
    return to;
}

static void add(const pass *p, int64_t n, const void *row, void *sum)
{
    if (p->attention->type == SP_ELEMENT_F64) {
        sp_kernel_add_f64(n, row, sum);
    } else {
        sp_kernel_add_f32(n, row, sum);
    }
}

static void add_own_gradients(const pass *p, const char *rows, char *dk, char *dv)
{
    int64_t keys = key_width(p->attention->shape);
    size_t row = (size_t)p->width * p->element_bytes;
    size_t stride = (size_t)p->attention->shape->kv_stride * p->element_bytes;
    for (int64_t t = 0; t < p->rows[p->member]; t++) {
        const char *from = rows + (size_t)t * row;
        add(p, keys, from, dk + (size_t)t * stride);
        add(p, p->width - keys, from + (size_t)keys * p->element_bytes, dv + (size_t)t * stride);
    }
}

static void visit_shard(const pass *p, int owner, const char *kv, char *dkv)
{
    const sp_comm_attention *a = p->attention;
    size_t keys = (size_t)key_width(a->shape) * p->element_bytes;
    attention_keys theirs = {.k = kv, .v = kv + keys};
    bool f64 = a->type == SP_ELEMENT_F64;
    visit *take = f64 ? forward_f64 : forward_f32;
    if (dkv != NULL) {
        theirs.dk = dkv;
        theirs.dv = dkv + keys;
        take = f64 ? backward_f64 : backward_f32;
    }
    for_visible_pairs(&p->packed, &a->queries, &a->keys[owner], &p->mine, &theirs, p->tiles, take);
}

// ---- Round the ring: in step s a member works on the keys of the one s places before it ----

static int owner_of(const pass *p, int member, int step)
{
    return (member + p->size - step % p->size) % p->size;
}

static int owner_at(const pass *p, int step)
{
    return owner_of(p, p->member, step);
}

// Receives what the member before sends in this step, and passes on hops of others.
static sp_status hop_in(const pass *p, const token_ring *ring, int step, void *in, sp_error *err)
{
    size_t leaving = message_bytes(p, owner_of(p, hop_leaves(ring), step));
    size_t entering = message_bytes(p, owner_of(p, hop_enters(ring), step));
    size_t coming = message_bytes(p, owner_at(p, step + 1));
    return hop_receive(ring, leaving, entering, in, coming, err);
}

// Keys are on their way to the next member while this one works on them.
static sp_status visit_ring(const pass *p, bool backward, sp_error *err)
{
    const sp_comm_attention *a = p->attention;
    int node = a->way == SP_COMM_ROUTED ? a->node_members : p->size;
    const token_ring keys = {p->me, a->group, a->tag, p->size, p->member, node};
    const token_ring gradients = {p->me, a->group, a->tag + 1, p->size, p->member, node};
    for (int step = 0; step < p->size; step++) {
        bool last = step + 1 == p->size;
        const char *kv = step == 0 ? p->own : p->kv;
        size_t here = message_bytes(p, owner_at(p, step));
        if (!last) {
            SP_TRY(hop_send(&keys, kv, here, err));
        }
        visit_shard(p, owner_at(p, step), kv, backward ? p->dkv : NULL);
        if (backward && p->size > 1) {
            SP_TRY(hop_send(&gradients, p->dkv, here, err));
            SP_TRY(hop_in(p, &gradients, step, p->dkv, err));
        }
        if (!last) {
            SP_TRY(hop_in(p, &keys, step, p->kv, err));
        }
    }
    return SP_OK;
}

static void visit_gathered(const pass *p, bool backward)
{
    for (int step = 0; step < p->size; step++) {
        int owner = owner_at(p, step);
        size_t offset = message_offset(p, owner);
        visit_shard(p, owner, p->kv + offset, backward ? p->dkv + offset : NULL);
    }
}

// ---- Both ways ----

static sp_status visit_all(const pass *p, bool backward, sp_error *err)
{
    const sp_comm_attention *a = p->attention;
    if (a->way != SP_COMM_GATHERED) {
        return visit_ring(p, backward, err);
    }
    SP_TRY(sp_comm_all_gather(p->me, a->group, a->type, p->own, p->kv, p->rows, p->width, err));
    visit_gathered(p, backward);
    return SP_OK;
}

sp_status sp_comm_attention_forward_block(sp_comm *me, const sp_comm_attention *attention,
                                          const void *q, const void *k, const void *v, void *out,
                                          void *max, void *sum, void *workspace, sp_error *err)
{
    pass p = pass_of(me, attention, workspace);
    p.own = own_rows(&p, k, v);
    p.mine = (attention_queries){.q = q, .out = out, .max = max, .sum = sum};
    return visit_all(&p, false, err);
}

sp_status sp_comm_attention_backward_block(sp_comm *me, const sp_comm_attention *attention,
                                           const void *q, const void *k, const void *v,
                                           const void *dout, const void *lse, const void *delta,
                                           void *dq, void *dk, void *dv, void *workspace,
                                           sp_error *err)
{
    pass p = pass_of(me, attention, workspace);
    p.own = own_rows(&p, k, v);
    p.mine = (attention_queries){.q = q, .dout = dout, .lse_in = lse, .delta = delta, .dq = dq};
    memset(p.dkv, 0, (size_t)(p.held_rows * p.width) * p.element_bytes);
    sp_status status = visit_all(&p, true, err);
    char *own = p.dkv + own_offset(&p);
    if (status == SP_OK && attention->way == SP_COMM_GATHERED) {
        status = sp_comm_reduce_scatter(me, attention->group, attention->type, SP_COMM_SUM, p.dkv,
                                        own, p.rows, p.width, err);
    }
    if (status == SP_OK) {
        add_own_gradients(&p, own, dk, dv);
    }
    return status;
}
