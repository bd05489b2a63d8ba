// What attention of a prompt takes that does not read every key, beside dense attention.
#ifndef SLIMPACK_SIM_PREFILL_PREFILL_ATTENTION_H
#define SLIMPACK_SIM_PREFILL_PREFILL_ATTENTION_H

#include "sim/cost/profile.h"
#include "sim/scenario/scenario.h"

// Where the shares of a method come from; text: empty for dense attention.
typedef struct sp_prefill_source {
    sp_level level;
    double from_tokens, to_tokens; // the lengths that it knows
    const char *text;
} sp_prefill_source;

extern const sp_prefill_source sp_prefill_sources[SP_PREFILL_METHODS];

// Pairs of queries [begin, begin + tokens) of a prompt and the keys up to each.
static inline double sp_prefill_pairs(double begin, double tokens)
{
    return tokens * begin + tokens * tokens / 2.0;
}

// Of one chunk of a prompt. Shares are of the time of dense attention. The parts are those of
// SampleAttention's mean head and 0 for other methods.
typedef struct sp_prefill_attention {
    bool dense;     // all keys are read: the parts below are 0
    double share;   // what the slowest TP rank takes, the mean over layers
    double fixed_s; // of each layer beside it
    double host_s;  // until the host has launched a layer's kernels: the layer takes no less
    double window, sampling, bottom, stripes;
    double densest_over_mean; // of heads
    double slowest_over_mean; // of TP ranks
} sp_prefill_attention;

// Queries [begin, begin + tokens) of a prompt. Which heads are dense is drawn for each layer by the
// seed. O(layers * heads).
sp_prefill_attention sp_prefill_attention_of(const sp_prefill_spec *spec, const sp_model *model,
                                             int tp, uint64_t seed, double begin, double tokens);

#endif
