// What the tests of lower bounds share.
#ifndef SLIMPACK_TESTS_SUPPORT_BOUND_COSTS_H
#define SLIMPACK_TESTS_SUPPORT_BOUND_COSTS_H

#include "solver/bounds/bounds.h"

// Of a pack of this size, what it takes at least.
static inline double bound_fixed_s(const sp_bound_costs *c, double tokens, bool backward)
{
    for (int i = 0; i < c->sizes; i++) {
        if (tokens <= c->size[i].tokens) {
            return backward ? c->size[i].b_pack_s : c->size[i].f_pack_s;
        }
    }
    return backward ? c->b_pack_s : c->f_pack_s;
}

#endif
