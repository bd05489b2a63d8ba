// Speed of the engine at about a million tasks: lowering, replay, memory and metrics as `simulate`
// runs them, and igraph's own topological sort of the same graph in the same run. One JSON line on
// stdout.
#include <igraph/igraph.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "sim/base/progress.h"
#include "sim/engine/engine.h"
#include "sim/engine/lower.h"
#include "sim/engine/replay.h"
#include "sim/metrics/metrics.h"
#include "sim/schedule/schedule.h"
#include "tests/support/uniform_packing.h"

enum { PP = 64, CHUNKS = 2, MICROBATCHES = 3968, REPEATS = 7 };

static void require(sp_status status, const sp_error *err)
{
    if (status != SP_OK) {
        fprintf(stderr, "%s\n", err->count > 0 ? err->message[0] : sp_status_text(status));
        exit(1);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

typedef struct samples {
    double seconds[REPEATS];
} samples;

static double median(samples *s)
{
    qsort(s->seconds, REPEATS, sizeof s->seconds[0], compare);
    return s->seconds[REPEATS / 2];
}

static long resident_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

// Bytes per second that one core reads when it streams through memory: the limit of the replay,
// whose work per edge is one addition and one comparison.
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

// Seconds of igraph's topological sorting on the same edges.
static double igraph_seconds(const sp_i_task_graph *graph)
{
    igraph_vector_int_t edges;
    igraph_vector_int_t order;
    igraph_t g;
    igraph_vector_int_init(&edges, (igraph_integer_t)(2 * graph->edges));
    igraph_vector_int_init(&order, 0);
    for (size_t t = 0; t < graph->tasks; t++) {
        for (uint32_t e = graph->edge_begin[t]; e < graph->edge_begin[t + 1]; e++) {
            VECTOR(edges)[2 * e] = (igraph_integer_t)graph->edge_from[e];
            VECTOR(edges)[2 * e + 1] = (igraph_integer_t)t;
        }
    }
    igraph_create(&g, &edges, (igraph_integer_t)graph->tasks, IGRAPH_DIRECTED);
    double started = sp_clock_s();
    igraph_topological_sorting(&g, &order, IGRAPH_OUT);
    double seconds = sp_clock_s() - started;
    igraph_destroy(&g);
    igraph_vector_int_destroy(&edges);
    igraph_vector_int_destroy(&order);
    return seconds;
}

int main(void)
{
    sp_error err = {0};
    sp_layout layout = {.tp = 1, .cp = 1, .pp = PP, .dp = 1, .chunks = CHUNKS};
    sp_uniform_costs uniform = {.f_ms = 1.0, .b_ms = 1.0, .w_ms = 0.5, .p2p_ms = 0.01};
    sp_schedule_spec spec = {.kind = SP_SCHEDULE_INTERLEAVED};
    sp_packing packing;
    sp_step_costs costs;
    sp_i_folding folding;
    sp_i_task_graph graph;
    samples plan_s;
    samples lower_s;
    samples replay_s;
    samples simulate_s;
    sp_engine_options options = {0};
    sp_engine_counts counts = {0};
    long before_kib = resident_kib();
    require(uniform_packing(&packing, 1, MICROBATCHES, &err), &err);
    long peak_kib = 0;
    int64_t makespan_ns = 0;
    for (int i = 0; i < REPEATS; i++) {
        sp_plan plan;
        sp_timeline timeline;
        sp_memory_timeline memory;
        sp_step_metrics metrics;
        double started = sp_clock_s();
        require(sp_plan_init(&plan, &layout, &packing, &err), &err);
        require(sp_schedule_generate(&spec, NULL, "bench", &plan, &err), &err);
        plan_s.seconds[i] = sp_clock_s() - started;
        started = sp_clock_s();
        require(sp_step_costs_uniform(&uniform, &layout, &packing, &costs, &err), &err);
        require(sp_simulate(&plan, &costs, &options, &timeline, &memory, &counts, &err), &err);
        require(sp_step_metrics_compute(&timeline, &memory, &metrics, &err), &err);
        simulate_s.seconds[i] = sp_clock_s() - started + plan_s.seconds[i];
        makespan_ns = metrics.makespan_ns;
        peak_kib = resident_kib();
        sp_step_metrics_fini(&metrics);
        sp_memory_timeline_fini(&memory);
        sp_timeline_fini(&timeline);
        sp_step_costs_fini(&costs);
        sp_plan_fini(&plan);
    }
    sp_plan plan;
    require(sp_plan_init(&plan, &layout, &packing, &err), &err);
    require(sp_schedule_generate(&spec, NULL, "bench", &plan, &err), &err);
    require(sp_step_costs_uniform(&uniform, &layout, &packing, &costs, &err), &err);
    require(sp_i_fold(&plan, &costs, false, &folding, &err), &err);
    int64_t *end_ns = NULL;
    for (int i = 0; i < REPEATS; i++) {
        double started = sp_clock_s();
        require(sp_i_lower(&plan, &costs, &folding, &graph, &err), &err);
        lower_s.seconds[i] = sp_clock_s() - started;
        end_ns = realloc(end_ns, graph.tasks * sizeof *end_ns);
        if (end_ns == NULL) {
            return 1;
        }
        memset(end_ns, 0, graph.tasks * sizeof *end_ns);
        started = sp_clock_s();
        sp_i_replay(&graph, end_ns);
        replay_s.seconds[i] = sp_clock_s() - started;
        if (i + 1 < REPEATS) {
            sp_i_task_graph_fini(&graph);
        }
    }
    int64_t last_ns = 0;
    for (size_t t = 0; t < graph.tasks; t++) {
        last_ns = end_ns[t] > last_ns ? end_ns[t] : last_ns;
    }
    if (last_ns != makespan_ns) {
        fprintf(stderr, "replay and simulation differ\n");
        return 1;
    }
    double sort_s = igraph_seconds(&graph);
    double edges = (double)graph.edges;
    // Read once: edges' sources and lags, tasks' durations and offsets; written once: ends.
    double bytes = edges * 12.0 + (double)graph.tasks * 20.0;
    double limit_s = bytes / stream_bytes_per_s();
    printf("{\"bench\": \"engine\", \"version\": \"%s\", \"compiler\": \"%s\", \"repeats\": %d, "
           "\"tasks\": %zu, \"edges\": %zu, \"plan_s\": %.4f, \"lower_s\": %.4f, "
           "\"replay_s\": %.4f, \"simulate_s\": %.4f, \"replay_ns_per_edge\": %.2f, "
           "\"stream_limit_ns_per_edge\": %.2f, \"replay_over_limit\": %.1f, "
           "\"igraph_sort_ns_per_edge\": %.2f, \"igraph_over_replay\": %.1f, "
           "\"bytes_per_task\": %.1f}\n",
           SP_VERSION, __VERSION__, REPEATS, graph.tasks, graph.edges, median(&plan_s),
           median(&lower_s), median(&replay_s), median(&simulate_s),
           median(&replay_s) * 1e9 / edges, limit_s * 1e9 / edges, median(&replay_s) / limit_s,
           sort_s * 1e9 / edges, sort_s / median(&replay_s),
           (double)(peak_kib - before_kib) * 1024.0 / (double)graph.tasks);
    free(end_ns);
    sp_i_task_graph_fini(&graph);
    sp_i_folding_fini(&folding);
    sp_step_costs_fini(&costs);
    sp_plan_fini(&plan);
    sp_packing_fini(&packing);
    return 0;
}
