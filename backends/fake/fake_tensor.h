// The tensor that the fake backend is told to have.
#ifndef SLIMPACK_BACKENDS_FAKE_FAKE_TENSOR_H
#define SLIMPACK_BACKENDS_FAKE_FAKE_TENSOR_H

#include "backends/api/backend.h"

typedef struct sp_i_fake_tensor {
    sp_tensor_info info;
    double *values; // owned
} sp_i_fake_tensor;

// From NAME=V;V;...
sp_status sp_i_fake_tensor_read(const char *text, sp_i_fake_tensor *tensor, sp_error *err);

#endif
