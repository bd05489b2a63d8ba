#include "sim/prefill/prefill.h"

#include <math.h>

#include "sim/base/prng.h"

#define XATTENTION_FIGURE                                                                          \
    "the speed-up of attention is read off a figure of XAttention's authors: Llama-3.1-8B, 8K to " \
    "256K tokens, GPU not stated"

const sp_prefill_source sp_prefill_sources[SP_PREFILL_METHODS] = {
    [SP_PREFILL_DENSE] = {SP_LEVEL_MEASURED, 0.0, HUGE_VAL, ""},
    [SP_PREFILL_SAMPLE] = {SP_LEVEL_FITTED, 16384.0, 1048576.0,
                           "what stripes keep and the fixed time are fitted to four second-hand "
                           "figures: an A100, alpha 0.80 and 0.95, 16K to 1M tokens"},
    [SP_PREFILL_MINFERENCE] = {SP_LEVEL_FITTED, 10e3, 500e3,
                               "three constants are fitted to its own tables: Llama-3-8B on an "
                               "A100, 10K to 500K tokens; of its row at 1000K, left out, the "
                               "computed time misses a quarter"},
    [SP_PREFILL_FLEXPREFILL] = {SP_LEVEL_PUBLISHED, 8192.0, 262144.0, XATTENTION_FIGURE},
    [SP_PREFILL_XATTENTION] = {SP_LEVEL_PUBLISHED, 8192.0, 262144.0, XATTENTION_FIGURE},
};

// ---- SampleAttention (arXiv 2406.15486, version 2) ----

// Neither the share that stripes keep nor the time that does not depend on the length is published.
// Both were fitted with the profile a100-prefill and ChatGLM2-6B's shape to figures of a
// machine-written summary of the paper: at 96K attention is 2.20 times as fast with alpha 0.95
// and 5.12 times with 0.80, at 1M the first token comes 2.42 times as fast with 0.95, and below
// about 16K nothing is gained. The times to the first token at 96K are left out. Of other alphas
// nothing is known: the power joins the two.
#define STRIPES_96K_95 0.2616
#define STRIPES_BY_ALPHA 3.41
#define STRIPES_BY_LENGTH 0.0933
#define FIXED_US 190.0

// The paper names sparsities of single heads from 27.4 % to 99.8 %.
#define LEAST_STRIPES 0.002
#define MOST_STRIPES 0.726

enum { BOTTOM_ROWS = 128 };

// Pairs of the first x queries that a window of w keys holds.
static double window_pairs(double x, double w)
{
    return x <= w ? x * x / 2.0 : w * w / 2.0 + (x - w) * w;
}

// The mean over heads.
static double stripes_of(const sp_prefill_spec *spec, double keys)
{
    if (spec->stripe_share >= 0.0) {
        return spec->stripe_share;
    }
    double dropped = fmax(1.0 - spec->alpha, 1e-6) / 0.05;
    return fmin(1.0, STRIPES_96K_95 * pow(dropped, -STRIPES_BY_ALPHA) *
                         pow(keys / 98304.0, -STRIPES_BY_LENGTH));
}

// Share of head `rank` of n by density, ascending: from the least to the most as a power of the
// rank, whose mean is `mean`.
static double stripes_of_head(double mean, int rank, int n)
{
    if (mean <= LEAST_STRIPES || mean >= MOST_STRIPES) {
        return mean;
    }
    double power = (MOST_STRIPES - LEAST_STRIPES) / (mean - LEAST_STRIPES) - 1.0;
    double from = pow((double)rank / n, power + 1.0);
    double to = pow((double)(rank + 1) / n, power + 1.0);
    return LEAST_STRIPES + (mean - LEAST_STRIPES) * n * (to - from);
}

static void shuffle(sp_prng *prng, int n, int *order)
{
    for (int i = 0; i < n; i++) {
        int j = (int)sp_prng_below(prng, (uint64_t)i + 1);
        order[i] = i;
        order[i] = order[j];
        order[j] = i;
    }
}

// The pairs that stripes add to each head, by density ascending, where all keys but `most` are kept
// anyway; returns the mean.
static double stripes_of_heads(double mean, double most, int heads, double stripes[])
{
    double sum = 0.0;
    for (int h = 0; h < heads; h++) {
        stripes[h] = fmin(stripes_of_head(mean, h, heads), most);
        sum += stripes[h];
    }
    return sum / heads;
}

// The stripes of the rank whose heads have most, the mean over layers. Heads are drawn in each
// layer.
static double stripes_of_slowest(const sp_model *model, int tp, uint64_t seed,
                                 const double stripes[])
{
    int order[SP_I_MAX_HEADS];
    int each = model->heads / tp;
    double sum = 0.0;
    sp_prng prng;
    sp_prng_seed(&prng, seed);
    for (int layer = 0; layer < model->layers; layer++) {
        double slowest = 0.0;
        shuffle(&prng, model->heads, order);
        for (int rank = 0; rank < tp; rank++) {
            double own = 0.0;
            for (int h = rank * each; h < (rank + 1) * each; h++) {
                own += stripes[order[h]] / each;
            }
            slowest = fmax(slowest, own);
        }
        sum += slowest;
    }
    return sum / model->layers;
}

static sp_prefill_attention sampled(const sp_prefill_spec *spec, const sp_model *model, int tp,
                                    uint64_t seed, double begin, double tokens)
{
    double stripes[SP_I_MAX_HEADS];
    double keys = begin + tokens;
    double pairs = sp_prefill_pairs(begin, tokens);
    double window = fmax(1.0, ceil(spec->window_share * keys));
    sp_prefill_attention a = {
        .window = (window_pairs(keys, window) - window_pairs(begin, window)) / pairs,
        // Half of the products, those of queries and keys, of the sampled queries.
        .sampling = 0.5 * spec->row_share,
        .fixed_s = (spec->fixed_us >= 0.0 ? spec->fixed_us : FIXED_US) * 1e-6 * model->heads / tp};
    a.bottom = fmin(1.0 - a.window, BOTTOM_ROWS * keys / pairs);
    a.stripes =
        stripes_of_heads(stripes_of(spec, keys), 1.0 - a.window - a.bottom, model->heads, stripes);
    double floor = a.window + a.bottom + a.sampling;
    double mean = floor + a.stripes;
    double densest = floor + stripes[model->heads - 1];
    a.share = spec->deal == SP_PREFILL_BY_HEADS
                  ? densest
                  : floor + stripes_of_slowest(model, tp, seed, stripes);
    a.densest_over_mean = densest / mean;
    a.slowest_over_mean = a.share / mean;
    return a;
}

// ---- MInference ----

// A query keeps so many keys: the vertical lines and slashes of the first configuration that the
// repository names (1000, 6096). The share of dense attention's rate at which they are read, and
// the time of each head and layer beside it, were fitted to MInference's own table of Llama-3-8B
// on one A100 (microsoft/MInference, experiments/README.md) at 50K, 300K and 500K. Head after head
// the host launches many small kernels, which takes longer than a short prompt's kernels
// themselves: with vLLM, too, 1K tokens take no less than 10K do (3017 and 2762 ms for 81 and 832
// of dense attention), of which the latter is what 32 layers of 32 heads take.
#define MINFERENCE_KEYS 7096.0
#define MINFERENCE_RATE 0.44
#define MINFERENCE_FIXED_US 830.0
#define MINFERENCE_HOST_US 2697.0

static sp_prefill_attention vertical_slash(const sp_model *model, int tp, double begin,
                                           double tokens)
{
    double pairs = sp_prefill_pairs(begin, tokens);
    double kept =
        window_pairs(begin + tokens, MINFERENCE_KEYS) - window_pairs(begin, MINFERENCE_KEYS);
    return (sp_prefill_attention){.share = kept / pairs / MINFERENCE_RATE,
                                  .fixed_s = MINFERENCE_FIXED_US * 1e-6 * model->heads / tp,
                                  .host_s = MINFERENCE_HOST_US * 1e-6 * model->heads / tp,
                                  .densest_over_mean = 1.0,
                                  .slowest_over_mean = 1.0};
}

// ---- other methods ----

// Speed-up of attention over full attention by length: read off the figure of XAttention's
// repository (mit-han-lab/x-attention; Llama-3.1-8B by its script, the GPU is not stated). Choosing
// the keys is part of it.
static const double curve_from = 8192.0;
enum { CURVE_POINTS = 6 };
static const double flexprefill[CURVE_POINTS] = {0.2, 1.0, 2.2, 3.9, 6.0, 7.6};
static const double xattention[CURVE_POINTS] = {1.7, 2.2, 3.2, 4.3, 7.1, 9.8};

// Straight in the logarithms of both; beyond the figure along its last piece, before it along its
// first, though no slower than there or than dense attention, whichever is slower: of shorter
// prompts nothing is known, and they do not take longer.
static double speedup_of(const double *curve, double keys)
{
    double octave = log2(keys / curve_from);
    int i = (int)fmin(fmax(floor(octave), 0.0), CURVE_POINTS - 2);
    double speedup = curve[i] * pow(curve[i + 1] / curve[i], octave - i);
    return fmax(speedup, fmin(curve[0], 1.0));
}

sp_prefill_attention sp_prefill_attention_of(const sp_prefill_spec *spec, const sp_model *model,
                                             int tp, uint64_t seed, double begin, double tokens)
{
    sp_prefill_attention a = {
        .dense = true, .share = 1.0, .densest_over_mean = 1.0, .slowest_over_mean = 1.0};
    double keys = begin + tokens;
    if (keys < (double)spec->dense_below) {
        return a;
    }
    switch (spec->attention) {
    case SP_PREFILL_SAMPLE:
        return spec->alpha < 1.0 ? sampled(spec, model, tp, seed, begin, tokens) : a;
    case SP_PREFILL_MINFERENCE:
        return vertical_slash(model, tp, begin, tokens);
    case SP_PREFILL_FLEXPREFILL:
        a.dense = false;
        a.share = 1.0 / speedup_of(flexprefill, keys);
        return a;
    case SP_PREFILL_XATTENTION:
        a.dense = false;
        a.share = 1.0 / speedup_of(xattention, keys);
        return a;
    case SP_PREFILL_DENSE:
    case SP_PREFILL_METHODS:
        break;
    }
    return a;
}
