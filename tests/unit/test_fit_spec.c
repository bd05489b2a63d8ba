// Reading of slimpack/fit/1: what a specification says, and what is refused with which message.
#include "experiments/fit/fit.h"

#include "sim/base/json.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

#define HEAD "{'schema': 'slimpack/fit/1', 'name': 'n', 'profile': 'a100', "
#define CONSTANT "{'unit': 'us', 'least': 1, 'most': 9}"
#define BODY "'constants': {'kernel.us': " CONSTANT "}, 'tables': {'t': {}}"

static sp_status read(const char *text, fit_spec *spec, sp_error *err)
{
    sp_error_clear(err);
    return fit_spec_from_json(json_document(text), "fit.json", spec, err);
}

TEST(whole_specification)
{
    AUTO(fit_spec) spec;
    must_succeed(
        read("{'schema': 'slimpack/fit/1', 'name': 'mine', 'description': 'd', 'profile': 'a100', "
             "'start': {'host': {'layer_us': 5}, 'memory.gb_per_s': 1500}, 'constants': "
             "{'kernel.us': {'unit': 'us', 'start': 2, 'least': 1, 'most': 9, 'expect': 3, "
             "'within': 0.5}, 'memory.gb_per_s': {'least': 10, 'most': 20}}, 'tables': {'b': "
             "{'weight': 2, 'folds': 5}, 'a': {}}, 'loss_scale': 0.01, 'bootstrap': 7, 'seed': 3, "
             "'ablations': [{'name': 'x', 'set': {'host': null}, 'scenario': ['stack.a=true']}]}",
             &spec, ERR));
    assert_string_equal(spec.name, "mine");
    assert_string_equal(spec.description, "d");
    assert_string_equal(spec.profile, "a100");
    assert_int_equal(json_object_size(spec.start), 2);
    assert_int_equal(spec.constant_count, 2);
    assert_string_equal(spec.constants[0].path, "kernel.us");
    assert_true(spec.constants[0].start == 2.0 && spec.constants[0].within == 0.5);
    assert_true(spec.constants[1].start == 0.0 && spec.constants[1].within == 0.0);
    assert_int_equal(spec.table_count, 2);
    assert_int_equal(fit_spec_table(&spec, "b"), 0);
    assert_int_equal(fit_spec_table(&spec, "a"), 1);
    assert_int_equal(fit_spec_table(&spec, "c"), -1);
    assert_int_equal(spec.tables[0].folds, 5);
    assert_true(spec.tables[1].weight == 1.0);
    assert_int_equal(spec.tables[1].folds, 0);
    assert_int_equal(spec.ablation_count, 1);
    assert_string_equal(spec.ablations[0].overrides[0], "stack.a=true");
    assert_true(spec.loss_scale == 0.01);
    assert_int_equal(spec.bootstrap, 7);
    assert_int_equal(spec.seed, 3);
}

TEST(folds_of_groups)
{
    AUTO(fit_spec) spec;
    must_succeed(read(HEAD
                      "'constants': {'kernel.us': " CONSTANT
                      "}, 'tables': {'a': {'folds': {'group': ['model', 'gpus']}, 'errors_by': "
                      "['tp', 'lengths']},'b': {'folds': {'group': ['model'], 'count': 3}}}}",
                      &spec, ERR));
    assert_int_equal(spec.tables[0].group_count, 2);
    assert_string_equal(spec.tables[0].group[1], "gpus");
    assert_int_equal(spec.tables[0].folds, 0);
    assert_int_equal(spec.tables[0].errors_by_count, 2);
    assert_int_equal(spec.tables[0].errors_by[0], SP_STEP_TP);
    assert_int_equal(spec.tables[0].errors_by[1], SP_STEP_FIGURES + SP_STEP_LENGTHS);
    assert_int_equal(spec.tables[1].group_count, 1);
    assert_int_equal(spec.tables[1].folds, 3);
    assert_int_equal(spec.tables[1].errors_by_count, 0);
}

// The place of what is wrong comes first in its message.
TEST(refused)
{
#define WITH(constants, tables) HEAD "'constants': " constants ", 'tables': " tables "}"
#define TABLE(settings) WITH("{'a': " CONSTANT "}", "{'t': {" settings "}}")
    static const char *const cases[][2] = {
        {"{'name': 'n', 'profile': 'a100', " BODY "}", "key 'schema'"},
        {"{'schema': 'slimpack/fit/2', 'name': 'n', 'profile': 'a100', " BODY "}", "schema: "},
        {"{'schema': 'slimpack/fit/1', 'name': '', 'profile': 'a100', " BODY "}", "name: "},
        {HEAD BODY ", 'ablation': []}", "unknown key 'ablation'"},
        {WITH("{}", "{'t': {}}"), "constants: "},
        {WITH("{'a..b': " CONSTANT "}", "{'t': {}}"), "constants.a..b: "},
        {WITH("{'a.b': " CONSTANT ", 'a': " CONSTANT "}", "{'t': {}}"), "constants.a: overlaps"},
        {WITH("{'a': {'least': 5, 'most': 5}}", "{'t': {}}"), "constants.a.most: "},
        {WITH("{'a': {'start': 4, 'least': 5, 'most': 6}}", "{'t': {}}"), "constants.a.start: "},
        {WITH("{'a': {'least': 5, 'most': 6, 'expect': 5.5}}", "{'t': {}}"),
         "constants.a.within: "},
        {WITH("{'a': " CONSTANT "}", "{}"), "tables: "},
        {TABLE("'folds': 1"), "tables.t.folds: "},
        {TABLE("'folds': {'count': 2}"), "tables.t.folds: key 'group'"},
        {TABLE("'folds': {'group': ['x', 'x']}"), "tables.t.folds.group: "},
        {TABLE("'folds': {'group': ['x'], 'count': 1}"), "tables.t.folds.count: "},
        {TABLE("'folds': {'group': ['x'], 'counts': 2}"), "tables.t.folds: unknown key 'counts'"},
        {TABLE("'errors_by': ['tp', 'model']"), "tables.t.errors_by: "},
        {HEAD BODY ", 'leave_out_tables': true}", "leave_out_tables: "},
        {TABLE("'own_stack': 'x'"), "tables.t.own_stack: "},
        {HEAD BODY ", 'ablations': [{'name': 'x'}]}", "ablations[0].set: "},
        {HEAD BODY ", 'ablations': [{'name': 'x', 'scenario': ['a']}]}", "ablations[0].scenario: "},
        {HEAD BODY ", 'start': {'.a': 1}}", "start..a: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fit_spec spec;
        char place[64];
        snprintf(place, sizeof place, "fit.json: %s", cases[i][1]);
        must_fail_with(read(cases[i][0], &spec, ERR), SP_ERR_CONTENT, place);
        assert_null(spec.document);
    }
}

TEST(document_paths)
{
    json_auto_t *root = json_document("{'a': {'b': 1, 'c': [2]}, 'd': 3}");
    assert_int_equal(json_integer_value(fit_document_get(root, "a.b")), 1);
    assert_null(fit_document_get(root, "a.x"));
    assert_null(fit_document_get(root, "d.x"));
    fit_document_set(root, "a.b", json_real(1.5));
    fit_document_set(root, "x.y.z", json_integer(4));
    assert_int_equal(json_integer_value(fit_document_get(root, "x.y.z")), 4);
    fit_document_set(root, "d.e", json_integer(5));
    assert_int_equal(json_integer_value(fit_document_get(root, "d.e")), 5);
    fit_document_set(root, "a.c", NULL);
    assert_null(fit_document_get(root, "a.c"));
    fit_document_set(root, "no.such.thing", NULL);
    assert_null(fit_document_get(root, "no"));
    assert_true(sp_json_paths_overlap("a.b", "a.b") && sp_json_paths_overlap("a", "a.b"));
    assert_false(sp_json_paths_overlap("a.b", "a.bc"));
}

// What is written is read again as the same document.
TEST(document_text)
{
    json_auto_t *root =
        json_document("{'a': {'b': 0.1, 'points': [[1, 2.5], [3, 4]], 'e': {}, 'f': []}, 'gemm': "
                      "[{'n': 1}, {'n': 2}], 't': 'x\\u00e9\\n', 'z': null}");
    char text[1024] = "";
    FILE *file = tmpfile();
    assert_non_null(file);
    fit_document_write(root, file);
    rewind(file);
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    json_auto_t *again = NULL;
    assert_int_equal(sp_json_read_text(text, bytes, "f", &again, NULL), SP_OK);
    assert_true(json_equal(root, again));
    assert_non_null(strstr(text, "\n    \"points\": [[1, 2.5], [3, 4]],\n"));
}
