// Max-min fair rates after a change. Only flows that the change reaches are sought: at first those
// that began. All others keep their rates, which the links have already given away. A filling of
// the rest then shows who else must be asked: on a full link whoever has more than its share, and
// whoever is held back by a link that has something left, or that lets another flow have more. The
// filling starts again with them, until every flow has a link that is full and on which none has
// more, which is what makes rates max-min fair (Bertsekas, Gallager: section 6.5.2).
//
// Links that hold nobody back are left out: most have few flows, or flows that others hold back.
// Those that are watched are looked at when rates are found, and the search goes on where flows
// have more than all of one.
//
// All decisions of a round are made on what stood before it, so that none depends on an order.
#include "sim/network/flows_private.h"

enum { CAREFUL_ROUNDS = 32 };

static void open_begun(sp_flows *flows);
static void open_reached(sp_flows *flows);
static void find_rates(sp_flows *flows);
static void fill(sp_flows *flows);
static bool open_more(sp_flows *flows, bool all);
static void settle(sp_flows *flows);
static bool open_overfull(sp_flows *flows);

void sp_i_flows_share(sp_flows *flows)
{
    if (flows->touched_count + flows->open_count == 0) {
        return;
    }
    open_begun(flows);
    open_reached(flows);
    do {
        find_rates(flows);
        settle(flows);
    } while (open_overfull(flows));
}

// A change that goes far is followed faster: all neighbours at once.
static void find_rates(sp_flows *flows)
{
    int round = 0;
    do {
        fill(flows);
        round++;
    } while (open_more(flows, round > CAREFUL_ROUNDS));
}

void sp_i_flows_touch(sp_flows *flows, int32_t index)
{
    sp_i_link *link = &flows->links[index];
    if (!link->is_touched) {
        link->is_touched = true;
        link->open_first = SP_I_NONE;
        link->open_times = 0;
        flows->touched[flows->touched_count++] = index;
    }
}

// ---- who is asked first ----

static void mark(sp_flows *flows, int32_t index)
{
    sp_i_flow *flow = &flows->flow[index];
    if (!flow->is_open) {
        flow->is_open = true;
        flows->open[flows->open_count++] = index;
    }
}

// A sought flow gives back what it has until all rates are found.
static void open_marked(sp_flows *flows, int32_t from)
{
    for (int32_t k = from; k < flows->open_count; k++) {
        const sp_i_flow *flow = &flows->flow[flows->open[k]];
        for (int32_t i = 0; i < flow->tight_hops; i++) {
            const int32_t index = flow->first_hop + i;
            sp_i_hop *hop = &flows->hops[index];
            sp_i_flows_touch(flows, hop->link);
            sp_i_link *link = &flows->links[hop->link];
            hop->open_next = link->open_first;
            link->open_first = index;
            link->open_times += hop->times;
            link->spare = sp_i_less(link->spare, -hop->times * flow->rate);
            link->held -= hop->link == flow->held_by ? hop->times : 0;
        }
    }
}

// Flows that began, and those that a link held back which is not tight any more.
static void open_begun(sp_flows *flows)
{
    int32_t left = 0;
    for (int32_t i = 0; i < flows->touched_count; i++) {
        const int32_t index = flows->touched[i];
        sp_i_link *link = &flows->links[index];
        if (link->state == SP_I_LINK_TIGHT) {
            flows->touched[left++] = index;
            continue;
        }
        link->is_touched = false;
        for (int32_t h = link->first; h != SP_I_NONE; h = flows->hops[h].next) {
            sp_i_flow *flow = &flows->flow[flows->hops[h].flow];
            if (flow->held_by == index) {
                flow->held_by = SP_I_NONE;
                mark(flows, flows->hops[h].flow);
            }
        }
    }
    flows->touched_count = left;
    open_marked(flows, 0);
}

static void open_above(sp_flows *flows, int32_t index, int64_t rate);

// What a link's flows would have, did it hold all sought ones back.
static int64_t guess(const sp_i_link *link)
{
    const int64_t hops = link->held + link->open_times;
    return (link->spare + link->held * link->level) / hops;
}

// Flows that will probably get another rate are asked at once: where one of a link changes, those
// change that the link holds back, and whoever has more than they will. This only saves rounds.
static void open_reached(sp_flows *flows)
{
    for (int32_t i = 0; i < flows->touched_count; i++) {
        const sp_i_link *link = &flows->links[flows->touched[i]];
        if (link->held + link->open_times > 0) {
            const int64_t share = guess(link);
            if (link->level > share || (link->held > 0 && link->level < share)) {
                open_above(flows, flows->touched[i], share < link->level ? share : link->level);
            }
        }
    }
}

static void open_above(sp_flows *flows, int32_t index, int64_t rate)
{
    const int32_t from = flows->open_count;
    flows->links[index].level = rate;
    for (int32_t h = flows->links[index].first; h != SP_I_NONE; h = flows->hops[h].next) {
        const sp_i_flow *flow = &flows->flow[flows->hops[h].flow];
        if (flow->rate > rate || flow->held_by == index) {
            mark(flows, flows->hops[h].flow);
        }
    }
    open_marked(flows, from);
}

// ---- progressive filling of what the open flows may have ----

static void heap_shares(sp_flows *flows);
static void sift_down(sp_flows *flows, int32_t at);
static int64_t share_of(const sp_i_link *link);
static int32_t take_lowest(sp_flows *flows, int64_t *level);
static void freeze_of(sp_flows *flows, const sp_i_share *full);
static void freeze(sp_flows *flows, sp_i_flow *flow, int64_t level);

// All links rise together; those that are full at the same level are taken at once, and the flows
// on them stay at that level, as do flows that can have no more.
static void fill(sp_flows *flows)
{
    flows->share_count = 0;
    flows->found_count = 0;
    heap_shares(flows);
    while (flows->found_count < flows->open_count) {
        int64_t level;
        int32_t full = take_lowest(flows, &level);
        for (int32_t i = 0; i < full; i++) {
            freeze_of(flows, &flows->filled[i]);
        }
    }
}

// A flow with a link in demand that cannot give it more than its most needs no entry of its own.
static void heap_shares(sp_flows *flows)
{
    for (int32_t i = 0; i < flows->touched_count; i++) {
        sp_i_link *link = &flows->links[flows->touched[i]];
        link->left = link->spare;
        link->unfilled = link->open_times;
        link->is_full = false;
        link->top = -1;
        if (link->open_times > 0) {
            flows->shares[flows->share_count++] =
                (sp_i_share){share_of(link), flows->touched[i], SP_I_NONE};
        }
    }
    for (int32_t i = 0; i < flows->open_count; i++) {
        sp_i_flow *flow = &flows->flow[flows->open[i]];
        flow->is_found = false;
        if (flow->least_hops == 0) {
            flows->shares[flows->share_count++] =
                (sp_i_share){flow->most, SP_I_NONE, flows->open[i]};
        }
    }
    for (int32_t i = flows->share_count / 2 - 1; i >= 0; i--) {
        sift_down(flows, i);
    }
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

// Takes the links that are full first, all with the same level, and the flows that can have no
// more, and returns how many. A share in the heap may be an old one; shares only grow, so the least
// is right once it is up to date.
static int32_t take_lowest(sp_flows *flows, int64_t *level)
{
    int32_t full = 0;
    while (flows->share_count > 0 && (full == 0 || flows->shares[0].rate == *level)) {
        sp_i_share *first = &flows->shares[0];
        sp_i_link *link = first->link != SP_I_NONE ? &flows->links[first->link] : NULL;
        bool is_filled = link != NULL ? link->unfilled == 0 : flows->flow[first->flow].is_found;
        int64_t share = link != NULL && !is_filled ? share_of(link) : first->rate;
        if (share > first->rate) {
            first->rate = share;
        } else {
            if (!is_filled) {
                *level = share;
                flows->filled[full++] = *first;
                if (link != NULL) {
                    link->is_full = true;
                }
            }
            *first = flows->shares[--flows->share_count];
        }
        sift_down(flows, 0);
    }
    return full;
}

static void freeze_of(sp_flows *flows, const sp_i_share *full)
{
    if (full->link == SP_I_NONE) {
        freeze(flows, &flows->flow[full->flow], full->rate);
        return;
    }
    int32_t hop = flows->links[full->link].open_first;
    for (; hop != SP_I_NONE; hop = flows->hops[hop].open_next) {
        freeze(flows, &flows->flow[flows->hops[hop].flow], full->rate);
    }
}

// Of several links that hold the flow back it is the first by number that counts.
static void freeze(sp_flows *flows, sp_i_flow *flow, int64_t level)
{
    if (flow->is_found) {
        return;
    }
    int32_t held_by = INT32_MAX;
    for (int32_t i = 0; i < flow->tight_hops; i++) {
        const sp_i_hop *hop = &flows->hops[flow->first_hop + i];
        sp_i_link *link = &flows->links[hop->link];
        link->left -= hop->times * level;
        link->unfilled -= hop->times;
        link->top = level;
        if (link->is_full && hop->link < held_by) {
            held_by = hop->link;
        }
    }
    flow->is_found = true;
    flow->next_rate = level;
    flow->next_held_by = level < flow->most ? held_by : SP_I_NONE;
    flows->found_count++;
    flows->counts.hops += flow->tight_hops;
}

// ---- who else must be asked ----

static void mark_of_link(sp_flows *flows, int32_t index, bool all);

static bool open_more(sp_flows *flows, bool all)
{
    // The links are looked at as they stand: only then what more flows have is given back.
    const int32_t before = flows->open_count;
    for (int32_t i = 0; i < flows->touched_count; i++) {
        mark_of_link(flows, flows->touched[i], all);
    }
    open_marked(flows, before);
    return flows->open_count > before;
}

static void mark_of_link(sp_flows *flows, int32_t index, bool all)
{
    sp_i_link *link = &flows->links[index];
    const bool some_have_more = link->is_full && link->level > link->top;
    const bool has_rest = !link->is_full && link->left >= link->held;
    const bool held_may_have_more = link->held > 0 && (has_rest || link->top > link->level);
    if (!(all || some_have_more || held_may_have_more)) {
        return;
    }
    for (int32_t h = link->first; h != SP_I_NONE; h = flows->hops[h].next) {
        const sp_i_flow *flow = &flows->flow[flows->hops[h].flow];
        if (all || (some_have_more && flow->rate > link->top) ||
            (held_may_have_more && flow->held_by == index)) {
            mark(flows, flows->hops[h].flow);
        }
    }
    link->level = some_have_more ? link->top : link->level;
}

// ---- the rates as found ----

static void settle_flow(sp_flows *flows, sp_i_flow *flow);

static void settle(sp_flows *flows)
{
    for (int32_t i = 0; i < flows->open_count; i++) {
        settle_flow(flows, &flows->flow[flows->open[i]]);
    }
    for (int32_t i = 0; i < flows->touched_count; i++) {
        const int32_t index = flows->touched[i];
        sp_i_link *link = &flows->links[index];
        link->is_touched = false;
        if (link->held == 0 && link->spare > flows->demand[index].capacity / 32 &&
            sp_i_flows_is_calm(link)) {
            sp_i_flows_loosen(flows, index);
        }
    }
    flows->open_count = 0;
    flows->touched_count = 0;
}

static void settle_flow(sp_flows *flows, sp_i_flow *flow)
{
    const int64_t change = flow->next_rate - flow->rate;
    const sp_i_hop *hop = &flows->hops[flow->first_hop];
    const sp_i_hop *tight_end = hop + flow->tight_hops;
    const sp_i_hop *watched_end = hop + flow->watched_hops;
    flow->is_open = false;
    flow->held_by = flow->next_held_by;
    for (; hop < tight_end; hop++) {
        sp_i_link *link = &flows->links[hop->link];
        link->spare -= hop->times * flow->next_rate;
        link->held += hop->link == flow->held_by ? hop->times : 0;
        link->level = flow->next_rate > link->level ? flow->next_rate : link->level;
    }
    if (change == 0 && !flow->is_new) {
        return;
    }
    for (; hop < watched_end; hop++) {
        sp_i_link *link = &flows->links[hop->link];
        link->spare = sp_i_less(link->spare, hop->times * change);
        if (link->spare < 0 && !link->is_overfull) {
            link->is_overfull = true;
            flows->overfull[flows->overfull_count++] = hop->link;
        }
    }
    sp_i_flows_set_rate(flows, flow, flow->next_rate);
}

// Watched links whose flows have more than all of them now become tight, and flows with more than
// an even part are asked again.
static bool open_overfull(sp_flows *flows)
{
    for (int32_t i = 0; i < flows->overfull_count; i++) {
        const int32_t index = flows->overfull[i];
        sp_i_link *link = &flows->links[index];
        int64_t times = 0;
        link->is_overfull = false;
        for (int32_t h = link->first; h != SP_I_NONE; h = flows->hops[h].next) {
            times += flows->hops[h].times;
        }
        const int64_t part = flows->demand[index].capacity / times;
        for (int32_t h = link->first; h != SP_I_NONE; h = flows->hops[h].next) {
            if (flows->flow[flows->hops[h].flow].rate > part) {
                mark(flows, flows->hops[h].flow);
            }
        }
        sp_i_flows_tighten(flows, index);
    }
    flows->overfull_count = 0;
    open_marked(flows, 0);
    return flows->open_count > 0;
}
