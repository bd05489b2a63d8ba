// What a request can set of the executor.
#ifndef SLIMPACK_BACKENDS_HOST_OPTIONS_H
#define SLIMPACK_BACKENDS_HOST_OPTIONS_H

#include "backends/action_error.h"
#include "backends/backend.h"
#include "backends/comm/attention.h"
#include "backends/host/arena.h"

typedef struct sp_i_host_options {
    double learning_rate, weight_decay;
    double clip; // largest norm of all gradients; 0: any
    double dropout;
    const char *text; // path; NULL: random tokens
    // Actions to fail on demand, NAME@DP.PP; NULL: none.
    const char *fail, *stall, *exhaust;
    int64_t fault_step; // in which they happen, from 1
    sp_i_host_measure measure;
    sp_comm_attention_way attention_way;
} sp_i_host_options;

extern const sp_backend_option_info sp_i_host_option_list[];

// Is it the action that an option names?
bool sp_i_host_names(const char *option, const sp_plan *plan, const sp_plan_place *place);

// SP_ERR_USAGE with the option, the value and what was expected.
sp_status sp_i_host_options_read(const sp_run_request *request, sp_i_host_options *options,
                                 sp_error *err);

#endif
