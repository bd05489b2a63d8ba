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

struct sp_i_traffic {
    const sp_plan *plan;
    const sp_step_costs *costs;
    sp_topology *topology;
    sp_flows *flows;
    sp_i_way *sends; // [(dp * pp + pp rank) * 2]: to the next pipeline rank, to the one before
    // Of the flows that are sends, by their number: the action.
    sp_plan_place *places;
    size_t place_capacity;
    sp_walk_event *events;
    size_t event_count, event_capacity;
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

#endif
