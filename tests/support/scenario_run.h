// Scenarios from their text to the result.
#ifndef SLIMPACK_TESTS_SUPPORT_SCENARIO_RUN_H
#define SLIMPACK_TESTS_SUPPORT_SCENARIO_RUN_H

#include "solver/evaluate/evaluate.h"

enum { RUN_TEXT = 4096 };

// The beginning of a scenario.
#define TINY_MODEL \
    "{'model': {'layers': 2, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "

// With every simulation checked against the longest path in igraph.
extern const sp_evaluate_options run_verified;

// A scenario with its batches and its result.
typedef struct scenario_run {
    sp_scenario scenario;
    sp_batches batches;
    sp_result result;
} scenario_run;

// Appends to a text of RUN_TEXT bytes, with ' standing for ".
void put_json(char *text, const char *format, ...);

// Reads a scenario that is written with ' for ".
sp_status run_read(const char *text, sp_scenario *scenario, sp_error *err);

// Evaluates it; only the evaluation may fail. run_fini in any case.
sp_status run_text(const char *text, const sp_evaluate_options *options, scenario_run *r,
                   sp_error *err);
void run_good(const char *text, const sp_evaluate_options *options, scenario_run *r);
void run_fini(scenario_run *r);

#endif
