// A self-contained HTML page of result documents: reading them, and writing the page.
#ifndef SLIMPACK_EXPERIMENTS_REPORT_REPORT_H
#define SLIMPACK_EXPERIMENTS_REPORT_REPORT_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/status.h"
#include "sim/base/writer.h"
#include "sim/scenario/scenario.h"

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
    int64_t points;            // of a sweep's results file, of which json may hold some
    json_t *swept;             // of its lines: setting to {text: value} of all points; owned
    json_t *settings;          // the base of a sweep's grid, NULL: it does not say; owned
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

// A page has place for so many points of a sweep, and actions of a timeline.
enum { REPORT_MOST_ROWS = 4000, REPORT_MOST_ACTIONS = 4000000 };

// Leaves `most` lines of a sweep, in their order: those that fit before all others, of these the
// front of time and peak memory of each workload and model, then in turn the fastest, as a sweep
// ranks them, and the smallest. O(n log n).
void report_bound_rows(json_t *rows, size_t most);

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
// A text as JSON, or "?" where it is no UTF-8 (timeline.c).
void report_write_text(sp_writer *out, const char *text);

// ---- sliders ----

// The answers of the program at every position of a page's sliders: GPUs, context, tensor-parallel
// and pipeline ranks, and recomputation around one scenario. The page looks them up and computes
// none.

enum { REPORT_MOST_POINTS = 6000, REPORT_POINTS = 4000, REPORT_SECONDS = 60 };

typedef struct report_slider_options {
    const char *path;             // of the scenario
    const char *const *overrides; // "path=value"; as path they outlive the sliders
    int override_count;
    int threads;
    int64_t points; // positions that are evaluated at most, the nearest to the scenario first
    double seconds; // after which no further one is begun
    bool quiet;     // no progress
} report_slider_options;

typedef struct report_sliders report_sliders;

// Evaluates the scenario at the positions as `simulate` does. A content error where the scenario
// has no cluster to change. The caller frees *sliders, which is NULL after an error.
sp_status report_sliders_new(const report_slider_options *options, report_sliders **sliders,
                             sp_error *err);
void report_sliders_free(report_sliders *sliders);

const sp_scenario *report_sliders_scenario(const report_sliders *sliders);
const char *report_sliders_path(const report_sliders *sliders);
// "demo.json --set a=b", as words of a shell.
const char *report_sliders_words(const report_sliders *sliders);
// The time of a step of the scenario itself; NAN: it cannot run.
double report_sliders_base_ms(const report_sliders *sliders);
// Positions, and how many of them have no answer because points or seconds ran out.
int64_t report_sliders_count(const report_sliders *sliders, int64_t *without_answer);

// {"axes", "status", "columns", ...}: a column has a value for each position, row-major over the
// axes. null of NULL.
void report_sliders_write(sp_writer *out, const report_sliders *sliders);

// ---- the page ----

// A self-contained HTML page of result documents. The template is page.html; what it shows stands
// in a block of JSON.

typedef struct report_page {
    report_inputs *inputs;
    const report_sliders *sliders; // NULL: none; not owned
    report_timeline **timelines;   // owned
    char (*titles)[48];            // of the timelines
    const char **paths;            // of their documents
    size_t timeline_count;
    int64_t action_count;
} report_page;

// Takes the timelines out of the documents. `inputs` and `sliders` (NULL: none) must outlive the
// page. A content error where the sliders are not those of the step that the first result predicts,
// or of another model than an answer of another kind. After an error, too, the caller frees with
// report_page_fini().
sp_status report_page_init(report_page *page, report_inputs *inputs, const report_sliders *sliders,
                           sp_error *err);
void report_page_fini(report_page *page);

// Writes the page. SP_ERR_IO where the stream fails.
sp_status report_page_write(FILE *file, const report_page *page, sp_error *err);

enum {
    REPORT_ANSWER = 512,
    REPORT_TITLE = 256,
    REPORT_SWEPT = 1024,
    REPORT_RISK = 48,
    REPORT_STOPPED = 128
};

// The answer of the first document that has one, with the error of what it says, else of the first
// timeline; returns text.
const char *report_answer(const report_page *page, char text[REPORT_ANSWER]);
// Rows of a comparison that a signal stopped, and how many of them were begun but not ended, and
// not begun.
typedef struct report_progress {
    size_t all, in_part, untried;
} report_progress;

// "stopped: 5 of 9 strategies complete, 1 in part, 3 not tried"; returns text.
const char *report_stopped(const report_progress *progress, const char *rows,
                           char text[REPORT_STOPPED]);
// Model and GPUs of that document, or what it is; returns text.
const char *report_title(const report_page *page, char text[REPORT_TITLE]);
// "swept: tp 1, 2, 4; context 8K, 16K" of the first document where it is the lines of a sweep, ""
// of others: a summary holds some points alone; returns text.
const char *report_swept(const report_page *page, char text[REPORT_SWEPT]);
// {"next": [{"command", "why"}], "settings": [[key, value]]}: what to run after this, and what the
// answer holds for. The caller owns it.
json_t *report_head_json(const report_page *page);

// ---- what a page asks of its documents ----

// The first document that has an answer; NULL: there are timelines and plans alone.
const report_input *report_first_answer(const report_page *page);
// What the answer tells of: the result, the best row or point; NULL: none.
const json_t *report_main_result(const report_page *page);
// The model that the answer names; NULL: none.
const char *report_model(const report_page *page);
// The place of the first prediction of what the input executed; -1: there is none, or nothing was
// executed. A result does not name its plan: it is that of a result of the same model, strategy,
// schedule, ranks, actions and batches.
int report_prediction_of(const report_inputs *inputs, const report_input *input);
bool report_is_executed(const report_input *input);
// ", runs with probability 0.72" of a step that fits but may not run, else ""; returns text.
const char *report_risk(const json_t *result, char text[REPORT_RISK]);
// Puts "parts_ms" into an object with a "time_breakdown_ms": parts of the same step that follow one
// another and add up to its "iteration_ms". Launches are no part of computing there, and what a
// full memory and what the document does not tell take are parts of their own.
void report_add_parts(json_t *result);
// NAN, or NULL, where there is no such number or text.
double report_number(const json_t *object, const char *key);
const char *report_string(const json_t *object, const char *key);
// Of all numbers of an object.
double report_sum(const json_t *object);

#endif
