#include "sim/network/route.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/model/stack.h"
#include "sim/network/route_private.h"

#define LEAST_SHARE 1e-6 // of links, that a flow takes

void sp_route_fini(sp_route *route)
{
    sp_free(route->path);
    *route = (sp_route){.hops = 0};
}

// ---- rings ----

// A round is as many steps as members but one, of which as many between nodes as nodes but one.
static sp_route round_of(const sp_i_hops *h, double parts, int count, int nodes)
{
    return (sp_route){.parts = parts,
                      .latency_s = (count - nodes) * h->inside_s + (nodes - 1) * h->between_s,
                      .spine_latency_s = (nodes - 1) * h->spine_s,
                      .steps = count - 1};
}

static void add_ring(sp_i_hops *h, const int64_t *gpus, int count, int c, int rings)
{
    int rail = sp_i_rail_of(h->topology, gpus, count, c, rings);
    int64_t first = -1;
    int64_t at = -1;
    for (int done = 0; done < count;) {
        sp_i_members m = sp_i_members_in_node(h->topology, gpus, count, done);
        int entry = sp_i_entry_of(h->topology, gpus, m, c, rings, rail);
        for (int step = 0; step < m.count; step++) {
            int64_t next = gpus[m.first + (entry + step) % m.count];
            if (at >= 0) {
                sp_i_hops_add(h, at, next, 1);
            } else {
                first = next;
            }
            at = next;
        }
        done += m.count;
    }
    sp_i_hops_add(h, at, first, 1);
}

void sp_i_rings(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                sp_route_parts split, sp_route *routes)
{
    sp_i_hops h = sp_i_hops_begin(topology, split);
    int rings;
    SP_ASSERT(groups > 0 && count > 1);
    int nodes = sp_i_most_nodes(topology, gpus, groups, count, &rings);
    for (int g = 0; g < groups; g++) {
        for (int c = 0; c < rings; c++) {
            add_ring(&h, &gpus[g * count], count, c, rings);
        }
    }
    sp_route whole = round_of(&h, (double)count / (count - 1) * rings, count, nodes);
    sp_i_hops_finish(&h, whole, routes);
}

void sp_route_rings(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                    sp_route *route)
{
    sp_i_rings(topology, gpus, groups, count, SP_ROUTE_WHOLE, route);
}

// ---- rings whose hops go by several NICs ----

// Members of a node that have a NIC each, from one on, or backward; at most `most`.
static int list_nics(const sp_topology *t, const int64_t *gpus, sp_i_members m, bool backward,
                     int most, int64_t *found)
{
    int count = 0;
    for (int i = 0; i < m.count && count < most; i++) {
        int64_t gpu = gpus[m.first + (backward ? m.count - 1 - i : i)];
        bool is_new = true;
        for (int k = 0; k < count; k++) {
            is_new = is_new && sp_topology_nic(t, found[k]) != sp_topology_nic(t, gpu);
        }
        if (is_new) {
            found[count++] = gpu;
        }
    }
    return count;
}

// Brings another node's GPU on the same rail to place i, of those from there on.
static void match_rail(const sp_topology *t, int64_t gpu, int64_t *others, int count, int i)
{
    for (int k = i; k < count; k++) {
        if (sp_topology_rail(t, others[k]) == sp_topology_rail(t, gpu)) {
            int64_t other = others[k];
            others[k] = others[i];
            others[i] = other;
            return;
        }
    }
}

// A part of the block by each NIC, on its rail where the other node has a member there.
static void add_routed_hop(sp_i_hops *h, const int64_t *gpus, sp_i_members from, sp_i_members to,
                           int nics)
{
    int64_t out[SP_MOST_RING_NICS], in[SP_MOST_RING_NICS];
    int64_t sender = gpus[from.first + from.count - 1];
    int64_t receiver = gpus[to.first];
    int outs = list_nics(h->topology, gpus, from, true, nics, out);
    int ins = list_nics(h->topology, gpus, to, false, nics, in);
    for (int i = 0; i < nics; i++) {
        int64_t a = out[i % outs];
        match_rail(h->topology, a, in, ins, i);
        int64_t b = in[i % ins];
        if (a != sender) {
            sp_i_hops_add(h, sender, a, 1);
        }
        sp_i_hops_add(h, a, b, 1);
        if (b != receiver) {
            sp_i_hops_add(h, b, receiver, 1);
        }
    }
}

static void add_routed_ring(sp_i_hops *h, const int64_t *gpus, int count, int nics)
{
    sp_i_members first = sp_i_members_in_node(h->topology, gpus, count, 0);
    for (sp_i_members m = first;;) {
        for (int i = 0; i + 1 < m.count; i++) {
            sp_i_hops_add(h, gpus[m.first + i], gpus[m.first + i + 1], nics);
        }
        bool is_last = m.first + m.count == count;
        sp_i_members next =
            is_last ? first : sp_i_members_in_node(h->topology, gpus, count, m.first + m.count);
        add_routed_hop(h, gpus, m, next, nics);
        if (is_last) {
            return;
        }
        m = next;
    }
}

void sp_route_routed_rings(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                           int nics, sp_route *route)
{
    int members;
    SP_ASSERT(groups > 0 && count > 1 && nics > 0 && nics <= SP_MOST_RING_NICS);
    if (sp_i_most_nodes(topology, gpus, groups, count, &members) == 1) {
        sp_route_rings(topology, gpus, groups, count, route);
        return;
    }
    sp_i_hops h = sp_i_hops_begin(topology, SP_ROUTE_WHOLE);
    for (int g = 0; g < groups; g++) {
        add_routed_ring(&h, &gpus[g * count], count, nics);
    }
    h.gpu_ways = (double)nics / members; // the group's shares serve all of them
    // All wait for the hop between nodes.
    const sp_route whole = {.parts = (double)count / (count - 1) * nics,
                            .latency_s = (count - 1) * h.between_s,
                            .spine_latency_s = (count - 1) * h.spine_s,
                            .steps = count - 1};
    sp_i_hops_finish(&h, whole, route);
}

// ---- others ----

void sp_route_all_to_alls(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                          sp_route *route)
{
    sp_i_hops h = sp_i_hops_begin(topology, SP_ROUTE_WHOLE);
    for (int i = 0; i < groups * count; i++) {
        const int64_t *group = &gpus[i / count * count];
        for (int j = 0; j < count; j++) {
            if (i % count != j) {
                sp_i_hops_add(&h, gpus[i], group[j], 1);
            }
        }
    }
    int rings;
    int nodes = sp_i_most_nodes(topology, gpus, groups, count, &rings);
    h.gpu_ways = count - rings;
    sp_i_hops_finish(&h, round_of(&h, count, count, nodes), route);
}

void sp_route_pairs(const sp_topology *topology, const int64_t *from, const int64_t *to, int count,
                    sp_route *route)
{
    sp_route_spread_pairs(topology, from, to, from, to, count, 1, route);
}

void sp_route_spread_pairs(const sp_topology *topology, const int64_t *from, const int64_t *to,
                           const int64_t *by_from, const int64_t *by_to, int count, int by,
                           sp_route *route)
{
    sp_i_hops h = sp_i_hops_begin(topology, SP_ROUTE_WHOLE);
    for (int i = 0; i < count * by; i++) {
        if (from[i / by] != by_from[i]) {
            sp_i_hops_add(&h, from[i / by], by_from[i], 1);
        }
        sp_i_hops_add(&h, by_from[i], by_to[i], 1);
        if (to[i / by] != by_to[i]) {
            sp_i_hops_add(&h, by_to[i], to[i / by], 1);
        }
    }
    const sp_route whole = {.parts = (double)count * by,
                            .latency_s = fmax(h.inside_s, h.between_s),
                            .spine_latency_s = h.spine_s,
                            .steps = 1};
    sp_i_hops_finish(&h, whole, route);
}

sp_flow sp_route_flow(const sp_route *route, int64_t start_ns, double bytes, int rounds)
{
    return (sp_flow){.start_ns = start_ns,
                     .latency_s = rounds * (route->latency_s + route->spine_latency_s),
                     .bytes = rounds * bytes / route->parts,
                     .most_bytes_per_s = route->most_bytes_per_s,
                     .path = route->path,
                     .hops = route->hops};
}

void sp_route_include_spine(sp_route *route)
{
    route->latency_s += route->spine_latency_s;
    route->spine_latency_s = 0.0;
    route->open_bytes_per_s = route->bytes_per_s;
    route->closed_bytes_per_s = fmin(route->closed_bytes_per_s, route->bytes_per_s);
}

double sp_route_lone_s(const sp_route *route, double bytes, int rounds, double closed_s)
{
    double sent = rounds * bytes / route->parts;
    double whole_s = rounds * route->latency_s + sent / route->closed_bytes_per_s;
    double saved_s = sent / route->closed_bytes_per_s - sent / route->open_bytes_per_s;
    return saved_s > 0.0 ? closed_s - saved_s * fmin(1.0, closed_s / whole_s) : closed_s;
}

// How much longer than alone_s the rates of the spine and PCIe make a transfer take that puts as
// many bytes on its links.
static double slowed_s(const sp_route *route, double bytes, int rounds, double alone_s)
{
    double rate_s = fmax(bytes / route->open_bytes_per_s, alone_s - rounds * route->latency_s);
    return fmax(0.0, bytes / route->bytes_per_s - rate_s);
}

sp_flow sp_route_flow_of(const sp_route *route, int64_t start_ns, double bytes, int rounds,
                         double alone_s)
{
    sp_flow flow = sp_route_flow(route, start_ns, bytes, rounds);
    double spine_s = rounds * route->spine_latency_s;
    double first_s = rounds * route->latency_s / route->steps;
    // A smaller part of the links holds nothing up, and rates (flows.h) are too coarse to send it
    // in time.
    bool sends = flow.bytes > LEAST_SHARE * route->open_bytes_per_s * alone_s;
    if (!sends || first_s >= alone_s) {
        flow.bytes = 0.0;
        flow.latency_s = alone_s + spine_s;
        return flow;
    }
    flow.bytes = fmin(flow.bytes, route->open_bytes_per_s * (alone_s - first_s));
    flow.latency_s = first_s + spine_s / route->steps;
    double lone_s = alone_s + spine_s + slowed_s(route, flow.bytes, rounds, alone_s);
    double sending_s = lone_s - flow.latency_s;
    if (route->is_part || flow.bytes < route->bytes_per_s * sending_s) {
        flow.most_bytes_per_s = flow.bytes / sending_s;
    }
    return flow;
}
