// How many model chunks each pipeline rank holds, where that is for the strategy to say. Private to
// solver.
#ifndef SLIMPACK_SOLVER_CHUNK_CHOICE_H
#define SLIMPACK_SOLVER_CHUNK_CHOICE_H

#include "sim/scenario/scenario.h"

// One chunk, or two in V placement with equally many layers on every rank: what a short search on
// the first batch of the workload predicts to be faster. A job keeps its chunks, whatever its later
// batches. Changes the layout, and the resolved document if there is one, unless the scenario
// states its chunks or the layers do not allow two.
sp_status sp_i_choose_chunks(sp_scenario *scenario, sp_error *err);

#endif
