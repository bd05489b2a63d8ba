// The answer of a page: what its first document says, in a line.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "experiments/report/report.h"
#include "experiments/sweep/sweep.h"
#include "sim/base/json.h"

// ---- what documents say ----

double report_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

const char *report_string(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

double report_sum(const json_t *object)
{
    const char *name;
    json_t *value;
    double sum = 0.0;
    json_object_foreach ((json_t *)(uintptr_t)object, name, value) {
        sum += json_number_value(value);
    }
    return sum;
}

void report_add_parts(json_t *result)
{
    json_t *told = json_object_get(result, "time_breakdown_ms");
    double whole = report_number(result, "iteration_ms");
    double launch = report_number(told, "launch");
    double stall = report_number(result, "memory_stall_ms");
    double sum = 0.0;
    const char *name;
    json_t *value;
    if (!json_is_object(told) || !isfinite(whole)) {
        return;
    }
    json_t *parts = json_object();
    json_object_foreach (told, name, value) {
        double ms = json_number_value(value);
        ms -= strcmp(name, "compute") == 0 && launch > 0.0 ? launch : 0.0;
        sp_json_put(parts, name, json_real(ms));
        sum += ms;
    }
    if (stall > 0.0) {
        sp_json_put(parts, "allocator", json_real(stall));
        sum += stall;
    }
    // Parts and the whole are written with 15 digits.
    if (fabs(whole - sum) > 1e-9 * whole) {
        sp_json_put(parts, "not told", json_real(whole - sum));
    }
    sp_json_put(result, "parts_ms", parts);
}

const char *report_risk(const json_t *result, char text[REPORT_RISK])
{
    double probability = report_number(result, "fit_probability");
    const char *fits = report_string(result, "fits");
    text[0] = '\0';
    if (probability < SP_FITS_SURELY && (fits == NULL || strcmp(fits, "no") != 0)) {
        // As cli_memory_risk() has it.
        snprintf(text, REPORT_RISK,
                 report_number(result, "memory_margin_gib") < 0.0 ? ", may run out of memory"
                                                                  : ", runs with probability %.2f",
                 probability);
    }
    return text;
}

// ---- which executed results are of the plan that another result predicts ----

// A result of `run` is measured, whatever else it says.
bool report_is_executed(const report_input *input)
{
    return input->kind == REPORT_RESULT && json_object_get(input->json, "execution") != NULL;
}

static bool is_alike(const json_t *a, const json_t *b, const char *const *keys)
{
    bool alike = true;
    for (; *keys != NULL && alike; keys++) {
        const json_t *of_a = json_object_get(a, *keys);
        const json_t *of_b = json_object_get(b, *keys);
        alike = of_a == of_b || json_equal(of_a, of_b) != 0;
    }
    return alike;
}

// Are the objects of two arrays alike one by one?
static bool are_alike(const json_t *a, const json_t *b, const char *const *keys)
{
    bool alike = json_array_size(a) == json_array_size(b);
    for (size_t i = 0; alike && i < json_array_size(a); i++) {
        alike = is_alike(json_array_get(a, i), json_array_get(b, i), keys);
    }
    return alike;
}

static bool is_same_plan(const json_t *a, const json_t *b)
{
    static const char *const of_step[] = {"strategy", "schedule", "model", "tasks", NULL};
    static const char *const of_rank[] = {"dp", "cp", "pp", NULL};
    static const char *const of_batch[] = {"samples", "tokens", "computed_tokens", "microbatches",
                                           NULL};
    return is_alike(a, b, of_step) &&
           are_alike(json_object_get(a, "ranks"), json_object_get(b, "ranks"), of_rank) &&
           are_alike(json_object_get(a, "batches"), json_object_get(b, "batches"), of_batch);
}

int report_prediction_of(const report_inputs *inputs, const report_input *input)
{
    for (int i = 0; report_is_executed(input) && i < inputs->count; i++) {
        const report_input *other = &inputs->items[i];
        if (other->kind == REPORT_RESULT && !report_is_executed(other) &&
            is_same_plan(other->json, input->json)) {
            return i;
        }
    }
    return -1;
}

// The prediction and the execution that a result is one of; false: it has no counterpart.
static bool pair_of(const report_inputs *inputs, const report_input *input,
                    const json_t **predicted, const json_t **executed)
{
    for (int i = 0; i < inputs->count; i++) {
        int prediction = report_prediction_of(inputs, &inputs->items[i]);
        if (prediction >= 0 &&
            (input == &inputs->items[i] || input == &inputs->items[prediction])) {
            *predicted = inputs->items[prediction].json;
            *executed = inputs->items[i].json;
            return true;
        }
    }
    return false;
}

// ---- the answer ----

typedef struct line {
    char *text;
    size_t used;
} line;

static void say(line *to, const char *format, ...) SP_PRINTF(2, 3);

static void say(line *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int written = vsnprintf(to->text + to->used, REPORT_ANSWER - to->used, format, args);
    va_end(args);
    size_t room = REPORT_ANSWER - to->used - 1;
    to->used += written < 0 ? 0 : (size_t)written < room ? (size_t)written : room;
}

static void add_time(line *to, double ms)
{
    if (ms < 1e4) {
        say(to, ms < 10.0 ? "%.3f ms" : "%.1f ms", ms);
    } else {
        say(to, "%.2f s", ms / 1e3);
    }
}

// The error of the profile, or that none is known for such a step.
static void add_time_with_error(line *to, const json_t *result)
{
    double median = report_number(json_object_get(result, "error"), "median");
    median = isfinite(median) ? median : report_number(result, "median_error");
    add_time(to, report_number(result, "iteration_ms"));
    if (isfinite(median)) {
        say(to, " ±%.1f %%", 100.0 * median);
    } else if (report_string(result, "not_validated") != NULL) {
        say(to, " (error not validated)");
    }
}

static void add_memory(line *to, const json_t *result)
{
    double peak = report_number(result, "peak_memory_gib");
    double reserved = report_number(result, "peak_memory_reserved_gib");
    double limit =
        report_number(result, "memory_margin_gib") + (isfinite(reserved) ? reserved : peak);
    const char *fits = report_string(result, "fits");
    char risk[REPORT_RISK];
    if (!isfinite(peak)) {
        return;
    }
    say(to, ", %.2f", peak);
    if (isfinite(limit)) {
        say(to, " of %.2f", limit);
    }
    say(to, " GiB");
    if (fits != NULL && strcmp(fits, "tight") == 0 && limit < reserved) {
        say(to, ", may not fit");
        return;
    }
    if (fits != NULL) {
        say(to, strcmp(fits, "yes") == 0     ? ", fits"
                : strcmp(fits, "tight") == 0 ? ", fits tightly"
                                             : ", does not fit");
    }
    say(to, "%s", report_risk(result, risk));
}

// Says which tokens the strategy does not train as asked.
static void add_loss(line *to, const json_t *result)
{
    static const char *const shares[][2] = {{"left_out_share", "left out"},
                                            {"cut_share", "cut from their beginning"},
                                            {"over_length_share", "over the context"}};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        double share = report_number(result, shares[i][0]);
        if (share > 0.0) {
            say(to, ", %.1f %% of tokens %s", 100.0 * share, shares[i][1]);
        }
    }
}

static void add_layout(line *to, const json_t *result)
{
    const json_t *layout = json_object_get(result, "layout");
    double degrees[] = {report_number(layout, "tp"), report_number(layout, "cp"),
                        report_number(layout, "pp"), report_number(layout, "dp")};
    if (isfinite(degrees[0] + degrees[1] + degrees[2] + degrees[3])) {
        say(to, ", tp %.6g, cp %.6g, pp %.6g, dp %.6g", degrees[0], degrees[1], degrees[2],
            degrees[3]);
    }
}

static void add_strategy(line *to, const json_t *result)
{
    const char *strategy = report_string(result, "strategy");
    const char *schedule = report_string(result, "schedule");
    say(to, "%s", strategy != NULL ? strategy : schedule != NULL ? schedule : "one step");
    if (strategy != NULL && schedule != NULL) {
        say(to, ", %s", schedule);
    }
}

static void add_settings(line *to, const json_t *point)
{
    const char *path;
    json_t *value;
    json_object_foreach ((json_t *)point, path, value) {
        const char *dot = strrchr(path, '.');
        const char *name = dot != NULL ? dot + 1 : path;
        if (json_is_integer(value)) {
            say(to, ", %s %lld", name, (long long)json_integer_value(value));
        } else if (strcmp(path, "strategy.kind") == 0) {
            continue; // told before
        } else if (json_is_string(value) && strcmp(name, "kind") == 0) {
            say(to, ", %s", json_string_value(value)); // of the schedule
        } else if (json_is_string(value)) {
            say(to, ", %s %s", name, json_string_value(value));
        }
    }
}

static void add_result(line *to, const json_t *result)
{
    add_strategy(to, result);
    add_layout(to, result);
    say(to, ": ");
    add_time_with_error(to, result);
    add_loss(to, result);
    add_memory(to, result);
}

static bool is_better(const json_t *a, const json_t *b)
{
    sweep_trial of_a;
    sweep_trial of_b;
    sweep_trial_take(a, &of_a);
    sweep_trial_take(b, &of_b);
    return sweep_is_better(&of_a, &of_b);
}

// Do two points of a sweep train the same: model and workload?
static bool is_same_work(const json_t *a, const json_t *b)
{
    const char *path;
    json_t *value;
    json_object_foreach (json_object_get(a, "point"), path, value) {
        const json_t *other = json_object_get(json_object_get(b, "point"), path);
        if (sweep_is_work(path) && !json_equal(value, other)) {
            return false;
        }
    }
    return true;
}

// The best row of those whose status is "ok", or that have none, else NULL. `work`: of the rows
// that train what this one does; NULL: of all.
static const json_t *fastest(const json_t *rows, const json_t *work)
{
    const json_t *best = NULL;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *status = report_string(row, "status");
        double ms = report_number(row, "iteration_ms");
        if (json_is_true(json_object_get(row, "fastest"))) {
            return row; // as the comparison says
        }
        if ((status == NULL || strcmp(status, "ok") == 0) && isfinite(ms) &&
            (work == NULL || is_same_work(row, work)) && (best == NULL || is_better(row, best))) {
            best = row;
        }
    }
    return best;
}

const char *report_stopped(const report_progress *p, const char *rows, char text[REPORT_STOPPED])
{
    snprintf(text, REPORT_STOPPED, "stopped: %zu of %zu %s complete",
             p->all - p->in_part - p->untried, p->all, rows);
    if (p->in_part > 0) {
        sp_append(text, REPORT_STOPPED, ", %zu in part", p->in_part);
    }
    if (p->untried > 0) {
        sp_append(text, REPORT_STOPPED, ", %zu not tried", p->untried);
    }
    return text;
}

// A baseline that is a strategy says that the rows are of strategies.
static void add_stop(line *to, const json_t *rows, const char *baseline)
{
    report_progress progress = {.all = json_array_size(rows)};
    char text[REPORT_STOPPED];
    size_t i;
    const json_t *row;
    json_array_foreach (rows, i, row) {
        const char *status = report_string(row, "status");
        bool cut = json_is_true(json_object_get(row, "stopped"));
        progress.in_part += cut;
        progress.untried += !cut && status != NULL && strcmp(status, "stopped") == 0;
    }
    const char *strategy = report_string(json_array_get(rows, 0), "strategy");
    bool of_strategies = strategy != NULL && baseline != NULL && strcmp(strategy, baseline) == 0;
    say(to, "%s; ", report_stopped(&progress, of_strategies ? "strategies" : "schedules", text));
}

static void add_comparison(line *to, const json_t *comparison)
{
    const json_t *rows = json_object_get(comparison, "rows");
    const json_t *best = fastest(rows, NULL);
    const char *baseline = report_string(comparison, "baseline");
    bool stopped = json_is_true(json_object_get(comparison, "stopped"));
    if (stopped) {
        add_stop(to, rows, baseline);
    }
    if (best == NULL && stopped) {
        say(to, "none of those known fits");
    } else if (best == NULL) {
        say(to, "none of %zu fits", json_array_size(rows));
    } else if (stopped) {
        say(to, "fastest of those known: ");
    } else {
        say(to, "fastest of %zu: ", json_array_size(rows));
    }
    if (best == NULL) {
        return;
    }
    add_result(to, best);
    double speedup = report_number(best, "speedup");
    if (baseline != NULL && json_is_true(json_object_get(comparison, "baseline_oom"))) {
        say(to, ", no speed-up over %s, which is out of memory", baseline);
    } else if (baseline != NULL && isfinite(speedup)) {
        say(to, ", %.2fx %s", speedup, baseline);
    }
}

static void add_tune(line *to, const json_t *tune)
{
    const json_t *answer = json_object_get(tune, "answer");
    const char *strategy = report_string(answer, "strategy");
    say(to, "fastest that fits: %s", strategy != NULL ? strategy : "one step");
    add_settings(to, json_object_get(json_array_get(json_object_get(tune, "top"), 0), "point"));
    say(to, ": ");
    add_time_with_error(to, answer);
    add_loss(to, answer);
    add_memory(to, answer);
}

// Is the work of row `index` that of no row before it?
static bool is_new_work(const json_t *rows, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (is_same_work(json_array_get(rows, index), json_array_get(rows, i))) {
            return false;
        }
    }
    return true;
}

// The fastest point with the work of row `index`.
static void add_point(line *to, const json_t *rows, size_t index)
{
    const json_t *best = fastest(rows, json_array_get(rows, index));
    if (best == NULL) {
        say(to, "none fits");
        return;
    }
    const json_t *point = json_object_get(best, "point");
    const char *strategy = report_string(best, "strategy");
    const char *chosen = report_string(point, "strategy.kind");
    say(to, "%s", strategy != NULL ? strategy : chosen != NULL ? chosen : "one step");
    add_settings(to, point);
    say(to, ": ");
    add_time_with_error(to, best);
    add_loss(to, best);
    add_memory(to, best);
}

// `count`: of the points, of which `rows` may be the best alone. Steps of other work are no rivals:
// the first few contexts, batches and the like have a point each.
static void add_points(line *to, const json_t *rows, double count)
{
    enum { WORKS = 3 };
    if (fastest(rows, NULL) == NULL) {
        say(to, "none of %.0f point%s fits", count, count == 1.0 ? "" : "s");
        return;
    }
    say(to, "fastest of %.0f point%s: ", count, count == 1.0 ? "" : "s");
    int works = 0;
    for (size_t i = 0; i < json_array_size(rows) && works <= WORKS; i++) {
        if (!is_new_work(rows, i)) {
            continue;
        }
        say(to, "%s", works == 0 ? "" : works < WORKS ? "; " : "; and more");
        if (works++ < WORKS) {
            add_point(to, rows, i);
        }
    }
}

static void add_summary(line *to, const json_t *summary)
{
    const json_t *best = json_object_get(summary, "best");
    double count = report_number(summary, "points");
    add_points(to, best, isfinite(count) ? count : (double)json_array_size(best));
}

// The fastest with the most memory, and what still fits with the least.
static void add_curve(line *to, const json_t *curve)
{
    const json_t *points = json_object_get(curve, "points");
    const json_t *first = json_array_get(points, 0);
    const json_t *best = fastest(json_object_get(first, "rows"), NULL);
    const json_t *least = NULL;
    char risk[REPORT_RISK];
    if (best == NULL) {
        say(to, "no strategy fits");
        return;
    }
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        least = fastest(json_object_get(point, "rows"), NULL) != NULL ? point : least;
    }
    const char *name = report_string(best, "strategy");
    say(to, "fastest of %zu strategies with %.2f GiB: %s, ",
        json_array_size(json_object_get(first, "rows")), report_number(first, "limit_gib"),
        name != NULL ? name : "one step");
    add_time(to, report_number(best, "iteration_ms"));
    say(to, "%s", report_risk(best, risk));
    best = fastest(json_object_get(least, "rows"), NULL);
    name = report_string(best, "strategy");
    say(to, "; with %.2f GiB: %s, ", report_number(least, "limit_gib"),
        name != NULL ? name : "one step");
    add_time(to, report_number(best, "iteration_ms"));
    say(to, "%s", report_risk(best, risk));
}

static void add_execution(line *to, const json_t *predicted, const json_t *executed)
{
    double ms[] = {report_number(predicted, "iteration_ms"),
                   report_number(executed, "iteration_ms")};
    add_strategy(to, predicted);
    add_layout(to, predicted);
    say(to, ": predicted ");
    add_time(to, ms[0]);
    say(to, ", executed ");
    add_time(to, ms[1]);
    say(to, ", error %+.2f %%", 100.0 * (ms[0] / ms[1] - 1.0));
}

static size_t count_unbound(const json_t *tables)
{
    size_t unbound = 0;
    size_t i;
    const json_t *table;
    json_array_foreach (tables, i, table) {
        if (!isfinite(report_number(table, "bound"))) {
            unbound++;
        }
    }
    return unbound;
}

// The row that is farthest off among the tables without a bound whose errors are fractions.
static void add_worst(line *to, const json_t *tables)
{
    const json_t *worst = NULL;
    const json_t *worst_table = NULL;
    size_t i;
    const json_t *table;
    json_array_foreach (tables, i, table) {
        const json_t *row = json_object_get(table, "worst");
        const char *kind = report_string(table, "error_is");
        bool counts = !isfinite(report_number(table, "bound")) &&
                      isfinite(report_number(row, "error")) && kind != NULL &&
                      strcmp(kind, "fraction") == 0;
        if (counts && (worst == NULL ||
                       fabs(report_number(row, "error")) > fabs(report_number(worst, "error")))) {
            worst = row;
            worst_table = table;
        }
    }
    if (worst != NULL) {
        const char *label = report_string(worst, "label");
        say(to, "; mean error %.1f %%, the worst row line %.0f%s%s: %+.1f %%",
            100.0 * report_number(worst_table, "mean_absolute_error"), report_number(worst, "line"),
            label != NULL && label[0] != '\0' ? ", " : "", label != NULL ? label : "",
            100.0 * report_number(worst, "error"));
    }
}

// Of a set of scenarios that a backend executed.
static void add_cases(line *to, const json_t *cases, const json_t *summary)
{
    static const char *const bounds[] = {"iteration_time_mape", "bubble_ratio_abs",
                                         "peak_memory_mape"};
    const json_t *stated = json_object_get(summary, "bounds");
    bool bound = false;
    for (int b = 0; b < 3; b++) {
        bound = bound || isfinite(report_number(stated, bounds[b]));
    }
    say(to, "%.0f of %zu cases executed", report_number(summary, "compared"),
        json_array_size(cases));
    if (report_number(summary, "compared") > 0.0) {
        say(to,
            "; times predicted within %.1f %% in the mean, bubble within %.4f, peak memory within "
            "%.2f %%",
            100.0 * report_number(summary, bounds[0]), report_number(summary, bounds[1]),
            100.0 * report_number(summary, bounds[2]));
        say(to, !bound                                                    ? ", no bound stated"
                : json_is_true(json_object_get(summary, "within_bounds")) ? ", within their bounds"
                                                                          : ", outside a bound");
    }
}

static void add_validation(line *to, const json_t *validation)
{
    const json_t *cases = json_object_get(validation, "cases");
    const json_t *tables = json_object_get(validation, "tables");
    const json_t *predicted = json_object_get(validation, "predicted");
    const json_t *error = json_object_get(validation, "error");
    if (cases != NULL) {
        add_cases(to, cases, json_object_get(validation, "summary"));
        return;
    }
    if (predicted == NULL) {
        const json_t *within = json_object_get(validation, "within_bounds");
        size_t unbound = count_unbound(tables);
        size_t count = json_array_size(tables);
        say(to, "%zu tables of measured steps", count);
        if (json_is_boolean(within) && unbound < count) {
            say(to, ", %s",
                json_is_false(within) ? "outside a bound"
                : unbound > 0         ? "those with a bound within it"
                                      : "all within their bounds");
        }
        if (unbound > 0) {
            say(to, unbound < count ? ", no bound stated for %zu" : ", no bound stated (--bound)",
                unbound);
            add_worst(to, tables);
        }
        return;
    }
    add_execution(to, predicted, json_object_get(validation, "measured"));
    if (isfinite(report_number(error, "peak_memory_mape"))) {
        say(to, ", of peak memory %.2f %%", 100.0 * report_number(error, "peak_memory_mape"));
    }
}

// The largest of the parts of a time, of those that follow one another.
static void add_limit(line *to, const json_t *parts, double whole_ms)
{
    static const char *const words[][2] = {
        {"verify", "verification"}, {"graph_miss", "a missing graph"}, {"tp_comm", "tp"}};
    const char *name;
    const char *largest = NULL;
    json_t *value;
    json_object_foreach ((json_t *)parts, name, value) {
        bool beside = strcmp(name, "hidden") == 0;
        if (!beside &&
            (largest == NULL || report_number(parts, name) > report_number(parts, largest))) {
            largest = name;
        }
    }
    if (largest == NULL) {
        return;
    }
    const char *word = largest;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        word = strcmp(largest, words[i][0]) == 0 ? words[i][1] : word;
    }
    say(to, "; %s takes %.1f %% of it", word, 100.0 * report_number(parts, largest) / whole_ms);
}

// Says how much of a limit is held, which stands beside it.
static void add_held(line *to, const json_t *held)
{
    double limit = report_number(held, "limit");
    double sum = report_number(held, "parameters") + report_number(held, "kv_cache");
    sum += json_object_get(held, "draft") != NULL ? report_number(held, "draft") : 0.0;
    const json_t *fits = json_object_get(held, "fits"); // a draft apart has a limit of its own
    bool does = json_is_boolean(fits) ? json_is_true(fits) : sum <= limit;
    if (isfinite(sum) && isfinite(limit)) {
        say(to, ", %.2f of %.2f GiB, %s", sum, limit, does ? "fits" : "does not fit");
    }
}

static void add_decode(line *to, const json_t *decode)
{
    const char *method = report_string(decode, "method");
    double over_eagle = report_number(decode, "speedup_over_eagle");
    double step_ms = report_number(decode, "step_ms");
    say(to, "%s: %.0f tokens/s (error not validated)", method != NULL ? method : "text",
        report_number(decode, "tokens_per_s"));
    if (isfinite(over_eagle)) {
        say(to, ", %.2fx plain decoding, %.2fx EAGLE's trees",
            report_number(decode, "speedup_over_plain"), over_eagle);
    }
    say(to, ", a step in ");
    add_time(to, step_ms);
    add_limit(to, json_object_get(decode, "step_time_ms"), step_ms);
    add_held(to, json_object_get(decode, "memory_gib"));
}

static void add_prefill(line *to, const json_t *prefill)
{
    const json_t *parts = json_object_get(prefill, "time_breakdown_ms");
    const json_t *rows = json_object_get(prefill, "rows");
    const char *method = report_string(json_object_get(prefill, "attention"), "method");
    if (rows != NULL) {
        say(to, "first tokens by %zu lengths and methods", json_array_size(rows));
        return;
    }
    size_t prompts = json_array_size(json_object_get(prefill, "prompts"));
    if (prompts > 1) {
        say(to, "first token of the last of %zu prompts: ", prompts);
    } else {
        say(to, "first token: ");
    }
    add_time(to, report_number(prefill, "ttft_ms"));
    say(to, " (error not validated), %.2fx as fast as with dense attention",
        report_number(prefill, "speedup"));
    if (method != NULL) {
        say(to, ", attention %s", method);
    }
    add_limit(to, parts, report_sum(parts));
    add_held(to, json_object_get(prefill, "memory_gib"));
}

static void add_input(line *to, const report_page *page, const report_input *input)
{
    const json_t *predicted = NULL;
    const json_t *executed = NULL;
    switch (input->kind) {
    case REPORT_RESULT:
        if (pair_of(page->inputs, input, &predicted, &executed)) {
            add_execution(to, predicted, executed);
        } else {
            add_result(to, input->json);
            say(to, "%s", report_is_executed(input) ? ", executed" : "");
        }
        break;
    case REPORT_COMPARISON:
        add_comparison(to, input->json);
        break;
    case REPORT_TUNE:
        add_tune(to, input->json);
        break;
    case REPORT_VALIDATION:
        add_validation(to, input->json);
        break;
    case REPORT_SWEEP:
        add_points(to, input->json, (double)input->points);
        break;
    case REPORT_SWEEP_SUMMARY:
        add_summary(to, input->json);
        break;
    case REPORT_MEMORY_CURVE:
        add_curve(to, input->json);
        break;
    case REPORT_PREFILL:
        add_prefill(to, input->json);
        break;
    case REPORT_DECODE:
        add_decode(to, input->json);
        break;
    case REPORT_PLAN:
    case REPORT_TRACE:
    case REPORT_KINDS:
        break;
    }
}

const char *report_answer(const report_page *page, char text[REPORT_ANSWER])
{
    line to = {.text = text};
    text[0] = '\0';
    for (int i = 0; i < page->inputs->count && to.used == 0; i++) {
        add_input(&to, page, &page->inputs->items[i]);
    }
    if (to.used == 0 && page->timeline_count > 0) {
        report_extent extent = report_timeline_extent(page->timelines[0]);
        say(&to, "%lld actions on %zu ranks in ", (long long)extent.actions, extent.ranks);
        add_time(&to, extent.end_ms);
    }
    if (to.used == 0) {
        say(&to, "a plan");
    }
    return text;
}

// ---- what the answer is of ----

const report_input *report_first_answer(const report_page *page)
{
    for (int i = 0; i < page->inputs->count; i++) {
        report_kind kind = page->inputs->items[i].kind;
        if (kind != REPORT_TRACE && kind != REPORT_PLAN) {
            return &page->inputs->items[i];
        }
    }
    return NULL;
}

const json_t *report_main_result(const report_page *page)
{
    const report_input *input = report_first_answer(page);
    const json_t *predicted = NULL;
    const json_t *executed = NULL;
    const json_t *json = input != NULL ? input->json : NULL;
    switch (input != NULL ? input->kind : REPORT_KINDS) {
    case REPORT_RESULT:
        return pair_of(page->inputs, input, &predicted, &executed) ? predicted : json;
    case REPORT_COMPARISON:
        return fastest(json_object_get(json, "rows"), NULL);
    case REPORT_TUNE:
        return json_object_get(json, "answer");
    case REPORT_VALIDATION:
        return json_object_get(json, "predicted");
    case REPORT_SWEEP:
        return fastest(json, NULL);
    case REPORT_SWEEP_SUMMARY:
        return fastest(json_object_get(json, "best"), NULL);
    case REPORT_PREFILL:
    case REPORT_DECODE:
        return json;
    case REPORT_MEMORY_CURVE:
    case REPORT_PLAN:
    case REPORT_TRACE:
    case REPORT_KINDS:
        break;
    }
    return NULL;
}
