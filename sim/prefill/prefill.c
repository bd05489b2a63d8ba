#include "sim/prefill/prefill.h"

#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/base/units.h"
#include "sim/cost/cost_private.h"
#include "sim/inference/forward_time.h"
#include "sim/memory/saved_tensors.h"
#include "sim/plan/walk.h"
#include <math.h>

enum { MOST_CHUNKS = 65536 };

// The plan that one replica runs, and its costs.
typedef struct run {
    const sp_scenario *scenario;
    const sp_batch *batch;
    sp_layout layout;
    sp_cost_model cost;
    sp_packing packing;
    size_t *last_pack; // of each prompt
    sp_plan plan;
    sp_step_costs costs;
} run;

static sp_status refuse(const sp_scenario *scenario, sp_error *err)
{
    const sp_layout *layout = &scenario->layout;
    const char *source = scenario->source;
    if (scenario->uniform) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "uniform_costs",
                           "a model is needed to read prompts");
    }
    if (layout->dp > 1) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "parallel.dp",
                           "prompts are read by one replica, expected 1, got %d", layout->dp);
    }
    if (layout->chunks > 1) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "parallel.chunks_per_rank",
                           "prompts pass each rank once, expected 1, got %d", layout->chunks);
    }
    if (scenario->prefill.attention != SP_PREFILL_DENSE &&
        scenario->memory.attention == SP_ATTENTION_UNFUSED) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "memory.attention",
                           "prefill.attention \"%s\" needs \"flash\", got \"unfused\"",
                           sp_setting_value(sp_setting_find("prefill.attention"),
                                            (int)scenario->prefill.attention));
    }
    if (scenario->prefill.together && scenario->prefill.chunk_tokens > 0) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "prefill.chunk_tokens",
                           "prompts that run together run whole");
    }
    if (scenario->jitter.gpu_cv > 0.0) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "jitter.gpu_cv",
                           "prompts are read by GPUs of one speed, expected 0, got %g",
                           scenario->jitter.gpu_cv);
    }
    if (scenario->model.mtp_layers > 0) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "model.mtp_layers",
                           "reading prompts predicts no further tokens, expected 0, got %d",
                           scenario->model.mtp_layers);
    }
    if (sp_model_has_state(&scenario->model) || sp_model_lacks_blocks(&scenario->model) ||
        scenario->model.attention_gate) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "model.mixer",
                           "prompts are not simulated with layers with a state, layers that are "
                           "attention or an MLP alone, and gates of attention");
    }
    if (sp_model_is_latent(&scenario->model)) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "model.kv_lora_rank",
                           "prompts are not simulated with latent attention, whose keys and values "
                           "later chunks make again from their latents");
    }
    if (sp_model_is_frozen(&scenario->model)) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "model.lora_rank",
                           "reading prompts is not simulated with adapters, expected 0, got %lld",
                           (long long)scenario->model.lora_rank);
    }
    if (sp_precision_is_fp8(&scenario->memory.stack.precision)) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "precision",
                           "\"fp8\" is of training steps: prompts are priced in BF16 alone");
    }
    if (scenario->model.expert_capacity_factor > 0.0) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "model.expert_capacity_factor",
                           "experts drop and pad tokens in training alone, expected 0, got %g",
                           scenario->model.expert_capacity_factor);
    }
    if (scenario->memory.stack.cp_overlap == SP_CP_TASKS && layout->cp > 1 && layout->pp > 1) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "stack.cp_overlap",
                           "\"tasks\" hands attention to other stages in training alone, expected "
                           "parallel.pp 1, got %d",
                           layout->pp);
    }
    if (layout->vocab_parallel) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "parallel.vocab_parallel",
                           "the head runs on the last rank alone, expected false, got true");
    }
    if (sp_layout_dispatches(layout)) {
        return sp_error_in(err, SP_ERR_CONTENT, source,
                           sp_layout_ep(layout) > 1 ? "parallel.ep" : "parallel.etp",
                           "prompts have their experts on every rank, expected parallel.ep 1 and "
                           "parallel.etp 0");
    }
    return sp_scenario_check_shares(scenario, err);
}

// ---- prompts as packs, a chunk each ----

static sp_status add_prompt(run *r, size_t prompt, sp_error *err)
{
    int64_t tokens = r->batch->tokens[prompt];
    int64_t chunk = r->scenario->prefill.chunk_tokens;
    chunk = chunk == 0 ? tokens : chunk;
    if (sp_ceil_div(tokens, chunk) > (int64_t)(MOST_CHUNKS - r->packing.forward.count)) {
        return sp_error_set(err, SP_ERR_LIMIT,
                            "%s: prompts in chunks of %lld tokens are more than %d chunks",
                            r->scenario->source, (long long)chunk, (int)MOST_CHUNKS);
    }
    for (int64_t begin = 0; begin < tokens; begin += chunk) {
        int64_t n = tokens - begin < chunk ? tokens - begin : chunk;
        sp_slice slice = {
            .sample = (int32_t)prompt, .begin = begin, .tokens = n, .computed_tokens = n};
        bool joins = r->scenario->prefill.together && prompt > 0;
        if (!joins) {
            sp_pack_list_begin(&r->packing.forward, 0, 1);
        }
        sp_pack_list_add(&r->packing.forward, slice, begin + n == tokens);
    }
    r->last_pack[prompt] = r->packing.forward.count - 1;
    return SP_OK;
}

static void make_plan(run *r)
{
    sp_plan_init(&r->plan, &r->layout, &r->packing);
    for (int pp = 0; pp < r->layout.pp; pp++) {
        for (size_t k = 0; k < r->packing.forward.count; k++) {
            sp_stage_plan_add(sp_plan_stage(&r->plan, 0, pp), SP_ACTION_F, 0, (int64_t)k);
        }
    }
}

static sp_status run_init(run *r, const sp_scenario *scenario, const sp_batch *batch, sp_error *err)
{
    *r = (run){.scenario = scenario, .batch = batch, .layout = scenario->layout};
    sp_packing_init(&r->packing, batch, 1);
    SP_TRY(refuse(scenario, err));
    sp_status status = SP_OK;
    r->layout.zero = 0; // There are no optimizer states to share.
    r->last_pack = sp_calloc(batch->count, sizeof *r->last_pack);
    for (size_t p = 0; status == SP_OK && p < batch->count; p++) {
        status = add_prompt(r, p, err);
    }
    if (status == SP_OK) {
        make_plan(r);
        sp_memory_options memory = scenario->memory;
        sp_stack_without_training(&memory.stack);
        status = sp_cost_model_init(&r->cost, &scenario->model, &r->layout, &scenario->cluster,
                                    &scenario->profile, memory, scenario->source, err);
    }
    return status;
}

static void run_fini(run *r)
{
    sp_step_costs_fini(&r->costs);
    sp_cost_model_fini(&r->cost);
    sp_plan_fini(&r->plan);
    sp_packing_fini(&r->packing);
    sp_free(r->last_pack);
}

// ---- costs ----

// The head sees the last token of each prompt, where the step of a training sees all.
static int64_t head_ns(run *r, const sp_op_timer *timer, size_t prompts)
{
    double token_s[SP_I_PARTS][SP_I_PASSES];
    sp_i_pack_token_time(r->cost.packs, timer, (double)prompts * r->layout.cp, token_s);
    return sp_ns_from_s(token_s[SP_PART_HEAD][SP_PASS_F]);
}

static void add_heads(run *r, const sp_op_timer *timer)
{
    size_t last = (size_t)r->cost.class_of_vstage[r->layout.pp - 1];
    size_t prompts = 0;
    for (size_t p = 0; p < r->batch->count; p++) {
        prompts++;
        if (p + 1 == r->batch->count || r->last_pack[p + 1] != r->last_pack[p]) {
            r->costs.action[SP_ACTION_F][r->last_pack[p] * (size_t)r->cost.classes + last]
                .compute_ns += head_ns(r, timer, prompts);
            prompts = 0;
        }
    }
}

// Attention of all slices of a pack: their shares weighted by their pairs. `longest` becomes the
// most keys that a slice sees, and *of_longest what its attention takes.
static sp_prefill_attention attention_of(const run *r, const sp_prefill_spec *spec,
                                         const sp_pack *pack, int64_t *longest,
                                         sp_prefill_attention *of_longest)
{
    const sp_scenario *scenario = r->scenario;
    sp_prefill_attention sum = {0};
    double pairs = 0.0;
    for (size_t i = 0; i < pack->slice_count; i++) {
        const sp_slice *slice = &r->packing.forward.slices[pack->first_slice + i];
        double begin = (double)slice->begin;
        double tokens = (double)slice->tokens;
        double own = sp_prefill_pairs(begin, tokens);
        sp_prefill_attention a = sp_prefill_attention_of(spec, &scenario->model, r->layout.tp,
                                                         scenario->workload.seed, begin, tokens);
        sum.share += own * a.share;
        sum.fixed_s += a.fixed_s;
        sum.host_s += a.host_s;
        pairs += own;
        if (slice->begin + slice->tokens >= *longest) {
            *longest = slice->begin + slice->tokens;
            *of_longest = a;
        }
    }
    sum.share /= pairs;
    return sum;
}

// A GPU that is through with a stage's kernels waits for those that the host launches.
static void wait_for_host(sp_action_cost *forward, double host_s)
{
    int64_t wait_ns = sp_ns_from_s(host_s) - sp_action_cost_ns(forward);
    if (wait_ns > 0) {
        forward->compute_ns += wait_ns;
        forward->attention_ns += wait_ns;
        forward->launch_ns += wait_ns;
    }
}

// The forward of a pack on every stage, without the head.
static void price_pack(run *r, const sp_op_timer *timer, size_t k,
                       const sp_prefill_attention *attention)
{
    const sp_pack *pack = &r->packing.forward.packs[k];
    sp_i_pack_time time;
    sp_i_pack_timer_keep(r->cost.packs, attention->share, attention->fixed_s);
    sp_i_pack_time_of(r->cost.packs, timer, &r->packing.forward, pack, true, false, &time);
    for (int c = 0; c < r->cost.classes; c++) {
        sp_stage stage = r->cost.class_stage[c];
        stage.head = false;
        sp_action_cost forward = sp_i_price_forward(&r->cost, timer, pack, &time, &stage);
        wait_for_host(&forward, stage.layers * attention->host_s);
        r->costs.action[SP_ACTION_F][k * (size_t)r->cost.classes + (size_t)c] = forward;
    }
}

static void price_packs(run *r, const sp_prefill_spec *spec, sp_prefill_result *result)
{
    const sp_scenario *scenario = r->scenario;
    sp_op_timer timer = {.cluster = &scenario->cluster,
                         .profile = &scenario->profile,
                         .uncalibrated = &r->cost.uncalibrated};
    int64_t longest = 0;
    for (size_t k = 0; k < r->packing.forward.count; k++) {
        sp_prefill_attention attention =
            attention_of(r, spec, &r->packing.forward.packs[k], &longest, &result->attention);
        price_pack(r, &timer, k, &attention);
    }
    add_heads(r, &timer);
}

// ---- the timeline ----

static sp_status price(void *context, const sp_walk_action *action, sp_walk_outcome *outcome,
                       sp_error *err SP_UNUSED)
{
    const run *r = context;
    size_t at = (size_t)action->place.action.pack * (size_t)r->costs.classes;
    outcome->took =
        r->costs.action[SP_ACTION_F][at + (size_t)r->costs.stages[action->vstage].cost_class];
    return SP_OK;
}

static int64_t transfer_ns(void *context, const sp_plan_place *from, int to)
{
    const run *r = context;
    return sp_step_costs_p2p_ns(&r->costs, 0, (size_t)from->action.pack, from->pp, to,
                                r->layout.pp);
}

// The forwards of prompts follow each other in the order of the packs.
static void take_times(const run *r, const sp_timeline *timeline, bool dense,
                       sp_prefill_result *result)
{
    const sp_span *spans = timeline->ranks[r->layout.pp - 1].spans;
    for (size_t p = 0; p < r->batch->count; p++) {
        int64_t end_ns = spans[r->last_pack[p]].end_ns;
        sp_prefill_prompt *prompt = &result->prompts[p];
        *(dense ? &prompt->dense_ns : &prompt->first_token_ns) = end_ns;
        *(dense ? &result->dense_last_ns : &result->last_ns) = end_ns;
    }
}

static sp_prefill_parts parts_of(const run *r)
{
    sp_prefill_parts most = {0};
    int64_t most_ns = -1;
    for (int pp = 0; pp < r->layout.pp; pp++) {
        sp_prefill_parts own = {0};
        for (size_t k = 0; k < r->packing.forward.count; k++) {
            const sp_action_cost *f =
                &r->costs.action[SP_ACTION_F][k * (size_t)r->costs.classes +
                                              (size_t)r->costs.stages[pp].cost_class];
            own.linear_ns += f->compute_ns - f->attention_ns;
            own.attention_ns += f->attention_ns;
            own.tp_ns += f->tp_ns;
            own.cp_ns += f->cp_ns;
        }
        int64_t ns = own.linear_ns + own.attention_ns + own.tp_ns + own.cp_ns;
        if (ns > most_ns) {
            most = own;
            most_ns = ns;
        }
    }
    return most;
}

static sp_status walk(run *r, bool dense, sp_prefill_observer observer, void *context,
                      sp_prefill_result *result, sp_error *err)
{
    sp_prefill_spec spec = r->scenario->prefill;
    spec.attention = dense ? SP_PREFILL_DENSE : spec.attention;
    sp_walk_driver driver = {.context = r,
                             .run = price,
                             .transfer_ns = transfer_ns,
                             .blocking_transfers = r->costs.blocking_transfers};
    sp_timeline timeline = {0};
    sp_status status = SP_OK;
    price_packs(r, &spec, result);
    *(dense ? &result->dense_parts : &result->parts) = parts_of(r);
    if (status == SP_OK) {
        sp_timeline_init(&timeline, &r->plan);
        status = sp_walk(&r->plan, &driver, &timeline, NULL, err);
    }
    if (status == SP_OK) {
        sp_timeline_finish(&timeline);
        take_times(r, &timeline, dense, result);
        status = observer != NULL ? observer(context, &r->plan, &r->costs, &timeline, err) : SP_OK;
    }
    sp_timeline_fini(&timeline);
    return status;
}

// ---- memory ----

// Hidden states and their norm, and of a layer's two halves the larger: queries, keys, values and
// the attention's output, or the MLP's two sides of its activation function, of every expert that a
// token goes to. Nothing waits for a backward.
static int64_t activation_bytes(const run *r)
{
    const sp_shard shard = sp_shard_of(&r->scenario->model, &r->layout);
    int64_t attention = shard.q + shard.k + shard.v + shard.context;
    int64_t mlp = shard.active * (shard.fc1 + shard.ffn);
    int64_t width = 2 * r->scenario->model.hidden + (attention > mlp ? attention : mlp);
    int64_t most = 0;
    for (size_t k = 0; k < r->packing.forward.count; k++) {
        int64_t tokens = r->packing.forward.packs[k].tokens;
        most = tokens > most ? tokens : most;
    }
    return SP_I_BF16_BYTES * width * sp_ceil_div(most, r->layout.cp);
}

static int64_t score_bytes(const run *r)
{
    int64_t most = 0;
    for (size_t k = 0; k < r->packing.forward.count; k++) {
        const sp_pack *pack = &r->packing.forward.packs[k];
        sp_unit_load load = {.tokens = pack->tokens};
        sp_unit_sizes sizes = {.scores = 0};
        for (size_t i = 0; i < pack->slice_count; i++) {
            const sp_slice *slice = &r->packing.forward.slices[pack->first_slice + i];
            load.pairs += slice->tokens * (slice->begin + slice->tokens);
        }
        sp_unit_sizes_of(&r->scenario->model, &r->layout, &r->scenario->memory, &load, &sizes);
        most = sizes.scores > most ? sizes.scores : most;
    }
    return most;
}

static void take_memory(const run *r, sp_prefill_result *result)
{
    int64_t tokens = sp_ceil_div(r->batch->total_tokens, r->layout.cp);
    sp_i_held fullest = {0};
    for (int pp = 0; pp < r->layout.pp; pp++) {
        sp_i_held own = sp_i_held_by(&r->scenario->model, &r->layout, r->cost.stages, pp, tokens);
        fullest = sp_i_held_bytes(&own) > sp_i_held_bytes(&fullest) ? own : fullest;
    }
    result->parameter_bytes = fullest.parameters;
    result->kv_cache_bytes = fullest.kv_cache;
    result->activation_bytes = activation_bytes(r);
    result->score_bytes = score_bytes(r);
}

sp_status sp_prefill(const sp_scenario *scenario, const sp_batch *batch,
                     sp_prefill_observer observer, void *context, sp_prefill_result *result,
                     sp_error *err)
{
    run r;
    *result = (sp_prefill_result){.count = batch->count};
    sp_status status = run_init(&r, scenario, batch, err);
    if (status == SP_OK) {
        result->prompts = sp_calloc(batch->count, sizeof *result->prompts);
    }
    for (size_t p = 0; status == SP_OK && p < batch->count; p++) {
        result->prompts[p].id = batch->ids[p];
        result->prompts[p].tokens = batch->tokens[p];
    }
    if (status == SP_OK) {
        status = sp_cost_model_build(&r.cost, &r.packing, &r.costs, err);
    }
    if (status == SP_OK) {
        r.cost.uncalibrated = (sp_uncalibrated){0}; // what a backward would have used
        status = walk(&r, true, NULL, NULL, result, err);
    }
    if (status == SP_OK) {
        status = walk(&r, false, observer, context, result, err);
        result->uncalibrated = r.cost.uncalibrated;
        take_memory(&r, result);
    }
    run_fini(&r);
    if (status != SP_OK) {
        sp_prefill_result_fini(result);
    }
    return status;
}

void sp_prefill_result_fini(sp_prefill_result *result)
{
    sp_free(result->prompts);
    *result = (sp_prefill_result){0};
}

// ---- from which length on ----

static sp_status gains(const sp_scenario *scenario, int64_t tokens, bool *gained, sp_error *err)
{
    int64_t id = 0;
    sp_batch one = {.ids = &id, .tokens = &tokens, .count = 1, .total_tokens = tokens};
    sp_prefill_result result;
    sp_status status = sp_prefill(scenario, &one, NULL, NULL, &result, err);
    *gained = status == SP_OK && result.last_ns <= result.dense_last_ns;
    sp_prefill_result_fini(&result);
    return status;
}

sp_status sp_prefill_crossover(const sp_scenario *scenario, int64_t *tokens, sp_error *err)
{
    enum { STEP = 256, MOST = 16384, CHUNKS = 1024 };
    int64_t missed = 0;
    int64_t gained = MOST;
    // A prompt in very many chunks takes long to price.
    if (scenario->prefill.chunk_tokens > 0) {
        int64_t within = scenario->prefill.chunk_tokens * CHUNKS / STEP;
        gained = within < 1 ? 1 : within < MOST ? within : MOST;
    }
    bool does = false;
    sp_scenario all = *scenario; // borrows; read alone
    all.prefill.dense_below = 0;
    *tokens = 0;
    if (scenario->prefill.attention == SP_PREFILL_DENSE) {
        return SP_OK;
    }
    sp_status status = gains(&all, gained * STEP, &does, err);
    if (status != SP_OK || !does) {
        return status;
    }
    while (status == SP_OK && gained - missed > 1) {
        int64_t middle = (missed + gained) / 2;
        status = gains(&all, middle * STEP, &does, err);
        *(does ? &gained : &missed) = middle;
    }
    *tokens = gained * STEP;
    return status;
}

// ---- the result as a document ----

// A reader of the times should know these.
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
        json_array_append_new(
            array, sp_json_object(SP_JSON("id", prompt->id), SP_JSON("tokens", prompt->tokens),
                                  SP_JSON("ttft_ms", sp_ms_from_ns(prompt->first_token_ns)),
                                  SP_JSON("dense_ttft_ms", sp_ms_from_ns(prompt->dense_ns))));
    }
    return array;
}

static json_t *parts_object(const sp_prefill_parts *parts)
{
    return sp_json_object(SP_JSON("linear", sp_ms_from_ns(parts->linear_ns)),
                          SP_JSON("attention", sp_ms_from_ns(parts->attention_ns)),
                          SP_JSON("tp_comm", sp_ms_from_ns(parts->tp_ns)),
                          SP_JSON("cp_comm", sp_ms_from_ns(parts->cp_ns)));
}

static json_t *attention_object(const sp_scenario *scenario, const sp_prefill_result *result,
                                int64_t crossover_tokens)
{
    const sp_prefill_attention *a = &result->attention;
    double sparse_ns = (double)result->parts.attention_ns;
    json_t *b =
        sp_json_object(SP_JSON("method", sp_prefill_names[scenario->prefill.attention]),
                       SP_JSON("speedup", (double)result->dense_parts.attention_ns / sparse_ns),
                       SP_JSON("share", a->share));
    if (scenario->prefill.attention == SP_PREFILL_SAMPLE) {
        sp_json_add(b, SP_JSON("alpha", scenario->prefill.alpha), SP_JSON("window", a->window),
                    SP_JSON("sampling", a->sampling), SP_JSON("bottom", a->bottom),
                    SP_JSON("stripes", a->stripes), SP_JSON("fixed_ms_per_layer", 1e3 * a->fixed_s),
                    SP_JSON("densest_head_over_mean", a->densest_over_mean),
                    SP_JSON("slowest_rank_over_mean", a->slowest_over_mean));
    }
    sp_json_put(b, "crossover_tokens",
                crossover_tokens > 0 ? json_integer(crossover_tokens) : json_null());
    return b;
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
    json_t *b = sp_json_object(SP_JSON("profile", scenario->profile.name));
    const char *assumed = sp_prefill_sources[scenario->prefill.attention].text;
    if (assumed[0] != '\0') {
        sp_json_put(b, "attention", json_string(assumed));
    }
    sp_json_put(b, "level", json_string(sp_level_names[weakest_level(scenario)]));
    return b;
}

static json_t *memory_object(const sp_scenario *scenario, const sp_prefill_result *result)
{
    return sp_json_object(SP_JSON("parameters", sp_gib_from_bytes(result->parameter_bytes)),
                          SP_JSON("kv_cache", sp_gib_from_bytes(result->kv_cache_bytes)),
                          SP_JSON("activations", sp_gib_from_bytes(result->activation_bytes)),
                          SP_JSON("scores", sp_gib_from_bytes(result->score_bytes)),
                          SP_JSON("limit", sp_gib_from_bytes(scenario->memory_limit_bytes)),
                          SP_JSON("fits", sp_prefill_fits(scenario, result)));
}

json_t *sp_prefill_json(const sp_scenario *scenario, const sp_prefill_result *result,
                        int64_t crossover_tokens)
{
    return sp_json_object(
        SP_JSON("schema", "slimpack/prefill/1"), SP_JSON("model", scenario->model.name),
        SP_JSON("ttft_ms", sp_ms_from_ns(result->last_ns)),
        SP_JSON("dense_ttft_ms", sp_ms_from_ns(result->dense_last_ns)),
        SP_JSON("speedup", (double)result->dense_last_ns / (double)result->last_ns),
        SP_JSON("prompts", prompts_array(result)),
        SP_JSON("attention", attention_object(scenario, result, crossover_tokens)),
        SP_JSON("time_breakdown_ms", parts_object(&result->parts)),
        SP_JSON("dense_time_breakdown_ms", parts_object(&result->dense_parts)),
        SP_JSON("memory_gib", memory_object(scenario, result)),
        SP_JSON("provenance", provenance_object(scenario)),
        SP_JSON("uncalibrated", sp_uncalibrated_json(&result->uncalibrated)),
        SP_JSON("warnings", sp_prefill_warnings_json(scenario)),
        SP_JSON("not_modelled", sp_json_texts(sp_prefill_not_modelled)),
        SP_JSON("seed", scenario->workload.seed), SP_JSON("version", SP_VERSION));
}

// ---- Attention that does not read every key ----

#define XATTENTION_FIGURE                                                                          \
    "the speed-up of attention is read off a figure of XAttention's authors: Llama-3.1-8B, 8K to " \
    "256K tokens, GPU not stated"

const sp_prefill_source sp_prefill_sources[SP_PREFILL_METHODS] = {
    [SP_PREFILL_DENSE] = {SP_LEVEL_MEASURED, 0.0, HUGE_VAL, ""},
    [SP_PREFILL_SAMPLE] = {SP_LEVEL_FITTED, 16384.0, 1048576.0,
                           "what stripes keep and the fixed time are fitted to four second-hand "
                           "figures: an A100, alpha 0.80 and 0.95, 16K to 1M tokens"},
    [SP_PREFILL_MINFERENCE] = {SP_LEVEL_FITTED, 10e3, 500e3,
                               "three constants are fitted to its own tables: Llama-3-8B on an "
                               "A100, 10K to 500K tokens; of its row at 1000K, left out, the "
                               "computed time misses a quarter"},
    [SP_PREFILL_FLEXPREFILL] = {SP_LEVEL_PUBLISHED, 8192.0, 262144.0, XATTENTION_FIGURE},
    [SP_PREFILL_XATTENTION] = {SP_LEVEL_PUBLISHED, 8192.0, 262144.0, XATTENTION_FIGURE},
};

// ---- SampleAttention (arXiv 2406.15486, version 2) ----

// Neither the share that stripes keep nor the time that does not depend on the length is published.
// Both were fitted with the profile a100-prefill and ChatGLM2-6B's shape to figures of a
// machine-written summary of the paper: at 96K attention is 2.20 times as fast with alpha 0.95
// and 5.12 times with 0.80, at 1M the first token comes 2.42 times as fast with 0.95, and below
// about 16K nothing is gained. The times to the first token at 96K are left out. Of other alphas
// nothing is known: the power joins the two.
#define STRIPES_96K_95 0.2616
#define STRIPES_BY_ALPHA 3.41
#define STRIPES_BY_LENGTH 0.0933
#define FIXED_US 190.0

// The paper names sparsities of single heads from 27.4 % to 99.8 %.
#define LEAST_STRIPES 0.002
#define MOST_STRIPES 0.726

enum { BOTTOM_ROWS = 128 };

// Pairs of the first x queries that a window of w keys holds.
static double window_pairs(double x, double w)
{
    return x <= w ? x * x / 2.0 : w * w / 2.0 + (x - w) * w;
}

// The mean over heads.
static double stripes_of(const sp_prefill_spec *spec, double keys)
{
    if (spec->stripe_share >= 0.0) {
        return spec->stripe_share;
    }
    double dropped = fmax(1.0 - spec->alpha, 1e-6) / 0.05;
    return fmin(1.0, STRIPES_96K_95 * pow(dropped, -STRIPES_BY_ALPHA) *
                         pow(keys / 98304.0, -STRIPES_BY_LENGTH));
}

// Share of head `rank` of n by density, ascending: from the least to the most as a power of the
// rank, whose mean is `mean`.
static double stripes_of_head(double mean, int rank, int n)
{
    if (mean <= LEAST_STRIPES || mean >= MOST_STRIPES) {
        return mean;
    }
    double power = (MOST_STRIPES - LEAST_STRIPES) / (mean - LEAST_STRIPES) - 1.0;
    double from = pow((double)rank / n, power + 1.0);
    double to = pow((double)(rank + 1) / n, power + 1.0);
    return LEAST_STRIPES + (mean - LEAST_STRIPES) * n * (to - from);
}

static void shuffle(sp_prng *prng, int n, int *order)
{
    for (int i = 0; i < n; i++) {
        int j = (int)sp_prng_below(prng, (uint64_t)i + 1);
        order[i] = i;
        order[i] = order[j];
        order[j] = i;
    }
}

// The pairs that stripes add to each head, by density ascending, where all keys but `most` are kept
// anyway; returns the mean.
static double stripes_of_heads(double mean, double most, int heads, double stripes[])
{
    double sum = 0.0;
    for (int h = 0; h < heads; h++) {
        stripes[h] = fmin(stripes_of_head(mean, h, heads), most);
        sum += stripes[h];
    }
    return sum / heads;
}

// The stripes of the rank whose heads have most, the mean over layers. Heads are drawn in each
// layer.
static double stripes_of_slowest(const sp_model *model, int tp, uint64_t seed,
                                 const double stripes[])
{
    int order[SP_I_MAX_HEADS];
    int each = model->heads / tp;
    double sum = 0.0;
    sp_prng prng;
    sp_prng_seed(&prng, seed);
    for (int layer = 0; layer < model->layers; layer++) {
        double slowest = 0.0;
        shuffle(&prng, model->heads, order);
        for (int rank = 0; rank < tp; rank++) {
            double own = 0.0;
            for (int h = rank * each; h < (rank + 1) * each; h++) {
                own += stripes[order[h]] / each;
            }
            slowest = fmax(slowest, own);
        }
        sum += slowest;
    }
    return sum / model->layers;
}

static sp_prefill_attention sampled(const sp_prefill_spec *spec, const sp_model *model, int tp,
                                    uint64_t seed, double begin, double tokens)
{
    double stripes[SP_I_MAX_HEADS];
    double keys = begin + tokens;
    double pairs = sp_prefill_pairs(begin, tokens);
    double window = fmax(1.0, ceil(spec->window_share * keys));
    sp_prefill_attention a = {
        .window = (window_pairs(keys, window) - window_pairs(begin, window)) / pairs,
        // Half of the products, those of queries and keys, of the sampled queries.
        .sampling = 0.5 * spec->row_share,
        .fixed_s = (spec->fixed_us >= 0.0 ? spec->fixed_us : FIXED_US) * 1e-6 * model->heads / tp};
    a.bottom = fmin(1.0 - a.window, BOTTOM_ROWS * keys / pairs);
    a.stripes =
        stripes_of_heads(stripes_of(spec, keys), 1.0 - a.window - a.bottom, model->heads, stripes);
    double floor = a.window + a.bottom + a.sampling;
    double mean = floor + a.stripes;
    double densest = floor + stripes[model->heads - 1];
    a.share = spec->deal == SP_PREFILL_BY_HEADS
                  ? densest
                  : floor + stripes_of_slowest(model, tp, seed, stripes);
    a.densest_over_mean = densest / mean;
    a.slowest_over_mean = a.share / mean;
    return a;
}

// ---- MInference ----

// A query keeps so many keys: the vertical lines and slashes of the first configuration that the
// repository names (1000, 6096). The share of dense attention's rate at which they are read, and
// the time of each head and layer beside it, were fitted to MInference's own table of Llama-3-8B
// on one A100 (microsoft/MInference, experiments/README.md) at 50K, 300K and 500K. Head after head
// the host launches many small kernels, which takes longer than a short prompt's kernels
// themselves: with vLLM, too, 1K tokens take no less than 10K do (3017 and 2762 ms for 81 and 832
// of dense attention), of which the latter is what 32 layers of 32 heads take.
#define MINFERENCE_KEYS 7096.0
#define MINFERENCE_RATE 0.44
#define MINFERENCE_FIXED_US 830.0
#define MINFERENCE_HOST_US 2697.0

static sp_prefill_attention vertical_slash(const sp_model *model, int tp, double begin,
                                           double tokens)
{
    double pairs = sp_prefill_pairs(begin, tokens);
    double kept =
        window_pairs(begin + tokens, MINFERENCE_KEYS) - window_pairs(begin, MINFERENCE_KEYS);
    return (sp_prefill_attention){.share = kept / pairs / MINFERENCE_RATE,
                                  .fixed_s = MINFERENCE_FIXED_US * 1e-6 * model->heads / tp,
                                  .host_s = MINFERENCE_HOST_US * 1e-6 * model->heads / tp,
                                  .densest_over_mean = 1.0,
                                  .slowest_over_mean = 1.0};
}

// ---- other methods ----

// Speed-up of attention over full attention by length: read off the figure of XAttention's
// repository (mit-han-lab/x-attention; Llama-3.1-8B by its script, the GPU is not stated). Choosing
// the keys is part of it.
static const double curve_from = 8192.0;
enum { CURVE_POINTS = 6 };
static const double flexprefill[CURVE_POINTS] = {0.2, 1.0, 2.2, 3.9, 6.0, 7.6};
static const double xattention[CURVE_POINTS] = {1.7, 2.2, 3.2, 4.3, 7.1, 9.8};

// Straight in the logarithms of both; beyond the figure along its last piece, before it along its
// first, though no slower than there or than dense attention, whichever is slower: of shorter
// prompts nothing is known, and they do not take longer.
static double speedup_of(const double *curve, double keys)
{
    double octave = log2(keys / curve_from);
    int i = (int)fmin(fmax(floor(octave), 0.0), CURVE_POINTS - 2);
    double speedup = curve[i] * pow(curve[i + 1] / curve[i], octave - i);
    return fmax(speedup, fmin(curve[0], 1.0));
}

sp_prefill_attention sp_prefill_attention_of(const sp_prefill_spec *spec, const sp_model *model,
                                             int tp, uint64_t seed, double begin, double tokens)
{
    sp_prefill_attention a = {
        .dense = true, .share = 1.0, .densest_over_mean = 1.0, .slowest_over_mean = 1.0};
    double keys = begin + tokens;
    if (keys < (double)spec->dense_below) {
        return a;
    }
    switch (spec->attention) {
    case SP_PREFILL_SAMPLE:
        return spec->alpha < 1.0 ? sampled(spec, model, tp, seed, begin, tokens) : a;
    case SP_PREFILL_MINFERENCE:
        return vertical_slash(model, tp, begin, tokens);
    case SP_PREFILL_FLEXPREFILL:
        a.dense = false;
        a.share = 1.0 / speedup_of(flexprefill, keys);
        return a;
    case SP_PREFILL_XATTENTION:
        a.dense = false;
        a.share = 1.0 / speedup_of(xattention, keys);
        return a;
    case SP_PREFILL_DENSE:
    case SP_PREFILL_METHODS:
        break;
    }
    return a;
}
