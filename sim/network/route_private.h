// What the files of routes share.
#ifndef SLIMPACK_SIM_NETWORK_ROUTE_PRIVATE_H
#define SLIMPACK_SIM_NETWORK_ROUTE_PRIVATE_H

#include <stddef.h>

#include "sim/network/route.h"

// Hops of many ways, added up.
typedef struct sp_i_hops {
    const sp_topology *topology;
    sp_flow_hop *hops;
    size_t count, capacity;
    double inside_s, between_s; // longest latency of a way inside a node and between nodes
    double spine_s;             // longest that the spine adds between nodes
    bool failed;
} sp_i_hops;

// The way from one GPU to another, `times` times.
void sp_i_hops_add(sp_i_hops *hops, int64_t from, int64_t to, int times);
// Hands over the hops, those of one link as one.
sp_status sp_i_hops_finish(sp_i_hops *hops, sp_route *route, sp_error *err);

// Members first .. first + count of a group lie in one node.
typedef struct sp_i_members {
    int first, count;
} sp_i_members;

sp_i_members sp_i_members_in_node(const sp_topology *topology, const int64_t *gpus, int count,
                                  int first);
// The place among a node's members at which ring `c` of `rings` comes in: on a rail if one is
// there.
int sp_i_entry_of(const sp_topology *topology, const int64_t *gpus, sp_i_members members, int c,
                  int rings, int rail);
// The rail of ring `c` of `rings` in the least populated node.
int sp_i_rail_of(const sp_topology *topology, const int64_t *gpus, int count, int c, int rings);
// The most nodes of a group; *rings: how many fit into each of them, one in a node alone.
int sp_i_most_nodes(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                    int *rings);

#endif
