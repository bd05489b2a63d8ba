// The machines: GPU, links inside a node, network between nodes, and where a group of ranks lies.
#ifndef SLIMPACK_SIM_MODEL_CLUSTER_H
#define SLIMPACK_SIM_MODEL_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/json.h"
#include "sim/base/status.h"
#include "sim/model/layout.h"

enum {
    SP_CLUSTER_NAME = 48,
    SP_CLUSTER_SOURCE = 200,
    SP_I_MAX_GPUS_PER_NODE = 1024,
    SP_I_MAX_NODES = 1 << 24,
};

// A GPU's memory holds more than the tensors of a step. The parts that are published:
//
// - The CUDA context with the kernels that are loaded: 0.3 GB with CUDA's lazy loading, above 1 GB
//   before CUDA 11.7 (pytorch/pytorch issue 107667); 1.06 GB of an H100 are taken before the first
//   all-to-all (NVIDIA/nccl issue 1685).
// - NCCL: a communicator of 2 A100 takes 0.54 GB, one of 3 or 4 A100 0.69 GB (issue 964); the share
//   is that of two to three. Elsewhere 1.6 GB for one and 6 GB for three (issue 864), and 3.3 GB
//   for an all-to-all of 8 H100 (issue 1685).
// - cuBLAS, cuDNN and what PyTorch's allocator reserves without using it. cuBLAS's own work spaces
//   are 32 MiB on Hopper and 4 to 8.1 MiB before (cublasSetWorkspace() in its reference); those
//   that come from PyTorch's allocator are counted with the step (stack.h, work_spaces).
//
// The sum is held against 607 steps that nanotron logged on H100s of 80 GB (the runs of the
// Ultra-Scale Playbook), of which none used more than 77.1 GB. Spread: 1 to 6 GiB, more with many
// communicators.
#define SP_RESERVE_CONTEXT_BYTES (INT64_C(1) << 30)
#define SP_RESERVE_NCCL_BYTES (INT64_C(3) << 29)
#define SP_RESERVE_LIBRARIES_BYTES (INT64_C(1) << 29)
#define SP_GPU_RESERVE_BYTES \
    (SP_RESERVE_CONTEXT_BYTES + SP_RESERVE_NCCL_BYTES + SP_RESERVE_LIBRARIES_BYTES)

// The GPUs that share a NIC, where several have one: neighbours, or every n-th.
typedef enum sp_nic_affinity { SP_NIC_BLOCK, SP_NIC_ROUND_ROBIN } sp_nic_affinity;

extern const char *const sp_nic_affinity_names[]; // "block", "round-robin", NULL

// How the NICs of the nodes are joined. NIC i of a node is on rail i mod `rails`; a leaf switch
// joins the NICs of one rail in some nodes, and a spine joins the leaf switches.
typedef struct sp_fabric {
    bool given;         // by a scenario, in place of the built-in cluster's
    int rails;          // 1: all NICs of a node are at one leaf switch
    int nodes_per_leaf; // 0: all nodes
    double
        oversubscription; // of a leaf switch: rate of its NICs over that of its links to the spine
    double spine_latency_s; // of a way over the spine beyond one over a leaf switch
    sp_nic_affinity nic_affinity;
    bool pxn; // a GPU that has no NIC on a rail sends by that of another GPU of its node (NCCL's
              // PXN)
} sp_fabric;

// A latency that a cluster states in place of its profile's.
typedef struct sp_stated_latency {
    bool given;
    double s;
} sp_stated_latency;

// Data-sheet values; what is reached of them in practice stands in the profile, whose rates inside
// a node follow nvlink_bytes_per_s (sp_profile_join).
#define SP_CLUSTER_FILE "not the built-in cluster, but the file "

// Assumed: half of what the memory of two sockets of 2019 gives (12 channels of DDR4-2666, 256
// GB/s). A step of Adam moves 30 bytes of a weight, so that a billion of them take 0.25 s.
#define SP_HOST_ADAM_BYTES_PER_S 120e9

typedef struct sp_cluster {
    char name[SP_CLUSTER_NAME];
    char gpu[SP_CLUSTER_NAME];     // "H800"
    char profile[SP_CLUSTER_NAME]; // profile used where the scenario names none
    double peak_flops_per_s;       // dense bf16
    int64_t memory_bytes;          // of one GPU
    int64_t reserve_bytes;         // of these: not for tensors, unless a scenario says otherwise
    double hbm_bytes_per_s;
    int gpus_per_node;
    int nodes;                 // 0: as many as the ranks need
    double nvlink_bytes_per_s; // one direction, one GPU
    int nics_per_node;
    double nic_bytes_per_s; // line rate of one NIC
    // One direction, one GPU, to the memory of its host: what copies of pinned memory reach.
    double host_link_bytes_per_s;
    char source[SP_CLUSTER_SOURCE]; // ends with SP_CLUSTER_FILE and the path of a file that is
                                    // called as a built-in cluster
    sp_fabric fabric;
    // NVSwitches that add up and copy what passes them (NVLink SHARP, NCCL's NVLS): those of the
    // third generation on, which came with the H100 (NVIDIA H100 architecture whitepaper). NCCL
    // reaches with them 480 GB/s of bus bandwidth on 8 H100 (NVIDIA/nccl-tests issue 212) and 215
    // on 8 H800 (NVIDIA/nccl issue 1374). An A100's pass on what they get.
    bool nvls;
    // Memory traffic of Adam on all CPUs of a node; 0: SP_HOST_ADAM_BYTES_PER_S.
    double host_adam_bytes_per_s;
    double host_link_latency_s; // of a copy, and of each end of a way to another node
    sp_stated_latency nvlink_latency, nic_latency;
} sp_cluster;

// How differently fast GPUs of one kind compute: the standard deviation of a GPU's time over the
// mean, 0 for none, and the seed of their times.
//
// Measured: GPUs of one kind in the same cluster vary by 8 % on average and 22 % at most (Sinha et
// al., Not All GPUs Are Created Equal, SC 2022, arXiv 2208.11035; five clusters of V100, RTX 5000
// and MI60). Were their times normal and the 8 % the distance between the whiskers of a box plot,
// 5.4 standard deviations, then gpu_cv would be 0.015: inferred from their figures, not stated
// there.
typedef struct sp_jitter {
    double gpu_cv;
    uint64_t seed;
} sp_jitter;

sp_status sp_cluster_builtin(const char *name, sp_cluster *cluster, sp_error *err);
int sp_cluster_builtin_count(void);
const char *sp_cluster_builtin_name(int index);
// The first built-in cluster that uses the profile; false, and nothing, where there is none.
bool sp_cluster_of_profile(const char *profile, sp_cluster *cluster);
// The first built-in cluster of the GPU that a profile says it describes; false, and nothing, where
// there is none. "H100 SXM" describes an "H100".
bool sp_cluster_of_gpu(const char *described, sp_cluster *cluster);
bool sp_gpu_is_described(const char *described, const char *gpu);

// A `cluster` object of a scenario or a profile (settings.c). Absent keys take the values of the
// built-in cluster of that name; without one the rates and the memory are required, but for the
// host link. NVLink and NICs have the profile's latencies. The reserve is SP_GPU_RESERVE_BYTES, at
// most a quarter of the memory. Ends the object; errors are collected in object->err.
void sp_cluster_from_object(sp_object *object, sp_cluster *cluster);

// A cluster as a document, which gives the same one when it is read; without its nodes.
json_t *sp_cluster_to_json(const sp_cluster *cluster);

// Settles `nodes`: 0 becomes ceil(ranks / gpus_per_node); a given count must be filled exactly
// (content error at `source`: nodes).
sp_status sp_cluster_fit(sp_cluster *cluster, int64_t ranks, const char *source, sp_error *err);

typedef enum sp_dimension {
    SP_DIM_TP,
    SP_DIM_CP,
    SP_DIM_DP,
    SP_DIM_DP_CP,
    SP_DIM_PP,
    SP_DIM_EP,     // that share a layer's experts
    SP_DIM_ETP,    // that share each of them
    SP_DIM_ETP_EP, // both: that hold all experts together
    SP_DIM_EDP     // that hold the same
} sp_dimension;

// Where the groups of one dimension lie. A collective's rate follows the members in the group's
// least populated node, so the worst group over the whole layout is described.
typedef struct sp_group {
    int size;           // ranks in a group
    int nodes;          // nodes spanned
    int least_per_node; // members in the least populated node
    int most_per_node;
} sp_group;

// O(size of a node), or O(ranks) for the ranks of two dimensions that do not count ranks next to
// each other.
sp_group sp_cluster_group(const sp_cluster *cluster, const sp_layout *layout,
                          sp_dimension dimension);

// Such a group in two levels: `inner` neighbours of it each, and those at one place of all of them.
typedef struct sp_nested_groups {
    sp_group inner, outer;
} sp_nested_groups;

// `inner` divides cp * dp_count.
sp_nested_groups sp_cluster_nested_groups(const sp_cluster *cluster, const sp_layout *layout,
                                          int dp_count, int inner);
// The largest `inner` that divides both `of` and cp * dp and of which every group lies in one node:
// all such numbers divide it.
int sp_cluster_node_cp_ranks(const sp_cluster *cluster, const sp_layout *layout, int of);

// The most neighbouring data-parallel ranks, a power of two or all, that divide all and lie in one
// node, whichever block of so many they are; at least 1.
int sp_cluster_node_dp_ranks(const sp_cluster *cluster, const sp_layout *layout);

// 1 where any rank of pipeline rank r and its peer in r+1 (mod pp) lie in different nodes.
int sp_cluster_pp_crosses_node(const sp_cluster *cluster, const sp_layout *layout, int pp_rank);

// Bytes a second of Adam on the CPUs of a node for each of `ranks` GPUs that step at once.
double sp_cluster_host_adam_share(const sp_cluster *cluster, int64_t ranks);

#endif
