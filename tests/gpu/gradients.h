// Gradients and loss of a step on a GPU in bf16 beside the plain step in fp64 on the CPU: tensor by
// tensor, against what bf16 explains (backends/api/proof.h).
#ifndef SLIMPACK_TESTS_GPU_GRADIENTS_H
#define SLIMPACK_TESTS_GPU_GRADIENTS_H

#include "backends/api/device.h"

typedef struct gradients_report {
    double worst; // the largest share that a distance has of its bound; the step agrees up to 1
    char tensor[SP_TENSOR_NAME]; // whose it is; "loss"
    double distance, bound;      // relative
    int tensors;                 // that were compared
    double loss, plain_loss;
} gradients_report;

// `request` is of one step in bf16, from rounded parameters (option rounded=true); `more` are
// options of the GPU alone. Tensors that are not there, or no numbers, have an infinite distance.
sp_status gradients_compare(const sp_backend *gpu, const sp_backend *cpu,
                            const sp_run_request *request, const sp_backend_option *more,
                            size_t more_count, gradients_report *report, sp_error *err);

// The same for the first batch of a plan: rounded, by the wall clock where its name ends in
// "-wall".
sp_status gradients_compare_file(const sp_backend *gpu, const sp_backend *cpu, const char *path,
                                 const sp_backend_option *more, size_t more_count,
                                 gradients_report *report, sp_error *err);

#endif
