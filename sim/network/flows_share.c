// Max-min fair rates after a change. Only flows that the change reaches are sought: at first those
// that began. All others keep their rates, which the links have already given away. A filling of
// the rest then shows who else must be asked: on a full link whoever has more than its share, and
// whoever is held back by a link that has something left, or that lets another flow have more. The
// filling starts again with them, until every flow has a link that is full and on which none has
// more, which is what makes rates max-min fair (Bertsekas, Gallager: section 6.5.2).
//
// All decisions of a round are made on what stood before it, so that none depends on an order.
#include "sim/network/flows_private.h"

enum { CAREFUL_ROUNDS = 32 };

static void fill(sp_flows *flows);
static bool open_more(sp_flows *flows, bool all);
static void settle(sp_flows *flows);

void sp_i_flows_share(sp_flows *flows)
{
    if (flows->touched_count == 0) {
        return;
    }
    // A change that goes far is followed faster: all neighbours at once.
    int round = 0;
    do {
        fill(flows);
        round++;
    } while (open_more(flows, round > CAREFUL_ROUNDS));
    settle(flows);
}

void sp_i_flows_touch(sp_flows *flows, int32_t index)
{
    sp_i_link *link = &flows->links[index];
    if (!link->is_touched) {
        link->is_touched = true;
        link->open_hops = 0;
        link->open_times = 0;
        link->open_held = 0;
        link->open_spare = link->spare;
        flows->touched[flows->touched_count++] = index;
    }
}

void sp_i_flows_open(sp_flows *flows, int32_t index)
{
    sp_i_flow *flow = &flows->flow[index];
    flow->is_open = true;
    flows->open[flows->open_count++] = index;
    for (int32_t i = 0; i < flow->hops; i++) {
        const sp_i_hop *hop = &flows->hops[flow->first_hop + i];
        sp_i_flows_touch(flows, hop->link);
        sp_i_link *link = &flows->links[hop->link];
        link->open_hops++;
        link->open_times += hop->times;
        link->open_spare += hop->times * flow->rate;
        link->open_held += hop->link == flow->held_by ? hop->times : 0;
    }
}

// ---- progressive filling of what the open flows may have ----

static void heap_links(sp_flows *flows);
static sp_i_share least_alone(const sp_flows *flows, const sp_i_flow *flow);
static void sift_down(sp_flows *flows, int32_t at);
static int64_t share_of(const sp_i_link *link);
static int32_t take_lowest(sp_flows *flows, int64_t *level);
static void freeze_flows_of(sp_flows *flows, const sp_i_link *link, int64_t level);
static void freeze(sp_flows *flows, sp_i_flow *flow, int64_t level);

// All links rise together; those that are full at the same level are taken at once, and the flows
// on them stay at that level.
static void fill(sp_flows *flows)
{
    flows->share_count = 0;
    for (int32_t i = 0; i < flows->touched_count; i++) {
        sp_i_link *link = &flows->links[flows->touched[i]];
        link->left = link->open_spare;
        link->unfilled = link->open_times;
        link->is_full = false;
        link->top = -1;
        if (link->open_hops > 1) {
            flows->shares[flows->share_count++] = (sp_i_share){share_of(link), flows->touched[i]};
        }
    }
    heap_links(flows);
    int32_t full;
    int64_t level;
    while ((full = take_lowest(flows, &level)) > 0) {
        for (int32_t i = 0; i < full; i++) {
            freeze_flows_of(flows, &flows->links[flows->filled[i]], level);
        }
    }
}

// Of the links that only one sought flow is on, the one that is full first stands for all: they
// wait for nothing else. The ring of a large group has hundreds.
static void heap_links(sp_flows *flows)
{
    for (int32_t i = 0; i < flows->open_count; i++) {
        sp_i_flow *flow = &flows->flow[flows->open[i]];
        sp_i_share least = least_alone(flows, flow);
        flow->is_found = false;
        if (least.link != SP_I_NONE) {
            flows->shares[flows->share_count++] = least;
        }
    }
    for (int32_t i = flows->share_count / 2 - 1; i >= 0; i--) {
        sift_down(flows, i);
    }
}

static sp_i_share least_alone(const sp_flows *flows, const sp_i_flow *flow)
{
    sp_i_share least = {INT64_MAX, SP_I_NONE};
    for (int32_t i = 0; i < flow->hops; i++) {
        int32_t index = flows->hops[flow->first_hop + i].link;
        const sp_i_link *link = &flows->links[index];
        if (link->open_hops == 1 && share_of(link) < least.rate) {
            least = (sp_i_share){share_of(link), index};
        }
    }
    return least;
}

// What each hop may have. Few hops are the rule, and a division is slow.
static int64_t share_of(const sp_i_link *link)
{
    return link->unfilled == 1 ? link->left : link->left / link->unfilled;
}

static void sift_down(sp_flows *flows, int32_t at)
{
    sp_i_share *heap = flows->shares;
    sp_i_share moved = heap[at];
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= flows->share_count) {
            break;
        }
        if (child + 1 < flows->share_count && heap[child + 1].rate < heap[child].rate) {
            child++;
        }
        if (heap[child].rate >= moved.rate) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

// Takes the links that are full first, all with the same level, and returns how many. A share in
// the heap may be an old one; shares only grow, so the least is right once it is up to date.
static int32_t take_lowest(sp_flows *flows, int64_t *level)
{
    int32_t full = 0;
    while (flows->share_count > 0 && (full == 0 || flows->shares[0].rate == *level)) {
        sp_i_share *first = &flows->shares[0];
        sp_i_link *link = &flows->links[first->link];
        int64_t share = link->unfilled > 0 ? share_of(link) : first->rate;
        if (share > first->rate) {
            first->rate = share;
        } else {
            if (link->unfilled > 0) {
                *level = share;
                link->is_full = true;
                flows->filled[full++] = first->link;
            }
            *first = flows->shares[--flows->share_count];
        }
        if (flows->share_count > 0) {
            sift_down(flows, 0);
        }
    }
    return full;
}

static void freeze_flows_of(sp_flows *flows, const sp_i_link *link, int64_t level)
{
    for (int32_t h = link->first; h != SP_I_NONE; h = flows->hops[h].next) {
        sp_i_flow *flow = &flows->flow[flows->hops[h].flow];
        if (flow->is_open && !flow->is_found) {
            freeze(flows, flow, level);
        }
    }
}

// Of several links that hold the flow back it is the first by number that counts.
static void freeze(sp_flows *flows, sp_i_flow *flow, int64_t level)
{
    flow->is_found = true;
    flow->next_rate = level;
    flow->next_held_by = INT32_MAX;
    for (int32_t i = 0; i < flow->hops; i++) {
        const sp_i_hop *hop = &flows->hops[flow->first_hop + i];
        sp_i_link *link = &flows->links[hop->link];
        link->left -= hop->times * level;
        link->unfilled -= hop->times;
        link->top = level;
        if (link->open_hops == 1 && link->left < hop->times) {
            link->is_full = true;
        }
        if (link->is_full && hop->link < flow->next_held_by) {
            flow->next_held_by = hop->link;
        }
    }
    flows->counts.hops += flow->hops;
}

// ---- who else must be asked ----

static void open_of_link(sp_flows *flows, int32_t index, bool all);

static bool open_more(sp_flows *flows, bool all)
{
    int32_t before = flows->open_count;
    int32_t links = flows->touched_count;
    for (int32_t i = 0; i < links; i++) {
        open_of_link(flows, flows->touched[i], all);
    }
    // The links were looked at as they stood: only now what the new flows have is given back.
    int32_t count = flows->open_count;
    flows->open_count = before;
    for (int32_t i = before; i < count; i++) {
        sp_i_flows_open(flows, flows->open[i]);
    }
    return count > before;
}

static void open_of_link(sp_flows *flows, int32_t index, bool all)
{
    const sp_i_link *link = &flows->links[index];
    int64_t held = link->held - link->open_held; // of flows that are not sought
    bool has_rest = held > 0 && !link->is_full && link->left >= held;
    bool others_rose = held > 0 && link->top >= 0;
    if (link->hops == link->open_hops || !(all || link->is_full || has_rest || others_rose)) {
        return;
    }
    for (int32_t h = link->first; h != SP_I_NONE; h = flows->hops[h].next) {
        sp_i_flow *flow = &flows->flow[flows->hops[h].flow];
        bool has_more = link->is_full && flow->rate > link->top;
        bool may_have_more = flow->held_by == index && (has_rest || link->top > flow->rate);
        if (!flow->is_open && (all || has_more || may_have_more)) {
            flow->is_open = true;
            flows->open[flows->open_count++] = flows->hops[h].flow;
        }
    }
}

// ---- the rates as found ----

static void settle_flow(sp_flows *flows, sp_i_flow *flow);

static void settle(sp_flows *flows)
{
    for (int32_t i = 0; i < flows->open_count; i++) {
        settle_flow(flows, &flows->flow[flows->open[i]]);
    }
    for (int32_t i = 0; i < flows->touched_count; i++) {
        flows->links[flows->touched[i]].is_touched = false;
    }
    flows->open_count = 0;
    flows->touched_count = 0;
}

static void settle_flow(sp_flows *flows, sp_i_flow *flow)
{
    int64_t change = flow->next_rate - flow->rate;
    flow->is_open = false;
    if (change == 0 && flow->held_by == flow->next_held_by) {
        return;
    }
    for (int32_t i = 0; i < flow->hops; i++) {
        const sp_i_hop *hop = &flows->hops[flow->first_hop + i];
        sp_i_link *link = &flows->links[hop->link];
        link->spare -= hop->times * change;
        link->held -= hop->link == flow->held_by ? hop->times : 0;
        link->held += hop->link == flow->next_held_by ? hop->times : 0;
    }
    if (change != 0) {
        sp_i_flows_set_rate(flows, flow, flow->next_rate, flow->next_held_by);
    }
    flow->held_by = flow->next_held_by;
}
