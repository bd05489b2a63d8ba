// Steps as graphs of tasks, by SimGrid and by the simulator: when each action ends, and when the
// parameters of each pipeline rank are gathered. SimGrid runs once in a process, so each graph has
// its own.
#include "sim/simulate/engine.h"
#include "tests/support/initializers.h"
#include "tests/support/priced_step.h"
#include "tests/support/simgrid/drawn_step.h"
#include "tests/support/simgrid/step_graph.h"
#include "tests/support/test_main.h"

static void run_simgrid(const void *of, double *ends_s)
{
    const step_graph *g = of;
    simgrid_run_graph(&g->graph, ends_s);
}

static double end_s(const step_graph *g, const double *ends_s, size_t action)
{
    const int *tasks = &g->action_ends[2 * action];
    return tasks[1] < 0 ? ends_s[tasks[0]] : fmax(ends_s[tasks[0]], ends_s[tasks[1]]);
}

static double compare(const sp_timeline *ours, const step_graph *g, const double *ends_s)
{
    double worst = 0.0;
    size_t action = 0;
    for (size_t r = 0; r < ours->rank_count; r++) {
        const sp_rank_timeline *rank = &ours->ranks[r];
        for (size_t i = 0; i < rank->count; i++) {
            double theirs_s = end_s(g, ends_s, action++);
            assert_close((double)rank->spans[i].end_ns * 1e-9, theirs_s, 1e-6);
            worst = fmax(worst, fabs((double)rank->spans[i].end_ns * 1e-9 / theirs_s - 1.0));
        }
        assert_close((double)rank->gather_end_ns * 1e-9, ends_s[g->step_ends[rank->pp]], 1e-6);
    }
    return worst;
}

static double compare_step(const sp_plan *plan, const sp_step_costs *costs,
                           const sp_network *network)
{
    const sp_engine_options options = {.network = network, .unfold = true};
    AUTO(step_graph) g;
    AUTO(sp_timeline) timeline;
    AUTO(sp_memory_timeline) memory;
    sp_engine_counts counts;
    step_graph_make(plan, costs, network, &g);
    AUTO_FREE double *ends_s = sp_calloc((size_t)g.graph.count, sizeof *ends_s);
    must_succeed(sp_simulate(plan, costs, &options, &timeline, &memory, &counts, ERR));
    simgrid_apart(run_simgrid, &g, ends_s, g.graph.count);
    return compare(&timeline, &g, ends_s);
}

static double compare_drawn(sp_prng *prng)
{
    static const sp_schedule_kind kinds[] = {SP_SCHEDULE_GPIPE, SP_SCHEDULE_1F1B,
                                             SP_SCHEDULE_INTERLEAVED, SP_SCHEDULE_ZB_H1};
    static const char *const orders[] = {"tp-cp-dp-pp", "pp-tp-dp-cp", "tp-pp-cp-dp"};
    sp_schedule_kind kind = kinds[prng_below(prng, 4)];
    sp_layout layout = {.tp = 1 << prng_below(prng, 3),
                        .cp = 1 << prng_below(prng, 3),
                        .pp = 2 + prng_below(prng, 3),
                        .dp = 1 + prng_below(prng, 4),
                        .chunks = kind == SP_SCHEDULE_INTERLEAVED ? 2 : 1,
                        .zero = prng_below(prng, 2)};
    AUTO(drawn_step) s;
    assert_true(sp_rank_order_read(orders[prng_below(prng, 3)], &layout.order));
    drawn_step_make(prng, layout, kind, 2 * layout.pp, &s);
    return compare_step(&s.plan, &s.costs, &s.network);
}

TEST(drawn_steps_end_as_in_simgrid)
{
    sp_prng prng = prng_seeded(31);
    int rounds = test_is_full() ? 200 : 20;
    double worst = 0.0;
    for (int round = 0; round < rounds; round++) {
        worst = fmax(worst, compare_drawn(&prng));
    }
    printf("%d graphs, largest difference %.2g\n", rounds, worst);
}

// Of an 8B model on 32 to 64 GPUs, at the times of the cost model.
TEST(priced_steps_end_as_in_simgrid)
{
    static const sp_layout layouts[] = {
        {.tp = 2, .cp = 1, .pp = 4, .dp = 4, .chunks = 1, .zero = 1},
        {.tp = 2, .cp = 4, .pp = 2, .dp = 4, .chunks = 1, .zero = 0},
        {.tp = 1, .cp = 8, .pp = 4, .dp = 2, .chunks = 1, .zero = 1},
    };
    double worst = 0.0;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        priced_case c = priced_default();
        AUTO(priced_step) step;
        c.model = (sp_model){.name = "8B", LLAMA_SHAPE(32, 4096, 14336, 32, 8, 128256)};
        c.layout = layouts[i];
        assert_true(sp_rank_order_read("tp-pp-dp-cp", &c.layout.order));
        c.fabric = (sp_fabric){.rails = 8, .oversubscription = 1.0};
        c.microbatches = 8;
        c.tokens = 16384;
        priced_step_run(&c, &step);
        for (int p = 0; p < c.layout.pp; p++) {
            step.costs.ranks[p].epilogue.hideable_gather_ns = 0;
        }
        const sp_network network = {.detail = SP_NETWORK_FLOWS,
                                    .cluster = &step.cluster,
                                    .rates = sp_profile_link_rates(&step.profile)};
        worst = fmax(worst, compare_step(&step.plan, &step.costs, &network));
    }
    printf("largest difference %.2g\n", worst);
}
