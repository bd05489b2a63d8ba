#include "experiments/cli/tune_parts.h"

#include <math.h>
#include <string.h>

#include "experiments/cli/report.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"

// ---- the front of time against memory ----

// Of the points that fit, the fastest first, those that none before holds less memory than; the
// caller frees the list with sp_free().
static const sweep_layout **tuned_front(const sweep_layouts *layouts, int64_t *count)
{
    const sweep_layout **front =
        (const sweep_layout **)sp_calloc((size_t)layouts->ranked_count + 1, sizeof *front);
    double least_gib = (double)HUGE_VAL;
    *count = 0;
    for (int64_t i = 0; i < layouts->ranked_count; i++) {
        front[*count] = layouts->ranked[i];
        *count += sweep_layouts_extends(layouts->ranked[i], &least_gib);
    }
    return front;
}

// ---- for people ----

enum { TIME = 32 };

static const char *time_text(double ms, char text[TIME])
{
    snprintf(text, TIME, ms < 1e3 ? "%.1f ms" : "%.2f s", ms < 1e3 ? ms : ms / 1e3);
    return text;
}

// How many behind the first are no slower than by the error; 0 where that is not known.
static int64_t count_within(const cli_tuned *tuned)
{
    const sweep_layouts *all = tuned->layouts;
    const sweep_digest *first = &all->ranked[0]->digest;
    double bound_ms = sweep_whole_ms(first) * (1.0 + tuned->result->step_error.median);
    int64_t within = 1;
    while (within < all->ranked_count && all->ranked[within]->digest.fits == first->fits &&
           sweep_whole_ms(&all->ranked[within]->digest) <= bound_ms) {
        within++;
    }
    return tuned->result->step_error.known ? within - 1 : 0;
}

// " ±4.0 % (the 2nd is within it)", or that the error is not known.
static void print_error(const cli_tuned *tuned)
{
    const sp_step_error *error = &tuned->result->step_error;
    int64_t within = count_within(tuned);
    if (!error->known) {
        fputs(" (error not known)", stdout);
        return;
    }
    printf(" ±%.1f %%", 100.0 * error->median);
    if (within == 1) {
        fputs(" (the 2nd is within it)", stdout);
    } else if (within > 1) {
        printf(" (the next %lld are within it)", (long long)within);
    }
}

static const char *loss_text(const sweep_digest *digest, char text[CLI_LOSS])
{
    const cli_loss loss = {.left_out = digest->figure[SWEEP_LEFT_OUT_SHARE],
                           .cut = digest->figure[SWEEP_CUT_SHARE],
                           .lossy = digest->lossy};
    return cli_loss_text(loss, text);
}

static void print_answer(const cli_tuned *tuned)
{
    const sp_result *result = tuned->result;
    char layout[CLI_LAYOUT];
    double ms = sp_result_iteration_ms(result);
    char time[2][TIME];
    char loss[CLI_LOSS];
    printf("fastest: %s, %s: %s per step", cli_layout_text(result, tuned->scenario, layout),
           result->strategy, time_text(ms, time[0]));
    print_error(tuned);
    loss_text(&tuned->layouts->ranked[0]->digest, loss);
    printf("%s%s", loss[0] != '\0' ? ", " : "", loss);
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
        double trained = 1.0 - sp_result_left_out_share(result);
        printf("; %.2fx what you name as current (%s)",
               tuned->current_ms / (1.0 - tuned->current_left_out) * trained / ms,
               time_text(tuned->current_ms, time[1]));
    } else if (tuned->current != NULL) {
        printf("; the current one: %s", tuned->current);
    }
    putchar('\n');
}

// Of a step.
static double tokens_of(const cli_tuned *tuned)
{
    double tokens = 0.0;
    for (int b = 0; b < tuned->batches->count; b++) {
        tokens += (double)tuned->batches->batch[b].total_tokens;
    }
    return tokens / tuned->batches->count;
}

static json_t *stack_of(const sp_scenario *scenario)
{
    return json_object_get(json_object_get(scenario->resolved, "stack"), "name");
}

static void print_question(const cli_tuned *tuned)
{
    const sp_scenario *scenario = tuned->scenario;
    char number[CLI_SHORT_NUMBER];
    char over[CLI_LOSS];
    char profile[CLI_PROFILE];
    cli_loss_text((cli_loss){.over_length = tuned->result->over_length_share}, over);
    printf("%s on %lld %s (%s), %s tokens a step%s%s, context %lld, profile %s, stack %s\n",
           scenario->model.name, (long long)sp_layout_ranks(&scenario->layout),
           scenario->cluster.gpu, scenario->cluster.name,
           cli_short_number(tokens_of(tuned), number), over[0] != '\0' ? ", " : "", over,
           (long long)tuned->batches->context,
           cli_profile_text(scenario, sp_profile_level(&scenario->profile), profile),
           json_string_value(stack_of(scenario)));
}

static void print_source(const cli_tuned *tuned)
{
    char text[CLI_STEP_ERROR];
    int column = printf("times ");
    cli_print_wrapped(stdout, cli_step_error(&tuned->result->step_error, text), column, column);
    if (tuned->scenario->model.experts > 0) {
        puts(CLI_TUNE_EXPERTS);
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

const char *cli_tune_loss(const cli_tuned *tuned, const sweep_digest *digest, char text[CLI_LOSS])
{
    char answer[CLI_LOSS];
    loss_text(&tuned->layouts->ranked[0]->digest, answer);
    loss_text(digest, text);
    if (strcmp(text, answer) == 0) {
        text[0] = '\0';
    } else if (text[0] == '\0') {
        snprintf(text, CLI_LOSS, "no tokens lost");
    }
    return text;
}

static void print_head(void)
{
    printf("%12s %12s %9s %9s %5s  %-12s", "iteration ms", "tokens/s/GPU", "MFU full", "peak GiB",
           "fits", "strategy");
    for (int a = 0; a < CLI_TUNE_AXES; a++) {
        printf(" %*s", cli_tune_axes[a].width, cli_tune_axes[a].name);
    }
    putchar('\n');
}

static void print_point(const cli_tuned *tuned, const sweep_layout *point)
{
    char tokens[CLI_SHORT_NUMBER];
    char text[CLI_TUNE_VALUE];
    char loss[CLI_LOSS];
    const sweep_digest *d = &point->digest;
    json_t *settings = sweep_layouts_settings(tuned->layouts, point);
    printf("%12.1f %12s %7.2f %% %9.2f %5s  %-12s", d->figure[SWEEP_ITERATION_MS],
           cli_short_number(d->figure[SWEEP_TOKENS_PER_GPU_S], tokens),
           100.0 * d->figure[SWEEP_MFU_FULL_ATTENTION], d->figure[SWEEP_PEAK_MEMORY_GIB],
           sp_fits_names[d->fits], tuned->options->strategies[point->strategy]);
    for (int a = 0; a < CLI_TUNE_AXES; a++) {
        printf(" %*s", cli_tune_axes[a].width,
               cli_tune_value(json_object_get(settings, cli_tune_axes[a].path), text));
    }
    loss_text(d, loss);
    printf("%s%s\n", loss[0] != '\0' ? "  " : "", loss);
    json_decref(settings);
}

static void print_front(const cli_tuned *tuned)
{
    int64_t count = 0;
    const sweep_layout **front = tuned_front(tuned->layouts, &count);
    printf("\nthe front of time against memory, of what was evaluated");
    if (count > CLI_FRONT_SHOWN) {
        printf(" (%d of %lld, all with --json)", CLI_FRONT_SHOWN, (long long)count);
    }
    puts(":");
    print_head();
    for (int64_t i = 0; i < count && i < CLI_FRONT_SHOWN; i++) {
        print_point(tuned, front[i]);
    }
    sp_free((void *)front);
}

// A faster point that runs out of memory by gaps between PyTorch's blocks alone, or NULL.
static const sweep_layout *find_expandable(const cli_tuned *tuned)
{
    const sweep_layouts *all = tuned->layouts;
    const sweep_layout *fastest = all->ranked[0];
    for (int64_t i = 1; i < all->ranked_count; i++) {
        const sweep_layout *point = all->ranked[i];
        if (point->counted && point->digest.figure[SWEEP_MEMORY_MARGIN_GIB] < 0.0 &&
            sweep_whole_ms(&point->digest) < sweep_whole_ms(&fastest->digest)) {
            fastest = point;
        }
    }
    return fastest != all->ranked[0] ? fastest : NULL;
}

static void print_expandable(const cli_tuned *tuned)
{
    const sweep_layout *fastest = find_expandable(tuned);
    if (fastest != NULL) {
        puts("\nthe fastest with expandable_segments:True, which leaves no gaps between PyTorch's "
             "blocks:");
        print_head();
        print_point(tuned, fastest);
    }
}

void cli_print_tuned(const cli_tuned *tuned)
{
    if (tuned->stopped) {
        puts("stopped by a signal before all points were tried: the fastest so far");
    }
    print_answer(tuned);
    print_question(tuned);
    print_source(tuned);
    print_counts(tuned);
    putchar('\n');
    print_head();
    for (int64_t i = 0; i < tuned->layouts->ranked_count && i < tuned->top; i++) {
        print_point(tuned, tuned->layouts->ranked[i]);
    }
    print_expandable(tuned);
    print_front(tuned);
    cli_print_findings(tuned);
    cli_print_choices(tuned);
    printf("\ngo on with: %s\n", tuned->go_on);
}

// ---- for programs ----

static json_t *point_json(const cli_tuned *tuned, const sweep_layout *point)
{
    const sweep_digest *d = &point->digest;
    return json_pack("{s:s, s:o, s:f, s:o, s:f, s:s, s:o, s:o}", "strategy",
                     tuned->options->strategies[point->strategy], "point",
                     sweep_layouts_settings(tuned->layouts, point), "iteration_ms",
                     d->figure[SWEEP_ITERATION_MS], "mfu_full_attention",
                     sp_json_figure(d->figure[SWEEP_MFU_FULL_ATTENTION]), "peak_memory_gib",
                     d->figure[SWEEP_PEAK_MEMORY_GIB], "fits", sp_fits_names[d->fits],
                     "left_out_share", sp_json_figure(d->figure[SWEEP_LEFT_OUT_SHARE]), "cut_share",
                     sp_json_figure(d->figure[SWEEP_CUT_SHARE]));
}

static json_t *points_json(const cli_tuned *tuned, const sweep_layout *const *points, int64_t count)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++) {
        json_array_append_new(list, point_json(tuned, points[i]));
    }
    return list;
}

// NULL: there is a time.
static json_t *current_reason(const cli_tuned *tuned)
{
    return isfinite(tuned->current_ms)
               ? NULL
               : json_string(tuned->current != NULL ? tuned->current : "--current names no layout");
}

// The nearest logged steps, where none is like the answer: of their errors nothing is told.
static json_t *nearest_json(const sp_step_error *error)
{
    if (error->known || error->steps == 0) {
        return json_null();
    }
    return json_pack("{s:n, s:I, s:s}", "median", "steps", (json_int_t)error->steps, "scope",
                     error->scope);
}

static json_t *question_json(const cli_tuned *tuned)
{
    const sp_scenario *scenario = tuned->scenario;
    return json_pack("{s:s, s:I, s:s, s:s, s:O*, s:I, s:f}", "model", scenario->model.name, "gpus",
                     (json_int_t)sp_layout_ranks(&scenario->layout), "gpu", scenario->cluster.gpu,
                     "cluster", scenario->cluster.name, "stack", stack_of(scenario), "context",
                     (json_int_t)tuned->batches->context, "tokens_per_step", tokens_of(tuned));
}

static json_t *counts_json(const sweep_layouts *all)
{
    json_t *points = json_object();
    for (int s = 0; s < SWEEP_STATUSES; s++) {
        sp_json_put(points, sweep_status_names[s], json_integer(all->of_status[s]));
    }
    sp_json_put(points, "left_out", json_integer(all->left_out));
    sp_json_put(points, "dropped", json_integer(all->dropped));
    return points;
}

json_t *cli_tuned_json_empty(const cli_tuned *tuned)
{
    json_t *question = question_json(tuned);
    sp_json_put(question, "gpus", json_integer(tuned->options->gpus));
    return json_pack("{s:o, s:n, s:n, s:n, s:n, s:n, s:n, s:o, s:[], s:[], s:n, s:[], s:{}}",
                     "question", question, "answer", "nearest_error", "within_error", "go_on",
                     "current_ms", "current_reason", "points", counts_json(tuned->layouts), "top",
                     "front", "limits_ms", "findings", "choices");
}

json_t *cli_tuned_json(const cli_tuned *tuned)
{
    const sweep_layouts *all = tuned->layouts;
    double ms[SP_TIME_PARTS];
    int64_t count = 0;
    const sweep_layout **front = tuned_front(all, &count);
    json_t *points = counts_json(all);
    json_t *limits = json_object();
    sp_result_time_parts(tuned->result, ms);
    for (int i = 0; i < SP_TIME_PARTS; i++) {
        sp_json_put(limits, cli_time_part_names[i], json_real(ms[i]));
    }
    int64_t top = all->ranked_count < tuned->top ? all->ranked_count : tuned->top;
    json_t *object = json_pack(
        "{s:s, s:o, s:o, s:o, s:I, s:s, s:o, s:o*, s:o, s:o, s:o, s:o, s:o, s:o}", "schema",
        "slimpack/tune/1", "question", question_json(tuned), "answer",
        sp_result_json(tuned->result, false), "nearest_error",
        nearest_json(&tuned->result->step_error), "within_error", (json_int_t)count_within(tuned),
        "go_on", tuned->go_on, "current_ms", sp_json_figure(tuned->current_ms), "current_reason",
        current_reason(tuned), "points", points, "top",
        points_json(tuned, (const sweep_layout *const *)all->ranked, top), "front",
        points_json(tuned, front, count), "limits_ms", limits, "findings", cli_findings_json(tuned),
        "choices", cli_choices_json(tuned));
    sp_free((void *)front);
    const sweep_layout *expandable = find_expandable(tuned);
    sp_json_put(object, "expandable",
                expandable != NULL ? point_json(tuned, expandable) : json_null());
    if (tuned->stopped) {
        sp_json_put(object, "stopped", json_true());
    }
    return object;
}
