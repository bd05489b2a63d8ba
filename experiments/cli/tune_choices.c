// What other choices of a setting cost, with all other settings free.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli/report.h"
#include "experiments/cli/tune_parts.h"
#include "sim/base/json.h"

enum { CHOICES = 64, COST = 48 + CLI_LOSS, GROUPS = CLI_TUNE_AXES + 1 };

typedef struct choice {
    json_t *value;             // borrowed from a spec, or a strategy's name; owned
    const sweep_digest *best;  // the fastest of those that fit well; NULL: none
    const sweep_digest *tight; // of those that fit tightly
    double bound_ms;           // least of those that were left out for it; NAN: none
    bool dropped;              // some were not tried
    sweep_status status;       // the best of those that were evaluated; SWEEP_STATUSES: none was
    const char *reason;        // of the first of these
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
    all->of[all->count] =
        (choice){.value = json_deep_copy(value), .bound_ms = (double)NAN, .status = SWEEP_STATUSES};
    return &all->of[all->count++];
}

static void count_evaluated(choice *c, const sweep_digest *digest)
{
    if (digest->status < c->status) {
        c->status = digest->status;
        c->reason = digest->reason;
    }
    if (digest->status == SWEEP_OK) {
        const sweep_digest **best = digest->fits == SP_FITS_TIGHT ? &c->tight : &c->best;
        *best = *best == NULL || sweep_whole_ms(digest) < sweep_whole_ms(*best) ? digest : *best;
    }
}

static void count_choice(choices *all, const json_t *value, const sweep_layout *point)
{
    choice *c = value != NULL ? find_choice(all, value) : NULL;
    if (c == NULL) {
        return;
    }
    if (point->dropped) {
        c->dropped = true;
    } else if (!point->evaluated) {
        c->bound_ms = fmin(c->bound_ms, point->bound_ms);
    } else {
        count_evaluated(c, &point->digest);
    }
}

// Of strategies, then of every axis.
static void count_choices(const cli_tuned *tuned, choices all[GROUPS])
{
    all[0] = (choices){.name = "strategy"};
    for (int a = 0; a < CLI_TUNE_AXES; a++) {
        all[a + 1] = (choices){.name = cli_tune_axes[a].name};
    }
    for (int64_t i = 0; i < tuned->layouts->count; i++) {
        const sweep_layout *point = &tuned->layouts->point[i];
        json_t *settings = sweep_layouts_settings(tuned->layouts, point);
        json_t *strategy = json_string(tuned->options->strategies[point->strategy]);
        count_choice(&all[0], strategy, point);
        for (int a = 0; a < CLI_TUNE_AXES; a++) {
            count_choice(&all[a + 1], json_object_get(settings, cli_tune_axes[a].path), point);
        }
        json_decref(strategy);
        json_decref(settings);
    }
}

static void free_choices(choices all[GROUPS])
{
    for (int a = 0; a < GROUPS; a++) {
        for (int i = 0; i < all[a].count; i++) {
            json_decref(all[a].of[i].value);
        }
    }
}

static double best_of(const cli_tuned *tuned)
{
    return sweep_whole_ms(&tuned->layouts->ranked[0]->digest);
}

// Of strategies that leave tokens out for as many tokens. NAN: there is no such point.
static double whole_ms(const sweep_digest *digest)
{
    return digest != NULL ? sweep_whole_ms(digest) : (double)NAN;
}

// "+12.3 %", or from what pure work takes of those that were left out to what was found.
static const char *cost_text(const cli_tuned *tuned, const choice *c, char text[COST])
{
    char loss[CLI_LOSS];
    double best_ms = best_of(tuned);
    double found = 100.0 * (whole_ms(c->best) / best_ms - 1.0);
    double least = 100.0 * (c->bound_ms / best_ms - 1.0);
    if (isfinite(found) && least < found) {
        snprintf(text, COST, "+%.1f to %.1f %%", least, found);
    } else if (isfinite(found)) {
        snprintf(text, COST, found > 0.0 ? "+%.1f %%" : "best", found);
    } else if (c->tight != NULL) {
        snprintf(text, COST, "tight %+.1f %%", 100.0 * (whole_ms(c->tight) / best_ms - 1.0));
    } else if (c->dropped) {
        snprintf(text, COST, "not tried");
    } else if (isfinite(least)) {
        snprintf(text, COST, "at least +%.1f %%", least);
    } else {
        snprintf(text, COST,
                 c->status == SWEEP_OOM          ? "does not fit"
                 : c->status == SWEEP_INFEASIBLE ? "has no plan"
                                                 : "does not go together");
    }
    const sweep_digest *shown = c->best != NULL ? c->best : c->tight;
    if (shown != NULL && cli_tune_loss(tuned, shown, loss)[0] != '\0') {
        size_t used = strlen(text);
        snprintf(text + used, COST - used, " (%s)", loss);
    }
    return text;
}

// Of points of which none makes a step, the reason without the name of the document; else NULL.
static const char *reason_of(const choice *c)
{
    static const char document[] = "point: ";
    bool none = c->status == SWEEP_INFEASIBLE || c->status == SWEEP_INVALID;
    if (!none || c->dropped || isfinite(c->bound_ms)) {
        return NULL;
    }
    bool named = strncmp(c->reason, document, sizeof document - 1) == 0;
    return c->reason + (named ? sizeof document - 1 : 0);
}

// Of the first choice of a setting that makes no step; NULL: of none.
static const choice *first_reason(const choices *group)
{
    int i = 0;
    while (i < group->count && reason_of(&group->of[i]) == NULL) {
        i++;
    }
    return i < group->count ? &group->of[i] : NULL;
}

// Each reason once.
static void print_reasons(const choices all[GROUPS])
{
    for (int a = 0; a < GROUPS; a++) {
        const choice *c = first_reason(&all[a]);
        bool told = c == NULL;
        for (int before = 0; before < a && !told; before++) {
            const choice *other = first_reason(&all[before]);
            told = other != NULL && strcmp(reason_of(other), reason_of(c)) == 0;
        }
        if (!told) {
            char value[CLI_TUNE_VALUE];
            int column = printf("  %s %s: ", all[a].name, cli_tune_value(c->value, value));
            cli_print_wrapped(stdout, reason_of(c), column, 16);
        }
    }
}

void cli_print_choices(const cli_tuned *tuned)
{
    choices all[GROUPS];
    count_choices(tuned, all);
    puts("\nwhat another choice costs, with all others free:");
    for (int a = 0; a < GROUPS; a++) {
        if (all[a].count > 1) {
            printf("  %-13s", all[a].name);
            for (int i = 0; i < all[a].count; i++) {
                char value[CLI_TUNE_VALUE];
                char cost[COST];
                const choice *c = &all[a].of[i];
                printf("%s%s %s", i > 0 ? ", " : " ", cli_tune_value(c->value, value),
                       cost_text(tuned, c, cost));
            }
            putchar('\n');
        }
    }
    print_reasons(all);
    free_choices(all);
}

static double figure_of(const sweep_digest *digest, sweep_figure figure)
{
    return digest != NULL ? digest->figure[figure] : (double)NAN;
}

static json_t *choice_json(const cli_tuned *tuned, const choice *c)
{
    char cost[COST];
    const sweep_digest *shown = c->best != NULL ? c->best : c->tight;
    return json_pack("{s:O, s:o, s:o, s:o, s:s, s:o, s:o, s:o}", "value", c->value, "iteration_ms",
                     sp_json_figure(figure_of(c->best, SWEEP_ITERATION_MS)), "tight_ms",
                     sp_json_figure(figure_of(c->tight, SWEEP_ITERATION_MS)), "at_least_ms",
                     sp_json_figure(c->bound_ms), "cost", cost_text(tuned, c, cost), "reason",
                     sp_json_text_or_null(reason_of(c)), "left_out_share",
                     sp_json_figure(figure_of(shown, SWEEP_LEFT_OUT_SHARE)), "cut_share",
                     sp_json_figure(figure_of(shown, SWEEP_CUT_SHARE)));
}

json_t *cli_choices_json(const cli_tuned *tuned)
{
    choices all[GROUPS];
    json_t *object = json_object();
    count_choices(tuned, all);
    for (int a = 0; a < GROUPS; a++) {
        json_t *list = json_array();
        for (int i = 0; i < all[a].count; i++) {
            json_array_append_new(list, choice_json(tuned, &all[a].of[i]));
        }
        sp_json_put(object, all[a].name, list);
    }
    free_choices(all);
    return object;
}
