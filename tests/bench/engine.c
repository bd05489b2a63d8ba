// Speed of the engine at about a million tasks: the walk over the plan by itself and all that
// `simulate` runs, and igraph's topological sort of the dependencies that check the walk, in the
// same run. One JSON line on stdout.
#include <igraph/igraph.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "sim/base/progress.h"
#include "sim/cost/step_costs.h"
#include "sim/metrics/metrics.h"
#include "sim/plan/dependencies.h"
#include "sim/plan/walk.h"
#include "sim/schedule/schedule.h"
#include "sim/simulate/engine.h"
#include "tests/bench/bench.h"
#include "tests/support/uniform_packing.h"

enum { PP = 64, CHUNKS = 2, MICROBATCHES = 3968, REPEATS = 7 };

typedef struct samples {
    double seconds[REPEATS];
} samples;

static double median(samples *s)
{
    qsort(s->seconds, REPEATS, sizeof s->seconds[0], sp_ascending_doubles);
    return s->seconds[REPEATS / 2];
}

static long resident_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

// Bytes per second that one core reads when it streams through memory: the limit of the walk,
// whose work per dependency is one addition and one comparison.
static double stream_bytes_per_s(void)
{
    enum { WORDS = 1 << 25 };
    int64_t *words = malloc(WORDS * sizeof *words);
    double best = 0.0;
    if (words == NULL) {
        return 0.0;
    }
    for (size_t i = 0; i < WORDS; i++) {
        words[i] = (int64_t)i;
    }
    for (int r = 0; r < REPEATS; r++) {
        int64_t sums[8] = {0};
        double started = sp_clock_s();
        for (size_t i = 0; i < WORDS; i += 8) {
            for (size_t j = 0; j < 8; j++) {
                sums[j] += words[i + j];
            }
        }
        double rate = (double)(WORDS * sizeof *words) / (sp_clock_s() - started);
        best = sums[0] > 0 && rate > best ? rate : best;
    }
    free(words);
    return best;
}

static void add_edge(void *context, size_t item, const sp_dependency *dependency)
{
    igraph_vector_int_push_back(context, (igraph_integer_t)dependency->item);
    igraph_vector_int_push_back(context, (igraph_integer_t)item);
}

// Seconds of igraph's topological sorting of the plan's dependencies.
static double igraph_seconds(const sp_plan *plan)
{
    sp_error err = {0};
    sp_plan_items items;
    igraph_vector_int_t ends, order;
    igraph_t graph;
    require(sp_plan_items_init(&items, plan, NULL, false, &err), &err);
    igraph_vector_int_init(&ends, 0);
    igraph_vector_int_init(&order, 0);
    for (size_t v = 0; v < items.count; v++) {
        sp_dependencies(&items, v, add_edge, &ends);
    }
    igraph_create(&graph, &ends, (igraph_integer_t)items.count, IGRAPH_DIRECTED);
    double started = sp_clock_s();
    igraph_topological_sorting(&graph, &order, IGRAPH_OUT);
    double seconds = sp_clock_s() - started;
    igraph_destroy(&graph);
    igraph_vector_int_destroy(&order);
    igraph_vector_int_destroy(&ends);
    sp_plan_items_fini(&items);
    return seconds;
}

typedef struct pricing {
    const sp_plan *plan;
    const sp_step_costs *costs;
    int64_t last_ns;
} pricing;

static sp_status price(void *context, const sp_walk_action *action, sp_walk_outcome *outcome,
                       sp_error *err)
{
    const pricing *p = context;
    outcome->took = sp_action_cost_of(p->plan, p->costs, action->place.action, action->vstage,
                                      action->recomputed);
    return SP_OK;
}

static int64_t transfer_ns(void *context, const sp_plan_place *from, int to)
{
    const pricing *p = context;
    return sp_step_costs_p2p_ns(p->costs, sp_action_is_backward(from->action),
                                (size_t)from->action.pack, from->pp, to, p->plan->layout.pp);
}

int main(void)
{
    sp_error err = {0};
    sp_layout layout = {.tp = 1, .cp = 1, .pp = PP, .dp = 1, .chunks = CHUNKS};
    sp_uniform_costs uniform = {.f_ms = 1.0, .b_ms = 1.0, .w_ms = 0.5, .p2p_ms = 0.01};
    sp_schedule_spec spec = {.kind = SP_SCHEDULE_INTERLEAVED};
    sp_packing packing;
    sp_step_costs costs;
    samples plan_s, walk_s, simulate_s;
    sp_engine_options options = {0};
    sp_engine_counts counts = {0};
    long before_kib = resident_kib();
    uniform_packing(&packing, 1, MICROBATCHES);
    long peak_kib = 0;
    for (int i = 0; i < REPEATS; i++) {
        sp_plan plan;
        sp_timeline timeline;
        sp_memory_timeline memory;
        sp_step_metrics metrics;
        double started = sp_clock_s();
        sp_plan_init(&plan, &layout, &packing);
        require(sp_schedule_generate(&spec, NULL, "bench", &plan, &err), &err);
        plan_s.seconds[i] = sp_clock_s() - started;
        started = sp_clock_s();
        sp_step_costs_uniform(&uniform, &layout, &packing, &costs);
        require(sp_simulate(&plan, &costs, &options, &timeline, &memory, &counts, &err), &err);
        sp_step_metrics_compute(&timeline, &memory, &metrics);
        simulate_s.seconds[i] = sp_clock_s() - started + plan_s.seconds[i];
        peak_kib = resident_kib();
        sp_step_metrics_fini(&metrics);
        sp_memory_timeline_fini(&memory);
        sp_timeline_fini(&timeline);
        sp_step_costs_fini(&costs);
        sp_plan_fini(&plan);
    }
    sp_plan plan;
    sp_plan_init(&plan, &layout, &packing);
    require(sp_schedule_generate(&spec, NULL, "bench", &plan, &err), &err);
    sp_step_costs_uniform(&uniform, &layout, &packing, &costs);
    pricing prices = {.plan = &plan, .costs = &costs};
    const sp_walk_driver driver = {.context = &prices, .run = price, .transfer_ns = transfer_ns};
    for (int i = 0; i < REPEATS; i++) {
        double started = sp_clock_s();
        require(sp_walk(&plan, &driver, NULL, NULL, &err), &err);
        walk_s.seconds[i] = sp_clock_s() - started;
    }
    double sort_s = igraph_seconds(&plan);
    double edges = (double)counts.edges;
    double tasks = (double)counts.tasks;
    // Read once: actions, what they cost and the ends of their inputs; written once: their ends.
    double bytes = tasks * 8.0 + edges * 8.0 + tasks * 8.0;
    double limit_s = bytes / stream_bytes_per_s();
    printf("{\"bench\": \"engine\", \"version\": \"%s\", \"compiler\": \"%s\", \"repeats\": %d, "
           "\"tasks\": %zu, \"edges\": %zu, \"plan_s\": %.4f, \"walk_s\": %.4f, "
           "\"simulate_s\": %.4f, \"walk_ns_per_task\": %.2f, "
           "\"stream_limit_ns_per_task\": %.2f, \"walk_over_limit\": %.1f, "
           "\"igraph_sort_ns_per_task\": %.2f, \"igraph_over_walk\": %.2f, "
           "\"bytes_per_task\": %.1f}\n",
           SP_VERSION, __VERSION__, REPEATS, counts.tasks, counts.edges, median(&plan_s),
           median(&walk_s), median(&simulate_s), median(&walk_s) * 1e9 / tasks,
           limit_s * 1e9 / tasks, median(&walk_s) / limit_s, sort_s * 1e9 / tasks,
           sort_s / median(&walk_s), (double)(peak_kib - before_kib) * 1024.0 / tasks);
    sp_step_costs_fini(&costs);
    sp_plan_fini(&plan);
    sp_packing_fini(&packing);
    return 0;
}
