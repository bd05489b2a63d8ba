// Logs of training runs: the steps that they tell of, and what these come to.
#ifndef SLIMPACK_EXPERIMENTS_MEASURE_TRAINING_LOG_H
#define SLIMPACK_EXPERIMENTS_MEASURE_TRAINING_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "experiments/measure/measurements.h"
#include "sim/base/status.h"

// Lines of these are known. Where a run prints lines of several of them for each step, the first of
// this list counts.
typedef enum sp_log_form {
    SP_LOG_MEGATRON, // Megatron-LM, Megatron-DeepSpeed, Primus, Megatron-Bridge
    SP_LOG_NANOTRON,
    SP_LOG_TORCHTITAN,
    SP_LOG_NEMO,      // NeMo 2 and the progress bar of NeMo 1
    SP_LOG_BRIDGE,    // "Step Time" of Megatron-Bridge
    SP_LOG_DEEPSPEED, // its throughput timer
    SP_LOG_TRAINER,   // the summary of Hugging Face's Trainer
    SP_LOG_FORMS
} sp_log_form;

extern const char *const sp_log_form_names[]; // "Megatron-LM", ..., NULL

// What a line may say of a step.
typedef enum sp_logged {
    SP_LOGGED_MS,
    SP_LOGGED_TOKENS_PER_S, // of all GPUs together
    SP_LOGGED_TOKENS_PER_GPU_S,
    SP_LOGGED_SAMPLES_PER_S, // of all GPUs together
    SP_LOGGED_TFLOPS_PER_GPU,
    SP_LOGGED_SAMPLES, // of a step
    SP_LOGGED_FIGURES
} sp_logged;

typedef enum sp_logged_memory_kind {
    SP_LOGGED_ALLOCATED, // PyTorch's max_memory_allocated
    SP_LOGGED_RESERVED,  // its max_memory_reserved
    SP_LOGGED_MEMORIES
} sp_logged_memory_kind;

// Over the steps that were kept; NAN where none of them says it.
typedef struct sp_logged_figure {
    size_t steps;
    double median, mean, p10, p90;
} sp_logged_figure;

// The largest that any line says.
typedef struct sp_logged_memory {
    bool known;
    double bytes;
    // The only rank that lines are of; negative: of several ranks, or they do not say.
    int64_t rank;
} sp_logged_memory;

// What lines before the first step say of the job.
typedef enum sp_logged_fact {
    SP_LOGGED_WORLD, // GPUs
    SP_LOGGED_TP,
    SP_LOGGED_CP,
    SP_LOGGED_PP,
    SP_LOGGED_DP,
    SP_LOGGED_PARAMETERS, // of the whole model
    SP_LOGGED_FACTS
} sp_logged_fact;

typedef struct sp_log_file {
    const char *path; // as given, not owned
    size_t lines;     // that are not empty
    size_t known;     // of those, lines of a known form
    size_t steps;     // that were read, of the form that counts
    int restarts;     // how often the step's number fell
} sp_log_file;

typedef struct sp_training_log {
    sp_log_file *files; // [file_count], owned
    int file_count;
    int form; // sp_log_form of the steps; negative: no line is of a step
    // By what steps are told apart and dropped: SP_LOGGED_MS, a rate of tokens or one of samples.
    sp_logged basis;
    size_t steps;   // that were read
    size_t warm_up; // of them, dropped at the beginning of a log and of each restart
    size_t slow;    // dropped as outliers: checkpoints, evaluations
    size_t kept;
    double slow_from;  // the least time of a dropped one over the median; NAN: none was dropped
    double resolution; // half the last digit of a kept figure over it, of the most exact one
    bool whole_run;    // the only figure is the mean of a run, with its warm-up
    sp_logged_figure figures[SP_LOGGED_FIGURES];
    sp_logged_memory memory[SP_LOGGED_MEMORIES];
    double facts[SP_LOGGED_FACTS]; // as the last line says that has one; NAN: none has
} sp_training_log;

enum { SP_LOG_FILES = 256, SP_LOG_SKIP = 100000 };

// Reads logs of one run: of several ranks, of restarts, or both. `skip`: steps that are dropped at
// the beginning of each log and restart; negative: a tenth of them, at least one of two or more and
// at most ten. Of the rest the steps are dropped that take longer than the median by a fifth and by
// five standard deviations (1.4826 times the median absolute deviation), until none is left. Steps
// of all files count alike; lines that a rank repeats of a step count once.
//
// SP_ERR_CONTENT: a file without a known line, with the forms that are known; files of runs under
// several frameworks; no step left. The caller calls sp_training_log_fini after success.
sp_status sp_training_log_read(const char *const *paths, int count, int skip, sp_training_log *log,
                               sp_error *err);
// Reads one log from memory.
sp_status sp_training_log_from_text(const char *text, size_t bytes, const char *source, int skip,
                                    sp_training_log *log, sp_error *err);
void sp_training_log_fini(sp_training_log *log);

// "'iteration 10/ 100 | ... elapsed time per iteration (ms): 812.4' (Megatron-LM), ..."
void sp_log_forms_text(char *text, size_t bytes);

// Costs that are stated know no tokens: a log of rates is refused beside them.
sp_status sp_training_log_check(const sp_training_log *log, const sp_scenario *scenario,
                                sp_error *err);

// Mean tokens and samples of the batches; 0 of none.
void sp_mean_step(const sp_batches *batches, double *tokens, double *samples);

// The median step in milliseconds, of the time that steps say or of their rate for steps of so many
// tokens (mean) and samples on so many GPUs.
double sp_training_log_ms(const sp_training_log *log, double tokens, double samples, int64_t gpus);

// A table of one row: the scenario of a file, and the time of the median step as measured. Errors
// are those of sp_training_log_read and of sp_measurements_read; a log without steps is refused.
sp_status sp_measurements_of_log(const char *scenario_path, const char *const *logs, int log_count,
                                 const char *const *overrides, int override_count,
                                 sp_measurements *measurements, sp_error *err);

#endif
