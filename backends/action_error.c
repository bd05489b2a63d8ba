#include "backends/action_error.h"

#include <stdarg.h>
#include <stdio.h>

sp_status sp_error_at_action(sp_error *err, sp_status status, const sp_plan *plan,
                             const sp_plan_place *place, const char *format, ...)
{
    char text[SP_ERROR_TEXT];
    char name[32];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sp_action_name(place->action, plan->layout.chunks, name);
    return sp_error_set(err, status, "dp %d pp %d: %s: %s", place->dp, place->pp, name, text);
}
