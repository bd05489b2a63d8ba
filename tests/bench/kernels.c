// Speed of the reference kernels on one core, beside the limit measured in the same run: memcpy for
// what streams through memory, OpenBLAS's plain matrix product for what multiplies. One JSON line
// on stdout for each kernel; bytes count every tensor once, operations of attention the visible
// pairs alone.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "sim/base/prng.h"
#include "sim/base/progress.h"
#include "tests/bench/bench.h"

// Timing of one kernel and the JSON line that reports it.

enum { MAX_SAMPLES = 1000 };

typedef struct timing {
    double min_s, median_s, p95_s;
    int samples;
} timing;

// Once to warm up, then for a second.
static timing measure(void (*run)(void))
{
    static double seconds[MAX_SAMPLES];
    timing t = {0};
    run();
    double started_s = sp_clock_s();
    double now_s = started_s;
    while (t.samples < 3 || (now_s - started_s < 1.0 && t.samples < MAX_SAMPLES)) {
        run();
        double end_s = sp_clock_s();
        seconds[t.samples++] = end_s - now_s;
        now_s = end_s;
    }
    qsort(seconds, (size_t)t.samples, sizeof seconds[0], sp_ascending_doubles);
    t.min_s = seconds[0];
    t.median_s = seconds[t.samples / 2];
    t.p95_s = seconds[t.samples * 95 / 100];
    return t;
}

// Prints a line; returns work per second at the median.
static double report(const char *kernel, const char *type, void (*run)(void), double work,
                     const char *unit, const char *limit, double limit_rate)
{
    timing t = measure(run);
    double rate = work / t.median_s * 1e-9;
    printf(
        "{\"bench\": \"kernels\", \"version\": \"%s\", \"blas_core\": \"%s\", \"kernel\": \"%s\", "
        "\"type\": \"%s\", \"samples\": %d, \"min_ms\": %.4f, \"median_ms\": %.4f, "
        "\"p95_ms\": %.4f, \"rate\": %.2f, \"unit\": \"%s\", \"limit\": \"%s\", "
        "\"ratio\": %.3f}\n",
        SP_VERSION, sp_kernels_blas_core(), kernel, type, t.samples, t.min_s * 1e3,
        t.median_s * 1e3, t.p95_s * 1e3, rate, unit, limit,
        limit_rate > 0 ? rate / limit_rate : 1.0);
    fflush(stdout);
    return rate;
}

enum {
    TOKENS = 4096,
    FEATURES = 2048,
    OUT = 1024,
    HEAD_DIM = 128,
    HEADS = FEATURES / HEAD_DIM,
    LEN = 512,
    CONTEXT = 2048,
    ELEMENTS = TOKENS * FEATURES
};

static float *a, *b, *c, *d, *e, *f, *rows, *more_rows;
static double *a64, *b64, *c64, *d64, *e64, *f64, *rows64, *room64;
static int64_t index_of[TOKENS];
static sp_kernel_attention_shape shape;

static void *need(size_t count, size_t bytes)
{
    void *pointer = calloc(count, bytes);
    if (pointer == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return pointer;
}

static void fill(sp_prng *prng, int64_t n, float *x, double *x64)
{
    for (int64_t i = 0; i < n; i++) {
        x64[i] = 2.0 * sp_prng_uniform(prng) - 1.0;
        x[i] = (float)x64[i];
    }
}

static void set_up(void)
{
    float **all[6] = {&a, &b, &c, &d, &e, &f};
    double **all64[6] = {&a64, &b64, &c64, &d64, &e64, &f64};
    sp_prng prng;
    sp_prng_seed(&prng, 1);
    for (int i = 0; i < 6; i++) {
        *all[i] = need(ELEMENTS, sizeof(float));
        *all64[i] = need(ELEMENTS, sizeof(double));
        fill(&prng, ELEMENTS, *all[i], *all64[i]);
    }
    rows = need(TOKENS * HEADS, sizeof *rows);
    more_rows = need(1 << 20, sizeof *more_rows);
    rows64 = need(TOKENS * HEADS, sizeof *rows64);
    room64 = need(1 << 20, sizeof *room64);
    for (int t = 0; t < TOKENS; t++) {
        index_of[t] = (int64_t)sp_prng_below(&prng, TOKENS);
    }
}

// ---- What streams through memory ----

static void run_memcpy(void)
{
    memcpy(b, a, ELEMENTS * sizeof *b);
}

static void run_add(void)
{
    sp_kernel_add_f32(ELEMENTS, a, b);
}

static void run_sum_of_squares(void)
{
    rows64[0] = sp_kernel_sum_of_squares_f32(ELEMENTS, a);
}

static void run_rms_norm(void)
{
    sp_kernel_rms_norm_f32(TOKENS, FEATURES, a, FEATURES, c, 1e-5, b, FEATURES, rows);
}

static void run_rms_norm_input(void)
{
    sp_kernel_rms_norm_backward_input_f32(TOKENS, FEATURES, a, FEATURES, c, rows, d, FEATURES, b,
                                          FEATURES);
}

static void run_rms_norm_weight(void)
{
    sp_kernel_rms_norm_backward_weight_f32(TOKENS, FEATURES, a, FEATURES, rows, d, FEATURES, e);
}

static void run_layer_norm(void)
{
    sp_kernel_layer_norm_f32(TOKENS, FEATURES, a, FEATURES, c, d, 1e-5, b, FEATURES, more_rows,
                             rows);
}

static void run_layer_norm_input(void)
{
    sp_kernel_layer_norm_backward_input_f32(TOKENS, FEATURES, a, FEATURES, c, more_rows, rows, d,
                                            FEATURES, b, FEATURES);
}

static void run_layer_norm_weight(void)
{
    sp_kernel_layer_norm_backward_weight_f32(TOKENS, FEATURES, a, FEATURES, more_rows, rows, d,
                                             FEATURES, e, f);
}

static void run_rope(void)
{
    sp_kernel_rope_f32(TOKENS, HEADS, HEAD_DIM, c, d, false, b, FEATURES);
}

static void run_swiglu(void)
{
    sp_kernel_swiglu_f32(TOKENS, FEATURES, a, c, FEATURES, b, FEATURES);
}

static void run_swiglu_backward(void)
{
    sp_kernel_swiglu_backward_f32(TOKENS, FEATURES, a, c, FEATURES, d, FEATURES, b, e, FEATURES);
}

static void run_gelu(void)
{
    sp_kernel_gelu_f32(ELEMENTS, a, b);
}

static void run_gelu_backward(void)
{
    sp_kernel_gelu_backward_f32(ELEMENTS, a, d, b);
}

static void run_embedding(void)
{
    sp_kernel_embedding_f32(TOKENS, FEATURES, index_of, 0, TOKENS, a, false, b, FEATURES);
}

static void run_embedding_weight(void)
{
    sp_kernel_embedding_backward_weight_f32(TOKENS, FEATURES, index_of, 0, TOKENS, d, FEATURES, e);
}

// The logits as 256 rows of 32768 columns.
enum { LOSS_TOKENS = 256, VOCAB = ELEMENTS / LOSS_TOKENS };

static void run_cross_entropy(void)
{
    rows64[0] = sp_kernel_cross_entropy_f32(LOSS_TOKENS, VOCAB, a, VOCAB, index_of, NULL,
                                            LOSS_TOKENS, rows);
}

static void run_cross_entropy_backward(void)
{
    sp_kernel_cross_entropy_backward_f32(LOSS_TOKENS, VOCAB, 0, a, VOCAB, index_of, NULL,
                                         LOSS_TOKENS, rows, b, VOCAB);
}

static void run_adamw(void)
{
    sp_kernel_adamw_step step = {.step = 3,
                                 .learning_rate = 1e-4,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .epsilon = 1e-8,
                                 .gradient_scale = 1.0};
    sp_kernel_adamw_f32(&step, ELEMENTS, a, b, d, e);
}

static void report_streams(void)
{
    static const struct {
        const char *name;
        void (*run)(void);
        double tensors; // read and written, of ELEMENTS each
    } cases[] = {
        {"add", run_add, 3},
        {"sum_of_squares", run_sum_of_squares, 1},
        {"rms_norm", run_rms_norm, 2},
        {"rms_norm_backward_input", run_rms_norm_input, 3},
        {"rms_norm_backward_weight", run_rms_norm_weight, 2},
        {"layer_norm", run_layer_norm, 2},
        {"layer_norm_backward_input", run_layer_norm_input, 3},
        {"layer_norm_backward_weight", run_layer_norm_weight, 2},
        {"rope", run_rope, 2},
        {"swiglu", run_swiglu, 3},
        {"swiglu_backward", run_swiglu_backward, 5},
        {"gelu", run_gelu, 2},
        {"gelu_backward", run_gelu_backward, 3},
        {"embedding", run_embedding, 2},
        {"embedding_backward_weight", run_embedding_weight, 3},
        {"cross_entropy", run_cross_entropy, 1},
        {"cross_entropy_backward", run_cross_entropy_backward, 2},
        {"adamw", run_adamw, 7},
    };
    double tensor_bytes = (double)ELEMENTS * sizeof(float);
    double limit = report("memcpy", "fp32", run_memcpy, 2 * tensor_bytes, "GB/s", "itself", 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (cases[i].run == run_adamw) {
            // Second moments are not negative.
            memset(e, 0, ELEMENTS * sizeof *e);
        }
        report(cases[i].name, "fp32", cases[i].run, cases[i].tensors * tensor_bytes, "GB/s",
               "memcpy", limit);
    }
}

// ---- What multiplies ----

static void run_linear(void)
{
    sp_kernel_linear_f32(LEN, FEATURES, OUT, a, FEATURES, c, FEATURES, NULL, b, OUT);
}

static void run_linear_input(void)
{
    sp_kernel_linear_backward_input_f32(LEN, FEATURES, OUT, b, OUT, c, FEATURES, false, d,
                                        FEATURES);
}

static void run_linear_weight(void)
{
    sp_kernel_linear_backward_weight_f32(LEN, FEATURES, OUT, b, OUT, a, FEATURES, e, FEATURES,
                                         NULL);
}

// The plain product of attention's size: scores of each head, without causal order.
static void run_scores(void)
{
    for (int64_t h = 0; h < shape.heads; h++) {
        sp_kernel_linear_f32(LEN, shape.head_dim, CONTEXT, a + h * shape.head_dim, FEATURES,
                             c + h * shape.head_dim, FEATURES, NULL, e, CONTEXT);
    }
}

static void run_scores_f64(void)
{
    for (int64_t h = 0; h < shape.heads; h++) {
        sp_kernel_linear_f64(LEN, shape.head_dim, CONTEXT, a64 + h * shape.head_dim, FEATURES,
                             c64 + h * shape.head_dim, FEATURES, NULL, e64, CONTEXT);
    }
}

static void run_attention(void)
{
    sp_kernel_attention_f32(&shape, CONTEXT - LEN, LEN, a, c, d, b, rows, more_rows);
}

static void run_attention_f64(void)
{
    sp_kernel_attention_f64(&shape, CONTEXT - LEN, LEN, a64, c64, d64, b64, rows64, room64);
}

static void run_attention_input(void)
{
    sp_kernel_attention_backward_input_f32(&shape, CONTEXT - LEN, LEN, a, c, d, b, a, rows, e, f,
                                           f + CONTEXT * FEATURES, more_rows);
}

static void run_attention_input_f64(void)
{
    sp_kernel_attention_backward_input_f64(&shape, CONTEXT - LEN, LEN, a64, c64, d64, b64, a64,
                                           rows64, e64, f64, f64 + CONTEXT * FEATURES, room64);
}

static void use_heads(int64_t head_dim, int64_t queries_per_kv)
{
    shape = (sp_kernel_attention_shape){.heads = FEATURES / head_dim,
                                        .kv_heads = FEATURES / head_dim / queries_per_kv,
                                        .head_dim = head_dim,
                                        .q_stride = FEATURES,
                                        .kv_stride = FEATURES,
                                        .out_stride = FEATURES,
                                        .scale = 1.0 / sqrt((double)head_dim)};
}

static void report_attention(int64_t head_dim, int64_t queries_per_kv)
{
    use_heads(head_dim, queries_per_kv);
    double pairs = (double)LEN * (CONTEXT - LEN) + (double)LEN * (LEN + 1) / 2.0;
    double scores = 2.0 * LEN * CONTEXT * FEATURES;
    char name[64];
    snprintf(name, sizeof name, "scores_d%d", (int)head_dim);
    double limit = report(name, "fp32", run_scores, scores, "GFLOP/s", "itself", 0);
    double limit64 = report(name, "fp64", run_scores_f64, scores, "GFLOP/s", "itself", 0);
    snprintf(name, sizeof name, "attention_d%d_g%d", (int)head_dim, (int)queries_per_kv);
    report(name, "fp32", run_attention, 4.0 * pairs * FEATURES, "GFLOP/s", "scores", limit);
    report(name, "fp64", run_attention_f64, 4.0 * pairs * FEATURES, "GFLOP/s", "scores", limit64);
    snprintf(name, sizeof name, "attention_backward_input_d%d_g%d", (int)head_dim,
             (int)queries_per_kv);
    report(name, "fp32", run_attention_input, 10.0 * pairs * FEATURES, "GFLOP/s", "scores", limit);
    report(name, "fp64", run_attention_input_f64, 10.0 * pairs * FEATURES, "GFLOP/s", "scores",
           limit64);
}

static void report_products(void)
{
    double work = 2.0 * LEN * FEATURES * OUT;
    double limit = report("linear", "fp32", run_linear, work, "GFLOP/s", "itself", 0);
    report("linear_backward_input", "fp32", run_linear_input, work, "GFLOP/s", "linear", limit);
    report("linear_backward_weight", "fp32", run_linear_weight, work, "GFLOP/s", "linear", limit);
    report_attention(64, 1);
    report_attention(128, 1);
    report_attention(128, 4);
}

// ---- Answers before speeds ----

// Attention is an average: values that are all 1 come out as 1.
static void check_attention(void)
{
    use_heads(HEAD_DIM, 1);
    for (int64_t i = 0; i < CONTEXT * FEATURES; i++) {
        d[i] = 1.0F;
    }
    run_attention();
    for (int64_t i = 0; i < LEN * FEATURES; i++) {
        if (!(fabsf(b[i] - 1.0F) < 1e-5F)) {
            fprintf(stderr, "attention: element %lld is %g, expected 1\n", (long long)i,
                    (double)b[i]);
            exit(1);
        }
    }
}

static void check_linear(void)
{
    run_linear();
    double expected = 0;
    for (int i = 0; i < FEATURES; i++) {
        expected += (double)a[7 * FEATURES + i] * (double)c[9 * FEATURES + i];
    }
    if (!(fabs((double)b[7 * OUT + 9] - expected) < 1e-3)) {
        fprintf(stderr, "linear: %g, expected %g\n", (double)b[7 * OUT + 9], expected);
        exit(1);
    }
}

int main(void)
{
    sp_kernels_start_threads(1);
    set_up();
    check_linear();
    check_attention();
    report_streams();
    report_products();
    return 0;
}
