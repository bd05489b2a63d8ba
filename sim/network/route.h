// The bytes that a group of GPUs sends in one collective, as one flow: all paths at once, each link
// as often as it is crossed. The paths of a collective wait for each other, since a GPU sends on
// what it has received before, so all go at the pace of the slowest and a single flow describes
// them.
//
// Ring: node by node, in as many rings as the least populated node has members. Ring c comes into a
// node at member c and leaves it from the one before that, by the NIC of member c where PXN allows,
// so that each member's NIC serves one ring and NVLink carries all (NCCL 2.28, src/graph/rings.cc
// and search.cc, with one NIC for each GPU). Where nodes are not populated alike, a ring comes into
// each on the rail that it has in the least populated one, if it has a member there: NCCL keeps a
// ring on one rail (NCCL_CROSS_NIC, its default). A ring carries its part of the bytes, and alone
// on its links takes as long as in cost/collective.c.
//
// All to all, and pairs: directly.
//
// A group can be cut into parts, each of which begins when its GPUs are ready: the flow of a part
// is what its GPUs get. All parts together put on links what the group does, and each of them alone
// goes at the pace of the slowest way of all.
#ifndef SLIMPACK_SIM_NETWORK_ROUTE_H
#define SLIMPACK_SIM_NETWORK_ROUTE_H

#include "sim/network/flows.h"
#include "sim/network/topology.h"

typedef struct sp_route {
    sp_flow_hop *path; // owned; links in ascending order, each once
    int32_t hops;
    double parts;     // of the bytes of a member, in which they go along the path at the same time
    double latency_s; // of one round, but for what the spine and PCIe add
    double spine_latency_s;    // that they add
    int steps;                 // that a round is of
    double bytes_per_s;        // of each part, alone
    double open_bytes_per_s;   // the same by NVLink and NICs alone
    double closed_bytes_per_s; // and if a GPU has no more than its even share of a NIC, as closed
                               // formulas know it
    double most_bytes_per_s;   // that its ends can handle; 0: what the links give
    bool is_part;              // whose rates and latencies are those of all parts together
} sp_route;

// GPU g is in part g / stride % count.
typedef struct sp_route_parts {
    int64_t stride;
    int count;
} sp_route_parts;

#define SP_ROUTE_WHOLE ((sp_route_parts){1, 1})

// The rings of `groups` groups of `count` members each, at least two, that do the same at the same
// time: as many rings as the least of them has, at the pace of the slowest. `gpus` holds one group
// after the other, members in ascending order. One round is count - 1 steps: that of a
// reduce-scatter or an all-gather; an all-reduce has two.
// O(k log k) for k = groups * count * rings.
void sp_route_rings(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                    sp_route *route);
// The same over several nodes in one ring, whose hops from node to node go by `nics` NICs at a
// time: the last GPU of a node gives parts of its block to others, each with a NIC of its own, and
// the first of the next node puts them together. NICs that a node lacks are used twice. Groups that
// all lie inside nodes have no such hop: theirs are sp_route_rings.
void sp_route_routed_rings(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                           int nics, sp_route *route);
// O(k log k) for k = groups * count^2.
void sp_route_all_to_alls(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                          sp_route *route);
// Each of `count` GPUs to one of its own, the bytes in equal parts: from one pipeline stage to the
// next, whose tensor-parallel ranks send a part each. O(k log k) for k = count.
void sp_route_pairs(const sp_topology *topology, const int64_t *from, const int64_t *to, int count,
                    sp_route *route);
// The same, but each pair sends equal parts by `by` pairs of the same nodes, those of the first
// pair first: [count * by].
void sp_route_spread_pairs(const sp_topology *topology, const int64_t *from, const int64_t *to,
                           const int64_t *by_from, const int64_t *by_to, int count, int by,
                           sp_route *route);
void sp_route_fini(sp_route *route);

// A transfer along the route: `bytes` that each member has of a tensor at the end of a gather, or
// at the beginning of a reduction or of an all-to-all, or that all pairs send; 1 round, or 2 of an
// all-reduce. The path stays the route's.
sp_flow sp_route_flow(const sp_route *route, int64_t start_ns, double bytes, int rounds);

// The same where a formula or a table knows how long it takes alone: it then takes that, to the
// nanosecond, and as much longer as the spine and PCIe make it, of which those do not know. One
// that is slower than its links never takes all of them; one that is faster, such as a reduction in
// switches, loads them less. Less than a millionth of them is sent as nothing. Of the latencies
// only that of the first step passes before anything is sent.
sp_flow sp_route_flow_of(const sp_route *route, int64_t start_ns, double bytes, int rounds,
                         double alone_s);

// How long it takes alone of which a formula knows how long it takes by even shares of NICs: on a
// NIC that several GPUs have one that sends alone gets all of it.
double sp_route_lone_s(const sp_route *route, double bytes, int rounds, double closed_s);

// Who knows how long it takes alone knows of the spine and PCIe from now on.
void sp_route_include_spine(sp_route *route);

// Do they make it take longer?
static inline bool sp_route_is_slowed(const sp_route *route)
{
    return route->bytes_per_s < route->open_bytes_per_s || route->spine_latency_s > 0.0;
}

// Does it take longer by even shares of NICs?
static inline bool sp_route_is_quickened(const sp_route *route)
{
    return route->closed_bytes_per_s < route->open_bytes_per_s;
}

#endif
