// One point of a sweep: from its scenario to its line in a results file, a JSON object, and back.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_POINT_H
#define SLIMPACK_EXPERIMENTS_SWEEP_POINT_H

#include "experiments/sweep/spec.h"
#include "sim/metrics/result.h"
#include "sim/scenario/scenario.h"
#include "solver/evaluate/evaluate.h"

// ok: fits; oom: evaluated, needs more memory than there is; infeasible: strategy or schedule
// cannot; invalid: no scenario.
typedef enum sweep_status {
    SWEEP_OK,
    SWEEP_OOM,
    SWEEP_INFEASIBLE,
    SWEEP_INVALID,
    SWEEP_STATUSES
} sweep_status;

extern const char *const sweep_status_names[]; // "ok", ..., NULL

enum { SWEEP_DIGITS = 15 }; // of a figure, as in all JSON output of the program

// The figures of a line: X(name, key, 1: more is better, -1: less is).
#define SWEEP_FIGURES(X)                            \
    X(ITERATION_MS, "iteration_ms", -1)             \
    X(BUBBLE_RATIO, "bubble_ratio", -1)             \
    X(TOKENS_PER_S, "tokens_per_s", 1)              \
    X(TOKENS_PER_GPU_S, "tokens_per_gpu_s", 1)      \
    X(TFLOPS_PER_GPU, "tflops_per_gpu", 1)          \
    X(MFU_FULL_ATTENTION, "mfu_full_attention", 1)  \
    X(MFU, "mfu", 1)                                \
    X(PEAK_MEMORY_GIB, "peak_memory_gib", -1)       \
    X(RESERVED_GIB, "peak_memory_reserved_gib", -1) \
    X(MEMORY_MARGIN_GIB, "memory_margin_gib", 1)    \
    X(LEFT_OUT_SHARE, "left_out_share", -1)         \
    X(CUT_SHARE, "cut_share", -1)                   \
    X(OVER_LENGTH_SHARE, "over_length_share", -1)

typedef enum sweep_figure {
#define X(name, key, better) SWEEP_##name,
    SWEEP_FIGURES(X)
#undef X
        SWEEP_FIGURE_COUNT
} sweep_figure;

extern const char *const sweep_figure_names[]; // "iteration_ms", ..., NULL
extern const int sweep_figure_better[];        // 1 or -1

enum { SWEEP_DEGREES = 4 };
extern const char *const sweep_degree_names[]; // "tp", "cp", "pp", "dp"

// The outcome of a point, which its line holds beside it. Figures are NAN where the line has none.
typedef struct sweep_digest {
    sweep_status status;
    int degree[SWEEP_DEGREES];       // 0: not evaluated
    char strategy[32], schedule[32]; // "": not evaluated
    double figure[SWEEP_FIGURE_COUNT];
    double stall_ms; // of its time, because it does not fit well; no part of a line
    sp_fits fits;
    bool lossy;                           // trains less, or other attention, than the samples ask
    double median_error;                  // of predicted times, on logged steps like this one
    char not_validated[SP_NOT_VALIDATED]; // why that is not known, where a time is predicted
    char reason[SP_ERROR_TEXT];
} sweep_digest;

// A digest of that status with no figures.
void sweep_digest_begin(sweep_digest *digest, sweep_status status);

// The means by which the threads of a sweep evaluate points.
typedef struct sweep_evaluator {
    const sweep_spec *spec; // NULL: scenarios are given as documents
    int threads;
    json_t **documents; // the threads' own copies of the spec's, made when first used; owned
    sp_scenario_cache *files;
    struct sweep_batch_cache *batches; // most points differ in layout alone: equal workloads share
    // Figures that no line holds are left out, and so are the settings with which a point out of
    // memory would fit: up to 19 whole steps, which are mostly other points of the sweep.
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
// result; only a stop, what the system refuses, and defects of ours are errors.
sp_status sweep_evaluate_point(const sweep_evaluator *evaluator, int thread, int64_t combination,
                               sweep_digest *digest, sp_error *err);

// The time at which the point would train all tokens of its batches, at its own pace where it
// leaves some out: what times of strategies that do not the same work are compared by. NAN: no
// time.
double sweep_whole_ms(const sweep_digest *digest);

// Does a fit tightly and b not? A tight step is slower than predicted, so it comes behind all that
// are not, in any order.
bool sweep_is_tighter(const sweep_digest *a, const sweep_digest *b);

// Does a come before b, both of points that fit, in the order of their speed?
bool sweep_is_better(const sweep_digest *a, const sweep_digest *b);

// ---- lines ----

// A point with its line.
typedef struct sweep_row {
    int64_t combination;
    sweep_digest digest;
    char *line; // with its newline; owned, freed with sp_free()
} sweep_row;

// Evaluates the combination on one of the threads and writes the line.
sp_status sweep_row_evaluate(const sweep_evaluator *evaluator, int thread, sweep_row *row,
                             sp_error *err);

// The text of a point as it stands in the line; freed with free().
char *sweep_point_text(const json_t *point);

// Reads a line back. False where it is no line of a sweep; *expected says then what was not found.
bool sweep_digest_read(const json_t *row, sweep_digest *digest, const char **expected);

// Where a line stands, for messages: line `number`, from 1, of a file.
typedef struct sweep_line_place {
    const char *path;
    long number;
} sweep_line_place;

// Reads the line of a combination, without its newline; a content error where it is that of another
// point or sweep, or was changed.
sp_status sweep_line_read(const sweep_spec *spec, int64_t combination, const char *line,
                          size_t bytes, const sweep_line_place *place, sweep_digest *digest,
                          sp_error *err);

// The error of a line that is not of this sweep; `text` says why.
sp_status sweep_line_of_other(const sweep_spec *spec, const sweep_line_place *place,
                              const char *text, sp_error *err);

#endif
