// Commands of the program and their options: one table per command drives parsing, help, the manual
// page and shell completion.
#ifndef SLIMPACK_EXPERIMENTS_CLI_OPTIONS_H
#define SLIMPACK_EXPERIMENTS_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/writer.h"

// ---- text ----

// Names of models and files, and all else that a command prints by %s, may hold what steers a
// terminal: whatever is printed here goes through sp_print().
#define printf(...) sp_print(stdout, __VA_ARGS__)
#define fprintf(...) sp_print(__VA_ARGS__)

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

#define CLI_COMMON_OPTIONS(type)                                                                  \
    CLI_FLAG_OPTION("json", type, common.json,                                                    \
                    "print the result as JSON on standard output, and nothing else there"),       \
    {.kind = CLI_FLAG, .letter = 'q', .name = "quiet", .at = offsetof(type, common.quiet),        \
     .help = "no progress and no notes on standard error"}

// A member `int64_t jobs` of the argument struct; 0 stands for all cores.
#define CLI_JOBS_OPTION(type)                                                                     \
    {.kind = CLI_INT, .letter = 'j', .name = "jobs", .value = "N", .at = offsetof(type, jobs),    \
     .help = "threads to use (default: all cores); the result does not depend on it",             \
     .min = 1, .max = CLI_MOST_THREADS}

// Members `int64_t sample, seed` of the argument struct: which points of a sweep are drawn.
#define CLI_SAMPLE_OPTIONS(type)                                                                  \
    CLI_INT_OPTION("sample", "N", type, sample, 1, SWEEP_MOST_POINTS,                             \
                   "evaluate N points that are drawn at random, in the order of the grid"),       \
        CLI_INT_OPTION("seed", "N", type, seed, 0, INT64_MAX,                                     \
                       "of --sample and --search (default 0)")

// A member `cli_list set` of the argument struct.
#define CLI_SET_OPTION(type)                                                                      \
    {.kind = CLI_LIST, .name = "set", .value = "KEY=VALUE", .at = offsetof(type, set),            \
     .help = "override a scalar of the scenario, such as parallel.pp=8; may be repeated"}
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
extern const cli_command cli_cmd_lengths;
extern const cli_command cli_cmd_report;
extern const cli_command cli_cmd_help;

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
// bundled letters; `--` ends the options; the last of several values counts. "-" as a file is a
// standard stream, and where that is standard output, people are told things on stderr. An output
// that is also another file of the command line is refused. argv is put in another order.
int cli_run(const cli_command *command, int argc, char **argv);

// Does the value of such an option name a file?
bool cli_is_file(cli_kind kind);

// Threads for a number of jobs that CLI_JOBS_OPTION read.
int cli_threads(int64_t jobs);

#endif
