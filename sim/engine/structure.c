
#include "sim/base/alloc.h"
#include "sim/engine/action_cost.h"
#include "sim/engine/structure_private.h"
#include "sim/schedule/regroup.h"

enum { ENDS = SP_SHARE_HEAD_BACKWARD + 1 };

// Vertex of each action, by kind of pass, pack, data-parallel rank and virtual stage.
typedef struct action_map {
    size_t *slot[2];       // first slot of each pack: forward, backward
    size_t *vertex[2];     // [slots * vstages] + 1, 0 for none: F, and B or I
    size_t *recompute;     // the same for R, by forward slots
    size_t *offload;       // for O
    size_t *load;          // for L
    bool copies;           // there is an O
    int32_t *forward_pack; // of each backward slice, NULL where equal
    size_t vstages;
    // Of a vocabulary that pipeline ranks share; the vertex + 1 as above. By end, of F or else of
    // R, and [slots * pp]: each rank's share. By the same, [slots]: the stage's action itself.
    sp_shares shares;
    size_t *share[ENDS][2], *stage[ENDS][2];
} action_map;

static bool is_backward(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_I || action.kind == SP_ACTION_W;
}

static const sp_pack *pack_of(const sp_plan *plan, int side, int32_t pack)
{
    return side == 1 ? &sp_packing_backward(plan->packing)->packs[pack]
                     : &plan->packing->forward.packs[pack];
}

static size_t map_index(const sp_plan *plan, const action_map *map, int side, int32_t pack, int dp,
                        int vstage)
{
    int member = dp - pack_of(plan, side, pack)->dp_first;
    return (map->slot[side][pack] + (size_t)member) * map->vstages + (size_t)vstage;
}

static void map_fini(action_map *map)
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
    for (int i = 0; i < 2 * ENDS; i++) {
        sp_i_free(map->share[i / 2][i % 2]);
        sp_i_free(map->stage[i / 2][i % 2]);
    }
}

static size_t share_index(const sp_plan *plan, const action_map *map, sp_action action, int dp)
{
    int side = is_backward(action);
    int member = dp - pack_of(plan, side, action.pack)->dp_first;
    return map->slot[side][action.pack] + (size_t)member;
}

static bool allocate_shares(const sp_plan *plan, action_map *map, const size_t slots[2])
{
    bool ok = true;
    for (int i = 0; map->shares.items != NULL && i < 2 * ENDS; i++) {
        size_t count = slots[0] + slots[1] + 1;
        map->share[i / 2][i % 2] = sp_i_calloc(count * (size_t)plan->layout.pp, sizeof(size_t));
        map->stage[i / 2][i % 2] = sp_i_calloc(count, sizeof(size_t));
        ok = ok && map->share[i / 2][i % 2] != NULL && map->stage[i / 2][i % 2] != NULL;
    }
    return ok;
}

// Numbers a rank's shares that stand before its action `before`.
static size_t number_shares(sp_structure *s, const sp_step_costs *costs, action_map *map, int dp,
                            int pp, size_t before, size_t v, size_t *done)
{
    size_t count;
    const sp_share *shares = sp_shares_of(&map->shares, &s->plan->layout, dp, pp, &count);
    for (; *done < count && shares[*done].before <= before; (*done)++, v++) {
        const sp_share *share = &shares[*done];
        sp_action_cost cost = sp_i_share_cost(s->plan, costs, share);
        size_t at = share_index(s->plan, map, share->action, dp) * (size_t)s->plan->layout.pp;
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
static size_t shares_between(const action_map *map, const sp_plan *plan, int dp, int pp,
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
static void number_stage(const sp_structure *s, const action_map *map, const sp_i_vertex *at,
                         size_t v)
{
    int vstage = sp_layout_vstage(&s->plan->layout, at->pp, at->action.chunk);
    sp_share_end end;
    if (map->shares.items != NULL && sp_share_end_of(&s->plan->layout, vstage, at->action, &end)) {
        map->stage[end][at->action.kind == SP_ACTION_R]
                  [share_index(s->plan, map, at->action, at->dp)] = v + 1;
    }
}

// Has every forward pack of this backward been recomputed by the actions numbered so far?
static bool was_recomputed(const sp_plan *plan, const action_map *map, sp_action action, int dp,
                           int vstage)
{
    if (action.kind != SP_ACTION_B && action.kind != SP_ACTION_I) {
        return false;
    }
    if (map->forward_pack == NULL) {
        return map->recompute[map_index(plan, map, 0, action.pack, dp, vstage)] != 0;
    }
    const sp_pack *pack = pack_of(plan, 1, action.pack);
    bool all = true;
    for (size_t s = pack->first_slice; all && s < pack->first_slice + pack->slice_count; s++) {
        all = map->recompute[map_index(plan, map, 0, map->forward_pack[s], dp, vstage)] != 0;
    }
    return all;
}

// Numbers all actions, lane after lane.
static bool number_actions(sp_structure *s, const sp_step_costs *costs, action_map *map)
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
            size_t at = map_index(plan, map, is_backward(action), action.pack, dp, vstage);
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
            sp_action_cost cost = sp_i_action_cost(plan, costs, action, vstage, recomputed);
            s->vertices[v] = (sp_i_vertex){
                .action = action, .dp = dp, .pp = pp, .duration_ns = sp_action_cost_ns(&cost)};
            number_stage(s, map, &s->vertices[v], v);
        }
        v = number_shares(s, costs, map, dp, pp, plan->stages[i].count, v, &shares);
    }
    return true;
}

static bool add_edge(sp_structure *s, size_t from, size_t to, int64_t lag_ns, sp_i_wait reason)
{
    size_t e = s->edge_count;
    if (!sp_i_reserve((void **)&s->ends, &s->edge_capacity, 2 * (e + 1), sizeof *s->ends) ||
        !sp_i_reserve((void **)&s->lag_ns, &s->lag_capacity, e + 1, sizeof *s->lag_ns) ||
        !sp_i_reserve((void **)&s->reason, &s->reason_capacity, e + 1, sizeof *s->reason)) {
        return false;
    }
    s->ends[2 * e] = (igraph_integer_t)from;
    s->ends[2 * e + 1] = (igraph_integer_t)to;
    s->lag_ns[e] = lag_ns;
    s->reason[e] = (uint8_t)reason;
    s->edge_count++;
    return true;
}

// What an action reads from the neighbouring virtual stage.
static bool add_transfer(sp_structure *s, const sp_step_costs *costs, const action_map *map,
                         size_t reader, size_t v)
{
    const sp_i_vertex *at = &s->vertices[reader];
    const sp_layout *layout = &s->plan->layout;
    int vstage = sp_layout_vstage(layout, at->pp, at->action.chunk);
    bool forward = at->action.kind == SP_ACTION_F;
    int source = forward ? vstage - 1 : vstage + 1;
    if (source < 0 || source >= (int)map->vstages) {
        return true;
    }
    size_t from =
        map->vertex[!forward][map_index(s->plan, map, !forward, at->action.pack, at->dp, source)];
    if (from == 0) {
        return true;
    }
    int source_rank;
    int chunk;
    sp_layout_locate(layout, source, &source_rank, &chunk);
    int64_t lag_ns = source_rank == at->pp
                         ? 0
                         : sp_step_costs_p2p_ns(costs, !forward, (size_t)at->action.pack,
                                                source_rank, at->pp, layout->pp);
    return add_edge(s, from - 1, v, lag_ns, forward ? WAIT_INPUT : WAIT_GRADIENT);
}

// A backward or a recomputation at v waits for the copies back of what it reads on rank `dp`; a
// recomputation only for one that stands before it.
static bool add_copies_back(sp_structure *s, const action_map *map, size_t v, int dp)
{
    const sp_i_vertex *at = &s->vertices[v];
    int vstage = sp_layout_vstage(&s->plan->layout, at->pp, at->action.chunk);
    sp_i_wait reason = dp == at->dp ? WAIT_COPY_BACK : WAIT_MEMBER;
    if (!is_backward(at->action) || map->forward_pack == NULL) {
        size_t from = map->load[map_index(s->plan, map, 0, at->action.pack, dp, vstage)];
        bool waits = from > 0 && (is_backward(at->action) || from - 1 < v);
        return !waits || add_edge(s, from - 1, v, 0, reason);
    }
    const sp_pack *group = pack_of(s->plan, 1, at->action.pack);
    bool ok = true;
    for (size_t i = group->first_slice; ok && i < group->first_slice + group->slice_count; i++) {
        size_t from = map->load[map_index(s->plan, map, 0, map->forward_pack[i], dp, vstage)];
        ok = from == 0 || add_edge(s, from - 1, v, 0, reason);
    }
    return ok;
}

// What an action reads on its own rank.
static bool add_local(sp_structure *s, const action_map *map, size_t v)
{
    const sp_i_vertex *at = &s->vertices[v];
    const sp_plan *plan = s->plan;
    int32_t pack = at->action.pack;
    int vstage = sp_layout_vstage(&plan->layout, at->pp, at->action.chunk);
    if (at->action.kind == SP_ACTION_W) {
        size_t from = map->vertex[1][map_index(plan, map, 1, pack, at->dp, vstage)];
        return from == 0 || add_edge(s, from - 1, v, 0, WAIT_ACTIVATIONS);
    }
    if (at->action.kind == SP_ACTION_L) {
        size_t from = map->offload[map_index(plan, map, 0, pack, at->dp, vstage)];
        return from == 0 || add_edge(s, from - 1, v, 0, WAIT_COPY_OUT);
    }
    if (!is_backward(at->action) || map->forward_pack == NULL) {
        size_t from = map->vertex[0][map_index(plan, map, 0, pack, at->dp, vstage)];
        return (from == 0 || add_edge(s, from - 1, v, 0, WAIT_ACTIVATIONS)) &&
               (at->action.kind == SP_ACTION_O || add_copies_back(s, map, v, at->dp));
    }
    const sp_pack *group = pack_of(plan, 1, pack);
    bool ok = add_copies_back(s, map, v, at->dp);
    for (size_t i = group->first_slice; ok && i < group->first_slice + group->slice_count; i++) {
        size_t from = map->vertex[0][map_index(plan, map, 0, map->forward_pack[i], at->dp, vstage)];
        ok = from == 0 || add_edge(s, from - 1, v, 0, WAIT_ACTIVATIONS);
    }
    return ok;
}

// The action behind vertex v, and the one before it; v itself where there is none.
static size_t next_action(const sp_structure *s, size_t v)
{
    size_t u = v + 1;
    while (u < s->vertex_count && s->vertices[u].share > 0) {
        u++;
    }
    return u < s->vertex_count ? u : v;
}

static size_t previous_action(const sp_structure *s, size_t v)
{
    size_t u = v;
    while (u > 0 && s->vertices[u - 1].share > 0) {
        u--;
    }
    return u > 0 ? u - 1 : v;
}

static bool is_copy(const sp_i_vertex *v)
{
    return v->action.kind == SP_ACTION_O || v->action.kind == SP_ACTION_L;
}

// The vertex last before v in its rank's list that computes, or, with `alike`, that is a copy in
// v's direction; plus 1, 0 for none.
static size_t vertex_before(const sp_structure *s, size_t v, bool alike)
{
    const sp_i_vertex *at = &s->vertices[v];
    for (size_t u = v; u > 0; u--) {
        const sp_i_vertex *before = &s->vertices[u - 1];
        if (before->dp != at->dp || before->pp != at->pp) {
            return 0;
        }
        if (alike ? before->action.kind == at->action.kind : !is_copy(before)) {
            return u;
        }
    }
    return 0;
}

// The copy out that a rank is done with before it goes on after vertex v: of a forward, the last
// one that stands before it; plus 1, 0 for none.
static size_t leaving_before(const sp_structure *s, const action_map *map, size_t v)
{
    const sp_i_vertex *at = &s->vertices[v];
    bool forward = at->action.kind == SP_ACTION_F && at->share == 0;
    for (size_t u = map->copies && forward ? v : 0; u > 0; u--) {
        const sp_i_vertex *before = &s->vertices[u - 1];
        if (before->dp != at->dp || before->pp != at->pp) {
            return 0;
        }
        if (before->action.kind == SP_ACTION_O) {
            return u;
        }
    }
    return 0;
}

// With blocking transfers: the time that vertex v's rank spends on sending what v gives to another
// rank. A transfer to the vertex's own rank costs nothing.
static int64_t transfer_ns(const sp_structure *s, const sp_step_costs *costs, size_t v)
{
    const sp_i_vertex *at = &s->vertices[v];
    const sp_layout *layout = &s->plan->layout;
    bool up = at->action.kind == SP_ACTION_F;
    bool down = at->action.kind == SP_ACTION_B || at->action.kind == SP_ACTION_I;
    int reader = sp_layout_vstage(layout, at->pp, at->action.chunk) + up - down;
    if (at->share > 0 || up == down || reader < 0 || reader == sp_layout_vstages(layout)) {
        return 0;
    }
    int to;
    int chunk;
    sp_layout_locate(layout, reader, &to, &chunk);
    return to == at->pp
               ? 0
               : sp_step_costs_p2p_ns(costs, down, (size_t)at->action.pack, at->pp, to, layout->pp);
}

// What a rank sends after vertex v, before it goes on. The first of a pair goes on to the second at
// once; then both are sent together.
static int64_t sending_ns(const sp_structure *s, const sp_step_costs *costs, size_t v)
{
    if (!costs->blocking_transfers || s->vertices[v].action.with_next || s->vertices[v].share > 0) {
        return 0;
    }
    int64_t second_ns = transfer_ns(s, costs, v);
    size_t first = previous_action(s, v);
    bool pair = first < v && s->vertices[first].action.with_next;
    int64_t first_ns = pair ? transfer_ns(s, costs, first) : 0;
    return first_ns > second_ns ? first_ns : second_ns;
}

// Computation in the order of the list, copies in it among those of their direction. A copy back is
// issued when the computation before it is over. What follows a forward waits for the copy out that
// stands before that forward.
static bool add_order(sp_structure *s, const sp_step_costs *costs, const action_map *map, size_t v)
{
    const sp_i_vertex *at = &s->vertices[v];
    bool ok = true;
    if (is_copy(at)) {
        size_t from = vertex_before(s, v, true);
        ok = from == 0 || add_edge(s, from - 1, v, 0, WAIT_ORDER);
    }
    if (ok && at->action.kind != SP_ACTION_O) {
        size_t from = vertex_before(s, v, false);
        int64_t lag_ns = from == 0 || is_copy(at) ? 0 : sending_ns(s, costs, from - 1);
        ok = from == 0 || add_edge(s, from - 1, v, lag_ns, WAIT_ORDER);
        size_t leaving = from == 0 || is_copy(at) ? 0 : leaving_before(s, map, from - 1);
        ok = ok && (leaving == 0 || add_edge(s, leaving - 1, v, 0, WAIT_COPY_OUT));
    }
    return ok;
}

// A merged pack starts on all its ranks at once: each waits for what stands before it on the
// others. Its weight gradient is each rank's own affair.
static bool add_members(sp_structure *s, const sp_step_costs *costs, const action_map *map,
                        size_t v)
{
    const sp_i_vertex *at = &s->vertices[v];
    const sp_plan *plan = s->plan;
    int side = is_backward(at->action);
    const sp_pack *pack = pack_of(plan, side, at->action.pack);
    int vstage = sp_layout_vstage(&plan->layout, at->pp, at->action.chunk);
    const size_t *vertex = at->action.kind == SP_ACTION_R ? map->recompute : map->vertex[side];
    bool ok = true;
    for (int d = pack->dp_first; ok && d < pack->dp_first + pack->dp_count; d++) {
        if (d == at->dp || at->action.kind == SP_ACTION_W) {
            continue;
        }
        size_t peer = vertex[map_index(plan, map, side, at->action.pack, d, vstage)];
        size_t before = peer > 0 ? vertex_before(s, peer - 1, false) : 0;
        if (before > 0) {
            size_t leaving = leaving_before(s, map, before - 1);
            ok = add_edge(s, before - 1, v, sending_ns(s, costs, before - 1), WAIT_MEMBER) &&
                 (leaving == 0 || add_edge(s, leaving - 1, v, 0, WAIT_MEMBER));
        }
        ok = ok && (side == 0 || add_copies_back(s, map, v, d));
    }
    return ok;
}

// From a rank's share, or where `stage` from the stage's action, if there is one.
static bool add_end(sp_structure *s, size_t from, size_t v)
{
    return from == 0 || from - 1 == v || add_edge(s, from - 1, v, 0, WAIT_SHARE);
}

// The shares of the head of all ranks that a backward reads.
static bool add_heads(sp_structure *s, const action_map *map, size_t v)
{
    const sp_i_vertex *at = &s->vertices[v];
    const sp_pack *pack = pack_of(s->plan, 1, at->action.pack);
    size_t reads = map->forward_pack == NULL ? 1 : pack->slice_count;
    int pp = s->plan->layout.pp;
    bool ok = true;
    for (size_t i = 0; i < reads; i++) {
        int32_t from =
            map->forward_pack == NULL ? at->action.pack : map->forward_pack[pack->first_slice + i];
        const sp_action forward = {.kind = SP_ACTION_F, .pack = from};
        size_t entry = share_index(s->plan, map, forward, at->dp) * (size_t)pp;
        for (int p = 0; ok && p < pp; p++) {
            ok = add_end(s, map->share[SP_SHARE_HEAD][0][entry + (size_t)p], v) &&
                 add_end(s, map->share[SP_SHARE_HEAD][1][entry + (size_t)p], v);
        }
    }
    return ok;
}

// What a share reads but for its rank's order.
static bool add_share_inputs(sp_structure *s, const action_map *map, size_t v)
{
    const sp_i_vertex *at = &s->vertices[v];
    sp_share_end end = (sp_share_end)(at->share - 1);
    bool again = at->action.kind == SP_ACTION_R;
    if (end == SP_SHARE_HEAD_BACKWARD) {
        return add_heads(s, map, v);
    }
    return end == SP_SHARE_EMBEDDING ||
           add_end(s, map->stage[end][again][share_index(s->plan, map, at->action, at->dp)], v);
}

// The shares that the stage's action needs.
static bool add_shares(sp_structure *s, const action_map *map, size_t v)
{
    const sp_i_vertex *at = &s->vertices[v];
    int vstage = sp_layout_vstage(&s->plan->layout, at->pp, at->action.chunk);
    int pp = s->plan->layout.pp;
    sp_share_end end;
    if (map->shares.items == NULL || !sp_share_end_of(&s->plan->layout, vstage, at->action, &end) ||
        (end != SP_SHARE_EMBEDDING && end != SP_SHARE_HEAD_BACKWARD)) {
        return true;
    }
    size_t entry = share_index(s->plan, map, at->action, at->dp) * (size_t)pp;
    bool ok = true;
    for (int p = 0; ok && p < pp; p++) {
        ok = add_end(s, map->share[end][at->action.kind == SP_ACTION_R][entry + (size_t)p], v);
    }
    return ok;
}

static bool add_edges(sp_structure *s, const sp_step_costs *costs, const action_map *map)
{
    bool ok = true;
    for (size_t v = 0; ok && v < s->vertex_count; v++) {
        const sp_i_vertex *at = &s->vertices[v];
        ok = add_order(s, costs, map, v);
        if (at->share > 0) {
            ok = ok && add_share_inputs(s, map, v);
            continue;
        }
        ok = ok && add_shares(s, map, v);
        bool moves = at->action.kind == SP_ACTION_F || at->action.kind == SP_ACTION_B ||
                     at->action.kind == SP_ACTION_I;
        ok = ok && (!moves || add_transfer(s, costs, map, v, v));
        // The first of a pair waits for the input of the second too.
        ok = ok && (!at->action.with_next || add_transfer(s, costs, map, next_action(s, v), v));
        ok = ok && (at->action.kind == SP_ACTION_F || add_local(s, map, v));
        ok = ok && (is_copy(at) || add_members(s, costs, map, v));
    }
    return ok;
}

sp_status sp_i_igraph_failed(sp_error *err, const char *what, igraph_error_t code)
{
    return sp_error_set(err, code == IGRAPH_ENOMEM ? SP_ERR_NO_MEMORY : SP_ERR_INTERNAL,
                        "igraph: %s: %s", what, igraph_strerror(code));
}

static sp_status build_graph(sp_structure *s, sp_error *err)
{
    igraph_vector_int_t edges = {0};
    igraph_vector_int_view(&edges, s->ends, (igraph_integer_t)(2 * s->edge_count));
    igraph_error_t code =
        igraph_create(&s->graph, &edges, (igraph_integer_t)s->vertex_count, IGRAPH_DIRECTED);
    if (code != IGRAPH_SUCCESS) {
        return sp_i_igraph_failed(err, "building the graph", code);
    }
    s->has_graph = true;
    return SP_OK;
}

sp_status sp_structure_new(const sp_plan *plan, const sp_step_costs *costs,
                           sp_structure **structure, sp_error *err)
{
    action_map map = {0};
    sp_structure *s = sp_i_calloc(1, sizeof *s);
    sp_status status = s == NULL ? sp_error_no_memory(err, "the dependency graph")
                                 : sp_i_regroup(plan->packing, &map.forward_pack, err);
    if (status == SP_OK) {
        s->plan = plan;
        if (costs->share_class > 0) {
            status = sp_shares_make(plan, &map.shares, err);
        }
    }
    if (status == SP_OK) {
        // igraph aborts the process on errors unless told to return them.
        igraph_error_handler_t *previous = igraph_set_error_handler(igraph_error_handler_ignore);
        status = number_actions(s, costs, &map) && add_edges(s, costs, &map)
                     ? build_graph(s, err)
                     : sp_error_no_memory(err, "the dependency graph");
        igraph_set_error_handler(previous);
    }
    map_fini(&map);
    if (status != SP_OK) {
        sp_structure_free(s);
        s = NULL;
    }
    *structure = s;
    return status;
}

void sp_structure_free(sp_structure *s)
{
    if (s == NULL) {
        return;
    }
    if (s->has_graph) {
        igraph_destroy(&s->graph);
    }
    sp_i_free(s->vertices);
    sp_i_free(s->ends);
    sp_i_free(s->lag_ns);
    sp_i_free(s->reason);
    sp_i_free(s);
}

int64_t sp_structure_vertices(const sp_structure *s)
{
    return (int64_t)s->vertex_count;
}

int64_t sp_structure_edges(const sp_structure *s)
{
    return (int64_t)s->edge_count;
}
