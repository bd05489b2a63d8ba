#include "sim/base/data_folder.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// As Linux tells it.
void sp_program_folder(char folder[SP_DATA_PATH])
{
    ssize_t length = readlink("/proc/self/exe", folder, SP_DATA_PATH - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
}

bool sp_data_folder(const char *name, int n, char folder[SP_DATA_PATH])
{
    // An installation keeps each folder under its last name.
    const char *slash = strrchr(name, '/');
    const char *installed = slash != NULL ? slash + 1 : name;
    char program[SP_DATA_PATH];
    int length = -1;
    switch (n) {
    case 0:
        sp_program_folder(program);
        length =
            snprintf(folder, SP_DATA_PATH, "%s/" SP_DATA_FROM_PROGRAM "/%s", program, installed);
        break;
    case 1:
        length = snprintf(folder, SP_DATA_PATH, SP_DATA_SOURCE "/%s", name);
        break;
    case 2:
        length = snprintf(folder, SP_DATA_PATH, SP_DATA_INSTALL "/%s", installed);
        break;
    default:
        return false;
    }
    if (length < 0 || length >= SP_DATA_PATH) {
        folder[0] = '\0';
    }
    return true;
}

int sp_data_each_document(const char *folder, void (*visit)(void *context, const char *name),
                          void *context)
{
    static const char ending[] = ".json";
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        char name[NAME_MAX + 1];
        size_t length = strlen(entry->d_name);
        size_t stem = length >= sizeof ending ? length - (sizeof ending - 1) : 0;
        if (stem > 0 && stem < sizeof name && strcmp(entry->d_name + stem, ending) == 0) {
            memcpy(name, entry->d_name, stem);
            name[stem] = '\0';
            visit(context, name);
        }
    }
    if (directory == NULL) {
        return errno;
    }
    closedir(directory);
    return 0;
}
