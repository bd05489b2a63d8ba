#include "sim/model/cluster.h"
#include "tests/support/test_main.h"

static sp_cluster builtin(const char *name)
{
    sp_cluster cluster;
    assert_int_equal(sp_cluster_builtin(name, &cluster, NULL), SP_OK);
    return cluster;
}

// Data sheets: dense bf16 rate, memory rate, NVLink in one direction (half of the quoted total) and
// the NICs of a node in Gb/s.
TEST(presets_carry_data_sheet_values)
{
    const struct {
        const char *name, *profile;
        double tflops, hbm_gb, nvlink_gb, node_gbit;
    } presets[] = {
        {"a100-8", "a100", 312, 2039, 300, 800},
        {"a100-selene", "a100", 312, 2039, 300, 1600},
        {"a800-8", "a100", 312, 2039, 200, 800},
        {"h800-8", "h800", 989.4, 3350, 200, 3200},
        {"h800-8x100g", "h800", 989.4, 3350, 200, 800},
        {"h100-8", "h100", 989.4, 3350, 450, 3200},
        {"h100-500w-8", "h100-500w", 989.4, 2400, 450, 3200},
        {"h200-8", "h200", 989.4, 4800, 450, 3200},
        {"b200-8", "b200", 2250, 8000, 900, 3200},
        {"h100-8-efa", "h100", 989.4, 3350, 450, 3200},
    };
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        sp_cluster c = builtin(presets[i].name);
        assert_string_equal(c.name, presets[i].name);
        assert_string_equal(c.profile, presets[i].profile);
        assert_true(c.peak_flops_per_s == presets[i].tflops * 1e12);
        assert_true(c.hbm_bytes_per_s == presets[i].hbm_gb * 1e9);
        assert_true(c.nvlink_bytes_per_s == presets[i].nvlink_gb * 1e9);
        assert_true(c.nics_per_node * c.nic_bytes_per_s * 8.0 == presets[i].node_gbit * 1e9);
        assert_int_equal(c.gpus_per_node, 8);
        assert_int_equal(c.nodes, 0);
    }
    assert_int_equal(builtin("h800-8").memory_bytes, 80 * INT64_C(1073741824));
    assert_int_equal(builtin("h200-8").memory_bytes, 143771 * INT64_C(1048576));
    assert_int_equal(builtin("h200-8").reserve_bytes, SP_GPU_RESERVE_BYTES);
    assert_int_equal(builtin("host").reserve_bytes, 0);
    assert_int_equal(builtin("gb200-nvl72").gpus_per_node, 64);
    assert_string_equal(builtin("host").profile, "host");
    assert_int_equal(sp_cluster_builtin_count(), 12);
    for (int i = 0; i < sp_cluster_builtin_count(); i++) {
        sp_cluster c = builtin(sp_cluster_builtin_name(i));
        assert_int_equal(c.nvls, strchr("HBG", c.gpu[0]) != NULL);
    }
    assert_null(sp_cluster_builtin_name(12));
}

TEST(unknown_cluster_gets_the_nearest)
{
    sp_cluster cluster;
    must_fail_with(sp_cluster_builtin("h80-8", &cluster, ERR), SP_ERR_CONTENT,
                   "unknown cluster 'h80-8' (did you mean 'h");
}

static void from_text(const char *text, sp_cluster *cluster, sp_error *err)
{
    json_auto_t *root = NULL;
    sp_error_clear(err);
    must_succeed(sp_json_read_text(text, strlen(text), "s.json", &root, ERR));
    sp_object object;
    sp_object_begin(&object, root, "s.json", "cluster", err);
    sp_cluster_from_object(&object, cluster);
}

TEST(object_units)
{
    sp_cluster c;
    from_text("{\"name\":\"mine\",\"gpu\":\"X1\",\"profile\":\"h100\",\"peak_tflops\":100,"
              "\"memory_gib\":1.5,\"hbm_gb_per_s\":1000,\"gpus_per_node\":4,\"nodes\":3,"
              "\"nvlink_gb_per_s\":25,\"nics_per_node\":2,\"nic_gbit_per_s\":400,"
              "\"source\":\"bench\"}",
              &c, ERR);
    assert_int_equal(ERR->count, 0);
    assert_string_equal(c.name, "mine");
    assert_string_equal(c.gpu, "X1");
    assert_string_equal(c.profile, "h100");
    assert_string_equal(c.source, "bench");
    assert_true(c.peak_flops_per_s == 1e14);
    assert_int_equal(c.memory_bytes, 1610612736);
    assert_true(c.hbm_bytes_per_s == 1e12 && c.nvlink_bytes_per_s == 25e9);
    assert_true(c.nic_bytes_per_s == 50e9); // 400 Gbit/s
    assert_int_equal(c.gpus_per_node, 4);
    assert_int_equal(c.nics_per_node, 2);
    assert_int_equal(c.nodes, 3);

    from_text("{\"name\":\"h800-8\",\"nics_per_node\":4}", &c, ERR);
    assert_int_equal(ERR->count, 0);
    assert_string_equal(c.gpu, "H800");
    assert_int_equal(c.nics_per_node, 4);
    assert_true(c.nic_bytes_per_s == 50e9);
}

TEST(a_fabric_is_read_and_the_rest_taken_from_the_built_in_cluster)
{
    sp_cluster c;
    from_text("{\"name\":\"h100-8\",\"fabric\":{\"rails\":4,\"oversubscription\":2.5,"
              "\"spine_latency_us\":1.5,\"nic_affinity\":\"round-robin\",\"pxn\":false}}",
              &c, ERR);
    assert_int_equal(ERR->count, 0);
    assert_true(c.fabric.given && !c.fabric.pxn);
    assert_int_equal(c.fabric.rails, 4);
    assert_int_equal(c.fabric.nodes_per_leaf, 32);
    assert_true(c.fabric.oversubscription == 2.5);
    assert_close(c.fabric.spine_latency_s, 1.5e-6, 1e-15);
    assert_int_equal(c.fabric.nic_affinity, SP_NIC_ROUND_ROBIN);

    from_text("{\"name\":\"h100-8\"}", &c, ERR);
    assert_true(!c.fabric.given && c.fabric.pxn);
    assert_int_equal(c.fabric.rails, 8);

    from_text("{\"name\":\"h100-8\",\"fabric\":{\"rail\":4}}", &c, ERR);
    assert_string_equal(ERR->message[0],
                        "s.json: cluster.fabric: unknown key 'rail' (did you mean 'rails'?)");
}

TEST(object_errors)
{
    sp_cluster c;
    from_text("{\"peak_tflops\":-1,\"memory_gb\":80}", &c, ERR);
    assert_int_equal(ERR->status, SP_ERR_CONTENT);
    assert_non_null(strstr(ERR->message[0], "s.json: cluster.peak_tflops: expected a number"));
    assert_string_equal(ERR->message[1], "s.json: cluster: key 'memory_gib' is missing");
    assert_string_equal(ERR->message[ERR->count - 1],
                        "s.json: cluster: unknown key 'memory_gb' (did you mean 'memory_gib'?)");
    assert_int_equal(ERR->count, 6);
}

TEST(fit_settles_the_nodes)
{
    sp_cluster c = builtin("a100-8");
    assert_int_equal(sp_cluster_fit(&c, 17, "s.json", NULL), SP_OK);
    assert_int_equal(c.nodes, 3);
    must_fail(sp_cluster_fit(&c, 16, "s.json", ERR), SP_ERR_CONTENT,
              "s.json: nodes: 3 nodes of 8 GPUs are filled by 24 ranks, "
              "but tp*cp*pp*dp is 16: without parallel.dp, or without nodes, the other follows");
    assert_int_equal(sp_cluster_fit(&c, 24, "s.json", NULL), SP_OK);
}

// Place of a rank along each axis, from the definition: the first axis of the order counts fastest.
static void place_of(const sp_layout *l, int64_t rank, int64_t at[SP_AXES])
{
    for (int i = 0; i < SP_AXES; i++) {
        sp_axis axis = l->order.given ? l->order.axis[i] : (sp_axis)i;
        int sizes[SP_AXES] = {l->tp, l->cp, l->dp, l->pp};
        at[axis] = rank % sizes[axis];
        rank /= sizes[axis];
    }
}

static void shuffle_order(sp_prng *prng, sp_rank_order *order)
{
    *order = (sp_rank_order){true, {SP_AXIS_TP, SP_AXIS_CP, SP_AXIS_DP, SP_AXIS_PP}};
    for (uint64_t i = SP_AXES - 1; i > 0; i--) {
        uint64_t j = sp_prng_below(prng, i + 1);
        sp_axis other = order->axis[j];
        order->axis[j] = order->axis[i];
        order->axis[i] = other;
    }
}

// The group that `first` belongs to, counted rank by rank from the definition of the rank order.
static sp_group count_group(const sp_cluster *cluster, const sp_layout *l, sp_dimension dimension,
                            int64_t first)
{
    int64_t at[SP_AXES];
    place_of(l, first, at);
    int64_t ranks = sp_layout_ranks(l);
    int64_t nodes = ranks / cluster->gpus_per_node + 1;
    AUTO_FREE int *members = sp_calloc((size_t)nodes, sizeof *members);
    sp_group group = {0, 0, 1 << 30, 0};
    for (int64_t rank = 0; rank < ranks; rank++) {
        int64_t other[SP_AXES];
        place_of(l, rank, other);
        bool same[4];
        for (int i = 0; i < 4; i++) {
            same[i] = at[i] == other[i];
        }
        bool free_axis[4] = {
            dimension == SP_DIM_TP, dimension == SP_DIM_CP || dimension == SP_DIM_DP_CP,
            dimension == SP_DIM_DP || dimension == SP_DIM_DP_CP, dimension == SP_DIM_PP};
        bool in_group = true;
        for (int i = 0; i < 4; i++) {
            in_group = in_group && (free_axis[i] || same[i]);
        }
        if (in_group) {
            members[rank / cluster->gpus_per_node]++;
            group.size++;
        }
    }
    for (int64_t n = 0; n < nodes; n++) {
        if (members[n] > 0) {
            group.nodes++;
            group.least_per_node =
                members[n] < group.least_per_node ? members[n] : group.least_per_node;
            group.most_per_node =
                members[n] > group.most_per_node ? members[n] : group.most_per_node;
        }
    }
    return group;
}

static bool slower(sp_group a, sp_group b)
{
    if ((a.nodes > 1) != (b.nodes > 1)) {
        return a.nodes > 1;
    }
    if (a.least_per_node != b.least_per_node) {
        return a.least_per_node < b.least_per_node;
    }
    return a.nodes != b.nodes ? a.nodes > b.nodes : a.most_per_node > b.most_per_node;
}

TEST_ROUNDS(groups_equal_brute_force, 5, test_draws(800))
{
    const int degrees[] = {1, 2, 3, 4, 5, 6, 8, 12, 16};
    sp_cluster cluster = builtin("a100-8");
    cluster.gpus_per_node = 1 + prng_below(prng, 12);
    sp_layout l = {.chunks = 1, .zero = 1};
    do {
        l.tp = degrees[sp_prng_below(prng, 9)];
        l.cp = degrees[sp_prng_below(prng, 9)];
        l.dp = degrees[sp_prng_below(prng, 9)];
        l.pp = degrees[sp_prng_below(prng, 9)];
    } while (sp_layout_ranks(&l) > 400);
    if (round % 2 == 1) {
        shuffle_order(prng, &l.order);
    }
    for (int d = SP_DIM_TP; d <= SP_DIM_PP; d++) {
        sp_group worst = count_group(&cluster, &l, (sp_dimension)d, 0);
        for (int64_t rank = 1; rank < sp_layout_ranks(&l); rank++) {
            sp_group group = count_group(&cluster, &l, (sp_dimension)d, rank);
            worst = slower(group, worst) ? group : worst;
        }
        sp_group found = sp_cluster_group(&cluster, &l, (sp_dimension)d);
        assert_memory_equal(&found, &worst, sizeof found);
    }
}

// With TP 2 on nodes of 8 the second pipeline rank's three data-parallel ranks start at GPUs 6, 8
// and 10: one member is alone in its node. Four data-parallel ranks fill a node.
TEST(placement_of_data_parallel_groups)
{
    sp_cluster cluster = builtin("h800-8x100g");
    sp_layout three = {.tp = 2, .cp = 1, .pp = 4, .dp = 3, .chunks = 1};
    sp_group group = sp_cluster_group(&cluster, &three, SP_DIM_DP);
    assert_int_equal(group.size, 3);
    assert_int_equal(group.nodes, 2);
    assert_int_equal(group.least_per_node, 1);
    assert_int_equal(group.most_per_node, 2);
    sp_layout four = {.tp = 2, .cp = 1, .pp = 4, .dp = 4, .chunks = 1};
    group = sp_cluster_group(&cluster, &four, SP_DIM_DP);
    assert_int_equal(group.nodes, 1);
    assert_int_equal(group.least_per_node, 4);
}

TEST_ROUNDS(pipeline_neighbours_across_nodes, 6, test_rounds(300))
{
    sp_cluster cluster = builtin("a100-8");
    sp_layout l = {.tp = 1 + prng_below(prng, 4),
                   .cp = 1 + prng_below(prng, 3),
                   .dp = 1 + prng_below(prng, 3),
                   .pp = 1 + prng_below(prng, 8),
                   .chunks = 1};
    if (round % 2 == 1) {
        shuffle_order(prng, &l.order);
    }
    for (int r = 0; r < l.pp; r++) {
        int crosses = 0;
        for (int64_t here = 0; here < sp_layout_ranks(&l); here++) {
            for (int64_t there = 0; there < sp_layout_ranks(&l); there++) {
                int64_t a[SP_AXES], b[SP_AXES];
                place_of(&l, here, a);
                place_of(&l, there, b);
                bool peers = a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == r &&
                             b[3] == (r + 1) % l.pp;
                crosses = crosses ||
                          (peers && here / cluster.gpus_per_node != there / cluster.gpus_per_node);
            }
        }
        assert_int_equal(sp_cluster_pp_crosses_node(&cluster, &l, r), crosses);
    }
}

TEST(orders_of_ranks_are_read_and_written)
{
    sp_prng prng = prng_seeded(7);
    for (int i = 0; i < test_rounds(100); i++) {
        sp_rank_order order, again;
        char text[SP_RANK_ORDER_TEXT];
        shuffle_order(&prng, &order);
        sp_rank_order_write(&order, text);
        assert_true(sp_rank_order_read(text, &again));
        assert_memory_equal(order.axis, again.axis, sizeof order.axis);
    }
    char text[SP_RANK_ORDER_TEXT];
    sp_rank_order_write(&(sp_rank_order){0}, text);
    assert_string_equal(text, "tp-cp-dp-pp");
    // Megatron-LM's default.
    sp_rank_order order;
    assert_true(sp_rank_order_read("tp-cp-ep-dp-pp", &order));
    sp_rank_order_write(&order, text);
    assert_string_equal(text, "tp-cp-dp-pp");
    const char *const wrong[] = {"",
                                 "tp",
                                 "tp-cp-dp",
                                 "tp-cp-dp-dp",
                                 "tp-cp-dp-pp-",
                                 "tp-cp-dp-pp2",
                                 "tp,cp,dp,pp",
                                 "tp-cp-dp-ep",
                                 "tp-ep-cp-ep-dp-pp"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(sp_rank_order_read(wrong[i], &(sp_rank_order){0}));
    }
}
