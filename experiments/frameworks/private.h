// What the tables of frameworks share.
#ifndef SLIMPACK_EXPERIMENTS_FRAMEWORKS_PRIVATE_H
#define SLIMPACK_EXPERIMENTS_FRAMEWORKS_PRIVATE_H

#include "experiments/frameworks/frameworks.h"

// ---- emit.c ----

// The arguments of a scenario, as emit writes them; without advice.
void framework_output_begin(framework_output *output, const framework *of,
                            const sp_scenario *scenario);
void framework_output_fini(framework_output *output);
// What of the output's scenario, which is `from`, is not what was read of arguments (`document`,
// changed here): as *lost of framework_emit(), the caller's.
json_t *framework_lost(const framework_output *output, const sp_scenario *from, json_t *document);

// As a file in that syntax has it.
void framework_print_value(FILE *out, framework_syntax syntax, const json_t *value);

// ---- import.c ----

// framework_of_file(), with what the file states.
const framework *framework_entries_of_file(const char *path, bool *is_script,
                                           framework_entries *entries);
// framework_import_text() of entries.
sp_status framework_import_entries(const framework *of, framework_entries *entries,
                                   json_t **scenario, json_t **unread, json_t **notes,
                                   sp_error *err);

// ---- arguments.c ----

// The name that the framework's table has, of an entry.
const char *framework_table_name(const framework *of, const char *name);
// What stands behind the last slash of a path.
const char *framework_file_name(const char *path);
// Reads all entries of the file at hand by the rows, the absent ones too, and by the framework's
// own function, and lists what was not understood.
void framework_read_entries(framework_import *import);

// Tells an argument of the precision that states another than BF16.
void framework_tell_precision(framework_import *import, const char *name);

// The GPUs that a launcher of a script starts, as facts.
void framework_read_launch(framework_import *import);

// What follows from all files: settings that come of several, and what is assumed. Overrides are
// written into the scenario on the way. Errors that files make are in import->err.
sp_status framework_settle(framework_import *import, const char *const *overrides, int count);
// The same of one text of a framework, where nothing is assumed.
void framework_settle_text(framework_import *import);

// The number of Slurm's [gpu:][KIND:]NUMBER[,...], as --gres and --gpus-per-node have it; 0: none.
long framework_slurm_gpus(const char *text);

// Entries that are assumed of a vocabulary which no file states, and whose they are: those of a
// built-in model of the shape, else of the family that has such an activation function.
enum { FRAMEWORK_WHOSE = 64 };
json_int_t framework_assumed_entries(const json_t *scenario, char whose[FRAMEWORK_WHOSE]);

// Tokens of whose multiple TRL's rows are where ranks share them (docs/source/
// distributing_training.md of TRL): one for each rank that exchanges heads, two in rings.
json_int_t framework_row_multiple(const json_t *scenario);

// Settings of a model that are its adapters', and no part of its shape; NULL ends them.
extern const char *const framework_adapters[];

// What is called alike for each.
// clang-format off
#define FRAMEWORK_CALLED(of_, title_) \
    .name = #of_, .title = title_, .own = of_##_own, .free = of_##_free, .noted = of_##_noted
// clang-format on

extern const framework framework_megatron, framework_bridge, framework_nemo, framework_torchtitan,
    framework_deepspeed, framework_trl, framework_accelerate, framework_nanotron;

#endif
