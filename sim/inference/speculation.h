// A draft proposes tokens for one call of the target, of which some are verified and some are
// accepted: EAGLE-2/3's trees, and HeteroSpec's, whose depth and width follow from the entropy of
// the draft (arXiv 2505.13254, sections 4.1 to 4.4).
#ifndef SLIMPACK_SIM_INFERENCE_SPECULATION_H
#define SLIMPACK_SIM_INFERENCE_SPECULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/prng.h"
#include "sim/base/status.h"

// ---- the tree of drafted tokens ----
//
// The tree of tokens that a draft model proposes for one pass of the target (EAGLE-2, arXiv
// 2406.16858, section 4; EAGLE-3, arXiv 2503.01840). It does not know where confidences come from:
// the model of acceptance below and real models (backends/host/speculation) grow the same tree.

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

// All nodes of a tree of so many layers, its root among them.
static inline int sp_draft_tree_nodes(int top_k, int depth)
{
    return 1 + top_k + (depth - 1) * top_k * top_k;
}

// Room for trees of so many layers.
void sp_draft_tree_init(sp_draft_tree *tree, int top_k, int most_depth);
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

// The node of the deepest layer with the highest value: the end of HeteroSpec's meta-path (arXiv
// 2505.13254, section 4.1; by value, since candidates are ranked by value).
int sp_draft_tree_best_leaf(const sp_draft_tree *tree);

// The entropies of the rows from the root to the parent of `leaf`, added up: HeteroSpec's
// cumulative meta-path top-K entropy where `leaf` is the best one. At most depth * log K.
double sp_draft_tree_path_entropy(const sp_draft_tree *tree, int leaf);

// ---- the model of acceptance ----
//
// A model of text that is more or less hard to draft: what a draft is confident of, and what the
// target then accepts. Nothing of it is measured; its numbers are fitted to published tokens a call
// (experiments/figures/heterospec.json).
//
// A sequence has a difficulty z that persists: from one call of the target to the next
// z' = persistence z + sqrt(1 - persistence^2) times a standard normal. A position of it is as hard
// as its noise e, standard normal, makes it: the draft gives the i-th of its next tokens
// (0 the first) the probability c (1-c)^i with logit(c) = ease + spread z + noise e. The target
// takes its own most probable token, which is the draft's first more often than a token drawn from
// the draft would be: the i-th with a probability in proportion to the draft's to the power
// `agreement`. With probability `blind` it is none of the draft's top K.

typedef struct sp_acceptance {
    double ease;        // mean logit of the confidence in the first token
    double spread;      // its deviation between calls
    double noise;       // its deviation between positions
    double persistence; // correlation of difficulties from one call to the next, 0 to 1
    double agreement;   // 1: the target takes what it takes as often as the draft says
    double blind;       // share of positions where the target's token is not in the row
} sp_acceptance;

// One sequence: its own stream of random numbers, so that what it draws does not depend on the
// others.
typedef struct sp_drafted_sequence {
    sp_prng prng;
    double difficulty;
    bool has_spare; // of two normals that were drawn together
    double spare;
} sp_drafted_sequence;

// Sequence number `index` of a seed.
void sp_drafted_sequence_begin(sp_drafted_sequence *sequence, uint64_t seed, uint64_t index);

// Its difficulty at the next call.
void sp_drafted_sequence_next(sp_drafted_sequence *sequence, const sp_acceptance *model);

// The row behind a node, and the child that the target takes there; -1: none of the row.
int sp_acceptance_draw(const sp_acceptance *model, sp_drafted_sequence *sequence, int top_k,
                       sp_draft_row *row);

// ---- bins of the entropy ----
//
// A regression tree of one feature (CART: Breiman and others, "Classification and Regression
// Trees", 1984), whose leaves are bins of that feature.

enum { SP_BINS = 8 }; // leaves of a tree of depth 3

typedef struct sp_sample {
    double x, y;
} sp_sample;

typedef struct sp_bins {
    int count;                 // at most SP_BINS, fewer where x takes fewer values
    double above[SP_BINS - 1]; // [count - 1], ascending: bin b holds x in (above[b-1], above[b]]
} sp_bins;

// Depth 3: each part is cut in two three times, between two neighbouring values of x, where the
// squared errors of y about the means of both sides add up to least (the first such place of equal
// ones). A side keeps at least `least` samples; a part without such a place stays whole. `samples`
// are put in the order of x. O(n log n).
void sp_bins_fit(sp_sample *samples, size_t count, size_t least, sp_bins *bins);

// The bin of x, from 0. O(bins).
int sp_bin_of(const sp_bins *bins, double x);

// ---- a call of the target ----

typedef enum sp_decode_method {
    SP_DECODE_PLAIN,
    SP_DECODE_EAGLE,
    SP_DECODE_HETEROSPEC
} sp_decode_method;

extern const char *const sp_decode_method_names[]; // "plain", "eagle", "heterospec", NULL

enum { SP_LOW_BINS = 3 }; // B0, B1 and B2: of low entropy

typedef struct sp_speculation {
    sp_decode_method method;
    int depth; // d: layers of the tree
    int top_k; // K
    int nodes; // N: tokens of one verification, the root among them
    // HeteroSpec alone: DED, d' = d + alpha - i in bin i, and TNP, N' = gamma_i N + alpha - i.
    bool extend, prune;
    int alpha;
    double keep[SP_LOW_BINS]; // gamma
    sp_bins bins;
} sp_speculation;

// ceil(d / 2)
int sp_speculation_usual_alpha(int depth);

// Is the entropy of a bin low? That of the last bin, which has no border above, never is.
bool sp_speculation_is_low(const sp_speculation *how, int bin);

// EAGLE's trees of equal depth, top K and N: without bins.
sp_speculation sp_speculation_of_eagle(const sp_speculation *how);

// The tree's layers and verified tokens in a bin: EAGLE's where the entropy is not low.
void sp_speculation_shape(const sp_speculation *how, int bin, int *depth, int *nodes);

// Layers of the deepest tree.
int sp_speculation_most_depth(const sp_speculation *how);

// One call of the target for one sequence.
typedef struct sp_speculated {
    double entropy;     // of the meta-path
    int bin;            // 0 where the method has no bins
    int depth;          // layers drafted: forwards of the draft
    int nodes;          // verified
    int accepted;       // drafted tokens; the call yields one more
    int path_end;       // the meta-path's last node
    int path_rank;      // of the meta-path's end at depth d, from 1; `nodes`: it is not verified
    bool path_accepted; // all of the meta-path is verified and accepted
} sp_speculated;

// Fills tree->rows with what follows each node of the frontier.
typedef sp_status sp_draft_source(void *context, sp_draft_tree *tree, sp_error *err);

// Grows the tree of one call from a started root, as deep and as wide as `how` says of its entropy,
// and ranks what is verified. Everything of the call but what is accepted. `tree` has room for
// sp_speculation_most_depth().
sp_status sp_speculation_draft(const sp_speculation *how, sp_draft_source *source, void *context,
                               sp_draft_tree *tree, sp_speculated *call, sp_error *err);

// Notes that the path down to `node` is accepted, and no token behind it.
void sp_speculation_accept(const sp_speculation *how, const sp_draft_tree *tree, int node,
                           sp_speculated *call);

// Drafts and verifies the sequence's next call by the model of acceptance.
void sp_speculate(const sp_speculation *how, const sp_acceptance *model,
                  sp_drafted_sequence *sequence, sp_draft_tree *tree, sp_speculated *call);

// Bins of the entropy, fitted to `calls` calls of EAGLE's trees for text of that model: to the rank
// of the meta-path's end among the candidates, over those calls that accept it.
void sp_speculation_fit_bins(sp_speculation *how, const sp_acceptance *model, uint64_t seed,
                             int calls);

#endif
