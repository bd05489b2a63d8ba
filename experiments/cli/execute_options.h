// Commands that execute plans share these options, and what they stand for.
#ifndef SLIMPACK_EXPERIMENTS_CLI_EXECUTE_OPTIONS_H
#define SLIMPACK_EXPERIMENTS_CLI_EXECUTE_OPTIONS_H

#include "backends/api/device.h"
#include "experiments/cli/options.h"
#include "experiments/execution/execution.h"
#include "sim/scenario/scenario.h"

// Zero and NULL: not given.
typedef struct cli_execute {
    const char *backend, *clock, *precision;
    int64_t device, seed, steps;
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
    CLI_TEXT_OPTION(CLI_LIST, 0, "option", "KEY=VALUE", type, execute.options,                    \
                    "a setting of the backend; may be repeated")
// clang-format on

// A backend that was found, and how it is to execute.
typedef struct cli_executor {
    sp_registry *registry;
    sp_backend *absent; // stands for a backend that is not built here; NULL: none does
    sp_backend_option *settings;
    char *texts;            // keys and values of the settings
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

#endif
