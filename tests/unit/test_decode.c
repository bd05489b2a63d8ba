// Calls, tokens and time of generated text: what must hold of every method, batch and place of the
// draft.
#include "sim/inference/decode_json.h"
#include "sim/inference/decode_private.h"

#include "tests/support/flat_profile.h"

typedef struct fixture {
    sp_model model;
    sp_cluster cluster;
    sp_profile profile;
    sp_stack stack;
    sp_layout layout;
    sp_decode_spec spec;
} fixture;

static void begin(fixture *f)
{
    *f = (fixture){.layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1}};
    must_succeed(sp_model_builtin("llama-3-8b", &f->model, ERR));
    must_succeed(sp_cluster_builtin("a800-8", &f->cluster, ERR));
    must_succeed(flat_profile(NULL, &f->profile, ERR));
    f->cluster.nodes = 1;
    sp_stack_builtin("ours", &f->stack);
    f->spec = (sp_decode_spec){.how = {.method = SP_DECODE_HETEROSPEC,
                                       .depth = 5,
                                       .top_k = 6,
                                       .nodes = 24,
                                       .extend = true,
                                       .prune = true,
                                       .alpha = 3,
                                       .keep = {0.3, 0.6, 1.0}},
                               .text = {.ease = 0.5,
                                        .spread = 0.8,
                                        .noise = 0.9,
                                        .persistence = 0.9,
                                        .agreement = 6.0,
                                        .blind = 0.02},
                               .training_ease = (double)NAN,
                               .sequences = 9,
                               .prompt_tokens = 100,
                               .output_tokens = 60,
                               .batch = 1,
                               .graphs = 64,
                               .eagle_graphs = 64,
                               .draft_tp = 1,
                               .call_ms = 0.5,
                               .graph_miss_ms = 2.0,
                               .seed = 1};
}

static sp_decode_machine machine_of(const fixture *f)
{
    return (sp_decode_machine){&f->model, &f->cluster, &f->profile,
                               &f->stack, &f->layout,  INT64_C(80) << 30};
}

static sp_decode_result run(const fixture *f)
{
    sp_decode_machine machine = machine_of(f);
    sp_decode_result result;
    must_succeed(sp_decode_run(&f->spec, &machine, &result, ERR));
    return result;
}

// Greedy speculation is lossless: every method yields what was asked for, and at most the rest of
// the last call more.
TEST(calls_times_yield_is_the_text)
{
    fixture f;
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
    sp_profile_fini(&f.profile);
}

// The speed-up over plain decoding and the tokens per second say the same of the same text: what
// the last call of a sequence yields too many counts in neither.
TEST(tokens_beyond_those_asked_for_do_not_count)
{
    fixture f;
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
    sp_profile_fini(&f.profile);
}

// Replicas share the sequences: eight of them take as long as one with the share of the fullest,
// and more of them than sequences make nothing faster.
TEST(replicas_share_the_sequences)
{
    fixture f;
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
    sp_profile_fini(&f.profile);
}

TEST(parts_make_up_the_time)
{
    fixture f;
    begin(&f);
    sp_decode_result r = run(&f);
    const sp_decode_counts *c = &r.counts;
    assert_close(c->draft_s + c->verify_s + c->host_s + c->miss_s + c->transfer_s - c->hidden_s,
                 r.seconds, 1e-9);
    assert_close(c->host_s, 0.5e-3 * (double)c->steps, 1e-9);
    assert_close(c->miss_s, 2e-3 * (double)c->graph_misses, 1e-9);
    assert_true(r.seconds < r.plain_s);
    sp_profile_fini(&f.profile);
}

// A GEMM of one row takes the time to read its weights: a token takes all of them, and the keys and
// values of the tokens before. FLAT has no launches; all else of a token is a few rows of hidden
// states.
TEST(plain_tokens_read_weights_once)
{
    fixture f;
    begin(&f);
    f.spec.how.method = SP_DECODE_PLAIN;
    f.spec.sequences = 1;
    f.spec.output_tokens = 1;
    f.spec.prompt_tokens = 4000;
    sp_decode_result r = run(&f);
    double weights =
        2.0 * (double)(sp_model_parameters(&f.model) - sp_model_embedding_parameters(&f.model));
    double kv = 4000.0 * 32.0 * 2.0 * 2.0 * 8.0 * 128.0;
    assert_close(r.seconds, (weights + kv) / FLAT_MEMORY_BYTES_PER_S, 0.01);
    assert_true(r.seconds == r.plain_s);
    // The next two tokens see one and two more.
    f.spec.output_tokens = 3;
    assert_close(run(&f).seconds - 3.0 * r.seconds,
                 (1.0 + 2.0) * kv / 4000.0 / FLAT_MEMORY_BYTES_PER_S, 1e-6);
    f.spec.output_tokens = 1;
    f.spec.batch = 8;
    f.spec.sequences = 8;
    // Eight sequences share the weights and have keys and values of their own.
    assert_close(run(&f).seconds, (weights + 8.0 * kv) / FLAT_MEMORY_BYTES_PER_S, 0.01);
    sp_profile_fini(&f.profile);
}

// Of eight experts one token reads its two; n tokens 8 (1 - (6/8)^n) of them; very many all.
TEST(few_tokens_read_few_experts)
{
    fixture f;
    begin(&f);
    must_succeed(sp_model_builtin("mixtral-8x7b", &f.model, ERR));
    f.spec.how.method = SP_DECODE_PLAIN;
    f.spec.prompt_tokens = 0;
    f.spec.output_tokens = 1;
    const double expert = 2.0 * 32.0 * 3.0 * 4096.0 * 14336.0;
    double others =
        2.0 * (double)(sp_model_parameters(&f.model) - sp_model_embedding_parameters(&f.model)) -
        8.0 * expert;
    for (int sequences = 1; sequences <= 64; sequences *= 4) {
        f.spec.batch = sequences;
        f.spec.sequences = sequences;
        double touched = 8.0 * (1.0 - pow(0.75, sequences));
        assert_close(run(&f).seconds, (others + touched * expert) / FLAT_MEMORY_BYTES_PER_S, 0.02);
    }
    sp_profile_fini(&f.profile);
}

// Acceptance is fitted to some trees and one draft; the profile to sizes of a training step.
TEST(what_rests_on_no_data_is_named)
{
    const struct {
        int depth, top_k, nodes;
        bool extrapolates;
    } trees[] = {{8, 10, 48, false}, {8, 10, 60, false}, {8, 10, 61, true},
                 {8, 10, 47, true},  {8, 9, 60, true},   {7, 10, 60, true}};
    fixture f;
    begin(&f);
    const char *warnings[SP_DECODE_WARNINGS + 1];
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        const sp_decode_result known = {.host_unknown = false};
        f.spec.how.depth = trees[i].depth;
        f.spec.how.top_k = trees[i].top_k;
        f.spec.how.nodes = trees[i].nodes;
        sp_decode_warnings(&f.spec, &known, warnings);
        assert_int_equal(warnings[0] != NULL, trees[i].extrapolates);
    }
    const sp_decode_result unknown = {.host_unknown = true};
    f.spec.draft_kind = SP_DRAFT_MODEL;
    sp_decode_warnings(&f.spec, &unknown, warnings);
    assert_non_null(strstr(warnings[0], "decode.call_ms"));
    assert_non_null(strstr(warnings[1], "extrapolated"));
    assert_non_null(strstr(warnings[2], "EAGLE-3's draft"));
    assert_null(warnings[3]);
    f.spec.how.method = SP_DECODE_PLAIN;
    sp_decode_warnings(&f.spec, &(sp_decode_result){.host_unknown = false}, warnings);
    assert_null(warnings[0]);
    sp_profile_fini(&f.profile);
}

static sp_i_call_time price(const fixture *f, const sp_i_turn *turns, int count, bool padded)
{
    sp_decode_machine machine = machine_of(f);
    sp_i_call_pricer pricer;
    sp_i_call_time time;
    sp_i_call_pricer_init(&pricer, &f->spec, &machine);
    sp_i_call_price(&pricer, turns, count, padded, &time);
    return time;
}

static sp_i_turn turn_of(double context, int fresh, int depth, int nodes)
{
    return (sp_i_turn){context, fresh, {.depth = depth, .nodes = nodes}};
}

// Keys and values of a token in a layer, and FLOPs of a pair, of llama-3-8b.
#define KV_BYTES (2.0 * 2.0 * 8.0 * 128.0)
#define PAIR_FLOPS (4.0 * 4096.0)

// Of EAGLE-3's one layer: queries, keys and values see two hidden states side by side, the rest of
// the layer is the target's, the head knows 32000 tokens. The first forward has a projection of
// three hidden states beside.
TEST(a_forward_of_the_draft_reads_its_weights_and_its_context)
{
    const double weights =
        2.0 * 4096.0 * 6144.0 + 4096.0 * 4096.0 + 3.0 * 4096.0 * 14336.0 + 4096.0 * 32000.0;
    const double joined = 3.0 * 4096.0 * 4096.0;
    const double context = 1e6;
    fixture f;
    begin(&f);
    f.spec.how.top_k = 1; // a token in each forward
    sp_i_turn turn = turn_of(context, 1, 1, 24);
    double first_s = price(&f, &turn, 1, false).draft_s;
    turn.call.depth = 2;
    double next_s = price(&f, &turn, 1, false).draft_s - first_s;
    assert_close(next_s, (2.0 * weights + context * KV_BYTES) / FLAT_MEMORY_BYTES_PER_S, 0.01);
    assert_close(first_s - next_s, 2.0 * joined / FLAT_MEMORY_BYTES_PER_S, 0.01);
    // Many tokens at once are bound by FLOPs, each by its own.
    const sp_i_turn many[] = {turn_of(context, 5000, 1, 24), turn_of(0.5 * context, 5000, 1, 24)};
    assert_close(price(&f, &many[0], 1, false).draft_s - price(&f, &many[1], 1, false).draft_s,
                 5000.0 * 0.5 * context * PAIR_FLOPS / FLAT_GEMM_FLOPS_PER_S, 0.001);
    sp_profile_fini(&f.profile);
}

// Each token attends to what came before and to half of those beside it; all else grows with the
// tokens.
TEST(verification_of_many_is_bound_by_flops)
{
    const double rows = 100000.0;
    const double pairs_per_s = FLAT_GEMM_FLOPS_PER_S / (32.0 * PAIR_FLOPS);
    fixture f;
    begin(&f);
    const sp_i_turn turns[] = {turn_of(0.0, 1, 0, (int)rows), turn_of(0.0, 1, 0, 2 * (int)rows),
                               turn_of(5e4, 1, 0, (int)rows)};
    double one_s = price(&f, &turns[0], 1, false).verify_s;
    double twice_s = price(&f, &turns[1], 1, false).verify_s;
    double later_s = price(&f, &turns[2], 1, false).verify_s;
    assert_close(twice_s - 2.0 * one_s, rows * rows / pairs_per_s, 0.01);
    assert_close(later_s - one_s, rows * 5e4 / pairs_per_s, 0.01);
    sp_profile_fini(&f.profile);
}

// A padded tree is drafted to the end with its own context read in each forward.
TEST(padding_drafts_and_verifies_for_all)
{
    const sp_i_turn turns[] = {turn_of(1e6, 1, 1, 4), turn_of(2e6, 1, 3, 9)};
    fixture f;
    begin(&f);
    sp_i_call_time padded = price(&f, turns, 2, true);
    sp_i_call_time ragged = price(&f, turns, 2, false);
    assert_int_equal(padded.depth, 3);
    assert_int_equal(ragged.depth, 3);
    assert_int_equal(padded.nodes, 18);
    assert_int_equal(ragged.nodes, 13);
    assert_close(padded.draft_s - ragged.draft_s, 2.0 * 1e6 * KV_BYTES / FLAT_MEMORY_BYTES_PER_S,
                 0.01);
    sp_profile_fini(&f.profile);
}

// A certain text, so that each call yields six tokens: the draft gets three hidden states of the
// prompt's last token, then of six at a time, and sends tokens back.
TEST(features_of_accepted_tokens_travel)
{
    fixture f;
    begin(&f);
    f.spec.how.method = SP_DECODE_EAGLE;
    f.spec.text = (sp_acceptance){.ease = 12.0, .agreement = 6.0};
    f.spec.draft_apart = true;
    f.spec.sequences = 1;
    sp_decode_result r = run(&f);
    assert_int_equal(r.counts.calls, 10);
    assert_int_equal(r.counts.draft_forwards, 50);
    assert_close(r.counts.transfer_s,
                 (1.0 + 9.0 * 6.0) * 3.0 * 2.0 * 4096.0 / FLAT_NVLINK_BYTES_PER_S +
                     20.0 * FLAT_NVLINK_LATENCY_S,
                 1e-9);
    sp_profile_fini(&f.profile);
}

// While the target verifies one half the other is drafted: the longer of the two counts, and then
// the halves change places. EAGLE's layer is the shorter side; seven layers of the target are the
// longer one for two sequences.
TEST(halves_of_a_batch_take_turns)
{
    for (int kind = SP_DRAFT_EAGLE; kind <= SP_DRAFT_MODEL; kind++) {
        fixture f;
        begin(&f);
        f.spec.how.method = SP_DECODE_EAGLE;
        f.spec.draft_kind = (sp_draft_kind)kind;
        f.spec.draft = f.model;
        f.spec.draft.layers = 7; // five forwards of which take a little longer than the target's
        f.spec.draft_apart = true;
        f.spec.prompt_tokens = 4000000;
        f.spec.output_tokens = 1;
        f.spec.sequences = 3;
        f.spec.batch = 3;
        const sp_i_turn turn = turn_of(4e6, 1, 5, 24);
        const sp_i_turn turns[] = {turn, turn, turn};
        sp_i_call_time all = price(&f, turns, 3, true);
        sp_i_call_time one = price(&f, turns, 1, true);
        sp_i_call_time two = price(&f, turns, 2, true);
        double together = fmax(one.draft_s + one.transfer_s, two.verify_s + two.host_s) +
                          fmax(two.draft_s + two.transfer_s, one.verify_s + one.host_s);
        double apart = all.draft_s + all.transfer_s + all.verify_s + all.host_s;
        assert_true(apart > together);
        assert_close(run(&f).counts.hidden_s, apart - together, 1e-9);
        sp_profile_fini(&f.profile);
    }
}

// Bytes of a norm, of a layer's matrices and of a table of llama-3-8b.
static const int64_t norm = 2 * 4096;
static const int64_t matrices = 2 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336);
static const int64_t table = 2 * INT64_C(128256) * 4096;

// Matrices and tables are shared, norms each rank has whole: two in a layer and the last.
TEST(two_gpus_hold_half_each_and_all_norms)
{
    fixture f;
    begin(&f);
    double one = run(&f).plain_s;
    assert_int_equal(run(&f).memory.target, 32 * matrices + 2 * table + 65 * norm);
    f.layout.tp = 2;
    sp_decode_result r = run(&f);
    assert_int_equal(r.memory.target, 16 * matrices + table + 65 * norm);
    assert_true(r.plain_s < one && r.plain_s > 0.5 * one);
    f.layout.tp = 1;
    f.layout.pp = 2;
    // Pipeline ranks wait for each other.
    assert_true(run(&f).plain_s > one);
    sp_profile_fini(&f.profile);
}

// EAGLE's one layer, with queries, keys and values of two hidden states, the projection of three,
// and tables of 32000 tokens, is beside the target's last layer.
TEST(the_fullest_pipeline_rank_counts)
{
    const int64_t draft =
        matrices + 2 * (4096 * 6144 + 3 * 4096 * 4096 + 2 * INT64_C(32000) * 4096) + 3 * norm;
    int layers[] = {16, 16};
    fixture f;
    begin(&f);
    const int64_t kv = (100 + 60 + 24) * (int64_t)KV_BYTES; // of a layer
    f.layout.pp = 2;
    f.layout.stage_layers = layers;
    sp_decode_memory memory = run(&f).memory;
    assert_int_equal(memory.target, 16 * matrices + table + 33 * norm);
    assert_int_equal(memory.draft, draft);
    assert_int_equal(memory.kv_cache, 17 * kv);
    // The rank of the embedding has no last norm.
    layers[0] = 20;
    layers[1] = 12;
    memory = run(&f).memory;
    assert_int_equal(memory.target, 20 * matrices + table + 40 * norm);
    assert_int_equal(memory.draft, 0);
    assert_int_equal(memory.kv_cache, 20 * kv);
    sp_profile_fini(&f.profile);
}

// What is fitted to the limit, with keys and values and without a byte less, on the fullest rank.
TEST(it_fits_where_the_fullest_rank_does)
{
    int layers[] = {24, 8};
    fixture f;
    begin(&f);
    f.spec.how.method = SP_DECODE_PLAIN;
    f.layout.pp = 2;
    f.layout.stage_layers = layers;
    sp_decode_machine machine = machine_of(&f);
    sp_decode_result result;
    sp_decode_memory memory = run(&f).memory;
    machine.memory_limit_bytes = memory.target + memory.kv_cache;
    must_succeed(sp_decode_run(&f.spec, &machine, &result, ERR));
    assert_true(result.fits);
    machine.memory_limit_bytes--;
    must_succeed(sp_decode_run(&f.spec, &machine, &result, ERR));
    assert_false(result.fits);
    sp_profile_fini(&f.profile);
}

// Keys and values of all sequences to their end, and of the tree that is verified there, in 32
// layers of the target and in the draft's one.
TEST(keys_and_values_are_held_to_the_end)
{
    fixture f;
    begin(&f);
    f.spec.batch = 3;
    double tokens = 3.0 * (100.0 + 60.0 + 24.0);
    assert_close((double)run(&f).memory.kv_cache, tokens * 33.0 * KV_BYTES, 1e-12);
    f.layout.pp = 2;
    assert_close((double)run(&f).memory.kv_cache, tokens * (16.0 + 1.0) * KV_BYTES, 1e-12);
    f.spec.how.method = SP_DECODE_PLAIN;
    assert_close((double)run(&f).memory.kv_cache, 3.0 * (100.0 + 60.0) * 16.0 * KV_BYTES, 1e-12);
    sp_profile_fini(&f.profile);
}

// Of sequences that there are, however large the batch.
TEST(a_batch_is_no_larger_than_its_sequences)
{
    fixture f;
    begin(&f);
    f.spec.how.method = SP_DECODE_PLAIN;
    f.spec.sequences = 2;
    f.spec.batch = 64;
    assert_close((double)run(&f).memory.kv_cache, 2.0 * (100.0 + 60.0) * 32.0 * KV_BYTES, 1e-12);
    sp_profile_fini(&f.profile);
}

// A draft with GPUs of its own has to fit there, though the target's have room.
TEST(a_draft_apart_fits_its_own_gpu)
{
    fixture f;
    begin(&f);
    f.layout.tp = 8;
    f.spec.draft_kind = SP_DRAFT_MODEL;
    f.spec.draft = f.model;
    f.spec.draft_apart = true;
    sp_decode_machine machine = machine_of(&f);
    sp_decode_result result;
    const int64_t draft =
        32 * matrices + 2 * table + 65 * norm + (100 + 60 + 24) * 32 * (int64_t)KV_BYTES;
    for (int less = 0; less < 2; less++) {
        machine.memory_limit_bytes = draft - less;
        must_succeed(sp_decode_run(&f.spec, &machine, &result, ERR));
        assert_int_equal(result.memory.apart, draft);
        assert_int_equal(result.fits, !less);
    }
    assert_true(sp_decode_memory_bytes(&result.memory) < machine.memory_limit_bytes);
    sp_profile_fini(&f.profile);
}

// Eight heads of keys and values on sixteen ranks: each is held by two.
TEST(ranks_share_heads)
{
    static const double heads[][2] = {{1, 8.0}, {8, 1.0}, {16, 1.0}};
    fixture f;
    begin(&f);
    for (int i = 0; i < 3; i++) {
        f.layout.tp = (int)heads[i][0];
        assert_close((double)sp_kv_bytes(&f.model, &f.layout), 2.0 * 2.0 * heads[i][1] * 128.0,
                     1e-12);
    }
    sp_profile_fini(&f.profile);
}

// What a sequence draws does not depend on the others of its batch.
TEST(batches_yield_the_same)
{
    fixture f;
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
    sp_profile_fini(&f.profile);
}

// Pruning pays once verification is bound by FLOPs, not by reading weights.
TEST(pruning_pays_in_large_batches)
{
    fixture f;
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
    sp_profile_fini(&f.profile);
}

TEST(kept_graphs_save_captures)
{
    fixture f;
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
    sp_profile_fini(&f.profile);
}

// EAGLE's trees, over which a speed-up is told, have graphs of their own number: of the same number
// they are the method itself.
TEST(trees_of_eagle_have_their_own_graphs)
{
    fixture f;
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
    sp_profile_fini(&f.profile);
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
    fixture f;
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
    sp_profile_fini(&f.profile);
}

// An ease that follows from the training's tokens a call makes EAGLE yield as many.
TEST(training_text_yields_its_tokens)
{
    fixture f;
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
    sp_profile_fini(&f.profile);
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
        fixture f;
        begin(&f);
        f.spec.call_ms = rows[i].call_ms;
        f.spec.how = (sp_speculation){
            .method = rows[i].method, .depth = 8, .top_k = 10, .nodes = 60, .alpha = 4};
        f.profile.decode.call_s = rows[i].profile_s;
        sp_decode_machine machine = machine_of(&f);
        sp_decode_result r = run(&f);
        json_t *json = sp_decode_result_json(&f.spec, &machine, &r);
        assert_int_equal(r.host_unknown, rows[i].unknown);
        assert_int_equal(json_array_size(json_object_get(json, "warnings")), rows[i].unknown);
        assert_close(r.counts.host_s, rows[i].host_s * (double)r.counts.steps, 1e-9);
        json_decref(json);
        sp_profile_fini(&f.profile);
    }
}

static double forward_s(const fixture *f, double rows)
{
    sp_forward_pricer pricer;
    sp_forward_pricer_init(&pricer, &f->profile, &f->cluster, &f->stack, &f->model, &f->layout);
    return sp_forward_s(&pricer,
                        &(sp_forward){.rows = rows, .kv_tokens = 10.0, .pairs = rows * 10.0});
}

// Hidden states go from one pipeline rank to the next, in a node or to another; all else of a
// forward is what one GPU does. 600 rows are not priced once for all.
TEST(pipeline_ranks_hand_over_hidden_states)
{
    static const double rows[] = {1.0, 37.0, 600.0};
    for (int i = 0; i < 3; i++) {
        fixture f;
        begin(&f);
        double bytes = rows[i] * 2.0 * 4096.0;
        double one_s = forward_s(&f, rows[i]);
        f.layout.pp = 4;
        assert_close(forward_s(&f, rows[i]) - one_s,
                     3.0 * (bytes / FLAT_NVLINK_BYTES_PER_S + FLAT_NVLINK_LATENCY_S), 1e-6);
        f.layout.pp = 16; // of which 8 are in a node
        f.cluster.nodes = 2;
        double crossing_s =
            sp_time_p2p(&(sp_op_timer){.cluster = &f.cluster, .profile = &f.profile}, bytes, 1);
        assert_close(forward_s(&f, rows[i]) - one_s,
                     14.0 * (bytes / FLAT_NVLINK_BYTES_PER_S + FLAT_NVLINK_LATENCY_S) + crossing_s,
                     1e-6);
        assert_true(crossing_s > FLAT_NIC_LATENCY_S);
        sp_profile_fini(&f.profile);
    }
}

// Two sums of hidden states in each layer, one of the embedding, and three numbers a row of the
// head: of two ranks each byte goes once, and half the rate takes as long again.
TEST(tensor_parallel_ranks_add_up_hidden_states)
{
    static const char *const halved[] = {"links.nvlink_gb_per_s=100", NULL};
    fixture f;
    fixture slow;
    begin(&f);
    begin(&slow);
    sp_profile_fini(&slow.profile);
    must_succeed(flat_profile(halved, &slow.profile, ERR));
    assert_close(forward_s(&slow, 20.0), forward_s(&f, 20.0), 1e-12);
    f.layout.tp = 2;
    slow.layout.tp = 2;
    assert_close(forward_s(&slow, 20.0) - forward_s(&f, 20.0),
                 20.0 * ((2.0 * 32.0 + 1.0) * 2.0 * 4096.0 + 12.0) / FLAT_NVLINK_BYTES_PER_S, 1e-6);
    sp_profile_fini(&f.profile);
    sp_profile_fini(&slow.profile);
}

TEST(a_draft_apart_hides_behind_the_target)
{
    fixture f;
    begin(&f);
    f.spec.batch = 4;
    sp_decode_result together = run(&f);
    f.spec.draft_apart = true;
    sp_decode_result apart = run(&f);
    const sp_decode_counts *c = &apart.counts;
    assert_true(c->transfer_s > 0.0 && c->hidden_s >= 0.0);
    assert_true(c->hidden_s <= c->draft_s + c->transfer_s);
    assert_true(apart.seconds <= together.seconds + c->transfer_s + 1e-12);
    assert_true(apart.memory.draft == 0 && together.memory.draft > 0);
    // One sequence has nothing to draft meanwhile.
    f.spec.batch = 1;
    assert_true(run(&f).counts.hidden_s == 0.0);
    sp_profile_fini(&f.profile);
}

TEST(a_model_drafts)
{
    fixture f;
    begin(&f);
    double layer = run(&f).counts.draft_s;
    f.spec.draft_kind = SP_DRAFT_MODEL;
    f.spec.draft = f.model;
    f.spec.draft.layers = 8;
    sp_decode_result r = run(&f);
    // Eight layers of the target's and a head of its whole vocabulary in place of one layer.
    assert_true(r.counts.draft_s > 4.0 * layer);
    assert_true(r.memory.draft > 0);
    sp_profile_fini(&f.profile);
}

TEST(an_ease_is_found)
{
    fixture f;
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
    sp_profile_fini(&f.profile);
}

TEST(memory_runs_out)
{
    fixture f;
    begin(&f);
    f.spec.sequences = 1;
    f.spec.output_tokens = 4;
    sp_decode_machine machine = machine_of(&f);
    for (memory_failures failing = {0}; memory_fails(&failing);) {
        sp_decode_result result;
        sp_error_clear(ERR);
        memory_try(&failing, sp_decode_run(&f.spec, &machine, &result, ERR), ERR);
    }
    sp_profile_fini(&f.profile);
}

TEST(documents_have_every_figure)
{
    fixture f;
    begin(&f);
    sp_decode_machine machine = machine_of(&f);
    sp_decode_result r = run(&f);
    json_t *json = sp_decode_result_json(&f.spec, &machine, &r);
    assert_non_null(json);
    assert_close(json_real_value(json_object_get(json, "speedup_over_plain")),
                 r.plain_s / r.seconds, 1e-12);
    assert_int_equal(json_array_size(json_object_get(json, "bins")), r.how.bins.count);
    assert_true(json_array_size(json_object_get(json, "not_modelled")) >= 4);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(json, "provenance"), "level")),
        "assumed");
    json_decref(json);
    sp_profile_fini(&f.profile);
}
