// Text for people, texts that are read as JSON, and files.
#define _POSIX_C_SOURCE 200809L
#include <float.h>
#include <limits.h>

#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/base/writer.h"
#include "tests/support/test_main.h"

enum { BYTES = 512 };

// What a stream was given.
static void read_back(FILE *file, char text[BYTES])
{
    rewind(file);
    size_t bytes = fread(text, 1, BYTES - 1, file);
    text[bytes] = '\0';
    fclose(file);
}

// sp_print() beside printf() where no text holds what is escaped: the same bytes and count.
#define SAME(...)                                                     \
    do {                                                              \
        char expected[BYTES];                                         \
        char found[BYTES];                                            \
        FILE *file = tmpfile();                                       \
        assert_non_null(file);                                        \
        int count = snprintf(expected, sizeof expected, __VA_ARGS__); \
        assert_int_equal(sp_print(file, __VA_ARGS__), count);         \
        read_back(file, found);                                       \
        assert_string_equal(found, expected);                         \
    } while (0)

TEST(prints_as_printf_does)
{
    SAME("plain, 100 %%, \n\t two lines\n");
    SAME("%d|%5d|%-5d|%05d|%+d|% d|%i", -7, 42, 42, 42, 42, 42, INT_MIN);
    SAME("%lld|%20lld|%llu|%llx", (long long)INT64_MIN, (long long)INT64_MAX,
         (unsigned long long)UINT64_MAX, 255ULL);
    SAME("%ld|%lu|%zu|%-8zu|%u|%x|%X|%o|%#x", -3L, 3UL, (size_t)12, (size_t)SIZE_MAX, 7u, 254u,
         254u, 8u, 8u);
    SAME("%f|%.3f|%10.2f|%-10.2f|%+.1f|%e|%.2e|%g|%.9g|%G|%a", 1.5, 2.0 / 3.0, 1e6, 1e6, 0.05, 1e-7,
         DBL_MAX, 1e20, 0.1, 1e-20, 1.0);
    SAME("%f|%5.1f|%g", (double)NAN, (double)INFINITY, -(double)INFINITY);
    SAME("%*d|%-*d|%.*f|%*.*f|%*d", 6, 1, 6, 1, 2, 3.14159, 9, 1, 2.55, -6, 1);
    SAME("%s|%10s|%-10s|%.2s|%10.2s|%.*s|%*s|%.0s|%.s", "text", "text", "text", "text", "text", 3,
         "text", -8, "text", "text", "text");
    SAME("%c%c%c", 'a', '%', 'z');
    SAME("%s", "z\xc3\xbc"
               "rich \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x9a\x80");
}

static void expect_escaped(const char *text, const char *expected)
{
    char found[BYTES];
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(sp_print(file, "%s", text), strlen(expected));
    read_back(file, found);
    assert_string_equal(found, expected);
}

TEST(escapes_what_steers_a_terminal)
{
    expect_escaped("m\x1b]0;title\a\x1b[2J\nFAKE", "m\\x1b]0;title\\x07\\x1b[2J\\nFAKE");
    expect_escaped("a\tb\rc\x7f\b", "a\\tb\\rc\\x7f\\x08");
    // CSI as one character of Latin-1's C1 set, by itself and as UTF-8.
    expect_escaped("\x9b"
                   "31m",
                   "\\x9b"
                   "31m");
    expect_escaped("\xc2\x9b"
                   "31m",
                   "\\xc2\\x9b"
                   "31m");
    // A line separator, an override of direction and an isolate (U+2028, U+202E, U+2067).
    expect_escaped("\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa7",
                   "\\xe2\\x80\\xa8\\xe2\\x80\\xae\\xe2\\x81\\xa7");
    // No UTF-8: cut short, too long a form, a surrogate, past the last character.
    expect_escaped("\xc3", "\\xc3");
    expect_escaped("\xe4\xb8", "\\xe4\\xb8");
    expect_escaped("\xc0\xaf", "\\xc0\\xaf");
    expect_escaped("\xed\xa0\x80", "\\xed\\xa0\\x80");
    expect_escaped("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
    expect_escaped("\xff", "\\xff");
}

TEST(pads_what_is_escaped)
{
    char found[BYTES];
    FILE *file = tmpfile();
    assert_non_null(file);
    sp_print(file, "%-6s|%6s|%.1s", "\n", "\x01", "\x1b[31m");
    read_back(file, found);
    assert_string_equal(found, "\\n    |  \\x01|\\x1b");
}

static void expect_refused(const char *text, const char *told)
{
    sp_error err = {0};
    json_t *root = NULL;
    assert_int_equal(sp_json_read_text(text, strlen(text), "s.json", &root, &err), SP_ERR_SYNTAX);
    assert_null(root);
    assert_string_equal(err.message[0], told);
}

TEST(says_that_a_text_is_empty)
{
    expect_refused("", "s.json: is empty, expected JSON");
    expect_refused(" \n\t\r\n", "s.json: is empty, expected JSON");
    expect_refused("{", "s.json:1:1: string or '}' expected near end of file: the "
                        "text ends too early, as of a file that was cut off: write it again");
}

// Ten errors are told; the others are counted at once, without a look for names like theirs.
TEST(counts_very_many_unknown_keys)
{
    enum { KEYS = 100000 };
    sp_error err = {0};
    sp_object object;
    json_auto_t *root = json_object();
    for (int i = 0; i < KEYS; i++) {
        char key[32];
        snprintf(key, sizeof key, "key%d", i);
        assert_int_equal(json_object_set_new(root, key, json_integer(i)), 0);
    }
    sp_object_begin(&object, root, "s.json", "", &err);
    sp_object_get(&object, "known");
    sp_object_end(&object);
    assert_int_equal(err.status, SP_ERR_CONTENT);
    assert_int_equal(err.count, SP_ERROR_MESSAGES);
    assert_int_equal(err.dropped, KEYS - SP_ERROR_MESSAGES);
}

static void write_a(const char *path)
{
    sp_output out;
    must_succeed(sp_output_open(&out, path, ERR));
    fputs("a", out.file);
    must_succeed(sp_output_close(&out, SP_OK, ERR));
}

// File systems give the inode of a removed file to a new one: that one was never read.
TEST(an_output_with_the_inode_of_a_removed_input_is_no_input)
{
    for (int i = 0; i < 100; i++) {
        FILE *file;
        write_a("read");
        must_succeed(sp_input_open("read", &file, ERR));
        fclose(file);
        remove("read");
        write_a("written");
        write_a("written");
        remove("written");
    }
}

// Half a character is no text of a JSON document.
TEST(cuts_texts_between_characters)
{
    assert_int_equal(sp_fitting("", 1), 0);
    assert_int_equal(sp_fitting("abc", 4), 3);
    assert_int_equal(sp_fitting("abc", 3), 2);
    assert_int_equal(sp_fitting("a\u00e9b", 5), 4);
    assert_int_equal(sp_fitting("a\u00e9b", 4), 3);
    assert_int_equal(sp_fitting("a\u00e9b", 3), 1);
    assert_int_equal(sp_fitting("\u20ac", 3), 0);
}

// Any word of a shell is read back as it was.
TEST(words_are_one_word_of_a_shell)
{
    static const char *const words[] = {"plain-1.json", "two words",    "",   "it's",
                                        "$(touch x)",   "a\\b`c`\"d\"", "\n", "*"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char back[64] = "";
        sp_text text;
        fputs("printf %s ", sp_text_begin(&text));
        sp_print_word(text.file, words[i]);
        AUTO_FREE char *command = sp_text_end(&text);
        FILE *shell = popen(command, "r");
        assert_non_null(shell);
        back[fread(back, 1, sizeof back - 1, shell)] = '\0';
        assert_int_equal(pclose(shell), 0);
        assert_string_equal(back, words[i]);
    }
}
