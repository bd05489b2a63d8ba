#include "backends/host/speculation/measure.h"

#include <string.h>

#include "backends/host/host.h"
#include "backends/host/speculation/generate.h"
#include "kernels/kernels.h"
#include "sim/base/alloc.h"

enum { PROMPT = 8, LEAST_IN_BIN = 4 };

static const sp_small_shape shape = {.layers = 4,
                                     .heads = 2,
                                     .head_dim = 16,
                                     .ffn = 64,
                                     .vocab = SP_SMALL_VOCAB,
                                     .draft_layers = 2,
                                     .logit_scale = 3.0};

typedef struct measuring {
    const sp_speculation *how;
    int sequences, tokens;
    uint64_t seed;
    sp_sample *samples; // [sequences * tokens], owned: of meta-paths that were accepted
    size_t sample_count;
    sp_small_measure *measure;
} measuring;

// One sequence: its model and prompt.
typedef struct source {
    sp_small_model *model;
    int64_t prompt[PROMPT];
} source;

// Drafts of every second sequence are close to their target, those of the others further off.
static void source_init(source *s, uint64_t seed, int index)
{
    static const double scales[] = {0.1, 0.6};
    sp_small_shape own = shape;
    sp_prng prng;
    own.late_scale = scales[index % 2];
    sp_prng_seed(&prng, seed + (uint64_t)index);
    for (int i = 0; i < PROMPT; i++) {
        s->prompt[i] = (int64_t)sp_prng_below(&prng, SP_SMALL_VOCAB);
    }
    s->model = sp_small_model_new(&own, sp_prng_u64(&prng));
}

static void add_calls(const sp_small_text *text, const sp_bins *bins, sp_small_tally *tally)
{
    sp_speculation fitted = {.method = SP_DECODE_HETEROSPEC, .bins = *bins};
    for (int i = 0; i < text->call_count; i++) {
        const sp_speculated *call = &text->calls[i];
        tally->calls++;
        tally->tokens += call->accepted + 1;
        tally->verified += call->nodes;
        tally->low += sp_speculation_is_low(&fitted, call->bin);
    }
}

static void add_samples(measuring *m, const sp_small_text *text)
{
    for (int i = 0; i < text->call_count; i++) {
        const sp_speculated *call = &text->calls[i];
        if (call->path_accepted) {
            m->samples[m->sample_count++] = (sp_sample){.x = call->entropy, .y = call->path_rank};
        }
    }
}

static sp_status generate(const measuring *m, const source *s, sp_decode_method method,
                          sp_small_text *text, sp_error *err)
{
    sp_speculation how = *m->how;
    how.method = method;
    how.bins = m->measure->bins;
    return sp_small_generate(s->model, shape.draft_layers, &how, s->prompt, PROMPT, m->tokens, text,
                             err);
}

static sp_status fit_on(measuring *m, const source *s, sp_error *err)
{
    sp_small_text text;
    sp_status status = generate(m, s, SP_DECODE_EAGLE, &text, err);
    add_samples(m, &text);
    sp_small_text_fini(&text);
    return status;
}

static sp_status compare_on(measuring *m, const source *s, sp_error *err)
{
    sp_small_text text[3] = {{0}};
    sp_small_measure *to = m->measure;
    sp_status status = SP_OK;
    for (int method = 0; status == SP_OK && method < 3; method++) {
        status = generate(m, s, (sp_decode_method)method, &text[method], err);
    }
    if (status == SP_OK) {
        size_t bytes = (size_t)m->tokens * sizeof *text[0].tokens;
        add_calls(&text[SP_DECODE_EAGLE], &to->bins, &to->eagle);
        add_calls(&text[SP_DECODE_HETEROSPEC], &to->bins, &to->heterospec);
        for (int method = 1; method < 3; method++) {
            to->lossless = to->lossless && memcmp(text[method].tokens, text[0].tokens, bytes) == 0;
        }
    }
    for (int method = 0; method < 3; method++) {
        sp_small_text_fini(&text[method]);
    }
    return status;
}

static sp_status each_sequence(measuring *m, int first,
                               sp_status (*visit)(measuring *m, const source *s, sp_error *err),
                               sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = first; status == SP_OK && i < first + m->sequences; i++) {
        source s = {0};
        source_init(&s, m->seed, i);
        status = visit(m, &s, err);
        sp_small_model_free(s.model);
    }
    return status;
}

sp_status sp_small_measure_run(const sp_speculation *how, int sequences, int tokens, uint64_t seed,
                               sp_small_measure *measure, sp_error *err)
{
    measuring m = {
        .how = how, .sequences = sequences, .tokens = tokens, .seed = seed, .measure = measure};
    *measure = (sp_small_measure){.bins = {.count = 1}, .lossless = true};
    sp_status status = sp_i_host_start(err);
    if (status != SP_OK) {
        return status;
    }
    m.samples = sp_calloc((size_t)sequences * (size_t)tokens, sizeof *m.samples);
    status = each_sequence(&m, sequences, fit_on, err);
    if (status == SP_OK) {
        sp_bins_fit(m.samples, m.sample_count, LEAST_IN_BIN, &measure->bins);
    }
    if (status == SP_OK) {
        status = each_sequence(&m, 0, compare_on, err);
    }
    sp_free(m.samples);
    return status;
}
