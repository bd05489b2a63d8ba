// The result of several batches and its JSON form. Expected values follow from the definitions in
// result.h: over several batches ratios are of sums and memory is the maximum.
#include "sim/metrics/result.h"

#include "sim/base/units.h"
#include "tests/support/test_main.h"

// Two pipeline ranks, one data-parallel rank; milliseconds in nanoseconds.
#define MS INT64_C(1000000)
#define NEAR(found, expected) assert_near(found, expected, 0.5e-12, 0.5e-12)

static sp_rank_metrics first_ranks[] = {
    {.dp = 0, .pp = 0, .busy_ns = 60 * MS, .span_ns = 100 * MS, .peak_bytes = 7, .units_peak = 2.0},
    {.dp = 0, .pp = 1, .busy_ns = 80 * MS, .span_ns = 90 * MS, .peak_bytes = 9, .units_peak = 1.0}};
static sp_rank_metrics second_ranks[] = {
    {.dp = 0, .pp = 0, .busy_ns = 20 * MS, .span_ns = 40 * MS, .peak_bytes = 8, .units_peak = 1.0},
    {.dp = 0, .pp = 1, .busy_ns = 20 * MS, .span_ns = 30 * MS, .peak_bytes = 3, .units_peak = 4.0}};

static const sp_step_metrics first = {
    .makespan_ns = 100 * MS,
    .iteration_ns = 120 * MS,
    .busy_ns = 140 * MS,
    .tp_ns = 10 * MS,
    .cp_ns = 6 * MS,
    .dp_ns = 5 * MS,
    .launch_ns = 9 * MS,
    .wait_p2p_ns = 8 * MS,
    .reduce_ns = 15 * MS,
    .optimizer_ns = 5 * MS,
    .rank_count = 2,
    .longest_span_ns = 100 * MS,
    .longest_span_work_ns = 60 * MS,
    .dp_busiest_ns = 100 * MS,
    .dp_mean_ns = 80 * MS,
    .forward_pack_cv = 0.2,
    .backward_pack_cv = 0.4,
    .peak_bytes = 9,
    .peak = {{9}},
    .ranks = first_ranks,
};
static const sp_step_metrics second = {
    .makespan_ns = 40 * MS,
    .iteration_ns = 50 * MS,
    .busy_ns = 40 * MS,
    .tp_ns = 4 * MS,
    .cp_ns = 2 * MS,
    .dp_ns = 3 * MS,
    .launch_ns = 1 * MS,
    .wait_p2p_ns = 2 * MS,
    .reduce_ns = 4 * MS,
    .optimizer_ns = 6 * MS,
    .rank_count = 2,
    .longest_span_ns = 40 * MS,
    .longest_span_work_ns = 20 * MS,
    .dp_busiest_ns = 40 * MS,
    .dp_mean_ns = 40 * MS,
    .forward_pack_cv = 0.4,
    .backward_pack_cv = 0.2,
    .peak_bytes = 8,
    .peak = {{0, 8}},
    .ranks = second_ranks,
};

static sp_result described(void)
{
    return (sp_result){.layout = {.tp = 2, .cp = 2, .pp = 2, .dp = 1, .chunks = 1},
                       .strategy = "packed",
                       .schedule = "1f1b",
                       .model_name = "toy",
                       .parameters = 1000,
                       .flops_per_token = 6000.0,
                       .peak_flops_per_s = 1e6,
                       .memory_limit_bytes = 9,
                       .profile = "made",
                       .level = SP_LEVEL_FITTED,
                       .seed = 77,
                       .lossless = true,
                       .published_bubble_ratio = -1.0};
}

static void add_both(sp_result *result)
{
    sp_batch_facts one = {.samples = 3,
                          .tokens = 1000,
                          .computed_tokens = 1200,
                          .microbatches = 4,
                          .model_flops = 2e5,
                          .full_flops = 3e5,
                          .hardware_flops = 4e5,
                          .lower_bound_ns = 60.0 * MS,
                          .work_bound_ns = 50.0 * MS,
                          .solver_ms = 3.0,
                          .simulate_ms = 1.0,
                          .tasks = 10,
                          .edges = 20};
    sp_batch_facts two = {.samples = 1,
                          .tokens = 700,
                          .computed_tokens = 700,
                          .microbatches = 2,
                          .model_flops = 1.4e5,
                          .full_flops = 2e5,
                          .hardware_flops = 2e5,
                          .lower_bound_ns = 40.0 * MS,
                          .work_bound_ns = 35.0 * MS,
                          .solver_ms = 1.0,
                          .simulate_ms = 2.0,
                          .tasks = 5,
                          .edges = 7};
    sp_result_add(result, &first, &one);
    sp_result_add(result, &second, &two);
}

static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    must_hold(value != NULL, "no key %s", key);
    return value;
}

static double real(const json_t *object, const char *key)
{
    const json_t *value = member(object, key);
    must_hold(json_is_number(value), "%s is no number", key);
    return json_number_value(value);
}

// Over two batches of 120 and 50 ms on eight GPUs of 1 MFLOP/s.
TEST(ratios_are_of_sums)
{
    static const struct {
        const char *key;
        double value;
    } expected[] = {
        {"iteration_ms", (120.0 + 50.0) / 2.0},
        {"bubble_ratio", 1.0 - (140.0 + 40.0) / (2.0 * 100.0 + 2.0 * 40.0)}, // not of 0.3 and 0.5
        {"bubble_ratio_longest_stage", (40.0 + 20.0) / (100.0 + 40.0)},
        {"tokens_per_s", 1700.0 / 0.17},
        {"tokens_per_gpu_s", 1e4 / 8.0},
        {"tflops_per_gpu", 5e5 / 0.17 / 8.0 / 1e12},
        {"tflops_per_gpu_causal", 3.4e5 / 0.17 / 8.0 / 1e12},
        {"mfu", 3.4e5 / (0.17 * 8e6)},
        {"mfu_full_attention", 5e5 / (0.17 * 8e6)},
        {"hfu", 6e5 / (0.17 * 8e6)},
        {"imbalance.dp_max_over_mean", 140.0 / 120.0},
        {"imbalance.forward_pack_cv", 0.3},
        {"microbatches", 3.0},
        {"lower_bound_ms", 50.0},
        {"gap", (85.0 - 50.0) / 50.0},
        {"gap_work", (85.0 - 42.5) / 42.5},
        {"solver_ms", 2.0},
        {"simulate_ms", 1.5},
    };
    AUTO(sp_result) r = described();
    add_both(&r);
    json_auto_t *json = sp_result_json(&r, true);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const char *dot = strchr(expected[i].key, '.');
        NEAR(sp_figure_value(&r, expected[i].key) / expected[i].value, 1.0);
        NEAR(real(dot != NULL ? member(json, "imbalance") : json,
                  dot != NULL ? dot + 1 : expected[i].key),
             expected[i].value);
    }
    assert_int_equal(json_integer_value(member(json, "tasks")), 15);
    assert_int_equal(json_integer_value(member(json, "edges")), 27);
    assert_int_equal(json_integer_value(member(json, "seed")), 77);
    assert_int_equal(json_array_size(member(json, "batches")), 2);
    const json_t *batch = json_array_get(member(json, "batches"), 1);
    NEAR(real(batch, "iteration_ms"), 50.0);
    NEAR(real(batch, "bubble_ratio"), 0.5);
}

TEST(memory_is_the_maximum)
{
    AUTO(sp_result) r = described();
    add_both(&r);
    assert_int_equal(r.peak_bytes, 9);
    assert_int_equal(r.peak.of[0], 9);
    assert_int_equal(r.peak.of[1], 0);
    json_auto_t *json = sp_result_json(&r, true);
    NEAR(real(json, "peak_memory_gib"), 9.0 / SP_GIB);
    // Each of the two CP ranks of the two pipeline ranks.
    static const struct {
        double busy_ms, span_ms, peak, units;
    } expected[] = {{40.0, 70.0, 8.0, 2.0}, {50.0, 60.0, 9.0, 4.0}};
    const json_t *ranks = member(json, "ranks");
    assert_int_equal(json_array_size(ranks), 4);
    for (int i = 0; i < 4; i++) {
        json_auto_t *rank = json_pack(
            "{s:i, s:i, s:i, s:f, s:f, s:f, s:f}", "dp", 0, "cp", i % 2, "pp", i / 2, "busy_ms",
            expected[i / 2].busy_ms, "span_ms", expected[i / 2].span_ms, "peak_gib",
            expected[i / 2].peak / SP_GIB, "activation_units_peak", expected[i / 2].units);
        assert_true(json_equal(json_array_get(ranks, (size_t)i), rank));
    }
}

TEST(breakdown_adds_up)
{
    AUTO(sp_result) r = described();
    add_both(&r);
    json_auto_t *json = sp_result_json(&r, false);
    const json_t *parts = member(json, "time_breakdown_ms");
    // Means over two ranks and two batches; the epilogue is over batches alone.
    static const struct {
        const char *key;
        double ms;
    } expected[] = {{"compute", (180.0 - 14.0 - 8.0 - 8.0) / 4.0},
                    {"launch", 10.0 / 4.0},
                    {"tp_comm", 14.0 / 4.0},
                    {"cp_comm", 8.0 / 4.0},
                    {"pp_comm", 10.0 / 4.0},
                    {"dp_comm", 19.0 / 2.0 + 8.0 / 4.0},
                    {"optimizer", 11.0 / 2.0},
                    {"bubble", (280.0 - 180.0 - 10.0) / 4.0}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        NEAR(real(parts, expected[i].key), expected[i].ms);
    }
    const char *key;
    json_t *value;
    double sum = 0.0;
    json_object_foreach ((json_t *)parts, key, value) {
        // Waiting for launches is part of computing.
        sum += strcmp(key, "launch") != 0 ? json_number_value(value) : 0.0;
    }
    NEAR(sum, real(json, "iteration_ms"));
}

// The keys that users script against, and what goes beyond them.
static const char result_keys[] =
    "schema version strategy schedule iteration_ms bubble_ratio bubble_ratio_longest_stage "
    "tokens_per_s tokens_per_gpu_s tflops_per_gpu tflops_per_gpu_causal mfu "
    "mfu_full_attention hfu peak_memory_gib memory_gib peak_memory oom memory_margin_gib "
    "fits fit_probability cp_overlap layout chunks_per_rank error not_validated error_range "
    "waiting_risk "
    "time_breakdown_ms imbalance "
    "microbatches lower_bound_ms gap gap_work limit memory_stall_ms peak_memory_allocator_gib "
    "peak_memory_reserved_gib solver_ms simulate_ms tasks edges model provenance seed "
    "lossless left_out_share cut_share over_length_share warnings uncalibrated batches";
static const char layout_keys[] = "tp cp pp dp chunks";
static const char memory_keys[] =
    "parameters gradients optimizer activations kv_cache kv_gradients logits recompute "
    "workspace communication offloaded";
static const char breakdown_keys[] =
    "compute launch tp_comm cp_comm pp_comm dp_comm optimizer bubble";
static const char imbalance_keys[] = "dp_max_over_mean forward_pack_cv backward_pack_cv";
static const char model_keys[] = "name parameters flops_per_token";
static const char provenance_keys[] = "profile level";
static const char rank_keys[] = "dp cp pp busy_ms span_ms peak_gib activation_units_peak";

// Takes the next of the words off a list; false where there is none.
static bool next_key(const char **list, char key[64])
{
    size_t length = strcspn(*list, " ");
    snprintf(key, 64, "%.*s", (int)length, *list);
    *list += length + ((*list)[length] == ' ');
    return length > 0;
}

static void assert_keys(const json_t *object, const char *keys)
{
    char key[64];
    size_t count = 0;
    for (; next_key(&keys, key); count++) {
        member(object, key);
    }
    assert_int_equal(json_object_size(object), count);
}

// The peak of the largest rank: null until it is known, then what it was given.
TEST(peak_memory_is_listed)
{
    AUTO(sp_result) r = described();
    add_both(&r);
    json_auto_t *json = sp_result_json(&r, false);
    assert_true(json_is_null(member(json, "peak_memory")));
    json_decref(json);
    r.peak_memory = (sp_peak_memory){
        .known = true,
        .dp = 1,
        .pp = 3,
        .at_ns = 5 * MS / 2,
        .action = "F12.1",
        .holders = {{"gradients", SP_MEM_GRADIENTS, INT64_C(3) << 30, 1},
                    {"fc1 output, gate half", SP_MEM_ACTIVATIONS, INT64_C(1) << 29, 47}},
        .count = 2};
    json_auto_t *expected =
        json_pack("{s:i, s:i, s:f, s:s, s:[{s:s, s:s, s:f, s:i}, {s:s, s:s, s:f, s:i}]}", "dp", 1,
                  "pp", 3, "at_ms", 2.5, "action", "F12.1", "holders", "name", "gradients",
                  "category", "gradients", "gib", 3.0, "count", 1, "name", "fc1 output, gate half",
                  "category", "activations", "gib", 0.5, "count", 47);
    json = sp_result_json(&r, false);
    assert_true(json_equal(member(json, "peak_memory"), expected));
}

// A limit of 1000 bytes: comfortable up to 900, tight up to 1000, and no step of more fits. Where
// PyTorch's count is known it says how tight a step is, never that a step is out of memory.
TEST(fits_by_peak_and_limit)
{
    static const struct {
        int64_t peak, reserved_peak, margin;
        const char *fits;
        int warnings;
    } cases[] = {
        {840, 0, 160, "yes", 0},       {900, 0, 100, "yes", 1},        {901, 0, 99, "tight", 1},
        {1000, 0, 0, "tight", 1},      {1001, 0, -1, "no", 0},         {5000, 0, -4000, "no", 0},
        {880, 970, 30, "yes", 1},      {880, 971, 29, "tight", 1},     {905, 840, 160, "yes", 0},
        {990, 1010, -10, "tight", 1},  {1001, 800, 200, "no", 0},      {1001, 1100, -100, "no", 0},
        {990, 1100, -100, "tight", 1}, {400, 3000, -2000, "tight", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO(sp_result) r = described();
        r.memory_limit_bytes = 1000;
        add_both(&r);
        r.peak_bytes = cases[i].peak;
        r.reserved_peak_bytes = cases[i].reserved_peak;
        json_auto_t *json = sp_result_json(&r, false);
        assert_string_equal(json_string_value(member(json, "fits")), cases[i].fits);
        NEAR(real(json, "memory_margin_gib"), (double)cases[i].margin / SP_GIB);
        assert_true(cases[i].reserved_peak == 0 || real(json, "peak_memory_reserved_gib") ==
                                                       (double)cases[i].reserved_peak / SP_GIB);
        assert_int_equal(json_is_true(member(json, "oom")), cases[i].peak > 1000);
        // No step that fits is told to run with probability 0.00, however much PyTorch would
        // reserve.
        assert_true(json_is_true(member(json, "oom")) || real(json, "fit_probability") > 0.1);
        sp_result_warn_of_memory(&r);
        assert_int_equal(r.warnings.count, cases[i].warnings);
        bool told = strstr(r.warnings.text[0], "memory is nearly full: ") != NULL;
        assert_int_equal(told, cases[i].warnings && cases[i].fits[0] == 'y');
    }
    AUTO(sp_result) r = described();
    r.memory_limit_bytes = 0; // none
    add_both(&r);
    assert_int_equal(sp_result_fits(&r), SP_FITS_NONE);
    assert_false(sp_result_is_oom(&r));
}

// Every micro-batch of a rank waits, where the step does not fit well, once for each batch.
TEST(tight_steps_wait)
{
    for (int64_t peak = 850; peak <= 1050; peak += 50) {
        AUTO(sp_result) r = described();
        r.memory_limit_bytes = 1000;
        add_both(&r);
        r.peak_bytes = peak;
        double before_ns = r.iteration_ns;
        double microbatches = 0.0;
        for (size_t i = 0; i < r.batch_count; i++) {
            microbatches += (double)r.batches[i].facts.microbatches / r.layout.dp;
        }
        sp_result_add_stalls(&r, 0.25);
        double expected_ns = peak > 900 ? microbatches * 0.25e9 : 0.0;
        NEAR(r.iteration_ns - before_ns, expected_ns);
        NEAR(r.stall_ns, expected_ns);
    }
}

// The more of its memory a step fills the less likely it runs: surely at half, about half of the
// time where it is tight, never where it needs a tenth more than there is.
TEST(probability_to_fit_falls_with_memory)
{
    sp_result r = {.parameters = 1, .memory_limit_bytes = 1000};
    double before = 1.0;
    for (int64_t peak = 10; peak <= 2000; peak += 10) {
        r.peak_bytes = peak;
        double probability = sp_result_fit_probability(&r);
        assert_true(probability >= 0.0 && probability <= before);
        assert_true(peak > 500 || probability >= 0.99);
        assert_true(peak < 1100 || probability < 0.01);
        before = probability;
    }
    r.peak_bytes = 900;
    r.reserved_peak_bytes = 985;
    assert_int_equal(sp_result_fits(&r), SP_FITS_TIGHT);
    assert_true(fabs(sp_result_fit_probability(&r) - 0.5) < 0.2);
    r.memory_limit_bytes = 0;
    assert_true(isnan(sp_result_fit_probability(&r)));
}

// Megatron's logged peaks are within a percent of what is predicted, where nanotron's steps run out
// of memory (both in results/evidence.md).
TEST(probability_to_fit_is_of_the_framework)
{
    sp_result r = {.parameters = 1, .memory_limit_bytes = 1000, .peak_bytes = 900};
    double of_all = sp_result_fit_probability(&r);
    r.memory_log = SP_LOGGED_BY_MEGATRON;
    assert_true(sp_result_fit_probability(&r) > 0.95);
    assert_true(of_all < 0.95);
}

TEST(error_of_the_profile_is_told)
{
    AUTO(sp_result) r = described();
    add_both(&r);
    r.step_error = (sp_step_error){
        .known = true, .median = 0.03, .p90 = 0.08, .bias = -0.01, .steps = 607, .scope = "some"};
    json_auto_t *json = sp_result_json(&r, false);
    json_auto_t *expected = json_pack("{s:f, s:f, s:f, s:i, s:s}", "median", 0.03, "p90", 0.08,
                                      "bias", -0.01, "steps", 607, "scope", "some");
    assert_true(json_equal(member(json, "error"), expected));
    assert_true(json_is_null(member(json, "not_validated")));
    assert_true(json_is_null(member(json, "error_range")));
    json_decref(expected);
    json_decref(json);
    r.step_error = (sp_step_error){.not_validated = "no logged step has zero 3",
                                   .range = {0.75, 1.5, 20, 4, 12.0},
                                   .waiting = {16, 200, 50}};
    json = sp_result_json(&r, false);
    assert_true(json_is_null(member(json, "error")));
    assert_string_equal(json_string_value(member(json, "not_validated")),
                        "no logged step has zero 3");
    expected = json_pack("{s:f, s:f, s:i, s:i, s:f}", "least", 0.75, "most", 1.5, "steps", 20,
                         "sources", 4, "launch_ms", 12.0);
    assert_true(json_equal(member(json, "error_range"), expected));
    json_decref(expected);
    expected =
        json_pack("{s:f, s:i, s:i, s:i}", "share", 0.25, "nodes", 16, "steps", 200, "sources", 1);
    assert_true(json_equal(member(json, "waiting_risk"), expected));
}

TEST(keys_are_the_documented_ones)
{
    AUTO(sp_result) r = described();
    add_both(&r);
    json_auto_t *json = sp_result_json(&r, false);
    assert_keys(json, result_keys);
    assert_string_equal(json_string_value(member(json, "schema")), "slimpack/result/1");
    assert_keys(member(json, "layout"), layout_keys);
    assert_int_equal(json_integer_value(member(member(json, "layout"), "tp")), r.layout.tp);
    assert_keys(member(json, "memory_gib"), memory_keys);
    assert_keys(member(json, "time_breakdown_ms"), breakdown_keys);
    assert_keys(member(json, "imbalance"), imbalance_keys);
    assert_keys(member(json, "model"), model_keys);
    assert_keys(member(json, "provenance"), provenance_keys);
    assert_string_equal(json_string_value(member(member(json, "provenance"), "level")), "fitted");
    json_decref(json);
    json = sp_result_json(&r, true);
    assert_keys(json_array_get(member(json, "ranks"), 0), rank_keys);
    json_decref(json);
    r.published_bubble_ratio = 0.25;
    json = sp_result_json(&r, false);
    NEAR(real(json, "bubble_ratio_published"), 0.25);
}

// What a batch delays comes again in the next one, so only what is left after the last is lost.
TEST(shares_of_tokens)
{
    const sp_batch_facts facts[] = {
        {.tokens = 1000, .dropped_tokens = 100, .delayed_tokens = 500, .cut_tokens = 100},
        {.tokens = 700, .delayed_tokens = 200, .cut_tokens = 70}};
    AUTO(sp_result) r = described();
    sp_result_add(&r, &first, &facts[0]);
    sp_result_add(&r, &second, &facts[1]);
    r.over_length_share = 0.25;
    json_auto_t *json = sp_result_json(&r, false);
    assert_near(real(json, "left_out_share"), 300.0 / 2000.0, 1e-12, 0.0);
    assert_near(real(json, "cut_share"), 170.0 / 1700.0, 1e-12, 0.0);
    assert_near(real(json, "over_length_share"), 0.25, 1e-12, 0.0);
    json_decref(json);
    r.over_length_share = (double)NAN;
    json = sp_result_json(&r, false);
    assert_true(json_is_null(member(json, "over_length_share")));
}

TEST(empty_result_is_all_null)
{
    json_auto_t *json = sp_result_json_empty();
    assert_non_null(json);
    assert_keys(json, result_keys);
    const char *key;
    json_t *value;
    json_object_foreach (json, key, value) {
        must_hold(json_is_null(value), "%s is not null", key);
    }
}

// Uniform costs know no tokens, no FLOPs, no bytes and (here) no bound: null, and no key is lost.
// jansson refuses to build a NaN, which would drop the key.
TEST(undefined_figures_are_null)
{
    static const char undefined[] =
        "strategy tokens_per_s tokens_per_gpu_s tflops_per_gpu tflops_per_gpu_causal mfu "
        "mfu_full_attention hfu peak_memory_gib memory_gib memory_margin_gib fits fit_probability "
        "error "
        "not_validated error_range waiting_risk lower_bound_ms gap gap_work limit model "
        "left_out_share "
        "cut_share over_length_share";
    AUTO(sp_result) r = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1},
                         .schedule = "1f1b",
                         .level = SP_LEVEL_ASSUMED,
                         .published_bubble_ratio = -1.0};
    sp_batch_facts none = {0};
    sp_result_add(&r, &first, &none);
    json_auto_t *json = sp_result_json(&r, false);
    assert_keys(json, result_keys);
    char key[64];
    for (const char *list = undefined; next_key(&list, key);) {
        must_hold(json_is_null(member(json, key)), "%s is not null", key);
    }
    assert_false(json_is_true(member(json, "oom")));
    assert_true(
        json_is_null(member(json_array_get(member(json, "batches"), 0), "peak_memory_gib")));
    json_decref(json);
    json = sp_result_json(&r, true);
    assert_true(json_is_null(member(json_array_get(member(json, "ranks"), 0), "peak_gib")));
    json_decref(json);
    sp_result_fini(&r);

    // A step without actions takes no time.
    static sp_rank_metrics idle[2];
    sp_step_metrics nothing = {.rank_count = 2, .ranks = idle};
    r = described();
    sp_result_add(&r, &nothing, &none);
    json = sp_result_json(&r, true);
    NEAR(real(json, "iteration_ms"), 0.0);
    NEAR(real(json, "bubble_ratio"), 0.0);
    assert_true(json_is_null(member(json, "mfu")));
}

TEST(warnings_are_said_once)
{
    sp_warnings w = {0};
    for (int i = 0; i < SP_WARNINGS; i++) {
        sp_warnings_add(&w, "warning %d", i);
        sp_warnings_add(&w, "warning %d", i);
    }
    assert_int_equal(w.count, SP_WARNINGS);
    assert_string_equal(w.text[0], "warning 0");
    assert_string_equal(w.text[SP_WARNINGS - 1], "warning 15");
    sp_warnings_add(&w, "one too many");
    assert_int_equal(w.count, SP_WARNINGS);
    assert_string_equal(w.text[SP_WARNINGS - 1], "and further warnings");
}

// A name that is cut short may end within a character.
TEST(a_warning_that_is_no_text_leaves_the_others)
{
    sp_batch_facts none = {0};
    AUTO(sp_result) r = described();
    sp_result_add(&r, &first, &none);
    r.warnings = (sp_warnings){.count = 3, .text = {"before", "cut \xc3", "behind"}};
    json_auto_t *json = sp_result_json(&r, true);
    json_auto_t *expected = json_pack("[s, s]", "before", "behind");
    assert_true(json_equal(member(json, "warnings"), expected));
}

// Texts that differ in amounts alone are one kind, once for each result, with the largest amounts
// and the widest ranges.
TEST(warnings_are_told_by_kind)
{
    sp_warning_kinds kinds = {0};
    static const char *const results[][2] = {{"10 of 1 left", "lengths 5 to 70 (2 to 99)"},
                                             {"slow", "lengths 4 to 60 (2 to 99)"},
                                             {"2 of 9.5 left", "slow"}};
    static const char *const told[] = {"2 of 3 rows: up to 10 of up to 9.5 left",
                                       "2 of 3 rows: lengths 4 to 70 (2 to 99)",
                                       "2 of 3 rows: slow"};
    for (size_t r = 0; r < sizeof results / sizeof results[0]; r++) {
        sp_warnings warnings = {0};
        for (int t = 0; t < 2 && results[r][t][0] != '\0'; t++) {
            sp_warnings_add(&warnings, "%s", results[r][t]);
        }
        sp_warning_kinds_add(&kinds, &warnings);
    }
    assert_int_equal(kinds.count, 3);
    for (size_t k = 0; k < kinds.count; k++) {
        json_auto_t *text = sp_warning_kind_json(&kinds.kind[k], 3, "rows");
        assert_string_equal(json_string_value(text), told[k]);
    }
    sp_free(kinds.kind);
}

// A name that is cut short, as above, loses the character, not the warning.
TEST(a_kind_of_warnings_that_is_no_text_is_told)
{
    const sp_warning_kind kind = {.text = "cut \xc3", .results = 1};
    json_auto_t *text = sp_warning_kind_json(&kind, 1, NULL);
    assert_string_equal(json_string_value(text), "cut ?");
}

// Numbers in names are no amounts.
TEST(names_tell_kinds_of_warnings_apart)
{
    static const struct {
        const char *texts[2];
        int kinds;
    } pairs[] = {
        {{"zero 2: exchanges do not wait", "zero 3: exchanges do not wait"}, 2},
        {{"as bf16 has, about 2.5 GiB", "as fp8 has, about 2.5 GiB"}, 2},
        {{"runs 1f1b", "runs 2f2b"}, 2},
        {{"the 989 TFLOP/s of cluster h100-8", "the 989 TFLOP/s of cluster h100-16"}, 2},
        {{"model qwen2.5-7 is one", "model qwen2.6-7 is one"}, 2},
        {{"dropped: 12 (4096 tokens)", "dropped: 2 (512 tokens)"}, 1},
        {{"memory.offload_ratio 0.25 of rank 3", "memory.offload_ratio 1e-05 of rank 12"}, 1},
        {{"3 of 4 fit", "12 of 40 fit"}, 1},
    };
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
        sp_warning_kinds kinds = {0};
        for (int i = 0; i < 2; i++) {
            sp_warnings warnings = {0};
            sp_warnings_add(&warnings, "%s", pairs[p].texts[i]);
            sp_warning_kinds_add(&kinds, &warnings);
        }
        assert_int_equal(kinds.count, pairs[p].kinds);
        sp_free(kinds.kind);
    }
}
