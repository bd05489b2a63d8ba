// What the tests of lower bounds share.
#ifndef SLIMPACK_TESTS_SUPPORT_BOUND_COSTS_H
#define SLIMPACK_TESTS_SUPPORT_BOUND_COSTS_H

#include "solver/bounds/bounds.h"
#include "tests/support/test_main.h"

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

static inline double bound_growth_s(const sp_bound_costs *costs, const sp_bound_batch *batch)
{
    double bound_s = 0.0;
    must_succeed(sp_bound_growth_s(costs, batch, &bound_s, ERR));
    return bound_s;
}

#endif
