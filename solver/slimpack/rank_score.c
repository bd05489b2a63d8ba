#include "solver/slimpack/shape_search.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/schedule/packflow.h"

// Packs whose transfers are measured, tokens on a rank.
enum { SMALL = 256, TYPICAL = 4096 };

static sp_status measure(sp_i_rank_scorer *s, int64_t longest_tokens, sp_error *err)
{
    const sp_layout *layout = s->cost->layout;
    sp_packing packing;
    sp_packing_init(&packing, NULL, layout->dp);
    for (int32_t i = 0; i < 2; i++) {
        int64_t tokens = i == 0 ? SMALL : TYPICAL;
        // A rank's states have tables of as many positions as the longest sample.
        int64_t begin = longest_tokens > tokens ? longest_tokens - tokens : 0;
        sp_slice slice = {.sample = i, .begin = begin, .tokens = tokens, .computed_tokens = tokens};
        sp_pack_list_begin(&packing.forward, 0, 1);
        sp_pack_list_add(&packing.forward, slice, true);
    }
    sp_step_costs costs = {0};
    sp_status status = sp_cost_model_build(s->cost, &packing, &costs, err);
    if (status == SP_OK) {
        sp_pack_memory_init(&s->memory, layout, &costs);
        double small_ns = sp_step_costs_mean_p2p_ns(&costs, layout->pp, 0, 0);
        double typical_ns = sp_step_costs_mean_p2p_ns(&costs, layout->pp, 0, 1);
        s->p2p_token_ns = (typical_ns - small_ns) / (TYPICAL - SMALL);
        s->p2p_ns = small_ns - s->p2p_token_ns * SMALL;
    }
    sp_step_costs_fini(&costs);
    sp_packing_fini(&packing);
    return status;
}

sp_status sp_i_rank_scorer_init(sp_i_rank_scorer *scorer, const sp_scenario *scenario,
                                sp_cost_model *cost, int64_t longest_tokens, sp_error *err)
{
    *scorer = (sp_i_rank_scorer){
        .scenario = scenario, .limit_bytes = scenario->memory_limit_bytes, .cost = cost};
    size_t vstages = (size_t)sp_layout_vstages(cost->layout);
    size_t pp = (size_t)cost->layout->pp;
    size_t dp = (size_t)cost->layout->dp;
    scorer->room =
        (sp_pack_room){.token_bytes = sp_arena_take(&scorer->arrays, vstages, sizeof(int64_t)),
                       .room_bytes = sp_arena_take(&scorer->arrays, pp, sizeof(int64_t)),
                       .again_bytes = sp_arena_take(&scorer->arrays, pp, sizeof(int64_t))};
    scorer->class_ns = sp_arena_take(&scorer->arrays, 3 * vstages, sizeof(int64_t));
    scorer->fullest = sp_arena_take(&scorer->arrays, dp, sizeof *scorer->fullest);
    scorer->scores = sp_arena_take(&scorer->arrays, SP_I_SCORES, sizeof *scorer->scores);
    sp_status status = measure(scorer, longest_tokens, err);
    if (status != SP_OK) {
        sp_i_rank_scorer_fini(scorer);
    }
    return status;
}

void sp_i_rank_scorer_fini(sp_i_rank_scorer *scorer)
{
    sp_pack_memory_fini(&scorer->memory);
    sp_arena_free(&scorer->arrays);
    sp_free(scorer->times);
    sp_free(scorer->tokens);
    *scorer = (sp_i_rank_scorer){0};
}

int64_t sp_i_rank_scorer_most_tokens(sp_i_rank_scorer *s, bool split)
{
    const sp_layout *layout = s->cost->layout;
    const sp_fullest_pack typical = {
        .dp_count = 1, .tokens = TYPICAL, .slices = 1, .summed_tokens = TYPICAL};
    sp_pack_memory_measure(&s->memory, s->cost, &typical);
    int64_t most = INT64_MAX;
    sp_pack_memory_room(&s->memory, layout, split, s->limit_bytes, &s->room);
    for (int r = 0; r < layout->pp; r++) {
        double bytes = 0.0; // of a token, with the sums of the gradients of its key and value
        double room = (double)s->room.room_bytes[r];
        for (int chunk = 0; chunk < layout->chunks; chunk++) {
            int v = sp_layout_vstage(layout, r, chunk);
            bytes += (double)s->room.token_bytes[v] + s->memory.sums[v] / TYPICAL;
            room += s->memory.sums[v];
        }
        int64_t tokens = bytes > 0.0 ? sp_whole(room / bytes) : INT64_MAX;
        most = tokens < most ? tokens : most;
    }
    return most < 1 ? 1 : most;
}

static void spread(const sp_i_rank_scorer *s, const int64_t *class_ns, int64_t *at)
{
    for (int v = 0; v < sp_layout_vstages(s->cost->layout); v++) {
        at[v] = class_ns[s->cost->class_of_vstage[v]];
    }
}

// The forward pack that a backward pack mirrors, where backward packs mirror forward packs block by
// block, each of which needs its last pack; `block` is the first of the block so far.
static size_t mirrored(const int32_t *need, size_t j, size_t *block)
{
    *block = j > 0 && need[j] != need[j - 1] ? j : *block;
    return (size_t)need[j] - (j - *block);
}

static bool has_same_slices(const sp_packing *packing, const sp_pack *forward,
                            const sp_pack *backward)
{
    return forward->slice_count == backward->slice_count && forward->gathers == backward->gathers &&
           memcmp(packing->forward.slices + forward->first_slice,
                  packing->backward.slices + backward->first_slice,
                  forward->slice_count * sizeof(sp_slice)) == 0;
}

// Packs that mirror each other are priced at once.
static void fill_times(sp_i_rank_scorer *s, const sp_packing *packing, const int32_t *need,
                       bool split, size_t nf, size_t nb)
{
    size_t vstages = (size_t)sp_layout_vstages(s->cost->layout);
    int64_t *f_ns = s->class_ns;
    int64_t *b_ns = f_ns + s->cost->stage_classes;
    int64_t *w_ns = b_ns + s->cost->stage_classes;
    int64_t *backward = s->times + nf * vstages;
    int64_t *weights = backward + nb * vstages;
    bool is_mirror = nf == nb;
    size_t block = 0;
    for (size_t j = 0; is_mirror && j < nb; j++) {
        const size_t k = mirrored(need, j, &block);
        is_mirror = k < nf && has_same_slices(packing, &packing->forward.packs[k],
                                              &packing->backward.packs[j]);
    }
    block = 0;
    for (size_t j = 0; j < nb; j++) {
        const sp_pack *pack = &packing->backward.packs[j];
        if (is_mirror) {
            sp_cost_model_both_ns(s->cost, &packing->backward, pack, split, f_ns, b_ns, w_ns);
            spread(s, f_ns, s->times + mirrored(need, j, &block) * vstages);
        } else {
            sp_cost_model_backward_ns(s->cost, &packing->backward, pack, split, b_ns, w_ns);
        }
        spread(s, b_ns, backward + j * vstages);
        if (split) {
            spread(s, w_ns, weights + j * vstages);
        }
    }
    for (size_t k = 0; !is_mirror && k < nf; k++) {
        sp_cost_model_forward_ns(s->cost, &packing->forward, &packing->forward.packs[k], f_ns);
        spread(s, f_ns, s->times + k * vstages);
    }
}

// Tokens of each pack on one of the ranks that share it.
static void fill_tokens(const sp_pack_list *list, int64_t *tokens)
{
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        tokens[k] = (pack->computed + pack->dp_count - 1) / pack->dp_count;
    }
}

// Forwards that run again, of packs that mirror each other, and what is there again of them.
static void add_repeats(sp_i_rank_scorer *s, const sp_packing *packing, const int32_t *need,
                        int64_t *freed, int64_t *again)
{
    size_t vstages = (size_t)sp_layout_vstages(s->cost->layout);
    size_t nf = packing->forward.count;
    double share = sp_pack_memory_kept_share(&s->memory, s->cost->layout);
    int64_t *b_ns = s->times + nf * vstages;
    size_t block = 0;
    for (size_t j = 0; j < packing->backward.count; j++) {
        size_t k = mirrored(need, j, &block);
        again[j] = 0;
        if (!packing->forward.packs[k].runs_again) {
            continue;
        }
        again[j] = s->tokens[k];
        s->tokens[k] = sp_packflow_kept(s->tokens[k], share);
        again[j] -= s->tokens[k];
        freed[j] = s->tokens[k];
        for (size_t v = 0; v < vstages; v++) {
            b_ns[j * vstages + v] += s->times[k * vstages + v];
        }
    }
}

static void fill_memory(sp_i_rank_scorer *s, const sp_packing *packing, bool split)
{
    const sp_layout *layout = s->cost->layout;
    sp_fullest_packs(packing, layout->cp, s->fullest);
    sp_pack_memory_measure(&s->memory, s->cost, &s->fullest[packing->forward.packs[0].dp_first]);
    sp_pack_memory_room(&s->memory, layout, split, s->limit_bytes, &s->room);
}

static sp_status find_score(sp_i_rank_scorer *scorer, const sp_packing *packing,
                            const int32_t *need, bool split, const sp_packflow_outcome *beaten,
                            sp_packflow_outcome *outcome, sp_error *err)
{
    const sp_layout *layout = scorer->cost->layout;
    size_t vstages = (size_t)sp_layout_vstages(layout);
    size_t nf = packing->forward.count;
    size_t nb = packing->backward.count;
    sp_reserve((void **)&scorer->times, &scorer->times_capacity, (nf + 2 * nb) * vstages,
               sizeof *scorer->times);
    sp_reserve((void **)&scorer->tokens, &scorer->tokens_capacity, 2 * nf + 3 * nb,
               sizeof *scorer->tokens);
    int64_t *freed = scorer->tokens + nf;
    fill_tokens(&packing->forward, scorer->tokens);
    fill_tokens(&packing->backward, freed);
    for (size_t k = 0; k < nf + nb; k++) {
        freed[nb + k] =
            (int64_t)(scorer->p2p_ns + scorer->p2p_token_ns * (double)scorer->tokens[k] + 0.5);
    }
    fill_times(scorer, packing, need, split, nf, nb);
    fill_memory(scorer, packing, split);
    bool repeats = scorer->fullest[packing->forward.packs[0].dp_first].again_tokens > 0;
    int64_t *again = repeats ? freed + nf + 2 * nb : NULL;
    if (repeats) {
        add_repeats(scorer, packing, need, freed, again);
    }
    sp_packflow_job job = {
        .layout = layout,
        .beaten = beaten,
        .forward = nf,
        .backward = nb,
        .f_ns = scorer->times,
        .b_ns = scorer->times + nf * vstages,
        .w_ns = split ? scorer->times + (nf + nb) * vstages : NULL,
        .need = need,
        .tokens = scorer->tokens,
        .freed = freed,
        .p2p_f_ns = freed + nb,
        .p2p_b_ns = freed + nb + nf,
        .again = again,
        .token_bytes = scorer->room.token_bytes,
        .room_bytes = scorer->room.room_bytes,
        .again_bytes = scorer->room.again_bytes,
    };
    return sp_packflow_run(&job, NULL, outcome, err);
}

// ---- scores that are known ----

static uint64_t mixed(uint64_t key, int64_t value)
{
    key = (key ^ (uint64_t)value) * 0x9E3779B97F4A7C15u;
    return key ^ (key >> 32);
}

static uint64_t key_of_list(uint64_t key, const sp_pack_list *list)
{
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        key = mixed(key, (int64_t)(2 * pack->slice_count) + pack->runs_again);
        key = mixed(key, pack->kv_tokens);
    }
    for (size_t i = 0; i < list->slice_count; i++) {
        const sp_slice *slice = &list->slices[i];
        key = mixed(key, slice->sample);
        key = mixed(key, slice->begin);
        key = mixed(key, slice->tokens);
    }
    return key;
}

static uint64_t key_of(const sp_i_rank_scorer *scorer, const sp_packing *packing, bool split)
{
    const sp_pack *first = &packing->forward.packs[0];
    uint64_t key = mixed(mixed(1, scorer->limit_bytes), split);
    key = mixed(mixed(key, first->dp_first), first->dp_count);
    key = key_of_list(key_of_list(key, &packing->forward), &packing->backward);
    return key == 0 ? 1 : key;
}

sp_status sp_i_rank_score(sp_i_rank_scorer *scorer, const sp_packing *packing, const int32_t *need,
                          bool split, const sp_packflow_outcome *beaten,
                          sp_packflow_outcome *outcome, sp_error *err)
{
    uint64_t key = key_of(scorer, packing, split);
    sp_i_score *known = &scorer->scores[key % SP_I_SCORES];
    bool better = beaten == NULL || sp_packflow_is_better(&known->outcome, beaten);
    if (known->key == key && (known->exact || !better)) {
        *outcome = known->outcome;
        return SP_OK;
    }
    sp_status status = find_score(scorer, packing, need, split, beaten, outcome, err);
    if (status == SP_OK) {
        better = beaten == NULL || sp_packflow_is_better(outcome, beaten);
        *known = (sp_i_score){key, better, *outcome};
    }
    return status;
}
