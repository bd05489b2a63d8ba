#include "backends/host/sampled_input.h"

#include <math.h>

#include "sim/base/prng.h"

enum { SINKS = 4 };

// The score that key j gets from all queries.
static double column_score(const sp_sample_input *in, sp_prng *prng, int64_t j)
{
    double drawn = sp_prng_uniform(prng);
    double less = sp_prng_uniform(prng);
    if (j < SINKS) {
        return in->sink;
    }
    return drawn < in->stripe_share ? in->stripe * (1.0 - 0.25 * less) : 0.0;
}

// cos and sin of the position at wave lengths from 4 to 8400 tokens, as rotary positions have them:
// products of two such rows depend on the distance alone, and are largest at 0.
static void put_waves(double position, double size, int64_t waves, float *row)
{
    for (int64_t w = 0; w < waves; w++) {
        double turn = position * 1.5 * pow(2000.0, -(double)w / (double)(waves - 1));
        row[2 * w] = (float)(size * cos(turn));
        row[2 * w + 1] = (float)(size * sin(turn));
    }
}

void sp_sample_input_fill(const sp_sample_input *in, uint64_t seed, int64_t tokens,
                          int64_t head_dim, float *q, int64_t q_stride, float *k, int64_t k_stride)
{
    int64_t waves = head_dim * 3 / 16;
    int64_t at_diagonal = 1 + 2 * waves;
    int64_t at_noise = 1 + 4 * waves;
    sp_prng prng;
    sp_prng_seed(&prng, seed);
    double root = sqrt((double)head_dim);
    double band = sqrt(in->band * root / (double)waves);
    double diagonal = sqrt(in->diagonal * root / (double)waves);
    // Each of the rest's products has the variance size^4 / 9.
    double size = sqrt(3.0 * in->noise * root / sqrt((double)(head_dim - at_noise)));
    for (int64_t t = 0; t < tokens; t++) {
        float *query = q + t * q_stride;
        float *key = k + t * k_stride;
        query[0] = (float)root;
        key[0] = (float)column_score(in, &prng, t);
        put_waves((double)t, band, waves, query + 1);
        // Sinks and stripes are looked for by what they say, not by where they stand.
        put_waves((double)t, key[0] > 0.0F ? 0.0 : band, waves, key + 1);
        put_waves((double)(t - in->distance), diagonal, waves, query + at_diagonal);
        put_waves((double)t, key[0] > 0.0F ? 0.0 : diagonal, waves, key + at_diagonal);
        for (int64_t c = at_noise; c < head_dim; c++) {
            query[c] = (float)(size * (2.0 * sp_prng_uniform(&prng) - 1.0));
            key[c] = (float)(size * (2.0 * sp_prng_uniform(&prng) - 1.0));
        }
    }
}
