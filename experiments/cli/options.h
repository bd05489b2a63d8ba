// Reading a command's arguments by its option table.
#ifndef SLIMPACK_EXPERIMENTS_CLI_OPTIONS_H
#define SLIMPACK_EXPERIMENTS_CLI_OPTIONS_H

#include "experiments/cli/command.h"

void cli_list_fini(cli_list *list);

// The arguments that are no options, in order; points into argv.
typedef struct cli_operands {
    char **items;
    int count;
} cli_operands;

enum { CLI_PROCEED = -1 };

// Reads argv[1..argc) into `args` (the command's struct, holding the defaults) and the operands,
// which are moved to the front of argv. Returns CLI_PROCEED, or the exit status with which the
// command ends at once: --help was printed (0), or the usage was wrong and has been reported (2).
// Lists in `args` are to be freed after CLI_PROCEED only. `--name value`, `--name=value`, `-n
// value`, `-nvalue`, bundled letters; `--` ends the options; the last of several values counts.
int cli_parse(const cli_command *command, int argc, char **argv, void *args,
              cli_operands *operands);

// Threads for a number of jobs that CLI_JOBS_OPTION read.
int cli_threads(int64_t jobs);

#endif
