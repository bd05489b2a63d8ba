// Worlds of NCCL whose ranks are threads of this process, on the fake of fake_nccl.h.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_NCCL_RANKS_H
#define SLIMPACK_TESTS_GPU_SUPPORT_NCCL_RANKS_H

#include "backends/cuda/distributed/nccl.h"
#include "tests/gpu/support/fake_nccl.h"

enum { LONG_MS = 60000, SHORT_MS = 50 };

typedef struct rank_of_world rank_of_world;
typedef sp_status (*world_body)(rank_of_world *me, sp_error *err);

struct rank_of_world {
    sp_i_place place;
    world_body body;
    int timeout_ms;
    const sp_i_nccl_api *api;
    sp_i_rendezvous *rendezvous;
    sp_i_nccl *n;
    sp_status status; // what came of it
    sp_error err;
};

extern rank_of_world world[FAKE_NCCL_RANKS];
extern sp_i_nccl_api other_api; // of rank 1, where it has another

// A fake on which nothing fails. What is to fail is set after this.
void reset_world(void);
// Makes a world of so many ranks, runs the body in each and frees it; nothing may be left of it.
void run_world(int ranks, world_body body, int timeout_ms);
void assert_all_well(int ranks);
// The stream of all calls.
cudaStream_t world_stream(void);

#endif
