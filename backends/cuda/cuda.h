// The slots of the backend's table (backends/backend.h).
#ifndef SLIMPACK_BACKENDS_CUDA_CUDA_H
#define SLIMPACK_BACKENDS_CUDA_CUDA_H

#include "backends/backend.h"

sp_status sp_i_cuda_backend_count(int *count, sp_error *err);
sp_status sp_i_cuda_backend_info(int device, sp_device_info *info, sp_error *err);
sp_status sp_i_cuda_backend_memory(int device, sp_device_memory *memory, sp_error *err);
// A device without capabilities is given no plan; one that comes all the same is refused.
sp_status sp_i_cuda_backend_execute(int device, const sp_run_request *request,
                                    sp_measured_step *steps, void **state, sp_error *err);

#endif
