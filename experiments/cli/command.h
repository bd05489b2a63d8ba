// Commands of the program, and what they share.
#ifndef SLIMPACK_EXPERIMENTS_CLI_COMMAND_H
#define SLIMPACK_EXPERIMENTS_CLI_COMMAND_H

#include <stdio.h>

#include "experiments/cli/option_table.h"

typedef struct cli_command {
    const char *name;
    const char *summary;               // one line, no full stop
    const char *operands;              // as in the usage line ("SCENARIO|PLAN"); NULL: none
    int min_operands;                  // fewer are refused
    int max_operands;                  // more are refused; negative: any number
    const char *description;           // paragraphs, separated by an empty line
    const char *const *examples;       // command lines, NULL-terminated; may be NULL
    const cli_option *options;         // ends with a row without a name
    int (*run)(int argc, char **argv); // argv[0] is the command's name; returns the exit status
} cli_command;

// One object per cmd_*.c; a new command is declared here and listed in commands.c.
extern const cli_command cli_cmd_simulate;
extern const cli_command cli_cmd_compare;
extern const cli_command cli_cmd_plan;
extern const cli_command cli_cmd_sweep;
extern const cli_command cli_cmd_run;
extern const cli_command cli_cmd_validate;
extern const cli_command cli_cmd_calibrate;
extern const cli_command cli_cmd_lengths;
extern const cli_command cli_cmd_help;

extern const cli_command *const cli_commands[]; // in the order of the help, NULL-terminated

// NULL when there is none of that name.
const cli_command *cli_find_command(const char *name);

// Reports an unknown command with the nearest name; returns the exit status.
int cli_unknown_command(const char *name);

// The manual page (man(7) source) and the completion script for bash, from the same tables.
void cli_print_manual(FILE *out);
void cli_print_completion(FILE *out);

#endif
