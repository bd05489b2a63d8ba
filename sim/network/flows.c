#include "sim/network/flows.h"

#include <math.h>
#include <stddef.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"

enum { NONE = -1 };

// A flow on one of its links; the flows of a link are a list.
typedef struct hop_record {
    int32_t flow, link, times;
    int32_t next, previous;
    int32_t open_next; // while rates are being found: the next of the sought flows
} hop_record;

typedef enum flow_state { FLOW_UNUSED, FLOW_WAITS, FLOW_RUNS } flow_state;

typedef struct flow_record {
    int64_t rate;    // in units
    int64_t most;    // what the least of its links could give it alone, and its ends can handle
    int32_t held_by; // link whose share the rate is; NONE: its most, or it has none yet
    // First those over tight links, then the others that are watched (link_record). No search for
    // rates visits but tight ones.
    int32_t first_hop, tight_hops, watched_hops, hops;
    int32_t least_hops; // tight ones whose link alone keeps the flow from more than its most
    int32_t heap_at;
    flow_state state;
    bool is_new;  // no rate was found yet: its most stands for it
    bool is_late; // it ends after its event, which was for a higher rate
    // While rates are being found: one of those sought, and what was found.
    bool is_open, is_found;
    int32_t next_held_by;
    int64_t next_rate;
    double most_bytes_per_s; // as stated
    // Left at base_ns + offset_s.
    double bytes_left;
    double offset_s;
    int64_t base_ns;
    int64_t sequence, tag, crossings;
} flow_record;

// Free: its flows would fit had each the most that it could have, so that the link holds none back
// whatever happens; nothing but their list is kept. Watched: they would not, but there is room:
// only what is spare is kept. Tight: it may hold flows back.
typedef enum link_state { LINK_FREE, LINK_WATCHED, LINK_TIGHT } link_state;

// A cache line. While rates are being found the sought flows are left out of what a tight link
// gives. Counts are of times but for `hops`.
typedef struct link_record {
    int64_t spare; // what no flow has, in units
    int64_t level; // that no flow has more than but sought ones, and those that it holds back have
    int32_t first; // hop
    int32_t hops;
    int32_t held; // flows that it holds back
    // Sought flows.
    int32_t open_first, open_times;
    // During one filling: what is left for how many; the highest rate of a sought flow, -1 before
    // there is one, which all have that were left when the link was full.
    int32_t unfilled;
    int64_t left, top;
    int32_t calm; // how often its state could have been a looser one since it is what it is
    uint8_t state;
    bool is_full, is_touched, is_overfull;
} link_record;

// The capacity of a link, in units, and the demand of its flows.
typedef struct link_demand {
    int64_t capacity;
    int64_t wanted; // in WANTED_UNITs, rounded up flow by flow, so that no sum is too large
} link_demand;

#define WANTED_UNIT (INT64_C(1) << 28)

// The least rate at which a link may be full, or a flow by itself can have no more.
typedef struct fill_level {
    int64_t rate;
    int32_t link, flow; // one is NONE
} fill_level;

// Flow by the time at which it begins or ends, then by its place in the order of starts.
typedef struct flow_event {
    int64_t at_ns;
    int32_t flow;
} flow_event;

struct sp_flows {
    int64_t now_ns, sequence;
    int64_t crossings; // times on all paths, so that those of a link fit its counts
    double unit;       // bytes per second
    link_record *links;
    double *bytes_per_s; // as stated, of each link
    link_demand *demand;
    int32_t link_count;
    flow_record *flow;
    size_t flow_capacity; // of all that has an element for each flow
    int32_t flows, unused_flow, running;
    hop_record *hops;
    size_t hop_capacity;
    int32_t hops_used;
    int32_t *unused_hops; // [length]: blocks of as many hops
    size_t lengths;
    flow_event *events; // heap
    int32_t event_count;
    sp_flow_end *ended;
    int32_t ended_count;
    // The search for rates uses the following.
    int32_t *touched, *overfull, *open;
    fill_level *shares, *filled; // heap; those of one rate
    int32_t touched_count, overfull_count, open_count, found_count, share_count;
    sp_flows_counts counts;
};

static void set_rate(sp_flows *flows, flow_record *flow, int64_t rate);

// The flows of a link, as hops of their paths. Those over tight links come first, then those over
// other watched ones.

enum { MOST_HOPS = 1 << 28 };

// Returns the rate that is spare beside `used` more. It may be far below 0, and wrap, until it is
// put right.
static inline int64_t less(int64_t spare, int64_t used)
{
    return (int64_t)((uint64_t)spare - (uint64_t)used);
}

// Returns what a flow could have of a link for itself.
static inline int64_t alone_on(const sp_flows *flows, int32_t link, int32_t times)
{
    const int64_t capacity = flows->demand[link].capacity;
    return times == 1 ? capacity : capacity / times;
}

// A change of state goes over all flows of a link: it is made once as many events asked for it.
static inline bool is_calm(link_record *link)
{
    enum { FLOWS_OF_EVENT = 8 };
    return ++link->calm > link->hops / FLOWS_OF_EVENT;
}

// ---- blocks of hops ----

// One that an ended flow of as many hops left, or a new one.
static sp_status take_hops(sp_flows *flows, int32_t length, int32_t *first, sp_error *err)
{
    size_t known = flows->lengths;
    SP_RESERVE(flows->unused_hops, flows->lengths, (size_t)length + 1);
    for (size_t i = known; i < flows->lengths; i++) {
        flows->unused_hops[i] = NONE;
    }
    *first = flows->unused_hops[length];
    if (*first != NONE) {
        flows->unused_hops[length] = flows->hops[*first].next;
        return SP_OK;
    }
    if (length > MOST_HOPS - flows->hops_used) {
        return sp_error_set(err, SP_ERR_LIMIT, "more than %d hops of flows at a time", MOST_HOPS);
    }
    SP_RESERVE(flows->hops, flows->hop_capacity, (size_t)(flows->hops_used + length));
    *first = flows->hops_used;
    flows->hops_used += length;
    return SP_OK;
}

static void give_back_hops(sp_flows *flows, const flow_record *flow)
{
    flows->hops[flow->first_hop].next = flows->unused_hops[flow->hops];
    flows->unused_hops[flow->hops] = flow->first_hop;
}

// ---- which links matter ----

static flow_record *flow_of(const sp_flows *flows, int32_t hop)
{
    return &flows->flow[flows->hops[hop].flow];
}

// Hops of one flow, each on a link of its own (sp_flow).
static void swap_hops(sp_flows *flows, int32_t a, int32_t b)
{
    if (a == b) {
        return;
    }
    hop_record moved = flows->hops[a];
    flows->hops[a] = flows->hops[b];
    flows->hops[b] = moved;
    for (int32_t i = 0; i < 2; i++) {
        const int32_t index = i == 0 ? a : b;
        const hop_record *hop = &flows->hops[index];
        if (hop->previous != NONE) {
            flows->hops[hop->previous].next = index;
        } else {
            flows->links[hop->link].first = index;
        }
        if (hop->next != NONE) {
            flows->hops[hop->next].previous = index;
        }
    }
}

// Does the link alone keep the flow from more than its most?
static bool is_least(const sp_flows *flows, const flow_record *flow, int32_t hop)
{
    return alone_on(flows, flows->hops[hop].link, flows->hops[hop].times) == flow->most;
}

static void watch(sp_flows *flows, int32_t index)
{
    link_record *link = &flows->links[index];
    link->state = LINK_WATCHED;
    link->calm = 0;
    link->spare = flows->demand[index].capacity;
    for (int32_t h = link->first, next; h != NONE; h = next) {
        flow_record *flow = flow_of(flows, h);
        next = flows->hops[h].next;
        link->spare = less(link->spare, flows->hops[h].times * flow->rate);
        swap_hops(flows, h, flow->first_hop + flow->watched_hops++);
    }
}

static void tighten_hop(sp_flows *flows, int32_t index)
{
    flow_record *flow = flow_of(flows, index);
    flow->least_hops += is_least(flows, flow, index);
    swap_hops(flows, index, flow->first_hop + flow->tight_hops++);
}

// Flows that have their most may have it of this link, which holds them back from now on.
static void tighten(sp_flows *flows, int32_t index)
{
    link_record *link = &flows->links[index];
    link->state = LINK_TIGHT;
    link->calm = 0;
    link->level = 0;
    link->held = 0;
    for (int32_t h = link->first; h != NONE; h = flows->hops[h].next) {
        const flow_record *flow = flow_of(flows, h);
        link->level = !flow->is_new && flow->rate > link->level ? flow->rate : link->level;
    }
    for (int32_t h = link->first, next; h != NONE; h = next) {
        flow_record *flow = flow_of(flows, h);
        const int32_t times = flows->hops[h].times;
        next = flows->hops[h].next;
        if (flow->held_by == NONE && flow->rate == link->level && link->spare < times) {
            flow->held_by = index;
        }
        link->held += flow->held_by == index ? times : 0;
        tighten_hop(flows, h);
    }
}

static void loosen(sp_flows *flows, int32_t index)
{
    link_record *link = &flows->links[index];
    link->state = LINK_WATCHED;
    link->calm = 0;
    for (int32_t h = link->first, next; h != NONE; h = next) {
        flow_record *flow = flow_of(flows, h);
        next = flows->hops[h].next;
        flow->least_hops -= is_least(flows, flow, h);
        swap_hops(flows, h, flow->first_hop + --flow->tight_hops);
    }
}

static void set_free(sp_flows *flows, int32_t index)
{
    link_record *link = &flows->links[index];
    if (link->state == LINK_TIGHT) {
        loosen(flows, index);
    }
    link->state = LINK_FREE;
    for (int32_t h = link->first, next; h != NONE; h = next) {
        flow_record *flow = flow_of(flows, h);
        next = flows->hops[h].next;
        swap_hops(flows, h, flow->first_hop + --flow->watched_hops);
    }
}

// ---- progressive filling of what the open flows may have ----

// Finds the rate that each hop may have. Few hops are the rule, and a division is slow.
static int64_t share_of(const link_record *link)
{
    return link->unfilled == 1 ? link->left : link->left / link->unfilled;
}

static void sift_share_down(sp_flows *flows, int32_t at)
{
    fill_level *heap = flows->shares;
    fill_level moved = heap[at];
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

// A flow with a link in demand that cannot give it more than its most needs no entry of its own.
static void heap_shares(sp_flows *flows)
{
    for (int32_t i = 0; i < flows->touched_count; i++) {
        link_record *link = &flows->links[flows->touched[i]];
        link->left = link->spare;
        link->unfilled = link->open_times;
        link->is_full = false;
        link->top = -1;
        if (link->open_times > 0) {
            flows->shares[flows->share_count++] =
                (fill_level){share_of(link), flows->touched[i], NONE};
        }
    }
    for (int32_t i = 0; i < flows->open_count; i++) {
        flow_record *flow = &flows->flow[flows->open[i]];
        flow->is_found = false;
        if (flow->least_hops == 0) {
            flows->shares[flows->share_count++] = (fill_level){flow->most, NONE, flows->open[i]};
        }
    }
    for (int32_t i = flows->share_count / 2 - 1; i >= 0; i--) {
        sift_share_down(flows, i);
    }
}

// Takes the links that are full first, all with the same level, and the flows that can have no
// more, and returns how many. A share in the heap may be an old one; shares only grow, so the least
// is right once it is up to date.
static int32_t take_lowest(sp_flows *flows, int64_t *level)
{
    int32_t full = 0;
    while (flows->share_count > 0 && (full == 0 || flows->shares[0].rate == *level)) {
        fill_level *first = &flows->shares[0];
        link_record *link = first->link != NONE ? &flows->links[first->link] : NULL;
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
        sift_share_down(flows, 0);
    }
    return full;
}

// Where several links hold the flow back, the first by number counts.
static void freeze(sp_flows *flows, flow_record *flow, int64_t level)
{
    if (flow->is_found) {
        return;
    }
    int32_t held_by = INT32_MAX;
    for (int32_t i = 0; i < flow->tight_hops; i++) {
        const hop_record *hop = &flows->hops[flow->first_hop + i];
        link_record *link = &flows->links[hop->link];
        link->left -= hop->times * level;
        link->unfilled -= hop->times;
        link->top = level;
        if (link->is_full && hop->link < held_by) {
            held_by = hop->link;
        }
    }
    flow->is_found = true;
    flow->next_rate = level;
    flow->next_held_by = level < flow->most ? held_by : NONE;
    flows->found_count++;
    flows->counts.hops += flow->tight_hops;
}

static void freeze_of(sp_flows *flows, const fill_level *full)
{
    if (full->link == NONE) {
        freeze(flows, &flows->flow[full->flow], full->rate);
        return;
    }
    int32_t hop = flows->links[full->link].open_first;
    for (; hop != NONE; hop = flows->hops[hop].open_next) {
        freeze(flows, &flows->flow[flows->hops[hop].flow], full->rate);
    }
}

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

// ---- flows come and go ----

// Returns the rate that a flow could have of a link, above 0.
static int64_t wanted_by(const flow_record *flow, const hop_record *hop)
{
    return hop->times * flow->most / WANTED_UNIT + 1;
}

static void enter_link(sp_flows *flows, flow_record *flow, int32_t index)
{
    hop_record *hop = &flows->hops[index];
    const int32_t at = hop->link;
    const int32_t times = hop->times;
    link_record *link = &flows->links[hop->link];
    link_demand *demand = &flows->demand[hop->link];
    hop->previous = NONE;
    hop->next = link->first;
    if (hop->next != NONE) {
        flows->hops[hop->next].previous = index;
    }
    link->first = index;
    link->hops++;
    demand->wanted += wanted_by(flow, hop);
    if (link->state != LINK_FREE) {
        link->spare = less(link->spare, times * flow->rate);
        swap_hops(flows, index, flow->first_hop + flow->watched_hops++);
    } else if (link->hops > 1 && demand->wanted > demand->capacity / WANTED_UNIT) {
        watch(flows, at);
    }
    if (link->state == LINK_TIGHT) {
        tighten_hop(flows, flow->first_hop + flow->watched_hops - 1);
    } else if (link->state == LINK_WATCHED && link->spare < 0) {
        tighten(flows, at);
    }
}

static void enter_links(sp_flows *flows, flow_record *flow)
{
    flow->tight_hops = flow->watched_hops = flow->least_hops = 0;
    for (int32_t i = 0; i < flow->hops; i++) {
        enter_link(flows, flow, flow->first_hop + i);
    }
}

// Marks a link whose flows have changed.
static void touch(sp_flows *flows, int32_t index)
{
    link_record *link = &flows->links[index];
    if (!link->is_touched) {
        link->is_touched = true;
        link->open_first = NONE;
        link->open_times = 0;
        flows->touched[flows->touched_count++] = index;
    }
}

// A link becomes free with some room left, so that it does not change event by event.
static void leave_link(sp_flows *flows, const flow_record *flow, int32_t index)
{
    const hop_record *hop = &flows->hops[index];
    link_record *link = &flows->links[hop->link];
    link_demand *demand = &flows->demand[hop->link];
    if (hop->previous != NONE) {
        flows->hops[hop->previous].next = hop->next;
    } else {
        link->first = hop->next;
    }
    if (hop->next != NONE) {
        flows->hops[hop->next].previous = hop->previous;
    }
    link->hops--;
    demand->wanted -= wanted_by(flow, hop);
    if (link->state == LINK_FREE) {
        return;
    }
    link->spare = less(link->spare, -hop->times * flow->rate);
    if (link->state == LINK_TIGHT) {
        touch(flows, hop->link);
        link->held -= hop->link == flow->held_by ? hop->times : 0;
    }
    bool is_slack = demand->wanted < demand->capacity / WANTED_UNIT / 4 * 3;
    if (link->hops < 2 || (is_slack && is_calm(link))) {
        set_free(flows, hop->link);
    }
}

static void leave_links(sp_flows *flows, flow_record *flow)
{
    for (int32_t i = flow->hops - 1; i >= 0; i--) {
        flow->tight_hops = i < flow->tight_hops ? i : flow->tight_hops;
        flow->watched_hops = i < flow->watched_hops ? i : flow->watched_hops;
        leave_link(flows, flow, flow->first_hop + i);
    }
}

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

enum { CAREFUL_ROUNDS = 32 };

static void open_begun(sp_flows *flows);

static void open_reached(sp_flows *flows);

static bool open_more(sp_flows *flows, bool all);

static void settle(sp_flows *flows);

static bool open_overfull(sp_flows *flows);

// A change that goes far is followed faster: all neighbours at once.
static void find_rates(sp_flows *flows)
{
    int round = 0;
    do {
        fill(flows);
        round++;
    } while (open_more(flows, round > CAREFUL_ROUNDS));
}

// Finds the rates that change since links were touched and flows opened. O(1) where none was.
static void share_links(sp_flows *flows)
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

// ---- who is asked first ----

static void mark(sp_flows *flows, int32_t index)
{
    flow_record *flow = &flows->flow[index];
    if (!flow->is_open) {
        flow->is_open = true;
        flows->open[flows->open_count++] = index;
    }
}

// A sought flow gives back what it has until all rates are found.
static void open_marked(sp_flows *flows, int32_t from)
{
    for (int32_t k = from; k < flows->open_count; k++) {
        const flow_record *flow = &flows->flow[flows->open[k]];
        for (int32_t i = 0; i < flow->tight_hops; i++) {
            const int32_t index = flow->first_hop + i;
            hop_record *hop = &flows->hops[index];
            touch(flows, hop->link);
            link_record *link = &flows->links[hop->link];
            hop->open_next = link->open_first;
            link->open_first = index;
            link->open_times += hop->times;
            link->spare = less(link->spare, -hop->times * flow->rate);
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
        link_record *link = &flows->links[index];
        if (link->state == LINK_TIGHT) {
            flows->touched[left++] = index;
            continue;
        }
        link->is_touched = false;
        for (int32_t h = link->first; h != NONE; h = flows->hops[h].next) {
            flow_record *flow = &flows->flow[flows->hops[h].flow];
            if (flow->held_by == index) {
                flow->held_by = NONE;
                mark(flows, flows->hops[h].flow);
            }
        }
    }
    flows->touched_count = left;
    open_marked(flows, 0);
}

// Returns the rate of a link's flows if it held all sought ones back.
static int64_t guess(const link_record *link)
{
    const int64_t hops = link->held + link->open_times;
    return (link->spare + link->held * link->level) / hops;
}

static void open_above(sp_flows *flows, int32_t index, int64_t rate)
{
    const int32_t from = flows->open_count;
    flows->links[index].level = rate;
    for (int32_t h = flows->links[index].first; h != NONE; h = flows->hops[h].next) {
        const flow_record *flow = &flows->flow[flows->hops[h].flow];
        if (flow->rate > rate || flow->held_by == index) {
            mark(flows, flows->hops[h].flow);
        }
    }
    open_marked(flows, from);
}

// Flows that will probably get another rate are asked at once: where one of a link changes, those
// change that the link holds back, and whoever has more than they will. This only saves rounds.
static void open_reached(sp_flows *flows)
{
    for (int32_t i = 0; i < flows->touched_count; i++) {
        const link_record *link = &flows->links[flows->touched[i]];
        if (link->held + link->open_times > 0) {
            const int64_t share = guess(link);
            if (link->level > share || (link->held > 0 && link->level < share)) {
                open_above(flows, flows->touched[i], share < link->level ? share : link->level);
            }
        }
    }
}

// ---- who else must be asked ----

static void mark_of_link(sp_flows *flows, int32_t index, bool all)
{
    link_record *link = &flows->links[index];
    const bool some_have_more = link->is_full && link->level > link->top;
    const bool has_rest = !link->is_full && link->left >= link->held;
    const bool held_may_have_more = link->held > 0 && (has_rest || link->top > link->level);
    if (!(all || some_have_more || held_may_have_more)) {
        return;
    }
    for (int32_t h = link->first; h != NONE; h = flows->hops[h].next) {
        const flow_record *flow = &flows->flow[flows->hops[h].flow];
        if (all || (some_have_more && flow->rate > link->top) ||
            (held_may_have_more && flow->held_by == index)) {
            mark(flows, flows->hops[h].flow);
        }
    }
    link->level = some_have_more ? link->top : link->level;
}

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

// ---- the rates as found ----

static void settle_flow(sp_flows *flows, flow_record *flow)
{
    const int64_t change = flow->next_rate - flow->rate;
    const hop_record *hop = &flows->hops[flow->first_hop];
    const hop_record *tight_end = hop + flow->tight_hops;
    const hop_record *watched_end = hop + flow->watched_hops;
    flow->is_open = false;
    flow->held_by = flow->next_held_by;
    for (; hop < tight_end; hop++) {
        link_record *link = &flows->links[hop->link];
        link->spare -= hop->times * flow->next_rate;
        link->held += hop->link == flow->held_by ? hop->times : 0;
        link->level = flow->next_rate > link->level ? flow->next_rate : link->level;
    }
    if (change == 0 && !flow->is_new) {
        return;
    }
    for (; hop < watched_end; hop++) {
        link_record *link = &flows->links[hop->link];
        link->spare = less(link->spare, hop->times * change);
        if (link->spare < 0 && !link->is_overfull) {
            link->is_overfull = true;
            flows->overfull[flows->overfull_count++] = hop->link;
        }
    }
    set_rate(flows, flow, flow->next_rate);
}

static void settle(sp_flows *flows)
{
    for (int32_t i = 0; i < flows->open_count; i++) {
        settle_flow(flows, &flows->flow[flows->open[i]]);
    }
    for (int32_t i = 0; i < flows->touched_count; i++) {
        const int32_t index = flows->touched[i];
        link_record *link = &flows->links[index];
        link->is_touched = false;
        if (link->held == 0 && link->spare > flows->demand[index].capacity / 32 && is_calm(link)) {
            loosen(flows, index);
        }
    }
    flows->open_count = 0;
    flows->touched_count = 0;
}

// Watched links whose flows have more than all of them now become tight, and flows with more than
// an even part are asked again.
static bool open_overfull(sp_flows *flows)
{
    for (int32_t i = 0; i < flows->overfull_count; i++) {
        const int32_t index = flows->overfull[i];
        link_record *link = &flows->links[index];
        int64_t times = 0;
        link->is_overfull = false;
        for (int32_t h = link->first; h != NONE; h = flows->hops[h].next) {
            times += flows->hops[h].times;
        }
        const int64_t part = flows->demand[index].capacity / times;
        for (int32_t h = link->first; h != NONE; h = flows->hops[h].next) {
            if (flows->flow[flows->hops[h].flow].rate > part) {
                mark(flows, flows->hops[h].flow);
            }
        }
        tighten(flows, index);
    }
    flows->overfull_count = 0;
    open_marked(flows, 0);
    return flows->open_count > 0;
}

enum { RATE_BITS = 60, LEAST_RATE_BITS = 30, MOST_FLOWS = 1 << 28, MOST_CROSSINGS = 1 << 30 };

#define MOST_RATE (INT64_C(1) << RATE_BITS)

// About 146 years: what does not end before never does.
#define NEVER_NS (INT64_C(1) << 62)

// ---- links ----

static void reserve_shares(sp_flows *flows, size_t shares)
{
    flows->filled = sp_realloc(flows->filled, shares * sizeof *flows->filled);
    flows->shares = sp_realloc(flows->shares, shares * sizeof *flows->shares);
}

static void reserve_links(sp_flows *flows, size_t links)
{
    flows->links = sp_realloc(flows->links, links * sizeof *flows->links);
    flows->bytes_per_s = sp_realloc(flows->bytes_per_s, links * sizeof *flows->bytes_per_s);
    flows->demand = sp_realloc(flows->demand, links * sizeof *flows->demand);
    flows->touched = sp_realloc(flows->touched, links * sizeof *flows->touched);
    flows->overfull = sp_realloc(flows->overfull, links * sizeof *flows->overfull);
    reserve_shares(flows, links);
}

static sp_status check_rates(const double *bytes_per_s, int32_t links, double *most, sp_error *err)
{
    double least = HUGE_VAL;
    for (int32_t i = 0; i < links; i++) {
        if (!(bytes_per_s[i] > 0.0) || !isfinite(bytes_per_s[i])) {
            return sp_error_set(err, SP_ERR_CONTENT, "link %d: expected a rate above 0, got %g",
                                (int)i, bytes_per_s[i]);
        }
        least = fmin(least, bytes_per_s[i]);
        *most = fmax(*most, bytes_per_s[i]);
    }
    if (links > 0 && least < ldexp(*most, -LEAST_RATE_BITS)) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "links of %g and of %g bytes/s are too far apart for one network",
                            least, *most);
    }
    return SP_OK;
}

static void set_link(sp_flows *flows, int32_t index, double bytes_per_s)
{
    flows->bytes_per_s[index] = bytes_per_s;
    flows->demand[index] = (link_demand){.capacity = (int64_t)floor(bytes_per_s / flows->unit)};
    flows->links[index] = (link_record){.first = NONE};
}

sp_status sp_flows_new(const double *link_bytes_per_s, int32_t links, sp_flows **flows,
                       sp_error *err)
{
    double most = 0.0;
    *flows = NULL;
    SP_TRY(check_rates(link_bytes_per_s, links, &most, err));
    sp_flows *made = sp_calloc(1, sizeof *made);
    reserve_links(made, (size_t)links + 1);
    int exponent;
    frexp(most, &exponent);
    made->unit = ldexp(1.0, exponent - RATE_BITS);
    made->link_count = links;
    made->unused_flow = NONE;
    for (int32_t i = 0; i < links; i++) {
        set_link(made, i, link_bytes_per_s[i]);
    }
    *flows = made;
    return SP_OK;
}

void sp_flows_free(sp_flows *flows)
{
    if (flows == NULL) {
        return;
    }
    sp_free(flows->shares);
    sp_free(flows->filled);
    sp_free(flows->open);
    sp_free(flows->touched);
    sp_free(flows->overfull);
    sp_free(flows->ended);
    sp_free(flows->events);
    sp_free(flows->unused_hops);
    sp_free(flows->hops);
    sp_free(flows->flow);
    sp_free(flows->demand);
    sp_free(flows->bytes_per_s);
    sp_free(flows->links);
    sp_free(flows);
}

// ---- the start of a flow ----

static void begin_or_wait(sp_flows *flows, int32_t index);

static int64_t crossings_of(const sp_flow *flow)
{
    int64_t crossings = 0;
    for (int32_t i = 0; i < flow->hops; i++) {
        crossings += flow->path[i].times;
    }
    return crossings;
}

// Room for one more flow in all that has an element for each.
static sp_status reserve_flow(sp_flows *flows, sp_error *err)
{
    if (flows->unused_flow != NONE || (size_t)flows->flows < flows->flow_capacity) {
        return SP_OK;
    }
    if (flows->flows >= MOST_FLOWS) {
        return sp_error_set(err, SP_ERR_LIMIT, "more than %d flows at a time", MOST_FLOWS);
    }
    size_t n = flows->flow_capacity + flows->flow_capacity / 2 + 64;
    flows->flow = sp_realloc(flows->flow, n * sizeof *flows->flow);
    flows->events = sp_realloc(flows->events, (n + 3) * sizeof *flows->events);
    flows->ended = sp_realloc(flows->ended, n * sizeof *flows->ended);
    flows->open = sp_realloc(flows->open, n * sizeof *flows->open);
    reserve_shares(flows, (size_t)flows->link_count + n);
    for (size_t i = (size_t)flows->event_count; i < n + 3; i++) {
        flows->events[i] = (flow_event){INT64_MAX, 0};
    }
    flows->flow_capacity = n;
    return SP_OK;
}

static int32_t take_flow(sp_flows *flows)
{
    flows->running++;
    if (flows->unused_flow == NONE) {
        return flows->flows++;
    }
    int32_t index = flows->unused_flow;
    flows->unused_flow = flows->flow[index].first_hop;
    return index;
}

static void set_path(sp_flows *flows, int32_t index, const sp_flow *given)
{
    flow_record *flow = &flows->flow[index];
    hop_record *hops = &flows->hops[flow->first_hop];
    double most = flows->unit * (double)MOST_RATE;
    flow->most = MOST_RATE;
    if (given->most_bytes_per_s > 0.0 && given->most_bytes_per_s < most) {
        most = fmax(given->most_bytes_per_s, flows->unit);
        flow->most = (int64_t)floor(most / flows->unit);
    }
    for (int32_t i = 0; i < given->hops; i++) {
        const sp_flow_hop hop = given->path[i];
        SP_ASSERT(hop.link >= 0 && hop.link < flows->link_count && hop.times > 0);
        const double whole = flows->bytes_per_s[hop.link];
        const double stated = hop.times == 1 ? whole : whole / hop.times;
        const int64_t alone = alone_on(flows, hop.link, hop.times);
        most = stated < most ? stated : most;
        flow->most = alone < flow->most ? alone : flow->most;
        hops[i] = (hop_record){.flow = index, .link = hop.link, .times = hop.times};
    }
    flow->most_bytes_per_s = most;
}

sp_status sp_flows_start(sp_flows *flows, const sp_flow *given, int32_t *id, sp_error *err)
{
    SP_ASSERT(given->start_ns >= flows->now_ns && given->hops > 0 && given->bytes >= 0.0);
    flow_record flow = {.hops = given->hops,
                        .held_by = NONE,
                        .state = FLOW_WAITS,
                        .bytes_left = given->bytes,
                        .offset_s = given->latency_s,
                        .base_ns = given->start_ns,
                        .sequence = flows->sequence,
                        .crossings = crossings_of(given),
                        .tag = given->tag};
    if (flow.crossings > MOST_CROSSINGS - flows->crossings) {
        return sp_error_set(err, SP_ERR_LIMIT, "flows that cross links more than %d times",
                            MOST_CROSSINGS);
    }
    SP_TRY(reserve_flow(flows, err));
    SP_TRY(take_hops(flows, flow.hops, &flow.first_hop, err));
    int32_t index = take_flow(flows);
    flows->flow[index] = flow;
    flows->sequence++;
    flows->crossings += flow.crossings;
    set_path(flows, index, given);
    begin_or_wait(flows, index);
    if (id != NULL) {
        *id = index;
    }
    return SP_OK;
}

// Time at which `s` seconds have passed since the flow's base.
static int64_t after(const flow_record *flow, double s)
{
    double ns = (flow->offset_s + s) * SP_NS_PER_S;
    if (!(ns < (double)(NEVER_NS / 2))) {
        return NEVER_NS;
    }
    const int64_t whole = (int64_t)ns; // and to the nearest, in place of a slow llround
    return flow->base_ns + whole + (ns - (double)whole >= 0.5 ? 1 : 0);
}

// ---- the heap of events ----

static bool is_before(const sp_flows *flows, flow_event a, flow_event b)
{
    return a.at_ns != b.at_ns ? a.at_ns < b.at_ns
                              : flows->flow[a.flow].sequence < flows->flow[b.flow].sequence;
}

static void place_event(sp_flows *flows, int32_t at, flow_event event)
{
    flows->events[at] = event;
    flows->flow[event.flow].heap_at = at;
}

static void sift_up(sp_flows *flows, int32_t at, flow_event event)
{
    while (at > 0 && is_before(flows, event, flows->events[(at - 1) / 4])) {
        place_event(flows, at, flows->events[(at - 1) / 4]);
        at = (at - 1) / 4;
    }
    place_event(flows, at, event);
}

// Behind the last event stand three that never are, so that each event with children has four.
static int32_t first_child(const sp_flows *flows, int32_t at)
{
    const flow_event *child = &flows->events[4 * at + 1];
    const int32_t a = is_before(flows, child[1], child[0]) ? 1 : 0;
    const int32_t b = is_before(flows, child[3], child[2]) ? 3 : 2;
    return 4 * at + 1 + (is_before(flows, child[b], child[a]) ? b : a);
}

static void sift_down(sp_flows *flows, int32_t at, flow_event event)
{
    while (4 * at + 1 < flows->event_count) {
        int32_t child = first_child(flows, at);
        if (!is_before(flows, flows->events[child], event)) {
            break;
        }
        place_event(flows, at, flows->events[child]);
        at = child;
    }
    place_event(flows, at, event);
}

static void push_event(sp_flows *flows, flow_event event)
{
    sift_up(flows, flows->event_count++, event);
}

// The last event takes the place of the first, most often far down.
static void pop_event(sp_flows *flows)
{
    const flow_event last = flows->events[--flows->event_count];
    flows->events[flows->event_count] = (flow_event){INT64_MAX, 0};
    if (flows->event_count == 0) {
        return;
    }
    int32_t at = 0;
    while (4 * at + 1 < flows->event_count) {
        int32_t child = first_child(flows, at);
        place_event(flows, at, flows->events[child]);
        at = child;
    }
    sift_up(flows, at, last);
}

// ---- time goes on ----

// The most is given as it was stated, not in units.
static double rate_of(const sp_flows *flows, const flow_record *flow)
{
    return flow->rate == flow->most ? flow->most_bytes_per_s : (double)flow->rate * flows->unit;
}

static int64_t end_of(const sp_flows *flows, const flow_record *flow)
{
    return sp_larger(after(flow, flow->bytes_left / rate_of(flows, flow)), flows->now_ns);
}

// When the first event is; NEVER_NS where there is none.
static int64_t next_event_ns(sp_flows *flows)
{
    while (flows->event_count > 0) {
        const flow_event event = flows->events[0];
        flow_record *flow = &flows->flow[event.flow];
        if (!flow->is_late) {
            return event.at_ns;
        }
        flow->is_late = false;
        sift_down(flows, 0, (flow_event){end_of(flows, flow), event.flow});
    }
    return NEVER_NS;
}

// Its end is known once it has a rate; until then its event is none.
static void begin(sp_flows *flows, int32_t index)
{
    flow_record *flow = &flows->flow[index];
    flow->state = FLOW_RUNS;
    flow->is_new = true;
    flow->rate = flow->most;
    flow->is_open = true;
    flows->open[flows->open_count++] = index;
    enter_links(flows, flow);
    flows->counts.events++;
}

static void end(sp_flows *flows, int32_t index)
{
    flow_record *flow = &flows->flow[index];
    pop_event(flows);
    flows->counts.events++;
    if (flow->state == FLOW_RUNS) {
        leave_links(flows, flow);
    }
    flow->state = FLOW_UNUSED;
    flows->ended[flows->ended_count++] = (sp_flow_end){index, flow->tag};
    give_back_hops(flows, flow);
    flow->first_hop = flows->unused_flow;
    flows->unused_flow = index;
    flows->crossings -= flow->crossings;
    flows->running--;
}

int64_t sp_flows_advance(sp_flows *flows, int64_t until_ns)
{
    flows->ended_count = 0;
    while (flows->ended_count == 0) {
        share_links(flows);
        int64_t next_ns = next_event_ns(flows);
        if (flows->event_count == 0 || next_ns > until_ns) {
            flows->now_ns = sp_larger(flows->now_ns, until_ns);
            break;
        }
        flows->now_ns = next_ns;
        do {
            int32_t index = flows->events[0].flow;
            const flow_record *flow = &flows->flow[index];
            if (flow->state == FLOW_WAITS && flow->bytes_left > 0.0) {
                sift_down(flows, 0, (flow_event){NEVER_NS, index});
                begin(flows, index);
            } else {
                end(flows, index);
            }
        } while (next_event_ns(flows) == next_ns);
    }
    return flows->now_ns;
}

// A flow that begins now goes to the end of the heap and not through it.
static void begin_or_wait(sp_flows *flows, int32_t index)
{
    const flow_record *flow = &flows->flow[index];
    int64_t begins_ns = after(flow, 0.0);
    bool is_now = begins_ns <= flows->now_ns && flow->bytes_left > 0.0;
    push_event(flows, (flow_event){is_now ? NEVER_NS : begins_ns, index});
    if (is_now) {
        begin(flows, index);
    }
}

// Half a nanosecond of a flow may be left over at its rounded end, or taken too much. The event of
// a flow that is slowed down stays where it is until its time has come.
static void set_rate(sp_flows *flows, flow_record *flow, int64_t rate)
{
    const bool falls = !flow->is_new && rate < flow->rate;
    if (!flow->is_new) {
        double passed_s = (double)(flows->now_ns - flow->base_ns) / SP_NS_PER_S - flow->offset_s;
        double left = flow->bytes_left - rate_of(flows, flow) * passed_s;
        flow->bytes_left = left > 0.0 ? left : 0.0;
        flow->offset_s = 0.0;
        flow->base_ns = flows->now_ns;
    }
    flow->rate = rate;
    flow->is_new = false;
    flow->is_late = true;
    if (!falls) {
        const flow_event now = flows->events[flow->heap_at];
        const flow_event event = {end_of(flows, flow), now.flow};
        if (event.at_ns < now.at_ns) {
            sift_up(flows, flow->heap_at, event);
            flow->is_late = false;
        }
    }
}

// ---- what stands ----

const sp_flow_end *sp_flows_ended(const sp_flows *flows, int32_t *count)
{
    *count = flows->ended_count;
    return flows->ended;
}

int32_t sp_flows_left(const sp_flows *flows)
{
    return flows->running;
}

double sp_flows_bytes_per_s(sp_flows *flows, int32_t flow)
{
    share_links(flows);
    return rate_of(flows, &flows->flow[flow]);
}

sp_flows_counts sp_flows_count(const sp_flows *flows)
{
    return flows->counts;
}
