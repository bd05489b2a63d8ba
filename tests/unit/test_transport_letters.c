// In which order hidden states and their gradients go from one pipeline rank to another: plans
// written out by hand, and the definition replayed on random ones.
#include "backends/executor/run.h"
#include "tests/support/plan_sample.h"
#include "tests/support/random_plan.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

enum { PACKS = 3 };

typedef struct written {
    sp_layout layout;
    sp_packing packing;
    sp_plan plan;
} written;

static void make(written *w, int chunks, const char *first, const char *second)
{
    *w = (written){.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = chunks}};
    sp_packing_init(&w->packing, NULL, 1);
    for (int p = 0; p < PACKS; p++) {
        assert_true(sp_pack_list_begin(&w->packing.forward, 0, 1));
    }
    sp_plan_init(&w->plan, &w->layout, &w->packing);
    plan_add_actions(&w->plan, 0, 0, first);
    plan_add_actions(&w->plan, 0, 1, second);
}

static void fini(written *w)
{
    sp_plan_fini(&w->plan);
    sp_packing_fini(&w->packing);
}

static void must_be(const written *w, int from, bool gradient, const sp_i_exec_transfer *expected,
                    size_t count)
{
    sp_i_exec_transfers letters;
    sp_depends depends;
    sp_depends_init(&depends, &w->plan, NULL);
    sp_i_exec_transfers_make(&depends, 0, from, 1 - from, gradient, &letters);
    sp_depends_fini(&depends);
    assert_int_equal(letters.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(letters.items[i].vstage, expected[i].vstage);
        assert_int_equal(letters.items[i].pack, expected[i].pack);
        assert_int_equal(letters.items[i].sent, expected[i].sent);
        assert_int_equal(letters.items[i].read, expected[i].read);
        assert_int_equal(letters.items[i].receive_by, expected[i].receive_by);
    }
    sp_i_exec_transfers_fini(&letters);
}

// The receiver reads the last first: it must ask for all of them then.
TEST(another_order_at_the_receiver)
{
    written w;
    make(&w, 1, "F0.0 F1.0 F2.0 B0.0 B1.0 B2.0", "F2.0 F0.0 F1.0 B1.0 B0.0 B2.0");
    must_be(&w, 0, false, (sp_i_exec_transfer[]){{1, 0, 0, 1, 0}, {1, 1, 1, 2, 0}, {1, 2, 2, 0, 0}},
            PACKS);
    must_be(&w, 1, true, (sp_i_exec_transfer[]){{0, 1, 3, 4, 3}, {0, 0, 4, 3, 3}, {0, 2, 5, 5, 5}},
            PACKS);
    must_be(&w, 1, false, NULL, 0);
    must_be(&w, 0, true, NULL, 0);
    fini(&w);
}

// What the first of a pair leaves goes off with what the second does.
TEST(pairs)
{
    written w;
    make(&w, 2, "F0.0 F1.0 F0.1+B0.1 F1.1 I1.1 B0.0 I1.0 W1.0 W1.1",
         "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0");
    // From the stages 0 and 2 to 1 and 3, and back.
    must_be(
        &w, 0, false,
        (sp_i_exec_transfer[]){{1, 0, 0, 0, 0}, {1, 1, 1, 1, 1}, {3, 0, 3, 2, 2}, {3, 1, 4, 4, 4}},
        4);
    must_be(
        &w, 1, true,
        (sp_i_exec_transfer[]){{2, 0, 3, 3, 3}, {2, 1, 5, 5, 5}, {0, 0, 6, 6, 6}, {0, 1, 7, 7, 7}},
        4);
    // From 1 to 2, and from 2 to 1.
    must_be(&w, 1, false, (sp_i_exec_transfer[]){{2, 0, 0, 2, 2}, {2, 1, 1, 4, 4}}, 2);
    must_be(&w, 0, true, (sp_i_exec_transfer[]){{1, 0, 3, 6, 6}, {1, 1, 5, 7, 7}}, 2);
    fini(&w);
}

// ---- random plans ----

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

TEST(random_plans)
{
    sp_prng prng = prng_seeded(41);
    for (int i = 0; i < 300; i++) {
        random_plan r;
        random_plan_make(&prng, 2, 3, &r);
        random_agreed_actions(&prng, &r);
        const sp_layout *layout = &r.plan.layout;
        for (int d = 0; d < layout->dp; d++) {
            for (int k = 0; k < layout->pp * layout->pp; k++) {
                check_receiver(&r.plan, d, k / layout->pp, k % layout->pp, false);
                check_receiver(&r.plan, d, k / layout->pp, k % layout->pp, true);
            }
        }
        random_plan_fini(&r);
    }
}
