// Calibration of the CPU executor: what it writes reads back as a profile of measured numbers, for
// the shapes that the model has, with times that rise with work; what it refuses; memory that runs
// out.
#include "sim/cost/op_time.h"
#include "tests/support/host_run.h"
#include "tests/support/test_main.h"

static json_t *calibrate(const sp_model *model, sp_precision precision)
{
    json_t *document = NULL;
    const sp_calibration_request request = {
        .precision = precision, .seed = 3, .limit_s = 0.05, .model = model};
    AUTO(host_device) device = host_opened();
    must_succeed(sp_backend_calibrate(device.backend, 0, &request, &document, ERR));
    return document;
}

static void read_back(const json_t *document, sp_profile *profile)
{
    must_succeed(sp_profile_from_json(document, "measured", profile, ERR));
}

TEST(is_a_measured_profile)
{
    sp_model models[] = {host_llama(), host_gpt()};
    for (int i = 0; i < 2; i++) {
        AUTO(sp_profile) profile;
        json_auto_t *document = calibrate(&models[i], i == 0 ? SP_FP32 : SP_FP64);
        read_back(document, &profile);
        assert_int_equal(sp_profile_level(&profile), SP_LEVEL_MEASURED);
        assert_string_equal(profile.name, i == 0 ? "host-fp32" : "host-fp64");
        assert_non_null(strstr(profile.gemm_rate.source, i == 0 ? "fp32" : "fp64"));
        assert_non_null(strstr(profile.attention[0][SP_PAIRS_FULL].source, models[i].name));
        assert_true(profile.memory_bytes_per_s > 0.0 && profile.host.layer_s >= 0.0);
        assert_true(profile.optimizer_bytes_per_parameter > 0.0);
        assert_true(profile.attention[0][SP_PAIRS_BLOCK].points > 0);
        assert_true(profile.attention[1][SP_PAIRS_BLOCK].points > 0);
        assert_true(profile.reference_s > 0.0 && profile.reference_drift >= 0.0);
        assert_true(profile.stack.fused_swiglu && profile.stack.timed_accumulation);
    }
}

// Of the model's layers and head: 32 wide, MLP of 48, gate and up in one product, 2 key and value
// heads of 8, a vocabulary of 61.
TEST(products_of_the_model)
{
    static const int64_t shapes[][2] = {{64, 32}, {32, 32}, {96, 32}, {32, 48}, {61, 32}};
    sp_model model = host_llama();
    AUTO(sp_profile) profile;
    json_auto_t *document = calibrate(&model, SP_FP32);
    read_back(document, &profile);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int forward = 0, input = 0, weight = 0;
        for (int t = 0; t < profile.gemm_tables; t++) {
            const sp_gemm_table *table = &profile.gemm[t];
            bool as_is = table->n == shapes[i][0] && table->k == shapes[i][1];
            bool turned = table->n == shapes[i][1] && table->k == shapes[i][0];
            forward += as_is && !table->weight_gradient;
            input += turned && !table->weight_gradient;
            weight += as_is && table->weight_gradient;
        }
        assert_int_equal(forward, 1);
        assert_int_equal(input, 1);
        assert_int_equal(weight, 1);
    }
}

// Two heads of keys and values, an MLP of 48 and four query heads: groups of 2 and 4 ranks cut
// them. A rank of 2 has half of the outputs of QKV and fc1, and half of the inputs of the
// projections behind attention and MLP.
TEST(products_of_a_tensor_parallel_rank)
{
    static const int64_t shapes[][2] = {{32, 32}, {32, 16}, {48, 32}, {32, 24}, {31, 32}};
    sp_model model = host_llama();
    AUTO(sp_profile) profile;
    json_auto_t *document = calibrate(&model, SP_FP32);
    read_back(document, &profile);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int found = 0;
        for (int t = 0; t < profile.gemm_tables; t++) {
            found += profile.gemm[t].n == shapes[i][0] && profile.gemm[t].k == shapes[i][1] &&
                     profile.gemm[t].weight_gradient;
        }
        assert_int_equal(found, 1);
    }
}

// Three kinds over 2, 4 and 8 ranks; no tensor takes longer than a larger one.
TEST(collectives_by_group_size)
{
    sp_model model = host_llama();
    AUTO(sp_profile) profile;
    json_auto_t *document = calibrate(&model, SP_FP64);
    read_back(document, &profile);
    assert_int_equal(profile.collective_tables, 9);
    for (int t = 0; t < profile.collective_tables; t++) {
        const sp_collective_table *table = &profile.collective_times[t];
        assert_true(table->ranks == 2 || table->ranks == 4 || table->ranks == 8);
        assert_true(table->time_s.points > 1 && table->time_s.y[0] > 0.0);
        for (int i = 1; i < table->time_s.points; i++) {
            assert_true(table->time_s.y[i] >= table->time_s.y[i - 1]);
        }
    }
    assert_int_equal(profile.stack.cp_overlap, SP_CP_SLICES);
}

TEST(times_rise)
{
    sp_model model = host_llama();
    AUTO(sp_profile) profile;
    json_auto_t *document = calibrate(&model, SP_FP32);
    read_back(document, &profile);
    const sp_op_timer timer = {.profile = &profile};
    double last[3] = {0.0, 0.0, 0.0};
    for (double tokens = 4.0; tokens <= 4096.0; tokens *= 2.0) {
        const double now[3] = {
            sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, tokens, 96.0, 32.0),
            sp_time_gemm(&timer, SP_GEMM_TOKENS_IN, tokens, 96.0, 32.0),
            sp_time_attention_slice(&timer, 1, tokens, 64.0, HUGE_VAL, 4.0, 8.0)};
        for (int i = 0; i < 3; i++) {
            assert_true(now[i] > 0.0 && now[i] >= last[i]);
            last[i] = now[i];
        }
    }
}

static void count_part(void *context, const json_t *document)
{
    ++*(int *)context;
}

// Before anything is measured.
TEST(refuses)
{
    json_t *document = NULL;
    int parts = 0;
    sp_model models[3] = {host_llama(), host_kinds(), host_llama()};
    models[0].experts = 4;
    models[2].mtp_layers = 1;
    AUTO(host_device) device = host_opened();
    sp_calibration_request request = {.precision = SP_BF16, .limit_s = 0.05};
    must_fail(sp_backend_calibrate(device.backend, 0, &request, &document, ERR), SP_ERR_USAGE,
              "backend 'host' cannot calibrate bf16");
    for (int m = 0; m < 3; m++) {
        request = (sp_calibration_request){.precision = SP_FP32,
                                           .limit_s = 0.05,
                                           .model = &models[m],
                                           .part = count_part,
                                           .part_context = &parts};
        assert_int_equal(sp_backend_calibrate(device.backend, 0, &request, &document, NULL),
                         SP_ERR_CONTENT);
        assert_null(document);
    }
    assert_int_equal(parts, 0);
}
