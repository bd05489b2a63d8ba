// `compare A B`: which settings two steps differ in, and which figures. Each is a scenario, which
// is evaluated as `simulate` does it, or a result that it printed.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "solver/strategy.h"

enum {
    SETTINGS_SHOWN = 10,
    FIGURES_SHOWN = 12,
    PARTS_SHOWN = 5,
    VALUE = 40,
    PARTS = 160,
};

// Rounding of documents is below it.
static const double same = 1e-9;

typedef struct side {
    const char *path;
    json_t *result;   // slimpack/result/1; owned
    json_t *scenario; // as resolved; owned, NULL: the result does not hold it
    bool is_scenario; // it was evaluated here
} side;

typedef struct changed {
    const char *key;
    int place; // in the table of figures
    double a, b;
    double change; // |b - a| over the larger of both; NAN: one of them is not defined
} changed;

typedef struct difference {
    side a, b;
    json_t *settings; // [{"key", "a", "b"}]; owned
    changed *figures; // the largest change first; owned
    int count;
} difference;

// ---- reading ----

static sp_status evaluate(const cli_difference *asked, json_t *root, side *s, sp_error *err)
{
    sp_scenario scenario = {0};
    sp_batches batches = {0};
    sp_result result = {0};
    const sp_evaluate_options options = {.allocator_peak = true, .threads = asked->threads};
    sp_status status = sp_scenario_place(root, s->path, err);
    status = status == SP_OK ? cli_change_document(root, asked->set, asked->lengths, err) : status;
    if (status == SP_OK) {
        status = sp_scenario_from_json(root, s->path, NULL, 0, &scenario, err);
    }
    status = status == SP_OK ? sp_strategy_resolve(&scenario, false, err) : status;
    if (status == SP_OK) {
        status = cli_form_batches(asked->quiet, &scenario, &batches, err);
    }
    if (status == SP_OK) {
        status = sp_evaluate(&scenario, &batches, &options, &result, err);
    }
    if (status == SP_OK) {
        s->result = sp_result_json(&result, false);
        s->scenario = json_incref(scenario.resolved);
        s->is_scenario = true;
    }
    sp_result_fini(&result);
    sp_batches_fini(&batches);
    sp_scenario_fini(&scenario);
    return status;
}

static sp_status read_side(const cli_difference *asked, const char *path, side *s, sp_error *err)
{
    json_t *root = NULL;
    s->path = path;
    SP_TRY(cli_read_root(path, &root, err));
    const char *kind = sp_json_kind(root);
    sp_status status = SP_OK;
    if (kind != NULL && strcmp(kind, "a result") == 0) {
        s->result = json_incref(root);
        s->scenario = json_incref(json_object_get(root, "scenario"));
        if (asked->set->count > 0 || asked->lengths != NULL) {
            status = sp_error_set(err, SP_ERR_USAGE,
                                  "%s: is a result: --set and --lengths change scenarios", path);
        } else if (!json_is_number(json_object_get(root, "iteration_ms"))) {
            status = sp_error_in(err, SP_ERR_CONTENT, path, "iteration_ms",
                                 "there are no figures of a step");
        }
    } else if (kind == NULL || strcmp(kind, "a scenario") == 0) {
        status = evaluate(asked, root, s, err);
    } else {
        status = sp_error_in(err, SP_ERR_CONTENT, path, "",
                             "expected a scenario or a result of 'simulate --json', got %s", kind);
    }
    json_decref(root);
    return status;
}

// ---- what differs ----

// A result without its scenario holds these settings.
static const char *const told_by_results[][2] = {
    {"model", "model.name"},
    {"profile", "provenance.profile"},
    {"parallel.tp", "layout.tp"},
    {"parallel.cp", "layout.cp"},
    {"parallel.pp", "layout.pp"},
    {"parallel.dp", "layout.dp"},
    {"parallel.ep", "layout.ep"},
    {"parallel.chunks_per_rank", "layout.chunks"},
    {"schedule.kind", "schedule"},
    {"strategy.kind", "strategy"},
    {"stack.cp_overlap", "cp_overlap"},
    {"workload.seed", "seed"},
};
enum { TOLD = sizeof told_by_results / sizeof told_by_results[0] };

static bool knows_settings(const difference *d)
{
    return d->a.scenario != NULL && d->b.scenario != NULL;
}

static void add_setting(difference *d, const char *key, const json_t *a, const json_t *b)
{
    const bool objects = json_is_object(a) && json_is_object(b); // whose keys have rows
    if (!objects && a != b && !json_equal((json_t *)a, (json_t *)b)) {
        json_array_append_new(
            d->settings,
            sp_json_object(SP_JSON("key", key),
                           SP_JSON("a", a != NULL ? json_incref((json_t *)a) : json_null()),
                           SP_JSON("b", b != NULL ? json_incref((json_t *)b) : json_null())));
    }
}

static void find_settings(difference *d)
{
    d->settings = json_array();
    const sp_setting *setting;
    for (int i = 0; knows_settings(d) && (setting = sp_setting_at(i)) != NULL; i++) {
        add_setting(d, setting->key, framework_get(d->a.scenario, setting->key),
                    framework_get(d->b.scenario, setting->key));
        if (strcmp(setting->key, "model") == 0 || strcmp(setting->key, "cluster") == 0) {
            char name[32];
            snprintf(name, sizeof name, "%s.name", setting->key);
            add_setting(d, setting->key, framework_get(d->a.scenario, name),
                        framework_get(d->b.scenario, name));
        }
    }
    for (int i = 0; !knows_settings(d) && i < TOLD; i++) {
        add_setting(d, told_by_results[i][0], framework_get(d->a.result, told_by_results[i][1]),
                    framework_get(d->b.result, told_by_results[i][1]));
    }
}

static double figure_of(const side *s, const char *key)
{
    const json_t *value = framework_get(s->result, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static double change_of(double a, double b)
{
    const double larger = fmax(fabs(a), fabs(b));
    return larger > 0.0 || isnan(a + b) ? fabs(b - a) / larger : 0.0;
}

// Changes that rounding alone tells apart are equal, and stand as the table of figures has them.
static double rank_of(const changed *f)
{
    return isnan(f->change) ? -1.0 : rint(f->change / same);
}

static int larger_first(const void *x, const void *y)
{
    const double one = rank_of(x);
    const double other = rank_of(y);
    return one != other ? (one < other) - (one > other)
                        : ((const changed *)x)->place - ((const changed *)y)->place;
}

// But for settings, and for what this machine took to answer.
static void find_figures(difference *d)
{
    static const char *const others[] = {"chunks_per_rank", "seed", "solver_ms", "simulate_ms"};
    int keys = 0;
    while (sp_figure_at(keys) != NULL) {
        keys++;
    }
    d->figures = sp_calloc((size_t)keys, sizeof *d->figures);
    for (int i = 0; i < keys; i++) {
        const char *key = sp_figure_at(i)->key;
        const double a = figure_of(&d->a, key);
        const double b = figure_of(&d->b, key);
        const double change = change_of(a, b);
        bool counts = (isfinite(a) || isfinite(b)) && !(change <= same);
        for (size_t o = 0; o < sizeof others / sizeof others[0]; o++) {
            counts = counts && strcmp(key, others[o]) != 0;
        }
        if (counts) {
            d->figures[d->count++] = (changed){key, i, a, b, change};
        }
    }
    qsort(d->figures, (size_t)d->count, sizeof *d->figures, larger_first);
}

// ---- for people ----

// B over A; NAN where they lie on two sides of 0.
static double ratio_of(const changed *f)
{
    return f->a * f->b >= 0.0 ? f->b / f->a : (double)NAN;
}

static const char *value_text(const json_t *value, char text[VALUE])
{
    if (json_is_string(value)) {
        snprintf(text, VALUE, "%s", json_string_value(value));
    } else if (json_is_real(value)) {
        snprintf(text, VALUE, "%.9g", json_real_value(value));
    } else {
        sp_json_quote(value, text, VALUE);
    }
    return json_is_null(value) ? "-" : text;
}

static void print_settings(const difference *d)
{
    cli_table table;
    size_t i;
    json_t *row;
    cli_table_begin(&table, "-30 setting|30 A|30 B", "settings", SETTINGS_SHOWN);
    json_array_foreach (d->settings, i, row) {
        char text[VALUE];
        if (cli_row_begin(&table)) {
            cli_cell(&table, "%s", json_string_value(json_object_get(row, "key")));
            cli_cell(&table, "%s", value_text(json_object_get(row, "a"), text));
            cli_cell(&table, "%s", value_text(json_object_get(row, "b"), text));
        }
        cli_row_end(&table);
    }
    cli_table_end(&table);
}

static void print_figures(const difference *d)
{
    cli_table table;
    cli_table_begin(&table, "-30 figure|18 A|18 B|10 B/A", "figures", FIGURES_SHOWN);
    // Those that other tables show go first.
    for (int i = 0; i < 2 * d->count; i++) {
        const changed *f = &d->figures[i % d->count];
        const sp_figure *figure = sp_figure_find(f->key);
        if ((figure->label != NULL) != (i < d->count)) {
            continue;
        }
        if (cli_row_begin(&table)) {
            cli_cell(&table, "%s", f->key);
            cli_figure_cell(&table, figure->label != NULL ? figure : NULL, f->a);
            cli_figure_cell(&table, figure->label != NULL ? figure : NULL, f->b);
            cli_number_cell(&table, "%.3fx", ratio_of(f));
        }
        cli_row_end(&table);
    }
    cli_table_end(&table);
}

// "step -2545.2 ms: bubble -2310.4, dp_comm -201.0": the largest parts of what changed.
static void print_parts(const difference *d, const char *what, const char *whole, const char *key,
                        const char *unit)
{
    const double moved = figure_of(&d->b, whole) - figure_of(&d->a, whole);
    const json_t *parts = json_object_get(d->b.result, key);
    changed found[PARTS_SHOWN] = {{0}};
    int count = 0;
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)parts, name, value) {
        const double a = json_number_value(framework_get(json_object_get(d->a.result, key), name));
        const changed part = {.key = name, .change = json_number_value(value) - a};
        // Launches are part of computing, offloaded bytes of no rank's memory.
        if (strcmp(name, "launch") == 0 || strcmp(name, "offloaded") == 0) {
            continue;
        }
        int at = count < PARTS_SHOWN ? count++ : PARTS_SHOWN;
        for (; at > 0 && fabs(part.change) > fabs(found[at - 1].change); at--) {
            if (at < PARTS_SHOWN) {
                found[at] = found[at - 1];
            }
        }
        if (at < PARTS_SHOWN) {
            found[at] = part;
        }
    }
    char text[PARTS] = "";
    for (int i = 0; i < count && fabs(found[i].change) > 0.01 * fabs(found[0].change); i++) {
        sp_append(text, sizeof text, "%s%s %+.2f", i > 0 ? ", " : "", found[i].key,
                  found[i].change);
    }
    if (text[0] != '\0' && fabs(found[0].change) > 0.005) {
        const int column = printf("%s %+.2f %s: ", what, moved, unit);
        cli_print_wrapped(stdout, text, column, 2);
    }
}

static void print_side(const char *name, const side *s)
{
    static const char *const degrees[] = {"tp", "cp", "pp", "dp"};
    const char *const words[] = {json_string_value(json_object_get(s->result, "schedule")),
                                 json_string_value(json_object_get(s->result, "strategy"))};
    const char *model = json_string_value(framework_get(s->result, "model.name"));
    char text[CLI_LAYOUT + 2 * SP_SOURCE_NAME];
    snprintf(text, sizeof text, "%s: %s", s->path, model != NULL ? model : "stated costs");
    for (size_t i = 0; i < sizeof degrees / sizeof degrees[0]; i++) {
        const json_t *layout = json_object_get(s->result, "layout");
        sp_append(text, sizeof text, ", %s %lld", degrees[i],
                  (long long)json_integer_value(json_object_get(layout, degrees[i])));
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        sp_append(text, sizeof text, "%s%s", words[i] != NULL ? ", " : "",
                  words[i] != NULL ? words[i] : "");
    }
    cli_print_wrapped(stdout, text, printf("%s  ", name), 3);
}

static void print_time(const char *name, const side *s, const char *end)
{
    const char *fits = json_string_value(json_object_get(s->result, "fits"));
    printf("%s%.1f ms", name, figure_of(s, "iteration_ms"));
    if (fits != NULL) {
        printf(", %s", strcmp(fits, "yes") == 0 ? "fits"
                       : strcmp(fits, "tight") == 0
                           ? cli_tight_text(figure_of(s, "memory_margin_gib"))
                           : "OUT OF MEMORY");
    }
    fputs(end, stdout);
}

// By steps of unlike work the tokens of a second say which is faster.
static void print_verdict(const difference *d)
{
    const double ms[2] = {figure_of(&d->a, "iteration_ms"), figure_of(&d->b, "iteration_ms")};
    const double rate[2] = {figure_of(&d->a, "tokens_per_s"), figure_of(&d->b, "tokens_per_s")};
    const double work = rate[1] * ms[1] / (rate[0] * ms[0]);
    printf("B takes %.3f times the step of A: ", ms[1] / ms[0]);
    print_time("", &d->b, "; ");
    print_time("A ", &d->a, "\n");
    if (fabs(work - 1.0) > 1e-6) {
        printf(
            "a step of B trains %.3f times the tokens, which makes %.3f times as many a second\n",
            work, rate[1] / rate[0]);
    }
    print_parts(d, "step", "iteration_ms", "time_breakdown_ms", "ms");
    print_parts(d, "peak", "peak_memory_gib", "memory_gib", "GiB");
}

static void print_error(const difference *d)
{
    const side *const sides[] = {&d->a, &d->b};
    if (framework_get(d->a.result, "model.name") == NULL) { // of stated costs there is none
        return;
    }
    fputs("error of the times:", stdout);
    for (int i = 0; i < 2; i++) {
        const double median = figure_of(sides[i], "error.median");
        printf(" %s ", i == 0 ? "A" : "B");
        printf(isfinite(median) ? "±%.1f %% in the median" : "not known", 100.0 * median);
        fputs(i == 0 ? "," : " (simulate says more)\n", stdout);
    }
}

// The caller frees it with sp_free().
static char *go_on(const difference *d)
{
    sp_text memory;
    FILE *out = sp_text_begin(&memory);
    const bool evaluated = d->a.is_scenario || d->b.is_scenario;
    fputs(evaluated ? "slimpack simulate " : "slimpack report ", out);
    sp_print_word(out, d->b.is_scenario ? d->b.path : d->a.path);
    fputs(evaluated ? " --timeline" : " ", out);
    if (!evaluated) {
        sp_print_word(out, d->b.path);
        fputs(" -o page.html", out);
    }
    return sp_text_end(&memory);
}

static void print_difference(const difference *d)
{
    char *command = go_on(d);
    cli_leave_end(command);
    print_side("A", &d->a);
    print_side("B", &d->b);
    print_verdict(d);
    print_error(d);
    if (json_array_size(d->settings) > 0) {
        putchar('\n');
        print_settings(d);
    } else {
        puts("no setting differs");
    }
    if (!knows_settings(d)) {
        puts(
            "further settings may differ: results hold all of them by 'simulate --json --explain'");
    }
    if (d->count > 0) {
        putchar('\n');
        print_figures(d);
    } else {
        puts("no figure differs");
    }
    cli_print_end(command);
    sp_free(command);
}

// ---- for programs ----

static json_t *difference_json(const difference *d)
{
    json_t *figures = json_array();
    for (int i = 0; i < d->count; i++) {
        const changed *f = &d->figures[i];
        json_array_append_new(
            figures, sp_json_object(SP_JSON("key", f->key), SP_JSON("a", f->a), SP_JSON("b", f->b),
                                    SP_JSON("ratio", ratio_of(f)), SP_JSON("change", f->change)));
    }
    return sp_json_object(
        SP_JSON("schema", "slimpack/difference/1"), SP_JSON("a", d->a.path),
        SP_JSON("b", d->b.path), SP_JSON("all_settings", json_boolean(knows_settings(d))),
        SP_JSON("settings", json_incref(d->settings)), SP_JSON("figures", figures));
}

int cli_print_difference(const cli_difference *asked)
{
    difference d = {0};
    sp_error err = {0};
    int exit_status = 0;
    sp_status status = read_side(asked, asked->paths[0], &d.a, &err);
    status = status == SP_OK ? read_side(asked, asked->paths[1], &d.b, &err) : status;
    if (status == SP_OK) {
        find_settings(&d);
        find_figures(&d);
        if (asked->json) {
            exit_status = cli_print_json(difference_json(&d));
        } else {
            print_difference(&d);
        }
        const side *const sides[] = {&d.a, &d.b};
        for (int i = 0; i < 2; i++) {
            cli_warn_all(asked->quiet || asked->json, sides[i]->path,
                         json_object_get(sides[i]->result, "warnings"));
        }
        const bool ooms = json_is_true(json_object_get(d.a.result, "oom")) &&
                          json_is_true(json_object_get(d.b.result, "oom"));
        exit_status = cli_answer(exit_status, !ooms);
    } else {
        exit_status = cli_fail(&err);
    }
    const side *const sides[] = {&d.a, &d.b};
    for (int i = 0; i < 2; i++) {
        json_decref(sides[i]->result);
        json_decref(sides[i]->scenario);
    }
    json_decref(d.settings);
    sp_free(d.figures);
    return exit_status;
}
