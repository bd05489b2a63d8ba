// The times at which flows end, by SimGrid and by sim/network/flows.h: random problems side by side
// in one run of each, since problems that share no link do not touch each other. SimGrid takes
// longer than in proportion to its actors, so that many problems are several runs, each in a
// process of its own.
#include "sim/network/flows.h"
#include "tests/support/simgrid/simgrid_peer.h"
#include "tests/support/test_main.h"

enum { LINKS = 8, FLOWS = 8, MOST_HOPS = 4, PROBLEMS = 200, RUNS = 50 };

typedef struct problems {
    int count;
    double *link_bytes_per_s;
    sp_flow *flow;
    sp_flow_hop *hops;
    int *path_of;
    double *theirs_s;
    int64_t *ours_ns;
} problems;

static double between(sp_prng *prng, double least, double most)
{
    return least * pow(most / least, sp_prng_uniform(prng));
}

static void draw_flow(sp_prng *prng, problems *p, int problem, int index)
{
    sp_flow_hop *path = &p->hops[index * MOST_HOPS];
    int hops = 1 + prng_below(prng, MOST_HOPS);
    int first = prng_below(prng, LINKS);
    int stride = 1 + 2 * prng_below(prng, LINKS / 2); // odd, so that no link comes twice
    for (int h = 0; h < hops; h++) {
        path[h] = (sp_flow_hop){problem * LINKS + (first + h * stride) % LINKS, 1};
    }
    p->path_of[index] = index;
    p->flow[index] = (sp_flow){.start_ns = prng_below(prng, 500000000),
                               .latency_s = prng_below(prng, 2) * 1e-5,
                               .bytes = floor(between(prng, 1e8, 1e10)),
                               .path = path,
                               .hops = hops,
                               .tag = index};
}

static problems drawn(uint64_t seed, int count)
{
    sp_prng prng = prng_seeded(seed);
    size_t flows = (size_t)count * FLOWS;
    problems p = {count,
                  calloc((size_t)count * LINKS, sizeof(double)),
                  calloc(flows, sizeof(sp_flow)),
                  calloc(flows * MOST_HOPS, sizeof(sp_flow_hop)),
                  calloc(flows, sizeof(int)),
                  calloc(flows, sizeof(double)),
                  calloc(flows, sizeof(int64_t))};
    for (int i = 0; i < count * LINKS; i++) {
        p.link_bytes_per_s[i] = floor(between(&prng, 1e9, 1e11));
    }
    for (int i = 0; i < count * FLOWS; i++) {
        draw_flow(&prng, &p, i / FLOWS, i);
    }
    return p;
}

static void run_ours(problems *p)
{
    sp_flows *flows = NULL;
    must_succeed(sp_flows_new(p->link_bytes_per_s, p->count * LINKS, &flows, ERR));
    for (int i = 0; i < p->count * FLOWS; i++) {
        must_succeed(sp_flows_start(flows, &p->flow[i], NULL, ERR));
    }
    while (sp_flows_left(flows) > 0) {
        int32_t ended;
        int64_t now_ns = sp_flows_advance(flows, INT64_MAX);
        const sp_flow_end *end = sp_flows_ended(flows, &ended);
        for (int32_t i = 0; i < ended; i++) {
            p->ours_ns[end[i].tag] = now_ns;
        }
    }
    sp_flows_free(flows);
}

static void run_simgrid(const void *of, double *ends_s)
{
    const problems *p = of;
    int flows = p->count * FLOWS;
    simgrid_run_flows(&(simgrid_problem){.link_bytes_per_s = p->link_bytes_per_s,
                                         .links = p->count * LINKS,
                                         .flows = p->flow,
                                         .path_of = p->path_of,
                                         .count = flows,
                                         .paths = flows},
                      ends_s);
}

static double compare_run(uint64_t seed)
{
    problems p = drawn(seed, PROBLEMS);
    double worst = 0.0;
    run_ours(&p);
    simgrid_apart(run_simgrid, &p, p.theirs_s, p.count * FLOWS);
    for (int i = 0; i < p.count * FLOWS; i++) {
        assert_close((double)p.ours_ns[i] * 1e-9, p.theirs_s[i], 1e-6);
        worst = fmax(worst, fabs((double)p.ours_ns[i] * 1e-9 / p.theirs_s[i] - 1.0));
    }
    free(p.link_bytes_per_s);
    free(p.flow);
    free(p.hops);
    free(p.path_of);
    free(p.theirs_s);
    free(p.ours_ns);
    return worst;
}

// 10,000 problems in a full run (SP_TEST_FULL=1).
TEST(times_are_those_of_simgrid)
{
    int runs = test_is_full() ? RUNS : 1;
    double worst = 0.0;
    for (int run = 0; run < runs; run++) {
        worst = fmax(worst, compare_run((uint64_t)run + 1));
    }
    printf("%d problems of %d flows, largest difference %.2g\n", runs * PROBLEMS, FLOWS, worst);
}
