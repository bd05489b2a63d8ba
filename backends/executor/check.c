#include <stdarg.h>
#include <stdio.h>

#include "backends/executor/run.h"
#include "sim/base/alloc.h"

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
    const sp_pack **first = sp_i_calloc(samples, sizeof *first);
    if (first == NULL) {
        return sp_error_no_memory(err, "the samples of a plan");
    }
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
    sp_i_free(first);
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
    sp_stage *parts = sp_i_calloc((size_t)sp_layout_vstages(layout), sizeof *parts);
    if (parts == NULL) {
        return sp_error_no_memory(err, "the stages of a plan");
    }
    const char *source = request->source != NULL ? request->source : "plan";
    sp_status status = sp_layout_stages(layout, request->model->layers, source, parts, err);
    sp_i_free(parts);
    return status;
}

// Times of links must be there, and of this plan.
static sp_status check_links(const char *backend, const sp_run_request *request, sp_error *err)
{
    const sp_packing *packing = request->plan->packing;
    const sp_link_times links = sp_run_request_links(request);
    if (links.crosses_nodes == NULL) {
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
