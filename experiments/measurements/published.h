// The tables of published measurements that travel with the project.
#ifndef SLIMPACK_EXPERIMENTS_MEASUREMENTS_PUBLISHED_H
#define SLIMPACK_EXPERIMENTS_MEASUREMENTS_PUBLISHED_H

#include "sim/base/data_folder.h"
#include "sim/base/status.h"

enum { SP_PUBLISHED_TABLES = 64, SP_PUBLISHED_NAME = 64, SP_PUBLISHED_PATH = SP_DATA_PATH };

typedef struct sp_published {
    char folder[SP_DATA_PATH];
    char names[SP_PUBLISHED_TABLES][SP_PUBLISHED_NAME]; // without ".csv", ascending
    int count;
} sp_published;

// The tables with a map, of the first folder of the program that has some (sp_data_folder()).
sp_status sp_published_list(sp_published *published, sp_error *err);

// The table's file. SP_ERR_USAGE with the nearest name where there is none of that name.
sp_status sp_published_file(const sp_published *published, const char *name,
                            char path[SP_PUBLISHED_PATH], sp_error *err);

#endif
