// The work of a scenario: the batches of a workload, the strategy that packs them, and text that is
// generated.
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/inference/decode.h"
#include "sim/scenario/scenario_private.h"

// ---- the workload ----

static void read_source(sp_i_scenario_reader *reader, sp_object *workload);
static void read_batch_size(sp_i_scenario_reader *reader, sp_object *workload);

void sp_i_scenario_read_workload(sp_i_scenario_reader *reader)
{
    sp_object workload;
    sp_i_begin_section(reader, sp_i_workload_settings, reader->scenario, &workload);
    read_source(reader, &workload);
    read_batch_size(reader, &workload);
    sp_object_end(&workload);
}

static const char *distribution_name(int index)
{
    return sp_distribution_at(index)->name;
}

// A whole real (4096.0) is as good as an integer, as everywhere in a scenario.
static bool length_of(const json_t *value, int64_t *tokens)
{
    double number = json_is_number(value) ? json_number_value(value) : 0.0;
    if (!(number >= 1.0 && number <= SP_MAX_LENGTH_TOKENS) || number != floor(number)) {
        return false;
    }
    *tokens = (int64_t)number;
    return true;
}

static void read_array(sp_i_scenario_reader *reader, sp_object *workload, const json_t *array)
{
    sp_lengths *lengths = &reader->scenario->lengths;
    size_t count = json_array_size(array);
    if (count == 0 || count > SP_I_MAX_SAMPLES) {
        sp_object_error(workload, "lengths", "expected 1 to %d lengths, got %zu", SP_I_MAX_SAMPLES,
                        count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        int64_t tokens = 0;
        const json_t *value = json_array_get(array, i);
        if (!length_of(value, &tokens)) {
            char key[64];
            snprintf(key, sizeof key, "lengths[%zu]", i);
            sp_object_expected(workload, key, value, "an integer from 1 to %d",
                               SP_MAX_LENGTH_TOKENS);
        } else {
            sp_lengths_append(lengths, tokens);
        }
    }
    reader->scenario->workload.lengths = lengths;
}

static void read_named(sp_i_scenario_reader *reader, sp_object *workload, const char *name)
{
    sp_workload_spec *spec = &reader->scenario->workload;
    reader->lengths = name;
    spec->distribution = sp_distribution_find(name);
    if (spec->distribution != NULL) {
        return;
    }
    if (sp_lengths_are_there(name)) {
        spec->lengths = &reader->scenario->lengths;
        return;
    }
    sp_i_names names = {"length distribution", sp_distribution_count(), distribution_name};
    sp_i_names_error(&names, workload, "lengths", true);
}

static void read_uniform(sp_i_scenario_reader *reader, sp_object *workload)
{
    sp_workload_spec *spec = &reader->scenario->workload;
    sp_setting_read_key(workload, sp_i_workload_settings, "uniform", reader->scenario);
    if (spec->context == 0) {
        spec->context = spec->uniform_tokens;
    }
}

static void read_source(sp_i_scenario_reader *reader, sp_object *workload)
{
    const sp_workload_spec *spec = &reader->scenario->workload;
    const json_t *lengths = sp_object_get(workload, "lengths");
    const char *column = sp_object_string(workload, "column", NULL);
    if (lengths != NULL && sp_object_has(workload, "uniform")) {
        sp_object_error(workload, "uniform", "give lengths or uniform, not both");
        return;
    }
    if (lengths == NULL) {
        read_uniform(reader, workload);
    } else if (json_is_array(lengths)) {
        read_array(reader, workload, lengths);
    } else if (json_is_string(lengths)) {
        read_named(reader, workload, json_string_value(lengths));
    } else {
        sp_object_expected(workload, "lengths", lengths, "a name, a path or an array");
    }
    bool from_file = reader->lengths != NULL && spec->distribution == NULL;
    if (column != NULL && !from_file) {
        sp_object_error(workload, "column", "only a file of lengths has columns");
    }
    reader->column = from_file ? column : NULL;
}

static int64_t default_samples(sp_i_scenario_reader *reader)
{
    const sp_scenario *scenario = reader->scenario;
    if (scenario->workload.uniform_tokens > 0) {
        // A training step fills its pipeline; of prompts there is one where no more are asked for.
        bool is_prefill = sp_object_has(&reader->root, "prefill");
        int64_t microbatches = scenario->microbatches > 0 ? scenario->microbatches
                               : is_prefill               ? 1
                                                          : 2 * scenario->layout.pp;
        // At most 1e6 * 1e6 here; the product with the third factor is taken only below the limit.
        int64_t rows = microbatches * scenario->layout.dp;
        int64_t each = scenario->strategy.microbatch_samples;
        return rows > SP_I_MAX_SAMPLES ? INT64_MAX : rows * each;
    }
    if (reader->lengths == NULL) {
        // An array that was refused is not counted; nothing left is told when the batches
        // are formed, with the lengths and the context.
        int64_t samples =
            scenario->workload.lengths != NULL ? sp_workload_samples(&scenario->workload) : 0;
        return samples > 0 ? samples : 1;
    }
    return SP_I_DEFAULT_SAMPLES;
}

static void read_batch_size(sp_i_scenario_reader *reader, sp_object *workload)
{
    sp_workload_spec *spec = &reader->scenario->workload;
    bool by_samples = sp_object_has(workload, "samples_per_batch");
    bool by_tokens = sp_object_has(workload, "tokens_per_batch");
    sp_setting_read_key(workload, sp_i_workload_settings, "samples_per_batch", reader->scenario);
    sp_setting_read_key(workload, sp_i_workload_settings, "tokens_per_batch", reader->scenario);
    if (by_samples && by_tokens) {
        sp_object_error(
            workload, "tokens_per_batch",
            "give samples_per_batch or tokens_per_batch, not both (null takes one back)");
        return;
    }
    if (!by_tokens && !by_samples) {
        spec->samples_per_batch = default_samples(reader);
    }
    if (spec->samples_per_batch > SP_I_MAX_SAMPLES) {
        sp_object_error(workload, "samples_per_batch",
                        spec->lengths != NULL
                            ? "the lengths make more than %d samples of up to the context"
                            : "dp x microbatches x microbatch_samples makes more than %d samples",
                        SP_I_MAX_SAMPLES);
    } else if (spec->samples_per_batch * spec->batches > SP_I_MAX_SAMPLES_IN_ALL) {
        sp_object_error(workload, "batches",
                        "%d batches of %lld samples are more than the %d samples that are held",
                        spec->batches, (long long)spec->samples_per_batch, SP_I_MAX_SAMPLES_IN_ALL);
    }
}

json_t *sp_i_write_lengths(const void *owner, const void *context)
{
    const sp_scenario *scenario = owner;
    const sp_i_scenario_reader *reader = context;
    if (scenario->workload.uniform_tokens > 0) {
        return NULL;
    }
    if (reader->lengths != NULL) {
        return json_string(reader->lengths);
    }
    json_t *array = json_array();
    for (size_t i = 0; i < scenario->lengths.count; i++) {
        json_array_append_new(array, json_integer(scenario->lengths.tokens[i]));
    }
    return array;
}

json_t *sp_i_write_column(const void *owner, const void *context)
{
    const sp_i_scenario_reader *reader = context;
    (void)owner;
    return reader->column != NULL ? json_string(reader->column) : NULL;
}

sp_status sp_i_scenario_load_lengths(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    if (reader->lengths == NULL || scenario->workload.distribution != NULL) {
        return SP_OK;
    }
    sp_status status = sp_i_scenario_cache_lengths(reader->cache, reader->lengths, reader->column,
                                                   &scenario->lengths, reader->err);
    if (status == SP_OK && scenario->lengths.count == 0) {
        status = sp_error_in(reader->err, SP_ERR_CONTENT, scenario->source, "workload.lengths",
                             "no lengths in %s", reader->lengths);
    }
    return status;
}

// Tokens of the longest sample there may be; INT64_MAX: that is not known.
static int64_t longest_of(const sp_workload_spec *spec)
{
    if (spec->context > 0 || spec->lengths == NULL) {
        return spec->context > 0 ? spec->context : INT64_MAX;
    }
    int64_t longest = 0;
    for (size_t i = 0; i < spec->lengths->count; i++) {
        longest = sp_larger(longest, spec->lengths->tokens[i]);
    }
    return longest;
}

static sp_status refuse_window(const sp_scenario *scenario, const char *key, const char *most,
                               int64_t longest, sp_error *err)
{
    char got[32] = "none";
    if (longest < INT64_MAX) {
        snprintf(got, sizeof got, "%lld", (long long)longest);
    }
    return sp_error_in(err, SP_ERR_CONTENT, scenario->source, key,
                       "expected %s most %lld, the window of the model's attention "
                       "(sliding_window; null: none), since windows shorter than a sample are not "
                       "modelled, got %s",
                       most, (long long)scenario->model.window_tokens, got);
}

// Text that is generated needs no workload.
sp_status sp_i_scenario_check_window(const sp_i_scenario_reader *reader)
{
    const sp_scenario *scenario = reader->scenario;
    const sp_decode_spec *decode = scenario->decode;
    int64_t window = scenario->model.window_tokens;
    int64_t text = decode != NULL ? decode->prompt_tokens + decode->output_tokens : 0;
    bool trains = decode == NULL || json_object_get(reader->root.json, "workload") != NULL;
    int64_t longest = window > 0 && trains ? longest_of(&scenario->workload) : 0;
    if (window > 0 && text > window) {
        return refuse_window(scenario, "decode.prompt_tokens", "prompt and output tokens of at",
                             text, reader->err);
    }
    return longest > window
               ? refuse_window(scenario, "workload.context", "at", longest, reader->err)
               : SP_OK;
}

// ---- the strategy ----

// The names of strategies are lower-case words with hyphens.
void sp_i_read_strategy_kind(sp_object *section, const sp_setting *row, void *owner, void *context)
{
    sp_strategy_spec *strategy = &((sp_scenario *)owner)->strategy;
    (void)context;
    strategy->given = sp_object_has(section, "kind");
    const char *kind = sp_object_string(section, "kind", strategy->kind);
    if (kind[0] == '\0' || strlen(kind) >= SP_STRATEGY_NAME) {
        sp_object_expected(section, "kind", sp_object_get(section, "kind"), "%s", row->type);
        return;
    }
    char lower[SP_STRATEGY_NAME] = "";
    for (size_t i = 0; kind[i] != '\0'; i++) {
        lower[i] = kind[i] == '_' ? '-' : (char)tolower((unsigned char)kind[i]);
    }
    memcpy(strategy->kind, lower, sizeof lower);
}

// ---- generated text ----

enum { MOST_YIELD = 20000000 }; // tokens of all sequences

void sp_i_read_keep(sp_object *object, const sp_setting *row, void *owner, void *context)
{
    // gamma of HeteroSpec (arXiv 2505.13254, section 4.3).
    static const double usual[SP_LOW_BINS] = {0.3, 0.6, 1.0};
    double *keep = ((sp_decode_spec *)owner)->how.keep;
    const json_t *array = sp_object_get(object, "keep");
    bool good = json_is_array(array) && json_array_size(array) == SP_LOW_BINS;
    (void)context;
    for (size_t i = 0; i < SP_LOW_BINS; i++) {
        const json_t *value = json_array_get(array, i);
        double number = json_number_value(value);
        good = good && json_is_number(value) && number >= 0.0 && number <= 1.0;
        keep[i] = array == NULL ? usual[i] : number;
    }
    if (array != NULL && !good) {
        sp_object_expected(object, "keep", array, "%s", row->type);
    }
}

json_t *sp_i_write_keep(const void *owner, const void *context)
{
    const double *keep = ((const sp_decode_spec *)owner)->how.keep;
    (void)context;
    return json_pack("[f, f, f]", keep[0], keep[1], keep[2]);
}

static bool is_text_stated(const sp_object *decode, const char *key)
{
    const json_t *value = json_object_get(json_object_get(decode->json, "text"), key);
    return value != NULL && !json_is_null(value);
}

static void refuse_both(sp_object *decode, const char *ease, const char *yield)
{
    if (is_text_stated(decode, ease) && is_text_stated(decode, yield)) {
        char key[64];
        snprintf(key, sizeof key, "text.%s", ease);
        sp_object_error(decode, key, "follows from %s, state one of them", yield);
    }
}

static void check_yield(sp_object *decode, const char *key, double yield, int depth)
{
    if (yield > depth + 1.0) {
        sp_object_error(decode, key, "is %g, more than the %g of a tree of decode.depth %d", yield,
                        depth + 1.0, depth);
    }
}

void sp_i_read_draft(sp_object *object, const sp_setting *row, void *owner, void *context)
{
    sp_decode_spec *spec = owner;
    const sp_model *target = &((const sp_i_scenario_reader *)context)->scenario->model;
    const json_t *value = sp_object_get(object, "draft");
    const char *name = value != NULL ? json_string_value(value) : "eagle";
    const sp_i_names models = {"model", sp_model_builtin_count(), sp_model_builtin_name};
    if (name == NULL) {
        sp_object_expected(object, "draft", value, "%s", row->type);
    } else if (strcmp(name, "eagle") != 0) {
        spec->draft_kind = SP_DRAFT_MODEL;
        if (sp_model_builtin_meant(name) == NULL) {
            sp_i_names_error(&models, object, "draft", false);
        } else {
            sp_model_builtin(sp_model_builtin_meant(name), &spec->draft, object->err);
            if (target->vocab > 0 && spec->draft.vocab != target->vocab) {
                sp_object_error(object, "draft",
                                "%s knows %lld tokens, the target %lld: what it drafts means "
                                "nothing to the target",
                                spec->draft.name, (long long)spec->draft.vocab,
                                (long long)target->vocab);
            }
        }
    }
}

json_t *sp_i_write_draft(const void *owner, const void *context)
{
    const sp_decode_spec *spec = owner;
    (void)context;
    return json_string(spec->draft_kind == SP_DRAFT_EAGLE ? "eagle" : spec->draft.name);
}

static void check_draft_gpus(sp_object *object, const sp_scenario *scenario,
                             const sp_decode_spec *spec)
{
    const sp_model *shape = spec->draft_kind == SP_DRAFT_MODEL ? &spec->draft : &scenario->model;
    // As of the target's ranks (sp_layout_check()).
    bool splits_kv = shape->kv_heads > 0 && (shape->kv_heads % spec->draft_tp == 0 ||
                                             spec->draft_tp % shape->kv_heads == 0);
    if (shape->heads % spec->draft_tp != 0 || (shape->heads > 0 && !splits_kv)) {
        sp_object_error(object, "draft_tp",
                        "must divide the draft's %d heads, and divide its %d of keys and values or "
                        "be a multiple of them, is %d",
                        shape->heads, shape->kv_heads, spec->draft_tp);
    }
    if (!spec->draft_apart && spec->draft_tp > scenario->layout.tp) {
        sp_object_error(object, "draft_tp",
                        "is %d, of which the target has only parallel.tp %d GPUs to share",
                        spec->draft_tp, scenario->layout.tp);
    }
}

void sp_i_scenario_read_decode(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    sp_object object;
    sp_decode_spec spec = {.seed = scenario->workload.seed};
    sp_i_begin_section(reader, sp_i_decode_settings, &spec, &object);
    check_yield(&object, "text.tokens_per_call", spec.tokens_per_call, spec.how.depth);
    check_yield(&object, "text.training_tokens_per_call", spec.training_tokens_per_call,
                spec.how.depth);
    refuse_both(&object, "ease", "tokens_per_call");
    refuse_both(&object, "training_ease", "training_tokens_per_call");
    check_draft_gpus(&object, scenario, &spec);
    if (spec.sequences * spec.output_tokens > MOST_YIELD) {
        sp_object_error(&object, "output_tokens",
                        "makes %lld tokens of all sequences, more than the %d that are simulated",
                        (long long)(spec.sequences * spec.output_tokens), (int)MOST_YIELD);
    }
    if (object.json != NULL && scenario->layout.cp > 1) {
        sp_object_error(&object, "method",
                        "has no use for parallel.cp %d: decoding is not spread "
                        "over context-parallel ranks",
                        scenario->layout.cp);
    }
    sp_object_end(&object);
    if (object.json == NULL) {
        return;
    }
    scenario->decode = sp_malloc(sizeof spec);
    *scenario->decode = spec;
}

sp_decode_machine sp_decode_machine_of(const sp_scenario *scenario)
{
    return (sp_decode_machine){.model = &scenario->model,
                               .cluster = &scenario->cluster,
                               .profile = &scenario->profile,
                               .stack = &scenario->memory.stack,
                               .layout = &scenario->layout,
                               .memory_limit_bytes = scenario->memory_limit_bytes};
}

sp_status sp_decode_scenario(const sp_scenario *scenario, sp_decode_result *result, sp_error *err)
{
    if (scenario->decode == NULL) {
        return sp_error_in(
            err, SP_ERR_CONTENT, scenario->source, "decode",
            "is missing: expected an object that says how text is generated, {} with "
            "the defaults");
    }
    if (scenario->jitter.gpu_cv > 0.0) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "jitter.gpu_cv",
                           "GPUs of one speed generate text, expected 0, got %g",
                           scenario->jitter.gpu_cv);
    }
    sp_decode_machine machine = sp_decode_machine_of(scenario);
    sp_status status = sp_scenario_check_shares(scenario, err);
    return status == SP_OK ? sp_decode_run(scenario->decode, &machine, result, err) : status;
}
