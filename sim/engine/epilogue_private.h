// What the two ways of an epilogue share: by closed times alone (epilogue.c), or with reductions
// and gathers as flows over a shared network (reductions.c).
#ifndef SLIMPACK_SIM_ENGINE_EPILOGUE_PRIVATE_H
#define SLIMPACK_SIM_ENGINE_EPILOGUE_PRIVATE_H

#include "sim/cost/step_costs.h"
#include "sim/plan/timeline.h"

enum { SP_I_NO_GRADIENTS = -1 };

// When the gradients of a model chunk are there on all data-parallel ranks.
typedef struct sp_i_readiness {
    int64_t first_ns, last_ns; // first bucket, last bucket; SP_I_NO_GRADIENTS: it makes none
    const sp_span *span;       // of one rank: the last that made gradients
} sp_i_readiness;

bool sp_i_makes_gradients(sp_action action);
// Of the chunks of a pipeline rank, [chunks], as far as the timeline goes.
void sp_i_find_readiness(const sp_step_costs *costs, const sp_timeline *timeline, int pp_rank,
                         sp_i_readiness *ready);
// The last end on a pipeline rank, over all data-parallel ranks.
int64_t sp_i_last_of_rank_ns(const sp_timeline *timeline, int pp_rank);
// What of its gather runs behind the next step's first forward.
int64_t sp_i_hidden_gather_ns(const sp_step_costs *costs, const sp_timeline *timeline, int pp_rank);
// Notes the epilogue of a pipeline rank on all data-parallel ranks.
void sp_i_note_epilogue(sp_timeline *timeline, int pp_rank, int64_t ready_ns, int64_t reduced_ns,
                        int64_t optimized_ns, int64_t gathered_ns);

#endif
