// Clocks of virtual time: what each rank's clock would show if every rank had a machine of its own.
// A clock advances by its rank's own computing, and goes on at the time of others where it waits:
// - the members of a collective go on at the latest of their clocks, before and after its work;
// - a message brings the sender's time when it was complete, a flag that of raising it: who
//   receives it goes on at the later of that time and its own.
// A send takes no time but its own copying, as if queues had room without end. So times depend on
// what the ranks compute and exchange, not on when their threads run; but for the try calls, which
// succeed or not as the threads run, or as turns come.
//
// Own computing is what the owner adds, and where the world is clocked (sp_comm_options) what the
// machine's now_ns has advanced between two readings. The calls of the communicator read it, so
// they wait for the rank's work, and leave out what it advances while they wait and while they wake
// others: ranks with machines of their own would look for each other, and whether one already
// sleeps is chance.
#ifndef SLIMPACK_BACKENDS_COMM_CLOCK_H
#define SLIMPACK_BACKENDS_COMM_CLOCK_H

#include "backends/comm/comm.h"

// For the rank's own thread, or after joining it. A clock is 0 at first.

// The time of the last call or reading.
int64_t sp_comm_clock(const sp_comm *me);
void sp_comm_clock_add(sp_comm *me, int64_t ns);

// Sets the clock and takes a reading: computing counts from here. To be called by the rank itself,
// and sp_comm_run does so before each body, at the time the clock had.
void sp_comm_clock_start(sp_comm *me, int64_t at_ns);
// Takes a reading and returns the time.
int64_t sp_comm_clock_read(sp_comm *me);
// Takes a reading and returns how much the clock has ever advanced by the rank's own computing,
// that is without waits.
int64_t sp_comm_clock_own(sp_comm *me);

#endif
