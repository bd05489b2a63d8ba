#include "sim/metrics/result.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"

const int64_t sp_jitter_scales[SP_JITTER_SCALES] = {8, 64, 512, 4096, 16384, 131072};

void sp_warnings_add(sp_warnings *warnings, const char *format, ...)
{
    char text[SP_WARNING_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (int i = 0; i < warnings->count; i++) {
        if (strcmp(warnings->text[i], text) == 0) {
            return;
        }
    }
    if (warnings->count < SP_WARNINGS) {
        memcpy(warnings->text[warnings->count++], text, sizeof text);
    } else {
        snprintf(warnings->text[SP_WARNINGS - 1], SP_WARNING_TEXT, "and further warnings");
    }
}

void sp_result_note_oom(sp_result *result, const char *text)
{
    sp_warnings *warnings = &result->warnings;
    int at = 0;
    while (at < warnings->count && strcmp(warnings->text[at], result->oom_diagnosis) != 0) {
        at++;
    }
    snprintf(result->oom_diagnosis, sizeof result->oom_diagnosis, "%s", text);
    if (at < warnings->count) {
        memcpy(warnings->text[at], result->oom_diagnosis, sizeof result->oom_diagnosis);
    } else {
        sp_warnings_add(warnings, "%s", text);
    }
}

sp_status sp_result_note_layers(sp_result *result, const sp_layout *layout, sp_error *err)
{
    size_t bytes = (size_t)sp_layout_vstages(layout) * sizeof *result->stage_layers;
    if (layout->stage_layers == NULL) {
        return SP_OK;
    }
    result->stage_layers = sp_malloc(bytes);
    if (result->stage_layers == NULL) {
        return sp_error_no_memory(err, "a result");
    }
    memcpy(result->stage_layers, layout->stage_layers, bytes);
    return SP_OK;
}

void sp_result_fini(sp_result *result)
{
    sp_free(result->batches);
    sp_free(result->ranks);
    sp_free(result->stage_layers);
    *result = (sp_result){0};
}

static void add_ranks(sp_result *result, const sp_step_metrics *metrics)
{
    for (int64_t i = 0; i < metrics->rank_count; i++) {
        sp_rank_metrics *sum = &result->ranks[i];
        const sp_rank_metrics *rank = &metrics->ranks[i];
        sum->dp = rank->dp;
        sum->pp = rank->pp;
        sum->busy_ns += rank->busy_ns;
        sum->span_ns += rank->span_ns;
        sum->peak_bytes = rank->peak_bytes > sum->peak_bytes ? rank->peak_bytes : sum->peak_bytes;
        sum->units_peak = rank->units_peak > sum->units_peak ? rank->units_peak : sum->units_peak;
    }
}

static void add_facts(sp_batch_facts *sum, const sp_batch_facts *facts)
{
    sum->tokens += facts->tokens;
    sum->microbatches += facts->microbatches;
    sum->model_flops += facts->model_flops;
    sum->full_flops += facts->full_flops;
    sum->hardware_flops += facts->hardware_flops;
    sum->lower_bound_ns += facts->lower_bound_ns;
    sum->work_bound_ns += facts->work_bound_ns;
    sum->bound_memory_ns += facts->bound_memory_ns;
    sum->gap_packs_ns += facts->gap_packs_ns;
    sum->gap_uneven_ns += facts->gap_uneven_ns;
    sum->gap_idle_ns += facts->gap_idle_ns;
    sum->solver_ms += facts->solver_ms;
    sum->simulate_ms += facts->simulate_ms;
    sum->tasks += facts->tasks;
    sum->edges += facts->edges;
}

sp_status sp_result_add(sp_result *result, const sp_step_metrics *metrics,
                        const sp_batch_facts *facts, sp_error *err)
{
    if (result->ranks == NULL) {
        result->ranks = sp_calloc((size_t)metrics->rank_count, sizeof *result->ranks);
    }
    if (result->ranks == NULL || !sp_reserve((void **)&result->batches, &result->batch_capacity,
                                             result->batch_count + 1, sizeof *result->batches)) {
        return sp_error_no_memory(err, "a result");
    }
    result->batches[result->batch_count++] =
        (sp_batch_result){.facts = *facts,
                          .iteration_ns = metrics->iteration_ns,
                          .makespan_ns = metrics->makespan_ns,
                          .busy_ns = metrics->busy_ns,
                          .peak_bytes = metrics->peak_bytes};
    add_ranks(result, metrics);
    add_facts(&result->sum, facts);
    result->rank_ns += (double)metrics->rank_count * (double)metrics->makespan_ns;
    result->busy_ns += (double)metrics->busy_ns;
    result->tp_ns += (double)metrics->tp_ns;
    result->cp_ns += (double)metrics->cp_ns;
    result->dp_ns += (double)metrics->dp_ns;
    result->launch_ns += (double)metrics->launch_ns;
    result->wait_p2p_ns += (double)metrics->wait_p2p_ns;
    result->reduce_ns += (double)metrics->reduce_ns;
    result->optimizer_ns += (double)metrics->optimizer_ns;
    result->iteration_ns += (double)metrics->iteration_ns;
    result->makespan_ns += (double)metrics->makespan_ns;
    result->longest_span_ns += (double)metrics->longest_span_ns;
    result->longest_span_work_ns += (double)metrics->longest_span_work_ns;
    result->dp_busiest_ns += metrics->dp_busiest_ns;
    result->dp_mean_ns += metrics->dp_mean_ns;
    result->forward_pack_cv += metrics->forward_pack_cv;
    result->backward_pack_cv += metrics->backward_pack_cv;
    if (metrics->peak_bytes > result->peak_bytes) {
        result->peak_bytes = metrics->peak_bytes;
        result->peak = metrics->peak;
    }
    return SP_OK;
}

static double batches_of(const sp_result *result)
{
    return (double)result->batch_count;
}

double sp_result_iteration_ms(const sp_result *result)
{
    return result->iteration_ns / batches_of(result) / SP_NS_PER_MS;
}

double sp_result_bubble_ratio(const sp_result *result)
{
    return sp_bubble_of(result->busy_ns, result->rank_ns);
}

double sp_result_bubble_ratio_longest_stage(const sp_result *result)
{
    double span_ns = result->longest_span_ns;
    return span_ns > 0.0 ? (span_ns - result->longest_span_work_ns) / span_ns : 0.0;
}

static double per_second(const sp_result *result, double amount)
{
    return amount > 0.0 ? amount / (result->iteration_ns / SP_NS_PER_S) : (double)NAN;
}

double sp_result_tokens_per_s(const sp_result *result)
{
    return per_second(result, (double)result->sum.tokens);
}

double sp_result_tokens_per_gpu_s(const sp_result *result)
{
    return sp_result_tokens_per_s(result) / (double)sp_layout_ranks(&result->layout);
}

static double counted_flops(const sp_result *result, sp_flops_count count)
{
    return count == SP_FLOPS_CAUSAL ? result->sum.model_flops : result->sum.full_flops;
}

double sp_result_tflops_per_gpu(const sp_result *result, sp_flops_count count)
{
    double flops_per_s = per_second(result, counted_flops(result, count));
    return flops_per_s / (double)sp_layout_ranks(&result->layout) / 1e12;
}

static double utilisation(const sp_result *result, double flops)
{
    double peak = result->peak_flops_per_s * (double)sp_layout_ranks(&result->layout);
    return peak > 0.0 ? per_second(result, flops) / peak : (double)NAN;
}

double sp_result_mfu(const sp_result *result, sp_flops_count count)
{
    return utilisation(result, counted_flops(result, count));
}

double sp_result_lower_bound_ms(const sp_result *result)
{
    double bound_ns = result->sum.lower_bound_ns;
    return bound_ns > 0.0 ? bound_ns / batches_of(result) / SP_NS_PER_MS : (double)NAN;
}

double sp_result_gap(const sp_result *result)
{
    double bound_ms = sp_result_lower_bound_ms(result);
    return (sp_result_iteration_ms(result) - bound_ms) / bound_ms;
}

bool sp_result_knows_gap(const sp_result *result)
{
    const sp_batch_facts *sum = &result->sum;
    return sum->gap_packs_ns != 0.0 || sum->gap_uneven_ns != 0.0 || sum->gap_idle_ns != 0.0;
}

double sp_result_gap_work(const sp_result *result)
{
    double bound_ns = result->sum.work_bound_ns;
    return bound_ns > 0.0 ? (result->iteration_ns - bound_ns) / bound_ns : (double)NAN;
}

double sp_result_left_out_share(const sp_result *result)
{
    double trained = 0.0;
    double left_out = 0.0;
    for (size_t b = 0; b < result->batch_count; b++) {
        const sp_batch_facts *facts = &result->batches[b].facts;
        bool last = b + 1 == result->batch_count;
        trained += (double)facts->tokens;
        left_out += (double)(facts->dropped_tokens + (last ? facts->delayed_tokens : 0));
    }
    return trained + left_out > 0.0 ? left_out / (trained + left_out) : 0.0;
}

double sp_result_cut_share(const sp_result *result)
{
    double trained = 0.0;
    double cut = 0.0;
    for (size_t b = 0; b < result->batch_count; b++) {
        trained += (double)result->batches[b].facts.tokens;
        cut += (double)result->batches[b].facts.cut_tokens;
    }
    return trained > 0.0 ? cut / trained : 0.0;
}

double sp_result_dp_max_over_mean(const sp_result *result)
{
    return result->dp_mean_ns > 0.0 ? result->dp_busiest_ns / result->dp_mean_ns : 1.0;
}

double sp_result_microbatches(const sp_result *result)
{
    return (double)result->sum.microbatches / batches_of(result);
}

// Uniform costs know no bytes.
static bool memory_is_known(const sp_result *result)
{
    return result->parameters > 0;
}

bool sp_result_is_oom(const sp_result *result)
{
    return result->memory_limit_bytes > 0 && result->peak_bytes > result->memory_limit_bytes;
}

const char *const sp_fits_names[] = {"yes", "tight", "no", NULL};

static int64_t counted_peak(const sp_result *result)
{
    return result->reserved_peak_bytes > 0 ? result->reserved_peak_bytes : result->peak_bytes;
}

int64_t sp_result_margin_bytes(const sp_result *result)
{
    return result->memory_limit_bytes - counted_peak(result);
}

bool sp_memory_is_short(int64_t peak_bytes, int64_t limit_bytes)
{
    return peak_bytes <= limit_bytes &&
           (double)peak_bytes > (1.0 - SP_MEMORY_TIGHT) * (double)limit_bytes;
}

sp_fits sp_result_fits(const sp_result *result)
{
    if (!memory_is_known(result) || result->memory_limit_bytes <= 0) {
        return SP_FITS_NONE;
    }
    if (sp_result_is_oom(result)) {
        return SP_FITS_NO;
    }
    double limit = (double)result->memory_limit_bytes;
    bool tight = result->reserved_peak_bytes > 0
                     ? (double)result->reserved_peak_bytes > (1.0 - SP_RESERVED_TIGHT) * limit
                     : sp_memory_is_short(result->peak_bytes, result->memory_limit_bytes);
    return tight ? SP_FITS_TIGHT : SP_FITS_YES;
}

void sp_result_add_stalls(sp_result *result, double microbatch_s)
{
    sp_fits fits = sp_result_fits(result);
    if (fits == SP_FITS_NONE || fits == SP_FITS_YES || !(microbatch_s > 0.0)) {
        return;
    }
    for (size_t i = 0; i < result->batch_count; i++) {
        sp_batch_result *batch = &result->batches[i];
        double microbatches = (double)batch->facts.microbatches / result->layout.dp;
        int64_t stall_ns = sp_ns_from_s(microbatches * microbatch_s);
        batch->iteration_ns += stall_ns;
        result->iteration_ns += (double)stall_ns;
        result->stall_ns += (double)stall_ns;
    }
}

void sp_result_warn_of_memory(sp_result *result)
{
    if (sp_result_fits(result) == SP_FITS_TIGHT) {
        sp_warnings_add(
            &result->warnings,
            "memory is tight: %.2f of %.2f GiB%s; at the limit PyTorch frees and "
            "allocates blocks all the time%s; such logged steps ran 3 to 8 times slower%s",
            sp_gib_from_bytes(counted_peak(result)), sp_gib_from_bytes(result->memory_limit_bytes),
            result->reserved_peak_bytes > 0 ? " reserved" : "",
            result->reserved_peak_bytes > result->memory_limit_bytes
                ? ", and gaps between blocks are lost unless expandable_segments:True is set"
                : "",
            result->stall_ns > 0.0 ? " (counted here)" : "");
    }
}

// A number, or null where it is not defined.
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void put(json_t *object, const char *key, double value)
{
    sp_json_put(object, key, number(value));
}

// A text, or null where it is empty.
static void put_text(json_t *object, const char *key, const char *text)
{
    sp_json_put(object, key, text[0] != '\0' ? json_string(text) : json_null());
}

static json_t *gib(const sp_result *result, int64_t bytes)
{
    return memory_is_known(result) ? number(sp_gib_from_bytes(bytes)) : json_null();
}

static json_t *json_memory(const sp_bytes *bytes)
{
    json_t *object = json_object();
    for (int c = 0; object != NULL && c < SP_MEM_CATEGORIES; c++) {
        sp_json_put(object, sp_memory_category_names[c], number(sp_gib_from_bytes(bytes->of[c])));
    }
    return object;
}

static json_t *json_peak_memory(const sp_peak_memory *peak)
{
    json_t *holders = json_array();
    for (int i = 0; holders != NULL && i < peak->count; i++) {
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
    put_text(object, "action", peak->action);
    sp_json_put(object, "holders", holders);
    return object;
}

static json_t *json_batches(const sp_result *result)
{
    json_t *array = json_array();
    for (size_t i = 0; array != NULL && i < result->batch_count; i++) {
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

double sp_result_compute_ns(const sp_result *result)
{
    return result->busy_ns - result->tp_ns - result->cp_ns - result->dp_ns;
}

// Mean over ranks and batches; the parts add up to the iteration, but for `launch`, which is part
// of `compute`.
static json_t *json_breakdown(const sp_result *result)
{
    double ranks = (double)result->layout.dp * result->layout.pp;
    double per_rank = 1.0 / (ranks * batches_of(result) * SP_NS_PER_MS);
    double per_batch = 1.0 / (batches_of(result) * SP_NS_PER_MS);
    double idle_ns = result->rank_ns - result->busy_ns;
    json_t *object = json_object();
    put(object, "compute", sp_result_compute_ns(result) * per_rank);
    put(object, "launch", result->launch_ns * per_rank);
    put(object, "tp_comm", result->tp_ns * per_rank);
    put(object, "cp_comm", result->cp_ns * per_rank);
    put(object, "pp_comm", result->wait_p2p_ns * per_rank);
    put(object, "dp_comm", result->reduce_ns * per_batch + result->dp_ns * per_rank);
    put(object, "optimizer", result->optimizer_ns * per_batch);
    put(object, "bubble", (idle_ns - result->wait_p2p_ns) * per_rank);
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
    put_text(provenance, "profile", result->profile);
    sp_json_put(provenance, "level", json_string(sp_level_names[result->level]));
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
    sp_json_put(object, "fits", known ? json_string(sp_fits_names[fits]) : json_null());
}

static void put_throughput(const sp_result *result, json_t *object)
{
    put(object, "tokens_per_s", sp_result_tokens_per_s(result));
    put(object, "tokens_per_gpu_s", sp_result_tokens_per_gpu_s(result));
    put(object, "tflops_per_gpu", sp_result_tflops_per_gpu(result, SP_FLOPS_MEGATRON));
    put(object, "tflops_per_gpu_causal", sp_result_tflops_per_gpu(result, SP_FLOPS_CAUSAL));
    put(object, "mfu", sp_result_mfu(result, SP_FLOPS_CAUSAL));
    put(object, "mfu_full_attention", sp_result_mfu(result, SP_FLOPS_MEGATRON));
    put(object, "hfu", utilisation(result, result->sum.hardware_flops));
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
    put_text(object, "not_validated", found->not_validated);
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
    if (object == NULL) {
        return NULL;
    }
    json_t *imbalance = json_object();
    put(imbalance, "dp_max_over_mean", sp_result_dp_max_over_mean(result));
    put(imbalance, "forward_pack_cv", result->forward_pack_cv / batches_of(result));
    put(imbalance, "backward_pack_cv", result->backward_pack_cv / batches_of(result));
    sp_json_put(object, "schema", json_string("slimpack/result/1"));
    sp_json_put(object, "version", json_string(SP_VERSION));
    put_text(object, "strategy", result->strategy);
    sp_json_put(object, "schedule", json_string(result->schedule));
    put_text(object, "cp_overlap", result->cp_overlap);
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
    sp_json_put(object, "warnings",
                sp_json_lines(result->warnings.text[0], SP_WARNING_TEXT, result->warnings.count));
    sp_json_put(object, "uncalibrated",
                sp_json_lines(result->uncalibrated[0], sizeof result->uncalibrated[0],
                              result->uncalibrated_count));
    sp_json_put(object, "batches", json_batches(result));
    if (with_ranks) {
        sp_json_put(object, "ranks", json_ranks(result));
    }
    return object;
}

json_t *sp_result_json_empty(void)
{
    sp_result nothing = {.published_bubble_ratio = -1.0};
    json_t *full = sp_result_json(&nothing, false);
    if (full == NULL) {
        return NULL;
    }
    const char *key;
    json_t *value;
    json_t *empty = json_object();
    json_object_foreach (full, key, value) {
        sp_json_put(empty, key, json_null());
    }
    json_decref(full);
    return empty;
}
