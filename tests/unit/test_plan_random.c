// The plan checker on random plans, against a second form of the rules.
#include "tests/support/test_main.h"

#include "tests/support/random_plan.h"

// Where the action stands in the list of its rank; SIZE_MAX: nowhere; `times` counts it.
static size_t find(const sp_stage_plan *stage, sp_action_kind kind, int chunk, size_t of_pack,
                   int *times)
{
    size_t at = SIZE_MAX;
    for (size_t i = stage->count; i-- > 0;) {
        sp_action a = stage->actions[i];
        if (a.kind == kind && a.chunk == chunk && (size_t)a.pack == of_pack) {
            at = i;
            *times += 1;
        }
    }
    return at;
}

static bool shares_slice(const sp_pack_list *x, size_t p, const sp_pack_list *y, size_t q)
{
    for (size_t i = 0; i < x->packs[p].slice_count; i++) {
        for (size_t j = 0; j < y->packs[q].slice_count; j++) {
            const sp_slice *a = &x->slices[x->packs[p].first_slice + i];
            const sp_slice *b = &y->slices[y->packs[q].first_slice + j];
            if (a->sample == b->sample && a->begin == b->begin) {
                return true;
            }
        }
    }
    return x == y && p == q;
}

// Has pack p a slice of a sample of which pack q has an earlier one?
static bool follows(const sp_pack_list *list, size_t p, size_t q)
{
    for (size_t i = 0; i < list->packs[p].slice_count && p != q; i++) {
        for (size_t j = 0; j < list->packs[q].slice_count; j++) {
            const sp_slice *a = &list->slices[list->packs[p].first_slice + i];
            const sp_slice *b = &list->slices[list->packs[q].first_slice + j];
            if (a->sample == b->sample && a->begin > b->begin) {
                return true;
            }
        }
    }
    return false;
}

static bool forward_holds(const sp_stage_plan *stage, const random_plan *r, int chunk, size_t p)
{
    const sp_pack_list *forward = &r->packing.forward;
    const sp_pack_list *backward = sp_packing_backward(&r->packing);
    int times[SP_ACTION_KINDS] = {0};
    size_t f = find(stage, SP_ACTION_F, chunk, p, &times[SP_ACTION_F]);
    size_t re = find(stage, SP_ACTION_R, chunk, p, &times[SP_ACTION_R]);
    size_t off = find(stage, SP_ACTION_O, chunk, p, &times[SP_ACTION_O]);
    size_t load = find(stage, SP_ACTION_L, chunk, p, &times[SP_ACTION_L]);
    bool holds = times[SP_ACTION_F] == 1 && times[SP_ACTION_R] <= 1 && times[SP_ACTION_O] <= 1 &&
                 times[SP_ACTION_O] == times[SP_ACTION_L] && (re == SIZE_MAX || re > f) &&
                 (off == SIZE_MAX || (off > f && load > off));
    for (size_t q = 0; q < forward->count; q++) {
        int n = 0;
        // Packs of other ranks are not found, hence not waited for.
        size_t other = find(stage, SP_ACTION_F, chunk, q, &n);
        holds = holds && !(follows(forward, p, q) && n > 0 && other > f);
    }
    for (size_t q = 0; q < backward->count; q++) {
        if (shares_slice(forward, p, backward, q)) {
            int n = 0;
            size_t b = find(stage, SP_ACTION_B, chunk, q, &n);
            size_t in = find(stage, SP_ACTION_I, chunk, q, &n);
            size_t start = b < in ? b : in;
            holds = holds && f < start && (re == SIZE_MAX || re < start) &&
                    (load == SIZE_MAX || load < start);
        }
    }
    return holds;
}

static bool backward_holds(const sp_stage_plan *stage, const random_plan *r, int chunk, size_t p)
{
    const sp_pack_list *backward = sp_packing_backward(&r->packing);
    int bs = 0, is = 0, ws = 0;
    size_t b = find(stage, SP_ACTION_B, chunk, p, &bs);
    size_t in = find(stage, SP_ACTION_I, chunk, p, &is);
    size_t w = find(stage, SP_ACTION_W, chunk, p, &ws);
    bool holds = bs + is == 1 && ws == is && (is == 0 || w > in);
    size_t start = b < in ? b : in;
    for (size_t q = 0; q < backward->count; q++) {
        int n = 0;
        size_t other_b = find(stage, SP_ACTION_B, chunk, q, &n);
        size_t other_i = find(stage, SP_ACTION_I, chunk, q, &n);
        size_t other = other_b < other_i ? other_b : other_i;
        holds = holds && !(follows(backward, q, p) && n > 0 && other > start);
    }
    return holds;
}

// The rules of one rank's action list straight from their wording, without regard to time.
static bool rules_hold(const random_plan *r, int dp_rank, int pp_rank)
{
    const sp_stage_plan *stage = sp_plan_stage(&r->plan, dp_rank, pp_rank);
    const sp_pack_list *backward = sp_packing_backward(&r->packing);
    bool holds = true;
    for (int chunk = 0; chunk < r->layout.chunks; chunk++) {
        for (size_t p = 0; p < r->packing.forward.count; p++) {
            if (random_runs_on(&r->packing.forward.packs[p], dp_rank)) {
                holds = holds && forward_holds(stage, r, chunk, p);
            }
        }
        for (size_t p = 0; p < backward->count; p++) {
            if (random_runs_on(&backward->packs[p], dp_rank)) {
                holds = holds && backward_holds(stage, r, chunk, p);
            }
        }
    }
    return holds;
}

TEST_ROUNDS(accepts_random_plans, 21, 2000)
{
    AUTO(random_plan) r;
    random_plan_make(prng, 3, 2, &r);
    sp_error_clear(ERR);
    must_hold(sp_plan_check(&r.plan, "random", ERR) == SP_OK, "round %d: %s", round,
              ERR->message[0]);
}

// Moves single actions of random plans; the checker must agree with the wording of the rules.
TEST(agrees_with_the_rules_on_moved_actions)
{
    sp_prng prng = prng_seeded(22);
    int accepted = 0, refused = 0;
    for (int round = 0; round < 3000; round++) {
        AUTO(random_plan) r;
        random_plan_make(&prng, 2, 2, &r);
        int d = prng_below(&prng, r.layout.dp);
        int p = prng_below(&prng, r.layout.pp);
        sp_stage_plan *stage = sp_plan_stage(&r.plan, d, p);
        for (int moves = 0; moves < 3 && stage->count > 1; moves++) {
            size_t from = (size_t)prng_below(&prng, (int)stage->count);
            size_t to = (size_t)prng_below(&prng, (int)stage->count);
            sp_action moved = stage->actions[from];
            memmove(&stage->actions[from], &stage->actions[from + 1],
                    (stage->count - 1 - from) * sizeof moved);
            memmove(&stage->actions[to + 1], &stage->actions[to],
                    (stage->count - 1 - to) * sizeof moved);
            stage->actions[to] = moved;
            bool expected = rules_hold(&r, d, p);
            sp_status status = sp_plan_check(&r.plan, "random", NULL);
            assert_int_equal(status, expected ? SP_OK : SP_ERR_CONTENT);
            accepted += expected;
            refused += !expected;
        }
    }
    assert_true(accepted > 500);
    assert_true(refused > 500);
}

// No action can stand twice, and none but R can be left out alone; O without its L is lost too.
TEST_ROUNDS(refuses_lost_and_doubled_actions, 23, 1000)
{
    AUTO(random_plan) r;
    random_plan_make(prng, 2, 2, &r);
    sp_stage_plan *stage = sp_plan_stage(&r.plan, 0, 0);
    if (stage->count > 0) {
        size_t i = (size_t)prng_below(prng, (int)stage->count);
        sp_action action = stage->actions[i];
        sp_stage_plan_add(stage, (sp_action_kind)action.kind, action.chunk, action.pack);
        assert_int_equal(sp_plan_check(&r.plan, "random", NULL), SP_ERR_CONTENT);
        stage->count--;
        memmove(&stage->actions[i], &stage->actions[i + 1], (stage->count - 1 - i) * sizeof action);
        stage->count--;
        if (action.kind == SP_ACTION_R) {
            assert_int_equal(sp_plan_check(&r.plan, "random", NULL), SP_OK);
        } else {
            assert_int_equal(sp_plan_check(&r.plan, "random", NULL), SP_ERR_CONTENT);
        }
    }
}
