// Units of random models, layouts, stages and stacks, for what holds of any.
#ifndef SLIMPACK_TESTS_SUPPORT_UNIT_DRAW_H
#define SLIMPACK_TESTS_SUPPORT_UNIT_DRAW_H

#include "sim/memory/footprint.h"
#include "tests/support/test_main.h"

typedef struct unit_draw {
    sp_model model;
    sp_layout layout;
    sp_stage stage;
    sp_memory_options options;
    sp_unit_load load;
} unit_draw;

unit_draw draw_unit(sp_prng *prng);
// Some of the modules that the model has; none may be.
sp_recompute random_modules(sp_prng *prng, const sp_model *model);
// Takes latents, states, missing blocks, gates, further predicted tokens and adapters away too, as
// hand-written passes ask for.
void make_usual(unit_draw *draw);
// Takes the experts away from all layers.
void make_dense(unit_draw *draw);

#endif
