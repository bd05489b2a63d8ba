#include <errno.h>
#include <time.h>

#include "backends/host/comm_private.h"

enum { NS_PER_S = 1000000000 };

int64_t sp_i_comm_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

// The rank's lock is held. False when the time is up.
static bool sleep_once(sp_comm *me, int64_t until_ns)
{
    if (until_ns == INT64_MAX) {
        pthread_cond_wait(&me->wake, &me->lock);
        return true;
    }
    struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S),
                             .tv_nsec = (long)(until_ns % NS_PER_S)};
    return pthread_cond_timedwait(&me->wake, &me->lock, &until) != ETIMEDOUT;
}

// `sleeping` is set before the look at the counters, and who changes a counter looks at `sleeping`
// afterwards; all four are sequentially consistent, so one of the two sees the other.
static sp_status sleep_until_over(sp_comm *me, const sp_i_comm_wait *wait, int64_t until_ns,
                                  sp_error *err)
{
    sp_comm_world *world = me->world;
    bool in_time = true;
    bool over;
    pthread_mutex_lock(&me->lock);
    me->wait = *wait;
    atomic_store(&me->sleeping, true);
    while (!(over = sp_i_comm_is_over(wait)) && !atomic_load(&world->failed) && in_time) {
        in_time = sleep_once(me, until_ns);
    }
    atomic_store(&me->sleeping, false);
    pthread_mutex_unlock(&me->lock);
    if (!over && !atomic_load(&world->failed)) {
        sp_i_comm_time_out(me, wait);
    }
    // The report of a failure is complete when its check returns; until then the record stays.
    sp_status status = over ? SP_OK : sp_i_comm_check(world, err);
    pthread_mutex_lock(&me->lock);
    me->wait.operation = NULL;
    pthread_mutex_unlock(&me->lock);
    return status;
}

sp_status sp_i_comm_wait_for(sp_comm *me, const sp_i_comm_wait *wait, sp_error *err)
{
    sp_comm_world *world = me->world;
    if (sp_i_comm_is_over(wait)) {
        return SP_OK;
    }
    int64_t start_ns = sp_i_comm_now_ns();
    sp_status status = SP_OK;
    bool over = false;
    for (int i = 0; i < world->spins && !over && !atomic_load(&world->failed); i++) {
        relax();
        over = sp_i_comm_is_over(wait);
    }
    if (!over) {
        bool limited = world->timeout_ns > 0 && world->timeout_ns < INT64_MAX - start_ns;
        int64_t until_ns = limited ? start_ns + world->timeout_ns : INT64_MAX;
        status = sleep_until_over(me, wait, until_ns, err);
    }
    me->counts.wait_ns += sp_i_comm_now_ns() - start_ns;
    return status;
}

void sp_i_comm_wake(sp_comm_world *world, int rank)
{
    sp_comm *other = &world->ranks[rank];
    if (atomic_load(&other->sleeping)) {
        pthread_mutex_lock(&other->lock);
        pthread_cond_signal(&other->wake);
        pthread_mutex_unlock(&other->lock);
    }
}

sp_status sp_i_comm_meet(sp_comm *me, sp_i_comm_group *group, int member, const char *operation,
                         sp_error *err)
{
    uint64_t meeting = atomic_load(&group->members[member].entered) + 1;
    atomic_store(&group->members[member].entered, meeting);
    uint64_t arrivals = atomic_fetch_add(&group->arrivals, 1) + 1;
    if (arrivals < meeting * (uint64_t)group->size) {
        sp_i_comm_wait wait = {.operation = operation, .group = group, .meeting = meeting};
        return sp_i_comm_wait_for(me, &wait, err);
    }
    for (int i = 0; i < group->size; i++) {
        if (i != member) {
            sp_i_comm_wake(me->world, group->ranks[i]);
        }
    }
    return SP_OK;
}
