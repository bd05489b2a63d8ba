#define _POSIX_C_SOURCE 200809L
#include "sim/base/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "sim/base/writer.h"

enum { BAR_CELLS = 24 };

static const double line_s = 10.0;

double sp_clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void sp_progress_begin(sp_progress *progress, const char *label, int64_t total, bool quiet)
{
    *progress = (sp_progress){.label = label, .total = total};
    progress->active = !quiet && isatty(STDERR_FILENO) == 1;
    progress->started_s = progress->active ? sp_clock_s() : 0.0;
}

void sp_progress_tell_lines(sp_progress *progress, bool quiet)
{
    progress->lines = !quiet && !progress->active;
    progress->started_s = sp_clock_s();
    progress->drawn_s = progress->lines ? progress->started_s : 0.0;
}

enum { LINE_COLUMNS = 100 };

static void tell_line(sp_progress *progress, int64_t done)
{
    double now = sp_clock_s();
    if (now - progress->drawn_s >= line_s) {
        char line[LINE_COLUMNS + 1] = ""; // a longer note is cut
        progress->drawn_s = now;
        sp_append(line, sizeof line, "%s: %lld/%lld after %.0f s%s%s", progress->label,
                  (long long)done, (long long)progress->total, now - progress->started_s,
                  progress->note[0] != '\0' ? ", " : "", progress->note);
        fprintf(stderr, "%s\n", line);
    }
}

void sp_progress_note(sp_progress *progress, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(progress->note, sizeof progress->note, format, args);
    va_end(args);
}

void sp_progress_update(sp_progress *progress, int64_t done)
{
    if (progress->lines) {
        tell_line(progress, done);
    }
    if (!progress->active) {
        return;
    }
    double now = sp_clock_s();
    if (now - progress->drawn_s < 0.1) {
        return;
    }
    progress->drawn_s = now;
    double elapsed = now - progress->started_s;
    double rate = elapsed > 0.0 ? (double)done / elapsed : 0.0;
    if (progress->total <= 0) {
        fprintf(stderr, "\r%s %lld, %.0f/s", progress->label, (long long)done, rate);
    } else {
        double share = (double)done / (double)progress->total;
        int filled = (int)(share * BAR_CELLS);
        char bar[BAR_CELLS + 1];
        for (int i = 0; i < BAR_CELLS; i++) {
            bar[i] = i < filled ? '#' : '.';
        }
        bar[BAR_CELLS] = '\0';
        double left = rate > 0.0 ? (double)(progress->total - done) / rate : 0.0;
        fprintf(stderr, "\r%s [%s] %lld/%lld, %.1f/s, %.0f s left", progress->label, bar,
                (long long)done, (long long)progress->total, rate, left);
    }
    fprintf(stderr, "%s%s\033[K", progress->note[0] != '\0' ? ", " : "", progress->note);
    fflush(stderr);
}

void sp_progress_end(sp_progress *progress)
{
    if (progress->active) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
        progress->active = false;
    }
}
