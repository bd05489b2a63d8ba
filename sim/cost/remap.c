#include "sim/cost/remap.h"

#include <math.h>

#include "sim/cost/time_private.h"

// The next rank from *at on, before `end`, with a surplus of this sign; `end`: none.
static int next_of(const double *surplus, int at, int end, double sign)
{
    while (at < end && !(sign * surplus[at] > 0.0)) {
        at++;
    }
    return at;
}

// Moves what it can among the ranks [from, end).
static int settle(double *surplus, int from, int end, sp_i_move *moves)
{
    int count = 0;
    int rich = next_of(surplus, from, end, 1.0);
    int poor = next_of(surplus, from, end, -1.0);
    while (rich < end && poor < end) {
        double tokens = fmin(surplus[rich], -surplus[poor]);
        moves[count++] = (sp_i_move){rich, poor, tokens};
        surplus[rich] -= tokens;
        surplus[poor] += tokens;
        rich = next_of(surplus, rich, end, 1.0);
        poor = next_of(surplus, poor, end, -1.0);
    }
    return count;
}

int sp_i_remap(double *surplus, int ranks, int node_ranks, sp_i_move *moves)
{
    int count = 0;
    for (int node = 0; node < ranks; node += node_ranks) {
        int end = node + node_ranks < ranks ? node + node_ranks : ranks;
        count += settle(surplus, node, end, moves + count);
    }
    return count + settle(surplus, 0, ranks, moves + count);
}

static double most(const double *of, int count)
{
    double most = 0.0;
    for (int i = 0; i < count; i++) {
        most = fmax(most, of[i]);
    }
    return most;
}

double sp_i_remap_s(const sp_op_timer *timer, const sp_i_remap_links *links, const sp_i_move *moves,
                    int count, double gpu_bytes)
{
    int ranks = links->ranks;
    int nic_ranks = links->one_nic ? 1 : links->node_ranks;
    double nvlink = timer->profile->nvlink_bytes_per_s;
    double nic = sp_i_nic_share_bytes_per_s(timer);
    double *traffic = links->traffic;
    double *network = traffic + 2 * ranks;
    if (count == 0) {
        return 0.0;
    }
    for (int i = 0; i < 4 * ranks; i++) {
        traffic[i] = 0.0;
    }
    for (int i = 0; i < count; i++) {
        const sp_i_move *m = &moves[i];
        bool inside = m->from / links->node_ranks == m->to / links->node_ranks;
        int group = inside ? 1 : nic_ranks;
        double *of = inside ? traffic : network;
        of[m->from / group] += m->tokens * gpu_bytes;
        of[ranks + m->to / group] += m->tokens * gpu_bytes;
    }
    double bytes = most(network, 2 * ranks);
    double network_s = bytes / (nic_ranks * (nic > 0.0 ? fmin(nic, nvlink) : nvlink));
    return fmax(most(traffic, 2 * ranks) / nvlink, network_s) +
           (bytes > 0.0 ? timer->profile->nic_latency_s : timer->profile->p2p_latency_s);
}
