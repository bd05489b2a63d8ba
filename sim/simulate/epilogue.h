// The data-parallel exchanges of a step that are not inside actions, as flows: for each pipeline
// rank the gradient buckets of its model chunks, what is left to reduce, and the gather of its
// parameters, one after another. They fill the epilogues of the timeline as sp_epilogue_fill
// (engine.h) does by closed times.
#ifndef SLIMPACK_SIM_SIMULATE_EPILOGUE_H
#define SLIMPACK_SIM_SIMULATE_EPILOGUE_H

#include "sim/plan/timeline.h"
#include "sim/simulate/transfers.h"

typedef struct sp_i_reductions sp_i_reductions;

// The transfer of pipeline rank p has tag first_tag + p. Everything referenced must outlive it.
sp_i_reductions *sp_i_reductions_new(const sp_i_paths *paths, sp_i_transfers *transfers,
                                     sp_timeline *timeline, size_t first_tag);
void sp_i_reductions_free(sp_i_reductions *reductions);

// An action begins, which takes as long alone; an action has ended.
void sp_i_reductions_begun(sp_i_reductions *reductions, const sp_plan_place *place,
                           int64_t start_ns, int64_t took_ns);
void sp_i_reductions_made(sp_i_reductions *reductions, const sp_plan_place *place, int64_t end_ns);
// Begins what can begin, once all that ran stands in the timeline.
sp_status sp_i_reductions_begin(sp_i_reductions *reductions, sp_error *err);
// The transfer of a pipeline rank is over.
sp_status sp_i_reductions_ended(sp_i_reductions *reductions, int pp_rank, int64_t end_ns,
                                sp_error *err);

#endif
