// Which rows a fit of the cross-validation leaves out together.
#ifndef SLIMPACK_EXPERIMENTS_CALIBRATE_FOLDS_H
#define SLIMPACK_EXPERIMENTS_CALIBRATE_FOLDS_H

#include "experiments/calibrate/fit_rows.h"

// fold[row] from 0 to folds[table] - 1, -1 in tables without (folds[table] 0). `count` of every
// table, or (negative) what the specification says of each: a number of folds, dealt at random by
// its seed, or groups of the rows that agree in some columns, each a fold of its own or dealt whole
// into so many folds. A table with fewer rows or groups has as many folds, with one none. Content
// errors: a column that the table does not have; more than FIT_FOLDS groups.
sp_status fit_deal_rows(const fit_spec *spec, const fit_rows *rows, int count,
                        int folds[FIT_TABLES], int *fold, sp_error *err);

#endif
