#include <math.h>

#include "tests/support/flat_profile.h"
#include "tests/support/test_main.h"

#include "sim/base/prng.h"
#include "sim/cost/op_time.h"

static sp_error err;
static sp_uncalibrated uncalibrated;

static sp_op_timer timer_of(const sp_profile *profile)
{
    memset(&uncalibrated, 0, sizeof uncalibrated);
    return (sp_op_timer){.profile = profile, .uncalibrated = &uncalibrated};
}

static void load(const char *const *overrides, sp_profile *profile)
{
    sp_error_clear(&err);
    assert_int_equal(flat_profile(overrides, profile, &err), SP_OK);
}

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance * fabs(expected))) {
        fail_msg("%.17g is not %.17g", value, expected);
    }
}

// FLOPs / rate where the arithmetic is the limit, bytes / memory rate where the operands are, and
// the launch floor on top.
static void gemm_roofline(void **state)
{
    (void)state;
    sp_profile profile;
    load((const char *[]){"kernel.us=3", NULL}, &profile);
    sp_op_timer timer = timer_of(&profile);
    assert_near(sp_time_gemm(&timer, 4096, 5120, 13824),
                2.0 * 4096 * 5120 * 13824 / FLAT_GEMM_FLOPS_PER_S + 3e-6, 1e-12);
    assert_near(sp_time_gemm(&timer, 1, 8192, 8192),
                2.0 * (8192 + 8192.0 * 8192 + 8192) / FLAT_MEMORY_BYTES_PER_S + 3e-6, 1e-12);
    assert_true(sp_time_gemm(&timer, 0, 8192, 8192) == 0.0);
    assert_near(sp_time_memory(&timer, 4e6, 2), 4e6 / FLAT_MEMORY_BYTES_PER_S + 6e-6, 1e-12);
    assert_near(sp_time_launch(&timer, 4), 12e-6, 1e-12);
    sp_profile_fini(&profile);
}

// At its points the curve gives the published rate; half way in log x the geometric mean; below the
// first point the rate falls with the edge; above the last it stays.
static void gemm_curve(void **state)
{
    (void)state;
    sp_profile profile;
    load((const char *[]){"gemm_rate.points=[[1024,177],[2048,677],[4096,789]]",
                          "memory.gb_per_s=1e6", NULL},
         &profile);
    sp_op_timer timer = timer_of(&profile);
    assert_near(sp_time_gemm(&timer, 2048, 2048, 2048), 2 * pow(2048, 3) / 677e12, 1e-12);
    assert_near(sp_time_gemm(&timer, 2048, 4096, 1024), 2 * pow(2048, 3) / 677e12, 1e-9);
    assert_int_equal(uncalibrated.most[SP_RANGE_GEMM] > 0.0, 0);
    double middle = 2048 * sqrt(2.0);
    assert_near(sp_time_gemm(&timer, middle, middle, middle),
                2 * pow(middle, 3) / sqrt(677e12 * 789e12), 1e-9);
    assert_near(sp_time_gemm(&timer, 512, 512, 512), 2 * pow(512, 3) / (177e12 / 2), 1e-9);
    assert_near(sp_time_gemm(&timer, 8192, 8192, 8192), 2 * pow(8192, 3) / 789e12, 1e-9);
    char lines[SP_RANGES][160];
    assert_int_equal(sp_uncalibrated_lines(&uncalibrated, lines), 1);
    assert_string_equal(lines[0], "gemm: cube edge 512 to 8192 (calibrated 1024 to 4096)");
    sp_profile_fini(&profile);
}

static void gemm_table(void **state)
{
    (void)state;
    sp_profile profile;
    load((const char *[]){"gemm=[{\"n\":4096,\"k\":1024,\"level\":\"measured\",\"source\":\"s\","
                          "\"points\":[[128,20],[512,60]]}]",
                          "kernel.us=3", NULL},
         &profile);
    sp_op_timer timer = timer_of(&profile);
    assert_near(sp_time_gemm(&timer, 128, 4096, 1024), 20e-6, 1e-12);
    assert_near(sp_time_gemm(&timer, 256, 4096, 1024), sqrt(20e-6 * 60e-6), 1e-12);
    assert_near(sp_time_gemm(&timer, 1024, 4096, 1024), 120e-6, 1e-12);
    assert_near(sp_time_gemm(&timer, 16, 4096, 1024), 5e-6, 1e-12);
    assert_near(sp_time_gemm(&timer, 2048, 1024, 4096),
                2.0 * 2048 * 1024 * 4096 / FLAT_GEMM_FLOPS_PER_S + 3e-6, 1e-12);
    sp_profile_fini(&profile);
}

// A table at random, as text for an override: from point to point y grows by a factor between
// exp(least) and exp(most).
static const char *random_points(sp_prng *prng, const char *key, double first, double level,
                                 double least, double most)
{
    static char text[4][512];
    static int next;
    char *out = text[next++ % 4];
    size_t used = (size_t)snprintf(out, 512, "%s.points=[", key);
    double x = first;
    double y = level;
    for (int i = 0; i < 6; i++) {
        used += (size_t)snprintf(out + used, 512 - used, "%s[%.6g,%.6g]", i > 0 ? "," : "", x, y);
        x *= 1.3 + 2.0 * sp_prng_uniform(prng);
        y *= exp(least + (most - least) * sp_prng_uniform(prng));
    }
    snprintf(out + used, 512 - used, "]");
    return out;
}

static void gemm_is_monotone_and_continuous(void **state)
{
    (void)state;
    sp_prng prng;
    sp_prng_seed(&prng, 7);
    for (int round = 0; round < 200; round++) {
        sp_profile profile;
        load((const char *[]){random_points(&prng, "gemm_rate", 64, 50, -2.0, 3.0), NULL},
             &profile);
        sp_op_timer timer = timer_of(&profile);
        for (int i = 0; i < 50; i++) {
            double m = exp(12.0 * sp_prng_uniform(&prng));
            double n = exp(10.0 * sp_prng_uniform(&prng));
            double k = exp(10.0 * sp_prng_uniform(&prng));
            double more = m * (1.0 + sp_prng_uniform(&prng));
            double time_s = sp_time_gemm(&timer, m, n, k);
            assert_true(sp_time_gemm(&timer, more, n, k) >= time_s * (1.0 - 1e-12));
            assert_near(sp_time_gemm(&timer, m * (1.0 + 1e-9), n, k), time_s, 1e-7);
        }
        sp_profile_fini(&profile);
    }
}

// FLOPs of the causal half square and of the rectangle, 4*a*d a pair forward and 10*a*d backward
// (FlashAttention-2, arXiv 2307.08691, section 4.1: backward 2.5 times forward).
static void attention_flat(void **state)
{
    (void)state;
    sp_profile profile;
    load(NULL, &profile);
    sp_op_timer timer = timer_of(&profile);
    double l = 3000;
    double o = 5000;
    double pairs = l * l / 2 + l * o;
    assert_near(sp_time_attention_slice(&timer, 0, l, o, 5, 128),
                4 * pairs * 5 * 128 / FLAT_FORWARD_FLOPS_PER_S, 1e-9);
    assert_near(sp_time_attention_slice(&timer, 1, l, o, 5, 128),
                10 * pairs * 5 * 128 / FLAT_BACKWARD_FLOPS_PER_S, 1e-9);
    double whole = sp_time_attention_slice(&timer, 0, 7777, 0, 5, 128);
    double cut = 0.0;
    for (double at = 0; at < 7777; at += 1000) {
        cut += sp_time_attention_slice(&timer, 0, fmin(1000, 7777 - at), at, 5, 128);
    }
    assert_near(cut, whole, 1e-9);
    sp_profile_fini(&profile);
}

// Below the first point each query row costs 64 keys more: time ~ l * (l/2 + 64).
static void attention_short(void **state)
{
    (void)state;
    sp_profile profile;
    load((const char *[]){"attention.forward_causal.points=[[2048,484],[4096,591]]",
                          "attention.forward_full={\"level\":\"published\",\"source\":\"s\","
                          "\"points\":[[2048,633],[4096,671]]}",
                          NULL},
         &profile);
    sp_op_timer timer = timer_of(&profile);
    double at_2048 = sp_time_attention_slice(&timer, 0, 2048, 0, 8, 128);
    assert_near(at_2048, 2.0 * 2048 * 2048 * 8 * 128 / 484e12, 1e-12);
    assert_near(sp_time_attention_slice(&timer, 0, 100, 0, 8, 128) / at_2048,
                100 * (50 + 64.0) / (2048 * (1024 + 64.0)), 1e-9);
    // sqrt(l*o) = 4096 gives 671 unmasked, but l + o = 8704 is held at the causal 591.
    assert_near(sp_time_attention_slice(&timer, 0, 8192, 2048, 8, 128),
                (2.0 * 8192 * 8192 + 4.0 * 8192 * 2048) * 8 * 128 / 591e12, 1e-12);
    char lines[SP_RANGES][160];
    assert_int_equal(sp_uncalibrated_lines(&uncalibrated, lines), 1);
    assert_string_equal(lines[0],
                        "attention forward: length 100 to 10240 (calibrated 2048 to 4096)");
    sp_profile_fini(&profile);
}

static void attention_is_monotone_and_continuous(void **state)
{
    (void)state;
    sp_prng prng;
    sp_prng_seed(&prng, 11);
    for (int round = 0; round < 200; round++) {
        sp_profile profile;
        double first = exp(8.0 * sp_prng_uniform(&prng));
        char full[600];
        // Every other table also falls, which short slices are not promised for.
        double least = round % 2 == 0 ? 0.0 : -0.5;
        const char *causal =
            random_points(&prng, "attention.forward_causal", first, 10, least, 1.0);
        snprintf(full, sizeof full,
                 "attention.forward_full={\"level\":\"assumed\",\"source\":\"s\","
                 "\"points\":[[%.6g,20],[%.6g,30]]}",
                 first * 1.5, first * 20);
        load((const char *[]){causal, full, NULL}, &profile);
        sp_op_timer timer = timer_of(&profile);
        for (int i = 0; i < 100; i++) {
            double l = exp(11.0 * sp_prng_uniform(&prng));
            l = round % 2 == 0 ? l : fmax(l, first);
            double o = exp(11.0 * sp_prng_uniform(&prng)) - 1.0;
            double step = 1.0 + exp(-20.0 * sp_prng_uniform(&prng));
            double time_s = sp_time_attention_slice(&timer, 0, l, o, 4, 128);
            assert_true(sp_time_attention_slice(&timer, 0, l * step, o, 4, 128) >=
                        time_s * (1.0 - 1e-12));
            assert_true(sp_time_attention_slice(&timer, 0, l, o * step, 4, 128) >=
                        time_s * (1.0 - 1e-12));
            assert_near(sp_time_attention_slice(&timer, 0, l * (1.0 + 1e-9), o, 4, 128), time_s,
                        1e-7);
            assert_near(sp_time_attention_slice(&timer, 0, l, o * (1.0 + 1e-9) + 1e-9, 4, 128),
                        time_s, 1e-6);
        }
        sp_profile_fini(&profile);
    }
}

// The shipped causal rates fall with length nowhere by more than 0.1 %, so cutting a sample never
// saves more than that; and fine slices cost more, not less, than coarse ones of them.
static void cutting_saves_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"a100", "h100", "h800", "h200", "host"};
    sp_prng prng;
    sp_prng_seed(&prng, 13);
    for (size_t p = 0; p < sizeof names / sizeof names[0]; p++) {
        sp_profile profile;
        sp_error_clear(&err);
        assert_int_equal(sp_profile_load(names[p], &profile, &err), SP_OK);
        sp_op_timer timer = timer_of(&profile);
        for (int i = 0; i < 1000; i++) {
            int backward = i % 2;
            double first = 1.0 + floor(exp(12.0 * sp_prng_uniform(&prng)));
            double second = 1.0 + floor(exp(12.0 * sp_prng_uniform(&prng)));
            double whole = sp_time_attention_slice(&timer, backward, first + second, 0, 5, 128);
            double cut = sp_time_attention_slice(&timer, backward, first, 0, 5, 128) +
                         sp_time_attention_slice(&timer, backward, second, first, 5, 128);
            assert_true(cut >= whole * (1.0 - 1e-3));
            assert_true(cut < whole * 3.0);
        }
        sp_profile_fini(&profile);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gemm_roofline),
    cmocka_unit_test(gemm_curve),
    cmocka_unit_test(gemm_table),
    cmocka_unit_test(gemm_is_monotone_and_continuous),
    cmocka_unit_test(attention_flat),
    cmocka_unit_test(attention_short),
    cmocka_unit_test(attention_is_monotone_and_continuous),
    cmocka_unit_test(cutting_saves_nothing),
};

SP_TEST_MAIN(tests)
