#include "sim/simulate/engine.h"

#include <string.h>

#include "sim/base/alloc.h"

// A table of the costs with rows of `bytes`, one for each pack or for equal ones; NULL: the costs
// have none.
typedef struct column {
    const void *rows;
    size_t bytes;          // of a row
    bool hashed;           // tells packs apart that are not alike
    const int32_t *row_of; // [packs]: the row of a pack; NULL: its index
} column;

enum { COLUMNS = 7 };

// The plan as the comparison of ranks sees it: packs by their position among those of their rank.
typedef struct view {
    const sp_plan *plan;
    const sp_pack_list *list[2]; // forward, backward
    column columns[2][COLUMNS];
    int32_t *ordinal[2]; // [packs]
    uint64_t *hash[2];   // [packs]
    bool *repeats[2];    // [packs]: it is alike the pack before it
    int32_t *alike[2];   // [packs]: the first pack of the same costs
    uint64_t *key[2];    // [packs]: that and the ordinal, by which packs of two ranks are compared
    int32_t *forward_pack; // of each backward slice; NULL where backward packs are the forward
    sp_arena work;         // holds the other tables
} view;

static bool can_fold(const sp_plan *plan)
{
    const sp_pack_list *list = &plan->packing->forward;
    for (size_t k = 0; k < list->count; k++) {
        if (list->packs[k].dp_count != 1) {
            return false;
        }
    }
    return true;
}

// FNV-1a over 64-bit words.
static uint64_t mix(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * 0x100000001b3u;
}

static uint64_t mix_words(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, 8);
        hash = mix(hash, word);
    }
    return hash;
}

// Packs of a side are alike when they agree in these.
static void columns_of(const sp_step_costs *c, int side, column columns[COLUMNS])
{
    size_t n = (size_t)c->classes;
    size_t kinds = (size_t)c->overlap.kinds;
    const column forward[COLUMNS] = {
        {c->action[SP_ACTION_F], n * sizeof(sp_action_cost), true, NULL},
        {c->side[0].p2p, sizeof *c->side[0].p2p, true, NULL},
        {c->side[0].unit, n * sizeof *c->side[0].unit, true, c->side[0].unit_row},
        {c->o_ns, n * sizeof *c->o_ns, true, NULL},
        {c->offloaded_bytes, n * sizeof *c->offloaded_bytes, false, c->side[0].unit_row},
        {c->l_ns, n * sizeof *c->l_ns, false, NULL},
        {c->overlap.tasks[0], kinds * sizeof *c->overlap.tasks[0], false, NULL},
    };
    const column backward[COLUMNS] = {
        {c->action[SP_ACTION_B], n * sizeof(sp_action_cost), true, NULL},
        {c->action[SP_ACTION_I], n * sizeof(sp_action_cost), false, NULL},
        {c->action[SP_ACTION_W], n * sizeof(sp_action_cost), false, NULL},
        {c->action[SP_ACTION_R], n * sizeof(sp_action_cost), false, NULL},
        {c->side[1].p2p, sizeof *c->side[1].p2p, true, NULL},
        {c->side[1].unit, n * sizeof *c->side[1].unit, false, c->side[1].unit_row},
        {c->overlap.tasks[1], kinds * sizeof *c->overlap.tasks[1], false, NULL},
    };
    memcpy(columns, side == 0 ? forward : backward, COLUMNS * sizeof *columns);
}

static inline const unsigned char *row_of(const column *table, size_t pack)
{
    size_t row = table->row_of != NULL ? (size_t)table->row_of[pack] : pack;
    return (const unsigned char *)table->rows + row * table->bytes;
}

static inline bool same_row(const column *table, size_t a, size_t b)
{
    const unsigned char *x = row_of(table, a);
    const unsigned char *y = row_of(table, b);
    return x == y || memcmp(x, y, table->bytes) == 0;
}

static uint64_t hash_pack(const view *v, int side, size_t pack)
{
    const sp_pack *p = &v->list[side]->packs[pack];
    uint64_t hash = 0xcbf29ce484222325u;
    for (int k = 0; k < COLUMNS; k++) {
        const column *table = &v->columns[side][k];
        hash = table->rows != NULL && table->hashed
                   ? mix_words(hash, row_of(table, pack), table->bytes)
                   : hash;
    }
    for (size_t s = 0; side == 1 && v->forward_pack != NULL && s < p->slice_count; s++) {
        hash = mix(hash, (uint64_t)v->ordinal[0][v->forward_pack[p->first_slice + s]]);
    }
    return hash;
}

// A regrouped pack must also take the same tokens from the same forward packs.
static bool same_slices(const view *v, size_t a, size_t b)
{
    const sp_pack *x = &v->list[1]->packs[a];
    const sp_pack *y = &v->list[1]->packs[b];
    if (v->forward_pack == NULL) {
        return true;
    }
    if (x->slice_count != y->slice_count) {
        return false;
    }
    for (size_t s = 0; s < x->slice_count; s++) {
        size_t i = x->first_slice + s;
        size_t j = y->first_slice + s;
        if (v->ordinal[0][v->forward_pack[i]] != v->ordinal[0][v->forward_pack[j]] ||
            v->list[1]->slices[i].computed_tokens != v->list[1]->slices[j].computed_tokens) {
            return false;
        }
    }
    return true;
}

static bool same_pack(const view *v, int side, size_t a, size_t b)
{
    bool same = true;
    for (int k = 0; same && k < COLUMNS; k++) {
        const column *table = &v->columns[side][k];
        same = table->rows == NULL || same_row(table, a, b);
    }
    return same && (side == 1 ? same_slices(v, a, b)
                              : v->list[0]->packs[a].computed == v->list[0]->packs[b].computed);
}

// Finds for each pack the first one alike, through a hash table of those found, so that ranks are
// compared by numbers. O(packs) where equal hashes mean equal packs.
static void find_alike(view *v, int side)
{
    size_t packs = v->list[side]->count;
    size_t size = 16;
    while (size < 2 * packs) {
        size *= 2;
    }
    int32_t *table = sp_arena_take(&v->work, size, sizeof *table);
    v->alike[side] = sp_arena_take(&v->work, packs, sizeof *v->alike[side]);
    for (size_t i = 0; i < size; i++) {
        table[i] = -1;
    }
    for (size_t k = 0; k < packs; k++) {
        uint64_t hash = v->hash[side][k];
        if (v->repeats[side][k]) {
            v->alike[side][k] = v->alike[side][k - 1];
            continue;
        }
        // FNV leaves its low bits to the low bits of the words: the high ones go in as well.
        size_t at = (size_t)(hash ^ hash >> 32) & (size - 1);
        while (table[at] >= 0) {
            size_t first = (size_t)table[at];
            if (v->hash[side][first] == hash && same_pack(v, side, first, k)) {
                break;
            }
            at = (at + 1) & (size - 1);
        }
        table[at] = table[at] >= 0 ? table[at] : (int32_t)k;
        v->alike[side][k] = table[at];
    }
}

static void view_fini(view *v)
{
    sp_arena_free(&v->work);
    sp_free(v->forward_pack);
}

static void view_init(view *v, const sp_plan *plan, const sp_step_costs *costs)
{
    *v =
        (view){.plan = plan, .list = {&plan->packing->forward, sp_packing_backward(plan->packing)}};
    sp_regroup(plan->packing, &v->forward_pack);
    for (int side = 0; side < 2; side++) {
        size_t packs = v->list[side]->count;
        int32_t *next = sp_arena_take(&v->work, (size_t)plan->layout.dp, sizeof *next);
        v->ordinal[side] = sp_arena_take(&v->work, packs, sizeof *v->ordinal[side]);
        v->hash[side] = sp_arena_take(&v->work, packs, sizeof *v->hash[side]);
        v->repeats[side] = sp_arena_take(&v->work, packs, sizeof *v->repeats[side]);
        columns_of(costs, side, v->columns[side]);
        for (size_t k = 0; k < packs; k++) {
            v->ordinal[side][k] = next[v->list[side]->packs[k].dp_first]++;
        }
        // Neighbours are often alike, and comparing them is many times faster than a hash.
        for (size_t k = 0; k < packs; k++) {
            bool repeats = k > 0 && same_pack(v, side, k - 1, k);
            v->repeats[side][k] = repeats;
            v->hash[side][k] = repeats ? v->hash[side][k - 1] : hash_pack(v, side, k);
        }
        find_alike(v, side);
        v->key[side] = sp_arena_take(&v->work, packs, sizeof *v->key[side]);
        for (size_t k = 0; k < packs; k++) {
            v->key[side][k] = (uint64_t)v->alike[side][k] << 32 | (uint32_t)v->ordinal[side][k];
        }
    }
}

static uint64_t hash_rank(const view *v, int dp)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int r = 0; r < v->plan->layout.pp; r++) {
        const sp_stage_plan *stage = sp_plan_stage(v->plan, dp, r);
        hash = mix(hash, stage->count);
        for (size_t a = 0; a < stage->count; a++) {
            sp_action action = stage->actions[a];
            int side = sp_action_is_backward(action);
            hash = mix(hash, ((uint64_t)action.kind << 48) ^ ((uint64_t)action.chunk << 32) ^
                                 (uint64_t)v->ordinal[side][action.pack]);
            hash = mix(hash, v->hash[side][action.pack]);
        }
    }
    return hash;
}

static bool same_rank(const view *v, int dp_a, int dp_b)
{
    for (int r = 0; r < v->plan->layout.pp; r++) {
        const sp_stage_plan *a = sp_plan_stage(v->plan, dp_a, r);
        const sp_stage_plan *b = sp_plan_stage(v->plan, dp_b, r);
        if (a->count != b->count) {
            return false;
        }
        for (size_t i = 0; i < a->count; i++) {
            const sp_action *x = &a->actions[i];
            const sp_action *y = &b->actions[i];
            const uint64_t *key = v->key[sp_action_is_backward(*x)];
            if (memcmp(x, y, offsetof(sp_action, pack)) != 0 || key[x->pack] != key[y->pack]) {
                return false;
            }
        }
    }
    return true;
}

// Numbers the ranks by kind, each kind by its first rank: kind[dp]; returns how many kinds there
// are.
static int find_kinds(const sp_plan *plan, const sp_step_costs *costs, int *kind)
{
    view v;
    int kinds = 0;
    size_t dp = (size_t)plan->layout.dp;
    view_init(&v, plan, costs);
    uint64_t *kind_hash = sp_arena_take(&v.work, dp, sizeof *kind_hash);
    int *first = sp_arena_take(&v.work, dp, sizeof *first);
    for (int d = 0; d < plan->layout.dp; d++) {
        // Neighbours again: ranks that differ do so early.
        if (d > 0 && same_rank(&v, first[kind[d - 1]], d)) {
            kind[d] = kind[d - 1];
            continue;
        }
        uint64_t hash = hash_rank(&v, d);
        int k = 0;
        while (k < kinds && (kind_hash[k] != hash || !same_rank(&v, first[k], d))) {
            k++;
        }
        if (k == kinds) {
            kind_hash[k] = hash;
            first[k] = d;
            kinds++;
        }
        kind[d] = k;
    }
    view_fini(&v);
    return kinds;
}

void sp_i_fold(const sp_plan *plan, const sp_step_costs *costs, bool unfold, sp_alike_ranks *alike)
{
    int dp = plan->layout.dp;
    int *kind = sp_malloc((size_t)dp * sizeof *kind);
    *alike = (sp_alike_ranks){.kinds = dp,
                              .members = sp_calloc((size_t)dp, sizeof *alike->members),
                              .first = sp_calloc((size_t)dp + 1, sizeof *alike->first)};
    for (int d = 0; d < dp; d++) {
        kind[d] = d;
    }
    if (!unfold && dp > 1 && can_fold(plan)) {
        alike->kinds = find_kinds(plan, costs, kind);
    }
    // Counting sort by kind; first[k] runs ahead as the write position and ends one kind further.
    for (int d = 0; d < dp; d++) {
        alike->first[kind[d]]++;
    }
    int begin = 0;
    for (int k = 0; k <= alike->kinds; k++) {
        int size = k < alike->kinds ? alike->first[k] : 0;
        alike->first[k] = begin;
        begin += size;
    }
    for (int d = 0; d < dp; d++) {
        alike->members[alike->first[kind[d]]++] = d;
    }
    for (int k = alike->kinds; k > 0; k--) {
        alike->first[k] = alike->first[k - 1];
    }
    alike->first[0] = 0;
    sp_free(kind);
}

void sp_i_alike_fini(sp_alike_ranks *alike)
{
    sp_free(alike->members);
    sp_free(alike->first);
    *alike = (sp_alike_ranks){0};
}
