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
#ifndef SLIMPACK_SIM_NETWORK_COLLECTIVE_ROUTE_H
#define SLIMPACK_SIM_NETWORK_COLLECTIVE_ROUTE_H

#include "sim/network/collective.h"
#include "sim/network/route.h"

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
