// Traces of PyTorch's profiler as commands take them: files, and folders of files.
#ifndef SLIMPACK_EXPERIMENTS_CLI_TRACES_H
#define SLIMPACK_EXPERIMENTS_CLI_TRACES_H

#include "experiments/cli/cli.h"
#include "experiments/measure/kineto.h"

typedef struct cli_traces {
    sp_kineto *own;          // [count]
    const sp_kineto **items; // [count], into own
    int count;
} cli_traces;

// Reads them in order; of a folder the files whose names end in .json or .json.gz, by name.
// `whole`: one that is cut off is SP_ERR_CONTENT. cli_traces_fini is called whatever happened.
sp_status cli_traces_read(const char *const *paths, int count, bool whole, cli_traces *traces,
                          sp_error *err);
void cli_traces_fini(cli_traces *traces);

// The paths of an option and the operands from `first` on, in order; the caller frees the array.
const char **cli_trace_paths(const cli_list *list, const cli_operands *operands, int first,
                             int *count);

// Makes a profile of traces, on top of profile `base`; returns the exit status.
int cli_calibrate_traces(const cli_list *list, const cli_operands *operands, const char *base,
                         const char *output, const cli_common *common);

#endif
