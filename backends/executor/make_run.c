#include "backends/executor/run.h"

#include <stdio.h>

#include "sim/base/alloc.h"
#include "sim/plan/walk.h"

static sp_status make(sp_i_exec_run *made, const sp_i_exec_site *site, sp_error *err);
static void make_tables(sp_i_exec_run *run);
static void make_jobs(sp_i_exec_run *run);
static sp_status make_ranks(sp_i_exec_run *run, sp_error *err);
static void make_copies(sp_i_exec_run *run);
static void find_repeats(sp_i_exec_run *run);
static sp_status check_memory(const sp_i_exec_run *run, const sp_i_exec_site *site, sp_error *err);

sp_status sp_i_exec_run_new(const sp_run_request *request, const sp_i_exec_site *site,
                            sp_i_exec_run **run, sp_error *err)
{
    const sp_plan *plan = request->plan;
    *run = NULL;
    sp_i_exec_run *made = sp_calloc(1, sizeof *made);
    made->request = request;
    made->wall = request->clock == SP_CLOCK_WALL;
    made->runtime = site->runtime;
    made->math = site->math;
    made->transport = site->transport;
    made->first_local = site->transport != NULL ? (size_t)site->transport->rank : 0;
    made->end_local =
        site->transport != NULL ? made->first_local + 1 : (size_t)sp_layout_ranks(&plan->layout);
    sp_status status = make(made, site, err);
    if (status != SP_OK) {
        sp_i_exec_run_free(made);
        return status;
    }
    *run = made;
    return SP_OK;
}

static sp_status make(sp_i_exec_run *made, const sp_i_exec_site *site, sp_error *err)
{
    const sp_run_request *request = made->request;
    const sp_plan *plan = request->plan;
    sp_status status = sp_i_exec_check_transport(request, site, err);
    if (status == SP_OK) {
        status = sp_i_exec_options_read(request, site->backend, &made->options, err);
    }
    if (status == SP_OK && made->options.text != NULL) {
        status = sp_i_exec_text_read(made->options.text, request->model->vocab, &made->text, err);
    }
    if (status == SP_OK) {
        make_tables(made);
        status = sp_layout_stages(&plan->layout, request->model,
                                  request->source != NULL ? request->source : "plan",
                                  made->model_parts, err);
    }
    sp_depends_init(&made->depends, plan, NULL);
    status = status == SP_OK ? sp_shares_make(plan, &made->shares, err) : status;
    if (status == SP_OK) {
        make_jobs(made);
        status = make_ranks(made, err);
    }
    if (status == SP_OK) {
        find_repeats(made);
        status = sp_i_exec_joins_make(made, err);
    }
    if (status == SP_OK) {
        sp_i_exec_states_place(made);
        status = check_memory(made, site, err);
    }
    status = status == SP_OK ? sp_i_exec_world_make(made, err) : status;
    status = status == SP_OK ? sp_i_exec_states_make(made, err) : status;
    if (status == SP_OK && made->transport != NULL) {
        status = sp_i_exec_channels_make(made, err);
    }
    if (status == SP_OK) {
        make_copies(made);
    }
    return status;
}

static void make_tables(sp_i_exec_run *run)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    const sp_packing *packing = run->request->plan->packing;
    size_t vstages = sp_i_exec_vstages(run);
    size_t ranks = sp_i_exec_rank_count(run);
    size_t pipelines = (size_t)layout->dp * (size_t)sp_i_exec_members(run);
    size_t forward = packing->forward.count;
    sp_arena *work = &run->work;
    run->model_parts = sp_arena_take(work, vstages, sizeof *run->model_parts);
    run->weights = sp_arena_take(
        work, (size_t)layout->pp * (size_t)layout->tp * (size_t)sp_i_exec_expert_ranks(run),
        sizeof *run->weights);
    run->jobs = sp_arena_take(work, pipelines, sizeof *run->jobs);
    run->ranks = sp_arena_take(work, ranks, sizeof *run->ranks);
    run->stages = sp_arena_take(work, ranks * (size_t)layout->chunks, sizeof *run->stages);
    run->token_groups = sp_arena_take(work, ranks * forward, sizeof *run->token_groups);
    run->runs_again = sp_arena_take(work, vstages * forward, sizeof *run->runs_again);
    run->loss = sp_arena_take(work, pipelines * forward, sizeof *run->loss);
    run->epilogues = sp_arena_take(work, ranks, sizeof *run->epilogues);
    sp_i_exec_p2p_init(&run->p2p, run->runtime, vstages, forward,
                       sp_packing_backward(packing)->count, run->transport != NULL ? 1 : pipelines);
}

static size_t place_packs(sp_i_exec_pack *packs, size_t count, size_t rows)
{
    for (size_t p = 0; p < count; p++) {
        packs[p].packed_at = (int64_t)rows;
        rows += (size_t)packs[p].rows;
    }
    return rows;
}

static void make_numbers(sp_arena *work, sp_i_exec_job *job)
{
    const sp_i_exec_slices *slices = &job->slices;
    size_t rows = 0;
    job->token_at = sp_arena_take(work, slices->count, sizeof *job->token_at);
    for (size_t s = 0; s < slices->count; s++) {
        job->token_at[s] = (int64_t)rows;
        rows += (size_t)slices->slice[s].rows;
    }
    size_t packed = place_packs(slices->forward, slices->forward_count, 0);
    packed = place_packs(slices->backward, slices->backward_count, packed);
    job->token = sp_arena_take(work, rows, sizeof *job->token);
    job->target = sp_arena_take(work, rows, sizeof *job->target);
    job->position = sp_arena_take(work, rows, sizeof *job->position);
    for (int n = 0; n < SP_I_EXEC_NUMBERS; n++) {
        job->packed[n] = sp_arena_take(work, packed, sizeof *job->packed[n]);
    }
}

static void make_job(sp_i_exec_run *run, const sp_i_exec_place *place, sp_i_exec_job *job)
{
    const sp_run_request *request = run->request;
    sp_recompute mode = request->memory != NULL ? request->memory->recompute : SP_RECOMPUTE_NONE;
    job->runtime = run->runtime;
    job->model = request->model;
    job->dropout = run->options.dropout;
    job->attention_way = run->options.attention_way;
    job->attention_node = run->options.attention_node;
    job->ids = request->plan->packing->batch != NULL ? request->plan->packing->batch->ids : NULL;
    job->width = sp_i_exec_widths_of(run->math->real_bytes, run->math->exact_bytes);
    for (int k = 0; k < sp_model_kinds(request->model); k++) {
        sp_i_exec_kind_make(request->model, k, &request->plan->layout, mode, &job->width,
                            &job->kind[k]);
    }
    sp_i_exec_slices_init(&job->slices, request->plan->packing, place);
    make_numbers(&run->work, job);
}

static void make_jobs(sp_i_exec_run *run)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    int parts = sp_shard_of(run->request->model, layout).norm_split;
    int members = sp_i_exec_members(run);
    for (int j = 0; j < layout->dp * members; j++) {
        int tp_rank = j % layout->tp;
        const sp_i_exec_place place = {.dp = j / members,
                                       .cp = layout->cp,
                                       .cp_rank = j % members / layout->tp,
                                       .tp = layout->tp,
                                       .tp_rank = tp_rank,
                                       .parts = parts,
                                       .part = parts > 1 ? tp_rank : 0,
                                       .empty_packs = sp_i_exec_rounds(run->request->plan)};
        make_job(run, &place, &run->jobs[j]);
    }
}

static sp_status make_rank(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_error *err)
{
    const sp_plan *plan = run->request->plan;
    size_t actions = sp_plan_stage(plan, rank->dp, rank->pp)->count;
    rank->job = &run->jobs[sp_i_exec_pipeline(run, rank)];
    rank->weights = sp_i_exec_weights_of(run, rank->pp, rank->tp, sp_i_exec_expert_rank(run, rank));
    rank->log = sp_arena_take(&run->work, actions, sizeof *rank->log);
    size_t shares;
    sp_shares_of(&run->shares, &plan->layout, rank->dp, rank->pp, &shares);
    rank->share_log = sp_arena_take(&run->work, shares, sizeof *rank->share_log);
    if (!sp_i_exec_is_local(run, rank)) {
        return SP_OK;
    }
    rank->arena =
        sp_i_exec_arena_new(run->runtime, run->options.measure, run->request->memory_limit_bytes);
    sp_status status = SP_OK;
    for (int c = 0; status == SP_OK && c < plan->layout.chunks; c++) {
        int vstage = sp_layout_vstage(&plan->layout, rank->pp, c);
        sp_i_exec_stage *stage = sp_i_exec_stage_of(run, rank, c);
        status = sp_i_exec_stage_init(stage, rank->job, rank->arena, &rank->links,
                                      run->model_parts[vstage], err);
        stage->first = vstage == 0;
        stage->last = vstage + 1 == (int)sp_i_exec_vstages(run);
        stage->vocab_rank =
            (plan->layout.vocab_parallel ? rank->pp * plan->layout.tp : 0) + rank->tp;
    }
    return status;
}

static sp_status make_ranks(sp_i_exec_run *run, sp_error *err)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    int members = sp_i_exec_members(run);
    sp_status status = SP_OK;
    for (int i = 0; i < layout->pp * layout->tp; i++) {
        for (int e = 0; e < sp_i_exec_expert_ranks(run); e++) {
            int pp = i / layout->tp;
            int tp = i % layout->tp;
            sp_i_exec_weights_make(run->request->model, layout, run->model_parts, pp, tp, e,
                                   sp_i_exec_weights_of(run, pp, tp, e));
        }
    }
    for (size_t r = 0; status == SP_OK && r < sp_i_exec_rank_count(run); r++) {
        sp_i_exec_rank *rank = &run->ranks[r];
        int column = (int)r / members;
        int member = (int)r % members;
        rank->dp = column / layout->pp;
        rank->pp = column % layout->pp;
        rank->cp = member / layout->tp;
        rank->tp = member % layout->tp;
        status = make_rank(run, rank, err);
    }
    return status;
}

static void find_repeats(sp_i_exec_run *run)
{
    const sp_plan *plan = run->request->plan;
    for (int d = 0; d < plan->layout.dp; d++) {
        for (int p = 0; p < plan->layout.pp; p++) {
            const sp_stage_plan *stage = sp_plan_stage(plan, d, p);
            for (size_t a = 0; a < stage->count; a++) {
                sp_action action = stage->actions[a];
                int vstage = sp_layout_vstage(&plan->layout, p, action.chunk);
                if (action.kind == SP_ACTION_R) {
                    run->runs_again[(size_t)vstage * plan->packing->forward.count +
                                    (size_t)action.pack] = 1;
                }
            }
        }
    }
}

// ---- Memory that a run needs ----

// Bytes of a tensor for one row of a pack, and whether only a rank's own rows have it.
typedef struct row_bytes {
    int64_t all, own;
} row_bytes;

static void add_row(const sp_i_exec_spec *spec, int64_t times, row_bytes *bytes)
{
    if (spec->kept) {
        *(spec->own ? &bytes->own : &bytes->all) += times * spec->columns * spec->width.real_bytes;
    }
}

// Bytes that the forward of a stage keeps for a row until its backward.
static row_bytes kept_bytes(const sp_i_exec_stage *stage)
{
    const sp_stage *part = &stage->model_part;
    row_bytes bytes = {0};
    for (int k = 0; k < sp_model_kinds(stage->job->model); k++) {
        for (int t = 0; t < SP_LAYER_TENSORS; t++) {
            add_row(&stage->job->kind[k].specs.of[t], sp_stage_count(part, stage->job->model, k),
                    &bytes);
        }
    }
    const sp_i_exec_specs *head = &sp_i_exec_kind_of(stage, part->layers)->specs;
    for (int t = SP_TENSOR_FINAL_INPUT; part->head && t < SP_ALL_TENSORS; t++) {
        add_row(&head->of[t], 1, &bytes);
    }
    return bytes;
}

static row_bytes repeated_bytes(const sp_i_exec_stage *stage)
{
    const sp_i_exec_spec *input = &sp_i_exec_kind_of(stage, 0)->specs.of[SP_TENSOR_INPUT];
    return (row_bytes){.own = input->columns * input->width.real_bytes};
}

// Bytes that an action leaves behind, or less than 0 that it gives back. What an I leaves for its W
// counts as what the forward kept.
static int64_t left_bytes(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_action action)
{
    const sp_i_exec_stage *stage = sp_i_exec_stage_of(run, rank, action.chunk);
    const bool backward = sp_action_is_backward(action);
    const sp_i_exec_pack *pack = sp_i_exec_pack_at(&rank->job->slices, backward, action.pack);
    const int vstage = sp_layout_vstage(sp_i_exec_layout(run), rank->pp, action.chunk);
    row_bytes row = kept_bytes(stage);
    if (!backward && sp_i_exec_runs_again(run, vstage, action.pack)) {
        const row_bytes before = repeated_bytes(stage);
        row = action.kind == SP_ACTION_F ? before
                                         : (row_bytes){row.all - before.all, row.own - before.own};
    }
    int64_t bytes = pack->rows * row.all + pack->own_rows * row.own;
    switch ((sp_action_kind)action.kind) {
    case SP_ACTION_F:
    case SP_ACTION_R:
        return bytes;
    case SP_ACTION_B:
    case SP_ACTION_W:
        return -bytes;
    default:
        return 0; // copies stay in this machine's memory
    }
}

// The most that a rank keeps at once for its backwards, by its own order of actions.
static int64_t saved_bytes(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    const sp_stage_plan *stage = sp_plan_stage(run->request->plan, rank->dp, rank->pp);
    int64_t now = 0;
    int64_t most = 0;
    for (size_t a = 0; a < stage->count; a++) {
        now += left_bytes(run, rank, stage->actions[a]);
        most = now > most ? now : most;
    }
    return most;
}

// All ranks that are here take from one memory, which the kernel would end the process over. Work
// spaces of an action are not counted: a run that fills the memory with them ends in that action.
static sp_status check_memory(const sp_i_exec_run *run, const sp_i_exec_site *site, sp_error *err)
{
    int64_t bytes = 0;
    for (size_t r = run->first_local; r < run->end_local; r++) {
        const sp_i_exec_rank *rank = &run->ranks[r];
        bytes += sp_i_exec_states_bytes(run, rank) + saved_bytes(run, rank);
    }
    char what[96];
    snprintf(what, sizeof what, "all %lld ranks of the plan with a model of %lld layers need",
             (long long)(run->end_local - run->first_local),
             (long long)run->request->model->layers);
    return sp_i_exec_check_memory(site, bytes, what,
                                  "execute a small model (experiments/host_small.json is one), "
                                  "fewer layers (model.layers) or fewer ranks (parallel.dp)",
                                  err);
}

static void make_copies(sp_i_exec_run *run)
{
    for (size_t r = run->first_local; r < run->end_local; r++) {
        sp_i_exec_offload_make(run, &run->ranks[r]);
    }
}

static void free_ranks(sp_i_exec_run *run)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    size_t ranks = sp_i_exec_rank_count(run);
    for (size_t r = 0; run->ranks != NULL && r < ranks; r++) {
        sp_i_exec_offload_fini(&run->ranks[r].offload);
        sp_i_exec_joins_fini(&run->ranks[r].joins);
        sp_i_exec_arena_free(run->ranks[r].arena);
        sp_i_exec_links_fini(&run->ranks[r].links);
    }
    for (size_t s = 0; run->stages != NULL && s < ranks * (size_t)layout->chunks; s++) {
        sp_i_exec_stage_fini(&run->stages[s]);
    }
    for (int w = 0; run->replicas != NULL && w < layout->pp * layout->tp; w++) {
        sp_i_exec_replicas_fini(&run->replicas[w]);
    }
    int lists = layout->pp * layout->tp * sp_i_exec_expert_ranks(run);
    for (int w = 0; run->weights != NULL && w < lists; w++) {
        sp_i_exec_weights_fini(&run->weights[w]);
    }
    for (int j = 0; run->jobs != NULL && j < layout->dp * sp_i_exec_members(run); j++) {
        sp_i_exec_slices_fini(&run->jobs[j].slices);
    }
}

// A run that failed has left work behind.
static void synchronize_ranks(const sp_i_exec_run *run)
{
    for (size_t r = run->first_local; run->ranks != NULL && r < run->end_local; r++) {
        sp_i_exec_enter(run, &run->ranks[r]);
        sp_i_exec_synchronize(run, NULL, NULL);
    }
}

void sp_i_exec_run_free(sp_i_exec_run *run)
{
    if (run == NULL) {
        return;
    }
    synchronize_ranks(run);
    if (run->world != NULL) {
        sp_comm_world_free(run->world);
    }
    free_ranks(run);
    sp_i_exec_p2p_fini(&run->p2p);
    sp_i_exec_channels_fini(&run->channels);
    sp_depends_fini(&run->depends);
    sp_shares_fini(&run->shares);
    sp_arena_free(&run->work);
    sp_i_exec_text_fini(&run->text);
    sp_free(run);
}
