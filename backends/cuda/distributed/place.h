// Which of the processes of a run this one is, by what its launcher says.
#ifndef SLIMPACK_BACKENDS_CUDA_PLACE_H
#define SLIMPACK_BACKENDS_CUDA_PLACE_H

#include <stdbool.h>

#include "sim/base/status.h"

enum {
    SP_I_PLACE_FOLDER = 512,
    SP_I_PLACE_RUN = 128,
};

typedef struct sp_i_place {
    int rank, ranks;
    int local_rank;       // among the ranks of this machine; -1: the launcher does not say
    const char *variable; // that gave the rank, such as "RANK"; NULL: started alone, rank 0 of 1
    bool by_mpi;          // the ranks are MPI's, and meet by it
    // Where they meet otherwise: a folder that all of them see, and a name that is equal at the
    // ranks of a run and another elsewhere.
    char folder[SP_I_PLACE_FOLDER];
    char run[SP_I_PLACE_RUN];
} sp_i_place;

// Reads it from the environment, rank and ranks as sim/base/launcher.h says; `lookup` is getenv or
// a test's. The folder is SLIMPACK_RENDEZVOUS; ranks that are all on this machine need none. The
// run is named by SLIMPACK_RUN_ID, TORCHELASTIC_RUN_ID or SLURM_JOB_ID, the first that is set, and
// MASTER_PORT. SP_ERR_USAGE with the variable's name.
sp_status sp_i_place_read(char *(*lookup)(const char *name), sp_i_place *place, sp_error *err);

// Of this process. Where MPI's launcher started it and this build has MPI, rank and ranks are MPI's
// own; MPI then stays until the process ends.
sp_status sp_i_place_of_process(sp_i_place *place, sp_error *err);

#endif
