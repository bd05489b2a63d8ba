// Sampled attention (kernels/sample_attention.h) of a whole layer on the CPU's cores: the prefill
// of one sample's queries in fp32.
#ifndef SLIMPACK_BACKENDS_HOST_SAMPLED_ATTENTION_H
#define SLIMPACK_BACKENDS_HOST_SAMPLED_ATTENTION_H

#include "kernels/kernels.h"
#include "sim/base/status.h"

typedef struct sp_host_sampled_layer {
    sp_kernel_attention_shape shape;
    sp_kernel_sample_options options;
    int64_t begin, len; // of the queries in the sample
    const float *q, *k, *v;
    float *out, *lse;
    double (*clock_s)(void); // by which its parts are timed: sp_clock_s(), say
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
// out and lse are the bits of one thread, whatever their number. sp_kernels_start() was called.
sp_status sp_host_sampled_attention(const sp_host_sampled_layer *layer, int threads,
                                    sp_host_sampled_report *report, sp_error *err);

#endif
