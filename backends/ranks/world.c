#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backends/ranks/private.h"
#include "sim/base/alloc.h"

enum { DEFAULT_SPINS = 2000, DEFAULT_SLOTS = 2 };

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
    made->queue_slots = options->queue_slots > 0 ? options->queue_slots : DEFAULT_SLOTS;
    made->runtime = options->runtime;
    made->transport = options->transport;
    made->fenced = !made->runtime->ops->plain_memory;
    made->clocked = options->clocked;
    made->one_at_a_time = options->one_at_a_time;
    made->spins = options->spins;
    if (options->spins < 0) {
        made->spins = ranks <= sp_i_cores() ? DEFAULT_SPINS : 0;
    }
    made->spins = made->one_at_a_time ? 0 : made->spins;
    made->failed_rank = -1;
    ranks_init(made, ranks);
    *world = made;
    return SP_OK;
}

void sp_comm_world_free(sp_comm_world *world)
{
    if (world == NULL) {
        return;
    }
    sp_i_comm_queues_free(world);
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
    sp_reserve((void **)&world->groups, &world->group_capacity, world->group_count + 1,
               sizeof(sp_i_comm_group *));
    snprintf(made->name, sizeof made->name, "%s", name);
    made->size = size;
    made->ranks = members;
    made->member_of = members + n;
    made->members = calls;
    sp_status status = fill_group(made, world->rank_count, ranks, size, err);
    if (status == SP_OK && world->transport != NULL) {
        status =
            world->transport->ops->group_new(world->transport, made->name, made->ranks, size, err);
    }
    if (status == SP_OK) {
        *group = (int)world->group_count;
        world->groups[world->group_count++] = made;
    }
    return status;
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

void sp_i_comm_fail_with(sp_comm_world *world, int (*report)(sp_comm_world *, sp_error *))
{
    if (claim_failure(world)) {
        end_waits(world, report(world, &world->failure));
    }
}
