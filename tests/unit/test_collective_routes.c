// Collectives by algorithm as flows: alone they take their closed times, and every link carries
// what the algorithm's definition says.
#include "tests/support/flat_network.h"
#include "tests/support/flow_ends.h"

#include "sim/cost/op_time.h"
#include "sim/network/route.h"

enum { MOST = 64, MOST_LINKS = 1024 };

static const sp_collective kinds[] = {SP_ALL_REDUCE, SP_ALL_GATHER, SP_REDUCE_SCATTER};

static int group_of(int first, int nodes, int per_node, int64_t *gpus)
{
    int count = 0;
    for (int node = 0; node < nodes; node++) {
        for (int i = 0; i < per_node; i++) {
            gpus[count++] = node * 8 + first + i;
        }
    }
    return count;
}

// The route of the algorithm that a time is of.
static void make(flat_network *f, sp_collective_algorithm algorithm, sp_collective kind,
                 const int64_t *gpus, int nodes, int per_node, sp_collective_route *route)
{
    sp_group group = {nodes * per_node, nodes, per_node, per_node};
    f->profile.algorithm = algorithm;
    sp_collective_algorithm choice = sp_collective_choice(&f->timer, kind, group, 1e9);
    sp_collective_route_make(f->topology, choice, kind, gpus, 1, group.size, route);
}

TEST(alone_it_takes_the_closed_time)
{
    flat_network f;
    flat_network_begin("h800-8", 5, &f);
    const double bytes = 1.0e9 + 17.0;
    for (int nodes = 1; nodes <= 5; nodes++) {
        for (int per_node = 1; per_node <= 8; per_node++) {
            int64_t gpus[MOST];
            sp_group group = {nodes * per_node, nodes, per_node, per_node};
            if (group_of(8 - per_node, nodes, per_node, gpus) < 2) {
                continue;
            }
            for (int a = SP_ALGORITHM_RING; a < SP_ALGORITHMS; a++) {
                for (int k = 0; k < 3; k++) {
                    AUTO(sp_collective_route) route;
                    make(&f, (sp_collective_algorithm)a, kinds[k], gpus, nodes, per_node, &route);
                    int64_t at_ns = 0;
                    for (int i = 0; i < route.count; i++) {
                        sp_flow flow = sp_collective_phase_flow(&route.phases[i], at_ns, bytes);
                        must_succeed(flow_ends(f.topology, &flow, 1, &at_ns, ERR));
                    }
                    double closed_s = sp_time_collective(&f.timer, kinds[k], group, bytes);
                    // Each phase is rounded once.
                    assert_within((double)at_ns, 1e9 * closed_s, route.count == 1 ? 0.501 : 1.501);
                }
            }
        }
    }
    flat_network_fini(&f);
}

// ---- bytes on links ----

// Bytes on each link of a tensor of one byte.
static void bytes_of(const flat_network *f, const sp_collective_route *route, double *bytes)
{
    assert_true(sp_topology_links(f->topology) <= MOST_LINKS);
    for (int i = 0; i < MOST_LINKS; i++) {
        bytes[i] = 0.0;
    }
    for (int i = 0; i < route->count; i++) {
        sp_flow flow = sp_collective_phase_flow(&route->phases[i], 0, 1.0);
        for (int32_t h = 0; h < flow.hops; h++) {
            bytes[flow.path[h].link] += flow.bytes * flow.path[h].times;
        }
    }
}

typedef struct sums {
    double of[SP_LINK_KINDS][2], most[SP_LINK_KINDS][2];
} sums;

static sums sums_of(const flat_network *f, const double *bytes)
{
    sums s = {0};
    for (int32_t l = 0; l < sp_topology_links(f->topology); l++) {
        sp_link link = sp_topology_link(f->topology, l);
        s.of[link.kind][link.inward] += bytes[l];
        s.most[link.kind][link.inward] = fmax(s.most[link.kind][link.inward], bytes[l]);
    }
    return s;
}

static sums passage_sums(flat_network *f, sp_collective_algorithm algorithm, sp_collective kind,
                         int nodes, int per_node)
{
    int64_t gpus[MOST];
    double bytes[MOST_LINKS];
    AUTO(sp_collective_route) route;
    group_of(0, nodes, per_node, gpus);
    make(f, algorithm, kind, gpus, nodes, per_node, &route);
    bytes_of(f, &route, bytes);
    return sums_of(f, bytes);
}

// Up and down every edge of a tree that joins all: the tensor once each way.
TEST(a_tree_carries_the_tensor_up_and_down_its_edges)
{
    FLAT_NETWORK(f, "h800-8", 8);
    for (int nodes = 1; nodes <= 8; nodes++) {
        for (int m = 2; m <= 8; m++) {
            sums s = passage_sums(&f, SP_ALGORITHM_TREE, SP_ALL_REDUCE, nodes, m);
            double of_nic = nodes > 1 ? sp_i_double_tree_share(nodes) / m : 0.0;
            for (int inward = 0; inward < 2; inward++) {
                assert_near(s.of[SP_LINK_NIC][inward], 2.0 * (nodes - 1), 1e-12, 1e-12);
                assert_close(s.of[SP_LINK_NVLINK][inward], 2.0 * (m - 1) * nodes, 1e-12);
                assert_near(s.most[SP_LINK_NIC][inward], of_nic, 1e-12, 1e-12);
                assert_close(s.most[SP_LINK_NVLINK][inward], sp_i_chain_share(m, nodes, m), 1e-12);
            }
        }
    }
}

// A GPU hands in the tensor and gets its part of the sum, or hands in its part and gets the tensor,
// or both.
TEST(switches_take_the_tensor_once_and_hand_out_the_sum)
{
    FLAT_NETWORK(f, "h800-8", 8);
    for (int nodes = 1; nodes <= 8; nodes++) {
        for (int m = 2; m <= 8; m++) {
            sums s = passage_sums(&f, SP_ALGORITHM_NVLS, SP_ALL_REDUCE, nodes, m);
            for (int inward = 0; inward < 2; inward++) {
                assert_close(s.most[SP_LINK_NVLINK][inward], 1.0 + 1.0 / m, 1e-12);
                assert_close(s.of[SP_LINK_NVLINK][inward], nodes * (m + 1.0), 1e-12);
                assert_near(s.of[SP_LINK_NIC][inward], 2.0 * (nodes - 1), 1e-12, 1e-12);
            }
        }
    }
    for (int m = 2; m <= 8; m++) {
        sums scatter = passage_sums(&f, SP_ALGORITHM_NVLS, SP_REDUCE_SCATTER, 1, m);
        sums gather = passage_sums(&f, SP_ALGORITHM_NVLS, SP_ALL_GATHER, 1, m);
        assert_close(scatter.most[SP_LINK_NVLINK][0], 1.0, 1e-12);
        assert_close(scatter.most[SP_LINK_NVLINK][1], 1.0 / m, 1e-12);
        assert_close(gather.most[SP_LINK_NVLINK][0], 1.0 / m, 1e-12);
        assert_close(gather.most[SP_LINK_NVLINK][1], 1.0, 1e-12);
        assert_close(scatter.of[SP_LINK_NVLINK][0], m, 1e-12);
        assert_close(gather.of[SP_LINK_NVLINK][1], m, 1e-12);
    }
}

// (m-1)/m of the tensor in a node and (N-1)/N of a part between nodes, twice for an all-reduce: the
// same for every GPU.
TEST(hierarchical_rings_carry_parts_between_nodes)
{
    FLAT_NETWORK(f, "h800-8", 8);
    for (int nodes = 2; nodes <= 8; nodes++) {
        for (int m = 2; m <= 8; m++) {
            for (int k = 0; k < 3; k++) {
                double rounds = kinds[k] == SP_ALL_REDUCE ? 2.0 : 1.0;
                sums s = passage_sums(&f, SP_ALGORITHM_HIERARCHICAL, kinds[k], nodes, m);
                double nic = rounds * (nodes - 1.0) / nodes / m;
                double nvlink = rounds * (m - 1.0) / m;
                for (int inward = 0; inward < 2; inward++) {
                    assert_close(s.most[SP_LINK_NIC][inward], nic, 1e-12);
                    assert_close(s.of[SP_LINK_NIC][inward], nodes * m * nic, 1e-12);
                    assert_close(s.most[SP_LINK_NVLINK][inward], nvlink, 1e-12);
                    assert_close(s.of[SP_LINK_NVLINK][inward], nodes * m * nvlink, 1e-12);
                }
            }
        }
    }
}

// Members anywhere: what goes up a tree and down again is the same on every cut between nodes,
// 2 (N-1) tensors in all; where nodes differ, NVLS and hierarchical are rings.
TEST(uneven_nodes)
{
    flat_network f;
    flat_network_begin("h800-8", 5, &f);
    sp_prng prng = prng_seeded(21);
    for (int round = 0; round < test_rounds(200); round++) {
        int64_t gpus[MOST];
        int count = 0;
        int members[5] = {0};
        for (int gpu = 0; gpu < 40; gpu++) {
            if (prng_below(&prng, 3) == 0) {
                gpus[count++] = gpu;
                members[gpu / 8]++;
            }
        }
        int nodes = 0;
        int most = 0;
        bool even = true;
        for (int node = 0; node < 5; node++) {
            nodes += members[node] > 0;
            even = even && (members[node] == 0 || members[node] == members[gpus[0] / 8]);
            most = members[node] > most ? members[node] : most;
        }
        if (count < 2 || even) {
            continue;
        }
        double bytes[MOST_LINKS];
        sp_collective_route route, ring;
        sp_collective_route_make(f.topology, SP_ALGORITHM_TREE, SP_ALL_REDUCE, gpus, 1, count,
                                 &route);
        bytes_of(&f, &route, bytes);
        sums s = sums_of(&f, bytes);
        assert_close(s.of[SP_LINK_NIC][0], 2.0 * (nodes - 1), 1e-12);
        assert_close(s.of[SP_LINK_NIC][1], 2.0 * (nodes - 1), 1e-12);
        assert_close(route.phases[0].route.latency_s,
                     2.0 * (sp_i_tree_levels(nodes) * FLAT_NIC_LATENCY_S +
                            (most - 1) * FLAT_NVLINK_LATENCY_S),
                     1e-12);
        sp_collective_route_fini(&route);
        sp_collective_route_make(f.topology, SP_ALGORITHM_RING, SP_ALL_REDUCE, gpus, 1, count,
                                 &ring);
        for (int a = SP_ALGORITHM_NVLS; a <= SP_ALGORITHM_HIERARCHICAL; a++) {
            sp_collective_route_make(f.topology, (sp_collective_algorithm)a, SP_ALL_REDUCE, gpus, 1,
                                     count, &route);
            assert_int_equal(route.count, 1);
            assert_int_equal(route.phases[0].route.hops, ring.phases[0].route.hops);
            assert_memory_equal(route.phases[0].route.path, ring.phases[0].route.path,
                                (size_t)ring.phases[0].route.hops * sizeof(sp_flow_hop));
            sp_collective_route_fini(&route);
        }
        sp_collective_route_fini(&ring);
    }
    flat_network_fini(&f);
}

// ---- together ----

// Two groups on different GPUs of the same nodes, each with NICs of its own: neither slows the
// other, as one flow for both or as two. On the same GPUs each takes twice the time of sending.
TEST(groups_side_by_side)
{
    FLAT_NETWORK(f, "h800-8", 4);
    for (int a = SP_ALGORITHM_RING; a < SP_ALGORITHM_AUTO; a++) {
        sp_collective_algorithm algorithm = (sp_collective_algorithm)a;
        int64_t gpus[2 * MOST];
        int count = group_of(0, 4, 4, gpus);
        group_of(4, 4, 4, &gpus[count]);
        AUTO(sp_collective_route) one, other, both;
        sp_collective_route_make(f.topology, algorithm, SP_ALL_REDUCE, gpus, 1, count, &one);
        sp_collective_route_make(f.topology, algorithm, SP_ALL_REDUCE, &gpus[count], 1, count,
                                 &other);
        sp_collective_route_make(f.topology, algorithm, SP_ALL_REDUCE, gpus, 2, count, &both);
        for (int i = 0; i < one.count; i++) {
            assert_close(sp_collective_phase_s(&both.phases[i], 1e9),
                         sp_collective_phase_s(&one.phases[i], 1e9), 1e-12);
            sp_flow flows[] = {sp_collective_phase_flow(&one.phases[i], 0, 1e9),
                               sp_collective_phase_flow(&other.phases[i], 0, 1e9)};
            int64_t alone_ns, ends_ns[2];
            must_succeed(flow_ends(f.topology, flows, 1, &alone_ns, ERR));
            must_succeed(flow_ends(f.topology, flows, 2, ends_ns, ERR));
            assert_int_equal(ends_ns[0], alone_ns);
            assert_int_equal(ends_ns[1], alone_ns);
            if (algorithm != SP_ALGORITHM_NVLS) {
                double latency_ns = 1e9 * flows[0].latency_s;
                flows[1] = flows[0];
                must_succeed(flow_ends(f.topology, flows, 2, ends_ns, ERR));
                assert_within((double)ends_ns[0], 2.0 * (double)alone_ns - latency_ns, 2.0);
            }
        }
    }
}

// ---- parts ----

enum { PARTS = 4 };

// Two groups of eight GPUs each on two whole nodes, with one GPU of a node between one of theirs
// and the next; parts are pairs of neighbours.
static void list_halves(int64_t gpus[2 * MOST])
{
    for (int i = 0; i < 16; i++) {
        gpus[i] = i / 8 + 2 * (i % 8);
    }
}

static const sp_route_parts pairs = {4, PARTS};

// Every part takes what the whole does, alone and beside all others, and together they put on each
// link what the whole does; what comes in over NVLink ports is a part's own.
TEST(parts_make_up_the_whole)
{
    FLAT_NETWORK(f, "h800-8", 2);
    f.cluster.fabric.pxn = false; // which hands on over others' ports
    f.cluster.fabric.rails = 1;   // whose spine all parts share
    f.cluster.fabric.nodes_per_leaf = 1;
    f.cluster.fabric.oversubscription = 2.0;
    sp_topology_free(f.topology);
    must_succeed(sp_topology_new(&f.cluster, &flat_rates, &f.topology, ERR));
    int64_t gpus[2 * MOST];
    list_halves(gpus);
    for (int a = SP_ALGORITHM_RING; a < SP_ALGORITHM_AUTO; a++) {
        for (int k = 0; k < 3; k++) {
            sp_collective_algorithm algorithm = (sp_collective_algorithm)a;
            sp_collective_route whole, parts[PARTS];
            sp_collective_route_make(f.topology, algorithm, kinds[k], gpus, 2, 8, &whole);
            sp_collective_route_make_parts(f.topology, algorithm, kinds[k], gpus, 2, 8, pairs,
                                           parts);
            for (int phase = 0; phase < whole.count; phase++) {
                int left[MOST_LINKS] = {0};
                const sp_route *route = &whole.phases[phase].route;
                double alone_s = 1.25 * sp_collective_phase_s(&whole.phases[phase], 1e9);
                int rounds = whole.phases[phase].rounds;
                double bytes = whole.phases[phase].share * 1e9;
                sp_flow flows[PARTS];
                sp_flow flow = sp_route_flow_of(route, 0, bytes, rounds, alone_s);
                int64_t ends_ns[PARTS], whole_ns;
                must_succeed(flow_ends(f.topology, &flow, 1, &whole_ns, ERR));
                for (int32_t h = 0; h < route->hops; h++) {
                    left[route->path[h].link] = route->path[h].times;
                }
                for (int p = 0; p < PARTS; p++) {
                    const sp_route *part = &parts[p].phases[phase].route;
                    assert_true(part->bytes_per_s == route->bytes_per_s &&
                                part->open_bytes_per_s == route->open_bytes_per_s);
                    flows[p] = sp_route_flow_of(part, 0, bytes, rounds, alone_s);
                    must_succeed(flow_ends(f.topology, &flows[p], 1, &ends_ns[0], ERR));
                    assert_int_equal(ends_ns[0], whole_ns);
                    for (int32_t h = 0; h < part->hops; h++) {
                        sp_link link = sp_topology_link(f.topology, part->path[h].link);
                        left[part->path[h].link] -= part->path[h].times;
                        bool own = (link.node * 8 + link.index) / 4 % PARTS == p;
                        assert_true(link.kind != SP_LINK_NVLINK || !link.inward || own);
                    }
                }
                must_succeed(flow_ends(f.topology, flows, PARTS, ends_ns, ERR));
                for (int p = 0; p < PARTS; p++) {
                    assert_int_equal(ends_ns[p], whole_ns);
                }
                for (int l = 0; l < MOST_LINKS; l++) {
                    assert_int_equal(left[l], 0);
                }
            }
            sp_collective_route_fini(&whole);
            for (int p = 0; p < PARTS; p++) {
                sp_collective_route_fini(&parts[p]);
            }
        }
    }
}

// Eight GPUs of a node and one of another are one ring, which goes from node to node in two parts
// of three: the third waits for what the others get.
TEST(a_part_inside_a_node_keeps_the_pace_of_the_ring)
{
    FLAT_NETWORK(f, "h800-8", 2);
    const int64_t gpus[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    sp_collective_route whole, parts[3];
    sp_collective_route_make(f.topology, SP_ALGORITHM_RING, SP_ALL_GATHER, gpus, 1, 9, &whole);
    sp_collective_route_make_parts(f.topology, SP_ALGORITHM_RING, SP_ALL_GATHER, gpus, 1, 9,
                                   (sp_route_parts){3, 3}, parts);
    for (int i = 0; i < 6; i++) {
        // Also where it is known to be faster than its links.
        double alone_s = (i < 3 ? 1.0 : 0.5) * sp_collective_phase_s(&whole.phases[0], 1e9);
        sp_flow flow = sp_route_flow_of(&parts[i % 3].phases[0].route, 0, 1e9, 1, alone_s);
        int64_t end_ns;
        must_succeed(flow_ends(f.topology, &flow, 1, &end_ns, ERR));
        assert_int_equal(end_ns, llround(alone_s * 1e9));
    }
    for (int p = 0; p < 3; p++) {
        sp_collective_route_fini(&parts[p]);
    }
    sp_collective_route_fini(&whole);
}
