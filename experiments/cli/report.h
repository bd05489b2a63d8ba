// What commands print: errors and notes on stderr, results on stdout.
#ifndef SLIMPACK_EXPERIMENTS_CLI_REPORT_H
#define SLIMPACK_EXPERIMENTS_CLI_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "experiments/cli/command.h"
#include "sim/base/status.h"

// Prints every message of the record ("error: ...") and returns its exit status.
int cli_fail(const sp_error *err);

// The same by one of several processes that execute together: those but the first say who they are.
int cli_fail_of(int process, const sp_error *err);

// Reports wrong usage with a pointer to the command's help (NULL: the program's); returns 2.
int cli_usage_error(const cli_command *command, const char *format, ...) SP_PRINTF(2, 3);

// "warning: ..." on stderr, unless quiet.
void cli_warn(bool quiet, const char *format, ...) SP_PRINTF(2, 3);

// Takes over `root` (NULL stands for memory that ran out) and prints it with a final newline.
// Returns the exit status.
int cli_print_json(json_t *root);

// Prints words from `indent` on, the first line beginning at column `column`, wrapped at column 80;
// an empty line in the text stays one. Ends with a newline.
void cli_print_wrapped(FILE *out, const char *text, int column, int indent);

enum { CLI_GROUPED = 32 };

// 1234567 as "1,234,567"; returns text.
const char *cli_grouped(int64_t value, char text[CLI_GROUPED]);

#endif
