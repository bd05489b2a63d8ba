// What collectives of data-parallel ranks take by algorithm where the network has a spine that they
// may cross. How often they do goes with where each rank lies, so their ways over links are asked
// (network/), those of all TP ranks of the worst pipeline rank at a time; the ways also tell what
// PCIe holds up. Without a spine nothing is asked: closed formulas do not know of PCIe.
#include <math.h>

#include "sim/base/alloc.h"
#include "sim/cost/cost_private.h"
#include "sim/cost/time_private.h"
#include "sim/network/collective_route.h"
#include "sim/network/collective_shape.h"

// Between leaf switches of several nodes or, without PXN, of several rails.
static bool has_spine(const sp_cluster *cluster)
{
    const sp_fabric *fabric = &cluster->fabric;
    bool leaves = fabric->nodes_per_leaf > 0 && fabric->nodes_per_leaf < cluster->nodes;
    return cluster->nodes > 1 && (leaves || (fabric->rails > 1 && !fabric->pxn));
}

static bool can_be_slowed(const sp_cost_model *cost)
{
    const sp_layout *layout = cost->layout;
    const sp_cluster *cluster = cost->cluster;
    int64_t gpus = (int64_t)cluster->nodes * cluster->gpus_per_node;
    return cost->profile->algorithm != SP_ALGORITHM_PROFILE && layout->dp * layout->cp > 1 &&
           has_spine(cluster) &&
           sp_layout_ranks(layout) <= gpus; // more are counted to say what would fit
}

static void note(sp_collective_route *route, bool *is_slowed, sp_i_line *worst)
{
    sp_i_line line = {0.0, 0.0};
    for (int i = 0; i < route->count; i++) {
        sp_collective_phase *leg = &route->phases[i];
        *is_slowed = *is_slowed || sp_route_is_slowed(&leg->route);
        sp_route_include_spine(&leg->route);
        line.latency_s += leg->rounds * leg->route.latency_s;
        line.s_per_byte +=
            leg->rounds * leg->share / (leg->route.parts * leg->route.open_bytes_per_s);
    }
    worst->latency_s = fmax(worst->latency_s, line.latency_s);
    worst->s_per_byte = fmax(worst->s_per_byte, line.s_per_byte);
}

// The algorithm that is stated, the ring where that does not serve, and all that may be the
// fastest.
static bool may_choose(const sp_cost_model *cost, sp_collective_algorithm by, sp_collective kind,
                       sp_group group)
{
    sp_collective_algorithm stated = cost->profile->algorithm;
    bool asked = stated == SP_ALGORITHM_AUTO || by == stated || by == SP_ALGORITHM_RING;
    return asked && sp_i_algorithm_serves(by, kind, group) &&
           (by != SP_ALGORITHM_NVLS || cost->cluster->nvls);
}

static void find_of(const sp_cost_model *cost, const sp_topology *topology, const int64_t *gpus,
                    sp_i_lone_lines *lone)
{
    static const sp_collective kinds[] = {SP_ALL_REDUCE, SP_ALL_GATHER, SP_REDUCE_SCATTER};
    const sp_layout *layout = cost->layout;
    sp_group group = sp_cluster_group(cost->cluster, layout, SP_DIM_DP_CP);
    for (int i = 0; i < 3 * SP_ALGORITHM_AUTO; i++) {
        sp_collective kind = kinds[i / SP_ALGORITHM_AUTO];
        sp_collective_algorithm by = (sp_collective_algorithm)(i % SP_ALGORITHM_AUTO);
        bool is_filled = by == SP_ALGORITHM_RING && kind != SP_REDUCE_SCATTER; // fill_rings
        if (is_filled || !may_choose(cost, by, kind, group)) {
            continue;
        }
        sp_collective_route route;
        sp_collective_route_make(topology, by, kind, gpus, layout->tp, layout->dp * layout->cp,
                                 &route);
        note(&route, &lone->is_slowed[kind][by], &lone->of[kind][by]);
        sp_collective_route_fini(&route);
    }
}

// One ring serves both halves of an all-reduce.
static void fill_rings(sp_i_lone_lines *lone)
{
    const sp_i_line half = lone->of[SP_REDUCE_SCATTER][SP_ALGORITHM_RING];
    bool is_slowed = lone->is_slowed[SP_REDUCE_SCATTER][SP_ALGORITHM_RING];
    lone->of[SP_ALL_GATHER][SP_ALGORITHM_RING] = half;
    lone->of[SP_ALL_REDUCE][SP_ALGORITHM_RING] =
        (sp_i_line){2.0 * half.latency_s, 2.0 * half.s_per_byte};
    lone->is_slowed[SP_ALL_GATHER][SP_ALGORITHM_RING] = is_slowed;
    lone->is_slowed[SP_ALL_REDUCE][SP_ALGORITHM_RING] = is_slowed;
}

static void find_all(const sp_cost_model *cost, const sp_topology *topology, int64_t *gpus)
{
    for (int p = 0; p < cost->layout->pp; p++) {
        sp_layout_list_joint(cost->layout, 0, cost->layout->dp, p, gpus);
        find_of(cost, topology, gpus, cost->lone);
    }
    fill_rings(cost->lone);
}

sp_status sp_i_lone_lines_find(sp_cost_model *cost, sp_error *err)
{
    const sp_layout *layout = cost->layout;
    const sp_link_rates rates = sp_profile_link_rates(cost->profile);
    size_t ranks = (size_t)layout->tp * (size_t)layout->cp * (size_t)layout->dp;
    if (!can_be_slowed(cost)) {
        return SP_OK;
    }
    sp_topology *topology = NULL;
    int64_t *gpus = sp_malloc(ranks * sizeof *gpus);
    cost->lone = sp_calloc(1, sizeof *cost->lone);
    sp_status status = sp_topology_new(cost->cluster, &rates, &topology, err);
    if (status == SP_OK) {
        find_all(cost, topology, gpus);
    }
    sp_topology_free(topology);
    sp_free(gpus);
    return status;
}
