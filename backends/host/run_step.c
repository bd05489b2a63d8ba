#include <string.h>

#include "backends/host/draw.h"
#include "backends/host/run.h"

// Tokens and targets of the step. Padding gets a token but no target, and the last position of its
// slice, for which a position table has a row.
static void fill_tokens(sp_i_host_run *run)
{
    const sp_run_request *request = run->request;
    const sp_batch *batch = request->plan->packing->batch;
    sp_i_host_job *job = &run->job;
    for (size_t s = 0; s < job->slices.count; s++) {
        const sp_i_host_slice *slice = &job->slices.slice[s];
        int64_t id = batch->ids[slice->sample];
        for (int64_t i = 0; i < slice->computed; i++) {
            int64_t at = job->token_at[s] + i;
            bool trained = i < slice->tokens;
            int64_t position = slice->begin + (trained ? i : slice->tokens - 1);
            int64_t vocab = job->model->vocab;
            int step = (int)run->steps_done;
            job->position[at] = position;
            job->token[at] =
                trained ? sp_i_host_token(&run->text, request->seed, step, id, position, vocab) : 0;
            job->target[at] =
                trained ? sp_i_host_token(&run->text, request->seed, step, id, position + 1, vocab)
                        : -1;
        }
    }
}

static void begin_step(sp_i_host_run *run)
{
    const sp_layout *layout = &run->request->plan->layout;
    fill_tokens(run);
    run->job.dropout_seed = sp_i_host_draw(sp_i_host_draw_name(run->request->seed, "dropout"),
                                           (uint64_t)run->steps_done);
    for (int d = 0; d < layout->dp; d++) {
        for (int p = 0; p < layout->pp; p++) {
            sp_i_host_rank *rank = sp_i_host_rank_at(run, d, p);
            size_t bytes = (size_t)(run->weights[p].elements * run->math->real_bytes);
            memset(rank->gradients, 0, bytes);
            rank->logged = 0;
        }
        for (size_t v = 0; v < sp_i_host_vstages(run); v++) {
            memset(sp_i_host_stage_at(run, d, (int)v)->loss, 0,
                   run->job.slices.forward_count * sizeof(double));
        }
    }
}

// Nothing may still run when the time is over; steps follow one another.
static sp_status check_timeout(const sp_i_host_run *run, const sp_timeline *timeline, sp_error *err)
{
    int64_t limit_ns = run->request->timeout_ns - run->elapsed_ns;
    for (size_t r = 0; run->request->timeout_ns > 0 && r < timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &timeline->ranks[r];
        for (size_t i = 0; i < rank->count; i++) {
            if (rank->spans[i].end_ns > limit_ns) {
                sp_plan_place place = {rank->dp, rank->pp, rank->spans[i].action};
                return sp_error_at_action(err, SP_ERR_LIMIT, run->request->plan, &place,
                                          "it is not done at the timeout of %lld ns",
                                          (long long)run->request->timeout_ns);
            }
        }
    }
    return SP_OK;
}

static sp_status check_drained(const sp_i_host_run *run, sp_error *err)
{
    const sp_layout *layout = &run->request->plan->layout;
    for (int d = 0; d < layout->dp; d++) {
        for (int p = 0; p < layout->pp; p++) {
            const sp_i_host_rank *rank = sp_i_host_rank_at(run, d, p);
            int64_t expected = 4 + (rank->cosine != NULL) + (rank->sine != NULL);
            if (sp_i_host_blocks(rank->arena) != expected) {
                return sp_error_set(err, SP_ERR_INTERNAL,
                                    "dp %d pp %d: %lld blocks remain after the step", d, p,
                                    (long long)(sp_i_host_blocks(rank->arena) - expected));
            }
        }
    }
    if (sp_i_host_blocks(run->mail) != 0) {
        return sp_error_set(err, SP_ERR_INTERNAL, "%lld hidden states were sent but not read",
                            (long long)sp_i_host_blocks(run->mail));
    }
    return SP_OK;
}

static sp_status fill_memory(const sp_i_host_run *run, sp_measured_step *step, sp_error *err)
{
    bool points = run->request->memory_points;
    sp_status status = sp_memory_timeline_init(&step->memory, &step->timeline, err);
    bool ok = status == SP_OK;
    for (size_t r = 0; ok && r < step->timeline.rank_count; r++) {
        const sp_rank_timeline *line = &step->timeline.ranks[r];
        const sp_i_host_rank *rank = sp_i_host_rank_at(run, line->dp, line->pp);
        sp_rank_memory *memory = &step->memory.ranks[r];
        SP_ASSERT(rank->logged == line->count);
        const sp_bytes *states = sp_i_host_held(rank->arena, run->options.measure);
        ok = sp_rank_memory_note(memory, 0, states, NULL, points);
        for (size_t i = 0; ok && i < line->count; i++) {
            const sp_span *span = &line->spans[i];
            const sp_i_host_held_log *log = &rank->log[i];
            ok = sp_rank_memory_note(memory, span->start_ns, &log->during, &span->action, points) &&
                 sp_rank_memory_note(memory, span->end_ns, &log->after, &span->action, points);
        }
    }
    return ok || status != SP_OK ? status : sp_error_no_memory(err, "the memory timeline");
}

// Over the packs in their order, so that the sum does not depend on who ran them when.
static double sum_loss(const sp_i_host_run *run)
{
    const sp_pack_list *packs = &run->request->plan->packing->forward;
    int head = (int)sp_i_host_vstages(run) - 1;
    double loss = 0.0;
    for (size_t p = 0; p < packs->count; p++) {
        loss += sp_i_host_stage_at(run, packs->packs[p].dp_first, head)->loss[p];
    }
    return loss;
}

sp_status sp_i_host_run_step(sp_i_host_run *run, sp_measured_step *step, sp_error *err)
{
    const sp_plan *plan = run->request->plan;
    const sp_virtual_driver driver = {.context = run, .run = sp_i_host_run_action};
    begin_step(run);
    sp_status status = sp_timeline_init(&step->timeline, plan, err);
    status = status == SP_OK ? sp_virtual_run(plan, &driver, &step->timeline, err) : status;
    status = status == SP_OK ? check_timeout(run, &step->timeline, err) : status;
    status = status == SP_OK ? check_drained(run, err) : status;
    if (status != SP_OK) {
        return status;
    }
    sp_i_host_update_all(run, &step->timeline);
    sp_timeline_finish(&step->timeline);
    run->elapsed_ns += step->timeline.iteration_ns;
    step->has_loss = run->job.slices.trained > 0;
    step->loss = sum_loss(run);
    return fill_memory(run, step, err);
}
