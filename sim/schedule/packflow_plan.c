#include "sim/base/units.h"
#include "sim/plan/regroup.h"
#include "sim/schedule/packflow.h"
#include "sim/schedule/schedule_family.h"

// What the orders of all data-parallel ranks are made from.
typedef struct ordering {
    const sp_schedule_spec *spec;
    const sp_schedule_costs *costs;
    const sp_packing *packing;
    const sp_layout *layout;
    int32_t *forward_pack; // of each backward slice; NULL where backward packs are the forward
} ordering;

// Packs of one data-parallel rank and what a run over them needs, in memory of `work`.
typedef struct rank_job {
    sp_packflow_job job;
    int32_t *forward, *backward; // packs of the plan, in the rank's order
    int32_t *repeated;           // [backward] the forward pack that runs again before it; -1: none
    sp_arena work;
} rank_job;

static int32_t *packs_on(sp_arena *work, const sp_pack_list *list, int dp, size_t *count)
{
    int32_t *packs = sp_arena_take(work, list->count, sizeof *packs);
    *count = 0;
    for (size_t k = 0; k < list->count; k++) {
        if (list->packs[k].dp_first <= dp &&
            dp - list->packs[k].dp_first < list->packs[k].dp_count) {
            packs[(*count)++] = (int32_t)k;
        }
    }
    return packs;
}

// The rank's share of the tokens of its packs.
static int64_t *tokens_of(sp_arena *work, const sp_pack_list *list, const int32_t *packs,
                          size_t count)
{
    int64_t *tokens = sp_arena_take(work, count, sizeof *tokens);
    for (size_t k = 0; k < count; k++) {
        const sp_pack *pack = &list->packs[packs[k]];
        tokens[k] = (pack->computed + pack->dp_count - 1) / pack->dp_count;
    }
    return tokens;
}

// The rows of a table that belong to the rank's packs.
static int64_t *rows_of(sp_arena *work, const int64_t *from, const int32_t *packs, size_t count,
                        size_t columns)
{
    int64_t *rows = sp_arena_take(work, count * columns, sizeof *rows);
    for (size_t k = 0; k < count; k++) {
        const int64_t *row = from + (size_t)packs[k] * columns;
        for (size_t v = 0; v < columns; v++) {
            rows[k * columns + v] = row[v];
        }
    }
    return rows;
}

// A slice's forward pack is needed, and so is what the backward packs before it needed, among which
// are those of the sample's later slices.
static int32_t *find_needs(const ordering *o, rank_job *rank)
{
    const sp_pack_list *backward = sp_packing_backward(o->packing);
    int32_t *needs = sp_arena_take(&rank->work, rank->job.backward, sizeof *needs);
    int32_t *place = sp_arena_take(&rank->work, o->packing->forward.count, sizeof *place);
    int32_t need = 0;
    for (size_t k = 0; k < rank->job.forward; k++) {
        place[rank->forward[k]] = (int32_t)k;
    }
    for (size_t k = 0; k < rank->job.backward; k++) {
        const sp_pack *pack = &backward->packs[rank->backward[k]];
        size_t reads = o->forward_pack == NULL ? 1 : pack->slice_count;
        for (size_t i = 0; i < reads; i++) {
            int32_t at = place[o->forward_pack == NULL ? rank->backward[k]
                                                       : o->forward_pack[pack->first_slice + i]];
            need = at > need ? at : need;
        }
        needs[k] = need;
    }
    return needs;
}

// A forward that runs again is counted with the backward behind it: the rank is ready for both at
// the same time. Until then its pack keeps little.
static void add_repeats(const ordering *o, rank_job *rank)
{
    const sp_pack_list *forward = &o->packing->forward;
    const sp_pack_list *backward = sp_packing_backward(o->packing);
    size_t vstages = (size_t)sp_layout_vstages(o->layout);
    int64_t *tokens = (int64_t *)rank->job.tokens;
    int64_t *freed = (int64_t *)rank->job.freed;
    int64_t *b_ns = (int64_t *)rank->job.b_ns;
    int64_t *again = sp_arena_take(&rank->work, rank->job.backward, sizeof *again);
    rank->repeated = sp_arena_take(&rank->work, rank->job.backward, sizeof *rank->repeated);
    rank->job.again = again;
    for (size_t k = 0; k < rank->job.forward; k++) {
        if (forward->packs[rank->forward[k]].runs_again) {
            tokens[k] = sp_packflow_kept(tokens[k], o->costs->kept_share);
        }
    }
    for (size_t k = 0; k < rank->job.backward; k++) {
        int32_t pack = o->forward_pack == NULL
                           ? rank->backward[k]
                           : o->forward_pack[backward->packs[rank->backward[k]].first_slice];
        bool repeated = forward->packs[pack].runs_again;
        int64_t kept = repeated ? sp_packflow_kept(freed[k], o->costs->kept_share) : freed[k];
        rank->repeated[k] = repeated ? pack : -1;
        again[k] = freed[k] - kept;
        freed[k] = kept;
        for (size_t v = 0; repeated && v < vstages; v++) {
            b_ns[k * vstages + v] += o->costs->pack_f_ns[(size_t)pack * vstages + v];
        }
    }
}

static void make_rank(const ordering *o, int dp, rank_job *rank)
{
    const sp_schedule_costs *costs = o->costs;
    const sp_pack_list *backward = sp_packing_backward(o->packing);
    bool split = o->spec->split_backward;
    size_t vstages = (size_t)sp_layout_vstages(o->layout);
    sp_arena *work = &rank->work;
    sp_packflow_job *job = &rank->job;
    *rank = (rank_job){.job = {.layout = o->layout}};
    rank->forward = packs_on(work, &o->packing->forward, dp, &job->forward);
    rank->backward = packs_on(work, backward, dp, &job->backward);
    if (costs->room_bytes != NULL) {
        job->token_bytes = costs->token_bytes + (size_t)dp * vstages;
        job->room_bytes = costs->room_bytes + dp * o->layout->pp;
        job->again_bytes =
            costs->again_bytes != NULL ? costs->again_bytes + dp * o->layout->pp : NULL;
    }
    job->f_ns = rows_of(work, costs->pack_f_ns, rank->forward, job->forward, vstages);
    job->b_ns = rows_of(work, split ? costs->pack_i_ns : costs->pack_b_ns, rank->backward,
                        job->backward, vstages);
    if (split) {
        job->w_ns = rows_of(work, costs->pack_w_ns, rank->backward, job->backward, vstages);
    }
    job->p2p_f_ns = rows_of(work, costs->pack_p2p_f_ns, rank->forward, job->forward, 1);
    job->p2p_b_ns = rows_of(work, costs->pack_p2p_b_ns, rank->backward, job->backward, 1);
    job->tokens = tokens_of(work, &o->packing->forward, rank->forward, job->forward);
    job->freed = tokens_of(work, backward, rank->backward, job->backward);
    job->need = find_needs(o, rank);
    add_repeats(o, rank);
}

static void write_stages(const rank_job *rank, const sp_packflow_step *steps, int dp, sp_plan *plan)
{
    static const sp_action_kind split[] = {SP_ACTION_F, SP_ACTION_I, SP_ACTION_W};
    size_t length = sp_packflow_length(&rank->job);
    for (int s = 0; s < plan->layout.pp; s++) {
        sp_stage_plan *stage = sp_plan_stage(plan, dp, s);
        for (size_t i = 0; i < length; i++) {
            sp_packflow_step step = steps[(size_t)s * length + i];
            bool forward = step.kind == SP_PACKFLOW_F;
            sp_action_kind kind =
                forward || rank->job.w_ns != NULL ? split[step.kind] : SP_ACTION_B;
            if (step.kind == SP_PACKFLOW_B && rank->repeated[step.pack] >= 0) {
                sp_stage_plan_add(stage, SP_ACTION_R, step.chunk, rank->repeated[step.pack]);
            }
            sp_stage_plan_add(stage, kind, step.chunk,
                              (forward ? rank->forward : rank->backward)[step.pack]);
        }
    }
}

// The steps of a rank, in memory of `work`.
static sp_status run_rank(const rank_job *rank, sp_arena *work, sp_packflow_step **steps,
                          sp_packflow_outcome *outcome, sp_error *err)
{
    size_t count = sp_packflow_length(&rank->job) * (size_t)rank->job.layout->pp;
    *steps = sp_arena_take(work, count, sizeof **steps);
    return sp_packflow_run(&rank->job, *steps, outcome, err);
}

static sp_status order_rank(const ordering *o, int dp, sp_plan *plan, sp_error *err)
{
    rank_job rank;
    sp_packflow_outcome outcome;
    sp_packflow_step *steps = o->costs->orders != NULL ? o->costs->orders[dp] : NULL;
    sp_status status = SP_OK;
    make_rank(o, dp, &rank);
    if (steps == NULL) {
        status = run_rank(&rank, &rank.work, &steps, &outcome, err);
    }
    if (status == SP_OK) {
        write_stages(&rank, steps, dp, plan);
    }
    sp_arena_free(&rank.work);
    return status;
}

// The orders of all data-parallel ranks, each by a run of packflow.h over the costs of its packs.
// Ranks that share merged packs must have equal lists, or their orders may wait for each other,
// which the engine finds. O(stages * packs).
void sp_i_schedule_packflow(sp_i_schedule_job *job)
{
    ordering o = {.spec = job->spec,
                  .costs = job->costs,
                  .packing = job->plan->packing,
                  .layout = &job->plan->layout};
    sp_regroup(o.packing, &o.forward_pack, NULL);
    for (int d = 0; job->status == SP_OK && d < o.layout->dp; d++) {
        job->status = order_rank(&o, d, job->plan, job->err);
    }
    sp_free(o.forward_pack);
}

// Steps are not kept where orders is NULL.
static sp_status time_rank(const ordering *o, int dp, const sp_packflow_outcome *beaten,
                           sp_arena *work, sp_packflow_step **orders, sp_packflow_outcome *outcome,
                           sp_error *err)
{
    rank_job rank;
    make_rank(o, dp, &rank);
    rank.job.beaten = beaten;
    sp_status status = orders != NULL ? run_rank(&rank, work, &orders[dp], outcome, err)
                                      : sp_packflow_run(&rank.job, NULL, outcome, err);
    sp_arena_free(&rank.work);
    return status;
}

sp_status sp_packflow_rank(const sp_schedule_spec *spec, const sp_schedule_costs *costs,
                           const sp_packing *packing, const sp_layout *layout, int dp,
                           sp_packflow_outcome *outcome, sp_error *err)
{
    ordering o = {.spec = spec, .costs = costs, .packing = packing, .layout = layout};
    sp_regroup(packing, &o.forward_pack, NULL);
    sp_status status = time_rank(&o, dp, NULL, NULL, NULL, outcome, err);
    sp_free(o.forward_pack);
    return status;
}

sp_status sp_packflow_slowest(const sp_schedule_spec *spec, const sp_schedule_costs *costs,
                              const sp_packing *packing, const sp_layout *layout,
                              const sp_packflow_outcome *beaten, sp_arena *work,
                              sp_packflow_step **orders, sp_packflow_outcome *outcome,
                              sp_error *err)
{
    ordering o = {.spec = spec, .costs = costs, .packing = packing, .layout = layout};
    sp_status status = SP_OK;
    bool open = true;
    sp_regroup(packing, &o.forward_pack, NULL);
    *outcome = (sp_packflow_outcome){0};
    for (int d = 0; status == SP_OK && open && d < layout->dp; d++) {
        sp_packflow_outcome one;
        status = time_rank(&o, d, beaten, work, orders, &one, err);
        outcome->makespan_ns = sp_larger(outcome->makespan_ns, one.makespan_ns);
        outcome->lacking_bytes = sp_larger(outcome->lacking_bytes, one.lacking_bytes);
        open = beaten == NULL || sp_packflow_is_better(outcome, beaten);
    }
    sp_free(o.forward_pack);
    return status;
}
