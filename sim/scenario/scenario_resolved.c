// The resolved scenario as a document: every setting under the key it is read from, so that reading
// it again gives the same scenario.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/scenario/scenario_private.h"

// An object being built: after a failure everything else is let go.
typedef struct building {
    json_t *json;
    bool ok;
} building;

static building begin(void)
{
    building b = {.json = json_object()};
    b.ok = b.json != NULL;
    return b;
}

// Takes over `value`.
static void put(building *b, const char *key, json_t *value)
{
    if (!b->ok) {
        json_decref(value);
        return;
    }
    b->ok = sp_json_put(b->json, key, value);
}

static void put_int(building *b, const char *key, int64_t value)
{
    put(b, key, json_integer(value));
}

static void put_real(building *b, const char *key, double value)
{
    put(b, key, json_real(value));
}

static void put_bool(building *b, const char *key, bool value)
{
    put(b, key, json_boolean(value));
}

static void put_text(building *b, const char *key, const char *value)
{
    put(b, key, json_string(value));
}

static json_t *finish(building b)
{
    if (!b.ok) {
        json_decref(b.json);
        return NULL;
    }
    return b.json;
}

// The number of units that gives exactly `value` when it is read and multiplied again, and the
// shortest such one: 989.5 TFLOP/s, not 989.49999999999989. Readers multiply by `unit`, which loses
// at most half a unit in the last place, so one of the neighbours of the quotient is always right.
static double in_units(double value, double unit)
{
    double quotient = value / unit;
    for (int digits = 15; digits <= 17; digits++) {
        char text[40];
        snprintf(text, sizeof text, "%.*g", digits, quotient);
        double candidate = strtod(text, NULL);
        if (candidate * unit == value) {
            return candidate;
        }
    }
    double above = nextafter(quotient, HUGE_VAL);
    return above * unit == value ? above : nextafter(quotient, 0.0);
}

// A last node that is part filled follows from the ranks; stated, it would have to be full.
static bool nodes_are_full(const sp_scenario *scenario)
{
    const sp_cluster *cluster = &scenario->cluster;
    return (int64_t)cluster->nodes * cluster->gpus_per_node == sp_layout_ranks(&scenario->layout);
}

static json_t *cluster_object(const sp_cluster *cluster)
{
    building b = begin();
    put_text(&b, "name", cluster->name);
    put_text(&b, "gpu", cluster->gpu);
    put_text(&b, "profile", cluster->profile);
    put_real(&b, "peak_tflops", in_units(cluster->peak_flops_per_s, 1e12));
    put_real(&b, "memory_gib", sp_gib_from_bytes(cluster->memory_bytes));
    put_real(&b, "hbm_gb_per_s", in_units(cluster->hbm_bytes_per_s, 1e9));
    put_int(&b, "gpus_per_node", cluster->gpus_per_node);
    put_real(&b, "nvlink_gb_per_s", in_units(cluster->nvlink_bytes_per_s, 1e9));
    put_int(&b, "nics_per_node", cluster->nics_per_node);
    put_real(&b, "nic_gbit_per_s", in_units(cluster->nic_bytes_per_s, 1e9 / 8.0));
    put_real(&b, "host_link_gb_per_s", in_units(cluster->host_link_bytes_per_s, 1e9));
    put_text(&b, "source", cluster->source);
    return finish(b);
}

static json_t *uniform_object(const sp_uniform_costs *costs)
{
    building b = begin();
    put_real(&b, "f_ms", costs->f_ms);
    put_real(&b, "b_ms", costs->b_ms);
    put_real(&b, "w_ms", costs->w_ms);
    put_real(&b, "p2p_ms", costs->p2p_ms);
    put_bool(&b, "per_chunk", costs->per_chunk != 0);
    put_real(&b, "attention_share", costs->attention_share);
    if (costs->has_units) {
        building units = begin();
        put_real(&units, "f", costs->unit_f);
        put_real(&units, "b", costs->unit_b);
        put_real(&units, "w", costs->unit_w);
        put(&b, "memory_units", finish(units));
    }
    return finish(b);
}

static json_t *stage_layers_array(const sp_layout *layout)
{
    json_t *array = json_array();
    for (int s = 0; array != NULL && s < sp_layout_vstages(layout); s++) {
        if (json_array_append_new(array, json_integer(layout->stage_layers[s])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *parallel_object(const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    building b = begin();
    put_int(&b, "tp", layout->tp);
    put_int(&b, "cp", layout->cp);
    put_int(&b, "pp", layout->pp);
    put_int(&b, "dp", layout->dp);
    put_int(&b, "chunks_per_rank", layout->chunks);
    if (layout->stage_layers != NULL) {
        put(&b, "stage_layers", stage_layers_array(layout));
    }
    put_bool(&b, "sequence_parallel", layout->sequence_parallel);
    put_bool(&b, "vocab_parallel", layout->vocab_parallel);
    put_int(&b, "zero", layout->zero);
    if (!scenario->uniform) {
        char order[SP_RANK_ORDER_TEXT];
        sp_rank_order_write(&layout->order, order);
        put_text(&b, "order", order);
    }
    return finish(b);
}

static json_t *schedule_object(const sp_scenario *scenario)
{
    building b = begin();
    put_text(&b, "kind", sp_schedule_names[scenario->schedule.kind]);
    if (scenario->schedule.group > 0) {
        put_int(&b, "group", scenario->schedule.group);
    }
    if (scenario->schedule.slices > 0) {
        put_int(&b, "slices", scenario->schedule.slices);
        put_text(&b, "slice_rule", sp_slice_rule_names[scenario->schedule.slice_rule]);
    }
    if (scenario->schedule.exchange) {
        put_bool(&b, "exchange", true);
    }
    if (scenario->schedule.retained > 0) {
        put_int(&b, "retained_chunks", scenario->schedule.retained);
    }
    if (scenario->schedule.memory_limit_microbatches > 0.0) {
        put_real(&b, "memory_limit_microbatches", scenario->schedule.memory_limit_microbatches);
    }
    if (scenario->microbatches > 0) {
        put_int(&b, "microbatches", scenario->microbatches);
    }
    if (!scenario->uniform) {
        put_int(&b, "microbatch_samples", scenario->strategy.microbatch_samples);
    }
    return finish(b);
}

static json_t *memory_object(const sp_scenario *scenario)
{
    building b = begin();
    put_text(&b, "model", sp_i_memory_model_names[scenario->memory_model]);
    put_text(&b, "recompute", sp_recompute_names[scenario->memory.recompute]);
    put_real(&b, "offload_ratio", scenario->memory.offload_ratio);
    put_real(&b, "limit_gib", sp_gib_from_bytes(scenario->memory_limit_bytes));
    put_real(&b, "reserve_gib", sp_gib_from_bytes(scenario->memory_reserve_bytes));
    put_text(&b, "attention", sp_attention_names[scenario->memory.attention]);
    return finish(b);
}

static json_t *lengths_array(const sp_lengths *lengths)
{
    json_t *array = json_array();
    for (size_t i = 0; array != NULL && i < lengths->count; i++) {
        if (json_array_append_new(array, json_integer(lengths->tokens[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *workload_object(const sp_i_scenario_reader *reader)
{
    const sp_workload_spec *spec = &reader->scenario->workload;
    building b = begin();
    if (spec->uniform_tokens > 0) {
        put_int(&b, "uniform", spec->uniform_tokens);
    } else if (reader->lengths != NULL) {
        put_text(&b, "lengths", reader->lengths);
    } else {
        put(&b, "lengths", lengths_array(&reader->scenario->lengths));
    }
    if (reader->column != NULL) {
        put_text(&b, "column", reader->column);
    }
    if (spec->context > 0) {
        put_int(&b, "context", spec->context);
    }
    put_text(&b, "over_length", sp_i_over_length_names[spec->over_length]);
    if (spec->samples_per_batch > 0) {
        put_int(&b, "samples_per_batch", spec->samples_per_batch);
    } else {
        put_int(&b, "tokens_per_batch", spec->tokens_per_batch);
    }
    put_int(&b, "batches", spec->batches);
    put_int(&b, "seed", (int64_t)spec->seed);
    put_text(&b, "order", sp_i_order_names[spec->order]);
    return finish(b);
}

// Parts of slimpack that are switched off.
static void put_switches(building *b, const sp_strategy_spec *strategy)
{
    const struct {
        const char *key;
        bool on;
    } parts[] = {{"slices", strategy->slices},
                 {"asymmetric", strategy->asymmetric},
                 {"taper", strategy->taper},
                 {"dp_merge", strategy->dp_merge},
                 {"milp", strategy->milp}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!parts[i].on) {
            put_bool(b, parts[i].key, false);
        }
    }
}

static json_t *strategy_object(const sp_scenario *scenario)
{
    const sp_strategy_spec *strategy = &scenario->strategy;
    sp_cp_sharding sharding = scenario->layout.cp_sharding;
    building b = begin();
    put_text(&b, "kind", strategy->kind);
    put_text(&b, "pad_to", sp_i_pad_to_names[strategy->pad_to]);
    if (sharding != SP_SHARD_EVEN) {
        put_text(&b, "cp_sharding", sp_cp_sharding_names[sharding]);
    }
    if (strcmp(strategy->kind, "balanced") == 0) {
        put_int(&b, "outlier_queues", strategy->outlier_queues);
    }
    if (strategy->outlier_tokens > 0) {
        put_int(&b, "outlier_tokens", strategy->outlier_tokens);
    }
    if (strategy->pack_tokens > 0) {
        put_int(&b, "pack_tokens", strategy->pack_tokens);
    }
    if (strategy->max_per_pack > 0) {
        put_int(&b, "max_per_pack", strategy->max_per_pack);
    }
    if (strategy->rank_tokens > 0) {
        put_int(&b, "rank_tokens", strategy->rank_tokens);
    }
    if (strategy->pack_rounds) {
        put_bool(&b, "pack_rounds", true);
    }
    if (strategy->chunk_tokens > 0) {
        put_int(&b, "chunk_tokens", strategy->chunk_tokens);
    }
    if (strategy->slice_tokens > 0) {
        put_int(&b, "slice_tokens", strategy->slice_tokens);
    }
    if (strategy->time_limit_ms > 0) {
        put_int(&b, "time_limit_ms", strategy->time_limit_ms);
    }
    if (strategy->mip_gap >= 0.0) {
        put_real(&b, "mip_gap", strategy->mip_gap);
    }
    put_switches(&b, strategy);
    return finish(b);
}

json_t *sp_i_scenario_resolve(const sp_i_scenario_reader *reader)
{
    const sp_scenario *scenario = reader->scenario;
    building b = begin();
    put_text(&b, "schema", SP_I_SCENARIO_SCHEMA);
    if (scenario->uniform) {
        put(&b, "uniform_costs", uniform_object(&scenario->uniform_costs));
    } else {
        put(&b, "model", sp_model_to_json(&scenario->model));
        put(&b, "cluster", cluster_object(&scenario->cluster));
        if (nodes_are_full(scenario)) {
            put_int(&b, "nodes", scenario->cluster.nodes);
        }
        put_text(&b, "profile", reader->profile);
        put(&b, "stack", sp_stack_to_json(&scenario->memory.stack));
    }
    put(&b, "parallel", parallel_object(scenario));
    put(&b, "schedule", schedule_object(scenario));
    if (!scenario->uniform) {
        put(&b, "memory", memory_object(scenario));
        put(&b, "workload", workload_object(reader));
        put(&b, "strategy", strategy_object(scenario));
    }
    return finish(b);
}

static void put_layers_per_chunk(building *b, const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    int vstages = sp_layout_vstages(layout);
    if (sp_layout_is_even(layout)) {
        put_int(b, "layers_per_chunk", scenario->model.layers / vstages);
        return;
    }
    int fewest = layout->stage_layers[0];
    int most = layout->stage_layers[0];
    for (int s = 1; s < vstages; s++) {
        int layers = layout->stage_layers[s];
        fewest = layers < fewest ? layers : fewest;
        most = layers > most ? layers : most;
    }
    put_int(b, "fewest_layers_per_chunk", fewest);
    put_int(b, "most_layers_per_chunk", most);
}

json_t *sp_scenario_derived(const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    building b = begin();
    put_int(&b, "ranks", sp_layout_ranks(layout));
    put_int(&b, "virtual_stages", sp_layout_vstages(layout));
    if (scenario->microbatches > 0) {
        put_int(&b, "microbatches", scenario->microbatches);
    }
    if (!scenario->uniform) {
        put_int(&b, "nodes", scenario->cluster.nodes);
        put_int(&b, "gpus_per_node", scenario->cluster.gpus_per_node);
        put_layers_per_chunk(&b, scenario);
        put_int(&b, "parameters", sp_model_parameters(&scenario->model));
    }
    return finish(b);
}
