// The workload of a scenario: where the lengths come from and how they become batches.
#include <math.h>
#include <stdio.h>

#include "sim/base/units.h"
#include "sim/inference/decode.h"
#include "sim/scenario/scenario_private.h"

static const int64_t most_batch_tokens = 10000000000;

const char *const sp_i_over_length_names[] = {"drop", "truncate", "error", "split", NULL};
const char *const sp_i_order_names[] = {"shuffled", "file", NULL};

// Indices into the names above are the enums' values.
_Static_assert(SP_OVER_DROP == 0 && SP_OVER_TRUNCATE == 1 && SP_OVER_ERROR == 2 &&
                   SP_OVER_SPLIT == 3,
               "over_length");
_Static_assert(SP_ORDER_SHUFFLED == 0 && SP_ORDER_FILE == 1, "order");

static void read_source(sp_i_scenario_reader *reader, sp_object *workload);
static void read_batch_size(sp_i_scenario_reader *reader, sp_object *workload);

void sp_i_scenario_read_workload(sp_i_scenario_reader *reader)
{
    sp_workload_spec *spec = &reader->scenario->workload;
    sp_object workload;
    sp_object_member(&reader->root, "workload", &workload);
    spec->context = sp_object_tokens(&workload, "context", 0, 1, SP_MAX_LENGTH_TOKENS);
    spec->over_length = (sp_over_length)sp_object_enum(&workload, "over_length",
                                                       sp_i_over_length_names, SP_OVER_DROP);
    spec->order = (sp_order)sp_object_enum(&workload, "order", sp_i_order_names, SP_ORDER_SHUFFLED);
    spec->batches = (int)sp_object_int(&workload, "batches", 1, 1, SP_I_MAX_BATCHES);
    spec->seed = (uint64_t)sp_object_int(&workload, "seed", 1, 0, INT64_MAX);
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
        } else if (sp_lengths_append(lengths, tokens, reader->err) != SP_OK) {
            return;
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

// Samples of equal length are as long as the context where nothing else is said, and the other way
// round.
static void read_uniform(sp_i_scenario_reader *reader, sp_object *workload)
{
    sp_workload_spec *spec = &reader->scenario->workload;
    int64_t usual = spec->context > 0 ? spec->context : SP_I_DEFAULT_UNIFORM_TOKENS;
    spec->uniform_tokens = sp_object_tokens(workload, "uniform", usual, 1, SP_MAX_LENGTH_TOKENS);
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
    spec->samples_per_batch = sp_object_int(workload, "samples_per_batch", 0, 1, SP_I_MAX_SAMPLES);
    spec->tokens_per_batch =
        sp_object_tokens(workload, "tokens_per_batch", 0, 1, most_batch_tokens);
    if (by_samples && by_tokens) {
        sp_object_error(workload, "tokens_per_batch",
                        "give samples_per_batch or tokens_per_batch, not both");
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
                       "(sliding_window; null: none), since windows shorter than a sample are not modelled, "
                       "got %s",
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
