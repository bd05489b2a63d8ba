// Attention through cuDNN: curves of rates by length, causal and without mask, forward and
// backward. Beside the profile, for people: slices behind contexts and packed samples, which the
// cost model puts together from the curves.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/calibrate/bench.h"
#include "backends/cuda/calibrate/calibration.h"
#include "backends/cuda/device/device.h"

// FLOPs per (query, key) pair and element of the heads, as profiles count them
// (profiles/README.md).
#define FORWARD_FLOPS 4.0
#define BACKWARD_FLOPS 10.0

enum { LEAST_LENGTH = 512, MOST_SEGMENTS = 16 };

// Tensors of one place.
typedef struct room {
    const struct attention *of;
    void *memory;
    void *tensors[SP_I_CUDA_ATTENTION_TENSORS];
    void *workspace;
} room;

typedef struct attention {
    sp_i_cuda_calibration *c;
    sp_i_cuda_attention_shape shape;
    bool backward;
    room rooms[SP_I_CUDA_MOST_PLACES];
} attention;

static sp_status run(void *context, cudaStream_t stream, sp_error *err)
{
    const room *r = context;
    const attention *a = r->of;
    return sp_i_cuda_attention_run(a->c->attention, &a->shape, a->backward, r->tensors,
                                   r->workspace, stream, err);
}

static void set_shape(attention *a, int64_t queries, int64_t keys, bool causal)
{
    const sp_model *m = &a->c->model;
    int64_t q = m->heads * m->head_dim;
    int64_t kv = m->kv_heads * m->head_dim;
    a->shape = (sp_i_cuda_attention_shape){.segments = 1,
                                           .queries = queries,
                                           .keys = keys,
                                           .all_queries = queries,
                                           .all_keys = keys,
                                           .heads = m->heads,
                                           .kv_heads = m->kv_heads,
                                           .head_dim = m->head_dim,
                                           .q_stride = q,
                                           .kv_stride = kv,
                                           .out_stride = q,
                                           .dq_stride = q,
                                           .dkv_stride = kv,
                                           .causal = causal};
}

static char *take(char **next, int64_t bytes)
{
    char *data = *next;
    *next += (bytes + 255) / 256 * 256;
    return data;
}

// Places everything of the shape in one block: tensors, tables of a packed shape, workspace.
static sp_status place(const attention *a, int64_t workspace_bytes, room *r, sp_error *err)
{
    const sp_i_cuda_attention_shape *s = &a->shape;
    int64_t q = 2 * s->all_queries * s->q_stride;
    int64_t kv = 2 * s->all_keys * s->kv_stride;
    int64_t rows = 4 * s->all_queries * s->heads;
    int64_t tables = 8 * 256;
    int64_t bytes = 4 * q + 4 * kv + rows + tables + workspace_bytes + 20 * 256;
    const sp_i_cuda_device *device = &a->c->device;
    sp_status status = SP_I_CUDA(device, err, Malloc, &r->memory, (size_t)bytes);
    if (status != SP_OK) {
        return status;
    }
    char *next = r->memory;
    r->tensors[SP_I_CUDA_Q] = take(&next, q);
    r->tensors[SP_I_CUDA_DO] = take(&next, q);
    r->tensors[SP_I_CUDA_K] = take(&next, kv);
    r->tensors[SP_I_CUDA_V] = take(&next, kv);
    int64_t drawn = (next - (char *)r->memory) / 2;
    r->tensors[SP_I_CUDA_O] = take(&next, q);
    r->tensors[SP_I_CUDA_DQ] = take(&next, q);
    r->tensors[SP_I_CUDA_DK] = take(&next, kv);
    r->tensors[SP_I_CUDA_DV] = take(&next, kv);
    r->tensors[SP_I_CUDA_STATS] = take(&next, rows);
    for (int id = SP_I_CUDA_QUERY_LENGTHS; id < SP_I_CUDA_ATTENTION_TENSORS; id++) {
        r->tensors[id] = take(&next, 4 * (MOST_SEGMENTS + 1));
    }
    r->workspace = take(&next, workspace_bytes);
    return sp_i_cuda_fill_normal(device, r->memory, drawn, 1.0, a->c->seed, a->c->bench.stream,
                                 err);
}

static sp_status upload_tables(const attention *a, const room *r, sp_error *err)
{
    const sp_i_cuda_attention_shape *s = &a->shape;
    const int64_t strides[] = {s->q_stride, s->kv_stride, s->out_stride,
                               s->heads,    s->dq_stride, s->dkv_stride};
    int32_t lengths[MOST_SEGMENTS];
    int32_t offsets[MOST_SEGMENTS + 1];
    sp_status status = SP_OK;
    for (int i = 0; i < s->segments; i++) {
        lengths[i] = (int32_t)s->queries;
    }
    for (int id = SP_I_CUDA_QUERY_LENGTHS; status == SP_OK && id <= SP_I_CUDA_KEY_LENGTHS; id++) {
        status = sp_i_cuda_upload(&a->c->device, r->tensors[id], lengths, 4 * s->segments,
                                  a->c->bench.stream, err);
    }
    for (int t = 0; status == SP_OK && t < 6; t++) {
        for (int i = 0; i <= s->segments; i++) {
            offsets[i] = (int32_t)(i * s->queries * strides[t]);
        }
        status = sp_i_cuda_upload(&a->c->device, r->tensors[SP_I_CUDA_Q_OFFSETS + t], offsets,
                                  4 * (s->segments + 1), a->c->bench.stream, err);
    }
    return status;
}

static sp_status workspace_of(const attention *a, bool backward, int64_t *bytes, sp_error *err)
{
    int64_t forward_bytes = 0;
    *bytes = 0;
    sp_status status =
        sp_i_cuda_attention_workspace(a->c->attention, &a->shape, false, &forward_bytes, err);
    if (status == SP_OK && backward) {
        status = sp_i_cuda_attention_workspace(a->c->attention, &a->shape, true, bytes, err);
    }
    *bytes = forward_bytes > *bytes ? forward_bytes : *bytes;
    return status;
}

// A backward reads what a forward of the same shape left.
static sp_status set_up(attention *a, bool backward, int64_t workspace_bytes, room *r,
                        sp_error *err)
{
    r->of = a;
    sp_status status = place(a, workspace_bytes, r, err);
    if (status == SP_OK && a->shape.packed) {
        status = upload_tables(a, r, err);
    }
    a->backward = false;
    return status == SP_OK && backward ? run(r, a->c->bench.stream, err) : status;
}

// Times a pass of a->shape; `name`: and notes it for partitions, unless it is NULL.
static sp_status time_pass(attention *a, bool backward, const char *name, sp_i_cuda_timing *t,
                           sp_error *err)
{
    sp_i_cuda_calibration *c = a->c;
    void *contexts[SP_I_CUDA_MOST_PLACES];
    int64_t workspace_bytes;
    double budget_s = 0.3 * c->limit_s / 40;
    sp_status status = workspace_of(a, backward, &workspace_bytes, err);
    for (int i = 0; status == SP_OK && i < c->places; i++) {
        contexts[i] = &a->rooms[i];
        status = set_up(a, backward, workspace_bytes, &a->rooms[i], err);
    }
    a->backward = backward;
    if (status == SP_OK) {
        status = SP_I_CUDA(&c->device, err, StreamSynchronize, c->bench.stream);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_calibration_time(c, run, contexts, budget_s, t, err);
    }
    if (status == SP_OK && name != NULL) {
        status = sp_i_cuda_note_places(c, name, run, contexts, contexts[0], budget_s, err);
    }
    for (int i = 0; i < c->places; i++) {
        if (a->rooms[i].memory != NULL) {
            (void)c->device.api->Free(a->rooms[i].memory);
            a->rooms[i].memory = NULL;
        }
    }
    return status;
}

static double flops_of(const attention *a, bool backward, double pairs)
{
    return (backward ? BACKWARD_FLOPS : FORWARD_FLOPS) *
           (double)(a->shape.heads * a->shape.head_dim) * pairs;
}

// ---- curves ----

static sp_status add_curve(attention *a, bool backward, bool causal, json_t *section, sp_error *err)
{
    sp_i_cuda_calibration *c = a->c;
    double spread = 0.0;
    json_t *points = json_array();
    sp_status status = points != NULL ? SP_OK : sp_error_no_memory(err, "a profile");
    for (int64_t l = LEAST_LENGTH; status == SP_OK && l <= 4 * c->most_tokens; l *= 2) {
        sp_i_cuda_timing t;
        double pairs = (double)(l * l) * (causal ? 0.5 : 1.0);
        char name[64];
        set_shape(a, l, l, causal);
        snprintf(name, sizeof name, "attention %s, length %d", backward ? "backward" : "forward",
                 (int)l);
        status = time_pass(a, backward, causal && l == c->most_tokens ? name : NULL, &t, err);
        spread = fmax(spread, t.spread);
        if (status == SP_OK &&
            json_array_append_new(
                points, json_pack("[I, f]", (json_int_t)l,
                                  1e-12 * flops_of(a, backward, pairs) / t.median_s)) != 0) {
            status = sp_error_no_memory(err, "a profile");
        }
    }
    const char *key = backward ? (causal ? "backward_causal" : "backward_full")
                               : (causal ? "forward_causal" : "forward_full");
    if (status == SP_OK &&
        !sp_i_cuda_add_table(c, section, key, "attention by cuDNN", spread, points)) {
        status = sp_error_no_memory(err, "a profile");
    }
    json_decref(points);
    return status;
}

// ---- slices and packs ----

static sp_status note_time(attention *a, bool backward, json_t *list, sp_error *err)
{
    sp_i_cuda_timing t;
    const sp_i_cuda_attention_shape *s = &a->shape;
    sp_status status = time_pass(a, backward, NULL, &t, err);
    if (status == SP_OK &&
        json_array_append_new(list,
                              json_pack("{s:I, s:I, s:I, s:b, s:f, s:f}", "segments",
                                        (json_int_t)s->segments, "queries", (json_int_t)s->queries,
                                        "keys", (json_int_t)s->keys, "backward", backward, "us",
                                        1e6 * t.median_s, "spread", t.spread)) != 0) {
        status = sp_error_no_memory(err, "a profile");
    }
    return status;
}

static sp_status note_shapes(attention *a, sp_error *err)
{
    const int64_t most = a->c->most_tokens;
    json_t *list = json_array();
    sp_status status = list != NULL ? SP_OK : sp_error_no_memory(err, "a profile");
    for (int64_t queries = most / 8; status == SP_OK && queries <= most / 2; queries *= 2) {
        for (int64_t keys = queries * 2; status == SP_OK && keys <= 4 * most; keys *= 4) {
            for (int pass = 0; status == SP_OK && pass < 2; pass++) {
                set_shape(a, queries, keys, true);
                status = note_time(a, pass == 1, list, err);
            }
        }
    }
    for (int64_t segments = 4; status == SP_OK && segments <= MOST_SEGMENTS; segments *= 4) {
        for (int pass = 0; status == SP_OK && pass < 2; pass++) {
            set_shape(a, most / segments, most / segments, true);
            a->shape.segments = segments;
            a->shape.all_queries = a->shape.all_keys = most;
            a->shape.packed = true;
            status = note_time(a, pass == 1, list, err);
        }
    }
    if (status == SP_OK && json_object_set(a->c->extra, "attention", list) != 0) {
        status = sp_error_no_memory(err, "a profile");
    }
    json_decref(list);
    return status;
}

static sp_status base_curves(const sp_i_cuda_calibration *c, sp_error *err)
{
    json_t *known = c->base != NULL ? json_object_get(c->base, "attention") : NULL;
    if (known == NULL) {
        return sp_error_set(
            err, SP_ERR_USAGE,
            "attention cannot be measured without cuDNN, and no profile of this GPU "
            "is known that has it");
    }
    return json_object_set(c->document, "attention", known) == 0
               ? SP_OK
               : sp_error_no_memory(err, "a profile");
}

sp_status sp_i_cuda_calibrate_attention(sp_i_cuda_calibration *c, sp_error *err)
{
    if (c->attention == NULL) {
        return base_curves(c, err);
    }
    attention a;
    memset(&a, 0, sizeof a);
    a.c = c;
    json_t *section = json_object();
    sp_status status = section != NULL ? SP_OK : sp_error_no_memory(err, "a profile");
    for (int i = 0; status == SP_OK && i < 4; i++) {
        status = add_curve(&a, i >= 2, i % 2 == 0, section, err);
    }
    if (status == SP_OK && json_object_set(c->document, "attention", section) != 0) {
        status = sp_error_no_memory(err, "a profile");
    }
    json_decref(section);
    // Of a partition nobody asks for more than the profile.
    return status == SP_OK && c->partitions == NULL ? note_shapes(&a, err) : status;
}
