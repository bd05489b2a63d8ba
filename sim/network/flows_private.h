// What the events of flows (flows.c), their hops (flows_hops.c) and the sharing of links
// (flows_share.c) have in common.
#ifndef SLIMPACK_SIM_NETWORK_FLOWS_PRIVATE_H
#define SLIMPACK_SIM_NETWORK_FLOWS_PRIVATE_H

#include <stddef.h>

#include "sim/network/flows.h"

enum { SP_I_NONE = -1 };

// A flow on one of its links; the flows of a link are a list.
typedef struct sp_i_hop {
    int32_t flow, link, times;
    int32_t next, previous;
    int32_t open_next; // while rates are being found: the next of the sought flows
} sp_i_hop;

typedef enum sp_i_flow_state { SP_I_FLOW_UNUSED, SP_I_FLOW_WAITS, SP_I_FLOW_RUNS } sp_i_flow_state;

typedef struct sp_i_flow {
    int64_t rate;    // in units
    int64_t most;    // what the least of its links could give it alone, and its ends can handle
    int32_t held_by; // link whose share the rate is; SP_I_NONE: its most, or it has none yet
    // First those over tight links, then the others that are watched (sp_i_link). No search for
    // rates visits but tight ones.
    int32_t first_hop, tight_hops, watched_hops, hops;
    int32_t least_hops; // tight ones whose link alone keeps the flow from more than its most
    int32_t heap_at;
    sp_i_flow_state state;
    bool is_new;  // no rate was found yet: its most stands for it
    bool is_late; // it ends after its event, which was for a higher rate
    // While rates are being found: one of those sought, and what was found.
    bool is_open, is_found;
    int32_t next_held_by;
    int64_t next_rate;
    double most_bytes_per_s; // as stated
    // Left at base_ns + offset_s.
    double bytes_left;
    double offset_s;
    int64_t base_ns;
    int64_t sequence, tag, crossings;
} sp_i_flow;

// Free: its flows would fit had each the most that it could have, so that the link holds none back
// whatever happens; nothing but their list is kept. Watched: they would not, but there is room:
// only what is spare is kept. Tight: it may hold flows back.
typedef enum sp_i_link_state { SP_I_LINK_FREE, SP_I_LINK_WATCHED, SP_I_LINK_TIGHT } sp_i_link_state;

// A cache line. While rates are being found the sought flows are left out of what a tight link
// gives. Counts are of times but for `hops`.
typedef struct sp_i_link {
    int64_t spare; // what no flow has, in units
    int64_t level; // that no flow has more than but sought ones, and those that it holds back have
    int32_t first; // hop
    int32_t hops;
    int32_t held; // flows that it holds back
    // Sought flows.
    int32_t open_first, open_times;
    // During one filling: what is left for how many; the highest rate of a sought flow, -1 before
    // there is one, which all have that were left when the link was full.
    int32_t unfilled;
    int64_t left, top;
    int32_t calm; // how often its state could have been a looser one since it is what it is
    uint8_t state;
    bool is_full, is_touched, is_overfull;
} sp_i_link;

// What is spare beside `used` more. It may be far below 0, and wrap, until it is put right.
static inline int64_t sp_i_less(int64_t spare, int64_t used)
{
    return (int64_t)((uint64_t)spare - (uint64_t)used);
}

// What a link can carry, in units, and what its flows could have.
typedef struct sp_i_demand {
    int64_t capacity;
    int64_t wanted; // in SP_I_WANTED_UNITs, rounded up flow by flow, so that no sum is too large
} sp_i_demand;

#define SP_I_WANTED_UNIT (INT64_C(1) << 28)

// The least rate at which a link may be full, or a flow by itself can have no more.
typedef struct sp_i_share {
    int64_t rate;
    int32_t link, flow; // one is SP_I_NONE
} sp_i_share;

// Flow by the time at which it begins or ends, then by its place in the order of starts.
typedef struct sp_i_event {
    int64_t at_ns;
    int32_t flow;
} sp_i_event;

struct sp_flows {
    int64_t now_ns, sequence;
    int64_t crossings; // times on all paths, so that those of a link fit its counts
    double unit;       // bytes per second
    sp_i_link *links;
    double *bytes_per_s; // as stated, of each link
    sp_i_demand *demand;
    int32_t link_count;
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
    int32_t *touched, *overfull, *open;
    sp_i_share *shares, *filled; // heap; those of one rate
    int32_t touched_count, overfull_count, open_count, found_count, share_count;
    sp_flows_counts counts;
};

// What a flow could have of a link for itself.
static inline int64_t sp_i_flows_alone_on(const sp_flows *flows, int32_t link, int32_t times)
{
    const int64_t capacity = flows->demand[link].capacity;
    return times == 1 ? capacity : capacity / times;
}

// Flows on links (flows_hops.c). Room for the hops of a path, next to each other.
sp_status sp_i_flows_take_hops(sp_flows *flows, int32_t length, int32_t *first, sp_error *err);
void sp_i_flows_give_back_hops(sp_flows *flows, const sp_i_flow *flow);
void sp_i_flows_enter_links(sp_flows *flows, sp_i_flow *flow);
void sp_i_flows_leave_links(sp_flows *flows, sp_i_flow *flow);

// A watched link becomes tight, a tight one with room is only watched.
void sp_i_flows_tighten(sp_flows *flows, int32_t link);
void sp_i_flows_loosen(sp_flows *flows, int32_t link);

// A change of state goes over all flows of a link: it is made once as many events asked for it.
static inline bool sp_i_flows_is_calm(sp_i_link *link)
{
    enum { FLOWS_OF_EVENT = 8 };
    return ++link->calm > link->hops / FLOWS_OF_EVENT;
}

// Rates (flows_share.c). Marks a link whose flows have changed.
void sp_i_flows_touch(sp_flows *flows, int32_t link);
// Finds the rates that change since links were touched and flows opened. O(1) where none was.
void sp_i_flows_share(sp_flows *flows);
// Sets a flow's rate from now on, and its end with it.
void sp_i_flows_set_rate(sp_flows *flows, sp_i_flow *flow, int64_t rate);

#endif
