// The links of a profile as a cluster has them.
#include <math.h>

#include "sim/cost/profile_private.h"

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

// Of a curve over bytes: the time of a transfer of no bytes, on the line through the first two
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

// What is beyond the latency takes 1/by of its time.
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
    sp_i_profile_monotone(curve, of_rates ? 1.0 : 0.0, !of_rates);
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

void sp_profile_join(sp_profile *profile, const sp_cluster *cluster)
{
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
