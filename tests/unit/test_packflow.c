// PackFlow's order against its rules: an independent replay of the orders, closed forms of uniform
// packs, and random jobs down to room for one token.
#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/schedule/packflow_plan.h"
#include "tests/support/test_main.h"

enum { MOST_STAGES = 6, MOST_PACKS = 24, MOST_STEPS = 3 * MOST_PACKS };

typedef struct drawn_job {
    sp_packflow_job job;
    int64_t f_ns[MOST_PACKS * MOST_STAGES];
    int64_t b_ns[MOST_PACKS * MOST_STAGES];
    int64_t w_ns[MOST_PACKS * MOST_STAGES];
    int32_t need[MOST_PACKS];
    int64_t tokens[MOST_PACKS];
    int64_t freed[MOST_PACKS];
} drawn_job;

static int64_t below(sp_prng *prng, int64_t bound)
{
    return (int64_t)sp_prng_below(prng, (uint64_t)bound);
}

static void link_job(drawn_job *d, bool split)
{
    d->job.f_ns = d->f_ns;
    d->job.b_ns = d->b_ns;
    d->job.w_ns = split ? d->w_ns : NULL;
    d->job.need = d->need;
    d->job.tokens = d->tokens;
    d->job.freed = d->freed;
}

// Needs never fall and end at the last forward pack; what goes at a backward was held by then.
static void draw_lists(drawn_job *d, sp_prng *prng)
{
    int64_t last = (int64_t)d->job.forward - 1;
    int64_t held = 0;
    for (size_t k = 0; k < d->job.forward; k++) {
        d->tokens[k] = 1 + below(prng, 100);
    }
    size_t seen = 0;
    for (size_t k = 0; k < d->job.backward; k++) {
        bool final = k + 1 == d->job.backward;
        int64_t before = k == 0 ? 0 : d->need[k - 1];
        int64_t step = below(prng, 2) == 0 ? below(prng, 4) : below(prng, last - before + 1);
        d->need[k] = (int32_t)(final || before + step > last ? last : before + step);
        for (; seen <= (size_t)d->need[k]; seen++) {
            held += d->tokens[seen];
        }
        d->freed[k] = final ? held : below(prng, held + 1);
        held -= d->freed[k];
    }
}

static void draw(drawn_job *d, sp_prng *prng)
{
    d->job = (sp_packflow_job){.stages = 1 + (int)below(prng, MOST_STAGES),
                               .forward = 1 + (size_t)below(prng, MOST_PACKS),
                               .backward = 1 + (size_t)below(prng, MOST_PACKS),
                               .p2p_ns = below(prng, 3) * below(prng, 20)};
    draw_lists(d, prng);
    for (size_t i = 0; i < (size_t)MOST_PACKS * MOST_STAGES; i++) {
        d->f_ns[i] = 1 + below(prng, 50);
        d->b_ns[i] = 1 + below(prng, 100);
        d->w_ns[i] = 1 + below(prng, 50);
    }
    int64_t limits[] = {0, 1, 1 + below(prng, 100), 1 + below(prng, 1000)};
    d->job.token_limit = limits[below(prng, 4)];
    link_job(d, below(prng, 2) == 0);
}

// One stage of the replay.
typedef struct replayed {
    size_t step, f, b, w; // next ones
    int64_t free_ns, held;
} replayed;

typedef struct replay {
    const sp_packflow_job *job;
    const sp_packflow_step *steps;
    replayed stage[MOST_STAGES];
    int64_t f_end[MOST_STAGES][MOST_PACKS], b_end[MOST_STAGES][MOST_PACKS]; // -1: not yet
    int64_t makespan_ns, most_tokens;
} replay;

// When the next forward or backward of a stage may begin; -1: not known yet.
static int64_t forward_ready(const replay *r, int s)
{
    size_t k = r->stage[s].f;
    if (s == 0) {
        return 0;
    }
    return r->f_end[s - 1][k] < 0 ? -1 : r->f_end[s - 1][k] + r->job->p2p_ns;
}

static int64_t backward_ready(const replay *r, int s)
{
    size_t k = r->stage[s].b;
    int64_t own_ns = r->f_end[s][r->job->need[k]];
    if (s + 1 == r->job->stages || own_ns < 0) {
        return own_ns;
    }
    int64_t next_ns = r->b_end[s + 1][k];
    if (next_ns < 0) {
        return -1;
    }
    next_ns += r->job->p2p_ns;
    return next_ns > own_ns ? next_ns : own_ns;
}

// Runs the next step of a stage if what it waits for is known.
static bool replay_step(replay *r, int s)
{
    const sp_packflow_job *job = r->job;
    replayed *st = &r->stage[s];
    size_t length = sp_packflow_length(job);
    if (st->step == length) {
        return false;
    }
    sp_packflow_step step = r->steps[(size_t)s * length + st->step];
    size_t at = (size_t)step.pack * (size_t)job->stages + (size_t)s;
    int64_t ready_ns = st->free_ns;
    int64_t run_ns = 0;
    if (step.kind == SP_PACKFLOW_F) {
        assert_int_equal(step.pack, st->f);
        ready_ns = forward_ready(r, s);
        run_ns = job->f_ns[at];
    } else if (step.kind == SP_PACKFLOW_B) {
        assert_int_equal(step.pack, st->b);
        ready_ns = backward_ready(r, s);
        run_ns = job->b_ns[at];
    } else {
        assert_non_null(job->w_ns);
        assert_int_equal(step.pack, st->w);
        assert_true(st->w < st->b);
        run_ns = job->w_ns[at];
    }
    if (ready_ns < 0) {
        return false;
    }
    int64_t end_ns = (ready_ns > st->free_ns ? ready_ns : st->free_ns) + run_ns;
    if (step.kind == SP_PACKFLOW_F) {
        r->f_end[s][st->f++] = end_ns;
        st->held += job->tokens[step.pack];
    } else if (step.kind == SP_PACKFLOW_B) {
        r->b_end[s][st->b++] = end_ns;
    } else {
        st->w++;
    }
    if (step.kind == (job->w_ns != NULL ? SP_PACKFLOW_W : SP_PACKFLOW_B)) {
        st->held -= job->freed[step.pack];
    }
    r->most_tokens = st->held > r->most_tokens ? st->held : r->most_tokens;
    r->makespan_ns = end_ns > r->makespan_ns ? end_ns : r->makespan_ns;
    st->free_ns = end_ns;
    st->step++;
    return true;
}

static void replay_all(replay *r, const sp_packflow_job *job, const sp_packflow_step *steps)
{
    *r = (replay){.job = job, .steps = steps};
    memset(r->f_end, -1, sizeof r->f_end);
    memset(r->b_end, -1, sizeof r->b_end);
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < job->stages; s++) {
            while (replay_step(r, s)) {
                moved = true;
            }
        }
    }
    for (int s = 0; s < job->stages; s++) {
        // Nothing waits for itself, every action ran, and the memory is empty at the end.
        assert_int_equal(r->stage[s].step, sp_packflow_length(job));
        assert_int_equal(r->stage[s].f, job->forward);
        assert_int_equal(r->stage[s].b, job->backward);
        assert_int_equal(r->stage[s].w, job->w_ns != NULL ? job->backward : 0);
        assert_int_equal(r->stage[s].held, 0);
    }
}

// At each decision of a stage, with all times known: a backward that is ready goes first, a forward
// with room goes before weight gradients, these before a forward without room, which runs only
// where the next backward needs it, and the stage waits only where none of these can run.
static void assert_greedy(const replay *done, int s)
{
    const sp_packflow_job *job = done->job;
    size_t length = sp_packflow_length(job);
    replay r = *done;
    r.stage[s] = (replayed){0};
    for (size_t i = 0; i < length; i++) {
        replayed *st = &r.stage[s];
        sp_packflow_step step = done->steps[(size_t)s * length + i];
        bool left_f = st->f < job->forward;
        // What its own forwards have not reached yet is not ready.
        bool left_b = st->b < job->backward && st->f > (size_t)job->need[st->b];
        bool needed = st->b < job->backward && st->f <= (size_t)job->need[st->b];
        bool fits = left_f && (job->token_limit == 0 || st->held == 0 ||
                               st->held + job->tokens[st->f] <= job->token_limit);
        int64_t b_ns = left_b ? backward_ready(&r, s) : INT64_MAX;
        int64_t f_ns = fits || needed ? forward_ready(&r, s) : INT64_MAX;
        bool weights = job->w_ns != NULL && st->w < st->b;
        int64_t free_ns = st->free_ns;
        if (step.kind == SP_PACKFLOW_F) {
            assert_true(fits || (needed && !weights));
            int64_t start_ns = f_ns > free_ns ? f_ns : free_ns;
            assert_true(b_ns > start_ns);
            assert_true(start_ns == free_ns || !weights);
        } else if (step.kind == SP_PACKFLOW_B) {
            assert_true(left_b);
            int64_t start_ns = b_ns > free_ns ? b_ns : free_ns;
            assert_true(start_ns == free_ns || (f_ns >= start_ns && !weights));
        } else {
            assert_true(b_ns > free_ns && (!fits || f_ns > free_ns));
        }
        assert_true(replay_step(&r, s));
    }
}

static void run_checked(const drawn_job *d, sp_packflow_result *result)
{
    static sp_packflow_step steps[MOST_STAGES * MOST_STEPS];
    static replay r;
    sp_error err = {0};
    *result = (sp_packflow_result){.steps = steps};
    assert_int_equal(sp_packflow_run(&d->job, result, &err), SP_OK);
    replay_all(&r, &d->job, steps);
    assert_int_equal(r.makespan_ns, result->makespan_ns);
    assert_int_equal(r.most_tokens, result->most_tokens);
    for (int s = 0; s < d->job.stages; s++) {
        assert_greedy(&r, s);
    }
    sp_packflow_result times_only = {0};
    assert_int_equal(sp_packflow_run(&d->job, &times_only, &err), SP_OK);
    assert_int_equal(times_only.makespan_ns, result->makespan_ns);
    assert_int_equal(times_only.most_tokens, result->most_tokens);
}

static void random_jobs_follow_the_rules(void **state)
{
    (void)state;
    sp_prng prng;
    sp_prng_seed(&prng, 41);
    static drawn_job d;
    for (int round = 0; round < 10000; round++) {
        draw(&d, &prng);
        sp_packflow_result result;
        run_checked(&d, &result);
        int64_t total = 0;
        int64_t last = 0;
        for (size_t k = 0; k < d.job.forward; k++) {
            total += d.tokens[k];
        }
        for (int s = 0; s < d.job.stages; s++) {
            int64_t work_ns = 0;
            for (size_t k = 0; k < d.job.forward; k++) {
                work_ns += d.f_ns[k * (size_t)d.job.stages + (size_t)s];
            }
            for (size_t k = 0; k < d.job.backward; k++) {
                size_t at = k * (size_t)d.job.stages + (size_t)s;
                work_ns += d.b_ns[at] + (d.job.w_ns != NULL ? d.w_ns[at] : 0);
            }
            last = work_ns > last ? work_ns : last;
        }
        assert_true(result.makespan_ns >= last);
        assert_true(result.most_tokens <= total);
    }
}

// Equal packs, forward f and backward b (i + w where split), backward k after forward k.
static void uniform(drawn_job *d, int stages, int packs, int64_t f, int64_t b, int64_t w)
{
    d->job =
        (sp_packflow_job){.stages = stages, .forward = (size_t)packs, .backward = (size_t)packs};
    for (int i = 0; i < packs * stages; i++) {
        d->f_ns[i] = f;
        d->b_ns[i] = b;
        d->w_ns[i] = w;
    }
    for (int k = 0; k < packs; k++) {
        d->need[k] = k;
        d->tokens[k] = 10;
        d->freed[k] = 10;
    }
    link_job(d, w > 0);
}

// 1F1B's closed form (M + p - 1) (f + b), with p2p c also 2 (p - 1) c: the last stage begins after
// p - 1 forwards, never waits, and p - 1 backwards follow its last. It holds where b and c are
// whole numbers of f, as no backward then waits for a forward, and with room for p packs at c = 0,
// which is what 1F1B keeps on its first stage.
static void uniform_packs_take_1f1b_time(void **state)
{
    (void)state;
    static drawn_job d;
    for (int p = 1; p <= MOST_STAGES; p++) {
        for (int m = 1; m <= MOST_PACKS; m++) {
            for (int64_t c = 0; c <= 2; c++) {
                int64_t f = 7;
                uniform(&d, p, m, f, 2 * f, 0);
                d.job.p2p_ns = c * f;
                int64_t expected = (m + p - 1) * 3 * f + 2 * (p - 1) * c * f;
                sp_packflow_result result;
                run_checked(&d, &result);
                assert_int_equal(result.makespan_ns, expected);
                if (c == 0) {
                    d.job.token_limit = 10 * p;
                    run_checked(&d, &result);
                    assert_int_equal(result.makespan_ns, expected);
                    assert_int_equal(result.most_tokens, 10 * (m < p ? m : p));
                }
            }
        }
    }
}

// Room for one pack: each passes all stages forth and back before the next begins.
static void room_for_one_pack(void **state)
{
    (void)state;
    static drawn_job d;
    const int64_t limits[] = {1, 10, 19};
    for (int p = 1; p <= MOST_STAGES; p++) {
        for (size_t i = 0; i < 3; i++) {
            uniform(&d, p, 5, 3, 6, 0);
            d.job.p2p_ns = 2;
            d.job.token_limit = limits[i];
            sp_packflow_result result;
            run_checked(&d, &result);
            assert_int_equal(result.makespan_ns, 5 * (p * 9 + 2 * (p - 1) * 2));
            assert_int_equal(result.most_tokens, 10);
        }
    }
}

// A backward that needs all forwards: fill, all forwards, all backwards, whatever the room.
static void forwards_first_where_needed(void **state)
{
    (void)state;
    static drawn_job d;
    for (int64_t limit = 0; limit < 30; limit += 10) {
        uniform(&d, 4, 6, 2, 4, 0);
        for (int k = 0; k < 6; k++) {
            d.need[k] = 5;
        }
        d.job.token_limit = limit;
        sp_packflow_result result;
        run_checked(&d, &result);
        assert_int_equal(result.makespan_ns, (6 + 3) * (2 + 4));
        assert_int_equal(result.most_tokens, 60);
    }
}

// f = i = w and M >= 2p packs: every stage is busy from its first forward on, as in ZB-H2 (Qi et
// al., arXiv 2401.10241, Figure 3): makespan (p - 1) f + M (f + i + w).
static void split_backwards_fill_idle_time(void **state)
{
    (void)state;
    static drawn_job d;
    for (int p = 1; p <= MOST_STAGES; p++) {
        for (int m = 2 * p; m <= MOST_PACKS; m++) {
            uniform(&d, p, m, 5, 5, 5);
            sp_packflow_result result;
            run_checked(&d, &result);
            assert_int_equal(result.makespan_ns, (p - 1) * 5 + m * 15);
        }
    }
}

// Weight gradients in the gaps never make uniform packs slower, and random ones hardly ever: one
// that has begun cannot be put off, so a backward may wait for it.
static void splitting_saves_time(void **state)
{
    (void)state;
    static drawn_job d;
    for (int p = 1; p <= MOST_STAGES; p++) {
        for (int m = 1; m <= MOST_PACKS; m++) {
            sp_packflow_result split;
            sp_packflow_result whole;
            uniform(&d, p, m, 5, 5, 5);
            run_checked(&d, &split);
            uniform(&d, p, m, 5, 10, 0);
            run_checked(&d, &whole);
            assert_true(split.makespan_ns <= whole.makespan_ns);
        }
    }
    sp_prng prng;
    sp_prng_seed(&prng, 43);
    double log_ratio = 0.0;
    int slower = 0;
    enum { ROUNDS = 2000 };
    for (int round = 0; round < ROUNDS; round++) {
        draw(&d, &prng);
        d.job.token_limit = 0;
        link_job(&d, true);
        sp_packflow_result split;
        run_checked(&d, &split);
        for (size_t i = 0; i < (size_t)MOST_PACKS * MOST_STAGES; i++) {
            d.b_ns[i] += d.w_ns[i];
        }
        link_job(&d, false);
        sp_packflow_result whole;
        run_checked(&d, &whole);
        slower += split.makespan_ns > whole.makespan_ns;
        log_ratio += log((double)split.makespan_ns / (double)whole.makespan_ns);
    }
    assert_true(log_ratio < 0.0);
    assert_true(slower < ROUNDS / 100);
}

// A limit is a rank's: two merged ranks hold twice its tokens, half of them each.
static void merged_ranks_share_their_tokens(void **state)
{
    (void)state;
    enum { PACKS = 10, STAGES = 4 };
    int64_t tokens[2 * PACKS];
    int64_t f_ns[2 * PACKS * STAGES];
    int64_t b_ns[2 * PACKS * STAGES];
    int64_t w_ns[2 * PACKS * STAGES] = {0};
    sp_batch batch = {.ids = tokens, .tokens = tokens, .count = (size_t)2 * PACKS};
    sp_packing packing;
    sp_packing_init(&packing, &batch, 3);
    for (int k = 0; k < 2 * PACKS; k++) {
        // Ranks 0 and 1 together, then rank 2 with packs of half the tokens: the same a rank.
        bool merged = k < PACKS;
        tokens[k] = merged ? 200 : 100;
        assert_true(sp_pack_list_begin(&packing.forward, merged ? 0 : 2, merged ? 2 : 1));
        sp_slice slice = {.sample = k, .tokens = tokens[k], .computed_tokens = tokens[k]};
        assert_true(sp_pack_list_add(&packing.forward, slice, true));
    }
    for (int i = 0; i < 2 * PACKS * STAGES; i++) {
        f_ns[i] = 10;
        b_ns[i] = 20;
    }
    const sp_schedule_costs costs = {.pack_f_ns = f_ns, .pack_b_ns = b_ns, .pack_w_ns = w_ns};
    for (int64_t packs = 1; packs <= STAGES; packs++) {
        const sp_schedule_spec spec = {.kind = SP_SCHEDULE_PACKFLOW, .token_limit = 100 * packs};
        int64_t makespan_ns[3];
        for (int d = 0; d < 3; d++) {
            sp_error err = {0};
            sp_packflow_result result;
            assert_int_equal(sp_i_packflow_rank(&spec, &costs, &packing, STAGES, d, &result, &err),
                             SP_OK);
            assert_int_equal(result.most_tokens, 100 * packs);
            makespan_ns[d] = result.makespan_ns;
        }
        assert_int_equal(makespan_ns[0], makespan_ns[2]);
        assert_int_equal(makespan_ns[1], makespan_ns[2]);
        if (packs == STAGES) {
            assert_int_equal(makespan_ns[0], (PACKS + STAGES - 1) * 30);
        }
    }
    sp_packing_fini(&packing);
}

static void allocation_failures(void **state)
{
    (void)state;
    static drawn_job d;
    uniform(&d, 2, 3, 1, 2, 0);
    sp_status status = SP_ERR_NO_MEMORY;
    for (long n = 0; status != SP_OK; n++) {
        assert_true(n < 10);
        sp_error err = {0};
        sp_packflow_result result = {0};
        sp_i_alloc_fail_after(n);
        status = sp_packflow_run(&d.job, &result, &err);
        sp_i_alloc_fail_after(-1);
        assert_true(status == SP_OK || (status == SP_ERR_NO_MEMORY && err.status == status));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_jobs_follow_the_rules),
    cmocka_unit_test(uniform_packs_take_1f1b_time),
    cmocka_unit_test(room_for_one_pack),
    cmocka_unit_test(forwards_first_where_needed),
    cmocka_unit_test(split_backwards_fill_idle_time),
    cmocka_unit_test(splitting_saves_time),
    cmocka_unit_test(merged_ranks_share_their_tokens),
    cmocka_unit_test(allocation_failures),
};

SP_TEST_MAIN(tests)
