// What one AdamW step needs to know, in either type.
#ifndef SLIMPACK_KERNELS_ADAMW_STEP_H
#define SLIMPACK_KERNELS_ADAMW_STEP_H

#include <stdint.h>

typedef struct sp_kernel_adamw_step {
    int64_t step; // from 1 on
    double learning_rate, beta1, beta2, epsilon;
    double weight_decay;   // times the learning rate, as the algorithm's schedule multiplier
    double gradient_scale; // below 1 where the gradient's norm is clipped
} sp_kernel_adamw_step;

#endif
