// A small decoder-only transformer in fp64 that generates text on the CPU: RMSNorm, rotary
// positions, attention over settled tokens and over a tree of tokens that are not, SwiGLU. Weights
// are random: what is real is the arithmetic, not the text.
#ifndef SLIMPACK_BACKENDS_HOST_SPECULATION_H
#define SLIMPACK_BACKENDS_HOST_SPECULATION_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/alloc.h"
#include "sim/base/status.h"
#include "sim/inference/speculation.h"

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

// Keys and values of one sequence: those of settled tokens by position, and after them those of
// pending ones, which form trees on the last settled token.
typedef struct sp_small_cache {
    const sp_small_model *model;
    int layers; // of the model that are run: draft_layers, or all
    int settled, pending, capacity;
    double *keys, *values; // [layers, capacity, hidden]
    int *parent, *depth;   // [capacity], of pending tokens: place among them, -1: the last settled
    sp_arena arena;        // holds the tables
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

// ---- Text ----

// Text by a small model, greedily: token by token, or by trees that a draft proposes and one
// forward of the whole model verifies. The draft is the model's own first layers with its norm and
// head.

typedef struct sp_small_text {
    int64_t *tokens; // [count], as many as were asked for
    int count;
    sp_speculated *calls; // [call_count]: at most `count`
    int call_count;
} sp_small_text;

// Generates `count` tokens behind a prompt of at least one; how->method and its bins say how. The
// caller frees the text with sp_small_text_fini() in any case.
sp_status sp_small_generate(const sp_small_model *model, int draft_layers,
                            const sp_speculation *how, const int64_t *prompt, int prompt_count,
                            int count, sp_small_text *text, sp_error *err);
void sp_small_text_fini(sp_small_text *text);

// ---- Measurements ----

// Small models that draft and verify for real, measured as the model of acceptance describes text.

enum { SP_SMALL_VOCAB = 64 };

typedef struct sp_small_tally {
    int64_t calls, tokens, verified, low; // low: calls in the bins of low entropy
} sp_small_tally;

typedef struct sp_small_measure {
    sp_small_tally eagle, heterospec;
    sp_bins bins;  // fitted to EAGLE's trees on other prompts
    bool lossless; // both yield, token for token, what the target yields without a draft
} sp_small_measure;

// `sequences` random prompts, each with a model of its own whose draft agrees more or less well,
// and `tokens` tokens behind each, by how->depth, top_k (at most SP_SMALL_VOCAB), nodes, alpha and
// keep. Deterministic in the seed.
sp_status sp_small_measure_run(const sp_speculation *how, int sequences, int tokens, uint64_t seed,
                               sp_small_measure *measure, sp_error *err);

static inline double sp_small_tokens_per_call(const sp_small_tally *tally)
{
    return (double)tally->tokens / (double)tally->calls;
}

#endif
