// Sampled attention beside dense attention on one core, at 64K tokens or as many as the argument
// says. Queries and keys have sinks, a local band, stripes and a diagonal
// (backends/host/sampled_attention.h), a head of each kind, by the version that is made for it. One
// JSON line for each head: seconds, of sampling and attending apart; CRA of the sampled rows
// and of all rows; `limit` is the speed-up if only kept pairs and half of the sampled ones took
// time.
#include "backends/host/sampled_attention.h"
#include "tests/bench/bench.h"

static const sp_kernel_sample_options stripes = {.pattern = SP_KERNEL_SAMPLE_STRIPES,
                                                 .alpha = 0.995,
                                                 .row_share = 0.05,
                                                 .window_share = 0.08,
                                                 .window_counts = true,
                                                 .by_mean = true,
                                                 .bottom_rows = 1};
static const sp_kernel_sample_options slashes = {
    .pattern = SP_KERNEL_SAMPLE_SLASHES, .alpha = 0.5, .alpha_slash = 0.98, .row_share = 0.05};
static const sp_sample_input diagonal = {
    .sink = 13, .band = 14, .diagonal = 16, .distance = 16384, .noise = 0.7};

static sp_sampled_outcome measure(const char *name, int64_t tokens, const sp_sample_input *input,
                                  const sp_kernel_sample_options *options, uint64_t seed)
{
    sp_sampled_execution what = {.heads = 1,
                                 .kv_heads = 1,
                                 .head_dim = 128,
                                 .tokens = tokens,
                                 .options = *options,
                                 .seed = seed,
                                 .threads = 1,
                                 .input = input};
    sp_sampled_outcome o;
    sp_error err;
    require(sp_sampled_execute(&what, &o, &err), &err);
    // Values are below 1, and sums in fp32 differ a little.
    if (!(o.error <= o.bound + 1e-3 * (double)what.head_dim)) {
        fprintf(stderr, "out differs by %g with %g allowed\n", o.error, o.bound);
        exit(1);
    }
    printf("{\"bench\": \"sample_attention\", \"version\": \"%s\", \"blas_core\": \"%s\", "
           "\"type\": \"fp32\", \"tokens\": %lld, \"head\": \"%s\", \"pattern\": \"%s\", "
           "\"alpha\": %g, \"dense_s\": %.3f, \"sampling_s\": %.3f, \"attending_s\": %.3f, "
           "\"speedup\": %.2f, \"limit\": %.2f, \"kept_pairs\": %.4f, \"cra_sampled\": %.4f, "
           "\"cra\": %.4f}\n",
           SP_VERSION, sp_kernels_blas_core(), (long long)tokens, name,
           options == &slashes ? "slashes" : "stripes", options->alpha, o.dense_s,
           o.report.sampling_s, o.report.attending_s, o.dense_s / o.sampled_s,
           1.0 / (o.report.kept_pairs + options->row_share / 2.0), o.report.kept_pairs,
           o.report.coverage, o.coverage);
    fflush(stdout);
    return o;
}

int main(int argc, char **argv)
{
    static const char *const names[SP_SAMPLED_KINDS] = {"stripes", "local", "mixed"};
    int64_t tokens = argc > 1 ? atoll(argv[1]) : 65536;
    double dense_s = 0;
    double sampled_s = 0;
    for (int h = 0; h < SP_SAMPLED_KINDS; h++) {
        sp_sampled_outcome o =
            measure(names[h], tokens, &sp_sampled_kinds[h], &stripes, (uint64_t)h + 2);
        dense_s += o.dense_s;
        sampled_s += o.sampled_s;
    }
    measure("diagonal", tokens, &diagonal, &slashes, SP_SAMPLED_KINDS + 2);
    printf("{\"bench\": \"sample_attention\", \"tokens\": %lld, \"pattern\": \"stripes\", "
           "\"heads\": %d, \"dense_s\": %.3f, \"sampled_s\": %.3f, \"speedup\": %.2f}\n",
           (long long)tokens, (int)SP_SAMPLED_KINDS, dense_s, sampled_s, dense_s / sampled_s);
    return 0;
}
