
#include <math.h>

#include "sim/cost/op_time.h"
#include "sim/cost/profile_private.h"
#include "sim/cost/time_private.h"
#include "sim/network/collective_shape.h"

// ---- measured times by group size (profile.h, sp_collective_table) ----

// The tables of a kind whose group sizes are nearest to `ranks`: at most as large and at least as
// large, NULL where there is none.
typedef struct neighbours {
    const sp_collective_table *below, *above;
} neighbours;

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

// Of what two tables give, or one.
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

sp_i_line sp_i_ring_line(const sp_op_timer *timer, sp_collective kind, sp_group group)
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

double sp_i_tree_latency_s(const sp_op_timer *timer, sp_group group)
{
    return 2.0 * sp_i_tree_levels(group.nodes) * timer->profile->nic_latency_s +
           2.0 * (group.most_per_node - 1) * timer->profile->nvlink_latency_s;
}

static double tree_time(const sp_op_timer *timer, sp_group group, double bytes_per_s, double bytes)
{
    return sp_i_tree_latency_s(timer, group) + 2.0 * bytes / bytes_per_s;
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
        return sp_i_time_by_algorithm(timer, kind, group, bytes);
    }
    return sp_i_time_by_profile(timer, kind, group, bytes);
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
        return sp_i_algorithm_least_s_per_byte(timer, kind, group);
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
