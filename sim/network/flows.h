// Transfers that share links by max-min fairness, event by event: each link divides its rate evenly
// among the flows that it holds back, and no flow can get more but at the expense of one that has
// no more than it (Bertsekas, Gallager: Data Networks, 2nd edition, 1992, section 6.5.2). Rates are
// found by progressive filling, as there, and change only when a flow begins or ends, so a steady
// stretch costs nothing however long it is.
//
// Time is in integer nanoseconds, as in the walk. A flow that shares nothing ends at
// start + round(latency + bytes / rate), rounded once. Rates are whole multiples of a 2^-60th of
// the largest link's rate or less, so that the rates of a link add up exactly in any order, and
// times do not depend on the order in which flows that begin together are given.
//
// A beginning or an end costs O(k log k) for the k hops of the flows whose rates it can change:
// the flow itself, then link by link those that it holds back or sets free. Nothing is allocated
// then: memory grows with the most flows that there were at a time.
//
// Flows need not be given in the order of their starts. Who simulates what sends and waits for
// flows first does all that waits for none, however late, and gives the flows that start then; all
// else waits for a flow, so nothing can start before the next one ends, and sp_flows_advance up to
// INT64_MAX gives that end. Flows of equal path, bytes and start can be one: each hop with as many
// times.
#ifndef SLIMPACK_SIM_NETWORK_FLOWS_H
#define SLIMPACK_SIM_NETWORK_FLOWS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/status.h"

// One link on a flow's way. A link that is crossed `times` times carries as many times its rate.
typedef struct sp_flow_hop {
    int32_t link;
    int32_t times; // at least 1
} sp_flow_hop;

// Bytes on their way. The latency passes first and takes no share of a link.
typedef struct sp_flow {
    int64_t start_ns;
    double latency_s;
    double bytes;
    double most_bytes_per_s; // that its ends can handle; 0: what the links give
    const sp_flow_hop *path; // copied; each link once
    int32_t hops;            // at least 1
    int64_t tag;             // the caller's, handed back at the end
} sp_flow;

typedef struct sp_flow_end {
    int32_t flow; // free for a later flow from now on
    int64_t tag;
} sp_flow_end;

typedef struct sp_flows sp_flows;

// Links by their rates. Errors: SP_ERR_CONTENT for a rate that is not above 0, is not finite or is
// less than a 2^30th of the largest.
sp_status sp_flows_new(const double *link_bytes_per_s, int32_t links, sp_flows **flows,
                       sp_error *err);
void sp_flows_free(sp_flows *flows);

// Adds a flow, which starts now or later; *id, which may be NULL, names it until it has ended.
// Errors: SP_ERR_LIMIT beyond 2^28 flows or hops, or 2^30 crossings of links.
sp_status sp_flows_start(sp_flows *flows, const sp_flow *flow, int32_t *id, sp_error *err);

// Goes on to the next time at which flows end, or to until_ns where that comes before, and returns
// it. The flows that end then are in sp_flows_ended until the next call, in the order in which they
// were added.
int64_t sp_flows_advance(sp_flows *flows, int64_t until_ns);
const sp_flow_end *sp_flows_ended(const sp_flows *flows, int32_t *count);

// Flows that have not ended.
int32_t sp_flows_left(const sp_flows *flows);

// The rate that a flow has now, 0 while its latency passes; for tests.
double sp_flows_bytes_per_s(sp_flows *flows, int32_t flow);

// The work of the sharing so far: begins and ends of flows, and hops whose flow's rate was found.
typedef struct sp_flows_counts {
    int64_t events, hops;
} sp_flows_counts;
sp_flows_counts sp_flows_count(const sp_flows *flows);

#endif
