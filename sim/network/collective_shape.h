// The figures that the formulas of collectives (cost/collective.c) and their routes over links
// (collective_route.h) share.
#ifndef SLIMPACK_SIM_NETWORK_COLLECTIVE_SHAPE_H
#define SLIMPACK_SIM_NETWORK_COLLECTIVE_SHAPE_H

#include <stdbool.h>

#include "sim/model/cluster.h"
#include "sim/network/collective.h"

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

#endif
