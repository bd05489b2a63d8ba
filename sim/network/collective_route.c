#include "sim/network/collective_route.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/network/collective_shape.h"
#include "sim/network/route_private.h"

// ---- double trees ----

// Over one GPU of each node: every edge of both trees is gone up and down once.
static void add_double_tree(sp_i_hops *h, const int64_t *tops, int nodes)
{
    for (int tree = 0; tree < 2; tree++) {
        for (int node = 0; node < nodes; node++) {
            int parent = sp_i_double_tree_parent(tree, node, nodes);
            if (parent >= 0) {
                sp_i_hops_add(h, tops[node], tops[parent], 1);
                sp_i_hops_add(h, tops[parent], tops[node], 1);
            }
        }
    }
}

// Up to the first member and down again, with what goes over both trees.
static void add_chain(sp_i_hops *h, const int64_t *gpus, sp_i_members m, int first)
{
    for (int step = 1; step < m.count; step++) {
        int64_t above = gpus[m.first + (first + step - 1) % m.count];
        int64_t below = gpus[m.first + (first + step) % m.count];
        sp_i_hops_add(h, below, above, 2);
        sp_i_hops_add(h, above, below, 2);
    }
}

static void add_channel(sp_i_hops *h, const int64_t *gpus, int count, int c, int channels,
                        int64_t *tops)
{
    int rail = sp_i_rail_of(h->topology, gpus, count, c, channels);
    int nodes = 0;
    for (int done = 0; done < count; nodes++) {
        sp_i_members m = sp_i_members_in_node(h->topology, gpus, count, done);
        int entry = sp_i_entry_of(h->topology, gpus, m, c, channels, rail);
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
        int members = sp_i_members_in_node(topology, group, count, done % count).count;
        most = members > most ? members : most;
        done += members;
    }
    return most;
}

static void make_trees(const sp_topology *topology, const int64_t *gpus, int groups, int count,
                       sp_route_parts split, sp_route *routes)
{
    sp_i_hops h = sp_i_hops_begin(topology, split);
    int channels;
    int nodes = sp_i_most_nodes(topology, gpus, groups, count, &channels);
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
    sp_i_hops_finish(&h, whole, routes);
}

// ---- switches that reduce ----

// What every member sends to the switch of its node and gets from it. A way from each to the next
// is one port out and one in.
static void add_switch(sp_i_hops *h, const int64_t *gpus, int members, int out, int in)
{
    for (int i = 0; i < members; i++) {
        sp_i_hops_add_uneven(h, gpus[i], gpus[(i + 1) % members], out, in);
    }
}

static void add_rails(sp_i_hops *h, const int64_t *gpus, int nodes, int members, int64_t *tops)
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
    sp_i_hops h = sp_i_hops_begin(topology, split);
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
    sp_i_hops_finish(&h, whole, routes);
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
    sp_i_rings(m->topology, gpus, groups, count, m->split, m->routes);
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
    int members = sp_i_members_in_node(topology, gpus, count, 0).count;
    bool even = count % members == 0;
    for (int done = 0; even && done < groups * count; done += members) {
        const int64_t *group = &gpus[done / count * count];
        even = sp_i_members_in_node(topology, group, count, done % count).count == members;
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
