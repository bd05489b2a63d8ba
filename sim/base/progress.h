// A progress line on stderr (bar, rate, time left), drawn when stderr is a terminal; elsewhere a
// line every ten seconds where these are asked for.
#ifndef SLIMPACK_SIM_BASE_PROGRESS_H
#define SLIMPACK_SIM_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/status.h"

typedef struct sp_progress {
    const char *label;
    int64_t total; // 0: unknown
    bool active;
    double started_s;
    double drawn_s;
    bool lines;     // in place of one that is redrawn
    char note[144]; // behind the rest
} sp_progress;

// Starts a progress line; nothing is ever drawn when `quiet` or stderr is no terminal.
void sp_progress_begin(sp_progress *progress, const char *label, int64_t total, bool quiet);

// Where stderr is no terminal: a line every ten seconds, from the tenth on.
void sp_progress_tell_lines(sp_progress *progress, bool quiet);

// Sets how the line ends from now on, such as with the best so far; a longer note is cut.
void sp_progress_note(sp_progress *progress, const char *format, ...) SP_PRINTF(2, 3);

// Redraws at most ten times a second.
void sp_progress_update(sp_progress *progress, int64_t done);

// Clears the line.
void sp_progress_end(sp_progress *progress);

// Seconds of a monotonic clock with an arbitrary start; also used to time solver and simulator.
double sp_clock_s(void);

#endif
