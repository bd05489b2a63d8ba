// What decoding holds: weights, keys and values of the fullest rank, and the draft.
#include "tests/support/decode_case.h"

// Bytes of a norm, of a layer's matrices and of a table of llama-3-8b.
static const int64_t norm = 2 * 4096;
static const int64_t matrices = 2 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336);
static const int64_t table = 2 * INT64_C(128256) * 4096;

// Matrices and tables are shared, norms each rank has whole: two in a layer and the last.
TEST(two_gpus_hold_half_each_and_all_norms)
{
    AUTO(fixture) f;
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
}

// EAGLE's one layer, with queries, keys and values of two hidden states, the projection of three,
// and tables of 32000 tokens, is beside the target's last layer.
TEST(the_fullest_pipeline_rank_counts)
{
    const int64_t draft =
        matrices + 2 * (4096 * 6144 + 3 * 4096 * 4096 + 2 * INT64_C(32000) * 4096) + 3 * norm;
    int layers[] = {16, 16};
    AUTO(fixture) f;
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
}

// What is fitted to the limit, with keys and values and without a byte less, on the fullest rank.
TEST(it_fits_where_the_fullest_rank_does)
{
    int layers[] = {24, 8};
    AUTO(fixture) f;
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
}

// Keys and values of all sequences to their end, and of the tree that is verified there, in 32
// layers of the target and in the draft's one.
TEST(keys_and_values_are_held_to_the_end)
{
    AUTO(fixture) f;
    begin(&f);
    f.spec.batch = 3;
    double tokens = 3.0 * (100.0 + 60.0 + 24.0);
    assert_close((double)run(&f).memory.kv_cache, tokens * 33.0 * KV_BYTES, 1e-12);
    f.layout.pp = 2;
    assert_close((double)run(&f).memory.kv_cache, tokens * (16.0 + 1.0) * KV_BYTES, 1e-12);
    f.spec.how.method = SP_DECODE_PLAIN;
    assert_close((double)run(&f).memory.kv_cache, 3.0 * (100.0 + 60.0) * 16.0 * KV_BYTES, 1e-12);
}

// Of sequences that there are, however large the batch.
TEST(a_batch_is_no_larger_than_its_sequences)
{
    AUTO(fixture) f;
    begin(&f);
    f.spec.how.method = SP_DECODE_PLAIN;
    f.spec.sequences = 2;
    f.spec.batch = 64;
    assert_close((double)run(&f).memory.kv_cache, 2.0 * (100.0 + 60.0) * 32.0 * KV_BYTES, 1e-12);
}

// A draft with GPUs of its own has to fit there, though the target's have room.
TEST(a_draft_apart_fits_its_own_gpu)
{
    AUTO(fixture) f;
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
}

// Eight heads of keys and values on sixteen ranks: each is held by two.
TEST(ranks_share_heads)
{
    static const double heads[][2] = {{1, 8.0}, {8, 1.0}, {16, 1.0}};
    AUTO(fixture) f;
    begin(&f);
    for (int i = 0; i < 3; i++) {
        f.layout.tp = (int)heads[i][0];
        assert_close((double)sp_kv_bytes(&f.model, &f.layout), 2.0 * 2.0 * heads[i][1] * 128.0,
                     1e-12);
    }
}
