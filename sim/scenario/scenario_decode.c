// The decode section of a scenario, read and written.
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/inference/decode.h"
#include "sim/scenario/scenario_private.h"

enum {
    MOST_DEPTH = 32, // with alpha as much again: SP_DRAFT_DEPTH
    MOST_SEQUENCES = 100000,
    MOST_PROMPT = 16777216,
    MOST_OUTPUT = 1048576,
    MOST_YIELD = 20000000, // of all sequences
    MOST_BATCH = 4096,
    MOST_GRAPHS = 1024,
};

const char *const sp_i_draft_gpus_names[] = {"shared", "own", NULL};

static const double most_ms = 1e6;

// A real number of the spec by its key.
typedef struct real_setting {
    const char *key;
    size_t offset;
    double fallback, least, most;
} real_setting;

#define TEXT(name, fallback_, least_, most_)                                                \
    {                                                                                       \
#name, offsetof(sp_decode_spec, text) + offsetof(sp_acceptance, name), (fallback_), \
            (least_), (most_)                                                               \
    }

// Fitted to HumanEval under Llama-3.1-8B (experiments/figures/heterospec.json).
static const real_setting text_settings[] = {
    TEXT(ease, 0.57, -SP_DECODE_MOST_EASE, SP_DECODE_MOST_EASE),
    TEXT(spread, 0.75, 0.0, 10.0),
    TEXT(noise, 0.99, 0.0, 10.0),
    TEXT(persistence, 0.5, 0.0, 1.0),
    TEXT(agreement, 6.7, 0.1, 100.0),
    TEXT(blind, 0.023, 0.0, 1.0),
};

enum { TEXT_SETTINGS = sizeof text_settings / sizeof text_settings[0] };

static void read_speculation(sp_object *object, sp_speculation *how)
{
    how->method = (sp_decode_method)sp_object_enum(object, "method", sp_decode_method_names,
                                                   SP_DECODE_HETEROSPEC);
    how->depth = (int)sp_object_int(object, "depth", 8, 1, MOST_DEPTH);
    how->top_k = (int)sp_object_int(object, "top_k", 10, 1, SP_DRAFT_TOP_K);
    how->nodes = (int)sp_object_int(object, "draft_tokens", 60, 2, SP_DRAFT_NODES);
    how->alpha =
        (int)sp_object_int(object, "alpha", sp_speculation_usual_alpha(how->depth), 0, MOST_DEPTH);
    how->extend = sp_object_bool(object, "extend", true);
    how->prune = sp_object_bool(object, "prune", true);
}

static void read_keep(sp_object *object, double keep[SP_LOW_BINS])
{
    // gamma of HeteroSpec (arXiv 2505.13254, section 4.3).
    static const double usual[SP_LOW_BINS] = {0.3, 0.6, 1.0};
    const json_t *array = sp_object_get(object, "keep");
    bool good = json_is_array(array) && json_array_size(array) == SP_LOW_BINS;
    for (size_t i = 0; i < SP_LOW_BINS; i++) {
        const json_t *value = json_array_get(array, i);
        double number = json_number_value(value);
        good = good && json_is_number(value) && number >= 0.0 && number <= 1.0;
        keep[i] = array == NULL ? usual[i] : number;
    }
    if (array != NULL && !good) {
        sp_object_expected(object, "keep", array, "an array of %d numbers from 0 to 1",
                           (int)SP_LOW_BINS);
    }
}

static void refuse_both(sp_object *text, const char *ease, const char *yield)
{
    if (sp_object_has(text, ease) && sp_object_has(text, yield)) {
        sp_object_error(text, ease, "follows from %s, state one of them", yield);
    }
}

static double read_yield(sp_object *text, const char *key, const sp_decode_spec *spec)
{
    double most = spec->how.depth + 1.0;
    double yield = sp_object_real(text, key, 0.0, 1.0, MOST_DEPTH + 1.0);
    if (yield > most) {
        sp_object_error(text, key, "is %g, more than the %g of a tree of decode.depth %d", yield,
                        most, spec->how.depth);
    }
    return yield;
}

static void read_text(sp_object *decode, sp_decode_spec *spec)
{
    sp_object object;
    sp_object_member(decode, "text", &object);
    for (int i = 0; i < TEXT_SETTINGS; i++) {
        const real_setting *s = &text_settings[i];
        *(double *)((char *)spec + s->offset) =
            sp_object_real(&object, s->key, s->fallback, s->least, s->most);
    }
    spec->tokens_per_call = read_yield(&object, "tokens_per_call", spec);
    spec->training_tokens_per_call = read_yield(&object, "training_tokens_per_call", spec);
    spec->training_ease = sp_object_real(&object, "training_ease", (double)NAN,
                                         -SP_DECODE_MOST_EASE, SP_DECODE_MOST_EASE);
    refuse_both(&object, "ease", "tokens_per_call");
    refuse_both(&object, "training_ease", "training_tokens_per_call");
    sp_object_end(&object);
}

static void read_draft(sp_object *object, const sp_model *target, sp_decode_spec *spec)
{
    const json_t *value = sp_object_get(object, "draft");
    const char *name = value != NULL ? json_string_value(value) : "eagle";
    const sp_i_names models = {"model", sp_model_builtin_count(), sp_model_builtin_name};
    if (name == NULL) {
        sp_object_expected(object, "draft", value, "\"eagle\" or the name of a model");
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

// Draft and target on GPUs, and what of it cannot be.
static void read_places(sp_object *object, const sp_scenario *scenario, sp_decode_spec *spec)
{
    read_draft(object, &scenario->model, spec);
    spec->draft_tp = (int)sp_object_int(object, "draft_tp", 1, 1, SP_I_MAX_PARALLEL);
    spec->draft_apart = sp_object_enum(object, "draft_gpus", sp_i_draft_gpus_names, 0) == 1;
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

static void read_work(sp_object *object, sp_decode_spec *spec)
{
    spec->sequences = sp_object_int(object, "sequences", 100, 1, MOST_SEQUENCES);
    spec->prompt_tokens = sp_object_tokens(object, "prompt_tokens", 512, 0, MOST_PROMPT);
    spec->output_tokens = sp_object_tokens(object, "output_tokens", 256, 1, MOST_OUTPUT);
    spec->batch = (int)sp_object_int(object, "batch", 1, 1, MOST_BATCH);
    spec->policy = (sp_batch_policy)sp_object_enum(object, "batch_policy", sp_batch_policy_names,
                                                   SP_BATCH_PAD);
    spec->graphs = (int)sp_object_int(object, "graphs", 64, 0, MOST_GRAPHS);
    spec->eagle_graphs = (int)sp_object_int(object, "eagle_graphs", spec->graphs, 0, MOST_GRAPHS);
    spec->call_ms = sp_object_real(object, "call_ms", -1.0, 0.0, most_ms);
    spec->graph_miss_ms = sp_object_real(object, "graph_miss_ms", -1.0, 0.0, most_ms);
    if (spec->sequences * spec->output_tokens > MOST_YIELD) {
        sp_object_error(object, "output_tokens",
                        "makes %lld tokens of all sequences, more than the %d that are simulated",
                        (long long)(spec->sequences * spec->output_tokens), (int)MOST_YIELD);
    }
}

static void refuse_cp(const sp_i_scenario_reader *reader, sp_object *object)
{
    const sp_layout *layout = &reader->scenario->layout;
    if (object->json != NULL && layout->cp > 1) {
        sp_object_error(object, "method",
                        "has no use for parallel.cp %d: decoding is not spread "
                        "over context-parallel ranks",
                        layout->cp);
    }
}

void sp_i_scenario_read_decode(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    sp_object object;
    sp_decode_spec spec = {.seed = scenario->workload.seed};
    sp_object_member(&reader->root, "decode", &object);
    read_speculation(&object, &spec.how);
    read_keep(&object, spec.how.keep);
    read_text(&object, &spec);
    read_places(&object, scenario, &spec);
    read_work(&object, &spec);
    refuse_cp(reader, &object);
    sp_object_end(&object);
    if (object.json == NULL) {
        return;
    }
    scenario->decode = sp_malloc(sizeof spec);
    *scenario->decode = spec;
}

// ---- as resolved ----

static json_t *text_object(const sp_decode_spec *spec)
{
    sp_json_builder b = sp_json_build();
    for (int i = 0; i < TEXT_SETTINGS; i++) {
        const real_setting *s = &text_settings[i];
        if (spec->tokens_per_call <= 0.0 || strcmp(s->key, "ease") != 0) {
            sp_json_add_real(&b, s->key, *(const double *)((const char *)spec + s->offset));
        }
    }
    if (spec->tokens_per_call > 0.0) {
        sp_json_add_real(&b, "tokens_per_call", spec->tokens_per_call);
    }
    if (!isnan(spec->training_ease)) {
        sp_json_add_real(&b, "training_ease", spec->training_ease);
    }
    if (spec->training_tokens_per_call > 0.0) {
        sp_json_add_real(&b, "training_tokens_per_call", spec->training_tokens_per_call);
    }
    return sp_json_built(b);
}

static void add_speculation(sp_json_builder *b, const sp_speculation *how)
{
    sp_json_add_text(b, "method", sp_decode_method_names[how->method]);
    sp_json_add_int(b, "depth", how->depth);
    sp_json_add_int(b, "top_k", how->top_k);
    sp_json_add_int(b, "draft_tokens", how->nodes);
    sp_json_add_int(b, "alpha", how->alpha);
    sp_json_add_bool(b, "extend", how->extend);
    sp_json_add_bool(b, "prune", how->prune);
    sp_json_add(b, "keep", json_pack("[f, f, f]", how->keep[0], how->keep[1], how->keep[2]));
}

json_t *sp_i_decode_to_json(const sp_scenario *scenario)
{
    const sp_decode_spec *spec = scenario->decode;
    sp_json_builder b = sp_json_build();
    add_speculation(&b, &spec->how);
    sp_json_add(&b, "text", text_object(spec));
    sp_json_add_text(&b, "draft", spec->draft_kind == SP_DRAFT_EAGLE ? "eagle" : spec->draft.name);
    sp_json_add_int(&b, "draft_tp", spec->draft_tp);
    sp_json_add_text(&b, "draft_gpus", sp_i_draft_gpus_names[spec->draft_apart]);
    sp_json_add_int(&b, "sequences", spec->sequences);
    sp_json_add_int(&b, "prompt_tokens", spec->prompt_tokens);
    sp_json_add_int(&b, "output_tokens", spec->output_tokens);
    sp_json_add_int(&b, "batch", spec->batch);
    sp_json_add_text(&b, "batch_policy", sp_batch_policy_names[spec->policy]);
    sp_json_add_int(&b, "graphs", spec->graphs);
    sp_json_add_int(&b, "eagle_graphs", spec->eagle_graphs);
    if (spec->call_ms >= 0.0) {
        sp_json_add_real(&b, "call_ms", spec->call_ms);
    }
    if (spec->graph_miss_ms >= 0.0) {
        sp_json_add_real(&b, "graph_miss_ms", spec->graph_miss_ms);
    }
    return sp_json_built(b);
}
