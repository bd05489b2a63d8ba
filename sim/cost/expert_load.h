// How unevenly tokens fill the ranks that share experts where routing is forced as Megatron-LM
// forces it (moe_router_force_biased; core/transformer/moe/moe_utils.py, RandomSTE and
// RandomSTEShared): the router's logits are N(0, 1) for each token and expert, plus one N(0, std)
// for each expert, equal on all ranks; a token goes to the experts with the largest. A positive std
// draws anew in every call, a negative one keeps what it drew for a layer, and 0 draws the logits
// alone: what is even is so on average.
//
// No token is drawn. A fixed number of biases is, and of each the share of the tokens that choose
// an expert is an integral; the tokens of a call scatter around it as a hypergeometric number does.
#ifndef SLIMPACK_SIM_COST_EXPERT_LOAD_H
#define SLIMPACK_SIM_COST_EXPERT_LOAD_H

#include "sim/model/layout.h"
#include "sim/model/model.h"

typedef struct sp_expert_load sp_expert_load;

// Rows of the fullest of the ranks that share experts over those of their mean.
typedef struct sp_overload {
    double mean; // over the layers that have experts
    double most; // of these layers
    double held; // of all such layers of a virtual stage together, the most of any virtual stage
} sp_overload;

// Of the layers of stages[0 .. pp*chunks), which must outlive it. NULL: every rank gets as many
// rows as the next, because the model says so or because none shares experts with another. O(draws
// * experts * experts per token) for each kind of layer, 0.1 s for 8 of 256 and 2 s for 64 of 1024,
// unless a load of as many on as many ranks was made before (the latest 16 are kept).
sp_expert_load *sp_expert_load_new(const sp_model *model, const sp_layout *layout,
                                   const sp_stage *stages);
void sp_expert_load_free(sp_expert_load *load);

// Call number `call` of each layer, in which the ranks that share experts have `tokens` tokens
// together. O(layers * ep).
sp_overload sp_expert_load_of(const sp_expert_load *load, int64_t call, double tokens);
// The mean over all draws of sp_overload.mean, above 1.
double sp_expert_load_expected(const sp_expert_load *load, double tokens);

// The share of rows that experts drop where each has room for model->expert_capacity_factor times
// the mean: the mean over draws of biases for many tokens, to which those of few, which scatter,
// add some. 0 without a factor. As long as sp_expert_load_new().
double sp_expert_dropped_share(const sp_model *model);

// The share of the tokens that choose each expert, [experts], which add up to `active`, where the
// logits of a token are N(bias[e], 1): the integral over x of the density that the logit of e is x
// times the probability that fewer than `active` others are above x. O(experts * active).
void sp_expert_shares(const double *bias, int experts, int active, double *share);

#endif
