// The sections of a profile that hold constants of models: units, defaults, limits, levels.
#include "tests/support/flat_profile.h"
#include "tests/support/test_main.h"

#include "sim/cost/profile.h"

#define SOURCE ",\"level\":\"fitted\",\"source\":\"s\"}"

// The flat profile with one section is refused for one reason, said at `path`.
static void refused(const char *override, const char *path)
{
    const char *overrides[] = {override, NULL};
    sp_profile profile;
    char prefix[96];
    sp_error_clear(ERR);
    assert_int_equal(flat_profile(overrides, &profile, ERR), SP_ERR_CONTENT);
    snprintf(prefix, sizeof prefix, "flat: %s: ", path);
    if (ERR->count != 1 || strncmp(ERR->message[0], prefix, strlen(prefix)) != 0) {
        fail_msg("%s: %d errors, first %s", override, ERR->count, ERR->message[0]);
    }
}

TEST(gemm_model_units)
{
    sp_profile profile;
    flat_profile_load(
        (const char *[]){"gemm_model={\"tflops\":273,\"half_rate_k\":64,\"fixed_us\":5,"
                         "\"sms\":108,\"tiles\":[[128,256,1.04],[64,64,0.7]]" SOURCE,
                         NULL},
        &profile);
    assert_close(profile.gemm_model.flops_per_s, 273e12, 1e-12);
    assert_close(profile.gemm_model.half_rate_k, 64.0, 1e-12);
    assert_close(profile.gemm_model.fixed_s, 5e-6, 1e-12);
    assert_int_equal(profile.gemm_model.sms, 108);
    assert_int_equal(profile.gemm_model.tile_count, 2);
    assert_int_equal(profile.gemm_model.tiles[0].m, 128);
    assert_int_equal(profile.gemm_model.tiles[0].n, 256);
    assert_close(profile.gemm_model.tiles[1].efficiency, 0.7, 1e-12);
    assert_int_equal(profile.gemm_model.level, SP_LEVEL_FITTED);
    sp_profile_fini(&profile);
    flat_profile_load((const char *[]){"gemm_model={\"tflops\":273" SOURCE, NULL}, &profile);
    assert_true(profile.gemm_model.half_rate_k == 0.0 && profile.gemm_model.fixed_s == 0.0);
    assert_int_equal(profile.gemm_model.sms, 0);
    assert_int_equal(profile.gemm_model.tile_count, 0);
    sp_profile_fini(&profile);
}

TEST(decode_units)
{
    sp_profile profile;
    flat_profile_load(
        (const char *[]){"decode={\"call_us\":630,\"graph_miss_us\":1500" SOURCE, NULL}, &profile);
    assert_close(profile.decode.call_s, 0.63e-3, 1e-12);
    assert_close(profile.decode.graph_miss_s, 1.5e-3, 1e-12);
    sp_profile_fini(&profile);
    flat_profile_load(NULL, &profile);
    assert_true(profile.decode.call_s == 0.0 && profile.decode.graph_miss_s == 0.0);
    sp_profile_fini(&profile);
    refused("decode={\"call_us\":-1" SOURCE, "decode.call_us");
}

TEST(host_units)
{
    sp_profile profile;
    flat_profile_load(
        (const char *[]){"host={\"layer_us\":3160,\"tp_growth\":0.034,\"unfused_softmax_us\":495,"
                         "\"head_us\":3500,\"overlap_power\":3.9,\"unit_us\":2000,"
                         "\"iteration_us\":1000,\"cp_step_us\":700" SOURCE,
                         NULL},
        &profile);
    assert_close(profile.host.layer_s, 3.16e-3, 1e-12);
    assert_close(profile.host.tp_growth, 0.034, 1e-12);
    assert_close(profile.host.softmax_s, 0.495e-3, 1e-12);
    assert_close(profile.host.head_s, 3.5e-3, 1e-12);
    assert_close(profile.host.overlap_power, 3.9, 1e-12);
    assert_close(profile.host.unit_s, 2e-3, 1e-12);
    assert_close(profile.host.iteration_s, 1e-3, 1e-12);
    assert_close(profile.host.cp_step_s, 0.7e-3, 1e-12);
    sp_profile_fini(&profile);
    flat_profile_load((const char *[]){"host={\"layer_us\":1" SOURCE, NULL}, &profile);
    assert_true(profile.host.tp_growth == 0.0 && profile.host.softmax_s == 0.0 &&
                profile.host.head_s == 0.0 && profile.host.overlap_power == 0.0 &&
                profile.host.unit_s == 0.0 && profile.host.iteration_s == 0.0 &&
                profile.host.cp_step_s == 0.0);
    sp_profile_fini(&profile);
}

TEST(score_loss_and_group_units)
{
    sp_profile profile;
    flat_profile_load(
        (const char *[]){"unfused_attention={\"traffic_factor\":0.56,\"traffic_growth\":1.7,"
                         "\"growth_from_keys\":512,\"growth_to_keys\":4096" SOURCE,
                         "loss={\"bytes_per_logit\":123" SOURCE,
                         "node_collectives={\"latency_us\":39,\"latency_per_doubling_us\":19.4,"
                         "\"between_latency_us\":100,\"gb_per_s\":[[2,194],[4,221],[8,230]]" SOURCE,
                         "links.p2p_gb_per_s=90", "links.p2p_latency_us=200", NULL},
        &profile);
    assert_close(profile.scores.factor, 0.56, 1e-12);
    assert_close(profile.scores.growth, 1.7, 1e-12);
    assert_close(profile.scores.from_keys, 512.0, 1e-12);
    assert_close(profile.scores.to_keys, 4096.0, 1e-12);
    assert_close(profile.loss_bytes_per_logit, 123.0, 1e-12);
    assert_close(profile.groups.latency_s, 39e-6, 1e-12);
    assert_close(profile.groups.doubling_s, 19.4e-6, 1e-12);
    assert_close(profile.groups.between_s, 100e-6, 1e-12);
    assert_int_equal(profile.groups.bytes_per_s.points, 3);
    assert_close(profile.groups.bytes_per_s.x[1], 4.0, 1e-12);
    assert_close(profile.groups.bytes_per_s.y[1], 221e9, 1e-12);
    assert_string_equal(profile.groups.bytes_per_s.source, "s");
    assert_close(profile.p2p_bytes_per_s, 90e9, 1e-12);
    assert_close(profile.p2p_latency_s, 200e-6, 1e-12);
    sp_profile_fini(&profile);
    flat_profile_load((const char *[]){"unfused_attention={\"level\":\"fitted\",\"source\":\"s\"}",
                                       "node_collectives={\"gb_per_s\":[[2,194]]" SOURCE, NULL},
                      &profile);
    assert_close(profile.scores.factor, 1.0, 1e-12);
    assert_true(profile.scores.growth == 0.0);
    assert_close(profile.scores.from_keys, 1024.0, 1e-12);
    assert_close(profile.scores.to_keys, 2048.0, 1e-12);
    assert_true(profile.groups.latency_s == 0.0 && profile.groups.doubling_s == 0.0 &&
                profile.groups.between_s == 0.0);
    sp_profile_fini(&profile);
}

// Without the sections there is no model: nothing is launched, weighed or stated, and pipeline
// transfers run as NVLink does.
TEST(absent_sections)
{
    sp_profile profile;
    flat_profile_load(NULL, &profile);
    assert_true(profile.gemm_model.flops_per_s == 0.0);
    assert_true(profile.host.layer_s == 0.0 && profile.host.iteration_s == 0.0);
    assert_true(profile.scores.factor == 0.0);
    assert_true(profile.loss_bytes_per_logit == 0.0);
    assert_int_equal(profile.groups.bytes_per_s.points, 0);
    assert_close(profile.p2p_bytes_per_s, FLAT_NVLINK_BYTES_PER_S, 1e-12);
    assert_close(profile.p2p_latency_s, FLAT_NVLINK_LATENCY_S, 1e-12);
    assert_string_equal(profile.stack.name, "");
    sp_profile_fini(&profile);
}

TEST(gemm_model_in_place_of_the_curve)
{
    sp_profile profile;
    flat_profile_load((const char *[]){"gemm_rate=null", "gemm_model={\"tflops\":100" SOURCE, NULL},
                      &profile);
    assert_int_equal(profile.gemm_rate.points, 0);
    assert_close(profile.gemm_model.flops_per_s, 1e14, 1e-12);
    sp_profile_fini(&profile);
    const char *neither[] = {"gemm_rate=null", NULL};
    must_fail_with(flat_profile(neither, &profile, ERR), SP_ERR_CONTENT, "'gemm_rate' is missing");
    assert_int_equal(ERR->count, 1);
}

TEST(scale_multiplies_rates)
{
    sp_profile profile;
    flat_profile_load((const char *[]){"gemm_rate.scale=0.5", "attention.scale=0.25",
                                       "attention.forward_causal.scale=2", NULL},
                      &profile);
    assert_close(profile.gemm_rate.y[0], 0.5 * FLAT_GEMM_FLOPS_PER_S, 1e-12);
    assert_close(profile.attention_forward_causal.y[0], 2 * 0.25 * FLAT_FORWARD_FLOPS_PER_S, 1e-12);
    assert_close(profile.attention_backward_causal.y[0], 0.25 * FLAT_BACKWARD_FLOPS_PER_S, 1e-12);
    sp_profile_fini(&profile);
    refused("gemm_rate.scale=0", "gemm_rate.scale");
    refused("attention.scale=1001", "attention.scale");
    refused("attention.scale=-1", "attention.scale");
}

TEST(fit_is_for_people)
{
    sp_profile profile;
    flat_profile_load((const char *[]){"fit={\"rows\":397,\"folds\":[1,2],\"note\":\"any\"}", NULL},
                      &profile);
    assert_int_equal(sp_profile_level(&profile), SP_LEVEL_ASSUMED);
    sp_profile_fini(&profile);
}

TEST(wrong_gemm_models)
{
    refused("gemm_model={\"level\":\"fitted\",\"source\":\"s\"}", "gemm_model");
    refused("gemm_model={\"tflops\":1,\"level\":\"fitted\"}", "gemm_model");
    refused("gemm_model={\"tflops\":1,\"source\":\"s\"}", "gemm_model");
    refused("gemm_model={\"tflops\":0" SOURCE, "gemm_model.tflops");
    refused("gemm_model={\"tflops\":\"1\"" SOURCE, "gemm_model.tflops");
    refused("gemm_model={\"tflops\":1,\"half_rate_k\":-1" SOURCE, "gemm_model.half_rate_k");
    refused("gemm_model={\"tflops\":1,\"half_rate_k\":1e7" SOURCE, "gemm_model.half_rate_k");
    refused("gemm_model={\"tflops\":1,\"fixed_us\":-1" SOURCE, "gemm_model.fixed_us");
    refused("gemm_model={\"tflops\":1,\"sms\":-1" SOURCE, "gemm_model.sms");
    refused("gemm_model={\"tflops\":1,\"sms\":4097,\"tiles\":[[1,1,1]]" SOURCE, "gemm_model.sms");
    refused("gemm_model={\"tflops\":1,\"sms\":1.5" SOURCE, "gemm_model.sms");
    refused("gemm_model={\"tflops\":1,\"tile\":[]" SOURCE, "gemm_model");
    static const char *const tiles[] = {
        "7",
        "{}",
        "[7]",
        "[[128,128]]",
        "[[128,128,1,1]]",
        "[[0,128,1]]",
        "[[128,0,1]]",
        "[[1,1,0]]",
        "[[1,1,11]]",
        "[[4097,1,1]]",
        "[[1.5,1,1]]",
        "[[1,1,\"1\"]]",
        "[[1,\"1\",1]]",
        "[[1,1,1],[1,1,1],[1,1,1],[1,1,1],[1,1,1],[1,1,1],[1,1,1],[1,1,1],[1,1,1]]"};
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "gemm_model={\"tflops\":1,\"tiles\":%s" SOURCE, tiles[i]);
        refused(text, "gemm_model.tiles");
    }
    refused("gemm_model={\"tflops\":1,\"sms\":8" SOURCE, "gemm_model.tiles");
}

TEST(wrong_constants)
{
    static const char *const host[] = {"layer_us",      "tp_growth", "unfused_softmax_us",
                                       "head_us",       "unit_us",   "iteration_us",
                                       "overlap_power", "cp_step_us"};
    static const char *const values[] = {"-1", "1e300", "true", "\"3\""};
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++) {
        for (size_t j = 0; j < sizeof values / sizeof values[0]; j++) {
            char text[128], path[64];
            snprintf(text, sizeof text, "host={\"%s\":%s" SOURCE, host[i], values[j]);
            snprintf(path, sizeof path, "host.%s", host[i]);
            refused(text, path);
        }
    }
    // Below one the "norm" would be longer than the sum of the two.
    refused("host={\"overlap_power\":0.5" SOURCE, "host.overlap_power");
    refused("host={\"level\":\"fitted\"}", "host");
    refused("host={\"layers_us\":1" SOURCE, "host");
    refused("unfused_attention={\"traffic_factor\":0" SOURCE, "unfused_attention.traffic_factor");
    refused("unfused_attention={\"traffic_growth\":11" SOURCE, "unfused_attention.traffic_growth");
    refused("unfused_attention={\"growth_from_keys\":0" SOURCE,
            "unfused_attention.growth_from_keys");
    refused("unfused_attention={\"growth_to_keys\":0.5" SOURCE, "unfused_attention.growth_to_keys");
    refused("unfused_attention={\"level\":\"fitted\"}", "unfused_attention");
    refused("loss={\"level\":\"fitted\",\"source\":\"s\"}", "loss");
    refused("loss={\"bytes_per_logit\":0" SOURCE, "loss.bytes_per_logit");
    refused("loss={\"bytes_per_logit\":1e7" SOURCE, "loss.bytes_per_logit");
    refused("links.p2p_gb_per_s=0", "links.p2p_gb_per_s");
    refused("links.p2p_latency_us=-1", "links.p2p_latency_us");
}

TEST(wrong_groups)
{
    refused("node_collectives={\"latency_us\":39" SOURCE, "node_collectives");
    refused("node_collectives={\"gb_per_s\":[]" SOURCE, "node_collectives.gb_per_s");
    refused("node_collectives={\"gb_per_s\":[[2,0]]" SOURCE, "node_collectives.gb_per_s[0]");
    refused("node_collectives={\"gb_per_s\":[[2,1],[2,2]]" SOURCE, "node_collectives.gb_per_s[1]");
    refused("node_collectives={\"gb_per_s\":[[2,1]],\"latency_us\":-1" SOURCE,
            "node_collectives.latency_us");
    refused("node_collectives={\"gb_per_s\":[[2,1]],\"latency_per_doubling_us\":-1" SOURCE,
            "node_collectives.latency_per_doubling_us");
    refused("node_collectives={\"gb_per_s\":[[2,1]],\"between_latency_us\":1e300" SOURCE,
            "node_collectives.between_latency_us");
    refused("node_collectives={\"gb_per_s\":[[2,1]],\"level\":\"fitted\"}", "node_collectives");
}

// All other levels measured, one section fitted: the weakest that was used.
TEST(weakest_level_counts_each_section)
{
    static const char *const sections[] = {
        "gemm_model={\"tflops\":1" SOURCE, "host={\"layer_us\":1" SOURCE,
        "unfused_attention={\"traffic_factor\":1" SOURCE, "loss={\"bytes_per_logit\":1" SOURCE,
        "node_collectives={\"gb_per_s\":[[2,1]]" SOURCE};
    const char *overrides[] = {"gemm_rate.level=measured",
                               "attention.forward_causal.level=measured",
                               "attention.backward_causal.level=measured",
                               "memory.level=measured",
                               "kernel.level=measured",
                               "links.level=measured",
                               NULL,
                               NULL};
    sp_profile profile;
    flat_profile_load(overrides, &profile);
    assert_int_equal(sp_profile_level(&profile), SP_LEVEL_MEASURED);
    sp_profile_fini(&profile);
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        overrides[6] = sections[i];
        flat_profile_load(overrides, &profile);
        assert_int_equal(sp_profile_level(&profile), SP_LEVEL_FITTED);
        sp_profile_fini(&profile);
    }
}
