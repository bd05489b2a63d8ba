// In place of what needs NCCL's headers (nccl.c, calibrate_collectives.c) where they were not there
// when this was built.
#include <stdio.h>

#include "backends/cuda/calibration.h"
#include "backends/cuda/nccl.h"

static const char text[] = "this build has no NCCL: its headers were not found";

int sp_i_nccl_version(char reason[SP_I_CUDA_TEXT])
{
    snprintf(reason, SP_I_CUDA_TEXT, "%s", text);
    return 0;
}

sp_status sp_i_nccl_transport_new(const sp_i_nccl_transport_options *options SP_UNUSED,
                                  sp_transport **made, sp_error *err)
{
    *made = NULL;
    return sp_error_set(err, SP_ERR_USAGE, "%s", text);
}

void sp_i_nccl_transport_free(sp_transport *transport)
{
    SP_ASSERT(transport == NULL);
}

sp_status sp_i_cuda_calibrate_together(const sp_i_cuda_team *team,
                                       sp_i_cuda_measure measure SP_UNUSED, void *context SP_UNUSED,
                                       json_t **document, sp_error *err)
{
    *document = NULL;
    return sp_error_set(err, SP_ERR_USAGE, "rank %d: %s", team->place->rank, text);
}
