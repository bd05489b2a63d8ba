// In place of rendezvous_mpi.c where MPI was not found when this was built.
#include "backends/cuda/distributed/rendezvous_mpi.h"

bool sp_i_mpi_place(sp_i_place *place)
{
    (void)place;
    return false;
}

sp_status sp_i_mpi_join(const sp_i_place *place, const char *card, int timeout_ms,
                        sp_i_rendezvous **made, sp_error *err)
{
    (void)place;
    (void)card;
    (void)timeout_ms;
    (void)made;
    (void)err;
    SP_UNREACHABLE("ranks of MPI without MPI");
}
