// The results file of a sweep: whole lines, in the order of the points, kept through a kill.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_RESULTS_FILE_H
#define SLIMPACK_EXPERIMENTS_SWEEP_RESULTS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "sim/base/status.h"

typedef struct sweep_file {
    const char *path; // not owned
    int fd;           // -1: not open
    FILE *in;         // that lines are read by, on the same descriptor; NULL: none
    bool regular;     // else a pipe or a device: nothing to lock, read or sync
    bool dirty;       // written since the last sync
    double synced_s;
} sweep_file;

// SP_ERR_IO with the advice where a file is there that holds something.
sp_status sweep_file_refuse(const char *path, const char *advice, sp_error *err);

// Opens or makes the file for this process alone. One that holds something is refused with the
// advice that is given; NULL: it is gone on with.
sp_status sweep_file_open(sweep_file *file, const char *path, const char *advice, sp_error *err);

// Called for each whole line, without its newline, counted from 1.
typedef sp_status (*sweep_line_reader)(void *context, const char *line, size_t bytes, long number,
                                       sp_error *err);

// Reads the lines that are there. A last line that was cut short by a kill is cut off the file;
// what is appended follows the last whole one.
sp_status sweep_file_read(sweep_file *file, sweep_line_reader reader, void *context, sp_error *err);

// Appends text that ends with a newline, and syncs where the last time is a second ago.
sp_status sweep_file_append(sweep_file *file, const char *text, size_t bytes, sp_error *err);

// Syncs and closes; does nothing with a file that is not open.
sp_status sweep_file_close(sweep_file *file, sp_error *err);

#endif
