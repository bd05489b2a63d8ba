// Sampled attention (kernels/sample_attention.h) of a whole layer on the CPU's cores: the prefill
// of one sample's queries in fp32.
#ifndef SLIMPACK_BACKENDS_HOST_SAMPLED_ATTENTION_H
#define SLIMPACK_BACKENDS_HOST_SAMPLED_ATTENTION_H

#include <stdint.h>

#include "kernels/kernels.h"
#include "sim/base/status.h"

typedef struct sp_host_sampled_layer {
    sp_kernel_attention_shape shape;
    sp_kernel_sample_options options;
    int64_t begin, len; // of the queries in the sample
    const float *q, *k, *v;
    float *out, *lse;
} sp_host_sampled_layer;

typedef struct sp_host_sampled_report {
    double coverage;      // smallest share of probability that a sampled query keeps, of all heads
    double kept_pairs;    // share of the causal pairs, the mean over heads
    double densest_head;  // largest share of a head over the mean
    double slowest_share; // pairs of the busiest thread over the mean
    double sampling_s;    // by the layer's clock: sampling and choosing
    double attending_s;
} sp_host_sampled_report;

// Heads are sampled on `threads` threads; then tiles of all heads are dealt to them by their pairs.
// out and lse are the bits of one thread, whatever their number. sp_kernels_start_threads()
// was called.
sp_status sp_host_sampled_attention(const sp_host_sampled_layer *layer, int threads,
                                    sp_host_sampled_report *report, sp_error *err);

// ---- Drawn inputs ----

// Queries and keys whose attention has what that of trained models has: sinks, a local band,
// stripes and, if wanted, a diagonal. Random ones alone would attend to all keys alike.

// Scores of a head, after the scale: what is added to `noise` (standard deviation).
typedef struct sp_sample_input {
    double sink;   // of the first four keys
    double stripe; // of a share of keys, less by up to a quarter
    double stripe_share;
    double band; // of a query's own key, falling with the logarithm of the distance
    double diagonal;
    int64_t distance; // of the diagonal
    double noise;
} sp_sample_input;

// Writes query and key of each token, for one head of at least 32 features, with these strides and
// the scale 1 / sqrt(head_dim). Linear.
void sp_sample_input_fill(const sp_sample_input *in, uint64_t seed, int64_t tokens,
                          int64_t head_dim, float *q, int64_t q_stride, float *k, int64_t k_stride);

// ---- Beside dense attention ----

// Sampled attention executed on this machine beside dense attention: what it takes, and what it
// keeps.

// Heads of keys with stripes, with a local band and with both.
enum { SP_SAMPLED_KINDS = 3 };
extern const sp_sample_input sp_sampled_kinds[SP_SAMPLED_KINDS];

typedef struct sp_sampled_execution {
    int heads, kv_heads;
    int64_t head_dim, tokens;
    sp_kernel_sample_options options;
    uint64_t seed;
    int threads;
    const sp_sample_input *input; // of all heads; NULL: sp_sampled_kinds, in turn by KV head
} sp_sampled_execution;

typedef struct sp_sampled_outcome {
    double dense_s, sampled_s; // all heads
    sp_host_sampled_report report;
    double coverage; // smallest share of dense probability that any query keeps
    double error;    // largest sum of differences of a query's output over its head
    double bound;    // what theorem 1 allows of it with that coverage
} sp_sampled_outcome;

// Queries, keys and values are drawn. SP_ERR_LIMIT for tensors above 8 GiB.
sp_status sp_sampled_execute(const sp_sampled_execution *what, sp_sampled_outcome *outcome,
                             sp_error *err);

#endif
