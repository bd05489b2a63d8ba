// Time and traffic of the attention over the slices of a pack, and the context-parallel
// communication that it hides. Shared inside sim/cost.
#ifndef SLIMPACK_SIM_COST_ATTENTION_LOAD_H
#define SLIMPACK_SIM_COST_ATTENTION_LOAD_H

#include <stdbool.h>

#include "sim/cost/op_time.h"
#include "sim/model/footprint.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"
#include "sim/plan/packing.h"

// Whose attention, and what prices it.
typedef struct sp_i_attention {
    const sp_model *model;
    const sp_layout *layout; // with cp grown by the pack's data-parallel ranks
    const sp_memory_options *memory;
    const sp_op_timer *timer;
    bool recomputes; // the forward runs again in the backward
    double *rank_s;  // [2 * cp] to work in; NULL where CP ranks share evenly
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
// call. Times are those of the CP rank that takes longest (cp_load.h), with even sharding of an
// equal share of them all; pairs are the mean of the CP ranks. Only the times of the passes that
// are asked for are filled. O(slices), or O(slices * cp) where shares are uneven.
sp_i_attention_load sp_i_attention_load_of(const sp_i_attention *attention,
                                           const sp_pack_list *list, const sp_pack *pack,
                                           bool forward, bool backward);

// Time in which the CP group exchanges `bytes` of keys and values, all of its tokens' together,
// half of them gradients where the pass has `gradients`.
double sp_i_cp_exchange_s(const sp_i_attention *attention, sp_group cp,
                          const sp_i_attention_load *load, double bytes, bool gradients);

// What context parallelism adds to an attention of attention_s behind a QKV projection of qkv_s.
// A ring runs beside the attention on the blocks that are already there: all but the first of cp
// (Liu et al., Ring Attention, arXiv 2310.01889). A gather hides behind the QKV projection, with
// grouped queries behind nothing (kwai/Megatron-Kwai, branch atc24ae).
double sp_i_exposed_cp_s(const sp_i_attention *attention, double cp_s, double attention_s,
                         double qkv_s);

// Least times of one layer on all CP ranks together, per square of a sample's tokens: n tokens
// cover n*n/2 causal pairs however they are cut, at no better than the best causal rate
// (op_time.h).
void sp_i_attention_least_s(const sp_i_attention *attention, double *forward_s, double *backward_s);

#endif
