// In place of transport_mpi.c where MPI was not found when this was built.
#include <stdlib.h>

#include "experiments/sweep/transport.h"

sp_status sweep_transport_mpi(sweep_transport **transport, sp_error *err)
{
    const char *processes = getenv("OMPI_COMM_WORLD_SIZE");
    processes = processes != NULL ? processes : getenv("PMI_SIZE");
    *transport = NULL;
    return processes == NULL || atoi(processes) < 2
               ? SP_OK
               : sp_error_set(err, SP_ERR_USAGE,
                              "a sweep by %.16s processes needs MPI, which this build does not "
                              "have; --shard divides a sweep without it",
                              processes);
}
