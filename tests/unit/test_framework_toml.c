// The TOML reader against the specification (https://toml.io/en/v1.0.0): what each document means,
// as JSON, and documents that are none.
#include "experiments/frameworks/frameworks.h"
#include "tests/support/test_main.h"

static const struct {
    const char *toml, *json;
} good[] = {
    {"", "{}"},
    {"# all\n\n  \t\n", "{}"},
    {"a = 1\nb= -17\nc =+99\nd=0", "{\"a\":1,\"b\":-17,\"c\":99,\"d\":0}"},
    {"a = 1_000\nb = 0xDEAD_beef\nc = 0o755\nd = 0b1101",
     "{\"a\":1000,\"b\":3735928559,\"c\":493,\"d\":13}"},
    {"a = 3.5\nb = -0.25\nc = 5e2\nd = 6.5E-1\ne = 1_0.5",
     "{\"a\":3.5,\"b\":-0.25,\"c\":500.0,\"d\":0.65,\"e\":10.5}"},
    {"a = inf\nb = -nan", "{\"a\":\"inf\",\"b\":\"-nan\"}"},
    {"a = true\nb = false", "{\"a\":true,\"b\":false}"},
    {"a = \"x\\ty\\u00e9\\U0001F600\\\"\"", "{\"a\":\"x\\ty\xc3\xa9\xf0\x9f\x98\x80\\\"\"}"},
    {"a = 'C:\\no'", "{\"a\":\"C:\\\\no\"}"},
    {"a = \"\"\"\none\n  two\"\"\"", "{\"a\":\"one\\n  two\"}"},
    {"a = \"\"\"x \\\n\n   y\"\"\"", "{\"a\":\"x y\"}"},
    {"a = \"\"\"\"quoted\"\"\"\"\"", "{\"a\":\"\\\"quoted\\\"\\\"\"}"},
    {"a = '''\nit's '' here'''", "{\"a\":\"it's '' here\"}"},
    {"a = 1979-05-27T07:32:00Z\nb = 1979-05-27 07:32:00.5-07:00\nc = 1979-05-27\nd = 07:32:00",
     "{\"a\":\"1979-05-27T07:32:00Z\",\"b\":\"1979-05-27 07:32:00.5-07:00\",\"c\":\"1979-05-27\","
     "\"d\":\"07:32:00\"}"},
    {"a = [1, 2,\n 3, # three\n]\nb = [[1], ['x']]\nc = []",
     "{\"a\":[1,2,3],\"b\":[[1],[\"x\"]],\"c\":[]}"},
    {"a = {x = 1, y.z = 2}\nb = {}", "{\"a\":{\"x\":1,\"y\":{\"z\":2}},\"b\":{}}"},
    {"\"a b\" = 1\n'c.d' = 2\n\"\" = 3\n1 = 4", "{\"a b\":1,\"c.d\":2,\"\":3,\"1\":4}"},
    {"a.b = 1\na.c.d = 2\na . e = 3", "{\"a\":{\"b\":1,\"c\":{\"d\":2},\"e\":3}}"},
    {"[a]\nx = 1\n[a.b]\ny = 2\n[ c . 'd' ]\nz = 3",
     "{\"a\":{\"x\":1,\"b\":{\"y\":2}},\"c\":{\"d\":{\"z\":3}}}"},
    {"[a.b]\nx = 1\n[a]\ny = 2", "{\"a\":{\"b\":{\"x\":1},\"y\":2}}"},
    {"[[p]]\nn = 1\n[[p]]\n[p.q]\nr = 2\n[[p.s]]\nt = 3\n[[p.s]]",
     "{\"p\":[{\"n\":1},{\"q\":{\"r\":2},\"s\":[{\"t\":3},{}]}]}"},
    {"a = 1\r\nb = 2\r\n", "{\"a\":1,\"b\":2}"},
    {"\xef\xbb\xbf"
     "a = 1",
     "{\"a\":1}"},
};

static const char *const bad[] = {
    "a",                       // no value
    "a =",                     //
    "= 1",                     // no key
    "a = 1 b = 2",             // two on a line
    "a = 01",                  // a zero in front
    "a = 1__0",                // two underscores
    "a = _1",                  //
    "a = 1_",                  //
    "a = .5",                  // no digit before the point
    "a = 5.",                  //
    "a = 1e",                  //
    "a = 0xg",                 //
    "a = 9223372036854775808", // beyond 64 bits
    "a = tru",                 //
    "a = \"x",                 // not closed
    "a = \"x\ny\"",            // of one line
    "a = \"\\q\"",             // no such escape
    "a = \"\\ud800\"",         // half a character
    "a = 'x",                  //
    "a = \"\"\"x",             //
    "a = \"\x01\"",            // a control character
    "a = \"\xff\"",            // no UTF-8
    "a = [1, 2",               //
    "a = [1 2]",               //
    "a = [,]",                 //
    "a = {x = 1",              //
    "a = {x = 1,}",            // 1.0 has no comma there
    "a = {x = 1\n}",           // nor a line end
    "a = 1\na = 2",            // twice
    "a = 1\na.b = 2",          // a number has no keys
    "a.b = 1\n[a]",            // closed by its dotted key
    "[a]\n[a]",                // twice
    "[a]\nb = 1\n[a.b]",       // has a value
    "a = {}\n[a.b]",           // closed
    "a = {}\na.b = 1",         //
    "a = []\n[[a]]",           // an array that is no table
    "[[a]]\n[a]",              //
    "[a]\n[[a]]",              //
    "[a",                      //
    "[]",                      //
    "[[a]",                    //
    "[a] b = 1",               //
    "a = 2021-02-30",          // no such day
    "a = 2021-13-01",          //
    "a = 25:00:00",            //
    "a = 1979-05-27T07:32",    //
    "a = \"\"\"\"\"\"\"\"\"",  // nine quotes: no more than five end a string
    "# \x01",                  //
    // what parts the names of paths within the reader
    "\"a\\u001fb\" = []\n[[a.b]]\n[\"a\\u001fb\".c]\nd = 1",
};

TEST(means_what_the_specification_says)
{
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        json_auto_t *root = NULL;
        json_auto_t *lines = NULL;
        sp_error err = {0};
        sp_status status =
            framework_parse_toml("a.toml", good[i].toml, strlen(good[i].toml), &root, &lines, &err);
        must_hold(status == SP_OK, "%s: %s", good[i].toml, err.message[0]);
        json_auto_t *expected = json_loads(good[i].json, 0, NULL);
        assert_non_null(expected);
        must_hold(json_equal(root, expected), "%s: %s", good[i].toml,
                  json_dumps(root, JSON_COMPACT));
    }
}

TEST(refuses_what_is_none)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_t *root = NULL;
        json_t *lines = NULL;
        sp_error err = {0};
        must_hold(framework_parse_toml("a.toml", bad[i], strlen(bad[i]), &root, &lines, &err) !=
                      SP_OK,
                  "%s: read as %s", bad[i], json_dumps(root, JSON_COMPACT));
        assert_non_null(strstr(err.message[0], "a.toml:"));
        assert_null(root);
        assert_null(lines);
    }
}

TEST(says_line_and_column)
{
    static const char text[] = "a = 1\n\n[b]\nc = 1 2\n";
    json_t *root = NULL;
    json_t *lines = NULL;
    sp_error err = {0};
    assert_int_not_equal(framework_parse_toml("x.toml", text, strlen(text), &root, &lines, &err),
                         SP_OK);
    assert_string_equal(err.message[0], "x.toml:4:7: expected the end of the line");
}

// Every beginning of a document is read or refused.
TEST(takes_every_beginning)
{
    static const char text[] = "a.b = [1, {x = 'y'}] # c\n[[t]]\nd = \"\"\"z\\\n \"\"\"\n[t.u]\n"
                               "v = 1979-05-27T07:32:00.1Z\nw = 0x1f\n";
    for (size_t bytes = 0; bytes <= strlen(text); bytes++) {
        framework_entries entries = {0};
        sp_error err = {0};
        sp_status status = framework_read_toml("a.toml", text, bytes, &entries, &err);
        assert_true((status == SP_OK) == (err.count == 0));
        framework_entries_free(&entries);
    }
}
