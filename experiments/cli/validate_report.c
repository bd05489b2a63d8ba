#include "experiments/cli/validate_report.h"

#include <math.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/base/units.h"

enum { FIGURE = 32 };

// Plain bytes are known of the largest rank.
static bool has_plain(const sp_validation *validation)
{
    return validation->measurements->kind == SP_MEASURED_ALLOCATOR_PEAK_BYTES;
}

static bool of_one_profile(const sp_measurements *measurements)
{
    for (size_t i = 1; i < measurements->count; i++) {
        if (strcmp(measurements->cases[i].scenario.profile.name,
                   measurements->cases[0].scenario.profile.name) != 0) {
            return false;
        }
    }
    return true;
}

// "" where no profile has a part in it.
static const char *profile_name(const sp_measurements *measurements)
{
    return of_one_profile(measurements) ? measurements->cases[0].scenario.profile.name : "several";
}

// No prediction of memory reads a fitted number.
static int fitted_constants(const sp_measurements *measurements)
{
    bool timed = !sp_measured_is_memory(measurements->kind);
    return timed && of_one_profile(measurements)
               ? measurements->cases[0].scenario.profile.fitted_constants
               : 0;
}

// ---- for people ----

// A share in percent, or a difference of ratios as it is.
static const char *error_text(const sp_validation *validation, double error, bool with_sign,
                              char text[FIGURE])
{
    if (sp_validation_is_difference(validation->measurements->kind)) {
        snprintf(text, FIGURE, with_sign ? "%+.5f" : "%.5f", error);
    } else {
        snprintf(text, FIGURE, with_sign ? "%+.2f %%" : "%.2f %%", 100.0 * error);
    }
    return text;
}

static void print_ranking(FILE *out, const sp_ranking *ranking)
{
    if (ranking->cells > 0) {
        fprintf(out,
                "  %d cells: rank correlation %.2f, regret of the pick %.1f %% (mean), %.1f %% "
                "(worst, %s)\n",
                ranking->cells, ranking->correlation, 100.0 * ranking->regret,
                100.0 * ranking->worst_regret, ranking->worst_cell);
    }
}

// Of the rows that did (ran 1) or did not run, those whose memory says so.
static size_t count_agreed(const sp_validation *v, double ran, size_t *rows)
{
    size_t agreed = 0;
    *rows = 0;
    for (size_t i = 0; i < v->measurements->count; i++) {
        bool counts = v->measurements->cases[i].measured == ran;
        *rows += counts;
        agreed += counts && v->cases[i].computed == ran;
    }
    return agreed;
}

static void print_fits(FILE *out, const sp_validation *v)
{
    if (v->measurements->kind == SP_MEASURED_FITS) {
        size_t ran;
        size_t failed;
        size_t fit = count_agreed(v, 1.0, &ran);
        size_t do_not = count_agreed(v, 0.0, &failed);
        fprintf(out, "  ran: %zu of %zu predicted to fit; failed: %zu of %zu predicted not to\n",
                fit, ran, do_not, failed);
    }
}

static void print_table(FILE *out, const sp_validation *v)
{
    const sp_measurements *m = v->measurements;
    const sp_measured_case *worst = &m->cases[v->errors.worst_row];
    char median[FIGURE];
    char mean[FIGURE];
    char bias[FIGURE];
    char bound[FIGURE] = "-";
    char worst_error[FIGURE];
    char published[FIGURE] = "-";
    char constants[FIGURE] = "-";
    if (m->bound >= 0.0) {
        error_text(v, m->bound, false, bound);
    }
    if (m->published_error >= 0.0) {
        error_text(v, m->published_error, false, published);
    }
    if (profile_name(m)[0] != '\0') {
        snprintf(constants, sizeof constants, "%d", fitted_constants(m));
    }
    fprintf(out, "%-18s %5zu %10s %10s %10s %10s %10s %10s %6s%s\n", m->name, m->count,
            error_text(v, v->errors.median, false, median),
            error_text(v, v->errors.mean, false, mean), error_text(v, v->errors.bias, true, bias),
            error_text(v, v->errors.worst, true, worst_error), bound, published, constants,
            m->bound < 0.0    ? ""
            : v->within_bound ? "  ok"
                              : "  MISSED");
    if (has_plain(v)) {
        fprintf(out, "%-18s %5s %10s %10s %10s\n", "  in plain bytes", "", "",
                error_text(v, v->plain_errors.mean, false, mean),
                error_text(v, v->plain_errors.bias, true, bias));
    }
    print_ranking(out, &v->ranking);
    print_fits(out, v);
    if (fabs(v->errors.worst) > 0.0) {
        fprintf(out, "  worst: line %d%s%s\n", worst->line, worst->label[0] != '\0' ? ", " : "",
                worst->label);
    }
}

void cli_print_validations(FILE *out, const sp_validation *validations, int count)
{
    bool bubbles = false;
    bool fits = false;
    fprintf(out, "%-18s %5s %10s %10s %10s %10s %10s %10s %6s\n", "table", "cases", "median",
            "mean", "bias", "worst", "bound", "published", "fitted");
    for (int i = 0; i < count; i++) {
        print_table(out, &validations[i]);
        bubbles = bubbles || validations[i].measurements->kind == SP_MEASURED_BUBBLE_RATE;
        fits = fits || validations[i].measurements->kind == SP_MEASURED_FITS;
    }
    fputs("\nErrors are computed / measured - 1; mean is that of their sizes, and what the bound "
          "is of.\n",
          out);
    if (bubbles) {
        fputs("Errors of bubble ratios are computed - measured, their bound is of the largest.\n",
              out);
    }
    if (fits) {
        fputs("Errors of what fits are computed - measured: 1 fits or ran, 0 does or did not.\n",
              out);
    }
    fputs("fitted: constants of the profile that were fitted to measurements.\n", out);
    for (int i = 0; i < count; i++) {
        const sp_measurements *m = validations[i].measurements;
        if (m->published_error >= 0.0) {
            fprintf(out, "published for %s: %s\n", m->name, m->published_by);
        }
    }
}

static const char *unit_of(sp_measured kind)
{
    return sp_measured_is_memory(kind)        ? "GiB"
           : kind == SP_MEASURED_TOKENS_PER_S ? "tokens/s"
           : kind == SP_MEASURED_BUBBLE_RATE  ? "ratio"
           : kind == SP_MEASURED_SPEEDUP      ? "x"
           : kind == SP_MEASURED_FITS         ? "ran"
                                              : "ms";
}

static double in_unit(sp_measured kind, double value)
{
    return sp_measured_is_memory(kind) ? value / SP_GIB : value;
}

void cli_print_validated_cases(FILE *out, const sp_validation *validation)
{
    const sp_measurements *m = validation->measurements;
    int digits = m->kind == SP_MEASURED_BUBBLE_RATE                                 ? 5
                 : sp_measured_is_memory(m->kind) || m->kind == SP_MEASURED_SPEEDUP ? 3
                 : m->kind == SP_MEASURED_TOKENS_PER_S                              ? 0
                                                                                    : 2;
    fprintf(out, "\n%s, %s%s%s, in %s\n", m->name, sp_measured_names[m->kind],
            profile_name(m)[0] != '\0' ? ", profile " : "", profile_name(m), unit_of(m->kind));
    fprintf(out, "%6s %12s %12s %12s %10s  %s\n", "line", "measured", "computed", "delta", "error",
            "row");
    for (size_t i = 0; i < m->count; i++) {
        const sp_measured_case *c = &m->cases[i];
        const sp_validated_case *found = &validation->cases[i];
        double measured = in_unit(m->kind, c->measured);
        double computed = in_unit(m->kind, found->computed);
        char error[FIGURE];
        fprintf(out, "%6d %12.*f %12.*f %+12.*f %10s%s%s%s\n", c->line, digits, measured, digits,
                computed, digits, computed - measured,
                error_text(validation, found->error, true, error), c->label[0] != '\0' ? "  " : "",
                c->label, c->at_most ? " (at most)" : "");
    }
}

// ---- JSON ----

// What a model's step is, beside what the table's own words say of it.
static void put_step(json_t *object, const sp_measured_case *c, const sp_validated_case *found)
{
    const sp_layout *l = &c->scenario.layout;
    sp_json_put(object, "layout",
                json_pack("{s:I, s:i, s:i, s:i, s:i, s:i, s:I}", "gpus",
                          (json_int_t)sp_layout_ranks(l), "dp", l->dp, "tp", l->tp, "cp", l->cp,
                          "pp", l->pp, "chunks_per_rank", l->chunks, "microbatch_samples",
                          (json_int_t)c->scenario.strategy.microbatch_samples));
    sp_json_put(object, "fits",
                found->fits != SP_FITS_NONE ? json_string(sp_fits_names[found->fits])
                                            : json_null());
    if (found->measured_mfu > 0.0) {
        sp_json_put(object, "measured_mfu_megatron", json_real(found->measured_mfu));
    }
}

static json_t *case_json(const sp_validation *v, size_t index)
{
    const sp_measured_case *c = &v->measurements->cases[index];
    const sp_validated_case *found = &v->cases[index];
    json_t *object = json_object();
    sp_json_put(object, "line", json_integer(c->line));
    sp_json_put(object, "column", json_string(c->measured_column));
    sp_json_put(object, "label", json_string(c->label));
    sp_json_put(object, "measured", json_real(c->measured));
    sp_json_put(object, "computed", json_real(found->computed));
    sp_json_put(object, "delta", json_real(found->computed - c->measured));
    sp_json_put(object, "error", json_real(found->error));
    if (has_plain(v)) {
        sp_json_put(object, "computed_plain", json_real(found->plain));
        sp_json_put(object, "error_plain", json_real(found->plain_error));
    }
    if (c->at_most) {
        sp_json_put(object, "at_most", json_true());
    }
    if (c->cell[0] != '\0') {
        sp_json_put(object, "cell", json_string(c->cell));
    }
    if (!c->scenario.uniform) {
        put_step(object, c, found);
    }
    return object;
}

static json_t *published_json(const sp_measurements *m)
{
    return m->published_error < 0.0
               ? json_null()
               : json_pack("{s:f, s:s}", "error", m->published_error, "by", m->published_by);
}

static json_t *ranked_cell_json(const sp_ranked_cell *cell)
{
    return json_pack("{s:s, s:I, s:f, s:o}", "cell", cell->name, "rows", (json_int_t)cell->rows,
                     "correlation", cell->correlation, "regret",
                     cell->regret >= 0.0 ? json_real(cell->regret) : json_null());
}

static json_t *ranking_json(const sp_ranking *ranking)
{
    json_t *by_cell = json_array();
    for (int c = 0; c < ranking->cells; c++) {
        json_array_append_new(by_cell, ranked_cell_json(&ranking->cell[c]));
    }
    if (ranking->cells == 0) {
        json_decref(by_cell);
        return json_null();
    }
    return json_pack("{s:i, s:f, s:f, s:f, s:s, s:o}", "cells", ranking->cells, "correlation",
                     ranking->correlation, "regret", ranking->regret, "worst_regret",
                     ranking->worst_regret, "worst_cell", ranking->worst_cell, "by_cell", by_cell);
}

// What the fit of the table's profile found of these rows when it left them out.
static json_t *left_out_json(const sp_measurements *m)
{
    const sp_error_records *records = &m->cases[0].scenario.profile.errors;
    for (int r = 0; of_one_profile(m) && r < records->count; r++) {
        const sp_error_record *record = &records->record[r];
        if (strcmp(record->scope, m->name) == 0) {
            return json_pack("{s:I, s:f, s:f, s:f, s:s}", "steps", (json_int_t)record->steps,
                             "median", record->median, "p90", record->p90, "bias", record->bias,
                             "source", record->source);
        }
    }
    return json_null();
}

static json_t *table_json(const sp_validation *v)
{
    const sp_measurements *m = v->measurements;
    const char *profile = profile_name(m);
    json_t *object = json_object();
    json_t *cases = json_array();
    sp_json_put(object, "table", json_string(m->name));
    sp_json_put(object, "source", json_string(m->source));
    sp_json_put(object, "licence", json_string(m->licence));
    sp_json_put(object, "measured", json_string(sp_measured_names[m->kind]));
    sp_json_put(object, "error_is",
                json_string(sp_validation_is_difference(m->kind) ? "difference" : "fraction"));
    sp_json_put(object, "profile", profile[0] != '\0' ? json_string(profile) : json_null());
    sp_json_put(object, "fitted_constants", json_integer(fitted_constants(m)));
    sp_json_put(object, "count", json_integer((json_int_t)m->count));
    sp_json_put(object, "mean_absolute_error", json_real(v->errors.mean));
    sp_json_put(object, "median_absolute_error", json_real(v->errors.median));
    sp_json_put(object, "bias", json_real(v->errors.bias));
    sp_json_put(object, "left_out", left_out_json(m));
    sp_json_put(object, "ranking", ranking_json(&v->ranking));
    sp_json_put(object, "worst", case_json(v, v->errors.worst_row));
    if (has_plain(v)) {
        sp_json_put(object, "mean_absolute_error_plain", json_real(v->plain_errors.mean));
        sp_json_put(object, "bias_plain", json_real(v->plain_errors.bias));
    }
    sp_json_put(object, "bound", m->bound >= 0.0 ? json_real(m->bound) : json_null());
    sp_json_put(object, "within_bound", json_boolean(v->within_bound));
    sp_json_put(object, "published", published_json(m));
    for (size_t i = 0; i < m->count; i++) {
        json_array_append_new(cases, case_json(v, i));
    }
    sp_json_put(object, "cases", cases);
    return object;
}

json_t *cli_validations_json(const sp_validation *validations, int count)
{
    json_t *root = json_object();
    json_t *tables = json_array();
    bool within = true;
    for (int i = 0; i < count; i++) {
        json_array_append_new(tables, table_json(&validations[i]));
        within = within && validations[i].within_bound;
    }
    sp_json_put(root, "schema", json_string("slimpack/validation/1"));
    sp_json_put(root, "within_bounds", json_boolean(within));
    sp_json_put(root, "tables", tables);
    return root;
}

// ---- figure ----

void cli_write_validations(FILE *out, const sp_validation *validations, int count)
{
    fputs("# measured computed computed/measured table quantity line\n", out);
    int written = 0;
    for (int i = 0; i < count; i++) {
        const sp_measurements *m = validations[i].measurements;
        if (m->kind == SP_MEASURED_FITS) { // no ratio
            continue;
        }
        fputs(written++ > 0 ? "\n\n" : "", out);
        for (size_t k = 0; k < m->count; k++) {
            double measured = in_unit(m->kind, m->cases[k].measured);
            double computed = in_unit(m->kind, validations[i].cases[k].computed);
            fprintf(out, "%.9g %.9g %.6f \"%s\" \"%s\" %d\n", measured, computed,
                    computed / measured, m->name, unit_of(m->kind), m->cases[k].line);
        }
    }
}
