// The engine against igraph's longest path (a second method, --verify), its own unfolded self, and
// hand-made plans.
#include "sim/verify/dependency_graph.h"
#include "tests/support/random_step.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"
#include "tests/support/uniform_step.h"

static void simulate(const sp_plan *plan, const sp_step_costs *costs, bool unfold,
                     simulated_plan *s)
{
    sp_engine_options options = {.unfold = unfold, .verify = true, .memory_points = true};
    simulate_plan(plan, costs, &options, s);
}

static void generate(sp_schedule_kind kind, const sp_layout *layout, const sp_packing *packing,
                     sp_plan *plan)
{
    sp_schedule_spec spec = {.kind = kind, .group = SP_GROUP_EVEN};
    sp_plan_init(plan, layout, packing);
    must_succeed(sp_schedule_generate(&spec, NULL, "test", plan, ERR));
    must_succeed(sp_plan_check(plan, "test", ERR));
}

static void assert_same_metrics(const sp_step_metrics *a, const sp_step_metrics *b)
{
    uniform_step_same_times(a, b);
    assert_int_equal(a->longest_span_ns, b->longest_span_ns);
    assert_memory_equal(a->ranks, b->ranks, (size_t)a->rank_count * sizeof *a->ranks);
}

// Random costs, all schedules: the run itself checks the longest path and that memory drains.
TEST_ROUNDS(random_plans_verify, 11, 60)
{
    sp_layout layout = {.tp = 1, .cp = 1};
    layout.pp = 2 + prng_below(prng, 5);
    layout.dp = 1 + prng_below(prng, 3);
    sp_schedule_kind kind = (sp_schedule_kind)sp_prng_below(prng, SP_SCHEDULE_INTERLEAVED + 1);
    layout.chunks = kind == SP_SCHEDULE_INTERLEAVED ? 1 + prng_below(prng, 3) : 1;
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    AUTO(sp_step_costs) costs;
    AUTO(simulated_plan) s;
    uniform_packing(&packing, layout.dp, 1 + prng_below(prng, 12));
    random_costs(prng, &layout, &packing, 0, &costs);
    costs.blocking_transfers = round % 2 == 1;
    generate(kind, &layout, &packing, &plan);
    simulate(&plan, &costs, false, &s);
    // Trivial bounds: no rank is busier than the makespan; the longest chain of one pack fits.
    for (int64_t r = 0; r < s.metrics.rank_count; r++) {
        assert_true(s.metrics.ranks[r].busy_ns <= s.metrics.makespan_ns);
        assert_true(s.metrics.ranks[r].span_ns >= s.metrics.ranks[r].busy_ns);
    }
}

// Alike data-parallel ranks counted once give the numbers of all simulated.
TEST(folding_changes_nothing)
{
    sp_prng prng = prng_seeded(5);
    for (int kinds = 1; kinds <= 4; kinds++) {
        sp_layout layout = {.tp = 1, .cp = 1, .pp = 4, .dp = 6, .chunks = 1};
        AUTO(sp_packing) packing;
        AUTO(sp_plan) plan;
        AUTO(sp_step_costs) costs;
        AUTO(simulated_plan) folded, unfolded;
        uniform_packing(&packing, layout.dp, 9);
        random_costs(&prng, &layout, &packing, kinds, &costs);
        costs.blocking_transfers = kinds > 2;
        generate(SP_SCHEDULE_1F1B, &layout, &packing, &plan);
        simulate(&plan, &costs, false, &folded);
        simulate(&plan, &costs, true, &unfolded);
        assert_int_equal(folded.timeline.rank_count, 4);
        assert_int_equal(unfolded.timeline.rank_count, 24);
        assert_int_equal(folded.counts.tasks * 6, unfolded.counts.tasks);
        assert_same_metrics(&folded.metrics, &unfolded.metrics);
    }
}

// The same for micro-batches in slices, whose backward packs are packs of their own.
TEST(folding_of_slices)
{
    uniform_case c = {.kind = SP_SCHEDULE_SEQ1F1B,
                      .pp = 3,
                      .dp = 5,
                      .microbatches = 4,
                      .slices = 3,
                      .attention_share = 0.5,
                      .ns = {1000, 1500, 700}};
    sp_engine_options folded = {.memory_points = true};
    sp_engine_options unfolded = {.unfold = true, .memory_points = true};
    AUTO(uniform_step) a, b;
    uniform_step_run(&c, &folded, &a);
    uniform_step_run(&c, &unfolded, &b);
    assert_int_equal(a.timeline.rank_count, 3);
    assert_int_equal(b.timeline.rank_count, 15);
    assert_same_metrics(&a.metrics, &b.metrics);
}

// Ranks that differ in one pack's cost are not folded.
TEST(unlike_ranks_stay_apart)
{
    sp_prng prng = prng_seeded(6);
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 3, .chunks = 1};
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    AUTO(sp_step_costs) costs;
    AUTO(simulated_plan) s;
    uniform_packing(&packing, layout.dp, 4);
    random_costs(&prng, &layout, &packing, 1, &costs);
    // Pack 4 is the second of data-parallel rank 1.
    costs.action[SP_ACTION_F][4 * (size_t)costs.classes].compute_ns += 1;
    generate(SP_SCHEDULE_1F1B, &layout, &packing, &plan);
    simulate(&plan, &costs, false, &s);
    assert_int_equal(s.timeline.rank_count, 4);
    assert_int_equal(s.timeline.ranks[0].alike, 2);
    assert_int_equal(s.timeline.ranks[0].dp_alike[0], 0);
    assert_int_equal(s.timeline.ranks[0].dp_alike[1], 2);
    assert_int_equal(s.timeline.ranks[2].dp_alike[0], 1);
}

static sp_status run_with(const sp_plan *plan, sp_engine_options options, sp_error *err)
{
    sp_uniform_costs uniform = {.f_ms = 1.0, .b_ms = 1.0, .w_ms = 1.0};
    AUTO(sp_step_costs) costs;
    AUTO(sp_timeline) timeline;
    AUTO(sp_memory_timeline) memory;
    sp_engine_counts counts;
    sp_step_costs_uniform(&uniform, &plan->layout, plan->packing, &costs);
    return sp_simulate(plan, &costs, &options, &timeline, &memory, &counts, err);
}

static sp_status run_uniform(const sp_plan *plan, sp_error *err)
{
    return run_with(plan, (sp_engine_options){0}, err);
}

// Rank 0 wants B0 before it has sent F1, rank 1 wants F1 before it gives B0.
TEST(deadlock_is_named)
{
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1};
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    uniform_packing(&packing, 1, 2);
    sp_plan_init(&plan, &layout, &packing);
    plan_add_actions(&plan, 0, 0, "F0 B0 F1 B1");
    plan_add_actions(&plan, 0, 1, "F0 F1 B0 B1");
    assert_int_equal(run_uniform(&plan, ERR), SP_ERR_DEADLOCK);
    // The only circle: F1 on rank 0 after B0 there, B0 on rank 1's B0, that after F1, F1 on rank
    // 0's F1.
    assert_non_null(strstr(ERR->message[0], "F1 on dp 0 pp 0"));
    assert_non_null(strstr(ERR->message[0], "B0 on dp 0 pp 0"));
    assert_non_null(strstr(ERR->message[0], "B0 on dp 0 pp 1"));
    assert_non_null(strstr(ERR->message[0], "F1 on dp 0 pp 1"));
    assert_non_null(strstr(ERR->message[0], "its gradient"));
    assert_non_null(strstr(ERR->message[0], "its input"));
    // A search that only tries a plan is told what the walk knows.
    sp_error_clear(ERR);
    must_fail_with(run_with(&plan, (sp_engine_options){.no_cycle = true}, ERR), SP_ERR_DEADLOCK,
                   "which cannot run before it");
    assert_null(strstr(ERR->message[0], "the plan cannot finish"));
}

// A sample of two slices in two forward packs and two backward packs in reverse order, next to a
// short sample that moves to another pack for its backward.
static void make_regrouped(sp_batch *batch, sp_packing *packing)
{
    static int64_t ids[] = {0, 1};
    static int64_t tokens[] = {8, 3};
    *batch = (sp_batch){.ids = ids, .tokens = tokens, .count = 2, .total_tokens = 11};
    sp_packing_init(packing, batch, 1);
    sp_slice first = {.sample = 0, .begin = 0, .tokens = 4, .computed_tokens = 4};
    sp_slice second = {.sample = 0, .begin = 4, .tokens = 4, .computed_tokens = 4};
    sp_slice whole = {.sample = 1, .begin = 0, .tokens = 3, .computed_tokens = 3};
    sp_pack_list_begin(&packing->forward, 0, 1);
    sp_pack_list_add(&packing->forward, first, false);
    sp_pack_list_add(&packing->forward, whole, true);
    sp_pack_list_begin(&packing->forward, 0, 1);
    sp_pack_list_add(&packing->forward, second, true);
    sp_pack_list_begin(&packing->backward, 0, 1);
    sp_pack_list_add(&packing->backward, second, true);
    sp_pack_list_add(&packing->backward, whole, true);
    sp_pack_list_begin(&packing->backward, 0, 1);
    sp_pack_list_add(&packing->backward, first, false);
}

// Backward packs of their own: the plan runs, and every byte is freed by the slice that held it.
TEST(regrouped_packs)
{
    sp_prng prng = prng_seeded(3);
    sp_batch batch;
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    AUTO(sp_step_costs) costs;
    AUTO(simulated_plan) s;
    make_regrouped(&batch, &packing);
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1};
    sp_plan_init(&plan, &layout, &packing);
    for (int r = 0; r < 2; r++) {
        plan_add_actions(&plan, 0, r, "F0 F1 B0 B1");
    }
    must_succeed(sp_plan_check(&plan, "test", ERR));
    random_costs(&prng, &layout, &packing, 0, &costs);
    simulate(&plan, &costs, false, &s);
    // Backward pack 0 frees forward pack 1 whole and 3 of the 7 tokens of forward pack 0.
    const sp_rank_memory *memory = &s.memory.ranks[1];
    const sp_bytes *held = &costs.side[0].unit[0 * (size_t)costs.classes + 1].held;
    int64_t states = costs.ranks[1].states.of[SP_MEM_ACTIVATIONS];
    int64_t whole = held->of[SP_MEM_ACTIVATIONS];
    bool seen = false;
    for (size_t i = 0; i < memory->point_count; i++) {
        int64_t now = memory->points[i].bytes.of[SP_MEM_ACTIVATIONS] - states;
        seen = seen || now == whole - whole * 3 / 7;
    }
    assert_true(seen);
}

// The backward pack comes before a forward pack whose slice it holds.
TEST(regrouped_deadlock)
{
    sp_batch batch;
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    make_regrouped(&batch, &packing);
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    sp_plan_init(&plan, &layout, &packing);
    plan_add_actions(&plan, 0, 0, "F0 B0 F1 B1");
    must_fail_with(run_uniform(&plan, ERR), SP_ERR_DEADLOCK, "its activations");
}

// A pack of both data-parallel ranks between packs of their own: it starts when both have come to
// it.
TEST(merged_packs_meet)
{
    static int64_t ids[] = {0, 1, 2};
    static int64_t tokens[] = {5, 50, 5};
    sp_batch batch = {.ids = ids, .tokens = tokens, .count = 3, .total_tokens = 60};
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    AUTO(sp_step_costs) costs;
    sp_prng prng = prng_seeded(8);
    AUTO(simulated_plan) s;
    sp_packing_init(&packing, &batch, 2);
    int first[] = {0, 0, 1};
    int ranks[] = {1, 2, 1};
    for (int k = 0; k < 3; k++) {
        pack_sample(&packing.forward, first[k], ranks[k], k, tokens[k]);
    }
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1};
    sp_plan_init(&plan, &layout, &packing);
    for (int r = 0; r < 2; r++) {
        plan_add_actions(&plan, 0, r, "F0 B0 F1 B1");
        plan_add_actions(&plan, 1, r, "F1 B1 F2 B2");
    }
    must_succeed(sp_plan_check(&plan, "test", ERR));
    random_costs(&prng, &layout, &packing, 0, &costs);
    costs.blocking_transfers = true;
    simulate(&plan, &costs, false, &s);
    for (int r = 0; r < 2; r++) {
        const sp_rank_timeline *a = &s.timeline.ranks[r];
        const sp_rank_timeline *b = &s.timeline.ranks[2 + r];
        assert_int_equal(a->spans[2].start_ns, b->spans[0].start_ns);
        assert_int_equal(a->spans[3].start_ns, b->spans[1].start_ns);
        assert_true(b->spans[0].start_ns >= a->spans[1].end_ns);
    }
}

// Works and transfers of the critical path fill the makespan without a gap.
TEST(critical_path_adds_up)
{
    sp_prng prng = prng_seeded(21);
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 4, .dp = 1, .chunks = 2};
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    AUTO(sp_step_costs) costs;
    AUTO(simulated_plan) s;
    uniform_packing(&packing, 1, 8);
    random_costs(&prng, &layout, &packing, 0, &costs);
    generate(SP_SCHEDULE_INTERLEAVED, &layout, &packing, &plan);
    simulate(&plan, &costs, false, &s);
    sp_structure *structure = NULL;
    AUTO_FREE sp_critical_step *steps = NULL;
    size_t count = 0;
    must_succeed(sp_structure_new(&plan, &costs, NULL, &structure, ERR));
    must_succeed(sp_structure_critical_path(structure, &steps, &count, ERR));
    assert_true(count > 0);
    assert_int_equal(steps[0].start_ns, 0);
    assert_int_equal(steps[count - 1].end_ns, s.metrics.makespan_ns);
    for (size_t i = 1; i < count; i++) {
        int64_t gap = steps[i].start_ns - steps[i - 1].end_ns;
        assert_true(gap >= 0 && gap < 4000);
        assert_true(gap == 0 || steps[i].pp != steps[i - 1].pp);
    }
    sp_structure_free(structure);
}

// 33 packs that 2^19 ranks share have 66 * 2^19 actions, of the 64 * 2^19 that a plan may have.
TEST(plans_that_are_too_large_are_refused)
{
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1 << 19, .chunks = 1};
    const sp_schedule_spec spec = {.kind = SP_SCHEDULE_1F1B};
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    sp_packing_init(&packing, NULL, layout.dp);
    for (int k = 0; k < 33; k++) {
        sp_pack_list_begin(&packing.forward, 0, layout.dp);
    }
    sp_plan_init(&plan, &layout, &packing);
    must_fail(sp_schedule_generate(&spec, NULL, "test", &plan, ERR), SP_ERR_LIMIT,
              "17301504 packs on 1 virtual stages make more than the 33554432 actions that a plan "
              "can have; use fewer samples a batch, or longer packs");
}

// GraphML holds every action and dependency.
TEST(graphml_is_complete)
{
    uniform_case c = {
        .kind = SP_SCHEDULE_1F1B, .pp = 3, .dp = 2, .microbatches = 4, .ns = {1000, 1000, 1000}};
    sp_engine_options options = {0};
    UNIFORM_STEP(step, &c, &options);
    sp_structure *structure = NULL;
    must_succeed(sp_structure_new(&step.plan, &step.costs, NULL, &structure, ERR));
    FILE *file = tmpfile();
    assert_non_null(file);
    must_succeed(sp_structure_graphml(structure, file, ERR));
    rewind(file);
    int64_t nodes = 0, edges = 0;
    char line[512];
    while (fgets(line, sizeof line, file) != NULL) {
        nodes += strstr(line, "<node ") != NULL;
        edges += strstr(line, "<edge ") != NULL;
    }
    fclose(file);
    assert_int_equal(nodes, 2 * 3 * 8);
    // On each data-parallel rank: orders, what a rank reads from its neighbours, and what a
    // backward reads from its own forward.
    assert_int_equal(edges, 2 * (3 * 7 + 2 * 2 * 4 + 3 * 4));
    sp_structure_free(structure);
}

// An explicit recomputation takes its time out of the backward that would have contained it.
TEST(explicit_recompute)
{
    sp_prng prng = prng_seeded(4);
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    AUTO(sp_step_costs) costs;
    AUTO(simulated_plan) s;
    uniform_packing(&packing, 1, 1);
    random_costs(&prng, &layout, &packing, 0, &costs);
    costs.action[SP_ACTION_R][0] = costs.action[SP_ACTION_F][0];
    costs.action[SP_ACTION_B][0].compute_ns += costs.action[SP_ACTION_R][0].compute_ns;
    costs.action[SP_ACTION_B][0].tp_ns += costs.action[SP_ACTION_R][0].tp_ns;
    costs.action[SP_ACTION_B][0].cp_ns += costs.action[SP_ACTION_R][0].cp_ns;
    sp_plan_init(&plan, &layout, &packing);
    plan_add_actions(&plan, 0, 0, "F0 R0 B0");
    simulate(&plan, &costs, false, &s);
    // What the recomputation exchanges (ZeRO 3) comes on top.
    assert_int_equal(s.metrics.makespan_ns, sp_action_cost_ns(&costs.action[SP_ACTION_F][0]) +
                                                sp_action_cost_ns(&costs.action[SP_ACTION_B][0]) +
                                                costs.action[SP_ACTION_R][0].dp_ns);
}
