// Trees of drafted tokens against their definition, on random rows: which nodes there are, which
// ones grow on, which ones are verified.
#include "sim/inference/speculation.h"

#include "tests/support/test_main.h"

enum { ROUNDS = 40, MOST_DEPTH = 9 };

typedef struct drawn_tree {
    sp_draft_tree tree;
    int top_k, depth;
} drawn_tree;

// Descending, often with equal values.
static void draw_row(sp_prng *prng, int top_k, sp_draft_row *row)
{
    double p = 1.0;
    for (int i = 0; i < top_k; i++) {
        p *= prng_below(prng, 3) == 0 ? 1.0 : 0.1 + 0.9 * sp_prng_uniform(prng);
        row->confidence[i] = p;
        row->log_confidence[i] = log(p);
        row->token[i] = prng_below(prng, 1000);
    }
}

static void grow(drawn_tree *drawn, sp_prng *prng)
{
    for (int i = 0; i < drawn->tree.frontier_count; i++) {
        draw_row(prng, drawn->top_k, &drawn->tree.rows[i]);
    }
    sp_draft_tree_grow(&drawn->tree);
}

static drawn_tree draw_tree(sp_prng *prng)
{
    drawn_tree drawn = {.top_k = 1 + prng_below(prng, 12),
                        .depth = 1 + prng_below(prng, MOST_DEPTH)};
    sp_draft_tree_init(&drawn.tree, drawn.top_k, drawn.depth);
    sp_draft_tree_start(&drawn.tree, 7);
    for (int layer = 0; layer < drawn.depth; layer++) {
        grow(&drawn, prng);
    }
    return drawn;
}

static bool is_before(const sp_draft_tree *tree, int a, int b)
{
    double x = tree->nodes[a].value;
    double y = tree->nodes[b].value;
    return x > y || (x == y && a < b);
}

// K children of the root, then K of each of K nodes (EAGLE-2, section 4.1).
TEST_ROUNDS(layers_have_their_nodes, 1, ROUNDS)
{
    drawn_tree drawn = draw_tree(prng);
    int k = drawn.top_k;
    assert_int_equal(drawn.tree.count, 1 + k + (drawn.depth - 1) * k * k);
    assert_int_equal(drawn.tree.nodes[0].token, 7);
    for (int i = 1; i < drawn.tree.count; i++) {
        const sp_draft_node *node = &drawn.tree.nodes[i];
        const sp_draft_node *parent = &drawn.tree.nodes[node->parent];
        assert_true(node->parent < i);
        assert_int_equal(node->depth, parent->depth + 1);
        assert_true(node->value <= parent->value);
    }
    sp_draft_tree_fini(&drawn.tree);
}

// Counting, for each node of the deepest layer, those before it.
TEST_ROUNDS(the_best_of_a_layer_grow_on, 2, ROUNDS)
{
    drawn_tree drawn = draw_tree(prng);
    const sp_draft_tree *tree = &drawn.tree;
    for (int i = 0; i < tree->count; i++) {
        int before = 0;
        for (int j = 0; j < tree->count; j++) {
            before += tree->nodes[j].depth == drawn.depth && is_before(tree, j, i);
        }
        bool deepest = tree->nodes[i].depth == drawn.depth;
        if (deepest && before < drawn.top_k) {
            assert_int_equal(tree->frontier[before], i);
        }
    }
    assert_int_equal(sp_draft_tree_best_leaf(tree), tree->frontier[0]);
    sp_draft_tree_fini(&drawn.tree);
}

TEST_ROUNDS(the_best_nodes_are_a_tree, 3, ROUNDS)
{
    drawn_tree drawn = draw_tree(prng);
    sp_draft_tree *tree = &drawn.tree;
    int most = 1 + prng_below(prng, 80);
    sp_draft_tree_rank(tree, most);
    assert_int_equal(tree->ranked, most < tree->count ? most : tree->count);
    assert_int_equal(tree->place[0], 0);
    for (int i = 0; i < tree->count; i++) {
        int before = 0;
        for (int j = 0; j < tree->count; j++) {
            before += is_before(tree, j, i);
        }
        assert_int_equal(tree->place[i], before < tree->ranked ? before : tree->ranked);
        if (i > 0 && tree->place[i] < tree->ranked) {
            assert_true(tree->place[tree->nodes[i].parent] < tree->place[i]);
        }
    }
    sp_draft_tree_fini(tree);
}

// Rows of K equal confidences have log K each, and no row has more; certain rows have none.
TEST_ROUNDS(entropy_is_bounded, 4, ROUNDS)
{
    drawn_tree drawn = draw_tree(prng);
    double entropy = sp_draft_tree_path_entropy(&drawn.tree, sp_draft_tree_best_leaf(&drawn.tree));
    assert_true(entropy >= 0.0);
    assert_true(entropy <= drawn.depth * log(drawn.top_k) + 1e-9);
    sp_draft_tree_fini(&drawn.tree);
}

static double entropy_of_rows(double confidence, double factor)
{
    enum { K = 4, DEPTH = 5 };
    AUTO(sp_draft_tree) tree;
    sp_draft_tree_init(&tree, K, DEPTH);
    sp_draft_tree_start(&tree, 0);
    for (int layer = 0; layer < DEPTH; layer++) {
        for (int i = 0; i < K; i++) {
            double p = confidence;
            for (int c = 0; c < K; c++) {
                tree.rows[i].confidence[c] = p;
                tree.rows[i].log_confidence[c] = log(p);
                p *= factor;
            }
        }
        sp_draft_tree_grow(&tree);
    }
    return sp_draft_tree_path_entropy(&tree, sp_draft_tree_best_leaf(&tree));
}

TEST(entropy_of_known_rows)
{
    assert_close(entropy_of_rows(0.1, 1.0), 5.0 * log(4.0), 1e-12);
    assert_within(entropy_of_rows(1.0, 0.0), 0.0, 1e-12);
    // 8/15, 4/15, 2/15, 1/15 whatever they add up to before.
    double row = log(15.0) - (8.0 * log(8.0) + 4.0 * log(4.0) + 2.0 * log(2.0)) / 15.0;
    assert_close(entropy_of_rows(0.4, 0.5), 5.0 * row, 1e-12);
}
