// The lines of a results file: one JSON object for each point.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_LINE_H
#define SLIMPACK_EXPERIMENTS_SWEEP_LINE_H

#include "experiments/sweep/point.h"

// A point with its line.
typedef struct sweep_row {
    int64_t combination;
    sweep_digest digest;
    char *line; // with its newline; owned, freed with free()
} sweep_row;

// Evaluates the combination on one of the threads and writes the line.
sp_status sweep_row_evaluate(const sweep_evaluator *evaluator, int thread, sweep_row *row,
                             sp_error *err);

// The text of a point as it stands in the line; freed with free(). NULL when memory ran out.
char *sweep_point_text(const json_t *point);

// Reads a line back. False where it is no line of a sweep; *expected says then what was not found.
bool sweep_digest_read(const json_t *row, sweep_digest *digest, const char **expected);

// Where a line stands, for messages: line `number`, from 1, of a file.
typedef struct sweep_line_at {
    const char *path;
    long number;
} sweep_line_at;

// Reads the line of a combination, without its newline; a content error where it is that of another
// point or sweep, or was changed.
sp_status sweep_line_read(const sweep_spec *spec, int64_t combination, const char *line,
                          size_t bytes, const sweep_line_at *at, sweep_digest *digest,
                          sp_error *err);

// The error of a line that is not of this sweep; `text` says why.
sp_status sweep_line_of_other(const sweep_spec *spec, const sweep_line_at *at, const char *text,
                              sp_error *err);

#endif
