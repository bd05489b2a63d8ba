#include "experiments/measurements/ranking.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"

// One row of a cell; times, or what falls as they rise.
typedef struct entry {
    double measured, predicted;
    double measured_rank, predicted_rank;
    bool fits;
} entry;

static double as_time(sp_measured kind, double value)
{
    bool rate = kind == SP_MEASURED_TOKENS_PER_S || kind == SP_MEASURED_SPEEDUP;
    return rate ? 1.0 / value : value;
}

static size_t collect(const sp_measurements *m, const sp_ranked *rows, const char *cell,
                      entry *entries)
{
    size_t count = 0;
    for (size_t i = 0; i < m->count; i++) {
        if (strcmp(m->cases[i].cell, cell) == 0) {
            entries[count++] = (entry){.measured = as_time(m->kind, m->cases[i].measured),
                                       .predicted = as_time(m->kind, rows[i].computed),
                                       .fits = rows[i].fits_well};
        }
    }
    return count;
}

static int by_measured(const void *a, const void *b)
{
    double x = ((const entry *)a)->measured;
    double y = ((const entry *)b)->measured;
    return (x > y) - (x < y);
}

static int by_predicted(const void *a, const void *b)
{
    double x = ((const entry *)a)->predicted;
    double y = ((const entry *)b)->predicted;
    return (x > y) - (x < y);
}

// Equal values share the mean of their ranks.
static void set_ranks(entry *entries, size_t count, int (*compare)(const void *, const void *),
                      bool of_measured)
{
    qsort(entries, count, sizeof *entries, compare);
    for (size_t first = 0; first < count;) {
        size_t end = first + 1;
        while (end < count && compare(&entries[first], &entries[end]) == 0) {
            end++;
        }
        double rank = 0.5 * (double)(first + end - 1);
        for (; first < end; first++) {
            *(of_measured ? &entries[first].measured_rank : &entries[first].predicted_rank) = rank;
        }
    }
}

static double correlation_of(entry *entries, size_t count)
{
    double mean = 0.5 * ((double)count - 1.0);
    double both = 0.0;
    double measured = 0.0;
    double predicted = 0.0;
    set_ranks(entries, count, by_measured, true);
    set_ranks(entries, count, by_predicted, false);
    for (size_t i = 0; i < count; i++) {
        double x = entries[i].measured_rank - mean;
        double y = entries[i].predicted_rank - mean;
        both += x * y;
        measured += x * x;
        predicted += y * y;
    }
    // Where all are equal no order can be wrong.
    return measured > 0.0 && predicted > 0.0 ? both / sqrt(measured * predicted)
                                             : (measured > 0.0 ? 0.0 : 1.0);
}

// Negative: nothing fits well.
static double regret_of(const entry *entries, size_t count)
{
    const entry *pick = NULL;
    double best = HUGE_VAL;
    for (size_t i = 0; i < count; i++) {
        best = fmin(best, entries[i].measured);
        if (entries[i].fits && (pick == NULL || entries[i].predicted < pick->predicted)) {
            pick = &entries[i];
        }
    }
    return pick != NULL ? pick->measured / best - 1.0 : -1.0;
}

static bool is_first_of_cell(const sp_measurements *m, size_t row)
{
    for (size_t i = 0; i < row; i++) {
        if (strcmp(m->cases[i].cell, m->cases[row].cell) == 0) {
            return false;
        }
    }
    return m->cases[row].cell[0] != '\0';
}

// Cells with less than two rows have no order.
static void rank_cells(const sp_measurements *m, const sp_ranked *rows, entry *entries,
                       sp_ranking *ranking)
{
    for (size_t row = 0; row < m->count; row++) {
        const char *name = m->cases[row].cell;
        size_t count = is_first_of_cell(m, row) ? collect(m, rows, name, entries) : 0;
        if (count >= 2) {
            double regret = regret_of(entries, count);
            ranking->cell[ranking->cells++] =
                (sp_ranked_cell){name, count, correlation_of(entries, count), regret};
        }
    }
}

static void sum_up(sp_ranking *ranking)
{
    for (int c = 0; c < ranking->cells; c++) {
        const sp_ranked_cell *cell = &ranking->cell[c];
        ranking->correlation += cell->correlation / ranking->cells;
        if (cell->regret >= 0.0) {
            ranking->regret += cell->regret;
            ranking->picks++;
        }
        if (ranking->worst_cell == NULL || cell->regret > ranking->worst_regret) {
            ranking->worst_regret = fmax(cell->regret, 0.0);
            ranking->worst_cell = cell->name;
        }
    }
    ranking->regret /= fmax(1.0, ranking->picks);
}

sp_status sp_ranking_of(const sp_measurements *measurements, const sp_ranked *rows,
                        sp_ranking *ranking, sp_error *err)
{
    *ranking = (sp_ranking){.cells = 0};
    entry *entries = sp_i_malloc(measurements->count * sizeof *entries);
    ranking->cell = sp_i_calloc(measurements->count, sizeof *ranking->cell);
    if (entries == NULL || ranking->cell == NULL) {
        sp_i_free(entries);
        sp_ranking_fini(ranking);
        return sp_error_no_memory(err, "a validation");
    }
    rank_cells(measurements, rows, entries, ranking);
    sum_up(ranking);
    sp_i_free(entries);
    return SP_OK;
}

void sp_ranking_fini(sp_ranking *ranking)
{
    sp_i_free(ranking->cell);
    *ranking = (sp_ranking){.cells = 0};
}
