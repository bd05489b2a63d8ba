// The links of a cluster, and which of them lie between two GPUs.
//
//     GPU - NVLink port - NVSwitch - NVLink port - GPU          in a node (an NVLink domain)
//     GPU - PCIe - NIC - leaf switch of a rail - NIC - PCIe - GPU            on the same leaf
//     GPU - PCIe - NIC - leaf switch - spine - leaf switch - NIC - PCIe - GPU
//     GPU - NVLink - GPU on the other's rail - as above        where rails differ, with PXN
//
// Each link has two directions that share nothing. NVSwitches, leaf switches and the spine itself
// do not block: what may be too narrow are the ports and the links from leaf switches to the spine.
// Several NICs of one GPU are one link of their joint rate, as NCCL uses them; several GPUs on one
// NIC share it. GPU g is in node g / gpus_per_node, as rank g is.
#ifndef SLIMPACK_SIM_NETWORK_TOPOLOGY_H
#define SLIMPACK_SIM_NETWORK_TOPOLOGY_H

#include "sim/model/cluster.h"
#include "sim/network/flows.h"

// The rates that links reach, by a profile; the data sheets' stand in the cluster.
typedef struct sp_link_rates {
    double nvlink_bytes_per_s, nvlink_latency_s; // one direction, one GPU
    double nic_efficiency, nic_latency_s;        // share of the line rate; NIC to NIC
} sp_link_rates;

// How a step's traffic is predicted: by the closed formulas of sim/cost, each transfer as if it
// were alone; as flows that share links; or as flows only where links may be shared, all else by
// the formulas, with the results of flows.
typedef enum sp_network_detail {
    SP_NETWORK_CLOSED,
    SP_NETWORK_FLOWS,
    SP_NETWORK_AUTO
} sp_network_detail;

extern const char *const sp_network_detail_names[]; // "closed", "flows", "auto", NULL

// The network of a step. The cluster is borrowed.
typedef struct sp_network {
    sp_network_detail detail;
    const sp_cluster *cluster;
    sp_link_rates rates;
} sp_network;

typedef enum sp_link_kind {
    SP_LINK_NVLINK,
    SP_LINK_PCIE,
    SP_LINK_NIC,
    SP_LINK_SPINE, // between a leaf switch and the spine
    SP_LINK_KINDS
} sp_link_kind;

extern const char *const sp_link_kind_names[]; // "nvlink", "pcie", "nic", "spine", NULL

typedef struct sp_link {
    sp_link_kind kind;
    bool inward; // to the GPU, or from the spine to the leaf switch
    int node;    // of a leaf switch the first one that it joins
    int index;   // of the GPU or the NIC in its node, or of the rail
} sp_link;

enum { SP_PATH_HOPS = 8 }; // most of a path

typedef struct sp_topology sp_topology;

// Builds the links of the cluster's nodes (above 0: sp_cluster_fit). Errors: SP_ERR_LIMIT beyond
// 2^28 links; SP_ERR_CONTENT for a rate that is not above 0. O(links).
sp_status sp_topology_new(const sp_cluster *cluster, const sp_link_rates *rates,
                          sp_topology **topology, sp_error *err);
void sp_topology_free(sp_topology *topology);

int32_t sp_topology_links(const sp_topology *topology);
const double *sp_topology_bytes_per_s(const sp_topology *topology); // [links]
sp_link sp_topology_link(const sp_topology *topology, int32_t link);

// The bytes a second that a GPU has of a NIC that it shares in equal parts, as closed formulas give
// them; HUGE_VAL: each GPU has a NIC.
double sp_topology_nic_share(const sp_topology *topology);

// The next link of the same direction on the way between a GPU and the spine: behind a PCIe link
// that of the GPU's NIC, behind a NIC's that of its leaf switch. -1 behind others.
int32_t sp_topology_beyond(const sp_topology *topology, int32_t link);

// Node of a GPU, its NIC of those of the node, and that one's rail.
int64_t sp_topology_node(const sp_topology *topology, int64_t gpu);
int sp_topology_nic(const sp_topology *topology, int64_t gpu);
int sp_topology_rail(const sp_topology *topology, int64_t gpu);

// The links from one GPU to another, in order, and the latency of the way: none of a GPU to itself.
// The latency that the spine and PCIe (host_link_latency_s at both ends) add, of which closed
// formulas know nothing, stands by itself. PXN hands on while it sends, so that its NVLink adds
// nothing to the latency between nodes. Returns the number of hops. O(1).
int sp_topology_path(const sp_topology *topology, int64_t from, int64_t to,
                     sp_flow_hop path[SP_PATH_HOPS], double *latency_s, double *spine_latency_s);

#endif
