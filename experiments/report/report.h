// A self-contained HTML page of result documents: reading them, and writing the page.
#ifndef SLIMPACK_EXPERIMENTS_REPORT_REPORT_H
#define SLIMPACK_EXPERIMENTS_REPORT_REPORT_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/status.h"
#include "sim/base/writer.h"

// ---- documents ----

// The documents that a report is made of: result documents of the commands, traces and plans.

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

// ---- timelines ----

// Timelines as a page holds them: ranks, of each the tracks of its actions, and memory over time.
// They are read from the two forms in which the program writes them: Chrome's trace events, and the
// actions of an executed batch.

report_timeline *report_timeline_new(void);
void report_timeline_free(report_timeline *timeline);

typedef struct report_extent {
    int64_t actions;
    size_t ranks;
    double end_ms;
} report_extent;

report_extent report_timeline_extent(const report_timeline *timeline);

// Adds event `number` of a Chrome trace: a complete event, a name, or a counter whose name ends in
// "GiB"; other events are left out. `path` is the document's, for messages.
sp_status report_timeline_add_event(report_timeline *timeline, const char *path,
                                    const json_t *event, size_t number, sp_error *err);

// Reads the ranks of an executed batch ("execution.batches[].ranks" of `run -o`).
sp_status report_timeline_from_executed(const report_input *input, size_t batch,
                                        report_timeline *timeline, sp_error *err);
// How many batches of a result have such ranks.
size_t report_executed_batches(const json_t *result);

// Writes the timeline as JSON: columns of numbers; starts, times and memory as differences, memory
// that never changes as one number, causes beside the actions that have one.
void report_timeline_write(sp_writer *out, report_timeline *timeline, const char *path,
                           const char *title);

// Writes JSON of which no part can end the <script> element that holds it.
void report_write_json(sp_writer *out, const json_t *json);

// ---- the page ----

// A self-contained HTML page of result documents. The template is page.html; what it shows stands
// in a block of JSON.

typedef struct report_page {
    report_inputs *inputs;
    report_timeline **timelines; // owned
    char (*titles)[48];          // of the timelines
    const char **paths;          // of their documents
    size_t timeline_count;
    int64_t action_count;
} report_page;

// Takes the timelines out of the documents. `inputs` must outlive
// the page. After an error, too, the caller frees with report_page_fini().
sp_status report_page_init(report_page *page, report_inputs *inputs, sp_error *err);
void report_page_fini(report_page *page);

// Writes the page. SP_ERR_IO where the stream fails.
sp_status report_page_write(FILE *file, const report_page *page, sp_error *err);

enum { REPORT_ANSWER = 512 };

// The first line of a page, with the error of what it says: the answer of the first document that
// has one, else of the first timeline; returns text.
const char *report_answer(const report_page *page, char text[REPORT_ANSWER]);

#endif
