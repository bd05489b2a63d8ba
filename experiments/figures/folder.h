// The figures that travel with the program.
#ifndef SLIMPACK_EXPERIMENTS_FIGURES_FOLDER_H
#define SLIMPACK_EXPERIMENTS_FIGURES_FOLDER_H

#include "experiments/figures/figure.h"
#include "sim/base/data_folder.h"
#include "sim/base/status.h"

enum { FIGURE_MOST = 64 };

typedef struct figure_folder {
    char path[SP_DATA_PATH];
    char names[FIGURE_MOST][FIGURE_NAME]; // without ".json", ascending
    int count;
} figure_folder;

// Of the first folder of the program that has some (sp_data_folder()).
sp_status figure_folder_list(figure_folder *folder, sp_error *err);

// The file of a name; what ends in ".json" is a file itself. SP_ERR_USAGE with the nearest name
// where there is none.
sp_status figure_folder_file(const figure_folder *folder, const char *name, char path[SP_DATA_PATH],
                             sp_error *err);

#endif
