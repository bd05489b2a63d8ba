// A list of lengths, and the input that the readers of all formats share: lines, numbers, columns.
#include "sim/workload/length_reader.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/csv.h"
#include "sim/base/json.h"
#include "sim/base/writer.h"

enum {
    FIRST_CAPACITY = 1024,
    BUFFER_BYTES = SP_I_LINE_BYTES + 2, // the longest line with its CRLF
    LISTED_NAMES = 12,                  // columns listed in a message
};

// ---- the list ----

void sp_lengths_fini(sp_lengths *lengths)
{
    sp_free(lengths->tokens);
    *lengths = (sp_lengths){0};
}

static void resize(sp_lengths *lengths, size_t capacity)
{
    lengths->tokens = sp_realloc(lengths->tokens, capacity * sizeof *lengths->tokens);
    lengths->capacity = capacity;
}

void sp_i_lengths_reserve(sp_lengths *lengths, size_t count)
{
    if (count > lengths->capacity) {
        resize(lengths, count);
    }
}

void sp_i_lengths_trim(sp_lengths *lengths)
{
    if (lengths->count < lengths->capacity) {
        resize(lengths, lengths->count);
    }
}

void sp_lengths_append(sp_lengths *lengths, int64_t tokens)
{
    if (lengths->count == lengths->capacity) {
        // By an eighth: a list of 100 million must not hold half of itself in reserve.
        size_t grown = lengths->capacity + lengths->capacity / 8;
        resize(lengths, grown < FIRST_CAPACITY ? FIRST_CAPACITY : grown);
    }
    lengths->tokens[lengths->count++] = tokens;
}

// ---- the input: lines, numbers, columns ----

// Column names and keys looked for when none is given, in this order.
static const char *const column_names[] = {
    "length",  "lengths",      "tokens",    "num_tokens", "n_tokens",
    "seq_len", "input_length", "input_ids", "token_ids",
};

// Of the first of them, which are numbers, a list has one.
enum { COLUMN_NAMES = sizeof column_names / sizeof column_names[0], NUMBER_NAMES = 7 };

// Beside lengths these would be of a histogram.
static const char *const count_names[] = {"count", "counts", "frequency", "freq"};

sp_status sp_i_reader_init(sp_i_reader *reader)
{
    reader->begin = reader->end = 0;
    reader->ended = false;
    reader->line = 0;
    reader->next_line = 1;
    reader->refused = 0;
    reader->bytes = -1;
    reader->start = ftello(reader->stream);
    if (reader->start >= 0 && fseeko(reader->stream, 0, SEEK_END) == 0) {
        reader->bytes = ftello(reader->stream) - reader->start;
        if (fseeko(reader->stream, reader->start, SEEK_SET) != 0) {
            return sp_error_system(reader->err, reader->source, errno);
        }
    }
    reader->buffer = sp_malloc(BUFFER_BYTES);
    return sp_i_reader_fill(reader);
}

void sp_i_reader_fini(sp_i_reader *reader)
{
    sp_free(reader->buffer);
    reader->buffer = NULL;
}

sp_status sp_i_reader_fill(sp_i_reader *reader)
{
    size_t held = reader->end - reader->begin;
    memmove(reader->buffer, reader->buffer + reader->begin, held);
    reader->begin = 0;
    reader->end = held;
    if (reader->ended) {
        return SP_OK;
    }
    size_t wanted = BUFFER_BYTES - held;
    errno = 0;
    size_t got = fread(reader->buffer + held, 1, wanted, reader->stream);
    reader->end += got;
    reader->ended = got < wanted;
    if (ferror(reader->stream)) {
        return sp_error_set(reader->err, SP_ERR_IO, "%s: %s", reader->source,
                            errno != 0 ? strerror(errno) : "cannot be read");
    }
    return SP_OK;
}

static size_t line_bytes(const char *text, size_t n, char delimiter)
{
    if (delimiter != '\0') {
        return sp_csv_record_bytes(text, n, delimiter);
    }
    const char *newline = memchr(text, '\n', n);
    return newline == NULL ? 0 : (size_t)(newline - text) + 1;
}

static long count_newlines(const char *text, size_t n)
{
    long count = 0;
    for (size_t i = 0; i < n; i++) {
        count += text[i] == '\n';
    }
    return count;
}

sp_status sp_i_reader_line(sp_i_reader *reader, char delimiter, const char **text, size_t *n)
{
    *text = NULL;
    *n = 0;
    size_t used =
        line_bytes(reader->buffer + reader->begin, reader->end - reader->begin, delimiter);
    if (used == 0 && !reader->ended) {
        SP_TRY(sp_i_reader_fill(reader));
        used = line_bytes(reader->buffer, reader->end, delimiter);
    }
    size_t held = reader->end - reader->begin;
    if (used == 0 && reader->ended) {
        used = held;
    }
    if (used == 0 && held == 0) {
        return SP_OK;
    }
    const char *line = reader->buffer + reader->begin;
    size_t length = used > 0 ? used : held;
    length -= length > 0 && line[length - 1] == '\n';
    length -= length > 0 && line[length - 1] == '\r';
    if (used == 0 || length > SP_I_LINE_BYTES) {
        return sp_error_at(reader->err, SP_ERR_CONTENT, reader->source, reader->next_line, 0,
                           "the line is longer than %d bytes", (int)SP_I_LINE_BYTES);
    }
    reader->begin += used;
    reader->line = reader->next_line;
    reader->next_line += delimiter == '\0' ? 1 : count_newlines(line, used);
    *text = line;
    *n = length;
    return SP_OK;
}

bool sp_parse_length(const char *text, size_t n, int64_t *tokens)
{
    while (n > 0 && (text[0] == ' ' || text[0] == '\t')) {
        text++;
        n--;
    }
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t')) {
        n--;
    }
    int64_t value = 0;
    size_t i = 0;
    for (; i < n && text[i] >= '0' && text[i] <= '9'; i++) {
        value = value * 10 + (text[i] - '0');
        if (value > SP_MAX_LENGTH_TOKENS) {
            return false;
        }
    }
    if (i > 0 && i + 1 < n && text[i] == '.') {
        for (i++; i < n && text[i] == '0'; i++) {
        }
    }
    *tokens = value;
    return i == n && value > 0;
}

uint64_t sp_i_little_endian(const char *bytes, size_t n)
{
    uint64_t value = 0;
    for (size_t i = n; i > 0; i--) {
        value = value << 8 | (unsigned char)bytes[i - 1];
    }
    return value;
}

bool sp_i_is_prose(const char *text)
{
    const char *blank = strchr(text, ' ');
    return blank != NULL && isalpha((unsigned char)text[0]) && isalpha((unsigned char)blank[1]);
}

sp_status sp_i_wrong(sp_i_reader *reader, const char *where, const char *format, ...)
{
    char text[SP_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return where != NULL
               ? sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, where, "%s", text)
               : sp_error_at(reader->err, SP_ERR_CONTENT, reader->source, reader->line, 0, "%s",
                             text);
}

// Of the objects d of a file; its quotes are those of a shell.
#define COUNT_TOKENS(ids, objects)                                                             \
    "'python3 -c \"import json, sys, transformers as t; "                                      \
    "k = t.AutoTokenizer.from_pretrained(sys.argv[1]); [print(len(" ids ")) for d in " objects \
    "]\""

sp_status sp_i_refuse_texts(sp_i_reader *reader, const char *keys, bool chat, bool array)
{
    static const char texts[] =
        COUNT_TOKENS("k(str().join(d[x] for x in sys.argv[2:])).input_ids", "%s");
    static const char messages[] =
        COUNT_TOKENS("k.apply_chat_template(d[sys.argv[2]], return_dict=False)", "%s");
    char command[sizeof texts + sizeof messages];
    snprintf(command, sizeof command, chat ? messages : texts,
             array ? "json.load(sys.stdin)" : "map(json.loads, sys.stdin)");
    return sp_i_wrong(reader, NULL,
                      "holds %s (%s), which have as many tokens as their tokenizer makes of them: "
                      "write these once by %s MODEL %s <%s >lengths.txt' and give lengths.txt",
                      chat ? "messages" : "texts", keys, command, keys, reader->source);
}

sp_status sp_i_refuse(sp_i_reader *reader, const char *where, const char *found)
{
    static const char prose[] =
        "expected a length from 1 to %d, got %s: text has as many tokens as its tokenizer makes of "
        "it, which is not read (nor are characters or bytes counted): write them once, such as "
        "by " COUNT_TOKENS("k(d[sys.argv[2]]).input_ids",
                           "map(json.loads, sys.stdin)") " MODEL KEY <FILE.jsonl "
                                                         ">lengths.txt'";
    char plain[128] = "expected a length from 1 to %d, got %s";
    char word[SP_I_QUOTE] = "";
    int64_t tokens = 0;
    const char *unquoted = found + (found[0] == '"');
    snprintf(word, sizeof word, "%.*s", (int)strcspn(unquoted, "\""), unquoted);
    if (strpbrk(word, "kKmM") != NULL && sp_tokens_from_text(word, &tokens) && tokens > 0) {
        sp_append(plain, sizeof plain, ": write %lld", (long long)tokens);
    } else if (strchr(word, ',') != NULL) {
        sp_append(plain, sizeof plain, ": write one a line, or [%s]", word);
    }
    reader->refused++;
    bool last = reader->refused == SP_ERROR_MESSAGES;
    if (last) {
        sp_append(plain, sizeof plain, "; the rest is not read: %s",
                  reader->column != NULL ? "is the column right?" : "are these lengths?");
    }
    // Numbers with a unit, dates or a header are something else.
    bool prose_found = found[0] == '"' && sp_i_is_prose(unquoted);
    sp_status status =
        sp_i_wrong(reader, where, prose_found ? prose : plain, (int)SP_MAX_LENGTH_TOKENS, found);
    // A file that begins with something else is most likely no list of lengths at all: one message
    // says so better than ten.
    bool hopeless = reader->lengths->count == 0 || last;
    return hopeless ? status : SP_OK;
}

void sp_quote(const char *text, size_t n, char out[SP_I_QUOTE])
{
    static const char digits[] = "0123456789abcdef";
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        bool plain = c >= ' ' && c <= '~';
        // Room for this character, "..." and the terminator.
        if (used + (plain ? 1 : 4) + 4 > SP_I_QUOTE) {
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        if (plain) {
            out[used++] = text[i];
        } else {
            out[used++] = '\\';
            out[used++] = 'x';
            out[used++] = digits[c >> 4];
            out[used++] = digits[c & 15];
        }
    }
    out[used] = '\0';
}

static int find_name(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

// "a, b, c", cut at LISTED_NAMES.
static void list_names(const char *const *names, int count, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < count && i < LISTED_NAMES && used + SP_I_QUOTE + 8 < bytes; i++) {
        char quoted[SP_I_QUOTE];
        sp_quote(names[i], strlen(names[i]), quoted);
        bool last = i + 1 == count;
        used += (size_t)snprintf(out + used, bytes - used, last ? "%s" : "%s, ", quoted);
        if (!last && (i + 1 == LISTED_NAMES || used + SP_I_QUOTE + 8 >= bytes)) {
            snprintf(out + used, bytes - used, "...");
        }
    }
}

static sp_status refuse_twice(sp_i_reader *reader, const char *what, const char *const *names,
                              int count, int chosen)
{
    for (int i = chosen + 1; i < count; i++) {
        if (strcmp(names[i], names[chosen]) == 0) {
            return sp_i_wrong(reader, NULL, "%s '%s' stands there twice", what, names[chosen]);
        }
    }
    return SP_OK;
}

sp_status sp_i_choose_column(sp_i_reader *reader, const char *what, const char *const *names,
                             int count, int *chosen)
{
    char listed[SP_ERROR_TEXT / 2];
    *chosen = -1;
    if (reader->column != NULL) {
        *chosen = find_name(reader->column, names, count);
        if (*chosen >= 0) {
            return refuse_twice(reader, what, names, count, *chosen);
        }
        const char *near = sp_nearest_name(reader->column, names, count);
        if (near != NULL) {
            char quoted[SP_I_QUOTE];
            sp_quote(near, strlen(near), quoted);
            return sp_i_wrong(reader, NULL, "no %s '%s' (did you mean '%s'?)", what, reader->column,
                              quoted);
        }
        list_names(names, count, listed, sizeof listed);
        return sp_i_wrong(reader, NULL, "no %s '%s' (there are: %s)", what, reader->column, listed);
    }
    if (count == 1) {
        *chosen = 0;
    }
    int found = 0;
    for (int i = 0; i < COLUMN_NAMES; i++) {
        int column = find_name(column_names[i], names, count);
        found += column >= 0 && i < NUMBER_NAMES;
        *chosen = *chosen < 0 ? column : *chosen;
    }
    for (size_t i = 0; *chosen >= 0 && i < sizeof count_names / sizeof count_names[0]; i++) {
        if (find_name(count_names[i], names, count) >= 0) {
            return sp_i_wrong(reader, NULL,
                              "%s '%s': a histogram is not read, expected a line for each "
                              "document; with a column "
                              "named it is one: " SP_I_NAME_COLUMN,
                              what, count_names[i]);
        }
    }
    if (*chosen >= 0 && found <= 1) {
        return refuse_twice(reader, what, names, count, *chosen);
    }
    if (find_name("workload", names, count) >= 0) {
        return sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, NULL,
                           "expected lengths, got a scenario: name its workload.lengths");
    }
    list_names(names, count, listed, sizeof listed);
    return sp_i_wrong(reader, NULL,
                      "which %s holds the lengths? (there are: %s): " SP_I_NAME_COLUMN, what,
                      listed);
}

sp_status sp_i_refuse_column(sp_i_reader *reader, const char *what)
{
    return reader->column == NULL
               ? SP_OK
               : sp_error_in(reader->err, SP_ERR_CONTENT, reader->source, NULL,
                             "no column '%s' in %s: CSV, TSV and JSON objects have columns",
                             reader->column, what);
}
