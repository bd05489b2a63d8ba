#include "backends/cuda/distributed/nccl_api.h"

#include <stdio.h>

#include "backends/cuda/device/api.h"

#define ENTRY(call)                                 \
    {                                               \
        "nccl" #call, offsetof(sp_i_nccl_api, call) \
    }

bool sp_i_nccl_api_init(sp_i_nccl_api *api, char *reason, size_t reason_bytes)
{
    static const char *const names[] = {"libnccl.so.2", NULL};
    static const sp_i_library_symbol symbols[] = {
        ENTRY(GetVersion),
        ENTRY(GetUniqueId),
        ENTRY(GetErrorString),
        ENTRY(GetLastError),
        ENTRY(CommInitRankConfig),
        ENTRY(CommSplit),
        ENTRY(CommGetAsyncError),
        ENTRY(CommFinalize),
        ENTRY(CommDestroy),
        ENTRY(CommAbort),
        ENTRY(AllReduce),
        ENTRY(Reduce),
        ENTRY(Broadcast),
        ENTRY(AllGather),
        ENTRY(ReduceScatter),
        ENTRY(Send),
        ENTRY(Recv),
        ENTRY(GroupStart),
        ENTRY(GroupEnd),
    };
    if (!sp_i_library_open(names, symbols, sizeof symbols / sizeof *symbols, api, reason,
                           reason_bytes)) {
        return false;
    }
    api->version = 0;
    if (api->GetVersion(&api->version) != ncclSuccess || api->version < SP_I_NCCL_OLDEST) {
        snprintf(reason, reason_bytes, "NCCL %d.%d is older than %d.%d", api->version / 10000,
                 api->version / 100 % 100, SP_I_NCCL_OLDEST / 10000, SP_I_NCCL_OLDEST / 100 % 100);
        return false;
    }
    return true;
}
