// 1F1B, PipeDream-flush (Narayanan et al., arXiv 2006.09503, section 2.2): rank r runs min(p-1-r,
// m) forwards, then one forward and one backward in turn, then the remaining backwards. Bubble
// (p-1)(F+B); min(p-r, m) micro-batches in flight.
#include "sim/schedule/schedule_family.h"

bool sp_i_schedule_1f1b(const sp_plan *plan, sp_i_local_packs local, int pp_rank,
                        sp_stage_plan *stage)
{
    int warmup = plan->layout.pp - 1 - pp_rank;
    if (warmup > local.count) {
        warmup = local.count;
    }
    bool ok = true;
    for (int k = 0; ok && k < warmup; k++) {
        ok = sp_stage_plan_add(stage, SP_ACTION_F, 0, local.pack[k]);
    }
    for (int k = 0; ok && k < local.count; k++) {
        if (warmup + k < local.count) {
            ok = sp_stage_plan_add(stage, SP_ACTION_F, 0, local.pack[warmup + k]);
        }
        ok = ok && sp_stage_plan_add(stage, SP_ACTION_B, 0, local.pack[k]);
    }
    return ok;
}
