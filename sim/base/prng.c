#include "sim/base/prng.h"

static uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

void sp_prng_seed(sp_prng *prng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += 0x9e3779b97f4a7c15u;
        uint64_t z = seed;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        prng->state[i] = z ^ (z >> 31);
    }
}

uint64_t sp_prng_u64(sp_prng *prng)
{
    uint64_t *s = prng->state;
    uint64_t result = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

double sp_prng_uniform(sp_prng *prng)
{
    return (double)(sp_prng_u64(prng) >> 11) * 0x1.0p-53;
}

uint64_t sp_prng_below(sp_prng *prng, uint64_t bound)
{
    // Values below (2^64 mod bound) would favour small results; draw again.
    uint64_t threshold = (0 - bound) % bound;
    for (;;) {
        uint64_t value = sp_prng_u64(prng);
        if (value >= threshold) {
            return value % bound;
        }
    }
}
