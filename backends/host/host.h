// Plans on the CPU: the executor (backends/executor) on this machine's memory and cores, in fp32 or
// fp64, on the virtual clock and on the wall clock.
#ifndef SLIMPACK_BACKENDS_HOST_HOST_H
#define SLIMPACK_BACKENDS_HOST_HOST_H

#include "backends/api/backend.h"
#include "backends/executor/executor.h"

// Llama-style and GPT-2-style models as sim/model describes them, without experts and norms of
// queries and keys. One device. Tokens of a sample are drawn by seed, step and sample id; a
// sample of n tokens trains n predictions, and the loss is their mean over the whole batch.
// Everything but times is the same bits on every run of a machine.
//
// Memory is counted in the widths of the saved-tensor table (backends/executor/stage.h) unless the
// option `bytes` says "real"; requests' limits are in the same measure.
extern const sp_backend_ops sp_host_backend;

// Once before kernels are called; without address space for their work memory SP_ERR_NO_MEMORY.
sp_status sp_i_host_start(sp_error *err);

// A run on this machine's CPU.
sp_status sp_i_host_run_new_cpu(const sp_run_request *request, sp_i_exec_run **run, sp_error *err);

#endif
