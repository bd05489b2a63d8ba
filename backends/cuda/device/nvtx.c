#include "backends/cuda/device/nvtx.h"

#include <stdio.h>

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif
#endif

static void push(const char *name)
{
#ifdef WITH_NVTX
    (void)nvtxRangePushA(name);
#else
    (void)name;
#endif
}

static void pop(void)
{
#ifdef WITH_NVTX
    (void)nvtxRangePop();
#endif
}

const sp_i_cuda_ranges sp_i_cuda_nvtx = {.push = push, .pop = pop};

void sp_i_cuda_range_push(const sp_i_cuda_ranges *ranges, const char *action, int rank)
{
    char name[SP_I_CUDA_RANGE];
    snprintf(name, sizeof name, "%s rank %d", action, rank);
    ranges->push(name);
}

void sp_i_cuda_range_pop(const sp_i_cuda_ranges *ranges)
{
    ranges->pop();
}
