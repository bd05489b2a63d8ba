#include "experiments/calibrate/folds.h"

#include <string.h>

#include "experiments/measurements/measurement_csv.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

// The rows of one table as cells, beside its cases.
typedef struct grouping {
    const fit_spec *spec;
    const fit_table_spec *table;
    const sp_measurements *cases;
    sp_csv csv;
    int columns[FIT_GROUP_COLUMNS]; // that a group agrees in
    int *group;                     // [cases]
    int groups;
    sp_error *err;
} grouping;

// ---- groups ----

static sp_status find_columns(grouping *g)
{
    for (int i = 0; i < g->table->group_count; i++) {
        const char *names[SP_CSV_COLUMNS];
        char hint[SP_NAME_HINT];
        g->columns[i] = -1;
        for (int c = 0; c < g->csv.columns; c++) {
            names[c] = sp_csv_header(&g->csv, c)->text;
            if (strcmp(names[c], g->table->group[i]) == 0) {
                g->columns[i] = c;
            }
        }
        if (g->columns[i] < 0) {
            return sp_error_in(g->err, SP_ERR_CONTENT, g->spec->source, "tables",
                               "%s: folds.group: the table has no column '%.64s'%s", g->table->name,
                               g->table->group[i],
                               sp_name_hint(g->table->group[i], names, g->csv.columns, hint));
        }
    }
    return SP_OK;
}

// Does every case still stand in its row?
static bool is_unchanged(const grouping *g)
{
    bool unchanged = true;
    for (size_t i = 0; unchanged && i < g->cases->count; i++) {
        const sp_measured_case *c = &g->cases->cases[i];
        unchanged = c->row < g->csv.rows && sp_csv_at(&g->csv, c->row, 0)->line <= c->line &&
                    sp_csv_at(&g->csv, c->row, g->csv.columns - 1)->line >= c->line;
    }
    return unchanged;
}

static bool same_group(const grouping *g, size_t a, size_t b)
{
    size_t row_a = g->cases->cases[a].row;
    size_t row_b = g->cases->cases[b].row;
    for (int i = 0; i < g->table->group_count; i++) {
        if (strcmp(sp_csv_at(&g->csv, row_a, g->columns[i])->text,
                   sp_csv_at(&g->csv, row_b, g->columns[i])->text) != 0) {
            return false;
        }
    }
    return true;
}

// Numbered as they come.
static void number_groups(grouping *g)
{
    for (size_t i = 0; i < g->cases->count; i++) {
        size_t earlier = 0;
        while (!same_group(g, earlier, i)) {
            earlier++;
        }
        g->group[i] = earlier < i ? g->group[earlier] : g->groups++;
    }
}

// ---- random draws ----

void fit_random_folds(sp_prng *prng, size_t first, size_t end, int folds, int *fold)
{
    size_t count = end - first;
    size_t *order = sp_calloc(count, sizeof *order);
    for (size_t i = 0; i < count; i++) {
        size_t j = (size_t)sp_prng_below(prng, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (size_t i = 0; i < count; i++) {
        fold[first + order[i]] = (int)(i % (size_t)folds);
    }
    sp_free(order);
}

static sp_status assign_found(grouping *g, sp_prng *prng, int *folds, int *fold)
{
    int count = g->table->folds;
    if (count == 0 && g->groups > FIT_FOLDS) {
        return sp_error_in(g->err, SP_ERR_CONTENT, g->spec->source, "tables",
                           "%s: folds.group: %d groups, more than %d: state folds.count",
                           g->table->name, g->groups, (int)FIT_FOLDS);
    }
    int *fold_of = sp_calloc((size_t)g->groups, sizeof *fold_of);
    bool random = count > 0 && count < g->groups;
    *folds = random ? count : g->groups;
    for (int i = 0; i < g->groups; i++) {
        fold_of[i] = i;
    }
    if (random) {
        fit_random_folds(prng, 0, (size_t)g->groups, count, fold_of);
    }
    *folds = *folds >= 2 ? *folds : 0;
    for (size_t i = 0; *folds > 0 && i < g->cases->count; i++) {
        fold[i] = fold_of[g->group[i]];
    }
    sp_free(fold_of);
    return SP_OK;
}

static sp_status assign_groups(const fit_spec *spec, const fit_table_spec *table,
                               const sp_measurements *cases, sp_prng *prng, int *folds, int *fold,
                               sp_error *err)
{
    grouping g = {.spec = spec, .table = table, .cases = cases, .err = err};
    sp_status status = sp_csv_read_file(cases->file, &g.csv, err);
    if (status != SP_OK) {
        return status;
    }
    g.group = sp_calloc(cases->count, sizeof *g.group);
    status = find_columns(&g);
    if (status == SP_OK && !is_unchanged(&g)) {
        status =
            sp_error_set(err, SP_ERR_IO, "%s: cannot be read twice: it has changed", cases->path);
    }
    if (status == SP_OK) {
        number_groups(&g);
        status = assign_found(&g, prng, folds, fold);
    }
    sp_free(g.group);
    sp_csv_fini(&g.csv);
    return status;
}

sp_status fit_assign_folds(const fit_spec *spec, const fit_rows *rows, int count,
                           int folds[FIT_TABLES], int *fold, sp_error *err)
{
    sp_prng prng;
    sp_status status = SP_OK;
    sp_prng_seed(&prng, spec->seed);
    for (int t = 0; status == SP_OK && t < rows->table_count; t++) {
        const fit_table_spec *table = &spec->tables[t];
        size_t first = rows->first[t];
        size_t end = rows->first[t + 1];
        for (size_t row = first; row < end; row++) {
            fold[row] = -1;
        }
        if (count < 0 && table->group_count > 0) {
            status =
                assign_groups(spec, table, &rows->tables[t], &prng, &folds[t], fold + first, err);
            continue;
        }
        folds[t] = count >= 0 ? count : table->folds;
        folds[t] = (size_t)folds[t] > end - first ? (int)(end - first) : folds[t];
        folds[t] = folds[t] >= 2 ? folds[t] : 0;
        if (folds[t] > 0) {
            fit_random_folds(&prng, first, end, folds[t], fold);
        }
    }
    return status;
}

void fit_resample_rows(sp_prng *prng, size_t first, size_t end, double *times)
{
    for (size_t i = first; i < end; i++) {
        times[i] = 0.0;
    }
    for (size_t i = first; i < end; i++) {
        times[first + (size_t)sp_prng_below(prng, end - first)] += 1.0;
    }
}
