#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backends/ranks/private.h"
#include "sim/base/alloc.h"

// A rank that waits looks so often before it sleeps, where every rank can have a core of its own.
enum { SPINS = 2000 };

// Between the tables of two ranks, so that they are not in one cache line.
enum { UNSHARED = SP_I_CACHE_LINE / sizeof(void *) };

static void lock_init(pthread_mutex_t *lock)
{
    if (pthread_mutex_init(lock, NULL) != 0) {
        sp_out_of_memory(sizeof *lock);
    }
}

static void rank_init(sp_comm *me, sp_comm_world *world, int rank)
{
    me->world = world;
    me->rank = rank;
    me->ended = true;
    snprintf(me->name, sizeof me->name, "rank %d", rank);
    lock_init(&me->lock);
    if (pthread_cond_init(&me->wake, NULL) != 0) {
        sp_out_of_memory(sizeof me->wake);
    }
}

static void ranks_init(sp_comm_world *world, int ranks)
{
    size_t n = (size_t)ranks;
    size_t operands = n + UNSHARED;
    world->ranks = sp_arena_take(&world->memory, n, sizeof *world->ranks);
    world->queues = sp_arena_take(&world->memory, n * n, sizeof *world->queues);
    world->reported = sp_arena_take(&world->memory, n, sizeof *world->reported);
    world->scheduler.queue = sp_arena_take(&world->memory, n, sizeof(sp_comm *));
    const void **inputs = sp_arena_take(&world->memory, n * operands, sizeof *inputs);
    void **outputs = sp_arena_take(&world->memory, n * operands, sizeof *outputs);
    for (int rank = 0; rank < ranks; rank++) {
        rank_init(&world->ranks[rank], world, rank);
        world->ranks[rank].inputs = inputs + (size_t)rank * operands;
        world->ranks[rank].outputs = outputs + (size_t)rank * operands;
    }
    world->rank_count = ranks;
}

sp_status sp_comm_world_new(int ranks, const sp_comm_options *options, sp_comm_world **world,
                            sp_error *err)
{
    *world = NULL;
    if (ranks < 1) {
        return sp_error_set(err, SP_ERR_USAGE, "expected at least one rank, got %d", ranks);
    }
    if (options->transport != NULL && options->transport->ranks != ranks) {
        return sp_error_set(err, SP_ERR_USAGE, "%d ranks, but %d processes", ranks,
                            options->transport->ranks);
    }
    sp_comm_world *made = sp_calloc(1, sizeof *made);
    lock_init(&made->failure_lock);
    lock_init(&made->work_lock);
    made->runtime = options->runtime;
    made->transport = options->transport;
    made->fenced = !made->runtime->ops->plain_memory;
    made->one_at_a_time = options->one_at_a_time;
    made->spins = made->one_at_a_time || ranks > sp_i_cores() ? 0 : SPINS;
    made->failed_rank = -1;
    ranks_init(made, ranks);
    *world = made;
    return SP_OK;
}

// ---- Queues of messages ----

static _Atomic(sp_i_comm_queue *) *list_of(sp_comm_world *world, int from, int to)
{
    return &world->queues[(size_t)from * (size_t)world->rank_count + (size_t)to];
}

static sp_i_comm_queue *find_queue(sp_comm_world *world, int from, int to, int tag)
{
    sp_i_comm_queue *queue = atomic_load(list_of(world, from, to));
    while (queue != NULL && queue->tag != tag) {
        queue = queue->next;
    }
    return queue;
}

static void queue_free(sp_i_comm_queue *queue)
{
    for (int i = 0; i < SP_I_COMM_SLOTS; i++) {
        sp_free(queue->slot[i].data);
    }
    sp_free(queue);
}

// Sender and receiver may both come first. Queues never leave their list, so it is read without a
// lock.
sp_i_comm_queue *sp_i_comm_queue_find(sp_comm_world *world, int from, int to, int tag)
{
    sp_i_comm_queue *queue = find_queue(world, from, to, tag);
    if (queue != NULL) {
        return queue;
    }
    pthread_mutex_t *lock = &world->ranks[to].lock;
    pthread_mutex_lock(lock);
    queue = find_queue(world, from, to, tag);
    if (queue == NULL) {
        queue = sp_calloc(1, sizeof *queue);
        queue->from = from;
        queue->to = to;
        queue->tag = tag;
        queue->next = atomic_load(list_of(world, from, to));
        atomic_store(list_of(world, from, to), queue);
    }
    pthread_mutex_unlock(lock);
    return queue;
}

static void queues_free(sp_comm_world *world)
{
    size_t pairs = (size_t)world->rank_count * (size_t)world->rank_count;
    for (size_t i = 0; i < pairs; i++) {
        sp_i_comm_queue *queue = atomic_load(&world->queues[i]);
        while (queue != NULL) {
            sp_i_comm_queue *next = queue->next;
            queue_free(queue);
            queue = next;
        }
    }
}

void sp_comm_world_free(sp_comm_world *world)
{
    if (world == NULL) {
        return;
    }
    queues_free(world);
    for (int rank = 0; rank < world->rank_count; rank++) {
        sp_i_fiber_free(world->ranks[rank].fiber);
        pthread_cond_destroy(&world->ranks[rank].wake);
        pthread_mutex_destroy(&world->ranks[rank].lock);
    }
    pthread_mutex_destroy(&world->work_lock);
    pthread_mutex_destroy(&world->failure_lock);
    sp_free(world->groups);
    sp_arena_free(&world->memory);
    sp_free(world);
}

int sp_comm_world_ranks(const sp_comm_world *world)
{
    return world->rank_count;
}

sp_comm *sp_comm_of(sp_comm_world *world, int rank)
{
    SP_ASSERT(rank >= 0 && rank < world->rank_count);
    return &world->ranks[rank];
}

const sp_comm_world *sp_comm_world_of(const sp_comm *me)
{
    return me->world;
}

int sp_comm_rank(const sp_comm *me)
{
    return me->rank;
}

void sp_comm_set_name(sp_comm *me, const char *name)
{
    snprintf(me->name, sizeof me->name, "%s", name);
}

void sp_comm_set_action(sp_comm *me, const char *action)
{
    pthread_mutex_lock(&me->lock);
    snprintf(me->action, sizeof me->action, "%s", action);
    pthread_mutex_unlock(&me->lock);
}

// ---- Groups ----

static sp_status fill_group(sp_i_comm_group *group, int world_ranks, const int *ranks, int size,
                            sp_error *err)
{
    for (int rank = 0; rank < world_ranks; rank++) {
        group->member_of[rank] = -1;
    }
    for (int i = 0; i < size; i++) {
        if (ranks[i] < 0 || ranks[i] >= world_ranks) {
            return sp_error_set(err, SP_ERR_USAGE,
                                "group '%s': expected ranks from 0 to %d, got %d", group->name,
                                world_ranks - 1, ranks[i]);
        }
        if (group->member_of[ranks[i]] >= 0) {
            return sp_error_set(err, SP_ERR_USAGE, "group '%s': rank %d stands in it twice",
                                group->name, ranks[i]);
        }
        group->ranks[i] = ranks[i];
        group->member_of[ranks[i]] = i;
    }
    return SP_OK;
}

sp_status sp_comm_group_new(sp_comm_world *world, const char *name, const int *ranks, int size,
                            int *group, sp_error *err)
{
    if (size < 1) {
        return sp_error_set(err, SP_ERR_USAGE, "group '%s': expected at least one rank", name);
    }
    const size_t n = (size_t)size;
    sp_i_comm_group *made = sp_arena_take(&world->memory, 1, sizeof *made);
    int *members = sp_arena_take(&world->memory, n + (size_t)world->rank_count, sizeof *members);
    sp_i_comm_member *calls = sp_arena_take(&world->memory, n, sizeof *calls);
    SP_RESERVE(world->groups, world->group_capacity, world->group_count + 1);
    snprintf(made->name, sizeof made->name, "%s", name);
    made->size = size;
    made->ranks = members;
    made->member_of = members + n;
    made->members = calls;
    SP_TRY(fill_group(made, world->rank_count, ranks, size, err));
    if (world->transport != NULL) {
        SP_TRY(
            world->transport->ops->group_new(world->transport, made->name, made->ranks, size, err));
    }
    *group = (int)world->group_count;
    world->groups[world->group_count++] = made;
    return SP_OK;
}

int sp_comm_group_find(const sp_comm_world *world, const int *ranks, int size)
{
    for (size_t i = 0; i < world->group_count; i++) {
        const sp_i_comm_group *group = world->groups[i];
        if (group->size == size && memcmp(group->ranks, ranks, (size_t)size * sizeof *ranks) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static const sp_i_comm_group *group_at(const sp_comm_world *world, int group)
{
    SP_ASSERT(group >= 0 && (size_t)group < world->group_count);
    return world->groups[group];
}

int sp_comm_group_size(const sp_comm_world *world, int group)
{
    return group_at(world, group)->size;
}

int sp_comm_group_rank(const sp_comm_world *world, int group, int member)
{
    const sp_i_comm_group *found = group_at(world, group);
    SP_ASSERT(member >= 0 && member < found->size);
    return found->ranks[member];
}

int sp_comm_member(const sp_comm *me, int group)
{
    return group_at(me->world, group)->member_of[me->rank];
}

// ---- Failures ----

sp_status sp_comm_world_failure(sp_comm_world *world, sp_error *err)
{
    if (!atomic_load(&world->failed)) {
        return SP_OK;
    }
    pthread_mutex_lock(&world->failure_lock);
    sp_status status = sp_error_add(err, &world->failure);
    pthread_mutex_unlock(&world->failure_lock);
    return status;
}

int sp_comm_failed_rank(sp_comm_world *world)
{
    pthread_mutex_lock(&world->failure_lock);
    int rank = world->failed_rank;
    pthread_mutex_unlock(&world->failure_lock);
    return rank;
}

// Takes the failure lock; whoever does first holds it until the reason is complete. False, without
// the lock, where the world has failed already.
static bool claim_failure(sp_comm_world *world)
{
    pthread_mutex_lock(&world->failure_lock);
    if (atomic_load(&world->failed)) {
        pthread_mutex_unlock(&world->failure_lock);
        return false;
    }
    atomic_store(&world->failed, true);
    return true;
}

static void end_waits(sp_comm_world *world, int rank)
{
    world->failed_rank = rank;
    pthread_mutex_unlock(&world->failure_lock);
    for (int i = 0; i < world->rank_count; i++) {
        pthread_mutex_lock(&world->ranks[i].lock);
        pthread_cond_broadcast(&world->ranks[i].wake);
        pthread_mutex_unlock(&world->ranks[i].lock);
    }
}

sp_status sp_i_comm_fail(sp_comm *me, sp_error *err, sp_status status, const char *format, ...)
{
    char text[SP_ERROR_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    SP_ASSERT(status != SP_OK);
    if (claim_failure(me->world)) {
        // The action is this thread's own: only it writes it.
        const char *mark = me->action[0] != '\0' ? ": " : "";
        sp_error_set(&me->world->failure, status, "%s: %s%s%s", me->name, me->action, mark, text);
        end_waits(me->world, me->rank);
    }
    return sp_comm_world_failure(me->world, err);
}

// Lets the world fail, unless it has, with the messages that `report` writes down; `report` returns
// the rank that failed, or -1.
static void fail_with(sp_comm_world *world, int (*report)(sp_comm_world *, sp_error *))
{
    if (claim_failure(world)) {
        end_waits(world, report(world, &world->failure));
    }
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
    if (world->one_at_a_time) {
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

// ---- The scheduler of fibers ----

// Ranks whose wait is over go on in the order in which it ended.

static void let_go_on(sp_comm *me)
{
    sp_i_comm_scheduler *scheduler = &me->world->scheduler;
    if (!me->queued) {
        me->queued = true;
        scheduler->queue[(scheduler->first + scheduler->waiting++) % me->world->rank_count] = me;
    }
}

static sp_comm *next_of(sp_comm_world *world)
{
    sp_i_comm_scheduler *scheduler = &world->scheduler;
    if (scheduler->waiting == 0) {
        return NULL;
    }
    sp_comm *next = scheduler->queue[scheduler->first];
    scheduler->first = (scheduler->first + 1) % world->rank_count;
    scheduler->waiting--;
    next->queued = false;
    return next;
}

static void suspend(sp_comm *me)
{
    sp_runtime *runtime = me->world->runtime;
    sp_i_fiber_suspend(me->fiber);
    runtime->ops->enter(runtime, me->rank);
}

// Where nobody may go on, a failure has ended all waiting.
static void ask_for_all(sp_comm_world *world)
{
    SP_ASSERT(atomic_load(&world->failed));
    for (int rank = 0; rank < world->rank_count; rank++) {
        if (!world->ranks[rank].ended) {
            let_go_on(&world->ranks[rank]);
        }
    }
}

// Drives the fibers that were started until all have ended.
static void run_scheduler(sp_comm_world *world, int started)
{
    while (started > 0) {
        sp_comm *next = next_of(world);
        if (next == NULL) {
            ask_for_all(world);
        } else if (!sp_i_fiber_resume(next->fiber)) {
            started--;
        }
    }
}

// ---- Deadlocks ----

// Deadlock detection: who waits for whom when nothing goes on, or when time is up.

enum { LISTED_RANKS = 8 };

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
    return wait->sending ? held < SP_I_COMM_SLOTS : held > 0;
}

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

static void start_work(sp_comm_world *world, int ranks)
{
    pthread_mutex_lock(&world->work_lock);
    world->at_work += ranks;
    pthread_mutex_unlock(&world->work_lock);
}

static void stop_work(sp_comm *me, bool ended)
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
        fail_with(world, report_waits);
    }
}

// ---- Waits ----

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
    suspend(me);
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
    stop_work(me, false);
    pthread_mutex_lock(&me->lock);
    while (!(over = is_over(wait)) && !atomic_load(&world->failed)) {
        wait_for_wake(me);
    }
    atomic_store(&me->sleeping, false);
    pthread_mutex_unlock(&me->lock);
    start_work(world, 1);
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
        let_go_on(other);
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
    SP_TRY(sp_comm_world_failure(me->world, err));
    snprintf(wait.what, sizeof wait.what, "%s", what);
    SP_TRY(sp_i_comm_wait_for(me, &wait, err));
    sp_runtime *runtime = me->world->runtime;
    runtime->ops->wait(runtime, flag->fence);
    sp_i_comm_clock_merge(me, flag->raised_ns);
    return SP_OK;
}

void sp_comm_flag_clear(sp_comm_flag *flag)
{
    atomic_store(&flag->raised, false);
}

// ---- Runs ----

typedef struct run {
    sp_comm_world *world;
    const int *ranks; // NULL: all, in order
    int count;
    sp_comm_body *body;
    void *data;
} run;

static sp_comm *rank_at(const run *r, int number)
{
    return sp_comm_of(r->world, r->ranks != NULL ? r->ranks[number] : number);
}

// Before the ranks begin, or where they could not.
static void set_all_ended(const run *r, bool ended)
{
    for (int i = 0; i < r->count; i++) {
        sp_comm *me = rank_at(r, i);
        pthread_mutex_lock(&me->lock);
        me->ended = ended;
        pthread_mutex_unlock(&me->lock);
    }
    start_work(r->world, ended ? -r->count : r->count);
}

// Waits for the work of a rank whose body has ended with this status, and adds what went wrong in
// it to that of a good end. With a transport, work of a rank that failed may wait for others for
// ever.
static sp_status end_work(sp_comm *me, sp_status status, sp_error *err)
{
    sp_runtime *runtime = me->world->runtime;
    sp_transport *transport = me->world->transport;
    if (transport != NULL) {
        return status == SP_OK ? transport->ops->synchronize(transport, err) : SP_OK;
    }
    return runtime->ops->synchronize(runtime, status == SP_OK ? err : NULL);
}

static void run_rank(void *data, int number)
{
    const run *r = data;
    sp_comm *me = rank_at(r, number);
    sp_runtime *runtime = r->world->runtime;
    sp_error own = {0};
    runtime->ops->enter(runtime, me->rank);
    sp_i_comm_clock_skip(me);
    sp_status status = r->body(me, r->data, &own);
    sp_status of_work = end_work(me, status, &own);
    status = status == SP_OK ? of_work : status;
    if (status != SP_OK) {
        sp_i_comm_fail(me, NULL, status, "%s",
                       own.count > 0 ? own.message[0] : sp_status_text(status));
    }
    stop_work(me, true);
}

static void end_at_deadline(void *data)
{
    sp_comm_world *world = ((const run *)data)->world;
    bool late = false;
    pthread_mutex_lock(&world->work_lock);
    for (int i = 0; !late && i < world->rank_count; i++) {
        pthread_mutex_lock(&world->ranks[i].lock);
        late = !world->ranks[i].ended;
        pthread_mutex_unlock(&world->ranks[i].lock);
    }
    if (late) {
        fail_with(world, report_timeout);
    }
    pthread_mutex_unlock(&world->work_lock);
}

typedef struct fiber_rank {
    run *run;
    int number;
} fiber_rank;

static void run_fiber(void *data)
{
    const fiber_rank *rank = data;
    run_rank(rank->run, rank->number);
}

static void run_fibers(void *data, int thread SP_UNUSED)
{
    run *r = data;
    fiber_rank *each = sp_calloc((size_t)r->count, sizeof *each);
    for (int i = 0; i < r->count; i++) {
        sp_comm *me = rank_at(r, i);
        each[i] = (fiber_rank){r, i};
        me->fiber = me->fiber != NULL ? me->fiber : sp_i_fiber_new();
        sp_i_fiber_start(me->fiber, run_fiber, &each[i]);
        let_go_on(me);
    }
    run_scheduler(r->world, r->count);
    sp_free(each);
}

// Leaves the one rank that is this process's, where ranks are processes; false where the run is
// without it. How long it may wait for others is its transport's matter.
static bool keep_here(run *r)
{
    const int *here = &r->world->transport->rank;
    bool found = false;
    for (int i = 0; i < r->count; i++) {
        found = found || (r->ranks != NULL ? r->ranks[i] : i) == *here;
    }
    r->ranks = here;
    r->count = 1;
    return found;
}

sp_status sp_comm_run(sp_comm_world *world, sp_comm_body *body, void *data, int64_t timeout_ns,
                      sp_error *err)
{
    return sp_comm_run_ranks(world, NULL, sp_comm_world_ranks(world), body, data, timeout_ns, err);
}

sp_status sp_comm_run_ranks(sp_comm_world *world, const int *ranks, int count, sp_comm_body *body,
                            void *data, int64_t timeout_ns, sp_error *err)
{
    run r = {.world = world, .ranks = ranks, .count = count, .body = body, .data = data};
    sp_status status = SP_OK;
    if (world->transport != NULL && !keep_here(&r)) {
        return sp_comm_world_failure(world, err);
    }
    timeout_ns = world->transport != NULL ? 0 : timeout_ns;
    set_all_ended(&r, false);
    if (r.count == 1 && timeout_ns == 0) {
        run_rank(&r, 0);
    } else if (world->one_at_a_time && timeout_ns == 0) {
        run_fibers(&r, 0);
    } else if (world->one_at_a_time) {
        // A deadline is kept by a thread beside the one that all ranks are on.
        status = sp_i_run_threads(1, false, run_fibers, end_at_deadline, &r, timeout_ns, err);
    } else {
        status = sp_i_run_threads(r.count, true, run_rank, end_at_deadline, &r, timeout_ns, err);
    }
    if (status != SP_OK) {
        set_all_ended(&r, true);
        return status;
    }
    return sp_comm_world_failure(world, err);
}
