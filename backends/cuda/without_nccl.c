// In place of nccl.c where NCCL's headers were not there when this was built.
#include <stdio.h>

#include "backends/cuda/nccl_bytes.h"

int sp_i_nccl_version(char reason[SP_I_CUDA_TEXT])
{
    snprintf(reason, SP_I_CUDA_TEXT, "this build has no NCCL: its headers were not found");
    return 0;
}

sp_status sp_i_nccl_new(const sp_i_nccl_options *options, sp_i_nccl **made, sp_error *err)
{
    static const char text[] = "this build has no NCCL: its headers were not found";
    *made = NULL;
    options->exchange.abort(options->exchange.context, SP_ERR_USAGE, text);
    return sp_error_set(err, SP_ERR_USAGE, "rank %d: %s", options->rank, text);
}

void sp_i_nccl_free(sp_i_nccl *n)
{
    SP_ASSERT(n == NULL);
}

// ---- of worlds that are never made ----

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define NEVER(type, call, ...)                          \
    type call(__VA_ARGS__)                              \
    {                                                   \
        SP_UNREACHABLE("a world of NCCL without NCCL"); \
    }

NEVER(sp_status, sp_i_nccl_exchange_bytes, sp_i_nccl *n, const void *mine, size_t bytes,
      sp_transport_part *parts, cudaStream_t stream, sp_error *err)
NEVER(int, sp_i_nccl_world_version, const sp_i_nccl *n)
NEVER(sp_status, sp_i_nccl_group_new, sp_i_nccl *n, const char *name, const int *ranks, int size,
      int *group, sp_error *err)
NEVER(int, sp_i_nccl_member, const sp_i_nccl *n, int group)
NEVER(sp_status, sp_i_nccl_all_reduce, sp_i_nccl *n, int group, sp_element element, bool maximum,
      const void *in, void *out, int64_t count, cudaStream_t stream, sp_error *err)
NEVER(sp_status, sp_i_nccl_all_gather, sp_i_nccl *n, int group, sp_element element, const void *in,
      void *out, int64_t count, cudaStream_t stream, sp_error *err)
NEVER(sp_status, sp_i_nccl_all_gather_rows, sp_i_nccl *n, int group, sp_element element,
      const void *in, void *out, const int64_t *rows, int64_t width, cudaStream_t stream,
      sp_error *err)
NEVER(sp_status, sp_i_nccl_reduce_scatter, sp_i_nccl *n, int group, sp_element element,
      bool maximum, const void *in, void *out, int64_t count, cudaStream_t stream, sp_error *err)
NEVER(sp_status, sp_i_nccl_reduce_scatter_rows, sp_i_nccl *n, int group, sp_element element,
      bool maximum, const void *in, void *out, const int64_t *rows, int64_t width,
      cudaStream_t stream, sp_error *err)
NEVER(sp_status, sp_i_nccl_broadcast, sp_i_nccl *n, int group, sp_element element, const void *in,
      void *out, int64_t count, int root, cudaStream_t stream, sp_error *err)
NEVER(sp_status, sp_i_nccl_all_to_all, sp_i_nccl *n, int group, sp_element element, const void *in,
      void *out, int64_t count, cudaStream_t stream, sp_error *err)
NEVER(sp_status, sp_i_nccl_send, sp_i_nccl *n, int group, sp_element element, const void *from,
      int64_t count, int member, cudaStream_t stream, sp_error *err)
NEVER(sp_status, sp_i_nccl_receive, sp_i_nccl *n, int group, sp_element element, void *to,
      int64_t count, int member, cudaStream_t stream, sp_error *err)
NEVER(sp_status, sp_i_nccl_batch_begin, sp_i_nccl *n, sp_error *err)
NEVER(sp_status, sp_i_nccl_batch_end, sp_i_nccl *n, sp_error *err)
NEVER(sp_status, sp_i_nccl_check, sp_i_nccl *n, sp_error *err)
NEVER(sp_status, sp_i_nccl_settle, sp_i_nccl *n, cudaStream_t stream, sp_error *err)
NEVER(sp_status, sp_i_nccl_abort, sp_i_nccl *n, sp_status status, const char *format, ...)
