// The vertices of the dependency graph: every action's number and duration, and where it is found.
#ifndef SLIMPACK_SIM_VERIFY_STRUCTURE_MAP_H
#define SLIMPACK_SIM_VERIFY_STRUCTURE_MAP_H

#include "sim/plan/vocab_shares.h"
#include "sim/verify/structure_private.h"

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

#endif
