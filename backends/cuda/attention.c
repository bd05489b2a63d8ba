// Which segments a pack of the executor is, and how cuDNN's attention takes them: shapes and tables
// alone, nothing is computed here.
#include "backends/cuda/attention.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda_math.h"
#include "sim/base/alloc.h"
#include "sim/base/order.h"

// ---- launches ----

typedef struct entry {
    int32_t sample, place;
    int64_t begin;
} entry;

static int compare(const void *a, const void *b)
{
    const entry *x = a;
    const entry *y = b;
    return SP_ORDER_3(x, y, sample, begin, place);
}

static const sp_i_exec_slice *at_work(const sp_i_cuda_launches *launches, int32_t i)
{
    return &launches->slices->slice[launches->pack->slice[launches->order[i]]];
}

static void sort_slices(sp_i_cuda_launches *launches)
{
    int32_t count = launches->pack->count;
    entry *entries = sp_calloc((size_t)count, sizeof *entries);
    for (int32_t i = 0; i < count; i++) {
        const sp_i_exec_slice *slice = &launches->slices->slice[launches->pack->slice[i]];
        entries[i] = (entry){slice->sample, i, slice->begin};
    }
    if (count > 0) {
        qsort(entries, (size_t)count, sizeof *entries, compare);
    }
    for (int32_t i = 0; i < count; i++) {
        launches->order[i] = entries[i].place;
    }
    sp_free(entries);
}

// A group ends with its sample, and behind a padded slice.
static void cut_groups(sp_i_cuda_launches *launches)
{
    sp_i_cuda_group *group = NULL;
    for (int32_t i = 0; i < launches->pack->count; i++) {
        const sp_i_exec_slice *slice = at_work(launches, i);
        const sp_i_exec_slice *before = i > 0 ? at_work(launches, i - 1) : NULL;
        bool same = before != NULL && before->sample == slice->sample;
        if (!same || before->computed > before->tokens) {
            int launch = same ? group->launch + 1 : 0;
            group = &launches->group[launches->groups++];
            *group = (sp_i_cuda_group){.launch = launch, .first = i};
            launches->count = launch + 1 > launches->count ? launch + 1 : launches->count;
        }
        group->count++;
    }
}

// The slices of a group's sample up to its last one, which alone shows its padding. Without `seen`
// they are only counted.
static size_t fill_seen(const sp_i_cuda_launches *launches, const sp_i_cuda_group *group,
                        sp_i_cuda_seen *seen)
{
    const sp_i_exec_slice *slices = launches->slices->slice;
    int32_t last = launches->pack->slice[launches->order[group->first + group->count - 1]];
    size_t count = 0;
    for (int32_t e = last; e != SP_I_EXEC_NONE; e = slices[e].earlier) {
        int64_t shown = e == last ? slices[e].computed : slices[e].tokens;
        if (seen != NULL) {
            seen[count] = (sp_i_cuda_seen){.slice = e, .end = slices[e].begin + shown};
        }
        count++;
    }
    return count;
}

void sp_i_cuda_launches_init(sp_i_cuda_launches *launches, const sp_i_exec_slices *slices,
                             const sp_i_exec_pack *pack)
{
    size_t count = (size_t)pack->count;
    *launches = (sp_i_cuda_launches){.slices = slices,
                                     .pack = pack,
                                     .order = sp_calloc(count, sizeof *launches->order),
                                     .group = sp_calloc(count, sizeof *launches->group)};
    sort_slices(launches);
    cut_groups(launches);
    for (size_t g = 0; g < launches->groups; g++) {
        launches->group[g].first_seen = launches->seen_count;
        launches->group[g].seen = fill_seen(launches, &launches->group[g], NULL);
        launches->seen_count += launches->group[g].seen;
    }
    launches->seen = sp_calloc(launches->seen_count, sizeof *launches->seen);
    for (size_t g = 0; g < launches->groups; g++) {
        (void)fill_seen(launches, &launches->group[g],
                        launches->seen + launches->group[g].first_seen);
    }
}

void sp_i_cuda_launches_fini(sp_i_cuda_launches *launches)
{
    sp_free(launches->order);
    sp_free(launches->group);
    sp_free(launches->seen);
    *launches = (sp_i_cuda_launches){0};
}

// ---- segments ----

// Runs that stand one behind the other in their sample and in the pack are one.
static void add_piece(sp_i_cuda_segments *s, size_t group, const sp_i_exec_piece *piece)
{
    sp_i_cuda_segment *last = s->count > 0 ? &s->list[s->count - 1] : NULL;
    int64_t end = piece->begin + piece->rows;
    if (piece->rows == 0) {
        return;
    }
    if (last != NULL && last->group == group && last->keys == piece->begin &&
        last->row + last->queries == piece->row) {
        last->queries += piece->rows;
        last->keys = end;
    } else {
        s->list[s->count++] = (sp_i_cuda_segment){group, piece->row, piece->rows, end, 0};
    }
}

static int compare_rows(const void *a, const void *b)
{
    const sp_i_cuda_segment *x = a;
    const sp_i_cuda_segment *y = b;
    return SP_ORDER(x->row, y->row);
}

// The group's last slice is the first that it sees, and ends behind all others.
static void place_rows(sp_i_cuda_segments *s, const sp_i_cuda_launches *launches)
{
    for (int32_t i = 0; i < s->count; i++) {
        sp_i_cuda_segment *segment = &s->list[i];
        int64_t *key_row = &s->key_row[segment->group];
        segment->gradient_row = s->gradient_rows;
        s->gradient_rows += segment->keys;
        if (*key_row < 0) {
            *key_row = s->key_rows;
            s->key_rows += launches->seen[launches->group[segment->group].first_seen].end;
        }
        s->longest_queries =
            segment->queries > s->longest_queries ? segment->queries : s->longest_queries;
        s->longest_keys = segment->keys > s->longest_keys ? segment->keys : s->longest_keys;
    }
}

void sp_i_cuda_segments_init(sp_i_cuda_segments *s, const sp_i_cuda_launches *launches, int launch)
{
    const sp_i_exec_pack *pack = launches->pack;
    *s = (sp_i_cuda_segments){
        .list = sp_calloc(pack->first_piece[pack->count] + 1, sizeof *s->list),
        .key_row = sp_calloc(launches->groups + 1, sizeof *s->key_row),
    };
    for (size_t g = 0; g < launches->groups; g++) {
        const sp_i_cuda_group *group = &launches->group[g];
        s->key_row[g] = -1;
        for (int32_t i = 0; group->launch == launch && i < group->count; i++) {
            int32_t place = launches->order[group->first + i];
            for (size_t p = pack->first_piece[place]; p < pack->first_piece[place + 1]; p++) {
                add_piece(s, g, &pack->piece[p]);
            }
        }
    }
    qsort(s->list, (size_t)s->count, sizeof *s->list, compare_rows);
    place_rows(s, launches);
}

void sp_i_cuda_segments_fini(sp_i_cuda_segments *s)
{
    sp_free(s->list);
    sp_free(s->key_row);
    *s = (sp_i_cuda_segments){0};
}

void sp_i_cuda_segments_table(const sp_i_cuda_segments *s, sp_cuda_attention_segment *table)
{
    for (int32_t i = 0; i < s->count; i++) {
        const sp_i_cuda_segment *segment = &s->list[i];
        table[i] = (sp_cuda_attention_segment){.row = segment->row,
                                               .queries = segment->queries,
                                               .key_row = s->key_row[segment->group],
                                               .keys = segment->keys,
                                               .gradient_row = segment->gradient_row};
    }
}

// ---- the shape of a plan ----

enum {
    LEAST_LENGTH = 512,
    LEAST_ROWS = 128,
    ROW_STEPS = 8, // to each doubling
    HEAD_STEP = 16,
    MOST_HEAD = 128,
    TABLES = SP_I_CUDA_ATTENTION_TENSORS - SP_I_CUDA_QUERY_LENGTHS
};

static int64_t power_of_two(int64_t least, int64_t n)
{
    int64_t power = least;
    while (power < n) {
        power *= 2;
    }
    return power;
}

// Work spaces are for so many rows; the plan does not depend on them.
static int64_t round_rows(int64_t rows)
{
    int64_t base = LEAST_ROWS;
    while (2 * base < rows) {
        base *= 2;
    }
    return rows <= base ? base : sp_cuda_ceil(rows, base / ROW_STEPS) * (base / ROW_STEPS);
}

bool sp_i_cuda_cudnn_takes(const sp_kernel_attention_shape *shape)
{
    return shape->head_dim % HEAD_STEP == 0 && shape->head_dim <= MOST_HEAD;
}

bool sp_i_cuda_packed_shape(const sp_i_cuda_segments *segments, int64_t rows,
                            const sp_kernel_attention_shape *shape,
                            sp_i_cuda_attention_shape *packed)
{
    *packed = (sp_i_cuda_attention_shape){
        .segments = power_of_two(1, segments->count),
        .queries = power_of_two(LEAST_LENGTH, segments->longest_queries),
        .keys = power_of_two(LEAST_LENGTH, segments->longest_keys),
        .all_queries = round_rows(rows),
        .all_keys = round_rows(segments->gradient_rows),
        .heads = shape->heads,
        .kv_heads = shape->kv_heads,
        .head_dim = shape->head_dim,
        .q_stride = shape->q_stride,
        .kv_stride = shape->kv_stride,
        .out_stride = shape->out_stride,
        .dq_stride = shape->q_stride,
        .dkv_stride = shape->kv_heads * shape->head_dim};
    return sp_i_cuda_cudnn_takes(shape) && sp_i_cuda_attention_refusal(packed) == NULL;
}

// ---- lengths and offsets ----

// Every table has room for the longest, a multiple of 16 bytes.
static int64_t table_bytes(const sp_i_cuda_attention_shape *packed)
{
    return sp_cuda_ceil(packed->segments + 1, 2) * 2 * (int64_t)sizeof(int64_t);
}

int64_t sp_i_cuda_packed_index_bytes(const sp_i_cuda_attention_shape *packed)
{
    return TABLES * table_bytes(packed);
}

typedef struct place {
    int64_t first, end, stride; // rows, and elements of a row
} place;

static place place_of(const sp_i_cuda_segments *segments, const sp_i_cuda_segment *segment,
                      const sp_i_cuda_attention_shape *s, int tensor)
{
    const int64_t end = segment->row + segment->queries;
    const int64_t key_row = segments->key_row[segment->group];
    switch (tensor) {
    case SP_I_CUDA_Q_OFFSETS:
        return (place){segment->row, end, s->q_stride};
    case SP_I_CUDA_KV_OFFSETS:
        return (place){key_row, key_row + segment->keys, s->kv_stride};
    case SP_I_CUDA_O_OFFSETS:
        return (place){segment->row, end, s->out_stride};
    case SP_I_CUDA_STATS_OFFSETS:
        return (place){segment->row, end, s->heads};
    case SP_I_CUDA_DQ_OFFSETS:
        return (place){segment->row, end, s->dq_stride};
    default:
        return (place){segment->gradient_row, segment->gradient_row + segment->keys, s->dkv_stride};
    }
}

void sp_i_cuda_packed_index(const sp_i_cuda_segments *segments,
                            const sp_i_cuda_attention_shape *packed, void *index)
{
    void *tables[SP_I_CUDA_ATTENTION_TENSORS];
    memset(index, 0, (size_t)sp_i_cuda_packed_index_bytes(packed));
    sp_i_cuda_packed_tensors(packed, index, tables);
    int32_t *queries = tables[SP_I_CUDA_QUERY_LENGTHS];
    int32_t *keys = tables[SP_I_CUDA_KEY_LENGTHS];
    for (int32_t i = 0; i < segments->count; i++) {
        queries[i] = (int32_t)segments->list[i].queries;
        keys[i] = (int32_t)segments->list[i].keys;
    }
    for (int tensor = SP_I_CUDA_Q_OFFSETS; tensor < SP_I_CUDA_ATTENTION_TENSORS; tensor++) {
        int64_t *offsets = tables[tensor];
        for (int64_t i = 0; i <= packed->segments; i++) {
            // Segments that are not there begin and end where the last one ends.
            bool there = i < segments->count;
            const sp_i_cuda_segment *segment = &segments->list[there ? i : segments->count - 1];
            place p = place_of(segments, segment, packed, tensor);
            offsets[i] = (there ? p.first : p.end) * p.stride;
        }
    }
}

void sp_i_cuda_packed_tensors(const sp_i_cuda_attention_shape *packed, void *index,
                              void *tensors[SP_I_CUDA_ATTENTION_TENSORS])
{
    for (int table = 0; table < TABLES; table++) {
        tensors[SP_I_CUDA_QUERY_LENGTHS + table] = (char *)index + table * table_bytes(packed);
    }
}

// ---- what plans are made for ----

bool sp_i_cuda_attention_serves(const sp_i_cuda_attention_shape *plan,
                                const sp_i_cuda_attention_shape *needed)
{
    return plan->segments >= needed->segments && plan->queries >= needed->queries &&
           plan->keys >= needed->keys && plan->heads == needed->heads &&
           plan->kv_heads == needed->kv_heads && plan->head_dim == needed->head_dim &&
           plan->q_stride == needed->q_stride && plan->kv_stride == needed->kv_stride &&
           plan->out_stride == needed->out_stride && plan->dq_stride == needed->dq_stride &&
           plan->dkv_stride == needed->dkv_stride;
}

const char *sp_i_cuda_attention_refusal(const sp_i_cuda_attention_shape *s)
{
    enum { MOST_HEAD_DIM = 256, STEP = 8 }; // STEP: bf16 elements of 16 bytes
    const int64_t strides[] = {s->q_stride, s->kv_stride, s->out_stride, s->dq_stride,
                               s->dkv_stride};
    if (s->head_dim % STEP != 0 || s->head_dim > MOST_HEAD_DIM || s->head_dim < STEP) {
        return "a head dimension that is not a multiple of 8 up to 256";
    }
    if (s->kv_heads < 1 || s->heads % s->kv_heads != 0) {
        return "query heads that are no multiple of the key heads";
    }
    if (s->segments < 1 || s->queries < 1 || s->keys < 1) {
        return "an empty slice";
    }
    for (int i = 0; i < 5; i++) {
        if (strides[i] % STEP != 0) {
            return "rows that do not begin at multiples of 16 bytes";
        }
    }
    return NULL;
}

int64_t sp_i_cuda_attention_parts(const sp_i_cuda_attention_shape *s,
                                  int64_t offset[SP_I_CUDA_WORKSPACE_PARTS])
{
    const int64_t spread = s->heads != s->kv_heads ? s->all_keys : 0;
    const int64_t bytes[SP_I_CUDA_WORKSPACE_PARTS] = {
        4 * s->all_queries * s->dq_stride, 4 * s->all_queries * s->heads,
        4 * spread * s->dkv_stride * (s->heads / s->kv_heads),
        4 * spread * s->dkv_stride * (s->heads / s->kv_heads)};
    int64_t sum = 0;
    for (int i = 0; i < SP_I_CUDA_WORKSPACE_PARTS; i++) {
        offset[i] = sum;
        sum += (bytes[i] + 255) / 256 * 256;
    }
    return sum;
}
