// Sweeps of scenarios, from the specification to the summary of a results file.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_SWEEP_H
#define SLIMPACK_EXPERIMENTS_SWEEP_SWEEP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/data_folder.h"
#include "sim/base/prng.h"
#include "sim/base/status.h"
#include "sim/metrics/result.h"
#include "sim/scenario/scenario.h"
#include "solver/evaluate/evaluate.h"

// ---- the condition ----

// The condition of a sweep: a small expression over the settings of a point, such as
// "tp * pp * dp == 512 && recompute != 'full'".

typedef enum sweep_kind { SWEEP_NULL, SWEEP_BOOL, SWEEP_NUMBER, SWEEP_STRING } sweep_kind;

typedef struct sweep_value {
    sweep_kind kind;
    double number;    // of a number; 0 or 1 of a bool
    bool unknown;     // null because the point has no such figure
    const char *text; // of a string; not owned
} sweep_value;

// A setting that a condition can name: a scalar of the base (axis -1, one value) or an axis of the
// grid, with one value per value of the axis; or a figure.
typedef struct sweep_symbol {
    char *path; // "parallel.tp"; owned
    int axis;
    sweep_value *values;      // owned
    const sp_figure *figure;  // NULL: it is none
    const char *const *names; // all that it can be, of what is no setting; NULL: it is a number
} sweep_symbol;

typedef struct sweep_symbols {
    sweep_symbol *items; // owned
    size_t count, capacity;
    const char *unknown; // what a name is that none of them has
} sweep_symbols;

void sweep_symbols_fini(sweep_symbols *symbols);

typedef struct sweep_where sweep_where;

enum {
    SWEEP_WHERE_BYTES = 4096, // longest condition
    SWEEP_WHERE_DEPTH = 100,  // deepest nesting
};

// Reads a condition. Grammar, from loosest to tightest: || ; && ; == != < <= > >= (which do not
// chain); + - ; * / % ; unary ! - ; number, 'string' or "string", true, false, null, name, ( ).
// A number of tokens may be written 128K or 1M; a text that is one, as a setting may have it, is
// that number beside a number. A name is the full path of a setting or its last part where no other
// setting shares it; tp, cp, pp and dp are those of `parallel`, and 1 where nothing sets them; in
// a condition on results those of the point, however they came about, as are the chunks that its
// strategy chose. A comparison by size with a figure that a point does not have is false. A
// comparison with a value that the table of settings or figures does not allow is an error where it
// never holds, or always does ("mfu > 40", "recompute != 'ful'"). Errors name source, path and the
// character. All of these
// are referred to and must outlive the condition.
sp_status sweep_where_parse(const char *text, const char *source, const char *path,
                            const sweep_symbols *symbols, sweep_where **where, sp_error *err);
void sweep_where_free(sweep_where *where);

// Does the condition hold where axis a takes its value number digit[a]? Wrong types and division by
// zero are content errors with the character. O(length of the condition); thread-safe.
sp_status sweep_where_holds(const sweep_where *where, const int64_t *digit, bool *holds,
                            sp_error *err);

// A part of the condition that must hold by itself: the condition is parts joined by &&.
typedef struct sweep_where_part {
    int node;
    uint32_t axes; // bit a: it reads axis a
} sweep_where_part;

// Writes the parts and returns their number; what is beyond `most` is one part with the last.
int sweep_where_parts(const sweep_where *where, sweep_where_part *parts, int most);

// Can the condition not hold whatever the axes that the part does not read? False also where the
// part cannot be evaluated: sweep_where_holds() tells why.
bool sweep_where_excludes(const sweep_where *where, const sweep_where_part *part,
                          const int64_t *digit);

// ---- the grid ----

// A sweep (slimpack/sweep/1): a base scenario, a grid of settings that take its place, and a
// condition that chooses among the combinations. The points are the combinations for which the
// condition holds; they are walked, counted and drawn without looking at every combination.

#define SWEEP_SCHEMA "slimpack/sweep/1"

#define SWEEP_COMBINATIONS ((int64_t)1 << 53) // exact as numbers of JSON

enum {
    SWEEP_AXES = 32,
    SWEEP_AXIS_VALUES = 1000000,
    SWEEP_TAG = 17,
    SWEEP_SOURCE = 256,
};

typedef struct sweep_axis {
    const char *path; // "parallel.tp"; belongs to the document, as do the values
    const json_t *values;
    json_t *read; // the values as sp_setting_as_read() has them; owned
    int64_t count;
} sweep_axis;

typedef struct sweep_spec {
    char source[SWEEP_SOURCE];    // file name, for messages
    char base_file[SP_DATA_PATH]; // from which the base is: the specification's, or its own; "":
                                  // none
    json_t *document;             // owned
    json_t *stated;               // the grid before its paths were placed; owned, NULL: none was
    json_t *settings;             // the base before, without long arrays; owned
    const json_t *base;
    json_t *base_read;           // as the values of axes; owned
    sweep_axis axes[SWEEP_AXES]; // in the order of the file; the last one varies fastest
    int axis_count;
    int64_t combinations;
    sweep_symbols symbols;
    sweep_where *where;       // NULL: every combination is a point
    char base_tag[SWEEP_TAG]; // of the base and of what the files that are named hold
} sweep_spec;

// Tells a text from another: FNV-1a (Fowler, Noll, Vo; 64 bits) in hexadecimal.
void sweep_tag(const char *text, size_t bytes, char tag[SWEEP_TAG]);

sp_status sweep_spec_read(const char *path, sweep_spec *spec, sp_error *err);
// Takes over the document.
sp_status sweep_spec_from_json(json_t *document, const char *source, sweep_spec *spec,
                               sp_error *err);
void sweep_spec_fini(sweep_spec *spec);

// The values of an axis as the specification has them: paths as from where it lies.
const json_t *sweep_spec_stated(const sweep_spec *spec, int axis);

// {"parallel.tp": 1, ...}, as stated; the caller owns it.
json_t *sweep_spec_point(const sweep_spec *spec, const int64_t digit[SWEEP_AXES]);

// The scenario of a point: the base with the axes' values in their places, from `document`, the
// spec's own or a deep copy of it. The result shares parts with it: threads must not have one
// document in common. The caller owns it.
json_t *sweep_spec_scenario(const sweep_spec *spec, const json_t *document,
                            const int64_t digit[SWEEP_AXES]);

// ---- points ----

enum { SWEEP_PARTS = 64 };

// Walks the points in order: row-major over the axes, the first one slowest. Values that a part of
// the condition rules out whatever the later axes hold are passed over at once.
typedef struct sweep_cursor {
    const sweep_spec *spec;
    sweep_where_part parts[SWEEP_PARTS];
    int part_count;
    bool begun;
    bool ended;
    int64_t combination;       // of the current point
    int64_t digit[SWEEP_AXES]; // its value's number on each axis
} sweep_cursor;

void sweep_cursor_begin(sweep_cursor *cursor, const sweep_spec *spec);
// Goes to the next point; *found is false after the last one.
sp_status sweep_cursor_next(sweep_cursor *cursor, bool *found, sp_error *err);

// The digits of a combination, and back.
void sweep_spec_digits(const sweep_spec *spec, int64_t combination, int64_t digit[SWEEP_AXES]);
int64_t sweep_spec_combination(const sweep_spec *spec, const int64_t digit[SWEEP_AXES]);

// Points in all. O(combinations of the axes that the condition names), at most
// SWEEP_LOOKED_AT of them: SP_ERR_LIMIT beyond.
enum { SWEEP_LOOKED_AT = 100000000 };
sp_status sweep_spec_count(const sweep_spec *spec, int64_t *points, sp_error *err);

// Draws `count` of the `points` points, each set of so many with equal chance, and writes their
// combinations in ascending order; all where there are no more. As costly as counting them.
sp_status sweep_spec_draw(const sweep_spec *spec, int64_t points, int64_t count, sp_prng *prng,
                          int64_t *combinations, sp_error *err);

// ---- what a stack runs ----

// What keeps a stack from running a point.
typedef enum sweep_lack {
    SWEEP_RUNS,
    SWEEP_LACKS_SCHEDULE,
    SWEEP_LACKS_STRATEGY,
    SWEEP_LACKS_ARGUMENT, // for a strategy that it runs (sweep_layouts_options)
    SWEEP_LACKS_OTHER,    // recomputation, ZeRO stage, parallelism of an axis or batch size
    SWEEP_LACKS
} sweep_lack;

// What a point asks of its stack, of settings that are chosen among several; NULL, negative or 0
// where a setting is stated, which is then taken as the stack's.
typedef struct sweep_asked {
    bool tensor, pipeline; // of several ranks
    const char *schedule;  // of such a pipeline
    const char *strategy, *recompute;
    const char *exchange; // of keys and values, over several ranks
    int zero;
    // Samples of one length each fill a row, so that their number in a step is that of rows. Of
    // other lengths (0) the strategy makes as many rows as there are, and a data loader rounds
    // them.
    int64_t samples, dp, rows; // rows of a micro-batch
} sweep_asked;

enum { SWEEP_LACKED = 96 };

// What the stack lacks (sp_stack_abilities), with its name in `lacks`, such as "schedule zb-v"; ""
// where it runs all.
sweep_lack sweep_lack_of(const sp_stack *stack, const sweep_asked *asked, char lacks[SWEEP_LACKED]);

// Has the grid several values for the setting, or for what it is a part of?
bool sweep_spec_chooses(const sweep_spec *spec, const char *path);

// The same of a point, whose scenario is read: what the base or an axis of one value states is
// taken as the stack's.
sweep_lack sweep_point_lack(const sweep_spec *spec, const sp_scenario *scenario,
                            char lacks[SWEEP_LACKED]);

// ---- a point and its line ----

// One point of a sweep: from its scenario to its line in a results file, a JSON object, and back.

// ok: fits; oom: evaluated, needs more memory than there is; infeasible: strategy or schedule
// cannot; invalid: no scenario; cannot_run: the scenario's stack cannot, and it is not evaluated.
typedef enum sweep_status {
    SWEEP_OK,
    SWEEP_OOM,
    SWEEP_INFEASIBLE,
    SWEEP_INVALID,
    SWEEP_CANNOT_RUN,
    SWEEP_STATUSES
} sweep_status;

extern const char *const sweep_status_names[]; // "ok", ..., NULL

enum { SWEEP_DIGITS = 15 }; // of a figure, as in all JSON output of the program

// The figures of a line, in its order: those of the table (figures.inc) that points are compared
// by.
#define KEY(...)
#define NUMBER(...)
typedef enum sweep_figure {
#define COMPARED(name, place, ...) SWEEP_##name = place - 1,
#include "sim/metrics/figures.inc"
#undef COMPARED
    SWEEP_FIGURE_COUNT = 0
#define COMPARED(...) +1
#include "sim/metrics/figures.inc"
#undef COMPARED
} sweep_figure;
#undef KEY
#undef NUMBER

extern const char *const sweep_figure_names[]; // "iteration_ms", ..., NULL
int sweep_figure_better(sweep_figure figure);  // 1 or -1

enum { SWEEP_DEGREES = 4 };
extern const char *const sweep_degree_names[]; // "tp", "cp", "pp", "dp"

// Numbers that a strategy chooses by itself, by their keys in a result.
enum { SWEEP_CHUNKS, SWEEP_ROW_TOKENS, SWEEP_CHOICES };
extern const char *const sweep_choice_names[]; // "chunks_per_rank", "row_tokens"

// The outcome of a point, which its line holds beside it. Figures are NAN where the line has none.
typedef struct sweep_trial {
    sweep_status status;
    int degree[SWEEP_DEGREES];       // 0: not evaluated
    char strategy[32], schedule[32]; // "": not evaluated
    double choice[SWEEP_CHOICES];    // NAN: the strategy did not choose
    char lacks[SWEEP_LACKED];        // its stack, of what the point asks; "": nothing
    double figure[SWEEP_FIGURE_COUNT];
    double stall_ms; // of its time, because it does not fit well; no part of a line
    sp_fits fits;
    bool lossy;                           // trains less, or other attention, than the samples ask
    double median_error;                  // of predicted times, on logged steps like this one
    char not_validated[SP_NOT_VALIDATED]; // why that is not known, where a time is predicted
    char reason[SP_ERROR_TEXT];
} sweep_trial;

// A trial of that status with no figures.
void sweep_trial_begin(sweep_trial *trial, sweep_status status);

// The means by which the threads of a sweep evaluate points.
typedef struct sweep_evaluator {
    const sweep_spec *spec; // NULL: scenarios are given as documents
    int threads;
    json_t **documents; // the threads' own copies of the spec's, made when first used; owned
    sp_scenario_cache *files;
    struct sweep_batch_cache *batches; // most points differ in layout alone: equal workloads share
    bool asks_stack;                   // what points lack of their stack stands in their trials
    bool within_stack;                 // and those that lack anything are not evaluated
    // Figures that no line holds are left out, and so are the settings with which a point out of
    // memory would fit: up to 25 whole steps, which are mostly other points of the sweep.
    sp_evaluate_options options;
} sweep_evaluator;

// sweep_evaluator_fini is called whatever happened.
void sweep_evaluator_init(sweep_evaluator *evaluator, const sweep_spec *spec, int threads);
void sweep_evaluator_fini(sweep_evaluator *evaluator);

// The scenario of a point, for that thread alone; the caller owns it.
json_t *sweep_evaluator_scenario(const sweep_evaluator *evaluator, int thread,
                                 const int64_t digit[SWEEP_AXES]);

// Evaluates a scenario that no other thread reads. The error is of the scenario, unless it is
// fatal; `status` says which kind of point it makes. The caller frees the result in any case.
sp_status sweep_evaluate_document(const sweep_evaluator *evaluator, json_t *document,
                                  sweep_status *status, sp_result *result, sp_error *err);

// Evaluates the point of a combination on one of the threads. What is wrong with a point is its
// result; only a stop, what the system refuses, and defects of ours are errors. *notes is the
// object of its warnings and of sizes outside the profile's tables, as a result has them, which the
// caller owns; `notes` may be NULL.
sp_status sweep_evaluate_point(const sweep_evaluator *evaluator, int thread, int64_t combination,
                               sweep_trial *trial, json_t **notes, sp_error *err);

// The time at which the point would train all tokens of its batches, at its own pace where it
// leaves some out: what times of strategies that do not the same work are compared by. NAN: no
// time.
double sweep_whole_ms(const sweep_trial *trial);

// The same over the chance that the point does not run out of memory (sp_fit_chance()): what a user
// has to expect who takes it.
double sweep_expected_ms(const sweep_trial *trial);

// Does a come before b, both of points that fit, in the order of the speed that is to be expected?
bool sweep_is_better(const sweep_trial *a, const sweep_trial *b);

// ---- lines ----

// A point with its line.
typedef struct sweep_row {
    int64_t combination;
    bool first; // of the sweep's points: its line holds the base, by which a page knows the model
    sweep_trial trial;
    json_t *notes; // "warnings" and "uncalibrated", where there are any; owned
    char *line;    // with its newline, NULL where it was read; owned
} sweep_row;

void sweep_row_fini(sweep_row *row);

// Evaluates the combination on one of the threads and writes the line.
sp_status sweep_row_evaluate(const sweep_evaluator *evaluator, int thread, sweep_row *row,
                             sp_error *err);

// The text of a point as it stands in the line; freed with free().
char *sweep_point_text(const json_t *point);

// Takes what a line, or a result of another command, says of a point; the status is SWEEP_STATUSES
// where it says none.
void sweep_trial_take(const json_t *row, sweep_trial *trial);
// NULL: the strategy did not choose.
json_t *sweep_choice_json(const sweep_trial *trial, int choice);
// Reads a line back. False where it is no line of a sweep; *expected says then what was not found.
bool sweep_trial_read(const json_t *row, sweep_trial *trial, const char **expected);

// Where a line stands, for messages: line `number`, from 1, of a file.
typedef struct sweep_line_place {
    const char *path;
    long number;
} sweep_line_place;

// Reads the line of a row's combination, without its newline; a content error where it is that of
// another point or sweep, or was changed. The caller calls sweep_row_fini(), also after an error.
sp_status sweep_line_read(const sweep_spec *spec, const char *line, size_t bytes,
                          const sweep_line_place *place, sweep_row *row, sp_error *err);

// The error of a line that is not of this sweep; `text` says why.
sp_status sweep_line_of_other(const sweep_spec *spec, const sweep_line_place *place,
                              const char *text, sp_error *err);

// ---- the summary ----

// The summary of a sweep's lines: how many are of which status, the best points, and the
// Pareto front of two figures. Points of other work (another workload or model on an axis of the
// grid) answer another question: each such group has its own best points and its own front. Memory
// does not grow with the number of lines.

enum {
    SWEEP_TOP = 5,
    SWEEP_TOP_BESIDE_FRONT = 3, // a front has the fastest, too
    SWEEP_MOST_TOP = 1000,
    SWEEP_MOST_GROUPS = 1024
};

typedef struct sweep_summary_options {
    int64_t top;     // points that are kept of a group, the best first; 0: SWEEP_TOP
    bool by_figure;  // the best by figure `by`; else the fastest. Those that fit tightly come last
    sweep_figure by; //
    const char *where; // condition on settings and figures of the points that are listed, as in
                       // "tp <= 4 && peak_memory_gib < 60"; NULL: all that fit
    bool front;        // keep the front of figures x and y, ascending in x
    sweep_figure x, y;
    // Called with every line in order, and whether `where` holds of it; may be NULL.
    void (*each)(void *context, int64_t combination, const sweep_trial *trial, bool holds);
    void *context;
} sweep_summary_options;

typedef struct sweep_best {
    int64_t combination;
    int64_t group;
    sweep_trial trial;
} sweep_best;

// Covers the whole file, with what an earlier run had written.
typedef struct sweep_summary {
    sweep_summary_options options;
    int64_t points;  // of the sweep
    int64_t resumed; // found in the file
    int64_t written; // lines in the file now
    int64_t of_status[SWEEP_STATUSES];
    int64_t beyond; // points that were evaluated though their stack cannot run them
    char reason[SWEEP_STATUSES][SP_ERROR_TEXT]; // the first of each
    int group_axes[SWEEP_AXES];                 // by which points are grouped
    int group_axis_count;
    int64_t mixed;    // groups that are too many to be told apart: all points are one; else 0
    sweep_best *best; // by group, then the best first, of equal ones the first; owned
    int64_t best_count;
    size_t best_capacity;
    sweep_best *front; // by group; owned
    int64_t front_count;
    size_t front_capacity;
    bool stopped;              // before the end
    sp_warning_kinds warnings; // of points that fit; owned
    const sweep_spec *spec;    // not owned
    sweep_symbols symbols;     // of the condition
    // SWEEP_FIGURE_COUNT of them, then status and fits, then degrees and choices, which are those
    // of the settings where the point does not say (NULL: not stated).
    sweep_symbol *of_figures;
    const sweep_symbol *stated[SWEEP_DEGREES + SWEEP_CHOICES];
    sweep_where *where;
} sweep_summary;

// The caller calls sweep_summary_fini(), also after an error.
sp_status sweep_summary_begin(sweep_summary *summary, const sweep_spec *spec,
                              const sweep_summary_options *options, sp_error *err);
sp_status sweep_summary_add(sweep_summary *summary, const sweep_row *row, sp_error *err);
void sweep_summary_fini(sweep_summary *summary);

// Does a setting change what is to be trained?
bool sweep_is_work(const char *path);

// The figure of that name; false where there is none.
bool sweep_figure_find(const char *name, sweep_figure *figure);

// ---- the run ----

// Runs a sweep: chooses the points (all, a shard, a sample drawn at random, or those that a search
// along the Pareto front asks for), evaluates them with threads and writes their lines in order,
// goes on with a file that is there, and puts the files of shards together.

enum { SWEEP_MOST_POINTS = 100000000, SWEEP_MOST_SHARDS = 100000 };

typedef struct sweep_choice_options {
    int64_t sample; // so many points, drawn with equal chance, in the order of the grid; 0: all
    int64_t search; // so many points, found by a search; 0: none
    int64_t seed;   // of both
    int64_t shard,
        shards; // of the points every `shards`th, from number `shard`, 1 to shards; 0: all
} sweep_choice_options;

typedef struct sweep_choice {
    const sweep_spec *spec;
    sweep_choice_options options;
    int64_t in_grid; // points of the whole grid
    int64_t points;  // that the run evaluates
    int64_t passed;  // points of all shards that were passed
    sweep_cursor cursor;
    int64_t *chosen; // combinations; NULL: those of the cursor; owned
    int64_t chosen_count;
    int64_t *sorted; // of a search: the chosen ones, ascending; owned
    sp_prng prng;
} sweep_choice;

// The caller calls sweep_choice_end(), also after an error.
sp_status sweep_choice_begin(sweep_choice *choice, const sweep_spec *spec,
                             const sweep_choice_options *options, sp_error *err);

// The next point; *found is false after the last one that is chosen so far.
sp_status sweep_choice_next(sweep_choice *choice, int64_t *combination, bool *found, sp_error *err);

// Has a search choose more points by what is known of those before, all of which are in `summary`.
// Children of the front: one to three settings of a point on it are changed, or taken from another
// one; where there are none, points drawn at random. Nothing depends on threads or on time.
sp_status sweep_choice_extend(sweep_choice *choice, const sweep_summary *summary, sp_error *err);

void sweep_choice_end(sweep_choice *choice);

// ---- running ----

enum { SWEEP_MOST_THREADS = 1024 };

typedef struct sweep_run_options {
    int threads;       // 1 to SWEEP_MOST_THREADS
    bool resume;       // go on with a file that is there
    bool quiet;        // no progress
    bool within_stack; // points that their stack cannot run are not evaluated
    sweep_choice_options choice;
} sweep_run_options;

// Runs the sweep into `path` and adds its lines to `summary`, which has begun. The lines do not
// depend on the number of threads. After an error the file holds whole lines and can be
// gone on with. A kill, and a stop (sp_stop_request), which ends the run soon and is no error, lose
// the points in work and those that wait for an earlier one, at most SWEEP_WINDOW for each thread.
// SP_ERR_LIMIT where more than SWEEP_MOST_POINTS points would be walked.
enum { SWEEP_WINDOW = 256 };
sp_status sweep_run(const sweep_spec *spec, const char *path, const sweep_run_options *options,
                    sweep_summary *summary, sp_error *err);

// ---- merging ----

// Writes the lines of `count` files, one for each shard, in the order of the points to `path`, and
// adds them to `summary`, which has begun. The files may stand in any order. A content error names
// the file and line where a point is missing or another one is found, or the shard that is missing
// or there twice; `path` is then not made.
sp_status sweep_merge(const sweep_spec *spec, const sweep_choice_options *options,
                      const char *const *files, int count, const char *path, sweep_summary *summary,
                      sp_error *err);

#endif
