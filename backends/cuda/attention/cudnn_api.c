#include "backends/cuda/attention/cudnn_api.h"

#include "backends/cuda/device/library.h"

#define ENTRY(member, symbol)                    \
    {                                            \
        symbol, offsetof(sp_i_cudnn_api, member) \
    }

bool sp_i_cudnn_api_init(sp_i_cudnn_api *api, char *reason, size_t reason_bytes)
{
    static const char *const names[] = {"libcudnn.so.9", NULL};
    static const sp_i_library_symbol symbols[] = {
        ENTRY(GetVersion, "cudnnGetVersion"),
        ENTRY(GetErrorString, "cudnnGetErrorString"),
        ENTRY(GetLastErrorString, "cudnnGetLastErrorString"),
        ENTRY(Create, "cudnnCreate"),
        ENTRY(Destroy, "cudnnDestroy"),
        ENTRY(SetStream, "cudnnSetStream"),
        ENTRY(CreateDescriptor, "cudnnBackendCreateDescriptor"),
        ENTRY(DestroyDescriptor, "cudnnBackendDestroyDescriptor"),
        ENTRY(Finalize, "cudnnBackendFinalize"),
        ENTRY(SetAttribute, "cudnnBackendSetAttribute"),
        ENTRY(GetAttribute, "cudnnBackendGetAttribute"),
        ENTRY(Execute, "cudnnBackendExecute"),
    };
    return sp_i_library_open(names, symbols, sizeof symbols / sizeof *symbols, api, reason,
                             reason_bytes);
}
