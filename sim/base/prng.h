// The project's own pseudo-random numbers: equal seed, equal sequence, everywhere.
#ifndef SLIMPACK_SIM_BASE_PRNG_H
#define SLIMPACK_SIM_BASE_PRNG_H

#include <stdint.h>

// xoshiro256** 1.0 (Blackman, Vigna: "Scrambled linear pseudorandom number generators", 2021),
// seeded through splitmix64.
typedef struct sp_prng {
    uint64_t state[4];
} sp_prng;

void sp_prng_seed(sp_prng *prng, uint64_t seed);
uint64_t sp_prng_u64(sp_prng *prng);

// Uniform in [0, 1), 53 bits.
double sp_prng_uniform(sp_prng *prng);

// Uniform in [0, bound), without modulo bias; bound > 0.
uint64_t sp_prng_below(sp_prng *prng, uint64_t bound);

#endif
