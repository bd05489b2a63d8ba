#include "sim/network/flows.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/network/flows_private.h"

enum { RATE_BITS = 60, LEAST_RATE_BITS = 30, MOST_FLOWS = 1 << 28, MOST_CROSSINGS = 1 << 30 };

// About 146 years: what does not end before never does.
#define NEVER_NS (INT64_C(1) << 62)

// ---- links ----

static sp_status check_rates(const double *bytes_per_s, int32_t links, double *most, sp_error *err);
static bool reserve_links(sp_flows *flows, size_t links);
static void set_link(sp_flows *flows, int32_t index, double bytes_per_s);

sp_status sp_flows_new(const double *link_bytes_per_s, int32_t links, sp_flows **flows,
                       sp_error *err)
{
    double most = 0.0;
    *flows = NULL;
    sp_status status = check_rates(link_bytes_per_s, links, &most, err);
    if (status != SP_OK) {
        return status;
    }
    sp_flows *made = sp_calloc(1, sizeof *made);
    if (made == NULL || !reserve_links(made, (size_t)links + 1)) {
        sp_flows_free(made);
        return sp_error_no_memory(err, "links of flows");
    }
    int exponent;
    frexp(most, &exponent);
    made->unit = ldexp(1.0, exponent - RATE_BITS);
    made->network_links = links;
    made->unused_flow = SP_I_NONE;
    for (int32_t i = 0; i < links; i++) {
        set_link(made, i, link_bytes_per_s[i]);
    }
    *flows = made;
    return SP_OK;
}

static bool grow(void **items, size_t count, size_t element_bytes)
{
    void *grown = sp_realloc(*items, count * element_bytes);
    *items = grown != NULL ? grown : *items;
    return grown != NULL;
}

// All that has an element for each link.
static bool reserve_links(sp_flows *flows, size_t links)
{
    return grow((void **)&flows->links, links, sizeof *flows->links) &&
           grow((void **)&flows->bytes_per_s, links, sizeof *flows->bytes_per_s) &&
           grow((void **)&flows->capacity, links, sizeof *flows->capacity) &&
           grow((void **)&flows->touched, links, sizeof *flows->touched) &&
           grow((void **)&flows->filled, links, sizeof *flows->filled) &&
           grow((void **)&flows->shares, links, sizeof *flows->shares);
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
    flows->capacity[index] = (int64_t)floor(bytes_per_s / flows->unit);
    flows->links[index] = (sp_i_link){.spare = flows->capacity[index], .first = SP_I_NONE};
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
    sp_free(flows->ended);
    sp_free(flows->events);
    sp_free(flows->unused_hops);
    sp_free(flows->hops);
    sp_free(flows->flow);
    sp_free(flows->capacity);
    sp_free(flows->bytes_per_s);
    sp_free(flows->links);
    sp_free(flows);
}

// ---- the start of a flow ----

static int64_t crossings_of(const sp_flow *flow);
static sp_status reserve_flow(sp_flows *flows, sp_error *err);
static sp_status take_hops(sp_flows *flows, int32_t length, int32_t *first, sp_error *err);
static int32_t take_flow(sp_flows *flows);
static void set_path(sp_flows *flows, int32_t index, const sp_flow *given);
static void begin_or_wait(sp_flows *flows, int32_t index);

sp_status sp_flows_start(sp_flows *flows, const sp_flow *given, int32_t *id, sp_error *err)
{
    SP_ASSERT(given->start_ns >= flows->now_ns && given->hops > 0 && given->bytes >= 0.0);
    sp_i_flow flow = {.hops = given->hops + (given->most_bytes_per_s > 0.0 ? 1 : 0),
                      .held_by = SP_I_NONE,
                      .state = SP_I_FLOW_WAITS,
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
    sp_status status = reserve_flow(flows, err);
    if (status == SP_OK) {
        status = take_hops(flows, flow.hops, &flow.first_hop, err);
    }
    if (status != SP_OK) {
        return status;
    }
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

static int64_t crossings_of(const sp_flow *flow)
{
    int64_t crossings = 1; // the flow's own link
    for (int32_t i = 0; i < flow->hops; i++) {
        crossings += flow->path[i].times;
    }
    return crossings;
}

// Time at which `s` seconds have passed since the flow's base.
static int64_t after(const sp_i_flow *flow, double s)
{
    double ns = (flow->offset_s + s) * SP_NS_PER_S;
    return ns < (double)(NEVER_NS / 2) ? flow->base_ns + llround(ns) : NEVER_NS;
}

// Room for one more flow in all that has an element for each; a flow may bring a link of its own.
static sp_status reserve_flow(sp_flows *flows, sp_error *err)
{
    if (flows->unused_flow != SP_I_NONE || (size_t)flows->flows < flows->flow_capacity) {
        return SP_OK;
    }
    if (flows->flows >= MOST_FLOWS) {
        return sp_error_set(err, SP_ERR_LIMIT, "more than %d flows at a time", MOST_FLOWS);
    }
    size_t n = flows->flow_capacity + flows->flow_capacity / 2 + 64;
    if (!grow((void **)&flows->flow, n, sizeof *flows->flow) ||
        !grow((void **)&flows->events, n, sizeof *flows->events) ||
        !grow((void **)&flows->ended, n, sizeof *flows->ended) ||
        !grow((void **)&flows->open, n, sizeof *flows->open) ||
        !reserve_links(flows, (size_t)flows->network_links + n)) {
        return sp_error_no_memory(err, "flows");
    }
    flows->flow_capacity = n;
    return SP_OK;
}

static int32_t take_flow(sp_flows *flows)
{
    flows->running++;
    if (flows->unused_flow == SP_I_NONE) {
        return flows->flows++;
    }
    int32_t index = flows->unused_flow;
    flows->unused_flow = flows->flow[index].first_hop;
    return index;
}

// A block of hops next to each other: one that an ended flow of as many left, or a new one.
static sp_status take_hops(sp_flows *flows, int32_t length, int32_t *first, sp_error *err)
{
    size_t known = flows->lengths;
    if (!sp_reserve((void **)&flows->unused_hops, &flows->lengths, (size_t)length + 1,
                    sizeof *flows->unused_hops)) {
        return sp_error_no_memory(err, "hops of flows");
    }
    for (size_t i = known; i < flows->lengths; i++) {
        flows->unused_hops[i] = SP_I_NONE;
    }
    *first = flows->unused_hops[length];
    if (*first != SP_I_NONE) {
        flows->unused_hops[length] = flows->hops[*first].next;
        return SP_OK;
    }
    if (length > MOST_FLOWS - flows->hops_used) {
        return sp_error_set(err, SP_ERR_LIMIT, "more than %d hops of flows at a time", MOST_FLOWS);
    }
    if (!sp_reserve((void **)&flows->hops, &flows->hop_capacity,
                    (size_t)(flows->hops_used + length), sizeof *flows->hops)) {
        return sp_error_no_memory(err, "hops of flows");
    }
    *first = flows->hops_used;
    flows->hops_used += length;
    return SP_OK;
}

static void set_path(sp_flows *flows, int32_t index, const sp_flow *given)
{
    sp_i_hop *hops = &flows->hops[flows->flow[index].first_hop];
    for (int32_t i = 0; i < given->hops; i++) {
        SP_ASSERT(given->path[i].link >= 0 && given->path[i].link < flows->network_links &&
                  given->path[i].times > 0);
        hops[i] =
            (sp_i_hop){index, given->path[i].link, given->path[i].times, SP_I_NONE, SP_I_NONE};
    }
    if (given->most_bytes_per_s > 0.0) {
        int32_t own = flows->network_links + index;
        double most = fmin(given->most_bytes_per_s, ldexp(flows->unit, RATE_BITS));
        set_link(flows, own, fmax(most, flows->unit));
        hops[given->hops] = (sp_i_hop){index, own, 1, SP_I_NONE, SP_I_NONE};
    }
}

// ---- the heap of events ----

static bool is_before(const sp_i_event *a, const sp_i_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->sequence < b->sequence;
}

static void place_event(sp_flows *flows, int32_t at, sp_i_event event)
{
    flows->events[at] = event;
    flows->flow[event.flow].heap_at = at;
}

static void sift_up(sp_flows *flows, int32_t at, sp_i_event event)
{
    while (at > 0 && is_before(&event, &flows->events[(at - 1) / 4])) {
        place_event(flows, at, flows->events[(at - 1) / 4]);
        at = (at - 1) / 4;
    }
    place_event(flows, at, event);
}

static int32_t first_child(const sp_flows *flows, int32_t at)
{
    int32_t first = 4 * at + 1;
    int32_t best = first;
    for (int32_t i = first + 1; i < first + 4 && i < flows->event_count; i++) {
        best = is_before(&flows->events[i], &flows->events[best]) ? i : best;
    }
    return best;
}

static void sift_down(sp_flows *flows, int32_t at, sp_i_event event)
{
    while (4 * at + 1 < flows->event_count) {
        int32_t child = first_child(flows, at);
        if (!is_before(&flows->events[child], &event)) {
            break;
        }
        place_event(flows, at, flows->events[child]);
        at = child;
    }
    place_event(flows, at, event);
}

static void push_event(sp_flows *flows, sp_i_event event)
{
    sift_up(flows, flows->event_count++, event);
}

static void move_event(sp_flows *flows, int32_t at, sp_i_event event)
{
    if (is_before(&event, &flows->events[at])) {
        sift_up(flows, at, event);
    } else {
        sift_down(flows, at, event);
    }
}

static void pop_event(sp_flows *flows)
{
    flows->event_count--;
    if (flows->event_count > 0) {
        sift_down(flows, 0, flows->events[flows->event_count]);
    }
}

// ---- time goes on ----

static void begin(sp_flows *flows, int32_t index);
static void end(sp_flows *flows, int32_t index);

int64_t sp_flows_advance(sp_flows *flows, int64_t until_ns)
{
    flows->ended_count = 0;
    while (flows->ended_count == 0) {
        sp_i_flows_share(flows);
        if (flows->event_count == 0 || flows->events[0].at_ns > until_ns) {
            flows->now_ns = sp_larger(flows->now_ns, until_ns);
            break;
        }
        flows->now_ns = flows->events[0].at_ns;
        while (flows->event_count > 0 && flows->events[0].at_ns == flows->now_ns) {
            int32_t index = flows->events[0].flow;
            const sp_i_flow *flow = &flows->flow[index];
            if (flow->state == SP_I_FLOW_WAITS && flow->bytes_left > 0.0) {
                sift_down(flows, 0, (sp_i_event){NEVER_NS, flow->sequence, index});
                begin(flows, index);
            } else {
                end(flows, index);
            }
        }
    }
    return flows->now_ns;
}

static void link_hop(sp_flows *flows, int32_t index)
{
    sp_i_hop *hop = &flows->hops[index];
    sp_i_link *link = &flows->links[hop->link];
    hop->previous = SP_I_NONE;
    hop->next = link->first;
    if (hop->next != SP_I_NONE) {
        flows->hops[hop->next].previous = index;
    }
    link->first = index;
    link->hops++;
}

static void unlink_hop(sp_flows *flows, int32_t index)
{
    sp_i_hop *hop = &flows->hops[index];
    sp_i_link *link = &flows->links[hop->link];
    if (hop->previous != SP_I_NONE) {
        flows->hops[hop->previous].next = hop->next;
    } else {
        link->first = hop->next;
    }
    if (hop->next != SP_I_NONE) {
        flows->hops[hop->next].previous = hop->previous;
    }
    link->hops--;
}

// A flow that begins now goes to the end of the heap and not through it.
static void begin_or_wait(sp_flows *flows, int32_t index)
{
    const sp_i_flow *flow = &flows->flow[index];
    int64_t begins_ns = after(flow, 0.0);
    bool is_now = begins_ns <= flows->now_ns && flow->bytes_left > 0.0;
    push_event(flows, (sp_i_event){is_now ? NEVER_NS : begins_ns, flow->sequence, index});
    if (is_now) {
        begin(flows, index);
    }
}

// Its end is known once it has a rate; until then its event is none.
static void begin(sp_flows *flows, int32_t index)
{
    sp_i_flow *flow = &flows->flow[index];
    flow->state = SP_I_FLOW_RUNS;
    for (int32_t i = 0; i < flow->hops; i++) {
        link_hop(flows, flow->first_hop + i);
    }
    sp_i_flows_open(flows, index);
    flows->counts.events++;
}

// A link of the flow's own goes with it.
static void leave_link(sp_flows *flows, const sp_i_flow *flow, int32_t index)
{
    const sp_i_hop *hop = &flows->hops[index];
    sp_i_link *link = &flows->links[hop->link];
    if (hop->link >= flows->network_links) {
        return;
    }
    sp_i_flows_touch(flows, hop->link);
    link->spare += hop->times * flow->rate;
    link->open_spare += hop->times * flow->rate;
    link->held -= hop->link == flow->held_by ? hop->times : 0;
    unlink_hop(flows, index);
}

static void end(sp_flows *flows, int32_t index)
{
    sp_i_flow *flow = &flows->flow[index];
    pop_event(flows);
    flows->counts.events++;
    if (flow->state == SP_I_FLOW_RUNS) {
        for (int32_t i = 0; i < flow->hops; i++) {
            leave_link(flows, flow, flow->first_hop + i);
        }
    }
    flow->state = SP_I_FLOW_UNUSED;
    flows->ended[flows->ended_count++] = (sp_flow_end){index, flow->tag};
    flows->hops[flow->first_hop].next = flows->unused_hops[flow->hops];
    flows->unused_hops[flow->hops] = flow->first_hop;
    flow->first_hop = flows->unused_flow;
    flows->unused_flow = index;
    flows->crossings -= flow->crossings;
    flows->running--;
}

// A link's whole rate is given as it was stated, not in units.
static double rate_of(const sp_flows *flows, const sp_i_flow *flow)
{
    if (flow->held_by == SP_I_NONE) {
        return 0.0;
    }
    return flow->rate == flows->capacity[flow->held_by] ? flows->bytes_per_s[flow->held_by]
                                                        : (double)flow->rate * flows->unit;
}

// Half a nanosecond of a flow may be left over at its rounded end, or taken too much.
void sp_i_flows_set_rate(sp_flows *flows, sp_i_flow *flow, int64_t rate, int32_t held_by)
{
    if (flow->rate > 0) {
        double passed_s = (double)(flows->now_ns - flow->base_ns) / SP_NS_PER_S - flow->offset_s;
        flow->bytes_left = fmax(0.0, flow->bytes_left - rate_of(flows, flow) * passed_s);
        flow->offset_s = 0.0;
        flow->base_ns = flows->now_ns;
    }
    flow->rate = rate;
    flow->held_by = held_by;
    int64_t ends_ns = after(flow, flow->bytes_left / rate_of(flows, flow));
    sp_i_event event = {sp_larger(ends_ns, flows->now_ns), flow->sequence,
                        flows->events[flow->heap_at].flow};
    move_event(flows, flow->heap_at, event);
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
    sp_i_flows_share(flows);
    return rate_of(flows, &flows->flow[flow]);
}

double sp_flows_link_bytes_per_s(sp_flows *flows, int32_t link)
{
    sp_i_flows_share(flows);
    return (double)(flows->capacity[link] - flows->links[link].spare) * flows->unit;
}

sp_flows_counts sp_flows_count(const sp_flows *flows)
{
    return flows->counts;
}
