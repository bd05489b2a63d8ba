// The processes of one sweep. Rank 0 hands out points as they are asked for, evaluates some itself
// and writes all lines; the others evaluate. What a rank that dies was evaluating is handed to
// another one.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_RANKS_H
#define SLIMPACK_EXPERIMENTS_SWEEP_RANKS_H

#include "experiments/sweep/line.h"
#include "experiments/sweep/transport.h"

enum { SWEEP_MOST_THREADS = 1024 };

typedef struct sweep_ranks sweep_ranks;

// Meets the other ranks and takes over the transport, also after an error. `threads` of this rank
// evaluate, 1 to SWEEP_MOST_THREADS.
sp_status sweep_ranks_begin(sweep_transport *transport, int threads, sweep_ranks **ranks,
                            sp_error *err);

// Rank 0 lets the others end. Where one may hang the transport ends all processes, this one among
// them; else this returns.
void sweep_ranks_end(sweep_ranks *ranks, int exit_status);

// ---- rank 0 ----

// Gives the sweep to the others.
sp_status sweep_ranks_open(sweep_ranks *ranks, const sweep_spec *spec, sp_error *err);

// Blocks of points that the others take at once: two for each of their threads, so that none waits
// for its next one.
int sweep_ranks_blocks(const sweep_ranks *ranks);

// Has another rank evaluate the combinations of the rows and waits for it; *done is false where no
// other rank is left. Thread-safe.
sp_status sweep_ranks_evaluate(sweep_ranks *ranks, sweep_row *rows, int count, bool *done,
                               sp_error *err);

// ---- the others ----

// Evaluates what rank 0 asks for until it lets this rank end; SP_ERR_IO where rank 0 is gone.
sp_status sweep_ranks_serve(sweep_ranks *ranks, sp_error *err);

#endif
