// Every way to place a scenario on its GPUs, under several strategies: what is fastest and fits.
#ifndef SLIMPACK_EXPERIMENTS_TUNE_LAYOUTS_H
#define SLIMPACK_EXPERIMENTS_TUNE_LAYOUTS_H

#include "experiments/sweep/sweep.h"

typedef struct sweep_layouts_options {
    const char *const *strategies; // [strategy_count], known ones
    int strategy_count;
    // Also experts over powers of two of ranks, else over those of the base, the schedules zb-h2
    // and v-half, and for rows of up to 8K tokens micro-batches of 2 and 4 rows.
    bool wide;
    // Overrides that the base has taken (--set, "parallel.tp=2"): what one of them states is not
    // searched but stays, an axis with one value.
    const char *const *stated; // [stated_count]
    int stated_count;
    // Degrees, recomputation and ZeRO stage are those of the base. Around it are tried: all
    // schedules and chunks, budgets in eighths between half and twice its own, what slices of rows
    // can be, and ways to exchange keys and values where the strategy leaves them to the scenario,
    // which states none.
    bool around;
    int64_t gpus;    // 0: as many as the scenario's layout has
    bool exhaustive; // no point is left out
    // Searches, and schedules other than the first under a budget of tokens, are tried at so many
    // combinations of degrees, recomputation and ZeRO stage alone: those at which all else is
    // fastest, whether it fits or lacks up to half of the memory; 0: at all. Where all strategies
    // search, `packed` is tried to find them, and is no point of the search.
    // Strategies that search by effort are tried there with a tenth of it, then with all of it
    // where that may make them the fastest.
    int survivors;
    // The number of fastest points, and of points of the front, that are shown (0: the fastest
    // alone). PyTorch's blocks are counted of them, and of points that would be the fastest: a
    // point whose blocks do not fit is tight.
    int shown;
    // Points that the scenario's stack cannot run (sp_stack_abilities) are no answers, unless a
    // setting that it lacks is stated. Those with another schedule or strategy are `beyond`, all
    // others are not tried.
    bool within_stack;
    bool strategies_stated; // then all of the strategies are taken to be the stack's
    // Of a launch file: strategies that it cannot ask for, between blanks, whose points are
    // `beyond`, too, and how many rows a step has, which rows of a micro-batch times dp divide;
    // NULL and 0: nothing is asked of one.
    const char *unsaid;
    int64_t rows;
    // Schedules that are tried, in place of those below; [schedule_count], NULL: those.
    const char *const *schedules;
    int schedule_count;
    // Only how little memory a point needs is looked for, in the order of parameters, gradients and
    // optimizer states, as long as these may be less than the least that was found: `nearest` is
    // the point that needs the least then, and nothing else is told. With until_fits the first that
    // fits ends it.
    bool least_memory, until_fits;
    int threads;
    bool quiet; // no progress
} sweep_layouts_options;

// A strategy at a layout, with a schedule, recomputation and budget.
typedef struct sweep_layout {
    int strategy; // index in the options
    int64_t combination;
    // No plan of whole batches is faster at this layout; 0: not known. Of points that were left out
    // also what others like it take, as far as it is taken to bound them.
    double bound_ms;
    double guess_ms; // by which points are tried, the least first
    sweep_lack lacks;
    bool late; // tried at survivors
    // By how much ZeRO shards; with `wide` among budgets of tokens alone, which rows come before,
    // and there by how much runs again next. The least is first.
    int after;
    // Parameters, gradients and optimizer states alone are more than the memory and half of it:
    // out of memory without an evaluation.
    bool too_big;
    bool evaluated; // else, unless a stop came first:
    bool left_out;  // its bound is above the time of one that fits, or ...
    bool dropped;   // ... it is no survivor
    bool hurried;   // searched with a tenth of the effort
    bool counted;   // with PyTorch's blocks
    sweep_trial trial;
} sweep_layout;

typedef struct sweep_layouts {
    sweep_spec *spec; // [spec_count], of each strategy; owned
    int spec_count;
    sweep_layout *point; // [count], by strategy, then in the order of the spec; owned
    int64_t count;
    sweep_layout **ranked; // [ranked_count], those that fit and run, the fastest first; owned
    int64_t ranked_count;
    sweep_layout **beyond; // [beyond_count], those that fit and that the stack lacks; owned
    int64_t beyond_count;
    int64_t of_status[SWEEP_STATUSES];
    int64_t left_out;   // for their bounds
    int64_t dropped;    // no survivors
    int64_t cannot_run; // by the stack, whatever is tried
    int64_t untried;    // where a stop came before them
    bool stopped; // before the end (sp_stop_request): `ranked` is of what was evaluated by then
    // Where nothing fits, or least_memory: the point that lacks the least memory, else the first
    // that has a plan or a scenario at least, and why it does not fit; NULL: none was evaluated.
    const sweep_layout *nearest;
    char reason[SP_ERROR_TEXT];
} sweep_layouts;

// Evaluates the scenario of `base` (changed by no one; `scenario` is what it reads as) under the
// strategies on its GPUs: tensor parallelism inside a node, context parallelism up to 16 in powers
// of two, pipeline and data parallelism by divisors, recomputation none, attention or full, ZeRO 1
// to 3 (with FSDP 2 and 3; also 0 where that is the base's),
// schedules 1f1b, interleaved (2 and 4 chunks), zb-h1 and zb-v for strategies that bring no order
// (`schedules` says otherwise), and rank_tokens and chunk_tokens in powers of two. Strategies of
// rows come first. A point is left out where pure work alone takes longer than one that was
// evaluated and fits well, so without `survivors` the fastest is that of all points, but for more
// ZeRO, which is taken to save no more than a tenth where less of it fits well. Of equally
// fast ones the first in the order of `point` counts; those that fit tightly come last. Nothing
// depends on `threads`. A stop is no error. The caller calls sweep_layouts_fini(), also after an
// error.
sp_status sweep_layouts_find(const json_t *base, const sp_scenario *scenario,
                             const sweep_layouts_options *options, sweep_layouts *layouts,
                             sp_error *err);
void sweep_layouts_fini(sweep_layouts *layouts);

// Looks around the fastest layouts of a search of one strategy, each of degrees and recomputation
// of its own, and around the fastest of all again: *layouts are then those where it was found.
sp_status sweep_layouts_refine(const sweep_layouts_options *options, const char *source,
                               sweep_layouts *layouts, sp_error *err);

// The front of predicted time for all tokens, without the risk of running out of memory, against
// peak memory, of the points that fit and do not fit tightly, the fastest first; the caller frees
// the list with sp_free().
sweep_layout **sweep_layouts_front(const sweep_layouts *layouts, int64_t *count);

// The fastest point of those that the stack lacks for this; NULL: none fits.
sweep_layout *sweep_layouts_beyond(const sweep_layouts *layouts, sweep_lack lack);

// The scenario at a point; the caller owns it.
json_t *sweep_layouts_document(const sweep_layouts *layouts, const sweep_layout *point);

// {"parallel.tp": 1, ...}; the caller owns it.
json_t *sweep_layouts_settings(const sweep_layouts *layouts, const sweep_layout *point);

#endif
