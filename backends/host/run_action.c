#include "backends/host/run.h"

// The buffer that a pack's rows travel in to the stage that reads them.
static void **mail_to(const sp_i_host_run *run, bool gradient, int vstage, int32_t pack)
{
    const sp_i_host_slices *slices = &run->job.slices;
    size_t packs = gradient ? slices->backward_count : slices->forward_count;
    void **boxes = gradient ? run->hidden_gradient : run->hidden;
    return &boxes[(size_t)vstage * packs + (size_t)pack];
}

static bool send(sp_i_host_run *run, bool gradient, int vstage, int32_t pack, int64_t rows,
                 void **box)
{
    void **to = mail_to(run, gradient, vstage, pack);
    *to = sp_i_host_take(run->mail, SP_MEM_COMMUNICATION, rows * run->job.model->hidden,
                         run->job.specs.value);
    *box = *to;
    return *to != NULL;
}

static void receive_end(sp_i_host_run *run, bool gradient, int vstage, int32_t pack)
{
    void **box = mail_to(run, gradient, vstage, pack);
    sp_i_host_give(run->mail, *box);
    *box = NULL;
}

static bool run_forward(sp_i_host_run *run, sp_i_host_stage *stage, int vstage, int32_t pack)
{
    int64_t rows = run->job.slices.forward[pack].rows;
    bool keep = run->runs_again[(size_t)vstage * run->job.slices.forward_count + (size_t)pack] == 0;
    const void *input = stage->part.embedding ? NULL : *mail_to(run, false, vstage, pack);
    void *output = NULL;
    if (!stage->part.head && !send(run, false, vstage + 1, pack, rows, &output)) {
        return false;
    }
    bool ok = run->math->forward(stage, pack, input, output, keep);
    if (!stage->part.embedding) {
        receive_end(run, false, vstage, pack);
    }
    return ok;
}

static bool run_backward(sp_i_host_run *run, sp_i_host_stage *stage, int vstage, int32_t pack,
                         bool split)
{
    int64_t rows = run->job.slices.backward[pack].rows;
    const void *gradient = stage->part.head ? NULL : *mail_to(run, true, vstage, pack);
    void *input_gradient = NULL;
    if (!stage->part.embedding && !send(run, true, vstage - 1, pack, rows, &input_gradient)) {
        return false;
    }
    bool ok = run->math->backward(stage, pack, gradient, input_gradient, split);
    if (!stage->part.head) {
        receive_end(run, true, vstage, pack);
    }
    return ok;
}

static bool dispatch(sp_i_host_run *run, sp_i_host_stage *stage, const sp_virtual_action *action)
{
    const sp_i_host_slices *slices = &run->job.slices;
    int32_t pack = action->place.action.pack;
    sp_action_kind kind = (sp_action_kind)action->place.action.kind;
    bool forward = kind == SP_ACTION_F || kind == SP_ACTION_R;
    if ((forward ? slices->forward : slices->backward)[pack].rows == 0) {
        return true;
    }
    switch (kind) {
    case SP_ACTION_F:
        return run_forward(run, stage, action->vstage, pack);
    case SP_ACTION_R:
        return run->math->again(stage, pack);
    case SP_ACTION_B:
    case SP_ACTION_I:
        return run_backward(run, stage, action->vstage, pack, kind == SP_ACTION_I);
    case SP_ACTION_W:
        run->math->weights(stage, pack);
        return true;
    case SP_ACTION_O:
    case SP_ACTION_L:
    case SP_ACTION_KINDS:
        break;
    }
    SP_UNREACHABLE("an action of no capability");
}

sp_status sp_i_host_run_action(void *context, const sp_virtual_action *action,
                               sp_virtual_outcome *outcome, sp_error *err)
{
    sp_i_host_run *run = context;
    const sp_plan_place *place = &action->place;
    sp_i_host_rank *rank = sp_i_host_rank_at(run, place->dp, place->pp);
    sp_i_host_stage *stage = sp_i_host_stage_at(run, place->dp, action->vstage);
    if (sp_i_host_names(run->options.fail, run->request->plan, place)) {
        return sp_error_at_action(err, SP_ERR_INTERNAL, run->request->plan, place,
                                  "it fails on demand");
    }
    if (sp_i_host_names(run->options.exhaust, run->request->plan, place)) {
        return sp_error_at_action(err, SP_ERR_INFEASIBLE, run->request->plan, place,
                                  "it finds no memory, on demand");
    }
    outcome->stalls = sp_i_host_names(run->options.stall, run->request->plan, place);
    if (outcome->stalls) {
        return SP_OK;
    }
    sp_i_host_mark(rank->arena);
    int64_t start_ns = sp_i_host_now_ns();
    if (!dispatch(run, stage, action)) {
        return sp_i_host_run_out(run, rank->arena, place, err);
    }
    outcome->took.compute_ns = sp_i_host_now_ns() - start_ns;
    rank->log[rank->logged++] =
        (sp_i_host_held_log){.during = *sp_i_host_high(rank->arena, run->options.measure),
                             .after = *sp_i_host_held(rank->arena, run->options.measure)};
    return SP_OK;
}
