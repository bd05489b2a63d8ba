// One packing as a whole step: its costs, its schedule, its simulation, its bounds, and what it
// lacks where it is out of memory. Strategies that choose between packings call it, and the
// evaluation of a scenario (solver/evaluate) does so for every batch.
#ifndef SLIMPACK_SOLVER_STEP_STEP_H
#define SLIMPACK_SOLVER_STEP_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/cost/cost_model.h"
#include "sim/cost/step_costs.h"
#include "sim/metrics/result.h"
#include "sim/plan/packing.h"
#include "sim/plan/plan.h"
#include "sim/scenario/scenario.h"
#include "sim/schedule/packflow.h"
#include "sim/simulate/engine.h"
#include "solver/bounds/bounds.h"
#include "solver/step/options.h"
#include "solver/strategy.h"

// ---- the cold start of groups (strategy.group_start_ms) ----

// The groups that the job has so far.
typedef struct sp_i_group_starts {
    double start_ms; // 0: groups are there from the beginning
    int dp;
    bool *started; // [3 * dp], by sp_zone_of; 0: all ranks
    int *joined;   // [dp] groups that a pack has each rank join; 0 between packs
} sp_i_group_starts;

void sp_i_group_starts_init(sp_i_group_starts *starts, const sp_scenario *scenario);
void sp_i_group_starts_fini(sp_i_group_starts *starts);

// Adds what the groups of a packing take that no earlier packing had, to the forwards of their
// first packs. A rank joins its groups one after the other, groups without a common rank start at
// the same time, and a pack waits for the rank that joins most. O(slices + packs * (dp + classes)).
void sp_i_group_starts_add(sp_i_group_starts *starts, const sp_packing *packing,
                           sp_step_costs *costs);

// ---- what packs hold ----

// What packs hold on every virtual stage, and the room that leaves for activations: a bound on what
// the memory timeline counts (sim/simulate/memory.h), term by term.

// The most that any pack of one data-parallel rank asks for. Of a pack that ranks share, tokens are
// those of each one's share.
typedef struct sp_fullest_pack {
    int64_t dp_count; // ranks that share it; 0: the rank has no packs
    int64_t packs;    // forward packs of the rank, as many calls of its experts
    int64_t tokens;
    int64_t seen_tokens; // of its samples up to the ends of its slices
    int64_t slices;
    double pairs_per_token; // full (query, key) pairs
    // The most tokens of slices for which sums of gradients of keys and values are there at a time:
    // from the backward of their sample's last slice to their own.
    int64_t summed_tokens;
    int64_t waiting_tokens; // of them after the last pack so far: 0 in the end
    int64_t again_tokens;   // of a pack whose forward runs again
} sp_fullest_pack;

// Of every data-parallel rank, [packing->dp]; `cp` ranks share each pack of one of them.
// O(slices + samples).
void sp_fullest_packs(const sp_packing *packing, int cp, sp_fullest_pack *fullest);

// Rows of experts of the fullest rank over the mean, in any of the calls up to one: [count]; owned.
typedef struct sp_held_rows {
    double *most;
    size_t count, capacity;
} sp_held_rows;

// In bytes.
typedef struct sp_pack_memory {
    double *states;        // [pp] whatever the packs
    double *whole, *split; // [virtual stages] for each token of a pack: held until the backward,
                           // until the weight gradient
    double *running;       // [virtual stages] while any pack runs, beside what packs hold
    double *sums;          // [virtual stages] the sums of gradients of keys and values
    double *kept;          // [virtual stages] for each token of a pack whose forward runs again
    double *again;         // [virtual stages] what is there again of any pack while it runs back
    sp_fullest_pack packs; // what the tables of virtual stages are of
    sp_unit_bytes *units;  // [2 * classes of stages] working memory
    sp_held_rows
        held[63]; // by the power of two that a pack's tokens reach, where routing is uneven
} sp_pack_memory;

// Takes the states of a step's costs; the other tables are unset.
void sp_pack_memory_init(sp_pack_memory *memory, const sp_layout *layout,
                         const sp_step_costs *costs);
void sp_pack_memory_fini(sp_pack_memory *memory);

// Of packs that ask for no more than the fullest. Where routing is uneven (model.expert_imbalance)
// a pack has the rows of the fullest rank in the fullest of the rank's calls. O(virtual stages),
// nothing where the tables are of these packs already.
void sp_pack_memory_measure(sp_pack_memory *memory, const sp_cost_model *cost,
                            const sp_fullest_pack *fullest);

// Room for activations in `limit_bytes` on every pipeline rank, at least 0, what of it forwards
// that run again may need, and the bytes of a token on every virtual stage.
typedef struct sp_pack_room {
    int64_t *token_bytes;              // [virtual stages]
    int64_t *room_bytes, *again_bytes; // [pp]
} sp_pack_room;

// `split`: held until the weight gradient.
void sp_pack_memory_room(const sp_pack_memory *memory, const sp_layout *layout, bool split,
                         int64_t limit_bytes, const sp_pack_room *room);

// The share of a token's bytes that packs keep whose forward runs again; the most of all stages.
double sp_pack_memory_kept_share(const sp_pack_memory *memory, const sp_layout *layout);

// The best step so far of those that a strategy has had judged for a batch: the evaluation of the
// packing that it returns goes on from there. All zero: none.
typedef struct sp_i_best_step {
    sp_packing packing; // a copy
    sp_packflow_outcome outcome;
    sp_plan plan;
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts;
} sp_i_best_step;

// The steps of one scenario have this in common.
typedef struct sp_i_steps {
    const sp_scenario *scenario; // resolved (sp_strategy_resolve)
    const sp_evaluate_options *options;
    // Unused with uniform costs. The second is for packs that are only tried: they say nothing of
    // the tables that the simulated packs use.
    sp_cost_model cost, trial;
    double recompute_flops_per_token, recompute_flops_per_pair2;
    // sp_i_step_alone() lets groups of ranks start from these; NULL: all are there.
    const sp_i_group_starts *starts;
    sp_result *result;
    const sp_i_best_step *known; // of the step that is simulated next; NULL: nothing is known
    sp_i_best_step *keep;        // takes plan and timelines of sp_i_step_alone(); NULL: none
} sp_i_steps;

// ---- costs (step.c) ----

// Both cost models of the scenario, and their end.
sp_status sp_i_steps_init(sp_i_steps *steps, sp_error *err);
void sp_i_steps_fini(sp_i_steps *steps);

// Prices the actions of a packing.
sp_status sp_i_step_costs(sp_i_steps *steps, const sp_packing *packing, sp_step_costs *costs,
                          sp_error *err);

// Schedules and simulates a packing into a result that holds nothing else: time and memory as they
// would be reported.
sp_status sp_i_step_alone(sp_i_steps *steps, const sp_packing *packing, sp_error *err);

// ---- steps that were judged (step.c) ----

// May a step with these options be one that was judged, of the same packing?
bool sp_i_best_step_serves(const sp_i_best_step *kept, const sp_evaluate_options *options,
                           const sp_packing *packing);
// Takes the place of *kept where it is better, with a copy of its packing, else ends.
void sp_i_best_step_fini(sp_i_best_step *kept);

// ---- from a packing to a plan (schedule.c) ----

// Is the number of micro-batches the one that the scenario states? SP_ERR_CONTENT where not.
sp_status sp_i_step_check_count(const sp_i_steps *steps, const sp_packing *packing, sp_error *err);

// Cuts rows into slices where the schedule runs slices; sp_i_step_rows() checks their number first.
sp_status sp_i_step_rows(sp_i_steps *steps, sp_packing *packing, sp_error *err);
sp_status sp_i_step_cut(sp_i_steps *steps, sp_packing *packing, sp_error *err);

// Fills in the actions, and changes costs where ranks exchange attention.
sp_status sp_i_step_schedule(const sp_i_steps *steps, sp_plan *plan, sp_step_costs *costs,
                             sp_error *err);

// Lets the ranks exchange attention where the schedule does.
sp_status sp_i_step_exchange(const sp_i_steps *steps, const sp_plan *plan, sp_step_costs *costs,
                             sp_error *err);

// ---- what a result says of where it comes from, and counts (provenance.c) ----

// Begins the result: names, level and limits of the scenario.
void sp_i_step_describe(const sp_scenario *scenario, sp_result *result);
// The warnings of the scenario, which a trial step does without.
void sp_i_step_warn(const sp_scenario *scenario, sp_warnings *warnings);

// FLOPs that the recomputation of all layers adds, per token and per half pair, before sharding.
void sp_i_step_recompute(sp_i_steps *steps);

// The slices of a row are one micro-batch.
int64_t sp_i_step_microbatches(const sp_packing *packing);

// Samples, tokens, micro-batches and FLOPs.
void sp_i_step_count(const sp_i_steps *steps, const sp_packing *packing, sp_batch_facts *facts);

// ---- simulation ----

// Simulates, adds to the result and hands to the observer (step.c).
sp_status sp_i_step_simulate(sp_i_steps *steps, int index, const sp_plan *plan,
                             const sp_step_costs *costs, sp_batch_facts *facts, sp_error *err);

// No step of the same samples gets below this (step_bounds.c): by its work, and among plans of this
// kind (whole samples or slices, split backward or not, merged ranks or not, forwards run again or
// not; bounds.h), where the step fits those that fit (bounds.h). With uniform costs both are
// the busiest rank's work.
void sp_i_step_bounds(sp_i_steps *steps, const sp_plan *plan, const sp_step_costs *costs,
                      const sp_step_metrics *metrics, sp_batch_facts *facts);

// ---- what a choice between packings asks (step.c) ----

// What a packing comes to as a whole step, simulated as the final result is: with ZeRO's exchanges,
// copies to the host, shares of the head, and the optimizer. A strategy that chooses by this
// returns nothing worse than what it has refused. The packs are in the schedule that the scenario
// is resolved to, and cut into slices already where that runs slices. Packs that the schedule does
// not run do not fit and last for ever; only fatal errors are returned (sim/base/status.h).
sp_status sp_step_judge(const sp_strategy_input *input, const sp_packing *packing,
                        sp_packflow_outcome *outcome, sp_error *err);

// Forwards and backwards of layers that a rank runs: of steps with more of them blocks are not
// counted, as that would take over 0.2 s by an estimate (about 40 us for a forward and a backward).
enum { SP_STEP_COUNTED_PASSES = 8192 };

// As sp_step_judge(), but where there is no pipeline and the step would else be better than *best,
// blocks of PyTorch's allocator say whether it is tight, as they do of the final result. Where the
// allocator has no view of the step (allocator_replay.h), that would take long, or time is up, the
// tenth of the memory says it. Takes 5 to 20 times as long where it counts blocks.
sp_status sp_step_judge_blocks(const sp_strategy_input *input, const sp_packing *packing,
                               const sp_packflow_outcome *best, sp_packflow_outcome *outcome,
                               sp_error *err);

// As sp_step_judge(), but a step lacks memory, too, where gaps between the blocks of PyTorch's
// allocator are more than the device has room for. Where there is no view of them, all fits twice,
// or that would take both long and over a hundredth of the step, it asks no allocator.
sp_status sp_step_judge_gaps(const sp_strategy_input *input, const sp_packing *packing,
                             sp_packflow_outcome *outcome, sp_error *err);

// Do the packs surely come to a step that is no better than *best, or than input->beaten, in
// whatever memory? Their exact prices add up to more on some rank. False where that is not known,
// as of packs whose backwards do not mirror their forwards (step_bounds.c). Spends what the step
// would. O(slices), and less where it is true.
bool sp_step_is_beaten(const sp_strategy_input *input, const sp_packing *packing,
                       const sp_packflow_outcome *best);

// What follows the last backward of a step: reductions of gradients and the optimizer, as behind
// the first sample alone, where they hide least; 0 where that is no step. O(virtual stages).
sp_status sp_step_tail(const sp_strategy_input *input, int64_t *tail_ns, sp_error *err);

// Rows as a strategy makes them: cut where the schedule runs slices, and not run where they are not
// as many micro-batches as the scenario states. Changes the packing.
sp_status sp_step_judge_rows(const sp_strategy_input *input, sp_packing *packing,
                             sp_packflow_outcome *outcome, sp_error *err);

// ---- what a step that is out of memory would have needed (oom_diagnosis.c) ----

// The first spreads experts over the GPUs that there are, each other takes more of them.
enum { SP_OOM_DEGREES = 4 };
extern const char *const sp_i_oom_degree_names[SP_OOM_DEGREES]; // of parallel.*

// The sample that needs most by itself, with its bytes, and how many data-parallel ranks would hold
// it.
typedef struct sp_oom_diagnosis {
    int64_t limit_bytes;
    int64_t plan_bytes; // peak of the whole plan; 0: there is none
    int64_t id, tokens; // of the sample; tokens 0: none could be run alone
    int64_t computed;   // with padding
    int pp, dp_count;   // the fullest pipeline rank, and the data-parallel ranks that share it
    sp_bytes need;      // of that rank at its peak, with no other sample in the step
    // The next more ranks that would hold it, else all of them; 0: there are no more.
    int wider;
    int64_t wider_bytes; // then on each of them
    // By other settings, on as many GPUs or at as many data-parallel ranks: the peak of the whole
    // step where that fits, else 0; the evaluation tries them (solver/evaluate/oom_settings.c).
    bool recompute_tried;
    int64_t recompute_bytes; // memory.recompute full
    struct {
        int64_t bytes;
        int degree;           // that fits, else the largest that was tried; 0: none was
        int dp;               // beside it on as many GPUs; 0: as stated
    } degree[SP_OOM_DEGREES]; // parallel.ep, tp, cp and pp
    bool both;                // with memory.recompute full, as neither alone is enough
    const char *settings;     // NULL, or sp_oom_diagnosis_settings() of the same, found before
} sp_oom_diagnosis;

// Looks among the samples of a packing (of each number of ranks that share samples the one of most
// tokens) for the one that needs most by itself: a step of this sample alone, on as many ranks, in
// the same slices, in the scenario's schedule, is simulated, and again on more ranks as long as it
// does not fit. A sample that cannot be run alone or so wide says nothing. Tries no settings.
// O(slices) and a few small simulations; memory O(samples).
sp_status sp_oom_diagnosis_find(const sp_scenario *scenario, const sp_packing *packing,
                                int64_t plan_bytes, sp_oom_diagnosis *oom, sp_error *err);

// Does the sample need more than there is?
bool sp_oom_diagnosis_is_of_sample(const sp_oom_diagnosis *oom);

// Samples that fit nowhere go before plans that hold too many at once.
bool sp_oom_diagnosis_is_worse(const sp_oom_diagnosis *a, const sp_oom_diagnosis *b);

// In one line; a limit (memory.limit_gib) of the figures in it holds what they are said of.
void sp_oom_diagnosis_text(const sp_oom_diagnosis *oom, char text[SP_WARNING_TEXT]);

// Says "94.00 GiB on a GPU, 14.00 more than the limit of 80.00" of what is needed `where`.
void sp_oom_need_text(int64_t needed_bytes, int64_t limit_bytes, const char *where,
                      char text[SP_WARNING_TEXT]);

// The part of that line on the settings that were tried; "" where none was.
void sp_oom_diagnosis_settings(const sp_oom_diagnosis *oom, char text[SP_WARNING_TEXT]);

#endif
