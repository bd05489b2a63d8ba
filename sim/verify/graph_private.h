// What the files of the dependency graph share.
#ifndef SLIMPACK_SIM_VERIFY_GRAPH_PRIVATE_H
#define SLIMPACK_SIM_VERIFY_GRAPH_PRIVATE_H

#include <igraph/igraph.h>
#include <stdbool.h>

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

struct sp_structure {
    const sp_plan *plan;
    igraph_t graph;
    bool has_graph;
    sp_i_vertex *vertices;
    size_t vertex_count;
    // By igraph's edge number, which is the order in which edges were given.
    igraph_integer_t *ends; // 2 per edge: from, to
    int64_t *lag_ns;
    uint8_t *reason;
    size_t edge_count, edge_capacity, lag_capacity, reason_capacity;
};

// A failure inside igraph as an error of ours.
sp_status sp_i_igraph_failed(sp_error *err, const char *what, igraph_error_t code);

// ---- Vertices (graph_vertices.c) ----

enum { SP_I_SHARE_ENDS = SP_SHARE_HEAD_BACKWARD + 1 };

// Vertex of each action, by kind of pass, pack, data-parallel rank and virtual stage.
typedef struct sp_i_vertex_map {
    size_t *slot[2];       // first slot of each pack: forward, backward
    size_t *vertex[2];     // [slots * vstages] + 1, 0 for none: F, and B or I
    size_t *recompute;     // the same for R, by forward slots
    size_t *offload;       // for O
    size_t *load;          // for L
    bool copies;           // there is an O
    int32_t *forward_pack; // of each backward slice, NULL where equal
    size_t vstages;
    // Of a vocabulary that pipeline ranks share; the vertex + 1 as above. By end, of F or else of
    // R, and [slots * pp]: each rank's share. By the same, [slots]: the stage's action itself.
    sp_shares shares;
    size_t *share[SP_I_SHARE_ENDS][2], *stage[SP_I_SHARE_ENDS][2];
} sp_i_vertex_map;

// Numbers all actions, lane after lane, into s->vertices. forward_pack and shares of the map are
// there already. False without memory.
bool sp_i_structure_number(sp_structure *s, const sp_step_costs *costs, sp_i_vertex_map *map);
void sp_i_vertex_map_fini(sp_i_vertex_map *map);

static inline bool sp_i_structure_is_backward(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_I || action.kind == SP_ACTION_W;
}

static inline const sp_pack *sp_i_structure_pack(const sp_plan *plan, int side, int32_t pack)
{
    return side == 1 ? &sp_packing_backward(plan->packing)->packs[pack]
                     : &plan->packing->forward.packs[pack];
}

// Where an action stands in the tables that go by slot and virtual stage. side: 0 forward, 1
// backward.
size_t sp_i_vertex_map_index(const sp_plan *plan, const sp_i_vertex_map *map, int side,
                             int32_t pack, int dp, int vstage);
// In those that go by slot alone.
size_t sp_i_vertex_map_share(const sp_plan *plan, const sp_i_vertex_map *map, sp_action action,
                             int dp);

// ---- Edges (graph_build.c) ----

// What every numbered vertex waits for, and for how long after. False without memory.
bool sp_i_structure_connect(sp_structure *s, const sp_step_costs *costs,
                            const sp_i_vertex_map *map);

#endif
