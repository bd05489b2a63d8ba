#include "solver/packflow_outcome.h"

bool sp_i_packflow_is_better(const sp_i_packflow_outcome *a, const sp_i_packflow_outcome *b)
{
    return a->fits != b->fits ? a->fits : a->makespan_ns < b->makespan_ns;
}
