// DualPipeV (github.com/deepseek-ai/DualPipe).
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"
#include "tests/support/uniform_step.h"

static const sp_engine_options plain;

static void run(int p, int m, int64_t f, int64_t i, int64_t w, int64_t p2p, uniform_step *step)
{
    uniform_case c = {.kind = SP_SCHEDULE_DUALPIPE_V,
                      .pp = p,
                      .chunks = 2,
                      .microbatches = m,
                      .ns = {f, i, w},
                      .p2p_ns = p2p};
    uniform_step_run(&c, &plain, step);
}

enum { MOST_RANKS = 9 };

// The plan of a step run again with overlapped pairs: in the published schedule a forward directly
// before a full backward is one operation that needs the inputs of both and gives the outputs of
// both at its end; only the first such pair of the last rank is not (dualpipev.py, step 4).
typedef struct paired_run {
    const sp_plan *plan;
    int ranks, microbatches;
    int64_t f_ns, i_ns, w_ns;
    int64_t *end_ns[2]; // of F and of B or I, [2p * m]; negative: not yet
    size_t next[MOST_RANKS];
    int64_t free_ns[MOST_RANKS], busy_ns[MOST_RANKS];
    bool paired_before[MOST_RANKS];
} paired_run;

static size_t paired_at(const paired_run *run, int vstage, int microbatch)
{
    return (size_t)vstage * (size_t)run->microbatches + (size_t)microbatch;
}

static bool paired_ready(const paired_run *run, int rank, sp_action action, int64_t *ready_ns)
{
    int vstage = sp_layout_vstage(&run->plan->layout, rank, action.chunk);
    int64_t inputs[2] = {0, 0};
    if (action.kind == SP_ACTION_F && vstage > 0) {
        inputs[0] = run->end_ns[0][paired_at(run, vstage - 1, action.pack)];
    } else if (action.kind == SP_ACTION_B || action.kind == SP_ACTION_I) {
        inputs[0] = run->end_ns[0][paired_at(run, vstage, action.pack)];
        if (vstage < 2 * run->ranks - 1) {
            inputs[1] = run->end_ns[1][paired_at(run, vstage + 1, action.pack)];
        }
    }
    for (int k = 0; k < 2; k++) {
        *ready_ns = inputs[k] > *ready_ns ? inputs[k] : *ready_ns;
    }
    return inputs[0] >= 0 && inputs[1] >= 0;
}

// Runs the next operation of a rank, a pair or an action; false if it cannot.
static bool paired_step(paired_run *run, int rank)
{
    const sp_stage_plan *stage = sp_plan_stage(run->plan, 0, rank);
    size_t at = run->next[rank];
    if (at == stage->count) {
        return false;
    }
    const int64_t duration_ns[SP_ACTION_KINDS] = {[SP_ACTION_F] = run->f_ns,
                                                  [SP_ACTION_B] = run->i_ns + run->w_ns,
                                                  [SP_ACTION_I] = run->i_ns,
                                                  [SP_ACTION_W] = run->w_ns};
    bool pair = stage->actions[at].kind == SP_ACTION_F && at + 1 < stage->count &&
                stage->actions[at + 1].kind == SP_ACTION_B;
    bool parted = pair && rank == run->ranks - 1 && !run->paired_before[rank];
    size_t length = pair && !parted ? 2 : 1;
    int64_t start_ns = run->free_ns[rank];
    int64_t total_ns = 0;
    for (size_t k = 0; k < length; k++) {
        if (!paired_ready(run, rank, stage->actions[at + k], &start_ns)) {
            return false;
        }
        total_ns += duration_ns[stage->actions[at + k].kind];
    }
    for (size_t k = 0; k < length; k++) {
        sp_action action = stage->actions[at + k];
        if (action.kind != SP_ACTION_W) {
            int vstage = sp_layout_vstage(&run->plan->layout, rank, action.chunk);
            run->end_ns[action.kind != SP_ACTION_F][paired_at(run, vstage, action.pack)] =
                start_ns + total_ns;
        }
    }
    run->paired_before[rank] = run->paired_before[rank] || pair;
    run->free_ns[rank] = start_ns + total_ns;
    run->busy_ns[rank] += total_ns;
    run->next[rank] += length;
    return true;
}

static int64_t largest_idle_paired(const sp_plan *plan, int microbatches, int64_t f, int64_t i,
                                   int64_t w)
{
    paired_run run = {.plan = plan,
                      .ranks = plan->layout.pp,
                      .microbatches = microbatches,
                      .f_ns = f,
                      .i_ns = i,
                      .w_ns = w};
    assert_true(run.ranks <= MOST_RANKS);
    size_t ends = paired_at(&run, 2 * run.ranks, 0);
    for (int k = 0; k < 2; k++) {
        run.end_ns[k] = test_malloc(ends * sizeof *run.end_ns[k]);
        for (size_t e = 0; e < ends; e++) {
            run.end_ns[k][e] = -1;
        }
    }
    bool moved = true;
    while (moved) {
        moved = false;
        for (int r = 0; r < run.ranks; r++) {
            while (paired_step(&run, r)) {
                moved = true;
            }
        }
    }
    int64_t makespan_ns = 0;
    int64_t least_busy_ns = INT64_MAX;
    for (int r = 0; r < run.ranks; r++) {
        assert_int_equal(run.next[r], sp_plan_stage(plan, 0, r)->count);
        makespan_ns = run.free_ns[r] > makespan_ns ? run.free_ns[r] : makespan_ns;
        least_busy_ns = run.busy_ns[r] < least_busy_ns ? run.busy_ns[r] : least_busy_ns;
    }
    test_free(run.end_ns[0]);
    test_free(run.end_ns[1]);
    return makespan_ns - least_busy_ns;
}

// README, table "Pipeline bubbles and memory usage comparison": (PP/2-1)(FB + B - 3W) with PP = 2p,
// met where F = I, here with FB = F + B; by the engine and by the replay above.
TEST(idle_time)
{
    static const int64_t times[][2] = {{1000, 1000}, {1000, 800}, {2003, 701}};
    for (int p = 1; p <= MOST_RANKS; p++) {
        for (int m = 2 * p; m <= 5 * p + 3; m += 2 * p + 1) {
            for (size_t t = 0; t < sizeof times / sizeof times[0]; t++) {
                int64_t f = times[t][0];
                int64_t w = times[t][1];
                int64_t b = f + w;
                AUTO(uniform_step) step;
                run(p, m, f, f, w, 0, &step);
                int64_t idle = 0;
                for (int r = 0; r < p; r++) {
                    int64_t rank_idle = step.metrics.makespan_ns - step.metrics.ranks[r].busy_ns;
                    idle = rank_idle > idle ? rank_idle : idle;
                }
                int64_t published = (p - 1) * (f + b + b - 3 * w);
                assert_int_equal(largest_idle_paired(&step.plan, m, f, f, w), published);
                assert_int_equal(idle, published);
            }
        }
    }
}

// README: PP + 1 chunks on every rank. With m = 2p the last rank has no more to start after 2p.
TEST(peak_chunks)
{
    for (int p = 1; p <= 9; p++) {
        for (int m = 2 * p + 1; m <= 6 * p; m += p) {
            AUTO(uniform_step) step;
            run(p, m, 1000, 1000, 700, 0, &step);
            for (int r = 0; r < p; r++) {
                assert_true(step.metrics.ranks[r].units_peak == 2.0 * p + 1.0);
            }
        }
    }
}

// Any costs: it finishes, within the memory, and no sooner than its work and the way of one
// micro-batch allow.
TEST_ROUNDS(any_costs, 2024, 200)
{
    int p = 1 + prng_below(prng, 12);
    int m = 2 * p + prng_below(prng, 30);
    int64_t f = 1 + (int64_t)sp_prng_below(prng, 3000);
    int64_t i = (int64_t)sp_prng_below(prng, 3000);
    int64_t w = (int64_t)sp_prng_below(prng, 3000);
    int64_t p2p = (int64_t)sp_prng_below(prng, 500);
    AUTO(uniform_step) step;
    run(p, m, f, i, w, p2p, &step);
    for (int r = 0; r < p; r++) {
        assert_int_equal(step.metrics.ranks[r].busy_ns, 2 * m * (f + i + w));
        assert_true(step.metrics.ranks[r].units_peak <= 2.0 * p + 1.0);
    }
    assert_true(step.metrics.makespan_ns >= 2 * m * (f + i + w));
    assert_true(step.metrics.makespan_ns >= 2 * p * (f + i) + w + (4 * p - 4) * p2p);
}

TEST(too_few_microbatches)
{
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 4, .dp = 1, .chunks = 2, .placement = SP_PLACE_V};
    sp_schedule_spec spec = {.kind = SP_SCHEDULE_DUALPIPE_V};
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    uniform_packing(&packing, 1, 7);
    sp_plan_init(&plan, &layout, &packing);
    must_fail_with(sp_schedule_generate(&spec, NULL, "case.json", &plan, ERR), SP_ERR_CONTENT,
                   "case.json: schedule.microbatches: ");
}

// A pair is a forward and a full backward; anything else is refused.
TEST(only_pairs_run_side_by_side)
{
    AUTO(uniform_step) step;
    run(2, 6, 1000, 1000, 1000, 0, &step);
    int refused = 0;
    for (int r = 0; r < 2; r++) {
        sp_stage_plan *stage = sp_plan_stage(&step.plan, 0, r);
        for (size_t a = 0; a < stage->count; a++) {
            sp_error_clear(ERR);
            uint8_t was = stage->actions[a].with_next;
            bool legal = a + 1 < stage->count && !stage->actions[a + 1].with_next &&
                         (a == 0 || !stage->actions[a - 1].with_next) &&
                         ((stage->actions[a].kind == SP_ACTION_F &&
                           stage->actions[a + 1].kind == SP_ACTION_B) ||
                          (stage->actions[a].kind == SP_ACTION_B &&
                           stage->actions[a + 1].kind == SP_ACTION_F));
            stage->actions[a].with_next = 1;
            sp_status status = sp_plan_check(&step.plan, "test", ERR);
            stage->actions[a].with_next = was;
            assert_true(legal || was ? status == SP_OK : status == SP_ERR_CONTENT);
            refused += status != SP_OK;
        }
    }
    assert_true(refused > 0);
}
