// SlimPack's search: the same plan on any number of threads, each switch does what it says, and
// time limits are kept.
#include <time.h>

#include "sim/base/progress.h"
#include "solver/search.h"
#include "solver/slimpack/slimpack_search.h"
#include "solver/step/step.h"
#include "tests/support/drawn_packs.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define EIGHT(x) x ", " x ", " x ", " x ", " x ", " x ", " x ", " x

// A strategy on the first batch of a scenario, without a step.
typedef struct planned {
    sp_scenario scenario;
    sp_batches batches;
    sp_cost_model cost;
    sp_packing packing;
    sp_packflow_outcome outcome;
    double wall_ms, cpu_ms;
} planned;

// Of the calling thread alone, which does all the work where one thread searches: what libraries
// do on threads of their own, such as the spinning of OpenBLAS's when it is loaded, is not the
// search's.
static double cpu_s(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double deadline_s(const sp_scenario *scenario)
{
    int64_t limit_ms = scenario->strategy.time_limit_ms;
    return limit_ms > 0 ? sp_clock_s() + 1e-3 * (double)limit_ms : 0.0;
}

static void plan(const char *text, bool asymmetric, bool split, int threads, planned *p)
{
    must_succeed_for(text, run_read(text, &p->scenario, ERR));
    must_succeed_for(text, sp_strategy_resolve(&p->scenario, false, ERR));
    must_succeed_for(text, sp_evaluate_batches(&p->scenario, &p->batches, ERR));
    must_succeed(sp_scenario_cost_model(&p->scenario, &p->cost, ERR));
    const sp_strategy_input input = {.scenario = &p->scenario,
                                     .batch = &p->batches.batch[0],
                                     .context = p->batches.context,
                                     .cost = &p->cost,
                                     .threads = threads,
                                     .deadline_s = deadline_s(&p->scenario)};
    double wall_s = sp_clock_s();
    double used_s = cpu_s();
    const sp_i_slimpack_options options = sp_i_slimpack_options_of(&input, asymmetric, split);
    must_succeed(sp_i_slimpack_search(&input, &options, &p->packing, &p->outcome, ERR));
    p->wall_ms = 1e3 * (sp_clock_s() - wall_s);
    p->cpu_ms = 1e3 * (cpu_s() - used_s);
    assert_pack_rules(&p->packing);
}

static void planned_fini(planned *p)
{
    sp_packing_fini(&p->packing);
    sp_cost_model_fini(&p->cost);
    sp_batches_fini(&p->batches);
    sp_scenario_fini(&p->scenario);
}

static void assert_same_list(const sp_pack_list *a, const sp_pack_list *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->slice_count, b->slice_count);
    for (size_t k = 0; k < a->count; k++) {
        assert_int_equal(a->packs[k].dp_first, b->packs[k].dp_first);
        assert_int_equal(a->packs[k].dp_count, b->packs[k].dp_count);
        assert_int_equal(a->packs[k].slice_count, b->packs[k].slice_count);
    }
    for (size_t i = 0; i < a->slice_count; i++) {
        assert_int_equal(a->slices[i].sample, b->slices[i].sample);
        assert_int_equal(a->slices[i].begin, b->slices[i].begin);
        assert_int_equal(a->slices[i].tokens, b->slices[i].tokens);
    }
}

TEST(same_plan_for_any_threads)
{
    static const int threads[] = {2, 5};
    const char *scenario =
        "{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'tp': 4, 'pp': 4, 'dp': 6}, "
        "'workload': {'lengths': 'wikipedia', 'context': 65536, 'samples_per_batch': 128}, "
        "'strategy': {'kind': 'slimpack'}}";
    for (int split = 0; split < 2; split++) {
        AUTO(planned) one;
        plan(scenario, true, split != 0, 1, &one);
        for (int i = 0; i < 2; i++) {
            AUTO(planned) many;
            plan(scenario, true, split != 0, threads[i], &many);
            assert_same_list(&one.packing.forward, &many.packing.forward);
            assert_same_list(&one.packing.backward, &many.packing.backward);
            assert_int_equal(one.outcome.makespan_ns, many.outcome.makespan_ns);
        }
    }
}

// On one rank all samples are the same for both; regrouping comes on top of the best equal packs.
TEST(asymmetric_is_predicted_no_slower)
{
    for (int seed = 1; seed <= 4; seed++) {
        AUTO(planned) symmetric, asymmetric;
        const char *text = json_text(
            "{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'tp': 4, 'pp': 8}, "
            "'workload': {'lengths': 'wikipedia', 'context': 65536, 'samples_per_batch': 96, "
            "'seed': %d}, 'strategy': {'kind': 'slimpack'}}",
            seed);
        plan(text, false, seed % 2 != 0, 1, &symmetric);
        plan(text, true, seed % 2 != 0, 1, &asymmetric);
        assert_false(sp_packflow_is_better(&symmetric.outcome, &asymmetric.outcome));
    }
}

#define MIXED                                                                                   \
    "60000, 3000, 200, 900, 40, 7000, 512, 100, 90, 2048, 1, 15000, 700, 1200, 5000, 333, 64, " \
    "2500, 800, 20000"

static void plan_with(const char *layout, const char *lengths, const char *strategy, planned *p)
{
    const char *text =
        json_text("%s'cluster': 'h800-8', 'parallel': {%s}, 'workload': {'lengths': [%s], 'order': "
                  "'file'}, 'strategy': {'kind': 'slimpack'%s}}",
                  TINY_MODEL, layout, lengths, strategy);
    plan(text, true, false, 1, p);
}

TEST(slices_switched_off)
{
    AUTO(planned) p;
    plan_with("'pp': 2, 'dp': 2", MIXED, "", &p);
    assert_true(p.packing.forward.slice_count > p.batches.batch[0].count);
    planned_fini(&p);
    plan_with("'pp': 2, 'dp': 2", MIXED, ", 'slices': false", &p);
    assert_int_equal(p.packing.forward.slice_count, p.batches.batch[0].count);
}

TEST(slices_of_stated_tokens)
{
    AUTO(planned) p;
    plan_with("'pp': 2", MIXED, ", 'slice_tokens': 1000, 'asymmetric': false", &p);
    assert_true(p.packing.forward.slice_count > p.batches.batch[0].count);
    assert_cuts(&p.packing, 1000);
}

TEST(asymmetry_switched_off)
{
    AUTO(planned) p;
    plan_with("'pp': 2, 'dp': 2", MIXED, ", 'asymmetric': false", &p);
    const sp_pack_list *forward = &p.packing.forward;
    const sp_pack_list *backward = &p.packing.backward;
    assert_int_equal(forward->count, backward->count);
    for (size_t k = 0; k < backward->count; k++) {
        size_t same = 0;
        for (size_t i = 0; i < forward->count; i++) {
            const sp_slice *a = &forward->slices[forward->packs[i].first_slice];
            const sp_slice *b = &backward->slices[backward->packs[k].first_slice];
            same += forward->packs[i].slice_count == backward->packs[k].slice_count &&
                    memcmp(a, b, backward->packs[k].slice_count * sizeof *a) == 0;
        }
        assert_int_equal(same, 1);
    }
}

// Without tapers packs end within a sample of equal shares.
TEST(taper_switched_off)
{
    char lengths[RUN_TEXT] = "";
    for (int i = 0; i < 192; i++) {
        put_json(lengths, "%s%d", i > 0 ? ", " : "", 400 + 37 * i % 100);
    }
    for (int taper = 0; taper < 2; taper++) {
        AUTO(planned) p;
        plan_with("'pp': 2", lengths, taper != 0 ? "" : ", 'taper': false", &p);
        int64_t least = INT64_MAX;
        int64_t most = 0;
        for (size_t k = 0; k < p.packing.forward.count; k++) {
            int64_t tokens = p.packing.forward.packs[k].tokens;
            least = tokens < least ? tokens : least;
            most = tokens > most ? tokens : most;
        }
        if (taper == 0) {
            assert_true(most - least <= 1000);
        }
    }
}

TEST(merging_switched_off)
{
    for (int merge = 0; merge < 2; merge++) {
        AUTO(planned) p;
        size_t merged = 0;
        plan_with("'pp': 2, 'dp': 4", "200000, " EIGHT("500"),
                  merge != 0 ? "" : ", 'dp_merge': false", &p);
        for (size_t k = 0; k < p.packing.forward.count; k++) {
            merged += p.packing.forward.packs[k].dp_count > 1;
        }
        assert_int_equal(merged > 0, merge != 0);
    }
}

// What the search may take beyond its limit, ms: whole steps of what was found are simulated after
// the limit, which takes five times as long where every access to memory is watched.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MOST_OVER_MS 1000.0
#else
#define MOST_OVER_MS 50.0
#endif

// Every rank gets its share of the time, and the plan is whole. Another's work on the machine is
// not counted.
TEST(time_limits_are_kept)
{
    static const int limits_ms[] = {20, 300, 1000};
    for (size_t i = 0; i < sizeof limits_ms / sizeof limits_ms[0]; i++) {
        AUTO(planned) p;
        const char *text = json_text(
            "{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'tp': 4, 'pp': 4, 'dp': "
            "32}, 'workload': {'lengths': 'wikipedia', 'context': 65536, "
            "'samples_per_batch': 2048}, 'strategy': {'kind': 'slimpack', 'time_limit_ms': "
            "%d}}",
            limits_ms[i]);
        plan(text, true, false, 1, &p);
        must_hold(p.cpu_ms <= limits_ms[i] + MOST_OVER_MS,
                  "%d ms: %.1f ms, %.1f ms of them at work", limits_ms[i], p.wall_ms, p.cpu_ms);
    }
}

// Where split backwards do not fit and whole ones are searched as well, in one and the same time.
TEST(time_limits_hold_for_both_searches)
{
    AUTO(sp_scenario) scenario;
    AUTO(sp_batches) batches;
    AUTO(sp_cost_model) cost;
    AUTO(sp_packing) packing;
    const char *text = "{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'tp': 4, 'pp': 2, "
                       "'dp': 8, 'chunks_per_rank': 1}, 'workload': {'lengths': 'wikipedia', "
                       "'context': 65536, 'samples_per_batch': 2048}, 'memory': {'limit_gib': 5}, "
                       "'strategy': {'kind': 'slimpack-zb', 'time_limit_ms': 100}}";
    must_succeed_for(text, run_read(text, &scenario, ERR));
    must_succeed_for(text, sp_strategy_resolve(&scenario, false, ERR));
    must_succeed_for(text, sp_evaluate_batches(&scenario, &batches, ERR));
    must_succeed(sp_scenario_cost_model(&scenario, &cost, ERR));
    const sp_strategy_input input = {.scenario = &scenario,
                                     .batch = &batches.batch[0],
                                     .context = batches.context,
                                     .cost = &cost,
                                     .deadline_s = deadline_s(&scenario)};
    double used_s = cpu_s();
    must_succeed(sp_strategy_pack(sp_strategy_find("slimpack-zb"), &input, &packing, ERR));
    double used_ms = 1e3 * (cpu_s() - used_s);
    assert_pack_rules(&packing);
    must_hold(used_ms <= 100.0 + MOST_OVER_MS, "%.1f ms", used_ms);
}

// ---- packs that are beaten ----

// Packs of every rule, with and without a pipeline, gradients apart, ZeRO and short memory.
static const char *draw_job(sp_prng *prng)
{
    static const int pps[] = {1, 2, 4};
    static const char *const kinds[] = {"slimpack", "slimpack-zb"};
    static const char *const details[] = {"closed", "flows", "auto"};
    static const char *const exchanges[] = {"attention", "a2a", "blocking"};
    const int pp = pps[sp_prng_below(prng, 3)];
    const char *kind = kinds[sp_prng_below(prng, 2)];
    const int zero = pp == 1 ? (int)sp_prng_below(prng, 4) : (int)sp_prng_below(prng, 2);
    return json_text(
        "{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'tp': %d, 'pp': %d, 'dp': %d, "
        "'cp': %d, 'zero': %d, 'chunks_per_rank': %d}, 'memory': {'limit_gib': 80, 'recompute': "
        "'%s'}, 'stack': {'cp_overlap': '%s'}, 'network': {'detail': '%s'}, 'workload': "
        "{'lengths': 'wikipedia', 'context': 65536, 'samples_per_batch': %d, 'seed': %d}, "
        "'strategy': {'kind': '%s'}}",
        1 << sp_prng_below(prng, 4), pp, 1 << sp_prng_below(prng, 4), 1 << sp_prng_below(prng, 3),
        zero, pp == 1 ? 1 : 1 + (int)sp_prng_below(prng, 2),
        sp_prng_below(prng, 2) == 0 ? "none" : "full", exchanges[sp_prng_below(prng, 3)],
        details[sp_prng_below(prng, 3)], 4 + (int)sp_prng_below(prng, 60),
        1 + (int)sp_prng_below(prng, 1000), kind);
}

// No step is shorter than what its packs are said to take at least, and the tenth of a step is.
// False: there is no such step.
static bool check_beaten(const sp_strategy_input *input, const char *text, const char *kind)
{
    sp_packing packing;
    sp_packflow_outcome outcome;
    if (sp_strategy_pack(sp_strategy_find(kind), input, &packing, NULL) != SP_OK) {
        sp_packing_fini(&packing);
        return false;
    }
    must_succeed(sp_step_judge(input, &packing, &outcome, ERR));
    const bool runs = outcome.makespan_ns < INT64_MAX;
    if (runs) {
        const sp_packflow_outcome longer = {.makespan_ns = outcome.makespan_ns + 1};
        const sp_packflow_outcome shorter = {.makespan_ns = outcome.makespan_ns / 10};
        sp_strategy_input with = *input;
        must_hold(!sp_step_is_beaten(input, &packing, &longer),
                  "%s: packs of %s take less than they are said to", text, kind);
        assert_true(sp_step_is_beaten(input, &packing, &shorter));
        with.beaten = &longer;
        assert_false(sp_step_is_beaten(&with, &packing, &SP_PACKFLOW_WORST));
        with.beaten = &shorter;
        assert_true(sp_step_is_beaten(&with, &packing, &SP_PACKFLOW_WORST));
    }
    sp_packing_fini(&packing);
    return runs;
}

// The strategies of which there was a step.
static int check_beaten_job(const char *text)
{
    static const char *const kinds[] = {"kk-flops",  "dp-balanced", "hybrid-dp", "te-cp",
                                        "bytescale", "hybrid-cp",   "zeppelin"};
    AUTO(planned) p;
    must_succeed_for(text, run_read(text, &p.scenario, ERR));
    p.scenario.schedule.kind = SP_SCHEDULE_PACKFLOW;
    p.scenario.schedule.split_backward = sp_strategy_find(p.scenario.strategy.kind)->split_backward;
    must_succeed_for(text, sp_scenario_resolve_layout(&p.scenario, ERR));
    must_succeed_for(text, sp_evaluate_batches(&p.scenario, &p.batches, ERR));
    must_succeed(sp_scenario_cost_model(&p.scenario, &p.cost, ERR));
    const sp_strategy_input input = {.scenario = &p.scenario,
                                     .batch = &p.batches.batch[0],
                                     .context = p.batches.context,
                                     .cost = &p.cost};
    int checked = 0;
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        checked += check_beaten(&input, text, kinds[i]);
    }
    sp_packing_init(&p.packing, input.batch, 1);
    return checked;
}

TEST(packs_are_beaten_by_no_longer_step)
{
    sp_prng prng = prng_seeded(21);
    int checked = 0;
    for (int round = 0; round < test_rounds(40); round++) {
        checked += check_beaten_job(draw_job(&prng));
    }
    assert_true(checked >= 3 * test_rounds(40)); // of seven a round
}

// A head that pipeline ranks share is behind the last of them, not on the way there.
TEST(packs_are_beaten_by_no_longer_step_with_a_shared_vocabulary)
{
    static const char *const kinds[] = {"slimpack", "slimpack-zb"};
    for (int i = 0; i < 2 * COUNT_OF(kinds); i++) {
        const int checked = check_beaten_job(json_text(
            "{'model': {'layers': 8, 'hidden': 2048, 'heads': 16, 'ffn': 5504, 'vocab': 262144}, "
            "'cluster': 'h800-8', 'parallel': {'pp': 4, 'dp': 1, 'chunks_per_rank': %d, "
            "'vocab_parallel': true}, 'memory': {'limit_gib': 80}, 'workload': {'lengths': "
            "[32768], 'context': 32768}, 'strategy': {'kind': '%s'}}",
            1 + i / COUNT_OF(kinds), kinds[i % COUNT_OF(kinds)]));
        assert_true(checked > 0);
    }
}

// ---- bounds of work ----

static const char long_samples[] =
    "{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'tp': 4, 'pp': 2, 'dp': 4}, "
    "'workload': {'lengths': [200000, 9000, 700, 40000, 120, 3000, 65536, 5], 'context': 262144}, "
    "'strategy': {'kind': 'slimpack'}}";

static void plan_within(int64_t limit, int threads, sp_meter *meter, sp_packflow_outcome *outcome)
{
    AUTO(planned) p;
    must_succeed_for(long_samples, run_read(long_samples, &p.scenario, ERR));
    *meter = (sp_meter){.limit = limit};
    p.scenario.strategy.meter = meter;
    must_succeed(sp_strategy_resolve(&p.scenario, false, ERR));
    must_succeed(sp_evaluate_batches(&p.scenario, &p.batches, ERR));
    must_succeed(sp_scenario_cost_model(&p.scenario, &p.cost, ERR));
    const sp_strategy_input input = {.scenario = &p.scenario,
                                     .batch = &p.batches.batch[0],
                                     .context = p.batches.context,
                                     .cost = &p.cost,
                                     .threads = threads};
    const sp_i_slimpack_options options = sp_i_slimpack_options_of(&input, true, false);
    must_succeed(sp_i_slimpack_search(&input, &options, &p.packing, outcome, ERR));
    assert_pack_rules(&p.packing);
}

// There is a plan however little work is left, the same on any number of threads; what goes beyond
// the bound is a small part of it, or the first look of each choice.
TEST(work_bounds_the_choices_and_the_search)
{
    static const int64_t limits[] = {1, 1000000, 4000000};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        sp_meter one, three;
        sp_packflow_outcome of_one, of_three;
        plan_within(limits[i], 1, &one, &of_one);
        plan_within(limits[i], 3, &three, &of_three);
        assert_true(one.ended);
        assert_true(one.spent < 2 * limits[i] + 2000000);
        assert_int_equal(one.spent, three.spent);
        assert_int_equal(of_one.makespan_ns, of_three.makespan_ns);
    }
}

TEST(without_a_bound_of_work_nothing_is_late)
{
    sp_meter meter = {.limit = 0};
    sp_scenario scenario = {.strategy = {.time_limit_ms = 0}};
    assert_false(sp_i_is_late(&scenario, 0.0));
    scenario.strategy.meter = &meter;
    assert_true(sp_i_is_late(&scenario, 0.0));
    assert_true(meter.ended);
}

// The first of several searches leaves the rest to the others.
TEST(parts_of_work)
{
    sp_meter meter = {.spent = 100, .limit = 1100};
    const sp_scenario scenario = {.strategy = {.meter = &meter}};
    const int64_t limit = sp_i_begin_part(&scenario, 0.25);
    assert_int_equal(meter.limit, 350);
    sp_i_spend(&scenario, 300);
    assert_true(sp_i_is_late(&scenario, 0.0));
    sp_i_end_part(&scenario, limit);
    assert_false(sp_i_is_late(&scenario, 0.0));
}

// ---- what int64_t does not hold ----

// By formulas that know no tensors no packs fit, and none has a time: looks at other groups of
// ranks begin with the largest number.
TEST(no_packs_fit_the_planner_s_formulas)
{
    SCENARIO_RUN(r,
                 "{'model': 'llama-7b', 'parallel': {'pp': 2, 'dp': 2}, 'memory': {'model': "
                 "'slimpipe-planner'}, 'workload': {'samples_per_batch': 1}, 'strategy': {'kind': "
                 "'slimpack-symmetric'}}",
                 (&(sp_evaluate_options){.no_bounds = true, .no_causes = true}));
    assert_true(sp_result_iteration_ms(&r.result) > 0.0);
}

TEST(steps_of_centuries_are_refused)
{
    static const char text[] =
        "{'model': {'name': 'giant', 'layers': 1024, 'hidden': 65536, 'ffn': 262144, 'heads': 512, "
        "'kv_heads': 512, 'vocab': 1000000}, 'cluster': 'a100-8', 'parallel': {'pp': 2, 'dp': 2, "
        "'chunks_per_rank': 1}, 'memory': {'recompute': 'full'}, 'strategy': {'kind': "
        "'slimpack-symmetric'}, 'workload': {'context': 100000000, 'lengths': [50000000, "
        "100000000, 33333333, 33333333, 100, 100, 100000000, 100, 2, 1]}}";
    AUTO(sp_scenario) scenario;
    AUTO(sp_batches) batches;
    sp_result result;
    const sp_evaluate_options options = {.no_bounds = true, .no_causes = true};
    must_succeed_for(text, run_read(text, &scenario, ERR));
    must_succeed(sp_evaluate_batches(&scenario, &batches, ERR));
    must_fail_with(sp_evaluate(&scenario, &batches, &options, &result, ERR), SP_ERR_LIMIT,
                   "over 285 years");
}

// ---- against its own symmetric form ----

static double step_of(const char *parallel, const char *lengths, const char *kind)
{
    SCENARIO_RUN(
        r,
        json_text("{'model': 'llama-13b', 'cluster': 'h800-8', 'parallel': {%s}, 'memory': "
                  "{'limit_gib': 80}, 'workload': {'lengths': [%s], 'context': 4096}, "
                  "'strategy': {'kind': '%s'}}",
                  parallel, lengths, kind),
        (&(sp_evaluate_options){.no_bounds = true, .no_causes = true}));
    return sp_result_iteration_ms(&r.result);
}

// The first took 1.3 % longer, in chunks that a short look preferred.
TEST_OF_VALUES(no_slower_than_symmetric)
{
    static const struct {
        const char *parallel, *lengths;
    } cases[] = {{"'tp': 4, 'pp': 2, 'dp': 2, 'zero': 0",
                  "4096, 217, 92, 1040, 4096, 1153, 9, 188, 800, 4096"},
                 {"'tp': 2, 'pp': 2, 'dp': 1, 'zero': 1", "4096, 17, 2092, 140, 900, 33"},
                 {"'tp': 4, 'pp': 4, 'dp': 1, 'zero': 1", "512, 517, 592, 540, 3096, 253, 90"},
                 {"'tp': 2, 'pp': 1, 'dp': 4, 'zero': 1", "4096, 3017, 92, 140, 4000, 53, 709"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double own_ms = step_of(cases[i].parallel, cases[i].lengths, "slimpack");
        double symmetric_ms = step_of(cases[i].parallel, cases[i].lengths, "slimpack-symmetric");
        must_hold(own_ms <= symmetric_ms, "%s: %.6f ms, symmetric %.6f", cases[i].lengths, own_ms,
                  symmetric_ms);
    }
}
