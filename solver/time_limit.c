#include "solver/time_limit.h"

#include <math.h>

#include "sim/base/parallel.h"
#include "sim/base/progress.h"
#include "solver/mip.h"

double sp_i_time_left_s(int64_t limit_ms, double spent_s)
{
    return limit_ms > 0 ? fmax(1e-3 * (double)limit_ms - spent_s, 1e-6) : 0.0;
}

bool sp_i_deadline_is_past(double deadline_s)
{
    return sp_stop_requested() || (deadline_s > 0.0 && sp_clock_s() > deadline_s);
}

double sp_i_deadline_part_s(double deadline_s, double share)
{
    double now_s = sp_clock_s();
    return deadline_s > now_s ? now_s + share * (deadline_s - now_s) : deadline_s;
}

int64_t sp_i_deadline_left_ms(double deadline_s)
{
    if (deadline_s <= 0.0) {
        return SP_I_NO_TIME_LIMIT;
    }
    double left_s = deadline_s - sp_clock_s();
    return left_s > 0.0 ? (int64_t)(1e3 * left_s) : 0;
}
