#include "tests/support/flat_profile.h"
#include "tests/support/test_main.h"

#include "sim/cost/op_time.h"

// 8 GPUs and 4 NICs of 25 GB/s a node.
static const sp_cluster cluster = {
    .gpus_per_node = 8, .nodes = 64, .nics_per_node = 4, .nic_bytes_per_s = 25e9};

static sp_group inside(int size)
{
    return (sp_group){size, 1, size, size};
}

// Ring, Thakur, Rabenseifner, Gropp (2005): 2(n-1) steps of S/n for an all-reduce, n-1 for
// all-gather and reduce-scatter.
TEST(alpha_beta_inside_a_node)
{
    AUTO(sp_profile) profile = flat_profile_of(NULL);
    sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    double bytes = 64e6;
    for (int n = 2; n <= 8; n++) {
        double step = FLAT_NVLINK_LATENCY_S + bytes / n / FLAT_NVLINK_BYTES_PER_S;
        sp_group group = inside(n);
        assert_close(sp_time_collective(&timer, SP_ALL_REDUCE, group, bytes), 2 * (n - 1) * step,
                     1e-12);
        assert_close(sp_time_collective(&timer, SP_ALL_GATHER, group, bytes), (n - 1) * step,
                     1e-12);
        assert_close(sp_time_collective(&timer, SP_REDUCE_SCATTER, group, bytes), (n - 1) * step,
                     1e-12);
        assert_close(sp_time_collective(&timer, SP_ALL_TO_ALL, group, bytes), (n - 1) * step,
                     1e-12);
    }
    assert_true(sp_time_collective(&timer, SP_ALL_REDUCE, inside(1), bytes) == 0.0);
    assert_true(sp_time_collective(&timer, SP_ALL_REDUCE, inside(4), 0.0) == 0.0);
}

// A GPU's share of the NICs is 4 * 25 GB/s * 0.8 / 8 = 10 GB/s; the least populated node's members
// put theirs together, up to NVLink.
TEST(network_share)
{
    AUTO(sp_profile) profile = flat_profile_of(NULL);
    sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    double bytes = 8e9;
    double latency =
        2 * (8 * FLAT_NVLINK_LATENCY_S - 2 * FLAT_NVLINK_LATENCY_S) + 2 * FLAT_NIC_LATENCY_S;
    assert_close(sp_time_collective(&timer, SP_ALL_REDUCE, (sp_group){8, 2, 4, 4}, bytes),
                 2 * 7.0 / 8.0 * bytes / 40e9 + latency, 1e-12);
    // Three members and one alone in its node: one share (an odd data-parallel degree).
    assert_close(sp_time_collective(&timer, SP_REDUCE_SCATTER, (sp_group){4, 2, 1, 3}, bytes),
                 3.0 / 4.0 * bytes / 10e9 + 2 * FLAT_NVLINK_LATENCY_S + FLAT_NIC_LATENCY_S, 1e-12);
    assert_close(sp_time_p2p(&timer, bytes, 1), FLAT_NIC_LATENCY_S + bytes / 10e9, 1e-12);
    assert_close(sp_time_p2p(&timer, bytes, 0),
                 FLAT_NVLINK_LATENCY_S + bytes / FLAT_NVLINK_BYTES_PER_S, 1e-12);
    sp_cluster fast = cluster;
    fast.nic_bytes_per_s = 1e12;
    timer.cluster = &fast;
    assert_close(sp_time_p2p(&timer, bytes, 1),
                 FLAT_NIC_LATENCY_S + bytes / FLAT_NVLINK_BYTES_PER_S, 1e-12);
}

// Small messages over many nodes: up and down a tree of 6 levels beats 2*63 ring crossings.
TEST(tree_over_nodes)
{
    AUTO(sp_profile) profile = flat_profile_of(NULL);
    sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    sp_group group = {512, 64, 8, 8};
    assert_close(sp_time_collective(&timer, SP_ALL_REDUCE, group, 1024),
                 2 * 6 * FLAT_NIC_LATENCY_S + 2 * 7 * FLAT_NVLINK_LATENCY_S + 2 * 1024 / 80e9,
                 1e-12);
    double large = 1e12;
    double ring = 2 * 511.0 / 512.0 * large / 80e9 + 2 * 63 * FLAT_NIC_LATENCY_S +
                  2 * (511 - 63) * FLAT_NVLINK_LATENCY_S;
    assert_close(sp_time_collective(&timer, SP_ALL_REDUCE, group, large), ring, 1e-12);
}

// nccl-tests on ND H100 v5 (Azure AI-benchmarking-guide): 1 GiB all-reduce at 466 GB/s bus
// bandwidth. 8 x H100 all-gather and reduce-scatter times in microseconds from SimuMax
// (nccl_fit.py).
TEST(published_times)
{
    AUTO(sp_profile) profile;
    must_succeed(sp_profile_load("h100", &profile, ERR));
    sp_uncalibrated uncalibrated = {0};
    sp_op_timer timer = {.cluster = &cluster, .profile = &profile, .uncalibrated = &uncalibrated};
    double mib = 1048576.0;
    assert_close(sp_time_collective(&timer, SP_ALL_REDUCE, inside(8), 1024 * mib),
                 1024 * mib * 1.75 / 466e9, 1e-12);
    assert_close(sp_time_collective(&timer, SP_ALL_GATHER, inside(8), 64 * mib), 211e-6, 1e-3);
    assert_close(sp_time_collective(&timer, SP_REDUCE_SCATTER, inside(8), 256 * mib), 726e-6, 1e-3);
    assert_close(sp_time_collective(&timer, SP_ALL_TO_ALL, inside(8), 1024 * mib), 2822e-6, 1e-3);
    assert_true(uncalibrated.most[SP_RANGE_COLLECTIVE] <= 0.0);
    // Half the group: half the factor's numerator at the same bus bandwidth; below the table: the
    // time of its first point (1 KiB at 0.07 GB/s).
    assert_close(sp_time_collective(&timer, SP_ALL_REDUCE, inside(2), 1024 * mib),
                 1024 * mib / 466e9, 1e-12);
    assert_close(sp_time_collective(&timer, SP_ALL_REDUCE, inside(8), 16), 1024 * 1.75 / 0.07e9,
                 1e-12);
    char lines[SP_RANGES][160];
    assert_int_equal(sp_uncalibrated_lines(&uncalibrated, lines), 1);
    assert_string_equal(lines[0], "collective: bytes 16 to 16 (calibrated 1024 to 8.58993e+09)");
}

#define GROUPS                                                                     \
    "node_collectives={\"latency_us\":39,\"latency_per_doubling_us\":19.4,"        \
    "\"between_latency_us\":100,\"gb_per_s\":[[2,194],[4,221],[8,230]],\"level\":" \
    "\"fitted\",\"source\":\"s\"}"

// An all-reduce of a group inside a node: 39 us + 19.4 us a doubling + 2(n-1)/n * bytes / rate(n);
// gathers and scatters take half. Between the table's sizes the rate is linear in log n and log
// rate, outside it is held. The size tables do not count beside it, all-to-all has no group model.
TEST(group_model_inside_a_node)
{
    AUTO(sp_profile) profile = flat_profile_of(
        (const char *[]){GROUPS,
                         "collectives.all_reduce={\"level\":\"measured\",\"source\":\"s\","
                         "\"points\":[[1024,1],[1e9,2]]}",
                         NULL});
    sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    const double bytes = 4194304;
    const struct {
        int n;
        double rate;
    } sizes[] = {{2, 194e9}, {3, 0.0}, {4, 221e9}, {8, 230e9}};
    for (size_t i = 0; i < 4; i++) {
        int n = sizes[i].n;
        double rate = n == 3 ? 194e9 * pow(221.0 / 194.0, log2(3.0) - 1.0) : sizes[i].rate;
        double all_s = 39e-6 + 19.4e-6 * log2(n) + 2.0 * (n - 1) / n * bytes / rate;
        assert_close(sp_time_collective(&timer, SP_ALL_REDUCE, inside(n), bytes), all_s, 1e-12);
        assert_close(sp_time_collective(&timer, SP_ALL_GATHER, inside(n), bytes), all_s / 2, 1e-12);
        assert_close(sp_time_collective(&timer, SP_REDUCE_SCATTER, inside(n), bytes), all_s / 2,
                     1e-12);
        assert_close(sp_time_collective(&timer, SP_ALL_TO_ALL, inside(n), bytes),
                     (n - 1) * (FLAT_NVLINK_LATENCY_S + bytes / n / FLAT_NVLINK_BYTES_PER_S),
                     1e-12);
    }
    assert_close(sp_time_collective(&timer, SP_ALL_REDUCE, inside(16), bytes),
                 39e-6 + 4 * 19.4e-6 + 2.0 * 15 / 16 * bytes / 230e9, 1e-12);
    assert_true(sp_time_collective(&timer, SP_ALL_REDUCE, inside(1), bytes) == 0.0);
}

// Between nodes one latency takes the place of the ring's steps and of the tree; the rate is that
// of the NICs as without the model: 10 GB/s a GPU, all eight of a node 80 GB/s.
TEST(group_model_between_nodes)
{
    AUTO(sp_profile) profile = flat_profile_of((const char *[]){GROUPS, NULL});
    sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    const double bytes = 50331648;
    const sp_group group = {16, 2, 8, 8};
    double all_s = 100e-6 + 2.0 * 15 / 16 * bytes / 80e9;
    assert_close(sp_time_collective(&timer, SP_ALL_REDUCE, group, bytes), all_s, 1e-12);
    assert_close(sp_time_collective(&timer, SP_ALL_GATHER, group, bytes), all_s / 2, 1e-12);
    assert_close(sp_time_collective(&timer, SP_REDUCE_SCATTER, group, bytes), all_s / 2, 1e-12);
    assert_close(sp_time_collective(&timer, SP_ALL_REDUCE, (sp_group){4, 2, 1, 3}, bytes),
                 100e-6 + 2.0 * 3 / 4 * bytes / 10e9, 1e-12);
}

// Pipeline transfers have their own rate and latency inside a node where the profile states them.
TEST(transfers_of_their_own)
{
    AUTO(sp_profile) profile = flat_profile_of(
        (const char *[]){"links.p2p_gb_per_s=90", "links.p2p_latency_us=200", NULL});
    sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    assert_close(sp_time_p2p(&timer, 9e6, 0), 200e-6 + 9e6 / 90e9, 1e-12);
    assert_close(sp_time_p2p(&timer, 9e6, 1), FLAT_NIC_LATENCY_S + 9e6 / 10e9, 1e-12);
}

static sp_group random_group(sp_prng *prng)
{
    int least = 1 + prng_below(prng, 8);
    int most = least + prng_below(prng, 9 - least);
    int nodes = 1 + prng_below(prng, 40);
    if (nodes == 1) {
        return inside(least);
    }
    return (sp_group){least + (nodes - 1) * most, nodes, least, most};
}

TEST(is_monotone)
{
    static const char *const names[] = {"a100", "h100", "h800", "h200", "host", NULL};
    sp_prng prng = prng_seeded(3);
    for (size_t p = 0; p < sizeof names / sizeof names[0]; p++) {
        AUTO(sp_profile) profile;
        sp_error_clear(ERR);
        if (names[p] != NULL) {
            must_succeed(sp_profile_load(names[p], &profile, ERR));
        } else {
            flat_profile_load((const char *[]){GROUPS, NULL}, &profile);
        }
        sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
        for (int i = 0; i < 2000; i++) {
            sp_group group = random_group(&prng);
            double bytes = exp(25.0 * sp_prng_uniform(&prng));
            double more = bytes * (1.0 + sp_prng_uniform(&prng));
            double time_s[SP_COLLECTIVES];
            for (int kind = 0; kind < SP_COLLECTIVES; kind++) {
                time_s[kind] = sp_time_collective(&timer, (sp_collective)kind, group, bytes);
                assert_true(time_s[kind] >= 0.0);
                assert_true(sp_time_collective(&timer, (sp_collective)kind, group, more) >=
                            time_s[kind] * (1.0 - 1e-12));
            }
            assert_true(time_s[SP_ALL_REDUCE] >= time_s[SP_REDUCE_SCATTER]);
            assert_true(time_s[SP_ALL_REDUCE] >= time_s[SP_ALL_GATHER]);
            assert_true(time_s[SP_ALL_REDUCE] > 0.0 || group.size == 1);
        }
    }
}
