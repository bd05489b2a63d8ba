// The result of prefill as a document.
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/prefill/prefill.h"
#include "sim/scenario/scenario_private.h"

// What a reader of the times should know.
const char *const sp_prefill_not_modelled[] = {
    "launches of the host below some 10K tokens, where the profile does not state them",
    "sampling by one CP rank of queries whose keys others hold: column sums are not exchanged",
    "what sampling sees of a chunk: it takes the chunk's own queries, fewer than a whole prompt's",
    "decoding beside prompts",
    "memory of activations in what fits: they are told beside it, for layers that run whole",
    "the share of probability that is kept: alpha is what the sampled queries are to keep, in sum",
    NULL,
};

static json_t *prompts_array(const sp_prefill_result *result)
{
    json_t *array = json_array();
    for (size_t p = 0; p < result->count; p++) {
        const sp_prefill_prompt *prompt = &result->prompts[p];
        sp_json_builder b = sp_json_build();
        sp_json_add_int(&b, "id", prompt->id);
        sp_json_add_int(&b, "tokens", prompt->tokens);
        sp_json_add_real(&b, "ttft_ms", sp_ms_from_ns(prompt->first_token_ns));
        sp_json_add_real(&b, "dense_ttft_ms", sp_ms_from_ns(prompt->dense_ns));
        json_array_append_new(array, sp_json_built(b));
    }
    return array;
}

static json_t *parts_object(const sp_prefill_parts *parts)
{
    sp_json_builder b = sp_json_build();
    sp_json_add_real(&b, "linear", sp_ms_from_ns(parts->linear_ns));
    sp_json_add_real(&b, "attention", sp_ms_from_ns(parts->attention_ns));
    sp_json_add_real(&b, "tp_comm", sp_ms_from_ns(parts->tp_ns));
    sp_json_add_real(&b, "cp_comm", sp_ms_from_ns(parts->cp_ns));
    return sp_json_built(b);
}

static json_t *attention_object(const sp_scenario *scenario, const sp_prefill_result *result,
                                int64_t crossover_tokens)
{
    const sp_prefill_attention *a = &result->attention;
    double sparse_ns = (double)result->parts.attention_ns;
    sp_json_builder b = sp_json_build();
    sp_json_add_text(&b, "method", sp_i_prefill_names[scenario->prefill.attention]);
    sp_json_add(&b, "speedup",
                sp_json_figure((double)result->dense_parts.attention_ns / sparse_ns));
    sp_json_add_real(&b, "share", a->share);
    if (scenario->prefill.attention == SP_PREFILL_SAMPLE) {
        sp_json_add_real(&b, "alpha", scenario->prefill.alpha);
        sp_json_add_real(&b, "window", a->window);
        sp_json_add_real(&b, "sampling", a->sampling);
        sp_json_add_real(&b, "bottom", a->bottom);
        sp_json_add_real(&b, "stripes", a->stripes);
        sp_json_add_real(&b, "fixed_ms_per_layer", 1e3 * a->fixed_s);
        sp_json_add_real(&b, "densest_head_over_mean", a->densest_over_mean);
        sp_json_add_real(&b, "slowest_rank_over_mean", a->slowest_over_mean);
    }
    sp_json_add(&b, "crossover_tokens",
                crossover_tokens > 0 ? json_integer(crossover_tokens) : json_null());
    return sp_json_built(b);
}

static json_t *uncalibrated_array(const sp_prefill_result *result)
{
    char lines[SP_RANGES][160];
    int count = sp_uncalibrated_lines(&result->uncalibrated, lines);
    return sp_json_lines(lines[0], sizeof lines[0], count);
}

json_t *sp_prefill_warnings_json(const sp_scenario *scenario)
{
    char lines[SP_PROFILE_LINES][SP_PROFILE_LINE];
    int count =
        sp_profile_lines(&scenario->profile, &scenario->cluster, &scenario->memory.stack, lines);
    return sp_json_lines(lines[0], sizeof lines[0], count);
}

// The weakest level of what the times rest on: the profile, and the source of the attention.
static sp_level weakest_level(const sp_scenario *scenario)
{
    sp_level level = sp_profile_level(&scenario->profile);
    sp_level own = sp_prefill_sources[scenario->prefill.attention].level;
    return own > level ? own : level;
}

static json_t *provenance_object(const sp_scenario *scenario)
{
    sp_json_builder b = sp_json_build();
    sp_json_add_text(&b, "profile", scenario->profile.name);
    const char *assumed = sp_prefill_sources[scenario->prefill.attention].text;
    if (assumed[0] != '\0') {
        sp_json_add_text(&b, "attention", assumed);
    }
    sp_json_add_text(&b, "level", sp_level_names[weakest_level(scenario)]);
    return sp_json_built(b);
}

static json_t *memory_object(const sp_scenario *scenario, const sp_prefill_result *result)
{
    sp_json_builder b = sp_json_build();
    sp_json_add_real(&b, "parameters", sp_gib_from_bytes(result->parameter_bytes));
    sp_json_add_real(&b, "kv_cache", sp_gib_from_bytes(result->kv_cache_bytes));
    sp_json_add_real(&b, "activations", sp_gib_from_bytes(result->activation_bytes));
    sp_json_add_real(&b, "limit", sp_gib_from_bytes(scenario->memory_limit_bytes));
    sp_json_add_bool(&b, "fits", sp_prefill_fits(scenario, result));
    return sp_json_built(b);
}

json_t *sp_prefill_json(const sp_scenario *scenario, const sp_prefill_result *result,
                        int64_t crossover_tokens)
{
    sp_json_builder b = sp_json_build();
    sp_json_add_text(&b, "schema", "slimpack/prefill/1");
    sp_json_add_text(&b, "model", scenario->model.name);
    sp_json_add_real(&b, "ttft_ms", sp_ms_from_ns(result->last_ns));
    sp_json_add_real(&b, "dense_ttft_ms", sp_ms_from_ns(result->dense_last_ns));
    sp_json_add_real(&b, "speedup", (double)result->dense_last_ns / (double)result->last_ns);
    sp_json_add(&b, "prompts", prompts_array(result));
    sp_json_add(&b, "attention", attention_object(scenario, result, crossover_tokens));
    sp_json_add(&b, "time_breakdown_ms", parts_object(&result->parts));
    sp_json_add(&b, "dense_time_breakdown_ms", parts_object(&result->dense_parts));
    sp_json_add(&b, "memory_gib", memory_object(scenario, result));
    sp_json_add(&b, "provenance", provenance_object(scenario));
    sp_json_add(&b, "uncalibrated", uncalibrated_array(result));
    sp_json_add(&b, "warnings", sp_prefill_warnings_json(scenario));
    sp_json_add(&b, "not_modelled", sp_json_texts(sp_prefill_not_modelled));
    sp_json_add_int(&b, "seed", (int64_t)scenario->workload.seed);
    sp_json_add_text(&b, "version", SP_VERSION);
    return sp_json_built(b);
}
