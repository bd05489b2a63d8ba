// The baton of a world whose ranks compute one at a time. It goes to the ranks that want it in the
// order in which they came. A failed world has none any more: nobody waits for it.
#include "backends/comm/private.h"
#include "sim/base/alloc.h"

enum { NOBODY = -1 };

sp_status sp_i_comm_baton_init(sp_comm_world *world, int ranks, sp_error *err)
{
    sp_i_comm_baton *baton = &world->baton;
    baton->holder = NOBODY;
    baton->queue = sp_i_calloc((size_t)ranks, sizeof *baton->queue);
    if (baton->queue == NULL) {
        return sp_error_no_memory(err, "a world of ranks");
    }
    if (pthread_mutex_init(&baton->lock, NULL) != 0) {
        sp_i_free(baton->queue);
        baton->queue = NULL;
        return sp_error_no_memory(err, "a world of ranks");
    }
    return SP_OK;
}

void sp_i_comm_baton_fini(sp_comm_world *world)
{
    if (world->baton.queue != NULL) {
        pthread_mutex_destroy(&world->baton.lock);
        sp_i_free(world->baton.queue);
    }
}

void sp_i_comm_baton_take(sp_comm *me)
{
    sp_comm_world *world = me->world;
    sp_i_comm_baton *baton = &world->baton;
    if (!world->one_at_a_time) {
        return;
    }
    pthread_mutex_lock(&baton->lock);
    if (baton->holder == NOBODY) {
        baton->holder = me->rank;
    } else {
        int place = (baton->first + baton->waiting++) % world->rank_count;
        baton->queue[place] = me->rank;
    }
    while (baton->holder != me->rank && !atomic_load(&world->failed)) {
        pthread_cond_wait(&me->turn, &baton->lock);
    }
    pthread_mutex_unlock(&baton->lock);
}

// The lock is held.
static void hand_on(sp_comm_world *world)
{
    sp_i_comm_baton *baton = &world->baton;
    baton->holder = NOBODY;
    if (baton->waiting > 0) {
        baton->holder = baton->queue[baton->first];
        baton->first = (baton->first + 1) % world->rank_count;
        baton->waiting--;
        pthread_cond_signal(&world->ranks[baton->holder].turn);
    }
}

bool sp_i_comm_baton_give(sp_comm *me)
{
    sp_i_comm_baton *baton = &me->world->baton;
    if (!me->world->one_at_a_time) {
        return false;
    }
    pthread_mutex_lock(&baton->lock);
    bool held = baton->holder == me->rank && !atomic_load(&me->world->failed);
    if (held) {
        hand_on(me->world);
    }
    pthread_mutex_unlock(&baton->lock);
    return held;
}

void sp_i_comm_baton_pass(sp_comm *me)
{
    sp_i_comm_clock_advance(me);
    if (sp_i_comm_baton_give(me)) {
        sp_i_comm_baton_take(me);
        sp_i_comm_clock_skip(me);
    }
}

void sp_i_comm_baton_drop(sp_comm_world *world)
{
    if (!world->one_at_a_time) {
        return;
    }
    pthread_mutex_lock(&world->baton.lock);
    for (int rank = 0; rank < world->rank_count; rank++) {
        pthread_cond_broadcast(&world->ranks[rank].turn);
    }
    pthread_mutex_unlock(&world->baton.lock);
}
