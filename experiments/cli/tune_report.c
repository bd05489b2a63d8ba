#include "experiments/cli/tune_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/report.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "solver/strategy.h"

enum { CHOICES = 16 };

static const double told_share = 0.05; // of the step, from which a part of it limits it

// Settings that the search turns, and how a column of them is headed.
static const struct {
    const char *path, *name;
    int width;
} axes[] = {
    {"parallel.tp", "tp", 3},
    {"parallel.cp", "cp", 3},
    {"parallel.pp", "pp", 3},
    {"parallel.dp", "dp", 4},
    {"parallel.zero", "zero", 4},
    {"memory.recompute", "recompute", 9},
    {"schedule.kind", "schedule", 11},
    {"parallel.chunks_per_rank", "chunks", 6},
    {"schedule.microbatch_samples", "rows", 4},
    {"strategy.rank_tokens", "rank_tokens", 11},
    {"strategy.chunk_tokens", "chunk_tokens", 12},
};

enum { AXES = sizeof axes / sizeof axes[0], VALUE = 24 };

static const char *value_text(const json_t *value, char text[VALUE])
{
    snprintf(text, VALUE, "-");
    if (json_is_integer(value)) {
        snprintf(text, VALUE, "%lld", (long long)json_integer_value(value));
    } else if (json_is_string(value)) {
        snprintf(text, VALUE, "%s", json_string_value(value));
    }
    return text;
}

// ---- the front of time against memory ----

// Of the points that fit, the fastest first, those that none before holds less memory than; the
// caller frees the list with free(). NULL when memory ran out.
static const sweep_layout **tuned_front(const sweep_layouts *layouts, int64_t *count)
{
    const sweep_layout **front =
        (const sweep_layout **)calloc((size_t)layouts->ranked_count + 1, sizeof *front);
    double least_gib = (double)HUGE_VAL;
    *count = 0;
    for (int64_t i = 0; front != NULL && i < layouts->ranked_count; i++) {
        front[*count] = layouts->ranked[i];
        *count += sweep_layouts_extends(layouts->ranked[i], &least_gib);
    }
    return front;
}

// ---- what other choices cost ----

typedef struct choice {
    json_t *value;   // borrowed from a spec, or a strategy's name; owned
    double best_ms;  // of those that fit well; NAN: none
    double tight_ms; // of those that fit tightly; NAN: none
    double bound_ms; // least of those that were left out for it; NAN: none
    bool dropped;    // some were not tried
} choice;

typedef struct choices {
    const char *name;
    choice of[CHOICES];
    int count;
} choices;

static choice *find_choice(choices *all, const json_t *value)
{
    for (int i = 0; i < all->count; i++) {
        if (json_equal(all->of[i].value, value)) {
            return &all->of[i];
        }
    }
    if (all->count == CHOICES) {
        return NULL;
    }
    all->of[all->count] = (choice){.value = json_deep_copy(value),
                                   .best_ms = (double)NAN,
                                   .tight_ms = (double)NAN,
                                   .bound_ms = (double)NAN};
    return &all->of[all->count++];
}

static void count_choice(choices *all, const json_t *value, const sweep_layout *point)
{
    const sweep_digest *digest = &point->digest;
    choice *c = value != NULL ? find_choice(all, value) : NULL;
    if (c == NULL) {
        return;
    }
    if (point->dropped) {
        c->dropped = true;
    } else if (!point->evaluated) {
        c->bound_ms = fmin(c->bound_ms, point->bound_ms);
    } else if (digest->status == SWEEP_OK) {
        double *ms = digest->fits == SP_FITS_TIGHT ? &c->tight_ms : &c->best_ms;
        *ms = fmin(*ms, digest->figure[SWEEP_ITERATION_MS]);
    }
}

// Of strategies, then of every axis; choices[AXES + 1].
static void count_choices(const cli_tuned *tuned, choices all[AXES + 1])
{
    all[0] = (choices){.name = "strategy"};
    for (int a = 0; a < AXES; a++) {
        all[a + 1] = (choices){.name = axes[a].name};
    }
    for (int64_t i = 0; i < tuned->layouts->count; i++) {
        const sweep_layout *point = &tuned->layouts->point[i];
        json_t *settings = sweep_layouts_settings(tuned->layouts, point);
        json_t *strategy = json_string(tuned->options->strategies[point->strategy]);
        count_choice(&all[0], strategy, point);
        for (int a = 0; a < AXES; a++) {
            count_choice(&all[a + 1], json_object_get(settings, axes[a].path), point);
        }
        json_decref(strategy);
        json_decref(settings);
    }
}

static void free_choices(choices all[AXES + 1])
{
    for (int a = 0; a <= AXES; a++) {
        for (int i = 0; i < all[a].count; i++) {
            json_decref(all[a].of[i].value);
        }
    }
}

// "8 +12.3 %", or from what pure work takes of those that were left out to what was found.
static void print_choice(const choice *c, double best_ms, const char *separator)
{
    char text[VALUE];
    printf("%s%s ", separator, value_text(c->value, text));
    double found = 100.0 * (c->best_ms / best_ms - 1.0);
    double least = 100.0 * (c->bound_ms / best_ms - 1.0);
    if (isfinite(found) && least < found) {
        printf("+%.1f to %.1f %%", least, found);
    } else if (isfinite(found)) {
        printf(found > 0.0 ? "+%.1f %%" : "best", found);
    } else if (isfinite(c->tight_ms)) {
        printf("tight %+.1f %%", 100.0 * (c->tight_ms / best_ms - 1.0));
    } else if (c->dropped) {
        fputs("not tried", stdout);
    } else if (isfinite(least)) {
        printf("at least +%.1f %%", least);
    } else {
        fputs("does not fit", stdout);
    }
}

static void print_choices(const cli_tuned *tuned)
{
    choices all[AXES + 1];
    double best_ms = tuned->layouts->ranked[0]->digest.figure[SWEEP_ITERATION_MS];
    count_choices(tuned, all);
    puts("\nwhat another choice costs, with all others free:");
    for (int a = 0; a <= AXES; a++) {
        if (all[a].count > 1) {
            printf("  %-13s", all[a].name);
            for (int i = 0; i < all[a].count; i++) {
                print_choice(&all[a].of[i], best_ms, i > 0 ? ", " : " ");
            }
            putchar('\n');
        }
    }
    free_choices(all);
}

// ---- for people ----

enum { TIME = 32 };

static const char *time_text(double ms, char text[TIME])
{
    snprintf(text, TIME, ms < 1e3 ? "%.1f ms" : "%.2f s", ms < 1e3 ? ms : ms / 1e3);
    return text;
}

static void print_answer(const cli_tuned *tuned)
{
    const sp_result *result = tuned->result;
    char layout[CLI_LAYOUT];
    double ms = sp_result_iteration_ms(result);
    char time[2][TIME];
    printf("fastest: %s, %s: %s per step", cli_layout_text(result, tuned->scenario, layout),
           result->strategy, time_text(ms, time[0]));
    if (result->step_error.known) {
        printf(" ±%.1f %%", 100.0 * result->step_error.median);
    }
    printf(", %.1f of %.0f GiB", sp_gib_from_bytes(result->peak_bytes),
           sp_gib_from_bytes(result->memory_limit_bytes));
    if (sp_result_fits(result) == SP_FITS_TIGHT) {
        printf(", TIGHTLY");
    }
    if (result->reserved_peak_bytes > result->memory_limit_bytes) {
        printf("; PyTorch would reserve %.1f GiB: set expandable_segments:True",
               sp_gib_from_bytes(result->reserved_peak_bytes));
    }
    if (isfinite(tuned->current_ms)) {
        printf("; %.2fx what you name as current (%s)", tuned->current_ms / ms,
               time_text(tuned->current_ms, time[1]));
    } else if (tuned->current != NULL) {
        printf("; the current one: %s", tuned->current);
    }
    putchar('\n');
}

static void print_question(const cli_tuned *tuned)
{
    const sp_scenario *scenario = tuned->scenario;
    double tokens = 0.0;
    char number[CLI_SHORT_NUMBER];
    for (int b = 0; b < tuned->batches->count; b++) {
        tokens += (double)tuned->batches->batch[b].total_tokens;
    }
    printf(
        "%s on %lld %s (%s), %s tokens a step, context %lld, profile %s (%s), stack %s\n",
        scenario->model.name, (long long)sp_layout_ranks(&scenario->layout), scenario->cluster.gpu,
        scenario->cluster.name, cli_short_number(tokens / tuned->batches->count, number),
        (long long)tuned->batches->context, scenario->profile.name,
        sp_level_names[sp_profile_level(&scenario->profile)],
        json_string_value(json_object_get(json_object_get(scenario->resolved, "stack"), "name")));
}

// How sure the answer is: the profile's error, and who lies within it.
static void print_confidence(const cli_tuned *tuned)
{
    char text[CLI_STEP_ERROR];
    const sweep_layouts *layouts = tuned->layouts;
    const sp_step_error *error = &tuned->result->step_error;
    int column = printf("times ");
    cli_print_wrapped(stdout, cli_step_error(error, text), column, column);
    double bound_ms = layouts->ranked[0]->digest.figure[SWEEP_ITERATION_MS] * (1.0 + error->median);
    int64_t within = 1;
    while (error->known && within < layouts->ranked_count &&
           layouts->ranked[within]->digest.fits == layouts->ranked[0]->digest.fits &&
           layouts->ranked[within]->digest.figure[SWEEP_ITERATION_MS] <= bound_ms) {
        within++;
    }
    if (within > 1) {
        printf("the next %lld are within this error\n", (long long)within - 1);
    }
}

static void print_counts(const cli_tuned *tuned)
{
    static const char *const outcomes[SWEEP_STATUSES] = {"fit", "need more memory", "have no plan",
                                                         "do not go together"};
    const sweep_layouts *all = tuned->layouts;
    char number[CLI_GROUPED];
    printf("%s points:", cli_grouped(all->count, number));
    for (int s = 0; s < SWEEP_STATUSES; s++) {
        if (all->of_status[s] > 0) {
            printf(" %s %s,", cli_grouped(all->of_status[s], number), outcomes[s]);
        }
    }
    printf(" %s left out because pure work alone takes longer", cli_grouped(all->left_out, number));
    if (all->dropped > 0) {
        printf(", %s not tried because the other strategies are slow at their degrees",
               cli_grouped(all->dropped, number));
    }
    putchar('\n');
}

static void print_head(void)
{
    printf("%12s %12s %9s %9s %5s  %-12s", "iteration ms", "tokens/s/GPU", "MFU full", "peak GiB",
           "fits", "strategy");
    for (int a = 0; a < AXES; a++) {
        printf(" %*s", axes[a].width, axes[a].name);
    }
    putchar('\n');
}

static void print_point(const cli_tuned *tuned, const sweep_layout *point)
{
    char tokens[CLI_SHORT_NUMBER];
    char text[VALUE];
    const sweep_digest *d = &point->digest;
    json_t *settings = sweep_layouts_settings(tuned->layouts, point);
    printf("%12.1f %12s %7.2f %% %9.2f %5s  %-12s", d->figure[SWEEP_ITERATION_MS],
           cli_short_number(d->figure[SWEEP_TOKENS_PER_GPU_S], tokens),
           100.0 * d->figure[SWEEP_MFU_FULL_ATTENTION], d->figure[SWEEP_PEAK_MEMORY_GIB],
           sp_fits_names[d->fits], tuned->options->strategies[point->strategy]);
    for (int a = 0; a < AXES; a++) {
        printf(" %*s", axes[a].width, value_text(json_object_get(settings, axes[a].path), text));
    }
    putchar('\n');
    json_decref(settings);
}

static void print_front(const cli_tuned *tuned)
{
    int64_t count = 0;
    const sweep_layout **front = tuned_front(tuned->layouts, &count);
    puts("\nthe front of time against memory, of what was evaluated:");
    print_head();
    for (int64_t i = 0; front != NULL && i < count && i < CLI_FRONT_SHOWN; i++) {
        print_point(tuned, front[i]);
    }
    free((void *)front);
}

// A faster point that runs out of memory by gaps between PyTorch's blocks alone.
static void print_expandable(const cli_tuned *tuned)
{
    const sweep_layouts *all = tuned->layouts;
    const sweep_layout *fastest = all->ranked[0];
    for (int64_t i = 1; i < all->ranked_count; i++) {
        const sweep_layout *point = all->ranked[i];
        if (point->counted && point->digest.figure[SWEEP_MEMORY_MARGIN_GIB] < 0.0 &&
            point->digest.figure[SWEEP_ITERATION_MS] < fastest->digest.figure[SWEEP_ITERATION_MS]) {
            fastest = point;
        }
    }
    if (fastest != all->ranked[0]) {
        puts("\nthe fastest with expandable_segments:True, which leaves no gaps between PyTorch's "
             "blocks:");
        print_head();
        print_point(tuned, fastest);
    }
}

static void print_limits(const cli_tuned *tuned)
{
    double ms[CLI_TIME_PARTS];
    double step_ms = sp_result_iteration_ms(tuned->result);
    const char *separator = " ";
    cli_time_parts(tuned->result, ms);
    printf("\nwhat limits it: computing %.1f %% of the step", 100.0 * ms[0] / step_ms);
    for (int i = 1; i < CLI_TIME_PARTS; i++) {
        if (ms[i] >= told_share * step_ms) {
            printf(",%s%s %.1f %%", separator, cli_time_part_names[i], 100.0 * ms[i] / step_ms);
        }
    }
    puts(" (communication that computing does not hide)");
}

void cli_print_tuned(const cli_tuned *tuned)
{
    print_answer(tuned);
    print_question(tuned);
    print_confidence(tuned);
    print_counts(tuned);
    putchar('\n');
    print_head();
    for (int64_t i = 0; i < tuned->layouts->ranked_count && i < tuned->top; i++) {
        print_point(tuned, tuned->layouts->ranked[i]);
    }
    print_expandable(tuned);
    print_front(tuned);
    print_limits(tuned);
    print_choices(tuned);
    if (tuned->output != NULL) {
        printf("\ngo on with: slimpack simulate %s --timeline\n", tuned->output);
    } else {
        puts("\ngo on with -o FILE: the answer as a scenario, for simulate, compare and plan");
    }
}

// ---- for programs ----

static json_t *point_json(const cli_tuned *tuned, const sweep_layout *point)
{
    const sweep_digest *d = &point->digest;
    return json_pack("{s:s, s:o, s:f, s:o, s:f, s:s}", "strategy",
                     tuned->options->strategies[point->strategy], "point",
                     sweep_layouts_settings(tuned->layouts, point), "iteration_ms",
                     d->figure[SWEEP_ITERATION_MS], "mfu_full_attention",
                     sp_json_figure(d->figure[SWEEP_MFU_FULL_ATTENTION]), "peak_memory_gib",
                     d->figure[SWEEP_PEAK_MEMORY_GIB], "fits", sp_fits_names[d->fits]);
}

static json_t *points_json(const cli_tuned *tuned, const sweep_layout *const *points, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; points != NULL && i < count; i++) {
        json_array_append_new(list, point_json(tuned, points[i]));
    }
    return list;
}

static json_t *choices_json(const cli_tuned *tuned)
{
    choices all[AXES + 1];
    json_t *object = json_object();
    count_choices(tuned, all);
    for (int a = 0; a <= AXES; a++) {
        json_t *list = json_array();
        for (int i = 0; i < all[a].count; i++) {
            const choice *c = &all[a].of[i];
            json_array_append_new(list, json_pack("{s:O, s:o, s:o, s:o}", "value", c->value,
                                                  "iteration_ms", sp_json_figure(c->best_ms),
                                                  "tight_ms", sp_json_figure(c->tight_ms),
                                                  "at_least_ms", sp_json_figure(c->bound_ms)));
        }
        sp_json_put(object, all[a].name, list);
    }
    free_choices(all);
    return object;
}

// NULL: there is a time.
static json_t *current_reason(const cli_tuned *tuned)
{
    return isfinite(tuned->current_ms)
               ? NULL
               : json_string(tuned->current != NULL ? tuned->current : "--current names no layout");
}

json_t *cli_tuned_json(const cli_tuned *tuned)
{
    const sweep_layouts *all = tuned->layouts;
    double ms[CLI_TIME_PARTS];
    int64_t count = 0;
    const sweep_layout **front = tuned_front(all, &count);
    json_t *points = json_object();
    json_t *limits = json_object();
    for (int s = 0; s < SWEEP_STATUSES; s++) {
        sp_json_put(points, sweep_status_names[s], json_integer(all->of_status[s]));
    }
    sp_json_put(points, "left_out", json_integer(all->left_out));
    sp_json_put(points, "dropped", json_integer(all->dropped));
    cli_time_parts(tuned->result, ms);
    for (int i = 0; i < CLI_TIME_PARTS; i++) {
        sp_json_put(limits, cli_time_part_names[i], json_real(ms[i]));
    }
    int64_t top = all->ranked_count < tuned->top ? all->ranked_count : tuned->top;
    json_t *object = json_pack(
        "{s:s, s:o, s:o, s:o*, s:o, s:o, s:o, s:o, s:o}", "schema", "slimpack/tune/1", "answer",
        sp_result_json(tuned->result, false), "current_ms", sp_json_figure(tuned->current_ms),
        "current_reason", current_reason(tuned), "points", points, "top",
        points_json(tuned, (const sweep_layout *const *)all->ranked, top), "front",
        points_json(tuned, front, count), "limits_ms", limits, "choices", choices_json(tuned));
    free((void *)front);
    return object;
}
