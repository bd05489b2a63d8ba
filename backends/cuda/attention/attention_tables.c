#include "backends/cuda/attention/attention_pass.h"

#include <stdlib.h>

#include "kernels/cuda_grid.h"
#include "sim/base/alloc.h"

// ---- launches ----

typedef struct entry {
    int32_t sample, place;
    int64_t begin;
} entry;

static int compare(const void *a, const void *b)
{
    const entry *x = a;
    const entry *y = b;
    if (x->sample != y->sample) {
        return x->sample < y->sample ? -1 : 1;
    }
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return (x->place > y->place) - (x->place < y->place);
}

static const sp_i_exec_slice *at_work(const sp_i_cuda_launches *launches, int32_t i)
{
    return &launches->slices->slice[launches->pack->slice[launches->order[i]]];
}

static bool sort_slices(sp_i_cuda_launches *launches)
{
    int32_t count = launches->pack->count;
    entry *entries = sp_calloc((size_t)count, sizeof *entries);
    if (entries == NULL) {
        return false;
    }
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
    return true;
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

bool sp_i_cuda_launches_init(sp_i_cuda_launches *launches, const sp_i_exec_slices *slices,
                             const sp_i_exec_pack *pack)
{
    size_t count = (size_t)pack->count;
    *launches = (sp_i_cuda_launches){.slices = slices,
                                     .pack = pack,
                                     .order = sp_calloc(count, sizeof *launches->order),
                                     .group = sp_calloc(count, sizeof *launches->group)};
    if (launches->order == NULL || launches->group == NULL || !sort_slices(launches)) {
        sp_i_cuda_launches_fini(launches);
        return false;
    }
    cut_groups(launches);
    for (size_t g = 0; g < launches->groups; g++) {
        launches->group[g].first_seen = launches->seen_count;
        launches->group[g].seen = fill_seen(launches, &launches->group[g], NULL);
        launches->seen_count += launches->group[g].seen;
    }
    launches->seen = sp_calloc(launches->seen_count, sizeof *launches->seen);
    if (launches->seen == NULL) {
        sp_i_cuda_launches_fini(launches);
        return false;
    }
    for (size_t g = 0; g < launches->groups; g++) {
        (void)fill_seen(launches, &launches->group[g],
                        launches->seen + launches->group[g].first_seen);
    }
    return true;
}

void sp_i_cuda_launches_fini(sp_i_cuda_launches *launches)
{
    sp_free(launches->order);
    sp_free(launches->group);
    sp_free(launches->seen);
    *launches = (sp_i_cuda_launches){0};
}

// ---- tables ----

// Tables as they grow; without room for them they are only counted.
typedef struct growing {
    const sp_i_cuda_launches *launches;
    const sp_kernel_attention_shape *shape;
    const sp_i_cuda_rows *rows;
    sp_cuda_attention_slice *slices;
    sp_cuda_attention_keys *keys;
    sp_cuda_attention_group *groups;
    sp_cuda_attention_tables counts;
} growing;

// Where row `row` of a tensor begins; NULL for none.
#define ROW(tensor, row, stride) ((tensor) == NULL ? NULL : (tensor) + (row) * (stride))

static void add_piece(growing *to, const sp_i_exec_piece *piece)
{
    const sp_i_cuda_rows *rows = to->rows;
    const sp_kernel_attention_shape *s = to->shape;
    if (to->slices != NULL) {
        to->slices[to->counts.slice_count] =
            (sp_cuda_attention_slice){.q = ROW(rows->q, piece->row, s->q_stride),
                                      .out = ROW(rows->out, piece->row, s->out_stride),
                                      .lse = ROW(rows->lse, piece->row, s->heads),
                                      .dout = ROW(rows->dout, piece->row, s->out_stride),
                                      .delta = ROW(rows->delta, piece->row, s->heads),
                                      .dq = ROW(rows->dq, piece->row, s->q_stride),
                                      .query_begin = piece->begin,
                                      .queries = piece->rows,
                                      .group = to->counts.group_count};
    }
    to->counts.slice_count++;
    to->counts.query_tile_count += sp_cuda_ceil(piece->rows, SP_CUDA_ATTENTION_TILE);
}

static void add_run(growing *to, const sp_i_cuda_seen *seen, sp_token_run run, int64_t row)
{
    const sp_kernel_attention_shape *s = to->shape;
    int64_t shown = seen->end - run.begin < run.tokens ? seen->end - run.begin : run.tokens;
    if (shown <= 0) {
        return;
    }
    if (to->keys != NULL) {
        const sp_bf16 *k = ROW(seen->kv, row, s->kv_stride);
        float *dk = ROW(seen->dkv, row, s->kv_stride);
        int64_t value = s->kv_heads * s->head_dim;
        to->keys[to->counts.key_count] = (sp_cuda_attention_keys){.k = k,
                                                                  .v = ROW(k, 1, value),
                                                                  .dk = dk,
                                                                  .dv = ROW(dk, 1, value),
                                                                  .key_begin = run.begin,
                                                                  .keys = shown,
                                                                  .group = to->counts.group_count};
    }
    to->counts.key_count++;
    to->counts.key_tile_count += sp_cuda_ceil(shown, SP_CUDA_ATTENTION_TILE);
}

static void add_seen(growing *to, const sp_i_cuda_seen *seen)
{
    const sp_i_exec_slice *slice = &to->launches->slices->slice[seen->slice];
    sp_token_run runs[SP_ZIGZAG_RUNS];
    int64_t row = 0;
    for (int shard = 0; shard < slice->shards; shard++) {
        int count = sp_i_exec_shard_runs(slice, shard, runs);
        for (int r = 0; r < count; r++) {
            add_run(to, seen, runs[r], row);
            row += runs[r].tokens;
        }
    }
}

static void add_group(growing *to, const sp_i_cuda_group *group)
{
    const sp_i_exec_pack *pack = to->launches->pack;
    sp_cuda_attention_group made = {.first_slice = to->counts.slice_count,
                                    .first_keys = to->counts.key_count};
    for (int32_t i = group->first; i < group->first + group->count; i++) {
        int32_t place = to->launches->order[i];
        for (size_t p = pack->first_piece[place]; p < pack->first_piece[place + 1]; p++) {
            add_piece(to, &pack->piece[p]);
        }
    }
    for (size_t s = group->first_seen; s < group->first_seen + group->seen; s++) {
        add_seen(to, &to->launches->seen[s]);
    }
    made.slices = to->counts.slice_count - made.first_slice;
    made.key_blocks = to->counts.key_count - made.first_keys;
    if (to->groups != NULL) {
        to->groups[to->counts.group_count] = made;
    }
    to->counts.group_count++;
}

static void grow(growing *to, int launch)
{
    to->counts = (sp_cuda_attention_tables){0};
    for (size_t g = 0; g < to->launches->groups; g++) {
        if (to->launches->group[g].launch == launch) {
            add_group(to, &to->launches->group[g]);
        }
    }
}

// Tables stand one behind the other in a block; all have elements of multiples of 8 bytes.
static void *part(char *block, size_t *at, int64_t count, size_t element_bytes)
{
    void *begin = block == NULL ? NULL : block + *at;
    *at += (size_t)count * element_bytes;
    return begin;
}

static size_t lay_out(char *block, growing *to, sp_cuda_attention_tables *t)
{
    size_t at = 0;
    to->slices = part(block, &at, t->slice_count, sizeof *to->slices);
    to->keys = part(block, &at, t->key_count, sizeof *to->keys);
    to->groups = part(block, &at, t->group_count, sizeof *to->groups);
    t->slices = to->slices;
    t->keys = to->keys;
    t->groups = to->groups;
    t->query_tiles = part(block, &at, t->query_tile_count, sizeof *t->query_tiles);
    t->key_tiles = part(block, &at, t->key_tile_count, sizeof *t->key_tiles);
    return at;
}

void *sp_i_cuda_tables_make(const sp_i_cuda_launches *launches, int launch,
                            const sp_kernel_attention_shape *shape, const sp_i_cuda_rows *rows,
                            sp_cuda_attention_tables *tables, int64_t *bytes, int *code)
{
    growing to = {.launches = launches, .shape = shape, .rows = rows};
    grow(&to, launch);
    *tables = to.counts;
    size_t size = lay_out(NULL, &to, tables);
    char *block = sp_malloc(size);
    if (block == NULL) {
        return NULL;
    }
    (void)lay_out(block, &to, tables);
    grow(&to, launch);
    *bytes = (int64_t)size;
    *code = sp_cuda_attention_plan(shape, tables);
    return block;
}

void sp_i_cuda_tables_move(sp_cuda_attention_tables *tables, const void *from, void *to)
{
    const char *base = from;
    char *place = to;
    tables->slices = (const void *)(place + ((const char *)tables->slices - base));
    tables->keys = (const void *)(place + ((const char *)tables->keys - base));
    tables->groups = (const void *)(place + ((const char *)tables->groups - base));
    tables->query_tiles = (void *)(place + ((const char *)tables->query_tiles - base));
    tables->key_tiles = (void *)(place + ((const char *)tables->key_tiles - base));
}
