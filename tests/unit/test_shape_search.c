// The search for the shape of one rank's packs: more effort, more freedom and a warm start never
// end worse; the switches bind it; it ends where that is enough; time that has run out leaves the
// first shapes.
#include "sim/base/progress.h"
#include "solver/slimpack/slimpack_search.h"
#include "tests/support/drawn_packs.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static drawn_batch d;

typedef struct search_case {
    sp_scenario scenario;
    sp_cost_model cost;
    sp_i_rank_scorer scorer;
    sp_i_work work;
    sp_i_shape_search search;
    double work_s;   // of all samples
    bool asymmetric; // backward packs of their own are searched as well
} search_case;

static void case_init(int pp, search_case *c)
{
    const char *text = json_text(
        "{'model': {'layers': 8, 'hidden': 2048, 'ffn': 4096, 'heads': 16, 'vocab': 1000}, "
        "'cluster': 'h800-8', 'parallel': {'pp': %d}, 'workload': {'uniform': 64}, "
        "'schedule': {'kind': 'packflow'}, 'strategy': {'kind': 'slimpack'}}",
        pp);
    must_succeed_for(text, run_read(text, &c->scenario, ERR));
    must_succeed(sp_scenario_cost_model(&c->scenario, &c->cost, ERR));
    must_succeed(sp_i_rank_scorer_init(&c->scorer, &c->scenario, &c->cost, 30000, ERR));
    must_succeed(sp_i_work_measure(&c->cost, 4096, &c->work, ERR));
    c->search = (sp_i_shape_search){
        .scorer = &c->scorer, .work = &c->work, .batch = &d.batch, .taper = true, .effort = 40000};
}

static void case_fini(search_case *c)
{
    sp_i_rank_scorer_fini(&c->scorer);
    sp_cost_model_fini(&c->cost);
    sp_scenario_fini(&c->scenario);
}

static void draw(sp_prng *prng, search_case *c)
{
    draw_batch(prng, 1000 + sp_prng_below(prng, 60000), &d);
    c->work_s = 0.0;
    for (size_t i = 0; i < d.batch.count; i++) {
        c->work_s += sp_i_slice_work_s(&c->work, 0, d.tokens[i]);
    }
}

// Each of both searches with all of the effort.
static void run(search_case *c, const sp_i_shape_search *search, bool warm, sp_i_best_shape *best)
{
    sp_i_rank_samples samples = drawn_samples(&d, 0, 1);
    sp_i_shape_search shapes = *search;
    must_succeed(sp_i_search_shape(&shapes, &samples, c->work_s, warm, best, ERR));
    assert_true(shapes.effort < search->effort);
    if (c->asymmetric) {
        shapes.effort = search->effort;
        must_succeed(sp_i_search_regrouped(&shapes, &samples, best, ERR));
    }
}

// The packs of the best shape, scored as predicted.
static void make_best(search_case *c, const sp_i_shape_search *search, const sp_i_best_shape *best,
                      sp_packing *packing)
{
    sp_i_needs needs = {0};
    sp_i_rank_samples samples = drawn_samples(&d, 0, 1);
    sp_packflow_outcome again;
    sp_packing_init(packing, &d.batch, 1);
    sp_i_micropacks_make(&c->work, &d.batch, &samples, &best->shape, packing, &needs);
    assert_pack_rules(packing);
    must_succeed(
        sp_i_rank_score(&c->scorer, packing, needs.pack, search->split, NULL, &again, ERR));
    assert_int_equal(again.makespan_ns, best->out.makespan_ns);
    assert_int_equal(again.lacking_bytes, best->out.lacking_bytes);
    sp_free(needs.pack);
}

static void assert_no_worse(const sp_i_best_shape *a, const sp_i_best_shape *b)
{
    assert_false(sp_packflow_is_better(&b->out, &a->out));
}

// Without effort the first shapes are all there is. Regrouped backward packs come on top of the
// best equal ones.
TEST_ROUNDS(more_search_is_no_worse, 113, 40)
{
    static search_case c;
    case_init(1 << sp_prng_below(prng, 4), &c);
    draw(prng, &c);
    sp_i_shape_search search = c.search;
    search.split = round % 2 != 0;
    sp_i_best_shape first, symmetric, asymmetric;
    search.effort = 0;
    run(&c, &search, false, &first);
    search.effort = c.search.effort;
    run(&c, &search, false, &symmetric);
    c.asymmetric = true;
    run(&c, &search, false, &asymmetric);
    c.asymmetric = false;
    assert_false(first.shape.regrouped || symmetric.shape.regrouped);
    assert_no_worse(&symmetric, &first);
    assert_no_worse(&asymmetric, &symmetric);
    sp_i_best_shape warm = symmetric;
    search.effort = 4000;
    run(&c, &search, true, &warm);
    assert_no_worse(&warm, &symmetric);
    case_fini(&c);
}

// What is found is what was scored, and the same when it is searched again, by a scorer that has
// seen other packs.
TEST(found_shapes_are_as_predicted)
{
    static search_case c;
    sp_prng prng = prng_seeded(127);
    case_init(4, &c);
    for (int round = 0; round < 20; round++) {
        draw(&prng, &c);
        sp_i_shape_search search = c.search;
        c.asymmetric = true;
        search.split = round % 2 != 0;
        sp_i_best_shape best, again;
        AUTO(sp_packing) packing;
        run(&c, &search, false, &best);
        make_best(&c, &search, &best, &packing);
        run(&c, &search, false, &again);
        assert_int_equal(best.out.makespan_ns, again.out.makespan_ns);
        assert_int_equal(best.shape.forward.flat, again.shape.forward.flat);
        assert_int_equal(best.shape.slice_tokens, again.shape.slice_tokens);
        assert_true(best.shape.shorts_first == again.shape.shorts_first);
    }
    case_fini(&c);
}

TEST(switches_bind_the_shape)
{
    static search_case c;
    sp_prng prng = prng_seeded(131);
    case_init(4, &c);
    for (int round = 0; round < 20; round++) {
        draw(&prng, &c);
        sp_i_best_shape best;
        AUTO(sp_packing) packing;
        sp_i_shape_search search = c.search;
        c.asymmetric = round % 2 != 0;
        search.taper = false;
        search.slice_tokens = 300;
        run(&c, &search, false, &best);
        assert_int_equal(best.shape.forward.rise + best.shape.forward.fall, 0);
        assert_int_equal(best.shape.slice_tokens, 300);
        if (best.shape.regrouped) {
            assert_int_equal(best.shape.backward.rise + best.shape.backward.fall, 0);
        }
        make_best(&c, &search, &best, &packing);
        if (!best.shape.regrouped) {
            assert_cuts(&packing, 300);
        }
        sp_packing_fini(&packing);
        search.taper = true;
        search.slice_tokens = INT64_MAX / 4;
        run(&c, &search, false, &best);
        make_best(&c, &search, &best, &packing);
        assert_int_equal(packing.forward.slice_count, d.batch.count);
    }
    case_fini(&c);
}

// A deadline in the past: the first shapes, which is less than all of them, and a whole packing.
TEST(time_that_has_run_out)
{
    static search_case c;
    sp_prng prng = prng_seeded(137);
    case_init(8, &c);
    for (int round = 0; round < 10; round++) {
        draw(&prng, &c);
        sp_i_shape_search search = c.search;
        c.asymmetric = true;
        search.effort = INT64_MAX / 4;
        search.deadline_s = sp_clock_s() - 1.0;
        sp_i_best_shape late, best;
        AUTO(sp_packing) packing;
        run(&c, &search, false, &late);
        make_best(&c, &search, &late, &packing);
        search.deadline_s = 0.0;
        search.effort = 0;
        run(&c, &search, false, &best);
        assert_no_worse(&best, &late);
    }
    case_fini(&c);
}

// It takes no more effort than it has, but for the shape that exceeds it.
TEST(effort_is_kept)
{
    static search_case c;
    sp_prng prng = prng_seeded(149);
    case_init(4, &c);
    for (int round = 0; round < 20; round++) {
        draw(&prng, &c);
        sp_i_rank_samples samples = drawn_samples(&d, 0, 1);
        sp_i_best_shape best;
        sp_i_shape_search search = c.search;
        search.effort = 5000 + (int64_t)sp_prng_below(&prng, 20000);
        must_succeed(sp_i_search_shape(&search, &samples, c.work_s, false, &best, ERR));
        assert_true(search.effort <= 0);
        assert_true(-search.effort <= 2 * 4 * 4096 + (int64_t)d.batch.count);
    }
    case_fini(&c);
}

// A shape that is fast enough ends the search: it is no slower than that, and was found with less
// effort than the fastest.
TEST(enough_is_enough)
{
    static search_case c;
    sp_prng prng = prng_seeded(151);
    case_init(4, &c);
    for (int round = 0; round < 20; round++) {
        draw(&prng, &c);
        sp_i_rank_samples samples = drawn_samples(&d, 0, 1);
        sp_i_best_shape fastest;
        sp_i_best_shape enough;
        run(&c, &c.search, false, &fastest);
        sp_i_shape_search search = c.search;
        search.enough_ns = fastest.out.makespan_ns + fastest.out.makespan_ns / 100;
        must_succeed(sp_i_search_shape(&search, &samples, c.work_s, false, &enough, ERR));
        assert_true(enough.out.makespan_ns <= search.enough_ns);
        assert_true(search.effort > 0);
    }
    case_fini(&c);
}
