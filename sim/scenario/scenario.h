// A scenario: everything that is asked of one simulation, resolved from JSON (slimpack/scenario/1).
#ifndef SLIMPACK_SIM_SCENARIO_SCENARIO_H
#define SLIMPACK_SIM_SCENARIO_SCENARIO_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/base/setting.h"
#include "sim/base/status.h"
#include "sim/cost/error_record.h"
#include "sim/cost/profile.h"
#include "sim/cost/step_costs.h"
#include "sim/memory/footprint.h"
#include "sim/memory/planner_memory.h"
#include "sim/model/cluster.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"
#include "sim/network/topology.h"
#include "sim/plan/plan_json.h"
#include "sim/schedule/schedule.h"
#include "sim/workload/batch.h"
enum {
    SP_STRATEGY_NAME = 32,
    SP_SOURCE_NAME = 256,
    SP_MAX_OUTLIER_QUEUES = 16,
    SP_STATED_WORDS = 6
};

typedef enum sp_pad_to { SP_PAD_CONTEXT, SP_PAD_LONGEST } sp_pad_to;

// The question to the solver; the strategy itself is looked up by name in solver/.
typedef struct sp_strategy_spec {
    char kind[SP_STRATEGY_NAME]; // "packed"
    bool given;                  // the user wrote strategy.kind
    // The strategy that was asked for, where `kind` was chosen for the whole job, and the one whose
    // exchange was chosen with it; "": none was.
    char asked[SP_STRATEGY_NAME];
    char exchange_of[SP_STRATEGY_NAME];
    bool exchange_chosen; // stack.cp_overlap is the strategy's choice, in the place of the stack's
    sp_pad_to pad_to;     // padded: rows as long as the context, or as the micro-batch's longest
    int64_t microbatch_samples; // rows per micro-batch (schedule.microbatch_samples)
    // balanced: queues in which samples from a length on wait; 0 queues: none waits
    int outlier_queues;
    int64_t outlier_tokens; // that length; 0: an eighth of the context
    int64_t pack_tokens;    // most tokens of a pack; 0: 5/4 of the context for each row
    int64_t max_per_pack;   // lpfhp: samples in a row at most; 0: any number
    int64_t rank_tokens;    // dynamic groups: tokens of one data-parallel rank; 0: context / dp
    double group_start_ms;  // the first pack of each group of data-parallel ranks takes longer
    bool pack_rounds;       // hybrid-cp: samples of a round on the same ranks are one pack
    bool attention_across;  // concat: a row attends as one sample
    int64_t chunk_tokens;   // chunkflow: ChunkSize; 0: 8192
    // slimpipe: tokens of a slice, 0: each row in schedule.slices; slimpack: long samples are cut
    // at multiples of it, 0: searched
    int64_t slice_tokens;
    int64_t time_limit_ms;  // for solving one batch; 0: the strategy's own
    double spent_s;         // of the first batch's limit, by choosing what the job keeps
    int effort_percent;     // of a search's own effort; 0: all of it (sp_evaluate_options sets it)
    struct sp_meter *meter; // work of the plan at hand (solver/search.h); NULL: not bounded
    bool curtailed;         // the bound of work ended what chose for the job
    double mip_gap;         // at which they count as solved; negative: the strategy's own
    // slimpack without a part of it (ablation): samples cut; backward packs of their own; packs
    // that grow and shrink; ranks merged for long samples; integer programs
    bool slices, asymmetric, taper, dp_merge, milp;
    bool zones;   // zeppelin: off, every sample goes over all ranks
    bool remap;   // zeppelin: off, all modules run where the attention does
    bool gathers; // zeppelin, slimpack: off, packs of a job in rings exchange in them alone
} sp_strategy_spec;

// How prompts are read (sim/prefill/prefill.h).
typedef enum sp_prefill_method {
    SP_PREFILL_DENSE,
    SP_PREFILL_SAMPLE,
    SP_PREFILL_MINFERENCE,
    SP_PREFILL_FLEXPREFILL,
    SP_PREFILL_XATTENTION,
    SP_PREFILL_METHODS
} sp_prefill_method;

extern const char *const sp_prefill_names[]; // "dense", ..., NULL

typedef enum sp_prefill_deal { SP_PREFILL_BY_COST, SP_PREFILL_BY_HEADS } sp_prefill_deal;

typedef struct sp_prefill_spec {
    bool given; // the document has the section
    sp_prefill_method attention;
    double alpha;         // of SampleAttention, as all down to `deal`
    double window_share;  // of the keys
    double row_share;     // of the queries that are sampled
    double stripe_share;  // mean of the pairs that stripes keep; negative: by alpha and length
    double fixed_us;      // of each head in each layer; negative: fitted
    sp_prefill_deal deal; // how a rank's work is dealt to its GPU
    int64_t chunk_tokens; // of a chunk of a prompt; 0: the whole prompt
    bool together;        // the prompts of a batch run as one pack
    int64_t dense_below;  // fewer keys than these are read with dense attention; 0: none are
} sp_prefill_spec;

// How peak memory is predicted: from the saved tensors of every action, or by the closed formulas
// of SlimPipe's planner (sim/memory/planner_memory.h).
typedef enum sp_memory_model { SP_MEMORY_TENSORS, SP_MEMORY_SLIMPIPE_PLANNER } sp_memory_model;

// Holds pointers into itself (workload.lengths, workload.source): it stays where it was read.
typedef struct sp_scenario {
    char source[SP_SOURCE_NAME]; // file name, for messages
    json_t *resolved;            // all settings as resolved (for --explain and plan.json); owned
    json_t *stated; // the document with its overrides; owned, NULL: read through a cache
    uint64_t states[SP_STATED_WORDS]; // bits of sp_scenario_states
    bool uniform;                     // uniform_costs in place of a model
    sp_uniform_costs uniform_costs;
    sp_model model;
    sp_cluster cluster;
    sp_profile profile; // owned
    sp_layout layout;
    sp_network_detail network;
    sp_jitter jitter;
    double
        jitter_replaces; // with jitter: the profile's interference.doubling_share, left out for it
    int *stage_layers;   // layout.stage_layers as read; owned, NULL: equal shares
    int *chosen_layers;  // in their place (sp_scenario_take_cut); owned
    bool borrows;        // a copy of sp_scenario_copy_with: owns `resolved` and chosen_layers alone
    // parallel.stage_layers is "auto": as level as they go, until a strategy has chosen
    // (sp_strategy_resolve).
    bool cuts_layers;
    // Nothing says how layers are cut that equal shares do not divide: they stand as with "auto",
    // for strategies that choose cuts, and all else refuses them (sp_scenario_check_shares).
    bool shares_open;
    // ..._given: the user wrote the key. Reading sets these, and nothing changes them afterwards.
    bool chunks_given; // chunks per rank, in one way or another
    sp_schedule_spec schedule;
    bool schedule_given;  // schedule.kind
    bool order_resolved;  // what a strategy brings is in place (sp_scenario_set_order, _set_stack)
    int64_t microbatches; // schedule.microbatches, per data-parallel rank; 0: not given
    bool fills_microbatches; // a batch is what they hold, as nothing else says how large it is
    sp_memory_options memory;
    bool stack_given;      // memory.stack
    bool precision_given;  // memory.stack.precision.compute
    bool cp_overlap_given; // its cp_overlap
    bool cp_ring_nics_given;
    bool one_sided_given;
    sp_memory_model memory_model;
    int64_t memory_limit_bytes;   // of tensors, on one GPU
    int64_t memory_reserve_bytes; // what the limit leaves of the GPU, unless the limit is stated
    sp_lengths lengths;           // owned: the list where the workload names a file or an array
    sp_workload_spec workload;    // may point at `lengths`: a scenario is not copied by assignment
    sp_strategy_spec strategy;
    sp_prefill_spec prefill;
    struct sp_decode_spec *decode; // text to generate (sim/inference/decode.h); owned, NULL: none
} sp_scenario;

// Reads, checks and resolves a scenario; overrides are `path=value` texts (--set). Paths are placed
// (sp_scenario_place); those of overrides are relative to the working directory. Up to ten content
// errors are collected.
SP_API sp_status sp_scenario_read(const char *path, const char *const *overrides,
                                  int override_count, sp_scenario *scenario, sp_error *err);
// A scenario that is parsed already; `root` is changed by the overrides.
SP_API sp_status sp_scenario_from_json(json_t *root, const char *source,
                                       const char *const *overrides, int override_count,
                                       sp_scenario *scenario, sp_error *err);
SP_API void sp_scenario_fini(sp_scenario *scenario);

// Makes the paths in a document that is not read yet lead from the working directory: one that is
// there relative to the folder of `file`, from which the document came, gets that folder in front.
// An existing file, or the folder of a model, beats a built-in name. What the document does not
// state goes, where it came from a file: a resolved document says that (`chosen`). NULL: came from
// no file.
SP_API sp_status sp_scenario_place(json_t *root, const char *file, sp_error *err);
// The same for the scenario of a plan, whose choices stand.
SP_API sp_status sp_scenario_place_paths(json_t *root, const char *file, sp_error *err);
// The way back, for a document whose paths are relative to the working directory and that will be
// written to `file`: they become relative to its folder.
SP_API sp_status sp_scenario_place_in(json_t *root, const char *file, sp_error *err);
// sp_scenario_place() of an array of values for the setting at `path`.
sp_status sp_scenario_place_values(json_t *values, const char *path, const char *file,
                                   sp_error *err);

// What a text means as the value of a setting, in the table's own spelling ("selective" is the
// recomputation "attention", "Llama-2-7B" the model "llama-2-7b"); NULL: no name of the table.
const char *sp_setting_name_of(const char *path, const char *word);
// The value as its reader takes it: numbers of tokens for texts such as "8K", names in the table's
// spelling, also inside objects. Values that are the same afterwards are the same setting. The
// caller owns it.
json_t *sp_setting_as_read(const char *path, const json_t *value);

// Does its document state neither parallel.dp nor nodes, so that one replica was assumed, which
// does not fill a node?
SP_API bool sp_scenario_assumes_replica(const sp_scenario *scenario, const json_t *document);

// The settings whose values may be names of files, from 0 on; NULL behind the last one.
const char *sp_scenario_path_setting(int i);

// Makes room for a setting in a document that is not read yet: where the path, whatever follows it,
// leads into a model, a cluster or a stack that the document has as a name, or into the default
// cluster, the name is replaced by the object that stands for it.
sp_status sp_scenario_open_name(json_t *root, const char *path, sp_error *err);
// Does the path lead into a model, a cluster or a stack?
bool sp_scenario_in_name(const char *path);

// Applies one `path=value` to a document that is not read yet, with room made for it.
sp_status sp_scenario_override(json_t *root, const char *assignment, sp_error *err);
// The value of the last of `path=value` texts that states what is at the dotted path, by itself or
// as part of an object; NULL: none does.
SP_API const char *sp_scenario_stated(const char *const *assignments, int count, const char *path);

// Is a batch of the document, which is not read yet, one of so many rows of the context, because it
// states samples and no lengths?
SP_API bool sp_scenario_counts_rows(const json_t *root);
// Where lengths of documents have come into such a document: the batch is what as many rows hold,
// by micro-batches of the replicas that are stated where these divide it, else as many tokens.
// Padded rows hold a document each.
SP_API void sp_scenario_fill_rows(json_t *root);

// Changes that make another job of a scenario: a member that is NULL or 0 changes nothing.
typedef struct sp_scenario_changes {
    // `path=value` texts, with which the scenario is read again as it was stated: what followed
    // from settings, or was chosen by a strategy, is open again. Not for a scenario that was read
    // through a cache (`stated` is NULL).
    const char *const *overrides;
    int override_count;
    bool documented;      // gets a copy of `resolved`, into which further choices are written
    const char *strategy; // opens again what was chosen for another strategy or another limit
    bool planned;         // its plan is there: nothing that its strategy would choose is open
    int64_t memory_limit_bytes;
    const sp_cp_overlap *cp_overlap; // of its stack
    const sp_layout *cut;            // chunks of each rank, their placement and layers
    int64_t time_limit_ms;           // with nothing spent of it
    int effort_percent;
    struct sp_meter *meter;
} sp_scenario_changes;

// Makes a job that differs from `base` in these changes. Without overrides it borrows from `base`,
// which has to outlive it. Freed by sp_scenario_fini(); after an error there is nothing to free. A
// content error where an override cannot be read, or layout, exchange, model and schedule do not
// fit together.
SP_API sp_status sp_scenario_copy_with(const sp_scenario *base, const sp_scenario_changes *changes,
                                       sp_scenario *derived, sp_error *err);

// Resolves the layout that a schedule change brings (chunks default by kind) and checks that
// layout, model, cluster and schedule fit together.
sp_status sp_scenario_resolve_layout(sp_scenario *scenario, sp_error *err);

// The question to SlimPipe's planner, without the tokens.
sp_planner_options sp_scenario_planner_options(const sp_scenario *scenario);

// For what does not choose how the model is cut: a content error where shares_open.
sp_status sp_scenario_check_shares(const sp_scenario *scenario, sp_error *err);

// Gives each rank so many chunks and every virtual stage these layers, which it takes over; NULL:
// equal shares. sp_scenario_set_order() ends that choice.
void sp_scenario_take_cut(sp_scenario *scenario, int chunks, int *stage_layers);

// Is how keys and values are exchanged left to the strategy? The scenario states no way, and its
// stack could have any: passes written by hand know one, and rings need the log-sum-exp of flash
// attention.
bool sp_scenario_exchange_is_open(const sp_scenario *scenario);
// What of the scenario does not go with ranks that read parameters one-sidedly (stack.one_sided),
// as the end of a message; NULL: nothing.
const char *sp_scenario_not_one_sided(const sp_scenario *scenario);
// The same of blocks of samples on any rank (stack.cp_overlap "blocks").
const char *sp_scenario_not_blocks(const sp_scenario *scenario);

// Ends the choice of a schedule, of chunks and of layers for a strategy, once `schedule` and
// `layout` hold what was chosen: resolves the layout, writes the choice into `resolved`, so that
// reading that document gives this scenario, and sets order_resolved. What was given stays.
sp_status sp_scenario_set_order(sp_scenario *scenario, sp_error *err);
// Runs the job as another strategy does, or as its own, with the exchange of one (NULL: its own);
// in `resolved`, too.
void sp_scenario_set_strategy(sp_scenario *scenario, const char *kind, const char *exchange_of);
// Ends the choice of what a strategy brings of memory.stack in the same way, without an order.
void sp_scenario_set_stack(sp_scenario *scenario);

struct sp_cost_model;
// The model that prices its actions (sim/cost/cost_model.h); it refers to the scenario.
sp_status sp_scenario_cost_model(const sp_scenario *scenario, struct sp_cost_model *cost,
                                 sp_error *err);

// The links whose traffic is predicted; borrows the scenario's cluster.
sp_network sp_scenario_network(const sp_scenario *scenario);

// Does the document state setting number `setting` of the table (sp_setting_at) otherwise than it
// is where nothing is stated?
bool sp_scenario_states(const sp_scenario *scenario, int setting);

// The scenario's stack with all of its switches as they are where none is stated: the built-in one
// of its name or the profile's, whichever differs in fewer switches, with the layout's buckets.
sp_stack sp_scenario_unchanged_stack(const sp_scenario *scenario);

// Tells people what follows from the settings (--explain): ranks, virtual stages, micro-batches
// where given, nodes, layers per chunk (fewest and most where they differ), parameters. The caller
// owns it.
SP_API json_t *sp_scenario_derived(const sp_scenario *scenario);

// A cache reads files once for many scenarios: profiles by name and lists of lengths by path and
// column, for as long as it lives; files that change meanwhile are not read again. Thread-safe.
typedef struct sp_scenario_cache sp_scenario_cache;

SP_API sp_scenario_cache *sp_scenario_cache_new(void);
SP_API void sp_scenario_cache_free(sp_scenario_cache *cache);

// As sp_scenario_from_json, through the cache. The scenario holds copies and may outlive it.
SP_API sp_status sp_scenario_from_json_cached(json_t *root, const char *source,
                                              sp_scenario_cache *cache, sp_scenario *scenario,
                                              sp_error *err);

struct sp_decode_machine;
struct sp_decode_result;
// The machine that generates its text (sim/inference/decode.h); it refers to the scenario.
struct sp_decode_machine sp_decode_machine_of(const sp_scenario *scenario);
// Its generated text, evaluated. SP_ERR_CONTENT where it has no decode section.
sp_status sp_decode_scenario(const sp_scenario *scenario, struct sp_decode_result *result,
                             sp_error *err);

// The kind of its step, of a scenario with a model, predicted with a profile. `stack` is its name
// where all its switches are as the profile's stack, or else the built-in one, of that name has
// them; else the name with
// ", changed".
// `bubble` and `microbatches`, those of all replicas, are the prediction's, NAN before there is
// one.
void sp_step_kind_of(const sp_scenario *scenario, const sp_profile *profile, double bubble,
                     double microbatches, sp_step_kind *kind);

// The logged steps on the nearest number of nodes, and how many of them waited.
SP_API sp_waiting_steps sp_scenario_waiting_steps(const sp_scenario *scenario);

// Finds the error that the scenario's profile had on logged steps of its kind, with such a bubble
// and so many micro-batches; NAN: whatever they are.
SP_API void sp_scenario_step_error(const sp_scenario *scenario, double bubble, double microbatches,
                                   sp_step_error *found);

// ---- settings ----

// Every setting of a scenario: reading and the resolved document, help, the manual page, completion
// and experiments/SCENARIO.md come from these rows, and hints for unknown keys.

// In the order of the pages, the keys of one section together; NULL past the last.
SP_API const sp_setting *sp_setting_at(int index);

// Finds a setting by its dotted key, its last part where only one setting has it, or one of its
// other names, in any case and with hyphens for underscores; NULL: none.
SP_API const sp_setting *sp_setting_find(const char *name);

// The key that is spelt most like a misspelt one, or most like its last part; NULL: none is near.
SP_API const char *sp_setting_near(const char *name);

// Why there is no setting of that name: what others call so is not modelled, or has no one name
// here; NULL: nothing is known of it.
SP_API const char *sp_setting_missing(const char *name);
// Does the value of such a name say what is modelled anyway, as expert parallelism 1?
bool sp_setting_is_modelled(const char *name, const char *value);

// The value in the setting's own words where others write it under their `name` of the setting:
// "full" for gradient_checkpointing true, "" where that states nothing. Their values that leave
// open what is meant are NULL, and *expected says what to write.
const char *sp_setting_translate(const char *name, const char *value, const char **expected);

// ---- a plan file with the scenario it was made for ----

typedef struct sp_plan_input {
    json_t *root;
    sp_scenario scenario;
    sp_plan_file plans;
} sp_plan_input;

// Reading checks what makes a plan a plan (sp_plan_check()). sp_plan_input_fini is called whatever
// happened.
sp_status sp_plan_input_read(const char *path, sp_plan_input *in, sp_error *err);
void sp_plan_input_fini(sp_plan_input *in);

#endif
