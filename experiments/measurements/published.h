// The tables of published measurements that travel with the project.
#ifndef SLIMPACK_EXPERIMENTS_MEASUREMENTS_PUBLISHED_H
#define SLIMPACK_EXPERIMENTS_MEASUREMENTS_PUBLISHED_H

#include "sim/base/status.h"

enum { SP_PUBLISHED_TABLES = 64, SP_PUBLISHED_NAME = 64, SP_PUBLISHED_PATH = 1024 };

typedef struct sp_published {
    const char *folder;
    char names[SP_PUBLISHED_TABLES][SP_PUBLISHED_NAME]; // without ".csv", ascending
    int count;
} sp_published;

// The tables with a map, of the folder in the source tree, else of the installed one.
sp_status sp_published_list(sp_published *published, sp_error *err);

// The table's file. SP_ERR_USAGE with the nearest name where there is none of that name.
sp_status sp_published_file(const sp_published *published, const char *name,
                            char path[SP_PUBLISHED_PATH], sp_error *err);

#endif
