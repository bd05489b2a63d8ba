// What routes are made of: links that many ways add up to, and the members of nodes.
#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/network/route_private.h"

static bool is_in_one_node(const sp_topology *t, int64_t from, int64_t to)
{
    return sp_topology_node(t, from) == sp_topology_node(t, to);
}

sp_i_hops sp_i_hops_begin(const sp_topology *topology, sp_route_parts split)
{
    return (sp_i_hops){.topology = topology,
                       .split = split,
                       .gpu_ways = 1,
                       .parts = sp_calloc((size_t)split.count, sizeof(sp_i_hop_list))};
}

void sp_i_hops_add(sp_i_hops *h, int64_t from, int64_t to, int times)
{
    sp_i_hops_add_uneven(h, from, to, times, times);
}

void sp_i_hops_add_uneven(sp_i_hops *h, int64_t from, int64_t to, int times, int last_times)
{
    double latency_s;
    double spine_s;
    sp_i_hop_list *of = &h->parts[to / h->split.stride % h->split.count];
    sp_reserve((void **)&of->hops, &of->capacity, of->count + SP_PATH_HOPS, sizeof *of->hops);
    int hops = sp_topology_path(h->topology, from, to, &of->hops[of->count], &latency_s, &spine_s);
    for (int i = 0; i < hops; i++) {
        of->hops[of->count++].times = i + 1 < hops ? times : last_times;
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

// Of each link one.
static void merge_hops(sp_i_hop_list *list)
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
static void lower_rates(const sp_i_hops *h, const sp_i_hop_list *list, sp_route *route)
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
static void join_parts(const sp_i_hops *h, sp_i_hop_list *all)
{
    for (int i = 0; i < h->split.count; i++) {
        const sp_i_hop_list *of = &h->parts[i];
        sp_reserve((void **)&all->hops, &all->capacity, all->count + of->count, sizeof *all->hops);
        for (size_t k = 0; k < of->count; k++) {
            all->hops[all->count++] = of->hops[k];
        }
    }
}

static void set_rates(const sp_i_hops *h, sp_route *whole)
{
    sp_i_hop_list all = {.count = 0};
    whole->bytes_per_s = whole->open_bytes_per_s =
        whole->most_bytes_per_s > 0.0 ? whole->most_bytes_per_s : HUGE_VAL;
    if (h->split.count > 1) {
        join_parts(h, &all);
        merge_hops(&all);
    }
    lower_rates(h, h->split.count == 1 ? &h->parts[0] : &all, whole);
    sp_free(all.hops);
}

void sp_i_hops_finish(sp_i_hops *h, sp_route whole, sp_route *routes)
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

sp_i_members sp_i_members_in_node(const sp_topology *t, const int64_t *gpus, int count, int first)
{
    sp_i_members m = {first, 1};
    while (first + m.count < count && is_in_one_node(t, gpus[first], gpus[first + m.count])) {
        m.count++;
    }
    return m;
}

int sp_i_entry_of(const sp_topology *t, const int64_t *gpus, sp_i_members m, int c, int rings,
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
        sp_i_members m = sp_i_members_in_node(t, gpus, count, first);
        *least = m.count < *least ? m.count : *least;
        first += m.count;
    }
    return nodes;
}

int sp_i_rail_of(const sp_topology *t, const int64_t *gpus, int count, int c, int rings)
{
    sp_i_members least = sp_i_members_in_node(t, gpus, count, 0);
    for (int done = 0; done < count;) {
        sp_i_members m = sp_i_members_in_node(t, gpus, count, done);
        least = m.count < least.count ? m : least;
        done += m.count;
    }
    return sp_topology_rail(t, gpus[least.first + (int)((int64_t)c * least.count / rings)]);
}

int sp_i_most_nodes(const sp_topology *t, const int64_t *gpus, int groups, int count, int *rings)
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
