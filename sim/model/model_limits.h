// Largest sizes that are read: every parameter count then fits int64_t (3*h*f*experts*layers is
// below 2^62.6), and 16 bytes for each of at most 2^50 parameters do as well.
#ifndef SLIMPACK_SIM_MODEL_MODEL_LIMITS_H
#define SLIMPACK_SIM_MODEL_MODEL_LIMITS_H

#include <stdint.h>

enum {
    SP_I_MAX_LAYERS = 1 << 12,
    SP_I_MAX_HIDDEN = 1 << 18,
    SP_I_MAX_FFN = 1 << 21,
    SP_I_MAX_HEADS = 1 << 12,
    SP_I_MAX_HEAD_DIM = 1 << 12,
    SP_I_MAX_VOCAB = 1 << 27,
    SP_I_MAX_POSITIONS = 1 << 27,
    SP_I_MAX_EXPERTS = 1 << 10
};

#define SP_I_MAX_PARAMETERS (INT64_C(1) << 50)

#endif
