// What the two ways of an epilogue share: by closed times alone (epilogue.c), or with reductions
// and gathers as flows over a shared network (reductions.c).
#ifndef SLIMPACK_SIM_ENGINE_EPILOGUE_PRIVATE_H
#define SLIMPACK_SIM_ENGINE_EPILOGUE_PRIVATE_H

#include "sim/cost/step_costs.h"
#include "sim/plan/timeline.h"

bool sp_i_makes_gradients(sp_action action);
// What of its gather runs behind the next step's first forward.
int64_t sp_i_hidden_gather_ns(const sp_step_costs *costs, const sp_timeline *timeline, int pp_rank);
// Notes the epilogue of a pipeline rank on all data-parallel ranks.
void sp_i_note_epilogue(sp_timeline *timeline, int pp_rank, int64_t ready_ns, int64_t reduced_ns,
                        int64_t optimized_ns, int64_t gathered_ns);

#endif
