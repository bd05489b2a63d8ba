// The commands of the program and their options: one table per command drives parsing, help, the
// manual page and shell completion; and how commands print answers, errors and notes.
#ifndef SLIMPACK_EXPERIMENTS_CLI_CLI_H
#define SLIMPACK_EXPERIMENTS_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "backends/api/device.h"
#include "experiments/execution/execution.h"
#include "experiments/frameworks/frameworks.h"
#include "experiments/sweep/sweep.h"
#include "experiments/tune/layouts.h"
#include "sim/base/files.h"
#include "sim/base/writer.h"
#include "sim/cost/op_time.h"
#include "sim/metrics/export.h"
#include "sim/metrics/result.h"
#include "sim/plan/timeline.h"
#include "sim/scenario/scenario.h"
#include "solver/evaluate/evaluate.h"
#include "solver/setting_uses.h"

// ---- text ----

// The names of stdio.h stand for these in commands, for two ends. What %s inserts, such as names of
// models and files, may hold what steers a terminal: formats are those of sp_print(), which escapes
// it, in files as well; texts of fputs() and puts() are taken as they are. And what goes to stdout
// meets the screen (screen.c): people get lines no wider than it and 36 at most, and beside --csv
// and --markdown it goes to stderr. In brackets, (fputs)(text, stdout), a name is that of stdio.h:
// for what programs read. fwrite() is as ever.
int cli_print(FILE *out, const char *format, ...) SP_PRINTF(2, 3);
int cli_vprint(FILE *out, const char *format, va_list args);
int cli_put_text(FILE *out, const char *text); // as fputs()
int cli_put_character(FILE *out, int character);
#undef putc
#undef putchar
#define printf(...) cli_print(stdout, __VA_ARGS__)
#define fprintf(...) cli_print(__VA_ARGS__)
#define fputs(text, out) cli_put_text(out, text)
#define fputc(character, out) cli_put_character(out, character)
#define putc(character, out) cli_put_character(out, character)
#define puts(text) (cli_put_text(stdout, text), cli_put_character(stdout, '\n'))
#define putchar(character) cli_put_character(stdout, character)

// ---- options ----

typedef enum cli_kind {
    CLI_FLAG,   // bool
    CLI_INT,    // int64_t from min to max
    CLI_STRING, // const char *
    CLI_FILE,   // const char *, a file that is read, "-" for standard input
    CLI_OUTPUT, // const char *, a file that is written, "-" for standard output
    CLI_KEPT,   // a CLI_OUTPUT that must be a file, because it is written again or read
    CLI_FOLDER, // const char *
    CLI_LIST,   // cli_list, may be given several times
    CLI_FILES,  // a CLI_LIST of files that are read, "-" for standard input
    CLI_NAMED,  // a CLI_LIST of names, each alone or NAME=FILE with the file of a CLI_OUTPUT
} cli_kind;

// The values of a repeated option, in order. The texts belong to argv.
typedef struct cli_list {
    const char **items; // owned
    int count;
} cli_list;

// A row of an option table; the table ends with a row without a name. The value is stored at byte
// `at` of the command's own argument struct, with the type its kind says; what is not given keeps
// the value that the struct had.
typedef struct cli_option {
    cli_kind kind;
    char letter;       // -j; 0: none
    const char *name;  // "jobs" for --jobs
    const char *value; // what stands for the value in help ("N", "FILE"); NULL for flags
    const char *help;
    size_t at;
    int64_t min, max;   // CLI_INT
    bool counts_tokens; // CLI_INT: 32K stands for 32768, 1M for 1048576
    // A CLI_STRING may hold these, several with commas between, for completion; NULL: any.
    const char *const *names;
} cli_option;

// Every command takes these: a member `common` of the argument struct and
// CLI_COMMON_OPTIONS(struct) in the table.
typedef struct cli_common {
    bool json;
    bool quiet;
    bool wide;
    bool csv, markdown; // of commands that have CLI_TABLE_OPTIONS
} cli_common;

enum { CLI_MOST_THREADS = 1024 };

// clang-format off
// Rows of the table, for a member of the argument struct `type`.
#define CLI_FLAG_OPTION(long_name, type, member, text) \
    {.kind = CLI_FLAG, .name = long_name, .at = offsetof(type, member), .help = text}
#define CLI_INT_OPTION(long_name, stands, type, member, least, most, text)                         \
    {.kind = CLI_INT, .name = long_name, .value = stands, .at = offsetof(type, member),            \
     .min = least, .max = most, .help = text}
#define CLI_TOKENS_OPTION(long_name, type, member, text)                                           \
    {.kind = CLI_INT, .name = long_name, .value = "N", .at = offsetof(type, member), .min = 1,     \
     .max = (int64_t)1 << 40, .counts_tokens = true, .help = text}
// Values of `of_kind` are texts; short_name 0: none.
#define CLI_TEXT_OPTION(of_kind, short_name, long_name, stands, type, member, text)                \
    {.kind = of_kind, .letter = short_name, .name = long_name, .value = stands,                    \
     .at = offsetof(type, member), .help = text}
// A text that is one of `list`, or several of them with commas between.
#define CLI_NAMES_OPTION(long_name, stands, type, member, list, text)                              \
    {.kind = CLI_STRING, .name = long_name, .value = stands, .at = offsetof(type, member),         \
     .names = list, .help = text}

// A member `const char *train_tokens` of the argument struct.
#define CLI_TRAIN_TOKENS_OPTION(type)                                                              \
    CLI_TEXT_OPTION(CLI_STRING, 0, "train-tokens", "N", type, train_tokens,                        \
                    "tokens of a whole training, such as 300B or 15T: how many days and GPU-hours")

#define CLI_ANSWER_OPTIONS(type)                                                                  \
    CLI_FLAG_OPTION("json", type, common.json,                                                    \
                    "print the result as JSON on standard output, and nothing else there"),       \
    {.kind = CLI_FLAG, .letter = 'q', .name = "quiet", .at = offsetof(type, common.quiet),        \
     .help = "no progress and no notes on standard error"}
#define CLI_COMMON_OPTIONS(type)                                                                  \
    CLI_FLAG_OPTION("wide", type, common.wide,                                                    \
                    "print all columns, rows and warnings, however wide and long"),               \
        CLI_ANSWER_OPTIONS(type)
// Of commands that print tables.
#define CLI_TABLE_OPTIONS(type)                                                                   \
    CLI_FLAG_OPTION("csv", type, common.csv,                                                      \
                    "print the tables alone, as CSV with all digits and shares of one; an "    \
                    "empty line parts two tables"),                                            \
        CLI_FLAG_OPTION("markdown", type, common.markdown, "print the tables alone, as Markdown")

// A member `int64_t jobs` of the argument struct; 0 stands for all cores.
#define CLI_JOBS_OPTION(type)                                                                     \
    {.kind = CLI_INT, .letter = 'j', .name = "jobs", .value = "N", .at = offsetof(type, jobs),    \
     .help = "threads to use (default: all cores); the result does not depend on it",             \
     .min = 1, .max = CLI_MOST_THREADS}

// A member `int64_t time_limit_s` of the argument struct (cli_catch_stop()).
#define CLI_TIME_LIMIT_OPTION(type, text)                                                         \
    CLI_INT_OPTION("time-limit", "S", type, time_limit_s, 1, 1000000, "seconds after which " text)

// Members `int64_t sample, seed` of the argument struct: which points of a sweep are drawn.
#define CLI_SAMPLE_OPTIONS(type)                                                                  \
    CLI_INT_OPTION("sample", "N", type, sample, 1, SWEEP_MOST_POINTS,                             \
                   "evaluate N points that are drawn at random, in the order of the grid"),       \
        CLI_INT_OPTION("seed", "N", type, seed, 0, INT64_MAX,                                     \
                       "of --sample and --search (default 0)")

// A member `cli_list emit` of the argument struct (cli_emit()).
#define CLI_EMIT_OPTION(type, which)                                                              \
    {.kind = CLI_NAMED, .name = "emit", .value = "NAME[=FILE]", .at = offsetof(type, emit),       \
     .names = framework_names, .help =                                                            \
                     "write " which " as launch arguments of a framework, to FILE or after the "  \
                     "answer; may be repeated"}

// A member `cli_list set` of the argument struct.
#define CLI_SET_OPTION(type)                                                                      \
    {.kind = CLI_LIST, .name = "set", .value = "KEY=VALUE", .at = offsetof(type, set),            \
     .help = "override a scalar of the scenario, such as parallel.pp=8; may be repeated"}

// A member `const char *lengths` of the argument struct; `otherwise`: what holds without it.
#define CLI_LENGTHS_OPTION(type, otherwise)                                                       \
    CLI_TEXT_OPTION(CLI_FILE, 0, "lengths", "NAME|FILE", type, lengths,                           \
                    "document lengths: a built-in distribution or a file (default: " otherwise ")")
// clang-format on

// ---- commands ----

// The arguments that are no options, in order; points into argv.
typedef struct cli_operands {
    char **items;
    int count;
} cli_operands;

typedef struct cli_command {
    const char *name;
    const char *summary;         // one line, no full stop
    const char *operands;        // as in the usage line ("SCENARIO|PLAN"); NULL: none
    int min_operands;            // fewer are refused
    int max_operands;            // more are refused; negative: any number
    bool operands_are_words;     // "-" is none of standard input; else they name files
    bool tells_repeated;         // refuses one that stands twice by itself
    bool prints_pages;           // whole and as wide as a page; no table alone is asked for
    const char *description;     // paragraphs, separated by an empty line
    const char *const *examples; // command lines, NULL-terminated; may be NULL
    const cli_option *options;   // ends with a row without a name
    void (*list)(FILE *out);     // more of the help, after the options; NULL: nothing
    size_t args_bytes;           // of the command's argument struct
    const void *defaults;        // such a struct; NULL: all zero
    // `args` is the argument struct as given; returns the exit status.
    int (*run)(const void *args, const cli_operands *operands);
} cli_command;

// Rows of a command: its operands, and by what it runs.
#define CLI_TAKES(text, least, most) .operands = text, .min_operands = least, .max_operands = most
#define CLI_RUNS(function, type, option_rows, example_lines) \
    .run = function, .args_bytes = sizeof(type), .options = option_rows, .examples = example_lines

// One object per cmd_*.c; a new command is declared here and listed in help.c.
extern const cli_command cli_cmd_simulate;
extern const cli_command cli_cmd_compare;
extern const cli_command cli_cmd_plan;
extern const cli_command cli_cmd_sweep;
extern const cli_command cli_cmd_merge;
extern const cli_command cli_cmd_tune;
extern const cli_command cli_cmd_prefill;
extern const cli_command cli_cmd_run;
extern const cli_command cli_cmd_validate;
extern const cli_command cli_cmd_decode;
extern const cli_command cli_cmd_reproduce;
extern const cli_command cli_cmd_calibrate;
extern const cli_command cli_cmd_measure;
extern const cli_command cli_cmd_lengths;
extern const cli_command cli_cmd_report;
extern const cli_command cli_cmd_import;
extern const cli_command cli_cmd_help;

// What there is, asked for index 0, 1, ... until NULL comes: commands, lists that help has, and the
// names that a setting may have as value.
typedef struct cli_known {
    const cli_command *(*command_at)(int index);
    const char *(*list_at)(int index);
    const char *(*setting_value)(const sp_setting *setting, int index);
} cli_known;

// A script for bash, zsh or fish; false: no such shell.
bool cli_print_completion(FILE *out, const char *shell, const cli_known *what);

// NULL when there is none of that name.
const cli_command *cli_find_command(const char *name);

// Reports an unknown command with the nearest name; returns the exit status.
int cli_unknown_command(const char *name);

// Help for people: the list of commands, and the help of one.
void cli_print_overview(FILE *out);
void cli_print_help(FILE *out, const cli_command *command);

// ---- running ----

enum { CLI_PROCEED = -1 };

// Reads argv[1..argc) by the command's table and runs it; returns the exit status. --help prints
// the help (0), wrong usage is reported (2). `--name value`, `--name=value`, `-n value`, `-nvalue`,
// bundled letters; `--` ends the options; the last of several values counts, which is told. "-" as
// a file is a standard stream, and where that is standard output, people are told things on stderr.
// An output that is also another file of the command line is refused. argv is put in another order.
int cli_run(const cli_command *command, int argc, char **argv);

// Does the value of such an option name a file?
bool cli_is_file(cli_kind kind);

// Tokens that a document states, as a number or such as "32K"; 0: none.
int64_t cli_tokens_in(const json_t *value);

// Changes a scenario's document as --set and --lengths (NULL: not given) say. Documents of other
// lengths take the place of equal samples: as many tokens a batch, in the context that was theirs;
// of a batch of rows (sp_scenario_counts_rows()) as many rows.
sp_status cli_change_document(json_t *document, const cli_list *set, const char *lengths,
                              sp_error *err);
// Reads the JSON of a scenario, a plan or a set; a sweep's specification stands for its base, the
// name of a model for a scenario of it. What is something else that people have, a framework's
// configuration or a list of lengths, is refused with the way that it goes.
sp_status cli_read_root(const char *path, json_t **root, sp_error *err);
// Reads a scenario's from its file, and changes it so. The caller owns *document, after an error as
// well.
sp_status cli_read_document(const char *path, const cli_list *set, const char *lengths,
                            json_t **document, sp_error *err);

// Threads for a number of jobs that CLI_JOBS_OPTION read.
int cli_threads(int64_t jobs);

// ---- answers, errors and notes ----

// Commands print errors and notes on stderr, results on stdout.

// Takes the layout (parallel, schedule, memory, strategy and stack) of a file that `import` reads,
// or of a scenario, into a document; *whole is all that the file says, which the caller owns.
sp_status cli_import_layout(const char *path, bool quiet, json_t *document, json_t **whole,
                            sp_error *err);

// What --emit asks for, each NAME or NAME=FILE: can it be written?
sp_status cli_emit_check(const cli_list *emit, sp_error *err);
// The stack that runs what is launched so, of several the first one's; NULL: none is asked for.
const char *cli_emit_stack(const cli_list *emit);

// What one of the frameworks, or where none is named that of the scenario's stack, has in the place
// of a setting of the scenario that it cannot be told; NULL: all can be told. The caller owns it.
json_t *cli_emit_own(const cli_list *emit, const sp_scenario *scenario, const char *key);
// Writes the scenario as those frameworks' arguments, to their files, else into `answer` under
// "emit" (an array of several) or, where that is NULL, to stdout. A warning names each setting that
// a framework cannot say and no other of them does.
sp_status cli_emit(const cli_list *emit, const sp_scenario *scenario, json_t *answer, bool quiet,
                   sp_error *err);

// Text on stderr comes after all that was printed to stdout before, also where both are one pipe.

// Prints every message of the record ("error: ...") and returns its exit status.
int cli_fail(const sp_error *err);

// Ends a command that has no answer. With --json, and a reason that is an answer itself
// (SP_ERR_INFEASIBLE, SP_ERR_STOPPED), it prints `nothing`, the keys of the answer with null, which
// it takes over, with schema, status ("infeasible", "stopped") and reason. Then it tells the error
// as cli_fail() does; of several processes that execute together those but the first say who they
// are, and print no JSON.
int cli_fail_json(bool json, const char *schema, json_t *nothing, int process, const sp_error *err);

// The exit status of a command that printed its answer: 1 where all went well and the answer is
// negative.
int cli_answer(int exit_status, bool positive);

// Ends a child and takes away what is half written, with folders that work is done in; safe in a
// signal handler that ends the program.
void cli_abandon_outputs(void);

// Ends the process by a signal whose handler this is, and leaves no part of an output behind.
void cli_end(int signal_number);

// Between true and false a reader of standard output that is gone (`slimpack ... | head`) ends
// nothing: what is computed still has files to be written to. With false it ends the program then.
void cli_outlive_pipe(bool outlives);

// From now on the first SIGINT or SIGTERM is a stop (sp_stop_request), the second ends the program;
// so is the end of so many seconds (0: there is none).
void cli_catch_stop(int64_t time_limit_s);

bool cli_stopped_by_signal(void);
// The exit status of a command that was stopped: by a signal as a shell reports it, 130 or 143; by
// the time 0 where something is known by then, else 4.
int cli_exit_of_stop(bool known);

// Reports wrong usage with a pointer to the command's help (NULL: the program's); returns 2.
int cli_usage_error(const cli_command *command, const char *format, ...) SP_PRINTF(2, 3);

// "warning: ..." on stderr, unless quiet. Of a command's warnings people get three, each on as many
// lines as the screen has left, and are told how many more --wide prints.
void cli_warn(bool quiet, const char *format, ...) SP_PRINTF(2, 3);
// A warning that is never cut, of memory that runs out: it is told before all else, whole, and of
// several those for which the screen has place.
void cli_warn_whole(bool quiet, const char *format, ...) SP_PRINTF(2, 3);
// Before an answer is printed: leaves place for such a warning behind it.
void cli_leave_place(const char *text);
// Before an answer is printed: leaves place for the command that ends it, which cli_print_end()
// prints, whatever else had no place.
void cli_leave_end(const char *command);
void cli_print_end(const char *command);
// Each text of an array, as one of `source`, where that is not NULL.
void cli_warn_all(bool quiet, const char *source, const json_t *texts);

// Takes over `root` (NULL: of a name that is not UTF-8, which is told) and prints it with a final
// newline. Returns the exit status.
int cli_print_json(json_t *root);

// Takes over `root` and writes to a file what cli_print_json() prints.
sp_status cli_write_json(const char *path, json_t *root, sp_error *err);

// Opens an output (sim/base/files.h), has `write` fill it, and closes it. An SP_ERR_IO error names
// the file; what the stream could not write is one, whether `write` looks or not.
typedef sp_status (*cli_writer)(FILE *file, const void *what, sp_error *err);
sp_status cli_write_file(const char *path, cli_writer write, const void *what, sp_error *err);

// Puts the file before what the error record says of writing it; returns SP_ERR_IO.
sp_status cli_name_file(const char *path, sp_error *err);

// Does the name of a file end so?
bool cli_ends_in(const char *path, const char *ending);

// Figures: data for gnuplot, and gnuplot itself.
// Is the name one that can be drawn to, and can it be written?
sp_status cli_plot_check(const char *path, sp_error *err);
// Does a path name standard output, a pipe or a device, where no name says what is written, and
// which cannot be read again?
bool cli_is_stream(const char *path);

// Draws to `path` (.png, .svg or .pdf) with a script of plots/ from data that `write` writes, or
// writes that data alone (.dat). gnuplot works in a temporary folder, where no name of the caller's
// reaches it. Without gnuplot an SP_ERR_IO error says which package to install.
sp_status cli_plot(const char *script, const char *path, cli_writer write, const void *what,
                   sp_error *err);

// Of that data: a text between double quotes, of which it holds none, behind `before`; and a blank
// and a number, of which gnuplot reads what is none in its own spelling alone.
void cli_plot_text(FILE *file, const char *before, const char *text);
void cli_plot_number(FILE *file, double value);

// Draws two timelines of one plan, what was predicted over what was measured, on one axis of time.
sp_status cli_plot_comparison(const char *path, const sp_timeline *predicted,
                              const sp_timeline *measured, sp_error *err);

// ---- other programs ----

enum { CLI_NOT_PREPARED = 126, CLI_NOT_STARTED = 127 };

// A process that works in `folder`, one at a time. What it says is kept there, but for its output
// where that is shown.
typedef struct cli_child {
    const char *folder, *program; // NULL: this program
    char *const *argv;            // ends with NULL
    bool shown;
    double limit_s; // INFINITY: none
} cli_child;

typedef struct cli_ended {
    int exit_status; // negative: ended by a signal or the limit; CLI_NOT_PREPARED: its
                     // folder or outputs cannot be used; CLI_NOT_STARTED: no such program
    bool late;
    double seconds;
    char said[SP_ERROR_TEXT]; // its error, or its last line, or how it was ended
} cli_ended;

cli_ended cli_run_child(const cli_child *child);

// ---- the screen ----

// How wide it is: as COLUMNS or the terminal says, 100 where there is none.
int cli_columns(FILE *out);
// Before the words of a command are read: with --wide or --json among them errors are one line
// each.
void cli_errors_begin(int argc, char **argv);
// Before a command prints: whether lines, rows and warnings are held to the screen.
void cli_screen_begin(const cli_common *common, bool page);
// What was printed up to here stands before what comes on standard error.
void cli_screen_flush(void);
// Tells what was left out.
void cli_screen_end(void);
// A text to be copied, after the lines before: whole, as it is, however long.
void cli_put_whole(const char *text);
// All is to be printed, however wide and long.
bool cli_is_wide(void);
// Standard output has tables as CSV, for programs.
bool cli_is_csv(void);

// Prints "HEADTEXT" on standard error, wrapped at its width under the text; names in quotes and
// options with their values stay whole. One line with --wide and --json.
void cli_print_error(const char *head, const char *text);

// Prints words from `indent` on, the first line beginning at column `column`, wrapped at the
// screen's width, or at column 80 where all is printed; an empty line in the text stays one. Ends
// with a newline.
void cli_print_wrapped(FILE *out, const char *text, int column, int indent);
// A command for a shell, whose lines end in backslashes but for the last.
void cli_print_command(FILE *out, const char *command, int column, int indent);

// ---- tables ----

// The columns of a table are a text, such as "-12 strategy|14 @iteration_ms|10~3 @gap|0 note". A
// bar parts two columns; each is
//     WIDTH[~RANK] HEADING         cells of a command's own
//     WIDTH[~RANK] @KEY[=HEADING]  a figure (sim/metrics/result.h), which says how its values are
//                                  shown and, unless they are given, its rank and what stands above
// Cells are right-aligned, with a negative width left-aligned, and with width 0, of the last
// column, as long as they are: RANK columns are kept for it. Where the screen has no place for all,
// the columns with the largest rank go, from the right; those of rank 0 stay. --markdown has the
// same columns, --wide (beside it, too) and --csv have them all.
typedef struct cli_table {
    const char *columns, *title;
    int most;
    // Of cli_table_*() alone.
    FILE *out;
    const char *next;   // columns to come
    int at, rows;       // the next column's number; rows that were begun
    uint64_t hidden;    // a bit for each column
    bool passes;        // the row is not shown
    bool begun;         // it has a cell that is
    int cut, cut_width; // column of names that are cut to the screen, and to what; 0: none
} cli_table;

// The headings. `title` (NULL: none) tells tables of one command apart in CSV and Markdown; people
// get its first `most` rows (0: all), and are told how many more there are.
void cli_table_begin(cli_table *table, const char *columns, const char *title, int most);
// As text in a file, or on standard output.
void cli_table_begin_in(cli_table *table, FILE *out, const char *columns, const char *title,
                        int most);
// False: the row is not shown, and its cells are none.
bool cli_row_begin(cli_table *table);
// The next cell of a row.
void cli_cell(cli_table *table, const char *format, ...) SP_PRINTF(2, 3);
// A text of any length.
void cli_text_cell(cli_table *table, const char *text);
// A number by its format, "-" where it is not finite. In CSV it has all digits, and a percentage is
// a share of one.
void cli_number_cell(cli_table *table, const char *format, double value);
// As cli_grouped() has it; in CSV its digits alone.
void cli_count_cell(cli_table *table, int64_t count);
// All columns from here on that are figures, up to one that is none.
void cli_figure_cells(cli_table *table, double (*value)(const void *source, const char *key),
                      const void *source);
// One value of a figure (NULL: with six digits).
void cli_figure_cell(cli_table *table, const sp_figure *figure, double number);
// In the place of the cells to come: why there are none.
void cli_row_text(cli_table *table, const char *text);
void cli_row_end(cli_table *table);
// Has the table that figure, and place for it?
bool cli_table_shows(const cli_table *table, const char *key);
// Tells which columns and how many rows were left out.
void cli_table_end(cli_table *table);
// Do --csv or --markdown leave standard output to tables?
bool cli_prints_tables_alone(void);
// Beside them, before all other tables: a table of all numbers of a document that are in none of
// its lists, `figure` (by its keys, with a dot between) and `value`. Takes the document over.
void cli_print_figures(const char *title, json_t *document);
// The value is that of an sp_result.
double cli_figure_of_result(const void *result, const char *key);

// Thousands in "4.19 M" style; returns text.
enum { CLI_SHORT_NUMBER = 24 };
const char *cli_short_number(double value, char text[CLI_SHORT_NUMBER]);

enum { CLI_PERCENT = 32, CLI_GROUPED = 32 };

// A share by a format for its percent, such as "%+.1f %%", or "-" where it is not finite; returns
// text.
const char *cli_percent(double share, const char *format, char text[CLI_PERCENT]);

// 1234567 as "1,234,567"; returns text.
const char *cli_grouped(int64_t value, char text[CLI_GROUPED]);

// ---- execution ----

// Commands that execute plans share these options, and what they stand for.

// Zero and NULL: not given.
typedef struct cli_execute {
    const char *backend, *clock, *precision;
    int64_t device, seed, steps;
    const char *learning_rate;
    int64_t warmup; // steps
    cli_list options;
    bool remote; // another machine executes: the device need not be here
} cli_execute;

enum { CLI_MOST_STEPS = 100000, CLI_MOST_DEVICES = 1024 };

// clang-format off
// A member `cli_execute execute` of the argument struct.
#define CLI_EXECUTE_OPTIONS(type, default_steps)                                                  \
    CLI_TEXT_OPTION(CLI_STRING, 0, "backend", "NAME", type, execute.backend,                      \
                    "what executes: host, cuda, or another plug-in by name or path"),             \
    CLI_INT_OPTION("device", "N", type, execute.device, 0, CLI_MOST_DEVICES,                      \
                   "device of the backend (default 0)"),                                          \
    CLI_TEXT_OPTION(CLI_STRING, 0, "clock", "CLOCK", type, execute.clock,                         \
                    "virtual (actions one by one, replayed side by side) or wall (default: wall " \
                    "where the device has it and the ranks do not exceed the cores)"),            \
    CLI_TEXT_OPTION(CLI_STRING, 0, "precision", "P", type, execute.precision,                     \
                    "fp64, fp32 or bf16 (default: fp32 where the device has it)"),                \
    CLI_INT_OPTION("seed", "N", type, execute.seed, 1, INT64_MAX,                                 \
                   "seed of parameters and tokens (default 1)"),                                  \
    CLI_INT_OPTION("steps", "N", type, execute.steps, 1, CLI_MOST_STEPS,                          \
                   "steps of each batch; of several the first warms up and the one of median "    \
                   "time among the others is shown (default " default_steps ")"),                 \
    CLI_TEXT_OPTION(CLI_STRING, 0, "lr", "RATE", type, execute.learning_rate,                     \
                    "learning rate of AdamW (the backend's option learning_rate); that of each "  \
                    "step is told beside its loss"),                                              \
    CLI_INT_OPTION("warmup", "N", type, execute.warmup, 1, CLI_MOST_STEPS,                        \
                   "steps over which the learning rate rises from 0 to --lr (the backend's "      \
                   "option warmup)"),                                                             \
    CLI_TEXT_OPTION(CLI_LIST, 0, "option", "KEY=VALUE", type, execute.options,                    \
                    "a setting of the backend; may be repeated")
// clang-format on

// A backend that was found, and how it is to execute.
typedef struct cli_executor {
    sp_registry *registry;
    sp_backend *absent; // stands for a backend that is not built here; NULL: none does
    sp_backend_option *settings;
    char *texts;            // keys and values of the settings
    char warmup[24];        // the value of one
    uint64_t capabilities;  // of the device
    int process, processes; // which of those that execute together (device.h); 0 of 1: alone
    sp_execution_options options;
} cli_executor;

// Finds backend and device and chooses what was not given. An unknown backend, clock, precision or
// device is an error that names what there is. Where another machine executes, the backend need not
// be built here (what it names of itself, its stack, is then the scenario's to state), the clock is
// virtual unless it is given, and a precision must be given unless the device is here.
// cli_executor_end is called whatever happened. Processes but the first print nothing on standard
// output from here on; files are for the caller to leave alone.
sp_status cli_executor_begin(const cli_execute *args, const sp_scenario *scenario,
                             int default_steps, cli_executor *executor, sp_error *err);
void cli_executor_end(cli_executor *executor);

// Asks a backend which process this is, and closes the mouth of all but the first.
sp_status cli_find_process(const sp_backend *backend, int *process, int *processes, sp_error *err);

// The precision of this name, or, with NULL, fp32 where the device can, else bf16, else fp64.
sp_status cli_choose_precision(const char *text, const sp_device_info *device,
                               sp_precision *precision, sp_error *err);

// ---- the files beside a result ----

enum { CLI_MOST_BATCHES = 1000000 };

// Members are NULL or false where nobody asked for them. All but the plan show one batch.
typedef struct cli_exports {
    int64_t batch;
    const char *trace;
    const char *trace_ranks;  // "0-3,8": pipeline ranks
    const char *trace_window; // "FROM-TO" in ms
    const char *plot;         // PNG or SVG
    const char *snapshot;
    const char *graphml;
    const char *topology; // SVG
    sp_network network;   // whose links it shows
    bool timeline;        // text, to `text`
    bool critical_path;   // text, to `text`
    FILE *text;
    const char *plan;
    bool planner_memory;        // memory.model is no sum of tensors
    int64_t memory_limit_bytes; // of a rank, for plots; 0: none
    const json_t *scenario;     // resolved, for the plan
    const sp_batches *formed;   // for the plan
    const sp_result *result;    // for the plan, which is noted with what stands there afterwards
    sp_warnings *warnings;      // of what is shown
    sp_output plan_file;        // open while batches are evaluated
    sp_export_window window;    // trace_ranks and trace_window as read
    int *ranks;                 // those of the window
} cli_exports;

// clang-format off
// Rows of an option table, for a member `cli_exports exports` of the argument struct.
#define CLI_STEP_OPTIONS(type)                                                                    \
    CLI_TEXT_OPTION(CLI_OUTPUT, 0, "trace", "FILE", type, exports.trace,                            \
                    "write a trace that opens in ui.perfetto.dev, as JSON; compressed where FILE "  \
                    "ends in .gz"),                                                               \
    CLI_TEXT_OPTION(CLI_STRING, 0, "trace-ranks", "LIST", type, exports.trace_ranks,              \
                    "pipeline ranks that trace, timeline and plot show, such as 0-3,7"),          \
    CLI_TEXT_OPTION(CLI_STRING, 0, "trace-window", "FROM-TO", type, exports.trace_window,         \
                    "part of the step that they show, in milliseconds"),                          \
    CLI_FLAG_OPTION("timeline", type, exports.timeline, "draw the timeline in the terminal"),     \
    CLI_TEXT_OPTION(CLI_KEPT, 0, "plot", "FILE", type, exports.plot,                              \
                    "draw timeline and memory with gnuplot (.png, .svg or .pdf), or keep the "    \
                    "data for that (.dat)")
// `shows` is text: what of it shows one batch.
#define CLI_BATCH_OPTION(type, shows)                                                             \
    CLI_INT_OPTION("batch", "N", type, exports.batch, 0, CLI_MOST_BATCHES,                        \
                   "batch that " shows " show (default 0)")
// clang-format on

// Do the exports need the whole memory timeline?
bool cli_exports_need_memory(const cli_exports *exports);

// Reads the selections for `pp` pipeline ranks, checks the names of files that are drawn, and opens
// the plan file. cli_exports_end closes it, and leaves none after an error; call both, whatever
// happened between.
sp_status cli_exports_begin(cli_exports *exports, int pp, sp_error *err);
sp_status cli_exports_end(cli_exports *exports, sp_error *err);

// An sp_step_observer; context is the cli_exports.
sp_status cli_exports_observe(void *context, const sp_step_view *view, sp_error *err);

// ---- steps for people ----

// As it was stated, by name or path; of a model without one as the result has it.
const char *cli_model_name(const sp_scenario *scenario);
// Behind that name where it says what is changed ("llama-7b with model.layers changed, on 8 ..."):
// ",", else "".
const char *cli_model_comma(const sp_scenario *scenario);

// Model, cluster and layout, without a newline.
void cli_print_place(FILE *out, const sp_scenario *scenario);

// One line: model, layout, cluster, schedule.
void cli_print_headline(FILE *out, const sp_scenario *scenario);

// "tp 4, cp 1, pp 8, dp 4, 2 chunks, interleaved, recompute none, rank_tokens 8192"; returns text.
enum { CLI_LAYOUT = 256 };
const char *cli_layout_text(const sp_result *result, const sp_scenario *scenario,
                            char text[CLI_LAYOUT]);

// A line that says to what rows of a strategy that pads samples are padded; else nothing.
void cli_print_padding(FILE *out, const sp_scenario *scenario, const char *strategy);

// The figures of one result, with time and memory broken down and a table of pipeline ranks.
void cli_print_result(FILE *out, const sp_scenario *scenario, const sp_result *result,
                      bool with_ranks);

// Reads --train-tokens: a number, or one with K, M, B or T for thousands up to trillions (10^12).
// NULL: *tokens is 0.
sp_status cli_read_train_tokens(const char *text, double *tokens, sp_error *err);
enum { CLI_TRAINING = 128 };
// "15T tokens: 31.4 days, 192,941 GPU-hours"; returns text.
const char *cli_training_text(double tokens, const sp_result *result, char text[CLI_TRAINING]);
// {"tokens", "days", "gpu_hours"}; NULL where no training was asked for.
json_t *cli_training_json(double tokens, const sp_result *result);

// Parts of a step's time are "compute", "tp", "cp", "pp wait", "dp", "experts", "optimizer",
// "bubble".
extern const char *const cli_time_part_names[];

// Forms the batches, and warns beforehand of a workload that takes long.
sp_status cli_form_batches(bool quiet, const sp_scenario *scenario, sp_batches *batches,
                           sp_error *err);
// Warns of a context so short that a K behind it was forgotten; 0: none is stated.
void cli_hint_context(bool quiet, int64_t tokens);
// On standard error, and into `warnings` of a result's JSON (NULL stays).
void cli_print_warnings(bool quiet, const sp_warnings *warnings);
void cli_add_warnings_json(json_t *result, const sp_warnings *warnings);
// Stands before a range of the profile's tables that was left.
#define CLI_UNCALIBRATED "outside the calibration, less sure: "
// What a step out of memory would have needed, GPUs that stand idle of the scenario (NULL: they are
// not looked for), other warnings, and table ranges that were left, on standard error.
void cli_print_notes(bool quiet, const sp_scenario *scenario, const sp_result *result);
// Adds what a row of several answers warns of.
void cli_note_row(const sp_result *result, sp_warnings *warnings);
// Each kind once, with the number of rows where not all have it. Takes over `kinds`.
json_t *cli_row_warnings(sp_warning_kinds *kinds, int count);
// Warns where one replica takes a part of a node because neither parallel.dp nor nodes are stated.
void cli_print_idle_gpus(bool quiet, const sp_scenario *scenario);
// The warnings of prompts and text, for which there is no sp_result: the profile's, then settings
// without effect, and ranges of the profile's tables that were left.
void cli_print_profile_notes(bool quiet, const sp_scenario *scenario);
void cli_print_unused(bool quiet, const sp_scenario *scenario, sp_run_kind run,
                      const sp_uncalibrated *uncalibrated);
// Adds settings without effect to `warnings` of their result; NULL stays.
void cli_add_unused(json_t *result, const sp_scenario *scenario, sp_run_kind run);

// "h100 (assumed)"; of rates that the cluster's GPU changed "h100, scaled by 0.303 (peak) and 0.299
// (HBM) (assumed)"; returns text.
enum { CLI_PROFILE = SP_PROFILE_NAME + 80 };
const char *cli_profile_text(const sp_scenario *scenario, sp_level level, char text[CLI_PROFILE]);

// "±3.0 % in the median, 8.1 % for nine in ten, on 607 logged steps like this (scope)", or "not
// validated: ..." with the reason; returns text.
enum { CLI_STEP_ERROR = 1024 };
const char *cli_step_error(const sp_step_error *error, char text[CLI_STEP_ERROR]);

// The chance that a step runs, by which points are ranked (sp_fit_chance()), for help pages.
#define CLI_CHANCE "fit_probability, no less than 0.01, over 0.95, at most 1"

// "runs with probability 0.72": by what logged steps that fill as much of the memory did, of a step
// that fits; "may run out of memory" where PyTorch would reserve more than there is (a margin below
// 0), of which no log tells how likely it runs, however much more. "" where that is SP_FITS_SURELY
// and more or not known (NAN); returns text.
enum { CLI_RISK = 40 };
// "fits TIGHTLY", or "may not fit" where PyTorch would reserve more than there is.
const char *cli_tight_text(double margin_gib);
const char *cli_memory_risk(double fit_probability, double margin_gib, char text[CLI_RISK]);

// A figure of a point of a sweep, for cli_figure_cells().
double cli_figure_of_trial(const void *trial, const char *key);
// Puts all figures of a point into a document.
void cli_put_figures(json_t *object, const sweep_trial *trial);
// {"ok", "oom", "infeasible", "invalid"}: how many points; the caller owns it.
json_t *cli_statuses_json(const int64_t of_status[SWEEP_STATUSES]);

// Is the step's idle time no pipeline's, but that of waiting for data-parallel ranks with more
// work?
bool cli_waits_for_peers(const sp_result *result);
// A line with the limit's share of the step, and of what adds to it; nothing where it is not known.
void cli_print_limit(FILE *out, const sp_result *result, const char *label, int indent);

// "ok", "tight" or "oom".
const char *cli_memory_word(const sp_result *result);

// Shares of tokens that are not trained as asked: a strategy leaves them out or cuts them off from
// the beginning of their document, or batches were formed without them because of the context. Not
// finite: not known.
typedef struct cli_loss {
    double left_out, cut, over_length;
    const char *fate; // of those over the context: "dropped", "truncated"; NULL: not known
    bool lossy;       // whether tokens show it or not
} cli_loss;

// "", or "12.3 % of tokens left out, 1.2 % of tokens cut from their beginning, 4.5 % of tokens over
// the context, dropped", or "not lossless" where no token shows it; returns text.
enum { CLI_LOSS = 120 };
cli_loss cli_loss_of_trial(const sweep_trial *trial);                     // without the last share
cli_loss cli_loss_over_length(const sp_scenario *scenario, double share); // that alone
const char *cli_loss_text(cli_loss loss, char text[CLI_LOSS]);
// A line of it among those of a result; no line where nothing is lost.
void cli_print_loss(FILE *out, cli_loss loss);

// What stands behind a row of a table: "12.3 % of tokens left out, runs with probability 0.72";
// returns text.
enum { CLI_NOTES = CLI_LOSS + CLI_RISK + SWEEP_LACKED + 96 };
const char *cli_row_notes(cli_loss loss, double fit_probability, double margin_gib,
                          char text[CLI_NOTES]);
// Appends to the notes what the strategy of a trial chose, and what its stack lacks.
void cli_add_choices(const cli_table *table, const sweep_trial *trial, char text[CLI_NOTES]);
void cli_put_choices(json_t *object, const sweep_trial *trial);

// ---- executed steps ----

// The measured result as `simulate` prints a predicted one, then time and loss of each step.
void cli_print_execution(FILE *out, const sp_scenario *scenario, const sp_execution *execution);

// Gradients of each batch's plan beside those of its plain step, with the verdict.
void cli_print_proofs(FILE *out, const sp_scenario *scenario, const sp_execution *execution);

// Predicted beside measured.
void cli_print_validation(FILE *out, const sp_scenario *scenario, const sp_execution *execution);

// ---- the memory curve ----

enum { CLI_MOST_COMPARED = 64 }; // strategies

// Evaluates the strategies with the scenario's memory, then with four fifths of that and so on,
// until none of them fits. *json is {"schema": "slimpack/memory_curve/1", "points": [{"limit_gib",
// "rows": [{"strategy", "status", "iteration_ms", "peak_memory_gib", "speedup", "fits",
// "memory_margin_gib", "fit_probability", "left_out_share", "made_for_gib"}]}], "warnings" (of the
// rows at the first limit)}: limits without what the device keeps for itself, times null where
// nothing fits, speed-ups over the strategy itself at the first limit. Where the plan for less
// memory is better, as sweeps rank points, it stands for more, too, so a strategy with more memory
// is never worse; "made_for_gib" is the limit that it was made for. It does not depend on
// `threads`.
sp_status cli_memory_curve(const sp_scenario *scenario, const sp_batches *batches,
                           const char *const *strategies, int count, int threads, json_t **json,
                           sp_error *err);
void cli_print_memory_curve(const json_t *curve);

// ---- two steps ----

typedef struct cli_difference {
    const char *paths[2]; // A and B: scenarios, or results that hold one step
    const cli_list *set;  // of scenarios, as `lengths`
    const char *lengths;
    int threads;
    bool json, quiet;
} cli_difference;

// Prints settings and figures in which they differ, figures by the largest relative change first;
// as JSON (slimpack/difference/1) {"a", "b", "all_settings" (both hold their scenario), "settings":
// [{"key", "a", "b"}], "figures": [{"key", "a", "b", "ratio", "change"}]}. Returns the exit status.
int cli_print_difference(const cli_difference *asked);

// ---- the best layout of a strategy ----

typedef struct cli_best_question {
    const json_t *root;          // the scenario's document
    const sp_scenario *scenario; // it as stated
    const sp_batches *batches;
    const char *strategy;
    bool within_stack, quiet; // schedules of the stack alone
    int threads;
} cli_best_question;

typedef struct cli_best {
    char layout[CLI_LAYOUT];
    json_t *document;                            // the scenario there, as resolved; owned
    bool stopped;                                // the search for it: there may be a better one
    int64_t of_status[SWEEP_STATUSES], left_out; // layouts
    double stated_ms; // in the stated layout, as the caller says; NAN: none, or it does not fit
    // The fastest layout of those that were left out for the risk of running out of memory, where
    // it is faster than the best; NAN: there is none.
    double risky_ms, risky_margin_gib, risky_probability;
    bool risky_is_tight;
    char risky_layout[CLI_LAYOUT];
} cli_best;

// Searches for it and evaluates it; *best is 0 but for stated_ms. SP_ERR_INFEASIBLE: no layout
// fits; SP_ERR_STOPPED: none was found before a stop.
sp_status cli_best_layout(const cli_best_question *question, cli_best *best, sp_result *result,
                          sp_error *err);
// "layouts", "layout", "stated_layout_ms", "tight_layout" and "tight_layout_ms".
void cli_best_add_json(const cli_best *best, json_t *object);
// Of a table, the layout: a column for each setting of it, by the name that sweeps have for it.
void cli_best_add_columns(char *columns, size_t size);
void cli_best_cells(const cli_best *best, const sp_result *result, cli_table *table);
// A line of the layout that was left out for that strategy, where there is one.
void cli_best_print_risky(const cli_best *best, const char *strategy);
// As launch arguments of frameworks.
sp_status cli_best_emit(const cli_best *best, const cli_list *emit, const char *source,
                        json_t *answer, bool quiet, sp_error *err);

// ---- launch files that an answer of `tune` is for ----

enum { CLI_LAUNCHES = 8 };

typedef struct cli_launch {
    cli_list files; // their frameworks, of `names`
    const char *names[CLI_LAUNCHES];
    char unsaid[256]; // strategies that they cannot ask for, between blanks
    // They count a step in rows, which hold fewer tokens than fill them; 0: tokens make the step.
    int64_t rows, row_tokens;
    char step[64]; // in words
} cli_launch;

// Those that --emit writes, else those among the files of --current.
void cli_launch_find(const cli_list *emit, const cli_list *current, cli_launch *launch);
// Finds which of the strategies they cannot ask for; returns the first that they can, or the first.
// `base` is read with each, `scenario` is what it reads as.
const char *cli_launch_strategies(cli_launch *launch, const json_t *base,
                                  const sp_scenario *scenario, const char *const *strategies,
                                  int count);
// What they have in the place of a setting of the base with that strategy; the caller owns it.
json_t *cli_launch_own(const cli_launch *launch, const json_t *base, const char *strategy,
                       const char *key);
// Takes a batch of tokens as one of about as many rows.
sp_status cli_launch_count(cli_launch *launch, const json_t *base, const sp_scenario *scenario,
                           const char *strategy, int64_t gpus, sp_error *err);
// States the batch of the answer as they count it.
void cli_launch_answer(const cli_launch *launch, json_t *document);
// ---- the answer of `tune` ----

enum { CLI_FRONT_SHOWN = 12 }; // points of the front of time against memory

typedef struct cli_tuned {
    const sweep_layouts_options *options;
    const sweep_layouts *layouts;
    const sp_scenario *scenario; // at the fastest layout
    const sp_result *result;     // there
    const sp_batches *batches;   // that all were evaluated on
    const char *step;            // why a step has so many tokens; NULL: that is stated
    double current_ms;       // of the layout that is compared with; NAN: none, or it does not fit
    double switched_ms;      // of it with the stack's switches as the answer's; NAN: they are
    double current_left_out; // share of tokens that its strategy leaves out
    const char *current;     // why not, else NULL
    json_t *changes;         // of launch files for the answer, an array (framework_changes())
    int top;                 // layouts listed
    bool stopped;            // by a signal or a time limit: the answer is the best so far
    bool late;               // by a time limit
    double train_tokens;     // of a whole training; 0: not asked for
    const char *go_on;       // the command that makes something of the answer
    const char *again;       // that of a short screen, which searches again
    bool written;            // to a file that the command names
} cli_tuned;

// Adds to tuned->changes what to change for the answer in those files that are launch files, which
// ask for `current`, else, `imported`, in the one that --emit writes for it.
void cli_launch_changes(const cli_list *files, const sp_scenario *current, bool imported,
                        cli_tuned *tuned);

// The answer in a line, the fastest layouts, the front of time against memory, what limits the
// step, and what other choices cost.
void cli_print_tuned(const cli_tuned *tuned);

// {"schema": "slimpack/tune/1", "question", "answer", "nearest_error" (of logged steps, where the
// answer's is not known), "within_error" (points behind the first), "go_on" (a command),
// "current_ms", "switched_ms" (with the answer's switches of the stack), "current_reason" (of a
// current_ms that is null), "changes" (of each launch file), "points", "top", "front",
// "limits_ms", "findings", "choices", "passed_over" (the fastest point that is faster and riskier,
// with "faster_percent"), "expandable", "to_do", ...}; the caller owns it.
json_t *cli_tuned_json(const cli_tuned *tuned);

// Its keys where no point fits, null but for the question and the counts of points.
json_t *cli_tuned_json_empty(const cli_tuned *tuned);

// This holds for models with experts.
#define CLI_TUNE_EXPERTS                                                                      \
    "experts are split over the tp ranks where tp is above 1; --set parallel.etp=1 searches " \
    "layouts that do not split them"

enum { CLI_TUNE_VALUE = SP_RECOMPUTE_TEXT, CLI_TUNE_POINT = 200 + SP_RECOMPUTE_TEXT };

// "tp 8, cp 4, ..., packed"; returns text.
const char *cli_tune_point(const sweep_layouts_options *options, const sweep_layouts *layouts,
                           const sweep_layout *point, char text[CLI_TUNE_POINT]);

// "12.3 GiB", of less than one "0.123 GiB"; returns text.
const char *cli_tune_gib(double gib, char text[CLI_TUNE_VALUE]);

enum { CLI_TUNE_MOST_GPUS = 1 << 20 };

// The number of samples next to `samples` of which data-parallel ranks of any number that divides
// the GPUs, and is no larger, have as many.
int64_t cli_tune_shared(int64_t gpus, int64_t samples);

// A question of `tune` for which nothing fits.
typedef struct cli_shortage {
    const void *asked;
    // The question on so many GPUs, with more overrides: the base of its points, and what that
    // reads as. The caller frees both, also after an error.
    sp_status (*base_of)(const void *asked, int64_t gpus, const char *const *more, int more_count,
                         json_t **base, sp_scenario *scenario, sp_error *err);
    const sp_scenario *scenario; // that of the question
    const sweep_layouts_options *options;
    const sweep_layouts *layouts; // none of them fits
    bool stack_stated;
} cli_shortage;

enum { CLI_TUNE_NEED = 2 * CLI_TUNE_POINT + 160 };

// "needs 94.00 GiB on a GPU, 14.00 more than the limit of 80.00: tp 8, ..." of the nearest point;
// "" where none is known. Returns text.
const char *cli_tune_need(const cli_shortage *shortage, char text[CLI_TUNE_NEED]);

// Tells the point that lacks the least memory and what it lacks; the switches that the stack has
// and that spare memory on these GPUs, each alone and, where none is enough, the first two that
// are; and the fewest GPUs (1, 2, 4, ... in a node, or whole nodes) at which a layout of the first
// strategy fits with full recomputation, or what is stated and the stack runs.
// *remedies:
// {"fewest_gpus", "fewest_gpus_well", "fewest_gpus_point", "switches": [{"set": ["KEY=VALUE"],
// "saves_gib", "lacks_gib", "fits", "host_gib" where host memory is used}]}, the caller owns it, or
// NULL. SP_ERR_INFEASIBLE, or what went wrong.
sp_status cli_tune_shortage(const cli_shortage *shortage, json_t **remedies, sp_error *err);

#endif
