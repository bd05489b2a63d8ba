#include "sim/network/route.h"

#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"

#define LEAST_SHARE 1e-6 // of links, that a flow takes

// ---- hops of many ways, added up ----

typedef struct ways {
    const sp_topology *topology;
    sp_flow_hop *hops;
    size_t count, capacity;
    double inside_s, between_s; // longest latency of a way inside a node and between nodes
    bool failed;
} ways;

static bool is_in_one_node(const sp_topology *t, int64_t from, int64_t to)
{
    return sp_topology_node(t, from) == sp_topology_node(t, to);
}

static void add_way(ways *w, int64_t from, int64_t to)
{
    double latency_s;
    if (!sp_reserve((void **)&w->hops, &w->capacity, w->count + SP_PATH_HOPS, sizeof *w->hops)) {
        w->failed = true;
        return;
    }
    int hops = sp_topology_path(w->topology, from, to, &w->hops[w->count], &latency_s);
    w->count += (size_t)hops;
    if (is_in_one_node(w->topology, from, to)) {
        w->inside_s = fmax(w->inside_s, latency_s);
    } else {
        w->between_s = fmax(w->between_s, latency_s);
    }
}

static int compare_hops(const void *a, const void *b)
{
    int32_t x = ((const sp_flow_hop *)a)->link;
    int32_t y = ((const sp_flow_hop *)b)->link;
    return (x > y) - (x < y);
}

static double least_rate(const sp_topology *topology, const sp_route *route)
{
    const double *bytes_per_s = sp_topology_bytes_per_s(topology);
    double least = HUGE_VAL;
    for (int32_t i = 0; i < route->hops; i++) {
        least = fmin(least, bytes_per_s[route->path[i].link] / route->path[i].times);
    }
    return least;
}

// Hands over the hops, those of one link as one.
static sp_status finish(ways *w, sp_route *route, sp_error *err)
{
    if (w->failed) {
        sp_free(w->hops);
        return sp_error_no_memory(err, "the ways of a group");
    }
    qsort(w->hops, w->count, sizeof *w->hops, compare_hops);
    int32_t kept = 0;
    for (size_t i = 0; i < w->count; i++) {
        if (kept > 0 && w->hops[kept - 1].link == w->hops[i].link) {
            w->hops[kept - 1].times += w->hops[i].times;
        } else {
            w->hops[kept++] = w->hops[i];
        }
    }
    route->path = w->hops;
    route->hops = kept;
    route->bytes_per_s = least_rate(w->topology, route);
    return SP_OK;
}

void sp_route_fini(sp_route *route)
{
    sp_free(route->path);
    *route = (sp_route){.hops = 0};
}

// ---- rings ----

// Members first .. first + count of the group lie in one node.
typedef struct members {
    int first, count;
} members;

static members in_node(const sp_topology *t, const int64_t *gpus, int count, int first)
{
    members m = {first, 1};
    while (first + m.count < count && is_in_one_node(t, gpus[first], gpus[first + m.count])) {
        m.count++;
    }
    return m;
}

// The place among a node's members at which ring `c` of `rings` comes in: on a rail if one is
// there.
static int entry_of(const sp_topology *t, const int64_t *gpus, members m, int c, int rings,
                    int rail)
{
    int usual = (int)((int64_t)c * m.count / rings);
    for (int i = 0; i < m.count; i++) {
        int entry = (usual + i) % m.count;
        if (sp_topology_rail(t, gpus[m.first + entry]) == rail) {
            return entry;
        }
    }
    return usual;
}

static int count_nodes(const sp_topology *t, const int64_t *gpus, int count, int *least)
{
    int nodes = 0;
    *least = count;
    for (int first = 0; first < count; nodes++) {
        members m = in_node(t, gpus, count, first);
        *least = m.count < *least ? m.count : *least;
        first += m.count;
    }
    return nodes;
}

// As many steps as members but one, of which as many between nodes as nodes but one.
static double steps_s(const ways *w, int count, int nodes)
{
    return (count - nodes) * w->inside_s + (nodes - 1) * w->between_s;
}

// The rail of ring `c` of `rings` in the least populated node.
static int rail_of(const sp_topology *t, const int64_t *gpus, int count, int c, int rings)
{
    members least = in_node(t, gpus, count, 0);
    for (int done = 0; done < count;) {
        members m = in_node(t, gpus, count, done);
        least = m.count < least.count ? m : least;
        done += m.count;
    }
    return sp_topology_rail(t, gpus[least.first + (int)((int64_t)c * least.count / rings)]);
}

static void add_ring(ways *w, const int64_t *gpus, int count, int c, int rings)
{
    int rail = rail_of(w->topology, gpus, count, c, rings);
    int64_t first = -1;
    int64_t at = -1;
    for (int done = 0; done < count;) {
        members m = in_node(w->topology, gpus, count, done);
        int entry = entry_of(w->topology, gpus, m, c, rings, rail);
        for (int step = 0; step < m.count; step++) {
            int64_t next = gpus[m.first + (entry + step) % m.count];
            if (at >= 0) {
                add_way(w, at, next);
            } else {
                first = next;
            }
            at = next;
        }
        done += m.count;
    }
    add_way(w, at, first);
}

// The most nodes of a group; *rings: how many fit into each of them.
static int most_nodes(const sp_topology *t, const int64_t *gpus, int groups, int count, int *rings)
{
    int nodes = 1;
    *rings = count;
    for (int g = 0; g < groups; g++) {
        int least;
        int of_group = count_nodes(t, &gpus[g * count], count, &least);
        nodes = of_group > nodes ? of_group : nodes;
        least = of_group > 1 ? least : 1;
        *rings = least < *rings ? least : *rings;
    }
    return nodes;
}

sp_status sp_route_rings(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                         sp_route *route, sp_error *err)
{
    ways w = {.topology = topology};
    int rings;
    SP_ASSERT(groups > 0 && count > 1);
    int nodes = most_nodes(topology, gpus, groups, count, &rings);
    for (int g = 0; g < groups; g++) {
        for (int c = 0; c < rings; c++) {
            add_ring(&w, &gpus[g * count], count, c, rings);
        }
    }
    *route = (sp_route){.parts = (double)count / (count - 1) * rings,
                        .latency_s = steps_s(&w, count, nodes)};
    return finish(&w, route, err);
}

// ---- others ----

sp_status sp_route_all_to_alls(const sp_topology *topology, const int64_t *gpus, int groups,
                               int count, sp_route *route, sp_error *err)
{
    ways w = {.topology = topology};
    for (int i = 0; i < groups * count; i++) {
        const int64_t *group = &gpus[i / count * count];
        for (int j = 0; j < count; j++) {
            if (i % count != j) {
                add_way(&w, gpus[i], group[j]);
            }
        }
    }
    int rings;
    int nodes = most_nodes(topology, gpus, groups, count, &rings);
    *route = (sp_route){.parts = count, .latency_s = steps_s(&w, count, nodes)};
    return finish(&w, route, err);
}

sp_status sp_route_pairs(const sp_topology *topology, const int64_t *from, const int64_t *to,
                         int count, sp_route *route, sp_error *err)
{
    ways w = {.topology = topology};
    for (int i = 0; i < count; i++) {
        add_way(&w, from[i], to[i]);
    }
    *route = (sp_route){.parts = count, .latency_s = fmax(w.inside_s, w.between_s)};
    return finish(&w, route, err);
}

sp_flow sp_route_flow(const sp_route *route, int64_t start_ns, double bytes, int rounds)
{
    return (sp_flow){.start_ns = start_ns,
                     .latency_s = rounds * route->latency_s,
                     .bytes = rounds * bytes / route->parts,
                     .path = route->path,
                     .hops = route->hops};
}

sp_flow sp_route_flow_of(const sp_route *route, int64_t start_ns, double bytes, int rounds,
                         double alone_s)
{
    sp_flow flow = sp_route_flow(route, start_ns, bytes, rounds);
    // A smaller part of the links holds nothing up, and rates (flows.h) are too coarse to send it
    // in time.
    bool sends = flow.bytes > LEAST_SHARE * route->bytes_per_s * alone_s;
    flow.bytes = sends ? flow.bytes : 0.0;
    flow.latency_s = sends ? fmin(flow.latency_s, alone_s) : alone_s;
    double sending_s = alone_s - flow.latency_s;
    if (flow.bytes < route->bytes_per_s * sending_s) {
        flow.most_bytes_per_s = flow.bytes / sending_s;
    } else {
        flow.bytes = route->bytes_per_s * sending_s;
    }
    return flow;
}

// ---- all at once ----
