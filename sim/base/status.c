#include "sim/base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *sp_status_text(sp_status status)
{
    switch (status) {
#define X(name, exit_status, text) \
    case name:                     \
        return text;
        SP_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

bool sp_status_is_fatal(sp_status status)
{
    return status == SP_ERR_NO_MEMORY || status == SP_ERR_SYSTEM || status == SP_ERR_ACCESS ||
           status == SP_ERR_STOPPED || status == SP_ERR_INTERNAL;
}

int sp_status_exit(sp_status status)
{
    switch (status) {
#define X(name, exit_status, text) \
    case name:                     \
        return exit_status;
        SP_STATUS_LIST(X)
#undef X
    }
    return 70;
}

void sp_error_clear(sp_error *err)
{
    if (err != NULL) {
        err->status = SP_OK;
        err->count = 0;
        err->dropped = 0;
    }
}

// Appends "prefix" + formatted text; returns the status that stands in the record afterwards.
static sp_status add(sp_error *err, sp_status status, const char *prefix, const char *format,
                     va_list args)
{
    if (err == NULL) {
        return status;
    }
    if (err->status != SP_OK && err->status != status) {
        return err->status;
    }
    err->status = status;
    if (err->count == SP_ERROR_MESSAGES) {
        err->dropped++;
        return status;
    }
    char *out = err->message[err->count++];
    int used = snprintf(out, SP_ERROR_TEXT, "%s", prefix);
    if (used >= 0 && used < SP_ERROR_TEXT) {
        vsnprintf(out + used, (size_t)(SP_ERROR_TEXT - used), format, args);
    }
    return status;
}

sp_status sp_error_set(sp_error *err, sp_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    status = add(err, status, "", format, args);
    va_end(args);
    return status;
}

sp_status sp_error_at(sp_error *err, sp_status status, const char *source, long line, long column,
                      const char *format, ...)
{
    char prefix[SP_ERROR_TEXT / 2];
    if (line > 0 && column > 0) {
        snprintf(prefix, sizeof prefix, "%s:%ld:%ld: ", source, line, column);
    } else if (line > 0) {
        snprintf(prefix, sizeof prefix, "%s:%ld: ", source, line);
    } else {
        snprintf(prefix, sizeof prefix, "%s: ", source);
    }
    va_list args;
    va_start(args, format);
    status = add(err, status, prefix, format, args);
    va_end(args);
    return status;
}

sp_status sp_error_in(sp_error *err, sp_status status, const char *source, const char *path,
                      const char *format, ...)
{
    char prefix[SP_ERROR_TEXT / 2];
    if (path != NULL && path[0] != '\0') {
        snprintf(prefix, sizeof prefix, "%s: %s: ", source, path);
    } else {
        snprintf(prefix, sizeof prefix, "%s: ", source);
    }
    va_list args;
    va_start(args, format);
    status = add(err, status, prefix, format, args);
    va_end(args);
    return status;
}

sp_status sp_error_add(sp_error *err, const sp_error *from)
{
    for (int i = 0; i < from->count; i++) {
        sp_error_set(err, from->status, "%s", from->message[i]);
    }
    return from->status;
}

sp_status sp_error_no_memory(sp_error *err, const char *what)
{
    return sp_error_set(err, SP_ERR_NO_MEMORY, "out of memory (%s)", what);
}

static sp_status status_of_system(int error)
{
    switch (error) {
    case ENOMEM:
        return SP_ERR_NO_MEMORY;
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case EINTR:
    case ENOLCK:
    case ENOBUFS:
        return SP_ERR_SYSTEM;
    case EACCES:
    case EPERM:
    case EIO:
        return SP_ERR_ACCESS;
    default:
        return SP_ERR_IO;
    }
}

sp_status sp_error_system(sp_error *err, const char *source, int error)
{
    return sp_error_set(err, status_of_system(error), "%s: %s", source, strerror(error));
}

void sp_i_assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: defect in slimpack: %s does not hold; please report it\n", file, line,
            condition);
    abort();
}
