// The rules of a plan, asked directly: packs on two data-parallel ranks, and backward packs that
// are cut otherwise than the forward ones.
#include "sim/plan/depends.h"
#include "tests/support/test_main.h"

typedef struct made {
    sp_layout layout;
    sp_batch batch;
    sp_packing packing;
    sp_plan plan;
    sp_depends depends;
} made;

// Two samples of 16 tokens on two pipeline ranks, each forward pack with a half of both, and one
// backward pack with all, on both data-parallel ranks.
static void make(made *m)
{
    static int64_t tokens[] = {16, 16};
    *m = (made){.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1, .zero = 1},
                .batch = {.count = 2, .tokens = tokens}};
    sp_packing_init(&m->packing, &m->batch, 2);
    for (int k = 0; k < 2; k++) {
        sp_pack_list_begin(&m->packing.forward, 0, 2);
        for (int s = 0; s < 2; s++) {
            const sp_slice slice = {.sample = s, .begin = 8 * k, .tokens = 8, .computed_tokens = 8};
            sp_pack_list_add(&m->packing.forward, slice, k == 1);
        }
    }
    sp_pack_list_begin(&m->packing.backward, 0, 2);
    for (int i = 0; i < 4; i++) {
        const sp_slice slice = {
            .sample = i % 2, .begin = i < 2 ? 8 : 0, .tokens = 8, .computed_tokens = 8};
        sp_pack_list_add(&m->packing.backward, slice, i < 2);
    }
    sp_plan_init(&m->plan, &m->layout, &m->packing);
    sp_depends_init(&m->depends, &m->plan, NULL);
}

static void made_fini(made *m)
{
    sp_depends_fini(&m->depends);
    sp_plan_fini(&m->plan);
    sp_packing_fini(&m->packing);
}

// W of a merged pack is local: its ranks do not run it together, and it waits for nothing but what
// stands before it in its rank's list.
TEST(weight_gradients_of_merged_packs_are_local)
{
    AUTO(made) m;
    make(&m);
    for (int kind = 0; kind < SP_ACTION_KINDS; kind++) {
        const sp_plan_place place = {.action = {.kind = (uint8_t)kind}};
        const sp_pack *pack = sp_depends_pack(&m.depends, place.action);
        bool exchanges = strchr("FBIR", sp_action_letters[kind]) != NULL;
        assert_int_equal(pack->dp_count, 2);
        assert_int_equal(sp_depends_alone(pack, place.action), !exchanges);
        const sp_dp_ranks together = sp_depends_together(pack, place.action, 1);
        assert_int_equal(together.first, exchanges ? 0 : 1);
        assert_int_equal(together.count, exchanges ? 2 : 1);
    }
    sp_plan_place input;
    const sp_plan_place place = {.action = {.kind = SP_ACTION_W}};
    assert_false(sp_depends_input(&m.depends, &place, 0, &input));
}

static void check_input(const made *m, sp_action_kind kind, int pp, size_t i,
                        const sp_plan_place *expected)
{
    const sp_plan_place place = {.dp = 1, .pp = pp, .action = {.kind = (uint8_t)kind}};
    sp_plan_place input = {.dp = -1};
    assert_int_equal(sp_depends_input(&m->depends, &place, i, &input), expected != NULL);
    if (expected != NULL) {
        assert_int_equal(input.dp, 1);
        assert_int_equal(input.pp, expected->pp);
        assert_int_equal(input.action.kind, expected->action.kind);
        assert_int_equal(input.action.pack, expected->action.pack);
    }
}

// A backward reads each slice's copy back and the stage behind; a forward the stage before; copies
// what they copy.
TEST(what_actions_wait_for)
{
    AUTO(made) m;
    make(&m);
    static const int32_t packs[] = {1, 1, 0, 0};
    for (size_t i = 0; i < 4; i++) {
        check_input(&m, SP_ACTION_B, 0, i,
                    &(sp_plan_place){.action = {.kind = SP_ACTION_L, .pack = packs[i]}});
    }
    check_input(&m, SP_ACTION_B, 0, 4, &(sp_plan_place){.pp = 1, .action = {.kind = SP_ACTION_B}});
    check_input(&m, SP_ACTION_B, 0, 5, NULL);
    check_input(&m, SP_ACTION_B, 1, 4, NULL);
    check_input(&m, SP_ACTION_F, 0, 0, NULL);
    check_input(&m, SP_ACTION_F, 1, 0, &(sp_plan_place){.action = {.kind = SP_ACTION_F}});
    check_input(&m, SP_ACTION_F, 1, 1, NULL);
    check_input(&m, SP_ACTION_O, 0, 0, &(sp_plan_place){.action = {.kind = SP_ACTION_F}});
    check_input(&m, SP_ACTION_L, 0, 0, &(sp_plan_place){.action = {.kind = SP_ACTION_O}});
    check_input(&m, SP_ACTION_L, 0, 1, NULL);
}

// I leaves to W what the weight gradient needs, B and W leave nothing; a forward that runs again
// leaves what its repeat needs, and the repeat all.
TEST(what_actions_leave)
{
    static const struct {
        sp_action_kind kind;
        bool runs_again;
        sp_unit_holds holds;
    } rules[] = {{SP_ACTION_F, false, SP_HOLDS_ALL},      {SP_ACTION_F, true, SP_HOLDS_REPEAT},
                 {SP_ACTION_R, true, SP_HOLDS_ALL},       {SP_ACTION_I, false, SP_HOLDS_WEIGHTS},
                 {SP_ACTION_W, false, SP_HOLDS_NOTHING},  {SP_ACTION_B, false, SP_HOLDS_NOTHING},
                 {SP_ACTION_O, false, SP_HOLDS_RESIDENT}, {SP_ACTION_L, false, SP_HOLDS_LOADED}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const sp_action action = {.kind = (uint8_t)rules[i].kind};
        assert_int_equal(sp_depends_left(action, rules[i].runs_again), rules[i].holds);
        assert_int_equal(sp_depends_splits(action), rules[i].kind == SP_ACTION_I);
    }
}
