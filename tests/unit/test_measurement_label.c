// What a row of a table is called in reports and messages.
#include "experiments/measurements/measurements.h"
#include "sim/base/json.h"
#include "tests/support/test_main.h"

static void read(const char *csv, const char *map, sp_measurements *m)
{
    json_t *document = NULL;
    if (map != NULL) {
        must_succeed(sp_json_read_text(map, strlen(map), "t.json", &document, ERR));
    }
    must_succeed(
        sp_measurements_from_text(csv, strlen(csv), "t.csv", document, "t.json", NULL, 0, m, ERR));
}

// Columns that differ between rows, by the last part of the path that names them.
TEST(paths_are_shortened)
{
    sp_measurements m;
    read("model,cluster,parallel.tp,parallel.pp,workload.uniform,iteration_ms\n"
         "llama-13b,a100-8,8,1,2048,1\n"
         "llama-13b,a100-8,4,2,2048,1\n",
         NULL, &m);
    assert_string_equal(m.cases[0].label, "tp=8 pp=1");
    assert_string_equal(m.cases[1].label, "tp=4 pp=2");
    sp_measurements_fini(&m);
}

// A label that is cut stays UTF-8, whatever the byte at which it ends.
TEST(long_labels_end_in_dots)
{
    for (int before = 0; before < 4; before++) {
        char csv[512];
        sp_measurements m;
        int used = snprintf(csv, sizeof csv, "tp,note,s\n8,%.*s", before, "xxxx");
        for (int i = 0; i < 60; i++) {
            used += snprintf(csv + used, sizeof csv - (size_t)used, "\xe2\x82\xac");
        }
        snprintf(csv + used, sizeof csv - (size_t)used, ",1\n8,,1\n");
        read(csv,
             "{\"schema\": \"slimpack/measurements/1\", \"measured\": {\"column\": \"s\", \"is\": "
             "\"iteration_ms\"}, \"base\": {\"model\": \"llama-13b\", \"cluster\": \"a100-8\", "
             "\"workload\": {\"uniform\": 2048}}, \"columns\": {\"tp\": \"parallel.tp\", \"note\": "
             "null}, \"label\": [\"note\"]}",
             &m);
        const char *label = m.cases[0].label;
        json_t *text = json_string(label);
        assert_non_null(text);
        json_decref(text);
        assert_string_equal(label + strlen(label) - 3, "...");
        assert_true(strlen(label) > sizeof m.cases[0].label - 1 - 3);
        assert_string_equal(m.cases[1].label, "note=");
        sp_measurements_fini(&m);
    }
}

TEST(names_of_tables)
{
    static const char *const paths[][2] = {{"tables/a100.csv", "a100"},
                                           {"a100.v2.txt", "a100.v2"},
                                           {"/x.y/steps", "steps"},
                                           {".csv", ".csv"}};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char name[SP_MEASUREMENTS_NAME];
        sp_measurements_name(paths[i][0], name);
        assert_string_equal(name, paths[i][1]);
    }
}
