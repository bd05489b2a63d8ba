#include "tests/gpu/support/nccl_ranks.h"

#include <pthread.h>

#include "tests/gpu/support/forked_ranks.h"
#include "tests/support/test_main.h"

static sp_i_nccl_api api;
sp_i_nccl_api other_api;
static sp_i_cuda_api cuda;

cudaStream_t world_stream(void)
{
    return (cudaStream_t)(void *)&fake_nccl_stream;
}

static void *rank_main(void *context)
{
    rank_of_world *me = context;
    sp_i_nccl_options options = {
        .device = {&cuda, me->place.rank}, .timeout_ms = me->timeout_ms, .api = me->api};
    me->status = sp_i_rendezvous_join(&me->place, "plan 1", LONG_MS, &me->rendezvous, &me->err);
    if (me->status == SP_OK) {
        options.rendezvous = me->rendezvous;
        me->status = sp_i_nccl_new(&options, &me->n, &me->err);
    }
    if (me->status == SP_OK) {
        me->status = me->body(me, &me->err);
    }
    sp_i_nccl_free(me->n);
    sp_i_rendezvous_free(me->rendezvous);
    return NULL;
}

rank_of_world world[FAKE_NCCL_RANKS];

void run_world(int ranks, world_body body, int timeout_ms)
{
    forked_ranks f;
    pthread_t threads[FAKE_NCCL_RANKS];
    forked_ranks_init(&f, ranks);
    for (int i = 0; i < ranks; i++) {
        world[i] = (rank_of_world){.place = f.place,
                                   .body = body,
                                   .timeout_ms = timeout_ms,
                                   .api = i == 1 ? &other_api : &api};
        world[i].place.rank = i;
        assert_int_equal(pthread_create(&threads[i], NULL, rank_main, &world[i]), 0);
    }
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(atomic_load(&nccl.live), 0);
    assert_int_equal(atomic_load(&nccl.open), 0);
    assert_false(atomic_load(&nccl.stream_was_other));
}

void reset_world(void)
{
    fake_nccl_reset(&api, &cuda);
    other_api = api;
}

void assert_all_well(int ranks)
{
    for (int i = 0; i < ranks; i++) {
        assert_string_equal(world[i].err.message[0], "");
        assert_int_equal(world[i].status, SP_OK);
    }
    assert_int_equal(atomic_load(&nccl.aborted), 0);
}
