// Prefill: how long a model reads prompts until each gives its first token (TTFT). Prompts run one
// after the other, each whole or in chunks, or all of them as one pack, through the pipeline ranks
// of one replica; a rank prices them as the forward of a training step (sim/cost), the head for the
// last token alone. The timeline is that of a step with forwards only.
#ifndef SLIMPACK_SIM_PREFILL_PREFILL_H
#define SLIMPACK_SIM_PREFILL_PREFILL_H

#include <jansson.h>

#include "sim/cost/op_time.h"
#include "sim/cost/profile.h"
#include "sim/plan/timeline.h"
#include "sim/scenario/scenario.h"

// ---- attention that does not read every key, beside dense attention ----

// The origin of the shares of a method; text: empty for dense attention.
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

// Attention of one chunk of a prompt. Shares are of the time of dense attention. The parts are
// those of SampleAttention's mean head and 0 for other methods.
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

// ---- prompts ----

typedef struct sp_prefill_prompt {
    int64_t id, tokens;
    int64_t first_token_ns; // from the beginning of all
    int64_t dense_ns;       // with dense attention
} sp_prefill_prompt;

// Times of the busiest rank, summed over all prompts and its layers.
typedef struct sp_prefill_parts {
    int64_t linear_ns, attention_ns, tp_ns, cp_ns;
} sp_prefill_parts;

typedef struct sp_prefill_result {
    sp_prefill_prompt *prompts; // owned
    size_t count;
    int64_t last_ns, dense_last_ns; // the last prompt's first token
    sp_prefill_parts parts, dense_parts;
    sp_prefill_attention attention;          // of the longest prompt's last chunk
    int64_t parameter_bytes, kv_cache_bytes; // of the fullest rank
    int64_t activation_bytes;                // of the largest chunk in one layer that runs whole
    int64_t score_bytes; // of unfused attention, of the chunk with most in one layer
    sp_uncalibrated uncalibrated;
} sp_prefill_result;

// Is called with the plan, its costs and its timeline before they are freed; NULL: nothing is.
typedef sp_status (*sp_prefill_observer)(void *context, const sp_plan *plan,
                                         const sp_step_costs *costs, const sp_timeline *timeline,
                                         sp_error *err);

// The prompts are the samples of a batch, in their order. SP_ERR_CONTENT where the scenario has
// what does not belong to a replica that reads prompts (data-parallel ranks, several chunks of the
// model on a rank, a vocabulary shared by pipeline ranks).
SP_API sp_status sp_prefill(const sp_scenario *scenario, const sp_batch *batch,
                            sp_prefill_observer observer, void *context, sp_prefill_result *result,
                            sp_error *err);
SP_API void sp_prefill_result_fini(sp_prefill_result *result);

// Do parameters, keys and values, and the scores of unfused attention, which has them whole, fit
// the fullest rank's limit? A layer's activations are told
// beside them: software that reads long prompts runs the MLP in parts (MInference's own table has
// 300K tokens of Llama-3-8B on one A100, where the whole layer would not fit).
static inline bool sp_prefill_fits(const sp_scenario *scenario, const sp_prefill_result *result)
{
    return result->parameter_bytes + result->kv_cache_bytes + result->score_bytes <=
           scenario->memory_limit_bytes;
}

// Things that no prediction of this kind knows of, NULL-terminated.
extern const char *const sp_prefill_not_modelled[];

// The shortest prompt of the scenario's replica, in multiples of 256 tokens up to 4M and 1024
// chunks, that the attention reads no slower than dense attention; 0: dense attention, or the
// longest is slower. Found by bisection: longer prompts are taken to gain more. O(log tokens)
// prefills.
SP_API sp_status sp_prefill_crossover(const sp_scenario *scenario, int64_t *tokens, sp_error *err);

// slimpack/prefill/1. A crossover of 0 is null there.
SP_API json_t *sp_prefill_json(const sp_scenario *scenario, const sp_prefill_result *result,
                               int64_t crossover_tokens);
// Texts that say where the profile does not hold as it is, an array.
json_t *sp_prefill_warnings_json(const sp_scenario *scenario);

#endif
