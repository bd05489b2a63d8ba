// Deadlock detection: who waits for whom when nothing goes on, or when time is up.
#include <stdio.h>
#include <string.h>

#include "backends/comm/private.h"

enum { LISTED_RANKS = 8 };

// What one rank did when it was looked at.
typedef struct state {
    char action[SP_COMM_ACTION];
    sp_i_comm_wait wait;
    bool ended;
} state;

static state look_at(const sp_comm_world *world, int number)
{
    state seen;
    sp_comm *rank = &world->ranks[number];
    pthread_mutex_lock(&rank->lock);
    seen.wait = rank->wait;
    seen.ended = rank->ended;
    memcpy(seen.action, rank->action, sizeof seen.action);
    // While the record stands, so does the flag, which is the caller's.
    if (seen.wait.operation != NULL && sp_i_comm_is_over(&seen.wait)) {
        seen.wait.operation = NULL;
    }
    pthread_mutex_unlock(&rank->lock);
    return seen;
}

static bool has_entered(const sp_i_comm_wait *wait, int member)
{
    return atomic_load(&wait->group->members[member].entered) >= wait->phase;
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
    if (wait->flag != NULL) {
        return wait->raiser;
    }
    if (wait->queue != NULL) {
        return peer_of(wait);
    }
    for (int i = 0; wait->group != NULL && i < wait->group->size; i++) {
        if (!has_entered(wait, i)) {
            return wait->group->ranks[i];
        }
    }
    return -1;
}

static void list_absent(const sp_comm_world *world, const sp_i_comm_wait *wait, char *text,
                        size_t size)
{
    size_t used = 0;
    int absent = 0;
    text[0] = '\0';
    for (int i = 0; i < wait->group->size; i++) {
        if (!has_entered(wait, i) && absent++ < LISTED_RANKS) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     world->ranks[wait->group->ranks[i]].name);
        }
    }
    if (absent > LISTED_RANKS) {
        snprintf(text + used, size - used, " and %d more", absent - LISTED_RANKS);
    }
}

// What a rank waits for, after "waits for ".
static void describe_wait(const sp_comm_world *world, const sp_i_comm_wait *wait, char *text,
                          size_t size)
{
    if (wait->group == NULL && wait->queue == NULL) {
        snprintf(text, size, "%s", wait->what);
    } else if (wait->queue != NULL) {
        snprintf(text, size, "%s %s (%s, tag %d)", world->ranks[peer_of(wait)].name,
                 wait->sending ? "to take a message" : "to send", wait->operation,
                 wait->queue->tag);
    } else {
        char absent[LISTED_RANKS * (SP_COMM_RANK_NAME + 2) + 32];
        list_absent(world, wait, absent, sizeof absent);
        snprintf(text, size, "%s (%s, group '%s')", absent, wait->operation, wait->group->name);
    }
}

// `how` is what stands before a wait, or what a rank at work does.
static void add_line(sp_comm_world *world, int rank, const state *seen, const char *how,
                     sp_error *record)
{
    char text[SP_ERROR_TEXT] = "";
    const char *mark = seen->action[0] != '\0' ? ": " : "";
    if (seen->wait.operation != NULL) {
        describe_wait(world, &seen->wait, text, sizeof text);
    }
    sp_error_set(record, SP_ERR_LIMIT, "%s: %s%s%s%s", world->ranks[rank].name, seen->action, mark,
                 how, text);
    world->reported[rank] = true;
}

// `waits` is what stands before a wait.
static void add_unreported(sp_comm_world *world, const char *waits, sp_error *record)
{
    for (int rank = 0; rank < world->rank_count; rank++) {
        bool here = world->transport == NULL || world->transport->rank == rank;
        if (here && !world->reported[rank]) {
            state seen = look_at(world, rank);
            const char *how = seen.wait.operation != NULL ? waits
                              : seen.ended                ? "is done"
                                                          : "is at work";
            add_line(world, rank, &seen, how, record);
        }
    }
}

// Do some ranks wait, and is none of their waits over? For a moment at which no rank works.
static bool all_wait(sp_comm_world *world)
{
    bool some = false;
    bool all = true;
    for (int i = 0; all && i < world->rank_count; i++) {
        sp_comm *rank = &world->ranks[i];
        pthread_mutex_lock(&rank->lock);
        bool waits = rank->wait.operation != NULL;
        all = !waits || !sp_i_comm_is_over(&rank->wait);
        some = some || waits;
        pthread_mutex_unlock(&rank->lock);
    }
    return some && all;
}

// The end of the chain that begins at the first rank that waits, or a rank of the circle it ends
// in.
static int end_of_chain(const sp_comm_world *world)
{
    int end = 0;
    while (look_at(world, end).wait.operation == NULL) {
        end++;
    }
    for (int i = 0; i < world->rank_count; i++) {
        state seen = look_at(world, end);
        int next = first_awaited(&seen.wait);
        if (next < 0 || look_at(world, next).wait.operation == NULL) {
            break;
        }
        end = next;
    }
    return end;
}

// What each rank does and waits for; returns the rank it begins with.
static int report_waits(sp_comm_world *world, sp_error *record)
{
    int first = end_of_chain(world);
    for (int rank = first; rank >= 0 && !world->reported[rank];) {
        state seen = look_at(world, rank);
        if (seen.wait.operation == NULL) {
            break;
        }
        add_line(world, rank, &seen, rank == first ? "waits for ever for " : "waits for ", record);
        rank = first_awaited(&seen.wait);
    }
    add_unreported(world, "waits for ", record);
    return first;
}

// What each rank does at a deadline that was not met: first the ranks at work.
static int report_timeout(sp_comm_world *world, sp_error *record)
{
    for (int rank = 0; rank < world->rank_count; rank++) {
        state seen = look_at(world, rank);
        if (seen.wait.operation == NULL && !seen.ended) {
            add_line(world, rank, &seen, "is not done at the timeout", record);
        }
    }
    add_unreported(world, "is not done at the timeout and waits for ", record);
    return -1;
}

// Ranks at work are counted. A rank that is not at work changes nothing that another one waits for,
// and cannot go on while the lock is held. So what the last rank to stop sees under the lock is how
// the world stays.

void sp_i_comm_start_work(sp_comm_world *world, int ranks)
{
    pthread_mutex_lock(&world->work_lock);
    world->at_work += ranks;
    pthread_mutex_unlock(&world->work_lock);
}

void sp_i_comm_stop_work(sp_comm *me, bool ended)
{
    sp_comm_world *world = me->world;
    pthread_mutex_lock(&world->work_lock);
    if (ended) {
        pthread_mutex_lock(&me->lock);
        me->ended = true;
        me->action[0] = '\0';
        pthread_mutex_unlock(&me->lock);
    }
    bool for_ever = --world->at_work == 0 && all_wait(world);
    pthread_mutex_unlock(&world->work_lock);
    if (for_ever) {
        sp_i_comm_fail_with(world, report_waits);
    }
}

void sp_i_comm_deadline_over(sp_comm_world *world)
{
    bool late = false;
    pthread_mutex_lock(&world->work_lock);
    for (int i = 0; !late && i < world->rank_count; i++) {
        pthread_mutex_lock(&world->ranks[i].lock);
        late = !world->ranks[i].ended;
        pthread_mutex_unlock(&world->ranks[i].lock);
    }
    if (late) {
        sp_i_comm_fail_with(world, report_timeout);
    }
    pthread_mutex_unlock(&world->work_lock);
}
