#include <stdio.h>
#include <time.h>

#include "backends/comm/comm.h"
#include "backends/comm/private.h"

enum { NS_PER_S = 1000000000 };

static int64_t now_ns(void)
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

// What this rank waits for is on record before it stops work: the last one to stop looks at all
// records. `sleeping` is set before the look at the counters, and who changes a counter looks at
// `sleeping` afterwards; all four are sequentially consistent, so one of the two sees the other.
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
    while (!(over = sp_i_comm_is_over(wait)) && !atomic_load(&world->failed)) {
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
    if (sp_i_comm_is_over(wait)) {
        return SP_OK;
    }
    sp_i_comm_clock_advance(me);
    int64_t start_ns = now_ns();
    sp_status status = SP_OK;
    bool over = false;
    for (int i = 0; i < world->spins && !over && !atomic_load(&world->failed); i++) {
        relax();
        over = sp_i_comm_is_over(wait);
    }
    if (!over) {
        status = sleep_until_over(me, wait, err);
    }
    me->counts.wait_ns += now_ns() - start_ns;
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

int64_t sp_comm_clock(const sp_comm *me)
{
    return me->clock_ns;
}

void sp_comm_clock_add(sp_comm *me, int64_t ns)
{
    me->clock_ns += ns;
}

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
