#include "sim/cost/zone_time.h"

#include <math.h>

// One rank's zones together.
typedef struct rank_time {
    sp_i_time sum;
    double ring_s[2], last_s[2]; // inside a node, between nodes; the block that comes in last
} rank_time;

static rank_time time_of_rank(const sp_i_zones *zones, int rank, sp_pass pass)
{
    rank_time t = {.last_s = {HUGE_VAL, HUGE_VAL}};
    for (size_t i = 0; i < zones->count; i++) {
        const sp_i_zone_part *part = &zones->part[i];
        if (rank < part->first || rank >= part->first + part->ranks) {
            continue;
        }
        t.sum.compute_s += part->of[pass].compute_s;
        t.sum.cp_s += part->of[pass].cp_s;
        t.sum.attention_s += part->of[pass].attention_s;
        if (part->ring_s[pass] > 0.0) {
            t.ring_s[part->crosses] += part->ring_s[pass];
            t.last_s[part->crosses] =
                fmin(t.last_s[part->crosses], part->of[pass].attention_s / part->ranks);
        }
    }
    return t;
}

// What of the rings no attention hides.
static double exposed_s(const rank_time *t)
{
    double longest_s = t->sum.compute_s;
    for (int kind = 0; kind < 2; kind++) {
        if (t->ring_s[kind] > 0.0) {
            longest_s = fmax(longest_s, t->ring_s[kind] + t->last_s[kind]);
        }
    }
    return fmin(t->sum.cp_s, longest_s - t->sum.compute_s);
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
    int count = sp_i_remap(surplus, zones->dp, zones->node_ranks, zones->move);
    sp_i_remap_links links = {zones->dp, zones->node_ranks, zones->one_nic, zones->work};
    return 2.0 * sp_i_remap_s(timer, &links, zones->move, count, gpu_bytes / 2.0);
}

sp_i_time sp_i_zones_time(sp_i_zones *zones, const sp_op_timer *timer, sp_pass pass,
                          double gpu_bytes)
{
    sp_i_time slowest = {0};
    for (int r = zones->first; r < zones->first + zones->ranks; r++) {
        rank_time t = time_of_rank(zones, r, pass);
        t.sum.cp_s = zones->lone_rings ? t.sum.cp_s : exposed_s(&t);
        if (t.sum.compute_s + t.sum.cp_s > slowest.compute_s + slowest.cp_s) {
            slowest = t.sum;
        }
    }
    slowest.cp_s += remap_s(zones, timer, gpu_bytes);
    return slowest;
}
