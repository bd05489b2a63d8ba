// Packed, in rows of the length that suits the batch best: what tuning the pack length by hand
// gives. Rows of the context's length waste a pipeline when a batch fills only a few of them.
#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "solver/pack_memory.h"
#include "solver/step_judge.h"
#include "solver/strategies.h"

enum {
    LENGTHS = 17,  // estimated, from the longest sample to the context in equal ratios
    SIMULATED = 4, // of them, those with the best estimates
};

// What the rule of one-forward-one-backward says of a packing.
typedef struct estimate {
    double time_s; // of the busiest rank
    bool fits;
} estimate;

// One data-parallel rank: its micro-batches, and the longest of them while the pipeline fills.
typedef struct rank_load {
    double sum_s, longest_s;
    int64_t packs, longest_tokens;
} rank_load;

static void add_loads(const sp_strategy_input *input, const sp_packing *packing, rank_load *ranks)
{
    for (size_t k = 0; k < packing->forward.count; k++) {
        const sp_pack *pack = &packing->forward.packs[k];
        rank_load *rank = &ranks[pack->dp_first];
        double pack_s = sp_cost_model_pack_s(input->cost, &packing->forward, pack);
        rank->sum_s += pack_s;
        rank->longest_s = fmax(rank->longest_s, pack_s);
        rank->packs++;
        rank->longest_tokens =
            pack->computed > rank->longest_tokens ? pack->computed : rank->longest_tokens;
    }
}

// Pipeline rank r holds p - r micro-batches.
static bool rank_fits(const sp_scenario *scenario, const sp_i_pack_memory *memory,
                      const rank_load *rank, int64_t *token_bytes, int64_t *room_bytes)
{
    const sp_layout *layout = &scenario->layout;
    sp_i_pack_memory_room(memory, layout, false, scenario->memory_limit_bytes, rank->longest_tokens,
                          token_bytes, room_bytes);
    for (int r = 0; r < layout->pp; r++) {
        int64_t held = rank->packs < layout->pp - r ? rank->packs : layout->pp - r;
        if (held * rank->longest_tokens * token_bytes[r] > room_bytes[r]) {
            return false;
        }
    }
    return true;
}

static sp_status memory_of(const sp_strategy_input *input, const sp_packing *packing,
                           sp_i_pack_memory *memory, sp_error *err)
{
    sp_step_costs costs;
    sp_status status = sp_cost_model_build(input->cost, packing, &costs, err);
    if (status == SP_OK) {
        status = sp_i_pack_memory_measure(&costs, packing, &input->scenario->layout, memory, err);
        sp_step_costs_fini(&costs);
    }
    return status;
}

static sp_status estimate_of(const sp_strategy_input *input, const sp_packing *packing,
                             estimate *found, sp_error *err)
{
    const sp_layout *layout = &input->scenario->layout;
    size_t vstages = (size_t)sp_layout_vstages(layout);
    sp_i_pack_memory memory = {0};
    rank_load *ranks = sp_i_calloc((size_t)layout->dp, sizeof *ranks);
    int64_t *bytes = sp_i_malloc((vstages + (size_t)layout->pp) * sizeof *bytes);
    sp_status status = ranks != NULL && bytes != NULL ? memory_of(input, packing, &memory, err)
                                                      : sp_error_no_memory(err, "packing");
    *found = (estimate){.fits = true};
    if (status == SP_OK) {
        add_loads(input, packing, ranks);
    }
    for (int d = 0; status == SP_OK && d < layout->dp; d++) {
        found->time_s = fmax(found->time_s, ranks[d].sum_s + (layout->pp - 1) * ranks[d].longest_s);
        found->fits =
            found->fits && (!memory.known ||
                            rank_fits(input->scenario, &memory, &ranks[d], bytes, bytes + vstages));
    }
    sp_i_pack_memory_fini(&memory);
    sp_i_free(ranks);
    sp_i_free(bytes);
    return status;
}

// A length of rows, and what is estimated for it.
typedef struct candidate {
    int64_t length;
    estimate found;
} candidate;

static int sooner(const void *a, const void *b)
{
    const candidate *x = a;
    const candidate *y = b;
    if (x->found.fits != y->found.fits) {
        return x->found.fits ? -1 : 1;
    }
    if (x->found.time_s < y->found.time_s || x->found.time_s > y->found.time_s) {
        return x->found.time_s < y->found.time_s ? -1 : 1;
    }
    return x->length > y->length ? -1 : x->length < y->length;
}

static sp_status pack(const sp_strategy_input *input, int64_t length, sp_packing *packing,
                      sp_error *err)
{
    sp_strategy_input with = *input;
    with.context = length;
    return sp_i_pack_packed(&with, packing, err);
}

static sp_status estimate_all(const sp_strategy_input *input, candidate list[LENGTHS],
                              sp_error *err)
{
    int64_t longest = 1;
    for (size_t i = 0; i < input->batch->count; i++) {
        longest = input->batch->tokens[i] > longest ? input->batch->tokens[i] : longest;
    }
    double ratio = (double)input->context / (double)longest;
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < LENGTHS; i++) {
        sp_packing tried;
        double length = (double)longest * pow(ratio, (double)i / (LENGTHS - 1));
        list[i].length = i + 1 == LENGTHS ? input->context : (int64_t)length;
        status = pack(input, list[i].length, &tried, err);
        if (status == SP_OK) {
            status = estimate_of(input, &tried, &list[i].found, err);
            sp_packing_fini(&tried);
        }
    }
    return status;
}

// The whole step of rows of this length. No outcome where the schedule does not run them.
static sp_status judge(const sp_strategy_input *input, int64_t length,
                       sp_i_packflow_outcome *outcome, sp_error *err)
{
    sp_packing tried;
    sp_error own;
    sp_error_clear(&own);
    *outcome = (sp_i_packflow_outcome){.makespan_ns = INT64_MAX};
    sp_status status = pack(input, length, &tried, err);
    if (status == SP_OK) {
        status = sp_i_step_judge_rows(input, &tried, outcome, &own);
        sp_packing_fini(&tried);
    }
    if (status == SP_ERR_NO_MEMORY || status == SP_ERR_INTERNAL) {
        return own.count > 0 ? sp_error_set(err, status, "%s", own.message[0]) : status;
    }
    return SP_OK;
}

// Estimates say which lengths are worth a simulation; rows of the context's length are simulated in
// any case, so that the result is never worse than theirs.
sp_status sp_i_pack_packed_tuned(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    candidate list[LENGTHS];
    sp_i_packflow_outcome best;
    int64_t length = input->context;
    sp_status status = estimate_all(input, list, err);
    if (status == SP_OK) {
        qsort(list, LENGTHS, sizeof *list, sooner);
        status = judge(input, length, &best, err);
    }
    for (int i = 0; status == SP_OK && i < SIMULATED; i++) {
        sp_i_packflow_outcome tried;
        if (list[i].length == input->context) {
            continue;
        }
        status = judge(input, list[i].length, &tried, err);
        if (status == SP_OK && sp_i_packflow_is_better(&tried, &best)) {
            best = tried;
            length = list[i].length;
        }
    }
    return status == SP_OK ? pack(input, length, packing, err) : status;
}
