// Random packings, costs and memory for property tests of the engine.
#ifndef SLIMPACK_TESTS_SUPPORT_RANDOM_STEP_H
#define SLIMPACK_TESTS_SUPPORT_RANDOM_STEP_H

#include "sim/base/prng.h"
#include "sim/cost/step_costs.h"
#include "sim/plan/packing.h"

// Costs of every pack drawn at random, with transfers, an epilogue and memory; virtual stages in
// two classes where there are at least two. With `kinds` > 0 packs repeat that many different cost
// rows, by their position k / dp, so that all data-parallel ranks are alike.
void random_costs(sp_prng *prng, const sp_layout *layout, const sp_packing *packing, int kinds,
                  sp_step_costs *costs);

#endif
