// Options of a command: one table drives parsing, help, the manual page and shell completion.
#ifndef SLIMPACK_EXPERIMENTS_CLI_OPTION_TABLE_H
#define SLIMPACK_EXPERIMENTS_CLI_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cli_kind {
    CLI_FLAG,   // bool
    CLI_INT,    // int64_t from min to max
    CLI_STRING, // const char *
    CLI_FILE,   // const char *, completed as a file name
    CLI_LIST,   // cli_list, may be given several times
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
    int64_t min, max; // CLI_INT
} cli_option;

// What every command takes: a member `common` of the argument struct and CLI_COMMON_OPTIONS(struct)
// in the table.
typedef struct cli_common {
    bool json;
    bool quiet;
} cli_common;

enum { CLI_MOST_THREADS = 1024 };

// clang-format off
#define CLI_COMMON_OPTIONS(type)                                                                  \
    {.kind = CLI_FLAG, .name = "json", .at = offsetof(type, common.json),                         \
     .help = "print the result as JSON on standard output, and nothing else there"},              \
    {.kind = CLI_FLAG, .letter = 'q', .name = "quiet", .at = offsetof(type, common.quiet),        \
     .help = "no progress and no notes on standard error"}

// A member `int64_t jobs` of the argument struct; 0 stands for all cores.
#define CLI_JOBS_OPTION(type)                                                                     \
    {.kind = CLI_INT, .letter = 'j', .name = "jobs", .value = "N", .at = offsetof(type, jobs),    \
     .help = "threads to use (default: all cores); the result does not depend on it",             \
     .min = 1, .max = CLI_MOST_THREADS}

// A member `cli_list set` of the argument struct.
#define CLI_SET_OPTION(type)                                                                      \
    {.kind = CLI_LIST, .name = "set", .value = "KEY=VALUE", .at = offsetof(type, set),            \
     .help = "override a scalar of the scenario, such as parallel.pp=8; may be repeated"}
// clang-format on

#endif
