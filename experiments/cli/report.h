// Commands print errors and notes on stderr, results on stdout.
#ifndef SLIMPACK_EXPERIMENTS_CLI_REPORT_H
#define SLIMPACK_EXPERIMENTS_CLI_REPORT_H

#include <jansson.h>

#include "experiments/cli/options.h"
#include "sim/plan/timeline.h"

// Text on stderr comes after all that was printed to stdout before, also where both are one pipe.

// Prints every message of the record ("error: ...") and returns its exit status.
int cli_fail(const sp_error *err);

// Does so for one of several processes that execute together: those but the first say who they are.
int cli_fail_of(int process, const sp_error *err);

// Ends a command that has no answer. With --json, and a reason that is an answer itself
// (SP_ERR_INFEASIBLE, SP_ERR_STOPPED), it prints `nothing`, the keys of the answer with null, which
// it takes over, with schema, status ("infeasible", "stopped") and reason. Then it tells the error
// as cli_fail_of() does.
int cli_fail_json(bool json, const char *schema, json_t *nothing, int process, const sp_error *err);

// The exit status of a command that printed its answer: 1 where all went well and the answer is
// negative.
int cli_answer(int exit_status, bool positive);

// Ends the process by a signal whose handler this is, and leaves no part of an output behind.
void cli_end(int signal_number);

// From now on the first SIGINT or SIGTERM is a stop (sp_stop_request), the second ends the program.
void cli_catch_stop(void);

// The exit status of a command that such a signal stopped, as a shell reports it: 130 or 143.
int cli_exit_of_stop(void);

// Reports wrong usage with a pointer to the command's help (NULL: the program's); returns 2.
int cli_usage_error(const cli_command *command, const char *format, ...) SP_PRINTF(2, 3);

// "warning: ..." on stderr, unless quiet.
void cli_warn(bool quiet, const char *format, ...) SP_PRINTF(2, 3);

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

// Draws to `path` (.png or .svg) with a script of plots/ from data that `write` writes, or writes
// that data alone (.dat). gnuplot works in a temporary folder, where no name of the caller's
// reaches it. Without gnuplot an SP_ERR_IO error says which package to install.
sp_status cli_plot(const char *script, const char *path, cli_writer write, const void *what,
                   sp_error *err);

// Ends gnuplot and takes its folder away; safe in a signal handler that ends the program.
void cli_plot_abandon(void);

// Draws two timelines of one plan, what was predicted over what was measured, on one axis of time.
sp_status cli_plot_comparison(const char *path, const sp_timeline *predicted,
                              const sp_timeline *measured, sp_error *err);

// Prints words from `indent` on, the first line beginning at column `column`, wrapped at column 80;
// an empty line in the text stays one. Ends with a newline.
void cli_print_wrapped(FILE *out, const char *text, int column, int indent);

// ---- tables ----

// The columns of a table are a text, such as "-12 strategy|14 @iteration_ms|10 @bubble_ratio=idle|0
// note". A bar parts two columns; each is
//     WIDTH HEADING            cells of a command's own
//     WIDTH @KEY[=HEADING]     a figure (sim/metrics/result.h), which says how its values are shown
//                              and, unless a heading is given, what stands above them
// Cells are right-aligned, with a negative width left-aligned, and with width 0 as long as they
// are.
typedef struct cli_row {
    FILE *out;
    const char *columns; // those to come
    bool begun;
} cli_row;

// The headings, without a newline.
void cli_print_heads(FILE *out, const char *columns);
// The next cell of a row.
void cli_cell(cli_row *row, const char *format, ...) SP_PRINTF(2, 3);
// A number by its format, "-" where it is not finite.
void cli_number_cell(cli_row *row, const char *format, double value);
// All columns from here on that are figures, up to one that is none.
void cli_figure_cells(cli_row *row, double (*value)(const void *source, const char *key),
                      const void *source);
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

#endif
