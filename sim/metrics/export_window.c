#include "sim/metrics/export_private.h"

enum { GIB_SHIFT = 30 };

int64_t sp_i_export_gib(int64_t bytes)
{
    const int64_t million = 1000000;
    int64_t size = bytes < 0 ? -bytes : bytes;
    int64_t whole = size >> GIB_SHIFT;
    int64_t part = size & (((int64_t)1 << GIB_SHIFT) - 1);
    int64_t millionths =
        whole * million + ((part * million + ((int64_t)1 << (GIB_SHIFT - 1))) >> GIB_SHIFT);
    return bytes < 0 ? -millionths : millionths;
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
