#include "sim/network/flows.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/network/flows_private.h"

enum { RATE_BITS = 60, LEAST_RATE_BITS = 30, MOST_FLOWS = 1 << 28, MOST_CROSSINGS = 1 << 30 };

#define MOST_RATE (INT64_C(1) << RATE_BITS)

// About 146 years: what does not end before never does.
#define NEVER_NS (INT64_C(1) << 62)

// ---- links ----

static sp_status check_rates(const double *bytes_per_s, int32_t links, double *most, sp_error *err);
static void reserve_links(sp_flows *flows, size_t links);
static void reserve_shares(sp_flows *flows, size_t shares);
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
    reserve_links(made, (size_t)links + 1);
    int exponent;
    frexp(most, &exponent);
    made->unit = ldexp(1.0, exponent - RATE_BITS);
    made->link_count = links;
    made->unused_flow = SP_I_NONE;
    for (int32_t i = 0; i < links; i++) {
        set_link(made, i, link_bytes_per_s[i]);
    }
    *flows = made;
    return SP_OK;
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

static void reserve_shares(sp_flows *flows, size_t shares)
{
    flows->filled = sp_realloc(flows->filled, shares * sizeof *flows->filled);
    flows->shares = sp_realloc(flows->shares, shares * sizeof *flows->shares);
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
    flows->demand[index] = (sp_i_demand){.capacity = (int64_t)floor(bytes_per_s / flows->unit)};
    flows->links[index] = (sp_i_link){.first = SP_I_NONE};
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

static int64_t crossings_of(const sp_flow *flow);
static sp_status reserve_flow(sp_flows *flows, sp_error *err);
static int32_t take_flow(sp_flows *flows);
static void set_path(sp_flows *flows, int32_t index, const sp_flow *given);
static void begin_or_wait(sp_flows *flows, int32_t index);

sp_status sp_flows_start(sp_flows *flows, const sp_flow *given, int32_t *id, sp_error *err)
{
    SP_ASSERT(given->start_ns >= flows->now_ns && given->hops > 0 && given->bytes >= 0.0);
    sp_i_flow flow = {.hops = given->hops,
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
        status = sp_i_flows_take_hops(flows, flow.hops, &flow.first_hop, err);
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
    int64_t crossings = 0;
    for (int32_t i = 0; i < flow->hops; i++) {
        crossings += flow->path[i].times;
    }
    return crossings;
}

// Time at which `s` seconds have passed since the flow's base.
static int64_t after(const sp_i_flow *flow, double s)
{
    double ns = (flow->offset_s + s) * SP_NS_PER_S;
    if (!(ns < (double)(NEVER_NS / 2))) {
        return NEVER_NS;
    }
    const int64_t whole = (int64_t)ns; // and to the nearest, in place of a slow llround
    return flow->base_ns + whole + (ns - (double)whole >= 0.5 ? 1 : 0);
}

// Room for one more flow in all that has an element for each.
static sp_status reserve_flow(sp_flows *flows, sp_error *err)
{
    if (flows->unused_flow != SP_I_NONE || (size_t)flows->flows < flows->flow_capacity) {
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
        flows->events[i] = (sp_i_event){INT64_MAX, 0};
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

static void set_path(sp_flows *flows, int32_t index, const sp_flow *given)
{
    sp_i_flow *flow = &flows->flow[index];
    sp_i_hop *hops = &flows->hops[flow->first_hop];
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
        const int64_t alone = sp_i_flows_alone_on(flows, hop.link, hop.times);
        most = stated < most ? stated : most;
        flow->most = alone < flow->most ? alone : flow->most;
        hops[i] = (sp_i_hop){.flow = index, .link = hop.link, .times = hop.times};
    }
    flow->most_bytes_per_s = most;
}

// ---- the heap of events ----

static bool is_before(const sp_flows *flows, sp_i_event a, sp_i_event b)
{
    return a.at_ns != b.at_ns ? a.at_ns < b.at_ns
                              : flows->flow[a.flow].sequence < flows->flow[b.flow].sequence;
}

static void place_event(sp_flows *flows, int32_t at, sp_i_event event)
{
    flows->events[at] = event;
    flows->flow[event.flow].heap_at = at;
}

static void sift_up(sp_flows *flows, int32_t at, sp_i_event event)
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
    const sp_i_event *child = &flows->events[4 * at + 1];
    const int32_t a = is_before(flows, child[1], child[0]) ? 1 : 0;
    const int32_t b = is_before(flows, child[3], child[2]) ? 3 : 2;
    return 4 * at + 1 + (is_before(flows, child[b], child[a]) ? b : a);
}

static void sift_down(sp_flows *flows, int32_t at, sp_i_event event)
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

static void push_event(sp_flows *flows, sp_i_event event)
{
    sift_up(flows, flows->event_count++, event);
}

// The last event takes the place of the first, most often far down.
static void pop_event(sp_flows *flows)
{
    const sp_i_event last = flows->events[--flows->event_count];
    flows->events[flows->event_count] = (sp_i_event){INT64_MAX, 0};
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

static int64_t next_event_ns(sp_flows *flows);
static int64_t end_of(const sp_flows *flows, const sp_i_flow *flow);
static void begin(sp_flows *flows, int32_t index);
static void end(sp_flows *flows, int32_t index);

int64_t sp_flows_advance(sp_flows *flows, int64_t until_ns)
{
    flows->ended_count = 0;
    while (flows->ended_count == 0) {
        sp_i_flows_share(flows);
        int64_t next_ns = next_event_ns(flows);
        if (flows->event_count == 0 || next_ns > until_ns) {
            flows->now_ns = sp_larger(flows->now_ns, until_ns);
            break;
        }
        flows->now_ns = next_ns;
        do {
            int32_t index = flows->events[0].flow;
            const sp_i_flow *flow = &flows->flow[index];
            if (flow->state == SP_I_FLOW_WAITS && flow->bytes_left > 0.0) {
                sift_down(flows, 0, (sp_i_event){NEVER_NS, index});
                begin(flows, index);
            } else {
                end(flows, index);
            }
        } while (next_event_ns(flows) == next_ns);
    }
    return flows->now_ns;
}

// When the first event is; NEVER_NS where there is none.
static int64_t next_event_ns(sp_flows *flows)
{
    while (flows->event_count > 0) {
        const sp_i_event event = flows->events[0];
        sp_i_flow *flow = &flows->flow[event.flow];
        if (!flow->is_late) {
            return event.at_ns;
        }
        flow->is_late = false;
        sift_down(flows, 0, (sp_i_event){end_of(flows, flow), event.flow});
    }
    return NEVER_NS;
}

// A flow that begins now goes to the end of the heap and not through it.
static void begin_or_wait(sp_flows *flows, int32_t index)
{
    const sp_i_flow *flow = &flows->flow[index];
    int64_t begins_ns = after(flow, 0.0);
    bool is_now = begins_ns <= flows->now_ns && flow->bytes_left > 0.0;
    push_event(flows, (sp_i_event){is_now ? NEVER_NS : begins_ns, index});
    if (is_now) {
        begin(flows, index);
    }
}

// Its end is known once it has a rate; until then its event is none.
static void begin(sp_flows *flows, int32_t index)
{
    sp_i_flow *flow = &flows->flow[index];
    flow->state = SP_I_FLOW_RUNS;
    flow->is_new = true;
    flow->rate = flow->most;
    flow->is_open = true;
    flows->open[flows->open_count++] = index;
    sp_i_flows_enter_links(flows, flow);
    flows->counts.events++;
}

static void end(sp_flows *flows, int32_t index)
{
    sp_i_flow *flow = &flows->flow[index];
    pop_event(flows);
    flows->counts.events++;
    if (flow->state == SP_I_FLOW_RUNS) {
        sp_i_flows_leave_links(flows, flow);
    }
    flow->state = SP_I_FLOW_UNUSED;
    flows->ended[flows->ended_count++] = (sp_flow_end){index, flow->tag};
    sp_i_flows_give_back_hops(flows, flow);
    flow->first_hop = flows->unused_flow;
    flows->unused_flow = index;
    flows->crossings -= flow->crossings;
    flows->running--;
}

// The most is given as it was stated, not in units.
static double rate_of(const sp_flows *flows, const sp_i_flow *flow)
{
    return flow->rate == flow->most ? flow->most_bytes_per_s : (double)flow->rate * flows->unit;
}

static int64_t end_of(const sp_flows *flows, const sp_i_flow *flow)
{
    return sp_larger(after(flow, flow->bytes_left / rate_of(flows, flow)), flows->now_ns);
}

// Half a nanosecond of a flow may be left over at its rounded end, or taken too much. The event of
// a flow that is slowed down stays where it is until its time has come.
void sp_i_flows_set_rate(sp_flows *flows, sp_i_flow *flow, int64_t rate)
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
        const sp_i_event now = flows->events[flow->heap_at];
        const sp_i_event event = {end_of(flows, flow), now.flow};
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
    sp_i_flows_share(flows);
    return rate_of(flows, &flows->flow[flow]);
}

double sp_flows_link_bytes_per_s(sp_flows *flows, int32_t link)
{
    sp_i_flows_share(flows);
    int64_t used = 0;
    for (int32_t h = flows->links[link].first; h != SP_I_NONE; h = flows->hops[h].next) {
        used += flows->hops[h].times * flows->flow[flows->hops[h].flow].rate;
    }
    return (double)used * flows->unit;
}

sp_flows_counts sp_flows_count(const sp_flows *flows)
{
    return flows->counts;
}
