// One rank of a timeline as an allocator sees it: its units, what passes between them, its copies.
#ifndef SLIMPACK_SIM_ENGINE_ALLOCATOR_LANE_H
#define SLIMPACK_SIM_ENGINE_ALLOCATOR_LANE_H

#include "sim/engine/allocator_unit.h"
#include "sim/plan/timeline.h"

// What one rank of the timeline needs for its replays.
typedef struct sp_i_lane {
    const sp_plan *plan;
    const sp_model *model;
    const sp_memory_options *options;
    const sp_rank_timeline *rank;
    // The rank's actions; backward packs by the number of their forward pack. Owned.
    sp_action *actions;
    size_t action_count;
    sp_stage *vstages; // [pp * chunks]; owned
    sp_stage *stages;  // [chunks]: of this rank; owned
    // Shapes of the packs' units, at [pack * chunks + chunk]: made when first asked for, equal ones
    // shared.
    sp_i_unit_shape **shape_of;
    sp_i_unit_shape **shapes; // owned
    size_t shape_count, shape_capacity;
    // What the last shape of each chunk was made for.
    const sp_pack **shaped_for; // [chunks]
    sp_i_unit *units;           // [packs * chunks]
    int32_t *next_forward;      // [actions]: the first forward at or behind it, or -1
    int32_t *next_backward;     // the same for B and I
    sp_i_unit_memory memory;
    // Memory between units.
    int32_t received, received_gradient; // for the next forward and backward
    int32_t sent, sent_gradient;         // by the last ones
    // Copies under way, by unit, or NULL.
    sp_i_unit *leaving, *coming;
    int64_t events; // replayed so far
} sp_i_lane;

// forward_pack: the forward pack of each backward pack; NULL where they are the same list. To be
// freed with sp_i_lane_fini whatever comes back.
sp_status sp_i_lane_init(sp_i_lane *l, const sp_plan *plan, const sp_rank_timeline *rank,
                         const sp_model *model, const sp_memory_options *options,
                         const int32_t *forward_pack, sp_error *err);
void sp_i_lane_fini(sp_i_lane *l);

// One step on l->memory, which afterwards holds what it held before, and the load buffers.
sp_status sp_i_lane_step(sp_i_lane *l, sp_error *err);

#endif
