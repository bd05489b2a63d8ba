#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

#include "sim/plan/plan.h"

// A plan in words, and what is said of it.
typedef struct plan_text {
    int dp, pp, chunks;
    const char *samples;            // their tokens; NULL: no batch
    const char *forward, *backward; // packs: "0 0:0+60; 0x2 1:0+50/64" (add_packs)
    const char *actions[2];        // of each stage, pipeline ranks of a data-parallel rank together
    const char *told;              // how the first message begins; NULL: the plan is good
    const char *dropped, *delayed; // samples
} plan_text;

typedef struct fixture {
    sp_batch batch;
    int64_t ids[8], tokens[8], dropped[8], delayed[8];
    sp_packing packing;
    sp_layout layout;
    sp_plan plan;
} fixture;

static size_t read_numbers(const char *text, int64_t numbers[8])
{
    size_t count = 0;
    char *at = (char *)(text != NULL ? text : "");
    while (*at != '\0') {
        numbers[count++] = strtoll(at, &at, 10);
    }
    return count;
}

// Packs with ';' between them, each its first data-parallel rank, or RANKxCOUNT, and its slices,
// each SAMPLE:BEGIN+TOKENS, behind a '/' the tokens that are computed, where these are others.
// Wrong numbers are put in afterwards: the functions that add take none.
static void add_packs(sp_pack_list *list, const char *text)
{
    char *at = (char *)text;
    while (*at != '\0') {
        int first = (int)strtol(at, &at, 10);
        int count = *at == 'x' ? (int)strtol(at + 1, &at, 10) : 1;
        sp_pack_list_begin(list, 0, 1);
        list->packs[list->count - 1].dp_first = first;
        list->packs[list->count - 1].dp_count = count;
        while (*at == ' ') {
            sp_slice slice = {.sample = (int32_t)strtol(at + 1, &at, 10)};
            sp_pack_list_add(list, slice, false);
            slice.begin = strtoll(at + 1, &at, 10);
            slice.tokens = strtoll(at + 1, &at, 10);
            slice.computed_tokens = *at == '/' ? strtoll(at + 1, &at, 10) : slice.tokens;
            list->slices[list->slice_count - 1] = slice;
        }
        at += *at == ';';
    }
}

static void make(fixture *f, const plan_text *text)
{
    *f = (fixture){
        .layout = {
            .tp = 1, .cp = 1, .pp = text->pp, .dp = text->dp, .chunks = text->chunks, .zero = 1}};
    f->batch = (sp_batch){.ids = f->ids, .tokens = f->tokens};
    f->batch.count = read_numbers(text->samples, f->tokens);
    for (size_t i = 0; i < f->batch.count; i++) {
        f->ids[i] = 100 + (int64_t)i;
        f->batch.total_tokens += f->tokens[i];
    }
    sp_packing_init(&f->packing, text->samples != NULL ? &f->batch : NULL, text->dp);
    add_packs(&f->packing.forward, text->forward);
    add_packs(&f->packing.backward, text->backward);
    f->packing.dropped = f->dropped;
    f->packing.dropped_count = read_numbers(text->dropped, f->dropped);
    f->packing.delayed = f->delayed;
    f->packing.delayed_count = read_numbers(text->delayed, f->delayed);
    sp_plan_init(&f->plan, &f->layout, &f->packing);
    for (int i = 0; i < 2 && text->actions[i] != NULL; i++) {
        plan_add_actions(&f->plan, i / text->pp, i % text->pp, text->actions[i]);
    }
}

static void fixture_fini(fixture *f)
{
    f->packing.dropped = f->packing.delayed = NULL;
    sp_plan_fini(&f->plan);
    sp_packing_fini(&f->packing);
}

// The first message begins with `told` after "plan.json: "; NULL: there is none.
static void expect(sp_plan *plan, const char *told)
{
    sp_error_clear(ERR);
    sp_status status = sp_plan_check(plan, "plan.json", ERR);
    const char *message = ERR->count > 0 ? ERR->message[0] : "plan.json: ";
    must_hold((status == SP_OK) == (told == NULL) && strncmp(message, "plan.json: ", 11) == 0 &&
                  (told == NULL || strncmp(message + 11, told, strlen(told)) == 0),
              "%s: expected %s", message, told != NULL ? told : "none");
    assert_int_equal(status, told != NULL ? SP_ERR_CONTENT : SP_OK);
    // Without a record the answer is the same.
    assert_int_equal(sp_plan_check(plan, "plan.json", NULL), status);
}

static void expect_all(const plan_text *texts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        AUTO(fixture) f;
        make(&f, &texts[i]);
        expect(&f.plan, texts[i].told);
    }
}
#define EXPECT_ALL(texts) expect_all(texts, sizeof(texts) / sizeof *(texts))

// Two samples, one pack each, on one rank of two stages; more samples may stand behind them.
#define TWO_STAGES(samples, forward) \
    1, 2, 1, samples, forward, "",   \
    {                                \
        "F0 F1 B0 B1", "F0 B0 F1 B1" \
    }
#define TWO_PACKS "0 0:0+100; 0 1:0+101"
// One sample of 100 tokens cut in two and a whole one of 50; the backward packs are other ones.
#define SLICED(forward, backward)         \
    1, 1, 1, "100 50", forward, backward, \
    {                                     \
        "F0 F1 B0 B1", NULL               \
    }
#define FORWARD "0 0:0+60; 0 0:60+40 1:0+50"
#define BACKWARD "0 0:60+40; 0 0:0+60 1:0+50"
// Packs of each data-parallel rank and one of both.
#define MERGED(actions, others)                                \
    2, 1, 1, "70 70 70", "0 0:0+70; 1 1:0+70; 0x2 2:0+70", "", \
    {                                                          \
        actions, others                                        \
    }
// Without samples, in two chunks.
#define UNIFORM(others)                         \
    2, 1, 2, NULL, "0; 1", "",                  \
    {                                           \
        "F0.0 F0.1 I0.1 I0.0 W0.1 W0.0", others \
    }
#define NONE NULL, NULL

TEST(accepts_good_plans)
{
    static const plan_text texts[] = {
        {1,
         2,
         1,
         "10 20 30 40",
         "0 0:0+10; 0 1:0+20; 0 2:0+30; 0 3:0+40",
         "",
         {"F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"},
         NULL,
         NONE},
        {SLICED(FORWARD, BACKWARD), NULL, NONE},
        // B1 holds tokens of both forward packs, B0 of the second alone.
        {1, 1, 1, "100 50", FORWARD, BACKWARD, {"F0 O0 F1 R1 B0 L0 R0 I1 W1", NULL}, NULL, NONE},
        {MERGED("F0 F2 B0 B2", "F1 F2 B1 B2"), NULL, NONE},
        {TWO_STAGES("100 101", "0 0:0+100/128; 0 1:0+101"), NULL, NONE},
        // Several slices of a sample in a pack.
        {1, 1, 1, "90", "0 0:60+30 0:0+20 0:20+40", "", {"F0 B0", NULL}, NULL, NONE},
        {UNIFORM("F1.0 F1.1 O1.0 B1.1 L1.0 R1.0 B1.0"), NULL, NONE},
        {2, 2, 1, "", "", "", {NULL, NULL}, NULL, NONE}, // nothing
        {TWO_STAGES("100 101 5 6", TWO_PACKS), NULL, "2", "3"},
    };
    EXPECT_ALL(texts);
}

TEST(refuses_bad_packs)
{
    static const plan_text texts[] = {
        // Samples and ranks that are not there.
        {TWO_STAGES("100 101", "0 0:0+100; 0 2:0+101"), "forward_packs[1]: ", NONE},
        {TWO_STAGES("100 101", "0 0:0+100; 0 -1:0+101"), "forward_packs[1]: ", NONE},
        {TWO_STAGES("100 101", "0 0:0+100; 1 1:0+101"), "forward_packs[1].dp: ", NONE},
        {TWO_STAGES("100 101", "0 0:0+100; 0x0 1:0+101"), "forward_packs[1].dp: ", NONE},
        {TWO_STAGES("100 101", "0 0:0+100; 0x2147483647 1:0+101"), "", NONE},
        {TWO_STAGES(NULL, TWO_PACKS), "forward_packs[0]: ", NONE},
        // Slices outside of the sample.
        {TWO_STAGES("100 101", "0 0:0+101/100; 0 1:0+101"), "forward_packs[0]: slice 0 (sample 0",
         NONE},
        {TWO_STAGES("100 101", "0 0:9223372036854775807+9223372036854775807/100; 0 1:0+101"), "",
         NONE},
        {TWO_STAGES("100 101", "0 0:0+0/100; 0 1:0+101"), "forward_packs[0]: slice 0 (sample 0",
         NONE},
        {TWO_STAGES("100 101", "0 0:0+100/99; 0 1:0+101"), "forward_packs[0]: slice 0 (sample 0",
         NONE},
        // Gaps.
        {SLICED("0 0:10+50/60; 0 0:60+40 1:0+50", BACKWARD),
         "samples[0]: tokens 0..9 are in none of the forward_packs", NONE},
        {SLICED("0 0:0+50/60; 0 0:60+40 1:0+50", BACKWARD),
         "samples[0]: tokens 50..59 are in none of the forward_packs", NONE},
        {SLICED(FORWARD, "0 0:60+40; 0 0:0+60 1:0+49/50"),
         "samples[1]: tokens 49..49 are in none of the backward_packs", NONE},
        {1,
         1,
         1,
         "100 50 7",
         FORWARD,
         BACKWARD,
         {"F0 F1 B0 B1", NULL},
         "samples[2]: tokens 0..6 are in none of the forward_packs",
         NONE},
        // Overlaps.
        {SLICED("0 0:0+61; 0 0:60+40 1:0+50", BACKWARD), "forward_packs[1]: slice 0 (sample 0",
         NONE},
        {SLICED(FORWARD, BACKWARD " 1:0+50"), "backward_packs[1]: slice 2 (sample 1", NONE},
        // Other slices backward.
        {SLICED(FORWARD, "0 0:59+41; 0 0:0+59/60 1:0+50"), "backward_packs[1]: slice 0 (sample 0",
         NONE},
        {SLICED(FORWARD, "0 0:60+40; 0 0:0+60 1:0+50/64"), "backward_packs[1]: slice 1 (sample 1",
         NONE},
        // Other ranks backward.
        {2,
         1,
         1,
         "30",
         "0x2 0:0+30",
         "1 0:0+30",
         {NULL, NULL},
         "backward_packs[0]: slice 0 (sample 0",
         NONE},
        // Packs out of order: without backward packs of its own a sample cannot be in several.
        {1,
         1,
         1,
         "100",
         "0 0:60+40; 0 0:0+60",
         "",
         {NULL, NULL},
         "forward_packs[0]: slice 0 (sample 0",
         NONE},
        {1,
         1,
         1,
         "100",
         "0 0:0+60; 0 0:60+40",
         "",
         {NULL, NULL},
         "backward_packs[1]: slice 0 (sample 0",
         NONE},
        // An empty pack beside other backward packs.
        {SLICED(FORWARD, BACKWARD "; 0"), "backward_packs[2]: holds no slice", NONE},
        // Samples that are left out.
        {TWO_STAGES("100 101 5 6", TWO_PACKS),
         "dropped[1]: sample 2 stands twice in dropped and delayed", "2 2", "3"},
        {TWO_STAGES("100 101 5 6", TWO_PACKS),
         "delayed[0]: sample 2 stands twice in dropped and delayed", "2", "2"},
        {TWO_STAGES("100 101 5 6", TWO_PACKS), "delayed[0]: sample 4, but there are 4 samples", "2",
         "4"},
        {TWO_STAGES("100 101 5 6", TWO_PACKS), "delayed[0]: sample -1, but there are 4 samples",
         "2", "-1"},
        {TWO_STAGES("100 101 5 6", TWO_PACKS " 2:0+5"), "forward_packs[1]: slice 1 (sample 2", "2",
         "3"},
        {TWO_STAGES("100 101 5 6", TWO_PACKS " 3:0+5"), "forward_packs[1]: slice 1 (sample 3", "2",
         "3"},
    };
    EXPECT_ALL(texts);
}

TEST(refuses_actions_of_other_ranks_and_chunks)
{
    static const plan_text texts[] = {
        {MERGED("F0 F2 B0 B2", "F1 B1"), "stage dp 1 pp 0: F2 is missing", NONE},
        {UNIFORM("F1.0 F1.1 B1.1"), "stage dp 1 pp 0: B1.0 is missing", NONE},
        {UNIFORM("F1.0 F1.1 B1.0 B1.2"),
         "stage dp 1 pp 0: B1.2 names unknown chunk 2, a rank has 2", NONE},
        {2,
         1,
         1,
         "40 40",
         "0 0:0+40; 1 1:0+40",
         "",
         {"F0 F1 B0", "F1 B1"},
         "stage dp 0 pp 0: ",
         NONE},
    };
    EXPECT_ALL(texts);
    AUTO(fixture) f;
    make(&f, &texts[3]);
    sp_plan_stage(&f.plan, 0, 0)->actions[1].kind = SP_ACTION_KINDS;
    expect(&f.plan, "stage dp 0 pp 0: unknown action kind 7");
}

typedef struct bad_actions {
    const char *actions, *message;
} bad_actions;

// The first stage's actions are others.
static void refuses(plan_text text, const bad_actions *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char message[160];
        snprintf(message, sizeof message, "stage dp 0 pp 0: %s", cases[i].message);
        text.actions[0] = cases[i].actions;
        text.told = message;
        expect_all(&text, 1);
    }
}

TEST(refuses_bad_actions)
{
    static const plan_text two_stages = {TWO_STAGES("100 101", TWO_PACKS), NULL, NONE};
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
    expect_all(&two_stages, 1);
    refuses(two_stages, cases, sizeof cases / sizeof cases[0]);
}

// Slices of one sample depend on each other on every rank.
TEST(refuses_bad_actions_over_slices)
{
    static const plan_text sliced = {SLICED(FORWARD, BACKWARD), NULL, NONE};
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

// Packs times chunks would be 2^31 entries; the actions are too few to be worth looking at.
TEST(asks_for_no_memory_that_actions_do_not_justify)
{
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 60000};
    AUTO(sp_packing) packing;
    AUTO(sp_plan) plan;
    uniform_packing(&packing, 1, 40000);
    sp_plan_init(&plan, &layout, &packing);
    expect(&plan, "stage dp 0 pp 0: ");
}

TEST(collects_up_to_ten_findings)
{
    static const plan_text text = {TWO_STAGES("100 101", TWO_PACKS), NULL, NONE};
    AUTO(fixture) f;
    make(&f, &text);
    sp_plan_stage(&f.plan, 0, 0)->count = 0;
    plan_add_actions(&f.plan, 0, 0, "B0 W0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0 F0");
    must_fail_with(sp_plan_check(&f.plan, "plan.json", ERR), SP_ERR_CONTENT, "");
    assert_int_equal(ERR->count, SP_ERROR_MESSAGES);
}
