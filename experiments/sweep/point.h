// One point of a sweep: from its scenario to its line in the results file.
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

// What a summary takes from a line. Figures are NAN where the line has none.
typedef struct sweep_digest {
    sweep_status status;
    double iteration_ms, tokens_per_s, tokens_per_gpu_s, peak_memory_gib, memory_margin_gib;
    double tflops_per_gpu, mfu_full_attention, mfu;
    sp_fits fits;
    double median_error;                  // of predicted times, on logged steps like this one
    char not_validated[SP_NOT_VALIDATED]; // why there is none
    char reason[SP_ERROR_TEXT];
} sweep_digest;

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
    const sweep_spec *spec;
    int threads;
    json_t **documents; // the threads' own copies of the spec's; owned
    sp_scenario_cache *files;
    sweep_batch_cache *batches;
    sp_evaluate_options options; // all zero, unless set after sweep_evaluator_init()
} sweep_evaluator;

// sweep_evaluator_fini is called whatever happened.
sp_status sweep_evaluator_init(sweep_evaluator *evaluator, const sweep_spec *spec, int threads,
                               sp_error *err);
void sweep_evaluator_fini(sweep_evaluator *evaluator);

// Evaluates the point of a combination on one of the threads; *line is its line with the newline,
// to be freed with free(). What is wrong with a point is its result; only lack of memory and
// defects of ours are errors.
sp_status sweep_evaluate_point(const sweep_evaluator *evaluator, int thread, int64_t combination,
                               char **line, sweep_digest *digest, sp_error *err);

// Reads a line back. False where it is no line of a sweep; *expected says then what was not found.
bool sweep_digest_read(const json_t *row, sweep_digest *digest, const char **expected);

// Is a faster than b, both of points that fit?
bool sweep_is_better(const sweep_digest *a, const sweep_digest *b);

// The text of a point as it stands in the line; freed with free(). NULL when memory ran out.
char *sweep_point_text(const json_t *point);

#endif
