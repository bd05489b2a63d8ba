// How well predictions put the steps of a cell in order.
#include "experiments/measure/validation.h"
#include "tests/support/test_main.h"

// Two cells and a row alone. In the first the prediction turns two neighbours of four around:
// Spearman's 1 - 6*2/(4*15) = 0.8, and takes the second fastest, 12 for 10. In the second the two
// slowest share a rank, predicted in order: ranks 0, 1.5, 1.5 against 0, 1, 2 give
// 1.5/sqrt(1.5*2) = 0.866, and its fastest one does not fit, so that 30 is taken for 20.
TEST(cells_are_ranked)
{
    static const double measured[] = {10, 12, 14, 16, 20, 30, 30, 5};
    static const char *const cell[] = {"a", "a", "a", "a", "b", "b", "b", "c"};
    static const sp_ranked rows[] = {{110, true, 1}, {100, true, 1}, {120, true, 1}, {130, true, 1},
                                     {1, false, 1},  {2, true, 1},   {3, true, 1},   {7, true, 1}};
    sp_measured_case cases[8];
    sp_measurements m = {.kind = SP_MEASURED_ITERATION_MS, .cases = cases, .count = 8};
    memset(cases, 0, sizeof cases);
    for (int i = 0; i < 8; i++) {
        cases[i].measured = measured[i];
        snprintf(cases[i].cell, sizeof cases[i].cell, "%s", cell[i]);
    }
    AUTO(sp_ranking) ranking;
    sp_ranking_of(&m, rows, &ranking);
    assert_int_equal(ranking.cells, 2);
    assert_int_equal(ranking.picks, 2);
    assert_within(ranking.correlation, 0.5 * (0.8 + 1.5 / sqrt(3.0)), 1e-12);
    assert_within(ranking.regret, 0.5 * (0.2 + 0.5), 1e-12);
    assert_within(ranking.worst_regret, 0.5, 1e-12);
    assert_string_equal(ranking.worst_cell, "b");
    assert_string_equal(ranking.cell[0].name, "a");
    assert_int_equal(ranking.cell[0].rows, 4);
    assert_within(ranking.cell[0].correlation, 0.8, 1e-12);
    assert_within(ranking.cell[0].regret, 0.2, 1e-12);
    assert_string_equal(ranking.cell[1].name, "b");
    assert_within(ranking.cell[1].regret, 0.5, 1e-12);
    // Of throughputs the largest is the best.
    m.kind = SP_MEASURED_TOKENS_PER_S;
    for (int i = 0; i < 8; i++) {
        cases[i].measured = 1.0 / measured[i];
    }
    sp_ranked rates[8];
    for (int i = 0; i < 8; i++) {
        rates[i] = (sp_ranked){1.0 / rows[i].computed, rows[i].fits_well, 1.0};
    }
    AUTO(sp_ranking) of_rates;
    sp_ranking_of(&m, rates, &of_rates);
    assert_within(of_rates.correlation, ranking.correlation, 1e-12);
    assert_within(of_rates.regret, ranking.regret, 1e-9);
}

// A step of 100 that runs in half of all cases is expected to take 200: the one of 150 is picked.
TEST(a_pick_counts_its_risk)
{
    static const sp_ranked rows[] = {{100, true, 0.5}, {150, true, 1.0}, {300, true, 1.0}};
    sp_measured_case cases[3];
    sp_measurements m = {.kind = SP_MEASURED_ITERATION_MS, .cases = cases, .count = 3};
    memset(cases, 0, sizeof cases);
    for (int i = 0; i < 3; i++) {
        cases[i].measured = rows[i].computed;
        cases[i].cell[0] = 'a';
    }
    AUTO(sp_ranking) ranking;
    sp_ranking_of(&m, rows, &ranking);
    assert_within(ranking.regret, 0.5, 1e-12);
}

// Whatever the times: a prediction that rises with them is in order and picks the best, one that
// falls with them is in the opposite order and picks the worst; the means are those of the cells.
TEST(order_alone_counts)
{
    enum { ROWS = 60, CELLS = 4 };
    sp_measured_case cases[ROWS];
    sp_ranked rising[ROWS], falling[ROWS];
    double best[CELLS] = {INFINITY, INFINITY, INFINITY, INFINITY};
    double worst[CELLS] = {0.0};
    sp_measurements m = {.kind = SP_MEASURED_ITERATION_MS, .cases = cases, .count = ROWS};
    AUTO(sp_ranking) order;
    uint64_t drawn = 7;
    memset(cases, 0, sizeof cases);
    for (int i = 0; i < ROWS; i++) {
        drawn = drawn * 6364136223846793005u + 1442695040888963407u;
        double time = 1.0 + (double)(drawn >> 40);
        int cell = i % CELLS;
        cases[i].measured = time;
        snprintf(cases[i].cell, sizeof cases[i].cell, "cell %d", cell);
        rising[i] = (sp_ranked){log(time), true, 1.0};
        falling[i] = (sp_ranked){1.0 / time, true, 1.0};
        best[cell] = fmin(best[cell], time);
        worst[cell] = fmax(worst[cell], time);
    }
    sp_ranking_of(&m, rising, &order);
    assert_int_equal(order.cells, CELLS);
    assert_within(order.correlation, 1.0, 1e-12);
    assert_true(order.regret == 0.0 && order.worst_regret == 0.0);
    sp_ranking_fini(&order);
    sp_ranking_of(&m, falling, &order);
    assert_true(fabs(order.correlation + 1.0) < 1e-12);
    double sum = 0.0;
    for (int c = 0; c < CELLS; c++) {
        assert_within(order.cell[c].regret, (worst[c] / best[c] - 1.0), 1e-9);
        sum += order.cell[c].regret;
    }
    assert_within(order.regret, sum / CELLS, 1e-9);
    sp_ranking_fini(&order);
    // Nothing that fits well leaves nothing to pick.
    for (int i = 0; i < ROWS; i++) {
        rising[i].fits_well = false;
    }
    sp_ranking_of(&m, rising, &order);
    assert_int_equal(order.picks, 0);
    assert_true(order.cell[0].regret < 0.0 && order.regret == 0.0);
}
