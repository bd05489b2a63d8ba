// Private to sim/scenario: the parts of the reader share this.
#ifndef SLIMPACK_SIM_SCENARIO_SCENARIO_PRIVATE_H
#define SLIMPACK_SIM_SCENARIO_SCENARIO_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/json.h"
#include "sim/base/setting.h"
#include "sim/scenario/scenario.h"

#define SP_I_SCENARIO_SCHEMA "slimpack/scenario/1"
#define SP_I_DEFAULT_CLUSTER "h100-8"

// Bounds of single settings, chosen so that every product of them that is formed fits 63 bits.
enum {
    SP_I_MAX_PARALLEL = 4096,
    SP_I_MAX_DP = 1000000,
    SP_I_MAX_RANKS = 10000000,
    SP_I_MAX_CHUNKS = 1024,
    SP_I_MAX_CHUNK_LAYERS = 100000,
    SP_I_MAX_MICROBATCHES = 1000000,
    SP_I_MAX_SLICES = 65536,
    SP_I_MAX_BATCHES = 100000,
    SP_I_MAX_SAMPLES = 10000000,         // of one batch
    SP_I_MAX_SAMPLES_IN_ALL = 100000000, // of all batches
    SP_I_DEFAULT_SAMPLES = 512,          // of one batch, from a file or a distribution
    SP_I_DEFAULT_UNIFORM_TOKENS = 4096,
    SP_I_MOST_SETTINGS = 64 * SP_STATED_WORDS, // in the tables of settings.c
    // WLB-LLM (arXiv 2503.17924): a third queue no longer improves the balance.
    SP_I_USUAL_OUTLIER_QUEUES = 2,
    SP_I_MAX_DEPTH = 32, // of drafted trees, with alpha as much again: SP_DRAFT_DEPTH
    SP_I_MAX_GRAPHS = 1024,
};
#define SP_I_MAX_BATCH_TOKENS INT64_C(10000000000)
// The cost model prices packs up to this size.
#define SP_I_MAX_PACK_TOKENS (INT64_C(1) << 40)

typedef struct sp_i_scenario_reader {
    sp_scenario *scenario;
    sp_object root;
    sp_error *err;
    sp_scenario_cache *cache; // NULL: files are read
    // Texts of the document, which they must not outlive.
    const char *profile;                // or the name in scenario->cluster, or profile_name
    char profile_name[SP_PROFILE_NAME]; // that the stack has in place of the cluster's
    const char *lengths;                // built-in name or path; NULL: an array, or uniform samples
    const char *column;
    int errors_before; // parallel was read
} sp_i_scenario_reader;

int sp_i_errors_so_far(const sp_i_scenario_reader *reader);

// model, cluster, nodes and profile. The nodes are counted but not yet fitted to the ranks.
void sp_i_scenario_read_model(sp_i_scenario_reader *reader);

// The object in a cluster's file. The caller owns it.
sp_status sp_i_scenario_cluster_file(const char *path, json_t **root, sp_error *err);

// Reads a section by its rows, which may use the reader as their context; the caller ends it. True
// where the document has it.
bool sp_i_begin_section(sp_i_scenario_reader *reader, sp_setting_table table, void *owner,
                        sp_object *section);

// uniform_costs, and errors for sections that have no use beside them.
void sp_i_scenario_read_uniform(sp_i_scenario_reader *reader);
// The micro-batches by default; after `parallel` and `schedule`.
void sp_i_scenario_resolve_uniform(sp_i_scenario_reader *reader);

// parallel. Its defaults follow from cluster, model and schedule, which must have been read.
void sp_i_scenario_read_parallel(sp_i_scenario_reader *reader);

// memory. Its limit follows from the cluster, which must have been read.
void sp_i_scenario_read_memory(sp_i_scenario_reader *reader);

// workload. Its defaults follow from the layout and the schedule, which must have been read.
void sp_i_scenario_read_workload(sp_i_scenario_reader *reader);
// The batch that stated micro-batches ask for, behind the strategy.
void sp_i_scenario_fill_microbatches(sp_i_scenario_reader *reader);

// decode, after everything else.
void sp_i_scenario_read_decode(sp_i_scenario_reader *reader);

// ---- settings.c ----

// For sp_key_watch: the dotted key that is meant by a name of others, or by a key that stands in
// the wrong section; NULL: none.
const char *sp_setting_meant(const char *key);

// A strategy's name as it is spelt, whatever the case and whether with hyphens or underscores.
void sp_i_strategy_name(const char *word, char name[SP_STRATEGY_NAME]);

// For sp_key_watch: the dotted key of a section that has the text among its values, else the one
// that says of which kind the section is, or what it is called; NULL: none.
const char *sp_setting_held(const char *section, const char *text);

// Read into sp_uniform_costs, sp_decode_spec, and all others into sp_scenario.
extern const sp_setting_table sp_i_precision_settings, sp_i_uniform_settings, sp_i_decode_settings,
    sp_i_parallel_settings, sp_i_network_settings, sp_i_jitter_settings, sp_i_schedule_settings,
    sp_i_memory_settings, sp_i_workload_settings, sp_i_strategy_settings, sp_i_prefill_settings;

// The layers of each virtual stage.
json_t *sp_i_stage_layers_array(const sp_layout *layout);

// Reads the file that workload.lengths names, if it names one.
sp_status sp_i_scenario_load_lengths(sp_i_scenario_reader *reader);

// A content error where a sample may be longer than what a layer sees of it and a setting knows
// attention to all tokens alone; after the lengths are there.
sp_status sp_i_scenario_check_seen(const sp_i_scenario_reader *reader);

// After the document is resolved: of windows and chunks the model keeps those that are shorter than
// a sample may be.
void sp_i_scenario_drop_seen(const sp_i_scenario_reader *reader);

// As sp_profile_load and sp_lengths_read; without a cache (NULL) they read the file.
sp_status sp_i_scenario_cache_profile(sp_scenario_cache *cache, const char *name,
                                      sp_profile *profile, sp_error *err);
sp_status sp_i_scenario_cache_lengths(sp_scenario_cache *cache, const char *path,
                                      const char *column, sp_lengths *lengths, sp_error *err);

// Notes what the document states otherwise than by default (sp_scenario_states), after all else.
void sp_i_scenario_note_stated(sp_scenario *scenario, const json_t *root);

// Takes out of a resolved document that is not read yet what the scenario did not state (`chosen`),
// where the document still says so: it is then read as the scenario is.
void sp_i_scenario_undo_choices(json_t *root);

// chosen, after all else: what a strategy was asked for, and chose.
void sp_i_scenario_read_chosen(sp_i_scenario_reader *reader);

// The document that says every setting as resolved.
json_t *sp_i_scenario_to_json(const sp_i_scenario_reader *reader);

// A table of built-in names, to list in messages.
typedef struct sp_i_names {
    const char *what; // "model"
    int count;
    const char *(*at)(int index);
} sp_i_names;

// Notes at `key` that its value is no name of the table, with the nearest one and the list; with
// or_path also that it is no file either.
void sp_i_names_error(const sp_i_names *names, sp_object *object, const char *key, bool or_path);

// Takes over what a reader of another file found, as content errors at `key`, so that further
// errors of the scenario are still collected; lack of memory stays what it is.
void sp_i_adopt_errors(sp_object *object, const char *key, const sp_error *found);

#endif
