// Where the files that travel with the program are: profiles, plots and tables.
#ifndef SLIMPACK_SIM_BASE_DATA_FOLDER_H
#define SLIMPACK_SIM_BASE_DATA_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

enum { SP_DATA_PATH = 4096 }; // bytes of a file name: as long as Linux opens any

// Folder number n, from 0, in which `name` ("profiles", "plots" or "experiments/published") may be:
// first that of the prefix the program was started from, wherever the prefix has been moved, then
// the source tree, then the prefix of the configuration. False after the last. A folder need not
// exist.
bool sp_data_folder(const char *name, int n, char folder[SP_DATA_PATH]);

// Names the JSON documents of a folder, each without its ending, in no order. Returns 0, or the
// error number with which the system refuses the folder.
int sp_data_each_document(const char *folder, void (*visit)(void *context, const char *name),
                          void *context);

// The folder of the running program; "" where it cannot be told.
void sp_program_folder(char folder[SP_DATA_PATH]);

#endif
