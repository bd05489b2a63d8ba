// Links of clusters and paths between GPUs, counted out from the figures of the presets.
#include "tests/support/test_main.h"

#include "sim/network/topology.h"

OWNS(sp_topology)

static const sp_link_rates plain = {.nvlink_bytes_per_s = 200e9,
                                    .nvlink_latency_s = 1e-6,
                                    .nic_efficiency = 0.8,
                                    .nic_latency_s = 5e-6};

static sp_cluster preset(const char *name, int nodes)
{
    sp_cluster cluster;
    must_succeed(sp_cluster_builtin(name, &cluster, ERR));
    cluster.nodes = nodes;
    return cluster;
}

static sp_topology *made(const sp_cluster *cluster)
{
    sp_topology *t = NULL;
    must_succeed(sp_topology_new(cluster, &plain, &t, ERR));
    return t;
}

typedef struct path {
    int hops;
    sp_link link[SP_PATH_HOPS];
    double bytes_per_s[SP_PATH_HOPS];
    double latency_s, spine_latency_s;
    char text[200]; // "nvlink 0.1>" and the like: node and index, > outward, < inward
} path;

static path path_of(const sp_topology *t, int from, int to)
{
    path p = {0};
    sp_flow_hop hops[SP_PATH_HOPS];
    p.hops = sp_topology_path(t, from, to, hops, &p.latency_s, &p.spine_latency_s);
    for (int i = 0; i < p.hops; i++) {
        size_t used = strlen(p.text);
        sp_link link = sp_topology_link(t, hops[i].link);
        assert_int_equal(hops[i].times, 1);
        p.link[i] = link;
        p.bytes_per_s[i] = sp_topology_bytes_per_s(t)[hops[i].link];
        snprintf(p.text + used, sizeof p.text - used, "%s%s %d.%d%s", i > 0 ? ", " : "",
                 sp_link_kind_names[link.kind], link.node, link.index, link.inward ? "<" : ">");
    }
    return p;
}

TEST(gpus_of_a_node_talk_over_their_nvlink_ports)
{
    sp_cluster cluster = preset("h800-8", 2);
    OWNED(sp_topology) t = made(&cluster);
    path p = path_of(t, 9, 14);
    assert_string_equal(p.text, "nvlink 1.1>, nvlink 1.6<");
    assert_true(p.bytes_per_s[0] == 200e9);
    assert_close(p.latency_s, 1e-6, 1e-12);
    assert_int_equal(path_of(t, 3, 3).hops, 0);
}

// 16 GPUs with two NVLink and two PCIe links, a NIC each with two, 8 leaf switches.
TEST(links_are_counted)
{
    sp_cluster cluster = preset("h800-8", 2);
    OWNED(sp_topology) t = made(&cluster);
    assert_int_equal(sp_topology_links(t), 16 * 2 + 16 * 2 + 16 * 2 + 8 * 2);
}

TEST(gpus_of_one_rail_talk_over_its_leaf_switch)
{
    sp_cluster cluster = preset("h800-8", 4);
    OWNED(sp_topology) t = made(&cluster);
    path p = path_of(t, 5, 8 * 3 + 5);
    assert_string_equal(p.text, "pcie 0.5>, nic 0.5>, nic 3.5<, pcie 3.5<");
    assert_close(p.bytes_per_s[1], 0.8 * 50e9, 1e-15);
    assert_close(p.latency_s, 5e-6, 1e-12);
}

// A800: 4 NICs for 8 GPUs.
TEST(two_gpus_share_a_nic)
{
    sp_cluster cluster = preset("a800-8", 2);
    OWNED(sp_topology) t = made(&cluster);
    assert_string_equal(path_of(t, 2, 8 + 2).text, "pcie 0.2>, nic 0.1>, nic 1.1<, pcie 1.2<");
    assert_string_equal(path_of(t, 3, 8 + 3).text, "pcie 0.3>, nic 0.1>, nic 1.1<, pcie 1.3<");
    sp_topology_free(t);
    cluster.fabric.nic_affinity = SP_NIC_ROUND_ROBIN;
    t = made(&cluster);
    assert_string_equal(path_of(t, 2, 8 + 2).text, "pcie 0.2>, nic 0.2>, nic 1.2<, pcie 1.2<");
    assert_string_equal(path_of(t, 6, 8 + 6).text, "pcie 0.6>, nic 0.2>, nic 1.2<, pcie 1.6<");
}

// Three NICs for eight GPUs serve 3, 3 and 2 of them: flows share what there is, which is a third
// of a NIC for the first six where an even share would be three eighths.
TEST(nics_that_do_not_divide_the_gpus)
{
    for (int order = 0; order < 2; order++) {
        sp_cluster cluster = preset("h100-8", 2);
        int gpus[3] = {0};
        cluster.nics_per_node = 3;
        cluster.fabric.nic_affinity = order == 0 ? SP_NIC_BLOCK : SP_NIC_ROUND_ROBIN;
        OWNED(sp_topology) t = made(&cluster);
        for (int gpu = 0; gpu < 8; gpu++) {
            path p = path_of(t, gpu, 8 + gpu);
            gpus[p.link[1].index]++;
            assert_close(p.bytes_per_s[1], 0.8 * 50e9, 1e-15);
        }
        assert_int_equal(gpus[0], 3);
        assert_int_equal(gpus[1], 3);
        assert_int_equal(gpus[2], 2);
        assert_close(sp_topology_nic_share(t), 0.8 * 50e9 * 3 / 8, 1e-15);
    }
}

// p5.48xlarge: four NICs of 100 Gb/s for each GPU, no rails.
TEST(several_nics_of_a_gpu_are_one_link)
{
    sp_cluster cluster = preset("h100-8-efa", 2);
    OWNED(sp_topology) t = made(&cluster);
    path p = path_of(t, 1, 8 + 4);
    assert_string_equal(p.text, "pcie 0.1>, nic 0.1>, nic 1.4<, pcie 1.4<");
    assert_close(p.bytes_per_s[1], 0.8 * 50e9, 1e-15);
}

TEST(another_rail_is_reached_over_nvlink_or_over_the_spine)
{
    sp_cluster cluster = preset("h100-8", 2);
    OWNED(sp_topology) t = made(&cluster);
    path p = path_of(t, 1, 8 + 4);
    assert_string_equal(p.text,
                        "nvlink 0.1>, nvlink 0.4<, pcie 0.4>, nic 0.4>, nic 1.4<, pcie 1.4<");
    assert_close(p.latency_s, 5e-6, 1e-12);
    sp_topology_free(t);
    cluster.fabric.pxn = false;
    cluster.fabric.spine_latency_s = 2e-6;
    t = made(&cluster);
    p = path_of(t, 1, 8 + 4);
    assert_string_equal(p.text, "pcie 0.1>, nic 0.1>, spine 0.1>, spine 0.4<, nic 1.4<, pcie 1.4<");
    assert_close(p.latency_s, 5e-6, 1e-12);
    assert_close(p.spine_latency_s, 2e-6, 1e-12);
    p = path_of(t, 1, 8 + 1);
    assert_true(p.spine_latency_s == 0.0);
    sp_topology_free(t);
    // PCIe is passed at both ends, inside a node nowhere.
    cluster.host_link_latency_s = 3e-6;
    t = made(&cluster);
    assert_close(path_of(t, 1, 8 + 4).spine_latency_s, 2e-6 + 6e-6, 1e-12);
    assert_close(path_of(t, 1, 8 + 1).spine_latency_s, 6e-6, 1e-12);
    assert_true(path_of(t, 1, 4).spine_latency_s == 0.0);
}

// DGX SuperPOD with H100: 32 nodes at a leaf switch, whose links to the spine carry their NICs.
TEST(the_spine_is_oversubscribed_as_stated)
{
    sp_cluster cluster = preset("h100-8", 70);
    cluster.fabric.oversubscription = 4.0;
    OWNED(sp_topology) t = made(&cluster);
    assert_int_equal(sp_topology_links(t), 70 * 8 * 2 * 3 + 3 * 8 * 2);
    assert_int_equal(path_of(t, 7, 31 * 8 + 7).hops, 4);
    path p = path_of(t, 7, 65 * 8 + 7);
    assert_string_equal(p.text,
                        "pcie 0.7>, nic 0.7>, spine 0.7>, spine 64.7<, nic 65.7<, pcie 65.7<");
    assert_close(p.bytes_per_s[2], 32 * 0.8 * 50e9 / 4.0, 1e-15);
    p = path_of(t, 2, 40 * 8 + 7);
    assert_int_equal(p.hops, SP_PATH_HOPS);
}

// The 64 GPUs of a rack that jobs take are one NVLink domain; NICs are on 4 rails.
TEST(a_rack_is_one_nvlink_domain)
{
    sp_cluster cluster = preset("gb200-nvl72", 2);
    OWNED(sp_topology) t = made(&cluster);
    assert_string_equal(path_of(t, 0, 63).text, "nvlink 0.0>, nvlink 0.63<");
    assert_string_equal(path_of(t, 5, 64 + 61).text, "pcie 0.5>, nic 0.5>, nic 1.61<, pcie 1.61<");
    assert_int_equal(path_of(t, 5, 64 + 62).hops, 6);
}

// Of all presets: a way leaves the one GPU and comes to the other, and back over the same links
// turned round unless another GPU of the sender's node lends its NIC.
TEST(ways_lead_from_one_gpu_to_the_other)
{
    for (int c = 0; c < sp_cluster_builtin_count(); c++) {
        sp_cluster cluster = preset(sp_cluster_builtin_name(c), 5);
        cluster.fabric.nodes_per_leaf = 2;
        cluster.fabric.pxn = false;
        OWNED(sp_topology) t = made(&cluster);
        int gpus = 5 * cluster.gpus_per_node;
        sp_prng prng = prng_seeded((uint64_t)c);
        for (int round = 0; round < test_rounds(500); round++) {
            int a = prng_below(&prng, gpus), b = prng_below(&prng, gpus);
            path there = path_of(t, a, b), back = path_of(t, b, a);
            assert_int_equal(there.hops, back.hops);
            for (int i = 0; i < there.hops; i++) {
                const sp_link *x = &there.link[i], *y = &back.link[there.hops - 1 - i];
                assert_true(x->kind == y->kind && x->node == y->node && x->index == y->index);
                assert_int_equal(x->inward, !y->inward);
                assert_int_equal(x->inward, i >= there.hops / 2);
            }
            if (a != b) {
                assert_int_equal(there.link[0].node * cluster.gpus_per_node + there.link[0].index,
                                 a);
            }
        }
    }
}

TEST(a_link_without_a_rate_is_refused)
{
    sp_cluster cluster = preset("h100-8", 2);
    sp_topology *t;
    cluster.nic_bytes_per_s = 0.0;
    must_fail(sp_topology_new(&cluster, &plain, &t, ERR), SP_ERR_CONTENT,
              "nic: expected a rate above 0, got 0");
}
