#include "experiments/report/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "experiments/sweep/sweep.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

enum { SAMPLES_LISTED = 8 };

// page.html, as the build embeds it.
extern const char report_template[];
extern const size_t report_template_bytes;

static size_t count_timelines(const report_input *input)
{
    return input->kind == REPORT_TRACE    ? 1
           : input->kind == REPORT_RESULT ? report_executed_batches(input->json)
                                          : 0;
}

static sp_status take_timeline(report_page *page, report_input *input, size_t batch, sp_error *err)
{
    size_t index = page->timeline_count++;
    sp_status status = SP_OK;
    page->paths[index] = input->path;
    if (input->kind == REPORT_TRACE) {
        snprintf(page->titles[index], sizeof page->titles[index], "trace");
        page->timelines[index] = input->timeline;
        input->timeline = NULL;
    } else {
        snprintf(page->titles[index], sizeof page->titles[index], "executed batch %zu", batch);
        page->timelines[index] = report_timeline_new();
        status = report_timeline_from_executed(input, batch, page->timelines[index], err);
    }
    page->action_count +=
        status == SP_OK ? report_timeline_extent(page->timelines[index]).actions : 0;
    return status;
}

// A page shows the ranks of an executed step as timelines alone.
static void drop_ranks(report_input *input)
{
    json_t *batches = json_object_get(json_object_get(input->json, "execution"), "batches");
    for (size_t b = 0; b < json_array_size(batches); b++) {
        json_object_del(json_array_get(batches, b), "ranks");
    }
}

// ---- what documents say ----

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

enum { RISK = 48 };

// ", runs with probability 0.72" of a step that fits but may not run, else ""; returns text.
static const char *risk_of(const json_t *result, char text[RISK])
{
    double probability = number(result, "fit_probability");
    const char *fits = string(result, "fits");
    text[0] = '\0';
    if (probability < SP_FITS_SURELY && (fits == NULL || strcmp(fits, "no") != 0)) {
        snprintf(text, RISK, ", runs with probability %.2f", probability);
    }
    return text;
}

// Puts the time to be expected, by which the page ranks, and the risk beside each predicted time.
static void add_expected(json_t *value)
{
    const char *key;
    json_t *member;
    size_t i;
    json_array_foreach (value, i, member) {
        add_expected(member);
    }
    json_object_foreach (value, key, member) {
        add_expected(member);
    }
    sweep_trial trial;
    sweep_trial_take(value, &trial);
    if (isfinite(sweep_expected_ms(&trial))) {
        char risk[RISK];
        sp_json_put(value, "expected_ms", json_real(sweep_expected_ms(&trial)));
        sp_json_put(value, "risk", json_string(risk_of(value, risk)));
    }
}

sp_status report_page_init(report_page *page, report_inputs *inputs, sp_error *err)
{
    size_t count = 0;
    *page = (report_page){.inputs = inputs};
    for (int i = 0; i < inputs->count; i++) {
        count += count_timelines(&inputs->items[i]);
    }
    page->timelines = (report_timeline **)sp_calloc(count, sizeof *page->timelines);
    page->titles = sp_calloc(count, sizeof *page->titles);
    page->paths = sp_calloc(count, sizeof *page->paths);
    sp_status status = SP_OK;
    for (int i = 0; i < inputs->count && status == SP_OK; i++) {
        size_t batches = count_timelines(&inputs->items[i]);
        for (size_t b = 0; b < batches && status == SP_OK; b++) {
            status = take_timeline(page, &inputs->items[i], b, err);
        }
        drop_ranks(&inputs->items[i]);
        if (inputs->items[i].kind != REPORT_PLAN) {
            add_expected(inputs->items[i].json);
        }
    }
    return status;
}

void report_page_fini(report_page *page)
{
    for (size_t i = 0; i < page->timeline_count; i++) {
        report_timeline_free(page->timelines[i]);
    }
    sp_free((void *)page->timelines);
    sp_free(page->titles);
    sp_free((void *)page->paths);
    *page = (report_page){0};
}

// ---- which executed results are of the plan that another result predicts ----

// Is it a result of `run`, measured whatever else it says?
static bool is_executed(const report_input *input)
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

// The first prediction of what the input executed; -1: there is none, or nothing was executed. A
// result does not name its plan: it is that of a result of the same model, strategy, schedule,
// ranks, actions and batches.
static int prediction_of(const report_inputs *inputs, const report_input *input)
{
    for (int i = 0; is_executed(input) && i < inputs->count; i++) {
        const report_input *other = &inputs->items[i];
        if (other->kind == REPORT_RESULT && !is_executed(other) &&
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
        int prediction = prediction_of(inputs, &inputs->items[i]);
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
    double median = number(json_object_get(result, "error"), "median");
    median = isfinite(median) ? median : number(result, "median_error");
    add_time(to, number(result, "iteration_ms"));
    if (isfinite(median)) {
        say(to, " ±%.1f %%", 100.0 * median);
    } else if (string(result, "not_validated") != NULL) {
        say(to, " (error not validated)");
    }
}

static void add_memory(line *to, const json_t *result)
{
    double peak = number(result, "peak_memory_gib");
    double reserved = number(result, "peak_memory_reserved_gib");
    double limit = number(result, "memory_margin_gib") + (isfinite(reserved) ? reserved : peak);
    const char *fits = string(result, "fits");
    char risk[RISK];
    if (!isfinite(peak)) {
        return;
    }
    say(to, ", %.2f", peak);
    if (isfinite(limit)) {
        say(to, " of %.2f", limit);
    }
    say(to, " GiB");
    if (fits != NULL) {
        say(to, strcmp(fits, "yes") == 0     ? ", fits"
                : strcmp(fits, "tight") == 0 ? ", fits tightly"
                                             : ", does not fit");
    }
    say(to, "%s", risk_of(result, risk));
}

// Says which tokens the strategy does not train as asked.
static void add_loss(line *to, const json_t *result)
{
    static const char *const shares[][2] = {{"left_out_share", "left out"},
                                            {"cut_share", "cut from their beginning"}};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        double share = number(result, shares[i][0]);
        if (share > 0.0) {
            say(to, ", %.1f %% of tokens %s", 100.0 * share, shares[i][1]);
        }
    }
}

static void add_layout(line *to, const json_t *result)
{
    const json_t *layout = json_object_get(result, "layout");
    double degrees[] = {number(layout, "tp"), number(layout, "cp"), number(layout, "pp"),
                        number(layout, "dp")};
    if (isfinite(degrees[0] + degrees[1] + degrees[2] + degrees[3])) {
        say(to, ", tp %.6g, cp %.6g, pp %.6g, dp %.6g", degrees[0], degrees[1], degrees[2],
            degrees[3]);
    }
}

static void add_strategy(line *to, const json_t *result)
{
    const char *strategy = string(result, "strategy");
    const char *schedule = string(result, "schedule");
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
        say(to, "none of %zu fits", json_array_size(rows));
        return;
    }
    say(to, "fastest of %zu: ", json_array_size(rows));
    add_result(to, best);
    const char *baseline = string(comparison, "baseline");
    double speedup = number(best, "speedup");
    if (baseline != NULL && isfinite(speedup)) {
        bool oom = json_is_true(json_object_get(comparison, "baseline_oom"));
        say(to, ", %.2fx %s%s", speedup, baseline, oom ? ", which is out of memory" : "");
    }
}

static void add_tune(line *to, const json_t *tune)
{
    const json_t *answer = json_object_get(tune, "answer");
    const char *strategy = string(answer, "strategy");
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
    const char *strategy = string(best, "strategy");
    const char *chosen = string(point, "strategy.kind");
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
        say(to, "none of %.0f points fits", count);
        return;
    }
    say(to, "fastest of %.0f points: ", count);
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
    char risk[RISK];
    if (best == NULL) {
        say(to, "no strategy fits");
        return;
    }
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        least = fastest(json_object_get(point, "rows"), NULL) != NULL ? point : least;
    }
    const char *name = string(best, "strategy");
    say(to, "fastest of %zu strategies with %.2f GiB: %s, ",
        json_array_size(json_object_get(first, "rows")), number(first, "limit_gib"),
        name != NULL ? name : "one step");
    add_time(to, number(best, "iteration_ms"));
    say(to, "%s", risk_of(best, risk));
    best = fastest(json_object_get(least, "rows"), NULL);
    name = string(best, "strategy");
    say(to, "; with %.2f GiB: %s, ", number(least, "limit_gib"), name != NULL ? name : "one step");
    add_time(to, number(best, "iteration_ms"));
    say(to, "%s", risk_of(best, risk));
}

static void add_execution(line *to, const json_t *predicted, const json_t *executed)
{
    double ms[] = {number(predicted, "iteration_ms"), number(executed, "iteration_ms")};
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
    const json_t *worst_table = NULL;
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
            worst_table = table;
        }
    }
    if (worst != NULL) {
        const char *label = string(worst, "label");
        say(to, "; mean error %.1f %%, the worst row line %.0f%s%s: %+.1f %%",
            100.0 * number(worst_table, "mean_absolute_error"), number(worst, "line"),
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
        say(to, "%zu %s of measured steps", count, tables != NULL ? "tables" : "cases");
        if (json_is_boolean(within) && (tables == NULL || unbound < count)) {
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
    if (isfinite(number(error, "peak_memory_mape"))) {
        say(to, ", of peak memory %.2f %%", 100.0 * number(error, "peak_memory_mape"));
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
    say(to, "; %s takes %.1f %% of it", word, 100.0 * number(parts, largest) / whole_ms);
}

// Says how much of a limit is held, which stands beside it.
static void add_held(line *to, const json_t *held)
{
    double limit = number(held, "limit");
    double sum = number(held, "parameters") + number(held, "kv_cache");
    sum += json_object_get(held, "draft") != NULL ? number(held, "draft") : 0.0;
    const json_t *fits = json_object_get(held, "fits"); // a draft apart has a limit of its own
    bool does = json_is_boolean(fits) ? json_is_true(fits) : sum <= limit;
    if (isfinite(sum) && isfinite(limit)) {
        say(to, ", %.2f of %.2f GiB, %s", sum, limit, does ? "fits" : "does not fit");
    }
}

static void add_decode(line *to, const json_t *decode)
{
    const char *method = string(decode, "method");
    double over_eagle = number(decode, "speedup_over_eagle");
    double step_ms = number(decode, "step_ms");
    say(to, "%s: %.0f tokens/s (error not validated)", method != NULL ? method : "text",
        number(decode, "tokens_per_s"));
    if (isfinite(over_eagle)) {
        say(to, ", %.2fx plain decoding, %.2fx EAGLE's trees", number(decode, "speedup_over_plain"),
            over_eagle);
    }
    say(to, ", a step in ");
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
        say(to, "first tokens by %zu lengths and methods", json_array_size(rows));
        return;
    }
    size_t prompts = json_array_size(json_object_get(prefill, "prompts"));
    if (prompts > 1) {
        say(to, "first token of the last of %zu prompts: ", prompts);
    } else {
        say(to, "first token: ");
    }
    add_time(to, number(prefill, "ttft_ms"));
    say(to, " (error not validated), %.2fx as fast as with dense attention",
        number(prefill, "speedup"));
    if (method != NULL) {
        say(to, ", attention %s", method);
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
        if (pair_of(page->inputs, input, &predicted, &executed)) {
            add_execution(to, predicted, executed);
        } else {
            add_result(to, input->json);
            say(to, "%s", is_executed(input) ? ", executed" : "");
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
        report_extent extent = report_timeline_extent(page->timelines[0]);
        say(&to, "%lld actions on %zu ranks in ", (long long)extent.actions, extent.ranks);
        add_time(&to, extent.end_ms);
    }
    if (to.used == 0) {
        say(&to, "a plan");
    }
    return text;
}

// ---- text in HTML ----

static void write_escaped(sp_writer *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            sp_write(out, "&lt;");
            break;
        case '>':
            sp_write(out, "&gt;");
            break;
        case '&':
            sp_write(out, "&amp;");
            break;
        case '"':
            sp_write(out, "&quot;");
            break;
        default:
            if (*text == 0x7f || (*text > 0 && *text < 0x20)) {
                sp_write(out, "&#xfffd;"); // HTML has no control characters
            } else {
                sp_write(out, "%c", *text);
            }
        }
    }
}

static void write_answer(sp_writer *out, const report_page *page)
{
    char text[REPORT_ANSWER];
    write_escaped(out, report_answer(page, text));
}

static void write_version(sp_writer *out, const report_page *page)
{
    (void)page;
    sp_write(out, "slimpack %s", SP_VERSION);
}

// ---- the block of data ----

// A pack's slices, tokens, and the ids of its first samples.
static json_t *pack_json(const json_t *pack, const json_t *samples)
{
    const json_t *slices = json_object_get(pack, "slices");
    size_t count = json_array_size(slices);
    json_t *row = json_array();
    json_int_t tokens = 0;
    for (size_t i = 0; i < count; i++) {
        tokens += json_integer_value(json_object_get(json_array_get(slices, i), "tokens"));
    }
    json_array_append_new(row, json_integer((json_int_t)count));
    json_array_append_new(row, json_integer(tokens));
    for (size_t i = 0; i < count && i < SAMPLES_LISTED; i++) {
        json_int_t at = json_integer_value(json_object_get(json_array_get(slices, i), "sample"));
        const json_t *sample = at >= 0 ? json_array_get(samples, (size_t)at) : NULL;
        json_array_append(row, json_object_get(sample, "id"));
    }
    return row;
}

static json_t *packs_json(const json_t *batch, const char *key)
{
    const json_t *packs = json_object_get(batch, key);
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(packs); i++) {
        json_array_append_new(
            list, pack_json(json_array_get(packs, i), json_object_get(batch, "samples")));
    }
    return list;
}

static json_t *plan_json(const json_t *plan)
{
    const json_t *batches = json_object_get(plan, "batches");
    json_t *list = json_array();
    for (size_t b = 0; b < json_array_size(batches); b++) {
        const json_t *batch = json_array_get(batches, b);
        json_array_append_new(
            list, sp_json_object(SP_JSON("forward", packs_json(batch, "forward_packs")),
                                 SP_JSON("backward", packs_json(batch, "backward_packs"))));
    }
    return sp_json_object(SP_JSON("batches", list));
}

static void write_input(sp_writer *out, const report_input *input)
{
    json_t *path = json_string(input->path); // NULL where it is not UTF-8
    json_t *plan = input->kind == REPORT_PLAN ? plan_json(input->json) : NULL;
    sp_write(out, "{\"kind\":\"%s\",\"path\":", report_kind_names[input->kind]);
    if (path != NULL) {
        report_write_json(out, path);
    } else {
        sp_write(out, "\"?\"");
    }
    sp_write(out, ",\"document\":");
    if (plan != NULL || input->json != NULL) {
        report_write_json(out, plan != NULL ? plan : input->json);
    } else {
        sp_write(out, "null");
    }
    sp_write(out, "}");
    json_decref(path);
    json_decref(plan);
}

// Writes the places among the inputs of every executed result and its prediction; one that is given
// twice, by two commands, counts once.
static void write_pairs(sp_writer *out, const report_inputs *inputs)
{
    const char *separator = "";
    const json_t *last = NULL;
    for (int i = 0; i < inputs->count; i++) {
        int prediction = prediction_of(inputs, &inputs->items[i]);
        const json_t *time = json_object_get(inputs->items[i].json, "iteration_ms");
        if (prediction >= 0 && (last == NULL || !json_equal(last, time))) {
            sp_write(out, "%s[%d,%d]", separator, prediction, i);
            separator = ",";
            last = time;
        }
    }
}

static void write_data(sp_writer *out, const report_page *page)
{
    sp_write(out, "{\"inputs\":[");
    for (int i = 0; i < page->inputs->count; i++) {
        sp_write(out, i > 0 ? ",\n" : "\n");
        write_input(out, &page->inputs->items[i]);
    }
    sp_write(out, "],\n\"pairs\":[");
    write_pairs(out, page->inputs);
    sp_write(out, "],\n\"timelines\":[");
    for (size_t i = 0; i < page->timeline_count; i++) {
        sp_write(out, i > 0 ? ",\n" : "\n");
        report_timeline_write(out, page->timelines[i], page->paths[i], page->titles[i]);
    }
    sp_write(out, "]}");
}

// ---- the template ----

static const struct {
    const char *mark; // in the template
    void (*write)(sp_writer *out, const report_page *page);
} slots[] = {
    {"@ANSWER@", write_answer},
    {"@DATA@", write_data},
    {"@VERSION@", write_version},
};

enum { SLOTS = sizeof slots / sizeof slots[0] };

// The slot that begins here; SLOTS: none.
static size_t slot_at(const char *text, size_t bytes)
{
    size_t s = 0;
    while (s < SLOTS && (strlen(slots[s].mark) > bytes ||
                         memcmp(text, slots[s].mark, strlen(slots[s].mark)) != 0)) {
        s++;
    }
    return s;
}

sp_status report_page_write(FILE *file, const report_page *page, sp_error *err)
{
    sp_writer out;
    sp_writer_init(&out, file);
    for (size_t at = 0; at < report_template_bytes;) {
        size_t s = report_template[at] == '@'
                       ? slot_at(report_template + at, report_template_bytes - at)
                       : SLOTS;
        if (s < SLOTS) {
            slots[s].write(&out, page);
            at += strlen(slots[s].mark);
        } else {
            sp_write(&out, "%c", report_template[at++]);
        }
    }
    return sp_writer_finish(&out, "page", err);
}
