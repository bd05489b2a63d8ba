#include "sim/metrics/result.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"

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

// A learned table is read row by row: beyond its end a program stops.
void sp_warn_of_positions(const sp_model *model, int64_t tokens, sp_warnings *warnings)
{
    if (model->positional == SP_LEARNED && model->max_positions > 0 &&
        tokens > model->max_positions) {
        sp_warnings_add(warnings,
                        "model.max_positions: the table of %lld positions ends before samples of "
                        "%lld tokens do, which no program runs",
                        (long long)model->max_positions, (long long)tokens);
    }
}

void sp_warnings_add_all(sp_warnings *to, const sp_warnings *from, const char *but)
{
    for (int w = 0; w < from->count; w++) {
        if (but == NULL || strcmp(from->text[w], but) != 0) {
            sp_warnings_add(to, "%s", from->text[w]);
        }
    }
}

// Behind the amount that begins here; `text` itself where none does. A number in a word (bf16,
// h100-8) or before a colon ("zero 2: ...") is part of a name.
static const char *skip_amount(const char *text, bool in_word)
{
    const char *end = text + strspn(text, "0123456789.");
    if (end > text && *end == 'e' && (end[1] == '+' || end[1] == '-')) {
        end += 2 + strspn(end + 2, "0123456789");
    }
    return in_word || isalpha((unsigned char)*end) || *end == ':' ? text : end;
}

static bool is_letter_of_word(const char *at, bool in_word)
{
    return isalnum((unsigned char)*at) || (in_word && strchr("-_./", *at) != NULL);
}

// Do the texts differ in amounts alone?
static bool are_alike(const char *a, const char *b)
{
    for (bool in_word = false;; a++, b++) {
        a = skip_amount(a, in_word);
        b = skip_amount(b, in_word);
        if (*a != *b || *a == '\0') {
            return *a == *b;
        }
        in_word = is_letter_of_word(a, in_word);
    }
}

static bool begins_range(const char *behind)
{
    return strncmp(behind, " to ", 4) == 0 && isdigit((unsigned char)behind[4]);
}

enum { AMOUNTS = 64 }; // of a text that are told apart

// Takes in the amounts of another text of the kind.
static void widen(sp_warning_kind *kind, const char *other)
{
    char wide[SP_WARNING_TEXT] = "";
    const char *a = kind->text;
    const char *b = other;
    int amount = 0;
    for (bool in_word = false;; a++, b++) {
        const char *behind[2] = {skip_amount(a, in_word), skip_amount(b, in_word)};
        const double of[2] = {strtod(a, NULL), strtod(b, NULL)};
        if (behind[0] > a && behind[1] > b) {
            const bool other_is = begins_range(behind[0]) ? of[1] < of[0] : of[1] > of[0];
            const char *from = other_is ? b : a;
            sp_append(wide, sizeof wide, "%.*s", (int)(behind[other_is] - from), from);
            kind->varies |= of[0] != of[1] && amount < AMOUNTS ? UINT64_C(1) << amount : 0;
            amount++;
        }
        a = behind[0];
        b = behind[1];
        if (*a == '\0' || *b == '\0') {
            break;
        }
        sp_append(wide, sizeof wide, "%c", *a);
        in_word = is_letter_of_word(a, in_word);
    }
    snprintf(kind->text, sizeof kind->text, "%s", wide);
}

// The text, with "up to" before amounts that differ and are of no range.
static void append_kind(const sp_warning_kind *kind, char *text, size_t bytes)
{
    int amount = 0;
    bool in_word = false;
    for (const char *at = kind->text; *at != '\0'; at++) {
        const char *behind = skip_amount(at, in_word);
        if (behind > at) {
            const bool ends_range = at > kind->text + 4 && strncmp(at - 4, " to ", 4) == 0 &&
                                    isdigit((unsigned char)at[-5]);
            const bool varies = amount < AMOUNTS && (kind->varies >> amount & 1) != 0;
            sp_append(text, bytes, "%s%.*s",
                      varies && !ends_range && !begins_range(behind) ? "up to " : "",
                      (int)(behind - at), at);
            amount++;
            at = behind;
        }
        if (*at == '\0') {
            break;
        }
        sp_append(text, bytes, "%c", *at);
        in_word = is_letter_of_word(at, in_word);
    }
}

static sp_warning_kind *kind_of(sp_warning_kinds *kinds, const char *text)
{
    for (size_t k = 0; k < kinds->count; k++) {
        if (are_alike(kinds->kind[k].text, text)) {
            widen(&kinds->kind[k], text);
            return &kinds->kind[k];
        }
    }
    sp_warning_kind *kind = SP_ADDED(kinds->kind, kinds->capacity, kinds->count);
    *kind = (sp_warning_kind){.results = 0};
    snprintf(kind->text, sizeof kind->text, "%s", text);
    return kind;
}

void sp_warning_kinds_add(sp_warning_kinds *kinds, const sp_warnings *warnings)
{
    for (int w = 0; w < warnings->count; w++) {
        int before = 0;
        while (before < w && !are_alike(warnings->text[before], warnings->text[w])) {
            before++;
        }
        if (before == w) { // else the kind has been counted of this result
            kind_of(kinds, warnings->text[w])->results++;
        }
    }
}

json_t *sp_warning_kind_json(const sp_warning_kind *kind, int64_t results, const char *what)
{
    char text[2 * SP_WARNING_TEXT] = "";
    if (what != NULL) {
        snprintf(text, sizeof text, "%lld of %lld %s: ", (long long)kind->results,
                 (long long)results, what);
    }
    append_kind(kind, text, sizeof text);
    json_t *json = json_string(text);
    for (char *c = text; json == NULL && *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    }
    return json != NULL ? json : json_string(text);
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

void sp_result_note_layers(sp_result *result, const sp_layout *layout)
{
    size_t bytes = (size_t)sp_layout_vstages(layout) * sizeof *result->stage_layers;
    if (layout->stage_layers != NULL) {
        result->stage_layers = memcpy(sp_malloc(bytes), layout->stage_layers, bytes);
    }
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
    sum->padding_tokens += facts->padding_tokens;
    sum->dropped_tokens += facts->dropped_tokens;
    sum->delayed_tokens = facts->delayed_tokens;
    sum->cut_tokens += facts->cut_tokens;
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
    sum->limit_ns += facts->limit_ns;
    sum->padded_limit_ns += facts->padded_limit_ns;
    sum->host_ns += facts->host_ns;
    sum->solver_ms += facts->solver_ms;
    sum->simulate_ms += facts->simulate_ms;
    sum->tasks += facts->tasks;
    sum->edges += facts->edges;
    sum->overload.mean += facts->overload.mean;
    sum->overload.most = fmax(sum->overload.most, facts->overload.most);
    sum->overload.held = fmax(sum->overload.held, facts->overload.held);
}

void sp_result_add(sp_result *result, const sp_step_metrics *metrics, const sp_batch_facts *facts)
{
    if (result->ranks == NULL) {
        result->ranks = sp_calloc((size_t)metrics->rank_count, sizeof *result->ranks);
    }
    *SP_ADDED(result->batches, result->batch_capacity, result->batch_count) =
        (sp_batch_result){.facts = *facts,
                          .iteration_ns = metrics->iteration_ns,
                          .makespan_ns = metrics->makespan_ns,
                          .busy_ns = metrics->busy_ns,
                          .peak_bytes = metrics->peak_bytes};
    add_ranks(result, metrics);
    add_facts(&result->sum, facts);
    result->rank_ns += (double)metrics->rank_count * (double)metrics->makespan_ns;
#define ADD(time) result->time += (double)metrics->time;
    SP_RANK_TIMES(ADD)
#undef ADD
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
    if (metrics->uncopied_peak_bytes > result->uncopied_peak_bytes) {
        result->uncopied_peak_bytes = metrics->uncopied_peak_bytes;
    }
}

static double batches_of(const sp_result *result)
{
    return (double)result->batch_count;
}

double sp_result_row_tokens(const sp_result *result)
{
    double sum = 0.0;
    double chosen = 0.0;
    for (size_t i = 0; i < result->batch_count; i++) {
        sum += (double)result->batches[i].facts.row_tokens;
        chosen += result->batches[i].facts.row_tokens > 0;
    }
    return chosen > 0.0 ? sum / chosen : (double)NAN;
}

double sp_result_padding_share(const sp_result *result)
{
    double padding = (double)result->sum.padding_tokens;
    return padding > 0.0 ? padding / (double)result->sum.tokens : 0.0;
}

double sp_result_iteration_ms(const sp_result *result)
{
    return result->iteration_ns / batches_of(result) / SP_NS_PER_MS;
}

// The factor makes a mean in ms of times summed over ranks and batches, in ns.
static double ms_of_mean_rank(const sp_result *result)
{
    double ranks = (double)result->layout.dp * result->layout.pp;
    return 1.0 / (ranks * batches_of(result) * SP_NS_PER_MS);
}

void sp_result_time_parts(const sp_result *result, double ms[SP_TIME_PARTS])
{
    double per_rank = ms_of_mean_rank(result);
    double per_batch = 1.0 / (batches_of(result) * SP_NS_PER_MS);
    double idle_ns = result->rank_ns - result->busy_ns;
    double compute_ns =
        result->busy_ns - result->tp_ns - result->cp_ns - result->dp_ns - result->ep_ns;
    ms[SP_TIME_COMPUTE] = compute_ns * per_rank;
    ms[SP_TIME_TP] = result->tp_ns * per_rank;
    ms[SP_TIME_CP] = result->cp_ns * per_rank;
    ms[SP_TIME_PP] = result->wait_p2p_ns * per_rank;
    ms[SP_TIME_DP] = result->reduce_ns * per_batch + result->dp_ns * per_rank;
    ms[SP_TIME_EP] = result->ep_ns * per_rank;
    ms[SP_TIME_OPTIMIZER] = result->optimizer_ns * per_batch;
    ms[SP_TIME_BUBBLE] = (idle_ns - result->wait_p2p_ns) * per_rank;
}

bool sp_result_waits_for_experts(const sp_result *result)
{
    return sp_layout_expert_ranks(&result->layout) > 1 || result->sum.overload.mean > 0.0;
}

double sp_result_expert_wait_ms(const sp_result *result)
{
    return sp_result_waits_for_experts(result) ? result->ep_wait_ns * ms_of_mean_rank(result)
                                               : (double)NAN;
}

double sp_result_expert_hidden_ms(const sp_result *result)
{
    return result->ep_hidden_ns * ms_of_mean_rank(result);
}

double sp_result_zero_wait_ms(const sp_result *result)
{
    return sp_layout_parameter_ranks(&result->layout) > 1
               ? result->dp_wait_ns * ms_of_mean_rank(result)
               : (double)NAN;
}

double sp_result_launch_ms(const sp_result *result)
{
    return result->launch_ns * ms_of_mean_rank(result);
}

double sp_result_compute_share(const sp_result *result)
{
    double ms[SP_TIME_PARTS];
    sp_result_time_parts(result, ms);
    return (ms[SP_TIME_COMPUTE] - sp_result_launch_ms(result)) / sp_result_iteration_ms(result);
}

const char *const sp_limit_names[] = {"kernels",   "packs",  "recompute", "tp",        "cp",
                                      "ep",        "dp",     "pp",        "optimizer", "pipeline",
                                      "imbalance", "memory", "host",      NULL};

double sp_result_limit_ms(const sp_result *result)
{
    double limit_ns = result->sum.limit_ns;
    return limit_ns > 0.0 ? limit_ns / batches_of(result) / SP_NS_PER_MS : (double)NAN;
}

double sp_result_limit_share(const sp_result *result)
{
    return sp_result_limit_ms(result) / sp_result_iteration_ms(result);
}

bool sp_result_limit_parts(const sp_result *result, double ms[SP_LIMIT_PARTS])
{
    double time_ms[SP_TIME_PARTS];
    double per_rank = ms_of_mean_rank(result);
    double per_batch = 1.0 / (batches_of(result) * SP_NS_PER_MS);
    double expert_wait_ms = result->ep_wait_ns * per_rank;
    double launch_ms = sp_result_launch_ms(result);
    bool alone = result->layout.dp == 1 && result->layout.pp == 1;
    if (!(result->sum.limit_ns > 0.0)) {
        return false;
    }
    sp_result_time_parts(result, time_ms);
    for (int i = 0; i < SP_LIMIT_PARTS; i++) {
        ms[i] = 0.0;
    }
    ms[SP_LIMIT_PACKS] = (result->sum.padded_limit_ns - result->sum.limit_ns) * per_batch;
    ms[SP_LIMIT_RECOMPUTE] = result->again_ns * per_rank;
    ms[SP_LIMIT_TP] = time_ms[SP_TIME_TP];
    ms[SP_LIMIT_CP] = time_ms[SP_TIME_CP];
    ms[SP_LIMIT_EP] = time_ms[SP_TIME_EP] - expert_wait_ms;
    ms[SP_LIMIT_DP] = time_ms[SP_TIME_DP];
    ms[SP_LIMIT_PP] = time_ms[SP_TIME_PP];
    ms[SP_LIMIT_HOST] = launch_ms + result->sum.host_ns * per_batch;
    ms[SP_LIMIT_OPTIMIZER] = time_ms[SP_TIME_OPTIMIZER] - result->sum.host_ns * per_batch;
    ms[SP_LIMIT_MEMORY] = result->stall_ns * per_batch;
    ms[SP_LIMIT_KERNELS] = time_ms[SP_TIME_COMPUTE] - launch_ms - ms[SP_LIMIT_RECOMPUTE] -
                           result->sum.padded_limit_ns * per_batch;
    if (result->layout.pp > 1) {
        double idle_ms = (result->makespan_ns - result->dp_busiest_ns) * per_batch;
        ms[SP_LIMIT_PIPELINE] =
            fmin(fmax(0.0, idle_ms - time_ms[SP_TIME_PP]), time_ms[SP_TIME_BUBBLE]);
    }
    ms[alone ? SP_LIMIT_MEMORY : SP_LIMIT_IMBALANCE] +=
        time_ms[SP_TIME_BUBBLE] - ms[SP_LIMIT_PIPELINE] + expert_wait_ms;
    // Ranks without a micro-batch take attention over, which stands in no timeline
    // (sp_pool_apply): some of the idle time is work.
    double idle_work_ms = fmax(0.0, -ms[SP_LIMIT_KERNELS]);
    ms[SP_LIMIT_KERNELS] += idle_work_ms;
    ms[SP_LIMIT_PIPELINE] -= idle_work_ms;
    return true;
}

double sp_result_layer_ms(const sp_result *result, int layers)
{
    double ms[SP_TIME_PARTS];
    sp_result_time_parts(result, ms);
    double working_ms = sp_result_iteration_ms(result) - ms[SP_TIME_BUBBLE];
    double ranks = (double)result->layout.dp * result->layout.pp;
    return working_ms * ranks / (sp_result_microbatches(result) * layers);
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

double sp_result_hfu(const sp_result *result)
{
    return utilisation(result, result->sum.hardware_flops);
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
    const sp_batch_facts *sum = &result->sum;
    double left_out = (double)(sum->dropped_tokens + sum->delayed_tokens);
    double all = (double)sum->tokens + left_out;
    return all > 0.0 ? left_out / all : (double)NAN;
}

double sp_result_cut_share(const sp_result *result)
{
    double trained = (double)result->sum.tokens;
    return trained > 0.0 ? (double)result->sum.cut_tokens / trained : (double)NAN;
}

double sp_result_dp_max_over_mean(const sp_result *result)
{
    return result->dp_mean_ns > 0.0 ? result->dp_busiest_ns / result->dp_mean_ns : 1.0;
}

double sp_result_microbatches(const sp_result *result)
{
    return (double)result->sum.microbatches / batches_of(result);
}

// Gaps between blocks alone can be more than the device has, unless a larger limit was stated.
static bool has_too_large_gaps(const sp_result *result)
{
    return result->least_device_bytes > sp_larger(result->device_bytes, result->memory_limit_bytes);
}

bool sp_result_is_oom(const sp_result *result)
{
    return result->memory_limit_bytes > 0 &&
           (result->peak_bytes > result->memory_limit_bytes || has_too_large_gaps(result));
}

const char *const sp_fits_names[] = {"yes", "tight", "no", NULL};

static int64_t counted_peak(const sp_result *result)
{
    return result->reserved_peak_bytes > 0 ? result->reserved_peak_bytes : result->peak_bytes;
}

double sp_result_memory_share(const sp_result *result)
{
    bool known = result->parameters != 0 && result->memory_limit_bytes > 0;
    return known ? (double)counted_peak(result) / (double)result->memory_limit_bytes : (double)NAN;
}

double sp_result_fit_probability(const sp_result *result)
{
    // Written by experiments/evidence.sh, from the smallest share; beyond the last nothing ran.
    static const struct {
        double share, probability[SP_MEMORY_LOGS];
    } logged[] = {
#include "sim/metrics/fit_shares.inc"
    };
    enum { COUNT = sizeof logged / sizeof logged[0] };
    double share = sp_result_memory_share(result);
    // What PyTorch would reserve beyond the limit are blocks that it then frees: that fills the
    // limit. Logged steps that needed more, none of which ran, had no room for their tensors.
    share = share > 1.0 && !sp_result_is_oom(result) ? 1.0 : share;
    if (!(share > logged[0].share)) {
        return isnan(share) ? share : logged[0].probability[result->memory_log];
    }
    for (int i = 1; i < COUNT; i++) {
        if (share <= logged[i].share) {
            double part = (share - logged[i - 1].share) / (logged[i].share - logged[i - 1].share);
            double before = logged[i - 1].probability[result->memory_log];
            return before + part * (logged[i].probability[result->memory_log] - before);
        }
    }
    return 0.0;
}

double sp_fit_chance(double fit_probability)
{
    const double least = 0.01; // what never ran before may run
    return isfinite(fit_probability) ? fmin(1.0, fmax(least, fit_probability) / SP_FITS_SURELY)
                                     : 1.0;
}

int64_t sp_result_margin_bytes(const sp_result *result)
{
    return result->memory_limit_bytes - counted_peak(result);
}

// Does a peak fit with less than SP_MEMORY_TIGHT to spare, so that blocks decide whether well?
static bool memory_is_short(int64_t peak_bytes, int64_t limit_bytes)
{
    return peak_bytes <= limit_bytes &&
           (double)peak_bytes > (1.0 - SP_MEMORY_TIGHT) * (double)limit_bytes;
}

sp_fits sp_result_fits(const sp_result *result)
{
    // Uniform costs know no bytes.
    if (result->parameters == 0 || result->memory_limit_bytes <= 0) {
        return SP_FITS_NONE;
    }
    if (sp_result_is_oom(result)) {
        return SP_FITS_NO;
    }
    double limit = (double)result->memory_limit_bytes;
    bool tight = result->reserved_peak_bytes > 0
                     ? (double)result->reserved_peak_bytes > (1.0 - SP_RESERVED_TIGHT) * limit
                     : memory_is_short(result->peak_bytes, result->memory_limit_bytes);
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
    if (sp_result_is_oom(result) && result->peak_bytes <= result->memory_limit_bytes) {
        char text[SP_WARNING_TEXT];
        snprintf(text, sizeof text,
                 "PyTorch's allocator needs %.2f GiB, with gaps between blocks, where the GPU has "
                 "%.2f; without gaps (expandable_segments:True) the peak of %.2f is within %.2f",
                 sp_gib_from_bytes(result->least_device_bytes),
                 sp_gib_from_bytes(result->device_bytes), sp_gib_from_bytes(result->peak_bytes),
                 sp_gib_from_bytes(result->memory_limit_bytes));
        sp_result_note_oom(result, text);
    }
    // Logged steps below `tight` that filled this share of their limit, and tight ones; of these,
    // those that took 1.2 times the predicted time and more. Written by experiments/evidence.sh.
    static const struct {
        double share;
        int steps, longer, sources;
        double least, most; // times the predicted time
    } full[] = {
#include "sim/metrics/full_steps.inc"
    };
    sp_fits fits = sp_result_fits(result);
    bool tight = fits == SP_FITS_TIGHT;
    if (tight || (fits == SP_FITS_YES && sp_result_memory_share(result) >= full[0].share)) {
        sp_warnings_add(
            &result->warnings,
            "memory is %s: %.2f of %.2f GiB%s%s%s; of %d logged steps as full %d, of %d source%s, "
            "took %.1f to %.1f times the predicted time%s",
            tight ? "tight" : "nearly full", sp_gib_from_bytes(counted_peak(result)),
            sp_gib_from_bytes(result->memory_limit_bytes),
            result->reserved_peak_bytes > 0 ? " reserved" : "",
            tight ? "; at the limit PyTorch frees and allocates blocks all the time" : "",
            result->reserved_peak_bytes > result->memory_limit_bytes
                ? ", and gaps between blocks are lost unless expandable_segments:True is set"
                : "",
            full[tight].steps, full[tight].longer, full[tight].sources,
            sp_plural(full[tight].sources), full[tight].least, full[tight].most,
            result->stall_ns > 0.0 ? " (counted here)" : "");
    }
}
