#include "backends/executor/elements.h"

#include "kernels/bf16.h"

void sp_i_exec_elements_from(sp_element element, int64_t n, const double *from, void *to)
{
    SP_ASSERT(element != SP_ELEMENT_BYTE);
    for (int64_t i = 0; i < n; i++) {
        if (element == SP_ELEMENT_F64) {
            ((double *)to)[i] = from[i];
        } else if (element == SP_ELEMENT_F32) {
            ((float *)to)[i] = (float)from[i];
        } else {
            ((sp_bf16 *)to)[i] = sp_bf16_from_float((float)from[i]);
        }
    }
}

void sp_i_exec_elements_to(sp_element element, int64_t n, const void *from, double *to)
{
    SP_ASSERT(element != SP_ELEMENT_BYTE);
    for (int64_t i = 0; i < n; i++) {
        if (element == SP_ELEMENT_F64) {
            to[i] = ((const double *)from)[i];
        } else if (element == SP_ELEMENT_F32) {
            to[i] = (double)((const float *)from)[i];
        } else {
            to[i] = (double)sp_bf16_to_float(((const sp_bf16 *)from)[i]);
        }
    }
}
