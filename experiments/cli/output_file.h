// JSON documents that commands keep in files.
#ifndef SLIMPACK_EXPERIMENTS_CLI_OUTPUT_FILE_H
#define SLIMPACK_EXPERIMENTS_CLI_OUTPUT_FILE_H

#include <jansson.h>

#include "sim/base/status.h"

// Takes over `root` (NULL stands for memory that ran out) and writes it as cli_print_json does.
sp_status cli_write_json(const char *path, json_t *root, sp_error *err);

#endif
