#include "sim/plan/depends.h"

#include <string.h>

#include "sim/plan/regroup.h"

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

sp_status sp_depends_init(sp_depends *depends, const sp_plan *plan, const uint8_t *runs,
                          sp_error *err)
{
    sp_depends *d = depends;
    (void)err;
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
    sp_regroup(plan->packing, &d->forward_pack, NULL);
    return SP_OK;
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
