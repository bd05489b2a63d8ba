// `validate` compares tables of measured steps, or steps that it executes, with what is computed.
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/cli/cli.h"
#include "experiments/execution/execution.h"
#include "experiments/measure/measurements.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "solver/strategy.h"

enum {
    MOST_OVERRIDES = 64,
    OVERRIDE = 1100,
    FIGURE = 32,
    STEPS = 6, // of each batch, one of them to warm up, unless --steps says otherwise
};

typedef struct validate_args {
    cli_common common;
    cli_list set;
    int64_t jobs;
    bool published, rows;
    const char *table;        // only this one of the published tables
    const char *measurements; // NULL: the published tables
    const char *map, *profile, *plot, *output;
    const char *export, *executed; // folders; at most one is not NULL
    int64_t repeat;                // of each case of a set
    int64_t bound_percent;         // 0: what the tables state
    cli_execute execute;
    const char *scenario; // path, of one or of a set of them
} validate_args;

// ---- tables of measured steps ----

typedef struct tables {
    sp_measurements measurements[SP_PUBLISHED_TABLES];
    sp_validation validations[SP_PUBLISHED_TABLES];
    int count;
} tables;

// A profile is a setting like any other, but bubble tables have none to replace.
static sp_status choose_overrides(const validate_args *args, char profile[OVERRIDE],
                                  const char **overrides, int *count, sp_error *err)
{
    *count = 0;
    if (args->set.count >= MOST_OVERRIDES) {
        return sp_error_set(err, SP_ERR_USAGE, "--set is given %d times or more", MOST_OVERRIDES);
    }
    if (args->profile != NULL) {
        int length = snprintf(profile, OVERRIDE, "profile=\"%s\"", args->profile);
        if (length >= OVERRIDE || strpbrk(args->profile, "\"\\") != NULL) {
            return sp_error_set(err, SP_ERR_USAGE, "--profile: cannot use '%.64s'", args->profile);
        }
        overrides[(*count)++] = profile;
    }
    for (int i = 0; i < args->set.count; i++) {
        overrides[(*count)++] = args->set.items[i];
    }
    return SP_OK;
}

// Tables of published bubble ratios state every cost: there is nothing to replace in them.
static sp_status read_table(const validate_args *args, const char *path,
                            sp_measurements *measurements, sp_error *err)
{
    char profile[OVERRIDE];
    const char *overrides[MOST_OVERRIDES];
    int count = 0;
    sp_status status = choose_overrides(args, profile, overrides, &count, err);
    if (status == SP_OK && args->measurements == NULL && count > 0) {
        status = sp_measurements_read(path, args->map, NULL, 0, measurements, err);
        if (status != SP_OK || measurements->cases[0].scenario.uniform) {
            return status;
        }
        sp_measurements_fini(measurements);
    }
    return status == SP_OK
               ? sp_measurements_read(path, args->map, overrides, count, measurements, err)
               : status;
}

static sp_status validate_table(const validate_args *args, const char *path, tables *all,
                                sp_error *err)
{
    sp_status status = read_table(args, path, &all->measurements[all->count], err);
    if (status == SP_OK && args->bound_percent != 0) {
        all->measurements[all->count].bound = (double)args->bound_percent / 100.0;
    }
    if (status == SP_OK) {
        status = sp_validation_run(&all->measurements[all->count], cli_threads(args->jobs),
                                   &all->validations[all->count], err);
        all->count++;
    }
    if (status == SP_OK && args->measurements != NULL) {
        const sp_validation *v = &all->validations[all->count - 1];
        cli_warn_all(args->common.quiet || args->common.json, v->measurements->path, v->warnings);
    }
    return status;
}

static sp_status validate_published(const validate_args *args, tables *all, sp_error *err)
{
    sp_published published;
    char path[SP_PUBLISHED_PATH];
    sp_status status = sp_published_list(&sp_published_tables, &published, err);
    if (status == SP_OK && args->table != NULL) {
        status = sp_published_file(&published, args->table, path, err);
        return status == SP_OK ? validate_table(args, path, all, err) : status;
    }
    for (int i = 0; status == SP_OK && i < published.count; i++) {
        status = sp_published_file(&published, published.names[i], path, err);
        if (status == SP_OK) {
            status = validate_table(args, path, all, err);
        }
    }
    return status;
}

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

// ---- tables for people ----

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

static void print_ranking(const sp_ranking *ranking)
{
    if (ranking->cells > 0) {
        printf("  %d cells: rank correlation %.2f, regret of the pick %.1f %% (mean), %.1f %% "
               "(worst, %s)\n",
               ranking->cells, ranking->correlation, 100.0 * ranking->regret,
               100.0 * ranking->worst_regret, ranking->worst_cell);
    }
}

// Counts those of the rows that did (ran 1) or did not run whose memory says so.
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

static void print_fits(const sp_validation *v)
{
    if (v->measurements->kind == SP_MEASURED_FITS) {
        size_t ran;
        size_t failed;
        size_t fit = count_agreed(v, 1.0, &ran);
        size_t do_not = count_agreed(v, 0.0, &failed);
        printf("  ran: %zu of %zu predicted to fit; failed: %zu of %zu predicted not to\n", fit,
               ran, do_not, failed);
    }
}

static void print_table(const sp_validation *v)
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
    printf("%-18s %5zu %10s %10s %10s %10s %10s %10s %6s%s\n", m->name, m->count,
           error_text(v, v->errors.median, false, median),
           error_text(v, v->errors.mean, false, mean), error_text(v, v->errors.bias, true, bias),
           error_text(v, v->errors.worst, true, worst_error), bound, published, constants,
           m->bound < 0.0    ? ""
           : v->within_bound ? "  ok"
                             : "  MISSED");
    if (has_plain(v)) {
        printf("%-18s %5s %10s %10s %10s\n", "  in plain bytes", "", "",
               error_text(v, v->plain_errors.mean, false, mean),
               error_text(v, v->plain_errors.bias, true, bias));
    }
    print_ranking(&v->ranking);
    print_fits(v);
    if (fabs(v->errors.worst) > 0.0) {
        printf("  worst: line %d%s%s\n", worst->line, worst->label[0] != '\0' ? ", " : "",
               worst->label);
    }
}

// Tables without a bound neither keep nor miss one.
static void print_unbound(const sp_validation *validations, int count)
{
    const char *separator = "no bound stated for ";
    for (int i = 0; i < count; i++) {
        const sp_measurements *m = validations[i].measurements;
        if (m->bound < 0.0) {
            printf("%s%s", separator, m->name);
            separator = ", ";
        }
    }
    if (strcmp(separator, ", ") == 0) {
        fputs(" (bound_percent in the table's map, or --bound PERCENT)\n", stdout);
    }
}

static void print_tables(const sp_validation *validations, int count)
{
    bool bubbles = false;
    bool fits = false;
    printf("%-18s %5s %10s %10s %10s %10s %10s %10s %6s\n", "table", "cases", "median", "mean",
           "bias", "worst", "bound", "published", "fitted");
    for (int i = 0; i < count; i++) {
        print_table(&validations[i]);
        bubbles = bubbles || validations[i].measurements->kind == SP_MEASURED_BUBBLE_RATE;
        fits = fits || validations[i].measurements->kind == SP_MEASURED_FITS;
    }
    fputs("\nErrors are computed / measured - 1; mean is that of their sizes, and what the bound "
          "is of.\n",
          stdout);
    if (bubbles) {
        fputs("Errors of bubble ratios are computed - measured, their bound is of the largest.\n",
              stdout);
    }
    if (fits) {
        fputs("Errors of what fits are computed - measured: 1 fits or ran, 0 does or did not.\n",
              stdout);
    }
    fputs("fitted: constants of the profile that were fitted to measurements.\n", stdout);
    print_unbound(validations, count);
    for (int i = 0; i < count; i++) {
        const sp_measurements *m = validations[i].measurements;
        if (m->published_error >= 0.0) {
            printf("published for %s: %s\n", m->name, m->published_by);
        }
    }
}

// How the values of a kind are shown: their unit, its size in that of the kind, digits.
static const struct {
    const char *unit;
    double size;
    int digits;
} shown[] = {
    [SP_MEASURED_ITERATION_MS] = {"ms", 1.0, 2},
    [SP_MEASURED_TOKENS_PER_S] = {"tokens/s", 1.0, 0},
    [SP_MEASURED_TOKENS_PER_GPU_S] = {"tokens/s/GPU", 1.0, 1},
    [SP_MEASURED_ALLOCATOR_PEAK_BYTES] = {"GiB", SP_GIB, 3},
    [SP_MEASURED_FIRST_RANK_RESERVED_BYTES] = {"GiB", SP_GIB, 3},
    [SP_MEASURED_LAST_RANK_BYTES] = {"GiB", SP_GIB, 3},
    [SP_MEASURED_BUBBLE_RATE] = {"ratio", 1.0, 5},
    [SP_MEASURED_SPEEDUP] = {"x", 1.0, 3},
    [SP_MEASURED_FITS] = {"ran", 1.0, 2},
};

static void print_cases(const sp_validation *validation)
{
    const sp_measurements *m = validation->measurements;
    int digits = shown[m->kind].digits;
    printf("\n%s, %s%s%s, in %s\n", m->name, sp_measured_names[m->kind],
           profile_name(m)[0] != '\0' ? ", profile " : "", profile_name(m), shown[m->kind].unit);
    printf("%6s %12s %12s %12s %10s  %s\n", "line", "measured", "computed", "delta", "error",
           "row");
    for (size_t i = 0; i < m->count; i++) {
        const sp_measured_case *c = &m->cases[i];
        const sp_validated_case *found = &validation->cases[i];
        double measured = c->measured / shown[m->kind].size;
        double computed = found->computed / shown[m->kind].size;
        char error[FIGURE];
        printf("%6d %12.*f %12.*f %+12.*f %10s%s%s%s\n", c->line, digits, measured, digits,
               computed, digits, computed - measured,
               error_text(validation, found->error, true, error), c->label[0] != '\0' ? "  " : "",
               c->label, c->at_most ? " (at most)" : "");
    }
}

// ---- tables for programs ----

// Adds what a model's step is, beside what the table's own words say of it.
static void put_step(json_t *object, const sp_measured_case *c, const sp_validated_case *found)
{
    const sp_layout *l = &c->scenario.layout;
    sp_json_add(
        object,
        SP_JSON(
            "layout",
            sp_json_object(SP_JSON("gpus", sp_layout_ranks(l)), SP_JSON("dp", l->dp),
                           SP_JSON("tp", l->tp), SP_JSON("cp", l->cp), SP_JSON("pp", l->pp),
                           SP_JSON("chunks_per_rank", l->chunks),
                           SP_JSON("microbatch_samples", c->scenario.strategy.microbatch_samples))),
        SP_JSON("fits", found->fits != SP_FITS_NONE ? json_string(sp_fits_names[found->fits])
                                                    : json_null()),
        SP_JSON("memory_share", found->memory_share));
    const sp_step_error *error = &found->step_error;
    sp_json_add(object, SP_JSON("profile", c->scenario.profile.name),
                SP_JSON("p90", error->known ? json_real(error->p90) : json_null()),
                SP_JSON("differing_traits",
                        error->differing < 0 ? json_null() : json_integer(error->differing)),
                SP_JSON("foreign_traits", error->foreign),
                SP_JSON("compute_share", found->compute_share),
                SP_JSON("layer_ms", found->layer_ms), SP_JSON("microbatches", found->microbatches));
    if (found->measured_mfu > 0.0) {
        sp_json_put(object, "measured_mfu_megatron", json_real(found->measured_mfu));
    }
}

// A text that is not UTF-8, or a number that is not finite, has no place in JSON: its key is left
// out.
static json_t *case_json(const sp_validation *v, size_t index)
{
    const sp_measured_case *c = &v->measurements->cases[index];
    const sp_validated_case *found = &v->cases[index];
    json_t *object = sp_json_object(
        SP_JSON("line", c->line), SP_JSON("column", c->measured_column), SP_JSON("label", c->label),
        SP_JSON("measured", c->measured), SP_JSON("computed", found->computed),
        SP_JSON("delta", found->computed - c->measured), SP_JSON("error", found->error));
    if (has_plain(v)) {
        sp_json_add(object, SP_JSON("computed_plain", found->plain),
                    SP_JSON("error_plain", found->plain_error));
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
    return m->published_error < 0.0 ? json_null()
                                    : sp_json_object(SP_JSON("error", m->published_error),
                                                     SP_JSON("by", m->published_by));
}

static json_t *ranked_cell_json(const sp_ranked_cell *cell)
{
    return sp_json_object(
        SP_JSON("cell", cell->name), SP_JSON("rows", cell->rows),
        SP_JSON("correlation", cell->correlation),
        SP_JSON("regret", cell->regret >= 0.0 ? json_real(cell->regret) : json_null()));
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
    return sp_json_object(
        SP_JSON("cells", ranking->cells), SP_JSON("correlation", ranking->correlation),
        SP_JSON("regret", ranking->regret), SP_JSON("worst_regret", ranking->worst_regret),
        SP_JSON("worst_cell", ranking->worst_cell), SP_JSON("by_cell", by_cell));
}

// The fit of the table's profile found these errors when it left the rows out.
static json_t *left_out_json(const sp_measurements *m)
{
    const sp_error_records *records = &m->cases[0].scenario.profile.errors;
    for (int r = 0; of_one_profile(m) && r < records->count; r++) {
        const sp_error_record *record = &records->record[r];
        if (strcmp(record->scope, m->name) == 0) {
            return sp_json_object(SP_JSON("steps", record->steps),
                                  SP_JSON("median", record->median), SP_JSON("p90", record->p90),
                                  SP_JSON("bias", record->bias), SP_JSON("source", record->source));
        }
    }
    return json_null();
}

static json_t *table_json(const sp_validation *v)
{
    const sp_measurements *m = v->measurements;
    const char *profile = profile_name(m);
    json_t *cases = json_array();
    for (size_t i = 0; i < m->count; i++) {
        json_array_append_new(cases, case_json(v, i));
    }
    json_t *object = sp_json_object(
        SP_JSON("table", m->name), SP_JSON("source", m->source), SP_JSON("licence", m->licence),
        SP_JSON("measured", sp_measured_names[m->kind]),
        SP_JSON("error_is", sp_validation_is_difference(m->kind) ? "difference" : "fraction"),
        SP_JSON("profile", sp_json_text_or_null(profile)),
        SP_JSON("fitted_constants", fitted_constants(m)), SP_JSON("count", m->count),
        SP_JSON("mean_absolute_error", v->errors.mean),
        SP_JSON("median_absolute_error", v->errors.median), SP_JSON("bias", v->errors.bias),
        SP_JSON("left_out", left_out_json(m)), SP_JSON("ranking", ranking_json(&v->ranking)),
        SP_JSON("worst", case_json(v, v->errors.worst_row)));
    if (has_plain(v)) {
        sp_json_add(object, SP_JSON("mean_absolute_error_plain", v->plain_errors.mean),
                    SP_JSON("bias_plain", v->plain_errors.bias));
    }
    sp_json_add(
        object, SP_JSON("bound", m->bound >= 0.0 ? json_real(m->bound) : json_null()),
        SP_JSON("within_bound", m->bound >= 0.0 ? json_boolean(v->within_bound) : json_null()),
        SP_JSON("published", published_json(m)), SP_JSON("cases", cases));
    if (json_array_size(v->warnings) > 0) {
        sp_json_put(object, "warnings", json_incref(v->warnings));
    }
    return object;
}

static bool within_bounds(const tables *all)
{
    bool within = true;
    for (int i = 0; i < all->count; i++) {
        within = within && all->validations[i].within_bound;
    }
    return within;
}

static json_t *tables_json(const tables *all)
{
    json_t *list = json_array();
    for (int i = 0; i < all->count; i++) {
        json_array_append_new(list, table_json(&all->validations[i]));
    }
    int unbound = 0;
    for (int i = 0; i < all->count; i++) {
        unbound += all->measurements[i].bound < 0.0;
    }
    return sp_json_object(SP_JSON("schema", "slimpack/validation/1"),
                          SP_JSON("within_bounds", unbound < all->count
                                                       ? json_boolean(within_bounds(all))
                                                       : json_null()),
                          SP_JSON("without_bound", unbound), SP_JSON("tables", list));
}

// ---- figure ----

// The data of plots/validation.gp: a block for each table.
static sp_status write_figure(FILE *out, const void *what, sp_error *err)
{
    (void)err;
    const tables *all = what;
    fputs("# measured computed computed/measured table quantity line\n", out);
    int written = 0;
    for (int i = 0; i < all->count; i++) {
        const sp_measurements *m = all->validations[i].measurements;
        if (m->kind == SP_MEASURED_FITS) { // no ratio
            continue;
        }
        fputs(written++ > 0 ? "\n\n" : "", out);
        for (size_t k = 0; k < m->count; k++) {
            double measured = m->cases[k].measured / shown[m->kind].size;
            double computed = all->validations[i].cases[k].computed / shown[m->kind].size;
            fprintf(out, "%.9g %.9g %.6f \"%s\" \"%s\" %d\n", measured, computed,
                    computed / measured, m->name, shown[m->kind].unit, m->cases[k].line);
        }
    }
    return SP_OK;
}

// ---- output ----

static int print(const validate_args *args, const tables *all)
{
    if (args->common.json) {
        return cli_print_json(tables_json(all));
    }
    print_tables(all->validations, all->count);
    for (int i = 0; args->rows && i < all->count; i++) {
        print_cases(&all->validations[i]);
    }
    return 0;
}

static int validate(const validate_args *args, tables *all)
{
    sp_error err = {0};
    sp_status status = args->plot != NULL ? cli_plot_check(args->plot, &err) : SP_OK;
    if (status == SP_OK) {
        status = args->measurements == NULL ? validate_published(args, all, &err)
                                            : validate_table(args, args->measurements, all, &err);
    }
    if (status != SP_OK) {
        return cli_fail(&err);
    }
    int exit_status = print(args, all);
    if (args->plot != NULL &&
        cli_plot("validation.gp", args->plot, write_figure, all, &err) != SP_OK) {
        return cli_fail(&err);
    }
    return cli_answer(exit_status, within_bounds(all));
}

static int validate_with_tables(const validate_args *args)
{
    tables *all = sp_calloc(1, sizeof *all);
    int exit_status = validate(args, all);
    for (int i = 0; i < all->count; i++) {
        sp_validation_fini(&all->validations[i]);
        sp_measurements_fini(&all->measurements[i]);
    }
    sp_free(all);
    return exit_status;
}

// ---- scenarios, and sets of them, which a backend executes ----

enum { NAME = 30, PATH_BYTES = 1024 };

// All cases of a set share this.
typedef struct set_run {
    const validate_args *args;
    int repeat;
    sp_scenario_set set;
    sp_case_outcome *outcomes; // owned
    cli_executor executor;     // of the last case
    json_t *rows;              // of --export with --json
    FILE *runs;                // what `slimpack run` is given for each exported case
    size_t written;
} set_run;

// ---- the table ----

static void print_memory(const sp_case_outcome *outcome)
{
    if (!outcome->memory_compared) {
        fputs("-", stdout);
    } else if (sp_case_memory_is_exact(outcome)) {
        fputs("exact", stdout);
    } else {
        fputs("other:", stdout);
        for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
            if ((outcome->memory_differs >> c & 1u) != 0 && c != SP_MEM_WORKSPACE) {
                printf(" %s", sp_memory_category_names[c]);
            }
        }
    }
}

// Over that of the calibration; '!' where it differs.
static const char *speed_of(const sp_case_outcome *outcome, char text[CLI_PERCENT])
{
    if (isfinite(outcome->speed)) {
        snprintf(text, CLI_PERCENT, "%.2f%s", outcome->speed, outcome->steady ? " " : "!");
    } else {
        snprintf(text, CLI_PERCENT, "- ");
    }
    return text;
}

static void print_speeds(const sp_set_summary *summary)
{
    if (summary->speeds == 0) {
        return;
    }
    printf("speed of the machine over that at calibration, %.2f to %.2f", summary->least_speed,
           summary->most_speed);
    size_t other = summary->speeds - summary->steady;
    if (other > 0) {
        printf(": %zu of %zu cases (!) ran more than %.0f %% beside it, their times say little",
               other, summary->speeds, 100.0 * SP_STEADY_SPEED);
    }
    putchar('\n');
}

static void print_case(const sp_case_outcome *outcome)
{
    char error[CLI_PERCENT];
    char peak[CLI_PERCENT];
    char speed[CLI_PERCENT];
    printf("%-10s %-*s ", outcome->of->group, NAME, outcome->of->name);
    if (sp_case_has_figures(outcome)) {
        printf("%10.2f %11.2f %8s %7.3f %7.3f %+8.4f %7s %6s  ", outcome->predicted_ms,
               outcome->measured_ms, cli_percent(outcome->error.iteration_time, "%+.1f %%", error),
               outcome->predicted_bubble, outcome->measured_bubble, outcome->error.bubble_ratio,
               cli_percent(outcome->error.peak_memory_mape, "%.1f %%", peak),
               speed_of(outcome, speed));
        print_memory(outcome);
        fputs(outcome->status == SP_CASE_OOM ? "  out of memory\n" : "\n", stdout);
    } else {
        printf("%s: %s\n", sp_case_status_names[outcome->status], outcome->reason);
    }
    fflush(stdout);
}

static void print_mean(const char *what, double figure, double bound)
{
    char text[CLI_PERCENT];
    char bound_text[CLI_PERCENT];
    printf("\n%s %s", what, cli_percent(figure, "%.1f %%", text));
    if (bound >= 0.0) {
        printf(" (at most %s%s)", cli_percent(bound, "%.1f %%", bound_text),
               figure <= bound ? "" : ": MISSED");
    }
}

static void print_summary(const sp_set_summary *summary, const sp_scenario_set_bounds *bounds,
                          size_t count)
{
    char bias[CLI_PERCENT];
    printf("\n%zu of %zu cases executed", summary->compared, count);
    for (int s = SP_CASE_OOM; s < SP_CASE_STATUSES; s++) {
        if (summary->of_status[s] > 0) {
            printf(", %zu %s", summary->of_status[s], sp_case_status_names[s]);
        }
    }
    print_mean("iteration time, mean absolute error", summary->iteration_time_mape,
               bounds->iteration_time_mape);
    printf(", bias %s", cli_percent(summary->iteration_time_bias, "%+.1f %%", bias));
    if (isnan(summary->largest_bubble_error)) {
        printf("\nbubble ratio, largest error -");
    } else {
        printf("\nbubble ratio, largest error %.4f", summary->largest_bubble_error);
    }
    if (bounds->bubble_ratio_abs >= 0.0) {
        printf(" (at most %.4f%s)", bounds->bubble_ratio_abs,
               summary->largest_bubble_error <= bounds->bubble_ratio_abs ? "" : ": MISSED");
    }
    print_mean("peak memory, mean absolute error over ranks", summary->peak_memory_mape,
               bounds->peak_memory_mape);
    printf("\nmemory held between actions: as predicted in every category in %zu of %zu cases\n",
           summary->memory_exact, summary->memory_compared);
    print_speeds(summary);
}

// ---- the run ----

// How a case of a set is executed: as on the command line, by the clock that the case states where
// the command line states none.
static cli_execute execute_of_case(const cli_execute *execute, const sp_scenario_case *entry)
{
    cli_execute own = *execute;
    own.clock = own.clock != NULL ? own.clock : entry->clock;
    return own;
}

static sp_status begin_case(set_run *run, const cli_execute *execute, const sp_scenario_case *entry,
                            sp_error *err)
{
    cli_executor_end(&run->executor);
    sp_status status = cli_executor_begin(execute, &entry->scenario, STEPS, &run->executor, err);
    sp_execution_options *options = &run->executor.options;
    options->compare_memory =
        !entry->scenario.uniform && (run->executor.capabilities & SP_CAN(MEMORY_POINTS)) != 0;
    options->threads = cli_threads(run->args->jobs);
    return status;
}

static sp_status run_case(set_run *run, size_t index, sp_error *err)
{
    const sp_scenario_case *entry = &run->set.cases[index];
    const cli_execute execute = execute_of_case(&run->args->execute, entry);
    sp_status status = begin_case(run, &execute, entry, err);
    // Repeats go by the clock, which processes do not share.
    if (status == SP_OK && run->executor.processes > 1) {
        status = sp_error_set(err, SP_ERR_USAGE,
                              "sets are executed by one process, this run has %d: validate one "
                              "scenario, or export the set",
                              run->executor.processes);
    }
    return status == SP_OK ? sp_set_run_steady_case(entry, &run->executor.options, run->repeat,
                                                    &run->outcomes[index], err)
                           : status;
}

// --executed: the case's result in place of a run. That there is none is the case's outcome.
static sp_status recall_case(set_run *run, size_t index, sp_error *err)
{
    const sp_scenario_case *entry = &run->set.cases[index];
    sp_case_outcome *outcome = &run->outcomes[index];
    sp_execution_options *options = &run->executor.options;
    // The result says what executed it; this stands for cases that have none.
    cli_execute execute = execute_of_case(&run->args->execute, entry);
    execute.remote = true;
    execute.precision = sp_precision_names[run->executor.options.precision];
    char name[SP_CASE_FILE];
    char path[PATH_BYTES];
    sp_result_file executed;
    sp_error missing = {0};
    sp_case_file_name(entry, index, name);
    snprintf(path, sizeof path, "%s/%s.result.json", run->args->executed, name);
    sp_status status = begin_case(run, &execute, entry, err);
    if (status != SP_OK) {
        return status;
    }
    status = sp_set_read_executed(entry, options->backend, path, &executed, &missing);
    if (status == SP_ERR_IO) {
        *outcome = (sp_case_outcome){
            .of = entry, .status = SP_CASE_FAILED, .clock = options->clock, .speed = (double)NAN};
        snprintf(outcome->reason, sizeof outcome->reason, "%s", missing.message[0]);
        return SP_OK;
    }
    if (status != SP_OK) {
        *err = missing;
        return status;
    }
    const sp_run_request *settings = &executed.run;
    options->executed = &executed;
    options->clock = settings->clock;
    options->precision = settings->precision;
    options->seed = settings->seed;
    options->steps = settings->steps;
    options->compare_memory = settings->memory_points;
    status = sp_set_run_case(entry, options, outcome, err);
    options->executed = NULL;
    sp_result_file_fini(&executed);
    return status;
}

static sp_status run_cases(set_run *run, sp_error *err)
{
    sp_status status = SP_OK;
    run->outcomes = sp_calloc(run->set.count, sizeof *run->outcomes);
    for (size_t i = 0; status == SP_OK && i < run->set.count; i++) {
        status = run->args->executed != NULL ? recall_case(run, i, err) : run_case(run, i, err);
        if (status == SP_OK && !run->args->common.json) {
            if (i == 0) {
                printf("%-10s %-*s %10s %11s %8s %7s %7s %8s %7s %6s  %s\n", "group", NAME, "case",
                       "pred. ms", "executed ms", "error", "bubble", "exec.", "delta", "peak",
                       "speed", "memory held");
            }
            print_case(&run->outcomes[i]);
        }
    }
    return status;
}

static json_t *report_json(const set_run *run)
{
    return sp_set_validation_json(run->outcomes, run->set.count, &run->executor.options,
                                  run->repeat, &run->set.bounds);
}

// A case that was not executed is no success, and neither is one that is outside its bounds.
static int verdict(const sp_set_summary *summary, size_t count)
{
    if (summary->of_status[SP_CASE_FAILED] > 0) {
        return sp_status_exit(SP_ERR_INTERNAL);
    }
    bool good = summary->of_status[SP_CASE_OK] == count && summary->within_bounds;
    return sp_status_exit(good ? SP_OK : SP_ERR_INFEASIBLE);
}

static int report_set(const set_run *run)
{
    const validate_args *args = run->args;
    sp_error err = {0};
    sp_set_summary summary;
    if (args->output != NULL && cli_write_json(args->output, report_json(run), &err) != SP_OK) {
        return cli_fail(&err);
    }
    sp_set_summarize(run->outcomes, run->set.count, &run->set.bounds, &summary);
    if (args->common.json) {
        int printed = cli_print_json(report_json(run));
        return printed != 0 ? printed : verdict(&summary, run->set.count);
    }
    print_summary(&summary, &run->set.bounds, run->set.count);
    return verdict(&summary, run->set.count);
}

// ---- --export ----

static long long bytes_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (long long)info.st_size : 0;
}

static void print_exported(const sp_case_outcome *outcome, const char *path)
{
    printf("%-10s %-*s ", outcome->of->group, NAME, outcome->of->name);
    if (sp_case_has_figures(outcome)) {
        printf("%10.2f %8.3f %9.3f %8lld  %s%s\n", outcome->predicted_ms, outcome->predicted_bubble,
               sp_gib_from_bytes(outcome->predicted_peak_bytes), bytes_of(path), path,
               outcome->status == SP_CASE_OOM ? "  out of memory" : "");
    } else {
        printf("%s: %s\n", sp_case_status_names[outcome->status], outcome->reason);
    }
    fflush(stdout);
}

static json_t *exported_json(const sp_case_outcome *outcome, const char *path)
{
    bool planned = sp_case_has_figures(outcome);
    return sp_json_object(SP_JSON("group", outcome->of->group), SP_JSON("name", outcome->of->name),
                          SP_JSON("status", sp_case_status_names[outcome->status]),
                          SP_JSON("reason", sp_json_text_or_null(planned ? NULL : outcome->reason)),
                          SP_JSON("plan", sp_json_text_or_null(planned ? path : NULL)),
                          SP_JSON("bytes", bytes_of(path)));
}

// A line of arguments: files are named as from the folder.
static void put_run(FILE *file, const char *name, const sp_execution_options *options)
{
    fprintf(file, "run %s.json --backend %s --device %d --clock %s --precision %s --seed %llu",
            name, sp_backend_name(options->backend), options->device,
            sp_clock_names[options->clock], sp_precision_names[options->precision],
            (unsigned long long)options->seed);
    fprintf(file, " --steps %d", options->steps);
    for (size_t o = 0; o < options->option_count; o++) {
        fprintf(file, " --option %s=%s", options->options[o].key, options->options[o].value);
    }
    fprintf(file, " --record %s.result.json\n", name);
}

static sp_status export_case(set_run *run, size_t index, sp_error *err)
{
    const validate_args *args = run->args;
    const sp_scenario_case *entry = &run->set.cases[index];
    cli_execute execute = execute_of_case(&args->execute, entry);
    cli_executor executor;
    sp_case_outcome outcome;
    char name[SP_CASE_FILE];
    char path[PATH_BYTES];
    execute.remote = true;
    sp_case_file_name(entry, index, name);
    snprintf(path, sizeof path, "%s/%s.json", args->export, name);
    sp_status status = cli_executor_begin(&execute, &entry->scenario, STEPS, &executor, err);
    if (status == SP_OK) {
        executor.options.threads = cli_threads(args->jobs);
        status = sp_set_export_case(entry, &executor.options, path, &outcome, err);
    }
    if (status == SP_OK) {
        run->written += outcome.status == SP_CASE_OK;
        if (sp_case_has_figures(&outcome)) {
            put_run(run->runs, name, &executor.options);
        }
        if (args->common.json) {
            json_array_append_new(run->rows, exported_json(&outcome, path));
        } else {
            print_exported(&outcome, path);
        }
    }
    cli_executor_end(&executor);
    return status;
}

static sp_status export_cases(set_run *run, sp_error *err)
{
    const validate_args *args = run->args;
    if (mkdir(args->export, 0777) != 0 && errno != EEXIST) {
        return sp_error_system(err, args->export, errno);
    }
    if (!args->common.json) {
        printf("%-10s %-*s %10s %8s %9s %8s  %s\n", "group", NAME, "case", "pred. ms", "bubble",
               "peak GiB", "bytes", "plan");
    }
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/runs.txt", args->export);
    sp_output runs;
    sp_status status = sp_output_open(&runs, path, err);
    run->runs = runs.file;
    for (size_t i = 0; status == SP_OK && i < run->set.count; i++) {
        status = export_case(run, i, err);
    }
    return sp_output_close(&runs, status, err);
}

// A case without a plan, or out of memory, is no success.
static int report_export(const set_run *run)
{
    if (run->args->common.json) {
        int printed = cli_print_json(sp_json_object(SP_JSON("schema", "slimpack/export/1"),
                                                    SP_JSON("cases", json_incref(run->rows))));
        if (printed != 0) {
            return printed;
        }
    } else {
        printf("%zu of %zu plans in %s\n", run->written, run->set.count, run->args->export);
    }
    return cli_answer(0, run->written == run->set.count);
}

// Predicts and executes the cases of a set, or with --export writes their plans. Takes over
// `document`.
static int validate_set(const validate_args *args, json_t *document)
{
    sp_error err = {0};
    set_run run = {.args = args, .repeat = args->repeat > 0 ? (int)args->repeat : 1};
    sp_status status = SP_OK;
    if (args->plot != NULL) {
        json_decref(document);
        status = sp_error_set(&err, SP_ERR_USAGE, "--plot draws one scenario, %s is a set of them",
                              args->scenario);
    } else {
        status = sp_scenario_set_from_json(document, args->scenario, args->set.items,
                                           args->set.count, &run.set, &err);
    }
    if (status == SP_OK) {
        run.rows = json_array();
        status = args->export != NULL ? export_cases(&run, &err) : run_cases(&run, &err);
    }
    int exit_status = status != SP_OK        ? cli_fail(&err)
                      : args->export != NULL ? report_export(&run)
                                             : report_set(&run);
    json_decref(run.rows);
    sp_free(run.outcomes);
    cli_executor_end(&run.executor);
    sp_scenario_set_fini(&run.set);
    return exit_status;
}

// ---- one scenario ----

// The picture shows the first batch.
static sp_status draw(void *context, const sp_step_view *predicted, const sp_step_view *measured,
                      sp_error *err)
{
    const validate_args *args = context;
    if (args->plot == NULL || predicted->batch != 0) {
        return SP_OK;
    }
    return cli_plot_comparison(args->plot, predicted->timeline, measured->timeline, err);
}

static sp_status execute(validate_args *args, const sp_scenario *scenario, cli_executor *executor,
                         sp_execution *execution, sp_error *err)
{
    sp_status status = cli_executor_begin(&args->execute, scenario, STEPS, executor, err);
    if (executor->process > 0) {
        args->plot = args->output = NULL;
        args->common.quiet = true;
    }
    if (status == SP_OK && args->plot != NULL) {
        status = cli_plot_check(args->plot, err);
    }
    if (status != SP_OK) {
        return status;
    }
    sp_execution_options *options = &executor->options;
    options->compare_memory =
        !scenario->uniform && (executor->capabilities & SP_CAN(MEMORY_POINTS)) != 0;
    options->bounds = true;
    options->threads = cli_threads(args->jobs);
    options->observer = draw;
    options->observer_context = args;
    return sp_execution_run(scenario, options, execution, err);
}

static int report(const validate_args *args, const sp_scenario *scenario,
                  const sp_execution *execution)
{
    sp_error err = {0};
    if (args->output != NULL &&
        cli_write_json(args->output, sp_execution_validation_json(execution), &err) != SP_OK) {
        return cli_fail(&err);
    }
    if (args->common.json) {
        return cli_print_json(sp_execution_validation_json(execution));
    }
    cli_print_validation(stdout, scenario, execution);
    return 0;
}

static void warn_of_profile(const validate_args *args, const sp_scenario *scenario,
                            sp_warnings *warnings)
{
    if (!scenario->uniform && sp_profile_level(&scenario->profile) == SP_LEVEL_ASSUMED) {
        sp_warnings_add(warnings,
                        "profile %s is assumed: 'slimpack calibrate --backend %s -o FILE' measures "
                        "one on this machine, --set profile=FILE predicts by it",
                        scenario->profile.name, args->execute.backend);
    }
}

static int validate_scenario(const validate_args *args, json_t *document)
{
    validate_args own = *args;
    sp_error err = {0};
    sp_scenario scenario = {0};
    cli_executor executor = {0};
    sp_execution execution = {0};
    int exit_status;
    sp_status status = SP_OK;
    if (args->repeat != 0 || args->export != NULL || args->executed != NULL) {
        status = sp_error_set(&err, SP_ERR_USAGE,
                              "--repeat, --export and --executed are for sets, %s is one scenario",
                              args->scenario);
    } else {
        status = sp_scenario_place(document, args->scenario, &err);
    }
    if (status == SP_OK) {
        status = sp_scenario_from_json(document, args->scenario, args->set.items, args->set.count,
                                       &scenario, &err);
    }
    json_decref(document);
    if (status == SP_OK) {
        status = sp_strategy_resolve(&scenario, false, &err);
    }
    if (status == SP_OK) {
        status = execute(&own, &scenario, &executor, &execution, &err);
    }
    if (status == SP_OK) {
        warn_of_profile(&own, &scenario, &execution.predicted.warnings);
        exit_status = report(&own, &scenario, &execution);
        cli_print_notes(own.common.quiet || own.common.json, &execution.predicted);
        cli_print_notes(own.common.quiet || own.common.json, &execution.measured);
        bool oom = sp_result_is_oom(&execution.predicted) || sp_result_is_oom(&execution.measured);
        exit_status = exit_status == 0 && oom ? sp_status_exit(SP_ERR_INFEASIBLE) : exit_status;
    } else {
        exit_status = cli_fail_json(
            args->common.json, "slimpack/validation/1",
            sp_json_object(SP_JSON("clock", json_null()), SP_JSON("predicted", json_null()),
                           SP_JSON("measured", json_null()), SP_JSON("error", json_null()),
                           SP_JSON("ranks", json_array())),
            executor.process, &err);
    }
    sp_execution_fini(&execution);
    cli_executor_end(&executor);
    sp_scenario_fini(&scenario);
    return exit_status;
}

static int validate_with_backend(const validate_args *args)
{
    sp_error err = {0};
    json_t *document = NULL;
    if (sp_json_read_file(args->scenario, 0, &document, &err) != SP_OK) {
        return cli_fail(&err);
    }
    return sp_is_scenario_set(document) ? validate_set(args, document)
                                        : validate_scenario(args, document);
}

static bool says_how(const cli_execute *execute)
{
    return execute->clock != NULL || execute->precision != NULL || execute->device != 0 ||
           execute->seed != 0 || execute->steps != 0 || execute->options.count > 0;
}

// Nothing is executed here: an export has no report, and what was executed states how.
static const char *wrong_remote_usage(const validate_args *args)
{
    if (args->export == NULL && args->executed == NULL) {
        return NULL;
    }
    if (args->export != NULL && args->executed != NULL) {
        return "--export and --executed exclude each other";
    }
    if (args->repeat != 0 || args->plot != NULL) {
        return "--repeat and --plot have no use with --export and --executed";
    }
    if (args->export != NULL && args->output != NULL) {
        return "-o keeps a report, --export has none";
    }
    if (args->executed != NULL && says_how(&args->execute)) {
        return "--executed has its own --device, --clock, --precision, --seed, --steps and "
               "--option";
    }
    return NULL;
}

// NULL: the options fit together.
static const char *wrong_backend_usage(const validate_args *args, int operands)
{
    if (operands == 0) {
        return "--backend needs SCENARIO";
    }
    if (args->published || args->measurements != NULL) {
        return "--published, --measurements and --backend exclude each other";
    }
    if (args->table != NULL || args->map != NULL || args->profile != NULL || args->rows ||
        args->bound_percent != 0) {
        return "--table, --map, --profile, --bound and --rows are for tables of measured steps";
    }
    return wrong_remote_usage(args);
}

static const char *wrong_usage(const validate_args *args, int operands)
{
    if (args->execute.backend != NULL) {
        return wrong_backend_usage(args, operands);
    }
    if (args->output != NULL || says_how(&args->execute) || args->repeat != 0 ||
        args->export != NULL || args->executed != NULL) {
        return "-o, --export, --executed, --repeat, --device, --clock, --precision, --seed, "
               "--steps and --option need --backend";
    }
    if (operands > 0) {
        return "SCENARIO needs --backend NAME";
    }
    if (args->published == (args->measurements != NULL)) {
        return "'validate' needs either --published or --measurements TABLE, or SCENARIO --backend "
               "NAME";
    }
    if (args->table != NULL && !args->published) {
        return "--table chooses among the tables of --published";
    }
    if (args->map != NULL && args->published) {
        return "--map has a use beside --measurements only";
    }
    return NULL;
}

static int run(const void *given, const cli_operands *operands)
{
    validate_args args = *(const validate_args *)given;
    const char *wrong = wrong_usage(&args, operands->count);
    if (wrong != NULL) {
        return cli_usage_error(&cli_cmd_validate, "%s", wrong);
    }
    args.scenario = operands->count > 0 ? operands->items[0] : NULL;
    return args.execute.backend != NULL ? validate_with_backend(&args)
                                        : validate_with_tables(&args);
}

// ---- the command ----

static const cli_option options[] = {
    CLI_FLAG_OPTION("published", validate_args, published,
                    "the tables of published measurements that travel with the program"),
    CLI_TEXT_OPTION(CLI_STRING, 0, "table", "NAME", validate_args, table,
                    "only this one of the published tables"),
    CLI_TEXT_OPTION(CLI_FILE, 0, "measurements", "TABLE", validate_args, measurements,
                    "a table of your own (CSV)"),
    CLI_TEXT_OPTION(CLI_FILE, 0, "map", "FILE", validate_args, map,
                    "what the columns of TABLE set (default: TABLE's name ending in .json, where "
                    "there is such a file)"),
    CLI_TEXT_OPTION(CLI_FILE, 0, "profile", "PROFILE", validate_args, profile,
                    "compute with this profile in place of the tables' own"),
    CLI_INT_OPTION("bound", "PERCENT", validate_args, bound_percent, 1, 1000,
                   "the mean error that a table may have, of bubble ratios the largest, in "
                   "percent, in place of the bound that its map states"),
    CLI_SET_OPTION(validate_args),
    CLI_FLAG_OPTION("rows", validate_args, rows, "list every case"),
    CLI_TEXT_OPTION(CLI_KEPT, 0, "plot", "FILE", validate_args, plot,
                    "draw computed over measured, or both timelines of --backend, with gnuplot "
                    "(.png or .svg), or keep the data for that (.dat)"),
    CLI_EXECUTE_OPTIONS(validate_args, "6"),
    CLI_INT_OPTION("repeat", "N", validate_args, repeat, 1, SP_MOST_REPEAT,
                   "runs of each case of a set; of those at the speed of the calibration the one "
                   "of median time is shown (default 1)"),
    CLI_TEXT_OPTION(
        CLI_FOLDER, 0, "export", "FOLDER", validate_args, export,
        "write the plan of each case of a set to FOLDER, to be executed on another machine"),
    CLI_TEXT_OPTION(CLI_FOLDER, 0, "executed", "FOLDER", validate_args, executed,
                    "take what another machine executed of each case of a set from FOLDER"),
    CLI_TEXT_OPTION(CLI_OUTPUT, 'o', "output", "FILE", validate_args, output,
                    "keep the report of --backend in a file (JSON)"),
    CLI_JOBS_OPTION(validate_args),
    CLI_COMMON_OPTIONS(validate_args),
    {0},
};

static const char *const examples[] = {
    "slimpack validate --published",
    "slimpack validate --published --table a100_multi_node --rows",
    "slimpack validate --measurements my_runs.csv --profile a100 --bound 10",
    "slimpack validate experiments/host_small.json --backend host",
    "slimpack validate experiments/validate_host.json --backend host --set profile=host -o "
    "report.json",
    "slimpack validate experiments/validate_host.json --backend host --set profile=host --export "
    "requests",
    NULL,
};

const cli_command cli_cmd_validate = {
    .name = "validate",
    .summary = "compare measured steps with what is computed for them",
    CLI_TAKES("SCENARIO", 0, 1),
    .description =
        "Simulates every row of tables of measured steps and prints for each table the mean error, "
        "the bias, the worst row, the bound that the table or --bound states and, where there is "
        "one, the error that others published for it.\n\n--published takes the tables that travel "
        "with the program, --measurements one of your own. A row of a table is a scenario and what "
        "was measured of it: iteration_ms, tokens_per_s (of all GPUs), peak_memory_allocator_bytes "
        "(PyTorch's max_memory_allocated, largest rank), peak_memory_last_rank_bytes (of the last "
        "rank), peak_memory_first_rank_reserved_bytes (max_memory_reserved of rank 0) or speedup "
        "(over a baseline that the map states). A map says which columns set what; without one the "
        "columns are named by the settings (\"parallel.tp\", \"tp\", or what others call them). "
        "experiments/published/README.md describes both, and where the published tables come "
        "from.\n\nSCENARIO --backend NAME plans the scenario, predicts its steps with the "
        "scenario's profile, executes the same plan and prints predicted beside measured: "
        "iteration time, bubble ratio, peak memory of each rank, and by category what ranks hold "
        "between actions. SCENARIO may be a set (schema slimpack/validation-set/1): {\"base\": "
        "{scenario}, \"groups\": [{\"name\", \"set\": {\"parallel.pp\": 4, ...}, \"cases\": "
        "[{\"name\", \"set\"}, ...]}, ...], \"bounds\": {\"iteration_time_mape\", "
        "\"bubble_ratio_abs\", \"peak_memory_mape\"}}. Every case is then a row, with means below; "
        "a case that the backend cannot execute says why and is no success.\n\n--export FOLDER "
        "writes FOLDER/NN-name.json, a plan, for each case of a set, and to FOLDER/runs.txt the "
        "arguments with which 'slimpack run' executes each of them on another machine. That leaves "
        "NN-name.result.json, which --executed FOLDER reads in place of executing: its plans are "
        "predicted with the profile that the set names now, and compared as above. Groups and "
        "cases of a set may state a \"clock\", which --clock overrides.\n\nMachines change their "
        "speed. Where the profile says what the backend's reference work took at its calibration, "
        "the same work is timed around each run of a case of a set, and the row says how fast the "
        "machine was against then. A run that differs by more than 5 % is made again, up to three "
        "times as many runs as --repeat asks for; where no run was at the profile's speed the "
        "nearest is shown and marked with '!'. Times are never scaled.\n\nThe exit status is 1 "
        "when a table misses its bound, or a rank needs more memory than its limit.",
    CLI_RUNS(run, validate_args, options, examples),
};
