// Packs as simple as tests need: without samples, or of one sample each.
#ifndef SLIMPACK_TESTS_SUPPORT_UNIFORM_PACKING_H
#define SLIMPACK_TESTS_SUPPORT_UNIFORM_PACKING_H

#include <stdlib.h>

#include "sim/plan/packing.h"
#include "sim/schedule/schedule.h"

// As many packs per data-parallel rank, with no slices: pack k runs on rank k % dp.
static inline void uniform_packing(sp_packing *packing, int dp, int64_t microbatches)
{
    sp_packing_init(packing, NULL, dp);
    for (int64_t k = 0; k < dp * microbatches; k++) {
        sp_pack_list_begin(&packing->forward, (int)(k % dp), 1);
    }
}

// A pack of a whole sample on dp_count data-parallel ranks.
static inline void pack_sample(sp_pack_list *list, int dp_first, int dp_count, int32_t sample,
                               int64_t tokens)
{
    const sp_slice slice = {.sample = sample, .tokens = tokens, .computed_tokens = tokens};
    sp_pack_list_begin(list, dp_first, dp_count);
    sp_pack_list_add(list, slice, true);
}

// The plan of the packs in the schedule's own order.
static inline sp_status plan_by_schedule(sp_plan *plan, const sp_layout *layout,
                                         const sp_packing *packing, sp_schedule_kind kind,
                                         sp_error *err)
{
    const sp_schedule_spec spec = {.kind = kind};
    sp_plan_init(plan, layout, packing);
    return sp_schedule_generate(&spec, NULL, "test", plan, err);
}

// Appends actions to a rank: "F0 B1.1", pack and chunk; behind a pair's first stands '+'.
static inline void plan_add_actions(sp_plan *plan, int dp, int pp, const char *actions)
{
    sp_stage_plan *stage = sp_plan_stage(plan, dp, pp);
    char *at = (char *)actions;
    while (*at != '\0') {
        int kind = 0;
        while (sp_action_letters[kind] != *at) {
            kind++;
        }
        long pack = strtol(at + 1, &at, 10);
        long chunk = *at == '.' ? strtol(at + 1, &at, 10) : 0;
        sp_stage_plan_add(stage, (sp_action_kind)kind, (int)chunk, pack);
        stage->actions[stage->count - 1].with_next = *at == '+';
        at += *at == '+';
        at += *at == ' ';
    }
}

#endif
