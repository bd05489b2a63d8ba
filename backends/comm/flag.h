// Flags between two ranks: one raises it, once, the other waits for it. What the first wrote before
// it raised the flag, the second sees after its wait, and what the machine is given for the second
// from then on is done after what it was given for the first until then. A zeroed flag is down.
#ifndef SLIMPACK_BACKENDS_COMM_FLAG_H
#define SLIMPACK_BACKENDS_COMM_FLAG_H

#include <stdatomic.h>

#include "backends/comm/comm.h"

enum { SP_COMM_WHAT = 64 };

// In the caller's storage, until both ranks' calls have returned.
typedef struct sp_comm_flag {
    atomic_bool raised;
    int64_t raised_ns; // the clock of the rank that raised it (clock.h), when it arrives
    sp_fence fence;    // what that rank had been given
} sp_comm_flag;

// For the flag's own rank, and it has not been raised. Never waits.
void sp_comm_flag_raise(sp_comm *me, int waiting_rank, sp_comm_flag *flag);
// The same for what arrives `ns` later, 0 or more: what the machine is given for the waiting rank
// is then held up until that time, on a machine that can (sp_machine_ops.mark_later).
void sp_comm_flag_raise_later(sp_comm *me, int waiting_rank, sp_comm_flag *flag, int64_t ns);
// Waits until `raiser` raises the flag; it stays so. `what` stands in reports ("rank 2: B1: waits
// for F3.1 of pp 1"), cut to SP_COMM_WHAT - 1 bytes.
sp_status sp_comm_flag_wait(sp_comm *me, const sp_comm_flag *flag, int raiser, const char *what,
                            sp_error *err);
// Takes it down, while no rank may wait for it or raise it.
void sp_comm_flag_clear(sp_comm_flag *flag);

#endif
