// Memory of a GPU as that of a machine, and the work on it that no operation is (machine.c).
#include "backends/cuda/device/runtime_state.h"
#include "kernels/cuda_kernels.h"

// ---- memory ----

void *sp_i_cuda_runtime_allocate(sp_runtime *runtime, int64_t bytes)
{
    sp_i_cuda_runtime *m = sp_i_cuda_runtime_of(runtime);
    (void)pthread_mutex_lock(&m->lock);
    void *memory = sp_i_cuda_arena_take(m->arena, bytes);
    (void)pthread_mutex_unlock(&m->lock);
    return memory;
}

void sp_i_cuda_runtime_release(sp_runtime *runtime, void *memory)
{
    sp_i_cuda_runtime *m = sp_i_cuda_runtime_of(runtime);
    (void)pthread_mutex_lock(&m->lock);
    sp_i_cuda_arena_give(m->arena, memory);
    (void)pthread_mutex_unlock(&m->lock);
}

void *sp_i_cuda_runtime_allocate_host(sp_runtime *runtime, int64_t bytes)
{
    const sp_i_cuda_runtime *m = sp_i_cuda_runtime_of(runtime);
    void *memory = NULL;
    bool got = sp_i_cuda_use(&m->device, NULL) == SP_OK &&
               SP_I_CUDA(&m->device, NULL, HostAlloc, &memory, (size_t)(bytes > 0 ? bytes : 1),
                         cudaHostAllocPortable) == SP_OK;
    return got ? memory : NULL;
}

void sp_i_cuda_runtime_release_host(sp_runtime *runtime, void *memory)
{
    if (memory != NULL) {
        (void)sp_i_cuda_runtime_of(runtime)->device.api->FreeHost(memory);
    }
}

// Pinned memory has one address for host and device, so that CUDA finds the direction.
void sp_i_cuda_runtime_copy(sp_runtime *runtime, void *to, const void *from, int64_t bytes)
{
    (void)runtime;
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    if (bytes > 0) {
        SP_I_CUDA_CALL(rank, MemcpyAsync, to, from, (size_t)bytes, cudaMemcpyDefault, rank->stream);
    }
}

// Pieces of whole bf16 elements are copied by a kernel, which is as fast as memory and stays on the
// rank's own SMs.
void sp_i_cuda_runtime_copy_rows(sp_runtime *runtime, int64_t rows, int64_t bytes, void *to,
                                 int64_t to_stride, const void *from, int64_t from_stride)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    uintptr_t odd = (uintptr_t)to | (uintptr_t)from | (uintptr_t)(bytes | to_stride | from_stride);
    if (bytes == to_stride && bytes == from_stride) {
        sp_i_cuda_runtime_copy(runtime, to, from, rows * bytes);
    } else if (odd % sizeof(sp_bf16) == 0) {
        SP_I_CUDA_PUT(rank, copy_rows, rows, bytes / 2, from, from_stride / 2, to, to_stride / 2);
    } else {
        for (int64_t r = 0; r < rows; r++) {
            sp_i_cuda_runtime_copy(runtime, (char *)to + r * to_stride,
                                   (const char *)from + r * from_stride, bytes);
        }
    }
}

void sp_i_cuda_runtime_zero(sp_runtime *runtime, void *to, int64_t bytes)
{
    (void)runtime;
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    if (bytes > 0) {
        SP_I_CUDA_CALL(rank, MemsetAsync, to, 0, (size_t)bytes, rank->stream);
    }
}

void sp_i_cuda_runtime_upload(sp_runtime *runtime, void *to, const void *from, int64_t bytes)
{
    (void)runtime;
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    sp_i_cuda_hold(rank);
    sp_i_cuda_stage(rank, to, from, bytes);
    sp_i_cuda_release(rank);
}

void sp_i_cuda_runtime_download(sp_runtime *runtime, void *to, const void *from, int64_t bytes)
{
    (void)runtime;
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    sp_i_cuda_hold(rank);
    sp_i_cuda_stage_back(rank, to, from, bytes);
    sp_i_cuda_release(rank);
}

// ---- sums ----

void sp_i_cuda_runtime_reduce(sp_runtime *runtime, sp_element element, bool maximum, int64_t count,
                              const void *const *in, int members, void *const *out, int outs)
{
    (void)runtime;
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    switch (element) {
    case SP_ELEMENT_BF16:
        SP_I_CUDA_PUT(rank, reduce_bf16, maximum, count, in, members, out, outs);
        break;
    case SP_ELEMENT_F32:
        SP_I_CUDA_PUT(rank, reduce_fp32, maximum, count, in, members, out, outs);
        break;
    case SP_ELEMENT_F64:
        SP_I_CUDA_PUT(rank, reduce_fp64, maximum, count, in, members, out, outs);
        break;
    default:
        SP_UNREACHABLE("a reduction of bytes");
    }
}

void sp_i_cuda_runtime_sum_of_squares(sp_runtime *runtime, sp_element element, int64_t n,
                                      const void *x, double *sum)
{
    (void)runtime;
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    SP_ASSERT(element == SP_ELEMENT_F32);
    *sum = 0.0;
    sp_i_cuda_hold(rank);
    double *room =
        sp_i_cuda_scratch(rank, (SP_CUDA_SUM_OF_SQUARES_WORKSPACE + 1) * (int64_t)sizeof(double));
    if (room != NULL) {
        double *result = room + SP_CUDA_SUM_OF_SQUARES_WORKSPACE;
        SP_I_CUDA_PUT(rank, sum_of_squares, n, x, false, result, room);
        sp_i_cuda_stage_back(rank, sum, result, sizeof *sum);
    }
    sp_i_cuda_release(rank);
}
