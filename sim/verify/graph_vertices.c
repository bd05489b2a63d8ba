#include "sim/verify/graph_private.h"

#include "sim/base/alloc.h"
#include "sim/cost/action_cost.h"

size_t sp_i_vertex_map_index(const sp_plan *plan, const sp_i_vertex_map *map, int side,
                             int32_t pack, int dp, int vstage)
{
    int member = dp - sp_i_structure_pack(plan, side, pack)->dp_first;
    return (map->slot[side][pack] + (size_t)member) * map->vstages + (size_t)vstage;
}

void sp_i_vertex_map_fini(sp_i_vertex_map *map)
{
    for (int side = 0; side < 2; side++) {
        sp_i_free(map->slot[side]);
        sp_i_free(map->vertex[side]);
    }
    sp_i_free(map->recompute);
    sp_i_free(map->offload);
    sp_i_free(map->load);
    sp_i_free(map->forward_pack);
    sp_shares_fini(&map->shares);
    for (int i = 0; i < 2 * SP_I_SHARE_ENDS; i++) {
        sp_i_free(map->share[i / 2][i % 2]);
        sp_i_free(map->stage[i / 2][i % 2]);
    }
}

size_t sp_i_vertex_map_share(const sp_plan *plan, const sp_i_vertex_map *map, sp_action action,
                             int dp)
{
    int side = sp_i_structure_is_backward(action);
    int member = dp - sp_i_structure_pack(plan, side, action.pack)->dp_first;
    return map->slot[side][action.pack] + (size_t)member;
}

static bool allocate_shares(const sp_plan *plan, sp_i_vertex_map *map, const size_t slots[2])
{
    bool ok = true;
    for (int i = 0; map->shares.items != NULL && i < 2 * SP_I_SHARE_ENDS; i++) {
        size_t count = slots[0] + slots[1] + 1;
        map->share[i / 2][i % 2] = sp_i_calloc(count * (size_t)plan->layout.pp, sizeof(size_t));
        map->stage[i / 2][i % 2] = sp_i_calloc(count, sizeof(size_t));
        ok = ok && map->share[i / 2][i % 2] != NULL && map->stage[i / 2][i % 2] != NULL;
    }
    return ok;
}

// Numbers a rank's shares that stand before its action `before`.
static size_t number_shares(sp_structure *s, const sp_step_costs *costs, sp_i_vertex_map *map,
                            int dp, int pp, size_t before, size_t v, size_t *done)
{
    size_t count;
    const sp_share *shares = sp_shares_of(&map->shares, &s->plan->layout, dp, pp, &count);
    for (; *done < count && shares[*done].before <= before; (*done)++, v++) {
        const sp_share *share = &shares[*done];
        sp_action_cost cost = sp_share_cost_of(s->plan, costs, share);
        size_t at =
            sp_i_vertex_map_share(s->plan, map, share->action, dp) * (size_t)s->plan->layout.pp;
        map->share[share->end][share->action.kind == SP_ACTION_R][at + (size_t)pp] = v + 1;
        s->vertices[v] = (sp_i_vertex){.action = share->action,
                                       .share = (uint8_t)(1 + share->end),
                                       .dp = dp,
                                       .pp = pp,
                                       .duration_ns = sp_action_cost_ns(&cost)};
    }
    return v;
}

// Those that stand before the action `before`, beyond the `done` first.
static size_t shares_between(const sp_i_vertex_map *map, const sp_plan *plan, int dp, int pp,
                             size_t done, size_t before)
{
    size_t count;
    size_t between = 0;
    const sp_share *shares = sp_shares_of(&map->shares, &plan->layout, dp, pp, &count);
    while (done + between < count && shares[done + between].before <= before) {
        between++;
    }
    return between;
}

// Notes an action that needs all ranks.
static void number_stage(const sp_structure *s, const sp_i_vertex_map *map, const sp_i_vertex *at,
                         size_t v)
{
    int vstage = sp_layout_vstage(&s->plan->layout, at->pp, at->action.chunk);
    sp_share_end end;
    if (map->shares.items != NULL && sp_share_end_of(&s->plan->layout, vstage, at->action, &end)) {
        map->stage[end][at->action.kind == SP_ACTION_R]
                  [sp_i_vertex_map_share(s->plan, map, at->action, at->dp)] = v + 1;
    }
}

// Has every forward pack of this backward been recomputed by the actions numbered so far?
static bool was_recomputed(const sp_plan *plan, const sp_i_vertex_map *map, sp_action action,
                           int dp, int vstage)
{
    if (action.kind != SP_ACTION_B && action.kind != SP_ACTION_I) {
        return false;
    }
    if (map->forward_pack == NULL) {
        return map->recompute[sp_i_vertex_map_index(plan, map, 0, action.pack, dp, vstage)] != 0;
    }
    const sp_pack *pack = sp_i_structure_pack(plan, 1, action.pack);
    bool all = true;
    for (size_t s = pack->first_slice; all && s < pack->first_slice + pack->slice_count; s++) {
        all =
            map->recompute[sp_i_vertex_map_index(plan, map, 0, map->forward_pack[s], dp, vstage)] !=
            0;
    }
    return all;
}

bool sp_i_structure_number(sp_structure *s, const sp_step_costs *costs, sp_i_vertex_map *map)
{
    const sp_plan *plan = s->plan;
    map->vstages = (size_t)sp_layout_vstages(&plan->layout);
    size_t slots[2] = {0, 0};
    for (int side = 0; side < 2; side++) {
        const sp_pack_list *list =
            side == 1 ? sp_packing_backward(plan->packing) : &plan->packing->forward;
        map->slot[side] = sp_i_malloc(list->count * sizeof *map->slot[side]);
        if (map->slot[side] == NULL) {
            return false;
        }
        for (size_t k = 0; k < list->count; k++) {
            map->slot[side][k] = slots[side];
            slots[side] += (size_t)list->packs[k].dp_count;
        }
        map->vertex[side] = sp_i_calloc(slots[side] * map->vstages, sizeof *map->vertex[side]);
    }
    map->recompute = sp_i_calloc(slots[0] * map->vstages, sizeof *map->recompute);
    map->offload = sp_i_calloc(slots[0] * map->vstages, sizeof *map->offload);
    map->load = sp_i_calloc(slots[0] * map->vstages, sizeof *map->load);
    size_t stages = (size_t)plan->layout.dp * (size_t)plan->layout.pp;
    for (size_t i = 0; i < stages; i++) {
        s->vertex_count += plan->stages[i].count;
    }
    s->vertex_count += map->shares.items != NULL ? map->shares.first[stages] : 0;
    s->vertices = sp_i_malloc(s->vertex_count * sizeof *s->vertices);
    if (map->vertex[0] == NULL || map->vertex[1] == NULL || map->recompute == NULL ||
        map->offload == NULL || map->load == NULL || s->vertices == NULL ||
        !allocate_shares(plan, map, slots)) {
        return false;
    }
    size_t v = 0;
    for (size_t i = 0; i < stages; i++) {
        int dp = (int)(i / (size_t)plan->layout.pp);
        int pp = (int)(i % (size_t)plan->layout.pp);
        size_t shares = 0;
        for (size_t a = 0; a < plan->stages[i].count; a++, v++) {
            v = number_shares(s, costs, map, dp, pp, a, v, &shares);
            sp_action action = plan->stages[i].actions[a];
            int vstage = sp_layout_vstage(&plan->layout, pp, action.chunk);
            size_t at = sp_i_vertex_map_index(plan, map, sp_i_structure_is_backward(action),
                                              action.pack, dp, vstage);
            // What the first of a pair gives is there when the second is done.
            size_t done = v + 1;
            if (action.with_next) {
                done += 1 + shares_between(map, plan, dp, pp, shares, a + 1);
            }
            if (action.kind == SP_ACTION_F) {
                map->vertex[0][at] = done;
            } else if (action.kind == SP_ACTION_B || action.kind == SP_ACTION_I) {
                map->vertex[1][at] = done;
            } else if (action.kind == SP_ACTION_R) {
                map->recompute[at] = v + 1;
            } else if (action.kind == SP_ACTION_O) {
                map->offload[at] = v + 1;
                map->copies = true;
            } else if (action.kind == SP_ACTION_L) {
                map->load[at] = v + 1;
            }
            bool recomputed = was_recomputed(plan, map, action, dp, vstage);
            sp_action_cost cost = sp_action_cost_of(plan, costs, action, vstage, recomputed);
            s->vertices[v] = (sp_i_vertex){
                .action = action, .dp = dp, .pp = pp, .duration_ns = sp_action_cost_ns(&cost)};
            number_stage(s, map, &s->vertices[v], v);
        }
        v = number_shares(s, costs, map, dp, pp, plan->stages[i].count, v, &shares);
    }
    return true;
}
