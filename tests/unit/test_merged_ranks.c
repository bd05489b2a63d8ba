// Merged packs in the engine: ranks that share a pack meet at its forward, its gradients and what
// is recomputed of it, but not at weight gradients, which read a rank's own share alone. Every step
// is checked against the longest path in igraph.
#include "sim/simulate/engine.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

enum { F = 1000000, I = 2000000, W = 3000000 }; // ns

typedef struct step {
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs;
    sp_timeline timeline;
    sp_memory_timeline memory;
} step;

// Pack 0 on both ranks, pack 1 on the first, packs 2 and 3 on the second.
static void run(const char *first, const char *second, step *s)
{
    static const int ranks[4][2] = {{0, 2}, {0, 1}, {1, 1}, {1, 1}};
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 2, .chunks = 1, .zero = 1};
    const sp_uniform_costs uniform = {.f_ms = F / 1e6, .b_ms = I / 1e6, .w_ms = W / 1e6};
    const sp_engine_options options = {.verify = true};
    sp_engine_counts counts;
    *s = (step){.costs = {0}};
    sp_packing_init(&s->packing, NULL, 2);
    for (int k = 0; k < 4; k++) {
        sp_pack_list_begin(&s->packing.forward, ranks[k][0], ranks[k][1]);
    }
    sp_plan_init(&s->plan, &layout, &s->packing);
    plan_add_actions(&s->plan, 0, 0, first);
    plan_add_actions(&s->plan, 1, 0, second);
    must_succeed(sp_plan_check(&s->plan, "test", ERR));
    sp_step_costs_uniform(&uniform, &layout, &s->packing, &s->costs);
    must_succeed_for(
        first, sp_simulate(&s->plan, &s->costs, &options, &s->timeline, &s->memory, &counts, ERR));
}

static void step_fini(step *s)
{
    sp_timeline_fini(&s->timeline);
    sp_memory_timeline_fini(&s->memory);
    sp_step_costs_fini(&s->costs);
    sp_plan_fini(&s->plan);
    sp_packing_fini(&s->packing);
}

static int64_t start_ns(const step *s, int rank, sp_action_kind kind, int pack)
{
    for (size_t i = 0; i < s->timeline.ranks[rank].count; i++) {
        const sp_span *span = &s->timeline.ranks[rank].spans[i];
        if (span->action.kind == kind && span->action.pack == pack) {
            return span->start_ns;
        }
    }
    fail_msg("no such action");
    return -1;
}

// Each rank runs the weight gradient of the shared pack where it stands in its own list.
TEST(weight_gradients_of_merged_ranks_are_local)
{
    AUTO(step) s;
    run("F0F1I0W0I1W1", "F0F2F3I0I2I3W0W2W3", &s);
    // The second rank has a forward more before the input gradient at which they meet.
    assert_int_equal(start_ns(&s, 0, SP_ACTION_I, 0), 3 * F);
    assert_int_equal(start_ns(&s, 1, SP_ACTION_I, 0), 3 * F);
    assert_int_equal(start_ns(&s, 0, SP_ACTION_W, 0), 3 * F + I);
    assert_int_equal(start_ns(&s, 1, SP_ACTION_W, 0), 3 * F + 3 * I);
    assert_int_equal(s.timeline.makespan_ns, 3 * F + 3 * I + 3 * W);
}

// Even in lists that could not meet there.
TEST(weight_gradients_of_merged_ranks_in_any_order)
{
    AUTO(step) s;
    run("F0F1I0I1W1W0", "F0I0W0F2F3I2W2I3W3", &s);
    assert_int_equal(start_ns(&s, 1, SP_ACTION_W, 0), 2 * F + I);
    assert_int_equal(start_ns(&s, 0, SP_ACTION_W, 0), 2 * F + 2 * I + W);
}

TEST(forwards_and_gradients_meet)
{
    AUTO(step) s;
    run("F1F0B1B0", "F2F3F0B2B3B0", &s);
    assert_int_equal(start_ns(&s, 0, SP_ACTION_F, 0), 2 * F);
    assert_int_equal(start_ns(&s, 0, SP_ACTION_B, 0), 3 * F + 2 * (I + W));
}

// What is recomputed of a shared pack exchanges keys and values as its forward did.
TEST(recomputations_meet)
{
    AUTO(step) s;
    run("F0F1R0B1B0", "F0F2F3R0B0B2B3", &s);
    assert_int_equal(start_ns(&s, 0, SP_ACTION_R, 0), 3 * F);
    assert_int_equal(start_ns(&s, 1, SP_ACTION_R, 0), 3 * F);
}
