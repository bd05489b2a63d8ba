// A profile's rates on a cluster of another GPU or NVLink, and what people are told of a profile
// that does not hold as it is.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/writer.h"
#include "sim/cost/cost_private.h"
#include "sim/cost/profile.h"

// ---- NVLink ----

// NVLink's nominal rate where the profile's links were measured; 0: nobody knows.
static double nominal_bytes_per_s(const sp_profile *profile)
{
    sp_cluster cluster;
    if (profile->nvlink_nominal_bytes_per_s > 0.0) {
        return profile->nvlink_nominal_bytes_per_s;
    }
    if (profile->has_cluster) {
        return profile->cluster.nvlink_bytes_per_s;
    }
    return sp_cluster_of_profile(profile->name, &cluster) ? cluster.nvlink_bytes_per_s : 0.0;
}

// For a curve over bytes: the time of a transfer of no bytes, on the line through the first two
// points; none where one point states a rate alone.
static double latency_of(const double *x, const double *seconds, int points)
{
    if (points < 2) {
        return 0.0;
    }
    double slope = (seconds[1] - seconds[0]) / (x[1] - x[0]);
    return fmax(0.0, seconds[0] - x[0] * slope);
}

// Seconds per point, of a curve of seconds or of bytes per second.
static double seconds_at(const sp_curve *curve, bool of_rates, int i)
{
    return of_rates ? curve->x[i] / curve->y[i] : curve->y[i];
}

// All beyond the latency takes 1/by of its time.
static void scale_transfers(sp_curve *curve, bool of_rates, double by)
{
    double first[2] = {0.0, 0.0};
    for (int i = 0; i < curve->points && i < 2; i++) {
        first[i] = seconds_at(curve, of_rates, i);
    }
    double latency_s = latency_of(curve->x, first, curve->points);
    for (int i = 0; i < curve->points; i++) {
        double seconds = latency_s + (seconds_at(curve, of_rates, i) - latency_s) / by;
        curve->y[i] = of_rates ? curve->x[i] / seconds : seconds;
    }
    sp_i_curve_monotone(curve, of_rates ? 1.0 : 0.0, !of_rates);
}

static void scale_nvlink(sp_profile *profile, double by)
{
    profile->nvlink_bytes_per_s *= by;
    profile->p2p_bytes_per_s *= by;
    for (int i = 0; i < profile->groups.bytes_per_s.points; i++) {
        profile->groups.bytes_per_s.y[i] *= by;
    }
    for (int i = 0; i < SP_COLLECTIVES; i++) {
        scale_transfers(&profile->collective[i], true, by);
    }
    for (int i = 0; i < profile->collective_tables; i++) {
        scale_transfers(&profile->collective_times[i].time_s, false, by);
    }
}

// Sends between pipeline ranks keep a latency of their own.
static void take_latencies(sp_profile *profile, const sp_cluster *cluster)
{
    if (cluster->nvlink_latency.given) {
        bool as_nvlink = profile->p2p_latency_s == profile->nvlink_latency_s;
        profile->nvlink_latency_s = cluster->nvlink_latency.s;
        profile->p2p_latency_s = as_nvlink ? profile->nvlink_latency_s : profile->p2p_latency_s;
    }
    if (cluster->nic_latency.given) {
        profile->nic_latency_s = cluster->nic_latency.s;
    }
}

// ---- the GPU ----

// By the data sheet, of the GPU that the profile is of; zeros: nobody knows.
static sp_cluster own_gpu(const sp_profile *profile, const sp_cluster *cluster)
{
    sp_cluster own;
    sp_cluster named;
    bool is_builtin = sp_cluster_builtin(cluster->name, &named, NULL) == SP_OK;
    if (profile->has_cluster) {
        own = profile->cluster;
    } else if (is_builtin && (strcmp(named.profile, profile->name) == 0 ||
                              sp_gpu_is_described(profile->gpu, named.gpu))) {
        own = named;
    } else if (!sp_cluster_of_gpu(profile->gpu, &own) &&
               !sp_cluster_of_profile(profile->name, &own) && is_builtin) {
        own = named;
    }
    if (profile->peak_flops_per_s > 0.0) {
        own.peak_flops_per_s = profile->peak_flops_per_s;
    }
    if (profile->hbm_bytes_per_s > 0.0) {
        own.hbm_bytes_per_s = profile->hbm_bytes_per_s;
    }
    return own;
}

// 1, to the last bit, where a figure of both was written down with other units.
static double ratio(double cluster, double own)
{
    const double rounding = 1e-9;
    double by = own > 0.0 && cluster > 0.0 ? cluster / own : 1.0;
    return fabs(by - 1.0) < rounding ? 1.0 : by;
}

static void scale_rate(sp_curve *curve, double by)
{
    for (int i = 0; i < curve->points; i++) {
        curve->y[i] *= by;
    }
    curve->level = SP_LEVEL_ASSUMED;
}

static void scale_compute(sp_profile *profile, double by)
{
    scale_rate(&profile->gemm_rate, by);
    for (int i = 0; i < 2 * SP_PAIRS; i++) {
        scale_rate(&profile->attention[i / SP_PAIRS][i % SP_PAIRS], by);
    }
    for (int i = 0; i < profile->gemm_tables; i++) {
        scale_transfers(&profile->gemm[i].time_s, false, by);
        profile->gemm[i].time_s.level = SP_LEVEL_ASSUMED;
    }
    profile->gemm_model.flops_per_s *= by;
    profile->gemm_model.level = SP_LEVEL_ASSUMED;
    profile->fp8.flops_per_s *= by;
    profile->fp8.level = SP_LEVEL_ASSUMED;
}

static void join_gpu(sp_profile *profile, const sp_cluster *cluster)
{
    sp_cluster own = own_gpu(profile, cluster);
    double compute = ratio(cluster->peak_flops_per_s, own.peak_flops_per_s);
    double memory = ratio(cluster->hbm_bytes_per_s, own.hbm_bytes_per_s);
    if (compute != 1.0) { // 1: not a bit changes
        scale_compute(profile, compute);
        profile->compute_scale = compute;
    }
    if (memory != 1.0) {
        profile->memory_bytes_per_s *= memory;
        profile->memory_level = SP_LEVEL_ASSUMED;
        profile->memory_scale = memory;
    }
    if (own.peak_flops_per_s > 0.0) {
        profile->peak_flops_per_s = cluster->peak_flops_per_s;
    }
    if (own.hbm_bytes_per_s > 0.0) {
        profile->hbm_bytes_per_s = cluster->hbm_bytes_per_s;
    }
}

void sp_profile_join(sp_profile *profile, const sp_cluster *cluster)
{
    join_gpu(profile, cluster);
    double nominal = nominal_bytes_per_s(profile);
    double by = nominal > 0.0 && cluster->nvlink_bytes_per_s > 0.0
                    ? cluster->nvlink_bytes_per_s / nominal
                    : 1.0;
    if (by != 1.0) { // 1: not a bit changes
        scale_nvlink(profile, by);
        profile->link_level = SP_LEVEL_ASSUMED;
        profile->nvlink_nominal_bytes_per_s = cluster->nvlink_bytes_per_s;
    }
    take_latencies(profile, cluster);
}

static void describe_scales(const sp_profile *profile, const sp_cluster *cluster,
                            char line[SP_PROFILE_LINE])
{
    snprintf(line, SP_PROFILE_LINE, "rates of profile %s scaled", profile->name);
    if (profile->compute_scale > 0.0) {
        sp_append(line, SP_PROFILE_LINE,
                  " by %.4g: matrix products and attention go with the cluster's peak of %.5g "
                  "TFLOP/s",
                  profile->compute_scale, cluster->peak_flops_per_s / 1e12);
    }
    if (profile->memory_scale > 0.0) {
        sp_append(line, SP_PROFILE_LINE,
                  "%s by %.4g: memory-bound work goes with the cluster's HBM of %.5g GB/s",
                  profile->compute_scale > 0.0 ? ", and" : "", profile->memory_scale,
                  cluster->hbm_bytes_per_s / 1e9);
    }
}

// Do the numbers hold for the stack, or for another one of its framework?
static bool is_of_stack(const sp_profile *profile, const sp_stack *stack)
{
    for (int i = 0; i < profile->for_stacks; i++) {
        if (strcmp(profile->for_stack[i].stack, stack->name) == 0 &&
            strcmp(profile->for_stack[i].profile, profile->name) == 0) {
            return true;
        }
    }
    return sp_stack_shares_framework(&profile->stack, stack);
}

int sp_profile_lines(const sp_profile *profile, const sp_cluster *cluster, const sp_stack *stack,
                     char lines[SP_PROFILE_LINES][SP_PROFILE_LINE])
{
    int count = 0;
    sp_cluster named;
    bool is_usual = sp_cluster_builtin(cluster->name, &named, NULL) == SP_OK &&
                    strcmp(named.profile, profile->name) == 0;
    if (profile->gpu[0] != '\0' && !sp_gpu_is_described(profile->gpu, cluster->gpu) && !is_usual) {
        bool none = strncmp(profile->gpu, "none", strlen("none")) == 0;
        snprintf(lines[count++], SP_PROFILE_LINE,
                 "profile %s describes %s%s, the cluster's GPUs are %s: utilisation is against "
                 "the latter's peak",
                 profile->name, none ? "no GPU" : "the ", none ? "" : profile->gpu, cluster->gpu);
    }
    if (profile->peak_flops_per_s <= 0.0 || profile->hbm_bytes_per_s <= 0.0) {
        snprintf(lines[count++], SP_PROFILE_LINE,
                 "nothing says which GPU profile %s is of: the cluster's peak_tflops and "
                 "hbm_gb_per_s change none of its times; peak_tflops and hbm_gb_per_s in the "
                 "profile state that GPU's",
                 profile->name);
    }
    if (profile->changed[0] != '\0') {
        snprintf(lines[count++], SP_PROFILE_LINE,
                 "%s of profile %s is not what its fit gives: the errors that were recorded with "
                 "the fit are not told",
                 profile->changed, profile->name);
    }
    if (profile->compute_scale > 0.0 || profile->memory_scale > 0.0) {
        describe_scales(profile, cluster, lines[count++]);
    }
    if (profile->of_stack[0] != '\0') {
        snprintf(lines[count++], SP_PROFILE_LINE,
                 "profile %s is stated; its numbers for stack %s are profile %s's", profile->name,
                 stack->name, profile->of_stack);
    } else if (!is_of_stack(profile, stack)) {
        snprintf(lines[count++], SP_PROFILE_LINE,
                 "profile %s's numbers are for stack %s; it has none for stack %s", profile->name,
                 profile->stack.name, stack->name);
    }
    return count;
}
