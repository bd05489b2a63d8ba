#include "backends/host/sampled_execution.h"

#include <math.h>

#include "backends/host/host.h"
#include "sim/base/alloc.h"
#include "sim/base/parallel.h"
#include "sim/base/prng.h"
#include "sim/base/progress.h"

#define MOST_BYTES ((double)(INT64_C(8) << 30))

const sp_sample_input sp_sampled_kinds[SP_SAMPLED_KINDS] = {
    {.sink = 13, .stripe = 13, .stripe_share = 0.003, .band = 8, .noise = 1.0},
    {.sink = 12, .stripe = 12, .stripe_share = 0.0005, .band = 22, .noise = 0.5},
    {.sink = 14, .stripe = 13, .stripe_share = 0.01, .band = 16, .noise = 0.7},
};

typedef struct tensors {
    const sp_sampled_execution *what;
    int64_t features, kv_features;
    sp_host_sampled_layer layer;
    float *q, *k, *v, *out, *lse, *dense_out, *dense_lse;
    float *workspace; // of each thread
    int64_t workspace_elements;
} tensors;

static void release(tensors *t)
{
    sp_free(t->q);
    sp_free(t->k);
    sp_free(t->v);
    sp_free(t->out);
    sp_free(t->lse);
    sp_free(t->dense_out);
    sp_free(t->dense_lse);
    sp_free(t->workspace);
}

static float *floats(int64_t count)
{
    return sp_calloc((size_t)count, sizeof(float));
}

static sp_status reserve(tensors *t, sp_error *err)
{
    const sp_sampled_execution *what = t->what;
    int64_t tokens = what->tokens;
    double elements = (double)tokens * (double)(3 * t->features + 2 * t->kv_features);
    if (elements * sizeof(float) > MOST_BYTES) {
        return sp_error_set(err, SP_ERR_LIMIT,
                            "%d heads of %lld tokens are more than is executed (8 GiB)",
                            what->heads, (long long)tokens);
    }
    t->workspace_elements = sp_kernel_attention_workspace_f32(&t->layer.shape, tokens);
    t->q = floats(tokens * t->features);
    t->k = floats(tokens * t->kv_features);
    t->v = floats(tokens * t->kv_features);
    t->out = floats(tokens * t->features);
    t->dense_out = floats(tokens * t->features);
    t->lse = floats(tokens * what->heads);
    t->dense_lse = floats(tokens * what->heads);
    t->workspace = floats(what->threads * t->workspace_elements);
    return SP_OK;
}

static void draw(tensors *t)
{
    const sp_sampled_execution *what = t->what;
    int each = what->heads / what->kv_heads;
    sp_prng prng;
    sp_prng_seed(&prng, what->seed);
    for (int64_t i = 0; i < what->tokens * t->kv_features; i++) {
        t->v[i] = (float)(2.0 * sp_prng_uniform(&prng) - 1.0);
    }
    for (int h = 0; h < what->heads; h++) {
        int kv = h / each;
        const sp_sample_input *input =
            what->input != NULL ? what->input : &sp_sampled_kinds[kv % SP_SAMPLED_KINDS];
        sp_sample_input_fill(input, what->seed + (uint64_t)h, what->tokens, what->head_dim,
                             t->q + h * what->head_dim, t->features, t->k + kv * what->head_dim,
                             t->kv_features);
    }
    t->layer.q = t->q;
    t->layer.k = t->k;
    t->layer.v = t->v;
    t->layer.out = t->out;
    t->layer.lse = t->lse;
}

// One head by the dense kernel. Its lse stand one head after the other.
static sp_status attend_densely(void *context, int worker, int head, sp_error *err)
{
    (void)err;
    const tensors *t = context;
    const sp_sampled_execution *what = t->what;
    sp_kernel_attention_shape one = t->layer.shape;
    int64_t kv_at = head / (what->heads / what->kv_heads) * what->head_dim;
    int64_t at = head * what->head_dim;
    one.heads = one.kv_heads = 1;
    sp_kernel_attention_f32(&one, 0, what->tokens, t->q + at, t->k + kv_at, t->v + kv_at,
                            t->dense_out + at, t->dense_lse + head * what->tokens,
                            t->workspace + worker * t->workspace_elements);
    return SP_OK;
}

// Sums over the features of a head.
static double difference(const tensors *t, int64_t query, int head)
{
    double sum = 0.0;
    for (int64_t c = 0; c < t->what->head_dim; c++) {
        int64_t at = query * t->features + head * t->what->head_dim + c;
        sum += fabs((double)t->out[at] - (double)t->dense_out[at]);
    }
    return sum;
}

static double largest_value(const tensors *t)
{
    double largest = 0.0;
    for (int64_t i = 0; i < t->what->tokens * t->what->kv_heads; i++) {
        double sum = 0.0;
        for (int64_t c = 0; c < t->what->head_dim; c++) {
            sum += fabs((double)t->v[i * t->what->head_dim + c]);
        }
        largest = fmax(largest, sum);
    }
    return largest;
}

static void compare(const tensors *t, sp_sampled_outcome *outcome)
{
    const sp_sampled_execution *what = t->what;
    outcome->coverage = 1.0;
    outcome->error = 0.0;
    for (int h = 0; h < what->heads; h++) {
        for (int64_t i = 0; i < what->tokens; i++) {
            double dense = (double)t->dense_lse[h * what->tokens + i];
            outcome->coverage =
                fmin(outcome->coverage, exp((double)t->lse[i * what->heads + h] - dense));
            outcome->error = fmax(outcome->error, difference(t, i, h));
        }
    }
    outcome->bound = 2.0 * (1.0 - outcome->coverage) * largest_value(t);
}

sp_status sp_sampled_execute(const sp_sampled_execution *what, sp_sampled_outcome *outcome,
                             sp_error *err)
{
    double (*clock_s)(void) = what->clock_s != NULL ? what->clock_s : sp_clock_s;
    tensors t = {.what = what,
                 .features = what->heads * what->head_dim,
                 .kv_features = what->kv_heads * what->head_dim};
    t.layer = (sp_host_sampled_layer){.shape = {.heads = what->heads,
                                                .kv_heads = what->kv_heads,
                                                .head_dim = what->head_dim,
                                                .q_stride = t.features,
                                                .kv_stride = t.kv_features,
                                                .out_stride = t.features,
                                                .scale = 1.0 / sqrt((double)what->head_dim)},
                                      .options = what->options,
                                      .len = what->tokens,
                                      .clock_s = clock_s};
    sp_status status = sp_i_host_start(err);
    status = status == SP_OK ? reserve(&t, err) : status;
    if (status == SP_OK) {
        draw(&t);
        double started_s = clock_s();
        status = sp_parallel_for(what->threads, what->heads, attend_densely, &t, err);
        outcome->dense_s = clock_s() - started_s;
    }
    if (status == SP_OK) {
        double started_s = clock_s();
        status = sp_host_sampled_attention(&t.layer, what->threads, &outcome->report, err);
        outcome->sampled_s = clock_s() - started_s;
    }
    if (status == SP_OK) {
        compare(&t, outcome);
    }
    release(&t);
    return status;
}
