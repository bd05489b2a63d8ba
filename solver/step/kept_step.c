// A judged step that the evaluation of its packing takes over in place of doing all of it again.
#include <string.h>

#include "sim/base/alloc.h"
#include "solver/step/step.h"

void sp_i_kept_step_fini(sp_i_kept_step *kept)
{
    sp_packing_fini(&kept->packing);
    sp_plan_fini(&kept->plan);
    sp_timeline_fini(&kept->timeline);
    sp_memory_timeline_fini(&kept->memory);
    *kept = (sp_i_kept_step){.plan = {.packing = NULL}};
}

static sp_pack_list copy_of(const sp_pack_list *from)
{
    sp_pack_list to = {.packs = sp_malloc(from->count * sizeof *to.packs),
                       .count = from->count,
                       .capacity = from->count,
                       .slices = sp_malloc(from->slice_count * sizeof *to.slices),
                       .slice_count = from->slice_count,
                       .slice_capacity = from->slice_count};
    if (from->count > 0) {
        memcpy(to.packs, from->packs, from->count * sizeof *to.packs);
        memcpy(to.slices, from->slices, from->slice_count * sizeof *to.slices);
    }
    return to;
}

static bool is_same_list(const sp_pack_list *a, const sp_pack_list *b)
{
    return a->count == b->count && a->slice_count == b->slice_count &&
           (a->count == 0 ||
            (memcmp(a->packs, b->packs, a->count * sizeof *a->packs) == 0 &&
             memcmp(a->slices, b->slices, a->slice_count * sizeof *a->slices) == 0));
}

// What is asked of a timeline beyond its numbers was not asked when it was judged.
bool sp_i_kept_step_serves(const sp_i_kept_step *kept, const sp_evaluate_options *options,
                           const sp_packing *packing)
{
    const sp_engine_options *engine = &options->engine;
    return kept->plan.stages != NULL && !engine->unfold && !engine->memory_points &&
           !engine->verify && kept->packing.batch == packing->batch &&
           kept->packing.dp == packing->dp && kept->packing.spare_bytes == packing->spare_bytes &&
           kept->packing.whole_backwards == packing->whole_backwards &&
           is_same_list(&kept->packing.forward, &packing->forward) &&
           is_same_list(&kept->packing.backward, &packing->backward);
}

void sp_i_kept_step_keep(sp_i_kept_step *kept, sp_i_kept_step *judged, const sp_packing *packing)
{
    if (judged->plan.stages == NULL ||
        (kept->plan.stages != NULL && !sp_packflow_is_better(&judged->outcome, &kept->outcome))) {
        sp_i_kept_step_fini(judged);
        return;
    }
    judged->packing = (sp_packing){.batch = packing->batch,
                                   .dp = packing->dp,
                                   .spare_bytes = packing->spare_bytes,
                                   .whole_backwards = packing->whole_backwards,
                                   .forward = copy_of(&packing->forward),
                                   .backward = copy_of(&packing->backward)};
    sp_i_kept_step_fini(kept);
    *kept = *judged;
}
