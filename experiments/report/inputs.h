// The documents that a report is made of: result documents of the commands, traces and plans.
#ifndef SLIMPACK_EXPERIMENTS_REPORT_INPUTS_H
#define SLIMPACK_EXPERIMENTS_REPORT_INPUTS_H

#include <jansson.h>
#include <stdio.h>

#include "sim/base/status.h"

typedef enum report_kind {
    REPORT_RESULT,
    REPORT_COMPARISON,
    REPORT_TUNE,
    REPORT_VALIDATION,
    REPORT_PLAN,
    REPORT_SWEEP_SUMMARY,
    REPORT_MEMORY_CURVE,
    REPORT_PREFILL, // prompts, or rows of methods and lengths
    REPORT_DECODE,
    REPORT_SWEEP, // an array of the lines of a results file
    REPORT_TRACE,
    REPORT_KINDS,
} report_kind;

extern const char *const report_kind_names[REPORT_KINDS];

typedef struct report_timeline report_timeline;

typedef struct report_input {
    const char *path; // not owned
    report_kind kind;
    json_t *json;              // NULL of a trace
    report_timeline *timeline; // of a trace, else NULL
} report_input;

typedef struct report_inputs {
    report_input *items;
    int count;
} report_inputs;

// Reads `count` files, those whose names end in .gz uncompressed. A document is recognised by its
// member "schema" or "traceEvents", a sweep's results file by its first line. A content error names
// file and JSON path of what a report cannot show. After an error, too, the caller frees with
// report_inputs_fini().
sp_status report_inputs_read(char *const *paths, int count, report_inputs *inputs, sp_error *err);
void report_inputs_fini(report_inputs *inputs);

// Reads one from a file that can be rewound; `input` has a path for messages, and nothing else yet.
sp_status report_input_read(report_input *input, FILE *file, sp_error *err);

#endif
