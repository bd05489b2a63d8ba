#include "backends/executor/p2p.h"
#include "sim/base/alloc.h"

// One way of one pass.
typedef struct route {
    const sp_depends *depends;
    int from, to;
    bool gradient;
} route;

static bool passes(const route *r, sp_action action)
{
    return sp_depends_passes(action) && sp_action_is_backward(action) == r->gradient;
}

// The stage that reads what an action leaves, if it is on the other rank; else -1.
static int reader_of(const route *r, sp_action action)
{
    int vstage = sp_depends_vstage(r->depends, r->from, action);
    int reader = passes(r, action) ? sp_depends_target(r->depends, action, vstage) : -1;
    return reader >= 0 && r->depends->rank_of[reader] == r->to ? reader : -1;
}

static void add(const route *r, sp_i_exec_transfers *transfers, sp_action action, size_t sent)
{
    int reader = reader_of(r, action);
    if (reader >= 0) {
        transfers->items[transfers->count++] =
            (sp_i_exec_transfer){.vstage = reader, .pack = action.pack, .sent = sent};
    }
}

// What the first of a pair leaves goes off with what the second does, before it.
static void list_sent(const route *r, const sp_stage_plan *sender, sp_i_exec_transfers *transfers)
{
    for (size_t a = 0; a < sender->count; a++) {
        if (a > 0 && sender->actions[a - 1].with_next) {
            add(r, transfers, sender->actions[a - 1], a);
        }
        if (!sender->actions[a].with_next) {
            add(r, transfers, sender->actions[a], a);
        }
    }
}

// places [chunks][packs]: the action that reads for a pack.
static void find_places(const route *r, const sp_stage_plan *receiver, size_t packs, size_t *places)
{
    for (size_t a = 0; a < receiver->count; a++) {
        sp_action action = receiver->actions[a];
        if (passes(r, action)) {
            places[action.chunk * packs + (size_t)action.pack] = a;
        }
    }
}

static void place_transfers(const route *r, size_t packs, const size_t *places,
                            sp_i_exec_transfers *transfers)
{
    size_t receive_by = SIZE_MAX;
    for (size_t i = transfers->count; i-- > 0;) {
        sp_i_exec_transfer *transfer = &transfers->items[i];
        size_t chunk = (size_t)r->depends->chunk_of[transfer->vstage];
        transfer->read = places[chunk * packs + (size_t)transfer->pack];
        receive_by = transfer->read < receive_by ? transfer->read : receive_by;
        transfer->receive_by = receive_by;
    }
}

sp_status sp_i_exec_transfers_make(const sp_depends *depends, int dp, int from, int to,
                                   bool gradient, sp_i_exec_transfers *transfers, sp_error *err)
{
    const route r = {.depends = depends, .from = from, .to = to, .gradient = gradient};
    const sp_plan *plan = depends->plan;
    const sp_stage_plan *sender = sp_plan_stage(plan, dp, from);
    const sp_pack_list *list = depends->packs[gradient];
    size_t *places = sp_calloc(list->count * (size_t)plan->layout.chunks, sizeof *places);
    *transfers = (sp_i_exec_transfers){.items = sp_calloc(sender->count, sizeof *transfers->items)};
    if (places == NULL || transfers->items == NULL) {
        sp_free(places);
        sp_i_exec_transfers_fini(transfers);
        return sp_error_no_memory(err, "the order of hidden states");
    }
    list_sent(&r, sender, transfers);
    find_places(&r, sp_plan_stage(plan, dp, to), list->count, places);
    place_transfers(&r, list->count, places, transfers);
    sp_free(places);
    return SP_OK;
}

void sp_i_exec_transfers_fini(sp_i_exec_transfers *transfers)
{
    sp_free(transfers->items);
    *transfers = (sp_i_exec_transfers){0};
}
