// Small models that draft and verify for real, measured as the model of acceptance describes text.
#ifndef SLIMPACK_BACKENDS_HOST_SPECULATION_MEASURE_H
#define SLIMPACK_BACKENDS_HOST_SPECULATION_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/inference/speculation.h"

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
