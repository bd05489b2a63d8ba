// Ranges for profilers carry the names of the plan's actions. A profiler that is linked in: NVTX
// asks for it at the first range of the process, and takes its functions for the calls that it
// wants to hear of (nvtx3/nvtxDetail/nvtxInit.h).
#include "backends/cuda/runtime.h"
#include "tests/gpu/support/computing_cublas.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/test_main.h"

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define WITH_NVTX
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

static char heard[120];

static int NVTX_API hear_push(const char *name)
{
    size_t used = strlen(heard);
    snprintf(heard + used, sizeof heard - used, "%s(", name);
    return 0;
}

static int NVTX_API hear_pop(void)
{
    size_t used = strlen(heard);
    snprintf(heard + used, sizeof heard - used, ")");
    return 0;
}

static int NVTX_API listen(NvtxGetExportTableFunc_t tables)
{
    NvtxFunctionTable calls;
    const NvtxExportTableCallbacks *callbacks = tables(NVTX_ETID_CALLBACKS);
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &calls, NULL) == 0) {
        return 0;
    }
    *calls[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)hear_push;
    *calls[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)hear_pop;
    return 1;
}

extern NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr;
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = listen;
#endif
#endif

TEST(a_profiler_hears_the_names_of_actions)
{
#ifdef WITH_NVTX
    sp_cuda_api api;
    sp_i_cublas_api cublas;
    sp_runtime *runtime;
    fake_cuda_reset(&api);
    computing_cublas_reset(&cublas);
    const sp_i_cuda_device device = {&api, 0};
    const sp_i_cuda_runtime_options options = {.ranks = 3, .memory_bytes = INT64_C(64) << 20};
    must_succeed(sp_i_cuda_runtime_new(&device, &cublas, &options, &runtime, ERR));
    runtime->ops->enter(runtime, 2);
    runtime->ops->begin(runtime, "F3.1");
    runtime->ops->begin(runtime, "L2147483647.65535");
    runtime->ops->end(runtime);
    runtime->ops->end(runtime);
    assert_string_equal(heard, "F3.1 rank 2(L2147483647.65535 rank 2())");
    sp_i_cuda_runtime_free(runtime);
#else
    skip();
#endif
}
