// Rows that samples of descending length are put into by best fit: each into the open row with the
// least room that suffices. Room that suffices for one sample suffices for all that follow, so that
// two heaps do. O(log rows) a sample, whatever the context.
#ifndef SLIMPACK_SIM_WORKLOAD_BEST_FIT_H
#define SLIMPACK_SIM_WORKLOAD_BEST_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sp_best_fit_heap {
    uint64_t *keys; // room above, row below; complements where the most room is wanted
    size_t count, capacity;
} sp_best_fit_heap;

// All zero: no row is open.
typedef struct sp_best_fit {
    sp_best_fit_heap fitting; // with room for the sample at hand, least room on top
    sp_best_fit_heap waiting; // for shorter samples, most room on top
    int64_t tokens;           // of the sample at hand
} sp_best_fit;

void sp_best_fit_fini(sp_best_fit *fit);

// Takes out the row with the least room of at least `tokens`, of equal ones that with the lowest
// number; `tokens` never grows from call to call. False: there is none.
bool sp_best_fit_take(sp_best_fit *fit, int64_t tokens, uint32_t *row);

// Opens a row with room > 0 for the sample that was last asked for and shorter ones.
void sp_best_fit_open(sp_best_fit *fit, int64_t room, uint32_t row);

#endif
