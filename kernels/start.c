#include "kernels/start.h"

#include <cblas.h>

void sp_kernels_start(void)
{
    openblas_set_num_threads(1);
}

const char *sp_kernels_blas_core(void)
{
    return openblas_get_corename();
}
