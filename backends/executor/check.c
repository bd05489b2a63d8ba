#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/executor/run.h"
#include "sim/base/alloc.h"
#include "sim/base/units.h"

// One option of a request.
typedef struct setting {
    const char *backend, *key, *text;
} setting;

static sp_status wrong(const setting *s, const char *expected, sp_error *err)
{
    return sp_error_set(err, SP_ERR_USAGE, "backend '%s': %s: expected %s, got \"%.64s\"",
                        s->backend, s->key, expected, s->text);
}

static sp_status read_number(const setting *s, double *number, sp_error *err)
{
    char *end;
    *number = strtod(s->text, &end);
    bool good = end != s->text && *end == '\0' && isfinite(*number) && *number >= 0.0;
    return good ? SP_OK : wrong(s, "a number of 0 or more", err);
}

static sp_status read_steps(const setting *s, int64_t *steps, sp_error *err)
{
    char *end;
    errno = 0;
    *steps = strtoll(s->text, &end, 10);
    bool good = end != s->text && *end == '\0' && errno == 0 && *steps >= 0;
    return good ? SP_OK : wrong(s, "a number of steps, 0 or more", err);
}

static sp_status read_share(const setting *s, double *share, sp_error *err)
{
    sp_status status = read_number(s, share, err);
    return status == SP_OK && *share >= 1.0 ? wrong(s, "a number below 1", err) : status;
}

static sp_status read_step(const setting *s, int steps, int64_t *step, sp_error *err)
{
    char *end;
    char expected[48];
    *step = strtol(s->text, &end, 10);
    snprintf(expected, sizeof expected, "a step from 1 to %d", steps);
    bool good = end != s->text && *end == '\0' && *step >= 1 && *step <= steps;
    return good ? SP_OK : wrong(s, expected, err);
}

// The number of the option's word among some, or an error.
static sp_status read_word(const setting *s, const char *const *words, const char *expected,
                           int *word, sp_error *err)
{
    for (*word = 0; words[*word] != NULL; ++*word) {
        if (strcmp(s->text, words[*word]) == 0) {
            return SP_OK;
        }
    }
    return wrong(s, expected, err);
}

static sp_status read_rounded(const setting *s, bool *rounded, sp_error *err)
{
    static const char *const words[] = {"false", "true", NULL};
    int word;
    sp_status status = read_word(s, words, "\"true\" or \"false\"", &word, err);
    *rounded = word == 1;
    return status;
}

// On the CPU the exchange of keys is part of the attention that waits for it, and cannot be told
// from it.
static sp_status read_links(const setting *s, sp_i_exec_options *options, sp_error *err)
{
    static const char *const words[] = {"off", "emulated", "predicted", NULL};
    int word;
    const bool on_gpu = strcmp(s->backend, "cuda") == 0;
    sp_status status = read_word(
        s, words, on_gpu ? "\"off\", \"emulated\" or \"predicted\"" : "\"off\" or \"emulated\"",
        &word, err);
    options->emulated_links = word > 0;
    options->predicted_exchanges = word > 1;
    return status == SP_OK && word > 1 && !on_gpu
               ? wrong(s, "\"off\" or \"emulated\" (\"predicted\" is for GPUs)", err)
               : status;
}

static sp_status read_measure(const setting *s, sp_i_exec_measure *measure, sp_error *err)
{
    static const char *const words[] = {"table", "real", "taken", NULL}; // by sp_i_exec_measure
    int word;
    sp_status status = read_word(s, words, "\"table\", \"real\" or \"taken\"", &word, err);
    *measure = (sp_i_exec_measure)word;
    return status;
}

// "routed:4" is for the backend that has plain memory.
static sp_status read_attention(const setting *s, sp_i_exec_options *options, sp_error *err)
{
    static const char *const words[] = {"gathered", "ring", NULL};
    int word;
    char end;
    if (strcmp(s->backend, "host") == 0 &&
        sscanf(s->text, "routed:%d%c", &options->attention_node, &end) == 1 &&
        options->attention_node > 0) {
        options->attention_way = SP_COMM_ROUTED;
        return SP_OK;
    }
    sp_status status =
        read_word(s, words, "\"gathered\", \"ring\" or, on the CPU, \"routed:N\"", &word, err);
    options->attention_way = word == 1 ? SP_COMM_RING : SP_COMM_GATHERED;
    return status;
}

bool sp_i_exec_names(const char *option, const sp_plan *plan, const sp_plan_place *place)
{
    char action[32];
    char name[64];
    if (option == NULL) {
        return false;
    }
    sp_action_name(place->action, plan->layout.chunks, action);
    snprintf(name, sizeof name, "%s@%d.%d", action, place->dp, place->pp);
    return strcmp(option, name) == 0;
}

static sp_status read_action(const sp_plan *plan, const setting *s, const char **option,
                             sp_error *err)
{
    for (int d = 0; d < plan->layout.dp; d++) {
        for (int p = 0; p < plan->layout.pp; p++) {
            const sp_stage_plan *stage = sp_plan_stage(plan, d, p);
            for (size_t a = 0; a < stage->count; a++) {
                sp_plan_place place = {.dp = d, .pp = p, .action = stage->actions[a]};
                if (sp_i_exec_names(s->text, plan, &place)) {
                    *option = s->text;
                    return SP_OK;
                }
            }
        }
    }
    return wrong(s, "ACTION@DP.PP, an action of the plan", err);
}

// Bytes are counted as the request's stack counts them, for a measurement beside its prediction.
static sp_i_exec_measure measure_of(const sp_run_request *request)
{
    bool real = request->precision == SP_BF16 && request->memory != NULL &&
                sp_stack_counts_device(&request->memory->stack);
    return real ? SP_I_EXEC_REAL : SP_I_EXEC_TABLE;
}

sp_status sp_i_exec_options_read(const sp_run_request *request, const char *backend,
                                 sp_i_exec_options *options, sp_error *err)
{
    *options = (sp_i_exec_options){.measure = measure_of(request),
                                   .learning_rate = 1e-3,
                                   .weight_decay = 0.1,
                                   .fault_step = 1,
                                   .attention_way = SP_COMM_GATHERED};
    for (size_t o = 0; o < request->option_count; o++) {
        const char *key = request->options[o].key;
        const char *value = request->options[o].value;
        const setting s = {backend, key, value};
        if (strcmp(key, "learning_rate") == 0) {
            SP_TRY(read_number(&s, &options->learning_rate, err));
        } else if (strcmp(key, "warmup") == 0) {
            SP_TRY(read_steps(&s, &options->warmup, err));
        } else if (strcmp(key, "weight_decay") == 0) {
            SP_TRY(read_number(&s, &options->weight_decay, err));
        } else if (strcmp(key, "clip") == 0) {
            SP_TRY(read_number(&s, &options->clip, err));
        } else if (strcmp(key, "dropout") == 0) {
            SP_TRY(read_share(&s, &options->dropout, err));
        } else if (strcmp(key, "rounded") == 0) {
            SP_TRY(read_rounded(&s, &options->rounded, err));
        } else if (strcmp(key, "text") == 0) {
            options->text = value;
        } else if (strcmp(key, "fail") == 0) {
            SP_TRY(read_action(request->plan, &s, &options->fail, err));
        } else if (strcmp(key, "stall") == 0) {
            SP_TRY(read_action(request->plan, &s, &options->stall, err));
        } else if (strcmp(key, "exhaust") == 0) {
            SP_TRY(read_action(request->plan, &s, &options->exhaust, err));
        } else if (strcmp(key, "fault_step") == 0) {
            SP_TRY(read_step(&s, request->steps, &options->fault_step, err));
        } else if (strcmp(key, "attention") == 0) {
            SP_TRY(read_attention(&s, options, err));
        } else if (strcmp(key, "links") == 0) {
            SP_TRY(read_links(&s, options, err));
        } else if (strcmp(key, "bytes") == 0) {
            SP_TRY(read_measure(&s, &options->measure, err));
        }
    }
    return SP_OK;
}

double sp_i_exec_learning_rate(const sp_i_exec_options *options, int64_t step)
{
    return step < options->warmup ? options->learning_rate * (double)step / (double)options->warmup
                                  : options->learning_rate;
}

// ---- What is refused ----

SP_PRINTF(3, 4)
static sp_status cannot(const char *backend, sp_error *err, const char *format, ...)
{
    char text[SP_ERROR_TEXT / 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return sp_error_set(err, SP_ERR_CONTENT, "backend '%s' cannot execute %s", backend, text);
}

static int64_t longest_sample(const sp_packing *packing)
{
    int64_t longest = 0;
    for (size_t s = 0; packing->batch != NULL && s < packing->batch->count; s++) {
        int64_t tokens = packing->batch->tokens[s];
        longest = tokens > longest ? tokens : longest;
    }
    return longest;
}

sp_status sp_i_exec_check_model(const char *backend, unsigned layers, const sp_model *model,
                                int64_t longest, sp_error *err)
{
    char attention[96];
    char rotary[64];
    char learned[96];
    const bool has_experts = sp_model_most_experts(model) > 0 && (layers & SP_I_EXEC_EXPERTS) == 0;
    const int64_t seen = sp_model_least_seen(model);
    snprintf(attention, sizeof attention, "attention to %lld tokens in a sample of %lld",
             (long long)seen, (long long)longest);
    snprintf(rotary, sizeof rotary, "rotary positions of %lld features",
             (long long)sp_model_rotary_dim(model));
    snprintf(learned, sizeof learned, "a sample of %lld tokens with %lld learned positions",
             (long long)longest, (long long)model->max_positions);
    const struct {
        bool is;
        const char *what;
    } refused[] = {
        {has_experts, "experts"},
        {!has_experts && model->runs > 0 && (layers & SP_I_EXEC_KINDS) == 0,
         "layers of several kinds"},
        {model->expert_groups > 0, "groups of experts (model.expert_groups)"},
        {model->expert_capacity_factor > 0.0,
         "a capacity of experts (model.expert_capacity_factor)"},
        {model->expert_latent > 0, "experts of latents (model.expert_latent)"},
        {model->forced_routing, "routing that is forced (model.expert_imbalance)"},
        {sp_model_is_latent(model) && (layers & SP_I_EXEC_LATENTS) == 0, "latent attention"},
        {sp_model_has_state(model) || sp_model_lacks_blocks(model),
         "layers with a state, or without attention or an MLP (model.mixer)"},
        {model->positional == SP_NO_POSITIONS,
         "models without positions (model.positional \"none\")"},
        {model->attention_gate, "gates of attention (model.attention_gate)"},
        {model->mtp_layers > 0, "layers that predict further tokens (model.mtp_layers)"},
        {sp_model_is_frozen(model), "adapters (model.lora_rank)"},
        {seen > 0 && longest > seen && (layers & SP_I_EXEC_WINDOWS) == 0, attention},
        {model->activation == SP_GEGLU, "GEGLU"},
        {model->activation == SP_SQUARED_RELU, "squared ReLU"},
        {model->blocks != SP_BLOCKS_IN_TURN, "attention and MLP side by side (model.blocks)"},
        {model->post_norms_alone,
         "attention and MLP without norms before them (model.post_norms_alone)"},
        {model->post_norms && !model->post_norms_alone,
         "norms behind attention and MLP (model.post_norms)"},
        {model->soft_caps && !model->post_norms, "caps on attention scores (model.soft_caps)"},
        {!model->bias && (model->output_bias || model->mlp_bias),
         "biases on the attention or the MLP alone"},
        {model->head_bias, "a bias on the LM head"},
        {model->attention_sinks, "attention sinks"},
        {model->qk_norm, "norms of queries and keys"},
        {model->positional == SP_ROPE && sp_model_rotary_dim(model) % 2 != 0, rotary},
        {model->positional == SP_LEARNED && longest > model->max_positions, learned},
    };
    sp_status status = SP_OK;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        status = refused[i].is ? cannot(backend, err, "%s", refused[i].what) : status;
    }
    return status;
}

// Experts over several ranks (parallel.ep): those of data-parallel ranks alone, which run side by
// side, and whose rows stay where their forward put them.
static sp_status check_spread_experts(const char *backend, const sp_run_request *request,
                                      sp_error *err)
{
    const sp_layout *layout = &request->plan->layout;
    if (sp_layout_etp(layout) > 1) {
        return cannot(backend, err, "experts of which each is split over ranks (parallel.etp)");
    }
    const char *beside =
        layout->cp > 1                             ? "context parallelism (parallel.cp)"
        : layout->zero > 0                         ? "sharded states (parallel.zero)"
        : layout->vocab_parallel && layout->pp > 1 ? "a vocabulary spread over the pipeline ranks"
        : request->plan->packing->backward.count > 0
            ? "backward packs that differ from the forward packs"
        : request->memory != NULL && request->memory->offload_ratio > 0.0 ? "offload"
        : request->clock == SP_CLOCK_VIRTUAL ? "the virtual clock (take the wall clock)"
                                             : NULL;
    if (beside != NULL) {
        return cannot(backend, err, "experts on several ranks (parallel.ep) beside %s", beside);
    }
    const sp_stack none = {.dispatcher = SP_DISPATCH_ALLTOALL};
    const sp_stack *stack = request->memory != NULL ? &request->memory->stack : &none;
    if (stack->dispatcher != SP_DISPATCH_ALLTOALL) {
        return cannot(backend, err, "dispatcher \"%s\" (stack.dispatcher), but \"%s\" alone",
                      sp_dispatcher_names[stack->dispatcher],
                      sp_dispatcher_names[SP_DISPATCH_ALLTOALL]);
    }
    if (stack->expert_overlap || stack->shared_expert_overlap) {
        return cannot(backend, err, "exchanges of experts behind other work (stack.%s)",
                      stack->expert_overlap ? "expert_overlap" : "shared_expert_overlap");
    }
    if (sp_layout_ep(layout) > SP_I_EXEC_MOST_EXPERT_RANKS) {
        return cannot(backend, err, "experts on more than %d ranks", SP_I_EXEC_MOST_EXPERT_RANKS);
    }
    return sp_layout_check(layout, request->model,
                           request->source != NULL ? request->source : "plan", err);
}

// Experts beside which hidden states are split are not computed.
static sp_status check_experts(const char *backend, const sp_run_request *request, sp_error *err)
{
    const sp_layout *layout = &request->plan->layout;
    if (sp_model_most_experts(request->model) == 0) {
        return SP_OK;
    }
    if (layout->tp > 1) {
        return cannot(backend, err, "experts beside tensor parallelism (parallel.tp)");
    }
    return sp_layout_dispatches(layout) ? check_spread_experts(backend, request, err) : SP_OK;
}

static sp_status check_latents(const char *backend, const sp_run_request *request, sp_error *err)
{
    const sp_pack_list *packs = &request->plan->packing->forward;
    bool zones = false;
    for (size_t s = 0; s < packs->slice_count; s++) {
        zones = zones || packs->slices[s].zone != 0;
    }
    if (!sp_model_is_latent(request->model)) {
        return SP_OK;
    }
    if (request->plan->layout.tp > 1) {
        return cannot(backend, err, "latent attention beside tensor parallelism (parallel.tp)");
    }
    return zones ? cannot(backend, err, "latent attention on some of a pack's ranks (zones)")
                 : SP_OK;
}

// The keys of a sample stand where all its slices ran.
static sp_status check_ranks(const char *backend, const sp_packing *packing, sp_error *err)
{
    const sp_pack_list *packs = &packing->forward;
    size_t samples = packing->batch != NULL ? packing->batch->count : 0;
    const sp_pack **first = sp_calloc(samples, sizeof *first);
    sp_status status = SP_OK;
    for (size_t p = 0; status == SP_OK && p < packs->count; p++) {
        const sp_pack *pack = &packs->packs[p];
        for (size_t s = 0; status == SP_OK && s < pack->slice_count; s++) {
            int32_t sample = packs->slices[pack->first_slice + s].sample;
            const sp_pack **seen = &first[sample];
            *seen = *seen != NULL ? *seen : pack;
            if ((*seen)->dp_first != pack->dp_first || (*seen)->dp_count != pack->dp_count) {
                status =
                    cannot(backend, err, "sample %d, whose slices are on different ranks", sample);
            }
        }
    }
    sp_free(first);
    return status;
}

// The other pipeline ranks' share of the vocabulary belongs to no action of theirs.
static sp_status check_vocabulary(const char *backend, const sp_run_request *request,
                                  sp_status status, sp_error *err)
{
    if (request->memory != NULL && request->memory->offload_ratio > 0.0) {
        status = cannot(backend, err, "offload beside a vocabulary spread over the pipeline ranks");
    }
    return status;
}

static sp_status check_layers(const sp_run_request *request, sp_error *err)
{
    const sp_layout *layout = &request->plan->layout;
    sp_stage *parts = sp_calloc((size_t)sp_layout_vstages(layout), sizeof *parts);
    const char *source = request->source != NULL ? request->source : "plan";
    sp_status status = sp_layout_stages(layout, request->model, source, parts, err);
    sp_free(parts);
    return status;
}

// Nothing keeps a message back on the wall clock. Times of links must be there, and of this plan.
static sp_status check_links(const char *backend, const sp_run_request *request, bool predicted,
                             sp_error *err)
{
    const sp_packing *packing = request->plan->packing;
    if (request->clock == SP_CLOCK_WALL) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': links: can be emulated on the virtual clock alone",
                            backend);
    }
    const sp_link_times links = sp_run_request_links(request);
    if (predicted && request->costs == NULL) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': links: the request has no times of exchanges", backend);
    }
    if (links.crosses_nodes == NULL) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': links: the request has no times to emulate links with",
                            backend);
    }
    if (links.count[0] != packing->forward.count ||
        links.count[1] != sp_packing_backward(packing)->count) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': links: the times of links are those of another plan",
                            backend);
    }
    return SP_OK;
}

sp_status sp_i_exec_check(const sp_run_request *request, const char *backend, unsigned layers,
                          sp_error *err)
{
    sp_i_exec_options options;
    sp_status status = sp_i_exec_options_read(request, backend, &options, err);
    if (status != SP_OK || request->model == NULL) {
        return status;
    }
    status = sp_i_exec_check_model(backend, layers, request->model,
                                   longest_sample(request->plan->packing), err);
    if (request->memory != NULL && request->memory->attention == SP_ATTENTION_UNFUSED) {
        status = cannot(backend, err, "unfused attention");
    }
    if (request->memory != NULL && sp_precision_is_fp8(&request->memory->stack.precision)) {
        status = cannot(backend, err, "FP8 products (precision \"fp8\")");
    }
    if (sp_layout_zero_ranks(&request->plan->layout) <
        request->plan->layout.dp * request->plan->layout.cp) {
        status = cannot(backend, err, "ZeRO in groups of ranks (parallel.zero_group)");
    }
    if (request->plan->layout.tp > SP_I_EXEC_MOST_PARTS) {
        status = cannot(backend, err, "more than %d tensor-parallel ranks", SP_I_EXEC_MOST_PARTS);
    }
    if (request->plan->layout.vocab_parallel && request->plan->layout.pp > 1) {
        status = check_vocabulary(backend, request, status, err);
    }
    sp_status links = options.emulated_links
                          ? check_links(backend, request, options.predicted_exchanges, err)
                          : SP_OK;
    sp_status experts = check_experts(backend, request, err);
    sp_status latents = check_latents(backend, request, err);
    sp_status ranks = check_ranks(backend, request->plan->packing, err);
    sp_status stages = check_layers(request, err);
    status = status != SP_OK ? status : links;
    status = status != SP_OK ? status : experts;
    status = status != SP_OK ? status : latents;
    status = status != SP_OK ? status : ranks;
    return status != SP_OK ? status : stages;
}

static sp_status refuse_processes(const sp_i_exec_site *site, const char *what, sp_error *err)
{
    return sp_error_set(err, SP_ERR_CONTENT,
                        "backend '%s' cannot execute %s ranks in processes of their own",
                        site->backend, what);
}

// ZeRO 2 and 3 reach into the memory of other ranks, keys and values go round through it, and
// so do rows of experts.
sp_status sp_i_exec_check_transport(const sp_run_request *request, const sp_i_exec_site *site,
                                    sp_error *err)
{
    const sp_layout *layout = &request->plan->layout;
    sp_i_exec_options options;
    if (site->transport == NULL) {
        return SP_OK;
    }
    if (site->transport->ranks != sp_layout_ranks(layout)) {
        return sp_error_set(
            err, SP_ERR_CONTENT, "backend '%s': a plan of %lld ranks cannot run on %d processes",
            site->backend, (long long)sp_layout_ranks(layout), site->transport->ranks);
    }
    SP_TRY(sp_i_exec_options_read(request, site->backend, &options, err));
    if (request->clock != SP_CLOCK_WALL) {
        return refuse_processes(site, "virtual time on", err);
    }
    if (layout->zero >= 2 && layout->dp * layout->cp > 1) {
        return refuse_processes(site, layout->zero == 2 ? "ZeRO 2 on" : "ZeRO 3 on", err);
    }
    if (options.attention_way != SP_COMM_GATHERED) {
        return refuse_processes(site, "attention in a ring of", err);
    }
    if (sp_layout_dispatches(layout)) {
        return refuse_processes(site, "experts shared by", err);
    }
    return SP_OK;
}

sp_status sp_i_exec_check_memory(const sp_i_exec_site *site, int64_t bytes, const char *what,
                                 const char *advice, sp_error *err)
{
    const sp_runtime_ops *ops = site->runtime->ops;
    int64_t free_bytes = ops->free_bytes != NULL ? ops->free_bytes(site->runtime) : INT64_MAX;
    return bytes <= free_bytes
               ? SP_OK
               : sp_error_set(
                     err, SP_ERR_NO_MEMORY,
                     "backend '%s': %s at least %.2f GiB on this machine, %.2f are free; %s",
                     site->backend, what, sp_gib_from_bytes(bytes), sp_gib_from_bytes(free_bytes),
                     advice);
}
