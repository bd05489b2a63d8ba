// Collectives and transfers between ranks: measured tables, closed formulas by algorithm, and what
// a spine adds to them.
#include <math.h>

#include "sim/base/alloc.h"
#include "sim/cost/cost_private.h"
#include "sim/cost/op_time.h"
#include "sim/network/collective_route.h"
#include "sim/network/collective_shape.h"

// ---- measured times by group size (profile.h, sp_collective_table) ----

// The tables of a kind whose group sizes are nearest to `ranks`: at most as large and at least as
// large, NULL where there is none.
typedef struct neighbours {
    const sp_collective_table *below, *above;
} neighbours;

static double time_by_algorithm(const sp_op_timer *timer, sp_collective kind, sp_group group,
                                double bytes);
static double algorithm_least_s_per_byte(const sp_op_timer *timer, sp_collective kind,
                                         sp_group group);

static neighbours neighbours_of(const sp_profile *profile, sp_collective kind, int ranks)
{
    neighbours found = {0};
    for (int i = 0; i < profile->collective_tables; i++) {
        const sp_collective_table *table = &profile->collective_times[i];
        if (table->kind != kind) {
            continue;
        }
        if (table->ranks <= ranks && (found.below == NULL || table->ranks > found.below->ranks)) {
            found.below = table;
        }
        if (table->ranks >= ranks && (found.above == NULL || table->ranks < found.above->ranks)) {
            found.above = table;
        }
    }
    return found;
}

static double from_others(int ranks)
{
    return (double)(ranks - 1) / ranks;
}

// Interpolates between what two tables give, or takes the one there is.
static double between(const neighbours *n, int ranks, double below, double above)
{
    if (n->above == NULL) {
        return below * from_others(ranks) / from_others(n->below->ranks);
    }
    if (n->below == NULL) {
        return above * from_others(ranks) / from_others(n->above->ranks);
    }
    if (n->below == n->above) {
        return below;
    }
    double share =
        log2((double)ranks / n->below->ranks) / log2((double)n->above->ranks / n->below->ranks);
    return below + share * (above - below);
}

static double table_s(const sp_op_timer *timer, const sp_collective_table *table, double bytes)
{
    if (table == NULL) {
        return 0.0;
    }
    double first = sp_i_curve_first(&table->time_s);
    double last = sp_i_curve_last(&table->time_s);
    sp_i_note_range(timer, SP_RANGE_COLLECTIVE, bytes, first, last);
    return sp_i_curve_hold(&table->time_s, bytes) * fmax(1.0, bytes / last);
}

static double least_s_per_byte(const sp_collective_table *table)
{
    const sp_curve *curve = table != NULL ? &table->time_s : NULL;
    double least = curve != NULL ? curve->y[0] / curve->x[0] : 0.0;
    for (int i = 1; curve != NULL && i < curve->points; i++) {
        least = fmin(least, curve->y[i] / curve->x[i]);
    }
    return least;
}

static bool has_measured_times(const sp_op_timer *timer, sp_collective kind)
{
    neighbours n = neighbours_of(timer->profile, kind, 2);
    return n.above != NULL;
}

// Of a kind that has tables: seconds over `ranks` of one node. Between the group sizes of two
// tables times are linear in log2 of the ranks; beyond them the nearest table's goes with the share
// (n-1)/n of a tensor that a rank gets from others. Below a table's points the time stays, above
// them it is in proportion to the bytes. O(tables).
static double measured_s(const sp_op_timer *timer, sp_collective kind, int ranks, double bytes)
{
    neighbours n = neighbours_of(timer->profile, kind, ranks);
    return between(&n, ranks, table_s(timer, n.below, bytes), table_s(timer, n.above, bytes));
}

// Seconds per byte below which a collective does not get.
static double measured_least_s_per_byte(const sp_op_timer *timer, sp_collective kind, int ranks)
{
    neighbours n = neighbours_of(timer->profile, kind, ranks);
    return between(&n, ranks, least_s_per_byte(n.below), least_s_per_byte(n.above));
}

// ---- models ----

// What every algorithm over the group shares. Bus bandwidth is NCCL's term (nccl-tests,
// doc/PERFORMANCE.md): algorithm bytes times `factor`.
typedef struct traffic {
    double factor;
    double steps;          // of a ring, all
    double crossing_steps; // of them between nodes
    double ring_bytes_per_s;
} traffic;

double sp_i_nic_share_bytes_per_s(const sp_op_timer *timer)
{
    const sp_cluster *cluster = timer->cluster;
    double node = cluster->nics_per_node * cluster->nic_bytes_per_s;
    return node * timer->profile->nic_efficiency / cluster->gpus_per_node;
}

// The rate between two GPUs of different nodes: never above NVLink, which also carries a cluster
// that names no NICs.
static double network_bytes_per_s(const sp_op_timer *timer, int gpus)
{
    double nvlink = timer->profile->nvlink_bytes_per_s;
    double network = sp_i_nic_share_bytes_per_s(timer) * gpus;
    return network > 0.0 ? fmin(network, nvlink) : nvlink;
}

// Ring: 2(n-1) steps for an all-reduce, n-1 otherwise; the data of a rank cross 2(N-1) or N-1 node
// borders on the way, the other steps stay inside (NCCL 2.28, src/graph/tuning.cc). The members in
// one node share its NICs among them; those in the least populated node are the bottleneck, and the
// other GPUs' shares serve their own groups.
static traffic ring_traffic(const sp_op_timer *timer, sp_collective kind, sp_group group)
{
    double rounds = kind == SP_ALL_REDUCE ? 2.0 : 1.0;
    traffic ring = {.factor = rounds * (group.size - 1) / group.size,
                    .steps = rounds * (group.size - 1),
                    .crossing_steps = rounds * (group.nodes - 1),
                    .ring_bytes_per_s = timer->profile->nvlink_bytes_per_s};
    if (group.nodes > 1) {
        ring.ring_bytes_per_s = network_bytes_per_s(timer, group.least_per_node);
    }
    return ring;
}

static double ring_latency(const sp_op_timer *timer, traffic ring)
{
    return (ring.steps - ring.crossing_steps) * timer->profile->nvlink_latency_s +
           ring.crossing_steps * timer->profile->nic_latency_s;
}

// The ring of a group of several by rates of links alone (collective.c).
static sp_i_line ring_line(const sp_op_timer *timer, sp_collective kind, sp_group group)
{
    traffic ring = ring_traffic(timer, kind, group);
    return (sp_i_line){ring_latency(timer, ring), ring.factor / ring.ring_bytes_per_s};
}

// The table is of the whole node's group; a smaller group inside the node gets the same bus
// bandwidth. Outside the points: held above, and the time of the first point below.
static double time_from_table(const sp_op_timer *timer, const sp_curve *curve, double factor,
                              double bytes)
{
    double first = sp_i_curve_first(curve);
    sp_i_note_range(timer, SP_RANGE_COLLECTIVE, bytes, first, sp_i_curve_last(curve));
    return fmax(bytes, first) * factor / sp_i_curve_hold(curve, bytes);
}

// Up and down a tree over the nodes, a chain inside each.
static double tree_latency_s(const sp_op_timer *timer, sp_group group)
{
    return 2.0 * sp_i_tree_levels(group.nodes) * timer->profile->nic_latency_s +
           2.0 * (group.most_per_node - 1) * timer->profile->nvlink_latency_s;
}

static double tree_time(const sp_op_timer *timer, sp_group group, double bytes_per_s, double bytes)
{
    return tree_latency_s(timer, group) + 2.0 * bytes / bytes_per_s;
}

// Every pair exchanges directly: a GPU's traffic to other nodes goes through its own share of the
// NICs, beside the traffic inside the node.
static double all_to_all_rate_s_per_byte(const sp_op_timer *timer, sp_group group)
{
    double inside = (double)(group.most_per_node - 1) / group.size;
    double outside = (double)(group.size - group.least_per_node) / group.size;
    return fmax(inside / timer->profile->nvlink_bytes_per_s,
                outside / network_bytes_per_s(timer, 1));
}

// All-reduces inside a node by group size (profile.h); gathers and scatters are half of one.
static double group_time(const sp_op_timer *timer, sp_collective kind, sp_group group, double bytes)
{
    const sp_group_model *model = &timer->profile->groups;
    double n = group.size;
    double all_reduce_s = model->latency_s + model->doubling_s * log2(n) +
                          2.0 * (n - 1.0) / n * bytes / sp_i_curve_hold(&model->bytes_per_s, n);
    return kind == SP_ALL_REDUCE ? all_reduce_s : 0.5 * all_reduce_s;
}

static bool has_group_model(const sp_op_timer *timer, sp_collective kind)
{
    return timer->profile->groups.bytes_per_s.points > 0 && kind != SP_ALL_TO_ALL;
}

static double plain_time(const sp_op_timer *timer, sp_collective kind, sp_group group, double bytes)
{
    traffic ring = ring_traffic(timer, kind, group);
    const sp_curve *curve = &timer->profile->collective[kind];
    if (group.nodes <= 1 && has_group_model(timer, kind)) {
        return group_time(timer, kind, group, bytes);
    }
    if (group.nodes <= 1 && curve->points > 0) {
        return time_from_table(timer, curve, ring.factor, bytes);
    }
    if (group.nodes > 1 && has_group_model(timer, kind)) {
        double latency_s = timer->profile->groups.between_s;
        return (kind == SP_ALL_REDUCE ? latency_s : 0.5 * latency_s) +
               bytes * ring.factor / ring.ring_bytes_per_s;
    }
    if (group.nodes > 1 && kind == SP_ALL_TO_ALL) {
        return bytes * all_to_all_rate_s_per_byte(timer, group) + ring_latency(timer, ring);
    }
    double time_s = bytes * ring.factor / ring.ring_bytes_per_s + ring_latency(timer, ring);
    if (kind == SP_ALL_REDUCE && group.nodes > 1) {
        time_s = fmin(time_s, tree_time(timer, group, ring.ring_bytes_per_s, bytes));
    }
    return time_s;
}

// An all-reduce also gathers (of zeros elsewhere) and scatters, so neither takes longer.
static bool all_reduce_serves(sp_collective kind)
{
    return kind == SP_ALL_GATHER || kind == SP_REDUCE_SCATTER;
}

static bool is_timed(const sp_op_timer *timer, sp_collective kind, sp_group group)
{
    return group.nodes <= 1 && has_measured_times(timer, kind);
}

double sp_time_collective(const sp_op_timer *timer, sp_collective kind, sp_group group,
                          double bytes)
{
    if (group.size > 1 && bytes > 0.0 && sp_i_has_algorithm(timer->profile, kind)) {
        return time_by_algorithm(timer, kind, group, bytes);
    }
    return sp_i_time_by_profile(timer, kind, group, bytes);
}

// The rank at the end of the ring has the first byte after all steps, the last one at the ring's
// rate.
double sp_time_rooted(const sp_op_timer *timer, sp_group group, double bytes)
{
    if (group.size <= 1 || !(bytes > 0.0)) {
        return 0.0;
    }
    traffic ring = ring_traffic(timer, SP_ALL_GATHER, group);
    return ring_latency(timer, ring) + bytes / ring.ring_bytes_per_s;
}

double sp_i_time_by_profile(const sp_op_timer *timer, sp_collective kind, sp_group group,
                            double bytes)
{
    if (group.size <= 1 || !(bytes > 0.0)) {
        return 0.0;
    }
    if (is_timed(timer, kind, group)) {
        return measured_s(timer, kind, group.size, bytes);
    }
    double time_s = plain_time(timer, kind, group, bytes);
    if (all_reduce_serves(kind)) {
        time_s = fmin(time_s, plain_time(timer, SP_ALL_REDUCE, group, bytes));
    }
    return time_s;
}

static double plain_least_s_per_byte(const sp_op_timer *timer, sp_collective kind, sp_group group)
{
    traffic ring = ring_traffic(timer, kind, group);
    const sp_curve *curve = &timer->profile->collective[kind];
    if (group.nodes <= 1 && has_group_model(timer, kind)) {
        return ring.factor / sp_i_curve_hold(&timer->profile->groups.bytes_per_s, group.size);
    }
    if (group.nodes <= 1 && curve->points > 0) {
        return ring.factor / sp_i_curve_most(curve);
    }
    if (group.nodes > 1 && kind == SP_ALL_TO_ALL) {
        return all_to_all_rate_s_per_byte(timer, group);
    }
    return ring.factor / ring.ring_bytes_per_s;
}

double sp_i_collective_least_s_per_byte(const sp_op_timer *timer, sp_collective kind,
                                        sp_group group)
{
    if (group.size <= 1) {
        return 0.0;
    }
    if (sp_i_has_algorithm(timer->profile, kind)) {
        return algorithm_least_s_per_byte(timer, kind, group);
    }
    if (is_timed(timer, kind, group)) {
        return measured_least_s_per_byte(timer, kind, group.size);
    }
    double least = plain_least_s_per_byte(timer, kind, group);
    if (all_reduce_serves(kind)) {
        least = fmin(least, plain_least_s_per_byte(timer, SP_ALL_REDUCE, group));
    }
    return least;
}

// Seconds per byte of a block that a hop between nodes takes by x NICs.
static double hop_s_per_byte(const sp_op_timer *timer, sp_group group, int x)
{
    double share = network_bytes_per_s(timer, group.least_per_node);
    double nic = timer->cluster->nic_bytes_per_s * timer->profile->nic_efficiency;
    double inside = 2.0 * (x - 1.0) / x / timer->profile->nvlink_bytes_per_s;
    return inside + 1.0 / fmin(share, nic > 0.0 ? x * nic : share);
}

int sp_ring_nics(const sp_op_timer *timer, sp_group group, int64_t nics)
{
    double share = network_bytes_per_s(timer, group.least_per_node);
    double nic = timer->cluster->nic_bytes_per_s * timer->profile->nic_efficiency;
    int best = 1;
    for (int x = 2; x <= nics && (x - 1.0) * nic < share; x++) {
        best = hop_s_per_byte(timer, group, x) < hop_s_per_byte(timer, group, best) ? x : best;
    }
    return best;
}

double sp_time_ring(const sp_op_timer *timer, sp_group group, double bytes, int64_t nics)
{
    int x = sp_ring_nics(timer, group, nics);
    double hop_s = bytes / group.size * hop_s_per_byte(timer, group, x);
    return (group.size - 1) * (timer->profile->nic_latency_s + hop_s);
}

double sp_time_p2p(const sp_op_timer *timer, double bytes, int crosses_node)
{
    const sp_profile *profile = timer->profile;
    if (crosses_node) {
        return profile->nic_latency_s + bytes / network_bytes_per_s(timer, 1);
    }
    return profile->p2p_latency_s + bytes / profile->p2p_bytes_per_s;
}

// ---- by algorithm ----

// Collectives by algorithm: latency + bytes * seconds per byte each, by rates and latencies of
// NVLink and NICs alone, or of all links where others slow them (find_spine_lines). What a rank
// sends waits for what it gets, in pieces that follow each other, so the slowest link sets the pace
// of all; the three collectives of a hierarchical one follow each other whole.

static sp_i_line part_of(sp_i_line line, double share)
{
    return (sp_i_line){line.latency_s, share * line.s_per_byte};
}

static sp_i_line sum_of(sp_i_line a, sp_i_line b)
{
    return (sp_i_line){a.latency_s + b.latency_s, a.s_per_byte + b.s_per_byte};
}

// `gpus` GPUs share the NICs of their node; NVLink serves where the cluster names none.
static double nic_s_per_byte(const sp_op_timer *timer, int gpus)
{
    double share = sp_i_nic_share_bytes_per_s(timer);
    return 1.0 / (gpus * (share > 0.0 ? share : timer->profile->nvlink_bytes_per_s));
}

static sp_i_line tree_line(const sp_op_timer *timer, sp_group group)
{
    double nodes = sp_i_double_tree_share(group.nodes);
    double chain = sp_i_chain_share(group.most_per_node, group.nodes, group.least_per_node);
    return (sp_i_line){tree_latency_s(timer, group),
                       fmax(nodes * nic_s_per_byte(timer, group.least_per_node),
                            chain / timer->profile->nvlink_bytes_per_s)};
}

// All-reduce of S over n GPUs of a node: each has S / n added up, for which the switch takes S from
// every GPU, and has the sum copied to all. A GPU's NVLink carries S + S/n each way, 2 S (n-1)/n in
// a ring. A reduce-scatter is the first half, S out and S/n in; an all-gather the second. Over
// nodes what a GPU has added up goes over the trees of the GPUs in its place, before it is copied.
static sp_i_line nvls_line(const sp_op_timer *timer, sp_collective kind, sp_group group)
{
    const sp_profile *profile = timer->profile;
    double members = group.most_per_node;
    double carried = kind == SP_ALL_REDUCE ? 1.0 + 1.0 / members : 1.0;
    double switch_s_per_byte = carried / (SP_I_NVLS_EFFICIENCY * profile->nvlink_bytes_per_s);
    double nodes = sp_i_double_tree_share(group.nodes) / members;
    double levels = 2.0 * sp_i_tree_levels(group.nodes);
    return (sp_i_line){SP_I_NVLS_STEPS * profile->nvlink_latency_s +
                           levels * SP_I_NVLS_TREE_STEPS * profile->nic_latency_s,
                       fmax(switch_s_per_byte, nodes * nic_s_per_byte(timer, 1))};
}

// Over the members of a node, and over those in one place of each node, who have a part each.
static sp_i_line hierarchical_line(const sp_op_timer *timer, sp_collective kind, sp_group group)
{
    int members = group.most_per_node;
    sp_group inside = {members, 1, members, members};
    sp_group across = {group.nodes, group.nodes, 1, 1};
    sp_i_line in_nodes = ring_line(timer, SP_REDUCE_SCATTER, inside);
    sp_i_line line = sum_of(in_nodes, part_of(ring_line(timer, kind, across), 1.0 / members));
    return kind == SP_ALL_REDUCE ? sum_of(line, in_nodes) : line;
}

static sp_i_line open_line(const sp_op_timer *timer, sp_collective_algorithm algorithm,
                           sp_collective kind, sp_group group)
{
    switch (algorithm) {
    case SP_ALGORITHM_TREE:
        return tree_line(timer, group);
    case SP_ALGORITHM_NVLS:
        return nvls_line(timer, kind, group);
    case SP_ALGORITHM_HIERARCHICAL:
        return hierarchical_line(timer, kind, group);
    default:
        return ring_line(timer, kind, group);
    }
}

// A spine makes no link faster: a formula may take a slower link for one that is not used.
static sp_i_line line_of(const sp_op_timer *timer, sp_collective_algorithm algorithm,
                         sp_collective kind, sp_group group)
{
    const sp_i_spine_lines *spine = timer->spine;
    sp_i_line line = open_line(timer, algorithm, kind, group);
    if (spine == NULL || !spine->is_slowed[kind][algorithm]) {
        return line;
    }
    const sp_i_line *of = &spine->of[kind][algorithm];
    return (sp_i_line){fmax(line.latency_s, of->latency_s), fmax(line.s_per_byte, of->s_per_byte)};
}

static bool serves(const sp_op_timer *timer, sp_collective_algorithm algorithm, sp_collective kind,
                   sp_group group)
{
    return sp_i_algorithm_serves(algorithm, kind, group) &&
           (algorithm != SP_ALGORITHM_NVLS || timer->cluster->nvls);
}

// The one that takes the least for so many latencies and bytes, where none is stated.
static sp_collective_algorithm choose(const sp_op_timer *timer, sp_collective kind, sp_group group,
                                      double latencies, double bytes)
{
    sp_collective_algorithm stated = timer->profile->algorithm;
    if (stated != SP_ALGORITHM_AUTO) {
        return serves(timer, stated, kind, group) ? stated : SP_ALGORITHM_RING;
    }
    sp_collective_algorithm best = SP_ALGORITHM_RING;
    double least_s = HUGE_VAL;
    for (int a = SP_ALGORITHM_RING; a < SP_ALGORITHM_AUTO; a++) {
        sp_collective_algorithm other = (sp_collective_algorithm)a;
        if (!serves(timer, other, kind, group)) {
            continue;
        }
        sp_i_line line = line_of(timer, other, kind, group);
        double other_s = latencies * line.latency_s + bytes * line.s_per_byte;
        if (other_s < least_s) {
            best = other;
            least_s = other_s;
        }
    }
    return best;
}

sp_collective_algorithm sp_collective_choice(const sp_op_timer *timer, sp_collective kind,
                                             sp_group group, double bytes)
{
    return sp_i_has_algorithm(timer->profile, kind) ? choose(timer, kind, group, 1.0, bytes)
                                                    : SP_ALGORITHM_PROFILE;
}

// sp_time_collective and the one above of a group of several, by the algorithm that a scenario
// chose.
static double time_by_algorithm(const sp_op_timer *timer, sp_collective kind, sp_group group,
                                double bytes)
{
    sp_collective_algorithm algorithm = sp_collective_choice(timer, kind, group, bytes);
    sp_i_line line = line_of(timer, algorithm, kind, group);
    return line.latency_s + bytes * line.s_per_byte;
}

static double algorithm_least_s_per_byte(const sp_op_timer *timer, sp_collective kind,
                                         sp_group group)
{
    return line_of(timer, choose(timer, kind, group, 0.0, 1.0), kind, group).s_per_byte;
}

// ---- over a spine ----

// Collectives of data-parallel ranks may cross a spine, where the network has one. How often they
// do depends on where each rank lies, so the links themselves are asked (network/), for all TP
// ranks of the worst pipeline rank at a time; they also tell what PCIe holds up. Without a spine
// nothing is asked: closed formulas do not know of PCIe.

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
        sp_collective_phase *phase = &route->phases[i];
        *is_slowed = *is_slowed || sp_route_is_slowed(&phase->route);
        sp_route_include_spine(&phase->route);
        line.latency_s += phase->rounds * phase->route.latency_s;
        line.s_per_byte +=
            phase->rounds * phase->share / (phase->route.parts * phase->route.open_bytes_per_s);
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
                    sp_i_spine_lines *spine)
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
        note(&route, &spine->is_slowed[kind][by], &spine->of[kind][by]);
        sp_collective_route_fini(&route);
    }
}

// One ring serves both halves of an all-reduce.
static void fill_rings(sp_i_spine_lines *spine)
{
    const sp_i_line half = spine->of[SP_REDUCE_SCATTER][SP_ALGORITHM_RING];
    bool is_slowed = spine->is_slowed[SP_REDUCE_SCATTER][SP_ALGORITHM_RING];
    spine->of[SP_ALL_GATHER][SP_ALGORITHM_RING] = half;
    spine->of[SP_ALL_REDUCE][SP_ALGORITHM_RING] =
        (sp_i_line){2.0 * half.latency_s, 2.0 * half.s_per_byte};
    spine->is_slowed[SP_ALL_GATHER][SP_ALGORITHM_RING] = is_slowed;
    spine->is_slowed[SP_ALL_REDUCE][SP_ALGORITHM_RING] = is_slowed;
}

static void find_all(const sp_cost_model *cost, const sp_topology *topology, int64_t *gpus)
{
    for (int p = 0; p < cost->layout->pp; p++) {
        sp_layout_list_joint(cost->layout, 0, cost->layout->dp, p, gpus);
        find_of(cost, topology, gpus, cost->spine);
    }
    fill_rings(cost->spine);
}

sp_status sp_i_find_spine_lines(sp_cost_model *cost, sp_error *err)
{
    const sp_layout *layout = cost->layout;
    const sp_link_rates rates = sp_profile_link_rates(cost->profile);
    size_t ranks = (size_t)layout->tp * (size_t)layout->cp * (size_t)layout->dp;
    if (!can_be_slowed(cost)) {
        return SP_OK;
    }
    sp_topology *topology = NULL;
    int64_t *gpus = sp_malloc(ranks * sizeof *gpus);
    cost->spine = sp_calloc(1, sizeof *cost->spine);
    sp_status status = sp_topology_new(cost->cluster, &rates, &topology, err);
    if (status == SP_OK) {
        find_all(cost, topology, gpus);
    }
    sp_topology_free(topology);
    sp_free(gpus);
    return status;
}
