// What ranks in processes of their own tell each other beside the plan: that a run went wrong, and
// what each noted in a step.
#include <stdio.h>
#include <string.h>

#include "backends/comm/transport.h"
#include "backends/executor/run.h"
#include "sim/base/alloc.h"

static sp_status refuse(const sp_i_exec_site *site, const char *what, sp_error *err)
{
    return sp_error_set(err, SP_ERR_CONTENT,
                        "backend '%s' cannot execute %s ranks in processes of their own",
                        site->backend, what);
}

// ZeRO 2 and 3 reach into the memory of other ranks, keys and values go round through it; links
// that are there need no emulation.
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
    if (status == SP_OK && options.emulated_links) {
        return refuse(site, "emulated links between", err);
    }
    if (status == SP_OK && site->repeats) {
        return refuse(site, "steps that are captured on", err);
    }
    return status;
}

sp_status sp_i_exec_tell(const sp_i_exec_run *run, sp_status status, const sp_error *own,
                         sp_error *err)
{
    const char *text = own->count > 0 ? own->message[0] : sp_status_text(status);
    const sp_error *said = own;
    sp_error first = {0};
    sp_transport *transport = run->transport;
    if (transport != NULL && status != SP_OK) {
        char named[SP_ERROR_TEXT + 32];
        snprintf(named, sizeof named, "rank %d: %s", transport->rank, text);
        bool names = strstr(text, "dp ") != NULL;
        transport->ops->abort(transport, status, names ? text : named);
        sp_status known = transport->ops->check(transport, &first);
        if (first.count > 0 && strstr(first.message[0], text) == NULL) {
            said = &first;
            status = known;
        }
    }
    for (int i = 0; i < said->count; i++) {
        sp_error_set(err, said->status, "%s", said->message[i]);
    }
    return status;
}

// ---- what a rank noted in a step ----

// Behind it stand the losses of a rank with the head, the logs of actions and those of shares.
typedef struct record {
    size_t logged, shares_logged;
    sp_bytes held;
    sp_rank_timeline tail; // without tables
} record;

static size_t losses_of(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    int pp;
    int chunk;
    sp_layout_locate(sp_i_exec_layout(run), (int)sp_i_exec_vstages(run) - 1, &pp, &chunk);
    return rank->pp == pp ? run->request->plan->packing->forward.count : 0;
}

static double *loss_of(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    size_t packs = run->request->plan->packing->forward.count;
    return run->loss + (size_t)sp_i_exec_seat(run, rank) * packs;
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
                      .tail = run->tails[rank - run->ranks]};
    *bytes = record_bytes(run, rank, &r);
    char *made = sp_i_malloc(*bytes);
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
    run->tails[rank - run->ranks] = r.tail;
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
    sp_transport_part *parts = sp_i_calloc(ranks, sizeof *parts);
    sp_status status =
        mine != NULL && parts != NULL ? SP_OK : sp_error_no_memory(err, "what ranks noted");
    sp_comm_set_action(me, "results");
    if (status == SP_OK) {
        status = sp_comm_exchange(me, mine, bytes, parts, err);
    }
    for (size_t r = 0; status == SP_OK && r < ranks; r++) {
        status = read_record(run, &run->ranks[r], &parts[r], err);
    }
    for (size_t r = 0; parts != NULL && r < ranks; r++) {
        sp_i_free(parts[r].data);
    }
    sp_i_free(parts);
    sp_i_free(mine);
    return status;
}

sp_status sp_i_exec_share_step(sp_i_exec_run *run, sp_error *err)
{
    return sp_i_exec_on_ranks(run, &run->transport->rank, 1, share_step, run, err);
}
