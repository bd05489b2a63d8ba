#include "sim/inference/acceptance.h"

#include <math.h>

// Box and Muller's transformation by Marsaglia's polar method, which needs no sine.
static double normal(sp_drafted_sequence *sequence)
{
    if (sequence->has_spare) {
        sequence->has_spare = false;
        return sequence->spare;
    }
    double x = 0.0;
    double y = 0.0;
    double square = 0.0;
    while (!(square > 0.0 && square < 1.0)) {
        x = 2.0 * sp_prng_uniform(&sequence->prng) - 1.0;
        y = 2.0 * sp_prng_uniform(&sequence->prng) - 1.0;
        square = x * x + y * y;
    }
    double factor = sqrt(-2.0 * log(square) / square);
    sequence->spare = factor * y;
    sequence->has_spare = true;
    return factor * x;
}

void sp_drafted_sequence_begin(sp_drafted_sequence *sequence, uint64_t seed, uint64_t index)
{
    static const uint64_t odd = 0x9e3779b97f4a7c15; // spreads neighbours over all bits
    *sequence = (sp_drafted_sequence){.has_spare = false};
    sp_prng_seed(&sequence->prng, seed + odd * (index + 1));
    sequence->difficulty = normal(sequence);
}

void sp_drafted_sequence_next(sp_drafted_sequence *sequence, const sp_acceptance *model)
{
    double kept = model->persistence;
    sequence->difficulty = kept * sequence->difficulty + sqrt(1.0 - kept * kept) * normal(sequence);
}

int sp_acceptance_draw(const sp_acceptance *model, sp_drafted_sequence *sequence, int top_k,
                       sp_draft_row *row)
{
    sp_prng *prng = &sequence->prng;
    double logit =
        model->ease + model->spread * sequence->difficulty + model->noise * normal(sequence);
    // No setting makes a logit whose exponential overflows.
    double odds = exp(logit);
    double left = 1.0 / (1.0 + odds);
    double log_left = log(left);
    row->confidence[0] = odds * left;
    row->log_confidence[0] = log_left + logit;
    for (int i = 0; i < top_k; i++) {
        row->token[i] = i;
        if (i > 0) {
            row->confidence[i] = left * row->confidence[i - 1];
            row->log_confidence[i] = log_left + row->log_confidence[i - 1];
        }
    }
    double place = floor(log(1.0 - sp_prng_uniform(prng)) / (model->agreement * log_left));
    bool blind = sp_prng_uniform(prng) < model->blind;
    return !blind && place >= 0.0 && place < top_k ? (int)place : -1;
}
