// Ranks of a communicator as threads of a test.
#ifndef SLIMPACK_TESTS_SUPPORT_COMM_RANKS_H
#define SLIMPACK_TESTS_SUPPORT_COMM_RANKS_H

#include "backends/ranks/comm.h"
#include "tests/support/test_main.h"

OWNS(sp_comm_world)

// A world that must be made; spins as chosen.
sp_comm_world *world_of(int ranks);
// Without a machine: the CPU.
sp_comm_world *world_with(int ranks, const sp_comm_options *options);
int group_of(sp_comm_world *world, const char *name, const int *ranks, int size);
int group_of_all(sp_comm_world *world);

// sp_comm_run with a deadline below that of a test case.
sp_status run_ranks(sp_comm_world *world, sp_comm_body *body, void *data, sp_error *err);
// The same, and all must end well.
void assert_ranks(sp_comm_world *world, sp_comm_body *body, void *data);

// A check inside a rank, where cmocka's cannot stand: the status to return.
#define RANK_CHECK(condition) \
    ((condition)              \
         ? SP_OK              \
         : sp_error_set(err, SP_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #condition))

// The same, leaving the rank where it does not hold.
#define RANK_MUST(condition) SP_TRY(RANK_CHECK(condition))

// Sleeps now and then for up to `most_us`, to disturb the ranks' order.
void sleep_sometimes(sp_prng *prng, uint64_t one_of, uint64_t most_us);
void sleep_us(int64_t us);

// A number that depends on nothing but its place, with magnitudes so far apart that sums show the
// order in which they were formed.
double number_at(uint64_t round, uint64_t rank, uint64_t i);

#endif
