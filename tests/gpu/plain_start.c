// There is no BLAS to be set up (plain_gemm.c).
#include "kernels/start.h"

void sp_kernels_start(void)
{
}

const char *sp_kernels_blas_core(void)
{
    return "none";
}
