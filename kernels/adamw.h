// AdamW (Loshchilov, Hutter: "Decoupled Weight Decay Regularization", 2019, algorithm 2).
#include <stdint.h>

#include "kernels/adamw_step.h"
#include "kernels/real.h"

// One step over n parameters; updates parameter and both moments, which start at zero, in place:
//   g = gradient_scale gradient
//   first = beta1 first + (1 - beta1) g
//   second = beta2 second + (1 - beta2) g^2
//   parameter -= learning_rate (firsthat / (sqrt(secondhat) + epsilon) + weight_decay parameter)
// with the bias corrections firsthat = first / (1 - beta1^step), secondhat likewise. Linear time.
void SP_KERNEL(adamw)(const sp_kernel_adamw_step *step, int64_t n, const real *restrict gradient,
                      real *restrict parameter, real *restrict first, real *restrict second);
