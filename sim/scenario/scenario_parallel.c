// Reads parallel.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/scenario/scenario_private.h"

// Chunks of a rank where nothing is stated: what the schedule runs. Interleaving takes two, since
// one is 1F1B, where the layers make as many stages.
static int usual_chunks(const sp_scenario *scenario, sp_object *parallel)
{
    const sp_layout *layout = &scenario->layout;
    int vstages = 2 * layout->pp;
    int layers = scenario->model.layers;
    const json_t *listed = sp_object_get(parallel, "stage_layers");
    if (!scenario->schedule_given) {
        return 1;
    }
    if (scenario->schedule.kind != SP_SCHEDULE_INTERLEAVED) {
        int chunks = sp_schedule_traits_of(scenario->schedule.kind).chunks;
        return chunks > 1 ? chunks : 1;
    }
    bool two = json_is_array(listed) ? json_array_size(listed) == (size_t)vstages
               : listed != NULL      ? layers >= vstages
                                     : scenario->uniform || layers % vstages == 0;
    return layout->pp > 1 && two ? 2 : 1;
}

static int read_chunks(sp_i_scenario_reader *reader, sp_object *parallel)
{
    const sp_scenario *scenario = reader->scenario;
    bool given = sp_object_has(parallel, "chunks_per_rank");
    int chunks = (int)sp_object_int(parallel, "chunks_per_rank", usual_chunks(scenario, parallel),
                                    1, SP_I_MAX_CHUNKS);
    int per_chunk = (int)sp_object_int(parallel, "layers_per_chunk", 0, 1, SP_I_MAX_CHUNK_LAYERS);
    int layers = scenario->model.layers;
    int pp = scenario->layout.pp;
    if (per_chunk == 0 || layers == 0) {
        return chunks;
    }
    if (layers % pp != 0 || layers / pp % per_chunk != 0) {
        sp_object_error(parallel, "layers_per_chunk",
                        "%d layers on %d pipeline ranks do not make chunks of %d layers", layers,
                        pp, per_chunk);
        return chunks;
    }
    int follows = layers / pp / per_chunk;
    if (given && follows != chunks) {
        sp_object_error(parallel, "layers_per_chunk",
                        "%d layers on %d pipeline ranks make %d chunks of %d layers, "
                        "chunks_per_rank is %d",
                        layers, pp, follows, per_chunk, chunks);
    } else if (follows > SP_I_MAX_CHUNKS) {
        sp_object_error(parallel, "layers_per_chunk",
                        "%d chunks per rank are more than the %d that are simulated", follows,
                        SP_I_MAX_CHUNKS);
        return chunks;
    }
    return follows;
}

static bool layers_of_stage(const json_t *value, int *layers)
{
    double number = json_is_number(value) ? json_number_value(value) : -1.0;
    if (!(number >= 0.0 && number <= SP_I_MAX_CHUNK_LAYERS) || number != floor(number)) {
        return false;
    }
    *layers = (int)number;
    return true;
}

// Nothing is stated of chunks or layers, and equal shares do not divide them. What hands attention
// over needs equal shares.
static bool leaves_shares_open(const sp_scenario *scenario, sp_object *parallel)
{
    int layers = scenario->model.layers;
    int vstages = sp_layout_vstages(&scenario->layout);
    return !sp_object_has(parallel, "stage_layers") &&
           !sp_object_has(parallel, "chunks_per_rank") &&
           !sp_object_has(parallel, "layers_per_chunk") && !scenario->schedule.exchange &&
           layers >= vstages && layers % vstages != 0;
}

// The entries one by one; how they share out the model is for sp_layout_stages to judge. Without a
// good size of the layout their number says nothing.
static void read_stage_layers(sp_i_scenario_reader *reader, sp_object *parallel, bool sized)
{
    sp_scenario *scenario = reader->scenario;
    const json_t *array = sp_object_get(parallel, "stage_layers");
    if (!sized || scenario->uniform) {
        return;
    }
    scenario->shares_open = leaves_shares_open(scenario, parallel);
    if (array == NULL && !scenario->shares_open) {
        return;
    }
    const char *name = scenario->shares_open ? "auto" : json_string_value(array);
    bool fills = name != NULL && strcmp(name, "nanotron") == 0;
    bool spreads = fills || (name != NULL && strcmp(name, "auto") == 0);
    if (!json_is_array(array) && !spreads) {
        sp_object_expected(parallel, "stage_layers", array, "an array, \"auto\" or \"nanotron\"");
        return;
    }
    if (sp_object_has(parallel, "layers_per_chunk")) {
        sp_object_error(parallel, "stage_layers",
                        "give layers_per_chunk or stage_layers, not both");
        return;
    }
    int vstages = sp_layout_vstages(&scenario->layout);
    size_t count = spreads ? (size_t)vstages : json_array_size(array);
    if (count != (size_t)vstages) {
        sp_object_error(parallel, "stage_layers",
                        "expected %d entries, one for each of pp x chunks_per_rank virtual stages "
                        "(%d x %d), got %zu",
                        vstages, scenario->layout.pp, scenario->layout.chunks, count);
        return;
    }
    scenario->stage_layers = sp_calloc(count, sizeof *scenario->stage_layers);
    scenario->cuts_layers = spreads && !fills;
    if (fills) {
        sp_layout_fill(&scenario->layout, &scenario->model, scenario->stage_layers);
    } else if (spreads) {
        sp_layout_level(&scenario->layout, scenario->model.layers, 0.0, 0.0, NULL, NULL,
                        scenario->stage_layers);
    }
    for (size_t s = 0; s < count && !spreads; s++) {
        if (!layers_of_stage(json_array_get(array, s), &scenario->stage_layers[s])) {
            char key[64];
            snprintf(key, sizeof key, "stage_layers[%zu]", s);
            sp_object_expected(parallel, key, json_array_get(array, s), "an integer from 0 to %d",
                               SP_I_MAX_CHUNK_LAYERS);
        }
    }
    scenario->layout.stage_layers = scenario->stage_layers;
}

static void read_order(sp_object *parallel, sp_rank_order *order)
{
    const char *text = sp_object_string(parallel, "order", NULL);
    if (text != NULL && !sp_rank_order_read(text, order)) {
        sp_object_error(parallel, "order",
                        "expected tp, cp, dp and pp, each once, fastest first, as in "
                        "\"tp-cp-dp-pp\", got \"%.32s\"",
                        text);
    }
}

// Where nodes are counted, dp is what fills them, if tp x cp x pp divides their GPUs.
static int64_t usual_dp(const sp_i_scenario_reader *reader)
{
    const sp_layout *layout = &reader->scenario->layout;
    const sp_cluster *cluster = &reader->scenario->cluster;
    int64_t gpus = (int64_t)cluster->nodes * cluster->gpus_per_node;
    int64_t share = (int64_t)layout->tp * layout->cp * layout->pp;
    return gpus > 0 && gpus % share == 0 && gpus / share <= SP_I_MAX_DP ? gpus / share : 1;
}

void sp_i_scenario_read_parallel(sp_i_scenario_reader *reader)
{
    sp_layout *layout = &reader->scenario->layout;
    sp_object parallel;
    sp_object_member(&reader->root, "parallel", &parallel);
    int before = reader->err->count + reader->err->dropped;
    layout->tp = (int)sp_object_int(&parallel, "tp", 1, 1, SP_I_MAX_PARALLEL);
    layout->cp = (int)sp_object_int(&parallel, "cp", 1, 1, SP_I_MAX_PARALLEL);
    layout->pp = (int)sp_object_int(&parallel, "pp", 1, 1, SP_I_MAX_PARALLEL);
    layout->dp = (int)sp_object_int(&parallel, "dp", usual_dp(reader), 1, SP_I_MAX_DP);
    layout->chunks = read_chunks(reader, &parallel);
    read_stage_layers(reader, &parallel, reader->err->count + reader->err->dropped == before);
    reader->scenario->chunks_given =
        sp_object_has(&parallel, "chunks_per_rank") ||
        sp_object_has(&parallel, "layers_per_chunk") ||
        (layout->stage_layers != NULL && !reader->scenario->cuts_layers);
    bool split_by_default = layout->tp > 1 && !reader->scenario->uniform;
    layout->sequence_parallel = sp_object_bool(&parallel, "sequence_parallel", split_by_default);
    layout->vocab_parallel = sp_object_bool(&parallel, "vocab_parallel", false);
    layout->zero = (int)sp_object_int(&parallel, "zero", 1, 0, 3);
    read_order(&parallel, &layout->order);
    if (reader->scenario->uniform) {
        sp_i_scenario_refuse_parallel(reader, &parallel);
    }
    int64_t ranks = sp_layout_ranks(layout);
    if (ranks > SP_I_MAX_RANKS) {
        sp_object_error(&reader->root, "parallel",
                        "tp x cp x pp x dp makes %lld ranks, more than the %d that are simulated",
                        (long long)ranks, SP_I_MAX_RANKS);
    }
    sp_object_end(&parallel);
}
