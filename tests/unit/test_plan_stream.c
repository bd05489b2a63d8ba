// Streams of batches: lines however they are cut, arrays of lengths, answers in order.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "experiments/stream/plan_stream.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// ---- lines ----

typedef struct cut_text {
    const char *text;
    size_t bytes, at, most;
    sp_prng prng;
    bool fails; // at the end
} cut_text;

// Pieces of random size, as a pipe may give them.
static long read_cut(void *context, char *bytes, size_t room)
{
    cut_text *from = context;
    size_t left = from->bytes - from->at;
    if (left == 0) {
        errno = EIO;
        return from->fails ? -1 : 0;
    }
    size_t most = from->most < room ? from->most : room;
    size_t n = 1 + (size_t)sp_prng_below(&from->prng, most);
    n = n < left ? n : left;
    memcpy(bytes, from->text + from->at, n);
    from->at += n;
    return (long)n;
}

static stream_source source_of(cut_text *from, const char *text, size_t bytes, size_t most)
{
    *from = (cut_text){.text = text, .bytes = bytes, .most = most};
    sp_prng_seed(&from->prng, 1);
    return (stream_source){.read = read_cut, .context = from, .name = "text"};
}

static void expect_line(stream_lines *lines, const char *expected)
{
    char *text;
    size_t bytes;
    must_succeed(stream_lines_next(lines, &text, &bytes, ERR));
    if (expected == NULL) {
        assert_null(text);
        return;
    }
    assert_non_null(text);
    assert_string_equal(text, expected);
    assert_int_equal(bytes, strlen(expected));
    sp_free(text);
}

TEST(lines_of_any_cut)
{
    static const char text[] = "one\n\ntwo\r\n three\nlast";
    for (size_t most = 1; most < sizeof text + 2; most++) {
        cut_text from;
        AUTO(stream_lines) lines;
        stream_lines_init(&lines, source_of(&from, text, sizeof text - 1, most), 0);
        expect_line(&lines, "one");
        expect_line(&lines, "");
        expect_line(&lines, "two\r");
        expect_line(&lines, " three");
        expect_line(&lines, "last");
        assert_int_equal(lines.line, 5);
        expect_line(&lines, NULL);
        expect_line(&lines, NULL);
    }
}

// A newline at the end begins no further line.
TEST(ends_of_texts)
{
    cut_text from;
    AUTO(stream_lines) lines;
    stream_lines_init(&lines, source_of(&from, "", 0, 1), 0);
    expect_line(&lines, NULL);
    stream_lines_fini(&lines);
    stream_lines_init(&lines, source_of(&from, "a\n", 2, 9), 0);
    expect_line(&lines, "a");
    expect_line(&lines, NULL);
}

// Lines of ten megabytes, found again byte by byte.
TEST(long_lines)
{
    enum { LONG = 10 * 1000 * 1000 };
    AUTO_FREE char *text = sp_malloc(2 * LONG + 2);
    for (int i = 0; i < 2 * LONG + 2; i++) {
        text[i] = (char)('a' + i % 23);
    }
    text[LONG] = text[2 * LONG + 1] = '\n';
    cut_text from;
    AUTO(stream_lines) lines;
    stream_lines_init(&lines, source_of(&from, text, 2 * LONG + 2, 1 << 16), 0);
    for (int i = 0; i < 2; i++) {
        AUTO_FREE char *line;
        size_t bytes;
        must_succeed(stream_lines_next(&lines, &line, &bytes, ERR));
        assert_int_equal(bytes, LONG);
        assert_memory_equal(line, text + i * (LONG + 1), LONG);
    }
    expect_line(&lines, NULL);
}

static void expect_error(stream_lines *lines, sp_status expected, const char *message)
{
    char *text;
    size_t bytes;
    sp_error err = {0};
    assert_int_equal(stream_lines_next(lines, &text, &bytes, &err), expected);
    assert_null(text);
    assert_string_equal(err.message[0], message);
}

TEST(lines_over_the_limit)
{
    cut_text from;
    AUTO(stream_lines) lines;
    stream_lines_init(&lines, source_of(&from, "1234\n12345\n", 11, 3), 4);
    expect_line(&lines, "1234");
    expect_error(&lines, SP_ERR_LIMIT, "text:2: the line is longer than 4 bytes");
    stream_lines_fini(&lines);
    // One without an end is refused before it fills the memory.
    stream_lines_init(&lines, source_of(&from, "12345678", 8, 1), 4);
    expect_error(&lines, SP_ERR_LIMIT, "text:1: the line is longer than 4 bytes");
    assert_int_equal(from.at, 5);
}

TEST(read_errors)
{
    cut_text from;
    AUTO(stream_lines) lines;
    stream_lines_init(&lines, source_of(&from, "12\n3", 4, 9), 0);
    from.fails = true;
    expect_line(&lines, "12");
    char message[80];
    snprintf(message, sizeof message, "text:2: cannot read: %s", strerror(EIO));
    expect_error(&lines, SP_ERR_IO, message);
}

// ---- lengths ----

TEST(arrays_of_lengths)
{
    static const char *const good[] = {"[7,8]", " [ 7 ,\t8 ] \r", "[7.0, 8]"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        AUTO(sp_lengths) lengths;
        must_succeed_for(good[i],
                         stream_read_lengths(good[i], strlen(good[i]), "s", 1, &lengths, ERR));
        assert_int_equal(lengths.count, 2);
        assert_int_equal(lengths.tokens[0], 7);
        assert_int_equal(lengths.tokens[1], 8);
    }
}

TEST(lines_that_are_no_batch)
{
    static const struct {
        const char *text;
        sp_status status;
        int column;
    } bad[] = {
        {"", SP_ERR_SYNTAX, 1},
        {"  ", SP_ERR_SYNTAX, 3},
        {"5", SP_ERR_SYNTAX, 1},
        {"{\"a\": [1]}", SP_ERR_SYNTAX, 1},
        {"[", SP_ERR_SYNTAX, 2},
        {"[]", SP_ERR_CONTENT, 2},
        {"[1", SP_ERR_SYNTAX, 3},
        {"[1,", SP_ERR_SYNTAX, 4},
        {"[1,]", SP_ERR_SYNTAX, 4},
        {"[1 2]", SP_ERR_SYNTAX, 4},
        {"[1] 2", SP_ERR_SYNTAX, 5},
        {"[1][2]", SP_ERR_SYNTAX, 4},
        {"[0]", SP_ERR_CONTENT, 2},
        {"[-1]", SP_ERR_CONTENT, 2},
        {"[1.5]", SP_ERR_CONTENT, 2},
        {"[1, 1e3]", SP_ERR_CONTENT, 5},
        {"[2147483648]", SP_ERR_CONTENT, 2},
        {"[18446744073709551617]", SP_ERR_CONTENT, 2},
        {"[null]", SP_ERR_CONTENT, 2},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sp_lengths lengths;
        sp_error_clear(ERR);
        sp_status status =
            stream_read_lengths(bad[i].text, strlen(bad[i].text), "s", 9, &lengths, ERR);
        assert_int_equal(status, bad[i].status);
        char place[16];
        snprintf(place, sizeof place, "s:9:%d: ", bad[i].column);
        assert_memory_equal(ERR->message[0], place, strlen(place));
        assert_int_equal(lengths.count, 0);
    }
}

// ---- streams ----

#define SCENARIO                                                                    \
    TINY_MODEL "'cluster': 'h800-8', 'parallel': {'pp': 2, 'dp': 2}, 'workload': {" \
               "'lengths': [5], 'context': 1000, 'samples_per_batch': 1}}"

enum { LINES = 60 };

typedef struct collected {
    char *all; // the answers one after the other
    size_t bytes;
    int64_t count;
    int64_t fails_at; // answer at which the sink fails; 0: never
} collected;

static sp_status collect(void *context, const stream_answer *answer, sp_error *err)
{
    collected *c = context;
    c->count++;
    assert_int_equal(answer->line, c->count);
    if (c->count == c->fails_at) {
        return sp_error_set(err, SP_ERR_IO, "the sink is full");
    }
    c->all = sp_realloc(c->all, c->bytes + answer->bytes + 1);
    memcpy(c->all + c->bytes, answer->text, answer->bytes + 1);
    c->bytes += answer->bytes;
    return SP_OK;
}

// The input as a pipe that the whole text fits into; left open on request.
static int input_of(const char *text, int *open_end)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], text, strlen(text)), (ssize_t)strlen(text));
    if (open_end != NULL) {
        *open_end = ends[1];
    } else {
        close(ends[1]);
    }
    return ends[0];
}

static sp_status stream_text(const char *text, int threads, int ahead, int *open_end, collected *c,
                             sp_error *err)
{
    AUTO(sp_scenario) scenario;
    must_succeed(run_read(SCENARIO, &scenario, ERR));
    stream_options options = {.threads = threads, .ahead = ahead, .name = "s"};
    int fd = input_of(text, open_end);
    sp_status status = stream_plans(&scenario, fd, &options, collect, c, err);
    close(fd);
    if (open_end != NULL) {
        close(*open_end);
    }
    return status;
}

// Batches of very different cost, so that threads overtake each other.
static void make_lines(char *text, size_t room)
{
    sp_prng prng = prng_seeded(7);
    size_t used = 0;
    for (int i = 0; i < LINES; i++) {
        int samples = 1 + (int)sp_prng_below(&prng, i % 7 == 0 ? 120 : 4);
        for (int s = 0; s < samples; s++) {
            used += (size_t)snprintf(text + used, room - used, "%s%d", s > 0 ? ", " : "[",
                                     1 + prng_below(&prng, 1000));
        }
        used += (size_t)snprintf(text + used, room - used, "]\n");
        assert_true(used < room);
    }
}

TEST(answers_do_not_depend_on_threads)
{
    static char text[1 << 15];
    static const int ways[][2] = {{1, 1}, {1, 16}, {2, 1}, {2, 3}, {5, 2}, {4, 100}};
    collected first = {0};
    make_lines(text, sizeof text);
    must_succeed(stream_text(text, 1, 4, NULL, &first, ERR));
    assert_int_equal(first.count, LINES);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        collected c = {0};
        must_succeed(stream_text(text, ways[i][0], ways[i][1], NULL, &c, ERR));
        assert_int_equal(c.count, LINES);
        assert_int_equal(c.bytes, first.bytes);
        assert_memory_equal(c.all, first.all, first.bytes);
        free(c.all);
    }
    free(first.all);
}

typedef struct told {
    int64_t oom, with_settings, first; // the first line with settings
    char settings[SP_WARNING_TEXT];
} told;

static sp_status listen(void *context, const stream_answer *answer, sp_error *err)
{
    told *t = context;
    t->oom += answer->oom;
    if (answer->settings[0] != '\0') {
        t->first = t->with_settings++ == 0 ? answer->line : t->first;
        snprintf(t->settings, sizeof t->settings, "%s", answer->settings);
    }
    return SP_OK;
}

// The settings that would make a plan fit are tried once for all planners, for the first line that
// does not fit.
TEST(settings_are_told_once)
{
    told first = {0};
    for (int threads = 1; threads <= 4; threads++) {
        AUTO(sp_scenario) scenario;
        told t = {0};
        must_succeed(run_read(TINY_MODEL "'cluster': 'h800-8', 'parallel': {'pp': 2, 'dp': 2}, "
                                         "'memory': {'limit_gib': 0.001}, 'workload': {'lengths': "
                                         "[5], 'context': 1000, 'samples_per_batch': 1}}",
                              &scenario, ERR));
        stream_options options = {.threads = threads, .ahead = 8, .name = "s"};
        int fd = input_of("[9]\n[1000, 999]\n[1000, 9]\n[7]\n[800, 900]\n[5]\n", NULL);
        must_succeed(stream_plans(&scenario, fd, &options, listen, &t, ERR));
        close(fd);
        assert_true(t.oom > 1);
        assert_int_equal(t.with_settings, 1);
        first = threads == 1 ? t : first;
        assert_int_equal(t.first, first.first);
        assert_string_equal(t.settings, first.settings);
    }
}

// A line between two others is answered by `none`, and they as they are without it.
static void must_answer_none(const char *line, const char *none)
{
    for (int threads = 1; threads <= 3; threads++) {
        collected c = {0};
        collected others = {0};
        char text[64];
        snprintf(text, sizeof text, "[1]\n%s\n[2]\n", line);
        must_succeed(stream_text("[1]\n[2]\n", threads, 8, NULL, &others, ERR));
        must_succeed(stream_text(text, threads, 8, NULL, &c, ERR));
        assert_int_equal(c.count, 3);
        char *found = strstr(c.all, none);
        assert_non_null(found);
        memmove(found, found + strlen(none), strlen(found + strlen(none)) + 1);
        assert_string_equal(c.all, others.all);
        free(others.all);
        free(c.all);
    }
}

TEST(lines_that_are_no_batch_are_answered)
{
    must_answer_none("[x]",
                     "{\"schema\":\"slimpack/plan/1\",\"batches\":[],\"status\":\"invalid\","
                     "\"reason\":\"s:2:2: expected a length from 1 to 2147483647, got 'x'\"}");
    must_answer_none("", "{\"schema\":\"slimpack/plan/1\",\"batches\":[],\"status\":\"invalid\","
                         "\"reason\":\"s:2:1: expected '[', got the end of the line\"}");
}

// Samples that are all longer than the context make no batch: the lines after them go on.
TEST(lengths_without_a_batch_are_answered)
{
    must_answer_none("[2000]", "{\"schema\":\"slimpack/plan/1\",\"batches\":[],\"reason\":\"batch: "
                               "no sample is left: all 1 are longer than the context of 1000\"}");
}

TEST(sink_ends_the_stream)
{
    collected c = {.fails_at = 2};
    int open_end;
    must_fail(stream_text("[1]\n[2]\n[3]\n[4]\n", 2, 1, &open_end, &c, ERR), SP_ERR_IO,
              "the sink is full");
    assert_int_equal(c.count, 2);
    free(c.all);
}

TEST(empty_stream)
{
    collected c = {0};
    must_succeed(stream_text("", 2, 8, NULL, &c, ERR));
    assert_int_equal(c.count, 0);
}

TEST(stream_that_cannot_be_read)
{
    AUTO(sp_scenario) scenario;
    collected c = {0};
    must_succeed(run_read(SCENARIO, &scenario, ERR));
    stream_options options = {.threads = 2, .ahead = 3, .name = "s"};
    int fd = open("/dev/null", O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(stream_plans(&scenario, fd, &options, collect, &c, ERR), SP_ERR_IO);
    char message[80];
    snprintf(message, sizeof message, "s:1: cannot read: %s", strerror(EBADF));
    assert_string_equal(ERR->message[0], message);
    close(fd);
}

// A client that waits for each answer before it sends the next line gets it.
typedef struct client {
    int to;
    int64_t sent;
} client;

static sp_status send_next(void *context, const stream_answer *answer, sp_error *err)
{
    client *c = context;
    assert_int_equal(answer->line, c->sent);
    if (c->sent == 5) {
        close(c->to);
    } else {
        c->sent++;
        assert_int_equal(write(c->to, "[9]\n", 4), 4);
    }
    return SP_OK;
}

TEST(answers_come_at_once)
{
    AUTO(sp_scenario) scenario;
    client c = {.sent = 1};
    must_succeed(run_read(SCENARIO, &scenario, ERR));
    stream_options options = {.threads = 2, .ahead = 4, .name = "s"};
    int fd = input_of("[9]\n", &c.to);
    must_succeed(stream_plans(&scenario, fd, &options, send_next, &c, ERR));
    assert_int_equal(c.sent, 5);
    close(fd);
}
