// A result as a JSON document (slimpack/result/1), and the table of its figures.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/metrics/result.h"

static double batches_of(const sp_result *result)
{
    return (double)result->batch_count;
}

// Uniform costs know no bytes and no tokens.
static double if_known(const sp_result *result, double value)
{
    return result->parameters > 0 ? value : (double)NAN;
}

static double gib(const sp_result *result, int64_t bytes)
{
    return if_known(result, sp_gib_from_bytes(bytes));
}

// ---- numbers ----

static double margin_gib(const sp_result *result)
{
    return sp_result_fits(result) != SP_FITS_NONE ? gib(result, sp_result_margin_bytes(result))
                                                  : (double)NAN;
}

static double stall_ms(const sp_result *result)
{
    return result->stall_ns / batches_of(result) / SP_NS_PER_MS;
}

static double waiting_share(const sp_result *result)
{
    const sp_waiting_steps *waiting = &result->step_error.waiting;
    return waiting->steps > 0 ? (double)waiting->waited / waiting->steps : (double)NAN;
}

static double over_length_share(const sp_result *result)
{
    return if_known(result, result->over_length_share);
}

// ---- what is no number; NULL where this result does not have it ----

static json_t *json_published_bubble_ratio(const sp_result *result)
{
    double ratio = result->published_bubble_ratio;
    return ratio >= 0.0 ? sp_json_figure(ratio) : NULL;
}

static json_t *json_layout(const sp_result *result)
{
    const sp_layout *layout = &result->layout;
    bool dispatches = sp_layout_dispatches(layout);
    return sp_json_object(SP_JSON("tp", layout->tp), SP_JSON("cp", layout->cp),
                          SP_JSON("pp", layout->pp), SP_JSON("dp", layout->dp),
                          SP_JSON("chunks", layout->chunks),
                          SP_JSON("ep", dispatches ? json_integer(sp_layout_ep(layout)) : NULL),
                          SP_JSON("etp", dispatches ? json_integer(sp_layout_etp(layout)) : NULL));
}

static json_t *json_chunks(const sp_result *result)
{
    return json_integer(result->layout.chunks);
}

static json_t *json_stage_layers(const sp_result *result)
{
    json_t *layers = result->stage_layers != NULL ? json_array() : NULL;
    for (int s = 0; layers != NULL && s < sp_layout_vstages(&result->layout); s++) {
        json_array_append_new(layers, json_integer(result->stage_layers[s]));
    }
    return layers;
}

static json_t *json_memory(const sp_result *result)
{
    if (result->parameters == 0) {
        return json_null();
    }
    json_t *b = json_object();
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        sp_json_put(b, sp_memory_category_names[c],
                    sp_json_figure(sp_gib_from_bytes(result->peak.of[c])));
    }
    return b;
}

static json_t *json_peak_memory(const sp_result *result)
{
    const sp_peak_memory *peak = &result->peak_memory;
    if (!peak->known) {
        return json_null();
    }
    json_t *holders = json_array();
    for (int i = 0; i < peak->count; i++) {
        const sp_memory_holder *holder = &peak->holders[i];
        json_array_append_new(
            holders, sp_json_object(SP_JSON("name", holder->name),
                                    SP_JSON("category", sp_memory_category_names[holder->category]),
                                    SP_JSON("gib", sp_gib_from_bytes(holder->bytes)),
                                    SP_JSON("count", holder->count)));
    }
    return sp_json_object(SP_JSON("dp", peak->dp), SP_JSON("pp", peak->pp),
                          SP_JSON("at_ms", sp_ms_from_ns(peak->at_ns)),
                          SP_JSON("action", sp_json_text_or_null(peak->action)),
                          SP_JSON("holders", holders));
}

static json_t *json_oom(const sp_result *result)
{
    return json_boolean(sp_result_is_oom(result));
}

static json_t *json_fits(const sp_result *result)
{
    sp_fits fits = sp_result_fits(result);
    return sp_json_text_or_null(fits != SP_FITS_NONE ? sp_fits_names[fits] : NULL);
}

// `launch` is part of `compute`.
static json_t *json_breakdown(const sp_result *result)
{
    static const char *const names[SP_TIME_PARTS] = {"compute", "tp_comm", "cp_comm",   "pp_comm",
                                                     "dp_comm", "ep_comm", "optimizer", "bubble"};
    double ms[SP_TIME_PARTS];
    json_t *b = json_object();
    sp_result_time_parts(result, ms);
    for (int i = 0; i < SP_TIME_PARTS; i++) {
        if (i == SP_TIME_EP && !sp_layout_dispatches(&result->layout)) {
            continue;
        }
        sp_json_put(b, names[i], sp_json_figure(ms[i]));
        if (i == SP_TIME_COMPUTE) {
            sp_json_put(b, "launch", sp_json_figure(sp_result_launch_ms(result)));
        }
    }
    return b;
}

static bool is_overloaded(const sp_result *result)
{
    return result->sum.overload.mean > 0.0;
}

static json_t *json_overload(const sp_result *result)
{
    const sp_overload *overload = &result->sum.overload;
    return !is_overloaded(result)
               ? NULL
               : sp_json_object(SP_JSON("max", overload->most), SP_JSON("held", overload->held));
}

static double mean_overload(const sp_result *result)
{
    return result->sum.overload.mean / batches_of(result);
}

static bool chooses_rows(const sp_result *result)
{
    return isfinite(sp_result_row_tokens(result));
}

static bool pads_documents(const sp_result *result)
{
    return sp_result_padding_share(result) > 0.0;
}

static bool hides_experts(const sp_result *result)
{
    return result->overlaps_experts;
}

static bool gathers_parameters(const sp_result *result)
{
    return sp_layout_parameter_ranks(&result->layout) > 1;
}

// Its members are figures.
static json_t *json_imbalance(const sp_result *result SP_UNUSED)
{
    return json_object();
}

static json_t *json_exchange(const sp_result *result)
{
    if (!result->has_exchange) {
        return NULL;
    }
    return sp_json_object(SP_JSON("imbalance_before", result->exchange_before),
                          SP_JSON("imbalance_after", result->exchange_after),
                          SP_JSON("gib", result->exchange_bytes / SP_GIB / batches_of(result)),
                          SP_JSON("messages", result->exchange_messages));
}

static json_t *json_gap_parts(const sp_result *result)
{
    if (!sp_result_knows_gap(result)) {
        return NULL;
    }
    const sp_batch_facts *sum = &result->sum;
    double per_ms = 1.0 / (batches_of(result) * SP_NS_PER_MS);
    return sp_json_object(
        SP_JSON("packs", sum->gap_packs_ns * per_ms),
        SP_JSON("uneven_ranks", sum->gap_uneven_ns * per_ms),
        SP_JSON("idle", sum->gap_idle_ns * per_ms),
        SP_JSON("within_bound", (sum->lower_bound_ns - sum->work_bound_ns) * per_ms),
        SP_JSON("memory", sum->bound_memory_ns * per_ms));
}

// Its members have rows of their own.
static json_t *json_limit(const sp_result *result)
{
    return isfinite(sp_result_limit_ms(result)) ? json_object() : json_null();
}

static json_t *json_limit_parts(const sp_result *result)
{
    double ms[SP_LIMIT_PARTS];
    if (!sp_result_limit_parts(result, ms)) {
        return NULL;
    }
    json_t *parts = json_object();
    for (int i = 0; i < SP_LIMIT_PARTS; i++) {
        sp_json_put(parts, sp_limit_names[i], sp_json_figure(ms[i]));
    }
    return parts;
}

static json_t *json_model(const sp_result *result)
{
    if (result->parameters == 0) {
        return json_null();
    }
    json_t *model = sp_json_object(SP_JSON("name", result->model_name),
                                   SP_JSON("parameters", result->parameters),
                                   SP_JSON("flops_per_token", result->flops_per_token));
    if (sp_result_is_frozen(result)) {
        sp_json_add(model, SP_JSON("trained_parameters", result->trained_parameters));
    }
    return model;
}

static json_t *json_provenance(const sp_result *result)
{
    bool by_parts = result->collectives != SP_ALGORITHM_PROFILE;
    bool varies = result->jitter.gpu_cv > 0.0;
    return sp_json_object(
        SP_JSON("profile", sp_json_text_or_null(result->profile)),
        SP_JSON("level", sp_level_names[result->level]),
        SP_JSON("compute_scale",
                result->compute_scale > 0.0 ? json_real(result->compute_scale) : NULL),
        SP_JSON("memory_scale",
                result->memory_scale > 0.0 ? json_real(result->memory_scale) : NULL),
        SP_JSON("network", result->network != SP_NETWORK_CLOSED
                               ? json_string(sp_network_detail_names[result->network])
                               : NULL),
        SP_JSON("collectives",
                by_parts ? json_string(sp_collective_algorithm_names[result->collectives]) : NULL),
        SP_JSON("jitter_gpu_cv", varies ? json_real(result->jitter.gpu_cv) : NULL),
        SP_JSON("jitter_seed", varies ? sp_json_count(result->jitter.seed) : NULL));
}

static json_t *json_jitter(const sp_result *result)
{
    const sp_slowest_gpu *slowest = &result->slowest;
    if (!(result->jitter.gpu_cv > 0.0)) {
        return NULL;
    }
    json_t *scales = json_array();
    for (int i = 0; i < SP_JITTER_SCALES; i++) {
        json_array_append_new(scales,
                              sp_json_object(SP_JSON("gpus", sp_jitter_scales[i]),
                                             SP_JSON("slowest_expected", slowest->expected_of[i])));
    }
    return sp_json_object(SP_JSON("gpus", slowest->gpus), SP_JSON("slowest_drawn", slowest->drawn),
                          SP_JSON("slowest_expected", slowest->expected),
                          SP_JSON("scales", scales));
}

static json_t *json_error(const sp_result *result)
{
    const sp_step_error *error = &result->step_error;
    return !error->known
               ? json_null()
               : sp_json_object(SP_JSON("median", error->median), SP_JSON("p90", error->p90),
                                SP_JSON("bias", error->bias), SP_JSON("steps", error->steps),
                                SP_JSON("scope", error->scope));
}

static json_t *json_error_range(const sp_result *result)
{
    const sp_error_range *range = &result->step_error.range;
    return range->steps == 0
               ? json_null()
               : sp_json_object(SP_JSON("least", range->least), SP_JSON("most", range->most),
                                SP_JSON("steps", range->steps), SP_JSON("sources", range->sources),
                                SP_JSON("launch_ms", range->launch_ms > 0.0
                                                         ? json_real(range->launch_ms)
                                                         : json_null()));
}

static json_t *json_waiting_risk(const sp_result *result)
{
    const sp_waiting_steps *waiting = &result->step_error.waiting;
    return waiting->steps == 0
               ? json_null()
               : sp_json_object(SP_JSON("share", waiting_share(result)),
                                SP_JSON("nodes", waiting->nodes), SP_JSON("steps", waiting->steps),
                                SP_JSON("sources", 1));
}

static json_t *json_lossless(const sp_result *result)
{
    return json_boolean(result->lossless);
}

static json_t *json_warnings(const sp_result *result)
{
    return sp_json_lines(result->warnings.text[0], SP_WARNING_TEXT, result->warnings.count);
}

static json_t *json_uncalibrated(const sp_result *result)
{
    return sp_json_lines(result->uncalibrated[0], sizeof result->uncalibrated[0],
                         result->uncalibrated_count);
}

static json_t *json_batches(const sp_result *result)
{
    json_t *array = json_array();
    for (size_t i = 0; i < result->batch_count; i++) {
        const sp_batch_result *batch = &result->batches[i];
        double rank_ns = (double)result->layout.dp * result->layout.pp * (double)batch->makespan_ns;
        json_array_append_new(
            array,
            sp_json_object(SP_JSON("iteration_ms", sp_ms_from_ns(batch->iteration_ns)),
                           SP_JSON("bubble_ratio", sp_bubble_of((double)batch->busy_ns, rank_ns)),
                           SP_JSON("peak_memory_gib", gib(result, batch->peak_bytes)),
                           SP_JSON("samples", batch->facts.samples),
                           SP_JSON("tokens", batch->facts.tokens),
                           SP_JSON("computed_tokens", batch->facts.computed_tokens),
                           SP_JSON("microbatches", batch->facts.microbatches)));
    }
    return array;
}

// CP ranks do the same work; each is listed.
static json_t *json_ranks(const sp_result *result)
{
    json_t *array = json_array();
    size_t count = (size_t)result->layout.dp * (size_t)result->layout.pp;
    double batches = batches_of(result);
    for (size_t i = 0; result->ranks != NULL && i < count; i++) {
        const sp_rank_metrics *rank = &result->ranks[i];
        for (int cp = 0; cp < result->layout.cp; cp++) {
            json_array_append_new(
                array,
                sp_json_object(SP_JSON("dp", rank->dp), SP_JSON("cp", cp), SP_JSON("pp", rank->pp),
                               SP_JSON("busy_ms", sp_ms_from_ns(rank->busy_ns) / batches),
                               SP_JSON("span_ms", sp_ms_from_ns(rank->span_ns) / batches),
                               SP_JSON("peak_gib", gib(result, rank->peak_bytes)),
                               SP_JSON("activation_units_peak", rank->units_peak)));
        }
    }
    return array;
}

// ---- the table ----

// Where a key's value comes from: one of these, or none (the first two keys).
typedef struct row {
    sp_figure figure;
    double (*number)(const sp_result *result);
    double (*of_flops)(const sp_result *result, sp_flops_count count);
    sp_flops_count count;
    json_t *(*json)(const sp_result *result);
    // Place in sp_result: of a text, an integer, bytes (0: not known), a sum over batches.
    size_t text_at, int_at, bytes_at, mean_at;
    bool (*is_there)(const sp_result *result); // NULL: in every document
} row;

#define AT(member) offsetof(sp_result, member)
#define FLOPS(name, what) .of_flops = sp_result_##name, .count = SP_FLOPS_##what

// clang-format off
#define KEY(name, meaning, ...) {.figure.key = name, .figure.text = meaning, __VA_ARGS__},
// Tables show a number under its label, with so many digits, in percent where `share` says so.
#define NUMBER(name, meaning, head, decimals, share, ...)                                          \
    KEY(name, meaning, .figure.label = head, .figure.digits = decimals, .figure.percent = share,   \
        __VA_ARGS__)
// A narrow table leaves out the figures with the largest rank first: time and memory decide, then
// what a GPU does, then why.
#define RANK(place) .figure.rank = place
#define COMPARED(name, place, way, kind, key, ...) kind(key, __VA_ARGS__, way##_IS_BETTER)
#define MORE_IS_BETTER .figure.better = 1
#define LESS_IS_BETTER .figure.better = -1
#define SHARE .figure.percent = true, .figure.most = 1
// clang-format on

// In the order of the document.
static const row rows[] = {
#include "sim/metrics/figures.inc"
};

enum { ROWS = sizeof rows / sizeof rows[0] };

const sp_figure *sp_figure_at(int index)
{
    return index >= 0 && index < ROWS ? &rows[index].figure : NULL;
}

static const row *find_row(const char *key)
{
    int i = 0;
    while (i < ROWS && strcmp(rows[i].figure.key, key) != 0) {
        i++;
    }
    return i < ROWS ? &rows[i] : NULL;
}

const sp_figure *sp_figure_find(const char *key)
{
    const row *r = find_row(key);
    return r != NULL ? &r->figure : NULL;
}

static int64_t int_at(const sp_result *result, size_t at)
{
    int64_t number;
    memcpy(&number, (const char *)result + at, sizeof number);
    return number;
}

static double number_of(const row *r, const sp_result *result)
{
    double sum;
    if (r->number != NULL) {
        return r->number(result);
    }
    if (r->of_flops != NULL) {
        return r->of_flops(result, r->count);
    }
    if (r->bytes_at > 0) {
        int64_t bytes = int_at(result, r->bytes_at);
        return bytes > 0 ? gib(result, bytes) : (double)NAN;
    }
    memcpy(&sum, (const char *)result + r->mean_at, sizeof sum);
    return sum / batches_of(result);
}

double sp_figure_value(const sp_result *result, const char *key)
{
    const row *r = find_row(key);
    SP_ASSERT(r != NULL && r->json == NULL && r->text_at + r->int_at == 0);
    return number_of(r, result);
}

static json_t *value_of(const row *r, const sp_result *result)
{
    return r->json != NULL  ? r->json(result)
           : r->text_at > 0 ? sp_json_text_or_null((const char *)result + r->text_at)
           : r->int_at > 0  ? json_integer(int_at(result, r->int_at))
                            : sp_json_figure(number_of(r, result));
}

// A member of what has none is nothing.
static void put_member(json_t *document, const char *key, json_t *value)
{
    char name[SP_JSON_PATH];
    const char *dot = strchr(key, '.');
    snprintf(name, sizeof name, "%.*s", (int)(dot - key), key);
    json_t *object = json_object_get(document, name);
    if (json_is_object(object)) {
        sp_json_put(object, dot + 1, value);
    } else {
        json_decref(value);
    }
}

json_t *sp_result_json(const sp_result *result, bool with_ranks)
{
    json_t *b =
        sp_json_object(SP_JSON("schema", "slimpack/result/1"), SP_JSON("version", SP_VERSION));
    for (int i = 2; i < ROWS; i++) {
        const char *key = rows[i].figure.key;
        const char *dot = strchr(key, '.');
        if (rows[i].is_there != NULL && !rows[i].is_there(result)) {
            continue;
        }
        if (dot != NULL) {
            put_member(b, key, value_of(&rows[i], result));
        } else if (with_ranks || strcmp(key, "ranks") != 0) {
            sp_json_put(b, key, value_of(&rows[i], result));
        }
    }
    return b;
}

void sp_result_put_notes(const sp_result *result, json_t *object)
{
    sp_json_add(object, SP_JSON("warnings", json_warnings(result)),
                SP_JSON("uncalibrated", json_uncalibrated(result)));
}

json_t *sp_result_json_empty(void)
{
    sp_result nothing = {.published_bubble_ratio = -1.0};
    json_t *empty = sp_result_json(&nothing, false);
    const char *key;
    json_t *value;
    json_object_foreach (empty, key, value) {
        sp_json_put(empty, key, json_null());
    }
    return empty;
}
