// The commands of the program, and from their tables help, the manual page and shell completion.
#include <string.h>

#include "experiments/cli/cli.h"
#include "sim/base/json.h"
#include "sim/cost/profile.h"
#include "sim/model/cluster.h"
#include "sim/model/model.h"
#include "sim/model/stack.h"
#include "sim/scenario/scenario.h"
#include "sim/schedule/schedule.h"
#include "sim/workload/distribution.h"
#include "solver/strategy.h"

enum {
    LINE = 768,
    TOPIC = 256,
    SECTION = 64,
    KEY_COLUMN = 38,
    MOST_WORDS = 64,
    MOST_RESULTS = 128
};

// As sp_setting_value(), with the strategies, which the scenario's reader does not know; asked for
// index 0, 1, ... until it returns NULL.
static const char *setting_value(const sp_setting *setting, int index)
{
    return strcmp(setting->key, "strategy.kind") == 0 ? sp_strategy_names[index]
                                                      : sp_setting_value(setting, index);
}

// ---- what is built in: arrays of {"name", "summary"} ----

static void add_line(json_t *list, const char *name, const char *summary)
{
    json_array_append_new(list, sp_json_object(SP_JSON("name", name), SP_JSON("summary", summary)));
}

static sp_status list_models(json_t *list, sp_error *err)
{
    sp_model model;
    sp_status status = SP_OK;
    const char *name = NULL;
    for (int i = 0; status == SP_OK && (name = sp_model_builtin_name(i)) != NULL; i++) {
        char line[LINE];
        char heads[SECTION] = "";
        char experts[SECTION] = "";
        status = sp_model_builtin(name, &model, err);
        if (model.kv_heads < model.heads) {
            snprintf(heads, sizeof heads, " (%d KV)", model.kv_heads);
        }
        if (model.experts > 0) {
            snprintf(experts, sizeof experts, ", %d experts", model.experts);
        }
        snprintf(line, sizeof line, "%.4g B parameters, %d layers, hidden %lld, %d heads%s%s",
                 (double)sp_model_parameters(&model) / 1e9, model.layers, (long long)model.hidden,
                 model.heads, heads, experts);
        add_line(list, name, line);
    }
    return status;
}

static sp_status list_clusters(json_t *list, sp_error *err)
{
    sp_cluster cluster;
    sp_status status = SP_OK;
    const char *name = NULL;
    for (int i = 0; status == SP_OK && (name = sp_cluster_builtin_name(i)) != NULL; i++) {
        char line[LINE];
        status = sp_cluster_builtin(name, &cluster, err);
        snprintf(line, sizeof line,
                 "%d x %s %.4g GiB, NVLink %.4g GB/s%s, %d x %.4g Gbit/s, profile %s",
                 cluster.gpus_per_node, cluster.gpu,
                 (double)cluster.memory_bytes / (double)(INT64_C(1) << 30),
                 cluster.nvlink_bytes_per_s / 1e9, cluster.nvls ? " (NVLS)" : "",
                 cluster.nics_per_node, cluster.nic_bytes_per_s / (1e9 / 8.0), cluster.profile);
        add_line(list, name, line);
    }
    return status;
}

static sp_status list_strategies(json_t *list, sp_error *err)
{
    (void)err;
    for (int i = 0; sp_strategy_names[i] != NULL; i++) {
        add_line(list, sp_strategy_names[i], sp_strategy_find(sp_strategy_names[i])->summary);
    }
    return SP_OK;
}

static sp_status list_schedules(json_t *list, sp_error *err)
{
    (void)err;
    for (int i = 0; sp_schedule_names[i] != NULL; i++) {
        add_line(list, sp_schedule_names[i], sp_schedule_traits_of((sp_schedule_kind)i).summary);
    }
    return SP_OK;
}

static const char *or_none(const char *words)
{
    return words[0] != '\0' ? words : "none";
}

// Its summary and its columns of what it runs.
static const char *stack_line(int index, const sp_stack *stack, char line[LINE])
{
    const sp_stack_abilities can = sp_stack_abilities_of(stack);
    line[0] = '\0';
    sp_append(line, LINE, "%s", sp_stack_builtin_summary(index));
    if (can.source == NULL) {
        sp_append(line, LINE, "; runs all that there is");
        return line;
    }
    sp_append(line, LINE,
              "; schedules: %s; strategies: %s (by its data sets or an argument); exchanges of CP: "
              "%s; recomputation: %s%s; ZeRO: %s; "
              "a step's samples are %s multiple of rows times dp%s (%s)",
              or_none(can.schedules), can.strategies, or_none(can.exchanges), can.recomputes,
              can.recomputes_modules ? ", or sets of modules" : "", can.zero,
              can.whole_batches ? "a" : "no",
              sp_stack_lists(can.schedules, "interleaved")
                  ? ", its micro-batches one of pp where chunks interleave"
                  : "",
              can.source);
    return line;
}

static sp_status list_stacks(json_t *list, sp_error *err)
{
    (void)err;
    for (int i = 0; sp_stack_builtin_name(i) != NULL; i++) {
        char line[LINE];
        sp_stack stack = {0};
        sp_stack_builtin(sp_stack_builtin_name(i), &stack);
        add_line(list, sp_stack_builtin_name(i), stack_line(i, &stack, line));
    }
    return SP_OK;
}

static sp_status list_distributions(json_t *list, sp_error *err)
{
    (void)err;
    for (int i = 0; i < sp_distribution_count(); i++) {
        add_line(list, sp_distribution_at(i)->name, sp_distribution_at(i)->title);
    }
    return SP_OK;
}

static void add_profile(void *list, const char *name)
{
    char line[LINE] = "cannot be read";
    sp_profile profile;
    if (sp_profile_load(name, &profile, NULL) == SP_OK) {
        snprintf(line, sizeof line, "%s, %s, stack %s, %s", profile.gpu,
                 sp_level_names[sp_profile_level(&profile)],
                 profile.stack.name[0] != '\0' ? profile.stack.name : "not stated",
                 profile.errors.count > 0 ? "error on logged steps known" : "error not known");
        sp_profile_fini(&profile);
    }
    add_line(list, name, line);
}

static sp_status list_results(json_t *list, sp_error *err)
{
    (void)err;
    const sp_figure *key = NULL;
    for (int i = 0; (key = sp_figure_at(i)) != NULL; i++) {
        add_line(list, key->key, key->text);
        if (key->label != NULL) {
            sp_json_put(json_array_get(list, json_array_size(list) - 1), "heading",
                        json_string(key->label));
        }
    }
    return SP_OK;
}

#define STREAMS                                                                                  \
    "A file named - is standard input, or standard output where it is written; what people are " \
    "told goes to standard error then. A file that is written is whole or as it was."

// What the program's exit status says.
#define EXIT_0 "done"
#define EXIT_1                                                                              \
    "done, and the answer is negative: out of memory, infeasible, or outside a bound; the " \
    "complete result is printed all the same"
#define EXIT_2 "wrong usage"
#define EXIT_3 "bad input, or a file that cannot be read or written"
#define EXIT_4 "a limit was hit"
#define EXIT_70 "a defect of the program"
#define EXIT_130 "stopped by Ctrl-C (143: by SIGTERM); tune, compare and sweep print what they know"

// Words of the tables, lines and documents that commands print, where they are no keys of a result.
static const struct {
    const char *names; // between bars, the first one is listed; "...*" stands for beginnings
    const char *text;
} screen_words[] = {
    {"iteration", "Milliseconds of a step, the mean over the batches: iteration_ms."},
    {"speed-up", "Time of the first row's step over this one's. Where a strategy leaves tokens out "
                 "it is of the time for each trained token."},
    {"B/A|ratio|change|A|B|a|b|key|all_settings",
     "Of two steps (compare A B), by the key of a setting or a figure: B over A, and their "
     "distance "
     "over the larger of both; all_settings: both documents hold their scenario."},
    {"baseline", "The first row of compare, over which speed-ups are; dense attention in prefill."},
    {"scenario", "Milliseconds of the strategy's step with the layout of the scenario."},
    {"gain", "Time with the layout of the scenario over time with the best layout."},
    {"bubble", "Share of the makespan in which a pipeline rank is idle: bubble_ratio."},
    {"gap", "Milliseconds that the step takes beyond pure work, in parts (simulate); or how far it "
            "is above the best bound (compare)."},
    {"of limit", "The shortest time that products and attention could take over that of the step: "
                 "limit.share."},
    {"added|pipeline",
     "What the step takes beyond limit.ms, in shares of it (limit.parts_ms): kernels (small "
     "or memory-bound ones, and what slows them), packs (padding), recompute, tp, cp, ep, "
     "dp, pp (exchanges that nothing hides), optimizer, pipeline (its bubble), imbalance "
     "(waiting for ranks with more work; also of experts' ranks for the fullest, expert_wait_ms, "
     "which time counts with their exchange), memory (an allocator short of it), host (waiting for "
     "launches)."},
    {"waiting",
     "The bubble where there is no pipeline: data-parallel ranks wait for those with more work."},
    {"longest stage",
     "The bubble of the stage with the longest span, over that span: bubble_ratio_longest_stage."},
    {"published form",
     "Closed form of the bubble in the schedule's paper: bubble_ratio_published."},
    {"pure work", "Every sample at the cheapest rates, spread evenly over data-parallel ranks, on "
                  "the pipeline rank with the most work."},
    {"packs' costs", "What packs take beyond pure work: fixed costs, sizes that are not the "
                     "cheapest, recomputation."},
    {"uneven ranks", "How much more the busiest data-parallel rank has than the mean."},
    {"idle stages|idle", "How long the busiest stage of the busiest data-parallel rank is idle."},
    {"no plan avoids|within_bound",
     "The part of the gap that lies below the bound: other plans of the strategy have it too. In "
     "validate: is the table's error within its bound?"},
    {"bound", "Time that no plan of this strategy and schedule is faster than: lower_bound_ms."},
    {"throughput",
     "Trained tokens a second, of all GPUs and of one: tokens_per_s, tokens_per_gpu_s."},
    {"tokens/s", "Trained tokens a second, of all GPUs together: tokens_per_s."},
    {"tokens/s/GPU", "Trained tokens a second and GPU: tokens_per_gpu_s."},
    {"TFLOP/s/GPU|tflops|flops",
     "Work of a GPU, of all pairs of tokens or of causal ones: tflops_per_gpu, "
     "tflops_per_gpu_causal. Megatron-LM's logs count the latter since January 2026, and all pairs "
     "before; Megatron-Bridge and NeMo AutoModel have formulas of their own."},
    {"stated_layout_ms", "Iteration time of a strategy in the layout that the scenario states."},
    {"tight_layout|tight_layout_ms",
     "A faster layout that fits too tightly to be picked, and its iteration time."},
    {"layouts", "Layouts that compare --best-layout tried for a strategy."},
    {"beyond", "The fastest points of tune that the stack lacks, one for schedules, one for "
               "strategies: what another stack would add."},
    {"lacks", "What the stack of a point has not, such as its schedule or strategy."},
    {"added_percent", "By how many percent such a point trains faster than the answer of tune."},
    {"passed over|passed_over|faster_percent",
     "The fastest point of tune that is faster than the answer, by so many percent, and riskier: "
     "less likely to run, or tight."},
    {"to_do", "What the answer of tune asks of the data loader: length of rows, or budget."},
    {"cannot_run", "Points of tune and sweep that their stack cannot run, and that are not tried."},
    {"beyond_stack", "Points of sweep --any-schedule that their stack cannot run."},
    {"GiB|MiB|KiB", "1024^3, 1024^2 and 1024 bytes, of memory; GB/s and Gbit/s are of links and "
                    "count by 1000."},
    {"K|M|B|T", "Of tokens that are written as 128K or 1M for a context: times 1024 and 1048576; "
                "of --train-tokens, and of numbers that are printed (4.19 M): 10^3, 10^6, 10^9 and "
                "10^12."},
    {"ms|s|us|ns",
     "Milliseconds, seconds, microseconds and nanoseconds; times of steps are in ms."},
    {"standard input|standard output|stdin|stdout|-", STREAMS},
    {"width|columns of the screen|COLUMNS|terminal",
     "Lines are as wide as the terminal, or as COLUMNS says there; without one 100. --wide prints "
     "all columns, rows and warnings."},
    {"gnuplot|svg|png|pdf|dat|figure|chart",
     "--plot FILE draws with gnuplot; the ending of FILE says the format, and .dat keeps the data "
     "alone."},
    {"jsonl|npy|idx|parquet|arrow",
     "Files of document lengths are text, CSV, JSON, JSONL, .npy or .idx ('slimpack help "
     "lengths'); of Parquet or Arrow write the lengths as text, one a line, first."},
    {"exit status|exit|exit code|status code|return code|Ctrl-C|signal|130|143|70",
     "0: " EXIT_0 "; "
     "1: " EXIT_1 "; "
     "2: " EXIT_2 "; "
     "3: " EXIT_3 "; "
     "4: " EXIT_4 "; "
     "70: " EXIT_70 "; "
     "130: " EXIT_130 "."},
    {"untried", "Points of tune that a stop left."},
    {"training|days|gpu_hours", "A whole training of --train-tokens at the predicted pace."},
    {"MFU full",
     "MFU with all pairs counted, as Megatron-LM before 2026 and SlimPipe: mfu_full_attention."},
    {"MFU causal", "MFU with causal pairs counted once: mfu."},
    {"lossy", "Tokens that are not trained in this step, or without the beginning of their "
              "document: left_out_share, cut_share, over_length_share."},
    {"left out", "Tokens that are not trained in this step: left_out_share; points of tune that "
                 "were not simulated, as they cannot be faster; rows that a fit did "
                 "not see, whose error tells what it is on new steps (validate --json)."},
    {"dropped",
     "Samples that are not trained at all. Those over the context (workload.over_length drop) are "
     "counted over a whole file, or of a distribution over what was drawn until the batches were "
     "full. Of points of tune: those not tried, as other strategies are slow at their degrees."},
    {"split|truncated", "Samples over the context that the batches took in pieces, or without "
                        "their end (workload.over_length). There are fewer than would be dropped, "
                        "for each of which another is drawn."},
    {"time", "A rank's step by kind of time, the mean over ranks: time_breakdown_ms."},
    {"compute|computing", "Kernels of the layers, and the host where it delays them."},
    {"launches|launch", "Part of compute: the GPU waits until the host has launched kernels."},
    {"pp wait|pp_comm", "A pipeline rank waits for a transfer that nothing hides."},
    {"tp_comm|tp comm", "Communication of tensor-parallel ranks that computing does not hide."},
    {"cp_comm|cp comm", "Communication of context-parallel ranks that computing does not hide."},
    {"dp_comm|dp comm", "Sums of gradients and gathered parameters of data-parallel ranks that "
                        "computing does not hide."},
    {"experts|ep_comm|ep comm", "Exchanges of rows between ranks that share experts which nothing "
                                "hides, and waiting there for "
                                "the fullest rank (expert_wait_ms)."},
    {"optimizer", "The optimizer's step, and sums of gradients' norms."},
    {"busy|busy_ms|busy_time", "Milliseconds that the pipeline rank works."},
    {"span|span_ms", "Milliseconds from the pipeline rank's first action to the end of its last."},
    {"units|activation_units_peak",
     "Most activations held: a unit is a model chunk's of one micro-batch or slice."},
    {"last rank", "Most activations that the last pipeline rank holds, in units."},
    {"peak|peak_gib", "GiB of tensors on the fullest rank: peak_memory_gib."},
    {"holders|largest|category|gib|at_ms|action",
     "The largest tensors at the peak of memory, and when it is: name, kind (category), GiB, and "
     "how many of them there are (count)."},
    {"count", "How many there are: documents (lengths), rows of a table (validate), tensors of one "
              "name (simulate)."},
    {"value",
     "That of a figure, of a constant that was fitted (calibrate), or one that a choice may have "
     "(tune)."},
    {"states", "Parameters, gradients and the optimizer's states together."},
    {"parameters", "Weights of the model; of memory those that a rank keeps."},
    {"gradients", "Sums of gradients that a rank keeps until the optimizer's step."},
    {"optimizer states", "Adam's two moments and the parameters in fp32 that it updates."},
    {"activations", "Tensors of the forward that the backward needs, or an action still does."},
    {"kv_cache|kv cache|keys and values|keys and values of earlier slices|cached keys and values",
     "Keys and values of earlier slices of a row, or (prefill, decode) of all tokens before."},
    {"kv_gradients|gradients of cached keys and values",
     "Gradients of the keys and values that later slices have attended to."},
    {"logits|logits in fp32|log-sum-exp of the logits",
     "Outputs of the LM head, a number for each token and word of the vocabulary, and what the "
     "loss makes of them."},
    {"recompute", "Tensors that the backward computes again and holds while it does."},
    {"recompute none", "Everything that the backward needs is kept: memory.recompute none. The "
                       "other values are named with 'slimpack help recompute'."},
    {"workspace|work space|backward transients|forward transients",
     "Tensors that live for one kernel or one action: gradients of activations, cuBLAS's and "
     "Transformer Engine's buffers."},
    {"communication", "Buffers of transfers: gathered sequences, what pipeline ranks send and "
                      "receive, rings of context parallelism."},
    {"offloaded", "Activations that have been copied to the host (memory.offload_ratio), or states "
                  "of the optimizer that are there (memory.offload_states)."},
    {"fc1 output|fc1 output*|fc2 input|SiLU output|expert input|expert output|router "
     "probabilities|MLP dropout mask",
     "A tensor of the MLP that its backward needs: the output of the first projection, as a whole "
     "or its gate and up halves, or what follows it up to the input of the second (fc2)."},
    {"attention output|attention output*|attention block*|attention mask|queries*|keys before*|own "
     "keys|own values|QKV output|rest of the QKV output|log-sum-exp|scores|probabilities|dropped "
     "probabilities|probability dropout mask|gathered keys and values",
     "A tensor of attention that its backward needs: queries, keys, values, the output, the "
     "log-sum-exp of each row, or scores and probabilities where the kernel keeps them."},
    {"layer input|layer output|rebuilt layer output|residual|first norm*|second norm*|final "
     "norm*|statistics of*|embedding*|projection before*|input|output",
     "A tensor between layers or parts of a layer that the backward needs: the residual path, "
     "inputs and outputs of norms and their statistics, dropout masks."},
    {"gradient of|gradient of *|gradient before *|output gradient|gathered gradient",
     "A gradient that the backward holds for a while on its way to the layers before."},
    {"gathered parameters", "Parameters of a layer that ZeRO 3 or FSDP gathers for its use."},
    {"margin|margin GiB", "GiB left below the limit by what PyTorch reserves: memory_margin_gib."},
    {"limit|made_for_gib",
     "GiB of a GPU that a step may use: those of the cluster without what is kept for CUDA, NCCL "
     "and fragmentation. In findings of tune: what takes the step's time."},
    {"tight|tightly|may not fit",
     "The step fits if PyTorch's allocator frees cached blocks, which takes time; it may not fit "
     "where the allocator would reserve more than there is."},
    {"expandable", "The fastest layout if PyTorch's allocator grows its blocks "
                   "(expandable_segments:True), which leaves no gaps between them (tune)."},
    {"allocated",
     "Blocks of PyTorch's allocator, as max_memory_allocated: peak_memory_allocator_gib."},
    {"reserved", "What PyTorch's allocator takes from the GPU, as max_memory_reserved: "
                 "peak_memory_reserved_gib."},
    {"packs",
     "A pack is the input of one forward or backward of a pipeline stage: whole samples, or "
     "slices of long ones. Their number is that of a step's forwards: microbatches."},
    {"solver", "Milliseconds that the strategy took for a batch on this machine: solver_ms."},
    {"rows", "Samples, or packed rows, of a micro-batch: schedule.microbatch_samples."},
    {"chunks", "Model chunks of each pipeline rank: parallel.chunks_per_rank."},
    {"front", "Points of which none is both faster as predicted and takes less memory."},
    {"status|ok|reason|notes|status; best layout",
     "ok, or why the row has no figures, and what else to know of it: tokens that are lost, the "
     "chance that it runs."},
    {"fastest",
     "The row with the least time for each trained token over the chance that it runs, of "
     "those that fit well (compare, tune)."},
    {"experts hidden",
     "Milliseconds of exchanges of experts behind another micro-batch: expert_hidden_ms."},
    {"overload", "Rows of the fullest rank that shares experts over the mean: expert_overload."},
    {"figure", "What is predicted and measured: a key of a result, or a published figure."},
    {"held", "Kinds of memory that ranks hold between actions (validate)."},
    {"trees|tokens a call|verified a call|low entropy",
     "Trees of drafted tokens: how many of a call's tokens are accepted, how many are verified, "
     "and "
     "how many calls begin with a sure draft (decode)."},
    {"zero", "ZeRO stage of the point: parallel.zero."},
    {"infeasible", "The strategy or the schedule cannot run this."},
    {"invalid", "The settings are of no scenario."},
    {"out of memory",
     "The step needs more memory than the limit: oom. Warnings round what it needs "
     "up, so that a limit of their figure is enough."},
    {"samples", "Documents of a batch, each of some tokens."},
    {"tokens", "What samples consist of; padding is not counted."},
    {"computed_tokens", "Tokens that kernels work on in a batch, padding counted."},
    {"flops_per_token",
     "FLOPs of a token, forward and backward, attention of its context counted."},
    {"level", "Where a profile's rates are from: measured, published, fitted or assumed."},
    {"predicted|predicted_ms|busy ms: predicted|peak MiB: predicted",
     "Computed by the program, beside what was executed or measured."},
    {"computed", "Predicted by the program, beside what was published or measured; of a slice of a "
                 "plan the tokens that kernels work on, padding counted."},
    {"delta", "Computed less measured, in the table's unit (validate)."},
    {"table|table, errors in %|tables|licence",
     "A table of measured steps, by the name of its file (validate, calibrate)."},
    {"cases|line|row|label", "Rows of a table of measured steps that were simulated (validate)."},
    {"cell|cells|by_cell",
     "Rows of a table that agree in the map's cells and are ranked against each other (validate)."},
    {"rank correlation|correlation|ranking",
     "Spearman's, of measured and predicted times in a cell: 1 where the order of layouts is "
     "predicted as it was measured."},
    {"least|most|sources|compute_share|differing_traits|foreign_traits",
     "Of an error_range: least and most of measured over predicted time, of how many sources; its "
     "steps differ in about as many traits (differing_traits) from those that their profile was "
     "fitted to, of these foreign_traits in the cluster, the stack or what is computed. "
     "compute_share is the part of a step that is computation."},
    {"layer_ms|launch_ms",
     "What a layer's micro-batch is predicted to take, forward and backward, without the bubble; "
     "where that is short, launches may take longer, up to launch_ms."},
    {"share|nodes", "Of a waiting_risk: the share of the logged steps of one source, on the "
                    "nearest logged number of nodes, that "
                    "waited 0.4 s a micro-batch and more, which no model has."},
    {"fit_probability|runs with probability",
     "That a step does not run out of memory: of logged steps that filled as much of the limit and "
     "ran or failed, every source with the same weight. sweep, tune, compare and report name as "
     "fastest what takes the least time over the chance that it runs: " CLI_CHANCE "."},
    {"memory_share",
     "What PyTorch would reserve, or the peak where that is not known, as a share of the limit."},
    {"regret|regret of the pick|worst_regret|worst_cell",
     "How much slower the layout was that is predicted to be the fastest of a cell, among those "
     "that fit well, than the fastest one."},
    {"within bounds|within_bounds|without_bound|no bound stated",
     "Is the mean error of each table at most the bound that is stated for it?"},
    {"verdict|as_expected|expected_steps",
     "Do measured times lie within the error, or the range, that is told of such steps (validate)? "
     "Of a table: how many, of how many of which something is told."},
    {"FLOPs|flops_count",
     "Pairs of attention that a log seems to count: all, or causal ones (validate)."},
    {"layout|gpus", "Degrees of parallelism, micro-batch and GPUs of a row."},
    {"measured_mfu_megatron", "MFU by the measured time, all pairs of attention counted."},
    {"error_is", "Errors of a table are fractions of what was measured, or differences."},
    {"mean|mean_error_percent|error_percent|mean_absolute_error|mean_absolute_error_plain",
     "Mean; of a table's errors that of their sizes (validate)."},
    {"median|median_error_percent|median_error|median_absolute_error",
     "Half of the errors are smaller, or half of the lengths."},
    {"k-fold|kfold_error_percent|left_out_error_percent|folds|fold",
     "Mean error on rows that the fit had not seen: it is repeated without each fold of them in "
     "turn (calibrate)."},
    {"sd %|sd_percent|bootstrap|linearised|sd",
     "Standard deviation of a fitted constant in percent of it (calibrate)."},
    {"constant|constants|start|note|at_bound|determined|unit",
     "A number of a profile that is fitted, by its path (calibrate)."},
    {"correlated|correlations",
     "Two constants that the rows of a fit hardly tell apart, and their correlation (calibrate)."},
    {"evaluations|converged",
     "How often a fit predicted its rows, and did its constants come to rest (calibrate)?"},
    {"actions", "Forwards, backwards, transfers and updates of a plan, on all its ranks."},
    {"name", "That of the model, a tensor or a constant of a profile."},
    {"taken away|ablations|refitted|kept|most changed by the refit|nothing",
     "Errors of the model without one of its parts, fitted again (refitted) or with the constants "
     "as they were (kept)."},
    {"logged", "Measured steps that a profile was fitted to or compared with."},
    {"extrapolated", "Outside the lengths that the profile was measured at."},
    {"of attention", "Speed-up of attention alone over dense attention (prefill)."},
    {"worst|worst_percent|worst_row", "The largest error of a table's rows (validate)."},
    {"bias|bias_percent|bias_plain", "The mean of a table's errors with their signs (validate)."},
    {"in plain bytes|computed_plain|error_plain",
     "Errors of the peak in bytes of tensors, without the allocator's rounding (validate)."},
    {"not validated|nearest_error|scope|within_error",
     "Nothing was measured that is like this step: its error is not known."},
    {"not modelled", "What a real run has and the prediction leaves out."},
    {"measured", "Rates of a profile that were timed on the GPU itself."},
    {"published", "Rates of a profile that a paper or a data sheet states."},
    {"fitted|fitted_constants", "Rates of a profile that make logged steps come out as they were; "
                                "in validate's table how many of its constants do."},
    {"assumed", "Rates of a profile that are taken over from another GPU or guessed."},
    {"first token|ttft_ms", "Milliseconds until all prompts are read (prefill)."},
    {"dense|dense_ttft_ms|dense_time_breakdown_ms",
     "Milliseconds with attention to all tokens (prefill)."},
    {"crossover|crossover_tokens",
     "Prompts from this length on are read faster than by dense attention (prefill)."},
    {"prompt|prompts|id", "A text whose tokens are read before the first new one (prefill)."},
    {"stripes", "Columns of attention that are kept for all queries, those with the largest mean "
                "over the sampled ones; their share of dense attention (prefill)."},
    {"sampling", "Attention of the sampled queries to all keys, of which stripes are chosen; its "
                 "share of dense attention (prefill)."},
    {"bottom rows|bottom",
     "The last queries, which attend to all keys; their share of dense attention (prefill)."},
    {"window",
     "Attention of each query to the keys just before it; its share of dense attention (prefill)."},
    {"densest head|densest_head_over_mean|slowest_rank_over_mean|slowest tp rank",
     "Work of the attention head that keeps the most, and of the tensor-parallel rank with the "
     "most work, over the mean (prefill)."},
    {"fixed_ms_per_layer",
     "Milliseconds that choosing stripes takes in a layer whatever the length (prefill)."},
    {"share", "Part of a whole, from 0 to 1; of attention what is computed of the dense one."},
    {"calls", "Forwards of the target over drafted tokens (decode)."},
    {"step|step_ms|step_time_ms", "One round of drafts, verification and host work (decode), or "
                                  "one update of the parameters (training)."},
    {"verification|verify|verify_share|verified_tokens|verified_per_call",
     "The target's forward over drafted tokens; its milliseconds of a step (decode)."},
    {"draft|draft_share|draft_gpu|draft_forwards_per_step",
     "The small model that proposes tokens; its milliseconds of a step (decode)."},
    {"host|host_share|host_source",
     "Milliseconds of a step in which the GPU waits for the server's Python (decode)."},
    {"transfer", "Milliseconds of a step in which features go to the draft's own GPU and its "
                 "tokens come back (decode)."},
    {"over plain "
     "decoding|speedup_over_plain|speedup_over_eagle|eagle_speedup_over_plain|eagle_tokens|eagle_"
     "tokens_per_call|eagle_draft_share",
     "Tokens a second over those of decoding one token a step, or of EAGLE's trees of drafts "
     "(decode)."},
    {"executed|predicted_tokens_per_call|predicted_verified_per_call|tokens_per_call_error|"
     "verified_per_call_error",
     "What small models on the CPU drafted and verified, what is predicted of it, and how far off "
     "that is (decode --execute)."},
    {"sequences|replica_sequences",
     "Requests that a replica generates tokens for at once (decode)."},
    {"entropy|entropy_to|low_entropy_share",
     "How sure the draft is of its tokens; trees of drafts are chosen by it (decode)."},
    {"graphs|graph_miss|graph_misses",
     "Captured launches of forwards; steps without one take the host longer (decode)."},
    {"documents|up to|upto|bins",
     "Samples of a workload; their number in a class of lengths (lengths)."},
    {"p50|p1|p5|p10|p25|p75|p90|p95|p99|p99.9|quantiles|quantile|percentile|median",
     "Half of the documents are at most so long; p1 to p99.9 likewise are quantiles (lengths)."},
    {"standard deviation|stddev", "That of the documents' lengths (lengths)."},
    {"min|max", "The shortest and the longest document (lengths)."},
    {"length^2|sum_squares",
     "Share of the sum of squared lengths, which attention's work grows with (lengths)."},
    {"unread|matters|why",
     "Arguments of a launch file that are not understood, with file and line: matters is true "
     "where "
     "they change time or memory, null where their name is not known (import)."},
    {"not_expressed", "Settings of the scenario that a framework has no argument for (--emit)."},
    {"title|distribution", "What a built-in distribution of lengths was taken from (lengths)."},
    {"token-weighted mean", "Length of the document that a token lies in, the mean over tokens."},
    {"claim|figures|assumptions|bar|within",
     "What a paper says of its own measurements, which reproduce sets beside what is computed: "
     "figures with assumptions, and the difference that may be (bar)."},
    {"within_count|fitted_count",
     "Points of a figure within their bars, and how many of those were fitted (reproduce)."},
    {"headline",
     "The number by which a paper is known, such as 2.8x; where it does not come out, why "
     "(reproduce)."},
    {"memory_limit", "The memory of a rank, in the unit of the peak beside it (reproduce)."},
    {"at most|at_most", "The measured value is an upper bound: less is no error (validate)."},
    {"loss", "Mean cross-entropy of a step's tokens, as the backend computed it (run)."},
    {"learning rate|learning_rate",
     "That of AdamW in a step, where --lr or --warmup is given (run, validate)."},
    {"tensor|tensors|elements|holds|largest|largest_error|plain_backend|plain_loss",
     "Of gradients (run --prove): the error of a tensor is the size of its difference from the "
     "plain step's (plain_backend, plain_loss: each sample by itself on one rank) over the size of "
     "that; largest: of one element, over the largest one. It holds where no error is above its "
     "bound."},
    {"log|form|files|path|lines|known_lines|restarts",
     "Of a training log (validate --log): whose lines it has, its files, their lines and those of "
     "a known form, and how often the number of a step fell."},
    {"kept_steps|warm_up_steps|outliers|outliers_from|resolution",
     "Of a training log (validate --log): steps that count; those left out at the beginning, and "
     "those that took much longer than the median, from how many times on; half the last digit "
     "that times are written with, as a share."},
    {"samples_per_s|samples_per_step", "Samples of all GPUs in a second, or of a step, as a log "
                                       "tells them (validate --log)."},
    {"traces|file|spans|cut_off|ms of a step|traced|times",
     "Of traces of PyTorch's profiler (validate --trace, calibrate --from-trace): a file, the "
     "kernels and copies of its GPU, whether it ends in the middle, and times of a step: those of "
     "the file over the steps that it marks."},
    {"classes|class|kernels|number|with "
     "shapes|with_shapes|products|norms|elementwise|memcpy|memset",
     "Kernels of a trace by their names, how many there are, what they take, and how many of them "
     "ran for an operator whose shapes are recorded (record_shapes=True)."},
    {"step_ms|products_ms|attention_ms|memory_bound_ms|optimizer_ms",
     "Of a rank's step, predicted and traced (validate --trace): from its first kernel to its "
     "last; products of matrices; attention; norms, elementwise kernels and copies by kernels; "
     "kernels over lists of tensors, which step the optimizer."},
    {"exposed_ms|idle_ms|exposed_or_idle_ms|communication_ms|wait_ms|exposed_wait_ms",
     "Of a rank's step (validate --trace): communication beside which nothing else runs, on any "
     "stream; no kernel at all; both; communication hidden or not; what its collectives took "
     "longer "
     "than on the rank where they were shortest, and the part of that which nothing hides."},
    {"value of the "
     "profile|values|value_of|rate_unit|of_base_profile|section|waits_known|rate|us|ms",
     "Of a profile from traces (calibrate --from-trace): what a value is of, its rate of FLOPs or "
     "bytes, sections that lack kernels and stay the base profile's, and whether traces of several "
     "ranks tell waiting apart. us and ms are sums, or medians of one kernel."},
    {"reserved GiB|allocated GiB|predicted_gib|measured_gib|rank",
     "The peak that PyTorch tells (max_memory_reserved, max_memory_allocated) of the rank that a "
     "log is of, as predicted and as logged (validate --log)."},
    {"clock", "wall: what the machine took; virtual: actions timed one by one and replayed side by "
              "side (run, validate)."},
    {"backend|device|precision|execution",
     "What executed the steps: host, cuda or a plug-in, on a device, in a precision."},
    {"shown", "The step of a batch whose figures are shown: that of median time."},
    {"peak bytes|peak_bytes|held_bytes|peak memory|peak memory, mean absolute error over "
     "ranks|peak_memory_mape|bubble_ratio_abs|iteration_time",
     "Peak of memory of a rank in bytes; held_bytes: of all ranks by kind, between actions; "
     "peak_memory_mape: the mean absolute error over ranks (validate)."},
    {"question|tokens_per_step", "What tune was asked: model, GPUs, context, tokens of a step."},
    {"tokens_chosen", "Why a step has its tokens, where nobody states them (tune)."},
    {"lengths_times_over|the lengths",
     "How many times over the steps of tune take a list of lengths that is shorter; null: once at "
     "most."},
    {"fewest_gpus|fewest_gpus_well|fewest_gpus_point",
     "Where no point of tune fits: the fewest GPUs of 1, 2, 4 and so on in a node, and of whole "
     "nodes, at which one does, and at which one fits well (fits: yes)."},
    {"switches|saves_gib|lacks_gib|host_gib",
     "Settings that spare memory on the GPUs at hand, each with what it saves and what is still "
     "lacking, and what a node then has in host memory (tune)."},
    {"answer|top|go_on",
     "The step that fits well with the least time over the chance that it runs, as simulate "
     "tells it (tune)."},
    {"points|best|combinations|resumed|written|point",
     "Layouts with a strategy that tune or sweep looks at, each once."},
    {"what another choice costs|choices|cost|tight_ms|at_least_ms|at least",
     "The best step with one choice fixed, over the best of all (tune), both with the risk of "
     "running out of memory: tight_ms where it fits tightly "
     "only, at_least_ms what its pure work takes."},
    {"what limits it|limits_ms|findings|remedy",
     "Shares of the step that computing does not hide, and the cheapest change that would lower "
     "each (tune)."},
    {"current|current_ms|switched_ms|current_reason",
     "The step with the layout that --current names, the same with the answer's switches of the "
     "stack where its own differ, or why there is none (tune)."},
    {"what to change|changes|arguments|argument|from|to",
     "Of each launch file that --current names, or of one for a scenario that was imported: the "
     "arguments that differ for the answer, '+' added, '-' left out, from null: not in it yet, to "
     "null: no longer (tune)."},
    {"baseline_oom", "Does the row that speed-ups are over not fit in memory (compare)?"},
};

enum { WORDS = sizeof screen_words / sizeof screen_words[0] };

static const char *word_name(int index, char name[LINE])
{
    const char *names = screen_words[index].names;
    snprintf(name, LINE, "%.*s", (int)strcspn(names, "|"), names);
    return name;
}

static sp_status list_words(json_t *list, sp_error *err)
{
    (void)err;
    char name[LINE];
    for (int i = 0; i < WORDS; i++) {
        add_line(list, word_name(i, name), screen_words[i].text);
    }
    return SP_OK;
}

// Is the topic one of the names between bars, or of those that one ending in * stands for?
static bool is_among(const char *names, const char *topic)
{
    char name[LINE];
    while (*names != '\0') {
        size_t length = strcspn(names, "|");
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        if (length > 0 && name[length - 1] == '*' ? strncmp(name, topic, length - 1) == 0
                                                  : sp_same_name(name, topic)) {
            return true;
        }
        names += length + (names[length] == '|');
    }
    return false;
}

// The word that explains the topic: one listed by that name goes before one that has it as
// another. NULL: there is none.
static const char *word_of(const char *topic, char name[LINE])
{
    for (int i = 0; i < WORDS; i++) {
        if (sp_same_name(word_name(i, name), topic)) {
            return name;
        }
    }
    for (int i = 0; i < WORDS; i++) {
        if (is_among(screen_words[i].names, topic)) {
            return word_name(i, name);
        }
    }
    return NULL;
}

// The word that a column's heading begins with ("busy ms", "peak GiB").
static bool begins_heading(const char *word, const char *heading)
{
    size_t length = strlen(word);
    return strncmp(word, heading, length) == 0 &&
           (strcmp(heading + length, " ms") == 0 || strcmp(heading + length, " GiB") == 0);
}

static sp_status list_model_types(json_t *list, sp_error *err)
{
    (void)err;
    const char *kind = NULL;
    for (int i = 0; (kind = sp_model_hf_kind(i)) != NULL; i++) {
        add_line(list, kind, "a Hugging Face config.json of this model_type");
    }
    return SP_OK;
}

static sp_status list_profiles(json_t *list, sp_error *err)
{
    return sp_profile_each_name(add_profile, list, err);
}

static sp_status list_settings(json_t *list, sp_error *err);

static const struct {
    const char *name;
    sp_status (*fill)(json_t *list, sp_error *err);
} lists[] = {
    {"settings", list_settings},       {"models", list_models},
    {"clusters", list_clusters},       {"strategies", list_strategies},
    {"schedules", list_schedules},     {"stacks", list_stacks},
    {"profiles", list_profiles},       {"distributions", list_distributions},
    {"results", list_results},         {"words", list_words},
    {"model_types", list_model_types},
};

enum { LISTS = sizeof lists / sizeof lists[0] };

// The first sentence alone.
static sp_status list_settings(json_t *list, sp_error *err)
{
    (void)err;
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        char line[LINE];
        const char *end = strstr(setting->text, ". ");
        snprintf(line, sizeof line, "%.*s",
                 (int)(end != NULL ? (size_t)(end - setting->text) : strlen(setting->text) - 1),
                 setting->text);
        add_line(list, setting->key, line);
    }
    return SP_OK;
}

static int print_list(int index, bool json)
{
    sp_error err;
    sp_error_clear(&err);
    json_t *list = json_array();
    if (lists[index].fill(list, &err) != SP_OK) {
        json_decref(list);
        return cli_fail(&err);
    }
    if (json) {
        return cli_print_json(list);
    }
    int column = 0;
    size_t i = 0;
    json_t *line = NULL;
    json_array_foreach (list, i, line) {
        int length = (int)strlen(json_string_value(json_object_get(line, "name"))) + 2;
        column = length > column ? length : column;
    }
    json_array_foreach (list, i, line) {
        int used = printf("%s", json_string_value(json_object_get(line, "name")));
        cli_print_wrapped(stdout, json_string_value(json_object_get(line, "summary")), used,
                          column);
    }
    json_decref(list);
    return 0;
}

// ---- settings ----

// The other names of a setting, which lie in `text`; returns their number.
static int split_aliases(const sp_setting *setting, char text[LINE], const char *words[MOST_WORDS])
{
    int count = 0;
    snprintf(text, LINE, "%s", setting->aliases != NULL ? setting->aliases : "");
    char *rest = text;
    for (char *word = strtok_r(text, " ", &rest); word != NULL && count < MOST_WORDS;
         word = strtok_r(NULL, " ", &rest)) {
        words[count++] = word;
    }
    return count;
}

static json_t *setting_json(const sp_setting *setting)
{
    char type[SP_SETTING_TYPE];
    char usual[SP_SETTING_TYPE];
    json_t *values = json_array();
    const char *value = NULL;
    for (int i = 0; (value = setting_value(setting, i)) != NULL; i++) {
        json_array_append_new(values, json_string(value));
    }
    char text[LINE];
    const char *words[MOST_WORDS + 1];
    words[split_aliases(setting, text, words)] = NULL;
    return sp_json_object(SP_JSON("key", setting->key),
                          SP_JSON("type", sp_setting_type(setting, type)),
                          SP_JSON("values", values),
                          SP_JSON("tokens", json_boolean(setting->kind == SP_SETTING_TOKENS)),
                          SP_JSON("default", sp_setting_default(setting, usual)),
                          SP_JSON("help", setting->text), SP_JSON("aliases", sp_json_texts(words)));
}

// Words with commas between, wrapped; `head` begins the first line.
static void print_words(const char *head, const char *const *words, int count)
{
    int indent = printf("%s", head);
    int used = indent;
    for (int i = 0; i < count; i++) {
        int length = (int)strlen(words[i]) + (i + 1 < count);
        if (i > 0 && used + 1 + length > 80) {
            used = printf("\n%*s", indent, "") - 1;
        } else if (i > 0) {
            used += printf(" ");
        }
        used += printf("%s%s", words[i], i + 1 < count ? "," : "");
    }
    putchar('\n');
}

static void print_values(const sp_setting *setting)
{
    const char *words[MOST_WORDS];
    int count = 0;
    const char *value = NULL;
    while (count < MOST_WORDS && (value = setting_value(setting, count)) != NULL) {
        words[count++] = value;
    }
    // Of other kinds the type says the values.
    if (count > 0 && setting->kind == SP_SETTING_OTHER) {
        print_words("built in: ", words, count);
    }
}

static void print_aliases(const sp_setting *setting)
{
    char text[LINE];
    const char *words[MOST_WORDS];
    print_words("elsewhere called ", words, split_aliases(setting, text, words));
}

static void print_setting(const sp_setting *setting)
{
    char text[SP_SETTING_TYPE];
    int used = printf("%s: ", setting->key);
    cli_print_wrapped(stdout, sp_setting_type(setting, text), used, 0);
    if (setting->kind == SP_SETTING_TOKENS) {
        puts("         128K stands for 131072 tokens, 1M for 1048576");
    }
    used = printf("default: ");
    cli_print_wrapped(stdout, sp_setting_default(setting, text), used, used);
    putchar('\n');
    cli_print_wrapped(stdout, setting->text, 0, 0);
    putchar('\n');
    if (setting->aliases != NULL) {
        print_aliases(setting);
    }
    print_values(setting);
    printf("override: --set %s=VALUE\n", setting->key);
}

static bool in_section(const sp_setting *setting, const char *section)
{
    size_t length = strlen(section);
    return strncmp(setting->key, section, length) == 0 && setting->key[length] == '.';
}

static void print_section(const char *section)
{
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (in_section(setting, section)) {
            int used = printf("%s", setting->key);
            cli_print_wrapped(stdout, setting->text, used, KEY_COLUMN);
        }
    }
}

static json_t *topic_json(const char *section, const sp_setting *page)
{
    json_t *list = json_array();
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (setting == page || (section != NULL && in_section(setting, section))) {
            json_array_append_new(list, setting_json(setting));
        }
    }
    return list;
}

static bool is_section(const char *topic)
{
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (in_section(setting, topic)) {
            return true;
        }
    }
    return false;
}

// Is the item of a list what the topic stands for?
static bool is_item(int list, const char *name, const char *topic, const char *word)
{
    const char *dot = strrchr(name, '.');
    bool ends_so = lists[list].fill != list_models && dot != NULL && strcmp(dot + 1, topic) == 0;
    bool is_word = lists[list].fill == list_words &&
                   (begins_heading(name, topic) || (word != NULL && strcmp(name, word) == 0));
    return sp_same_name(name, topic) || ends_so || is_word;
}

static const cli_command *command_at(int index);

// Adds the options of that name ("csv", "--csv"), each help text once, with the commands that have
// it.
static void find_options(const char *topic, json_t *found)
{
    const char *name = topic + strspn(topic, "-");
    const cli_command *command = NULL;
    json_t *texts = json_object();
    for (int c = 0; (command = command_at(c)) != NULL; c++) {
        for (const cli_option *option = command->options; option->name != NULL; option++) {
            const char letter[2] = {option->letter, '\0'};
            bool short_form = name == topic + 1 && strcmp(name, letter) == 0;
            if (!sp_same_name(option->name, name) && !short_form) {
                continue;
            }
            json_t *item = json_object_get(texts, option->help);
            char line[2 * LINE];
            if (item == NULL) {
                snprintf(line, sizeof line, "--%s%s%s", option->name,
                         option->value != NULL ? " " : "",
                         option->value != NULL ? option->value : "");
                item = sp_json_object(SP_JSON("name", (const char *)line),
                                      SP_JSON("summary", option->help), SP_JSON("list", "options"),
                                      SP_JSON("commands", json_array()));
                for (int n = 0; option->names != NULL && option->names[n] != NULL; n++) {
                    json_t *names = json_object_get(item, "names");
                    if (names == NULL) {
                        names = json_array();
                        sp_json_put(item, "names", names);
                    }
                    json_array_append_new(names, json_string(option->names[n]));
                }
                json_object_set_new(texts, option->help, item);
                json_array_append(found, item);
            }
            json_array_append_new(json_object_get(item, "commands"), json_string(command->name));
        }
    }
    json_decref(texts);
}

// Adds what is built in or said in outputs by that name, each with the list it is in: a strategy
// may have a schedule of its name. `settings`: those whose keys end so as well.
static sp_status find_items(const char *topic, bool settings, json_t *found, sp_error *err)
{
    char held[LINE];
    const char *word = word_of(topic, held);
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < LISTS; i++) {
        size_t n = 0;
        json_t *item = NULL;
        json_t *list = json_array();
        if (settings || lists[i].fill != list_settings) {
            status = lists[i].fill(list, err);
        }
        json_array_foreach (list, n, item) {
            if (is_item(i, json_string_value(json_object_get(item, "name")), topic, word)) {
                sp_json_put(item, "list", json_string(lists[i].name));
                json_array_append(found, item);
            }
        }
        json_decref(list);
    }
    return status;
}

// Nothing where there are no words.
static void print_joined(const char *begin, const json_t *words)
{
    char line[4 * LINE];
    snprintf(line, sizeof line, "%s", begin);
    for (size_t i = 0; i < json_array_size(words); i++) {
        sp_append(line, sizeof line, "%s %s", i > 0 ? "," : "",
                  json_string_value(json_array_get(words, i)));
    }
    if (json_array_size(words) > 0) {
        cli_print_wrapped(stdout, line, 0, 0);
    }
}

static void print_items(const char *topic, const json_t *found)
{
    size_t n = 0;
    json_t *item = NULL;
    json_array_foreach (found, n, item) {
        const char *list = json_string_value(json_object_get(item, "list"));
        const char *name = json_string_value(json_object_get(item, "name"));
        // A word that is explained under another one.
        bool other = strcmp(list, "words") == 0 && !sp_same_name(name, topic) &&
                     !begins_heading(name, topic);
        int used = other ? printf("%s (%s): ", topic, name) : printf("%s: ", name);
        cli_print_wrapped(stdout, json_string_value(json_object_get(item, "summary")), used, 0);
        const json_t *of = json_object_get(item, "commands");
        if (of == NULL) {
            printf("all %s: slimpack help %s\n", list, list);
            continue;
        }
        print_joined("names:", json_object_get(item, "names"));
        print_joined("an option of", of);
    }
}

static void print_topic(const char *topic, const char *section, const sp_setting *page,
                        const json_t *found)
{
    if (page != NULL) {
        print_setting(page);
    }
    if (section != NULL) {
        fputs(page != NULL ? "\n" : "", stdout);
        print_section(section);
    }
    fputs((page != NULL || section != NULL) && json_array_size(found) > 0 ? "\n" : "", stdout);
    print_items(topic, found);
}

// Prints the page of a setting, of a section of settings ("parallel") or of a list ("models"); with
// `json` as data. CLI_PROCEED where `topic` is none of these, else the exit status.
static int help_topic(const char *topic, bool json)
{
    for (int i = 0; i < LISTS; i++) {
        if (strcmp(lists[i].name, topic) == 0) {
            return print_list(i, json);
        }
    }
    const char *section = is_section(topic) ? topic : NULL;
    const sp_setting *page = sp_setting_find(topic);
    // A section is no short form of a key elsewhere (`model` of memory.model).
    page = page != NULL && section != NULL && strcmp(page->key, topic) != 0 ? NULL : page;
    sp_error err;
    sp_error_clear(&err);
    json_t *found = json_array();
    if (find_items(topic, page == NULL && section == NULL, found, &err) != SP_OK) {
        json_decref(found);
        return cli_fail(&err);
    }
    find_options(topic, found);
    if (page == NULL && section == NULL && json_array_size(found) == 0) {
        json_decref(found);
        return CLI_PROCEED;
    }
    if (json) {
        json_t *list = topic_json(section, page);
        json_array_extend(list, found);
        json_decref(found);
        return cli_print_json(list);
    }
    print_topic(topic, section, page, found);
    json_decref(found);
    return 0;
}

// A word in the singular or in the plural, where the other one is known.
static int help_number(const char *topic, bool json)
{
    char other[TOPIC + 1];
    size_t length = strlen(topic);
    bool plural = length > 1 && topic[length - 1] == 's';
    snprintf(other, sizeof other, "%.*s%s", (int)(plural ? length - 1 : length), topic,
             plural ? "" : "s");
    return help_topic(other, json);
}

// The topic nearest to a misspelt one; NULL: none is near.
static const char *nearest_topic(const char *topic)
{
    const char *names[LISTS];
    char words[WORDS][LINE];
    for (int i = 0; i < LISTS; i++) {
        names[i] = lists[i].name;
    }
    const char *near = sp_setting_near(topic);
    const char *list = sp_nearest_name(topic, names, LISTS);
    const char *said[MOST_RESULTS + WORDS];
    int count = 0;
    for (const sp_figure *key; count < MOST_RESULTS && (key = sp_figure_at(count)) != NULL;
         count++) {
        said[count] = key->key;
    }
    for (int i = 0; i < WORDS; i++) {
        said[count++] = word_name(i, words[i]);
    }
    list = list != NULL ? list : near == NULL ? sp_nearest_name(topic, said, count) : NULL;
    return near != NULL && (list == NULL || strchr(topic, '.') != NULL) ? near : list;
}

// ---- Markdown ----

static void put_values(FILE *out, const sp_setting *setting)
{
    const char *value = NULL;
    if (setting->kind != SP_SETTING_NAME) {
        char type[SP_SETTING_TYPE];
        fputs(sp_setting_type(setting, type), out);
        fputs(setting->kind == SP_SETTING_TOKENS ? "; `128K` is 131072" : "", out);
        return;
    }
    for (int i = 0; (value = setting_value(setting, i)) != NULL; i++) {
        fprintf(out, "%s`%s`", i > 0 ? ", " : "", value);
    }
}

static void put_row(FILE *out, const sp_setting *setting)
{
    fprintf(out, "| `%s` | ", setting->key);
    put_values(out, setting);
    char usual[SP_SETTING_TYPE];
    fprintf(out, " | %s | %s", sp_setting_default(setting, usual), setting->text);
    char text[LINE];
    const char *words[MOST_WORDS];
    int count = split_aliases(setting, text, words);
    for (int i = 0; i < count; i++) {
        fprintf(out, "%s`%s`", i > 0 ? ", " : " Elsewhere: ", words[i]);
    }
    fputs(count > 0 ? ". |\n" : " |\n", out);
}

static void print_settings_markdown(FILE *out)
{
    const sp_setting *setting = NULL;
    char before[SECTION] = "";
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        char section[SECTION];
        snprintf(section, sizeof section, "%.*s", (int)strcspn(setting->key, "."), setting->key);
        bool own = sp_setting_section(setting->key) > 0 || is_section(section);
        const char *title = own ? section : "the document itself";
        if (strcmp(title, before) != 0) {
            fputs(i > 0 ? "\n" : "", out);
            fprintf(out,
                    "## %s%s%s\n\n| key | values | default | what it does |\n| --- | --- | --- | "
                    "--- |\n",
                    own ? "`" : "", title, own ? "`" : "");
            snprintf(before, sizeof before, "%s", title);
        }
        put_row(out, setting);
    }
}

// ---- commands by name ----

static const cli_command *const commands[] = {
    &cli_cmd_tune,     &cli_cmd_simulate,  &cli_cmd_compare,
    &cli_cmd_plan,     &cli_cmd_sweep,     &cli_cmd_merge,
    &cli_cmd_prefill,  &cli_cmd_decode,    &cli_cmd_run,
    &cli_cmd_validate, &cli_cmd_reproduce, &cli_cmd_calibrate,
    &cli_cmd_measure,  &cli_cmd_lengths,   &cli_cmd_import,
    &cli_cmd_report,   &cli_cmd_help,      NULL,
};

static const cli_command *command_at(int index)
{
    return commands[index];
}

static const char *list_at(int index)
{
    return index < LISTS ? lists[index].name : NULL;
}

const cli_command *cli_find_command(const char *name)
{
    for (int i = 0; commands[i] != NULL; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

int cli_unknown_command(const char *name)
{
    const char *names[sizeof commands / sizeof commands[0]];
    char hint[SP_NAME_HINT];
    int n = 0;
    for (int i = 0; commands[i] != NULL; i++) {
        names[n++] = commands[i]->name;
    }
    return cli_usage_error(NULL, "unknown command '%s'%s", name,
                           sp_name_hint(name, names, n, hint));
}

// ---- the overview ----

static const char streams[] = STREAMS;

void cli_print_overview(FILE *out)
{
    fputs("usage: slimpack <command> [options] [arguments]\n"
          "       slimpack help <command>|<setting>\n"
          "       slimpack --version\n\n",
          out);
    cli_print_wrapped(out,
                      "Simulates training steps of language models on data of variable length: "
                      "packing, pipeline schedule, time and memory.",
                      0, 0);
    fputs("\ncommands:\n", out);
    for (int i = 0; commands[i] != NULL; i++) {
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    }
    fputc('\n', out);
    cli_print_wrapped(out, streams, 0, 0);
}

// ---- the manual page, in the macros of man(7) ----

static void section(FILE *out, const char *title)
{
    fprintf(out, ".SH %s\n", title);
}

// One line of text, with what troff would take for itself escaped.
static void put_escaped(FILE *out, const char *text, size_t length)
{
    static const char special[] = "\\-^~";
    static const char *const escapes[] = {"\\e", "\\-", "\\(ha", "\\(ti"};
    if (length > 0 && (*text == '.' || *text == '\'')) {
        fputs("\\&", out);
    }
    for (size_t i = 0; i < length; i++) {
        const char *found = strchr(special, text[i]);
        if (found != NULL) {
            fputs(escapes[found - special], out);
        } else {
            fputc(text[i], out);
        }
    }
}

// Text whose paragraphs are separated by an empty line; troff fills the lines itself.
static void put_text(FILE *out, const char *text, const char *paragraph)
{
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        if (length > 0) {
            put_escaped(out, text, length);
        } else {
            fputs(paragraph, out);
        }
        fputc('\n', out);
        text += length;
        text += *text == '\n';
    }
}

static void put_option(FILE *out, const cli_option *option)
{
    fputs(".TP\n", out);
    if (option->letter != '\0') {
        fprintf(out, "\\fB\\-%c\\fR, ", option->letter);
    }
    fputs("\\fB\\-\\-", out);
    put_escaped(out, option->name, strlen(option->name));
    fputs("\\fR", out);
    if (option->value != NULL) {
        fprintf(out, " \\fI%s\\fR", option->value);
    }
    fputc('\n', out);
    put_text(out, option->help, ".IP");
}

static void put_command(FILE *out, const cli_command *command)
{
    fprintf(out, ".SS \"slimpack %s [options]%s%s\"\n", command->name,
            command->operands != NULL ? " " : "",
            command->operands != NULL ? command->operands : "");
    put_text(out, command->description, ".PP");
    for (const cli_option *option = command->options; option->name != NULL; option++) {
        put_option(out, option);
    }
}

static void put_examples(FILE *out)
{
    section(out, "EXAMPLES");
    fputs(".nf\n", out);
    for (int i = 0; commands[i] != NULL; i++) {
        const char *const *examples = commands[i]->examples;
        for (; examples != NULL && *examples != NULL; examples++) {
            put_text(out, *examples, ".PP");
        }
    }
    fputs(".fi\n", out);
}

static void put_settings(FILE *out)
{
    section(out, "SETTINGS OF A SCENARIO");
    put_text(out,
             "Keys of the scenario's JSON file, which --set KEY=VALUE overrides. A number of "
             "tokens may also be written as 128K or 1M (times 1024 and 1048576).",
             ".PP");
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        char type[SP_SETTING_TYPE];
        fputs(".TP\n\\fB", out);
        put_escaped(out, setting->key, strlen(setting->key));
        fputs("\\fR\n", out);
        put_text(out, setting->text, ".IP");
        sp_setting_type(setting, type);
        fputc('(', out);
        put_escaped(out, type, strlen(type));
        fputs("; default: ", out);
        sp_setting_default(setting, type);
        put_escaped(out, type, strlen(type));
        fputs(").\n", out);
    }
}

static void print_manual(FILE *out)
{
    static const struct {
        const char *status, *meaning;
    } exits[] = {
        {"0", EXIT_0}, {"1", EXIT_1},   {"2", EXIT_2},     {"3", EXIT_3},
        {"4", EXIT_4}, {"70", EXIT_70}, {"130", EXIT_130},
    };
    fprintf(out, ".TH SLIMPACK 1 \"\" \"slimpack %s\"\n", SP_VERSION);
    section(out, "NAME");
    fputs("slimpack \\- simulate training steps of language models on data of variable length\n",
          out);
    section(out, "SYNOPSIS");
    fputs(".B slimpack\n.I command\n[options] [arguments]\n.br\n", out);
    fputs(".B slimpack help\n[\\fIcommand\\fR|\\fIkey\\fR|\\fIlist\\fR]\n.br\n.B slimpack "
          "\\-\\-version\n",
          out);
    section(out, "COMMANDS");
    for (int i = 0; commands[i] != NULL; i++) {
        put_command(out, commands[i]);
    }
    put_settings(out);
    put_examples(out);
    section(out, "FILES");
    put_text(out, streams, ".PP");
    section(out, "EXIT STATUS");
    for (size_t i = 0; i < sizeof exits / sizeof exits[0]; i++) {
        fprintf(out, ".TP\n.B %s\n", exits[i].status);
        put_text(out, exits[i].meaning, ".IP");
    }
    section(out, "ENVIRONMENT");
    fputs(".TP\n.B SLIMPACK_PROFILE_PATH\n", out);
    put_text(out, "Folders, separated by colons, that are searched for operator profiles first.",
             ".IP");
    fputs(".TP\n.B COLUMNS\n", out);
    put_text(out,
             "Width of a terminal, in place of what it says itself; without one lines have 100.",
             ".IP");
}

typedef struct help_args {
    bool manual;
    bool completion;
    bool markdown;
    cli_common common;
} help_args;

static json_t *option_json(const cli_option *option)
{
    static const char *const kinds[] = {
        [CLI_FLAG] = "flag",   [CLI_INT] = "integer", [CLI_STRING] = "string", [CLI_FILE] = "file",
        [CLI_OUTPUT] = "file", [CLI_KEPT] = "file",   [CLI_FOLDER] = "folder", [CLI_LIST] = "list",
        [CLI_FILES] = "list",  [CLI_NAMED] = "list"};
    char letter[2] = {option->letter, '\0'};
    json_t *json = sp_json_object(
        SP_JSON("name", option->name),
        SP_JSON("letter", sp_json_text_or_null(letter[0] != '\0' ? letter : NULL)),
        SP_JSON("kind", kinds[option->kind]), SP_JSON("value", sp_json_text_or_null(option->value)),
        SP_JSON("help", option->help));
    if (option->kind == CLI_INT) {
        sp_json_add(json, SP_JSON("min", option->min), SP_JSON("max", option->max));
    }
    return json;
}

static json_t *command_json(const cli_command *command)
{
    json_t *list = json_array();
    for (const cli_option *option = command->options; option->name != NULL; option++) {
        json_array_append_new(list, option_json(option));
    }
    return sp_json_object(SP_JSON("name", command->name), SP_JSON("summary", command->summary),
                          SP_JSON("arguments", sp_json_text_or_null(command->operands)),
                          SP_JSON("options", list));
}

static json_t *overview_json(void)
{
    json_t *list = json_array();
    for (int i = 0; commands[i] != NULL; i++) {
        json_array_append_new(list, command_json(commands[i]));
    }
    return sp_json_object(SP_JSON("version", SP_VERSION), SP_JSON("commands", list));
}

static int unknown_topic(const char *word)
{
    const char *near = nearest_topic(word);
    const char *why = sp_setting_missing(word);
    if (why != NULL) {
        return cli_usage_error(&cli_cmd_help, "no setting '%s': %s", word, why);
    }
    for (int i = 0; near == NULL && commands[i] != NULL; i++) {
        near = sp_nearest_name(word, &commands[i]->name, 1);
    }
    return cli_usage_error(
        &cli_cmd_help,
        "no command, no setting and no word '%s'%s%s%s: 'slimpack help words' lists those of "
        "outputs, 'help settings' keys of scenarios, 'help results' of results",
        word, near != NULL ? " (did you mean '" : "", near != NULL ? near : "",
        near != NULL ? "'?)" : "");
}

static const cli_known known = {command_at, list_at, setting_value};

static int print_whole(const help_args *args, const cli_operands *operands)
{
    const char *shell = operands->count > 0 ? operands->items[0] : "bash";
    bool alone = args->manual + args->completion + args->markdown == 1 && !args->common.json &&
                 operands->count <= (args->completion ? 1 : 0);
    if (!alone) {
        return cli_usage_error(&cli_cmd_help,
                               "--man, --completion [bash|zsh|fish] and --markdown stand alone");
    }
    if (args->completion && !cli_print_completion(stdout, shell, &known)) {
        return cli_usage_error(&cli_cmd_help, "--completion is for bash, zsh or fish, not '%s'",
                               shell);
    }
    if (args->manual || args->markdown) {
        (args->manual ? print_manual : print_settings_markdown)(stdout);
    }
    return 0;
}

static int run(const void *given, const cli_operands *operands)
{
    const help_args *args = given;
    if (args->manual || args->completion || args->markdown) {
        return print_whole(args, operands);
    }
    if (operands->count == 0) {
        if (args->common.json) {
            return cli_print_json(overview_json());
        }
        cli_print_overview(stdout);
        return 0;
    }
    // Words of an output may be several ("longest stage").
    char topic[TOPIC] = "";
    for (int i = 0; i < operands->count; i++) {
        sp_append(topic, sizeof topic, "%s%s", i > 0 ? " " : "", operands->items[i]);
    }
    const cli_command *command = cli_find_command(topic);
    if (command == NULL) {
        int exit_status = help_topic(topic, args->common.json);
        exit_status =
            exit_status == CLI_PROCEED ? help_number(topic, args->common.json) : exit_status;
        return exit_status != CLI_PROCEED ? exit_status : unknown_topic(topic);
    }
    if (args->common.json) {
        return cli_print_json(command_json(command));
    }
    cli_print_help(stdout, command);
    return 0;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_FLAG_OPTION("man", help_args, manual, "print the manual page, as source for man(1)"),
    CLI_FLAG_OPTION("completion", help_args, completion,
                    "print the completion script for a shell: bash, zsh or fish (default bash)"),
    CLI_FLAG_OPTION("markdown", help_args, markdown,
                    "print the page of all settings of a scenario, as Markdown"),
    CLI_ANSWER_OPTIONS(help_args),
    {0},
};

static const char *const examples[] = {
    "slimpack help lengths",           "slimpack help memory.recompute",  "slimpack help models",
    ". <(slimpack help --completion)", "slimpack help --completion fish", NULL,
};

const cli_command cli_cmd_help = {
    .name = "help",
    .summary = "explain a command or a setting of a scenario",
    CLI_TAKES("[COMMAND|KEY|LIST|WORD...]", 0, 8),
    .description =
        "Prints what a command does and the options it takes, or what a setting of a scenario is "
        "for: by its key (parallel.pp), its last part (pp), what others call it (vpp, "
        "micro_batch_size), or a whole section (memory); or what a key of a result (mfu), a word "
        "of an output (margin, longest stage) or an option (csv) says. The lists settings, models, "
        "model_types, clusters, strategies, schedules, stacks, profiles, distributions, results "
        "and words have a line for each of what there is. With --json the same comes as data, for "
        "tools that offer it.",
    .operands_are_words = true,
    .prints_pages = true,
    CLI_RUNS(run, help_args, options, examples),
};
