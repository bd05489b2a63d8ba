// Steps whose pipeline, data-parallel and context-parallel traffic meets on links: random costs on
// H100 nodes.
#ifndef SLIMPACK_TESTS_SUPPORT_SIMGRID_DRAWN_STEP_H
#define SLIMPACK_TESTS_SUPPORT_SIMGRID_DRAWN_STEP_H

#include "sim/base/prng.h"
#include "sim/cost/step_costs.h"
#include "sim/network/topology.h"
#include "sim/schedule/schedule.h"

typedef struct drawn_step {
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs;
    sp_cluster cluster;
    sp_network network;
} drawn_step;

// `microbatches` on each data-parallel rank. Must stay where it is; ends the process with a message
// on any error.
void drawn_step_make(sp_prng *prng, sp_layout layout, sp_schedule_kind kind, int microbatches,
                     drawn_step *step);
void drawn_step_fini(drawn_step *step);

#endif
