#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backends/ranks/comm.h"
#include "backends/ranks/private.h"

enum { NS_PER_S = 1000000000 };

static bool is_over(const sp_i_comm_wait *wait)
{
    if (wait->group != NULL) {
        return atomic_load(&wait->group->arrivals) >= wait->phase * (uint64_t)wait->group->size;
    }
    if (wait->flag != NULL) {
        return atomic_load(&wait->flag->raised);
    }
    if (wait->queue == NULL) {
        return false;
    }
    uint64_t held = atomic_load(&wait->queue->sent) - atomic_load(&wait->queue->received);
    return wait->sending ? held < (uint64_t)wait->queue->slots : held > 0;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

// Until it is woken, or has reason to look again; its lock is held.
static void wait_for_wake(sp_comm *me)
{
    if (!me->world->one_at_a_time) {
        pthread_cond_wait(&me->wake, &me->lock);
        return;
    }
    pthread_mutex_unlock(&me->lock);
    sp_i_comm_fiber_suspend(me);
    pthread_mutex_lock(&me->lock);
}

// The record of what this rank waits for is written before it stops work: the last one to stop
// looks at all records. `sleeping` is set before the look at the counters, and who changes a
// counter looks at `sleeping` afterwards; all four are sequentially consistent, so one of the two
// sees the other.
static sp_status sleep_until_over(sp_comm *me, const sp_i_comm_wait *wait, sp_error *err)
{
    sp_comm_world *world = me->world;
    bool over;
    pthread_mutex_lock(&me->lock);
    me->wait = *wait;
    atomic_store(&me->sleeping, true);
    pthread_mutex_unlock(&me->lock);
    sp_i_comm_stop_work(me, false);
    pthread_mutex_lock(&me->lock);
    while (!(over = is_over(wait)) && !atomic_load(&world->failed)) {
        wait_for_wake(me);
    }
    atomic_store(&me->sleeping, false);
    pthread_mutex_unlock(&me->lock);
    sp_i_comm_start_work(world, 1);
    // The report of a failure is complete when its check returns; until then the record stays.
    sp_status status = over ? SP_OK : sp_comm_world_failure(world, err);
    pthread_mutex_lock(&me->lock);
    me->wait.operation = NULL;
    pthread_mutex_unlock(&me->lock);
    return status;
}

sp_status sp_i_comm_wait_for(sp_comm *me, const sp_i_comm_wait *wait, sp_error *err)
{
    sp_comm_world *world = me->world;
    if (is_over(wait)) {
        return SP_OK;
    }
    sp_i_comm_clock_advance(me);
    sp_status status = SP_OK;
    bool over = false;
    for (int i = 0; i < world->spins && !over && !atomic_load(&world->failed); i++) {
        relax();
        over = is_over(wait);
    }
    if (!over) {
        status = sleep_until_over(me, wait, err);
    }
    sp_i_comm_clock_skip(me);
    return status;
}

void sp_i_comm_wake(sp_comm_world *world, int rank)
{
    sp_comm *other = &world->ranks[rank];
    if (!atomic_load(&other->sleeping)) {
        return;
    }
    if (world->one_at_a_time) {
        sp_i_comm_fiber_ready(other);
    } else {
        pthread_mutex_lock(&other->lock);
        pthread_cond_signal(&other->wake);
        pthread_mutex_unlock(&other->lock);
    }
}

// The rank's clock goes on at the latest of the phase, and its work behind that of all members.
static void follow(sp_comm *me, const sp_i_comm_group *group, int member, uint64_t phase)
{
    sp_runtime *runtime = me->world->runtime;
    int64_t latest_ns = group->members[0].clock_ns[phase % 2];
    for (int j = 0; j < group->size; j++) {
        const sp_i_comm_member *other = &group->members[j];
        int64_t entered_ns = other->clock_ns[phase % 2];
        latest_ns = entered_ns > latest_ns ? entered_ns : latest_ns;
        if (me->world->fenced && j != member) {
            runtime->ops->wait(runtime, other->fence[phase % 2]);
        }
    }
    me->clock_ns = latest_ns;
}

sp_status sp_i_comm_wait_group(sp_comm *me, sp_i_comm_group *group, int member,
                               const char *operation, sp_error *err)
{
    uint64_t phase = atomic_load(&group->members[member].entered) + 1;
    sp_status status = SP_OK;
    sp_runtime *runtime = me->world->runtime;
    sp_i_comm_clock_advance(me);
    group->members[member].clock_ns[phase % 2] = me->clock_ns;
    if (me->world->fenced) {
        group->members[member].fence[phase % 2] = runtime->ops->mark(runtime);
    }
    atomic_store(&group->members[member].entered, phase);
    uint64_t arrivals = atomic_fetch_add(&group->arrivals, 1) + 1;
    if (arrivals < phase * (uint64_t)group->size) {
        sp_i_comm_wait wait = {.operation = operation, .group = group, .phase = phase};
        status = sp_i_comm_wait_for(me, &wait, err);
    } else {
        for (int i = 0; i < group->size; i++) {
            if (i != member) {
                sp_i_comm_wake(me->world, group->ranks[i]);
            }
        }
        sp_i_comm_clock_skip(me);
    }
    if (status == SP_OK) {
        follow(me, group, member, phase);
    }
    return status;
}

// ---- Flags ----

void sp_comm_flag_raise(sp_comm *me, int waiting_rank, sp_comm_flag *flag)
{
    SP_ASSERT(waiting_rank >= 0 && waiting_rank < me->world->rank_count);
    SP_ASSERT(!atomic_load(&flag->raised));
    sp_runtime *runtime = me->world->runtime;
    sp_i_comm_clock_advance(me);
    flag->raised_ns = me->clock_ns;
    flag->fence = runtime->ops->mark(runtime);
    atomic_store(&flag->raised, true);
    sp_i_comm_wake(me->world, waiting_rank);
    sp_i_comm_clock_skip(me);
}

sp_status sp_comm_flag_wait(sp_comm *me, const sp_comm_flag *flag, int raiser, const char *what,
                            sp_error *err)
{
    sp_i_comm_wait wait = {.operation = "wait", .flag = flag, .raiser = raiser};
    SP_ASSERT(raiser >= 0 && raiser < me->world->rank_count);
    sp_status status = sp_comm_world_failure(me->world, err);
    if (status != SP_OK) {
        return status;
    }
    snprintf(wait.what, sizeof wait.what, "%s", what);
    status = sp_i_comm_wait_for(me, &wait, err);
    if (status == SP_OK) {
        sp_runtime *runtime = me->world->runtime;
        runtime->ops->wait(runtime, flag->fence);
        sp_i_comm_clock_merge(me, flag->raised_ns);
    }
    return status;
}

void sp_comm_flag_clear(sp_comm_flag *flag)
{
    atomic_store(&flag->raised, false);
}

// ---- Clocks of virtual time ----

void sp_comm_clock_start(sp_comm *me, int64_t at_ns)
{
    sp_i_comm_clock_skip(me);
    me->clock_ns = at_ns;
}

int64_t sp_comm_clock_read(sp_comm *me)
{
    sp_i_comm_clock_advance(me);
    return me->clock_ns;
}

int64_t sp_comm_clock_own(sp_comm *me)
{
    sp_i_comm_clock_advance(me);
    return me->own_ns;
}

void sp_i_comm_clock_skip(sp_comm *me)
{
    sp_comm_world *world = me->world;
    if (world->clocked) {
        me->reading_ns = world->runtime->ops->now_ns(world->runtime);
    }
}

void sp_i_comm_clock_advance(sp_comm *me)
{
    int64_t before_ns = me->reading_ns;
    sp_i_comm_clock_skip(me);
    me->clock_ns += me->reading_ns - before_ns;
    me->own_ns += me->reading_ns - before_ns;
}

void sp_i_comm_clock_merge(sp_comm *me, int64_t other_ns)
{
    sp_i_comm_clock_advance(me);
    if (other_ns > me->clock_ns) {
        me->clock_ns = other_ns;
    }
}

// ---- Deadlocks ----

// Deadlock detection: who waits for whom when nothing goes on, or when time is up.

enum { LISTED_RANKS = 8 };

// A rank as it was when it was looked at.
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
    if (seen.wait.operation != NULL && is_over(&seen.wait)) {
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

// Writes the text behind "waits for ".
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
        all = !waits || !is_over(&rank->wait);
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

// Reports what each rank does and waits for; returns the rank it begins with.
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

// Reports what each rank does at a deadline that was not met: first the ranks at work.
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
