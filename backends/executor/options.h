// What a request can set of the executor.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_OPTIONS_H
#define SLIMPACK_BACKENDS_EXECUTOR_OPTIONS_H

#include "backends/api/backend.h"
#include "backends/comm/attention.h"
#include "backends/executor/arena.h"
#include "sim/plan/plan.h"

typedef struct sp_i_exec_options {
    double learning_rate, weight_decay;
    double clip; // largest norm of all gradients; 0: any
    double dropout;
    bool rounded;     // parameters start as bf16 numbers
    const char *text; // path; NULL: random tokens
    // Actions to fail on demand, NAME@DP.PP; NULL: none.
    const char *fail, *stall, *exhaust;
    int64_t fault_step; // in which they happen, from 1
    sp_i_exec_measure measure;
    sp_comm_attention_way attention_way;
    bool emulated_links; // hidden states are under way as long as the request says
} sp_i_exec_options;

// What a backend that runs plans with this executor lists among its own options.
#define SP_I_EXEC_OPTION_LIST                                                                      \
    {"learning_rate", "of AdamW, 0 or more (default 0.001)"},                                      \
        {"weight_decay", "of AdamW, for matrices, 0 or more (default 0.1)"},                       \
        {"clip",                                                                                   \
         "largest norm of all gradients together, above which they are scaled down to it; 0: any " \
         "(default 0)"},                                                                           \
        {"dropout", "share of the outputs of embedding and blocks that GELU models drop, 0 or "    \
                    "more and below 1 "                                                            \
                    "(default 0)"},                                                                \
        {"rounded", "\"true\": parameters start as numbers that bf16 holds, in every precision "   \
                    "the same (default \"false\")"},                                               \
        {"text", "a file whose bytes are the tokens (default: random tokens)"},                    \
        {"attention",                                                                              \
         "of packs that several ranks share: \"gathered\" (default), keys and values of all "      \
         "ranks at once, or \"ring\", one rank's after the other's"},                              \
        {"links",                                                                                  \
         "between pipeline ranks: \"off\" (default), as the machine is, or \"emulated\", hidden "  \
         "states arrive as late as predicted; on the CPU on the virtual clock alone"},             \
        {"bytes",                                                                                  \
         "that memory is counted and limited in: \"table\", as the saved-tensor table counts "     \
         "mixed-precision training, or \"real\" (default: real in bf16 where the stack has "       \
         "device_bytes)"},                                                                         \
        {"fail", "ACTION@DP.PP, such as F3.1@0.2: the action fails"},                              \
        {"stall", "ACTION@DP.PP: the action never ends"},                                          \
        {"exhaust", "ACTION@DP.PP: the action finds no memory"},                                   \
    {                                                                                              \
        "fault_step", "in which of the three above happen, from 1 (default 1)"                     \
    }

// Is it the action that an option names?
bool sp_i_exec_names(const char *option, const sp_plan *plan, const sp_plan_place *place);

// SP_ERR_USAGE with the backend, the option, the value and what was expected.
sp_status sp_i_exec_options_read(const sp_run_request *request, const char *backend,
                                 sp_i_exec_options *options, sp_error *err);

#endif
