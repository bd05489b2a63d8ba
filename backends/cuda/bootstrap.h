// How the ranks of a run on several machines or processes find each other before they have a GPU
// library between them, and what they tell each other beside it: small messages over TCP, through
// rank 0. No MPI library is needed, only what its launchers or torchrun leave in the environment.
//
// Every rank makes the same calls in the same order, from one thread at a time. Every wait ends:
// after the timeout with a message that names the ranks that are missing, at once where one has
// died or given up. The first failure is final and everyone's: each later call returns it.
#ifndef SLIMPACK_BACKENDS_CUDA_BOOTSTRAP_H
#define SLIMPACK_BACKENDS_CUDA_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"

enum {
    SP_I_BOOTSTRAP_ADDRESS = 256,
    SP_I_BOOTSTRAP_RUN = 64,
    SP_I_BOOTSTRAP_RANKS = 1 << 16, // most ranks of a world
    SP_I_BOOTSTRAP_BYTES = 1 << 28, // of one message
};

// A rank's place in its run.
typedef struct sp_i_bootstrap_place {
    int rank, ranks;
    int local_rank;       // among the ranks of this machine; -1: the launcher does not say
    const char *variable; // that gave the rank, such as "RANK"; NULL: started alone, rank 0 of 1
    char address[SP_I_BOOTSTRAP_ADDRESS]; // of rank 0's machine: name, IPv4 or IPv6
    int port;                             // where rank 0 listens
    char run[SP_I_BOOTSTRAP_RUN];         // equal at the ranks of a run, another elsewhere
} sp_i_bootstrap_place;

// Reads it from the environment; `lookup` is getenv or a test's. The first of these that is set:
//   RANK, WORLD_SIZE, LOCAL_RANK                   torchrun
//   OMPI_COMM_WORLD_RANK, .._SIZE, .._LOCAL_RANK   Open MPI
//   PMI_RANK, PMI_SIZE, MPI_LOCALRANKID            MPICH and others
//   SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID      srun; a batch script itself is no rank
// Two ranks or more need MASTER_ADDR and MASTER_PORT. Where torchrun's agent listens on that port
// itself (TORCHELASTIC_USE_AGENT_STORE) it is the next one; SLIMPACK_PORT is taken before both. The
// run is SLIMPACK_RUN_ID, TORCHELASTIC_RUN_ID or SLURM_JOB_ID, the first that is set.
// SP_ERR_USAGE with the variable's name.
sp_status sp_i_bootstrap_place_read(char *(*lookup)(const char *name), sp_i_bootstrap_place *place,
                                    sp_error *err);

// CRC-32 (ISO-HDLC, as in zlib and Ethernet) of a text, such as that of the plan.
uint32_t sp_i_bootstrap_hash(const void *text, size_t bytes);

typedef struct sp_i_bootstrap sp_i_bootstrap;

// Returns when all ranks have come, all of the same protocol, world size and plan. Rank 0 listens
// on the address alone where it is one of this machine's loopback, on all addresses otherwise.
// Connections of others than this run's ranks are closed and counted in messages.
// SP_ERR_LIMIT: time is over; SP_ERR_USAGE: a rank that does not fit; SP_ERR_IO: the network.
sp_status sp_i_bootstrap_join(const sp_i_bootstrap_place *place, uint32_t plan_hash, int timeout_ms,
                              sp_i_bootstrap **made, sp_error *err);
// Says goodbye: ranks that need this one no longer do not take it for dead. Not complete where a
// call has failed.
void sp_i_bootstrap_free(sp_i_bootstrap *b);
int sp_i_bootstrap_rank(const sp_i_bootstrap *b);
int sp_i_bootstrap_ranks(const sp_i_bootstrap *b);

// data [bytes] of rank 0 to all; `bytes` is the same everywhere.
sp_status sp_i_bootstrap_broadcast(sp_i_bootstrap *b, void *data, size_t bytes, sp_error *err);

typedef struct sp_i_bootstrap_part {
    unsigned char *data;
    size_t bytes;
} sp_i_bootstrap_part;

// data [bytes], of any size at each rank, to rank 0: parts [ranks] there, freed by the caller with
// sp_i_bootstrap_parts_fini; zeroed where the call fails. `parts` is not used elsewhere.
sp_status sp_i_bootstrap_gather(sp_i_bootstrap *b, const void *data, size_t bytes,
                                sp_i_bootstrap_part *parts, sp_error *err);
void sp_i_bootstrap_parts_fini(sp_i_bootstrap_part *parts, int ranks);

// mine [bytes], of any size at each rank, to every rank: all [ranks], freed by the caller with
// sp_i_bootstrap_parts_fini; zeroed where the call fails.
sp_status sp_i_bootstrap_exchange(sp_i_bootstrap *b, const void *mine, size_t bytes,
                                  sp_i_bootstrap_part *all, sp_error *err);

// Returns when every rank has called it.
sp_status sp_i_bootstrap_barrier(sp_i_bootstrap *b, sp_error *err);

// Does not wait: SP_OK, or that a rank has given up or died. For those who wait for something else.
sp_status sp_i_bootstrap_check(sp_i_bootstrap *b, sp_error *err);

// Lets all ranks fail with "rank 2: <text>"; any status but SP_OK. Others learn of it in their next
// call. Returns the status of the failure that was first.
sp_status sp_i_bootstrap_abort(sp_i_bootstrap *b, sp_status status, const char *format, ...)
    SP_PRINTF(3, 4);
// The same with the whole text, which says who failed.
sp_status sp_i_bootstrap_abort_with(sp_i_bootstrap *b, sp_status status, const char *text);

#endif
