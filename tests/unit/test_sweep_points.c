// Points of large grids, drawn points, and the front of a summary.

#include "experiments/sweep/sweep.h"
#include "tests/support/test_main.h"

static void read_text(const char *text, sweep_spec *spec)
{
    json_t *document = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(document);
    must_succeed(sweep_spec_from_json(document, "sweep.json", spec, ERR));
}

// A random grid of axes a0 to a5 whose values are 1 to their count, under a random condition.
typedef struct grid {
    char text[2048];
    int axes, counts[6];
    int condition, x, y, z, bound;
} grid;

static void make_grid(sp_prng *prng, grid *g)
{
    static const char *const formats[] = {"a%d * a%d == %d", "a%d + a%d <= %d", "a%d > a%d",
                                          "a%d %% a%d == 0 && a%d < %d", "a%d == a%d || a%d == %d"};
    char where[128];
    size_t used = (size_t)snprintf(g->text, sizeof g->text, "{\"base\": {}, \"grid\": {");
    g->axes = 3 + (int)sp_prng_below(prng, 4);
    for (int a = 0; a < g->axes; a++) {
        g->counts[a] = 1 + (int)sp_prng_below(prng, 5);
        used += (size_t)snprintf(g->text + used, sizeof g->text - used, "%s\"a%d\": [",
                                 a > 0 ? ", " : "", a);
        for (int i = 1; i <= g->counts[a]; i++) {
            used += (size_t)snprintf(g->text + used, sizeof g->text - used, "%s%d",
                                     i > 1 ? ", " : "", i);
        }
        used += (size_t)snprintf(g->text + used, sizeof g->text - used, "]");
    }
    g->condition = (int)sp_prng_below(prng, 5);
    g->x = (int)sp_prng_below(prng, (uint64_t)g->axes);
    g->y = (int)sp_prng_below(prng, (uint64_t)g->axes);
    g->z = (int)sp_prng_below(prng, (uint64_t)g->axes);
    g->bound = 1 + (int)sp_prng_below(prng, 6);
    if (g->condition <= 1) {
        snprintf(where, sizeof where, formats[g->condition], g->x, g->y, g->bound);
    } else {
        snprintf(where, sizeof where, formats[g->condition], g->x, g->y, g->z, g->bound);
    }
    snprintf(g->text + used, sizeof g->text - used, "}, \"where\": \"%s\"}", where);
}

static bool holds(const grid *g, const int value[6])
{
    int x = value[g->x];
    int y = value[g->y];
    int z = value[g->z];
    switch (g->condition) {
    case 0:
        return x * y == g->bound;
    case 1:
        return x + y <= g->bound;
    case 2:
        return x > y;
    case 3:
        return x % y == 0 && z < g->bound;
    default:
        return x == y || z == g->bound;
    }
}

// Every point of nested loops, in their order; returns how many.
static int64_t by_loops(const grid *g, int64_t *combinations)
{
    int64_t all = 1;
    int64_t count = 0;
    for (int a = 0; a < g->axes; a++) {
        all *= g->counts[a];
    }
    for (int64_t c = 0; c < all; c++) {
        int value[6] = {0};
        int64_t rest = c;
        for (int a = g->axes - 1; a >= 0; a--) {
            value[a] = (int)(rest % g->counts[a]) + 1;
            rest /= g->counts[a];
        }
        if (holds(g, value)) {
            combinations[count++] = c;
        }
    }
    return count;
}

enum { MOST = 5 * 5 * 5 * 5 * 5 * 5 };

TEST_ROUNDS(walks_counts_and_draws_agree_with_nested_loops, 77, 400)
{
    static int64_t expected[MOST], drawn[MOST];
    grid g;
    AUTO(sweep_spec) spec;
    sweep_cursor cursor;
    bool found = true;
    int64_t counted = -1;
    make_grid(prng, &g);
    read_text(g.text, &spec);
    int64_t count = by_loops(&g, expected);
    must_succeed(sweep_spec_count(&spec, &counted, ERR));
    assert_int_equal(counted, count);
    sweep_cursor_begin(&cursor, &spec);
    for (int64_t k = 0; k < count; k++) {
        must_succeed(sweep_cursor_next(&cursor, &found, ERR));
        assert_true(found);
        assert_int_equal(cursor.combination, expected[k]);
    }
    // Past the end it stays at the end.
    for (int k = 0; k < 3; k++) {
        must_succeed(sweep_cursor_next(&cursor, &found, ERR));
        assert_false(found);
    }
    // Drawn points are points, ascending, each once.
    int64_t wanted = count > 0 ? (int64_t)sp_prng_below(prng, (uint64_t)count + 1) : 0;
    must_succeed(sweep_spec_draw(&spec, count, wanted, prng, drawn, ERR));
    for (int64_t k = 0, e = 0; k < wanted; k++, e++) {
        while (e < count && expected[e] != drawn[k]) {
            e++;
        }
        assert_true(e < count);
    }
}

// 3 of 7 points, 42,000 times: every point is drawn 18,000 times, within five standard deviations.
TEST(draws_are_fair)
{
    sp_prng prng = prng_seeded(5);
    AUTO(sweep_spec) spec;
    int64_t times[8] = {0};
    read_text(
        "{\"base\": {}, \"grid\": {\"b\": [1, 2, 3, 4], \"a\": [1, 2]}, \"where\": \"a * b != 8\"}",
        &spec);
    for (int i = 0; i < 42000; i++) {
        int64_t drawn[3];
        must_succeed(sweep_spec_draw(&spec, 7, 3, &prng, drawn, ERR));
        for (int k = 0; k < 3; k++) {
            times[drawn[k]]++;
        }
    }
    double deviation = sqrt(42000.0 * 3.0 / 7.0 * 4.0 / 7.0);
    assert_int_equal(times[7], 0);
    for (int c = 0; c < 7; c++) {
        assert_true(fabs((double)times[c] - 18000.0) < 5.0 * deviation);
    }
}

// 10^12 combinations: 10 axes of 10 values that no condition names, and two of 10 with the product
// 8: 1*8, 2*4, 4*2, 8*1.
TEST(a_grid_of_a_million_million_is_counted_and_drawn_at_once)
{
    char text[2048] = "{\"base\": {}, \"grid\": {";
    for (int a = 0; a < 12; a++) {
        char axis[96];
        snprintf(axis, sizeof axis, "%s\"a%d\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", a > 0 ? ", " : "",
                 a);
        strcat(text, axis);
    }
    strcat(text, "}, \"where\": \"a3 * a9 == 8\"}");
    AUTO(sweep_spec) spec;
    int64_t points = 0;
    int64_t drawn[1000];
    sp_prng prng = prng_seeded(1);
    read_text(text, &spec);
    must_succeed(sweep_spec_count(&spec, &points, ERR));
    assert_int_equal(points, 40000000000);
    must_succeed(sweep_spec_draw(&spec, points, 1000, &prng, drawn, ERR));
    for (int i = 0; i < 1000; i++) {
        int64_t digit[SWEEP_AXES];
        sweep_spec_digits(&spec, drawn[i], digit);
        assert_int_equal((digit[3] + 1) * (digit[9] + 1), 8);
        assert_true(i == 0 || drawn[i] > drawn[i - 1]);
        assert_int_equal(sweep_spec_combination(&spec, digit), drawn[i]);
    }
    // To evaluate all of them is refused.
    AUTO(sweep_summary) summary;
    const sweep_run_options all = {.threads = 1, .quiet = true};
    must_succeed(sweep_summary_begin(&summary, &spec, NULL, ERR));
    must_fail_with(sweep_run(&spec, "/dev/null", &all, &summary, ERR), SP_ERR_LIMIT, "--sample");
}

TEST(shards_take_every_point_once)
{
    AUTO(sweep_spec) spec;
    int64_t expected[64];
    int64_t count = 0;
    read_text("{\"base\": {}, \"grid\": {\"a\": [1, 2, 3, 4, 5, 6, 7], \"b\": [1, 2, 3]}, "
              "\"where\": \"a != b\"}",
              &spec);
    for (int64_t shards = 1; shards <= 25; shards++) {
        int64_t seen[64] = {0};
        int64_t points = 0;
        for (int64_t shard = 1; shard <= shards; shard++) {
            const sweep_choice_options options = {.shard = shard, .shards = shards};
            sweep_choice choice;
            int64_t own = 0;
            bool found = true;
            must_succeed(sweep_choice_begin(&choice, &spec, &options, ERR));
            while (found) {
                int64_t combination = 0;
                must_succeed(sweep_choice_next(&choice, &combination, &found, ERR));
                own += found;
                seen[found ? combination : 63] += found;
                if (found && shards == 1) {
                    expected[count++] = combination;
                }
            }
            assert_int_equal(own, choice.points);
            points += own;
            sweep_choice_end(&choice);
        }
        assert_int_equal(points, 18);
        for (int64_t k = 0; k < count; k++) {
            assert_int_equal(seen[expected[k]], 1);
        }
    }
}

// ---- the summary ----

enum { LINES = 300 };

// One row of the table of figures makes one that points are compared by.
TEST(figures_are_those_of_the_table)
{
    const sp_figure *figure;
    for (int i = 0; (figure = sp_figure_at(i)) != NULL; i++) {
        sweep_figure found;
        must_hold(sweep_figure_find(figure->key, &found) == (figure->better != 0), "%s",
                  figure->key);
    }
}

// So is what a condition may ask of them, and which of them may be meant in percent.
TEST(conditions_beyond_the_table_of_figures_are_refused)
{
    AUTO(sweep_spec) spec;
    read_text("{\"base\": {}, \"grid\": {\"a\": [1]}}", &spec);
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        const sp_figure *figure = sp_figure_find(sweep_figure_names[f]);
        char where[64];
        AUTO(sweep_summary) summary;
        snprintf(where, sizeof where, "%s > 40", figure->key);
        const sweep_summary_options options = {.where = where};
        sp_error_clear(ERR);
        bool refused = sweep_summary_begin(&summary, &spec, &options, ERR) != SP_OK;
        bool translated = refused && strstr(ERR->message[0], "(40 % is 0.4)") != NULL;
        assert_int_equal(refused, figure->most > 0.0 && figure->most <= 40.0);
        assert_int_equal(translated, refused && figure->percent);
    }
}

static sp_status add_trial(sweep_summary *summary, int64_t combination, const sweep_trial *trial)
{
    return sweep_summary_add(summary, &(sweep_row){.combination = combination, .trial = *trial},
                             ERR);
}

static sweep_trial random_trial(sp_prng *prng)
{
    sweep_trial trial;
    sweep_trial_begin(&trial, sp_prng_below(prng, 5) == 0 ? SWEEP_OOM : SWEEP_OK);
    // Few values, so that there are equal ones.
    trial.figure[SWEEP_ITERATION_MS] = (double)sp_prng_below(prng, 40);
    trial.figure[SWEEP_MFU] = (double)sp_prng_below(prng, 40);
    trial.fits = sp_prng_below(prng, 4) == 0 ? SP_FITS_TIGHT : SP_FITS_YES;
    return trial;
}

static bool dominates(const sweep_trial *a, const sweep_trial *b)
{
    double time = b->figure[SWEEP_ITERATION_MS] - a->figure[SWEEP_ITERATION_MS];
    double mfu = a->figure[SWEEP_MFU] - b->figure[SWEEP_MFU];
    return time >= 0.0 && mfu >= 0.0 && (time > 0.0 || mfu > 0.0);
}

// In a list by MFU: a step that fits tightly comes after all that do not.
static bool comes_before(const sweep_trial *a, const sweep_trial *b)
{
    int tight = (a->fits == SP_FITS_TIGHT) - (b->fits == SP_FITS_TIGHT);
    return tight < 0 || (tight == 0 && a->figure[SWEEP_MFU] > b->figure[SWEEP_MFU]);
}

// The front is what no other dominates, of equal ones the first, and the list is sorted.
TEST(front_and_list_agree_with_all_pairs)
{
    sp_prng prng = prng_seeded(3);
    AUTO(sweep_spec) spec;
    read_text("{\"base\": {}, \"grid\": {\"a\": [1, 2, 3]}}", &spec);
    const sweep_summary_options options = {.top = 7,
                                           .by_figure = true,
                                           .by = SWEEP_MFU,
                                           .where = "iteration_ms < 35 && a <= 2",
                                           .front = true,
                                           .x = SWEEP_ITERATION_MS,
                                           .y = SWEEP_MFU};
    for (int round = 0; round < 50; round++) {
        sweep_trial trials[LINES];
        bool listed[LINES], best[LINES];
        AUTO(sweep_summary) summary;
        int64_t front = 0;
        must_succeed(sweep_summary_begin(&summary, &spec, &options, ERR));
        for (int i = 0; i < LINES; i++) {
            trials[i] = random_trial(&prng);
            listed[i] = trials[i].status == SWEEP_OK && i % 3 <= 1 &&
                        trials[i].figure[SWEEP_ITERATION_MS] < 35.0;
            must_succeed(add_trial(&summary, i % 3, &trials[i]));
        }
        for (int i = 0; i < LINES; i++) {
            best[i] = listed[i];
            for (int k = 0; k < LINES; k++) {
                bool equal = k < i && memcmp(trials[k].figure, trials[i].figure,
                                             sizeof trials[i].figure) == 0;
                best[i] = best[i] && !(listed[k] && (dominates(&trials[k], &trials[i]) || equal));
            }
            front += best[i];
        }
        assert_int_equal(summary.front_count, front);
        for (int64_t i = 1; i < summary.front_count; i++) {
            assert_true(summary.front[i - 1].trial.figure[SWEEP_ITERATION_MS] <
                        summary.front[i].trial.figure[SWEEP_ITERATION_MS]);
        }
        assert_int_equal(summary.best_count, 7);
        for (int i = 0; i < LINES; i++) {
            assert_true(!listed[i] || !comes_before(&trials[i], &summary.best[0].trial));
        }
        for (int i = 1; i < 7; i++) {
            assert_false(comes_before(&summary.best[i].trial, &summary.best[i - 1].trial));
        }
    }
}

// Steps of another context are other work: each context has its front and its list, though the
// short one's dominate all. Axes of more combinations than are told apart are one group.
TEST(points_of_other_work_are_not_mixed)
{
    AUTO(sweep_spec) spec;
    const sweep_summary_options options = {
        .top = 2, .front = true, .x = SWEEP_ITERATION_MS, .y = SWEEP_PEAK_MEMORY_GIB};
    read_text("{\"base\": {}, \"grid\": {\"parallel.tp\": [1, 2, 4], \"workload.context\": "
              "[\"8K\", \"32K\"]}}",
              &spec);
    AUTO(sweep_summary) summary;
    must_succeed(sweep_summary_begin(&summary, &spec, &options, ERR));
    for (int64_t c = 0; c < 6; c++) {
        sweep_trial trial;
        sweep_trial_begin(&trial, SWEEP_OK);
        // With tp a step takes less time and more memory, with the context four times as much.
        double tp = (double)(1 << c / 2);
        trial.figure[SWEEP_ITERATION_MS] = (c % 2 == 0 ? 100.0 : 400.0) / tp;
        trial.figure[SWEEP_PEAK_MEMORY_GIB] = (c % 2 == 0 ? 1.0 : 50.0) + tp;
        must_succeed(add_trial(&summary, c, &trial));
    }
    static const int64_t front[] = {4, 2, 0, 5, 3, 1};
    static const int64_t best[] = {4, 2, 5, 3};
    assert_int_equal(summary.front_count, 6);
    assert_int_equal(summary.best_count, 4);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(summary.front[i].combination, front[i]);
        assert_int_equal(summary.front[i].group, i / 3);
        assert_true(i >= 4 || summary.best[i].combination == best[i]);
    }
    sweep_summary_fini(&summary);
    sweep_spec_fini(&spec);
    char text[8192] = "{\"base\": {}, \"grid\": {\"model\": [\"a\", \"b\"], \"workload.seed\": [0";
    for (int i = 1; i <= SWEEP_MOST_GROUPS / 2; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), ",%d", i);
    }
    strcat(text, "]}}");
    read_text(text, &spec);
    must_succeed(sweep_summary_begin(&summary, &spec, &options, ERR));
    assert_int_equal(summary.group_axis_count, 0);
    assert_int_equal(summary.mixed, SWEEP_MOST_GROUPS + 2);
}

// Where no point fits, a search has no front to go along: it evaluates as many as it was asked to.
TEST(search_without_a_front_draws)
{
    AUTO(sweep_spec) spec;
    sweep_summary nothing;
    sweep_choice choice;
    read_text("{\"base\": {\"model\": \"llama-13b\"}, \"grid\": {\"parallel.tp\": [1, 2, 4, 8], "
              "\"parallel.pp\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], \"parallel.cp\": [1, 2, 4, 8, "
              "16]}, \"where\": \"tp * pp <= 40\"}",
              &spec);
    for (int64_t asked = 1; asked <= 200; asked += 33) {
        const sweep_choice_options options = {.search = asked, .seed = 3};
        must_succeed(sweep_summary_begin(&nothing, &spec, NULL, ERR));
        must_succeed(sweep_choice_begin(&choice, &spec, &options, ERR));
        for (int64_t before = 0; before < choice.chosen_count;) {
            before = choice.chosen_count;
            must_succeed(sweep_choice_extend(&choice, &nothing, ERR));
        }
        assert_int_equal(choice.chosen_count, asked < choice.in_grid ? asked : choice.in_grid);
        for (int64_t i = 0; i < choice.chosen_count; i++) {
            int64_t digit[SWEEP_AXES];
            bool holds = false;
            assert_true(i == 0 || choice.sorted[i - 1] < choice.sorted[i]);
            sweep_spec_digits(&spec, choice.chosen[i], digit);
            must_succeed(sweep_where_holds(spec.where, digit, &holds, ERR));
            assert_true(holds);
        }
        sweep_choice_end(&choice);
        sweep_summary_fini(&nothing);
    }
}

// A search over a made-up landscape with its optimum at one corner finds it, evaluates no point
// twice, and does the same again.
TEST(search_finds_the_front)
{
    AUTO(sweep_spec) spec;
    int64_t first[600] = {0};
    read_text("{\"base\": {}, \"grid\": {\"a\": [0,1,2,3,4,5,6,7,8,9], \"b\": "
              "[0,1,2,3,4,5,6,7,8,9], \"c\": [0,1,2,3,4,5,6,7,8,9], \"d\": [0,1,2,3,4,5,6,7,8,9], "
              "\"e\": [0,1,2,3,4,5,6,7,8,9]}, \"where\": \"a + b + c >= 3\"}",
              &spec);
    for (int round = 0; round < 2; round++) {
        const sweep_choice_options options = {.search = 600, .seed = 9};
        const sweep_summary_options front = {
            .front = true, .x = SWEEP_ITERATION_MS, .y = SWEEP_MFU};
        sweep_choice choice;
        sweep_summary summary;
        int64_t evaluated = 0;
        int64_t known = -1;
        must_succeed(sweep_choice_begin(&choice, &spec, &options, ERR));
        must_succeed(sweep_summary_begin(&summary, &spec, &front, ERR));
        while (choice.chosen_count > known) {
            bool found = true;
            known = choice.chosen_count;
            while (found) {
                int64_t combination = 0;
                int64_t digit[SWEEP_AXES];
                must_succeed(sweep_choice_next(&choice, &combination, &found, ERR));
                if (found) {
                    sweep_trial trial;
                    sweep_trial_begin(&trial, SWEEP_OK);
                    sweep_spec_digits(&spec, combination, digit);
                    double far = 0.0;
                    for (int a = 0; a < 5; a++) {
                        far += (double)(digit[a] * digit[a]);
                    }
                    trial.figure[SWEEP_ITERATION_MS] = far;
                    trial.figure[SWEEP_MFU] = 1.0;
                    assert_true(digit[0] + digit[1] + digit[2] >= 3);
                    assert_true(round == 0 || first[evaluated] == combination);
                    first[evaluated++] = combination;
                    must_succeed(add_trial(&summary, combination, &trial));
                }
            }
            must_succeed(sweep_choice_extend(&choice, &summary, ERR));
        }
        assert_int_equal(evaluated, 600);
        for (int i = 0; i < 600; i++) {
            for (int k = 0; k < i; k++) {
                assert_true(first[i] != first[k]);
            }
        }
        // a = b = c = 1, d = e = 0 among 100,000 points.
        assert_int_equal(summary.front_count, 1);
        assert_within(summary.front[0].trial.figure[SWEEP_ITERATION_MS], 3.0, 1e-12);
        sweep_summary_fini(&summary);
        sweep_choice_end(&choice);
    }
}
