// Random numbers that belong to a place and not to the order of drawing: each is a hash of its seed
// and its index, so that any part of a tensor or of a text can be drawn by itself.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_DRAW_H
#define SLIMPACK_BACKENDS_EXECUTOR_DRAW_H

#include <stdint.h>

// The output function of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", 2014, figure 17) at the index-th state after `seed`.
static inline uint64_t sp_i_exec_draw(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// A seed for what has a name.
static inline uint64_t sp_i_exec_draw_name(uint64_t seed, const char *name)
{
    uint64_t hash = sp_i_exec_draw(seed, 0);
    for (; *name != '\0'; name++) {
        hash = sp_i_exec_draw(hash, (unsigned char)*name);
    }
    return hash;
}

// Even over [0, 1), 53 bits.
static inline double sp_i_exec_unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

#endif
