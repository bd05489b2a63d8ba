// What is checked before a run and behind it: capabilities, plans that cannot end, and timelines
// that are not those of the plan.
#include "backends/api/device.h"
#include "sim/plan/walk.h"
#include "tests/support/idle_time.h"
#include "tests/support/initializers.h"
#include "tests/support/plan_sample.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

static const sp_run_request base = {
    .clock = SP_CLOCK_VIRTUAL, .precision = SP_FP64, .steps = 1, .memory_points = true};

// Each sample needs its capability; and no sample but one with slices needs those, and so on for
// the capabilities that an action needs.
TEST(requirements_of_samples)
{
    const uint64_t of_actions = SP_CAN(SPLIT_BACKWARD) | SP_CAN(PAIRS) | SP_CAN(RECOMPUTE_ACTION) |
                                SP_CAN(OFFLOAD) | SP_CAN(DP_MERGE);
    for (int c = 0; c < SP_CAPABILITIES; c++) {
        AUTO(plan_sample) s;
        sp_requirements r;
        plan_sample_make((sp_capability)c, &base, &s);
        sp_requirements_find(&s.request, &r);
        assert_true((r.needed >> c & 1) != 0);
        assert_int_equal(r.at_action & ~of_actions, 0);
        assert_int_equal(r.at_action & r.needed, r.at_action);
        assert_true((of_actions >> c & 1) == 0 || (r.at_action >> c & 1) != 0);
        bool sliced = c == SP_CAP_SLICES || c == SP_CAP_REGROUPED || c == SP_CAP_RECOMPUTE_ACTION;
        assert_int_equal((r.needed & SP_CAN(SLICES)) != 0, sliced);
        assert_int_equal((r.needed & SP_CAN(OFFLOAD)) != 0, c == SP_CAP_OFFLOAD);
        assert_int_equal((r.needed & SP_CAN(PAIRS)) != 0, c == SP_CAP_PAIRS);
    }
}

// One rank alone has nothing to shard, and no neighbour to share a vocabulary with.
TEST(requirements_of_one_rank)
{
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    sp_requirements r;
    const sp_layout layout = {LAYOUT(1, 1, 1, 1, 1), .zero = 3, .sequence_parallel = true,
                              .vocab_parallel = true};
    uniform_packing(&packing, 1, 1);
    sp_plan_init(&plan, &layout, &packing);
    plan_add_actions(&plan, 0, 0, "F0 B0");
    sp_run_request request = {.plan = &plan, .precision = SP_FP32, .steps = 1};
    sp_requirements_find(&request, &r);
    assert_true(r.needed == (SP_CAN(FP32) | SP_CAN(CLOCK_VIRTUAL) | SP_CAN(NO_MODEL)));
}

typedef struct fixture {
    sp_registry *registry;
    const sp_backend *fake;
    plan_sample s;
} fixture;

static void begin(fixture *f, sp_capability capability)
{
    assert_int_equal(sp_registry_new(&f->registry, NULL), SP_OK);
    assert_int_equal(sp_registry_find(f->registry, "fake", &f->fake, NULL), SP_OK);
    plan_sample_make(capability, &base, &f->s);
    f->s.request.costs = &f->s.costs;
}

static void fixture_fini(fixture *f)
{
    plan_sample_fini(&f->s);
    sp_registry_free(f->registry);
}

TEST(refusals_name_all_that_is_missing)
{
    AUTO(fixture) f;
    begin(&f, SP_CAP_SPLIT_BACKWARD);
    f.s.request.precision = SP_BF16;
    f.s.request.clock = SP_CLOCK_WALL;
    assert_int_equal(sp_backend_check(f.fake, 1, &f.s.request, ERR), SP_ERR_CONTENT);
    assert_int_equal(ERR->count, 4);
    assert_string_equal(ERR->message[0],
                        "dp 0 pp 0: I0: backend 'fake' (plain) cannot execute input and weight "
                        "gradients as actions of their own");
    assert_string_equal(ERR->message[1], "backend 'fake' (plain) cannot execute bf16");
    assert_string_equal(ERR->message[2], "backend 'fake' (plain) cannot execute the wall clock");
    assert_string_equal(ERR->message[3],
                        "backend 'fake' (plain) cannot execute the course of memory over time");
}

TEST(requests_are_checked)
{
    AUTO(fixture) f;
    begin(&f, SP_CAP_PIPELINE);
    sp_run_request wrong = f.s.request;
    wrong.steps = 0;
    assert_int_equal(sp_backend_check(f.fake, 0, &wrong, NULL), SP_ERR_USAGE);
    wrong = f.s.request;
    wrong.precision = SP_PRECISIONS;
    assert_int_equal(sp_backend_check(f.fake, 0, &wrong, NULL), SP_ERR_USAGE);
    wrong = f.s.request;
    wrong.timeout_ns = -1;
    assert_int_equal(sp_backend_check(f.fake, 0, &wrong, NULL), SP_ERR_USAGE);
    assert_int_equal(sp_backend_check(f.fake, 2, &f.s.request, NULL), SP_ERR_USAGE);
    // A plan that breaks a rule.
    sp_stage_plan *stage = sp_plan_stage(&f.s.plan, 0, 0);
    stage->count--;
    assert_int_equal(sp_backend_check(f.fake, 0, &f.s.request, NULL), SP_ERR_CONTENT);
    stage->count++;
    // More ranks than the device runs.
    sp_layout wide = f.s.layout;
    wide.tp = 17;
    f.s.plan.layout = wide;
    assert_int_equal(sp_backend_check(f.fake, 1, &f.s.request, ERR), SP_ERR_CONTENT);
    assert_non_null(strstr(ERR->message[ERR->count - 1], "runs at most 16 ranks, the plan has 34"));
}

// The first rank does all its forwards in one order, the last all in the other, with a backward in
// between: each waits for the other.
TEST(plans_that_cannot_end)
{
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1};
    sp_registry *registry = NULL;
    const sp_backend *fake = NULL;
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    sp_run *run = NULL;
    assert_int_equal(sp_registry_new(&registry, NULL), SP_OK);
    assert_int_equal(sp_registry_find(registry, "fake", &fake, NULL), SP_OK);
    uniform_packing(&packing, 1, 2);
    sp_plan_init(&plan, &layout, &packing);
    plan_add_actions(&plan, 0, 0, "F0 B0 F1 B1");
    plan_add_actions(&plan, 0, 1, "F1 B1 F0 B0");
    const sp_backend_option options[] = {{"durations", "F=1,B=1"}};
    sp_run_request request = base;
    request.plan = &plan;
    request.options = options;
    request.option_count = 1;
    assert_int_equal(sp_backend_run(fake, 0, &request, &run, ERR), SP_ERR_DEADLOCK);
    assert_null(run);
    assert_string_equal(ERR->message[0], "dp 0 pp 0: B0: waits for B0 of dp 0 pp 1, which cannot "
                                         "run before it");
    sp_registry_free(registry);
}

// Wrong timelines do not reach the caller.
TEST(damage_is_found)
{
    static const struct {
        sp_capability plan;
        const char *damage, *text;
    } cases[] = {
        {SP_CAP_PIPELINE, "order:B1@0.0", "dp 0 pp 0: "},
        {SP_CAP_PIPELINE, "overlap:B0@0.1",
         "dp 0 pp 1: B0: it starts before the action before it ends"},
        {SP_CAP_PIPELINE, "early:F0@0.1",
         "dp 0 pp 1: F0: it starts before F0 of dp 0 pp 0 is done"},
        {SP_CAP_PIPELINE, "early:B0@0.0",
         "dp 0 pp 0: B0: it starts before B0 of dp 0 pp 1 is done"},
        {SP_CAP_PIPELINE, "missing:B3@0.1", "dp 0 pp 1: B3: it did not run"},
        {SP_CAP_PIPELINE, "missing:F1@0.1", "dp 0 pp 1: F1: B1 ran in its place"},
        {SP_CAP_PIPELINE, "leak:F1@0.1",
         "dp 0 pp 1: memory does not drain: 1 bytes of activations remain"},
        {SP_CAP_SPLIT_BACKWARD, "missing:W0@0.0", "dp 0 pp 0: W0: "},
        {SP_CAP_OFFLOAD, "early:L0@0.0", "O0: it starts before F0 of dp 0 pp 0 is done"},
        {SP_CAP_OFFLOAD, "early:B0@0.0", "B0: it starts before L0 of dp 0 pp 0 is done"},
        {SP_CAP_OFFLOAD, "missing:O1@0.0", "dp 0 pp 0: O1: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO(fixture) f;
        sp_error_clear(ERR);
        sp_run *run = NULL;
        const sp_backend_option option = {"damage", cases[i].damage};
        begin(&f, cases[i].plan);
        f.s.request.options = &option;
        f.s.request.option_count = 1;
        assert_int_equal(sp_backend_run(f.fake, 0, &f.s.request, &run, ERR), SP_ERR_INTERNAL);
        assert_null(run);
        must_hold(strstr(ERR->message[0], cases[i].text) != NULL, "%s: expected \"%s\", got \"%s\"",
                  cases[i].damage, cases[i].text, ERR->message[0]);
    }
}

// A timeline of the right shape with one number changed.
TEST(numbers_are_checked)
{
    AUTO(fixture) f;
    sp_run *run = NULL;
    begin(&f, SP_CAP_PIPELINE);
    assert_int_equal(sp_backend_run(f.fake, 0, &f.s.request, &run, NULL), SP_OK);
    sp_measured_step step = *sp_run_step(run, 0);
    sp_rank_timeline *rank = &step.timeline.ranks[1];
    assert_int_equal(sp_measured_step_check(&f.s.plan, &step, NULL), SP_OK);
    int64_t end_ns = rank->spans[2].end_ns;
    rank->spans[2].end_ns = rank->spans[2].start_ns - 1;
    assert_int_equal(sp_measured_step_check(&f.s.plan, &step, NULL), SP_ERR_INTERNAL);
    rank->spans[2].end_ns = end_ns;
    rank->pp = 0;
    assert_int_equal(sp_measured_step_check(&f.s.plan, &step, NULL), SP_ERR_INTERNAL);
    rank->pp = 1;
    step.memory.ranks[1].peak.of[SP_MEM_LOGITS]++;
    assert_int_equal(sp_measured_step_check(&f.s.plan, &step, NULL), SP_ERR_INTERNAL);
    step.memory.ranks[1].peak.of[SP_MEM_LOGITS]--;
    step.memory.ranks[1].points[0].time_ns = INT64_MAX;
    assert_int_equal(sp_measured_step_check(&f.s.plan, &step, NULL), SP_ERR_INTERNAL);
    step.memory.ranks[1].points[0].time_ns = 0;
    assert_int_equal(sp_measured_step_check(&f.s.plan, &step, NULL), SP_OK);
    step.memory.rank_count = 1;
    assert_int_equal(sp_measured_step_check(&f.s.plan, &step, NULL), SP_ERR_INTERNAL);
    sp_run_free(run);
}

static int64_t transfers_ns(const sp_rank_timeline *rank)
{
    int64_t sum_ns = 0;
    for (size_t i = 1; i < rank->count; i++) {
        sum_ns += rank->spans[i].wait_p2p_ns;
    }
    return sum_ns;
}

// The fake begins as soon as it can, and says what it waits for on links: what begins later by some
// time was idle for as long, and what waits for another rank's end was not.
TEST(idle_time_waits_for_nobody)
{
    AUTO(fixture) f;
    sp_run *run = NULL;
    int64_t before_ns[2], idle_ns[2];
    begin(&f, SP_CAP_PIPELINE);
    assert_int_equal(sp_backend_run(f.fake, 0, &f.s.request, &run, NULL), SP_OK);
    const sp_measured_step *step = sp_run_step(run, 0);
    assert_int_equal(step->timeline.rank_count, 2);
    idle_time(step, before_ns);
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(before_ns[r], transfers_ns(&step->timeline.ranks[r]));
    }
    // The first rank has bubbles, though: between its last F and its first B, at least.
    const sp_rank_timeline *first = &step->timeline.ranks[0];
    int64_t gaps_ns = 0;
    for (size_t i = 1; i < first->count; i++) {
        gaps_ns += first->spans[i].start_ns - first->spans[i - 1].end_ns;
    }
    assert_true(gaps_ns > before_ns[0]);
    // The last action of the first rank reads the end of the second's last.
    sp_span *last[2];
    for (size_t r = 0; r < 2; r++) {
        const sp_rank_timeline *rank = &step->timeline.ranks[r];
        last[r] = &rank->spans[rank->count - 1];
    }
    last[0]->start_ns += 7;
    idle_time(step, idle_ns);
    assert_int_equal(idle_ns[0], before_ns[0] + 7);
    assert_int_equal(idle_ns[1], before_ns[1]);
    last[1]->start_ns += 3;
    last[1]->end_ns += 3;
    idle_time(step, idle_ns);
    assert_int_equal(idle_ns[0], before_ns[0] + 4);
    assert_int_equal(idle_ns[1], before_ns[1] + 3);
    sp_run_free(run);
}

static sp_status constant_time(void *context, const sp_walk_action *action,
                               sp_walk_outcome *outcome, sp_error *err)
{
    outcome->took.compute_ns = 100;
    return SP_OK;
}

// Run one after the other, the first of a pair gives its output too early.
TEST(pairs_end_together)
{
    const sp_walk_driver driver = {.run = constant_time};
    AUTO(plan_sample) s;
    sp_measured_step step;
    plan_sample_make(SP_CAP_PAIRS, &base, &s);
    for (int apart = 0; apart < 2; apart++) {
        size_t pairs = 0;
        sp_timeline_init(&step.timeline, &s.plan);
        uint8_t marks[2][64];
        for (int p = 0; p < 2; p++) {
            sp_stage_plan *stage = sp_plan_stage(&s.plan, 0, p);
            assert_in_range(stage->count, 1, 64);
            for (size_t a = 0; a < stage->count; a++) {
                marks[p][a] = stage->actions[a].with_next;
                pairs += marks[p][a];
                stage->actions[a].with_next = apart ? 0 : marks[p][a];
            }
        }
        assert_true(pairs > 0);
        assert_int_equal(sp_walk(&s.plan, &driver, &step.timeline, NULL, NULL), SP_OK);
        for (int p = 0; p < 2; p++) {
            sp_stage_plan *stage = sp_plan_stage(&s.plan, 0, p);
            for (size_t a = 0; a < stage->count; a++) {
                stage->actions[a].with_next = marks[p][a];
                step.timeline.ranks[p].spans[a].action.with_next = marks[p][a];
            }
        }
        sp_timeline_finish(&step.timeline);
        sp_memory_timeline_init(&step.memory, &step.timeline);
        assert_int_equal(sp_measured_step_check(&s.plan, &step, ERR),
                         apart ? SP_ERR_INTERNAL : SP_OK);
        sp_memory_timeline_fini(&step.memory);
        sp_timeline_fini(&step.timeline);
    }
    assert_non_null(strstr(ERR->message[0], ": it starts before "));
}
