// Which settings a document states otherwise than they are where nothing is stated. A resolved
// document states all of them, and most as they are by default.
#include <string.h>

#include "sim/base/units.h"
#include "sim/inference/decode.h"
#include "sim/scenario/scenario_private.h"
#include "sim/scenario/settings.h"

// Defaults of a scenario follow from these.
typedef struct defaults {
    const sp_scenario *scenario;
    json_t *stack; // every switch of the named stack; owned, NULL: nobody asks
} defaults;

static const json_t *value_at(const json_t *root, const char *key)
{
    char part[SP_JSON_PATH];
    bool more = true;
    while (more && root != NULL) {
        more = sp_json_path_next(&key, part);
        root = json_object_get(root, part);
    }
    return json_is_null(root) ? NULL : root;
}

static json_t *named_stack(const sp_scenario *scenario)
{
    sp_stack named =
        sp_i_unchanged_stack(&scenario->memory.stack, &scenario->layout, &scenario->profile);
    return sp_stack_to_json(&named);
}

// The context and the length of uniform samples follow each from the other; where they are equal
// either may be the stated one.
static int64_t other_tokens(const sp_workload_spec *workload, const char *key)
{
    if (workload->uniform_tokens == workload->context) {
        return SP_I_DEFAULT_UNIFORM_TOKENS;
    }
    return strcmp(key, "workload.context") == 0 ? workload->uniform_tokens : workload->context;
}

// Defaults that follow from other settings, in the place of the table's words; NULL: none does.
static json_t *derived_default(const defaults *d, const char *key)
{
    const sp_scenario *scenario = d->scenario;
    const sp_decode_spec *decode = scenario->decode;
    bool sliced = sp_schedule_traits_of(scenario->schedule.kind).sliced;
    if (strcmp(key, "schedule.group") == 0 ||
        strcmp(key, "schedule.memory_limit_microbatches") == 0) {
        return json_real(scenario->layout.pp);
    }
    if (strcmp(key, "schedule.slices") == 0) {
        return json_real(sliced ? scenario->layout.pp : 1);
    }
    if (strcmp(key, "stack.cp_ring_nics") == 0) {
        return json_real(0.0); // which switches that are written out leave out
    }
    if (strcmp(key, "parallel.sequence_parallel") == 0) {
        return json_boolean(scenario->layout.tp > 1 && !scenario->uniform);
    }
    if (strcmp(key, "memory.reserve_gib") == 0) {
        return json_real(sp_gib_from_bytes(scenario->cluster.reserve_bytes));
    }
    if (scenario->workload.uniform_tokens > 0 &&
        (strcmp(key, "workload.context") == 0 || strcmp(key, "workload.uniform") == 0)) {
        return json_real((double)other_tokens(&scenario->workload, key));
    }
    if (decode != NULL && strcmp(key, "decode.alpha") == 0) {
        return json_real(sp_speculation_usual_alpha(decode->how.depth));
    }
    if (decode != NULL && strcmp(key, "decode.eagle_graphs") == 0) {
        return json_real(decode->graphs);
    }
    return NULL;
}

// The table says a default as a document would, with more words behind it, or in words alone.
static json_t *default_of(const defaults *d, const sp_setting *setting)
{
    json_t *found = derived_default(d, setting->key);
    if (found == NULL && strncmp(setting->key, "stack.", strlen("stack.")) == 0) {
        found = json_incref(json_object_get(d->stack, setting->key + strlen("stack.")));
    }
    return found != NULL
               ? found
               : json_loads(setting->fallback, JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, NULL);
}

static bool is_equal(const sp_setting *setting, const json_t *value, const json_t *other)
{
    int64_t tokens = 0;
    if (setting->tokens && json_is_string(value) &&
        sp_tokens_from_text(json_string_value(value), &tokens)) {
        return json_is_number(other) && json_number_value(other) == (double)tokens;
    }
    if (json_is_number(value) && json_is_number(other)) {
        return json_number_value(value) == json_number_value(other);
    }
    return json_equal(value, other) != 0;
}

void sp_i_scenario_note_stated(sp_scenario *scenario, const json_t *root)
{
    bool switches = json_is_object(json_object_get(root, "stack"));
    defaults d = {.scenario = scenario, .stack = switches ? named_stack(scenario) : NULL};
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        const json_t *value = value_at(root, setting->key);
        json_t *usual = value != NULL ? default_of(&d, setting) : NULL;
        if (value != NULL && (usual == NULL || !is_equal(setting, value, usual))) {
            scenario->states[i / 64] |= UINT64_C(1) << (i % 64);
        }
        json_decref(usual);
    }
    json_decref(d.stack);
}

bool sp_scenario_states(const sp_scenario *scenario, int setting)
{
    return (scenario->states[setting / 64] >> (setting % 64) & 1) != 0;
}
