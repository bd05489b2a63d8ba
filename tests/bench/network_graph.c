// Steps with all their data-, context- and pipeline-parallel traffic as flows, beside SimGrid on
// the same graphs of tasks in the same run. Ours is the whole simulation, with routes and memory;
// of SimGrid its run alone, once platform and tasks are there. One JSON line for each step on
// stdout.
#include <math.h>
#include <stdlib.h>

#include "sim/base/order.h"
#include "sim/base/prng.h"
#include "sim/simulate/engine.h"
#include "tests/bench/bench.h"
#include "tests/support/simgrid/drawn_step.h"
#include "tests/support/simgrid/step_graph.h"

enum { REPEATS = 9 };

static double simulate(const drawn_step *s, double *end_s)
{
    const sp_engine_options options = {.network = &s->network};
    sp_error err = {0};
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts;
    double started = thread_clock_s();
    require(sp_simulate(&s->plan, &s->costs, &options, &timeline, &memory, &counts, &err), &err);
    double seconds = thread_clock_s() - started;
    *end_s = (double)timeline.iteration_ns * 1e-9;
    sp_memory_timeline_fini(&memory);
    sp_timeline_fini(&timeline);
    return seconds;
}

// Its seconds, and when the last gather ends.
static void run_peer(const void *of, double results[2])
{
    const step_graph *g = of;
    double *ends_s = calloc((size_t)g->graph.count, sizeof *ends_s);
    if (ends_s == NULL) {
        exit(1);
    }
    results[0] = simgrid_run_graph(&g->graph, ends_s);
    for (int i = 0; i < g->graph.count; i++) {
        results[1] = fmax(results[1], ends_s[i]);
    }
}

static void measure(sp_layout layout, int microbatches)
{
    sp_prng prng;
    drawn_step s;
    step_graph g;
    double seconds[REPEATS];
    double end_s, peer[2] = {0};
    sp_prng_seed(&prng, 1);
    drawn_step_make(&prng, layout, SP_SCHEDULE_1F1B, microbatches, &s);
    step_graph_make(&s.plan, &s.costs, &s.network, &g);
    simulate(&s, &end_s);
    for (int i = 0; i < REPEATS; i++) {
        seconds[i] = simulate(&s, &end_s);
    }
    qsort(seconds, REPEATS, sizeof seconds[0], sp_ascending_doubles);
    simgrid_apart(run_peer, &g, peer, 2);
    printf("{\"bench\": \"network_graph\", \"version\": \"%s\", \"compiler\": \"%s\", "
           "\"repeats\": %d, \"gpus\": %lld, \"tasks\": %d, \"flows\": %d, \"edges\": %d, "
           "\"simulate_s\": %.4g, \"simgrid_s\": %.4g, \"simgrid_over_ours\": %.1f, "
           "\"step_ms\": %.3f, \"relative_difference\": %.2g}\n",
           SP_VERSION, __VERSION__, REPEATS, (long long)sp_layout_ranks(&layout), g.graph.count,
           g.graph.network.count, g.graph.edge_count, seconds[REPEATS / 2], peer[0],
           peer[0] / seconds[REPEATS / 2], end_s * 1e3, fabs(end_s / peer[1] - 1.0));
    fflush(stdout);
    step_graph_fini(&g);
    drawn_step_fini(&s);
}

int main(void)
{
    for (int dp = 4; dp <= 16; dp *= 2) { // with 64 SimGrid takes minutes
        measure((sp_layout){.tp = 2, .cp = 2, .pp = 4, .dp = dp, .chunks = 1, .zero = 1}, 16);
    }
    return 0;
}
