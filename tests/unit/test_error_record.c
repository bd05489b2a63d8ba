// The error records of a profile: how they are read, which one a step has, and what is said where
// none holds.
#include "sim/cost/error_record.h"

#include "sim/cost/profile.h"
#include "tests/support/flat_profile.h"
#include "tests/support/test_main.h"

#define FIGURES "\"steps\": 607, \"median\": 0.03, \"p90\": 0.08, \"bias\": -0.01"
#define HEAD "{\"scope\": \"some steps\", \"source\": \"a test\", "
#define RECORD(when) HEAD "\"when\": " when ", " FIGURES "}"

// The flat profile with these errors.
static sp_status read(const char *errors, sp_profile *profile)
{
    char override[4000];
    const char *overrides[] = {override, NULL};
    snprintf(override, sizeof override, "errors=%s", errors);
    sp_error_clear(ERR);
    return flat_profile(overrides, profile, ERR);
}

TEST(every_key)
{
    AUTO(sp_profile) profile;
    assert_int_equal(read("[" RECORD("{\"model_parameters\": [1e9, 8e9], \"experts\": 0, \"gpus\": "
                                     "[8, 512], "
                                     "\"tp\": [1, 8], \"tp_nodes\": [1, 1], \"cp\": 1, \"pp\": [1, "
                                     "16], "
                                     "\"zero\": [0, 1], \"context\": 4096, \"chunks\": 1, "
                                     "\"microbatch\": [1, 4], "
                                     "\"microbatches_per_stage\": [2, 8], \"bubble\": [0, 0.12], "
                                     "\"peak_tflops\": 989.4, \"memory_gib\": 80, "
                                     "\"hbm_gb_per_s\": 3350, \"nvlink_gb_per_s\": 450, "
                                     "\"gpus_per_node\": 8, \"nics_per_node\": 8, "
                                     "\"nic_gbit_per_s\": 400, \"schedule\": [\"1f1b\", "
                                     "\"zb-h1\"], \"cluster\": "
                                     "\"h100-8\", \"stack\": "
                                     "[\"one\", \"two\"], \"precision\": \"bf16\", \"attention\": "
                                     "\"flash\", "
                                     "\"recompute\": [\"none\", \"full\"], \"lengths\": "
                                     "\"uniform\"}") ", " RECORD("{}") "]",
                          &profile),
                     SP_OK);
    assert_int_equal(profile.errors.count, 2);
    const sp_error_record *r = &profile.errors.record[0];
    assert_string_equal(r->scope, "some steps");
    assert_string_equal(r->source, "a test");
    assert_int_equal(r->conditions, SP_STEP_FIGURES + SP_STEP_WORDS);
    assert_true(r->least[SP_STEP_PARAMETERS] == 1e9 && r->most[SP_STEP_PARAMETERS] == 8e9);
    assert_true(r->least[SP_STEP_CONTEXT] == 4096 && r->most[SP_STEP_CONTEXT] == 4096);
    assert_string_equal(r->words[SP_STEP_STACK], "one\ntwo");
    assert_int_equal(r->steps, 607);
    assert_true(r->median == 0.03 && r->p90 == 0.08 && r->bias == -0.01);
    assert_int_equal(profile.errors.record[1].conditions, 0);
    sp_profile_fini(&profile);
    assert_int_equal(read("[]", &profile), SP_OK);
    assert_int_equal(profile.errors.count, 0);
}

TEST(refused)
{
    static const struct {
        const char *errors, *message;
    } cases[] = {
        {"3", "flat: errors: expected an array of at most 64 records"},
        {"[3]", "flat: errors[0]: expected an object, got 3"},
        {"[" HEAD FIGURES "}]", "flat: errors[0]: key 'when' is missing"},
        {"[{\"scope\": \"s\", \"when\": {}, " FIGURES "}]",
         "flat: errors[0]: key 'source' is missing"},
        {"[" RECORD("{}") ", " RECORD("{\"gpu\": 8}") "]",
         "flat: errors[1].when: unknown key 'gpu' (did you mean 'gpus'?)"},
        {"[" RECORD("{\"gpus\": [8]}") "]",
         "flat: errors[0].when.gpus: expected a number or [least, most], from 0 to 1e+18, got [8]"},
        {"[" RECORD("{\"gpus\": [16, 8]}") "]", "flat: errors[0].when.gpus: expected a number or "
                                                "[least, most], from 0 to 1e+18, got [16,8]"},
        {"[" RECORD("{\"context\": \"4K\"}") "]",
         "flat: errors[0].when.context: expected a number or [least, most], from 0 to 1e+18, got "
         "\"4K\""},
        {"[" RECORD("{\"precision\": \"fp4\"}") "]",
         "flat: errors[0].when.precision: expected a text or an array of texts among \"bf16\", "
         "\"fp8\", got \"fp4\""},
        {"[" RECORD("{\"stack\": []}") "]",
         "flat: errors[0].when.stack: expected a text or an array of texts, got []"},
        {"[" HEAD "\"when\": {}, \"steps\": 0, \"median\": 0.1, \"p90\": 0.2, \"bias\": 0}]",
         "flat: errors[0].steps: expected an integer from 1 to 1099511627776, got 0"},
        {"[" HEAD "\"when\": {}, \"steps\": 1, \"median\": 0.3, \"p90\": 0.2, \"bias\": 0}]",
         "flat: errors[0].p90: expected at least the median, 0.3, got 0.2"},
        {"[" HEAD "\"when\": {}, \"steps\": 1, \"median\": 0.3, \"p90\": 0.4}]",
         "flat: errors[0]: key 'bias' is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_profile profile;
        assert_int_equal(read(cases[i].errors, &profile), SP_ERR_CONTENT);
        assert_string_equal(ERR->message[0], cases[i].message);
        assert_int_equal(profile.errors.count, 0);
    }
}

// A step of 8e9 parameters on 64 GPUs in 4096 tokens.
static sp_step_kind plain_kind(void)
{
    sp_step_kind kind = {.figure = {8e9, 0, 64, 8, 1, 1, 2, 1, 4096}};
    static const char *const words[SP_STEP_WORDS] = {"h100-8", "one",  "bf16",
                                                     "flash",  "none", "uniform"};
    for (int w = 0; w < SP_STEP_WORDS; w++) {
        snprintf(kind.word[w], sizeof kind.word[w], "%s", words[w]);
    }
    return kind;
}

TEST(nearest_record_tells_why)
{
    sp_step_kind kind = plain_kind();
    sp_step_error found;
    AUTO(sp_profile) profile;
    assert_int_equal(read("[]", &profile), SP_OK);
    sp_step_error_find(&profile.errors, &kind, "flat (assumed)", &found);
    assert_false(found.known);
    assert_string_equal(found.not_validated,
                        "profile flat (assumed) has no record of logged steps");
    assert_int_equal(found.steps, 0);
    sp_profile_fini(&profile);

    assert_int_equal(
        read("[" RECORD("{\"gpus\": [8, 32], \"zero\": 0, \"lengths\": \"mixed\"}") ", " RECORD(
                 "{\"context\": [8192, 16384], \"model_parameters\": [1e9, 7e10], "
                 "\"cluster\": [\"a\", \"b\"]}") "]",
             &profile),
        SP_OK);
    sp_step_error_find(&profile.errors, &kind, "flat (assumed)", &found);
    assert_false(found.known);
    assert_string_equal(found.not_validated,
                        "no logged step has context 4096 (logged: 8192 to 16384), cluster h100-8 "
                        "(logged: a, b); the nearest logged: some steps");
    assert_int_equal(found.steps, 607);
    // Errors of other steps tell nothing of this one.
    assert_true(found.median == 0.0 && found.p90 == 0.0 && found.bias == 0.0);
    assert_string_equal(found.scope, "some steps");
    kind.figure[SP_STEP_CONTEXT] = 8192;
    kind.figure[SP_STEP_PARAMETERS] = 405e9;
    snprintf(kind.word[SP_STEP_CLUSTER], SP_STEP_WORD, "b");
    sp_step_error_find(&profile.errors, &kind, "flat (assumed)", &found);
    assert_string_equal(found.not_validated,
                        "no logged step has model_parameters 405 billion (logged: 1 billion to 70 "
                        "billion); the nearest logged: some steps");
    kind.figure[SP_STEP_PARAMETERS] = 7e10; // bounds belong to a range
    sp_step_error_find(&profile.errors, &kind, "flat (assumed)", &found);
    assert_true(found.known);
    assert_string_equal(found.not_validated, "");
}

// Of a step in every figure unlike the logged ones the first five are named. A bubble that is not
// known yet keeps no record off; figures may be rounded to the six digits of records, and rates of
// a cluster may differ by a tenth.
TEST(unlike_figures_are_named)
{
    sp_step_kind kind = plain_kind();
    sp_step_error found;
    AUTO(sp_profile) profile;
    assert_int_equal(read("[" RECORD("{\"chunks\": 1, \"microbatch\": 1, \"bubble\": [0, 0.1], "
                                     "\"peak_tflops\": 989.4, \"hbm_gb_per_s\": 3350, "
                                     "\"nvlink_gb_per_s\": 450, \"nic_gbit_per_s\": 400, "
                                     "\"microbatches_per_stage\": [4, 8], "
                                     "\"schedule\": \"1f1b\"}") "]",
                          &profile),
                     SP_OK);
    const struct {
        int figure;
        double like, unlike;
    } figures[] = {{SP_STEP_CHUNKS, 1, 2},      {SP_STEP_MICROBATCH, 1, 2},
                   {SP_STEP_BUBBLE, 0.1, 0.48}, {SP_STEP_PEAK, 905, 300},
                   {SP_STEP_HBM, 3650, 1000},   {SP_STEP_NVLINK, 450, 50},
                   {SP_STEP_NIC, 400.001, 10},  {SP_STEP_MICROBATCHES_PER_STAGE, 2, 1.9}};
    enum { COUNT = sizeof figures / sizeof figures[0] };
    snprintf(kind.word[SP_STEP_SCHEDULE], SP_STEP_WORD, "1f1b");
    for (size_t i = 0; i < COUNT; i++) {
        kind.figure[figures[i].figure] = figures[i].like;
    }
    sp_step_error_find(&profile.errors, &kind, "flat", &found);
    assert_true(found.known);
    for (size_t i = 0; i < COUNT; i++) {
        sp_step_kind other = kind;
        other.figure[figures[i].figure] = figures[i].unlike;
        sp_step_error_find(&profile.errors, &other, "flat", &found);
        assert_false(found.known);
        assert_non_null(strstr(found.not_validated, sp_step_figure_names[figures[i].figure]));
    }
    kind.figure[SP_STEP_BUBBLE] = (double)NAN;
    sp_step_error_find(&profile.errors, &kind, "flat", &found);
    assert_true(found.known);
    snprintf(kind.word[SP_STEP_SCHEDULE], SP_STEP_WORD, "zb-h1");
    sp_step_error_find(&profile.errors, &kind, "flat", &found);
    assert_string_equal(found.not_validated,
                        "no logged step has schedule zb-h1 (logged: 1f1b); the "
                        "nearest logged: some steps");
    for (size_t i = 0; i < COUNT; i++) {
        kind.figure[figures[i].figure] = figures[i].unlike;
    }
    sp_step_error_find(&profile.errors, &kind, "flat", &found);
    assert_string_equal(
        found.not_validated,
        "no logged step has chunks 2 (logged: 1), microbatch 2 (logged: 1), "
        "microbatches_per_stage 1.9 (logged: 4 to 8), bubble 0.48 (logged: 0 to "
        "0.1), peak_tflops 300 (logged: 989) and 4 more; the nearest logged: some steps");
}

// The fewer groups were left out, the wider is the interval, and never narrower than what stacks
// change by from a release to the next.
TEST(interval_is_of_another_group_and_a_later_release)
{
    sp_error_record record = {.steps = 10, .median = 0.0};
    const sp_error_records records = {&record, 1};
    const sp_step_kind kind = plain_kind();
    static const struct {
        int folds;
        double decile, p90;
    } cases[] = {{3, 0.4, 0.46576}, {1, 0.4, 0.56886}, {1000000, 0.08, 0.1}, {2, 0.0, 0.06}};
    for (int f = 0; f < SP_STEP_FIGURES; f++) {
        record.least[f] = -HUGE_VAL;
        record.most[f] = HUGE_VAL;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_step_error found;
        record.folds = cases[i].folds;
        record.p90 = cases[i].decile;
        sp_step_error_find(&records, &kind, "p", &found);
        assert_true(found.known && found.differing == 0);
        assert_close(found.p90, cases[i].p90, 1e-4);
    }
}

// The shipped ranges. Those of steps that are far from logged ones reach to what launches may take
// where a layer is short; a step that was compared with nothing has none.
TEST(ranges_of_unlike_steps)
{
    static const double layers_ms[] = {0.1, 1.0, 5.0, 20.0, 1e4};
    static const int differing[] = {1, 3, 4, 25, -1};
    for (size_t d = 0; d < sizeof differing / sizeof differing[0]; d++) {
        sp_error_range longest = sp_error_range_of(differing[d], d % 2, 1e9);
        assert_true(longest.launch_ms == 0.0);
        for (size_t i = 0; i < sizeof layers_ms / sizeof layers_ms[0]; i++) {
            sp_error_range range = sp_error_range_of(differing[d], d % 2, layers_ms[i]);
            assert_true(range.steps >= range.sources && range.sources >= 4);
            assert_true(range.least > 0.0 && range.least == longest.least);
            assert_true(range.most >= longest.most && longest.most > longest.least);
            assert_int_equal(range.launch_ms > 0.0, range.most > longest.most);
            if (range.launch_ms > 0.0) {
                assert_close(range.most, range.launch_ms / layers_ms[i], 1e-9);
            }
        }
    }
    assert_int_equal(sp_error_range_of(0, 0, 1.0).steps, 0);
    assert_int_equal(sp_error_range_of(1, 0, (double)NAN).steps, 0);
    // Steps near logged ones are known best, and launches are in their profile.
    assert_true(sp_error_range_of(1, 0, 0.1).launch_ms == 0.0);
    assert_true(sp_error_range_of(1, 0, 1e9).most < sp_error_range_of(9, 0, 1e9).most);
    assert_true(sp_error_range_of(9, 0, 1.0).most > sp_error_range_of(9, 0, 100.0).most);
    // A changed figure of the cluster, or another stack, was not logged so near.
    assert_true(sp_error_range_of(1, 1, 50.0).most == sp_error_range_of(9, 0, 50.0).most);
}

// A single node waits for no other. Between numbers of nodes that were logged the nearest tells.
TEST(waiting_steps_by_nodes)
{
    assert_int_equal(sp_waiting_steps_of(1.0, false).steps, 0);
    assert_int_equal(sp_waiting_steps_of((double)NAN, false).steps, 0);
    for (int over = 0; over <= 1; over++) {
        for (double nodes = 2.0; nodes < 1e5; nodes *= 2.0) {
            sp_waiting_steps found = sp_waiting_steps_of(nodes, over != 0);
            assert_true(found.steps > 0 && found.nodes > 1);
            assert_true(found.waited >= 0 && found.waited <= found.steps);
            assert_int_equal(found.step_nodes, (int)nodes);
            sp_waiting_steps same = sp_waiting_steps_of(found.nodes, over != 0);
            assert_int_equal(same.nodes, found.nodes);
        }
    }
}

// A record that is widened to steps holds them all, and says what keeps another off.
TEST(record_is_widened)
{
    sp_error_record record = {.steps = 1};
    sp_step_kind kind = plain_kind();
    int foreign;
    for (int f = 0; f < SP_STEP_FIGURES; f++) {
        record.least[f] = HUGE_VAL;
        record.most[f] = -HUGE_VAL;
    }
    kind.figure[SP_STEP_BUBBLE] = 0.123;
    sp_error_record_extend(&record, &kind);
    assert_int_equal(sp_error_record_differing(&record, &kind, &foreign), 0);
    sp_step_kind other = kind;
    other.figure[SP_STEP_GPUS] = 8;
    other.figure[SP_STEP_BUBBLE] = 0.1299; // rounded outwards to a point
    snprintf(other.word[SP_STEP_CLUSTER], SP_STEP_WORD, "another name");
    assert_int_equal(sp_error_record_differing(&record, &other, &foreign), 1);
    assert_int_equal(foreign, 0);
    snprintf(other.word[SP_STEP_STACK], SP_STEP_WORD, "two");
    assert_int_equal(sp_error_record_differing(&record, &other, &foreign), 2);
    assert_int_equal(foreign, 1);
    sp_error_record_extend(&record, &other);
    assert_int_equal(sp_error_record_differing(&record, &other, &foreign), 0);
    assert_int_equal(sp_error_record_differing(&record, &kind, &foreign), 0);
    kind.figure[SP_STEP_GPUS] = 32;
    assert_int_equal(sp_error_record_differing(&record, &kind, &foreign), 0);
}

// A word is one of a list only as a whole.
TEST(words_are_whole)
{
    static const struct {
        const char *stack;
        bool known;
    } cases[] = {{"one", true},   {"one two", true}, {"two", false}, {"on", false},
                 {"one ", false}, {"", false},       {"three", true}};
    AUTO(sp_profile) profile;
    assert_int_equal(
        read("[" RECORD("{\"stack\": [\"one two\", \"one\", \"three\"]}") "]", &profile), SP_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_step_kind kind = plain_kind();
        sp_step_error found;
        snprintf(kind.word[SP_STEP_STACK], SP_STEP_WORD, "%s", cases[i].stack);
        sp_step_error_find(&profile.errors, &kind, "flat", &found);
        assert_int_equal(found.known, cases[i].known);
    }
}

// Do all conditions of a record hold? Without the code under test: figures alone are drawn.
static bool holds(const sp_error_record *r, const sp_step_kind *kind)
{
    bool all = true;
    for (int f = 0; f < SP_STEP_FIGURES; f++) {
        bool is_rate = f >= SP_STEP_PEAK && f != SP_STEP_NODE && f != SP_STEP_NODE_NICS;
        double slack = is_rate ? 1.1 : f == SP_STEP_MICROBATCHES_PER_STAGE ? 2.0 : 1.0;
        all =
            all && r->least[f] <= kind->figure[f] * slack && kind->figure[f] <= r->most[f] * slack;
    }
    return all;
}

// Of random records and steps: what is found holds, nothing that holds has more conditions or, with
// as many, fewer steps; and nothing is found only where nothing holds.
TEST(most_specific_record_is_found)
{
    sp_prng prng = prng_seeded(14);
    int known = 0;
    for (int round = 0; round < 2000; round++) {
        sp_error_record record[6] = {{{0}, {0}, {0}, {0}, {{0}}, 0, 0, 1, 0.0, 0.0, 0.0}};
        sp_error_records records = {record, 1 + prng_below(&prng, 6)};
        sp_step_kind kind = plain_kind();
        for (int i = 0; i < records.count; i++) {
            record[i].folds = 1;
            record[i].steps = 1 + (int64_t)sp_prng_below(&prng, 5);
            record[i].median = 0.01 * (double)(i + 1);
            for (int f = 0; f < SP_STEP_FIGURES; f++) {
                bool bound = sp_prng_below(&prng, 6) == 0;
                record[i].least[f] = bound ? (double)sp_prng_below(&prng, 3) : -HUGE_VAL;
                record[i].most[f] = bound ? record[i].least[f] + 3.0 : HUGE_VAL;
                record[i].conditions += bound;
            }
        }
        for (int f = 0; f < SP_STEP_FIGURES; f++) {
            kind.figure[f] = (double)sp_prng_below(&prng, 6);
        }
        sp_step_error found;
        sp_step_error_find(&records, &kind, "p", &found);
        const sp_error_record *chosen = NULL;
        bool any = false;
        for (int i = 0; i < records.count; i++) {
            any = any || holds(&record[i], &kind);
            chosen = found.known && record[i].median == found.median ? &record[i] : chosen;
        }
        assert_int_equal(found.known, any);
        assert_int_equal(found.known, found.not_validated[0] == '\0');
        known += found.known;
        for (int i = 0; found.known && i < records.count; i++) {
            assert_true(holds(chosen, &kind));
            if (holds(&record[i], &kind)) {
                assert_true(record[i].conditions <= chosen->conditions);
                assert_true(record[i].conditions < chosen->conditions ||
                            record[i].steps >= chosen->steps);
            }
        }
    }
    assert_in_range(known, 200, 1800); // both outcomes were tried
}
