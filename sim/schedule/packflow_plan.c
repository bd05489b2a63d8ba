#include "sim/schedule/packflow.h"
#include "sim/schedule/schedule_family.h"

#include "sim/base/alloc.h"
#include "sim/plan/regroup.h"

// Packs of one data-parallel rank and what a run over them needs.
typedef struct rank_job {
    sp_packflow_job job;
    int32_t *forward, *backward; // packs of the plan, in the rank's order
    int64_t *times;              // the tables of the job in one block
    int32_t *need;
    int64_t *tokens, *freed; // its share of merged packs
} rank_job;

static bool runs_on(const sp_pack *pack, int dp)
{
    return pack->dp_first <= dp && dp < pack->dp_first + pack->dp_count;
}

static size_t count_on(const sp_pack_list *list, int dp)
{
    size_t count = 0;
    for (size_t k = 0; k < list->count; k++) {
        count += runs_on(&list->packs[k], dp);
    }
    return count;
}

static void rank_job_fini(rank_job *rank)
{
    sp_i_free(rank->forward);
    sp_i_free(rank->backward);
    sp_i_free(rank->times);
    sp_i_free(rank->need);
    sp_i_free(rank->tokens);
    sp_i_free(rank->freed);
}

static bool allocate(rank_job *rank, size_t forward, size_t backward, size_t vstages)
{
    rank->forward = sp_i_malloc((forward + 1) * sizeof *rank->forward);
    rank->backward = sp_i_malloc((backward + 1) * sizeof *rank->backward);
    rank->times = sp_i_malloc(((forward + 2 * backward) * vstages + forward + backward + 1) *
                              sizeof *rank->times);
    rank->need = sp_i_malloc((backward + 1) * sizeof *rank->need);
    rank->tokens = sp_i_malloc((forward + 1) * sizeof *rank->tokens);
    rank->freed = sp_i_malloc((backward + 1) * sizeof *rank->freed);
    return rank->forward != NULL && rank->backward != NULL && rank->times != NULL &&
           rank->need != NULL && rank->tokens != NULL && rank->freed != NULL;
}

static void copy_times(const int64_t *from, const int32_t *packs, size_t count, size_t vstages,
                       int64_t *to)
{
    for (size_t k = 0; k < count; k++) {
        for (size_t s = 0; s < vstages; s++) {
            to[k * vstages + s] = from[(size_t)packs[k] * vstages + s];
        }
    }
}

// A slice's forward pack is needed, and so is what the backward packs before it needed, among which
// are those of the sample's later slices.
static void find_needs(const sp_packing *packing, const int32_t *forward_pack, const int32_t *place,
                       rank_job *rank)
{
    const sp_pack_list *backward = sp_packing_backward(packing);
    int32_t need = 0;
    for (size_t k = 0; k < rank->job.backward; k++) {
        const sp_pack *pack = &backward->packs[rank->backward[k]];
        if (forward_pack == NULL) {
            need = place[rank->backward[k]] > need ? place[rank->backward[k]] : need;
        }
        for (size_t i = 0; forward_pack != NULL && i < pack->slice_count; i++) {
            int32_t at = place[forward_pack[pack->first_slice + i]];
            need = at > need ? at : need;
        }
        rank->need[k] = need;
        rank->freed[k] = (pack->computed + pack->dp_count - 1) / pack->dp_count;
    }
}

static sp_status rank_job_init(const sp_schedule_spec *spec, const sp_schedule_costs *costs,
                               const sp_packing *packing, const sp_layout *layout, int dp,
                               const int32_t *forward_pack, int32_t *place, rank_job *rank,
                               sp_error *err)
{
    const sp_pack_list *forward = &packing->forward;
    const sp_pack_list *backward = sp_packing_backward(packing);
    size_t vstages = (size_t)sp_layout_vstages(layout);
    size_t forwards = count_on(forward, dp);
    size_t backwards = count_on(backward, dp);
    *rank = (rank_job){.job = {.layout = layout, .forward = forwards, .backward = backwards}};
    if (costs->room_bytes != NULL) {
        rank->job.token_bytes = costs->token_bytes + (size_t)dp * vstages;
        rank->job.room_bytes = costs->room_bytes + dp * layout->pp;
    }
    if (!allocate(rank, forwards, backwards, vstages)) {
        rank_job_fini(rank);
        return sp_error_no_memory(err, "a schedule");
    }
    size_t at = 0;
    for (size_t k = 0; k < forward->count; k++) {
        if (runs_on(&forward->packs[k], dp)) {
            place[k] = (int32_t)at;
            int ranks = forward->packs[k].dp_count;
            rank->tokens[at] = (forward->packs[k].computed + ranks - 1) / ranks;
            rank->forward[at++] = (int32_t)k;
        }
    }
    at = 0;
    for (size_t k = 0; k < backward->count; k++) {
        if (runs_on(&backward->packs[k], dp)) {
            rank->backward[at++] = (int32_t)k;
        }
    }
    find_needs(packing, forward_pack, place, rank);
    int64_t *f_ns = rank->times;
    int64_t *b_ns = f_ns + forwards * vstages;
    int64_t *w_ns = b_ns + backwards * vstages;
    copy_times(costs->pack_f_ns, rank->forward, forwards, vstages, f_ns);
    copy_times(spec->split_backward ? costs->pack_i_ns : costs->pack_b_ns, rank->backward,
               backwards, vstages, b_ns);
    copy_times(costs->pack_w_ns, rank->backward, backwards, vstages, w_ns);
    int64_t *p2p_f_ns = w_ns + backwards * vstages;
    int64_t *p2p_b_ns = p2p_f_ns + forwards;
    copy_times(costs->pack_p2p_f_ns, rank->forward, forwards, 1, p2p_f_ns);
    copy_times(costs->pack_p2p_b_ns, rank->backward, backwards, 1, p2p_b_ns);
    rank->job.p2p_f_ns = p2p_f_ns;
    rank->job.p2p_b_ns = p2p_b_ns;
    rank->job.f_ns = f_ns;
    rank->job.b_ns = b_ns;
    rank->job.w_ns = spec->split_backward ? w_ns : NULL;
    rank->job.need = rank->need;
    rank->job.tokens = rank->tokens;
    rank->job.freed = rank->freed;
    return SP_OK;
}

static bool write_stages(const rank_job *rank, const sp_packflow_step *steps, int dp, sp_plan *plan)
{
    static const sp_action_kind split[] = {SP_ACTION_F, SP_ACTION_I, SP_ACTION_W};
    size_t length = sp_packflow_length(&rank->job);
    bool ok = true;
    for (int s = 0; s < plan->layout.pp; s++) {
        sp_stage_plan *stage = sp_plan_stage(plan, dp, s);
        for (size_t i = 0; ok && i < length; i++) {
            sp_packflow_step step = steps[(size_t)s * length + i];
            bool forward = step.kind == SP_PACKFLOW_F;
            sp_action_kind kind =
                forward || rank->job.w_ns != NULL ? split[step.kind] : SP_ACTION_B;
            ok = sp_stage_plan_add(stage, kind, step.chunk,
                                   (forward ? rank->forward : rank->backward)[step.pack]);
        }
    }
    return ok;
}

static sp_status order_rank(const sp_schedule_spec *spec, const sp_schedule_costs *costs, int dp,
                            const int32_t *forward_pack, int32_t *place, sp_plan *plan,
                            sp_error *err)
{
    rank_job rank;
    sp_status status = rank_job_init(spec, costs, plan->packing, &plan->layout, dp, forward_pack,
                                     place, &rank, err);
    if (status != SP_OK) {
        return status;
    }
    size_t steps = sp_packflow_length(&rank.job) * (size_t)plan->layout.pp;
    sp_packflow_result result = {.steps = sp_i_malloc((steps + 1) * sizeof *result.steps)};
    status = result.steps != NULL ? sp_packflow_run(&rank.job, &result, err)
                                  : sp_error_no_memory(err, "a schedule");
    if (status == SP_OK && !write_stages(&rank, result.steps, dp, plan)) {
        status = sp_error_no_memory(err, "a schedule");
    }
    sp_i_free(result.steps);
    rank_job_fini(&rank);
    return status;
}

// The orders of all data-parallel ranks, each by a run of packflow.h over the costs of its packs.
// Ranks that share merged packs must have equal lists, or their orders may wait for each other,
// which the engine finds. O(stages * packs).
sp_status sp_i_schedule_packflow(const sp_i_schedule_job *job, sp_error *err)
{
    sp_plan *plan = job->plan;
    int32_t *forward_pack = NULL;
    sp_status status = sp_regroup(plan->packing, &forward_pack, err);
    int32_t *place = sp_i_malloc((plan->packing->forward.count + 1) * sizeof *place);
    if (status == SP_OK && place == NULL) {
        status = sp_error_no_memory(err, "a schedule");
    }
    for (int d = 0; status == SP_OK && d < plan->layout.dp; d++) {
        status = order_rank(job->spec, job->costs, d, forward_pack, place, plan, err);
    }
    sp_i_free(forward_pack);
    sp_i_free(place);
    return status;
}

sp_status sp_packflow_rank(const sp_schedule_spec *spec, const sp_schedule_costs *costs,
                           const sp_packing *packing, const sp_layout *layout, int dp,
                           sp_packflow_result *result, sp_error *err)
{
    int32_t *forward_pack = NULL;
    sp_status status = sp_regroup(packing, &forward_pack, err);
    int32_t *place = sp_i_malloc((packing->forward.count + 1) * sizeof *place);
    if (status == SP_OK && place == NULL) {
        status = sp_error_no_memory(err, "a schedule");
    }
    rank_job rank;
    if (status == SP_OK) {
        status = rank_job_init(spec, costs, packing, layout, dp, forward_pack, place, &rank, err);
    }
    if (status == SP_OK) {
        *result = (sp_packflow_result){0};
        status = sp_packflow_run(&rank.job, result, err);
        rank_job_fini(&rank);
    }
    sp_i_free(forward_pack);
    sp_i_free(place);
    return status;
}
