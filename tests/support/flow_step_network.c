// Flows over links that they share, and the ways that ranks send over.
#include "sim/base/order.h"
#include "tests/support/flow_step_world.h"
#include "tests/support/test_main.h"

bool world_flow_is_open(const world *w, const flowing *f)
{
    return !f->ended && f->begins_ns <= w->now_ns && f->bytes_left > 0.0;
}

// Every flow grows until a link of its own is full, all at the same pace.
void world_share_links(world *w)
{
    static double left[MOST_LINKS];
    static bool open[MOST_FLOWS];
    int links = sp_topology_links(w->topology);
    assert_true(links <= MOST_LINKS);
    memcpy(left, sp_topology_bytes_per_s(w->topology), (size_t)links * sizeof *left);
    int count = 0;
    for (int i = 0; i < w->flows; i++) {
        open[i] = world_flow_is_open(w, &w->flow[i]);
        w->flow[i].rate = 0.0;
        count += open[i];
    }
    while (count > 0) {
        double users[MOST_LINKS] = {0};
        double growth = HUGE_VAL;
        for (int i = 0; i < w->flows; i++) {
            const flowing *f = &w->flow[i];
            for (int h = 0; open[i] && h < f->route.hops; h++) {
                users[f->route.path[h].link] += f->route.path[h].times;
            }
            if (open[i] && f->most > 0.0) {
                growth = fmin(growth, f->most - f->rate);
            }
        }
        for (int l = 0; l < links; l++) {
            growth = users[l] > 0.0 ? fmin(growth, left[l] / users[l]) : growth;
        }
        for (int l = 0; l < links; l++) {
            left[l] -= users[l] * growth;
        }
        for (int i = 0; i < w->flows; i++) {
            flowing *f = &w->flow[i];
            f->rate += open[i] ? growth : 0.0;
            bool full = open[i] && f->most > 0.0 && f->rate > f->most * (1.0 - 1e-12);
            for (int h = 0; open[i] && h < f->route.hops; h++) {
                full = full || left[f->route.path[h].link] < 1e-3;
            }
            count -= full;
            open[i] = open[i] && !full;
        }
    }
}

// Without a formula's even shares of NICs, if `sent` bytes go over every link of the route.
static double saved_by_links(const world *w, const sp_route *route, double sent, double latency_s,
                             double closed_s)
{
    const sp_cluster *cluster = &w->s->cluster;
    double nic_share = cluster->nic_bytes_per_s * cluster->nics_per_node / cluster->gpus_per_node;
    double by_links_s = 0.0, by_shares_s = 0.0;
    for (int h = 0; h < route->hops; h++) {
        sp_link link = sp_topology_link(w->topology, route->path[h].link);
        double rate = link.kind == SP_LINK_PCIE  ? nic_share
                      : link.kind == SP_LINK_NIC ? cluster->nic_bytes_per_s
                                                 : w->s->network.rates.nvlink_bytes_per_s;
        double s = sent * route->path[h].times / rate;
        by_links_s = link.kind == SP_LINK_PCIE || link.kind == SP_LINK_SPINE ? by_links_s
                                                                             : fmax(by_links_s, s);
        by_shares_s = link.kind == SP_LINK_SPINE ? by_shares_s : fmax(by_shares_s, s);
    }
    double saved_s = fmax(0.0, by_shares_s - by_links_s);
    return saved_s * fmin(1.0, closed_s / (latency_s + by_shares_s));
}

double world_saved_s(const world *w, const sp_route *route, double bytes, int rounds,
                     double closed_s)
{
    double sent = rounds * bytes / route->parts;
    return sent > 0.0 ? saved_by_links(w, route, sent, rounds * route->latency_s, closed_s) : 0.0;
}

flowing *world_start_flow(world *w, flow_kind kind, int of, sp_route route, int64_t at_ns,
                          double bytes, int rounds, int64_t alone_ns)
{
    assert_true(w->flows < MOST_FLOWS);
    sp_flow flow = sp_route_flow_of(&route, at_ns, bytes, rounds, (double)alone_ns / 1e9);
    flowing *f = &w->flow[w->flows++];
    *f = (flowing){.kind = kind,
                   .of = of,
                   .begins_ns = at_ns + llround(flow.latency_s * 1e9),
                   .bytes_left = flow.bytes,
                   .most = flow.most_bytes_per_s,
                   .route = route};
    return f;
}

int64_t world_gpu_at(const sp_layout *layout, int tp, int cp, int rank, int pp)
{
    return tp * sp_layout_stride(layout, SP_AXIS_TP) + cp * sp_layout_stride(layout, SP_AXIS_CP) +
           rank / layout->pp * sp_layout_stride(layout, SP_AXIS_DP) +
           pp * sp_layout_stride(layout, SP_AXIS_PP);
}

int world_list_members(const world *w, int first_rank, int ranks, int64_t gpus[MOST_GPUS])
{
    const sp_layout *layout = &w->s->layout;
    int members = ranks * layout->cp;
    assert_true(layout->tp * members <= MOST_GPUS);
    for (int tp = 0; tp < layout->tp; tp++) {
        for (int m = 0; m < members; m++) {
            int rank = first_rank + m / layout->cp * layout->pp;
            gpus[tp * members + m] =
                world_gpu_at(layout, tp, m % layout->cp, rank, first_rank % layout->pp);
        }
        qsort(&gpus[tp * members], (size_t)members, sizeof *gpus, sp_ascending_int64s);
    }
    return members;
}

sp_route world_rings(const world *w, int first_rank, int ranks)
{
    int64_t gpus[MOST_GPUS];
    sp_route route;
    int members = world_list_members(w, first_rank, ranks, gpus);
    sp_route_rings(w->topology, gpus, w->s->layout.tp, members, &route);
    return route;
}

sp_route world_rings_of_every(const world *w, int rank, int n)
{
    int64_t gpus[MOST_GPUS];
    int64_t apart[MOST_GPUS];
    sp_route route;
    int tp = w->s->layout.tp;
    int members = world_list_members(w, rank, 1, gpus);
    int count = 0;
    for (int g = 0; g < tp * n; g++) {
        for (int m = g % n; m < members; m += n) {
            apart[count++] = gpus[g / n * members + m];
        }
    }
    sp_route_rings(w->topology, apart, tp * n, members / n, &route);
    return route;
}

sp_route world_all_to_alls(const world *w, int rank, int n)
{
    int64_t gpus[MOST_GPUS];
    sp_route route;
    int members = world_list_members(w, rank, 1, gpus);
    sp_route_all_to_alls(w->topology, gpus, w->s->layout.tp * members / n, n, &route);
    return route;
}
