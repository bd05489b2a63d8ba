// When a search ends by time and takes the best that it has. Private to solver.
//
// A deadline is a time of sp_clock_s(); 0: there is none. A search looks at it before each step
// after its first, so that there is a plan, as late as it is by one step at most. A stop that was
// asked for (sp_stop_request) is a deadline that is past; what was found by then is no answer.
#ifndef SLIMPACK_SOLVER_TIME_LIMIT_H
#define SLIMPACK_SOLVER_TIME_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

// Of the limit of a batch, what choices before it have left; 0: no limit (limit_ms 0).
double sp_i_time_left_s(int64_t limit_ms, double spent_s);

bool sp_i_deadline_is_past(double deadline_s);

// After that share of the time that is left, for the first of several searches.
double sp_i_deadline_part_s(double deadline_s, double share);

// In whole milliseconds, 0 where nothing is left; SP_I_NO_TIME_LIMIT (mip.h).
int64_t sp_i_deadline_left_ms(double deadline_s);

#endif
