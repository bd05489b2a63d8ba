// Every setting of a scenario, as rows with the reading and writing that some have of their own.
// The rows of model, cluster and stack lie in sim/model.
#include "sim/scenario/scenario.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/inference/decode.h"
#include "sim/model/settings.h"
#include "sim/scenario/scenario_private.h"

static const char *distribution_name(int index)
{
    return index < sp_distribution_count() ? sp_distribution_at(index)->name : NULL;
}

// ---- names of values, whose indices are those of the enums ----

static const char *const group_names[] = {"even", NULL};
_Static_assert(SP_GROUP_EVEN == -1, "what the setting's name is read as");
static const char *const spread_names[] = {"auto", "nanotron", NULL};
static const char *const memory_model_names[] = {"tensors", "slimpipe-planner", NULL};
// Megatron-LM's selective recomputation is that of the attention core (its option
// --recompute-granularity; arXiv 2205.05198).
static const sp_setting_word schedule_words[] = {{"interleaved1f1b", SP_SCHEDULE_INTERLEAVED},
                                                 {"1f1binterleaved", SP_SCHEDULE_INTERLEAVED},
                                                 {"zbvzerobubble", SP_SCHEDULE_ZB_V},
                                                 {NULL, 0}};
static const char *const schedule_hints[] = {
    "zb1p",
    "zb1p is found by search in the memory of 1F1B: expected \"zb-auto\", which searches so, or "
    "\"zb-h1\", which is laid by hand",
    "zb2p",
    "zb2p is found by search in twice the memory of 1F1B: expected \"zb-auto\" with "
    "schedule.memory_limit_microbatches of 2 x pp, or \"zb-h2\", which is laid by hand",
    NULL,
};
static const sp_setting_word recompute_words[] = {
    {"selective", SP_RECOMPUTE_ATTENTION}, {"core_attn", SP_RECOMPUTE_ATTENTION}, {NULL, 0}};
static const char *const over_length_names[] = {"drop", "truncate", "error", "split", NULL};
static const char *const order_names[] = {"shuffled", "file", NULL};
_Static_assert(SP_OVER_DROP == 0 && SP_OVER_TRUNCATE == 1 && SP_OVER_ERROR == 2 &&
                   SP_OVER_SPLIT == 3,
               "over_length");
_Static_assert(SP_ORDER_SHUFFLED == 0 && SP_ORDER_FILE == 1, "order");
static const char *const pad_to_names[] = {"context", "longest", NULL};
_Static_assert(SP_PAD_CONTEXT == 0 && SP_PAD_LONGEST == 1, "pad_to");

const char *const sp_prefill_names[] = {"dense",       "sample",     "minference",
                                        "flexprefill", "xattention", NULL};
_Static_assert(SP_PREFILL_DENSE == 0 && SP_PREFILL_XATTENTION == 4, "prefill.attention");
static const char *const deal_names[] = {"cost", "heads", NULL};
_Static_assert(SP_PREFILL_BY_COST == 0 && SP_PREFILL_BY_HEADS == 1, "prefill.deal");
static const char *const draft_gpus_names[] = {"shared", "own", NULL};

// As Lightning, Composer and Hugging Face call it, and Megatron-LM's formats of FP8.
static const sp_setting_word precision_words[] = {{"bfloat16", SP_COMPUTE_BF16},
                                                  {"torch.bfloat16", SP_COMPUTE_BF16},
                                                  {"bf16_mixed", SP_COMPUTE_BF16},
                                                  {"bf16_true", SP_COMPUTE_BF16},
                                                  {"amp_bf16", SP_COMPUTE_BF16},
                                                  {"hybrid", SP_COMPUTE_FP8},
                                                  {"e4m3", SP_COMPUTE_FP8},
                                                  {"amp_fp8", SP_COMPUTE_FP8},
                                                  {NULL, 0}};
static const sp_setting_word recipe_words[] = {{"tensorwise", SP_FP8_CURRENT}, {NULL, 0}};

// ---- defaults that follow from other rows, and when a resolved document states a row ----

// dp fills the nodes where they are counted, if tp x cp x pp divides their GPUs.
static double usual_dp(const void *owner)
{
    const sp_scenario *scenario = owner;
    const sp_layout *layout = &scenario->layout;
    const sp_cluster *cluster = &scenario->cluster;
    int64_t gpus = (int64_t)cluster->nodes * cluster->gpus_per_node;
    int64_t share = (int64_t)layout->tp * layout->cp * layout->pp;
    bool fills = gpus > 0 && gpus % share == 0 && gpus / share <= SP_I_MAX_DP;
    return fills ? (double)(gpus / share) : 1.0;
}

// FSDP has no stage that splits optimizer states alone.
static double usual_zero(const void *owner)
{
    return sp_stack_is_fsdp(&((const sp_scenario *)owner)->memory.stack) ? 3.0 : 1.0;
}

static double usual_recompute(const void *owner)
{
    return sp_stack_recomputes(&((const sp_scenario *)owner)->memory.stack) ? SP_RECOMPUTE_FULL
                                                                            : SP_RECOMPUTE_NONE;
}

static double usual_pad_to(const void *owner)
{
    return sp_stack_abilities_of(&((const sp_scenario *)owner)->memory.stack).pads_batches
               ? SP_PAD_LONGEST
               : SP_PAD_CONTEXT;
}

// A mode, or modules: an array of their names, the names with commas between them, or one of them.
static void read_recompute(sp_object *memory, const sp_setting *row, void *owner,
                           void *context SP_UNUSED)
{
    sp_scenario *scenario = owner;
    const char *key = sp_setting_leaf(row->key);
    const json_t *value = sp_object_get(memory, key);
    const char *name = json_string_value(value);
    char wrong[SP_RECOMPUTE_TEXT];
    char known[320] = "";
    if (value != NULL && sp_recompute_read(value, &scenario->memory.recompute, wrong)) {
        return;
    }
    bool is_word = name == NULL && !json_is_array(value);
    for (const sp_setting_word *w = recompute_words; name != NULL && w->word != NULL; w++) {
        is_word = is_word || sp_same_name(name, w->word);
    }
    if (is_word) {
        sp_setting_read_key(memory, sp_i_memory_settings, key, owner);
        return;
    }
    const char *names[32];
    int count = 0;
    for (int m = 0; sp_recompute_names[m] != NULL; m++) {
        names[count++] = sp_recompute_names[m];
        sp_append(known, sizeof known, "\"%s\", ", sp_recompute_names[m]);
    }
    sp_append(known, sizeof known, "or modules of ");
    for (int m = 0; sp_module_name(m) != NULL; m++) {
        SP_ASSERT(count < (int)(sizeof names / sizeof names[0]));
        names[count++] = sp_module_name(m);
        sp_append(known, sizeof known, "%s\"%s\"", m > 0 ? ", " : "", sp_module_name(m));
    }
    const char *near = name != NULL ? sp_nearest_name(name, names, count) : NULL;
    sp_object_error(memory, key, "expected one of %s, got %s%s%s%s", known, wrong,
                    near != NULL ? " (did you mean \"" : "", near != NULL ? near : "",
                    near != NULL ? "\"?)" : "");
}

static json_t *write_recompute(const void *owner, const void *context SP_UNUSED)
{
    return sp_recompute_json(((const sp_scenario *)owner)->memory.recompute);
}

static double splits_by_tokens(const void *owner)
{
    const sp_scenario *scenario = owner;
    return scenario->layout.tp > 1 && !scenario->uniform &&
           !sp_stack_lacks_sequence_parallel(&scenario->memory.stack);
}

static bool computes_fp8(const void *owner)
{
    return sp_precision_is_fp8(&((const sp_scenario *)owner)->memory.stack.precision);
}

// A model that is stored in FP8 needs it stated.
static bool states_precision(const void *owner)
{
    return computes_fp8(owner) || ((const sp_scenario *)owner)->model.stored_dtype == SP_STORED_FP8;
}

static bool has_slices(const void *owner)
{
    const sp_schedule_spec *schedule = &((const sp_scenario *)owner)->schedule;
    return schedule->slices > 0 || schedule->slice_rule != SP_SLICE_TOKENS;
}

static bool has_model(const void *owner)
{
    return !((const sp_scenario *)owner)->uniform;
}

static double usual_reserve_gib(const void *owner)
{
    return sp_gib_from_bytes(((const sp_scenario *)owner)->cluster.reserve_bytes);
}

// Samples of equal length are as long as the context where nothing else is said, and the other way
// round.
static double usual_uniform_tokens(const void *owner)
{
    int64_t context = ((const sp_scenario *)owner)->workload.context;
    return context > 0 ? (double)context : SP_I_DEFAULT_UNIFORM_TOKENS;
}

static bool has_outlier_queues(const void *owner)
{
    const sp_strategy_spec *strategy = &((const sp_scenario *)owner)->strategy;
    return strcmp(strategy->kind, "balanced") == 0 ||
           strategy->outlier_queues != SP_I_USUAL_OUTLIER_QUEUES;
}

static double usual_alpha(const void *owner)
{
    return sp_speculation_usual_alpha(((const sp_decode_spec *)owner)->how.depth);
}

static double as_graphs(const void *owner)
{
    return ((const sp_decode_spec *)owner)->graphs;
}

static bool states_ease(const void *owner)
{
    return ((const sp_decode_spec *)owner)->tokens_per_call <= 0.0;
}

// ---- rows that are read and written by functions of their own ----

json_t *sp_i_stage_layers_array(const sp_layout *layout)
{
    json_t *array = json_array();
    for (int s = 0; s < sp_layout_vstages(layout); s++) {
        json_array_append_new(array, json_integer(layout->stage_layers[s]));
    }
    return array;
}

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

static void read_chunks(sp_object *parallel, const sp_setting *row SP_UNUSED, void *owner,
                        void *context SP_UNUSED)
{
    sp_scenario *scenario = owner;
    int *chunks = &scenario->layout.chunks;
    int layers = scenario->model.layers;
    int pp = scenario->layout.pp;
    *chunks = usual_chunks(scenario, parallel);
    sp_setting_read_key(parallel, sp_i_parallel_settings, "chunks_per_rank", scenario);
    int per_chunk =
        (int)sp_setting_read_int(parallel, sp_i_parallel_settings, "layers_per_chunk", 0);
    if (per_chunk == 0 || layers == 0) {
        return;
    }
    if (layers % pp != 0 || layers / pp % per_chunk != 0) {
        sp_object_error(parallel, "layers_per_chunk",
                        "%d layers on %d pipeline ranks do not make chunks of %d layers", layers,
                        pp, per_chunk);
        return;
    }
    int follows = layers / pp / per_chunk;
    if (sp_object_has(parallel, "chunks_per_rank") && follows != *chunks) {
        sp_object_error(parallel, "layers_per_chunk",
                        "%d layers on %d pipeline ranks make %d chunks of %d layers, "
                        "chunks_per_rank is %d",
                        layers, pp, follows, per_chunk, *chunks);
    } else if (follows > SP_I_MAX_CHUNKS) {
        sp_object_error(parallel, "layers_per_chunk",
                        "%d chunks per rank are more than the %d that are simulated", follows,
                        SP_I_MAX_CHUNKS);
    } else {
        *chunks = follows;
    }
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
static void read_stage_layers(sp_object *parallel, const sp_setting *row, void *owner,
                              void *context)
{
    sp_scenario *scenario = owner;
    const sp_i_scenario_reader *reader = context;
    const json_t *array = sp_object_get(parallel, "stage_layers");
    if (sp_i_errors_so_far(reader) != reader->errors_before || scenario->uniform) {
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
        sp_object_expected(parallel, "stage_layers", array, "%s", row->type);
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
    // No cut leaves each stage a layer: refused with the reason of equal shares.
    if (spreads && !fills && vstages > scenario->model.layers) {
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

// "auto" until a strategy has chosen.
static json_t *write_stage_layers(const void *owner, const void *context SP_UNUSED)
{
    const sp_scenario *scenario = owner;
    return scenario->cuts_layers                   ? json_string("auto")
           : scenario->layout.stage_layers != NULL ? sp_i_stage_layers_array(&scenario->layout)
                                                   : NULL;
}

static void read_rank_order(sp_object *parallel, const sp_setting *row SP_UNUSED, void *owner,
                            void *context SP_UNUSED)
{
    const char *text = sp_object_string(parallel, "order", NULL);
    if (text != NULL && !sp_rank_order_read(text, &((sp_scenario *)owner)->layout.order)) {
        sp_object_error(parallel, "order",
                        "expected tp, cp, dp and pp, each once, fastest first, as in "
                        "\"tp-cp-dp-pp\", got \"%.32s\"",
                        text);
    }
}

static json_t *write_rank_order(const void *owner, const void *context SP_UNUSED)
{
    const sp_scenario *scenario = owner;
    char order[SP_RANK_ORDER_TEXT];
    sp_rank_order_write(&scenario->layout.order, order);
    return scenario->uniform ? NULL : json_string(order);
}

static json_t *write_lengths(const void *owner, const void *context)
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

static json_t *write_column(const void *owner SP_UNUSED, const void *context)
{
    const sp_i_scenario_reader *reader = context;
    return reader->column != NULL ? json_string(reader->column) : NULL;
}

// The names of strategies are lower-case words with hyphens.
static void read_strategy_kind(sp_object *section, const sp_setting *row, void *owner,
                               void *context SP_UNUSED)
{
    sp_strategy_spec *strategy = &((sp_scenario *)owner)->strategy;
    strategy->given = sp_object_has(section, "kind");
    const char *kind = sp_object_string(section, "kind", strategy->kind);
    if (kind[0] == '\0' || strlen(kind) >= SP_STRATEGY_NAME) {
        sp_object_expected(section, "kind", sp_object_get(section, "kind"), "%s", row->type);
        return;
    }
    sp_i_strategy_name(kind, strategy->kind);
}

void sp_i_strategy_name(const char *word, char name[SP_STRATEGY_NAME])
{
    char lower[SP_STRATEGY_NAME] = "";
    for (size_t i = 0; i + 1 < sizeof lower && word[i] != '\0'; i++) {
        lower[i] = word[i] == '_' ? '-' : (char)tolower((unsigned char)word[i]);
    }
    memcpy(name, lower, sizeof lower);
}

static void read_keep(sp_object *object, const sp_setting *row, void *owner,
                      void *context SP_UNUSED)
{
    // gamma of HeteroSpec (arXiv 2505.13254, section 4.3).
    static const double published[SP_LOW_BINS] = {0.3, 0.6, 1.0};
    double *keep = ((sp_decode_spec *)owner)->how.keep;
    const json_t *array = sp_object_get(object, "keep");
    bool good = json_is_array(array) && json_array_size(array) == SP_LOW_BINS;
    for (size_t i = 0; i < SP_LOW_BINS; i++) {
        const json_t *value = json_array_get(array, i);
        double number = json_number_value(value);
        good = good && json_is_number(value) && number >= 0.0 && number <= 1.0;
        keep[i] = array == NULL ? published[i] : number;
    }
    if (array != NULL && !good) {
        sp_object_expected(object, "keep", array, "%s", row->type);
    }
}

static json_t *write_keep(const void *owner, const void *context SP_UNUSED)
{
    const double *keep = ((const sp_decode_spec *)owner)->how.keep;
    return json_pack("[f, f, f]", keep[0], keep[1], keep[2]);
}

static void read_draft(sp_object *object, const sp_setting *row, void *owner, void *context)
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

static json_t *write_draft(const void *owner, const void *context SP_UNUSED)
{
    const sp_decode_spec *spec = owner;
    return json_string(spec->draft_kind == SP_DRAFT_EAGLE ? "eagle" : spec->draft.name);
}

// ---- the rows ----

// clang-format off
static const sp_setting document_rows[] = {
    {.key = "schema", .type = "\"slimpack/scenario/1\"", .fallback = "\"slimpack/scenario/1\"",
     .text = "Kind and version of the document."},
    {.key = "chosen", .type = "an object", .fallback = "{}",
     .text = "In a resolved document the settings that the scenario does not state, by key: the "
             "value that follows or that a strategy chose, and what was stated in its place. A "
             "document that still has that value is read as one that does not state it; a plan "
             "keeps it."},
    {.key = "nodes", SP_INT(1, SP_I_MAX_RANKS),
     .fallback = "as many as the ranks need, the last one part filled",
     .text = "Nodes of the cluster. The ranks must fill all their GPUs; parallel.dp follows from "
             "that where it is not stated.", .aliases = "num_nodes nnodes"},
    {.key = "profile", .type = "a name or a path", .fallback = "that of the cluster",
     .text = "Measured or fitted rates of the GPU and its links, by which actions are priced; "
             "`slimpack help profiles` lists them. A stated one is used whatever the stack is; "
             "that of a cluster gives way to the one it names for a stated stack (for_stack)."},
};

static const sp_setting precision_rows[] = {
    {.key = "precision", SP_ONE_OF(sp_compute_names),
     SP_FIELD(sp_scenario, memory.stack.precision.compute), .is_written = states_precision,
     .also = precision_words,
     .text = "In which numbers the products of the layers are computed: QKV, output, MLP and "
             "experts, forward and for both gradients. Attention, embedding, head, router, norms, "
             "loss and optimizer stay in BF16 or FP32. FP8 needs a profile that states its rate.",
     .aliases = "fp8 fp8_format compute_precision"},
    {.key = "fp8_recipe", SP_ONE_OF(sp_fp8_recipe_names),
     SP_FIELD(sp_scenario, memory.stack.precision.recipe), .is_written = computes_fp8,
     .also = recipe_words,
     .text = "With precision fp8, how casts find their scales. delayed: one for a tensor, from "
             "earlier steps; a cast reads its tensor once, and ranks agree on maxima. current: "
             "one for a tensor, from itself: it is read twice. blockwise: one for 128 numbers of "
             "a row, of weights for 128 x 128. mxfp8: one for 32 numbers (Blackwell)."},
    {.key = "fp8_params", SP_SWITCH, SP_FIELD(sp_scenario, memory.stack.precision.parameters),
     .is_written = computes_fp8,
     .text = "With precision fp8, the weights of products in FP8 are kept and gathered over "
             "data-parallel ranks in FP8 alone, a byte each in place of two (with mxfp8 gathered "
             "in BF16). Off: FP8 copies stand beside BF16 weights.",
     .aliases = "fp8_param fp8_param_gather fp8_primary_weights"},
};

static const sp_setting uniform_rows[] = {
    {.key = "uniform_costs", .kind = SP_SETTING_OBJECT, .fallback = "absent",
     .text = "Times of a micro-batch on a rank's stage, in place of model, cluster and profile: "
             "schedules are then compared on equal work."},
    {.key = "uniform_costs.f_ms", SP_REAL(1e-6, 1e6), SP_FIELD(sp_uniform_costs, f_ms),
     .required = true, .usual = 1, .fallback = "none, it must be given",
     .text = "Milliseconds of a forward."},
    {.key = "uniform_costs.b_ms", SP_REAL(0, 1e6), SP_FIELD(sp_uniform_costs, b_ms),
     .required = true, .usual = 1, .fallback = "none, it must be given",
     .text = "Milliseconds of the part of a backward that makes the gradient of the input."},
    {.key = "uniform_costs.w_ms", SP_REAL(0, 1e6), SP_FIELD(sp_uniform_costs, w_ms),
     .text = "Milliseconds of the part of a backward that makes the gradients of the weights. "
             "Schedules that do not split the backward run b_ms and w_ms as one."},
    {.key = "uniform_costs.p2p_ms", SP_REAL(0, 1e6), SP_FIELD(sp_uniform_costs, p2p_ms),
     .text = "Milliseconds from one pipeline rank to another. The sender does not wait."},
    {.key = "uniform_costs.per_chunk", SP_SWITCH, SP_FIELD(sp_uniform_costs, per_chunk),
     .fallback = "false: they hold for a rank's stage",
     .text = "f_ms, b_ms and w_ms hold for one model chunk."},
    {.key = "uniform_costs.attention_share", SP_REAL(0, 1),
     SP_FIELD(sp_uniform_costs, attention_share),
     .text = "Share of the times that is attention, which grows with the position of a slice in "
             "its row."},
    {.key = "uniform_costs.memory_units", .kind = SP_SETTING_OBJECT,
     SP_FIELD(sp_uniform_costs, has_units),
     .fallback = "f 1, b -1, w 0; with a split backward f 1, b 0, w -1",
     .text = "Activation units that the actions of a micro-batch take and free. They add up to 0."},
    {.key = "uniform_costs.memory_units.f", SP_REAL(-1e6, 1e6), SP_FIELD(sp_uniform_costs, unit_f),
     .required = true, .fallback = "none, it must be given",
     .text = "Units more at the start of a forward."},
    {.key = "uniform_costs.memory_units.b", SP_REAL(-1e6, 1e6), SP_FIELD(sp_uniform_costs, unit_b),
     .required = true, .fallback = "none, it must be given",
     .text = "Units more at the end of a backward, or of its part for the input."},
    {.key = "uniform_costs.memory_units.w", SP_REAL(-1e6, 1e6), SP_FIELD(sp_uniform_costs, unit_w),
     .required = true, .fallback = "none, it must be given",
     .text = "Units more at the end of the part for the weights."},
};

static const sp_setting parallel_rows[] = {
    {.key = "parallel.tp", SP_INT(1, SP_I_MAX_PARALLEL), SP_FIELD(sp_scenario, layout.tp),
     .usual = 1,
     .text = "Tensor-parallel ranks: each layer's matrices are split over so many GPUs.",
     .aliases = "tensor_model_parallel_size tensor_parallel_size tp_size tensor_parallel "
                "tensor_parallel_degree"},
    {.key = "parallel.cp", SP_INT(1, SP_I_MAX_PARALLEL), SP_FIELD(sp_scenario, layout.cp),
     .usual = 1,
     .text = "Context-parallel ranks: the tokens of each pack are split over so many GPUs.",
     .aliases = "context_parallel_size context_parallel cp_size sequence_parallel_size "
                "ring_attention context_parallel_degree"},
    {.key = "parallel.pp", SP_INT(1, SP_I_MAX_PARALLEL), SP_FIELD(sp_scenario, layout.pp),
     .usual = 1, .text = "Pipeline ranks: the layers are split over so many GPUs.",
     .aliases = "pipeline_model_parallel_size pipeline_parallel_size pp_size pipeline_parallel "
                "pipeline_parallel_degree num_stages"},
    {.key = "parallel.dp", SP_INT(1, SP_I_MAX_DP), SP_FIELD(sp_scenario, layout.dp),
     .derive = usual_dp, .fallback = "what fills the nodes where they are stated, else 1",
     .text = "Data-parallel ranks: so many replicas share the batch. The GPUs are tp x cp x pp x "
             "dp.", .aliases = "data_parallel_size dp_size data_parallel replicas"},
    {.key = "parallel.ep", SP_INT(1, SP_I_MAX_PARALLEL), SP_FIELD(sp_scenario, layout.ep),
     .usual = 1, .if_changed = true,
     .text = "Expert-parallel ranks: the experts of each layer are spread over so many GPUs, which "
             "send each other the tokens (stack.dispatcher). etp x ep divides tp x cp x dp; "
             "where it is above tp x cp, data-parallel ranks wait for each other in every layer.",
     .aliases = "expert_model_parallel_size expert_parallel_size ep_size expert_parallel "
                "expert_parallel_degree moe_ep_size"},
    {.key = "parallel.etp", SP_INT(0, SP_I_MAX_PARALLEL), SP_FIELD(sp_scenario, layout.etp),
     .if_changed = true,
     .text = "Tensor-parallel ranks of each expert (Megatron-LM's parallel folding sets 1); 0: "
             "parallel.tp.",
     .aliases = "expert_tensor_parallel_size moe_tp_size expert_tensor_parallel_degree"},
    {.key = "parallel.chunks_per_rank", SP_INT(1, SP_I_MAX_CHUNKS),
     SP_FIELD(sp_scenario, layout.chunks), .read = read_chunks,
     .fallback = "what the schedule runs: 2 for V schedules and interleaved, else 1",
     .text = "Model chunks of each pipeline rank (virtual pipeline stages).",
     .aliases = "vpp vp vpp_size virtual_pipeline_model_parallel_size num_model_chunks v "
                "num_virtual_stages_per_pipeline_rank virtual_pipeline"},
    {.key = "parallel.layers_per_chunk", SP_INT(1, SP_I_MAX_CHUNK_LAYERS),
     .fallback = "follows from the chunks",
     .text = "Layers of a model chunk; may stand in place of chunks_per_rank.",
     .aliases = "num_layers_per_virtual_pipeline_stage"},
    {.key = "parallel.stage_layers", .type = "an array, \"auto\" or \"nanotron\"",
     .names = spread_names, .read = read_stage_layers, .write = write_stage_layers,
     .fallback = "equal shares",
     .text = "Layers of every virtual stage in the order of the model; \"auto\" takes, of equal "
             "shares, cuts by predicted time, embedding and head counted, and SlimPack's own "
             "choice, the one with which the strategy is predicted to run the first batch fastest "
             "within memory, \"nanotron\" spreads them as nanotron does. Where neither layers nor "
             "chunks are stated and equal shares do not divide the layers, the SlimPack strategies "
             "cut as with \"auto\", and all else refuses them. \"nanotron\" counts layers of several "
             "kinds alike.",
     .aliases = "pipeline_model_parallel_layout num_layers_in_first_pipeline_stage "
                "num_layers_in_last_pipeline_stage decoder_first_pipeline_num_layers "
                "decoder_last_pipeline_num_layers"},
    {.key = "parallel.sequence_parallel", SP_SWITCH,
     SP_FIELD(sp_scenario, layout.sequence_parallel), .derive = splits_by_tokens,
     .fallback = "true where tp is above 1, with stack megatron-deepspeed-2022 false",
     .text = "What lies between tensor-parallel parts is split by tokens over the TP ranks."},
    {.key = "parallel.vocab_parallel", SP_SWITCH, SP_FIELD(sp_scenario, layout.vocab_parallel),
     .text = "Embedding and head are spread over the pipeline ranks."},
    {.key = "parallel.zero", SP_INT(0, 3), SP_FIELD(sp_scenario, layout.zero),
     .derive = usual_zero, .fallback = "1, with the stacks of FSDP 3",
     .text = "ZeRO stage: optimizer states (1), gradients (2) and parameters (3) are split over "
             "the dp x cp ranks; 0: none is. FSDP splits gradients (SHARD_GRAD_OP is 2) or all "
             "(FULL_SHARD is 3).",
     .aliases = "zero_stage zero_optimization distributed_optimizer use_distributed_optimizer"},
    {.key = "parallel.zero_group", SP_INT(0, 1 << 20), SP_FIELD(sp_scenario, layout.zero_group),
     .if_changed = true,
     .text = "Neighbouring dp x cp ranks among which ZeRO splits states (hybrid sharding); gradients "
             "are then added up over the groups as well. 0: all of them."},
    {.key = "parallel.order", SP_TEXT, .read = read_rank_order, .write = write_rank_order,
     .fallback = "\"tp-cp-dp-pp\"",
     .text = "Which ranks lie next to each other in a node, fastest first. Megatron-LM's \"ep\" "
             "may stand among them and says nothing. With network.detail flows it says which "
             "transfers meet.", .aliases = "rank_order"},
};

static const sp_setting network_rows[] = {
    {.key = "network", .kind = SP_SETTING_OBJECT,
     .fallback = "detail \"closed\", collectives \"profile\"",
     .text = "How transfers over the links of the cluster are predicted (network.*)."},
    {.key = "network.detail", SP_ONE_OF(sp_network_detail_names), SP_FIELD(sp_scenario, network),
     .text = "closed: each transfer and each collective takes what its formula says, as if it were "
             "alone. flows: they share links by max-min fairness, and each takes what its formula "
             "says where it meets no other, but with all of a NIC that GPUs share, and what the "
             "spine's rate and latency (cluster.fabric) and PCIe add. Flows are sends between "
             "stages, gradient reductions, parameter gathers, what ZeRO 2 and 3 exchange inside "
             "actions, what context-parallel ranks and zones exchange, and rows of experts. Tensor "
             "parallelism keeps to its formulas: others do not slow it, nor it them. auto: the "
             "same times, by the formulas where nothing can meet, which is faster; closed with "
             "parallel.vocab_parallel, and with zero 2 or 3 beside experts over several ranks."},
    {.key = "network.collectives", SP_ONE_OF(sp_collective_algorithm_names),
     SP_FIELD(sp_scenario, profile.algorithm), .if_changed = true,
     .text = "By which algorithm all-reduces, all-gathers and reduce-scatters take their time. "
             "profile: measured times where the profile has them, whatever NCCL chose there; else "
             "a ring, or a tree over nodes where that is faster. The others are models by rates "
             "and latencies of links alone, inside nodes too, without what a launch takes: compare "
             "them with each other. ring. tree: NCCL's double binary tree over nodes, for "
             "all-reduces. nvls: NVSwitches add up and copy (cluster.nvls), at 0.85 of NVLink's "
             "rate as NCCL assumes; over nodes with trees, for all-reduces. hierarchical: rings "
             "inside nodes and, for each GPU of a node, between them. auto: the fastest of these "
             "four for each size, as NCCL's tuner chooses. Where one does not serve the ring does. "
             "All-to-alls, sends and rings of keys and values stay as they are. Where a spine "
             "(cluster.fabric) or PCIe beside it slows data-parallel ranks, they take what flows "
             "alone do; others know of NVLink and NICs only. With network.detail flows, reductions "
             "and gathers of data-parallel ranks go the algorithm's own ways, and what "
             "context-parallel ranks gather goes along a ring's in the algorithm's time.",
     .aliases = "nccl_algo allreduce_algorithm collective_algorithm"},
};

static const sp_setting jitter_rows[] = {
    {.key = "jitter", .kind = SP_SETTING_OBJECT, .fallback = "gpu_cv 0: all GPUs are alike",
     .text = "How differently fast GPUs of one kind compute (jitter.*). A rank takes as long as "
             "the slowest of its tensor- and context-parallel GPUs, and a step waits for the "
             "slowest rank; the profile's own growth with nodes is then left out, and no bound is "
             "told: GPUs may be faster than the profile's."},
    {.key = "jitter.gpu_cv", SP_REAL(0, 0.2), SP_FIELD(sp_scenario, jitter.gpu_cv),
     .text = "Standard deviation of a GPU's time to compute over the mean, which is normal. "
             "Measured in five clusters: GPUs vary by 8 % (Sinha et al., SC 2022, arXiv "
             "2208.11035), which is 0.015 if that is 5.4 standard deviations. simulate tells how "
             "many times the mean the slowest GPU takes, with this seed and expected: the integral "
             "of 1 - F^n, F being the distribution function of a GPU's time and n the GPUs (David "
             "and Nagaraja, Order Statistics, 2003)."},
    {.key = "jitter.seed", SP_INT(0, HUGE_VAL), SP_FIELD(sp_scenario, jitter.seed), .usual = 1,
     .text = "Seed of the GPUs' times."},
};

static const sp_setting schedule_rows[] = {
    {.key = "schedule.kind", SP_ONE_OF(sp_schedule_names), SP_FIELD(sp_scenario, schedule.kind),
     .usual = SP_SCHEDULE_1F1B,
     .fallback = "\"1f1b\", \"interleaved\" with several chunks, or what the strategy brings",
     .also = schedule_words, .explained = schedule_hints,
     .text = "The pipeline schedule; `slimpack help schedules` says a line of each.",
     .aliases = "pipeline_schedule pipeline_parallel_schedule"},
    {.key = "schedule.group", SP_INT(1, SP_I_MAX_MICROBATCHES), .names = group_names,
     SP_FIELD(sp_scenario, schedule.group), .if_changed = true, .fallback = "pp",
     .text = "Interleaved: micro-batches of one chunk in a row. Each group needs as many as there "
             "are pipeline ranks, the last one too, as Megatron-LM asks; \"even\" spreads any "
             "number over groups whose sizes differ by one, which no framework does.",
     .aliases = "microbatch_group_size_per_vp_stage"},
    {.key = "schedule.slices", SP_INT(1, SP_I_MAX_SLICES), SP_FIELD(sp_scenario, schedule.slices),
     .if_changed = true, .fallback = "pp with sliced schedules, else 1",
     .text = "Slices that each row is cut into, with sliced schedules (terapipe, seq1f1b, "
             "slimpipe)."},
    {.key = "schedule.slice_rule", SP_ONE_OF(sp_slice_rule_names),
     SP_FIELD(sp_scenario, schedule.slice_rule), .is_written = has_slices,
     .text = "Where a row is cut: into equal tokens, equal FLOPs, or the slices with the shortest "
             "forward pass."},
    {.key = "schedule.exchange", SP_SWITCH, SP_FIELD(sp_scenario, schedule.exchange),
     .if_changed = true,
     .text = "Slimpipe: pipeline ranks even out the attention of their slices at every step."},
    {.key = "schedule.retained_chunks", SP_INT(1, SP_I_MAX_SLICES),
     SP_FIELD(sp_scenario, schedule.retained), .if_changed = true, .fallback = "1",
     .text = "Chunkflow: chunks of a long sample that keep their activations (K)."},
    {.key = "schedule.memory_limit_microbatches", SP_REAL(1, SP_I_MAX_MICROBATCHES),
     SP_FIELD(sp_scenario, schedule.memory_limit_microbatches), .if_changed = true,
     .fallback = "pp",
     .text = "Zb-auto: what a rank may hold, in activations of one micro-batch on one rank's "
             "stage."},
    {.key = "schedule.microbatches", SP_INT(1, SP_I_MAX_MICROBATCHES),
     SP_FIELD(sp_scenario, microbatches), .if_changed = true,
     .fallback = "what the batch makes; 2 x pp where there is no batch",
     .text = "Micro-batches of each data-parallel rank in a step, of schedule.microbatch_samples "
             "rows each. Where no batch is stated (workload.samples_per_batch, tokens_per_batch) "
             "one has the documents that fill these rows in their order, or by best fit where the "
             "strategy is ffd, bfd or lpfhp; other strategies may make more or fewer of them. A "
             "stated batch must make as many.",
     .aliases = "num_microbatches gradient_accumulation_steps grad_accum "
                "batch_accumulation_per_replica"},
    {.key = "schedule.microbatch_samples", SP_INT(1, SP_I_MAX_SAMPLES),
     SP_FIELD(sp_scenario, strategy.microbatch_samples), .is_written = has_model, .usual = 1,
     .text = "Rows of a micro-batch.",
     .aliases = "mbs micro_batch micro_batch_size microbatch_size pipeline_parallel_microbatch_size "
                "per_device_train_batch_size train_micro_batch_size_per_gpu"},
};

static const sp_setting memory_rows[] = {
    {.key = "memory.model", SP_ONE_OF(memory_model_names), SP_FIELD(sp_scenario, memory_model),
     .text = "How the peak is predicted: from the tensors of every action, or by the formulas of "
             "SlimPipe's planner, which know ZeRO 1, fp32 gradients and sequence parallelism "
             "alone."},
    {.key = "memory.recompute", SP_ONE_OF(sp_recompute_names),
     SP_FIELD(sp_scenario, memory.recompute), .also = recompute_words, .read = read_recompute,
     .write = write_recompute, .derive = usual_recompute,
     .fallback = "\"none\", with stack trl-2025 \"full\"",
     .text = "What the backward computes again in place of keeping it: activation functions and "
             "norms, also the first MLP projection, the attention core (Megatron's \"selective\"), "
             "what latent attention makes from its latents, or whole layers. Or a list of modules "
             "of Megatron-LM's --recompute-modules, [\"layernorm\", \"mlp\"] or by --set "
             "\"layernorm,mlp\": core_attn, layernorm (of latent attention, and in front of "
             "experts), mla_up_proj, mlp (dense), moe, moe_act, shared_experts.",
     .aliases = "recompute_granularity recompute_modules activation_checkpointing activation_checkpoint "
                "gradient_checkpointing recompute_activations"},
    {.key = "memory.offload_ratio", SP_REAL(0, 1), SP_FIELD(sp_scenario, memory.offload_ratio),
     .text = "Share of the activations that is copied to the host after the forward and back "
             "before the backward. Where no backward leaves time for it (with one pipeline rank "
             "most schedules run each behind its forward) there is none, which is said, and with "
             "full recomputation on one pipeline rank refused.", .aliases = "cpu_offloading activation_offload"},
    {.key = "memory.offload_states", SP_REAL(0, 1),
     SP_FIELD(sp_scenario, memory.stack.offload_states), .if_changed = true,
     .text = "Share of the weights whose fp32 copies and moments are on the host and are stepped "
             "by its CPUs (DeepSpeed's ZeRO-Offload and its ratio; Megatron-LM's optimizer CPU "
             "offload). Behind the backward their gradients go there and weights come back, over "
             "cluster.host_link_gb_per_s; cluster.host_adam_gb_per_s is the CPUs' rate. Not "
             "beside memory.offload_ratio.",
     .aliases = "optimizer_offload_fraction optimizer_cpu_offload"},
    {.key = "memory.limit_gib", SP_REAL(0.001, 1e6), SP_FIELD(sp_scenario, memory_limit_bytes),
     .unit = SP_GIB, .fallback = "the GPU's memory less reserve_gib",
     .text = "GiB that a step may hold on one GPU."},
    {.key = "memory.reserve_gib", SP_REAL(0, 1e6), SP_FIELD(sp_scenario, memory_reserve_bytes),
     .unit = SP_GIB, .derive = usual_reserve_gib, .fallback = "that of the cluster, 3 on GPUs",
     .text = "GiB of a GPU that CUDA's context, NCCL, cuBLAS and fragmentation take. No use beside "
             "limit_gib."},
    {.key = "memory.attention", SP_ONE_OF(sp_attention_names),
     SP_FIELD(sp_scenario, memory.attention), .text = "Flash attention, or scores that are kept.",
     .aliases = "use_flash_attn attention_backend flash_attention attn_implementation"},
};

static const sp_setting workload_rows[] = {
    {.key = "workload.uniform", SP_TOKENS(1, SP_MAX_LENGTH_TOKENS),
     SP_FIELD(sp_scenario, workload.uniform_tokens), .read_elsewhere = true,
     .derive = usual_uniform_tokens, .if_changed = true, .fallback = "the context, else 4096",
     .text = "Tokens of every sample, where lengths are not stated."},
    {.key = "workload.lengths", .type = "a name, a path or an array", .write = write_lengths,
     .name_at = distribution_name, .fallback = "uniform samples",
     .text = "Lengths of the documents in tokens: a built-in distribution, an array, or a file "
             "(text, CSV, JSON, JSONL, NumPy .npy, Megatron-LM .idx or the common name of .idx and "
             ".bin), which goes before a distribution of its name.",
     .aliases = "dataset data_path length_distribution"},
    {.key = "workload.column", SP_TEXT, .write = write_column,
     .fallback = "the only one, or one with a usual name such as length or tokens",
     .text = "Column of a CSV file or key of JSON objects that holds the lengths; of an array of "
             "token ids (input_ids) the number counts."},
    {.key = "workload.context", SP_TOKENS(1, SP_MAX_LENGTH_TOKENS),
     SP_FIELD(sp_scenario, workload.context), .if_changed = true, .fallback = "the longest sample",
     .text = "Tokens of a row at most (context window, sequence length).",
     .aliases = "seq_length seq_len seqlen sequence_len cutoff_len model_max_length sequence_length "
                "max_seq_len max_seq_length context_length block_size max_length"},
    {.key = "workload.over_length", SP_ONE_OF(over_length_names),
     SP_FIELD(sp_scenario, workload.over_length),
     .text = "What becomes of samples longer than the context; each piece of a split one is a "
             "sample."},
    {.key = "workload.samples_per_batch", SP_INT(1, SP_I_MAX_SAMPLES),
     SP_FIELD(sp_scenario, workload.samples_per_batch), .read_elsewhere = true, .if_changed = true,
     .fallback = "what fills schedule.microbatches; else 512, an array's samples or their pieces; "
                 "of uniform ones what fills the micro-batches, or one prompt",
     .text = "Samples of a batch, over all data-parallel ranks.",
     .aliases = "gbs global_batch_size batch_size train_batch_size"},
    {.key = "workload.tokens_per_batch", SP_TOKENS(1, SP_I_MAX_BATCH_TOKENS),
     SP_FIELD(sp_scenario, workload.tokens_per_batch), .read_elsewhere = true, .if_changed = true,
     .fallback = "samples_per_batch holds",
     .text = "Tokens of a batch at most, in place of samples_per_batch; a batch has at least one "
             "sample.", .aliases = "global_batch_tokens batch_tokens"},
    {.key = "workload.batches", SP_INT(1, SP_I_MAX_BATCHES),
     SP_FIELD(sp_scenario, workload.batches), .usual = 1,
     .text = "Batches, each a step; the result is their mean.",
     .aliases = "train_iters steps iterations num_steps"},
    {.key = "workload.seed", SP_INT(0, HUGE_VAL), SP_FIELD(sp_scenario, workload.seed), .usual = 1,
     .text = "Seed of what is drawn: lengths of a distribution, and their order.",
     .aliases = "random_seed"},
    {.key = "workload.order", SP_ONE_OF(order_names), SP_FIELD(sp_scenario, workload.order),
     .text = "Samples in an order drawn by the seed, or as in the file.", .aliases = "shuffle"},
};

static const sp_setting strategy_rows[] = {
    {.key = "strategy.kind", SP_TEXT, .type = "the name of a strategy",
     SP_FIELD(sp_scenario, strategy.kind), .read = read_strategy_kind,
     .fallback = "\"packed\"",
     .text = "How samples become packs; `slimpack help strategies` says a line of each.",
     .aliases = "packing packing_strategy"},
    {.key = "strategy.pad_to", SP_ONE_OF(pad_to_names), SP_FIELD(sp_scenario, strategy.pad_to),
     .derive = usual_pad_to,
     .fallback = "\"context\", with the stacks of Hugging Face's Trainer \"longest\"",
     .text = "Padded: rows are as long as the context, or as their micro-batch's longest sample."},
    {.key = "strategy.cp_sharding", SP_ONE_OF(sp_cp_sharding_names),
     SP_FIELD(sp_scenario, layout.cp_sharding), .if_changed = true,
     .text = "How a pack is cut over its context-parallel ranks: shares of equal work, the row in "
             "2 x cp chunks, every document so, or for each pack the faster of the two."},
    {.key = "strategy.cp_ring_steps", SP_SWITCH, SP_FIELD(sp_scenario, layout.cp_ring_steps),
     .if_changed = true,
     .text = "Ranks whose shares of a pack are uneven (strategy.cp_sharding) wait for each other "
             "at each step of a ring behind the attention (stack.cp_overlap); off: the ring waits "
             "for the rank with most work in all."},
    {.key = "strategy.outlier_queues", SP_INT(0, SP_MAX_OUTLIER_QUEUES),
     SP_FIELD(sp_scenario, strategy.outlier_queues), .is_written = has_outlier_queues,
     .usual = SP_I_USUAL_OUTLIER_QUEUES,
     .text = "Balanced: queues in which long samples wait for later batches; 0: none waits."},
    {.key = "strategy.outlier_tokens", SP_TOKENS(1, SP_MAX_LENGTH_TOKENS),
     SP_FIELD(sp_scenario, strategy.outlier_tokens), .if_changed = true,
     .fallback = "an eighth of the context",
     .text = "Balanced: tokens from which on a sample waits."},
    {.key = "strategy.pack_tokens", SP_TOKENS(1, SP_I_MAX_PACK_TOKENS),
     SP_FIELD(sp_scenario, strategy.pack_tokens), .if_changed = true,
     .fallback = "5/4 of the context for each row", .text = "Balanced: tokens of a pack at most."},
    {.key = "strategy.max_per_pack", SP_INT(1, SP_I_MAX_SAMPLES),
     SP_FIELD(sp_scenario, strategy.max_per_pack), .if_changed = true, .fallback = "any number",
     .text = "Lpfhp: samples of a row at most."},
    {.key = "strategy.rank_tokens", SP_TOKENS(1, INT32_MAX),
     SP_FIELD(sp_scenario, strategy.rank_tokens), .if_changed = true, .fallback = "context / dp",
     .text = "Hybrid-cp, bytescale, hbp, flexsp, te-cp, llama-cp, hybrid-dp, zeppelin: tokens that "
             "one data-parallel rank takes of a sample at most. Dp-balanced: of a pack.",
     .aliases = "max_seqlen_per_dp_cp_rank"},
    {.key = "strategy.pack_rounds", SP_SWITCH, SP_FIELD(sp_scenario, strategy.pack_rounds),
     .if_changed = true,
     .text = "Hybrid-cp: samples that a round gives to one group are one pack."},
    {.key = "strategy.attention_across", SP_SWITCH,
     SP_FIELD(sp_scenario, strategy.attention_across), .if_changed = true,
     .text = "Concat: a row attends as one sample, over the ends of its documents."},
    {.key = "strategy.chunk_tokens", SP_TOKENS(1, SP_MAX_LENGTH_TOKENS),
     SP_FIELD(sp_scenario, strategy.chunk_tokens), .if_changed = true, .fallback = "8192",
     .text = "Chunkflow: tokens of a chunk.", .aliases = "chunk_size"},
    {.key = "strategy.slice_tokens", SP_TOKENS(1, SP_MAX_LENGTH_TOKENS),
     SP_FIELD(sp_scenario, strategy.slice_tokens), .if_changed = true,
     .fallback = "slimpipe: each row in schedule.slices; slimpack: searched",
     .text = "Slimpipe: tokens of a slice. Slimpack: long samples are cut at multiples of so many "
             "tokens."},
    {.key = "strategy.time_limit_ms", SP_INT(1, INT32_MAX),
     SP_FIELD(sp_scenario, strategy.time_limit_ms), .if_changed = true,
     .fallback = "none: an amount of work ends the search",
     .text = "Milliseconds for solving one batch, of the first with what the job keeps, such as "
             "model chunks. With a limit plans may differ between machines."},
    {.key = "strategy.group_start_ms", SP_REAL(0, 1e6),
     SP_FIELD(sp_scenario, strategy.group_start_ms), .if_changed = true,
     .text = "Milliseconds in which a group of data-parallel ranks connects, at the first pack of "
             "the job that they share or whose attention they share. A rank joins its groups one "
             "after the other; groups without a common rank connect at the same time. Strategies "
             "that try whole steps (zeppelin, slimpack, packed-tuned) count it, all others choose "
             "without."},
    {.key = "strategy.mip_gap", SP_REAL(0, 1), SP_FIELD(sp_scenario, strategy.mip_gap),
     .if_changed = true, .usual = -1, .fallback = "the strategy's own",
     .text = "Relative gap at which an integer program counts as solved."},
    {.key = "strategy.slices", SP_SWITCH, SP_FIELD(sp_scenario, strategy.slices),
     .if_changed = true, .usual = true, .text = "Slimpack: long samples are cut."},
    {.key = "strategy.asymmetric", SP_SWITCH, SP_FIELD(sp_scenario, strategy.asymmetric),
     .if_changed = true, .usual = true, .text = "Slimpack: the backward has packs of its own."},
    {.key = "strategy.taper", SP_SWITCH, SP_FIELD(sp_scenario, strategy.taper), .if_changed = true,
     .usual = true,
     .text = "Slimpack: packs grow while the pipeline fills and shrink while it drains."},
    {.key = "strategy.dp_merge", SP_SWITCH, SP_FIELD(sp_scenario, strategy.dp_merge),
     .if_changed = true, .usual = true,
     .text = "Slimpack: data-parallel ranks are merged for samples too long for one."},
    {.key = "strategy.milp", SP_SWITCH, SP_FIELD(sp_scenario, strategy.milp), .if_changed = true,
     .usual = true, .text = "Slimpack: integer programs prove or improve small assignments."},
    {.key = "strategy.zones", SP_SWITCH, SP_FIELD(sp_scenario, strategy.zones), .if_changed = true,
     .usual = true,
     .text = "Zeppelin: samples that a node or a rank holds stay there. Off: every sample goes "
             "over all ranks in a ring, as te-cp's, and nothing else is tried, neither remapping "
             "nor gathers: llama-cp and hybrid-dp may then be faster. Slimpack-zones: off, packs "
             "of all ranks are not tried."},
    {.key = "strategy.remap", SP_SWITCH, SP_FIELD(sp_scenario, strategy.remap), .if_changed = true,
     .usual = true,
     .text = "Zeppelin: all modules but the attention run on equal shares of the tokens, which are "
             "sent to the ranks of their attention and back, where that is faster."},
    {.key = "strategy.gathers", SP_SWITCH, SP_FIELD(sp_scenario, strategy.gathers),
     .if_changed = true, .usual = true,
     .text = "Zeppelin and slimpack in rings (stack.cp_overlap): packs gather keys and values "
             "before the attention, as llama-cp's do, where that is faster. Off: rings alone, as "
             "zeppelin is published; llama-cp may then be faster."},
};

static const sp_setting prefill_rows[] = {
    {.key = "prefill.attention", SP_ONE_OF(sp_prefill_names),
     SP_FIELD(sp_scenario, prefill.attention),
     .text = "Attention of `slimpack prefill`: every key, SampleAttention, MInference, or "
             "FlexPrefill and XAttention by the speed-ups that XAttention's authors plot."},
    {.key = "prefill.alpha", SP_REAL(0, 1), SP_FIELD(sp_scenario, prefill.alpha), .usual = 0.95,
     .text = "SampleAttention: share of the sampled probability that the kept keys hold; 1 is "
             "dense attention.", .aliases = "cra cra_threshold"},
    {.key = "prefill.window_share", SP_REAL(0, 1), SP_FIELD(sp_scenario, prefill.window_share),
     .usual = 0.08, .text = "SampleAttention: the local window as a share of the keys."},
    {.key = "prefill.row_share", SP_REAL(0, 1), SP_FIELD(sp_scenario, prefill.row_share),
     .usual = 0.05, .text = "SampleAttention: share of the queries that are sampled."},
    {.key = "prefill.stripe_share", SP_REAL(0, 1), SP_FIELD(sp_scenario, prefill.stripe_share),
     .if_changed = true, .usual = -1, .fallback = "by alpha and length, fitted",
     .text = "SampleAttention: share of the causal pairs that stripes keep, the mean over heads."},
    {.key = "prefill.fixed_us", SP_REAL(0, 1e6), SP_FIELD(sp_scenario, prefill.fixed_us),
     .if_changed = true, .usual = -1, .fallback = "fitted",
     .text = "SampleAttention: microseconds of each head in each layer that do not depend on the "
             "length (launches, choosing keys, gathering); 190 were fitted."},
    {.key = "prefill.deal", SP_ONE_OF(deal_names), SP_FIELD(sp_scenario, prefill.deal),
     .text = "SampleAttention: a rank's heads are dealt by cost in tiles, or head by head, so that "
             "the densest sets the time."},
    {.key = "prefill.chunk_tokens", SP_TOKENS(1, SP_MAX_LENGTH_TOKENS),
     SP_FIELD(sp_scenario, prefill.chunk_tokens), .if_changed = true,
     .fallback = "the whole prompt",
     .text = "Tokens of a chunk of a prompt; pipeline ranks work on several chunks at once."},
    {.key = "prefill.together", SP_SWITCH, SP_FIELD(sp_scenario, prefill.together),
     .if_changed = true,
     .text = "The prompts of a batch run as one pack, each over its own keys, and give their first "
             "tokens together; off: one prompt after the other."},
    {.key = "prefill.dense_below", SP_TOKENS(0, SP_MAX_LENGTH_TOKENS),
     SP_FIELD(sp_scenario, prefill.dense_below), .if_changed = true, .fallback = "0: none",
     .text = "Prompts, or chunks with what is before them, of fewer tokens are read with dense "
             "attention."},
};

static const sp_setting decode_rows[] = {
    {.key = "decode.method", SP_ONE_OF(sp_decode_method_names),
     SP_FIELD(sp_decode_spec, how.method), .usual = SP_DECODE_HETEROSPEC,
     .text = "Decode: token by token, with trees of drafted tokens (EAGLE-2, EAGLE-3), or with "
             "trees whose depth and width follow from the draft's entropy (HeteroSpec)."},
    {.key = "decode.depth", SP_INT(1, SP_I_MAX_DEPTH), SP_FIELD(sp_decode_spec, how.depth),
     .usual = 8, .text = "Layers of a tree of drafted tokens.", .aliases = "speculative_num_steps"},
    {.key = "decode.top_k", SP_INT(1, SP_DRAFT_TOP_K), SP_FIELD(sp_decode_spec, how.top_k),
     .usual = 10,
     .text = "Children of a drafted token, and tokens of a layer that are drafted on from.",
     .aliases = "speculative_eagle_topk"},
    {.key = "decode.draft_tokens", SP_INT(2, SP_DRAFT_NODES), SP_FIELD(sp_decode_spec, how.nodes),
     .usual = 60,
     .text = "Tokens of a tree that one call of the target verifies, the root among them (N).",
     .aliases = "total_token speculative_num_draft_tokens"},
    {.key = "decode.alpha", SP_INT(0, SP_I_MAX_DEPTH), SP_FIELD(sp_decode_spec, how.alpha),
     .derive = usual_alpha, .fallback = "half of depth, rounded up",
     .text = "Heterospec: layers more at the lowest entropy, one less in each of the next two "
             "bins."},
    {.key = "decode.extend", SP_SWITCH, SP_FIELD(sp_decode_spec, how.extend), .usual = true,
     .text = "Heterospec: trees of low entropy are drafted deeper (DED)."},
    {.key = "decode.prune", SP_SWITCH, SP_FIELD(sp_decode_spec, how.prune), .usual = true,
     .text = "Heterospec: fewer tokens of trees of low entropy are verified (TNP)."},
    {.key = "decode.keep", .type = "an array of 3 numbers from 0 to 1", .read = read_keep,
     .write = write_keep, .fallback = "[0.3, 0.6, 1.0]",
     .text = "Heterospec: share of draft_tokens that is verified in the three bins of low entropy "
             "(gamma); the layers that alpha adds in a bin are as many tokens more."},
    {.key = "decode.text", .kind = SP_SETTING_OBJECT, .fallback = "HumanEval under Llama-3.1-8B",
     .text = "How sure the draft is of the text, and how often the target agrees (decode.text.*)."},
    {.key = "decode.text.ease", SP_REAL(-SP_DECODE_MOST_EASE, SP_DECODE_MOST_EASE),
     SP_FIELD(sp_decode_spec, text.ease), .is_written = states_ease, .usual = 0.57,
     .text = "How sure the draft is of its first token: mean logit of its probability."},
    {.key = "decode.text.spread", SP_REAL(0, 10), SP_FIELD(sp_decode_spec, text.spread),
     .usual = 0.75, .text = "Deviation of that logit between calls of the target."},
    {.key = "decode.text.noise", SP_REAL(0, 10), SP_FIELD(sp_decode_spec, text.noise),
     .usual = 0.99, .text = "Deviation of that logit between tokens."},
    {.key = "decode.text.persistence", SP_REAL(0, 1), SP_FIELD(sp_decode_spec, text.persistence),
     .usual = 0.5, .text = "Correlation of a sequence's difficulty from one call to the next."},
    {.key = "decode.text.agreement", SP_REAL(0.1, 100), SP_FIELD(sp_decode_spec, text.agreement),
     .usual = 6.7,
     .text = "How much more often than the draft's probability says the target takes the draft's "
             "first token: the power of that probability; 1 says it as it is."},
    {.key = "decode.text.blind", SP_REAL(0, 1), SP_FIELD(sp_decode_spec, text.blind),
     .usual = 0.023,
     .text = "Share of tokens that the draft does not have among its top_k, whatever its entropy."},
    {.key = "decode.text.tokens_per_call", SP_REAL(1, SP_I_MAX_DEPTH + 1),
     SP_FIELD(sp_decode_spec, tokens_per_call), .if_changed = true,
     .fallback = "what follows from ease",
     .text = "Tokens that a call yields with EAGLE's trees; the ease follows from it.",
     .aliases = "acceptance_length tau"},
    {.key = "decode.text.training_ease", SP_REAL(-SP_DECODE_MOST_EASE, SP_DECODE_MOST_EASE),
     SP_FIELD(sp_decode_spec, training_ease), .if_changed = true, .usual = (double)NAN,
     .fallback = "as the text itself",
     .text = "Heterospec: the ease of the text that the bins of entropy are fitted to."},
    {.key = "decode.text.training_tokens_per_call", SP_REAL(1, SP_I_MAX_DEPTH + 1),
     SP_FIELD(sp_decode_spec, training_tokens_per_call), .if_changed = true,
     .fallback = "what follows from training_ease",
     .text = "Heterospec: tokens that a call yields with EAGLE's trees on that text."},
    {.key = "decode.draft", .type = "\"eagle\" or the name of a model", .read = read_draft,
     .write = write_draft, .fallback = "\"eagle\"",
     .text = "What drafts: EAGLE-3's layer over the target's features, or a model of its own.",
     .aliases = "draft_model speculative_model"},
    {.key = "decode.draft_tp", SP_INT(1, SP_I_MAX_PARALLEL), SP_FIELD(sp_decode_spec, draft_tp),
     .usual = 1, .text = "GPUs that share the draft's tensors.",
     .aliases = "draft_tensor_parallel_size speculative_draft_tensor_parallel_size"},
    {.key = "decode.draft_gpus", SP_ONE_OF(draft_gpus_names), SP_FIELD(sp_decode_spec, draft_apart),
     .text = "The draft is on the target's GPUs, or on draft_tp GPUs of its own for each replica, "
             "where it drafts for one half of a batch while the target verifies the other."},
    {.key = "decode.sequences", SP_INT(1, 100000), SP_FIELD(sp_decode_spec, sequences),
     .usual = 100,
     .text = "Sequences that are generated, in all: data-parallel replicas share them out, and are "
             "idle where there are fewer than replicas."},
    {.key = "decode.prompt_tokens", SP_TOKENS(0, 16777216), SP_FIELD(sp_decode_spec, prompt_tokens),
     .usual = 512, .text = "Tokens of a prompt. Its prefill is not part of the time.",
     .aliases = "input_len"},
    {.key = "decode.output_tokens", SP_TOKENS(1, 1048576), SP_FIELD(sp_decode_spec, output_tokens),
     .usual = 256, .text = "Tokens that are generated of each sequence.",
     .aliases = "max_new_tokens output_len"},
    {.key = "decode.batch", SP_INT(1, 4096), SP_FIELD(sp_decode_spec, batch), .usual = 1,
     .text = "Sequences that a replica generates at a time.",
     .aliases = "max_num_seqs max_running_requests"},
    {.key = "decode.batch_policy", SP_ONE_OF(sp_batch_policy_names),
     SP_FIELD(sp_decode_spec, policy),
     .text = "Sequences whose trees differ: all as deep and wide as the largest of the batch, each "
             "as it is in one forward, or a forward for each bin of entropy."},
    {.key = "decode.graphs", SP_INT(0, SP_I_MAX_GRAPHS), SP_FIELD(sp_decode_spec, graphs),
     .usual = 64,
     .text = "Shapes of steps (forwards of the target for a batch, with their drafts) whose "
             "captured graphs are kept, those used last (DGO); with 0 they are launched kernel by "
             "kernel."},
    {.key = "decode.eagle_graphs", SP_INT(0, SP_I_MAX_GRAPHS),
     SP_FIELD(sp_decode_spec, eagle_graphs), .derive = as_graphs, .fallback = "as graphs",
     .text = "The same of EAGLE's trees, over which a speed-up is told."},
    {.key = "decode.call_ms", SP_REAL(0, 1e6), SP_FIELD(sp_decode_spec, call_ms),
     .if_changed = true, .usual = -1, .fallback = "that of the profile, else 0",
     .text = "Milliseconds that the host adds to a step with drafted tokens. The profile's is of "
             "one model under one server."},
    {.key = "decode.graph_miss_ms", SP_REAL(0, 1e6), SP_FIELD(sp_decode_spec, graph_miss_ms),
     .if_changed = true, .usual = -1, .fallback = "that of the profile, else 0",
     .text = "Milliseconds more of a step whose shape has no captured graph: it is launched kernel "
             "by kernel, or captured."},
};

// clang-format on

static const sp_setting_table document_settings = SP_SETTING_TABLE("", document_rows);
const sp_setting_table sp_i_precision_settings = SP_SETTING_TABLE("", precision_rows);
const sp_setting_table sp_i_uniform_settings = SP_SETTING_TABLE("uniform_costs", uniform_rows);
const sp_setting_table sp_i_parallel_settings = SP_SETTING_TABLE("parallel", parallel_rows);
const sp_setting_table sp_i_network_settings = SP_SETTING_TABLE("network", network_rows);
const sp_setting_table sp_i_jitter_settings = SP_SETTING_TABLE("jitter", jitter_rows);
const sp_setting_table sp_i_schedule_settings = SP_SETTING_TABLE("schedule", schedule_rows);
const sp_setting_table sp_i_memory_settings = SP_SETTING_TABLE("memory", memory_rows);
const sp_setting_table sp_i_workload_settings = SP_SETTING_TABLE("workload", workload_rows);
const sp_setting_table sp_i_strategy_settings = SP_SETTING_TABLE("strategy", strategy_rows);
const sp_setting_table sp_i_prefill_settings = SP_SETTING_TABLE("prefill", prefill_rows);
const sp_setting_table sp_i_decode_settings = SP_SETTING_TABLE("decode", decode_rows);

// In the order of the pages.
static const sp_setting_table *const sections[] = {
    &document_settings,      &sp_i_precision_settings, &sp_model_settings,
    &sp_i_uniform_settings,  &sp_cluster_settings,     &sp_stack_settings,
    &sp_i_parallel_settings, &sp_i_network_settings,   &sp_i_jitter_settings,
    &sp_i_schedule_settings, &sp_i_memory_settings,    &sp_i_workload_settings,
    &sp_i_strategy_settings, &sp_i_prefill_settings,   &sp_i_decode_settings,
};

const sp_setting *sp_setting_at(int index)
{
    for (size_t s = 0; index >= 0 && s < sizeof sections / sizeof sections[0]; s++) {
        if (index < sections[s]->count) {
            return &sections[s]->rows[index];
        }
        index -= sections[s]->count;
    }
    return NULL;
}

// ---- what a document states ----
//
// A resolved document states all settings, and most as they are where nothing is stated.

// Defaults of a scenario follow from these.
typedef struct defaults {
    const sp_scenario *scenario;
    sp_stack named;
    json_t *stack; // switches of the named stack; owned, NULL: nobody asks
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

// The context and the length of uniform samples follow each from the other; where they are equal
// either may be the stated one.
static int64_t other_tokens(const sp_workload_spec *workload, const char *key)
{
    if (workload->uniform_tokens == workload->context) {
        return SP_I_DEFAULT_UNIFORM_TOKENS;
    }
    return strcmp(key, "workload.context") == 0 ? workload->uniform_tokens : workload->context;
}

// A document with one key of the fabric, read again, has them all: those of the cluster's name.
static json_t *default_of_fabric(const sp_cluster *cluster, const char *leaf)
{
    sp_cluster named;
    if (sp_cluster_builtin(cluster->name, &named, NULL) != SP_OK) {
        named = (sp_cluster){.fabric = {.oversubscription = 1.0, .pxn = true}};
    }
    named.fabric.rails = named.fabric.rails > 0 ? named.fabric.rails : cluster->nics_per_node;
    named.fabric.given = true;
    json_t *document = sp_cluster_to_json(&named);
    json_t *found = json_incref(json_object_get(json_object_get(document, "fabric"), leaf));
    json_decref(document);
    return found;
}

// Defaults that follow from other settings, in the place of the row's words; NULL: none does.
static json_t *derived_default(const defaults *d, const sp_setting *setting)
{
    const char *key = setting->key;
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
    if (strncmp(key, "cluster.fabric.", strlen("cluster.fabric.")) == 0) {
        return default_of_fabric(&scenario->cluster, sp_setting_leaf(key));
    }
    if (strcmp(key, "parallel.sequence_parallel") == 0) {
        return json_boolean(setting->derive(scenario) != 0.0);
    }
    if (strcmp(key, "memory.recompute") == 0) {
        return sp_recompute_json((sp_recompute)setting->derive(scenario));
    }
    if (strcmp(key, "strategy.pad_to") == 0) {
        return json_string(pad_to_names[(int)setting->derive(scenario)]);
    }
    if (strcmp(key, "memory.reserve_gib") == 0 || strcmp(key, "parallel.zero") == 0) {
        return json_real(setting->derive(scenario));
    }
    if (scenario->workload.uniform_tokens > 0 &&
        (strcmp(key, "workload.context") == 0 || strcmp(key, "workload.uniform") == 0)) {
        return json_real((double)other_tokens(&scenario->workload, key));
    }
    if (decode != NULL &&
        (strcmp(key, "decode.alpha") == 0 || strcmp(key, "decode.eagle_graphs") == 0)) {
        return json_real(setting->derive(decode));
    }
    return NULL;
}

static bool is_switch(const sp_setting *setting)
{
    return strncmp(setting->key, "stack.", strlen("stack.")) == 0;
}

// Of a switch that documents state where it is changed alone.
static bool is_as_named(const defaults *d, const sp_setting *setting)
{
    const char *stated = (const char *)&d->scenario->memory.stack + setting->offset;
    return is_switch(setting) &&
           memcmp(stated, (const char *)&d->named + setting->offset, setting->bytes) == 0;
}

// The table says a default as a document would, with more words behind it, or in words alone.
static json_t *default_of(const defaults *d, const sp_setting *setting)
{
    char text[SP_SETTING_TYPE];
    json_t *found = derived_default(d, setting);
    if (found == NULL && is_switch(setting)) {
        found = json_incref(json_object_get(d->stack, setting->key + strlen("stack.")));
    }
    return found != NULL ? found
                         : json_loads(sp_setting_default(setting, text),
                                      JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, NULL);
}

static bool is_equal(const sp_setting *setting, const json_t *value, const json_t *other)
{
    int64_t tokens = 0;
    if (setting->kind == SP_SETTING_TOKENS && json_is_string(value) &&
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
    defaults d = {.scenario = scenario};
    if (switches) {
        d.named = sp_scenario_unchanged_stack(scenario);
        sp_stack_clear_idle(&d.named, &scenario->memory.stack);
        d.stack = sp_stack_to_json(&d.named);
    }
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        // An object that no field stands for is stated by the keys in it.
        bool is_group = setting->kind == SP_SETTING_OBJECT && setting->store == SP_STORE_NOTHING &&
                        sp_setting_section(setting->key) > 0;
        const json_t *value = is_group ? NULL : value_at(root, setting->key);
        json_t *usual = value != NULL ? default_of(&d, setting) : NULL;
        bool is_usual = usual != NULL ? is_equal(setting, value, usual) : is_as_named(&d, setting);
        if (value != NULL && !is_usual) {
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
