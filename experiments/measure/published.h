// Documents that travel with the program, by name: tables of published measurements, figures.
#ifndef SLIMPACK_EXPERIMENTS_MEASURE_PUBLISHED_H
#define SLIMPACK_EXPERIMENTS_MEASURE_PUBLISHED_H

#include <stdbool.h>

#include "sim/base/data_folder.h"
#include "sim/base/status.h"

enum { SP_PUBLISHED_TABLES = 64, SP_PUBLISHED_NAME = 64, SP_PUBLISHED_PATH = SP_DATA_PATH };

typedef struct sp_published_kind {
    const char *noun, *plural; // for messages
    const char *folder;        // of the program (sp_data_folder())
    // Is a document of the folder one of the kind? NULL: all are.
    bool (*holds)(const char *folder, const char *name);
    bool brief; // the message of an unknown name lists the names only where none is near
} sp_published_kind;

// Tables of published measurements.
extern const sp_published_kind sp_published_tables;

typedef struct sp_published {
    const sp_published_kind *kind;
    char folder[SP_DATA_PATH];
    char names[SP_PUBLISHED_TABLES][SP_PUBLISHED_NAME]; // without ".json", ascending
    int count;
} sp_published;

// Lists those of the first folder of the program that has some.
sp_status sp_published_list(const sp_published_kind *kind, sp_published *published, sp_error *err);

// The document of a name. SP_ERR_USAGE with the nearest name where there is none.
sp_status sp_published_file(const sp_published *published, const char *name,
                            char path[SP_PUBLISHED_PATH], sp_error *err);

#endif
