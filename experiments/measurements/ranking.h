// How well predictions put the steps of a cell in order: what a user who picks by them gets.
#ifndef SLIMPACK_EXPERIMENTS_MEASUREMENTS_RANKING_H
#define SLIMPACK_EXPERIMENTS_MEASUREMENTS_RANKING_H

#include "experiments/measurements/measurements.h"

// What is predicted for one row.
typedef struct sp_ranked {
    double computed;
    bool fits_well; // in memory
} sp_ranked;

// Over all cells of a table (the map's `cells`) with at least two rows. The rank correlation is
// Spearman's, equal values with their mean rank. The regret of a cell is how much slower the
// measured step of the row is that is predicted to be the fastest of those that fit well than the
// fastest measured one of the cell; a cell with no row that fits well has none.
typedef struct sp_ranked_cell {
    const char *name; // of the measurements
    size_t rows;
    double correlation;
    double regret; // negative: no row fits well
} sp_ranked_cell;

typedef struct sp_ranking {
    int cells, picks;
    sp_ranked_cell *cell; // [cells], in the order of the table; owned
    double correlation;   // mean
    double regret;        // mean
    double worst_regret;
    const char *worst_cell; // of the measurements; NULL: no cell
} sp_ranking;

// rows: one for each case. SP_ERR_NO_MEMORY alone. O(rows * cells + rows * log rows).
sp_status sp_ranking_of(const sp_measurements *measurements, const sp_ranked *rows,
                        sp_ranking *ranking, sp_error *err);
void sp_ranking_fini(sp_ranking *ranking);

#endif
