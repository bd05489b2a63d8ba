#include "backends/cuda/device/partition_plan.h"

#include <stdio.h>

bool sp_i_cuda_plan_partitions(int total, int smallest, int alignment, int partitions,
                               sp_i_cuda_partition_plan *plan, char *text, size_t text_bytes)
{
    int step = alignment > 0 ? alignment : 1;
    *plan = (sp_i_cuda_partition_plan){0};
    if (partitions < 1) {
        snprintf(text, text_bytes, "%d partitions", partitions);
        return false;
    }
    int sms = total / partitions / step * step;
    if (sms == 0 || sms < smallest) {
        int least = (smallest + step - 1) / step * step;
        snprintf(text, text_bytes,
                 "%d SMs do not make %d partitions of at least %d SMs in steps of %d", total,
                 partitions, least > 0 ? least : step, step);
        return false;
    }
    *plan = (sp_i_cuda_partition_plan){
        .partitions = partitions, .sms = sms, .rest = total - partitions * sms};
    return true;
}
