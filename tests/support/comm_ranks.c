#include "tests/support/comm_ranks.h"

#include <time.h>

#include "backends/host/cpu_runtime.h"
#include "tests/support/test_main.h"

sp_comm_world *world_of(int count)
{
    return world_with(count, &(sp_comm_options){0});
}

sp_comm_world *world_with(int count, const sp_comm_options *options)
{
    sp_comm_options own = *options;
    own.runtime = own.runtime != NULL ? own.runtime : sp_runtime_cpu();
    sp_comm_world *world;
    assert_int_equal(sp_comm_world_new(count, &own, &world, NULL), SP_OK);
    return world;
}

int group_of(sp_comm_world *world, const char *name, const int *members, int size)
{
    int group = -1;
    assert_int_equal(sp_comm_group_new(world, name, members, size, &group, NULL), SP_OK);
    return group;
}

int group_of_all(sp_comm_world *world)
{
    int all[64];
    for (int i = 0; i < sp_comm_world_ranks(world); i++) {
        all[i] = i;
    }
    return group_of(world, "all", all, sp_comm_world_ranks(world));
}

sp_status run_ranks(sp_comm_world *world, sp_comm_body *body, void *data, sp_error *err)
{
    return sp_comm_run(world, body, data, INT64_C(50000000000), err);
}

void assert_ranks(sp_comm_world *world, sp_comm_body *body, void *data)
{
    sp_error err = {0};
    must_hold(run_ranks(world, body, data, &err) == SP_OK, "%s", err.message[0]);
}

void sleep_us(int64_t us)
{
    struct timespec time = {.tv_sec = (time_t)(us / 1000000),
                            .tv_nsec = (long)(us % 1000000) * 1000};
    nanosleep(&time, NULL);
}

void sleep_sometimes(sp_prng *prng, uint64_t one_of, uint64_t most_us)
{
    if (sp_prng_below(prng, one_of) == 0) {
        sleep_us((int64_t)sp_prng_below(prng, most_us + 1));
    }
}

double number_at(uint64_t round, uint64_t rank, uint64_t i)
{
    uint64_t bits = (round * 1000003 + rank) * UINT64_C(0x9e3779b97f4a7c15) + i;
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    bits ^= bits >> 31;
    double fraction = (double)(bits >> 11) * 0x1p-53 - 0.5;
    return ldexp(fraction, (int)(bits % 21) - 10);
}
