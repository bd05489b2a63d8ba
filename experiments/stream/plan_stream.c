#include "experiments/stream/plan_stream.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/alloc.h"
#include "sim/base/parallel.h"
#include "sim/workload/length_reader.h"

enum {
    FIRST_BYTES = 1 << 16,
    ELEMENT = 64, // longest element of an array that can be a length
};

// ---- lines of the input ----

void stream_lines_init(stream_lines *lines, stream_source source, size_t limit)
{
    *lines = (stream_lines){.source = source, .limit = limit > 0 ? limit : STREAM_LINE_BYTES};
}

void stream_lines_fini(stream_lines *lines)
{
    sp_free(lines->buffer);
    *lines = (stream_lines){0};
}

static void take_line(stream_lines *lines, size_t length, char **text, size_t *bytes)
{
    char *copy = sp_malloc(length + 1);
    memcpy(copy, lines->buffer + lines->begin, length);
    copy[length] = '\0';
    *text = copy;
    *bytes = length;
    lines->line++;
    lines->begin += length;
    // The newline, which only the last line may lack.
    lines->begin += lines->begin < lines->end;
    lines->searched = lines->begin;
}

// Moves what is left to the front and reads behind it.
static sp_status fill(stream_lines *lines, sp_error *err)
{
    size_t left = lines->end - lines->begin;
    if (lines->begin > 0) {
        memmove(lines->buffer, lines->buffer + lines->begin, left);
        lines->searched -= lines->begin;
        lines->begin = 0;
        lines->end = left;
    }
    if (lines->end == lines->capacity) {
        SP_RESERVE(lines->buffer, lines->capacity,
                   lines->capacity > 0 ? lines->capacity + 1 : FIRST_BYTES);
    }
    errno = 0;
    long got = lines->source.read(lines->source.context, lines->buffer + lines->end,
                                  lines->capacity - lines->end);
    if (got < 0) {
        return sp_error_at(err, SP_ERR_IO, lines->source.name, (long)lines->line + 1, 0,
                           "cannot read: %s", strerror(errno));
    }
    lines->ended = got == 0;
    lines->end += (size_t)got;
    return SP_OK;
}

sp_status stream_lines_next(stream_lines *lines, char **text, size_t *bytes, sp_error *err)
{
    *text = NULL;
    *bytes = 0;
    for (;;) {
        size_t fresh = lines->end - lines->searched;
        const char *newline =
            fresh > 0 ? memchr(lines->buffer + lines->searched, '\n', fresh) : NULL;
        size_t length = newline != NULL ? (size_t)(newline - lines->buffer) - lines->begin
                                        : lines->end - lines->begin;
        if (length > lines->limit) {
            return sp_error_at(err, SP_ERR_LIMIT, lines->source.name, (long)lines->line + 1, 0,
                               "the line is longer than %zu bytes", lines->limit);
        }
        if (newline != NULL || (lines->ended && length > 0)) {
            take_line(lines, length, text, bytes);
            return SP_OK;
        }
        if (lines->ended) {
            return SP_OK;
        }
        lines->searched = lines->end;
        SP_TRY(fill(lines, err));
    }
}

// ---- a batch: the JSON array of its samples' lengths ----

typedef struct scanner {
    const char *text;
    size_t bytes, at;
    const char *source;
    int64_t line;
    sp_lengths *lengths;
    sp_error *err;
} scanner;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void skip_blanks(scanner *in)
{
    while (in->at < in->bytes && is_blank(in->text[in->at])) {
        in->at++;
    }
}

static bool next_is(const scanner *in, char c)
{
    return in->at < in->bytes && in->text[in->at] == c;
}

// A byte that belongs in another place.
static sp_status unexpected(const scanner *in, const char *expected)
{
    if (in->at == in->bytes) {
        return sp_error_at(in->err, SP_ERR_SYNTAX, in->source, (long)in->line, (long)in->at + 1,
                           "expected %s, got the end of the line", expected);
    }
    char found[SP_I_QUOTE];
    sp_quote(in->text + in->at, 1, found);
    return sp_error_at(in->err, SP_ERR_SYNTAX, in->source, (long)in->line, (long)in->at + 1,
                       "expected %s, got '%s'", expected, found);
}

static sp_status read_element(scanner *in)
{
    size_t begin = in->at;
    while (in->at < in->bytes && in->text[in->at] != ',' && in->text[in->at] != ']' &&
           !is_blank(in->text[in->at])) {
        in->at++;
    }
    size_t length = in->at - begin;
    if (length == 0) {
        return unexpected(in, "a length");
    }
    int64_t tokens = 0;
    if (length <= ELEMENT && sp_parse_length(in->text + begin, length, &tokens)) {
        sp_lengths_append(in->lengths, tokens);
        return SP_OK;
    }
    char found[SP_I_QUOTE];
    sp_quote(in->text + begin, length, found);
    return sp_error_at(in->err, SP_ERR_CONTENT, in->source, (long)in->line, (long)begin + 1,
                       "expected a length from 1 to %d, got '%s'", SP_MAX_LENGTH_TOKENS, found);
}

static sp_status read_array(scanner *in)
{
    skip_blanks(in);
    if (!next_is(in, '[')) {
        return unexpected(in, "'['");
    }
    in->at++;
    skip_blanks(in);
    if (next_is(in, ']')) {
        return sp_error_at(in->err, SP_ERR_CONTENT, in->source, (long)in->line, (long)in->at + 1,
                           "expected at least one length, got an empty array");
    }
    for (;;) {
        SP_TRY(read_element(in));
        skip_blanks(in);
        if (next_is(in, ']')) {
            break;
        }
        if (!next_is(in, ',')) {
            return unexpected(in, "',' or ']'");
        }
        in->at++;
        skip_blanks(in);
    }
    in->at++;
    skip_blanks(in);
    return in->at == in->bytes ? SP_OK : unexpected(in, "the end of the line");
}

sp_status stream_read_lengths(const char *text, size_t bytes, const char *source, int64_t line,
                              sp_lengths *lengths, sp_error *err)
{
    scanner in = {.text = text,
                  .bytes = bytes,
                  .source = source,
                  .line = line,
                  .lengths = lengths,
                  .err = err};
    *lengths = (sp_lengths){0};
    sp_status status = read_array(&in);
    if (status != SP_OK) {
        sp_lengths_fini(lengths);
    }
    return status;
}

// ---- answers ----

// A line on its way to its answer.
typedef struct batch_line {
    char *text; // NULL: it has been read as lengths
    size_t bytes;
    bool lacks_memory;  // its plan does, or it has none for that
    sp_lengths lengths; // then, else empty
    stream_answer answer;
} batch_line;

typedef struct stream {
    const stream_options *options;
    int fd;
    int wake[2]; // a pipe: closed at one end, it ends a wait for input
    const sp_scenario *scenario;
    sp_planner **planners;
    bool tried_settings;
    stream_lines lines;
    stream_sink sink;
    void *sink_context;
} stream;

// Waits for input or for the end of the stream, which reads like the end of the input.
static long read_input(void *context, char *bytes, size_t room)
{
    const stream *s = context;
    struct pollfd waits[] = {{.fd = s->fd, .events = POLLIN}, {.fd = s->wake[0]}};
    for (;;) {
        int ready = poll(waits, 2, -1);
        if (ready > 0 && waits[1].revents != 0) {
            return 0;
        }
        ssize_t got = ready > 0 ? read(s->fd, bytes, room) : -1;
        if (got >= 0) {
            return (long)got;
        }
        if (errno != EINTR && errno != EAGAIN) {
            return -1;
        }
    }
}

static sp_status read_line(void *context, void *item, bool *more, sp_error *err)
{
    stream *s = context;
    batch_line *line = item;
    sp_status status = stream_lines_next(&s->lines, &line->text, &line->bytes, err);
    line->answer.line = s->lines.line;
    *more = line->text != NULL;
    return status;
}

static void drop_line(void *item)
{
    batch_line *line = item;
    sp_free(line->text);
    sp_lengths_fini(&line->lengths);
    free(line->answer.text);
}

static void stop_reading(void *context)
{
    stream *s = context;
    close(s->wake[1]);
    s->wake[1] = -1;
}

static sp_status answer_without_plan(stream_answer *answer, sp_error *failure)
{
    answer->infeasible = !answer->invalid;
    memcpy(answer->reason, failure->message[0], sizeof answer->reason);
    sp_error_clear(failure);
    json_t *root =
        sp_json_object(SP_JSON("schema", "slimpack/plan/1"), SP_JSON("batches", json_array()),
                       SP_JSON("status", answer->invalid ? json_string("invalid") : NULL),
                       SP_JSON("reason", answer->reason));
    answer->text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    answer->bytes = strlen(answer->text);
    return SP_OK;
}

static sp_status answer_plan(sp_planner *planner, const sp_lengths *lengths, stream_answer *answer,
                             sp_error *failure)
{
    sp_batch_plan *plan = NULL;
    sp_status status = sp_plan_batch(planner, lengths->tokens, lengths->count, &plan, failure);
    if (status == SP_OK) {
        answer->oom = plan->oom;
        answer->peak_bytes = plan->peak_bytes;
        answer->memory_limit_bytes = plan->memory_limit_bytes;
        answer->dropped = plan->dropped;
        answer->truncated = plan->truncated;
        answer->split = plan->split;
        answer->warnings = plan->warnings;
        memcpy(answer->settings, plan->settings, sizeof answer->settings);
        status = sp_batch_plan_text(planner, plan, &answer->text, &answer->bytes, failure);
    }
    sp_batch_plan_free(plan);
    return status;
}

// The planner's messages on a batch name the line that brought it.
static sp_status plan_line(void *context, int worker, void *item, sp_error *err)
{
    const stream *s = context;
    batch_line *line = item;
    sp_lengths lengths;
    sp_error found = {0};
    sp_status status = stream_read_lengths(line->text, line->bytes, s->options->name,
                                           line->answer.line, &lengths, &found);
    sp_free(line->text);
    line->text = NULL;
    if (status != SP_OK && !sp_status_is_fatal(status)) {
        line->answer.invalid = true;
        return answer_without_plan(&line->answer, &found);
    }
    if (status != SP_OK) {
        return sp_error_add(err, &found);
    }
    status = answer_plan(s->planners[worker], &lengths, &line->answer, &found);
    line->lacks_memory = status == SP_OK ? line->answer.oom
                                         : status == SP_ERR_INFEASIBLE &&
                                               sp_planner_refused_for_memory(s->planners[worker]);
    if (line->lacks_memory) {
        line->lengths = lengths;
    } else {
        sp_lengths_fini(&lengths);
    }
    // Lengths that were read well may still make no batch: none that fits the context.
    if (status != SP_OK && !sp_status_is_fatal(status)) {
        status = answer_without_plan(&line->answer, &found);
    }
    return status == SP_OK ? SP_OK
                           : sp_error_at(err, found.status, s->options->name,
                                         (long)line->answer.line, 0, "%s", found.message[0]);
}

// Up to 19 whole steps, so once for all planners: for the first line whose plan does not fit.
static sp_status try_settings(stream *s, batch_line *line, sp_error *err)
{
    sp_planner *planner = NULL;
    sp_error found = {0};
    s->tried_settings = true;
    sp_status status = sp_planner_new(s->scenario, &planner, err);
    if (status == SP_OK) {
        free(line->answer.text);
        line->answer.text = NULL;
        status = answer_plan(planner, &line->lengths, &line->answer, &found);
        status = status == SP_ERR_INFEASIBLE ? answer_without_plan(&line->answer, &found) : status;
        sp_error_add(err, &found);
    }
    sp_planner_free(planner);
    return status;
}

static sp_status hand_out(void *context, void *item, sp_error *err)
{
    stream *s = context;
    batch_line *line = item;
    if (line->lacks_memory && !s->tried_settings) {
        SP_TRY(try_settings(s, line, err));
    }
    return s->sink(s->sink_context, &line->answer, err);
}

// ---- the stream ----

// Made before a line is read: what is wrong with the scenario shows at once.
static sp_status make_planners(stream *s, const sp_scenario *scenario, sp_error *err)
{
    s->planners = sp_calloc((size_t)s->options->threads, sizeof *s->planners);
    for (int t = 0; t < s->options->threads; t++) {
        SP_TRY(sp_planner_new(scenario, &s->planners[t], err));
        sp_planner_skip_settings(s->planners[t]);
    }
    return SP_OK;
}

sp_status stream_plans(const sp_scenario *scenario, int fd, const stream_options *options,
                       stream_sink sink, void *context, sp_error *err)
{
    stream s = {.options = options,
                .fd = fd,
                .wake = {-1, -1},
                .scenario = scenario,
                .sink = sink,
                .sink_context = context};
    const sp_ordered how = {.threads = options->threads,
                            .ahead = options->ahead,
                            .item_bytes = sizeof(batch_line),
                            .context = &s,
                            .make = read_line,
                            .work = plan_line,
                            .take = hand_out,
                            .drop = drop_line,
                            .cancel = stop_reading};
    const stream_source source = {.read = read_input, .context = &s, .name = options->name};
    stream_lines_init(&s.lines, source, 0);
    sp_status status = make_planners(&s, scenario, err);
    if (status == SP_OK && pipe(s.wake) != 0) {
        s.wake[0] = s.wake[1] = -1;
        status = sp_error_set(err, SP_ERR_LIMIT, "cannot make a pipe: %s", strerror(errno));
    }
    if (status == SP_OK) {
        status = sp_ordered_run(&how, err);
    }
    for (int i = 0; i < 2; i++) {
        if (s.wake[i] >= 0) {
            close(s.wake[i]);
        }
    }
    for (int t = 0; s.planners != NULL && t < options->threads; t++) {
        sp_planner_free(s.planners[t]);
    }
    sp_free((void *)s.planners);
    stream_lines_fini(&s.lines);
    return status;
}
