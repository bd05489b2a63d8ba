// The settings that the condition of a sweep can name.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_SPEC_SYMBOLS_H
#define SLIMPACK_EXPERIMENTS_SWEEP_SPEC_SYMBOLS_H

#include "experiments/sweep/spec.h"

// Lists every scalar of the base that no axis replaces, every axis, and the scalars inside the
// objects that an axis takes as values (null where one of them has no such key).
sp_status sweep_spec_list_symbols(sweep_spec *spec, sp_error *err);

#endif
