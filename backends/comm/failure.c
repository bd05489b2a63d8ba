#include <stdarg.h>
#include <stdio.h>

#include "backends/comm/private.h"

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

static void fail(sp_comm_world *world, const sp_comm *me, sp_status status, const char *format,
                 va_list arguments)
{
    char text[SP_ERROR_TEXT];
    SP_ASSERT(status != SP_OK);
    vsnprintf(text, sizeof text, format, arguments);
    if (!claim_failure(world)) {
        return;
    }
    if (me == NULL) {
        sp_error_set(&world->failure, status, "%s", text);
    } else {
        // The action is this thread's own: only it writes it.
        const char *mark = me->action[0] != '\0' ? ": " : "";
        sp_error_set(&world->failure, status, "%s: %s%s%s", me->name, me->action, mark, text);
    }
    end_waits(world, me != NULL ? me->rank : -1);
}

sp_status sp_comm_abort(sp_comm *me, sp_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(me->world, me, status, format, arguments);
    va_end(arguments);
    return sp_comm_world_failure(me->world, NULL);
}

sp_status sp_i_comm_fail(sp_comm *me, sp_error *err, sp_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(me->world, me, status, format, arguments);
    va_end(arguments);
    return sp_comm_world_failure(me->world, err);
}

sp_status sp_comm_world_abort(sp_comm_world *world, sp_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(world, NULL, status, format, arguments);
    va_end(arguments);
    return sp_comm_world_failure(world, NULL);
}

void sp_i_comm_fail_with(sp_comm_world *world, int (*report)(sp_comm_world *, sp_error *))
{
    if (claim_failure(world)) {
        end_waits(world, report(world, &world->failure));
    }
}
