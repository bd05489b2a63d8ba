#include "backends/cuda/products/cublas_api.h"

#include "backends/cuda/device/library.h"

#define ENTRY(call)                                       \
    {                                                     \
        "cublasLt" #call, offsetof(sp_i_cublas_api, call) \
    }

bool sp_i_cublas_api_init(sp_i_cublas_api *api, char *reason, size_t reason_bytes)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so", NULL};
    static const sp_i_library_symbol symbols[] = {
        ENTRY(GetVersion),
        ENTRY(GetStatusName),
        ENTRY(Create),
        ENTRY(Destroy),
        ENTRY(MatmulDescCreate),
        ENTRY(MatmulDescDestroy),
        ENTRY(MatmulDescSetAttribute),
        ENTRY(MatrixLayoutCreate),
        ENTRY(MatrixLayoutDestroy),
        ENTRY(MatmulPreferenceCreate),
        ENTRY(MatmulPreferenceDestroy),
        ENTRY(MatmulPreferenceSetAttribute),
        ENTRY(MatmulAlgoGetHeuristic),
        ENTRY(Matmul),
    };
    return sp_i_library_open(names, symbols, sizeof symbols / sizeof *symbols, api, reason,
                             reason_bytes);
}
