// A result as a JSON document (slimpack/result/1).
#include "sim/metrics/result.h"

#include <math.h>

#include "sim/base/json.h"
#include "sim/base/units.h"

static double batches_of(const sp_result *result)
{
    return (double)result->batch_count;
}

// Uniform costs know no bytes.
static bool memory_is_known(const sp_result *result)
{
    return result->parameters > 0;
}

static void put(json_t *object, const char *key, double value)
{
    sp_json_put(object, key, sp_json_figure(value));
}

static json_t *gib(const sp_result *result, int64_t bytes)
{
    return memory_is_known(result) ? sp_json_figure(sp_gib_from_bytes(bytes)) : json_null();
}

static json_t *json_memory(const sp_bytes *bytes)
{
    json_t *object = json_object();
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        sp_json_put(object, sp_memory_category_names[c],
                    sp_json_figure(sp_gib_from_bytes(bytes->of[c])));
    }
    return object;
}

static json_t *json_peak_memory(const sp_peak_memory *peak)
{
    json_t *holders = json_array();
    for (int i = 0; i < peak->count; i++) {
        const sp_memory_holder *holder = &peak->holders[i];
        json_t *object = json_object();
        sp_json_put(object, "name", json_string(holder->name));
        sp_json_put(object, "category", json_string(sp_memory_category_names[holder->category]));
        put(object, "gib", sp_gib_from_bytes(holder->bytes));
        sp_json_put(object, "count", json_integer(holder->count));
        json_array_append_new(holders, object);
    }
    json_t *object = json_object();
    sp_json_put(object, "dp", json_integer(peak->dp));
    sp_json_put(object, "pp", json_integer(peak->pp));
    put(object, "at_ms", sp_ms_from_ns(peak->at_ns));
    sp_json_put(object, "action", sp_json_text_or_null(peak->action));
    sp_json_put(object, "holders", holders);
    return object;
}

static json_t *json_batches(const sp_result *result)
{
    json_t *array = json_array();
    for (size_t i = 0; i < result->batch_count; i++) {
        const sp_batch_result *b = &result->batches[i];
        double rank_ns = (double)result->layout.dp * result->layout.pp * (double)b->makespan_ns;
        json_t *object = json_object();
        put(object, "iteration_ms", sp_ms_from_ns(b->iteration_ns));
        put(object, "bubble_ratio", sp_bubble_of((double)b->busy_ns, rank_ns));
        sp_json_put(object, "peak_memory_gib", gib(result, b->peak_bytes));
        sp_json_put(object, "samples", json_integer(b->facts.samples));
        sp_json_put(object, "tokens", json_integer(b->facts.tokens));
        sp_json_put(object, "computed_tokens", json_integer(b->facts.computed_tokens));
        sp_json_put(object, "microbatches", json_integer(b->facts.microbatches));
        json_array_append_new(array, object);
    }
    return array;
}

// CP ranks do the same work; each is listed.
static json_t *json_ranks(const sp_result *result)
{
    json_t *array = json_array();
    size_t count = (size_t)result->layout.dp * (size_t)result->layout.pp;
    for (size_t i = 0; result->ranks != NULL && i < count; i++) {
        const sp_rank_metrics *rank = &result->ranks[i];
        for (int cp = 0; cp < result->layout.cp; cp++) {
            json_t *object = json_object();
            sp_json_put(object, "dp", json_integer(rank->dp));
            sp_json_put(object, "cp", json_integer(cp));
            sp_json_put(object, "pp", json_integer(rank->pp));
            put(object, "busy_ms", sp_ms_from_ns(rank->busy_ns) / batches_of(result));
            put(object, "span_ms", sp_ms_from_ns(rank->span_ns) / batches_of(result));
            sp_json_put(object, "peak_gib", gib(result, rank->peak_bytes));
            put(object, "activation_units_peak", rank->units_peak);
            json_array_append_new(array, object);
        }
    }
    return array;
}

// `launch` is part of `compute`.
static json_t *json_breakdown(const sp_result *result)
{
    static const char *const names[SP_TIME_PARTS] = {"compute", "tp_comm",   "cp_comm", "pp_comm",
                                                     "dp_comm", "optimizer", "bubble"};
    double ms[SP_TIME_PARTS];
    json_t *object = json_object();
    sp_result_time_parts(result, ms);
    for (int i = 0; i < SP_TIME_PARTS; i++) {
        put(object, names[i], ms[i]);
        if (i == SP_TIME_COMPUTE) {
            put(object, "launch", sp_result_launch_ms(result));
        }
    }
    return object;
}

static json_t *json_exchange(const sp_result *result)
{
    json_t *object = json_object();
    put(object, "imbalance_before", result->exchange_before);
    put(object, "imbalance_after", result->exchange_after);
    put(object, "gib", result->exchange_bytes / SP_GIB / batches_of(result));
    sp_json_put(object, "messages", json_integer(result->exchange_messages));
    return object;
}

static json_t *json_gap_parts(const sp_result *result)
{
    const sp_batch_facts *sum = &result->sum;
    double per_ms = 1.0 / (batches_of(result) * SP_NS_PER_MS);
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "packs", sum->gap_packs_ns * per_ms,
                     "uneven_ranks", sum->gap_uneven_ns * per_ms, "idle", sum->gap_idle_ns * per_ms,
                     "within_bound", (sum->lower_bound_ns - sum->work_bound_ns) * per_ms, "memory",
                     sum->bound_memory_ns * per_ms);
}

static json_t *json_slowest(const sp_slowest_gpu *slowest)
{
    json_t *object = json_object();
    json_t *scales = json_array();
    sp_json_put(object, "gpus", json_integer(slowest->gpus));
    put(object, "slowest_drawn", slowest->drawn);
    put(object, "slowest_expected", slowest->expected);
    for (int i = 0; i < SP_JITTER_SCALES; i++) {
        json_array_append_new(scales,
                              json_pack("{s:I, s:f}", "gpus", (json_int_t)sp_jitter_scales[i],
                                        "slowest_expected", slowest->expected_of[i]));
    }
    sp_json_put(object, "scales", scales);
    return object;
}

static void put_model(const sp_result *result, json_t *object)
{
    json_t *model = json_null();
    if (result->parameters > 0) {
        model = json_object();
        sp_json_put(model, "name", json_string(result->model_name));
        sp_json_put(model, "parameters", json_integer(result->parameters));
        put(model, "flops_per_token", result->flops_per_token);
    }
    sp_json_put(object, "model", model);
    json_t *provenance = json_object();
    sp_json_put(provenance, "profile", sp_json_text_or_null(result->profile));
    sp_json_put(provenance, "level", json_string(sp_level_names[result->level]));
    if (result->compute_scale > 0.0) {
        put(provenance, "compute_scale", result->compute_scale);
    }
    if (result->memory_scale > 0.0) {
        put(provenance, "memory_scale", result->memory_scale);
    }
    if (result->network != SP_NETWORK_CLOSED) {
        sp_json_put(provenance, "network", json_string(sp_network_detail_names[result->network]));
    }
    if (result->collectives != SP_ALGORITHM_PROFILE) {
        sp_json_put(provenance, "collectives",
                    json_string(sp_collective_algorithm_names[result->collectives]));
    }
    if (result->jitter.gpu_cv > 0.0) {
        put(provenance, "jitter_gpu_cv", result->jitter.gpu_cv);
        sp_json_put(provenance, "jitter_seed", json_integer((json_int_t)result->jitter.seed));
    }
    sp_json_put(object, "provenance", provenance);
    if (result->jitter.gpu_cv > 0.0) {
        sp_json_put(object, "jitter", json_slowest(&result->slowest));
    }
}

static void put_memory(const sp_result *result, json_t *object)
{
    sp_json_put(object, "peak_memory_gib", gib(result, result->peak_bytes));
    sp_json_put(object, "peak_memory_allocator_gib",
                result->allocator_peak_bytes > 0 ? gib(result, result->allocator_peak_bytes)
                                                 : json_null());
    sp_json_put(object, "peak_memory_reserved_gib",
                result->reserved_peak_bytes > 0 ? gib(result, result->reserved_peak_bytes)
                                                : json_null());
    sp_json_put(object, "memory_gib",
                memory_is_known(result) ? json_memory(&result->peak) : json_null());
    sp_json_put(object, "peak_memory",
                result->peak_memory.known ? json_peak_memory(&result->peak_memory) : json_null());
    sp_json_put(object, "oom", json_boolean(sp_result_is_oom(result)));
    sp_fits fits = sp_result_fits(result);
    bool known = fits != SP_FITS_NONE;
    sp_json_put(object, "memory_margin_gib",
                known ? gib(result, sp_result_margin_bytes(result)) : json_null());
    put(object, "memory_stall_ms", result->stall_ns / batches_of(result) / SP_NS_PER_MS);
    sp_json_put(object, "fits", sp_json_text_or_null(known ? sp_fits_names[fits] : NULL));
}

static void put_throughput(const sp_result *result, json_t *object)
{
    put(object, "tokens_per_s", sp_result_tokens_per_s(result));
    put(object, "tokens_per_gpu_s", sp_result_tokens_per_gpu_s(result));
    put(object, "tflops_per_gpu", sp_result_tflops_per_gpu(result, SP_FLOPS_MEGATRON));
    put(object, "tflops_per_gpu_causal", sp_result_tflops_per_gpu(result, SP_FLOPS_CAUSAL));
    put(object, "mfu", sp_result_mfu(result, SP_FLOPS_CAUSAL));
    put(object, "mfu_full_attention", sp_result_mfu(result, SP_FLOPS_MEGATRON));
    put(object, "hfu", sp_result_hfu(result));
}

static void put_error(const sp_step_error *found, json_t *object)
{
    json_t *error = json_null();
    if (found->known) {
        error = json_object();
        put(error, "median", found->median);
        put(error, "p90", found->p90);
        put(error, "bias", found->bias);
        sp_json_put(error, "steps", json_integer(found->steps));
        sp_json_put(error, "scope", json_string(found->scope));
    }
    sp_json_put(object, "error", error);
    sp_json_put(object, "not_validated", sp_json_text_or_null(found->not_validated));
}

// Of steps of uniform costs there are no tokens to leave out.
static void put_shares(const sp_result *result, json_t *object)
{
    bool known = result->parameters > 0;
    put(object, "left_out_share", known ? sp_result_left_out_share(result) : (double)NAN);
    put(object, "cut_share", known ? sp_result_cut_share(result) : (double)NAN);
    put(object, "over_length_share", known ? result->over_length_share : (double)NAN);
}

json_t *sp_result_json(const sp_result *result, bool with_ranks)
{
    json_t *object = json_object();
    json_t *imbalance = json_object();
    put(imbalance, "dp_max_over_mean", sp_result_dp_max_over_mean(result));
    put(imbalance, "forward_pack_cv", result->forward_pack_cv / batches_of(result));
    put(imbalance, "backward_pack_cv", result->backward_pack_cv / batches_of(result));
    sp_json_put(object, "schema", json_string("slimpack/result/1"));
    sp_json_put(object, "version", json_string(SP_VERSION));
    sp_json_put(object, "strategy", sp_json_text_or_null(result->strategy));
    sp_json_put(object, "schedule", json_string(result->schedule));
    sp_json_put(object, "cp_overlap", sp_json_text_or_null(result->cp_overlap));
    sp_json_put(object, "chunks_per_rank", json_integer(result->layout.chunks));
    if (result->stage_layers != NULL) {
        json_t *layers = json_array();
        for (int s = 0; s < sp_layout_vstages(&result->layout); s++) {
            json_array_append_new(layers, json_integer(result->stage_layers[s]));
        }
        sp_json_put(object, "stage_layers", layers);
    }
    put(object, "iteration_ms", sp_result_iteration_ms(result));
    put(object, "bubble_ratio", sp_result_bubble_ratio(result));
    put(object, "bubble_ratio_longest_stage", sp_result_bubble_ratio_longest_stage(result));
    if (result->published_bubble_ratio >= 0.0) {
        put(object, "bubble_ratio_published", result->published_bubble_ratio);
    }
    put_throughput(result, object);
    put_memory(result, object);
    sp_json_put(object, "time_breakdown_ms", json_breakdown(result));
    sp_json_put(object, "imbalance", imbalance);
    if (result->has_exchange) {
        sp_json_put(object, "exchange", json_exchange(result));
    }
    put(object, "microbatches", sp_result_microbatches(result));
    put(object, "lower_bound_ms", sp_result_lower_bound_ms(result));
    put(object, "gap", sp_result_gap(result));
    put(object, "gap_work", sp_result_gap_work(result));
    if (sp_result_knows_gap(result)) {
        sp_json_put(object, "gap_parts_ms", json_gap_parts(result));
    }
    put(object, "solver_ms", result->sum.solver_ms / batches_of(result));
    put(object, "simulate_ms", result->sum.simulate_ms / batches_of(result));
    sp_json_put(object, "tasks", json_integer(result->sum.tasks));
    sp_json_put(object, "edges", json_integer(result->sum.edges));
    put_model(result, object);
    put_error(&result->step_error, object);
    sp_json_put(object, "seed", json_integer((json_int_t)result->seed));
    sp_json_put(object, "lossless", json_boolean(result->lossless));
    put_shares(result, object);
    sp_result_put_notes(result, object);
    sp_json_put(object, "batches", json_batches(result));
    if (with_ranks) {
        sp_json_put(object, "ranks", json_ranks(result));
    }
    return object;
}

void sp_result_put_notes(const sp_result *result, json_t *object)
{
    sp_json_put(object, "warnings",
                sp_json_lines(result->warnings.text[0], SP_WARNING_TEXT, result->warnings.count));
    sp_json_put(object, "uncalibrated",
                sp_json_lines(result->uncalibrated[0], sizeof result->uncalibrated[0],
                              result->uncalibrated_count));
}

static const sp_result_key keys[] = {
    {"schema", "slimpack/result/1."},
    {"version", "Version of the program."},
    {"strategy", "How samples became packs."},
    {"schedule", "Order of the pipeline's actions."},
    {"cp_overlap", "How context-parallel ranks exchange keys and values."},
    {"chunks_per_rank", "Model chunks of each pipeline rank."},
    {"stage_layers", "Layers of each virtual stage, where shares are not equal."},
    {"iteration_ms", "Milliseconds of a step, the mean over the batches."},
    {"bubble_ratio",
     "Share of ranks x makespan in which no rank computes or waits for its own TP or "
     "CP communication; gradient reduction and optimizer stand outside."},
    {"bubble_ratio_longest_stage",
     "The longest stage's span without its work, over that span: the zero-bubble papers' measure."},
    {"bubble_ratio_published",
     "Closed form of the zero-bubble tables, interleaved with uniform_costs."},
    {"tokens_per_s", "Trained tokens a second: no padding, nothing dropped."},
    {"tokens_per_gpu_s", "Trained tokens a second and GPU."},
    {"tflops_per_gpu", "TFLOP/s of a GPU by Megatron's formula: all pairs of tokens are counted."},
    {"tflops_per_gpu_causal", "TFLOP/s of a GPU with causal pairs counted once."},
    {"mfu", "Model FLOPs utilization, of the GPU's peak: causal pairs counted once, backward twice "
            "the forward, no recomputation."},
    {"mfu_full_attention", "MFU with all pairs counted, as Megatron and SlimPipe do."},
    {"hfu", "Hardware FLOPs utilization: as mfu, with recomputation."},
    {"peak_memory_gib", "GiB of tensors on the fullest rank."},
    {"peak_memory_allocator_gib", "GiB in blocks of PyTorch's allocator, as max_memory_allocated, "
                                  "over all ranks and two steps."},
    {"peak_memory_reserved_gib", "GiB that PyTorch's allocator reserves, as max_memory_reserved."},
    {"memory_gib", "The fullest rank's GiB at its peak by kind."},
    {"peak_memory", "Where and when the peak is, and the largest tensors then."},
    {"oom", "Does the step need more memory than the limit?"},
    {"memory_margin_gib", "GiB that are left below the limit by what PyTorch reserves."},
    {"memory_stall_ms",
     "Milliseconds of a step that a tight allocator takes to free and take blocks."},
    {"fits", "yes, tight (the allocator has to free cached blocks) or no."},
    {"time_breakdown_ms", "A rank's step by kind of time, the mean over ranks."},
    {"imbalance", "How uneven ranks and packs are."},
    {"imbalance.dp_max_over_mean", "Work of the busiest data-parallel rank over their mean."},
    {"imbalance.forward_pack_cv", "Standard deviation over mean of the forward packs' times."},
    {"imbalance.backward_pack_cv", "Standard deviation over mean of the backward packs' times."},
    {"exchange", "Bytes of attention that ranks hand to each other (schedule.exchange)."},
    {"microbatches", "Forward packs of a step, the mean over the batches."},
    {"lower_bound_ms", "Milliseconds that no plan of this kind is faster than."},
    {"gap", "Time of a step above lower_bound_ms, over lower_bound_ms."},
    {"gap_work", "Time of a step above pure work, over pure work."},
    {"gap_parts_ms",
     "What the step takes beyond pure work: packs' costs, uneven ranks, idle stages."},
    {"solver_ms", "Milliseconds that the strategy took for a batch on this machine."},
    {"simulate_ms", "Milliseconds that the simulation of a batch took on this machine."},
    {"tasks", "Actions and transfers of the simulated steps."},
    {"edges", "Dependencies between them."},
    {"model", "Name, parameters, and FLOPs of a token, forward and backward."},
    {"provenance",
     "The profile, and whether its rates are measured, published, fitted or assumed."},
    {"jitter", "How many times the mean the slowest GPU takes (jitter.gpu_cv)."},
    {"error", "Error of the profile on logged steps like this one that its fit had not seen."},
    {"not_validated", "Why the error is not known."},
    {"seed", "The workload's seed."},
    {"lossless", "Are all samples trained, whole and in this step?"},
    {"left_out_share",
     "Share of tokens that the strategy dropped, or left for later batches at the end."},
    {"cut_share",
     "Share of trained tokens in pieces that do not see the beginning of their document."},
    {"over_length_share", "Share of tokens that workload.over_length dropped or truncated."},
    {"warnings", "What was lost, replaced or is not modelled."},
    {"uncalibrated", "Sizes outside the profile's tables."},
    {"batches", "The figures of each batch."},
    {"ranks", "The figures of each rank."},
};

const sp_result_key *sp_result_key_at(int index)
{
    return index >= 0 && index < (int)(sizeof keys / sizeof keys[0]) ? &keys[index] : NULL;
}

json_t *sp_result_json_empty(void)
{
    sp_result nothing = {.published_bubble_ratio = -1.0};
    json_t *full = sp_result_json(&nothing, false);
    const char *key;
    json_t *value;
    json_t *empty = json_object();
    json_object_foreach (full, key, value) {
        sp_json_put(empty, key, json_null());
    }
    json_decref(full);
    return empty;
}
