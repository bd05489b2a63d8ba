// Calls, tokens and time of generated text: what must hold of every method, batch and place of the
// draft.
#include "sim/inference/decode.h"

#include "tests/support/decode_case.h"

// Greedy speculation is lossless: every method yields what was asked for, and at most the rest of
// the last call more.
TEST(calls_times_yield_is_the_text)
{
    AUTO(fixture) f;
    begin(&f);
    for (int method = 0; method < 3; method++) {
        f.spec.how.method = (sp_decode_method)method;
        sp_decode_result r = run(&f);
        double least = (double)(f.spec.sequences * f.spec.output_tokens);
        double most = least + (double)(f.spec.sequences * sp_speculation_most_depth(&f.spec.how));
        assert_true((double)r.counts.tokens >= least && (double)r.counts.tokens <= most);
        assert_close((double)r.counts.calls * sp_decode_tokens_per_call(&r.counts),
                     (double)r.counts.tokens, 1e-12);
        int64_t in_bins = 0;
        for (int b = 0; b < SP_BINS; b++) {
            in_bins += r.counts.in_bin[b];
        }
        assert_int_equal(in_bins, r.counts.calls);
    }
}

// The speed-up over plain decoding and the tokens per second say the same of the same text: what
// the last call of a sequence yields too many counts in neither.
TEST(tokens_beyond_those_asked_for_do_not_count)
{
    AUTO(fixture) f;
    begin(&f);
    f.spec.output_tokens = 3;
    f.spec.text.ease = 4.0;
    sp_decode_result r = run(&f);
    assert_true(r.counts.tokens > 27);
    assert_close(sp_decode_tokens_per_s(&r), 27.0 / r.seconds, 1e-12);
    f.spec.how.method = SP_DECODE_PLAIN;
    sp_decode_result plain = run(&f);
    assert_close(sp_decode_tokens_per_s(&r) / sp_decode_tokens_per_s(&plain), r.plain_s / r.seconds,
                 1e-9);
}

// Replicas share the sequences: eight of them take as long as one with the share of the fullest,
// and more of them than sequences make nothing faster.
TEST(replicas_share_the_sequences)
{
    AUTO(fixture) f;
    begin(&f);
    f.spec.how.method = SP_DECODE_PLAIN;
    double one_s = 0.0;
    for (int sequences = 1; sequences <= 3; sequences++) {
        f.layout.dp = 1;
        f.spec.sequences = sequences;
        double alone_s = run(&f).seconds;
        one_s = sequences == 1 ? alone_s : one_s;
        f.layout.dp = 8;
        sp_decode_result few = run(&f);
        assert_close(few.seconds, one_s, 1e-12);
        assert_close(sp_decode_tokens_per_s(&few), sequences * 60.0 / one_s, 1e-12);
        f.spec.sequences = 8 * sequences - 7;
        assert_close(run(&f).seconds, alone_s, 1e-12);
    }
}

TEST(parts_make_up_the_time)
{
    AUTO(fixture) f;
    begin(&f);
    sp_decode_result r = run(&f);
    const sp_decode_counts *c = &r.counts;
    assert_close(c->draft_s + c->verify_s + c->host_s + c->miss_s + c->transfer_s - c->hidden_s,
                 r.seconds, 1e-9);
    assert_close(c->host_s, 0.5e-3 * (double)c->steps, 1e-9);
    assert_close(c->miss_s, 2e-3 * (double)c->graph_misses, 1e-9);
    assert_true(r.seconds < r.plain_s);
}

// Acceptance is fitted to some trees and one draft; the profile to sizes of a training step.
TEST(what_rests_on_no_data_is_named)
{
    const struct {
        int depth, top_k, nodes;
        bool extrapolates;
    } trees[] = {{8, 10, 48, false}, {8, 10, 60, false}, {8, 10, 61, true},
                 {8, 10, 47, true},  {8, 9, 60, true},   {7, 10, 60, true}};
    AUTO(fixture) f;
    begin(&f);
    sp_decode_machine machine = {.model = &f.model, .layout = &f.layout};
    sp_decode_result known = {.replica_sequences = f.spec.batch};
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        sp_warnings warnings = {.count = 0};
        f.spec.how.depth = trees[i].depth;
        f.spec.how.top_k = trees[i].top_k;
        f.spec.how.nodes = trees[i].nodes;
        sp_decode_warnings(&f.spec, &machine, &known, &warnings);
        assert_int_equal(warnings.count, trees[i].extrapolates);
    }
    sp_warnings all = {.count = 0};
    sp_decode_result unknown = {.host_unknown = true, .replica_sequences = f.spec.batch};
    f.spec.draft_kind = SP_DRAFT_MODEL;
    sp_decode_warnings(&f.spec, &machine, &unknown, &all);
    assert_int_equal(all.count, 3);
    assert_non_null(strstr(all.text[0], "decode.call_ms"));
    assert_non_null(strstr(all.text[1], "extrapolated"));
    assert_non_null(strstr(all.text[2], "EAGLE-3's draft"));
    f.spec.how.method = SP_DECODE_PLAIN;
    all.count = 0;
    sp_decode_warnings(&f.spec, &machine, &known, &all);
    assert_int_equal(all.count, 0);
}

TEST(replicas_without_sequences_are_named)
{
    AUTO(fixture) f;
    begin(&f);
    f.spec.how.method = SP_DECODE_PLAIN;
    f.layout.dp = 8;
    sp_decode_machine machine = {.model = &f.model, .layout = &f.layout};
    for (f.spec.sequences = 7; f.spec.sequences <= 8; f.spec.sequences++) {
        for (f.spec.batch = 1; f.spec.batch <= 2; f.spec.batch++) {
            sp_warnings warnings = {.count = 0};
            sp_decode_result r = run(&f);
            sp_decode_warnings(&f.spec, &machine, &r, &warnings);
            assert_int_equal(warnings.count, (f.spec.sequences < 8) + (f.spec.batch > 1));
        }
    }
}

// What a sequence draws does not depend on the others of its batch.
TEST(batches_yield_the_same)
{
    AUTO(fixture) f;
    begin(&f);
    sp_decode_result alone = run(&f);
    f.spec.batch = 4;
    sp_decode_result by_policy[3];
    for (int policy = 0; policy < 3; policy++) {
        f.spec.policy = (sp_batch_policy)policy;
        by_policy[policy] = run(&f);
        assert_int_equal(by_policy[policy].counts.calls, alone.counts.calls);
        assert_int_equal(by_policy[policy].counts.tokens, alone.counts.tokens);
        assert_true(by_policy[policy].seconds < alone.seconds);
        assert_true(by_policy[policy].counts.steps < alone.counts.steps);
    }
    assert_int_equal(by_policy[SP_BATCH_RAGGED].counts.verified, alone.counts.verified);
    assert_true(by_policy[SP_BATCH_PAD].counts.verified > alone.counts.verified);
    assert_int_equal(by_policy[SP_BATCH_PAD].counts.steps, by_policy[SP_BATCH_RAGGED].counts.steps);
    assert_true(by_policy[SP_BATCH_BUCKET].counts.steps > by_policy[SP_BATCH_PAD].counts.steps);
}

// Pruning pays once verification is bound by FLOPs, not by reading weights.
TEST(pruning_pays_in_large_batches)
{
    AUTO(fixture) f;
    begin(&f);
    f.spec.policy = SP_BATCH_RAGGED;
    f.spec.text.ease = 3.0;
    double gain[2];
    for (int large = 0; large < 2; large++) {
        f.spec.batch = large ? 64 : 1;
        f.spec.sequences = large ? 64 : 9;
        f.spec.how.prune = false;
        double whole = run(&f).counts.verify_s;
        f.spec.how.prune = true;
        gain[large] = whole / run(&f).counts.verify_s;
    }
    assert_true(gain[1] > gain[0] + 0.05);
}

TEST(kept_graphs_save_captures)
{
    AUTO(fixture) f;
    begin(&f);
    f.spec.graphs = 1;
    sp_decode_result last_alone = run(&f);
    f.spec.graphs = 64;
    sp_decode_result kept = run(&f);
    assert_true(last_alone.counts.graph_misses > kept.counts.graph_misses);
    // EAGLE's shape and one for each bin of low entropy.
    assert_true(kept.counts.graph_misses >= 2 && kept.counts.graph_misses <= 1 + SP_LOW_BINS);
    f.spec.graphs = 0;
    sp_decode_result none = run(&f);
    assert_int_equal(none.counts.graph_misses, none.counts.steps);
    f.spec.how.method = SP_DECODE_EAGLE;
    f.spec.graphs = 1;
    assert_int_equal(run(&f).counts.graph_misses, 1);
}

// EAGLE's trees, over which a speed-up is told, have graphs of their own number: of the same number
// they are the method itself.
TEST(trees_of_eagle_have_their_own_graphs)
{
    AUTO(fixture) f;
    begin(&f);
    f.spec.how.method = SP_DECODE_EAGLE;
    sp_decode_result same = run(&f);
    assert_memory_equal(&same.eagle, &same.counts, sizeof same.counts);
    assert_true(same.eagle_s == same.seconds && same.counts.graph_misses == 1);
    f.spec.eagle_graphs = 0;
    for (int method = SP_DECODE_EAGLE; method <= SP_DECODE_HETEROSPEC; method++) {
        f.spec.how.method = (sp_decode_method)method;
        sp_decode_result r = run(&f);
        assert_int_equal(r.eagle.graph_misses, r.eagle.steps);
        assert_int_equal(r.eagle.steps, same.counts.steps);
        assert_close(r.eagle_s - same.eagle_s, 2e-3 * (double)(r.eagle.steps - 1), 1e-9);
        assert_true(r.counts.graph_misses <= 1 + SP_LOW_BINS);
    }
    f.spec.graphs = 0;
    f.spec.eagle_graphs = 64;
    sp_decode_result none = run(&f);
    assert_int_equal(none.counts.graph_misses, none.counts.steps);
    assert_true(none.eagle.graph_misses == 1 && none.eagle_s == same.eagle_s);
}

static bool bins_equal(const sp_bins *a, const sp_bins *b)
{
    bool equal = a->count == b->count;
    for (int i = 0; equal && i + 1 < a->count; i++) {
        equal = a->above[i] == b->above[i];
    }
    return equal;
}

// Bins are fitted to text of the training's ease, and are those of a text that is as easy itself.
TEST(bins_are_those_of_the_training_text)
{
    AUTO(fixture) f;
    begin(&f);
    sp_decode_result own = run(&f);
    assert_true(own.training_ease == f.spec.text.ease);
    f.spec.training_ease = 2.0;
    sp_decode_result trained = run(&f);
    assert_true(trained.training_ease == 2.0 && trained.text.ease == f.spec.text.ease);
    assert_false(bins_equal(&trained.how.bins, &own.how.bins));
    f.spec.text.ease = 2.0;
    f.spec.training_ease = (double)NAN;
    sp_decode_result easy = run(&f);
    assert_true(bins_equal(&trained.how.bins, &easy.how.bins));
}

// An ease that follows from the training's tokens a call makes EAGLE yield as many.
TEST(training_text_yields_its_tokens)
{
    AUTO(fixture) f;
    begin(&f);
    f.spec.sequences = 80;
    f.spec.training_tokens_per_call = 4.2;
    sp_decode_result trained = run(&f);
    assert_true(trained.text.ease == f.spec.text.ease);
    f.spec.training_tokens_per_call = 0.0;
    f.spec.text.ease = trained.training_ease;
    sp_decode_result r = run(&f);
    assert_close(sp_decode_tokens_per_call(&r.eagle), 4.2, 0.01);
    assert_true(bins_equal(&trained.how.bins, &r.how.bins));
}

// The host is unknown where neither says what it adds; 0 is said, too. Plain tokens need nothing of
// it.
TEST(an_unknown_host_is_told)
{
    static const struct {
        double call_ms, profile_s;
        sp_decode_method method;
        bool unknown;
        double host_s;
    } rows[] = {{-1.0, 0.0, SP_DECODE_EAGLE, true, 0.0},
                {-1.0, 3e-4, SP_DECODE_EAGLE, false, 3e-4},
                {0.0, 3e-4, SP_DECODE_EAGLE, false, 0.0},
                {0.0, 0.0, SP_DECODE_HETEROSPEC, false, 0.0},
                {-1.0, 0.0, SP_DECODE_PLAIN, false, 0.0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        AUTO(fixture) f;
        begin(&f);
        f.spec.call_ms = rows[i].call_ms;
        f.spec.how = (sp_speculation){
            .method = rows[i].method, .depth = 8, .top_k = 10, .nodes = 60, .alpha = 4};
        f.profile.decode.call_s = rows[i].profile_s;
        sp_profile_join(&f.profile, &f.cluster);
        sp_decode_machine machine = machine_of(&f);
        sp_decode_result r = run(&f);
        json_auto_t *json = sp_decode_result_json(&f.spec, &machine, &r);
        assert_int_equal(r.host_unknown, rows[i].unknown);
        assert_int_equal(r.host_of_profile, rows[i].host_s > 0.0);
        // And the flat profile is of no A800.
        assert_int_equal(json_array_size(json_object_get(json, "warnings")),
                         1 + (rows[i].unknown || rows[i].host_s > 0.0));
        assert_close(json_real_value(json_object_get(json, "host_share")),
                     (r.counts.host_s + r.counts.miss_s) / r.seconds, 1e-9);
        assert_close(r.counts.host_s, rows[i].host_s * (double)r.counts.steps, 1e-9);
    }
}

TEST(an_ease_is_found)
{
    AUTO(fixture) f;
    begin(&f);
    f.spec.how.method = SP_DECODE_EAGLE;
    f.spec.sequences = 80;
    for (int wanted = 2; wanted <= 4; wanted += 2) {
        f.spec.tokens_per_call = wanted;
        sp_decode_result r = run(&f);
        // The search looks at the run's own sequences.
        assert_close(sp_decode_tokens_per_call(&r.counts), wanted, 0.01);
    }
    sp_decode_machine machine = machine_of(&f);
    sp_decode_result result;
    // As near the end of the range as at it: where none are blind a certain text yields 6 a call.
    const double beyond[] = {5.5, 5.9, 6.0};
    f.spec.text.blind = 0.9;
    for (int i = 0; i < 3; i++) {
        f.spec.tokens_per_call = beyond[i];
        must_fail_with(sp_decode_run(&f.spec, &machine, &result, ERR), SP_ERR_CONTENT,
                       "tokens: too many are blind, or differ by spread and noise; 1.1");
    }
    f.spec.text = (sp_acceptance){.agreement = 6.0};
    must_succeed(sp_decode_run(&f.spec, &machine, &result, ERR));
}

TEST(documents_have_every_figure)
{
    AUTO(fixture) f;
    begin(&f);
    sp_decode_machine machine = machine_of(&f);
    sp_decode_result r = run(&f);
    json_auto_t *json = sp_decode_result_json(&f.spec, &machine, &r);
    assert_non_null(json);
    assert_close(json_real_value(json_object_get(json, "speedup_over_plain")),
                 r.plain_s / r.seconds, 1e-12);
    assert_int_equal(json_array_size(json_object_get(json, "bins")), r.how.bins.count);
    assert_true(json_array_size(json_object_get(json, "not_modelled")) >= 4);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(json, "provenance"), "level")),
        "assumed");
}
