#include <string.h>

#include "experiments/cli/options.h"
#include "experiments/cli/plot.h"
#include "experiments/cli/report.h"
#include "experiments/cli/validate_report.h"
#include "experiments/measurements/published.h"
#include "sim/base/alloc.h"

enum { MOST_OVERRIDES = 64, OVERRIDE = 1100 };

typedef struct validate_args {
    cli_common common;
    cli_list set;
    int64_t jobs;
    bool published, rows;
    const char *table;
    const char *measurements, *map, *profile;
    const char *plot;
} validate_args;

static const cli_option options[] = {
    {.kind = CLI_FLAG,
     .name = "published",
     .at = offsetof(validate_args, published),
     .help = "the tables of published measurements that travel with the program"},
    {.kind = CLI_STRING,
     .name = "table",
     .value = "NAME",
     .at = offsetof(validate_args, table),
     .help = "only this one of the published tables"},
    {.kind = CLI_FILE,
     .name = "measurements",
     .value = "TABLE",
     .at = offsetof(validate_args, measurements),
     .help = "a table of your own (CSV)"},
    {.kind = CLI_FILE,
     .name = "map",
     .value = "FILE",
     .at = offsetof(validate_args, map),
     .help = "what the columns of TABLE set (default: TABLE's name ending in .json, where there is "
             "such a file)"},
    {.kind = CLI_FILE,
     .name = "profile",
     .value = "PROFILE",
     .at = offsetof(validate_args, profile),
     .help = "compute with this profile in place of the tables' own"},
    CLI_SET_OPTION(validate_args),
    {.kind = CLI_FLAG,
     .name = "rows",
     .at = offsetof(validate_args, rows),
     .help = "list every case"},
    {.kind = CLI_FILE,
     .name = "plot",
     .value = "FILE",
     .at = offsetof(validate_args, plot),
     .help = "draw computed over measured as .png or .svg (needs gnuplot)"},
    CLI_JOBS_OPTION(validate_args),
    CLI_COMMON_OPTIONS(validate_args),
    {0},
};

static const char *const examples[] = {
    "slimpack validate --published",
    "slimpack validate --published --table a100_multi_node --rows",
    "slimpack validate --measurements my_runs.csv --profile a100",
    NULL,
};

static int run(int argc, char **argv);

const cli_command cli_cmd_validate = {
    .name = "validate",
    .summary = "compare measured steps with what is computed for them",
    .max_operands = 0,
    .description =
        "Simulates every row of tables of measured steps and prints for each table the mean error, "
        "the bias, the worst row, the bound that the table states and, where there is one, the "
        "error that others published for it."
        "\n\n--published takes the tables that travel with the program, --measurements one of your "
        "own. A row of a table is a scenario and what was measured of it: iteration_ms, "
        "tokens_per_s (of all GPUs) or peak_memory_allocator_bytes (PyTorch's "
        "max_memory_allocated, largest rank). A map says which columns set what; without one the "
        "columns are named by the settings (\"parallel.tp\"). experiments/published/README.md "
        "describes both, and where the published tables come from."
        "\n\nThe exit status is 1 when a table misses its bound.",
    .examples = examples,
    .options = options,
    .run = run,
};

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
static bool states_costs(const validate_args *args, const sp_measurements *measurements)
{
    return args->published && measurements->cases[0].scenario.uniform;
}

static sp_status read_table(const validate_args *args, const char *path,
                            sp_measurements *measurements, sp_error *err)
{
    char profile[OVERRIDE];
    const char *overrides[MOST_OVERRIDES];
    int count = 0;
    sp_status status = choose_overrides(args, profile, overrides, &count, err);
    if (status == SP_OK && args->published && count > 0) {
        status = sp_measurements_read(path, args->map, NULL, 0, measurements, err);
        if (status != SP_OK || states_costs(args, measurements)) {
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
    if (status == SP_OK) {
        status = sp_validation_run(&all->measurements[all->count], cli_threads(args->jobs),
                                   &all->validations[all->count], err);
        all->count++;
    }
    return status;
}

static sp_status validate_published(const validate_args *args, tables *all, sp_error *err)
{
    sp_published published;
    char path[SP_PUBLISHED_PATH];
    sp_status status = sp_published_list(&published, err);
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

// ---- output ----

static int print(const validate_args *args, const tables *all)
{
    if (args->common.json) {
        return cli_print_json(cli_validations_json(all->validations, all->count));
    }
    cli_print_validations(stdout, all->validations, all->count);
    for (int i = 0; args->rows && i < all->count; i++) {
        cli_print_validated_cases(stdout, &all->validations[i]);
    }
    return 0;
}

static bool within_bounds(const tables *all)
{
    bool within = true;
    for (int i = 0; i < all->count; i++) {
        within = within && all->validations[i].within_bound;
    }
    return within;
}

static int validate(const validate_args *args, tables *all)
{
    sp_error err = {0};
    sp_status status = args->plot != NULL ? cli_plot_check(args->plot, &err) : SP_OK;
    if (status == SP_OK) {
        status = args->published ? validate_published(args, all, &err)
                                 : validate_table(args, args->measurements, all, &err);
    }
    if (status != SP_OK) {
        return cli_fail(&err);
    }
    int exit_status = print(args, all);
    if (args->plot != NULL &&
        cli_plot_validations(args->plot, all->validations, all->count, &err) != SP_OK) {
        return cli_fail(&err);
    }
    return exit_status == 0 && !within_bounds(all) ? sp_status_exit(SP_ERR_INFEASIBLE)
                                                   : exit_status;
}

// NULL: the options fit together.
static const char *wrong_usage(const validate_args *args)
{
    if (args->published == (args->measurements != NULL)) {
        return "'validate' needs either --published or --measurements TABLE";
    }
    if (args->table != NULL && !args->published) {
        return "--table chooses among the tables of --published";
    }
    if (args->map != NULL && args->published) {
        return "--map has a use beside --measurements only";
    }
    return NULL;
}

static int run(int argc, char **argv)
{
    validate_args args = {0};
    cli_operands operands;
    int exit_status = cli_parse(&cli_cmd_validate, argc, argv, &args, &operands);
    if (exit_status != CLI_PROCEED) {
        return exit_status;
    }
    const char *wrong = wrong_usage(&args);
    tables *all = sp_i_calloc(1, sizeof *all);
    if (wrong != NULL) {
        exit_status = cli_usage_error(&cli_cmd_validate, "%s", wrong);
    } else if (all == NULL) {
        sp_error err = {0};
        sp_error_no_memory(&err, "a validation");
        exit_status = cli_fail(&err);
    } else {
        exit_status = validate(&args, all);
    }
    for (int i = 0; all != NULL && i < all->count; i++) {
        sp_validation_fini(&all->validations[i]);
        sp_measurements_fini(&all->measurements[i]);
    }
    sp_i_free(all);
    cli_list_fini(&args.set);
    return exit_status;
}
