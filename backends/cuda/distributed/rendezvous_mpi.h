// Ranks that MPI started. A build without MPI has the calls, and none of them ever succeeds.
#ifndef SLIMPACK_BACKENDS_CUDA_RENDEZVOUS_MPI_H
#define SLIMPACK_BACKENDS_CUDA_RENDEZVOUS_MPI_H

#include "backends/cuda/distributed/rendezvous.h"

// Starts MPI and takes rank, ranks and local rank from it. False where MPI is not there or its
// world has another size than the launcher says, as that of an srun without MPI's plug-in.
bool sp_i_mpi_place(sp_i_place *place);

// What sp_i_rendezvous_join does where place->by_mpi.
sp_status sp_i_mpi_join(const sp_i_place *place, const char *card, int timeout_ms,
                        sp_i_rendezvous **made, sp_error *err);

#endif
