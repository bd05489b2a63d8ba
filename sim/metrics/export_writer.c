#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sim/metrics/export_private.h"

enum {
    MAX_DIGITS = 20, // of a 64-bit integer
    GIB_SHIFT = 30,
};

void sp_i_writer_init(sp_i_writer *out, FILE *file)
{
    out->file = file;
    out->used = 0;
    out->error_number = 0;
}

static void drain(sp_i_writer *out)
{
    if (out->used > 0 && out->error_number == 0) {
        errno = 0;
        if (fwrite(out->buffer, 1, out->used, out->file) != out->used) {
            out->error_number = errno != 0 ? errno : EIO;
        }
    }
    out->used = 0;
}

void sp_i_write_bytes(sp_i_writer *out, const void *bytes, size_t count)
{
    const char *from = bytes;
    while (count > 0) {
        if (out->used == SP_I_WRITER_BYTES) {
            drain(out);
        }
        size_t room = SP_I_WRITER_BYTES - out->used;
        size_t part = count < room ? count : room;
        memcpy(out->buffer + out->used, from, part);
        out->used += part;
        from += part;
        count -= part;
    }
}

void sp_i_write_text(sp_i_writer *out, const char *text)
{
    sp_i_write_bytes(out, text, strlen(text));
}

void sp_i_write_char(sp_i_writer *out, char c)
{
    sp_i_write_bytes(out, &c, 1);
}

void sp_i_write_int(sp_i_writer *out, int64_t value)
{
    sp_i_write_fixed(out, value, 0);
}

void sp_i_write_fixed(sp_i_writer *out, int64_t value, int decimals)
{
    char text[MAX_DIGITS + 3];
    size_t at = sizeof(text);
    // The magnitude of INT64_MIN exists only as an unsigned number.
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    int places = 0;
    do {
        if (places == decimals && decimals > 0) {
            text[--at] = '.';
        }
        text[--at] = (char)('0' + rest % 10);
        rest /= 10;
        places++;
    } while (rest > 0 || places <= decimals);
    if (value < 0) {
        text[--at] = '-';
    }
    sp_i_write_bytes(out, text + at, sizeof(text) - at);
}

void sp_i_write_gib(sp_i_writer *out, int64_t bytes)
{
    const int64_t million = 1000000;
    int64_t size = bytes < 0 ? -bytes : bytes;
    int64_t whole = size >> GIB_SHIFT;
    int64_t part = size & (((int64_t)1 << GIB_SHIFT) - 1);
    int64_t millionths =
        whole * million + ((part * million + ((int64_t)1 << (GIB_SHIFT - 1))) >> GIB_SHIFT);
    sp_i_write_fixed(out, bytes < 0 ? -millionths : millionths, 6);
}

sp_status sp_i_writer_finish(sp_i_writer *out, const char *what, sp_error *err)
{
    drain(out);
    if (out->error_number == 0) {
        errno = 0;
        if (fflush(out->file) != 0) {
            out->error_number = errno != 0 ? errno : EIO;
        }
    }
    if (out->error_number != 0) {
        return sp_error_set(err, SP_ERR_IO, "cannot write the %s: %s", what,
                            strerror(out->error_number));
    }
    return SP_OK;
}

enum { NUMBER_LIMIT = 1000000000 }; // larger rank numbers are read as this one

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

// Reads a decimal number and moves *at past it; -1 where none begins.
static int read_number(const char **at)
{
    if (!is_digit(**at)) {
        return -1;
    }
    int number = 0;
    while (is_digit(**at)) {
        number = number >= NUMBER_LIMIT / 10 ? NUMBER_LIMIT : number * 10 + (**at - '0');
        (*at)++;
    }
    return number;
}

static bool contains(const int *values, int count, int value)
{
    for (int i = 0; i < count; i++) {
        if (values[i] == value) {
            return true;
        }
    }
    return false;
}

int sp_export_parse_ranks(const char *text, int limit, int *ranks, int max, sp_error *err)
{
    int count = 0;
    const char *at = text;
    for (;;) {
        int first = read_number(&at);
        int last = first;
        if (first >= 0 && *at == '-') {
            at++;
            last = read_number(&at);
        }
        if (first < 0 || last < 0 || (*at != ',' && *at != '\0')) {
            sp_error_set(err, SP_ERR_USAGE, "ranks '%s': expected numbers and ranges such as 0-3,8",
                         text);
            return -1;
        }
        if (last < first) {
            sp_error_set(err, SP_ERR_USAGE, "ranks '%s': the range %d-%d is empty", text, first,
                         last);
            return -1;
        }
        if (last >= limit) {
            sp_error_set(err, SP_ERR_USAGE, "ranks '%s': there are only the ranks 0 to %d", text,
                         limit - 1);
            return -1;
        }
        for (int rank = first; rank <= last; rank++) {
            if (contains(ranks, count, rank)) {
                continue;
            }
            if (count == max) {
                sp_error_set(err, SP_ERR_USAGE, "ranks '%s': at most %d can be chosen", text, max);
                return -1;
            }
            ranks[count++] = rank;
        }
        if (*at == '\0') {
            return count;
        }
        at++;
    }
}

void sp_i_export_label(const sp_rank_timeline *rank, char label[SP_I_LABEL])
{
    if (rank->alike > 1) {
        snprintf(label, SP_I_LABEL, "dp%d pp%d x%d", rank->dp, rank->pp, rank->alike);
    } else {
        snprintf(label, SP_I_LABEL, "dp%d pp%d", rank->dp, rank->pp);
    }
}

static bool has_dp_rank(const sp_export_window *window, const sp_rank_timeline *rank)
{
    if (contains(window->dp_ranks, window->dp_rank_count, rank->dp)) {
        return true;
    }
    for (int i = 0; rank->dp_alike != NULL && i < rank->alike; i++) {
        if (contains(window->dp_ranks, window->dp_rank_count, rank->dp_alike[i])) {
            return true;
        }
    }
    return false;
}

bool sp_i_export_has_rank(const sp_export_window *window, const sp_rank_timeline *rank)
{
    if (window == NULL) {
        return true;
    }
    return (window->pp_rank_count == 0 ||
            contains(window->pp_ranks, window->pp_rank_count, rank->pp)) &&
           (window->dp_rank_count == 0 || has_dp_rank(window, rank));
}

static bool ends_before(const sp_export_window *window, int64_t start_ns)
{
    return window->to_ns > 0 && start_ns >= window->to_ns;
}

bool sp_i_export_overlaps(const sp_export_window *window, int64_t start_ns, int64_t end_ns)
{
    if (window == NULL) {
        return true;
    }
    bool begins_before_its_end =
        start_ns < end_ns ? end_ns > window->from_ns : start_ns >= window->from_ns;
    return begins_before_its_end && !ends_before(window, start_ns);
}

void sp_i_export_range(const sp_export_window *window, const sp_timeline *timeline,
                       int64_t *from_ns, int64_t *to_ns)
{
    int64_t end_ns = timeline->iteration_ns > timeline->makespan_ns ? timeline->iteration_ns
                                                                    : timeline->makespan_ns;
    *from_ns = window == NULL ? 0 : window->from_ns;
    *to_ns = window == NULL || window->to_ns <= 0 ? end_ns : window->to_ns;
    if (*to_ns < *from_ns) {
        *to_ns = *from_ns;
    }
}

bool sp_i_export_point_holds(const sp_rank_memory *memory, size_t point)
{
    return sp_i_export_point_end(memory, point) > memory->points[point].time_ns;
}

int64_t sp_i_export_point_end(const sp_rank_memory *memory, size_t point)
{
    return point + 1 < memory->point_count ? memory->points[point + 1].time_ns : INT64_MAX;
}
