// Cases of a set that another machine executes: what it is given and what it gives back, as files.
#ifndef SLIMPACK_EXPERIMENTS_EXECUTION_REMOTE_H
#define SLIMPACK_EXPERIMENTS_EXECUTION_REMOTE_H

#include "experiments/execution/set_validation.h"
#include "sim/scenario/plan_input.h"

enum { SP_CASE_FILE = 64 };

// The name of a case's files without their endings: its place in the set, counted from 1, and its
// own name in lower-case letters, digits and '-' ("07-1f1b-tp2-pp2").
void sp_case_file_name(const sp_scenario_case *of, size_t index, char name[SP_CASE_FILE]);

// Plans and predicts a case and writes its plan (slimpack/plan/1) to `path`, with the stack of the
// backend that is to execute it. Where there is no plan the outcome says so, and there is no file.
// Errors: those of sp_set_run_case, and a file that cannot be written.
sp_status sp_set_export_case(const sp_scenario_case *of, const sp_execution_options *options,
                             const char *path, sp_case_outcome *outcome, sp_error *err);

// Executes a plan as `options` say, and leaves at `path` a record of that or of why it failed
// (backends/record/result.h). NULL: no record. Errors: those of sp_execution_run, and a file
// that cannot be written.
sp_status sp_execution_run_recorded(const sp_plan_input *in, const sp_execution_options *options,
                                    const char *path, sp_execution *execution, sp_error *err);

// Reads a case's result (backends/record/result.h). Content errors: what is wrong with the file, or
// that it is of another backend, model, layout or memory. SP_ERR_IO: there is none.
sp_status sp_set_read_executed(const sp_scenario_case *of, const sp_backend *backend,
                               const char *path, sp_result_file *executed, sp_error *err);

#endif
