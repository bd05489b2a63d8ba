// The whole calibration on a fake GPU with a clock (clocked_cuda.h): what is written down must be
// its rates again.
#include "backends/cuda/calibration.h"
#include "sim/cost/profile.h"
#include "tests/gpu/support/clocked_cuda.h"

TEST(tables_hold_what_products_took)
{
    json_auto_t *document = calibrated_in(1);
    check_tables(document, 1);
}

TEST(the_document_is_a_profile_of_those_rates)
{
    AUTO(sp_profile) profile;
    json_auto_t *document = calibrated_in(1);
    must_succeed(sp_profile_from_json(document, "document", &profile, ERR));
    assert_string_equal(profile.name, "fake");
    assert_string_equal(profile.gpu, "Fake SXM");
    assert_close(profile.memory_bytes_per_s, 1e9 * MOVED_PER_NS, 1e-3);
    assert_close(profile.kernel_s, 1e-9 * LAUNCH_NS, 1e-3);
    assert_close(profile.loss_bytes_per_logit, LOSS_BYTES + LOSS_BACKWARD_BYTES, 2e-3);
    assert_close(profile.optimizer_bytes_per_parameter, STEP_BYTES, 1e-3);
    assert_true(profile.nvlink_bytes_per_s == 380e9);
    assert_int_equal(profile.memory_level, SP_LEVEL_MEASURED);
    assert_int_equal(profile.link_level, SP_LEVEL_PUBLISHED);
    assert_close(profile.reference_s, 1e-9 * product_ns(2048, 2048, 2048, false), 1e-3);
    assert_true(profile.reference_drift < 1e-3);
    // All three passes of a cube of 1024, as one rate.
    double seconds =
        1e-9 * (2.0 * product_ns(1024, 1024, 1024, false) + product_ns(1024, 1024, 1024, true));
    double rate = 3.0 * 2.0 * 1024.0 * 1024.0 * 1024.0 / seconds;
    int last = profile.gemm_rate.points - 1;
    assert_true(profile.gemm_rate.x[last] == 1024.0);
    assert_close(profile.gemm_rate.y[last], rate, 2e-3);
}

// ---- attention, by kernels ----

// Both curves are one rate: pairs behind a context are what they take beyond the causal ones.
TEST(attention_has_the_curves_of_what_computes_it)
{
    static const char *const names[] = {"forward_causal", "forward_full", "backward_causal",
                                        "backward_full"};
    clocked.attends = true;
    json_auto_t *document = calibrated_in(1);
    clocked.attends = false;
    const json_t *section = json_object_get(document, "attention");
    for (int k = 0; k < 4; k++) {
        const json_t *curve = json_object_get(section, names[k]);
        const json_t *points = json_object_get(curve, "points");
        assert_string_equal(json_string_value(json_object_get(curve, "level")), "measured");
        assert_int_equal(json_array_size(points), 2); // 512 and 1024
        for (size_t i = 0; i < 2; i++) {
            const json_t *point = json_array_get(points, i);
            double rate = k < 2 ? ATTEND_FLOPS_PER_NS : ATTEND_BACKWARD_FLOPS_PER_NS;
            assert_int_equal(json_integer_value(json_array_get(point, 0)), 512 << i);
            // Times are whole nanoseconds, and those of the shortest are few.
            assert_close(json_number_value(json_array_get(point, 1)), 1e-3 * rate, 5e-3);
        }
    }
}

// Without cuDNN and kernels the known curves stay.
TEST(attention_that_is_not_timed_is_the_known_one)
{
    json_auto_t *base = known();
    json_auto_t *document = calibrated_in(1);
    assert_true(
        json_equal(json_object_get(document, "attention"), json_object_get(base, "attention")));
}

// ---- what is written after each part ----

typedef struct parts {
    int count, profiles;
    bool has_products[8];
} parts;

static void take_part(void *context, const json_t *document)
{
    parts *p = context;
    size_t i;
    const json_t *table;
    p->has_products[p->count++] = json_object_get(document, "gemm") != NULL;
    json_array_foreach (json_object_get(json_object_get(document, "gemm_rate"), "points"), i,
                        table) {
        p->profiles += i == 0;
    }
}

TEST(each_part_leaves_a_document)
{
    parts p = {.count = 0};
    const sp_calibration_request request = {.part = take_part, .part_context = &p};
    clocked.request = &request;
    json_auto_t *document = calibrated_in(1);
    clocked.request = NULL;
    assert_int_equal(p.count, 5); // copies, elements, products, attention and the rest
    assert_false(p.has_products[1]);
    assert_true(p.has_products[2]);
    assert_int_equal(p.profiles, 3);
}

// ---- kernels bound by memory ----

TEST(kernels_stand_beside_copies_of_as_many_bytes)
{
    size_t i;
    const json_t *note;
    int found = 0;
    json_auto_t *document = calibrated_in(1);
    const json_t *fit = json_object_get(document, "fit");
    assert_close(json_number_value(json_object_get(fit, "copy_gb_per_s")), 2.0 * BYTES_PER_NS,
                 1e-3);
    const json_t *notes = json_object_get(fit, "elements");
    assert_int_equal(json_array_size(notes), 2 * SP_I_CUDA_ELEMENTS); // 128 and 512 tokens
    json_array_foreach (notes, i, note) {
        const char *name = json_string_value(json_object_get(note, "name"));
        if (strcmp(name, "residual_add") == 0 &&
            json_integer_value(json_object_get(note, "tokens")) == 512) {
            // Two tensors read, one written: 512 x 256 of 2 bytes; half of that goes each way.
            double bytes = 3.0 * 512 * 256 * 2;
            double ns = LAUNCH_NS + bytes / MOVED_PER_NS;
            assert_close(json_number_value(json_object_get(note, "bytes")), bytes, 0.0);
            assert_close(json_number_value(json_object_get(note, "us")), 1e-3 * ns, 1e-3);
            assert_close(json_number_value(json_object_get(note, "gb_per_s")), bytes / ns, 1e-3);
            assert_close(json_number_value(json_object_get(note, "copy_ratio")),
                         0.5 * bytes / BYTES_PER_NS / ns, 2e-2);
            found++;
        }
    }
    assert_int_equal(found, 1);
}

// By Cramer's rule: t1 = a + 2 b, t2 = 3 a + 4 b has a = t2 - 2 t1, b = (3 t1 - t2) / 2.
TEST(a_fit_finds_the_floor_and_the_rate)
{
    sp_i_cuda_fit_sums sums = {0};
    sp_i_cuda_fit fit;
    assert_false(sp_i_cuda_fit_solve(&sums, &fit));
    double t1 = 5e-6;
    double t2 = 11e-6;
    sp_i_cuda_fit_add(&sums, 3, 2, 1, t1);
    assert_false(sp_i_cuda_fit_solve(&sums, &fit)); // two unknowns, one time
    sp_i_cuda_fit_add(&sums, 1, 4, 3, t2);
    assert_true(sp_i_cuda_fit_solve(&sums, &fit));
    assert_close(fit.kernel_s, 1e-6, 1e-9);
    assert_close(fit.bytes_per_s, 1 / 2e-6, 1e-9);
}

// Kernels that get faster by more launches stand for no floor, and the rate alone is fitted: with
// errors a k_i + b_i u - 1, u is the least squares' (sum b (1 - a k)) / sum b^2.
TEST(a_floor_that_cannot_be_seen_is_a_tenth_of_a_microsecond)
{
    sp_i_cuda_fit_sums sums = {0};
    sp_i_cuda_fit fit;
    sp_i_cuda_fit_add(&sums, 1, 100, 1, 100e-6);
    sp_i_cuda_fit_add(&sums, 1, 100, 5, 90e-6);
    assert_true(sp_i_cuda_fit_solve(&sums, &fit));
    assert_close(fit.kernel_s, 1e-7, 1e-12);
    double b1 = 100 / 100e-6;
    double b2 = 100 / 90e-6;
    double u = (b1 * (1 - 1e-7 / 100e-6) + b2 * (1 - 5e-7 / 90e-6)) / (b1 * b1 + b2 * b2);
    assert_close(fit.bytes_per_s, 1 / u, 1e-9);
}

TEST(profiles_are_named_after_the_chip)
{
    const char *const names[][2] = {{"NVIDIA H200", "h200"},
                                    {"NVIDIA A100-SXM4-80GB", "a100"},
                                    {"NVIDIA H100 80GB HBM3", "h100"},
                                    {"Fake 0", "fake"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[16];
        sp_i_cuda_profile_name(names[i][0], 1, name, sizeof name);
        assert_string_equal(name, names[i][1]);
    }
    char name[16];
    sp_i_cuda_profile_name("NVIDIA H200", 4, name, sizeof name);
    assert_string_equal(name, "h200-1of4");
    sp_i_cuda_profile_name("?", 4, name, sizeof name);
    assert_string_equal(name, "");
}

TEST(medians_and_spread_are_those_of_the_samples)
{
    double seconds[] = {9, 1, 3, 2, 8, 4, 7, 6};
    sp_i_cuda_timing t = sp_i_cuda_timing_of(seconds, 8);
    // 1 2 3 4 6 7 8 9: the fifth is 6, the quartiles are 3 and 8.
    assert_true(t.median_s == 6.0 && t.least_s == 1.0 && t.repeats == 8);
    assert_within(t.spread, 0.5 * 5.0 / 6.0, 1e-12);
}
