// What context-parallel ranks exchange in an action, as flows. What computation does not hide of it
// comes last, at the rate of the links; what it hides goes at the pace of the computation and holds
// that up only where the links give less.
#include <math.h>

#include "sim/base/units.h"
#include "sim/engine/traffic_private.h"

static void add_groups(sp_i_traffic *t, bool backward);

void sp_i_exchanges_make(sp_i_traffic *t)
{
    const sp_layout *layout = &t->plan->layout;
    size_t ranks = (size_t)layout->dp * (size_t)layout->pp;
    t->groups = sp_arena_take(&t->work, ranks, sizeof(sp_i_group *));
    t->exchanges = sp_arena_take(&t->work, ranks, sizeof *t->exchanges);
    t->in_action = sp_arena_take(&t->work, ranks, sizeof *t->in_action);
    add_groups(t, false);
    add_groups(t, true);
}

static double exchange_s(const sp_cp_exchange *exchange)
{
    return exchange->s + exchange->heads_s;
}

static int head_ranks_of(const sp_cp_exchange *exchange)
{
    return exchange->head_ranks > 1 ? exchange->head_ranks : 1;
}

sp_i_group *sp_i_group_find(const sp_i_traffic *t, int dp_first, int dp_count, int pp,
                            const sp_cp_exchange *exchange)
{
    sp_i_group *group = t->groups[sp_i_rank_of(t, dp_first, pp)];
    while (group != NULL &&
           (group->dp_count != dp_count || group->head_ranks != head_ranks_of(exchange) ||
            group->ring_nics != exchange->ring_nics)) {
        group = group->next;
    }
    return group;
}

void sp_i_group_add(sp_i_traffic *t, int dp_first, int dp_count, int pp,
                    const sp_cp_exchange *exchange)
{
    sp_i_group **first = &t->groups[sp_i_rank_of(t, dp_first, pp)];
    if (sp_i_group_find(t, dp_first, dp_count, pp, exchange) != NULL) {
        return;
    }
    sp_i_group *group = sp_arena_take(&t->work, 1, sizeof *group);
    *group = (sp_i_group){.dp_count = dp_count,
                          .head_ranks = head_ranks_of(exchange),
                          .ring_nics = exchange->ring_nics,
                          .next = *first};
    *first = group;
    if (group->head_ranks > 1) {
        sp_i_use_way(t, &group->heads);
    }
    if (t->plan->layout.cp * dp_count > group->head_ranks) {
        sp_i_use_way(t, &group->keys);
    }
}

static bool is_joint(const sp_i_traffic *t, const sp_pack *pack)
{
    return t->plan->layout.cp * pack->dp_count > 1;
}

// Of a pack of several ranks; NULL: it has none, or zones have.
static const sp_cp_exchange *exchange_of(const sp_i_traffic *t, size_t k, bool backward)
{
    const sp_step_costs *costs = t->costs;
    const sp_cp_exchange *first = backward ? &costs->backward[k].cp : &costs->forward[k].cp;
    const sp_cp_exchange *exchange =
        backward && !(exchange_s(first) > 0.0) ? &costs->backward[k].cp_again : first;
    return exchange_s(exchange) > 0.0 ? exchange : NULL;
}

static void add_groups(sp_i_traffic *t, bool backward)
{
    const sp_packing *packing = t->plan->packing;
    const sp_pack_list *list = backward ? sp_packing_backward(packing) : &packing->forward;
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        const sp_cp_exchange *exchange = is_joint(t, pack) ? exchange_of(t, k, backward) : NULL;
        for (int p = 0; exchange != NULL && p < t->plan->layout.pp; p++) {
            sp_i_group_add(t, pack->dp_first, pack->dp_count, p, exchange);
        }
    }
}

// ---- in an action ----

static sp_cp_exchange sum(const sp_cp_exchange *a, const sp_cp_exchange *b)
{
    return (sp_cp_exchange){.s = a->s + b->s,
                            .bytes = a->bytes + b->bytes,
                            .heads_s = a->heads_s + b->heads_s,
                            .heads_bytes = a->heads_bytes + b->heads_bytes,
                            .head_ranks = a->head_ranks > 0 ? a->head_ranks : b->head_ranks,
                            .ring_nics = a->ring_nics > 0 ? a->ring_nics : b->ring_nics};
}

static sp_cp_exchange times(double n, const sp_cp_exchange *a)
{
    sp_cp_exchange of = *a;
    of.s *= n;
    of.bytes *= n;
    of.heads_s *= n;
    of.heads_bytes *= n;
    return of;
}

// Of all layers of the action's stage, unhidden and hidden.
static sp_cp_exchange whole_exchange(const sp_i_traffic *t, const sp_walk_action *action)
{
    const sp_step_costs *costs = t->costs;
    size_t k = (size_t)action->place.action.pack;
    double layers[2];
    bool forward;
    sp_i_actions_layers(t, action, layers, &forward);
    if (forward) {
        return times(layers[0], &costs->forward[k].cp);
    }
    sp_cp_exchange whole = {0};
    if (layers[0] > 0.0) {
        whole = times(layers[0], &costs->backward[k].cp);
    }
    if (layers[1] > 0.0) {
        const sp_cp_exchange again = times(layers[1], &costs->backward[k].cp_again);
        whole = sum(&whole, &again);
    }
    return whole;
}

// The phase that is under way.
static sp_status start(sp_i_traffic *t, int rank, int64_t at_ns, sp_error *err)
{
    const sp_i_exchange *exchange = &t->exchanges[rank];
    const sp_i_group *group = exchange->group;
    const sp_i_way *way =
        exchange->phase == SP_I_HEADS || !group->keys.is_used ? &group->heads : &group->keys;
    sp_flow flow = sp_route_flow_of(&way->route, at_ns, exchange->bytes[exchange->phase], 1,
                                    (double)exchange->ns[exchange->phase] / SP_NS_PER_S);
    flow.tag = sp_i_tag(SP_I_EXCHANGE_OF, rank);
    return sp_i_traffic_start(t, &flow, NULL, err);
}

// Lets an exchange along a way take what it does alone. Returns what nothing hides of it, of
// shown_ns.
static int64_t shorten(const sp_i_way *way, double bytes, double *s, int64_t shown_ns)
{
    double lone_s = way->is_used ? sp_route_lone_s(&way->route, bytes, 1, *s) : *s;
    int64_t saved_ns = sp_ns_from_s(*s - lone_s);
    *s = lone_s;
    return sp_larger(0, shown_ns - saved_ns);
}

// Of shown_ns the heads take all that they need, and all of it where they are alone: then what
// rounding leaves of them counts as hidden.
static void fill_phases(sp_i_exchange *exchange, sp_cp_exchange *whole, int64_t hidden_ns,
                        int64_t shown_ns)
{
    const sp_i_group *group = exchange->group;
    bool keys = whole->s > 0.0;
    int64_t heads_ns = keys ? sp_ns_from_s(whole->heads_s) : shown_ns;
    heads_ns = heads_ns < shown_ns ? heads_ns : shown_ns;
    int64_t keys_ns = shown_ns - heads_ns;
    keys_ns = shorten(&group->keys, whole->bytes, &whole->s, keys_ns);
    heads_ns = shorten(&group->heads, whole->heads_bytes, &whole->heads_s, heads_ns);
    double shown = sp_i_shown_share(keys_ns, whole->s);
    double heads_shown = sp_i_shown_share(heads_ns, whole->heads_s);
    exchange->ns[SP_I_HIDDEN] = hidden_ns;
    exchange->bytes[SP_I_HIDDEN] =
        keys ? (1.0 - shown) * whole->bytes : (1.0 - heads_shown) * whole->heads_bytes;
    exchange->ns[SP_I_SHOWN_KEYS] = keys_ns;
    exchange->bytes[SP_I_SHOWN_KEYS] = shown * whole->bytes;
    exchange->ns[SP_I_HEADS] = heads_ns;
    exchange->bytes[SP_I_HEADS] = (keys ? 1.0 : heads_shown) * whole->heads_bytes;
}

// Phases that take no time are no flows, but what they send counts.
static void carry(sp_i_traffic *t, const sp_i_group *group, const sp_cp_exchange *whole)
{
    if (group->keys.is_used) {
        sp_i_traffic_carry(t, &group->keys.route, whole->bytes, 1);
    }
    if (group->heads.is_used) {
        sp_i_traffic_carry(t, &group->heads.route, whole->heads_bytes, 1);
    }
}

// NULL: none of what an action exchanges is flows.
static const sp_i_group *group_of(const sp_i_traffic *t, const sp_walk_action *action,
                                  sp_cp_exchange *whole)
{
    const sp_pack *pack = sp_i_pack_of(t, action->place.action);
    *whole = is_joint(t, pack) ? whole_exchange(t, action) : (sp_cp_exchange){0};
    const sp_i_group *group =
        exchange_s(whole) > 0.0
            ? sp_i_group_find(t, pack->dp_first, pack->dp_count, action->place.pp, whole)
            : NULL;
    // All of it is flows where any part may meet others.
    return group != NULL && (group->keys.is_flow || group->heads.is_flow) ? group : NULL;
}

bool sp_i_exchanges_are(const sp_i_traffic *t, const sp_walk_action *action)
{
    sp_cp_exchange whole;
    return group_of(t, action, &whole) != NULL;
}

int64_t sp_i_exchanges_shown_ns(const sp_i_traffic *t, const sp_walk_action *action,
                                int64_t shown_ns)
{
    sp_cp_exchange whole;
    sp_i_exchange exchange = {.group = group_of(t, action, &whole)};
    if (exchange.group != NULL) {
        fill_phases(&exchange, &whole, 0, shown_ns);
        shown_ns = exchange.ns[SP_I_SHOWN_KEYS] + exchange.ns[SP_I_HEADS];
    }
    return shown_ns;
}

sp_status sp_i_exchanges_begin(sp_i_traffic *t, const sp_walk_action *action, int64_t at_ns,
                               int64_t hidden_ns, int64_t shown_ns, sp_error *err)
{
    sp_cp_exchange whole;
    const sp_pack *pack = sp_i_pack_of(t, action->place.action);
    int rank = sp_i_rank_of(t, pack->dp_first, action->place.pp);
    t->exchanges[rank] = (sp_i_exchange){.group = group_of(t, action, &whole)};
    carry(t, t->exchanges[rank].group, &whole);
    fill_phases(&t->exchanges[rank], &whole, hidden_ns, shown_ns);
    return start(t, rank, at_ns, err);
}

sp_status sp_i_exchanges_ended(sp_i_traffic *t, int rank, int64_t now_ns, bool *is_over,
                               sp_error *err)
{
    sp_i_exchange *exchange = &t->exchanges[rank];
    do {
        exchange->phase++;
    } while (exchange->phase < SP_I_EXCHANGED && exchange->ns[exchange->phase] == 0);
    *is_over = exchange->phase == SP_I_EXCHANGED;
    return *is_over ? SP_OK : start(t, rank, now_ns, err);
}
