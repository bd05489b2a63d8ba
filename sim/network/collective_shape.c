#include "sim/network/collective_shape.h"

#include <stddef.h>

const char *const sp_collective_algorithm_names[] = {"profile",      "ring", "tree", "nvls",
                                                     "hierarchical", "auto", NULL};
const char *const sp_collective_names[] = {"all_reduce", "all_gather", "reduce_scatter",
                                           "all_to_all", NULL};

int sp_i_tree_levels(int nodes)
{
    int levels = 0;
    for (int64_t reach = 1; reach < nodes; reach *= 2) {
        levels++;
    }
    return levels;
}

// In a tree of 0 .. nodes - 1 whose odd nodes are its leaves.
static int parent_in_tree(int node, int nodes)
{
    int bit = node & -node;
    int parent = (node ^ bit) | bit << 1;
    if (node == 0) {
        return -1;
    }
    return parent < nodes ? parent : node ^ bit;
}

int sp_i_double_tree_parent(int tree, int node, int nodes)
{
    if (tree == 0) {
        return parent_in_tree(node, nodes);
    }
    // Mirrored, or moved on by one where that would leave the same nodes inside.
    bool odd = nodes % 2 != 0;
    int parent = parent_in_tree(odd ? (node + nodes - 1) % nodes : nodes - 1 - node, nodes);
    if (parent < 0) {
        return -1;
    }
    return odd ? (parent + 1) % nodes : nodes - 1 - parent;
}

double sp_i_double_tree_share(int nodes)
{
    return nodes < 4 ? 0.5 * nodes * (nodes > 1) : 2.0;
}

double sp_i_chain_share(int members, int nodes, int chains)
{
    if (members <= 2 && nodes == 1) {
        return members - 1.0;
    }
    bool all_begin = nodes > 1 && chains == members;
    return all_begin ? 2.0 * (members - 1.0) / members : 2.0;
}
