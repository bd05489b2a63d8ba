// Ranges for profilers carry the names of the plan's actions.
#include "backends/cuda/device/runtime_state.h"
#include "tests/support/test_main.h"

enum { DEEPEST = 4 };

static char pushed[DEEPEST][SP_I_CUDA_RANGE];
static int depth, pops;

static void push(const char *name)
{
    assert_true(depth < DEEPEST);
    memcpy(pushed[depth++], name, strlen(name) + 1);
}

static void pop(void)
{
    assert_true(depth > 0);
    depth--;
    pops++;
}

static const sp_i_cuda_ranges ranges = {.push = push, .pop = pop};

TEST(ranges_are_named_after_actions)
{
    depth = pops = 0;
    sp_i_cuda_range_push(&ranges, "F3.1", 5);
    sp_i_cuda_range_push(&ranges, "W12", 0);
    assert_int_equal(depth, 2);
    assert_string_equal(pushed[0], "F3.1 rank 5");
    assert_string_equal(pushed[1], "W12 rank 0");
    sp_i_cuda_range_pop(&ranges);
    sp_i_cuda_range_pop(&ranges);
    assert_int_equal(depth, 0);
    assert_int_equal(pops, 2);
}

TEST(the_longest_name_fits)
{
    depth = pops = 0;
    sp_i_cuda_range_push(&ranges, "L2147483647.65535", INT32_MAX);
    assert_string_equal(pushed[0], "L2147483647.65535 rank 2147483647");
    sp_i_cuda_range_pop(&ranges);
}

// A profiler that is linked in: NVTX asks for it at the first range of the process, and takes its
// functions for the calls that it wants to hear of (nvtx3/nvtxDetail/nvtxInit.h).
#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define WITH_NVTX
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

static int NVTX_API hear_push(const char *name)
{
    push(name);
    return depth - 1;
}

static int NVTX_API hear_pop(void)
{
    pop();
    return depth;
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

TEST(a_profiler_hears_the_names)
{
#ifdef WITH_NVTX
    depth = pops = 0;
    sp_i_cuda_range_push(&sp_i_cuda_nvtx, "B7", 2);
    assert_int_equal(depth, 1);
    assert_string_equal(pushed[0], "B7 rank 2");
    sp_i_cuda_range_pop(&sp_i_cuda_nvtx);
    assert_int_equal(depth, 0);
    assert_int_equal(pops, 1);
#else
    skip();
#endif
}
