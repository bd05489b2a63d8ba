// What the events of flows (flows.c) and the sharing of links (flows_share.c) have in common.
#ifndef SLIMPACK_SIM_NETWORK_FLOWS_PRIVATE_H
#define SLIMPACK_SIM_NETWORK_FLOWS_PRIVATE_H

#include <stddef.h>

#include "sim/network/flows.h"

enum { SP_I_NONE = -1 };

// A flow on one of its links; the flows of a link are a list.
typedef struct sp_i_hop {
    int32_t flow, link, times;
    int32_t next, previous;
} sp_i_hop;

typedef enum sp_i_flow_state { SP_I_FLOW_UNUSED, SP_I_FLOW_WAITS, SP_I_FLOW_RUNS } sp_i_flow_state;

typedef struct sp_i_flow {
    int32_t first_hop, hops;
    int64_t rate;    // in units
    int32_t held_by; // link whose share the rate is
    int32_t heap_at;
    sp_i_flow_state state;
    // While rates are being found: one of those sought, and what was found.
    bool is_open, is_found;
    int32_t next_held_by;
    int64_t next_rate;
    // Left at base_ns + offset_s.
    double bytes_left;
    double offset_s;
    int64_t base_ns;
    int64_t sequence, tag, crossings;
} sp_i_flow;

// A cache line: a search for rates goes over the links of large rings again and again.
typedef struct sp_i_link {
    int64_t spare; // what no flow has, in units
    int32_t first; // hop
    int32_t hops;
    int32_t held; // hops, `times` each, of flows that it holds back
    // While rates are being found: hops of sought flows and what is there for them.
    int32_t open_hops, open_times, open_held;
    int64_t open_spare;
    // During one filling: what is left for how many hops; the highest rate of a sought flow, -1
    // before there is one, which all have that were left when the link was full.
    int64_t left, top;
    int32_t unfilled;
    bool is_full, is_touched;
} sp_i_link;

// Link by the least rate at which it may be full.
typedef struct sp_i_share {
    int64_t rate;
    int32_t link;
} sp_i_share;

// Flow by the time at which it begins or ends, then by its place in the order of starts.
typedef struct sp_i_event {
    int64_t at_ns, sequence;
    int32_t flow;
} sp_i_event;

struct sp_flows {
    int64_t now_ns, sequence;
    int64_t crossings;   // times on all paths, so that those of a link fit its counts
    double unit;         // bytes per second
    sp_i_link *links;    // the network's, then one for each flow that has a most rate
    double *bytes_per_s; // as stated, of each link
    int64_t *capacity;   // in units
    int32_t network_links;
    sp_i_flow *flow;
    size_t flow_capacity; // of all that has an element for each flow
    int32_t flows, unused_flow, running;
    sp_i_hop *hops;
    size_t hop_capacity;
    int32_t hops_used;
    int32_t *unused_hops; // [length]: blocks of as many hops
    size_t lengths;
    sp_i_event *events; // heap
    int32_t event_count;
    sp_flow_end *ended;
    int32_t ended_count;
    // Of the search for rates.
    int32_t *touched, *open, *filled;
    sp_i_share *shares; // heap
    int32_t touched_count, open_count, share_count;
    sp_flows_counts counts;
};

// Marks a link whose flows have changed; opens a flow, whose rate is then to be found.
void sp_i_flows_touch(sp_flows *flows, int32_t link);
void sp_i_flows_open(sp_flows *flows, int32_t flow);
// Finds the rates that change since links were touched and flows opened. O(1) where none was.
void sp_i_flows_share(sp_flows *flows);
// Sets a flow's rate from now on, and its end with it.
void sp_i_flows_set_rate(sp_flows *flows, sp_i_flow *flow, int64_t rate, int32_t held_by);

#endif
