// A built-in cluster whose links have the flat profile's rates, priced and as a network.
#ifndef SLIMPACK_TESTS_SUPPORT_FLAT_NETWORK_H
#define SLIMPACK_TESTS_SUPPORT_FLAT_NETWORK_H

#include "sim/cost/op_time.h"
#include "sim/network/topology.h"
#include "tests/support/flat_profile.h"
#include "tests/support/test_main.h"

static const sp_link_rates flat_rates = {.nvlink_bytes_per_s = FLAT_NVLINK_BYTES_PER_S,
                                         .nvlink_latency_s = FLAT_NVLINK_LATENCY_S,
                                         .nic_efficiency = FLAT_NIC_EFFICIENCY,
                                         .nic_latency_s = FLAT_NIC_LATENCY_S};

typedef struct flat_network {
    sp_cluster cluster;
    sp_profile profile;
    sp_op_timer timer;
    sp_topology *topology;
} flat_network;

static inline void flat_network_begin(const char *name, int nodes, flat_network *f)
{
    must_succeed(sp_cluster_builtin(name, &f->cluster, ERR));
    f->cluster.nodes = nodes;
    must_succeed(flat_profile(NULL, &f->profile, ERR));
    f->timer = (sp_op_timer){.cluster = &f->cluster, .profile = &f->profile};
    must_succeed(sp_topology_new(&f->cluster, &flat_rates, &f->topology, ERR));
}

static inline void flat_network_fini(flat_network *f)
{
    sp_topology_free(f->topology);
    sp_profile_fini(&f->profile);
}

// Such a network until the end of its block.
#define FLAT_NETWORK(name, cluster, nodes) \
    AUTO(flat_network) name;               \
    flat_network_begin(cluster, nodes, &(name))

#endif
