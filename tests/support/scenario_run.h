// Scenarios from their text to the result.
#ifndef SLIMPACK_TESTS_SUPPORT_SCENARIO_RUN_H
#define SLIMPACK_TESTS_SUPPORT_SCENARIO_RUN_H

#include "sim/base/json.h"
#include "solver/evaluate/evaluate.h"

enum { RUN_TEXT = 4096 };

// The beginning of a scenario.
#define TINY_MODEL \
    "{'model': {'layers': 2, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "

// host_llama() and host_gpt() of host_run.h as scenarios write models.
#define HOST_LLAMA_OF(layers) \
    "{'layers': " #layers ", 'hidden': 32, 'ffn': 48, 'heads': 4, 'kv_heads': 2, 'vocab': 61}"
#define HOST_GPT_OF(layers)                                                      \
    "{'layers': " #layers ", 'hidden': 32, 'ffn': 64, 'heads': 4, 'vocab': 61, " \
    "'activation': 'gelu', 'norm': 'layernorm', 'positional': 'learned', "       \
    "'max_positions': 128, 'bias': true, 'tied_embeddings': true}"
#define HOST_LLAMA HOST_LLAMA_OF(4)
#define HOST_GPT HOST_GPT_OF(4)

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

// Such a text of its own, good until the 32nd one after of the same thread.
const char *json_text(const char *format, ...);

// The document of such a text.
json_t *json_document(const char *text);

// The integer at a key, which is there.
int64_t json_int(const json_t *object, const char *key);

sp_model builtin_model(const char *name);

// The model of such a text of a config.json.
sp_model read_config(const char *text);

// Reads a scenario that is written with ' for ".
sp_status run_read(const char *text, sp_scenario *scenario, sp_error *err);
void read_good(const char *text, sp_scenario *scenario);

// It cannot be read, and the first message has `told` in it.
void run_refused(const char *text, const char *told);

// Evaluates it; only the evaluation may fail. scenario_run_fini in any case.
sp_status run_text(const char *text, const sp_evaluate_options *options, scenario_run *r,
                   sp_error *err);
void run_good(const char *text, const sp_evaluate_options *options, scenario_run *r);
void scenario_run_fini(scenario_run *r);

// What is read or evaluated, until the end of its block. A scenario points into itself: no function
// can return it.
#define SCENARIO_READ(name, text) \
    AUTO(sp_scenario) name;       \
    read_good(text, &(name))
#define SCENARIO_RUN(name, text, options) \
    AUTO(scenario_run) name;              \
    run_good(text, options, &(name))

// The limit is known, and its share of the step, its parts and the lower bound, where that is
// known, are what they must be of any step.
void limit_holds(const char *text, const sp_result *result);

// Does one of the warnings hold the text?
bool run_warned(const sp_warnings *warnings, const char *text);

#endif
