// The tree of tokens that a draft model proposes for one pass of the target (EAGLE-2, arXiv
// 2406.16858, section 4; EAGLE-3, arXiv 2503.01840). It does not know where confidences come from:
// a model of acceptance (acceptance.h) and real models (backends/host/speculation) grow the same
// tree.
#ifndef SLIMPACK_SIM_INFERENCE_DRAFT_TREE_H
#define SLIMPACK_SIM_INFERENCE_DRAFT_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/status.h"

enum { SP_DRAFT_TOP_K = 32, SP_DRAFT_DEPTH = 64, SP_DRAFT_NODES = 1024 }; // at most
enum { SP_DRAFT_RANKED = SP_DRAFT_NODES + SP_DRAFT_DEPTH }; // HeteroSpec adds a few to its N

// The most confident next tokens that the draft sees behind one node, descending. They need not add
// up to 1. Who makes a row has the logarithms at hand: the tree would spend most of its time on
// them.
typedef struct sp_draft_row {
    double confidence[SP_DRAFT_TOP_K];
    double log_confidence[SP_DRAFT_TOP_K];
    int64_t token[SP_DRAFT_TOP_K];
} sp_draft_row;

typedef struct sp_draft_node {
    int parent; // -1: the root, the last token that is settled
    int depth;  // 0: the root
    int child;  // its place in the row of its parent
    int64_t token;
    double value;   // log of the product of the confidences from the root
    double entropy; // of its own row, renormalised, in nats; 0 before the row is known
} sp_draft_node;

typedef struct sp_draft_tree {
    sp_draft_node *nodes; // [count], owned; parents before children
    int count, capacity;
    int top_k;                    // K: children of a row, and nodes of a layer that grow on
    int depth;                    // layers so far
    int frontier[SP_DRAFT_TOP_K]; // whose rows are asked for next, by value
    int frontier_count;
    sp_draft_row rows[SP_DRAFT_TOP_K]; // theirs: whoever grows the tree fills them in
    int *order; // [capacity], the best `ranked` nodes by value, of sp_draft_tree_rank
    int *place; // [capacity], the place of a node among them; `ranked` for all others
    int ranked;
} sp_draft_tree;

// Room for trees of so many layers. Always SP_OK.
sp_status sp_draft_tree_init(sp_draft_tree *tree, int top_k, int most_depth, sp_error *err);
void sp_draft_tree_fini(sp_draft_tree *tree);

// A tree of its root alone.
void sp_draft_tree_start(sp_draft_tree *tree, int64_t root_token);

// One layer, from `rows`: all K children of each become nodes, the K of the highest value the next
// frontier. O(K^2).
void sp_draft_tree_grow(sp_draft_tree *tree);

// Orders the `most` nodes of the highest value (or all), descending, earlier nodes first where
// values are equal, so that a parent is never behind its child: the first n of the order are a
// tree. O(nodes * most) at worst, little more than O(nodes) where values fall with depth.
void sp_draft_tree_rank(sp_draft_tree *tree, int most);

// Of the deepest layer the node with the highest value: the end of HeteroSpec's meta-path (arXiv
// 2505.13254, section 4.1; by value, since candidates are ranked by value).
int sp_draft_tree_best_leaf(const sp_draft_tree *tree);

// The entropies of the rows from the root to the parent of `leaf`, added up: HeteroSpec's
// cumulative meta-path top-K entropy where `leaf` is the best one. At most depth * log K.
double sp_draft_tree_path_entropy(const sp_draft_tree *tree, int leaf);

#endif
