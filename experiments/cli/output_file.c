#include "experiments/cli/output_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { JSON_DIGITS = 15 };

sp_status cli_write_json(const char *path, json_t *root, sp_error *err)
{
    if (root == NULL) {
        return sp_error_no_memory(err, "the JSON output");
    }
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        json_decref(root);
        return sp_error_set(err, SP_ERR_IO, "%s: %s", path, strerror(errno));
    }
    errno = 0;
    bool failed = json_dumpf(root, file, JSON_INDENT(2) | JSON_REAL_PRECISION(JSON_DIGITS)) != 0 ||
                  fputc('\n', file) == EOF;
    int error = errno;
    json_decref(root);
    if (fclose(file) != 0) {
        error = failed ? error : errno;
        failed = true;
    }
    return failed ? sp_error_set(err, SP_ERR_IO, "%s: %s", path,
                                 error != 0 ? strerror(error) : "cannot write")
                  : SP_OK;
}
