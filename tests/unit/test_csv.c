// Comma-separated tables: quotes, places of cells, mistakes and limits.

#include "sim/base/csv.h"
#include "tests/support/test_main.h"

static void must_read_csv(const char *text, size_t bytes, sp_csv *csv)
{
    must_succeed(sp_csv_read_text(text, bytes, "t.csv", csv, ERR));
}

static void assert_cell(const sp_csv_cell *cell, const char *text, int line, int column)
{
    assert_string_equal(cell->text, text);
    assert_int_equal(cell->line, line);
    assert_int_equal(cell->column, column);
}

// RFC 4180, section 2, points 1 to 7, with a byte order mark, an empty line and blanks.
TEST(csv_quoting)
{
    static const char text[] = "\xef\xbb\xbf"
                               "aaa,\"b\"\"bb\",ccc\r\n"
                               "\r\n"
                               "\"b\r\nbb\", y ,\"\"\n"
                               "1,,\"x,y\"";
    AUTO(sp_csv) csv;
    must_read_csv(text, sizeof text - 1, &csv);
    assert_int_equal(csv.columns, 3);
    assert_int_equal(csv.rows, 2);
    assert_cell(sp_csv_header(&csv, 0), "aaa", 1, 1);
    assert_cell(sp_csv_header(&csv, 1), "b\"bb", 1, 5);
    assert_cell(sp_csv_header(&csv, 2), "ccc", 1, 13);
    assert_cell(sp_csv_at(&csv, 0, 0), "b\r\nbb", 3, 1);
    assert_cell(sp_csv_at(&csv, 0, 1), "y", 4, 6);
    assert_cell(sp_csv_at(&csv, 0, 2), "", 4, 9);
    assert_cell(sp_csv_at(&csv, 1, 0), "1", 5, 1);
    assert_cell(sp_csv_at(&csv, 1, 1), "", 5, 3);
    assert_cell(sp_csv_at(&csv, 1, 2), "x,y", 5, 4);
}

enum { MOST_CELLS = 64, CELL = 16, FILE_BYTES = 4096 };

// A random cell of letters and of everything that needs quotes; never empty, so that no row looks
// like an empty line.
static void random_cell(sp_prng *prng, char cell[CELL])
{
    static const char letters[] = "ab,\"\r\n c\t";
    size_t length = 1 + (size_t)sp_prng_below(prng, 7);
    for (size_t i = 0; i < length; i++) {
        cell[i] = letters[sp_prng_below(prng, sizeof letters - 1)];
    }
    cell[length] = '\0';
}

static size_t write_cell(char *out, const char *cell, bool quoted)
{
    size_t used = 0;
    out[used] = '"';
    used += quoted;
    for (const char *c = cell; *c != '\0'; c++) {
        out[used] = '"';
        used += quoted && *c == '"';
        out[used++] = *c;
    }
    out[used] = '"';
    return used + quoted;
}

// What is written with quotes wherever they are needed, and sometimes elsewhere, comes back.
TEST_ROUNDS(csv_round_trip, 4180, 300)
{
    static char file[FILE_BYTES];
    char cells[MOST_CELLS][CELL];
    int columns = 1 + prng_below(prng, 6);
    int rows = 1 + prng_below(prng, 6);
    size_t bytes = 0;
    const char *line_end = sp_prng_below(prng, 2) == 0 ? "\n" : "\r\n";
    for (int i = 0; i < (rows + 1) * columns; i++) {
        if (i < columns) {
            snprintf(cells[i], CELL, "n%d", i);
        } else {
            random_cell(prng, cells[i]);
        }
        bool needed = strpbrk(cells[i], ",\"\r\n \t") != NULL;
        bytes += write_cell(file + bytes, cells[i], needed || sp_prng_below(prng, 3) == 0);
        const char *after = (i + 1) % columns == 0 ? line_end : ",";
        memcpy(file + bytes, after, strlen(after));
        bytes += strlen(after);
    }
    AUTO(sp_csv) csv;
    must_read_csv(file, bytes - (sp_prng_below(prng, 2) == 0 ? strlen(line_end) : 0), &csv);
    assert_int_equal(csv.columns, columns);
    assert_int_equal(csv.rows, rows);
    for (int i = columns; i < (rows + 1) * columns; i++) {
        assert_string_equal(sp_csv_at(&csv, (size_t)(i / columns - 1), i % columns)->text,
                            cells[i]);
    }
}

TEST(csv_errors)
{
    static const struct {
        const char *text;
        sp_status status;
        const char *place;
    } cases[] = {
        {"", SP_ERR_CONTENT, "t.csv: is empty"},
        {"\n\r\n", SP_ERR_CONTENT, "t.csv: is empty"},
        {"a,b\n1,\"2\n3,4\n", SP_ERR_SYNTAX, "t.csv:2:3: "},
        {"a,b\n1,\"2\"3\n", SP_ERR_SYNTAX, "t.csv:2:6: "},
        {"a,b\n1,2\"\n", SP_ERR_SYNTAX, "t.csv:2:4: "},
        {"a,b,c\n1,2,3\n1,2\n", SP_ERR_CONTENT, "t.csv:3: "},
        {"a,b\n1,2,3,4\n", SP_ERR_CONTENT, "t.csv:2:5: "},
        {"a,b,a\n1,2,3\n", SP_ERR_CONTENT, "t.csv:1:5: "},
        {"a,,b\n", SP_ERR_CONTENT, "t.csv:1:3: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_csv read;
        must_fail_with(sp_csv_read_text(cases[i].text, strlen(cases[i].text), "t.csv", &read, ERR),
                       cases[i].status, cases[i].place);
        assert_int_equal(ERR->count, 1);
        assert_null(read.cells);
    }
    sp_csv csv;
    must_fail_with(sp_csv_read_text("a\0b", 3, "t.csv", &csv, ERR), SP_ERR_SYNTAX, "");
}

TEST(csv_limits)
{
    char header[4 * SP_CSV_COLUMNS];
    sp_csv csv;
    for (int extra = 0; extra < 2; extra++) {
        size_t bytes = 0;
        for (int c = 0; c < SP_CSV_COLUMNS + extra; c++) {
            header[bytes++] = (char)(c % 2 == 0 ? 'a' : 'b');
            header[bytes++] = ',';
        }
        sp_error_clear(ERR);
        // Names stand twice, which is only looked at within the limit.
        assert_int_equal(sp_csv_read_text(header, bytes - 1, "t.csv", &csv, ERR),
                         extra == 0 ? SP_ERR_CONTENT : SP_ERR_LIMIT);
    }
    size_t most = 2 * (SP_CSV_ROWS + 2);
    AUTO_FREE char *rows = sp_malloc(most);
    for (size_t i = 0; i < most; i++) {
        rows[i] = i % 2 == 0 ? '1' : '\n';
    }
    must_succeed(sp_csv_read_text(rows, most - 2, "t.csv", &csv, ERR));
    assert_int_equal(csv.rows, SP_CSV_ROWS);
    sp_csv_fini(&csv);
    assert_int_equal(sp_csv_read_text(rows, most, "t.csv", &csv, ERR), SP_ERR_LIMIT);
}
