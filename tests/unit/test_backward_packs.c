// Backward packs: mirrored block by block, or regrouped by backward work with slices cut in both
// passes.
#include "solver/slimpack/slimpack_search.h"
#include "tests/support/drawn_packs.h"
#include "tests/support/test_main.h"

enum { MOST_ENDS = 1 << 16 };

static double end_s[MOST_ENDS];
static double target_s[MOST_ENDS];
static drawn_batch d;

static void make(const sp_i_shape *shape, sp_packing *packing)
{
    sp_i_needs needs = {0};
    sp_i_rank_samples samples = drawn_samples(&d, 0, 1);
    sp_packing_init(packing, &d.batch, 1);
    sp_i_micropacks_make(&drawn_work, &d.batch, &samples, shape, packing, &needs);
    assert_pack_rules(packing);
    assert_needs(packing, &needs);
    sp_free(needs.pack);
}

// Samples as given by { sample, tokens } in forward packs that zeros end.
static void by_hand(const int64_t (*slices)[2], size_t count, sp_packing *packing)
{
    int64_t done[DRAWN_SAMPLES] = {0};
    size_t samples = 0;
    for (size_t i = 0; i < count; i++) {
        if (slices[i][1] > 0) {
            size_t sample = (size_t)slices[i][0];
            d.tokens[sample] = slices[i][1] + (sample < samples ? d.tokens[sample] : 0);
            samples = sample + 1 > samples ? sample + 1 : samples;
        }
    }
    drawn_batch_of(&d, samples);
    sp_packing_init(packing, &d.batch, 1);
    sp_pack_list_begin(&packing->forward, 0, 1);
    for (size_t i = 0; i < count; i++) {
        int64_t sample = slices[i][0];
        int64_t tokens = slices[i][1];
        if (tokens == 0) {
            sp_pack_list_begin(&packing->forward, 0, 1);
            continue;
        }
        sp_slice slice = {.sample = (int32_t)sample,
                          .begin = done[sample],
                          .tokens = tokens,
                          .computed_tokens = tokens};
        done[sample] += tokens;
        sp_pack_list_add(&packing->forward, slice, done[sample] == d.tokens[sample]);
    }
}

// Three packs that sample 1 ties together, one alone, two tied by sample 4.
static const int64_t three_blocks[][2] = {{0, 100}, {1, 200}, {0, 0}, {1, 300}, {0, 0},
                                          {1, 50},  {2, 70},  {0, 0}, {3, 90},  {0, 0},
                                          {4, 80},  {0, 0},   {4, 40}};
static const uint8_t three_blocks_tied[] = {1, 1, 0, 0, 1, 0};

enum { BY_HAND = sizeof three_blocks / sizeof three_blocks[0] };

// Blocks in the order of the forward, the packs of each from the last to the first.
TEST(mirrored_blocks)
{
    static const int32_t packs[] = {2, 1, 0, 3, 5, 4};
    static const int32_t waits_for[] = {2, 2, 2, 3, 5, 5};
    AUTO(sp_packing) packing;
    sp_i_needs needs = {0};
    by_hand(three_blocks, BY_HAND, &packing);
    sp_i_backward_mirror(three_blocks_tied, 0, &packing, &needs);
    assert_pack_rules(&packing);
    assert_needs(&packing, &needs);
    assert_int_equal(packing.backward.count, 6);
    for (size_t k = 0; k < 6; k++) {
        const sp_pack *forward = &packing.forward.packs[packs[k]];
        const sp_pack *backward = &packing.backward.packs[k];
        assert_int_equal(backward->tokens, forward->tokens);
        assert_int_equal(backward->pairs2, forward->pairs2);
        assert_int_equal(backward->kv_tokens, forward->kv_tokens);
        assert_int_equal(needs.pack[k], waits_for[k]);
    }
    sp_free(needs.pack);
}

// All packs of a block but the last ones run forward again, or all.
TEST(retained_packs)
{
    static const bool again[][6] = {{true, true, true, true, true, true},
                                    {false, false, false, false, false, false},
                                    {true, true, false, false, true, false},
                                    {true, false, false, false, false, false},
                                    {false, false, false, false, false, false}};
    for (int retained = SP_I_RETAINS_NONE; retained < 4; retained++) {
        AUTO(sp_packing) packing;
        by_hand(three_blocks, BY_HAND, &packing);
        sp_i_backward_mirror(three_blocks_tied, retained, &packing, NULL);
        for (size_t k = 0; k < 6; k++) {
            assert_int_equal(packing.forward.packs[k].runs_again, again[retained + 1][k]);
        }
    }
}

// One pack takes everything, and none is cut.
TEST(one_backward_pack)
{
    const sp_i_shape shape = {.backward = {.flat = 1, .grow = 1.0, .shrink = 1.0},
                              .slice_tokens = 10};
    AUTO(sp_packing) packing;
    sp_i_needs needs = {0};
    by_hand(three_blocks, BY_HAND, &packing);
    size_t slices = packing.forward.slice_count;
    sp_i_backward_regroup(&drawn_work, &shape, three_blocks_tied, &packing, &needs);
    assert_pack_rules(&packing);
    assert_needs(&packing, &needs);
    assert_int_equal(packing.backward.count, 1);
    assert_int_equal(packing.backward.slice_count, slices);
    assert_int_equal(packing.forward.slice_count, slices);
    sp_free(needs.pack);
}

// Work of tokens alone: packs of exactly the targets wherever these are multiples of a slice.
TEST(cuts_at_exact_targets)
{
    const sp_i_work linear = {{0.0, 1e-6, 0.0}, {0.0, 2e-6, 0.0}, NULL};
    static const int64_t long_one[][2] = {{0, 3000}, {0, 0}, {0, 3000}, {0, 0}, {0, 3000}};
    static const uint8_t tied[] = {1, 1, 0};
    for (int packs = 1; packs <= 90; packs++) {
        if (90 % packs != 0) {
            continue;
        }
        sp_i_shape shape = {.backward = {.flat = packs, .grow = 1.0, .shrink = 1.0},
                            .slice_tokens = 100};
        AUTO(sp_packing) packing;
        by_hand(long_one, sizeof long_one / sizeof long_one[0], &packing);
        sp_i_backward_regroup(&linear, &shape, tied, &packing, NULL);
        assert_pack_rules(&packing);
        assert_int_equal(packing.forward.count, 3);
        assert_int_equal(packing.backward.count, packs);
        for (int k = 0; k < packs; k++) {
            assert_int_equal(packing.backward.packs[k].tokens, 9000 / packs);
        }
    }
}

// Any samples, any tapers: packs end within a slice, or within a short sample, of their targets.
TEST_ROUNDS(work_follows_the_backward_taper, 101, 1500)
{
    draw_batch(prng, 100 + sp_prng_below(prng, 30000), &d);
    sp_i_shape shape = draw_shape(prng);
    shape.regrouped = true;
    AUTO(sp_packing) packing;
    make(&shape, &packing);
    double total_s = 0.0;
    double whole_s = 0.0; // the longest sample that the forward has not cut
    double rest = 0.0;
    for (size_t i = 0; i < packing.backward.slice_count; i++) {
        const sp_slice *slice = &packing.backward.slices[i];
        double work_s = backward_work_s(&drawn_work, slice->begin, slice->tokens);
        total_s += work_s;
        if (slice->tokens == d.tokens[slice->sample]) {
            whole_s = fmax(whole_s, work_s);
        } else {
            rest = fmax(rest, (double)d.tokens[slice->sample]);
        }
    }
    double slice_s = backward_work_s(&drawn_work, (int64_t)rest, shape.slice_tokens);
    size_t packs = (size_t)sp_i_taper_packs(&shape.backward);
    sp_i_taper_targets(&shape.backward, total_s, target_s);
    pack_ends(&drawn_work, &packing.backward, true, end_s);
    assert_true(packing.backward.count <= packs);
    assert_ends_meet(end_s, packing.backward.count, target_s, packs,
                     fmax(whole_s, rest > 0.0 ? slice_s : 0.0) * (1.0 + 1e-9));
}

// The forward packs keep their samples and tokens when their slices are cut for the backward.
TEST_ROUNDS(forward_packs_stay, 103, 300)
{
    draw_batch(prng, 100 + sp_prng_below(prng, 30000), &d);
    sp_i_shape shape = draw_shape(prng);
    AUTO(sp_packing) mirrored, regrouped;
    shape.regrouped = false;
    make(&shape, &mirrored);
    shape.regrouped = true;
    make(&shape, &regrouped);
    assert_int_equal(mirrored.forward.count, regrouped.forward.count);
    for (size_t k = 0; k < mirrored.forward.count; k++) {
        assert_int_equal(mirrored.forward.packs[k].tokens, regrouped.forward.packs[k].tokens);
        assert_int_equal(mirrored.forward.packs[k].pairs2, regrouped.forward.packs[k].pairs2);
    }
}
