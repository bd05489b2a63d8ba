// Random batches and shapes, and the rules that the packs made of them keep, for property tests of
// the planner.
#ifndef SLIMPACK_TESTS_SUPPORT_DRAWN_PACKS_H
#define SLIMPACK_TESTS_SUPPORT_DRAWN_PACKS_H

#include "sim/base/prng.h"
#include "solver/slimpack/slimpack_search.h"

enum { DRAWN_SAMPLES = 120 };

// Stays where it is: the batch points into it.
typedef struct drawn_batch {
    int64_t ids[DRAWN_SAMPLES], tokens[DRAWN_SAMPLES];
    int32_t order[DRAWN_SAMPLES]; // longest first
    sp_batch batch;
} drawn_batch;

// Work of slices whose backward has another share of pairs than the forward.
extern const sp_i_work drawn_work;

// Of the first `count` of d->tokens.
void drawn_batch_of(drawn_batch *d, size_t count);
// Samples of up to `longest` tokens, most of them short.
void draw_batch(sp_prng *prng, uint64_t longest, drawn_batch *d);
// Any taper of up to 40 packs; a third of them has no rise, a third no fall, some no flat part.
sp_i_taper draw_taper(sp_prng *prng);
sp_i_shape draw_shape(sp_prng *prng);
// All samples of the batch on these ranks.
sp_i_rank_samples drawn_samples(const drawn_batch *d, int dp_first, int dp_count);

// Every token once in both passes, in slices that are the same on both sides and on the same ranks.
// Packs are not empty, slices ascend forward and descend backward; in a pack they ascend.
void assert_pack_rules(const sp_packing *packing);
// A slice ends at a multiple of `slice_tokens` or with its sample.
void assert_cuts(const sp_packing *packing, int64_t slice_tokens);
// `needs` of the packs of one rank: the last of the forward packs that a backward pack and those
// before it read.
void assert_needs(const sp_packing *packing, const sp_i_needs *needs);

// Each end of a pack lies within `tolerance` of a cumulative target, and each target within
// `tolerance` of an end. Both ascend.
void assert_ends_meet(const double *end, size_t ends, const double *target, size_t targets,
                      double tolerance);

// Seconds of the backward alone.
double backward_work_s(const sp_i_work *work, int64_t begin, int64_t tokens);
// Cumulative work of the packs of a list: end_s[list->count].
void pack_ends(const sp_i_work *work, const sp_pack_list *list, bool backward, double *end_s);

#endif
