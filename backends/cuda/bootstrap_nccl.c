// The ranks' connections as what NCCL's worlds need beside NCCL.
#include "backends/cuda/nccl.h"

static sp_status broadcast(void *context, void *data, size_t bytes, sp_error *err)
{
    return sp_i_bootstrap_broadcast(context, data, bytes, err);
}

static sp_status check(void *context, sp_error *err)
{
    return sp_i_bootstrap_check(context, err);
}

static void give_up(void *context, sp_status status, const char *text)
{
    (void)sp_i_bootstrap_abort(context, status, "%s", text);
}

sp_i_nccl_exchange sp_i_nccl_over_bootstrap(sp_i_bootstrap *bootstrap)
{
    return (sp_i_nccl_exchange){bootstrap, broadcast, check, give_up};
}
