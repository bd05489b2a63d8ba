// The outcome of an execution as a document (slimpack/execution/1): `slimpack run --record` writes
// it on one machine, `slimpack validate --executed` reads it on any.
//
// {"schema", "request": {"backend", "clock", "precision", "seed", "steps", "memory_points",
//  "options": {key: value, ...}, "plan": {slimpack/plan/1}}, "status": "ok" or the name of a
//  status, "reason": text or null, "device": {"name", "ranks", "cores"} or null, "batches":
//  [{"steps":
//  [{"iteration_ns", "loss": number, or null where there is none that is finite}, ...], "shown":
//  index of the step of median time, "ranks": [{"dp", "pp", "actions": [[name,
//  start, end, tp, cp, dp, launch, wait], ...] in order of time, "copies": likewise, "shares":
//  [[name, start, ..., end of the vocabulary, own], ...], "tail_ns": [reduction start, end,
//  optimizer end, gather end], "memory":
//  {"peak": {category: bytes}, "peak_ns", "peak_action": name or null, "units_peak", "points":
//  [[time, bytes of each category in the order of "peak"], ...]}}, ...] of that step, "report":
//  object, what the backend says of how it executed, where it does}, ...]}
//
// Times are in ns of the step. Where the status is not "ok" there are no batches.
#ifndef SLIMPACK_BACKENDS_RECORD_RESULT_H
#define SLIMPACK_BACKENDS_RECORD_RESULT_H

#include "backends/api/device.h"
#include "sim/plan/plan_json.h"

// The figures that are kept of every step of a run, and which of them stands for the others.
typedef struct sp_executed_step {
    int64_t iteration_ns;
    bool has_loss;
    double loss;
    double learning_rate; // 0: not known, as of another machine
} sp_executed_step;

sp_executed_step sp_executed_step_of(const sp_measured_step *step);

// Index of the step that is shown of `count`: the first of several is a warm-up, and of the others
// it is the one of median time (the faster of the two in the middle, the earlier of equal ones).
int sp_execution_median_step(const sp_executed_step *steps, int count);

// Makes a document without batches; NULL where a text is no UTF-8. `run` holds the settings of all
// batches (of options that are given twice the first counts), `plan` is the document of their plan;
// `device` may be NULL, `reason` NULL where the status is SP_OK.
json_t *sp_result_document(const char *backend, const sp_run_request *run, const json_t *plan,
                           const sp_device_info *device, sp_status status, const char *reason);

// Adds what a batch came to.
void sp_result_document_add(json_t *document, const sp_run *run);

typedef struct sp_executed_run {
    sp_executed_step *steps; // owned
    int step_count;
    int shown;
    sp_measured_step step; // the one shown; owned
} sp_executed_run;

// A result in memory. It must not be moved: timelines point to its plans.
typedef struct sp_result_file {
    json_t *document;    // owned; holds the name
    const char *backend; // that executed
    sp_run_request run;  // clock, precision, seed, steps and memory_points alone
    sp_plan_file plans;  // owned
    sp_status status;
    char reason[SP_ERROR_TEXT]; // "" where the status is SP_OK
    sp_device_info device;      // without capabilities; no name: not known
    sp_executed_run *batches;   // owned; [plans.count], NULL where the status is not SP_OK
} sp_result_file;

// Reads a result and checks it against its plans (sp_measured_step_check); takes over `root`.
// `layout` is that of the plan's scenario, which the caller resolves and keeps. Errors name file,
// path and value.
sp_status sp_result_json_read(json_t *root, const char *source, const sp_layout *layout,
                              sp_result_file *file, sp_error *err);
void sp_result_file_fini(sp_result_file *file);

#endif
