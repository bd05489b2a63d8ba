// Best fit for samples of descending length: the open row with the least room that suffices. Room
// that suffices for one sample suffices for all that follow, so that two heaps do: rows with room
// for the sample at hand, least room on top, and rows that wait for shorter samples, most room on
// top. O(log rows) a sample, whatever the context.
#ifndef SLIMPACK_SOLVER_BEST_FIT_H
#define SLIMPACK_SOLVER_BEST_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sp_i_best_fit_heap {
    uint64_t *keys; // room above, row below; complements where the most room is wanted
    size_t count, capacity;
} sp_i_best_fit_heap;

// All zero: no row is open.
typedef struct sp_i_best_fit {
    sp_i_best_fit_heap fitting;
    sp_i_best_fit_heap waiting;
    int64_t tokens; // of the sample at hand
} sp_i_best_fit;

void sp_i_best_fit_fini(sp_i_best_fit *fit);

// Takes out the row with the least room of at least `tokens`, of equal ones that with the lowest
// number; `tokens` never grows from call to call. False: there is none.
bool sp_i_best_fit_take(sp_i_best_fit *fit, int64_t tokens, uint32_t *row);

// Opens a row with room > 0 for the sample that was last asked for and shorter ones. False when
// memory runs out.
bool sp_i_best_fit_open(sp_i_best_fit *fit, int64_t room, uint32_t row);

#endif
