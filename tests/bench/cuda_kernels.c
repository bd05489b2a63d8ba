// Speed of the CUDA kernels beside a device-to-device copy measured in the same run, with the
// second-level cache cold. One JSON line on stdout for each kernel; bytes count every tensor once.
// Exit status 77 with the reason where there is no device. That the kernels are right is what other
// commands check.
#include <math.h>

#include "kernels/cuda_kernels.h"
#include "tests/bench/cuda_timing.h"
#include "tests/gpu/gpu_check.h"

// Each tensor is 256 MiB in bf16, four times the second-level cache of an H200.
enum {
    TOKENS = 32768,
    FEATURES = 4096,
    HEAD_DIM = 128,
    HEADS = FEATURES / HEAD_DIM,
    VOCAB = 131072,
    LOSS_TOKENS = 1024,
    TENSORS = 4
};
static const int64_t ELEMENTS = (int64_t)TOKENS * FEATURES;

static char device[256];
static sp_bf16 *x[TENSORS];
static float *wide[TENSORS]; // fp32
static sp_bf16 *vector, *other_vector;
static float *rows[4], *columns[2], *workspace;
static double *sums, *partials;
static int64_t *index_of, *order_of;
static double distinct_share; // of the table's rows that index_of names
static void *flush;
static const size_t FLUSH_BYTES = (size_t)256 << 20;

static void *room(size_t bytes)
{
    void *memory;
    need(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
}

// splitmix64 (Steele, Lea, Flood, 2014); in [-1, 1).
static double draw(void)
{
    static uint64_t state = 1;
    uint64_t z = state += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1.0;
}

// Random numbers from the host, 1 Mi of them over and over; fp32 ones are not negative, so that
// they may be second moments.
static void fill(void *to, int64_t n, size_t size)
{
    enum { DRAWN = 1 << 20 };
    static float wide_drawn[DRAWN];
    static sp_bf16 drawn[DRAWN];
    for (int i = 0; i < DRAWN; i++) {
        double value = draw();
        wide_drawn[i] = (float)fabs(value);
        drawn[i] = sp_bf16_from_float((float)value);
    }
    const void *from = size == sizeof(float) ? (const void *)wide_drawn : (const void *)drawn;
    for (int64_t at = 0; at < n; at += DRAWN) {
        int64_t count = n - at < DRAWN ? n - at : DRAWN;
        need(cudaMemcpy((char *)to + (size_t)at * size, from, (size_t)count * size,
                        cudaMemcpyHostToDevice),
             "cudaMemcpy");
    }
}

static void set_up_indices(void)
{
    static int64_t index[TOKENS], order[TOKENS], scratch[TOKENS];
    for (int64_t t = 0; t < TOKENS; t++) {
        index[t] = (int64_t)(fabs(draw()) * TOKENS);
    }
    sp_cuda_embedding_order(TOKENS, index, order, scratch);
    int64_t distinct = 1;
    for (int64_t t = 1; t < TOKENS; t++) {
        distinct += index[order[t]] != index[order[t - 1]];
    }
    distinct_share = (double)distinct / TOKENS;
    index_of = room(sizeof index);
    order_of = room(sizeof order);
    need(cudaMemcpy(index_of, index, sizeof index, cudaMemcpyHostToDevice), "cudaMemcpy");
    need(cudaMemcpy(order_of, order, sizeof order, cudaMemcpyHostToDevice), "cudaMemcpy");
}

static void set_up(void)
{
    struct cudaDeviceProp properties;
    need(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    snprintf(device, sizeof device, "%s", properties.name);
    for (int i = 0; i < TENSORS; i++) {
        x[i] = room((size_t)ELEMENTS * sizeof *x[i]);
        wide[i] = room((size_t)ELEMENTS * sizeof *wide[i]);
        fill(x[i], ELEMENTS, sizeof *x[i]);
        fill(wide[i], ELEMENTS, sizeof *wide[i]);
        rows[i] = room((size_t)TOKENS * HEADS * sizeof *rows[i]);
        fill(rows[i], (int64_t)TOKENS * HEADS, sizeof *rows[i]);
    }
    vector = room((size_t)FEATURES * sizeof *vector);
    other_vector = room((size_t)FEATURES * sizeof *other_vector);
    fill(vector, FEATURES, sizeof *vector);
    fill(other_vector, FEATURES, sizeof *other_vector);
    for (int i = 0; i < 2; i++) {
        columns[i] = room((size_t)FEATURES * sizeof *columns[i]);
        fill(columns[i], FEATURES, sizeof *columns[i]);
    }
    workspace = room((size_t)sp_cuda_column_sums_workspace(TOKENS, FEATURES) * sizeof *workspace);
    sums = room(sizeof *sums);
    need(cudaMemset(sums, 0, sizeof *sums), "cudaMemset");
    partials = room(SP_CUDA_SUM_OF_SQUARES_WORKSPACE * sizeof *partials);
    flush = room(FLUSH_BYTES);
    set_up_indices();
}

// ---- What streams through memory ----

static int run_copy(void)
{
    return cudaMemcpyAsync(x[1], x[0], (size_t)ELEMENTS * sizeof *x[0], cudaMemcpyDeviceToDevice,
                           NULL);
}

static int run_copy_rows(void)
{
    return sp_cuda_copy_rows(TOKENS, FEATURES, x[0], FEATURES, x[1], FEATURES, NULL);
}

static int run_add(void)
{
    return sp_cuda_add(ELEMENTS, x[0], x[1], NULL);
}

static int run_add_bias(void)
{
    return sp_cuda_add_bias(TOKENS, FEATURES, vector, x[1], FEATURES, NULL);
}

static int run_accumulate(void)
{
    return sp_cuda_accumulate(TOKENS, FEATURES, x[0], FEATURES, wide[0], FEATURES, NULL);
}

static int run_round(void)
{
    return sp_cuda_round(TOKENS, FEATURES, wide[0], FEATURES, x[1], FEATURES, NULL);
}

static int run_sum_of_squares(void)
{
    return sp_cuda_sum_of_squares(ELEMENTS, wide[0], false, sums, partials, NULL);
}

static int run_rms_norm(void)
{
    return sp_cuda_rms_norm(TOKENS, FEATURES, x[0], FEATURES, vector, 1e-5, x[1], FEATURES, rows[0],
                            NULL);
}

static int run_rms_norm_input(void)
{
    return sp_cuda_rms_norm_backward_input(TOKENS, FEATURES, x[0], FEATURES, vector, rows[0], x[1],
                                           FEATURES, x[2], FEATURES, NULL);
}

static int run_rms_norm_weight(void)
{
    return sp_cuda_rms_norm_backward_weight(TOKENS, FEATURES, x[0], FEATURES, rows[0], x[1],
                                            FEATURES, columns[0], workspace, NULL);
}

static int run_layer_norm(void)
{
    return sp_cuda_layer_norm(TOKENS, FEATURES, x[0], FEATURES, vector, other_vector, 1e-5, x[1],
                              FEATURES, rows[1], rows[0], NULL);
}

static int run_layer_norm_input(void)
{
    return sp_cuda_layer_norm_backward_input(TOKENS, FEATURES, x[0], FEATURES, vector, rows[1],
                                             rows[0], x[1], FEATURES, x[2], FEATURES, NULL);
}

static int run_layer_norm_weight(void)
{
    return sp_cuda_layer_norm_backward_weight(TOKENS, FEATURES, x[0], FEATURES, rows[1], rows[0],
                                              x[1], FEATURES, columns[0], columns[1], workspace,
                                              NULL);
}

// Any numbers will do as cosines and sines.
static int run_rope(void)
{
    return sp_cuda_rope(TOKENS, HEADS, HEAD_DIM, index_of, wide[2], wide[3], false, x[2], FEATURES,
                        NULL);
}

static int run_swiglu(void)
{
    return sp_cuda_swiglu(TOKENS, FEATURES, x[0], x[1], FEATURES, x[2], FEATURES, NULL);
}

static int run_swiglu_backward(void)
{
    return sp_cuda_swiglu_backward(TOKENS, FEATURES, x[0], x[1], FEATURES, x[2], FEATURES, x[3],
                                   (sp_bf16 *)wide[1], FEATURES, NULL);
}

static int run_gelu(void)
{
    return sp_cuda_gelu(ELEMENTS, x[0], x[1], NULL);
}

static int run_gelu_backward(void)
{
    return sp_cuda_gelu_backward(ELEMENTS, x[0], x[1], x[2], NULL);
}

static int run_embedding(void)
{
    return sp_cuda_embedding(TOKENS, FEATURES, index_of, 0, TOKENS, x[0], false, x[1], FEATURES,
                             NULL);
}

static int run_embedding_weight(void)
{
    return sp_cuda_embedding_backward_weight(TOKENS, FEATURES, index_of, order_of, 0, TOKENS, x[0],
                                             FEATURES, wide[0], NULL);
}

static int run_cross_entropy(void)
{
    return sp_cuda_cross_entropy_local(LOSS_TOKENS, VOCAB, 0, x[0], VOCAB, index_of, rows[0],
                                       rows[1], rows[2], NULL);
}

static int run_cross_entropy_backward(void)
{
    return sp_cuda_cross_entropy_backward(LOSS_TOKENS, VOCAB, 0, x[0], VOCAB, index_of, NULL,
                                          LOSS_TOKENS, rows[3], x[0], VOCAB, NULL);
}

static int run_adamw(void)
{
    sp_kernel_adamw_step step = {.step = 3,
                                 .learning_rate = 1e-4,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .epsilon = 1e-8,
                                 .gradient_scale = 1.0};
    return sp_cuda_adamw(&step, NULL, ELEMENTS, wide[0], wide[1], wide[2], wide[3], x[0], NULL);
}

static void report_streams(void)
{
    const struct {
        const char *name;
        int (*run)(void);
        double bytes; // an element
    } cases[] = {
        {"copy_rows", run_copy_rows, 4},
        {"add", run_add, 6},
        {"add_bias", run_add_bias, 4},
        {"accumulate", run_accumulate, 10},
        {"round", run_round, 6},
        {"sum_of_squares", run_sum_of_squares, 4},
        {"rms_norm", run_rms_norm, 4},
        {"rms_norm_backward_input", run_rms_norm_input, 6},
        {"rms_norm_backward_weight", run_rms_norm_weight, 4},
        {"layer_norm", run_layer_norm, 4},
        {"layer_norm_backward_input", run_layer_norm_input, 6},
        {"layer_norm_backward_weight", run_layer_norm_weight, 4},
        {"rope", run_rope, 4},
        {"swiglu", run_swiglu, 6},
        {"swiglu_backward", run_swiglu_backward, 10},
        {"gelu", run_gelu, 4},
        {"gelu_backward", run_gelu_backward, 6},
        {"embedding", run_embedding, 4},
        {"embedding_backward_weight", run_embedding_weight, 2 + 8 * distinct_share},
        {"cross_entropy_local", run_cross_entropy, 2},
        {"cross_entropy_backward", run_cross_entropy_backward, 4},
        {"adamw", run_adamw, 30},
    };
    cuda_timing copy = cuda_measure(run_copy, "copy", flush, FLUSH_BYTES);
    double limit =
        cuda_report(device, "copy", copy, 4.0 * (double)ELEMENTS, 1e-9, "GB/s", "itself", 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cuda_timing t = cuda_measure(cases[i].run, cases[i].name, flush, FLUSH_BYTES);
        cuda_report(device, cases[i].name, t, cases[i].bytes * (double)ELEMENTS, 1e-9, "GB/s",
                    "copy", limit);
    }
}

int gpu_kernels_bench(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        fprintf(stderr, "skipped: %s\n",
                error != cudaSuccess ? cudaGetErrorString(error) : "no CUDA device");
        return 77;
    }
    set_up();
    report_streams();
    return 0;
}
