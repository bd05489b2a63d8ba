// CSV and TSV: a header line, one named column holds the lengths.
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/csv.h"
#include "sim/workload/length_reader.h"

typedef struct csv_table {
    char *text;         // the names, each with a terminator
    const char **names; // into text
    int columns;
    int chosen;
} csv_table;

static sp_status read_table(sp_i_reader *reader, char delimiter);

sp_status sp_i_lengths_read_csv(sp_i_reader *reader)
{
    return read_table(reader, ',');
}

sp_status sp_i_lengths_read_tsv(sp_i_reader *reader)
{
    return read_table(reader, '\t');
}

static sp_status count_fields(sp_i_reader *reader, sp_csv_record record, int *count)
{
    sp_csv_field field;
    *count = 0;
    while (record.at != NULL) {
        sp_status status = sp_csv_next_field(&record, &field, reader->err);
        if (status != SP_OK) {
            return status;
        }
        (*count)++;
    }
    return SP_OK;
}

static sp_status read_header(sp_i_reader *reader, sp_csv_record record, csv_table *table)
{
    sp_csv_field field;
    sp_status status = count_fields(reader, record, &table->columns);
    if (status != SP_OK) {
        return status;
    }
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
        return sp_error_at(reader->err, SP_ERR_CONTENT, reader->source, reader->line, 0,
                           "expected a line of column names, got \"%s\" (plain text, one length "
                           "per line, is read from a .txt file)",
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
        sp_status status = sp_csv_next_field(&record, &field, reader->err);
        if (status != SP_OK) {
            return status;
        }
        if (fields == table->chosen) {
            chosen = field;
        }
    }
    // A comma too many would move another column's numbers into ours without a word.
    if (fields != table->columns) {
        return sp_error_at(reader->err, SP_ERR_CONTENT, reader->source, reader->line, 0,
                           "expected %d fields as in the first line, got %d", table->columns,
                           fields);
    }
    int64_t tokens = 0;
    if (sp_parse_length(chosen.text, chosen.bytes, &tokens)) {
        sp_lengths_append(reader->lengths, tokens, NULL);
        return SP_OK;
    }
    char quoted[SP_I_QUOTE];
    char found[SP_I_QUOTE + 2];
    sp_quote(chosen.text, chosen.bytes, quoted);
    snprintf(found, sizeof found, "\"%s\"", quoted);
    return sp_i_refuse(reader, NULL, found);
}

static sp_status read_table(sp_i_reader *reader, char delimiter)
{
    csv_table table = {0};
    sp_status status = SP_OK;
    while (status == SP_OK) {
        sp_csv_record record = {.delimiter = delimiter, .source = reader->source};
        size_t n = 0;
        status = sp_i_reader_line(reader, delimiter, &record.at, &n);
        if (status != SP_OK || record.at == NULL) {
            break;
        }
        record.end = record.at + n;
        record.line = reader->line;
        record.line_begin = record.at;
        if (n == 0) {
            continue;
        }
        status = table.names == NULL ? read_header(reader, record, &table)
                                     : read_row(reader, record, &table);
    }
    sp_free(table.names);
    sp_free(table.text);
    return status;
}
