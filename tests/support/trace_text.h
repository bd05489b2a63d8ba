// Traces in the form that PyTorch's profiler writes, put together event by event.
#ifndef SLIMPACK_TESTS_SUPPORT_TRACE_TEXT_H
#define SLIMPACK_TESTS_SUPPORT_TRACE_TEXT_H

#include <stdarg.h>
#include <stdio.h>

#include "sim/base/alloc.h"
#include "sim/base/status.h"

typedef struct trace_text {
    char *bytes; // owned
    size_t count, capacity;
    int events;
} trace_text;

static inline void trace_add(trace_text *t, const char *format, ...) SP_PRINTF(2, 3);

static inline void trace_add(trace_text *t, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    SP_ASSERT(length >= 0 && (size_t)length < sizeof text);
    SP_RESERVE(t->bytes, t->capacity, t->count + (size_t)length + 1);
    for (int i = 0; i <= length; i++) {
        t->bytes[t->count + (size_t)i] = text[i];
    }
    t->count += (size_t)length;
}

// A header such as "\"distributedInfo\": {\"rank\": 0}," or "".
static inline void trace_begin(trace_text *t, const char *header)
{
    *t = (trace_text){0};
    trace_add(t, "{%s \"traceEvents\": [", header);
}

// `category` with `more` ("" or ", \"correlation\": 1") in its arguments; times as they are to
// stand, a duration of NULL is left out.
static inline void trace_span(trace_text *t, const char *category, const char *name, int stream,
                              const char *start, const char *duration, const char *more)
{
    trace_add(t,
              "%s\n{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": 0, \"tid\": %d, "
              "\"ts\": %s%s%s, \"args\": {\"device\": 0, \"stream\": %d%s}}",
              t->events++ > 0 ? "," : "", category, name, stream, start,
              duration != NULL ? ", \"dur\": " : "", duration != NULL ? duration : "", stream,
              more);
}

// An operator or a launch of the host's thread.
static inline void trace_host(trace_text *t, const char *category, const char *name, int thread,
                              double start_us, double duration_us, const char *args)
{
    trace_add(t,
              "%s\n{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": 77, \"tid\": %d, "
              "\"ts\": %.3f, \"dur\": %.3f, \"args\": {%s}}",
              t->events++ > 0 ? "," : "", category, name, thread, start_us, duration_us, args);
}

static inline void trace_end(trace_text *t)
{
    trace_add(t, "\n]}\n");
}

static inline void trace_text_fini(trace_text *t)
{
    sp_free(t->bytes);
}

#endif
