// Steps whose ranks send over a network that they share: random ones, and their simulation event by
// event, written by itself.
#ifndef SLIMPACK_TESTS_SUPPORT_FLOW_STEP_H
#define SLIMPACK_TESTS_SUPPORT_FLOW_STEP_H

#include "sim/base/prng.h"
#include "sim/cost/step_costs.h"
#include "sim/network/topology.h"
#include "sim/plan/plan.h"
#include "sim/plan/timeline.h"

typedef struct flow_step {
    sp_layout layout;
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs;
    sp_cluster cluster;
    sp_network network;
} flow_step;

// Hidden states and gradients of a pack between two GPUs.
void flow_step_set_bytes(sp_step_costs *costs, double f_bytes, double b_bytes);
// Exchanges of context-parallel ranks that take at least what random costs show of them.
void flow_step_set_exchanges(flow_step *s, double bytes);
// ZeRO 2 or 3 in half of the cases. Without, actions exchange nothing.
void flow_step_draw_sharded(sp_prng *prng, flow_step *s, double bytes);
// Transfers longer than any latency.
void flow_step_lengthen(sp_step_costs *costs);
// Nodes of two GPUs and one NIC of 10 GB/s: 10 bytes a nanosecond, of which closed formulas give
// each GPU half.
void flow_step_set_cluster(flow_step *s, sp_network_detail detail);

// Of random costs, without merged packs; `busy`: transfers that fill links, else each GPU has a NIC
// and they take a thousandth of what is there.
void flow_step_draw(sp_prng *prng, flow_step *s, bool busy);
void flow_step_fini(flow_step *s);

// A leaf switch for each node, and a spine that slows what crosses it, in half of the cases.
void flow_step_draw_spine(sp_prng *prng, flow_step *s);
// As costs name them: every reduction and every gather by another one.
void flow_step_draw_algorithms(sp_prng *prng, flow_step *s);

// All happens in the order of time, one nanosecond after another in which something does. Fills
// starts, ends and the ends of gathers of all ranks (flow_step_events.c).
void flow_step_events(const flow_step *s, sp_timeline *ran);

#endif
