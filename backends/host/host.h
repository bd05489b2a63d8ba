// The CPU executor: a real transformer in fp32 or fp64, trained by the actions of a plan, with
// every rank in one process and in virtual time.
#ifndef SLIMPACK_BACKENDS_HOST_HOST_H
#define SLIMPACK_BACKENDS_HOST_HOST_H

#include "backends/backend.h"

// Llama-style and GPT-2-style models as sim/model describes them, without experts and norms of
// queries and keys. One device. Tokens of a sample are drawn by seed, step and sample id; a
// sample of n tokens trains n predictions, and the loss is their mean over the whole batch.
// Everything but times is the same bits on every run of a machine.
//
// Memory is counted in the widths of the saved-tensor table (arena.h) unless the option `bytes`
// says "real"; requests' limits are in the same measure.
extern const sp_backend_ops sp_host_backend;

#endif
