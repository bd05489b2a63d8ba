#include "tests/support/test_main.h"

#include "sim/base/json.h"
#include "sim/plan/plan_json.h"
#include "tests/support/random_plan.h"

static const sp_plan_predictions unknown = {.lower_bound_ms = -1, .predicted_ms = -1};

// The file of two ranks that the example in the documentation stands for: slices, a pack merged
// over both ranks, padding, other backward packs, two chunks.
static const char example[] =
    "{\"schema\": \"slimpack/plan/1\", \"scenario\": {\"seed\": 7, \"x\": 0.1}, \"batches\": [\n"
    "{\"samples\": [{\"id\": 40, \"tokens\": 100}, {\"id\": 41, \"tokens\": 30},"
    " {\"id\": 42, \"tokens\": 9}],\n"
    "\"forward_packs\": [\n"
    " {\"dp\": [0, 1], \"slices\": [{\"sample\": 0, \"begin\": 0, \"tokens\": 60, \"zone\": [1, "
    "1]}]},\n"
    " {\"dp\": [0, 1], \"slices\": [{\"sample\": 0, \"begin\": 60, \"tokens\": 40,"
    " \"computed\": 64, \"zone\": [1, 1]}]},\n"
    " {\"dp\": [1], \"gathers\": true, \"slices\": [{\"sample\": 1, \"begin\": 0, \"tokens\": "
    "30}]}],\n"
    "\"backward_packs\": [\n"
    " {\"dp\": [1], \"slices\": [{\"sample\": 1, \"begin\": 0, \"tokens\": 30}]},\n"
    " {\"dp\": [0, 1], \"slices\": [{\"sample\": 0, \"begin\": 60, \"tokens\": 40,"
    " \"computed\": 64, \"zone\": [1, 1]}]},\n"
    " {\"dp\": [0, 1], \"slices\": [{\"sample\": 0, \"begin\": 0, \"tokens\": 60, \"zone\": [1, "
    "1]}]}],\n"
    "\"stages\": [\n"
    " {\"dp\": 0, \"pp\": 0, \"actions\": [\"F0.0\", \"F1.0\", \"F0.1\", \"F1.1\", \"R1.1\","
    " \"B1.1\", \"B2.1\", \"B1.0\", \"B2.0\"]},\n"
    " {\"dp\": 1, \"pp\": 0, \"actions\": [\"F0.0\", \"F1.0\", \"F0.1\", \"F1.1\", \"F2.0\","
    " \"F2.1\", \"O2.0\", \"B0.1\", \"L2.0\", \"I0.0\", \"W0.0\", \"B1.1\", \"B2.1\", \"B1.0\","
    " \"B2.0\"]}],\n"
    "\"dropped\": [42], \"delayed\": [], \"lower_bound_ms\": 1.5, \"predicted_ms\": 0.1}\n"
    "]}\n";

static const sp_layout example_layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 2, .chunks = 2};

static json_t *parse(const char *text)
{
    json_t *root = NULL;
    must_succeed(sp_json_read_text(text, strlen(text), "plan.json", &root, ERR));
    return root;
}

// Writes `count` plans; the text is the caller's.
static char *write(const json_t *scenario, const sp_plan *plans, int count,
                   sp_plan_predictions predictions)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    assert_int_equal(sp_plan_json_begin(file, scenario, NULL), SP_OK);
    for (int i = 0; i < count; i++) {
        assert_int_equal(sp_plan_json_batch(file, i, &plans[i], predictions, NULL), SP_OK);
    }
    assert_int_equal(sp_plan_json_end(file, NULL, NULL, NULL), SP_OK);
    assert_int_equal(fclose(file), 0);
    return text;
}

static void read_good(const json_t *root, const sp_layout *layout, sp_plan_file *file)
{
    must_succeed(sp_plan_json_read(root, "plan.json", layout, file, ERR));
}

TEST(reads_every_part)
{
    json_auto_t *root = parse(example);
    AUTO(sp_plan_file) file;
    assert_true(sp_plan_json_is_plan(root));
    read_good(root, &example_layout, &file);
    assert_int_equal(file.count, 1);
    assert_int_equal(json_integer_value(json_object_get(file.scenario, "seed")), 7);

    assert_int_equal(file.batches[0].count, 3);
    assert_int_equal(file.batches[0].ids[1], 41);
    assert_int_equal(file.batches[0].tokens[0], 100);
    assert_int_equal(file.batches[0].total_tokens, 139);

    const sp_packing *packing = &file.packings[0];
    assert_true(packing->batch == &file.batches[0]);
    assert_int_equal(packing->dp, 2);
    assert_int_equal(packing->forward.count, 3);
    assert_int_equal(packing->backward.count, 3);
    const sp_pack *pack = &packing->forward.packs[1];
    assert_int_equal(pack->dp_first, 0);
    assert_int_equal(pack->dp_count, 2);
    assert_int_equal(pack->tokens, 40);
    assert_int_equal(pack->computed, 64);
    assert_int_equal(pack->pairs2, 124 * 124 - 60 * 60);
    assert_int_equal(pack->kv_tokens, 0);
    assert_int_equal(packing->forward.packs[0].kv_tokens, 60);
    assert_int_equal(packing->forward.packs[2].dp_first, 1);
    assert_int_equal(packing->forward.slices[1].begin, 60);
    assert_int_equal(packing->dropped_count, 1);
    assert_int_equal(packing->dropped[0], 2);
    assert_int_equal(packing->delayed_count, 0);

    const sp_stage_plan *stage = sp_plan_stage(&file.plans[0], 1, 0);
    assert_int_equal(stage->count, 15);
    char name[32];
    sp_action_name(stage->actions[8], 2, name);
    assert_string_equal(name, "L2.0");
}

// The text above was written by hand from the format.
TEST(writes_the_documented_form)
{
    json_auto_t *root = parse(example);
    AUTO(sp_plan_file) file;
    read_good(root, &example_layout, &file);
    AUTO_FREE char *text = write(file.scenario, file.plans, 1,
                                 (sp_plan_predictions){.lower_bound_ms = 1.5, .predicted_ms = 0.1});
    assert_string_equal(text, example);
}

TEST(leaves_out_what_is_unknown)
{
    json_auto_t *root = parse(example);
    AUTO(sp_plan_file) file;
    read_good(root, &example_layout, &file);
    AUTO_FREE char *text = write(file.scenario, file.plans, 1, unknown);
    assert_null(strstr(text, "lower_bound_ms"));
    assert_null(strstr(text, "predicted_ms"));
    free(text);
    // A third needs 17 digits to come back as the same number.
    text = write(file.scenario, file.plans, 1,
                 (sp_plan_predictions){.lower_bound_ms = -1, .predicted_ms = 1.0 / 3});
    json_auto_t *again = parse(text);
    json_t *batch = json_array_get(json_object_get(again, "batches"), 0);
    assert_true(json_real_value(json_object_get(batch, "predicted_ms")) == 1.0 / 3);
}

static void same_slices(const sp_pack_list *a, const sp_pack_list *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->slice_count, b->slice_count);
    for (size_t i = 0; i < a->slice_count; i++) {
        assert_int_equal(a->slices[i].sample, b->slices[i].sample);
        assert_int_equal(a->slices[i].begin, b->slices[i].begin);
        assert_int_equal(a->slices[i].tokens, b->slices[i].tokens);
        assert_int_equal(a->slices[i].computed_tokens, b->slices[i].computed_tokens);
    }
    for (size_t i = 0; i < a->count; i++) {
        assert_int_equal(a->packs[i].dp_first, b->packs[i].dp_first);
        assert_int_equal(a->packs[i].dp_count, b->packs[i].dp_count);
        assert_int_equal(a->packs[i].first_slice, b->packs[i].first_slice);
        assert_int_equal(a->packs[i].slice_count, b->packs[i].slice_count);
        assert_int_equal(a->packs[i].pairs2, b->packs[i].pairs2);
        assert_int_equal(a->packs[i].full_pairs, b->packs[i].full_pairs);
        assert_int_equal(a->packs[i].kv_tokens, b->packs[i].kv_tokens);
    }
}

static void same_plans(const sp_plan *a, const sp_plan *b)
{
    same_slices(&a->packing->forward, &b->packing->forward);
    same_slices(sp_packing_backward(a->packing), sp_packing_backward(b->packing));
    assert_int_equal(a->packing->batch == NULL, b->packing->batch == NULL);
    for (int d = 0; d < a->layout.dp; d++) {
        for (int p = 0; p < a->layout.pp; p++) {
            const sp_stage_plan *x = sp_plan_stage(a, d, p);
            const sp_stage_plan *y = sp_plan_stage(b, d, p);
            assert_int_equal(x->count, y->count);
            for (size_t i = 0; i < x->count; i++) {
                assert_int_equal(x->actions[i].kind, y->actions[i].kind);
                assert_int_equal(x->actions[i].pack, y->actions[i].pack);
                assert_int_equal(x->actions[i].chunk, y->actions[i].chunk);
            }
        }
    }
}

TEST_ROUNDS(random_plans_survive_the_round_trip, 31, 500)
{
    json_auto_t *scenario = json_pack("{s:s, s:f, s:[i, b]}", "model", "\"quoted\" \xc3\xbc",
                                      "third", 1.0 / 3, "list", 5, 1);
    assert_non_null(scenario);
    AUTO(random_plan) r;
    random_plan_make(prng, 3, 2, &r);
    sp_plan plans[2] = {r.plan, r.plan};
    AUTO_FREE char *text = write(scenario, plans, 1 + round % 2, unknown);
    json_auto_t *root = parse(text);
    AUTO(sp_plan_file) file;
    read_good(root, &r.layout, &file);
    assert_int_equal(file.count, 1 + round % 2);
    assert_true(json_equal(file.scenario, scenario));
    same_plans(&file.plans[file.count - 1], &r.plan);
    AUTO_FREE char *again = write(file.scenario, file.plans, file.count, unknown);
    assert_string_equal(again, text);
}

TEST(equal_backward_packs_are_kept_as_none)
{
    static const char text[] =
        "{\"schema\": \"slimpack/plan/1\", \"scenario\": {}, \"batches\": [{\"samples\": [],"
        " \"forward_packs\": [{\"dp\": [0], \"slices\": []}],"
        " \"backward_packs\": [{\"dp\": [0], \"slices\": []}],"
        " \"stages\": [{\"dp\": 0, \"pp\": 0, \"actions\": [\"F0\", \"B0\"]}],"
        " \"dropped\": [], \"delayed\": []}]}";
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    json_auto_t *root = parse(text);
    AUTO(sp_plan_file) file;
    read_good(root, &layout, &file);
    assert_int_equal(file.packings[0].forward.count, 1);
    assert_int_equal(file.packings[0].backward.count, 0);
    assert_null(file.packings[0].batch);
}

// Two samples of one id, from a list that was started again: the one without slices is left out,
// and stands so in the file.
TEST(left_out_by_id)
{
    static const char text[] =
        "{\"schema\": \"slimpack/plan/1\", \"scenario\": {}, \"batches\": [\n"
        "{\"samples\": [{\"id\": 7, \"tokens\": 3}, {\"id\": 9, \"tokens\": 3},"
        " {\"id\": 7, \"tokens\": 3}, {\"id\": 8, \"tokens\": 3}],\n"
        "\"forward_packs\": [\n"
        " {\"dp\": [0], \"slices\": [{\"sample\": 0, \"begin\": 0, \"tokens\": 3}]}],\n"
        "\"backward_packs\": [\n"
        " {\"dp\": [0], \"slices\": [{\"sample\": 0, \"begin\": 0, \"tokens\": 3}]}],\n"
        "\"stages\": [\n {\"dp\": 0, \"pp\": 0, \"actions\": [\"F0\", \"B0\"]}],\n"
        "\"dropped\": [8], \"delayed\": [9, 7]}\n]}\n";
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    json_auto_t *root = parse(text);
    AUTO(sp_plan_file) file;
    read_good(root, &layout, &file);
    const sp_packing *packing = &file.packings[0];
    assert_int_equal(packing->dropped_count, 1);
    assert_int_equal(packing->dropped[0], 3);
    assert_int_equal(packing->delayed_count, 2);
    assert_int_equal(packing->delayed[0], 1);
    assert_int_equal(packing->delayed[1], 2);
    AUTO_FREE char *again = write(file.scenario, file.plans, 1, unknown);
    assert_string_equal(again, text);
}

TEST(tells_plans_from_other_documents)
{
    const char *others[] = {"{}", "[]", "3", "{\"schema\": 3}",
                            "{\"schema\": \"slimpack/scenario/1\"}"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        json_auto_t *root = parse(others[i]);
        assert_false(sp_plan_json_is_plan(root));
        sp_plan_file file;
        assert_int_equal(sp_plan_json_read(root, "x", &example_layout, &file, NULL),
                         SP_ERR_CONTENT);
        assert_int_equal(file.count, 0);
    }
    assert_false(sp_plan_json_is_plan(NULL));
}

// The example with its first `find` replaced is refused, and the first message names `place`.
typedef struct bad_edit {
    const char *find, *replace, *place;
} bad_edit;

static const bad_edit edits[] = {
    {"slimpack/plan/1", "slimpack/plan/2", "schema"},
    {"{\"seed\": 7, \"x\": 0.1}", "[]", "scenario"},
    {"\"scenario\"", "\"scenaro\"", "key 'scenario'"},
    {"\"batches\": [\n", "\"batches\": [3, \n", "batches[0]"},
    {"\"samples\"", "\"sample\"", "batches[0]"},
    {"\"delayed\": []", "\"delayed\": [], \"delay\": 0", "batches[0]"},
    {"\"delayed\": []", "\"delayed\": {}", "batches[0].delayed"},
    {"\"delayed\": []", "\"delayed\": [-1]", "batches[0].delayed[0]"},
    {"\"dropped\": [42]", "\"dropped\": [2]", "batches[0].dropped[0]"},
    {"\"dropped\": [42]", "\"dropped\": [\"42\"]", "batches[0].dropped[0]"},
    {"\"dropped\": [42]", "\"dropped\": [42, 42]", "batches[0].dropped[1]"},
    {"\"dropped\": [42]", "\"dropped\": []", "batches[0].samples[2]"},
    {"\"lower_bound_ms\": 1.5", "\"lower_bound_ms\": -1", "batches[0].lower_bound_ms"},
    {"\"predicted_ms\": 0.1", "\"predicted_ms\": \"soon\"", "batches[0].predicted_ms"},
    {"\"delayed\": []", "\"delayed\": [], \"cut_tokens\": 140", "batches[0].cut_tokens"},
    {"\"delayed\": []", "\"delayed\": [], \"documents\": 140", "batches[0].documents"},
    {"0.1}\n]", "0.1}\n], \"left_over\": {\"samples\": 4, \"tokens\": 3}", "left_over.samples"},
    {"0.1}\n]",
     "0.1}\n], \"over_length\": {\"dropped\": 0, \"truncated\": 1, \"lost_tokens\": 9,"
     " \"source_tokens\": 8}",
     "over_length.lost_tokens"},
    {"0.1}\n]",
     "0.1}\n], \"over_length\": {\"dropped\": 5, \"truncated\": 5, \"lost_tokens\": 9,"
     " \"source_tokens\": 90}",
     "over_length.dropped"},
    {"\"id\": 40", "\"id\": -40", "batches[0].samples[0].id"},
    {"\"tokens\": 100", "\"tokens\": 0", "batches[0].samples[0].tokens"},
    {"\"tokens\": 100", "\"tokens\": 1e300", "batches[0].samples[0].tokens"},
    {"\"tokens\": 100", "\"tokens\": 2147483648", "batches[0].samples[0].tokens"},
    {"\"tokens\": 100", "\"tokens\": null", "batches[0].samples[0]"},
    {"{\"id\": 40, \"tokens\": 100}", "7", "batches[0].samples[0]"},
    {"\"dp\": [1]", "\"dp\": [2]", "batches[0].forward_packs[2].dp"},
    {"\"dp\": [1]", "\"dp\": []", "batches[0].forward_packs[2].dp"},
    {"\"dp\": [0, 1]", "\"dp\": [1, 0]", "batches[0].forward_packs[0].dp"},
    {"\"dp\": [0, 1]", "\"dp\": [0, 0]", "batches[0].forward_packs[0].dp"},
    {"\"dp\": [0, 1]", "\"dp\": [0.0, 1]", "batches[0].forward_packs[0].dp"},
    {"\"dp\": [1]", "\"dp\": [-9223372036854775808]", "batches[0].forward_packs[2].dp"},
    {"\"dp\": [1]", "\"dp\": 1", "batches[0].forward_packs[2].dp"},
    {"\"sample\": 1", "\"sample\": 3", "batches[0].forward_packs[2].slices[0].sample"},
    {"\"sample\": 1", "\"sampel\": 1", "batches[0].forward_packs[2].slices[0]"},
    {"\"begin\": 60", "\"begin\": -60", "batches[0].forward_packs[1].slices[0].begin"},
    {"\"begin\": 60", "\"begin\": 61", "batches[0].forward_packs[1]"},
    {"\"computed\": 64", "\"computed\": 39", "batches[0].forward_packs[1].slices[0].computed"},
    {"\"computed\": 64", "\"computed\": 65", "batches[0].backward_packs[1]"},
    {"\"zone\": [1, 1]", "\"zone\": [1, 2]", "batches[0].forward_packs[0].slices[0].zone"},
    {"\"zone\": [1, 1]", "\"zone\": [true, 1]", "batches[0].forward_packs[0].slices[0].zone"},
    {"\"zone\": [1, 1]", "\"zone\": [0, 1]", "batches[0].forward_packs[1]"},
    {"{\"sample\": 1, \"begin\": 0, \"tokens\": 30}",
     "{\"sample\": 1, \"begin\": 0, \"tokens\": 30, \"zone\": [0, 2]}",
     "batches[0].forward_packs[2]"},
    {"{\"dp\": 0, \"pp\": 0", "{\"dp\": 2, \"pp\": 0", "batches[0].stages[0].dp"},
    {"{\"dp\": 0, \"pp\": 0", "{\"dp\": 0, \"pp\": 1", "batches[0].stages[0].pp"},
    {"{\"dp\": 0, \"pp\": 0", "{\"dp\": 1, \"pp\": 0", "batches[0].stages[1]"},
    {"\"F2.1\"", "\"X2.1\"", "batches[0].stages[1].actions[5]"},
    {"\"F2.1\"", "\"F3.1\"", "batches[0]"},
    {"\"F2.1\"", "\"F2.2\"", "batches[0]"},
    {"\"F2.1\", ", "", "batches[0]"},
};

static char *edited(const bad_edit *edit)
{
    const char *at = strstr(example, edit->find);
    assert_non_null(at);
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    fprintf(file, "%.*s%s%s", (int)(at - example), example, edit->replace, at + strlen(edit->find));
    fclose(file);
    return text;
}

TEST(errors_name_the_place)
{
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        AUTO_FREE char *text = edited(&edits[i]);
        json_auto_t *root = parse(text);
        sp_plan_file file;
        must_fail_with(sp_plan_json_read(root, "plan.json", &example_layout, &file, ERR),
                       SP_ERR_CONTENT, "");
        assert_memory_equal(ERR->message[0], "plan.json: ", 11);
        assert_memory_equal(ERR->message[0] + 11, edits[i].place, strlen(edits[i].place));
        assert_null(file.plans);
        sp_plan_file_fini(&file);
        assert_int_equal(sp_plan_json_read(root, "plan.json", &example_layout, &file, NULL),
                         SP_ERR_CONTENT);
    }
}

TEST(refuses_missing_parts)
{
    static const bad_edit cases[] = {
        {"backward_packs", "[]", "batches[0].backward_packs: "},
        {"forward_packs", "[]", "batches[0].samples[0]: "},
        {"stages", "[]", "batches[0].stages: "},
        {"samples", "[]", "batches[0].forward_packs[0].slices[0].sample: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_auto_t *root = parse(example);
        json_t *batch = json_array_get(json_object_get(root, "batches"), 0);
        assert_int_equal(json_object_set_new(batch, cases[i].find, json_array()), 0);
        assert_int_equal(json_object_set_new(batch, "dropped", json_array()), 0);
        sp_plan_file file;
        must_fail_with(sp_plan_json_read(root, "p", &example_layout, &file, ERR), SP_ERR_CONTENT,
                       "");
        assert_memory_equal(ERR->message[0] + 3, cases[i].place, strlen(cases[i].place));
    }
}

TEST(refuses_malformed_actions)
{
    const char *good[] = {"F2.1"};
    const char *bad[] = {"",         "F",
                         "2.1",      "F2",
                         "F2.",      "F.1",
                         "F-2.1",    "F+2.1",
                         "F 2.1",    "F2.1 ",
                         "F02.1",    "F2.01",
                         "F2.1.1",   "f2.1",
                         "FF2.1",    "F2,1",
                         "F2.x",     "F2.-1",
                         "F0x2.1",   "F2147483648.1",
                         "F2.65536", "F99999999999999999999999999.1"};
    for (size_t i = 0; i < sizeof good / sizeof good[0] + sizeof bad / sizeof bad[0]; i++) {
        const char *action = i == 0 ? good[0] : bad[i - 1];
        json_auto_t *root = parse(example);
        json_t *batch = json_array_get(json_object_get(root, "batches"), 0);
        json_t *stage = json_array_get(json_object_get(batch, "stages"), 1);
        json_array_set_new(json_object_get(stage, "actions"), 5, json_string(action));
        AUTO(sp_plan_file) file;
        sp_error_clear(ERR);
        sp_status status = sp_plan_json_read(root, "p", &example_layout, &file, ERR);
        assert_int_equal(status, i == 0 ? SP_OK : SP_ERR_CONTENT);
        if (i > 0) {
            assert_non_null(strstr(ERR->message[0], "p: batches[0].stages[1].actions[5]: "));
        }
    }
}

TEST(write_failures_are_reported)
{
    json_auto_t *root = parse(example);
    AUTO(sp_plan_file) plan;
    read_good(root, &example_layout, &plan);
    FILE *file = fopen("/dev/null", "r");
    assert_non_null(file);
    assert_int_equal(sp_plan_json_begin(file, plan.scenario, NULL), SP_ERR_IO);
    assert_int_equal(sp_plan_json_batch(file, 0, &plan.plans[0], unknown, NULL), SP_ERR_IO);
    assert_int_equal(sp_plan_json_end(file, NULL, NULL, NULL), SP_ERR_IO);
    fclose(file);
}
