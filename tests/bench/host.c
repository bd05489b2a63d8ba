// Speed of whole steps of the CPU executor on one core: operations of the model (forward once,
// backward twice, attention by visible pairs) over the time of all actions, beside OpenBLAS alone
// on the largest product of a layer in the same run. host [STEPS]; one JSON line on stdout. What
// the ratio lacks to 1 is smaller products, attention, element-wise kernels and the executor
// itself.
#include <stdio.h>
#include <stdlib.h>

#include "backends/api/device.h"
#include "kernels/kernels.h"
#include "sim/base/progress.h"
#include "sim/schedule/schedule.h"
#include "tests/bench/bench.h"

enum { SAMPLES = 8, TOKENS = 512, MOST_STEPS = 1000, MOST_PRODUCTS = 10000 };

static const sp_model model = {.name = "bench",
                               .layers = 8,
                               .hidden = 512,
                               .ffn = 1408,
                               .heads = 8,
                               .kv_heads = 4,
                               .head_dim = 64,
                               .vocab = 4096};

static float *product_in, *product_weight, *product_out;

static void must(bool ok)
{
    if (!ok) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
}

// ---- the limit ----

static void product(void)
{
    sp_kernel_linear_f32(TOKENS, model.hidden, 2 * model.ffn, product_in, model.hidden,
                         product_weight, model.hidden, NULL, product_out, 2 * model.ffn);
}

// Median seconds of one product, over a second of them.
static double product_s(void)
{
    static double seconds[MOST_PRODUCTS];
    size_t count = 0;
    product();
    double started_s = sp_clock_s();
    for (double now_s = started_s; now_s - started_s < 1.0 && count < MOST_PRODUCTS; count++) {
        product();
        double end_s = sp_clock_s();
        seconds[count] = end_s - now_s;
        now_s = end_s;
    }
    qsort(seconds, count, sizeof seconds[0], sp_ascending_doubles);
    return seconds[count / 2];
}

static double product_rate(void)
{
    size_t in = (size_t)(TOKENS * model.hidden);
    size_t weight = (size_t)(2 * model.ffn * model.hidden);
    product_in = calloc(in, sizeof *product_in);
    product_weight = calloc(weight, sizeof *product_weight);
    product_out = calloc((size_t)(TOKENS * 2 * model.ffn), sizeof *product_out);
    must(product_in != NULL && product_weight != NULL && product_out != NULL);
    for (size_t i = 0; i < in; i++) {
        product_in[i] = (float)(i % 7) - 3.0f;
    }
    for (size_t i = 0; i < weight; i++) {
        product_weight[i] = (float)(i % 5) - 2.0f;
    }
    double seconds = product_s();
    free(product_in);
    free(product_weight);
    free(product_out);
    return 2.0 * TOKENS * (double)(model.hidden * 2 * model.ffn) / seconds;
}

// ---- steps ----

static double busy_s(const sp_timeline *timeline)
{
    int64_t ns = 0;
    for (size_t r = 0; r < timeline->rank_count; r++) {
        for (size_t i = 0; i < timeline->ranks[r].count; i++) {
            const sp_span *span = &timeline->ranks[r].spans[i];
            ns += span->end_ns - span->start_ns;
        }
    }
    return (double)ns * 1e-9;
}

// Median time of all actions over the steps but the first; the loss of the last.
static double run_steps(const sp_plan *plan, int steps, double *loss)
{
    sp_error err = {0};
    sp_registry *registry;
    const sp_backend *backend;
    sp_run *run;
    const sp_run_request request = {
        .plan = plan, .model = &model, .precision = SP_FP32, .seed = 1, .steps = steps};
    require(sp_registry_new(&registry, &err), &err);
    require(sp_registry_find(registry, "host", &backend, &err), &err);
    require(sp_backend_run(backend, 0, &request, &run, &err), &err);
    double *seconds = malloc((size_t)steps * sizeof *seconds);
    must(seconds != NULL);
    for (int i = 1; i < steps; i++) {
        seconds[i - 1] = busy_s(&sp_run_step(run, i)->timeline);
    }
    qsort(seconds, (size_t)steps - 1, sizeof *seconds, sp_ascending_doubles);
    double median_s = seconds[(steps - 1) / 2];
    *loss = sp_run_step(run, steps - 1)->loss;
    free(seconds);
    sp_run_free(run);
    sp_registry_free(registry);
    return median_s;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 8;
    if (steps < 2 || steps > MOST_STEPS) {
        fprintf(stderr, "steps: expected 2 to %d\n", MOST_STEPS);
        return 2;
    }
    sp_error err = {0};
    int64_t ids[SAMPLES], tokens[SAMPLES];
    const sp_batch batch = {
        .ids = ids, .tokens = tokens, .count = SAMPLES, .total_tokens = SAMPLES * TOKENS};
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1};
    const sp_schedule_spec spec = {.kind = SP_SCHEDULE_1F1B};
    sp_packing packing;
    sp_plan plan;
    sp_packing_init(&packing, &batch, 1);
    for (int s = 0; s < SAMPLES; s++) {
        ids[s] = s;
        tokens[s] = TOKENS;
        const sp_slice slice = {.sample = s, .tokens = TOKENS, .computed_tokens = TOKENS};
        must(sp_pack_list_begin(&packing.forward, 0, 1));
        sp_pack_list_add(&packing.forward, slice, true);
    }
    sp_plan_init(&plan, &layout, &packing);
    require(sp_schedule_generate(&spec, NULL, "host", &plan, &err), &err);
    double loss;
    double step_s = run_steps(&plan, steps, &loss);
    double limit = product_rate();
    double pairs2 = (double)SAMPLES * TOKENS * TOKENS;
    double flops = 3.0 * sp_model_forward_flops(&model, SAMPLES * TOKENS, pairs2);
    printf("{\"bench\": \"host\", \"version\": \"%s\", \"blas_core\": \"%s\", \"steps\": %d, "
           "\"tokens\": %d, \"median_ms\": %.2f, \"gflops\": %.2f, \"openblas_gflops\": %.2f, "
           "\"ratio\": %.3f, \"loss\": %.4f}\n",
           SP_VERSION, sp_kernels_blas_core(), steps, SAMPLES * TOKENS, step_s * 1e3,
           flops / step_s * 1e-9, limit * 1e-9, flops / step_s / limit, loss);
    sp_plan_fini(&plan);
    sp_packing_fini(&packing);
    return 0;
}
