#include "sim/inference/decode.h"

#include "sim/base/json.h"
#include "sim/base/units.h"

#define SCHEMA "slimpack/decode/1"

const char *const sp_decode_not_modelled[] = {
    "sampling at a temperature above 0: the target takes its most probable token",
    "the prefill of prompts, and prompts that arrive while others generate",
    "the time in which the draft's entropy is computed",
    "sequences that end before output_tokens, and prompts of different lengths",
    "pipeline ranks that work on several batches at once: each waits for the others",
    "routing to some experts more than to others: a forward reads those that its tokens are "
    "expected "
    "to touch if all are as likely",
    NULL};

bool sp_decode_extrapolates(const sp_decode_spec *spec)
{
    const sp_speculation *how = &spec->how;
    return how->method != SP_DECODE_PLAIN &&
           (how->depth != SP_FITTED_DEPTH || how->top_k != SP_FITTED_TOP_K ||
            how->nodes < SP_FITTED_LEAST_NODES || how->nodes > SP_FITTED_MOST_NODES);
}

void sp_decode_warnings(const sp_decode_spec *spec, const sp_decode_result *result,
                        const char *texts[SP_DECODE_WARNINGS + 1])
{
    int count = 0;
    if (result->host_unknown) {
        texts[count++] = "the profile does not say what the host adds to a call with drafted "
                         "tokens: 0 is taken, decode.call_ms states it";
    }
    if (result->host_of_profile) {
        texts[count++] = "what the host adds to a call is the profile's, of one model under one "
                         "server: between models of one machine it differs by more than ten, "
                         "decode.call_ms states yours";
    }
    if (sp_decode_extrapolates(spec)) {
        texts[count++] = "extrapolated: acceptance is fitted to trees of decode.depth 8, top_k 10 "
                         "and 48 to 60 draft_tokens";
    }
    if (spec->how.method != SP_DECODE_PLAIN && spec->draft_kind == SP_DRAFT_MODEL) {
        texts[count++] = "acceptance is fitted to EAGLE-3's draft, not to a model of its own: "
                         "decode.text.tokens_per_call states what it reaches";
    }
    texts[count] = NULL;
}

double sp_decode_step_ms(const sp_decode_result *result)
{
    return 1e3 * result->seconds / (double)result->counts.steps;
}

double sp_decode_verify_share(const sp_decode_result *result)
{
    return result->counts.verify_s / result->seconds;
}

double sp_decode_host_share(const sp_decode_result *result)
{
    return (result->counts.host_s + result->counts.miss_s) / result->seconds;
}

double sp_decode_low_share(const sp_decode_result *result)
{
    int64_t low = 0;
    for (int b = 0; b < result->how.bins.count; b++) {
        low += sp_speculation_is_low(&result->how, b) ? result->counts.in_bin[b] : 0;
    }
    return (double)low / (double)result->counts.calls;
}

double sp_decode_tokens_per_s(const sp_decode_result *result)
{
    return (double)result->output_tokens / result->seconds;
}

static json_t *times_json(const sp_decode_result *result)
{
    const sp_decode_counts *counts = &result->counts;
    double per_step_ms = 1e3 / (double)counts->steps;
    sp_json_builder b = sp_json_build();
    sp_json_add_real(&b, "draft", counts->draft_s * per_step_ms);
    sp_json_add_real(&b, "transfer", counts->transfer_s * per_step_ms);
    sp_json_add_real(&b, "verify", counts->verify_s * per_step_ms);
    sp_json_add_real(&b, "host", counts->host_s * per_step_ms);
    sp_json_add_real(&b, "graph_miss", counts->miss_s * per_step_ms);
    sp_json_add_real(&b, "hidden", counts->hidden_s * per_step_ms);
    return sp_json_built(b);
}

static json_t *bin_json(const sp_decode_result *result, int bin)
{
    int depth = 0;
    int nodes = 0;
    sp_json_builder b = sp_json_build();
    sp_speculation_shape(&result->how, bin, &depth, &nodes);
    bool last = bin == result->how.bins.count - 1;
    sp_json_add(&b, "entropy_to", last ? json_null() : json_real(result->how.bins.above[bin]));
    sp_json_add_real(&b, "share",
                     (double)result->counts.in_bin[bin] / (double)result->counts.calls);
    sp_json_add_int(&b, "depth", depth);
    sp_json_add_int(&b, "draft_tokens", nodes);
    return sp_json_built(b);
}

static json_t *bins_json(const sp_decode_result *result)
{
    json_t *bins = json_array();
    int count = result->how.method == SP_DECODE_HETEROSPEC ? result->how.bins.count : 0;
    for (int i = 0; i < count; i++) {
        json_array_append_new(bins, bin_json(result, i));
    }
    return bins;
}

static json_t *memory_json(const sp_decode_memory *memory, int64_t limit_bytes, bool fits)
{
    sp_json_builder b = sp_json_build();
    sp_json_add_real(&b, "parameters", sp_gib_from_bytes(memory->target));
    sp_json_add_real(&b, "draft", sp_gib_from_bytes(memory->draft));
    sp_json_add_real(&b, "kv_cache", sp_gib_from_bytes(memory->kv_cache));
    sp_json_add_real(&b, "draft_gpu", sp_gib_from_bytes(memory->apart));
    sp_json_add_real(&b, "limit", sp_gib_from_bytes(limit_bytes));
    sp_json_add_bool(&b, "fits", fits);
    return sp_json_built(b);
}

static json_t *text_json(const sp_decode_result *result)
{
    const sp_acceptance *text = &result->text;
    sp_json_builder b = sp_json_build();
    sp_json_add_real(&b, "ease", text->ease);
    sp_json_add_real(&b, "spread", text->spread);
    sp_json_add_real(&b, "noise", text->noise);
    sp_json_add_real(&b, "persistence", text->persistence);
    sp_json_add_real(&b, "agreement", text->agreement);
    sp_json_add_real(&b, "blind", text->blind);
    sp_json_add_real(&b, "training_ease", result->training_ease);
    return sp_json_built(b);
}

static void add_counts(sp_json_builder *b, const sp_decode_result *result)
{
    const sp_decode_counts *counts = &result->counts;
    sp_json_add_int(b, "calls", counts->calls);
    sp_json_add_int(b, "steps", counts->steps);
    sp_json_add_int(b, "tokens", counts->tokens);
    sp_json_add_int(b, "output_tokens", result->output_tokens);
    sp_json_add_int(b, "replica_sequences", result->replica_sequences);
    sp_json_add_real(b, "tokens_per_call", sp_decode_tokens_per_call(counts));
    sp_json_add_int(b, "verified_tokens", counts->verified);
    sp_json_add_real(b, "verified_per_call", (double)counts->verified / (double)counts->calls);
    sp_json_add_real(b, "draft_forwards_per_step",
                     (double)counts->draft_forwards / (double)counts->steps);
    sp_json_add_int(b, "graph_misses", counts->graph_misses);
    sp_json_add_real(b, "low_entropy_share", sp_decode_low_share(result));
}

static void add_times(sp_json_builder *b, const sp_decode_result *result)
{
    bool drafts = result->how.method != SP_DECODE_PLAIN;
    sp_json_add_real(b, "tokens_per_s", sp_decode_tokens_per_s(result));
    sp_json_add_real(b, "step_ms", sp_decode_step_ms(result));
    sp_json_add(b, "step_time_ms", times_json(result));
    sp_json_add_real(b, "verify_share", sp_decode_verify_share(result));
    sp_json_add_real(b, "draft_share", result->counts.draft_s / result->seconds);
    sp_json_add_real(b, "host_share", sp_decode_host_share(result));
    sp_json_add_real(b, "speedup_over_plain", result->plain_s / result->seconds);
    sp_json_add(b, "speedup_over_eagle",
                drafts ? json_real(result->eagle_s / result->seconds) : json_null());
    sp_json_add(b, "eagle_speedup_over_plain",
                drafts ? json_real(result->plain_s / result->eagle_s) : json_null());
    sp_json_add(b, "eagle_tokens_per_call",
                drafts ? json_real(sp_decode_tokens_per_call(&result->eagle)) : json_null());
    sp_json_add(b, "eagle_draft_share",
                drafts ? json_real(result->eagle.draft_s / result->eagle_s) : json_null());
    sp_json_add(b, "eagle_tokens", drafts ? json_integer(result->eagle.tokens) : json_null());
}

static json_t *warnings_json(const sp_decode_spec *spec, const sp_decode_machine *machine,
                             const sp_decode_result *result)
{
    const char *texts[SP_DECODE_WARNINGS + SP_PROFILE_LINES + 1];
    char lines[SP_PROFILE_LINES][SP_PROFILE_LINE];
    int count = sp_profile_lines(machine->profile, machine->cluster, machine->stack, lines);
    int own = 0;
    sp_decode_warnings(spec, result, texts);
    while (texts[own] != NULL) {
        own++;
    }
    for (int i = 0; i < count; i++) {
        texts[own++] = lines[i];
    }
    texts[own] = NULL;
    return sp_json_texts(texts);
}

// Names the source of the time that the host takes; null: there is none, or no draft.
static json_t *host_source_json(const sp_decode_spec *spec, const sp_decode_machine *machine,
                                const sp_decode_result *result)
{
    if (result->host_of_profile) {
        return json_string(machine->profile->decode.source);
    }
    return result->how.method != SP_DECODE_PLAIN && spec->call_ms >= 0.0
               ? json_string("decode.call_ms")
               : json_null();
}

static json_t *uncalibrated_json(const sp_decode_result *result)
{
    char lines[SP_RANGES][160];
    int count = sp_uncalibrated_lines(&result->uncalibrated, lines);
    return sp_json_lines(lines[0], sizeof lines[0], count);
}

json_t *sp_decode_result_json(const sp_decode_spec *spec, const sp_decode_machine *machine,
                              const sp_decode_result *result)
{
    const sp_decode_memory *memory = &result->memory;
    sp_json_builder b = sp_json_build();
    sp_json_add_text(&b, "schema", SCHEMA);
    sp_json_add_text(&b, "method", sp_decode_method_names[result->how.method]);
    sp_json_add_text(&b, "model", machine->model->name);
    add_times(&b, result);
    add_counts(&b, result);
    sp_json_add(&b, "bins", bins_json(result));
    sp_json_add(&b, "text",
                result->how.method != SP_DECODE_PLAIN ? text_json(result) : json_null());
    sp_json_add_real(&b, "peak_memory_gib", sp_gib_from_bytes(sp_decode_memory_bytes(memory)));
    sp_json_add(&b, "memory_gib", memory_json(memory, machine->memory_limit_bytes, result->fits));
    sp_json_add_bool(&b, "oom", !result->fits);
    sp_json_add(&b, "provenance",
                json_pack("{s:s, s:s}", "profile", machine->profile->name, "level",
                          sp_level_names[result->level]));
    sp_json_add(&b, "host_source", host_source_json(spec, machine, result));
    sp_json_add_bool(&b, "extrapolated", sp_decode_extrapolates(spec));
    sp_json_add(&b, "uncalibrated", uncalibrated_json(result));
    sp_json_add(&b, "warnings", warnings_json(spec, machine, result));
    sp_json_add(&b, "not_modelled", sp_json_texts(sp_decode_not_modelled));
    sp_json_add_int(&b, "seed", (int64_t)spec->seed);
    sp_json_add_text(&b, "version", SP_VERSION);
    return sp_json_built(b);
}
