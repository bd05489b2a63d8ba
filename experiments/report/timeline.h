// Timelines as a page holds them: ranks, of each the tracks of its actions, and memory over time.
// They are read from the two forms in which the program writes them: Chrome's trace events, and the
// actions of an executed batch.
#ifndef SLIMPACK_EXPERIMENTS_REPORT_TIMELINE_H
#define SLIMPACK_EXPERIMENTS_REPORT_TIMELINE_H

#include <stdint.h>

#include "experiments/report/inputs.h"
#include "sim/base/writer.h"

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

#endif
