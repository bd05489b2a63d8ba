// Who waits for whom, when a wait has lasted too long.
#include <stdio.h>
#include <string.h>

#include "backends/host/comm_private.h"

enum { LISTED_RANKS = 8 };

// What one rank did when it was looked at.
typedef struct state {
    char action[SP_COMM_ACTION];
    sp_i_comm_wait wait;
} state;

static state look_at(sp_comm *rank)
{
    state seen;
    pthread_mutex_lock(&rank->lock);
    seen.wait = rank->wait;
    memcpy(seen.action, rank->action, sizeof seen.action);
    pthread_mutex_unlock(&rank->lock);
    if (seen.wait.operation != NULL && sp_i_comm_is_over(&seen.wait)) {
        seen.wait.operation = NULL;
    }
    return seen;
}

static bool has_entered(const sp_i_comm_wait *wait, int member)
{
    return atomic_load(&wait->group->members[member].entered) >= wait->meeting;
}

static int peer_of(const sp_i_comm_wait *wait)
{
    return wait->sending ? wait->queue->to : wait->queue->from;
}

// The first rank that this one waits for; -1 for none.
static int first_awaited(const sp_i_comm_wait *wait)
{
    if (wait->operation == NULL) {
        return -1;
    }
    if (wait->queue != NULL) {
        return peer_of(wait);
    }
    for (int i = 0; i < wait->group->size; i++) {
        if (!has_entered(wait, i)) {
            return wait->group->ranks[i];
        }
    }
    return -1;
}

static void list_absent(const sp_i_comm_wait *wait, char *text, size_t size)
{
    size_t used = 0;
    int absent = 0;
    text[0] = '\0';
    for (int i = 0; i < wait->group->size; i++) {
        if (!has_entered(wait, i) && absent++ < LISTED_RANKS) {
            used += (size_t)snprintf(text + used, size - used, "%s%d", used > 0 ? ", " : "",
                                     wait->group->ranks[i]);
        }
    }
    if (absent > LISTED_RANKS) {
        snprintf(text + used, size - used, " and %d more", absent - LISTED_RANKS);
    }
}

static void add_line(int rank, const state *seen, const char *since, sp_error *record)
{
    const char *mark = seen->action[0] != '\0' ? ": " : "";
    if (seen->wait.operation == NULL) {
        sp_error_set(record, SP_ERR_LIMIT, "rank %d: %s%swaits for nobody", rank, seen->action,
                     mark);
    } else if (seen->wait.queue != NULL) {
        const char *reason = seen->wait.sending ? "to take a message" : "to send";
        sp_error_set(record, SP_ERR_LIMIT, "rank %d: %s%swaits%s for rank %d %s (%s, tag %d)", rank,
                     seen->action, mark, since, peer_of(&seen->wait), reason, seen->wait.operation,
                     seen->wait.queue->tag);
    } else {
        char absent[LISTED_RANKS * 12 + 32];
        list_absent(&seen->wait, absent, sizeof absent);
        sp_error_set(record, SP_ERR_LIMIT, "rank %d: %s%swaits%s for rank %s (%s, group '%s')",
                     rank, seen->action, mark, since, absent, seen->wait.operation,
                     seen->wait.group->name);
    }
}

void sp_i_comm_report(sp_comm *me, int64_t waited_ns, sp_error *record)
{
    sp_comm_world *world = me->world;
    char since[48];
    snprintf(since, sizeof since, " since %.3g s", (double)waited_ns * 1e-9);
    for (int rank = me->rank; rank >= 0 && !world->reported[rank];) {
        state seen = look_at(&world->ranks[rank]);
        add_line(rank, &seen, rank == me->rank ? since : "", record);
        world->reported[rank] = true;
        rank = first_awaited(&seen.wait);
    }
    for (int rank = 0; rank < world->rank_count; rank++) {
        if (!world->reported[rank]) {
            state seen = look_at(&world->ranks[rank]);
            add_line(rank, &seen, "", record);
            world->reported[rank] = true;
        }
    }
}
