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
#ifndef SLIMPACK_SIM_INFERENCE_ACCEPTANCE_H
#define SLIMPACK_SIM_INFERENCE_ACCEPTANCE_H

#include "sim/base/prng.h"
#include "sim/inference/draft_tree.h"

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

#endif
