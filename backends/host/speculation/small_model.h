// A small decoder-only transformer in fp64 that generates text on the CPU: RMSNorm, rotary
// positions, attention over settled tokens and over a tree of tokens that are not, SwiGLU. Weights
// are random: what is real is the arithmetic, not the text.
#ifndef SLIMPACK_BACKENDS_HOST_SPECULATION_SMALL_MODEL_H
#define SLIMPACK_BACKENDS_HOST_SPECULATION_SMALL_MODEL_H

#include <stdint.h>

#include "sim/base/status.h"

typedef struct sp_small_shape {
    int layers, heads, head_dim, ffn, vocab;
    // Scale of what layers from `draft_layers` on add to the hidden states. The model that ends
    // after these, with the norm and the head, then agrees with the whole one the more often the
    // smaller this is.
    int draft_layers;
    double late_scale;
    double logit_scale; // deviation of the logits: the larger, the surer
} sp_small_shape;

typedef struct sp_small_model sp_small_model;

// Weights drawn by the seed.
sp_small_model *sp_small_model_new(const sp_small_shape *shape, uint64_t seed);
void sp_small_model_free(sp_small_model *model);
const sp_small_shape *sp_small_model_shape(const sp_small_model *model);

// Keys and values of one sequence: those of settled tokens by position, and after them those of
// pending ones, which form trees on the last settled token.
typedef struct sp_small_cache {
    const sp_small_model *model;
    int layers; // of the model that are run: draft_layers, or all
    int settled, pending, capacity;
    double *keys, *values; // [layers, capacity, hidden], owned
    int *parent, *depth;   // [capacity], of pending tokens: place among them, -1: the last settled
} sp_small_cache;

void sp_small_cache_init(sp_small_cache *cache, const sp_small_model *model, int layers,
                         int capacity);
void sp_small_cache_fini(sp_small_cache *cache);

// One forward over `count` tokens, which become pending: parents[i] is the place of token i's
// parent among all pending ones, before its own. A token sees all settled ones, its ancestors and
// itself. logits [count, vocab].
void sp_small_forward(sp_small_cache *cache, int count, const int64_t *tokens, const int *parents,
                      double *logits);

// The path of pending tokens at places[0 .. count), from the root down, settles; the rest goes.
void sp_small_settle(sp_small_cache *cache, const int *places, int count);

#endif
