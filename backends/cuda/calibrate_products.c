// Products by cuBLASLt: a table of times over tokens for each (n, k) of the model's layers and
// head, and a curve of rates by the edge of a cube for all others.
#include <math.h>
#include <stdio.h>

#include "backends/cuda/calibrate.h"
#include "backends/cuda/calibration.h"
#include "backends/cuda/device.h"
#include "backends/cuda/gemm.h"

enum { LEAST_TOKENS = 128, LEAST_EDGE = 512, MOST_EDGE = 8192, NOTED_EDGE = 4096 };

static sp_status run(void *context, cudaStream_t stream, sp_error *err)
{
    const struct sp_i_cuda_product_in *p = context;
    const sp_i_cuda_product *what = &p->of->what;
    const sp_i_cuda_operands operands = {what->kind == SP_I_PRODUCT_FORWARD ? p->x : p->dy,
                                         what->kind == SP_I_PRODUCT_WEIGHT ? p->x : p->weight,
                                         p->result};
    return sp_i_cuda_gemm_run(p->gemm, what, &operands, stream, err);
}

// Sums of weight gradients start from numbers, not from what memory held.
static sp_status make_product(const sp_i_cuda_calibration *c, sp_i_cuda_products *p, int place,
                              const int64_t bytes[4], int sms, struct sp_i_cuda_product_in *in,
                              sp_error *err)
{
    char *next = p->rooms.memory[place];
    *in = (struct sp_i_cuda_product_in){.of = p};
    in->x = sp_i_cuda_take_part(&next, bytes[0]);
    in->dy = sp_i_cuda_take_part(&next, bytes[1]);
    in->weight = sp_i_cuda_take_part(&next, bytes[2]);
    in->result = sp_i_cuda_take_part(&next, bytes[3]);
    in->workspace = next;
    const sp_i_cuda_gemm_place at = {next, SP_I_CUDA_GEMM_WORKSPACE, sms};
    sp_status status =
        SP_I_CUDA(&c->device, err, MemsetAsync, in->result, 0, (size_t)bytes[3], c->bench.stream);
    return status == SP_OK ? sp_i_cuda_gemm_new(&c->device, c->cublas, &at, &in->gemm, err)
                           : status;
}

// The result is a gradient or output, or of 4 bytes an element that of the weight.
sp_status sp_i_cuda_products_init(const sp_i_cuda_calibration *c, int64_t in, int64_t out,
                                  int64_t tokens, int64_t drawn, sp_i_cuda_products *p,
                                  sp_error *err)
{
    const int64_t x = sp_i_cuda_aligned_bytes(2 * tokens * in);
    const int64_t dy = sp_i_cuda_aligned_bytes(2 * tokens * out);
    const int64_t weight = sp_i_cuda_aligned_bytes(2 * in * out);
    const int64_t bytes[] = {x, dy, weight,
                             (int64_t)fmax(fmax((double)x, (double)dy), 2.0 * (double)weight)};
    const int64_t elements = (x + dy + weight) / 2;
    *p = (sp_i_cuda_products){.what = {.in = in, .out = out}};
    sp_status status = sp_i_cuda_rooms_init(c, 2 * elements + bytes[3] + SP_I_CUDA_GEMM_WORKSPACE,
                                            elements, drawn > 0 ? drawn : elements, &p->rooms, err);
    for (int i = 0; status == SP_OK && i < c->places; i++) {
        p->contexts[i] = &p->in[i];
        status = make_product(c, p, i, bytes, sp_i_cuda_place_sms(c, i), &p->in[i], err);
    }
    return status == SP_OK ? SP_I_CUDA(&c->device, err, StreamSynchronize, c->bench.stream)
                           : status;
}

void sp_i_cuda_products_fini(const sp_i_cuda_calibration *c, sp_i_cuda_products *p)
{
    for (int i = 0; i < c->places; i++) {
        sp_i_cuda_gemm_free(p->in[i].gemm);
    }
    sp_i_cuda_rooms_fini(c, &p->rooms);
}

static void set_product(sp_i_cuda_products *p, sp_i_product kind, int64_t tokens)
{
    p->what.kind = kind;
    p->what.tokens = tokens;
    p->what.fp32 = p->what.accumulate = kind == SP_I_PRODUCT_WEIGHT;
}

sp_status sp_i_cuda_products_time(sp_i_cuda_calibration *c, sp_i_cuda_products *p,
                                  sp_i_product kind, int64_t tokens, double budget_s,
                                  sp_i_cuda_timing *t, sp_error *err)
{
    set_product(p, kind, tokens);
    return sp_i_cuda_calibration_time(c, run, p->contexts, budget_s, t, err);
}

// ---- the profile's tables ----

// The product on the whole device is one of the same memory, of whose SMs it is not told.
static sp_status note_cube(sp_i_cuda_calibration *c, int64_t edge, sp_error *err)
{
    sp_i_cuda_products p;
    char name[48];
    sp_status status = sp_i_cuda_products_init(c, edge, edge, edge, 0, &p, err);
    struct sp_i_cuda_product_in whole = p.in[0];
    whole.gemm = NULL;
    if (status == SP_OK) {
        const sp_i_cuda_gemm_place at = {whole.result +
                                             2 * sp_i_cuda_aligned_bytes(2 * edge * edge),
                                         SP_I_CUDA_GEMM_WORKSPACE, 0};
        status = sp_i_cuda_gemm_new(&c->device, c->cublas, &at, &whole.gemm, err);
    }
    if (status == SP_OK) {
        set_product(&p, SP_I_PRODUCT_FORWARD, edge);
        snprintf(name, sizeof name, "product, edge %d", (int)edge);
        status = sp_i_cuda_note_places(c, name, run, p.contexts, &whole, 0.005 * c->limit_s, err);
    }
    sp_i_cuda_gemm_free(whole.gemm);
    sp_i_cuda_products_fini(c, &p);
    return status;
}

typedef struct timed {
    sp_i_cuda_calibration *c;
    sp_i_cuda_products products;
} timed;

static sp_status begin_product(void *context, int64_t in, int64_t out, int64_t tokens,
                               sp_error *err)
{
    timed *t = context;
    return sp_i_cuda_products_init(t->c, in, out, tokens, 0, &t->products, err);
}

static void end_product(void *context)
{
    timed *t = context;
    sp_i_cuda_products_fini(t->c, &t->products);
}

static sp_status time_product(void *context, sp_i_product kind, int64_t in, int64_t out,
                              int64_t tokens, double budget_s, sp_i_timing *timing, sp_error *err)
{
    timed *t = context;
    sp_i_cuda_timing found;
    (void)in;
    (void)out;
    sp_status status =
        sp_i_cuda_products_time(t->c, &t->products, kind, tokens, budget_s, &found, err);
    *timing = (sp_i_timing){found.median_s, found.spread};
    return status;
}

sp_status sp_i_cuda_calibrate_products(sp_i_cuda_calibration *c, sp_error *err)
{
    timed t = {.c = c};
    const int64_t most = MOST_EDGE < c->most_tokens ? MOST_EDGE : c->most_tokens;
    sp_i_calibrator calibrator = sp_i_cuda_calibrator(c, &t);
    calibrator.products_by = "products by cuBLASLt";
    calibrator.cubes_by = "cubes by cuBLASLt, all passes";
    calibrator.most_tp = 1;
    calibrator.least_tokens = LEAST_TOKENS;
    calibrator.most_tokens = c->most_tokens;
    calibrator.least_edge = LEAST_EDGE;
    calibrator.most_edge = most;
    calibrator.table_s = 0.4 * c->limit_s / 120; // 5 shapes, 3 passes, 8 sizes
    calibrator.rate_s = 0.1 * c->limit_s / 15;
    calibrator.begin_product = begin_product;
    calibrator.end_product = end_product;
    calibrator.time_product = time_product;
    sp_status status = sp_i_calibrate_product_rates(&calibrator, err);
    if (status == SP_OK && c->partitions != NULL) {
        status = note_cube(c, most < NOTED_EDGE ? most : NOTED_EDGE, err);
    }
    return status == SP_OK ? sp_i_calibrate_product_tables(&calibrator, err) : status;
}

// ---- one product by which a run sees how fast the GPU is now ----

enum { REFERENCE_EDGE = SP_I_CUDA_REFERENCE_EDGE, REFERENCE_DRAWN = 1 << 18 };

// Device time.
#define REFERENCE_S 0.01

sp_status sp_i_cuda_reference_in(sp_i_cuda_calibration *c, double *seconds, sp_error *err)
{
    sp_i_cuda_products p;
    sp_i_cuda_timing timing = {0};
    sp_status status = sp_i_cuda_products_init(c, REFERENCE_EDGE, REFERENCE_EDGE, REFERENCE_EDGE,
                                               REFERENCE_DRAWN, &p, err);
    if (status == SP_OK) {
        status = sp_i_cuda_products_time(c, &p, SP_I_PRODUCT_FORWARD, REFERENCE_EDGE, REFERENCE_S,
                                         &timing, err);
    }
    sp_i_cuda_products_fini(c, &p);
    *seconds = timing.median_s;
    return status;
}

sp_status sp_i_cuda_reference(int device, int ranks, double *seconds, sp_error *err)
{
    sp_i_cuda_api api;
    sp_i_cublas_api cublas;
    sp_error own = {0};
    char reason[SP_I_CUDA_TEXT];
    *seconds = 0.0;
    sp_i_cuda_api_init(&api);
    sp_i_cuda_calibration c = {.device = {&api, device},
                               .cublas = &cublas,
                               .delay = sp_i_cuda_put_delay,
                               .seed = 1,
                               .places = ranks > 1 ? ranks : 1};
    if (c.places > SP_I_CUDA_MOST_PLACES || !sp_i_cublas_api_init(&cublas, reason, sizeof reason)) {
        return SP_OK;
    }
    sp_status status = sp_i_cuda_use(&c.device, err);
    if (status == SP_OK) {
        status = sp_i_cuda_device_info(&c.device, &c.info, err);
    }
    if (status != SP_OK) {
        return status;
    }
    status = sp_i_cuda_calibration_begin(&c, &own);
    if (status == SP_ERR_INFEASIBLE) {
        return SP_OK;
    }
    if (status == SP_OK) {
        status = sp_i_cuda_reference_in(&c, seconds, &own);
        sp_i_cuda_calibration_end(&c);
    }
    return status == SP_OK ? SP_OK : sp_error_set(err, status, "%s", own.message[0]);
}
