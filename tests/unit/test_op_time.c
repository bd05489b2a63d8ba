#include "tests/support/flat_profile.h"
#include "tests/support/test_main.h"

#include "sim/cost/op_time.h"

static sp_uncalibrated uncalibrated;

static sp_op_timer timer_of(const sp_profile *profile)
{
    memset(&uncalibrated, 0, sizeof uncalibrated);
    return (sp_op_timer){.profile = profile, .uncalibrated = &uncalibrated};
}

// FLOPs / rate where the arithmetic is the limit, bytes / memory rate where the operands are, and
// the launch floor on top.
TEST(gemm_roofline)
{
    AUTO(sp_profile) profile = flat_profile_of((const char *[]){"kernel.us=3", NULL});
    sp_op_timer timer = timer_of(&profile);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 4096, 5120, 13824),
                 2.0 * 4096 * 5120 * 13824 / FLAT_GEMM_FLOPS_PER_S + 3e-6, 1e-12);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 1, 8192, 8192),
                 2.0 * (8192 + 8192.0 * 8192 + 8192) / FLAT_MEMORY_BYTES_PER_S + 3e-6, 1e-12);
    assert_true(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 0, 8192, 8192) == 0.0);
    assert_close(sp_time_memory(&timer, 4e6, 2), 4e6 / FLAT_MEMORY_BYTES_PER_S + 6e-6, 1e-12);
    assert_close(sp_time_launch(&timer, 4), 12e-6, 1e-12);
}

// At its points the curve gives the published rate; half way in log x the geometric mean; below the
// first point the rate falls with the edge; above the last it stays.
TEST(gemm_curve)
{
    AUTO(sp_profile) profile = flat_profile_of((const char *[]){
        "gemm_rate.points=[[1024,177],[2048,677],[4096,789]]", "memory.gb_per_s=1e6", NULL});
    sp_op_timer timer = timer_of(&profile);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 2048, 2048, 2048),
                 2 * pow(2048, 3) / 677e12, 1e-12);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 2048, 4096, 1024),
                 2 * pow(2048, 3) / 677e12, 1e-9);
    assert_int_equal(uncalibrated.most[SP_RANGE_GEMM] > 0.0, 0);
    double middle = 2048 * sqrt(2.0);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, middle, middle, middle),
                 2 * pow(middle, 3) / sqrt(677e12 * 789e12), 1e-9);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 512, 512, 512),
                 2 * pow(512, 3) / (177e12 / 2), 1e-9);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 8192, 8192, 8192),
                 2 * pow(8192, 3) / 789e12, 1e-9);
    char lines[SP_RANGES][160];
    assert_int_equal(sp_uncalibrated_lines(&uncalibrated, lines), 1);
    assert_string_equal(lines[0], "gemm: cube edge 512 to 8192 (calibrated 1024 to 4096)");
}

TEST(gemm_table)
{
    AUTO(sp_profile) profile = flat_profile_of(
        (const char *[]){"gemm=[{\"n\":4096,\"k\":1024,\"level\":\"measured\",\"source\":\"s\","
                         "\"points\":[[128,20],[512,60]]}]",
                         "kernel.us=3", NULL});
    sp_op_timer timer = timer_of(&profile);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 128, 4096, 1024), 20e-6, 1e-12);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 256, 4096, 1024), sqrt(20e-6 * 60e-6),
                 1e-12);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 1024, 4096, 1024), 120e-6, 1e-12);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 16, 4096, 1024), 5e-6, 1e-12);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 2048, 1024, 4096),
                 2.0 * 2048 * 1024 * 4096 / FLAT_GEMM_FLOPS_PER_S + 3e-6, 1e-12);
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

TEST_ROUNDS(gemm_is_monotone_and_continuous, 7, 200)
{
    AUTO(sp_profile) profile = flat_profile_of(
        (const char *[]){random_points(prng, "gemm_rate", 64, 50, -2.0, 3.0), NULL});
    sp_op_timer timer = timer_of(&profile);
    for (int i = 0; i < 50; i++) {
        double m = exp(12.0 * sp_prng_uniform(prng));
        double n = exp(10.0 * sp_prng_uniform(prng));
        double k = exp(10.0 * sp_prng_uniform(prng));
        double more = m * (1.0 + sp_prng_uniform(prng));
        double time_s = sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, m, n, k);
        assert_true(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, more, n, k) >= time_s * (1.0 - 1e-12));
        assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, m * (1.0 + 1e-9), n, k), time_s,
                     1e-7);
    }
}

// GEMMs by tiles and waves. 108 SMs, 273 TFLOP/s, half rate at k = 64 and 5 us a launch; memory too
// fast to matter.
#define TILES                                                                  \
    "\"tiles\":[[128,128,1],[128,256,1.04],[64,64,0.7]],\"level\":\"fitted\"," \
    "\"source\":\"s\"}"

static const char *const tile_model[] = {
    "gemm_model={\"tflops\":273,\"half_rate_k\":64,\"fixed_us\":5,\"sms\":108," TILES,
    "memory.gb_per_s=1e9", "gemm_rate=null", NULL};

// By hand, in tiles of 128 x 128 (efficiency 1), 128 x 256 (1.04) and 64 x 64 (0.7), on 108 SMs:
// 1024 x 3072: 192, 96 and 768 tiles are 2, 1 and 8 waves: 216*16384 = 3538944 covered elements,
//   108*32768/1.04 = 3402830.8, 864*4096/0.7 = 5055634.3: the second.
// 130 x 130: 4, 2 and 9 tiles, one wave each: 108 times 16384, 31507.7, 5851.4: the third.
// 4096 x 1024: 256, 128 and 1024 tiles: 3, 2 and 10 waves: 5308416,
//   6805661.5, 6319542.9: the first.
TEST(tile_model_by_hand)
{
    AUTO(sp_profile) profile = flat_profile_of(tile_model);
    sp_op_timer timer = timer_of(&profile);
    const double k = 1024;
    const double per_element_s = 2.0 * (k + 64) / 273e12;
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 1024, 3072, k),
                 108 * 32768 / 1.04 * per_element_s + 5e-6, 1e-12);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 130, 130, k),
                 108 * 4096 / 0.7 * per_element_s + 5e-6, 1e-12);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 4096, 1024, k),
                 324 * 16384 * per_element_s + 5e-6, 1e-12);
    // The weight gradient: n x k results, tokens are the reduction.
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_IN, 300, 4096, 1024),
                 324 * 16384 * 2.0 * (300 + 64) / 273e12 + 5e-6, 1e-12);
    assert_true(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 0, 1024, k) == 0.0);
    assert_true(sp_time_batched_gemm(&timer, 0, 1024, 1024, k, 64) == 0.0);
    // No curve is used, so nothing is outside one.
    char lines[SP_RANGES][160];
    assert_int_equal(sp_uncalibrated_lines(&uncalibrated, lines), 0);
    assert_close(sp_gemm_most_rate(&profile), 1.04 * 273e12, 1e-12);
}

// Rows that are no multiple of 8 elements: columns or depth of a product, never its tokens; of a
// batch those that the caller names. Launch and memory traffic stay.
TEST(tile_model_of_unaligned_rows)
{
    const char *slow = "gemm_model={\"tflops\":100,\"unaligned_share\":0.0625,\"fixed_us\":5,"
                       "\"level\":\"assumed\",\"source\":\"s\"}";
    AUTO(sp_profile) profile = flat_profile_of((const char *[]){slow, NULL});
    sp_op_timer timer = timer_of(&profile);
    const struct {
        double tokens, n, k, share;
    } cases[] = {{1001, 4096, 512, 1},
                 {1000, 4095, 512, 0.0625},
                 {1000, 4096, 508, 0.0625},
                 {1000, 4088, 504, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double n = cases[i].n;
        double k = cases[i].k;
        double expected_s = 2.0 * cases[i].tokens * n * k / (100e12 * cases[i].share) + 5e-6;
        assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, cases[i].tokens, n, k), expected_s,
                     1e-12);
        assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_IN, cases[i].tokens, n, k), expected_s,
                     1e-12);
    }
    double flops = 2.0 * 12 * 2048 * 2048 * 150;
    assert_close(sp_time_batched_gemm(&timer, 12, 2048, 2048, 150, 150), flops / 6.25e12 + 5e-6,
                 1e-12);
    assert_close(sp_time_batched_gemm(&timer, 12, 2048, 2048, 150, 160), flops / 100e12 + 5e-6,
                 1e-12);
}

// Equal matrices share their waves: 96 of 1024 x 64 in tiles of 64 x 64 are 1536 tiles, 15 waves of
// 108 (in 128 x 128: 768, 8 waves; in 128 x 256: 768 as well); alone each would be a wave.
TEST(tile_model_batches)
{
    AUTO(sp_profile) profile = flat_profile_of(tile_model);
    sp_op_timer timer = timer_of(&profile);
    assert_close(sp_time_batched_gemm(&timer, 96, 1024, 64, 512, 64),
                 15 * 108 * 4096 / 0.7 * 2.0 * (512 + 64) / 273e12 + 5e-6, 1e-12);
    assert_close(sp_time_batched_gemm(&timer, 1, 1024, 3072, 512, 64),
                 sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 1024, 3072, 512), 1e-12);
    sp_profile_fini(&profile);
    // By the rate curve they count as one GEMM of all rows.
    flat_profile_load((const char *[]){"kernel.us=3", NULL}, &profile);
    assert_close(sp_time_batched_gemm(&timer, 96, 1024, 640, 512, 64),
                 2.0 * 96 * 1024 * 640 * 512 / FLAT_GEMM_FLOPS_PER_S + 3e-6, 1e-12);
}

// Without SMs the work is 2mnk: a flat rate, reached at large k.
TEST(tile_model_without_tiles_is_flat)
{
    AUTO(sp_profile) profile = flat_profile_of(
        (const char *[]){"gemm_model={\"tflops\":265,\"half_rate_k\":64,\"level\":\"fitted\","
                         "\"source\":\"s\"}",
                         "memory.gb_per_s=1e9", NULL});
    sp_op_timer timer = timer_of(&profile);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 130, 77, 64),
                 2 * (2.0 * 130 * 77 * 64 / 265e12), 1e-12);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 130, 77, 1e6),
                 2.0 * 130 * 77 * 1e6 / 265e12 * (1 + 64 / 1e6), 1e-12);
    assert_close(sp_time_batched_gemm(&timer, 7, 130, 77, 64, 64),
                 7 * 2 * (2.0 * 130 * 77 * 64 / 265e12), 1e-12);
    assert_close(sp_gemm_most_rate(&profile), 265e12, 1e-12);
}

// One row times a matrix: reading 2 bytes of each weight takes longer than the products.
TEST(tile_model_is_bound_by_memory)
{
    AUTO(sp_profile) profile = flat_profile_of(
        (const char *[]){"gemm_model={\"tflops\":273,\"fixed_us\":5,\"level\":\"fitted\","
                         "\"source\":\"s\"}",
                         NULL});
    sp_op_timer timer = timer_of(&profile);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 1, 8192, 4096),
                 2.0 * (4096 + 8192.0 * 4096 + 8192) / FLAT_MEMORY_BYTES_PER_S + 5e-6, 1e-12);
    assert_close(sp_time_batched_gemm(&timer, 10, 1, 8192, 4096, 64),
                 10 * 2.0 * (4096 + 8192.0 * 4096 + 8192) / FLAT_MEMORY_BYTES_PER_S + 5e-6, 1e-12);
}

// Element-wise kernels reach a share of the rate that copies and thin products have.
TEST(kernels_reach_a_share)
{
    sp_profile profile;
    double whole_s[2];
    for (int shared = 0; shared < 2; shared++) {
        flat_profile_load(
            (const char *[]){"gemm_model={\"tflops\":273,\"level\":\"fitted\",\"source\":\"s\"}",
                             shared ? "memory.kernel_share=0.5" : NULL, NULL},
            &profile);
        sp_op_timer timer = timer_of(&profile);
        whole_s[shared] = sp_time_memory(&timer, 1e9, 0);
        assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 1, 8192, 4096),
                     2.0 * (4096 + 8192.0 * 4096 + 8192) / FLAT_MEMORY_BYTES_PER_S, 1e-12);
        sp_profile_fini(&profile);
    }
    assert_close(whole_s[1], 2.0 * whole_s[0], 1e-12);
}

// A table of times for n and k still goes before the model.
TEST(tile_model_after_tables)
{
    AUTO(sp_profile) profile = flat_profile_of(
        (const char *[]){"gemm_model={\"tflops\":273,\"sms\":108," TILES,
                         "gemm=[{\"n\":4096,\"k\":1024,\"level\":\"measured\",\"source\":\"s\","
                         "\"points\":[[128,20],[512,60]]}]",
                         NULL});
    sp_op_timer timer = timer_of(&profile);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 512, 4096, 1024), 60e-6, 1e-12);
}

// 20 experts at 100 TFLOP/s, 3 us a launch, memory of 2 TB/s, and 200 rows that each expert's few
// rows cost more: both passes, 300 rows and one; rows of 1021 elements at half of the rate.
TEST(grouped_products_by_hand)
{
    AUTO(sp_profile) profile = flat_profile_of((const char *[]){
        "gemm_model={\"tflops\":100,\"half_rate_k\":64,\"fixed_us\":3,\"sms\":108,"
        "\"unaligned_share\":0.5," TILES,
        "grouped_gemm={\"half_rows\":200,\"level\":\"fitted\",\"source\":\"s\"}", NULL});
    sp_op_timer timer = timer_of(&profile);
    double rate = 1.04 * 100e12; // of the best tile
    double weights = 20.0 * 2048.0 * 1024.0;
    double time_s = 2.0 * weights * 500.0 / rate + 3e-6;
    assert_close(sp_time_grouped_gemm(&timer, SP_GEMM_TOKENS_OUT, 20, 300, 2048, 1024), time_s,
                 1e-12);
    assert_close(sp_time_grouped_gemm(&timer, SP_GEMM_TOKENS_IN, 20, 300, 1024, 2048), time_s,
                 1e-12);
    assert_close(sp_time_grouped_gemm(&timer, SP_GEMM_TOKENS_OUT, 20, 300, 1021, 1024),
                 2.0 * (20.0 * 1021.0 * 1024.0 * 500.0 / rate) / 0.5 + 3e-6, 1e-12);
    assert_true(sp_time_grouped_gemm(&timer, SP_GEMM_TOKENS_OUT, 20, 0, 2048, 1024) == 0.0);
    // All weights and the rows of both sides go through a slow memory once.
    profile.memory_bytes_per_s = 1e9;
    assert_close(sp_time_grouped_gemm(&timer, SP_GEMM_TOKENS_OUT, 20, 1, 2048, 1024),
                 2.0 * (weights + 20.0 * (2048.0 + 1024.0)) / 1e9 + 3e-6, 1e-12);
}

// One after another where a table has this n and k: never less than the weights' bytes take,
// although the table goes down with the rows. Without the section tiles of all fill waves together,
// as those of a batch do, and every fourth waits for a launch (Transformer Engine's four streams).
TEST(products_of_experts_by_tables_and_tiles)
{
    AUTO(sp_profile) profile = flat_profile_of(
        (const char *[]){"gemm_model={\"tflops\":273,\"fixed_us\":3,\"sms\":108," TILES,
                         "grouped_gemm={\"half_rows\":200,\"level\":\"fitted\",\"source\":\"s\"}",
                         "gemm=[{\"n\":4096,\"k\":1024,\"level\":\"measured\",\"source\":\"s\","
                         "\"points\":[[128,20],[512,60]]}]",
                         NULL});
    sp_op_timer timer = timer_of(&profile);
    assert_close(sp_time_grouped_gemm(&timer, SP_GEMM_TOKENS_OUT, 8, 512, 4096, 1024), 480e-6,
                 1e-12);
    assert_close(sp_time_grouped_gemm(&timer, SP_GEMM_TOKENS_OUT, 8, 1, 4096, 1024),
                 8.0 * 2.0 * 4096.0 * 1024.0 / 2e12, 1e-12);
    profile.grouped.half_rows = 0.0;
    for (int count = 1; count <= 9; count++) {
        double all_s = sp_time_grouped_gemm(&timer, SP_GEMM_TOKENS_OUT, count, 700, 2048, 1024);
        double one_s = sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, 700, 2048, 1024);
        assert_close(all_s,
                     sp_time_batched_gemm(&timer, count, 700, 2048, 1024, 1024) +
                         (count - 1) / 4 * 3e-6,
                     1e-12);
        assert_true(all_s <= count * one_s * (1.0 + 1e-12) && (count == 1 || all_s > one_s));
        assert_close(sp_time_grouped_gemm(&timer, SP_GEMM_TOKENS_IN, count, 1024, 700, 2048), all_s,
                     1e-12);
    }
}

// Microseconds that SimuMax measured on B200 (github MooreThreads/SimuMax, v1.2, bf16). Weight
// gradients add to an fp32 buffer, of which the cost model counts 6 of 8 bytes a weight apart. The
// spread between shapes is large: 0.6 to 1.35 of the time, and 20 % in the mean.
TEST(grouped_products_as_measured)
{
    static const struct {
        sp_gemm_pass pass;
        int experts;
        double rows, n, k, us;
    } measured[] = {
        {SP_GEMM_TOKENS_OUT, 256, 128, 4096, 7168, 4109.7},
        {SP_GEMM_TOKENS_OUT, 256, 128, 2048, 7168, 2825.5},
        {SP_GEMM_TOKENS_IN, 256, 128, 4096, 7168, 11032.9},
        {SP_GEMM_TOKENS_OUT, 40, 616, 3072, 5120, 746.0},
        {SP_GEMM_TOKENS_OUT, 40, 616, 1536, 5120, 613.7},
        {SP_GEMM_TOKENS_IN, 40, 616, 5120, 1536, 632.5},
        {SP_GEMM_TOKENS_OUT, 20, 1232, 5120, 3072, 817.2},
        {SP_GEMM_TOKENS_OUT, 20, 1232, 5120, 1536, 433.4},
        {SP_GEMM_TOKENS_IN, 20, 1232, 3072, 5120, 1051.6},
        {SP_GEMM_TOKENS_OUT, 40, 2460, 3072, 5120, 2826.3},
        {SP_GEMM_TOKENS_IN, 40, 2460, 5120, 1536, 1708.7},
    };
    enum { ROWS = sizeof measured / sizeof measured[0] };
    AUTO(sp_profile) profile;
    must_succeed(sp_profile_load("b200", &profile, ERR));
    sp_op_timer timer = timer_of(&profile);
    double off = 0.0;
    for (int i = 0; i < ROWS; i++) {
        double added = measured[i].pass == SP_GEMM_TOKENS_IN ? 6.0 : 0.0;
        double time_s =
            sp_time_grouped_gemm(&timer, measured[i].pass, measured[i].experts, measured[i].rows,
                                 measured[i].n, measured[i].k) +
            sp_time_memory(&timer, added * measured[i].experts * measured[i].n * measured[i].k, 0);
        double ratio = time_s / (1e-6 * measured[i].us);
        assert_true(ratio > 0.6 && ratio < 1.35);
        off += fabs(ratio - 1.0) / ROWS;
    }
    assert_true(off < 0.2);
}

// With more tokens, rows, columns, depth or matrices never less time, and never a better rate than
// the best.
TEST_ROUNDS(tile_model_is_monotone, 31, 100)
{
    char model[256];
    snprintf(model, sizeof model,
             "gemm_model={\"tflops\":100,\"half_rate_k\":%d,\"fixed_us\":%d,\"sms\":%d,"
             "\"tiles\":[[%d,%d,%.3g],[%d,%d,1]],\"level\":\"assumed\",\"source\":\"s\"}",
             prng_below(prng, 200), prng_below(prng, 10), prng_below(prng, 200),
             1 + prng_below(prng, 300), 1 + prng_below(prng, 300),
             0.1 + 2.0 * sp_prng_uniform(prng), 1 + prng_below(prng, 300),
             1 + prng_below(prng, 300));
    AUTO(sp_profile) profile = flat_profile_of((const char *[]){model, NULL});
    sp_op_timer timer = timer_of(&profile);
    for (int i = 0; i < 200; i++) {
        double size[4]; // batch, m, n, k
        for (int j = 0; j < 4; j++) {
            size[j] = floor(exp((j == 0 ? 5.0 : 10.0) * sp_prng_uniform(prng)));
        }
        double time_s = sp_time_batched_gemm(&timer, size[0], size[1], size[2], size[3], 64);
        double flops = 2 * size[0] * size[1] * size[2] * size[3];
        assert_true(time_s >= flops / sp_gemm_most_rate(&profile) * (1 - 1e-12));
        double gemm_s = sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, size[1], size[2], size[3]);
        double weights_s = sp_time_gemm(&timer, SP_GEMM_TOKENS_IN, size[1], size[2], size[3]);
        assert_true(gemm_s <= time_s * (1 + 1e-12));
        double more = size[1] + (double)sp_prng_below(prng, 300);
        assert_true(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, more, size[2], size[3]) >=
                    gemm_s * (1 - 1e-12));
        assert_true(sp_time_gemm(&timer, SP_GEMM_TOKENS_IN, more, size[2], size[3]) >=
                    weights_s * (1 - 1e-12));
        size[sp_prng_below(prng, 4)] += (double)sp_prng_below(prng, 300);
        assert_true(sp_time_batched_gemm(&timer, size[0], size[1], size[2], size[3], 64) >=
                    time_s * (1 - 1e-12));
    }
}

// FLOPs of the causal half square and of the rectangle, 4*a*d a pair forward and 10*a*d backward
// (FlashAttention-2, arXiv 2307.08691, section 4.1: backward 2.5 times forward).
TEST(attention_flat)
{
    AUTO(sp_profile) profile = flat_profile_of(NULL);
    sp_op_timer timer = timer_of(&profile);
    double l = 3000;
    double o = 5000;
    double pairs = l * l / 2 + l * o;
    assert_close(sp_time_attention_slice(&timer, 0, l, o, HUGE_VAL, 5, 128),
                 4 * pairs * 5 * 128 / FLAT_FORWARD_FLOPS_PER_S, 1e-9);
    assert_close(sp_time_attention_slice(&timer, 1, l, o, HUGE_VAL, 5, 128),
                 10 * pairs * 5 * 128 / FLAT_BACKWARD_FLOPS_PER_S, 1e-9);
    double whole = sp_time_attention_slice(&timer, 0, 7777, 0, HUGE_VAL, 5, 128);
    double cut = 0.0;
    for (double at = 0; at < 7777; at += 1000) {
        cut += sp_time_attention_slice(&timer, 0, fmin(1000, 7777 - at), at, HUGE_VAL, 5, 128);
    }
    assert_close(cut, whole, 1e-9);
}

// Below the first point each query row costs 64 keys more: time ~ l * (l/2 + 64).
TEST(attention_short)
{
    AUTO(sp_profile) profile = flat_profile_of(
        (const char *[]){"attention.forward_causal.points=[[2048,484],[4096,591]]",
                         "attention.forward_full={\"level\":\"published\",\"source\":\"s\","
                         "\"points\":[[2048,633],[4096,671]]}",
                         NULL});
    sp_op_timer timer = timer_of(&profile);
    double at_2048 = sp_time_attention_slice(&timer, 0, 2048, 0, HUGE_VAL, 8, 128);
    assert_close(at_2048, 2.0 * 2048 * 2048 * 8 * 128 / 484e12, 1e-12);
    assert_close(sp_time_attention_slice(&timer, 0, 100, 0, HUGE_VAL, 8, 128) / at_2048,
                 100 * (50 + 64.0) / (2048 * (1024 + 64.0)), 1e-9);
    // sqrt(l*o) = 4096 gives 671 unmasked, but l + o = 8704 is held at the causal 591.
    assert_close(sp_time_attention_slice(&timer, 0, 8192, 2048, HUGE_VAL, 8, 128),
                 (2.0 * 8192 * 8192 + 4.0 * 8192 * 2048) * 8 * 128 / 591e12, 1e-12);
    char lines[SP_RANGES][160];
    assert_int_equal(sp_uncalibrated_lines(&uncalibrated, lines), 1);
    assert_string_equal(lines[0],
                        "attention forward: length 100 to 10240 (calibrated 2048 to 4096)");
    // With the backward it is one line of both, over the lengths of either.
    sp_time_attention_slice(&timer, 1, 50, 0, HUGE_VAL, 8, 128);
    assert_int_equal(sp_uncalibrated_lines(&uncalibrated, lines), 1);
    const char *both = "attention: length 50 to 10240 (calibrated ";
    assert_memory_equal(lines[0], both, strlen(both));
}

// A table of blocks gives times at the length sqrt(l*o), and below it the time of its first block.
// A rate may grow with the square of the length, so that the time stays.
TEST(attention_blocks)
{
    AUTO(sp_profile) profile = flat_profile_of(
        (const char *[]){"attention.forward_block={\"level\":\"assumed\",\"source\":\"s\","
                         "\"points\":[[4,1],[8,4],[32,40]]}",
                         NULL});
    sp_op_timer timer = timer_of(&profile);
    const double flops = 4.0 * 8 * 128;
    double first_s = 4 * 4 * flops / 1e12;
    assert_close(sp_time_attention_block(&timer, 0, 4, 4, 8, 128), first_s, 1e-12);
    assert_close(sp_time_attention_block(&timer, 0, 2, 32, 8, 128), first_s, 1e-12);
    assert_close(sp_time_attention_block(&timer, 0, 1, 1, 8, 128), first_s, 1e-12);
    assert_close(sp_time_attention_block(&timer, 0, 16, 64, 8, 128), 1024 * flops / 40e12, 1e-12);
    assert_close(sp_time_attention_block(&timer, 0, 64, 64, 8, 128), 4096 * flops / 40e12, 1e-12);
    assert_true(sp_time_attention_block(&timer, 0, 64, 0, 8, 128) == 0.0);
    // Without a table: what as much context adds to a slice.
    assert_close(sp_time_attention_block(&timer, 1, 1024, 1024, 8, 128),
                 sp_time_attention_slice(&timer, 1, 1024, 1024, HUGE_VAL, 8, 128) -
                     sp_time_attention_slice(&timer, 1, 1024, 0, HUGE_VAL, 8, 128),
                 1e-12);
}

TEST_ROUNDS(attention_is_monotone_and_continuous, 11, 200)
{
    double first = exp(8.0 * sp_prng_uniform(prng));
    char full[600];
    // Every other table also falls, which short slices are not promised for.
    double least = round % 2 == 0 ? 0.0 : -0.5;
    const char *causal = random_points(prng, "attention.forward_causal", first, 10, least, 1.0);
    snprintf(full, sizeof full,
             "attention.forward_full={\"level\":\"assumed\",\"source\":\"s\","
             "\"points\":[[%.6g,20],[%.6g,30]]}",
             first * 1.5, first * 20);
    AUTO(sp_profile) profile = flat_profile_of((const char *[]){causal, full, NULL});
    sp_op_timer timer = timer_of(&profile);
    for (int i = 0; i < 100; i++) {
        double l = exp(11.0 * sp_prng_uniform(prng));
        l = round % 2 == 0 ? l : fmax(l, first);
        double o = exp(11.0 * sp_prng_uniform(prng)) - 1.0;
        double step = 1.0 + exp(-20.0 * sp_prng_uniform(prng));
        double time_s = sp_time_attention_slice(&timer, 0, l, o, HUGE_VAL, 4, 128);
        assert_true(sp_time_attention_slice(&timer, 0, l * step, o, HUGE_VAL, 4, 128) >=
                    time_s * (1.0 - 1e-12));
        assert_true(sp_time_attention_slice(&timer, 0, l, o * step, HUGE_VAL, 4, 128) >=
                    time_s * (1.0 - 1e-12));
        assert_close(sp_time_attention_slice(&timer, 0, l * (1.0 + 1e-9), o, HUGE_VAL, 4, 128),
                     time_s, 1e-7);
        assert_close(
            sp_time_attention_slice(&timer, 0, l, o * (1.0 + 1e-9) + 1e-9, HUGE_VAL, 4, 128),
            time_s, 1e-6);
    }
}

// The shipped causal rates fall with length nowhere by more than 0.1 %, so cutting a sample never
// saves more than that; and fine slices cost more, not less, than coarse ones of them.
TEST(cutting_saves_nothing)
{
    static const char *const names[] = {"a100", "h100", "h800", "h200", "host"};
    sp_prng prng = prng_seeded(13);
    for (size_t p = 0; p < sizeof names / sizeof names[0]; p++) {
        AUTO(sp_profile) profile;
        must_succeed(sp_profile_load(names[p], &profile, ERR));
        sp_op_timer timer = timer_of(&profile);
        for (int i = 0; i < 1000; i++) {
            int backward = i % 2;
            double first = 1.0 + floor(exp(12.0 * sp_prng_uniform(&prng)));
            double second = 1.0 + floor(exp(12.0 * sp_prng_uniform(&prng)));
            double whole =
                sp_time_attention_slice(&timer, backward, first + second, 0, HUGE_VAL, 5, 128);
            double cut = sp_time_attention_slice(&timer, backward, first, 0, HUGE_VAL, 5, 128) +
                         sp_time_attention_slice(&timer, backward, second, first, HUGE_VAL, 5, 128);
            assert_true(cut >= whole * (1.0 - 1e-3));
            assert_true(cut < whole * 3.0);
        }
    }
}
