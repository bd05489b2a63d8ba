#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/executor/run.h"
#include "sim/base/alloc.h"

// One option of a request.
typedef struct setting {
    const char *backend, *key, *text;
} setting;

static sp_status read_number(const setting *s, double *number, sp_error *err)
{
    char *end;
    *number = strtod(s->text, &end);
    if (end == s->text || *end != '\0' || !isfinite(*number) || *number < 0.0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': %s: expected a number of 0 or more, got \"%.64s\"",
                            s->backend, s->key, s->text);
    }
    return SP_OK;
}

static sp_status read_share(const setting *s, double *share, sp_error *err)
{
    sp_status status = read_number(s, share, err);
    if (status == SP_OK && *share >= 1.0) {
        status = sp_error_set(err, SP_ERR_USAGE,
                              "backend '%s': %s: expected a number below 1, got \"%.64s\"",
                              s->backend, s->key, s->text);
    }
    return status;
}

static sp_status read_step(const setting *s, int steps, int64_t *step, sp_error *err)
{
    char *end;
    long number = strtol(s->text, &end, 10);
    if (end == s->text || *end != '\0' || number < 1 || number > steps) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': %s: expected a step from 1 to %d, got \"%.64s\"",
                            s->backend, s->key, steps, s->text);
    }
    *step = number;
    return SP_OK;
}

static sp_status read_flag(const setting *s, bool *flag, sp_error *err)
{
    *flag = strcmp(s->text, "true") == 0;
    if (!*flag && strcmp(s->text, "false") != 0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': %s: expected \"true\" or \"false\", got \"%.64s\"",
                            s->backend, s->key, s->text);
    }
    return SP_OK;
}

static sp_status read_measure(const setting *s, sp_i_exec_measure *measure, sp_error *err)
{
    static const char *const names[SP_I_EXEC_MEASURES] = {"table", "real", "taken"};
    for (int m = 0; m < SP_I_EXEC_MEASURES; m++) {
        if (strcmp(s->text, names[m]) == 0) {
            *measure = (sp_i_exec_measure)m;
            return SP_OK;
        }
    }
    return sp_error_set(err, SP_ERR_USAGE,
                        "backend '%s': bytes: expected \"table\", \"real\" or \"taken\", got "
                        "\"%.64s\"",
                        s->backend, s->text);
}

// "routed:4", of the backend that has plain memory.
static bool is_routed(const setting *s, int *node)
{
    char end;
    return strcmp(s->backend, "host") == 0 && sscanf(s->text, "routed:%d%c", node, &end) == 1 &&
           *node > 0;
}

static sp_status read_way(const setting *s, sp_comm_attention_way *way, int *node, sp_error *err)
{
    if (is_routed(s, node)) {
        *way = SP_COMM_ROUTED;
        return SP_OK;
    }
    bool ring = strcmp(s->text, "ring") == 0;
    if (!ring && strcmp(s->text, "gathered") != 0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': attention: expected \"gathered\", \"ring\" or, on the "
                            "CPU, \"routed:N\", "
                            "got \"%.64s\"",
                            s->backend, s->text);
    }
    *way = ring ? SP_COMM_RING : SP_COMM_GATHERED;
    return SP_OK;
}

static sp_status read_links(const setting *s, bool *emulated, sp_error *err)
{
    *emulated = strcmp(s->text, "emulated") == 0;
    if (!*emulated && strcmp(s->text, "off") != 0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': links: expected \"off\" or \"emulated\", got \"%.64s\"",
                            s->backend, s->text);
    }
    return SP_OK;
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
    return sp_error_set(
        err, SP_ERR_USAGE,
        "backend '%s': %s: expected ACTION@DP.PP, an action of the plan, got \"%.64s\"", s->backend,
        s->key, s->text);
}

// That of the request's stack, for a measurement beside its prediction.
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
    sp_status status = SP_OK;
    for (size_t o = 0; status == SP_OK && o < request->option_count; o++) {
        const char *key = request->options[o].key;
        const char *value = request->options[o].value;
        const setting s = {backend, key, value};
        if (strcmp(key, "learning_rate") == 0) {
            status = read_number(&s, &options->learning_rate, err);
        } else if (strcmp(key, "weight_decay") == 0) {
            status = read_number(&s, &options->weight_decay, err);
        } else if (strcmp(key, "clip") == 0) {
            status = read_number(&s, &options->clip, err);
        } else if (strcmp(key, "dropout") == 0) {
            status = read_share(&s, &options->dropout, err);
        } else if (strcmp(key, "rounded") == 0) {
            status = read_flag(&s, &options->rounded, err);
        } else if (strcmp(key, "text") == 0) {
            options->text = value;
        } else if (strcmp(key, "fail") == 0) {
            status = read_action(request->plan, &s, &options->fail, err);
        } else if (strcmp(key, "stall") == 0) {
            status = read_action(request->plan, &s, &options->stall, err);
        } else if (strcmp(key, "exhaust") == 0) {
            status = read_action(request->plan, &s, &options->exhaust, err);
        } else if (strcmp(key, "fault_step") == 0) {
            status = read_step(&s, request->steps, &options->fault_step, err);
        } else if (strcmp(key, "attention") == 0) {
            status = read_way(&s, &options->attention_way, &options->attention_node, err);
        } else if (strcmp(key, "links") == 0) {
            status = read_links(&s, &options->emulated_links, err);
        } else if (strcmp(key, "bytes") == 0) {
            status = read_measure(&s, &options->measure, err);
        }
    }
    return status;
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

static sp_status check_model(const char *backend, const sp_model *model, const sp_packing *packing,
                             sp_error *err)
{
    sp_status status = SP_OK;
    int64_t longest = longest_sample(packing);
    if (model->experts > 0) {
        status = cannot(backend, err, "experts");
    }
    if (model->activation == SP_SQUARED_RELU) {
        status = cannot(backend, err, "squared ReLU");
    }
    if (model->qk_norm) {
        status = cannot(backend, err, "norms of queries and keys");
    }
    if (model->positional == SP_ROPE && model->head_dim % 2 != 0) {
        status =
            cannot(backend, err, "rotary positions of %lld features", (long long)model->head_dim);
    }
    if (model->positional == SP_LEARNED && longest > model->max_positions) {
        status = cannot(backend, err, "a sample of %lld tokens with %lld learned positions",
                        (long long)longest, (long long)model->max_positions);
    }
    return status;
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
    sp_status status = sp_layout_stages(layout, request->model->layers, source, parts, err);
    sp_free(parts);
    return status;
}

// Nothing keeps a message back on the wall clock. Times of links must be there, and of this plan.
static sp_status check_links(const char *backend, const sp_run_request *request, sp_error *err)
{
    const sp_packing *packing = request->plan->packing;
    if (request->clock == SP_CLOCK_WALL) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': links: can be emulated on the virtual clock alone",
                            backend);
    }
    const sp_link_times links = sp_run_request_links(request);
    if (links.ranks == NULL) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': links: the request has no times to emulate links with",
                            backend);
    }
    if (links.forward_packs != packing->forward.count ||
        links.backward_packs != sp_packing_backward(packing)->count) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': links: the times of links are those of another plan",
                            backend);
    }
    return SP_OK;
}

sp_status sp_i_exec_check(const sp_run_request *request, const char *backend, sp_error *err)
{
    sp_i_exec_options options;
    sp_status status = sp_i_exec_options_read(request, backend, &options, err);
    if (status != SP_OK || request->model == NULL) {
        return status;
    }
    status = check_model(backend, request->model, request->plan->packing, err);
    if (request->memory != NULL && request->memory->attention == SP_ATTENTION_UNFUSED) {
        status = cannot(backend, err, "unfused attention");
    }
    if (request->plan->layout.tp > SP_I_EXEC_MOST_PARTS) {
        status = cannot(backend, err, "more than %d tensor-parallel ranks", SP_I_EXEC_MOST_PARTS);
    }
    if (request->plan->layout.vocab_parallel && request->plan->layout.pp > 1) {
        status = check_vocabulary(backend, request, status, err);
    }
    sp_status links = options.emulated_links ? check_links(backend, request, err) : SP_OK;
    sp_status ranks = check_ranks(backend, request->plan->packing, err);
    sp_status layers = check_layers(request, err);
    status = status != SP_OK ? status : links;
    status = status != SP_OK ? status : ranks;
    return status != SP_OK ? status : layers;
}
