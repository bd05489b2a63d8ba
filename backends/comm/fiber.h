// A flow of control with a stack of its own, on the thread of whoever drives it: entered and left
// at places that it chooses, without the operating system, in a fraction of the time in which one
// thread wakes another.
#ifndef SLIMPACK_BACKENDS_COMM_FIBER_H
#define SLIMPACK_BACKENDS_COMM_FIBER_H

#include <stdbool.h>

typedef struct sp_i_fiber sp_i_fiber;

// Kept from flow to flow; NULL when memory runs out.
sp_i_fiber *sp_i_fiber_new(void);
// No flow is under way. NULL is allowed.
void sp_i_fiber_free(sp_i_fiber *fiber);

// The next resume enters main(data); no flow is under way.
void sp_i_fiber_start(sp_i_fiber *fiber, void (*main)(void *data), void *data);
// Runs the flow until it parks (true) or has ended (false). A flow stays on the thread of its first
// resume.
bool sp_i_fiber_resume(sp_i_fiber *fiber);
// Leaves the flow that calls, which is this fiber's, until it is resumed.
void sp_i_fiber_park(sp_i_fiber *fiber);

#endif
