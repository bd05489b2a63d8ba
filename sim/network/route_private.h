// What the files of routes share.
#ifndef SLIMPACK_SIM_NETWORK_ROUTE_PRIVATE_H
#define SLIMPACK_SIM_NETWORK_ROUTE_PRIVATE_H

#include <stddef.h>

#include "sim/network/route.h"

typedef struct sp_i_hop_list {
    sp_flow_hop *hops;
    size_t count, capacity;
} sp_i_hop_list;

// Hops of many ways, added up; of each part those of the ways that end at its GPUs.
typedef struct sp_i_hops {
    const sp_topology *topology;
    sp_route_parts split;
    sp_i_hop_list *parts;       // [split.count]
    double inside_s, between_s; // longest latency of a way inside a node and between nodes
    double spine_s;             // longest that the spine adds between nodes
    double gpu_ways;            // to other nodes, of a GPU, which has its share of a NIC for them
} sp_i_hops;

sp_i_hops sp_i_hops_begin(const sp_topology *topology, sp_route_parts split);
// The way from one GPU to another, `times` times.
void sp_i_hops_add(sp_i_hops *hops, int64_t from, int64_t to, int times);
// The same, its last link another number of times.
void sp_i_hops_add_uneven(sp_i_hops *hops, int64_t from, int64_t to, int times, int last_times);
// Hands over the hops, those of one link as one: routes of the parts, [split.count], which are
// `whole` but for them and for the rates of its links.
void sp_i_hops_finish(sp_i_hops *hops, sp_route whole, sp_route *routes);

// sp_route_rings by parts (route.h).
void sp_i_rings(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                sp_route_parts split, sp_route *routes);

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
