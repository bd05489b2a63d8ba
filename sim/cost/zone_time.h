// Time of the attention of a pack whose slices have zones (sim/plan/packing.h), on the rank that
// takes longest. Private to sim/cost.
#ifndef SLIMPACK_SIM_COST_ZONE_TIME_H
#define SLIMPACK_SIM_COST_ZONE_TIME_H

#include "sim/cost/pack_time.h"
#include "sim/cost/remap.h"

// Slices that follow each other in a pack and have one zone: what their attention takes on each
// rank of it in one layer.
typedef struct sp_i_zone_part {
    int first, ranks;               // data-parallel ranks
    int blocks;                     // of keys in its ring, one for each rank of that
    double tokens;                  // of all its ranks
    bool crosses;                   // nodes
    sp_i_time of[SP_I_PASSES];      // its ring hidden behind nothing but itself
    double ring_s[SP_I_PASSES];     // the whole ring; 0: it is none
    double blocking_s[SP_I_PASSES]; // of what is exchanged, all that nothing hides: no ring's
    sp_cp_exchange exchange[SP_I_PASSES];
} sp_i_zone_part;

// One rank's parts together.
typedef struct sp_i_zone_rank {
    sp_i_time sum;
    double ring_s[2], last_s[2]; // inside a node, between nodes; the block that comes in last
    double blocking_s;
} sp_i_zone_rank;

typedef struct sp_i_zones {
    sp_i_zone_part *part;
    size_t count, capacity;
    sp_i_zone_rank *rank; // [dp] to work in, as the next two
    double *work;         // [4 * dp]
    sp_i_move *move;      // [dp]: the last that were found, as the next three
    int moves;
    double gpu_bytes;
    double moves_s;
    int first, ranks; // of the pack
    int dp, node_ranks;
    bool one_nic;    // a rank sends by its own NIC alone
    bool lone_rings; // each ring hides behind the attention of its own zone, else behind all
} sp_i_zones;

// One pass of a layer. A rank runs its zones one after the other, the widest first, while their
// rings run beside: those inside the node over NVLink, those between nodes over the network, each
// kind one after the other. So a rank is busy with all its attention, and no less than it takes for
// the rings of either kind and the last block that comes in (Zeppelin's attention engine, arXiv
// 2509.21841; inferred). Queries, keys and values come in before, and results leave after:
// gpu_bytes for each token and GPU in all. O(ranks of all parts).
sp_i_time sp_i_zones_time(sp_i_zones *zones, const sp_op_timer *timer, sp_pass pass,
                          double gpu_bytes);

#endif
