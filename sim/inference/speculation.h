// What a draft proposes for one call of the target, how much of it is verified, and how much is
// accepted: EAGLE-2/3's trees, and HeteroSpec's, whose depth and width follow from the entropy of
// the draft (arXiv 2505.13254, sections 4.1 to 4.4).
#ifndef SLIMPACK_SIM_INFERENCE_SPECULATION_H
#define SLIMPACK_SIM_INFERENCE_SPECULATION_H

#include "sim/inference/acceptance.h"
#include "sim/inference/regression_tree.h"

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
