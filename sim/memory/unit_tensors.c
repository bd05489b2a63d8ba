#include "sim/memory/unit_tensors.h"

#include <math.h>

#include "sim/base/units.h"

// Smaller tensors are not worth a copy.
#define LEAST_BYTES (INT64_C(1) << 20)
#define STEP_BYTES (INT64_C(1) << 20)

typedef struct list {
    sp_unit_tensor *tensors;
    int count;
} list;

static void add(list *to, const sp_saved_tensor *saved, sp_memory_category category, int count,
                int64_t bytes)
{
    if (bytes == 0 || count == 0) {
        return;
    }
    SP_ASSERT(to->count < SP_UNIT_TENSORS);
    to->tensors[to->count++] = (sp_unit_tensor){
        .id = saved->id,
        .name = category == SP_MEM_KV_CACHE ? "keys and values of earlier slices" : saved->name,
        .category = category,
        .is_kv = saved->is_kv,
        .count = count,
        .bytes = bytes,
        .elements = bytes / saved->element_bytes,
        .contiguous = saved->contiguous};
}

static sp_memory_category category_of(const sp_saved_tensor *saved)
{
    return saved->is_logits      ? SP_MEM_LOGITS
           : saved->is_statistic ? SP_MEM_WORKSPACE
                                 : SP_MEM_ACTIVATIONS;
}

// Keys and values that later slices read stay in every mode; the rest follows the mode.
static void add_part(list *to, const sp_layout *layout, sp_recompute mode,
                     const sp_saved_tensor *saved, int rows, int times, int64_t tokens,
                     int64_t kv_tokens, int64_t pairs)
{
    for (int i = 0; i < rows; i++) {
        int64_t bytes = sp_saved_bytes(&saved[i], layout, tokens, pairs);
        if (saved[i].is_kv) {
            int64_t cached = sp_saved_bytes(&saved[i], layout, kv_tokens, 0);
            add(to, &saved[i], SP_MEM_KV_CACHE, times, cached);
            bytes -= cached;
        }
        if (sp_saved_is_kept(&saved[i], mode)) {
            add(to, &saved[i], category_of(&saved[i]), times, bytes);
        }
    }
}

int sp_unit_tensors(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                    const sp_memory_options *options, int64_t tokens, int64_t kv_tokens,
                    int64_t pairs, sp_unit_tensor tensors[SP_UNIT_TENSORS])
{
    list to = {tensors, 0};
    sp_saved_tensor saved[SP_SAVED_TENSORS];
    if (stage->embedding) {
        int rows = sp_saved_part(model, layout, &options->stack, SP_PART_EMBEDDING, saved);
        add_part(&to, layout, options->recompute, saved, rows, 1, tokens, 0, 0);
    }
    int rows = sp_saved_layer(model, layout, options, saved);
    add_part(&to, layout, options->recompute, saved, rows, stage->layers, tokens, kv_tokens, pairs);
    if (stage->head) {
        rows = sp_saved_part(model, layout, &options->stack, SP_PART_HEAD, saved);
        add_part(&to, layout, options->recompute, saved, rows, 1, tokens, 0, 0);
        rows = sp_saved_statistics(model, layout, &options->stack, SP_PART_HEAD, saved);
        add_part(&to, layout, options->recompute, saved, rows, 1, tokens, 0, 0);
    }
    rows = sp_saved_statistics(model, layout, &options->stack, SP_PART_LAYER, saved);
    add_part(&to, layout, options->recompute, saved, rows, stage->layers, tokens, 0, 0);
    return to.count;
}

static bool may_leave(const sp_unit_tensor *tensor)
{
    return tensor->category == SP_MEM_ACTIVATIONS && tensor->bytes >= LEAST_BYTES;
}

int64_t sp_unit_offload_bytes(const sp_unit_tensor *tensors, int count, double ratio)
{
    int64_t all = 0;
    for (int i = 0; i < count; i++) {
        all += may_leave(&tensors[i]) ? sp_mul_bytes(tensors[i].count, tensors[i].bytes) : 0;
    }
    int64_t share = llround(ratio * (double)all);
    int64_t rounded = sp_ceil_div(share, STEP_BYTES) * STEP_BYTES;
    return rounded < all ? rounded : all;
}

// Does `a` stand before `b` in the order of leaving, by what all their layers share?
static bool is_before(const sp_unit_tensor *a, const sp_unit_tensor *b)
{
    return a->contiguous != b->contiguous ? a->contiguous : a->elements > b->elements;
}

static bool is_alike(const sp_unit_tensor *a, const sp_unit_tensor *b)
{
    return a->contiguous == b->contiguous && a->elements == b->elements;
}

// Takes up to *left bytes from the tensors of one layer that are alike `like`; returns what it took
// of one that it did not take whole.
static int64_t take_layer(sp_unit_tensor *tensors, int count, const sp_unit_tensor *like, int layer,
                          bool reversed, int64_t *left)
{
    int64_t part = 0;
    for (int k = 0; k < count; k++) {
        sp_unit_tensor *tensor = &tensors[reversed ? count - 1 - k : k];
        if (may_leave(tensor) && is_alike(tensor, like) && layer < tensor->count) {
            int64_t taken = tensor->bytes < *left ? tensor->bytes : *left;
            tensor->away_bytes += taken;
            *left -= taken;
            part = taken > 0 && taken < tensor->bytes ? taken : part;
        }
    }
    return part;
}

bool sp_unit_offload_from_last(double ratio)
{
    return ratio > 0.5;
}

int64_t sp_unit_offload(sp_unit_tensor *tensors, int count, double ratio)
{
    int64_t left = sp_unit_offload_bytes(tensors, count, ratio);
    bool reversed = sp_unit_offload_from_last(ratio);
    const sp_unit_tensor *last = NULL;
    int layers = 0;
    int64_t part = 0;
    for (int i = 0; i < count; i++) {
        layers = tensors[i].count > layers ? tensors[i].count : layers;
    }
    while (left > 0) {
        // The kind that comes next: the first (or, reversed, last) of those beyond `last`.
        const sp_unit_tensor *next = NULL;
        for (int i = 0; i < count; i++) {
            const sp_unit_tensor *t = &tensors[i];
            bool beyond = last == NULL || (reversed ? is_before(t, last) : is_before(last, t));
            bool nearer = next == NULL || (reversed ? is_before(next, t) : is_before(t, next));
            next = may_leave(t) && beyond && nearer ? t : next;
        }
        SP_ASSERT(next != NULL);
        for (int layer = 0; layer < layers && left > 0; layer++) {
            part = take_layer(tensors, count, next, reversed ? layers - 1 - layer : layer, reversed,
                              &left);
        }
        last = next;
    }
    return part;
}
