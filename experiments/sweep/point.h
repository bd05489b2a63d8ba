// One point of a sweep: from its scenario to what a line of the results file holds.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_POINT_H
#define SLIMPACK_EXPERIMENTS_SWEEP_POINT_H

#include "experiments/sweep/points.h"
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

// What a line holds beside its point. Figures are NAN where the line has none.
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

// Batches by workload, shared by the threads of a sweep: most points differ in layout alone and
// train on the same samples.
typedef struct sweep_batch_cache sweep_batch_cache;

sp_status sweep_batch_cache_new(sweep_batch_cache **cache, sp_error *err);
void sweep_batch_cache_free(sweep_batch_cache *cache);

// The batches of the scenario's workload, formed where no scenario before had an equal one. They
// stay until they are released. Thread-safe; two threads may form the same ones at once.
typedef struct sweep_batch_entry sweep_batch_entry;
sp_status sweep_batch_cache_acquire(sweep_batch_cache *cache, const sp_scenario *scenario,
                                    sweep_batch_entry **entry, sp_error *err);
const sp_batches *sweep_batch_entry_batches(const sweep_batch_entry *entry);
void sweep_batch_cache_release(sweep_batch_cache *cache, sweep_batch_entry *entry);

// What the threads of a sweep evaluate with.
typedef struct sweep_evaluator {
    const sweep_spec *spec; // NULL: scenarios are given as documents
    int threads;
    json_t **documents; // the threads' own copies of the spec's, made when first used; owned
    sp_scenario_cache *files;
    sweep_batch_cache *batches;
    // What a line does not tell is left out, and so are the settings with which a point out of
    // memory would fit: up to 19 whole steps, which are mostly other points of the sweep.
    sp_evaluate_options options;
} sweep_evaluator;

// sweep_evaluator_fini is called whatever happened.
sp_status sweep_evaluator_init(sweep_evaluator *evaluator, const sweep_spec *spec, int threads,
                               sp_error *err);
void sweep_evaluator_fini(sweep_evaluator *evaluator);

// The scenario of a point, for that thread alone; the caller owns it. NULL when memory ran out.
json_t *sweep_evaluator_scenario(const sweep_evaluator *evaluator, int thread,
                                 const int64_t digit[SWEEP_AXES]);

// Evaluates a scenario that no other thread reads. The error is of the scenario, unless it is
// fatal; `status` says which kind of point it makes. The caller frees the result in any case.
sp_status sweep_evaluate_document(const sweep_evaluator *evaluator, json_t *document,
                                  sweep_status *status, sp_result *result, sp_error *err);

// Evaluates the point of a combination on one of the threads. What is wrong with a point is its
// result; only lack of memory and defects of ours are errors.
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

#endif
