#include "backends/host/run.h"

#include "kernels/kernels.h"
#include "sim/base/alloc.h"

static sp_status make_job(sp_i_host_run *run, sp_error *err);
static sp_status make_tables(sp_i_host_run *run, sp_error *err);
static sp_status make_ranks(sp_i_host_run *run, sp_error *err);
static void find_repeats(sp_i_host_run *run);

sp_status sp_i_host_run_new(const sp_run_request *request, sp_i_host_run **run, sp_error *err)
{
    const sp_plan *plan = request->plan;
    *run = NULL;
    sp_i_host_run *made = sp_i_calloc(1, sizeof *made);
    if (made == NULL) {
        return sp_error_no_memory(err, "a run");
    }
    made->request = request;
    made->math = request->precision == SP_FP64 ? &sp_i_host_math_f64 : &sp_i_host_math_f32;
    sp_kernels_start();
    sp_status status = sp_i_host_options_read(request, &made->options, err);
    if (status == SP_OK && made->options.text != NULL) {
        status = sp_i_host_text_read(made->options.text, request->model->vocab, &made->text, err);
    }
    status = status == SP_OK ? make_job(made, err) : status;
    status = status == SP_OK ? make_tables(made, err) : status;
    if (status == SP_OK) {
        status =
            sp_layout_stages(&plan->layout, request->model->layers,
                             request->source != NULL ? request->source : "plan", made->parts, err);
    }
    status = status == SP_OK ? make_ranks(made, err) : status;
    status = status == SP_OK ? sp_i_host_states_make(made, err) : status;
    if (status != SP_OK) {
        sp_i_host_run_free(made);
        return status;
    }
    find_repeats(made);
    *run = made;
    return SP_OK;
}

static sp_status make_job(sp_i_host_run *run, sp_error *err)
{
    const sp_run_request *request = run->request;
    sp_i_host_job *job = &run->job;
    sp_recompute mode = request->memory != NULL ? request->memory->recompute : SP_RECOMPUTE_NONE;
    job->model = request->model;
    job->dropout = run->options.dropout;
    job->ids = request->plan->packing->batch != NULL ? request->plan->packing->batch->ids : NULL;
    job->shard = sp_i_shard_of(request->model, &request->plan->layout);
    sp_i_host_specs_make(request->model, &request->plan->layout, mode, run->math->real_bytes,
                         &job->specs);
    sp_status status = sp_i_host_slices_init(&job->slices, request->plan->packing, err);
    if (status != SP_OK) {
        return status;
    }
    size_t rows = 0;
    job->token_at = sp_i_calloc(job->slices.count, sizeof *job->token_at);
    for (size_t s = 0; job->token_at != NULL && s < job->slices.count; s++) {
        job->token_at[s] = (int64_t)rows;
        rows += (size_t)job->slices.slice[s].computed;
    }
    job->token = sp_i_calloc(rows, sizeof *job->token);
    job->target = sp_i_calloc(rows, sizeof *job->target);
    job->position = sp_i_calloc(rows, sizeof *job->position);
    return job->token_at != NULL && job->token != NULL && job->target != NULL &&
                   job->position != NULL
               ? SP_OK
               : sp_error_no_memory(err, "the tokens of a batch");
}

static sp_status make_tables(sp_i_host_run *run, sp_error *err)
{
    const sp_layout *layout = &run->request->plan->layout;
    size_t vstages = sp_i_host_vstages(run);
    size_t dp = (size_t)layout->dp;
    size_t pp = (size_t)layout->pp;
    const sp_i_host_slices *slices = &run->job.slices;
    run->parts = sp_i_calloc(vstages, sizeof *run->parts);
    run->weights = sp_i_calloc(pp, sizeof *run->weights);
    run->ranks = sp_i_calloc(dp * pp, sizeof *run->ranks);
    run->stages = sp_i_calloc(dp * vstages, sizeof *run->stages);
    run->hidden = sp_i_calloc(vstages * slices->forward_count, sizeof *run->hidden);
    run->hidden_gradient =
        sp_i_calloc(vstages * slices->backward_count, sizeof *run->hidden_gradient);
    run->runs_again = sp_i_calloc(vstages * slices->forward_count, sizeof *run->runs_again);
    run->mail = sp_i_host_arena_new(SP_I_HOST_TABLE, 0);
    return run->parts != NULL && run->weights != NULL && run->ranks != NULL &&
                   run->stages != NULL && run->hidden != NULL && run->hidden_gradient != NULL &&
                   run->runs_again != NULL && run->mail != NULL
               ? SP_OK
               : sp_error_no_memory(err, "a run");
}

static int first_layer(const sp_i_host_run *run, int vstage)
{
    int layers = 0;
    for (int s = 0; s < vstage; s++) {
        layers += run->parts[s].layers;
    }
    return layers;
}

static sp_status make_rank(sp_i_host_run *run, int dp, int pp, sp_error *err)
{
    const sp_plan *plan = run->request->plan;
    sp_i_host_rank *rank = sp_i_host_rank_at(run, dp, pp);
    size_t actions = sp_plan_stage(plan, dp, pp)->count;
    rank->arena = sp_i_host_arena_new(run->options.measure, run->request->memory_limit_bytes);
    rank->log = sp_i_calloc(actions, sizeof *rank->log);
    if (rank->arena == NULL || rank->log == NULL) {
        return sp_error_no_memory(err, "a rank");
    }
    sp_status status = SP_OK;
    for (int c = 0; status == SP_OK && c < plan->layout.chunks; c++) {
        int vstage = sp_layout_vstage(&plan->layout, pp, c);
        status = sp_i_host_stage_init(sp_i_host_stage_at(run, dp, vstage), &run->job, rank->arena,
                                      run->parts[vstage], first_layer(run, vstage), err);
    }
    return status;
}

static sp_status make_ranks(sp_i_host_run *run, sp_error *err)
{
    const sp_layout *layout = &run->request->plan->layout;
    sp_status status = SP_OK;
    for (int p = 0; status == SP_OK && p < layout->pp; p++) {
        status = sp_i_host_weights_make(run->request->model, layout, run->parts, p,
                                        &run->weights[p], err);
    }
    for (int d = 0; d < layout->dp; d++) {
        for (int p = 0; status == SP_OK && p < layout->pp; p++) {
            status = make_rank(run, d, p, err);
        }
    }
    return status;
}

static void find_repeats(sp_i_host_run *run)
{
    const sp_plan *plan = run->request->plan;
    for (int d = 0; d < plan->layout.dp; d++) {
        for (int p = 0; p < plan->layout.pp; p++) {
            const sp_stage_plan *stage = sp_plan_stage(plan, d, p);
            for (size_t a = 0; a < stage->count; a++) {
                sp_action action = stage->actions[a];
                int vstage = sp_layout_vstage(&plan->layout, p, action.chunk);
                if (action.kind == SP_ACTION_R) {
                    run->runs_again[(size_t)vstage * run->job.slices.forward_count +
                                    (size_t)action.pack] = 1;
                }
            }
        }
    }
}

static void free_ranks(sp_i_host_run *run)
{
    const sp_layout *layout = &run->request->plan->layout;
    size_t ranks = (size_t)layout->dp * (size_t)layout->pp;
    for (size_t r = 0; run->ranks != NULL && r < ranks; r++) {
        sp_i_host_arena_free(run->ranks[r].arena);
        sp_i_free(run->ranks[r].log);
    }
    for (size_t s = 0; run->stages != NULL && s < (size_t)layout->dp * sp_i_host_vstages(run);
         s++) {
        sp_i_host_stage_fini(&run->stages[s]);
    }
    for (int p = 0; run->weights != NULL && p < layout->pp; p++) {
        sp_i_host_weights_fini(&run->weights[p]);
    }
}

void sp_i_host_run_free(sp_i_host_run *run)
{
    if (run == NULL) {
        return;
    }
    free_ranks(run);
    sp_i_host_arena_free(run->mail);
    sp_i_free(run->runs_again);
    sp_i_free(run->hidden_gradient);
    sp_i_free(run->hidden);
    sp_i_free(run->stages);
    sp_i_free(run->ranks);
    sp_i_free(run->weights);
    sp_i_free(run->parts);
    sp_i_free(run->job.position);
    sp_i_free(run->job.target);
    sp_i_free(run->job.token);
    sp_i_free(run->job.token_at);
    sp_i_host_slices_fini(&run->job.slices);
    sp_i_host_text_fini(&run->text);
    sp_i_free(run);
}
