// Queries and keys whose attention has what that of trained models has: sinks, a local band,
// stripes and, if wanted, a diagonal. Random ones alone would attend to all keys alike.
#ifndef SLIMPACK_BACKENDS_HOST_SAMPLED_INPUT_H
#define SLIMPACK_BACKENDS_HOST_SAMPLED_INPUT_H

#include <stdint.h>

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

#endif
