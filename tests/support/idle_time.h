// How long the ranks of a measured step stood idle although they had work.
#ifndef SLIMPACK_TESTS_SUPPORT_IDLE_TIME_H
#define SLIMPACK_TESTS_SUPPORT_IDLE_TIME_H

#include "backends/api/device.h"

// How long each rank was idle between two of its actions although all that the second reads was
// done: from the later of the end of the action before it and of the last end that it waits for (as
// sp_measured_step_check has it) to its start. idle_ns [dp * pp]. Of a step that passes that check
// and shares no vocabulary; transfers count where they took time. O(actions^2).
void idle_time(const sp_measured_step *step, int64_t *idle_ns);

#endif
