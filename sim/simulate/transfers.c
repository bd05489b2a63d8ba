#include "sim/simulate/private.h"

#include <math.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/cost/step_costs.h"

// ---- which paths the plan uses ----

// Its transfers are flows unless they cannot meet others.
static void use_path(sp_i_paths *p, sp_i_path *path)
{
    if (!path->is_used) {
        path->is_used = path->is_flow = true;
        path->owner = ++p->owners;
        path->next = p->used;
        p->used = path;
    }
}

sp_i_path *sp_i_paths_send(const sp_i_paths *p, int dp, int from, int to)
{
    int pp = p->plan->layout.pp;
    size_t back = (from + 1) % pp == to ? 0 : 1;
    return &p->sends[(size_t)sp_i_paths_rank(p, dp, from) * 2 + back];
}

static size_t count_sends(const sp_i_paths *p)
{
    return 2 * (size_t)p->plan->layout.dp * (size_t)p->plan->layout.pp;
}

// The pipeline rank to which an action sends; -1: none.
static int sends_to(const sp_i_paths *p, int pp, sp_action action)
{
    const sp_layout *layout = &p->plan->layout;
    int vstage = sp_layout_vstage(layout, pp, action.chunk);
    int target = vstage + (action.kind == SP_ACTION_F ? 1 : -1);
    int to = pp;
    int chunk;
    if (!sp_depends_passes(action) || target < 0 || target >= sp_layout_vstages(layout)) {
        return -1;
    }
    sp_layout_locate(layout, target, &to, &chunk);
    return to != pp ? to : -1;
}

static void find_sends(sp_i_paths *p)
{
    const sp_layout *layout = &p->plan->layout;
    for (int i = 0; i < layout->dp * layout->pp; i++) {
        const sp_stage_plan *stage = &p->plan->stages[i];
        for (size_t a = 0; a < stage->count; a++) {
            int to = sends_to(p, i % layout->pp, stage->actions[a]);
            if (to >= 0) {
                use_path(p, sp_i_paths_send(p, i / layout->pp, i % layout->pp, to));
            }
        }
    }
}

static int head_ranks_of(const sp_cp_exchange *exchange)
{
    return exchange->head_ranks > 1 ? exchange->head_ranks : 1;
}

sp_i_group_paths *sp_i_paths_group(const sp_i_paths *p, int dp_first, int dp_count, int pp,
                                   const sp_cp_exchange *exchange)
{
    sp_i_group_paths *group = p->groups[sp_i_paths_rank(p, dp_first, pp)];
    while (group != NULL &&
           (group->dp_count != dp_count || group->head_ranks != head_ranks_of(exchange) ||
            group->ring_nics != exchange->ring_nics)) {
        group = group->next;
    }
    return group;
}

static void add_group(sp_i_paths *p, int dp_first, int dp_count, int pp,
                      const sp_cp_exchange *exchange)
{
    sp_i_group_paths **first = &p->groups[sp_i_paths_rank(p, dp_first, pp)];
    if (sp_i_paths_group(p, dp_first, dp_count, pp, exchange) != NULL) {
        return;
    }
    sp_i_group_paths *group = sp_arena_take(&p->work, 1, sizeof *group);
    *group = (sp_i_group_paths){.dp_count = dp_count,
                                .head_ranks = head_ranks_of(exchange),
                                .ring_nics = exchange->ring_nics,
                                .next = *first};
    *first = group;
    if (group->head_ranks > 1) {
        use_path(p, &group->heads);
    }
    if (p->plan->layout.cp * dp_count > group->head_ranks) {
        use_path(p, &group->keys);
    }
}

// Finds the exchange of a pack that several ranks share; NULL: there is none, or zones exchange.
static const sp_cp_exchange *cp_exchange_of(const sp_i_paths *p, size_t pack, bool backward)
{
    const sp_step_costs *costs = p->costs;
    const sp_cp_exchange *exchange = &costs->side[backward].pack[pack].cp;
    if (backward && !(exchange->s + exchange->heads_s > 0.0)) {
        exchange = &costs->side[1].pack[pack].cp_again;
    }
    return exchange->s + exchange->heads_s > 0.0 ? exchange : NULL;
}

static void find_groups(sp_i_paths *p, const sp_pack_list *list, bool backward)
{
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        const sp_cp_exchange *exchange =
            p->plan->layout.cp * pack->dp_count > 1 ? cp_exchange_of(p, k, backward) : NULL;
        for (int pp = 0; exchange != NULL && pp < p->plan->layout.pp; pp++) {
            add_group(p, pack->dp_first, pack->dp_count, pp, exchange);
        }
    }
}

sp_i_move_paths *sp_i_paths_move(const sp_i_paths *p, const sp_zone_move *move, int node_ranks,
                                 int pp)
{
    sp_i_move_paths *paths = p->moves[sp_i_paths_rank(p, move->from, pp)];
    while (paths != NULL && (paths->to != move->to || paths->node_ranks != node_ranks)) {
        paths = paths->next;
    }
    return paths;
}

static void add_move(sp_i_paths *p, const sp_zone_move *move, int node_ranks, int pp)
{
    sp_i_move_paths **first = &p->moves[sp_i_paths_rank(p, move->from, pp)];
    if (sp_i_paths_move(p, move, node_ranks, pp) == NULL) {
        sp_i_move_paths *paths = sp_arena_take(&p->work, 1, sizeof *paths);
        *paths = (sp_i_move_paths){.to = move->to, .node_ranks = node_ranks, .next = *first};
        *first = paths;
        use_path(p, &paths->there);
        use_path(p, &paths->back);
    }
}

static void find_zones(sp_i_paths *p, const sp_pack_costs *packs, size_t count)
{
    const sp_layout *layout = &p->plan->layout;
    for (size_t k = 0; k < count; k++) {
        const sp_pack_zones *zones = packs[k].zones;
        for (int pp = 0; zones != NULL && pp < layout->pp; pp++) {
            for (size_t z = 0; z < zones->zone_count; z++) {
                const sp_zone_exchange *zone = &zones->zones[z];
                if (zone->dp_count * layout->cp > 1) {
                    add_group(p, zone->dp_first, zone->dp_count, pp, &zone->of[0]);
                }
            }
            for (size_t m = 0; m < zones->move_count; m++) {
                add_move(p, &zones->moves[m], zones->node_ranks, pp);
            }
        }
    }
}

static void allocate(sp_i_paths *p)
{
    const sp_layout *layout = &p->plan->layout;
    const sp_step_costs *costs = p->costs;
    size_t pp = (size_t)layout->pp;
    size_t ranks = (size_t)layout->dp * pp;
    p->sends = sp_arena_take(&p->work, count_sends(p), sizeof *p->sends);
    p->groups = sp_arena_take(&p->work, ranks, sizeof *p->groups);
    p->reductions = sp_arena_take(&p->work, pp, sizeof *p->reductions);
    if (costs->zoned) {
        p->moves = sp_arena_take(&p->work, ranks, sizeof *p->moves);
    }
    if (costs->experts != NULL) {
        p->expert_reductions = sp_arena_take(&p->work, pp, sizeof *p->expert_reductions);
        p->experts = sp_arena_take(&p->work, ranks, sizeof *p->experts);
    }
    if (costs->shards && layout->dp * layout->cp > 1) {
        p->sharded = sp_arena_take(&p->work, ranks, sizeof *p->sharded);
        p->sharded_by_flows = sp_arena_take(&p->work, pp, sizeof *p->sharded_by_flows);
    }
}

// ---- routes of sends and of context-parallel ranks ----

static int64_t gpu_of(const sp_layout *layout, int tp, int cp, int dp, int pp)
{
    return tp * sp_layout_stride(layout, SP_AXIS_TP) + cp * sp_layout_stride(layout, SP_AXIS_CP) +
           dp * sp_layout_stride(layout, SP_AXIS_DP) + pp * sp_layout_stride(layout, SP_AXIS_PP);
}

// The GPUs of a pipeline rank of a data-parallel rank, tp * cp of them, each `stride` places behind
// the one before.
static void list_gpus(const sp_layout *layout, int dp, int pp, int64_t *gpus, int stride)
{
    for (int i = 0; i < layout->tp * layout->cp; i++) {
        gpus[i * stride] = gpu_of(layout, i % layout->tp, i / layout->tp, dp, pp);
    }
}

// The GPUs of a pipeline rank that share experts, or hold the same ones: of `all` of its ranks
// from number `first` on, counted as experts count them (layout.h), in groups of `count` that are
// `step` numbers apart.
static void list_experts(const sp_layout *layout, int pp, int first, int all, int count, int step,
                         int64_t *gpus)
{
    for (int i = 0; i < all; i++) {
        int group = i / count;
        int number = first + group / step * step * count + group % step + i % count * step;
        gpus[i] = gpu_of(layout, number % layout->tp, number / layout->tp % layout->cp,
                         number / layout->tp / layout->cp, pp);
    }
}

static void route_sends(sp_i_paths *p, int64_t *gpus)
{
    const sp_layout *layout = &p->plan->layout;
    int pairs = layout->tp * layout->cp;
    int64_t *to = gpus + pairs;
    for (size_t i = 0; i < count_sends(p); i++) {
        int dp = (int)(i / 2) / layout->pp;
        int pp = (int)(i / 2) % layout->pp;
        int step = i % 2 == 0 ? 1 : layout->pp - 1;
        if (p->sends[i].is_used) {
            list_gpus(layout, dp, pp, gpus, 1);
            list_gpus(layout, dp, (pp + step) % layout->pp, to, 1);
            sp_route_pairs(p->topology, gpus, to, pairs, &p->sends[i].route);
        }
    }
}

// Neighbours exchange heads, and those at one place of all of them keys and values.
static void route_group(sp_i_paths *p, int dp_first, int pp, sp_i_group_paths *group, int64_t *gpus)
{
    const sp_layout *layout = &p->plan->layout;
    int heads = group->head_ranks;
    int all = layout->tp * layout->cp * group->dp_count;
    int peers = layout->cp * group->dp_count / heads;
    int64_t *by_place = gpus + all;
    sp_layout_list_joint(layout, dp_first, group->dp_count, pp, gpus);
    for (int i = 0; i < all; i++) {
        int tp = i / (heads * peers);
        by_place[(tp * heads + i % heads) * peers + i / heads % peers] = gpus[i];
    }
    if (group->heads.is_used) {
        sp_route_all_to_alls(p->topology, gpus, layout->tp * peers, heads, &group->heads.route);
    }
    sp_route *route = &group->keys.route;
    int rings = layout->tp * heads;
    if (group->keys.is_used && group->ring_nics > 0) {
        sp_route_routed_rings(p->topology, by_place, rings, peers, group->ring_nics, route);
    } else if (group->keys.is_used) {
        sp_route_rings(p->topology, by_place, rings, peers, route);
    }
}

// The GPUs of a rank, and for each those in its place on the node's ranks, over which it sends.
static void list_relays(const sp_layout *layout, int dp, int pp, int node_ranks, int relays,
                        int64_t *gpus, int64_t *relay_gpus)
{
    int first = relays > 1 ? dp / node_ranks * node_ranks : dp;
    list_gpus(layout, dp, pp, gpus, 1);
    for (int k = 0; k < relays; k++) {
        list_gpus(layout, first + k, pp, relay_gpus + k, relays);
    }
}

static void route_move(sp_i_paths *p, int from, int pp, sp_i_move_paths *move)
{
    const sp_layout *layout = &p->plan->layout;
    int node = move->node_ranks;
    int last = (move->to > from ? move->to : from) / node * node;
    bool crosses = from / node != move->to / node;
    int relays = !crosses ? 1 : layout->dp - last < node ? layout->dp - last : node;
    int pairs = layout->tp * layout->cp;
    size_t count = (size_t)pairs;
    int64_t *gpus = sp_malloc(2 * count * (size_t)(relays + 1) * sizeof *gpus);
    int64_t *to = gpus + count;
    int64_t *out = to + count;
    int64_t *in = out + count * (size_t)relays;
    list_relays(layout, from, pp, node, relays, gpus, out);
    list_relays(layout, move->to, pp, node, relays, to, in);
    sp_route_spread_pairs(p->topology, gpus, to, out, in, pairs, relays, &move->there.route);
    sp_route_spread_pairs(p->topology, to, gpus, in, out, pairs, relays, &move->back.route);
    sp_free(gpus);
}

static void route_exchanges(sp_i_paths *p, int64_t *gpus)
{
    int pp = p->plan->layout.pp;
    for (int i = 0; i < p->plan->layout.dp * pp; i++) {
        for (sp_i_group_paths *group = p->groups[i]; group != NULL; group = group->next) {
            route_group(p, i / pp, i % pp, group, gpus);
        }
        sp_i_move_paths *move = p->moves != NULL ? p->moves[i] : NULL;
        for (; move != NULL; move = move->next) {
            route_move(p, i / pp, i % pp, move);
        }
    }
}

// ---- collectives of data-parallel ranks: those that the costs of a pipeline rank name, by all
// ranks together, or by each of them in its own actions ----

// One ring serves both halves of an all-reduce.
static void find_key(sp_collective_algorithm *algorithm, sp_collective *kind)
{
    if (*algorithm == SP_ALGORITHM_PROFILE) {
        *algorithm = SP_ALGORITHM_RING;
    }
    if (*algorithm == SP_ALGORITHM_RING && *kind == SP_ALL_GATHER) {
        *kind = SP_REDUCE_SCATTER;
    }
}

const sp_i_collective_paths *sp_i_paths_collective(const sp_i_collective_paths *list,
                                                   sp_collective_algorithm algorithm,
                                                   sp_collective kind)
{
    find_key(&algorithm, &kind);
    while (list != NULL && (list->algorithm != algorithm || list->kind != kind)) {
        list = list->next;
    }
    return list;
}

// All of a list follow each other.
static void use_collective(sp_i_paths *p, sp_i_collective_paths *made, sp_i_collective_paths **list)
{
    for (int i = 0; i < made->route.count; i++) {
        sp_i_path *path = &made->phases[i];
        if (p->costs->lone_times) {
            sp_route_include_spine(&made->route.phases[i].route);
        }
        path->route = made->route.phases[i].route;
        use_path(p, path);
        path->owner = (*list != NULL ? *list : made)->phases[0].owner;
    }
    made->next = *list;
    *list = made;
}

// By all data-parallel ranks of a pipeline rank, `gpus`, together, or by each of them; those all
// have what the first one has.
static void add_collective(sp_i_paths *p, int pp_rank, bool each, sp_collective_algorithm algorithm,
                           sp_collective kind, const int64_t *gpus)
{
    const sp_layout *layout = &p->plan->layout;
    const sp_route_parts split = {sp_layout_stride(layout, SP_AXIS_DP), each ? layout->dp : 1};
    sp_i_collective_paths **lists = each ? p->sharded : p->reductions;
    if (sp_i_paths_collective(lists[pp_rank], algorithm, kind) != NULL) {
        return;
    }
    sp_i_collective_paths *made = sp_arena_take(&p->work, (size_t)split.count, sizeof *made);
    sp_collective_route *parts = sp_malloc((size_t)split.count * sizeof *parts);
    find_key(&algorithm, &kind);
    sp_collective_route_make_parts(p->topology, algorithm, kind, gpus, layout->tp,
                                   layout->dp * layout->cp, split, parts);
    for (int d = 0; d < split.count; d++) {
        made[d] = (sp_i_collective_paths){.algorithm = algorithm, .kind = kind, .route = parts[d]};
        use_collective(p, &made[d], &lists[sp_i_paths_rank(p, d, pp_rank)]);
    }
    sp_free(parts);
}

static void add_reductions(sp_i_paths *p, int pp_rank, const int64_t *gpus)
{
    const sp_epilogue_cost *epilogue = &p->costs->ranks[pp_rank].epilogue;
    sp_collective reduces = p->plan->layout.zero == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER;
    int chunks = p->costs->buckets != NULL ? p->plan->layout.chunks : 0;
    for (int c = 0; c < chunks; c++) {
        const sp_bucket_cost *bucket = &p->costs->buckets[pp_rank * chunks + c];
        if (bucket->total_ns > 0) {
            add_collective(p, pp_rank, false, bucket->reduces_by, reduces, gpus);
        }
    }
    if (epilogue->grad_reduce_ns > epilogue->tied_reduce_ns) {
        add_collective(p, pp_rank, false, epilogue->reduces_by, reduces, gpus);
    }
    if (epilogue->param_gather_ns > 0) {
        add_collective(p, pp_rank, false, epilogue->gathers_by, SP_ALL_GATHER, gpus);
    }
}

static void add_sharded(sp_i_paths *p, int pp_rank, const int64_t *gpus)
{
    const sp_layout *layout = &p->plan->layout;
    for (int c = 0; c < layout->chunks; c++) {
        const sp_sharded_stage *stage = &p->costs->sharded[sp_layout_vstage(layout, pp_rank, c)];
        if (stage->gather.bytes > 0.0) {
            add_collective(p, pp_rank, true, stage->gathers_by, SP_ALL_GATHER, gpus);
        }
        if (stage->scatter.bytes > 0.0) {
            add_collective(p, pp_rank, true, stage->scatters_by, SP_REDUCE_SCATTER, gpus);
        }
    }
}

static void add_collectives(sp_i_paths *p, int64_t *gpus)
{
    const sp_layout *layout = &p->plan->layout;
    for (int pp = 0; layout->dp * layout->cp > 1 && pp < layout->pp; pp++) {
        sp_layout_list_joint(layout, 0, layout->dp, pp, gpus);
        add_reductions(p, pp, gpus);
        if (p->sharded != NULL) {
            add_sharded(p, pp, gpus);
        }
    }
}

// ---- experts on other ranks ----

// The routes of one way between the `all` GPUs of data-parallel ranks that share experts.
static void make_way(const sp_i_paths *p, sp_expert_way way, int pp, int first, int all,
                     sp_route_parts split, int64_t *gpus, sp_route *routes)
{
    static const sp_route_reach reaches[SP_EXPERT_WAYS] = {
        [SP_WAY_NODES] = SP_REACH_PEERS, [SP_WAY_IN_NODE] = SP_REACH_NODE};
    const sp_layout *layout = &p->plan->layout;
    int etp = sp_layout_etp(layout);
    int count = way == SP_WAY_EXPERTS ? sp_layout_ep(layout)
                : way == SP_WAY_PARTS ? etp
                                      : etp * sp_layout_ep(layout);
    list_experts(layout, pp, first, all, count, way == SP_WAY_EXPERTS ? etp : 1, gpus);
    if (way != SP_WAY_PARTS && way != SP_WAY_TOKENS) {
        sp_route_all_to_all_parts(p->topology, gpus, all / count, count, reaches[way], split,
                                  routes);
        return;
    }
    sp_collective_route *made = sp_malloc((size_t)split.count * sizeof *made);
    sp_collective_route_make_parts(p->topology, SP_ALGORITHM_RING, SP_ALL_GATHER, gpus, all / count,
                                   count, split, made);
    for (int i = 0; i < split.count; i++) {
        routes[i] = made[i].phases[0].route;
    }
    sp_free(made);
}

static bool uses_way(const sp_i_paths *p, int pp, sp_expert_way way)
{
    const sp_layout *layout = &p->plan->layout;
    bool used = false;
    for (int i = 0; !used && i < layout->chunks * SP_EXPERT_PASSES; i++) {
        int vstage = sp_layout_vstage(layout, pp, i / SP_EXPERT_PASSES);
        used = p->costs->experts[vstage * SP_EXPERT_PASSES + i % SP_EXPERT_PASSES].bytes[way] > 0.0;
    }
    return used;
}

// Parts of one group never slow each other, since their rates are those of all of them together.
static void use_way(sp_i_paths *p, int dp_first, int pp, sp_expert_way way, int ranks,
                    sp_route *routes)
{
    int32_t owner = 0;
    for (int d = 0; d < ranks; d++) {
        sp_i_expert_paths *paths = &p->experts[sp_i_paths_rank(p, dp_first + d, pp)];
        if (routes[d].hops == 0) {
            sp_route_fini(&routes[d]);
            continue;
        }
        paths->latency_s[way] = routes[d].latency_s;
        routes[d].latency_s = 0.0;
        paths->way[way].route = routes[d];
        use_path(p, &paths->way[way]);
        owner = owner > 0 ? owner : paths->way[way].owner;
        paths->way[way].owner = owner;
    }
}

static void route_experts(sp_i_paths *p)
{
    const sp_layout *layout = &p->plan->layout;
    int ranks = sp_layout_expert_ranks(layout);
    int all = ranks * layout->tp * layout->cp;
    const sp_route_parts split =
        ranks > 1 ? (sp_route_parts){sp_layout_stride(layout, SP_AXIS_DP), ranks} : SP_ROUTE_WHOLE;
    int64_t *gpus = sp_malloc((size_t)all * sizeof *gpus);
    sp_route *routes = sp_malloc((size_t)ranks * sizeof *routes);
    for (int pp = 0; pp < layout->pp; pp++) {
        for (int way = 0; way < SP_EXPERT_WAYS; way++) {
            bool used = uses_way(p, pp, (sp_expert_way)way);
            for (int d = 0; used && d < layout->dp; d += ranks) {
                int first = d * layout->tp * layout->cp;
                make_way(p, (sp_expert_way)way, pp, first, all, split, gpus, routes);
                use_way(p, d, pp, (sp_expert_way)way, ranks, routes);
            }
        }
    }
    sp_free(gpus);
    sp_free(routes);
}

// Reductions among ranks that hold the same experts, behind those of all others.
static void add_expert_reductions(sp_i_paths *p, int64_t *gpus)
{
    const sp_layout *layout = &p->plan->layout;
    int same = sp_layout_expert_replicas(layout);
    int all = layout->dp * layout->tp * layout->cp;
    sp_collective kind = layout->zero == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER;
    for (int pp = 0; same > 1 && pp < layout->pp; pp++) {
        sp_i_collective_paths *made = sp_arena_take(&p->work, 1, sizeof *made);
        made->algorithm = SP_ALGORITHM_RING;
        made->kind = kind;
        list_experts(layout, pp, 0, all, same, all / same, gpus);
        sp_collective_route_make(p->topology, made->algorithm, kind, gpus, all / same, same,
                                 &made->route);
        use_collective(p, made, &p->expert_reductions[pp]);
        if (p->reductions[pp] != NULL) {
            made->phases[0].owner = p->reductions[pp]->phases[0].owner;
        }
    }
}

// ---- where nothing can meet ----

// Notes a rank as the last user of each link on the paths of its exchanges in actions; false: one
// had another data-parallel rank of the same pipeline rank before.
static bool note_user(const sp_i_collective_paths *list, int32_t rank, int pp, int32_t *users)
{
    bool alone = true;
    for (; list != NULL; list = list->next) {
        for (int i = 0; i < list->route.count; i++) {
            const sp_route *route = &list->phases[i].route;
            for (int32_t h = 0; h < route->hops; h++) {
                int32_t *user = &users[route->path[h].link];
                alone = alone && (*user == 0 || *user == rank + 1 || (*user - 1 - rank) % pp != 0);
                *user = rank + 1;
            }
        }
    }
    return alone;
}

// Exchanges of the data-parallel ranks of a pipeline rank in actions, and the reductions and
// gathers behind those, follow each other as well, where none of them uses another's links. `users`
// has room for the links.
static void join_sharded(sp_i_paths *p, int pp, int32_t *users)
{
    const sp_layout *layout = &p->plan->layout;
    const sp_i_collective_paths *behind = p->reductions[pp];
    bool apart = p->costs->buckets == NULL;
    int32_t owner = behind != NULL ? behind->phases[0].owner : ++p->owners;
    for (int d = 0; d < layout->dp; d++) {
        int rank = sp_i_paths_rank(p, d, pp);
        bool alone = note_user(p->sharded[rank], rank, layout->pp, users);
        apart = apart && alone;
    }
    for (int d = 0; apart && d < layout->dp; d++) {
        sp_i_collective_paths *list = p->sharded[sp_i_paths_rank(p, d, pp)];
        for (; list != NULL; list = list->next) {
            for (int i = 0; i < list->route.count; i++) {
                list->phases[i].owner = owner;
            }
        }
    }
}

// The owner of the paths over each link, above 0; SEVERAL.
enum { SEVERAL = -1 };

static void note_owner(const sp_i_path *path, int32_t *owners)
{
    for (int32_t h = 0; h < path->route.hops; h++) {
        int32_t *owner = &owners[path->route.path[h].link];
        *owner = *owner == 0 || *owner == path->owner ? path->owner : SEVERAL;
    }
}

static bool is_apart(const sp_i_path *path, const int32_t *owners)
{
    bool apart = true;
    for (int32_t h = 0; apart && h < path->route.hops; h++) {
        apart = owners[path->route.path[h].link] == path->owner;
    }
    return apart;
}

// May a rank begin to send before what it sent last is there? Between two sends lies at least the
// action that gives the second. `repeats`: the plan's recomputation may be an action of its own.
static bool meets_itself(const sp_i_paths *p, int dp, int pp, bool repeats)
{
    const sp_layout *layout = &p->plan->layout;
    const sp_stage_plan *stage = sp_plan_stage(p->plan, dp, pp);
    int64_t least_ns = INT64_MAX;
    int64_t most_ns = 0;
    for (size_t a = 0; a < stage->count; a++) {
        sp_action action = stage->actions[a];
        int to = sends_to(p, pp, action);
        if (to < 0) {
            continue;
        }
        int vstage = sp_layout_vstage(layout, pp, action.chunk);
        sp_action_cost took = sp_action_cost_of(p->plan, p->costs, action, vstage, repeats);
        int64_t took_ns = action.with_next ? 0 : sp_action_cost_ns(&took);
        bool backward = sp_action_is_backward(action);
        int64_t sent_ns =
            sp_step_costs_p2p_ns(p->costs, backward, (size_t)action.pack, pp, to, layout->pp);
        least_ns = took_ns < least_ns ? took_ns : least_ns;
        most_ns = sp_larger(most_ns, sent_ns);
    }
    return most_ns > least_ns;
}

// Transfers along a route take their closed times where the spine and PCIe do not slow them, they
// get no more of a NIC than a GPU's share, no other's route uses its links and none of them begins
// before the one before it has ended: exchanges and reductions of a rank follow each other.
static void find_flows(sp_i_paths *p)
{
    int pp = p->plan->layout.pp;
    bool repeats = sp_plan_find(p->plan, SP_ACTION_R) != NULL;
    size_t links = (size_t)sp_topology_links(p->topology);
    int32_t *owners = sp_calloc(links, sizeof *owners);
    for (int r = 0; p->sharded != NULL && r < pp; r++) {
        join_sharded(p, r, owners);
    }
    memset(owners, 0, links * sizeof *owners);
    for (const sp_i_path *path = p->used; path != NULL; path = path->next) {
        note_owner(path, owners);
    }
    for (sp_i_path *path = p->used; path != NULL; path = path->next) {
        path->is_flow = sp_route_is_slowed(&path->route) || sp_route_is_quickened(&path->route) ||
                        !is_apart(path, owners);
    }
    for (size_t i = 0; i < count_sends(p); i++) {
        sp_i_path *path = &p->sends[i];
        int rank = (int)(i / 2);
        path->is_flow =
            path->is_flow || (path->is_used && meets_itself(p, rank / pp, rank % pp, repeats));
    }
    sp_free(owners);
}

static void note_sharded_flows(sp_i_paths *p)
{
    const sp_layout *layout = &p->plan->layout;
    for (int rank = 0; p->sharded != NULL && rank < layout->dp * layout->pp; rank++) {
        for (const sp_i_collective_paths *c = p->sharded[rank]; c != NULL; c = c->next) {
            for (int i = 0; i < c->route.count; i++) {
                p->sharded_by_flows[rank % layout->pp] |= c->phases[i].is_flow;
            }
        }
    }
}

void sp_i_paths_init(sp_i_paths *p, const sp_plan *plan, const sp_step_costs *costs,
                     sp_topology *topology, sp_network_detail detail)
{
    const sp_layout *layout = &plan->layout;
    *p = (sp_i_paths){.plan = plan, .costs = costs, .topology = topology};
    allocate(p);
    find_sends(p);
    find_groups(p, &plan->packing->forward, false);
    find_groups(p, sp_packing_backward(plan->packing), true);
    for (int side = 0; side < 2; side++) {
        find_zones(p, costs->side[side].pack, costs->side[side].count);
    }
    // All data-parallel ranks of a pipeline rank in two orders, or two pipeline ranks of one.
    size_t most_gpus = 2 * (size_t)layout->dp * (size_t)(layout->tp * layout->cp);
    int64_t *gpus = sp_malloc(most_gpus * sizeof *gpus);
    route_sends(p, gpus);
    add_collectives(p, gpus);
    route_exchanges(p, gpus);
    if (p->experts != NULL) {
        route_experts(p);
        add_expert_reductions(p, gpus);
    }
    sp_free(gpus);
    if (detail == SP_NETWORK_AUTO) {
        find_flows(p);
    }
    note_sharded_flows(p);
}

void sp_i_paths_fini(sp_i_paths *p)
{
    for (sp_i_path *path = p->used; path != NULL; path = path->next) {
        sp_route_fini(&path->route);
    }
    sp_topology_free(p->topology);
    sp_arena_free(&p->work);
}

bool sp_i_paths_any_flow(const sp_i_paths *p)
{
    const sp_i_path *path = p->used;
    while (path != NULL && !path->is_flow) {
        path = path->next;
    }
    return path != NULL;
}

// ---- transfers ----

sp_status sp_i_transfers_init(sp_i_transfers *transfers, const sp_topology *topology, size_t count,
                              sp_error *err)
{
    int32_t links = sp_topology_links(topology);
    *transfers = (sp_i_transfers){.link_bytes = sp_calloc((size_t)links, sizeof(double)),
                                  .list = sp_calloc(count, sizeof *transfers->list),
                                  .count = count};
    return sp_flows_new(sp_topology_bytes_per_s(topology), links, &transfers->flows, err);
}

void sp_i_transfers_fini(sp_i_transfers *transfers)
{
    for (size_t i = 0; i < transfers->count; i++) {
        sp_free(transfers->list[i].legs);
    }
    sp_free(transfers->list);
    sp_free(transfers->link_bytes);
    sp_flows_free(transfers->flows);
}

void sp_i_transfer_add(sp_i_transfer *transfer, sp_i_leg leg)
{
    if (transfer->next == transfer->count) { // the last one is over
        transfer->next = transfer->count = 0;
    }
    *SP_ADDED(transfer->legs, transfer->capacity, transfer->count) = leg;
}

// When a phase ends of a collective that takes alone_ns in all.
static int64_t phase_end_ns(const sp_collective_route *route, double bytes, int64_t alone_ns,
                            int phase)
{
    double before_s = 0.0;
    double whole_s = 0.0;
    if (phase < 0 || phase + 1 == route->count) {
        return phase < 0 ? 0 : alone_ns;
    }
    for (int i = 0; i < route->count; i++) {
        double s = sp_collective_phase_s(&route->phases[i], bytes);
        before_s += i <= phase ? s : 0.0;
        whole_s += s;
    }
    return llround((double)alone_ns * (before_s / whole_s));
}

void sp_i_transfer_add_collective(sp_i_transfer *transfer, const sp_i_collective_paths *paths,
                                  double bytes, int64_t alone_ns)
{
    if (paths == NULL || alone_ns == 0) {
        sp_i_transfer_add(transfer, (sp_i_leg){.alone_ns = alone_ns});
        return;
    }
    for (int i = 0; i < paths->route.count; i++) {
        const sp_collective_phase *phase = &paths->route.phases[i];
        int64_t phase_ns = phase_end_ns(&paths->route, bytes, alone_ns, i) -
                           phase_end_ns(&paths->route, bytes, alone_ns, i - 1);
        bool flows = paths->phases[i].is_flow && phase_ns > 0;
        sp_i_transfer_add(transfer, (sp_i_leg){.path = flows ? &paths->phases[i] : NULL,
                                               .bytes = phase->share * bytes,
                                               .rounds = phase->rounds,
                                               .alone_ns = phase_ns});
    }
}

static sp_status start(sp_i_transfers *transfers, size_t tag, const sp_i_leg *leg, int64_t at_ns,
                       sp_error *err)
{
    sp_flow flow = sp_route_flow_of(&leg->path->route, at_ns, leg->bytes, leg->rounds,
                                    (double)leg->alone_ns / SP_NS_PER_S);
    flow.tag = (int64_t)tag;
    transfers->list[tag].under_way++;
    return sp_flows_start(transfers->flows, &flow, NULL, err);
}

sp_status sp_i_transfers_go_on(sp_i_transfers *transfers, size_t tag, int64_t *at_ns, bool *is_over,
                               sp_error *err)
{
    sp_i_transfer *transfer = &transfers->list[tag];
    sp_status status = SP_OK;
    while (status == SP_OK && transfer->next < transfer->count) {
        const sp_i_leg *leg = &transfer->legs[transfer->next];
        if (transfer->under_way > 0 && !leg->is_beside) {
            break;
        }
        if (leg->path != NULL) {
            status = start(transfers, tag, leg, *at_ns, err);
        } else {
            *at_ns += leg->alone_ns;
        }
        transfer->next++;
    }
    *is_over = transfer->under_way == 0;
    return status;
}

sp_status sp_i_transfers_ended(sp_i_transfers *transfers, size_t tag, int64_t *at_ns, bool *is_over,
                               sp_error *err)
{
    *is_over = --transfers->list[tag].under_way == 0;
    return *is_over ? sp_i_transfers_go_on(transfers, tag, at_ns, is_over, err) : SP_OK;
}

static void count_bytes(sp_i_transfers *transfers, const sp_route *route, double bytes, int rounds)
{
    const sp_flow sent = sp_route_flow(route, 0, bytes, rounds);
    for (int32_t h = 0; h < sent.hops; h++) {
        transfers->link_bytes[sent.path[h].link] += sent.bytes * sent.path[h].times;
    }
}

void sp_i_transfers_count(sp_i_transfers *transfers, const sp_i_path *path, double bytes)
{
    if (path->is_used) {
        count_bytes(transfers, &path->route, bytes, 1);
    }
}

void sp_i_transfers_count_collective(sp_i_transfers *transfers, const sp_i_collective_paths *paths,
                                     double bytes)
{
    for (int i = 0; paths != NULL && i < paths->route.count; i++) {
        const sp_collective_phase *phase = &paths->route.phases[i];
        count_bytes(transfers, &phase->route, phase->share * bytes, phase->rounds);
    }
}

double sp_i_collective_saved_s(const sp_i_collective_paths *paths, double bytes, double closed_s)
{
    return paths != NULL ? closed_s - sp_collective_route_lone_s(&paths->route, bytes, closed_s)
                         : 0.0;
}
