// How many chunks slimpack-zb gives each rank: what a scenario states is kept, what is chosen is
// written down and read back, and layers stay level.
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static void scenario_text(int layers, const char *parallel, const char *lengths, const char *kind,
                          char *text)
{
    text[0] = '\0';
    put_json(text,
             "{'model': {'layers': %d, 'hidden': 2048, 'ffn': 5504, 'heads': 16, 'vocab': 32000}, "
             "'cluster': 'h800-8', 'parallel': {%s}, 'workload': {'order': 'file', 'lengths': "
             "[%s]}, 'strategy': {'kind': '%s'}}",
             layers, parallel, lengths, kind);
}

static void settle(const char *text, int effort_percent, sp_scenario *scenario)
{
    must_succeed_for(text, run_read(text, scenario, ERR));
    scenario->strategy.effort_percent = effort_percent;
    must_succeed_for(text, sp_strategy_resolve(scenario, false, ERR));
}

static void assert_same_layout(const sp_layout *a, const sp_layout *b)
{
    assert_int_equal(a->pp, b->pp);
    assert_int_equal(a->chunks, b->chunks);
    assert_int_equal(a->placement, b->placement);
    assert_int_equal(a->stage_layers == NULL, b->stage_layers == NULL);
    for (int s = 0; a->stage_layers != NULL && s < sp_layout_vstages(a); s++) {
        assert_int_equal(a->stage_layers[s], b->stage_layers[s]);
    }
}

// All layers are there, and no virtual stage is empty.
static void assert_complete(const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    AUTO_FREE sp_stage *stages = sp_calloc((size_t)sp_layout_vstages(layout), sizeof *stages);
    int layers = 0;
    must_succeed(sp_layout_stages(layout, &scenario->model, "test", stages, ERR));
    for (int v = 0; v < sp_layout_vstages(layout); v++) {
        assert_false(sp_stage_is_empty(&stages[v]));
        layers += stages[v].layers;
    }
    assert_int_equal(layers, scenario->model.layers);
}

#define FEW "4000, 300, 200, 4000"
#define MANY "900, 800, 1000, 600, 700, 900, 800, 1000, 600, 700, 900, 800, 1000, 600, 700, 40"

static const struct {
    int layers;
    const char *parallel, *lengths;
} chosen[] = {
    {8, "'pp': 4", FEW},          {8, "'pp': 4", MANY},
    {12, "'pp': 4", FEW},         {12, "'pp': 4", MANY},
    {6, "'pp': 2", FEW},          {10, "'pp': 2, 'dp': 2", MANY},
    {16, "'pp': 8", FEW},         {24, "'pp': 8, 'tp': 2", MANY},
    {24, "'pp': 8", "60000, 20"}, {4, "'pp': 4", FEW},
};

enum { CHOSEN = sizeof chosen / sizeof chosen[0] };

// The resolved document read again, and settled again, gives the same layout; so does settling the
// scenario itself once more. Both one chunk and several occur.
TEST_OF_VALUES(choices_are_written_and_read_back)
{
    int one = 0;
    for (int i = 0; i < CHOSEN; i++) {
        char text[RUN_TEXT];
        AUTO(sp_scenario) scenario, again;
        scenario_text(chosen[i].layers, chosen[i].parallel, chosen[i].lengths, "slimpack-zb", text);
        settle(text, 10, &scenario);
        assert_in_range(scenario.layout.chunks, 1, 10);
        one += scenario.layout.chunks == 1;
        assert_int_equal(scenario.layout.placement == SP_PLACE_V, scenario.layout.chunks == 2);
        assert_complete(&scenario);
        json_auto_t *copy = json_deep_copy(scenario.resolved);
        must_succeed(sp_scenario_from_json(copy, "test.json", NULL, 0, &again, ERR));
        assert_same_layout(&scenario.layout, &again.layout);
        again.strategy.effort_percent = 10;
        must_succeed(sp_strategy_resolve(&again, false, ERR));
        assert_same_layout(&scenario.layout, &again.layout);
        must_succeed(sp_strategy_resolve(&scenario, false, ERR));
        assert_same_layout(&scenario.layout, &again.layout);
        assert_true(json_equal(scenario.resolved, again.resolved));
    }
    assert_in_range(one, 1, CHOSEN - 1);
}

// The choice is the one of the two that the strategy is predicted to run faster, and the step is
// simulated in the layout that was chosen.
TEST_OF_VALUES(the_faster_one_is_chosen)
{
    for (int i = 0; i < test_draws(CHOSEN); i++) {
        char text[RUN_TEXT];
        double ms[3];
        sp_scenario scenario;
        scenario_text(chosen[i].layers, chosen[i].parallel, chosen[i].lengths, "slimpack-zb", text);
        settle(text, 100, &scenario);
        int chunks = scenario.layout.chunks;
        // Stated chunks are equal, chosen ones need not be.
        bool halves = scenario.model.layers % (2 * scenario.layout.pp) == 0;
        sp_scenario_fini(&scenario);
        for (int c = 0; c <= 2; c++) {
            char parallel[256];
            scenario_run r;
            snprintf(parallel, sizeof parallel, c == 0 ? "%s" : "%s, 'chunks_per_rank': %d",
                     chosen[i].parallel, c);
            if (c == 2 && !halves) {
                ms[2] = ms[0];
                continue;
            }
            scenario_text(chosen[i].layers, parallel, chosen[i].lengths, "slimpack-zb", text);
            run_good(text, &run_verified, &r);
            ms[c] = sp_result_iteration_ms(&r.result);
            scenario_run_fini(&r);
        }
        // A short search decides: within a few percent.
        double other_ms = ms[3 - chunks];
        must_hold(ms[0] <= 1.03 * other_ms, "case %d: %d chunks in %.3f ms, the other %.3f ms", i,
                  chunks, ms[0], other_ms);
    }
}

TEST(stated_chunks_are_kept)
{
    static const struct {
        const char *parallel;
        int chunks;
    } stated[] = {{"'pp': 4, 'chunks_per_rank': 1", 1},
                  {"'pp': 4, 'chunks_per_rank': 2", 2},
                  {"'pp': 4, 'layers_per_chunk': 1", 2},
                  {"'pp': 4, 'layers_per_chunk': 2", 1}};
    for (size_t i = 0; i < sizeof stated / sizeof stated[0]; i++) {
        const char *const lengths[] = {FEW, MANY};
        for (int k = 0; k < 2; k++) {
            char text[RUN_TEXT];
            AUTO(sp_scenario) scenario;
            scenario_text(8, stated[i].parallel, lengths[k], "slimpack-zb", text);
            settle(text, 100, &scenario);
            assert_int_equal(scenario.layout.chunks, stated[i].chunks);
        }
    }
}

// A millisecond is not enough to look at any: the first cut that is possible, in one chunk.
TEST(no_time_to_look)
{
    char text[RUN_TEXT] = "";
    AUTO(sp_scenario) scenario;
    scenario_text(8, "'pp': 4", MANY, "slimpack", text);
    must_succeed(run_read(text, &scenario, ERR));
    scenario.strategy.time_limit_ms = 1;
    must_succeed(sp_strategy_resolve(&scenario, false, ERR));
    assert_int_equal(scenario.layout.chunks, 1);
    assert_null(scenario.layout.stage_layers);
    assert_complete(&scenario);
}

// One rank, another strategy.
TEST(nothing_to_choose)
{
    static const struct {
        int layers;
        const char *parallel, *kind;
    } cases[] = {
        {8, "'pp': 1", "slimpack-zb"}, {8, "'pp': 1", "slimpack"}, {8, "'pp': 4", "packed"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[RUN_TEXT];
        AUTO(sp_scenario) scenario;
        scenario_text(cases[i].layers, cases[i].parallel, FEW, cases[i].kind, text);
        settle(text, 100, &scenario);
        assert_int_equal(scenario.layout.chunks, 1);
        assert_null(scenario.layout.stage_layers);
    }
}

// Nothing is stated, and equal shares do not divide the layers: what chooses cuts does as with
// "auto", which the result says by its stages, and all else refuses.
TEST_OF_VALUES(layers_that_shares_do_not_divide)
{
    static const char *const kinds[] = {"slimpack-symmetric", "slimpack", "slimpack-zones"};
    for (int i = 0; i < 3; i++) {
        char text[RUN_TEXT];
        AUTO(scenario_run) open, stated;
        scenario_text(9, "'pp': 4", FEW, kinds[i], text);
        run_good(text, &run_verified, &open);
        scenario_text(9, "'pp': 4, 'stage_layers': 'auto'", FEW, kinds[i], text);
        run_good(text, &run_verified, &stated);
        assert_memory_equal(open.result.stage_layers, stated.result.stage_layers,
                            4 * sizeof *stated.result.stage_layers);
        assert_int_equal(open.result.batches[0].iteration_ns,
                         stated.result.batches[0].iteration_ns);
        assert_int_equal(open.result.warnings.count, stated.result.warnings.count);
    }
    static const char *const others[] = {"packed", "slimpipe", "zeppelin"};
    for (int i = 0; i < 3; i++) {
        char text[RUN_TEXT];
        AUTO(scenario_run) r;
        scenario_text(9, "'pp': 4", FEW, others[i], text);
        must_fail_with(run_text(text, &run_verified, &r, ERR), SP_ERR_CONTENT,
                       "9 layers cannot be split into 4 equal stages "
                       "(parallel.stage_layers \"auto\"");
        sp_error_clear(ERR);
    }
}

// Megatron-Core pads samples to a multiple of 2 or tp tokens for each of cp ranks: cuts are chosen
// as for samples that long. Zones, which need no padding, are off.
TEST_OF_VALUES(padding_counts_in_short_searches)
{
    static const struct {
        int layers, cp, pp, dp, samples;
        const char *kind, *layers_by;
    } cases[] = {{16, 8, 4, 1, 40, "slimpack", ""},
                 {8, 4, 2, 2, 200, "slimpack", ""},
                 {16, 4, 4, 1, 40, "slimpack", ""},
                 {18, 8, 4, 1, 100, "packed", ", 'stage_layers': 'auto'"}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        scenario_run runs[2];
        const int multiple = 8 * cases[i].cp;
        for (int whole = 0; whole < 2; whole++) {
            char lengths[8 * 256] = "";
            for (int s = 0; s < cases[i].samples; s++) {
                put_json(lengths, "%s%d", s > 0 ? ", " : "", whole ? 2 * multiple : multiple + 1);
            }
            run_good(json_text("{'model': {'layers': %d, 'hidden': 1024, 'ffn': 4096, 'heads': "
                               "16, 'vocab': 8000}, 'cluster': 'h800-8', 'stack': "
                               "'megatron-core-2025', 'parallel': {'tp': 8, 'cp': %d, 'pp': %d, "
                               "'dp': %d%s}, 'workload': {'order': 'file', 'context': 1024, "
                               "'lengths': [%s]}, 'strategy': {'kind': '%s', 'zones': false}}",
                               cases[i].layers, cases[i].cp, cases[i].pp, cases[i].dp,
                               cases[i].layers_by, lengths, cases[i].kind),
                     &run_verified, &runs[whole]);
        }
        const sp_layout *layout = &runs[0].scenario.layout;
        assert_int_equal(layout->chunks, runs[1].scenario.layout.chunks);
        assert_memory_equal(runs[0].result.stage_layers, runs[1].result.stage_layers,
                            (size_t)sp_layout_vstages(layout) *
                                sizeof *runs[0].result.stage_layers);
        assert_int_equal(runs[0].result.batches[0].iteration_ns,
                         runs[1].result.batches[0].iteration_ns);
        scenario_run_fini(&runs[0]);
        scenario_run_fini(&runs[1]);
    }
}

// Looks find two chunks as fast as three, whose plan is 2.2 % faster.
TEST_OF_VALUES(plans_decide_between_near_cuts)
{
    double ms[5];
    for (int chunks = 0; chunks < COUNT_OF(ms); chunks++) {
        char stated[64] = "";
        if (chunks > 0) {
            put_json(stated, ", 'chunks_per_rank': %d, 'stage_layers': 'auto'", chunks);
        }
        SCENARIO_RUN(r,
                     json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': 'ours', "
                               "'memory': {'recompute': 'full'}, 'parallel': {'tp': 2, 'pp': 8, "
                               "'dp': 2%s}, 'workload': {'lengths': 'prolong', 'context': 65536, "
                               "'over_length': 'truncate', 'samples_per_batch': 17, 'seed': 28}, "
                               "'strategy': {'kind': 'slimpack-zb'}}",
                               stated),
                     &run_verified);
        ms[chunks] = sp_result_iteration_ms(&r.result);
        must_hold(ms[0] <= 1.002 * ms[chunks], "chosen %.3f ms, %d chunks %.3f ms", ms[0], chunks,
                  ms[chunks]);
    }
}
