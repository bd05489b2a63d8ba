// GPipe (Huang et al., arXiv 1811.06965, figure 2c): all forwards, then all backwards in reverse
// order. Bubble (p-1)(F+B); all m micro-batches in flight.
#include "sim/schedule/schedule_family.h"

bool sp_i_schedule_gpipe(const sp_plan *plan, sp_i_local_packs local, int pp_rank,
                         sp_stage_plan *stage)
{
    (void)plan;
    (void)pp_rank;
    bool ok = true;
    for (int k = 0; ok && k < local.count; k++) {
        ok = sp_stage_plan_add(stage, SP_ACTION_F, 0, local.pack[k]);
    }
    for (int k = local.count; ok && k > 0; k--) {
        ok = sp_stage_plan_add(stage, SP_ACTION_B, 0, local.pack[k - 1]);
    }
    return ok;
}
