// The variables that a launcher leaves in the environment say which process of several this one is.
#ifndef SLIMPACK_SIM_BASE_LAUNCHER_H
#define SLIMPACK_SIM_BASE_LAUNCHER_H

#include <stdbool.h>

#include "sim/base/status.h"

enum { SP_LAUNCHER_RANKS = 1 << 16 }; // most ranks of a run

typedef struct sp_launcher_place {
    int rank, ranks;
    int local_rank;       // among the ranks of this machine; -1: the launcher does not say
    int local_ranks;      // of this machine; 0: the launcher does not say
    bool one_machine;     // all ranks are known to be on this machine
    const char *variable; // that gave the rank, such as "RANK"; NULL: started alone, rank 0 of 1
} sp_launcher_place;

// Reads it from the environment; `lookup` is getenv or a test's. The first of these that is set:
//   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE      torchrun, where `torchrun` says so
//   OMPI_COMM_WORLD_RANK, .._SIZE, .._LOCAL_RANK, ..    Open MPI
//   PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, ..             MPICH and others
//   SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, ..  srun; a batch script itself is no rank
// Slurm comes last because mpirun inside an allocation starts its helpers by srun. Open MPI and PMI
// that say different things are an error. SP_ERR_USAGE with the variable's name.
sp_status sp_launcher_read(char *(*lookup)(const char *name), bool torchrun,
                           sp_launcher_place *place, sp_error *err);

// The variables that are looked for beside torchrun's, as text for a message.
extern const char sp_launcher_variables[];

// The value of a variable; NULL where it is not set or empty.
const char *sp_launcher_get(char *(*lookup)(const char *name), const char *name);

#endif
