// Time and traffic of the attention over the slices of a pack, and the context-parallel
// communication that it hides. Shared inside sim/cost.
#ifndef SLIMPACK_SIM_COST_ATTENTION_LOAD_H
#define SLIMPACK_SIM_COST_ATTENTION_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/cost/op_time.h"
#include "sim/model/footprint.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"
#include "sim/plan/packing.h"

// Times of a slice's attention, forward and backward; negative: not known. A table has so many of
// them, by a hash of the slice.
enum { SP_I_ATTENTION_MEMOS = 8192 };

typedef struct sp_i_attention_memo {
    double length, context, time_s[2];
} sp_i_attention_memo;

// A ring of context-parallel ranks step by step (cp_ring.c): at step s every rank works on the keys
// of the rank s places before it.
typedef struct sp_i_cp_ring sp_i_cp_ring;

// Whose attention, and what prices it.
typedef struct sp_i_attention {
    const sp_model *model;
    const sp_layout *layout; // with cp grown by the pack's data-parallel ranks
    const sp_memory_options *memory;
    const sp_op_timer *timer;
    bool recomputes;           // the forward runs again in the backward
    double *rank_s;            // [2 * cp] to work in; NULL where CP ranks share evenly
    sp_i_cp_ring *ring;        // NULL: its steps are not followed
    sp_i_attention_memo *memo; // NULL: every slice is priced anew
} sp_i_attention;

// What attention the slices of a pack need in one layer of one rank.
typedef struct sp_i_attention_load {
    double forward_s, backward_s;
    double keys;      // tokens with the context that slices read
    double exchanges; // of keys and values, where each slice has its own: one for its own tokens,
                      // one for each part of its context that is as long
    // Full (query, key) pairs, weighed by the profile's score model; of them those whose softmax is
    // unfused.
    double pairs, unfused_pairs;
    double calls, unfused_calls;
} sp_i_attention_load;

// Slices of one sample that follow each other in a pack run as one segment of the variable-length
// call. Times are those of the CP rank that takes longest (sp_i_cp_slowest_s), with even sharding
// of an equal share of them all; pairs are the mean of the CP ranks. Only the times of the passes
// that are asked for are filled. O(slices), or O(slices * cp) where shares are uneven.
sp_i_attention_load sp_i_attention_load_of(const sp_i_attention *attention,
                                           const sp_pack_list *list, const sp_pack *pack,
                                           bool forward, bool backward);

// Time in which the ranks of `cp` exchange `bytes` of keys and values, all of theirs together, half
// of them gradients where the pass has `gradients`: the whole CP group, or the peers of one whose
// neighbours exchange heads.
double sp_i_cp_exchange_s(const sp_i_attention *attention, sp_group cp,
                          const sp_i_attention_load *load, double bytes, bool gradients);

// What that adds to an attention of attention_s behind a QKV projection of qkv_s. A ring runs
// beside the attention on the blocks that are already there: all but the first, of which there are
// as many as ranks in the ring (Liu et al., Ring Attention, arXiv 2310.01889). A gather hides
// behind the QKV projection, with grouped queries behind nothing (kwai/Megatron-Kwai, branch
// atc24ae). Where the steps of a ring are followed, what was found of the pack last
// (sp_i_cp_slowest_s) says how long ranks wait in it; `backward`: for the times of the backward.
double sp_i_exposed_cp_s(const sp_i_attention *attention, double cp_s, double attention_s,
                         double qkv_s, bool backward);

sp_i_cp_ring *sp_i_cp_ring_new(int cp);
void sp_i_cp_ring_free(sp_i_cp_ring *ring);
void sp_i_cp_ring_clear(sp_i_cp_ring *ring);
// A piece (sp_i_cp_visit), those of a sample in their order. Keys of earlier packs, and of more
// than 4 cp pieces before it, are taken to be spread evenly. O(cp).
void sp_i_cp_ring_add(sp_i_cp_ring *ring, int rank, int64_t tokens, int64_t context);
double sp_i_cp_ring_pairs(const sp_i_cp_ring *ring, int rank, int step);
// Until the last rank is done, whose attention takes rank_s, [cp], in all, in parts as its pairs; a
// block needs transfer_s to the next rank. O(cp^2).
double sp_i_cp_ring_s(sp_i_cp_ring *ring, const double *rank_s, double transfer_s);

// Least times of one layer on all CP ranks together, per square of a sample's tokens: n tokens
// cover n*n/2 causal pairs however they are cut, at no better than the best causal rate
// (op_time.h).
void sp_i_attention_least_s(const sp_i_attention *attention, double *forward_s, double *backward_s);

// Which CP rank holds which piece of the slices of a pack (WLB-LLM, arXiv 2503.17924). A piece is a
// stretch of one slice: its queries attend to themselves and to all tokens of the sample before
// them, whose keys are gathered from the other ranks. Private to sim/cost.

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

// Attention time of the CP rank that takes longest over a pack, by the way its tokens are cut.
// Fills forward_s and backward_s, those that are asked for, of one layer: every layer gathers keys
// and values anew, so that the ranks wait for the slowest of each pass. The layout must shard in
// another way than evenly and have several CP ranks. Adaptive takes the way whose passes of the
// whole step, forward (again where it is recomputed) and backward, are the shorter together, the
// sequence where they are alike: the forward and the backward of a pack agree on it. O(slices *
// cp).
void sp_i_cp_slowest_s(const sp_i_attention *attention, const sp_pack_list *list,
                       const sp_pack *pack, bool forward, bool backward, sp_i_attention_load *load);

// A pack as it was cut: where the CP ranks' pieces of a pack come from in the backward.
typedef struct sp_i_cp_row {
    const sp_pack_list *list;
    const sp_pack *pack;
} sp_i_cp_row;

// Sequence and adaptive sharding depend on what else is in the pack and in which order. A backward
// pack over several CP ranks must hold the slices of one forward pack, whose cut it then keeps:
// otherwise activations would have to change ranks in between. *forward_pack is sp_regroup's,
// freed by the caller; NULL for the other ways, and where there are no backward packs. Errors:
// SP_ERR_CONTENT at strategy.cp_sharding of `source`. O(slices * log slices).
sp_status sp_i_cp_regroup(const sp_layout *layout, const sp_packing *packing, const char *source,
                          int32_t **forward_pack, sp_error *err);

// The forward pack whose cut a backward pack keeps, else the pack itself.
sp_i_cp_row sp_i_cp_row_of(const sp_layout *layout, const sp_packing *packing,
                           const int32_t *forward_pack, const sp_pack *pack);

#endif
