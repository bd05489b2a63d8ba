// Readers of text formats, and what all length readers share. Expected values are the files' own.
#include <unistd.h>

#include "sim/workload/length_reader.h"
#include "sim/workload/lengths.h"
#include "tests/support/test_main.h"

enum { MANY = 300000 }; // lengths of a file that does not fit into the input buffer

static sp_status read_bytes(const char *bytes, size_t n, sp_i_length_format format,
                            const char *column, sp_lengths *lengths)
{
    FILE *stream = fmemopen((void *)(uintptr_t)bytes, n, "rb");
    assert_non_null(stream);
    sp_error_clear(ERR);
    sp_status status = sp_i_lengths_read_stream(stream, format, "f", column, lengths, ERR);
    fclose(stream);
    assert_int_equal(status, ERR->status);
    return status;
}

static void expect_list(const char *text, sp_i_length_format format, const char *column,
                        const int64_t *tokens, size_t count)
{
    AUTO(sp_lengths) lengths;
    must_hold(read_bytes(text, strlen(text), format, column, &lengths) == SP_OK, "%s",
              ERR->message[0]);
    assert_int_equal(lengths.count, count);
    assert_int_equal(lengths.capacity, count);
    assert_memory_equal(lengths.tokens, tokens, count * sizeof *tokens);
}

static void expect_error(const char *text, sp_i_length_format format, const char *column,
                         sp_status status, const char *message)
{
    sp_lengths lengths;
    assert_int_equal(read_bytes(text, strlen(text), format, column, &lengths), status);
    must_hold(strncmp(ERR->message[0], message, strlen(message)) == 0, "expected %s, got %s",
              message, ERR->message[0]);
    assert_null(lengths.tokens);
    assert_int_equal(lengths.count, 0);
}

#define ARRAY "got an array: expected an array of numbers or of objects"
#define RANGE "expected a length from 1 to 2147483647, got "

TEST(text_reads_comments_blanks_and_crlf)
{
    const int64_t tokens[] = {7, 2147483647, 512, 1, 3};
    expect_list("# comment\n\n7\r\n  2147483647\t\n \n512.0\n0001\n3", SP_I_LENGTHS_TEXT, NULL,
                tokens, 5);
    expect_list("\xef\xbb\xbf"
                "7\n2147483647\n",
                SP_I_LENGTHS_TEXT, NULL, tokens, 2);
}

TEST(text_refuses_what_is_no_length)
{
    const struct {
        const char *line;
        const char *quoted;
    } bad[] = {
        {"abc", "abc"},
        {"0", "0"},
        {"-5", "-5"},
        {"1.5", "1.5"},
        {"1.", "1."},
        {".0", ".0"},
        {"NaN", "NaN"},
        {"inf", "inf"},
        {"1e3", "1e3"},
        {"2147483648", "2147483648"},
        {"99999999999999999999999999", "99999999999999999999999999"},
        {"1 2", "1 2"},
        {"\x7f\x01\xff", "\\x7f\\x01\\xff"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[128], message[256];
        snprintf(text, sizeof text, "5\n\n%s\n6\n", bad[i].line);
        snprintf(message, sizeof message, "f:3: " RANGE "\"%s\"", bad[i].quoted);
        expect_error(text, SP_I_LENGTHS_TEXT, NULL, SP_ERR_CONTENT, message);
        assert_int_equal(ERR->count, 1);
    }
}

TEST(text_collects_ten_errors)
{
    char text[4096] = "5\n";
    for (int i = 0; i < 20; i++) {
        strcat(text, "x\n6\n");
    }
    expect_error(text, SP_I_LENGTHS_TEXT, NULL, SP_ERR_CONTENT, "f:2: " RANGE "\"x\"");
    assert_int_equal(ERR->count, 10);
    assert_int_equal(ERR->dropped, 0);
    assert_string_equal(ERR->message[9],
                        "f:20: " RANGE "\"x\"; the rest is not read: are these lengths?");
}

TEST(garbage_gets_one_message)
{
    expect_error("length\nfoo\nbar\n", SP_I_LENGTHS_TEXT, NULL, SP_ERR_CONTENT,
                 "f:1: " RANGE "\"length\"");
    assert_int_equal(ERR->count, 1);
}

static void fill(char *text, size_t n, char c)
{
    memset(text, c, n);
    text[n] = '\0';
}

TEST(line_limit_is_exact)
{
    const size_t limit = SP_I_LINE_BYTES;
    AUTO_FREE char *text = sp_malloc(3 * limit);
    fill(text, limit, '0');
    text[limit - 1] = '9';
    memcpy(text + limit, "\r\n8\n", 5);
    expect_list(text, SP_I_LENGTHS_TEXT, NULL, (const int64_t[]){9, 8}, 2);
    fill(text, limit + 1, '0');
    text[limit] = '9';
    memcpy(text + limit + 1, "\n8\n", 4);
    const char *message = "f:1: the line is longer than 1048576 bytes";
    expect_error(text, SP_I_LENGTHS_TEXT, NULL, SP_ERR_CONTENT, message);
    fill(text, 2 * limit, 'x');
    expect_error(text, SP_I_LENGTHS_TEXT, NULL, SP_ERR_CONTENT, message);
    expect_error(text, SP_I_LENGTHS_JSONL, NULL, SP_ERR_CONTENT, message);
    expect_error(text, SP_I_LENGTHS_CSV, NULL, SP_ERR_CONTENT, message);
}

TEST(csv_reads_named_column)
{
    const int64_t tokens[] = {7, 8, 9};
    const char *text = "id,\"n \"\"tok\"\"\",text\r\n"
                       "1,7, \"a, b\"\r\n\r\n"
                       "2,\"8\",\"two\nlines \"\"q\"\"\"\r\n"
                       "3,9,5\" pipe";
    expect_list(text, SP_I_LENGTHS_CSV, "n \"tok\"", tokens, 3);
    expect_list("only\n7\n8\n9\n", SP_I_LENGTHS_CSV, NULL, tokens, 3);
    expect_list("input_ids,tokens\n1,7\n1,8\n1,9\n", SP_I_LENGTHS_CSV, NULL, tokens, 3);
    expect_list("a\tlength\n1\t7\n1\t8\n1\t9\n", SP_I_LENGTHS_TSV, NULL, tokens, 3);
}

// Two columns that may hold them, and a histogram, are no list of documents unless one is named.
TEST(csv_asks_for_the_column)
{
    static const char *const texts[] = {"n_tokens,tokens\n1,7\n", "length,count\n100,5\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        sp_lengths lengths;
        assert_int_equal(read_bytes(texts[i], strlen(texts[i]), SP_I_LENGTHS_CSV, NULL, &lengths),
                         SP_ERR_CONTENT);
        assert_non_null(strstr(ERR->message[0], "--column NAME"));
    }
    const int64_t tokens[] = {100, 200};
    expect_list("length,count\n100,5\n200,1\n", SP_I_LENGTHS_CSV, "length", tokens, 2);
}

TEST(csv_lists_few_of_many_columns)
{
    char text[8192] = "";
    for (int i = 0; i < 500; i++) {
        snprintf(text + strlen(text), 24, "column-%d,", i);
    }
    strcat(text, "last\n");
    sp_lengths lengths;
    assert_int_equal(read_bytes(text, strlen(text), SP_I_LENGTHS_CSV, NULL, &lengths),
                     SP_ERR_CONTENT);
    assert_non_null(strstr(ERR->message[0], "column-11, ...)"));
    assert_null(strstr(ERR->message[0], "column-12"));
}

TEST(jsonl_reads_key_and_numbers)
{
    const int64_t tokens[] = {7, 8, 9};
    // 18446744073709551615 fits into no int64_t, and is not ours to refuse.
    expect_list("{\"hash\": 18446744073709551615, \"tokens\": 7}\r\n\n"
                "{\"tokens\": 8.0, \"x\": [1, {\"tokens\": 3}]}\n"
                "{\"tokens\": 9}",
                SP_I_LENGTHS_JSONL, NULL, tokens, 3);
    expect_list("{\"a\": 1, \"b\": 7}\n{\"a\": 1, \"b\": 8}\n{\"b\": 9}\n", SP_I_LENGTHS_JSONL, "b",
                tokens, 3);
    expect_list("{\"only\": 7}\n{\"only\": 8}\n{\"only\": 9}\n", SP_I_LENGTHS_JSONL, NULL, tokens,
                3);
    expect_list("7\n8\n9\n", SP_I_LENGTHS_JSONL, NULL, tokens, 3);
    // Python's NaN in another key.
    expect_list("{\"loss\": NaN, \"length\": 7}\n{\"loss\": -Infinity, \"length\": 8}\n"
                "{\"length\": 9, \"x\": \"\\\\\", \"y\": [NaN,NaN]}\n",
                SP_I_LENGTHS_JSONL, NULL, tokens, 3);
}

// Of the ids of a document's tokens the number is its length; of an array under another key it may
// be anything.
TEST(token_ids_are_counted)
{
    const int64_t tokens[] = {3, 5, 2};
    static const char ids[] = "{\"id\": 7, \"input_ids\": [0, 1, 2]}\n"
                              "{\"input_ids\": [0, 1, 2, 3, 4]}\n{\"input_ids\": [0, 1]}\n";
    expect_list(ids, SP_I_LENGTHS_JSONL, NULL, tokens, 3);
    expect_list("[{\"token_ids\": [0, 1, 2]},\n {\"token_ids\": [0, 1, 2, 3, 4]},\n"
                " {\"token_ids\": [0, 1]}]",
                SP_I_LENGTHS_JSON, NULL, tokens, 3);
}

TEST(json_reads_objects)
{
    const int64_t tokens[] = {100, 2000, 512};
    expect_list("[\n  {\n    \"length\": 100\n  },\n  {\"length\": 2000, \"text\": \"}]\\\"{\"},\n"
                "  {\"x\": {\"length\": 1}, \"length\": 512}\n]\n",
                SP_I_LENGTHS_JSON, NULL, tokens, 3);
    expect_list("[{\"a\": 100}, {\"a\": 2000}, {\"b\": 1, \"a\": 512}]", SP_I_LENGTHS_JSON, "a",
                tokens, 3);
}

TEST(json_reads_flat_array)
{
    const int64_t tokens[] = {7, 8, 2147483647};
    expect_list(" [7,\n 8.0 , 2147483647]\n", SP_I_LENGTHS_JSON, NULL, tokens, 3);
    // JSON lines under the name .json.
    expect_list("{\"length\": 7}\n{\"length\": 8}\n", SP_I_LENGTHS_JSON, NULL, tokens, 2);
}

// Each with the place and how the message begins.
enum {
    TEXT = SP_I_LENGTHS_TEXT,
    NPY = SP_I_LENGTHS_NPY,
    MEGATRON = SP_I_LENGTHS_MEGATRON,
    CSV = SP_I_LENGTHS_CSV,
    JSONL = SP_I_LENGTHS_JSONL,
    JSON = SP_I_LENGTHS_JSON,
    CONTENT = SP_ERR_CONTENT,
    SYNTAX = SP_ERR_SYNTAX,
};
static const struct {
    int format;
    const char *text, *column;
    int status;
    const char *message;
} wrong[] = {
    {CSV, "id,length\n1,5\n", "lenght", CONTENT,
     "f:1: no column 'lenght' (did you mean 'length'?)"},
    {CSV, "id,length\n1,5\n", "zzz", CONTENT, "f:1: no column 'zzz' (there are: id, length)"},
    {CSV, "id,words\n1,5\n", NULL, CONTENT, "f:1: which column holds the lengths? (there are:"},
    {CSV, "368\n99\n", NULL, CONTENT, "f:1: expected a line of column names, got \"368"},
    {CSV, "id,length\n1,5\n1,abc\n", NULL, CONTENT, "f:3: " RANGE "\"abc\""},
    {CSV, "id,length\n1,5\n1,\n", NULL, CONTENT, "f:3: " RANGE "\"\""},
    {CSV, "id,length\n1,5\n1\n", NULL, CONTENT,
     "f:3: expected 2 fields as in the first line, got 1"},
    {CSV, "id,length\n1,5,\n", NULL, CONTENT, "f:2: expected 2 fields as in the first line, got 3"},
    {CSV, "t,length\n\"a\nb\",5\n\"a\"b,5\n", NULL, SYNTAX,
     "f:4:4: expected a delimiter or the end of the li"},
    {CSV, "t,length\n\"a,5\n", NULL, SYNTAX, "f:2:1: a quoted field does not end"},
    {CSV, "length\n", NULL, CONTENT, "f: holds no lengths"},
    {CSV, "", NULL, CONTENT, "f: is empty, holds no lengths"},
    {JSONL, "{\"tokens\": 5}\n{\"tokens\": 0}\n", NULL, CONTENT, "f:2: " RANGE "0"},
    {JSONL, "{\"tokens\": 5}\n{\"tokens\": -3}\n", NULL, CONTENT, "f:2: " RANGE "-3"},
    {JSONL, "{\"tokens\": 5}\n{\"tokens\": 1.5}\n", NULL, CONTENT, "f:2: " RANGE "1.5"},
    {JSONL, "{\"tokens\": 5}\n{\"tokens\": 2147483648}\n", NULL, CONTENT,
     "f:2: " RANGE "2147483648"},
    {JSONL, "{\"tokens\": 5}\n{\"tokens\": \"6\"}\n", NULL, CONTENT, "f:2: " RANGE "\"6\""},
    {JSONL, "{\"tokens\": 5}\n{\"tokens\": null}\n", NULL, CONTENT, "f:2: " RANGE "null"},
    {JSONL, "{\"tokens\": 5}\n{\"length\": 5}\n", NULL, CONTENT, "f:2: no key 'tokens'"},
    {JSONL, "{\"tokens\": 5}\n5\n", NULL, CONTENT, "f:2: expected an object, got 5.0"},
    {JSONL, "{\"tokens\": 5}\n", "token", CONTENT, "f:1: no key 'token' (did you mean 'tokens'?)"},
    {JSONL, "{\"a\": 5, \"b\": 6}\n", NULL, CONTENT,
     "f:1: which key holds the lengths? (there are: a,"},
    // Documents in words, with the keys that are to be counted.
    {JSONL, "{\"id\": 1, \"text\": \"a b\"}\n", NULL, CONTENT, "f:1: holds texts (text), which"},
    {JSONL, "{\"text\": \"a\"}\n", NULL, CONTENT, "f:1: holds texts (text), which"},
    {JSONL, "{\"prompt\": \"a\", \"url\": \"b c\", \"completion\": \"d\"}\n", NULL, CONTENT,
     "f:1: holds texts (prompt completion), which"},
    {JSONL, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n", NULL, CONTENT,
     "f:1: holds messages (messages), which"},
    {JSONL, "{\"body\": \"two words\"}\n", NULL, CONTENT, "f:1: holds texts (body), which"},
    {JSONL, "{\"body\": \"two words\", \"size\": 2}\n", NULL, CONTENT,
     "f:1: which key holds the lengths? (there are: body"},
    {JSON, "[{\"text\": \"a b\"}]", NULL, CONTENT, "f: holds texts (text), which"},
    {JSONL, "", NULL, CONTENT, "f: is empty, holds no lengths"},
    {JSON, "[5, 0, 6]", NULL, CONTENT, "f: [1]: " RANGE "0"},
    {JSON, "[5, -1]", NULL, CONTENT, "f: [1]: " RANGE "-1"},
    {JSON, "[5, 1.5]", NULL, CONTENT, "f: [1]: " RANGE "1.5"},
    {JSON, "[5, NaN]", NULL, CONTENT, "f: [1]: " RANGE "NaN"},
    {JSON, "[5, 1e300]", NULL, CONTENT, "f: [1]: " RANGE "1e300"},
    {JSON, "[5, \"a, b\"]", NULL, CONTENT, "f: [1]: " RANGE "\"a"},
    {JSON, "[[5, 6]]", NULL, CONTENT, "f: [0]: " ARRAY},
    {JSONL, "[5, 6]\n", NULL, CONTENT, "f:1: " ARRAY},
    {TEXT, "5\n", "x", CONTENT, "f: no column 'x' in plain text: CSV, TSV and JSON objects have"},
    {JSON, "[5]", "x", CONTENT, "f: no column 'x' in numbers without keys: CSV, TSV"},
    {JSONL, "5\n", "x", CONTENT, "f: no column 'x' in numbers without keys: CSV, TSV"},
    {NPY, "\x93NUMPY", "x", CONTENT, "f: no column 'x' in a NumPy array: CSV, TSV"},
    {MEGATRON, "MMIDIDX", "x", CONTENT, "f: no column 'x' in a Megatron-LM index: CSV, TSV"},
    {JSON, "[5,\n6", NULL, SYNTAX, "f:2:2: expected ',' or ']', got the end of the f"},
    {JSON, "[5,\n6 7]", NULL, SYNTAX, "f:2:3: expected ',' or ']', got '7'"},
    {JSON, "[5,]", NULL, SYNTAX, "f:1:4: expected a number, got ']'"},
    {JSON, "[,5]", NULL, SYNTAX, "f:1:2: expected a number, got ','"},
    {JSON, "[5", NULL, SYNTAX, "f:1:3: expected ',' or ']', got the end of the f"},
    {JSON, "[", NULL, SYNTAX, "f:1:2: expected a number, got the end of the file"},
    {JSON, "[5] x", NULL, SYNTAX, "f:1:5: expected the end of the file, got 'x'"},
    {JSON, "[]", NULL, CONTENT, "f: holds no lengths"},
    {JSONL, "{\"tokens\": 5}\n{\"tokens\": NaN}\n", NULL, CONTENT, "f:2: " RANGE "null"},
    {JSONL, "{\"tokens\": 5}\n{\"tokens\": 5x}\n", NULL, SYNTAX, "f:2:"},
    {JSONL, "{\"input_ids\": []}\n", NULL, CONTENT, "f:1: " RANGE "[]"},
    {JSONL, "{\"input_ids\": [[7, 8], [9]]}\n", NULL, CONTENT, "f:1: got an array under the key: "},
    {JSONL, "{\"lengths\": [5, 6]}\n", NULL, CONTENT, "f:1: got an array under the key: "},
    {JSON, "[{\"length\": 5},\n {\"length\" 6}]", NULL, SYNTAX, "f:2: ':' expected near '6'"},
    {JSON, "[{\"length\": 5}, {\"length\": 0}]", NULL, CONTENT, "f: [1]: " RANGE "0"},
    {JSON, "[{\"length\": 5}, {\"tokens\": 5}]", NULL, CONTENT, "f: [1]: no key 'length'"},
    {JSON, "[{\"a\": 5, \"b\": 6}]", NULL, CONTENT,
     "f: which key holds the lengths? (there are: a, b)"},
    {JSON, "[{\"length\": 5}, {\"length\": ", NULL, SYNTAX,
     "f:1:28: expected '}', got the end of the file"},
};

TEST(readers_name_what_is_wrong)
{
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        expect_error(wrong[i].text, (sp_i_length_format)wrong[i].format, wrong[i].column,
                     (sp_status)wrong[i].status, wrong[i].message);
    }
}

// Writes one list in four formats and reads it back; pieces of it cross the buffer's end.
TEST(long_lists_come_back)
{
    const struct {
        sp_i_length_format format;
        const char *head, *item, *last;
    } formats[] = {
        {SP_I_LENGTHS_TEXT, "", "%lld\n", "%lld\n"},
        {SP_I_LENGTHS_CSV, "id,length\r\n", "1,%lld\r\n", "2,%lld"},
        {SP_I_LENGTHS_JSONL, "", "{\"length\":%lld}\n", "{\"length\":%lld}\n"},
        {SP_I_LENGTHS_JSON, "[", "%lld, ", "%lld]\n"},
    };
    AUTO_FREE int64_t *tokens = sp_malloc(MANY * sizeof *tokens);
    AUTO_FREE char *text = sp_malloc((size_t)MANY * 40);
    assert_non_null(text);
    sp_prng prng = prng_seeded(11);
    for (size_t i = 0; i < MANY; i++) {
        int bits = 1 + prng_below(&prng, 31);
        tokens[i] = 1 + (int64_t)sp_prng_below(&prng, (UINT64_C(1) << bits) - 1);
    }
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        char *at = text + sprintf(text, "%s", formats[f].head);
        for (size_t i = 0; i < MANY; i++) {
            at +=
                sprintf(at, i + 1 < MANY ? formats[f].item : formats[f].last, (long long)tokens[i]);
        }
        expect_list(text, formats[f].format, NULL, tokens, MANY);
        expect_list(text, SP_I_LENGTHS_ANY, NULL, tokens, MANY);
    }
}

// A Megatron-LM dataset is named by what its two files have in common.
TEST(a_pair_is_named_by_its_beginning)
{
    char folder[] = "/tmp/slimpack-pair-XXXXXX";
    // One sequence of 7 tokens of two bytes, one document.
    static const char index[] = "MMIDIDX\0\0\1\0\0\0\0\0\0\0\10\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
                                "\7\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0";
    assert_non_null(mkdtemp(folder));
    char path[64];
    snprintf(path, sizeof path, "%s/set.idx", folder);
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite(index, 1, sizeof index, file), sizeof index);
    assert_int_equal(fclose(file), 0);
    static const char *const names[] = {"set", "set.idx", "set.bin"};
    for (int i = 0; i < 3; i++) {
        AUTO(sp_lengths) lengths;
        char name[64];
        snprintf(name, sizeof name, "%s/%s", folder, names[i]);
        assert_true(sp_lengths_are_there(name));
        must_succeed(sp_lengths_read(name, NULL, &lengths, ERR));
        assert_int_equal(lengths.count, 1);
        assert_int_equal(lengths.tokens[0], 7);
    }
    remove(path);
    snprintf(path, sizeof path, "%s/set", folder);
    assert_false(sp_lengths_are_there(path));
    rmdir(folder);
}

TEST(content_decides_where_the_name_does_not)
{
    const int64_t tokens[] = {7, 8};
    expect_list("# c,d\n\n7\n8\n", SP_I_LENGTHS_ANY, NULL, tokens, 2);
    expect_list("a,length\n1,7\n1,8\n", SP_I_LENGTHS_ANY, NULL, tokens, 2);
    expect_list("a\tlength\n1\t7\n1\t8\n", SP_I_LENGTHS_ANY, NULL, tokens, 2);
    expect_list("\n{\"length\": 7}\n{\"length\": 8}\n", SP_I_LENGTHS_ANY, NULL, tokens, 2);
    expect_list("\n [7, 8]", SP_I_LENGTHS_ANY, NULL, tokens, 2);
    expect_error("\x1f\x8b\x08", SP_I_LENGTHS_ANY, NULL, SP_ERR_CONTENT,
                 "f: is compressed (gzip): unpack it first");
}

static void expect_file(const char *directory, const char *name, const char *text, int64_t first)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    AUTO(sp_lengths) lengths;
    sp_error_clear(ERR);
    sp_status status = sp_lengths_read(path, NULL, &lengths, ERR);
    remove(path);
    must_hold(status == SP_OK, "%s", ERR->message[0]);
    assert_int_equal(lengths.tokens[0], first);
}

TEST(name_decides_the_format)
{
    char directory[] = "/tmp/slimpack-lengths-XXXXXX";
    assert_non_null(mkdtemp(directory));
    expect_file(directory, "a.txt", "7\n", 7);
    expect_file(directory, "a.b.CSV", "x\n8\n", 8);
    expect_file(directory, "a.tsv", "length\ta,b\n9\t1\n", 9);
    expect_file(directory, "a.jsonl", "10\n", 10);
    expect_file(directory, "a.ndjson", "{\"a\":11}\n", 11);
    expect_file(directory, "a.json", "[12]", 12);
    expect_file(directory, "lengths", "13\n", 13);

    sp_lengths lengths;
    char message[256];
    sp_error_clear(ERR);
    assert_int_equal(sp_lengths_read(directory, NULL, &lengths, ERR), SP_ERR_IO);
    snprintf(message, sizeof message, "%s: is a directory", directory);
    assert_string_equal(ERR->message[0], message);
    rmdir(directory);
    sp_error_clear(ERR);
    assert_int_equal(sp_lengths_read(directory, NULL, &lengths, ERR), SP_ERR_IO);
    snprintf(message, sizeof message, "%s: No such file or directory", directory);
    assert_string_equal(ERR->message[0], message);
    assert_int_equal(sp_lengths_read(directory, NULL, &lengths, NULL), SP_ERR_IO);
}

TEST(pipes_are_read)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "7\n8\n", 4), 4);
    close(ends[1]);
    FILE *stream = fdopen(ends[0], "rb");
    assert_non_null(stream);
    AUTO(sp_lengths) lengths;
    must_succeed(sp_i_lengths_read_stream(stream, SP_I_LENGTHS_ANY, "pipe", NULL, &lengths, ERR));
    fclose(stream);
    assert_int_equal(lengths.count, 2);
    assert_int_equal(lengths.tokens[1], 8);
}

TEST(appending_keeps_little_in_reserve)
{
    sp_lengths lengths = {0};
    for (int64_t i = 0; i < MANY; i++) {
        sp_lengths_append(&lengths, i + 1);
        assert_true(lengths.capacity <= 1024 || lengths.capacity <= lengths.count * 9 / 8);
    }
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(lengths.tokens[i], i + 1);
    }
    sp_lengths_fini(&lengths);
    assert_null(lengths.tokens);
}
