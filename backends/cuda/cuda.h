// The slots of the backend's table (backends/api/backend.h).
#ifndef SLIMPACK_BACKENDS_CUDA_CUDA_H
#define SLIMPACK_BACKENDS_CUDA_CUDA_H

#include "backends/api/backend.h"

sp_status sp_i_cuda_backend_count(int *count, sp_error *err);
sp_status sp_i_cuda_backend_info(int device, sp_device_info *info, sp_error *err);
sp_status sp_i_cuda_backend_memory(int device, sp_device_memory *memory, sp_error *err);

#endif
