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
    must_fail_with(flat_profile(overrides, &profile, ERR), SP_ERR_CONTENT, "");
    snprintf(prefix, sizeof prefix, "flat: %s: ", path);
    must_hold(ERR->count == 1 && strncmp(ERR->message[0], prefix, strlen(prefix)) == 0,
              "%s: %d errors, first %s", override, ERR->count, ERR->message[0]);
}

// A number of a section as a file has it and as the profile does.
typedef struct number {
    const char *section, *key;
    const char *value;
    size_t offset; // of a double in the profile
    double expected, absent;
} number;

#define NUMBER(section, key, value, field, expected, absent)               \
    {                                                                      \
        section, key, value, offsetof(sp_profile, field), expected, absent \
    }

// Numbers that a section must have beside the one in question.
static const char *required_of(const char *section)
{
    return strcmp(section, "gemm_model") == 0         ? "\"tflops\":273,"
           : strcmp(section, "fp8_gemm") == 0         ? "\"tflops\":1310,"
           : strcmp(section, "node_collectives") == 0 ? "\"gb_per_s\":[[2,194]],"
                                                      : "";
}

// The flat profile with this section in which one number stands, or none.
static double read_number(const number *n, bool given)
{
    char text[256];
    if (given) {
        snprintf(text, sizeof text, "%s={%s\"%s\":%s" SOURCE, n->section, required_of(n->section),
                 n->key, n->value);
    } else {
        snprintf(text, sizeof text, "%s={%s\"level\":\"fitted\",\"source\":\"s\"}", n->section,
                 required_of(n->section));
    }
    AUTO(sp_profile) profile = flat_profile_of((const char *[]){text, NULL});
    double value;
    memcpy(&value, (const char *)&profile + n->offset, sizeof value);
    return value;
}

// Absent numbers have no effect.
TEST(units_and_defaults)
{
    static const number numbers[] = {
        NUMBER("gemm_model", "half_rate_k", "64", gemm_model.half_rate_k, 64, 0),
        NUMBER("gemm_model", "fixed_us", "5", gemm_model.fixed_s, 5e-6, 0),
        NUMBER("fp8_gemm", "half_rows", "70", fp8.half_rows, 70, 0),
        NUMBER("fp8_gemm", "half_rate_k", "770", fp8.half_rate_k, 770, 0),
        NUMBER("fp8_gemm", "block_share", "0.8", fp8.block_share, 0.8, 0),
        NUMBER("latent_attention", "forward_share", "0.9", latent.forward_share, 0.9, 0),
        NUMBER("latent_attention", "backward_share", "0.8", latent.backward_share, 0.8, 0),
        NUMBER("flash_attention_2", "forward_share", "0.55", flash_2.forward_share, 0.55, 0),
        NUMBER("flash_attention_2", "backward_share", "0.57", flash_2.backward_share, 0.57, 0),
        NUMBER("decode", "call_us", "630", decode.call_s, 0.63e-3, 0),
        NUMBER("decode", "graph_miss_us", "1500", decode.graph_miss_s, 1.5e-3, 0),
        NUMBER("host", "layer_us", "3160", host.layer_s, 3.16e-3, 0),
        NUMBER("host", "tp_growth", "0.034", host.tp_growth, 0.034, 0),
        NUMBER("host", "unfused_softmax_us", "495", host.softmax_s, 0.495e-3, 0),
        NUMBER("host", "head_us", "3500", host.head_s, 3.5e-3, 0),
        NUMBER("host", "overlap_power", "3.9", host.overlap_power, 3.9, 0),
        NUMBER("host", "unit_us", "2000", host.unit_s, 2e-3, 0),
        NUMBER("host", "iteration_us", "1000", host.iteration_s, 1e-3, 0),
        NUMBER("host", "cp_step_us", "700", host.cp_step_s, 0.7e-3, 0),
        NUMBER("unfused_attention", "traffic_factor", "0.56", scores.factor, 0.56, 1),
        NUMBER("unfused_attention", "traffic_growth", "1.7", scores.growth, 1.7, 0),
        NUMBER("unfused_attention", "growth_from_keys", "512", scores.from_keys, 512, 1024),
        NUMBER("unfused_attention", "growth_to_keys", "4096", scores.to_keys, 4096, 2048),
        NUMBER("node_collectives", "latency_us", "39", groups.latency_s, 39e-6, 0),
        NUMBER("node_collectives", "latency_per_doubling_us", "19.4", groups.doubling_s, 19.4e-6,
               0),
        NUMBER("node_collectives", "between_latency_us", "100", groups.between_s, 100e-6, 0)};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const number *n = &numbers[i];
        assert_close(read_number(n, true), n->expected, 1e-12);
        assert_close(read_number(n, false), n->absent, 1e-12);
        // Limits, and numbers that are none.
        static const char *const wrong[] = {"-1", "1e300", "true", "\"3\""};
        for (size_t w = 0; w < sizeof wrong / sizeof wrong[0]; w++) {
            char text[160], path[64];
            snprintf(text, sizeof text, "%s={%s\"%s\":%s" SOURCE, n->section,
                     required_of(n->section), n->key, wrong[w]);
            snprintf(path, sizeof path, "%s.%s", n->section, n->key);
            refused(text, path);
        }
    }
}

TEST(tables_and_integers)
{
    AUTO(sp_profile) profile = flat_profile_of(
        (const char *[]){"gemm_model={\"tflops\":273,\"sms\":108,"
                         "\"tiles\":[[128,256,1.04],[64,64,0.7]]" SOURCE,
                         "loss={\"bytes_per_logit\":123" SOURCE,
                         "node_collectives={\"gb_per_s\":[[2,194],[4,221],[8,230]]" SOURCE,
                         "links.p2p_gb_per_s=90", "links.p2p_latency_us=200", NULL});
    assert_close(profile.gemm_model.flops_per_s, 273e12, 1e-12);
    assert_int_equal(profile.gemm_model.sms, 108);
    assert_int_equal(profile.gemm_model.tile_count, 2);
    assert_int_equal(profile.gemm_model.tiles[0].m, 128);
    assert_int_equal(profile.gemm_model.tiles[0].n, 256);
    assert_close(profile.gemm_model.tiles[1].efficiency, 0.7, 1e-12);
    assert_int_equal(profile.gemm_model.level, SP_LEVEL_FITTED);
    assert_close(profile.loss_bytes_per_logit, 123.0, 1e-12);
    assert_int_equal(profile.groups.bytes_per_s.points, 3);
    assert_close(profile.groups.bytes_per_s.x[1], 4.0, 1e-12);
    assert_close(profile.groups.bytes_per_s.y[1], 221e9, 1e-12);
    assert_string_equal(profile.groups.bytes_per_s.source, "s");
    assert_close(profile.p2p_bytes_per_s, 90e9, 1e-12);
    assert_close(profile.p2p_latency_s, 200e-6, 1e-12);
}

// Without the sections there is no model: nothing is launched, weighed or stated, and pipeline
// transfers run as NVLink does.
TEST(absent_sections)
{
    AUTO(sp_profile) profile = flat_profile_of(NULL);
    assert_true(profile.gemm_model.flops_per_s == 0.0);
    assert_true(profile.host.layer_s == 0.0 && profile.host.iteration_s == 0.0);
    assert_true(profile.scores.factor == 0.0);
    assert_true(profile.loss_bytes_per_logit == 0.0);
    assert_int_equal(profile.groups.bytes_per_s.points, 0);
    assert_close(profile.p2p_bytes_per_s, FLAT_NVLINK_BYTES_PER_S, 1e-12);
    assert_close(profile.p2p_latency_s, FLAT_NVLINK_LATENCY_S, 1e-12);
    assert_string_equal(profile.stack.name, "");
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
    AUTO(sp_profile) profile = flat_profile_of((const char *[]){
        "gemm_rate.scale=0.5", "attention.scale=0.25", "attention.forward_causal.scale=2", NULL});
    assert_close(profile.gemm_rate.y[0], 0.5 * FLAT_GEMM_FLOPS_PER_S, 1e-12);
    assert_close(profile.attention[0][SP_PAIRS_CAUSAL].y[0], 2 * 0.25 * FLAT_FORWARD_FLOPS_PER_S,
                 1e-12);
    assert_close(profile.attention[1][SP_PAIRS_CAUSAL].y[0], 0.25 * FLAT_BACKWARD_FLOPS_PER_S,
                 1e-12);
    refused("gemm_rate.scale=0", "gemm_rate.scale");
    refused("attention.scale=1001", "attention.scale");
    refused("attention.scale=-1", "attention.scale");
}

TEST(fit_is_for_people)
{
    AUTO(sp_profile) profile = flat_profile_of(
        (const char *[]){"fit={\"rows\":397,\"folds\":[1,2],\"note\":\"any\"}", NULL});
    assert_int_equal(sp_profile_level(&profile), SP_LEVEL_ASSUMED);
}

TEST(wrong_sections)
{
    static const char *const wrong[][2] = {
        {"gemm_model={\"level\":\"fitted\",\"source\":\"s\"}", "gemm_model"},
        {"gemm_model={\"tflops\":1,\"level\":\"fitted\"}", "gemm_model"},
        {"gemm_model={\"tflops\":1,\"source\":\"s\"}", "gemm_model"},
        {"gemm_model={\"tflops\":0" SOURCE, "gemm_model.tflops"},
        {"gemm_model={\"tflops\":1,\"half_rate_k\":1e7" SOURCE, "gemm_model.half_rate_k"},
        {"gemm_model={\"tflops\":1,\"sms\":4097,\"tiles\":[[1,1,1]]" SOURCE, "gemm_model.sms"},
        {"gemm_model={\"tflops\":1,\"sms\":1.5" SOURCE, "gemm_model.sms"},
        {"gemm_model={\"tflops\":1,\"tile\":[]" SOURCE, "gemm_model"},
        {"gemm_model={\"tflops\":1,\"sms\":8" SOURCE, "gemm_model.tiles"},
        {"grouped_gemm={\"half_rows\":230" SOURCE, "grouped_gemm.half_rows"}, // no gemm_model
        {"fp8_gemm={\"half_rate_k\":770" SOURCE, "fp8_gemm"},
        {"fp8_gemm={\"tflops\":1310,\"transposes\":2" SOURCE, "fp8_gemm.transposes"},
        {"latent_attention={\"forward_share\":11" SOURCE, "latent_attention.forward_share"},
        {"flash_attention_2={\"forward_share\":0" SOURCE, "flash_attention_2.forward_share"},
        // Below one the "norm" would be longer than the sum of the two.
        {"host={\"overlap_power\":0.5" SOURCE, "host.overlap_power"},
        {"host={\"level\":\"fitted\"}", "host"},
        {"host={\"layers_us\":1" SOURCE, "host"},
        {"unfused_attention={\"traffic_factor\":0" SOURCE, "unfused_attention.traffic_factor"},
        {"unfused_attention={\"growth_from_keys\":0" SOURCE, "unfused_attention.growth_from_keys"},
        {"unfused_attention={\"level\":\"fitted\"}", "unfused_attention"},
        {"loss={\"level\":\"fitted\",\"source\":\"s\"}", "loss"},
        {"loss={\"bytes_per_logit\":0" SOURCE, "loss.bytes_per_logit"},
        {"links.p2p_gb_per_s=0", "links.p2p_gb_per_s"},
        {"links.p2p_latency_us=-1", "links.p2p_latency_us"},
        {"node_collectives={\"latency_us\":39" SOURCE, "node_collectives"},
        {"node_collectives={\"gb_per_s\":[]" SOURCE, "node_collectives.gb_per_s"},
        {"node_collectives={\"gb_per_s\":[[2,0]]" SOURCE, "node_collectives.gb_per_s[0]"},
        {"node_collectives={\"gb_per_s\":[[2,1],[2,2]]" SOURCE, "node_collectives.gb_per_s[1]"},
        {"node_collectives={\"gb_per_s\":[[2,1]],\"level\":\"fitted\"}", "node_collectives"}};
    static const char *const tiles[] = {
        "7",
        "[7]",
        "[[128,128]]",
        "[[128,128,1,1]]",
        "[[0,128,1]]",
        "[[1,1,11]]",
        "[[4097,1,1]]",
        "[[1.5,1,1]]",
        "[[1,1,\"1\"]]",
        "[[1,1,1],[1,1,1],[1,1,1],[1,1,1],[1,1,1],[1,1,1],[1,1,1],[1,1,1],[1,1,1]]"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        refused(wrong[i][0], wrong[i][1]);
    }
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "gemm_model={\"tflops\":1,\"tiles\":%s" SOURCE, tiles[i]);
        refused(text, "gemm_model.tiles");
    }
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
