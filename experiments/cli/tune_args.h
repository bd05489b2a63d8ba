// What `tune` is asked. Private to cmd_tune.c and the parts of tune.
#ifndef SLIMPACK_EXPERIMENTS_CLI_TUNE_ARGS_H
#define SLIMPACK_EXPERIMENTS_CLI_TUNE_ARGS_H

#include "experiments/cli/options.h"
#include "experiments/sweep/layouts.h"

enum { CLI_TUNE_MOST_GPUS = 1 << 20 };

typedef struct cli_tune_args {
    cli_common common;
    cli_list set, current;
    int64_t gpus, context, tokens_per_batch, jobs, top;
    const char *cluster, *lengths, *strategies, *output;
    bool exhaustive;
} cli_tune_args;

// Does an override, or --set, state what is at the dotted path, by itself or as part of an object?
bool cli_tune_states(const char *const *overrides, int count, const char *path);
bool cli_tune_is_set(const cli_tune_args *args, const char *path);

// The command for a shell that simulates a point: that of the file that holds it, else the same
// question with every setting of the point stated, which evaluates this one alone, and then that.
// The caller frees it with free().
char *cli_tune_command(const cli_tune_args *args, const char *model, const sweep_layouts *layouts,
                       const sweep_layout *point, const char *strategy);

#endif
