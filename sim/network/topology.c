#include "sim/network/topology.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"

const char *const sp_network_detail_names[] = {"closed", "flows", "auto", NULL};
const char *const sp_link_kind_names[] = {"nvlink", "pcie", "nic", "spine", NULL};

enum { MOST_LINKS = 1 << 28 };

// Links stand by kind, then by GPU, NIC or leaf switch, outward before inward.
struct sp_topology {
    int gpus_per_node;
    int nics_per_node; // with several for each GPU counted as one
    sp_fabric fabric;
    int nodes_per_leaf;
    sp_link_rates rates;
    double pcie_latency_s;
    int64_t first[SP_LINK_KINDS + 1]; // link of each kind, and the number of links
    double *bytes_per_s;
};

static int64_t leaves(const sp_topology *t, int64_t nodes)
{
    return sp_ceil_div(nodes, t->nodes_per_leaf) * t->fabric.rails;
}

static double rate_of(const sp_topology *t, const sp_cluster *cluster, sp_link_kind kind)
{
    double node = cluster->nics_per_node * cluster->nic_bytes_per_s * t->rates.nic_efficiency;
    switch (kind) {
    case SP_LINK_NVLINK:
        return t->rates.nvlink_bytes_per_s;
    case SP_LINK_PCIE:
        return cluster->host_link_bytes_per_s;
    case SP_LINK_NIC:
        return node / t->nics_per_node;
    case SP_LINK_SPINE:
        return node / t->fabric.rails * t->nodes_per_leaf / t->fabric.oversubscription;
    case SP_LINK_KINDS:
        break;
    }
    SP_UNREACHABLE("a kind of link");
}

sp_status sp_topology_new(const sp_cluster *cluster, const sp_link_rates *rates,
                          sp_topology **topology, sp_error *err)
{
    int64_t nodes = cluster->nodes;
    int64_t gpus = nodes * cluster->gpus_per_node;
    int nics = cluster->nics_per_node < cluster->gpus_per_node ? cluster->nics_per_node
                                                               : cluster->gpus_per_node;
    *topology = NULL;
    sp_topology *t = sp_calloc(1, sizeof *t);
    t->gpus_per_node = cluster->gpus_per_node;
    t->nics_per_node = nics;
    t->fabric = cluster->fabric;
    t->fabric.rails = cluster->fabric.rails < nics ? cluster->fabric.rails : nics;
    t->nodes_per_leaf = cluster->fabric.nodes_per_leaf > 0 && cluster->fabric.nodes_per_leaf < nodes
                            ? cluster->fabric.nodes_per_leaf
                            : cluster->nodes;
    t->rates = *rates;
    t->pcie_latency_s = cluster->host_link_latency_s;
    const int64_t ends[SP_LINK_KINDS] = {gpus, gpus, nodes * nics, leaves(t, nodes)};
    for (int kind = 0; kind < SP_LINK_KINDS; kind++) {
        t->first[kind + 1] = t->first[kind] + 2 * ends[kind];
    }
    if (t->first[SP_LINK_KINDS] > MOST_LINKS) {
        sp_topology_free(t);
        return sp_error_set(err, SP_ERR_LIMIT, "%lld GPUs have more than %d links", (long long)gpus,
                            MOST_LINKS);
    }
    t->bytes_per_s = sp_calloc((size_t)t->first[SP_LINK_KINDS], sizeof *t->bytes_per_s);
    for (int kind = 0; kind < SP_LINK_KINDS; kind++) {
        double rate = rate_of(t, cluster, (sp_link_kind)kind);
        if (!(rate > 0.0) || !isfinite(rate)) {
            sp_topology_free(t);
            return sp_error_set(err, SP_ERR_CONTENT, "%s: expected a rate above 0, got %g",
                                sp_link_kind_names[kind], rate);
        }
        for (int64_t i = t->first[kind]; i < t->first[kind + 1]; i++) {
            t->bytes_per_s[i] = rate;
        }
    }
    *topology = t;
    return SP_OK;
}

void sp_topology_free(sp_topology *topology)
{
    if (topology != NULL) {
        sp_free(topology->bytes_per_s);
        sp_free(topology);
    }
}

int32_t sp_topology_links(const sp_topology *topology)
{
    return (int32_t)topology->first[SP_LINK_KINDS];
}

const double *sp_topology_bytes_per_s(const sp_topology *topology)
{
    return topology->bytes_per_s;
}

double sp_topology_nic_share(const sp_topology *t)
{
    double nic = t->bytes_per_s[t->first[SP_LINK_NIC]];
    return t->nics_per_node < t->gpus_per_node ? nic * t->nics_per_node / t->gpus_per_node
                                               : HUGE_VAL;
}

sp_link sp_topology_link(const sp_topology *t, int32_t link)
{
    int kind = 0;
    while (link >= t->first[kind + 1]) {
        kind++;
    }
    int64_t end = (link - t->first[kind]) / 2;
    int per_node = kind == SP_LINK_NIC     ? t->nics_per_node
                   : kind == SP_LINK_SPINE ? t->fabric.rails
                                           : t->gpus_per_node;
    int node = (int)(end / per_node) * (kind == SP_LINK_SPINE ? t->nodes_per_leaf : 1);
    return (sp_link){(sp_link_kind)kind, link % 2 != 0, node, (int)(end % per_node)};
}

int64_t sp_topology_node(const sp_topology *topology, int64_t gpu)
{
    return gpu / topology->gpus_per_node;
}

// ---- paths ----

typedef struct place {
    int64_t gpu, node;
    int local; // GPU in the node
    int nic, rail;
} place;

typedef struct way {
    const sp_topology *topology;
    sp_flow_hop *path;
    int hops;
    double latency_s, spine_latency_s;
} way;

static place place_of(const sp_topology *t, int64_t gpu)
{
    place p = {.gpu = gpu, .node = gpu / t->gpus_per_node, .local = (int)(gpu % t->gpus_per_node)};
    p.nic = t->fabric.nic_affinity == SP_NIC_ROUND_ROBIN
                ? p.local % t->nics_per_node
                : (int)((int64_t)p.local * t->nics_per_node / t->gpus_per_node);
    p.rail = p.nic % t->fabric.rails;
    return p;
}

// The GPU of the node that comes next, from this one on, on a rail.
static int64_t on_rail(const sp_topology *t, const place *from, int rail)
{
    int64_t first = from->gpu - from->local;
    for (int i = 1; i < t->gpus_per_node; i++) {
        int64_t gpu = first + (from->local + i) % t->gpus_per_node;
        if (place_of(t, gpu).rail == rail) {
            return gpu;
        }
    }
    SP_UNREACHABLE("a rail without a GPU");
}

static void add(way *w, sp_link_kind kind, int64_t end, bool inward)
{
    int64_t link = w->topology->first[kind] + 2 * end + (inward ? 1 : 0);
    w->path[w->hops++] = (sp_flow_hop){(int32_t)link, 1};
}

static void go_by_nvlink(way *w, int64_t from, int64_t to)
{
    add(w, SP_LINK_NVLINK, from, false);
    add(w, SP_LINK_NVLINK, to, true);
    w->latency_s += w->topology->rates.nvlink_latency_s;
}

static int64_t leaf_of(const sp_topology *t, int64_t node, int rail)
{
    return node / t->nodes_per_leaf * t->fabric.rails + rail;
}

static void go_by_network(way *w, const place *a, const place *b)
{
    const sp_topology *t = w->topology;
    int64_t leaf_a = leaf_of(t, a->node, a->rail);
    int64_t leaf_b = leaf_of(t, b->node, b->rail);
    add(w, SP_LINK_PCIE, a->gpu, false);
    add(w, SP_LINK_NIC, a->node * t->nics_per_node + a->nic, false);
    w->latency_s += t->rates.nic_latency_s;
    w->spine_latency_s = 2.0 * t->pcie_latency_s;
    if (leaf_a != leaf_b) {
        add(w, SP_LINK_SPINE, leaf_a, false);
        add(w, SP_LINK_SPINE, leaf_b, true);
        w->spine_latency_s += t->fabric.spine_latency_s;
    }
    add(w, SP_LINK_NIC, b->node * t->nics_per_node + b->nic, true);
    add(w, SP_LINK_PCIE, b->gpu, true);
}

int sp_topology_path(const sp_topology *t, int64_t from, int64_t to, sp_flow_hop path[SP_PATH_HOPS],
                     double *latency_s, double *spine_latency_s)
{
    way w = {.topology = t, .path = path};
    place a = place_of(t, from);
    place b = place_of(t, to);
    if (from != to && a.node == b.node) {
        go_by_nvlink(&w, from, to);
    } else if (from != to) {
        if (a.rail != b.rail && t->fabric.pxn) {
            int64_t other = on_rail(t, &a, b.rail);
            go_by_nvlink(&w, from, other);
            w.latency_s = 0.0;
            a = place_of(t, other);
        }
        go_by_network(&w, &a, &b);
    }
    *latency_s = w.latency_s;
    *spine_latency_s = w.spine_latency_s;
    return w.hops;
}

int sp_topology_nic(const sp_topology *topology, int64_t gpu)
{
    return place_of(topology, gpu).nic;
}

int sp_topology_rail(const sp_topology *topology, int64_t gpu)
{
    return place_of(topology, gpu).rail;
}

int32_t sp_topology_beyond(const sp_topology *t, int32_t link)
{
    sp_link from = sp_topology_link(t, link);
    int64_t end = -1;
    if (from.kind == SP_LINK_PCIE) {
        place p = place_of(t, (int64_t)from.node * t->gpus_per_node + from.index);
        end = t->first[SP_LINK_NIC] + 2 * (p.node * t->nics_per_node + p.nic);
    } else if (from.kind == SP_LINK_NIC) {
        end = t->first[SP_LINK_SPINE] + 2 * leaf_of(t, from.node, from.index % t->fabric.rails);
    }
    return end < 0 ? -1 : (int32_t)end + from.inward;
}
