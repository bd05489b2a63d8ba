// What `tune` says where no point fits. Private to cmd_tune.c.
#ifndef SLIMPACK_EXPERIMENTS_CLI_TUNE_SHORTAGE_H
#define SLIMPACK_EXPERIMENTS_CLI_TUNE_SHORTAGE_H

#include "experiments/sweep/layouts.h"

// The question, and what was found.
typedef struct cli_shortage {
    const json_t *base;
    const sp_scenario *scenario;
    const sweep_layouts_options *options;
    const sweep_layouts *layouts; // none of them fits
} cli_shortage;

// Tells the point that lacks the least memory and what it lacks, then the fewest GPUs, doubling
// them, at which a layout of the first strategy with full recomputation and ZeRO 3 (or what is
// stated) fits. SP_ERR_INFEASIBLE, or what went wrong.
sp_status cli_tell_shortage(const cli_shortage *shortage, sp_error *err);

#endif
