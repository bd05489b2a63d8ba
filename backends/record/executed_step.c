#include "backends/record/executed_step.h"

sp_executed_step sp_executed_step_of(const sp_measured_step *step)
{
    return (sp_executed_step){.iteration_ns = step->timeline.iteration_ns,
                              .has_loss = step->has_loss,
                              .loss = step->loss};
}

int sp_execution_median_step(const sp_executed_step *steps, int count)
{
    int first = count > 1 ? 1 : 0;
    int rank = (count - first - 1) / 2;
    for (int i = first; i < count; i++) {
        int before = 0;
        for (int k = first; k < count; k++) {
            before += steps[k].iteration_ns < steps[i].iteration_ns ||
                      (steps[k].iteration_ns == steps[i].iteration_ns && k < i);
        }
        if (before == rank) {
            return i;
        }
    }
    SP_UNREACHABLE("an order of steps");
}
