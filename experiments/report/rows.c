// The points of a sweep that a page has place for.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "experiments/report/report.h"
#include "experiments/sweep/sweep.h"
#include "sim/base/alloc.h"
#include "sim/base/order.h"

typedef struct place {
    size_t at;     // in the file
    uint64_t work; // tells models and workloads apart
    bool fits, tight;
    double ms;            // to be expected
    double whole_ms, gib; // as the page draws them
    size_t rank; // the smaller of those by time and by memory, among points of the same work; 0: on
                 // their front
} place;

// FNV-1a (Fowler, Noll, Vo; 64 bits).
static uint64_t add_hash(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++) {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    }
    return hash * UINT64_C(1099511628211);
}

static uint64_t work_of(const json_t *point)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    const char *path;
    json_t *value;
    json_object_foreach ((json_t *)point, path, value) {
        char *text = sweep_is_work(path) ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        if (text != NULL) {
            hash = add_hash(add_hash(hash, path), text);
        }
        free(text);
    }
    return hash;
}

static place place_of(const json_t *row, size_t at)
{
    sweep_trial trial;
    sweep_trial_take(row, &trial);
    double ms = sweep_expected_ms(&trial);
    double gib = trial.figure[SWEEP_PEAK_MEMORY_GIB];
    return (place){.at = at,
                   .work = work_of(json_object_get(row, "point")),
                   .fits = trial.status == SWEEP_OK && isfinite(ms),
                   .tight = trial.fits == SP_FITS_TIGHT,
                   .ms = isfinite(ms) ? ms : HUGE_VAL,
                   .whole_ms = trial.figure[SWEEP_ITERATION_MS],
                   .gib = isfinite(gib) ? gib : HUGE_VAL,
                   .rank = SIZE_MAX};
}

// Points of the same work together, those that fit first, and of equals the first in the file.
static int compare_works(const place *a, const place *b)
{
    int work = SP_ORDER(a->work, b->work);
    return work != 0 ? work : (int)b->fits - (int)a->fits;
}

static int compare_places(const place *a, const place *b)
{
    return SP_ORDER(a->at, b->at);
}

static int compare_times(const void *left, const void *right)
{
    const place *a = left;
    const place *b = right;
    int works = compare_works(a, b);
    int tight = (int)a->tight - (int)b->tight;
    int times = SP_ORDER(a->ms, b->ms);
    return works != 0 ? works : tight != 0 ? tight : times != 0 ? times : compare_places(a, b);
}

static int compare_memory(const void *left, const void *right)
{
    const place *a = left;
    const place *b = right;
    int works = compare_works(a, b);
    int gib = SP_ORDER(a->gib, b->gib);
    int times = SP_ORDER(a->ms, b->ms);
    return works != 0 ? works : gib != 0 ? gib : times != 0 ? times : compare_places(a, b);
}

static int compare_front(const void *left, const void *right)
{
    const place *a = left;
    const place *b = right;
    int works = compare_works(a, b);
    int times = SP_ORDER(a->whole_ms, b->whole_ms);
    int gib = SP_ORDER(a->gib, b->gib);
    return works != 0 ? works : times != 0 ? times : gib != 0 ? gib : compare_places(a, b);
}

static int compare_ranks(const void *left, const void *right)
{
    const place *a = left;
    const place *b = right;
    int fits = (int)b->fits - (int)a->fits;
    int ranks = SP_ORDER(a->rank, b->rank);
    return fits != 0 ? fits : ranks != 0 ? ranks : compare_places(a, b);
}

static int compare_in_file(const void *left, const void *right)
{
    return compare_places(left, right);
}

static void rank_places(place *places, size_t count, int (*compare)(const void *, const void *))
{
    size_t rank = 0;
    qsort(places, count, sizeof *places, compare);
    for (size_t i = 0; i < count; i++) {
        rank = i > 0 && places[i].work == places[i - 1].work ? rank + 1 : 0;
        places[i].rank = rank < places[i].rank ? rank : places[i].rank;
    }
}

// Points than which no other of their work is faster and smaller.
static void rank_front(place *places, size_t count)
{
    double least = HUGE_VAL;
    qsort(places, count, sizeof *places, compare_front);
    for (size_t i = 0; i < count; i++) {
        least = i > 0 && places[i].work == places[i - 1].work ? least : HUGE_VAL;
        if (places[i].fits && places[i].gib < least) {
            places[i].rank = 0;
            least = places[i].gib;
        }
    }
}

void report_bound_rows(json_t *rows, size_t most)
{
    size_t count = json_array_size(rows);
    if (count <= most) {
        return;
    }
    place *places = sp_calloc(count, sizeof *places);
    for (size_t i = 0; i < count; i++) {
        places[i] = place_of(json_array_get(rows, i), i);
    }
    rank_places(places, count, compare_times);
    rank_places(places, count, compare_memory);
    rank_front(places, count);
    qsort(places, count, sizeof *places, compare_ranks);
    qsort(places, most, sizeof *places, compare_in_file);
    json_t *kept = json_array();
    for (size_t i = 0; i < most; i++) {
        json_array_append(kept, json_array_get(rows, places[i].at));
    }
    json_array_clear(rows);
    json_array_extend(rows, kept);
    json_decref(kept);
    sp_free(places);
}
