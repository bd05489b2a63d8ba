// Timelines as a page holds them: ranks, of each the tracks of its actions, and memory over time.
#ifndef SLIMPACK_EXPERIMENTS_REPORT_TIMELINE_H
#define SLIMPACK_EXPERIMENTS_REPORT_TIMELINE_H

#include <stdint.h>

#include "experiments/report/inputs.h"
#include "sim/base/writer.h"

// Names that occur many times, by number.
typedef struct report_names {
    json_t *list;   // of strings
    json_t *number; // name -> position in the list
} report_names;

enum { REPORT_NO_CAUSE = -1 };

typedef struct report_action {
    int64_t start_ns, duration_ns;
    int64_t name, kind; // in the timeline's names and kinds
    int64_t cause;      // what it waited for, in the timeline's causes; REPORT_NO_CAUSE: not told
} report_action;

typedef struct report_track {
    json_int_t thread;
    json_t *name; // a string; owned
    report_action *actions;
    size_t count, capacity;
} report_track;

typedef struct report_memory_point {
    int64_t time_ns;
    size_t first; // of its values
} report_memory_point;

// A counter in GiB with a value for each key at each point.
typedef struct report_memory {
    json_t *name, *keys; // a string, an array of strings; owned
    report_memory_point *points;
    size_t count, capacity;
    int64_t *kib;
    size_t kib_count, kib_capacity;
} report_memory;

typedef struct report_rank {
    json_int_t process;
    json_t *name; // a string, owned; NULL: none given
    report_track *tracks;
    size_t track_count, track_capacity;
    report_memory *memory;
    size_t memory_count, memory_capacity;
} report_rank;

struct report_timeline {
    report_names names, kinds, causes;
    report_rank *ranks;
    size_t rank_count, rank_capacity;
    size_t last; // rank that was asked for last
    int64_t action_count;
    double end_ms;
};

report_timeline *report_timeline_new(void);
void report_timeline_free(report_timeline *timeline);

// The rank or the track of that number, made where there is none.
report_rank *report_timeline_rank(report_timeline *timeline, json_int_t process);
report_track *report_rank_track(report_rank *rank, json_int_t thread);

// Of numbers in traces: the nanoseconds of the largest time fit an int64_t.
#define REPORT_MOST_US 1e15
#define REPORT_MOST_GIB 1e9
#define REPORT_NO_CATEGORY "other"
int64_t report_ns(double us);
int64_t report_kib(double gib);

// Room for the values of a new point, one for each key.
int64_t *report_memory_add(report_memory *memory, int64_t time_ns);

// As documents write it.
typedef struct report_entry {
    const char *name, *kind;
    const char *cause; // NULL: not told
    int64_t start_ns, duration_ns;
} report_entry;

// Adds an action to a track.
void report_track_add(report_timeline *timeline, report_track *track, const report_entry *entry);

// Adds event `number` of a Chrome trace: a complete event, a name, or a counter whose name ends in
// "GiB"; other events are left out. `path` is the document's, for messages.
sp_status report_timeline_add_event(report_timeline *timeline, const char *path,
                                    const json_t *event, size_t number, sp_error *err);

// Adds the event of this text, which a zero byte follows, where it is spelled as the program writes
// events; the text is then changed. False: it is not taken, and is to be added as a document.
bool report_timeline_add_text(report_timeline *timeline, char *text, size_t bytes);

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
