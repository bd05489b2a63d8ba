#include "sim/plan/plan.h"

#include <stdarg.h>
#include <stdio.h>

#include "sim/base/alloc.h"

const char sp_action_letters[SP_ACTION_KINDS + 1] = "FBIWROL";

sp_status sp_plan_init(sp_plan *plan, const sp_layout *layout, const sp_packing *packing,
                       sp_error *err)
{
    (void)err;
    SP_ASSERT(layout->dp > 0 && layout->pp > 0 && layout->chunks > 0);
    SP_ASSERT(packing->dp == layout->dp);
    *plan = (sp_plan){.layout = *layout, .packing = packing};
    plan->stages = sp_calloc((size_t)layout->dp * (size_t)layout->pp, sizeof *plan->stages);
    return SP_OK;
}

void sp_plan_fini(sp_plan *plan)
{
    size_t stages = (size_t)plan->layout.dp * (size_t)plan->layout.pp;
    for (size_t i = 0; i < stages; i++) {
        sp_free(plan->stages[i].actions);
    }
    sp_free(plan->stages);
    *plan = (sp_plan){0};
}

sp_stage_plan *sp_plan_stage(const sp_plan *plan, int dp_rank, int pp_rank)
{
    SP_ASSERT(dp_rank >= 0 && dp_rank < plan->layout.dp);
    SP_ASSERT(pp_rank >= 0 && pp_rank < plan->layout.pp);
    return &plan->stages[(size_t)dp_rank * (size_t)plan->layout.pp + (size_t)pp_rank];
}

void sp_stage_plan_add(sp_stage_plan *stage, sp_action_kind kind, int chunk, int64_t pack)
{
    SP_ASSERT(chunk >= 0 && chunk <= UINT16_MAX && pack >= 0 && pack <= INT32_MAX);
    void *actions = stage->actions;
    sp_reserve(&actions, &stage->capacity, stage->count + 1, sizeof *stage->actions);
    stage->actions = actions;
    stage->actions[stage->count++] =
        (sp_action){.kind = (uint8_t)kind, .chunk = (uint16_t)chunk, .pack = (int32_t)pack};
}

const sp_action *sp_plan_find(const sp_plan *plan, sp_action_kind kind)
{
    size_t stages = (size_t)plan->layout.dp * (size_t)plan->layout.pp;
    for (size_t s = 0; s < stages; s++) {
        for (size_t a = 0; a < plan->stages[s].count; a++) {
            if (plan->stages[s].actions[a].kind == kind) {
                return &plan->stages[s].actions[a];
            }
        }
    }
    return NULL;
}

void sp_action_name(sp_action action, int chunks, char name[32])
{
    SP_ASSERT(action.kind < SP_ACTION_KINDS);
    char letter = sp_action_letters[action.kind];
    if (chunks > 1) {
        snprintf(name, 32, "%c%d.%u", letter, (int)action.pack, (unsigned)action.chunk);
    } else {
        snprintf(name, 32, "%c%d", letter, (int)action.pack);
    }
}

sp_status sp_error_at_action(sp_error *err, sp_status status, const sp_plan *plan,
                             const sp_plan_place *place, const char *format, ...)
{
    char text[SP_ERROR_TEXT];
    char name[32];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sp_action_name(place->action, plan->layout.chunks, name);
    return sp_error_set(err, status, "dp %d pp %d: %s: %s", place->dp, place->pp, name, text);
}
