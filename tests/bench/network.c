// Events of flows per second on one core, beside SimGrid on the same problems in the same run where
// it is installed. All problems are traffic of 1,024 GPUs, each with a NIC of its own, over rails
// that a spine joins; they differ in who talks to whom. One JSON line for each problem on stdout.
#include <math.h>
#include <stdlib.h>

#include "sim/base/prng.h"
#include "sim/network/flows.h"
#include "tests/bench/bench.h"
#ifdef SP_SIMGRID
#include "tests/support/simgrid/simgrid_peer.h"
#endif

enum { GPUS = 1024, RAILS = 8, FLOWS = 6000, HOPS = 4, PARTNERS = 4, PATHS = GPUS * PARTNERS };
enum { LINKS = 2 * GPUS + 2 * RAILS, REPEATS = 9 };

#define NIC_BYTES_PER_S 50e9
#define MEAN_BYTES 64e6

typedef struct problem {
    const char *name;
    double link_bytes_per_s[LINKS];
    sp_flow_hop path[PATHS][HOPS];
    int hops[PATHS];
    sp_flow flow[FLOWS];
    int path_of[FLOWS];
} problem;

// Whom GPU `gpu` sends to, as its `which`-th partner.
typedef int partner_function(sp_prng *prng, int gpu, int which);

// The next pipeline stage, the one before it, and the neighbours in the data-parallel ring.
static int neighbour(sp_prng *prng, int gpu, int which)
{
    static const int step[PARTNERS] = {128, GPUS - 128, RAILS, GPUS - RAILS};
    return (gpu + step[which]) % GPUS;
}

// Ring neighbours alone: no NIC has two flows in one direction but by chance.
static int next(sp_prng *prng, int gpu, int which)
{
    return (gpu + RAILS) % GPUS;
}

static int anyone(sp_prng *prng, int gpu, int which)
{
    int other = (int)sp_prng_below(prng, GPUS - 1);
    return other >= gpu ? other + 1 : other;
}

// Many to few, as to storage: 32 GPUs receive all.
static int a_few(sp_prng *prng, int gpu, int which)
{
    int other = 32 * (int)sp_prng_below(prng, GPUS / 32);
    return other != gpu ? other : (other + 32) % GPUS;
}

static void set_path(problem *p, int index, int from, int to)
{
    int n = 0;
    p->path[index][n++] = (sp_flow_hop){from, 1};
    if (from % RAILS != to % RAILS) {
        p->path[index][n++] = (sp_flow_hop){2 * GPUS + from % RAILS, 1};
        p->path[index][n++] = (sp_flow_hop){2 * GPUS + RAILS + to % RAILS, 1};
    }
    p->path[index][n++] = (sp_flow_hop){GPUS + to, 1};
    p->hops[index] = n;
}

// Flows arrive at random such that `busy` of each GPU's NIC are asked for.
static problem *draw(const char *name, partner_function *partner, double busy)
{
    problem *p = calloc(1, sizeof *p);
    if (p == NULL) {
        exit(1);
    }
    sp_prng prng;
    sp_prng_seed(&prng, 1);
    p->name = name;
    for (int i = 0; i < LINKS; i++) {
        p->link_bytes_per_s[i] = i < 2 * GPUS ? NIC_BYTES_PER_S : NIC_BYTES_PER_S * GPUS / RAILS;
    }
    for (int i = 0; i < PATHS; i++) {
        set_path(p, i, i / PARTNERS, partner(&prng, i / PARTNERS, i % PARTNERS));
    }
    double at_s = 0.0;
    double mean_s = MEAN_BYTES / (NIC_BYTES_PER_S * GPUS * busy);
    for (int i = 0; i < FLOWS; i++) {
        int path = (int)sp_prng_below(&prng, PATHS);
        at_s -= mean_s * log(1.0 - sp_prng_uniform(&prng));
        p->path_of[i] = path;
        p->flow[i] = (sp_flow){.start_ns = (int64_t)(at_s * 1e9),
                               .bytes = floor(2.0 * MEAN_BYTES * sp_prng_uniform(&prng)) + 1.0,
                               .path = p->path[path],
                               .hops = p->hops[path],
                               .tag = i};
    }
    return p;
}

typedef struct answer {
    double ends_s[FLOWS];
    double seconds;
    sp_flows_counts counts;
    double running; // flows at a time, mean over events
} answer;

// As a simulation gives them: each flow when its time has come, on a network that has been used.
static void run(const problem *p, sp_flows *flows, answer *a)
{
    sp_error err = {0};
    double sum = 0.0;
    int64_t steps = 0;
    sp_flows_counts before = sp_flows_count(flows);
    int64_t first_ns = sp_flows_advance(flows, 0);
    double started = thread_clock_s();
    for (int i = 0; i < FLOWS || sp_flows_left(flows) > 0;) {
        int64_t until_ns = i < FLOWS ? first_ns + p->flow[i].start_ns : INT64_MAX;
        int64_t now_ns = sp_flows_advance(flows, until_ns);
        int32_t ended;
        const sp_flow_end *end = sp_flows_ended(flows, &ended);
        for (int32_t k = 0; k < ended; k++) {
            a->ends_s[end[k].tag] = (double)(now_ns - first_ns) * 1e-9;
        }
        sum += sp_flows_left(flows);
        steps++;
        for (; i < FLOWS && first_ns + p->flow[i].start_ns == now_ns; i++) {
            sp_flow flow = p->flow[i];
            flow.start_ns = now_ns;
            require(sp_flows_start(flows, &flow, NULL, &err), &err);
        }
    }
    a->seconds = thread_clock_s() - started;
    a->counts = sp_flows_count(flows);
    a->counts.events -= before.events;
    a->counts.hops -= before.hops;
    a->running = sum / (double)steps;
}

#ifdef SP_SIMGRID
typedef struct compared {
    const problem *p;
    const answer *ours;
} compared;

// Its seconds, and the largest difference of an end in ns.
static void run_peer(const void *of, double results[2])
{
    const compared *c = of;
    double *theirs_s = calloc(FLOWS, sizeof *theirs_s);
    results[0] = simgrid_run_flows(&(simgrid_problem){.link_bytes_per_s = c->p->link_bytes_per_s,
                                                      .links = LINKS,
                                                      .flows = c->p->flow,
                                                      .path_of = c->p->path_of,
                                                      .count = FLOWS,
                                                      .paths = PATHS},
                                   theirs_s);
    for (int i = 0; i < FLOWS; i++) {
        results[1] = fmax(results[1], 1e9 * fabs(c->ours->ends_s[i] - theirs_s[i]));
    }
}
#endif

// Seconds of SimGrid's simulation, 0 where it is not there; *difference_ns: the largest of an end.
static double run_simgrid(const problem *p, const answer *ours, double *difference_ns)
{
    double results[2] = {0};
#ifdef SP_SIMGRID
    simgrid_apart(run_peer, &(compared){p, ours}, results, 2);
#else
#endif
    *difference_ns = results[1];
    return results[0];
}

// Bytes per second that one core reads and writes where it goes through 256 KiB again and again:
// about what the links and flows of such a problem take.
static double cache_bytes_per_s(void)
{
    enum { WORDS = 1 << 15, ROUNDS = 2000 };
    static int64_t words[WORDS];
    double best = 0.0;
    for (int r = 0; r < REPEATS; r++) {
        double started = thread_clock_s();
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i < WORDS; i++) {
                words[i] += i ^ round;
            }
        }
        double rate = (double)ROUNDS * sizeof words / (thread_clock_s() - started);
        best = words[r] != -1 && rate > best ? rate : best;
    }
    return best;
}

// What a hop whose rate is found must read and write: its link's rate, what of it is used, what is
// left for how many, and the hop. An event is moved through a heap of four children a level.
static double bytes_of_event(const answer *a)
{
    double hops = (double)a->counts.hops / (double)a->counts.events;
    return hops * 2.0 * (4 * 8 + 20) + 24.0 * 2.0 * fmax(1.0, log2(a->running) / 2.0);
}

static void measure(const char *name, partner_function *partner, double busy, double limit_rate)
{
    problem *p = draw(name, partner, busy);
    answer *a = calloc(1, sizeof *a);
    double seconds[REPEATS];
    double difference_ns;
    sp_error err = {0};
    sp_flows *flows;
    if (a == NULL) {
        exit(1);
    }
    require(sp_flows_new(p->link_bytes_per_s, LINKS, &flows, &err), &err);
    run(p, flows, a);
    for (int i = 0; i < REPEATS; i++) {
        run(p, flows, a);
        seconds[i] = a->seconds;
    }
    qsort(seconds, REPEATS, sizeof seconds[0], sp_ascending_doubles);
    double events = (double)a->counts.events;
    double limit_s = bytes_of_event(a) * events / limit_rate;
    double peer_s = run_simgrid(p, a, &difference_ns);
    printf(
        "{\"bench\": \"network\", \"version\": \"%s\", \"compiler\": \"%s\", \"problem\": \"%s\", "
        "\"repeats\": %d, \"flows\": %d, \"flows_at_a_time\": %.1f, \"hops_per_event\": %.1f, "
        "\"events_per_s\": %.4g, \"events_per_s_least\": %.4g, \"ns_per_event\": %.0f, "
        "\"limit_ns_per_event\": %.1f, \"over_limit\": %.1f",
        SP_VERSION, __VERSION__, name, REPEATS, FLOWS, a->running, (double)a->counts.hops / events,
        events / seconds[REPEATS / 2], events / seconds[REPEATS - 1],
        seconds[REPEATS / 2] / events * 1e9, limit_s / events * 1e9,
        seconds[REPEATS / 2] / limit_s);
    if (peer_s > 0.0) {
        printf(", \"simgrid_events_per_s\": %.4g, \"simgrid_over_ours\": %.1f, "
               "\"largest_difference_ns\": %.2g",
               events / peer_s, peer_s / seconds[REPEATS / 2], difference_ns);
    }
    printf("}\n");
    fflush(stdout);
    sp_flows_free(flows);
    free(a);
    free(p);
}

int main(void)
{
    double limit_rate = cache_bytes_per_s();
    measure("ring", next, 0.1, limit_rate);
    measure("neighbours", neighbour, 0.3, limit_rate);
    measure("neighbours, busy", neighbour, 0.7, limit_rate);
    measure("anyone", anyone, 0.3, limit_rate);
    measure("anyone, busy", anyone, 0.7, limit_rate);
    measure("a few receive", a_few, 0.02, limit_rate);
    return 0;
}
