#include "sim/network/route.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/model/stack.h"

typedef struct hop_list {
    sp_flow_hop *hops;
    size_t count, capacity;
} hop_list;

// Hops of many ways, added up; of each part those of the ways that end at its GPUs.
typedef struct hop_sum {
    const sp_topology *topology;
    sp_route_parts split;
    hop_list *parts;            // [split.count]
    double inside_s, between_s; // longest latency of a way inside a node and between nodes
    double spine_s;             // longest that the spine adds between nodes
    double gpu_ways;            // to other nodes, of a GPU, which has its share of a NIC for them
} hop_sum;

// Members first .. first + count of a group lie in one node.
typedef struct node_members {
    int first, count;
} node_members;

static void hops_add_uneven(hop_sum *h, int64_t from, int64_t to, int times, int last_times);

// Routes are made of links, to which many paths add up, and of the members of nodes.

static bool is_in_one_node(const sp_topology *t, int64_t from, int64_t to)
{
    return sp_topology_node(t, from) == sp_topology_node(t, to);
}

static hop_sum hops_begin(const sp_topology *topology, sp_route_parts split)
{
    return (hop_sum){.topology = topology,
                     .split = split,
                     .gpu_ways = 1,
                     .parts = sp_calloc((size_t)split.count, sizeof(hop_list))};
}

// The way from one GPU to another, `times` times.
static void hops_add(hop_sum *h, int64_t from, int64_t to, int times)
{
    hops_add_uneven(h, from, to, times, times);
}

// The same, its last link another number of times.
static void hops_add_uneven(hop_sum *h, int64_t from, int64_t to, int times, int last_times)
{
    double latency_s;
    double spine_s;
    hop_list *list = &h->parts[to / h->split.stride % h->split.count];
    SP_RESERVE(list->hops, list->capacity, list->count + SP_PATH_HOPS);
    int hops =
        sp_topology_path(h->topology, from, to, &list->hops[list->count], &latency_s, &spine_s);
    for (int i = 0; i < hops; i++) {
        list->hops[list->count++].times = i + 1 < hops ? times : last_times;
    }
    if (is_in_one_node(h->topology, from, to)) {
        h->inside_s = fmax(h->inside_s, latency_s);
    } else {
        h->between_s = fmax(h->between_s, latency_s);
        h->spine_s = fmax(h->spine_s, spine_s);
    }
}

static int compare_hops(const void *a, const void *b)
{
    int32_t x = ((const sp_flow_hop *)a)->link;
    int32_t y = ((const sp_flow_hop *)b)->link;
    return (x > y) - (x < y);
}

// Closed formulas ask for the rates of NVLink and NICs alone.
static bool is_of_formulas(sp_link_kind kind)
{
    return kind == SP_LINK_NVLINK || kind == SP_LINK_NIC;
}

// Adds up the hops of each link.
static void merge_hops(hop_list *list)
{
    size_t kept = 0;
    if (list->count > 0) {
        qsort(list->hops, list->count, sizeof *list->hops, compare_hops);
    }
    for (size_t i = 0; i < list->count; i++) {
        if (kept > 0 && list->hops[kept - 1].link == list->hops[i].link) {
            list->hops[kept - 1].times += list->hops[i].times;
        } else {
            list->hops[kept++] = list->hops[i];
        }
    }
    list->count = kept;
}

// Lowers the rates of a route to those of its links.
static void lower_rates(const hop_sum *h, const hop_list *list, sp_route *route)
{
    const sp_topology *topology = h->topology;
    const double *bytes_per_s = sp_topology_bytes_per_s(topology);
    bool crosses = false;
    for (size_t i = 0; i < list->count; i++) {
        sp_link_kind kind = sp_topology_link(topology, list->hops[i].link).kind;
        double rate = bytes_per_s[list->hops[i].link] / list->hops[i].times;
        route->bytes_per_s = fmin(route->bytes_per_s, rate);
        if (is_of_formulas(kind)) {
            route->open_bytes_per_s = fmin(route->open_bytes_per_s, rate);
        }
        crosses = crosses || kind == SP_LINK_NIC;
    }
    double closed = crosses ? sp_topology_nic_share(topology) / h->gpu_ways : HUGE_VAL;
    route->closed_bytes_per_s = fmin(route->open_bytes_per_s, closed);
}

// The hops of all parts, where there are several.
static void join_parts(const hop_sum *h, hop_list *all)
{
    for (int i = 0; i < h->split.count; i++) {
        const hop_list *list = &h->parts[i];
        SP_RESERVE(all->hops, all->capacity, all->count + list->count);
        for (size_t k = 0; k < list->count; k++) {
            all->hops[all->count++] = list->hops[k];
        }
    }
}

static void set_rates(const hop_sum *h, sp_route *whole)
{
    hop_list all = {.count = 0};
    whole->bytes_per_s = whole->open_bytes_per_s =
        whole->most_bytes_per_s > 0.0 ? whole->most_bytes_per_s : HUGE_VAL;
    if (h->split.count > 1) {
        join_parts(h, &all);
        merge_hops(&all);
    }
    lower_rates(h, h->split.count == 1 ? &h->parts[0] : &all, whole);
    sp_free(all.hops);
}

// Hands over the hops, those of one link as one: routes of the parts, [split.count], which are
// `whole` but for them and for the rates of its links.
static void hops_finish(hop_sum *h, sp_route whole, sp_route *routes)
{
    whole.is_part = h->split.count > 1;
    for (int i = 0; i < h->split.count; i++) {
        merge_hops(&h->parts[i]);
    }
    set_rates(h, &whole);
    for (int i = 0; i < h->split.count; i++) {
        whole.path = h->parts[i].hops;
        whole.hops = (int32_t)h->parts[i].count;
        routes[i] = whole;
    }
    sp_free(h->parts);
}

// ---- members of a node ----

static node_members members_in_node(const sp_topology *t, const int64_t *gpus, int count, int first)
{
    node_members m = {first, 1};
    while (first + m.count < count && is_in_one_node(t, gpus[first], gpus[first + m.count])) {
        m.count++;
    }
    return m;
}

// The place among a node's members at which ring `c` of `rings` comes in: on a rail if one is
// there.
static int entry_of_ring(const sp_topology *t, const int64_t *gpus, node_members m, int c,
                         int rings, int rail)
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
        node_members m = members_in_node(t, gpus, count, first);
        *least = m.count < *least ? m.count : *least;
        first += m.count;
    }
    return nodes;
}

// The rail of ring `c` of `rings` in the least populated node.
static int rail_of_ring(const sp_topology *t, const int64_t *gpus, int count, int c, int rings)
{
    node_members least = members_in_node(t, gpus, count, 0);
    for (int done = 0; done < count;) {
        node_members m = members_in_node(t, gpus, count, done);
        least = m.count < least.count ? m : least;
        done += m.count;
    }
    return sp_topology_rail(t, gpus[least.first + (int)((int64_t)c * least.count / rings)]);
}

// The most nodes of a group; *rings: how many fit into each of them, one in a node alone.
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

#define LEAST_SHARE 1e-6 // of links, that a flow takes

void sp_route_fini(sp_route *route)
{
    sp_free(route->path);
    *route = (sp_route){.hops = 0};
}

// ---- rings ----

// A round is as many steps as members but one, of which as many between nodes as nodes but one.
static sp_route round_of(const hop_sum *h, double parts, int count, int nodes)
{
    return (sp_route){.parts = parts,
                      .latency_s = (count - nodes) * h->inside_s + (nodes - 1) * h->between_s,
                      .spine_latency_s = (nodes - 1) * h->spine_s,
                      .steps = count - 1};
}

static void add_ring(hop_sum *h, const int64_t *gpus, int count, int c, int rings)
{
    int rail = rail_of_ring(h->topology, gpus, count, c, rings);
    int64_t first = -1;
    int64_t at = -1;
    for (int done = 0; done < count;) {
        node_members m = members_in_node(h->topology, gpus, count, done);
        int entry = entry_of_ring(h->topology, gpus, m, c, rings, rail);
        for (int step = 0; step < m.count; step++) {
            int64_t next = gpus[m.first + (entry + step) % m.count];
            if (at >= 0) {
                hops_add(h, at, next, 1);
            } else {
                first = next;
            }
            at = next;
        }
        done += m.count;
    }
    hops_add(h, at, first, 1);
}

// sp_route_rings by parts (route.h).
static void make_rings(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                       sp_route_parts split, sp_route *routes)
{
    hop_sum h = hops_begin(topology, split);
    int rings;
    SP_ASSERT(groups > 0 && count > 1);
    int nodes = most_nodes(topology, gpus, groups, count, &rings);
    for (int g = 0; g < groups; g++) {
        for (int c = 0; c < rings; c++) {
            add_ring(&h, &gpus[g * count], count, c, rings);
        }
    }
    sp_route whole = round_of(&h, (double)count / (count - 1) * rings, count, nodes);
    hops_finish(&h, whole, routes);
}

void sp_route_rings(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                    sp_route *route)
{
    make_rings(topology, gpus, groups, count, SP_ROUTE_WHOLE, route);
}

// ---- rings whose hops go by several NICs ----

// Members of a node that have a NIC each, from one on, or backward; at most `most`.
static int list_nics(const sp_topology *t, const int64_t *gpus, node_members m, bool backward,
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
static void add_routed_hop(hop_sum *h, const int64_t *gpus, node_members from, node_members to,
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
            hops_add(h, sender, a, 1);
        }
        hops_add(h, a, b, 1);
        if (b != receiver) {
            hops_add(h, b, receiver, 1);
        }
    }
}

static void add_routed_ring(hop_sum *h, const int64_t *gpus, int count, int nics)
{
    node_members first = members_in_node(h->topology, gpus, count, 0);
    for (node_members m = first;;) {
        for (int i = 0; i + 1 < m.count; i++) {
            hops_add(h, gpus[m.first + i], gpus[m.first + i + 1], nics);
        }
        bool is_last = m.first + m.count == count;
        node_members next =
            is_last ? first : members_in_node(h->topology, gpus, count, m.first + m.count);
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
    if (most_nodes(topology, gpus, groups, count, &members) == 1) {
        sp_route_rings(topology, gpus, groups, count, route);
        return;
    }
    hop_sum h = hops_begin(topology, SP_ROUTE_WHOLE);
    for (int g = 0; g < groups; g++) {
        add_routed_ring(&h, &gpus[g * count], count, nics);
    }
    h.gpu_ways = (double)nics / members; // the group's shares serve all of them
    // All wait for the hop between nodes.
    const sp_route whole = {.parts = (double)count / (count - 1) * nics,
                            .latency_s = (count - 1) * h.between_s,
                            .spine_latency_s = (count - 1) * h.spine_s,
                            .steps = count - 1};
    hops_finish(&h, whole, route);
}

// ---- others ----

// Members of each node of a group, and the places of GPUs among them.
typedef struct node_places {
    int *place, *members; // [count], of the GPU's node
    int nodes, most;
} node_places;

static node_places find_places(const sp_topology *t, const int64_t *gpus, int count)
{
    node_places found = {.place = sp_malloc((size_t)count * sizeof(int)),
                         .members = sp_malloc((size_t)count * sizeof(int))};
    for (int done = 0; done < count; found.nodes++) {
        node_members m = members_in_node(t, gpus, count, done);
        for (int i = 0; i < m.count; i++) {
            found.place[done + i] = i;
            found.members[done + i] = m.count;
        }
        found.most = m.count > found.most ? m.count : found.most;
        done += m.count;
    }
    return found;
}

static bool reaches(const sp_topology *t, const int64_t *gpus, const node_places *in, int from,
                    int to, sp_route_reach reach)
{
    bool inside = is_in_one_node(t, gpus[from], gpus[to]);
    return reach == SP_REACH_ALL    ? true
           : reach == SP_REACH_NODE ? inside
                                    : !inside && in->place[from] % in->members[to] == in->place[to];
}

bool sp_route_all_to_all_parts(const sp_topology *topology, const int64_t *gpus, int groups,
                               int count, sp_route_reach reach, sp_route_parts split,
                               sp_route *routes)
{
    hop_sum h = hops_begin(topology, split);
    int ways = 0; // of a member
    int parts = count;
    bool any = false;
    for (int g = 0; g < groups; g++) {
        const int64_t *group = &gpus[g * count];
        node_places in = find_places(topology, group, count);
        for (int i = 0; i < count * count; i++) {
            if (i / count != i % count &&
                reaches(topology, group, &in, i / count, i % count, reach)) {
                hops_add(&h, group[i / count], group[i % count], 1);
                any = true;
            }
        }
        int of_group = reach == SP_REACH_PEERS ? in.nodes : in.most;
        ways = of_group > ways ? of_group : ways;
        sp_free(in.place);
        sp_free(in.members);
    }
    int rings;
    int nodes = most_nodes(topology, gpus, groups, count, &rings);
    h.gpu_ways = reach == SP_REACH_PEERS ? ways - 1 : count - rings;
    h.gpu_ways = fmax(1.0, h.gpu_ways);
    parts = reach == SP_REACH_ALL ? count : ways;
    const sp_route whole =
        reach == SP_REACH_ALL
            ? round_of(&h, parts, count, nodes)
            : (sp_route){.parts = parts,
                         .latency_s = reach == SP_REACH_NODE ? h.inside_s : h.between_s,
                         .spine_latency_s = h.spine_s,
                         .steps = 1};
    hops_finish(&h, whole, routes);
    return any;
}

void sp_route_all_to_alls(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                          sp_route *route)
{
    sp_route_all_to_all_parts(topology, gpus, groups, count, SP_REACH_ALL, SP_ROUTE_WHOLE, route);
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
    hop_sum h = hops_begin(topology, SP_ROUTE_WHOLE);
    for (int i = 0; i < count * by; i++) {
        if (from[i / by] != by_from[i]) {
            hops_add(&h, from[i / by], by_from[i], 1);
        }
        hops_add(&h, by_from[i], by_to[i], 1);
        if (to[i / by] != by_to[i]) {
            hops_add(&h, by_to[i], to[i / by], 1);
        }
    }
    const sp_route whole = {.parts = (double)count * by,
                            .latency_s = fmax(h.inside_s, h.between_s),
                            .spine_latency_s = h.spine_s,
                            .steps = 1};
    hops_finish(&h, whole, route);
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

// ---- double trees ----

// Over one GPU of each node: every edge of both trees is gone up and down once.
static void add_double_tree(hop_sum *h, const int64_t *tops, int nodes)
{
    for (int tree = 0; tree < 2; tree++) {
        for (int node = 0; node < nodes; node++) {
            int parent = sp_i_double_tree_parent(tree, node, nodes);
            if (parent >= 0) {
                hops_add(h, tops[node], tops[parent], 1);
                hops_add(h, tops[parent], tops[node], 1);
            }
        }
    }
}

// Up to the first member and down again, with what goes over both trees.
static void add_chain(hop_sum *h, const int64_t *gpus, node_members m, int first)
{
    for (int step = 1; step < m.count; step++) {
        int64_t above = gpus[m.first + (first + step - 1) % m.count];
        int64_t below = gpus[m.first + (first + step) % m.count];
        hops_add(h, below, above, 2);
        hops_add(h, above, below, 2);
    }
}

static void add_channel(hop_sum *h, const int64_t *gpus, int count, int c, int channels,
                        int64_t *tops)
{
    int rail = rail_of_ring(h->topology, gpus, count, c, channels);
    int nodes = 0;
    for (int done = 0; done < count; nodes++) {
        node_members m = members_in_node(h->topology, gpus, count, done);
        int entry = entry_of_ring(h->topology, gpus, m, c, channels, rail);
        add_chain(h, gpus, m, entry);
        tops[nodes] = gpus[m.first + entry];
        done += m.count;
    }
    add_double_tree(h, tops, nodes);
}

static int most_in_node(const sp_topology *topology, const int64_t *gpus, int groups, int count)
{
    int most = 1;
    for (int done = 0; done < groups * count;) {
        const int64_t *group = &gpus[done / count * count];
        int members = members_in_node(topology, group, count, done % count).count;
        most = members > most ? members : most;
        done += members;
    }
    return most;
}

static void make_trees(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                       sp_route_parts split, sp_route *routes)
{
    hop_sum h = hops_begin(topology, split);
    int channels;
    int nodes = most_nodes(topology, gpus, groups, count, &channels);
    h.gpu_ways = 2.0 * sp_i_double_tree_share(nodes);
    int steps = 2 * (most_in_node(topology, gpus, groups, count) - 1);
    int crossings = 2 * sp_i_tree_levels(nodes);
    int64_t *tops = sp_malloc((size_t)count * sizeof *tops);
    for (int i = 0; i < groups * channels; i++) {
        add_channel(&h, &gpus[i / channels * count], count, i % channels, channels, tops);
    }
    sp_free(tops);
    const sp_route whole = {.parts = 2.0 * channels,
                            .latency_s = steps * h.inside_s + crossings * h.between_s,
                            .spine_latency_s = crossings * h.spine_s,
                            .steps = steps + crossings};
    hops_finish(&h, whole, routes);
}

// ---- switches that reduce ----

// Adds what every member sends to the switch of its node and gets from it. A way from each to the
// next is one port out and one in.
static void add_switch(hop_sum *h, const int64_t *gpus, int members, int out, int in)
{
    for (int i = 0; i < members; i++) {
        hops_add_uneven(h, gpus[i], gpus[(i + 1) % members], out, in);
    }
}

static void add_rails(hop_sum *h, const int64_t *gpus, int nodes, int members, int64_t *tops)
{
    for (int i = 0; i < members; i++) {
        for (int node = 0; node < nodes; node++) {
            tops[node] = gpus[node * members + i];
        }
        add_double_tree(h, tops, nodes);
    }
}

// A member's part of the tensor is that of its node's members, in two halves for the two trees.
static void make_switches(const sp_topology *topology, sp_collective kind, const int64_t *gpus,
                          int groups, int count, int members, sp_route_parts split,
                          sp_route *routes)
{
    hop_sum h = hops_begin(topology, split);
    int nodes = count / members;
    h.gpu_ways = 2.0 * sp_i_double_tree_share(nodes);
    int out = 2 * ((kind == SP_ALL_GATHER ? 0 : members) + (kind == SP_REDUCE_SCATTER ? 0 : 1));
    int in = 2 * ((kind == SP_ALL_GATHER ? 0 : 1) + (kind == SP_REDUCE_SCATTER ? 0 : members));
    int64_t *tops = sp_malloc((size_t)nodes * sizeof *tops);
    for (int done = 0; done < groups * count; done += members) {
        add_switch(&h, &gpus[done], members, out, in);
    }
    for (int g = 0; nodes > 1 && g < groups; g++) {
        add_rails(&h, &gpus[g * count], nodes, members, tops);
    }
    sp_free(tops);
    int levels = sp_i_tree_levels(nodes);
    double crossings = 2.0 * levels * SP_I_NVLS_TREE_STEPS;
    const double nvlink = sp_topology_bytes_per_s(topology)[0]; // the first kind of link
    const sp_route whole = {.parts = 2.0 * members,
                            .latency_s = SP_I_NVLS_STEPS * h.inside_s + crossings * h.between_s,
                            .spine_latency_s = crossings * h.spine_s,
                            .steps = 1 + 2 * levels,
                            .most_bytes_per_s =
                                SP_I_NVLS_EFFICIENCY * nvlink / (out > in ? out : in)};
    hops_finish(&h, whole, routes);
}

// ---- one after another ----

typedef struct maker {
    const sp_topology *topology;
    sp_collective kind;
    const int64_t *gpus;
    int groups, count;
    int members; // of a group in each node; 0: they differ
    sp_route_parts split;
    sp_route *routes;          // [split.count]: of the phase that is being made
    sp_collective_route *made; // [split.count]
} maker;

static void add_phase(const maker *m, double share, int rounds)
{
    for (int i = 0; i < m->split.count; i++) {
        sp_collective_route *route = &m->made[i];
        route->phases[route->count++] = (sp_collective_phase){m->routes[i], share, rounds};
    }
}

static void add_rings(const maker *m, const int64_t *gpus, int groups, int count, double share,
                      int rounds)
{
    make_rings(m->topology, gpus, groups, count, m->split, m->routes);
    add_phase(m, share, rounds);
}

static void make_hierarchical(const maker *m)
{
    int members = m->members;
    int nodes = m->count / members;
    int64_t *across = sp_malloc((size_t)m->groups * (size_t)m->count * sizeof *across);
    for (int i = 0; i < m->groups * m->count; i++) {
        int place = i % m->count;
        across[i - place + place % members * nodes + place / members] = m->gpus[i];
    }
    if (m->kind != SP_ALL_GATHER) {
        add_rings(m, m->gpus, m->groups * nodes, members, 1.0, 1);
    }
    add_rings(m, across, m->groups * members, nodes, 1.0 / members,
              m->kind == SP_ALL_REDUCE ? 2 : 1);
    if (m->kind != SP_REDUCE_SCATTER) {
        add_rings(m, m->gpus, m->groups * nodes, members, 1.0, 1);
    }
    sp_free(across);
}

// The members that every node of every group has; 0 where they differ.
static int even_members(const sp_topology *topology, const int64_t *gpus, int groups, int count)
{
    int members = members_in_node(topology, gpus, count, 0).count;
    bool even = count % members == 0;
    for (int done = 0; even && done < groups * count; done += members) {
        const int64_t *group = &gpus[done / count * count];
        even = members_in_node(topology, group, count, done % count).count == members;
    }
    return even ? members : 0;
}

static void make_legs(const maker *m, sp_collective_algorithm algorithm)
{
    int least = m->members > 0 ? m->members : 1;
    const sp_group group = {.size = m->count,
                            .nodes = m->count / least,
                            .least_per_node = least,
                            .most_per_node = m->members > 0 ? m->members : m->count};
    bool serves = sp_i_algorithm_serves(algorithm, m->kind, group);
    if (serves && algorithm == SP_ALGORITHM_HIERARCHICAL) {
        make_hierarchical(m);
    } else if (serves && algorithm == SP_ALGORITHM_TREE) {
        make_trees(m->topology, m->gpus, m->groups, m->count, m->split, m->routes);
        add_phase(m, 1.0, 1);
    } else if (serves && algorithm == SP_ALGORITHM_NVLS) {
        make_switches(m->topology, m->kind, m->gpus, m->groups, m->count, m->members, m->split,
                      m->routes);
        add_phase(m, 1.0, 1);
    } else {
        add_rings(m, m->gpus, m->groups, m->count, 1.0, m->kind == SP_ALL_REDUCE ? 2 : 1);
    }
}

void sp_collective_route_make_parts(const sp_topology *topology, sp_collective_algorithm algorithm,
                                    sp_collective kind, const int64_t *gpus, int groups, int count,
                                    sp_route_parts split, sp_collective_route *made)
{
    SP_ASSERT(groups > 0 && count > 1 && kind != SP_ALL_TO_ALL);
    const maker m = {.topology = topology,
                     .kind = kind,
                     .gpus = gpus,
                     .groups = groups,
                     .count = count,
                     .members = even_members(topology, gpus, groups, count),
                     .split = split,
                     .routes = sp_malloc((size_t)split.count * sizeof *m.routes),
                     .made = made};
    for (int i = 0; i < split.count; i++) {
        made[i] = (sp_collective_route){.count = 0};
    }
    make_legs(&m, algorithm);
    sp_free(m.routes);
}

void sp_collective_route_make(const sp_topology *topology, sp_collective_algorithm algorithm,
                              sp_collective kind, const int64_t *gpus, int groups, int count,
                              sp_collective_route *route)
{
    sp_collective_route_make_parts(topology, algorithm, kind, gpus, groups, count, SP_ROUTE_WHOLE,
                                   route);
}

void sp_collective_route_fini(sp_collective_route *route)
{
    for (int i = 0; i < route->count; i++) {
        sp_route_fini(&route->phases[i].route);
    }
    route->count = 0;
}

sp_flow sp_collective_phase_flow(const sp_collective_phase *phase, int64_t start_ns, double bytes)
{
    return sp_route_flow(&phase->route, start_ns, phase->share * bytes, phase->rounds);
}

double sp_collective_route_lone_s(const sp_collective_route *route, double bytes, double closed_s)
{
    double whole_s = 0.0;
    double saved_s = 0.0;
    for (int i = 0; i < route->count; i++) {
        const sp_collective_phase *phase = &route->phases[i];
        double sent = sp_collective_phase_flow(phase, 0, bytes).bytes;
        double s = phase->rounds * phase->route.latency_s + sent / phase->route.closed_bytes_per_s;
        whole_s += s;
        saved_s += s - sp_route_lone_s(&phase->route, phase->share * bytes, phase->rounds, s);
    }
    return saved_s > 0.0 ? closed_s - saved_s * fmin(1.0, closed_s / whole_s) : closed_s;
}

double sp_collective_phase_s(const sp_collective_phase *phase, double bytes)
{
    sp_flow flow = sp_collective_phase_flow(phase, 0, bytes);
    return phase->rounds * phase->route.latency_s + flow.bytes / phase->route.open_bytes_per_s;
}

// ---- Shapes of collectives ----

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
