#include "sim/simulate/private.h"

#include <math.h>
#include <string.h>

#include "sim/base/units.h"

// The stages of an action, one after another: parameters that nothing hides are gathered (ZeRO 2
// and 3); the work, and beside it the exchanges of context-parallel ranks and all that the work
// hides; rows of experts that it does not hide go there and back; gradients that nothing hides are
// scattered.
typedef enum action_stage {
    BEFORE_WORK,
    BESIDE_WORK,
    WITH_EXPERTS,
    BEHIND_WORK,
    STAGES
} action_stage;

// The exchanges of ZeRO in an action on one rank, which gets its part of the collectives of all
// data-parallel ranks, each of which takes part in an action of its own and waits for none of the
// others.
typedef struct sharded {
    const sp_sharded_stage *of_stage;
    int first_rank; // of those that run the action together
    double gather_bytes, scatter_bytes;
    double gather_share;           // of the time that both take alone
    double exposed_share;          // of both, that nothing hides
    int64_t gather_ns, scatter_ns; // that nothing hides
} sharded;

// The exchange of experts in an action on each of its ranks.
typedef struct experts {
    double bytes[SP_EXPERT_WAYS];     // of a GPU
    double hidden;                    // share of them
    int64_t closed_ns;                // in the open, by formulas
    int64_t fixed_ns;                 // of it, in which nothing is sent
    int64_t alone_ns[SP_EXPERT_WAYS]; // of the rest, on links of its own
} experts;

// An action whose exchanges are flows, on all ranks that run it together, which begin together.
typedef struct in_action {
    sp_walk_action action; // on the last of its ranks
    sp_dp_ranks ranks;
    bool has_cp;      // context-parallel ranks have flows
    bool has_experts; // so do ranks that share experts
    experts experts;
    action_stage stage; // that is under way
    int under_way;
    // Its work but for exchanges of context-parallel ranks, and those, by formulas.
    int64_t hidden_ns, exposed_ns;
    int64_t stage_ns[STAGES]; // that stages take alone
    int64_t begun_ns;         // of the stage
    // Ends of the stage, as far as is known: by all but data-parallel ranks and experts, by
    // experts, by all.
    int64_t cp_end_ns, experts_end_ns, end_ns;
    // By which data-parallel ranks and experts made the action longer so far, or shorter.
    int64_t dp_ns, ep_ns;
} in_action;

struct sp_i_traffic {
    const sp_plan *plan;
    const sp_step_costs *costs;
    sp_i_paths paths;
    // By tag: what context-parallel ranks or zones exchange in an action, [dp * pp], by the first
    // rank of their pack; what ZeRO does, [dp * pp]; the reductions, [pp]; and experts, [dp * pp].
    sp_i_transfers transfers;
    sp_i_reductions *reductions;
    in_action *in_action; // [dp * pp]: under way, by the first rank that runs it
    sharded *sharded;     // [dp * pp]; NULL: ZeRO exchanges nothing in actions
    sp_plan_place *sent;  // of the flows that are sends, by their number: the action
    size_t sent_capacity;
    sp_walk_event *events; // the first events_told of which the walk knows
    size_t event_count, event_capacity, events_told;
};

static size_t rank_count(const sp_i_traffic *t)
{
    return (size_t)t->plan->layout.dp * (size_t)t->plan->layout.pp;
}

static int rank_of(const sp_i_traffic *t, int dp, int pp)
{
    return sp_i_paths_rank(&t->paths, dp, pp);
}

static const sp_pack *pack_of(const sp_i_traffic *t, sp_action action)
{
    const sp_packing *packing = t->plan->packing;
    const sp_pack_list *list =
        sp_action_is_backward(action) ? sp_packing_backward(packing) : &packing->forward;
    return &list->packs[action.pack];
}

static sp_dp_ranks together(const sp_i_traffic *t, const sp_plan_place *place)
{
    return sp_depends_together(pack_of(t, place->action), place->action, place->dp);
}

static void add_event(sp_i_traffic *t, sp_walk_event event)
{
    *SP_ADDED(t->events, t->event_capacity, t->event_count) = event;
}

// ---- sends of pipeline ranks ----

sp_status sp_i_traffic_send(sp_i_traffic *t, const sp_plan_place *from, int to, int64_t at_ns,
                            int64_t *there_ns, sp_error *err)
{
    const sp_layout *layout = &t->plan->layout;
    const sp_i_path *path = sp_i_paths_send(&t->paths, from->dp, from->pp, to);
    bool backward = sp_action_is_backward(from->action);
    size_t pack = (size_t)from->action.pack;
    int64_t alone_ns = sp_step_costs_p2p_ns(t->costs, backward, pack, from->pp, to, layout->pp);
    if (!path->is_flow) {
        *there_ns = at_ns + alone_ns;
        return SP_OK;
    }
    double bytes = t->costs->side[backward].pack[pack].p2p_bytes;
    double all_bytes = bytes * layout->tp * layout->cp;
    double lone_s = sp_route_lone_s(&path->route, all_bytes, 1, (double)alone_ns / SP_NS_PER_S);
    sp_flow flow = sp_route_flow_of(&path->route, at_ns, all_bytes, 1, lone_s);
    int32_t id;
    flow.tag = (int64_t)t->transfers.count;
    sp_i_transfers_count(&t->transfers, path, all_bytes);
    SP_TRY(sp_flows_start(t->transfers.flows, &flow, &id, err));
    SP_RESERVE(t->sent, t->sent_capacity, (size_t)id + 1);
    t->sent[id] = *from;
    return SP_OK;
}

// ---- what context-parallel ranks exchange in an action ----
//
// The part that computation does not hide comes last, at the rate of the links; the hidden one goes
// at the pace of the computation and holds that up only where the links give less.

// Layers of an action in which context-parallel ranks exchange as in [0] a forward or an input
// gradient, [1] a recomputation; returns whether by the costs of forward packs.
static bool count_layers(const sp_i_traffic *t, const sp_walk_action *action, double layers[2])
{
    double all = t->costs->stages[action->vstage].layers;
    bool forward = false;
    layers[0] = layers[1] = 0.0;
    switch ((sp_action_kind)action->place.action.kind) {
    case SP_ACTION_F:
        forward = true;
        layers[0] = all;
        break;
    case SP_ACTION_R:
        forward = t->plan->packing->backward.count > 0;
        layers[forward ? 0 : 1] = all;
        break;
    case SP_ACTION_B:
    case SP_ACTION_I:
        layers[0] = all;
        layers[1] = action->recomputed ? 0.0 : all;
        break;
    default:
        break;
    }
    return forward;
}

static void add_layers(sp_cp_exchange *sum, double layers, const sp_cp_exchange *of_layer)
{
    if (layers > 0.0) {
        sum->s += layers * of_layer->s;
        sum->bytes += layers * of_layer->bytes;
        sum->heads_s += layers * of_layer->heads_s;
        sum->heads_bytes += layers * of_layer->heads_bytes;
        sum->head_ranks = sum->head_ranks > 0 ? sum->head_ranks : of_layer->head_ranks;
        sum->ring_nics = sum->ring_nics > 0 ? sum->ring_nics : of_layer->ring_nics;
    }
}

// Sums up the layers of the action's stage. NULL: none of what it exchanges is flows.
static const sp_i_group_paths *group_of(const sp_i_traffic *t, const sp_walk_action *action,
                                        sp_cp_exchange *whole)
{
    const sp_pack *pack = pack_of(t, action->place.action);
    size_t k = (size_t)action->place.action.pack;
    *whole = (sp_cp_exchange){0};
    if (t->plan->layout.cp * pack->dp_count > 1) {
        double layers[2];
        bool forward = count_layers(t, action, layers);
        add_layers(whole, layers[0], &t->costs->side[!forward].pack[k].cp);
        add_layers(whole, layers[1], &t->costs->side[1].pack[k].cp_again);
    }
    const sp_i_group_paths *group =
        whole->s + whole->heads_s > 0.0
            ? sp_i_paths_group(&t->paths, pack->dp_first, pack->dp_count, action->place.pp, whole)
            : NULL;
    // All of it is flows where any part may meet others.
    return group != NULL && (group->keys.is_flow || group->heads.is_flow) ? group : NULL;
}

// Lets an exchange take what it does alone. Returns what nothing hides of it, of exposed_ns.
static int64_t shorten_exchange(const sp_i_path *path, double bytes, double *s, int64_t exposed_ns)
{
    double lone_s = path->is_used ? sp_route_lone_s(&path->route, bytes, 1, *s) : *s;
    int64_t saved_ns = sp_ns_from_s(*s - lone_s);
    *s = lone_s;
    return sp_larger(0, exposed_ns - saved_ns);
}

// The share that is not hidden of an exchange that takes whole_s by itself.
static double exposed_share(int64_t exposed_ns, double whole_s)
{
    return whole_s > 0.0 ? fmin(1.0, (double)exposed_ns / SP_NS_PER_S / whole_s) : 0.0;
}

// Makes its legs: what computation hides, over all the time that is hidden behind; the keys and
// values that it does not hide; the heads. Of exposed_ns the heads take all that they need, and all
// of it where they are alone: then what rounding leaves of them counts as hidden.
static void make_exchange(const sp_i_group_paths *group, sp_cp_exchange whole, int64_t hidden_ns,
                          int64_t exposed_ns, sp_i_leg legs[3])
{
    bool has_keys = whole.s > 0.0;
    int64_t heads_ns = has_keys ? sp_ns_from_s(whole.heads_s) : exposed_ns;
    heads_ns = heads_ns < exposed_ns ? heads_ns : exposed_ns;
    int64_t keys_ns = exposed_ns - heads_ns;
    keys_ns = shorten_exchange(&group->keys, whole.bytes, &whole.s, keys_ns);
    heads_ns = shorten_exchange(&group->heads, whole.heads_bytes, &whole.heads_s, heads_ns);
    double keys_share = exposed_share(keys_ns, whole.s);
    double heads_share = exposed_share(heads_ns, whole.heads_s);
    const sp_i_path *keys = group->keys.is_used ? &group->keys : &group->heads;
    legs[0] = (sp_i_leg){.path = keys,
                         .bytes = has_keys ? (1.0 - keys_share) * whole.bytes
                                           : (1.0 - heads_share) * whole.heads_bytes,
                         .rounds = 1,
                         .alone_ns = hidden_ns};
    legs[1] = (sp_i_leg){
        .path = keys, .bytes = keys_share * whole.bytes, .rounds = 1, .alone_ns = keys_ns};
    legs[2] = (sp_i_leg){.path = &group->heads,
                         .bytes = (has_keys ? 1.0 : heads_share) * whole.heads_bytes,
                         .rounds = 1,
                         .alone_ns = heads_ns};
}

// Returns how much of an action's exchange nothing hides when it is alone, of exposed_ns by its
// formulas: computation hides as much in the same time.
static int64_t exposed_cp_ns(const sp_i_traffic *t, const sp_walk_action *action,
                             int64_t exposed_ns)
{
    sp_cp_exchange whole;
    sp_i_leg legs[3];
    const sp_i_group_paths *group = group_of(t, action, &whole);
    if (group != NULL) {
        make_exchange(group, whole, 0, exposed_ns, legs);
        exposed_ns = legs[1].alone_ns + legs[2].alone_ns;
    }
    return exposed_ns;
}

// The exchange of an action on all ranks of its pack. Legs that take no time are no flows, but what
// they send counts.
static void add_exchange(sp_i_traffic *t, const in_action *a, sp_i_transfer *transfer)
{
    sp_cp_exchange whole;
    sp_i_leg legs[3];
    const sp_i_group_paths *group = group_of(t, &a->action, &whole);
    sp_i_transfers_count(&t->transfers, &group->keys, whole.bytes);
    sp_i_transfers_count(&t->transfers, &group->heads, whole.heads_bytes);
    make_exchange(group, whole, a->hidden_ns, a->exposed_ns, legs);
    for (int i = 0; i < 3; i++) {
        if (i == 0 || legs[i].alone_ns > 0) {
            sp_i_transfer_add(transfer, legs[i]);
        }
    }
}

// ---- what the zones of a pack exchange in an action (cost/pack_time.c) ----
//
// Tokens move from their ranks to the ranks of their zone; then the rings of all zones go side by
// side with the work of the action, each at such a pace that alone it takes all the time that this
// and what it does not hide take by the formulas; and results move back. Moves have the pace of
// their formula, which is that of the rank or node with the most of them.

// Layers as in count_layers. NULL: none.
static const sp_pack_zones *zones_of(const sp_i_traffic *t, const sp_walk_action *action,
                                     double layers[2])
{
    bool forward = count_layers(t, action, layers);
    const sp_pack_costs *packs = t->costs->side[!forward].pack;
    return layers[0] + layers[1] > 0.0 ? packs[action->place.action.pack].zones : NULL;
}

// NULL: the ranks of the zone exchange nothing.
static const sp_i_group_paths *zone_group(const sp_i_traffic *t, const sp_zone_exchange *zone,
                                          int pp)
{
    return zone->dp_count * t->plan->layout.cp > 1
               ? sp_i_paths_group(&t->paths, zone->dp_first, zone->dp_count, pp, &zone->of[0])
               : NULL;
}

static bool zones_flow(const sp_i_traffic *t, const sp_walk_action *action)
{
    double layers[2];
    const sp_pack_zones *zones = t->paths.moves != NULL ? zones_of(t, action, layers) : NULL;
    bool any = false;
    int pp = action->place.pp;
    for (size_t z = 0; zones != NULL && !any && z < zones->zone_count; z++) {
        const sp_i_group_paths *group = zone_group(t, &zones->zones[z], pp);
        any = group != NULL && (group->keys.is_flow || group->heads.is_flow);
    }
    for (size_t m = 0; zones != NULL && !any && m < zones->move_count; m++) {
        const sp_i_move_paths *move =
            sp_i_paths_move(&t->paths, &zones->moves[m], zones->node_ranks, pp);
        any = move->there.is_flow || move->back.is_flow;
    }
    return any;
}

// One of the flows that begin together; *is_beside: not the first of them.
static void add_beside(sp_i_traffic *t, sp_i_transfer *transfer, const sp_i_path *path,
                       double bytes, int64_t ns, bool *is_beside)
{
    if (path->is_used && bytes > 0.0) {
        sp_i_transfers_count(&t->transfers, path, bytes);
        if (ns > 0) {
            sp_i_transfer_add(transfer, (sp_i_leg){.path = path,
                                                   .bytes = bytes,
                                                   .rounds = 1,
                                                   .alone_ns = ns,
                                                   .is_beside = *is_beside});
            *is_beside = true;
        }
    }
}

static void end_beside(sp_i_transfer *transfer, int64_t ns, bool is_beside)
{
    if (!is_beside) {
        sp_i_transfer_add(transfer, (sp_i_leg){.alone_ns = ns});
    }
}

static void add_moves(sp_i_traffic *t, sp_i_transfer *transfer, const sp_pack_zones *zones, int pp,
                      double layers, bool back, int64_t ns)
{
    const sp_layout *layout = &t->plan->layout;
    double token_bytes = zones->token_bytes * layout->tp * layout->cp * layers;
    bool is_beside = false;
    for (size_t m = 0; m < zones->move_count; m++) {
        const sp_zone_move *move = &zones->moves[m];
        const sp_i_move_paths *paths = sp_i_paths_move(&t->paths, move, zones->node_ranks, pp);
        add_beside(t, transfer, back ? &paths->back : &paths->there, move->tokens * token_bytes, ns,
                   &is_beside);
    }
    end_beside(transfer, ns, is_beside);
}

static void add_rings(sp_i_traffic *t, sp_i_transfer *transfer, const sp_pack_zones *zones, int pp,
                      const double layers[2], int64_t ns)
{
    bool is_beside = false;
    for (size_t z = 0; z < zones->zone_count; z++) {
        const sp_zone_exchange *zone = &zones->zones[z];
        const sp_i_group_paths *group = zone_group(t, zone, pp);
        if (group != NULL) {
            const sp_cp_exchange *exchange = zone->of;
            add_beside(t, transfer, &group->keys,
                       layers[0] * exchange[0].bytes + layers[1] * exchange[1].bytes, ns,
                       &is_beside);
            add_beside(t, transfer, &group->heads,
                       layers[0] * exchange[0].heads_bytes + layers[1] * exchange[1].heads_bytes,
                       ns, &is_beside);
        }
    }
    end_beside(transfer, ns, is_beside);
}

static void add_zones(sp_i_traffic *t, const in_action *a, sp_i_transfer *transfer)
{
    double layers[2];
    const sp_pack_zones *zones = zones_of(t, &a->action, layers);
    double moving_layers = 0.0;
    double moves_s = layers[0] * zones->moves_s[0] + layers[1] * zones->moves_s[1];
    int64_t moves_ns = sp_ns_from_s(moves_s);
    int pp = a->action.place.pp;
    moves_ns = moves_ns < a->exposed_ns ? moves_ns : a->exposed_ns;
    for (int i = 0; i < 2; i++) {
        moving_layers += zones->moves_s[i] > 0.0 ? layers[i] : 0.0;
    }
    add_moves(t, transfer, zones, pp, moving_layers, false, moves_ns / 2);
    add_rings(t, transfer, zones, pp, layers, a->hidden_ns + a->exposed_ns - moves_ns);
    add_moves(t, transfer, zones, pp, moving_layers, true, moves_ns - moves_ns / 2);
}

// ---- what ZeRO 2 and 3 exchange in an action (cost/data_parallel.c) ----

typedef struct zero_exchange {
    sp_exchanged gather, scatter;
} zero_exchange;

static zero_exchange zero_exchange_of(const sp_i_traffic *t, const sp_walk_action *action)
{
    const sp_sharded_stage *stage = &t->costs->sharded[action->vstage];
    bool regrouped = t->plan->packing->backward.count > 0;
    sp_exchanged back = stage->gather;
    back.bare_s = stage->backward_bare_s;
    switch ((sp_action_kind)action->place.action.kind) {
    case SP_ACTION_F:
        return (zero_exchange){.gather = stage->gather};
    case SP_ACTION_I:
        return (zero_exchange){.gather = back};
    case SP_ACTION_B:
        return (zero_exchange){back, stage->scatter};
    case SP_ACTION_W:
        return (zero_exchange){.scatter = stage->scatter};
    case SP_ACTION_R:
        return (zero_exchange){.gather = regrouped ? stage->gather : stage->layers_gather};
    default:
        return (zero_exchange){.gather = {0}};
    }
}

static bool zero_flows(const sp_i_traffic *t, const sp_walk_action *action)
{
    if (t->sharded == NULL || !t->paths.sharded_by_flows[action->place.pp]) {
        return false;
    }
    zero_exchange exchange = zero_exchange_of(t, action);
    return exchange.gather.s + exchange.scatter.s > 0.0;
}

// Lets one take what it does alone, and returns by how much shorter that is.
static double shorten_collective(const sp_i_collective_paths *paths, sp_exchanged *exchanged)
{
    double saved_s = sp_i_collective_saved_s(paths, exchanged->bytes, exchanged->s);
    exchanged->bare_s -= exchanged->s > 0.0 ? saved_s * (exchanged->bare_s / exchanged->s) : 0.0;
    exchanged->s -= saved_s;
    return saved_s;
}

// Returns how much longer, of dp_ns, work takes that hides a share of an exchange. The rest has
// nothing beside it or does not fit behind work: dp = bare + beyond + share * (whole - bare -
// beyond).
static int64_t slowed_ns(double share, const zero_exchange *exchange, int64_t dp_ns)
{
    double bare_s = exchange->gather.bare_s;
    double beside_s = exchange->gather.s + exchange->scatter.s - bare_s - exchange->scatter.bare_s;
    double added_s = (double)dp_ns / SP_NS_PER_S - bare_s - exchange->scatter.bare_s;
    double beyond_s = share < 1.0 ? (added_s - share * beside_s) / (1.0 - share) : 0.0;
    double slowed_s = fmin(added_s, share * (beside_s - fmax(0.0, beyond_s)));
    return sp_ns_from_s(fmax(0.0, slowed_s));
}

static double hidden_s(const zero_exchange *exchange, int64_t exposed_ns)
{
    return fmax(0.0, exchange->gather.s + exchange->scatter.s - (double)exposed_ns / SP_NS_PER_S);
}

static const sp_i_collective_paths *gather_paths(const sp_i_traffic *t, int rank,
                                                 const sp_sharded_stage *stage)
{
    return sp_i_paths_collective(t->paths.sharded[rank], stage->gathers_by, SP_ALL_GATHER);
}

static const sp_i_collective_paths *scatter_paths(const sp_i_traffic *t, int rank,
                                                  const sp_sharded_stage *stage)
{
    return sp_i_paths_collective(t->paths.sharded[rank], stage->scatters_by, SP_REDUCE_SCATTER);
}

// An exchange that is shorter alone is hidden more, but for its bare part. Returns what nothing
// hides of it; *slows_ns is how much longer the work takes.
static int64_t shorten_all(const sp_i_traffic *t, int rank, const sp_sharded_stage *stage,
                           zero_exchange *exchange, int64_t dp_ns, int64_t *slows_ns)
{
    *slows_ns = slowed_ns(stage->overlap_share, exchange, dp_ns);
    int64_t closed_ns = dp_ns - *slows_ns;
    double closed_hidden_s = hidden_s(exchange, closed_ns);
    double saved_s = shorten_collective(gather_paths(t, rank, stage), &exchange->gather) +
                     shorten_collective(scatter_paths(t, rank, stage), &exchange->scatter);
    int64_t bare_ns = sp_ns_from_s(exchange->gather.bare_s + exchange->scatter.bare_s);
    int64_t exposed_ns = sp_larger(bare_ns, closed_ns - sp_ns_from_s(saved_s));
    exposed_ns = exposed_ns < closed_ns ? exposed_ns : closed_ns;
    if (closed_hidden_s > 0.0) {
        double left = hidden_s(exchange, exposed_ns) / closed_hidden_s;
        *slows_ns = llround((double)*slows_ns * fmin(1.0, left));
    }
    return exposed_ns;
}

// Finds by how much the exchange of an action on its rank alone makes each stage longer; formulas
// make the action dp_ns longer by it. Gathers and scatters have equal shares of what is exposed,
// and of what is hidden.
static void set_sharded(sp_i_traffic *t, const sp_walk_action *action, int64_t dp_ns,
                        int64_t stage_ns[STAGES])
{
    stage_ns[BEFORE_WORK] = stage_ns[BESIDE_WORK] = stage_ns[WITH_EXPERTS] = 0;
    stage_ns[BEHIND_WORK] = dp_ns;
    if (t->sharded == NULL) {
        return;
    }
    const sp_plan_place *place = &action->place;
    const sp_sharded_stage *stage = &t->costs->sharded[action->vstage];
    int rank = rank_of(t, place->dp, place->pp);
    zero_exchange exchange = zero_exchange_of(t, action);
    int64_t exposed_ns = shorten_all(t, rank, stage, &exchange, dp_ns, &stage_ns[BESIDE_WORK]);
    double whole_s = exchange.gather.s + exchange.scatter.s;
    double gather_share = whole_s > 0.0 ? exchange.gather.s / whole_s : 0.0;
    int64_t before_ns = llround(gather_share * (double)exposed_ns);
    stage_ns[BEFORE_WORK] = before_ns;
    stage_ns[BEHIND_WORK] = exposed_ns - before_ns;
    t->sharded[rank] = (sharded){.of_stage = stage,
                                 .first_rank = rank_of(t, together(t, place).first, place->pp),
                                 .gather_bytes = exchange.gather.bytes,
                                 .scatter_bytes = exchange.scatter.bytes,
                                 .gather_share = gather_share,
                                 .exposed_share = exposed_share(exposed_ns, whole_s),
                                 .gather_ns = before_ns,
                                 .scatter_ns = exposed_ns - before_ns};
    sp_i_transfers_count_collective(&t->transfers, gather_paths(t, rank, stage),
                                    exchange.gather.bytes);
    sp_i_transfers_count_collective(&t->transfers, scatter_paths(t, rank, stage),
                                    exchange.scatter.bytes);
}

static void add_part(sp_i_transfer *transfer, const sp_i_collective_paths *paths, double bytes,
                     int64_t ns)
{
    sp_i_transfer_add_collective(transfer, bytes > 0.0 ? paths : NULL, bytes, ns);
}

// Adds the exchange of a stage that takes as long: beside the work parameters and then gradients,
// each over its share of the time.
static void add_sharded(sp_i_traffic *t, int rank, action_stage stage, int64_t stage_ns,
                        sp_i_transfer *transfer)
{
    const sharded *s = &t->sharded[rank];
    const sp_i_collective_paths *gather = gather_paths(t, rank, s->of_stage);
    const sp_i_collective_paths *scatter = scatter_paths(t, rank, s->of_stage);
    int64_t beside_ns = llround(s->gather_share * (double)stage_ns);
    switch (stage) {
    case BEFORE_WORK:
        add_part(transfer, gather, s->exposed_share * s->gather_bytes, s->gather_ns);
        break;
    case BESIDE_WORK:
        add_part(transfer, gather, (1.0 - s->exposed_share) * s->gather_bytes, beside_ns);
        add_part(transfer, scatter, (1.0 - s->exposed_share) * s->scatter_bytes,
                 stage_ns - beside_ns);
        break;
    default:
        add_part(transfer, scatter, s->exposed_share * s->scatter_bytes, s->scatter_ns);
        break;
    }
}

// ---- what ranks that share experts exchange in an action (cost/token_time.c) ----

static size_t expert_tag(const sp_i_traffic *t, int first)
{
    return 2 * rank_count(t) + (size_t)t->plan->layout.pp + (size_t)first;
}

static void add_expert_pass(sp_expert_exchange *sum, const sp_expert_exchange *of)
{
    sum->fixed_s += of->fixed_s;
    for (int way = 0; way < SP_EXPERT_WAYS; way++) {
        sum->bytes[way] += of->bytes[way];
        sum->calls[way] += of->calls[way];
    }
}

// Passes as in count_layers; of one local token.
static sp_expert_exchange expert_exchange_of(const sp_i_traffic *t, const sp_walk_action *action)
{
    double layers[2];
    sp_expert_exchange sum = {.fixed_s = 0.0};
    bool forward = count_layers(t, action, layers);
    const sp_expert_exchange *of = &t->costs->experts[action->vstage * SP_EXPERT_PASSES];
    if (layers[0] > 0.0) {
        add_expert_pass(&sum, &of[forward ? 0 : 1]);
    }
    if (layers[1] > 0.0) {
        add_expert_pass(&sum, &of[2]);
    }
    return sum;
}

static sp_i_expert_paths *expert_paths(const sp_i_traffic *t, const sp_walk_action *action, int d)
{
    const sp_dp_ranks ranks = together(t, &action->place);
    return &t->paths.experts[rank_of(t, ranks.first + d, action->place.pp)];
}

// All of it is flows where any part may meet others.
static bool experts_flow(const sp_i_traffic *t, const sp_walk_action *action)
{
    if (t->paths.experts == NULL) {
        return false;
    }
    bool any = false;
    const sp_expert_exchange exchange = expert_exchange_of(t, action);
    const int ranks = together(t, &action->place).count;
    for (int i = 0; !any && i < ranks * SP_EXPERT_WAYS; i++) {
        int way = i % SP_EXPERT_WAYS;
        any = exchange.bytes[way] > 0.0 &&
              expert_paths(t, action, i / SP_EXPERT_WAYS)->way[way].is_flow;
    }
    return any;
}

// Seconds for which the bytes of each way fill its links; ways of a dispatcher that sends once run
// beside each other, all others in turn. Returns their sum.
static double wire_s(const sp_i_expert_paths *paths, const double bytes[SP_EXPERT_WAYS],
                     double of_way[SP_EXPERT_WAYS])
{
    double sum_s = 0.0;
    for (int way = 0; way < SP_EXPERT_WAYS; way++) {
        const sp_route *route = &paths->way[way].route;
        bool sends = paths->way[way].is_used && bytes[way] > 0.0;
        of_way[way] = sends ? bytes[way] / route->parts / route->closed_bytes_per_s : 0.0;
    }
    double routed_s = fmax(of_way[SP_WAY_NODES], of_way[SP_WAY_IN_NODE]);
    of_way[SP_WAY_NODES] = of_way[SP_WAY_NODES] > 0.0 ? routed_s : 0.0;
    of_way[SP_WAY_IN_NODE] = of_way[SP_WAY_IN_NODE] > 0.0 ? routed_s : 0.0;
    for (int way = 0; way < SP_WAY_NODES; way++) {
        sum_s += of_way[way];
    }
    return sum_s + routed_s;
}

// Of what nothing hides the latencies and counts of rows come first, and each way gets its part of
// the rest.
static experts split_experts(const sp_i_traffic *t, const sp_walk_action *action,
                             const sp_action_cost *took)
{
    const sp_pack *pack = pack_of(t, action->place.action);
    const sp_expert_exchange exchange = expert_exchange_of(t, action);
    const sp_i_expert_paths *paths = expert_paths(t, action, 0);
    experts e = {.closed_ns = took->ep_ns - took->ep_wait_ns};
    double hidden_ns = (double)(took->ep_beside_ns + took->ep_hidden_ns);
    double tokens = (double)pack->computed / (double)(t->plan->layout.cp * pack->dp_count);
    double open_s = (double)e.closed_ns / SP_NS_PER_S;
    double of_way[SP_EXPERT_WAYS];
    double fixed_s = exchange.fixed_s;
    double spine_s = 0.0;
    e.hidden = hidden_ns > 0.0 ? hidden_ns / (hidden_ns + (double)e.closed_ns) : 0.0;
    for (int way = 0; way < SP_EXPERT_WAYS; way++) {
        e.bytes[way] = tokens * exchange.bytes[way];
        fixed_s += exchange.calls[way] * paths->latency_s[way];
        // A flow has it once by itself.
        spine_s = fmax(spine_s, fmax(0.0, exchange.calls[way] - 1.0) *
                                    paths->way[way].route.spine_latency_s);
    }
    double shown = 1.0 - e.hidden;
    double wires_s = shown * wire_s(paths, e.bytes, of_way);
    fixed_s = wires_s > 0.0 ? fmin(shown * fixed_s, fmax(0.0, open_s - wires_s)) : open_s;
    e.fixed_ns = e.closed_ns;
    for (int way = 0; way < SP_EXPERT_WAYS && wires_s > 0.0; way++) {
        const sp_i_path *path = &paths->way[way];
        double way_s = (open_s - fixed_s) * (shown * of_way[way] / wires_s);
        int64_t way_ns = sp_ns_from_s(way_s);
        way_ns = way_ns < e.fixed_ns ? way_ns : e.fixed_ns;
        e.alone_ns[way] = way_ns;
        e.fixed_ns -= way == SP_WAY_IN_NODE && e.alone_ns[SP_WAY_NODES] > 0 ? 0 : way_ns;
        double saved_s = path->is_used
                             ? way_s - sp_route_lone_s(&path->route, shown * e.bytes[way], 1, way_s)
                             : 0.0;
        e.alone_ns[way] -= sp_ns_from_s(saved_s);
    }
    e.fixed_ns += sp_ns_from_s(shown * spine_s);
    return e;
}

static int64_t experts_alone_ns(const experts *e)
{
    int64_t ns = e->fixed_ns;
    for (int way = 0; way < SP_WAY_NODES; way++) {
        ns += e->alone_ns[way];
    }
    return ns + sp_larger(e->alone_ns[SP_WAY_NODES], e->alone_ns[SP_WAY_IN_NODE]);
}

// A way on all ranks of the action side by side, in ns where nothing else is on its links.
static void add_way(sp_i_traffic *t, const in_action *a, sp_i_transfer *transfer, int way,
                    double share, int64_t ns, bool is_beside)
{
    for (int d = 0; share > 0.0 && ns > 0 && d < a->ranks.count; d++) {
        const sp_i_path *path = &expert_paths(t, &a->action, d)->way[way];
        if (path->is_used && a->experts.bytes[way] > 0.0) {
            sp_i_transfer_add(transfer, (sp_i_leg){.path = path,
                                                   .bytes = share * a->experts.bytes[way],
                                                   .rounds = 1,
                                                   .alone_ns = ns,
                                                   .is_beside = is_beside});
            is_beside = true;
        }
    }
}

static void count_experts(sp_i_traffic *t, const in_action *a)
{
    for (int i = 0; i < a->ranks.count * SP_EXPERT_WAYS; i++) {
        int way = i % SP_EXPERT_WAYS;
        sp_i_transfers_count(&t->transfers,
                             &expert_paths(t, &a->action, i / SP_EXPERT_WAYS)->way[way],
                             a->experts.bytes[way]);
    }
}

// Adds what a stage sends for experts: what is hidden all at once beside the work, the rest way by
// way.
static void add_experts(sp_i_traffic *t, const in_action *a, sp_i_transfer *transfer)
{
    const experts *e = &a->experts;
    if (a->stage == BESIDE_WORK) {
        for (int way = 0; way < SP_EXPERT_WAYS; way++) {
            add_way(t, a, transfer, way, e->hidden, a->hidden_ns, way > 0);
        }
        return;
    }
    count_experts(t, a);
    sp_i_transfer_add(transfer, (sp_i_leg){.alone_ns = e->fixed_ns});
    for (int way = 0; way < SP_EXPERT_WAYS; way++) {
        bool is_beside = way == SP_WAY_IN_NODE && e->alone_ns[SP_WAY_NODES] > 0;
        add_way(t, a, transfer, way, 1.0 - e->hidden, e->alone_ns[way], is_beside);
    }
}

// ---- the stages of an action ----

// An exchange of the stage is over.
static void note_end(const sp_i_traffic *t, in_action *a, size_t tag, int64_t end_ns)
{
    a->end_ns = sp_larger(a->end_ns, end_ns);
    if (tag < rank_count(t)) {
        a->cp_end_ns = sp_larger(a->cp_end_ns, end_ns);
    } else if (tag >= expert_tag(t, 0)) {
        a->experts_end_ns = sp_larger(a->experts_end_ns, end_ns);
    }
}

static sp_status start_transfer(sp_i_traffic *t, in_action *a, size_t tag, int64_t at_ns,
                                sp_error *err)
{
    bool is_over;
    sp_status status = sp_i_transfers_go_on(&t->transfers, tag, &at_ns, &is_over, err);
    if (is_over) {
        note_end(t, a, tag, at_ns);
    }
    a->under_way += !is_over;
    return status;
}

static sp_status start_stage(sp_i_traffic *t, int first, int64_t at_ns, sp_error *err)
{
    in_action *a = &t->in_action[first];
    int64_t stage_ns = a->stage_ns[a->stage];
    sp_status status = SP_OK;
    a->begun_ns = at_ns;
    a->end_ns = a->cp_end_ns = a->experts_end_ns = at_ns + stage_ns;
    if (a->stage == BESIDE_WORK && a->has_cp) {
        sp_i_transfer *transfer = &t->transfers.list[first];
        if (zones_flow(t, &a->action)) {
            add_zones(t, a, transfer);
        } else {
            add_exchange(t, a, transfer);
        }
        status = start_transfer(t, a, (size_t)first, at_ns, err);
    }
    if (status == SP_OK && a->has_experts &&
        (a->stage == WITH_EXPERTS || a->stage == BESIDE_WORK)) {
        size_t tag = expert_tag(t, first);
        add_experts(t, a, &t->transfers.list[tag]);
        status = start_transfer(t, a, tag, at_ns, err);
    }
    for (int d = 0;
         status == SP_OK && t->sharded != NULL && a->stage != WITH_EXPERTS && d < a->ranks.count;
         d++) {
        int rank = first + d * t->plan->layout.pp;
        size_t tag = rank_count(t) + (size_t)rank;
        add_sharded(t, rank, a->stage, stage_ns, &t->transfers.list[tag]);
        status = start_transfer(t, a, tag, at_ns, err);
    }
    return status;
}

static void end_action(sp_i_traffic *t, const in_action *a)
{
    for (int d = a->ranks.first; d < a->ranks.first + a->ranks.count; d++) {
        sp_walk_event event = {SP_WALK_ENDED, a->action.place, a->end_ns, a->dp_ns, a->ep_ns};
        event.place.dp = d;
        sp_i_reductions_made(t->reductions, &event.place, a->end_ns);
        add_event(t, event);
    }
}

// Stages from the one that is over on, up to one that has flows.
static sp_status go_on(sp_i_traffic *t, int first, sp_error *err)
{
    in_action *a = &t->in_action[first];
    while (a->under_way == 0) {
        int64_t other_ns = sp_larger(a->cp_end_ns, a->experts_end_ns);
        a->dp_ns += a->end_ns - other_ns;
        a->ep_ns += a->stage == WITH_EXPERTS
                        ? a->end_ns - a->begun_ns - (a->has_experts ? a->experts.closed_ns : 0)
                        : other_ns - a->cp_end_ns;
        a->stage++;
        if (a->stage == STAGES) {
            end_action(t, a);
            return SP_OK;
        }
        SP_TRY(start_stage(t, first, a->end_ns, err));
    }
    return SP_OK;
}

sp_status sp_i_traffic_begin(sp_i_traffic *t, const sp_walk_action *action, int64_t start_ns,
                             const sp_action_cost *took, bool *exchanges, sp_error *err)
{
    const sp_plan_place *place = &action->place;
    const sp_dp_ranks ranks = together(t, place);
    int first = rank_of(t, ranks.first, place->pp);
    in_action *a = &t->in_action[first];
    sp_cp_exchange whole;
    bool has_cp = group_of(t, action, &whole) != NULL || zones_flow(t, action);
    bool has_experts = experts_flow(t, action);
    *exchanges = has_cp || has_experts || zero_flows(t, action);
    int64_t took_ns = sp_action_cost_ns(took);
    if (!*exchanges) {
        sp_i_reductions_begun(t->reductions, place, start_ns, took_ns);
        sp_i_reductions_made(t->reductions, place, start_ns + took_ns);
        return SP_OK;
    }
    int64_t stage_ns[STAGES];
    // What a rank waits for others that gather its parameters is that of the closed times.
    set_sharded(t, action, took->dp_ns - took->dp_wait_ns, stage_ns);
    stage_ns[BEHIND_WORK] += took->dp_wait_ns;
    const experts of_experts =
        has_experts ? split_experts(t, action, took) : (experts){.closed_ns = 0};
    stage_ns[WITH_EXPERTS] = experts_alone_ns(&of_experts);
    int64_t dp_ns = stage_ns[BEFORE_WORK] + stage_ns[BESIDE_WORK] + stage_ns[BEHIND_WORK];
    int64_t hidden_ns = took_ns - took->cp_ns - took->dp_ns - of_experts.closed_ns;
    int64_t cp_ns = exposed_cp_ns(t, action, took->cp_ns);
    sp_i_reductions_begun(t->reductions, place, start_ns,
                          hidden_ns + cp_ns + stage_ns[WITH_EXPERTS] + dp_ns);
    hidden_ns += stage_ns[BESIDE_WORK];
    if (place->dp > ranks.first) { // the slowest hides what all exchange
        hidden_ns = sp_larger(hidden_ns, a->hidden_ns);
    }
    stage_ns[BESIDE_WORK] = hidden_ns + cp_ns;
    *a = (in_action){.action = *action,
                     .ranks = ranks,
                     .has_cp = has_cp,
                     .has_experts = has_experts,
                     .experts = of_experts,
                     .hidden_ns = hidden_ns,
                     .exposed_ns = took->cp_ns,
                     .dp_ns = dp_ns - took->dp_ns};
    memcpy(a->stage_ns, stage_ns, sizeof a->stage_ns);
    // On the last of the ranks that run the action together all are there, and begin.
    if (place->dp + 1 < ranks.first + ranks.count) {
        return SP_OK;
    }
    SP_TRY(start_stage(t, first, start_ns, err));
    return go_on(t, first, err);
}

// ---- time goes on ----

static sp_status end_transfer(sp_i_traffic *t, size_t tag, int64_t end_ns, sp_error *err)
{
    size_t ranks = rank_count(t);
    if (tag >= 2 * ranks && tag < expert_tag(t, 0)) {
        return sp_i_reductions_ended(t->reductions, (int)(tag - 2 * ranks), end_ns, err);
    }
    int first = tag < ranks               ? (int)tag
                : tag >= expert_tag(t, 0) ? (int)(tag - expert_tag(t, 0))
                                          : t->sharded[tag - ranks].first_rank;
    t->in_action[first].under_way--;
    note_end(t, &t->in_action[first], tag, end_ns);
    return go_on(t, first, err);
}

static sp_status end_flow(sp_i_traffic *t, const sp_flow_end *end, int64_t now_ns, sp_error *err)
{
    size_t tag = (size_t)end->tag;
    if (tag == t->transfers.count) {
        add_event(t, (sp_walk_event){SP_WALK_ARRIVED, t->sent[end->flow], now_ns, 0, 0});
        return SP_OK;
    }
    bool is_over;
    sp_status status = sp_i_transfers_ended(&t->transfers, tag, &now_ns, &is_over, err);
    return status == SP_OK && is_over ? end_transfer(t, tag, now_ns, err) : status;
}

sp_status sp_i_traffic_next(sp_i_traffic *t, const sp_walk_event **events, size_t *count,
                            sp_error *err)
{
    sp_flows *flows = t->transfers.flows;
    sp_status status = sp_i_reductions_begin(t->reductions, err);
    t->event_count -= t->events_told;
    if (t->event_count > 0) { // an action that began is known to end
        memmove(t->events, t->events + t->events_told, t->event_count * sizeof *t->events);
    }
    while (status == SP_OK && t->event_count == 0 && sp_flows_left(flows) > 0) {
        int64_t now_ns = sp_flows_advance(flows, INT64_MAX);
        int32_t ends;
        sp_flows_ended(flows, &ends);
        for (int32_t i = 0; status == SP_OK && i < ends; i++) {
            // A flow that begins meanwhile may move the list.
            const sp_flow_end end = sp_flows_ended(flows, &ends)[i];
            status = end_flow(t, &end, now_ns, err);
        }
    }
    *events = t->events;
    *count = t->events_told = t->event_count;
    return status;
}

// ---- beginning and end ----

static sp_status refuse(const sp_plan *plan, const sp_step_costs *costs, sp_error *err)
{
    if (sp_shares_are(&plan->layout)) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "network.detail: flows do not go with parallel.vocab_parallel");
    }
    if (sp_layout_shards_experts(&plan->layout)) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "network.detail: flows do not go with parallel.zero %d beside experts "
                            "over several ranks (parallel.ep, parallel.etp)",
                            plan->layout.zero);
    }
    if (!costs->has_bytes) {
        return sp_error_set(err, SP_ERR_CONTENT, "network.detail: uniform costs have no bytes");
    }
    return SP_OK;
}

sp_status sp_i_traffic_new(const sp_plan *plan, const sp_step_costs *costs,
                           const sp_network *network, sp_timeline *timeline, sp_i_traffic **traffic,
                           sp_error *err)
{
    sp_topology *topology = NULL;
    *traffic = NULL;
    if (network->detail == SP_NETWORK_CLOSED ||
        (network->detail == SP_NETWORK_AUTO &&
         (sp_shares_are(&plan->layout) || sp_layout_shards_experts(&plan->layout)))) {
        return SP_OK;
    }
    SP_TRY(refuse(plan, costs, err));
    SP_TRY(sp_topology_new(network->cluster, &network->rates, &topology, err));
    SP_ASSERT(sp_layout_ranks(&plan->layout) <=
              (int64_t)network->cluster->nodes * network->cluster->gpus_per_node);
    sp_i_traffic *t = sp_calloc(1, sizeof *t);
    size_t ranks = (size_t)plan->layout.dp * (size_t)plan->layout.pp;
    t->plan = plan;
    t->costs = costs;
    sp_status status =
        sp_i_transfers_init(&t->transfers, topology, 3 * ranks + (size_t)plan->layout.pp, err);
    sp_i_paths_init(&t->paths, plan, costs, topology, network->detail);
    t->reductions = sp_i_reductions_new(&t->paths, &t->transfers, timeline, 2 * ranks);
    t->in_action = sp_calloc(ranks, sizeof *t->in_action);
    t->sharded = t->paths.sharded != NULL ? sp_calloc(ranks, sizeof *t->sharded) : NULL;
    if (status == SP_OK &&
        (network->detail == SP_NETWORK_FLOWS || sp_i_paths_any_flow(&t->paths))) {
        *traffic = t;
    } else {
        sp_i_traffic_free(t);
    }
    return status;
}

void sp_i_traffic_free(sp_i_traffic *t)
{
    if (t == NULL) {
        return;
    }
    sp_i_reductions_free(t->reductions);
    sp_i_paths_fini(&t->paths);
    sp_i_transfers_fini(&t->transfers);
    sp_free(t->in_action);
    sp_free(t->sharded);
    sp_free(t->sent);
    sp_free(t->events);
    sp_free(t);
}

void sp_i_traffic_take(sp_i_traffic *t, sp_topology **topology, double **link_bytes)
{
    *topology = t->paths.topology;
    *link_bytes = t->transfers.link_bytes;
    t->paths.topology = NULL;
    t->transfers.link_bytes = NULL;
}
