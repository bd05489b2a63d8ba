// Times of ranks in processes of their own. Each rank's stamps count from its own begin of the step
// behind a barrier of all ranks: that sets the clocks of different machines, as exactly as ranks
// leave a barrier together, and they may drift from there. What one rank sends another cannot have
// read before: where the times say so, the reader's clock is slow, and it is put forward from that
// action on. Nothing else is changed, so every action takes as long as it took.
#include "backends/executor/run.h"
#include "sim/base/alloc.h"

typedef struct lane {
    sp_i_exec_rank *rank; // the one that stands for the others of its (dp, pp)
    const sp_stage_plan *stage;
    const sp_share *shares;
    size_t share_count;
    size_t done, shares_done, shares_logged;
    int64_t forward_ns; // how far its clock is put forward
} lane;

static void move(sp_i_exec_log *log, int64_t ns)
{
    log->start_ns += ns;
    log->end_ns += ns;
}

static void move_shares(lane *l, size_t place)
{
    for (; l->shares_done < l->share_count && l->shares[l->shares_done].before <= place;
         l->shares_done++) {
        if (!l->shares[l->shares_done].own) {
            move(&l->rank->share_log[l->shares_logged++], l->forward_ns);
        }
    }
}

typedef struct ends {
    const sp_depends *depends;
    int64_t *end_ns[2]; // of F; of B or I
} ends;

static int64_t *end_of(const ends *e, const sp_plan_place *place)
{
    int vstage = sp_depends_vstage(e->depends, place->pp, place->action);
    return &e->end_ns[sp_action_is_backward(place->action)]
                     [sp_depends_entry(e->depends, place->action, place->dp, vstage)];
}

// Of a pair both are over when the second is.
static void note_end(const ends *e, const lane *l, size_t action, int64_t end_ns)
{
    sp_plan_place place = {
        .dp = l->rank->dp, .pp = l->rank->pp, .action = l->stage->actions[action]};
    if (sp_depends_passes(place.action)) {
        *end_of(e, &place) = end_ns;
    }
}

// False where what the next action reads is not yet known.
static bool move_action(const ends *e, lane *l)
{
    sp_i_exec_log *log = &l->rank->log[l->done];
    const sp_plan_place place = {
        .dp = l->rank->dp, .pp = l->rank->pp, .action = l->stage->actions[l->done]};
    sp_plan_place from;
    int64_t sent_ns = INT64_MIN;
    if (sp_depends_from(e->depends, &place, &from)) {
        sent_ns = *end_of(e, &from);
        if (sent_ns == SP_NOT_YET) {
            return false;
        }
    }
    move_shares(l, l->done);
    if (log->start_ns + l->forward_ns < sent_ns) {
        l->forward_ns = sent_ns - log->start_ns;
    }
    move(log, l->forward_ns);
    if (!place.action.with_next) {
        note_end(e, l, l->done, log->end_ns);
    }
    if (l->done > 0 && l->stage->actions[l->done - 1].with_next) {
        note_end(e, l, l->done - 1, log->end_ns);
    }
    l->done++;
    return true;
}

static void move_tails(sp_i_exec_run *run, const lane *l)
{
    for (int m = 0; m < sp_i_exec_members(run); m++) {
        sp_rank_timeline *tail =
            &run->tails[sp_i_exec_rank_number(run, l->rank->dp, l->rank->pp, m)];
        tail->reduce_start_ns += l->forward_ns;
        tail->reduce_end_ns += l->forward_ns;
        tail->optimizer_end_ns += l->forward_ns;
        tail->gather_end_ns += l->forward_ns;
    }
}

static void make_lanes(const sp_i_exec_run *run, lane *lanes)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    for (int i = 0; i < layout->dp * layout->pp; i++) {
        int dp = i / layout->pp;
        int pp = i % layout->pp;
        lanes[i].rank = sp_i_exec_rank_at(run, dp, pp, 0);
        lanes[i].stage = sp_plan_stage(run->request->plan, dp, pp);
        lanes[i].shares = sp_shares_of(&run->shares, layout, dp, pp, &lanes[i].share_count);
    }
}

// Goes from lane to lane until all are done: the plan ran, so it does not stop.
sp_status sp_i_exec_set_clocks(sp_i_exec_run *run, sp_error *err)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    size_t count = (size_t)layout->dp * (size_t)layout->pp;
    ends e = {.depends = &run->depends,
              .end_ns = {sp_depends_ends(&run->depends, 0), sp_depends_ends(&run->depends, 1)}};
    lane *lanes = sp_i_calloc(count, sizeof *lanes);
    sp_status status = SP_OK;
    if (lanes == NULL || e.end_ns[0] == NULL || e.end_ns[1] == NULL) {
        status = sp_error_no_memory(err, "the clocks of ranks");
    }
    if (status == SP_OK) {
        make_lanes(run, lanes);
    }
    for (bool moved = true; status == SP_OK && moved;) {
        moved = false;
        for (size_t i = 0; i < count; i++) {
            while (lanes[i].done < lanes[i].stage->count && move_action(&e, &lanes[i])) {
                moved = true;
            }
        }
    }
    for (size_t i = 0; status == SP_OK && i < count; i++) {
        SP_ASSERT(lanes[i].done == lanes[i].stage->count);
        move_shares(&lanes[i], lanes[i].stage->count);
        move_tails(run, &lanes[i]);
    }
    sp_i_free(e.end_ns[0]);
    sp_i_free(e.end_ns[1]);
    sp_i_free(lanes);
    return status;
}
