#include "sim/base/alloc.h"
#include "sim/plan/regroup.h"
#include "sim/verify/graph_private.h"

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
static bool add_transfer(sp_structure *s, const sp_step_costs *costs, const sp_i_vertex_map *map,
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
    size_t from = map->vertex[!forward][sp_i_vertex_map_index(s->plan, map, !forward,
                                                              at->action.pack, at->dp, source)];
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
static bool add_copies_back(sp_structure *s, const sp_i_vertex_map *map, size_t v, int dp)
{
    const sp_i_vertex *at = &s->vertices[v];
    int vstage = sp_layout_vstage(&s->plan->layout, at->pp, at->action.chunk);
    sp_i_wait reason = dp == at->dp ? WAIT_COPY_BACK : WAIT_MEMBER;
    if (!sp_i_structure_is_backward(at->action) || map->forward_pack == NULL) {
        size_t from =
            map->load[sp_i_vertex_map_index(s->plan, map, 0, at->action.pack, dp, vstage)];
        bool waits = from > 0 && (sp_i_structure_is_backward(at->action) || from - 1 < v);
        return !waits || add_edge(s, from - 1, v, 0, reason);
    }
    const sp_pack *group = sp_i_structure_pack(s->plan, 1, at->action.pack);
    bool ok = true;
    for (size_t i = group->first_slice; ok && i < group->first_slice + group->slice_count; i++) {
        size_t from =
            map->load[sp_i_vertex_map_index(s->plan, map, 0, map->forward_pack[i], dp, vstage)];
        ok = from == 0 || add_edge(s, from - 1, v, 0, reason);
    }
    return ok;
}

// What an action reads on its own rank.
static bool add_local(sp_structure *s, const sp_i_vertex_map *map, size_t v)
{
    const sp_i_vertex *at = &s->vertices[v];
    const sp_plan *plan = s->plan;
    int32_t pack = at->action.pack;
    int vstage = sp_layout_vstage(&plan->layout, at->pp, at->action.chunk);
    if (at->action.kind == SP_ACTION_W) {
        size_t from = map->vertex[1][sp_i_vertex_map_index(plan, map, 1, pack, at->dp, vstage)];
        return from == 0 || add_edge(s, from - 1, v, 0, WAIT_ACTIVATIONS);
    }
    if (at->action.kind == SP_ACTION_L) {
        size_t from = map->offload[sp_i_vertex_map_index(plan, map, 0, pack, at->dp, vstage)];
        return from == 0 || add_edge(s, from - 1, v, 0, WAIT_COPY_OUT);
    }
    if (!sp_i_structure_is_backward(at->action) || map->forward_pack == NULL) {
        size_t from = map->vertex[0][sp_i_vertex_map_index(plan, map, 0, pack, at->dp, vstage)];
        return (from == 0 || add_edge(s, from - 1, v, 0, WAIT_ACTIVATIONS)) &&
               (at->action.kind == SP_ACTION_O || add_copies_back(s, map, v, at->dp));
    }
    const sp_pack *group = sp_i_structure_pack(plan, 1, pack);
    bool ok = add_copies_back(s, map, v, at->dp);
    for (size_t i = group->first_slice; ok && i < group->first_slice + group->slice_count; i++) {
        size_t from = map->vertex[0][sp_i_vertex_map_index(plan, map, 0, map->forward_pack[i],
                                                           at->dp, vstage)];
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
static size_t leaving_before(const sp_structure *s, const sp_i_vertex_map *map, size_t v)
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
static bool add_order(sp_structure *s, const sp_step_costs *costs, const sp_i_vertex_map *map,
                      size_t v)
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
static bool add_members(sp_structure *s, const sp_step_costs *costs, const sp_i_vertex_map *map,
                        size_t v)
{
    const sp_i_vertex *at = &s->vertices[v];
    const sp_plan *plan = s->plan;
    int side = sp_i_structure_is_backward(at->action);
    const sp_pack *pack = sp_i_structure_pack(plan, side, at->action.pack);
    int vstage = sp_layout_vstage(&plan->layout, at->pp, at->action.chunk);
    const size_t *vertex = at->action.kind == SP_ACTION_R ? map->recompute : map->vertex[side];
    bool ok = true;
    for (int d = pack->dp_first; ok && d < pack->dp_first + pack->dp_count; d++) {
        if (d == at->dp || at->action.kind == SP_ACTION_W) {
            continue;
        }
        size_t peer = vertex[sp_i_vertex_map_index(plan, map, side, at->action.pack, d, vstage)];
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
static bool add_heads(sp_structure *s, const sp_i_vertex_map *map, size_t v)
{
    const sp_i_vertex *at = &s->vertices[v];
    const sp_pack *pack = sp_i_structure_pack(s->plan, 1, at->action.pack);
    size_t reads = map->forward_pack == NULL ? 1 : pack->slice_count;
    int pp = s->plan->layout.pp;
    bool ok = true;
    for (size_t i = 0; i < reads; i++) {
        int32_t from =
            map->forward_pack == NULL ? at->action.pack : map->forward_pack[pack->first_slice + i];
        const sp_action forward = {.kind = SP_ACTION_F, .pack = from};
        size_t entry = sp_i_vertex_map_share(s->plan, map, forward, at->dp) * (size_t)pp;
        for (int p = 0; ok && p < pp; p++) {
            ok = add_end(s, map->share[SP_SHARE_HEAD][0][entry + (size_t)p], v) &&
                 add_end(s, map->share[SP_SHARE_HEAD][1][entry + (size_t)p], v);
        }
    }
    return ok;
}

// What a share reads but for its rank's order.
static bool add_share_inputs(sp_structure *s, const sp_i_vertex_map *map, size_t v)
{
    const sp_i_vertex *at = &s->vertices[v];
    sp_share_end end = (sp_share_end)(at->share - 1);
    bool again = at->action.kind == SP_ACTION_R;
    if (end == SP_SHARE_HEAD_BACKWARD) {
        return add_heads(s, map, v);
    }
    return end == SP_SHARE_EMBEDDING ||
           add_end(s,
                   map->stage[end][again][sp_i_vertex_map_share(s->plan, map, at->action, at->dp)],
                   v);
}

// The shares that the stage's action needs.
static bool add_shares(sp_structure *s, const sp_i_vertex_map *map, size_t v)
{
    const sp_i_vertex *at = &s->vertices[v];
    int vstage = sp_layout_vstage(&s->plan->layout, at->pp, at->action.chunk);
    int pp = s->plan->layout.pp;
    sp_share_end end;
    if (map->shares.items == NULL || !sp_share_end_of(&s->plan->layout, vstage, at->action, &end) ||
        (end != SP_SHARE_EMBEDDING && end != SP_SHARE_HEAD_BACKWARD)) {
        return true;
    }
    size_t entry = sp_i_vertex_map_share(s->plan, map, at->action, at->dp) * (size_t)pp;
    bool ok = true;
    for (int p = 0; ok && p < pp; p++) {
        ok = add_end(s, map->share[end][at->action.kind == SP_ACTION_R][entry + (size_t)p], v);
    }
    return ok;
}

bool sp_i_structure_connect(sp_structure *s, const sp_step_costs *costs, const sp_i_vertex_map *map)
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
    sp_i_vertex_map map = {0};
    sp_structure *s = sp_i_calloc(1, sizeof *s);
    sp_status status = s == NULL ? sp_error_no_memory(err, "the dependency graph")
                                 : sp_regroup(plan->packing, &map.forward_pack, err);
    if (status == SP_OK) {
        s->plan = plan;
        if (costs->share_class > 0) {
            status = sp_shares_make(plan, &map.shares, err);
        }
    }
    if (status == SP_OK) {
        // igraph aborts the process on errors unless told to return them.
        igraph_error_handler_t *previous = igraph_set_error_handler(igraph_error_handler_ignore);
        status = sp_i_structure_number(s, costs, &map) && sp_i_structure_connect(s, costs, &map)
                     ? build_graph(s, err)
                     : sp_error_no_memory(err, "the dependency graph");
        igraph_set_error_handler(previous);
    }
    sp_i_vertex_map_fini(&map);
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
