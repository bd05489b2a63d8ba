#include "solver/evaluate/evaluate_private.h"

#include "sim/base/alloc.h"
#include "solver/merged.h"
#include "solver/slicing.h"
#include "solver/strategy.h"

// A sample as the packing has it.
typedef struct candidate {
    int32_t sample;
    int dp_count;
    int64_t computed; // with padding
} candidate;

static sp_status list_candidates(const sp_packing *packing, candidate **list, size_t *count,
                                 sp_error *err);
static sp_status run_alone(sp_i_evaluation *ev, const sp_packing *packing, const candidate *c,
                           bool *ran, sp_error *err);
static sp_status look_wider(sp_i_evaluation *ev, const sp_packing *packing, candidate c,
                            sp_oom_diagnosis *shortage, sp_error *err);

static int fullest_rank(const sp_result *result)
{
    int pp = 0;
    for (int64_t i = 0; i < (int64_t)result->layout.dp * result->layout.pp; i++) {
        if (result->ranks[i].peak_bytes == result->peak_bytes) {
            pp = result->ranks[i].pp;
            break;
        }
    }
    return pp;
}

static void note(const sp_i_evaluation *ev, const sp_batch *batch, const candidate *c,
                 sp_oom_diagnosis *shortage)
{
    shortage->need = ev->result->peak;
    shortage->pp = fullest_rank(ev->result);
    shortage->dp_count = c->dp_count;
    shortage->id = batch->ids != NULL ? batch->ids[c->sample] : c->sample;
    shortage->tokens = batch->tokens[c->sample];
    shortage->computed = c->computed;
}

sp_status sp_oom_diagnosis_find(const sp_scenario *scenario, const sp_packing *packing,
                                int64_t plan_bytes, sp_oom_diagnosis *shortage, sp_error *err)
{
    static const sp_evaluate_options options = {.no_bounds = true};
    // Costs of its own, so that nothing it asks for shows among the uses of the result's tables.
    sp_result alone = {0};
    sp_i_evaluation ev = {.scenario = scenario, .options = &options, .result = &alone};
    candidate *list = NULL;
    size_t count = 0;
    size_t most = 0;
    *shortage =
        (sp_oom_diagnosis){.limit_bytes = scenario->memory_limit_bytes, .plan_bytes = plan_bytes};
    sp_status status = list_candidates(packing, &list, &count, err);
    if (status == SP_OK) {
        status = sp_i_evaluate_costs(&ev, err);
    }
    for (size_t i = 0; status == SP_OK && i < count; i++) {
        bool ran = false;
        status = run_alone(&ev, packing, &list[i], &ran, err);
        if (ran && alone.peak_bytes > sp_bytes_total(&shortage->need)) {
            note(&ev, packing->batch, &list[i], shortage);
            most = i;
        }
    }
    if (status == SP_OK && sp_oom_diagnosis_is_of_sample(shortage)) {
        status = look_wider(&ev, packing, list[most], shortage, err);
    }
    sp_result_fini(&alone);
    sp_i_evaluate_costs_fini(&ev);
    sp_i_free(list);
    return status;
}

bool sp_oom_diagnosis_is_of_sample(const sp_oom_diagnosis *shortage)
{
    return sp_bytes_total(&shortage->need) > shortage->limit_bytes;
}

bool sp_oom_diagnosis_is_worse(const sp_oom_diagnosis *a, const sp_oom_diagnosis *b)
{
    bool of_sample = sp_oom_diagnosis_is_of_sample(a);
    if (of_sample != sp_oom_diagnosis_is_of_sample(b)) {
        return of_sample;
    }
    return of_sample ? sp_bytes_total(&a->need) > sp_bytes_total(&b->need)
                     : a->plan_bytes > b->plan_bytes;
}

// ---- which samples ----

static bool is_longer(const sp_batch *batch, const candidate *a, const candidate *b)
{
    return a->computed != b->computed ? a->computed > b->computed
                                      : batch->tokens[a->sample] > batch->tokens[b->sample];
}

// Of each number of ranks the longest, the first of equals; in place, behind each other.
static size_t keep_longest(const sp_packing *packing, candidate *all)
{
    size_t kept = 0;
    for (size_t s = 0; s < packing->batch->count; s++) {
        candidate c = all[s];
        size_t i = 0;
        while (i < kept && all[i].dp_count != c.dp_count) {
            i++;
        }
        if (c.dp_count > 0 && i == kept) {
            all[kept++] = c;
        } else if (c.dp_count > 0 && is_longer(packing->batch, &c, &all[i])) {
            all[i] = c;
        }
    }
    return kept;
}

static sp_status list_candidates(const sp_packing *packing, candidate **list, size_t *count,
                                 sp_error *err)
{
    const sp_pack_list *forward = &packing->forward;
    candidate *all = sp_i_calloc(packing->batch->count, sizeof *all);
    *list = all;
    if (all == NULL) {
        return sp_error_no_memory(err, "what a sample needs");
    }
    for (size_t k = 0; k < forward->count; k++) {
        const sp_pack *pack = &forward->packs[k];
        for (size_t i = pack->first_slice; i < pack->first_slice + pack->slice_count; i++) {
            candidate *c = &all[forward->slices[i].sample];
            c->sample = forward->slices[i].sample;
            c->dp_count = pack->dp_count;
            c->computed += forward->slices[i].computed_tokens;
        }
    }
    *count = keep_longest(packing, all);
    return SP_OK;
}

// ---- a step of one sample ----

// The slices of one sample, in packs that hold nothing else.
static bool add_own_slices(const sp_packing *from, const sp_pack_list *list, const candidate *c,
                           sp_pack_list *to)
{
    bool ok = true;
    int32_t first = 0;
    for (size_t k = 0; ok && k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        bool begun = false;
        for (size_t i = pack->first_slice; ok && i < pack->first_slice + pack->slice_count; i++) {
            const sp_slice *slice = &list->slices[i];
            if (slice->sample != c->sample) {
                continue;
            }
            if (!begun) {
                first = to->count == 0 ? pack->microbatch : first;
                begun = ok = sp_pack_list_begin(to, 0, c->dp_count);
                if (ok) {
                    to->packs[to->count - 1].microbatch = pack->microbatch - first;
                }
            }
            ok = ok && sp_pack_list_add(to, *slice,
                                        slice->begin + slice->tokens ==
                                            from->batch->tokens[slice->sample]);
        }
    }
    return ok;
}

// SlimPack and ChunkFlow cut by rules that look at the whole batch or at no row: their slices stay.
static bool keeps_slices(const sp_scenario *scenario)
{
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    return strategy->sliced && strategy->schedule != SP_SCHEDULE_SLIMPIPE;
}

// A row of its own, cut as the schedule or SlimPipe cuts rows.
static sp_status add_row(sp_i_evaluation *ev, const candidate *c, sp_packing *one, sp_error *err)
{
    const sp_scenario *scenario = ev->scenario;
    bool of_slimpipe = sp_strategy_find(scenario->strategy.kind)->sliced;
    int64_t tokens = of_slimpipe ? scenario->strategy.slice_tokens : 0;
    sp_slice whole = {.sample = c->sample,
                      .tokens = one->batch->tokens[c->sample],
                      .computed_tokens = c->computed};
    if (!sp_pack_list_begin(&one->forward, 0, c->dp_count) ||
        !sp_pack_list_add(&one->forward, whole, true)) {
        return sp_error_no_memory(err, "a packing");
    }
    return tokens > 0 ? sp_slice_rows_every(one, tokens, err) : sp_i_evaluate_cut(ev, one, err);
}

static sp_status pack_alone(sp_i_evaluation *ev, const sp_packing *packing, const candidate *c,
                            sp_packing *one, sp_error *err)
{
    sp_packing_init(one, packing->batch, packing->dp);
    sp_status status = SP_OK;
    if (!keeps_slices(ev->scenario)) {
        status = add_row(ev, c, one, err);
    } else if (!add_own_slices(packing, &packing->forward, c, &one->forward) ||
               !add_own_slices(packing, &packing->backward, c, &one->backward)) {
        status = sp_error_no_memory(err, "a packing");
    }
    if (status != SP_OK) {
        sp_packing_fini(one);
    }
    return status;
}

// The peak is then that of ev->result. A schedule that has no order for it is no error here.
static sp_status run_alone(sp_i_evaluation *ev, const sp_packing *packing, const candidate *c,
                           bool *ran, sp_error *err)
{
    sp_packing one;
    sp_error own;
    sp_error_clear(&own);
    sp_status status = pack_alone(ev, packing, c, &one, &own);
    if (status == SP_OK) {
        status = sp_i_evaluate_alone(ev, &one, &own);
        sp_packing_fini(&one);
    }
    *ran = status == SP_OK;
    return status == SP_ERR_NO_MEMORY ? sp_error_no_memory(err, "what a sample needs") : SP_OK;
}

static sp_status look_wider(sp_i_evaluation *ev, const sp_packing *packing, candidate c,
                            sp_oom_diagnosis *shortage, sp_error *err)
{
    sp_status status = SP_OK;
    bool ran = true;
    bool fits = false;
    while (status == SP_OK && ran && !fits && c.dp_count < packing->dp) {
        c.dp_count = sp_i_merged_next(c.dp_count, packing->dp);
        status = run_alone(ev, packing, &c, &ran, err);
        if (status == SP_OK && ran) {
            shortage->wider = c.dp_count;
            shortage->wider_bytes = ev->result->peak_bytes;
            fits = ev->result->peak_bytes <= shortage->limit_bytes;
        }
    }
    return status;
}
