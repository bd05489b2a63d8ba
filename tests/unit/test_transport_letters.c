// In which order hidden states and their gradients go from one pipeline rank to another: the
// definition replayed on random plans.
#include "backends/executor/run.h"
#include "tests/support/plan_sample.h"
#include "tests/support/random_plan.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

static bool reads(const sp_plan *plan, int pp, sp_action action, bool gradient, int *from)
{
    int chunk;
    int vstage = sp_layout_vstage(&plan->layout, pp, action.chunk);
    bool passes = gradient ? action.kind == SP_ACTION_B || action.kind == SP_ACTION_I
                           : action.kind == SP_ACTION_F;
    int other = vstage + (gradient ? 1 : -1);
    if (!passes || other < 0 || other >= sp_layout_vstages(&plan->layout)) {
        return false;
    }
    sp_layout_locate(&plan->layout, other, from, &chunk);
    return true;
}

// Every action that reads has one letter, and finds it among those that were asked for.
static void check_receiver(const sp_plan *plan, int dp, int from, int to, bool gradient)
{
    sp_i_exec_transfers letters;
    const sp_stage_plan *stage = sp_plan_stage(plan, dp, to);
    size_t asked = 0, read = 0;
    sp_depends depends;
    sp_depends_init(&depends, plan, NULL);
    sp_i_exec_transfers_make(&depends, dp, from, to, gradient, &letters);
    sp_depends_fini(&depends);
    for (size_t a = 0; a < stage->count; a++) {
        int source;
        if (!reads(plan, to, stage->actions[a], gradient, &source) || source != from) {
            continue;
        }
        size_t before = asked;
        while (asked < letters.count && letters.items[asked].receive_by <= a) {
            asked++;
        }
        size_t i = 0;
        while (i < asked && letters.items[i].read != a) {
            i++;
        }
        assert_true(i < asked);
        assert_int_equal(letters.items[i].pack, stage->actions[a].pack);
        assert_int_equal(letters.items[i].vstage,
                         sp_layout_vstage(&plan->layout, to, stage->actions[a].chunk));
        // No more than this one needs.
        assert_true(asked == before || asked == i + 1);
        read++;
    }
    assert_int_equal(read, letters.count);
    for (size_t i = 1; i < letters.count; i++) {
        assert_true(letters.items[i - 1].sent <= letters.items[i].sent);
    }
    sp_i_exec_transfers_fini(&letters);
}

TEST_ROUNDS(random_plans, 41, 300)
{
    AUTO(random_plan) r;
    random_plan_make(prng, 2, 3, &r);
    random_agreed_actions(prng, &r);
    const sp_layout *layout = &r.plan.layout;
    for (int d = 0; d < layout->dp; d++) {
        for (int k = 0; k < layout->pp * layout->pp; k++) {
            check_receiver(&r.plan, d, k / layout->pp, k % layout->pp, false);
            check_receiver(&r.plan, d, k / layout->pp, k % layout->pp, true);
        }
    }
}
