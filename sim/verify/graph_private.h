// What the files of the dependency graph share.
#ifndef SLIMPACK_SIM_VERIFY_GRAPH_PRIVATE_H
#define SLIMPACK_SIM_VERIFY_GRAPH_PRIVATE_H

#include <igraph/igraph.h>
#include <stdbool.h>

#include "sim/base/alloc.h"
#include "sim/plan/vocab_shares.h"
#include "sim/verify/dependency_graph.h"

// Why one action waits for another.
typedef enum sp_i_wait {
    WAIT_ORDER,
    WAIT_INPUT,
    WAIT_GRADIENT,
    WAIT_ACTIVATIONS,
    WAIT_MEMBER,
    WAIT_COPY_OUT,
    WAIT_COPY_BACK,
    WAIT_SHARE
} sp_i_wait;

typedef struct sp_i_vertex {
    sp_action action;
    uint8_t share; // 0, or 1 + the end of which this is its rank's share
    int dp, pp;
    int64_t duration_ns;
} sp_i_vertex;

// One action waits for another; the second may start `lag_ns` after the end of the first.
typedef struct sp_i_edge {
    size_t from, to;
    int64_t lag_ns;
    sp_i_wait reason;
} sp_i_edge;

struct sp_structure {
    const sp_plan *plan;
    igraph_t graph;
    bool has_graph;
    sp_i_vertex *vertices;
    size_t vertex_count;
    sp_i_edge *edges; // by igraph's edge number, which is the order in which edges were given
    size_t edge_count, edge_capacity;
};

// Between them igraph is used, by one thread at a time; its errors are returned.
void sp_i_igraph_begin(void);
void sp_i_igraph_end(void);

// A failure inside igraph as an error of ours.
sp_status sp_i_igraph_failed(sp_error *err, const char *what, igraph_error_t code);

// The bare graph.
igraph_error_t sp_i_structure_create(const sp_structure *s, igraph_t *graph);

enum { SP_I_SHARE_ENDS = SP_SHARE_HEAD_BACKWARD + 1 };

// A structure in the making. Tables give a vertex + 1, 0 for none.
typedef struct sp_i_builder {
    sp_structure *s;
    const sp_step_costs *costs;
    sp_depends index; // for the places of packs in the tables, not for its rules
    // By kind, and by slot of the pack and virtual stage: F, B (or I), R, O and L. The first of an
    // overlapped pair has the vertex of the second, when what it gives is there.
    size_t *of[SP_ACTION_KINDS];
    bool copies; // there is an O
    // Of a network that transfers shared: how long what F, or B and I, gave was under way; NULL: as
    // the costs say.
    const sp_timeline *ran;
    int64_t *lag_ns[2];
    // Of a vocabulary that pipeline ranks share. By end, of F or else of R, and [slots * pp]: each
    // rank's share. `stage`, by end and F or R, [slots]: the stage's action itself.
    sp_shares shares;
    size_t *share[SP_I_SHARE_ENDS][2], *stage[SP_I_SHARE_ENDS][2];
    sp_arena work; // its tables
} sp_i_builder;

// Numbers all actions, rank after rank, into s->vertices (graph_vertices.c). Index and shares are
// there already.
void sp_i_structure_number(sp_i_builder *b);

static inline int sp_i_structure_vstage(const sp_i_builder *b, const sp_i_vertex *at)
{
    return sp_layout_vstage(&b->s->plan->layout, at->pp, at->action.chunk);
}

// The forward packs that an action reads on its own rank: how many, and the i-th.
static inline size_t sp_i_structure_reads(const sp_i_builder *b, sp_action action)
{
    bool regrouped = b->index.forward_pack != NULL && sp_action_is_backward(action);
    return regrouped ? sp_depends_pack(&b->index, action)->slice_count : 1;
}

static inline int32_t sp_i_structure_read(const sp_i_builder *b, sp_action action, size_t i)
{
    bool regrouped = b->index.forward_pack != NULL && sp_action_is_backward(action);
    size_t slice = regrouped ? sp_depends_pack(&b->index, action)->first_slice + i : 0;
    return regrouped ? b->index.forward_pack[slice] : action.pack;
}

// The vertex of an action of `kind` for a pack, + 1.
static inline size_t sp_i_structure_find(const sp_i_builder *b, sp_action_kind kind, int32_t pack,
                                         int dp, int vstage)
{
    const sp_action action = {.kind = (uint8_t)kind, .pack = pack};
    return b->of[kind][sp_depends_entry(&b->index, action, dp, vstage)];
}

#endif
