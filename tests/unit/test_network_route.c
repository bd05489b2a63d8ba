// Collectives as flows: alone they take what the closed formulas of cost/collective.c say, and side
// by side on the same links what these give each of them as its even share.
#include "tests/support/flat_network.h"
#include "tests/support/flow_ends.h"

#include "sim/cost/op_time.h"
#include "sim/network/route.h"

enum { MOST = 64 };

static int64_t end_of(const flat_network *f, const sp_flow *flow)
{
    int64_t end_ns = 0;
    must_succeed(flow_ends(f->topology, flow, 1, &end_ns, ERR));
    return end_ns;
}

// `per_node` neighbours in each of `nodes` nodes, from GPU `first` of the node on.
static int group_of(const flat_network *f, int first, int nodes, int per_node, int64_t gpus[MOST])
{
    int count = 0;
    for (int node = 0; node < nodes; node++) {
        for (int i = 0; i < per_node; i++) {
            gpus[count++] = node * f->cluster.gpus_per_node + first + i;
        }
    }
    return count;
}

// As an odd data-parallel degree gives: the member that is alone has one NIC for all.
TEST(the_least_populated_node_sets_the_pace)
{
    FLAT_NETWORK(f, "h800-8", 2);
    const int64_t gpus[] = {4, 5, 6, 8};
    const double bytes = 1e9;
    AUTO(sp_route) route;
    sp_route_rings(f.topology, gpus, 1, 4, &route);
    sp_flow flow = sp_route_flow(&route, 0, bytes, 1);
    sp_group group = {4, 2, 1, 3};
    assert_int_equal(end_of(&f, &flow),
                     llround(1e9 * sp_time_collective(&f.timer, SP_REDUCE_SCATTER, group, bytes)));
}

TEST(an_all_to_all_that_the_nics_bound_takes_the_closed_time)
{
    FLAT_NETWORK(f, "h800-8", 4);
    for (int nodes = 2; nodes <= 4; nodes++) {
        for (int per_node = 1; per_node <= 8; per_node += 7) {
            int64_t gpus[MOST];
            int count = group_of(&f, 0, nodes, per_node, gpus);
            AUTO(sp_route) route;
            sp_route_all_to_alls(f.topology, gpus, 1, count, &route);
            sp_flow flow = sp_route_flow(&route, 0, 1e9, 1);
            double expected_s = sp_time_collective(
                &f.timer, SP_ALL_TO_ALL, (sp_group){count, nodes, per_node, per_node}, 1e9);
            assert_within((double)end_of(&f, &flow), 1e9 * expected_s, 1.0);
        }
    }
}

TEST(a_transfer_to_the_next_stage_takes_the_closed_time)
{
    FLAT_NETWORK(f, "h800-8", 2);
    const int64_t from = 0, near = 1, far = 8;
    const double bytes = 12345678.0;
    AUTO(sp_route) inside, between;
    sp_route_pairs(f.topology, &from, &near, 1, &inside);
    sp_route_pairs(f.topology, &from, &far, 1, &between);
    sp_flow flows[] = {sp_route_flow(&inside, 0, bytes, 1), sp_route_flow(&between, 0, bytes, 1)};
    for (int crosses = 0; crosses < 2; crosses++) {
        assert_int_equal(end_of(&f, &flows[crosses]),
                         llround(1e9 * sp_time_p2p(&f.timer, bytes, crosses)));
    }
}

// Tensor-parallel ranks that send a part each over a NIC of their own take as long as one with its
// part; two of them share each NIC of an A800 node.
TEST(tensor_parallel_ranks_send_parts_side_by_side)
{
    const struct {
        const char *cluster;
        int of_nic; // GPUs
    } cases[] = {{"h800-8", 1}, {"a800-8", 2}};
    for (int c = 0; c < 2; c++) {
        AUTO(flat_network) f;
        int64_t from[8], to[8];
        AUTO(sp_route) route;
        flat_network_begin(cases[c].cluster, 2, &f);
        for (int i = 0; i < 8; i++) {
            from[i] = i;
            to[i] = 8 + i;
        }
        sp_route_pairs(f.topology, from, to, 8, &route);
        sp_flow flow = sp_route_flow(&route, 0, 8e6, 1);
        double part_s = 1e6 * cases[c].of_nic / (f.cluster.nic_bytes_per_s * FLAT_NIC_EFFICIENCY);
        assert_int_equal(end_of(&f, &flow), llround(1e9 * (FLAT_NIC_LATENCY_S + part_s)));
    }
}

// A800: two GPUs share a NIC of 25 GB/s. The closed formula gives each half of it always; a group
// that has it alone is twice as fast, two at a time are as slow.
TEST(groups_that_share_a_nic_slow_each_other)
{
    FLAT_NETWORK(f, "a800-8", 4);
    const double bytes = 1e9;
    const double latency_s = 3 * FLAT_NIC_LATENCY_S;
    const double alone_s = 3.0 / 4.0 * bytes / (25e9 * FLAT_NIC_EFFICIENCY);
    sp_route route[2];
    sp_flow flows[2];
    int64_t ends_ns[2];
    for (int i = 0; i < 2; i++) {
        int64_t gpus[MOST];
        int count = group_of(&f, 2 + i, 4, 1, gpus);
        sp_route_rings(f.topology, gpus, 1, count, &route[i]);
        flows[i] = sp_route_flow(&route[i], 0, bytes, 1);
    }
    assert_int_equal(end_of(&f, &flows[0]), llround(1e9 * (latency_s + alone_s)));
    must_succeed(flow_ends(f.topology, flows, 2, ends_ns, ERR));
    sp_group group = {4, 4, 1, 1};
    double closed_s = sp_time_collective(&f.timer, SP_REDUCE_SCATTER, group, bytes);
    assert_int_equal(ends_ns[0], llround(1e9 * closed_s));
    assert_int_equal(ends_ns[1], ends_ns[0]);
    sp_route_fini(&route[0]);
    sp_route_fini(&route[1]);
}

// A ring whose hops between nodes go by x NICs: each of these carries a part of a member's block
// and no other carries any; alone it takes what its formula says; and two whose hops have one and
// the same NIC send twice as long as one takes at the NIC's rate.
TEST(a_hop_goes_by_the_nics_that_are_priced)
{
    const double bytes = 1e9;
    for (int c = 0; c < 2; c++) {
        AUTO(flat_network) f;
        int64_t gpus[MOST];
        flat_network_begin(c == 0 ? "a800-8" : "h800-8", 3, &f);
        int count = group_of(&f, 0, 3, 8, gpus);
        sp_group group = {count, 3, 8, 8};
        for (int64_t most = 1; most <= 8; most++) {
            AUTO(sp_route) route;
            int nics = sp_ring_nics(&f.timer, group, most);
            sp_route_routed_rings(f.topology, gpus, 1, count, nics, &route);
            int used[2] = {0};
            for (int32_t h = 0; h < route.hops; h++) {
                sp_link link = sp_topology_link(f.topology, route.path[h].link);
                if (link.kind == SP_LINK_NIC) {
                    used[link.inward]++;
                    assert_int_equal(route.path[h].times, 1);
                }
            }
            assert_int_equal(used[0], 3 * nics);
            assert_int_equal(used[1], 3 * nics);
            assert_close(sp_route_flow(&route, 0, bytes, 1).bytes,
                         bytes * (count - 1) / count / nics, 1e-12);
            double closed_s = sp_time_ring(&f.timer, group, bytes, most);
            double lone_s = sp_route_lone_s(&route, bytes, 1, closed_s);
            sp_flow flow = sp_route_flow_of(&route, 0, bytes, 1, lone_s);
            assert_true(lone_s == closed_s);
            assert_int_equal(end_of(&f, &flow), llround(1e9 * closed_s));
            if (nics == 1) {
                sp_flow both[] = {flow, flow};
                int64_t ends_ns[2];
                double nic = f.cluster.nic_bytes_per_s * FLAT_NIC_EFFICIENCY;
                double sending_s = 2.0 * bytes * (count - 1) / count / nic;
                must_succeed(flow_ends(f.topology, both, 2, ends_ns, ERR));
                assert_within((double)ends_ns[1], 1e9 * (FLAT_NIC_LATENCY_S + sending_s), 2.0);
            }
        }
    }
}

// A hop that a group in one node does not have goes by no NIC.
TEST(groups_inside_nodes_have_no_hop_between_them)
{
    AUTO(flat_network) f;
    int64_t gpus[MOST];
    sp_route route[2];
    flat_network_begin("h800-8", 2, &f);
    int count = group_of(&f, 0, 1, 3, gpus);
    sp_route_routed_rings(f.topology, gpus, 1, count, 2, &route[0]);
    sp_route_rings(f.topology, gpus, 1, count, &route[1]);
    assert_int_equal(route[0].hops, route[1].hops);
    for (int32_t h = 0; h < route[0].hops; h++) {
        assert_int_equal(route[0].path[h].link, route[1].path[h].link);
        assert_int_not_equal(sp_topology_link(f.topology, route[0].path[h].link).kind, SP_LINK_NIC);
    }
    sp_route_fini(&route[0]);
    sp_route_fini(&route[1]);
}

// What a formula gives by even shares of NICs, with the whole of a NIC that nobody else uses: a
// transfer's time by its links alone, and to the bit the formula's where each GPU has a NIC.
TEST_ROUNDS(a_lone_transfer_has_all_of_its_nics, 13, test_rounds(500))
{
    AUTO(flat_network) f;
    int64_t gpus[MOST];
    bool shared = prng_below(prng, 2) == 0;
    flat_network_begin(shared ? "a800-8" : "h800-8", 4, &f);
    int nodes = 2 + prng_below(prng, 3);
    int per_node = 1 + prng_below(prng, 8);
    int first = prng_below(prng, 9 - per_node);
    int count = group_of(&f, first, nodes, per_node, gpus);
    bool apart = per_node == 1 || (per_node == 2 && first % 2 == 1); // on NICs
    double bytes = floor(1e8 + 1e9 * sp_prng_uniform(prng));
    AUTO(sp_route) route;
    sp_route_rings(f.topology, gpus, 1, count, &route);
    sp_group group = {count, nodes, per_node, per_node};
    double closed_s = sp_time_collective(&f.timer, SP_REDUCE_SCATTER, group, bytes);
    double lone_s = sp_route_lone_s(&route, bytes, 1, closed_s);
    sp_flow by_links = sp_route_flow(&route, 0, bytes, 1);
    sp_flow flow = sp_route_flow_of(&route, 0, bytes, 1, lone_s);
    assert_within(1e9 * lone_s, (double)end_of(&f, &by_links), 1.0);
    assert_within((double)end_of(&f, &flow), 1e9 * lone_s, 1.0);
    assert_true(shared || lone_s == closed_s);
    assert_true(sp_route_is_quickened(&route) == (shared && apart));
    // A time that has little to do with the rates gets no longer, and remains one.
    double other_s = closed_s * sp_prng_uniform(prng);
    double lone_other_s = sp_route_lone_s(&route, bytes, 1, other_s);
    assert_true(lone_other_s <= other_s && lone_other_s >= 0.0);
}

// Two groups that have half of a node each, and others besides: each ring stays on the rail that it
// has there, so that they meet on no link.
TEST(rings_stay_on_their_rails)
{
    FLAT_NETWORK(f, "h800-8", 3);
    const int64_t gpus[2][3] = {{0, 4, 8}, {12, 16, 20}};
    int users[1024] = {0};
    assert_true(sp_topology_links(f.topology) <= 1024);
    for (int g = 0; g < 2; g++) {
        AUTO(sp_route) route;
        sp_route_rings(f.topology, gpus[g], 1, 3, &route);
        for (int32_t h = 0; h < route.hops; h++) {
            assert_int_equal(users[route.path[h].link]++, 0);
        }
    }
}

// One flow for groups of GPUs that do the same: with a NIC for each GPU it takes what the ring of
// one of them takes, and so does an all-to-all; with one NIC for two GPUs twice the time of
// sending.
TEST(groups_side_by_side_are_one_flow)
{
    for (int nics = 8; nics >= 4; nics -= 4) {
        FLAT_NETWORK(f, "h800-8", 3);
        sp_topology_free(f.topology);
        f.cluster.nics_per_node = nics;
        must_succeed(sp_topology_new(&f.cluster, &flat_rates, &f.topology, ERR));
        int64_t gpus[MOST];
        int count = group_of(&f, 0, 3, 1, gpus);
        group_of(&f, 1, 3, 1, &gpus[count]);
        for (int all_to_all = 0; all_to_all < 2; all_to_all++) {
            AUTO(sp_route) one, both;
            if (all_to_all == 0) {
                sp_route_rings(f.topology, gpus, 1, count, &one);
                sp_route_rings(f.topology, gpus, 2, count, &both);
            } else {
                sp_route_all_to_alls(f.topology, gpus, 1, count, &one);
                sp_route_all_to_alls(f.topology, gpus, 2, count, &both);
            }
            double times = nics == 8 ? 1.0 : 2.0;
            assert_close(both.bytes_per_s, one.bytes_per_s / times, 1e-12);
            assert_close(both.latency_s, one.latency_s, 1e-12);
            assert_close(both.parts, one.parts, 1e-12);
        }
    }
}

TEST(a_known_time_alone_comes_out_to_the_nanosecond)
{
    FLAT_NETWORK(f, "a800-8", 4);
    sp_prng prng = prng_seeded(7);
    for (int round = 0; round < test_rounds(2000); round++) {
        int64_t gpus[MOST];
        AUTO(sp_route) route;
        int count = group_of(&f, prng_below(&prng, 4), 1 + prng_below(&prng, 4), 4, gpus);
        sp_route_rings(f.topology, gpus, 1, count, &route);
        double alone_s = 1e-6 + sp_prng_uniform(&prng) * (prng_below(&prng, 2) == 0 ? 1e-4 : 0.1);
        int64_t start_ns = prng_below(&prng, 1000000);
        double bytes = floor(1e9 * sp_prng_uniform(&prng));
        sp_flow flow = sp_route_flow_of(&route, start_ns, bytes, 1 + prng_below(&prng, 2), alone_s);
        assert_int_equal(end_of(&f, &flow), start_ns + llround(1e9 * alone_s));
    }
}

// Two of a switch's reductions, each twice as fast as a ring, at the same time take as long as one
// after the other; two that take half of their links' rate do not slow each other.
TEST(what_alone_is_faster_or_slower_than_its_links_shares_them_so)
{
    FLAT_NETWORK(f, "h800-8", 1);
    const int64_t gpus[] = {0, 1, 2, 3};
    const double bytes = 1e9;
    AUTO(sp_route) route;
    sp_route_rings(f.topology, gpus, 1, 4, &route);
    double ring_s = 0.75 * bytes / FLAT_NVLINK_BYTES_PER_S;
    double latency_s = 3 * FLAT_NVLINK_LATENCY_S;
    for (int slower = 0; slower < 2; slower++) {
        double sending_s = slower ? 2.0 * ring_s : 0.5 * ring_s;
        double alone_s = latency_s + sending_s;
        sp_flow one = sp_route_flow_of(&route, 0, bytes, 1, alone_s);
        sp_flow both[] = {one, one};
        int64_t ends_ns[2];
        must_succeed(flow_ends(f.topology, both, 2, ends_ns, ERR));
        double first_s = FLAT_NVLINK_LATENCY_S;
        double expected_s = first_s + (slower ? 1.0 : 2.0) * (alone_s - first_s);
        assert_within((double)ends_ns[0], 1e9 * expected_s, 1.0);
        assert_int_equal(ends_ns[1], ends_ns[0]);
    }
}

// ---- a spine that narrows or delays ----

// h800-8 with a leaf switch for each node and rail, whose link to the spine has the rate of its NIC
// divided by `oversubscription`.
static void narrow(flat_network *f, double oversubscription, double latency_s)
{
    sp_topology_free(f->topology);
    f->cluster.fabric.nodes_per_leaf = 1;
    f->cluster.fabric.oversubscription = oversubscription;
    f->cluster.fabric.spine_latency_s = latency_s;
    must_succeed(sp_topology_new(&f->cluster, &flat_rates, &f->topology, ERR));
}

// A ring of n nodes waits n - 1 times for a part of the bytes from the next node.
TEST(a_ring_over_the_spine_takes_its_rate_and_latency)
{
    FLAT_NETWORK(f, "h800-8", 4);
    const double nic = f.cluster.nic_bytes_per_s * FLAT_NIC_EFFICIENCY;
    const double bytes = 1e8;
    for (int nodes = 2; nodes <= 4; nodes++) {
        for (int oversubscription = 1; oversubscription <= 64; oversubscription *= 4) {
            for (double latency_s = 0.0; latency_s < 0.2; latency_s += 0.1) {
                narrow(&f, oversubscription, latency_s);
                int64_t gpus[MOST];
                AUTO(sp_route) route;
                int count = group_of(&f, 3, nodes, 1, gpus);
                sp_route_rings(f.topology, gpus, 1, count, &route);
                double part = bytes / nodes;
                double closed_s = (nodes - 1) * (FLAT_NIC_LATENCY_S + part / nic);
                double expected_s =
                    (nodes - 1) * (FLAT_NIC_LATENCY_S + latency_s + part * oversubscription / nic);
                sp_flow flow = sp_route_flow_of(&route, 0, bytes, 1, closed_s);
                assert_within((double)end_of(&f, &flow), 1e9 * expected_s, 1.0);
                flow = sp_route_flow(&route, 0, bytes, 1);
                assert_within((double)end_of(&f, &flow), 1e9 * expected_s, 1.0);
                // In less than the latency of a step nothing is sent.
                flow = sp_route_flow_of(&route, 0, bytes, 1, 1e-6);
                assert_within((double)end_of(&f, &flow), 1e9 * (1e-6 + (nodes - 1) * latency_s),
                              1.0);
                assert_true(sp_route_is_slowed(&route) ==
                            (oversubscription > 1 || latency_s > 0.0));
            }
        }
    }
}

// A transfer whose formula gives it a quarter of its NIC waits for the spine where that has less.
TEST(what_is_slower_than_the_spine_does_not_wait_for_it)
{
    FLAT_NETWORK(f, "h800-8", 2);
    const int64_t from = 2, to = 10;
    const double bytes = 1e8;
    const double nic_s = bytes / (f.cluster.nic_bytes_per_s * FLAT_NIC_EFFICIENCY);
    for (int oversubscription = 1; oversubscription <= 16; oversubscription *= 2) {
        AUTO(sp_route) route;
        narrow(&f, oversubscription, 0.0);
        sp_route_pairs(f.topology, &from, &to, 1, &route);
        sp_flow flow = sp_route_flow_of(&route, 0, bytes, 1, FLAT_NIC_LATENCY_S + 4.0 * nic_s);
        double expected_s = FLAT_NIC_LATENCY_S + fmax(4.0, oversubscription) * nic_s;
        assert_within((double)end_of(&f, &flow), 1e9 * expected_s, 1.0);
    }
}

TEST(pcie_slows_what_its_formula_sends_faster)
{
    const int64_t from = 2, to = 10;
    const double bytes = 1e8;
    for (int times = 1; times <= 4; times *= 2) {
        AUTO(flat_network) f;
        AUTO(sp_route) route;
        flat_network_begin("h800-8", 2, &f);
        const double nic = f.cluster.nic_bytes_per_s * FLAT_NIC_EFFICIENCY;
        f.cluster.host_link_bytes_per_s = nic / times;
        sp_topology_free(f.topology);
        must_succeed(sp_topology_new(&f.cluster, &flat_rates, &f.topology, ERR));
        sp_route_pairs(f.topology, &from, &to, 1, &route);
        sp_flow flow = sp_route_flow_of(&route, 0, bytes, 1, sp_time_p2p(&f.timer, bytes, 1));
        assert_within((double)end_of(&f, &flow), 1e9 * (FLAT_NIC_LATENCY_S + times * bytes / nic),
                      1.0);
    }
}

static sp_flow lone(const flat_network *f, int kind, const int64_t *gpus, int count, double bytes,
                    double alone_s, sp_route *route)
{
    if (kind == 0) {
        sp_route_rings(f->topology, gpus, 1, count, route);
    } else if (kind == 1) {
        sp_route_all_to_alls(f->topology, gpus, 1, count, route);
    } else {
        sp_route_pairs(f->topology, gpus, &gpus[count / 2], count / 2, route);
    }
    return sp_route_flow_of(route, 0, bytes, 1, alone_s);
}

// Nor does what it puts on the other links depend on the spine: a wider one would take more of them
// and slow down whatever goes beside it.
TEST(a_better_spine_never_slows_a_lone_transfer)
{
    FLAT_NETWORK(f, "h800-8", 4);
    sp_prng prng = prng_seeded(11);
    for (int round = 0; round < test_rounds(500); round++) {
        int64_t gpus[MOST];
        int nodes = 2 * (1 + prng_below(&prng, 2));
        int count = group_of(&f, prng_below(&prng, 4), nodes, 1 + prng_below(&prng, 4), gpus);
        int kind = prng_below(&prng, 3);
        double bytes = floor(1e9 * sp_prng_uniform(&prng));
        double alone_s = 1e-6 + sp_prng_uniform(&prng) * (prng_below(&prng, 2) == 0 ? 1e-4 : 0.1);
        double oversubscription = 1.0, latency_s = 0.0;
        int64_t last_ns = llround(1e9 * alone_s);
        double first_bytes = 0.0;
        for (int worse = 0; worse < 4; worse++) {
            AUTO(sp_route) route;
            narrow(&f, oversubscription, latency_s);
            sp_flow flow = lone(&f, kind, gpus, count, bytes, alone_s, &route);
            int64_t ns = end_of(&f, &flow);
            assert_true(worse > 0 ? ns >= last_ns : ns == last_ns);
            assert_true(worse == 0 || flow.bytes == first_bytes);
            last_ns = ns;
            first_bytes = flow.bytes;
            bool narrower = prng_below(&prng, 2) == 0;
            oversubscription *= narrower ? 1.0 + 9.0 * sp_prng_uniform(&prng) : 1.0;
            latency_s += narrower ? 0.0 : 1e-4 * sp_prng_uniform(&prng);
        }
    }
}

// ---- better links ----

// What may be better, each in one setting.
enum { NIC, NVLINK, PCIE, SPINE, LATENCY, NVLINK_LATENCY, SPINE_LATENCY, BETTER };

static void improve(flat_network *f, int what, double by)
{
    switch (what) {
    case NIC:
        f->cluster.nic_bytes_per_s *= by;
        break;
    case NVLINK:
        f->profile.nvlink_bytes_per_s *= by;
        f->profile.p2p_bytes_per_s *= by;
        break;
    case PCIE:
        f->cluster.host_link_bytes_per_s *= by;
        break;
    case SPINE:
        f->cluster.fabric.oversubscription /= by;
        break;
    case LATENCY:
        f->profile.nic_latency_s /= by;
        break;
    case NVLINK_LATENCY:
        f->profile.nvlink_latency_s /= by;
        f->profile.p2p_latency_s /= by;
        break;
    case SPINE_LATENCY:
        f->cluster.fabric.spine_latency_s /= by;
        break;
    default:
        fail();
    }
}

// With the time that its formula gives it there.
static int64_t formula_end(flat_network *f, int kind, const int64_t *gpus, sp_group group,
                           double bytes)
{
    const sp_profile *p = &f->profile;
    const sp_link_rates rates = {p->nvlink_bytes_per_s, p->nvlink_latency_s, p->nic_efficiency,
                                 p->nic_latency_s};
    sp_topology_free(f->topology);
    must_succeed(sp_topology_new(&f->cluster, &rates, &f->topology, ERR));
    double alone_s =
        kind == 2 ? sp_time_p2p(&f->timer, bytes / (group.size / 2), 1)
                  : sp_time_collective(&f->timer, kind == 0 ? SP_REDUCE_SCATTER : SP_ALL_TO_ALL,
                                       group, bytes);
    AUTO(sp_route) route;
    sp_flow flow = lone(f, kind, gpus, group.size, bytes, alone_s, &route);
    return end_of(f, &flow);
}

TEST_ROUNDS(a_better_network_never_slows_a_lone_transfer, 12, test_rounds(2000))
{
    AUTO(flat_network) f;
    int64_t gpus[MOST];
    flat_network_begin(prng_below(prng, 2) == 0 ? "h800-8" : "a800-8", 4, &f);
    f.cluster.fabric.nodes_per_leaf = 1 + prng_below(prng, 2);
    f.cluster.fabric.pxn = prng_below(prng, 2) == 0;
    f.cluster.fabric.oversubscription = 1.0 + 7.0 * sp_prng_uniform(prng);
    f.cluster.fabric.spine_latency_s = 1e-5 * prng_below(prng, 3);
    for (int what = 0; what < BETTER; what++) {
        improve(&f, what, exp(2.0 * sp_prng_uniform(prng) - 1.0));
    }
    int nodes = 2 * (1 + prng_below(prng, 2));
    int per_node = 1 + prng_below(prng, 4);
    group_of(&f, prng_below(prng, 4), nodes, per_node, gpus);
    sp_group group = {nodes * per_node, nodes, per_node, per_node};
    int kind = prng_below(prng, 3);
    double bytes = floor(pow(10.0, 3.0 + 6.0 * sp_prng_uniform(prng)));
    int64_t before_ns = formula_end(&f, kind, gpus, group, bytes);
    improve(&f, prng_below(prng, BETTER), 1.0 + sp_prng_uniform(prng));
    int64_t after_ns = formula_end(&f, kind, gpus, group, bytes);
    assert_true(after_ns <= before_ns + 1);
}

// ---- bytes ----

// Each member sends what the definition of a ring says: (n-1)/n of the bytes out of every node for
// each of its NICs together.
TEST(a_ring_carries_its_bytes_over_every_node)
{
    flat_network f;
    flat_network_begin("h100-8", 4, &f);
    sp_prng prng = prng_seeded(3);
    for (int round = 0; round < test_rounds(200); round++) {
        int64_t gpus[MOST];
        int count = 0;
        double out[4] = {0}, in[4] = {0};
        int members[4] = {0};
        for (int gpu = 0; gpu < 32; gpu++) {
            if (prng_below(&prng, 3) == 0) {
                gpus[count++] = gpu;
                members[gpu / 8]++;
            }
        }
        if (count < 2 || members[gpus[0] / 8] == count) {
            continue;
        }
        AUTO(sp_route) route;
        sp_route_rings(f.topology, gpus, 1, count, &route);
        sp_flow flow = sp_route_flow(&route, 0, 1.0, 1);
        for (int i = 0; i < route.hops; i++) {
            sp_link link = sp_topology_link(f.topology, route.path[i].link);
            if (link.kind == SP_LINK_NIC) {
                (link.inward ? in : out)[link.node] += route.path[i].times * flow.bytes;
            }
        }
        for (int node = 0; node < 4; node++) {
            double expected = members[node] > 0 ? (count - 1.0) / count : 0.0;
            assert_near(out[node], expected, 1e-12, 1e-12);
            assert_near(in[node], expected, 1e-12, 1e-12);
        }
    }
    flat_network_fini(&f);
}
