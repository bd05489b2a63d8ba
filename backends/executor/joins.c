// Ranks that share experts meet in every layer of every micro-batch, in rounds
// (sim/plan/rounds.h). A rank without a pack in a round joins the others with an empty one:
// it has the rows that they send to its experts, and no tokens. This file says where among its
// actions it does so.
#include "backends/executor/run.h"
#include "sim/base/alloc.h"
#include "sim/plan/rounds.h"

// The action with which ranks meet: of a kind, on a chunk, in a round.
typedef struct meeting {
    sp_action action; // its pack is the round
    size_t at;        // among its rank's actions
} meeting;

// One rank's, of which those before `next` are over.
typedef struct meetings {
    meeting *items;
    size_t count, next;
    sp_i_exec_joins *joins; // of the rank
    size_t actions;
} meetings;

static bool meets(sp_action action)
{
    return action.kind == SP_ACTION_F || action.kind == SP_ACTION_B || action.kind == SP_ACTION_I ||
           action.kind == SP_ACTION_R;
}

static void list_meetings(const sp_stage_plan *stage, const int32_t *round, meetings *m)
{
    m->items = sp_calloc(stage->count + 1, sizeof *m->items);
    m->actions = stage->count;
    for (size_t a = 0; a < stage->count; a++) {
        if (meets(stage->actions[a])) {
            sp_action action = stage->actions[a];
            action.pack = round[action.pack];
            action.with_next = 0;
            m->items[m->count++] = (meeting){action, a};
        }
    }
}

static bool is_next(const meetings *m, sp_action action)
{
    return m->next < m->count && sp_action_is_same(m->items[m->next].action, action);
}

static bool is_later(const meetings *m, sp_action action)
{
    for (size_t i = m->next + 1; i < m->count; i++) {
        if (sp_action_is_same(m->items[i].action, action)) {
            return true;
        }
    }
    return false;
}

// The next meeting: nobody has it behind another one. False: there is none.
static bool find_meeting(const meetings *of, int ranks, sp_action *action)
{
    for (int r = 0; r < ranks; r++) {
        if (of[r].next == of[r].count) {
            continue;
        }
        *action = of[r].items[of[r].next].action;
        bool free = true;
        for (int other = 0; free && other < ranks; other++) {
            free = is_next(&of[other], *action) || !is_later(&of[other], *action);
        }
        if (free) {
            return true;
        }
    }
    return false;
}

static bool are_over(const meetings *of, int ranks)
{
    bool over = true;
    for (int r = 0; r < ranks; r++) {
        over = over && of[r].next == of[r].count;
    }
    return over;
}

static void join(meetings *m, sp_action action, bool runs_again)
{
    sp_i_exec_joins *to = m->joins;
    size_t before = m->next < m->count ? m->items[m->next].at : m->actions;
    *SP_ADDED(to->items, to->capacity, to->count) =
        (sp_i_exec_join){.before = before, .action = action, .keeps = !runs_again};
}

// A forward that runs again on another rank does so here.
static bool runs_again(const meetings *of, int ranks, sp_action action)
{
    sp_action again = action;
    again.kind = SP_ACTION_R;
    bool found = false;
    for (int r = 0; action.kind == SP_ACTION_F && r < ranks; r++) {
        found = found || is_next(&of[r], again) || is_later(&of[r], again);
    }
    return found;
}

// Has the rank a micro-batch of its own there?
static bool has_round(const meetings *m, sp_action action)
{
    for (size_t i = 0; i < m->count; i++) {
        if (m->items[i].action.chunk == action.chunk && m->items[i].action.pack == action.pack) {
            return true;
        }
    }
    return false;
}

static sp_status join_all(const sp_i_exec_run *run, int first, int pp, meetings *of, int ranks,
                          sp_error *err)
{
    const sp_plan *plan = run->request->plan;
    while (!are_over(of, ranks)) {
        sp_action action;
        if (!find_meeting(of, ranks, &action)) {
            return sp_error_set(err, SP_ERR_CONTENT,
                                "data-parallel ranks %d to %d share experts (parallel.ep) and run "
                                "their micro-batches on pipeline rank %d in orders that cannot "
                                "meet: take another schedule, or as many micro-batches on each",
                                first, first + ranks - 1, pp);
        }
        bool again = runs_again(of, ranks, action);
        for (int r = 0; r < ranks; r++) {
            if (is_next(&of[r], action)) {
                of[r].next++;
            } else if (has_round(&of[r], action)) {
                // Its own forward has the others' rows, and gives none of its own again.
                return sp_error_set(err, SP_ERR_CONTENT,
                                    "data-parallel ranks %d to %d share experts (parallel.ep), and "
                                    "some run forwards again on pipeline rank %d that others of "
                                    "them do not: take a strategy that repeats none",
                                    first, first + ranks - 1, pp);
            } else {
                sp_action empty = action;
                empty.pack += (int32_t)plan->packing->forward.count;
                join(&of[r], empty, again);
            }
        }
    }
    return SP_OK;
}

int32_t sp_i_exec_rounds(const sp_plan *plan)
{
    const int ranks = sp_layout_expert_ranks(&plan->layout);
    int32_t count = 0;
    if (ranks > 1) {
        sp_rounds rounds;
        sp_rounds_make(&plan->layout, &plan->packing->forward, ranks, &rounds);
        for (size_t p = 0; p < plan->packing->forward.count; p++) {
            count = rounds.round[p] >= count ? rounds.round[p] + 1 : count;
        }
        sp_rounds_free(&rounds);
    }
    return count;
}

sp_status sp_i_exec_joins_make(sp_i_exec_run *run, sp_error *err)
{
    const sp_plan *plan = run->request->plan;
    const int ranks = sp_layout_expert_ranks(&plan->layout);
    sp_rounds rounds;
    sp_status status = SP_OK;
    if (ranks == 1) {
        return SP_OK;
    }
    sp_rounds_make(&plan->layout, &plan->packing->forward, ranks, &rounds);
    meetings *of = sp_calloc((size_t)ranks, sizeof *of);
    for (int i = 0; status == SP_OK && i < plan->layout.dp / ranks * plan->layout.pp; i++) {
        int first = i / plan->layout.pp * ranks;
        int pp = i % plan->layout.pp;
        for (int r = 0; r < ranks; r++) {
            of[r] = (meetings){.joins = &sp_i_exec_rank_at(run, first + r, pp, 0)->joins};
            list_meetings(sp_plan_stage(plan, first + r, pp), rounds.round, &of[r]);
        }
        status = join_all(run, first, pp, of, ranks, err);
        for (int r = 0; r < ranks; r++) {
            sp_free(of[r].items);
        }
    }
    sp_free(of);
    sp_rounds_free(&rounds);
    return status;
}

void sp_i_exec_joins_fini(sp_i_exec_joins *joins)
{
    sp_free(joins->items);
}

bool sp_i_exec_run_join(sp_i_exec_run *run, sp_i_exec_rank *rank, const sp_i_exec_join *join)
{
    sp_i_exec_stage *stage = sp_i_exec_stage_of(run, rank, join->action.chunk);
    double no_rows[1] = {0.0};
    switch ((sp_action_kind)join->action.kind) {
    case SP_ACTION_F:
        return run->math->forward(stage, join->action.pack, no_rows, no_rows, join->keeps);
    case SP_ACTION_R:
        return run->math->again(stage, join->action.pack);
    default: // nothing waits for the weight gradients of rows that others sent
        return run->math->backward(stage, join->action.pack, no_rows, no_rows, false);
    }
}
