// Which CP rank holds which piece of the slices of a pack (WLB-LLM, arXiv 2503.17924). A piece is a
// stretch of one slice: its queries attend to themselves and to all tokens of the sample before
// them, whose keys are gathered from the other ranks. Private to sim/cost.
#ifndef SLIMPACK_SIM_COST_CP_SHARDING_H
#define SLIMPACK_SIM_COST_CP_SHARDING_H

#include <stdint.h>

#include "sim/plan/packing.h"

// Called for every piece: `tokens` > 0 queries after `context` tokens of their sample, on CP rank
// `rank` of [0, cp).
typedef void sp_i_cp_visit(void *state, int rank, int64_t tokens, int64_t context);

// Per sequence: the tokens of the pack, in a row, are cut into 2*cp chunks wherever samples begin
// and end, and rank i gets chunks i and 2*cp-1-i. Chunks are equal; where 2*cp does not divide the
// row, the first ones have a token more. Slices of one sample that follow each other are one
// stretch. O(slices + cp).
void sp_i_cp_by_sequence(const sp_pack_list *list, const sp_pack *pack, int cp,
                         sp_i_cp_visit *visit, void *state);

// Per document: the same inside every slice, with equal chunks. The tokens at its end that 2*cp
// leaves over are dealt to the ranks one by one, on from where the slice before it stopped, so that
// the ranks' tokens differ by one at most over the pack. O(slices * cp).
void sp_i_cp_by_document(const sp_pack_list *list, const sp_pack *pack, int cp,
                         sp_i_cp_visit *visit, void *state);

// The slices from `slice` on, before `end`, that follow each other in one sample: returns the first
// that does not, and the tokens computed of those that do.
const sp_slice *sp_i_segment_end(const sp_slice *slice, const sp_slice *end, int64_t *tokens);

#endif
