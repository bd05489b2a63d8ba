#include "sim/engine/fold.h"

#include <string.h>

#include "sim/base/alloc.h"

void sp_i_folding_fini(sp_i_folding *folding)
{
    sp_i_free(folding->rank);
    sp_i_free(folding->kind);
    sp_i_free(folding->members);
    sp_i_free(folding->first);
    *folding = (sp_i_folding){0};
}

static bool can_fold(const sp_plan *plan)
{
    const sp_packing *packing = plan->packing;
    if (packing->backward.count > 0) {
        return false;
    }
    for (size_t k = 0; k < packing->forward.count; k++) {
        if (packing->forward.packs[k].dp_count != 1) {
            return false;
        }
    }
    return true;
}

// Position of each pack among the packs of its rank.
static int32_t *number_packs(const sp_plan *plan)
{
    const sp_pack_list *list = &plan->packing->forward;
    int32_t *ordinal = sp_i_malloc(list->count * sizeof *ordinal);
    int32_t *next = sp_i_calloc((size_t)plan->layout.dp, sizeof *next);
    if (ordinal != NULL && next != NULL) {
        for (size_t k = 0; k < list->count; k++) {
            ordinal[k] = next[list->packs[k].dp_first]++;
        }
        sp_i_free(next);
        return ordinal;
    }
    sp_i_free(ordinal);
    sp_i_free(next);
    return NULL;
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

static uint64_t hash_pack(const sp_step_costs *costs, size_t pack)
{
    size_t row = pack * (size_t)costs->classes;
    size_t bytes = (size_t)costs->classes * sizeof(sp_action_cost);
    uint64_t hash = 0xcbf29ce484222325u;
    hash = mix_words(hash, costs->f + row, bytes);
    hash = mix_words(hash, costs->b + row, bytes);
    hash = mix(hash, (uint64_t)costs->p2p_f_ns[pack]);
    if (costs->unit != NULL) {
        hash = mix_words(hash, costs->unit + row, (size_t)costs->classes * sizeof(sp_unit_bytes));
    }
    return hash;
}

static bool same_pack(const sp_step_costs *costs, size_t a, size_t b)
{
    size_t classes = (size_t)costs->classes;
    size_t bytes = classes * sizeof(sp_action_cost);
    return memcmp(costs->f + a * classes, costs->f + b * classes, bytes) == 0 &&
           memcmp(costs->b + a * classes, costs->b + b * classes, bytes) == 0 &&
           memcmp(costs->i + a * classes, costs->i + b * classes, bytes) == 0 &&
           memcmp(costs->w + a * classes, costs->w + b * classes, bytes) == 0 &&
           memcmp(costs->r + a * classes, costs->r + b * classes, bytes) == 0 &&
           costs->p2p_f_ns[a] == costs->p2p_f_ns[b] && costs->p2p_b_ns[a] == costs->p2p_b_ns[b] &&
           costs->p2p_f_far_ns[a] == costs->p2p_f_far_ns[b] &&
           costs->p2p_b_far_ns[a] == costs->p2p_b_far_ns[b] &&
           (costs->unit == NULL || memcmp(costs->unit + a * classes, costs->unit + b * classes,
                                          classes * sizeof(sp_unit_bytes)) == 0);
}

static uint64_t hash_rank(const sp_plan *plan, const int32_t *ordinal, const uint64_t *pack_hash,
                          int dp)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int r = 0; r < plan->layout.pp; r++) {
        const sp_stage_plan *stage = sp_plan_stage(plan, dp, r);
        hash = mix(hash, stage->count);
        for (size_t a = 0; a < stage->count; a++) {
            sp_action action = stage->actions[a];
            hash = mix(hash, ((uint64_t)action.kind << 48) ^ ((uint64_t)action.chunk << 32) ^
                                 (uint64_t)ordinal[action.pack]);
            hash = mix(hash, pack_hash[action.pack]);
        }
    }
    return hash;
}

static bool same_rank(const sp_plan *plan, const sp_step_costs *costs, const int32_t *ordinal,
                      int dp_a, int dp_b)
{
    for (int r = 0; r < plan->layout.pp; r++) {
        const sp_stage_plan *a = sp_plan_stage(plan, dp_a, r);
        const sp_stage_plan *b = sp_plan_stage(plan, dp_b, r);
        if (a->count != b->count) {
            return false;
        }
        for (size_t i = 0; i < a->count; i++) {
            sp_action x = a->actions[i];
            sp_action y = b->actions[i];
            if (x.kind != y.kind || x.chunk != y.chunk || ordinal[x.pack] != ordinal[y.pack] ||
                !same_pack(costs, (size_t)x.pack, (size_t)y.pack)) {
                return false;
            }
        }
    }
    return true;
}

static bool find_kinds(const sp_plan *plan, const sp_step_costs *costs, sp_i_folding *folding)
{
    size_t dp = (size_t)plan->layout.dp;
    size_t packs = plan->packing->forward.count;
    bool ok = false;
    int32_t *ordinal = number_packs(plan);
    uint64_t *pack_hash = sp_i_malloc(packs * sizeof *pack_hash);
    uint64_t *kind_hash = sp_i_malloc(dp * sizeof *kind_hash);
    if (ordinal == NULL || pack_hash == NULL || kind_hash == NULL) {
        goto out;
    }
    for (size_t k = 0; k < packs; k++) {
        pack_hash[k] = hash_pack(costs, k);
    }
    for (int d = 0; d < plan->layout.dp; d++) {
        uint64_t hash = hash_rank(plan, ordinal, pack_hash, d);
        int kind = 0;
        while (
            kind < folding->simulated &&
            (kind_hash[kind] != hash || !same_rank(plan, costs, ordinal, folding->rank[kind], d))) {
            kind++;
        }
        if (kind == folding->simulated) {
            kind_hash[kind] = hash;
            folding->rank[kind] = d;
            folding->simulated++;
        }
        folding->kind[d] = kind;
    }
    ok = true;
out:
    sp_i_free(ordinal);
    sp_i_free(pack_hash);
    sp_i_free(kind_hash);
    return ok;
}

sp_status sp_i_fold(const sp_plan *plan, const sp_step_costs *costs, bool unfold,
                    sp_i_folding *folding, sp_error *err)
{
    int dp = plan->layout.dp;
    *folding = (sp_i_folding){0};
    folding->rank = sp_i_calloc((size_t)dp, sizeof *folding->rank);
    folding->kind = sp_i_calloc((size_t)dp, sizeof *folding->kind);
    folding->members = sp_i_calloc((size_t)dp, sizeof *folding->members);
    folding->first = sp_i_calloc((size_t)dp + 1, sizeof *folding->first);
    bool ok = folding->rank != NULL && folding->kind != NULL && folding->members != NULL &&
              folding->first != NULL;
    if (ok && !unfold && dp > 1 && can_fold(plan)) {
        ok = find_kinds(plan, costs, folding);
    } else if (ok) {
        for (int d = 0; d < dp; d++) {
            folding->rank[d] = d;
            folding->kind[d] = d;
        }
        folding->simulated = dp;
    }
    if (!ok) {
        sp_i_folding_fini(folding);
        return sp_error_no_memory(err, "folding of alike ranks");
    }
    // Counting sort by kind; first[k] runs ahead as the write position and ends one kind further.
    for (int d = 0; d < dp; d++) {
        folding->first[folding->kind[d]]++;
    }
    int begin = 0;
    for (int k = 0; k <= folding->simulated; k++) {
        int size = k < folding->simulated ? folding->first[k] : 0;
        folding->first[k] = begin;
        begin += size;
    }
    for (int d = 0; d < dp; d++) {
        folding->members[folding->first[folding->kind[d]]++] = d;
    }
    for (int k = folding->simulated; k > 0; k--) {
        folding->first[k] = folding->first[k - 1];
    }
    folding->first[0] = 0;
    return SP_OK;
}
