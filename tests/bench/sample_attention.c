// Sampled attention beside dense attention on one core, at 64K tokens or as many as the argument
// says. Queries and keys have sinks, a local band, stripes and a diagonal
// (backends/host/sampled_input.h), a head of each kind, by the version that is made for it. One
// JSON line for each head: seconds of this thread, of sampling, choosing and attending apart; CRA
// of the sampled rows and of all rows; `limit` is the speed-up if only kept pairs and half of the
// sampled ones took time.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/host/sampled_input.h"
#include "kernels/kernels.h"
#include "sim/base/prng.h"
#include "tests/bench/bench.h"

// The first three have sinks, a band and stripes, the last one a diagonal too.
enum { HEADS = 4, BANDED = 3, HEAD_DIM = 128, FEATURES = HEADS * HEAD_DIM };

static const sp_kernel_sample_options stripes = {.pattern = SP_KERNEL_SAMPLE_STRIPES,
                                                 .alpha = 0.995,
                                                 .row_share = 0.05,
                                                 .window_share = 0.08,
                                                 .window_counts = true,
                                                 .by_mean = true,
                                                 .bottom_rows = 1};
static const sp_kernel_sample_options slashes = {
    .pattern = SP_KERNEL_SAMPLE_SLASHES, .alpha = 0.5, .alpha_slash = 0.98, .row_share = 0.05};

static const struct {
    const char *name, *pattern;
    const sp_kernel_sample_options *options;
    sp_sample_input input;
} head_kinds[HEADS] = {
    {"stripes",
     "stripes",
     &stripes,
     {.sink = 13, .stripe = 13, .stripe_share = 0.003, .band = 8, .noise = 1.0}},
    {"local",
     "stripes",
     &stripes,
     {.sink = 12, .stripe = 12, .stripe_share = 0.0005, .band = 22, .noise = 0.5}},
    {"mixed",
     "stripes",
     &stripes,
     {.sink = 14, .stripe = 13, .stripe_share = 0.01, .band = 16, .noise = 0.7}},
    {"diagonal",
     "slashes",
     &slashes,
     {.sink = 13, .band = 14, .diagonal = 16, .distance = 16384, .noise = 0.7}},
};

typedef struct room {
    sp_kernel_attention_shape shape;
    int64_t tokens;
    float *q, *k, *v, *out, *dense_out, *lse, *dense_lse, *sampled_lse, *workspace;
    sp_kernel_sample_mass mass;
    sp_kernel_sample_mask mask;
} room;

static void *need(int64_t count, size_t bytes)
{
    void *pointer = calloc((size_t)count, bytes);
    if (pointer == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return pointer;
}

static void set_up(room *r, int64_t tokens)
{
    r->tokens = tokens;
    r->shape = (sp_kernel_attention_shape){.heads = HEADS,
                                           .kv_heads = HEADS,
                                           .head_dim = HEAD_DIM,
                                           .q_stride = FEATURES,
                                           .kv_stride = FEATURES,
                                           .out_stride = FEATURES,
                                           .scale = 1.0 / sqrt((double)HEAD_DIM)};
    float **tensors[5] = {&r->q, &r->k, &r->v, &r->out, &r->dense_out};
    for (int i = 0; i < 5; i++) {
        *tensors[i] = need(tokens * FEATURES, sizeof(float));
    }
    r->lse = need(tokens * HEADS, sizeof(float));
    r->dense_lse = need(tokens * HEADS, sizeof(float));
    r->sampled_lse = need(tokens, sizeof(float));
    r->workspace =
        need(sp_kernel_sample_attention_workspace_f32(&r->shape, tokens) + tokens, sizeof(float));
    r->mass.column = need(tokens, sizeof(double));
    r->mass.slash = need(tokens, sizeof(double));
    r->mask.column = need(tokens, sizeof(int32_t));
    r->mask.slash = need(tokens, sizeof(int32_t));
    sp_prng prng;
    sp_prng_seed(&prng, 1);
    for (int64_t i = 0; i < tokens * FEATURES; i++) {
        r->v[i] = (float)(2.0 * sp_prng_uniform(&prng) - 1.0);
    }
    for (int h = 0; h < HEADS; h++) {
        sp_sample_input_fill(&head_kinds[h].input, (uint64_t)h + 2, tokens, HEAD_DIM,
                             r->q + h * HEAD_DIM, FEATURES, r->k + h * HEAD_DIM, FEATURES);
    }
}

// One head, by the dense kernel.
static double time_dense(room *r, int head)
{
    sp_kernel_attention_shape one = r->shape;
    one.heads = one.kv_heads = 1;
    int64_t at = head * HEAD_DIM;
    float *lse = need(r->tokens, sizeof(float));
    double started_s = thread_clock_s();
    sp_kernel_attention_f32(&one, 0, r->tokens, r->q + at, r->k + at, r->v + at, r->dense_out + at,
                            lse, r->workspace);
    double seconds = thread_clock_s() - started_s;
    for (int64_t i = 0; i < r->tokens; i++) {
        r->dense_lse[i * HEADS + head] = lse[i];
    }
    free(lse);
    return seconds;
}

typedef struct sampled_time {
    double sampling_s, choosing_s, attending_s;
} sampled_time;

static sampled_time time_sampled(room *r, int head, const sp_kernel_sample_options *options)
{
    sampled_time t;
    double started_s = thread_clock_s();
    sp_kernel_sample_mass_f32(&r->shape, options, 0, r->tokens, head, r->q, r->k, &r->mass,
                              r->sampled_lse, r->workspace);
    double sampled_s = thread_clock_s();
    sp_kernel_sample_select(options, 0, r->tokens, &r->mass, &r->mask);
    double chosen_s = thread_clock_s();
    for (int64_t tile = 0; tile < sp_kernel_sample_tiles(r->tokens); tile++) {
        sp_kernel_sample_attention_tile_f32(&r->shape, &r->mask, 0, r->tokens, head, tile, r->q,
                                            r->k, r->v, r->out, r->lse, r->workspace);
    }
    t.attending_s = thread_clock_s() - chosen_s;
    t.choosing_s = chosen_s - sampled_s;
    t.sampling_s = sampled_s - started_s;
    return t;
}

// The smallest share of dense probability that a row keeps; ends the program where out differs by
// more than theorem 1 allows (values are below 1, and fp32 sums differ a little).
static double check_rows(const room *r, int head)
{
    double cra = 1.0;
    for (int64_t i = 0; i < r->tokens; i++) {
        double kept =
            exp((double)r->lse[i * HEADS + head] - (double)r->dense_lse[i * HEADS + head]);
        double difference = 0;
        for (int64_t c = head * HEAD_DIM; c < (head + 1) * HEAD_DIM; c++) {
            int64_t at = i * FEATURES + c;
            difference += fabs((double)r->out[at] - (double)r->dense_out[at]);
        }
        if (!(difference <= (2.0 * (1.0 - kept) + 1e-3) * HEAD_DIM)) {
            fprintf(stderr, "query %lld: out differs by %g with %g kept\n", (long long)i,
                    difference, kept);
            exit(1);
        }
        cra = fmin(cra, kept);
    }
    return cra;
}

static double kept_pairs(const room *r)
{
    double pairs = 0;
    for (int64_t first = 0; first < r->tokens; first += SP_KERNEL_SAMPLE_TILE) {
        int64_t end = first + SP_KERNEL_SAMPLE_TILE;
        sp_kernel_sample_run tile = {first, end < r->tokens ? end : r->tokens};
        pairs += (double)sp_kernel_sample_pairs(&r->mask, tile);
    }
    return pairs / ((double)r->tokens * (double)(r->tokens + 1) / 2.0);
}

static double measure(room *r, int head, double dense_s)
{
    const sp_kernel_sample_options *options = head_kinds[head].options;
    sampled_time t = time_sampled(r, head, options);
    double kept = kept_pairs(r);
    double all_s = t.sampling_s + t.choosing_s + t.attending_s;
    double sampled =
        sp_kernel_sample_coverage_f32(&r->shape, options, r->tokens, head, r->lse, r->sampled_lse);
    printf("{\"bench\": \"sample_attention\", \"version\": \"%s\", \"blas_core\": \"%s\", "
           "\"type\": \"fp32\", \"tokens\": %lld, \"head\": \"%s\", \"pattern\": \"%s\", "
           "\"alpha\": %g, \"dense_s\": %.3f, \"sampling_s\": %.3f, \"choosing_s\": %.3f, "
           "\"attending_s\": %.3f, \"speedup\": %.2f, \"limit\": %.2f, \"kept_pairs\": %.4f, "
           "\"columns\": %lld, \"slashes\": %lld, \"cra_sampled\": %.4f, \"cra\": %.4f}\n",
           SP_VERSION, sp_kernels_blas_core(), (long long)r->tokens, head_kinds[head].name,
           head_kinds[head].pattern, options->alpha, dense_s, t.sampling_s, t.choosing_s,
           t.attending_s, dense_s / all_s, 1.0 / (kept + options->row_share / 2.0), kept,
           (long long)r->mask.columns, (long long)r->mask.slashes, sampled, check_rows(r, head));
    fflush(stdout);
    return all_s;
}

int main(int argc, char **argv)
{
    room r;
    double dense_s = 0;
    double sampled_s = 0;
    sp_kernels_start();
    set_up(&r, argc > 1 ? atoll(argv[1]) : 65536);
    for (int h = 0; h < HEADS; h++) {
        double head_dense_s = time_dense(&r, h);
        double head_sampled_s = measure(&r, h, head_dense_s);
        dense_s += h < BANDED ? head_dense_s : 0.0;
        sampled_s += h < BANDED ? head_sampled_s : 0.0;
    }
    printf("{\"bench\": \"sample_attention\", \"tokens\": %lld, \"pattern\": \"stripes\", "
           "\"heads\": %d, \"dense_s\": %.3f, \"sampled_s\": %.3f, \"speedup\": %.2f}\n",
           (long long)r.tokens, BANDED, dense_s, sampled_s, dense_s / sampled_s);
    return 0;
}
