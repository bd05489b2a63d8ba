#include "backends/virtual/virtual_state.h"

#include "sim/base/alloc.h"
#include "sim/plan/regroup.h"

// Gives each pack of the list as many slots as it has ranks; the number of all.
static size_t place_slots(const sp_pack_list *list, size_t *slot)
{
    size_t next = 0;
    for (size_t p = 0; p < list->count; p++) {
        slot[p] = next;
        next += (size_t)list->packs[p].dp_count;
    }
    return next;
}

static int64_t *new_ends(size_t count)
{
    int64_t *ends = sp_i_malloc(count * sizeof *ends);
    for (size_t i = 0; ends != NULL && i < count; i++) {
        ends[i] = SP_I_NOT_YET;
    }
    return ends;
}

// `forwards` counts forward slots times virtual stages.
static bool allocate_shares(sp_i_virtual_state *s, size_t forwards)
{
    s->found = sp_i_calloc(s->lane_count, sizeof *s->found);
    s->took = sp_i_calloc(s->lane_count, sizeof *s->took);
    s->ready_ns = sp_i_calloc((size_t)s->plan->layout.dp, sizeof *s->ready_ns);
    s->head_ns =
        sp_i_calloc(forwards / s->vstages * (size_t)s->plan->layout.pp + 1, sizeof *s->head_ns);
    return s->found != NULL && s->took != NULL && s->ready_ns != NULL && s->head_ns != NULL;
}

static bool allocate(sp_i_virtual_state *s)
{
    const sp_pack_list *forward = &s->plan->packing->forward;
    s->forward_slot = sp_i_malloc(forward->count * sizeof *s->forward_slot);
    s->backward_slot = sp_i_malloc(s->backward->count * sizeof *s->backward_slot);
    s->lanes = sp_i_calloc(s->lane_count, sizeof *s->lanes);
    s->queue = sp_i_malloc(s->lane_count * sizeof *s->queue);
    s->starts = sp_i_malloc((size_t)s->plan->layout.dp * sizeof *s->starts);
    if (s->forward_slot == NULL || s->backward_slot == NULL || s->lanes == NULL ||
        s->queue == NULL || s->starts == NULL) {
        return false;
    }
    size_t forwards = place_slots(forward, s->forward_slot) * s->vstages;
    size_t backwards = place_slots(s->backward, s->backward_slot) * s->vstages;
    s->forward_ns = new_ends(forwards);
    s->backward_ns = new_ends(backwards);
    s->out_ns = new_ends(forwards);
    s->back_ns = new_ends(forwards);
    s->gave = sp_i_calloc((size_t)s->plan->layout.dp, sizeof *s->gave);
    if (s->gave == NULL || (s->shares.items != NULL && !allocate_shares(s, forwards))) {
        return false;
    }
    s->recomputed = sp_i_calloc(forwards, sizeof *s->recomputed);
    for (size_t l = 0; l < s->lane_count; l++) {
        s->lanes[l].last_out_ns = SP_I_NOT_YET;
        s->lanes[l].last_back_ns = SP_I_NOT_YET;
        s->lanes[l].leaving_ns = SP_I_NOT_YET;
    }
    return s->forward_ns != NULL && s->backward_ns != NULL && s->out_ns != NULL &&
           s->back_ns != NULL && s->recomputed != NULL;
}

sp_status sp_i_virtual_init(sp_i_virtual_state *state, const sp_plan *plan,
                            const sp_virtual_driver *driver, sp_timeline *timeline, sp_error *err)
{
    size_t lanes = (size_t)plan->layout.dp * (size_t)plan->layout.pp;
    // Sums over all ranks must fit as well.
    *state = (sp_i_virtual_state){.plan = plan,
                                  .driver = driver,
                                  .timeline = timeline,
                                  .backward = sp_packing_backward(plan->packing),
                                  .vstages = (size_t)sp_layout_vstages(&plan->layout),
                                  .lane_count = lanes,
                                  .limit_ns = INT64_MAX / 4 / (int64_t)lanes};
    sp_status status = sp_i_regroup(plan->packing, &state->needs, err);
    if (status == SP_OK && driver != NULL && driver->shares) {
        status = sp_shares_make(plan, &state->shares, err);
    }
    if (status == SP_OK && !allocate(state)) {
        status = sp_error_no_memory(err, "the run");
    }
    return status;
}

void sp_i_virtual_fini(sp_i_virtual_state *state)
{
    sp_i_free(state->forward_slot);
    sp_i_free(state->backward_slot);
    sp_i_free(state->forward_ns);
    sp_i_free(state->backward_ns);
    sp_i_free(state->out_ns);
    sp_i_free(state->back_ns);
    sp_i_free(state->recomputed);
    sp_i_free(state->needs);
    sp_i_free(state->lanes);
    sp_i_free(state->queue);
    sp_i_free(state->starts);
    sp_shares_fini(&state->shares);
    sp_i_free((void *)state->found);
    sp_i_free(state->took);
    sp_i_free(state->ready_ns);
    sp_i_free(state->head_ns);
    sp_i_free(state->gave);
}

bool sp_i_virtual_is_backward(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_I || action.kind == SP_ACTION_W;
}

bool sp_i_virtual_is_copy(sp_action action)
{
    return action.kind == SP_ACTION_O || action.kind == SP_ACTION_L;
}

bool sp_i_virtual_is_alone(const sp_pack *pack, sp_action action)
{
    return pack->dp_count == 1 || sp_i_virtual_is_copy(action) || action.kind == SP_ACTION_W;
}

const sp_pack *sp_i_virtual_pack(const sp_i_virtual_state *state, sp_action action)
{
    return sp_i_virtual_is_backward(action) ? &state->backward->packs[action.pack]
                                            : &state->plan->packing->forward.packs[action.pack];
}

int sp_i_virtual_vstage(const sp_i_virtual_state *state, const sp_plan_place *place)
{
    return sp_layout_vstage(&state->plan->layout, place->pp, place->action.chunk);
}

size_t sp_i_virtual_index(const sp_i_virtual_state *state, sp_action action, int dp, int vstage)
{
    const size_t *slots =
        sp_i_virtual_is_backward(action) ? state->backward_slot : state->forward_slot;
    size_t member = (size_t)(dp - sp_i_virtual_pack(state, action)->dp_first);
    return (slots[action.pack] + member) * state->vstages + (size_t)vstage;
}

sp_i_virtual_lane *sp_i_virtual_lane_of(const sp_i_virtual_state *state, int dp, int pp)
{
    return &state->lanes[(size_t)dp * (size_t)state->plan->layout.pp + (size_t)pp];
}

size_t sp_i_virtual_reads(const sp_i_virtual_state *state, sp_action action)
{
    if (action.kind == SP_ACTION_F) {
        return 0;
    }
    bool regrouped = state->needs != NULL && sp_i_virtual_is_backward(action);
    return regrouped ? sp_i_virtual_pack(state, action)->slice_count : 1;
}

int32_t sp_i_virtual_read(const sp_i_virtual_state *state, sp_action action, size_t i)
{
    bool regrouped = state->needs != NULL && sp_i_virtual_is_backward(action);
    return regrouped ? state->needs[sp_i_virtual_pack(state, action)->first_slice + i]
                     : action.pack;
}
