// Attention as a run computes it: by cuDNN's plan of packed segments where it is there and takes
// the heads, else by the reference kernels. Two shapes are timed at each length: a whole sample,
// whose rate is that of a causal mask, and as many queries behind as many keys, whose time beyond
// that is what pairs without a mask take. Beside the profile, for people: packs of equal samples.
#include <math.h>
#include <stdio.h>

#include "backends/cuda/attention.h"
#include "backends/cuda/calibration.h"
#include "sim/base/alloc.h"

// The least share of a time behind a context that is the context's: a smaller difference is noise.
#define LEAST_SHARE 0.05

enum { LEAST_LENGTH = 512, MOST_SEGMENTS = 16 };

// The data of one place: tensors for the longest shape.
typedef struct room {
    const struct attention *of;
    void *tensors[SP_I_CUDA_ATTENTION_TENSORS]; // both ways' from Q to DV
    float *delta;                               // of the reference kernels
    void *index;                                // lengths and offsets, or the segments
    void *workspace;
} room;

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
    room rooms[SP_I_CUDA_MOST_PLACES];
    void *contexts[SP_I_CUDA_MOST_PLACES];
} attention;

static sp_status run(void *context, cudaStream_t stream, sp_error *err)
{
    const room *r = context;
    const attention *a = r->of;
    if (a->cudnn) {
        return sp_i_cuda_attention_run(a->c->attention, &a->packed, a->backward, r->tensors,
                                       r->workspace, stream, err);
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
    return sp_i_cuda_check(&a->c->device, (cudaError_t)code, "sp_cuda_attention", __FILE__,
                           __LINE__, err);
}

// ---- memory ----

// K stands beside V, dV behind dK. Q to V hold numbers.
static void place_room(const attention *a, char *memory, room *r)
{
    const sp_kernel_attention_shape *s = &a->shape;
    const int64_t q = 2 * a->most_queries * s->q_stride;
    const int64_t kv = 2 * a->most_keys * s->kv_stride;
    const int64_t rows = 4 * a->most_queries * s->heads;
    char *next = memory;
    *r = (room){.of = a};
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

static void make_segments(const attention *a, sp_i_cuda_segment *of, int64_t *key_row,
                          sp_i_cuda_segments *segments)
{
    *segments = (sp_i_cuda_segments){.of = of,
                                     .count = (int32_t)a->segments,
                                     .key_row = key_row,
                                     .key_rows = a->segments * a->keys,
                                     .gradient_rows = a->segments * a->keys,
                                     .longest_queries = a->queries,
                                     .longest_keys = a->keys};
    for (int64_t i = 0; i < a->segments; i++) {
        key_row[i] = i * a->keys;
        of[i] = (sp_i_cuda_segment){(size_t)i, i * a->queries, a->queries, a->keys, i * a->keys};
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
    sp_i_cuda_segment of[MOST_SEGMENTS];
    int64_t key_row[MOST_SEGMENTS];
    sp_cuda_attention_segment table[MOST_SEGMENTS];
    sp_i_cuda_segments segments;
    int64_t bytes = (int64_t)sizeof table;
    int32_t *index = NULL;
    a->backward = backward;
    make_segments(a, of, key_row, &segments);
    sp_i_cuda_segments_table(&segments, table);
    if (a->cudnn) {
        sp_status status = find_plan(a, &segments, &bytes, err);
        if (status != SP_OK) {
            return status;
        }
        SP_ASSERT(bytes <= a->workspace_bytes);
        bytes = sp_i_cuda_packed_index_count(&a->packed) * (int64_t)sizeof *index;
        index = sp_malloc((size_t)bytes);
        sp_i_cuda_packed_index(&segments, &a->packed, index);
    }
    SP_ASSERT(bytes <= a->index_bytes);
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < a->c->places; i++) {
        room *r = &a->rooms[i];
        if (a->cudnn) {
            sp_i_cuda_packed_tensors(&a->packed, r->index, r->tensors);
        }
        status = sp_i_cuda_upload(&a->c->device, r->index, a->cudnn ? (void *)index : table, bytes,
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
        status = run(&a->rooms[i], c->bench.stream, err);
    }
    if (status == SP_OK) {
        status = SP_I_CUDA(&c->device, err, StreamSynchronize, c->bench.stream);
    }
    if (status == SP_OK && backward) {
        status = set_shape(a, true, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_calibration_time(c, run, a->contexts, a->budget_s, t, err);
    }
    return status == SP_OK && name != NULL
               ? sp_i_cuda_note_places(c, name, run, a->contexts, a->contexts[0], a->budget_s, err)
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
    sp_i_cuda_segment of[MOST_SEGMENTS];
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
        make_segments(a, of, key_row, &segments);
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
                                            drawn, drawn, &a->memory, err);
    for (int i = 0; status == SP_OK && i < a->c->places; i++) {
        a->contexts[i] = &a->rooms[i];
        place_room(a, a->memory.memory[i], &a->rooms[i]);
    }
    return status;
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
    sp_status status = make_rooms(a, longest, err);
    if (status == SP_OK) {
        status = sp_i_calibrate_attention(&calibrator, err);
    }
    // Nobody asks for more of a partition than the profile.
    if (status == SP_OK && a->c->partitions == NULL) {
        status = note_packs(a, a->c->extra, err);
    }
    sp_i_cuda_rooms_fini(a->c, &a->memory);
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
