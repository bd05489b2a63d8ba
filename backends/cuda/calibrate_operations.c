// The single operations that a calibration of a GPU times: products, attention, kernels bound by
// memory.
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>

#include "backends/cuda/attention.h"
#include "backends/cuda/calibration.h"
#include "backends/cuda/gemm.h"
#include "kernels/cuda_kernels.h"
#include "kernels/cuda_math.h"
#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/base/units.h"
#include "sim/model/layout.h"

// ---- Products ----

// Products by cuBLASLt: a table of times over tokens for each (n, k) of the model's layers and
// head, and a curve of rates by the edge of a cube for all others.

enum { LEAST_PRODUCT_TOKENS = 128, LEAST_EDGE = 512, MOST_EDGE = 8192, NOTED_EDGE = 4096 };

static sp_status run_product(void *context, CUstream stream, sp_error *err)
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
    const sp_i_cuda_gemm_place gemm_place = {next, SP_I_CUDA_GEMM_WORKSPACE, sms};
    SP_TRY(SP_I_CUDA(&c->device, err, MemsetD8Async, sp_i_cuda_at(in->result), 0, (size_t)bytes[3],
                     c->bench.stream));
    return sp_i_cuda_gemm_new(&c->device, c->cublas, &gemm_place, &in->gemm, err);
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
    SP_TRY(sp_i_cuda_rooms_init(c, 2 * elements + bytes[3] + SP_I_CUDA_GEMM_WORKSPACE, elements,
                                drawn, &p->rooms, err));
    for (int i = 0; i < c->places; i++) {
        p->contexts[i] = &p->in[i];
        SP_TRY(make_product(c, p, i, bytes, sp_i_cuda_place_sms(c, i), &p->in[i], err));
    }
    return SP_I_CUDA(&c->device, err, StreamSynchronize, c->bench.stream);
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
    return sp_i_cuda_bench_time_loaded(&c->bench, run_product, p->contexts, budget_s, t, err);
}

enum { REFERENCE_EDGE = SP_I_CUDA_REFERENCE_EDGE, REFERENCE_DRAWN = 1 << 18 };

// Device time.
#define REFERENCE_S 0.01

// ---- the profile's tables ----

// The product on the whole device is one of the same memory, of whose SMs it is not told.
static sp_status note_cube(sp_i_cuda_calibration *c, int64_t edge, sp_error *err)
{
    sp_i_cuda_products p;
    char name[48];
    sp_status status = sp_i_cuda_products_init(c, edge, edge, edge, SP_I_CUDA_DRAWN, &p, err);
    struct sp_i_cuda_product_in whole = p.in[0];
    whole.gemm = NULL;
    if (status == SP_OK) {
        const sp_i_cuda_gemm_place gemm_place = {whole.result +
                                                     2 * sp_i_cuda_aligned_bytes(2 * edge * edge),
                                                 SP_I_CUDA_GEMM_WORKSPACE, 0};
        status = sp_i_cuda_gemm_new(&c->device, c->cublas, &gemm_place, &whole.gemm, err);
    }
    if (status == SP_OK) {
        set_product(&p, SP_I_PRODUCT_FORWARD, edge);
        snprintf(name, sizeof name, "product, edge %d", (int)edge);
        status = sp_i_cuda_note_places(c, name, run_product, p.contexts, &whole, 0.005 * c->limit_s,
                                       err);
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
    return sp_i_cuda_products_init(t->c, in, out, tokens, SP_I_CUDA_DRAWN, &t->products, err);
}

static void end_product(void *context)
{
    timed *t = context;
    sp_i_cuda_products_fini(t->c, &t->products);
}

static sp_status time_product(void *context, sp_i_product kind, int64_t tokens, double budget_s,
                              sp_i_timing *timing, sp_error *err)
{
    timed *t = context;
    sp_i_cuda_timing found;
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
    calibrator.least_tokens = LEAST_PRODUCT_TOKENS;
    calibrator.most_tokens = c->most_tokens;
    calibrator.least_edge = LEAST_EDGE;
    calibrator.most_edge = most;
    calibrator.table_s = 0.4 * c->limit_s / 120; // 5 shapes, 3 passes, 8 sizes
    calibrator.rate_s = 0.1 * c->limit_s / 15;
    calibrator.begin_product = begin_product;
    calibrator.end_product = end_product;
    calibrator.time_product = time_product;
    SP_TRY(sp_i_calibrate_product_rates(&calibrator, err));
    if (c->partitions != NULL) {
        SP_TRY(note_cube(c, most < NOTED_EDGE ? most : NOTED_EDGE, err));
    }
    return sp_i_calibrate_product_tables(&calibrator, err);
}

// ---- products as the neighbours' work ----

static sp_status time_beside(sp_i_cuda_calibration *c, sp_i_cuda_products *p, double *piece_s,
                             sp_error *err)
{
    sp_i_cuda_timing t;
    sp_status status =
        sp_i_cuda_products_time(c, p, SP_I_PRODUCT_FORWARD, REFERENCE_EDGE, REFERENCE_S, &t, err);
    *piece_s = t.least_s;
    return status;
}

sp_status sp_i_cuda_neighbours_compute(sp_i_cuda_calibration *c, sp_i_cuda_products *p,
                                       sp_error *err)
{
    double piece_s = 0.0;
    *p = (sp_i_cuda_products){0};
    if (c->partitions == NULL) {
        return SP_OK;
    }
    SP_TRY(sp_i_cuda_products_init(c, REFERENCE_EDGE, REFERENCE_EDGE, REFERENCE_EDGE,
                                   REFERENCE_DRAWN, p, err));
    SP_TRY(time_beside(c, p, &piece_s, err));
    c->bench.beside = run_product;
    c->bench.beside_contexts = p->contexts;
    c->bench.beside_s = piece_s;
    return SP_OK;
}

void sp_i_cuda_neighbours_end(sp_i_cuda_calibration *c, sp_i_cuda_products *p)
{
    c->bench.beside = NULL;
    sp_i_cuda_products_fini(c, p);
}

// ---- one product by which a run sees how fast the GPU is now ----

sp_status sp_i_cuda_warm_up(sp_i_cuda_calibration *c, double device_s, sp_error *err)
{
    sp_i_cuda_products p;
    double done_s = 0.0;
    sp_status status = sp_i_cuda_products_init(c, REFERENCE_EDGE, REFERENCE_EDGE, REFERENCE_EDGE,
                                               REFERENCE_DRAWN, &p, err);
    while (status == SP_OK && done_s < device_s) {
        sp_i_cuda_timing t;
        status = sp_i_cuda_products_time(c, &p, SP_I_PRODUCT_FORWARD, REFERENCE_EDGE,
                                         device_s - done_s, &t, err);
        done_s += t.median_s * t.repeats;
    }
    sp_i_cuda_products_fini(c, &p);
    return status;
}

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
    sp_cuda_api api;
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
    SP_TRY(sp_i_cuda_use(&c.device, err));
    SP_TRY(sp_i_cuda_device_info(&c.device, &c.info, err));
    sp_status status = sp_i_cuda_calibration_begin(&c, &own);
    if (status == SP_ERR_INFEASIBLE) {
        return SP_OK;
    }
    if (status == SP_OK) {
        status = sp_i_cuda_warm_up(&c, SP_I_CUDA_WARM_UP_S, &own);
        status = status == SP_OK ? sp_i_cuda_reference_in(&c, seconds, &own) : status;
        sp_i_cuda_calibration_end(&c);
    }
    return status == SP_OK ? SP_OK : sp_error_set(err, status, "%s", own.message[0]);
}

// ---- Attention ----

// Attention as a run computes it: by cuDNN's plan of packed segments where it is there and takes
// the heads, else by the reference kernels. Two shapes are timed at each length: a whole sample,
// whose rate is that of a causal mask, and as many queries behind as many keys, whose time beyond
// that is what pairs without a mask take. Beside the profile, for people: packs of equal samples.

// The least share of a time behind a context that is the context's: a smaller difference is noise.
#define LEAST_SHARE 0.05

enum { LEAST_LENGTH = 512, MOST_SEGMENTS = 16 };

// The data of one place: tensors for the longest shape.
typedef struct attention_room {
    const struct attention *owner;
    sp_i_cuda_attention *by; // cuDNN's, for the place's streams; NULL: the reference kernels
    void *tensors[SP_I_CUDA_ATTENTION_TENSORS]; // both ways' from Q to DV
    float *delta;                               // of the reference kernels
    void *index;                                // lengths and offsets, or the segments
    void *workspace;
} attention_room;

typedef struct attention {
    sp_i_cuda_calibration *c;
    bool cudnn;
    sp_kernel_attention_shape shape;
    sp_i_cuda_attention_shape packed; // cuDNN's plan
    int64_t segments, queries, keys;  // what is timed; of each segment
    bool backward;
    int64_t most_queries, most_keys;
    int64_t index_bytes, workspace_bytes; // of a room
    double budget_s;
    sp_i_cuda_rooms memory;
    attention_room rooms[SP_I_CUDA_MOST_PLACES];
    attention_room whole; // the first room's memory, for streams of the whole device
    void *contexts[SP_I_CUDA_MOST_PLACES];
} attention;

static sp_status run_attention(void *context, CUstream stream, sp_error *err)
{
    const attention_room *r = context;
    const attention *a = r->owner;
    if (a->cudnn) {
        return sp_i_cuda_attention_run(r->by, &a->packed, a->backward, r->tensors, r->workspace,
                                       stream, err);
    }
    const sp_cuda_attention_pack pack = {.segments = r->index,
                                         .count = a->segments,
                                         .rows = a->segments * a->queries,
                                         .gradient_rows = a->segments * a->keys,
                                         .q = r->tensors[SP_I_CUDA_Q],
                                         .k = r->tensors[SP_I_CUDA_K],
                                         .v = r->tensors[SP_I_CUDA_V],
                                         .out = r->tensors[SP_I_CUDA_O],
                                         .lse = r->tensors[SP_I_CUDA_STATS],
                                         .dout = r->tensors[SP_I_CUDA_DO],
                                         .delta = r->delta,
                                         .dq = r->tensors[SP_I_CUDA_DQ],
                                         .dk = r->tensors[SP_I_CUDA_DK],
                                         .dv = r->tensors[SP_I_CUDA_DV]};
    int code = a->c->attend(&a->shape, &pack, a->backward, stream);
    return sp_i_cuda_check(&a->c->device, (CUresult)code, "sp_cuda_attention", __FILE__, __LINE__,
                           err);
}

// ---- memory ----

// K stands beside V, dV behind dK. Q to V hold numbers.
static void place_room(const attention *a, char *memory, attention_room *r)
{
    const sp_kernel_attention_shape *s = &a->shape;
    const int64_t q = 2 * a->most_queries * s->q_stride;
    const int64_t kv = 2 * a->most_keys * s->kv_stride;
    const int64_t rows = 4 * a->most_queries * s->heads;
    char *next = memory;
    r->owner = a;
    r->tensors[SP_I_CUDA_Q] = sp_i_cuda_take_part(&next, q);
    r->tensors[SP_I_CUDA_DO] = sp_i_cuda_take_part(&next, q);
    r->tensors[SP_I_CUDA_K] = sp_i_cuda_take_part(&next, kv);
    r->tensors[SP_I_CUDA_V] = (char *)r->tensors[SP_I_CUDA_K] + s->kv_stride;
    r->tensors[SP_I_CUDA_O] = sp_i_cuda_take_part(&next, q);
    r->tensors[SP_I_CUDA_DQ] = sp_i_cuda_take_part(&next, q);
    r->tensors[SP_I_CUDA_STATS] = sp_i_cuda_take_part(&next, rows);
    r->delta = sp_i_cuda_take_part(&next, rows);
    r->tensors[SP_I_CUDA_DK] = sp_i_cuda_take_part(&next, kv);
    r->tensors[SP_I_CUDA_DV] = (char *)r->tensors[SP_I_CUDA_DK] + kv / 2;
    r->index = sp_i_cuda_take_part(&next, a->index_bytes);
    r->workspace = sp_i_cuda_take_part(&next, a->workspace_bytes);
}

// ---- a shape ----

static void make_segments(const attention *a, sp_i_cuda_segment *list, int64_t *key_row,
                          sp_i_cuda_segments *segments)
{
    *segments = (sp_i_cuda_segments){.list = list,
                                     .count = (int32_t)a->segments,
                                     .key_row = key_row,
                                     .key_rows = a->segments * a->keys,
                                     .gradient_rows = a->segments * a->keys,
                                     .longest_queries = a->queries,
                                     .longest_keys = a->keys};
    for (int64_t i = 0; i < a->segments; i++) {
        key_row[i] = i * a->keys;
        list[i] = (sp_i_cuda_segment){(size_t)i, i * a->queries, a->queries, a->keys, i * a->keys};
    }
}

// A plan that serves the segments, and its bytes: the one behind a context, which is made first,
// serves a whole sample of that length too.
static sp_status find_plan(attention *a, const sp_i_cuda_segments *segments, int64_t *bytes,
                           sp_error *err)
{
    if (!sp_i_cuda_packed_shape(segments, a->segments * a->queries, &a->shape, &a->packed)) {
        return sp_error_set(err, SP_ERR_INFEASIBLE, "cuDNN does not take %lld of %lld tokens",
                            (long long)a->queries, (long long)a->keys);
    }
    sp_status status = sp_i_cuda_attention_plan(a->c->attention, &a->packed, a->backward, err);
    return status == SP_OK
               ? sp_i_cuda_attention_workspace(a->c->attention, &a->packed, a->backward, bytes, err)
               : status;
}

// Who computes knows the segments by a table on the device, alike in every room.
static sp_status set_shape(attention *a, bool backward, sp_error *err)
{
    sp_i_cuda_segment list[MOST_SEGMENTS];
    int64_t key_row[MOST_SEGMENTS];
    sp_cuda_attention_segment table[MOST_SEGMENTS];
    sp_i_cuda_segments segments;
    int64_t bytes = (int64_t)sizeof table;
    void *index = NULL;
    a->backward = backward;
    make_segments(a, list, key_row, &segments);
    sp_i_cuda_segments_table(&segments, table);
    if (a->cudnn) {
        SP_TRY(find_plan(a, &segments, &bytes, err));
        SP_ASSERT(bytes <= a->workspace_bytes);
        bytes = sp_i_cuda_packed_index_bytes(&a->packed);
        index = sp_malloc((size_t)bytes);
        sp_i_cuda_packed_index(&segments, &a->packed, index);
    }
    SP_ASSERT(bytes <= a->index_bytes);
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < a->c->places; i++) {
        attention_room *r = &a->rooms[i];
        if (a->cudnn) {
            sp_i_cuda_packed_tensors(&a->packed, r->index, r->tensors);
            sp_i_cuda_packed_tensors(&a->packed, a->whole.index, a->whole.tensors);
        }
        status = sp_i_cuda_upload(&a->c->device, r->index, a->cudnn ? index : table, bytes,
                                  a->c->bench.stream, err);
    }
    sp_free(index);
    return status;
}

// ---- times ----

// A backward reads what a forward of its shape has left. `name`: notes it for partitions.
static sp_status time_pass(attention *a, bool backward, const char *name, sp_i_cuda_timing *t,
                           sp_error *err)
{
    sp_i_cuda_calibration *c = a->c;
    sp_status status = set_shape(a, false, err);
    for (int i = 0; backward && status == SP_OK && i < c->places; i++) {
        CUstream stream = i == 0 ? c->bench.stream : c->bench.neighbour[i - 1];
        status = run_attention(&a->rooms[i], stream, err);
        status = status == SP_OK ? SP_I_CUDA(&c->device, err, StreamSynchronize, stream) : status;
    }
    if (status == SP_OK && backward) {
        status = set_shape(a, true, err);
    }
    if (status == SP_OK) {
        status =
            sp_i_cuda_bench_time_loaded(&c->bench, run_attention, a->contexts, a->budget_s, t, err);
    }
    return status == SP_OK && name != NULL
               ? sp_i_cuda_note_places(c, name, run_attention, a->contexts, &a->whole, a->budget_s,
                                       err)
               : status;
}

// Notes what partitions need for a whole sample of the largest size.
static sp_status time_attention(void *context, bool backward, int64_t queries, int64_t keys,
                                sp_i_timing *timing, sp_error *err)
{
    attention *a = context;
    sp_i_cuda_timing found = {0};
    char name[64];
    snprintf(name, sizeof name, "attention %s, length %d", backward ? "backward" : "forward",
             (int)queries);
    a->queries = queries;
    a->keys = keys;
    bool noted = queries == keys && queries == a->c->most_tokens;
    sp_status status = time_pass(a, backward, noted ? name : NULL, &found, err);
    *timing = (sp_i_timing){found.median_s, found.spread};
    return status;
}

// ---- packs ----

static sp_status note_packs(attention *a, json_t *notes, sp_error *err)
{
    json_t *list = json_array();
    sp_status status = SP_OK;
    for (a->segments = 4; status == SP_OK && a->segments <= MOST_SEGMENTS; a->segments *= 4) {
        for (int pass = 0; status == SP_OK && pass < 2; pass++) {
            sp_i_cuda_timing t;
            a->queries = a->keys = a->c->most_tokens / a->segments;
            status = time_pass(a, pass == 1, NULL, &t, err);
            if (status == SP_OK &&
                json_array_append_new(list,
                                      json_pack("{s:I, s:I, s:b, s:f, s:f}", "segments",
                                                (json_int_t)a->segments, "queries",
                                                (json_int_t)a->queries, "backward", pass == 1, "us",
                                                1e6 * t.median_s, "spread", t.spread)) != 0) {
                status = sp_i_calibration_unwritable(err);
            }
        }
    }
    a->segments = 1;
    (void)json_object_set_new(notes, "packs", list);
    return status;
}

// ---- all ----

// Room for the longest shape behind a context and for packs.
static sp_status make_rooms(attention *a, int64_t longest, sp_error *err)
{
    sp_i_cuda_segment list[MOST_SEGMENTS];
    int64_t key_row[MOST_SEGMENTS];
    sp_i_cuda_segments segments;
    a->most_queries = longest;
    a->most_keys = 2 * longest;
    // Both kinds of tables: nine or ten numbers of a segment.
    a->index_bytes = 1 << 14;
    a->queries = longest;
    a->keys = 2 * longest;
    if (a->cudnn) {
        int64_t offset[SP_I_CUDA_WORKSPACE_PARTS];
        make_segments(a, list, key_row, &segments);
        (void)sp_i_cuda_packed_shape(&segments, longest, &a->shape, &a->packed);
        // cuDNN's own engines need some KiB beside our parts.
        a->workspace_bytes = sp_i_cuda_attention_parts(&a->packed, offset) + (1 << 20);
    }
    const int64_t q = sp_i_cuda_aligned_bytes(2 * a->most_queries * a->shape.q_stride);
    const int64_t kv = sp_i_cuda_aligned_bytes(2 * a->most_keys * a->shape.kv_stride);
    const int64_t rows = sp_i_cuda_aligned_bytes(4 * a->most_queries * a->shape.heads);
    const int64_t drawn = (2 * q + kv) / 2; // bf16
    sp_status status = sp_i_cuda_rooms_init(a->c,
                                            4 * q + 2 * kv + 2 * rows + a->index_bytes +
                                                sp_i_cuda_aligned_bytes(a->workspace_bytes),
                                            drawn, SP_I_CUDA_DRAWN, &a->memory, err);
    for (int i = 0; status == SP_OK && i < a->c->places; i++) {
        a->contexts[i] = &a->rooms[i];
        place_room(a, a->memory.memory[i], &a->rooms[i]);
    }
    a->whole = a->rooms[0];
    a->whole.by = a->c->attention;
    return status;
}

// cuDNN's handles, each for the streams of a place.
static sp_status make_handles(attention *a, sp_error *err)
{
    const sp_i_cuda_calibration *c = a->c;
    for (int i = 0; a->cudnn && i < c->places; i++) {
        const sp_i_cuda_attention_place place = {
            .context = c->partitions != NULL ? sp_i_cuda_partition_context(c->partitions, i) : NULL,
            .shares = c->attention};
        SP_TRY(sp_i_cuda_attention_new(&c->device, &place, &a->rooms[i].by, err));
    }
    return SP_OK;
}

// Times the curves up to `longest`.
static sp_status time_curves(attention *a, int64_t longest, sp_error *err)
{
    sp_i_calibrator calibrator = sp_i_cuda_calibrator(a->c, a);
    calibrator.attention_by = a->cudnn ? "attention by cuDNN" : "attention by reference kernels";
    calibrator.least_length = LEAST_LENGTH;
    calibrator.longest = longest;
    calibrator.least_share = LEAST_SHARE;
    calibrator.time_attention = time_attention;
    sp_status status = make_handles(a, err);
    status = status == SP_OK ? make_rooms(a, longest, err) : status;
    if (status == SP_OK) {
        status = sp_i_calibrate_attention(&calibrator, err);
    }
    // Nobody asks for more of a partition than the profile.
    if (status == SP_OK && a->c->partitions == NULL) {
        status = note_packs(a, a->c->extra, err);
    }
    sp_i_cuda_rooms_fini(a->c, &a->memory);
    for (int i = 0; i < a->c->places; i++) {
        sp_i_cuda_attention_free(a->rooms[i].by);
    }
    return status;
}

static sp_status keep_known(const sp_i_cuda_calibration *c, sp_error *err)
{
    json_t *known = c->base != NULL ? json_object_get(c->base, "attention") : NULL;
    if (known == NULL) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "attention cannot be measured without cuDNN and without kernels, and "
                            "no profile of this GPU is known that has it");
    }
    (void)json_object_set(c->document, "attention", known);
    return SP_OK;
}

sp_status sp_i_cuda_calibrate_attention(sp_i_cuda_calibration *c, sp_error *err)
{
    const sp_model *m = &c->model;
    const int64_t q = m->heads * m->head_dim;
    attention a = {.c = c,
                   .segments = 1,
                   .shape = {.heads = m->heads,
                             .kv_heads = m->kv_heads,
                             .head_dim = m->head_dim,
                             .q_stride = q,
                             .kv_stride = 2 * m->kv_heads * m->head_dim,
                             .out_stride = q,
                             .scale = 1.0 / sqrt((double)m->head_dim)}};
    a.cudnn = c->attention != NULL && sp_i_cuda_cudnn_takes(&a.shape);
    a.budget_s = 0.3 * c->limit_s / 60;
    if (!a.cudnn && c->attend == NULL) {
        return keep_known(c, err);
    }
    // The reference kernels take a hundred times as long, most of it for the longest.
    return time_curves(&a, (a.cudnn ? 4 : 1) * c->most_tokens, err);
}

// ---- Kernels bound by memory ----

enum { BF16 = 2, FP32 = 4, INDEX = 8, LOSS = 256 };

// Each row gives the bytes that an element moves for each number of the hidden states, of the MLP's
// activation, of queries and keys, of keys and values, of the logits, of the distinct rows of a
// table. What the cost model counts of it: all of that, so many bytes for each number of the hidden
// states, or nothing; and kernels. How often it stands in a layer, in whose models: a layer has two
// norms and two blocks whose outputs are added to the residual path, forward and backward, and
// turns queries and keys once each way.
typedef enum models { ALL, RMS, LAYER_NORM, SWIGLU, GELU, ROPE } models;
enum { AS_MOVED = -1, BACKWARD = 3 * BF16 };

static const struct element {
    const char *name;
    double states, ffn, turned, kv, logits, rows;
    double counted;
    int kernels;
    int in_layer;
    models in_models;
} element_table[] = {
    [SP_I_CUDA_RMS_NORM] = {"rms_norm", 2 * BF16, .counted = AS_MOVED, 1, 2, RMS},
    // Input and gradient are read twice.
    [SP_I_CUDA_RMS_NORM_BACKWARD] = {"rms_norm_backward", 5 * BF16, .counted = BACKWARD, 1, 2, RMS},
    [SP_I_CUDA_LAYER_NORM] = {"layer_norm", 2 * BF16, .counted = AS_MOVED, 1, 2, LAYER_NORM},
    [SP_I_CUDA_LAYER_NORM_BACKWARD] = {"layer_norm_backward", 5 * BF16, .counted = BACKWARD, 1, 2,
                                       LAYER_NORM},
    [SP_I_CUDA_SWIGLU] = {"swiglu", .ffn = 3 * BF16, .counted = AS_MOVED, 1, 1, SWIGLU},
    [SP_I_CUDA_SWIGLU_BACKWARD] = {"swiglu_backward", .ffn = 5 * BF16, .counted = AS_MOVED, 1, 1,
                                   SWIGLU},
    [SP_I_CUDA_GELU] = {"gelu", .ffn = 2 * BF16, .counted = AS_MOVED, 1, 1, GELU},
    [SP_I_CUDA_GELU_BACKWARD] = {"gelu_backward", .ffn = 3 * BF16, .counted = AS_MOVED, 1, 1, GELU},
    [SP_I_CUDA_ROPE] = {"rope", .turned = 2 * BF16, .counted = AS_MOVED, 2, 2, ROPE},
    [SP_I_CUDA_RESIDUAL_ADD] = {"residual_add", 3 * BF16, .counted = AS_MOVED, 1, 4},
    [SP_I_CUDA_LOOKUP] = {"embedding", 2 * BF16, .counted = AS_MOVED, 1},
    [SP_I_CUDA_LOOKUP_BACKWARD] = {"embedding_backward", BF16, .rows = 2 * FP32,
                                   .counted = BACKWARD, 1},
    [SP_I_CUDA_CROSS_ENTROPY] = {"cross_entropy", .logits = BF16, .kernels = 6},
    [SP_I_CUDA_CROSS_ENTROPY_BACKWARD] = {"cross_entropy_backward", .logits = 2 * BF16,
                                          .kernels = 2},
    [SP_I_CUDA_KEY_VALUE_GRADIENT] = {"key_value_gradient", .kv = BF16 + 2 * FP32},
    // Four read, three and the bf16 copy written, the gradient cleared.
    [SP_I_CUDA_ADAMW] = {"adamw", .states = 8 * FP32 + BF16}};

const char *sp_i_cuda_element_name(sp_i_cuda_element element)
{
    return element_table[element].name;
}

// ---- sizes ----

static int64_t widest(const sp_i_cuda_element_shape *s)
{
    return sp_larger(sp_larger(s->hidden, s->ffn), sp_larger(s->q + s->kv, 2 * s->kv));
}

static int64_t activation_bytes(const sp_i_cuda_element_shape *s)
{
    return sp_i_cuda_aligned_bytes(BF16 * s->tokens * widest(s));
}

static int64_t wide_bytes(const sp_i_cuda_element_shape *s)
{
    // Angles of the rotation are in here as well.
    return sp_i_cuda_aligned_bytes(FP32 * s->tokens *
                                   sp_larger(sp_larger(s->hidden, 2 * s->kv), s->head_dim));
}

sp_i_cuda_element_shape sp_i_cuda_element_shape_of(const sp_model *model, int64_t tokens,
                                                   int64_t memory_tokens)
{
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    const sp_shard shard = sp_shard_of(model, &layout);
    sp_i_cuda_element_shape s = {.tokens = memory_tokens,
                                 .hidden = model->hidden,
                                 .q = shard.q,
                                 .kv = shard.k,
                                 .head_dim = model->head_dim,
                                 .ffn = shard.ffn,
                                 .vocab = shard.vocab};
    int64_t room = SP_I_CUDA_ELEMENT_BF16 * (activation_bytes(&s) / BF16) / s.vocab;
    s.tokens = tokens;
    s.loss_tokens = room < tokens ? room : tokens;
    s.distinct = tokens;
    return s;
}

int64_t sp_i_cuda_element_drawn(const sp_i_cuda_element_shape *s)
{
    return SP_I_CUDA_ELEMENT_BF16 * activation_bytes(s) + SP_I_CUDA_ELEMENT_FP32 * wide_bytes(s);
}

// At least what sp_cuda_column_sums_workspace says of any number of tokens.
static int64_t column_sums_bytes(const sp_i_cuda_element_shape *s)
{
    return sp_i_cuda_aligned_bytes(FP32 * 2 * SP_I_CUDA_SLABS * s->hidden);
}

int64_t sp_i_cuda_element_bytes(const sp_i_cuda_element_shape *s)
{
    return sp_i_cuda_element_drawn(s) + 2 * sp_i_cuda_aligned_bytes(BF16 * s->hidden) +
           2 * sp_i_cuda_aligned_bytes(FP32 * s->hidden) +
           SP_I_CUDA_ELEMENT_ROWS * sp_i_cuda_aligned_bytes(FP32 * s->tokens) +
           column_sums_bytes(s) + LOSS + 2 * sp_i_cuda_aligned_bytes(INDEX * s->tokens);
}

void sp_i_cuda_element_place(const sp_i_cuda_element_shape *s, void *memory,
                             sp_i_cuda_element_data *data)
{
    char *next = memory;
    for (int i = 0; i < SP_I_CUDA_ELEMENT_BF16; i++) {
        data->x[i] = sp_i_cuda_take_part(&next, activation_bytes(s));
    }
    for (int i = 0; i < SP_I_CUDA_ELEMENT_FP32; i++) {
        data->wide[i] = sp_i_cuda_take_part(&next, wide_bytes(s));
    }
    for (int i = 0; i < 2; i++) {
        data->vector[i] = sp_i_cuda_take_part(&next, BF16 * s->hidden);
        data->column[i] = sp_i_cuda_take_part(&next, FP32 * s->hidden);
    }
    for (int i = 0; i < SP_I_CUDA_ELEMENT_ROWS; i++) {
        data->row[i] = sp_i_cuda_take_part(&next, FP32 * s->tokens);
    }
    data->workspace = sp_i_cuda_take_part(&next, column_sums_bytes(s));
    data->loss = sp_i_cuda_take_part(&next, LOSS);
    data->index = sp_i_cuda_take_part(&next, INDEX * s->tokens);
    data->order = sp_i_cuda_take_part(&next, INDEX * s->tokens);
    SP_ASSERT(next - (char *)memory == sp_i_cuda_element_bytes(s));
}

// ---- bytes ----

sp_i_cuda_element_cost sp_i_cuda_element_cost_of(sp_i_cuda_element element,
                                                 const sp_i_cuda_element_shape *s)
{
    const struct element *e = &element_table[element];
    const double t = (double)s->tokens;
    const double h = (double)s->hidden;
    const double moved = e->states * t * h + e->ffn * t * (double)s->ffn +
                         e->turned * t * (double)(s->q + s->kv) + e->kv * t * 2.0 * (double)s->kv +
                         e->logits * (double)s->loss_tokens * (double)s->vocab +
                         e->rows * (double)s->distinct * h;
    return (sp_i_cuda_element_cost){moved, e->counted < 0.0 ? moved : e->counted * t * h,
                                    e->kernels};
}

int sp_i_cuda_element_in_layer(sp_i_cuda_element element, const sp_model *model)
{
    const bool rms = model->norm == SP_RMSNORM;
    const bool swiglu = sp_model_is_gated(model);
    const bool holds[] = {true, rms, !rms, swiglu, !swiglu, model->positional == SP_ROPE};
    return holds[element_table[element].in_models] ? element_table[element].in_layer : 0;
}

#define EPSILON 1e-5

static int norm_backward(bool rms, const sp_i_cuda_element_shape *s,
                         const sp_i_cuda_element_data *d, CUstream stream)
{
    int64_t t = s->tokens;
    int64_t h = s->hidden;
    int code = rms ? sp_cuda_rms_norm_backward_input(t, h, d->x[0], h, d->vector[0], d->row[0],
                                                     d->x[1], h, d->x[2], h, stream)
                   : sp_cuda_layer_norm_backward_input(t, h, d->x[0], h, d->vector[0], d->row[1],
                                                       d->row[0], d->x[1], h, d->x[2], h, stream);
    if (code != 0) {
        return code;
    }
    return rms ? sp_cuda_rms_norm_backward_weight(t, h, d->x[0], h, d->row[0], d->x[1], h,
                                                  d->column[0], d->workspace, stream)
               : sp_cuda_layer_norm_backward_weight(t, h, d->x[0], h, d->row[1], d->row[0], d->x[1],
                                                    h, d->column[0], d->column[1], d->workspace,
                                                    stream);
}

// Any numbers will do as cosines and sines.
static int rope(const sp_i_cuda_element_shape *s, const sp_i_cuda_element_data *d, CUstream stream)
{
    int64_t dim = s->head_dim;
    int code = sp_cuda_rope(s->tokens, s->q / dim, dim, d->index, d->wide[0], d->wide[1], false,
                            d->x[0], s->q, stream);
    return code != 0 ? code
                     : sp_cuda_rope(s->tokens, s->kv / dim, dim, d->index, d->wide[0], d->wide[1],
                                    false, d->x[1], s->kv, stream);
}

static int cross_entropy(const sp_i_cuda_element_shape *s, const sp_i_cuda_element_data *d,
                         CUstream stream)
{
    int64_t t = s->loss_tokens;
    int code = sp_cuda_cross_entropy_local(t, s->vocab, 0, d->x[0], s->vocab, d->index, d->row[0],
                                           d->row[1], d->row[2], stream);
    return code != 0 ? code
                     : sp_cuda_cross_entropy_loss(t, d->index, NULL, (double)t, d->row[0],
                                                  d->row[1], d->row[2], d->row[3], d->loss, stream);
}

static int adamw(const sp_i_cuda_element_shape *s, const sp_i_cuda_element_data *d, CUstream stream)
{
    const sp_kernel_adamw_step step = {.step = 3,
                                       .learning_rate = 1e-4,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .epsilon = 1e-8,
                                       .gradient_scale = 1.0};
    return sp_cuda_adamw(&step, NULL, s->tokens * s->hidden, d->wide[0], d->wide[1], d->wide[2],
                         d->wide[3], d->x[0], stream);
}

int sp_i_cuda_launch_element(sp_i_cuda_element element, const sp_i_cuda_element_shape *s,
                             const sp_i_cuda_element_data *d, CUstream stream)
{
    const int64_t t = s->tokens;
    const int64_t h = s->hidden;
    const int64_t f = s->ffn;
    sp_bf16 *const *x = d->x;
    switch (element) {
    case SP_I_CUDA_RMS_NORM:
        return sp_cuda_rms_norm(t, h, x[0], h, d->vector[0], EPSILON, x[1], h, d->row[0], stream);
    case SP_I_CUDA_LAYER_NORM:
        return sp_cuda_layer_norm(t, h, x[0], h, d->vector[0], d->vector[1], EPSILON, x[1], h,
                                  d->row[1], d->row[0], stream);
    case SP_I_CUDA_RMS_NORM_BACKWARD:
    case SP_I_CUDA_LAYER_NORM_BACKWARD:
        return norm_backward(element == SP_I_CUDA_RMS_NORM_BACKWARD, s, d, stream);
    case SP_I_CUDA_SWIGLU:
        return sp_cuda_swiglu(t, f, x[0], x[1], f, x[2], f, stream);
    case SP_I_CUDA_SWIGLU_BACKWARD:
        return sp_cuda_swiglu_backward(t, f, x[0], x[1], f, x[2], f, x[3], x[4], f, stream);
    case SP_I_CUDA_GELU:
        return sp_cuda_gelu(t * f, x[0], x[1], stream);
    case SP_I_CUDA_GELU_BACKWARD:
        return sp_cuda_gelu_backward(t * f, x[0], x[1], x[2], stream);
    case SP_I_CUDA_ROPE:
        return rope(s, d, stream);
    case SP_I_CUDA_RESIDUAL_ADD:
        return sp_cuda_add(t * h, x[0], x[1], stream);
    case SP_I_CUDA_LOOKUP:
        return sp_cuda_embedding(t, h, d->index, 0, t, x[0], false, x[1], h, stream);
    case SP_I_CUDA_LOOKUP_BACKWARD:
        return sp_cuda_embedding_backward_weight(t, h, d->index, d->order, 0, t, x[0], h,
                                                 d->wide[0], stream);
    case SP_I_CUDA_CROSS_ENTROPY:
        return cross_entropy(s, d, stream);
    case SP_I_CUDA_CROSS_ENTROPY_BACKWARD:
        return sp_cuda_cross_entropy_backward(s->loss_tokens, s->vocab, 0, x[0], s->vocab, d->index,
                                              NULL, (double)s->loss_tokens, d->row[3], x[0],
                                              s->vocab, stream);
    case SP_I_CUDA_KEY_VALUE_GRADIENT:
        return sp_cuda_accumulate(t, 2 * s->kv, x[0], 2 * s->kv, d->wide[0], 2 * s->kv, stream);
    case SP_I_CUDA_ADAMW:
        return adamw(s, d, stream);
    case SP_I_CUDA_ELEMENTS:
        break;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

// Kernels bound by memory, over tokens, each beside a copy of as many bytes; and of their times
// what the cost model knows of them: a rate, a floor of each launch, bytes of loss and optimizer.

#define LEAST_KERNEL_S 1e-7

void sp_i_cuda_fit_add(sp_i_cuda_fit_sums *sums, double times, double bytes, double kernels,
                       double time_s)
{
    double k = kernels / time_s;
    double b = bytes / time_s;
    sums->kernels2 += times * k * k;
    sums->bytes2 += times * b * b;
    sums->both += times * k * b;
    sums->kernels += times * k;
    sums->bytes += times * b;
}

bool sp_i_cuda_fit_solve(const sp_i_cuda_fit_sums *s, sp_i_cuda_fit *fit)
{
    double determinant = s->kernels2 * s->bytes2 - s->both * s->both;
    if (!(determinant > 0.0)) {
        return false;
    }
    double kernel_s = (s->kernels * s->bytes2 - s->bytes * s->both) / determinant;
    fit->kernel_s = kernel_s > LEAST_KERNEL_S ? kernel_s : LEAST_KERNEL_S;
    double s_per_byte = (s->bytes - fit->kernel_s * s->both) / s->bytes2;
    fit->bytes_per_s = 1.0 / s_per_byte;
    return s_per_byte > 0.0;
}

enum { LEAST_ELEMENT_TOKENS = 128, STEP = 4, SIZES = 8 };

// The data of one place.
typedef struct element_room {
    const struct element_trial *trial;
    char *memory;
    sp_i_cuda_element_data data;
} element_room;

typedef struct element_trial {
    sp_i_cuda_calibration *c;
    sp_i_cuda_element element;
    sp_i_cuda_element_shape shape;
    int64_t drawn_bytes; // of each room
    int64_t copied_bytes;
    double budget_s;
    sp_i_cuda_rooms memory;
    element_room rooms[SP_I_CUDA_MOST_PLACES];
    void *contexts[SP_I_CUDA_MOST_PLACES];
    double time_s[SP_I_CUDA_ELEMENTS][SIZES]; // less an empty pair of events
    sp_i_cuda_element_shape shapes[SIZES];
    int sizes;
    double spread;
    json_t *notes;
} element_trial;

// The gradient is cleared with the step.
static sp_status run_element(void *context, CUstream stream, sp_error *err)
{
    const element_room *r = context;
    const element_trial *e = r->trial;
    const sp_i_cuda_device *device = &e->c->device;
    int code = e->c->launch(e->element, &e->shape, &r->data, stream);
    SP_TRY(sp_i_cuda_check(device, (CUresult)code, sp_i_cuda_element_name(e->element), __FILE__,
                           __LINE__, err));
    if (e->element == SP_I_CUDA_ADAMW) {
        SP_TRY(SP_I_CUDA(device, err, MemsetD8Async, sp_i_cuda_at(r->data.wide[0]), 0,
                         (size_t)(4 * e->shape.tokens * e->shape.hidden), stream));
    }
    return SP_OK;
}

static sp_status run_element_copy(void *context, CUstream stream, sp_error *err)
{
    const element_room *r = context;
    return SP_I_CUDA(&r->trial->c->device, err, MemcpyAsync,
                     sp_i_cuda_at(r->memory + r->trial->drawn_bytes / 2), sp_i_cuda_at(r->memory),
                     (size_t)r->trial->copied_bytes, stream);
}

// ---- memory ----

// Pairs of bf16 numbers are fp32 numbers of the same kind.
static sp_status elements_init(sp_i_cuda_calibration *c, element_trial *e, sp_error *err)
{
    const int64_t most = c->most_tokens;
    *e = (element_trial){.c = c, .notes = json_array()};
    e->shape = sp_i_cuda_element_shape_of(&c->model, most, most);
    e->drawn_bytes = sp_i_cuda_element_drawn(&e->shape);
    const int64_t bytes = sp_i_cuda_element_bytes(&e->shape);
    SP_TRY(sp_i_cuda_rooms_init(c, bytes, bytes / 2, SP_I_CUDA_DRAWN, &e->memory, err));
    for (int i = 0; i < c->places; i++) {
        e->rooms[i] = (element_room){.trial = e, .memory = e->memory.memory[i]};
        e->contexts[i] = &e->rooms[i];
        sp_i_cuda_element_place(&e->shape, e->rooms[i].memory, &e->rooms[i].data);
    }
    return SP_OK;
}

// Indices drawn from as many rows as there are tokens, and the order that their gradients take.
static sp_status set_tokens(element_trial *e, int64_t tokens, sp_error *err)
{
    sp_i_cuda_calibration *c = e->c;
    sp_prng prng;
    sp_prng_seed(&prng, c->seed);
    e->shape = sp_i_cuda_element_shape_of(&c->model, tokens, c->most_tokens);
    int64_t *index = sp_malloc(3 * (size_t)tokens * sizeof *index);
    int64_t *order = index + tokens;
    for (int64_t t = 0; t < tokens; t++) {
        index[t] = (int64_t)(sp_prng_uniform(&prng) * (double)tokens);
    }
    sp_cuda_embedding_order(tokens, index, order, order + tokens);
    e->shape.distinct = 1;
    for (int64_t t = 1; t < tokens; t++) {
        e->shape.distinct += index[order[t]] != index[order[t - 1]];
    }
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < c->places; i++) {
        const sp_i_cuda_element_data *d = &e->rooms[i].data;
        status = sp_i_cuda_upload(&c->device, d->index, index, 8 * tokens, c->bench.stream, err);
        if (status == SP_OK) {
            status =
                sp_i_cuda_upload(&c->device, d->order, order, 8 * tokens, c->bench.stream, err);
        }
    }
    sp_free(index);
    return status;
}

// ---- times ----

// AdamW's second moments must not be negative.
static sp_status clear_moments(const element_trial *e, sp_error *err)
{
    const sp_i_cuda_device *device = &e->c->device;
    for (int i = 0; i < e->c->places; i++) {
        SP_TRY(SP_I_CUDA(device, err, MemsetD8Async, sp_i_cuda_at(e->rooms[i].data.wide[3]), 0,
                         (size_t)(4 * e->shape.tokens * e->shape.hidden), e->c->bench.stream));
    }
    return SP_I_CUDA(device, err, StreamSynchronize, e->c->bench.stream);
}

// A copy that moves as many bytes; of more than there is room for, in proportion.
static sp_status time_copy(element_trial *e, double moved_bytes, double *seconds, sp_error *err)
{
    sp_i_cuda_timing t;
    int64_t most = e->drawn_bytes / 2;
    int64_t wanted = (int64_t)(0.5 * moved_bytes);
    e->copied_bytes = wanted < most ? wanted : most;
    sp_status status = sp_i_cuda_bench_time_loaded(&e->c->bench, run_element_copy, e->contexts,
                                                   e->budget_s, &t, err);
    *seconds = t.median_s * (double)wanted / (double)e->copied_bytes;
    return status;
}

static sp_status time_element(element_trial *e, sp_i_cuda_element element, int size, sp_error *err)
{
    sp_i_cuda_calibration *c = e->c;
    sp_i_cuda_timing t;
    double copy_s;
    e->element = element;
    double moved_bytes = sp_i_cuda_element_cost_of(element, &e->shape).moved_bytes;
    sp_status status = time_copy(e, moved_bytes, &copy_s, err);
    if (status == SP_OK && element == SP_I_CUDA_ADAMW) {
        status = clear_moments(e, err);
    }
    if (status == SP_OK) {
        status =
            sp_i_cuda_bench_time_loaded(&c->bench, run_element, e->contexts, e->budget_s, &t, err);
    }
    if (status != SP_OK) {
        return status;
    }
    // A time below the events' resolution is that resolution.
    double time_s = t.median_s - c->empty_s / t.pieces;
    e->time_s[element][size] = time_s > 1e-7 ? time_s : 1e-7;
    if (sp_i_cuda_element_in_layer(element, &c->model) > 0 && t.spread > e->spread) {
        e->spread = t.spread;
    }
    json_t *note = json_pack(
        "{s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "name", sp_i_cuda_element_name(element), "tokens",
        (json_int_t)e->shape.tokens, "bytes", moved_bytes, "us", 1e6 * t.median_s, "spread",
        t.spread, "gb_per_s", 1e-9 * moved_bytes / t.median_s, "copy_ratio", copy_s / t.median_s);
    return json_array_append_new(e->notes, note) == 0 ? SP_OK : sp_i_calibration_unwritable(err);
}

static sp_status time_elements(element_trial *e, sp_error *err)
{
    sp_i_cuda_calibration *c = e->c;
    sp_status status = SP_OK;
    e->budget_s = 0.1 * c->limit_s / (2 * SP_I_CUDA_ELEMENTS * 4);
    for (int64_t tokens = LEAST_ELEMENT_TOKENS; status == SP_OK && tokens <= c->most_tokens;
         tokens *= STEP) {
        SP_ASSERT(e->sizes < SIZES);
        status = set_tokens(e, tokens, err);
        e->shapes[e->sizes] = e->shape;
        for (int i = 0; status == SP_OK && i < SP_I_CUDA_ELEMENTS; i++) {
            status = time_element(e, (sp_i_cuda_element)i, e->sizes, err);
        }
        e->sizes++;
    }
    if (status == SP_OK) {
        e->element = SP_I_CUDA_RESIDUAL_ADD;
        status = sp_i_cuda_note_places(c, "residual add of most tokens", run_element, e->contexts,
                                       e->contexts[0], e->budget_s, err);
    }
    return status;
}

// ---- what the cost model knows ----

static sp_status fit_layer(const element_trial *e, sp_i_cuda_fit *fit, sp_error *err)
{
    sp_i_cuda_fit_sums sums = {0};
    for (int i = 0; i < SP_I_CUDA_ELEMENTS; i++) {
        int times = sp_i_cuda_element_in_layer((sp_i_cuda_element)i, &e->c->model);
        for (int size = 0; times > 0 && size < e->sizes; size++) {
            sp_i_cuda_element_cost cost =
                sp_i_cuda_element_cost_of((sp_i_cuda_element)i, &e->shapes[size]);
            sp_i_cuda_fit_add(&sums, times, cost.counted_bytes, cost.counted_kernels,
                              e->time_s[i][size]);
        }
    }
    return sp_i_cuda_fit_solve(&sums, fit)
               ? SP_OK
               : sp_error_set(err, SP_ERR_INTERNAL,
                              "element-wise kernels take no longer for more tokens");
}

static sp_status write_elements(const element_trial *e, const sp_i_cuda_fit *fit, sp_error *err)
{
    const sp_i_cuda_calibration *c = e->c;
    const int last = e->sizes - 1;
    const sp_i_cuda_element_shape *s = &e->shapes[last];
    double loss_s = e->time_s[SP_I_CUDA_CROSS_ENTROPY][last] +
                    e->time_s[SP_I_CUDA_CROSS_ENTROPY_BACKWARD][last];
    int loss_kernels =
        sp_i_cuda_element_cost_of(SP_I_CUDA_CROSS_ENTROPY, s).counted_kernels +
        sp_i_cuda_element_cost_of(SP_I_CUDA_CROSS_ENTROPY_BACKWARD, s).counted_kernels;
    double logits = (double)s->loss_tokens * (double)s->vocab;
    // Where the launches that the model counts take longer than the kernels do, nothing is left.
    double loss_bytes = (loss_s - loss_kernels * fit->kernel_s) * fit->bytes_per_s / logits;
    double step_bytes = e->time_s[SP_I_CUDA_ADAMW][last] * fit->bytes_per_s /
                        ((double)s->tokens * (double)s->hidden);
    const struct {
        const char *section, *key, *what;
        double value;
    } values[] = {
        {"memory", "gb_per_s", "a layer's element-wise kernels", 1e-9 * fit->bytes_per_s},
        {"kernel", "us", "a layer's element-wise kernels", 1e6 * fit->kernel_s},
        {"loss", "bytes_per_logit", "cross-entropy at the memory rate",
         loss_bytes > 0.1 ? loss_bytes : 0.1},
        {"optimizer", "bytes_per_parameter", "AdamW, clearing, at the memory rate", step_bytes}};
    const sp_i_calibrator calibrator = sp_i_cuda_calibrator(c, NULL);
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && i < sizeof values / sizeof *values; i++) {
        status = sp_i_calibration_value(&calibrator, values[i].section, values[i].key,
                                        values[i].value, values[i].what, e->spread, err);
    }
    (void)json_object_set(c->extra, "elements", e->notes);
    return status;
}

sp_status sp_i_cuda_calibrate_elements(sp_i_cuda_calibration *c, sp_error *err)
{
    element_trial e;
    sp_i_cuda_products beside;
    sp_i_cuda_fit fit;
    sp_status status = elements_init(c, &e, err);
    if (status == SP_OK) {
        status = sp_i_cuda_neighbours_compute(c, &beside, err);
        c->bench.several = true;
        status = status == SP_OK ? time_elements(&e, err) : status;
        c->bench.several = false;
        sp_i_cuda_neighbours_end(c, &beside);
    }
    if (status == SP_OK) {
        status = fit_layer(&e, &fit, err);
    }
    if (status == SP_OK) {
        status = write_elements(&e, &fit, err);
    }
    sp_i_cuda_rooms_fini(c, &e.memory);
    json_decref(e.notes);
    return status;
}
