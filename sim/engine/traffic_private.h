// What the files of a step's traffic share.
#ifndef SLIMPACK_SIM_ENGINE_TRAFFIC_PRIVATE_H
#define SLIMPACK_SIM_ENGINE_TRAFFIC_PRIVATE_H

#include "sim/engine/traffic.h"
#include "sim/network/route.h"

// A route, whose transfers are flows or take their closed times.
typedef struct sp_i_way {
    sp_route route;
    bool is_used, is_flow;
} sp_i_way;

// Tags of flows that are no sends: a pipeline rank's reduction.
enum { SP_I_TAG_SEND = 0, SP_I_TAG_REDUCTION = 1 };

// The gradients of one model chunk.
typedef struct sp_i_chunk_gradients {
    size_t left;               // actions that make some, on all data-parallel ranks
    bool is_made;              // and not reduced
    int64_t first_ns, last_ns; // when the first and the last bucket are ready, once it is made
} sp_i_chunk_gradients;

typedef enum sp_i_reduction_phase {
    SP_I_FIRST_BUCKETS, // of a chunk, or waits for one
    SP_I_LAST_BUCKET,
    SP_I_REDUCTION, // of what no bucket has
    SP_I_GATHER,
    SP_I_REDUCED
} sp_i_reduction_phase;

// What the data-parallel ranks of one pipeline rank exchange. Its way is of the rings of all TP
// ranks.
typedef struct sp_i_reduction {
    sp_i_way way;
    size_t left; // actions
    sp_i_chunk_gradients *chunks;
    sp_i_reduction_phase phase; // that comes next or is under way
    bool is_under_way, is_due;  // a flow; something new may begin
    int chunk;
    int64_t free_ns; // end of what is over
    int64_t ready_ns, reduced_ns;
} sp_i_reduction;

struct sp_i_traffic {
    const sp_plan *plan;
    const sp_step_costs *costs;
    sp_timeline *timeline;
    sp_topology *topology;
    sp_flows *flows;
    sp_i_way *sends; // [(dp * pp + pp rank) * 2]: to the next pipeline rank, to the one before
    // Of the flows that are sends, by their number: the action.
    sp_plan_place *places;
    size_t place_capacity;
    sp_walk_event *events;
    size_t event_count, event_capacity;
    sp_i_reduction *reductions; // [pp]
    sp_i_chunk_gradients *chunks;
    struct sp_i_readiness *ready; // [chunks], to work with
    bool any_due;
};

// From a pipeline rank to a neighbour on the ring of pp.
static inline sp_i_way *sp_i_way_of(const sp_i_traffic *t, int dp, int from, int to)
{
    int pp = t->plan->layout.pp;
    size_t back = (from + 1) % pp == to ? 0 : 1;
    return &t->sends[((size_t)dp * (size_t)pp + (size_t)from) * 2 + back];
}

// Makes the routes that the plan uses, and says which of their transfers are flows
// (traffic_ways.c).
sp_status sp_i_ways_make(sp_i_traffic *traffic, const sp_network *network, sp_error *err);
void sp_i_ways_free(sp_i_traffic *traffic);
bool sp_i_ways_any_flow(const sp_i_traffic *traffic);

// ---- reductions.c ----

// What they wait for and whether they need a way, without its route; false without memory.
bool sp_i_reductions_make(sp_i_traffic *traffic);
// An action is run.
void sp_i_reductions_note(sp_i_traffic *traffic, const sp_plan_place *place);
// Begins what can begin, once all that ran stands in the timeline.
sp_status sp_i_reductions_begin(sp_i_traffic *traffic, sp_error *err);
// The flow of a pipeline rank has ended.
sp_status sp_i_reductions_ended(sp_i_traffic *traffic, int pp_rank, int64_t now_ns, sp_error *err);

#endif
