#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/engine/traffic_private.h"

static sp_status refuse(const sp_plan *plan, const sp_step_costs *costs, sp_error *err);

sp_status sp_i_traffic_new(const sp_plan *plan, const sp_step_costs *costs,
                           const sp_network *network, sp_timeline *timeline, sp_i_traffic **traffic,
                           sp_error *err)
{
    *traffic = NULL;
    if (network->detail == SP_NETWORK_CLOSED ||
        (network->detail == SP_NETWORK_AUTO && sp_shares_are(&plan->layout))) {
        return SP_OK;
    }
    sp_status status = refuse(plan, costs, err);
    if (status != SP_OK) {
        return status;
    }
    sp_i_traffic *t = sp_calloc(1, sizeof *t);
    SP_ASSERT(sp_layout_ranks(&plan->layout) <=
              (int64_t)network->cluster->nodes * network->cluster->gpus_per_node);
    t->plan = plan;
    t->costs = costs;
    t->timeline = timeline;
    status = sp_topology_new(network->cluster, &network->rates, &t->topology, err);
    if (status == SP_OK) {
        status = sp_flows_new(sp_topology_bytes_per_s(t->topology), sp_topology_links(t->topology),
                              &t->flows, err);
    }
    if (status == SP_OK) {
        t->carried = sp_calloc((size_t)sp_topology_links(t->topology), sizeof *t->carried);
        sp_i_ways_make(t, network);
    }
    if (status == SP_OK && (network->detail == SP_NETWORK_FLOWS || sp_i_ways_any_flow(t))) {
        *traffic = t;
    } else {
        sp_i_traffic_free(t);
    }
    return status;
}

static sp_status refuse(const sp_plan *plan, const sp_step_costs *costs, sp_error *err)
{
    if (sp_shares_are(&plan->layout)) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "network.detail: flows do not go with parallel.vocab_parallel");
    }
    if (!costs->has_bytes) {
        return sp_error_set(err, SP_ERR_CONTENT, "network.detail: uniform costs have no bytes");
    }
    return SP_OK;
}

void sp_i_traffic_free(sp_i_traffic *t)
{
    if (t == NULL) {
        return;
    }
    sp_i_ways_free(t);
    sp_flows_free(t->flows);
    sp_topology_free(t->topology);
    sp_free(t->reductions);
    sp_free(t->chunks);
    sp_free(t->to_begin);
    sp_arena_free(&t->work);
    sp_free(t->places);
    sp_free(t->events);
    sp_free(t->carried);
    sp_free(t);
}

void sp_i_traffic_take(sp_i_traffic *t, sp_topology **topology, double **link_bytes)
{
    *topology = t->topology;
    *link_bytes = t->carried;
    t->topology = NULL;
    t->carried = NULL;
}

void sp_i_traffic_carry(sp_i_traffic *t, const sp_route *route, double bytes, int rounds)
{
    const sp_flow sent = sp_route_flow(route, 0, bytes, rounds);
    for (int32_t h = 0; h < sent.hops; h++) {
        t->carried[sent.path[h].link] += sent.bytes * sent.path[h].times;
    }
}

void sp_i_traffic_carry_passage(sp_i_traffic *t, const sp_passage *passage, double bytes)
{
    for (int i = 0; i < passage->count; i++) {
        const sp_leg *leg = &passage->legs[i];
        sp_i_traffic_carry(t, &leg->route, leg->share * bytes, leg->rounds);
    }
}

sp_status sp_i_traffic_start(sp_i_traffic *t, const sp_flow *flow, int32_t *id, sp_error *err)
{
    return sp_flows_start(t->flows, flow, id, err);
}

// ---- sends of pipeline ranks ----

sp_status sp_i_traffic_send(sp_i_traffic *t, const sp_plan_place *from, int to, int64_t at_ns,
                            int64_t *there_ns, sp_error *err)
{
    const sp_layout *layout = &t->plan->layout;
    const sp_i_way *way = sp_i_way_of(t, from->dp, from->pp, to);
    bool backward = sp_action_is_backward(from->action);
    size_t pack = (size_t)from->action.pack;
    int64_t alone_ns = sp_step_costs_p2p_ns(t->costs, backward, pack, from->pp, to, layout->pp);
    if (!way->is_flow) {
        *there_ns = at_ns + alone_ns;
        return SP_OK;
    }
    double bytes = (backward ? t->costs->backward : t->costs->forward)[pack].p2p_bytes;
    double all_bytes = bytes * layout->tp * layout->cp;
    double lone_s = sp_route_lone_s(&way->route, all_bytes, 1, (double)alone_ns / SP_NS_PER_S);
    sp_flow flow = sp_route_flow_of(&way->route, at_ns, all_bytes, 1, lone_s);
    int32_t id;
    sp_i_traffic_carry(t, &way->route, all_bytes, 1);
    sp_status status = sp_i_traffic_start(t, &flow, &id, err);
    if (status == SP_OK) {
        sp_reserve((void **)&t->places, &t->place_capacity, (size_t)id + 1, sizeof *t->places);
        t->places[id] = *from;
    }
    return status;
}

// ---- time goes on ----

sp_status sp_i_traffic_begin(sp_i_traffic *t, const sp_walk_action *action, int64_t start_ns,
                             const sp_action_cost *took, bool *exchanges, sp_error *err)
{
    sp_status status = sp_i_actions_begin(t, action, start_ns, took, exchanges, err);
    if (!*exchanges) {
        sp_i_reductions_made(t, &action->place, start_ns + sp_action_cost_ns(took));
    }
    return status;
}

void sp_i_traffic_event(sp_i_traffic *t, sp_walk_event event)
{
    sp_reserve((void **)&t->events, &t->event_capacity, t->event_count + 1, sizeof *t->events);
    t->events[t->event_count++] = event;
}

static sp_status note_ends(sp_i_traffic *t, int64_t now_ns, sp_error *err);

sp_status sp_i_traffic_next(sp_i_traffic *t, const sp_walk_event **events, size_t *count,
                            sp_error *err)
{
    sp_status status = sp_i_reductions_begin(t, err);
    t->event_count -= t->events_told;
    if (t->event_count > 0) { // an action that began is known to end
        memmove(t->events, t->events + t->events_told, t->event_count * sizeof *t->events);
    }
    while (status == SP_OK && t->event_count == 0 && sp_flows_left(t->flows) > 0) {
        status = note_ends(t, sp_flows_advance(t->flows, INT64_MAX), err);
    }
    *events = t->events;
    *count = t->events_told = t->event_count;
    return status;
}

static sp_status note_end(sp_i_traffic *t, const sp_flow_end *end, int64_t now_ns, sp_error *err)
{
    int index = (int)(end->tag / SP_I_FLOW_KINDS);
    switch ((sp_i_flow_of)(end->tag % SP_I_FLOW_KINDS)) {
    case SP_I_REDUCTION_OF:
        return sp_i_reductions_ended(t, index, now_ns, err);
    case SP_I_EXCHANGE_OF:
    case SP_I_ZONES_OF:
        return sp_i_actions_exchanged(t, index, end->tag % SP_I_FLOW_KINDS == SP_I_ZONES_OF, now_ns,
                                      err);
    case SP_I_SHARDED_OF:
        return sp_i_actions_sharded(t, index, now_ns, err);
    case SP_I_SEND:
    case SP_I_FLOW_KINDS:
        break;
    }
    const sp_walk_event arrived = {SP_WALK_ARRIVED, t->places[end->flow], now_ns, 0};
    sp_i_traffic_event(t, arrived);
    return SP_OK;
}

static sp_status note_ends(sp_i_traffic *t, int64_t now_ns, sp_error *err)
{
    int32_t count;
    sp_status status = SP_OK;
    sp_flows_ended(t->flows, &count);
    for (int32_t i = 0; status == SP_OK && i < count; i++) {
        // A flow that begins meanwhile may move the list.
        const sp_flow_end end = sp_flows_ended(t->flows, &count)[i];
        status = note_end(t, &end, now_ns, err);
    }
    return status;
}
