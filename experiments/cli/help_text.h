// Help for people, from the tables of the commands.
#ifndef SLIMPACK_EXPERIMENTS_CLI_HELP_TEXT_H
#define SLIMPACK_EXPERIMENTS_CLI_HELP_TEXT_H

#include <stdio.h>

#include "experiments/cli/command.h"

// The list of commands, and the help of one.
void cli_print_overview(FILE *out);
void cli_print_help(FILE *out, const cli_command *command);

#endif
