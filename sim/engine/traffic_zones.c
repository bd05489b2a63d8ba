// What the zones of a pack (cost/pack_time.c) exchange in an action, as flows: tokens move from
// their ranks to the ranks of their zone; then the rings of all zones go side by side with the work
// of the action, each at such a pace that alone it takes all the time that this and what it does
// not hide take by the formulas; and results move back. Moves have the pace of their formula, which
// is that of the rank or node with the most of them.
#include "sim/base/units.h"
#include "sim/engine/traffic_private.h"

static void add_pack(sp_i_traffic *t, const sp_pack_zones *zones);

void sp_i_zones_make(sp_i_traffic *t)
{
    const sp_step_costs *costs = t->costs;
    size_t ranks = (size_t)t->plan->layout.dp * (size_t)t->plan->layout.pp;
    if (!costs->zoned) {
        return;
    }
    t->moves = sp_arena_take(&t->work, ranks, sizeof(sp_i_move_way *));
    t->in_zones = sp_arena_take(&t->work, ranks, sizeof *t->in_zones);
    for (size_t k = 0; k < costs->forward_packs; k++) {
        add_pack(t, costs->forward[k].zones);
    }
    for (size_t k = 0; k < costs->backward_packs; k++) {
        add_pack(t, costs->backward[k].zones);
    }
}

static bool exchanges(const sp_i_traffic *t, const sp_zone_exchange *zone)
{
    return zone->dp_count * t->plan->layout.cp > 1;
}

static sp_i_group *group_of(const sp_i_traffic *t, const sp_zone_exchange *zone, int pp)
{
    return sp_i_group_find(t, zone->dp_first, zone->dp_count, pp, &zone->of[0]);
}

static sp_i_move_way *find_move(const sp_i_traffic *t, const sp_zone_move *move, int node_ranks,
                                int pp)
{
    sp_i_move_way *way = t->moves[sp_i_rank_of(t, move->from, pp)];
    while (way != NULL && (way->to != move->to || way->node_ranks != node_ranks)) {
        way = way->next;
    }
    return way;
}

static void add_move(sp_i_traffic *t, const sp_zone_move *move, int node_ranks, int pp)
{
    sp_i_move_way **first = &t->moves[sp_i_rank_of(t, move->from, pp)];
    if (find_move(t, move, node_ranks, pp) != NULL) {
        return;
    }
    sp_i_move_way *way = sp_arena_take(&t->work, 1, sizeof *way);
    *way = (sp_i_move_way){.to = move->to, .node_ranks = node_ranks, .next = *first};
    *first = way;
    sp_i_use_way(t, &way->there);
    sp_i_use_way(t, &way->back);
}

static void add_pack(sp_i_traffic *t, const sp_pack_zones *zones)
{
    for (int p = 0; zones != NULL && p < t->plan->layout.pp; p++) {
        for (size_t z = 0; z < zones->zone_count; z++) {
            const sp_zone_exchange *zone = &zones->zones[z];
            if (exchanges(t, zone)) {
                sp_i_group_add(t, zone->dp_first, zone->dp_count, p, &zone->of[0]);
            }
        }
        for (size_t m = 0; m < zones->move_count; m++) {
            add_move(t, &zones->moves[m], zones->node_ranks, p);
        }
    }
}

// ---- ways of moves ----

// The GPUs of a rank, and of each those in its place on the node's ranks, by which it sends.
static void list_by(const sp_layout *layout, int dp, int pp, int node_ranks, int by, int64_t *gpus,
                    int64_t *by_gpus)
{
    int first = by > 1 ? dp / node_ranks * node_ranks : dp;
    sp_i_list_gpus(layout, dp, pp, gpus, 1);
    for (int k = 0; k < by; k++) {
        sp_i_list_gpus(layout, first + k, pp, by_gpus + k, by);
    }
}

void sp_i_zones_route(sp_i_traffic *t, int rank, sp_i_move_way *move)
{
    const sp_layout *layout = &t->plan->layout;
    int from = rank / layout->pp;
    int pp = rank % layout->pp;
    int node = move->node_ranks;
    int last = (move->to > from ? move->to : from) / node * node;
    bool crosses = from / node != move->to / node;
    int by = !crosses ? 1 : layout->dp - last < node ? layout->dp - last : node;
    int pairs = layout->tp * layout->cp;
    size_t count = (size_t)pairs;
    int64_t *gpus = sp_malloc(2 * count * (size_t)(by + 1) * sizeof *gpus);
    int64_t *to = gpus + count;
    int64_t *by_from = to + count;
    int64_t *by_to = by_from + count * (size_t)by;
    list_by(layout, from, pp, node, by, gpus, by_from);
    list_by(layout, move->to, pp, node, by, to, by_to);
    sp_route_spread_pairs(t->topology, gpus, to, by_from, by_to, pairs, by, &move->there.route);
    sp_route_spread_pairs(t->topology, to, gpus, by_to, by_from, pairs, by, &move->back.route);
    sp_free(gpus);
}

// ---- in an action ----

static const sp_pack_zones *zones_of(const sp_i_traffic *t, const sp_walk_action *action,
                                     double layers[2])
{
    bool forward;
    sp_i_actions_layers(t, action, layers, &forward);
    const sp_pack_costs *packs = forward ? t->costs->forward : t->costs->backward;
    return layers[0] + layers[1] > 0.0 ? packs[action->place.action.pack].zones : NULL;
}

static double bytes_of(const sp_i_in_zones *in, const sp_zone_exchange *zone, bool heads)
{
    double bytes = 0.0;
    for (int i = 0; i < 2; i++) {
        const sp_cp_exchange *of = &zone->of[i];
        bytes += in->layers[i] * (heads ? of->heads_bytes : of->bytes);
    }
    return bytes;
}

// Of the passes that move tokens.
static double moving_layers(const sp_i_in_zones *in)
{
    double layers = 0.0;
    for (int i = 0; i < 2; i++) {
        layers += in->zones->moves_s[i] > 0.0 ? in->layers[i] : 0.0;
    }
    return layers;
}

bool sp_i_zones_are(const sp_i_traffic *t, const sp_walk_action *action)
{
    double layers[2];
    const sp_pack_zones *zones = t->moves != NULL ? zones_of(t, action, layers) : NULL;
    bool any = false;
    int pp = action->place.pp;
    for (size_t z = 0; zones != NULL && !any && z < zones->zone_count; z++) {
        const sp_i_group *group =
            exchanges(t, &zones->zones[z]) ? group_of(t, &zones->zones[z], pp) : NULL;
        any = group != NULL && (group->keys.is_flow || group->heads.is_flow);
    }
    for (size_t m = 0; zones != NULL && !any && m < zones->move_count; m++) {
        const sp_i_move_way *way = find_move(t, &zones->moves[m], zones->node_ranks, pp);
        any = way->there.is_flow || way->back.is_flow;
    }
    return any;
}

static sp_status start(sp_i_traffic *t, int rank, const sp_i_way *way, double bytes, int64_t at_ns,
                       sp_error *err)
{
    sp_i_in_zones *in = &t->in_zones[rank];
    if (!way->is_used || !(bytes > 0.0)) {
        return SP_OK;
    }
    sp_i_traffic_carry(t, &way->route, bytes, 1);
    if (in->ns[in->phase] == 0) {
        return SP_OK;
    }
    sp_flow flow =
        sp_route_flow_of(&way->route, at_ns, bytes, 1, (double)in->ns[in->phase] / SP_NS_PER_S);
    flow.tag = sp_i_tag(SP_I_ZONES_OF, rank);
    in->under_way++;
    return sp_i_traffic_start(t, &flow, NULL, err);
}

static sp_status start_moves(sp_i_traffic *t, int rank, int64_t at_ns, sp_error *err)
{
    const sp_i_in_zones *in = &t->in_zones[rank];
    const sp_layout *layout = &t->plan->layout;
    double token_bytes = in->zones->token_bytes * layout->tp * layout->cp * moving_layers(in);
    sp_status status = SP_OK;
    for (size_t m = 0; status == SP_OK && m < in->zones->move_count; m++) {
        const sp_zone_move *move = &in->zones->moves[m];
        const sp_i_move_way *way = find_move(t, move, in->zones->node_ranks, rank % layout->pp);
        status = start(t, rank, in->phase == SP_I_MOVE_IN ? &way->there : &way->back,
                       move->tokens * token_bytes, at_ns, err);
    }
    return status;
}

static sp_status start_rings(sp_i_traffic *t, int rank, int64_t at_ns, sp_error *err)
{
    const sp_i_in_zones *in = &t->in_zones[rank];
    sp_status status = SP_OK;
    for (size_t z = 0; status == SP_OK && z < in->zones->zone_count; z++) {
        const sp_zone_exchange *zone = &in->zones->zones[z];
        if (exchanges(t, zone)) {
            const sp_i_group *group = group_of(t, zone, rank % t->plan->layout.pp);
            status = start(t, rank, &group->keys, bytes_of(in, zone, false), at_ns, err);
            if (status == SP_OK) {
                status = start(t, rank, &group->heads, bytes_of(in, zone, true), at_ns, err);
            }
        }
    }
    return status;
}

// The phases from the one that begins at *at_ns on, up to one that has flows.
static sp_status go_on(sp_i_traffic *t, int rank, int64_t *at_ns, sp_error *err)
{
    sp_i_in_zones *in = &t->in_zones[rank];
    sp_status status = SP_OK;
    while (status == SP_OK && in->phase < SP_I_ZONES_OVER) {
        status = in->phase == SP_I_RINGS ? start_rings(t, rank, *at_ns, err)
                                         : start_moves(t, rank, *at_ns, err);
        if (in->under_way > 0) {
            break;
        }
        *at_ns += in->ns[in->phase];
        in->phase++;
    }
    return status;
}

sp_status sp_i_zones_begin(sp_i_traffic *t, const sp_walk_action *action, int64_t at_ns,
                           int64_t hidden_ns, int64_t shown_ns, bool *is_under_way, sp_error *err)
{
    const sp_pack *pack = sp_i_pack_of(t, action->place.action);
    int rank = sp_i_rank_of(t, pack->dp_first, action->place.pp);
    sp_i_in_zones *in = &t->in_zones[rank];
    *in = (sp_i_in_zones){.zones = NULL};
    in->zones = zones_of(t, action, in->layers);
    double moves_s = in->layers[0] * in->zones->moves_s[0] + in->layers[1] * in->zones->moves_s[1];
    int64_t moves_ns = sp_ns_from_s(moves_s);
    moves_ns = moves_ns < shown_ns ? moves_ns : shown_ns;
    in->ns[SP_I_MOVE_IN] = moves_ns / 2;
    in->ns[SP_I_MOVE_BACK] = moves_ns - moves_ns / 2;
    in->ns[SP_I_RINGS] = hidden_ns + shown_ns - moves_ns;
    sp_status status = go_on(t, rank, &at_ns, err);
    *is_under_way = in->under_way > 0;
    return status;
}

sp_status sp_i_zones_ended(sp_i_traffic *t, int rank, int64_t now_ns, bool *is_over,
                           int64_t *end_ns, sp_error *err)
{
    sp_i_in_zones *in = &t->in_zones[rank];
    sp_status status = SP_OK;
    *end_ns = now_ns;
    in->under_way--;
    if (in->under_way == 0) {
        in->phase++;
        status = go_on(t, rank, end_ns, err);
    }
    *is_over = in->under_way == 0;
    return status;
}
