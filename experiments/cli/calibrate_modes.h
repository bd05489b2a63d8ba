// What `calibrate` does besides fitting a profile to measured steps.
#ifndef SLIMPACK_EXPERIMENTS_CLI_CALIBRATE_MODES_H
#define SLIMPACK_EXPERIMENTS_CLI_CALIBRATE_MODES_H

#include <stdbool.h>

#include "sim/base/status.h"

// A calibration may take minutes: what cannot be written is told of before. Leaves the file as it
// is.
sp_status cli_check_writable(const char *path, sp_error *err);

// --backend: measures operators on a device of the backend.
typedef struct cli_calibrate_backend_args {
    const char *backend;
    const char *precision; // NULL: fp32 where the backend can
    const char *model;     // built-in name or a Hugging Face config; NULL: the backend's choice
    const char *output;    // may be NULL with json
    int partitions;        // of the device, of which one is measured; 0: all of it
    bool quick, json;
} cli_calibrate_backend_args;

// Returns the exit status.
int cli_calibrate_backend(const cli_calibrate_backend_args *args);

#endif
