// A profile's NVLink rates on clusters whose NVLink is another than the one it was measured on:
// what is beyond the latency goes with the rate, and on its own cluster nothing changes.
#include "tests/support/flat_profile.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#include "sim/cost/op_time.h"

#define NOMINAL_BYTES_PER_S 300e9

static const sp_cluster plain_cluster = {.gpus_per_node = 8,
                                         .nodes = 4,
                                         .nvlink_bytes_per_s = NOMINAL_BYTES_PER_S,
                                         .nics_per_node = 8,
                                         .nic_bytes_per_s = 50e9,
                                         .nvls = true};

#define NOMINAL "links.nvlink_nominal_gb_per_s=300"
// 7 us and 0.1 us for every 1000 bytes, by the bytes and (an all-gather of 8 ranks: 7/8 of the
// bytes over the time is the bus bandwidth) by the rate.
#define TIMES                                                                           \
    "collective_times=[{\"kind\":\"reduce_scatter\",\"ranks\":4,\"level\":\"assumed\"," \
    "\"source\":\"s\",\"points\":[[1000,7.1],[10000,8],[1e6,107],[1e8,10007]]}]"
#define RATES                                                                                    \
    "collectives={\"all_to_all\":{\"level\":\"assumed\",\"source\":\"s\",\"points\":"            \
    "[[1000,0.12323943661971831],[10000,1.09375],[1e6,8.177570093457945],[1e8,8.74387928450085]" \
    "]}}"
#define GROUPS                                                           \
    "node_collectives={\"latency_us\":7,\"gb_per_s\":[[2,100],[8,200]]," \
    "\"level\":\"assumed\",\"source\":\"s\"}"

static sp_profile profile;

static sp_cluster with_nvlink(double times)
{
    sp_cluster cluster = plain_cluster;
    cluster.nvlink_bytes_per_s *= times;
    return cluster;
}

// Of one way to spend time inside a node, joined to `times` the NVLink.
typedef double way_s(const sp_op_timer *timer, double bytes);

static double joined_s(const char *const *overrides, way_s *way, double times, double bytes)
{
    sp_cluster cluster = with_nvlink(times);
    const sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    flat_profile_load(overrides, &profile);
    profile.algorithm = SP_ALGORITHM_PROFILE;
    sp_profile_join(&profile, &cluster);
    double seconds = way(&timer, bytes);
    sp_profile_fini(&profile);
    return seconds;
}

static const sp_group eight = {8, 1, 8, 8};
static const sp_group four = {4, 1, 4, 4};

static double p2p_s(const sp_op_timer *timer, double bytes)
{
    return sp_time_p2p(timer, bytes, 0);
}

static double ring_s(const sp_op_timer *timer, double bytes)
{
    return sp_time_collective(timer, SP_ALL_GATHER, eight, bytes);
}

static double nvls_s(const sp_op_timer *timer, double bytes)
{
    profile.algorithm = SP_ALGORITHM_NVLS;
    return sp_time_collective(timer, SP_ALL_REDUCE, eight, bytes);
}

static double by_times_s(const sp_op_timer *timer, double bytes)
{
    return sp_time_collective(timer, SP_REDUCE_SCATTER, four, bytes);
}

static double by_rates_s(const sp_op_timer *timer, double bytes)
{
    return sp_time_collective(timer, SP_ALL_TO_ALL, eight, bytes);
}

static double all_reduce_s(const sp_op_timer *timer, double bytes)
{
    return sp_time_collective(timer, SP_ALL_REDUCE, eight, bytes);
}

TEST(what_is_beyond_the_latency_goes_with_nvlink)
{
    static const struct {
        const char *override;
        way_s *way;
        double latency_us;
    } ways[] = {
        {"name=x", p2p_s, 4.0},      {"name=x", ring_s, 7 * 4.0},
        {"name=x", nvls_s, -1.0}, // of as many steps as the model has
        {TIMES, by_times_s, 7.0},    {RATES, by_rates_s, 7.0},
        {GROUPS, all_reduce_s, 7.0}, {"links.p2p_gb_per_s=90", p2p_s, 4.0},
    };
    static const double bytes[] = {1000, 10000, 1e6, 1e8};
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        const char *const overrides[] = {NOMINAL, ways[w].override, NULL};
        double latency_s = 1e-6 * ways[w].latency_us;
        for (size_t b = 0; b < sizeof bytes / sizeof bytes[0]; b++) {
            double own_s = joined_s(overrides, ways[w].way, 1.0, bytes[b]);
            double double_s = joined_s(overrides, ways[w].way, 2.0, bytes[b]);
            double half_s = joined_s(overrides, ways[w].way, 0.5, bytes[b]);
            if (latency_s < 0.0) { // what twice the rate saves, half of it costs twice
                latency_s = 2.0 * double_s - own_s;
                assert_true(latency_s > 0.0);
            }
            assert_close(2.0 * (double_s - latency_s), own_s - latency_s, 1e-6);
            assert_close(0.5 * (half_s - latency_s), own_s - latency_s, 1e-6);
        }
    }
}

// Between nodes NVLink is no narrower than the network here.
TEST(the_network_stays)
{
    flat_profile_load((const char *[]){NOMINAL, NULL}, &profile);
    const sp_op_timer timer = {.cluster = &plain_cluster, .profile = &profile};
    const sp_group apart = {4, 4, 1, 1};
    double gather_s = sp_time_collective(&timer, SP_ALL_GATHER, apart, 1e7);
    double send_s = sp_time_p2p(&timer, 1e7, 1);
    sp_cluster cluster = with_nvlink(3.0);
    sp_profile_join(&profile, &cluster);
    assert_true(sp_time_collective(&timer, SP_ALL_GATHER, apart, 1e7) == gather_s);
    assert_true(sp_time_p2p(&timer, 1e7, 1) == send_s);
    sp_profile_fini(&profile);
}

// What a cluster states goes before the profile; sends between stages keep a latency of their own.
TEST(latencies_of_the_cluster)
{
    for (int own = 0; own < 2; own++) {
        sp_cluster cluster = plain_cluster;
        const char *const overrides[] = {NOMINAL, own ? "links.p2p_latency_us=200" : "name=x",
                                         NULL};
        flat_profile_load(overrides, &profile);
        sp_profile_join(&profile, &cluster);
        assert_close(profile.nvlink_latency_s, FLAT_NVLINK_LATENCY_S, 1e-12);
        assert_close(profile.nic_latency_s, FLAT_NIC_LATENCY_S, 1e-12);
        cluster.nvlink_latency = (sp_stated_latency){true, 0.0};
        cluster.nic_latency = (sp_stated_latency){true, 3e-6};
        sp_profile_join(&profile, &cluster);
        assert_true(profile.nvlink_latency_s == 0.0);
        assert_true(profile.nic_latency_s == 3e-6);
        assert_close(profile.p2p_latency_s, own ? 200e-6 : 0.0, 1e-12);
        sp_profile_fini(&profile);
    }
}

// ---- by which cluster the nominal rate is known ----

static double joined_nvlink(const char *const *overrides, double cluster_bytes_per_s)
{
    sp_cluster cluster = plain_cluster;
    cluster.nvlink_bytes_per_s = cluster_bytes_per_s;
    flat_profile_load(overrides, &profile);
    sp_profile_join(&profile, &cluster);
    sp_profile_join(&profile, &cluster); // changes nothing
    double rate = profile.nvlink_bytes_per_s;
    sp_profile_fini(&profile);
    return rate;
}

TEST(where_the_nominal_rate_comes_from)
{
    static const char own[] =
        "cluster={\"name\":\"own\",\"peak_tflops\":1,\"memory_gib\":1,\"hbm_gb_per_s\":1,"
        "\"nvlink_gb_per_s\":100,\"nic_gbit_per_s\":1}";
    const double flat = FLAT_NVLINK_BYTES_PER_S;
    // Stated, of the profile's cluster, of a100-8 which uses a100 first; of none.
    assert_close(joined_nvlink((const char *[]){NOMINAL, own, NULL}, 600e9), 2.0 * flat, 1e-12);
    assert_close(joined_nvlink((const char *[]){own, "name=a100", NULL}, 50e9), 0.5 * flat, 1e-12);
    assert_close(joined_nvlink((const char *[]){"name=a100", NULL}, 900e9), 3.0 * flat, 1e-12);
    assert_true(joined_nvlink(NULL, 900e9) == flat);
    assert_true(joined_nvlink((const char *[]){NOMINAL, NULL}, 0.0) == flat);
    sp_error err;
    sp_error_clear(&err);
    assert_int_equal(
        flat_profile((const char *[]){"links.nvlink_nominal_gb_per_s=0", NULL}, &profile, &err),
        SP_ERR_CONTENT);
}

static bool same_curves(const sp_curve *a, const sp_curve *b)
{
    size_t bytes = 3 * (size_t)a->points * sizeof *a->x;
    return a->points == b->points && (bytes == 0 || memcmp(a->x, b->x, bytes) == 0);
}

// Every built-in profile on the first cluster that uses it is as its file has it, and a800-8 has
// 2/3 of what an A100's NVLink reaches.
TEST(built_in_clusters)
{
    int equal = 0;
    for (int i = 0; i < sp_cluster_builtin_count(); i++) {
        sp_cluster cluster, first;
        sp_profile plain;
        must_succeed(sp_cluster_builtin(sp_cluster_builtin_name(i), &cluster, ERR));
        must_succeed(sp_profile_load(cluster.profile, &plain, ERR));
        must_succeed(sp_profile_copy(&plain, &profile, ERR));
        sp_profile_join(&profile, &cluster);
        assert_true(sp_cluster_of_profile(cluster.profile, &first));
        if (first.nvlink_bytes_per_s == cluster.nvlink_bytes_per_s) {
            equal++;
            assert_true(profile.nvlink_bytes_per_s == plain.nvlink_bytes_per_s);
            assert_true(profile.p2p_bytes_per_s == plain.p2p_bytes_per_s);
            for (int c = 0; c < SP_COLLECTIVES; c++) {
                assert_true(same_curves(&profile.collective[c], &plain.collective[c]));
            }
        } else {
            assert_string_equal(cluster.name, "a800-8");
            assert_close(profile.nvlink_bytes_per_s, plain.nvlink_bytes_per_s * 2.0 / 3.0, 1e-12);
        }
        sp_profile_fini(&plain);
        sp_profile_fini(&profile);
    }
    assert_int_equal(equal, sp_cluster_builtin_count() - 1);
}

// ---- steps ----

static double step_ms(const char *parallel, const char *detail, double nvlink_gb_per_s)
{
    scenario_run r;
    run_good(json_text(TINY_MODEL "'profile': 'linear', 'cluster': {'name': 'h800-8', "
                                  "'nvlink_gb_per_s': %.17g}, 'parallel': %s, "
                                  "'network': {'detail': '%s'}, 'stack': {'cp_overlap': "
                                  "'blocking'}, 'workload': {'lengths': [4096, 4096, 4096, 4096], "
                                  "'context': 4096, 'batches': 1}}",
                       nvlink_gb_per_s, parallel, detail),
             &run_verified, &r);
    double ms = sp_result_iteration_ms(&r.result);
    run_fini(&r);
    return ms;
}

// Without latencies a step inside a node is c + m / rate: three rates that double each save half of
// what the one before saved.
TEST(steps_are_bound_by_the_clusters_nvlink)
{
    static const char *const parallels[] = {"{'tp': 8}", "{'cp': 8}", "{'tp': 2, 'cp': 4}"};
    static const char *const details[] = {"closed", "flows"};
    for (size_t p = 0; p < 3; p++) {
        for (size_t d = 0; d < 2; d++) {
            double slow = step_ms(parallels[p], details[d], 25);
            double first = slow - step_ms(parallels[p], details[d], 50);
            double second = slow - first - step_ms(parallels[p], details[d], 100);
            assert_true(first > 0.1 * slow);
            assert_close(second, 0.5 * first, 1e-3);
        }
    }
}
