// The resolved scenario as a document: every setting under the key it is read from, so that reading
// it again gives the same scenario.
#include <stdio.h>
#include <string.h>

#include "sim/scenario/scenario_private.h"

// ---- what nobody stated ----

// Defaults that follow from other settings, and choices of strategies. `chosen` lists those that
// the scenario does not state, so that its document, stating them, is not taken for one that does.
static const char *const chosen_keys[] = {
    "schedule.kind",
    "schedule.slices",
    "schedule.slice_rule",
    "parallel.stage_layers",
    "parallel.chunks_per_rank",
    "parallel.sequence_parallel",
    "stack.cp_overlap",
    "stack.cp_ring_nics",
    "stack.gradient_buckets",
    "stack.hide_gradient_reduce",
    "stack.one_sided",
    "strategy.kind",
};

enum { CHOSEN_KEYS = sizeof chosen_keys / sizeof chosen_keys[0] };

static const char *leaf_of(const char *key)
{
    return strchr(key, '.') + 1;
}

static json_t *section_of(const json_t *root, const char *key)
{
    char section[SP_JSON_PATH];
    snprintf(section, sizeof section, "%.*s", (int)(strchr(key, '.') - key), key);
    return json_object_get(root, section);
}

// NULL where it is absent.
static json_t *setting_at(const json_t *root, const char *key)
{
    json_t *value = json_object_get(section_of(root, key), leaf_of(key));
    return json_is_null(value) ? NULL : value;
}

static bool is_value(const json_t *value, const json_t *of_entry)
{
    return value == NULL ? json_is_null(of_entry) : json_equal(value, of_entry) != 0;
}

// The entry of a key whose value in the document is still the one that was chosen, or NULL.
static const json_t *chosen_entry(const json_t *root, const char *key)
{
    const json_t *entry = json_object_get(json_object_get(root, "chosen"), key);
    return is_value(setting_at(root, key), json_object_get(entry, "value")) ? entry : NULL;
}

static bool is_chosen_key(const char *key)
{
    for (int i = 0; i < CHOSEN_KEYS; i++) {
        if (strcmp(chosen_keys[i], key) == 0) {
            return true;
        }
    }
    return false;
}

// The entries tell how a plan came about; the values themselves stand under their keys.
void sp_i_scenario_read_chosen(sp_i_scenario_reader *reader)
{
    sp_strategy_spec *strategy = &reader->scenario->strategy;
    const json_t *root = reader->root.json;
    const char *key;
    json_t *entry;
    sp_object chosen;
    sp_object_member(&reader->root, "chosen", &chosen);
    json_object_foreach ((json_t *)chosen.json, key, entry) {
        if (!is_chosen_key(key) || json_object_get(entry, "value") == NULL) {
            sp_object_expected(&chosen, key, entry,
                               "the value that a resolved document has where none was stated");
        }
    }
    const json_t *kind = chosen_entry(root, "strategy.kind");
    const char *asked = json_string_value(json_object_get(kind, "stated"));
    const char *exchange_of = json_string_value(json_object_get(kind, "exchange_of"));
    snprintf(strategy->asked, sizeof strategy->asked, "%s", asked != NULL ? asked : "");
    snprintf(strategy->exchange_of, sizeof strategy->exchange_of, "%s",
             exchange_of != NULL ? exchange_of : "");
    strategy->exchange_chosen =
        json_is_true(json_object_get(chosen_entry(root, "stack.cp_overlap"), "searched"));
}

// Takes over `value`; NULL: there is none.
static void add_entry(json_t *chosen, const char *key, json_t *value, json_t *stated)
{
    json_t *entry = sp_json_object(SP_JSON("value", value != NULL ? value : json_null()));
    if (stated != NULL) {
        json_object_set(entry, "stated", stated);
    }
    sp_json_put(chosen, key, entry);
}

// Of switches that the named stack states, only those that its layout changes are chosen.
static bool is_named(const sp_scenario *scenario, const char *key)
{
    return strcmp(key, "stack.hide_gradient_reduce") == 0 &&
           !sp_stack_hides_gradients(&scenario->memory.stack, &scenario->layout);
}

// Compares a document that was read with the one that says it as resolved.
static json_t *chosen_object(const sp_scenario *scenario, const json_t *root,
                             const json_t *resolved)
{
    json_t *chosen = json_object();
    for (int i = 0; i < CHOSEN_KEYS; i++) {
        const char *key = chosen_keys[i];
        json_t *value = setting_at(resolved, key);
        const json_t *before = chosen_entry(root, key);
        bool stated = setting_at(root, key) != NULL || strcmp(key, "strategy.kind") == 0 ||
                      (scenario->chunks_given && strcmp(key, "parallel.chunks_per_rank") == 0);
        if (before != NULL) {
            sp_json_put(chosen, key, json_deep_copy(before));
        } else if (value != NULL && !stated && !is_named(scenario, key)) {
            add_entry(chosen, key, json_incref(value), NULL);
        }
    }
    return chosen;
}

// Writes what a strategy chose, or NULL for nothing, in the place of what the document says; takes
// over `value`.
static void put_choice(json_t *root, const char *key, json_t *value)
{
    json_t *section = section_of(root, key);
    json_t *chosen = json_object_get(root, "chosen");
    json_t *entry = json_object_get(chosen, key);
    json_t *before = setting_at(root, key);
    if (entry != NULL) {
        sp_json_put(entry, "value", value != NULL ? json_incref(value) : json_null());
    } else if (chosen != NULL && (value == NULL ? before != NULL : !is_value(before, value))) {
        add_entry(chosen, key, json_incref(value), before);
    }
    if (value == NULL) {
        json_object_del(section, leaf_of(key));
    } else {
        sp_json_put(section, leaf_of(key), value);
    }
}

void sp_i_scenario_undo_choices(json_t *root)
{
    for (int i = 0; i < CHOSEN_KEYS; i++) {
        const char *key = chosen_keys[i];
        const json_t *entry = chosen_entry(root, key);
        json_t *stated = json_object_get(entry, "stated");
        if (stated != NULL) {
            sp_json_put(section_of(root, key), leaf_of(key), json_incref(stated));
        } else if (entry != NULL) {
            json_object_del(section_of(root, key), leaf_of(key));
        }
        if (entry != NULL) {
            json_object_del(json_object_get(root, "chosen"), key);
        }
    }
    const json_t *chosen = json_object_get(root, "chosen");
    if (json_is_object(chosen) && json_object_size(chosen) == 0) {
        json_object_del(root, "chosen");
    }
}

// ---- the document ----

// A last node that is part filled follows from the ranks; stated, it would have to be full.
static bool nodes_are_full(const sp_scenario *scenario)
{
    const sp_cluster *cluster = &scenario->cluster;
    return (int64_t)cluster->nodes * cluster->gpus_per_node == sp_layout_ranks(&scenario->layout);
}

static void add_section(json_t *b, sp_setting_table table, const sp_i_scenario_reader *reader)
{
    sp_json_put(b, table.section, sp_settings_write(table, reader->scenario, reader));
}

json_t *sp_i_scenario_to_json(const sp_i_scenario_reader *reader)
{
    const sp_scenario *scenario = reader->scenario;
    json_t *b = sp_json_object(SP_JSON("schema", SP_I_SCENARIO_SCHEMA));
    if (scenario->uniform) {
        sp_json_put(b, "uniform_costs",
                    sp_settings_write(sp_i_uniform_settings, &scenario->uniform_costs, NULL));
    } else {
        sp_json_add(b, SP_JSON("model", sp_model_to_json(&scenario->model)),
                    SP_JSON("cluster", sp_cluster_to_json(&scenario->cluster)));
        if (nodes_are_full(scenario)) {
            sp_json_put(b, "nodes", json_integer(scenario->cluster.nodes));
        }
        sp_json_add(b, SP_JSON("profile", reader->profile),
                    SP_JSON("stack", sp_stack_to_json(&scenario->memory.stack)));
        json_t *precision = sp_settings_write(sp_i_precision_settings, scenario, NULL);
        json_object_update(b, precision);
        json_decref(precision);
    }
    add_section(b, sp_i_parallel_settings, reader);
    if (!scenario->uniform && !sp_settings_are_usual(sp_i_network_settings, scenario)) {
        add_section(b, sp_i_network_settings, reader);
    }
    if (!scenario->uniform && !sp_settings_are_usual(sp_i_jitter_settings, scenario)) {
        add_section(b, sp_i_jitter_settings, reader);
    }
    add_section(b, sp_i_schedule_settings, reader);
    if (!scenario->uniform) {
        add_section(b, sp_i_memory_settings, reader);
        add_section(b, sp_i_workload_settings, reader);
        add_section(b, sp_i_strategy_settings, reader);
    }
    if (scenario->prefill.given) {
        add_section(b, sp_i_prefill_settings, reader);
    }
    if (scenario->decode != NULL) {
        sp_json_put(b, "decode", sp_settings_write(sp_i_decode_settings, scenario->decode, NULL));
    }
    sp_json_put(b, "chosen", chosen_object(scenario, reader->root.json, b));
    return b;
}

sp_status sp_scenario_set_order(sp_scenario *scenario, sp_error *err)
{
    const sp_schedule_spec *schedule = &scenario->schedule;
    const sp_layout *layout = &scenario->layout;
    json_t *root = scenario->resolved;
    SP_TRY(sp_scenario_resolve_layout(scenario, err));
    scenario->order_resolved = true;
    // A scenario that no document says has none to keep up.
    if (json_object_get(root, "schedule") == NULL || json_object_get(root, "parallel") == NULL) {
        return SP_OK;
    }
    put_choice(root, "parallel.chunks_per_rank", json_integer(layout->chunks));
    put_choice(root, "parallel.stage_layers",
               layout->stage_layers != NULL ? sp_i_stage_layers_array(layout) : NULL);
    put_choice(root, "schedule.kind", json_string(sp_schedule_names[schedule->kind]));
    if (schedule->slices > 0) {
        put_choice(root, "schedule.slices", json_integer(schedule->slices));
        put_choice(root, "schedule.slice_rule",
                   json_string(sp_slice_rule_names[schedule->slice_rule]));
    }
    return SP_OK;
}

void sp_scenario_set_strategy(sp_scenario *scenario, const char *kind, const char *exchange_of)
{
    sp_strategy_spec *strategy = &scenario->strategy;
    json_t *chosen = json_object_get(scenario->resolved, "chosen");
    if (chosen != NULL) {
        add_entry(chosen, "strategy.kind", json_string(kind),
                  setting_at(scenario->resolved, "strategy.kind"));
    }
    snprintf(strategy->kind, sizeof strategy->kind, "%s", kind);
    snprintf(strategy->exchange_of, sizeof strategy->exchange_of, "%s",
             exchange_of != NULL ? exchange_of : "");
    if (chosen != NULL && exchange_of != NULL) {
        sp_json_put(json_object_get(chosen, "strategy.kind"), "exchange_of",
                    json_string(exchange_of));
    }
    json_t *section = json_object_get(scenario->resolved, "strategy");
    if (section != NULL) {
        sp_json_put(section, "kind", json_string(kind));
    }
}

void sp_scenario_set_stack(sp_scenario *scenario)
{
    static const char *const switches[] = {"stack.cp_overlap", "stack.cp_ring_nics",
                                           "stack.one_sided"};
    json_t *stack = json_object_get(scenario->resolved, "stack");
    json_t *now = stack != NULL ? sp_stack_to_json(&scenario->memory.stack) : NULL;
    for (size_t i = 0; stack != NULL && i < sizeof switches / sizeof switches[0]; i++) {
        put_choice(scenario->resolved, switches[i],
                   json_incref(json_object_get(now, leaf_of(switches[i]))));
    }
    json_decref(now);
    json_t *entry = json_object_get(json_object_get(scenario->resolved, "chosen"), switches[0]);
    if (entry != NULL && scenario->strategy.exchange_chosen) {
        sp_json_put(entry, "searched", json_true());
    } else if (entry != NULL) {
        json_object_del(entry, "searched"); // the stack's own again
    }
    scenario->order_resolved = true;
}

static void put_layers_per_chunk(json_t *b, const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    int vstages = sp_layout_vstages(layout);
    if (sp_layout_is_even(layout)) {
        sp_json_put(b, "layers_per_chunk", json_integer(scenario->model.layers / vstages));
        return;
    }
    int fewest = layout->stage_layers[0];
    int most = layout->stage_layers[0];
    for (int s = 1; s < vstages; s++) {
        int layers = layout->stage_layers[s];
        fewest = layers < fewest ? layers : fewest;
        most = layers > most ? layers : most;
    }
    sp_json_add(b, SP_JSON("fewest_layers_per_chunk", fewest),
                SP_JSON("most_layers_per_chunk", most));
}

json_t *sp_scenario_derived(const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    json_t *b = sp_json_object(SP_JSON("ranks", sp_layout_ranks(layout)),
                               SP_JSON("virtual_stages", sp_layout_vstages(layout)));
    if (scenario->microbatches > 0) {
        sp_json_put(b, "microbatches", json_integer(scenario->microbatches));
    }
    if (!scenario->uniform) {
        sp_json_add(b, SP_JSON("nodes", scenario->cluster.nodes),
                    SP_JSON("gpus_per_node", scenario->cluster.gpus_per_node));
        if (scenario->memory.stack.cp_overlap == SP_CP_A2A_P2P && layout->cp > 1) {
            sp_json_put(b, "cp_a2a_ranks",
                        json_integer(sp_stack_head_ranks(&scenario->memory.stack, layout)));
        }
        put_layers_per_chunk(b, scenario);
        sp_json_put(b, "parameters", json_integer(sp_model_parameters(&scenario->model)));
        if (sp_model_is_frozen(&scenario->model)) {
            sp_json_put(b, "trained_parameters",
                        json_integer(sp_model_trained_parameters(&scenario->model)));
        }
    }
    return b;
}
