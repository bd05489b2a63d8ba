// The result of a scenario: metrics of its batches put together (schema slimpack/result/1).
// Over several batches ratios are of sums and memory is the maximum.
#ifndef SLIMPACK_SIM_METRICS_RESULT_H
#define SLIMPACK_SIM_METRICS_RESULT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/cost/error_record.h"
#include "sim/cost/expert_load.h"
#include "sim/cost/profile.h"
#include "sim/metrics/metrics.h"
#include "sim/model/layout.h"
#include "sim/model/stack.h"
#include "sim/network/topology.h"

enum { SP_WARNINGS = 16, SP_WARNING_TEXT = 512 };

typedef struct sp_warnings {
    char text[SP_WARNINGS][SP_WARNING_TEXT];
    int count;
} sp_warnings;

// Notes a warning once; the last place says that there were more.
void sp_warnings_add(sp_warnings *warnings, const char *format, ...) SP_PRINTF(2, 3);
// Notes those of another record, but for one text: NULL, or the reason of a result out of memory,
// which is told by itself.
void sp_warnings_add_all(sp_warnings *to, const sp_warnings *from, const char *but);
// Says that samples of so many tokens are longer than the model's learned table of positions.
void sp_warn_of_positions(const sp_model *model, int64_t tokens, sp_warnings *warnings);

// Warnings of several results. Texts that differ in amounts alone are one kind; numbers in names
// (bf16, "zero 2: ...") tell kinds apart. The text has the largest of each amount, and the least
// where a range begins ("2 to 127"); `varies` are bits of the amounts, in order, that differ.
typedef struct sp_warning_kind {
    char text[SP_WARNING_TEXT];
    uint64_t varies;
    int64_t results;
} sp_warning_kind;

typedef struct sp_warning_kinds {
    sp_warning_kind *kind; // [count]; owned: sp_free
    size_t count, capacity;
} sp_warning_kinds;

void sp_warning_kinds_add(sp_warning_kinds *kinds, const sp_warnings *warnings);
// "2 of 4 points: up to 3 ..." of so many results; the warning alone where `what` is NULL. Bytes
// that are not UTF-8 have no place in JSON and become "?".
json_t *sp_warning_kind_json(const sp_warning_kind *kind, int64_t results, const char *what);

// With jitter: how many times the mean the slowest of GPUs takes, of the jitter's seed and on
// average, and on average of other numbers of them.
enum { SP_JITTER_SCALES = 6 };
extern const int64_t sp_jitter_scales[SP_JITTER_SCALES];

typedef struct sp_slowest_gpu {
    int64_t gpus;
    double drawn, expected;
    double expected_of[SP_JITTER_SCALES]; // sp_jitter_scales
} sp_slowest_gpu;

// One batch adds this to its step metrics.
typedef struct sp_batch_facts {
    int64_t samples;         // trained
    int64_t tokens;          // trained
    int64_t computed_tokens; // with padding
    int64_t padding_tokens;  // of them, to the multiple that GPUs sharing a pack need (sp_padding)
    int64_t dropped_tokens;  // of samples that the strategy dropped
    int64_t delayed_tokens;  // of samples that it left for later batches
    int64_t cut_tokens;      // trained, of pieces that do not see the beginning of their document
    int64_t microbatches;    // forward packs
    int64_t row_tokens;      // that the strategy chose (sp_packing); 0: it did not
    double model_flops;      // causal pairs, forward and 2x backward, trained tokens
    double full_flops;       // model_flops with all pairs
    double hardware_flops;   // model_flops with recomputation
    // No packing and no schedule of this batch is faster: of the plan's kind (whole samples or
    // slices, whole or split backward), and by pure work of any kind; 0: unknown.
    double lower_bound_ns, work_bound_ns;
    // The limit of memory adds so much to lower_bound_ns: no plan that fits is faster. 0 where the
    // step itself does not fit.
    double bound_memory_ns;
    // The step takes this beyond pure work: packs (fixed costs, sizes that are not the cheapest,
    // recomputation), mean over the data-parallel ranks; the busiest of these over the mean; its
    // busiest stage without work. All 0: unknown.
    double gap_packs_ns, gap_uneven_ns, gap_idle_ns;
    // All products and attention of the trained tokens at the best rates, spread evenly over all
    // GPUs (sp_cost_model_limit_s), and of the tokens with padding; 0: unknown.
    double limit_ns, padded_limit_ns;
    double host_ns; // of the optimizer's time: the host's own time in each step
    double solver_ms, simulate_ms;
    int64_t tasks, edges;
    sp_overload overload; // of experts (sp_step_costs)
} sp_batch_facts;

typedef struct sp_batch_result {
    sp_batch_facts facts;
    int64_t iteration_ns, makespan_ns, busy_ns, peak_bytes;
} sp_batch_result;

typedef struct sp_result {
    // Filled by the caller before the first batch.
    sp_layout layout;
    int *stage_layers; // of every virtual stage; owned, NULL: equal shares
    char strategy[32], schedule[32];
    char cp_overlap[32]; // how keys and values are exchanged; "": by uniform costs
    char model_name[64];
    int64_t parameters;         // 0: uniform costs
    int64_t trained_parameters; // as many, or those of adapters
    double flops_per_token;     // forward and backward, linear part
    double peak_flops_per_s;
    int64_t memory_limit_bytes;   // 0: none
    sp_memory_log memory_log;     // by whose logs it fits so surely
    int64_t memory_reserve_bytes; // what the limit leaves of the GPU; 0: the limit was stated
    int64_t device_bytes;         // all of a GPU's memory
    char profile[64];
    double compute_scale, memory_scale; // of the profile's rates, by the cluster; 0: none
    sp_level level;
    sp_network_detail network;
    sp_collective_algorithm collectives;
    sp_jitter jitter;
    sp_slowest_gpu slowest;   // where the jitter's gpu_cv is above 0
    sp_step_error step_error; // of the profile, on logged steps like this one
    uint64_t seed;
    bool lossless;
    double over_length_share;      // of tokens that batches were formed without; NAN: not known
    double published_bubble_ratio; // negative: not defined for this scenario
    sp_warnings warnings;
    char oom_diagnosis[SP_WARNING_TEXT]; // what a step out of memory would have needed; also a
                                         // warning
    bool curtailed; // a bound of work ended the search for the plans; also a warning
    // With which settings it would fit, or be faster where memory is short; part of a warning.
    char settings[SP_WARNING_TEXT];
    char uncalibrated[8][160];
    int uncalibrated_count;
    // SlimPipe's attention exchange: busiest rank over mean before and after, sent in all.
    bool overlaps_experts; // exchanges of experts may hide behind other work (expert_hidden_ms)
    bool has_exchange;
    double exchange_before, exchange_after; // of the last batch
    double exchange_bytes;                  // of one virtual stage's ranks, sum over batches
    int64_t exchange_messages;
    // Put together from the batches.
    sp_batch_result *batches; // owned
    size_t batch_count, batch_capacity;
    sp_batch_facts sum; // delayed tokens of the last batch alone; samples and computed tokens: 0
    sp_rank_metrics *ranks; // [dp * pp]: busy and span summed over batches, peaks maxima; owned
    double stall_ns;        // of all batches, in iteration_ns
    double rank_ns;         // sum of ranks * makespan
    double busy_ns, tp_ns, cp_ns, dp_ns, launch_ns, wait_p2p_ns, reduce_ns, optimizer_ns;
    double again_ns, ep_ns, dp_wait_ns, ep_wait_ns, ep_hidden_ns;
    double iteration_ns, makespan_ns;
    double longest_span_ns, longest_span_work_ns;
    double dp_busiest_ns, dp_mean_ns;
    double forward_pack_cv, backward_pack_cv; // sums over batches
    int64_t peak_bytes;
    sp_bytes peak;
    int64_t uncopied_peak_bytes;  // sp_step_metrics
    sp_peak_memory peak_memory;   // filled by the caller, of the batch with the largest peak
    int64_t allocator_peak_bytes; // maximum over the batches that the caller fills; 0: unknown
    int64_t reserved_peak_bytes;  // the largest that the allocator takes from the device
    int64_t least_device_bytes;   // that it cannot do without; 0: unknown
    int64_t rank_peak_bytes, rank_reserved_bytes; // both of the one rank that was asked for
} sp_result;

// Notes the layers of a layout's virtual stages, once.
void sp_result_note_layers(sp_result *result, const sp_layout *layout);

// Puts an OOM diagnosis, and its warning, in the place of an earlier one.
void sp_result_note_oom(sp_result *result, const char *text);

// Adds one batch.
void sp_result_add(sp_result *result, const sp_step_metrics *metrics, const sp_batch_facts *facts);
SP_API void sp_result_fini(sp_result *result);

// Derived figures. Those that are no sums over a step (ratios, bounds) are NAN where they are not
// defined.
SP_API double sp_result_iteration_ms(const sp_result *result);
// Tokens of a row that the strategy chose, the mean over the batches for which it did; NAN: for
// none.
SP_API double sp_result_row_tokens(const sp_result *result);
// Tokens that are added to samples of packs that GPUs share, over the trained ones.
SP_API double sp_result_padding_share(const sp_result *result);
// The mean rank's step by kind of time, in ms a batch: the parts add up to the iteration less the
// stalls of a tight allocator. Communication is counted where computation does not hide it; PP is
// the waiting for transfers between stages.
enum {
    SP_TIME_COMPUTE,
    SP_TIME_TP,
    SP_TIME_CP,
    SP_TIME_PP,
    SP_TIME_DP,
    SP_TIME_EP, // 0 where experts are not on other ranks; documents then leave it out
    SP_TIME_OPTIMIZER,
    SP_TIME_BUBBLE,
    SP_TIME_PARTS
};
SP_API void sp_result_time_parts(const sp_result *result, double ms[SP_TIME_PARTS]);
// The limit of a step: no layout, packing or schedule trains its tokens on so many GPUs of the
// profile in less, because products and attention alone take it at the best rate of any of them.
// The parts that come on top add up with it to the iteration.
enum {
    SP_LIMIT_KERNELS,   // smaller, memory-bound and slowed kernels
    SP_LIMIT_PACKS,     // padding
    SP_LIMIT_RECOMPUTE, // computation of forwards again, also where memory forces it
    SP_LIMIT_TP,        // this and the next: exchanges that nothing hides
    SP_LIMIT_CP,
    SP_LIMIT_EP, // without waiting for other ranks
    SP_LIMIT_DP,
    SP_LIMIT_PP, // waiting for transfers between stages
    SP_LIMIT_OPTIMIZER,
    SP_LIMIT_PIPELINE,  // the busiest rank idles: fill, drain, bubble; 0 without a pipeline
    SP_LIMIT_IMBALANCE, // the mean rank has less to do than the busiest, and waits for it
    SP_LIMIT_MEMORY,    // stalls of a tight allocator; waits of a lone GPU for copies to the host
    SP_LIMIT_HOST,      // waiting for launches, and the host's own time
    SP_LIMIT_PARTS
};
extern const char *const sp_limit_names[]; // keys of the document, NULL-terminated
// Milliseconds of a step; NAN where it is not known: GPUs that differ (jitter), measured steps.
SP_API double sp_result_limit_ms(const sp_result *result);
SP_API double sp_result_limit_share(const sp_result *result); // of the iteration, in (0, 1]
// False: not known.
SP_API bool sp_result_limit_parts(const sp_result *result, double ms[SP_LIMIT_PARTS]);
// Share of the step that the mean rank computes, without waiting for launches.
SP_API double sp_result_compute_share(const sp_result *result);
// Time of a layer's micro-batch, forward and backward, with communication and all else but the
// bubble: the mean rank's step without it over the micro-batches and layers of a rank.
SP_API double sp_result_layer_ms(const sp_result *result, int layers);
// Does a rank wait, in its actions, for ranks with which it shares experts?
SP_API bool sp_result_waits_for_experts(const sp_result *result);
// Milliseconds a step that the mean rank waits for those whose micro-batches take longer, and for
// those whose experts have more rows; part of SP_TIME_EP. NAN: for none.
SP_API double sp_result_expert_wait_ms(const sp_result *result);
// Milliseconds a step of the mean rank's exchanges of experts that run behind the computation of
// another micro-batch (stack.expert_overlap), and so are no part of SP_TIME_EP.
SP_API double sp_result_expert_hidden_ms(const sp_result *result);
// The same for ranks from which it gathers parameters (ZeRO 3); part of SP_TIME_BUBBLE.
SP_API double sp_result_zero_wait_ms(const sp_result *result);
SP_API double sp_result_launch_ms(const sp_result *result); // of the computation
SP_API double sp_result_bubble_ratio(const sp_result *result);
// (longest span - its work) / longest span: the zero-bubble papers' measure.
SP_API double sp_result_bubble_ratio_longest_stage(const sp_result *result);
SP_API double sp_result_tokens_per_s(const sp_result *result);
SP_API double sp_result_tokens_per_gpu_s(const sp_result *result);
// FLOPs that the model needs for its trained tokens (3 times a forward, nothing for recomputation),
// by GPU and second, and their share of the GPU's peak (MFU). Two counts are in use: `causal` has
// the pairs of attention that a causal mask keeps, as Megatron-LM counts since January 2026;
// `megatron` all pairs, as its num_floating_point_operations() did before of dense models
// (Narayanan et al., arXiv 2104.04473, section 5.1, with GQA and gated MLPs) and as most papers
// quote them.
typedef enum sp_flops_count { SP_FLOPS_CAUSAL, SP_FLOPS_MEGATRON } sp_flops_count;
SP_API double sp_result_tflops_per_gpu(const sp_result *result, sp_flops_count count);
SP_API double sp_result_mfu(const sp_result *result, sp_flops_count count);
SP_API double sp_result_hfu(const sp_result *result); // MFU of all FLOPs, with recomputation
SP_API double sp_result_lower_bound_ms(const sp_result *result);
SP_API double sp_result_gap(const sp_result *result);      // over the lower bound
SP_API bool sp_result_knows_gap(const sp_result *result);  // its parts are known
SP_API double sp_result_gap_work(const sp_result *result); // over pure work
SP_API double sp_result_dp_max_over_mean(const sp_result *result);
SP_API double sp_result_microbatches(const sp_result *result); // mean per batch
// The share of all tokens of the batches in samples that were dropped, or are left for later
// batches after the last; and the share of trained tokens in pieces without the beginning of their
// document.
SP_API double sp_result_left_out_share(const sp_result *result);
SP_API double sp_result_cut_share(const sp_result *result);
SP_API bool sp_result_is_oom(const sp_result *result);
// Are adapters alone trained?
static inline bool sp_result_is_frozen(const sp_result *result)
{
    return result->trained_parameters > 0 && result->trained_parameters < result->parameters;
}

// Does the step fit? `no`: the peak is above the limit, or blocks with the gaps between them above
// all of the device's memory. `tight`: it is not, but what PyTorch would
// reserve is above (1 - SP_RESERVED_TIGHT) of the limit; where that is not known, the peak is above
// (1 - SP_MEMORY_TIGHT) of it. `none`: bytes or limit are not known.
//
// Where segments fill the memory PyTorch has to free them and allocate them again, which costs time
// that no published table states by itself. experiments/atlas.md (transfers) says which logged
// steps the two shares tell apart and which they do not. Where blocks are not counted a tenth of
// the peak is kept free, about what segments take beyond the tensors in them.
#define SP_RESERVED_TIGHT 0.03
#define SP_MEMORY_TIGHT 0.1
// From this share of the limit on blocks may fill it: of packed steps gaps took up to half as much
// again as the tensors (68.6 GiB for 45.9), and some more is left for others.
#define SP_MEMORY_NEAR 0.5
typedef enum sp_fits { SP_FITS_YES, SP_FITS_TIGHT, SP_FITS_NO, SP_FITS_NONE } sp_fits;
SP_API_DATA const char *const sp_fits_names[]; // "yes", "tight", "no", NULL
SP_API sp_fits sp_result_fits(const sp_result *result);
// What PyTorch would reserve, or the peak where that is not known, as a share of the limit; NAN
// where one of them is not known.
SP_API double sp_result_memory_share(const sp_result *result);
// The probability that the step does not run out of memory, by that share: of logged steps that ran
// and that failed, every source with the same weight, of Megatron's stacks by its own logs
// (experiments/evidence.sh). A step that fits, if tightly, fills the limit at most. NAN: not known.
SP_API double sp_result_fit_probability(const sp_result *result);
// Up to three quarters of the memory so many of all logged steps ran: a probability from here on
// tells nothing of the memory.
#define SP_FITS_SURELY 0.95
// The probability, no less than 0.01, over SP_FITS_SURELY, at most 1; 1 where it is not known.
SP_API double sp_fit_chance(double fit_probability);
// Limit less what PyTorch would reserve, or less the peak; negative where that is above it.
SP_API int64_t sp_result_margin_bytes(const sp_result *result);
// Lengthens every step that does not fit well by what each micro-batch of a rank then waits for the
// allocator (profile.h). Once, after the last batch and before the warning.
void sp_result_add_stalls(sp_result *result, double microbatch_s);
// Warns of a tight step, and of one that lacks memory for gaps alone. Once, after the last batch.
void sp_result_warn_of_memory(sp_result *result);

// The JSON object of a result (result_json.c); ranks[] only where asked for.
SP_API json_t *sp_result_json(const sp_result *result, bool with_ranks);

// Its keys that a document of another kind has as well: `warnings` and `uncalibrated`. Lack of
// memory leaves them out; `object` may be NULL.
SP_API void sp_result_put_notes(const sp_result *result, json_t *object);

// A key of the document, in its order; a member of an object behind a dot. What is a number is a
// figure, which tables and sweeps show as well; this is where each of them is defined.
enum { SP_SHORT_NUMBER = -1 }; // thousands with a letter: "4.19 M"
typedef struct sp_figure {
    const char *key, *text; // what it says, with its unit
    const char *label;      // heads a column; NULL: tables do not show it
    int rank;               // tables leave out what has the largest first; 0: it stays
    int digits;             // behind the point in tables, or SP_SHORT_NUMBER
    bool percent;           // a share, of which tables show a hundred times the value
    double least, most;     // of its values; `most` 0: no upper bound
    int better;             // sweeps compare points by it; 1: more is better, -1: less, 0: not
} sp_figure;
SP_API const sp_figure *sp_figure_at(int index);         // NULL past the last
SP_API const sp_figure *sp_figure_find(const char *key); // NULL: there is none
// The key is that of a number. NAN where this result does not define it.
SP_API double sp_figure_value(const sp_result *result, const char *key);

// All keys of a result, null: the row of an infeasible strategy.
json_t *sp_result_json_empty(void);

#endif
