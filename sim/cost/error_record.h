// How far a profile's predictions were from logged steps that its fit had not seen, by kind of
// step: the `errors` of a profile (profiles/README.md). A prediction is as good as the record of
// steps like it; where there is none, the text that says so names what no logged step has.
#ifndef SLIMPACK_SIM_COST_ERROR_RECORD_H
#define SLIMPACK_SIM_COST_ERROR_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/json.h"

// Two steps are compared by these: figures lie in a range, words are among some.
typedef enum sp_step_figure {
    SP_STEP_PARAMETERS,
    SP_STEP_EXPERTS, // 0: dense
    SP_STEP_GPUS,
    SP_STEP_TP,
    SP_STEP_TP_NODES, // that a tensor-parallel group spans
    SP_STEP_CP,
    SP_STEP_PP,
    SP_STEP_ZERO,
    SP_STEP_CONTEXT, // tokens
    SP_STEP_CHUNKS,
    SP_STEP_MICROBATCH, // rows
    // Both are NAN until the step was simulated.
    SP_STEP_MICROBATCHES_PER_STAGE, // those of a replica over the pipeline's stages
    SP_STEP_BUBBLE,                 // share of the ranks' time
    // The cluster's, by its data sheet.
    SP_STEP_PEAK,   // TFLOP/s
    SP_STEP_MEMORY, // GiB
    SP_STEP_HBM,    // GB/s
    SP_STEP_NVLINK, // GB/s
    SP_STEP_NODE,   // GPUs
    SP_STEP_NODE_NICS,
    SP_STEP_NIC, // Gbit/s
    SP_STEP_FIGURES
} sp_step_figure;

typedef enum sp_step_word {
    SP_STEP_CLUSTER,
    SP_STEP_STACK,
    SP_STEP_PRECISION,
    SP_STEP_ATTENTION,
    SP_STEP_RECOMPUTE,
    SP_STEP_LENGTHS, // "uniform": every sample fills its row; else "mixed"
    SP_STEP_SCHEDULE,
    SP_STEP_WORDS
} sp_step_word;

extern const char *const sp_step_figure_names[]; // "model_parameters", ..., NULL
extern const char *const sp_step_word_names[];   // "cluster", ..., NULL

// Figures and, numbered on, words.
const char *sp_step_trait_name(int trait);

enum {
    SP_STEP_WORD = 96, // bytes of a word
    SP_ERROR_RECORDS = 64,
    SP_ERROR_FOLDS = 1000000,
    SP_ERROR_SCOPE = 96,
    SP_ERROR_SOURCE = 240,
    SP_ERROR_WORDS = 200, // bytes of the words of one condition
    SP_NOT_VALIDATED = 400,
};

typedef struct sp_step_kind {
    double figure[SP_STEP_FIGURES];
    char word[SP_STEP_WORDS][SP_STEP_WORD];
} sp_step_kind;

// Errors are fractions of what was measured: median and ninth decile of their sizes, their mean.
typedef struct sp_error_record {
    char scope[SP_ERROR_SCOPE]; // what was logged, for people
    char source[SP_ERROR_SOURCE];
    double least[SP_STEP_FIGURES], most[SP_STEP_FIGURES];
    char words[SP_STEP_WORDS][SP_ERROR_WORDS]; // a word to a line; "": any
    int conditions;                            // figures and words that are bound
    int64_t steps;
    int folds; // groups of steps that were left out in turn
    double median, p90, bias;
} sp_error_record;

typedef struct sp_error_records {
    sp_error_record *record; // [count]; owned
    int count;
} sp_error_records;

// Reads `errors` of a profile (absent: none). Content errors go to root->err.
void sp_i_error_records_read(sp_object *root, sp_error_records *records);
// A copy that owns its records.
void sp_i_error_records_copy(const sp_error_records *from, sp_error_records *to);
void sp_i_error_records_fini(sp_error_records *records);

// How measured times lie to predicted ones where no logged step is like them, by logged steps.
typedef struct sp_error_range {
    double least, most; // measured over predicted time, of 8 in 10 steps of others; 0: not known
    int steps, sources; // every source has the same weight
    // Launches of a layer's micro-batch may take so long where layers are short, by logged steps:
    // the step may take as long though computation seems to take less. 0: they do not decide.
    double launch_ms;
} sp_error_range;

// Some steps waited for what no model has: on many nodes, and where tensor parallelism spans nodes.
typedef struct sp_waiting_steps {
    int nodes;
    int steps, waited; // of one source
    int step_nodes;    // of the step that is asked for, of which there may be no log
} sp_waiting_steps;

// The records say this of a step.
typedef struct sp_step_error {
    bool known;
    // 0 where the error is not known. p90 is a prediction interval: nine in ten steps of this kind,
    // of another model and under a later release than those that were logged, are so far off.
    double median, p90, bias;
    // Where it is not known: traits that keep the nearest record off, -1 where there is no record,
    // 0 where nothing was compared.
    int differing;
    int foreign;          // of these: of cluster, stack and computation, not of model and layout
    sp_error_range range; // of others as far away; of a step that was simulated
    sp_waiting_steps waiting; // on the nearest logged number of nodes; steps 0: one
    // Where it is not known, the nearest logged steps; steps 0: there are none.
    int64_t steps;
    char scope[SP_ERROR_SCOPE];
    char not_validated[SP_NOT_VALIDATED]; // why it is not known
} sp_step_error;

// Widens a record, of least above most and no words where there was no step before, to another
// step.
void sp_error_record_extend(sp_error_record *record, const sp_step_kind *kind);

// The traits that keep a step out of a record; of these `foreign` ones are the cluster's figures
// and all words: a step that differs in none but others is of another model or layout.
int sp_error_record_differing(const sp_error_record *record, const sp_step_kind *kind,
                              int *foreign);

// Finds the most specific of the records whose conditions all hold: with the most conditions, then
// with the fewest steps, then the first. Where none holds, the reason is told of the record that
// the fewest conditions keep off. `profile` names the profile for people. O(records).
void sp_step_error_find(const sp_error_records *records, const sp_step_kind *kind,
                        const char *profile, sp_step_error *found);

// The range of logged steps that differed as much from those that their profile was fitted to: in
// up to three traits of model and layout, or in more and in foreign ones. `layer_ms` is what a
// layer's micro-batch is predicted to take: where it is short, and the profile was not fitted to
// such a stack, launches may take longer.
sp_error_range sp_error_range_of(int differing, int foreign, double layer_ms);

// The logged steps on the nearest number of nodes, with tensor parallelism over nodes or inside.
sp_waiting_steps sp_waiting_steps_of(double nodes, bool tp_over_nodes);

#endif
