// Zeppelin's remapping layer (arXiv 2509.21841): tokens move between data-parallel ranks, from the
// ranks that run their attention to equal shares for all other modules. Shared inside sim/cost, and
// tested against GLPK.
#ifndef SLIMPACK_SIM_COST_REMAP_H
#define SLIMPACK_SIM_COST_REMAP_H

#include "sim/cost/op_time.h"

typedef struct sp_i_move {
    int from, to;
    double tokens;
} sp_i_move;

// A transport problem: rank i has surplus[i] tokens too many or, negative, too few; in all there
// are none too many, and what remains of a rounded sum stays where it is. Nodes hold node_ranks
// neighbours each. Fills moves[ranks] and returns how many; all of surplus is spent.
//
// No plan costs less where a token costs one price inside a node and one at least as high between
// nodes: every plan moves the sum of what ranks have too many, and of each node at least what its
// ranks together have too many leaves it; this one lets no more leave. O(ranks).
int sp_i_remap(double *surplus, int ranks, int node_ranks, sp_i_move *moves);

// Where ranks send over the network.
typedef struct sp_i_remap_links {
    int ranks, node_ranks;
    bool one_nic;    // a rank sends by its own NIC; off: by all of its node
    double *traffic; // [4 * ranks] to work in
} sp_i_remap_links;

// Seconds of one exchange in which each GPU of a rank has so many bytes of a token: the rank with
// the most to send or to receive over NVLink, beside the node (with one NIC: the rank) that has the
// most over the network, and one latency. 0 without moves. O(ranks + moves).
double sp_i_remap_s(const sp_op_timer *timer, const sp_i_remap_links *links, const sp_i_move *moves,
                    int count, double gpu_bytes);

#endif
