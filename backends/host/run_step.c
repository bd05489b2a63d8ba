#include <string.h>

#include "backends/host/draw.h"
#include "backends/host/run.h"

// Tokens and targets of one run of positions. Padding gets a token but no target, and the last
// position of its slice, for which a position table has a row.
static void fill_run(const sp_i_host_run *run, sp_i_host_job *job, const sp_i_host_slice *slice,
                     const sp_token_run *positions, int64_t at)
{
    int64_t id = job->ids[slice->sample];
    int64_t vocab = job->model->vocab;
    uint64_t seed = run->request->seed;
    int step = (int)run->steps_done;
    int64_t end = slice->begin + slice->tokens;
    for (int64_t i = 0; i < positions->tokens; i++, at++) {
        int64_t position = positions->begin + i;
        bool trained = position < end;
        job->position[at] = trained ? position : end - 1;
        job->token[at] = trained ? sp_i_host_token(&run->text, seed, step, id, position, vocab) : 0;
        job->target[at] =
            trained ? sp_i_host_token(&run->text, seed, step, id, position + 1, vocab) : -1;
    }
}

static void fill_tokens(const sp_i_host_run *run, sp_i_host_job *job)
{
    for (size_t s = 0; s < job->slices.count; s++) {
        const sp_i_host_slice *slice = &job->slices.slice[s];
        sp_token_run runs[SP_ZIGZAG_RUNS];
        int64_t at = job->token_at[s];
        int count = slice->shard >= 0 ? sp_i_host_shard_runs(slice, slice->shard, runs) : 0;
        for (int r = 0; r < count; r++) {
            fill_run(run, job, slice, &runs[r], at);
            at += runs[r].tokens;
        }
    }
}

static void begin_step(sp_i_host_run *run)
{
    const sp_layout *layout = sp_i_host_layout(run);
    uint64_t dropout_seed = sp_i_host_draw(sp_i_host_draw_name(run->request->seed, "dropout"),
                                           (uint64_t)run->steps_done);
    for (int j = 0; j < layout->dp * sp_i_host_members(run); j++) {
        fill_tokens(run, &run->jobs[j]);
        run->jobs[j].dropout_seed = dropout_seed;
    }
    for (int i = 0; run->replicas != NULL && i < layout->pp * layout->tp; i++) {
        sp_i_host_scatter_begin(&run->replicas[i]);
    }
    for (size_t r = 0; r < sp_i_host_rank_count(run); r++) {
        sp_i_host_rank *rank = &run->ranks[r];
        memset(rank->gradients, 0, (size_t)(rank->gradients_at.count * run->math->real_bytes));
        memset(rank->log, 0,
               sp_plan_stage(run->request->plan, rank->dp, rank->pp)->count * sizeof *rank->log);
        rank->logged = 0;
        for (int c = 0; c < layout->chunks; c++) {
            memset(sp_i_host_stage_of(run, rank, c)->loss, 0,
                   rank->job->slices.forward_count * sizeof(double));
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
    for (size_t r = 0; r < sp_i_host_rank_count(run); r++) {
        sp_i_host_rank *rank = &run->ranks[r];
        sp_i_host_offload_end(rank);
        int64_t expected = 4 + (rank->cosine != NULL) + (rank->sine != NULL);
        if (sp_i_host_blocks(rank->arena) != expected) {
            return sp_error_set(err, SP_ERR_INTERNAL,
                                "dp %d pp %d cp %d tp %d: %lld blocks remain after the step",
                                rank->dp, rank->pp, rank->cp, rank->tp,
                                (long long)(sp_i_host_blocks(rank->arena) - expected));
        }
    }
    if (sp_i_host_mail_left(&run->mail) != 0) {
        return sp_error_set(err, SP_ERR_INTERNAL, "%lld hidden states were sent but not read",
                            (long long)sp_i_host_mail_left(&run->mail));
    }
    return SP_OK;
}

// Over the packs and their ranks in order, so that the sum does not depend on who ran when.
static double sum_loss(const sp_i_host_run *run)
{
    const sp_pack_list *packs = &run->request->plan->packing->forward;
    int pp;
    int chunk;
    sp_layout_locate(sp_i_host_layout(run), (int)sp_i_host_vstages(run) - 1, &pp, &chunk);
    double loss = 0.0;
    for (size_t p = 0; p < packs->count; p++) {
        for (int d = 0; d < packs->packs[p].dp_count; d++) {
            for (int m = 0; m < sp_i_host_members(run); m++) {
                const sp_i_host_rank *rank =
                    sp_i_host_rank_at(run, packs->packs[p].dp_first + d, pp, m);
                loss += sp_i_host_stage_of(run, rank, chunk)->loss[p];
            }
        }
    }
    return loss;
}

sp_status sp_i_host_run_step(sp_i_host_run *run, sp_measured_step *step, sp_error *err)
{
    bool wall = run->request->clock == SP_CLOCK_WALL;
    begin_step(run);
    sp_status status = sp_timeline_init(&step->timeline, run->request->plan, err);
    if (status == SP_OK) {
        status = wall ? sp_i_host_run_wall(run, &step->timeline, err)
                      : sp_i_host_run_virtual(run, &step->timeline, err);
    }
    status = status == SP_OK ? check_timeout(run, &step->timeline, err) : status;
    status = status == SP_OK ? check_drained(run, err) : status;
    status = status == SP_OK ? sp_i_host_update_all(run, &step->timeline, err) : status;
    if (status != SP_OK) {
        return status;
    }
    sp_timeline_finish(&step->timeline);
    run->elapsed_ns += step->timeline.iteration_ns;
    step->has_loss = run->jobs[0].slices.trained > 0;
    step->loss = sum_loss(run);
    return sp_i_host_fill_memory(run, step, err);
}
