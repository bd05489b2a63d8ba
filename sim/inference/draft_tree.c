#include "sim/inference/draft_tree.h"

#include <math.h>

#include "sim/base/alloc.h"

static void add_children(sp_draft_tree *tree, int parent, const sp_draft_row *row);
static double row_entropy(const sp_draft_row *row, int top_k);
static int best_nodes(const sp_draft_tree *tree, int first, int most, int *best);

sp_status sp_draft_tree_init(sp_draft_tree *tree, int top_k, int most_depth, sp_error *err)
{
    int capacity = 1 + top_k + (most_depth - 1) * top_k * top_k;
    *tree = (sp_draft_tree){.top_k = top_k, .capacity = capacity};
    tree->nodes = sp_calloc((size_t)capacity, sizeof *tree->nodes);
    tree->order = sp_calloc((size_t)capacity, sizeof *tree->order);
    tree->place = sp_calloc((size_t)capacity, sizeof *tree->place);
    (void)err;
    return SP_OK;
}

void sp_draft_tree_fini(sp_draft_tree *tree)
{
    sp_free(tree->nodes);
    sp_free(tree->order);
    sp_free(tree->place);
    *tree = (sp_draft_tree){0};
}

void sp_draft_tree_start(sp_draft_tree *tree, int64_t root_token)
{
    tree->nodes[0] = (sp_draft_node){.parent = -1, .token = root_token};
    tree->count = 1;
    tree->depth = 0;
    tree->frontier[0] = 0;
    tree->frontier_count = 1;
}

void sp_draft_tree_grow(sp_draft_tree *tree)
{
    int first = tree->count;
    SP_ASSERT(first + tree->frontier_count * tree->top_k <= tree->capacity);
    for (int i = 0; i < tree->frontier_count; i++) {
        add_children(tree, tree->frontier[i], &tree->rows[i]);
    }
    tree->depth++;
    tree->frontier_count = best_nodes(tree, first, tree->top_k, tree->frontier);
}

static void add_children(sp_draft_tree *tree, int parent, const sp_draft_row *row)
{
    sp_draft_node *from = &tree->nodes[parent];
    from->entropy = row_entropy(row, tree->top_k);
    for (int c = 0; c < tree->top_k; c++) {
        tree->nodes[tree->count++] = (sp_draft_node){.parent = parent,
                                                     .depth = from->depth + 1,
                                                     .child = c,
                                                     .token = row->token[c],
                                                     .value = from->value + row->log_confidence[c]};
    }
}

// log(sum) - sum p log(p) / sum, which is -sum q log(q) of q = p / sum.
static double row_entropy(const sp_draft_row *row, int top_k)
{
    double sum = 0.0;
    double weighted = 0.0;
    for (int i = 0; i < top_k; i++) {
        double p = row->confidence[i];
        sum += p;
        weighted += p > 0.0 ? p * row->log_confidence[i] : 0.0;
    }
    // The logarithms round: a certain row may come out a little below 0.
    return sum > 0.0 ? fmax(0.0, log(sum) - weighted / sum) : 0.0;
}

// Writes the `most` nodes of the highest value from `first` on, or all there are, in the order of
// sp_draft_tree_rank(): inserts one after the other, so that earlier ones stay before equal ones.
static int best_nodes(const sp_draft_tree *tree, int first, int most, int *best)
{
    double values[SP_DRAFT_RANKED]; // of the best
    int held = 0;
    for (int i = first; i < tree->count; i++) {
        const sp_draft_node *node = &tree->nodes[i];
        if (held == most && !(node->value > values[held - 1])) {
            // Nor is one of the rest of its row.
            i = i > 0 ? i + tree->top_k - 1 - node->child : i;
            continue;
        }
        held += held < most;
        int at = held - 1;
        for (; at > 0 && node->value > values[at - 1]; at--) {
            values[at] = values[at - 1];
            best[at] = best[at - 1];
        }
        values[at] = node->value;
        best[at] = i;
    }
    return held;
}

void sp_draft_tree_rank(sp_draft_tree *tree, int most)
{
    SP_ASSERT(most <= SP_DRAFT_RANKED);
    tree->ranked = best_nodes(tree, 0, most, tree->order);
    for (int i = 0; i < tree->count; i++) {
        tree->place[i] = tree->ranked;
    }
    for (int i = 0; i < tree->ranked; i++) {
        tree->place[tree->order[i]] = i;
    }
}

int sp_draft_tree_best_leaf(const sp_draft_tree *tree)
{
    // The frontier is of the deepest layer, the highest value first.
    return tree->frontier[0];
}

double sp_draft_tree_path_entropy(const sp_draft_tree *tree, int leaf)
{
    double sum = 0.0;
    for (int i = tree->nodes[leaf].parent; i >= 0; i = tree->nodes[i].parent) {
        sum += tree->nodes[i].entropy;
    }
    return sum;
}
