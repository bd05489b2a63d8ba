// `validate` of tables of measured steps.
#include <math.h>
#include <string.h>

#include "experiments/cli/validate.h"
#include "experiments/measure/published.h"
#include "experiments/measure/validation.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"

enum {
    FIGURE = 32,
    TABLES_SHOWN = 24,
    DETAILED = 4, // of so many tables people see more than a row
    CASES_SHOWN = 12,
};

typedef struct tables {
    sp_measurements measurements[SP_PUBLISHED_TABLES];
    sp_validation validations[SP_PUBLISHED_TABLES];
    int count;
} tables;

// A profile is a setting like any other, but bubble tables have none to replace.
sp_status cli_validate_overrides(const validate_args *args, char profile[VALIDATE_OVERRIDE],
                                 const char *overrides[VALIDATE_OVERRIDES], int *count,
                                 sp_error *err)
{
    *count = 0;
    if (args->set.count >= VALIDATE_OVERRIDES) {
        return sp_error_set(err, SP_ERR_USAGE, "--set is given %d times or more",
                            VALIDATE_OVERRIDES);
    }
    if (args->profile != NULL) {
        int length = snprintf(profile, VALIDATE_OVERRIDE, "profile=\"%s\"", args->profile);
        if (length >= VALIDATE_OVERRIDE || strpbrk(args->profile, "\"\\") != NULL) {
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
    char profile[VALIDATE_OVERRIDE];
    const char *overrides[VALIDATE_OVERRIDES];
    int count = 0;
    sp_status status = cli_validate_overrides(args, profile, overrides, &count, err);
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

typedef bool case_holds(const sp_scenario *scenario);

static bool has_experts(const sp_scenario *scenario)
{
    return sp_model_most_experts(&scenario->model) > 0;
}

static bool is_fp8(const sp_scenario *scenario)
{
    return sp_precision_is_fp8(&scenario->memory.stack.precision);
}

// Does it hold of one of the steps?
static bool any_case(const sp_measurements *m, case_holds *holds)
{
    bool any = false;
    for (size_t i = 0; i < m->count; i++) {
        any = any || holds(&m->cases[i].scenario);
    }
    return any;
}

// ---- tables for people ----

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

static const char table_columns[] =
    "-18 table|5 cases|9 median|9 mean|9~2 bias|10 worst|9 bound|9~3 published|6~1 fitted|0~6 ";

static void error_cell(cli_table *table, const sp_validation *v, double error, bool with_sign)
{
    if (sp_validation_is_difference(v->measurements->kind)) {
        cli_number_cell(table, with_sign ? "%+.5f" : "%.5f", error);
    } else {
        cli_number_cell(table, with_sign ? "%+.2f %%" : "%.2f %%", 100.0 * error);
    }
}

static void print_table(cli_table *table, const sp_validation *v)
{
    const sp_measurements *m = v->measurements;
    cli_row_begin(table);
    cli_cell(table, "%s", m->name);
    cli_cell(table, "%zu", m->count);
    error_cell(table, v, v->errors.median, false);
    error_cell(table, v, v->errors.mean, false);
    error_cell(table, v, v->errors.bias, true);
    error_cell(table, v, v->errors.worst, true);
    error_cell(table, v, m->bound >= 0.0 ? m->bound : (double)NAN, false);
    error_cell(table, v, m->published_error >= 0.0 ? m->published_error : (double)NAN, false);
    cli_number_cell(table, "%.0f",
                    profile_name(m)[0] != '\0' ? (double)fitted_constants(m) : (double)NAN);
    cli_cell(table, "%s", m->bound < 0.0 ? "" : v->within_bound ? "ok" : "MISSED");
    cli_row_end(table);
}

// More of a table, behind its row.
static void print_details(cli_table *table, const sp_validation *v)
{
    const sp_measurements *m = v->measurements;
    const sp_measured_case *worst = &m->cases[v->errors.worst_row];
    if (has_plain(v)) {
        cli_row_begin(table);
        cli_cell(table, "  in plain bytes");
        cli_cell(table, "%s", "");
        cli_cell(table, "%s", "");
        error_cell(table, v, v->plain_errors.mean, false);
        error_cell(table, v, v->plain_errors.bias, true);
        cli_row_end(table);
    }
    print_ranking(&v->ranking);
    print_fits(v);
    if (fabs(v->errors.worst) > 0.0) {
        printf("  worst: line %d%s%s\n", worst->line, worst->label[0] != '\0' ? ", " : "",
               worst->label);
    }
}

// People see few tables of many: first those that miss their bound.
static void print_all(const sp_validation *validations, int count)
{
    cli_table table;
    bool details = cli_is_wide() || count <= DETAILED;
    cli_table_begin(&table, table_columns, NULL, TABLES_SHOWN);
    for (int missed = 1; missed >= 0; missed--) {
        for (int i = 0; i < count; i++) {
            const sp_validation *v = &validations[i];
            if ((v->measurements->bound >= 0.0 && !v->within_bound) == (missed != 0)) {
                print_table(&table, v);
                if (details) {
                    print_details(&table, v);
                }
            }
        }
    }
    cli_table_end(&table);
}

static void print_count(const sp_validation *validations, int count)
{
    int bound = 0;
    int within = 0;
    for (int i = 0; i < count; i++) {
        bool has_bound = validations[i].measurements->bound >= 0.0;
        bound += has_bound;
        within += has_bound && validations[i].within_bound;
    }
    if (count > 1) {
        printf("%d of %d tables with a bound are within it, %d have none\n", within, bound,
               count - bound);
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

// ---- verdicts ----

int cli_validate_expected(const sp_step_error *error, double times)
{
    if (!isfinite(times) || (!error->known && error->range.steps == 0)) {
        return -1;
    }
    return error->known ? fabs(1.0 / times - 1.0) <= error->p90
                        : times >= error->range.least && times <= error->range.most;
}

void cli_validate_print_fit(const char *measurements, const char *table)
{
    char *command = sp_malloc(strlen(measurements) + 64);
    sprintf(command, "slimpack calibrate%s --fit FIT.json -o mine.json", measurements);
    cli_print_command(stdout, command, printf("go on with: "), 4);
    sp_free(command);
    char text[SP_ERROR_TEXT];
    snprintf(
        text, sizeof text,
        "FIT.json names the constants that are free, fewer than there are steps, and the table "
        "%s ('slimpack help calibrate')",
        table);
    cli_print_wrapped(stdout, text, printf("  "), 2);
}

static bool is_time(sp_measured kind)
{
    return kind == SP_MEASURED_ITERATION_MS || kind == SP_MEASURED_TOKENS_PER_S ||
           kind == SP_MEASURED_TOKENS_PER_GPU_S;
}

// Cases of which an error is told, and those of them that lie within it.
static size_t count_expected(const sp_validation *v, size_t *within)
{
    size_t told = 0;
    *within = 0;
    for (size_t i = 0; is_time(v->measurements->kind) && i < v->measurements->count; i++) {
        const double error = 1.0 + v->cases[i].error;
        const bool is_rate = v->measurements->kind != SP_MEASURED_ITERATION_MS;
        const int expected =
            cli_validate_expected(&v->cases[i].step_error, is_rate ? error : 1.0 / error);
        told += expected >= 0;
        *within += expected == 1;
    }
    return told;
}

static void print_verdict(const sp_validation *v)
{
    const sp_measurements *m = v->measurements;
    size_t within;
    const size_t told = count_expected(v, &within);
    char text[SP_ERROR_TEXT];
    if (!is_time(m->kind) && !sp_measured_is_memory(m->kind)) {
        return;
    }
    const bool above = v->errors.bias > 0.0;
    const char *side = m->kind == SP_MEASURED_ITERATION_MS ? (above ? "too slow" : "too fast")
                       : is_time(m->kind)                  ? (above ? "too fast" : "too slow")
                                                           : (above ? "too high" : "too low");
    snprintf(text, sizeof text, "%s is predicted %.2f %% %s in the mean, %.2f %% off by size",
             m->name, 100.0 * fabs(v->errors.bias), side, 100.0 * v->errors.mean);
    if (told > 0) {
        sp_append(text, sizeof text, "; %zu of %zu step%s within the error that is told of such",
                  within, told, told == 1 ? " is" : "s are");
    } else if (is_time(m->kind)) {
        sp_append(text, sizeof text, "; no error is told of such steps");
    }
    cli_print_wrapped(stdout, text, printf("verdict: "), 2);
}

static void print_go_on(const validate_args *args, const sp_measurements *m)
{
    sp_text memory;
    FILE *out = sp_text_begin(&memory);
    fputs(" --from-measurements ", out);
    sp_print_word(out, args->measurements);
    if (args->map != NULL) {
        fputs(" --map ", out);
        sp_print_word(out, args->map);
    }
    char *words = sp_text_end(&memory);
    if (is_time(m->kind) && !cli_is_stream(args->measurements)) {
        cli_validate_print_fit(words, m->name);
    }
    sp_free(words);
}

static void print_tables(const sp_validation *validations, int count)
{
    bool bubbles = false;
    bool fits = false;
    print_all(validations, count);
    print_count(validations, count);
    for (int i = 0; i < count; i++) {
        bubbles = bubbles || validations[i].measurements->kind == SP_MEASURED_BUBBLE_RATE;
        fits = fits || validations[i].measurements->kind == SP_MEASURED_FITS;
    }
    if (count > DETAILED && !cli_is_wide()) {
        puts("Errors: computed / measured - 1 (of bubbles and what fits: less measured); mean: of "
             "their sizes.");
        return;
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
    static const char columns[] = "6 line|12 measured|12 computed|12~1 delta|10 error|0~20 row";
    const sp_measurements *m = validation->measurements;
    char value[2][FIGURE];
    cli_table table;
    snprintf(value[0], FIGURE, "%%.%df", shown[m->kind].digits);
    snprintf(value[1], FIGURE, "%%+.%df", shown[m->kind].digits);
    printf("\n%s, %s%s%s, in %s\n", m->name, sp_measured_names[m->kind],
           profile_name(m)[0] != '\0' ? ", profile " : "", profile_name(m), shown[m->kind].unit);
    cli_table_begin(&table, columns, m->name, CASES_SHOWN);
    for (size_t i = 0; i < m->count; i++) {
        const sp_measured_case *c = &m->cases[i];
        const sp_validated_case *found = &validation->cases[i];
        double measured = c->measured / shown[m->kind].size;
        double computed = found->computed / shown[m->kind].size;
        cli_row_begin(&table);
        cli_cell(&table, "%d", c->line);
        cli_number_cell(&table, value[0], measured);
        cli_number_cell(&table, value[0], computed);
        cli_number_cell(&table, value[1], computed - measured);
        error_cell(&table, validation, found->error, true);
        cli_cell(&table, "%s%s", c->label, c->at_most ? " (at most)" : "");
        cli_row_end(&table);
    }
    cli_table_end(&table);
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
    size_t within;
    const size_t told = count_expected(v, &within);
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
        SP_JSON("experts", json_boolean(any_case(m, has_experts))),
        SP_JSON("fp8", json_boolean(any_case(m, is_fp8))),
        SP_JSON("expected_steps", told > 0 ? json_integer((json_int_t)told) : NULL),
        SP_JSON("as_expected", told > 0 ? json_integer((json_int_t)within) : NULL),
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
static sp_status write_figure(FILE *out, const void *what, sp_error *err SP_UNUSED)
{
    const tables *all = what;
    fputs("# measured computed computed/measured table quantity line claim\n", out);
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
            fprintf(out, "%.9g %.9g %.6f \"%s\" \"%s\" %d %s\n", measured, computed,
                    computed / measured, m->name, shown[m->kind].unit, m->cases[k].line,
                    m->cases[k].at_most ? "<=" : "=");
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
    if (all->count <= DETAILED) {
        putchar('\n');
    }
    for (int i = 0; i < all->count && all->count <= DETAILED; i++) {
        print_verdict(&all->validations[i]);
    }
    if (args->measurements != NULL) {
        print_go_on(args, &all->measurements[0]);
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

int cli_validate_tables(const validate_args *args)
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
