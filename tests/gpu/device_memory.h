// A run's memory as the device saw it (sp_i_cuda_runtime_report) beside what the executor counts
// and the prediction says, rank by rank.
#ifndef SLIMPACK_TESTS_GPU_DEVICE_MEMORY_H
#define SLIMPACK_TESTS_GPU_DEVICE_MEMORY_H

#include <jansson.h>
#include <stdbool.h>

#include "backends/api/backend.h"

// Bytes. `context`, `libraries`, `workspaces` and `beside` are constants of the device and its
// software, which no prediction has; `counted` is the sum of the ranks' peaks.
typedef struct device_memory {
    int64_t context, libraries, workspaces, beside, block_peak, device, counted;
    double error; // of what is counted, against block_peak without workspaces; above 0: too much
} device_memory;

// False where the report has no memory.
bool device_memory_of(const json_t *report, const sp_measured_step *step, device_memory *memory);

// The mean of |error| over `count` cases, at least one.
double device_memory_mape(const device_memory *cases, int count);

#endif
