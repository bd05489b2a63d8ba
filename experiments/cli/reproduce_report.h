// Published figures beside computed ones, for people and for gnuplot.
#ifndef SLIMPACK_EXPERIMENTS_CLI_REPRODUCE_REPORT_H
#define SLIMPACK_EXPERIMENTS_CLI_REPRODUCE_REPORT_H

#include "experiments/cli/report.h"
#include "experiments/figures/reproduction.h"

void cli_print_reproduction(FILE *out, const figure_reproduction *reproduction);

// "12 of 14 within their bars"
enum { CLI_VERDICT = 160 };
const char *cli_verdict(const figure_reproduction *reproduction, char text[CLI_VERDICT]);

// DIR/NAME.txt, NAME.json and, with a plot format ("png", "svg"; NULL: none), NAME.FORMAT with its
// data in NAME.FORMAT.dat.
sp_status cli_write_reproduction(const char *folder, const char *format,
                                 const figure_reproduction *reproduction, sp_error *err);

#endif
