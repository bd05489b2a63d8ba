#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

#include "sim/plan/plan.h"

// A plan written by hand: samples, packs and actions are given as in plan.json.
typedef struct fixture {
    sp_batch batch;
    int64_t ids[8], tokens[8];
    sp_packing packing;
    sp_layout layout;
    sp_plan plan;
} fixture;

static void setup(fixture *f, int dp, int pp, int chunks)
{
    *f = (fixture){0};
    f->layout = (sp_layout){.tp = 1, .cp = 1, .pp = pp, .dp = dp, .chunks = chunks, .zero = 1};
    f->batch = (sp_batch){.ids = f->ids, .tokens = f->tokens};
    sp_packing_init(&f->packing, &f->batch, dp);
    sp_plan_init(&f->plan, &f->layout, &f->packing);
}

static void teardown(fixture *f)
{
    sp_plan_fini(&f->plan);
    sp_packing_fini(&f->packing);
}

static void sample(fixture *f, int64_t tokens)
{
    f->ids[f->batch.count] = 100 + (int64_t)f->batch.count;
    f->tokens[f->batch.count++] = tokens;
    f->batch.total_tokens += tokens;
}

static void pack(sp_pack_list *list, int dp_first, int dp_count)
{
    assert_true(sp_pack_list_begin(list, dp_first, dp_count));
}

static void slice(sp_pack_list *list, int of_sample, int64_t begin, int64_t tokens)
{
    sp_slice slice = {
        .sample = of_sample, .begin = begin, .tokens = tokens, .computed_tokens = tokens};
    sp_pack_list_add(list, slice, false);
}

// Replaces the actions of a rank: "F0 F1.1 B0".
static void actions(fixture *f, int dp_rank, int pp_rank, const char *text)
{
    sp_stage_plan *stage = sp_plan_stage(&f->plan, dp_rank, pp_rank);
    stage->count = 0;
    plan_add_actions(&f->plan, dp_rank, pp_rank, text);
}

static sp_status check(fixture *f)
{
    sp_error_clear(ERR);
    return sp_plan_check(&f->plan, "plan.json", ERR);
}

static void good(fixture *f)
{
    sp_status status = check(f);
    if (status != SP_OK) {
        print_message("%s\n", ERR->message[0]);
    }
    assert_int_equal(status, SP_OK);
}

// The first message begins with `place` after "plan.json: ".
static void bad(fixture *f, const char *place)
{
    assert_int_equal(check(f), SP_ERR_CONTENT);
    assert_true(ERR->count > 0);
    assert_memory_equal(ERR->message[0], "plan.json: ", 11);
    assert_memory_equal(ERR->message[0] + 11, place, strlen(place));
    // Without a record the answer is the same.
    assert_int_equal(sp_plan_check(&f->plan, "plan.json", NULL), SP_ERR_CONTENT);
}

// Two samples, one pack each, on one rank of two stages.
static void simple(fixture *f)
{
    setup(f, 1, 2, 1);
    for (int s = 0; s < 2; s++) {
        sample(f, 100 + s);
        pack(&f->packing.forward, 0, 1);
        slice(&f->packing.forward, s, 0, 100 + s);
    }
    actions(f, 0, 0, "F0 F1 B0 B1");
    actions(f, 0, 1, "F0 B0 F1 B1");
}

// One sample of 100 tokens cut in two and a whole one of 50; the backward packs are other ones.
static void sliced(fixture *f)
{
    setup(f, 1, 1, 1);
    sample(f, 100);
    sample(f, 50);
    pack(&f->packing.forward, 0, 1);
    slice(&f->packing.forward, 0, 0, 60);
    pack(&f->packing.forward, 0, 1);
    slice(&f->packing.forward, 0, 60, 40);
    slice(&f->packing.forward, 1, 0, 50);
    pack(&f->packing.backward, 0, 1);
    slice(&f->packing.backward, 0, 60, 40);
    pack(&f->packing.backward, 0, 1);
    slice(&f->packing.backward, 0, 0, 60);
    slice(&f->packing.backward, 1, 0, 50);
    actions(f, 0, 0, "F0 F1 B0 B1");
}

TEST(accepts_1f1b)
{
    fixture f;
    setup(&f, 1, 2, 1);
    for (int s = 0; s < 4; s++) {
        sample(&f, 10 * (s + 1));
        pack(&f.packing.forward, 0, 1);
        slice(&f.packing.forward, s, 0, 10 * (s + 1));
    }
    actions(&f, 0, 0, "F0 F1 B0 F2 B1 F3 B2 B3");
    actions(&f, 0, 1, "F0 B0 F1 B1 F2 B2 F3 B3");
    good(&f);
    teardown(&f);
}

TEST(accepts_other_backward_packs)
{
    fixture f;
    sliced(&f);
    good(&f);
    // B1 holds tokens of both forward packs, B0 of the second alone.
    actions(&f, 0, 0, "F0 O0 F1 R1 B0 L0 R0 I1 W1");
    good(&f);
    teardown(&f);
}

TEST(accepts_merged_ranks)
{
    fixture f;
    setup(&f, 2, 1, 1);
    for (int s = 0; s < 3; s++) {
        sample(&f, 70);
        pack(&f.packing.forward, s % 2, s == 2 ? 2 : 1);
        slice(&f.packing.forward, s, 0, 70);
    }
    f.packing.forward.packs[2].dp_first = 0;
    actions(&f, 0, 0, "F0 F2 B0 B2");
    actions(&f, 1, 0, "F1 F2 B1 B2");
    good(&f);
    actions(&f, 1, 0, "F1 B1");
    bad(&f, "stage dp 1 pp 0: F2 is missing");
    teardown(&f);
}

TEST(accepts_padding)
{
    fixture f;
    simple(&f);
    f.packing.forward.slices[0].computed_tokens = 128;
    good(&f);
    f.packing.forward.slices[0].computed_tokens = 99;
    bad(&f, "forward_packs[0]: slice 0 (sample 0");
    teardown(&f);
}

TEST(accepts_several_slices_of_a_sample_in_a_pack)
{
    fixture f;
    setup(&f, 1, 1, 1);
    sample(&f, 90);
    pack(&f.packing.forward, 0, 1);
    slice(&f.packing.forward, 0, 60, 30);
    slice(&f.packing.forward, 0, 0, 20);
    slice(&f.packing.forward, 0, 20, 40);
    actions(&f, 0, 0, "F0 B0");
    good(&f);
    teardown(&f);
}

TEST(accepts_uniform_packs)
{
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 2, .chunks = 2};
    sp_packing packing;
    fixture f = {0};
    assert_int_equal(uniform_packing(&packing, 2, 1, NULL), SP_OK);
    sp_plan_init(&f.plan, &layout, &packing);
    actions(&f, 0, 0, "F0.0 F0.1 I0.1 I0.0 W0.1 W0.0");
    actions(&f, 1, 0, "F1.0 F1.1 O1.0 B1.1 L1.0 R1.0 B1.0");
    good(&f);
    actions(&f, 1, 0, "F1.0 F1.1 B1.1");
    bad(&f, "stage dp 1 pp 0: B1.0 is missing");
    actions(&f, 1, 0, "F1.0 F1.1 B1.0 B1.2");
    bad(&f, "stage dp 1 pp 0: B1.2 names unknown chunk 2, a rank has 2");
    sp_plan_fini(&f.plan);
    sp_packing_fini(&packing);
}

TEST(accepts_an_empty_plan)
{
    fixture f;
    setup(&f, 2, 2, 1);
    good(&f);
    teardown(&f);
}

TEST(refuses_unknown_samples_and_ranks)
{
    fixture f;
    simple(&f);
    f.packing.forward.slices[1].sample = 2;
    bad(&f, "forward_packs[1]: ");
    f.packing.forward.slices[1].sample = -1;
    bad(&f, "forward_packs[1]: ");
    f.packing.forward.slices[1].sample = 1;
    f.packing.forward.packs[1].dp_first = 1;
    bad(&f, "forward_packs[1].dp: ");
    f.packing.forward.packs[1].dp_first = 0;
    f.packing.forward.packs[1].dp_count = 0;
    bad(&f, "forward_packs[1].dp: ");
    f.packing.forward.packs[1].dp_count = INT32_MAX;
    assert_int_equal(check(&f), SP_ERR_CONTENT);
    f.packing.forward.packs[1].dp_count = 1;
    f.packing.batch = NULL;
    bad(&f, "forward_packs[0]: ");
    teardown(&f);
}

TEST(refuses_slices_outside_the_sample)
{
    fixture f;
    simple(&f);
    f.packing.forward.slices[0].tokens = 101;
    bad(&f, "forward_packs[0]: slice 0 (sample 0");
    f.packing.forward.slices[0].tokens = INT64_MAX;
    f.packing.forward.slices[0].begin = INT64_MAX;
    assert_int_equal(check(&f), SP_ERR_CONTENT);
    f.packing.forward.slices[0].begin = 0;
    f.packing.forward.slices[0].tokens = 0;
    bad(&f, "forward_packs[0]: slice 0 (sample 0");
    teardown(&f);
}

TEST(refuses_gaps)
{
    fixture f;
    sliced(&f);
    f.packing.forward.slices[0].begin = 10;
    f.packing.forward.slices[0].tokens = 50;
    bad(&f, "samples[0]: tokens 0..9 are in none of the forward_packs");
    f.packing.forward.slices[0].begin = 0;
    bad(&f, "samples[0]: tokens 50..59 are in none of the forward_packs");
    f.packing.forward.slices[0].tokens = 60;
    f.packing.backward.slices[2].tokens = 49;
    bad(&f, "samples[1]: tokens 49..49 are in none of the backward_packs");
    f.packing.backward.slices[2].tokens = 50;
    good(&f);
    sample(&f, 7);
    bad(&f, "samples[2]: tokens 0..6 are in none of the forward_packs");
    teardown(&f);
}

TEST(refuses_overlaps)
{
    fixture f;
    sliced(&f);
    f.packing.forward.slices[0].tokens = 61;
    f.packing.forward.slices[0].computed_tokens = 61;
    bad(&f, "forward_packs[1]: slice 0 (sample 0");
    f.packing.forward.slices[0].tokens = 60;
    f.packing.forward.slices[0].computed_tokens = 60;
    slice(&f.packing.backward, 1, 0, 50);
    bad(&f, "backward_packs[1]: slice 2 (sample 1");
    teardown(&f);
}

TEST(refuses_other_slices_backward)
{
    fixture f;
    sliced(&f);
    f.packing.backward.slices[1].tokens = 59;
    f.packing.backward.slices[0].begin = 59;
    f.packing.backward.slices[0].tokens = 41;
    f.packing.backward.slices[0].computed_tokens = 41;
    bad(&f, "backward_packs[1]: slice 0 (sample 0");
    teardown(&f);
    sliced(&f);
    f.packing.backward.slices[2].computed_tokens = 64;
    bad(&f, "backward_packs[1]: slice 1 (sample 1");
    teardown(&f);
}

TEST(refuses_other_ranks_backward)
{
    fixture f;
    setup(&f, 2, 1, 1);
    sample(&f, 30);
    pack(&f.packing.forward, 0, 2);
    slice(&f.packing.forward, 0, 0, 30);
    pack(&f.packing.backward, 1, 1);
    slice(&f.packing.backward, 0, 0, 30);
    bad(&f, "backward_packs[0]: slice 0 (sample 0");
    teardown(&f);
}

TEST(refuses_packs_out_of_order)
{
    fixture f;
    setup(&f, 1, 1, 1);
    sample(&f, 100);
    pack(&f.packing.forward, 0, 1);
    slice(&f.packing.forward, 0, 60, 40);
    pack(&f.packing.forward, 0, 1);
    slice(&f.packing.forward, 0, 0, 60);
    bad(&f, "forward_packs[0]: slice 0 (sample 0");
    teardown(&f);

    // Without backward packs of its own a sample cannot be spread over several packs.
    setup(&f, 1, 1, 1);
    sample(&f, 100);
    pack(&f.packing.forward, 0, 1);
    slice(&f.packing.forward, 0, 0, 60);
    pack(&f.packing.forward, 0, 1);
    slice(&f.packing.forward, 0, 60, 40);
    bad(&f, "backward_packs[1]: slice 0 (sample 0");
    teardown(&f);
}

TEST(refuses_empty_packs_beside_other_backward_packs)
{
    fixture f;
    sliced(&f);
    pack(&f.packing.backward, 0, 1);
    bad(&f, "backward_packs[2]: holds no slice");
    teardown(&f);
}

TEST(checks_dropped_and_delayed)
{
    fixture f;
    int64_t dropped[2] = {2, 2};
    int64_t delayed[1] = {3};
    simple(&f);
    sample(&f, 5);
    sample(&f, 6);
    f.packing.dropped = dropped;
    f.packing.dropped_count = 1;
    f.packing.delayed = delayed;
    f.packing.delayed_count = 1;
    good(&f);
    f.packing.dropped_count = 2;
    bad(&f, "dropped[1]: sample 2 stands twice in dropped and delayed");
    f.packing.dropped_count = 1;
    delayed[0] = 2;
    bad(&f, "delayed[0]: sample 2 stands twice in dropped and delayed");
    delayed[0] = 4;
    bad(&f, "delayed[0]: sample 4, but there are 4 samples");
    delayed[0] = -1;
    bad(&f, "delayed[0]: sample -1, but there are 4 samples");
    delayed[0] = 3;
    slice(&f.packing.forward, 2, 0, 5);
    bad(&f, "forward_packs[1]: slice 1 (sample 2");
    f.packing.forward.slices[2].sample = 3;
    bad(&f, "forward_packs[1]: slice 1 (sample 3");
    f.packing.dropped = NULL;
    f.packing.delayed = NULL;
    teardown(&f);
}

typedef struct bad_actions {
    const char *actions, *message;
} bad_actions;

static void refuses(void (*make)(fixture *), const bad_actions *cases, size_t count)
{
    fixture f;
    make(&f);
    good(&f);
    for (size_t i = 0; i < count; i++) {
        char message[160];
        actions(&f, 0, 0, cases[i].actions);
        snprintf(message, sizeof message, "stage dp 0 pp 0: %s", cases[i].message);
        bad(&f, message);
    }
    teardown(&f);
}

TEST(refuses_bad_actions)
{
    static const bad_actions cases[] = {
        {"F0 F1 B0", "B1 is missing"},
        {"F0 B0 B1 F1", "B1 comes before F1"},
        {"F0 B0", "F1 is missing"},
        {"F0 F1 F1 B0 B1", "F1 stands twice"},
        {"F0 F1 B0 B1 B1", "B1 stands twice"},
        {"F0 F1 B0 B1 I1 W1", "I1 repeats a backward: a pack has either one B, or one I and one W"},
        {"F0 F1 B0 B1 W1", "W1 repeats a backward: a pack has either one B, or one I and one W"},
        {"F0 F1 B0 I1 B1 W1", "B1 repeats a backward: a pack has either one B, or one I and one W"},
        {"F0 F1 B0 W1 I1", "W1 comes before I1"},
        {"F0 F1 B0 I1", "W1 is missing"},
        {"F0 F1 B0 I1 W1 W1", "W1 stands twice"},
        {"R0 F0 F1 B0 B1", "R0 comes before F0"},
        {"F0 F1 B0 R0 B1", "R0 comes after a backward of its slices"},
        {"F0 F1 R0 R0 B0 B1", "R0 stands twice"},
        {"F0 F1 O1 B0 B1", "B1 comes before L1"},
        {"F0 F1 L1 B0 B1", "L1 comes before O1"},
        {"O1 F0 F1 B0 B1", "O1 comes before F1"},
        {"F0 F1 O1 B0 B1 L1", "B1 comes before L1"},
        {"F0 F1 B0 B1 O1 L1", "O1 comes after a backward of its slices"},
        {"F0 F1 F2 B0 B1", "F2 names an unknown pack, there are 2 forward packs"},
        {"F0 F1 B0 B1 B2", "B2 names an unknown pack, there are 2 backward packs"},
        {"F0 F1 F0.1 B0 B1", "F0 names unknown chunk 1, a rank has 1"},
        {"", "F0 is missing"},
    };
    refuses(simple, cases, sizeof cases / sizeof cases[0]);
}

// Slices of one sample depend on each other on every rank.
TEST(refuses_bad_actions_over_slices)
{
    static const bad_actions cases[] = {
        {"F1 F0 B0 B1", "F1 comes before F0, which holds an earlier slice of a sample of it"},
        {"F0 F1 B1 B0", "B1 comes before B0, which holds a later slice of a sample of it"},
        {"F0 F1 I1 I0 W1 W0", "I1 comes before I0, which holds a later slice of a sample of it"},
        {"F0 B0 F1 B1", "B0 comes before F1 (both hold sample 0, tokens 60..99)"},
        {"F0 F1 O0 B0 B1", "B1 comes before L0 (both hold sample 0, tokens 0..59)"},
        // Part of forward pack 1 is in backward pack 0 already.
        {"F0 F1 B0 R1 B1", "R1 comes after a backward of its slices"},
    };
    refuses(sliced, cases, sizeof cases / sizeof cases[0]);
}

TEST(refuses_packs_of_other_ranks)
{
    fixture f;
    setup(&f, 2, 1, 1);
    for (int s = 0; s < 2; s++) {
        sample(&f, 40);
        pack(&f.packing.forward, s, 1);
        slice(&f.packing.forward, s, 0, 40);
    }
    actions(&f, 0, 0, "F0 F1 B0");
    actions(&f, 1, 0, "F1 B1");
    bad(&f, "stage dp 0 pp 0: ");
    sp_plan_stage(&f.plan, 0, 0)->actions[1].kind = SP_ACTION_KINDS;
    bad(&f, "stage dp 0 pp 0: unknown action kind 7");
    teardown(&f);
}

// Packs times chunks would be 2^31 entries; the actions are too few to be worth looking at.
TEST(asks_for_no_memory_that_actions_do_not_justify)
{
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 60000};
    sp_packing packing;
    fixture f = {0};
    assert_int_equal(uniform_packing(&packing, 1, 40000, NULL), SP_OK);
    sp_plan_init(&f.plan, &layout, &packing);
    bad(&f, "stage dp 0 pp 0: ");
    sp_plan_fini(&f.plan);
    sp_packing_fini(&packing);
}

TEST(collects_up_to_ten_findings)
{
    fixture f;
    simple(&f);
    actions(&f, 0, 0, "B0 W0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0");
    assert_int_equal(check(&f), SP_ERR_CONTENT);
    assert_int_equal(ERR->count, SP_ERROR_MESSAGES);
    teardown(&f);
}
