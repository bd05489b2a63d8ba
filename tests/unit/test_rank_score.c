// The fast score of one rank's packs against the step that the engine simulates: the times of packs
// are the same to the nanosecond, so only transfers, which the score takes to be linear in tokens,
// tell them apart.
#include "sim/schedule/packflow.h"
#include "solver/slimpack/slimpack_search.h"
#include "tests/support/drawn_packs.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// Each transfer is off by a few nanoseconds.
#define ROUNDED 1e-4

// Tokens of a sample at most.
enum { LONGEST = 100000 };

static drawn_batch d;

typedef struct scored_case {
    sp_scenario scenario;
    sp_cost_model cost;
    sp_i_rank_scorer scorer;
} scored_case;

static void case_init(int tp, int pp, int dp, int chunks, const char *more, scored_case *c)
{
    const char *text = json_text(
        "{'model': {'layers': 16, 'hidden': 1024, 'ffn': 2048, 'heads': 8, 'vocab': 1000}, "
        "'cluster': 'h800-8', 'parallel': {'tp': %d, 'pp': %d, 'dp': %d, 'chunks_per_rank': "
        "%d}, "
        "'workload': {'uniform': 64}, 'schedule': {'kind': 'packflow'}, 'strategy': {'kind': "
        "'slimpack'}%s}",
        tp, pp, dp, chunks, more);
    must_succeed_for(text, run_read(text, &c->scenario, ERR));
    must_succeed(sp_scenario_cost_model(&c->scenario, &c->cost, ERR));
    must_succeed(sp_i_rank_scorer_init(&c->scorer, &c->scenario, &c->cost, LONGEST, ERR));
}

static void case_fini(scored_case *c)
{
    sp_i_rank_scorer_fini(&c->scorer);
    sp_cost_model_fini(&c->cost);
    sp_scenario_fini(&c->scenario);
}

// Packs of all samples on ranks [0, dp).
static void make(int dp, const sp_i_shape *shape, sp_packing *packing, sp_i_needs *needs)
{
    sp_i_rank_samples samples = drawn_samples(&d, 0, dp);
    sp_packing_init(packing, &d.batch, dp);
    sp_i_micropacks_make(&drawn_work, &d.batch, &samples, shape, packing, needs);
}

typedef struct simulated {
    int64_t packflow_ns; // by the order's own run over the tables of the step
    int64_t engine_ns;
    int64_t p2p_off_ns; // the most that a transfer differs from the line through two packs
} simulated;

static void simulate(scored_case *c, const sp_packing *packing, bool split, simulated *s)
{
    AUTO(sp_step_costs) costs;
    AUTO(sp_plan) plan;
    sp_schedule_costs *times = NULL;
    must_succeed(sp_cost_model_build(&c->cost, packing, &costs, ERR));
    sp_plan_init(&plan, &c->scenario.layout, packing);
    times = sp_step_costs_means(&costs, &plan);
    sp_step_costs_by_pack(&costs, &plan, times);
    const sp_schedule_spec spec = {.kind = SP_SCHEDULE_PACKFLOW, .split_backward = split};
    must_succeed(sp_schedule_generate(&spec, times, "test", &plan, ERR));
    must_succeed(sp_plan_check(&plan, "test", ERR));
    sp_packflow_outcome result;
    sp_arena work = {0};
    sp_packflow_step **orders = sp_arena_take(&work, (size_t)c->scenario.layout.dp, sizeof *orders);
    must_succeed(sp_packflow_slowest(&spec, times, packing, &c->scenario.layout, NULL, &work,
                                     orders, &result, ERR));
    sp_arena_free(&work);
    AUTO(sp_timeline) timeline;
    AUTO(sp_memory_timeline) memory;
    sp_engine_counts counts;
    const sp_engine_options options = {.verify = true};
    must_succeed(sp_simulate(&plan, &costs, &options, &timeline, &memory, &counts, ERR));
    *s = (simulated){.packflow_ns = result.makespan_ns, .engine_ns = timeline.makespan_ns};
    for (size_t k = 0; k < packing->forward.count; k++) {
        const sp_pack *pack = &packing->forward.packs[k];
        double line_ns =
            c->scorer.p2p_ns + c->scorer.p2p_token_ns *
                                   (double)((pack->computed + pack->dp_count - 1) / pack->dp_count);
        int64_t off_ns = llabs((int64_t)(line_ns + 0.5) - times->pack_p2p_f_ns[k]);
        s->p2p_off_ns = off_ns > s->p2p_off_ns ? off_ns : s->p2p_off_ns;
    }
    sp_schedule_costs_free(times);
}

// The score of the packs, checked against the simulation.
static void assert_score(scored_case *c, const sp_packing *packing, const sp_i_needs *needs,
                         bool split, double tolerance)
{
    sp_packflow_outcome outcome;
    simulated s;
    must_succeed(sp_i_rank_score(&c->scorer, packing, needs->pack, split, NULL, &outcome, ERR));
    simulate(c, packing, split, &s);
    double off = (double)llabs(outcome.makespan_ns - s.engine_ns) / (double)s.engine_ns;
    assert_int_equal(outcome.lacking_bytes, 0);
    assert_in_range(s.p2p_off_ns, 0, 16);
    if (c->scenario.layout.tp == 1) {
        assert_int_equal(s.packflow_ns, s.engine_ns);
    }
    must_hold(off <= tolerance, "pp %d, chunks %d, split %d: scored %lld, simulated %lld",
              c->scenario.layout.pp, c->scenario.layout.chunks, split,
              (long long)outcome.makespan_ns, (long long)s.engine_ns);
}

static void score_random(int tp, int pp, int dp, int chunks, const char *more, int rounds,
                         double tolerance)
{
    static scored_case c;
    sp_prng prng = prng_seeded((uint64_t)(100 * pp + 10 * dp + chunks));
    case_init(tp, pp, dp, chunks, more, &c);
    for (int round = 0; round < rounds; round++) {
        draw_batch(&prng, 100 + sp_prng_below(&prng, 30000), &d);
        sp_i_shape shape = draw_shape(&prng);
        shape.slice_tokens += 64;
        AUTO(sp_packing) packing;
        sp_i_needs needs = {0};
        make(dp, &shape, &packing, &needs);
        assert_score(&c, &packing, &needs, round % 2 != 0, tolerance);
        sp_free(needs.pack);
    }
    case_fini(&c);
}

// Nothing is sent: the same time.
TEST(one_stage_is_exact)
{
    score_random(1, 1, 1, 1, "", 30, 0.0);
    score_random(1, 1, 2, 1, "", 30, 0.0);
}

TEST(pipelines)
{
    score_random(1, 2, 1, 1, "", 20, ROUNDED);
    score_random(1, 4, 1, 1, "", 20, ROUNDED);
    score_random(1, 8, 1, 1, "", 20, ROUNDED);
}

TEST(pipelines_of_two_chunks)
{
    score_random(1, 2, 1, 2, "", 20, ROUNDED);
    score_random(1, 4, 1, 2, "", 20, ROUNDED);
    score_random(1, 8, 1, 2, "", 20, ROUNDED);
}

TEST(merged_ranks)
{
    score_random(1, 2, 2, 1, "", 20, ROUNDED);
    score_random(1, 2, 4, 2, "", 20, ROUNDED);
}

TEST(recomputation)
{
    score_random(1, 4, 1, 1, ", 'memory': {'recompute': 'full'}", 20, ROUNDED);
    score_random(1, 4, 1, 2, ", 'memory': {'recompute': 'attention'}", 20, ROUNDED);
}

// Some links cross nodes: the order and the score take the mean of all of them.
TEST(links_across_nodes)
{
    score_random(4, 4, 1, 1, "", 20, 5e-3);
    score_random(4, 4, 1, 2, "", 20, 5e-3);
}

// What was scored before leaves nothing behind.
TEST(scores_do_not_depend_on_others)
{
    static scored_case c;
    sp_prng prng = prng_seeded(107);
    case_init(1, 4, 1, 1, "", &c);
    enum { ROUNDS = 20 };
    sp_packing packing[ROUNDS];
    sp_i_needs needs[ROUNDS] = {0};
    int64_t first_ns[ROUNDS];
    draw_batch(&prng, 20000, &d);
    for (int round = 0; round < 2 * ROUNDS; round++) {
        int k = round < ROUNDS ? round : 2 * ROUNDS - 1 - round;
        if (round < ROUNDS) {
            sp_i_shape shape = draw_shape(&prng);
            make(1, &shape, &packing[k], &needs[k]);
        }
        sp_packflow_outcome outcome;
        must_succeed(sp_i_rank_score(&c.scorer, &packing[k], needs[k].pack, k % 2 != 0, NULL,
                                     &outcome, ERR));
        if (round < ROUNDS) {
            first_ns[k] = outcome.makespan_ns;
        } else {
            assert_int_equal(outcome.makespan_ns, first_ns[k]);
            sp_free(needs[k].pack);
            sp_packing_fini(&packing[k]);
        }
    }
    case_fini(&c);
}

// A score that is known answers as one that is found: exactly, or that it is no better than what it
// is asked against. Other room, and gradients apart, are other scores.
TEST(known_scores_answer_as_found_ones)
{
    enum { ROUNDS = 30, ASKED = 12 };
    static scored_case c;
    static scored_case fresh;
    sp_prng prng = prng_seeded(108);
    int better = 0;
    case_init(1, 4, 1, 2, "", &c);
    draw_batch(&prng, 20000, &d);
    for (int round = 0; round < ROUNDS; round++) {
        AUTO(sp_packing) packing;
        sp_i_needs needs = {0};
        sp_i_shape shape = draw_shape(&prng);
        make(1, &shape, &packing, &needs);
        int64_t whole_bytes = c.scorer.limit_bytes;
        for (int i = 0; i < ASKED; i++) {
            sp_packflow_outcome exact;
            sp_packflow_outcome found;
            bool split = sp_prng_below(&prng, 2) != 0;
            case_init(1, 4, 1, 2, "", &fresh);
            c.scorer.limit_bytes = i % 3 == 0 ? whole_bytes / 400 : whole_bytes;
            fresh.scorer.limit_bytes = c.scorer.limit_bytes;
            must_succeed(
                sp_i_rank_score(&fresh.scorer, &packing, needs.pack, split, NULL, &exact, ERR));
            sp_packflow_outcome beaten = exact;
            beaten.makespan_ns += (int64_t)sp_prng_below(&prng, 2000000) - 1000000;
            bool asks_all = sp_prng_below(&prng, 4) == 0;
            must_succeed(sp_i_rank_score(&c.scorer, &packing, needs.pack, split,
                                         asks_all ? NULL : &beaten, &found, ERR));
            bool is_better = sp_packflow_is_better(&exact, &beaten);
            if (asks_all || is_better) {
                assert_int_equal(found.makespan_ns, exact.makespan_ns);
                assert_int_equal(found.lacking_bytes, exact.lacking_bytes);
            }
            assert_true(asks_all || sp_packflow_is_better(&found, &beaten) == is_better);
            better += is_better;
            case_fini(&fresh);
        }
        c.scorer.limit_bytes = whole_bytes;
        sp_free(needs.pack);
    }
    assert_in_range(better, ROUNDS, ROUNDS * (ASKED - 1));
    case_fini(&c);
}

// By a cost model that interpolates, as the search uses it: single packs within 2 %, their mean
// within 0.1 %, in layouts and profiles that make times of tokens differ most.
TEST(interpolated_times_are_near)
{
    static scored_case c;
    static const struct {
        int tp, dp;
        const char *more;
    } cases[] = {
        {1, 1, ""},
        {2, 4, ", 'profile': 'h100-nanotron'"},
        {1, 1, ", 'profile': 'h800', 'memory': {'recompute': 'full'}"},
        {2, 1, ", 'profile': 'a100-fitted', 'memory': {'recompute': 'attention'}"},
    };
    sp_prng prng = prng_seeded(179);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double off = 0.0;
        int packs = 0;
        sp_cost_model near;
        case_init(cases[i].tp, 2, cases[i].dp, 1, cases[i].more, &c);
        must_succeed(sp_scenario_cost_model(&c.scenario, &near, ERR));
        sp_cost_model_interpolate(&near);
        for (int round = 0; round < 40; round++) {
            AUTO(sp_packing) packing;
            sp_i_shape shape = draw_shape(&prng);
            draw_batch(&prng, 300u << sp_prng_below(&prng, 8), &d);
            make(cases[i].dp, &shape, &packing, NULL);
            for (size_t k = 0; k < packing.forward.count; k++, packs++) {
                int64_t exact_ns[2][2];
                int64_t near_ns[2][2];
                int64_t none_ns[2];
                const sp_pack_list *lists[] = {&packing.forward, &packing.backward};
                const sp_pack *forward = &packing.forward.packs[k];
                const sp_pack *backward = &packing.backward.packs[k % packing.backward.count];
                sp_cost_model *models[] = {&c.cost, &near};
                for (int m = 0; m < 2; m++) {
                    int64_t(*ns)[2] = m == 0 ? exact_ns : near_ns;
                    sp_cost_model_pack_ns(models[m], lists[0], forward, false, ns[0], NULL, NULL);
                    sp_cost_model_pack_ns(models[m], lists[1], backward, false, NULL, ns[1],
                                          none_ns);
                }
                for (int pass = 0; pass < 2; pass++) {
                    double exact = (double)(exact_ns[pass][0] + exact_ns[pass][1]);
                    double found = (double)(near_ns[pass][0] + near_ns[pass][1]);
                    assert_near(found, exact, 0.02, 0.0);
                    off += found / exact - 1.0;
                }
            }
        }
        assert_within(off / (2.0 * packs), 0.0, 1e-3);
        sp_cost_model_fini(&near);
        case_fini(&c);
    }
}

// Of one pack, which has nothing beside it, what fits is what memory says.
TEST(fits_up_to_the_limit)
{
    static scored_case c;
    const sp_i_shape one = {.forward = {.flat = 1, .grow = 1.0, .shrink = 1.0},
                            .slice_tokens = 128};
    sp_packing packing;
    sp_i_needs needs = {0};
    case_init(1, 2, 1, 1, "", &c);
    d.tokens[0] = 100000;
    drawn_batch_of(&d, 1);
    make(1, &one, &packing, &needs);
    int64_t least_bytes = 0;
    int64_t most_bytes = (int64_t)1 << 40;
    while (most_bytes - least_bytes > 1) {
        sp_packflow_outcome outcome;
        c.scorer.limit_bytes = least_bytes + (most_bytes - least_bytes) / 2;
        must_succeed(sp_i_rank_score(&c.scorer, &packing, needs.pack, false, NULL, &outcome, ERR));
        *(outcome.lacking_bytes == 0 ? &most_bytes : &least_bytes) = c.scorer.limit_bytes;
    }
    int64_t token_bytes[2], room_bytes[2], again_bytes[2];
    const sp_pack_room room = {token_bytes, room_bytes, again_bytes};
    sp_pack_memory_room(&c.scorer.memory, &c.scenario.layout, false, most_bytes, &room);
    assert_true(room_bytes[0] >= 100000 * token_bytes[0] &&
                room_bytes[1] >= 100000 * token_bytes[1]);
    assert_true(room_bytes[0] == 100000 * token_bytes[0] ||
                room_bytes[1] == 100000 * token_bytes[1]);
    sp_free(needs.pack);
    sp_packing_fini(&packing);
    case_fini(&c);
}
