// The words for what was missing.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/units.h"
#include "solver/evaluate/oom_diagnosis.h"

enum { FIGURE = 32, LARGEST = 2 };

// Rounded up, so that a limit of the figure is enough.
static const char *gib(int64_t bytes, char text[FIGURE])
{
    int digits = (double)bytes < SP_GIB ? 6 : 3;
    double scale = digits == 6 ? 1e6 : 1e3;
    snprintf(text, FIGURE, "%.*f", digits, ceil((double)bytes / SP_GIB * scale) / scale);
    return text;
}

static int64_t states_bytes(const sp_bytes *bytes)
{
    return bytes->of[SP_MEM_PARAMETERS] + bytes->of[SP_MEM_GRADIENTS] + bytes->of[SP_MEM_OPTIMIZER];
}

// Adds to a text, as far as it has room.
static void append(char *text, size_t size, const char *format, ...) SP_PRINTF(3, 4);

static void append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

// States, the largest of what else there is, and the rest.
static void name_parts(const sp_bytes *bytes, char text[SP_WARNING_TEXT])
{
    sp_bytes left = *bytes;
    left.of[SP_MEM_PARAMETERS] = 0;
    left.of[SP_MEM_GRADIENTS] = 0;
    left.of[SP_MEM_OPTIMIZER] = 0;
    left.of[SP_MEM_OFFLOADED] = 0;
    append(text, SP_WARNING_TEXT, " (states %.2f", sp_gib_from_bytes(states_bytes(bytes)));
    for (int i = 0; i < LARGEST; i++) {
        int largest = 0;
        for (int c = 1; c < SP_MEM_CATEGORIES; c++) {
            largest = left.of[c] > left.of[largest] ? c : largest;
        }
        if (left.of[largest] > 0) {
            append(text, SP_WARNING_TEXT, ", %s %.2f", sp_memory_category_names[largest],
                   sp_gib_from_bytes(left.of[largest]));
            left.of[largest] = 0;
        }
    }
    int64_t rest = sp_bytes_total(&left);
    if (rest > 0) {
        append(text, SP_WARNING_TEXT, ", other %.2f", sp_gib_from_bytes(rest));
    }
    append(text, SP_WARNING_TEXT, ")");
}

static void name_sample(const sp_oom_diagnosis *s, char text[SP_WARNING_TEXT])
{
    append(text, SP_WARNING_TEXT, "sample %lld of %lld tokens", (long long)s->id,
           (long long)s->tokens);
    if (s->computed > s->tokens) {
        append(text, SP_WARNING_TEXT, ", padded to %lld,", (long long)s->computed);
    }
}

static void say_of_plan(const sp_oom_diagnosis *s, char text[SP_WARNING_TEXT])
{
    char figure[FIGURE];
    append(text, SP_WARNING_TEXT, "the plan needs %s GiB on a rank", gib(s->plan_bytes, figure));
    append(text, SP_WARNING_TEXT, " where %s are there", gib(s->limit_bytes, figure));
    if (s->tokens > 0) {
        append(text, SP_WARNING_TEXT, "; alone every sample fits: ");
        name_sample(s, text);
        append(text, SP_WARNING_TEXT, " needs the most, %s", gib(sp_bytes_total(&s->need), figure));
    }
}

static void say_of_sample(const sp_oom_diagnosis *s, char text[SP_WARNING_TEXT])
{
    char figure[FIGURE];
    name_sample(s, text);
    append(text, SP_WARNING_TEXT, " alone needs %s GiB on ", gib(sp_bytes_total(&s->need), figure));
    if (s->dp_count > 1) {
        append(text, SP_WARNING_TEXT, "each of %d data-parallel ranks", s->dp_count);
    } else {
        append(text, SP_WARNING_TEXT, "a rank");
    }
    name_parts(&s->need, text);
    append(text, SP_WARNING_TEXT, " where %s are there", gib(s->limit_bytes, figure));
    if (states_bytes(&s->need) > s->limit_bytes) {
        append(text, SP_WARNING_TEXT, "; the states alone are more");
    } else if (s->wider > 0) {
        append(text, SP_WARNING_TEXT,
               "; context parallelism over %d data-parallel ranks would need %s", s->wider,
               gib(s->wider_bytes, figure));
    }
}

void sp_oom_diagnosis_text(const sp_oom_diagnosis *shortage, char text[SP_WARNING_TEXT])
{
    text[0] = '\0';
    if (sp_oom_diagnosis_is_of_sample(shortage)) {
        say_of_sample(shortage, text);
    } else {
        say_of_plan(shortage, text);
    }
}
