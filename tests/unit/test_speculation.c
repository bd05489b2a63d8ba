// What is drafted, verified and accepted, against closed forms where there are some, and what must
// hold of any trees.
#include "sim/inference/speculation.h"

#include "tests/support/test_main.h"

static const sp_acceptance mixed = {
    .ease = 0.5, .spread = 0.8, .noise = 0.9, .persistence = 0.9, .agreement = 6.0, .blind = 0.02};

static sp_speculation eagle(int depth, int top_k, int nodes)
{
    return (sp_speculation){.method = SP_DECODE_EAGLE,
                            .depth = depth,
                            .top_k = top_k,
                            .nodes = nodes,
                            .extend = true,
                            .prune = true,
                            .alpha = sp_speculation_usual_alpha(depth),
                            .keep = {0.3, 0.6, 1.0},
                            .bins = {.count = 1}};
}

// With borders at which each of the low bins has calls.
static sp_speculation heterospec(int depth, int top_k, int nodes)
{
    sp_speculation how = eagle(depth, top_k, nodes);
    how.method = SP_DECODE_HETEROSPEC;
    how.bins = (sp_bins){.count = 4, .above = {5.0, 6.5, 7.5}};
    return how;
}

// HeteroSpec's own numbers (arXiv 2505.13254, sections 4.2 and 4.3): d = 8 and alpha = 4 give 4, 3
// and 2 layers more; N = 60 gives 0.3 x 60 + 4, 0.6 x 60 + 3 and 60 + 2.
TEST(shapes_of_the_bins)
{
    static const int expected[][2] = {{12, 22}, {11, 39}, {10, 62}, {8, 60}, {8, 60}};
    sp_speculation how = heterospec(8, 10, 60);
    for (int bin = 0; bin < 5; bin++) {
        int depth = 0;
        int nodes = 0;
        sp_speculation_shape(&how, bin, &depth, &nodes);
        assert_int_equal(depth, expected[bin][0]);
        assert_int_equal(nodes, expected[bin][1]);
    }
    assert_int_equal(sp_speculation_most_depth(&how), 12);
    assert_int_equal(sp_speculation_usual_alpha(7), 4);
    how.method = SP_DECODE_EAGLE;
    int depth = 0;
    int nodes = 0;
    sp_speculation_shape(&how, 0, &depth, &nodes);
    assert_int_equal(depth, 8);
    assert_int_equal(nodes, 60);
}

typedef struct tally {
    double tokens, verified, accepted_paths;
    int in_bin[SP_BINS];
} tally;

static tally run(const sp_speculation *how, const sp_acceptance *model, int calls)
{
    tally sum = {0};
    AUTO(sp_draft_tree) tree;
    sp_drafted_sequence sequence;
    sp_draft_tree_init(&tree, how->top_k, sp_speculation_most_depth(how));
    sp_drafted_sequence_begin(&sequence, 11, 0);
    for (int i = 0; i < calls; i++) {
        sp_speculated call;
        sp_speculate(how, model, &sequence, &tree, &call);
        int depth = 0;
        int nodes = 0;
        sp_speculation_shape(how, call.bin, &depth, &nodes);
        assert_true(call.accepted >= 0 && call.accepted <= call.depth);
        assert_int_equal(call.depth, depth);
        assert_true(call.nodes <= nodes && call.accepted < call.nodes);
        assert_true(call.entropy <= how->depth * log(how->top_k) + 1e-9);
        // The end of a path is behind all of it, and verified where all of it is accepted.
        assert_true(call.path_rank >= how->depth || call.path_rank == call.nodes);
        assert_true(!call.path_accepted || call.path_rank < call.nodes);
        sum.tokens += call.accepted + 1;
        sum.verified += call.nodes;
        sum.accepted_paths += call.path_accepted;
        sum.in_bin[call.bin]++;
    }
    return sum;
}

// A chain that accepts each token with probability a yields 1 + a + ... + a^d (Leviathan and
// others, arXiv 2211.17192, equation 1). With c the draft's probability of its first token, a is
// 1 - (1-c)^agreement but for blind spots.
TEST(chains_yield_the_closed_form)
{
    enum { CALLS = 20000 };
    static const double agreements[] = {1.0, 3.0};
    for (int i = 0; i < 2; i++) {
        sp_acceptance even = {.ease = 0.4, .agreement = agreements[i], .blind = 0.05};
        double c = 1.0 / (1.0 + exp(-0.4));
        double a = 0.95 * (1.0 - pow(1.0 - c, agreements[i]));
        for (int depth = 1; depth <= 7; depth += 3) {
            sp_speculation how = eagle(depth, 1, depth + 1);
            double expected = (1.0 - pow(a, depth + 1)) / (1.0 - a);
            // Five standard errors: a call's yield deviates by at most depth / 2.
            double slack = 5.0 * 0.5 * depth / sqrt(CALLS);
            assert_within(run(&how, &even, CALLS).tokens / CALLS, expected, slack);
        }
    }
}

// A tree of one layer of K with all of it verified accepts unless the token is none of the K.
TEST(wide_trees_yield_the_closed_form)
{
    enum { CALLS = 20000, K = 3 };
    sp_acceptance even = {.ease = -0.5, .agreement = 1.0};
    sp_speculation how = eagle(1, K, K + 1);
    double c = 1.0 / (1.0 + exp(0.5));
    assert_within(run(&how, &even, CALLS).tokens / CALLS, 2.0 - pow(1.0 - c, K),
                  5.0 * 0.5 / sqrt(CALLS));
}

TEST(certain_drafts_are_accepted_whole)
{
    sp_acceptance sure = {.ease = 60.0, .agreement = 1.0};
    sp_speculation how = eagle(6, 4, 20);
    assert_within(run(&how, &sure, 50).tokens, 50.0 * 7.0, 0.0);
    sp_acceptance blind = {.ease = 60.0, .agreement = 1.0, .blind = 1.0};
    assert_within(run(&how, &blind, 50).tokens, 50.0, 0.0);
}

TEST(easier_text_yields_more)
{
    sp_speculation how = eagle(8, 10, 60);
    double last = 0.0;
    for (int step = -3; step <= 3; step++) {
        sp_acceptance text = mixed;
        text.ease = step;
        double tokens = run(&how, &text, 800).tokens;
        assert_true(tokens > last);
        last = tokens;
    }
}

TEST(without_its_parts_it_is_eagle)
{
    sp_speculation how = heterospec(8, 10, 60);
    sp_speculation base = eagle(8, 10, 60);
    how.extend = false;
    how.prune = false;
    tally one = run(&how, &mixed, 500);
    tally other = run(&base, &mixed, 500);
    assert_true(one.tokens == other.tokens && one.verified == other.verified);
    assert_true(one.in_bin[0] > 0 && one.in_bin[1] > 0 && one.in_bin[3] > 0);
}

static sp_speculated one_call(const sp_speculation *how, uint64_t index)
{
    AUTO(sp_draft_tree) tree;
    sp_drafted_sequence sequence;
    sp_speculated call;
    sp_draft_tree_init(&tree, how->top_k, sp_speculation_most_depth(how));
    sp_drafted_sequence_begin(&sequence, 13, index);
    sp_speculate(how, &mixed, &sequence, &tree, &call);
    return call;
}

// On equal draws: a tree that is pruned, or less deep, is part of the other one where as many
// tokens are verified as the smaller tree has.
TEST(smaller_trees_accept_no_more)
{
    sp_speculation whole = heterospec(8, 10, 60);
    sp_speculation wider = heterospec(8, 10, 200);
    sp_speculation pruned = whole;
    whole.prune = false;
    int fewer = 0;
    for (uint64_t i = 0; i < 300; i++) {
        sp_speculated all = one_call(&whole, i);
        sp_speculated some = one_call(&pruned, i);
        wider.prune = false;
        sp_speculated more = one_call(&wider, i);
        assert_int_equal(all.bin, some.bin);
        assert_true(all.nodes == some.nodes || all.nodes > some.nodes || all.bin == 2);
        assert_true(some.nodes > all.nodes || some.accepted <= all.accepted);
        assert_true(all.accepted <= more.accepted);
        fewer += some.nodes < all.nodes;
    }
    assert_true(fewer > 30);
}

// Bins that are fitted order the ranks of the meta-path's end: low entropy, near the front.
TEST(fitted_bins_order_the_ranks)
{
    sp_speculation how = heterospec(8, 10, 60);
    sp_speculation_fit_bins(&how, &mixed, 3, 4000);
    assert_int_equal(how.bins.count, SP_BINS);
    sp_speculation plain = eagle(8, 10, 60);
    plain.bins = how.bins;
    AUTO(sp_draft_tree) tree;
    sp_drafted_sequence sequence;
    double rank[2] = {0};
    double accepted[2] = {0};
    double count[2] = {0};
    sp_draft_tree_init(&tree, 10, 8);
    sp_drafted_sequence_begin(&sequence, 17, 0);
    for (int i = 0; i < 3000; i++) {
        sp_speculated call;
        sp_speculate(&plain, &mixed, &sequence, &tree, &call);
        int low = call.bin < SP_LOW_BINS;
        rank[low] += call.path_rank;
        accepted[low] += call.accepted;
        count[low]++;
    }
    assert_true(count[0] > 100 && count[1] > 100);
    assert_true(rank[1] / count[1] < 0.7 * rank[0] / count[0]);
    assert_true(accepted[1] / count[1] > accepted[0] / count[0]);
}

// The largest trees that a scenario may ask for, in the bin that verifies most.
TEST(largest_trees)
{
    sp_speculation how = heterospec(32, SP_DRAFT_TOP_K, SP_DRAFT_NODES);
    how.alpha = 32;
    how.keep[0] = 1.0;
    how.bins = (sp_bins){.count = 2, .above = {1e9}};
    sp_speculated call = one_call(&how, 0);
    assert_int_equal(call.bin, 0);
    assert_int_equal(call.depth, SP_DRAFT_DEPTH);
    assert_int_equal(call.nodes, SP_DRAFT_NODES + 32);
}

// The logit of the first token's probability: its mean is the ease, its deviation within a call the
// noise, and that of the calls' means the spread.
TEST(logits_deviate_as_stated)
{
    enum { CALLS = 4000, TOKENS = 25 };
    static const double deviations[][2] = {{0.0, 0.0}, {0.0, 1.3}, {0.7, 0.0}, {0.4, 0.9}};
    for (int i = 0; i < 4; i++) {
        const sp_acceptance text = {
            .ease = -0.3, .spread = deviations[i][0], .noise = deviations[i][1], .agreement = 2.0};
        sp_drafted_sequence sequence;
        sp_drafted_sequence_begin(&sequence, 4, 0);
        double sum = 0.0;
        double within = 0.0;  // squares about the mean of a call
        double between = 0.0; // of calls about the ease
        for (int call = 0; call < CALLS; call++) {
            double own = 0.0;
            double squares = 0.0;
            sp_drafted_sequence_next(&sequence, &text);
            for (int t = 0; t < TOKENS; t++) {
                sp_draft_row row;
                sp_acceptance_draw(&text, &sequence, 2, &row);
                double logit = row.log_confidence[0] - log1p(-row.confidence[0]);
                own += logit / TOKENS;
                squares += logit * logit;
            }
            sum += own;
            within += squares - TOKENS * own * own;
            between += (own - text.ease) * (own - text.ease);
        }
        double noise = text.noise * text.noise;
        assert_within(sum / CALLS, text.ease, 0.06);
        assert_within(within / CALLS / (TOKENS - 1), noise, 1e-9 + 0.03 * noise);
        double expected = text.spread * text.spread + noise / TOKENS;
        assert_within(between / CALLS, expected, 1e-9 + 0.12 * expected);
    }
}

// A meta-path of two layers, root 0, 1, 3, in a tree that may be drafted on: 5 and 6 are behind its
// end 3, 7 behind another leaf.
TEST(a_path_is_accepted_down_to_its_end)
{
    static const struct {
        int node, accepted;
        bool path;
    } rows[] = {{0, 0, false}, {1, 1, false}, {2, 1, false}, {3, 2, true},
                {4, 2, false}, {5, 3, true},  {6, 4, true},  {7, 3, false}};
    sp_draft_node nodes[] = {{.parent = -1, .depth = 0}, {.parent = 0, .depth = 1},
                             {.parent = 0, .depth = 1},  {.parent = 1, .depth = 2},
                             {.parent = 2, .depth = 2},  {.parent = 3, .depth = 3},
                             {.parent = 5, .depth = 4},  {.parent = 4, .depth = 3}};
    const sp_draft_tree tree = {.nodes = nodes, .count = 8};
    sp_speculation how = heterospec(2, 2, 8);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sp_speculated call = {.path_end = 3, .path_accepted = !rows[i].path};
        sp_speculation_accept(&how, &tree, rows[i].node, &call);
        assert_int_equal(call.accepted, rows[i].accepted);
        assert_int_equal(call.path_accepted, rows[i].path);
    }
}

TEST(sequences_draw_their_own_numbers)
{
    sp_drafted_sequence a;
    sp_drafted_sequence b;
    sp_drafted_sequence_begin(&a, 5, 0);
    sp_drafted_sequence_begin(&b, 5, 1);
    assert_true(a.difficulty != b.difficulty);
    sp_acceptance fixed = {.persistence = 1.0};
    double kept = a.difficulty;
    sp_drafted_sequence_next(&a, &fixed);
    assert_true(a.difficulty == kept);
}

// The difficulty stays a standard normal: mean 0, variance 1, and correlated as stated.
TEST(difficulty_persists)
{
    enum { CALLS = 40000 };
    sp_drafted_sequence sequence;
    sp_drafted_sequence_begin(&sequence, 9, 0);
    double sum = 0.0;
    double squares = 0.0;
    double products = 0.0;
    for (int i = 0; i < CALLS; i++) {
        double before = sequence.difficulty;
        sp_drafted_sequence_next(&sequence, &(sp_acceptance){.persistence = 0.5});
        sum += sequence.difficulty;
        squares += sequence.difficulty * sequence.difficulty;
        products += before * sequence.difficulty;
    }
    assert_within(sum / CALLS, 0.0, 0.05);
    assert_within(squares / CALLS, 1.0, 0.05);
    assert_within(products / CALLS, 0.5, 0.05);
}
