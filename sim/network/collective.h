// The collectives that there are, and their algorithms.
#ifndef SLIMPACK_SIM_NETWORK_COLLECTIVE_H
#define SLIMPACK_SIM_NETWORK_COLLECTIVE_H

typedef enum sp_collective {
    SP_ALL_REDUCE,
    SP_ALL_GATHER,
    SP_REDUCE_SCATTER,
    SP_ALL_TO_ALL,
    SP_COLLECTIVES
} sp_collective;

extern const char *const sp_collective_names[]; // "all_reduce", ..., NULL

// How all-reduces, all-gathers and reduce-scatters are priced: by the profile, whose measured times
// come before models, or by the model of one algorithm (sim/cost/op_time.h).
typedef enum sp_collective_algorithm {
    SP_ALGORITHM_PROFILE,
    SP_ALGORITHM_RING,
    SP_ALGORITHM_TREE,         // NCCL's double binary tree over the nodes
    SP_ALGORITHM_NVLS,         // sums and copies made in NVSwitches (NVLink SHARP)
    SP_ALGORITHM_HIERARCHICAL, // rings inside nodes, and of one GPU of each node
    SP_ALGORITHM_AUTO,         // the fastest of the models for each size
    SP_ALGORITHMS
} sp_collective_algorithm;

extern const char *const sp_collective_algorithm_names[]; // "profile", "ring", ..., NULL

#endif
