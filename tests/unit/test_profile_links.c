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
    must_fail_with(
        flat_profile((const char *[]){"links.nvlink_nominal_gb_per_s=0", NULL}, &profile, ERR),
        SP_ERR_CONTENT, "");
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
        sp_profile_copy(&plain, &profile);
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

// ---- the GPU ----

#define OWN_GPU "peak_tflops=1000", "hbm_gb_per_s=4000"
#define GEMM_TIMES                                                                             \
    "gemm=[{\"n\":512,\"k\":512,\"level\":\"measured\",\"source\":\"s\",\"points\":[[100,12]," \
    "[200,22],[400,42]]}]"

typedef struct gpu_times {
    double gemm_s, table_s, attention_s, memory_s;
} gpu_times;

static gpu_times times_on(const char *const *overrides, double peak, double hbm)
{
    sp_cluster cluster = plain_cluster;
    const sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    cluster.peak_flops_per_s = peak;
    cluster.hbm_bytes_per_s = hbm;
    flat_profile_load(overrides, &profile);
    sp_profile_join(&profile, &cluster);
    sp_profile_join(&profile, &cluster); // changes nothing
    gpu_times times = {sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 4096, 4096, 4096),
                       sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 400, 512, 512),
                       sp_time_attention_slice(&timer, 0, 4096.0, 0.0, HUGE_VAL, 8.0, 128.0),
                       sp_time_memory(&timer, 1e9, 0)};
    sp_profile_fini(&profile);
    return times;
}

// A GPU of half the peak takes twice as long for products and attention, one of half the memory
// rate for what is bound by that. Tables of times keep their latency: 2 us here, 0.1 us a row.
TEST(rates_go_with_the_gpu)
{
    const char *const overrides[] = {OWN_GPU, GEMM_TIMES, NULL};
    gpu_times own = times_on(overrides, 1e15, 4e12);
    gpu_times slow = times_on(overrides, 5e14, 4e12);
    gpu_times thin = times_on(overrides, 1e15, 1e12);
    assert_close(own.gemm_s, 2.0 * 4096.0 * 4096.0 * 4096.0 / FLAT_GEMM_FLOPS_PER_S, 1e-12);
    assert_close(own.table_s, 42e-6, 1e-9);
    assert_close(own.memory_s, 1e9 / FLAT_MEMORY_BYTES_PER_S, 1e-12);
    assert_close(slow.gemm_s, 2.0 * own.gemm_s, 1e-12);
    assert_close(slow.table_s, 2e-6 + 2.0 * 40e-6, 1e-9);
    assert_close(slow.attention_s, 2.0 * own.attention_s, 1e-12);
    assert_true(slow.memory_s == own.memory_s);
    assert_true(thin.gemm_s == own.gemm_s && thin.attention_s == own.attention_s);
    assert_close(thin.memory_s, 4.0 * own.memory_s, 1e-12);
}

// Which GPU a profile is of, by the rule in profile.h; 0: nobody knows.
TEST(whose_gpu_a_profile_is_of)
{
    static const char carried[] =
        "cluster={\"name\":\"own\",\"peak_tflops\":500,\"memory_gib\":1,\"hbm_gb_per_s\":1,"
        "\"nvlink_gb_per_s\":100,\"nic_gbit_per_s\":1}";
    const struct {
        const char *overrides[3];
        const char *cluster; // its name
        double tflops;
    } cases[] = {
        {{"name=x"}, "mine", 0.0},
        {{"peak_tflops=300"}, "mine", 300.0},
        {{"peak_tflops=300", carried}, "mine", 300.0},
        {{carried, "gpu=H100"}, "h100-8", 500.0},
        {{"gpu=H100 SXM"}, "mine", 989.4},
        {{"gpu=A100 SXM 80GB"}, "h100-8", 312.0},
        {{"name=b200"}, "mine", 2250.0},
        {{"name=gb200", "gpu=B200 SXM"}, "gb200-nvl72", 2500.0}, // whose profile it is
        {{"name=x"}, "a100-8", 312.0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *overrides[4] = {cases[i].overrides[0], cases[i].overrides[1], NULL};
        sp_cluster cluster = plain_cluster;
        snprintf(cluster.name, sizeof cluster.name, "%s", cases[i].cluster);
        cluster.peak_flops_per_s = 1e14;
        flat_profile_load(overrides, &profile);
        sp_profile_join(&profile, &cluster);
        double scale = cases[i].tflops > 0.0 ? 100.0 / cases[i].tflops : 0.0;
        assert_close(profile.compute_scale, scale, 1e-12);
        assert_close(profile.gemm_rate.y[0], FLAT_GEMM_FLOPS_PER_S * (scale > 0.0 ? scale : 1.0),
                     1e-12);
        char lines[SP_PROFILE_LINES][SP_PROFILE_LINE];
        int count = sp_profile_lines(&profile, &cluster, &(sp_stack){.name = "ours"}, lines);
        const char *told = scale > 0.0 ? "scaled by" : "nothing says which GPU profile x is of";
        bool found = false;
        for (int l = 0; l < count; l++) {
            found = found || strstr(lines[l], told) != NULL;
        }
        assert_true(found);
        sp_profile_fini(&profile);
    }
}

// Both rates in one line.
TEST(scales_are_said_together)
{
    const char *const overrides[] = {OWN_GPU, NULL};
    sp_cluster cluster = plain_cluster;
    char lines[SP_PROFILE_LINES][SP_PROFILE_LINE];
    cluster.peak_flops_per_s = 5e14;
    cluster.hbm_bytes_per_s = 1e12;
    flat_profile_load(overrides, &profile);
    sp_profile_join(&profile, &cluster);
    int count = sp_profile_lines(&profile, &cluster, &(sp_stack){.name = "ours"}, lines);
    int told = 0;
    for (int i = 0; i < count; i++) {
        bool compute = strstr(lines[i], " by 0.5: matrix products") != NULL;
        assert_true(compute == (strstr(lines[i], " by 0.25: memory-bound work") != NULL));
        told += compute;
    }
    assert_int_equal(told, 1);
    sp_profile_fini(&profile);
}

// The last bit of a figure that was written with other units is no other GPU.
TEST(rounded_figures_scale_nothing)
{
    const char *const overrides[] = {OWN_GPU, NULL};
    gpu_times own = times_on(overrides, 1e15, 4e12);
    gpu_times rounded = times_on(overrides, 1e15 * (1.0 + 1e-15), 4e12 * (1.0 - 1e-15));
    assert_memory_equal(&own, &rounded, sizeof own);
}

// Every built-in cluster has the rates of its own profile as its file has them.
TEST(own_clusters_scale_nothing)
{
    for (int i = 0; i < sp_cluster_builtin_count(); i++) {
        sp_cluster cluster;
        must_succeed(sp_cluster_builtin(sp_cluster_builtin_name(i), &cluster, ERR));
        must_succeed(sp_profile_load(cluster.profile, &profile, ERR));
        sp_level level = sp_profile_level(&profile);
        sp_profile_join(&profile, &cluster);
        assert_true(profile.compute_scale == 0.0 && profile.memory_scale == 0.0);
        assert_true(level <= sp_profile_level(&profile));
        sp_profile_fini(&profile);
    }
}

// A step on a GPU of another peak, from the text of a scenario to what is told of it: time, level,
// provenance.
TEST(steps_on_another_gpu)
{
    static const char step[] =
        "{'model': 'llama-13b', 'profile': 'h100-burst', 'cluster': {'name': 'h100-8'%s}, "
        "'parallel': {'tp': 8}, 'workload': {'uniform': 4096, 'samples_per_batch': 2}}";
    AUTO(scenario_run) own, other;
    char text[512];
    snprintf(text, sizeof text, step, "");
    run_good(text, &run_verified, &own);
    snprintf(text, sizeof text, step, ", 'peak_tflops': 989.4, 'hbm_gb_per_s': 3350");
    run_good(text, &run_verified, &other);
    assert_true(sp_result_iteration_ms(&other.result) == sp_result_iteration_ms(&own.result));
    assert_true(other.result.level == own.result.level);
    scenario_run_fini(&other);
    snprintf(text, sizeof text, step, ", 'peak_tflops': 494.7");
    run_good(text, &run_verified, &other);
    // Products and attention are most of what is computed.
    double own_ms[SP_TIME_PARTS], other_ms[SP_TIME_PARTS];
    sp_result_time_parts(&own.result, own_ms);
    sp_result_time_parts(&other.result, other_ms);
    double ratio = other_ms[SP_TIME_COMPUTE] / own_ms[SP_TIME_COMPUTE];
    assert_true(ratio > 1.5 && ratio < 2.0);
    assert_close(other_ms[SP_TIME_OPTIMIZER], own_ms[SP_TIME_OPTIMIZER], 1e-9);
    assert_true(other.result.level == SP_LEVEL_ASSUMED);
    assert_close(other.result.compute_scale, 0.5, 1e-12);
    assert_true(other.result.memory_scale == 0.0);
}

// No GPU computes more than its peak: a profile that nothing is known of, on a cluster of little.
TEST(utilisation_above_the_peak_is_an_error)
{
    AUTO(scenario_run) r;
    put_file("fast.json", flat_profile_text);
    must_fail_with(
        run_text("{'model': 'llama-13b', 'profile': './fast.json', 'cluster': {'name': 'mine', "
                 "'peak_tflops': 100, 'memory_gib': 900, 'hbm_gb_per_s': 900, 'nvlink_gb_per_s': "
                 "400, 'nic_gbit_per_s': 400}, 'workload': {'uniform': 4096, 'samples_per_batch': "
                 "2}}",
                 &run_verified, &r, ERR),
        SP_ERR_CONTENT, "cluster.peak_tflops: the predicted step would use ");
    assert_int_equal(remove("fast.json"), 0);
}

// Nor does it move more bytes than its memory or its NVLink carry: the flat profile of no known GPU
// reaches 2000 and 200 GB/s (support/flat_profile.h).
TEST(rates_above_the_card_are_an_error)
{
    static const char text[] =
        "{'model': 'llama-13b', 'profile': './flat.json', 'cluster': {'name': 'mine', "
        "'peak_tflops': 990, 'memory_gib': 900, 'hbm_gb_per_s': %.17g, 'nvlink_gb_per_s': %.17g, "
        "'nic_gbit_per_s': 400}, 'workload': {'uniform': 4096, 'samples_per_batch': 2}}";
    put_file("flat.json", flat_profile_text);
    SCENARIO_RUN(r, json_text(text, 2000.0, 200.0), &run_verified);
    scenario_run_fini(&r);
    must_fail_with(run_text(json_text(text, 1999.0, 200.0), &run_verified, &r, ERR), SP_ERR_CONTENT,
                   "cluster.hbm_gb_per_s: less than what profile flat reaches (memory.gb_per_s): "
                   "expected at least 2000, got 1999");
    scenario_run_fini(&r);
    must_fail_with(run_text(json_text(text, 2000.0, 199.0), &run_verified, &r, ERR), SP_ERR_CONTENT,
                   "cluster.nvlink_gb_per_s: less than what profile flat reaches "
                   "(links.nvlink_gb_per_s): expected at least 200, got 199");
    assert_int_equal(remove("flat.json"), 0);
}

// ---- steps ----

static double step_ms(const char *parallel, const char *detail, double nvlink_gb_per_s)
{
    SCENARIO_RUN(r,
                 json_text(TINY_MODEL
                           "'profile': 'linear', 'cluster': {'name': 'h800-8', "
                           "'nvlink_gb_per_s': %.17g}, 'parallel': %s, "
                           "'network': {'detail': '%s'}, 'stack': {'cp_overlap': "
                           "'blocking'}, 'workload': {'lengths': [4096, 4096, 4096, 4096], "
                           "'context': 4096, 'batches': 1}}",
                           nvlink_gb_per_s, parallel, detail),
                 &run_verified);
    return sp_result_iteration_ms(&r.result);
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
