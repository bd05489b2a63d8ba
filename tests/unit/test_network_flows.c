// Flows that share links. Rates are held against the definition of max-min fairness, against a
// plain filling that is written here by itself, and against a published example; times against a
// simulation that finds all rates anew at every event.
#include "tests/support/test_main.h"

#include "sim/network/flows.h"

OWNS(sp_flows)

enum { MOST_LINKS = 10, MOST_HOPS = 5, MOST = 40 };

typedef struct drawn_flow {
    sp_flow given;
    sp_flow_hop path[MOST_HOPS];
} drawn_flow;

typedef struct problem {
    int links, flows;
    double bytes_per_s[MOST_LINKS];
    drawn_flow flow[MOST];
} problem;

static double between(sp_prng *prng, double least, double most)
{
    return least * pow(most / least, sp_prng_uniform(prng));
}

static void draw_path(sp_prng *prng, const problem *p, drawn_flow *flow)
{
    int most = p->links < MOST_HOPS ? p->links : MOST_HOPS;
    int hops = 1 + prng_below(prng, most);
    int first = prng_below(prng, p->links);
    for (int i = 0; i < hops; i++) {
        int times = prng_below(prng, 4) == 0 ? 2 : 1;
        flow->path[i] = (sp_flow_hop){(first + i * 3) % p->links, times};
        for (int j = 0; j < i; j++) {
            if (flow->path[j].link == flow->path[i].link) {
                hops = i;
            }
        }
    }
    flow->given.path = flow->path;
    flow->given.hops = hops;
}

// Every other problem has few different numbers, so that much happens at the same time.
static void draw(sp_prng *prng, problem *p)
{
    bool is_even = prng_below(prng, 2) == 0;
    p->links = 1 + prng_below(prng, MOST_LINKS);
    p->flows = 1 + prng_below(prng, MOST);
    for (int i = 0; i < p->links; i++) {
        p->bytes_per_s[i] = is_even ? 12.5e9 * (1 + prng_below(prng, 2)) : between(prng, 1e9, 1e12);
    }
    for (int i = 0; i < p->flows; i++) {
        drawn_flow *flow = &p->flow[i];
        flow->given =
            (sp_flow){.start_ns = is_even ? 1000 * prng_below(prng, 3) : prng_below(prng, 2000000),
                      .latency_s = prng_below(prng, 2) * 3.1e-6,
                      .bytes = is_even ? 1e6 : between(prng, 1e2, 1e8),
                      .most_bytes_per_s = prng_below(prng, 4) == 0 ? between(prng, 1e9, 1e11) : 0.0,
                      .tag = i};
        draw_path(prng, p, flow);
    }
}

static sp_flows *made(const double *bytes_per_s, int links)
{
    sp_flows *flows = NULL;
    must_succeed(sp_flows_new(bytes_per_s, links, &flows, ERR));
    return flows;
}

static int32_t started(sp_flows *flows, const sp_flow *flow)
{
    int32_t id = -1;
    must_succeed(sp_flows_start(flows, flow, &id, ERR));
    return id;
}

// Ends of all flows of a problem, by tag; order[i] is the i-th flow to be added.
static void run(const problem *p, const int *order, int64_t *ends_ns)
{
    OWNED(sp_flows) flows = made(p->bytes_per_s, p->links);
    for (int i = 0; i < p->flows; i++) {
        started(flows, &p->flow[order != NULL ? order[i] : i].given);
    }
    int left = p->flows;
    while (left > 0) {
        int64_t now_ns = sp_flows_advance(flows, INT64_MAX);
        int32_t ended;
        const sp_flow_end *end = sp_flows_ended(flows, &ended);
        assert_true(ended > 0);
        for (int32_t i = 0; i < ended; i++) {
            ends_ns[end[i].tag] = now_ns;
        }
        left -= ended;
        assert_int_equal(sp_flows_left(flows), left);
    }
}

// ---- what must hold ----

TEST(flows_on_one_link_get_equal_parts_of_it)
{
    const double rate = 25e9;
    for (int k = 1; k <= MOST; k++) {
        OWNED(sp_flows) flows = made(&rate, 1);
        const sp_flow_hop path = {0, 1};
        int32_t id[MOST];
        for (int i = 0; i < k; i++) {
            id[i] = started(flows, &(sp_flow){.bytes = 25e9, .path = &path, .hops = 1});
        }
        assert_int_equal(sp_flows_advance(flows, 0), 0);
        for (int i = 0; i < k; i++) {
            assert_close(sp_flows_bytes_per_s(flows, id[i]), rate / k, 1e-15);
        }
        assert_int_equal(sp_flows_advance(flows, INT64_MAX), k * INT64_C(1000000000));
        assert_int_equal(sp_flows_left(flows), 0);
    }
}

// Bertsekas, Gallager: Data Networks, section 6.5.2, figure 6.14: links of capacity 1, sessions 2,
// 3 and 5 share one of them; session 1 shares another with session 3, and session 4 has one alone.
TEST(the_rates_of_the_book_come_out)
{
    const double capacity[] = {1e9, 1e9, 1e9};
    const sp_flow_hop shared = {1, 1};
    const sp_flow_hop first = {0, 1};
    const sp_flow_hop both[] = {{0, 1}, {1, 1}};
    const sp_flow_hop last = {2, 1};
    const struct {
        const sp_flow_hop *path;
        int hops;
        double rate;
    } sessions[] = {{&first, 1, 2e9 / 3},
                    {&shared, 1, 1e9 / 3},
                    {both, 2, 1e9 / 3},
                    {&last, 1, 1e9},
                    {&shared, 1, 1e9 / 3}};
    OWNED(sp_flows) flows = made(capacity, 3);
    int32_t id[5];
    for (int i = 0; i < 5; i++) {
        id[i] = started(
            flows, &(sp_flow){.bytes = 1e9, .path = sessions[i].path, .hops = sessions[i].hops});
    }
    sp_flows_advance(flows, 0);
    for (int i = 0; i < 5; i++) {
        assert_close(sp_flows_bytes_per_s(flows, id[i]), sessions[i].rate, 1e-15);
    }
}

// As the closed formula has it: latency and bytes over rate, rounded once.
TEST_ROUNDS(a_flow_that_shares_nothing_ends_by_the_closed_formula, 1, test_rounds(20000))
{
    double rates[3];
    sp_flow_hop path[3];
    double least = HUGE_VAL;
    for (int i = 0; i < 3; i++) {
        rates[i] = between(prng, 1e6, 1e12);
        path[i] = (sp_flow_hop){i, 1};
        least = fmin(least, rates[i]);
    }
    double most = prng_below(prng, 2) * between(prng, 1e2, 1e12);
    least = most > 0.0 ? fmin(least, most) : least;
    sp_flow flow = {.start_ns = prng_below(prng, 1000000000),
                    .latency_s = prng_below(prng, 2) * between(prng, 1e-9, 1e-3),
                    .bytes = ceil(least * between(prng, 1e-9, 1e3)),
                    .most_bytes_per_s = most,
                    .path = path,
                    .hops = 3};
    OWNED(sp_flows) flows = made(rates, 3);
    started(flows, &flow);
    int64_t expected = flow.start_ns + llround((flow.latency_s + flow.bytes / least) * 1e9);
    assert_int_equal(sp_flows_advance(flows, INT64_MAX), expected);
}

TEST_ROUNDS(the_order_in_which_flows_are_given_changes_no_time, 2, test_rounds(1500))
{
    problem p;
    int64_t first[MOST], second[MOST];
    int order[MOST];
    draw(prng, &p);
    run(&p, NULL, first);
    for (int i = 0; i < p.flows; i++) {
        int j = prng_below(prng, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    run(&p, order, second);
    assert_memory_equal(first, second, (size_t)p.flows * sizeof first[0]);
}

// Each of the events before an end may have moved it by half a nanosecond.
TEST_ROUNDS(a_network_of_twice_the_rate_takes_half_the_time, 3, test_rounds(1000))
{
    problem p;
    int64_t once[MOST], twice[MOST];
    draw(prng, &p);
    for (int i = 0; i < p.flows; i++) {
        p.flow[i].given.latency_s = 0.0;
        p.flow[i].given.start_ns = 0;
    }
    run(&p, NULL, once);
    for (int i = 0; i < p.links; i++) {
        p.bytes_per_s[i] *= 2.0;
    }
    for (int i = 0; i < p.flows; i++) {
        p.flow[i].given.most_bytes_per_s *= 2.0;
    }
    run(&p, NULL, twice);
    for (int i = 0; i < p.flows; i++) {
        assert_within((double)twice[i], 0.5 * (double)once[i], 2.0 * p.flows);
    }
}

// ---- against what is found anew at every event ----

typedef struct moment {
    bool runs[MOST];
    double rate[MOST];
} moment;

static double taken(const problem *p, int flow, int link)
{
    for (int i = 0; i < p->flow[flow].given.hops; i++) {
        if (p->flow[flow].path[i].link == link) {
            return p->flow[flow].path[i].times;
        }
    }
    return 0.0;
}

// Progressive filling as the book states it: the link with the least for each of its flows first.
static void fill_plainly(const problem *p, moment *m)
{
    bool is_set[MOST];
    for (int i = 0; i < p->flows; i++) {
        is_set[i] = !m->runs[i];
        m->rate[i] = 0.0;
    }
    for (;;) {
        double least = HUGE_VAL;
        int link = -1, alone = -1;
        for (int l = 0; l < p->links; l++) {
            double left = p->bytes_per_s[l], count = 0.0;
            for (int i = 0; i < p->flows; i++) {
                left -= taken(p, i, l) * m->rate[i];
                count += is_set[i] ? 0.0 : taken(p, i, l);
            }
            if (count > 0.0 && left / count < least) {
                least = left / count;
                link = l;
            }
        }
        for (int i = 0; i < p->flows; i++) {
            double most = p->flow[i].given.most_bytes_per_s;
            if (!is_set[i] && most > 0.0 && most < least) {
                least = most;
                alone = i;
            }
        }
        if (link < 0) {
            return;
        }
        for (int i = 0; i < p->flows; i++) {
            if (!is_set[i] && (alone >= 0 ? i == alone : taken(p, i, link) > 0.0)) {
                m->rate[i] = least;
                is_set[i] = true;
            }
        }
    }
}

// Times in nanoseconds as real numbers, each event by itself.
static void run_plainly(const problem *p, double *ends_ns)
{
    moment m = {0};
    double left[MOST], begin_ns[MOST];
    bool is_over[MOST] = {0};
    double now_ns = 0.0;
    for (int i = 0; i < p->flows; i++) {
        left[i] = p->flow[i].given.bytes;
        begin_ns[i] = (double)p->flow[i].given.start_ns + p->flow[i].given.latency_s * 1e9;
    }
    for (int over = 0; over < p->flows;) {
        double next_ns = HUGE_VAL;
        int next = -1;
        fill_plainly(p, &m);
        for (int i = 0; i < p->flows; i++) {
            double at_ns = m.runs[i] ? now_ns + left[i] / m.rate[i] * 1e9 : begin_ns[i];
            if (!is_over[i] && at_ns < next_ns) {
                next_ns = at_ns;
                next = i;
            }
        }
        for (int i = 0; i < p->flows; i++) {
            left[i] -= m.runs[i] ? m.rate[i] * (next_ns - now_ns) * 1e-9 : 0.0;
            left[i] = fmax(left[i], 0.0);
        }
        now_ns = next_ns;
        if (m.runs[next]) {
            ends_ns[next] = now_ns;
            is_over[next] = true;
            over++;
        }
        m.runs[next] = !m.runs[next];
    }
}

TEST_ROUNDS(times_are_those_of_rates_found_anew_at_every_event, 4, test_rounds(1000))
{
    problem p;
    int64_t ends_ns[MOST];
    double plain_ns[MOST];
    draw(prng, &p);
    run(&p, NULL, ends_ns);
    run_plainly(&p, plain_ns);
    for (int i = 0; i < p.flows; i++) {
        assert_within((double)ends_ns[i], plain_ns[i], 2.0 * p.flows);
    }
}

// ---- the definition, at every event of larger problems ----

enum { MANY = 300, MANY_LINKS = 60 };

typedef struct large {
    double bytes_per_s[MANY_LINKS];
    double carried[MANY_LINKS], bytes[MANY_LINKS], expected_bytes[MANY_LINKS];
    sp_flow_hop path[MANY][3];
    double most[MANY];
    int32_t id[MANY]; // -1: not under way
} large;

// Of some link that the flow is on: full, and no flow on it has more. Or it has its most.
static bool is_held_back(const large *p, int flow, const double *rate)
{
    bool is_held = p->most[flow] > 0.0 && rate[flow] >= p->most[flow] * (1.0 - 1e-12);
    for (int h = 0; h < 3; h++) {
        int link = p->path[flow][h].link;
        bool is_best = p->carried[link] >= p->bytes_per_s[link] * (1.0 - 1e-9);
        for (int i = 0; i < MANY && is_best; i++) {
            for (int k = 0; k < 3 && p->id[i] >= 0; k++) {
                is_best =
                    is_best && (p->path[i][k].link != link || rate[i] <= rate[flow] * (1.0 + 1e-9));
            }
        }
        is_held = is_held || is_best;
    }
    return is_held;
}

static void check_rates(sp_flows *flows, large *p)
{
    double rate[MANY];
    memset(p->carried, 0, sizeof p->carried);
    for (int i = 0; i < MANY; i++) {
        rate[i] = p->id[i] >= 0 ? sp_flows_bytes_per_s(flows, p->id[i]) : 0.0;
        for (int h = 0; h < 3; h++) {
            p->carried[p->path[i][h].link] += p->path[i][h].times * rate[i];
        }
    }
    for (int l = 0; l < MANY_LINKS; l++) {
        assert_true(p->carried[l] <= p->bytes_per_s[l] * (1.0 + 1e-12));
    }
    for (int i = 0; i < MANY; i++) {
        if (p->id[i] >= 0) {
            assert_true(rate[i] > 0.0);
            assert_true(is_held_back(p, i, rate));
        }
    }
}

static void start_one(sp_prng *prng, sp_flows *flows, large *p, int i, int64_t now_ns)
{
    int first = prng_below(prng, MANY_LINKS);
    double bytes = between(prng, 1e5, 1e7);
    for (int h = 0; h < 3; h++) {
        int times = 1 + prng_below(prng, 8) / 7;
        p->path[i][h] = (sp_flow_hop){(first + h * (1 + i % 7)) % MANY_LINKS, times};
        p->expected_bytes[p->path[i][h].link] += times * bytes;
    }
    p->most[i] = prng_below(prng, 5) == 0 ? between(prng, 1e9, 1e11) : 0.0;
    p->id[i] = started(flows, &(sp_flow){.start_ns = now_ns,
                                         .bytes = bytes,
                                         .most_bytes_per_s = p->most[i],
                                         .path = p->path[i],
                                         .hops = 3,
                                         .tag = i});
}

static void advance(sp_flows *flows, large *p, int64_t until_ns, int64_t *now_ns)
{
    int64_t before_ns = *now_ns;
    *now_ns = sp_flows_advance(flows, until_ns);
    for (int l = 0; l < MANY_LINKS; l++) {
        p->bytes[l] += p->carried[l] * (double)(*now_ns - before_ns) * 1e-9;
    }
    int32_t ended;
    const sp_flow_end *end = sp_flows_ended(flows, &ended);
    for (int32_t i = 0; i < ended; i++) {
        p->id[end[i].tag] = -1;
    }
}

// With the definition the bytes: each link carries those of its flows, each once.
TEST(rates_are_max_min_fair_at_every_event_and_bytes_arrive_once)
{
    sp_prng prng = prng_seeded(5);
    large p = {0};
    int64_t now_ns = 0;
    for (int l = 0; l < MANY_LINKS; l++) {
        p.bytes_per_s[l] = 1e10 * (1 + prng_below(&prng, 4));
    }
    memset(p.id, -1, sizeof p.id);
    OWNED(sp_flows) flows = made(p.bytes_per_s, MANY_LINKS);
    for (int event = 0; event < test_rounds(800); event++) {
        for (int i = 0; i < 1 + prng_below(&prng, 3); i++) {
            int slot = prng_below(&prng, 20 + 4 * (event % 70));
            if (p.id[slot] < 0) {
                start_one(&prng, flows, &p, slot, now_ns);
            }
        }
        advance(flows, &p, now_ns, &now_ns);
        check_rates(flows, &p);
        advance(flows, &p, now_ns + 200000, &now_ns);
    }
    while (sp_flows_left(flows) > 0) {
        check_rates(flows, &p);
        advance(flows, &p, INT64_MAX, &now_ns);
    }
    for (int l = 0; l < MANY_LINKS; l++) {
        assert_close(p.bytes[l], p.expected_bytes[l], 1e-6);
    }
}

// Flow i is on links i and i + 1, and link i carries flows i - 1 and i, of rates that grow along
// the chain: each flow is held back by its first link. What flow 0 gains flow 1 loses, and flow 2
// gains.
TEST(a_change_travels_along_a_chain)
{
    enum { LENGTH = 300 };
    const double least = 1e9, growth = 1e6, taken_away = 2e5;
    double rates[LENGTH + 1];
    sp_flow_hop path[LENGTH][2];
    int32_t id[LENGTH];
    for (int i = 0; i <= LENGTH; i++) {
        rates[i] = i == 0 ? least : 2.0 * least + (2 * i - 1) * growth;
    }
    OWNED(sp_flows) flows = made(rates, LENGTH + 1);
    for (int i = 0; i < LENGTH; i++) {
        path[i][0] = (sp_flow_hop){i, 1};
        path[i][1] = (sp_flow_hop){i + 1, 1};
        id[i] = started(flows, &(sp_flow){.bytes = 1e12, .path = path[i], .hops = 2});
    }
    started(flows,
            &(sp_flow){.bytes = 2e5, .most_bytes_per_s = taken_away, .path = path[0], .hops = 1});
    for (int phase = 0; phase < 2; phase++) {
        for (int i = 0; i < LENGTH; i++) {
            double change = phase == 0 ? (i % 2 == 0 ? -taken_away : taken_away) : 0.0;
            double expected = least + i * growth + change;
            assert_close(sp_flows_bytes_per_s(flows, id[i]), expected, 1e-12);
        }
        sp_flows_advance(flows, INT64_C(1000000000));
    }
}

// ---- costs and refusals ----

TEST(a_change_does_not_reach_flows_that_share_nothing_with_it)
{
    double rates[200];
    sp_flow_hop path[100][2];
    for (int i = 0; i < 200; i++) {
        rates[i] = 1e9;
    }
    OWNED(sp_flows) flows = made(rates, 200);
    for (int i = 0; i < 100; i++) {
        path[i][0] = (sp_flow_hop){2 * i, 1};
        path[i][1] = (sp_flow_hop){2 * i + 1, 1};
        started(flows, &(sp_flow){.bytes = 1e9, .path = path[i], .hops = 2});
    }
    sp_flows_advance(flows, 0);
    int64_t before = sp_flows_count(flows).hops;
    started(flows, &(sp_flow){.bytes = 1e9, .path = path[50], .hops = 2});
    sp_flows_advance(flows, 1);
    // Once the new flow, which finds nothing left, then both.
    assert_true(sp_flows_count(flows).hops - before <= 6);
}

TEST(nothing_takes_as_long_as_its_latency)
{
    const double rate = 1e9;
    const sp_flow_hop path = {0, 1};
    OWNED(sp_flows) flows = made(&rate, 1);
    started(flows, &(sp_flow){.start_ns = 5, .latency_s = 7e-6, .path = &path, .hops = 1});
    assert_int_equal(sp_flows_advance(flows, 100), 100);
    assert_int_equal(sp_flows_advance(flows, INT64_MAX), 7005);
}

TEST(rates_that_cannot_be_are_refused)
{
    sp_flows *flows;
    const double none[] = {1e9, 0.0};
    const double apart[] = {1e12, 1.0};
    must_fail(sp_flows_new(none, 2, &flows, ERR), SP_ERR_CONTENT,
              "link 1: expected a rate above 0, got 0");
    must_fail(sp_flows_new(apart, 2, &flows, ERR), SP_ERR_CONTENT,
              "links of 1 and of 1e+12 bytes/s are too far apart for one network");
}
