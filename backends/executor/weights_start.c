#include "backends/executor/weights.h"

#include <math.h>

#include "backends/executor/draw.h"

uint64_t sp_i_exec_weight_seed(const sp_i_exec_weight *weight, uint64_t seed)
{
    return sp_i_exec_draw_name(seed, weight->name);
}

int64_t sp_i_exec_weight_index(const sp_i_exec_weight *weight, int64_t element)
{
    int64_t row = element / weight->columns;
    for (int r = 0; r < SP_I_EXEC_ROW_RUNS; r++) {
        if (row < weight->run[r].rows) {
            return (weight->run[r].from + row) * weight->all_columns + weight->first_column +
                   element % weight->columns;
        }
        row -= weight->run[r].rows;
    }
    return -1;
}

// An even spread over [-s sqrt(3), s sqrt(3)) has the standard deviation s.
double sp_i_exec_weight_start(const sp_i_exec_weight *weight, uint64_t tensor_seed, int64_t element)
{
    int64_t index = sp_i_exec_weight_index(weight, element);
    if (index < 0) {
        return 0.0;
    }
    double place = 2.0 * sp_i_exec_unit(sp_i_exec_draw(tensor_seed, (uint64_t)index)) - 1.0;
    return weight->centre + weight->spread * sqrt(3.0) * place;
}
