// Ranks that work and ranks that do not. A rank that rests changes nothing that another waits for,
// and cannot go on to work while the lock is held: what the last one sees under it is how the
// world stays.
#include "backends/comm/private.h"

void sp_i_comm_work_on(sp_comm_world *world, int ranks)
{
    pthread_mutex_lock(&world->rest_lock);
    world->at_work += ranks;
    pthread_mutex_unlock(&world->rest_lock);
}

static void end(sp_comm *me)
{
    pthread_mutex_lock(&me->lock);
    me->ended = true;
    me->action[0] = '\0';
    pthread_mutex_unlock(&me->lock);
}

void sp_i_comm_rest(sp_comm *me, bool ended)
{
    sp_comm_world *world = me->world;
    pthread_mutex_lock(&world->rest_lock);
    if (ended) {
        end(me);
    }
    bool for_ever = --world->at_work == 0 && sp_i_comm_all_wait(world);
    pthread_mutex_unlock(&world->rest_lock);
    if (for_ever) {
        sp_i_comm_give_up(world);
    }
}

void sp_i_comm_time_out(sp_comm_world *world)
{
    bool late = false;
    pthread_mutex_lock(&world->rest_lock);
    for (int i = 0; !late && i < world->rank_count; i++) {
        pthread_mutex_lock(&world->ranks[i].lock);
        late = !world->ranks[i].ended;
        pthread_mutex_unlock(&world->ranks[i].lock);
    }
    if (late) {
        sp_i_comm_give_up_late(world);
    }
    pthread_mutex_unlock(&world->rest_lock);
}
