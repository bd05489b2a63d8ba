#include "sim/cost/zone_time.h"

#include <math.h>

static void add(const sp_i_zone_part *part, sp_pass pass, sp_i_zone_rank *rank)
{
    const sp_i_time *of = &part->of[pass];
    rank->sum.compute_s += of->compute_s;
    rank->sum.cp_s += of->cp_s;
    rank->sum.attention_s += of->attention_s;
    rank->blocking_s += part->blocking_s[pass];
    if (part->ring_s[pass] > 0.0) {
        double last_s = of->attention_s / part->blocks;
        double *least_s = &rank->last_s[part->crosses];
        *least_s = rank->ring_s[part->crosses] > 0.0 ? fmin(*least_s, last_s) : last_s;
        rank->ring_s[part->crosses] += part->ring_s[pass];
    }
}

static void add_parts(const sp_i_zones *zones, sp_pass pass)
{
    for (int r = 0; r < zones->dp; r++) {
        zones->rank[r] = (sp_i_zone_rank){0};
    }
    for (size_t i = 0; i < zones->count; i++) {
        const sp_i_zone_part *part = &zones->part[i];
        for (int r = part->first; r < part->first + part->ranks; r++) {
            add(part, pass, &zones->rank[r]);
        }
    }
}

// What of the rings no attention hides, and what nothing does.
static double exposed_s(const sp_i_zone_rank *t)
{
    double longest_s = t->sum.compute_s;
    for (int kind = 0; kind < 2; kind++) {
        if (t->ring_s[kind] > 0.0) {
            longest_s = fmax(longest_s, t->ring_s[kind] + t->last_s[kind]);
        }
    }
    return fmin(t->sum.cp_s - t->blocking_s, longest_s - t->sum.compute_s) + t->blocking_s;
}

static double remap_s(sp_i_zones *zones, const sp_op_timer *timer, double gpu_bytes)
{
    double *surplus = zones->work;
    double tokens = 0.0;
    for (int r = 0; r < zones->dp; r++) {
        surplus[r] = 0.0;
    }
    for (size_t i = 0; i < zones->count; i++) {
        const sp_i_zone_part *part = &zones->part[i];
        for (int r = part->first; r < part->first + part->ranks; r++) {
            surplus[r] += part->tokens / part->ranks;
        }
        tokens += part->tokens;
    }
    for (int r = zones->first; r < zones->first + zones->ranks; r++) {
        surplus[r] -= tokens / zones->ranks;
    }
    zones->moves = sp_i_remap(surplus, zones->dp, zones->node_ranks, zones->move);
    zones->gpu_bytes = gpu_bytes;
    sp_i_remap_links links = {zones->dp, zones->node_ranks, zones->one_nic, zones->work};
    zones->moves_s = 2.0 * sp_i_remap_s(timer, &links, zones->move, zones->moves, gpu_bytes / 2.0);
    return zones->moves_s;
}

sp_i_time sp_i_zones_time(sp_i_zones *zones, const sp_op_timer *timer, sp_pass pass,
                          double gpu_bytes)
{
    sp_i_time slowest = {0};
    add_parts(zones, pass);
    for (int r = zones->first; r < zones->first + zones->ranks; r++) {
        sp_i_time time = zones->rank[r].sum;
        time.cp_s = zones->lone_rings ? time.cp_s : exposed_s(&zones->rank[r]);
        if (time.compute_s + time.cp_s > slowest.compute_s + slowest.cp_s) {
            slowest = time;
        }
    }
    slowest.cp_s += remap_s(zones, timer, gpu_bytes);
    return slowest;
}
