// Ranges on the host's timeline for profilers (NVTX, Nsight Systems), named after the plan's
// actions. Without a profiler, and in builds without NVTX's header, they cost next to nothing and
// do nothing.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_NVTX_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_NVTX_H

// Ranges of the calling thread, one inside another.
typedef struct sp_i_cuda_ranges {
    void (*push)(const char *name);
    void (*pop)(void);
} sp_i_cuda_ranges;

extern const sp_i_cuda_ranges sp_i_cuda_nvtx;

enum { SP_I_CUDA_RANGE = 48 };

// Around the launches of an action, as "F3.1 rank 2": the action as in plan.json, then who works at
// it; cut to SP_I_CUDA_RANGE - 1 bytes. Each push has its pop, by the same thread.
void sp_i_cuda_range_push(const sp_i_cuda_ranges *ranges, const char *action, int rank);
void sp_i_cuda_range_pop(const sp_i_cuda_ranges *ranges);

#endif
