// The screen that people read: lines no wider than it, no more of them than it holds, few warnings
// in short, and tables by their columns, for people, as Markdown or as CSV.
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"

enum {
    USUAL_COLUMNS = 100, // where nothing says how wide the screen is
    LEAST_COLUMNS = 40,
    TEXT_COLUMNS = 80, // of help and of --wide, in which nothing depends on the screen
    ALL_LINES = 40,    // of an answer and its warnings
    MOST_LINES = 36,   // of an answer
    WARNINGS_SHOWN = 3,
    HANGING_COLUMNS = 24, // a label before two blanks is at most so long
    CELL = 64,
    HEADS = 512,
    MOST_HIDDEN = 64, // columns that can be left out: bits of a number
};

static struct {
    bool active; // prints for people, and not --wide
    bool wide;   // --wide is given
    bool whole;  // errors are one line each: --wide, or a program reads them (--json)
    bool markdown, csv, quiet;
    int columns;
    char *pending;   // printed since the last whole line; owned
    char *held;      // the last that has place, which gives way where another comes
    int lines, more; // printed, and those that were not
    int warnings, warnings_shown;
    int warning_lines;
    int reserved; // lines that the answer leaves to the first warning beyond one
    int end;      // lines that it leaves to its own end
    bool warnings_cut, whole_told;
    char heads[HEADS], left_out[HEADS]; // of the table before
    int tables;
} screen;

// ---- lines ----

// Characters of a UTF-8 text: bytes that do not continue one.
static int characters(const char *text, size_t bytes)
{
    int count = 0;
    for (size_t i = 0; i < bytes; i++) {
        count += ((unsigned char)text[i] & 0xC0u) != 0x80u;
    }
    return count;
}

static int most_lines(void)
{
    return MOST_LINES - screen.reserved - screen.end;
}

static void put_line(const char *line, int indent)
{
    char *whole = sp_malloc(strlen(line) + (size_t)indent + 1);
    memset(whole, ' ', (size_t)indent);
    memcpy(whole + indent, line, strlen(line) + 1);
    screen.lines++;
    if (screen.lines < most_lines()) {
        (fputs)(whole, stdout);
        (putc)('\n', stdout);
        sp_free(whole);
    } else if (screen.lines == most_lines()) {
        screen.held = whole;
    } else {
        screen.more++;
        sp_free(whole);
    }
}

// Bytes of the text's beginning that have place in so many columns, up to a blank if there is one;
// a long word is parted behind a comma or anywhere.
static size_t bytes_that_fit(const char *text, int columns)
{
    size_t bytes = 0;
    size_t blank = 0;
    size_t comma = 0;
    int used = 0;
    for (; text[bytes] != '\0'; bytes++) {
        used += ((unsigned char)text[bytes] & 0xC0u) != 0x80u;
        if (used > columns + (text[bytes] == ' ')) {
            break;
        }
        blank = text[bytes] == ' ' && bytes > 0 && text[bytes - 1] != ' ' ? bytes : blank;
        comma = text[bytes] == ',' ? bytes + 1 : comma;
    }
    return text[bytes] == '\0' ? bytes : blank > 0 ? blank : comma > 0 ? comma : bytes;
}

// Lines that go on do so under their text: behind a label ("  time    compute 12"), or two columns
// further in.
static int hanging_indent(const char *line)
{
    int start = (int)strspn(line, " ");
    const char *gap = strstr(line + start, "  ");
    int text = gap != NULL ? (int)(gap - line) + (int)strspn(gap, " ") : 0;
    return text > 0 && text <= HANGING_COLUMNS ? text
           : start + 2 <= HANGING_COLUMNS      ? start + 2
                                               : 2;
}

static void fold(const char *line)
{
    int indent = 0;
    int hanging = hanging_indent(line);
    while (characters(line, strlen(line)) > screen.columns - indent) {
        size_t bytes = bytes_that_fit(line, screen.columns - indent);
        char *part = sp_malloc(bytes + 1);
        memcpy(part, line, bytes);
        part[bytes] = '\0';
        put_line(part, indent);
        sp_free(part);
        line += bytes;
        line += strspn(line, " ");
        indent = hanging;
    }
    if (line[0] != '\0' || indent == 0) {
        put_line(line, indent);
    }
}

// Whole lines go to the screen, the rest waits.
static void add_pending(const char *text)
{
    size_t before = screen.pending != NULL ? strlen(screen.pending) : 0;
    char *whole = sp_malloc(before + strlen(text) + 1);
    memcpy(whole, screen.pending != NULL ? screen.pending : "", before);
    memcpy(whole + before, text, strlen(text) + 1);
    char *line = whole;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        fold(line);
    }
    sp_free(screen.pending);
    screen.pending = sp_strdup(line);
    sp_free(whole);
}

// As sp_vprint(), in memory; the caller frees it with sp_free().
static char *print_text(const char *format, va_list args, int *used)
{
    sp_text text;
    *used = sp_vprint(sp_text_begin(&text), format, args);
    return sp_text_end(&text);
}

static bool is_screen(FILE *out)
{
    return screen.active && out == stdout;
}

// With --csv and --markdown tables alone go to standard output. What else people are told goes to
// standard error then, or with --quiet nowhere (NULL).
static FILE *stream_of(FILE *out)
{
    bool only_tables = screen.csv || screen.markdown;
    return !only_tables || out != stdout ? out : screen.quiet ? NULL : stderr;
}

static int print_nothing(const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int used = vsnprintf(NULL, 0, format, again);
    va_end(again);
    return used;
}

int cli_vprint(FILE *out, const char *format, va_list args)
{
    FILE *stream = stream_of(out);
    if (stream == NULL) {
        return print_nothing(format, args);
    }
    if (!is_screen(out)) {
        return sp_vprint(stream, format, args);
    }
    int used = 0;
    char *text = print_text(format, args, &used);
    add_pending(text);
    sp_free(text);
    return used;
}

int cli_print(FILE *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int used = cli_vprint(out, format, args);
    va_end(args);
    return used;
}

int cli_put_text(FILE *out, const char *text)
{
    FILE *stream = stream_of(out);
    if (stream == NULL) {
        return 0;
    }
    if (!is_screen(out)) {
        return (fputs)(text, stream);
    }
    add_pending(text);
    return 0;
}

int cli_put_character(FILE *out, int character)
{
    const char text[2] = {(char)character, '\0'};
    return cli_put_text(out, text) < 0 ? EOF : character;
}

void cli_print_wrapped(FILE *out, const char *text, int column, int indent)
{
    int columns = is_screen(out) ? screen.columns : TEXT_COLUMNS;
    bool at_start = true;
    if (column < indent) {
        cli_print(out, "%*s", indent - column, "");
        column = indent;
    }
    while (*text != '\0') {
        if (strncmp(text, "\n\n", 2) == 0) {
            cli_print(out, "\n\n%*s", indent, "");
            column = indent;
            at_start = true;
            text += 2;
            continue;
        }
        size_t blanks = strspn(text, " \n");
        text += blanks;
        size_t bytes = strcspn(text, " \n");
        int word = characters(text, bytes);
        if (!at_start && column + 1 + word > columns) {
            cli_print(out, "\n%*s", indent, "");
            column = indent;
        } else if (!at_start) {
            cli_put_character(out, ' ');
            column++;
        }
        cli_print(out, "%.*s", (int)bytes, text);
        column += word;
        text += bytes;
        at_start = false;
    }
    cli_put_character(out, '\n');
}

// Blanks between quotes are of the word.
static size_t bytes_of_word(const char *command)
{
    size_t bytes = 0;
    for (bool quoted = false; command[bytes] != '\0' && (quoted || command[bytes] != ' ');
         bytes++) {
        const bool escaped = !quoted && command[bytes] == '\\' && command[bytes + 1] != '\0';
        quoted = quoted != (command[bytes] == '\'');
        bytes += escaped;
    }
    return bytes;
}

// A shell takes a line that ends in a backslash and the next one as one.
void cli_print_command(FILE *out, const char *command, int column, int indent)
{
    int columns = (is_screen(out) ? screen.columns : USUAL_COLUMNS) - 2;
    for (bool at_start = true; *command != '\0'; at_start = false) {
        size_t bytes = bytes_of_word(command);
        int word = characters(command, bytes);
        if (!at_start && column + 1 + word > columns) {
            column = cli_print(out, " \\\n%*s", indent, "") - 3;
        } else if (!at_start) {
            column += cli_print(out, " ");
        }
        cli_print(out, "%.*s", (int)bytes, command);
        column += word;
        command += bytes + strspn(command + bytes, " ");
    }
    cli_put_character(out, '\n');
}

// ---- the screen ----

int cli_columns(FILE *out)
{
    struct winsize size;
    if (isatty(fileno(out)) != 1) {
        return USUAL_COLUMNS;
    }
    const char *stated = getenv("COLUMNS");
    int columns = stated != NULL ? atoi(stated) : 0;
    if (columns <= 0 && ioctl(fileno(out), TIOCGWINSZ, &size) == 0) {
        columns = size.ws_col;
    }
    return columns >= LEAST_COLUMNS ? columns : columns > 0 ? LEAST_COLUMNS : USUAL_COLUMNS;
}

void cli_screen_begin(const cli_common *common, bool page)
{
    screen.csv = common->csv;
    screen.markdown = common->markdown;
    screen.quiet = common->quiet;
    screen.wide = common->wide;
    screen.columns = cli_columns(stdout);
    screen.active = !page && !common->json && !common->wide && !common->csv && !common->markdown;
    screen.whole = common->json || common->wide;
}

bool cli_is_wide(void)
{
    return !screen.active;
}

bool cli_is_csv(void)
{
    return screen.csv;
}

// ---- errors ----

void cli_errors_begin(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool whole = strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "--wide") == 0;
        screen.whole = screen.whole || whole;
    }
}

// A word, or what is copied as a whole: a quoted name or command ('slimpack help lengths'), and an
// option with its value.
static size_t whole_bytes(const char *text)
{
    static const char quotes[] = "'\"";
    size_t before = strspn(text, "(");
    size_t bytes = strcspn(text, " ");
    const char *quote = strchr(quotes, text[before]);
    const char *end = quote != NULL && *quote != '\0' ? strchr(text + before + 1, *quote) : NULL;
    if (end != NULL) {
        bytes = (size_t)(end - text) + strcspn(end, " ");
    }
    bool option = strncmp(text + before, "--", 2) == 0 && text[bytes] == ' ' &&
                  strchr(":,;)", text[bytes - 1]) == NULL;
    size_t value = option ? strcspn(text + bytes + 1, " ") : 0;
    bool is_value = memchr(text + bytes + 1, '=', value) != NULL;
    return is_value ? bytes + 1 + value : bytes;
}

void cli_print_error(const char *head, const char *text)
{
    int columns = cli_columns(stderr);
    int indent = characters(head, strlen(head));
    int column = indent;
    sp_print(stderr, "%s", head);
    if (screen.whole || column + characters(text, strlen(text)) <= columns) {
        sp_print(stderr, "%s\n", text);
        return;
    }
    for (size_t blanks = 0; *text != '\0'; blanks = strspn(text, " "), text += blanks) {
        size_t bytes = whole_bytes(text);
        int word = characters(text, bytes);
        if (blanks > 0 && column + (int)blanks + word > columns) {
            column = indent;
            sp_print(stderr, "\n%*s", indent, "");
        } else {
            column += (int)blanks;
            sp_print(stderr, "%*s", (int)blanks, "");
        }
        sp_print(stderr, "%.*s", (int)bytes, text);
        column += word;
        text += bytes;
    }
    sp_print(stderr, "\n");
}

// ---- warnings ----

// Lines that a warning may take: what the answer and a line for each of the others leave.
static int lines_for_warning(void)
{
    int answer = screen.lines < most_lines() ? screen.lines : most_lines();
    int others = WARNINGS_SHOWN - screen.warnings_shown;
    int lines = ALL_LINES - answer - screen.warning_lines - others;
    return lines < 1 ? 1 : lines;
}

static const char warning_head[] = "warning: ";

static int lines_of_warning(const char *text)
{
    int lines = 1;
    int columns = screen.columns - (int)strlen(warning_head);
    for (; characters(text, strlen(text)) > columns; lines++) {
        text += bytes_that_fit(text, columns);
        text += strspn(text, " ");
    }
    return lines;
}

void cli_leave_place(const char *text)
{
    screen.reserved = screen.active && !screen.quiet ? lines_of_warning(text) - 1 : 0;
}

void cli_leave_end(const char *command)
{
    enum { LEFT = 24 }; // of a line, at most, by the word that comes next
    screen.end =
        screen.active ? 2 + characters(command, strlen(command)) / (screen.columns - LEFT) : 0;
}

void cli_print_end(const char *command)
{
    const int most = most_lines();
    cli_put_character(stdout, '\n');
    cli_screen_flush();
    screen.lines = screen.lines < most ? screen.lines : most;
    screen.end = 0;
    cli_print_command(stdout, command, cli_print(stdout, "go on with: "), 4);
}

static void print_warning(const char *text, int lines)
{
    int columns = screen.columns - (int)strlen(warning_head);
    sp_print(stderr, "%s", warning_head);
    for (; characters(text, strlen(text)) > columns && lines > 1; lines--) {
        size_t bytes = bytes_that_fit(text, columns);
        sp_print(stderr, "%.*s\n%*s", (int)bytes, text, (int)strlen(warning_head), "");
        text += bytes;
        text += strspn(text, " ");
        screen.warning_lines++;
    }
    bool whole = characters(text, strlen(text)) <= columns;
    sp_print(stderr, whole ? "%.*s\n" : "%.*s ...\n",
             (int)bytes_that_fit(text, columns - (whole ? 0 : 4)), text);
    screen.warning_lines++;
    screen.warnings_shown++;
    screen.warnings_cut = screen.warnings_cut || !whole;
}

static void warn(bool whole, const char *format, va_list args)
{
    cli_screen_flush();
    if (!screen.active) {
        (fputs)("warning: ", stderr);
        sp_vprint(stderr, format, args);
        (putc)('\n', stderr);
        return;
    }
    bool first = whole && !screen.whole_told;
    screen.warnings++;
    screen.whole_told = screen.whole_told || whole;
    if (first || screen.warnings_shown < WARNINGS_SHOWN) {
        int used = 0;
        char *text = print_text(format, args, &used);
        if (!whole || first || lines_of_warning(text) <= lines_for_warning()) {
            print_warning(text, whole ? INT_MAX : lines_for_warning());
        }
        sp_free(text);
    }
}

void cli_warn(bool quiet, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!quiet) {
        warn(false, format, args);
    }
    va_end(args);
}

void cli_warn_whole(bool quiet, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!quiet) {
        warn(true, format, args);
    }
    va_end(args);
}

void cli_warn_all(bool quiet, const char *source, const json_t *texts)
{
    for (size_t i = 0; i < json_array_size(texts); i++) {
        cli_warn(quiet, "%s%s%s", source != NULL ? source : "", source != NULL ? ": " : "",
                 json_string_value(json_array_get(texts, i)));
    }
}

void cli_screen_flush(void)
{
    if (screen.more > 0) {
        sp_print(stdout, "... %d more line%s with --wide\n", screen.more + (screen.held != NULL),
                 sp_plural(screen.more + (screen.held != NULL)));
    } else if (screen.held != NULL) {
        sp_print(stdout, "%s\n", screen.held);
    }
    sp_free(screen.held);
    screen.held = NULL;
    screen.more = 0;
    fflush(stdout);
}

static void tell_of_warnings(void)
{
    int more = screen.warnings - screen.warnings_shown;
    if (more > 0) {
        sp_print(stderr, "warnings: %d more%s with --wide\n", more,
                 screen.warnings_cut ? ", and all in full," : "");
    } else if (screen.warnings_cut) {
        sp_print(stderr, "warnings: in full with --wide\n");
    }
}

void cli_screen_end(void)
{
    if (!screen.active) {
        return;
    }
    if (screen.pending != NULL && screen.pending[0] != '\0') {
        cli_put_text(stdout, "\n");
    }
    cli_screen_flush();
    screen.active = false;
    tell_of_warnings();
    sp_free(screen.pending);
}

void cli_put_whole(const char *text)
{
    cli_screen_flush();
    FILE *stream = stream_of(stdout);
    if (stream != NULL) {
        (fputs)(text, stream);
    }
}

// ---- tables ----

// A column of the text: WIDTH[~RANK] HEADING, or WIDTH[~RANK] @KEY[=HEADING].
typedef struct column {
    int width, rank; // width 0: as long as its cells, for which `rank` columns are kept
    char head[CELL]; // over the cells
    char key[CELL];  // of a figure, else the heading
    const sp_figure *figure;
} column;

// Reads the column at the beginning of the text; returns the rest of it, behind the bar.
static const char *read_column(const char *text, column *c)
{
    char *end = NULL;
    *c = (column){.width = (int)strtol(text, &end, 10)};
    bool ranked = *end == '~';
    c->rank = ranked ? (int)strtol(end + 1, &end, 10) : 0;
    text = end + 1;
    size_t name = strcspn(text, "|=");
    size_t bytes = strcspn(text, "|");
    snprintf(c->key, CELL, "%.*s", (int)name, text);
    snprintf(c->head, CELL, "%s", c->key);
    if (c->key[0] == '@') {
        memmove(c->key, c->key + 1, strlen(c->key));
        c->figure = sp_figure_find(c->key);
        snprintf(c->head, CELL, "%s", c->figure->label);
        c->rank = ranked ? c->rank : c->figure->rank;
    }
    if (name < bytes) {
        snprintf(c->head, CELL, "%.*s", (int)(bytes - name - 1), text + name + 1);
    }
    return text + bytes + (text[bytes] == '|');
}

static int columns_of(const column *c, bool first)
{
    int head = characters(c->head, strlen(c->head));
    int width = c->width != 0 ? abs(c->width) : 1 + (head > c->rank ? head : c->rank);
    return width + !first;
}

static bool is_hidden(const cli_table *table, int at)
{
    return at < MOST_HIDDEN && (table->hidden >> at & 1u) != 0;
}

static const char cut_mark[] = "...";
enum { LEAST_NAME = 16 };

// Columns that the rows take; the first of names (left-justified), -1: none.
static int columns_used(const cli_table *table, int *names)
{
    int used = 0;
    column c;
    const char *text = table->columns;
    *names = -1;
    for (int i = 0; *text != '\0' && i < MOST_HIDDEN; i++) {
        text = read_column(text, &c);
        if (!is_hidden(table, i)) {
            used += columns_of(&c, i == 0);
            *names = *names < 0 && c.width < 0 ? i : *names;
        }
    }
    return used;
}

// Names are cut where rows would be broken.
static void choose_cut(cli_table *table)
{
    column c = {0};
    int names = -1;
    const int over = columns_used(table, &names) - screen.columns;
    const char *text = table->columns;
    for (int i = 0; i <= names; i++) {
        text = read_column(text, &c);
    }
    if (over > 0 && names >= 0 && abs(c.width) - over >= LEAST_NAME) {
        table->cut = names;
        table->cut_width = abs(c.width) - over;
    }
}

// Leaves out the column with the largest rank, of those the last, until the rest has place.
static void choose_columns(cli_table *table)
{
    for (;;) {
        int used = 0;
        int worst = -1;
        int rank = 1;
        column c;
        const char *text = table->columns;
        for (int i = 0; *text != '\0' && i < MOST_HIDDEN; i++) {
            text = read_column(text, &c);
            if (is_hidden(table, i)) {
                continue;
            }
            used += columns_of(&c, i == 0);
            if (c.width != 0 && c.rank >= rank) {
                rank = c.rank;
                worst = i;
            }
        }
        if (used <= screen.columns || worst < 0) {
            return;
        }
        table->hidden |= UINT64_C(1) << worst;
    }
}

// Of CSV (RFC 4180), or of Markdown.
static void put_escaped(const char *text)
{
    bool quoted = screen.csv && text[strcspn(text, ",\"\n\r")] != '\0';
    (fputs)(quoted ? "\"" : "", stdout);
    for (; *text != '\0'; text++) {
        if (screen.csv ? *text == '"' : *text == '|') {
            (putc)(screen.csv ? '"' : '\\', stdout);
        }
        (putc)((unsigned char)*text < ' ' ? ' ' : *text, stdout);
    }
    (fputs)(quoted ? "\"" : "", stdout);
}

static void put_field(bool first, const char *text)
{
    (fputs)(screen.csv ? first ? "" : "," : first ? "| " : " | ", stdout);
    put_escaped(text + strspn(text, " "));
}

static void end_fields(void)
{
    (fputs)(screen.csv ? "\n" : " |\n", stdout);
}

// Files that a command writes have text.
static bool has_fields(const cli_table *table)
{
    return table->out == stdout && (screen.csv || screen.markdown);
}

static bool is_csv(const cli_table *table)
{
    return table->out == stdout && screen.csv;
}

// The next cell of a row, or of the heads.
static void put_cell(cli_table *table, const column *c, const char *text)
{
    if (is_hidden(table, table->at)) {
        // Not a cell of this table.
    } else if (has_fields(table)) {
        put_field(table->at == 0 && table->title == NULL, text);
    } else if (c->width == 0 && text[0] == '\0') {
        // No blanks at the end of a line.
    } else {
        const int width =
            table->cut_width > 0 && table->at == table->cut ? table->cut_width : abs(c->width);
        int columns = characters(text, strlen(text));
        size_t bytes = strlen(text);
        const char *mark = "";
        if (table->cut_width > 0 && table->at == table->cut && columns > width) {
            mark = cut_mark;
            bytes = bytes_that_fit(text, width - (int)strlen(cut_mark));
            columns = characters(text, bytes) + (int)strlen(cut_mark);
        }
        int blanks = width > columns ? width - columns : 0;
        bool left = c->width < 0;
        cli_print(table->out, "%s%*s%.*s%s%*s",
                  !table->begun   ? ""
                  : c->width == 0 ? "  "
                                  : " ",
                  left ? 0 : blanks, "", (int)bytes, text, mark, left ? blanks : 0, "");
        table->begun = true;
    }
    table->at++;
}

static void put_heads(cli_table *table)
{
    column c;
    if (is_csv(table) && table->title != NULL) {
        put_field(true, "table");
    }
    for (const char *text = table->columns; *text != '\0';) {
        text = read_column(text, &c);
        put_cell(table, &c, is_csv(table) ? c.key : c.head);
    }
}

static void put_rule(const cli_table *table)
{
    column c;
    const char *text = table->columns;
    (fputs)("|", stdout);
    for (int i = 0; *text != '\0'; i++) {
        text = read_column(text, &c);
        (fputs)(is_hidden(table, i) ? "" : c.width > 0 ? " ---: |" : " --- |", stdout);
    }
    (putc)('\n', stdout);
}

void cli_table_begin(cli_table *table, const char *columns, const char *title, int most)
{
    cli_table_begin_in(table, stdout, columns, title, most);
}

void cli_table_begin_in(cli_table *table, FILE *out, const char *columns, const char *title,
                        int most)
{
    *table = (cli_table){.out = out, .columns = columns, .title = title, .most = most};
    if (out != stdout) {
        put_heads(table);
        cli_put_text(out, "\n");
        return;
    }
    bool again = strcmp(screen.heads, columns) == 0;
    snprintf(screen.heads, sizeof screen.heads, "%s", columns);
    if (screen.csv && again && title != NULL) {
        return;
    }
    (fputs)((screen.csv || screen.markdown) && screen.tables++ > 0 ? "\n" : "", stdout);
    if (screen.markdown && title != NULL) {
        put_escaped(title);
        (fputs)("\n\n", stdout);
    }
    if (screen.active || (screen.markdown && !screen.wide)) {
        choose_columns(table);
    }
    if (screen.active) {
        choose_cut(table);
    }
    if (screen.markdown) {
        table->title = NULL;
    }
    put_heads(table);
    if (screen.csv || screen.markdown) {
        end_fields();
    } else {
        cli_put_text(stdout, "\n");
    }
    if (screen.markdown) {
        put_rule(table);
    }
}

bool cli_row_begin(cli_table *table)
{
    table->next = table->columns;
    table->at = 0;
    table->begun = false;
    table->rows++;
    table->passes = is_screen(table->out) && table->most > 0 && table->rows > table->most;
    if (is_csv(table) && table->title != NULL) {
        put_field(true, table->title);
    }
    return !table->passes;
}

static void put_next(cli_table *table, const char *text)
{
    column c;
    if (!table->passes) {
        table->next = read_column(table->next, &c);
        put_cell(table, &c, text);
    }
}

void cli_text_cell(cli_table *table, const char *text)
{
    put_next(table, text);
}

void cli_cell(cli_table *table, const char *format, ...)
{
    char text[SP_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_next(table, text);
}

// For CSV; nothing where there is no number.
static void write_number(char text[CELL], double value)
{
    text[0] = '\0';
    if (isfinite(value)) {
        snprintf(text, CELL, "%.15g", value); // as in JSON
    }
}

void cli_number_cell(cli_table *table, const char *format, double value)
{
    char text[CELL];
    if (!is_csv(table)) {
        snprintf(text, sizeof text, isfinite(value) ? format : "-", value);
    } else {
        double size = strstr(format, "%%") != NULL ? 100.0 : 1.0;
        write_number(text, value / size);
    }
    put_next(table, text);
}

const char *cli_percent(double share, const char *format, char text[CLI_PERCENT])
{
    snprintf(text, CLI_PERCENT, isfinite(share) ? format : "-", 100.0 * share);
    return text;
}

const char *cli_grouped(int64_t value, char text[CLI_GROUPED])
{
    char digits[CLI_GROUPED];
    int n = snprintf(digits, sizeof digits, "%" PRId64, value);
    int used = 0;
    for (int i = 0; i < n; i++) {
        int left = n - i;
        bool after_digit = i > 0 && digits[i - 1] != '-';
        if (after_digit && left % 3 == 0) {
            text[used++] = ',';
        }
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

void cli_count_cell(cli_table *table, int64_t count)
{
    char text[CLI_GROUPED];
    if (is_csv(table)) {
        snprintf(text, sizeof text, "%" PRId64, count);
    } else {
        cli_grouped(count, text);
    }
    put_next(table, text);
}

const char *cli_short_number(double value, char text[CLI_SHORT_NUMBER])
{
    static const char *const units[] = {"", " K", " M", " G", " T"};
    int unit = 0;
    if (!isfinite(value)) {
        snprintf(text, CLI_SHORT_NUMBER, "-");
        return text;
    }
    while (fabs(value) >= 1000.0 && unit < 4) {
        value /= 1000.0;
        unit++;
    }
    snprintf(text, CLI_SHORT_NUMBER, unit == 0 ? "%.0f%s" : "%.2f%s", value, units[unit]);
    return text;
}

void cli_figure_cell(cli_table *table, const sp_figure *figure, double number)
{
    char text[CELL];
    if (table->passes) {
        return;
    }
    if (is_csv(table)) {
        write_number(text, number);
    } else if (figure != NULL && figure->digits == SP_SHORT_NUMBER) {
        cli_short_number(number, text);
    } else if (figure == NULL || !isfinite(number)) {
        snprintf(text, sizeof text, isfinite(number) ? "%.6g" : "-", number);
    } else {
        snprintf(text, sizeof text, figure->percent ? "%.*f %%" : "%.*f", figure->digits,
                 figure->percent ? 100.0 * number : number);
    }
    put_next(table, text);
}

void cli_figure_cells(cli_table *table, double (*value)(const void *source, const char *key),
                      const void *source)
{
    column c;
    while (!table->passes && *table->next != '\0') {
        (void)read_column(table->next, &c);
        if (c.figure == NULL) {
            return;
        }
        cli_figure_cell(table, c.figure, value(source, c.figure->key));
    }
}

// A figure of a document is one of a result by its key, or by that without its object's name.
static const sp_figure *figure_of_path(const char *path)
{
    const char *dot = strchr(path, '.');
    const sp_figure *figure = sp_figure_find(path);
    figure = figure == NULL && dot != NULL ? sp_figure_find(dot + 1) : figure;
    return figure != NULL && figure->label != NULL ? figure : NULL;
}

static void put_numbers(cli_table *table, const json_t *object, const char *parent)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)object, key, value) {
        char path[CELL * 2];
        snprintf(path, sizeof path, "%s%s%s", parent, parent[0] != '\0' ? "." : "", key);
        if (json_is_object(value)) {
            put_numbers(table, value, path);
        } else if (json_is_number(value)) {
            cli_row_begin(table);
            cli_cell(table, "%s", path);
            if (json_is_integer(value)) {
                cli_count_cell(table, json_integer_value(value));
            } else {
                cli_figure_cell(table, figure_of_path(path), json_real_value(value));
            }
            cli_row_end(table);
        }
    }
}

bool cli_prints_tables_alone(void)
{
    return screen.csv || screen.markdown;
}

void cli_print_figures(const char *title, json_t *document)
{
    cli_table table;
    cli_table_begin(&table, "-40 figure|20 value", title, 0);
    put_numbers(&table, document, "");
    cli_table_end(&table);
    json_decref(document);
}

void cli_row_text(cli_table *table, const char *text)
{
    column c;
    if (table->passes) {
        return;
    }
    if (has_fields(table)) {
        for (const char *rest = read_column(table->next, &c); *rest != '\0';) {
            put_next(table, "");
            rest = read_column(table->next, &c);
        }
        put_next(table, text);
        return;
    }
    int start = 1;
    const char *before = table->columns;
    for (int i = 0; i < table->at; i++) {
        before = read_column(before, &c);
        start += is_hidden(table, i) ? 0 : columns_of(&c, i == 0);
    }
    bool fits = !is_screen(table->out) || characters(text, strlen(text)) <= screen.columns - start;
    size_t bytes = fits ? strlen(text) : bytes_that_fit(text, screen.columns - start - 4);
    cli_print(table->out, fits ? " %.*s" : " %.*s ...", (int)bytes, text);
    table->next = "";
}

void cli_row_end(cli_table *table)
{
    if (table->passes) {
        return;
    }
    // A row may end before its last columns.
    while (*table->next != '\0' && has_fields(table)) {
        put_next(table, "");
    }
    if (has_fields(table)) {
        end_fields();
    } else {
        cli_put_text(table->out, "\n");
    }
}

bool cli_table_shows(const cli_table *table, const char *key)
{
    column c;
    const char *text = table->columns;
    bool shows = false;
    for (int i = 0; *text != '\0' && i < MOST_HIDDEN; i++) {
        text = read_column(text, &c);
        shows = shows || (strcmp(c.key, key) == 0 && !is_hidden(table, i));
    }
    return shows;
}

// Columns that were left out have their headings told, once for tables that are alike.
void cli_table_end(cli_table *table)
{
    char names[HEADS] = "";
    column c;
    if (!is_screen(table->out) && !(screen.markdown && has_fields(table))) {
        return;
    }
    const char *text = table->columns;
    for (int i = 0; *text != '\0' && i < MOST_HIDDEN; i++) {
        text = read_column(text, &c);
        if (is_hidden(table, i)) {
            sp_append(names, sizeof names, "%s%s", names[0] != '\0' ? ", " : "", c.head);
        }
    }
    bool cut = is_screen(table->out) && table->most > 0 && table->rows > table->most;
    int rows = cut ? table->rows - table->most : 0;
    bool told = names[0] == '\0' || strcmp(names, screen.left_out) == 0;
    snprintf(screen.left_out, sizeof screen.left_out, "%s", names);
    if (rows > 0 && told) {
        cli_print(table->out, "... %d more with --wide\n", rows);
    } else if (rows > 0) {
        cli_print(table->out, "... %d more row%s with --wide, and columns: %s\n", rows,
                  sp_plural(rows), names);
    } else if (!told) {
        cli_print(table->out, "with --wide also %s\n", names);
    }
}

double cli_figure_of_result(const void *result, const char *key)
{
    return sp_figure_value(result, key);
}
