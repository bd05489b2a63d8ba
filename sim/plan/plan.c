#include "sim/plan/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/plan/depends.h"

const char sp_action_letters[SP_ACTION_KINDS + 1] = "FBIWROL";

void sp_plan_init(sp_plan *plan, const sp_layout *layout, const sp_packing *packing)
{
    SP_ASSERT(layout->dp > 0 && layout->pp > 0 && layout->chunks > 0);
    SP_ASSERT(packing->dp == layout->dp);
    *plan = (sp_plan){.layout = *layout, .packing = packing};
    plan->stages = sp_calloc((size_t)layout->dp * (size_t)layout->pp, sizeof *plan->stages);
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
    *SP_ADDED(stage->actions, stage->capacity, stage->count) =
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

// Gives each pack of a side as many slots as it has ranks, where they run.
static void number_slots(sp_depends *d, int side, const uint8_t *runs)
{
    const sp_pack_list *list = d->packs[side];
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        d->base[side][k] = d->slots[side] - (size_t)pack->dp_first;
        d->merged = d->merged || pack->dp_count > 1;
        if (runs == NULL || runs[pack->dp_first] != 0) {
            d->slots[side] += (size_t)pack->dp_count;
        }
    }
}

void sp_depends_init(sp_depends *depends, const sp_plan *plan, const uint8_t *runs)
{
    sp_depends *d = depends;
    *d = (sp_depends){.plan = plan,
                      .packs = {&plan->packing->forward, sp_packing_backward(plan->packing)},
                      .vstages = sp_layout_vstages(&plan->layout)};
    size_t vstages = (size_t)d->vstages;
    d->vstage_of = sp_arena_take(&d->work, vstages, sizeof *d->vstage_of);
    d->rank_of = sp_arena_take(&d->work, vstages, sizeof *d->rank_of);
    d->chunk_of = sp_arena_take(&d->work, vstages, sizeof *d->chunk_of);
    d->base[0] = sp_arena_take(&d->work, d->packs[0]->count, sizeof *d->base[0]);
    d->base[1] = sp_arena_take(&d->work, d->packs[1]->count, sizeof *d->base[1]);
    for (int v = 0; v < d->vstages; v++) {
        sp_layout_locate(&plan->layout, v, &d->rank_of[v], &d->chunk_of[v]);
        d->vstage_of[d->rank_of[v] * plan->layout.chunks + d->chunk_of[v]] = v;
    }
    number_slots(d, 0, runs);
    number_slots(d, 1, runs);
    sp_regroup(plan->packing, &d->forward_pack);
}

void sp_depends_fini(sp_depends *depends)
{
    sp_free(depends->forward_pack);
    sp_arena_free(&depends->work);
    *depends = (sp_depends){0};
}

int64_t *sp_depends_timestamps(const sp_depends *depends, int side)
{
    // One more, so that no table is empty.
    size_t bytes = (depends->slots[side] * (size_t)depends->vstages + 1) * sizeof(int64_t);
    return memset(sp_malloc(bytes), 0xff, bytes); // SP_NOT_YET
}

bool sp_depends_input(const sp_depends *depends, const sp_plan_place *place, size_t i,
                      sp_plan_place *input)
{
    static const uint8_t awaited[SP_ACTION_KINDS] = {
        [SP_ACTION_B] = SP_ACTION_L, [SP_ACTION_I] = SP_ACTION_L, [SP_ACTION_R] = SP_ACTION_L,
        [SP_ACTION_O] = SP_ACTION_F, [SP_ACTION_L] = SP_ACTION_O,
    };
    size_t reads = sp_depends_reads(depends, place->action);
    if (i >= reads) {
        return i == reads && sp_depends_from(depends, place, input);
    }
    *input = *place;
    input->action = (sp_action){.kind = awaited[place->action.kind],
                                .chunk = place->action.chunk,
                                .pack = sp_depends_read(depends, place->action, i)};
    return true;
}

bool sp_shares_are(const sp_layout *layout)
{
    return layout->vocab_parallel && layout->pp > 1;
}

const sp_share *sp_shares_of(const sp_shares *shares, const sp_layout *layout, int dp, int pp,
                             size_t *count)
{
    if (shares->items == NULL) {
        *count = 0;
        return NULL;
    }
    const size_t *first = &shares->first[dp * layout->pp + pp];
    *count = first[1] - first[0];
    return &shares->items[first[0]];
}

bool sp_share_part_of(const sp_layout *layout, int vstage, sp_action action, sp_share_part *part)
{
    bool last = vstage + 1 == sp_layout_vstages(layout);
    bool forward = action.kind == SP_ACTION_F || action.kind == SP_ACTION_R;
    bool backward = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    *part = last ? (forward ? SP_SHARE_HEAD : SP_SHARE_HEAD_BACKWARD)
                 : (forward ? SP_SHARE_EMBEDDING : SP_SHARE_EMBEDDING_BACKWARD);
    return sp_shares_are(layout) && (last || vstage == 0) && (forward || backward);
}

bool sp_action_is_shared(const sp_plan *plan, int pp, sp_action action, sp_share_part *part)
{
    if (!sp_shares_are(&plan->layout) ||
        !sp_share_part_of(&plan->layout, sp_layout_vstage(&plan->layout, pp, action.chunk), action,
                          part)) {
        return false;
    }
    const sp_pack_list *list = sp_action_is_backward(action) ? sp_packing_backward(plan->packing)
                                                             : &plan->packing->forward;
    return list->packs[action.pack].computed > 0;
}

int sp_share_stage(const sp_layout *layout, sp_share_part part)
{
    bool head = part == SP_SHARE_HEAD || part == SP_SHARE_HEAD_BACKWARD;
    return head ? sp_layout_vstages(layout) - 1 : 0;
}
