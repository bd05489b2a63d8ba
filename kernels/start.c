#include "kernels/kernels.h"

#ifdef SP_OPENBLAS
#include <cblas.h>
#endif

void sp_kernels_start(void)
{
#ifdef SP_OPENBLAS
    openblas_set_num_threads(1);
#endif
}

const char *sp_kernels_blas_core(void)
{
#ifdef SP_OPENBLAS
    return openblas_get_corename();
#else
    return "none";
#endif
}
