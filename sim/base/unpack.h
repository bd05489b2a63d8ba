// Files that may be compressed by gzip, read as what they hold.
#ifndef SLIMPACK_SIM_BASE_UNPACK_H
#define SLIMPACK_SIM_BASE_UNPACK_H

#include <stdio.h>

#include "sim/base/status.h"

// Opens a file as sp_input_open() does, whose errors it has. What a stream reads of a file that is
// no gzip is the file itself. It can be rewound, and sought in by no other way. Behind what is
// whole in a gzip file that is cut short reading fails with ENODATA, in a damaged one with EBADMSG.
sp_status sp_unpacked_open(const char *path, FILE **file, sp_error *err);

#endif
