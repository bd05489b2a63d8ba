#include "experiments/report/answer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "experiments/report/pairs.h"
#include "experiments/sweep/summary.h"

typedef struct line {
    char *text;
    size_t used;
} line;

static void add(line *to, const char *format, ...) SP_PRINTF(2, 3);

static void add(line *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int written = vsnprintf(to->text + to->used, REPORT_ANSWER - to->used, format, args);
    va_end(args);
    size_t room = REPORT_ANSWER - to->used - 1;
    to->used += written < 0 ? 0 : (size_t)written < room ? (size_t)written : room;
}

// NAN where there is no such number.
static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static const char *string(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void add_time(line *to, double ms)
{
    if (ms < 1e4) {
        add(to, ms < 10.0 ? "%.3f ms" : "%.1f ms", ms);
    } else {
        add(to, "%.2f s", ms / 1e3);
    }
}

// The error of the profile, or that none is known for such a step.
static void add_time_with_error(line *to, const json_t *result)
{
    double median = number(json_object_get(result, "error"), "median");
    median = isfinite(median) ? median : number(result, "median_error");
    add_time(to, number(result, "iteration_ms"));
    if (isfinite(median)) {
        add(to, " ±%.1f %%", 100.0 * median);
    } else if (string(result, "not_validated") != NULL) {
        add(to, " (error not validated)");
    }
}

static void add_memory(line *to, const json_t *result)
{
    double peak = number(result, "peak_memory_gib");
    double reserved = number(result, "peak_memory_reserved_gib");
    double limit = number(result, "memory_margin_gib") + (isfinite(reserved) ? reserved : peak);
    const char *fits = string(result, "fits");
    if (!isfinite(peak)) {
        return;
    }
    add(to, ", %.2f", peak);
    if (isfinite(limit)) {
        add(to, " of %.2f", limit);
    }
    add(to, " GiB");
    if (fits != NULL) {
        add(to, strcmp(fits, "yes") == 0     ? ", fits"
                : strcmp(fits, "tight") == 0 ? ", fits tightly"
                                             : ", does not fit");
    }
}

// What the strategy does not train as asked.
static void add_loss(line *to, const json_t *result)
{
    static const char *const shares[][2] = {{"left_out_share", "left out"},
                                            {"cut_share", "cut from their beginning"}};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        double share = number(result, shares[i][0]);
        if (share > 0.0) {
            add(to, ", %.1f %% of tokens %s", 100.0 * share, shares[i][1]);
        }
    }
}

static int degree(const json_t *ranks, const char *key)
{
    int most = 0;
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        int at = (int)json_integer_value(json_object_get(json_array_get(ranks, i), key));
        most = at > most ? at : most;
    }
    return most + 1;
}

// A result lists its DP, CP and PP ranks; TP is what is left of its GPUs.
static void add_layout(line *to, const json_t *result)
{
    const json_t *ranks = json_object_get(result, "ranks");
    double gpus = number(result, "tokens_per_s") / number(result, "tokens_per_gpu_s");
    if (json_array_size(ranks) == 0) {
        return;
    }
    int cp = degree(ranks, "cp");
    int pp = degree(ranks, "pp");
    int dp = degree(ranks, "dp");
    add(to, ", ");
    if (isfinite(gpus) && gpus < 1e9) {
        add(to, "tp %ld, ", lround(gpus / ((double)cp * pp * dp)));
    }
    add(to, "cp %d, pp %d, dp %d", cp, pp, dp);
}

static void add_strategy(line *to, const json_t *result)
{
    const char *strategy = string(result, "strategy");
    const char *schedule = string(result, "schedule");
    add(to, "%s", strategy != NULL ? strategy : schedule != NULL ? schedule : "one step");
    if (strategy != NULL && schedule != NULL) {
        add(to, ", %s", schedule);
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
            add(to, ", %s %lld", name, (long long)json_integer_value(value));
        } else if (strcmp(path, "strategy.kind") == 0) {
            continue; // told before
        } else if (json_is_string(value) && strcmp(name, "kind") == 0) {
            add(to, ", %s", json_string_value(value)); // of the schedule
        } else if (json_is_string(value)) {
            add(to, ", %s %s", name, json_string_value(value));
        }
    }
}

static void add_result(line *to, const json_t *result)
{
    add_strategy(to, result);
    add_layout(to, result);
    add(to, ": ");
    add_time_with_error(to, result);
    add_loss(to, result);
    add_memory(to, result);
}

// For all tokens, at the pace of a strategy that leaves some out.
static double whole_ms(const json_t *row)
{
    double left_out = number(row, "left_out_share");
    double ms = number(row, "iteration_ms");
    return left_out > 0.0 ? ms / (1.0 - left_out) : ms;
}

// As a sweep ranks them: steps that fit tightly run slower than predicted, so they come last.
static bool is_better(const json_t *a, const json_t *b)
{
    const char *of_a = string(a, "fits");
    const char *of_b = string(b, "fits");
    bool a_tight = of_a != NULL && strcmp(of_a, "tight") == 0;
    bool b_tight = of_b != NULL && strcmp(of_b, "tight") == 0;
    return a_tight != b_tight ? b_tight : whole_ms(a) < whole_ms(b);
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
        const char *status = string(row, "status");
        double ms = number(row, "iteration_ms");
        if ((status == NULL || strcmp(status, "ok") == 0) && isfinite(ms) &&
            (work == NULL || is_same_work(row, work)) && (best == NULL || is_better(row, best))) {
            best = row;
        }
    }
    return best;
}

static void add_comparison(line *to, const json_t *comparison)
{
    const json_t *rows = json_object_get(comparison, "rows");
    const json_t *best = fastest(rows, NULL);
    if (best == NULL) {
        add(to, "none of %zu fits", json_array_size(rows));
        return;
    }
    add(to, "fastest of %zu: ", json_array_size(rows));
    add_result(to, best);
    const char *baseline = string(comparison, "baseline");
    double speedup = number(best, "speedup");
    if (baseline != NULL && isfinite(speedup)) {
        bool oom = json_is_true(json_object_get(comparison, "baseline_oom"));
        add(to, ", %.2fx %s%s", speedup, baseline, oom ? ", which is out of memory" : "");
    }
}

static void add_tune(line *to, const json_t *tune)
{
    const json_t *answer = json_object_get(tune, "answer");
    const char *strategy = string(answer, "strategy");
    add(to, "fastest that fits: %s", strategy != NULL ? strategy : "one step");
    add_settings(to, json_object_get(json_array_get(json_object_get(tune, "top"), 0), "point"));
    add(to, ": ");
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
        add(to, "none fits");
        return;
    }
    const json_t *point = json_object_get(best, "point");
    const char *strategy = string(best, "strategy");
    const char *chosen = string(point, "strategy.kind");
    add(to, "%s", strategy != NULL ? strategy : chosen != NULL ? chosen : "one step");
    add_settings(to, point);
    add(to, ": ");
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
        add(to, "none of %.0f points fits", count);
        return;
    }
    add(to, "fastest of %.0f points: ", count);
    int works = 0;
    for (size_t i = 0; i < json_array_size(rows) && works <= WORKS; i++) {
        if (!is_new_work(rows, i)) {
            continue;
        }
        add(to, "%s", works == 0 ? "" : works < WORKS ? "; " : "; and more");
        if (works++ < WORKS) {
            add_point(to, rows, i);
        }
    }
}

static void add_summary(line *to, const json_t *summary)
{
    const json_t *best = json_object_get(summary, "best");
    double count = number(summary, "points");
    add_points(to, best, isfinite(count) ? count : (double)json_array_size(best));
}

// The fastest with the most memory, and what still fits with the least.
static void add_curve(line *to, const json_t *curve)
{
    const json_t *points = json_object_get(curve, "points");
    const json_t *first = json_array_get(points, 0);
    const json_t *best = fastest(json_object_get(first, "rows"), NULL);
    const json_t *least = NULL;
    if (best == NULL) {
        add(to, "no strategy fits");
        return;
    }
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        least = fastest(json_object_get(point, "rows"), NULL) != NULL ? point : least;
    }
    const char *name = string(best, "strategy");
    add(to, "fastest of %zu strategies with %.2f GiB: %s, ",
        json_array_size(json_object_get(first, "rows")), number(first, "limit_gib"),
        name != NULL ? name : "one step");
    add_time(to, number(best, "iteration_ms"));
    best = fastest(json_object_get(least, "rows"), NULL);
    name = string(best, "strategy");
    add(to, "; with %.2f GiB: %s, ", number(least, "limit_gib"), name != NULL ? name : "one step");
    add_time(to, number(best, "iteration_ms"));
}

static void add_execution(line *to, const json_t *predicted, const json_t *executed)
{
    double ms[] = {number(predicted, "iteration_ms"), number(executed, "iteration_ms")};
    add_strategy(to, predicted);
    add_layout(to, predicted);
    add(to, ": predicted ");
    add_time(to, ms[0]);
    add(to, ", executed ");
    add_time(to, ms[1]);
    add(to, ", error %+.2f %%", 100.0 * (ms[0] / ms[1] - 1.0));
}

static size_t count_unbound(const json_t *tables)
{
    size_t unbound = 0;
    size_t i;
    const json_t *table;
    json_array_foreach (tables, i, table) {
        if (!isfinite(number(table, "bound"))) {
            unbound++;
        }
    }
    return unbound;
}

// The row that is farthest off among the tables without a bound whose errors are fractions.
static void add_worst(line *to, const json_t *tables)
{
    const json_t *worst = NULL;
    const json_t *of = NULL;
    size_t i;
    const json_t *table;
    json_array_foreach (tables, i, table) {
        const json_t *row = json_object_get(table, "worst");
        const char *kind = string(table, "error_is");
        bool counts = !isfinite(number(table, "bound")) && isfinite(number(row, "error")) &&
                      kind != NULL && strcmp(kind, "fraction") == 0;
        if (counts &&
            (worst == NULL || fabs(number(row, "error")) > fabs(number(worst, "error")))) {
            worst = row;
            of = table;
        }
    }
    if (worst != NULL) {
        const char *label = string(worst, "label");
        add(to, "; mean error %.1f %%, the worst row line %.0f%s%s: %+.1f %%",
            100.0 * number(of, "mean_absolute_error"), number(worst, "line"),
            label != NULL && label[0] != '\0' ? ", " : "", label != NULL ? label : "",
            100.0 * number(worst, "error"));
    }
}

static void add_validation(line *to, const json_t *validation)
{
    const json_t *tables = json_object_get(validation, "tables");
    const json_t *predicted = json_object_get(validation, "predicted");
    const json_t *error = json_object_get(validation, "error");
    if (predicted == NULL) {
        const json_t *within = json_object_get(validation, "within_bounds");
        size_t unbound = count_unbound(tables);
        size_t count = json_array_size(tables);
        add(to, "%zu %s of measured steps", count, tables != NULL ? "tables" : "cases");
        if (json_is_boolean(within) && (tables == NULL || unbound < count)) {
            add(to, ", %s",
                json_is_false(within) ? "outside a bound"
                : unbound > 0         ? "those with a bound within it"
                                      : "all within their bounds");
        }
        if (unbound > 0) {
            add(to, unbound < count ? ", no bound stated for %zu" : ", no bound stated (--bound)",
                unbound);
            add_worst(to, tables);
        }
        return;
    }
    add_execution(to, predicted, json_object_get(validation, "measured"));
    if (isfinite(number(error, "peak_memory_mape"))) {
        add(to, ", of peak memory %.2f %%", 100.0 * number(error, "peak_memory_mape"));
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
        if (!beside && (largest == NULL || number(parts, name) > number(parts, largest))) {
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
    add(to, "; %s takes %.1f %% of it", word, 100.0 * number(parts, largest) / whole_ms);
}

// What is held of a limit, which stands beside it.
static void add_held(line *to, const json_t *held)
{
    double limit = number(held, "limit");
    double sum = number(held, "parameters") + number(held, "kv_cache");
    sum += json_object_get(held, "draft") != NULL ? number(held, "draft") : 0.0;
    const json_t *fits = json_object_get(held, "fits"); // a draft apart has a limit of its own
    bool does = json_is_boolean(fits) ? json_is_true(fits) : sum <= limit;
    if (isfinite(sum) && isfinite(limit)) {
        add(to, ", %.2f of %.2f GiB, %s", sum, limit, does ? "fits" : "does not fit");
    }
}

static void add_decode(line *to, const json_t *decode)
{
    const char *method = string(decode, "method");
    double over_eagle = number(decode, "speedup_over_eagle");
    double step_ms = number(decode, "step_ms");
    add(to, "%s: %.0f tokens/s (error not validated)", method != NULL ? method : "text",
        number(decode, "tokens_per_s"));
    if (isfinite(over_eagle)) {
        add(to, ", %.2fx plain decoding, %.2fx EAGLE's trees", number(decode, "speedup_over_plain"),
            over_eagle);
    }
    add(to, ", a step in ");
    add_time(to, step_ms);
    add_limit(to, json_object_get(decode, "step_time_ms"), step_ms);
    add_held(to, json_object_get(decode, "memory_gib"));
}

static double sum_of(const json_t *parts)
{
    const char *name;
    json_t *value;
    double sum = 0.0;
    json_object_foreach ((json_t *)parts, name, value) {
        sum += json_number_value(value);
    }
    return sum;
}

static void add_prefill(line *to, const json_t *prefill)
{
    const json_t *parts = json_object_get(prefill, "time_breakdown_ms");
    const json_t *rows = json_object_get(prefill, "rows");
    const char *method = string(json_object_get(prefill, "attention"), "method");
    if (rows != NULL) {
        add(to, "first tokens by %zu lengths and methods", json_array_size(rows));
        return;
    }
    size_t prompts = json_array_size(json_object_get(prefill, "prompts"));
    if (prompts > 1) {
        add(to, "first token of the last of %zu prompts: ", prompts);
    } else {
        add(to, "first token: ");
    }
    add_time(to, number(prefill, "ttft_ms"));
    add(to, " (error not validated), %.2fx as fast as with dense attention",
        number(prefill, "speedup"));
    if (method != NULL) {
        add(to, ", attention %s", method);
    }
    add_limit(to, parts, sum_of(parts));
    add_held(to, json_object_get(prefill, "memory_gib"));
}

static void add_input(line *to, const report_page *page, const report_input *input)
{
    const json_t *predicted = NULL;
    const json_t *executed = NULL;
    switch (input->kind) {
    case REPORT_RESULT:
        if (report_pair_of(page->inputs, input, &predicted, &executed)) {
            add_execution(to, predicted, executed);
        } else {
            add_result(to, input->json);
            add(to, "%s", report_is_executed(input) ? ", executed" : "");
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
        add_points(to, input->json, (double)json_array_size(input->json));
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
        const report_timeline *timeline = page->timelines[0];
        add(&to, "%lld actions on %zu ranks in ", (long long)timeline->action_count,
            timeline->rank_count);
        add_time(&to, timeline->end_ms);
    }
    if (to.used == 0) {
        add(&to, "a plan");
    }
    return text;
}
