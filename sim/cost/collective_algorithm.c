// Collectives by algorithm: latency + bytes * seconds per byte each, by rates and latencies of
// NVLink and NICs alone, or of all links where others slow them (lone_lines.c). What a rank sends
// waits for what it gets, in pieces that follow each other, so the slowest link sets the pace of
// all; the three collectives of a hierarchical one follow each other whole.
#include <math.h>

#include "sim/cost/time_private.h"
#include "sim/network/collective_shape.h"

static sp_i_line part_of(sp_i_line line, double share)
{
    return (sp_i_line){line.latency_s, share * line.s_per_byte};
}

static sp_i_line sum_of(sp_i_line a, sp_i_line b)
{
    return (sp_i_line){a.latency_s + b.latency_s, a.s_per_byte + b.s_per_byte};
}

// Of `gpus` GPUs' shares of the NICs of their node; NVLink serves where the cluster names none.
static double nic_s_per_byte(const sp_op_timer *timer, int gpus)
{
    double share = sp_i_nic_share_bytes_per_s(timer);
    return 1.0 / (gpus * (share > 0.0 ? share : timer->profile->nvlink_bytes_per_s));
}

static sp_i_line tree_line(const sp_op_timer *timer, sp_group group)
{
    double nodes = sp_i_double_tree_share(group.nodes);
    double chain = sp_i_chain_share(group.most_per_node, group.nodes, group.least_per_node);
    return (sp_i_line){sp_i_tree_latency_s(timer, group),
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
    sp_i_line in_nodes = sp_i_ring_line(timer, SP_REDUCE_SCATTER, inside);
    sp_i_line line = sum_of(in_nodes, part_of(sp_i_ring_line(timer, kind, across), 1.0 / members));
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
        return sp_i_ring_line(timer, kind, group);
    }
}

// What slows links makes none faster: a formula may take a slower link for one that is not used.
static sp_i_line line_of(const sp_op_timer *timer, sp_collective_algorithm algorithm,
                         sp_collective kind, sp_group group)
{
    const sp_i_lone_lines *lone = timer->lone;
    sp_i_line line = open_line(timer, algorithm, kind, group);
    if (lone == NULL || !lone->is_slowed[kind][algorithm]) {
        return line;
    }
    const sp_i_line *of = &lone->of[kind][algorithm];
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

double sp_i_time_by_algorithm(const sp_op_timer *timer, sp_collective kind, sp_group group,
                              double bytes)
{
    sp_collective_algorithm algorithm = sp_collective_choice(timer, kind, group, bytes);
    sp_i_line line = line_of(timer, algorithm, kind, group);
    return line.latency_s + bytes * line.s_per_byte;
}

double sp_i_algorithm_least_s_per_byte(const sp_op_timer *timer, sp_collective kind, sp_group group)
{
    return line_of(timer, choose(timer, kind, group, 0.0, 1.0), kind, group).s_per_byte;
}
