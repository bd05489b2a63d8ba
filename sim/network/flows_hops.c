// The flows of a link, as hops of their paths. Those over tight links come first, then those over
// other watched ones.
#include "sim/base/alloc.h"
#include "sim/network/flows_private.h"

enum { MOST_HOPS = 1 << 28 };

// ---- blocks of hops ----

// One that an ended flow of as many hops left, or a new one.
sp_status sp_i_flows_take_hops(sp_flows *flows, int32_t length, int32_t *first, sp_error *err)
{
    size_t known = flows->lengths;
    sp_reserve((void **)&flows->unused_hops, &flows->lengths, (size_t)length + 1,
               sizeof *flows->unused_hops);
    for (size_t i = known; i < flows->lengths; i++) {
        flows->unused_hops[i] = SP_I_NONE;
    }
    *first = flows->unused_hops[length];
    if (*first != SP_I_NONE) {
        flows->unused_hops[length] = flows->hops[*first].next;
        return SP_OK;
    }
    if (length > MOST_HOPS - flows->hops_used) {
        return sp_error_set(err, SP_ERR_LIMIT, "more than %d hops of flows at a time", MOST_HOPS);
    }
    sp_reserve((void **)&flows->hops, &flows->hop_capacity, (size_t)(flows->hops_used + length),
               sizeof *flows->hops);
    *first = flows->hops_used;
    flows->hops_used += length;
    return SP_OK;
}

void sp_i_flows_give_back_hops(sp_flows *flows, const sp_i_flow *flow)
{
    flows->hops[flow->first_hop].next = flows->unused_hops[flow->hops];
    flows->unused_hops[flow->hops] = flow->first_hop;
}

// ---- which links matter ----

static sp_i_flow *flow_of(const sp_flows *flows, int32_t hop)
{
    return &flows->flow[flows->hops[hop].flow];
}

// Hops of one flow, each on a link of its own (sp_flow).
static void swap_hops(sp_flows *flows, int32_t a, int32_t b)
{
    if (a == b) {
        return;
    }
    sp_i_hop moved = flows->hops[a];
    flows->hops[a] = flows->hops[b];
    flows->hops[b] = moved;
    for (int32_t i = 0; i < 2; i++) {
        const int32_t index = i == 0 ? a : b;
        const sp_i_hop *hop = &flows->hops[index];
        if (hop->previous != SP_I_NONE) {
            flows->hops[hop->previous].next = index;
        } else {
            flows->links[hop->link].first = index;
        }
        if (hop->next != SP_I_NONE) {
            flows->hops[hop->next].previous = index;
        }
    }
}

// Does the link alone keep the flow from more than its most?
static bool is_least(const sp_flows *flows, const sp_i_flow *flow, int32_t hop)
{
    return sp_i_flows_alone_on(flows, flows->hops[hop].link, flows->hops[hop].times) == flow->most;
}

static void watch(sp_flows *flows, int32_t index)
{
    sp_i_link *link = &flows->links[index];
    link->state = SP_I_LINK_WATCHED;
    link->calm = 0;
    link->spare = flows->demand[index].capacity;
    for (int32_t h = link->first, next; h != SP_I_NONE; h = next) {
        sp_i_flow *flow = flow_of(flows, h);
        next = flows->hops[h].next;
        link->spare = sp_i_less(link->spare, flows->hops[h].times * flow->rate);
        swap_hops(flows, h, flow->first_hop + flow->watched_hops++);
    }
}

static void tighten_hop(sp_flows *flows, int32_t index)
{
    sp_i_flow *flow = flow_of(flows, index);
    flow->least_hops += is_least(flows, flow, index);
    swap_hops(flows, index, flow->first_hop + flow->tight_hops++);
}

// Flows that have their most may have it of this link, which holds them back from now on.
void sp_i_flows_tighten(sp_flows *flows, int32_t index)
{
    sp_i_link *link = &flows->links[index];
    link->state = SP_I_LINK_TIGHT;
    link->calm = 0;
    link->level = 0;
    link->held = 0;
    for (int32_t h = link->first; h != SP_I_NONE; h = flows->hops[h].next) {
        const sp_i_flow *flow = flow_of(flows, h);
        link->level = !flow->is_new && flow->rate > link->level ? flow->rate : link->level;
    }
    for (int32_t h = link->first, next; h != SP_I_NONE; h = next) {
        sp_i_flow *flow = flow_of(flows, h);
        const int32_t times = flows->hops[h].times;
        next = flows->hops[h].next;
        if (flow->held_by == SP_I_NONE && flow->rate == link->level && link->spare < times) {
            flow->held_by = index;
        }
        link->held += flow->held_by == index ? times : 0;
        tighten_hop(flows, h);
    }
}

void sp_i_flows_loosen(sp_flows *flows, int32_t index)
{
    sp_i_link *link = &flows->links[index];
    link->state = SP_I_LINK_WATCHED;
    link->calm = 0;
    for (int32_t h = link->first, next; h != SP_I_NONE; h = next) {
        sp_i_flow *flow = flow_of(flows, h);
        next = flows->hops[h].next;
        flow->least_hops -= is_least(flows, flow, h);
        swap_hops(flows, h, flow->first_hop + --flow->tight_hops);
    }
}

static void set_free(sp_flows *flows, int32_t index)
{
    sp_i_link *link = &flows->links[index];
    if (link->state == SP_I_LINK_TIGHT) {
        sp_i_flows_loosen(flows, index);
    }
    link->state = SP_I_LINK_FREE;
    for (int32_t h = link->first, next; h != SP_I_NONE; h = next) {
        sp_i_flow *flow = flow_of(flows, h);
        next = flows->hops[h].next;
        swap_hops(flows, h, flow->first_hop + --flow->watched_hops);
    }
}

// ---- flows come and go ----

static void enter_link(sp_flows *flows, sp_i_flow *flow, int32_t index);
static void leave_link(sp_flows *flows, const sp_i_flow *flow, int32_t index);

void sp_i_flows_enter_links(sp_flows *flows, sp_i_flow *flow)
{
    flow->tight_hops = flow->watched_hops = flow->least_hops = 0;
    for (int32_t i = 0; i < flow->hops; i++) {
        enter_link(flows, flow, flow->first_hop + i);
    }
}

// What a flow could have of a link, above 0.
static int64_t wanted_by(const sp_i_flow *flow, const sp_i_hop *hop)
{
    return hop->times * flow->most / SP_I_WANTED_UNIT + 1;
}

static void enter_link(sp_flows *flows, sp_i_flow *flow, int32_t index)
{
    sp_i_hop *hop = &flows->hops[index];
    const int32_t at = hop->link;
    const int32_t times = hop->times;
    sp_i_link *link = &flows->links[hop->link];
    sp_i_demand *demand = &flows->demand[hop->link];
    hop->previous = SP_I_NONE;
    hop->next = link->first;
    if (hop->next != SP_I_NONE) {
        flows->hops[hop->next].previous = index;
    }
    link->first = index;
    link->hops++;
    demand->wanted += wanted_by(flow, hop);
    if (link->state != SP_I_LINK_FREE) {
        link->spare = sp_i_less(link->spare, times * flow->rate);
        swap_hops(flows, index, flow->first_hop + flow->watched_hops++);
    } else if (link->hops > 1 && demand->wanted > demand->capacity / SP_I_WANTED_UNIT) {
        watch(flows, at);
    }
    if (link->state == SP_I_LINK_TIGHT) {
        tighten_hop(flows, flow->first_hop + flow->watched_hops - 1);
    } else if (link->state == SP_I_LINK_WATCHED && link->spare < 0) {
        sp_i_flows_tighten(flows, at);
    }
}

void sp_i_flows_leave_links(sp_flows *flows, sp_i_flow *flow)
{
    for (int32_t i = flow->hops - 1; i >= 0; i--) {
        flow->tight_hops = i < flow->tight_hops ? i : flow->tight_hops;
        flow->watched_hops = i < flow->watched_hops ? i : flow->watched_hops;
        leave_link(flows, flow, flow->first_hop + i);
    }
}

// A link becomes free with some room left, so that it does not change event by event.
static void leave_link(sp_flows *flows, const sp_i_flow *flow, int32_t index)
{
    const sp_i_hop *hop = &flows->hops[index];
    sp_i_link *link = &flows->links[hop->link];
    sp_i_demand *demand = &flows->demand[hop->link];
    if (hop->previous != SP_I_NONE) {
        flows->hops[hop->previous].next = hop->next;
    } else {
        link->first = hop->next;
    }
    if (hop->next != SP_I_NONE) {
        flows->hops[hop->next].previous = hop->previous;
    }
    link->hops--;
    demand->wanted -= wanted_by(flow, hop);
    if (link->state == SP_I_LINK_FREE) {
        return;
    }
    link->spare = sp_i_less(link->spare, -hop->times * flow->rate);
    if (link->state == SP_I_LINK_TIGHT) {
        sp_i_flows_touch(flows, hop->link);
        link->held -= hop->link == flow->held_by ? hop->times : 0;
    }
    bool is_slack = demand->wanted < demand->capacity / SP_I_WANTED_UNIT / 4 * 3;
    if (link->hops < 2 || (is_slack && sp_i_flows_is_calm(link))) {
        set_free(flows, hop->link);
    }
}
