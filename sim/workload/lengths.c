// Reads a list of lengths from a file: finds its format, and reads text and CSV itself.
#include "sim/workload/lengths.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/csv.h"
#include "sim/base/data_folder.h"
#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/workload/length_reader.h"

// ---- plain text: one integer per line, blank lines and comments (#) are passed over ----

static bool is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] != ' ' && text[i] != '\t') {
            return false;
        }
    }
    return true;
}

static sp_status refuse_text(sp_i_reader *reader, const char *text, size_t n)
{
    char quoted[SP_I_QUOTE];
    char found[SP_I_QUOTE + 2];
    sp_quote(text, n, quoted);
    snprintf(found, sizeof found, "\"%s\"", quoted);
    return sp_i_refuse(reader, NULL, found);
}

static sp_status read_text(sp_i_reader *reader)
{
    for (;;) {
        const char *line = NULL;
        size_t n = 0;
        sp_status status = sp_i_reader_line(reader, '\0', &line, &n);
        if (status != SP_OK || line == NULL) {
            return status;
        }
        int64_t tokens = 0;
        if (sp_parse_length(line, n, &tokens)) {
            sp_lengths_append(reader->lengths, tokens);
        } else if (!is_blank(line, n) && line[0] != '#') {
            status = refuse_text(reader, line, n);
        }
        if (status != SP_OK) {
            return status;
        }
    }
}

// ---- CSV and TSV: a header line, one named column holds the lengths ----

typedef struct csv_table {
    char *text;         // the names, each with a terminator
    const char **names; // into text
    int columns;
    int chosen;
} csv_table;

static sp_status count_fields(sp_i_reader *reader, sp_csv_record record, int *count)
{
    sp_csv_field field;
    *count = 0;
    while (record.at != NULL) {
        SP_TRY(sp_csv_next_field(&record, &field, reader->err));
        (*count)++;
    }
    return SP_OK;
}

static sp_status read_names(sp_i_reader *reader, sp_csv_record record, csv_table *table)
{
    sp_csv_field field;
    SP_TRY(count_fields(reader, record, &table->columns));
    sp_status status = SP_OK;
    // One terminator for each field takes the place of its delimiter.
    table->text = sp_malloc((size_t)(record.end - record.at) + 1);
    table->names = sp_calloc((size_t)table->columns, sizeof *table->names);
    char *out = table->text;
    bool numbers = true;
    for (int i = 0; i < table->columns; i++) {
        int64_t tokens = 0;
        status = sp_csv_next_field(&record, &field, reader->err);
        SP_ASSERT(status == SP_OK);
        numbers = numbers && sp_parse_length(field.text, field.bytes, &tokens);
        table->names[i] = out;
        out = sp_csv_copy_field(&field, out);
    }
    if (numbers) {
        char quoted[SP_I_QUOTE];
        sp_quote(table->names[0], strlen(table->names[0]), quoted);
        return sp_i_wrong(reader, NULL,
                          "expected a line of column names, got \"%s\" (plain text, one length per "
                          "line, is read from a .txt file)",
                          quoted);
    }
    return sp_i_choose_column(reader, "column", table->names, table->columns, &table->chosen);
}

static sp_status read_row(sp_i_reader *reader, sp_csv_record record, const csv_table *table)
{
    sp_csv_field field;
    sp_csv_field chosen = {0};
    int fields = 0;
    for (; record.at != NULL; fields++) {
        SP_TRY(sp_csv_next_field(&record, &field, reader->err));
        if (fields == table->chosen) {
            chosen = field;
        }
    }
    // A comma too many would move another column's numbers into ours without a word.
    if (fields != table->columns) {
        return sp_i_wrong(reader, NULL, "expected %d fields as in the first line, got %d",
                          table->columns, fields);
    }
    int64_t tokens = 0;
    if (sp_parse_length(chosen.text, chosen.bytes, &tokens)) {
        sp_lengths_append(reader->lengths, tokens);
        return SP_OK;
    }
    return refuse_text(reader, chosen.text, chosen.bytes);
}

static sp_status read_table(sp_i_reader *reader, char delimiter)
{
    csv_table table = {0};
    sp_status status = SP_OK;
    while (status == SP_OK) {
        sp_csv_record record = {.delimiter = delimiter, .source = reader->source};
        size_t n = 0;
        status = sp_i_reader_line(reader, delimiter, &record.at, &n);
        if (status == SP_OK && record.at != NULL && table.names == NULL) {
            delimiter = sp_csv_delimiter(record.at, n, delimiter);
            record.delimiter = delimiter;
        }
        if (status != SP_OK || record.at == NULL) {
            break;
        }
        record.end = record.at + n;
        record.line = reader->line;
        record.line_begin = record.at;
        if (n == 0) {
            continue;
        }
        status = table.names == NULL ? read_names(reader, record, &table)
                                     : read_row(reader, record, &table);
    }
    sp_free(table.names);
    sp_free(table.text);
    return status;
}

// ---- files and formats ----

static sp_i_length_format format_of_name(const char *path)
{
    static const struct {
        const char *suffix;
        sp_i_length_format format;
    } suffixes[] = {
        {".txt", SP_I_LENGTHS_TEXT},     {".csv", SP_I_LENGTHS_CSV},
        {".tsv", SP_I_LENGTHS_TSV},      {".jsonl", SP_I_LENGTHS_JSONL},
        {".ndjson", SP_I_LENGTHS_JSONL}, {".json", SP_I_LENGTHS_JSON},
        {".npy", SP_I_LENGTHS_NPY},      {".idx", SP_I_LENGTHS_MEGATRON},
    };
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot != NULL && i < sizeof suffixes / sizeof suffixes[0]; i++) {
        const char *suffix = suffixes[i].suffix;
        size_t n = strlen(suffix);
        size_t same = 0;
        while (same < n) {
            char c = dot[same];
            char lower = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
            if (lower != suffix[same]) {
                break;
            }
            same++;
        }
        if (same == n && dot[n] == '\0') {
            return suffixes[i].format;
        }
    }
    return SP_I_LENGTHS_ANY;
}

// Megatron-LM names a pair of files by their common beginning, and the tokens lie in its .bin.
static bool index_beside(const char *path, char index[SP_DATA_PATH])
{
    size_t length = strlen(path);
    bool is_tokens = length > 4 && strcmp(path + length - 4, ".bin") == 0;
    int bytes =
        snprintf(index, SP_DATA_PATH, "%.*s.idx", (int)(is_tokens ? length - 4 : length), path);
    return length < SP_DATA_PATH && bytes < SP_DATA_PATH && (is_tokens || !sp_is_file(path)) &&
           sp_is_file(index);
}

bool sp_lengths_are_there(const char *path)
{
    char index[SP_DATA_PATH];
    return sp_is_file(path) || index_beside(path, index);
}

sp_status sp_lengths_read(const char *path, const char *column, sp_lengths *lengths, sp_error *err)
{
    char index[SP_DATA_PATH];
    *lengths = (sp_lengths){0};
    path = index_beside(path, index) ? index : path;
    FILE *file;
    SP_TRY(sp_input_open(path, &file, err));
    sp_status status =
        sp_i_lengths_read_stream(file, format_of_name(path), path, column, lengths, err);
    fclose(file);
    return status;
}

static bool begins_with(const sp_i_reader *reader, const char *magic, size_t n)
{
    return reader->end - reader->begin >= n &&
           memcmp(reader->buffer + reader->begin, magic, n) == 0;
}

static char first_letter(const sp_i_reader *reader)
{
    for (size_t i = reader->begin; i < reader->end; i++) {
        if (!sp_i_is_space(reader->buffer[i])) {
            return reader->buffer[i];
        }
    }
    return '\0';
}

// Text, CSV or TSV, by the first line that is neither blank nor a comment.
static sp_i_length_format format_of_line(const sp_i_reader *reader)
{
    const char *text = reader->buffer + reader->begin;
    const char *end = reader->buffer + reader->end;
    while (text < end && (sp_i_is_space(*text) || *text == '#')) {
        const char *newline = *text == '#' ? memchr(text, '\n', (size_t)(end - text)) : text;
        text = newline == NULL ? end : newline + 1;
    }
    const char *newline = memchr(text, '\n', (size_t)(end - text));
    size_t n = (size_t)((newline == NULL ? end : newline) - text);
    if (memchr(text, '\t', n) != NULL) {
        return SP_I_LENGTHS_TSV;
    }
    return memchr(text, ',', n) != NULL ? SP_I_LENGTHS_CSV : SP_I_LENGTHS_TEXT;
}

static sp_i_length_format format_of_content(const sp_i_reader *reader)
{
    if (begins_with(reader, "\x93NUMPY", 6)) {
        return SP_I_LENGTHS_NPY;
    }
    if (begins_with(reader, "MMIDIDX", 7)) {
        return SP_I_LENGTHS_MEGATRON;
    }
    switch (first_letter(reader)) {
    case '[':
        return SP_I_LENGTHS_JSON;
    case '{':
        return SP_I_LENGTHS_JSONL;
    default:
        return format_of_line(reader);
    }
}

static sp_status read_as(sp_i_reader *reader, sp_i_length_format format)
{
    static const struct {
        const char *magic;
        const char *what;
    } others[] = {
        {"\x1f\x8b", "is compressed (gzip): unpack it first"},
        {"\x28\xb5\x2f\xfd", "is compressed (zstd): unpack it first"},
        {"PK\x03\x04", "is an archive (zip, .npz): unpack it first"},
        {"PAR1", "is Parquet, which is not read: write the lengths as .npy, CSV or JSONL"},
        {"ARROW1", "is Arrow, which is not read: write the lengths as .npy, CSV or JSONL"},
    };
    if (reader->begin == reader->end) {
        return SP_OK; // holds no lengths
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (begins_with(reader, others[i].magic, strlen(others[i].magic))) {
            return sp_error_set(reader->err, SP_ERR_CONTENT, "%s: %s", reader->source,
                                others[i].what);
        }
    }
    if (begins_with(reader, "\xef\xbb\xbf", 3)) {
        reader->begin += 3;
    }
    if (format == SP_I_LENGTHS_ANY) {
        format = format_of_content(reader);
    }
    sp_status status = SP_OK;
    switch (format) {
    case SP_I_LENGTHS_CSV:
        return read_table(reader, ',');
    case SP_I_LENGTHS_TSV:
        return read_table(reader, '\t');
    case SP_I_LENGTHS_JSON:
        // JSON lines often carry the name .json.
        return first_letter(reader) == '[' ? sp_i_lengths_read_json(reader)
                                           : sp_i_lengths_read_jsonl(reader);
    case SP_I_LENGTHS_JSONL:
        return sp_i_lengths_read_jsonl(reader);
    case SP_I_LENGTHS_NPY:
        status = sp_i_refuse_column(reader, "a NumPy array");
        return status == SP_OK ? sp_i_lengths_read_npy(reader) : status;
    case SP_I_LENGTHS_MEGATRON:
        status = sp_i_refuse_column(reader, "a Megatron-LM index");
        return status == SP_OK ? sp_i_lengths_read_megatron(reader) : status;
    case SP_I_LENGTHS_TEXT:
    case SP_I_LENGTHS_ANY:
        break;
    }
    status = sp_i_refuse_column(reader, "plain text");
    return status == SP_OK ? read_text(reader) : status;
}

sp_status sp_i_lengths_read_stream(FILE *stream, sp_i_length_format format, const char *source,
                                   const char *column, sp_lengths *lengths, sp_error *err)
{
    *lengths = (sp_lengths){0};
    sp_i_reader reader = {
        .stream = stream, .source = source, .column = column, .lengths = lengths, .err = err};
    sp_status status = sp_i_reader_init(&reader);
    if (status != SP_OK) {
        goto out;
    }
    status = read_as(&reader, format);
    if (status == SP_OK && reader.refused > 0) {
        status = SP_ERR_CONTENT;
    }
    if (status == SP_OK && lengths->count == 0) {
        status = sp_error_set(err, SP_ERR_CONTENT, "%s: %sholds no lengths", source,
                              reader.bytes == 0 ? "is empty, " : "");
    }
    if (status == SP_OK) {
        sp_i_lengths_trim(lengths);
    }
out:
    sp_i_reader_fini(&reader);
    if (status != SP_OK) {
        sp_lengths_fini(lengths);
    }
    return status;
}
