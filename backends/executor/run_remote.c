// What ranks in processes of their own tell each other beside the plan: what each noted in a step.
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backends/comm/comm.h"
#include "backends/executor/run.h"
#include "sim/base/alloc.h"

static sp_status refuse(const sp_i_exec_site *site, const char *what, sp_error *err)
{
    return sp_error_set(err, SP_ERR_CONTENT,
                        "backend '%s' cannot execute %s ranks in processes of their own",
                        site->backend, what);
}

// ZeRO 2 and 3 reach into the memory of other ranks, keys and values go round through it.
sp_status sp_i_exec_check_transport(const sp_run_request *request, const sp_i_exec_site *site,
                                    sp_error *err)
{
    const sp_layout *layout = &request->plan->layout;
    sp_i_exec_options options;
    if (site->transport == NULL) {
        return SP_OK;
    }
    if (site->transport->ranks != sp_layout_ranks(layout)) {
        return sp_error_set(
            err, SP_ERR_CONTENT, "backend '%s': a plan of %lld ranks cannot run on %d processes",
            site->backend, (long long)sp_layout_ranks(layout), site->transport->ranks);
    }
    sp_status status = sp_i_exec_options_read(request, site->backend, &options, err);
    if (status == SP_OK && request->clock != SP_CLOCK_WALL) {
        return refuse(site, "virtual time on", err);
    }
    if (status == SP_OK && layout->zero >= 2 && layout->dp * layout->cp > 1) {
        return refuse(site, layout->zero == 2 ? "ZeRO 2 on" : "ZeRO 3 on", err);
    }
    if (status == SP_OK && options.attention_way != SP_COMM_GATHERED) {
        return refuse(site, "attention in a ring of", err);
    }
    return status;
}

// ---- what a rank noted in a step ----

// Behind it stand the losses of a rank with the head, the logs of actions and those of shares.
typedef struct record {
    size_t logged, shares_logged;
    sp_bytes held;
    sp_rank_timeline epilogue; // without tables
} record;

static size_t losses_of(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    int last = run->depends.rank_of[sp_i_exec_vstages(run) - 1];
    return rank->pp == last ? run->request->plan->packing->forward.count : 0;
}

static double *loss_of(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    size_t packs = run->request->plan->packing->forward.count;
    return run->loss + (size_t)sp_i_exec_pipeline(run, rank) * packs;
}

static size_t record_bytes(const sp_i_exec_run *run, const sp_i_exec_rank *rank, const record *r)
{
    return sizeof *r + losses_of(run, rank) * sizeof *run->loss +
           (r->logged + r->shares_logged) * sizeof *rank->log;
}

static char *put(char *at, const void *from, size_t bytes)
{
    if (bytes > 0) {
        memcpy(at, from, bytes);
    }
    return at + bytes;
}

static const char *get(const char *from, void *to, size_t bytes)
{
    if (bytes > 0) {
        memcpy(to, from, bytes);
    }
    return from + bytes;
}

static void *write_record(const sp_i_exec_run *run, const sp_i_exec_rank *rank, size_t *bytes)
{
    const record r = {.logged = rank->logged,
                      .shares_logged = rank->shares_logged,
                      .held = rank->held,
                      .epilogue = run->epilogues[rank - run->ranks]};
    *bytes = record_bytes(run, rank, &r);
    char *made = sp_malloc(*bytes);
    if (made != NULL) {
        char *at = put(made, &r, sizeof r);
        at = put(at, loss_of(run, rank), losses_of(run, rank) * sizeof *run->loss);
        at = put(at, rank->log, r.logged * sizeof *rank->log);
        put(at, rank->share_log, r.shares_logged * sizeof *rank->share_log);
    }
    return made;
}

static sp_status read_record(sp_i_exec_run *run, sp_i_exec_rank *rank,
                             const sp_transport_part *part, sp_error *err)
{
    size_t shares;
    record r = {0};
    sp_shares_of(&run->shares, sp_i_exec_layout(run), rank->dp, rank->pp, &shares);
    bool whole = part->bytes >= sizeof r;
    if (whole) {
        memcpy(&r, part->data, sizeof r);
    }
    if (!whole || r.logged != sp_plan_stage(run->request->plan, rank->dp, rank->pp)->count ||
        r.shares_logged > shares || part->bytes != record_bytes(run, rank, &r)) {
        return sp_error_set(err, SP_ERR_INTERNAL,
                            "dp %d pp %d cp %d tp %d noted %zu bytes in a step, which cannot be",
                            rank->dp, rank->pp, rank->cp, rank->tp, part->bytes);
    }
    rank->logged = r.logged;
    rank->shares_logged = r.shares_logged;
    rank->held = r.held;
    run->epilogues[rank - run->ranks] = r.epilogue;
    const char *from = (const char *)part->data + sizeof r;
    from = get(from, loss_of(run, rank), losses_of(run, rank) * sizeof *run->loss);
    from = get(from, rank->log, r.logged * sizeof *rank->log);
    get(from, rank->share_log, r.shares_logged * sizeof *rank->share_log);
    return SP_OK;
}

static sp_status share_step(sp_comm *me, void *data, sp_error *err)
{
    sp_i_exec_run *run = data;
    size_t ranks = sp_i_exec_rank_count(run);
    size_t bytes;
    void *mine = write_record(run, sp_i_exec_rank_here(run), &bytes);
    sp_transport_part *parts = sp_calloc(ranks, sizeof *parts);
    sp_status status =
        mine != NULL && parts != NULL ? SP_OK : sp_error_no_memory(err, "what ranks noted");
    sp_comm_set_action(me, "results");
    if (status == SP_OK) {
        status = run->transport->ops->exchange(run->transport, mine, bytes, parts, err);
    }
    for (size_t r = 0; status == SP_OK && r < ranks; r++) {
        status = read_record(run, &run->ranks[r], &parts[r], err);
    }
    for (size_t r = 0; parts != NULL && r < ranks; r++) {
        sp_free(parts[r].data);
    }
    sp_free(parts);
    sp_free(mine);
    return status;
}

sp_status sp_i_exec_share_step(sp_i_exec_run *run, sp_error *err)
{
    return sp_i_exec_on_ranks(run, &run->transport->rank, 1, share_step, run, err);
}

// ---- Clocks ----

// Times of ranks in processes of their own. Each rank's stamps count from its own begin of the step
// behind a barrier of all ranks: that sets the clocks of different devices, as exactly as ranks
// leave a barrier together, and they may drift from there. What one rank sends another cannot have
// read before: where the times say so, the reader's clock is slow, and it is put forward from that
// action on. Nothing else is changed, so every action takes as long as it took.

typedef struct rank_clock {
    sp_i_exec_rank *rank; // the one that stands for the others of its (dp, pp)
    const sp_stage_plan *stage;
    const sp_share *shares;
    size_t share_count;
    size_t done, shares_done, shares_logged;
    int64_t forward_ns; // how far its clock is put forward
} rank_clock;

static void move(sp_i_exec_log *log, int64_t ns)
{
    log->start_ns += ns;
    log->end_ns += ns;
}

static void move_shares(rank_clock *l, size_t place)
{
    for (; l->shares_done < l->share_count && l->shares[l->shares_done].before <= place;
         l->shares_done++) {
        if (!l->shares[l->shares_done].own) {
            move(&l->rank->share_log[l->shares_logged++], l->forward_ns);
        }
    }
}

typedef struct end_times {
    const sp_depends *depends;
    int64_t *end_ns[2]; // of F; of B or I
} end_times;

static int64_t *end_of(const end_times *e, const sp_plan_place *place)
{
    int vstage = sp_depends_vstage(e->depends, place->pp, place->action);
    return &e->end_ns[sp_action_is_backward(place->action)]
                     [sp_depends_entry(e->depends, place->action, place->dp, vstage)];
}

// Of a pair both are over when the second is.
static void note_end(const end_times *e, const rank_clock *l, size_t action, int64_t end_ns)
{
    sp_plan_place place = {
        .dp = l->rank->dp, .pp = l->rank->pp, .action = l->stage->actions[action]};
    if (sp_depends_passes(place.action)) {
        *end_of(e, &place) = end_ns;
    }
}

// False where what the next action reads is not yet known.
static bool move_action(const end_times *e, rank_clock *l)
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

static void move_epilogues(sp_i_exec_run *run, const rank_clock *l)
{
    for (int m = 0; m < sp_i_exec_members(run); m++) {
        sp_rank_timeline *epilogue =
            &run->epilogues[sp_i_exec_rank_number(run, l->rank->dp, l->rank->pp, m)];
        epilogue->reduce_start_ns += l->forward_ns;
        epilogue->reduce_end_ns += l->forward_ns;
        epilogue->optimizer_end_ns += l->forward_ns;
        epilogue->gather_end_ns += l->forward_ns;
    }
}

static void make_clocks(const sp_i_exec_run *run, rank_clock *clocks)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    for (int i = 0; i < layout->dp * layout->pp; i++) {
        int dp = i / layout->pp;
        int pp = i % layout->pp;
        clocks[i].rank = sp_i_exec_rank_at(run, dp, pp, 0);
        clocks[i].stage = sp_plan_stage(run->request->plan, dp, pp);
        clocks[i].shares = sp_shares_of(&run->shares, layout, dp, pp, &clocks[i].share_count);
    }
}

// Goes from clock to clock until all are done. The plan ran, so this comes to an end.
sp_status sp_i_exec_set_clocks(sp_i_exec_run *run, sp_error *err)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    size_t count = (size_t)layout->dp * (size_t)layout->pp;
    end_times e = {.depends = &run->depends,
                   .end_ns = {sp_depends_timestamps(&run->depends, 0),
                              sp_depends_timestamps(&run->depends, 1)}};
    rank_clock *clocks = sp_calloc(count, sizeof *clocks);
    sp_status status = SP_OK;
    if (clocks == NULL || e.end_ns[0] == NULL || e.end_ns[1] == NULL) {
        status = sp_error_no_memory(err, "the clocks of ranks");
    }
    if (status == SP_OK) {
        make_clocks(run, clocks);
    }
    for (bool moved = true; status == SP_OK && moved;) {
        moved = false;
        for (size_t i = 0; i < count; i++) {
            while (clocks[i].done < clocks[i].stage->count && move_action(&e, &clocks[i])) {
                moved = true;
            }
        }
    }
    for (size_t i = 0; status == SP_OK && i < count; i++) {
        SP_ASSERT(clocks[i].done == clocks[i].stage->count);
        move_shares(&clocks[i], clocks[i].stage->count);
        move_epilogues(run, &clocks[i]);
    }
    sp_free(e.end_ns[0]);
    sp_free(e.end_ns[1]);
    sp_free(clocks);
    return status;
}
