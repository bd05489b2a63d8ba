#include "experiments/fit/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/validation.h"
#include "sim/base/csv.h"
#include "sim/base/json.h"
#include "sim/base/progress.h"

// ---- Folds and resamples ----

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
    if (cases->file[0] == '\0') {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: tables.%s.folds: the row of a log has no columns to group it by",
                            spec->source, table->name);
    }
    SP_TRY(sp_csv_read_file(cases->file, &g.csv, err));
    g.group = sp_calloc(cases->count, sizeof *g.group);
    sp_status status = find_columns(&g);
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

// fold[row] from 0 to folds[table] - 1, -1 in tables without (folds[table] 0). `count` of every
// table, or (negative) what the specification says of each: a number of folds, drawn at random by
// its seed, or groups of the rows that agree in some columns, each a fold of its own or put whole
// into so many folds; or each table whole is a fold. A table with fewer rows or groups has as many
// folds, with one none. Content errors: a column that the table does not have; more than FIT_FOLDS
// groups.
static sp_status assign_folds(const fit_spec *spec, const fit_rows *rows, int count,
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
        if (count < 0 && spec->leaves_out_tables) {
            folds[t] = rows->table_count;
            for (size_t row = first; row < end; row++) {
                fold[row] = t;
            }
            continue;
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

// One calibration under way.
typedef struct calibration {
    const fit_spec *spec;
    const fit_source *sources;
    int source_count;
    fit_outcome *outcome;
    fit_solution best; // of all rows
    int resamples, ablations;
    sp_progress progress;
    int64_t steps_done; // of the progress
    sp_error *err;
} calibration;

enum { NUMBER = 32, MOST_ITERATIONS = 100, MOST_REFIT_ITERATIONS = 40 };

static const double near_bound = 1e-3;
static const double no_slope = 1e-9;
// A refit is compared with others, the first fit is what is written.
static const double tolerance = 1e-6;
static const double refit_tolerance = 1e-5;

void fit_outcome_fini(fit_outcome *outcome)
{
    fit_model_fini(&outcome->model);
    fit_rows_fini(&outcome->rows);
    for (int t = 0; t < FIT_TABLES; t++) {
        json_decref(outcome->warnings[t]);
    }
    sp_arena_free(&outcome->arena);
    *outcome = (fit_outcome){0};
}

void fit_errors_of(const double *observed, const double *predicted, size_t first, size_t end,
                   sp_prediction_errors *errors)
{
    double *of_rows = sp_calloc(end - first, sizeof *of_rows);
    for (size_t i = first; i < end; i++) {
        of_rows[i - first] = predicted[i] / observed[i] - 1.0;
    }
    sp_prediction_errors_of(of_rows, end - first, errors);
    errors->worst_row += first;
    sp_free(of_rows);
}

// ---- set-up ----

static int most_folds(const fit_outcome *outcome)
{
    int most = 0;
    for (int t = 0; t < outcome->rows.table_count; t++) {
        most = outcome->folds[t] > most ? outcome->folds[t] : most;
    }
    return most;
}

// A fit to values in a wrong unit would bend every constant before it gives up.
static sp_status check_units(calibration *c)
{
    fit_outcome *outcome = c->outcome;
    const fit_rows *rows = &outcome->rows;
    fit_parameter parameters[FIT_CONSTANTS];
    double start[FIT_CONSTANTS] = {0.0};
    SP_TRY(fit_model_parameters(&outcome->model, parameters, c->err));
    for (int i = 0; i < outcome->model.constant_count; i++) {
        start[i] = parameters[i].start;
    }
    SP_TRY(fit_model_predict(&outcome->model, start, NULL, outcome->predicted, c->err));
    for (int t = 0; t < rows->table_count; t++) {
        SP_TRY(sp_measurements_check_units(&rows->tables[t], outcome->predicted + rows->first[t],
                                           c->err));
    }
    return SP_OK;
}

static sp_status set_up(calibration *c, const fit_options *options)
{
    fit_outcome *outcome = c->outcome;
    SP_TRY(fit_model_init(c->spec, NULL, &outcome->model, c->err));
    SP_TRY(fit_rows_read(c->spec, c->sources, c->source_count, outcome->model.document, NULL,
                         &outcome->rows, c->err));
    outcome->model.rows = &outcome->rows;
    outcome->model.threads = options->threads;
    size_t count = outcome->rows.count;
    outcome->predicted = sp_arena_take(&outcome->arena, count, sizeof *outcome->predicted);
    outcome->left_out = sp_arena_take(&outcome->arena, count, sizeof *outcome->left_out);
    outcome->fold = sp_arena_take(&outcome->arena, count, sizeof *outcome->fold);
    outcome->kinds = sp_arena_take(&outcome->arena, count, sizeof *outcome->kinds);
    outcome->layer_ms = sp_arena_take(&outcome->arena, count, sizeof *outcome->layer_ms);
    outcome->differing = sp_arena_take(&outcome->arena, count, sizeof *outcome->differing);
    outcome->foreign = sp_arena_take(&outcome->arena, count, sizeof *outcome->foreign);
    SP_TRY(check_units(c));
    SP_TRY(assign_folds(c->spec, &outcome->rows, options->folds, outcome->folds, outcome->fold,
                        c->err));
    c->resamples = options->bootstrap >= 0 ? options->bootstrap : c->spec->bootstrap;
    c->ablations = options->ablations ? c->spec->ablation_count : 0;
    int64_t steps = 1 + (int64_t)most_folds(outcome) + c->resamples + c->ablations;
    sp_progress_begin(&c->progress, "fitting", steps, options->quiet);
    return SP_OK;
}

// ---- fits ----

static void count_step(calibration *c)
{
    sp_progress_update(&c->progress, ++c->steps_done);
}

static fit_problem problem_of(const calibration *c, const fit_model *model,
                              const fit_parameter *parameters, const double *weight)
{
    return (fit_problem){.parameters = parameters,
                         .parameter_count = (size_t)model->constant_count,
                         .observed = model->rows->observed,
                         .weight = weight,
                         .row_count = model->rows->count,
                         .scale = c->spec->loss_scale,
                         .tolerance = tolerance,
                         .most_iterations = MOST_ITERATIONS,
                         .predict = fit_model_predict,
                         // The solver hands it back and changes nothing in it.
                         .context = (void *)model};
}

static sp_status fit_all_rows(calibration *c)
{
    fit_outcome *outcome = c->outcome;
    fit_parameter parameters[FIT_CONSTANTS];
    SP_TRY(fit_model_parameters(&outcome->model, parameters, c->err));
    fit_problem problem = problem_of(c, &outcome->model, parameters, outcome->rows.weight);
    SP_TRY(fit_least_squares(&problem, &c->best, c->err));
    outcome->iterations = c->best.iterations;
    outcome->evaluations += c->best.evaluations;
    outcome->converged = c->best.converged;
    count_step(c);
    return SP_OK;
}

// Fits `model` once more with other weights, from the constants of c->best. `derivatives` may be
// NULL.
static sp_status refit(calibration *c, const fit_model *model, const double *weight,
                       const fit_derivatives *derivatives, fit_solution *solution)
{
    fit_parameter parameters[FIT_CONSTANTS];
    SP_TRY(fit_model_parameters(model, parameters, c->err));
    for (int i = 0; i < model->constant_count; i++) {
        parameters[i].start = c->best.constants[model->number[i]];
    }
    fit_problem problem = problem_of(c, model, parameters, weight);
    problem.tolerance = refit_tolerance;
    problem.most_iterations = MOST_REFIT_ITERATIONS;
    problem.derivatives = derivatives;
    sp_status status = fit_least_squares(&problem, solution, c->err);
    c->outcome->evaluations += solution->evaluations;
    return status;
}

// Sums up tables, those with folds alone where `folds` is given.
static void table_errors(const fit_rows *rows, const double *predicted, const int *folds,
                         sp_prediction_errors errors[FIT_TABLES])
{
    for (int t = 0; t < rows->table_count; t++) {
        if (folds == NULL || folds[t] > 0) {
            fit_errors_of(rows->observed, predicted, rows->first[t], rows->first[t + 1],
                          &errors[t]);
        }
    }
}

// ---- what comes out ----

static double rounded(double value)
{
    char text[NUMBER];
    snprintf(text, sizeof text, "%.*g", FIT_DIGITS, value);
    return strtod(text, NULL);
}

static bool is_undetermined(const calibration *c, int constant)
{
    size_t count = (size_t)c->outcome->model.constant_count;
    for (size_t row = 0; row < c->outcome->rows.count; row++) {
        if (fabs(c->best.derivatives.matrix[row * count + (size_t)constant]) > no_slope) {
            return false;
        }
    }
    return true;
}

// The constants as they will be written, and what they predict.
static sp_status round_values(calibration *c)
{
    fit_outcome *outcome = c->outcome;
    int count = outcome->model.constant_count;
    double constants[FIT_CONSTANTS] = {0.0};
    for (int i = 0; i < count; i++) {
        const fit_constant *constant = &outcome->model.constants[i];
        double value = c->best.constants[i];
        double variance = c->best.covariance[i * count + i];
        constants[i] = rounded(value);
        outcome->values[i] = (fit_value){
            .value = constants[i],
            .spread = variance > 0.0 ? sqrt(variance) : -1.0,
            .at_bound = log(value / constant->least) < near_bound ||
                        log(constant->most / value) < near_bound,
            .undetermined = is_undetermined(c, i),
        };
    }
    SP_TRY(fit_model_predict(&outcome->model, constants, NULL, outcome->predicted, c->err));
    table_errors(&outcome->rows, outcome->predicted, NULL, outcome->errors);
    return SP_OK;
}

static sp_status find_correlations(calibration *c)
{
    fit_outcome *outcome = c->outcome;
    int count = outcome->model.constant_count;
    const double *covariance = c->best.covariance;
    for (int a = 0; a < count; a++) {
        for (int b = a + 1; b < count; b++) {
            double scale = sqrt(covariance[a * count + a] * covariance[b * count + b]);
            double r = scale > 0.0 ? covariance[a * count + b] / scale : 0.0;
            if (fabs(r) >= FIT_CORRELATED) {
                outcome->correlations[outcome->correlation_count++] =
                    (fit_correlation){.a = a, .b = b, .r = r};
            }
        }
    }
    return SP_OK;
}

// ---- parts of the rows ----

// Fits "fold 2" or "resample 7", which may have too few rows for a fit that all rows allow.
static sp_status refit_part(calibration *c, const char *part, int number, const double *weight,
                            fit_solution *solution)
{
    sp_error *outer = c->err;
    sp_error inner = {0};
    c->err = &inner;
    sp_status status = refit(c, &c->outcome->model, weight, &c->best.derivatives, solution);
    c->err = outer;
    return status == SP_OK
               ? SP_OK
               : sp_error_set(outer, status, "%s %d: %.500s", part, number, inner.message[0]);
}

// Leaves fold k of every table out at once.
static sp_status leave_out(calibration *c, int k, double *weight, uint8_t *held)
{
    fit_outcome *outcome = c->outcome;
    fit_solution solution;
    for (size_t row = 0; row < outcome->rows.count; row++) {
        held[row] = outcome->fold[row] == k;
        weight[row] = held[row] != 0 ? 0.0 : outcome->rows.weight[row];
    }
    sp_status status = refit_part(c, "fold", k + 1, weight, &solution);
    if (status == SP_OK) {
        status =
            fit_model_predict(&outcome->model, solution.constants, held, outcome->left_out, c->err);
        fit_solution_fini(&solution);
        count_step(c);
    }
    return status;
}

static sp_status cross_validate(calibration *c)
{
    fit_outcome *outcome = c->outcome;
    size_t count = outcome->rows.count;
    sp_arena arena = {0};
    double *weight = sp_arena_take(&arena, count, sizeof *weight);
    uint8_t *held = sp_arena_take(&arena, count, sizeof *held);
    sp_status status = SP_OK;
    int most = most_folds(outcome);
    for (int k = 0; status == SP_OK && k < most; k++) {
        status = leave_out(c, k, weight, held);
    }
    if (status == SP_OK) {
        table_errors(&outcome->rows, outcome->left_out, outcome->folds, outcome->fold_errors);
    }
    sp_arena_free(&arena);
    return status;
}

// ---- left-out steps ----

bool fit_left_out_time(const fit_outcome *outcome, size_t row)
{
    sp_measured kind = outcome->rows.tables[fit_rows_table(&outcome->rows, row)].kind;
    return outcome->fold[row] >= 0 &&
           (kind == SP_MEASURED_ITERATION_MS || sp_measured_is_throughput(kind));
}

static sp_status find_step(const fit_outcome *outcome, const sp_profile *profile, size_t row,
                           sp_warning_kinds *kinds, sp_error *err)
{
    const sp_measured_case *measured = outcome->rows.cases[row];
    int table = fit_rows_table(&outcome->rows, row);
    double predicted = 0.0;
    sp_result result = {0};
    sp_status status = sp_measured_case_evaluate(measured, outcome->rows.tables[table].kind,
                                                 profile, &predicted, &result, err);
    if (status == SP_OK && fit_left_out_time(outcome, row)) {
        sp_step_kind_of(&measured->scenario, profile, sp_result_bubble_ratio(&result),
                        sp_result_microbatches(&result), &outcome->kinds[row]);
        outcome->layer_ms[row] = sp_result_layer_ms(&result, measured->scenario.model.layers);
    }
    if (status == SP_OK) {
        sp_warning_kinds_add(&kinds[table], &result.warnings);
        sp_result_fini(&result);
    }
    return status;
}

// Counts what keeps a row off the record of the table's rows that a fit without the fold had.
static int count_differing(const fit_outcome *outcome, int table, int fold, size_t row,
                           int *foreign)
{
    sp_error_record others = {0};
    for (int f = 0; f < SP_STEP_FIGURES; f++) {
        others.least[f] = HUGE_VAL;
        others.most[f] = -HUGE_VAL;
    }
    for (size_t i = outcome->rows.first[table]; i < outcome->rows.first[table + 1]; i++) {
        if (outcome->fold[i] != fold) {
            sp_error_record_extend(&others, &outcome->kinds[i]);
        }
    }
    return sp_error_record_differing(&others, &outcome->kinds[row], foreign);
}

// The rows under the fitted profile: what they warn of, and the steps that were left out.
static sp_status look_at_rows(calibration *c)
{
    fit_outcome *outcome = c->outcome;
    const fit_rows *rows = &outcome->rows;
    double constants[FIT_CONSTANTS] = {0.0};
    sp_profile profile;
    for (int i = 0; i < outcome->model.constant_count; i++) {
        constants[i] = outcome->values[i].value;
    }
    json_t *document = fit_model_document(&outcome->model, constants);
    sp_status status = sp_profile_from_json(document, c->spec->name, &profile, c->err);
    json_decref(document);
    if (status != SP_OK) {
        return status;
    }
    sp_warning_kinds kinds[FIT_TABLES] = {0};
    for (size_t row = 0; status == SP_OK && row < rows->count; row++) {
        status = find_step(outcome, &profile, row, kinds, c->err);
    }
    for (int t = 0; t < rows->table_count; t++) {
        outcome->warnings[t] = sp_measurements_warnings(&rows->tables[t], &kinds[t]);
    }
    for (size_t row = 0; status == SP_OK && row < rows->count; row++) {
        outcome->differing[row] = SP_STEP_FIGURES + SP_STEP_WORDS;
        for (int t = 0; fit_left_out_time(outcome, row) && t < rows->table_count; t++) {
            int foreign = 0;
            int differing = fit_left_out_time(outcome, rows->first[t])
                                ? count_differing(outcome, t, outcome->fold[row], row, &foreign)
                                : outcome->differing[row];
            if (differing < outcome->differing[row]) {
                outcome->differing[row] = differing;
                outcome->foreign[row] = foreign;
            }
        }
    }
    sp_profile_fini(&profile);
    return status;
}

// ---- bootstrap ----

static void draw(calibration *c, sp_prng *prng, double *weight)
{
    const fit_rows *rows = &c->outcome->rows;
    for (int t = 0; t < rows->table_count; t++) {
        fit_resample_rows(prng, rows->first[t], rows->first[t + 1], weight);
    }
    for (size_t row = 0; row < rows->count; row++) {
        weight[row] *= rows->weight[row];
    }
}

static sp_status bootstrap(calibration *c)
{
    fit_outcome *outcome = c->outcome;
    int count = outcome->model.constant_count;
    double mean[FIT_CONSTANTS] = {0.0};
    double squares[FIT_CONSTANTS] = {0.0}; // of deviations, by Welford's recurrence
    double *weight = sp_calloc(outcome->rows.count, sizeof *weight);
    sp_status status = SP_OK;
    sp_prng prng;
    // Not the numbers that the folds were drawn with.
    sp_prng_seed(&prng, c->spec->seed ^ UINT64_C(0x9e3779b97f4a7c15));
    for (int b = 0; status == SP_OK && b < c->resamples; b++) {
        fit_solution solution;
        draw(c, &prng, weight);
        status = refit_part(c, "resample", b + 1, weight, &solution);
        if (status != SP_OK) {
            break;
        }
        for (int i = 0; i < count; i++) {
            double deviation = log(solution.constants[i] / c->best.constants[i]) - mean[i];
            mean[i] += deviation / (double)(b + 1);
            squares[i] += deviation * (log(solution.constants[i] / c->best.constants[i]) - mean[i]);
        }
        fit_solution_fini(&solution);
        count_step(c);
    }
    if (status == SP_OK && c->resamples >= 2) {
        outcome->resamples = c->resamples;
        for (int i = 0; i < count; i++) {
            outcome->values[i].spread = sqrt(squares[i] / (double)(c->resamples - 1));
        }
    }
    sp_free(weight);
    return status;
}

// ---- ablation ----

// The software stack is part of the scenarios, which are then read again.
static bool changes_scenarios(const fit_ablation *ablation)
{
    const char *path;
    json_t *value;
    bool changes = ablation->override_count > 0;
    json_object_foreach ((json_t *)ablation->set, path, value) {
        changes = changes || sp_json_paths_overlap(path, "stack");
    }
    return changes;
}

static sp_status predict_kept(calibration *c, fit_model *model, double *predicted,
                              fit_ablation_result *result)
{
    double constants[FIT_CONSTANTS] = {0.0};
    for (int i = 0; i < model->constant_count; i++) {
        constants[i] = c->best.constants[model->number[i]];
    }
    SP_TRY(fit_model_predict(model, constants, NULL, predicted, c->err));
    table_errors(model->rows, predicted, NULL, result->kept);
    return SP_OK;
}

static sp_status predict_refitted(calibration *c, fit_model *model, fit_ablation_result *result)
{
    fit_solution solution;
    SP_TRY(refit(c, model, model->rows->weight, NULL, &solution));
    table_errors(model->rows, solution.predicted, NULL, result->refitted);
    for (int i = 0; i < model->constant_count; i++) {
        result->constants[model->number[i]] = solution.constants[i];
    }
    fit_solution_fini(&solution);
    return SP_OK;
}

static sp_status ablate(calibration *c, const fit_ablation *ablation, double *predicted,
                        fit_ablation_result *result)
{
    fit_model model;
    fit_rows rows = {0};
    result->name = ablation->name;
    SP_TRY(fit_model_init(c->spec, ablation, &model, c->err));
    sp_status status = SP_OK;
    model.rows = &c->outcome->rows;
    model.threads = c->outcome->model.threads;
    if (changes_scenarios(ablation)) {
        status = fit_rows_read(c->spec, c->sources, c->source_count, model.document, ablation,
                               &rows, c->err);
        model.rows = &rows;
    }
    if (status == SP_OK) {
        status = predict_kept(c, &model, predicted, result);
    }
    if (status == SP_OK) {
        status = predict_refitted(c, &model, result);
    }
    fit_rows_fini(&rows);
    fit_model_fini(&model);
    return status;
}

static sp_status ablate_all(calibration *c)
{
    fit_outcome *outcome = c->outcome;
    int count = c->ablations;
    sp_error *outer = c->err;
    outcome->ablations = sp_arena_take(&outcome->arena, (size_t)count, sizeof *outcome->ablations);
    double *predicted = sp_calloc(outcome->rows.count, sizeof *predicted);
    sp_status status = SP_OK;
    for (int a = 0; status == SP_OK && a < count; a++) {
        sp_error inner = {0};
        c->err = &inner;
        status = ablate(c, &c->spec->ablations[a], predicted, &outcome->ablations[a]);
        if (status != SP_OK) {
            sp_error_set(outer, status, "ablation '%.64s': %.500s", c->spec->ablations[a].name,
                         inner.message[0]);
        } else {
            outcome->ablation_count++;
            count_step(c);
        }
    }
    c->err = outer;
    sp_free(predicted);
    return status;
}

// ---- the calibration ----

sp_status fit_calibrate(const fit_spec *spec, const fit_source *sources, int source_count,
                        const fit_options *options, fit_outcome *outcome, sp_error *err)
{
    static sp_status (*const steps[])(calibration *) = {
        fit_all_rows, round_values, find_correlations, cross_validate,
        look_at_rows, bootstrap,    ablate_all};
    calibration c = {.spec = spec,
                     .sources = sources,
                     .source_count = source_count,
                     .outcome = outcome,
                     .err = err};
    *outcome = (fit_outcome){0};
    sp_status status = set_up(&c, options);
    if (status != SP_OK) {
        fit_outcome_fini(outcome);
        return status;
    }
    for (size_t i = 0; status == SP_OK && i < sizeof steps / sizeof *steps; i++) {
        status = steps[i](&c);
    }
    sp_progress_end(&c.progress);
    fit_solution_fini(&c.best);
    if (status != SP_OK) {
        fit_outcome_fini(outcome);
    }
    return status;
}
