#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/calibrate_modes.h"

sp_status cli_check_writable(const char *path, sp_error *err)
{
    bool exists = access(path, F_OK) == 0;
    FILE *file = fopen(path, "a");
    if (file == NULL) {
        return sp_error_set(err, SP_ERR_IO, "%s: %s", path, strerror(errno));
    }
    fclose(file);
    if (!exists) {
        remove(path);
    }
    return SP_OK;
}
