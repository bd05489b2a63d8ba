#include "sim/plan/plan_check_report.h"

#include <stdarg.h>
#include <stdio.h>

enum { WHERE = 192, TEXT = 400 }; // bytes of a path and of the text of a finding

void sp_i_plan_report(sp_i_plan_check *check, const char *where, const char *format, ...)
{
    char path[WHERE];
    char text[TEXT];
    bool both = check->path[0] != '\0' && where != NULL;
    snprintf(path, sizeof path, "%s%s%s", check->path, both ? "." : "", where == NULL ? "" : where);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    check->errors++;
    sp_error_in(check->err, SP_ERR_CONTENT, check->source, path, "%s", text);
}

bool sp_i_plan_check_full(const sp_i_plan_check *check)
{
    return check->errors >= SP_ERROR_MESSAGES;
}
