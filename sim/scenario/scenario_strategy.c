// The strategy section of a scenario, read and written.
#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "sim/scenario/scenario_private.h"

// WLB-LLM (arXiv 2503.17924): a third queue no longer improves the balance.
enum { DEFAULT_OUTLIER_QUEUES = 2 };

// The cost model prices packs up to this size.
#define MOST_PACK_TOKENS ((int64_t)1 << 40)

const char *const sp_i_pad_to_names[] = {"context", "longest", NULL};
_Static_assert(SP_PAD_CONTEXT == 0 && SP_PAD_LONGEST == 1, "pad_to");

// A setting of sp_strategy_spec by its key.
typedef struct setting {
    const char *key;
    size_t offset;
    int64_t most;  // of a number, which is an int64_t from 1 on, 0 where it is not stated
    bool tokens;   // the number counts tokens
    bool fallback; // of a switch
} setting;

#define NUMBER(name, most_)                                                       \
    {                                                                             \
        .key = #name, .offset = offsetof(sp_strategy_spec, name), .most = (most_) \
    }
#define TOKENS(name, most_)                                                                       \
    {                                                                                             \
        .key = #name, .offset = offsetof(sp_strategy_spec, name), .most = (most_), .tokens = true \
    }
#define SWITCH(name, fallback_)                                                           \
    {                                                                                     \
        .key = #name, .offset = offsetof(sp_strategy_spec, name), .fallback = (fallback_) \
    }

// Read and written in this order; the real numbers stand between the two tables.
static const setting settings[] = {
    TOKENS(outlier_tokens, SP_MAX_LENGTH_TOKENS),
    TOKENS(pack_tokens, MOST_PACK_TOKENS),
    NUMBER(max_per_pack, SP_I_MAX_SAMPLES),
    TOKENS(rank_tokens, INT32_MAX),
    SWITCH(pack_rounds, false),
    SWITCH(attention_across, false),
    TOKENS(chunk_tokens, SP_MAX_LENGTH_TOKENS),
    TOKENS(slice_tokens, SP_MAX_LENGTH_TOKENS),
    NUMBER(time_limit_ms, INT32_MAX),
};

// Parts of slimpack and zeppelin, which a scenario may switch off.
static const setting parts[] = {
    SWITCH(slices, true), SWITCH(asymmetric, true), SWITCH(taper, true), SWITCH(dp_merge, true),
    SWITCH(milp, true),   SWITCH(zones, true),      SWITCH(remap, true), SWITCH(gathers, true),
};

enum { SETTINGS = sizeof settings / sizeof settings[0], PARTS = sizeof parts / sizeof parts[0] };

static void read_settings(sp_object *object, const setting *table, int count,
                          sp_strategy_spec *strategy)
{
    for (int i = 0; i < count; i++) {
        void *value = (char *)strategy + table[i].offset;
        if (table[i].most > 0) {
            *(int64_t *)value = (table[i].tokens ? sp_object_tokens : sp_object_int)(
                object, table[i].key, 0, 1, table[i].most);
        } else {
            *(bool *)value = sp_object_bool(object, table[i].key, table[i].fallback);
        }
    }
}

// What is stated, or differs from what it is where nothing is stated.
static void add_settings(sp_json_builder *b, const setting *table, int count,
                         const sp_strategy_spec *strategy)
{
    for (int i = 0; i < count; i++) {
        const void *value = (const char *)strategy + table[i].offset;
        if (table[i].most > 0 && *(const int64_t *)value > 0) {
            sp_json_add_int(b, table[i].key, *(const int64_t *)value);
        } else if (table[i].most == 0 && *(const bool *)value != table[i].fallback) {
            sp_json_add_bool(b, table[i].key, !table[i].fallback);
        }
    }
}

void sp_i_scenario_read_strategy(sp_i_scenario_reader *reader)
{
    sp_strategy_spec *strategy = &reader->scenario->strategy;
    sp_object object;
    sp_object_member(&reader->root, "strategy", &object);
    strategy->given = sp_object_has(&object, "kind");
    const char *kind = sp_object_string(&object, "kind", "packed");
    if (kind[0] == '\0' || strlen(kind) >= SP_STRATEGY_NAME) {
        sp_object_expected(&object, "kind", sp_object_get(&object, "kind"),
                           "the name of a strategy");
    } else {
        // The names of strategies are lower-case words with hyphens.
        for (size_t i = 0; kind[i] != '\0'; i++) {
            strategy->kind[i] = kind[i] == '_' ? '-' : (char)tolower((unsigned char)kind[i]);
        }
    }
    strategy->pad_to =
        (sp_pad_to)sp_object_enum(&object, "pad_to", sp_i_pad_to_names, SP_PAD_CONTEXT);
    reader->scenario->layout.cp_sharding = (sp_cp_sharding)sp_object_enum(
        &object, "cp_sharding", sp_cp_sharding_names, (int)SP_SHARD_EVEN);
    reader->scenario->layout.cp_ring_steps = sp_object_bool(&object, "cp_ring_steps", false);
    strategy->outlier_queues = (int)sp_object_int(&object, "outlier_queues", DEFAULT_OUTLIER_QUEUES,
                                                  0, SP_MAX_OUTLIER_QUEUES);
    read_settings(&object, settings, SETTINGS, strategy);
    strategy->group_start_ms = sp_object_real(&object, "group_start_ms", 0.0, 0.0, 1e6);
    strategy->mip_gap = sp_object_real(&object, "mip_gap", -1.0, 0.0, 1.0);
    read_settings(&object, parts, PARTS, strategy);
    sp_object_end(&object);
}

json_t *sp_i_strategy_to_json(const sp_scenario *scenario)
{
    const sp_strategy_spec *strategy = &scenario->strategy;
    sp_cp_sharding sharding = scenario->layout.cp_sharding;
    sp_json_builder b = sp_json_build();
    sp_json_add_text(&b, "kind", strategy->kind);
    sp_json_add_text(&b, "pad_to", sp_i_pad_to_names[strategy->pad_to]);
    if (sharding != SP_SHARD_EVEN) {
        sp_json_add_text(&b, "cp_sharding", sp_cp_sharding_names[sharding]);
    }
    if (scenario->layout.cp_ring_steps) {
        sp_json_add_bool(&b, "cp_ring_steps", true);
    }
    if (strcmp(strategy->kind, "balanced") == 0 ||
        strategy->outlier_queues != DEFAULT_OUTLIER_QUEUES) {
        sp_json_add_int(&b, "outlier_queues", strategy->outlier_queues);
    }
    add_settings(&b, settings, SETTINGS, strategy);
    if (strategy->group_start_ms > 0.0) {
        sp_json_add_real(&b, "group_start_ms", strategy->group_start_ms);
    }
    if (strategy->mip_gap >= 0.0) {
        sp_json_add_real(&b, "mip_gap", strategy->mip_gap);
    }
    add_settings(&b, parts, PARTS, strategy);
    return sp_json_built(b);
}
