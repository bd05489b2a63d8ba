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

#include <stdbool.h>

#include "sim/model/cluster.h"
#include "sim/network/collective.h"
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

// The GPUs to which each of a group sends directly.
typedef enum sp_route_reach {
    SP_REACH_ALL,
    SP_REACH_PEERS, // at its own place among the members of every other node
    SP_REACH_NODE   // of its own node
} sp_route_reach;

// The same by parts, [split.count], to those alone. `bytes` of a flow are that each member has for
// all nodes, its own among them (SP_REACH_PEERS), or for all members of the largest node
// (SP_REACH_NODE). A part that nobody sends to has no hops; false: no part has.
bool sp_route_all_to_all_parts(const sp_topology *topology, const int64_t *gpus, int groups,
                               int count, sp_route_reach reach, sp_route_parts split,
                               sp_route *routes);
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

// ---- Shapes of collectives ----

// The formulas of collectives (cost/collective.c) and their routes below are both made of these.

// NCCL's constants for reductions in NVSwitches (2.28, src/graph/tuning.cc). A sum or a copy in
// them reaches so much of NVLink's rate with Hopper: 360 GB/s on 8 H100 give a bus bandwidth of 476
// GB/s, of which 478 to 480 are measured. Blackwell is assumed to be alike.
#define SP_I_NVLS_EFFICIENCY 0.85
// Latencies of the simple protocol in steps of a ring, 3.4 us over NVLink and 14 us over a NIC: the
// whole of what happens in a node, 25 us, and a level of the tree over nodes behind it, 20.9 us.
#define SP_I_NVLS_STEPS (25.0 / 3.4)
#define SP_I_NVLS_TREE_STEPS (20.9 / 14.0)

// ceil(log2(nodes)): the depth of either of NCCL's trees.
int sp_i_tree_levels(int nodes);

// The node above `node` in tree 0 or 1 of a double binary tree (Sanders, Speck, Traeff: Two-tree
// algorithms for full bandwidth broadcast, reduction and scan, 2009), as NCCL 2.28 lays it
// (src/graph/trees.cc); -1 at the root. No node but the root has others below it in both.
int sp_i_double_tree_parent(int tree, int node, int nodes);

// An all-reduce takes a tensor up and down both trees, half on each. Returns the bytes that the
// busiest node sends, and gets, over the tensor's bytes. 2 from four nodes on: three neighbours in
// one tree and one in the other.
double sp_i_double_tree_share(int nodes);

// The bytes that the busiest GPU sends in a chain of `members` GPUs of one node below a tree, over
// the bytes of the tensor. Over several nodes each of the `chains`, which have an equal part,
// begins at another member, that of its NIC.
double sp_i_chain_share(int members, int nodes, int chains);

// All nodes have as many members.
static inline bool sp_i_group_is_even(sp_group group)
{
    return group.least_per_node == group.most_per_node;
}

// Is there such an algorithm for the collective over these ranks, where the switches have NVLS?
// NVLS over several nodes is NCCL's NVLSTree, for all-reduces alone: gathers and scatters would
// need switches that reduce between the nodes too.
static inline bool sp_i_algorithm_serves(sp_collective_algorithm algorithm, sp_collective kind,
                                         sp_group group)
{
    bool even = sp_i_group_is_even(group) && group.most_per_node > 1;
    switch (algorithm) {
    case SP_ALGORITHM_RING:
        return true;
    case SP_ALGORITHM_TREE:
        return kind == SP_ALL_REDUCE;
    case SP_ALGORITHM_NVLS:
        return even && (group.nodes == 1 || kind == SP_ALL_REDUCE);
    case SP_ALGORITHM_HIERARCHICAL:
        return even && group.nodes > 1;
    default:
        return false;
    }
}

// ---- Routes of collectives ----

// A collective by its algorithm (collective.h), as routes that follow each other: one but for
// hierarchical collectives, whose rings inside nodes and between them have their turns.
//
// Tree: NCCL's double binary tree over the nodes. As many channels as the least populated node has
// members, or one inside a node; a channel's node is its chain of members from the one whose NIC
// it uses, and half of its bytes go up and down each tree.
//
// NVLS: the switches of a node take every member's whole tensor and hand out its sum, or the other
// way about, each member a part. Between nodes members in the same place of their nodes have a
// double tree each (NVLSTree).

typedef struct sp_collective_phase {
    sp_route route;
    double share; // of the collective's tensor, that each GPU has in this phase
    int rounds;
} sp_collective_phase;

enum { SP_COLLECTIVE_PHASES = 3 };

typedef struct sp_collective_route {
    sp_collective_phase phases[SP_COLLECTIVE_PHASES];
    int count;
} sp_collective_route;

// Makes the route of all-reduces, reduce-scatters and all-gathers of `groups` groups of `count`
// members each, at least two, as in sp_route_rings, that do the same at the same time: rings where
// the algorithm is the profile's or does not serve (op_time.h), or where groups lie differently.
// The caller knows whether switches have NVLS.
void sp_collective_route_make(const sp_topology *topology, sp_collective_algorithm algorithm,
                              sp_collective kind, const int64_t *gpus, int groups, int count,
                              sp_collective_route *route);
// The same by parts (route.h), [split.count].
void sp_collective_route_make_parts(const sp_topology *topology, sp_collective_algorithm algorithm,
                                    sp_collective kind, const int64_t *gpus, int groups, int count,
                                    sp_route_parts split, sp_collective_route *routes);
void sp_collective_route_fini(sp_collective_route *route);

// The flow of a phase for a collective over a tensor of `bytes`; its seconds alone by NVLink and
// NICs.
sp_flow sp_collective_phase_flow(const sp_collective_phase *phase, int64_t start_ns, double bytes);
// As sp_route_lone_s, of all phases.
double sp_collective_route_lone_s(const sp_collective_route *route, double bytes, double closed_s);
double sp_collective_phase_s(const sp_collective_phase *phase, double bytes);

#endif
