// PackFlow's order against its rules, on random jobs and on uniform ones of one chunk per rank.
#include "sim/base/units.h"
#include "sim/schedule/packflow.h"
#include "tests/support/packflow_replay.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

static packflow_case c;
static packflow_run run;

TEST(random_jobs_follow_the_rules)
{
    sp_prng prng;
    for (int chunks = 1; chunks <= PACKFLOW_CHUNKS; chunks++) {
        sp_prng_seed(&prng, 40 + (uint64_t)chunks);
        for (int round = 0; round < test_draws(10000) / chunks; round++) {
            packflow_case_draw(&c, &prng, chunks);
            packflow_run_checked(&c, &run);
        }
    }
}

static int64_t work_ns(int rank)
{
    size_t vstages = (size_t)sp_layout_vstages(&c.layout);
    int64_t ns = 0;
    for (int chunk = 0; chunk < c.layout.chunks; chunk++) {
        size_t v = (size_t)sp_layout_vstage(&c.layout, rank, chunk);
        for (size_t k = 0; k < c.job.forward; k++) {
            ns += c.f_ns[k * vstages + v];
        }
        for (size_t k = 0; k < c.job.backward; k++) {
            ns += c.b_ns[k * vstages + v] + (c.job.w_ns != NULL ? c.w_ns[k * vstages + v] : 0);
        }
    }
    return ns;
}

// No rank is done before its work and the way of the first pack to it; a single one never waits.
TEST_ROUNDS(work_is_a_bound, 51, 3000)
{
    packflow_case_draw(&c, prng, 1 + round % PACKFLOW_CHUNKS);
    packflow_run_checked(&c, &run);
    int64_t way_ns = 0;
    for (int k = 0; k < c.layout.pp; k++) {
        assert_true(run.makespan_ns >= way_ns + work_ns(k));
        way_ns += c.f_ns[k] + c.p2p_f_ns[0];
    }
    if (c.layout.pp == 1) {
        assert_int_equal(run.makespan_ns, work_ns(0));
    }
}

// The order depends on the ratios of times, and of memory to room, alone.
TEST_ROUNDS(units_do_not_matter, 53, 1000)
{
    static packflow_run before;
    packflow_case_draw(&c, prng, 1 + round % PACKFLOW_CHUNKS);
    packflow_run_checked(&c, &before);
    for (size_t i = 0; i < (size_t)PACKFLOW_PACKS * PACKFLOW_STAGES; i++) {
        c.f_ns[i] *= 1000;
        c.b_ns[i] *= 1000;
        c.w_ns[i] *= 1000;
    }
    for (int k = 0; k < PACKFLOW_PACKS; k++) {
        c.p2p_f_ns[k] *= 1000;
        c.p2p_b_ns[k] *= 1000;
    }
    for (size_t k = 0; k < c.job.forward; k++) {
        c.tokens[k] *= 7;
    }
    for (size_t k = 0; k < c.job.backward; k++) {
        c.freed[k] *= 7;
        c.again[k] *= 7;
    }
    for (int r = 0; r < PACKFLOW_RANKS; r++) {
        c.room_bytes[r] *= 7;
        c.again_bytes[r] *= 7;
    }
    packflow_run_checked(&c, &run);
    assert_int_equal(run.makespan_ns, 1000 * before.makespan_ns);
    assert_int_equal(run.lacking_bytes, 7 * before.lacking_bytes);
    packflow_assert_same_steps(&c, &run, &before);
}

// Room for all packs is any room; and with one chunk both placements are the same.
TEST_ROUNDS(ample_room_is_any_room, 57, 1000)
{
    static packflow_run any;
    int chunks = 1 + round % PACKFLOW_CHUNKS;
    packflow_case_draw(&c, prng, chunks);
    packflow_case_room(&c, -1);
    packflow_run_checked(&c, &any);
    packflow_case_room(&c, (int64_t)PACKFLOW_PACKS * 100 * 9 * chunks);
    c.layout.placement = chunks == 1 ? SP_PLACE_V : c.layout.placement;
    packflow_run_checked(&c, &run);
    assert_int_equal(run.makespan_ns, any.makespan_ns);
    assert_int_equal(run.lacking_bytes, 0);
    packflow_assert_same_steps(&c, &run, &any);
}

// 1F1B's closed form (M + p - 1) (f + b), with p2p x also 2 (p - 1) x: the last stage begins after
// p - 1 forwards, never waits, and p - 1 backwards follow its last. It holds where b and x are
// whole numbers of f, as no backward then waits for a forward, and with room for p packs at x = 0,
// which is what 1F1B keeps on its first stage.
TEST(uniform_packs_take_1f1b_time)
{
    for (int p = 1; p <= PACKFLOW_RANKS; p++) {
        for (int m = 1; m <= PACKFLOW_PACKS; m++) {
            for (int64_t x = 0; x <= 2; x++) {
                int64_t f = 7;
                packflow_case_uniform(&c, p, 1, m, f, 2 * f, 0);
                packflow_case_transfer(&c, x * f);
                int64_t expected = (m + p - 1) * 3 * f + 2 * (p - 1) * x * f;
                packflow_run_checked(&c, &run);
                assert_int_equal(run.makespan_ns, expected);
                if (x == 0) {
                    packflow_case_room(&c, 10 * (int64_t)p);
                    packflow_run_checked(&c, &run);
                    assert_int_equal(run.makespan_ns, expected);
                    assert_int_equal(run.lacking_bytes, 0);
                    assert_int_equal(run.most_bytes[0], 10 * (m < p ? m : p));
                }
            }
        }
    }
}

// Forwards and backwards are those of 1F1B's list (arXiv 2104.04473), whatever packs take and
// however little room there is: pp - rank forwards, then a backward and a forward in turn.
TEST_ROUNDS(in_1f1b, 58, 1000)
{
    const int p = 1 + (int)prng_below(prng, PACKFLOW_RANKS);
    const int m = 1 + (int)prng_below(prng, PACKFLOW_PACKS);
    sp_packflow_outcome outcome;
    packflow_case_uniform(&c, p, 1, m, 1, 1, (int)prng_below(prng, 2));
    packflow_case_room(&c, (int64_t)prng_below(prng, 400) - 100);
    for (int i = 0; i < p * m; i++) {
        c.f_ns[i] = 1 + (int64_t)prng_below(prng, 100);
        c.b_ns[i] = 1 + (int64_t)prng_below(prng, 100);
    }
    c.job.in_1f1b = true;
    must_succeed(sp_packflow_run(&c.job, run.steps, &outcome, ERR));
    for (int rank = 0; rank < p; rank++) {
        const sp_packflow_step *step = run.steps + (size_t)rank * sp_packflow_length(&c.job);
        int forwards = 0;
        int backwards = 0;
        for (size_t i = 0; i < sp_packflow_length(&c.job); i++) {
            if (step[i].kind == SP_PACKFLOW_W) {
                continue;
            }
            bool forward = forwards < m && forwards < backwards + p - rank;
            assert_int_equal(step[i].kind, forward ? SP_PACKFLOW_F : SP_PACKFLOW_B);
            assert_int_equal(step[i].pack, forward ? forwards++ : backwards++);
        }
    }
}

// Weight gradients in the gaps never make uniform packs slower, and random ones hardly ever: one
// that has begun cannot be put off, so a backward may wait for it.
TEST(splitting_saves_time)
{
    for (int p = 1; p <= PACKFLOW_RANKS; p++) {
        for (int m = 1; m <= PACKFLOW_PACKS; m++) {
            packflow_case_uniform(&c, p, 1, m, 5, 5, 5);
            packflow_run_checked(&c, &run);
            int64_t split_ns = run.makespan_ns;
            packflow_case_uniform(&c, p, 1, m, 5, 10, 0);
            packflow_run_checked(&c, &run);
            assert_true(split_ns <= run.makespan_ns);
        }
    }
    sp_prng prng = prng_seeded(43);
    double log_ratio = 0.0;
    int slower = 0;
    enum { ROUNDS = 2000 };
    for (int round = 0; round < ROUNDS; round++) {
        packflow_case_draw(&c, &prng, 1);
        packflow_case_room(&c, -1);
        packflow_case_split(&c, true);
        packflow_run_checked(&c, &run);
        int64_t split_ns = run.makespan_ns;
        for (size_t i = 0; i < (size_t)PACKFLOW_PACKS * PACKFLOW_STAGES; i++) {
            c.b_ns[i] += c.w_ns[i];
        }
        packflow_case_split(&c, false);
        packflow_run_checked(&c, &run);
        slower += split_ns > run.makespan_ns;
        log_ratio += log((double)split_ns / (double)run.makespan_ns);
    }
    assert_true(log_ratio < 0.0);
    assert_true(slower < ROUNDS / 100);
}

// Room is a rank's: two merged ranks hold twice its tokens, half of them each.
TEST(merged_ranks_share_their_tokens)
{
    enum { PACKS = 10, STAGES = 4 };
    int64_t tokens[2 * PACKS];
    int64_t f_ns[2 * PACKS * STAGES];
    int64_t b_ns[2 * PACKS * STAGES];
    int64_t none[2 * PACKS * STAGES] = {0};
    int64_t token_bytes[3 * STAGES];
    int64_t room_bytes[3 * STAGES];
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = STAGES, .dp = 3, .chunks = 1};
    sp_batch batch = {.ids = tokens, .tokens = tokens, .count = (size_t)2 * PACKS};
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, &batch, 3);
    for (int k = 0; k < 2 * PACKS; k++) {
        // Ranks 0 and 1 together, then rank 2 with packs of half the tokens: the same a rank.
        bool merged = k < PACKS;
        tokens[k] = merged ? 200 : 100;
        pack_sample(&packing.forward, merged ? 0 : 2, merged ? 2 : 1, k, tokens[k]);
    }
    for (int i = 0; i < 2 * PACKS * STAGES; i++) {
        f_ns[i] = 10;
        b_ns[i] = 20;
    }
    const sp_schedule_costs costs = {.pack_f_ns = f_ns,
                                     .pack_b_ns = b_ns,
                                     .pack_w_ns = none,
                                     .pack_p2p_f_ns = none,
                                     .pack_p2p_b_ns = none,
                                     .token_bytes = token_bytes,
                                     .room_bytes = room_bytes};
    const sp_schedule_spec spec = {.kind = SP_SCHEDULE_PACKFLOW};
    for (int packs = 0; packs <= STAGES; packs++) {
        int64_t makespan_ns[3];
        for (int d = 0; d < 3; d++) {
            sp_packflow_outcome result;
            sp_packflow_step *orders[3];
            sp_arena work = {0};
            // The others have room for all that they want: none is slower than rank d.
            for (int s = 0; s < 3 * STAGES; s++) {
                token_bytes[s] = 3;
                room_bytes[s] = 300 * (s / STAGES == d ? packs : STAGES);
            }
            must_succeed(sp_packflow_slowest(&spec, &costs, &packing, &layout, NULL, &work, orders,
                                             &result, ERR));
            sp_arena_free(&work);
            // One pack at a time is the least that a rank can hold.
            assert_int_equal(result.lacking_bytes, packs == 0 ? 300 : 0);
            makespan_ns[d] = result.makespan_ns;
        }
        assert_int_equal(makespan_ns[0], makespan_ns[2]);
        assert_int_equal(makespan_ns[1], makespan_ns[2]);
        if (packs <= 1) {
            assert_int_equal(makespan_ns[0], PACKS * STAGES * 30);
        } else if (packs == STAGES) {
            assert_int_equal(makespan_ns[0], (PACKS + STAGES - 1) * 30);
        }
    }
}

static bool is_better(const sp_packflow_outcome *a, const sp_packflow_outcome *b)
{
    return a->lacking_bytes != b->lacking_bytes ? a->lacking_bytes < b->lacking_bytes
                                                : a->makespan_ns < b->makespan_ns;
}

// A run against one that is worse goes to its end; another is no better than that, and tells no
// more than there is.
TEST(ends_early_where_beaten)
{
    int early = 0;
    sp_prng prng = prng_seeded(5);
    for (int i = 0; i < 400; i++) {
        sp_packflow_outcome exact = {0};
        sp_packflow_outcome found = {0};
        packflow_case_draw(&c, &prng, 1 + i % PACKFLOW_CHUNKS);
        must_succeed(sp_packflow_run(&c.job, NULL, &exact, ERR));
        const sp_packflow_outcome beaten = {.makespan_ns = exact.makespan_ns * (90 + i % 21) / 100,
                                            .lacking_bytes = exact.lacking_bytes +
                                                             (int64_t)sp_prng_below(&prng, 3) - 1};
        c.job.beaten = &beaten;
        must_succeed(sp_packflow_run(&c.job, NULL, &found, ERR));
        bool better = is_better(&exact, &beaten);
        assert_int_equal(is_better(&found, &beaten), better);
        assert_true(found.makespan_ns <= exact.makespan_ns);
        assert_true(found.lacking_bytes <= exact.lacking_bytes);
        bool whole =
            found.makespan_ns == exact.makespan_ns && found.lacking_bytes == exact.lacking_bytes;
        assert_true(!better || whole);
        early += !whole;
    }
    assert_true(early > 50);
}

// Steps that are known make the plan that is made of these costs, whatever the costs beside them.
static void must_make_the_plan(const sp_schedule_spec *spec, const sp_schedule_costs *costs,
                               const sp_packing *packing, const sp_layout *layout,
                               sp_packflow_step **orders)
{
    sp_plan plan[2];
    for (int known = 0; known < 2; known++) {
        sp_schedule_costs with = *costs;
        with.orders = known != 0 ? orders : NULL;
        with.pack_f_ns = known != 0 ? costs->pack_b_ns : costs->pack_f_ns;
        sp_plan_init(&plan[known], layout, packing);
        must_succeed(sp_schedule_generate(spec, &with, "test", &plan[known], ERR));
    }
    for (int i = 0; i < layout->dp * layout->pp; i++) {
        const sp_stage_plan *found = sp_plan_stage(&plan[0], i / layout->pp, i % layout->pp);
        const sp_stage_plan *made = sp_plan_stage(&plan[1], i / layout->pp, i % layout->pp);
        assert_int_equal(made->count, found->count);
        for (size_t a = 0; a < found->count; a++) {
            assert_int_equal(made->actions[a].kind, found->actions[a].kind);
            assert_int_equal(made->actions[a].pack, found->actions[a].pack);
        }
    }
    sp_plan_fini(&plan[0]);
    sp_plan_fini(&plan[1]);
}

// Any rank may be the slowest, and any may lack most memory.
TEST_ROUNDS(slowest_of_the_ranks, 6, 200)
{
    enum { PACKS = 4, STAGES = 2, RANKS = 3, ALL = RANKS * PACKS };
    int64_t f_ns[ALL * STAGES];
    int64_t b_ns[ALL * STAGES];
    int64_t none[ALL * STAGES] = {0};
    int64_t tokens[ALL];
    int64_t token_bytes[RANKS * STAGES];
    int64_t room_bytes[RANKS * STAGES];
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = STAGES, .dp = RANKS, .chunks = 1};
    const sp_schedule_spec spec = {.kind = SP_SCHEDULE_PACKFLOW};
    const sp_schedule_costs costs = {.pack_f_ns = f_ns,
                                     .pack_b_ns = b_ns,
                                     .pack_w_ns = none,
                                     .pack_p2p_f_ns = none,
                                     .pack_p2p_b_ns = none,
                                     .token_bytes = token_bytes,
                                     .room_bytes = room_bytes};
    sp_batch batch = {.ids = tokens, .tokens = tokens, .count = ALL};
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, &batch, RANKS);
    for (int k = 0; k < ALL; k++) {
        tokens[k] = 1 + prng_below(prng, 100);
        pack_sample(&packing.forward, k / PACKS, 1, k, tokens[k]);
    }
    for (int i = 0; i < ALL * STAGES; i++) {
        f_ns[i] = 1 + prng_below(prng, 100);
        b_ns[i] = 1 + prng_below(prng, 100);
    }
    for (int i = 0; i < RANKS * STAGES; i++) {
        token_bytes[i] = 1;
        room_bytes[i] = round % 2 == 0 ? 1000 : 90 + prng_below(prng, 20);
    }
    sp_packflow_outcome exact = {0};
    sp_packflow_outcome found;
    sp_packflow_step *orders[RANKS];
    sp_arena work = {0};
    for (int d = 0; d < RANKS; d++) {
        // The rank by itself.
        sp_layout alone = layout;
        AUTO(sp_packing) packs;
        sp_schedule_costs own = costs;
        alone.dp = 1;
        sp_packing_init(&packs, &batch, 1);
        for (int k = d * PACKS; k < (d + 1) * PACKS; k++) {
            pack_sample(&packs.forward, 0, 1, k, tokens[k]);
        }
        own.pack_f_ns += d * PACKS * STAGES;
        own.pack_b_ns += d * PACKS * STAGES;
        own.token_bytes += d * STAGES;
        own.room_bytes += d * STAGES;
        must_succeed(
            sp_packflow_slowest(&spec, &own, &packs, &alone, NULL, &work, orders, &found, ERR));
        exact.makespan_ns = sp_larger(exact.makespan_ns, found.makespan_ns);
        exact.lacking_bytes = sp_larger(exact.lacking_bytes, found.lacking_bytes);
    }
    must_succeed(
        sp_packflow_slowest(&spec, &costs, &packing, &layout, NULL, &work, orders, &found, ERR));
    must_make_the_plan(&spec, &costs, &packing, &layout, orders);
    assert_int_equal(found.makespan_ns, exact.makespan_ns);
    assert_int_equal(found.lacking_bytes, exact.lacking_bytes);
    const sp_packflow_outcome beaten = {.makespan_ns = exact.makespan_ns - 20 + round % 41,
                                        .lacking_bytes = exact.lacking_bytes};
    must_succeed(
        sp_packflow_slowest(&spec, &costs, &packing, &layout, &beaten, &work, orders, &found, ERR));
    assert_int_equal(is_better(&found, &beaten), is_better(&exact, &beaten));
    assert_true(found.makespan_ns <= exact.makespan_ns);
    assert_true(found.lacking_bytes <= exact.lacking_bytes);
    sp_arena_free(&work);
}
