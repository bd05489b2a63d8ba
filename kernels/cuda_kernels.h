// All CUDA kernels.
#ifndef SLIMPACK_KERNELS_CUDA_KERNELS_H
#define SLIMPACK_KERNELS_CUDA_KERNELS_H

#include "kernels/cuda_activation.h"
#include "kernels/cuda_adamw.h"
#include "kernels/cuda_attention.h"
#include "kernels/cuda_cross_entropy.h"
#include "kernels/cuda_delay.h"
#include "kernels/cuda_elementwise.h"
#include "kernels/cuda_embedding.h"
#include "kernels/cuda_norm.h"
#include "kernels/cuda_reduce.h"
#include "kernels/cuda_rope.h"
#include "kernels/cuda_rows.h"

#endif
